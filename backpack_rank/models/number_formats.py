"""Number formats that rankers compute in, and what the hardware is fast in."""

from __future__ import annotations

import platform

import torch
from transformers import PreTrainedModel

from backpack_rank.checks import one_of

FLOATS = ("float32", "bfloat16", "float16")
FORMATS = (*FLOATS, "auto")


def computes_in_bf16(cpu: bool) -> bool:
    """Whether the processor, or else the GPU, multiplies matrices in bf16 by itself."""
    if not cpu and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if platform.machine() in ("aarch64", "arm64"):
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    # On x86 that says yes to processors that convert to fp32 and back, which is slower than fp32.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolved_format(name: str, device: torch.device, option: str) -> str:
    """Know the format that a device computes in.

    ``auto`` is bfloat16 where the device computes in it, else float32. Other names stay::

        name = resolved_format("auto", device, "dtype")
        ranker.to(device=device, dtype=getattr(torch, name))

    Args:
        name: one of :data:`FORMATS`.
        device: which computes.
        option: where it was given, for the error.

    Raises:
        ValueError: there is no such format.
    """
    one_of(option, name, FORMATS)
    if name == "auto":
        return "bfloat16" if computes_in_bf16(device.type == "cpu") else "float32"
    return name


def format_of(ranker: PreTrainedModel) -> str:
    """The format that a ranker computes in now, one of :data:`FLOATS`."""
    return str(next(ranker.parameters()).dtype).removeprefix("torch.")
