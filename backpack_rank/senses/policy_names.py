"""Policies by name, for ``policy=NAME`` of the command line and ``policy="NAME"`` of Python.

Options of each are those of ``conf/policy/``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.checks import one_of
from backpack_rank.constructors import OneOf, checked, made
from backpack_rank.files import read_yaml, resource_folder
from backpack_rank.models.rankers import Ranker
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.views import View

DEFAULTS = ("lowest_senses", "renditions")
"""The policies where no policy is named: for a ranker with senses, and for any other."""
_FIRST = ("lowest_senses", "uniform", "random_senses", "threshold", "soft", "most_voted")
"""In lists: those of senses before all others."""
_CHOOSES = "default"
"""A name that chooses a policy, and is none itself."""


@dataclass(frozen=True)
class PolicyFile:
    """A policy of ``conf/policy/``: called with an attribute, it gives the policy of its options.

    >>> POLICIES["uniform"](Attribute.named("gender"))
    UniformSenses()

    Attributes:
        path: of the file, which names the class.
    """

    path: Path

    @cached_property
    def options(self) -> dict[str, Any]:
        """What the file says, as it stands there."""
        options: dict[str, Any] = read_yaml(self.path)
        return options

    @cached_property
    def kind(self) -> type[Policy]:
        """The class."""
        module, _, name = self.options["_target_"].removesuffix(".of").rpartition(".")
        kind: type[Policy] = getattr(import_module(module), name)
        return kind

    @property
    def in_words(self) -> str:
        """What it does, for everybody; of a class that does not say, the file's first comment."""
        if self.kind.in_words:
            return self.kind.in_words
        first_line = self.path.read_text(encoding="utf-8").partition("\n")[0]
        sentence, _, _ = first_line.partition(";")
        return f"{sentence.lstrip('# ').rstrip('.')}." if first_line.startswith("#") else ""

    @property
    def is_complete(self) -> bool:
        """Whether it needs no option: weights by hand need values."""
        return "???" not in self.options.values()

    def __call__(self, attribute: Attribute) -> Policy:
        # What is about an attribute's words has a constructor that takes the attribute.
        make: Callable[..., Policy] = getattr(self.kind, "of", self.kind)
        taken = signature(make).parameters
        options: dict[str, Any] = {"attribute": attribute} if "attribute" in taken else {}
        for name, value in self.options.items():
            if name in taken and not (isinstance(value, str) and "${" in value):
                options[name] = value
        return make(**options)


def policies_in(folder: Path) -> dict[str, PolicyFile]:
    """The policies of a folder such as ``conf/policy/`` that can be named without an option."""
    files = {}
    for path in sorted(folder.glob("*.yaml")):
        policy = PolicyFile(path)
        if path.stem != _CHOOSES and policy.is_complete:
            files[path.stem] = policy
    first = {name: files.pop(name) for name in _FIRST if name in files}
    return first | files


POLICIES = policies_in(resource_folder("conf") / "policy")
"""The policies by name; one that is put beside them there is known everywhere."""


def is_control(policy: str) -> bool:
    """Whether a policy is one to compare others with, which its class says.

    >>> is_control("random_senses seed=3"), is_control("random_2_senses_seed_3")
    (True, True)
    >>> is_control("erase fit=random"), is_control("erase"), is_control("random_walk")
    (True, False, False)

    Args:
        policy: its name with the options that a sweep varies, or the name that results have.
    """
    name, *options = policy.split() or [""]
    if name in POLICIES:
        return POLICIES[name].kind.is_control_under(options)
    # Results have the name of a policy as it acted, such as random_2_senses_seed_3.
    shown = _without_numbers(name)
    for file in POLICIES.values():
        if file.kind.is_control and _without_numbers(file(Attribute.named("gender")).name) == shown:
            return True
    return False


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "", name.removesuffix("_all_queries"))


def named_policy(name: str, attribute: Attribute) -> Policy:
    """Make a policy from its name, with the options of ``conf/policy/``.

    >>> named_policy("lowest_senses", Attribute.named("gender"))
    LowestSenses(count=None)

    Raises:
        ValueError: there is no such policy; lists those that there are.
    """
    one_of("policy", name, POLICIES, ", or a Policy of your own")
    return POLICIES[name](attribute)


def default_name(ranker: Ranker) -> str:
    """The name of the policy that a ranker gets where no policy is named."""
    with_senses, without_senses = DEFAULTS
    return with_senses if ranker.has_senses else without_senses


@checked("policy")
@dataclass(frozen=True)
class DefaultPolicy(Policy):
    """Where nobody named a policy: it chooses one that fits the ranker.

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
        """An attribute, or for the options of a file of ``conf/attribute/``."""
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
