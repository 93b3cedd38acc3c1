"""Training of a causal language model as a listwise ranker (FIRST and DebiasFirst): losses and
module.

All losses take scores [..., m] (the logits of the identifiers at the first generated token), target
ranks [..., m] from 0, and a mask [..., m] that is True where the list has a passage; what stands
where the mask is False plays no part. All give the mean over lists of the sums that the equations
give for one list, as a scalar in float32.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from transformers import PreTrainedModel

from backpack_rank.checks import at_least, finite
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.passages import ListwiseExample
from backpack_rank.position.lists.prompt import PromptTokenizer
from backpack_rank.position.lists.sorting_scores import sorting_scores
from backpack_rank.position.lists.training_data import ListwiseBatch
from backpack_rank.training.module import OptimizerConfig, seed_epoch

log = logging.getLogger(__name__)
TAU, NDCG = "val/kendall_tau", "val/nDCG@10"
_NDCG = "nDCG@10"


def rank_loss(
    scores: Tensor,
    ranks: Tensor,
    mask: Tensor,
    levels: Tensor | None = None,
    inverse: Tensor | None = None,
) -> Tensor:
    """L_rank (eq. 2), or with inverse propensities L_rank-IPS (eq. 4).

    L = sum over pairs with pi(i) < pi(j) of log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) * v_i * v_j,
    where pi(i) is the target rank of passage i from 1 and v_i = 1 / w[i, pi(i)], or 1. Lists
    without a pair count with a loss of 0.

    Args:
        levels: pairs of the same level are ties and left out [..., m]; None has no ties.
        inverse: v, from :meth:`~backpack_rank.position.lists.propensity.Propensities.inverse` by
            input position and target rank, [..., m]; None leaves all pairs as they are.
    """
    losses = pair_losses(scores.float(), ranks, mask, levels)
    if inverse is not None:
        own = inverse.to(losses.dtype).masked_fill(~mask, 0.0)
        losses = losses * own[..., :, None] * own[..., None, :]
    return losses.sum(dim=(-2, -1)).mean()


def pair_losses(
    scores: Tensor, ranks: Tensor, mask: Tensor, levels: Tensor | None = None
) -> Tensor:
    """log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) of the pairs with pi(i) < pi(j), 0 for all others.
    [..., m, m]
    """
    scores = scores.masked_fill(~mask, 0.0)  # a nan among them would reach the gradient
    losses = F.softplus(scores[..., None, :] - scores[..., :, None])
    return losses * pair_weights(ranks, mask, levels)


def pair_weights(ranks: Tensor, mask: Tensor, levels: Tensor | None = None) -> Tensor:
    """1 / (pi(i) + pi(j)) for the pairs of passages with pi(i) < pi(j) that are not tied, else 0.
    [..., m, m]
    """
    order = ranks if levels is None else levels
    wanted = order[..., :, None] < order[..., None, :]
    wanted = wanted & mask[..., :, None] & mask[..., None, :]
    sums = (ranks[..., :, None] + ranks[..., None, :] + 2).float()  # ranks count from 0 here
    return torch.where(wanted, 1.0 / sums.clamp(min=1.0), torch.zeros_like(sums))


def lm_loss(logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """L_LM (eq. 1): - sum over the tokens of a target ranking of log P(y_t | prompt, y_<t), mean
    over lists.

    Args:
        logits: at the token before each target. [L, n, V]
        targets: token ids, anything where there is none. [L, n]
        known: True where there is a target. [L, n]
    """
    losses = F.cross_entropy(logits[known].float(), targets[known], reduction="sum")
    return losses / len(targets)


def joint_loss(ranking: Tensor, language: Tensor | None, weight: float) -> Tensor:
    """lambda * L_rank + L_LM (eqs. 3 and 6); without a language-model term L_rank alone, which then
    needs no weight.
    """
    return ranking if language is None else weight * ranking + language


@dataclass(frozen=True)
class ListwiseObjective:
    """What is minimised: lambda * L_rank + L_LM (DebiasFirst, eqs. 3 and 6).

    Attributes:
        weight: lambda, factor of L_rank beside L_LM; without L_LM it plays no part.
        language_model: whether L_LM takes part; else L_rank alone.
        noise: alpha of NEFTune (Jain et al. 2023), noise on the word embeddings while training; 0
            leaves it out.
        inverse: weights v of input position and target rank that make L_rank L_rank-IPS (eq. 4);
            None leaves them out. float [k, k]
    """

    weight: float = 0.1
    language_model: bool = True
    noise: float = 0.0
    inverse: np.ndarray | None = None

    def __post_init__(self) -> None:
        finite("task.weight", self.weight, 0)
        at_least("task.noise", self.noise, 0)
        if self.weight == 0 and not self.language_model:
            raise ValueError(
                "task.weight=0 with task.language_model=false leaves nothing to train on"
            )


class ListwiseModule(L.LightningModule):
    """Logs ``train/loss`` with its parts, and after every epoch Kendall's tau and nDCG@10 of
    held-out lists.

    Held-out lists are ranked by the ranker that is saved, from the logits of the first token.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pair_tokenizer: PromptTokenizer,
        optimisation: OptimizerConfig,
        objective: ListwiseObjective,
        held_out: Sequence[ListwiseExample],
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.pair_tokenizer = pair_tokenizer
        self.optimisation = optimisation
        self.objective = objective
        self.held_out = held_out
        self.seed = seed
        inverse = objective.inverse
        self.inverse = None if inverse is None else torch.as_tensor(inverse, dtype=torch.float32)
        self._keeps = "logits_to_keep" in signature(model.forward).parameters
        self._ranked: dict[int, np.ndarray] = {}

    def on_train_batch_start(self, batch: ListwiseBatch, batch_idx: int) -> None:
        """See :func:`~backpack_rank.training.module.seed_epoch`."""
        seed_epoch(self, self.seed, batch_idx)

    def training_step(self, batch: ListwiseBatch, batch_index: int) -> Tensor:
        """Joint loss of a batch of lists."""
        count = len(batch.ids)
        logits = self.answer_logits(batch)
        scores = logits[:, 0].gather(1, batch.identifiers)
        inverse = None if self.inverse is None else self._inverse(batch)
        ranking = rank_loss(scores, batch.ranks, batch.mask, batch.levels, inverse)
        language = (
            lm_loss(logits, batch.targets, batch.known) if self.objective.language_model else None
        )
        loss = joint_loss(ranking, language, self.objective.weight)
        # Of several processes the mean: each has a part of the batch.
        self.log("train/rank_loss", ranking, batch_size=count, sync_dist=True)
        if language is not None:
            self.log("train/lm_loss", language, batch_size=count, sync_dist=True)
        self.log("train/loss", loss, prog_bar=True, batch_size=count, sync_dist=True)
        return loss

    def answer_logits(self, batch: ListwiseBatch) -> Tensor:
        """Logits at the token before each token of the answers; without L_LM at the first alone.
        [B, t, V]
        """
        steps = batch.targets.shape[1] if self.objective.language_model else 1
        ids, first = batch.ids, batch.prompts - 1
        if steps == 1:
            ids = ids[:, : int(batch.prompts.max())]
        rows = torch.minimum(
            first[:, None] + torch.arange(steps, device=ids.device), batch.lengths[:, None] - 1
        )
        options: dict[str, Any] = {"use_cache": False}
        # Padding stands on the right, where a decoder does not look; the mask is for models that
        # count positions by it.
        options["attention_mask"] = (
            torch.arange(ids.shape[1], device=ids.device) < batch.lengths[:, None]
        ).long()
        options |= self._embedded(ids, batch) if self.objective.noise else {"input_ids": ids}
        if (
            self._keeps
        ):  # logits of a prompt's own tokens would be most of the work of a small model
            kept = torch.arange(int(first.min()), int(rows.max()) + 1, device=ids.device)
            options["logits_to_keep"] = kept
            rows = rows - kept[0]
        logits: Tensor = self.model(**options).logits
        return logits.gather(1, rows[:, :, None].expand(-1, -1, logits.shape[-1]))

    def on_validation_epoch_start(self) -> None:
        self._ranked = {}

    def validation_step(self, numbers: Tensor, batch_index: int) -> None:
        """Rank held-out lists; measures are computed once over all of them."""
        chosen = numbers.tolist()
        if not chosen:  # more processes than lists
            return
        ranker = CausalLmRanker(
            self.model, self.pair_tokenizer, mode="first_token", device=str(self.device)
        )
        rankings = ranker.rank([self.held_out[number].passages for number in chosen])
        self._ranked.update(
            (number, ranking.order) for number, ranking in zip(chosen, rankings, strict=True)
        )

    def on_validation_epoch_end(self) -> None:
        """Kendall's tau and nDCG@10 over all held-out lists, also when they are spread over
        processes.
        """
        if self.trainer.sanity_checking:
            return
        ranked = self._ranked
        if self.trainer.world_size > 1:
            gathered: list = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(gathered, ranked)
            ranked = {number: order for part in gathered for number, order in part.items()}
        rankings = [Ranking(ranked[number]) for number in range(len(self.held_out))]
        values = {TAU: kendall_tau(rankings, self.held_out), NDCG: ndcg(rankings, self.held_out)}
        for name, value in values.items():
            self.log(name, value, prog_bar=True, rank_zero_only=False, sync_dist=False)
        if self.trainer.is_global_zero:
            log.info(
                "epoch %d: Kendall's tau %.4f, nDCG@10 %.4f",
                self.current_epoch,
                values[TAU],
                values[NDCG],
            )

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule over the trainer's estimated number of steps."""
        return self.optimisation.configured(
            self.model, int(self.trainer.estimated_stepping_batches)
        )

    def _inverse(self, batch: ListwiseBatch) -> Tensor:
        """v by input position and target rank. [B, m]"""
        assert self.inverse is not None
        table = self.inverse = self.inverse.to(batch.ranks.device)
        positions = torch.arange(batch.ranks.shape[1], device=batch.ranks.device)
        return table[positions, batch.ranks]

    def _embedded(self, ids: Tensor, batch: ListwiseBatch) -> dict[str, Tensor]:
        return {
            "inputs_embeds": noisy(
                self.model.get_input_embeddings()(ids), batch.lengths, self.objective.noise
            )
        }


def noisy(embeddings: Tensor, lengths: Tensor, alpha: float) -> Tensor:
    """Word embeddings [B, n, d] with uniform noise in +- alpha / sqrt(L d), L the length of each
    text [B] (NEFTune).
    """
    size = alpha / (lengths * embeddings.shape[-1]).to(embeddings.dtype).sqrt()
    return embeddings + torch.empty_like(embeddings).uniform_(-1, 1) * size[:, None, None]


def kendall_tau(rankings: Sequence[Ranking], lists: Sequence[ListwiseExample]) -> float:
    """Mean Kendall's tau-b between rankings and target levels."""
    return sorting_scores(rankings, [item.relevance_levels for item in lists]).tau


def ndcg(rankings: Sequence[Ranking], lists: Sequence[ListwiseExample]) -> float:
    """Mean nDCG@10 by the lists' grades."""
    run = {
        str(number): {str(place): -float(rank) for place, rank in enumerate(ranking.ranks())}
        for number, ranking in enumerate(rankings)
    }
    qrels = {
        str(number): {str(place): int(grade) for place, grade in enumerate(item.grades)}
        for number, item in enumerate(lists)
    }
    return effectiveness(run, qrels, [_NDCG]).mean(_NDCG)
