"""Devices by name."""

from __future__ import annotations

import torch


def pick_device(name: str, option: str) -> torch.device:
    """The device of that name; ``auto`` is a GPU where there is one.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` ...
        option: where it was given, for the error.

    Raises:
        ValueError: it asks for a GPU that torch does not see.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{option}={name}, but torch sees no GPU; use {option}=cpu")
    return device
