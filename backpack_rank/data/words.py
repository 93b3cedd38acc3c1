"""Words of a text, for counts, swaps and renditions: one rule for all of them.

A word is a run of letters and digits of any script. Texts come from web pages, so:

- **Invisible characters** (soft hyphens, zero-width spaces and joiners, marks of direction) do not
  cut a word: "wo\\u00adman" is "woman".
- **HTML entities** are what they stand for: "fianc&eacute;e" is one word, "&nbsp;" white space.
- **Addresses** hold no words: URLs, domains, e-mail addresses and @names.
- **Words for both groups in one**, "s/he", "(s)he", "wo/man" and "(fe)male", are words of neither.
  "he/she" is two words.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import TypeAlias

Tokenizer: TypeAlias = Callable[[str], list[str]]
"""A text to its lower-cased tokens, in order."""

# Letters and digits of any script. Apostrophes, hyphens and underscores end a word.
_WORD = re.compile(r"[^\W_]+")
_INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"
# Every repetition has a bound or takes characters that nothing else begins with, so that a long
# run of letters is read once.
_ADDRESS = (
    r"\b(?:https?|ftp)://[^\s<>\"')\]]+|\bwww\.[^\s<>\"')\]]+"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}|(?<![\w@.])@\w+"
    r"|(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,8}(?:com|org|net|edu|gov|info|co\.uk)\b(?:/[^\s<>\"')\]]*)?"
)
_BOTH = r"(?<![^\W_])(?:(?:\(s\)|s/)he|s\(he\)|(?:\(wo\)|wo/)m[ae]n|(?:\(fe\)|fe/)males?)(?![^\W_])"
_UNUSUAL = re.compile(
    f"(?P<invisible>[{_INVISIBLE}]+)|(?P<entity>{_ENTITY})|(?P<wordless>{_ADDRESS}|{_BOTH})",
    re.IGNORECASE,
)
# What a text must hold for any of these; most hold none, and looking for it is quick.
_MAY_BE_UNUSUAL = re.compile(
    rf"[{_INVISIBLE}&@]|[/.](?=(?i:/|he\b|m[ae]n|male|com\b|org|net|edu|gov|info|co\.uk))|(?i:ww)\.|\)(?i:he|m)"
    r"|\((?i:he)\)"
)


class Word:
    """A word and where it stands; its methods are those of a match of ``re``.

    >>> [(word.group(), word.start(), word.end()) for word in words_of("s/he, wo\u00adman")]
    [('woman', 6, 12)]
    """

    __slots__ = ("_end", "_start", "_text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text, self._start, self._end = text, start, end

    def group(self) -> str:
        """The word, without invisible characters and with entities as what they stand for."""
        return self._text

    def start(self) -> int:
        """Where it begins in the text."""
        return self._start

    def end(self) -> int:
        """Where it ends in the text."""
        return self._end


def words_of(text: str) -> Iterator[Word]:
    """The words of a composed text with their places, in its order.

    The rule is that at the head of this module.
    """
    if _MAY_BE_UNUSUAL.search(text) is None:
        for match in _WORD.finditer(text):
            yield Word(match.group(), match.start(), match.end())
        return
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for piece, start, end in _readable_pieces(text):
        pieces.append(piece)
        if len(piece) == end - start:
            starts += range(start, end)
            ends += range(start + 1, end + 1)
        else:
            starts += [start] * len(piece)
            ends += [end] * len(piece)
    for match in _WORD.finditer("".join(pieces)):
        yield Word(match.group(), starts[match.start()], ends[match.end() - 1])


def readable(text: str) -> str:
    """Look for words: the text with its unusual parts as the rule reads them.

    >>> readable("she&rsquo;s at www.mother.org")
    'she\u2019s at  '

    A text without them is returned as it is.
    """
    if _MAY_BE_UNUSUAL.search(text) is None:
        return text
    return "".join(piece for piece, _, _ in _readable_pieces(text))


def _readable_pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """What is read, and where it stands in the text."""
    end = 0
    for match in _UNUSUAL.finditer(text):
        replaced = " "
        if match["invisible"]:
            replaced = ""
        elif match["entity"]:
            replaced = html.unescape(match[0])
            if replaced == match[0]:  # "R&D;" is no entity
                continue
            if _INVISIBLE_ALONE.fullmatch(replaced):
                replaced = ""
        if end < match.start():
            yield text[end : match.start()], end, match.start()
        yield replaced, match.start(), match.end()
        end = match.end()
    if end < len(text):
        yield text[end:], end, len(text)


_INVISIBLE_ALONE = re.compile(f"[{_INVISIBLE}]+")


def composed(text: str) -> str:
    """Before words are compared: an accented letter becomes one character (Unicode's NFC).

    >>> len("fiance\u0301"), len(composed("fiance\u0301"))
    (7, 6)

    Words of texts are compared in this form, and word lists are read in it: in a decomposed text
    "fiancé" would be the word "fiance" with an accent behind it.
    """
    return unicodedata.normalize("NFC", text)


def whitespace_tokens(text: str) -> list[str]:
    """Count words as published RaB and NFaiRR do: lower-cased, split at single spaces.

    >>> whitespace_tokens("She said,  yes")
    ['she', 'said,', '', 'yes']

    This is ``text.lower().split(" ")``, here of the text in NFC (Rekabsaz and Schedl 2020; Rekabsaz
    et al. 2021), with its consequences: "he," and "she." are no words of the lists, a tab or a line
    break does not separate, and two spaces in a row give an empty token.
    """
    return composed(text).lower().split(" ")


def word_tokens(text: str) -> list[str]:
    """Where punctuation is no part of a word: lower-cased runs of letters and digits.

    >>> word_tokens("She's an electrician.")
    ['she', 's', 'an', 'electrician']

    These are the matches of ``[^\\W_]+`` in the text's NFC form, as :func:`readable` gives it.
    Punctuation separates, so "he," gives ``he``. So do the apostrophe and the hyphen: "she's" gives
    ``she`` and ``s``, "father-in-law" gives ``father``, ``in`` and ``law``.
    """
    # Composed, because a combining accent is no letter: it would cut a word in two.
    return _WORD.findall(readable(composed(text)).lower())
