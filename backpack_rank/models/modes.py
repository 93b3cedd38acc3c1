"""Training and evaluation mode of a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout for the length of a ``with`` block; the model's mode is put back."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
