"""Terms that leave an attribute, such as gender, to a few senses S.

With s(alpha) the score of a text with the senses in S times alpha, x' the swapped wording of a text x, and V the
variance of the scores s(1) within lists (pooled, at least 1, without a gradient):

    TiedSenses       mean over words m of classes such as {he, she}, and over senses l outside S, of
                     |C(m)_l - class mean|^2 / |C(m)_l|^2
    Counterfactual   mean (s(0) of x - s(0) of x')^2 / V
    ContentFree      mean (s(0) - s(1), both averaged over x and x')^2 / V
    ReferenceGap     mean (s(1) of x - s(1) of x' - what a reference ranker makes of them)^2 / V
    AlphaRobust      the ranking loss of s(alpha), alpha drawn from [0, 1] for every batch

TiedSenses and Counterfactual take the attribute out of the other senses: out of the sense vectors of words, and out of
everything else (contextual weights, words of several tokens). ContentFree takes everything but the attribute out of S,
so that alpha turns nothing else. V is at least 1 because ranking losses over logits set the scale of scores, and early
scores, far smaller, would make these terms outweigh the ranking loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ref

import torch
from torch import Tensor

from backpack_rank.data.datamodule import ListBatch
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.factory import Ranker
from backpack_rank.models.rankers import BackpackForRanking, RankerOutput
from backpack_rank.models.token_shift import TokenClasses
from backpack_rank.models.utils import eval_mode
from backpack_rank.training.losses import AuxiliaryLoss, RankingLoss, scatter_lists


class TiedSenses:
    """Words of a class have one vector in every sense outside S.

    It trains the projections W_l of these senses and not the layer h(x) that all senses share, so what sets the words
    of a class apart stays there for S to use. Without dropout and in fp32.

    Attributes:
        classes: token classes of the attribute.
        outside: senses outside S.
        weight: factor of the term.
    """

    name = "tied"
    needs_senses = False

    def __init__(self, classes: TokenClasses, outside: Sequence[int], weight: float) -> None:
        self.outside = list(outside)
        self.weight = weight
        self._ids = torch.tensor([token for ids in classes.members for token in ids])
        # One product takes the mean of its class off every token. [T, T]
        self._centring = torch.block_diag(*(torch.eye(len(ids)) - 1 / len(ids) for ids in classes.members))

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """Squared deviations from the class means, against the squared length of the vectors."""
        assert isinstance(ranker, BackpackForRanking)
        backpack = ranker.backpack
        self._ids, self._centring = self._ids.to(scores.device), self._centring.to(scores.device)
        with eval_mode(backpack.sense_network), torch.autocast(scores.device.type, enabled=False):
            with torch.no_grad():
                hidden = backpack.token_hidden(self._ids)
            vectors = backpack.sense_network.expand(hidden)[:, self.outside].flatten(1).float()  # [T, (k - |S|) d]
        return (self._centring @ vectors).square().sum() / vectors.detach().square().sum()


class _OfWordings:
    """What the terms on texts and their counterfactuals share.

    Attributes:
        wordings: scores of both.
        weight: factor of the term.
    """

    needs_senses = True

    def __init__(self, wordings: CounterfactualScorer, weight: float) -> None:
        self.wordings = wordings
        self.weight = weight


class Counterfactual(_OfWordings):
    """Without S, a text and its counterfactual have one score."""

    name = "counterfactual"

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """0 where no text of the batch has a counterfactual."""
        assert isinstance(ranker, BackpackForRanking)
        both = self.wordings.of(ranker, batch, output)
        if both is None:
            return scores.new_zeros(())
        return (both.without[:, 0] - both.without[:, 1]).square().mean() / scale(scores, batch.mask)


class ContentFree(_OfWordings):
    """S adds nothing to a score but the attribute: averaged over both wordings, it adds 0."""

    name = "content"

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """Over the texts whose counterfactual was scored, and those that have none."""
        assert isinstance(ranker, BackpackForRanking)
        assert output.senses is not None
        both = self.wordings.of(ranker, batch, output)
        alike = torch.ones(len(output.senses), dtype=torch.bool, device=scores.device)
        if batch.swapped is not None:
            alike[batch.swapped.rows] = False
        senses = output.senses[alike]
        outside = self.wordings.outside.to(scores.device)[:, None]
        with eval_mode(ranker.head):  # the same dropout, that of the sense vectors, on both sides
            added = exact_scores(ranker, senses) - exact_scores(ranker, senses * outside)
        if both is not None:
            added = torch.cat([added, (both.full - both.without).mean(dim=1)])
        return added.square().mean() / scale(scores, batch.mask)


class ReferenceGap(_OfWordings):
    """At alpha = 1, a text and its counterfactual differ as a reference ranker says.

    Nothing but the ranking loss pays for the attribute at alpha = 1. Where that does not need it, the other terms make
    it fade there too, and alpha has little left to turn. A ranker trained without them says how much is usual. Its
    differences count in units of the spread of its own scores.

    Attributes:
        reference: reads the same tokens; it is not trained.
    """

    name = "kept"

    def __init__(self, wordings: CounterfactualScorer, reference: Ranker, weight: float) -> None:
        super().__init__(wordings, weight)
        self.reference = reference.eval().requires_grad_(False)

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """0 where no text of the batch has a counterfactual."""
        assert isinstance(ranker, BackpackForRanking)
        both = self.wordings.of(ranker, batch, output)
        if both is None:
            return scores.new_zeros(())
        self.reference.to(scores.device)
        with torch.no_grad(), torch.autocast(scores.device.type, enabled=False):
            own = self.reference(batch.texts).scores.float()
            other = self.reference(both.swapped).scores.float()
            spread = spread_within(scatter_lists(own, batch.mask), batch.mask)
            usual = (own[both.rows] - other) * (spread_within(scores, batch.mask) / spread.clamp(min=1e-12)).sqrt()
        return (both.full[:, 0] - both.full[:, 1] - usual).square().mean() / scale(scores, batch.mask)


@dataclass
class AlphaRobust:
    """Scores with S times any alpha in [0, 1] rank as well: the whole objective, on those scores.

    Attributes:
        outside: 1 for senses outside S, 0 in S. [k]
        weight: factor of the term.
        ranking_loss: of the training.
        teacher_terms: further terms of the training that look at scores alone, such as a teacher's.
    """

    outside: Tensor
    weight: float
    ranking_loss: RankingLoss
    teacher_terms: Sequence[AuxiliaryLoss] = ()

    name = "any_alpha"
    needs_senses = True

    def loss(self, ranker: Ranker, batch: ListBatch, output: RankerOutput, scores: Tensor) -> Tensor:
        """Losses at an alpha of torch's CPU generator, whose state is set at the start of every epoch."""
        assert isinstance(ranker, BackpackForRanking)
        assert output.senses is not None
        weights = self.outside + (1 - self.outside) * torch.rand(())
        turned = ranker.score_senses(output.senses * weights.to(output.senses)[:, None])
        lists = scatter_lists(turned.float(), batch.mask)
        total = self.ranking_loss.weight * self.ranking_loss(lists, batch.labels, batch.mask)[0]
        for term in self.teacher_terms:
            total = total + term.weight * term.loss(ranker, batch, RankerOutput(turned, output.senses), lists)
        return total


def scale(scores: Tensor, mask: Tensor) -> Tensor:
    """V: the variance of scores within lists, at least 1, without a gradient."""
    return spread_within(scores.detach(), mask).clamp(min=1.0)


def spread_within(scores: Tensor, mask: Tensor) -> Tensor:
    """Variance of scores [L, m] within lists, pooled over the lists as in ``score_spread``; 0 without two in a list."""
    counts = mask.sum(dim=-1)
    means = scores.masked_fill(~mask, 0.0).sum(dim=-1) / counts.clamp(min=1)
    squares = (scores - means[:, None]).masked_fill(~mask, 0.0).square().sum()
    return squares / (counts - 1).clamp(min=0).sum().clamp(min=1)


@dataclass(frozen=True, eq=False)
class CounterfactualScores:
    """Scores of P texts of a batch and of their counterfactuals, in fp32 and without dropout.

    Attributes:
        rows: which texts of the batch they are. [P]
        swapped: the counterfactuals' tokens.
        full: scores with all senses, as they are and swapped. [P, 2]
        without: the same with the senses of S weighted 0. [P, 2]
    """

    rows: Tensor
    swapped: PackedBatch
    full: Tensor
    without: Tensor


class CounterfactualScorer:
    """Computes :class:`CounterfactualScores` once for all terms that look at a batch.

    Without dropout, because two forward passes differ by far more through dropout than through a swapped word: a term
    on the differences would shrink scores until dropout no longer shows.

    Attributes:
        outside: 1 for senses outside S, 0 in S. [k]
        most: counterfactuals of a batch at most, drawn by torch's generator; None is all of them.
    """

    def __init__(self, outside: Tensor, most: int | None = None) -> None:
        self.outside = outside
        self.most = most
        self._known: tuple[ref[RankerOutput], CounterfactualScores | None] | None = None

    def of(self, ranker: BackpackForRanking, batch: ListBatch, output: RankerOutput) -> CounterfactualScores | None:
        """Both wordings of texts of the batch; None where no word of it can be swapped."""
        if self._known is None or self._known[0]() is not output:
            self._known = ref(output), self._compute(ranker, batch)
        return self._known[1]

    def _compute(self, ranker: BackpackForRanking, batch: ListBatch) -> CounterfactualScores | None:
        if batch.swapped is None:
            return None
        texts, rows = batch.swapped.texts, batch.swapped.rows
        if self.most is not None and len(rows) > self.most:
            # The CPU's generator: its state is set at the start of every epoch, also of a resumed run.
            drawn = torch.randperm(len(rows))[: self.most].sort().values.to(rows.device)
            texts, rows = chosen_texts(texts, drawn), rows[drawn]
        outside = self.outside.to(rows.device)[:, None]
        with eval_mode(ranker):
            pair = [ranker(part, return_senses=True).senses for part in (chosen_texts(batch.texts, rows), texts)]
            full = [exact_scores(ranker, senses) for senses in pair]
            without = [exact_scores(ranker, senses * outside) for senses in pair]
        return CounterfactualScores(rows, texts, torch.stack(full, dim=1), torch.stack(without, dim=1))


def exact_scores(ranker: BackpackForRanking, senses: Tensor) -> Tensor:
    """Scores from sense vectors in fp32: in half precision a difference of two scores is mostly rounding. [N]"""
    with torch.autocast(senses.device.type, enabled=False):
        return ranker.score_senses(senses.to(ranker.head.dense.weight.dtype)).float()


def chosen_texts(texts: PackedBatch, rows: Tensor) -> PackedBatch:
    """Some texts of a packed batch, by ascending row; on its own device, without a look at its lengths."""
    lengths = (texts.offsets[1:] - texts.offsets[:-1])[rows]
    number = torch.full((len(texts),), -1, device=rows.device).index_copy(
        0, rows, torch.arange(len(rows), device=rows.device)
    )
    kept = number[texts.text_ids] >= 0
    return PackedBatch(
        texts.input_ids[kept],
        texts.position_ids[kept],
        number[texts.text_ids[kept]],
        torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=lengths.dtype)]),
        texts.max_length,
    )
