"""The mean over renditions: a score that listed words have no influence on.

    s_alpha(q, d) = s_0(q, d) + alpha (s(q, d) - s_0(q, d)),
    s_0(q, d) = mean over groups r of s(r(q), r(d))

with r(x) the rendition of a text for group r (:mod:`backpack_rank.attributes.renditions`), which
depends on the text's canonical form alone. At alpha = 0 two texts with the same canonical form have
the same score, whatever their tokens and lengths, for every ranker and every tokenizer. The method
is new in this project; a mean over the orbit of a swap is a Reynolds operator.

Of a ranker that compares vectors, s_0 is the score of the mean vector of the document's renditions
(:class:`~backpack_rank.models.apart.VectorRanker`): the mean of unit vectors is shorter than they
are, and is made a unit vector again. The query is read as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.attributes.own_renditions import (
    GivenTexts,
    OwnRenditions,
    Writer,
    WrittenTexts,
)
from backpack_rank.attributes.renditions import RELATIONS, Renditions
from backpack_rank.checks import one_of
from backpack_rank.commands import typed_function
from backpack_rank.constructors import FilePath, Length, Name, OneOf, checked, made
from backpack_rank.data.wordings import Wordings
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.views import View

NEUTRAL = "neutral"


@checked("policy")
@dataclass(frozen=True)
class MeanOfRenditions(Policy):
    """Where scores must not depend on an attribute's words, whatever the ranker.

    The score is s_0 + alpha (s - s_0), with s_0 the mean of the scores of a pair's renditions: its
    texts rewritten for each group, such as female.

    >>> policy = MeanOfRenditions.of(Attribute.named("gender"))
    >>> cross_encoder = PolicyContext(ranker=None, tokenizer=None)
    >>> [view.coefficient for view in policy.views(cross_encoder, alpha=0.5)]
    [0.5, 0.25, 0.25]

    Attributes:
        attribute: whose words have no influence at alpha = 0.
        relations: ``keep``: the first class word is written for the group, and words that had the
            same group before have the same group after, the default; ``merge``: all words are
            written for it.
        only: a control: the rendition for this group in place of the mean over groups. It is as
            invariant, and cheaper. ``neutral``: the neutral rendition of ``neutral``.
        wide: also join words by the attribute's wide classes (boy, guy, lad).
        names: also write first names for the group, where they stand as names; those of the query's
            own persons stay. See :mod:`backpack_rank.attributes.first_names`.
        neutral: a third, neutral rendition counts as much as that of each group: "parent" for
            mother and father. Where words without a neutral form stand beside, such as pronouns, it
            is a mean over their groups.
        own: renditions that no word list makes; the options above, but for ``attribute``, are of
            word lists.
    """

    in_words = "Reads a document as written for each group, and takes the mean of the scores."

    attribute: Attribute
    relations: Annotated[str, OneOf(RELATIONS)] = RELATIONS[0]
    only: Name | None = None
    wide: bool = False
    names: bool = False
    neutral: bool = False
    own: OwnRenditions | None = None

    def __post_init__(self) -> None:
        of_lists = {
            "relations": self.relations != RELATIONS[0],
            "only": self.only is not None,
            "wide": self.wide,
            "names": self.names,
            "neutral": self.neutral,
        }
        given = [f"policy.{option}" for option, is_given in of_lists.items() if is_given]
        if self.own is not None and given:
            raise ValueError(
                f"{', '.join(given)}: of renditions by word lists alone; leave it out beside "
                "policy.texts and policy.write"
            )
        if self.neutral and self.attribute.neutral_file is None:
            raise ValueError(
                f"policy.neutral=true: the attribute {self.attribute.name} has no neutral forms; "
                "attribute.neutral names a file of them"
            )
        if self.only is not None:
            known = list(self.renditions.groups)
            if self.neutral:
                known.append(NEUTRAL)
            one_of("policy.only", self.only, known)

    @classmethod
    def of(
        cls,
        attribute: Attribute | Mapping[str, Any],
        relations: Annotated[str, OneOf(RELATIONS)] = RELATIONS[0],
        queries: Annotated[str, OneOf(QUERIES)] = QUERIES[0],
        only: Name | None = None,
        wide: bool = False,
        names: bool = False,
        neutral: bool = False,
        texts: FilePath | None = None,
        write: Name | Writer | None = None,
        groups: Annotated[Sequence[Name], Length(2)] | None = None,
    ) -> MeanOfRenditions:
        """The policy of an attribute, or of the options of a file of ``conf/attribute/``.

        Args:
            attribute, relations, queries, only, wide, names, neutral: attributes of the policy.
            texts: file of renditions of your own
                (:class:`~backpack_rank.attributes.own_renditions.GivenTexts`).
            write: function (text, group) -> text that writes them; by name (``module:function``)
                where the command line has that name.
            groups: that it writes for; None: those of the attribute.

        Raises:
            ValueError: both ``texts`` and ``write``, or ``groups`` without ``write``.
        """
        if not isinstance(attribute, Attribute):
            attribute = made(Attribute, attribute, "policy.attribute")
        if texts is not None and write is not None:
            raise ValueError("policy.texts and policy.write are two sources: leave one of them out")
        if groups is not None and write is None:
            raise ValueError("policy.groups does nothing without policy.write")
        own: OwnRenditions | None = None
        if texts is not None:
            own = GivenTexts(texts)
        if write is not None:
            typed = write if isinstance(write, str) else None
            if isinstance(write, str):
                write = typed_function("policy.write", write)
            own = WrittenTexts(write, groups or attribute.lexicon().group_names, typed)
        return cls(attribute, relations, only, wide, names, neutral, own, queries=queries)

    @property
    def name(self) -> str:
        parts = ["renditions", "own" if self.own is not None else self.relations]
        if self.wide:
            parts.append("wide")
        if self.names:
            parts.append("names")
        if self.neutral and self.only is None:
            parts.append(NEUTRAL)
        if self.only is not None:
            parts.append(self.only)
        return self.named(*parts)

    def needs_senses(self) -> bool:
        return False

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        if getattr(context.ranker, "compares_vectors", False):
            # One vector stands for all renditions.
            together = View(rewrite=RenditionsTogether(self), coefficient=1 - alpha)
            return View(coefficient=alpha), together
        # alpha s + sum over r of (1 - alpha) / R s(r): s_alpha with its terms in another order.
        views = [View(coefficient=alpha)]
        for share, rewriting in self._shares():
            views.append(View(rewrite=rewriting, coefficient=(1 - alpha) * share))
        return tuple(views)

    @property
    def rewritings(self) -> list[Rendition]:
        """The renditions that are averaged."""
        return [rewriting for _, rewriting in self._shares()]

    def _shares(self) -> list[tuple[float, Rendition]]:
        """Each rendition, with its share in the mean; shares add up to 1."""
        groups = self.renditions.groups
        number = len(groups)
        of_groups = [Rendition(self, group) for group in range(number)]
        neutral = [Rendition(self, group, is_neutral=True) for group in range(number)]
        if self.only == NEUTRAL:
            return [(1 / number, rewriting) for rewriting in neutral]
        if self.only is not None:
            return [(1.0, of_groups[groups.index(self.only)])]
        if not self.neutral:
            return [(1 / number, rewriting) for rewriting in of_groups]
        # One member of the class more: neutral, which is a mean over groups by itself.
        members = number + 1
        shares = [(1 / members, rewriting) for rewriting in of_groups]
        shares += [(1 / (members * number), rewriting) for rewriting in neutral]
        return shares

    def wordings(self, document: str, kept_names: Collection[str] = ()) -> str:
        """A document in all renditions, each as often as its share in the mean says.

        Args:
            document: its text, which is given back where no word is written anew.
            kept_names: first names that stay.
        """
        if not self.renditions.moves(document, kept_names):
            return document
        shares = self._shares()
        least = min(share for share, _ in shares)
        texts: list[str] = []
        for share, rewriting in shares:
            written = self.renditions(document, rewriting.group, kept_names, rewriting.is_neutral)
            texts += [written] * round(share / least)
        return Wordings.of(texts)

    @cached_property
    def key(self) -> str:
        """Differs when a document may be written differently, whatever its query."""
        parts = [
            f"{rewriting.group}{rewriting.is_neutral}{share:g}"
            for share, rewriting in self._shares()
        ]
        return f"{self.renditions.key}-{' '.join(parts)}"

    @cached_property
    def renditions(self) -> Renditions | OwnRenditions:
        """Writes texts for a group. Raises as :meth:`Attribute.renditions`."""
        if self.own is not None:
            return self.own
        return self.attribute.renditions(self.relations, wide=self.wide, names=self.names)

    def covers(self, query: str) -> bool:
        """Whether pairs of this query are averaged."""
        return self.queries == "all" or not self.attribute.group_queries(query)


@dataclass(frozen=True, eq=False)
class Rendition:
    """What a view of :class:`MeanOfRenditions` reads in place of a pair.

    Attributes:
        policy: which texts are written, and how.
        group: index of the group that the first class word of a text is written as.
        is_neutral: whether words that have a neutral form are written in it.
    """

    policy: MeanOfRenditions
    group: int
    is_neutral: bool = False

    @cached_property
    def key(self) -> str:
        """Differs when a text may be written differently."""
        kind = f"{NEUTRAL}-{self.group}" if self.is_neutral else f"{self.group}"
        return f"{self.policy.renditions.key}-{self.policy.queries}-{kind}"

    # Equal renditions of two policies, such as of a sweep, are one text to read.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rendition) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, query: str, document: str) -> tuple[str, str]:
        if not self.policy.covers(query):
            return query, document
        write = self.policy.renditions
        kept_names = write.kept_names(query)
        texts = []
        for text in (query, document):
            texts.append(write(text, self.group, kept_names, self.is_neutral))
        return texts[0], texts[1]


@dataclass(frozen=True, eq=False)
class RenditionsTogether:
    """What a view reads in place of a document where a ranker compares vectors: all its renditions.

    The vector of the document is then the mean over them, of length 1 where vectors have it. The
    query keeps its words: whatever it asks for, documents that differ by the attribute alone are
    equal to it at alpha = 0.

    Attributes:
        policy: which texts are written, and how.
    """

    policy: MeanOfRenditions

    @cached_property
    def key(self) -> str:
        """Differs when a text may be written differently."""
        return f"{self.policy.key}-{self.policy.queries}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenditionsTogether) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, query: str, document: str) -> tuple[str, str]:
        policy = self.policy
        if not policy.covers(query):
            return query, document
        return query, policy.wordings(document, policy.renditions.kept_names(query))
