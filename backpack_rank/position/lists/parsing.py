"""A ranking out of the text that a language model wrote.

The text is read by these rules, in this order:

1. Thoughts are left out: ``<think>...</think>`` (also ``thinking``, ``thought``, ``reasoning``),
   all before a closing tag that was never opened, and all behind an opening tag that is never
   closed. Of ``<answer>...</answer>`` only the last one is read.
2. An identifier is a whole number, or with ``alphabetic`` a single letter (of more than 26 passages
   also two capitals, ``AA`` behind ``Z``), that stands alone: not within a word (``BM25``, ``3rd``)
   or a decimal number. It is bracketed in ``[2]``, ``[Passage 2]`` and in lists (``[2, 1, 3]``).
3. Identifiers with nothing but signs between them (``[2] > [1], [3]``, ``2 → 1``, also over lines
   and with ``**`` or the word passage) are a chain when there is an arrow (``>``) among the signs.
   If there is a chain of at least two, the longest is the answer, the last of equally long ones;
   those of bracketed identifiers go before bare ones.
4. Else every bracketed identifier is read, in the order of the text.
5. Else every bare one. Numbers that count the lines of a list (``1. Passage 3``, then
   ``2. Passage 1``) are left out, as are, with letters, those in lower case and ``A`` and ``I``
   before a word in lower case.
6. A dash or ``to`` between two identifiers that rise (``[2]-[4]``), and no dash beside them, names
   all between them.

What is named twice counts once, at its first place. Passages that are not named follow in input
order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from backpack_rank.checks import one_of
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.identifiers import KINDS, IdentifierKind

_LETTERS = 26
_TAGS = "think|thinking|thought|reasoning"
_THOUGHT = re.compile(rf"<(/?)(?:{_TAGS})>", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>", re.IGNORECASE)
_END_OF_ANSWER = re.compile(r"</answer>", re.IGNORECASE)
# Brackets and arrows of other scripts, which models trained on them write.
_SAME_SIGNS = str.maketrans(
    "\u3010\u3011\uff3b\uff3d\u3014\u3015\uff1e\u227b\u2192\u27e9", "[][][]>>>>"
)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])(?<![0-9][.,])[0-9]+(?![A-Za-z0-9_]|\.[0-9])")
_LETTER = re.compile(r"(?<![A-Za-z0-9_'\u2019])[A-Za-z](?![A-Za-z0-9_]|['\u2019][A-Za-z])")
_TWO_LETTERS = re.compile(
    r"(?<![A-Za-z0-9_'\u2019])(?:[A-Z]{2}|[A-Za-z])(?![A-Za-z0-9_]|['\u2019][A-Za-z])"
)
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_DASH = re.compile(r"[-\u2013\u2014]|\bto\b", re.IGNORECASE)
# No two alternatives begin alike, so that a long run of signs is read once.
_SIGNS = re.compile(
    r"(?:[\s\[\]()>,;=&|~*_`\"'#\u2026]|\.(?=\.)|(?<=\.)\.(?!\.)|[-\u2013\u2014]+>"
    r"|\b(?:and|then|passages?|documents?|docs?|texts?|candidates?|items?|options?|identifiers?|id|number|no)\b)*",
    re.IGNORECASE,
)
_LINE_COUNT = re.compile(
    r"[ \t>*_-]*(?:(?:rank|position|place)[ \t]+)?#?([0-9]{1,9})[*_]*[.):]", re.IGNORECASE
)
_PROSE = re.compile(r"[ \t]+[a-z]")


@dataclass(frozen=True, eq=False)
class Parsed:
    """What an answer says about m passages.

    Attributes:
        order: input positions, best first: those named, then the others in input order. int64 [m]
        missing: passages that were not named.
        repeated: identifiers that were named again.
        invented: identifiers that no passage has.
    """

    order: np.ndarray
    missing: int
    repeated: int
    invented: int

    @property
    def repaired(self) -> bool:
        """Whether the answer was anything but each identifier once."""
        return bool(self.missing or self.repeated or self.invented)

    def ranking(self) -> Ranking:
        """As rankers give it; ``named`` is the length of the part that the answer gave."""
        return Ranking(self.order, None, len(self.order) - self.missing)


def parse_ranking(text: str, m: int, identifiers: IdentifierKind = "numeric") -> Parsed:
    """Read the answer of a language model that was shown m passages, by the rules above.

    Args:
        text: the answer; whatever it is, a permutation results.
        m: passages shown, at least 1.
        identifiers: ``numeric`` (1, 2, 3 ...) or ``alphabetic`` (A, B, C ...).

    Raises:
        ValueError: m below 1, or another kind of identifiers.
    """
    one_of("identifiers", identifiers, KINDS)
    if m < 1:
        raise ValueError(f"an answer ranks at least 1 passage, got m={m}")
    form = _NUMBER if identifiers == "numeric" else _LETTER if m <= _LETTERS else _TWO_LETTERS
    named, repeated, invented = _counted(_values(_answer(text), m, form), m)
    seen = set(named)
    order = np.array(
        [*named, *(position for position in range(m) if position not in seen)], dtype=np.int64
    )
    return Parsed(order, m - len(named), repeated, invented)


@dataclass(frozen=True)
class _Named:
    """An identifier in the text: its number from 1, its place, and what stands between it and the
    one before.
    """

    value: int
    start: int
    end: int
    bracketed: bool


def _answer(text: str) -> str:
    text = _ANSWER.split(_without_thoughts(text))[-1]
    return _END_OF_ANSWER.split(text, maxsplit=1)[0].replace("&gt;", ">").translate(_SAME_SIGNS)


def _without_thoughts(text: str) -> str:
    kept: list[str] = []
    start, thinking = 0, False
    for tag in _THOUGHT.finditer(text):
        if not tag[1] and not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
        elif tag[1]:
            if not thinking:  # the opening tag stood in the prompt
                kept.clear()
            start, thinking = tag.end(), False
    return "".join(kept if thinking else [*kept, text[start:]])


def _values(text: str, m: int, form: re.Pattern[str]) -> Iterator[tuple[int, bool]]:
    """Numbers of the identifiers as the answer orders them; True for those that only lie within a
    range.
    """
    found = list(_found(text, form))
    bracketed = [one for one in found if one.bracketed]
    chosen = (
        _chain(text, bracketed) or _chain(text, found) or bracketed or _plain(text, found, form)
    )
    dashes = [
        False,
        *(_is_dash(text[one.end : other.start]) for one, other in pairwise(chosen)),
        False,
    ]
    for index, one in enumerate(chosen):
        if dashes[index] and not dashes[index - 1] and not dashes[index + 1]:
            # Clipped to m, so that [1]-[999999999] does not run for ever.
            yield from (
                (value, True) for value in range(chosen[index - 1].value + 1, min(one.value, m + 1))
            )
        yield one.value, False


def _counted(values: Iterable[tuple[int, bool]], m: int) -> tuple[list[int], int, int]:
    """Positions named, each once, and how many identifiers were repeated and invented."""
    named: dict[int, None] = {}
    repeated = invented = 0
    for value, between in values:
        if not 1 <= value <= m:
            invented += not between
        elif value - 1 in named:
            repeated += not between
        else:
            named[value - 1] = None
    return list(named), repeated, invented


def _found(text: str, form: re.Pattern[str]) -> Iterator[_Named]:
    brackets = [
        match.span() for match in _BRACKETS.finditer(text) if _holds_identifiers(match[0], form)
    ]
    passed = 0
    for match in form.finditer(text):
        while passed < len(brackets) and brackets[passed][1] <= match.start():
            passed += 1
        within = passed < len(brackets) and brackets[passed][0] < match.start()
        yield _Named(_number(match[0]), match.start(), match.end(), within)


def _holds_identifiers(brackets: str, form: re.Pattern[str]) -> bool:
    """Whether there is nothing but identifiers and signs in the brackets."""
    return all(_joins(gap) for gap in form.split(brackets))


def _number(identifier: str) -> int:
    """From 1; numbers that no list can have become 0 unread, because Python refuses to read very
    long ones.
    """
    if identifier.isalpha():
        return reduce(
            lambda value, letter: value * _LETTERS + ord(letter) - ord("A") + 1,
            identifier.upper(),
            0,
        )
    return int(identifier) if len(identifier.lstrip("0")) < 10 and len(identifier) < 100 else 0


def _chain(text: str, found: list[_Named]) -> list[_Named]:
    """The longest part with an arrow and nothing but signs between the identifiers; empty if there
    is none.
    """
    best: list[_Named] = []
    part: list[_Named] = []
    arrow = False
    for one in found:
        gap = text[part[-1].end : one.start] if part else ""
        if part and not _joins(gap):
            best = part if arrow and len(part) >= max(len(best), 2) else best
            part, arrow = [], False
        elif part:
            arrow = arrow or ">" in gap
        part.append(one)
    return part if arrow and len(part) >= max(len(best), 2) else best


def _joins(gap: str) -> bool:
    return _SIGNS.fullmatch(gap) is not None or _is_dash(gap)


def _is_dash(gap: str) -> bool:
    """Whether there is one dash, or the word to, and else only signs that say nothing."""
    return (
        ">" not in gap
        and len(parts := _DASH.split(gap)) == 2
        and all(_SIGNS.fullmatch(part) for part in parts)
    )


def _plain(text: str, found: list[_Named], form: re.Pattern[str]) -> list[_Named]:
    if form is _NUMBER:
        counts = _line_counts(text, found)
        return [one for one in found if one.start not in counts]
    capitals = [one for one in found if text[one.start].isupper()]
    return [
        one
        for one in capitals
        if text[one.start : one.end] not in ("A", "I") or not _PROSE.match(text, one.end)
    ]


def _line_counts(text: str, found: list[_Named]) -> set[int]:
    """Where the numbers stand that count the lines of a list: 1, 2, 3 ..., identifiers behind at
    least two of them.
    """
    places = [one.start for one in found]
    starts: list[int] = []
    numbers: list[int] = []
    followed = 0
    offset = 0
    for line in text.splitlines(keepends=True):
        match = _LINE_COUNT.match(line)
        if match:
            starts.append(offset + match.start(1))
            numbers.append(int(match[1]))
            behind = bisect_left(places, offset + match.end())
            followed += behind < len(places) and places[behind] < offset + len(line)
        offset += len(line)
    return set(starts) if followed >= 2 and numbers == list(range(1, len(numbers) + 1)) else set()
