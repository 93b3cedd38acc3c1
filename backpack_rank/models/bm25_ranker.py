"""BM25 as a ranker like the others: counts of a collection in place of weights, and scores of any pair of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import PairEncoder
from backpack_rank.data.vocabulary import WordPairEncoder, count_words, unknown_buckets
from backpack_rank.models.loading import CheckedLoading
from backpack_rank.models.packing import PackedBatch, behind_separator
from backpack_rank.models.ranker import RankerOutput


class Bm25Config(PreTrainedConfig):
    """What BM25 needs to know beside the counts.

    Attributes:
        vocab_size: words of the vocabulary, special tokens included; higher ids are words that no counted document has.
        separator_id: the token between query and document.
        k1: saturation of term frequency, >= 0.
        b: strength of length normalisation, in [0, 1].
    """

    model_type = "bm25"

    vocab_size: int = 3
    separator_id: int = 2
    k1: float = 0.9
    b: float = 0.4

    def __post_init__(self, **kwargs) -> None:
        super().__post_init__(**kwargs)
        if not (math.isfinite(self.k1) and self.k1 >= 0):
            raise ValueError(f"k1={self.k1} must be a number of at least 0")
        if not 0 <= self.b <= 1:
            raise ValueError(f"b={self.b} must be between 0 and 1")

    @property
    def n_positions(self) -> int:
        """Words of a joined text at most; nothing here grows with it."""
        return 2**31 - 1


AutoConfig.register(Bm25Config.model_type, Bm25Config)


class Bm25ForRanking(CheckedLoading, PreTrainedModel):
    """BM25 as Lucene computes it, like the first stage of :class:`backpack_rank.data.first_stage.Bm25`.

        score = sum over the query's words t of  idf_t tf_t / (tf_t + k1 (1 - b + b L / L_mean))
        idf_t = log(1 + (N - df_t + 0.5) / (df_t + 0.5))

    tf_t counts t in the document, L is the document's length in words; a word that is twice in the query counts twice.
    N, df and L_mean are those of the counted documents; the documents that are scored may be others. A word that no
    counted document has is as rare as a word can be (df 0). Counts are whole numbers and scores are summed in fp64, so
    that no number format of a configuration touches them.
    """

    config: Bm25Config
    config_class = Bm25Config
    pair_encoder: ClassVar[type[PairEncoder]] = WordPairEncoder
    document_frequencies: Tensor
    totals: Tensor

    def __init__(self, config: Bm25Config) -> None:
        super().__init__(config)
        self.register_buffer("document_frequencies", torch.zeros(config.vocab_size, dtype=torch.int64))
        self.register_buffer("totals", torch.zeros(2, dtype=torch.int64))  # documents, words
        self.post_init()

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the scores; a model with weights has that of its weights."""
        return torch.float64

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing: there are no weights."""

    def count(self, texts: Iterable[str], encoder: WordPairEncoder) -> None:
        """Count the documents of a collection, in place of what was counted before.

        Raises:
            ValueError: no document has a word, or a word is not in the encoder's vocabulary.
        """
        counts = count_words(texts, encoder, self.config.vocab_size)
        self.document_frequencies.copy_(torch.from_numpy(counts.holders))
        self.totals.copy_(torch.tensor([counts.documents, counts.words]))

    def forward(self, batch: PackedBatch, return_senses: bool = False) -> RankerOutput:
        """Scores of the B texts of a packed batch, each [query, separator, document], in fp64.

        Raises:
            ValueError: when asked for sense vectors, or nothing was counted yet.
        """
        if return_senses:
            raise ValueError("BM25 has no sense vectors, so alpha cannot turn it; use a Backpack ranker")
        if not int(self.totals[0]):
            raise ValueError("this BM25 has counted no documents: run train.py model=bm25, or call count()")
        behind = behind_separator(batch, self.config.separator_id)
        query = batch.select(~behind & (batch.input_ids != self.config.separator_id))
        document = batch.select(behind)
        lengths = (document.offsets[1:] - document.offsets[:-1]).double()
        documents, words = self.totals.double()
        norm = self.config.k1 * (1 - self.config.b + self.config.b * lengths * documents / words)
        frequencies = occurrences(query, document).double()
        parts = self.idf(query.input_ids) * frequencies / (frequencies + norm[query.text_ids]).clamp(min=1e-300)
        return RankerOutput(parts.new_zeros(len(batch)).index_add(0, query.text_ids, parts))

    def idf(self, ids: Tensor) -> Tensor:
        """log(1 + (N - df + 0.5) / (df + 0.5)) of words [...], in fp64."""
        known = ids < len(self.document_frequencies)
        frequencies = self.document_frequencies[torch.where(known, ids, 0)] * known
        return torch.log1p((self.totals[0] - frequencies + 0.5).double() / (frequencies + 0.5).double())

    def lm_logits(self, input_ids: Tensor) -> Tensor:
        """Raises ``ValueError``: counts predict no next word."""
        raise ValueError("BM25 is no language model to warm up: use warmup.epochs=0")


def occurrences(query: PackedBatch, document: PackedBatch) -> Tensor:
    """How often each word of the queries is in the document of its text. int64, one per word of the queries"""
    # Word and text as one number; the words of all documents sorted, a word's occurrences are a range.
    wanted = (query.text_ids << 32) | query.input_ids
    found = ((document.text_ids << 32) | document.input_ids).sort().values
    return torch.searchsorted(found, wanted, right=True) - torch.searchsorted(found, wanted)


def bm25(tokenizer: PreTrainedTokenizerBase, *, k1: float = 0.9, b: float = 0.4) -> Bm25ForRanking:
    """BM25 over the words of a vocabulary, before it has counted documents (``conf/model/bm25.yaml``).

    Args:
        tokenizer: of whole words, as :class:`~backpack_rank.data.vocabulary.WordVocabulary` makes it.
        k1, b: see :class:`Bm25Config`.

    Raises:
        ValueError: the tokenizer is not one of whole words, or k1 or b is out of its range.
    """
    unknown_buckets(tokenizer)
    options: dict[str, Any] = {"vocab_size": len(tokenizer), "separator_id": tokenizer.sep_token_id}
    return Bm25ForRanking(Bm25Config(k1=k1, b=b, **options))
