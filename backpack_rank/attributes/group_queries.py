"""Queries that ask for a group, such as "women's shelters near me" or "signs of early menopause".

What such a query asks for, a dial would take away. So one rule holds for all policies, for training
and for measures: a query with a word of a group, or with a need that one group has, is read and
scored as if there were no dial. All others are *neutral*.
"""

from __future__ import annotations

from dataclasses import dataclass

from backpack_rank.data.collection import Queries
from backpack_rank.data.words import word_tokens

QUERIES = ("neutral_only", "all")
"""Which queries the dial acts on: the neutral ones, or those that ask for a group too."""


@dataclass(frozen=True)
class GroupQueries:
    """Tells which queries ask for a group; an attribute makes it.

    >>> from backpack_rank.attributes.attribute import Attribute
    >>> asks = Attribute.named("gender").group_queries
    >>> asks("first woman in space"), asks("vasectomy recovery"), asks("who can rewire a house")
    (True, True, False)

    Attributes:
        words: lower-cased words of groups, in all their classes and lists, and of needs.
    """

    words: frozenset[str]

    def __call__(self, query: str) -> bool:
        """Whether a query has one of the words."""
        return not self.words.isdisjoint(word_tokens(query))

    def neutral(self, queries: Queries) -> Queries:
        """The queries that ask for no group, in their order."""
        return {query_id: text for query_id, text in queries.items() if not self(text)}
