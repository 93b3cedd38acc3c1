"""Number format of a pretrained backbone: fp32, or bf16 for large ones that adapters train."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def number_format(name: str) -> torch.dtype:
    """The format of that name. Raises ``ValueError`` for any but ``float32`` and ``bfloat16``."""
    if name not in FORMATS:
        raise ValueError(f"dtype={name}: a backbone is loaded in {' or '.join(FORMATS)}")
    return FORMATS[name]


def set_format(backbone: PreTrainedModel, name: str) -> None:
    """Convert a backbone's parameters, in place.

    Buffers stay in fp32, unlike in ``backbone.to(dtype)``: rotary positions have to be computed from frequencies that
    bf16 cannot hold. Everything above a backbone computes in fp32: hidden states and embeddings are converted there.
    """
    wanted = number_format(name)
    for parameter in backbone.parameters():
        parameter.data = parameter.data.to(wanted)
