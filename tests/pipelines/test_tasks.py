"""A task takes the options that its constructor names; every other one that is given is refused by
one sentence.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest
from in_process import configured

from backpack_rank.constructors import Name
from backpack_rank.options import own_options
from backpack_rank.pipelines.evaluate import RankUnderAlpha, task_of
from backpack_rank.pipelines.evaluate_runs import MeasureRuns
from backpack_rank.pipelines.explain import ExplainScore
from backpack_rank.pipelines.tasks import FOR_ALL, EvaluationTask, SavedOptions, made_task
from backpack_rank.position.aggregation.evaluate import AggregatedEvaluation
from backpack_rank.position.lists.evaluate import ListEvaluation

RUNS = ["run=[a.trec,b.trec]", "data=synthetic"]
LISTS = ["listwise=hugging_face", "listwise.ranker.name=gpt2", "data=synthetic"]
EXPLAIN = ["explain.query=a", "explain.document=b"]
TASKS = [RankUnderAlpha, MeasureRuns, ExplainScore, AggregatedEvaluation, ListEvaluation]


@pytest.mark.parametrize("kind", TASKS)
def test_every_argument_of_a_task_is_an_option(kind: type[EvaluationTask]) -> None:
    assert set(inspect.signature(kind).parameters) - {"saved"} <= own_options("evaluate").keys()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ([], RankUnderAlpha),
        (["alpha=0.5", "policy=renditions"], RankUnderAlpha),
        (RUNS, MeasureRuns),
        (EXPLAIN, ExplainScore),
        ([*RUNS, "aggregate=borda"], AggregatedEvaluation),
        (LISTS, ListEvaluation),
    ],
)
def test_options_choose_the_task(options: list[str], kind: type[EvaluationTask]) -> None:
    assert type(task_of(configured("evaluate", *options))) is kind


@dataclass(kw_only=True, eq=False)
class WithHeading(RankUnderAlpha):
    """All that somebody writes who adds an option: this field, and its line in conf/evaluate.yaml."""

    heading: Name | None = None


@pytest.mark.parametrize("value", [5, "", ["a"], {}, {"a": 1}])
def test_an_option_of_a_task_is_declared_by_its_field_alone(value: object) -> None:
    options = SavedOptions.of(configured("evaluate"))
    for fits in (None, "of mine"):
        saved = SavedOptions({**options.values, "heading": fits})
        assert made_task(WithHeading, saved).heading == fits
    with pytest.raises(
        ValueError, match=r"^heading=.* must be a name of 1 to 255 characters, or null"
    ):
        made_task(WithHeading, SavedOptions({**options.values, "heading": value}))


OTHERS = [
    (RUNS, "alpha=0.5", "alpha=0.5 does nothing to run=...: leave one of them out"),
    (RUNS, "variants=grep_biasir", "variants=... does nothing to run=...: leave one of them out"),
    (RUNS, "policy=renditions", "policy=... does nothing to run=...: leave one of them out"),
    (RUNS, "checkpoint=ranker", "checkpoint=ranker does nothing to run=...: leave one of them out"),
    (RUNS, "certificate=true", "certificate=true does nothing to run=...: leave one of them out"),
    (EXPLAIN, "run=a.trec", "run=a.trec does nothing to explain.*: leave one of them out"),
    (
        EXPLAIN,
        "measures=nDCG@10",
        "measures=nDCG@10 does nothing to explain.*: leave one of them out",
    ),
    (
        LISTS,
        "recalibrate.run=a.trec",
        "recalibrate.run=... does nothing to listwise=...: leave one of them out",
    ),
    (
        LISTS,
        "variants=grep_biasir",
        "variants=... does nothing to listwise=...: leave one of them out",
    ),
    (
        [*RUNS, "aggregate=rrf"],
        "alpha=0",
        "alpha=0 does nothing to aggregate=...: leave one of them out",
    ),
    (
        ["experiment=recruitment"],
        "run=a.trec",
        "run=a.trec does nothing to this experiment: leave it out",
    ),
    (
        ["experiment=recruitment"],
        "listwise=openai",
        "listwise=... does nothing to this experiment: leave it out",
    ),
    (
        ["experiment=recruitment"],
        "alpha=0.5",
        "alpha=0.5 does nothing to this experiment: leave it out, or give task.",
    ),
]


@pytest.mark.parametrize(
    ("options", "other", "message"), OTHERS, ids=[f"{o[0]}-{other}" for o, other, _ in OTHERS]
)
def test_an_option_that_the_task_does_not_take_is_refused(
    options: list[str], other: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKPACK_RANK_DATA", "/nowhere")
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the sentence is compared as a whole
        task_of(configured("evaluate", *options, other))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("options", [RUNS, EXPLAIN, LISTS, ["experiment=recruitment"]])
def test_options_of_where_and_how_go_with_every_task(options: list[str]) -> None:
    more = [
        "output=elsewhere",
        "resume=true",
        "scoring.dtype=bfloat16",
        "cache.max_gb=1",
        "swap=false",
    ]
    assert {option.partition("=")[0].partition(".")[0] for option in more[:-1]} <= set(FOR_ALL)
    task_of(configured("evaluate", *options, *more))
