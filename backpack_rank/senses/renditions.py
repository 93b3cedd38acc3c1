"""The mean over renditions: a score that listed words have no influence on.

    s_alpha(q, d) = s_0(q, d) + alpha (s(q, d) - s_0(q, d)),
    s_0(q, d) = mean over groups r of s(r(q), r(d))

with r(x) the rendition of a text for group r (:mod:`backpack_rank.attributes.renditions`), which
depends on the text's canonical form alone. At alpha = 0 two texts with the same canonical form have
the same score, whatever their tokens and lengths, for every ranker and every tokenizer. The method
is new in this project; a mean over the orbit of a swap is a Reynolds operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.renditions import RELATIONS, Renditions
from backpack_rank.checks import one_of
from backpack_rank.constructors import Name, OneOf, checked, made
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.views import View

QUERIES = ("neutral_only", "all")
"""``neutral_only``: a query with class words is scored unchanged. ``all``: it takes the rendition
of its documents."""


@checked("policy")
@dataclass(frozen=True)
class MeanOfRenditions(Policy):
    """Use this where scores must not depend on an attribute's words, whatever the ranker.

    The score is s_0 + alpha (s - s_0), with s_0 the mean of the scores of a pair's renditions: its
    texts rewritten for each group, such as female.

    >>> policy = MeanOfRenditions.of(Attribute.named("gender"))
    >>> [view.coefficient for view in policy.views(None, alpha=0.5)]
    [0.5, 0.25, 0.25]

    Attributes:
        attribute: whose words have no influence at alpha = 0.
        relations: ``keep``: the first class word is written for the group, and words that had the
            same group before have the same group after; ``merge``: all words are written for it.
        queries: one of :data:`QUERIES`.
        only: a control: the rendition for this group in place of the mean over groups. It is as
            invariant, and cheaper.
        wide: also join words by the attribute's wide classes (boy, guy, lad).
    """

    attribute: Attribute
    relations: Annotated[str, OneOf(RELATIONS)] = RELATIONS[0]
    queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0]
    only: Name | None = None
    wide: bool = False

    def __post_init__(self) -> None:
        if self.only is not None:
            one_of("policy.only", self.only, self.renditions.groups)

    @classmethod
    def of(
        cls,
        attribute: Attribute | Mapping[str, Any],
        relations: Annotated[str, OneOf(RELATIONS)] = RELATIONS[0],
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
        only: Name | None = None,
        wide: bool = False,
    ) -> MeanOfRenditions:
        """Use this for an attribute, or for the options of a file of ``conf/attribute/``."""
        if not isinstance(attribute, Attribute):
            attribute = made(Attribute, attribute, "policy.attribute")
        return cls(attribute, relations, queries, only, wide)

    @property
    def name(self) -> str:
        parts = ["renditions", self.relations]
        if self.queries == "all":
            parts.append("queries")
        if self.wide:
            parts.append("wide")
        if self.only is not None:
            parts.append(self.only)
        return "_".join(parts)

    def needs_senses(self) -> bool:
        return False

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        # alpha s + sum over r of (1 - alpha) / R s(r): s_alpha with its terms in another order.
        rewritings = self.rewritings
        views = [View(coefficient=alpha)]
        for rewriting in rewritings:
            views.append(View(rewrite=rewriting, coefficient=(1 - alpha) / len(rewritings)))
        return tuple(views)

    @property
    def rewritings(self) -> list[Rendition]:
        """The renditions that are averaged."""
        groups = self.renditions.groups
        if self.only is not None:
            return [Rendition(self, groups.index(self.only))]
        return [Rendition(self, group) for group in range(len(groups))]

    @cached_property
    def renditions(self) -> Renditions:
        """Writes texts for a group. Raises as :meth:`Attribute.renditions`."""
        return self.attribute.renditions(self.relations, wide=self.wide)

    def covers(self, query: str) -> bool:
        """Whether pairs of this query are averaged."""
        # ``moved`` is the number of class words in the query.
        return self.queries == "all" or not self.renditions.canonical(query).moved


@dataclass(frozen=True, eq=False)
class Rendition:
    """What a view of :class:`MeanOfRenditions` reads in place of a pair.

    Attributes:
        policy: which texts are written, and how.
        group: index of the group that the first class word of a text is written as.
    """

    policy: MeanOfRenditions
    group: int

    @cached_property
    def key(self) -> str:
        """Differs when a text may be written differently."""
        return f"{self.policy.renditions.key}-{self.policy.queries}-{self.group}"

    # Equal renditions of two policies, such as of a sweep, are one text to read.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rendition) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, query: str, document: str) -> tuple[str, str]:
        if not self.policy.covers(query):
            return query, document
        write = self.policy.renditions
        return write(query, self.group), write(document, self.group)
