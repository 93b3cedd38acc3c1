"""Measures of both kinds by name: effectiveness next to fairness, here and inside ir_measures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import ir_measures
from ir_measures import Evaluator, Measure, Metric, Provider
from ir_measures.util import QrelsConverter, RunConverter

from backpack_rank.data.collection import Qrels, Run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.registry import FAIRNESS, parse_measures, split_measures
from backpack_rank.evaluation.results import PerQuery


@dataclass(frozen=True)
class Measured:
    """Values of both kinds. They stay apart, because each kind is averaged over queries of its own.

    Attributes:
        effectiveness: over judged queries with a relevant document, 0 without a ranking; None: none was asked for.
        fairness: over queries of the bias set with a ranking; None: none was asked for.
    """

    effectiveness: PerQuery | None
    fairness: PerQuery | None

    def part(self, name: str) -> PerQuery:
        """The kind that a measure is of.

        Raises:
            KeyError: no such measure; lists those that there are.
        """
        parts = [part for part in (self.effectiveness, self.fairness) if part is not None]
        for part in parts:
            if name in part.measures:
                return part
        known = [measure for part in parts for measure in part.measures]
        raise KeyError(f"no measure {name!r} here; there are: {', '.join(known) or 'none'}")

    def mean(self, name: str) -> float:
        """Mean of a measure over its queries."""
        return self.part(name).mean(name)


def measure(run: Run, qrels: Qrels, names: Sequence[str], fairness: FairnessContext | None = None) -> Measured:
    """Measures of effectiveness and of fairness in one list, such as ``["nDCG@10", "RaB(tf)@10"]``.

    Args:
        run: the rankings.
        qrels: judgements; may be empty when no measure of effectiveness is named.
        names: in the spelling of :mod:`backpack_rank.evaluation.registry`; results keep the names given.
        fairness: magnitudes and what else measures of fairness need, if one is named.

    Raises:
        ValueError: as :func:`effectiveness` and :meth:`FairnessContext.measure`; or a measure of fairness without
            ``fairness``.
        KeyError: as :meth:`FairnessContext.measure`.
    """
    of_effectiveness, of_fairness = split_measures(names)
    if of_fairness and fairness is None:
        raise ValueError(f"{', '.join(of_fairness)} need magnitudes of documents: give a FairnessContext")
    return Measured(
        effectiveness(run, qrels, of_effectiveness) if of_effectiveness else None,
        fairness.measure(run, parse_measures(of_fairness)) if of_fairness and fairness is not None else None,
    )


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
