"""Texts for the page: words of a lexicon marked, long texts cut between two words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.words import composed
from backpack_rank.reporting.page.data import Span

# A letter or digit, and what follows, with the accents of decomposed texts.
_WORD = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u036f])*")


def mark_words(text: str, lexicon: Lexicon) -> tuple[Span, ...]:
    """Split a text into pieces so that every word of the lexicon is a piece of its own, with its group.

    Words are runs of letters and digits in any case, as the measures count them; words of the lexicon that hold
    something else (a hyphen, a space) are found where they stand between two words. The pieces joined give ``text``.
    """
    groups = {word: group for group, words in lexicon.groups.items() for word in words}
    joined = sorted((word for word in groups if not _WORD.fullmatch(word)), key=lambda word: (-len(word), word))
    pattern = re.compile("|".join([*(rf"(?<!\w){re.escape(word)}(?!\w)" for word in joined), _WORD.pattern]), re.I)
    pieces: list[Span] = []
    done = 0
    for match in pattern.finditer(text):
        group = groups.get(composed(match.group()).lower(), "")
        if group:
            pieces += [Span(text[done : match.start()])] if match.start() > done else []
            pieces.append(Span(match.group(), group))
            done = match.end()
    return (*pieces, Span(text[done:])) if done < len(text) else tuple(pieces)


def cut(spans: Sequence[Span], length: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Split a text into its first ``length`` characters, at most, and the rest; between two words where there are any.

    A text that is only a little longer (a fifth) is not split.
    """
    if sum(len(span.text) for span in spans) <= length * 1.2:
        return tuple(spans), ()
    place = _place("".join(span.text for span in spans), length)
    head: list[Span] = []
    tail: list[Span] = []
    for span in spans:
        left = max(0, min(place, len(span.text)))
        head += [Span(span.text[:left], span.group)] if left else []
        tail += [Span(span.text[left:], span.group)] if left < len(span.text) else []
        place -= len(span.text)
    return tuple(head), tuple(tail)


def _place(text: str, length: int) -> int:
    space = max(text.rfind(" ", 0, length + 1), text.rfind("\n", 0, length + 1))
    return space if space > length // 2 else length
