"""Texts for the page: words of a lexicon marked, long texts cut between two words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.words import composed
from backpack_rank.reporting.page.data import Span

# A letter or digit, and what follows, with the accents of decomposed texts.
_WORD = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u036f])*")


def mark_words(text: str, lexicon: Lexicon) -> tuple[Span, ...]:
    """Split a text so that every word of the lexicon is a piece with its group.

    Words are runs of letters and digits in any case, as the measures count them; words of the
    lexicon that hold something else (a hyphen, a space) are found where they stand between two
    words. The pieces joined give ``text``.

    >>> lexicon = Lexicon("tiny", {"male": ("he",), "female": ("she",)})
    >>> [(span.text, span.group) for span in mark_words("Yes, she can.", lexicon)]
    [('Yes, ', ''), ('she', 'female'), (' can.', '')]
    """
    group_of = {}
    for group, words in lexicon.groups.items():
        for word in words:
            group_of[word] = group
    pieces: list[Span] = []
    done = 0
    for match in _pattern(group_of).finditer(text):
        group = group_of.get(composed(match.group()).lower(), "")
        if group:
            if match.start() > done:
                pieces.append(Span(text[done : match.start()]))
            pieces.append(Span(match.group(), group))
            done = match.end()
    if done < len(text):
        pieces.append(Span(text[done:]))
    return tuple(pieces)


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    """What is looked for: words of letters and digits, and before them those that hold others."""
    joined = [word for word in words if not _WORD.fullmatch(word)]
    # The longest first, since the first alternative that fits is taken.
    joined.sort(key=lambda word: (-len(word), word))
    alternatives = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in joined]
    return re.compile("|".join([*alternatives, _WORD.pattern]), re.I)


def cut(spans: Sequence[Span], length: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Split a text into its first ``length`` characters, at most, and the rest.

    It is split between two words where there are any. A text that is only a little longer (a fifth)
    is not split.

    >>> head, rest = cut([Span("one two three four")], 8)
    >>> head[0].text, rest[0].text
    ('one two', ' three four')
    """
    text = "".join(span.text for span in spans)
    if len(text) <= length * 1.2:
        return tuple(spans), ()
    place = _place_of_cut(text, length)
    head: list[Span] = []
    rest: list[Span] = []
    for span in spans:
        # The first characters of this piece belong to the head.
        in_head = max(0, min(place, len(span.text)))
        if in_head > 0:
            head.append(Span(span.text[:in_head], span.group))
        if in_head < len(span.text):
            rest.append(Span(span.text[in_head:], span.group))
        place -= len(span.text)
    return tuple(head), tuple(rest)


def _place_of_cut(text: str, length: int) -> int:
    """The last gap between words, unless that would leave less than half."""
    gap = max(text.rfind(" ", 0, length + 1), text.rfind("\n", 0, length + 1))
    return gap if gap > length // 2 else length
