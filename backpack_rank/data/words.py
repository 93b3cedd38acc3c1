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
    """The text in Unicode's composed form (NFC), in which an accented letter is one character.

    Words of texts are compared in this form, and word lists are read in it: in a decomposed text
    "fiancé" would be the word "fiance" with an accent behind it.
    """
    return unicodedata.normalize("NFC", text)


def whitespace_tokens(text: str) -> list[str]:
    """Lower-cased text split at single spaces, ``text.lower().split(" ")`` on the NFC form of the
    text.

    This is what the published code of RaB / ARaB and NFaiRR does (Rekabsaz and Schedl 2020;
    Rekabsaz et al. 2021), with its consequences: "he," and "she." are no words of the lists, a tab
    or a line break does not separate, and two spaces in a row give an empty token.
    """
    return composed(text).lower().split(" ")


def word_tokens(text: str) -> list[str]:
    """Lower-cased runs of letters and digits (``[^\\W_]+`` on the NFC form of the text).

    Punctuation separates, so "he," gives ``he``. So do the apostrophe and the hyphen: "she's" gives
    ``she`` and ``s``, "father-in-law" gives ``father``, ``in`` and ``law``.
    """
    # Composed, because a combining accent is no letter: it would cut a word in two.
    return _WORD.findall(composed(text).lower())
