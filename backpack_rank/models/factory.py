"""New rankers, of a given size or from published weights; attribute senses for one without."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from transformers import AutoConfig, AutoModel, GPT2Config, PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
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
from backpack_rank.data.pretrained import from_pretrained
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.attribute_senses import WHERE, add_attribute_senses
from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking, SenseRanker
from backpack_rank.models.configuration import (
    ENCODER_SENSES,
    INPUT_FORMS,
    SENSE_KEYS,
    SENSES,
    BackpackConfig,
    BackpackEncoderConfig,
    CrossEncoderConfig,
    DualEncoderConfig,
)
from backpack_rank.models.dual_encoder import DualEncoderForRanking
from backpack_rank.models.pooled_layer import default_sense_keys
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    GPT2ForRanking,
    Ranker,
)
from backpack_rank.models.ranking_heads import HEADS, RankingHead
from backpack_rank.models.similarity import POOLINGS
from backpack_rank.models.utils import DTYPES, backbone_dtype, cast_parameters

log = logging.getLogger(__name__)
AttributeNames = PathText | Sequence[PathText]
Where = Annotated[str, OneOf(WHERE)]
Queries = Annotated[str, OneOf(QUERIES)]
Head = Annotated[str, OneOf(HEADS)]
InputForm = Annotated[str, OneOf(INPUT_FORMS)]
SenseKeys = Annotated[str, OneOf(SENSE_KEYS)]
Similarity = Positive | Annotated[None, Note("for a score without it")]
TokenSimilarity = Positive | Annotated[None, Note("for a score without it")]
SimilarityPooling = Annotated[str, OneOf(POOLINGS)]
LayersApart = CountOrZero | Annotated[None, Note("for all but the last one")]
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
    token_similarity: TokenSimilarity = None,
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
            other; None: all but the last one.
        token_similarity: with a similarity, factor of the cosines of single tokens: the mean over
            tokens of the query of the best one in the document
            (:mod:`backpack_rank.models.token_similarity`); None: without.
        attribute_senses, attribute_senses_where, attribute_senses_queries, head, input_form: as of
            :func:`new_backpack`.

    Raises:
        ValueError: the tokenizer and the backbone's vocabulary do not fit, the backbone has no word
            embeddings, has an encoder and a decoder, cannot be read from token ids alone, cannot
            give ``keys=below_last``, or ``senses`` does not divide its hidden size.
    """
    backbone_dtype(dtype)
    if similarity is not None and keys == "last":
        raise ValueError(
            "keys=last: with a similarity, keys are read below the last layer that reads query "
            "and document together; leave model.ranker.keys out, or model.ranker.similarity"
        )
    backbone, options = _backbone(tokenizer, name, dropout, pooling, attention)
    config = BackpackConfig(
        num_senses=senses,
        sense_intermediate_scale=sense_intermediate_scale,
        sense_keys=keys or default_sense_keys(backbone),
        head=head,
        input_form=input_form,
        similarity=_similarity(
            backbone, similarity, similarity_pooling, layers_apart, token_similarity
        ),
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


def backpack_encoder(
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: PathText,
    senses: Layers = ENCODER_SENSES,
    sense_intermediate_scale: Layers = 2,
    encoder_pooling: SimilarityPooling = "mean",
    attention: Name | None = None,
    attribute_senses: PathText | None = "gender",
) -> BackpackEncoderForRanking:
    """Put the dial inside a pretrained encoder of texts, whose vectors senses learn to give.

    ::

        ranker = backpack_encoder(tokenizer, name="sentence-transformers/all-MiniLM-L6-v2")

    It is in training mode, and the encoder stays as it is.

    Args:
        senses: k, any number.
        encoder_pooling: how the encoder makes a vector of a text, ``mean`` or ``first``.
        attribute_senses: the attribute that alpha is about, an entry of ``conf/attribute`` or a
            YAML file; None: there is no dial.
        name, sense_intermediate_scale, attention: as of :func:`backpack_on_backbone`.

    Raises:
        ValueError: as :func:`backpack_on_backbone`.
    """
    backbone, options = _backbone(tokenizer, name, 0.0, None, attention)
    options["separator_id"] = PairTokenizer(tokenizer, 0).separator_id
    config = BackpackEncoderConfig(
        num_senses=senses,
        sense_intermediate_scale=sense_intermediate_scale,
        encoder_pooling=encoder_pooling,
        **options,
    )
    ranker = BackpackEncoderForRanking(config)
    _take_weights(ranker.backpack, backbone)
    # A document is read alone: no separator stands before it, and no query beside it.
    _add_attribute_senses(ranker, tokenizer, attribute_senses, where="all", queries="all")
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
    token_similarity: TokenSimilarity = None,
) -> CrossEncoderForRanking:
    """Train a plain cross-encoder, a head on any pretrained encoder or decoder.

    It is in training mode. Arguments and errors as of :func:`backpack_on_backbone`.
    """
    backbone_dtype(dtype)
    backbone, options = _backbone(tokenizer, name, dropout, pooling, attention)
    options["similarity"] = _similarity(
        backbone, similarity, similarity_pooling, layers_apart, token_similarity
    )
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
    token_similarity: float | None,
) -> dict[str, Any] | None:
    """What a configuration says of a similarity; None without."""
    if scale is None:
        if token_similarity is not None:
            raise ValueError(
                f"token_similarity={token_similarity:g} is a part of the similarity: give "
                "model.ranker.similarity too, or leave token_similarity out "
                "(model.ranker.token_similarity=null)"
            )
        return None
    if layers_apart is None:
        # More layers together ranked no better, and cost more: docs/results.md.
        layers_apart = backbone.config.num_hidden_layers - 1
    options: dict[str, Any] = {"scale": scale, "pooling": pooling, "apart": layers_apart}
    if token_similarity is not None:
        options["token_similarity"] = token_similarity
    return options


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


def _check_separated(ranker: SenseRanker) -> None:
    if ranker.config.input_form != "separated":
        raise ValueError(
            f"with input_form={ranker.config.input_form} nothing stands between query and "
            "document, and attribute senses have to know where a document begins"
        )


def _add_attribute_senses(
    ranker: SenseRanker,
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
