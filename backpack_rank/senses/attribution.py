r"""How much every sense of every token contributes to a score.

The head of a Backpack ranker reads a mix that is a sum over senses l and tokens j (Afzali et al.,
eqs. 1 and 5):

    o = sum_l M_l sum_j a[l,j] C(x_j)_l          score = head(o)

Against the empty mix 0, the contribution of sense l of token j is its part of the integrated
gradients along the straight path from 0 to o (Sundararajan et al. 2017):

    c[l,j] = M_l a[l,j] < C(x_j)_l, g >          g = \int_0^1 grad head(t o) dt

The contributions sum to head(o) - head(0), because the path integral of a gradient is the
difference of its ends. For a linear head g is the head's weight vector and a contribution is
exactly what the score loses without that part.

The contextual weights a are taken as constants: a contribution says what a token adds to the mix,
not how it changes the weights of other tokens.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.words import word_tokens
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.rankers import (
    BackpackForRanking,
    Ranker,
    check_sense_weights,
)
from backpack_rank.models.ranking_heads import LinearSigmoidHead, RankingHead
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import eval_mode
from backpack_rank.notebook import ShownInNotebooks
from backpack_rank.senses.alignment import TokenAlignment, Word, align_tokens
from backpack_rank.senses.views import View

_SMALL = 1e-5
"""Bound of |a| in :func:`path_gradient`, below which a slope replaces the quotient."""


@dataclass(frozen=True)
class ExplainedWord:
    """A row of an :class:`Explanation`: a word of the joined text and its part of the score.

    Attributes:
        text: as it is written in the text; for separator and end, the names of these tokens.
        segment: ``query``, ``separator``, ``document`` or ``end``.
        contribution: its part of the score difference; by words, what the score loses without it,
            None for the one word of a query, which cannot be left out.
        space: whether white space stands before it.
        group: group of the lexicon it belongs to, empty for none.
        change: change of the contribution by a control, None where there is none to compare with.
    """

    text: str
    segment: str
    contribution: float | None
    space: bool = True
    group: str = ""
    change: float | None = None


@dataclass(frozen=True)
class ExplainedSense:
    """A row of an :class:`Explanation`: a sense and its part of the score.

    Attributes:
        index: its number, from 0.
        contribution: its part of the score difference.
        sensitivity: s_l, None where it is not known.
        weight: factor of the sense in the mix.
        change: change of the contribution by a control, None where there is none to compare with.
        name: the number, or what an attribute sense sets apart, such as ``gender: female``.
    """

    index: int
    contribution: float
    sensitivity: float | None = None
    weight: float = 1.0
    change: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", str(self.index))


@dataclass(frozen=True)
class ExplainedGroup:
    """What several words do to a score together.

    Attributes:
        name: of a group of the lexicon, or of the attribute.
        words: how many there are in the document.
        contribution: what the score loses without them.
        change: change of the contribution by a control, None where there is none to compare with.
    """

    name: str
    words: int
    contribution: float
    change: float | None = None


@dataclass(frozen=True)
class Explanation(ShownInNotebooks):
    """A score and where it comes from, as plain rows.

    It is by senses and tokens (:func:`explanation` makes it), or by words that are left out
    (:class:`backpack_rank.reranking.left_out_words.LeftOutWords`).

    Attributes:
        title: what is explained, such as the document's id and the value of alpha.
        words: query, separator, document and end, in order; by words, query and document, and a row
            may be several neighbours.
        senses: all senses, by index; by words, none.
        score: of the document.
        empty_score: of the empty mix; words and senses each add up to the difference of the two.
            None by words, whose contributions need not add up.
        residual: score - empty_score - sum of the contributions: rounding.
        score_before: score at alpha 1, None where the score is that.
        cut: tokens of the document that did not fit and had no part in the score.
        groups: by words, what the listed words of each group do together.
        renditions: by words, what the attribute's words do: the score less the mean over the
            renditions of the pair. None where the query has such words: then there are no other
            renditions.
    """

    title: str
    words: tuple[ExplainedWord, ...]
    senses: tuple[ExplainedSense, ...]
    score: float
    empty_score: float | None
    residual: float = 0.0
    score_before: float | None = None
    cut: int = 0
    groups: tuple[ExplainedGroup, ...] = ()
    renditions: ExplainedGroup | None = None

    @property
    def by_words(self) -> bool:
        """Whether words were left out, in place of a sum over senses."""
        return self.empty_score is None


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contributions to one score; :func:`attribute` computes it.

    Attributes:
        alignment: the text that was scored: tokens, their segments, words.
        contributions: of sense l of token j, float64 on the CPU [k, n].
        score: the ranker's score, computed in float64 from the ranker's sense vectors and weights.
        empty_score: score of the empty mix.
        residual: score - empty_score - sum of the contributions: rounding.
        sense_names: of the senses, see
            :attr:`~backpack_rank.models.configuration.BackpackConfig.sense_names`.
    """

    alignment: TokenAlignment
    contributions: Tensor
    score: float
    empty_score: float
    residual: float
    sense_names: tuple[str, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The characters of each token."""
        return self.alignment.tokens

    @property
    def segments(self) -> tuple[str, ...]:
        """Part of the text of each token: query, separator, document, end."""
        return self.alignment.segments

    @property
    def words(self) -> tuple[Word, ...]:
        """Words that the tokens form, w of them."""
        return self.alignment.words

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
class BatchAttribution:
    """Contributions to the scores of a batch; :func:`attribute_batch` computes it.

    Attributes:
        contributions: float64 [B, k, n], 0 at padding.
        scores: [B]
        empty_score: score of the empty mix.
        residuals: rounding of each score. [B]
    """

    contributions: Tensor
    scores: Tensor
    empty_score: float
    residuals: Tensor


def attribute(
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    query: str,
    document: str,
    view: View | None = None,
) -> Attribution:
    """Which senses and tokens a document's score comes from.

    >>> attribution = attribute(ranker, pair_tokenizer, query, document)  # doctest: +SKIP
    >>> attribution.per_word.sum() + attribution.empty_score  # doctest: +SKIP
    tensor(2.4100, dtype=torch.float64)

    Args:
        ranker: a ranker with senses.
        pair_tokenizer: joins the texts, as for scoring.
        query: text of the query.
        document: text of the document; what does not fit is cut and counted in ``alignment.cut``.
        view: weights per sense and token shift under which the document is scored; None: the ranker
            unchanged.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: the query is empty or too long, or the weights are not k finite numbers >= 0.
    """
    names = _check_has_senses(ranker).config.sense_names
    alignment = align_tokens(pair_tokenizer, query, document)
    batch = PackedBatch.from_sequences([np.array(alignment.ids)])
    attribution = attribute_batch(ranker, batch, view)
    return Attribution(
        alignment=alignment,
        contributions=attribution.contributions[0].cpu(),
        score=attribution.scores.item(),
        empty_score=attribution.empty_score,
        residual=attribution.residuals.item(),
        sense_names=names,
    )


@torch.no_grad()
def attribute_batch(
    ranker: Ranker, batch: PackedBatch, view: View | None = None
) -> BatchAttribution:
    """Many texts: :func:`attribute` for those of a packed batch.

    Tensors are on the ranker's device. Everything behind the sense vectors C(x) and the weights a
    is float64, whatever the ranker's number format: in the ranker's format, sums over hundreds of
    tokens would miss the score difference by their rounding.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: the weights are not k finite numbers >= 0.
    """
    ranker = _check_has_senses(ranker)
    view = view or View()
    shift = view.token_shift
    batch = batch.to(ranker.device)
    if shift is not None:
        batch = shift.merge_ids(batch)
    backpack = ranker.backpack
    head = copy.deepcopy(ranker.head).double().eval()
    attribute_senses = backpack.attribute_senses
    # With attribute senses, the pieces of a class word are read as one token: n' tokens of n. kept
    # is True at the tokens of the batch that still have a position [T].
    read, kept = batch, None
    if attribute_senses is not None:
        read, kept = attribute_senses.read_and_kept(batch)
    with eval_mode(ranker):
        contextual_weights = backpack.pooled_weights(read, shift)  # a, in the ranker's format
        ids, whole_words, rows = backpack.distinct_tokens(read, shift)
        hidden = backpack.distinct_hidden(ids, whole_words, shift)
        vectors = backpack.sense_network.expand(hidden.shared).double().transpose(0, 1)  # C [k,U,d]
        weights = contextual_weights.double()  # a [B, k, n]
        # The weights of equal tokens are added first, and then o^(l) is a sum over the U distinct
        # tokens: a batch has far fewer of them than places B n.
        # At padding, pad() gives row 0, some token. Its weight a is 0.
        columns = read.pad(rows)[:, None].expand_as(weights)  # [B, k, n], row of C of each token
        no_weights = weights.new_zeros((*weights.shape[:2], len(ids)))  # [B, k, U]
        per_id = no_weights.scatter_add(2, columns, weights)
        senses = torch.einsum("bku,kud->bkd", per_id, vectors)  # o^(l)
        if attribute_senses is not None:
            parts = backpack.group_parts(contextual_weights, read, rows, hidden, torch.float64)
            groups, size = attribute_senses.groups, senses.shape[-1]
            group_parts = senses.new_zeros((len(read.input_ids), groups, size))  # [T, G, d]
            group_parts[parts.places, parts.groups] = parts.vectors
            group_senses = senses.new_zeros((len(read), groups, size))  # [B, G, d]
            group_senses = group_senses.index_add(0, read.text_ids, group_parts)
            senses = torch.cat([senses, group_senses], dim=1)
        similarity_parts = None
        if backpack.joint is not None:
            # What tokens add to the similarity, a number of each sense beside its vector.
            similarity_parts = _similarity_parts(backpack, read, batch, shift)  # [B, K, n]
            senses = torch.cat([senses, similarity_parts.sum(dim=-1, keepdim=True)], dim=-1)
    factors = view.sense_weights  # M_l
    if factors is None:
        factors = torch.ones(senses.shape[1])
    check_sense_weights(factors, ranker.config.total_senses)
    factors = factors.to(senses)
    mixed = (senses * factors[:, None]).sum(dim=1)  # sum_l M_l o^(l), [B, d]
    gradient = path_gradient(head, mixed)[:, : vectors.shape[-1]]  # g, [B, d]
    # c[l,j] / M_l = a[l,j] <C(x_j)_l, g>, with the product of each distinct token put to its
    # places.
    products = torch.einsum("kud,bd->bku", vectors, gradient)
    contributions = weights * products.gather(2, columns)  # [B, k, n]
    if attribute_senses is not None:
        of_groups = torch.einsum("tgd,td->tg", group_parts, gradient[read.text_ids])
        of_groups = read.pad(of_groups).transpose(1, 2)
        contributions = torch.cat([contributions, of_groups], dim=1)
    if similarity_parts is not None:
        contributions = contributions + similarity_parts
    if attribute_senses is not None:
        contributions = _in_all_places(contributions, read, batch, kept)
    contributions = contributions * factors[:, None]
    scores = head(mixed)
    empty_score = head(torch.zeros_like(mixed[0])).item()
    residuals = scores - empty_score - contributions.sum(dim=(1, 2))
    return BatchAttribution(contributions, scores, empty_score, residuals)


def _similarity_parts(
    backpack: BackpackModel, read: PackedBatch, batch: PackedBatch, shift: TokenShift | None
) -> Tensor:
    """What every token adds to the similarity, sense by sense. float64 [B, K, n]

    The k senses share the similarity of the text that is read; what its class words add to that
    belongs to the senses of their groups, in equal parts.

    Args:
        backpack: with a similarity.
        read: the batch with class words at one position.
        batch: as it was.
        shift: tokens that are moved.
    """
    senses, groups = backpack.config.num_senses, len(backpack.config.groups)
    of_tokens = backpack.similarity_parts(read, shift).double()  # [T']
    parts = of_tokens.new_zeros((len(of_tokens), senses + groups))
    parts[:, :senses] = of_tokens[:, None] / senses
    if read is not batch:
        attribute_senses = backpack.attribute_senses
        assert attribute_senses is not None
        places = (read.input_ids >= attribute_senses.vocabulary).nonzero().squeeze(-1)
        row_of_form = read.text_ids[places]
        number = row_of_form.bincount(minlength=len(read))
        merged = of_tokens.new_zeros(len(read)).index_add(0, read.text_ids, of_tokens)
        as_written = backpack.similarity_parts(batch, shift).double()
        added = (-merged).index_add(0, batch.text_ids, as_written)
        group_of_form = attribute_senses.group_of[
            read.input_ids[places] - attribute_senses.vocabulary
        ]
        parts[places, senses + group_of_form.long()] = (added / number.clamp(min=1))[row_of_form]
    return read.pad(parts).transpose(1, 2)


def _in_all_places(
    values: Tensor, read: PackedBatch, batch: PackedBatch, kept: Tensor | None
) -> Tensor:
    """Values of the tokens that were read [B, K, n'], at their places in the batch. [B, K, n]

    Of a word that was read as one token, the first piece gets the value and the others get 0.
    """
    assert kept is not None
    tokens = values.transpose(1, 2).flatten(0, 1)[read.padded_rows]  # [T', K]
    places = tokens.new_zeros((len(batch.input_ids), tokens.shape[1]))
    places[kept] = tokens
    return batch.pad(places).transpose(1, 2)


@torch.no_grad()
def path_gradient(head: RankingHead | LinearSigmoidHead, mixes: Tensor) -> Tensor:
    """int_0^1 grad f(t o) dt of mixes o [N, d], without dropout. [N, d] float64

    These are integrated gradients with baseline 0 (Sundararajan et al. 2017).

    In closed form: a hidden unit is gelu(t a + b) with a = <w, o>, and the mean of its slope over t
    is (gelu(a + b) - gelu(b)) / a, the slope itself where a is next to 0. The same holds for a
    linear head with its sigmoid in the place of gelu, and b = 0.
    """
    if isinstance(head, LinearSigmoidHead):
        direction = head.out.weight.detach().double()  # [1, d]
        logits = mixes.double() @ direction.T  # a, [N, 1]
        is_small = logits.abs() < _SMALL
        # 1 in the place of numbers next to 0, whose quotient is not used.
        divisors = torch.where(is_small, torch.ones_like(logits), logits)
        quotients = (torch.sigmoid(logits) - 0.5) / divisors
        half_way = torch.sigmoid(logits / 2)
        slopes = torch.where(is_small, half_way * (1 - half_way), quotients)
        return slopes * direction
    if head.adds_similarity:
        # The last number is added to the score as it is.
        mixes = mixes[:, :-1]
    weight = head.dense.weight.detach().double()
    bias = head.dense.bias.detach().double()
    out = head.out.weight.detach().double()
    steps = mixes.double() @ weight.T  # a of each hidden unit, [N, d]
    # The quotient of two numbers next to 0 is mostly rounding; the slope half way is closer.
    is_small = steps.abs() < _SMALL
    divisors = torch.where(is_small, torch.ones_like(steps), steps)
    quotients = (F.gelu(steps + bias) - F.gelu(bias)) / divisors
    slopes = torch.where(is_small, _gelu_slope(bias + steps / 2), quotients)
    gradient = (slopes * out[0]) @ weight
    if head.adds_similarity:
        gradient = F.pad(gradient, (0, 1), value=1.0)
    return gradient


def _gelu_slope(x: Tensor) -> Tensor:
    """Phi(x) + x phi(x), with the normal distribution and its density."""
    return torch.special.ndtr(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def explanation(
    attribution: Attribution,
    *,
    title: str = "",
    lexicon: Lexicon | None = None,
    sensitivity: Tensor | None = None,
    weights: Tensor | None = None,
    before: Attribution | None = None,
) -> Explanation:
    """Show an attribution: as plain rows for tables, JSON and the report.

    Args:
        attribution: of the text to show.
        title: shown above it, such as the document's id and the value of alpha.
        lexicon: its words are marked with their group.
        sensitivity: s_l of each sense [k].
        weights: the control's factor of each sense [k]; 1 where it is None.
        before: the same text without the control; changes are shown against it.

    Raises:
        ValueError: ``before`` is about another text or ranker.
    """
    if before is not None:
        same_text = before.alignment.ids == attribution.alignment.ids
        if not same_text or len(before.per_sense) != len(attribution.per_sense):
            raise ValueError(
                "the two attributions are about different texts or rankers; attribute the same "
                "pair twice"
            )
    group_of_word = {} if lexicon is None else groups_by_word(lexicon)
    words = []
    for index, word in enumerate(attribution.words):
        contribution = attribution.per_word[index]
        words.append(
            ExplainedWord(
                text=word.text,
                segment=word.segment,
                contribution=contribution.item(),
                space=word.space,
                group=group_of_first(word.text, group_of_word),
                change=None if before is None else (contribution - before.per_word[index]).item(),
            )
        )
    senses = []
    for index, contribution in enumerate(attribution.per_sense):
        senses.append(
            ExplainedSense(
                index=index,
                contribution=contribution.item(),
                sensitivity=None if sensitivity is None else float(sensitivity[index]),
                weight=1.0 if weights is None else float(weights[index]),
                change=None if before is None else (contribution - before.per_sense[index]).item(),
                name=attribution.sense_names[index],
            )
        )
    return Explanation(
        title=title,
        words=tuple(words),
        senses=tuple(senses),
        score=attribution.score,
        empty_score=attribution.empty_score,
        residual=attribution.residual,
        score_before=None if before is None else before.score,
        cut=attribution.alignment.cut,
    )


def groups_by_word(lexicon: Lexicon) -> dict[str, str]:
    """The group of each word of a lexicon."""
    group_of_word: dict[str, str] = {}
    for group, words in lexicon.groups.items():
        group_of_word.update(dict.fromkeys(words, group))
    return group_of_word


def group_of_first(text: str, group_of_word: Mapping[str, str]) -> str:
    """The group of the first lexicon word in a text, such as of "she's"; "" where there is none."""
    for part in word_tokens(text):
        if part in group_of_word:
            return group_of_word[part]
    return ""


def _check_has_senses(ranker: Ranker) -> BackpackForRanking:
    if not isinstance(ranker, BackpackForRanking):
        raise TypeError(
            f"the score of a {type(ranker).__name__} does not split into senses and tokens; use a "
            "Backpack that reads query and document together"
        )
    if ranker.reads_all_positions:
        raise TypeError(
            "a mean of sigmoids over all positions does not split into tokens: explain the ranker "
            "with readout=pooled"
        )
    return ranker
