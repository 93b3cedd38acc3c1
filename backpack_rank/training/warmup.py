"""A short language-model warm-up on the collection's own text, for models that start from random weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.models.backbone import EncoderBackpackForRanking
from backpack_rank.models.build import Ranker
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
        end = np.array([encoder.end_id], dtype=np.int32)
        for chunk in _chunks(texts, 1024):
            for ids in encoder.encode(chunk):
                parts += [ids, end]
                total += len(ids) + 1
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


class LanguageModelModule(L.LightningModule):
    """Trains a ranker's network on next-token prediction with the tied word embeddings as its head."""

    def __init__(self, ranker: Ranker, optimisation: Optimisation) -> None:
        super().__init__()
        if isinstance(ranker, EncoderBackpackForRanking):
            raise ValueError("an encoder is no language model: set warmup.epochs=0")
        self.ranker = ranker
        self.optimisation = optimisation

    def training_step(self, batch: list[Tensor], batch_index: int) -> Tensor:
        """Mean next-token loss of [B, n] token ids. Raises ``ValueError`` when n - 1 exceeds the positions."""
        (input_ids,) = batch
        if input_ids.shape[1] - 1 > self.ranker.config.n_positions:
            raise ValueError(
                f"warmup.sequence_length={input_ids.shape[1]} exceeds the ranker's {self.ranker.config.n_positions} "
                "positions by more than one; shorten it"
            )
        logits = self.ranker.lm_logits(input_ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), input_ids[:, 1:].flatten())
        self.log("warmup/loss", loss, prog_bar=True, batch_size=len(input_ids))
        return loss

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's estimated number of steps."""
        optimizer = self.optimisation.optimizer(self.ranker)
        schedule = self.optimisation.schedule(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _chunks(texts: Iterable[str], size: int) -> Iterable[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
