"""What a setting of a sweep is called, and which policies are controls."""

from __future__ import annotations

import re
from dataclasses import dataclass

from backpack_rank.senses.policy_names import is_control


@dataclass(frozen=True)
class Setting:
    """Overrides that tell the jobs of a sweep apart, beside alpha.

    Attributes:
        name: all of them, as they were given, such as ``policy=uniform,data=dl19``; empty where
            only alpha varies.
        policy: what the policy is called, such as ``paired_tokens``; empty where it does not vary.
        rest: the other overrides. Settings with equal ones share the unchanged
            ranker, alpha 1.
    """

    name: str
    policy: str
    rest: str

    @classmethod
    def of(cls, name: str) -> Setting:
        """Read the overrides of a job, joined by commas.

        >>> setting = Setting.of("policy=uniform,data=dl19,+data.test.queries=[1,2]")
        >>> setting.policy, setting.rest
        ('uniform', 'data=dl19,data.test.queries=[1,2]')
        """
        # A comma parts overrides only where a name and "=" follow, as in no list of values.
        policy = []
        others = []
        for override in filter(None, re.split(r",(?=[\w.@/+~-]+=)", name)):
            override = override.lstrip("+")
            if re.match(r"policy[=.@]", override):
                policy.append(override.removeprefix("policy=").removeprefix("policy."))
            else:
                others.append(override)
        return cls(name, " ".join(policy), ",".join(others))

    @property
    def title(self) -> str:
        """The setting as a heading."""
        return ", ".join(filter(None, (self.policy, self.rest)))

    @property
    def is_control(self) -> bool:
        """Whether its policy changes no sense against another, or whichever senses were drawn."""
        return is_control(self.policy)
