"""Modes, devices and number formats of models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backpack_rank.checks import one_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Run a model without dropout in a ``with`` block; then its mode is put back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def weight_state(weight: Tensor) -> tuple:
    """What changes when a weight does: its memory, how often it was written, its format."""
    # Of tensors that were made in inference mode, torch does not count how often.
    written = None if weight.is_inference() else weight._version
    return weight.data_ptr(), written, weight.dtype


def gpu_has_room(device: torch.device, size: int) -> bool:
    """Whether a device is a GPU of which half of the free memory holds so many bytes."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * size <= free


def pick_device(name: str, option: str) -> torch.device:
    """A device that a user names; ``auto`` is a GPU where there is one.

    >>> pick_device("cpu", "device")
    device(type='cpu')

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` ...
        option: where it was given, for the error.

    Raises:
        ValueError: there is no such device, or it asks for a GPU that torch does not see.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError as error:
        raise ValueError(
            f"{option}={name}: there is no such device; use auto, cpu, cuda or cuda:1 ..."
        ) from error
    one_of(option, device.type, ("auto", "cpu", "cuda", "mps", "xpu"))
    if device.type in ("mps", "xpu") and not getattr(torch, device.type).is_available():
        raise ValueError(f"{option}={name}, but torch sees no such device here; use {option}=cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{option}={name}, but torch sees no GPU; use {option}=cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{option}={name}, but torch sees {torch.cuda.device_count()} GPUs, counted from 0"
        )
    return device


def backbone_dtype(name: str) -> torch.dtype:
    """The number format ``float32`` or ``bfloat16``. Raises ``ValueError`` for other names."""
    one_of("backbone: dtype", name, DTYPES)
    return DTYPES[name]


def cast_parameters(backbone: PreTrainedModel, name: str) -> None:
    """Convert a backbone's parameters, in place.

    Buffers stay in fp32, unlike in ``backbone.to(dtype)``: rotary positions have to be computed
    from frequencies that bf16 cannot hold. Everything above a backbone computes in fp32: hidden
    states and embeddings are converted there.
    """
    wanted = backbone_dtype(name)
    for parameter in backbone.parameters():
        parameter.data = parameter.data.to(wanted)


def input_embeddings(model: nn.Module) -> nn.Module | None:
    """A model's input embeddings, or None where it has none."""
    try:
        return model.get_input_embeddings()  # type: ignore[operator]
    # Models of transformers without embeddings raise one of two errors.
    except (AttributeError, NotImplementedError):
        return None
