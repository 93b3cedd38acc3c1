"""Reading texts with any backbone of transformers: their hidden states, and where a text is pooled.

Texts come as a packed row of T tokens. A backbone reads it in one of three ways:

1. as a packed row, where its attention knows them (:mod:`backpack_rank.models.attention`);
2. as a padded batch with its own attention, and the padding is dropped from what it gives;
3. text by text, where padding changes its states (FNet mixes all positions, ConvBERT's convolutions
   run over it). This is tried with two texts, once for each backbone.
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
from typing_extensions import Self

from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.models.attention import BACKEND, packed_hidden, packed_trunk, use_fast_gelu
from backpack_rank.models.configuration import BackboneConfig
from backpack_rank.models.pooled_layer import pool_last_layer
from backpack_rank.models.similarity import JointLayers, JointReading
from backpack_rank.models.token_shift import TokenShift, shifted_embeddings
from backpack_rank.models.utils import eval_mode, input_embeddings

log = logging.getLogger(__name__)
if TYPE_CHECKING:
    Mixin = PreTrainedModel
else:
    # At run time it stands before the model class and must override none of its attributes.
    Mixin = object

# Each was tested against the library's own states of a padded batch. They take positions from
# position_ids and attention from transformers' interface.
PACKED_TYPES = ("bert", "electra", "distilbert", "albert", "gpt2", "llama", "qwen2", "qwen3")


class BackboneMixin(Mixin):
    """A model with a ``backbone`` that reads texts."""

    config: Any
    backbone: PreTrainedModel
    joint: JointLayers | None

    def get_input_embeddings(self) -> nn.Embedding:
        """The backbone's word embeddings."""
        return self.backbone.get_input_embeddings()  # type: ignore[return-value]

    def hidden_states(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """The backbone's last hidden states. [T, d]

        Args:
            batch: the texts.
            token_shift: moves the embeddings of some tokens; None: none.

        Raises:
            ValueError: a text is longer than the backbone's positions.
        """
        return self._read(batch, token_shift, {})

    def pooled_states(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """The last hidden states at the pooled tokens; arguments of :meth:`hidden_states`. [B, d]

        In inference the last layer is computed there alone, where the backbone can do so.
        """
        rows = self.pooled_positions(batch)
        if self._last_layer_pools and not self.training:
            return self._read(batch, token_shift, {"rows": rows})
        return self.hidden_states(batch, token_shift)[rows]

    def pooled_and_below(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """The last hidden states at the pooled tokens [B, d], and what the last layer reads [T, d].

        The last layer is computed at the pooled tokens alone. A norm at the end of the backbone is
        applied to both. The backbone must be one that
        :func:`~backpack_rank.models.pooled_layer.pool_last_layer` takes.
        """
        rows = self.pooled_positions(batch)
        if supports_packing(self.config):
            both = self._read(batch, token_shift, {"rows": rows, "keep_input": True})
            pooled, below = both.split([len(batch), len(batch.input_ids)])
            return pooled, below
        mask = batch.padding_mask()
        places = batch.position_ids[rows].long()
        options = {"rows": places, "is_token": mask, "keep_input": True}
        both = self._read(batch, token_shift, options)  # [B, 1 + n, d]
        return both[:, 0], both[:, 1:][mask]

    def last_and_below(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`pooled_and_below`, with the last hidden states at all tokens. Two of [T, d]"""
        both = self._read(batch, token_shift, {"keep_input": True})
        if supports_packing(self.config):
            last, below = both.chunk(2)
            return last, below
        mask = batch.padding_mask()
        last, below = both.chunk(2, dim=1)  # two of [B, n, d]
        return last[mask], below[mask]

    def new_joint_layers(self) -> JointLayers | None:
        """The layers of a similarity, where the configuration has one; the encoder is then frozen.

        Raises ``ValueError`` where the backbone cannot have them.
        """
        if self.config.similarity is None:
            return None
        if not supports_packing(self.config):
            raise ValueError(
                "similarity needs an encoder that reads texts without padding: leave "
                "model.ranker.attention out"
            )
        self.backbone.requires_grad_(False)
        return JointLayers(self.backbone, self.config.similarity)

    def train(self, mode: bool = True) -> Self:
        """As of every module; an encoder whose similarity is a part of the score stays itself."""
        super().train(mode)
        if self.joint is not None:
            self.backbone.eval()
            # Transformers makes new parameters when it loads a folder, all of them to be trained.
            # It calls eval(), and so this, behind that.
            self.backbone.requires_grad_(False)
        return self

    def read_jointly(
        self,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        others: PackedBatch | None = None,
    ) -> JointReading:
        """What the joint layers read of B rows; arguments of :meth:`hidden_states`.

        ``others`` are rows of which the similarity alone is wanted.
        """
        assert self.joint is not None
        separator_id = self.config.separator_id
        with shifted_embeddings(self.get_input_embeddings(), token_shift):
            return self.joint.read(self.backbone, batch, separator_id, others)

    def similarity_parts(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """What each token adds to the similarity; arguments of :meth:`hidden_states`. [T]"""
        assert self.joint is not None
        with shifted_embeddings(self.get_input_embeddings(), token_shift):
            return self.joint.token_parts(self.backbone, batch, self.config.separator_id)

    @cached_property
    def _last_layer_pools(self) -> bool:
        return supports_packing(self.config) and pool_last_layer(self.backbone)

    def _read(
        self, batch: PackedBatch, token_shift: TokenShift | None, options: dict[str, Any]
    ) -> Tensor:
        """Hidden states of all tokens [T, d].

        ``options`` are those of :mod:`backpack_rank.models.pooled_layer`. With them states are as
        the last layer gives them, of a packed row [T', d] or of padded rows [B, n', d].
        """
        config: BackboneConfig = self.config
        if batch.max_length > config.n_positions:
            raise ValueError(
                f"a text of {batch.max_length} tokens is longer than the backbone's "
                f"{config.n_positions} positions; lower max_length"
            )
        types = None  # token types
        has_types = getattr(config.text_config, "type_vocab_size", 0) > 1
        if has_types and config.separator_id is not None:
            types = behind_separator(batch, config.separator_id).long()
        with shifted_embeddings(self.get_input_embeddings(), token_shift):
            if not supports_packing(config):
                if options:
                    return self._padded_states(batch, types, options)
                return self._read_alone_or_padded(batch, types)
            if types is None and config.reads_left_to_right:
                # Beginnings that texts have in common are read once, which takes no token types.
                return packed_trunk(self.backbone, batch)
            if types is not None:
                options["token_type_ids"] = types[None]
            if config.pooling == "last":
                options["use_cache"] = False
            return packed_hidden(self.backbone, batch, **options)

    def pooled_positions(self, batch: PackedBatch) -> Tensor:
        """Row of each text's pooled token, the first of encoders, the last of decoders. [B]"""
        if self.config.pooling == "first":
            return batch.offsets[:-1].long()
        return batch.last_positions

    def reads_one_by_one(self) -> bool:
        """Whether each text is read alone; the first call reads two texts to know.

        Raises:
            ValueError: the backbone cannot be read from token ids alone.
        """
        if self._one_by_one is None:
            self._one_by_one = not supports_packing(self.config) and self._needs_texts_alone()
        return self._one_by_one

    _one_by_one: bool | None = None

    def _needs_texts_alone(self) -> bool:
        name = self.config.backbone_config.model_type
        # Any tokens will do, as long as one text is longer than the other.
        count = min(self.config.vocab_size, self.config.n_positions, 24)
        long = [token for token in range(count) if token != self.config.padding_id]
        short = long[: len(long) // 3]

        def read(batch: PackedBatch) -> Tensor:
            return self._read_padded(batch, None)

        try:
            padding_matters = depends_on_others(read, self.backbone, short, long)
        # Foreign code, in which an unexpected input ends in any of these.
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"a backbone of type {name!r} does not read texts of any length from their token "
                f"ids alone ({type(error).__name__}: {error}); give another model"
            ) from error
        if padding_matters:
            log.warning(
                "what a backbone of type %r makes of a text depends on longer texts beside it, so "
                "texts are read one by one, which is slow",
                name,
            )
        return padding_matters

    def _read_alone_or_padded(self, batch: PackedBatch, types: Tensor | None) -> Tensor:
        """Ways 2 and 3 of the module's docstring. [T, d]"""
        if not self.reads_one_by_one() or len(batch) == 1:
            return self._read_padded(batch, types)
        types_of_texts: Sequence[Tensor | None] = [None] * len(batch)
        if types is not None:
            types_of_texts = types.split(batch.lengths)
        states = []
        for text, types_of_text in zip(batch.texts(), types_of_texts, strict=True):
            states.append(self._read_padded(text, types_of_text))
        return torch.cat(states)

    def _read_padded(self, batch: PackedBatch, types: Tensor | None) -> Tensor:
        return self._padded_states(batch, types, {})[batch.padding_mask()]

    def _padded_states(
        self, batch: PackedBatch, types: Tensor | None, options: dict[str, Any]
    ) -> Tensor:
        """What the backbone gives of padded rows. [B, n, d]"""
        mask = batch.padding_mask()
        options = dict(options)
        if types is not None:
            options["token_type_ids"] = batch.pad(types)
        # Caches of keys are for generating texts. Some decoders have none that could be left out.
        takes_cache = "use_cache" in inspect.signature(self.backbone.forward).parameters
        if self.config.pooling == "last" and takes_cache:
            options["use_cache"] = False
        ids = batch.pad(batch.input_ids).masked_fill(~mask, self.config.padding_id)
        output = self.backbone(input_ids=ids, attention_mask=mask.long(), **options)
        return output.last_hidden_state


def new_backbone(config: BackboneConfig) -> PreTrainedModel:
    """The backbone of a configuration, without weights of its own yet.

    Raises:
        ValueError: it is an encoder-decoder, or has no word embeddings that the senses could start
            from.
    """
    backbone_config = config.backbone_config
    name = backbone_config.model_type
    if backbone_config.is_encoder_decoder:
        raise ValueError(
            f"backbones of type {name!r} have an encoder and a decoder; give a model with one of "
            "both"
        )
    if config.attention is not None:
        backbone_config._attn_implementation = config.attention
    backbone = AutoModel.from_config(backbone_config, trust_remote_code=False)
    # BERT's layer for predicting the next sentence. Nothing reads it here, so nothing trains it.
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None
    check_embeddings(backbone, name)
    if supports_packing(config):
        backbone.set_attn_implementation(BACKEND)
    if name == "gpt2":
        use_fast_gelu(backbone)
    return backbone


def check_embeddings(backbone: nn.Module, name: str) -> nn.Embedding:
    """The word embeddings of a backbone. Raises ``ValueError`` when they cannot be reached."""
    embeddings = input_embeddings(backbone)
    if not isinstance(embeddings, nn.Embedding):
        given = "none" if embeddings is None else type(embeddings).__name__
        raise ValueError(
            f"a backbone of type {name!r} gives no word embeddings (get_input_embeddings() gives "
            f"{given}); senses start from them, so a text model with a table of word embeddings is "
            "needed"
        )
    return embeddings


@torch.no_grad()
def depends_on_others(
    read: Callable[[PackedBatch], Tensor],
    model: nn.Module,
    short: Sequence[int],
    long: Sequence[int],
) -> bool:
    """Whether a model gives a text other values, beyond rounding, beside a longer text.

    Args:
        read: the model's values of a batch, those of the first text first.
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
    text_config = config.text_config
    if config.attention is not None or text_config.model_type not in PACKED_TYPES:
        return False
    # Packed attention looks at all tokens of a text, not at a window of them.
    return "sliding_attention" not in (getattr(text_config, "layer_types", None) or ())
