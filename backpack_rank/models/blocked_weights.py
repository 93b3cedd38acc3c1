"""Linear layers on a CPU with their weights in the order in which oneDNN multiplies them.

A plain ``nn.Linear`` reads its weights row by row, and in single precision multiplies with another
library. A copy in blocks, made once for weights that do not change, is multiplied faster, and the
activation behind a layer is computed on the way. Scores are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUActivation
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.sense_network import SenseProjection
from backpack_rank.models.utils import weight_state

SMALLEST = 2**17
"""Layers with fewer weights stay: preparing a multiplication costs what it saves there."""
LIMIT = 2**28
"""Bytes of weights that are kept twice at most; a larger model gets no copies."""
# Where blocks of transformers keep a layer and the activation behind it.
_ACTIVATED = (
    ("dense", "intermediate_act_fn"),
    ("c_fc", "act"),
    ("lin1", "activation"),
    ("ffn", "activation"),
)


class BlockedWeights:
    """In inference on a CPU: copies in blocks of a model's large linear layers.

    A layer whose weights have changed is copied again::

        blocked = BlockedWeights(ranker)
        with torch.no_grad(), blocked.in_use():
            scores = ranker(batch).scores

    Attributes:
        model: whose layers are copied.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._blocks: dict[nn.Module, tuple[tuple, list[Tensor]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickles and copies leave out the blocks, which cannot be copied; they are made again."""
        return {"model": self.model, "_blocks": {}}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this block, layers multiply by their copies, unless gradients are on."""
        layers = self._layers()
        replaced: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
        for module in self.model.modules() if layers else ():
            for name, activation_name in _ACTIVATED:
                layer = module._modules.get(name)
                if layer not in layers:
                    continue
                activation = module._modules.get(activation_name)
                gelu = _gelu(activation)
                if gelu is not None:
                    # The multiplication computes the activation too, so the module of the
                    # activation passes its inputs on.
                    layers[layer] = gelu
                    replaced[activation] = _same  # type: ignore[index]
        for layer, gelu in layers.items():
            by_sense = type(layer) is SenseProjection
            replaced[layer] = self._by_sense(layer) if by_sense else self._forward(layer, gelu)
        try:
            for module, function in replaced.items():
                module.__dict__[_method(module)] = function
            yield
        finally:
            for module in replaced:
                module.__dict__.pop(_method(module), None)

    def _layers(self) -> dict[nn.Module, str | None]:
        """The layers that are worth a copy, each with None: no activation behind it yet."""
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not _AVAILABLE:
            return {}
        layers = dict.fromkeys(filter(_is_worth_it, self.model.modules()))
        size = sum(layer.weight.nbytes for layer in layers)  # type: ignore[misc]
        return layers if size <= LIMIT else {}

    def _forward(self, layer: nn.Module, gelu: str | None) -> Callable[[Tensor], Tensor]:
        (blocks,) = self._blocks_of(layer)
        bias: Tensor | None = layer.bias  # type: ignore[assignment]
        activation, form = ("none", "") if gelu is None else ("gelu", gelu)
        return lambda inputs: torch.ops.mkldnn._linear_pointwise(
            inputs, blocks, bias, activation, [], form
        )

    def _by_sense(self, layer: nn.Module) -> Callable[[Tensor], Tensor]:
        """:meth:`SenseProjection.by_sense`."""
        blocks_of_senses = self._blocks_of(layer)

        def by_sense(pooled: Tensor) -> Tensor:
            projected = []
            for sense, blocks in enumerate(blocks_of_senses):
                of_sense = pooled[:, sense]
                projected.append(
                    torch.ops.mkldnn._linear_pointwise(of_sense, blocks, None, "none", [], "")
                )
            return torch.stack(projected, dim=1)

        return by_sense

    def _blocks_of(self, layer: nn.Module) -> list[Tensor]:
        """The weights of a layer in blocks, or those of each sense."""
        weight: Tensor = layer.weight  # type: ignore[assignment]
        state = weight_state(weight)
        if layer not in self._blocks or self._blocks[layer][0] != state:
            if isinstance(layer, SenseProjection):
                parts = layer.weights_by_sense().detach().transpose(1, 2)
            else:
                parts = (weight.t() if type(layer) is Conv1D else weight).detach()[None]
            blocks = []
            for rows in parts:
                blocks.append(torch.ops.mkldnn._reorder_linear_weight(rows.contiguous(), None))
            self._blocks[layer] = state, blocks
        return self._blocks[layer][1]


# These functions are not public: in a torch without them, layers multiply as usual.
_AVAILABLE = torch.backends.mkldnn.is_available() and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


def _is_worth_it(module: nn.Module) -> bool:
    # Subclasses and other layers, such as of LoRA, compute more.
    if type(module) not in (nn.Linear, Conv1D, SenseProjection):
        return False
    weight: Tensor = module.weight  # type: ignore[assignment]
    if weight.device.type != "cpu" or not _has_blocks(weight.dtype):
        return False
    return weight.numel() >= SMALLEST and not weight.is_inference()


def _has_blocks(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies this format in blocks here: bf16 takes AVX-512 or its like."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def _gelu(activation: nn.Module | None) -> str | None:
    """How an activation approximates GELU, as torch calls it; None for another one."""
    if type(activation) is nn.GELU:
        return activation.approximate
    exact = type(activation) is GELUActivation and activation.act is F.gelu
    return "none" if exact else None


def _method(module: nn.Module) -> str:
    """What of a module multiplies."""
    return "by_sense" if type(module) is SenseProjection else "forward"


def _same(values: Tensor) -> Tensor:
    return values
