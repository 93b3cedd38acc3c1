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


def whitespace_tokens(text: str) -> list[str]:
    """Lower-cased text split at single spaces, ``text.lower().split(" ")``.

    This is what the published code of RaB / ARaB and NFaiRR does (Rekabsaz and Schedl 2020; Rekabsaz et al.
    2021), with its consequences: "he," and "she." are no words of the lists, a tab or a line break does not
    separate, and two spaces in a row give an empty token.
    """
    return text.lower().split(" ")


def word_tokens(text: str) -> list[str]:
    """Lower-cased runs of letters and digits (``[^\\W_]+`` on the NFC form of the text).

    Punctuation separates, so "he," gives ``he``. So do the apostrophe and the hyphen: "she's" gives ``she``
    and ``s``, "father-in-law" gives ``father``, ``in`` and ``law``.
    """
    # NFC, because a combining accent is no letter: in a decomposed text it would cut a word in two.
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())
