"""``backpack-rank calibrate``: scores of a ranker as probabilities of relevance, at every alpha."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.constructors import BELOW, Called, Count, FilePath, Name, Note, OneOf, Options
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.calibration_error import calibration_error, change_of_error
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.chosen_ranker import ChosenRanker
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.nodes import build, check_options, made_options, plain_options
from backpack_rank.pipelines.option_types import (
    Alphas,
    DataOptions,
    FirstStageNode,
    Labels,
    Pooling,
)
from backpack_rank.progress import printable
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table
from backpack_rank.reporting.writers import print_table, write_table
from backpack_rank.reranking.planned_scores import scores_of_pairs
from backpack_rank.reranking.pointwise import PointwiseReranker, sigmoid
from backpack_rank.reranking.score_calibration import (
    CALIBRATION,
    METHODS,
    Calibration,
    CalibrationMap,
    check_can_fit,
    fitted_map,
)
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.policies import Policy

log = logging.getLogger(__name__)
LEAST_CHANGE = 0.01
"""Growth of a calibration error from which on the dial is said to break it."""
UNJUDGED = ("left_out", "not_relevant")
_UNJUDGED_IN_WORDS = {"left_out": "left out", "not_relevant": "counted as not relevant"}


class CalibrationOptions(Options):
    """``conf/calibrate.yaml``."""

    data: DataOptions | None
    first_stage: FirstStageNode | None
    attribute: Annotated[Attribute, BELOW]
    policy: Annotated[Policy, Called("one of list=policy")]
    template: Annotated[PromptTemplate, Called("one of list=template")] | None
    labels: Labels | None
    server_model: Name | None
    pooling: Pooling
    checkpoint: FilePath | None
    output: FilePath | None
    runs: FilePath
    method: Annotated[str, OneOf(METHODS)]
    alphas: Alphas
    relevant: Count
    unjudged: Literal["left_out", "not_relevant"] | Annotated[None, Note("by the judgements")]
    bins: Count
    scoring: ScoringSettings


class JudgedScores:
    """Scores of the judged candidates of a split at A alphas.

    Attributes:
        name: of the split's collection.
        unjudged: what became of candidates without a judgement, of :data:`UNJUDGED`.
        scores: raw scores. float32 [A, n]
        relevant: whether each pair is. bool [n]
        queries: the query of each pair. [n]
    """

    def __init__(
        self,
        name: str,
        unjudged: str,
        scores: np.ndarray,
        relevant: np.ndarray,
        queries: Sequence[str],
    ) -> None:
        self.name = name
        self.unjudged = unjudged
        self.scores = scores
        self.relevant = relevant
        self.queries = queries

    @property
    def counts(self) -> str:
        """Such as "1,200 pairs of 40 queries, 130 of them relevant, unjudged ones left out"."""
        return (
            f"{len(self.relevant):,} pairs of {len(set(self.queries)):,} queries, "
            f"{int(self.relevant.sum()):,} of them relevant, unjudged ones "
            f"{_UNJUDGED_IN_WORDS[self.unjudged]}"
        )


class Calibrating:
    """What ``backpack-rank calibrate`` does, made of ``conf/calibrate.yaml``.

    Maps are fitted on the dev split, and the test split says how far off they are.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """
        Args:
            config: as composed from ``conf/calibrate.yaml``, which describes every option.

        Raises:
            ValueError: an option that is wrong.
        """
        check_options(config, CalibrationOptions)
        options = plain_options(config)
        self._policy: Policy = build(options["policy"], "policy")
        self._data = ChosenData(options.get("data"), options.get("first_stage"))
        checkpoint = options["checkpoint"]
        # Rankers are trained below ``runs``; ``output`` is where the calibration goes.
        of_ranker = {**options, "output": str(options["runs"])}
        self._ranker = ChosenRanker(**made_options(of_ranker, ChosenRanker))
        self._is_local = checkpoint is None or Path(checkpoint).expanduser().exists()
        self._output = options["output"]
        self.method: str = options["method"]
        # Each once, in the order that is given: the first one is compared with.
        self.alphas = list(dict.fromkeys(float(alpha) for alpha in options["alphas"]))
        self._relevant: int = options["relevant"]
        self._unjudged: str | None = options["unjudged"]
        self._bins: int = options["bins"]

    def run(self) -> Path:
        """Fit, measure, print the table, and write everything; gives the path of the JSON file.

        Raises:
            FileNotFoundError: there is no such ranker.
            ValueError: the data have no dev or test split or no judgements of both kinds, or the
                folder of the results must be given.
        """
        check_can_fit()
        checkpoint = self._ranker.find_ranker()
        folder = self._folder(checkpoint)
        dataset = self._data.of(checkpoint)
        # Both are looked at before minutes of scoring.
        dev_collection = dataset.split("dev")
        test_collection = dataset.split("test")
        unchanged = self._ranker.load_ranker(checkpoint)
        dev = self._judged(unchanged, dataset, "dev", dev_collection)
        maps = {}
        for alpha, scores in zip(self.alphas, dev.scores, strict=True):
            try:
                maps[alpha] = fitted_map(self.method, scores, dev.relevant)
            except ValueError as error:
                raise ValueError(f"{dev.name} at alpha={alpha:g}: {error}") from None
        test = self._judged(unchanged, dataset, "test", test_collection)

        policy = unchanged.with_policy(self._policy, self.alphas[-1]).hook.policy
        assert policy is not None
        table = self._table(test, maps, dev, policy.name)
        # The JSON file is last: where it is, its tables are.
        folder.mkdir(parents=True, exist_ok=True)
        write_table(folder, table)
        path = folder / CALIBRATION
        Calibration(maps, policy.name, self.method, dev.name).write(path)
        print_table(table)
        print(printable(f"Calibration: {path}"))
        return path

    def _folder(self, checkpoint: Path | str) -> Path:
        if self._output is not None:
            folder = Path(self._output).expanduser()
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(f"output={folder}: this is a file; give a folder")
            return folder
        if not self._is_local or not isinstance(checkpoint, Path):
            raise ValueError(
                f"{self._ranker.checkpoint} is no folder of yours: give output=FOLDER for its "
                f"{CALIBRATION}, and load(..., calibration=FOLDER)"
            )
        return checkpoint

    def _judged(
        self, unchanged: PointwiseReranker, dataset: Dataset, split: str, collection: Collection
    ) -> JudgedScores:
        """The judged candidates of a split, scored at all alphas."""
        _, candidates = dataset.candidates(split, collection)
        unjudged = self._unjudged or self._unjudged_of(collection)
        judged = self._with_labels(collection, candidates, unjudged)
        pairs = Pairs.from_run(judged, collection)
        labels = []
        for query_id, doc_id in zip(pairs.query_ids, pairs.doc_ids, strict=True):
            labels.append(judged[query_id][doc_id] > 0)
        relevant = np.array(labels, dtype=bool)
        if not relevant.any() or relevant.all():
            raise ValueError(
                f"{collection.name} has {int(relevant.sum()):,} relevant documents among "
                f"{len(relevant):,} judged candidates: a calibration needs both kinds "
                "(unjudged=not_relevant counts unjudged ones, relevant=GRADE is where relevance "
                "begins)"
            )
        policies = []
        for alpha in self.alphas:
            policies.append(unchanged.with_policy(self._policy, alpha).hook.views)
        scores = scores_of_pairs(policies, unchanged.scorer, pairs)
        pairs.check_finite(scores.sum(axis=0))
        return JudgedScores(collection.name, unjudged, scores, relevant, pairs.query_ids)

    def _unjudged_of(self, collection: Collection) -> str:
        """What a candidate without a judgement is, where no option says it."""
        for grades in collection.qrels.values():
            if any(grade < self._relevant for grade in grades.values()):
                return "left_out"
        # A collection that only lists what is relevant means that others are not.
        return "not_relevant"

    def _with_labels(self, collection: Collection, candidates: Run, unjudged: str) -> Run:
        """The candidates that count, with 1 for relevant ones and 0 for others."""
        labels: Run = {}
        for query_id, documents in candidates.items():
            grades_of_query = collection.qrels.get(query_id)
            # A query that nobody judged has no relevant documents that anybody knows of.
            if not grades_of_query:
                continue
            of_query: dict[str, float] = {}
            for doc_id in documents:
                if doc_id in grades_of_query:
                    of_query[doc_id] = float(grades_of_query[doc_id] >= self._relevant)
                elif unjudged == "not_relevant":
                    of_query[doc_id] = 0.0
            if of_query:
                labels[query_id] = of_query
        return labels

    def _table(
        self,
        test: JudgedScores,
        maps: Mapping[float, CalibrationMap],
        dev: JudgedScores,
        policy: str,
    ) -> Table:
        """Errors on test at each alpha: before, by the map of the first alpha, by its own."""
        first = self.alphas[0]
        rows = []
        records = []
        broken = []
        reference = maps[first](test.scores[0])
        for alpha, scores in zip(self.alphas, test.scores, strict=True):
            of_first = maps[first](scores)
            errors = []
            for probabilities in (sigmoid(scores), of_first, maps[alpha](scores)):
                errors.append(calibration_error(probabilities, test.relevant, self._bins))
            change, low, high = change_of_error(
                reference, of_first, test.relevant, test.queries, self._bins
            )
            if is_broken(change, low):
                broken.append(alpha)
            figures = [Cell(f"{error:.4f}") for error in errors]
            figures.append(Cell(f"{change:+.4f}", interval=f"[{low:+.4f}, {high:+.4f}]"))
            rows.append(Row((f"alpha={alpha:g}",), figures))
            records.append((alpha, *errors, change, low, high))
        by_first = f"map of alpha={first:g}"
        return Table(
            name="calibration",
            title=f"Expected calibration error on {test.name}",
            labels=("",),
            groups=[Group("", ("sigmoid", by_first, "own map", "change"))],
            sections=[Section("", rows)],
            notes=[
                verdict(first, broken),
                f"Maps: {self.method}, fitted on {dev.name} ({dev.counts}), policy {policy}.",
                f"Measured on {test.counts}; {self._bins} bins of equal width. Change: the error "
                f"by the map of alpha={first:g}, less that at alpha={first:g}; 95% intervals over "
                "queries.",
            ],
            columns=(
                *("alpha", "sigmoid", "first_map", "own_map"),
                *("change", "change_low", "change_high"),
            ),
            records=records,
        )


def is_broken(change: float, low: float) -> bool:
    """Whether the error of a map has grown by enough to speak of, and by more than chance.

    >>> is_broken(change=0.0001, low=0.00002), is_broken(change=0.03, low=-0.01)
    (False, False)

    Both are asked for. Scores at two alphas are nearly the same, so their errors move together:
    over queries the interval of a change is narrow, and leaves out 0 for changes of .0001. A change
    of :data:`LEAST_CHANGE` is one point of a hundred between what is said and what is true. Below
    it, nobody would place a threshold elsewhere. The interval keeps larger ones apart from chance.

    Args:
        change: the error less that at the alpha of the map.
        low: the lower end of its interval over queries.
    """
    return change >= LEAST_CHANGE and low > 0


def verdict(first: float, broken: Sequence[float]) -> str:
    """Whether the dial breaks calibration, in one sentence.

    >>> verdict(1.0, [0.0])
    'The dial breaks calibration at alpha=0: the map of alpha=1 is off by 0.01 or more there, \
and by more than chance. Use the maps of their own.'

    Args:
        first: the alpha whose map is tried at others.
        broken: the alphas at which its error grows, see :func:`is_broken`.
    """
    if not broken:
        return (
            f"The dial does not break calibration: by the map of alpha={first:g}, the error grows "
            f"by {LEAST_CHANGE:g} or more, and by more than chance, at no alpha."
        )
    at = ", ".join(f"{alpha:g}" for alpha in broken)
    return (
        f"The dial breaks calibration at alpha={at}: the map of alpha={first:g} is off by "
        f"{LEAST_CHANGE:g} or more there, and by more than chance. Use the maps of their own."
    )


def calibrate(config: Mapping[str, Any]) -> Path:
    """Do what ``conf/calibrate.yaml`` and the command line ask for.

    ::

        backpack-rank calibrate outputs/train/DATE/ranker method=isotonic

    Returns:
        The path of ``calibration.json``.

    Raises:
        ValueError: see :class:`Calibrating`.
    """
    quiet_libraries()
    return Calibrating(config).run()
