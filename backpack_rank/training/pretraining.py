"""A short language-model warm-up on a collection's text, for models with random weights."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from backpack_rank.constructors import Count, CountOrZero, LearningRate, Range, checked
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.module import OptimizerConfig

_TEXTS = 1024
"""Texts that are tokenised at once."""


@checked("pretraining")
class Pretraining:
    """A ranker with random weights: next-token prediction before ranking training.

        pretraining = Pretraining(epochs=1)
        rows = pretraining.sequences(texts, pair_tokenizer)
        module = LanguageModelModule(ranker, OptimizerConfig(pretraining.learning_rate))
        trainer.fit(module, pretraining.loader(rows, seed=0))

    It is ``pretraining`` in ``conf/train.yaml``.
    """

    def __init__(
        self,
        epochs: CountOrZero = 0,
        sequence_length: Annotated[int, Range(least=2, most=1_000_000)] = 128,
        batch_size: Count = 16,
        learning_rate: LearningRate = 1e-3,
        max_tokens: Annotated[int, Range(least=1)] = 20_000_000,
    ) -> None:
        """
        Args:
            epochs: passes over the text; 0: no warm-up.
            sequence_length: tokens per sequence; texts are joined with end tokens and cut into
                these.
            batch_size: sequences per step.
            learning_rate: highest learning rate.
            max_tokens: text taken from the collection at most.
        """
        self.epochs = epochs
        self.sequence_length = sequence_length
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_tokens = max_tokens

    def sequences(self, texts: Iterable[str], pair_tokenizer: PairTokenizer) -> Tensor:
        """The texts as rows of ``sequence_length`` token ids. [N, n]

        Raises:
            ValueError: there is less text than one row.
        """
        end_id = np.int32(pair_tokenizer.end_id)
        parts = [np.empty(0, dtype=np.int32)]
        total = 0
        remaining = iter(texts)
        # Only as much of a large collection is read as is needed.
        while total < self.max_tokens:
            chunk = list(islice(remaining, _TEXTS))
            if not chunk:
                break
            for ids in pair_tokenizer.encode(chunk):
                if len(ids):
                    parts.append(np.append(ids, end_id))
                    total += len(ids) + 1
        tokens = np.concatenate(parts)[: self.max_tokens]
        rows = len(tokens) // self.sequence_length
        if rows == 0:
            raise ValueError(
                f"{len(tokens)} tokens of text are less than "
                f"pretraining.sequence_length={self.sequence_length}; shorten it or set "
                "pretraining.epochs=0"
            )
        tokens = tokens[: rows * self.sequence_length]
        return torch.from_numpy(tokens.astype(np.int64)).view(rows, -1)

    def loader(self, sequences: Tensor, seed: int) -> DataLoader:
        """Shuffled batches of rows."""
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(
            TensorDataset(sequences), batch_size=self.batch_size, shuffle=True, generator=generator
        )


class LanguageModelModule(L.LightningModule):
    """Trains a ranker's network on next-token prediction; :class:`Pretraining` shows it.

    The head is the ranker's word embeddings.
    """

    def __init__(self, ranker: Ranker, optimisation: OptimizerConfig) -> None:
        super().__init__()
        reads_left_to_right = getattr(ranker.config, "reads_left_to_right", True)
        if not hasattr(ranker, "lm_logits") or not reads_left_to_right:
            raise ValueError(
                f"this {type(ranker).__name__} predicts no next token: use pretraining.epochs=0"
            )
        self.ranker = ranker
        self.optimisation = optimisation

    def training_step(self, batch: list[Tensor], batch_index: int) -> Tensor:
        """Mean next-token loss of token ids [B, n].

        Raises:
            ValueError: n - 1 exceeds the ranker's positions.
        """
        (rows,) = batch
        positions = self.ranker.config.n_positions
        if rows.shape[1] - 1 > positions:
            raise ValueError(
                f"pretraining.sequence_length={rows.shape[1]} exceeds the ranker's {positions} "
                "positions by more than one; shorten it"
            )
        # Each token but the last is read, and each but the first is predicted.
        logits: Tensor = self.ranker.lm_logits(rows[:, :-1])  # type: ignore[operator]
        loss = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())
        self.log("warmup/loss", loss, prog_bar=True, batch_size=len(rows), sync_dist=True)
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over all steps."""
        steps = int(self.trainer.estimated_stepping_batches)
        return self.optimisation.configured(self.ranker, steps)
