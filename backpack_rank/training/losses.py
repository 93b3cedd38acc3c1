"""Losses over lists: pure functions of scores and labels with a mask, the list on the last axis,
and terms beside them.

All take raw logits ``scores`` [..., m], the ``mask`` [..., m] that is True where the list has a
document, and labels or a teacher's scores [..., m]; what stands where the mask is False plays no
part. All give the mean over the lists that can be used, so every query counts the same, and how
many lists were left out. The loss of no list at all is 0, with a gradient of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.constructors import NonNegative, OneOf, Positive, checked
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.models.rankers import Ranker, RankerOutput


class AuxiliaryLoss(Protocol):
    """One more term of the loss.

    Attributes:
        name: for logs, ``train/<name>``.
        weight: factor of the term in the sum.
        needs_senses: whether ``output.senses`` must be there.
    """

    name: str
    weight: float
    needs_senses: bool

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
    """Listwise softmax cross-entropy (Afzali et al., eq. 3; Bruch et al. 2019).

    L = - mean over lists of sum_j y_j log softmax_j(s). With labels (1, 0) and scores (0, 0) it is
    log 2.

    Args:
        scores: raw logits [..., m].
        labels: relevance >= 0, binary or graded [..., m].
        mask: True where the list has a document [..., m].

    Returns:
        The loss, and how many lists were left out because no document of them is relevant.
    """
    weights = labels.to(scores.dtype).masked_fill(~mask, 0.0)
    usable = (weights > 0).any(dim=-1)
    return _over_lists(-(weights * _log_softmax(scores, mask)).sum(dim=-1), usable)


def pairwise_hinge(
    scores: Tensor, labels: Tensor, mask: Tensor, margin: float = 1.0
) -> tuple[Tensor, int]:
    """Mean over pairs with y_i > y_j of max(0, margin - (s_i - s_j)); lists without such a pair are
    left out.
    """
    pairs = _ordered_pairs(labels, mask)
    return _over_pairs((margin - _differences(scores, mask)).clamp(min=0.0), pairs)


def ranknet(
    scores: Tensor, labels: Tensor, mask: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, int]:
    """log(1 + exp(-(s_i - s_j))) over pairs with y_i > y_j (Burges et al. 2005); lists without one
    are left out.

    Args:
        weights: of the pairs [..., m, m], such as :func:`lambda_weights`; a list's loss is then
            their weighted sum. None gives all pairs of a list the same weight, 1 in total.
    """
    pairs = _ordered_pairs(labels, mask)
    losses = F.softplus(-_differences(scores, mask))
    if weights is None:
        return _over_pairs(losses, pairs)
    return _over_lists(
        (losses * weights.masked_fill(~pairs, 0.0)).sum(dim=(-2, -1)), pairs.any(-1).any(-1)
    )


@torch.no_grad()
def lambda_weights(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """|change of nDCG when documents i and j swap ranks|, LambdaRank's weights (Burges 2010 section
    4). [..., m, m]

    Gain 2^y - 1, discount 1 / log2(1 + rank), the whole list. Equal scores rank by their place in
    the list. A list without a relevant document has weights of 0. No gradient flows through the
    weights.
    """
    gains = (2.0 ** labels.to(scores.dtype).masked_fill(~mask, 0.0)) - 1.0
    places = (
        1.0 / torch.arange(2, labels.shape[-1] + 2, device=scores.device, dtype=scores.dtype).log2()
    )
    ideal = (gains.sort(dim=-1, descending=True).values * places).sum(dim=-1)
    order = scores.masked_fill(~mask, float("-inf")).argsort(dim=-1, descending=True, stable=True)
    discounts = places[order.argsort(dim=-1)].masked_fill(~mask, 0.0)
    changes = _pairwise(gains) * _pairwise(discounts)
    both = mask[..., :, None] & mask[..., None, :]
    return (
        changes.abs() / ideal.clamp(min=torch.finfo(scores.dtype).tiny)[..., None, None]
    ).masked_fill(~both, 0.0)


def margin_mse(scores: Tensor, teacher: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Mean over pairs (relevant i, not relevant j) of ((s_i - s_j) - (t_i - t_j))^2 (Hofstätter et
    al. 2020).

    Args:
        teacher: a teacher's scores, nan where it has none; such documents are in no pair. [..., m]

    Returns:
        The loss, and how many lists were left out because they have no pair with both scores of the
        teacher.
    """
    known = mask & ~teacher.isnan()
    relevant = labels > 0
    pairs = (known & relevant)[..., :, None] & (known & ~relevant)[..., None, :]
    return _over_pairs(_differences(scores - teacher, known).square(), pairs)


def listwise_kl(
    scores: Tensor, teacher: Tensor, mask: Tensor, temperature: float = 1.0
) -> tuple[Tensor, int]:
    """temperature^2 * KL(softmax(t / temperature) || softmax(s / temperature)) over the documents
    of a list.

    The square keeps the gradient's size as the temperature rises (Hinton et al. 2015 section 2).

    Args:
        teacher: a teacher's scores, nan where it has none; such documents are in neither softmax.
            [..., m]

    Returns:
        The loss, and how many lists were left out because fewer than two of their documents have a
        teacher's score.
    """
    known = mask & ~teacher.isnan()
    wanted, found = (_log_softmax(values / temperature, known) for values in (teacher, scores))
    losses = temperature**2 * (wanted.exp() * (wanted - found)).sum(dim=-1)
    return _over_lists(losses, known.sum(dim=-1) > 1)


def scatter_lists(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores of all documents, list by list [N], as rows [L, m] with 0 where ``mask`` is False."""
    return torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device).masked_scatter(
        mask, scores
    )


def _log_softmax(values: Tensor, mask: Tensor) -> Tensor:
    """log softmax over the documents of a list; 0 where the mask is False. [..., m]"""
    # Lists without any document would give nan; they are 0 here as well.
    empty = ~mask.any(dim=-1, keepdim=True)
    return (
        values.masked_fill(~mask, float("-inf"))
        .masked_fill(empty, 0.0)
        .log_softmax(-1)
        .masked_fill(~mask, 0.0)
    )


def _differences(values: Tensor, mask: Tensor) -> Tensor:
    """v_i - v_j of all pairs, with masked values as 0: a nan among them would reach the gradient.
    [..., m, m]
    """
    return _pairwise(values.masked_fill(~mask, 0.0))


def _pairwise(values: Tensor) -> Tensor:
    return values[..., :, None] - values[..., None, :]


def _ordered_pairs(labels: Tensor, mask: Tensor) -> Tensor:
    """True for the pairs (i, j) of documents with y_i > y_j. [..., m, m]"""
    return (labels[..., :, None] > labels[..., None, :]) & mask[..., :, None] & mask[..., None, :]


def _over_pairs(losses: Tensor, pairs: Tensor) -> tuple[Tensor, int]:
    """Mean over the pairs of each list, then over the lists that have one."""
    counts = pairs.sum(dim=(-2, -1))
    means = losses.masked_fill(~pairs, 0.0).sum(dim=(-2, -1)) / counts.clamp(min=1)
    return _over_lists(means, counts > 0)


def _over_lists(losses: Tensor, usable: Tensor) -> tuple[Tensor, int]:
    """Mean over the usable lists, and how many are not."""
    count = int(usable.sum())
    return losses.masked_fill(~usable, 0.0).sum() / max(count, 1), usable.numel() - count


def lambdarank(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """RankNet with the pairs weighed by what swapping them would change about nDCG."""
    return ranknet(scores, labels, mask, lambda_weights(scores, labels, mask))


@checked("training", name="loss", weight="loss_weight")
@dataclass(frozen=True)
class RankingLoss:
    """What makes a ranker rank: a loss over labelled lists.

    Attributes:
        name: ``listwise_softmax``, ``pairwise_hinge``, ``ranknet`` or ``lambdarank``.
        margin: by how much a pair's scores must differ, of ``pairwise_hinge``.
        weight: factor of the loss beside further terms; 0 leaves the terms alone.

    Raises:
        ValueError: an unknown name, a margin of 0 or below, or a weight below 0.
    """

    name: Annotated[str, OneOf(LOSSES)] = "listwise_softmax"
    margin: Positive = 1.0
    weight: NonNegative = 1.0

    def __call__(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
        """The loss before its weight, and how many lists were left out; see
        :mod:`backpack_rank.training.losses`.
        """
        return LOSSES[self.name](scores, labels, mask, self.margin)


# What each makes of (scores, labels, mask, margin).
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, int]]] = {
    "listwise_softmax": lambda scores, labels, mask, _: listwise_softmax(scores, labels, mask),
    "pairwise_hinge": pairwise_hinge,
    "ranknet": lambda scores, labels, mask, _: ranknet(scores, labels, mask),
    "lambdarank": lambda scores, labels, mask, _: lambdarank(scores, labels, mask),
}
