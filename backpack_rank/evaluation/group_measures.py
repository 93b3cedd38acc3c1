r"""Measures of the exposure of groups of documents, each with its formula.

Documents have shares g_d of groups (:mod:`backpack_rank.evaluation.document_groups`), and there is
a target t: the shares that groups should have. For the ranking d_1, d_2, ... of a query, cut at k:

    attention       a_i = 1 / log2(max(i, 2))                       b_i = 1 / log2(i + 1)

    AWRF_JS         e = sum_i a_i g_(d_i) / sum of a_i over documents with a known group
                    1 - JSD(e, t), the Jensen-Shannon divergence in nats

    EE-D, EE-R      eps = 1/S sum over the S rankings of a query, of sum_i a_i g_(d_i) over its
    EE-L            relevant documents;  eps* = t sum_{i=1..k} a_i
                    EE-D = eps . eps,  EE-R = eps . eps*,  EE-L = |eps - eps*|^2

    NDKL            sum_i b_i KL(shares among the known of the first i || t) / sum_i b_i

    ExposureRatio   x_g = sum_{i<=k} b_i g_(d_i) / sum over all ranked documents of g_(d_i)
                    smallest x_g / largest x_g
    ExposurePerRelevance   the same with the relevant ranked documents alone below the bar

AWRF_JS and EE are those of TREC Fair Ranking 2021 and 2022 (tasks 1 and 2; EE of relevant documents
only, as in 2022, and not normalised), after Diaz et al. 2020. NDKL is of Geyik et al. 2019. The
ratios are demographic parity and disparate treatment of Singh and Joachims 2018. What they are
measured of, and where they have no value: :mod:`backpack_rank.evaluation.group_exposure`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from ir_measures.measures import ParamInfo
from scipy.special import rel_entr

from backpack_rank.evaluation.document_groups import DocumentGroups
from backpack_rank.evaluation.measure import CUTOFF, GROUPS, Direction, FairnessMeasure


class QueryGroups:
    """A query's rankings with the groups of their documents: what every measure is taken of.

    Attributes:
        has_relevant: whether any document is relevant.
        target: shares that the groups should have, [n]; None where there are none.
        shares: of each ranking, the shares of its documents in their order, [places, n].
        relevant: of each ranking, 1 for a relevant document, [places].
    """

    def __init__(
        self,
        lists: Sequence[Sequence[str]],
        groups: DocumentGroups,
        relevant: set[str],
        target: np.ndarray | None,
    ) -> None:
        self.has_relevant = bool(relevant)
        self.target = target
        self.shares = [groups.shares_of(doc_ids) for doc_ids in lists]
        self.relevant: list[np.ndarray] = []
        for doc_ids in lists:
            self.relevant.append(np.array([doc_id in relevant for doc_id in doc_ids], dtype=float))


class GroupMeasure(FairnessMeasure):
    """A measure of the groups of documents, of each ranking of a query or of all together."""

    SUPPORTED_PARAMS = {
        "cutoff": CUTOFF,
        "attribute": ParamInfo(
            dtype=str, desc="whose groups: an attribute, or several such as gender x region"
        ),
    }
    POSITIONAL = ("attribute",)
    table = GROUPS
    of_all_rankings = False
    needs_target = True
    needs_all_groups = False

    def value(self, query: QueryGroups) -> float:
        """The mean over the rankings of a query; NaN where it is not defined for any."""
        values = []
        for shares, relevant in zip(query.shares, query.relevant, strict=True):
            values.append(self.of_ranking(shares, relevant, query.target))
        found = [value for value in values if not math.isnan(value)]
        return float(np.mean(found)) if found else math.nan

    def of_ranking(
        self, shares: np.ndarray, relevant: np.ndarray, target: np.ndarray | None
    ) -> float:
        """The value of one ranking; NaN where it is not defined.

        Args:
            shares: of the documents in their order, [places, n]; 0 throughout for unknown ones.
            relevant: 1 for a relevant document, [places].
            target: [n].
        """
        raise NotImplementedError


class _AwrfJs(GroupMeasure):
    """Attention-weighted rank fairness: 1 less the divergence of exposure from the target."""

    NAME = "AWRF_JS"
    PRETTY_NAME = "Attention-Weighted Rank Fairness"
    SHORT_DESC = "1 - Jensen-Shannon divergence of the groups' exposure from the target."
    direction = Direction.HIGHER
    best = 1.0

    def of_ranking(
        self, shares: np.ndarray, relevant: np.ndarray, target: np.ndarray | None
    ) -> float:
        shares = shares[: self["cutoff"]]
        exposure = attention(len(shares)) @ shares
        if target is None or exposure.sum() == 0:
            return math.nan
        exposure = exposure / exposure.sum()
        middle = (exposure + target) / 2
        divergence = (rel_entr(exposure, middle).sum() + rel_entr(target, middle).sum()) / 2
        return float(1 - divergence)


class _ExpectedExposure(GroupMeasure):
    needs_judgements = True
    of_all_rankings = True

    def value(self, query: QueryGroups) -> float:
        if query.target is None or not query.has_relevant:
            return math.nan
        exposures: list[np.ndarray] = []
        for shares, relevant in zip(query.shares, query.relevant, strict=True):
            of_relevant = (shares * relevant[:, None])[: self["cutoff"]]
            exposures.append(attention(len(of_relevant)) @ of_relevant)
        # Of a full list, also where a ranking is shorter.
        wanted = query.target * attention(self["cutoff"]).sum()
        return float(self.of_exposure(np.mean(exposures, axis=0), wanted))

    def of_exposure(self, expected: np.ndarray, wanted: np.ndarray) -> float:
        """The value of the exposure that groups have and should have, [n]."""
        raise NotImplementedError


class _ExpectedExposureLoss(_ExpectedExposure):
    """Expected exposure loss: the squared distance of the groups' exposure from the target."""

    NAME = "EE_L"
    PRETTY_NAME = "Expected Exposure Loss"
    SHORT_DESC = "Squared distance of the groups' exposure of relevant documents from the target."
    direction = Direction.LOWER
    best = 0.0

    def of_exposure(self, expected: np.ndarray, wanted: np.ndarray) -> float:
        return (expected - wanted) @ (expected - wanted)


class _ExpectedExposureDisparity(_ExpectedExposure):
    """Expected exposure disparity: how unequally groups are exposed."""

    NAME = "EE_D"
    PRETTY_NAME = "Expected Exposure Disparity"
    SHORT_DESC = "Squared length of the groups' exposure of relevant documents."
    direction = Direction.LOWER

    def of_exposure(self, expected: np.ndarray, wanted: np.ndarray) -> float:
        return expected @ expected


class _ExpectedExposureRelevance(_ExpectedExposure):
    """Expected exposure relevance: how far the groups' exposure points to the target."""

    NAME = "EE_R"
    PRETTY_NAME = "Expected Exposure Relevance"
    SHORT_DESC = "Product of the groups' exposure of relevant documents and the target."
    direction = Direction.HIGHER

    def of_exposure(self, expected: np.ndarray, wanted: np.ndarray) -> float:
        return expected @ wanted


class _Ndkl(GroupMeasure):
    """Normalised discounted KL divergence of the shares in the first places from the target."""

    NAME = "NDKL"
    PRETTY_NAME = "Normalised Discounted KL Divergence"
    SHORT_DESC = "Discounted mean over ranks of the KL divergence from the target."
    direction = Direction.LOWER
    best = 0.0
    needs_all_groups = True

    def of_ranking(
        self, shares: np.ndarray, relevant: np.ndarray, target: np.ndarray | None
    ) -> float:
        totals = np.cumsum(shares[: self["cutoff"]], axis=0)
        known = totals.sum(axis=1)
        # Places in front of the first known document say nothing.
        there = known > 0
        if target is None or not there.any():
            return math.nan
        divergences = rel_entr(totals[there] / known[there, None], target).sum(axis=1)
        weights = (1 / np.log2(np.arange(1, len(totals) + 1) + 1))[there]
        value = float((weights * divergences).sum() / weights.sum())
        return value if math.isfinite(value) else math.nan


class _ExposureRatio(GroupMeasure):
    """Mean exposure of a group's documents: the smallest over the largest."""

    NAME = "ExposureRatio"
    PRETTY_NAME = "Exposure Ratio"
    SHORT_DESC = "Smallest over largest mean exposure of a group's documents."
    direction = Direction.HIGHER
    best = 1.0
    looks_at_whole_lists = True
    needs_target = False

    def of_ranking(
        self, shares: np.ndarray, relevant: np.ndarray, target: np.ndarray | None
    ) -> float:
        seen = shares[: self["cutoff"]]
        exposure = (1 / np.log2(np.arange(1, len(seen) + 1) + 1)) @ seen
        deserved = self.merit(shares, relevant).sum(axis=0)
        has_merit = deserved > 0
        if np.count_nonzero(has_merit) < 2:
            return math.nan
        ratios = exposure[has_merit] / deserved[has_merit]
        # Nobody is seen: nothing that could be compared.
        return float(ratios.min() / ratios.max()) if ratios.max() > 0 else math.nan

    def merit(self, shares: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """What a group's exposure is divided by, for each document [documents, n]."""
        return shares


class _ExposurePerRelevance(_ExposureRatio):
    """Exposure of a group for each of its relevant documents: the smallest over the largest."""

    NAME = "ExposurePerRelevance"
    PRETTY_NAME = "Exposure per Relevance"
    SHORT_DESC = "Smallest over largest exposure of a group for each relevant document."
    needs_judgements = True

    def merit(self, shares: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        return shares * relevant[:, None]


AWRF_JS, NDKL = _AwrfJs(), _Ndkl()
EE_L, EE_D, EE_R = (
    _ExpectedExposureLoss(),
    _ExpectedExposureDisparity(),
    _ExpectedExposureRelevance(),
)


def attention(places: int) -> np.ndarray:
    """a_i = 1 / log2(max(i, 2)) of the first places, float64 [places]; the first two are 1."""
    return 1 / np.log2(np.maximum(np.arange(1, places + 1), 2))
