"""Rankers over word vectors, which an interaction module compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from backpack_rank.checks import above, whole_number
from backpack_rank.constructors import Count, OneOf, PathText, Positive, Width
from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.vocabulary import (
    SPECIAL,
    WordPairTokenizer,
    document_frequencies,
    unknown_buckets,
)
from backpack_rank.models.interactions import INTERACTIONS, new_interaction
from backpack_rank.models.interactions.pacrr import Pacrr
from backpack_rank.models.interactions.tk import Tk
from backpack_rank.models.rankers import Ranker, RankerOutput
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.word_embeddings import RANDOM, word_vectors


class InteractionConfig(PreTrainedConfig):
    """What a word-embedding ranker needs to know.

    Attributes:
        interaction: name of the module that compares the texts, one of
            ``backpack_rank.models.interactions``.
        sizes: of that module, by the names of its arguments; others have its defaults.
        vocab_size: words of the vocabulary, padding, unknown and separator tokens included.
        unknown_buckets: further ids, for words outside the vocabulary.
        embedding_size: e, size of the word vectors.
        separator_id: the token between query and document.
        max_query_length: words of a query that are read.
        max_document_length: words of a document that are read.
    """

    model_type = "word_interaction"

    interaction: str = "knrm"
    sizes: dict[str, Any] | None = None
    vocab_size: int = 3
    unknown_buckets: int = 0
    embedding_size: int = 300
    separator_id: int = 2
    max_query_length: int = 30
    max_document_length: int = 200

    def __post_init__(self, **kwargs) -> None:
        super().__post_init__(**kwargs)
        whole_number("max_query_length", self.max_query_length, 1)
        whole_number("max_document_length", self.max_document_length, 1)

    @property
    def n_positions(self) -> int:
        """Tokens of a joined text at most: query, separator, document."""
        return self.max_query_length + 1 + self.max_document_length


AutoConfig.register(InteractionConfig.model_type, InteractionConfig)


@dataclass(frozen=True)
class Side:
    """The queries or the documents of B texts.

    Attributes:
        tokens: which of the T tokens of the batch these are. bool [T]
        packed: the n of them.
        vectors: their word vectors. [n, e]
    """

    tokens: Tensor
    packed: PackedBatch
    vectors: Tensor

    def padded(self) -> tuple[Tensor, Tensor]:
        """Vectors, 0 at padding [B, N, e], and True where there is a word [B, N]."""
        return self.packed.pad(self.vectors), self.packed.padding_mask()

    def ids(self) -> Tensor:
        """Word ids, 0 at padding. [B, N]"""
        return self.packed.pad(self.packed.input_ids)


class InteractionForRanking(Ranker):
    """The rankers over word vectors: KNRM, Conv-KNRM, MatchPyramid, PACRR and TK.

    :func:`interaction_ranker` makes one for a vocabulary.
    """

    config: InteractionConfig
    config_class = InteractionConfig
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = WordPairTokenizer

    def __init__(self, config: InteractionConfig) -> None:
        super().__init__(config)
        # Called backbone because training.learning_rate is for the part of this name; the
        # interaction is trained with head_learning_rate.
        words = config.vocab_size + config.unknown_buckets
        self.backbone = nn.Embedding(words, config.embedding_size)
        self.interaction = new_interaction(
            config.interaction, config.embedding_size, config.sizes or {}
        )
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: the modules choose their first values themselves."""

    @property
    def label(self) -> str:
        """Name in tables: that of the interaction."""
        return self.config.interaction

    def get_input_embeddings(self) -> nn.Embedding:
        """The word vectors."""
        return self.backbone

    def forward(
        self,
        batch: PackedBatch,
        sense_weights: Tensor | None = None,
        token_shift: TokenShift | None = None,
        return_senses: bool = False,
    ) -> RankerOutput:
        """Scores [B] of the texts of a batch; ``token_shift`` moves word vectors."""
        self.refuse_senses(sense_weights, return_senses)
        query, document = self.sides(batch, token_shift)
        query_vectors, query_mask = query.padded()
        document_vectors, document_mask = document.padded()
        scores = self.interaction(
            query=query_vectors,
            query_mask=query_mask,
            document=document_vectors,
            document_mask=document_mask,
            query_ids=query.ids(),
            document_ids=document.ids(),
            token_shift=token_shift,
        )
        return RankerOutput(scores)

    def count(self, texts: Iterable[str], pair_tokenizer: PairTokenizer) -> None:
        """See :meth:`Ranker.count`: PACRR may weigh words by their IDF.

        Other interactions read nothing. IDF = log(N / (df + 1)), at least 0, of N documents of
        which df hold the word.
        """
        interaction = self.interaction
        if isinstance(interaction, Pacrr) and interaction.idf is not None:
            frequencies, documents = document_frequencies(
                texts, pair_tokenizer, len(interaction.idf)
            )
            idf = np.log(documents / (frequencies + 1)).clip(min=0.0)
            interaction.set_idf(torch.from_numpy(idf))

    def sides(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> tuple[Side, Side]:
        """Queries and documents, each cut to the words that are read."""
        separator = self.config.separator_id
        in_document = behind_separator(batch, separator)
        in_query = ~in_document & (batch.input_ids != separator)
        query = self._side(batch, in_query, self.config.max_query_length, token_shift)
        document = self._side(batch, in_document, self.config.max_document_length, token_shift)
        return query, document

    def token_representations(self, batch: PackedBatch) -> Tensor:
        """The vector of each token: its word vector, for TK in its context. [T, e]

        Rows of separators and of words beyond the limits of query and document are 0. The vectors
        in their context are those of Hofstätter et al. 2021, eq. 4.
        """
        query, document = self.sides(batch)
        document_shift = getattr(self.interaction, "document_shift", 0)
        table = self.backbone.weight.new_zeros(len(batch.input_ids), self.config.embedding_size)
        for side, first_position in ((query, 0), (document, document_shift)):
            vectors, mask = side.padded()
            if isinstance(self.interaction, Tk):
                vectors = self.interaction.contextualise(vectors, mask, first_position)
            table[side.tokens] = vectors[mask]
        return table

    def _side(
        self, batch: PackedBatch, tokens: Tensor, limit: int, token_shift: TokenShift | None
    ) -> Side:
        packed = batch.select(tokens)
        if packed.max_length > limit:
            read = packed.position_ids < limit
            tokens = tokens.masked_scatter(tokens, read)
            packed = packed.select(read)
        vectors = self.backbone(packed.input_ids)
        if token_shift is not None:
            vectors = token_shift.embeddings(vectors, packed.input_ids)
        return Side(tokens, packed, vectors)


def interaction_ranker(
    tokenizer: PreTrainedTokenizerBase,
    *,
    interaction: Annotated[str, OneOf(INTERACTIONS)],
    sizes: Mapping[str, Any] | None = None,
    embeddings: PathText = RANDOM,
    embedding_size: Width | None = None,
    embedding_norm: Positive | None = None,
    max_query_length: Count = 30,
    max_document_length: Count = 200,
) -> InteractionForRanking:
    """Make a word-embedding ranker for the words of a vocabulary; in training mode.

    ::

        ranker = interaction_ranker(tokenizer, interaction="knrm", embeddings="glove.6B.300d.txt")

    Args:
        tokenizer: of :class:`~backpack_rank.data.vocabulary.WordVocabulary`.
        interaction: ``knrm``, ``conv_knrm``, ``match_pyramid``, ``pacrr`` or ``tk``.
        sizes: of the interaction; others have its defaults. Of ``pacrr``, ``term_weights`` gives
            each query word its IDF, which :meth:`InteractionForRanking.count` counts.
        embeddings: first word vectors: ``random``, a text file of vectors (GloVe), or the hub id or
            folder of a pretrained model (see
            :func:`~backpack_rank.models.word_embeddings.word_vectors`).
        embedding_size: e of random vectors; None is 300.
        embedding_norm: mean length that all vectors are brought to by one factor; None: they are
            not scaled. Cosines do not change, but TK adds positions to the vectors, whose lengths
            differ tenfold between sources.
        max_query_length: words of a query that are read; further ones are cut.
        max_document_length: the same of a document.

    Raises:
        ValueError: the tokenizer is not one of words; an unknown interaction or size; or the errors
            of ``word_vectors``.
    """
    buckets = unknown_buckets(tokenizer)
    word_ids = list(range(len(SPECIAL), len(tokenizer)))
    words = tokenizer.convert_ids_to_tokens(word_ids)
    vectors = word_vectors(words, embeddings, embedding_size, others=len(SPECIAL) + buckets)
    if embedding_norm is not None:
        above("model.ranker.embedding_norm", embedding_norm, 0, null="")
        mean_norm = vectors[: len(words)].norm(dim=1).mean()
        vectors = vectors * (embedding_norm / mean_norm)
    module_sizes = dict(sizes or {})
    if module_sizes.pop("term_weights", False):
        module_sizes["vocabulary_size"] = len(tokenizer) + buckets
    config = InteractionConfig(
        interaction=interaction,
        sizes=module_sizes,
        vocab_size=len(tokenizer),
        unknown_buckets=buckets,
        embedding_size=vectors.shape[1],
        separator_id=tokenizer.sep_token_id,
        max_query_length=max_query_length,
        max_document_length=max_document_length,
    )
    ranker = InteractionForRanking(config)
    # Ids begin with the special tokens, whose vectors stand behind those of words and buckets.
    special = vectors[len(words) + buckets :]
    others = vectors[: len(words) + buckets]
    with torch.no_grad():
        ranker.backbone.weight.copy_(torch.cat([special, others]))
    return ranker.train()
