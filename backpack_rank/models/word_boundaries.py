"""Where words begin and end in a row of tokens: " she" is a word in "she saw", a piece in "sheets"
(" she", "ets").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

# What vocabularies begin the pieces of a new word with, or go on with a word by, or end a word
# with. Slow tokenizers cannot be asked which of them they use.
_BYTE_SPACE = "Ġ"
_SPACES = (_BYTE_SPACE, "▁")
_CONTINUED = "##"
_END = "</w>"


def piece_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The text of every token id as it stands behind a word, "" of special tokens.

    " she" begins a new word, "ets" goes on with the one before it, "she " (of vocabularies that
    mark the ends of words) goes on with it and ends it. So may pieces of tokenizers that do not
    split texts at spaces (" said ", " said he").
    """
    pieces = [piece or "" for piece in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    space, continued, end = _marks(tokenizer, pieces)
    decoded = _decoded(tokenizer, len(pieces)) if space or end else pieces
    texts = []
    for piece, text in zip(pieces, decoded, strict=True):
        if continued and piece.startswith(continued):
            texts.append(piece.removeprefix(continued))
        elif space:
            # A decoder drops spaces of a text's first piece ("▁said▁" is "said"), so where the sign
            # stands for itself it is read here. In byte-level pieces it is one of many signs, and
            # spaces are kept.
            text = piece.replace(space, " ") if space in piece and space != _BYTE_SPACE else text
            texts.append(
                " " + text.removeprefix(space).lstrip(" ") if piece.startswith(space) else text
            )
        elif end:
            texts.append(text.removesuffix(end).rstrip(" ") + " " * piece.endswith(end))
        else:
            texts.append(" " + piece)
    special = set(tokenizer.all_special_ids)
    return ["" if index in special else text for index, text in enumerate(texts)]


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """What a token does to the word that it stands in, by token id.

    Attributes:
        continues: it goes on with the word before it, if that ends in a letter or digit. bool
            [vocabulary]
        ends_inside_word: it ends in a letter or digit, so a continuing token after it is of the
            same word. bool [vocabulary]
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
        continues, inside = (
            [text[place].isalnum() for text in texts] for place in (slice(1), slice(-1, None))
        )
        return cls(torch.tensor(continues), torch.tensor(inside))

    def whole_words(self, ids: Tensor) -> Tensor:
        """Which tokens of a row are words by themselves, neither begun before nor continued after.
        [T] -> bool [T]
        """
        continues, inside = _on(self.continues, ids), _on(self.ends_inside_word, ids)
        joined = (
            continues[1:] & inside[:-1]
        )  # this token and the one before it are parts of one word
        edge = joined.new_zeros(1)
        return ~torch.cat([edge, joined]) & ~torch.cat([joined, edge])


def _on(table: Tensor, ids: Tensor) -> Tensor:
    """Values of ids; ids beyond the tokenizer's (rows that pad an embedding matrix) are no part of
    any word.
    """
    known = len(table)
    return table.to(ids.device)[ids.clamp(max=known - 1)] & (ids < known)


def _marks(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[str]) -> tuple[str, str, str]:
    """What a piece of a new word begins with, what one that goes on begins with, and what the last
    of a word ends with.

    Each is "" where the vocabulary has no such mark. A single piece proves nothing: "Ġ" and "▁" are
    also letters.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        continued = getattr(backend.model, "continuing_subword_prefix", None) or ""
        return (
            _space_between_words(backend),
            continued,
            getattr(backend.model, "end_of_word_suffix", None) or "",
        )
    counts = Counter(
        mark for piece in pieces for mark in (*_SPACES, _CONTINUED) if piece.startswith(mark)
    )
    counts.update(_END for piece in pieces if piece.endswith(_END))
    most = counts.most_common(1)[0][0] if counts else ""
    return most * (most in _SPACES), most * (most == _CONTINUED), most * (most == _END)


def _space_between_words(backend: Tokenizer) -> str:
    """What the model of a tokenizer sees of the space between two words, "" where it sees none."""
    text = "1 2" if backend.normalizer is None else backend.normalizer.normalize_str("1 2")
    if backend.pre_tokenizer is not None:
        text = "".join(part for part, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return text.partition("1")[2].rpartition("2")[0]


def _decoded(tokenizer: PreTrainedTokenizerBase, count: int) -> list[str]:
    """The text of each token id by itself."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return backend.decode_batch([[index] for index in range(count)], skip_special_tokens=False)
    return [str(tokenizer.decode([index])) for index in range(count)]
