"""Texts as one stream of token ids, on disk and in rows of equal length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from backpack_rank.data.sampling import EpochSamplerBase
from backpack_rank.data.texts import Texts, is_held_out
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.files import atomic_path

_TEXTS = 1024
"""Texts that are tokenised at once."""


@dataclass(frozen=True)
class TokenCorpus:
    """A folder with the tokens of two sets of documents: those to train on and those held out.

    Each file is one stream ``end, document, end, document, end, ...``, so every token but the first has one before it.

    Attributes:
        folder: with ``train.tokens`` and ``held_out.tokens``, raw numbers of type ``dtype``.
        dtype: name of the number format, the narrowest that holds the vocabulary.
        end_id: token behind each document; no document has it inside.
        train_tokens: tokens to predict in training, end tokens included; likewise ``held_out_tokens``.
        train_documents: documents that are not empty; likewise ``held_out_documents``.
    """

    folder: Path
    dtype: str
    end_id: int
    train_tokens: int
    train_documents: int
    held_out_tokens: int
    held_out_documents: int

    @cached_property
    def train(self) -> np.ndarray:
        """The training stream, read from disk where it is looked at. [train_tokens + 1]"""
        return self._stream("train")

    @cached_property
    def held_out(self) -> np.ndarray:
        """The stream of the documents held out. [held_out_tokens + 1]"""
        return self._stream("held_out")

    def held_out_windows(self, length: int) -> list[np.ndarray]:
        """The held-out documents, each alone and cut where it is longer than ``length`` tokens. Longest first.

        Returns:
            Pieces of at most ``length + 1`` ids; what stands before the first token to predict comes first (the end
            token, or the token before the cut). Every token of the stream but its first is predicted once.
        """
        stream = self.held_out
        ends = np.flatnonzero(stream == self.end_id)
        pieces = [
            stream[start : min(start + length, last) + 1]
            for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
            for start in range(first, last, length)
        ]
        return sorted(pieces, key=len, reverse=True)

    def _stream(self, name: str) -> np.ndarray:
        return np.memmap(self.folder / f"{name}.tokens", dtype=self.dtype, mode="r")

    def __getstate__(self) -> dict:
        # A process that gets a copy opens the files itself: a memory map would be sent as all that it maps.
        return {name: value for name, value in self.__dict__.items() if name not in ("train", "held_out")}


def write_corpus(folder: Path, texts: Texts, encoder: PairEncoder, share: float, seed: int) -> TokenCorpus:
    """Tokenise documents in one pass and write them to a folder, complete or not at all.

    Args:
        texts: the documents; only a few are in memory at a time.
        encoder: gives the token ids and the end token.
        share: of the documents that are held out, by a hash of their text and ``seed``.

    Raises:
        ValueError: one of the two sets is empty.
    """
    dtype = "uint16" if len(encoder.tokenizer) <= 2**16 else "uint32"
    tokens, documents = [0, 0], [0, 0]
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        with open(temporary / "train.tokens", "wb") as train, open(temporary / "held_out.tokens", "wb") as held_out:
            files = (train, held_out)
            for file in files:
                file.write(np.array([encoder.end_id], dtype=dtype).tobytes())
            for text, ids in encoded_texts(texts, encoder):
                side = int(is_held_out(text, share, seed))
                files[side].write(np.append(ids, encoder.end_id).astype(dtype).tobytes())
                tokens[side] += len(ids) + 1
                documents[side] += 1
        if not min(documents):
            which = "to train on" if not documents[0] else "to measure perplexity on"
            raise ValueError(
                f"of {sum(documents)} documents none is left {which}: task.held_out={share:g} is the share of the "
                "documents that are held out; change it or give more texts"
            )
        corpus = TokenCorpus(folder, dtype, encoder.end_id, tokens[0], documents[0], tokens[1], documents[1])
        facts = {name: value for name, value in asdict(corpus).items() if name != "folder"}
        (temporary / "corpus.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return corpus


def read_corpus(folder: Path) -> TokenCorpus:
    """What :func:`write_corpus` wrote. Raises ``FileNotFoundError`` when there is nothing."""
    return TokenCorpus(folder, **json.loads((folder / "corpus.json").read_text(encoding="utf-8")))


class TokenRows(Dataset):
    """A training stream in rows of ``length + 1`` ids, ``length`` of them to predict.

    A row starts with the last token of the one before, so every token is predicted. The last row is filled up with the
    tokens before it, which are then seen twice.
    """

    def __init__(self, corpus: TokenCorpus, length: int) -> None:
        """Raises ``ValueError`` when there is less text than one row."""
        if corpus.train_tokens < length:
            raise ValueError(
                f"{corpus.train_tokens} tokens of text are less than task.sequence_length={length}; "
                "shorten it or give more texts"
            )
        self.corpus = corpus
        self.length = length

    def __len__(self) -> int:
        return -(-self.corpus.train_tokens // self.length)

    def __getitem__(self, index: int) -> Tensor:
        """One row of ids. [length + 1]"""
        start = min(index * self.length, self.corpus.train_tokens - self.length)
        return torch.from_numpy(self.corpus.train[start : start + self.length + 1].astype(np.int64))


class RowSampler(EpochSamplerBase[int]):
    """Row numbers epoch by epoch: every row once, in an order of its own for each pass, then the next pass.

    What an epoch has depends on seed and epoch alone.

    Attributes:
        rows: how many there are.
        per_epoch: rows of an epoch; None is all of them.
    """

    def __init__(self, rows: int, per_epoch: int | None, seed: int, rank: int = 0, world_size: int = 1) -> None:
        super().__init__(per_epoch or rows, rank, world_size)
        self.rows = rows
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        places = self.epoch * self.per_epoch + np.arange(self.rank, len(self) * self.world_size, self.world_size)
        for number in np.unique(places // self.rows):
            order = np.random.default_rng([self.seed, int(number)]).permutation(self.rows)
            yield from order[places[places // self.rows == number] % self.rows].tolist()


def encoded_texts(texts: Iterable[str], encoder: PairEncoder) -> Iterator[tuple[str, np.ndarray]]:
    """Texts with their token ids, tokenised some at a time; texts without a token are left out."""
    remaining = iter(texts)
    while chunk := list(islice(remaining, _TEXTS)):
        for text, ids in zip(chunk, encoder.encode(chunk), strict=True):
            if len(ids):
                yield text, ids
