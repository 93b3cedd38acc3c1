"""First names where they stand as names: for swaps and renditions that replace names too.

    >>> names = FirstNames.of("gender_names")
    >>> [match.group() for match in names.matches("James met Mary at James Madison University.")]
    ['James', 'Mary']

A name is replaced by its partner, a name of the other group that is about as frequent: the n-th
most frequent female name and the n-th most frequent male one. The partner's partner is the name
itself.

The rule. A listed name stands as a name where

1. it is capitalised ("Mary"), or in capitals beside another word in capitals ("MARY JONES") and
   marked ``clear``;
2. no word of a place stands before it ("Lake Charles", "St. John", "the James");
3. none of the capitalised words behind it is one of a place, a building, an organisation or an
   event ("James Madison University", "Kelly Park"), and no chapter and verse follows ("John 3:16");
4. it is not a surname. With a capitalised word behind it ("Sarah Jessica Parker") it is none. With
   none behind it, it is one after another name, after a title that goes with surnames
   ("Dr. Thomas") and after any other capitalised word ("Elton John"), but for those that begin
   sentences and clauses ("When Alice");
5. if it is marked as a word, a place or a month ("Will", "Virginia", "April"), there is more: a
   title that goes with first names stands before it ("Queen Victoria"), or a capitalised word
   behind it ("Virginia Woolf") while it neither begins a sentence, nor follows a capitalised word
   ("Buddy Holly Promo") or a preposition of place ("in Austin").

Names that many women and many men bear (marked ``shared``) are never replaced.

Whether a word stands as a name does not depend on the group of any listed name, so the same words
are replaced in a text and in its swap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from backpack_rank.attributes.lexicon import Lexicon, find_lexicon
from backpack_rank.attributes.word_files import WordFile
from backpack_rank.checks import one_of
from backpack_rank.data.words import Word, readable, word_tokens, words_of

CLEAR, SHARED = "clear", "shared"
MARKS = (CLEAR, SHARED, "word", "place", "month")
_LOOK_AHEAD = 3
"""Capitalised words behind a name that are looked at for a word of a place."""
_LOOK_BACK = 30
"""Characters before a name in which the word before it is looked for."""

_SURNAME_TITLES = frozenset(
    """
    captain chancellor coach colonel congressman congresswoman dr general governor judge
    justice mayor minister miss mr mrs ms officer president prof professor secretary senator
    sergeant
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
"""Titles of which the word behind them is mostly a surname."""
_NAME_TITLES = frozenset(
    """
    aunt brother emperor empress father grandfather grandmother king mother pope prince
    princess queen sister uncle
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
"""Titles that stand before first names."""
_BEFORE_PLACES = frozenset(
    """
    camp cape cyclone fort ft house hurricane lake mount mt point port saint san santa st
    storm the
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
_BEHIND_PLACES = frozenset(
    """
    abbey academy act airport arena association ave avenue award awards bank bay beach blvd
    boulevard bowl bridge building cathedral catholic cemetery center centre chapel church
    circus city clinic co college company conventions corp corporation county creek cup day
    disease district drive effect empire falls foundation garden gardens group hall harbor
    highway hospital hotel inc incorporated inn institute island islands lake law library
    limited llc ltd mission mountain mountains museum observatory parish park port prize
    province rd republic resort restaurant river road scale school show society springs
    stadium state states station street syndrome tech territory test theater theatre tower
    town township trust university valley village
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
_PLACE_PREPOSITIONS = frozenset(
    """
    across around at during from in inside into near of on outside since through to until
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
_OPENERS = frozenset(
    """
    a after although an and as at because before both but by can could did do does for from
    had has have he her his how i if in is it its like of on once or said says she since so
    than that then there they this though to until was we were what when where which while who
    why with would yet you your
    """.split()  # noqa: SIM905  a list in quotes is longer than it says
)
"""Words that may be capitalised before a first name without being a part of it."""

_WORD = re.compile(r"[^\W_]+")
_BEFORE = re.compile(r"([^\W\d_]+)\.?[ \u00a0]$")
_NEXT = re.compile(r"(?:[ \u00a0]|-)(?=[^\W\d_])")
_INITIAL = re.compile(r"[ \u00a0][^\W\d_]\.(?=[ \u00a0])")
_PARTICLE = re.compile(r"[ \u00a0](?:[Dd]e|[Vv]on|[Vv]an|[Dd]u|[Ll]a)(?=[ \u00a0])")
_VERSE = re.compile(r"[ \u00a0]\d+:\d")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\"'\u201c\u2018(\[•*|-]\s*|\n\s*)$")


@dataclass(frozen=True)
class FirstNames:
    """Finds first names and replaces each by one of the other group.

    The head of this module has an example, and the rule.

    Attributes:
        name: of the file.
        sides: the two groups.
        partner: of every name that is replaced, lower-cased; an involution.
        group_of: group of each of these.
        marks: mark of every listed name, one of :data:`MARKS`.
    """

    name: str
    sides: tuple[str, str]
    partner: Mapping[str, str]
    group_of: Mapping[str, str]
    marks: Mapping[str, str]

    @classmethod
    def of(
        cls,
        path: str | Path,
        sides: tuple[str, str] = ("female", "male"),
        but: Collection[str] = (),
    ) -> FirstNames:
        """Read names from a CSV file, the most frequent of a group first.

        Args:
            path: a file, or a name in ``lexicons/``, with the columns ``word`` and ``group`` and
                perhaps ``share``, ``other_share`` and ``mark``.
            sides: the two groups.
            but: words that are no names here, such as words of a swap ("king").

        Raises:
            FileNotFoundError: no such file.
            ValueError: names file and line of a missing column, an empty cell, a name that occurs
                twice, an unknown mark or group.
        """
        path = find_lexicon(path)
        marks: dict[str, str] = {}
        # Names marked as words have partners with such a mark: the rule asks more of them, and it
        # must give the same answer for a text and for its swap.
        ranked: dict[tuple[bool, str], list[str]] = {}
        for word, group, mark in _rows(path, sides):
            if word in but:
                continue
            marks[word] = mark
            if mark != SHARED:
                ranked.setdefault((mark == CLEAR, group), []).append(word)
        partner: dict[str, str] = {}
        group_of: dict[str, str] = {}
        first, second = sides
        for is_clear in (True, False):
            first_names = ranked.get((is_clear, first), [])
            second_names = ranked.get((is_clear, second), [])
            # The last names of the longer list have no partner, and stay.
            for first_name, second_name in zip(first_names, second_names, strict=False):
                partner[first_name] = second_name
                partner[second_name] = first_name
                group_of[first_name] = first
                group_of[second_name] = second
        return cls(path.stem, sides, partner, group_of, marks)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every name of the first group with its partner."""
        first, _ = self.sides
        pairs = []
        for name, group in self.group_of.items():
            if group == first:
                pairs.append((name, self.partner[name]))
        return tuple(pairs)

    def kept_for(self, query: str) -> frozenset[str]:
        """Names that stay in the documents of a query: those in it, and their partners.

        A query asks for the persons whom it names, whatever their case. Were the partner of such a
        name replaced, another person would get the name.
        """
        kept = set()
        for word in word_tokens(query):
            if word in self.partner:
                kept |= {word, self.partner[word]}
        return frozenset(kept)

    def matches(self, text: str) -> Iterator[Word]:
        """The names of a composed text that stand as names, in its order."""
        if self.partner.keys().isdisjoint(_WORD.findall(readable(text).lower())):
            return
        end_of_name = -1
        for match in words_of(text):
            if match.group().lower() not in self.partner:
                continue
            is_second = match.start() == end_of_name + 1 and text[end_of_name] in " \u00a0-"
            if self._stands_as_name(text, match, is_second):
                end_of_name = match.end()
                yield match

    def _stands_as_name(self, text: str, match: Word, is_second: bool) -> bool:
        """The rule at the head of this module; ``is_second``: a name stands directly before it."""
        word = match.group()
        is_clear = self.marks[word.lower()] == CLEAR
        before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
        previous = _BEFORE.search(before)
        word_before = "" if previous is None else previous[1]
        ends_sentence = previous is not None and before[previous.end(1)] == "."
        title = word_before.lower()
        followers = list(_capitalised_behind(text, match.end()))

        # Rule 1: the case of the word.
        if len(word) > 1 and word.isupper():
            beside = [word_before, *followers[:1]]
            if not is_clear or not any(len(other) > 1 and other.isupper() for other in beside):
                return False
        elif not _is_capitalised(word):
            return False

        # Rules 2 and 3: words of places before it and behind it.
        if title in _BEFORE_PLACES or _VERSE.match(text, match.end()):
            return False
        if any(follower.lower() in _BEHIND_PLACES for follower in followers):
            return False

        # Rule 4: it is not a surname. After "Queen" it is none, which settles rule 5, too.
        if title in _NAME_TITLES:
            return True
        if is_second:
            return bool(followers)
        follows_capital = (
            word_before[:1].isupper()
            and not ends_sentence
            and title not in _OPENERS | _SURNAME_TITLES
        )
        if is_clear:
            is_surname = follows_capital or title in _SURNAME_TITLES
            return bool(followers) or not is_surname

        # Rule 5: what is also a word, a place or a month.
        begins_sentence = _SENTENCE_START.search(before) is not None
        if begins_sentence or follows_capital or title in _PLACE_PREPOSITIONS:
            return False
        return bool(followers)


def clear_names(path: str | Path) -> Lexicon:
    """The names of a file that are marked ``clear``: names of one group, no words.

    >>> clear_names("gender_names").group_names
    ('female', 'male')

    Args:
        path: as of :meth:`FirstNames.of`, with any groups.
    """
    path = find_lexicon(path)
    groups: dict[str, list[str]] = {}
    for word, group, mark in _rows(path):
        if mark == CLEAR:
            groups.setdefault(group, []).append(word)
    names_by_group = {group: tuple(names) for group, names in groups.items()}
    return Lexicon(path.stem, names_by_group, path)


def _rows(path: Path, groups: Collection[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Name, group and mark of each row; ``groups``: those that there may be."""
    file = WordFile(path)
    for row in file.rows(("word", "group"), ("share", "other_share", "mark")):
        word, group = file.word(row["word"]), row["group"]
        file.once(word, group)
        if groups is not None:
            one_of(f"{file.where}: group", group, groups)
        mark = row.get("mark", CLEAR)
        one_of(f"{file.where}: mark", mark, MARKS)
        yield word, group, mark


def _capitalised_behind(text: str, end: int) -> Iterator[str]:
    """The capitalised words directly behind a name; "F." and "de" are passed over."""
    for _ in range(_LOOK_AHEAD):
        while (passed := _INITIAL.match(text, end) or _PARTICLE.match(text, end)) is not None:
            end = passed.end()
        gap = _NEXT.match(text, end)
        if gap is None:
            return
        word = _WORD.match(text, gap.end())
        if word is None or not word.group()[0].isupper():
            return
        yield word.group()
        end = word.end()


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and word[1:].islower()
