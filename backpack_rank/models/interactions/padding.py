"""Word vectors of a padded batch, cleared so that padding has no influence on windows that reach into it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def without_padding(vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Zero vectors at padding, and at least one (masked) column, so that a batch of empty texts has a width.

    Args:
        vectors: [B, N, e].
        mask: true at terms, false at padding, which stands to the right. bool [B, N]

    Returns:
        Vectors [B, max(N, 1), e] and their mask [B, max(N, 1)].
    """
    # Not a product with the mask: whatever stands at padding, also what is not finite, is replaced.
    vectors = vectors.masked_fill(~mask[..., None], 0.0)
    if vectors.shape[1]:
        return vectors, mask
    return F.pad(vectors, (0, 0, 0, 1)), F.pad(mask, (0, 1), value=False)
