"""Cross-encoders in modules, as sentence-transformers 5.5 and later save them (Ettin rerankers).

``modules.json`` lists what a text goes through: a transformer without a head, pooling, and layers
behind it. Their folders hold numbers and names alone; what the names stand for is written here, so
that no code of a folder is run and sentence-transformers need not be installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedTokenizerBase

from backpack_rank.data.json_lines import json_file
from backpack_rank.data.model_files import MODULES
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.models.chat_template import chat_pair_tokenizer
from backpack_rank.models.checkpoint import key_problems
from backpack_rank.models.foreign_folder import quantised
from backpack_rank.models.lora_folder import load_network
from backpack_rank.models.packed_body import pack_body
from backpack_rank.models.sentence_transformers_files import (
    ADVICE,
    MODEL_FILE,
    TRANSFORMER_FILE,
    settings_of,
)
from backpack_rank.models.sequence_classifier import (
    SequenceClassifierForRanking,
    longest_pair,
    ranker_of,
)

TOKENS, _POOLED, _SCORES = "token_embeddings", "sentence_embedding", "scores"

Features = dict[str, Tensor]
"""What modules hand on, by name: vectors of tokens [B, n, d], the mask [B, n], pooled [B, d]."""


class ModuleEntry(NamedTuple):
    """A module of ``modules.json``.

    Attributes:
        name: of its class, such as ``Pooling``; with its module where that is not one of
            sentence-transformers.
        folder: where its configuration and weights are.
    """

    name: str
    folder: Path


class ModularNetwork(nn.Module):
    """A classifier of transformers: token ids in, one logit for each text out.

    Attributes:
        config: of the transformer.
    """

    def __init__(
        self,
        transformer: Any,
        modules: Sequence[nn.Module],
        activation: nn.Module,
    ) -> None:
        """
        Args:
            transformer: gives the last hidden states of texts.
            modules: what follows, in order; the last one writes ``scores``.
            activation: what ``CrossEncoder.predict`` puts on the scores.
        """
        super().__init__()
        self.config = transformer.config
        self.transformer = transformer
        self.modules_behind = nn.ModuleList(modules)
        self.activation = activation

    def get_input_embeddings(self) -> nn.Module:
        """The transformer's word vectors."""
        return self.transformer.get_input_embeddings()

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> ModularOutput:
        """Scores of right-padded texts. [B, n] -> [B, 1]"""
        features = self.features(attention_mask, **inputs)
        return ModularOutput(self.activation(features[_SCORES]))

    def features(self, attention_mask: Tensor, **inputs: Tensor) -> Features:
        """What the modules make of right-padded texts. [B, n]"""
        output = self.transformer(attention_mask=attention_mask, **inputs)
        # A model for masked words gives logits of the vocabulary in place of hidden states.
        states = output.logits if hasattr(output, "logits") else output.last_hidden_state
        # A body that gives the first tokens alone has one position for each text.
        mask = attention_mask[:, : states.shape[1]]
        features = {TOKENS: states, "mask": mask}
        for module in self.modules_behind:
            module(features)
        return features

    def activated(self, logits: Tensor) -> Tensor:
        """What the last linear layer gives, as the scores of the network."""
        dense = [module for module in self.modules_behind if isinstance(module, Dense)]
        return self.activation(dense[-1].activation(logits))


class ModularOutput(NamedTuple):
    """What a classifier of transformers returns. [B, 1]"""

    logits: Tensor


class Pooling(nn.Module):
    """One vector for each text, from those of its tokens; several kinds stand behind each other."""

    def __init__(
        self,
        pooling_mode: str | Sequence[str] = "mean",
        include_prompt: bool = True,
        **_: Any,
    ) -> None:
        super().__init__()
        self.include_prompt = include_prompt
        modes = [pooling_mode] if isinstance(pooling_mode, str) else list(pooling_mode)
        for mode in modes:
            if mode not in _POOLED_BY:
                raise ValueError(
                    f"pooling_mode={mode} is not known here; known are {', '.join(_POOLED_BY)}"
                )
        self.modes = modes

    def forward(self, features: Features) -> None:
        """Add ``sentence_embedding``. [B, m d]"""
        tokens = features[TOKENS]
        vectors = [_POOLED_BY[mode](tokens, features["mask"]) for mode in self.modes]
        features[_POOLED] = torch.cat(vectors, dim=-1).to(tokens.dtype)


class Dense(nn.Module):
    """A linear layer with an activation, and with a residual connection around both if wanted."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation_function: str = "torch.nn.modules.activation.Tanh",
        module_input_name: str = _POOLED,
        module_output_name: str | None = None,
        use_residual: bool = False,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = activation_named(activation_function)
        self.input_name = module_input_name
        self.output_name = module_output_name or module_input_name
        self.use_residual = use_residual
        if use_residual and in_features != out_features:
            self.residual = nn.Linear(in_features, out_features, bias=False)

    def forward(self, features: Features) -> None:
        """Replace or add one of the features."""
        inputs = features[self.input_name]
        outputs = self.activation(self.linear(inputs))
        if self.use_residual:
            outputs = outputs + (self.residual(inputs) if hasattr(self, "residual") else inputs)
        features[self.output_name] = outputs


class LayerNorm(nn.Module):
    """Layer normalisation of the pooled vector."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dimension)

    def forward(self, features: Features) -> None:
        """Replace ``sentence_embedding``."""
        features[_POOLED] = self.norm(features[_POOLED])


class Normalize(nn.Module):
    """Divides a vector by its length."""

    def __init__(
        self, module_input_name: str = _POOLED, module_output_name: str | None = None
    ) -> None:
        super().__init__()
        self.input_name = module_input_name
        self.output_name = module_output_name or module_input_name

    def forward(self, features: Features) -> None:
        """Replace or add one of the features."""
        features[self.output_name] = F.normalize(features[self.input_name], dim=-1)


class Dropout(nn.Module):
    """Drops nothing: rankers that were trained elsewhere are not trained here."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, features: Features) -> None:
        """Leave everything unchanged."""


class SpladePooling(nn.Module):
    """A weight for each word of the vocabulary: log(1 + relu(logit)), the largest over the tokens.

    Source: Formal et al., SPLADE v2, arXiv 2109.10086, eq. 6; ``sum`` is that of SPLADE (eq. 1),
    and ``log1p_relu`` takes the logarithm twice (arXiv 2504.14839).
    """

    def __init__(
        self, pooling_strategy: str = "max", activation_function: str = "relu", **_: Any
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("pooling_strategy", pooling_strategy, ("max", "sum")),
            ("activation_function", activation_function, ("relu", "log1p_relu")),
        ):
            if value not in known:
                raise ValueError(f"{name}={value} is not known here; known are {', '.join(known)}")
        self.takes_largest = pooling_strategy == "max"
        self.takes_logarithm_twice = activation_function == "log1p_relu"

    def forward(self, features: Features) -> None:
        """Add ``sentence_embedding``. [B, vocabulary]"""
        mask = features["mask"]
        # 0 at padding, which adds nothing to a sum and is never above the largest.
        weights = (features[TOKENS] * mask[..., None]).relu_().log1p_()
        if self.takes_logarithm_twice:
            weights = weights.log1p_()
        features[_POOLED] = weights.amax(dim=1) if self.takes_largest else weights.sum(dim=1)


class MultiVectorMask(nn.Module):
    """Says which tokens of a document are compared: those on no list of words to skip.

    Which ids these are, a tokenizer says (:mod:`backpack_rank.models.late_interaction`).
    """

    def __init__(
        self,
        skiplist_words: Sequence[str] | None = None,
        skiplist_tasks: Sequence[str] | str | None = None,
        keep_only_token_ids: Sequence[int] | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        if keep_only_token_ids:
            raise ValueError("keep_only_token_ids is for pictures, which are not read here")
        self.words = list(skiplist_words or ())
        tasks = ["document"] if skiplist_tasks is None else skiplist_tasks
        self.tasks = [tasks] if isinstance(tasks, str) else list(tasks)

    def forward(self, features: Features) -> None:
        """Leave everything unchanged."""


_BEHIND: dict[str, type[nn.Module]] = {
    "Pooling": Pooling,
    "Dense": Dense,
    "LayerNorm": LayerNorm,
    "Normalize": Normalize,
    "Dropout": Dropout,
    "SpladePooling": SpladePooling,
    "MultiVectorMask": MultiVectorMask,
}
_OUTPUTS = {"feature-extraction": "last_hidden_state", "fill-mask": "logits"}
"""What a transformer gives for a task."""
_FORMER_NAMES = {"fill-mask": "MLMTransformer"}


_WITHOUT_SETTINGS = ("Normalize", "Dropout")
"""Modules that may have no file: a folder that is empty is left out by git."""


def is_modular(folder: str | Path) -> bool:
    """Whether a folder holds a model in several modules, as sentence-transformers saves it."""
    file = Path(folder) / MODULES
    return file.is_file() and len(module_entries(file)) > 1


def load_modular(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> tuple[SequenceClassifierForRanking, PairTokenizer]:
    """Load a cross-encoder in modules; its scores are those of ``predict``.

    ::

        ranker, pair_tokenizer = load_modular(folder)

    Args:
        folder: with ``modules.json``.
        tokenizer: None: that of the first module.

    Raises:
        ValueError: it is no cross-encoder, holds a module or a setting that is not known here,
            lacks weights, or gives several scores.
    """
    folder = Path(folder)
    entries = module_entries(folder / MODULES)
    model = settings_of(folder / MODEL_FILE)
    kind = kind_of(folder)
    if kind != "CrossEncoder":
        raise ValueError(
            f"{folder / MODEL_FILE}: model_type={kind} is not read here; CrossEncoder and "
            f"SentenceTransformer are; {ADVICE}"
        )
    limit = longest_text(entries[0].folder / TRANSFORMER_FILE)
    transformer, modules = load_modules(entries, folder)
    tokenizer = tokenizer or load_tokenizer(entries[0].folder)
    network = ModularNetwork(transformer, modules, activation_of(model, transformer.config))
    _check_scores(network, folder)
    max_length = longest_pair(transformer.config, tokenizer)
    pooling = network.modules_behind[0]
    first_token_alone = isinstance(pooling, Pooling) and pooling.modes == ["cls"]
    reads_packed = pack_body(network, "transformer", first_token_alone)
    settings = settings_of(entries[0].folder / TRANSFORMER_FILE)
    max_length = min(max_length, limit)
    prompts = chat_pair_tokenizer(folder, tokenizer, settings, max_length)
    return ranker_of(network.eval(), tokenizer, max_length, reads_packed, prompts=prompts)


def kind_of(folder: str | Path) -> str | None:
    """What a folder with modules is, such as ``CrossEncoder``; None where it is no such folder."""
    if not (Path(folder) / MODULES).is_file():
        return None
    return str(settings_of(Path(folder) / MODEL_FILE).get("model_type", "SentenceTransformer"))


def load_modules(
    entries: Sequence[ModuleEntry],
    folder: Path,
    loader: Any = AutoModel,
    task: str = "feature-extraction",
) -> tuple[Any, list[nn.Module]]:
    """Load a transformer and the modules behind it.

    Args:
        entries: of ``modules.json``.
        folder: that it lies in.
        loader: of the transformer, an automatic class of transformers.
        task: what the transformer is used for, as its settings name it.

    Raises:
        ValueError: the first module is no transformer, a module is not known here, or weights are
            missing.
    """
    if entries[0].name not in ("Transformer", _FORMER_NAMES.get(task)):
        raise ValueError(
            f"{folder / MODULES}: the first module is {entries[0].name} and must be Transformer; "
            f"{ADVICE}"
        )
    _check_transformer(entries[0].folder, task)
    # Poolers of BERT and others are made anew where they were not saved, and nothing reads them.
    transformer = load_network(loader, entries[0].folder, optional=("pooler.",))
    return transformer, [_load_module(entry, folder) for entry in entries[1:]]


def activation_named(path: str) -> nn.Module:
    """An activation that a file names, such as ``torch.nn.modules.activation.GELU``.

    Raises:
        ValueError: it is no activation of torch.
    """
    name = path.rpartition(".")[2]
    found = getattr(nn, name, None)
    if path.startswith("torch.nn.") and inspect.isclass(found) and issubclass(found, nn.Module):
        return found()
    raise ValueError(f"the activation {path} is not one of torch.nn, and no code of a model is run")


def module_entries(file: Path) -> list[ModuleEntry]:
    """The modules of ``modules.json`` in their order.

    Raises:
        ValueError: the file is no list of modules, or names a folder outside its own.
    """
    entries = []
    content = json_file(file)
    if not isinstance(content, list):
        raise ValueError(f"{file} must hold a list of modules")
    for module in content:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise ValueError(f"{file}: every module needs a type")
        subfolder = Path(str(module.get("path", "")))
        if subfolder.is_absolute() or ".." in subfolder.parts:
            raise ValueError(f"{file}: path {subfolder} leads out of the folder")
        name = module["type"]
        # A class of the same name that somebody else wrote may do something else.
        if name.startswith("sentence_transformers."):
            name = name.rpartition(".")[2]
        entries.append(ModuleEntry(name, file.parent / subfolder))
    return entries


def _check_transformer(folder: Path, used_for: str) -> None:
    """Refuse a first module that is used in another way."""
    file = folder / TRANSFORMER_FILE
    settings = settings_of(file)
    task = settings.get("transformer_task", used_for)
    if task != used_for:
        raise ValueError(f"{file}: transformer_task={task} is not read here; {ADVICE}")
    texts = settings.get("modality_config", {}).get("text", {})
    wanted = _OUTPUTS[used_for]
    if texts.get("method_output_name", wanted) != wanted:
        raise ValueError(
            f"{file}: the module gives {texts['method_output_name']}, and {wanted} alone is read "
            f"here; {ADVICE}"
        )


def longest_text(file: Path) -> int:
    """How many tokens of a pair a Transformer module reads, by its settings.

    Raises:
        ValueError: it cuts texts in a way that is not known here.
    """
    settings = settings_of(file)
    given = settings.get("processing_kwargs", {}).get("text", {})
    truncation = given.get("truncation", "longest_first")
    if truncation not in ("longest_first", True):
        raise ValueError(
            f"{file}: texts are cut by truncation={truncation}, and longest_first alone is known "
            f"here; {ADVICE}"
        )
    limits = [given.get("max_length"), settings.get("max_seq_length")]
    return min([limit for limit in limits if limit is not None], default=10**9)


def _load_module(entry: ModuleEntry, folder: Path) -> nn.Module:
    """A module with its weights, which must be those that it has."""
    if entry.name not in _BEHIND:
        raise ValueError(
            f"{folder / MODULES}: module {entry.name} is not known here; known behind Transformer "
            f"are {', '.join(_BEHIND)}; {ADVICE}"
        )
    file = entry.folder / "config.json"
    if not file.is_file() and entry.name not in _WITHOUT_SETTINGS:
        raise ValueError(
            f"{file} is missing, and {folder / MODULES} names this module: copy its folder too"
        )
    settings = _modern_pooling(settings_of(file))
    try:
        module = _BEHIND[entry.name](**settings)
    except (TypeError, ValueError) as error:
        why = str(error).replace(f"{entry.name}.__init__() ", "")
        raise ValueError(f"{file}: {why}; {ADVICE}") from error
    wanted = module.state_dict()
    if not wanted:
        return module
    weights = module_weights(entry.folder)
    mismatched = []
    for name in sorted(wanted.keys() & weights.keys()):
        if wanted[name].shape != weights[name].shape:
            mismatched.append((name, weights[name].shape, wanted[name].shape))
    problems = key_problems(
        missing=sorted(wanted.keys() - weights.keys()),
        unexpected=sorted(weights.keys() - wanted.keys()),
        mismatched=mismatched,
    )
    if problems:
        raise ValueError(
            f"the weights of {entry.folder} are not those of its config.json: "
            f"{'; '.join(problems)}; copy both from one place"
        )
    module.load_state_dict(weights)
    return module


def module_weights(folder: Path, names: Sequence[str] | None = None) -> Mapping[str, Tensor]:
    """The weights of a module behind a transformer, by name.

    Args:
        folder: of the module.
        names: of weights that are wanted, where others lie beside them; None: all.

    Raises:
        ValueError: there are none, or they cannot be read as numbers alone.
    """
    safetensors = folder / "model.safetensors"
    older = folder / "pytorch_model.bin"
    try:
        if safetensors.is_file():
            return load_file(safetensors)
        if older.is_file():
            weights: Mapping[str, Tensor] = torch.load(older, map_location="cpu", weights_only=True)
            if names is not None:
                weights = {name: weights[name] for name in names if name in weights}
            for name, values in weights.items():
                if not values.is_floating_point():
                    raise quantised(older, name, str(values.dtype).removeprefix("torch."))
            return weights
    except (SafetensorError, UnpicklingError, EOFError, RuntimeError, OSError) as error:
        raise ValueError(
            f"the weights of {folder} cannot be read: they are damaged, or hold more than numbers; "
            "copy them again"
        ) from error
    raise ValueError(f"{safetensors} is missing: the module has weights and none are saved")


def _modern_pooling(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with ``pooling_mode`` in place of the switches that older versions write."""
    modes = []
    has_switches = False
    for switch, mode in _SWITCHES.items():
        if switch in settings:
            has_switches = True
            if settings.pop(switch):
                modes.append(mode)
    if has_switches:
        settings.setdefault("pooling_mode", modes or ["mean"])
    return settings


def activation_of(model: Mapping[str, Any], config: Any) -> nn.Module:
    """What ``predict`` puts on the scores: what is saved, else a sigmoid."""
    saved = model.get("activation_fn")
    # Versions before 5 write it into the configuration of the transformer.
    in_config = getattr(config, "sentence_transformers", None) or {}
    return activation_named(
        saved or in_config.get("activation_fn") or "torch.nn.modules.activation.Sigmoid"
    )


def _check_scores(network: ModularNetwork, folder: Path) -> None:
    """Read two tokens, to see that the modules fit together and end with one score."""
    ids = torch.zeros((1, 2), dtype=torch.long)
    try:
        with torch.no_grad():
            scores = network.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    except KeyError as error:
        raise ValueError(
            f"{folder / MODULES}: no module gives {error}; the last one must give 'scores' "
            "(module_output_name)"
        ) from error
    except RuntimeError as error:
        raise ValueError(f"{folder / MODULES}: the modules do not fit together: {error}") from error
    if scores.ndim != 2 or scores.shape[1] != 1:
        raise ValueError(f"{folder} gives {scores.shape[-1]} scores for a pair; a ranker gives one")


def _first(tokens: Tensor, mask: Tensor) -> Tensor:
    return tokens[:, 0]


def _last(tokens: Tensor, mask: Tensor) -> Tensor:
    return tokens[torch.arange(len(tokens), device=tokens.device), mask.sum(dim=1) - 1]


def _largest(tokens: Tensor, mask: Tensor) -> Tensor:
    return tokens.masked_fill(mask[..., None] == 0, float("-inf")).amax(dim=1)


def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
    return _sum(tokens, mask) / mask.sum(dim=1, keepdim=True)


def _mean_by_root(tokens: Tensor, mask: Tensor) -> Tensor:
    return _sum(tokens, mask) / mask.sum(dim=1, keepdim=True).sqrt()


def _weighted_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """Weights are the places of the tokens, from 1."""
    weights = mask * torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return _sum(tokens, weights) / weights.sum(dim=1, keepdim=True)


def _sum(tokens: Tensor, weights: Tensor) -> Tensor:
    # Half precision has too few digits for a sum over many tokens.
    return (tokens * weights[..., None]).sum(dim=1, dtype=torch.float32)


_POOLED_BY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _first,
    "lasttoken": _last,
    "max": _largest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
}
# In the order in which sentence-transformers puts them behind each other.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
