"""Losses over lists: pure functions of scores, labels and a mask, with the list on the last axis.

All take raw logits ``scores`` [..., m], the ``mask`` [..., m] that is True where the list has a
document, and labels or a teacher's scores [..., m]; values where the mask is False have no effect.
All give the mean over the lists that can be used, so every query counts the same, and how many
lists were left out. The loss of no list at all is 0, with a gradient of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.constructors import NonNegative, OneOf, Positive, checked
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.models.rankers import Ranker, RankerOutput


class AuxiliaryLoss(Protocol):
    """Write a class with these attributes to add a term to the loss of a training.

    Attributes:
        name: for logs, ``train/<name>``.
        weight: factor of the term in the sum.
    """

    name: str
    weight: float

    def loss(
        self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor
    ) -> Tensor:
        """The term before its weight, a scalar that may be 0 where the batch has nothing for it.

        Args:
            output: what the ranker says of the batch's N texts.
            scores: the same scores list by list, in fp32. [L, m]
        """
        ...


def listwise_softmax(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Softmax cross-entropy of a list, the default (Afzali et al., eq. 3).

    It is the listwise loss of Bruch et al. 2019.

    L = - mean over lists of sum_j y_j log softmax_j(s). With labels (1, 0) and scores (0, 0) it is
    log 2:

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> listwise_softmax(torch.zeros(1, 2), labels, mask)
    (tensor(0.6931), 0)

    Args:
        scores: raw logits [..., m].
        labels: relevance >= 0, binary or graded [..., m].
        mask: True where the list has a document [..., m].

    Returns:
        The loss, and how many lists were left out because no document of them is relevant.
    """
    weights = labels.to(scores.dtype).masked_fill(~mask, 0.0)
    usable = (weights > 0).any(dim=-1)
    losses = -(weights * _log_softmax(scores, mask)).sum(dim=-1)
    return _over_lists(losses, usable)


def pairwise_hinge(
    scores: Tensor, labels: Tensor, mask: Tensor, margin: float = 1.0
) -> tuple[Tensor, int]:
    """Have scores of a pair differ by a margin: max(0, margin - (s_i - s_j)).

    The mean is over pairs with y_i > y_j. Lists without such a pair are left out.

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> pairwise_hinge(torch.tensor([[0.25, 0.0]]), labels, mask)
    (tensor(0.7500), 0)
    """
    pairs = _ordered_pairs(labels, mask)
    losses = (margin - _differences(scores, mask)).clamp(min=0.0)
    return _over_pairs(losses, pairs)


def ranknet(
    scores: Tensor, labels: Tensor, mask: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, int]:
    """Learn from pairs without a margin: log(1 + exp(-(s_i - s_j))).

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> ranknet(torch.zeros(1, 2), labels, mask)
    (tensor(0.6931), 0)

    RankNet (Burges et al. 2005), over pairs with y_i > y_j. Lists without such a pair are left out.

    Args:
        weights: of the pairs [..., m, m], such as :func:`lambda_weights`; a list's loss is then
            their weighted sum. None gives all pairs of a list the same weight, 1 in total.
    """
    pairs = _ordered_pairs(labels, mask)
    losses = F.softplus(-_differences(scores, mask))
    if weights is None:
        return _over_pairs(losses, pairs)
    weighted = losses * weights.masked_fill(~pairs, 0.0)
    return _over_lists(weighted.sum(dim=(-2, -1)), usable=pairs.any(-1).any(-1))


def lambdarank(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Where the top of a list counts most: RankNet with pairs weighed by their nDCG.

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> loss, left_out = lambdarank(torch.tensor([[0.0, 1.0]]), labels, mask)

    The weight of a pair is the change of nDCG when its documents swap ranks, see
    :func:`lambda_weights`.
    """
    return ranknet(scores, labels, mask, lambda_weights(scores, labels, mask))


@torch.no_grad()
def lambda_weights(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Weigh pairs by how much nDCG changes when i and j swap ranks. [..., m, m]

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> lambda_weights(torch.tensor([[1.0, 0.0]]), labels, mask)
    tensor([[[0.0000, 0.3691],
             [0.3691, 0.0000]]])

    Burges 2010, section 4, with gain 2^y - 1 and discount 1 / log2(1 + rank), over all ranks.
    Equal scores rank by their place in the list. A list without a relevant document has weights of
    0. No gradient flows through the weights.
    """
    labels = labels.to(scores.dtype).masked_fill(~mask, 0.0)
    gains = 2.0**labels - 1.0
    ranks_from_1 = torch.arange(1, labels.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    discount_at_rank = 1.0 / (1.0 + ranks_from_1).log2()
    ideal_gains = gains.sort(dim=-1, descending=True).values
    ideal_dcg = (ideal_gains * discount_at_rank).sum(dim=-1)
    order = scores.masked_fill(~mask, float("-inf")).argsort(dim=-1, descending=True, stable=True)
    # The inverse of the order: the rank of each document.
    ranks = order.argsort(dim=-1)
    discounts = discount_at_rank[ranks].masked_fill(~mask, 0.0)
    # A swap moves the gain of i to the discount of j and the other way round.
    changes = _pairwise(gains) * _pairwise(discounts)
    # Without relevant documents both are 0; 0 / 0 would be nan.
    ideal_dcg = ideal_dcg.clamp(min=torch.finfo(scores.dtype).tiny)
    weights = changes.abs() / ideal_dcg[..., None, None]
    return weights.masked_fill(~_both_in_list(mask), 0.0)


def margin_mse(scores: Tensor, teacher: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Learn a teacher's score differences: ((s_i - s_j) - (t_i - t_j))^2.

    >>> labels, mask = torch.tensor([[1, 0]]), torch.tensor([[True, True]])
    >>> margin_mse(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]]), labels, mask)
    (tensor(4.), 0)

    Hofstätter et al. 2020; the mean is over pairs of a relevant i and a j that is not.

    Args:
        teacher: a teacher's scores, nan where it has none; such documents are in no pair. [..., m]

    Returns:
        The loss, and how many lists were left out because they have no pair with both scores of the
        teacher.
    """
    known = mask & ~teacher.isnan()
    relevant = known & (labels > 0)
    others = known & (labels <= 0)
    pairs = relevant[..., :, None] & others[..., None, :]
    # (s_i - s_j) - (t_i - t_j) = (s_i - t_i) - (s_j - t_j)
    errors = _differences(scores - teacher, known)
    return _over_pairs(errors.square(), pairs)


def listwise_kl(
    scores: Tensor, teacher: Tensor, mask: Tensor, temperature: float = 1.0
) -> tuple[Tensor, int]:
    """Learn a teacher's scores of a list as a distribution, whatever the labels.

    >>> mask = torch.tensor([[True, True]])
    >>> listwise_kl(torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, 4.0]]), mask)
    (tensor(0.), 0)

    temperature^2 * KL(softmax(t / temperature) || softmax(s / temperature)). The square keeps the
    gradient's size as the temperature rises (Hinton et al. 2015 section 2).

    Args:
        teacher: a teacher's scores, nan where it has none; such documents are in neither softmax.
            [..., m]

    Returns:
        The loss, and how many lists were left out because fewer than two of their documents have a
        teacher's score.
    """
    known = mask & ~teacher.isnan()
    teacher_logs = _log_softmax(teacher / temperature, known)
    student_logs = _log_softmax(scores / temperature, known)
    divergence = (teacher_logs.exp() * (teacher_logs - student_logs)).sum(dim=-1)
    losses = temperature**2 * divergence
    return _over_lists(losses, known.sum(dim=-1) > 1)


def scatter_lists(scores: Tensor, mask: Tensor) -> Tensor:
    """Lay scores of all documents [N] out in lists [L, m], 0 where ``mask`` is False.

    >>> scatter_lists(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[True, True], [True, False]]))
    tensor([[1., 2.],
            [3., 0.]])
    """
    rows = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    return rows.masked_scatter(mask, scores)


def _log_softmax(values: Tensor, mask: Tensor) -> Tensor:
    """log softmax over the documents of a list; 0 where the mask is False. [..., m]"""
    values = values.masked_fill(~mask, float("-inf"))
    # A softmax of minus infinities alone would give nan.
    empty = ~mask.any(dim=-1, keepdim=True)
    values = values.masked_fill(empty, 0.0)
    return values.log_softmax(-1).masked_fill(~mask, 0.0)


def _differences(values: Tensor, mask: Tensor) -> Tensor:
    """v_i - v_j of all pairs. [..., m, m]"""
    # A nan among masked values would reach the gradient.
    return _pairwise(values.masked_fill(~mask, 0.0))


def _pairwise(values: Tensor) -> Tensor:
    return values[..., :, None] - values[..., None, :]


def _ordered_pairs(labels: Tensor, mask: Tensor) -> Tensor:
    """True for the pairs (i, j) of documents with y_i > y_j. [..., m, m]"""
    return (labels[..., :, None] > labels[..., None, :]) & _both_in_list(mask)


def _both_in_list(mask: Tensor) -> Tensor:
    """True for the pairs of two documents of the list, and not of padding. [..., m, m]"""
    return mask[..., :, None] & mask[..., None, :]


def _over_pairs(losses: Tensor, pairs: Tensor) -> tuple[Tensor, int]:
    """Mean over the pairs of each list, then over the lists that have one."""
    counts = pairs.sum(dim=(-2, -1))
    sums = losses.masked_fill(~pairs, 0.0).sum(dim=(-2, -1))
    return _over_lists(sums / counts.clamp(min=1), usable=counts > 0)


def _over_lists(losses: Tensor, usable: Tensor) -> tuple[Tensor, int]:
    """Mean over the usable lists, and how many are not."""
    count = int(usable.sum())
    mean = losses.masked_fill(~usable, 0.0).sum() / max(count, 1)
    return mean, usable.numel() - count


@checked("training", name="loss", weight="loss_weight")
class RankingLoss:
    """The loss that a configuration names, over labelled lists.

    >>> loss = RankingLoss("pairwise_hinge", margin=0.5)
    >>> loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), torch.tensor([[True, True]]))
    (tensor(0.5000), 0)
    """

    def __init__(
        self,
        name: Annotated[str, OneOf(LOSSES)] = "listwise_softmax",
        margin: Positive = 1.0,
        weight: NonNegative = 1.0,
    ) -> None:
        """
        Args:
            name: ``listwise_softmax``, ``pairwise_hinge``, ``ranknet`` or ``lambdarank``.
            margin: by how much a pair's scores must differ, of ``pairwise_hinge``.
            weight: factor of the loss beside further terms; 0 leaves the terms alone.

        Raises:
            ValueError: an unknown name, a margin of 0 or below, or a weight below 0.
        """
        self.name = name
        self.margin = margin
        self.weight = weight

    def __call__(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
        """The loss before its weight, and how many lists were left out."""
        return LOSSES[self.name](scores, labels, mask, self.margin)


# All are called with (scores, labels, mask, margin); most have no margin.
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, int]]] = {
    "listwise_softmax": lambda scores, labels, mask, _: listwise_softmax(scores, labels, mask),
    "pairwise_hinge": pairwise_hinge,
    "ranknet": lambda scores, labels, mask, _: ranknet(scores, labels, mask),
    "lambdarank": lambda scores, labels, mask, _: lambdarank(scores, labels, mask),
}
