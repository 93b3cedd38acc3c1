"""Losses of FIRST and DebiasFirst (paper 000): pure functions of scores and target ranks with a mask.

All take scores [..., m] (the logits of the identifiers at the first generated token), target ranks [..., m] from 0, and
a mask [..., m] that is True where the list has a passage; what stands where the mask is False plays no part. All give
the mean over lists of the sums that the equations give for one list, as a scalar in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rank_loss(
    scores: Tensor, ranks: Tensor, mask: Tensor, levels: Tensor | None = None, inverse: Tensor | None = None
) -> Tensor:
    """L_rank (eq. 2), or with inverse propensities L_rank-IPS (eq. 4).

    L = sum over pairs with pi(i) < pi(j) of log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) * v_i * v_j, where pi(i) is the
    target rank of passage i from 1 and v_i = 1 / w[i, pi(i)], or 1. Lists without a pair count with a loss of 0.

    Args:
        levels: pairs of the same level are ties and left out [..., m]; None has no ties.
        inverse: v, from :meth:`~backpack_rank.listwise.propensity.Propensities.inverse` by input position and target
            rank, [..., m]; None leaves all pairs as they are.
    """
    losses = pair_losses(scores.float(), ranks, mask, levels)
    if inverse is not None:
        own = inverse.to(losses.dtype).masked_fill(~mask, 0.0)
        losses = losses * own[..., :, None] * own[..., None, :]
    return losses.sum(dim=(-2, -1)).mean()


def pair_losses(scores: Tensor, ranks: Tensor, mask: Tensor, levels: Tensor | None = None) -> Tensor:
    """log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) of the pairs with pi(i) < pi(j), 0 for all others. [..., m, m]"""
    scores = scores.masked_fill(~mask, 0.0)  # a nan among them would reach the gradient
    losses = F.softplus(scores[..., None, :] - scores[..., :, None])
    return losses * pair_weights(ranks, mask, levels)


def pair_weights(ranks: Tensor, mask: Tensor, levels: Tensor | None = None) -> Tensor:
    """1 / (pi(i) + pi(j)) for the pairs of passages with pi(i) < pi(j) that are not tied, else 0. [..., m, m]"""
    order = ranks if levels is None else levels
    wanted = order[..., :, None] < order[..., None, :]
    wanted = wanted & mask[..., :, None] & mask[..., None, :]
    sums = (ranks[..., :, None] + ranks[..., None, :] + 2).float()  # ranks count from 0 here
    return torch.where(wanted, 1.0 / sums.clamp(min=1.0), torch.zeros_like(sums))


def lm_loss(logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """L_LM (eq. 1): - sum over the tokens of a target ranking of log P(y_t | prompt, y_<t), mean over lists.

    Args:
        logits: at the token before each target. [L, n, V]
        targets: token ids, anything where there is none. [L, n]
        known: True where there is a target. [L, n]
    """
    losses = F.cross_entropy(logits[known].float(), targets[known], reduction="sum")
    return losses / len(targets)


def joint_loss(ranking: Tensor, language: Tensor | None, weight: float) -> Tensor:
    """lambda * L_rank + L_LM (eqs. 3 and 6); without a language-model term L_rank alone, which then needs no weight."""
    return ranking if language is None else weight * ranking + language
