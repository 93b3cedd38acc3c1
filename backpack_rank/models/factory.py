"""Making, saving and loading rankers: new ones of a given size, or from published weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, Literal

import torch
from transformers import AutoConfig, AutoModel, GPT2Config, PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank import models
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.commands import called
from backpack_rank.constructors import (
    CountOrZero,
    Dropout,
    Layers,
    Name,
    Note,
    OneOf,
    PathText,
    Positions,
    Positive,
    Spread,
    Width,
)
from backpack_rank.data.json_lines import json_object_file
from backpack_rank.data.model_files import MODULES
from backpack_rank.data.pretrained import ADAPTER, from_pretrained
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.data.wordings import ApartPairTokenizer
from backpack_rank.files import LATEST, RANKER, atomic_path
from backpack_rank.models.apart import ApartRanker
from backpack_rank.models.attribute_senses import WHERE, add_attribute_senses
from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.configuration import (
    INPUT_FORMS,
    SENSE_KEYS,
    SENSES,
    BackpackConfig,
    CrossEncoderConfig,
    DualEncoderConfig,
    check_readout,
)
from backpack_rank.models.cross_encoder_files import save_cross_encoder_files
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.folder_checks import check_files, check_model, readable, write_checksums
from backpack_rank.models.foreign_folder import (
    RANKERS_ARE,
    check_code,
    check_model_type,
    not_a_ranker,
    what_is_there,
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
from backpack_rank.models.pooled_layer import default_sense_keys
from backpack_rank.models.prompted_ranker import TEMPLATE, PromptTemplate, load_prompted
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    GPT2ForRanking,
    Ranker,
)
from backpack_rank.models.ranking_heads import HEADS, RankingHead
from backpack_rank.models.sequence_classifier import load_classifier
from backpack_rank.models.similarity import POOLINGS
from backpack_rank.models.sparse_encoder import load_sparse_encoder
from backpack_rank.models.text_encoder import load_text_encoder
from backpack_rank.models.utils import DTYPES, backbone_dtype, cast_parameters
from backpack_rank.parts import folder_kind

log = logging.getLogger(__name__)
Template = str | Path | PromptTemplate
"""How a language model is asked: a name of ``conf/template``, a YAML file, or a template."""
AttributeNames = PathText | Sequence[PathText]
Where = Annotated[str, OneOf(WHERE)]
Queries = Annotated[str, OneOf(QUERIES)]
Head = Annotated[str, OneOf(HEADS)]
InputForm = Annotated[str, OneOf(INPUT_FORMS)]
SenseKeys = Annotated[str, OneOf(SENSE_KEYS)]
Similarity = Positive | Annotated[None, Note("for a score without it")]
SimilarityPooling = Annotated[str, OneOf(POOLINGS)]
LayersApart = CountOrZero | Annotated[None, Note("for two thirds of the layers")]
# What the families call the dropout of attention weights.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attn_pdrop", "attention_dropout")


def new_backpack(
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: Layers = 12,
    hidden_size: Width = 768,
    heads: Layers = 12,
    senses: Layers = SENSES,
    positions: Positions = 512,
    dropout: Dropout = 0.1,
    initializer_range: Spread = 0.02,
    sense_intermediate_scale: Layers = 4,
    attribute_senses: AttributeNames | None = None,
    attribute_senses_where: Where = "documents",
    attribute_senses_queries: Queries = QUERIES[0],
    head: Head = "mlp",
    input_form: InputForm = "separated",
) -> BackpackForRanking:
    """Train a Backpack ranker from nothing: random weights for a tokenizer's vocabulary.

    ::

        ranker = new_backpack(tokenizer, layers=2, hidden_size=128, heads=2, senses=8)

    Args:
        attribute_senses: attributes whose groups get a sense each, entries of ``conf/attribute`` or
            YAML files; None: none. See :mod:`backpack_rank.models.attribute_senses`.
        attribute_senses_where: of which words, ``documents`` or ``all``.
        attribute_senses_queries: ``neutral_only``: a query that asks for a group is read as it is,
            with its documents; ``all``: no query is.
        head: ``mlp`` as in the paper, or ``linear_sigmoid`` as in its code.
        input_form: ``separated``, or ``as_coded``: query and document as the paper's code joins
            them. See :class:`~backpack_rank.models.configuration.BackpackConfig`.
    """
    shape = _gpt2_options(
        tokenizer, layers, hidden_size, heads, positions, dropout, initializer_range
    )
    config = BackpackConfig(
        num_senses=senses,
        sense_intermediate_scale=sense_intermediate_scale,
        head=head,
        input_form=input_form,
        **shape,
    )
    ranker = BackpackForRanking(config)
    _add_attribute_senses(
        ranker,
        tokenizer,
        attribute_senses,
        attribute_senses_where,
        attribute_senses_queries,
    )
    return ranker


def new_gpt2(
    tokenizer: PreTrainedTokenizerBase,
    *,
    layers: Layers = 12,
    hidden_size: Width = 768,
    heads: Layers = 12,
    positions: Positions = 512,
    dropout: Dropout = 0.1,
    initializer_range: Spread = 0.02,
) -> GPT2ForRanking:
    """Train a GPT-2 ranker from nothing: random weights for a tokenizer's vocabulary."""
    shape = _gpt2_options(
        tokenizer, layers, hidden_size, heads, positions, dropout, initializer_range
    )
    return GPT2ForRanking(GPT2Config(**shape))


def pretrained_backpack(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    attribute_senses: AttributeNames | None = None,
    attribute_senses_where: Where = "documents",
    attribute_senses_queries: Queries = QUERIES[0],
    head: Head = "mlp",
    input_form: InputForm = "separated",
) -> BackpackForRanking:
    """Train a ranker from a pretrained Backpack, such as ``stanfordnlp/backpack-gpt2``.

    It gets a new head if it has none, and is in training mode, as new rankers are:
    ``from_pretrained`` switches dropout off, and a trainer leaves the mode unchanged.

    Args:
        name: hub id or folder.
        attribute_senses, attribute_senses_where, attribute_senses_queries: as of
            :func:`new_backpack`; those that the folder has stay.
        head, input_form: as of :func:`new_backpack`.
    """
    options = {"head": head, "input_form": input_form}
    ranker = from_pretrained(BackpackForRanking, name, new_head=True, **options)
    _check_vocabulary(tokenizer, ranker.config.vocab_size, name)
    _add_attribute_senses(
        ranker,
        tokenizer,
        attribute_senses,
        attribute_senses_where,
        attribute_senses_queries,
    )
    return ranker.train()


def pretrained_gpt2(tokenizer: PreTrainedTokenizerBase, *, name: PathText) -> GPT2ForRanking:
    """A GPT-2 ranker from a hub id or folder, with a new head if it has none; in training mode."""
    ranker = from_pretrained(GPT2ForRanking, name, new_head=True)
    _check_vocabulary(tokenizer, ranker.config.vocab_size, name)
    return ranker.train()


def backpack_on_backbone(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    senses: Layers = SENSES,
    sense_intermediate_scale: Layers = 4,
    dropout: Dropout = 0.1,
    pooling: Literal["first", "last"] | None = None,
    attention: Name | None = None,
    dtype: Annotated[str, OneOf(DTYPES)] = "float32",
    keys: SenseKeys | None = None,
    similarity: Similarity = None,
    similarity_pooling: SimilarityPooling = "mean",
    layers_apart: LayersApart = None,
    attribute_senses: AttributeNames | None = None,
    attribute_senses_where: Where = "documents",
    attribute_senses_queries: Queries = QUERIES[0],
    head: Head = "mlp",
    input_form: InputForm = "separated",
) -> BackpackForRanking:
    """Put a Backpack over any pretrained encoder or decoder; in training mode.

    Senses, the network of their weights and the head are new.

    ::

        ranker = backpack_on_backbone(tokenizer, name="google-bert/bert-base-uncased")

    Args:
        name: hub id or folder that ``AutoModel`` loads.
        senses: k; must divide the backbone's hidden size.
        dropout: in the new parts.
        pooling: ``first`` or ``last`` token; None takes what fits the backbone.
        attention: attention implementation of the backbone; None reads texts without padding where
            that is possible.
        dtype: number format of the backbone's weights, ``float32`` or ``bfloat16``; new parts are
            in float32.
        keys: what the keys of the sense weights are made of, the ``last`` hidden states or those
            ``below_last``, which encoders of five types can give: scoring and training take about
            as long as with a cross-encoder. None: ``below_last`` where the backbone can. See
            :class:`~backpack_rank.models.configuration.BackpackConfig`.
        similarity: factor of the encoder's cosine of query and document, which is then a part of
            the score, and the encoder is not trained (:mod:`backpack_rank.models.similarity`);
            None: without.
        similarity_pooling: how the encoder makes a vector of a text, ``mean`` or ``first``.
        layers_apart: with a similarity, lower layers in which query and document do not see each
            other; None: two thirds of them.
        attribute_senses, attribute_senses_where, attribute_senses_queries, head, input_form: as of
            :func:`new_backpack`.

    Raises:
        ValueError: the tokenizer and the backbone's vocabulary do not fit, the backbone has no word
            embeddings, has an encoder and a decoder, cannot be read from token ids alone, cannot
            give ``keys=below_last``, or ``senses`` does not divide its hidden size.
    """
    backbone_dtype(dtype)
    backbone, options = _backbone(tokenizer, name, dropout, pooling, attention)
    config = BackpackConfig(
        num_senses=senses,
        sense_intermediate_scale=sense_intermediate_scale,
        sense_keys=keys or default_sense_keys(backbone),
        head=head,
        input_form=input_form,
        similarity=_similarity(backbone, similarity, similarity_pooling, layers_apart),
        **options,
    )
    ranker = BackpackForRanking(config)
    _take_weights(ranker.backpack, backbone)
    if ranker.backpack.joint is not None:
        assert isinstance(ranker.head, RankingHead)
        ranker.head.start_at_zero()
    cast_parameters(ranker.backpack.backbone, dtype)
    _add_attribute_senses(
        ranker,
        tokenizer,
        attribute_senses,
        attribute_senses_where,
        attribute_senses_queries,
    )
    return ranker.train()


def cross_encoder(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    dropout: Dropout = 0.1,
    pooling: Literal["first", "last"] | None = None,
    attention: Name | None = None,
    dtype: Annotated[str, OneOf(DTYPES)] = "float32",
    similarity: Similarity = None,
    similarity_pooling: SimilarityPooling = "mean",
    layers_apart: LayersApart = None,
) -> CrossEncoderForRanking:
    """Train a plain cross-encoder, a head on any pretrained encoder or decoder.

    It is in training mode. Arguments and errors as of :func:`backpack_on_backbone`.
    """
    backbone_dtype(dtype)
    backbone, options = _backbone(tokenizer, name, dropout, pooling, attention)
    options["similarity"] = _similarity(backbone, similarity, similarity_pooling, layers_apart)
    ranker = CrossEncoderForRanking(CrossEncoderConfig(**options))
    _take_weights(ranker, backbone)
    if ranker.joint is not None:
        ranker.head.start_at_zero()
    cast_parameters(ranker.backbone, dtype)
    return ranker.train()


def dual_encoder(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    pooling: Literal["first", "last"] | None = None,
    attention: Name | None = None,
    dtype: Annotated[str, OneOf(DTYPES)] = "float32",
) -> DualEncoderForRanking:
    """Train a dual encoder over any pretrained encoder or decoder, without new parts.

    It is in training mode. Arguments and errors as of :func:`backpack_on_backbone`.
    """
    backbone_dtype(dtype)
    backbone, options = _backbone(tokenizer, name, 0.0, pooling, attention)
    # Decoders may have no separator, but the model has to find the end of a query.
    options["separator_id"] = PairTokenizer(tokenizer, 0).separator_id
    ranker = DualEncoderForRanking(DualEncoderConfig(**options))
    _take_weights(ranker, backbone)
    cast_parameters(ranker.backbone, dtype)
    return ranker.train()


def make_pair_tokenizer(
    tokenizer: PreTrainedTokenizerBase, ranker: Ranker, max_length: int
) -> PairTokenizer:
    """What turns pairs of texts into a ranker's input.

    Raises:
        ValueError: ``max_length`` exceeds the ranker's positions.
    """
    positions = ranker.config.n_positions
    if max_length > positions:
        raise ValueError(
            f"max_length={max_length} exceeds the ranker's {positions} positions; "
            "lower max_length or give the model more positions"
        )
    start_id = _start_id(tokenizer, ranker)
    pair_tokenizer = ranker.pair_tokenizer_class(tokenizer, max_length, start_id)
    if isinstance(ranker, ApartRanker) and isinstance(pair_tokenizer, ApartPairTokenizer):
        ranker.mark = pair_tokenizer.mark
    return pair_tokenizer


def with_readout(ranker: Ranker, pair_tokenizer: PairTokenizer, readout: str) -> PairTokenizer:
    """Read a Backpack's score at other positions; it gives the tokenizer that fits.

    Args:
        ranker: it is changed.
        pair_tokenizer: of the ranker as it was.
        readout: ``pooled`` or ``mean_sigmoid``, see
            :class:`~backpack_rank.models.configuration.BackpackConfig`.

    Raises:
        ValueError: the ranker is no Backpack, or its head is not linear.
    """
    if not isinstance(ranker, BackpackForRanking):
        raise ValueError(f"readout={readout} is for Backpacks, and this ranker is a {ranker.label}")
    check_readout(ranker.config, readout)
    ranker.config.readout = readout
    return make_pair_tokenizer(pair_tokenizer.tokenizer, ranker, pair_tokenizer.max_length)


def save_ranker(folder: str | Path, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
    """Save a ranker with its tokenizer in a folder that :func:`load_ranker` reads.

    ``from_pretrained`` and ``CrossEncoder`` of sentence-transformers read it too. The folder is
    complete or absent; a previous one stays until the new one is complete.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        ranker.config.max_pair_length = pair_tokenizer.max_length
        ranker.config.pair_token_ids = _pair_token_ids(pair_tokenizer)
        ranker.save_pretrained(temporary)
        save_cross_encoder_files(temporary, ranker, pair_tokenizer)
        write_checksums(temporary, pair_tokenizer.tokenizer)


def ranker_folder(folder: str | Path, option: str) -> Path:
    """The folder of a saved ranker: the one given, or ``ranker`` in the folder of a run.

    Args:
        folder: of a run or of a ranker.
        option: where it was given, for the error.

    Raises:
        FileNotFoundError: it is neither.
    """
    if not str(folder).strip():
        # Path("") would be the current folder.
        raise FileNotFoundError(
            f"{option}='' names no ranker: give the folder of a run or of a ranker, or a hub id"
        )
    given = Path(folder).expanduser()
    for candidate in (given / RANKER, given):
        if (candidate / "config.json").is_file() or is_lora(candidate):
            return candidate
        if (candidate / MODULES).is_file():
            return candidate
    if given.is_file():
        raise FileNotFoundError(f"{option}={folder} is a file: give the folder that it is in")
    there = "there is no such folder"
    runs = sorted(given.glob(f"*/{RANKER}/config.json"))
    if runs:
        there = f"it holds runs: give one of them, such as {option}={runs[-1].parents[1]}"
    elif given.is_dir():
        there = f"it has {what_is_there(given)}: save the model with save_pretrained of its library"
    raise FileNotFoundError(
        f"{option}={folder}: neither a run's folder nor a saved ranker (no config.json); {there}"
    )


def find_ranker(checkpoint: str | None, output: str) -> Path:
    """The folder of a saved ranker: the given one, or that of the last trained pointwise ranker.

    The given one may be the folder of a run or of a ranker.

    Raises:
        FileNotFoundError: there is none.
    """
    if checkpoint is not None:
        return ranker_folder(checkpoint, "checkpoint")
    trained = Path(output, "train")
    saved = [path.parent for path in trained.glob(f"**/{RANKER}/config.json")]
    pointwise = [folder for folder in saved if folder_kind(folder) is None]
    if pointwise:
        return last_trained(pointwise, output)
    if saved and (kind := folder_kind(saved[0])) is not None:
        raise FileNotFoundError(
            f"all rankers below {trained} are {kind.name}: add {kind.advice}, or train another one"
        )
    raise FileNotFoundError(
        f"no trained ranker below {trained}: run `{called('train')}` first, "
        "or give checkpoint=FOLDER, or measure a run with run=FILE"
    )


def last_trained(rankers: Sequence[Path], output: str | Path) -> Path:
    """The ranker that was finished last: the one that ``latest/train`` leads to, or the newest."""
    newest_first = sorted(rankers, key=lambda folder: folder.stat().st_mtime, reverse=True)
    # The link comes first: times do not say what was last where the clock was moved, or the folders
    # were copied.
    latest = Path(output, LATEST, "train").resolve()
    for folder in newest_first:
        if latest in folder.resolve().parents:
            return folder
    return newest_first[0]


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
    network = ranker.backpack if isinstance(ranker, BackpackForRanking) else ranker
    if isinstance(network, BackboneMixin):
        # Asked now, while weights are in fp32: in half precision, rounding could pass for a
        # difference.
        network.reads_one_by_one()
    tokenizer = load_tokenizer(folder)
    max_length = config.get("max_pair_length", ranker.config.n_positions)
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, max_length)
    token_ids = _pair_token_ids(pair_tokenizer)
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


def _gpt2_options(
    tokenizer: PreTrainedTokenizerBase,
    layers: int,
    hidden_size: int,
    heads: int,
    positions: int,
    dropout: float,
    initializer_range: float,
) -> dict:
    if heads < 1 or hidden_size % heads:
        raise ValueError(f"heads={heads} must divide hidden_size={hidden_size}")
    return {
        "vocab_size": len(tokenizer),
        "n_positions": positions,
        "n_embd": hidden_size,
        "n_layer": layers,
        "n_head": heads,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        # Dropout of attention weights would rule out torch's fast kernels.
        "attn_pdrop": 0.0,
        "initializer_range": initializer_range,
        "scale_attn_by_inverse_layer_idx": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _backbone(
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    dropout: float,
    pooling: str | None,
    attention: str | None,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The pretrained backbone in fp32, and the options of a configuration over it."""
    backbone_config = from_pretrained(AutoConfig, name)
    for option in _ATTENTION_DROPOUT:
        # Dropout of attention weights would rule out torch's fast kernels.
        if hasattr(backbone_config, option):
            setattr(backbone_config, option, 0.0)
    options = {
        "backbone_config": backbone_config,
        "pooling": pooling,
        "attention": attention,
        "dropout": dropout,
        "separator_id": tokenizer.sep_token_id,
    }
    _check_vocabulary(tokenizer, backbone_config.get_text_config().vocab_size, name)
    # A configuration chooses the pooled token where none is given.
    pooled_token = CrossEncoderConfig(**options).pooling
    if pooled_token == "first" and tokenizer.cls_token_id is None:
        raise ValueError(
            f"the tokenizer of {name} has no first token ([CLS]) that an encoder could be read at"
        )
    backbone = from_pretrained(AutoModel, name, config=backbone_config, dtype=torch.float32)
    # Weights are fp32 now, whatever the file's format was.
    backbone_config.dtype = None
    return backbone, options


def _similarity(
    backbone: PreTrainedModel,
    scale: float | None,
    pooling: str,
    layers_apart: int | None,
) -> dict[str, Any] | None:
    """What a configuration says of a similarity; None without."""
    if scale is None:
        return None
    if layers_apart is None:
        layers_apart = backbone.config.num_hidden_layers * 2 // 3
    return {"scale": scale, "pooling": pooling, "apart": layers_apart}


def split_attribute(ranker: Ranker, pair_tokenizer: PairTokenizer, attribute: Attribute) -> None:
    """Give a loaded Backpack senses of an attribute that it was not trained with.

    Other rankers stay unchanged. No score changes at alpha = 1. Contextual weights still tell the
    words of a class apart, so alpha = 0 leaves more bias than with a ranker that was trained with
    attribute senses.
    """
    if not isinstance(ranker, BackpackForRanking):
        return
    if attribute.name in {name for name, _ in ranker.config.groups}:
        return
    earlier = ranker.backpack.attribute_senses
    try:
        _check_separated(ranker)
        add_attribute_senses(
            ranker.backpack,
            pair_tokenizer.tokenizer,
            attribute,
            where="documents" if earlier is None else earlier.where,
            queries=QUERIES[0] if earlier is None else earlier.queries,
            read_as_one=False,
            separator_id=pair_tokenizer.separator_id,
        )
    except ValueError as error:
        log.warning(
            "the ranker gets no senses of %s, and policies act on the senses that it has: %s",
            attribute.name,
            error,
        )


def _check_separated(ranker: BackpackForRanking) -> None:
    if ranker.config.input_form != "separated":
        raise ValueError(
            f"with input_form={ranker.config.input_form} nothing stands between query and "
            "document, and attribute senses have to know where a document begins"
        )


def _add_attribute_senses(
    ranker: BackpackForRanking,
    tokenizer: PreTrainedTokenizerBase,
    names: str | Sequence[str] | None,
    where: str,
    queries: str,
) -> None:
    """Both steps of attribute senses, for a ranker that will be trained."""
    if isinstance(names, str):
        names = [names]
    # Those that a pretrained ranker came with stay.
    attributes_of_ranker = {attribute for attribute, _ in ranker.config.groups}
    for name in names or ():
        attribute = Attribute.named(name)
        if attribute.name not in attributes_of_ranker:
            _check_separated(ranker)
            add_attribute_senses(
                ranker.backpack,
                tokenizer,
                attribute,
                where=where,
                queries=queries,
                separator_id=PairTokenizer(tokenizer, 0).separator_id,
            )


def _take_weights(network: BackboneMixin, pretrained: PreTrainedModel) -> None:
    weights = pretrained.state_dict()
    # Backbones of rankers have no pooler.
    weights = {key: value for key, value in weights.items() if not key.startswith("pooler.")}
    network.backbone.load_state_dict(weights)
    if network.joint is not None:
        network.joint.take_weights(network.backbone)
    # Asked now, so that a backbone that cannot be read is refused before it is trained.
    network.reads_one_by_one()


def _pair_token_ids(pair_tokenizer: PairTokenizer) -> list[int | None]:
    """Tokens before, between and behind two texts."""
    return [pair_tokenizer.start_id, pair_tokenizer.separator_id, pair_tokenizer.end_id]


def _start_id(tokenizer: PreTrainedTokenizerBase, ranker: Ranker) -> int | None:
    """The token before the query: [CLS] of encoders; of decoders their tokenizer's, if any."""
    if getattr(ranker.config, "pooling", "last") == "first":
        return tokenizer.cls_token_id
    start = tokenizer.bos_token_id
    if isinstance(ranker, GPT2ForRanking) or start is None:
        return None
    return start if list(tokenizer("a")["input_ids"][:1]) == [start] else None


def _check_vocabulary(tokenizer: PreTrainedTokenizerBase, size: int, name: str) -> None:
    """Embedding tables may have some rows of padding; many more are of another model."""
    if len(tokenizer) > size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but {name} has embeddings for {size}"
        )
    if len(tokenizer) < 0.9 * size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but {name} has embeddings for {size}: "
            "give the tokenizer that belongs to these weights (model.tokenizer.name)"
        )
