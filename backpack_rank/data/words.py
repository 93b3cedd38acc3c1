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
    groups = len(lexicon.groups)
    cells: list[int] = []  # row * groups + column of every token found; most texts have none
    number = 0
    for text in texts:
        tokens = tokenizer(text)
        if not column.keys().isdisjoint(tokens):
            start = number * groups
            cells += [start + column[token] for token in tokens if token in column]
        number += 1
    counts = np.bincount(np.array(cells, dtype=np.int64), minlength=number * groups)
    return counts.astype(np.int64, copy=False).reshape(number, groups)


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
