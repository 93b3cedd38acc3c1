"""A short language-model warm-up on the collection's own text, for models that start from random weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from backpack_rank.data.token_rows import encoded_texts
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.build import Ranker
from backpack_rank.training.language_model import NextTokenModule
from backpack_rank.training.module import Optimisation


@dataclass(frozen=True)
class Warmup:
    """Next-token prediction before ranking training (``warmup`` in ``conf/train.yaml``).

    Attributes:
        epochs: passes over the text; 0 leaves the warm-up out.
        sequence_length: tokens per sequence; texts are joined with end tokens and cut into these.
        batch_size: sequences per step.
        learning_rate: highest learning rate.
        max_tokens: text taken from the collection at most.
    """

    epochs: int = 0
    sequence_length: int = 128
    batch_size: int = 16
    learning_rate: float = 1e-3
    max_tokens: int = 20_000_000

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.sequence_length < 2 or self.batch_size < 1 or self.max_tokens < 1:
            raise ValueError(
                f"warmup.epochs={self.epochs} must be >= 0, warmup.sequence_length={self.sequence_length} >= 2, "
                f"warmup.batch_size={self.batch_size} >= 1 and warmup.max_tokens={self.max_tokens} >= 1"
            )

    def sequences(self, texts: Iterable[str], encoder: PairEncoder) -> Tensor:
        """The texts as rows of ``sequence_length`` token ids. [N, n]

        Raises:
            ValueError: there is less text than one row.
        """
        parts: list[np.ndarray] = []
        total = 0
        for _, ids in encoded_texts(texts, encoder):
            parts.append(np.append(ids, np.int32(encoder.end_id)))
            total += len(parts[-1])
            if total >= self.max_tokens:
                break
        tokens = np.concatenate(parts)[: self.max_tokens] if parts else np.empty(0, dtype=np.int32)
        rows = len(tokens) // self.sequence_length
        if rows == 0:
            raise ValueError(
                f"{len(tokens)} tokens of text are less than warmup.sequence_length={self.sequence_length}; "
                "shorten it or set warmup.epochs=0"
            )
        return torch.from_numpy(tokens[: rows * self.sequence_length].astype(np.int64)).view(rows, -1)

    def loader(self, sequences: Tensor, seed: int) -> DataLoader:
        """Shuffled batches of rows."""
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(TensorDataset(sequences), batch_size=self.batch_size, shuffle=True, generator=generator)


class LanguageModelModule(NextTokenModule):
    """Trains a ranker's network on next-token prediction with the tied word embeddings as its head."""

    logged = "warmup/loss"
    model: Ranker

    def __init__(self, ranker: Ranker, optimisation: Optimisation) -> None:
        super().__init__(ranker, optimisation)
        if getattr(ranker.config, "pooling", "last") != "last":
            raise ValueError("an encoder is no language model: set warmup.epochs=0")

    def mean_loss(self, rows: Tensor) -> Tensor:
        """Mean next-token loss of [B, n] token ids. Raises ``ValueError`` when n - 1 exceeds the positions."""
        if rows.shape[1] - 1 > self.model.config.n_positions:
            raise ValueError(
                f"warmup.sequence_length={rows.shape[1]} exceeds the ranker's {self.model.config.n_positions} "
                "positions by more than one; shorten it"
            )
        logits = self.model.lm_logits(rows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
