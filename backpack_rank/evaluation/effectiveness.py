"""Measures of effectiveness (nDCG, MRR, recall, ...), and those of fairness next to them.

Those of effectiveness are computed by ir_measures.
"""

from __future__ import annotations

import subprocess
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
    """Measure a run against judgements, query by query.

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
        for metric in _computed(list(names_by_measure), judged, ranked):
            for name in names_by_measure[metric.measure]:
                values[name][metric.query_id] = float(metric.value)
    return PerQuery(values, tuple(left_out), tuple(missing))


def check_labels(measures: Sequence[str], qrels: Qrels, collection: str) -> None:
    """Before anything is ranked: every measure must have a value on labels such as these.

    >>> check_labels(["nDCG@10", "RR(rel=2)@10"], {"q1": {"d1": 2}}, "mine/test")

    Each measure is computed of two small lists with these labels. Tools behind ir_measures may be
    absent, and know ranges of labels: ERR is of gdeval, which needs Perl and labels up to 4.

    Args:
        measures: in the spelling of ir_measures.
        qrels: the judgements.
        collection: its name, for the error.

    Raises:
        ValueError: a measure counts documents of a label that no document has, or cannot be
            computed of these labels.
    """
    labels = sorted({label for documents in qrels.values() for label in documents.values()})
    if not labels or labels[-1] < 1:
        return
    documents = {f"d{place}": label for place, label in enumerate(labels)}
    # A list with a document of every label, and one of relevant documents alone.
    judged = {"all": documents, "relevant": documents}
    lists = {
        "all": {doc_id: float(label) for doc_id, label in documents.items()},
        "relevant": {f"d{len(labels) - 1}": 1.0},
    }
    for name, measure in parse_measures(measures).items():
        lowest_relevant = measure.params.get("rel", 1)
        if lowest_relevant > labels[-1]:
            raise ValueError(
                f"{name} counts documents of relevance {lowest_relevant} or more, and the highest "
                f"label of {collection} is {labels[-1]}: it would be 0 for every ranking"
            )
        try:
            _computed([measure], judged, lists)
        except ValueError as error:
            raise ValueError(
                f"{name} cannot be computed of the labels of {collection}, {labels[0]} to "
                f"{labels[-1]}: leave it out, or measure judgements of other labels ({error})"
            ) from error


def _computed(measures: list[Measure], judged: Qrels, ranked: Run) -> list[Metric]:
    """Values of ranked queries.

    Queries are numbered for the tools behind ir_measures, of which one (gdeval) takes digits only.
    """
    query_ids = list(ranked)
    qrels = {str(number): judged[query_id] for number, query_id in enumerate(query_ids, 1)}
    run = {str(number): ranked[query_id] for number, query_id in enumerate(query_ids, 1)}
    metrics = []
    try:
        for metric in ir_measures.iter_calc(measures, qrels, run):
            metrics.append(metric._replace(query_id=query_ids[int(metric.query_id) - 1]))
    # gdeval is a Perl script, and Accuracy divides by the number of documents that are not
    # relevant.
    except (OSError, subprocess.CalledProcessError, ZeroDivisionError) as error:
        names = ", ".join(map(str, measures))
        raise ValueError(f"{names} cannot be computed here: {error}") from error
    return metrics


def _by_rank(scores: Mapping[str, float]) -> dict[str, float]:
    """Scores n, n-1, ..., 1 in our order: strictly decreasing and exact in float32."""
    order = ranking(scores)
    return {doc_id: float(len(order) - index) for index, doc_id in enumerate(order)}


def with_fairness(context: FairnessContext) -> Provider:
    """Have measures of fairness in ir_measures' own pipeline, bound to magnitudes.

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
