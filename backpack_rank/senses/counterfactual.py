"""Weights per sense fitted to texts and their swapped wordings: the policy ``counterfactual`` (this project's own).

With o_i^(l) the sense vectors of text i, o_i their sum and f the ranking head, the score is taken apart along the
straight path from the empty mix (integrated gradient):

    g_i = int_0^1 grad f(t o_i) dt        c_il = <o_i^(l), g_i>        sum_l c_il = f(o_i) - f(0)

C holds c_il of the texts, G the differences of c_il between texts and their swapped wordings. C~ is C centred within
each query's list and divided by the root of the list's length, so that ||C~ M||^2 is the sum over lists of the variance
of the scores under weights M. The weights minimise, over M >= 0,

    ||G M||^2 / ||G 1||^2  +  strength * ||C~ (M - 1)||^2 / ||C~ 1||^2

and are then multiplied by the one number that brings the spread ||C~ M|| back to ||C~ 1||.

That number costs nothing. Let r be the correlation, within lists, of the scores under M with the scores as they are,
and a = (||G M||^2 / ||C~ M||^2) / (||G 1||^2 / ||C~ 1||^2) the scale-free gap; they are the same for every multiple of
M. The best multiple of M has the objective strength * (1 - strength * r^2 / (a + strength)), so the result maximises
r^2 / (a + strength) among all weights with the spread of the ranker. Because M = 1 reaches 1 / (1 + strength) there,
r^2 >= strength / (1 + strength): strength 1 keeps a correlation of .71 at the least, 10 of .95, 100 of .995.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import nnls

from backpack_rank.checks import above, finite
from backpack_rank.models.rankers import RankingHead
from backpack_rank.senses.attribution import path_gradient

_ROWS = 512


@dataclass(frozen=True, eq=False)
class SwappedSenses:
    """Sense vectors of texts and of the same texts with the words of the attribute swapped.

    Attributes:
        original: of all texts [N, k, d].
        swapped: of the swapped wordings [P, k, d].
        groups: which query's list a text is in [N]; any integers.
        rows: the text that each swapped wording belongs to [P]; None: the i-th belongs to text i, P = N. Texts without
            a word of the attribute need no swapped wording.
    """

    original: np.ndarray
    swapped: np.ndarray
    groups: np.ndarray
    rows: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class CounterfactualFit:
    """Weights per sense and what they do to the texts they were fitted to, all in the linearised scores.

    Attributes:
        values: M [k] float64, >= 0.
        gap_before: mean absolute score difference of a text and its swapped wording, divided by the standard deviation
            of scores within lists (root of the mean variance), at weights of 1.
        gap_after: the same at M.
        change: ||C~ (M - 1)|| / ||C~ 1||, the score changes within lists against the spread.
        spread_ratio: ||C~ M|| / ||C~ 1|| before M was scaled; 1 afterwards.
    """

    values: np.ndarray
    gap_before: float
    gap_after: float
    change: float
    spread_ratio: float

    @property
    def correlation(self) -> float:
        """Correlation r, within lists, of the scores under M with the scores as they are."""
        return 1 - self.change**2 / 2  # because both have the same spread


def fit_weights(data: SwappedSenses, head: RankingHead, strength: float) -> CounterfactualFit:
    """Fit M, see the head of this module.

    Raises:
        ValueError: shapes or numbers that do not fit, strength not > 0, no swap changes a score, or scores do not
            differ within any list.
    """
    check_strength(strength)
    rows, groups = _checked(data)
    own = contributions(data.original, head)
    gap = own[rows] - contributions(data.swapped, head)
    spread = _centred(own, groups)
    ones = np.ones(own.shape[1])
    gap_norm, spread_norm = float(np.linalg.norm(gap @ ones)), float(np.linalg.norm(spread @ ones))
    if gap_norm == 0:
        raise ValueError(f"none of the {len(rows)} swapped texts has a score other than its original: nothing to fit")
    if spread_norm == 0:
        raise ValueError("scores do not differ within any query's list: give lists of two documents or more")
    elsewhere = math.sqrt(strength) / spread_norm * spread
    values = _solve(np.concatenate([gap / gap_norm, elsewhere]), np.concatenate([np.zeros(len(gap)), elsewhere @ ones]))
    ratio = float(np.linalg.norm(spread @ values)) / spread_norm
    values = values / ratio
    deviation = spread_norm / math.sqrt(len(np.unique(groups)))
    return CounterfactualFit(
        values=values,
        gap_before=float(np.abs(gap @ ones).mean()) / deviation,
        gap_after=float(np.abs(gap @ values).mean()) / deviation,
        change=float(np.linalg.norm(spread @ (values - 1))) / spread_norm,
        spread_ratio=ratio,
    )


def contributions(senses: np.ndarray, head: RankingHead) -> np.ndarray:
    """c_il = <o_i^(l), g_i> of sense vectors [N, k, d]; the sum over l is f(o_i) - f(0). [N, k] float64"""
    out = np.empty(senses.shape[:2])
    device = head.dense.weight.device
    for start in range(0, len(senses), _ROWS):
        part = torch.from_numpy(np.array(senses[start : start + _ROWS])).to(device).double()
        gradient = path_gradient(head, part.sum(dim=1))
        out[start : start + len(part)] = torch.einsum("nkd,nd->nk", part, gradient).cpu().numpy()
    return out


def _centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Rows minus the mean row of their list, over the root of the list's length."""
    _, lists, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, lists, values)
    return (values - (sums / sizes[:, None])[lists]) / np.sqrt(sizes)[lists, None]


def _solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """argmin over M >= 0 of ||matrix M - target||, from the small triangle of a QR decomposition."""
    triangle = np.asarray(np.linalg.qr(np.column_stack([matrix, target]), mode="r"))
    return nnls(triangle[:, :-1], triangle[:, -1])[0]


def check_strength(strength: float) -> None:
    if isinstance(strength, bool) or not isinstance(strength, (int, float)):
        raise ValueError(f"policy.strength={strength!r} is not a number; give one > 0")
    above("policy.strength", strength, 0, " (at 0 nothing keeps the scores)")
    finite("policy.strength", strength)


def _checked(data: SwappedSenses) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` and ``groups`` as arrays that fit the sense vectors."""
    original, swapped = data.original, data.swapped
    if original.ndim != 3 or swapped.ndim != 3 or original.shape[1:] != swapped.shape[1:]:
        raise ValueError(f"sense vectors [N, k, d] and [P, k, d] are needed, got {original.shape} and {swapped.shape}")
    if data.rows is None and len(original) != len(swapped):
        raise ValueError(f"{len(swapped)} swapped texts for {len(original)} texts: say in rows which belong together")
    rows = np.arange(len(original)) if data.rows is None else np.asarray(data.rows)
    groups = np.asarray(data.groups)
    if rows.shape != (len(swapped),) or groups.shape != (len(original),):
        raise ValueError(f"rows {rows.shape} need one entry per swapped text, groups {groups.shape} one per text")
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(original):
        raise ValueError(f"rows must name texts from 0 to {len(original) - 1}, and at least one")
    return rows, groups
