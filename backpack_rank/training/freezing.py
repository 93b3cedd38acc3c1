"""Parts of a ranker that training leaves unchanged, for all epochs or the first ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from backpack_rank.models.backpack_encoder import SenseRanker
from backpack_rank.models.rankers import Ranker
from backpack_rank.models.ranking_heads import RankingHead

_LAYERS = re.compile(r"backbone\.layers\.(\d+)(?:-(\d+))?")


class FrozenParts:
    """Trains a part of a ranker: ``training.frozen`` and ``training.frozen_epochs``.

    callbacks = FrozenParts(["backbone.embeddings", "backbone.layers.0-3"]).apply(ranker)
    lightning.Trainer(callbacks=callbacks)
    """

    def __init__(self, frozen: Sequence[str] = (), epochs: int | None = None) -> None:
        """
        Args:
            frozen: parts (``backbone``, ``backbone.embeddings``, ``backbone.layers.0-3``,
                ``senses``, ``weights``, ``head``; of rankers with a similarity ``joint``, the
                layers that read query and document together; of word-embedding rankers
                ``embeddings`` and ``interaction``) or globs of parameter names. The sense network
                reads the backbone's word embeddings, so frozen ``senses`` still change what they
                say while ``backbone.embeddings`` are trained.
            epochs: of the training after which all of it is trained too; None keeps it frozen.

        Raises:
            ValueError: ``frozen`` is a text, or ``epochs`` is below 1 or has nothing to thaw.
        """
        if isinstance(frozen, str):
            raise ValueError(f"training.frozen={frozen} must be a list: training.frozen=[{frozen}]")
        if epochs is not None and (epochs < 1 or not frozen):
            raise ValueError(
                f"training.frozen_epochs={epochs} must be at least 1, and training.frozen "
                "must say what is frozen for so long"
            )
        self.frozen = frozen
        self.epochs = epochs

    def apply(self, ranker: Ranker) -> list[Callback]:
        """Freeze, and give callbacks for the trainer: one that thaws where ``epochs`` is set.

        Call it behind an adapter, which freezes and adds parameters itself: ``backbone`` then means
        both, and what the adapter keeps frozen is not thawed.

        Raises:
            ValueError: an entry names no part and matches no parameter, or nothing is left to
                train, or what is left would get no gradient.
        """
        # By identity: tied parameters are one, and an entry may name one of another entry again.
        chosen: dict[int, nn.Parameter] = {}
        for entry in self.frozen:
            for parameter in _matched(ranker, entry):
                if parameter.requires_grad:
                    chosen[id(parameter)] = parameter
        trained = {id(parameter) for parameter in ranker.parameters() if parameter.requires_grad}
        if trained <= chosen.keys():
            raise ValueError(
                f"training.frozen={list(self.frozen)} leaves no parameter to train; leave "
                "something out"
            )
        _check_gradients_arrive(ranker, chosen)
        if self.epochs is not None:
            # The optimiser has to know the parameters from the start, so they are frozen when
            # training begins.
            return [UnfreezeCallback(chosen.values(), self.epochs)]
        for parameter in chosen.values():
            parameter.requires_grad_(False)
        return []


class UnfreezeCallback(Callback):
    """A callback that keeps parameters frozen for the first epochs.

        lightning.Trainer(callbacks=[UnfreezeCallback(ranker.head.parameters(), epochs=1)])

    A resumed run goes on where it was.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], epochs: int) -> None:
        self.parameters = list(parameters)
        self.epochs = epochs

    def setup(self, trainer: L.Trainer, module: L.LightningModule, stage: str) -> None:
        """Raise ``ValueError`` where several processes would wait for gradients of frozen parts."""
        strategy = trainer.strategy
        if not isinstance(strategy, DDPStrategy):
            return
        if not strategy._ddp_kwargs.get("find_unused_parameters"):
            raise ValueError(
                "training.frozen_epochs in several processes needs "
                "trainer.strategy=ddp_find_unused_parameters_true"
            )

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Freeze or thaw; AdamW passes over parameters without a gradient."""
        for parameter in self.parameters:
            parameter.requires_grad_(trainer.current_epoch >= self.epochs)


def backbone_of(ranker: Ranker) -> Any:
    """The transformers model below a ranker; None for one without, such as one over word vectors.

    backbone_of(ranker).config.model_type
    """
    if isinstance(ranker, SenseRanker):
        return ranker.backpack.backbone
    return getattr(ranker, ranker.base_model_prefix, None)


def parts(ranker: Ranker) -> dict[str, nn.Module]:
    """The parts of a ranker by name; the backbone's layers are ``backbone.layers.N``.

    list(parts(ranker))  # ["backbone", "backbone.embeddings", "backbone.layers.0", ...]
    """
    named: dict[str, Any]
    backbone = backbone_of(ranker)
    if backbone is None:
        embeddings = ranker.get_input_embeddings()
        named = {"embeddings": embeddings}
        for name, part in ranker.named_children():
            if part is not embeddings:
                named[name] = part
        return named
    named = {"backbone": backbone, "backbone.embeddings": backbone.get_input_embeddings()}
    for number, layer in enumerate(layers_of(backbone)):
        named[f"backbone.layers.{number}"] = layer
    network = ranker.backpack if isinstance(ranker, SenseRanker) else ranker
    joint = getattr(network, "joint", None)
    if joint is not None:
        named["joint"] = joint
    if isinstance(ranker, SenseRanker):
        named["senses"] = ranker.backpack.sense_network
        named["weights"] = ranker.backpack.sense_weight_net
    if hasattr(ranker, "head"):
        named["head"] = ranker.head
    return named


def _matched(ranker: Ranker, entry: str) -> list[nn.Parameter]:
    """Parameters of the parts that an entry names, or else of the names that it matches."""
    known = parts(ranker)
    names = [entry]
    span = _LAYERS.fullmatch(entry)
    if span is not None and span[2]:
        first, last = int(span[1]), int(span[2])
        names = [f"backbone.layers.{number}" for number in range(first, last + 1)]
    if names and known.keys() >= set(names):
        parameters: list[nn.Parameter] = []
        for name in names:
            parameters += known[name].parameters()
        return parameters
    # Tied parameters have several names, and each of them counts.
    parameter_by_name = dict(ranker.named_parameters(remove_duplicate=False))
    matched_names = [name for name in parameter_by_name if fnmatchcase(name, entry)]
    if not matched_names:
        raise ValueError(
            f"training.frozen: {entry!r} is no part of {type(ranker).__name__} and matches no "
            f"parameter. Parts are {', '.join(_shown(known))}; parameters have names such as "
            f"{', '.join(_examples(list(parameter_by_name)))}"
        )
    return [parameter_by_name[name] for name in matched_names]


def _check_gradients_arrive(ranker: Ranker, frozen: Mapping[int, nn.Parameter]) -> None:
    """Raise ``ValueError`` where a frozen head of zeros keeps gradients from all below it.

    The head of a new ranker with a similarity starts at 0.
    """
    head = getattr(ranker, "head", None)
    if not isinstance(head, RankingHead):
        return
    weight = head.out.weight
    if id(weight) in frozen and not bool(weight.any()):
        raise ValueError(
            "training.frozen keeps the head, which is 0 in a new ranker with a similarity, so "
            "nothing would be trained: leave the head out, or train from checkpoint=FOLDER"
        )


def _shown(known: Iterable[str]) -> list[str]:
    """Names of parts for an error, all layers as one."""
    shown: list[str] = []
    layers = 0
    for name in known:
        if name.startswith("backbone.layers."):
            layers += 1
        else:
            shown.append(name)
    if layers:
        # Behind the backbone and its embeddings.
        shown.insert(2, f"backbone.layers.0-{layers - 1}")
    return shown


def layers_of(backbone: Any) -> Sequence[nn.Module]:
    """A backbone's layers: the first list of as many modules as it has layers.

    len(layers_of(backbone_of(ranker)))
    """
    number = getattr(backbone.config.get_text_config(), "num_hidden_layers", None)
    for module in backbone.modules():
        if isinstance(module, nn.ModuleList) and len(module) == number:
            return list(module)
    return []  # ALBERT has one layer, run several times


def _examples(names: list[str], number: int = 4) -> list[str]:
    """Some names, from the first to the last."""
    step = max(1, (len(names) - 1) // max(1, number - 1))
    return names[::step][:number]
