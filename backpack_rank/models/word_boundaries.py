"""Where words begin and end in a row of tokens.

" she" is a word in "she saw", and a piece in "sheets" (" she", "ets").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

# How vocabularies mark the pieces that begin a new word, that continue one, and that end one. Slow
# tokenizers cannot be asked which of these marks they use.
_BYTE_SPACE = "Ġ"
_SPACES = (_BYTE_SPACE, "▁")
_CONTINUED = "##"
_END = "</w>"


def piece_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Look words up in a vocabulary: the text of every token id, "" of special tokens.

    Texts are as they stand behind a word: " she" begins a new word, "ets" continues the one before
    it, "she " (of vocabularies that mark the ends of words) continues and ends it. Tokenizers that
    do not split texts at spaces have pieces with spaces anywhere (" said ", " said he").
    """
    ids = list(range(len(tokenizer)))
    pieces = [piece or "" for piece in tokenizer.convert_ids_to_tokens(ids)]
    space, continued, end = _marks(tokenizer, pieces)
    # A vocabulary with such marks may hold bytes and no plain text: "Ã©" is "é".
    decoded = _decoded(tokenizer, len(pieces)) if space or end else pieces
    texts = []
    for piece, text in zip(pieces, decoded, strict=True):
        if continued and piece.startswith(continued):
            texts.append(piece.removeprefix(continued))
        elif space:
            # A decoder drops spaces of a text's first piece ("▁said▁" is "said"), so where the sign
            # stands for itself it is read here. In byte-level pieces it is one of many signs, and
            # spaces are kept.
            if space in piece and space != _BYTE_SPACE:
                text = piece.replace(space, " ")
            if piece.startswith(space):
                text = " " + text.removeprefix(space).lstrip(" ")
            texts.append(text)
        elif end:
            text = text.removesuffix(end).rstrip(" ")
            if piece.endswith(end):
                text += " "
            texts.append(text)
        else:
            texts.append(" " + piece)
    special = set(tokenizer.all_special_ids)
    return ["" if index in special else text for index, text in enumerate(texts)]


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """Tells words from pieces of words in a row of tokens.

    Attributes:
        continues: the token continues the word before it, if that ends in a letter or digit. bool
            [vocabulary]
        ends_inside_word: the token ends in a letter or digit, so a continuing token after it is of
            the same word. bool [vocabulary]
    """

    continues: Tensor
    ends_inside_word: Tensor

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> WordBoundaries:
        """Read off the vocabulary."""
        return cls.of_texts(piece_texts(tokenizer))

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> WordBoundaries:
        """From what :func:`piece_texts` gives."""
        # Slices and not single characters: the text of a special token is empty.
        continues = [text[:1].isalnum() for text in texts]
        ends_inside_word = [text[-1:].isalnum() for text in texts]
        return cls(torch.tensor(continues), torch.tensor(ends_inside_word))

    def whole_words(self, ids: Tensor) -> Tensor:
        """Which tokens of a row are words, neither begun before nor continued after. [T] -> [T]"""
        continues = _values(self.continues, ids)
        ends_inside_word = _values(self.ends_inside_word, ids)
        # Tokens t and t + 1 are parts of one word. [T - 1]
        joined = continues[1:] & ends_inside_word[:-1]
        edge = joined.new_zeros(1)
        joined_to_previous = torch.cat([edge, joined])
        joined_to_next = torch.cat([joined, edge])
        return ~joined_to_previous & ~joined_to_next


def _values(table: Tensor, ids: Tensor) -> Tensor:
    """Values of ids in a table; False for ids beyond it, which pad an embedding matrix."""
    known = len(table)
    return table.to(ids.device)[ids.clamp(max=known - 1)] & (ids < known)


def _marks(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[str]) -> tuple[str, str, str]:
    """How a vocabulary marks pieces of a new word, continuing pieces, and last pieces of a word.

    The first two marks begin a piece, the third ends it. Each is "" where there is no such mark.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        continued = getattr(backend.model, "continuing_subword_prefix", None) or ""
        end = getattr(backend.model, "end_of_word_suffix", None) or ""
        return _space_between_words(backend), continued, end
    # The most frequent mark counts. A single piece proves nothing: "Ġ" and "▁" are also letters.
    counts: Counter[str] = Counter()
    for piece in pieces:
        for mark in (*_SPACES, _CONTINUED):
            if piece.startswith(mark):
                counts[mark] += 1
    # Marks at the end are counted last: of equally frequent marks the first one counted is taken.
    for piece in pieces:
        if piece.endswith(_END):
            counts[_END] += 1
    if not counts:
        return "", "", ""
    ((mark, _),) = counts.most_common(1)
    if mark in _SPACES:
        return mark, "", ""
    if mark == _CONTINUED:
        return "", mark, ""
    return "", "", mark


def _space_between_words(backend: Tokenizer) -> str:
    """What the model of a tokenizer sees of the space between two words, "" where it sees none."""
    # Digits, because no normaliser writes them otherwise: what is between them was the space.
    text = "1 2"
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is not None:
        parts = backend.pre_tokenizer.pre_tokenize_str(text)
        text = "".join(part for part, _ in parts)
    return text.partition("1")[2].rpartition("2")[0]


def _decoded(tokenizer: PreTrainedTokenizerBase, count: int) -> list[str]:
    """The text of each token id by itself."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return backend.decode_batch([[index] for index in range(count)], skip_special_tokens=False)
    return [str(tokenizer.decode([index])) for index in range(count)]
