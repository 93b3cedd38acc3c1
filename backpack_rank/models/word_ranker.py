"""Rankers over word vectors: the words of query and document are looked up and compared by an
interaction module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from backpack_rank.checks import above, whole
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
        whole("max_query_length", self.max_query_length, 1)
        whole("max_document_length", self.max_document_length, 1)

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
    """Word vectors and an interaction module over them: KNRM, Conv-KNRM, MatchPyramid, PACRR, TK."""

    config: InteractionConfig
    config_class = InteractionConfig
    pair_tokenizer_class: ClassVar[type[PairTokenizer]] = WordPairTokenizer

    def __init__(self, config: InteractionConfig) -> None:
        super().__init__(config)
        # The name is that of the part which training.learning_rate is for; the interaction has
        # head_learning_rate.
        self.backbone = nn.Embedding(
            config.vocab_size + config.unknown_buckets, config.embedding_size
        )
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
        """Scores [B] from the interaction of query words with document words; ``token_shift`` moves
        word vectors.
        """
        self.refuse_senses(sense_weights, return_senses)
        query, document = self.sides(batch, token_shift)
        ids = query.ids(), document.ids()
        return RankerOutput(
            self.interaction(*query.padded(), *document.padded(), *ids, token_shift)
        )

    def count(self, texts: Iterable[str], pair_tokenizer: WordPairTokenizer) -> None:
        """Count a collection's documents, for interactions that weigh words by their IDF; others
        read nothing.

        IDF = log(N / (df + 1)), at least 0, of N documents of which df hold the word.
        """
        if isinstance(self.interaction, Pacrr) and self.interaction.idf is not None:
            holders, documents = document_frequencies(
                texts, pair_tokenizer, len(self.interaction.idf)
            )
            values = np.log(documents / (holders + 1)).clip(min=0.0)
            self.interaction.set_idf(torch.from_numpy(values))

    def sides(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> tuple[Side, Side]:
        """Queries and documents, each cut to the words that are read."""
        separator = self.config.separator_id
        behind = behind_separator(batch, separator)
        query = ~behind & (batch.input_ids != separator)
        return (
            self._side(batch, query, self.config.max_query_length, token_shift),
            self._side(batch, behind, self.config.max_document_length, token_shift),
        )

    def token_representations(self, batch: PackedBatch) -> Tensor:
        """The vector of each token: its word vector, for TK in its context (Hofstätter et al. 2021,
        eq. 4). [T, e]

        Rows of separators and of words beyond the limits of query and document are 0.
        """
        found = self.backbone.weight.new_zeros(len(batch.input_ids), self.config.embedding_size)
        for side, shift in zip(
            self.sides(batch), (0, getattr(self.interaction, "document_shift", 0)), strict=True
        ):
            vectors, mask = side.padded()
            if isinstance(self.interaction, Tk):
                vectors = self.interaction.contextualise(vectors, mask, shift)
            found[side.tokens] = vectors[mask]
        return found

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
    """A word-embedding ranker for the words of a vocabulary; in training mode.

    Args:
        tokenizer: of :class:`~backpack_rank.data.vocabulary.WordVocabulary`.
        interaction: ``knrm``, ``conv_knrm``, ``match_pyramid``, ``pacrr`` or ``tk``.
        sizes: of the interaction; others have its defaults. Of ``pacrr``, ``term_weights`` gives
            each query word its IDF, which :meth:`InteractionForRanking.count` counts.
        embeddings: first word vectors: ``random``, a text file of vectors (GloVe), or the hub id or
            folder of a pretrained model (see
            :func:`~backpack_rank.models.word_embeddings.word_vectors`).
        embedding_size: e of random vectors; None is 300.
        embedding_norm: mean length that all vectors are brought to by one factor; None leaves them
            as they are. Cosines do not change, but TK adds positions to the vectors, whose lengths
            differ tenfold between sources.
        max_query_length: words of a query that are read; further ones are cut.
        max_document_length: the same of a document.

    Raises:
        ValueError: the tokenizer is not one of words; an unknown interaction or size; or the errors
            of ``word_vectors``.
    """
    buckets = unknown_buckets(tokenizer)
    words = tokenizer.convert_ids_to_tokens(list(range(len(SPECIAL), len(tokenizer))))
    vectors = word_vectors(words, embeddings, embedding_size, others=len(SPECIAL) + buckets)
    if embedding_norm is not None:
        above("model.ranker.embedding_norm", embedding_norm, 0, null="")
        vectors = vectors * (embedding_norm / vectors[: len(words)].norm(dim=1).mean())
    own = dict(sizes or {})
    if own.pop("term_weights", False):
        own["vocabulary_size"] = len(tokenizer) + buckets
    config = InteractionConfig(
        interaction=interaction,
        sizes=own,
        vocab_size=len(tokenizer),
        unknown_buckets=buckets,
        embedding_size=vectors.shape[1],
        separator_id=tokenizer.sep_token_id,
        max_query_length=max_query_length,
        max_document_length=max_document_length,
    )
    ranker = InteractionForRanking(config)
    with torch.no_grad():
        # Ids begin with the special tokens, whose vectors are among the others'.
        ranker.backbone.weight.copy_(
            torch.cat([vectors[len(words) + buckets :], vectors[: len(words) + buckets]])
        )
    return ranker.train()
