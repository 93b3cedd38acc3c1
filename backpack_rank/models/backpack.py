"""The Backpack network: sense vectors of single tokens, mixed by weights that depend on the text.

A network without context gives each token x one vector for each of k senses, C(x)_1 ... C(x)_k. A
contextual network, the backbone, reads the text and gives the weights. The vector at position i
mixes all senses of all tokens (Hewitt et al. 2023; Afzali et al., section 2, eq. 1):

    o_i = sum over senses l and tokens j of a[l, i, j] C(x_j)_l

A ranker reads a text at one token alone, the pooled one, and keeps the senses apart, because alpha
weighs each of them:

    o^(l) = sum_j a[l, j] C(x_j)_l                          one vector for each sense
          = sum_j a[l, j] (W_l h(x_j) + b_l)                C is linear in h, its last hidden layer
          = W_l (sum_j a[l, j] h(x_j)) + b_l                the weights of a sense sum to 1

The last line is what :meth:`BackpackModel.pooled_senses` computes: it projects once for each text
and sense, where the definition projects once for each token and sense.

A ranker with senses of attributes (:mod:`backpack_rank.models.attribute_senses`) reads each word of
a class, such as {he, she}, as one *form*, at one position. It splits h of a form into m, the mean
over the class, and the difference d = h - m. In the token ids of a batch, form f stands as V + f,
behind the V ids of the vocabulary. The k senses above then read m in place of h, and each
group g of an attribute, such as female, has one sense more:

    o^(k + g) = sum over senses l and forms j of group g of a[l, j] W_l d(x_j)

The sum over all k + G senses is the same with and without the split.

Notation of the docstrings: B texts, T tokens of all texts together, n tokens of the longest text, U
distinct tokens, of which F are forms, d hidden size, k senses, G senses of attributes (0 without),
f = ``sense_intermediate_scale`` * d, the size of h. Texts of a batch stand in one row of T tokens
(:class:`~backpack_rank.data.packing.PackedBatch`); ``batch.pad`` spreads it to [B, n, ...].

Module names are those of the published checkpoint ``stanfordnlp/backpack-gpt2``; its ``gpt2_model``
is ``backbone`` here.
"""

from __future__ import annotations

import inspect
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

from backpack_rank.data.packing import PackedBatch, picked
from backpack_rank.models.attribute_senses import AttributeSenses, GroupParts, SplitVectors
from backpack_rank.models.backbone import BackboneMixin, new_backbone
from backpack_rank.models.checkpoint import StrictLoading
from backpack_rank.models.configuration import BELOW_LAST, BackpackConfig
from backpack_rank.models.pooled_layer import check_pools_last_layer
from backpack_rank.models.sense_network import SenseNetwork, TokenStateCache
from backpack_rank.models.sense_weights import SenseWeightNetwork, SignedWeightNetwork
from backpack_rank.models.similarity import JointReading, with_similarity
from backpack_rank.models.token_shift import TokenShift


@dataclass
class BackpackOutput:
    """What :class:`BackpackModel` gives at all positions; 0 at padding.

    Attributes:
        mixed: o_i of eq. 1. [B, n, d]
        hidden: the backbone's last hidden states. [B, n, d]
    """

    mixed: Tensor
    hidden: Tensor


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
        # transformers initialises nn.Linear, but not GPT-2's linear layers.
        if isinstance(module, Conv1D):
            init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)
            init.zeros_(module.bias)


class BackpackModel(BackboneMixin, BackpackPreTrainedModel):
    """The sense vectors of texts or tokens, without a score; rankers hold one.

    >>> config = BackpackConfig(n_embd=32, n_layer=1, n_head=2, num_senses=4)
    >>> backpack = BackpackModel(config).eval()
    >>> batch = PackedBatch.from_sequences([[5, 9, 7], [8, 2]])
    >>> backpack.pooled_senses(batch).shape  # 2 texts, 4 senses
    torch.Size([2, 4, 32])
    >>> backpack.senses(torch.tensor([5])).shape  # 1 token, without context
    torch.Size([1, 4, 32])

    :meth:`pooled_senses` is exact for the pooled token and never builds [n, k, d] senses or
    [k, n, n] weights. ``forward`` gives the mix at all positions, for language modelling and tests.
    Any encoder or decoder can be the backbone; the published GPT-2 Backpack is one with a GPT-2.
    """

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        self.backbone = new_backbone(config)
        self._keys_below = config.sense_keys == BELOW_LAST
        if self._keys_below:
            check_pools_last_layer(self.backbone)
        embeddings = self.backbone.get_input_embeddings()
        if config.backbone_config.model_type == "gpt2":
            # Further names of the embeddings in published files. They are modules of their own with
            # shared parameters: of shared modules, transformers does not tell which keys a file
            # lacks.
            self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
            self.position_embeddings = nn.Embedding(config.n_positions, config.hidden_size)
            self._tied_weights_keys = {
                "word_embeddings.weight": "backbone.wte.weight",
                "position_embeddings.weight": "backbone.wpe.weight",
            }
        self.sense_network = SenseNetwork(config, embeddings.embedding_dim)  # type: ignore[arg-type]
        network: Any = SignedWeightNetwork if config.signed_weights else SenseWeightNetwork
        self.sense_weight_net: SenseWeightNetwork = network(config)
        self.joint = self.new_joint_layers()
        self.attribute_senses: AttributeSenses | None = None
        if config.attribute_senses is not None:
            vocabulary: int = embeddings.num_embeddings  # type: ignore[assignment]
            self.attribute_senses = AttributeSenses(vocabulary, config.attribute_senses)
        self.post_init()

    def pooled_senses(
        self,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
        texts: PackedBatch | None = None,
    ) -> Tensor:
        """Sense vectors o^(l) of each text at its pooled token. [B, k + G, d]

        With a similarity they have one number more, :meth:`_similarity_of_senses`.

        The backbone reads all T tokens, the sense network each distinct token of the batch once.

        Args:
            batch: the texts, as :meth:`read` gives them.
            token_shift: moves some tokens towards the mean of their class; None: none.
            token_states: remembers h(x) from batch to batch; None: h(x) is computed anew.
            split: False adds the senses of attributes to the k senses, and gives these alone
                [B, k, d]. The sum over senses is the same, and takes less time.
            texts: the batch before :meth:`read`, whose similarity counts; None: it is the same.
        """
        if self.joint is None:
            weights = self.pooled_weights(batch, token_shift)
            return self.weighted_senses(weights, batch, token_shift, token_states, split)
        # Rows with forms count in the similarity as they are written, too.
        rows = self._rows_with_forms(batch)
        others = None if texts is None or not len(rows) else picked(texts, rows)
        reading = self.read_jointly(batch, token_shift, others)
        weights = self.sense_weight_net.weights(reading.pooled, reading.below, batch)
        senses = self.weighted_senses(weights, batch, token_shift, token_states, split)
        merged = reading.similarity[: len(batch)]
        whole = merged
        if others is not None:
            whole = merged.index_copy(0, rows, reading.similarity[len(batch) :])
        return with_similarity(senses, self._similarity_of_senses(merged, whole, batch, split))

    def _rows_with_forms(self, batch: PackedBatch) -> Tensor:
        """Which texts of a batch, as :meth:`read` gives it, have forms. [b]"""
        if self.attribute_senses is None:
            return batch.text_ids[:0]
        return batch.text_ids[batch.input_ids >= self.attribute_senses.vocabulary].unique()

    def _similarity_of_senses(
        self, merged: Tensor, whole: Tensor, batch: PackedBatch, split: bool
    ) -> Tensor:
        """The part of each sense in the similarity; their sum is that of the texts as they are.

        The similarity of texts whose forms are read as one, sim_0, belongs to the k senses in equal
        parts. What the forms add to it, sim - sim_0, belongs to the senses of their groups, each in
        the share of the document's forms that it has. So weights of groups act on it as on the rest
        of what a word does, linearly in alpha.

        Args:
            merged: sim_0. [B]
            whole: sim. [B]
            batch: as :meth:`read` gives it.
            split: as of :meth:`pooled_senses`.

        Returns:
            float32 [B, k + G], or [B, k] where ``split`` is False.
        """
        senses = self.config.num_senses
        groups = len(self.config.groups)
        attribute_senses = self.attribute_senses
        if not split or attribute_senses is None:
            return (whole / senses)[:, None].expand(-1, senses)
        places = (batch.input_ids >= attribute_senses.vocabulary).nonzero().squeeze(-1)
        forms = batch.input_ids[places] - attribute_senses.vocabulary
        group_of_form = attribute_senses.group_of[forms].long()
        cells = batch.text_ids[places] * groups + group_of_form
        counts = cells.bincount(minlength=len(batch) * groups).view(-1, groups)
        shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
        of_groups = (whole - merged)[:, None] * shares
        of_senses = (merged / senses)[:, None].expand(-1, senses)
        return torch.cat([of_senses, of_groups], dim=1)

    def similarity_parts(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """See :meth:`BackboneMixin.similarity_parts`."""
        if self.attribute_senses is None:
            return super().similarity_parts(batch, token_shift)
        with self.attribute_senses.embedded(self.get_input_embeddings()):
            return super().similarity_parts(batch, token_shift)

    def read_jointly(
        self,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        others: PackedBatch | None = None,
    ) -> JointReading:
        """See :meth:`BackboneMixin.read_jointly`; forms are read where the batch has them."""
        if self.attribute_senses is None:
            return super().read_jointly(batch, token_shift, others)
        with self.attribute_senses.embedded(self.get_input_embeddings()):
            return super().read_jointly(batch, token_shift, others)

    def read(self, batch: PackedBatch) -> PackedBatch:
        """The batch as the other methods take it: with attribute senses, each form at one position.

        A form is a word of a class, in one token or several: see :meth:`AttributeSenses.read`. A
        batch from this method is returned unchanged.
        """
        if self.attribute_senses is None:
            return batch
        return self.attribute_senses.read(batch)

    def _read(
        self, batch: PackedBatch, token_shift: TokenShift | None, options: dict[str, Any]
    ) -> Tensor:
        """States of the backbone, in the number format of the new parts."""
        if self.attribute_senses is None:
            states = super()._read(batch, token_shift, options)
        else:
            # The table has no rows for forms: in this block, a lookup of theirs is replaced.
            with self.attribute_senses.embedded(self.get_input_embeddings()):
                states = super()._read(batch, token_shift, options)
        return self._in_format_of_new_parts(states)

    def weight_states(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the sense weights are made of: states for queries [B, d] and for keys [T, d].

        The first are the backbone's last hidden states at the pooled tokens, which the mix of
        senses is trained to resemble. Keys are read from the last hidden states too, or from below
        the last layer, as ``sense_keys`` of the configuration says.
        """
        if self.joint is not None:
            reading = self.read_jointly(batch, token_shift)
            return reading.pooled, reading.below
        if self._keys_below:
            return self.pooled_and_below(batch, token_shift)
        hidden = self.hidden_states(batch, token_shift)
        return hidden[self.pooled_positions(batch)], hidden

    def pooled_weights(self, batch: PackedBatch, token_shift: TokenShift | None = None) -> Tensor:
        """Contextual weights a[l, j] of each text at its pooled token. [B, k, n]"""
        of_queries, of_keys = self.weight_states(batch, token_shift)
        return self.sense_weight_net.weights(of_queries, of_keys, batch)

    def weighted_senses(
        self,
        weights: Tensor,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
    ) -> Tensor:
        """Sense vectors under given contextual weights [B, k, n]; see :meth:`pooled_senses`."""
        ids, whole_words, rows = self.distinct_tokens(batch, token_shift)
        # Sparse gradients save memory (see token_hidden). Only a leaf can take them: FSDP makes the
        # table a part of one flat parameter, whose gradient torch wants dense.
        sparse = weights.requires_grad and self.get_input_embeddings().weight.is_leaf
        vectors = self.distinct_hidden(ids, whole_words, token_shift, token_states, split, sparse)
        hidden = vectors.shared  # h of the distinct tokens, [U, f]
        if hidden.requires_grad:
            # Torch adds up the gradients of all places of a token in the table's own format, and
            # half precision loses small ones.
            table = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        else:
            table = hidden
        # At padding, pad() gives row 0, a vector of some token. Its weight a is 0.
        tokens = F.embedding(batch.pad(rows), table).to(hidden.dtype)  # h(x_j), [B, n, f]
        pooled = weights.to(hidden.dtype) @ tokens  # sum_j a[l, j] h(x_j), [B, k, f]
        senses = self.sense_network.project(pooled)  # [B, k, d]
        if self.attribute_senses is None or not split:
            return senses
        return torch.cat([senses, self._group_senses(weights, batch, rows, vectors)], dim=1)

    def logit_parts(
        self,
        direction: Tensor,
        batch: PackedBatch,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
    ) -> Tensor:
        """What each sense adds to a linear head's logit at every position of each text.

        With w the head's direction, sense l adds at position i:

            w . o_i^(l) = sum_j a[l, i, j] (w . C(x_j)_l)

        So each sense is an attention head whose values are single numbers, w . C(x_j)_l, and no
        vector of any sense is built. The logit under weights M_l is sum_l M_l of these numbers:
        one pass over the texts serves all alphas. Dropout in the senses is left out.

        Args:
            direction: w. [d]
            batch, token_shift, token_states, split: as in :meth:`pooled_senses`.

        Returns:
            [B, k + G, n], or [B, k, n] where ``split`` is False; NaN behind the end of a text.
        """
        if self._keys_below:
            hidden, below = self.last_and_below(batch, token_shift)
        else:
            hidden, below = self.hidden_states(batch, token_shift), None
        # Into queries and keys; ``split`` above is about attribute senses.
        queries, keys = self.sense_weight_net.split(hidden, below)  # two of [T, k, d / k]
        ids, whole_words, rows = self.distinct_tokens(batch, token_shift)
        vectors = self.distinct_hidden(ids, whole_words, token_shift, token_states, split)
        probes, offsets = self.sense_network.probes(direction)  # W_l^T w [f, k] and w . b_l [k]
        values = (vectors.shared @ probes + offsets)[rows]  # w . C(x_j)_l, [T, k]
        values = values[..., None]
        if self.attribute_senses is not None and split:
            groups = self._group_values(batch, rows, vectors, probes)
            values = torch.cat([values, groups], dim=-1)  # [T, k, 1 + G]
        causal = self.config.pooling == "last"  # decoders, whose tokens see none behind them
        mixed = F.scaled_dot_product_attention(
            batch.pad(queries).transpose(1, 2),
            batch.pad(keys).transpose(1, 2),
            batch.pad(values.to(queries.dtype)).transpose(1, 2),
            **_attention_mask(batch.padding_mask().long(), causal),
        )  # [B, k, n, 1 + G]
        parts = mixed[..., 0]
        if values.shape[-1] > 1:
            # A group has one sense, the sum over the k senses' directions of its differences.
            of_groups = mixed[..., 1:].sum(dim=1).transpose(1, 2)  # [B, G, n]
            parts = torch.cat([parts, of_groups], dim=1)
        is_padding = ~batch.padding_mask()[:, None]
        return parts.float().masked_fill(is_padding, float("nan"))

    def _group_values(
        self, batch: PackedBatch, rows: Tensor, vectors: SplitVectors, probes: Tensor
    ) -> Tensor:
        """w . W_l d(x_j) in the column of the group that a form belongs to, else 0. [T, k, G]"""
        attribute_senses, differences = self.attribute_senses, vectors.differences
        assert attribute_senses is not None
        assert differences is not None
        groups = len(self.config.groups)
        values = probes.new_zeros((len(batch.input_ids), probes.shape[1], groups))
        places = (batch.input_ids >= attribute_senses.vocabulary).nonzero().squeeze(-1)
        forms = batch.input_ids[places] - attribute_senses.vocabulary
        # The forms are the last F of the U distinct tokens.
        first_form = len(vectors.shared) - len(differences)
        of_places = (differences @ probes)[rows[places] - first_form]  # [c, k]
        values[places, :, attribute_senses.group_of[forms].long()] = of_places.to(values.dtype)
        return values

    def distinct_tokens(
        self, batch: PackedBatch, token_shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The distinct tokens of a batch, so that the sense network computes each of them once.

        A token shift moves " she" as a word and leaves it in "sheets". Under such a shift, equal
        ids are two distinct tokens where one is a word by itself and the other a piece of one.

        Returns:
            Token ids in ascending order [U]; whether each is a word by itself, bool [U], or None
            where h(x) does not depend on it; and for each token of the batch, its row among them
            [T].
        """
        whole_words = None if token_shift is None else token_shift.whole_words(batch.input_ids)
        if whole_words is None:
            ids, rows = batch.input_ids.unique(return_inverse=True)
            return ids, None, rows
        # The lowest bit holds "is a word", so sorted keys are sorted ids too.
        keys, rows = (2 * batch.input_ids + whole_words).unique(return_inverse=True)
        return keys // 2, keys % 2 == 1, rows

    def distinct_hidden(
        self,
        ids: Tensor,
        whole_words: Tensor | None,
        token_shift: TokenShift | None = None,
        token_states: TokenStateCache | None = None,
        split: bool = True,
        sparse: bool = False,
    ) -> SplitVectors:
        """h of the distinct tokens of a batch; forms of classes stand behind all other tokens.

        Args:
            ids, whole_words: as :meth:`distinct_tokens` gives them. [U]
            token_shift, token_states, split: as in :meth:`pooled_senses`.
            sparse: see :meth:`token_hidden`.
        """
        attribute_senses = self.attribute_senses
        if attribute_senses is None:
            hidden = self._cached_hidden(ids, token_states, sparse)
            if token_shift is not None:
                hidden = token_shift.hidden(hidden, ids, whole_words)
            return SplitVectors(hidden, None)

        # Form f has the id V + f, so in ascending order all forms come last.
        count = int((ids < attribute_senses.vocabulary).sum())
        token_ids = ids[:count]
        forms = ids[count:] - attribute_senses.vocabulary
        # One pass of the sense network for the tokens and for the pieces of the forms together.
        needed = torch.cat([token_ids, attribute_senses.needed_pieces(forms, split)]).unique()
        computed = self._cached_hidden(needed, token_states, sparse)

        def lookup(pieces: Tensor) -> Tensor:
            return computed[torch.searchsorted(needed, pieces)]

        hidden = lookup(token_ids)
        if token_shift is not None:
            words = None if whole_words is None else whole_words[:count]
            hidden = token_shift.hidden(hidden, token_ids, words)
        if not split:
            unsplit = attribute_senses.form_hidden(forms, lookup, token_shift)
            return SplitVectors(torch.cat([hidden, unsplit]), None)
        means, differences = attribute_senses.split(forms, lookup, token_shift)
        return SplitVectors(torch.cat([hidden, means]), differences)

    def _cached_hidden(
        self, ids: Tensor, token_states: TokenStateCache | None, sparse: bool
    ) -> Tensor:
        """h(x) of token ids, from the cache where there is one. [U] -> [U, f]"""
        if token_states is None:
            return self.token_hidden(ids, sparse=sparse)
        return token_states(ids)

    def _group_senses(
        self, weights: Tensor, batch: PackedBatch, rows: Tensor, vectors: SplitVectors
    ) -> Tensor:
        """o^(k + g) of each text: sum_l sum_(j of group g) a[l, j] W_l d(x_j). [B, G, d]"""
        parts = self.group_parts(weights, batch, rows, vectors)
        groups = len(self.config.groups)
        # index_add sums over one index, so each (text, group) is a row of a flat table first.
        sums = parts.vectors.new_zeros((len(batch) * groups, parts.vectors.shape[-1]))
        row_of_part = batch.text_ids[parts.places] * groups + parts.groups
        return sums.index_add(0, row_of_part, parts.vectors).unflatten(0, (len(batch), groups))

    def group_parts(
        self,
        weights: Tensor,
        batch: PackedBatch,
        rows: Tensor,
        vectors: SplitVectors,
        dtype: torch.dtype | None = None,
    ) -> GroupParts:
        """What each form of a batch adds to the sense of its group, at each of its c places.

        Args:
            weights: contextual weights. [B, k, n]
            batch: as :meth:`read` gives it.
            rows: row of each token among the distinct ones, of :meth:`distinct_tokens`. [T]
            vectors: of :meth:`distinct_hidden`, split.
            dtype: of the sums; None: that of the vectors.
        """
        attribute_senses, differences = self.attribute_senses, vectors.differences
        assert attribute_senses is not None
        assert differences is not None
        projected = self.sense_network.project_differences(differences)  # W_l d of forms, [F, k, d]
        projected = projected.to(dtype or projected.dtype)
        places = (batch.input_ids >= attribute_senses.vocabulary).nonzero().squeeze(-1)  # [c]
        forms = batch.input_ids[places] - attribute_senses.vocabulary
        groups = attribute_senses.group_of[forms].long()
        # The forms are the last F of the U distinct tokens.
        first_form = len(vectors.shared) - len(differences)
        projected = projected[rows[places] - first_form]  # [c, k, d]
        weights_at_forms = weights[batch.text_ids[places], :, batch.position_ids[places]]  # [c, k]
        sums = torch.einsum("ck,ckd->cd", weights_at_forms.to(projected.dtype), projected)
        return GroupParts(places, groups, sums)

    def token_hidden(self, input_ids: Tensor, sparse: bool = False) -> Tensor:
        """h(x) of token ids, the sense network's last hidden layer: [...] -> [..., f].

        Args:
            input_ids: token ids. [...]
            sparse: give the embeddings a sparse gradient. For a loss that reads the backbone too,
                whose dense gradient it is then added to: two dense ones would take the memory of
                the table once more.
        """
        # The weight is used and not the module that holds it: hooks of the module, such as a token
        # shift, are for what the backbone reads.
        weight = self.get_input_embeddings().weight
        embeddings = F.embedding(input_ids, weight, sparse=sparse)
        return self.sense_network.hidden(self._in_format_of_new_parts(embeddings))

    def senses(
        self,
        input_ids: Tensor,
        token_shift: TokenShift | None = None,
        whole_words: Tensor | None = None,
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
        """Sense vectors of a word, without context and in fp32.

        Args:
            ids: token ids of the word.

        Returns:
            The k senses [k, d], and the senses of attributes [G, k d], where a row holds a vector
            for each of the k senses, side by side.

            For a form of a class, the k senses are the mean of the class. The row of its group has
            W_l d, the difference from that mean. For any other word, the k senses are the mean over
            its tokens, and all rows are 0.
        """
        device = self.get_input_embeddings().weight.device
        width = self.config.num_senses * self.config.hidden_size
        groups = torch.zeros((len(self.config.groups), width), device=device)
        attribute_senses = self.attribute_senses
        form = None if attribute_senses is None else attribute_senses.form_of(ids)
        if attribute_senses is None or form is None:
            senses = self.senses(torch.tensor(ids, device=device))  # [tokens, k, d]
            return senses.float().mean(dim=0), groups
        forms = torch.tensor([form], device=device)
        mean, difference = attribute_senses.split(forms, self.token_hidden)
        directions = self.sense_network.project_differences(difference)
        groups[int(attribute_senses.group_of[form])] = directions.float().flatten()
        return self.sense_network.expand(mean)[0].float(), groups

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BackpackOutput:
        """Mix of senses at every position (eq. 1). Texts may be padded on the left or on the right.

        Every token has token type 0, where a ranker's texts have two (:meth:`pooled_senses`).
        Attribute senses are left out: they are about a document behind its query, and a text here
        has neither.

        Args:
            input_ids: [B, n].
            attention_mask: 1 at tokens, 0 at padding [B, n]; None when there is no padding.

        Raises:
            ValueError: the mask has a hole inside a text, or a text without a token.
        """
        if attention_mask is None:
            mask = torch.ones_like(input_ids)
        else:
            mask = attention_mask.to(input_ids.dtype)
        check_padding(mask)
        causal = self.config.pooling == "last"  # decoders
        options: dict[str, Any] = {}
        arguments = inspect.signature(self.backbone.forward).parameters
        if "position_ids" in arguments:
            # Positions are counted from the first token of a text, also where padding is before it.
            place = (mask.cumsum(dim=1) - 1).clamp(min=0)
            options["position_ids"] = place + self.config.first_position
        if causal and "use_cache" in arguments:
            options["use_cache"] = False
        if self._keys_below:
            options["keep_input"] = True
        output = self.backbone(input_ids=input_ids, attention_mask=mask, **options)
        hidden, below = self._in_format_of_new_parts(output.last_hidden_state), None
        if self._keys_below:
            hidden, below = hidden.chunk(2, dim=1)
        queries, keys = self.sense_weight_net.split(hidden, below)  # two of [B, n, k, d / k]
        # A sense is an attention head: its weights a[l, i, j] mix the values C(x_j)_l.
        mixed = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            self.senses(input_ids).transpose(1, 2),  # [B, k, n, d]
            **_attention_mask(mask, causal),
        ).sum(dim=1)
        is_token = mask[..., None].to(mixed.dtype)
        return BackpackOutput(mixed * is_token, hidden * is_token)

    def _in_format_of_new_parts(self, values: Tensor) -> Tensor:
        """Values of the backbone in the number format of the parts above it (weights, senses).

        A backbone in half precision has parts in float32 above it. Autocast converts by itself.
        """
        if torch.is_autocast_enabled(values.device.type):
            return values
        return values.to(next(self.sense_weight_net.parameters()).dtype)


class BackpackLMHeadModel(BackpackPreTrainedModel):
    """A Backpack that is pretrained as a language model, or was.

    Softmax of E o_i with E tied to the word embeddings (Afzali et al., eq. 2).

    >>> config = BackpackConfig(n_embd=32, n_layer=1, n_head=2, num_senses=4)
    >>> model = BackpackLMHeadModel(config).eval()
    >>> model(torch.tensor([[5, 9, 7]])).logits.shape
    torch.Size([1, 3, 50257])

    Raises:
        ValueError: the backbone reads in both directions, or its word embeddings are narrower than
            its hidden states.
    """

    def __init__(self, config: BackpackConfig) -> None:
        super().__init__(config)
        if not config.reads_left_to_right:
            name = config.backbone_config.model_type
            raise ValueError(
                f"a backbone of type {name!r} reads in both directions, so it is no language model"
            )
        self.backpack = BackpackModel(config)
        table = self.backpack.get_input_embeddings()
        if table.embedding_dim != config.hidden_size:
            raise ValueError(
                "word embeddings and hidden states differ in size, so the head cannot be tied to "
                "them"
            )
        # Backbones call their table differently, and transformers ties weights by name.
        modules = self.backpack.backbone.named_modules()
        table_name = next(name for name, module in modules if module is table)
        self._tied_weights_keys = {"lm_head.weight": f"backpack.backbone.{table_name}.weight"}
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> CausalLMOutput:
        """Logits of the next token, and with labels their loss.

        Args:
            input_ids: [B, n].
            attention_mask: as in :meth:`BackpackModel.forward`.
            labels: the tokens to be predicted, -100 where none is; the loss of each is taken at the
                position before it. [B, n]

        Returns:
            Logits [B, n, vocabulary], and the mean loss or None.
        """
        logits = self.lm_head(self.backpack(input_ids, attention_mask).mixed)
        loss = None
        if labels is not None:
            predictions = logits[:, :-1].flatten(0, 1).float()
            loss = F.cross_entropy(predictions, labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)


def check_padding(mask: Tensor) -> None:
    """Raise ``ValueError`` unless each row of a [B, n] mask is one run of ones amid zeros."""
    if (mask.sum(dim=1) == 0).any():
        raise ValueError("a text of the batch has no token: attention_mask has a row of zeros")
    # A run starts at the first place or where a one follows a zero.
    runs = (mask[:, 1:] > mask[:, :-1]).sum(dim=1) + (mask[:, 0] > 0)
    if (runs > 1).any():
        row = int((runs > 1).nonzero()[0])
        raise ValueError(
            f"attention_mask row {row} has a hole inside the text; pad on the left or the right"
        )


def _attention_mask(mask: Tensor, causal: bool) -> dict[str, Any]:
    """Options of torch's attention: no key is padding and, of decoders, none is a later token."""
    # Torch's fast kernels take no mask but this one.
    if bool(mask.all()):
        return {"is_causal": causal}
    n = mask.shape[1]
    allowed = torch.ones((n, n), dtype=torch.bool, device=mask.device)
    if causal:
        allowed = allowed.tril()
    allowed = allowed & mask.bool()[:, None, None, :]
    # A padding row sees itself, so that its softmax has something to sum to 1. Its output is
    # cleared.
    itself = torch.eye(n, dtype=torch.bool, device=mask.device)
    return {"attn_mask": allowed | itself}
