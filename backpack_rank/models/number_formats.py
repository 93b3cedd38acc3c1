"""Number formats that rankers compute in, and what the hardware is fast in."""

from __future__ import annotations

import platform

import torch
from transformers import PreTrainedModel

from backpack_rank.checks import one_of
from backpack_rank.models.int8 import Int8Linear, quantise_linears

FLOATS = ("float32", "bfloat16", "float16")
FORMATS = (*FLOATS, "int8", "auto")


def computes_in_bf16(cpu: bool) -> bool:
    """Whether the processor, or else the GPU, multiplies matrices in bf16 by itself."""
    if not cpu and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if platform.machine() in ("aarch64", "arm64"):
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    # On x86 that says yes to processors that convert to fp32 and back, which is slower than fp32.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolved_format(name: str, device: torch.device, option: str) -> str:
    """Use this before :func:`convert`: the format that a device computes in.

    ``auto`` is bfloat16 where the device computes in it, else float32. Other names stay::

        name = resolved_format("auto", device, "dtype")
        convert(ranker, name, device, "dtype")

    Args:
        name: one of :data:`FORMATS`.
        device: which computes.
        option: where it was given, for the error.

    Raises:
        ValueError: there is no such format, or the device cannot compute in it.
    """
    one_of(option, name, FORMATS)
    if name == "auto":
        return "bfloat16" if computes_in_bf16(device.type == "cpu") else "float32"
    if name == "int8" and device.type != "cpu":
        raise ValueError(f"{option}=int8 is for CPUs, not for {device}; use bfloat16")
    if name == "int8" and not torch.cpu._is_vnni_supported():
        raise ValueError(
            f"{option}=int8: this processor does not multiply int8 by itself (no AVX512-VNNI); use "
            "auto"
        )
    return name


def format_of(ranker: PreTrainedModel) -> str:
    """The format that a ranker computes in now, one of :data:`FLOATS` or ``int8``."""
    if any(isinstance(part, Int8Linear) for part in ranker.modules()):
        return "int8"
    return str(next(ranker.parameters()).dtype).removeprefix("torch.")


def convert(ranker: PreTrainedModel, name: str, device: torch.device, option: str) -> None:
    """Use this to bring a ranker to a device and into a format of :data:`FLOATS`, or to int8.

    With int8 the linear layers of its backbone compute in int8, and everything else in float32:
    embeddings, attention, norms, senses and head.

    Raises:
        ValueError: the ranker has no backbone whose layers could be in int8, or they are already
            and cannot go back.
    """
    if format_of(ranker) == "int8":
        if name != "int8":
            raise ValueError(
                f"{option}={name}: the ranker was brought to int8 before, which cannot be undone; "
                "load it"
            )
        return
    dtype = torch.float32 if name == "int8" else getattr(torch, name)
    ranker.to(device=device, dtype=dtype)  # type: ignore[call-arg]
    if name == "int8":
        quantised = sum(quantise_linears(backbone) for backbone in _backbones(ranker))
        if not quantised:
            raise ValueError(
                f"{option}=int8 is for rankers with a transformer, not for {type(ranker).__name__}"
            )


def _backbones(ranker: PreTrainedModel) -> list[PreTrainedModel]:
    """The models of transformers inside a ranker that hold no further one."""
    backbones = []
    for part in ranker.modules():
        if not isinstance(part, PreTrainedModel) or part is ranker:
            continue
        _, *inner = part.modules()  # the first is the part itself
        if not any(isinstance(module, PreTrainedModel) for module in inner):
            backbones.append(part)
    return backbones
