"""Reading texts with any backbone of transformers: hidden states of a packed row, and where a text is pooled.

Backbones whose attention knows packed rows (:mod:`backpack_rank.models.attention`) read them as they are; all others
read a padded batch with their own attention, and the padding is dropped from what they give. Some of these do not keep
padding out (FNet mixes all positions, ConvBERT's convolutions run over it): they are found out, and read text by text.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.models.attention import BACKEND, packed_hidden, packed_trunk, use_fast_gelu
from backpack_rank.models.configuration import BackboneConfig
from backpack_rank.models.pooled_layer import pool_last_layer
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings
from backpack_rank.models.utils import eval_mode, input_embeddings

log = logging.getLogger(__name__)
if TYPE_CHECKING:
    Mixin = PreTrainedModel
else:
    Mixin = object  # what is mixed in stands before the model class and overrides none of its attributes

# Tested against the library's own padded hidden states; positions come from position_ids, attention from the interface.
PACKED_TYPES = ("bert", "electra", "distilbert", "albert", "gpt2", "llama", "qwen2", "qwen3")


class BackboneMixin(Mixin):
    """A model with a ``backbone`` that reads texts."""

    config: Any
    backbone: PreTrainedModel

    def get_input_embeddings(self) -> nn.Embedding:
        """The backbone's word embeddings."""
        return self.backbone.get_input_embeddings()  # type: ignore[return-value]

    def hidden_states(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """The backbone's last hidden states. [T, d]

        Args:
            batch: the texts.
            token_shift: what it reads in place of the embeddings of some tokens.

        Raises:
            ValueError: a text is longer than the backbone's positions.
        """
        return self._read(batch, token_shift, {})

    def pooled_states(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """The last hidden states at the tokens that texts are read at; arguments of :meth:`hidden_states`. [B, d]

        In inference the last layer is computed there alone, where the backbone can do so.
        """
        rows = self.pooled_positions(batch)
        if self._last_layer_pools and not self.training:
            return self._read(batch, token_shift, {"rows": rows})
        return self.hidden_states(batch, token_shift)[rows]

    @cached_property
    def _last_layer_pools(self) -> bool:
        return supports_packing(self.config) and pool_last_layer(self.backbone)

    def _read(self, batch: PackedBatch, token_shift: TokenShift | None, options: dict[str, Any]) -> Tensor:
        config: BackboneConfig = self.config
        if batch.max_length > config.n_positions:
            raise ValueError(
                f"a text of {batch.max_length} tokens is longer than the backbone's {config.n_positions} positions; "
                "lower max_length"
            )
        types = None
        if getattr(config.text_config, "type_vocab_size", 0) > 1 and config.separator_id is not None:
            types = behind_separator(batch, config.separator_id).long()
        with shifted_embeddings(self.get_input_embeddings(), token_shift):
            if not supports_packing(config):
                return self._padded(batch, types)
            if types is None and config.reads_left_to_right:
                return packed_trunk(self.backbone, batch)
            if types is not None:
                options["token_type_ids"] = types[None]
            if config.pooling == "last":
                options["use_cache"] = False
            return packed_hidden(self.backbone, batch, **options)

    def pooled_positions(self, batch: PackedBatch) -> Tensor:
        """Row index of the token that each text is read at: the first of encoders, the last of decoders. [B]"""
        return batch.offsets[:-1].long() if self.config.pooling == "first" else batch.last_positions

    def reads_one_by_one(self) -> bool:
        """Whether texts are read without others beside them; found out once, by reading two.

        Raises:
            ValueError: the backbone cannot be read from token ids alone.
        """
        if self._one_by_one is None:
            self._one_by_one = not supports_packing(self.config) and self._needs_texts_alone()
        return self._one_by_one

    _one_by_one: bool | None = None

    def _needs_texts_alone(self) -> bool:
        name, vocabulary = self.config.backbone_config.model_type, self.config.vocab_size
        count, padding = min(vocabulary, self.config.n_positions, 24), self.config.padding_id
        ids = [token for token in range(count) if token != padding]
        try:
            found = depends_on_others(
                lambda batch: self._together(batch, None), self.backbone, ids[: len(ids) // 3], ids
            )
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"a backbone of type {name!r} does not read texts of any length from their token ids alone "
                f"({type(error).__name__}: {error}); give another model"
            ) from error
        if found:
            log.warning(
                "what a backbone of type %r makes of a text depends on longer texts beside it, so texts are read one "
                "by one, which is slow",
                name,
            )
        return found

    def _padded(self, batch: PackedBatch, types: Tensor | None) -> Tensor:
        if not self.reads_one_by_one() or len(batch) == 1:
            return self._together(batch, types)
        parts = [None] * len(batch) if types is None else types.split(batch.lengths)
        return torch.cat([self._together(*one) for one in zip(batch.texts(), parts, strict=True)])

    def _together(self, batch: PackedBatch, types: Tensor | None) -> Tensor:
        mask = batch.padding_mask()
        options: dict[str, Any] = {} if types is None else {"token_type_ids": batch.pad(types)}
        if self.config.pooling == "last" and _takes(self.backbone, "use_cache"):
            options["use_cache"] = False
        ids = batch.pad(batch.input_ids).masked_fill(~mask, self.config.padding_id)
        output = self.backbone(input_ids=ids, attention_mask=mask.long(), **options)
        return output.last_hidden_state[mask]


def new_backbone(config: BackboneConfig) -> PreTrainedModel:
    """The backbone of a configuration, without weights of its own yet.

    Raises:
        ValueError: it is an encoder-decoder, or has no word embeddings that the senses could start from.
    """
    own = config.backbone_config
    if own.is_encoder_decoder:
        raise ValueError(
            f"backbones of type {own.model_type!r} have an encoder and a decoder; give a model with one of both"
        )
    if config.attention is not None:
        own._attn_implementation = config.attention
    backbone = AutoModel.from_config(own, trust_remote_code=False)
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None  # of no use here
    check_embeddings(backbone, own.model_type)
    if supports_packing(config):
        backbone.set_attn_implementation(BACKEND)
    if own.model_type == "gpt2":
        use_fast_gelu(backbone)
    return backbone


def check_embeddings(backbone: nn.Module, name: str) -> nn.Embedding:
    """The word embeddings of a backbone. Raises ``ValueError`` when they cannot be reached."""
    found = input_embeddings(backbone)
    if not isinstance(found, nn.Embedding):
        what = "none" if found is None else type(found).__name__
        raise ValueError(
            f"a backbone of type {name!r} gives no word embeddings (get_input_embeddings() gives {what}); "
            "senses start from them, so a text model with a table of word embeddings is needed"
        )
    return found


@torch.no_grad()
def depends_on_others(
    read: Callable[[PackedBatch], Tensor], model: nn.Module, short: Sequence[int], long: Sequence[int]
) -> bool:
    """Whether a model makes something else of a text, beyond rounding, beside a longer one.

    Args:
        read: what the model makes of a batch, of the first text first.
        model: switched to inference meanwhile.
        short, long: token ids of two texts of different lengths.
    """
    device = next(model.parameters()).device
    with eval_mode(model), torch.autocast(device.type, enabled=False):
        alone = read(PackedBatch.from_sequences([short]).to(device))
        beside = read(PackedBatch.from_sequences([short, long]).to(device))[: len(alone)]
    rounding = max(1e-4, 16 * torch.finfo(alone.dtype).eps)
    return bool((alone - beside).abs().max() > rounding * alone.abs().max())


def supports_packing(config: BackboneConfig) -> bool:
    """Whether the backbone reads texts without padding."""
    own = config.text_config
    if config.attention is not None or own.model_type not in PACKED_TYPES:
        return False
    # Attention to a window of tokens is not what packed attention computes.
    return "sliding_attention" not in (getattr(own, "layer_types", None) or ())


def _takes(model: nn.Module, option: str) -> bool:
    return option in inspect.signature(model.forward).parameters
