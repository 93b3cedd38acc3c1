"""The inference hook: a ranker under a policy at one alpha, without changing any of its weights.

Paired words give the sensitivity of the senses, from which the policy computes weights per sense;
or the policy moves tokens. The ranker's forward pass takes either as arguments.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Any

from torch import nn

from backpack_rank.models.pooled_map import mapped_vectors
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.senses.policies import Policy, PolicyContext, check_alpha
from backpack_rank.senses.views import IDENTITY, View


class InferenceHook:
    """Scores with a ranker of your own code under a policy at one alpha.

    In a ``with`` block, the ranker gives the scores under the policy::

        context = PolicyContext(ranker, tokenizer, [("she", "he"), ("woman", "man")])
        with InferenceHook(context, LowestSenses(), alpha=0.5):
            scores = ranker(batch).scores

    A :class:`~backpack_rank.reranking.pointwise.PointwiseReranker` passes the same :attr:`views` to
    the forward pass. It leaves out queries that ask for a group; in a ``with`` block nobody knows
    which query a batch is of, and all are scored under the policy.

    Attributes:
        context: the ranker, its tokenizer, and word pairs.
        policy: None leaves the ranker unchanged.
        alpha: 1 leaves the ranker unchanged, 0 is all that the policy can do; more than 1
            amplifies.

    Raises:
        ValueError: alpha is not a finite number >= 0.
    """

    def __init__(
        self, context: PolicyContext, policy: Policy | None = None, alpha: float = 1.0
    ) -> None:
        self.context = context
        self.policy = policy
        self.alpha = check_alpha(alpha)
        self._in_use = ExitStack()

    @cached_property
    def views(self) -> tuple[View, ...]:
        """What the ranker is asked for; it is unchanged without a policy and at alpha = 1.

        Raises:
            ValueError: the policy does not fit the ranker, for example because it has no senses.
        """
        if self.policy is None or self.alpha == 1:
            return IDENTITY
        try:
            views = self.policy.views(self.context, self.alpha)
        except TypeError as error:
            raise ValueError(f"alpha={self.alpha:g}, policy {self.policy.name}: {error}") from error
        if self.policy.queries == "all" or self.context.group_queries is None:
            return views
        # One rule for all policies: what a query asks for stays.
        return tuple(replace(view, leaves_out=self.context.group_queries) for view in views)

    def leaves_out(self, query: str) -> bool:
        """Whether the pairs of a query are scored as if there were no dial.

        For who asks for something else than scores of texts, which the reading plan gives.
        """
        asks_for_a_group = self.views[0].leaves_out
        return asks_for_a_group is not None and asks_for_a_group(query)

    @property
    def reads_one_text(self) -> bool:
        """True where one pass over a pair's original texts gives its score, without a sum."""
        if len(self.views) != 1:
            return False
        view = self.views[0]
        return view.rewrite is None and view.coefficient == 1

    @property
    def view(self) -> View:
        """The one view of a policy that rewrites no text.

        Raises:
            ValueError: the policy has several views, or rewrites texts.
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
        # What the view does not set stays as the ranker's caller gave it.
        view_arguments: dict[str, Any] = {}
        if view.sense_weights is not None:
            view_arguments["sense_weights"] = view.sense_weights
        if view.token_shift is not None:
            view_arguments["token_shift"] = view.token_shift

        def add_view(
            _module: nn.Module, args: tuple, kwargs: dict[str, Any]
        ) -> tuple[tuple, dict[str, Any]]:
            return args, {**kwargs, **view_arguments}

        ranker = self.context.ranker
        handle = ranker.register_forward_pre_hook(add_view, with_kwargs=True)
        self._in_use.callback(handle.remove)
        self._in_use.enter_context(mapped_vectors(ranker, view.pooled_map))
        return self

    def __exit__(self, *_: object) -> None:
        self._in_use.close()


def linear_components(shift: TokenShift | None) -> list[tuple[float, TokenShift | None]]:
    """Get sense vectors under many alphas from few passes of the network.

    The sense vectors under a shift are the sum of factor times the sense vectors under the
    component. Tokens that move in their senses alone give vectors linear in alpha,

        o(alpha) = alpha o(1) + (1 - alpha) o(0),

    because contextual weights do not depend on alpha. Weights per sense come after the sense
    vectors and change none of them.

    Returns:
        (factor, shift to compute under) of each component; a shift of None moves nothing.
    """
    if shift is None or shift.scope != "senses":
        return [(1.0, shift)]
    # o(1) moves nothing, so every shift of senses shares it.
    return [(shift.alpha, None), (1 - shift.alpha, replace(shift, alpha=0.0))]
