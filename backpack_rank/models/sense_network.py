"""The sense network of a Backpack: vectors of single tokens, without position or context.

Notation of the docstrings: B texts, d hidden size, e size of word embeddings, k senses,
f = ``sense_intermediate_scale`` * d. Hewitt et al. 2023. Module names are those of the published
checkpoint ``stanfordnlp/backpack-gpt2``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.attention import fast_activation
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.utils import weight_state

TOKENS_AT_A_TIME = 64
"""Tokens that :class:`TokenStateCache` computes together."""
MOST_BYTES = 2**28
"""Of tokens' states that are kept; with more, the next lookup begins anew."""


class SenseNetwork(nn.Module):
    """C: token -> k sense vectors, from the token's embedding alone (no position, no context)."""

    def __init__(self, config: BackpackConfig, embedding_size: int | None = None) -> None:
        super().__init__()
        d = config.hidden_size
        width = config.sense_intermediate_scale * d
        self.num_senses = config.num_senses
        self.dropout = nn.Dropout(config.dropout)
        # Some backbones have word embeddings narrower than their hidden states (ELECTRA, ALBERT).
        self.widen: nn.Module
        if embedding_size is None or embedding_size == d:
            self.widen = nn.Identity()
        else:
            self.widen = nn.Linear(embedding_size, d)
        self.ln = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.block = _SenseBlock(config)
        by_sense = partial(SenseProjection, config.num_senses)
        self.final_mlp = _TwoLayers(d, width, config.num_senses * d, config, by_sense)

    def hidden(self, embeddings: Tensor) -> Tensor:
        """h(x): the last hidden layer, which depends on the token alone. [..., e] -> [..., f]"""
        embeddings = self.widen(self.dropout(embeddings))
        return self.final_mlp.hidden(self.block(self.ln(embeddings), embeddings))

    def expand(self, hidden: Tensor) -> Tensor:
        """C(x) from h(x): [..., f] -> [..., k, d]."""
        return self.dropout(self.final_mlp.c_proj(hidden)).unflatten(-1, (self.num_senses, -1))

    def project(self, pooled: Tensor) -> Tensor:
        """Sense vectors W_l p_l + b_l of texts, from hidden layers pooled per sense.

        Equal to pooling the tokens' sense vectors, because contextual weights sum to 1 over the
        tokens. In training, dropout stands behind the pooling: another random variable, the same
        expectation.

        Args:
            pooled: p, for each sense the weighted mean of h(x) over a text. [B, k, f]

        Returns:
            [B, k, d]
        """
        projection: SenseProjection = self.final_mlp.c_proj  # type: ignore[assignment]
        offsets = projection.bias.unflatten(-1, (self.num_senses, -1))
        return self.dropout(projection.by_sense(pooled) + offsets)

    def probes(self, direction: Tensor) -> tuple[Tensor, Tensor]:
        """How far sense vectors reach in a direction w, as a function of h(x).

            w . C(x)_l = w . (W_l h(x) + b_l) = (W_l^T w) . h(x) + w . b_l

        Args:
            direction: w. [d]

        Returns:
            W_l^T w, one column for each sense [f, k], and w . b_l [k].
        """
        projection = self.final_mlp.c_proj
        by_sense = (self.num_senses, -1)
        direction = direction.to(projection.weight.dtype)
        weights = projection.weight.unflatten(-1, by_sense) @ direction
        return weights, projection.bias.unflatten(-1, by_sense) @ direction

    def project_differences(self, differences: Tensor) -> Tensor:
        """W_l (h(x) - h(y)) from differences of hidden layers. [W, f] -> [W, k, d]

        These are differences of sense vectors: the offsets b_l cancel.
        """
        weight = self.final_mlp.c_proj.weight.to(differences.dtype)
        return self.dropout(differences @ weight).unflatten(-1, (self.num_senses, -1))


class SenseProjection(Conv1D):
    """The last layer of the sense network: h(x) to the sense vectors of x, side by side."""

    def __init__(self, senses: int, outputs: int, inputs: int) -> None:
        super().__init__(outputs, inputs)
        self.senses = senses

    def by_sense(self, pooled: Tensor) -> Tensor:
        """W_l p_l, each sense from a hidden layer of its own: [B, k, f] -> [B, k, d].

        In inference :mod:`backpack_rank.models.blocked_weights` replaces it.
        """
        # A compiler lays gradients out as it likes.
        project = _project_each if torch.compiler.is_compiling() else _ProjectEach.apply
        projected: Tensor = project(pooled, self.weight.to(pooled.dtype))
        return projected

    def weights_by_sense(self) -> Tensor:
        """W_l of every sense: [k, f, d], a view."""
        return _by_sense(self.weight, self.senses)


def _project_each(pooled: Tensor, weight: Tensor) -> Tensor:
    """W_l p_l, sense by sense: [B, k, f] and [f, k * d] -> [B, k, d]."""
    return torch.bmm(pooled.transpose(0, 1), _by_sense(weight, pooled.shape[1])).transpose(0, 1)


class _ProjectEach(torch.autograd.Function):
    """:func:`_project_each` with gradients in the layout of its inputs.

    Torch's own gradient of the weights is laid out by sense, and moved once more: at GPT-2-small
    size 151 MB.
    """

    @staticmethod
    def forward(ctx: Any, pooled: Tensor, weight: Tensor) -> Tensor:
        """[B, k, f] and [f, k * d] -> [B, k, d]."""
        ctx.save_for_backward(pooled, weight)
        return _project_each(pooled, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        """[B, k, d] -> [B, k, f] and, where the weights are trained, [f, k * d]."""
        pooled, weight = ctx.saved_tensors
        senses = pooled.shape[1]
        gradient = gradient.transpose(0, 1)  # [k, B, d]
        weight_gradient = None
        if ctx.needs_input_grad[1]:
            # Written through a view by sense into a tensor of the weight's layout.
            weight_gradient = torch.empty_like(weight)
            torch.bmm(pooled.permute(1, 2, 0), gradient, out=_by_sense(weight_gradient, senses))
        pooled_gradient = torch.bmm(gradient, _by_sense(weight, senses).transpose(1, 2))
        return pooled_gradient.transpose(0, 1), weight_gradient


def _by_sense(weight: Tensor, senses: int) -> Tensor:
    """[f, k * d] -> [k, f, d], a view."""
    return weight.unflatten(-1, (senses, -1)).transpose(0, 1)


class _TwoLayers(nn.Module):
    """Two linear layers in GPT-2's layout ([in, out] weights) with its activation between them."""

    def __init__(
        self,
        size: int,
        width: int,
        out: int,
        config: BackpackConfig,
        new_last: Callable[[int, int], Conv1D] = Conv1D,
    ) -> None:
        super().__init__()
        self.c_fc = Conv1D(width, size)
        self.c_proj = new_last(out, width)
        self.act = fast_activation(config.activation_function)

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.act(self.c_fc(inputs))


class _SenseBlock(nn.Module):
    """Residual block of the sense network: layer norms and one MLP, no attention."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        d = config.hidden_size
        self.ln_1 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.ln_2 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.mlp = _TwoLayers(d, 4 * d, d, config)
        self.dropout_1 = nn.Dropout(config.dropout)
        self.dropout_2 = nn.Dropout(config.dropout)

    def forward(self, inputs: Tensor, residual: Tensor) -> Tensor:
        residual = self.dropout_1(inputs) + residual
        normed = self.ln_1(residual)
        residual = self.dropout_2(self.mlp.c_proj(self.mlp.hidden(normed))) + residual
        return self.ln_2(residual)


class TokenReader(Protocol):
    """What computes h(x): a :class:`~backpack_rank.models.backpack.BackpackModel`."""

    training: bool
    sense_network: SenseNetwork

    def get_input_embeddings(self) -> nn.Module: ...
    def token_hidden(self, input_ids: Tensor) -> Tensor: ...


class TokenStateCache:
    """In inference on a CPU: h(x) of each token, computed once for weights that do not change.

        states = TokenStateCache(ranker.backpack)
        scores = [ranker(batch, token_states=states).scores for batch in batches]

    On a GPU computing is cheaper than looking up.

    A product of matrices may round a row otherwise where it has more rows or fewer. Here it always
    has as many, so h(x) is the same to the last bit whichever tokens came before x or with it, and
    a batch has the same scores whatever was scored before.

    Nothing is kept in training, with gradients, or of weights that were made in inference mode.

    Args:
        backpack: whose tokens they are. Where its weights change, all is computed anew; only a
            change through ``parameter.data`` in place is not seen.
    """

    def __init__(self, backpack: TokenReader) -> None:
        self._backpack = backpack
        # A row for each token of the vocabulary; memory that no token has filled is not touched.
        self._table: Tensor | None = None
        self._known = torch.zeros(0, dtype=torch.bool)
        self._weights: list[tuple] = []
        # Requests may come from several threads.
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type, tuple]:
        """Copies and pickles begin anew."""
        return TokenStateCache, (self._backpack,)

    @property
    def filled_bytes(self) -> int:
        """Memory of the tokens that have come."""
        if self._table is None:
            return 0
        return int(self._known.sum()) * self._table[0].nbytes

    def __call__(self, input_ids: Tensor) -> Tensor:
        """h(x) of token ids, computed for those that are new. [...] -> [..., f]"""
        embeddings: Any = self._backpack.get_input_embeddings().weight
        weights = [embeddings, *self._backpack.sense_network.parameters()]
        is_kept = not self._backpack.training and not torch.is_grad_enabled()
        is_kept = is_kept and not any(weight.is_inference() for weight in weights)
        if not is_kept or not input_ids.numel():
            return self._backpack.token_hidden(input_ids)
        state = [weight_state(weight) for weight in weights]
        with self._lock:
            if state != self._weights or self.filled_bytes > MOST_BYTES:
                self._weights, self._table = state, None
                # What inference mode makes can be written to in that mode alone.
                with torch.inference_mode(False):
                    self._known = torch.zeros(len(embeddings), dtype=torch.bool)
            new = input_ids[~self._known[input_ids]].unique()
            for start in range(0, len(new), TOKENS_AT_A_TIME):
                ids = new[start : start + TOKENS_AT_A_TIME]
                # Filled up with the last one.
                missing = TOKENS_AT_A_TIME - len(ids)
                filled_up = F.pad(ids, (0, missing), value=int(ids[-1]))
                states = self._backpack.token_hidden(filled_up)
                if self._table is None:
                    shape = len(self._known), states.shape[-1]
                    with torch.inference_mode(False):
                        self._table = torch.empty(shape, dtype=states.dtype)
                self._table[ids] = states[: len(ids)]
            self._known[new] = True
            assert self._table is not None
            return self._table[input_ids]
