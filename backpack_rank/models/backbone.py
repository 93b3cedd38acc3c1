"""A Backpack over any encoder of transformers: the encoder weighs, a network of senses on its word embeddings speaks.

The contextual weights are those of the first token ([CLS]) over all tokens of the text; everything behind them is the
Backpack of :mod:`backpack_rank.models.backpack`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.attention import BACKEND, packed_hidden
from backpack_rank.models.backpack import SenseMixing, SenseNetwork, SenseWeightNetwork, TokenMarks, TokenVectors
from backpack_rank.models.loading import CheckedLoading
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import RankingHead, SenseRanking, SenseSum


class EncoderBackpackConfig(PreTrainedConfig):
    """The encoder's configuration and what a Backpack adds.

    Attributes:
        backbone_config: of the encoder.
        num_senses: k, sense vectors per token; must divide the hidden size.
        sense_intermediate_scale: width of the sense network's last hidden layer, in units of the hidden size.
        sense_dropout: in the sense network and the ranking head.
        separator_id: token between query and document; what stands behind it has token type 1, as in pretraining.
    """

    model_type = "encoder_backpack"
    sub_configs = {"backbone_config": AutoConfig}

    backbone_config: Any = None
    num_senses: int = 16
    sense_intermediate_scale: int = 4
    sense_dropout: float = 0.1
    separator_id: int | None = None
    initializer_range: float = 0.02
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self, **kwargs) -> None:
        if isinstance(self.backbone_config, dict):
            self.backbone_config = AutoConfig.for_model(**self.backbone_config)
        super().__post_init__(**kwargs)
        if self.backbone_config is not None and (self.num_senses < 1 or self.n_embd % self.num_senses):
            raise ValueError(
                f"num_senses={self.num_senses} must be at least 1 and divide the hidden size {self.n_embd}"
            )

    @property
    def n_embd(self) -> int:
        """Hidden size d of the encoder and of the senses."""
        return self.backbone_config.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.backbone_config.vocab_size

    @property
    def n_positions(self) -> int:
        """Tokens of a text at most."""
        return self.backbone_config.max_position_embeddings

    @property
    def embd_pdrop(self) -> float:
        return self.sense_dropout

    @property
    def resid_pdrop(self) -> float:
        return self.sense_dropout


class _EncoderBackpackPreTrainedModel(CheckedLoading, PreTrainedModel):
    config: EncoderBackpackConfig
    config_class = EncoderBackpackConfig
    base_model_prefix = "backpack"
    _supports_sdpa = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Conv1D):
            init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)
            init.zeros_(module.bias)


class EncoderBackpackModel(SenseMixing, _EncoderBackpackPreTrainedModel):
    """Encoder, sense network and contextual weights; see :class:`SenseMixing`."""

    def __init__(self, config: EncoderBackpackConfig) -> None:
        super().__init__(config)
        self.backbone = AutoModel.from_config(config.backbone_config)
        self.backbone.set_attn_implementation(BACKEND)
        if getattr(self.backbone, "pooler", None) is not None:
            self.backbone.pooler = None  # of no use here
        self.sense_network = SenseNetwork(config)  # type: ignore[arg-type]
        self.token_vectors = TokenVectors()
        self.token_marks = TokenMarks()
        self.sense_weight_net = SenseWeightNetwork(config)  # type: ignore[arg-type]
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.backbone.get_input_embeddings()

    def hidden_states(self, batch: PackedBatch) -> Tensor:
        """The encoder's last hidden states. [T, d]"""
        options = {}
        if getattr(self.config.backbone_config, "type_vocab_size", 0) > 1 and self.config.separator_id is not None:
            options["token_type_ids"] = _token_types(batch, self.config.separator_id)[None]
        return packed_hidden(self.backbone, batch, **options)

    def pooled_positions(self, batch: PackedBatch) -> Tensor:
        """Row index of the first token of each text. [B]"""
        return batch.offsets[:-1].long()


class EncoderBackpackForRanking(SenseRanking, _EncoderBackpackPreTrainedModel):
    """Encoder Backpack with a ranking head on the mix of senses at the first token."""

    backpack: EncoderBackpackModel

    def __init__(self, config: EncoderBackpackConfig) -> None:
        super().__init__(config)
        self.backpack = EncoderBackpackModel(config)
        self.sense_sum = SenseSum()
        self.head = RankingHead(config.n_embd, config.resid_pdrop)
        self.post_init()


@torch.no_grad()
def check_packing(model: EncoderBackpackModel) -> None:
    """Check that the encoder gives a packed text the hidden states that the library gives it alone.

    Encoders with positions that do not start at 0 (RoBERTa), or with attention of their own that knows no packed rows
    (DeBERTa), do not.

    Raises:
        ValueError: it does not.
    """
    name = model.config.backbone_config.model_type
    first, second = [5, 6, 7], [8, 9]
    training = model.training
    model.eval()
    try:
        alone = model.backbone(input_ids=torch.tensor([first]), attention_mask=torch.ones(1, 3)).last_hidden_state[0]
        packed = model.hidden_states(PackedBatch.from_sequences([second, first]))[2:]
        difference = float((alone - packed).abs().max())
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"encoders of type {name!r} cannot read texts without padding: {error}") from error
    finally:
        model.train(training)
    if not difference < 1e-3:
        raise ValueError(
            f"encoders of type {name!r} cannot read texts without padding: hidden states differ by {difference:.2g}; "
            "BERT, MiniLM, DistilBERT and ELECTRA are known to work"
        )


AutoConfig.register(EncoderBackpackConfig.model_type, EncoderBackpackConfig)


def _token_types(batch: PackedBatch, separator_id: int) -> Tensor:
    """0 up to the first separator of a text, 1 behind it. [T]"""
    separators = (batch.input_ids == separator_id).long()
    before = separators.cumsum(0) - separators  # separators in front of each token, of all texts
    start = before[batch.offsets[:-1].long()][batch.text_ids]
    return (before - start > 0).long()
