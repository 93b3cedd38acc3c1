"""FSDP: weights, gradients and optimiser shared among processes, for rankers beyond one GPU.

Each layer of a backbone is gathered when it is computed and given back behind it; all else is
gathered once a step. Zhao et al. 2023, PyTorch FSDP.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.plugins.precision import FSDPPrecision
from lightning.pytorch.strategies import FSDPStrategy
from torch import nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    OptimStateKeyType,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import PreTrainedModel

from backpack_rank.models.rankers import Ranker
from backpack_rank.training.freezing import backbone_of, layers_of
from backpack_rank.training.module import UNSHARDED_DIMENSIONS

SHARDED: Mapping[Any, dict[str, Any]] = {"fsdp": {}, "fsdp_cpu_offload": {"cpu_offload": True}}
"""Names of ``trainer.strategy``, with options of :class:`ShardedStrategy`."""
_FORMATS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class ShardedPrecision(FSDPPrecision):
    """With :class:`ShardedStrategy`: number formats, and the norm of gradients.

    Lightning does not clip the norm over all shards.

    Attributes:
        root: the networks, once they are shared out.
    """

    root: FullyShardedDataParallel

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Leave number formats unchanged, as other strategies do."""
        return module

    def convert_input(self, data: Any) -> Any:
        """Leave a batch unchanged: it is made of frozen objects, and its texts are ids."""
        return data

    def forward_context(self) -> AbstractContextManager:
        """Autocast on the networks' device; Lightning's is for GPUs alone."""
        if self.precision == "32-true":
            return nullcontext()
        device = self.root.compute_device
        assert device is not None
        return torch.autocast(device.type, _FORMATS[self.precision])

    def clip_grad_by_norm(self, optimizer: Any, clip_val: float) -> None:
        """Clip over all shards."""
        self.root.clip_grad_norm_(clip_val)


class ShardedStrategy(FSDPStrategy):
    """Rankers beyond one GPU: Lightning's FSDP with the backbone's layers as its units.

        lightning.Trainer(**with_sharding({"strategy": "fsdp", "precision": "bf16-mixed"}))

    A checkpoint is one file.

    Numbers are computed as by ``trainer=ddp``: shards are in fp32, and autocast computes in half
    precision. It runs on CPUs too, slowly, which Lightning refuses of its own class.
    """

    def __init__(self, precision: ShardedPrecision, **options: Any) -> None:
        super().__init__(
            precision_plugin=precision,
            mixed_precision=MixedPrecision(),
            use_orig_params=True,
            **options,
        )
        self._precision = precision

    def _setup_model(self, model: nn.Module) -> nn.Module:
        formats = {parameter.dtype for parameter in model.parameters()}
        if len(formats) > 1:
            raise ValueError(
                "trainer=fsdp shares out weights of one number format, and these are in "
                f"{_names(formats)}: leave out model.ranker.dtype (trainer.precision=bf16-mixed "
                "computes in bf16 all the same), or use trainer=ddp"
            )
        # A shard is a row of numbers, which does not show any more what was a matrix.
        for parameter in model.parameters():
            setattr(parameter, UNSHARDED_DIMENSIONS, parameter.ndim)
        layer_types: set[type[nn.Module]] = set()
        for network in model.children():
            # Beside the ranker there may be terms of the loss that learn, such as an adversary.
            if not isinstance(network, PreTrainedModel):
                continue
            backbone = backbone_of(cast(Ranker, network))
            if backbone is not None:
                layer_types.update(map(type, layers_of(backbone)))
        self._precision.root = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy(layer_types),
            device_id=self.root_device,  # Lightning gives its number, and a CPU has none
            cpu_offload=self.cpu_offload,
            mixed_precision=self.mixed_precision,
            sharding_strategy=self.sharding_strategy,
            **self.kwargs,
        )
        return self._precision.root

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Of a checkpoint, which the first process writes."""
        return self.gathered_state(first_process_only=True)

    def gathered_state(self, first_process_only: bool = False) -> dict[str, Any]:
        """The weights of all shards, on the CPU. All processes must call it."""
        with self._gathering(first_process_only):
            return self._precision.root.state_dict()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Of a checkpoint: the optimiser's state of all shards, parameters by their numbers."""
        root = self._precision.root
        with self._gathering(first_process_only=True):
            state = FullyShardedDataParallel.optim_state_dict(
                root, getattr(optimizer, "_optimizer", optimizer)
            )
        if self.global_rank > 0:
            return state
        return FullyShardedDataParallel.rekey_optim_state_dict(
            state, OptimStateKeyType.PARAM_ID, root
        )

    def _gathering(self, first_process_only: bool) -> AbstractContextManager:
        """A block in which states are those of all shards."""
        # What is on the CPU already torch does not move but free (weights) or write over (the
        # optimiser's state).
        options = {
            "offload_to_cpu": self.root_device.type != "cpu",
            "rank0_only": first_process_only,
        }
        return FullyShardedDataParallel.state_dict_type(
            self._precision.root,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(**options),
            FullOptimStateDictConfig(**options),
        )


def with_sharding(options: Mapping[str, Any]) -> dict[str, Any]:
    """On options of Lightning's trainer, for ``strategy=fsdp`` and ``fsdp_cpu_offload``.

        trainer = lightning.Trainer(**with_sharding({"strategy": "fsdp", "precision": "32-true"}))

    The strategy becomes a :class:`ShardedStrategy`; other options stay.

    Raises:
        ValueError: FSDP does not know the precision.
    """
    resolved = dict(options)
    strategy = resolved.get("strategy")
    if strategy in SHARDED:
        # The strategy takes the precision, and Lightning refuses to be given both.
        precision = ShardedPrecision(resolved.pop("precision"))
        resolved["strategy"] = ShardedStrategy(precision, **SHARDED[strategy])
    return resolved


@contextmanager
def gathered_afterwards(trainer: L.Trainer, module: L.LightningModule) -> Iterator[None]:
    """Around a training that may shard a module's networks: behind it they are complete.

        with gathered_afterwards(trainer, module):
            trainer.fit(module, data)

    They are complete in every process.

    The new networks are on the CPU and have the weights that the training ended with. Other
    strategies leave the module unchanged.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, ShardedStrategy):
        yield
        return
    # Sharding cannot be undone in a network, so the networks are made anew behind the block: from
    # copies without numbers ("meta"), which take no memory while the training runs.
    networks: dict[str, nn.Module] = {}
    for name, network in module.named_children():
        networks[name] = _copy_on(network, "meta")
    yield
    state = strategy.gathered_state()
    for name, network in networks.items():
        setattr(module, name, _copy_on(network, "cpu"))
    module.load_state_dict(state)


def _copy_on(network: nn.Module, device: str) -> nn.Module:
    """The network with parameters of any value on a device; what was tied is tied."""
    # deepcopy takes what its memo has for an object's id in place of a copy.
    memo: dict[int, Any] = {}
    for parameter in network.parameters():
        values = torch.empty_like(parameter, device=device)
        memo[id(parameter)] = nn.Parameter(values, requires_grad=parameter.requires_grad)
    return copy.deepcopy(network, memo)


def _names(formats: set[torch.dtype]) -> str:
    """Names of number formats for an error."""
    return " and ".join(sorted(str(name).removeprefix("torch.") for name in formats))
