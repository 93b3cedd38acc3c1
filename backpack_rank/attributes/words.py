"""How often the words of a lexicon occur in texts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.words import Tokenizer, word_tokens


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


def _columns(lexicon: Lexicon, tokenizer: Tokenizer) -> dict[str, int]:
    column = {word: index for index, words in enumerate(lexicon.groups.values()) for word in words}
    for word in column:
        if tokenizer(word) != [word]:
            raise ValueError(
                f"lexicon {lexicon.name!r}: the tokenizer splits {word!r} into {tokenizer(word)}, so "
                "the word would never be counted; change the word or choose another tokenizer"
            )
    return column
