"""FSDP: weights, gradients and optimiser shared among processes, for rankers beyond one GPU.

Each layer of a backbone is gathered when it is computed and given back behind it; all else is
gathered once a step. Zhao et al. 2023, PyTorch FSDP.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.plugins.precision import FSDPPrecision
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    OptimStateKeyType,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from backpack_rank.models.rankers import Ranker
from backpack_rank.training.freezing import backbone_of, layers_of
from backpack_rank.training.module import WHOLE_DIMENSIONS

SHARDED: Mapping[Any, dict[str, Any]] = {"fsdp": {}, "fsdp_cpu_offload": {"cpu_offload": True}}
"""Names of ``trainer.strategy``, with options of :class:`ShardedStrategy`."""
_FORMATS = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class ShardedPrecision(FSDPPrecision):
    """Number formats, and the norm of gradients over all shards, which Lightning does not clip.

    Attributes:
        root: the networks, once they are shared out.
    """

    root: FullyShardedDataParallel

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Leave number formats as they are, as other strategies do."""
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
    """Lightning's FSDP with the layers of the backbone as its units, and one file for a checkpoint.

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
        for parameter in model.parameters():  # a shard is a row of numbers
            setattr(parameter, WHOLE_DIMENSIONS, parameter.ndim)
        backbones = [backbone_of(ranker) for ranker in cast(Iterable[Ranker], model.children())]
        layers = [
            layer for backbone in backbones if backbone is not None for layer in layers_of(backbone)
        ]
        self._precision.root = FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({type(layer) for layer in layers}),
            device_id=self.root_device,  # Lightning gives its number, and a CPU has none
            cpu_offload=self.cpu_offload,
            mixed_precision=self.mixed_precision,
            sharding_strategy=self.sharding_strategy,
            **self.kwargs,
        )
        return self._precision.root

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Of a checkpoint, which the first process writes."""
        return self.whole_state(first_process_only=True)

    def whole_state(self, first_process_only: bool = False) -> dict[str, Any]:
        """All weights, on the CPU. All processes must call it."""
        with self._whole(first_process_only):
            return self._precision.root.state_dict()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Of a checkpoint: the optimiser's whole state, parameters by their numbers."""
        root = self._precision.root
        with self._whole(first_process_only=True):
            state = FullyShardedDataParallel.optim_state_dict(
                root, getattr(optimizer, "_optimizer", optimizer)
            )
        if self.global_rank > 0:
            return state
        return FullyShardedDataParallel.rekey_optim_state_dict(
            state, OptimStateKeyType.PARAM_ID, root
        )

    def _whole(self, first_process_only: bool) -> AbstractContextManager:
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
    """Options of Lightning's trainer, with our strategy for ``fsdp`` and ``fsdp_cpu_offload``.

    Raises:
        ValueError: FSDP does not know the precision.
    """
    found = dict(options)
    if found.get("strategy") in SHARDED:
        found["strategy"] = ShardedStrategy(
            ShardedPrecision(found.pop("precision")), **SHARDED[found["strategy"]]
        )
    return found


@contextmanager
def whole_afterwards(trainer: L.Trainer, module: L.LightningModule) -> Iterator[None]:
    """In a block, let a trainer shard a module's networks; behind it they are complete again.

    They are complete in every process.

    The new networks are on the CPU and have the weights that the training ended with. Other
    strategies leave the module unchanged.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, ShardedStrategy):
        yield
        return
    networks = {name: _copy(network, _on_no_device) for name, network in module.named_children()}
    yield
    state = strategy.whole_state()
    for name, network in networks.items():
        setattr(module, name, _copy(network, _on_cpu))
    module.load_state_dict(state)


def _copy(network: nn.Module, make: Callable[[Tensor], Tensor]) -> nn.Module:
    """A network that differs in its parameters alone; what was tied is tied."""
    memo: dict[int, Any] = {
        id(one): nn.Parameter(make(one), requires_grad=one.requires_grad)
        for one in network.parameters()
    }
    return copy.deepcopy(network, memo)


def _on_no_device(values: Tensor) -> Tensor:
    return torch.empty_like(values, device="meta")


def _on_cpu(values: Tensor) -> Tensor:
    return torch.empty_like(values, device="cpu")


def _names(formats: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(one).removeprefix("torch.") for one in formats))
