"""The inference hook: turns a ranker's dial, alpha, without touching a weight of the model.

Sensitivity of the senses from paired words -> policy -> alpha -> weights per sense and token
shifts, which the ranker's forward pass takes as arguments.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from backpack_rank.models.token_shift import TokenShift
from backpack_rank.senses.policies import Policy, PolicyContext, check_alpha
from backpack_rank.senses.views import IDENTITY, View


class InferenceHook:
    """A policy at one alpha, for one ranker.

    In a ``with`` block, the ranker gives the scores under the policy::

        context = PolicyContext(ranker, tokenizer, [("she", "he"), ("woman", "man")])
        with InferenceHook(context, LowestSenses(), alpha=0.5):
            scores = ranker(batch).scores

    A :class:`~backpack_rank.reranking.pointwise.PointwiseReranker` passes the same :attr:`views` to
    the forward pass.

    Attributes:
        context: the ranker.
        policy: None leaves it unchanged.
        alpha: 1 leaves it unchanged, 0 is all that the policy can do; more than 1 amplifies.

    Raises:
        ValueError: alpha is not a finite number >= 0.
    """

    def __init__(
        self, context: PolicyContext, policy: Policy | None = None, alpha: float = 1.0
    ) -> None:
        self.context = context
        self.policy = policy
        self.alpha = check_alpha(alpha)
        self._handle: RemovableHandle | None = None

    @cached_property
    def views(self) -> tuple[View, ...]:
        """What the ranker is asked for; the ranker unchanged without a policy and at alpha = 1.

        Raises:
            ValueError: the policy does not fit the ranker, for example because it has no senses.
        """
        if self.policy is None or self.alpha == 1:
            return IDENTITY
        try:
            return self.policy.views(self.context, self.alpha)
        except TypeError as error:
            raise ValueError(f"alpha={self.alpha:g}, policy {self.policy.name}: {error}") from error

    @property
    def reads_one_text(self) -> bool:
        """Whether a score is that of the pair's own text under one view."""
        return (
            len(self.views) == 1
            and self.views[0].rewrite is None
            and self.views[0].coefficient == 1
        )

    @property
    def view(self) -> View:
        """The one view of a policy that rewrites no text. Raises ``ValueError`` for other
        policies.
        """
        if not self.reads_one_text:
            name = None if self.policy is None else self.policy.name
            raise ValueError(
                f"policy {name} reads several texts for one score: use a reranker, which adds them "
                "up"
            )
        return self.views[0]

    def __enter__(self) -> InferenceHook:
        view = self.view
        arguments: dict[str, Any] = {}
        if view.sense_weights is not None:
            arguments["sense_weights"] = view.sense_weights
        if view.token_shift is not None:
            arguments["token_shift"] = view.token_shift

        def turn(
            _module: nn.Module, args: tuple, kwargs: dict[str, Any]
        ) -> tuple[tuple, dict[str, Any]]:
            return args, {**kwargs, **arguments}

        self._handle = self.context.ranker.register_forward_pre_hook(turn, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._handle is not None
        self._handle.remove()


def linear_components(shift: TokenShift | None) -> list[tuple[float, TokenShift | None]]:
    """(factor, shift to compute under): the sense vectors under a shift are this sum of others.

    Weights per sense come after the sense vectors and change none of them. Tokens moved in their
    senses alone give vectors linear in alpha: alpha o(1) + (1 - alpha) o(0), because contextual
    weights do not depend on alpha.
    """
    if shift is None or shift.scope != "senses":
        return [(1.0, shift)]
    return [(shift.alpha, None), (1 - shift.alpha, replace(shift, alpha=0.0))]
