r"""How much every sense of every token contributes to a score.

The head of a Backpack ranker reads a mix that is a sum over senses l and tokens j (paper 004, eqs. 1 and 5):

    o = sum_l M_l sum_j a[l,j] C(x_j)_l          score = head(o)

Against the empty mix 0, the contribution of sense l of token j is its part of the integrated gradients along the
straight path from 0 to o (Sundararajan et al. 2017):

    c[l,j] = M_l a[l,j] < C(x_j)_l, g >          g = \int_0^1 grad head(t o) dt

The contributions sum to head(o) - head(0), because the path integral of a gradient is the difference of its ends. For
a linear head g is the head's weight vector and a contribution is exactly what the score loses without that part.

Contextual weights a count as given: a contribution says what a token hands to the mix, not how it moves the weights
of other tokens.
"""

from __future__ import annotations

import copy
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from backpack_rank.data.lexicon import Lexicon
from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.data.words import word_tokens
from backpack_rank.models.modes import evaluating
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.reporting.explanation import ExplainedSense, ExplainedWord, Explanation
from backpack_rank.senses.control import attach
from backpack_rank.senses.pieces import Pieces, Word, joined_pieces

log = logging.getLogger(__name__)

NODES = 32
"""Points of Gauss-Legendre quadrature on one panel of the path."""
MAX_PANELS = 64
_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions to one score.

    Attributes:
        pieces: the text that was scored: tokens, their segments, words.
        contributions: of sense l of token j, float64 on the CPU [k, n].
        score: the ranker's score, computed in float64 from the ranker's own sense vectors and weights.
        empty_score: score of the empty mix.
        residual: score - empty_score - sum of the contributions; what the path integral has missed.
    """

    pieces: Pieces
    contributions: Tensor
    score: float
    empty_score: float
    residual: float

    @property
    def tokens(self) -> tuple[str, ...]:
        """The characters of each token."""
        return self.pieces.tokens

    @property
    def segments(self) -> tuple[str, ...]:
        """Part of the text of each token: query, separator, document, end."""
        return self.pieces.segments

    @property
    def words(self) -> tuple[Word, ...]:
        """Words that the tokens form, w of them."""
        return self.pieces.words

    @cached_property
    def per_sense(self) -> Tensor:
        """Contribution of each sense. [k]"""
        return self.contributions.sum(dim=1)

    @cached_property
    def per_token(self) -> Tensor:
        """Contribution of each token. [n]"""
        return self.contributions.sum(dim=0)

    @cached_property
    def per_word(self) -> Tensor:
        """Contribution of each word: the sum over its tokens. [w]"""
        return torch.stack([self.per_token[word.start : word.end].sum() for word in self.words])


@dataclass(frozen=True, eq=False)
class AttributionChange:
    """The same text under two controls, such as alpha = 1 and another alpha; changes are after minus before."""

    before: Attribution
    after: Attribution

    @property
    def contributions(self) -> Tensor:
        """Change of every contribution. [k, n]"""
        return self.after.contributions - self.before.contributions

    @property
    def score(self) -> float:
        """Change of the score."""
        return self.after.score - self.before.score

    @property
    def per_sense(self) -> Tensor:
        """Change of each sense's contribution. [k]"""
        return self.after.per_sense - self.before.per_sense

    @property
    def per_token(self) -> Tensor:
        """Change of each token's contribution. [n]"""
        return self.after.per_token - self.before.per_token

    @property
    def per_word(self) -> Tensor:
        """Change of each word's contribution. [w]"""
        return self.after.per_word - self.before.per_word


@dataclass(frozen=True, eq=False)
class BatchAttribution:
    """Contributions to the scores of a batch.

    Attributes:
        contributions: float64 [B, k, n], 0 at padding.
        scores: [B]
        empty_score: score of the empty mix.
        residuals: what the path integral has missed of each score. [B]
    """

    contributions: Tensor
    scores: Tensor
    empty_score: float
    residuals: Tensor


def attribute(
    ranker: PreTrainedModel, encoder: PairEncoder, query: str, document: str, weights: Tensor | None = None
) -> Attribution:
    """Contributions of all senses and tokens to the score of a document.

    Controls that are attached to the ranker take part, so under ``applied(ranker, control)`` this explains the
    controlled score.

    Args:
        ranker: a ranker with senses.
        encoder: joins the texts, as for scoring.
        query: text of the query.
        document: text of the document; what does not fit is cut and counted in ``pieces.cut``.
        weights: one factor per sense M_l [k]; on top of weights that are attached already.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: the query is empty or too long, or the weights are not k finite numbers >= 0.
    """
    _check_has_senses(ranker)
    pieces = joined_pieces(encoder, query, document)
    found = attribute_batch(ranker, PackedBatch.from_sequences([np.array(pieces.ids)]), weights)
    return Attribution(
        pieces, found.contributions[0].cpu(), found.scores.item(), found.empty_score, found.residuals.item()
    )


def attribute_change(before: Attribution, after: Attribution) -> AttributionChange:
    """How a control changes the contributions to one score.

    Raises:
        ValueError: the two are not about the same text.
    """
    if before.pieces.ids != after.pieces.ids or before.contributions.shape != after.contributions.shape:
        raise ValueError("the two attributions are about different texts or rankers; attribute the same pair twice")
    return AttributionChange(before, after)


def attribute_batch(ranker: PreTrainedModel, batch: PackedBatch, weights: Tensor | None = None) -> BatchAttribution:
    """:func:`attribute` for the texts of a packed batch, tensors on the ranker's device.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: the weights are not k finite numbers >= 0.
    """
    ranker = _check_has_senses(ranker)
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(evaluating(ranker))
        if weights is not None:
            stack.callback(attach(ranker, weights.detach().clone()).remove)
        found = _attribute(ranker, batch.to(ranker.device))
    difference = (found.scores - found.empty_score).abs()
    if bool((found.residuals.abs() > 1e-4 * difference + 1e-8).any()):
        log.warning(
            "contributions miss the score difference by up to %.2g; the ranker's head is far from smooth",
            found.residuals.abs().max().item(),
        )
    return found


def explanation(
    found: Attribution,
    *,
    title: str = "",
    lexicon: Lexicon | None = None,
    sensitivity: Tensor | None = None,
    weights: Tensor | None = None,
    before: Attribution | None = None,
) -> Explanation:
    """An attribution as plain rows for tables, JSON and the report.

    Args:
        found: the attribution to show.
        title: shown above it, such as the document's id and the position of the dial.
        lexicon: its words are marked with their group.
        sensitivity: s_l of each sense [k].
        weights: the control's factor of each sense [k]; 1 where it is None.
        before: the same text without the control; changes are shown against it.

    Raises:
        ValueError: ``before`` is about another text.
    """
    change = attribute_change(before, found) if before is not None else None
    groups = {word: group for group, words in lexicon.groups.items() for word in words} if lexicon else {}
    words = tuple(
        ExplainedWord(
            word.text,
            word.segment,
            found.per_word[index].item(),
            word.space,
            next((groups[part] for part in word_tokens(word.text) if part in groups), ""),
            None if change is None else change.per_word[index].item(),
        )
        for index, word in enumerate(found.words)
    )
    senses = tuple(
        ExplainedSense(
            sense,
            found.per_sense[sense].item(),
            None if sensitivity is None else float(sensitivity[sense]),
            1.0 if weights is None else float(weights[sense]),
            None if change is None else change.per_sense[sense].item(),
        )
        for sense in range(len(found.per_sense))
    )
    score_before = None if before is None else before.score
    return Explanation(
        title, words, senses, found.score, found.empty_score, found.residual, score_before, found.pieces.cut
    )


def _check_has_senses(ranker: PreTrainedModel) -> BackpackForRanking:
    if not isinstance(ranker, BackpackForRanking):
        raise TypeError(
            f"{type(ranker).__name__} has no sense vectors, so its score does not split into senses and tokens; "
            "use a Backpack ranker"
        )
    return ranker


def _attribute(ranker: BackpackForRanking, batch: PackedBatch) -> BatchAttribution:
    """Everything behind the sense vectors C(x) and the weights a is float64, whatever the ranker's number format.

    In the ranker's own format, sums over hundreds of tokens would miss the score difference by their rounding.
    """
    with torch.no_grad():
        shares = ranker.backpack.pooled_weights(batch).double()  # a [B, k, n]
        ids, marks, inverse = ranker.backpack.distinct_tokens(batch)
        vectors = ranker.backpack.senses(ids, marks).double().transpose(0, 1)  # C [k, U, d]
        columns = batch.pad(inverse)[:, None].expand_as(shares)  # [B, k, n], row of C of each token
        per_id = shares.new_zeros((*shares.shape[:2], len(ids))).scatter_add(2, columns, shares)
        senses = torch.bmm(per_id.transpose(0, 1), vectors).transpose(0, 1)  # [B, k, d]
    head = copy.deepcopy(ranker.head).double()
    with torch.enable_grad():
        senses.requires_grad_()
        mixed = ranker.sense_sum(senses)
        path = _path_gradient(head, mixed.detach())
        # Through the sum and what is attached to it, which is linear: M_l g for every sense.
        (weighted,) = torch.autograd.grad(mixed, senses, path)
    with torch.no_grad():
        products = torch.bmm(weighted.transpose(0, 1), vectors.transpose(1, 2)).transpose(0, 1)  # [B, k, U]
        contributions = shares * products.gather(2, columns)
        scores, empty = head(mixed.detach()), head(torch.zeros_like(mixed[0])).item()
        return BatchAttribution(contributions, scores, empty, scores - empty - contributions.sum(dim=(1, 2)))


def _path_gradient(head: nn.Module, mixed: Tensor) -> Tensor:
    """int_0^1 grad head(t o) dt for each row o of [B, d]: panels of the path are halved until <g, o> fits."""
    with torch.no_grad():
        ends, start = head(mixed), head(torch.zeros_like(mixed[0]))
    panels = 1
    while True:
        gradient = _quadrature(head, mixed, panels)
        missed = ((gradient * mixed).sum(dim=-1) - (ends - start)).abs()
        if panels >= MAX_PANELS or bool((missed <= _TOLERANCE * (ends.abs() + start.abs() + 1)).all()):
            return gradient
        panels *= 2


def _quadrature(head: nn.Module, mixed: Tensor, panels: int) -> Tensor:
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    gradient = torch.zeros_like(mixed)
    for panel in range(panels):
        steps = torch.from_numpy((panel + (nodes + 1) / 2) / panels).to(mixed)
        points = (steps[:, None, None] * mixed).requires_grad_()  # [nodes, B, d]
        (slopes,) = torch.autograd.grad(head(points).sum(), points)
        gradient += torch.einsum("nbd,n->bd", slopes, torch.from_numpy(weights / (2 * panels)).to(mixed))
    return gradient
