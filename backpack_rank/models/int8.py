"""Linear layers with int8 weights and activations, for inference on CPUs.

A weight matrix has one scale per output. What enters a layer has one scale and one lowest value per
token, computed from the token itself, so the score of a text does not depend on what else is in its
batch, but for jumps of one step: floats before and between these layers differ by rounding from
batch to batch, and an entry that this takes across the middle of two steps is rounded to the other
one. Scores differed by up to .034 of their standard deviation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


class Int8Linear(nn.Module):
    """W x + b with 8 bits for each entry of W and x.

    x_j is about lowest + step q_j with q_j in 0 ... 255, step = (highest - lowest) / 255 over the
    token's own entries. W x = step (W q) + lowest (sum of W's rows); the product of integers is
    exact.
    """

    scales: Tensor
    columns: Tensor
    packed: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """From a weight [outputs, inputs] and a bias [outputs]."""
        super().__init__()
        weight = weight.detach().float().contiguous()
        scales = weight.abs().amax(1).clamp(min=1e-12) / 127
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)
        row_sums = rounded.sum(1, dtype=torch.int32).float() * scales
        offsets = torch.zeros_like(row_sums) if bias is None else bias.detach().float()
        self.register_buffer("columns", torch.stack([row_sums, offsets]))
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(scales), dtype=torch.long)

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        x = inputs.flatten(0, -2)
        lowest = x.amin(1, keepdim=True)
        step = (x.amax(1, keepdim=True) - lowest).div_(255).clamp_(min=1e-12)
        # Torch converts to int8 eight times as fast as to uint8, so q - 128 is rounded; adding 128
        # to the bits of an int8 gives those of the uint8 q.
        centred = (x - (lowest + 128 * step)).mul_(step.reciprocal())
        rounded = centred.round_().to(torch.int8).view(torch.uint8).add_(128)
        y = torch.ops.onednn.qlinear_pointwise(
            rounded,
            1.0,
            0,
            self.packed,
            self.scales,
            self.zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        # y = step (W q) + lowest (row sums of W) + b
        y.mul_(step).addmm_(torch.cat([lowest, torch.ones_like(lowest)], 1), self.columns)
        return y.unflatten(0, inputs.shape[:-1])


def quantise_linears(network: nn.Module) -> int:
    """Use this to put an :class:`Int8Linear` in the place of every linear layer of a network.

    Returns:
        The number of layers.
    """
    # Listed before the first is replaced: modules() walks through the network as it is changed.
    linear = []
    for parent in network.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear | Conv1D):
                linear.append((parent, name, child))
    for parent, name, child in linear:
        weight = child.weight.T if isinstance(child, Conv1D) else child.weight
        setattr(parent, name, Int8Linear(weight, child.bias))
    return len(linear)
