r"""Measures of the words of documents: RaB, ARaB, FaiRR, NFaiRR, exposure, with their formulas.

For the ranking d_1, d_2, ... of a query, groups x and y, magnitudes mag and neutrality omega
(:mod:`backpack_rank.evaluation.magnitudes`):

    RaB_t      = 1/t sum_{i=1..t} ( mag_x(d_i) - mag_y(d_i) )
    ARaB_t     = 1/t sum_{j=1..t} RaB_j
    FaiRR_t    = sum_{i=1..t} omega(d_i) / log2(1 + i)
    NFaiRR_t   = FaiRR_t / FaiRR_t of the background set sorted by omega, highest first
    Exposure_t = sum_{i=1..t, d_i of the group} 1 / log2(1 + i)  /  sum_{i=1..t} 1 / log2(1 + i)

RaB and ARaB are of Rekabsaz and Schedl 2020 (Backpack paper, eq. 8 and 9), FaiRR and NFaiRR of
Rekabsaz et al. 2021. What they are measured of: :mod:`backpack_rank.evaluation.fairness`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ir_measures.measures import ParamInfo

from backpack_rank.evaluation.magnitudes import MAGNITUDES, GroupMagnitudes, default_sign
from backpack_rank.evaluation.measure import CUTOFF, SIGNED, Direction, FairnessMeasure
from backpack_rank.evaluation.ranked_documents import RankedDocuments

_MAGNITUDE_TITLES = {"tf": "TF", "tf-paper": "TF eq.6", "bool": "Boolean", "tc": "count"}


class WordMeasure(FairnessMeasure):
    """A measure of the words of the ranked documents."""

    of_neutrality = False
    """Whether it has the cut-offs of FaiRR."""

    def curve(self, lists: WordLists) -> np.ndarray:
        """Values at every cut-off, float64 [n_queries, depth]; column t - 1 is cut-off t.

        It is constant past a list's end.
        """
        raise NotImplementedError

    @property
    def heading(self) -> str:
        """Measure, magnitude, and group where there is one."""
        return " ".join([self.family, *self._options])

    @property
    def title(self) -> str:
        """The same, with the cut-off behind the measure."""
        return " ".join([f"{self.family}@{self['cutoff']}", *self._options])

    @property
    def _options(self) -> list[str]:
        return [_MAGNITUDE_TITLES.get(argument, argument) for argument in self.arguments]


class _RankBias(WordMeasure):
    SUPPORTED_PARAMS = {
        "cutoff": CUTOFF,
        "magnitude": ParamInfo(
            dtype=str, choices=MAGNITUDES, default="tf", desc="how words are counted"
        ),
        "of": ParamInfo(
            dtype=str, desc="a group, or x_minus_y; without it the sign of the context"
        ),
    }
    POSITIONAL = ("magnitude", "of")
    direction = Direction.ZERO
    best = 0.0
    table = SIGNED
    said = "Rankings lean to the words of one group (|{name}|, 0 is even) by"

    @property
    def is_main(self) -> bool:
        """At cut-off 10, by the two magnitudes of the papers, of both groups."""
        of_both = "of" not in self.params and self["magnitude"] in ("tf", "bool")
        return super().is_main and of_both

    @property
    def variants_of(self) -> str:
        """The measure of the same groups, whatever words count as."""
        return " ".join([self.family, *self.arguments[1:]])

    @property
    def place(self) -> int:  # type: ignore[override]
        """TF before Boolean."""
        return 1 if self["magnitude"] == "tf" else 7


class _RaB(_RankBias):
    """Rank bias: the mean magnitude of the first t places, or that of one group less another's."""

    NAME = "RaB"
    PRETTY_NAME = "Rank Bias"
    SHORT_DESC = "The mean difference of two groups' magnitudes in the first places."
    words = "rank bias"
    explained = "how far the words of one group prevail, 0 is even"

    def curve(self, lists: WordLists) -> np.ndarray:
        return (
            np.cumsum(lists.amounts(self["magnitude"], self.params.get("of")), axis=1)
            / lists.counts
        )


class _ARaB(_RankBias):
    """Average rank bias: the mean of RaB at 1 ... t."""

    NAME = "ARaB"
    PRETTY_NAME = "Average Rank Bias"
    SHORT_DESC = "The mean of RaB at all cut-offs up to this one."
    words = "average rank bias"
    explained = "how far the words of one group prevail, high ranks counting more, 0 is even"

    def curve(self, lists: WordLists) -> np.ndarray:
        rab = lists.curve(RaB(**self.params))
        # Over the places that the list has.
        return np.cumsum(np.where(lists.there, rab, 0.0), axis=1) / lists.counts


class _FaiRR(WordMeasure):
    """Fairness of retrieval results: log-discounted neutrality of the first t documents."""

    NAME = "FaiRR"
    PRETTY_NAME = "Fairness of Retrieval Results"
    SHORT_DESC = "The sum of log-discounted neutrality."
    direction = Direction.HIGHER
    of_neutrality = True

    def curve(self, lists: WordLists) -> np.ndarray:
        return discounted(lists.neutrality())


class _NFaiRR(WordMeasure):
    """FaiRR as a share of the best that the background set allows."""

    NAME = "NFaiRR"
    PRETTY_NAME = "Normalised Fairness of Retrieval Results"
    SHORT_DESC = "FaiRR divided by that of the background set sorted by neutrality."
    direction = Direction.HIGHER
    words = "neutrality of the ranking"
    explained = "neutral documents at high ranks, 1 is best"
    place = 5
    of_neutrality = True
    needs_background = True

    def curve(self, lists: WordLists) -> np.ndarray:
        fairr = lists.curve(FaiRR)
        ideal = discounted(lists.neutrality_of_background())
        # Without any neutrality in the background the ideal is 0, and nothing could be fairer: 1.
        return np.divide(fairr, ideal, out=np.ones_like(fairr), where=ideal > 0)


class _Exposure(WordMeasure):
    """Share of log-discounted exposure in the first t places that documents of a group hold."""

    NAME = "Exposure"
    PRETTY_NAME = "Group Exposure"
    SHORT_DESC = "A group's share of log-discounted exposure."
    SUPPORTED_PARAMS = {
        "cutoff": CUTOFF,
        "group": ParamInfo(dtype=str, required=True, desc="a group, or neutral"),
    }
    POSITIONAL = ("group",)

    @property
    def direction(self) -> Direction:  # type: ignore[override]
        """The more neutral documents the better; no group's share is better high or low."""
        return Direction.HIGHER if self.params.get("group") == "neutral" else Direction.NONE

    def goal(self) -> str:
        """See :meth:`Described.goal`."""
        return "those of all groups and neutral sum to 1"

    def curve(self, lists: WordLists) -> np.ndarray:
        of_group = discounted(lists.belongs_to(self["group"]))
        return of_group / discounted(lists.there.astype(np.float64))


RaB, ARaB, FaiRR, NFaiRR, Exposure = _RaB(), _ARaB(), _FaiRR(), _NFaiRR(), _Exposure()


class WordLists:
    """The ranked documents of some queries, as measures of words look at them: [n_queries, depth].

    Args:
        places: the documents in the first places of each list.
        magnitudes: of these documents.
        sign: ``x_minus_y`` of a measure that names none; None: see
            :func:`~backpack_rank.evaluation.magnitudes.default_sign`.
        threshold: a document with at most this many words is neutral.
        background: omega of the background documents of these queries, highest first,
            [n_queries, its depth]; called where a measure needs them.

    Attributes:
        there: whether the list has a document at this place.
        counts: 1, 2, ... and the length of the list past its end.
    """

    def __init__(
        self,
        places: RankedDocuments,
        magnitudes: GroupMagnitudes,
        sign: str | None,
        threshold: int,
        background: Callable[[Sequence[str]], np.ndarray],
    ) -> None:
        self._places = places
        self._magnitudes = magnitudes
        self._sign = sign
        self._threshold = threshold
        self._background = background
        self._curves: dict[str, np.ndarray] = {}
        self.there = places.rows >= 0
        self.counts = places.counts

    def curve(self, measure: WordMeasure) -> np.ndarray:
        """Values of a measure at every cut-off, computed when they are first asked for."""
        options = {key: value for key, value in measure.params.items() if key != "cutoff"}
        key = repr(type(measure)(**options))
        if key not in self._curves:
            self._curves[key] = measure.curve(self)
        return self._curves[key]

    def amounts(self, magnitude: str, of: str | None) -> np.ndarray:
        """Magnitudes of one group, or of one less another; without ``of`` those of the sign."""
        sign = of or self._sign or default_sign(self._magnitudes.groups)
        return self._places.take(self._magnitudes.amounts(magnitude, sign))

    def belongs_to(self, group: str) -> np.ndarray:
        """1 for a document of the group."""
        return self._places.take(self._magnitudes.belongs_to(group))

    def neutrality(self) -> np.ndarray:
        """omega of the documents."""
        return self._places.take(self._magnitudes.neutrality(self._threshold))

    def neutrality_of_background(self) -> np.ndarray:
        """omega of the documents of the background, highest first; 0 past its depth."""
        neutrality = self._background(self._places.query_ids)
        depth = self._places.rows.shape[1]
        best = np.zeros((len(neutrality), depth))
        best[:, : neutrality.shape[1]] = neutrality[:, :depth]
        return best


def discounted(values: np.ndarray) -> np.ndarray:
    """Running sums of values [n_queries, depth] over log2(1 + rank)."""
    ranks = np.arange(1, values.shape[1] + 1)
    return np.cumsum(values / np.log2(1 + ranks), axis=1)
