"""Measures of fairness inside ir_measures, next to those of effectiveness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import ir_measures
from ir_measures import Evaluator, Measure, Metric, Provider
from ir_measures.util import QrelsConverter, RunConverter

from backpack_rank.data.collection import Qrels
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.measure_names import FAIRNESS


def with_fairness(context: FairnessContext) -> Provider:
    """ir_measures' own pipeline with the measures of fairness in it, bound to magnitudes.

    ``with_fairness(context).calc_aggregate([nDCG @ 10, RaB @ 10], qrels, run)`` then works as in ir_measures.
    Measures of fairness ignore judgements. Their queries are those of the context, or else of the run; a judged query
    without a list has the value NaN and does not count in their mean, where ir_measures would count it as 0.
    """
    return ir_measures.providers.FallbackProvider([FairnessProvider(context), ir_measures.DefaultPipeline])


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
        return _FairnessEvaluator(self.context, list(measures), QrelsConverter(qrels).as_dict_of_dict())


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
