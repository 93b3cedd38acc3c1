"""Next-token loss without the logits of a whole batch.

With a vocabulary of 50,000, the logits of 16,000 tokens are 3 GB and their gradient as much again. Here they are made
for some rows at a time, and the gradient is taken while they are there, so nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_LOGITS = {"cpu": 2**22, "cuda": 2**27}
"""Logits that are held at once: 16 MB in a CPU's float32, 512 MB on a GPU."""


def next_token_loss(vectors: Tensor, table: Tensor, targets: Tensor, logits_at_once: int | None = None) -> Tensor:
    """Sum of -log softmax(E v)[target] over tokens, in float32.

    Args:
        vectors: what is read at each token, v. [N, d]
        table: output embeddings, E. [V, d]
        targets: the ids to predict. [N]
        logits_at_once: N x V logits are made in parts of about this size; None chooses by device.
    """
    rows = max(1, (logits_at_once or _LOGITS.get(vectors.device.type, 2**27)) // len(table))
    # Autocast does not reach into the function below, which multiplies in its inputs' own format.
    if torch.is_autocast_enabled(vectors.device.type):
        dtype = torch.get_autocast_dtype(vectors.device.type)
        vectors, table = vectors.to(dtype), table.to(dtype)
    if torch.is_grad_enabled() and (vectors.requires_grad or table.requires_grad):
        return _InParts.apply(vectors, table, targets, rows)
    with torch.autocast(vectors.device.type, enabled=False):
        parts = zip(vectors.split(rows), targets.split(rows), strict=True)
        losses = [F.cross_entropy(F.linear(v, table).float(), wanted, reduction="sum") for v, wanted in parts]
    return torch.stack(losses).sum()


class _InParts(torch.autograd.Function):
    """The loss with its gradients, both from the same logits, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, table: Tensor, targets: Tensor, rows: int) -> Tensor:
        """Sum of the losses, see :func:`next_token_loss`; the gradients are kept for :meth:`backward`."""
        to_vectors = torch.empty_like(vectors)
        # Sums over many parts: in float32 whatever the format of the factors.
        to_table = torch.zeros(table.shape, dtype=torch.float32, device=table.device)
        total = torch.zeros((), dtype=torch.float32, device=vectors.device)
        with torch.autocast(vectors.device.type, enabled=False):
            for start in range(0, len(vectors), rows):
                part, wanted = vectors[start : start + rows], targets[start : start + rows, None]
                logs = (part @ table.T).float().log_softmax(dim=-1)
                total -= logs.gather(1, wanted).sum()
                # The gradient of the loss by the logits is softmax - one hot.
                gradient = logs.exp_().scatter_add_(1, wanted, torch.full_like(wanted, -1, dtype=torch.float32))
                gradient = gradient.to(part.dtype)
                torch.mm(gradient, table, out=to_vectors[start : start + rows])
                to_table += gradient.T @ part
        ctx.save_for_backward(to_vectors, to_table.to(table.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_vectors, to_table = ctx.saved_tensors
        return to_vectors * scale, to_table * scale, None, None
