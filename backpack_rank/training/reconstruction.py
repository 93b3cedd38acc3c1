"""A warm-up that distils a pretrained backbone into the mix of senses, on texts without labels.

The sense network and the weight network learn to give the pooled vector of the backbone, which a
ranking head on a plain cross-encoder reads; or, of a Backpack that gives vectors, those of its
encoder. The backbone is not trained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.utils.data import DataLoader

from backpack_rank.constructors import MOST, Count, CountOrZero, LearningRate, Range, checked
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking, SenseRanker
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.utils import eval_mode
from backpack_rank.training.module import OptimizerConfig

log = logging.getLogger(__name__)
SCALE = 20.0
"""Of cosines in a softmax, the inverse of the temperature that encoders are trained with."""


@checked("reconstruct")
@dataclass(frozen=True)
class Reconstruction:
    """How long and on what senses reconstruct a backbone.

        texts, held_out = Reconstruction(steps=500).split(token_ids)

    It is ``reconstruct`` in ``conf/train.yaml``.

    Attributes:
        steps: of the optimiser; 0 leaves the warm-up out.
        texts: (query, document) texts to learn from at most.
        held_out: further texts that the explained variance is measured on.
        batch_size: texts per step.
        learning_rate: highest learning rate.
    """

    steps: CountOrZero = 0
    texts: Count = 20_000
    held_out: Annotated[int, Range(least=2, most=MOST)] = 500
    batch_size: Count = 32
    learning_rate: LearningRate = 2e-3

    def split(self, texts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Texts to learn from and held-out ones, the first; of few texts a fifth is held out.

        Raises:
            ValueError: fewer than ten texts.
        """
        if len(texts) < 10:
            raise ValueError(
                f"{len(texts)} texts are too few for a reconstruction; set reconstruct.steps=0"
            )
        held = min(self.held_out, len(texts) // 5)
        return list(texts[held:]), list(texts[:held])

    def loader(
        self,
        texts: Sequence[np.ndarray],
        seed: int,
        collate: Callable[[list[np.ndarray]], Any] = PackedBatch.from_sequences,
    ) -> DataLoader:
        """Shuffled batches of texts, as ``collate`` makes them; by default without padding."""
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(
            texts,  # type: ignore[arg-type]
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=len(texts) >= self.batch_size,
            generator=generator,
            collate_fn=collate,
        )


@dataclass(frozen=True, eq=False)
class Reconstructed:
    """Shows how close the mix of senses is to the backbone's pooled vector.

        print(Reconstructed.on(ranker, held_out))

    Both are taken less their means.

    Attributes:
        explained: share of the pooled vector's variance, 1 - var(pooled - mix) / var(pooled); below
            0 for a mix that is worse than none.
        cosine: mean over texts.
        mean: of the pooled vector. [d]
        variance: of the pooled vector, summed over its dimensions.
    """

    explained: float
    cosine: float
    mean: Tensor
    variance: float

    @classmethod
    @torch.no_grad()
    def on(
        cls, ranker: BackpackForRanking, texts: Sequence[np.ndarray], batch_size: int = 32
    ) -> Reconstructed:
        """Measure on texts, without dropout.

        Raises:
            ValueError: the pooled vector is the same for all texts.
        """
        backpack = ranker.backpack
        device = backpack.get_input_embeddings().weight.device
        with eval_mode(ranker):
            mixes: list[Tensor] = []
            pooled_vectors: list[Tensor] = []
            for start in range(0, len(texts), batch_size):
                batch = PackedBatch.from_sequences(texts[start : start + batch_size]).to(device)
                mix_of_batch, pooled_of_batch = mixed_and_pooled(backpack, batch)
                mixes.append(mix_of_batch)
                pooled_vectors.append(pooled_of_batch)
        mix = torch.cat(mixes).double()
        mix = mix - mix.mean(dim=0)
        pooled = torch.cat(pooled_vectors).double()
        mean = pooled.mean(dim=0)
        pooled = pooled - mean
        variance = float(pooled.square().sum(dim=-1).mean())
        if not variance > 0:
            raise ValueError(
                f"the backbone gives all {len(texts)} held-out texts the same vector; take other "
                "texts"
            )
        explained = 1 - float((pooled - mix).square().sum(dim=-1).mean()) / variance
        cosine = float(torch.cosine_similarity(mix, pooled, dim=-1).mean())
        return cls(explained, cosine, mean.float(), variance)

    def __str__(self) -> str:
        explained = f"{self.explained:.3f} of the pooled vector's variance explained"
        return f"{explained}, cosine {self.cosine:.3f}"


class ReconstructionModule(L.LightningModule):
    """Trains senses and weights so that their mix is the pooled vector less its mean.

        module = ReconstructionModule(ranker, OptimizerConfig(2e-3), held_out)
        with train_senses_only(ranker):
            trainer.fit(module, reconstruction.loader(texts, seed=0))

    It logs ``reconstruct/loss``.

    The mean, which most of a pooled vector often is, says nothing about a text: in the senses it
    would make all tokens more similar. The loss is the share of the variance that is not explained
    plus 1 - cosine, in which short and long vectors count the same; mean and variance are those of
    held-out texts, on which ``before`` and ``after`` are measured when training begins and ends.
    """

    before: Reconstructed
    after: Reconstructed

    def __init__(
        self,
        ranker: BackpackForRanking,
        optimisation: OptimizerConfig,
        held_out: Sequence[np.ndarray],
    ) -> None:
        super().__init__()
        self.ranker = ranker
        self.optimisation = optimisation
        self.held_out = held_out

    def on_fit_start(self) -> None:
        """Measure where the model computes, which a trainer has moved it to."""
        self.before = Reconstructed.on(self.ranker, self.held_out)
        log.info("reconstruction: at first %s", self.before)

    def training_step(self, batch: PackedBatch, batch_index: int) -> Tensor:
        """Mean squared error over the variance of the pooled vector, plus 1 - cosine."""
        mix, pooled = mixed_and_pooled(self.ranker.backpack, batch)
        mix = mix.float()
        target = pooled.float() - self.before.mean
        unexplained = (mix - target).square().sum(dim=-1).mean() / self.before.variance
        loss = unexplained + 1 - torch.cosine_similarity(mix, target, dim=-1).mean()
        self.log("reconstruct/loss", loss, prog_bar=True, batch_size=len(batch), sync_dist=True)
        return loss

    def on_train_end(self) -> None:
        """Measure again."""
        self.after = Reconstructed.on(self.ranker, self.held_out)
        log.info("reconstruction: after %d steps %s", self.trainer.global_step, self.after)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's steps."""
        return self.optimisation.configured(
            self.ranker, int(self.trainer.estimated_stepping_batches)
        )


class VectorReconstruction(L.LightningModule):
    """Trains senses and weights so that documents have the vectors that the encoder makes of them.

        module = VectorReconstruction(ranker, OptimizerConfig(2e-3), held_out)
        with train_senses_only(ranker):
            trainer.fit(module, reconstruction.loader(texts, seed=0, collate=module.collate))

    It logs ``reconstruct/loss``: 1 - the cosine of the two vectors, and half of the divergence from
    the encoder's ranking of the batch's documents for each of its queries, a softmax over
    :data:`SCALE` times the cosines.
    """

    before: float
    after: float

    def __init__(
        self,
        ranker: BackpackEncoderForRanking,
        optimisation: OptimizerConfig,
        held_out: Sequence[np.ndarray],
    ) -> None:
        super().__init__()
        self.ranker = ranker
        self.optimisation = optimisation
        self.held_out = held_out

    def collate(self, rows: list[np.ndarray]) -> tuple[PackedBatch, PackedBatch]:
        """Queries and documents of rows."""
        queries, documents = [], []
        for row in rows:
            query, (document,) = self.ranker.parts_of_row(row)
            queries.append(query)
            documents.append(document)
        return PackedBatch.from_sequences(queries), PackedBatch.from_sequences(documents)

    @torch.no_grad()
    def cosine(self, batch_size: int = 32) -> float:
        """Mean over held-out documents, of their vector and the encoder's."""
        cosines: list[Tensor] = []
        with eval_mode(self.ranker):
            for start in range(0, len(self.held_out), batch_size):
                rows = list(self.held_out[start : start + batch_size])
                _, documents = self.collate(rows)
                vectors, targets = self.ranker.vectors_and_targets(documents.to(self.device))
                cosines.append((vectors * targets).sum(dim=-1))
        return float(torch.cat(cosines).double().mean())

    def on_fit_start(self) -> None:
        """Measure where the model computes, which a trainer has moved it to."""
        self.before = self.cosine()
        log.info("reconstruction: at first cosine %.3f", self.before)

    def training_step(self, batch: tuple[PackedBatch, PackedBatch], batch_index: int) -> Tensor:
        """1 - cosine, plus half of the divergence of rankings."""
        queries, documents = batch
        vectors, targets = self.ranker.vectors_and_targets(documents)
        wanted = SCALE * self.ranker.encoder_vectors(queries)
        divergence = F.kl_div(
            (wanted @ vectors.T).log_softmax(dim=-1),
            (wanted @ targets.T).softmax(dim=-1),
            reduction="batchmean",
        )
        loss = 1 - (vectors * targets).sum(dim=-1).mean() + divergence / 2
        size = len(documents)
        self.log("reconstruct/loss", loss, prog_bar=True, batch_size=size, sync_dist=True)
        return loss

    def on_train_end(self) -> None:
        """Measure again."""
        self.after = self.cosine()
        steps = self.trainer.global_step
        log.info("reconstruction: after %d steps cosine %.3f", steps, self.after)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's steps."""
        return self.optimisation.configured(
            self.ranker, int(self.trainer.estimated_stepping_batches)
        )


def mixed_and_pooled(backpack: BackpackModel, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Compare senses with the backbone: both vectors of each text. Two [B, d]

        mix, pooled = mixed_and_pooled(ranker.backpack, batch)

    The first is the sum over senses, the second the backbone's last hidden state, at the pooled
    token.

    The backbone reads the texts once, without gradients.
    """
    batch = backpack.read(batch)
    with torch.no_grad():
        pooled, of_keys = backpack.weight_states(batch)
    weights = backpack.sense_weight_net.weights(pooled, of_keys, batch)
    return backpack.weighted_senses(weights, batch, split=False).sum(dim=1), pooled


@contextmanager
def train_senses_only(ranker: SenseRanker) -> Iterator[None]:
    """A ``with`` block in which all but senses and weights is frozen, without dropout.

    with train_senses_only(ranker):
        trainer.fit(module, loader)
    """
    backpack = ranker.backpack
    trained: set[int] = set()
    for part in (backpack.sense_network, backpack.sense_weight_net):
        trained.update(id(parameter) for parameter in part.parameters())
    # What is frozen already must stay frozen afterwards.
    frozen: list[torch.nn.Parameter] = []
    for parameter in ranker.parameters():
        if parameter.requires_grad and id(parameter) not in trained:
            frozen.append(parameter)
    try:
        for parameter in frozen:
            parameter.requires_grad_(False)
        with eval_mode(ranker):
            yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
