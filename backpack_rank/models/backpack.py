"""The Backpack network: non-contextual sense vectors of tokens, mixed by contextual weights.

Notation of the docstrings: B texts, T tokens of a packed row, n tokens of a text, d hidden size, k senses,
f = ``sense_intermediate_scale`` * d. Afzali et al., section 2 (eq. 1); Hewitt et al. 2023. Module names are those of
the published checkpoint ``stanfordnlp/backpack-gpt2``; its ``gpt2_model`` is ``backbone`` here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import CausalLMOutput
from transformers.pytorch_utils import Conv1D

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attribute_senses import AttributeSenses, GroupParts, SplitVectors
from backpack_rank.models.backbone import BackboneMixin, new_backbone
from backpack_rank.models.checkpoint import StrictLoading
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.sense_network import SenseNetwork, TokenStateCache
from backpack_rank.models.token_shift import TokenShift


@dataclass
class BackpackOutput:
    """Outputs at all positions: ``mixed`` [B, n, d] and the backbone's ``hidden`` [B, n, d]; 0 at padding."""

    mixed: Tensor
    hidden: Tensor


class SenseWeightNetwork(nn.Module):
    """Contextual weights a[l, i, j]: one attention head per sense, over the backbone's hidden states."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__()
        self.num_senses = config.num_senses
        self.c_attn = nn.Linear(config.hidden_size, 2 * config.hidden_size)

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


class BackpackPreTrainedModel(StrictLoading, PreTrainedModel):
    """What all Backpack classes share: configuration, prefix and initialisation."""

    config: BackpackConfig
    config_class = BackpackConfig
    base_model_prefix = "backpack"
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"\.attn\.(masked_)?bias$"]
    # Published files call the backbone gpt2_model.
    renamed_parts: ClassVar[dict[str, str]] = {
        r"^gpt2_model\.": "backbone.",
        r"^backpack\.gpt2_model\.": "backpack.backbone.",
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        std = self.config.initializer_range
        if isinstance(module, Conv1D):
            init.normal_(module.weight, mean=0.0, std=std)
            init.zeros_(module.bias)


class BackpackModel(BackboneMixin, BackpackPreTrainedModel):
    """A backbone that weighs, a network of senses per token that speaks, and the contextual weights between them.

    ``forward`` gives the mix at all positions (language modelling, tests); rankers use :meth:`pooled_senses`,
    which is exact for the pooled token and never builds [n, k, d] senses or [k, n, n] weights. The published GPT-2
    Backpack is the instance with a GPT-2 backbone.
    """

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        embeddings = self.backbone.get_input_embeddings()
        if config.backbone_config.model_type == "gpt2":
            # Further names of the embeddings in published files. Modules of their own with shared parameters:
            # of shared modules, transformers does not tell which keys a file lacks.
            self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
            self.position_embeddings = nn.Embedding(config.n_positions, config.hidden_size)
            self._tied_weights_keys = {
                "word_embeddings.weight": "backbone.wte.weight",
                "position_embeddings.weight": "backbone.wpe.weight",
            }
        self.sense_network = SenseNetwork(config, embeddings.embedding_dim)  # type: ignore[arg-type]
        self.sense_weight_net = SenseWeightNetwork(config)
        self.attribute_senses: AttributeSenses | None = None
        if config.attribute_senses is not None:
            self.attribute_senses = AttributeSenses(embeddings.num_embeddings, config.attribute_senses)  # type: ignore[arg-type]
        self.post_init()

    def read(self, batch: PackedBatch) -> PackedBatch:
        """The batch as the other methods take it: with attribute senses, each form of a class at one position.

        See :meth:`AttributeSenses.read`. A batch that was read already stays as it is.
        """
        return batch if self.attribute_senses is None else self.attribute_senses.read(batch)

    def hidden_states(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """The backbone's last hidden states, in the number format of the new parts. [T, d]"""
        if self.attribute_senses is None:
            return self._as_new(super().hidden_states(batch, token_shift))
        with self.attribute_senses.embedded(self.get_input_embeddings()):
            return self._as_new(super().hidden_states(batch, token_shift))

    def pooled_weights(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Contextual weights a[l, j] of each text at its pooled token. [B, k, n]"""
        hidden = self.hidden_states(batch, token_shift)
        return self.sense_weight_net.pooled(hidden, batch, self.pooled_positions(batch))

    def distinct_tokens(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Distinct token ids [U] and the row of each token of the batch among them [T].

        Between them stands, where a shift depends on it, whether a token is a word by itself: bool [U] or None. Equal
        ids are then two tokens where one is a word and the other a piece of one.
        """
        whole = None if token_shift is None else token_shift.whole_words(batch.input_ids)
        if whole is None:
            ids, inverse = batch.input_ids.unique(return_inverse=True)
            return ids, None, inverse
        keys, inverse = (2 * batch.input_ids + whole).unique(return_inverse=True)
        return keys // 2, keys % 2 == 1, inverse

    def token_hidden(self, input_ids: Tensor, sparse: bool = False) -> Tensor:
        """h(x) of token ids, the sense network's last hidden layer: [...] -> [..., f].

        Embeddings are read past the module that holds them: a hook on it concerns what the contextual network reads.

        Args:
            input_ids: token ids. [...]
            sparse: give the embeddings a sparse gradient. For a loss that reads the backbone too, whose dense gradient
                it is then added to: two dense ones would take the memory of the table once more.
        """
        weight = self.get_input_embeddings().weight
        return self.sense_network.hidden(self._as_new(F.embedding(input_ids, weight, sparse=sparse)))

    def senses(
        self, input_ids: Tensor, token_shift: TokenShift | None = None, whole_words: Tensor | None = None
    ) -> Tensor:
        """C(x) of token ids, without context: [...] -> [..., k, d].

        Args:
            input_ids: token ids. [...]
            token_shift: moves h(x) of some of them.
            whole_words: which of them are words by themselves, for the shift; None: all. bool [...]
        """
        hidden = self.token_hidden(input_ids)
        if token_shift is not None:
            hidden = token_shift.hidden(hidden, input_ids, whole_words)
        return self.sense_network.expand(hidden)

    def word_senses(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Sense vectors of a word, without context and in fp32: of the k senses [k, d], of the attributes [G, k d].

        Of a form, the class mean and, in the sense of its group, what sets it apart: the stack of W_l d over l. Of any
        other word of several tokens, the mean of their senses, and zeros.
        """
        device = self.get_input_embeddings().weight.device
        own = self.attribute_senses
        number = None if own is None else own.form_of(ids)
        groups = torch.zeros((len(self.config.groups), self.config.num_senses * self.config.hidden_size), device=device)
        if own is None or number is None:
            return self.senses(torch.tensor(ids, device=device)).float().mean(dim=0), groups
        mean, difference = own.split(torch.tensor([number], device=device), self.token_hidden)
        groups[int(own.group_of[number])] = self.sense_network.project_differences(difference).float().flatten()
        return self.sense_network.expand(mean)[0].float(), groups

    def pooled_senses(
        self,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
    ) -> Tensor:
        """Sense vectors o^(l) of each text at its pooled token, sum_j a[l,j] C(x_j)_l. [B, k + G, d]

        The backbone runs over the packed row, the sense network over the distinct token ids of the batch.

        Args:
            batch: the texts, as :meth:`read` gives them.
            token_shift: moves what is read of some tokens.
            token_states: remembers h(x) from batch to batch.
            split: False leaves what sets forms apart in the k senses, and gives these alone [B, k, d]. Their sum is the
                same, at less work.
        """
        return self.weighted_senses(self.pooled_weights(batch, token_shift), batch, token_shift, token_states, split)

    def weighted_senses(
        self,
        weights: Tensor,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
    ) -> Tensor:
        """Sense vectors of each text under contextual weights [B, k, n]; arguments of :meth:`pooled_senses`."""
        ids, whole, inverse = self.distinct_tokens(batch, token_shift)
        # Of a part of FSDP's flat parameter, torch wants whole gradients.
        sparse = weights.requires_grad and self.get_input_embeddings().weight.is_leaf
        vectors = self.distinct_hidden(ids, whole, token_shift, token_states, split, sparse)
        hidden = vectors.shared  # [U, f]
        # torch sums the gradients of all places of a token in the format of the table: at least fp32.
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32)) if hidden.requires_grad else hidden
        # Padding gets the first token's vector, with a weight of 0.
        tokens = F.embedding(batch.pad(inverse), wide).to(hidden.dtype)  # [B, n, f]
        senses = self.sense_network.project(weights.to(hidden.dtype) @ tokens)  # sum_j a[l, j] h(x_j), [B, k, f]
        if self.attribute_senses is None or not split:
            return senses
        return torch.cat([senses, self._group_senses(weights, batch, inverse, vectors)], dim=1)

    def distinct_hidden(
        self,
        ids: Tensor,
        whole: Tensor | None,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
        sparse: bool = False,
    ) -> SplitVectors:
        """h of distinct ids in ascending order, forms behind all tokens; arguments of :meth:`pooled_senses`.

        Args:
            ids: as :meth:`distinct_tokens` gives them. [U]
            whole: which of them are words by themselves, for the shift. bool [U] or None
            sparse: see :meth:`token_hidden`.
        """

        def compute(wanted: Tensor) -> Tensor:
            if token_states is None:
                return self.token_hidden(wanted, sparse=sparse)
            return token_states(wanted, self.token_hidden)

        if self.attribute_senses is None:
            hidden = compute(ids)
            return SplitVectors(hidden if token_shift is None else token_shift.hidden(hidden, ids, whole), None)
        tokens = int((ids < self.attribute_senses.vocabulary).sum())
        forms = ids[tokens:] - self.attribute_senses.vocabulary
        # One pass of the sense network for the tokens and for the pieces of the forms.
        asked = torch.cat([ids[:tokens], self.attribute_senses.asked_of(forms, split)]).unique()
        known = compute(asked)

        def of_pieces(pieces: Tensor) -> Tensor:
            return known[torch.searchsorted(asked, pieces)]

        hidden = known[torch.searchsorted(asked, ids[:tokens])]
        if token_shift is not None:
            hidden = token_shift.hidden(hidden, ids[:tokens], None if whole is None else whole[:tokens])
        if not split:
            own = self.attribute_senses.own_hidden(forms, of_pieces, token_shift)
            return SplitVectors(torch.cat([hidden, own]), None)
        means, differences = self.attribute_senses.split(forms, of_pieces, token_shift)
        return SplitVectors(torch.cat([hidden, means]), differences)

    def _group_senses(self, weights: Tensor, batch: PackedBatch, inverse: Tensor, vectors: SplitVectors) -> Tensor:
        """o_(k + g) of each text: sum_l sum_(j of group g) a[l, j] W_l d(x_j). [B, G, d]"""
        parts = self.group_parts(weights, batch, inverse, vectors)
        groups = len(self.config.groups)
        rows = batch.text_ids[parts.places] * groups + parts.groups
        sums = parts.vectors.new_zeros((len(batch) * groups, parts.vectors.shape[-1]))
        return sums.index_add(0, rows, parts.vectors).unflatten(0, (len(batch), groups))

    def group_parts(
        self,
        weights: Tensor,
        batch: PackedBatch,
        inverse: Tensor,
        vectors: SplitVectors,
        dtype: torch.dtype | None = None,
    ) -> GroupParts:
        """What each form of a batch adds to the sense of its group.

        Args:
            weights: contextual weights. [B, k, n]
            batch: as :meth:`read` gives it.
            inverse: row of each token among the distinct ones, of :meth:`distinct_tokens`. [T]
            vectors: of :meth:`distinct_hidden`, split.
            dtype: of the sums; None: that of the vectors.
        """
        attribute_senses, differences = self.attribute_senses, vectors.differences
        assert attribute_senses is not None
        assert differences is not None
        directions = self.sense_network.project_differences(differences)  # W_l d of each form, [W, k, d]
        directions = directions.to(dtype or directions.dtype)
        places = (batch.input_ids >= attribute_senses.vocabulary).nonzero().squeeze(-1)
        groups = attribute_senses.group_of[batch.input_ids[places] - attribute_senses.vocabulary].long()
        # The forms are the last W of the U distinct ids.
        numbers = inverse[places] - (len(vectors.shared) - len(differences))
        shares = weights[batch.text_ids[places], :, batch.position_ids[places]].to(directions.dtype)  # [c, k]
        return GroupParts(places, groups, torch.einsum("ck,ckd->cd", shares, directions[numbers]))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BackpackOutput:
        """Mix of senses at every position (eq. 1). Texts may be padded on the left or on the right.

        Every token has token type 0; a ranker's texts have two (:meth:`pooled_senses`). Forms of classes are read as
        they are: there is no document here.

        Args:
            input_ids: [B, n].
            attention_mask: 1 at tokens, 0 at padding [B, n]; None when there is no padding.

        Raises:
            ValueError: the mask has a hole inside a text, or a text without a token.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
        check_padding(mask)
        causal = self.config.pooling == "last"
        options: dict[str, Any] = {}
        if causal:
            options = {"position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0), "use_cache": False}
        hidden = self.backbone(input_ids=input_ids, attention_mask=mask, **options).last_hidden_state
        hidden = self._as_new(hidden)
        queries, keys = (part.transpose(1, 2) for part in self.sense_weight_net.split(hidden))
        senses = self.senses(input_ids).transpose(1, 2)  # [B, k, n, d]
        mixed = F.scaled_dot_product_attention(queries, keys, senses, **_masking(mask, causal)).sum(dim=1)
        keep = mask[..., None].to(mixed.dtype)
        return BackpackOutput(mixed * keep, hidden * keep)

    def _as_new(self, values: Tensor) -> Tensor:
        """Values of a backbone in half precision as the new parts compute; autocast does that by itself."""
        if torch.is_autocast_enabled(values.device.type):
            return values
        return values.to(self.sense_weight_net.c_attn.weight.dtype)


class BackpackLMHeadModel(BackpackPreTrainedModel):
    """Language model over a Backpack: softmax of E o_i with E tied to the word embeddings (eq. 2)."""

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        if not config.reads_left_to_right:
            name = config.backbone_config.model_type
            raise ValueError(f"a backbone of type {name!r} reads in both directions, so it is no language model")
        self.backpack = BackpackModel(config)
        table = self.backpack.get_input_embeddings()
        if table.embedding_dim != config.hidden_size:
            raise ValueError("word embeddings and hidden states differ in size, so the head cannot be tied to them")
        own = next(name for name, module in self.backpack.backbone.named_modules() if module is table)
        self._tied_weights_keys = {"lm_head.weight": f"backpack.backbone.{own}.weight"}
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
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


def check_padding(mask: Tensor) -> None:
    """Raise ``ValueError`` unless every row of a [B, n] mask is one run of ones with zeros around it."""
    if (mask.sum(dim=1) == 0).any():
        raise ValueError("a text of the batch has no token: attention_mask has a row of zeros")
    starts = (mask[:, 1:] > mask[:, :-1]).sum(dim=1) + (mask[:, 0] > 0)
    if (starts > 1).any():
        row = int((starts > 1).nonzero()[0])
        raise ValueError(f"attention_mask row {row} has a hole inside the text; pad on the left or the right")


def _masking(mask: Tensor, causal: bool) -> dict[str, Any]:
    """Options of torch's attention for padded texts: no key at padding and, of decoders, none behind the token."""
    if bool(mask.all()):
        return {"is_causal": causal}
    n = mask.shape[1]
    allowed = torch.ones((n, n), dtype=torch.bool, device=mask.device)
    allowed = (allowed.tril() if causal else allowed) & mask.bool()[:, None, None, :]
    # A padding row sees itself, so that its softmax has something to sum to 1; its output is cleared later.
    return {"attn_mask": allowed | torch.eye(n, dtype=torch.bool, device=mask.device)}
