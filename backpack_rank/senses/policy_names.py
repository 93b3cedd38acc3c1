"""Policies by name, for ``policy=NAME`` of the command line and ``policy="NAME"`` of Python.

Options of each are those of ``conf/policy/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.checks import one_of
from backpack_rank.constructors import OneOf, checked, made
from backpack_rank.models.rankers import Ranker
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.policies import (
    LowestSenses,
    PairedTokens,
    Policy,
    PolicyContext,
    RandomSenses,
    SoftSenses,
    ThresholdSenses,
    UniformSenses,
)
from backpack_rank.senses.renditions import MeanOfRenditions
from backpack_rank.senses.views import View
from backpack_rank.senses.votes import MostVoted

POLICIES: dict[str, Callable[[Attribute], Policy]] = {
    "lowest_senses": lambda attribute: LowestSenses(),
    "uniform": lambda attribute: UniformSenses(),
    "random_senses": lambda attribute: RandomSenses(),
    "threshold": lambda attribute: ThresholdSenses(quantile=0.25),
    "soft": lambda attribute: SoftSenses(),
    "most_voted": lambda attribute: MostVoted(),
    "paired_tokens": lambda attribute: PairedTokens.of(attribute),
    "renditions": lambda attribute: MeanOfRenditions.of(attribute),
    "erase": lambda attribute: Erase.of(attribute),
}

DEFAULTS = ("lowest_senses", "renditions")
"""The policies where no policy is named: for a ranker with senses, and for any other."""


def named_policy(name: str, attribute: Attribute) -> Policy:
    """Use this to make a policy from its name, with the options of ``conf/policy/``.

    >>> named_policy("lowest_senses", Attribute.named("gender"))
    LowestSenses(count=None)

    Raises:
        ValueError: there is no such policy; lists those that there are.
    """
    one_of("policy", name, POLICIES, ", or a Policy of your own")
    return POLICIES[name](attribute)


def default_name(ranker: Ranker) -> str:
    """Use this for the name of the policy that a ranker gets where no policy is named."""
    with_senses, without_senses = DEFAULTS
    return with_senses if ranker.has_senses else without_senses


@checked("policy")
@dataclass(frozen=True)
class DefaultPolicy(Policy):
    """Use this where nobody named a policy: it chooses one that fits the ranker.

    For a ranker with senses that is the paper's rule, for any other it is renditions. A reranker
    asks :meth:`of_ranker` and uses the policy that it gets.

    Attributes:
        attribute: whose words the policy is about.
    """

    attribute: Attribute

    @classmethod
    def of(
        cls,
        attribute: Attribute | Mapping[str, Any],
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
    ) -> DefaultPolicy:
        """Use this for an attribute, or for the options of a file of ``conf/attribute/``."""
        if not isinstance(attribute, Attribute):
            attribute = made(Attribute, attribute, "policy.attribute")
        return cls(attribute, queries=queries)

    @property
    def name(self) -> str:
        return self.named("default")

    def of_ranker(self, ranker: Ranker) -> Policy:
        """The policy for a ranker."""
        policy = named_policy(default_name(ranker), self.attribute)
        return replace(policy, queries=self.queries)

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        return self.of_ranker(context.ranker).views(context, alpha)

    def needs_senses(self) -> bool:
        return False
