"""Measures of effectiveness (nDCG, MRR, recall, ...), and those of fairness next to them.

Those of effectiveness are computed by ir_measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import ir_measures
from ir_measures import Evaluator, Measure, Metric, Provider
from ir_measures.util import QrelsConverter, RunConverter

from backpack_rank.data.collection import Qrels, Run
from backpack_rank.data.trec import ranking
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.measure_names import FAIRNESS, FairnessMeasure, parse_measures
from backpack_rank.evaluation.results import PerQuery, check_finite

_QUERIES = 1000
"""Whose lists are given to ir_measures at once."""
DEFAULT_MEASURES = ("MRR@10", "nDCG@5", "nDCG@10", "R@100")


def effectiveness(run: Run, qrels: Qrels, measures: Sequence[str] = DEFAULT_MEASURES) -> PerQuery:
    """Use it to measure a run against judgements, query by query.

        values = effectiveness(run, collection.qrels, ["nDCG@10"])
        values.mean("nDCG@10")

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
    fairness = [name for name in parsed if isinstance(parsed[name], FairnessMeasure)]
    if fairness:
        raise ValueError(
            f"{', '.join(fairness)}: measures of fairness need magnitudes of documents, not "
            "judgements; FairnessContext.measure takes them"
        )
    check_finite(run)
    judged: Qrels = {}
    left_out: list[str] = []
    for query_id, documents in qrels.items():
        if any(relevance > 0 for relevance in documents.values()):
            judged[query_id] = documents
        else:
            left_out.append(query_id)
    if not judged:
        raise ValueError(
            f"none of the {len(qrels)} judged queries has a relevant document, nothing can be "
            "measured"
        )
    values = {name: dict.fromkeys(judged, 0.0) for name in parsed}
    # Two names may be one measure: MRR@10 and RR@10.
    names_by_measure: dict[Measure, list[str]] = {}
    for name, measure in parsed.items():
        names_by_measure.setdefault(measure, []).append(name)
    missing: list[str] = []
    # Some queries at a time, so that no more of a run on disk than that is in memory.
    queries = iter(judged)
    while block := list(islice(queries, _QUERIES)):
        ranked: dict[str, dict[str, float]] = {}
        for query_id in block:
            scores = run.get(query_id)
            if scores:
                ranked[query_id] = _by_rank(scores)
            else:
                missing.append(query_id)
        if not ranked:
            continue
        of_ranked = {query_id: judged[query_id] for query_id in ranked}
        for metric in ir_measures.iter_calc(list(names_by_measure), of_ranked, ranked):
            for name in names_by_measure[metric.measure]:
                values[name][metric.query_id] = float(metric.value)
    return PerQuery(values, tuple(left_out), tuple(missing))


def _by_rank(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores n, n-1, ..., 1 in our order: strictly decreasing and exact in float32."""
    order = ranking(scores)
    return {doc_id: float(len(order) - index) for index, doc_id in enumerate(order)}


def with_fairness(context: FairnessContext) -> Provider:
    """Use it to have measures of fairness in ir_measures' own pipeline, bound to magnitudes.

        with_fairness(context).calc_aggregate([nDCG @ 10, RaB @ 10], qrels, run)

    Measures of fairness ignore judgements. Their queries are those of the context, or else of the
    run; a judged query without a list has the value NaN and does not count in their mean, where
    ir_measures would count it as 0.
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
        judgements = QrelsConverter(qrels).as_dict_of_dict()
        return _FairnessEvaluator(self.context, list(measures), judgements)


class _FairnessEvaluator(Evaluator):
    """Measures the runs that ir_measures gives it."""

    def __init__(self, context: FairnessContext, measures: list[Measure], qrels: Qrels) -> None:
        super().__init__(measures, set(qrels))
        self.context = context

    def _iter_calc(self, run: object) -> Iterator[Metric]:
        measure_by_name = {repr(measure): measure for measure in self.measures}
        lists = RunConverter(run).as_dict_of_dict()
        values = self.context.measure(lists, measure_by_name)
        for name, query_id, value in values.rows():
            yield Metric(query_id=query_id, measure=measure_by_name[name], value=value)
