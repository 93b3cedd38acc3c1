"""``evaluate.py listwise=...``: a listwise ranker reorders the first candidates of each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import located
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked, write_results
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.metrics import metrics_of, rank_all
from backpack_rank.pipelines.nodes import build_or_none, merged
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import EvaluationTask, SavedOptions
from backpack_rank.position.aggregation.aggregate import Aggregator, Borda
from backpack_rank.position.lists.rank_llm import read_requests, reordered, write_requests
from backpack_rank.position.lists.rewritten import RewrittenLists
from backpack_rank.position.lists.settings import REMEDIES, ListwiseSettings, RankerFactory
from backpack_rank.reranking.rerankers import FirstStageOrder
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.renditions import MeanOfRenditions


class ListTask(Experiment):
    """What to subclass for an experiment with a listwise ranker and its remedies."""

    uses: ClassVar[tuple[str, ...]] = ("listwise", *REMEDIES)
    ignores: ClassVar[tuple[str, ...]] = ("policy", "variants")
    finds_ranker = False


class ListEvaluation(EvaluationTask):
    """Measures a listwise ranker beside its first stage.

    On the command line::

        python evaluate.py listwise=trained [permutation=psc] [calibration=capcal]
    """

    chosen_by: ClassVar[str] = "listwise=..."
    # Swapped wordings are compared by their scores, and rankings of lists have none that compare.
    without: ClassVar[Mapping[str, Any]] = {"swap": False}

    def __init__(
        self,
        *,
        saved: SavedOptions,
        listwise: Mapping[str, Any] | None = None,
        pairwise: Mapping[str, Any] | None = None,
        permutation: Mapping[str, Any] | None = None,
        calibration: Mapping[str, Any] | None = None,
        aggregate: Mapping[str, Any] | None = None,
        aggregate_depth: int | None = None,
        data: Mapping[str, Any] | None = None,
        first_stage: Mapping[str, Any] | None = None,
        attribute: Attribute,
        policy: Policy,
        alpha: float | str = 1.0,
        bias: FairnessMeasures,
        checkpoint: str | None = None,
        output: str = "outputs",
        measures: str | Sequence[str] | None = None,
    ) -> None:
        """Every argument is an option of ``conf/evaluate.yaml``, which describes it.

        Raises:
            ValueError: no listwise ranker, or an option that does nothing beside it.
        """
        self.saved = saved
        chosen = ListwiseSettings.of(
            {
                "listwise": listwise,
                "pairwise": pairwise,
                "permutation": permutation,
                "calibration": calibration,
                "checkpoint": checkpoint,
                "output": output,
            }
        )
        assert chosen is not None  # a remedy without a listwise ranker is refused
        self.listwise = chosen
        self.aggregator: Aggregator | None = build_or_none(aggregate, "aggregate")
        check_listwise_alpha(alpha, policy)
        if self.aggregator is not None and alpha != 0:
            raise ValueError(
                "aggregate=... and listwise=... do not go together: leave one of them out"
            )
        self.data = ChosenData(data, first_stage)
        self.attribute = attribute
        self.policy = policy
        self.alpha = alpha
        self.bias = bias
        self.measures = measures

    def run(self, folder: Path, quiet: bool = False) -> Report:
        """Rank, measure, and write everything to the folder."""
        checkpoint = self.listwise.trained()
        dataset = self.data.needed() if checkpoint is None else self.data.of(checkpoint)
        metrics = metrics_of(self.measures, self.bias, self.attribute, dataset)
        lexicon = metrics.fairness.lexicon
        data = load_evaluation_data(dataset, self.attribute, lexicon, swap=False)
        metrics.check(data)
        ranker = RankerFactory().build(self.listwise)
        if self.alpha == 0:
            policy = self.policy
            assert isinstance(policy, MeanOfRenditions)  # check_listwise_alpha
            aggregator = self.aggregator or Borda()
            ranker = RewrittenLists(ranker, policy.rewritings, policy.name, aggregator)
        reranker = self.listwise.reranker(ranker, folder)
        systems = [rank_all(FirstStageOrder(data.stage), data), rank_all(reranker, data)]
        if dataset.requests is not None:
            requests = read_requests(Path(dataset.requests).expanduser())
            write_requests(folder / "results.jsonl", reordered(requests, systems[-1].test))
        notes = reranker.notes()
        if checkpoint is not None:
            notes = [f"Ranker: {checkpoint}", *notes]
        ranked = Ranked(data, metrics, systems, notes, checkpoint)
        return write_results(self.saved, folder, ranked, quiet)


def needed_listwise(settings: EvaluationSettings, what: str) -> ListwiseSettings:
    """In an experiment that cannot do without a listwise ranker.

    ``needed_listwise(settings, "sorting needs a listwise ranker")``

    Args:
        settings: of the evaluation.
        what: begins the sentence where there is none.

    Raises:
        ValueError: there is none, or an option beside it that would be ignored.
    """
    listwise = ListwiseSettings.of(settings.saved.values)
    if listwise is None:
        raise ValueError(
            f"{what}: add listwise=trained, listwise=hugging_face listwise.ranker.name=NAME, or "
            "listwise=openai"
        )
    return listwise


def listwise_with(settings: EvaluationSettings, options: Mapping[str, Any]) -> ListwiseSettings:
    """The listwise ranker of a row, whose options differ from those of the command line.

    Raises:
        ValueError: the options leave no listwise ranker.
    """
    # Without the task, which may hold whole collections that rows say nothing about.
    values = {name: value for name, value in settings.saved.values.items() if name != "task"}
    changed = ListwiseSettings.of(SavedOptions.of(merged(values, options)).values)
    if changed is None:
        raise ValueError(
            f"the options {dict(options)} leave no listwise ranker: name one by listwise.ranker"
        )
    return changed


def check_rows(
    settings: EvaluationSettings, rows: Mapping[str, Mapping[str, Any]], option: str
) -> None:
    """Check the options of all rows before anything is ranked, which may take hours.

    Args:
        rows: by name, options that differ from those of the command line.
        option: that the rows are, such as ``task.rows``.

    Raises:
        ValueError: a wrong option; names the row.
    """
    for name, options in rows.items():
        with located(settings.saved.place_of(option, name)):
            listwise_with(settings, options)


def check_listwise_alpha(alpha: float | str, policy: Policy) -> None:
    """Refuse, by a ``ValueError``, an alpha that a listwise ranker cannot be set to."""
    if alpha != 1 and not isinstance(policy, MeanOfRenditions):
        raise ValueError(
            f"alpha={alpha} turns the senses of a Backpack; listwise=... has none: leave it out, "
            "or take policy=renditions, which averages orders"
        )
    if alpha not in (0, 1):
        raise ValueError(
            f"alpha={alpha}: orders are averaged in full or not at all, so listwise=... takes 0 or "
            "1"
        )
