"""The counterfactual of a text: every word of a pair replaced by its partner, all else unchanged.

    >>> from backpack_rank.attributes.attribute import Attribute
    >>> swap = Attribute.named("gender").swap()
    >>> swap("His wife saw her father.").text
    'Her husband saw his mother.'

Swapping by word lists goes back to Zhao et al. (2018) and Lu et al. (2020). English pronouns need
more than a list: "her" is "him" in "I saw her." and "his" in "her book", and "his" is "her" in "his
book" and "hers" in "a friend of his". The next word decides, with closed lists of words that cannot
begin a noun phrase. No tagger is needed, and the lists make mistakes where the next word is both
("saw her return").
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from backpack_rank.attributes.first_names import FirstNames
from backpack_rank.attributes.lexicon import Lexicon, WordPairs
from backpack_rank.data.words import Word, composed, readable, words_of

POSSESSIVES = frozenset({"him", "his", "her", "hers"})
"""Forms of the English third person that no pair list can tell apart: "her" is "him" and "his"."""


@dataclass(frozen=True)
class Swapped:
    """A text after the swap, with counts: :class:`LexiconSwap` gives it.

    >>> Swapped("He left.", swaps=1, names=0).text
    'He left.'

    Attributes:
        text: the counterfactual.
        swaps: words that were replaced.
        names: capitalised first names of the list that were left alone.
    """

    text: str
    swaps: int
    names: int


class LexiconSwap:
    """Writes a text as if it were about another group.

    Every word of the pairs is replaced by its partner, in both directions:

        >>> from backpack_rank.attributes.lexicon import load_pairs
        >>> swap = LexiconSwap(load_pairs("gender_pairs", ("female", "male")))
        >>> swap("The king saw her.")
        Swapped(text='The queen saw him.', swaps=2, names=0)

    Kept: case (lower, Capitalised, UPPER; anything else becomes lower-cased), a possessive 's,
    hyphens and the other parts of a compound ("Mother-in-law's" becomes "Father-in-law's"), and
    every other character. An article is not adapted: "an old man" becomes "an young man" if old and
    young are a pair. A text of which a word is replaced comes out composed
    (:func:`~backpack_rank.data.words.composed`); any other comes out unchanged.

    The pronouns him, his, her and hers follow the rules of this module if all of them are in the
    pairs. The titles "Ms" and "Miss" are replaced only if they are capitalised and a capitalised
    word follows, because "ms" is a unit and "miss" a verb.
    """

    def __init__(
        self,
        pairs: WordPairs,
        names: Lexicon | None = None,
        one_way: Mapping[str, str] | None = None,
        swapped_names: FirstNames | None = None,
    ) -> None:
        """
        Args:
            pairs: words and their partners.
            names: first names. A capitalised word of the list is left alone and counted, also if it
                is a word of the pairs.
            one_way: further words and their partners, lower-cased, that nothing is replaced by in
                return ("ms" -> "mr"); see :func:`~backpack_rank.attributes.lexicon.load_one_way`.
            swapped_names: first names that are replaced where they stand as names, in place of
                ``names``.

        Raises:
            ValueError: a word of ``one_way`` is in the pairs.
        """
        self.pairs = pairs
        self.one_way = dict(one_way or {})
        self._partner: dict[str, str] = {}
        for first, second in pairs.pairs:
            self._partner[first] = second
            self._partner[second] = first
        self.pronouns = POSSESSIVES.issubset(self._partner)
        for word, partner in self.one_way.items():
            if word in self._partner:
                raise ValueError(
                    f"{word!r} is in the word pairs {pairs.name!r} and again among the one-way "
                    "words"
                )
            self._partner[word] = partner
        self.swapped_names = swapped_names
        if swapped_names is not None:
            self._partner |= swapped_names.partner
        self._names = frozenset() if names is None else names.words

    @property
    def words(self) -> frozenset[str]:
        """The words that are replaced."""
        return frozenset(self._partner)

    def __call__(self, text: str, kept_names: Collection[str] = ()) -> Swapped:
        """The counterfactual of one text.

        Args:
            text: the text.
            kept_names: lower-cased first names that stay, of those that would be replaced.
        """
        original = composed(text)
        pieces: list[str] = []
        copied = swaps = 0
        for match in self.matches(original, kept_names=kept_names):
            word = match.group()
            lower = word.lower()
            if self.pronouns and lower in POSSESSIVES:
                partner = _pronoun(lower, word, original, match)
            else:
                partner = self._partner[lower]
            pieces.append(original[copied : match.start()])
            pieces.append(in_case(case_of(word), partner))
            copied = match.end()
            swaps += 1
        names = len(list(self.names(original, kept_names)))
        if not swaps:
            # The given text and not the composed one: a text without listed words stays the same.
            return Swapped(text, 0, names)
        pieces.append(original[copied:])
        return Swapped("".join(pieces), swaps, names)

    def matches(
        self,
        text: str,
        words: Collection[str] | None = None,
        kept_names: Collection[str] = (),
    ) -> Iterator[Word]:
        """The words to replace in a composed text, in its order.

        Args:
            text: a composed text.
            words: lower-cased words to find by the same rules in place of those of the swap.
            kept_names: lower-cased first names that stay.
        """
        if words is None:
            words = self._partner
        # Most texts have none of the words, and findall is much faster than a match for each word.
        if not any(word in words for word in _WORD.findall(readable(text).lower())):
            return
        starts_of_names: set[int] = set()
        if self.swapped_names is not None:
            for match in self.swapped_names.matches(text):
                starts_of_names.add(match.start())
        for match in words_of(text):
            word = match.group()
            lower = word.lower()
            if lower not in words or self._is_name(word):
                continue
            if self.swapped_names is not None and lower in self.swapped_names.partner:
                if match.start() in starts_of_names and lower not in kept_names:
                    yield match
                continue
            if lower in _TITLES:
                before_name = _NAME_FOLLOWS.match(_following(text, match.end())) is not None
                if not _is_capitalised(word) or not before_name:
                    continue
            yield match

    def names(self, text: str, kept_names: Collection[str] = ()) -> Iterator[Word]:
        """The first names of a composed text that are left alone."""
        if self.swapped_names is not None:
            for match in self.swapped_names.matches(text):
                if match.group().lower() in kept_names:
                    yield match
            return
        if not self._names or self._names.isdisjoint(_WORD.findall(readable(text).lower())):
            return
        for match in words_of(text):
            if self._is_name(match.group()):
                yield match

    def _is_name(self, word: str) -> bool:
        return word[0].isupper() and word.lower() in self._names


_WORD = re.compile(r"[^\W_]+")
_TITLES = frozenset({"ms", "miss"})
# White space, then a letter that is no lower-case one: "Ms. Smith", "Miss O'Hara".
_NAME_FOLLOWS = re.compile(r"\.?\s+[^\W\d_a-z]")
# An editor's bracket, white space, an opening quote, bracket or currency sign; then the next word,
# a hyphen that makes it part of a compound, and whether "of" or "than" follows.
_NEXT = re.compile(
    r"\]?\s+(?:``|[\"'“\u2018«(\[$£€#])?"
    r"(?P<word>[^\W_]+)(?P<compound>-[^\W_])?(?P<of_or_than>\s+(?:of|than)\b)?"
)
_SLASH_HER = re.compile(r"\s?/\s?her\b", re.IGNORECASE)
# "his/her", "him/her" and the like: what stands behind both decides, and one tells of the other.
_SLASHED = re.compile(r"\s?/\s?(him|his|hers?)\b", re.IGNORECASE)
_SLASHED_BEFORE = re.compile(r"(?<![^\W_])(him|his)\s?/\s?$", re.IGNORECASE)
_LOOK_AHEAD = 200
"""Characters behind a word that are looked at, such as white space and the next words."""

# Words that cannot begin a noun phrase after a determiner, so that "her" before them is an object:
# "saw her and left".
_CLOSED_WORDS = """
about above across after against along alongside among amongst amid around as at because before
behind below beneath beside besides between beyond but by despite during except following for from
if in including inside into like near nor of off on onto opposite or and out outside over per
regarding since so than that though although through throughout till to toward towards under
underneath unless unlike until unto up upon via when whenever where whereas wherever whether which
while whilst who whom whose why how what whatever with within without
a an the this these those another any each either neither both all some such several
i you he she it we they me us them him her himself herself itself myself yourself themselves mine
yours hers ours theirs my your our their its
am is are was were be been has had have having do does did would shall should can could may might
must cannot
isn wasn aren weren hasn hadn haven doesn didn don won wouldn shouldn couldn
again ago alone also altogether always anymore anyway apart aside away directly down easily else
ever everywhere forever further hence here however immediately indeed instead just maybe merely
moreover never nevertheless nonetheless not often once perhaps personally please quickly rather
really regularly repeatedly simply slowly sometimes somewhere soon still straight suddenly then
there thereafter therefore thereby thus today together tomorrow tonight too twice unfortunately
usually well yesterday yet
appear become becoming believe come cope die do doing feel get go going keep know leave make realise
realize see seem sing take think understand want goodbye pregnant alive asleep unconscious
"""
# "his" stands before its noun nearly always; only what cannot come between them makes it "hers".
# "And" and "or" are not among it: "his and her children", "his or her age".
_CLOSED_WORDS_AFTER_HIS = """
about after against among as at because before but by during for from if in into nor of on onto over
regarding since so such than that though through to toward towards under unless until upon when
where whereas which while who whom whose with within without a an the this these those i you he she
it we they me us them him
am is are was were be been has had have having do does did would shall should can could may must
cannot
isn wasn aren weren hasn hadn haven doesn didn don won wouldn shouldn couldn alone also too not
"""
_CLOSED = frozenset(_CLOSED_WORDS.split())
_CLOSED_AFTER_HIS = frozenset(_CLOSED_WORDS_AFTER_HIS.split())
_BEFORE_OF_OR_THAN = frozenset({"one", "some", "much", "many", "most", "more", "less"})


def _following(text: str, end: int) -> str:
    """What can be read directly behind a place of a text."""
    return readable(text[end : end + _LOOK_AHEAD])


def _pronoun(lower: str, word: str, text: str, match: Word) -> str:
    """Partner of him, his, her or hers.

    Args:
        lower: the pronoun, lower-cased.
        word: the pronoun as it is written.
        text: the text that it stands in.
        match: where.
    """
    end = match.end()
    if lower == "him":
        return "her"
    if lower == "hers":
        return "his"
    if lower == "her":
        beside = _SLASHED.match(_following(text, end)) or _SLASHED_BEFORE.search(
            readable(text[max(0, match.start() - 8) : match.start()])
        )
        if beside is not None and beside[1].lower() != "her":
            return "him" if beside[1].lower() == "him" else "his"
        return "his" if _is_before_noun(_CLOSED, text, end) else "him"
    if _is_before_title(word, text, end):
        return "her"
    if _is_before_noun(_CLOSED_AFTER_HIS, text, end):
        return "her"
    if _SLASH_HER.match(_following(text, end)) is not None:
        return "her"
    return "hers"


def _is_before_title(his: str, text: str, end: int) -> bool:
    """Whether a title follows, as in "his The Time Machine", which may begin with a closed word."""
    # After "His" or "HIS" a capital says nothing: all words of the text may have one.
    if his != "his":
        return False
    following = _NEXT.match(_following(text, end))
    if following is None:
        return False
    return _is_capitalised(following["word"]) and following["word"] != "I"


def _is_before_noun(closed: frozenset[str], text: str, end: int) -> bool:
    """Whether a noun phrase can begin with the word behind a place in the text."""
    behind = _following(text, end)
    slashed = _SLASHED.match(behind)
    following = _NEXT.match(behind, 0 if slashed is None else slashed.end())
    if following is None:
        return False
    next_word = following["word"].lower()
    # "gave her one of them", "needs her more than"
    if following["of_or_than"] and next_word in _BEFORE_OF_OR_THAN:
        return False
    # A compound is no closed word: "her in-laws".
    return next_word not in closed or following["compound"] is not None


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and (len(word) == 1 or word[1:].islower())


def case_of(word: str) -> str:
    """Write a word in the case of another: ``upper``, ``capitalised`` or ``lower``.

    >>> case_of("HER"), case_of("Her"), case_of("hEr")
    ('upper', 'capitalised', 'lower')
    """
    if len(word) > 1 and word.isupper():
        return "upper"
    return "capitalised" if _is_capitalised(word) else "lower"


def in_case(case: str, word: str) -> str:
    """Write a lower-cased word in a case of :func:`case_of`.

    >>> in_case(case_of("Her"), "his")
    'His'
    """
    if case == "upper":
        return word.upper()
    if case == "capitalised":
        return word[0].upper() + word[1:]
    return word


def is_possessive(text: str, end: int) -> bool:
    """Whether a "her" is possessive ("her book") and no object ("saw her").

    >>> is_possessive("her book", 3), is_possessive("saw her and left", 7)
    (True, False)

    Args:
        text: the text.
        end: place behind the "her".
    """
    # "her/her book": the noun stands behind the last of them.
    while (slash := _SLASH_HER.match(text, end)) is not None:
        end = slash.end()
    return _is_before_noun(_CLOSED, text, end)
