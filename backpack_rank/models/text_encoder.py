"""Encoders of texts that were trained elsewhere: bi-encoders of sentence-transformers, and others.

Their score of a query and a document is the cosine or the dot product of two vectors. Vectors are
those of ``encode_query`` and ``encode_document`` of sentence-transformers, which need not be
installed; how a text becomes tokens follows its version 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from tokenizers import normalizers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerBase
from typing_extensions import Self

from backpack_rank.checks import one_of
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.data.model_files import MODULES
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.pretrained import from_pretrained, no_panic
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.data.wordings import ApartPairTokenizer, split
from backpack_rank.models.apart import DOCUMENT, ApartRanker, VectorRanker
from backpack_rank.models.backbone import depends_on_others
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.modular_cross_encoder import (
    ModularNetwork,
    Normalize,
    Pooling,
    load_modules,
    module_entries,
)
from backpack_rank.models.packed_body import pack_body
from backpack_rank.models.sentence_transformers_files import (
    ADVICE,
    MODEL_FILE,
    TRANSFORMER_FILE,
    settings_of,
)
from backpack_rank.models.sequence_classifier import most_positions
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings

POOLINGS = {"mean": "mean", "first": "cls", "last": "lasttoken"}
"""How a plain encoder makes a vector of those of its tokens: our names, and those of
sentence-transformers.
"""
SIMILARITIES = ("cosine", "dot")
VECTOR = "sentence_embedding"
Kind = TypeVar("Kind", bound="TextPairTokenizer")
_ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""The halves of models with an encoder and a decoder that read texts."""


@dataclass(frozen=True)
class TextPairTokenizer(ApartPairTokenizer):
    """Query and document as an encoder reads each alone.

    A row is [prefix, query, suffix, boundary, prefix, document, suffix]; the boundary is a number
    beyond the vocabulary. ``max_length`` is the limit of a document.

    Attributes:
        prefix, suffix: token ids that the tokenizer puts around a text.
        query_prompt, document_prompt: texts in front of each.
        query_length: limit of a query in tokens; None: that of a document.
        bare_queries: nothing is put around a query.
    """

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    query_prompt: str = ""
    document_prompt: str = ""
    query_length: int | None = None
    bare_queries: bool = False

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, max_length: int, **options: Any) -> Self:
        """Read what a tokenizer puts around a text off a short one.

        Raises:
            ValueError: the tokens of the text do not stand together.
        """
        text = list(tokenizer("a", add_special_tokens=False)["input_ids"])
        ids = list(tokenizer("a")["input_ids"])
        for start in range(len(ids) - len(text) + 1):
            end = start + len(text)
            if ids[start:end] == text:
                prefix, suffix = tuple(ids[:start]), tuple(ids[end:])
                return cls(tokenizer, max_length, None, prefix, suffix, **options)
        raise ValueError(
            f"{type(tokenizer).__name__} reads a text in a way that is not known here: {ids}"
        )

    @property
    def boundary(self) -> np.ndarray:
        """Stands between query and document. [1]"""
        return np.array([self.mark + 1], dtype=np.int32)

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the token ids of a pair of texts."""
        parts = (self.prefix, self.suffix, self.query_prompt, self.document_prompt)
        limits = f"{self.query_length}{self.bare_queries}"
        return f"{parts}{limits}-{super().fingerprint}"

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of documents with their prompt, nothing added and nothing cut."""
        if not texts:
            return []
        prompted = [self.document_prompt + text for text in texts]
        with no_panic(self.tokenizer.name_or_path):
            encoded = self.tokenizer(prompted, add_special_tokens=False, verbose=False)
        return [np.asarray(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def encode_query(self, text: str) -> np.ndarray:
        """Token ids of a query with its prompt; of one that is far too long, the first.

        Raises:
            ValueError: the query is empty.
        """
        if not text.strip():
            raise ValueError("the query is empty: a ranker needs at least one token of query text")
        of_queries = replace(self, document_prompt=self.query_prompt)
        (beginning,) = of_queries.beginnings([text])
        return beginning.ids

    def room(self, query: np.ndarray) -> int:
        """Tokens of a document that fit, which do not depend on the query."""
        return max(self.max_length - len(self.prefix) - len(self.suffix), 0)

    def query_tokens_read(self, query: np.ndarray, document: np.ndarray) -> int:
        """Tokens of a query that are read."""
        most = max((self.query_length or self.max_length) - len(self.prefix) - len(self.suffix), 0)
        return min(len(query), most)

    def may_be_cut(self, query: str) -> bool:
        """Whether a query is longer than the encoder reads."""
        ids = self.encode_query(query)
        return self.query_tokens_read(ids, ids) < len(ids)

    def chunks_of_one(
        self, ids: np.ndarray, room: int, long_documents: LongDocuments, most: int | None
    ) -> tuple[list[np.ndarray], bool]:
        """See :meth:`PairTokenizer.chunks_of_one`: every chunk has the prompt in front."""
        prompt = self._prompt_ids
        if not long_documents.in_chunks or not len(prompt) or len(prompt) >= room:
            return super().chunks_of_one(ids, room, long_documents, most)
        if not np.array_equal(ids[: len(prompt)], prompt):
            # The last letters of the prompt are one token with the first ones of the text.
            return super().chunks_of_one(ids, room, long_documents, most)
        chunks, is_part = super().chunks_of_one(
            ids[len(prompt) :], room - len(prompt), long_documents, most
        )
        return [np.concatenate([prompt, chunk]) for chunk in chunks], is_part

    @property
    def _prompt_ids(self) -> np.ndarray:
        if not self.document_prompt:
            return np.empty(0, dtype=np.int32)
        (ids,) = self.encode([""])
        return ids

    def query_row(self, ids: np.ndarray) -> np.ndarray:
        """[prefix, query, suffix], cut to the limit of queries."""
        most = self.query_length or self.max_length
        return ids[:most] if self.bare_queries else self._around(ids, most)

    def document_row(self, ids: np.ndarray) -> np.ndarray:
        """[prefix, document, suffix], cut to ``max_length``."""
        return self._around(ids, self.max_length)

    def _around(self, ids: np.ndarray, most: int) -> np.ndarray:
        room = max(most - len(self.prefix) - len(self.suffix), 0)
        row = np.array([*self.prefix, *ids[:room], *self.suffix], dtype=np.int32)
        if len(row):
            return row
        # A tokenizer that adds nothing leaves nothing of an empty text.
        return np.array([self.end_id], dtype=np.int32)


class FolderEncoder(ApartRanker):
    """What rankers over an encoder in modules share: they read query and document apart.

    Attributes:
        network: makes its features of token ids.
        one_by_one: each text is read in a batch of its own, because features depend on the batch.
    """

    # Whatever the transformer inside supports; this class adds no attention.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, network: ModularNetwork, pair_tokenizer: TextPairTokenizer) -> None:
        super().__init__(network.config)
        self.network = network
        self.mark = pair_tokenizer.mark
        self.one_by_one = False
        self._boundary = int(pair_tokenizer.boundary[0])
        self._padding = pair_tokenizer.tokenizer.pad_token_id or 0

    @property
    def label(self) -> str:
        """Name in tables: the transformer's own class."""
        transformer = self.network.transformer
        return type(getattr(transformer, "body", transformer)).__name__

    def get_input_embeddings(self) -> nn.Module:
        """The word vectors that the transformer reads."""
        return self.network.get_input_embeddings()

    def parts_of_row(self, row: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """See :meth:`ApartRanker.parts_of_row`."""
        return parts_at_boundary(row, self._boundary, self.mark)

    def features(
        self, batch: PackedBatch, token_shift: TokenShift | None, attends: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What the network makes of B texts.

        Args:
            batch: the texts.
            token_shift: moves the embeddings of some tokens; None: none.
            attends: which tokens others see [T]; None: all.
        """
        mask = batch.padding_mask()
        ids = batch.pad(batch.input_ids).masked_fill(~mask, self._padding)
        if attends is not None:
            mask = batch.pad(attends)
        with shifted_embeddings(self.get_input_embeddings(), token_shift, self):
            return self.network.features(attention_mask=mask.long(), input_ids=ids)

    def pack(
        self,
        first_token_alone: bool = False,
        name: str = "transformer",
        can_pack: bool = True,
    ) -> None:
        """Read texts without padding where the transformer can, else find out what padding does.

        Args:
            first_token_alone: whether nothing but the states of the first tokens is used.
            name: of the transformer's body.
            can_pack: whether all tokens of a text see each other.
        """
        owner: Any = self.network
        if name != "transformer":
            owner = self.network.transformer
        if can_pack and pack_body(owner, name, first_token_alone):
            return

        def values(batch: PackedBatch) -> Tensor:
            return torch.cat([made.flatten() for made in self.read(batch, DOCUMENT)])

        self.one_by_one = depends_on_others(values, self, [1, 2], [1, 2] * 9)


class TextEncoderForRanking(FolderEncoder, VectorRanker):
    """A bi-encoder that was trained elsewhere: scores are cosines or dot products.

    Policies change its scores, and retrieval compares its vectors; it is not trained here.
    :func:`load_text_encoder` reads one from a folder.

    Attributes:
        unit_vectors: whether scores are cosines.
    """

    def __init__(
        self,
        network: ModularNetwork,
        pair_tokenizer: TextPairTokenizer,
        similarity: str = "cosine",
        truncate_dim: int | None = None,
    ) -> None:
        """
        Args:
            network: makes a ``sentence_embedding`` of token ids.
            pair_tokenizer: joins its texts.
            similarity: one of :data:`SIMILARITIES`.
            truncate_dim: numbers of a vector that are used, from its beginning; None: all.
        """
        super().__init__(network, pair_tokenizer)
        self.similarity = similarity
        self.truncate_dim = truncate_dim
        last_is_normalize = isinstance(network.modules_behind[-1], Normalize)
        self.unit_vectors = similarity == "cosine" or (last_is_normalize and truncate_dim is None)

    @property
    def vector_size(self) -> int:
        """D"""
        with torch.no_grad():
            return self.encode_documents(PackedBatch.from_sequences([[0]]).to(self.device)).shape[1]

    def encode_queries(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B queries; of length 1 where scores are cosines. float32 [B, D]"""
        return self._encode(batch, token_shift)

    def encode_documents(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Vectors of B documents; of length 1 where scores are cosines. float32 [B, D]"""
        return self._encode(batch, token_shift)

    def _encode(self, batch: PackedBatch, token_shift: TokenShift | None) -> Tensor:
        if self.one_by_one and len(batch) > 1:
            return torch.cat([self._encode(text, token_shift) for text in batch.texts()])
        vectors = self.features(batch, token_shift)[VECTOR][:, : self.truncate_dim].float()
        return F.normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors


def parts_at_boundary(
    row: np.ndarray, boundary: int, mark: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The query and the document's wordings in a row with a boundary between them.

    Raises:
        ValueError: there is none.
    """
    places = np.flatnonzero(row == boundary)
    if len(places) != 1:
        raise ValueError("a row is no query and document: join them with the ranker's tokenizer")
    return row[: places[0]], split(row[places[0] + 1 :], mark)


def load_text_encoder(
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    pooling: str | None = None,
) -> tuple[TextEncoderForRanking, TextPairTokenizer]:
    """Load a bi-encoder; its vectors are those of sentence-transformers.

    ::

        ranker, pair_tokenizer = load_text_encoder(folder)

    Args:
        folder: with ``modules.json``; or with a transformer alone, whose tokens' vectors
            ``pooling`` makes one of.
        tokenizer: None: that of the transformer.
        pooling: one of :data:`POOLINGS`, for a transformer alone.

    Raises:
        ValueError: it holds a module or a setting that is not known here, lacks weights, or gives
            no vector.
    """
    folder = Path(folder)
    model: Mapping[str, Any] = {}
    own_folder = folder
    if pooling is None:
        entries = module_entries(folder / MODULES)
        model = settings_of(folder / MODEL_FILE)
        own_folder = entries[0].folder
        transformer, modules = load_modules(entries, folder, encoder_class(own_folder))
    else:
        one_of("pooling", pooling, POOLINGS)
        transformer = load_network(encoder_class(folder), folder, optional=("pooler.",))
        modules = [Pooling(POOLINGS[pooling])]
    tokenizer = tokenizer or load_tokenizer(own_folder)
    network = ModularNetwork(transformer, modules, nn.Identity()).eval()
    check_features(network, folder, VECTOR)
    file = own_folder / TRANSFORMER_FILE
    pair_tokenizer = text_pair_tokenizer(
        model, settings_of(file), file, tokenizer, transformer.config, TextPairTokenizer
    )
    _check_prompts(network, pair_tokenizer, folder)
    similarity = similarity_of(folder, model, "cosine", SIMILARITIES)
    poolings = [module for module in modules if isinstance(module, Pooling)]
    first_token_alone = all(module.modes == ["cls"] for module in poolings)
    ranker = TextEncoderForRanking(
        network, pair_tokenizer, similarity, model.get("truncate_dim")
    ).eval()
    # What tells two rankers with equal weights apart.
    ranker.config.vectors_made_by = {
        "modules": [repr(module) for module in modules],
        "similarity": similarity,
        "truncate_dim": ranker.truncate_dim,
    }
    ranker.pack(first_token_alone)
    return ranker, pair_tokenizer


def similarity_of(
    folder: Path, model: Mapping[str, Any], default: str, known: Sequence[str]
) -> str:
    """How a folder of sentence-transformers compares two texts.

    Raises:
        ValueError: in a way that is not known here.
    """
    similarity = model.get("similarity_fn_name") or default
    if similarity not in known:
        raise ValueError(
            f"{folder / MODEL_FILE}: similarity_fn_name={similarity} is not read here; "
            f"{' and '.join(known)} are; {ADVICE}"
        )
    return str(similarity)


def encoder_class(folder: str | Path) -> Any:
    """The class that reads texts of a transformer's folder: of some models, their encoder alone."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        return AutoModel  # an adapter, or a folder whose error names what is missing
    config = from_pretrained(AutoConfig, folder)
    # transformers imports a class when it is asked for it.
    return getattr(transformers, _ENCODERS.get(config.model_type, "AutoModel"))


def text_pair_tokenizer(
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
    file: Path,
    tokenizer: PreTrainedTokenizerBase,
    config: Any,
    kind: type[Kind],
    **options: Any,
) -> Kind:
    """The tokenizer of an encoder, with the prompts and limits of its files.

    Args:
        model: content of ``config_sentence_transformers.json``.
        settings: that of ``sentence_bert_config.json``.
        file: the latter, for errors.
        tokenizer: of the transformer; it is changed where the files want lower case.
        config: of the transformer.
        kind: the class that joins texts.
        options: what it takes beside these.

    Raises:
        ValueError: texts are read in a way that is not known here.
    """
    if "message" in (settings.get("modality_config") or {}):
        raise ValueError(
            f"{file}: texts are read as messages of a chat template, which is not read here; "
            f"{ADVICE}"
        )
    if settings.get("do_lower_case"):
        _lower(tokenizer)
    given = settings.get("processing_kwargs", {}).get("text", {}).get("max_length")
    limit = settings.get("max_seq_length") or tokenizer.model_max_length
    positions = most_positions(config)
    # A length of queries or documents wins over that of all texts, and a given one over both.
    of_documents = given or settings.get("document_length") or limit
    of_queries = given or settings.get("query_length") or limit
    query_prompt, document_prompt = prompts_of(model)
    return kind.of(
        tokenizer,
        min(of_documents, positions),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        query_length=min(of_queries, positions),
        **options,
    )


def prompts_of(model: Mapping[str, Any]) -> tuple[str, str]:
    """The prompts of queries and of documents, by the names that sentence-transformers looks for.

    >>> prompts_of({"prompts": {"query": "query: ", "document": "passage: "}})
    ('query: ', 'passage: ')

    Args:
        model: content of ``config_sentence_transformers.json``.
    """
    prompts = model.get("prompts") or {}
    # No other name counts, and no default_prompt_name: its encode_query and encode_document look
    # for these two first, and find the empty prompt where a model has none.
    return prompts.get("query") or "", prompts.get("document") or ""


def _lower(tokenizer: PreTrainedTokenizerBase) -> None:
    backend = tokenizer.backend_tokenizer
    steps = [normalizers.Lowercase()]
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    backend.normalizer = normalizers.Sequence(steps)


def check_features(network: ModularNetwork, folder: Path, name: str) -> None:
    """After loading: it reads two tokens, to see that the modules fit together.

    Args:
        network: of the folder.
        folder: for errors.
        name: of the feature that they must give.

    Raises:
        ValueError: they do not, or do not give it.
    """
    ids = torch.zeros((1, 2), dtype=torch.long)
    try:
        with torch.no_grad():
            features = network.features(input_ids=ids, attention_mask=torch.ones_like(ids))
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"{folder / MODULES}: the modules do not fit together: {error}") from error
    if name not in features:
        raise ValueError(
            f"{folder / MODULES}: no module makes one vector of a text (Pooling); {ADVICE}"
        )


def _check_prompts(
    network: ModularNetwork, pair_tokenizer: TextPairTokenizer, folder: Path
) -> None:
    """Refuse vectors that leave out the tokens of a prompt."""
    has_prompt = pair_tokenizer.query_prompt or pair_tokenizer.document_prompt
    for module in network.modules_behind:
        if isinstance(module, Pooling) and not module.include_prompt and has_prompt:
            raise ValueError(
                f"{folder}: include_prompt=false leaves the prompt's tokens out of the vector, "
                f"which is not read here; {ADVICE}"
            )
