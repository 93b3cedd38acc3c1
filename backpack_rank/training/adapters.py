"""Adapters: few new weights in a backbone that stays unchanged, through ``peft`` (optional)."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Annotated, Any, Protocol

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from backpack_rank.commands import install
from backpack_rank.constructors import Dropout, Length, Name, Positive, Width, checked
from backpack_rank.models.backpack_encoder import BackpackEncoderForRanking
from backpack_rank.models.rankers import Ranker
from backpack_rank.training.freezing import backbone_of

ALL_LINEAR = "all-linear"


class Adapter(Protocol):
    """Implement it for an entry of ``conf/adapter``; :class:`Lora` is an example."""

    def apply(self, ranker: Ranker) -> None:
        """Put the adapter into the ranker's backbone, in place."""
        ...


class NoAdapter:
    """Trains the weights of the backbone themselves (``adapter=none``)."""

    def apply(self, ranker: Ranker) -> None:
        """Leave the ranker unchanged."""


@checked("adapter")
class Lora:
    """Trains a large backbone: low-rank updates W + scale B A of its matrices.

    LoRA, Hu et al. 2022. Put it into a new ranker, and merge it before saving::

        Lora(rank=8).apply(ranker)
        ...  # train
        with merged(ranker) as ordinary:
            ordinary.save_pretrained(folder)

    The backbone itself is frozen; senses, contextual weights and head are trained in full. An
    adapter starts at 0, so scores do not change when it is put in.
    """

    def __init__(
        self,
        rank: Width = 16,
        scale: Positive = 2.0,
        dropout: Dropout = 0.05,
        target_modules: Name | Annotated[Sequence[Name], Length(1)] | None = None,
    ) -> None:
        """
        Args:
            rank: rows of A and columns of B.
            scale: factor of B A. It is ``lora_alpha / r`` of peft, which has another meaning of
                alpha than the dial.
            dropout: of what goes into A.
            target_modules: ``all-linear``, names of modules as they end (``[q_proj, v_proj]``), a
                pattern of full module names within the backbone, or None for peft's choice for this
                type of model.

        Raises:
            ValueError: an option out of its range, or no target module.
        """
        if target_modules is not None and not target_modules:
            raise ValueError(
                "adapter.target_modules is empty; null takes peft's choice for the model"
            )
        self.rank = rank
        self.scale = scale
        self.dropout = dropout
        self.target_modules = target_modules

    def apply(self, ranker: Ranker) -> None:
        """Put adapters into the ranker's backbone, in place, and freeze everything else in it.

        Raises:
            ImportError: peft is not installed.
            ValueError: the ranker has no backbone or one that stays as it is, peft has no default
                for it, or ``target_modules`` names something else than its linear layers.
        """
        if isinstance(ranker, BackpackEncoderForRanking):
            raise ValueError(
                f"the encoder of a {ranker.label} stays as it is, and adapters would be in it: use "
                "adapter=none"
            )
        if getattr(ranker.config, "similarity", None) is not None:
            # Adapters would be put in, and no gradient would ever reach them.
            raise ValueError(
                "with a similarity the encoder stays as it is, and copies of its upper layers are "
                "trained in full: use adapter=none, or leave the similarity out "
                "(model.ranker.similarity=null)"
            )
        peft = _peft()
        backbone = backbone_of(ranker)
        if backbone is None:
            raise ValueError(
                f"{type(ranker).__name__} has no pretrained network to adapt: use adapter=none"
            )
        names = self._targets(peft, backbone)
        # Conv1D of transformers keeps its weights as [in, out].
        all_conv1d = all(isinstance(backbone.get_submodule(name), Conv1D) for name in names)
        config = peft.LoraConfig(
            r=self.rank,
            lora_alpha=self.scale * self.rank,
            lora_dropout=self.dropout,
            target_modules=names,
            fan_in_fan_out=all_conv1d,
        )
        peft.inject_adapter_in_model(config, backbone)
        for layer in _adapted_layers(backbone).values():
            # In half precision, AdamW would lose small updates.
            layer.lora_A.float()
            layer.lora_B.float()

    def _targets(self, peft: ModuleType, backbone: Any) -> list[str]:
        """Full names of the modules that get an adapter."""
        linear = []
        for name, module in backbone.named_modules():
            if isinstance(module, nn.Linear | Conv1D):
                linear.append(name)
        model_type = backbone.config.model_type
        targets = self.target_modules
        if targets is None:
            targets = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model_type)
            if targets is None:
                raise ValueError(
                    f"peft has no default modules for a backbone of type {model_type!r}: set "
                    f"adapter.target_modules={ALL_LINEAR}, or to some of {_endings(linear)}"
                )
        if targets == ALL_LINEAR and linear:
            return linear
        chosen, unknown = _matched_layers(targets, linear)
        if unknown:
            # Word embeddings are refused too: the sense network reads them without an adapter.
            raise ValueError(
                f"adapter.target_modules: no linear layer of the backbone ({model_type}) is called "
                f"{', '.join(unknown)}; there are {_endings(linear)}"
            )
        return chosen


def _matched_layers(
    targets: str | Sequence[str], layers: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Layers that a pattern of full names or endings of names choose, and what chooses none."""
    if isinstance(targets, str):
        matched = [name for name in layers if re.fullmatch(targets, name)]
        return matched, [] if matched else [targets]
    matched = []
    unmatched = dict.fromkeys(targets)  # as a set that keeps the order
    for name in layers:
        # The leading dot: "proj" is the end of "attn.proj", and not of "q_proj".
        endings = [ending for ending in targets if f".{name}".endswith(f".{ending}")]
        if endings:
            matched.append(name)
        for ending in endings:
            unmatched.pop(ending, None)
    return matched, list(unmatched)


@contextmanager
def merged(ranker: Ranker) -> Iterator[Ranker]:
    """Save or convert a ranker with adapters: in the block they are in its weights.

    In the block it is an ordinary ranker that can be saved and scores without peft; afterwards the
    adapters are back, bit for bit. Weights keep the backbone's number format. A ranker without
    adapters stays unchanged.
    """
    backbone = backbone_of(ranker)
    adapted = _adapted_layers(backbone)
    try:
        for name, layer in adapted.items():
            backbone.set_submodule(name, _merged_layer(layer))
        yield ranker
    finally:
        for name, layer in adapted.items():
            backbone.set_submodule(name, layer)


@torch.no_grad()
def _merged_layer(layer: Any) -> nn.Module:
    """A linear layer with the sum of a weight and its adapters; other parameters are shared."""
    base = layer.get_base_layer()
    merged_layer = copy.copy(base)
    merged_layer._parameters = dict(base._parameters)
    weight: Tensor = base.weight.float()
    for adapter in layer.active_adapters:
        weight = weight + layer.get_delta_weight(adapter).float()
    merged_layer.weight = nn.Parameter(weight.to(base.weight.dtype), requires_grad=False)
    return merged_layer


def _adapted_layers(backbone: nn.Module) -> dict[str, Any]:
    """Modules with an adapter, by name."""
    if not hasattr(backbone, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer

    adapted = {}
    for name, module in backbone.named_modules():
        if isinstance(module, LoraLayer):
            adapted[name] = module
    return adapted


def _peft() -> ModuleType:
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        raise ImportError(f"adapter=lora needs peft: {install('lora')}") from error


def _endings(names: list[str]) -> str:
    """The last parts of module names, each once."""
    endings = dict.fromkeys(name.rsplit(".", 1)[-1] for name in names)
    return ", ".join(endings) or "none"
