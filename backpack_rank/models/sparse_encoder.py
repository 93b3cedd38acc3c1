"""Sparse encoders: SPLADE, a weight for each word of the vocabulary, by a model for masked words.

Folders are those of ``SparseEncoder`` of sentence-transformers, also with queries that need no
network: a weight for each of their tokens, such as its IDF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import MODULES, ROUTES
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.apart import QUERY
from backpack_rank.models.modular_cross_encoder import (
    ModularNetwork,
    ModuleEntry,
    SpladePooling,
    load_modules,
    module_entries,
    module_weights,
)
from backpack_rank.models.sentence_transformers_files import (
    ADVICE,
    MODEL_FILE,
    TRANSFORMER_FILE,
    settings_of,
)
from backpack_rank.models.text_encoder import (
    SIMILARITIES,
    VECTOR,
    FolderEncoder,
    TextPairTokenizer,
    similarity_of,
    text_pair_tokenizer,
)
from backpack_rank.models.token_shift import TokenShift


class SparseEncoderForRanking(FolderEncoder):
    """SPLADE and its like: a score is the dot product of two sparse vectors.

    Sparse vectors are kept as words and weights, [2, n]: the number of a word is exact as a float
    below 2^24. Under ``renditions`` that of a document is the mean over its renditions, which is
    sparse too. :func:`load_sparse_encoder` reads one from a folder.

    Attributes:
        query_weights: a weight for each token, where queries need no network [V]; None: they do.
    """

    compares_vectors: ClassVar[bool] = True

    def __init__(
        self,
        network: ModularNetwork,
        pair_tokenizer: TextPairTokenizer,
        similarity: str = "dot",
        query_weights: Tensor | None = None,
    ) -> None:
        """
        Args:
            network: makes a ``sentence_embedding`` [B, V] of token ids.
            pair_tokenizer: joins its texts.
            similarity: one of :data:`~backpack_rank.models.text_encoder.SIMILARITIES`.
            query_weights: see above.
        """
        super().__init__(network, pair_tokenizer)
        self.similarity = similarity
        self.query_weights = None
        if query_weights is not None:
            self.query_weights = nn.Parameter(query_weights, requires_grad=False)

    def read(
        self, batch: PackedBatch, kind: str, token_shift: TokenShift | None = None
    ) -> Sequence[Tensor]:
        """Words and weights of each text. B tensors [2, n]"""
        if kind == QUERY and self.query_weights is not None:
            return self._weighted_tokens(batch)
        if self.one_by_one and len(batch) > 1:
            return [self.read(text, kind, token_shift)[0] for text in batch.texts()]
        vectors = self.features(batch, token_shift)[VECTOR].float()
        return [self._as_sparse(vector) for vector in vectors]

    def compare(self, queries: Sequence[Tensor], documents: Sequence[Tensor]) -> Tensor:
        """Dot products. [B]"""
        dense: dict[int, Tensor] = {}
        scores = []
        for query, document in zip(queries, documents, strict=True):
            # A query that several rows have is one tensor.
            if id(query) not in dense:
                weights = query.new_zeros(self.config.vocab_size)
                weights[query[0].long()] = query[1]
                dense[id(query)] = weights
            scores.append(dense[id(query)][document[0].long()] @ document[1])
        return torch.stack(scores)

    def mean(self, wordings: Sequence[Tensor]) -> Tensor:
        """The mean over wordings. [2, n]"""
        words, places = torch.cat([wording[0] for wording in wordings]).unique(return_inverse=True)
        weights = torch.cat([wording[1] for wording in wordings]) / len(wordings)
        total = words.new_zeros(len(words)).index_add(0, places, weights)
        return torch.stack([words, self._of_similarity(total)])

    def _weighted_tokens(self, batch: PackedBatch) -> list[Tensor]:
        assert self.query_weights is not None
        queries = []
        for text in batch.texts():
            tokens = text.input_ids.unique()
            weights = self._of_similarity(self.query_weights[tokens].float())
            queries.append(torch.stack([tokens.float(), weights]))
        return queries

    def _as_sparse(self, vector: Tensor) -> Tensor:
        (words,) = vector.nonzero(as_tuple=True)
        return torch.stack([words.float(), self._of_similarity(vector[words])])

    def _of_similarity(self, weights: Tensor) -> Tensor:
        if self.similarity == "dot":
            return weights
        return torch.nn.functional.normalize(weights, dim=0)


def load_sparse_encoder(
    folder: str | Path,
) -> tuple[SparseEncoderForRanking, TextPairTokenizer]:
    """Load a sparse encoder; its scores are those of ``SparseEncoder``.

    Raises:
        ValueError: it holds a module or a setting that is not known here, or lacks weights.
    """
    folder = Path(folder)
    model = settings_of(folder / MODEL_FILE)
    entries = module_entries(folder / MODULES)
    static: ModuleEntry | None = None
    if entries[0].name == "Router":
        static, entries = _routes(folder, entries)
    transformer, modules = load_modules(entries, folder, AutoModelForMaskedLM, "fill-mask")
    if not any(isinstance(module, SpladePooling) for module in modules):
        raise ValueError(f"{folder / MODULES} names no SpladePooling; {ADVICE}")
    network = ModularNetwork(transformer, modules, nn.Identity()).eval()
    tokenizer = load_tokenizer(entries[0].folder)
    file = entries[0].folder / TRANSFORMER_FILE
    pair_tokenizer = text_pair_tokenizer(
        model, settings_of(file), file, tokenizer, transformer.config, TextPairTokenizer
    )
    weights = None
    if static is not None:
        weights = _query_weights(static, transformer.config.vocab_size)
        of_queries = load_tokenizer(static.folder)
        if of_queries.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"{static.folder}: queries have another vocabulary than documents, which is not "
                f"read here; {ADVICE}"
            )
        limit = min(of_queries.model_max_length, pair_tokenizer.max_length)
        pair_tokenizer = replace(pair_tokenizer, bare_queries=True, query_length=int(limit))
    similarity = similarity_of(folder, model, "dot", SIMILARITIES)
    ranker = SparseEncoderForRanking(network, pair_tokenizer, similarity, weights).eval()
    ranker.config.vectors_made_by = {
        "modules": [repr(module) for module in modules],
        "similarity": similarity,
    }
    ranker.pack(name=transformer.base_model_prefix)
    return ranker, pair_tokenizer


def _routes(folder: Path, entries: Sequence[ModuleEntry]) -> tuple[ModuleEntry, list[ModuleEntry]]:
    """What queries go through, which must be one table of weights, and what documents do."""
    file = entries[0].folder / ROUTES
    routes = json_object_file(file)
    structure, types = routes.get("structure"), routes.get("types")
    problem = f"{file}: a router for a query of weights and a document alone is read; {ADVICE}"
    if not isinstance(structure, Mapping) or not isinstance(types, Mapping):
        raise ValueError(problem)
    by_route: dict[str, list[ModuleEntry]] = {}
    for route in ("query", "document"):
        by_route[route] = []
        for name in structure.get(route) or ():
            path = Path(str(name))
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{file}: path {name} leads out of the folder")
            kind = str(types.get(name, ""))
            if kind.startswith("sentence_transformers."):
                kind = kind.rpartition(".")[2]
            by_route[route].append(ModuleEntry(kind, entries[0].folder / path))
    queries, documents = by_route["query"], by_route["document"]
    names = [entry.name for entry in queries]
    if len(entries) > 1 or names != ["SparseStaticEmbedding"] or not documents:
        raise ValueError(problem)
    return queries[0], documents


def _query_weights(static: ModuleEntry, words: int) -> Tensor:
    weights = module_weights(static.folder).get("weight")
    if weights is None or weights.ndim != 1 or len(weights) != words:
        raise ValueError(
            f"{static.folder}: the weights of queries must be one for each of {words} tokens"
        )
    return weights.float()
