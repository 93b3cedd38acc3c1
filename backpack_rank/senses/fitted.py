"""The policy ``counterfactual``: weights per sense fitted to texts and their swapped wordings (this project's own).

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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor

from backpack_rank.models.ranker import RankingHead
from backpack_rank.senses.control import Control
from backpack_rank.senses.policy import check_alpha

if TYPE_CHECKING:  # subject.py names SwappedSenses
    from backpack_rank.senses.subject import Subject

_ROWS = 512
_SMALL = 1e-5


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
class FittedWeights:
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


@dataclass(frozen=True)
class CounterfactualSenses:
    """Weights 1 + (1 - alpha) (M - 1), 0 where that is negative; M as in the head of this module.

    Attributes:
        strength: how much a change of scores within a list counts against the gap; the correlation with the scores as
            they are stays at or above sqrt(strength / (1 + strength)).
    """

    strength: float = 10.0
    _fits: WeakKeyDictionary[Subject, FittedWeights] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    @property
    def name(self) -> str:
        return f"counterfactual_{self.strength:g}"

    def fit(self, subject: Subject) -> FittedWeights:
        """The fitted weights of a subject, computed once.

        Raises:
            TypeError: the ranker has no senses.
            ValueError: the subject has no swapped texts, or they cannot be fitted, see :func:`fit_weights`.
        """
        if subject.sensitivity is None:
            raise TypeError(f"{type(subject.ranker).__name__} has no sense vectors; policy=counterfactual needs them")
        if subject.swapped is None:
            raise ValueError("policy=counterfactual is fitted to texts and their swapped wordings, and none are given")
        if subject not in self._fits:
            data = subject.swapped()
            head = subject.ranker.head
            assert isinstance(head, RankingHead)
            self._fits[subject] = fit_weights(data.original, data.swapped, head, data.groups, self.strength, data.rows)
        return self._fits[subject]

    def control(self, subject: Subject, alpha: float) -> Control:
        """Fitted weights at this alpha; nothing, and no fit, at alpha = 1.

        Raises:
            TypeError, ValueError: as :meth:`fit`; alpha is not a number >= 0.
        """
        alpha = check_alpha(alpha)
        return Control(self.name, alpha, weights=None if alpha == 1 else self.weights_from(self.fit(subject), alpha))

    def weights_from(self, fit: FittedWeights, alpha: float) -> Tensor:
        """Weights [k] float32: 1 at alpha = 1, M at alpha = 0."""
        change = torch.from_numpy(fit.values - 1)
        return (1 + (1 - check_alpha(alpha)) * change).clamp(min=0).float()


def fit_weights(
    original: np.ndarray,
    swapped: np.ndarray,
    head: RankingHead,
    groups: np.ndarray,
    strength: float,
    rows: np.ndarray | None = None,
) -> FittedWeights:
    """Fit M, see the head of this module; arguments as in :class:`SwappedSenses`.

    Raises:
        ValueError: shapes or numbers that do not fit, strength not > 0, no swap changes a score, or scores do not
            differ within any list.
    """
    _check_strength(strength)
    rows, groups = _check_data(original, swapped, groups, rows)
    own = contributions(original, head)
    gap = own[rows] - contributions(swapped, head)
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
    return FittedWeights(
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


@torch.no_grad()
def path_gradient(head: RankingHead, mixes: Tensor) -> Tensor:
    """int_0^1 grad f(t o) dt of mixes o [N, d] (Sundararajan et al. 2017, baseline 0), without dropout. [N, d] float64

    In closed form: a hidden unit is gelu(t a + b) with a = <w, o>, and the mean of its slope over t is
    (gelu(a + b) - gelu(b)) / a, the slope itself where a is next to 0.
    """
    weight, bias, out = (p.detach().double() for p in (head.dense.weight, head.dense.bias, head.out.weight))
    steps = mixes.double() @ weight.T
    small = steps.abs() < _SMALL
    quotient = (F.gelu(steps + bias) - F.gelu(bias)) / torch.where(small, torch.ones_like(steps), steps)
    slopes = torch.where(small, _gelu_slope(bias + steps / 2), quotient)
    return (slopes * out[0]) @ weight


def _gelu_slope(x: Tensor) -> Tensor:
    return torch.special.ndtr(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


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


def _check_strength(strength: float) -> None:
    if isinstance(strength, bool) or not isinstance(strength, (int, float)):
        raise ValueError(f"policy.strength={strength!r} is not a number; give one > 0")
    if not math.isfinite(strength) or strength <= 0:
        raise ValueError(f"policy.strength={strength}: give a number > 0 (at 0 nothing keeps the scores)")


def _check_data(
    original: np.ndarray, swapped: np.ndarray, groups: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` and ``groups`` as arrays that fit the sense vectors."""
    if original.ndim != 3 or swapped.ndim != 3 or original.shape[1:] != swapped.shape[1:]:
        raise ValueError(f"sense vectors [N, k, d] and [P, k, d] are needed, got {original.shape} and {swapped.shape}")
    if rows is None and len(original) != len(swapped):
        raise ValueError(f"{len(swapped)} swapped texts for {len(original)} texts: say in rows which belong together")
    rows = np.arange(len(original)) if rows is None else np.asarray(rows)
    groups = np.asarray(groups)
    if rows.shape != (len(swapped),) or groups.shape != (len(original),):
        raise ValueError(f"rows {rows.shape} need one entry per swapped text, groups {groups.shape} one per text")
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(original):
        raise ValueError(f"rows must name texts from 0 to {len(original) - 1}, and at least one")
    return rows, groups
