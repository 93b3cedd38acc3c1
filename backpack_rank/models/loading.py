"""Saving rankers, and loading these and rankers of others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from transformers import PreTrainedTokenizerBase

from backpack_rank import models
from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import MODULES
from backpack_rank.data.pretrained import ADAPTER, from_pretrained
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.files import atomic_path
from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.backpack_encoder import SenseRanker
from backpack_rank.models.cross_encoder_files import save_cross_encoder_files
from backpack_rank.models.folder_checks import check_files, check_model, readable, write_checksums
from backpack_rank.models.foreign_folder import (
    RANKERS_ARE,
    check_code,
    check_model_type,
    not_a_ranker,
)
from backpack_rank.models.late_interaction import is_late_interaction, load_late_interaction
from backpack_rank.models.logit_score import is_logit_score, load_logit_score
from backpack_rank.models.lora_folder import (
    CLASSIFIER,
    LoraFolder,
    is_classifier,
    is_encoder_decoder,
    is_language_model,
    is_lora,
)
from backpack_rank.models.modular_cross_encoder import is_modular, kind_of, load_modular
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer, pair_token_ids
from backpack_rank.models.prompted_ranker import TEMPLATE, PromptTemplate, load_prompted
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    Ranker,
)
from backpack_rank.models.sequence_classifier import load_classifier
from backpack_rank.models.sparse_encoder import load_sparse_encoder
from backpack_rank.models.text_encoder import load_text_encoder
from backpack_rank.parts import folder_kind

log = logging.getLogger(__name__)
Template = str | Path | PromptTemplate
"""How a language model is asked: a name of ``conf/template``, a YAML file, or a template."""


def save_ranker(folder: str | Path, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
    """Save a ranker with its tokenizer in a folder that :func:`load_ranker` reads.

    ``from_pretrained`` and ``CrossEncoder`` of sentence-transformers read it too. The folder is
    complete or absent; a previous one stays until the new one is complete.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        ranker.config.max_pair_length = pair_tokenizer.max_length
        ranker.config.pair_token_ids = pair_token_ids(pair_tokenizer)
        ranker.save_pretrained(temporary)
        save_cross_encoder_files(temporary, ranker, pair_tokenizer)
        write_checksums(temporary, pair_tokenizer.tokenizer)


def load_ranker(
    folder: str | Path,
    template: Template | None = None,
    labels: Sequence[str] | None = None,
    pooling: str | None = None,
) -> tuple[Ranker, PairTokenizer]:
    """Load a saved ranker with its tokenizer, or one that was trained elsewhere.

    ::

        ranker, pair_tokenizer = load_ranker("outputs/train/DATE/ranker")

    Args:
        folder: written by :func:`save_ranker`; or by transformers for a classifier or an encoder,
            by sentence-transformers for a cross-encoder in modules or a bi-encoder, or by peft for
            an adapter of these; or a language model that answers whether a document is relevant.
        template: for a language model, how it is asked: a name of ``conf/template``, a YAML file,
            or a template; None: what its folder holds (``reranker_template.yaml``).
        labels: for a classifier with two labels, their names, the relevant one first; None: what
            its folder holds (``reranker_labels.yaml``).
        pooling: for an encoder without modules, how it makes a vector of a text: ``mean``,
            ``first`` or ``last``. Scores are then cosines.

    Raises:
        FileNotFoundError: no ``config.json`` in the folder.
        ValueError: the checkpoint is of another architecture, or damaged: the file is named.
    """
    config_file = Path(folder) / "config.json"
    if not any((Path(folder) / name).is_file() for name in (config_file.name, ADAPTER, MODULES)):
        raise FileNotFoundError(
            f"{config_file} is missing: {folder} is not the folder of a saved ranker"
        )
    if (kind := folder_kind(folder)) is not None:
        raise ValueError(
            f"{folder} is a {kind.name} ranker: add {kind.advice}, which ranks with it"
        )
    with readable(folder):
        check_files(folder)
        ranker, pair_tokenizer = _load_ranker(Path(folder), template, labels, pooling)
        check_model(folder, ranker, pair_tokenizer.tokenizer)
    ranker.folder = Path(folder)
    return ranker, pair_tokenizer


def _load_ranker(
    folder: Path,
    template: Template | None,
    labels: Sequence[str] | None,
    pooling: str | None,
) -> tuple[Ranker, PairTokenizer]:
    """The ranker of a folder. What a kind says of itself is asked before ``config.json`` is."""
    if pooling is None and is_late_interaction(folder):
        _refuse_template(template, folder, "late-interaction encoder")
        _refuse_labels(labels, folder, "late-interaction encoder")
        return load_late_interaction(folder)
    kind = kind_of(folder)
    if pooling is not None and kind is not None:
        raise ValueError(
            f"pooling={pooling} is for encoders without modules, and {folder} says in {MODULES} "
            "how it makes its vectors: leave it out"
        )
    if kind == "SentenceTransformer" or pooling is not None:
        _refuse_template(template, folder, kind or "encoder")
        _refuse_labels(labels, folder, kind or "encoder")
        return load_text_encoder(folder, _tokenizer_beside(folder), pooling)
    if kind == "SparseEncoder":
        _refuse_template(template, folder, kind)
        _refuse_labels(labels, folder, kind)
        return load_sparse_encoder(folder)
    if is_lora(folder):
        return _load_adapted(LoraFolder(folder), template, labels)
    if not (folder / "config.json").is_file():
        # Modules in folders of their own, as word vectors have them.
        return load_modular(folder)
    return _load_by_architecture(folder, template, labels)


def _load_by_architecture(
    folder: Path, template: Template | None, labels: Sequence[str] | None
) -> tuple[Ranker, PairTokenizer]:
    """The ranker of a folder whose ``config.json`` names its class."""
    config_file = folder / "config.json"
    config = json_object_file(config_file)
    architecture = _architecture(config_file, config)
    if template is None and is_logit_score(folder):
        _refuse_labels(labels, folder, architecture)
        return load_logit_score(folder, load_tokenizer(folder))
    own_class = _own_classes().get(architecture)
    if own_class is not None:
        _refuse_template(template, folder, architecture)
        _refuse_labels(labels, folder, architecture)
        return _load_own(folder, own_class, config)

    check_code(config_file, config, architecture)
    if is_encoder_decoder(architecture) and config.get("is_encoder_decoder"):
        _refuse_labels(labels, folder, architecture)
        tokenizer = load_tokenizer(folder)
        if template is None and not (folder / TEMPLATE).is_file():
            template = _prompt_of_encoder_decoder(tokenizer, folder, architecture)
        return load_prompted(folder, tokenizer, _prompt_of(template, architecture, folder))
    if is_language_model(architecture):
        _refuse_labels(labels, folder, architecture)
        prompt = _prompt_of(template, architecture, folder)
        return load_prompted(folder, load_tokenizer(folder), prompt)
    check_model_type(config_file, config)
    if is_modular(folder):
        _refuse_template(template, folder, architecture)
        _refuse_labels(labels, folder, architecture)
        return load_modular(folder, load_tokenizer(folder))
    if not is_classifier(architecture):
        raise not_a_ranker(config_file, architecture)
    prompt_of_pair = _prompt_of_classifier(template, folder)
    return load_classifier(folder, load_tokenizer(folder), labels, template=prompt_of_pair)


def _architecture(config_file: Path, config: dict[str, Any]) -> str:
    """The name of the class that the weights are of."""
    names = config.get("architectures") or [_unnamed(config_file, config)]
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise ValueError(f"{config_file}: architectures={names} must be a list of names")
    return names[0]


def _load_own(
    folder: Path, own_class: type[Ranker], config: dict[str, Any]
) -> tuple[Ranker, PairTokenizer]:
    """A ranker that ``train.py`` saved, with the tokens that it was trained with around texts."""
    ranker = from_pretrained(own_class, str(folder))
    network = ranker.backpack if isinstance(ranker, SenseRanker) else ranker
    if isinstance(network, BackboneMixin):
        # Asked now, while weights are in fp32: in half precision, rounding could pass for a
        # difference.
        network.reads_one_by_one()
    tokenizer = load_tokenizer(folder)
    max_length = config.get("max_pair_length", ranker.config.n_positions)
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, max_length)
    token_ids = pair_token_ids(pair_tokenizer)
    saved_ids = config.get("pair_token_ids", token_ids)
    if saved_ids != token_ids:
        raise ValueError(
            f"{folder}: its tokenizer puts tokens {token_ids} before, between and behind two "
            f"texts, and the ranker was saved with {saved_ids} (pair_token_ids): put back the "
            "tokenizer's special tokens"
        )
    return ranker, pair_tokenizer


def _tokenizer_beside(folder: Path) -> PreTrainedTokenizerBase | None:
    """Of an adapter, the tokenizer that its base model may have; None: that of the first module."""
    return load_tokenizer(LoraFolder(folder).tokenizer_folder) if is_lora(folder) else None


def _load_adapted(
    adapter: LoraFolder, template: Template | None, labels: Sequence[str] | None
) -> tuple[Ranker, PairTokenizer]:
    """A classifier, cross-encoder in modules or language model with an adapter in its weights."""
    folder, architecture = adapter.folder, adapter.architecture
    tokenizer = load_tokenizer(adapter.tokenizer_folder)
    if template is None and is_logit_score(folder):
        _refuse_labels(labels, folder, architecture)
        return load_logit_score(folder, tokenizer)
    if is_language_model(architecture):
        _refuse_labels(labels, folder, architecture)
        prompt = _prompt_of(template, architecture, folder, adapter.base)
        return load_prompted(folder, tokenizer, prompt)
    if is_modular(folder):
        _refuse_template(template, folder, architecture)
        _refuse_labels(labels, folder, architecture)
        return load_modular(folder, tokenizer)
    if architecture in _own_classes() or not is_classifier(architecture):
        raise ValueError(
            f"{folder}: an adapter of a {architecture} is no ranker, which is a classifier of "
            "pairs (task_type=SEQ_CLS) or a language model that answers a prompt (CAUSAL_LM)"
        )
    prompt_of_pair = _prompt_of_classifier(template, folder, adapter.base)
    return load_classifier(folder, tokenizer, labels, adapter.base, prompt_of_pair)


def _unnamed(config_file: Path, config: dict[str, Any]) -> str:
    """The architecture where none is named, as in the oldest folders, if there is one label."""
    if len(config.get("id2label", ())) == 1:
        return CLASSIFIER
    raise ValueError(
        f"{config_file} names no architecture (architectures), so it is not known what the weights "
        f"are; {RANKERS_ARE}"
    )


def _own_classes() -> dict[str, type[Ranker]]:
    """Rankers that ``train.py`` saves, by the names in ``architectures``.

    They are the classes of this folder that have a configuration of their own: a new one needs no
    other place than its file. Rankers made of folders of others have none.
    """
    classes: dict[str, type[Ranker]] = {}
    for file in iter_modules(models.__path__):
        module = import_module(f"{models.__name__}.{file.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Ranker) and value.is_saved():
                classes[value.__name__] = value
    # sentence-transformers loads these two rankers as classes of backpack_rank.integrations, and
    # saves them under that name. The weights are the same.
    for ranker_class in (BackpackForRanking, CrossEncoderForRanking):
        name = ranker_class.__name__.replace("ForRanking", "ForSequenceClassification")
        classes[name] = ranker_class
    return classes


def _prompt_of_encoder_decoder(
    tokenizer: PreTrainedTokenizerBase, folder: Path, architecture: str
) -> PromptTemplate:
    """That of monoT5, where its answers are tokens; its folders name no prompt."""
    prompt = PromptTemplate.of("monot5")
    for answer in (prompt.relevant, prompt.not_relevant):
        ids = tokenizer(str(answer), add_special_tokens=False)["input_ids"]
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            raise not_a_ranker(folder / "config.json", architecture)
    log.warning(
        "%s: a %s is asked as monoT5 is (template=monot5); one that was not trained so answers at "
        "random",
        folder,
        architecture,
    )
    return prompt


def _prompt_of(template: Template | None, architecture: str, *folders: Path) -> PromptTemplate:
    """The template that was given, else the one in the first folder that has one."""
    if isinstance(template, PromptTemplate):
        return template
    if template is not None:
        return PromptTemplate.of(template)
    for folder in folders:
        if (folder / TEMPLATE).is_file():
            return PromptTemplate.of(folder / TEMPLATE)
    raise ValueError(
        f"{folders[0]}: {architecture} is a language model, which ranks by answering a prompt: "
        "give template=qwen3_reranker (or another of conf/template, or a YAML file), or put such "
        f"a file into its folder as {TEMPLATE}"
    )


def _prompt_of_classifier(
    template: Template | None, *folders: Path | None
) -> PromptTemplate | None:
    """The template that was given, or that a folder holds; a classifier can do without one."""
    if template is None:
        has_one = [folder for folder in folders if folder and (folder / TEMPLATE).is_file()]
        return PromptTemplate.of(has_one[0] / TEMPLATE) if has_one else None
    return template if isinstance(template, PromptTemplate) else PromptTemplate.of(template)


def _refuse_template(template: Template | None, folder: Path, architecture: str) -> None:
    if template is not None:
        name = "..." if isinstance(template, PromptTemplate) else template
        raise ValueError(
            f"template={name} is for language models, and {folder} is a {architecture}: leave it "
            "out"
        )


def _refuse_labels(labels: Sequence[str] | None, folder: Path, architecture: str) -> None:
    if labels is not None:
        raise ValueError(
            f"labels={list(labels)} are for classifiers with two labels, and {folder} is a "
            f"{architecture}: leave them out"
        )
