"""Where a long text may be cut: nobody waits for 7 MB of which 512 tokens are read."""

from __future__ import annotations

import re
import unicodedata
from functools import cache


def beginning(text: str, characters: int, longest_run: int) -> tuple[str, bool]:
    """Cut a long text before it is tokenised, to about ``characters``.

    A stretch of blanks, or of characters that some tokenizers delete, is shortened where it is
    longer than ``longest_run``: either its characters are tokens, and then it has more than anybody
    reads, or they are none.

    >>> beginning("a saw and a hammer", 8, longest_run=100)
    ('a saw and', False)
    >>> beginning("a" + 1000 * " " + "saw", 100, longest_run=30)[1]
    True

    Returns:
        The beginning, and whether it is the complete text but for stretches of blanks.

    Args:
        text: of any length; the work depends on ``characters`` alone, but for a look at stretches
            of blanks.
        characters: of the beginning.
        longest_run: characters of a stretch that are kept, or up to three times as many.
    """
    if len(text) <= characters:
        return text, True
    pieces: list[str] = []
    length = place = 0
    while length <= characters and place < len(text):
        piece = text[place : place + min(longest_run, characters + 1)]
        pieces.append(piece)
        length += len(piece)
        place += len(piece)
        if len(piece) == longest_run:
            place = _behind_run(text, piece, place)
    return "".join(pieces), place >= len(text)


def before_last_word(text: str) -> str | None:
    """On a text that was cut anywhere: it is given without its last word, which may be torn.

    >>> before_last_word("a saw and a ham")
    'a saw and a'

    No token reaches over the blank in front of a word, so that all those in front of it are as in
    the complete text.

    Returns:
        None where no other word ends in the second half of the text.
    """
    half = len(text) // 2
    parts = text[half:].rsplit(None, 1)
    if len(parts) < 2:
        return None
    return text[:half] + parts[0]


def _behind_run(text: str, piece: str, place: int) -> int:
    """Where to read on: the place, or farther in the stretch that the piece before it is part of.

    Its last characters, as many as the piece has, are read too, so that it ends as it did.
    """
    if piece.isspace():
        end = len(text) - len(text[place:].lstrip())
        return max(place, end - len(piece))
    # One kind at a time: marks, a blank and marks are two words, of which each may be a token.
    for kind in ("C", "M"):
        other = _other_than(kind)
        if not other.search(piece):
            following = other.search(text, place)
            end = following.start() if following else len(text)
            return max(place, end - len(piece))
    return place


@cache
def _other_than(kind: str) -> re.Pattern[str]:
    """Any character but those that a tokenizer may drop: controls (``C``) or lone marks (``M``)."""
    ranges: list[list[int]] = []
    for code in range(0x10000):
        character = chr(code)
        if unicodedata.category(character)[0] != kind or character.isspace():
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    of_kind = "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)
    return re.compile(f"[^{of_kind}]")
