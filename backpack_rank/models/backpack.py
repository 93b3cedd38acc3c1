"""The Backpack network: non-contextual sense vectors of tokens, mixed by contextual weights.

Notation of the docstrings: B texts, T tokens of a packed row, n tokens of a text, d hidden size, k senses,
f = ``sense_intermediate_scale`` * d. Paper 004 section 2 (eq. 1); Hewitt et al. 2023. Module names are those of
the published checkpoint ``stanfordnlp/backpack-gpt2``, so its files load as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Model, GPT2PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.attention import BACKEND, packed_trunk
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.loading import CheckedLoading
from backpack_rank.models.packing import PackedBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Mixin
else:
    Mixin = object  # what is mixed in stands before the model class and overrides none of its attributes


@dataclass
class BackpackOutput:
    """Outputs at all positions: ``mixed`` [B, n, d] and the trunk's ``hidden`` [B, n, d]; 0 at padding."""

    mixed: Tensor
    hidden: Tensor


class SenseNetwork(nn.Module):
    """C: token -> k sense vectors, from the token's embedding alone (no position, no context)."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        d, width = config.n_embd, config.sense_intermediate_scale * config.n_embd
        self.num_senses = config.num_senses
        self.dropout = nn.Dropout(config.embd_pdrop)
        self.ln = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.block = _SenseBlock(config)
        self.final_mlp = _TwoLayers(d, width, config.num_senses * d, config)

    def hidden(self, embeddings: Tensor) -> Tensor:
        """h(x): the last hidden layer, which depends on the token alone. [..., d] -> [..., f]"""
        embeddings = self.dropout(embeddings)
        return self.final_mlp.hidden(self.block(self.ln(embeddings), embeddings))

    def expand(self, hidden: Tensor) -> Tensor:
        """C(x) from h(x): [..., f] -> [..., k, d]."""
        return self.dropout(self.final_mlp.c_proj(hidden)).unflatten(-1, (self.num_senses, -1))

    def project(self, pooled: Tensor) -> Tensor:
        """Sense vectors of texts from hidden layers pooled per sense: W_l p_l + b_l. [B, k, f] -> [B, k, d]

        Equal to pooling the tokens' sense vectors because contextual weights sum to 1 over the tokens. In
        training, dropout stands behind the pooling: another random variable, the same expectation.
        """
        weight = self.final_mlp.c_proj.weight.unflatten(1, (self.num_senses, -1))
        bias = self.final_mlp.c_proj.bias.unflatten(0, (self.num_senses, -1))
        # One matrix product per sense: [k, B, f] @ [k, f, d].
        return self.dropout(torch.bmm(pooled.transpose(0, 1), weight.transpose(0, 1)).transpose(0, 1) + bias)


class TokenVectors(nn.Module):
    """Passes on what the sense network knows of each token. A module of its own so that a hook can move tokens."""

    def forward(self, hidden: Tensor, ids: Tensor, marks: Tensor | None) -> Tensor:
        """h(x) [..., f] of token ids [...] with or without a mark, unchanged."""
        return hidden


class TokenMarks(nn.Module):
    """Which tokens of a batch carry a mark: none. A module of its own so that a hook can tell equal tokens apart."""

    def forward(self, input_ids: Tensor) -> Tensor | None:
        """[T] -> bool [T], or None for no mark at all."""
        return None


class SenseWeightNetwork(nn.Module):
    """Contextual weights a[l, i, j]: one attention head per sense, over the trunk's hidden states."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.num_senses = config.num_senses
        self.c_attn = nn.Linear(config.n_embd, 2 * config.n_embd)

    def split(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of every sense: [..., d] -> two of [..., k, d / k]."""
        queries, keys = self.c_attn(hidden).chunk(2, dim=-1)
        return queries.unflatten(-1, (self.num_senses, -1)), keys.unflatten(-1, (self.num_senses, -1))

    def pooled(self, hidden: Tensor, batch: PackedBatch, positions: Tensor | None = None) -> Tensor:
        """Weights at one token of each text: [T, d] -> [B, k, n], rows sum to 1, 0 at padding; at least fp32.

        ``positions`` [B] are row indices; None is each text's last token.

        q_l . (W_l e_j + b_l) = (W_l^T q_l) . e_j + q_l . b_l: keys are not projected for every token, and the
        last term is the same for all j, so it drops out of the softmax.
        """
        d = hidden.shape[-1]
        weight, bias = self.c_attn.weight, self.c_attn.bias
        pooled = hidden[batch.last_positions if positions is None else positions]
        queries = F.linear(pooled, weight[:d], bias[:d])
        queries = queries.unflatten(-1, (self.num_senses, -1)).transpose(0, 1)  # [k, B, d / k]
        probes = torch.bmm(queries, weight[d:].unflatten(0, (self.num_senses, -1)))  # [k, B, d]
        logits = torch.bmm(probes.transpose(0, 1), batch.pad(hidden).transpose(1, 2))  # [B, k, n]
        # Half precision is too coarse for a softmax over hundreds of tokens.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) * (d / self.num_senses) ** -0.5
        return logits.masked_fill(~batch.padding_mask()[:, None], float("-inf")).softmax(dim=-1)


class SenseMixing(Mixin):
    """What every Backpack does with its networks, whatever the trunk that reads the text.

    A model class says where its word embeddings and hidden states are; the rest is shared.
    """

    config: Any
    sense_network: SenseNetwork
    sense_weight_net: SenseWeightNetwork
    token_vectors: TokenVectors
    token_marks: TokenMarks

    def get_input_embeddings(self) -> nn.Embedding:
        """Word embeddings: what the trunk reads and what the sense network starts from."""
        raise NotImplementedError

    def hidden_states(self, batch: PackedBatch) -> Tensor:
        """The trunk's last hidden states. [T, d]"""
        raise NotImplementedError

    def pooled_positions(self, batch: PackedBatch) -> Tensor:
        """Row index of the token of each text whose weights mix the senses: the last one of decoders. [B]"""
        return batch.last_positions

    def pooled_weights(self, batch: PackedBatch) -> Tensor:
        """Contextual weights a[l, j] of each text at its pooled token. [B, k, n]"""
        return self.sense_weight_net.pooled(self.hidden_states(batch), batch, self.pooled_positions(batch))

    def distinct_tokens(self, batch: PackedBatch) -> tuple[Tensor, Tensor | None, Tensor]:
        """Distinct token ids [U], their marks [U] or None, and the row of each token of the batch among them [T]."""
        marks = self.token_marks(batch.input_ids)
        if marks is None:
            ids, inverse = batch.input_ids.unique(return_inverse=True)
            return ids, None, inverse
        keys, inverse = (2 * batch.input_ids + marks).unique(return_inverse=True)
        return keys // 2, keys % 2 == 1, inverse

    def token_hidden(self, input_ids: Tensor, marks: Tensor | None = None) -> Tensor:
        """h(x) of token ids, the sense network's last hidden layer: [...] -> [..., f].

        Embeddings are read past the module that holds them: a hook on it concerns what the contextual network reads.
        """
        embeddings = F.embedding(input_ids, self.get_input_embeddings().weight)
        return self.token_vectors(self.sense_network.hidden(embeddings), input_ids, marks)

    def senses(self, input_ids: Tensor, marks: Tensor | None = None) -> Tensor:
        """C(x) of token ids, without context: [...] -> [..., k, d]."""
        return self.sense_network.expand(self.token_hidden(input_ids, marks))

    def pooled_senses(self, batch: PackedBatch) -> Tensor:
        """Sense vectors o^(l) of each text at its pooled token, sum_j a[l,j] C(x_j)_l. [B, k, d]

        The trunk runs over the packed row, the sense network over the distinct token ids of the batch.
        """
        weights = self.pooled_weights(batch)
        ids, marks, inverse = self.distinct_tokens(batch)
        hidden = self.token_hidden(ids, marks)  # [U, f]
        # Weights of equal tokens are added up, so pooling is one product over the distinct ids.
        per_token = weights.transpose(1, 2)[batch.padding_mask()]  # [T, k]
        per_id = per_token.new_zeros((len(batch) * ids.shape[0], per_token.shape[-1]))
        per_id = per_id.index_add(0, batch.text_ids * ids.shape[0] + inverse, per_token)
        per_id = per_id.unflatten(0, (len(batch), -1)).transpose(1, 2)  # [B, k, U]
        return self.sense_network.project(per_id.to(hidden.dtype) @ hidden)


class BackpackPreTrainedModel(CheckedLoading, GPT2PreTrainedModel):
    """What all Backpack classes share: configuration, prefix and initialisation."""

    config: BackpackConfig
    config_class = BackpackConfig
    base_model_prefix = "backpack"
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]


class BackpackModel(SenseMixing, BackpackPreTrainedModel):
    """Trunk, sense network and contextual weights.

    ``forward`` gives the mix at all positions (language modelling, tests); rankers use :meth:`pooled_senses`,
    which is exact for the last position and never builds [n, k, d] senses or [k, n, n] weights.
    """

    _tied_weights_keys = {
        "word_embeddings.weight": "gpt2_model.wte.weight",
        "position_embeddings.weight": "gpt2_model.wpe.weight",
    }

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.gpt2_model = GPT2Model(config)
        # Further names of the trunk's embeddings in published files. Modules of their own with shared parameters:
        # of shared modules, transformers does not tell which keys a file lacks.
        self.word_embeddings = nn.Embedding(config.vocab_size, config.n_embd)
        self.position_embeddings = nn.Embedding(config.n_positions, config.n_embd)
        self.sense_network = SenseNetwork(config)
        self.token_vectors = TokenVectors()
        self.token_marks = TokenMarks()
        self.sense_weight_net = SenseWeightNetwork(config)
        self.post_init()
        use_fast_paths(self.gpt2_model)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.gpt2_model.wte

    def hidden_states(self, batch: PackedBatch) -> Tensor:
        """The trunk's last hidden states. [T, d]"""
        return packed_trunk(self.gpt2_model, batch)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BackpackOutput:
        """Mix of senses at every position (eq. 1). Texts may be padded on the left or on the right.

        Args:
            input_ids: [B, n].
            attention_mask: 1 at tokens, 0 at padding [B, n]; None when there is no padding.

        Raises:
            ValueError: the mask has a hole inside a text, or a text without a token.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
        check_padding(mask)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        hidden = self.gpt2_model(
            input_ids=input_ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        queries, keys = (part.transpose(1, 2) for part in self.sense_weight_net.split(hidden))
        senses = self.senses(input_ids).transpose(1, 2)  # [B, k, n, d]
        mixed = F.scaled_dot_product_attention(queries, keys, senses, **_causal(mask)).sum(dim=1)
        keep = mask[..., None].to(mixed.dtype)
        return BackpackOutput(mixed * keep, hidden * keep)


class BackpackLMHeadModel(BackpackPreTrainedModel):
    """Language model over a Backpack: softmax of E o_i with E tied to the word embeddings (eq. 2)."""

    _tied_weights_keys = {"lm_head.weight": "backpack.gpt2_model.wte.weight"}

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backpack = BackpackModel(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> CausalLMOutput:
        """Logits [B, n, vocabulary]; with ``labels`` [B, n] (-100 = left out) also the mean next-token loss."""
        logits = self.lm_head(self.backpack(input_ids, attention_mask).mixed)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)


def use_fast_paths(trunk: GPT2Model) -> None:
    """Packed attention, and torch's own tanh-gelu in place of the same function composed of seven operations."""
    trunk.set_attn_implementation(BACKEND)
    for block in cast("list[GPT2Block]", trunk.h):
        block.mlp.act = fast_activation(trunk.config.activation_function)


def fast_activation(name: str) -> nn.Module:
    """The activation of that name; ``gelu_new`` as torch's fused ``gelu(approximate="tanh")``."""
    return nn.GELU(approximate="tanh") if name in ("gelu_new", "gelu_pytorch_tanh") else ACT2FN[name]


def check_padding(mask: Tensor) -> None:
    """Raise ``ValueError`` unless every row of a [B, n] mask is one run of ones with zeros around it."""
    if (mask.sum(dim=1) == 0).any():
        raise ValueError("a text of the batch has no token: attention_mask has a row of zeros")
    starts = (mask[:, 1:] > mask[:, :-1]).sum(dim=1) + (mask[:, 0] > 0)
    if (starts > 1).any():
        row = int((starts > 1).nonzero()[0])
        raise ValueError(f"attention_mask row {row} has a hole inside the text; pad on the left or the right")


def _causal(mask: Tensor) -> dict[str, Any]:
    """Options of torch's attention for padded texts: causal, and no key at padding."""
    if bool(mask.all()):
        return {"is_causal": True}
    n = mask.shape[1]
    allowed = torch.ones((n, n), dtype=torch.bool, device=mask.device).tril() & mask.bool()[:, None, None, :]
    # A padding row sees itself, so that its softmax has something to sum to 1; its output is cleared later.
    return {"attn_mask": allowed | torch.eye(n, dtype=torch.bool, device=mask.device)}


class _TwoLayers(nn.Module):
    """Two linear layers in GPT-2's layout ([in, out] weights) with its activation between them."""

    def __init__(self, size: int, width: int, out: int, config: BackpackConfig) -> None:
        super().__init__()
        self.c_fc = Conv1D(width, size)
        self.c_proj = Conv1D(out, width)
        self.act = fast_activation(config.activation_function)

    def hidden(self, inputs: Tensor) -> Tensor:
        return self.act(self.c_fc(inputs))


class _SenseBlock(nn.Module):
    """Residual block of the sense network: layer norms and one MLP, no attention."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        d = config.n_embd
        self.ln_1 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.ln_2 = nn.LayerNorm(d, eps=config.layer_norm_epsilon)
        self.mlp = _TwoLayers(d, 4 * d, d, config)
        self.dropout_1 = nn.Dropout(config.resid_pdrop)
        self.dropout_2 = nn.Dropout(config.resid_pdrop)

    def forward(self, inputs: Tensor, residual: Tensor) -> Tensor:
        residual = self.dropout_1(inputs) + residual
        normed = self.ln_1(residual)
        residual = self.dropout_2(self.mlp.c_proj(self.mlp.hidden(normed))) + residual
        return self.ln_2(residual)
