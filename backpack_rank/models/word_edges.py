"""Where words begin and end in a row of tokens: " she" is a word in "she saw", a piece in "sheets" (" she", "ets")."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

_SPACES = ("Ġ", "▁")
_PIECE = "##"


@dataclass(frozen=True, eq=False)
class WordEdges:
    """What a token does to the word that it stands in, by token id.

    Attributes:
        continues: it goes on with the word before it, if that ends in a letter or digit. bool [vocabulary]
        open_end: it ends in a letter or digit, so a continuing token after it is of the same word. bool [vocabulary]
    """

    continues: Tensor
    open_end: Tensor

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> WordEdges:
        """Read off the vocabulary: leading spaces (byte-level BPE, SentencePiece), "##" (WordPiece), or whole words."""
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = set(tokenizer.all_special_ids)
        spaced = any(piece.startswith(_SPACES) for piece in pieces)
        continues, open_end = [], []
        for index, piece in enumerate(pieces):
            text = "" if index in special else str(tokenizer.decode([index])) if spaced else piece
            starts = piece.startswith(_SPACES)
            continues.append(not starts and text[:1].isalnum() if spaced else piece.startswith(_PIECE))
            open_end.append(text[-1:].isalnum())
        return cls(torch.tensor(continues), torch.tensor(open_end))

    def whole_words(self, ids: Tensor) -> Tensor:
        """Which tokens of a row are words by themselves, neither begun before nor continued after. [T] -> bool [T]"""
        size = int(ids.max()) + 1
        continues, open_end = _on(self.continues, size, ids), _on(self.open_end, size, ids)
        joined = continues[1:] & open_end[:-1]  # this token and the one before it are parts of one word
        edge = joined.new_zeros(1)
        return ~torch.cat([edge, joined]) & ~torch.cat([joined, edge])


def _on(table: Tensor, size: int, ids: Tensor) -> Tensor:
    """Values of ids; ids beyond the tokenizer's (rows that pad an embedding matrix) are no part of any word."""
    if size > len(table):
        table = torch.cat([table, table.new_zeros(size - len(table))])
    return table.to(ids.device)[ids]
