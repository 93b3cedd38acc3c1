"""Configurations of rankers over a backbone of transformers.

:class:`BackpackConfig` is that of a Backpack, with the published options of a GPT-2 Backpack among
its own; :class:`CrossEncoderConfig` and :class:`DualEncoderConfig` add nothing to a backbone.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from transformers import AutoConfig, GPT2Config, PreTrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from backpack_rank.checks import one_of, whole_number
from backpack_rank.models.ranking_heads import HEADS

POOLING = ("first", "last")
MEAN_SIGMOID = "mean_sigmoid"
READOUTS = ("pooled", MEAN_SIGMOID)
INPUT_FORMS = ("separated", "as_coded")
BELOW_LAST = "below_last"
SENSE_KEYS = ("last", BELOW_LAST)
SENSES = 16
"""Of each token, where nothing else is said: in Python, and in conf/model, which looks it up."""
ENCODER_SENSES = 48
"""The same of a Backpack that gives vectors: with 16, vectors are further from the encoder's."""
# Positions of these encoders start behind the padding index.
_OFFSET_POSITIONS = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "data2vec-text",
    "roberta-prelayernorm",
)
# Their tokens see those behind them, although they are listed among the language models.
_BOTH_WAYS = ("bert-generation", "cpmant", "xlnet")
# Positions of backbones that have no table of them.
_UNLIMITED = 1_000_000


class BackboneConfig(PreTrainedConfig):
    """What every ranker over a backbone needs to know.

    Attributes:
        backbone_config: of the backbone, any configuration that ``AutoModel`` takes.
        pooling: the token that a text is read at: ``first`` ([CLS] of encoders) or ``last``
            (decoders).
        separator_id: token between query and document; what stands behind it has token type 1, as
            in BERT's pretraining. None leaves token types out.
        attention: attention implementation of the backbone, such as ``flash_attention_2``; None
            lets the ranker read texts without padding where the backbone can.
        dropout: in the new parts.
        initializer_range: standard deviation of new weights.
        similarity: options of :class:`~backpack_rank.models.similarity.JointLayers`, whose cosine
            of query and document is a part of the score; None: without.
    """

    sub_configs = {"backbone_config": AutoConfig}

    backbone_config: Any = None
    pooling: str | None = None
    separator_id: int | None = None
    attention: str | None = None
    dropout: float = 0.1
    initializer_range: float = 0.02
    similarity: dict[str, Any] | None = None

    def __post_init__(self, **kwargs) -> None:
        if isinstance(self.backbone_config, dict):
            self.backbone_config = AutoConfig.for_model(**self.backbone_config)
        if self.backbone_config is not None and self.pooling is None:
            self.pooling = pooling_of(self.backbone_config)
        super().__post_init__(**kwargs)
        if self.backbone_config is not None and self.pooling not in POOLING:
            raise ValueError(
                f"pooling={self.pooling!r}: a text is read at its {' or '.join(POOLING)} token"
            )

    @property
    def text_config(self) -> Any:
        """The part of the backbone's configuration that concerns text."""
        return self.backbone_config.get_text_config()

    @property
    def reads_left_to_right(self) -> bool:
        """Whether no token sees those behind it, which a language model needs."""
        if self.pooling != "last":
            return False
        # An encoder can be configured as a decoder.
        if getattr(self.text_config, "is_decoder", False):
            return True
        name = self.text_config.model_type
        if name in _BOTH_WAYS or name in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return False
        return name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    @property
    def hidden_size(self) -> int:
        """Hidden size d of the backbone."""
        return self.text_config.hidden_size

    @property
    def pooled_size(self) -> int:
        """Numbers that the head makes a score of; a similarity is one more than the hidden size."""
        return self.hidden_size + (self.similarity is not None)

    @property
    def vocab_size(self) -> int:
        """Rows of the backbone's word embeddings."""
        return self.text_config.vocab_size

    @property
    def n_positions(self) -> int:
        """Tokens of a text at most."""
        config = self.text_config
        positions = getattr(config, "max_position_embeddings", None)
        if positions is None or positions < 1:  # positions are relative
            return _UNLIMITED
        return positions - self.first_position

    @property
    def first_position(self) -> int:
        """Number of a text's first position: of RoBERTa and its kin, the one behind padding's."""
        config = self.text_config
        if config.model_type not in _OFFSET_POSITIONS:
            return 0
        padding = 1 if config.model_type == "mpnet" else config.pad_token_id  # MPNet's is fixed
        return padding + 1

    @property
    def padding_id(self) -> int:
        """Token that stands at padding; 0 where the backbone names none.

        CodeGen, CPM-Ant and RWKV know no padding.
        """
        padding = getattr(self.text_config, "pad_token_id", None)
        return 0 if padding is None else padding


class BackpackConfig(BackboneConfig):
    """The size of a Backpack (Afzali et al., section 2; Hewitt et al. 2023).

    >>> config = BackpackConfig(n_embd=64, n_layer=2, n_head=4, num_senses=8)
    >>> config.hidden_size, config.num_senses, config.backbone_config.model_type
    (64, 8, 'gpt2')

    Options of a GPT-2 stand beside the Backpack's, as in the published configuration. Any other
    backbone has a configuration of its own, ``backbone_config``.

    Attributes:
        num_senses: k, sense vectors per token; must divide the hidden size.
        sense_intermediate_scale: width of the sense network's last hidden layer, in units of the
            hidden size.
        attribute_senses: sizes of the tables of
            :class:`~backpack_rank.models.attribute_senses.AttributeSenses`, and the attribute and
            group of each of its senses; None without.
        head: ``mlp`` (the paper) or ``linear_sigmoid`` (its code); see
            :mod:`backpack_rank.models.ranking_heads`.
        readout: ``pooled``, the head's score at one token, or ``mean_sigmoid``, the mean of the
            linear head's scores over all tokens.
        sense_keys: hidden states that the keys of the sense weights are made of, those behind the
            backbone's ``last`` layer, or those that it reads, ``below_last``: then the last layer
            is computed at the pooled token alone, as in a cross-encoder.
        input_form: ``separated``, or ``as_coded``; see :mod:`backpack_rank.data.as_coded_input`.
    """

    model_type = "backpack"

    num_senses: int = SENSES
    sense_intermediate_scale: int = 4
    attribute_senses: dict[str, Any] | None = None
    head: str = "mlp"
    readout: str = "pooled"
    input_form: str = "separated"
    sense_keys: str = "last"
    tie_word_embeddings: bool = True
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    signed_weights: ClassVar[bool] = False
    """Whether contextual weights may be negative, and need not sum to 1."""

    def __post_init__(self, **kwargs) -> None:
        # The published configuration names code of its own; it is not run and not passed on.
        kwargs.pop("auto_map", None)
        if self.backbone_config is None:
            kwargs = self._take_gpt2(kwargs)
        super().__post_init__(**kwargs)
        size = self.hidden_size
        has_heads = not self.signed_weights  # softmax weights are attention heads
        if self.num_senses < 1 or (has_heads and size % self.num_senses):
            raise ValueError(
                f"num_senses={self.num_senses} must be at least 1 and divide the hidden size "
                f"{size}, because every sense has its own {size} / num_senses dimensions of the "
                "contextual weights"
            )
        whole_number("sense_intermediate_scale", self.sense_intermediate_scale, 1)
        one_of("head", self.head, HEADS)
        one_of("sense_keys", self.sense_keys, SENSE_KEYS)
        one_of("input_form", self.input_form, INPUT_FORMS)
        check_readout(self, self.readout)
        if self.similarity is not None and (self.head, self.input_form) != ("mlp", "separated"):
            raise ValueError(
                "similarity is for Backpacks with head=mlp and input_form=separated: leave it out "
                "(model.ranker.similarity=null), or these"
            )

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Attribute and group of each attribute sense, in their order behind the k senses."""
        if self.attribute_senses is None:
            return ()
        groups = self.attribute_senses["groups"]
        return tuple((str(attribute), str(group)) for attribute, group in groups)

    @property
    def total_senses(self) -> int:
        """k + G: the senses of the sense network and those of the groups of attributes."""
        return self.num_senses + len(self.groups)

    @property
    def sense_names(self) -> tuple[str, ...]:
        """What each sense is called: its number, or a group such as ``gender: female``."""
        names = [str(number) for number in range(self.num_senses)]
        for attribute, group in self.groups:
            names.append(f"{attribute}: {group}")
        return tuple(names)

    def _take_gpt2(self, options: dict[str, Any]) -> dict[str, Any]:
        """Make a GPT-2 backbone of the options that only a GPT-2 has; gives back the others."""
        # What every configuration of transformers has is the Backpack's, not its backbone's.
        of_every_config = {field.name for field in fields(PreTrainedConfig)}
        of_every_config |= {"architectures", "name_or_path", "_commit_hash"}
        of_gpt2 = {field.name for field in fields(GPT2Config)} | set(GPT2Config.attribute_map)
        gpt2_options: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key, value in options.items():
            if key in of_gpt2 and key not in of_every_config:
                gpt2_options[key] = value
            else:
                others[key] = value
        # Options that both have are given once.
        shared = {
            "initializer_range": self.initializer_range,
            "activation_function": self.activation_function,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
        self.backbone_config = GPT2Config(**{**shared, **gpt2_options})
        self.dropout = gpt2_options.get("resid_pdrop", self.dropout)
        return others


class BackpackEncoderConfig(BackpackConfig):
    """A Backpack that gives vectors of documents, over an encoder that stays as it is.

    Attributes:
        encoder_pooling: how the encoder makes a vector of a text, ``mean`` over its tokens or
            ``first``.
    """

    model_type = "backpack_encoder"

    encoder_pooling: str = "mean"
    signed_weights: ClassVar[bool] = True

    @property
    def pooled_size(self) -> int:
        """Of each sense there is one number: what it adds to the score."""
        return 1


class CrossEncoderConfig(BackboneConfig):
    """A plain cross-encoder: a backbone with a ranking head."""

    model_type = "cross_encoder"


class DualEncoderConfig(BackboneConfig):
    """A backbone that reads query and document apart.

    ``separator_id`` ends the query of a joined row.
    """

    model_type = "dual_encoder"


def check_readout(config: BackpackConfig, readout: str) -> None:
    """Raise ``ValueError`` for a readout that is unknown or does not fit a Backpack's head."""
    one_of("readout", readout, READOUTS)
    if readout == MEAN_SIGMOID and config.head != "linear_sigmoid":
        raise ValueError(
            f"readout={MEAN_SIGMOID} is a mean over a linear head's scores, and this ranker has "
            f"head={config.head}: train one with model.ranker.head=linear_sigmoid"
        )


def pooling_of(config: PreTrainedConfig) -> str:
    """``first`` for encoders, ``last`` for decoders.

    Raises:
        ValueError: the architecture is neither an encoder nor a decoder that transformers knows as
            such.
    """
    name = config.get_text_config().model_type
    if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "first"
    if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "last"
    raise ValueError(
        f"a backbone of type {name!r} is neither a known encoder nor a known decoder; say where "
        "its texts are read: pooling=first or pooling=last"
    )


AutoConfig.register(BackpackConfig.model_type, BackpackConfig)
AutoConfig.register(BackpackEncoderConfig.model_type, BackpackEncoderConfig)
AutoConfig.register(CrossEncoderConfig.model_type, CrossEncoderConfig)
AutoConfig.register(DualEncoderConfig.model_type, DualEncoderConfig)
