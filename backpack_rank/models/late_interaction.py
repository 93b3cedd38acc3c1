"""Late interaction: a vector for each token, and a score from the best match of each token.

Folders are those of ``MultiVectorEncoder`` of sentence-transformers, of PyLate and of Stanford's
ColBERT; none of the three need be installed. Vectors are those of ``encode_query`` and
``encode_document`` of sentence-transformers, which reads all three.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import AddedToken
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import MODULES, read_settings
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.apart import DOCUMENT, QUERY
from backpack_rank.models.foreign_folder import check_code
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.modular_cross_encoder import (
    TOKENS,
    Dense,
    ModularNetwork,
    MultiVectorMask,
    Normalize,
    Pooling,
    kind_of,
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
from backpack_rank.models.sequence_classifier import most_positions
from backpack_rank.models.text_encoder import (
    FolderEncoder,
    TextPairTokenizer,
    check_features,
    encoder_class,
    text_pair_tokenizer,
)
from backpack_rank.models.token_shift import TokenShift

STANFORD = "HF_ColBERT"
METADATA = "artifact.metadata"
_OF_SENTENCE_TRANSFORMERS = "MultiVectorEncoder"
_DENSE_OF_PYLATE = "pylate.models.Dense.Dense"
_PREFIXES = {"query": "query_prefix", "document": "document_prefix"}
"""Where PyLate keeps the token in front of a query, and of a document."""
_OF_PYLATE = (
    *_PREFIXES.values(),
    "query_length",
    "document_length",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "skiplist_words",
)
_QUERY_TOKENS = 32
"""Of queries with their expansion, where a folder does not say."""


@dataclass(frozen=True)
class Expansion:
    """Query expansion of ColBERT: tokens behind a query, which the network fills with meaning.

    Source: Khattab and Zaharia, arXiv 2004.12832, section 3.2.

    Attributes:
        length: tokens of a query with its expansion.
        is_limit: whether a longer query is cut to it.
        attends: whether the tokens of a query see those of the expansion.
        token: of the expansion.
    """

    length: int
    is_limit: bool
    attends: bool
    token: int


@dataclass(frozen=True)
class LateInteractionTokenizer(TextPairTokenizer):
    """Query and document as a late-interaction encoder reads each alone.

    Tokens of an expansion stand in a row as :attr:`sign`, a number beyond the vocabulary: a text
    may have the expansion's token as its own.

    Attributes:
        expanded_to: tokens of a query with its expansion; 0: none is made.
    """

    expanded_to: int = 0

    @property
    def sign(self) -> int:
        """Stands for a token of an expansion."""
        return self.mark + 2

    @property
    def fingerprint(self) -> str:
        """See :attr:`PairTokenizer.fingerprint`."""
        return f"{self.expanded_to}-{super().fingerprint}"

    def query_row(self, ids: np.ndarray) -> np.ndarray:
        """[prefix, query, suffix, expansion]"""
        row = super().query_row(ids)
        missing = max(self.expanded_to - len(row), 0)
        return np.concatenate([row, np.full(missing, self.sign, dtype=np.int32)])


class LateInteractionForRanking(FolderEncoder):
    """ColBERT and its like, which compare a query and a document token by token.

        s(q, d) = sum over tokens i of q: max over tokens j of d: q_i . d_j

    A document of which no token is compared has the score 0.
    :func:`load_late_interaction` reads one from a folder.
    """

    def __init__(
        self,
        network: ModularNetwork,
        pair_tokenizer: LateInteractionTokenizer,
        expansion: Expansion | None,
        skipped: Mapping[str, Sequence[int]],
        is_mean: bool = False,
    ) -> None:
        """
        Args:
            network: makes ``token_embeddings`` [B, n, D] of token ids.
            pair_tokenizer: joins its texts.
            expansion: of queries; None: none.
            skipped: tokens of a ``query`` and of a ``document`` that are read and not compared.
            is_mean: whether a score is divided by the tokens of the query.
        """
        super().__init__(network, pair_tokenizer)
        self.expansion = expansion
        self.skipped = skipped
        self.is_mean = is_mean
        self._sign = pair_tokenizer.sign

    def read(
        self, batch: PackedBatch, kind: str, token_shift: TokenShift | None = None
    ) -> Sequence[Tensor]:
        """Vectors of the tokens of each text that are compared. B tensors [n, D]"""
        if self.one_by_one and len(batch) > 1:
            return [self.read(text, kind, token_shift)[0] for text in batch.texts()]
        attends = None
        expands = batch.input_ids == self._sign
        if self.expansion is not None:
            batch = replace(
                batch, input_ids=batch.input_ids.masked_fill(expands, self.expansion.token)
            )
            if not self.expansion.attends:
                attends = ~expands
        vectors = self.features(batch, token_shift, attends)[TOKENS].float()
        skipped = torch.tensor(self.skipped.get(kind, ()), dtype=torch.long)
        is_compared = batch.pad(~torch.isin(batch.input_ids, skipped.to(batch.input_ids.device)))
        texts = []
        for of_text, compared in zip(vectors, is_compared, strict=True):
            texts.append(of_text[compared])
        return texts

    def compare(self, queries: Sequence[Tensor], documents: Sequence[Tensor]) -> Tensor:
        """Sums of the best matches. [B]"""
        scores = []
        for query, document in zip(queries, documents, strict=True):
            if not len(document) or not len(query):
                scores.append(query.new_zeros(()))
                continue
            score = (query @ document.T).amax(dim=1).sum()
            scores.append(score / len(query) if self.is_mean else score)
        return torch.stack(scores)


def is_late_interaction(folder: str | Path) -> bool:
    """Whether a folder holds a late-interaction encoder, of any of the three libraries."""
    folder = Path(folder)
    kind = kind_of(folder)
    if kind in (_OF_SENTENCE_TRANSFORMERS, "ColBERT"):
        return True
    if kind is not None:
        # The first versions of PyLate do not say what they save.
        model = settings_of(folder / MODEL_FILE)
        return "model_type" not in model and any(name in model for name in _PREFIXES.values())
    config_file = folder / "config.json"
    if not config_file.is_file():
        return False
    return STANFORD in (json_object_file(config_file).get("architectures") or ())


def load_late_interaction(
    folder: str | Path,
) -> tuple[LateInteractionForRanking, LateInteractionTokenizer]:
    """Load a late-interaction encoder; its scores are those of its own library.

    ::

        ranker, pair_tokenizer = load_late_interaction(folder)

    Raises:
        ValueError: it holds a module or a setting that is not known here, or lacks weights.
    """
    folder = Path(folder)
    if (folder / MODULES).is_file():
        transformer_folder = module_entries(folder / MODULES)[0].folder
        saved = _of_pylate(settings_of(folder / MODEL_FILE))
        transformer, modules = _modules(folder, saved.skipped_words)
    else:
        transformer_folder = folder
        saved = _of_stanford(folder)
        config_file = folder / "config.json"
        check_code(config_file, json_object_file(config_file), STANFORD)
        transformer = load_network(
            encoder_class(folder), folder, optional=("pooler.",), of_others=("linear.",)
        )
        modules = [_projection(folder), *_behind(saved.skipped_words or [])]
    tokenizer = load_tokenizer(transformer_folder)
    _register(tokenizer, saved.prefixes)
    network = ModularNetwork(transformer, modules, nn.Identity()).eval()
    check_features(network, folder, TOKENS)

    file = transformer_folder / TRANSFORMER_FILE
    settings = {**saved.defaults, **settings_of(file)}
    expansion = _expansion(settings, tokenizer, transformer.config, file)
    pair_tokenizer = text_pair_tokenizer(
        saved.model,
        settings,
        file,
        tokenizer,
        transformer.config,
        kind=LateInteractionTokenizer,
        expanded_to=0 if expansion is None else expansion.length,
    )
    if expansion is not None and expansion.is_limit:
        pair_tokenizer = replace(pair_tokenizer, query_length=expansion.length)
    elif expansion is not None:
        longest = max(pair_tokenizer.query_length or 0, expansion.length)
        pair_tokenizer = replace(pair_tokenizer, query_length=longest)
    skipped = _skipped(modules, tokenizer)
    is_mean = saved.model.get("similarity_fn_name") == "meanmaxsim"
    ranker = LateInteractionForRanking(network, pair_tokenizer, expansion, skipped, is_mean).eval()
    ranker.config.vectors_made_by = {
        "modules": [repr(module) for module in modules],
        "expansion": None if expansion is None else asdict(expansion),
        "skipped": skipped,
        "is_mean": is_mean,
    }
    # Rows without padding leave out tokens that others do not see, such as those of an expansion.
    ranker.pack(can_pack=expansion is None or expansion.attends)
    return ranker, pair_tokenizer


class Saved(NamedTuple):
    """What a folder says about queries and documents, in the words of sentence-transformers.

    Attributes:
        model: content of ``config_sentence_transformers.json``.
        defaults: of ``sentence_bert_config.json``, which wins.
        prefixes: of queries and documents, each one token.
        skipped_words: tokens of documents that are not compared; None: a module says it.
    """

    model: Mapping[str, Any]
    defaults: Mapping[str, Any]
    prefixes: Sequence[str]
    skipped_words: Sequence[str] | None


def _of_pylate(model: Mapping[str, Any]) -> Saved:
    """What PyLate saves, or sentence-transformers, which has all of it in modules."""
    prompts = dict(model.get("prompts") or {})
    prefixes = []
    for role, name in _PREFIXES.items():
        if name in model:
            prefix = model[name] or ""
            prefixes.append(prefix)
            prompts[role] = prefix + (prompts.get(role) or "").removeprefix(prefix)
    defaults = {}
    for name in ("query_length", "document_length"):
        if model.get(name) is not None:
            defaults[name] = model[name]
    if "query_expansion" in model:
        defaults["query_expansion"] = model["query_expansion"]
    elif any(name in model for name in _OF_PYLATE) and model.get("do_query_expansion") is not False:
        attends = model.get("attend_to_expansion_tokens", model.get("attend_to_mask_tokens"))
        defaults["query_expansion"] = {
            "strategy": "fixed",
            "attend": bool(attends),
            "length": defaults.pop("query_length", None) or _QUERY_TOKENS,
        }
    words = None
    if model.get("model_type") != _OF_SENTENCE_TRANSFORMERS:
        words = model.get("skiplist_words")
        words = list(string.punctuation) if words is None else words
    return Saved({**model, "prompts": prompts}, defaults, prefixes, words)


def _of_stanford(folder: Path) -> Saved:
    """What ColBERT keeps in ``artifact.metadata``; its own defaults where there is none."""
    file = folder / METADATA
    metadata = read_settings(file) if file.is_file() else {}
    prompts = {
        "query": (metadata.get("query_token_id") or "[unused0]") + " ",
        "document": (metadata.get("doc_token_id") or "[unused1]") + " ",
    }
    defaults: dict[str, Any] = {
        "query_expansion": {
            "strategy": "fixed",
            "attend": bool(metadata.get("attend_to_mask_tokens")),
            "length": metadata.get("query_maxlen") or _QUERY_TOKENS,
        }
    }
    if metadata.get("doc_maxlen") is not None:
        defaults["document_length"] = metadata["doc_maxlen"]
    words = list(string.punctuation) if metadata.get("mask_punctuation", True) else []
    return Saved({"prompts": prompts}, defaults, list(prompts.values()), words)


def _modules(folder: Path, skipped_words: Sequence[str] | None) -> tuple[Any, list[nn.Module]]:
    """The transformer of a folder with modules, and what its tokens go through."""
    entries = []
    for entry in module_entries(folder / MODULES):
        name = "Dense" if entry.name == _DENSE_OF_PYLATE else entry.name
        entries.append(entry._replace(name=name))
    transformer, found = load_modules(entries, folder, encoder_class(entries[0].folder))
    modules: list[nn.Module] = []
    for module in found:
        if isinstance(module, Dense):
            # Its file is older than names of inputs, or a folder of one vector for each text.
            module.input_name = module.output_name = TOKENS
        is_of_texts = isinstance(module, Normalize) and module.input_name != TOKENS
        if skipped_words is None or not (is_of_texts or isinstance(module, Pooling)):
            modules.append(module)
    if skipped_words is not None:
        modules += _behind(skipped_words)
    return transformer, modules


def _behind(skipped_words: Sequence[str]) -> list[nn.Module]:
    """What both older libraries do without a module for it."""
    return [MultiVectorMask(skipped_words), Normalize(TOKENS)]


def _projection(folder: Path) -> nn.Module:
    """The linear layer that Stanford's ColBERT has among the weights of its transformer."""
    weight = module_weights(folder, ["linear.weight"]).get("linear.weight")
    if weight is None or weight.ndim != 2:
        raise ValueError(f"{folder} lacks linear.weight, which makes the vectors of a ColBERT")
    identity = "torch.nn.modules.linear.Identity"
    dense = Dense(weight.shape[1], weight.shape[0], False, identity, TOKENS)
    dense.linear.weight = nn.Parameter(weight.float())
    return dense


def _register(tokenizer: PreTrainedTokenizerBase, prefixes: Sequence[str]) -> None:
    """Let the tokenizer read a prefix that it has as one token, wherever it stands.

    ``[unused0]`` in a text would otherwise fall into pieces.
    """
    known = tokenizer.get_vocab()
    new = []
    for prefix in prefixes:
        # With its blank, or without.
        names = [name for name in (prefix, *prefix.split()[:1]) if name in known]
        if names and tokenizer.tokenize(names[0]) != names[:1]:
            new.append(AddedToken(names[0], normalized=False, special=True))
    if new:
        tokenizer.add_special_tokens({"additional_special_tokens": new})


def _expansion(
    settings: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, config: Any, file: Path
) -> Expansion | None:
    """What the settings of a transformer say about queries."""
    saved = settings.get("query_expansion")
    if saved is None:
        return None
    if "length" not in saved or "strategy" not in saved:
        raise ValueError(f"{file}: query_expansion needs a strategy and a length")
    if saved["length"] > most_positions(config):
        raise ValueError(
            f"{file}: query_expansion.length={saved['length']} is more than the "
            f"{most_positions(config)} tokens that the transformer reads"
        )
    if tokenizer.padding_side != "right":
        raise ValueError(
            f"{file}: queries are expanded at their beginning (padding_side="
            f"{tokenizer.padding_side}), which is not read here; {ADVICE}"
        )
    token: Any = tokenizer.mask_token_id
    if token is None:
        token = tokenizer.eos_token_id
    if saved.get("token") is not None:
        token = tokenizer.convert_tokens_to_ids(saved["token"])
    if token is None or (saved.get("token") and token == tokenizer.unk_token_id):
        raise ValueError(
            f"{file}: query_expansion.token={saved.get('token')} is no token of the tokenizer"
        )
    return Expansion(
        saved["length"], saved["strategy"] == "fixed", bool(saved.get("attend")), int(token)
    )


def _skipped(
    modules: Sequence[nn.Module], tokenizer: PreTrainedTokenizerBase
) -> dict[str, list[int]]:
    """Tokens that are not compared, of queries and of documents."""
    skipped: dict[str, list[int]] = {QUERY: [], DOCUMENT: []}
    for module in modules:
        if not isinstance(module, MultiVectorMask):
            continue
        for word in module.words:
            token: Any = tokenizer.convert_tokens_to_ids(word)
            # A word that is no token would skip all words that are unknown.
            is_unknown = token == tokenizer.unk_token_id and word != tokenizer.unk_token
            if token is None or is_unknown:
                continue
            for task in module.tasks:
                skipped.setdefault(task, []).append(int(token))
    return skipped
