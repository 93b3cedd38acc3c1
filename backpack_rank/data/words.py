"""Words of a text, for counts and swaps."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TypeAlias

Tokenizer: TypeAlias = Callable[[str], list[str]]
"""A text to its lower-cased tokens, in order."""

# Letters and digits of any script. Apostrophes, hyphens and underscores end a word.
_WORD = re.compile(r"[^\W_]+")


def composed(text: str) -> str:
    """Use it before words are compared: an accented letter becomes one character (Unicode's NFC).

    >>> len("fiance\u0301"), len(composed("fiance\u0301"))
    (7, 6)

    Words of texts are compared in this form, and word lists are read in it: in a decomposed text
    "fiancé" would be the word "fiance" with an accent behind it.
    """
    return unicodedata.normalize("NFC", text)


def whitespace_tokens(text: str) -> list[str]:
    """Use it to count words as published RaB and NFaiRR do: lower-cased, split at single spaces.

    >>> whitespace_tokens("She said,  yes")
    ['she', 'said,', '', 'yes']

    This is ``text.lower().split(" ")``, here of the text in NFC (Rekabsaz and Schedl 2020; Rekabsaz
    et al. 2021), with its consequences: "he," and "she." are no words of the lists, a tab or a line
    break does not separate, and two spaces in a row give an empty token.
    """
    return composed(text).lower().split(" ")


def word_tokens(text: str) -> list[str]:
    """Use it where punctuation is no part of a word: lower-cased runs of letters and digits.

    >>> word_tokens("She's an electrician.")
    ['she', 's', 'an', 'electrician']

    These are the matches of ``[^\\W_]+`` in the text's NFC form.
    Punctuation separates, so "he," gives ``he``. So do the apostrophe and the hyphen: "she's" gives
    ``she`` and ``s``, "father-in-law" gives ``father``, ``in`` and ``law``.
    """
    # Composed, because a combining accent is no letter: it would cut a word in two.
    return _WORD.findall(composed(text).lower())
