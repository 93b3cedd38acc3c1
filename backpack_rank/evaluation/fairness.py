r"""What measures of fairness are taken of: a run, words of its documents, a background, groups.

A list of n < t documents is measured at n; only the ideal of NFaiRR goes on to t where the
background set has that many documents, so a short list is below 1. RaB and ARaB of one group have
mag_x alone. Their values are better the closer they are to 0; eq. 8 is female minus male; the
published code and the numbers in both papers' tables are male minus female, which is the default
here. NFaiRR is best at 1, and above it when a list has more neutral documents than the background
set. Where no document of the background set has any neutrality, the ideal is 0 and nothing could be
fairer: NFaiRR is 1. A document belongs to the group with most words in it; the exposures of all
groups and of ``neutral`` (no word, or a tie) sum to 1.

Formulas: :mod:`backpack_rank.evaluation.word_measures` and, for measures of the exposure of groups
that may also be given (AWRF_JS, EE, NDKL, ratios), :mod:`backpack_rank.evaluation.group_measures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from ir_measures import Measure

from backpack_rank.data.collection import Run
from backpack_rank.evaluation.document_groups import WORDS, DocumentGroups
from backpack_rank.evaluation.group_exposure import GroupExposure
from backpack_rank.evaluation.group_measures import GroupMeasure
from backpack_rank.evaluation.magnitudes import GroupMagnitudes, parse_sign
from backpack_rank.evaluation.measure import FairnessMeasure
from backpack_rank.evaluation.measure_names import FAIRNESS_EXAMPLES
from backpack_rank.evaluation.ranked_documents import RankedDocuments, shown
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.several_rankings import mean_over_rankings
from backpack_rank.evaluation.word_measures import WordLists, WordMeasure


@dataclass(frozen=True, eq=False)
class FairnessContext:
    """Measures fairness: it holds what the measures need beside a run.

        context = FairnessContext(magnitudes, background=candidates)
        values = context.measure(run, parse_measures(["RaB(tf)@10", "NFaiRR@10"]))

    Attributes:
        magnitudes: of every document in the first places of every list, and of the background set.
        sign: ``x_minus_y`` for two groups x and y of the magnitudes; None: see
            :func:`~backpack_rank.evaluation.magnitudes.default_sign`.
        background: the lists whose documents NFaiRR's ideal is made of, usually the first stage's
            candidates; needed for NFaiRR only.
        background_depth: number of documents at the head of a background list that count.
        threshold: a document with at most this many words of all groups together is neutral.
        query_ids: the bias set; None: the queries of the run.
        exposure: what AWRF_JS, EE, NDKL and the ratios of exposure are taken with; None: shares of
            the words of ``magnitudes`` in place of given groups, without judgements.

    Raises:
        ValueError: the sign is not of two groups of the magnitudes.
    """

    magnitudes: GroupMagnitudes
    sign: str | None = None
    background: Run | None = None
    background_depth: int = 200
    threshold: int = 1
    query_ids: Iterable[str] | None = None
    exposure: GroupExposure | None = None
    _sorted_by_query: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sign is not None:
            parse_sign(self.sign, self.magnitudes.groups)
        if self.query_ids is not None:
            object.__setattr__(self, "query_ids", tuple(dict.fromkeys(self.query_ids)))
        if self.exposure is None:
            groups = {WORDS: DocumentGroups.of_words(self.magnitudes)}
            object.__setattr__(self, "exposure", GroupExposure(groups))

    def measure(self, run: Run, measures: Mapping[str, Measure]) -> PerQuery:
        """Values of every query.

        A query with an empty list, or one of the bias set that the run does not have, has no value
        (an empty list is not fair) and is named in ``left_out``. NFaiRR lacks queries for which the
        background has no document (:meth:`without_background`). Every list is sorted once.

        Args:
            run: the rankings.
            measures: ``{name: measure}`` as
                :func:`~backpack_rank.evaluation.measure_names.parse_measures` gives them.

        Raises:
            ValueError: no measure, one that is no measure of fairness, an unknown group or sign,
                NFaiRR without a background, a score that is not finite, or no query to measure.
            KeyError: documents without a magnitude, or a background without a document of any
                query; names them.
        """
        _check_of_fairness(measures)
        wanted = list(run) if self.query_ids is None else list(self.query_ids)
        lists = {query_id: run[query_id] for query_id in wanted if run.get(query_id)}
        if not lists:
            raise ValueError(
                f"none of the {len(wanted)} queries of the bias set has a ranked document"
            )
        of_words: dict[str, WordMeasure] = {}
        of_groups: dict[str, Measure] = {}
        for name, measure in measures.items():
            if isinstance(measure, WordMeasure):
                of_words[name] = measure
            else:
                of_groups[name] = measure
        values: dict[str, Mapping[str, float]] = {}
        if of_words:
            values |= self._of_words(lists, of_words)
        if of_groups:
            assert self.exposure is not None  # since the constructor
            values |= self.exposure.measure([lists], of_groups).values
        left_out = tuple(query_id for query_id in wanted if query_id not in lists)
        return PerQuery({name: values[name] for name in measures}, left_out)

    def measure_rankings(self, runs: Sequence[Run], measures: Mapping[str, Measure]) -> PerQuery:
        """Values of a system that ranked every query several times.

        They are means over the rankings; those of EE are of all rankings of a query together.

        Args:
            runs: the rankings; one or more.
            measures: as of :meth:`measure`.

        Raises:
            ValueError: as :meth:`measure`.
            KeyError: as :meth:`measure`.
        """
        together = mean_over_rankings([self.measure(run, measures) for run in runs])
        expected: dict[str, Measure] = {}
        for name, measure in measures.items():
            if isinstance(measure, GroupMeasure) and measure.of_all_rankings:
                expected[name] = measure
        if not expected:
            return together
        assert self.exposure is not None  # since the constructor
        of_all = self.exposure.measure(runs, expected, self.query_ids)
        return replace(together, values={**together.values, **of_all.values})

    def _of_words(
        self, lists: Mapping[str, Mapping[str, float]], measures: Mapping[str, WordMeasure]
    ) -> dict[str, dict[str, float]]:
        """Values of the measures that are taken of magnitudes, for lists that are not empty."""
        depth = max(int(measure["cutoff"]) for measure in measures.values())
        places = RankedDocuments.of(lists, self.magnitudes.rows, depth, "the run")
        word_lists = WordLists(
            places, self.magnitudes, self.sign, self.threshold, self.sorted_background
        )
        values: dict[str, dict[str, float]] = {}
        for name, measure in measures.items():
            # Column t - 1 is cut-off t.
            at_cutoff = word_lists.curve(measure)[:, measure["cutoff"] - 1]
            values[name] = dict(zip(lists, at_cutoff.tolist(), strict=True))
            if measure.needs_background:
                for query_id in self.without_background(lists):
                    del values[name][query_id]
        return values

    def without_background(self, query_ids: Iterable[str]) -> list[str]:
        """Those of the queries that the background has no document of: NFaiRR has no ideal there.

        Raises:
            ValueError: there is no background.
            KeyError: it has no document of any of them, as another collection's would; names them.
        """
        if self.background is None:
            raise ValueError("NFaiRR needs a background run, such as the first stage's candidates")
        wanted = list(query_ids)
        absent = [query_id for query_id in wanted if not self.background.get(query_id)]
        if absent and len(absent) == len(wanted):
            raise KeyError(
                f"NFaiRR: the background run has no documents for {len(absent)} queries: "
                f"{shown(absent)}"
            )
        return absent

    def sorted_background(self, query_ids: Sequence[str]) -> np.ndarray:
        """Neutrality of each query's background documents, highest first.

        float64 [n_queries, background_depth]. 0 past the end, and for a query without background.
        Computed once for every query, however many runs are measured.

        Raises:
            ValueError: there is no background.
            KeyError: as :meth:`without_background`, or documents without a magnitude; names them.
        """
        absent = self.without_background(query_ids)
        background = self.background or {}  # never None here: without_background has refused that
        for query_id in absent:
            self._sorted_by_query[query_id] = np.zeros(self.background_depth)
        lists: dict[str, Mapping[str, float]] = {}
        for query_id in query_ids:
            if query_id not in self._sorted_by_query:
                lists[query_id] = background[query_id]
        if lists:
            places = RankedDocuments.of(
                lists, self.magnitudes.rows, self.background_depth, "the background run"
            )
            # By the negative, because numpy sorts ascending only.
            neutrality = places.take(self.magnitudes.neutrality(self.threshold))
            highest_first = -np.sort(-neutrality, axis=1)
            self._sorted_by_query.update(zip(lists, highest_first, strict=True))
        return np.stack([self._sorted_by_query[query_id] for query_id in query_ids])


def _check_of_fairness(measures: Mapping[str, Measure]) -> None:
    """Raise ``ValueError`` where there is no measure, or one that is none of fairness."""
    if not measures:
        raise ValueError(f"no measure of fairness is named; examples: {FAIRNESS_EXAMPLES}")
    others: list[str] = []
    for name, measure in measures.items():
        if not isinstance(measure, FairnessMeasure):
            others.append(name)
    if others:
        raise ValueError(
            f"{', '.join(others)}: no measure of fairness; examples: {FAIRNESS_EXAMPLES}"
        )
