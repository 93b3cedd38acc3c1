"""``evaluate.py listwise=...``: a listwise ranker reorders the first candidates of each query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import OmegaConf

from backpack_rank.checks import located
from backpack_rank.evaluation.results import Report
from backpack_rank.experiments.grid import row_of
from backpack_rank.pipelines.evaluation_checks import explain_options, refuse_beside
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked, write_results
from backpack_rank.pipelines.metrics import rank_all
from backpack_rank.pipelines.nodes import build_or_none
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import Task
from backpack_rank.position.aggregation.aggregate import Aggregator, Borda
from backpack_rank.position.lists.rank_llm import read_requests, reordered, write_requests
from backpack_rank.position.lists.rewritten import RewrittenLists
from backpack_rank.position.lists.settings import REMEDIES, ListwiseSettings, RankerFactory
from backpack_rank.reranking.rerankers import FirstStageOrder
from backpack_rank.senses.renditions import MeanOfRenditions


class ListTask(Task):
    """An evaluation or an experiment of a listwise ranker."""

    takes: ClassVar[tuple[str, ...]] = ("listwise", *REMEDIES)
    finds_ranker = False


class ListEvaluation(ListTask):
    """Measure a listwise ranker beside its first stage."""

    takes = (*ListTask.takes, "aggregate")

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of the ranker, or one that does nothing beside it."""
        self._checked(settings)

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report:
        """Rank, measure, and write everything to the folder."""
        listwise, aggregator = self._checked(settings)
        checkpoint = listwise.trained()
        dataset = settings.dataset(checkpoint) if checkpoint is not None else settings.needed_dataset()
        metrics = settings.metrics(dataset)
        # Swapped wordings are compared by their scores, and rankings of lists have none that compare.
        data = load_evaluation_data(dataset, settings.attribute, metrics.fairness.lexicon, swap=False)
        ranker = RankerFactory().build(listwise)
        if settings.alpha == 0:
            assert isinstance(settings.policy, MeanOfRenditions)  # check_listwise
            policy = settings.policy
            ranker = RewrittenLists(ranker, policy.rewritings, policy.name, aggregator or Borda())
        reranker = listwise.reranker(ranker, folder)
        systems = [rank_all(one, data) for one in (FirstStageOrder(data.stage), reranker)]
        if dataset.requests is not None:
            requests = read_requests(Path(dataset.requests).expanduser())
            write_requests(folder / "results.jsonl", reordered(requests, systems[-1].test))
        notes = reranker.notes()
        if checkpoint is not None:
            notes = [f"Ranker: {checkpoint}", *notes]
        return write_results(settings, folder, Ranked(data, metrics, systems, notes, checkpoint), quiet)

    def _checked(self, settings: EvaluationSettings) -> tuple[ListwiseSettings, Aggregator | None]:
        listwise = ListwiseSettings.of(settings.config)
        assert listwise is not None  # without one a remedy is refused
        aggregator: Aggregator | None = build_or_none(settings.config.get("aggregate"), "aggregate")
        check_listwise(settings, aggregator)
        return listwise, aggregator


def needed_listwise(settings: EvaluationSettings, what: str) -> ListwiseSettings:
    """The listwise ranker of an experiment.

    Args:
        settings: of the evaluation.
        what: begins the sentence where there is none.

    Raises:
        ValueError: there is none, or an option beside it that would be ignored.
    """
    if settings.alpha != 1:
        raise ValueError(f"alpha={settings.alpha} turns the senses of a Backpack; a listwise ranker has none")
    listwise = ListwiseSettings.of(settings.config)
    if listwise is None:
        raise ValueError(
            f"{what}: add listwise=trained, listwise=hugging_face listwise.ranker.name=NAME, or listwise=openai"
        )
    check_listwise(settings)
    return listwise


def listwise_with(settings: EvaluationSettings, options: Mapping[str, Any]) -> ListwiseSettings:
    """The listwise ranker under some changed options. Raises ``ValueError`` where there is none."""
    # Without the task, which may hold whole collections that rows say nothing about.
    names = [str(name) for name in settings.config if name != "task"]
    config = OmegaConf.masked_copy(settings.config, names)
    changed = ListwiseSettings.of(replace(settings, config=config).with_options(options).config)
    if changed is None:
        raise ValueError(f"the options {dict(options)} leave no listwise ranker: name one by listwise.ranker")
    return changed


def check_rows(settings: EvaluationSettings, rows: Mapping[str, Mapping[str, Any]], option: str) -> None:
    """Look at the options of all rows before the first one is ranked.

    Args:
        rows: by name, options that differ from those of the command line.
        option: that the rows are, such as ``task.rows``.

    Raises:
        ValueError: a wrong option; names the row.
    """
    for name, options in rows.items():
        with located(row_of(settings, option, name)):
            listwise_with(settings, options)


def check_listwise(settings: EvaluationSettings, aggregator: Aggregator | None = None) -> None:
    """Raise ``ValueError`` for an option that acts on nothing beside ``listwise=...``."""
    if settings.alpha != 1 and not isinstance(settings.policy, MeanOfRenditions):
        raise ValueError(
            f"alpha={settings.alpha} turns the senses of a Backpack; listwise=... has none: leave it out, or take "
            "policy=renditions, which averages orders"
        )
    if settings.alpha not in (0, 1):
        raise ValueError(
            f"alpha={settings.alpha}: orders are averaged in full or not at all, so listwise=... takes 0 or 1"
        )
    if settings.certificate:
        raise ValueError("certificate=true is about scores, and listwise=... gives orders: leave one of them out")
    beside = {
        "run": settings.runs,
        "variants": settings.variants,
        "aggregate": None if settings.alpha == 0 else aggregator,
        "recalibrate.run": settings.recalibration,
        **explain_options(settings),
    }
    refuse_beside(beside, "listwise=...")
