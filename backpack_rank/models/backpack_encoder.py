"""A Backpack that gives vectors: the dial inside an encoder, in one pass and one index.

The construction is this project's own. A pretrained encoder stays as it is. It reads a query, whose
vector q is the encoder's own. It reads a document with every word of a class as one form
(:mod:`backpack_rank.models.attribute_senses`), and its states make contextual weights of either
sign, which mix senses of the document's tokens::

    n = sum over the k senses of (W_l sum_j a[l, j] m(x_j) + b_l)       without the attribute
    w = n + sum over the G senses of the attribute
    e_0 = n / |n|,   e = w / |w|,   e_alpha = e_0 + alpha (e - e_0)

So one pass gives both ends of the dial. Texts that differ in words of a class alone have one e_0:
the networks read the same vectors. e - e_0 is 0 for documents without such words. A score is linear
in alpha::

    q . e_alpha = [q ; alpha q] . [e_0 ; e - e_0]

The ranker's vector of a document is [e_0 ; e - e_0], and that of a query [q ; q], so an index of
them serves every alpha. Senses and weights learn to give the encoder's own vectors
(:class:`~backpack_rank.training.reconstruction.VectorReconstruction`).

Notation of the docstrings: B texts, d hidden size, k senses, G senses of attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from backpack_rank.data.packing import PackedBatch, picked
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.apart import VectorRanker, mean_vectors
from backpack_rank.models.backpack import BackpackModel, BackpackPreTrainedModel
from backpack_rank.models.configuration import BackpackEncoderConfig
from backpack_rank.models.dual_encoder import DualEncoderPairTokenizer, parts_of_row
from backpack_rank.models.rankers import BackpackForRanking, RankerOutput, weighed
from backpack_rank.models.similarity import unit_vectors
from backpack_rank.models.token_shift import TokenShift


class BackpackEncoderForRanking(VectorRanker, BackpackPreTrainedModel):
    """Searches with vectors that have a dial: documents are sums of senses.

    ::

        ranker, pair_tokenizer = load_ranker("outputs/latest/train/ranker")
        batch = PackedBatch.from_sequences(pair_tokenizer.documents(["She cooks."]))
        ranker.encode_documents(batch).shape  # [e_0 ; e - e_0] of MiniLM: torch.Size([1, 768])

    As a ranker of pairs it has k + G senses, each with one number for a pair, what it adds to the
    score: q . e_0 belongs to the k senses in equal parts, and q . (e - e_0) to those of groups.
    """

    config: BackpackEncoderConfig
    config_class = BackpackEncoderConfig
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = DualEncoderPairTokenizer
    has_senses: ClassVar[bool] = True
    reads_all_positions: ClassVar[bool] = False

    def __init__(self, config: BackpackEncoderConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.backpack.backbone.requires_grad_(False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The encoder's word embeddings."""
        return self.backpack.get_input_embeddings()

    def train(self, mode: bool = True) -> Self:
        """As of every module; the encoder stays itself, without dropout."""
        super().train(mode)
        self.backpack.backbone.eval()
        return self

    @property
    def vector_size(self) -> int:
        """2 d, the two halves of a vector."""
        return 2 * self.config.hidden_size

    def parts_of_row(self, row: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """See :meth:`ApartRanker.parts_of_row`: a query ends with the first separator."""
        return parts_of_row(row, self.config.separator_id, self.mark)

    def encode_queries(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """[q ; q] of B queries, which keep their words of classes. [B, 2 d]"""
        vectors = self.encoder_vectors(batch, token_shift)
        return torch.cat([vectors, vectors], dim=1)

    def encode_documents(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """[e_0 ; e - e_0] of B documents, in one pass. [B, 2 d]"""
        neutral, whole = self.neutral_and_whole(batch, token_shift)
        return torch.cat([neutral, whole - neutral], dim=1)

    def neutral_and_whole(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """E_0 and e of B documents. float32 [B, d] of both"""
        backpack = self.backpack
        senses = backpack.pooled_senses(backpack.read(batch), token_shift).float()
        of_tokens, of_groups = senses.tensor_split([self.config.num_senses], dim=1)
        neutral = of_tokens.sum(dim=1)
        # Without words of a class the second sum is exactly 0, and both ends are one vector.
        whole = neutral + of_groups.sum(dim=1)
        return F.normalize(neutral, dim=-1), F.normalize(whole, dim=-1)

    @torch.no_grad()
    def encoder_vectors(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors that the encoder makes of B texts, of length 1. float32 [B, d]"""
        states = self.backpack.hidden_states(batch, token_shift)
        return unit_vectors(states.float(), batch, self.config.encoder_pooling)

    def mean(self, wordings: Sequence[Tensor]) -> Tensor:
        """See :meth:`ApartRanker.mean`: e is the mean's, and it has no part of the attribute."""
        neutral, part = torch.stack(list(wordings)).chunk(2, dim=-1)
        (mean,) = mean_vectors((neutral + part)[None], unit=True)
        return torch.cat([mean, torch.zeros_like(mean)])

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """See :meth:`Ranker.forward`; of each pair, a sense has one number. [B, k + G, 1]"""
        queries, documents = self.read_pairs(batch, token_shift)
        products = torch.stack(documents) * torch.stack(queries)
        neutral, part = products.unflatten(-1, (2, -1)).sum(dim=-1).unbind(dim=-1)  # two of [B]
        senses, groups = self.config.num_senses, len(self.config.groups)
        parts = [(neutral / senses)[:, None].expand(-1, senses)]
        if groups:
            parts.append((part / groups)[:, None].expand(-1, groups))
        of_senses = torch.cat(parts, dim=1)[..., None]
        scores = self.score_senses(of_senses, sense_weights)
        return RankerOutput(scores, of_senses if return_senses else None)

    def score_senses(self, senses: Tensor, sense_weights: Tensor | None = None) -> Tensor:
        """Scores from what each sense adds, under other weights; no text is read again. [B]

        Args:
            senses: as :class:`RankerOutput` has them. [B, k + G, 1]
            sense_weights: M_s, one for all pairs [k + G] or for each [B, k + G]; None: all are 1.

        Raises:
            ValueError: not one finite weight >= 0 per sense.
        """
        return weighed(senses, sense_weights).sum(dim=(-2, -1))

    def vectors_and_targets(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """E of B documents, with gradients, and the vectors that the encoder makes. [B, d] of both

        The encoder reads a document twice where it has words of a class: once as they are.
        """
        backpack = self.backpack
        read = backpack.read(batch)
        with torch.no_grad():
            states = backpack.hidden_states(read)
        weights = backpack.sense_weight_net.weights(states, states, read)
        senses = backpack.weighted_senses(weights, read, split=False).float()
        vectors = F.normalize(senses.sum(dim=1), dim=-1)
        targets = unit_vectors(states.float(), read, self.config.encoder_pooling)
        if read is not batch and backpack.attribute_senses is not None:
            is_form = read.input_ids >= backpack.attribute_senses.vocabulary
            rows = read.text_ids[is_form].unique()
            targets[rows] = self.encoder_vectors(picked(batch, rows))
        return vectors, targets


SenseRanker = BackpackForRanking | BackpackEncoderForRanking
"""Rankers whose ``backpack`` has the senses that policies weigh."""
