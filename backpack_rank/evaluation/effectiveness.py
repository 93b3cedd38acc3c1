"""Measures of effectiveness (nDCG, MRR, recall, ...), computed by ir_measures, and those of
fairness next to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import ir_measures
from ir_measures import Evaluator, Measure, Metric, Provider
from ir_measures.util import QrelsConverter, RunConverter

from backpack_rank.data.collection import Qrels, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.measure_names import FAIRNESS, FairnessMeasure, parse_measures
from backpack_rank.evaluation.results import PerQuery, check_finite

DEFAULT_MEASURES = ("MRR@10", "nDCG@5", "nDCG@10", "R@100")


def effectiveness(run: Run, qrels: Qrels, measures: Sequence[str] = DEFAULT_MEASURES) -> PerQuery:
    """Per-query values of measures of effectiveness.

    Which queries count: every judged query with at least one relevant document (relevance 1 or
    more). One of these that the run does not have, or has an empty list for, counts 0 and is named
    in ``missing``. Judged queries without any relevant document have no value and are named in
    ``left_out``; queries without judgements are ignored.

    The tools behind ir_measures break ties of scores in different ways, so they are given the ranks
    of :func:`~backpack_rank.data.trec.ranking` (score, then document id) in place of the scores.

    Args:
        run: the rankings.
        qrels: the judgements.
        measures: in the spelling of ir_measures; they keep the names given here (``MRR@10`` is
            ``RR@10`` there).

    Raises:
        ValueError: a measure that is unknown or cannot be computed, no measure at all, no judged
            query with a relevant document, a score that is not finite, or a measure of fairness,
            which needs magnitudes.
    """
    parsed = parse_measures(measures)
    fairness = [name for name, measure in parsed.items() if isinstance(measure, FairnessMeasure)]
    if fairness:
        raise ValueError(
            f"{', '.join(fairness)}: measures of fairness need magnitudes of documents, not "
            "judgements; FairnessContext.measure takes them"
        )
    check_finite(run)
    judged = {
        query_id: documents for query_id, documents in qrels.items() if _any_relevant(documents)
    }
    if not judged:
        raise ValueError(
            f"none of the {len(qrels)} judged queries has a relevant document, nothing can be "
            "measured"
        )
    ranked = {query_id: _by_rank(run[query_id]) for query_id in judged if run.get(query_id)}
    values = {name: dict.fromkeys(judged, 0.0) for name in parsed}
    names: dict[ir_measures.Measure, list[str]] = {}
    for name, measure in parsed.items():
        names.setdefault(measure, []).append(name)
    if ranked:
        for metric in ir_measures.iter_calc(list(names), judged, ranked):
            for name in names[metric.measure]:
                if metric.query_id in ranked:
                    values[name][metric.query_id] = float(metric.value)
    return PerQuery(
        values,
        left_out=tuple(query_id for query_id in qrels if query_id not in judged),
        missing=tuple(query_id for query_id in judged if query_id not in ranked),
    )


def _any_relevant(documents: Mapping[str, int]) -> bool:
    return any(relevance > 0 for relevance in documents.values())


def _by_rank(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores n, n-1, ..., 1 in our order: strictly decreasing and exact in float32."""
    order = ranking(scores)
    return {doc_id: float(len(order) - index) for index, doc_id in enumerate(order)}


def with_fairness(context: FairnessContext) -> Provider:
    """ir_measures' own pipeline with the measures of fairness in it, bound to magnitudes.

    ``with_fairness(context).calc_aggregate([nDCG @ 10, RaB @ 10], qrels, run)`` then works as in
    ir_measures. Measures of fairness ignore judgements. Their queries are those of the context, or
    else of the run; a judged query without a list has the value NaN and does not count in their
    mean, where ir_measures would count it as 0.
    """
    return ir_measures.providers.FallbackProvider(
        [FairnessProvider(context), ir_measures.DefaultPipeline]
    )


class FairnessProvider(Provider):
    """Computes the measures of fairness for ir_measures."""

    NAME = "backpack_rank"
    SUPPORTED_MEASURES = list(FAIRNESS)

    def __init__(self, context: FairnessContext) -> None:
        super().__init__()
        self.context = context

    def supports(self, measure: Measure) -> bool:
        """Whether it is a measure of fairness."""
        measure.validate_params()
        return measure.NAME in {known.NAME for known in FAIRNESS}

    def _evaluator(self, measures: Iterable[Measure], qrels: object) -> Evaluator:
        return _FairnessEvaluator(
            self.context, list(measures), QrelsConverter(qrels).as_dict_of_dict()
        )


class _FairnessEvaluator(Evaluator):
    def __init__(self, context: FairnessContext, measures: list[Measure], qrels: Qrels) -> None:
        super().__init__(measures, set(qrels))
        self.context = context

    def _iter_calc(self, run: object) -> Iterator[Metric]:
        by_name = {repr(measure): measure for measure in self.measures}
        values = self.context.measure(RunConverter(run).as_dict_of_dict(), by_name).values
        for name, by_query in values.items():
            for query_id, value in by_query.items():
                yield Metric(query_id=query_id, measure=by_name[name], value=value)
