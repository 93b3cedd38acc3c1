"""Words of a text, and how often the words of a lexicon occur in it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from backpack_rank.data.lexicon import Lexicon

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


def count_groups(texts: Iterable[str], lexicon: Lexicon, tokenizer: Tokenizer = word_tokens) -> np.ndarray:
    """Number of tokens of each group in each text.

    Args:
        texts: N documents.
        lexicon: the groups, n_groups of them.
        tokenizer: :func:`word_tokens` or :func:`whitespace_tokens`, or a function like them.

    Returns:
        int64 array [N, n_groups]; columns in the order of ``lexicon.group_names``.

    Raises:
        ValueError: the tokenizer can never give one of the lexicon's words.
    """
    column = _columns(lexicon, tokenizer)
    rows = []
    for text in texts:
        row = [0] * len(lexicon.groups)
        for token in tokenizer(text):
            if token in column:
                row[column[token]] += 1
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(lexicon.groups))


def contains_any(text: str, lexicon: Lexicon, tokenizer: Tokenizer = word_tokens) -> bool:
    """Whether a token of the text is a word of the lexicon.

    Raises:
        ValueError: the tokenizer can never give one of the lexicon's words.
    """
    return not _columns(lexicon, tokenizer).keys().isdisjoint(tokenizer(text))


def _columns(lexicon: Lexicon, tokenizer: Tokenizer) -> dict[str, int]:
    column = {word: index for index, words in enumerate(lexicon.groups.values()) for word in words}
    for word in column:
        if tokenizer(word) != [word]:
            raise ValueError(
                f"lexicon {lexicon.name!r}: the tokenizer splits {word!r} into {tokenizer(word)}, so "
                "the word would never be counted; change the word or choose another tokenizer"
            )
    return column
