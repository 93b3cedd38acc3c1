"""Policies by name, as ``policy=NAME`` and ``policy="NAME"`` take them; options as in ``conf/policy/``."""

from __future__ import annotations

from collections.abc import Callable

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.checks import one_of
from backpack_rank.senses.policies import (
    CounterfactualPolicy,
    LowestSenses,
    PairedTokens,
    Policy,
    RandomSenses,
    SoftSenses,
    SpecialisedSenses,
    ThresholdSenses,
    UniformSenses,
)
from backpack_rank.senses.renditions import MeanOfRenditions

POLICIES: dict[str, Callable[[Attribute], Policy]] = {
    "lowest_senses": lambda attribute: LowestSenses(),
    "uniform": lambda attribute: UniformSenses(),
    "random_senses": lambda attribute: RandomSenses(),
    "threshold": lambda attribute: ThresholdSenses(quantile=0.25),
    "soft": lambda attribute: SoftSenses(),
    "counterfactual": lambda attribute: CounterfactualPolicy(),
    "specialised": lambda attribute: SpecialisedSenses(attribute.name),
    "paired_tokens": lambda attribute: PairedTokens.of(attribute),
    "paired_tokens_senses": lambda attribute: PairedTokens.of(attribute, scope="senses"),
    "paired_tokens_weights": lambda attribute: PairedTokens.of(attribute, scope="weights"),
    "paired_tokens_wide": lambda attribute: PairedTokens.of(attribute, wide=True),
    "renditions": lambda attribute: MeanOfRenditions.of(attribute),
    "renditions_merge": lambda attribute: MeanOfRenditions.of(attribute, relations="merge"),
}
DEFAULT_POLICY = "lowest_senses"
"""The paper's rule, where an alpha is given without a policy."""


def named_policy(name: str, attribute: Attribute) -> Policy:
    """The policy of that name. Raises ``ValueError`` where there is none; lists those that there are."""
    one_of("policy", name, POLICIES, ", or a Policy of your own")
    return POLICIES[name](attribute)
