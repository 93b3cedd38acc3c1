"""Configurations of rankers over a backbone of transformers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from transformers import AutoConfig, GPT2Config, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from backpack_rank.checks import whole

POOLING = ("first", "last")
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
_UNLIMITED = 1_000_000


class BackboneConfig(PreTrainedConfig):
    """What every ranker over a backbone needs to know.

    Attributes:
        backbone_config: of the backbone, any configuration that ``AutoModel`` takes.
        pooling: the token that a text is read at: ``first`` ([CLS] of encoders) or ``last`` (decoders).
        separator_id: token between query and document; what stands behind it has token type 1, as in BERT's
            pretraining. None leaves token types out.
        attention: attention implementation of the backbone, such as ``flash_attention_2``; None lets the ranker
            read texts without padding where the backbone can.
        dropout: in the new parts.
        initializer_range: standard deviation of new weights.
    """

    sub_configs = {"backbone_config": AutoConfig}

    backbone_config: Any = None
    pooling: str | None = None
    separator_id: int | None = None
    attention: str | None = None
    dropout: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self, **kwargs) -> None:
        if isinstance(self.backbone_config, dict):
            self.backbone_config = AutoConfig.for_model(**self.backbone_config)
        if self.backbone_config is not None and self.pooling is None:
            self.pooling = pooling_of(self.backbone_config)
        super().__post_init__(**kwargs)
        if self.backbone_config is not None and self.pooling not in POOLING:
            raise ValueError(f"pooling={self.pooling!r}: a text is read at its {' or '.join(POOLING)} token")

    @property
    def text_config(self) -> Any:
        """The part of the backbone's configuration that concerns text."""
        return self.backbone_config.get_text_config()

    @property
    def reads_left_to_right(self) -> bool:
        """Whether no token sees those behind it, which a language model needs."""
        own = self.text_config
        listed = own.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and own.model_type not in _BOTH_WAYS
        encoder = own.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        return self.pooling == "last" and ((listed and not encoder) or bool(getattr(own, "is_decoder", False)))

    @property
    def hidden_size(self) -> int:
        """Hidden size d of the backbone."""
        return self.text_config.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.text_config.vocab_size

    @property
    def n_positions(self) -> int:
        """Tokens of a text at most."""
        own = self.text_config
        positions = getattr(own, "max_position_embeddings", None)
        if positions is None or positions < 1:  # positions are relative
            return _UNLIMITED
        if own.model_type in _OFFSET_POSITIONS:
            padding = 1 if own.model_type == "mpnet" else own.pad_token_id  # MPNet's is fixed
            return positions - padding - 1
        return positions

    @property
    def padding_id(self) -> int:
        """Token that stands at padding; 0 where the backbone names none (CodeGen, CPM-Ant and RWKV know no padding)."""
        own = getattr(self.text_config, "pad_token_id", None)
        return 0 if own is None else own


class BackpackConfig(BackboneConfig):
    """A backbone and what a Backpack adds (Afzali et al., section 2; Hewitt et al. 2023).

    Without ``backbone_config`` the options of a GPT-2 are taken, as in the published configuration, where they stand
    beside the Backpack's own.

    Attributes:
        num_senses: k, sense vectors per token; must divide the hidden size.
        sense_intermediate_scale: width of the sense network's last hidden layer, in units of the hidden size.
        attribute_senses: what :mod:`backpack_rank.models.attribute_senses` needs to know of its senses: the sizes of
            its tables, and the group and attribute of each sense; None without.
    """

    model_type = "backpack"

    num_senses: int = 16
    sense_intermediate_scale: int = 4
    attribute_senses: dict[str, Any] | None = None
    tie_word_embeddings: bool = True
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self, **kwargs) -> None:
        # The published configuration names code of its own; it is not run and not passed on.
        kwargs.pop("auto_map", None)
        if self.backbone_config is None:
            kwargs = self._take_gpt2(kwargs)
        super().__post_init__(**kwargs)
        size = self.hidden_size
        if self.num_senses < 1 or size % self.num_senses:
            raise ValueError(
                f"num_senses={self.num_senses} must be at least 1 and divide the hidden size {size}, "
                f"because every sense has its own {size} / num_senses dimensions of the contextual weights"
            )
        whole("sense_intermediate_scale", self.sense_intermediate_scale, 1)

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Attribute and group of each attribute sense, in their order behind the k senses."""
        if self.attribute_senses is None:
            return ()
        return tuple((str(attribute), str(group)) for attribute, group in self.attribute_senses["groups"])

    @property
    def total_senses(self) -> int:
        """k + G: the senses of the sense network and those of the groups of attributes."""
        return self.num_senses + len(self.groups)

    @property
    def sense_names(self) -> tuple[str, ...]:
        """What each sense is called: its number, or the group whose words it sets apart, such as ``gender: female``."""
        numbers = (str(number) for number in range(self.num_senses))
        return (*numbers, *(f"{attribute}: {group}" for attribute, group in self.groups))

    def _take_gpt2(self, options: dict[str, Any]) -> dict[str, Any]:
        """A GPT-2 backbone from options without a place of their own; gives back the others."""
        own = {field.name for field in fields(PreTrainedConfig)} | {"architectures", "name_or_path", "_commit_hash"}
        known = {field.name for field in fields(GPT2Config)} | set(GPT2Config.attribute_map)
        taken = {key: value for key, value in options.items() if key in known and key not in own}
        shared = {
            "initializer_range": self.initializer_range,
            "activation_function": self.activation_function,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
        self.backbone_config = GPT2Config(**{**shared, **taken})
        self.dropout = taken.get("resid_pdrop", self.dropout)
        return {key: value for key, value in options.items() if key not in taken}


class CrossEncoderConfig(BackboneConfig):
    """A plain cross-encoder: a backbone with a ranking head."""

    model_type = "cross_encoder"


class DualEncoderConfig(BackboneConfig):
    """A backbone that reads query and document apart; ``separator_id`` ends the query of a joined row."""

    model_type = "dual_encoder"


def pooling_of(config: PreTrainedConfig) -> str:
    """``first`` for encoders, ``last`` for decoders.

    Raises:
        ValueError: the architecture is neither an encoder nor a decoder that transformers knows as such.
    """
    name = config.get_text_config().model_type
    if name in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False):
        return "first"
    if name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "last"
    raise ValueError(
        f"a backbone of type {name!r} is neither a known encoder nor a known decoder; say where its texts are read: "
        "pooling=first or pooling=last"
    )


AutoConfig.register(BackpackConfig.model_type, BackpackConfig)
AutoConfig.register(CrossEncoderConfig.model_type, CrossEncoderConfig)
AutoConfig.register(DualEncoderConfig.model_type, DualEncoderConfig)
