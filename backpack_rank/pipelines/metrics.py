"""From rerankers to measures: everything is ranked once, and every kind of measure has queries of
its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import located
from backpack_rank.data.collection import Collection, Run, select_queries
from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.measure_names import parse_measures, split_measures
from backpack_rank.evaluation.ranked_documents import shown
from backpack_rank.evaluation.result_table import (
    BIAS,
    CHANGED,
    EFFECTIVENESS,
    SWAP,
    VARIANTS,
    ResultTable,
    SystemMetrics,
)
from backpack_rank.evaluation.results import PerQuery, RunInfo
from backpack_rank.evaluation.score_gaps import gap_measures, score_gaps, score_spread
from backpack_rank.evaluation.swap_stability import swap_measures, swap_stability
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.reranking.rerankers import Reranker

log = logging.getLogger(__name__)
_EPS = 1e-5
"""Gaps up to this share of the spread are rounding: scores of equal inputs differ by it between
batches.
"""


@dataclass(frozen=True)
class SystemRuns:
    """Everything that a reranker ranked.

    Attributes:
        label: name in the tables.
        alpha: position of the dial, None without one.
        test: rankings of the effectiveness set.
        bias: rankings of the bias set.
        swapped: the bias set's candidates scored in their swapped wording, or None.
        variants: scores of the documents in every wording, or None.
    """

    label: str
    alpha: float | None
    test: Run
    bias: Run
    swapped: Run | None = None
    variants: Run | None = None


def rank_all(reranker: Reranker, data: EvaluationData) -> SystemRuns:
    """The rankings of a reranker; wordings are compared only by rerankers whose scores can be."""
    test = reranker.rerank(data.candidates, data.test)
    bias = (
        reranker.rerank(data.bias_candidates, data.bias)
        if data.separate
        else select_queries(test, data.bias)
    )
    swapped = variants = None
    if reranker.compares_texts and data.swapped is not None:
        # What a swap leaves alone keeps its score.
        changed = (
            reranker.rerank(data.swapped.candidates, data.swapped.collection)
            if data.swapped.candidates
            else {}
        )
        swapped = {
            query_id: {**scores, **changed.get(query_id, {})} for query_id, scores in bias.items()
        }
    if reranker.compares_texts and data.variants is not None:
        variants = reranker.rerank(data.variants.candidates, data.variants.collection)
    return SystemRuns(reranker.name, reranker.alpha, test, bias, swapped, variants)


@dataclass(frozen=True)
class MetricSuite:
    """Which measures are taken.

    Attributes:
        effectiveness: ir_measures strings.
        fairness: measures of the bias set.
        groups: of the wordings whose gap is measured, first minus second.
    """

    effectiveness: tuple[str, ...]
    fairness: FairnessMeasures
    groups: tuple[str, str]

    def evaluate(self, rerankers: Sequence[Reranker], data: EvaluationData) -> ResultTable:
        """Rank everything by every reranker and measure it."""
        return self.measure([rank_all(reranker, data) for reranker in rerankers], data)

    def measure(self, systems: Sequence[SystemRuns], data: EvaluationData) -> ResultTable:
        """Values of every system, with one count of words for all of them."""
        background = data.bias_candidates if self.fairness.needs_background else None
        wanted = self.fairness.documents([system.bias for system in systems], background)
        magnitudes = self.fairness.magnitudes(wanted, data.bias.documents)
        if not magnitudes.values["tc"].any():
            log.warning(
                "none of the %d ranked documents has a word of %s: measures of bias have nothing "
                "to see here",
                len(wanted),
                self.fairness.lexicon,
            )
        context = self.fairness.context(magnitudes, background, data.bias.queries)
        rows = tuple(
            SystemMetrics(one.label, one.alpha, self._values(one, data, context)) for one in systems
        )
        measured = max(
            (len(row.values[BIAS].query_ids) for row in rows if BIAS in row.values), default=0
        )
        info = RunInfo(
            data.test.name,
            data.bias_set_of(measured),
            notes=_without_background(systems, background, data),
        )
        names = {EFFECTIVENESS: data.test.name, BIAS: f"bias set of {data.bias.name}"}
        return ResultTable(rows, self.fairness.describe(info, data.stage), names)

    def measure_names(self, data: EvaluationData) -> list[str]:
        """Names of all measures of a ranker over this data, before anything is ranked."""
        names: list[str] = []
        if data.test.qrels:
            names += self.effectiveness
        names += self.fairness.measures
        if data.swapped is not None:
            names += swap_measures()
            if data.swapped.candidates:
                names += swap_measures(only_changed=True)
        if data.variants is not None:
            names += gap_measures(self.groups)
        return names

    def _warn_of_labels(self, collection: Collection) -> None:
        """Say which measures are 0 for every ranking, as no document is as relevant as they ask."""
        highest = max(
            (label for judged in collection.qrels.values() for label in judged.values()), default=0
        )
        for name, measure in parse_measures(self.effectiveness).items():
            wanted = measure.params.get("rel", 1)
            if wanted > highest:
                log.warning(
                    "measures: %s counts documents of relevance %d or more, and the highest label "
                    "of %s is %d: it is 0 for every ranking",
                    name,
                    wanted,
                    collection.name,
                    highest,
                )

    def _values(
        self, runs: SystemRuns, data: EvaluationData, context: FairnessContext
    ) -> Mapping[str, PerQuery]:
        values: dict[str, PerQuery] = {}
        if data.test.qrels and self.effectiveness:
            self._warn_of_labels(data.test)
            values[EFFECTIVENESS] = effectiveness(runs.test, data.test.qrels, self.effectiveness)
        values[BIAS] = context.measure(runs.bias, self.fairness.measures)
        spread = None
        if runs.swapped is not None or runs.variants is not None:
            spread = score_spread(runs.test)
        if runs.swapped is not None and data.swapped is not None:
            stability = swap_stability(runs.bias, runs.swapped, data.swapped.counts.changed, spread)
            values[SWAP] = stability.every
            if stability.changed:
                values[CHANGED] = stability.swapped
        if runs.variants is not None and data.variants is not None:
            eps = _EPS if spread else 0.0
            values[VARIANTS] = score_gaps(
                runs.variants, data.variants.variants, spread, eps=eps, groups=self.groups
            )
        return values


def metrics_of(
    measures: str | Sequence[str] | None,
    bias: FairnessMeasures,
    attribute: Attribute,
    dataset: Dataset | None,
) -> MetricSuite:
    """The measures that options ask for; those of fairness among ``measures`` join ``bias``.

    Args:
        measures: ir_measures strings; None: those of the data.
        bias: measures of the bias set.
        attribute: whose groups wordings are compared in.
        dataset: the data, or None.

    Raises:
        ValueError: a measure that does not exist; lists those that do.
    """
    given = dataset.measures if measures is None and dataset is not None else measures
    names = [given] if isinstance(given, str) else [str(name) for name in given or ()]
    ranking: Sequence[str] = ()
    fairness: Sequence[str] = ()
    if names:
        with located("data.measures" if measures is None else "measures"):
            ranking, fairness = split_measures(names)
    bias = replace(bias, extra=(*bias.extra, *fairness))
    return MetricSuite(tuple(ranking), bias, attribute.sign)


def _without_background(
    systems: Sequence[SystemRuns], background: Run | None, data: EvaluationData
) -> tuple[str, ...]:
    """A note on queries that a system ranks and NFaiRR leaves out, because the first stage has no
    document of them.
    """
    if background is None:
        return ()
    ranked = [
        query_id
        for query_id in data.bias.queries
        if any(system.bias.get(query_id) for system in systems)
    ]
    absent = [query_id for query_id in ranked if not background.get(query_id)]
    if not absent:
        return ()
    queries = f"{len(absent)} of {len(ranked)} queries"
    return (f"NFaiRR leaves out {queries}, of which {data.stage} has no document: {shown(absent)}",)


def check_known(run: Run, data: EvaluationData, name: str) -> None:
    """Whether a finished run is of this collection.

    Raises:
        ValueError: none of its queries is in the collection, or one of its documents.
    """
    known = [
        query_id
        for query_id in run
        if query_id in data.test.queries or query_id in data.bias.queries
    ]
    if not known:
        raise ValueError(
            f"{name}: none of its {len(run)} queries is in {data.test.name}, for example "
            f"{list(run)[:3]}; is data= the collection that this run ranks?"
        )
    if len(known) < len(run):
        log.warning(
            "%s: left out, as not in %s: %d of %d queries",
            name,
            data.test.name,
            len(run) - len(known),
            len(run),
        )
    for query_id, scores in select_queries(run, data.bias).items():
        _check_documents(query_id, scores, data.bias, name)


def _check_documents(
    query_id: str, scores: Mapping[str, float], collection: Collection, name: str
) -> None:
    unknown = [doc_id for doc_id in scores if doc_id not in collection.documents]
    if unknown:
        raise ValueError(
            f"{name}: document {unknown[0]!r} of query {query_id!r} is not in {collection.name} "
            f"({len(unknown)} of {len(scores)} documents of this query are not); "
            "is data= the collection that this run ranks?"
        )
