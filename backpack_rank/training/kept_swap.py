"""A loss term: at alpha = 1 as gendered as another ranker (``training.keep_swap=FOLDER``).

A Backpack with attribute senses looks at an attribute far less than one without, already at alpha =
1: its contextual weights cannot see it. For who wants the full range of the dial, this term keeps
what a swap of words does to a score close to what it does to the score of a reference ranker, such
as one trained with ``model.ranker.attribute_senses=null``::

    mean over documents x with words that can be swapped of
        ((s(x) - s(x')) - c (r(x) - r(x')))^2 / V

s is the ranker's score, r the reference's, x' the swapped document, V the variance of s within
lists (at least 1) and c what brings the reference's scores to the spread of s. Gradients pass
through the attribute senses alone, so alpha controls all that the term adds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.counterfactual import LexiconSwap
from backpack_rank.data.datamodule import ListBatch
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.rankers import BackpackForRanking, Ranker, RankerOutput
from backpack_rank.models.utils import eval_mode
from backpack_rank.training.losses import scatter_lists

MOST = 8
"""Documents of a batch whose swapped wording is read: two more passes over each."""


class KeptSwap:
    """A term of the loss that keeps what a swap of words does to a reference's scores.

        term = KeptSwap(reference, ranker.config.num_senses, weight=1.0)
        RankingModule(ranker, optimisation, dev, terms=[term])

    The formula stands at the head of this module.

    Attributes:
        reference: reads the same tokens; it is not trained.
        senses: k, the number of senses before those of attributes.
        weight: factor of the term.
    """

    name = "kept_swap"
    needs_senses = False

    def __init__(self, reference: Ranker, senses: int, weight: float) -> None:
        self.reference = reference.eval().requires_grad_(False)
        self.senses = senses
        self.weight = weight

    def loss(
        self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor
    ) -> Tensor:
        """0 where no document of the batch has a word that can be swapped."""
        assert isinstance(ranker, BackpackForRanking)
        if batch.swapped is None:
            return scores.new_zeros(())
        swapped, rows = batch.swapped.texts, batch.swapped.rows
        if len(rows) > MOST:
            # The CPU's generator: its state is set at the start of every epoch, also of a resumed
            # run.
            drawn = torch.randperm(len(rows))[:MOST].sort().values.to(rows.device)
            swapped = chosen_texts(swapped, drawn)
            rows = rows[drawn]
        # Without dropout: two passes differ by far more through dropout than through a swapped
        # word.
        with eval_mode(ranker):
            original_scores = self._score(ranker, chosen_texts(batch.texts, rows))
            change = original_scores - self._score(ranker, swapped)
        self.reference.to(scores.device)
        with torch.no_grad(), torch.autocast(scores.device.type, enabled=False):
            reference_scores = self.reference(batch.texts).scores.float()
            swapped_scores = self.reference(swapped).scores.float()
            reference_change = reference_scores[rows] - swapped_scores
            reference_lists = scatter_lists(reference_scores, batch.mask)
            reference_variance = variance_within(reference_lists, batch.mask)
            variance = variance_within(scores, batch.mask)
            # c of the formula: the reference's scores may have another spread.
            scale = (variance / reference_variance.clamp(min=1e-12)).sqrt()
            reference_change = reference_change * scale
        return (change - reference_change).square().mean() / variance.clamp(min=1.0)

    def _score(self, ranker: BackpackForRanking, texts: PackedBatch) -> Tensor:
        """Scores [N] in fp32, with a gradient through the attribute senses alone."""
        senses = ranker(texts, return_senses=True).senses
        other_senses = senses[:, : self.senses].detach()
        attribute_senses = senses[:, self.senses :]
        senses = torch.cat([other_senses, attribute_senses], dim=1)
        # In half precision a difference of two scores is mostly rounding.
        with torch.autocast(senses.device.type, enabled=False):
            return ranker.score_senses(senses.to(ranker.head.out.weight.dtype)).float()


def kept_swap(
    folder: str, ranker: Ranker, pair_tokenizer: PairTokenizer, weight: float
) -> KeptSwap:
    """Make the term for a ranker and the folder of its reference.

        term = kept_swap("outputs/train/other/ranker", ranker, pair_tokenizer, weight=1.0)

    Raises:
        ValueError: the ranker has no attribute senses, or the reference reads other tokens.
    """
    if not isinstance(ranker, BackpackForRanking) or not ranker.config.groups:
        raise ValueError(
            f"training.keep_swap={folder} acts through attribute senses, which this ranker does "
            "not have: train a Backpack with model.ranker.attribute_senses=gender"
        )
    reference, other = load_ranker(folder)
    if other.tokenizer.get_vocab() != pair_tokenizer.tokenizer.get_vocab():
        raise ValueError(
            f"training.keep_swap={folder} has another tokenizer than the ranker in training, and "
            "reads the same token ids; start both from the same tokenizer"
        )
    # With a similarity, and as the paper's code has it, texts are joined with other tokens.
    joined, joined_there = pair_tokenizer.pairs("a", ["a"]), other.pairs("a", ["a"])
    if not np.array_equal(joined, joined_there):
        raise ValueError(
            f"training.keep_swap={folder} joins query and document with other tokens than the "
            "ranker in training, and reads the same texts; train both with the same "
            "model.ranker.similarity (null or a number) and input_form"
        )
    return KeptSwap(reference, ranker.config.num_senses, weight)


def swaps_of(ranker: Ranker) -> Callable[[str], str]:
    """The function that swaps the words of a ranker's attributes, one after the other.

    swap = swaps_of(ranker)
    swap("She saw her father.")  # "He saw his mother."
    """
    names = dict.fromkeys(attribute for attribute, _ in ranker.config.groups)
    # A partial of a module's function, because processes that read data pickle it.
    return partial(_swapped, [Attribute.named(name).swap() for name in names])


def _swapped(swaps: list[LexiconSwap], text: str) -> str:
    for swap in swaps:
        text = swap(text).text
    return text


def variance_within(scores: Tensor, mask: Tensor) -> Tensor:
    """The variance of scores [L, m] within lists, pooled over lists.

    >>> variance_within(torch.tensor([[1.0, 3.0]]), torch.tensor([[True, True]]))
    tensor(2.)

    It is 0 without two scores in a list, and has no gradient.
    """
    scores = scores.detach()
    counts = mask.sum(dim=-1)
    means = scores.masked_fill(~mask, 0.0).sum(dim=-1) / counts.clamp(min=1)
    squares = (scores - means[:, None]).masked_fill(~mask, 0.0).square().sum()
    return squares / (counts - 1).clamp(min=0).sum().clamp(min=1)


def chosen_texts(texts: PackedBatch, rows: Tensor) -> PackedBatch:
    """Some texts of a packed batch, by ascending row.

    >>> batch = PackedBatch.from_sequences([[1], [2, 3], [4]])
    >>> chosen_texts(batch, torch.tensor([2, 1])).input_ids.tolist()
    [2, 3, 4]
    """
    kept = torch.zeros(len(texts), dtype=torch.bool, device=rows.device)
    kept[rows] = True
    sequences = []
    for text, keep in zip(texts.texts(), kept.tolist(), strict=True):
        if keep:
            sequences.append(text.input_ids.cpu().numpy())
    return PackedBatch.from_sequences(sequences).to(texts.input_ids.device)
