"""A ranking out of the text that a language model wrote.

The text is read by these rules, in this order:

1. Thoughts are left out: ``<think>...</think>`` (also ``thinking``, ``thought``, ``reasoning``),
   all before a closing tag that was never opened, and all behind an opening tag that is never
   closed. Of ``<answer>...</answer>`` only the last one is read.
2. JSON is read as JSON: :mod:`backpack_rank.position.lists.json_answers`.
3. An identifier is a whole number, or with ``alphabetic`` a single letter (of more than 26 passages
   also two capitals, ``AA`` behind ``Z``), that stands alone: not within a word (``BM25``,
   ``3rd``; but ``doc_2``), a decimal number or one with separators of thousands (``1,200``). It is
   bracketed in ``[2]``, ``[Passage 2]`` and in lists (``[2,1,3]``). Shares (``90%``) and numbers
   that count passages (``top 10``, ``the 3 most relevant``) are none.
4. Where a score or a rank stands behind each identifier (``Doc: 9, Relevance: 7``;
   ``Passage 2 (rank 1)``), it gives the order; equal ones keep theirs. Further numbers of such a
   line are those of a reason.
5. Identifiers with nothing but signs between them (``[2] > [1], [3]``, ``2 → 1``, also over lines
   and with ``**`` or the word passage) are a chain when there is an arrow (``>``) among the signs.
   If there is a chain of at least two, the longest is the answer, the last of equally long ones;
   those of bracketed identifiers go before bare ones.
6. Else, behind a colon that ends a sentence (``For query 3 the order is:``), what stands before it
   is left out. Then every bracketed identifier is read, in the order of the text.
7. Else every bare one. Numbers that count the lines of a list (``1. Passage 3``, then
   ``2. Passage 1``) are left out, as are, with letters, those in lower case and ``A`` and ``I``
   before a word in lower case.
8. A dash or ``to`` between two identifiers that rise (``[2]-[4]``), and no dash beside them, names
   all between them.

What is named twice counts once, at its first place. Passages that are not named follow in input
order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from backpack_rank.checks import one_of
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.identifiers import KINDS, IdentifierKind
from backpack_rank.position.lists.json_answers import json_ranking

_LETTERS = 26
_TAGS = "think|thinking|thought|reasoning"
_THOUGHT = re.compile(rf"<(/?)(?:{_TAGS})>", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>", re.IGNORECASE)
_END_OF_ANSWER = re.compile(r"</answer>", re.IGNORECASE)
# Brackets and arrows of other scripts, which models trained on them write.
_SAME_SIGNS = str.maketrans(
    "\u3010\u3011\uff3b\uff3d\u3014\u3015\uff1e\u227b\u2192\u27e9\u21d2\u2794\u27f6\uff0c\u3001\uff1b\uff1a",
    "[][][]>>>>>>>,,;:",
)
_NAMES = "passage|document|doc|text|candidate|item|option|identifier|id"
_PREFIX = re.compile(rf"\b({_NAMES})[_-]?(?=[0-9])", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])(?<![0-9]\.)(?<!\s\.)[0-9]+(?![A-Za-z0-9_]|\.[0-9])")
# 1,200 and 0,75 are one number each; 2,100,3 is a list.
_ONE_NUMBER = re.compile(r"(?<![0-9.,])(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|0,[0-9]+)(?![0-9]|,[0-9])")
_COUNTED = "passages|documents|docs|texts|candidates|items|options|results|articles|words"
_COUNT = re.compile(
    r"\btop[- ]?[0-9]+"
    rf"|(?<![0-9])[0-9]+[ ](?:(?:given|provided|ranked|of|the|most|best|relevant)[ ])*"
    rf"(?:{_COUNTED}|most|best|relevant)\b"
    r"|(?<![0-9])[0-9]+[ ]?%",
    re.IGNORECASE,
)
_NAME_BEFORE = re.compile(rf"\b(?:{_NAMES})[ ]$", re.IGNORECASE)
_SCORE = re.compile(
    r"(?<![A-Za-z])(rank|relevance|relevancy|score|rating|confidence|probability)"
    r"(?:[ _]score)?[\"']?[ ]?[:=#]?[ ]?([0-9]+(?:\.[0-9]+)?)(?![0-9])",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[A-Za-z]+\W+\w+\W+\w+\W{0,3}:[\s*]*$")
_LETTER = re.compile(r"(?<![A-Za-z0-9_'\u2019])[A-Za-z](?![A-Za-z0-9_]|['\u2019][A-Za-z])")
_TWO_LETTERS = re.compile(
    r"(?<![A-Za-z0-9_'\u2019])(?:[A-Z]{2}|[A-Za-z])(?![A-Za-z0-9_]|['\u2019][A-Za-z])"
)
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_DASH = re.compile(r"[-\u2013\u2014]|\bto\b", re.IGNORECASE)
# No two alternatives begin alike, so that a long run of signs is read once.
_SIGNS = re.compile(
    r"(?:[\s\[\]()>,;=&|~*_`\"'#\\\u2026]|\.(?=\.)|(?<=\.)\.(?!\.)|[-\u2013\u2014]+>"
    r"|\b(?:and|then|passages?|documents?|docs?|texts?|candidates?|items?|options?|identifiers?|id|number|no)\b)*",
    re.IGNORECASE,
)
_LINE_COUNT = re.compile(
    r"[ \t>|*_-]*(?:(?:rank|position|place)[ \t]+)?#?([0-9]{1,9})[*_]*"
    r"(?:[.):]|[ \t]*[|\u2013\u2014-][ \t])",
    re.IGNORECASE,
)
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")
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
        """As rankers give it; ``num_ranked`` is the length of the part that the answer gave."""
        return Ranking(self.order, None, len(self.order) - self.missing)


def parse_ranking(text: str, m: int, identifiers: IdentifierKind = "numeric") -> Parsed:
    """Read the answer of a language model that was shown m passages.

    >>> parsed = parse_ranking("The best order is [2] > [1] > [2].", m=3)
    >>> parsed.order.tolist(), parsed.missing, parsed.repeated
    ([1, 0, 2], 1, 1)

    The rules are those at the head of this module.

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
    if identifiers == "numeric":
        form = _NUMBER
    else:
        form = _LETTER if m <= _LETTERS else _TWO_LETTERS
    answer = _answer(text)
    in_json = json_ranking(answer, lambda name: _number_alone(name, form))
    if in_json is not None:
        numbers: Iterable[tuple[int, bool]] = [(number, False) for number in in_json]
    else:
        numbers = _numbers_named(answer, m, form)
    named, repeated, invented = _count(numbers, m)
    seen = set(named)
    left_out = [position for position in range(m) if position not in seen]
    order = np.array([*named, *left_out], dtype=np.int64)
    return Parsed(order, len(left_out), repeated, invented)


@dataclass(frozen=True)
class _Identifier:
    """An identifier in the text: its number from 1, its place, and whether it is in brackets."""

    value: int
    start: int
    end: int
    bracketed: bool


def _answer(text: str) -> str:
    """The part of a text that is read (rule 1), with signs of other scripts replaced."""
    text = _ANSWER.split(_without_thoughts(text))[-1]
    text = _END_OF_ANSWER.split(text, maxsplit=1)[0].replace("&gt;", ">").translate(_SAME_SIGNS)
    return _PREFIX.sub(r"\1 ", text)


def _without_thoughts(text: str) -> str:
    kept: list[str] = []
    start = 0  # of the text that is not yet kept
    thinking = False
    for tag in _THOUGHT.finditer(text):
        if not tag[1] and not thinking:
            kept.append(text[start : tag.start()])
            thinking = True
        elif tag[1]:
            if not thinking:  # the opening tag stood in the prompt
                kept.clear()
            start = tag.end()
            thinking = False
    if not thinking:
        kept.append(text[start:])
    return "".join(kept)


def _numbers_named(text: str, m: int, form: re.Pattern[str]) -> Iterator[tuple[int, bool]]:
    """Numbers that the answer names, in its order; True for those that only lie within a range."""
    identifiers = list(_identifiers(text, form))
    bracketed = [identifier for identifier in identifiers if identifier.bracketed]
    in_order_of_scores = _by_scores(text, bracketed or _not_prose(text, identifiers, form))
    if in_order_of_scores:  # rule 4
        for identifier in in_order_of_scores:
            yield identifier.value, False
        return
    chosen = (  # rules 5 to 7
        _chain(text, bracketed)
        or _chain(text, identifiers)
        or _behind_colon(text, bracketed)
        or _behind_colon(text, _not_prose(text, identifiers, form))
    )
    # Whether a dash stands before each identifier; none does before the first and behind the last.
    dashes = [False]
    for before, behind in pairwise(chosen):
        dashes.append(_is_dash(text[before.end : behind.start]))
    dashes.append(False)
    for index, identifier in enumerate(chosen):
        if dashes[index] and not dashes[index - 1] and not dashes[index + 1]:
            # Clipped to m, so that [1]-[999999999] does not run for ever.
            for value in range(chosen[index - 1].value + 1, min(identifier.value, m + 1)):
                yield value, True
        yield identifier.value, False


def _count(numbers: Iterable[tuple[int, bool]], m: int) -> tuple[list[int], int, int]:
    """Positions named, each once, and how many identifiers were repeated and invented."""
    named: dict[int, None] = {}
    repeated = invented = 0
    for number, within_range in numbers:
        if 1 <= number <= m and number - 1 not in named:
            named[number - 1] = None
        elif within_range:
            continue  # nobody wrote it
        elif 1 <= number <= m:
            repeated += 1
        else:
            invented += 1
    return list(named), repeated, invented


def _identifiers(text: str, form: re.Pattern[str]) -> Iterator[_Identifier]:
    """All identifiers of a text (rule 3)."""
    brackets = []
    for match in _BRACKETS.finditer(text):
        # Nothing but identifiers and signs in them: [as passage 2 says] is prose.
        if all(_joins(gap) for gap in form.split(match[0])):
            brackets.append(match.span())
    passed = 0
    others = _other_numbers(text) if form is _NUMBER else []
    passed_others = 0
    for match in form.finditer(text):
        while passed < len(brackets) and brackets[passed][1] <= match.start():
            passed += 1
        within = passed < len(brackets) and brackets[passed][0] < match.start()
        while passed_others < len(others) and others[passed_others][1] <= match.start():
            passed_others += 1
        is_other = passed_others < len(others) and others[passed_others][0] <= match.start()
        if is_other and not within:
            continue
        yield _Identifier(_number(match[0]), match.start(), match.end(), within)


def _other_numbers(text: str) -> list[tuple[int, int]]:
    """Where numbers stand that are no identifiers (rule 3), in the order of the text."""
    places = [match.span() for match in _ONE_NUMBER.finditer(text)]
    for match in _COUNT.finditer(text):
        # "Passage 2 documents the rest" counts nothing.
        if not _NAME_BEFORE.search(text, max(0, match.start() - 20), match.start()):
            places.append(match.span())
    return sorted(places)


def _number_alone(text: str, form: re.Pattern[str]) -> int | None:
    """The number of the only identifier of a text such as ``[2]`` or ``Passage 2``, else None."""
    text = _PREFIX.sub(r"\1 ", text)
    identifiers = list(_identifiers(text, form))
    if len(identifiers) != 1 or not all(map(_SIGNS.fullmatch, form.split(text))):
        return None
    return identifiers[0].value


def _number(identifier: str) -> int:
    """The number of an identifier, from 1; 0 for one that no list can have."""
    if identifier.isalpha():
        number = 0  # letters are the digits 1 to 26 of a number: AA follows Z
        for letter in identifier.upper():
            number = number * _LETTERS + ord(letter) - ord("A") + 1
        return number
    # Python refuses to read very long numbers.
    if len(identifier) >= 100 or len(identifier.lstrip("0")) >= 10:
        return 0
    return int(identifier)


def _by_scores(text: str, identifiers: list[_Identifier]) -> list[_Identifier]:
    """Identifiers in the order of the scores behind them (rule 4); empty without such scores."""
    scores = {match.start(2): match for match in _SCORE.finditer(text)}
    named = [identifier for identifier in identifiers if identifier.start not in scores]
    starts = [identifier.start for identifier in named]
    keys: dict[int, float] = {}
    for match in scores.values():
        place = bisect_left(starts, match.start()) - 1
        if place < 0 or place in keys or "\n" in text[named[place].end : match.start()]:
            return []
        is_rank = match[1].lower() == "rank"
        keys[place] = float(match[2]) if is_rank else -float(match[2])
    if not keys:
        return []
    # What follows a score in its line are numbers of a reason.
    scored_until = -1
    for place, identifier in enumerate(named):
        if place in keys:
            line_end = text.find("\n", identifier.end)
            scored_until = line_end if line_end >= 0 else len(text)
        elif identifier.start >= scored_until:
            return []
    return [named[place] for place in sorted(keys, key=keys.__getitem__)]


def _behind_colon(text: str, identifiers: list[_Identifier]) -> list[_Identifier]:
    """Those behind a sentence that ends in a colon, where a list follows it (rule 6); else all."""
    begin = longest = 0
    for place, identifier in enumerate(identifiers):
        if place == 0 or not _joins(text[identifiers[place - 1].end : identifier.start]):
            begin = place
        if place + 1 - begin >= max(2, longest):
            first, longest = begin, place + 1 - begin
    if longest <= (first if longest else 0):
        return identifiers
    start = identifiers[first].start
    if text[start - 1] == "[":
        start -= 1
    before = text[max(0, start - 200) : start]
    return identifiers[first:] if _SENTENCE.search(before) else identifiers


def _chain(text: str, identifiers: list[_Identifier]) -> list[_Identifier]:
    """The longest chain, the last of equally long ones (rule 5); empty if there is none."""
    parts: list[list[_Identifier]] = []
    has_arrow: list[bool] = []
    for identifier in identifiers:
        gap = text[parts[-1][-1].end : identifier.start] if parts else ""
        # Behind an empty line the answer is explained.
        goes_on = ">" in gap or not _EMPTY_LINE.search(gap)
        if parts and goes_on and _joins(gap):
            parts[-1].append(identifier)
            has_arrow[-1] = has_arrow[-1] or ">" in gap
        else:
            parts.append([identifier])
            has_arrow.append(False)
    longest: list[_Identifier] = []
    for part, arrow in zip(parts, has_arrow, strict=True):
        if arrow and len(part) >= len(longest):
            longest = part
    return longest


def _joins(gap: str) -> bool:
    """Whether identifiers with this between them belong to one chain."""
    return _SIGNS.fullmatch(gap) is not None or _is_dash(gap)


def _is_dash(gap: str) -> bool:
    """Whether there is one dash, or the word to, and else only signs that say nothing."""
    if ">" in gap:  # a dash of an arrow
        return False
    parts = _DASH.split(gap)
    return len(parts) == 2 and all(_SIGNS.fullmatch(part) for part in parts)


def _not_prose(
    text: str, identifiers: list[_Identifier], form: re.Pattern[str]
) -> list[_Identifier]:
    """Bare identifiers without line counts and words of one letter (rule 7)."""
    if form is _NUMBER:
        counts = _line_counts(text, identifiers)
        return [identifier for identifier in identifiers if identifier.start not in counts]
    kept = []
    for identifier in identifiers:
        name = text[identifier.start : identifier.end]
        is_word = name in ("A", "I") and _PROSE.match(text, identifier.end)
        if name[0].isupper() and not is_word:
            kept.append(identifier)
    return kept


def _line_counts(text: str, identifiers: list[_Identifier]) -> set[int]:
    """Where the numbers stand that count the lines of a list; empty where none do.

    They are 1, 2, 3 ..., with identifiers behind at least two of them in their lines.
    """
    places = [identifier.start for identifier in identifiers]
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
            if behind < len(places) and places[behind] < offset + len(line):
                followed += 1
        offset += len(line)
    if followed < 2 or numbers != list(range(1, len(numbers) + 1)):
        return set()
    return set(starts)
