"""Losses over lists: pure functions of scores and labels with a mask, the list on the last axis."""

from __future__ import annotations

import torch
from torch import Tensor


def listwise_softmax(scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, int]:
    """Listwise softmax cross-entropy (paper 004 eq. 3; Bruch et al. 2019).

    L = - mean over lists of sum_j y_j log softmax_j(s). With labels (1, 0) and scores (0, 0) it is log 2.

    Args:
        scores: raw logits [..., m].
        labels: relevance >= 0, binary or graded [..., m].
        mask: True where the list has a document [..., m].

    Returns:
        The loss, and how many lists were left out because no document of them is relevant. The loss of no
        list at all is 0 (with a gradient of 0).
    """
    weights = labels.to(scores.dtype).masked_fill(~mask, 0.0)
    usable = (weights > 0).any(dim=-1)
    # Lists without any document would give log softmax = nan; they are left out below.
    log_probabilities = scores.masked_fill(~mask, float("-inf")).masked_fill(~usable[..., None], 0.0).log_softmax(-1)
    losses = -(weights * log_probabilities.masked_fill(~mask, 0.0)).sum(dim=-1)
    count = int(usable.sum())
    return losses.masked_fill(~usable, 0.0).sum() / max(count, 1), usable.numel() - count


def scatter_lists(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores of all documents, list by list [N], as rows [L, m] with 0 where ``mask`` is False."""
    return torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device).masked_scatter(mask, scores)
