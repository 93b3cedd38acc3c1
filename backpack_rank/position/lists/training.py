"""Losses and module that train a causal language model as a listwise ranker.

They are those of FIRST and DebiasFirst; numbers of equations are DebiasFirst's.

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
    """Train the scores of lists to sort into target ranks.

    It is L_rank (eq. 2), or with inverse propensities L_rank-IPS (eq. 4):

    L = sum over pairs with pi(i) < pi(j) of log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) * v_i * v_j,
    where pi(i) is the target rank of passage i from 1 and v_i = 1 / w[i, pi(i)], or 1. Lists
    without a pair count with a loss of 0.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> loss = rank_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0, 1]]), mask)
    >>> round(float(loss), 4)  # log(2) / (1 + 2)
    0.231

    Args:
        levels: pairs of the same level are ties and left out [..., m]; None has no ties.
        inverse: v, from :meth:`~backpack_rank.position.lists.propensity.Propensities.inverse` by
            input position and target rank, [..., m]; None weighs no pair.
    """
    losses = pair_losses(scores.float(), ranks, mask, levels)
    if inverse is not None:
        weights = inverse.to(losses.dtype).masked_fill(~mask, 0.0)
        losses = losses * weights[..., :, None] * weights[..., None, :]
    return losses.sum(dim=(-2, -1)).mean()


def pair_losses(
    scores: Tensor, ranks: Tensor, mask: Tensor, levels: Tensor | None = None
) -> Tensor:
    """The terms of eq. 2, by pair. [..., m, m]

    They are log(1 + exp(s_j - s_i)) / (pi(i) + pi(j)) where pi(i) < pi(j), and 0 elsewhere.
    """
    # A NaN behind the mask would reach the gradient: NaN times 0 is NaN.
    scores = scores.masked_fill(~mask, 0.0)
    losses = F.softplus(scores[..., None, :] - scores[..., :, None])
    return losses * pair_weights(ranks, mask, levels)


def pair_weights(ranks: Tensor, mask: Tensor, levels: Tensor | None = None) -> Tensor:
    """The weights of pairs: 1 / (pi(i) + pi(j)) where pi(i) < pi(j). [..., m, m]

    >>> weights = pair_weights(torch.tensor([0, 1]), torch.tensor([True, True]))
    >>> round(float(weights[0, 1]), 2)  # 1 / (1 + 2)
    0.33

    Tied pairs weigh 0.
    """
    order = ranks if levels is None else levels
    wanted = order[..., :, None] < order[..., None, :]
    wanted = wanted & mask[..., :, None] & mask[..., None, :]
    sums = (ranks[..., :, None] + ranks[..., None, :] + 2).float()  # ranks count from 0 here
    return torch.where(wanted, 1.0 / sums.clamp(min=1.0), torch.zeros_like(sums))


def lm_loss(logits: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """L_LM (eq. 1), the loss of generated answers, as the mean over lists.

    For a list it is - sum over the tokens y_t of its target ranking of log P(y_t | prompt, y_<t).

    Args:
        logits: at the token before each target. [L, n, V]
        targets: token ids, anything where there is none. [L, n]
        known: True where there is a target. [L, n]
    """
    losses = F.cross_entropy(logits[known].float(), targets[known], reduction="sum")
    return losses / len(targets)


def joint_loss(ranking: Tensor, language: Tensor | None, weight: float) -> Tensor:
    """Join both losses: lambda * L_rank + L_LM (eqs. 3 and 6).

    >>> loss = joint_loss(torch.tensor(2.0), torch.tensor(1.0), weight=0.1)
    >>> round(float(loss), 1)
    1.2

    Without a language-model term it is L_rank alone, which then needs no weight.
    """
    if language is None:
        return ranking
    return weight * ranking + language


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
    """Trains a listwise ranker, with a Lightning trainer.

    It logs ``train/loss`` with its parts, and after every epoch Kendall's tau and nDCG@10 of
    held-out lists::

        module = ListwiseModule(model, pair_tokenizer, optimisation, ListwiseObjective(), held_out)
        trainer.fit(module, ListwiseData(source, held_out, pair_tokenizer, augmentation))

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
        self._takes_logits_to_keep = "logits_to_keep" in signature(model.forward).parameters
        self._orders: dict[int, np.ndarray] = {}  # of held-out lists, by number

    def on_train_batch_start(self, batch: ListwiseBatch, batch_idx: int) -> None:
        """See :func:`~backpack_rank.training.module.seed_epoch`."""
        seed_epoch(self, self.seed, batch_idx)

    def training_step(self, batch: ListwiseBatch, batch_index: int) -> Tensor:
        """Joint loss of a batch of lists."""
        count = len(batch.ids)
        logits = self.answer_logits(batch)
        scores = logits[:, 0].gather(1, batch.identifiers)
        ranking = rank_loss(scores, batch.ranks, batch.mask, batch.levels, self._inverse(batch))
        language = None
        if self.objective.language_model:
            language = lm_loss(logits, batch.targets, batch.known)
        loss = joint_loss(ranking, language, self.objective.weight)
        # Of several processes the mean: each has a part of the batch.
        self.log("train/rank_loss", ranking, batch_size=count, sync_dist=True)
        if language is not None:
            self.log("train/lm_loss", language, batch_size=count, sync_dist=True)
        self.log("train/loss", loss, prog_bar=True, batch_size=count, sync_dist=True)
        return loss

    def answer_logits(self, batch: ListwiseBatch) -> Tensor:
        """Logits at the token before each token of the answers. [B, t, V]

        Without L_LM they are those at the first token alone, t = 1.
        """
        ids = batch.ids
        device = ids.device
        steps = batch.targets.shape[1] if self.objective.language_model else 1
        if steps == 1:
            ids = ids[:, : int(batch.prompts.max())]
        first = batch.prompts - 1
        # Short answers repeat their last token; the mask of targets leaves that out of the loss.
        rows = first[:, None] + torch.arange(steps, device=device)
        rows = torch.minimum(rows, batch.lengths[:, None] - 1)

        options: dict[str, Any] = {"use_cache": False}
        # Padding stands on the right, where a decoder does not look; the mask is for models that
        # count positions by it.
        mask = torch.arange(ids.shape[1], device=device) < batch.lengths[:, None]
        options["attention_mask"] = mask.long()
        if self.objective.noise:
            embeddings = self.model.get_input_embeddings()(ids)
            options["inputs_embeds"] = noisy(embeddings, batch.lengths, self.objective.noise)
        else:
            options["input_ids"] = ids
        if self._takes_logits_to_keep:
            # Logits of the prompts' tokens would be most of the work of a small model.
            kept = torch.arange(int(first.min()), int(rows.max()) + 1, device=device)
            options["logits_to_keep"] = kept
            rows = rows - kept[0]
        logits: Tensor = self.model(**options).logits
        return logits.gather(1, rows[:, :, None].expand(-1, -1, logits.shape[-1]))

    def on_validation_epoch_start(self) -> None:
        self._orders = {}

    def validation_step(self, numbers: Tensor, batch_index: int) -> None:
        """Rank held-out lists; measures are computed once over all of them."""
        if not len(numbers):  # more processes than lists
            return
        ranker = CausalLmRanker(
            self.model, self.pair_tokenizer, mode="first_token", device=str(self.device)
        )
        lists = [self.held_out[number].passages for number in numbers.tolist()]
        for number, ranking in zip(numbers.tolist(), ranker.rank(lists), strict=True):
            self._orders[number] = ranking.order

    def on_validation_epoch_end(self) -> None:
        """Kendall's tau and nDCG@10 over the held-out lists of all processes."""
        if self.trainer.sanity_checking:
            return
        orders = dict(self._orders)
        if self.trainer.world_size > 1:
            gathered: list = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(gathered, orders)
            for orders_of_process in gathered:
                orders.update(orders_of_process)
        rankings = [Ranking(orders[number]) for number in range(len(self.held_out))]
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

    def _inverse(self, batch: ListwiseBatch) -> Tensor | None:
        """v by input position and target rank, [B, m]; None without inverse propensities."""
        if self.inverse is None:
            return None
        # No buffer of the module, which would be saved with its checkpoints.
        self.inverse = self.inverse.to(batch.ranks.device)
        positions = torch.arange(batch.ranks.shape[1], device=batch.ranks.device)
        return self.inverse[positions, batch.ranks]


def noisy(embeddings: Tensor, lengths: Tensor, alpha: float) -> Tensor:
    """Word embeddings [B, n, d] with noise (NEFTune).

    The noise is uniform in +- alpha / sqrt(L d), with L the length of each text [B].
    """
    bounds = alpha / (lengths * embeddings.shape[-1]).to(embeddings.dtype).sqrt()
    return embeddings + torch.empty_like(embeddings).uniform_(-1, 1) * bounds[:, None, None]


def kendall_tau(rankings: Sequence[Ranking], lists: Sequence[ListwiseExample]) -> float:
    """The mean Kendall's tau-b between rankings and target levels."""
    return sorting_scores(rankings, [item.relevance_levels for item in lists]).tau


def ndcg(rankings: Sequence[Ranking], lists: Sequence[ListwiseExample]) -> float:
    """The mean nDCG@10 of rankings by the lists' grades."""
    # Every list is a query, and every input position a document.
    run = {}
    qrels = {}
    for number, (ranking, item) in enumerate(zip(rankings, lists, strict=True)):
        scores = {}
        grades = {}
        for place, (rank, grade) in enumerate(zip(ranking.ranks(), item.grades, strict=True)):
            # The best rank is the smallest, and the best score of a run the largest.
            scores[str(place)] = -float(rank)
            grades[str(place)] = int(grade)
        run[str(number)] = scores
        qrels[str(number)] = grades
    return effectiveness(run, qrels, [_NDCG]).mean(_NDCG)
