"""Rankers: one raw score per (query, document) text.

Alpha acts in two arguments of the forward pass: ``sense_weights`` (eq. 5 of Afzali et al.) and ``token_shift`` (paired
tokens). :mod:`backpack_rank.senses.hook` sets what is passed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model, GPT2PreTrainedModel, PreTrainedModel

from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.attention import BACKEND, packed_trunk, use_fast_gelu
from backpack_rank.models.backbone import BackboneMixin, new_backbone
from backpack_rank.models.backpack import BackpackModel, BackpackPreTrainedModel
from backpack_rank.models.checkpoint import StrictLoading
from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig, DualEncoderConfig
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings


@dataclass(frozen=True)
class RankerOutput:
    """Scores (raw logits) [B] and, on request, the sense vectors of each text [B, k, d]."""

    scores: Tensor
    senses: Tensor | None = None


class Ranker(StrictLoading, PreTrainedModel):
    """What every ranker is: a model of transformers that scores packed texts.

    Attributes:
        has_senses: whether it splits into senses, so that weights per sense can be passed.
        pair_tokenizer_class: joins the texts that it reads.
    """

    config: Any
    has_senses: ClassVar[bool] = False
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = PairTokenizer

    @property
    def label(self) -> str:
        """Name in tables."""
        return type(self).__name__

    @abstractmethod
    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores of the B texts of a packed batch.

        Args:
            batch: the texts.
            sense_weights: M_s, one factor per sense [k], or per text and sense [B, k]; None leaves the senses alone.
            token_shift: tokens that are read closer to the mean of their class; None: none.
            return_senses: also return the sense vectors, before any weights.

        Raises:
            TypeError: weights or sense vectors are asked of a ranker without senses.
        """

    def refuse_senses(self, sense_weights: Tensor | None, return_senses: bool) -> None:
        """For rankers without senses: raise ``TypeError`` where some are asked for."""
        if sense_weights is not None or return_senses:
            raise TypeError(f"{self.label} has no sense vectors; weights per sense need a Backpack ranker")


class RankingHead(nn.Module):
    """Two-layer MLP d -> d -> 1 (Afzali et al., section 3). Gives raw logits; a sigmoid would not change a ranking."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(size, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """[..., d] -> [...]"""
        return self.out(self.dropout(F.gelu(self.dense(vectors)))).squeeze(-1)


class BackpackForRanking(Ranker, BackpackPreTrainedModel):
    """Backpack with a ranking head on the mix of senses at the pooled token, which alpha can turn."""

    config: BackpackConfig
    config_class = BackpackConfig
    has_senses: ClassVar[bool] = True
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.head = RankingHead(config.hidden_size, config.dropout)
        self.post_init()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
        token_states: TokenStateCache | None = None,
    ) -> RankerOutput:
        """Scores of the B texts; ``token_states`` remembers what the sense network says of a token (CPU inference)."""
        if token_shift is not None:
            batch = token_shift.merge_ids(batch)
        batch = self.backpack.read(batch)
        # Splitting what sets words apart from the other senses does not change their sum: alpha = 1 does without.
        split = return_senses or sense_weights is not None
        senses = self.backpack.pooled_senses(batch, token_shift, token_states, split)
        return RankerOutput(self.score_senses(senses, sense_weights), senses if return_senses else None)

    def score_senses(self, senses: Tensor, sense_weights: Tensor | None = None) -> Tensor:
        """head(sum_l M_s(l) o^(l)) (eq. 5), the part of the forward pass that weights per sense change. [B]

        Weights of 1 leave every score bit for bit as it is, because x * 1.0 == x.

        Args:
            senses: o^(l). [B, k + G, d]
            sense_weights: M_s. [k + G], or [B, k + G] where texts have weights of their own

        Raises:
            ValueError: not one finite weight >= 0 per sense.
        """
        if sense_weights is not None:
            check_sense_weights(sense_weights, self.config.total_senses, len(senses))
            senses = senses * sense_weights.to(senses)[..., None]
        return self.head(senses.sum(dim=-2))

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for pretraining."""
        return F.linear(self.backpack(input_ids).mixed, self.backpack.get_input_embeddings().weight)


def check_sense_weights(weights: Tensor, senses: int, texts: int | None = None) -> None:
    """Raise ``ValueError`` unless there is one finite weight >= 0 per sense, for all texts or for each."""
    fits = weights.shape == (senses,) or (texts is not None and weights.shape == (texts, senses))
    if not fits or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError(f"need {senses} finite weights >= 0, one per sense, got {weights.tolist()}")


class BackboneRanker(BackboneMixin, Ranker):
    """A ranker whose only network is a backbone: what the cross-encoder and the dual encoder share."""

    base_model_prefix = "backbone"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    supports_gradient_checkpointing = True

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for pretraining of decoders."""
        hidden = self.backbone(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.get_input_embeddings().weight)


class CrossEncoderForRanking(BackboneRanker):
    """Any backbone with the same head on its last hidden state at the pooled token (monoBERT, BERT_CAT)."""

    config: CrossEncoderConfig
    config_class = CrossEncoderConfig
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)

    def __init__(self, config: CrossEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.head = RankingHead(config.hidden_size, config.dropout)
        self.post_init()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores [B] from the head on the pooled token; ``token_shift`` moves what the encoder reads."""
        self.refuse_senses(sense_weights, return_senses)
        hidden = self.pooled_states(batch, token_shift)
        return RankerOutput(self.head(hidden.to(self.head.dense.weight.dtype)))


class GPT2ForRanking(Ranker, GPT2PreTrainedModel):
    """GPT-2 with the same head on its last hidden state: the baseline of Afzali et al. (Table 1)."""

    config: GPT2Config
    config_class = GPT2Config
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()
        self.transformer.set_attn_implementation(BACKEND)
        use_fast_gelu(self.transformer)

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores [B] from the head on the last token; ``token_shift`` moves the word embeddings."""
        self.refuse_senses(sense_weights, return_senses)
        with shifted_embeddings(self.transformer.wte, token_shift):
            hidden = packed_trunk(self.transformer, batch)
        return RankerOutput(self.head(hidden[batch.last_positions]))

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for pretraining."""
        hidden = self.transformer(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.transformer.wte.weight)


@dataclass(frozen=True)
class DualPairTokenizer(PairTokenizer):
    """Encodes the two texts of a pair as the encoder reads them alone, one behind the other.

    A joined row is [start, query, separator, start, document, end]. ``max_length`` is the limit of each of the two
    texts, added tokens included: a document is cut in the same place whatever the query, so that its vector can be
    computed once.

    Raises:
        ValueError: the separator is also the start token, so that it would not tell where a query ends.
    """

    def __post_init__(self) -> None:
        if self.start_id == self.separator_id:
            raise ValueError(
                f"token {self.separator_id} of the tokenizer starts a text and separates texts, so query and document "
                "cannot be told apart; give the tokenizer a sep_token of its own"
            )

    def queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each query as it is read: [start, query, separator]. Raises ``ValueError`` as :meth:`encode_query`."""
        return [self._query(self.encode_query(text)) for text in texts]

    def documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each document as it is read: [start, document, end], cut to ``max_length``."""
        return [self._document(ids) for ids in self.encode(texts)]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query. Raises ``ValueError`` when it is empty or longer than ``max_length``."""
        (ids,) = self.encode([text])
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        if (length := len(self.start) + len(ids) + 1) > self.max_length:
            raise ValueError(
                f"the query has {length} tokens, added ones included, and max_length={self.max_length}; raise "
                f"max_length or shorten the query: {text[:80]!r}"
            )
        return ids

    def room(self, query: np.ndarray) -> int:
        return self.max_length - len(self.start) - 1

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, separator, start, document, end], the document's part cut to ``max_length``."""
        return np.concatenate([self._query(query), self._document(document)])

    def _query(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([self.start, ids, np.array([self.separator_id], dtype=np.int32)])

    def _document(self, ids: np.ndarray) -> np.ndarray:
        return np.concatenate([self.start, ids[: self.room(ids)], np.array([self.end_id], dtype=np.int32)])


class DualEncoderForRanking(BackboneRanker):
    """One backbone for queries and documents; score = q . d of the vectors at their pooled tokens.

    BERT_DOT (Hofstätter et al. 2021, eq. 3): TF([CLS; q])_1 . TF([CLS; p])_1. Nothing is added to the backbone.
    """

    config: DualEncoderConfig
    config_class = DualEncoderConfig
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = DualPairTokenizer

    def __init__(self, config: DualEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.post_init()

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores of the B rows of a packed batch, each a query and a document (:class:`DualPairTokenizer`).

        A query that several rows have is read once.

        Raises:
            TypeError: weights or sense vectors are asked for.
            ValueError: a row has no separator behind its query.
        """
        self.refuse_senses(sense_weights, return_senses)
        if self.config.separator_id is None:
            raise ValueError("the configuration names no separator_id, so a row cannot be split behind its query")
        behind = behind_separator(batch, self.config.separator_id)
        documents = batch.select(behind)
        if bool((documents.offsets[1:] == documents.offsets[:-1]).any()):
            raise ValueError("a row has no document behind its query; join the texts with DualPairTokenizer")
        queries, rows = distinct(batch.select(~behind))
        vectors = self.encode_queries(queries, token_shift)[rows], self.encode_documents(documents, token_shift)
        return RankerOutput((vectors[0] * vectors[1]).sum(dim=-1))

    def encode_queries(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B queries [start, query, separator]. [B, d]"""
        return self.pooled_states(batch, token_shift)

    def encode_documents(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B documents [start, document, end]; they depend on no query. [B, d]"""
        return self.pooled_states(batch, token_shift)


def distinct(batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
    """The different texts of a batch, in the order of their first places, and which of them each text is. [B]"""
    # One higher, so that a token with id 0 is not taken for padding.
    _, groups = torch.unique(batch.pad(batch.input_ids + 1), dim=0, return_inverse=True)
    places = torch.arange(len(batch), device=groups.device)
    first = torch.full_like(places, len(batch)).scatter_reduce(0, groups, places, "amin")[groups]
    kept = first == places
    if bool(kept.all()):
        return batch, places
    part = batch.select(kept[batch.text_ids])
    number = kept.long().cumsum(0) - 1
    offsets = torch.cat([part.offsets[:-1][kept], part.offsets[-1:]])
    texts = PackedBatch(part.input_ids, part.position_ids, number[part.text_ids], offsets, part.max_length)
    return texts, number[first]
