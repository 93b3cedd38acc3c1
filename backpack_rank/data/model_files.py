"""What the files of a folder with a model may say: one table, by which all of them are looked at.

A folder may come from anybody, and libraries take its numbers as they stand: with a length of 0 a
tokenizer cuts for ever, a regular expression may be matched for years, and whoever opens a pipe
waits until somebody writes into it. :data:`FILES` says what may stand in which file, in the words
of our own options (:mod:`backpack_rank.constructors`); what is not in it, the libraries check that
read it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from backpack_rank.checks import located
from backpack_rank.constructors import (
    Called,
    Count,
    CountOrZero,
    Length,
    Options,
    Positions,
    Range,
    Share,
    Width,
    check_fields,
    check_value,
    fits,
)
from backpack_rank.data.json_lines import json_file, json_object_file
from backpack_rank.files import read_yaml

MODULES = "modules.json"
ROUTES = "router_config.json"
READ_FOLDERS = ("additional_chat_templates", "custom_generate")
"""Folders below that of a model, of which libraries read every file."""
LAYERS, HEADS = 1_000, 10_000
"""What a configuration may have: ten times as many as the largest published ones."""
RANKS = 2**14
_FOLDERS_OF_MODULES = 100
_NO_MODEL = "no model has another"

Text = Annotated[str, Length(0, 1_000_000)]


class PlainName:
    """Of a text: a module's name, in which no sign means anything else than itself."""

    _SIGNS = re.compile(r"[\w.-]+")

    def admits(self, value: str) -> bool:
        """Whether it holds letters, digits, dots and hyphens alone."""
        return self._SIGNS.fullmatch(value) is not None

    def words(self, kind: str) -> str:
        """What it is."""
        return f"{kind} of a module or a list of names, and no expression to match names with"


# peft matches all names of modules with such a text, and there are expressions without an end.
ModuleName = Annotated[str, Length(1, 255), PlainName(), Called("a name")]
ModuleNames = ModuleName | Sequence[ModuleName] | None
Finite = Annotated[float, Called("a finite number")]


class Configuration(Options):
    """``config.json`` of a model."""

    max_pair_length: Positions
    max_position_embeddings: Annotated[int, Range(least=-1, most=2**31 - 1)] | None
    pair_token_ids: Sequence[int | None]


class TokenizerSettings(Options):
    """``tokenizer_config.json``."""

    # Tokenizers without a limit have 10^30.
    model_max_length: Annotated[float, Range(least=1)] | None


class TextSettings(Options):
    """How a module of sentence-transformers reads texts."""

    max_length: Positions | None


class ProcessingSettings(Options):
    """Those of all that a module of sentence-transformers reads."""

    text: TextSettings
    chat_template: Mapping[str, Any]


class ExpansionSettings(Options):
    """How queries of a late-interaction encoder are expanded."""

    strategy: Literal["fixed", "min"]
    attend: bool
    token: str | None
    length: Positions


class TransformerSettings(Options):
    """``sentence_bert_config.json``."""

    max_seq_length: Positions | None
    processing_kwargs: ProcessingSettings
    modality_config: Mapping[str, Any] | None
    transformer_task: str
    do_lower_case: bool
    query_length: Positions | None
    document_length: Positions | None
    query_expansion: ExpansionSettings | None


class SentenceTransformersSettings(Options):
    """``config_sentence_transformers.json``."""

    model_type: str
    prompts: Mapping[str, Text | None] | None
    default_prompt_name: str | None
    activation_fn: str | None
    similarity_fn_name: str | None
    truncate_dim: Width | None
    query_prefix: Text | None
    document_prefix: Text | None
    query_length: Positions | None
    document_length: Positions | None
    query_expansion: ExpansionSettings | None
    do_query_expansion: bool | None
    attend_to_expansion_tokens: bool | None
    attend_to_mask_tokens: bool | None
    skiplist_words: Sequence[Text] | None


class ColbertSettings(Options):
    """``artifact.metadata`` of Stanford's ColBERT."""

    query_token_id: Text | None
    doc_token_id: Text | None
    query_maxlen: Positions | None
    doc_maxlen: Positions | None
    mask_punctuation: bool
    attend_to_mask_tokens: bool


class ModuleSettings(Options):
    """``config.json`` of a module behind a transformer."""

    in_features: Width
    out_features: Width
    dimension: Width
    word_embedding_dimension: Width
    bias: bool
    use_residual: bool
    include_prompt: bool
    activation_function: str
    module_input_name: str | None
    module_output_name: str | None
    skiplist_words: Sequence[Text] | None
    skiplist_tasks: Sequence[str] | str | None


class AdapterSettings(Options):
    """``adapter_config.json`` of a LoRA adapter."""

    r: Annotated[int, Range(least=1, most=RANKS)]
    lora_alpha: Finite
    lora_dropout: Share
    target_modules: ModuleNames
    exclude_modules: ModuleNames
    modules_to_save: ModuleNames
    layers_pattern: ModuleNames
    layers_to_transform: CountOrZero | Sequence[CountOrZero] | None
    rank_pattern: Mapping[ModuleName, Annotated[int, Range(least=1, most=RANKS)]] | None
    alpha_pattern: Mapping[ModuleName, Finite] | None
    target_parameters: Sequence[ModuleName] | None
    layer_replication: Annotated[Sequence[tuple[int, int]], Length(0, 20)] | None


class ListwiseSettings(Options):
    """``listwise.json``."""

    passages: Count | None
    max_length: Positions | None
    mode: str
    prompt: Mapping[str, Any]


class CalibrationRow(Options):
    """A map from scores to probabilities."""

    alpha: Annotated[float, Range(least=0)]
    slope: Annotated[float, Range(above=0)]
    intercept: Finite
    scores: Sequence[float]
    probabilities: Sequence[Share]


class CalibrationSettings(Options):
    """``calibration.json``."""

    format: str
    method: Literal["platt", "isotonic"]
    policy: str
    data: str
    maps: Annotated[Sequence[CalibrationRow], Length(1, 1000)]


class TemplateSettings(Options):
    """``reranker_template.yaml``."""

    max_length: Positions
    pieces: Annotated[Sequence[Text], Length(1, 1000)]


class LabelSettings(Options):
    """``reranker_labels.yaml``."""

    relevant: str
    not_relevant: str


FILES: Mapping[str, type[Options]] = {
    "config.json": Configuration,
    "tokenizer_config.json": TokenizerSettings,
    "sentence_bert_config.json": TransformerSettings,
    "config_sentence_transformers.json": SentenceTransformersSettings,
    "artifact.metadata": ColbertSettings,
    "adapter_config.json": AdapterSettings,
    "listwise.json": ListwiseSettings,
    "calibration.json": CalibrationSettings,
    "reranker_template.yaml": TemplateSettings,
    "reranker_labels.yaml": LabelSettings,
}
"""What may stand in which file."""
_READ_FIRST = (
    "config.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "artifact.metadata",
    "adapter_config.json",
)
NUMBERS: Sequence[tuple[re.Pattern[str], Any]] = (
    (re.compile(r"(n|num)_(\w+_)?layers?|(en|de)coder_layers"), Range(least=0, most=LAYERS)),
    (
        re.compile(r"(n|num)_(\w+_)?heads?|(en|de)coder_attention_heads"),
        Range(least=0, most=HEADS),
    ),
    (
        re.compile(r"(\w+_)?size|n_embd|n_inner|n_positions|d_model|d_ff|dim|num_senses"),
        Range(least=0, most=2**31),
    ),
)
"""Numbers that mean one thing in all files of a model, by their names."""


def check_settings(folder: Path) -> None:
    """On a folder with a model before anything of it is read.

    Files that no loader needs, such as ``calibration.json``, are looked at by :func:`read_settings`
    when somebody asks for what they hold.

    Raises:
        ValueError: a file of :data:`FILES` is damaged or says what it may not say, or there is
            something that is no file.
    """
    for part in folders_of(folder):
        for place in (part, *(part / name for name in READ_FOLDERS)):
            if place.is_dir():
                check_regular(*sorted(place.iterdir()))
        for name in _READ_FIRST:
            file = part / name
            # What holds no names and values is not for this file's readers, who say so.
            content = json_file(file) if file.is_file() else None
            if isinstance(content, dict):
                check_content(file, content)


def read_settings(file: Path, kind: type[Options] | None = None) -> dict[str, Any]:
    """Read a file of :data:`FILES`: everything in it is of the type and range there.

        read_settings(folder / "sentence_bert_config.json").get("max_seq_length")

    Args:
        kind: what it is, where it may have any name.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or says what it may not say: file, name and value are named.
    """
    check_regular(file)
    if file.suffix != ".yaml":
        content = json_object_file(file)
    else:
        content = read_yaml(file)
        if not isinstance(content, dict):
            raise ValueError(f"{file} must hold names and values")
    check_content(file, content, kind)
    return content


def check_content(
    file: Path, content: Mapping[str, Any], kind: type[Options] | None = None
) -> None:
    """Look at the content of a file of a model; other files' are not looked at.

    Raises:
        ValueError: a value is of another type or out of its range.
    """
    is_of_module = (file.parent.parent / MODULES).is_file() and not is_transformer(file.parent)
    kind = kind or FILES.get(file.name)
    if file.name == "config.json" and is_of_module:
        kind = ModuleSettings
    if kind is not None:
        with located(file):
            check_fields(kind, content)


def check_number(file: Path, name: str, value: int) -> None:
    """A whole number anywhere in a file: sizes that no model has are refused.

    Raises:
        ValueError: it is one of :data:`NUMBERS` and out of its range.
    """
    for names, allowed in NUMBERS:
        if names.fullmatch(name) and not fits(value, Annotated[int, allowed]):
            raise ValueError(
                f"{file}: {name}={str(value)[:20]} must lie in [{allowed.least}, {allowed.most}]; "
                f"{_NO_MODEL}"
            )


def is_transformer(folder: Path) -> bool:
    """Whether a folder below ``modules.json`` holds a model of transformers, and no layer."""
    config = folder / "config.json"
    return config.is_file() and "model_type" in json_object_file(config)


def folders_of(folder: Path) -> Iterator[Path]:
    """The folder of a model, and those below it that ``modules.json`` names.

    Raises:
        ValueError: a name leads out of the folder.
    """
    yield folder
    if not (folder / MODULES).is_file():
        return
    entries = json_file(folder / MODULES)
    if not isinstance(entries, list) or len(entries) > _FOLDERS_OF_MODULES:
        raise ValueError(f"{folder / MODULES} must hold a list of modules")
    names = {}
    for place, entry in enumerate(entries):
        path = entry.get("path", "") if isinstance(entry, dict) else ""
        with located(folder / MODULES):
            check_value(f"[{place}].path", path, Annotated[str, Length(0, 255)])
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(f"{folder / MODULES}: path {path} leads out of the folder")
        names[path] = folder / path
        for part in _parts_of_router(folder / path):
            names[str(part)] = part
    for below in names.values():
        if below != folder and below.is_dir():
            yield below


def _parts_of_router(folder: Path) -> Iterator[Path]:
    """Folders of the modules that queries and documents go through, each their own."""
    file = folder / ROUTES
    types = json_object_file(file).get("types") if file.is_file() else None
    for name in types if isinstance(types, dict) else ():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{file}: path {name} leads out of the folder")
        yield folder / name


def check_regular(*paths: Path) -> None:
    """Before files are opened: who opens a pipe waits for its writer, maybe for ever.

    Raises:
        ValueError: one is neither a file nor a folder.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode
        except OSError:
            continue  # whoever opens it says so
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(
                f"{path} is a pipe, a device or a socket, and only files are read: put the "
                "model's own file there"
            )
