"""Rankers: networks that give one raw score to each text, a query and a document joined.

All rankers are called in the same way, :meth:`Ranker.forward`. Alpha acts through two of its
arguments, and a ranker knows nothing else of it:

- ``sense_weights``: one factor for each sense (eq. 5 of Afzali et al.), of Backpack rankers;
- ``token_shift``: words that are read closer to the mean of their class (paired tokens), of all.

:mod:`backpack_rank.senses.hook` makes these arguments from a policy and an alpha. A third way is
set around a call: a map of the vector that the head scores
(:mod:`backpack_rank.models.pooled_map`).

``new_parts`` are the parameters that a pretrained checkpoint may lack, such as the ranking head
(:class:`~backpack_rank.models.checkpoint.StrictLoading`).

Notation of the docstrings: B texts, T tokens of all texts together, d hidden size, k senses, G
senses of attributes (0 without).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2Model,
    GPT2PreTrainedModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from backpack_rank.data.as_coded_input import EndlessPairTokenizer, UnseparatedPairTokenizer
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.attention import BACKEND, packed_trunk, use_fast_gelu
from backpack_rank.models.backbone import BackboneMixin, new_backbone
from backpack_rank.models.backpack import BackpackModel, BackpackPreTrainedModel
from backpack_rank.models.checkpoint import StrictLoading
from backpack_rank.models.configuration import (
    MEAN_SIGMOID,
    BackpackConfig,
    CrossEncoderConfig,
)
from backpack_rank.models.ranking_heads import LinearSigmoidHead, RankingHead, new_head
from backpack_rank.models.sense_network import TokenStateCache
from backpack_rank.models.similarity import with_similarity
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings


@dataclass(frozen=True)
class RankerOutput:
    """What a ranker gives for B texts.

    Attributes:
        scores: raw logits, higher is better. [B]
        senses: sense vectors of each text, before any weights; None unless asked for. [B, k + G, d]
            Of a ranker that reads all positions (``readout=mean_sigmoid``), what each sense adds to
            the logit of each position, NaN behind the end of a text. [B, k + G, n]
    """

    scores: Tensor
    senses: Tensor | None = None


class Ranker(StrictLoading, PreTrainedModel):
    """Derive from it to add a ranker: a model of transformers that scores packed texts.

    Attributes:
        has_senses: whether it has sense vectors, so that ``sense_weights`` can be passed.
        compares_vectors: whether a score compares a vector of the query with one of the document,
            so that several wordings of a document can be one vector
            (:class:`~backpack_rank.data.wordings.Wordings`).
        scores_stored_vectors: whether :meth:`score_vectors` gives the score of a pair; False where
            the pooled vector is the document's alone.
        pair_tokenizer_class: joins query and document to the text that it reads.
        folder: that it was loaded from, or None.
    """

    config: Any
    has_senses: ClassVar[bool] = False
    compares_vectors: ClassVar[bool] = False
    scores_stored_vectors: ClassVar[bool] = True
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = PairTokenizer
    folder: Path | None = None

    @classmethod
    def is_saved(cls) -> bool:
        """Whether folders are saved and loaded as this class: it names its configuration."""
        # Any, where a class names none, is a class since Python 3.11.
        kind = cls.config_class
        return isinstance(kind, type) and issubclass(kind, PreTrainedConfig)

    def count(self, texts: Iterable[str], pair_tokenizer: PairTokenizer) -> None:
        """Before it is trained: count in how many texts of a collection each token stands.

        Most rankers read nothing.
        """

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
            sense_weights: one factor for each sense [k + G], or for each text and sense
                [B, k + G]; None leaves the senses unchanged.
            token_shift: moves some tokens towards the mean of their class; None: none.
            return_senses: also return the sense vectors, before any weights.

        Raises:
            TypeError: weights or sense vectors are asked of a ranker without senses.
        """

    @property
    def pooled_head(self) -> nn.Module:
        """What makes a score of the pooled vector of a text.

        Raises:
            TypeError: no single vector stands for a text.
        """
        raise TypeError(f"{self.label} makes no score of one vector for each text")

    def score_vectors(self, vectors: Tensor) -> Tensor:
        """Score stored pooled vectors [B, d]; no text is read again. [B]"""
        scores: Tensor = self.pooled_head(vectors)
        return scores.reshape(len(vectors))

    def refuse_senses(self, sense_weights: Tensor | None, return_senses: bool) -> None:
        """For rankers without senses: raise ``TypeError`` where some are asked for."""
        if sense_weights is not None or return_senses:
            raise TypeError(
                f"{self.label} has no sense vectors; weights per sense need a Backpack ranker"
            )


class BackpackForRanking(Ranker, BackpackPreTrainedModel):
    """A Backpack with a ranking head: alpha acts on its senses.

    The head scores the sum of a text's sense vectors at its pooled token, each times its weight.
    With ``readout=mean_sigmoid``, the score is the mean of the head's scores over all positions,
    as in the authors' measurements of bias.

    >>> config = BackpackConfig(n_embd=32, n_layer=1, n_head=2, num_senses=4)
    >>> ranker = BackpackForRanking(config).eval()
    >>> batch = PackedBatch.from_sequences([[5, 9, 7], [8, 2]])  # two texts, as token ids
    >>> ranker(batch).scores.shape
    torch.Size([2])
    >>> without_first_sense = torch.tensor([0.0, 1.0, 1.0, 1.0])
    >>> ranker(batch, sense_weights=without_first_sense).scores.shape
    torch.Size([2])
    """

    config: BackpackConfig
    config_class = BackpackConfig
    has_senses: ClassVar[bool] = True
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.head: RankingHead | LinearSigmoidHead = new_head(
            config.head, config.hidden_size, config.dropout, config.similarity is not None
        )
        self.post_init()

    @property
    def pair_tokenizer_class(self) -> type[PairTokenizer]:  # type: ignore[override]
        """What joins query and document, as ``input_form`` and ``similarity`` say."""
        if self.config.similarity is not None:
            return JointPairTokenizer
        if self.config.input_form == "separated":
            return PairTokenizer
        if self.reads_all_positions:
            return EndlessPairTokenizer
        return UnseparatedPairTokenizer

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`; it takes the sum of the sense vectors."""
        if self.reads_all_positions:
            raise TypeError(
                f"{self.label} with readout={MEAN_SIGMOID} makes no score of one vector for each "
                "text"
            )
        return self.head

    @property
    def reads_all_positions(self) -> bool:
        """True where a score is a mean over all positions and not the head's at one."""
        return self.config.readout == MEAN_SIGMOID

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
        token_states: TokenStateCache | None = None,
    ) -> RankerOutput:
        """Scores of the B texts; see :meth:`Ranker.forward`.

        Args:
            batch, sense_weights, token_shift, return_senses: as of every ranker.
            token_states: cache of the sense network's hidden layer of each token from batch to
                batch, for inference on a CPU; None: no cache.
        """
        if token_shift is not None:
            batch = token_shift.merge_ids(batch)
        texts: PackedBatch | None = batch
        batch = self.backpack.read(batch)
        # The sum over senses is the same with attribute senses split off or not. So they are split
        # off only where they are weighed or returned, and alpha = 1 saves the work.
        split = return_senses or sense_weights is not None
        has_similarity = self.backpack.joint is not None
        if has_similarity and sense_weights is not None and not return_senses:
            check_sense_weights(sense_weights, self.config.total_senses, len(batch))
            of_groups = sense_weights[..., self.config.num_senses :]
            if not of_groups.any():
                # At alpha = 0 nothing counts of what forms add, so no text is read as written, too.
                texts = None
        if self.reads_all_positions:
            direction = self.head.out.weight[0]
            senses = self.backpack.logit_parts(direction, batch, token_shift, token_states, split)
        else:
            senses = self.backpack.pooled_senses(batch, token_shift, token_states, split, texts)
        scores = self.score_senses(senses, sense_weights)
        return RankerOutput(scores, senses if return_senses else None)

    def score_senses(self, senses: Tensor, sense_weights: Tensor | None = None) -> Tensor:
        """Score stored sense vectors under other weights; no text is read again. [B]

        Computes head(sum_l M_s(l) o^(l)) (Afzali et al., eq. 5). Weights of 1 leave every score
        unchanged bit for bit, because x * 1.0 == x.

        Args:
            senses: o^(l) [B, k + G, d], or what each sense adds to the logit of each position
                [B, k + G, n], as :class:`RankerOutput` has them.
            sense_weights: M_s, one for all texts [k + G] or for each [B, k + G]; None: all are 1.

        Raises:
            ValueError: not one finite weight >= 0 per sense.
        """
        mixed = weighed(senses, sense_weights).sum(dim=-2)
        if self.reads_all_positions:
            return torch.sigmoid(mixed).nanmean(dim=-1)
        return self.head(mixed)

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for pretraining."""
        word_embeddings = self.backpack.get_input_embeddings().weight
        return F.linear(self.backpack(input_ids).mixed, word_embeddings)


def weighed(senses: Tensor, weights: Tensor | None) -> Tensor:
    """Sense vectors times weights per sense; see :meth:`BackpackForRanking.score_senses`.

    Args:
        senses: [B, k + G, d]
        weights: M_s, one for all texts [k + G] or for each [B, k + G]; None: all are 1.

    Raises:
        ValueError: not one finite weight >= 0 per sense.
    """
    if weights is None:
        return senses
    check_sense_weights(weights, senses.shape[-2], len(senses))
    return senses * weights.to(senses)[..., None]


def check_sense_weights(weights: Tensor, senses: int, texts: int | None = None) -> None:
    """Raise ``ValueError`` unless there is one finite weight >= 0 for each sense.

    Args:
        weights: one for each sense, or for each text and sense.
        senses: number of senses.
        texts: number of texts; None: the same weights hold for all texts.
    """
    shapes = [(senses,)] if texts is None else [(senses,), (texts, senses)]
    has_shape = tuple(weights.shape) in shapes
    if not has_shape or not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError(
            f"need {senses} finite weights >= 0, one per sense, got {weights.tolist()}"
        )


class BackboneRanker(BackboneMixin, Ranker):
    """What the cross-encoder and the dual encoder share: a backbone is their only network."""

    base_model_prefix = "backbone"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    supports_gradient_checkpointing = True

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits of a decoder, for pretraining: [B, n] -> [B, n, vocabulary].

        Texts have no padding.
        """
        hidden = self.backbone(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.get_input_embeddings().weight)


class CrossEncoderForRanking(BackboneRanker):
    """A plain cross-encoder (monoBERT, BERT_CAT), the baseline of a Backpack over it.

    Any encoder or decoder, with the Backpack's head on its last hidden state at the pooled token.
    """

    config: CrossEncoderConfig
    config_class = CrossEncoderConfig
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)

    def __init__(self, config: CrossEncoderConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self.joint = self.new_joint_layers()
        self.head = RankingHead(config.hidden_size, config.dropout, self.joint is not None)
        self.post_init()

    @property
    def pair_tokenizer_class(self) -> type[PairTokenizer]:  # type: ignore[override]
        """What joins query and document; with a similarity they are texts of their own."""
        return PairTokenizer if self.joint is None else JointPairTokenizer

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`."""
        return self.head

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores [B] from the head on the pooled token; ``token_shift`` moves word embeddings."""
        self.refuse_senses(sense_weights, return_senses)
        if self.joint is not None:
            reading = self.read_jointly(batch, token_shift)
            return RankerOutput(self.head(with_similarity(reading.pooled, reading.similarity)))
        hidden = self.pooled_states(batch, token_shift)
        # The backbone may be in half precision; the head is in float32.
        return RankerOutput(self.head(hidden.to(self.head.dense.weight.dtype)))


class GPT2ForRanking(Ranker, GPT2PreTrainedModel):
    """The baseline of Afzali et al. (Table 1): GPT-2 with the Backpack's head.

    The head scores the last hidden state of a text's last token.
    """

    config: GPT2Config
    config_class = GPT2Config
    new_parts: ClassVar[tuple[str, ...]] = ("head.",)
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()
        # Attention over a row of texts without padding, and torch's own gelu: equal, and faster.
        self.transformer.set_attn_implementation(BACKEND)
        use_fast_gelu(self.transformer)

    @property
    def pooled_head(self) -> nn.Module:
        """See :attr:`Ranker.pooled_head`."""
        return self.head

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores [B] from the head on the last token; ``token_shift`` moves word embeddings."""
        self.refuse_senses(sense_weights, return_senses)
        with shifted_embeddings(self.transformer.wte, token_shift):
            hidden = packed_trunk(self.transformer, batch)
        return RankerOutput(self.head(hidden[batch.last_positions]))

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Next-token logits [B, n, vocabulary] of texts [B, n] without padding, for pretraining."""
        hidden = self.transformer(input_ids=input_ids, use_cache=False).last_hidden_state
        return F.linear(hidden, self.transformer.wte.weight)


@dataclass(frozen=True)
class JointPairTokenizer(PairTokenizer):
    """Where query and document are texts of their own, and are also read as one.

    A pair is one row, [start, query, separator, start, document, end], so that each of the two is
    what it is alone.

    Raises:
        ValueError: the separator is also the start token, so that it would not tell where a query
            ends.
    """

    def __post_init__(self) -> None:
        if self.start_id == self.separator_id:
            raise ValueError(
                f"token {self.separator_id} of the tokenizer starts a text and separates texts, so "
                "query and document cannot be told apart; give the tokenizer a sep_token of its own"
            )

    @property
    def between(self) -> tuple[int, ...]:
        """The end of the query, and the start of the document."""
        return (self.separator_id, *self.start.tolist())


@dataclass(frozen=True)
class DualPairTokenizer(JointPairTokenizer):
    """With a dual encoder: it encodes query and document as they are read alone.

    ``max_length`` is the limit of each of the two texts, added tokens included. So a document is
    cut in the same place whatever the query, and its vector can be computed once.
    """

    def queries(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each query as it is read, [start, query, separator].

        Raises:
            ValueError: see :meth:`encode_query`.
        """
        return [self._query(self.encode_query(text)) for text in texts]

    def documents(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each document as it is read: [start, document, end], cut to ``max_length``."""
        return [self._document(ids) for ids in self.encode(texts)]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query.

        Raises:
            ValueError: it is empty or longer than ``max_length``.
        """
        (ids,) = self.encode([text])
        if not len(ids):
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        length = len(self.start) + len(ids) + 1  # with the separator
        if length > self.max_length:
            raise ValueError(
                f"the query has {length} tokens, added ones included, and "
                f"max_length={self.max_length}; raise max_length or shorten the query: "
                f"{text[:80]!r}"
            )
        return ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit, which do not depend on the query."""
        return self.max_length - len(self.start) - 1

    def join(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """[start, query, separator, start, document, end], the document cut to ``max_length``."""
        return np.concatenate([self._query(query), self._document(document)])

    def _query(self, ids: np.ndarray) -> np.ndarray:
        separator = np.array([self.separator_id], dtype=np.int32)
        return np.concatenate([self.start, ids, separator])

    def _document(self, ids: np.ndarray) -> np.ndarray:
        end = np.array([self.end_id], dtype=np.int32)
        # room() is the same whatever it is given: no query takes space from a document here.
        return np.concatenate([self.start, ids[: self.room(ids)], end])
