"""Turning the dial: hooks that weigh senses and move tokens, without touching a weight of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.senses.tokens import TokenMove, moved_tokens


@dataclass(frozen=True, eq=False)
class Control:
    """What is done to a ranker at one position of the dial.

    Attributes:
        name: of the policy, for tables and files.
        alpha: position of the dial.
        weights: one weight per sense [k] (eq. 5), or None.
        tokens: tokens that are moved towards the mean of their class, or None.
    """

    name: str = ""
    alpha: float = 1.0
    weights: Tensor | None = None
    tokens: TokenMove | None = None


UNTOUCHED = Control()
"""The ranker as it is, bit for bit."""


@contextmanager
def applied(ranker: PreTrainedModel, control: Control) -> Iterator[None]:
    """The ranker under a control, for the length of a ``with`` block.

    Raises:
        TypeError: weights per sense, or moved sense vectors, for a ranker without senses.
        ValueError: not one finite weight >= 0 per sense.
    """
    with ExitStack() as stack:
        if control.weights is not None:
            handle = attach(ranker, control.weights)
            stack.callback(handle.remove)
        if control.tokens is not None:
            stack.enter_context(moved_tokens(ranker, control.tokens))
        yield


def attach(ranker: PreTrainedModel, weights: Tensor) -> RemovableHandle:
    """Weigh sense l of every text by ``weights[l]`` from now on (eq. 5); ``.remove()`` of the result ends it.

    Weights of 1 leave every score bit for bit as it is, because x * 1.0 == x.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: not one finite weight >= 0 per sense.
    """
    if not isinstance(ranker, BackpackForRanking):
        raise TypeError(f"{type(ranker).__name__} has no sense vectors; weights per sense need a Backpack ranker")
    k = ranker.config.num_senses
    if weights.shape != (k,) or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError(f"need {k} finite weights >= 0, one per sense, got {weights.tolist()}")

    def weigh(_module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        (senses,) = inputs
        return (senses * weights.to(senses)[:, None],)

    return ranker.sense_sum.register_forward_pre_hook(weigh)


def sources(control: Control) -> list[tuple[float, Control]]:
    """Sense vectors of which those under a control are a linear combination: (factor, control to compute under).

    Weights per sense come after the sense vectors and change none of them. Tokens moved in their senses alone give
    vectors linear in alpha: alpha o(1) + (1 - alpha) o(0), because contextual weights do not depend on alpha.
    """
    tokens = control.tokens
    if tokens is None:
        return [(1.0, UNTOUCHED)]
    if tokens.where != "senses":
        return [(1.0, Control(tokens=tokens))]
    return [(tokens.alpha, UNTOUCHED), (1 - tokens.alpha, Control(tokens=replace(tokens, alpha=0.0)))]
