"""Everything that is measured of a system, by kinds that each have queries of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig

from backpack_rank.data.collection import Run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.presets import FairnessMeasures
from backpack_rank.evaluation.registry import split_measures
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.score_gaps import score_gaps, score_spread
from backpack_rank.evaluation.swap_stability import swap_stability
from backpack_rank.pipelines.turned import System
from backpack_rank.pipelines.workload import Workload
from backpack_rank.reporting.rows import SystemRow

log = logging.getLogger(__name__)
EFFECTIVENESS, BIAS, SWAP, CHANGED, WORDINGS = "effectiveness", "bias", "swap", "swapped documents", "wordings"
_EPS = 1e-5
"""Gaps up to this share of the spread are rounding: scores of equal inputs differ by it between batches."""


@dataclass(frozen=True)
class Results:
    """Per-query values of a system.

    Attributes:
        system: what was measured.
        kinds: values by kind, in the order of the tables; a kind that was not measured is absent.
    """

    system: System
    kinds: dict[str, PerQuery]

    def row(self) -> SystemRow:
        """Averages with their intervals."""
        summaries = {kind: values.summary() for kind, values in self.kinds.items()}
        first, second = summaries.pop(EFFECTIVENESS, None), summaries.pop(BIAS, None)
        return SystemRow(self.system.label, self.system.alpha, first, second, summaries)


@dataclass(frozen=True)
class Yardstick:
    """Which measures are taken.

    Attributes:
        effectiveness: ir_measures strings.
        fairness: measures of the bias set.
        groups: of the wordings whose gap is measured, first minus second.
    """

    effectiveness: tuple[str, ...]
    fairness: FairnessMeasures
    groups: tuple[str, str]

    @classmethod
    def of(cls, config: DictConfig, data: DictConfig) -> Yardstick:
        """From ``measures`` (or those of the data) and ``bias``; fairness strings in ``measures`` join ``bias.extra``.

        Raises:
            ValueError: a measure that does not exist; lists those that do.
        """
        given = config.measures if config.measures is not None else data.measures
        names = [given] if isinstance(given, str) else [str(name) for name in given or ()]
        ranking, fairness = split_measures(names) if names else ([], [])
        extra = [*(config.bias.get("extra") or ListConfig([])), *fairness]
        measures: FairnessMeasures = instantiate(config.bias, extra=extra, _convert_="all")
        first, _, second = str(config.attribute.sign).partition("_minus_")
        return cls(tuple(ranking), measures, (first, second))

    def measure(self, systems: Sequence[System], work: Workload) -> list[Results]:
        """Values of every system, with one count of words for all of them."""
        background = work.bias_candidates if self.fairness.needs_background else None
        wanted = self.fairness.documents([system.bias_run for system in systems], background)
        magnitudes = self.fairness.magnitudes(wanted, work.bias.documents)
        if not magnitudes.values["tc"].any():
            log.warning(
                "none of the %d ranked documents has a word of %s: measures of bias have nothing to see here",
                len(wanted),
                self.fairness.lexicon,
            )
        context = self.fairness.context(magnitudes, background, work.bias.queries)
        return [self._of(system, work, context) for system in systems]

    def names(self, work: Workload) -> list[str]:
        """Names of all measures of a ranker over this workload, found without one: the first stage stands in for it."""
        bias, worded = _in_places(work.bias_candidates), work.worded
        ranker = System(
            work.stage,
            None,
            _in_places(work.candidates),
            bias,
            bias if work.swapped is not None else None,
            _in_places(worded.candidates) if worded is not None else None,
        )
        (result,) = self.measure([ranker], work)
        return [name for values in result.kinds.values() for name in values.measures]

    def _of(self, system: System, work: Workload, context: FairnessContext) -> Results:
        kinds: dict[str, PerQuery] = {}
        if work.test.qrels and self.effectiveness:
            kinds[EFFECTIVENESS] = effectiveness(system.test_run, work.test.qrels, self.effectiveness)
        kinds[BIAS] = context.measure(system.bias_run, self.fairness.measures)
        spread = None
        if system.swapped_run is not None or system.worded_run is not None:
            spread = score_spread(system.test_run)
        if system.swapped_run is not None and work.swapped is not None:
            found = swap_stability(system.bias_run, system.swapped_run, work.swapped.counts.changed, spread)
            kinds[SWAP] = found.every
            if found.changed:
                kinds[CHANGED] = found.swapped
        if system.worded_run is not None and work.worded is not None:
            wordings = work.worded.wordings
            eps = _EPS if spread else 0.0
            kinds[WORDINGS] = score_gaps(system.worded_run, wordings, spread, eps=eps, groups=self.groups)
        return Results(system, kinds)


def _in_places(run: Run) -> Run:
    """The same order, by scores that differ."""
    return {query_id: {doc_id: -float(place) for place, doc_id in enumerate(docs)} for query_id, docs in run.items()}
