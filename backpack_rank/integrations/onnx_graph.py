"""Rankers as a network over padded texts that torch can export.

Alpha and weights per sense are inputs of the network.

Everything else is in the graph: token types, which tokens are words of a class and not pieces of
other words, and the class means. So whoever runs it joins and pads texts, says where the dial is,
and reads scores.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from backpack_rank.integrations.onnx_joint import PaddedJointLayers
from backpack_rank.models.attribute_senses import AttributeSenses
from backpack_rank.models.backbone import BackboneMixin
from backpack_rank.models.configuration import BELOW_LAST
from backpack_rank.models.packed_body import TYPES, PackedBody, positions_behind_padding
from backpack_rank.models.pooled_map import PooledMap
from backpack_rank.models.rankers import (
    BackpackForRanking,
    CrossEncoderForRanking,
    GPT2ForRanking,
    Ranker,
)
from backpack_rank.models.sense_network import SenseNetwork
from backpack_rank.models.sequence_classifier import SequenceClassifierForRanking
from backpack_rank.models.similarity import with_similarity
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import input_embeddings


class RankerGraph(nn.Module):
    """Scores of padded texts.

    B texts, n tokens, k senses, d hidden size, e size of word embeddings.
    """

    head: Any
    backbone: nn.Module
    backpack: Any

    def __init__(
        self,
        ranker: Ranker,
        padding_id: int,
        shift: TokenShift | None = None,
        pooled_map: PooledMap | None = None,
    ) -> None:
        """
        Args:
            ranker: on the CPU, in fp32, in inference mode.
            padding_id: token that is read in place of whatever stands at padding.
            shift: tokens that the input ``alpha`` moves, at any alpha; None: the graph has no such
                input.
            pooled_map: what the input ``erase_alpha`` takes out of the vector that the head scores;
                None: the graph has no such input.

        Raises:
            ValueError: the ranker cannot be read as padded texts.
        """
        super().__init__()
        check_exportable(ranker)
        self.padding_id = padding_id
        self.shift = shift
        self.erased = _matrices_of(pooled_map)
        self.ranker = ranker
        self.head = ranker.head
        self.backpack = ranker.backpack if isinstance(ranker, BackpackForRanking) else None
        network: Any = ranker if self.backpack is None else self.backpack
        self.backbone = (
            network.transformer if isinstance(ranker, GPT2ForRanking) else network.backbone
        )
        self.keys_below = getattr(ranker.config, "sense_keys", None) == BELOW_LAST
        self.reads_last = getattr(ranker.config, "pooling", "last") == "last"
        self.separator_id = None
        text_config = getattr(ranker.config, "text_config", None)
        if getattr(text_config, "type_vocab_size", 0) > 1:
            self.separator_id = ranker.config.separator_id
        joint = getattr(network, "joint", None)
        self.joint: PaddedJointLayers | None = None
        if joint is not None:
            self.joint = PaddedJointLayers(self.backbone, joint, ranker.config.separator_id)
        self.attribute_senses = None if self.backpack is None else self.backpack.attribute_senses
        if shift is not None and self.attribute_senses is not None:
            raise ValueError(
                "a ranker with attribute senses is exported with weights per sense "
                "(policy=lowest_senses), not with paired tokens"
            )
        # Tensors that are computed once and kept are asked for here: torch cannot trace it.
        if shift is not None:
            _ = shift.classes.class_of
        with torch.no_grad():
            if self.backpack is not None:
                self.projection, self.offsets = _projection(self.backpack.sense_network)
            if self.attribute_senses is not None:
                _ = self.attribute_senses.trie
                if self.attribute_senses.queries == "neutral_only":
                    _ = self.attribute_senses.asking_trie
                self._keep_forms(self.attribute_senses)

    def _keep_forms(self, attribute_senses: AttributeSenses) -> None:
        """Constants of the F forms that attribute senses read in place of their pieces."""
        forms = torch.arange(len(attribute_senses.pieces))
        self.form_vectors = attribute_senses.context_vectors(self._embeddings.forward)  # [F, e]
        means, differences = attribute_senses.split(forms, self.backpack.token_hidden)
        self.form_means = means  # [F, f]
        self.form_differences = differences  # [F, f]
        group_numbers = attribute_senses.group_of.long()
        groups = torch.nn.functional.one_hot(group_numbers, attribute_senses.groups)
        self.form_groups = groups.to(means.dtype)  # [F, G]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        alpha: Tensor | None = None,
        sense_weights: Tensor | None = None,
        erase_alpha: Tensor | None = None,
    ) -> Tensor:
        """Raw logits [B].

        Args:
            input_ids: token ids of joined texts, padded on the right. int64 [B, n]
            attention_mask: 1 at tokens, 0 at padding. int64 [B, n]
            alpha: how much of its difference from its class a moved token keeps, for each text. [B,
                1]
            sense_weights: M_s, for each text; of Backpack rankers alone. [B, k]
            erase_alpha: the dial of the erased attribute, for each text. [B, 1]
        """
        mask = attention_mask.bool()
        ids = torch.where(mask, input_ids, self.padding_id)
        shift: Any = None if self.shift is None else replace(self.shift, alpha=alpha[:, :, None])  # type: ignore[index,arg-type]
        if self.attribute_senses is not None:
            assert sense_weights is not None
            return self._score(*self._split_mix(ids, mask, sense_weights), erase_alpha)

        no_forms = torch.full_like(ids, -1)
        pooled, hidden, similarity = self._read(ids, no_forms, mask, shift)
        if self.backpack is None:
            return self._score(pooled, similarity, erase_alpha)

        assert sense_weights is not None
        tokens = self.backpack.token_hidden(ids)  # h(x), [B, n, f]
        if shift is not None:
            is_word = shift.whole_words(ids.flatten())
            tokens = shift.hidden(tokens, ids, None if is_word is None else is_word.view_as(ids))
        weights = self._weights(hidden, pooled, mask)
        mix = self._mix(weights, tokens, sense_weights) + sense_weights @ self.offsets
        if similarity is not None:  # it belongs to all senses in equal parts
            similarity = similarity * sense_weights.mean(dim=1)
        return self._score(mix, similarity, erase_alpha)

    def _read(
        self, ids: Tensor, forms: Tensor, mask: Tensor, shift: TokenShift | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """States at the pooled token [B, d], those that keys are of [B, n, d], and the similarity.

        None where the ranker has no similarity, else [B].
        """
        if self.joint is not None:
            return self.joint(self._vectors(ids, forms, shift), ids, mask)
        places = mask.sum(dim=1) - 1 if self.reads_last else torch.zeros_like(ids[:, 0])
        if self.keys_below:
            # The pooled token's last state stands in front of the states below the last layer.
            options = {"rows": places, "is_token": mask, "keep_input": True}
            states = self._hidden(ids, forms, mask.long(), shift, options)
            return states[:, 0], states[:, 1:], None
        hidden = self._hidden(ids, forms, mask.long(), shift, {})
        return hidden[torch.arange(ids.shape[0]), places], hidden, None

    def _split_mix(
        self, ids: Tensor, mask: Tensor, sense_weights: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The mix of senses, of attributes too [B, d], and the similarity under the same weights.

        A form reads as the mean of its class; what it differs by is a sense of its group.
        """
        merged_ids, forms, merged_mask = self._joined_forms(ids, mask)
        pooled, hidden, similarity = self._read(merged_ids, forms, merged_mask, None)
        weights = self._weights(hidden, pooled, merged_mask)
        senses = self.backpack.config.num_senses
        weights_of_senses = sense_weights[:, :senses]
        weights_of_groups = sense_weights[:, senses:]

        is_form = (forms >= 0)[..., None]
        form_rows = forms.clamp(min=0)
        tokens = self.backpack.token_hidden(merged_ids)  # h(x), [B, n, f]
        tokens = torch.where(is_form, self.form_means[form_rows], tokens)
        mix = self._mix(weights, tokens, weights_of_senses) + weights_of_senses @ self.offsets
        differences = torch.where(is_form, self.form_differences[form_rows], 0.0)
        for group in range(weights_of_groups.shape[1]):
            of_group = differences * self.form_groups[form_rows][..., group, None]
            weight_of_group = weights_of_groups[:, group, None]
            mix = mix + self._mix(weights, of_group, weight_of_group.expand(-1, senses))
        if similarity is None:
            return mix, None

        # Of texts whose forms are read as one it belongs to all senses in equal parts; what the
        # forms add to it belongs to their groups.
        of_forms = self._similarity_of_texts(ids, mask) - similarity
        of_senses = similarity * weights_of_senses.mean(dim=1)
        return mix, of_senses + of_forms * self._weight_of_forms(forms, weights_of_groups)

    def _similarity_of_texts(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The similarity of texts as they are, no form read as its class. [B]"""
        assert self.joint is not None
        no_forms = torch.full_like(ids, -1)
        return self.joint.similarity(self._vectors(ids, no_forms, None), ids, mask)

    def _weight_of_forms(self, forms: Tensor, weights_of_groups: Tensor) -> Tensor:
        """The mean, over the forms of each text, of the weights of their groups. [B]"""
        is_form = (forms >= 0).float()
        groups = self.form_groups[forms.clamp(min=0)]  # [B, n, G]
        of_forms = (groups * weights_of_groups[:, None]).sum(dim=2)  # [B, n]
        return (of_forms * is_form).sum(dim=1) / is_form.sum(dim=1).clamp(min=1)

    def _score(
        self, vectors: Tensor, similarity: Tensor | None, erase_alpha: Tensor | None
    ) -> Tensor:
        """The head's scores of pooled vectors, of which something may be erased. [B, d] -> [B]"""
        if similarity is not None:
            vectors = with_similarity(vectors, similarity)
        scores: Tensor = self.head(_erased(vectors, self.erased, erase_alpha))
        return scores

    def _mix(self, weights: Tensor, tokens: Tensor, factors: Tensor) -> Tensor:
        """sum_l M_l W_l p_l in one product, which a quantiser knows how to treat. [B, d]"""
        return ((weights @ tokens) * factors[:, :, None]).flatten(1) @ self.projection

    def _joined_forms(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each form at one position, its later pieces taken out.

        Gives tokens, forms (-1: none) and mask, each [B, n].
        """
        attribute_senses = self.attribute_senses
        assert attribute_senses is not None
        may_be_form = mask
        if attribute_senses.where == "documents":
            # Separators before each position: a document stands behind the first one.
            separators = (ids == attribute_senses.separator_id).long()
            may_be_form = mask & ((separators.cumsum(1) - separators) > 0)
        if attribute_senses.queries == "neutral_only":
            may_be_form = may_be_form & ~self._asks(ids)[:, None]

        longest = attribute_senses.trie.longest
        n = ids.shape[1]
        windows = self._windows(ids, longest)
        forms = torch.where(may_be_form, attribute_senses.forms_of(windows), -1)
        lengths = torch.where(forms >= 0, attribute_senses.lengths[forms.clamp(min=0)], 0)
        kept = mask
        for place in range(1, longest):
            # Tokens that are the piece number `place` of a form that begins before them.
            is_later_piece = nn.functional.pad(lengths > place, (place, 0), value=False)[:, :n]
            kept = kept & ~is_later_piece

        # Tokens move up to where they stand without those that are left out; these go to a column
        # that is cut off.
        columns = torch.where(kept, kept.long().cumsum(1) - 1, n)

        def moved_up(values: Tensor, padding: int) -> Tensor:
            blank = torch.full((ids.shape[0], 1), padding, dtype=ids.dtype).expand(-1, n + 1)
            return blank.scatter(1, columns, values)[:, :n]

        is_token = torch.arange(n)[None] < kept.sum(dim=1, keepdim=True)
        # The last column took what was left out, where a text has no padding.
        moved_ids = moved_up(ids, self.padding_id)
        moved_forms = moved_up(forms, -1)
        return (
            torch.where(is_token, moved_ids, self.padding_id),
            torch.where(is_token, moved_forms, -1),
            is_token,
        )

    def _windows(self, ids: Tensor, longest: int) -> Tensor:
        """At each position the token before it, and as many as the longest word has. [B, n, L+2]"""
        n = ids.shape[1]
        row = nn.functional.pad(ids, (1, longest), value=self.attribute_senses.vocabulary)  # type: ignore[union-attr]
        return torch.stack([row[:, place : place + n] for place in range(longest + 2)], dim=2)

    def _asks(self, ids: Tensor) -> Tensor:
        """Which texts have a query that asks for a group. bool [B]"""
        attribute_senses = self.attribute_senses
        assert attribute_senses is not None
        separators = (ids == attribute_senses.separator_id).long()
        in_query = separators.cumsum(1) == 0
        windows = self._windows(ids, attribute_senses.asking_trie.longest)
        words = attribute_senses.forms_of(windows, attribute_senses.asking_trie)
        return ((words >= 0) & in_query).any(dim=1)

    @property
    def _embeddings(self) -> nn.Embedding:
        embeddings = input_embeddings(self.backbone)
        assert isinstance(embeddings, nn.Embedding)
        return embeddings

    def _hidden(
        self,
        ids: Tensor,
        forms: Tensor,
        attention_mask: Tensor,
        shift: TokenShift | None,
        of_last_layer: dict[str, Any],
    ) -> Tensor:
        """The backbone's last hidden states; see :mod:`~backpack_rank.models.pooled_layer`.

        [B, n, d]
        """
        vectors = self._vectors(ids, forms, shift)
        options = dict(of_last_layer)
        if self.separator_id is not None:
            # Token type 1 behind the first separator, as the backbone was trained.
            separators = (ids == self.separator_id).long()
            is_behind = (separators.cumsum(1) - separators) > 0
            options["token_type_ids"] = is_behind.long() * attention_mask
        return self.backbone(
            inputs_embeds=vectors, attention_mask=attention_mask, **options
        ).last_hidden_state

    def _vectors(self, ids: Tensor, forms: Tensor, shift: TokenShift | None) -> Tensor:
        """Word embeddings of tokens and forms. [B, n, e]"""
        vectors = self._embeddings.forward(ids)
        if self.attribute_senses is not None:
            is_form = (forms >= 0)[..., None]
            vectors = torch.where(is_form, self.form_vectors[forms.clamp(min=0)], vectors)
        if shift is not None:
            vectors = shift.embeddings(vectors, ids)
        return vectors

    def _weights(self, hidden: Tensor, pooled: Tensor, mask: Tensor) -> Tensor:
        """Contextual weights of each text, 0 at padding. [B, k, n]"""
        network = self.backpack.sense_weight_net
        queries, _ = network.split(pooled)  # [B, k, d / k]
        _, keys = network.split(hidden)  # [B, n, k, d / k]
        scale = queries.shape[-1] ** -0.5
        logits = (queries[:, :, None] @ keys.permute(0, 2, 3, 1))[:, :, 0] * scale
        return logits.masked_fill(~mask[:, None], float("-inf")).softmax(dim=-1)


class ClassifierGraph(nn.Module):
    """The same of a classifier that was trained elsewhere, whose weights it shares.

    Attributes:
        ranker: the classifier as it ranks, without padding.
    """

    def __init__(
        self,
        ranker: SequenceClassifierForRanking,
        padding_id: int,
        shift: TokenShift | None = None,
        pooled_map: PooledMap | None = None,
    ) -> None:
        """
        Args:
            ranker, padding_id, shift, pooled_map: as of :class:`RankerGraph`.

        Raises:
            ValueError: the ranker cannot be read as padded texts.
        """
        super().__init__()
        check_exportable(ranker)
        self.ranker = ranker
        self.padding_id = padding_id
        self.shift = shift
        self.erased = _matrices_of(pooled_map)
        # The ranker goes on reading without padding, by modules of its own over the same weights.
        weights = [*ranker.parameters(), *ranker.buffers()]
        padded = copy.deepcopy(ranker, {id(weight): weight for weight in weights})
        _unpack(padded.classifier)
        self.classifier = padded.classifier
        self.embeddings = padded.get_input_embeddings()
        self.pooled_head = None if pooled_map is None else padded.pooled_head
        if shift is not None:
            _ = shift.classes.class_of

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        alpha: Tensor | None = None,
        erase_alpha: Tensor | None = None,
    ) -> Tensor:
        """Raw logits, or differences of two [B]; arguments as of :class:`RankerGraph`."""
        ids = torch.where(attention_mask.bool(), input_ids, self.padding_id)
        vectors = self.embeddings(ids)
        if self.shift is not None and alpha is not None:
            shift: Any = replace(self.shift, alpha=alpha[:, :, None])  # type: ignore[arg-type]
            vectors = shift.embeddings(vectors, ids)
        inputs = {"inputs_embeds": vectors, "attention_mask": attention_mask}
        if self.ranker.has_types:
            inputs["token_type_ids"] = self.ranker.token_types(ids) * attention_mask
        positions = positions_behind_padding(self.classifier.config, ids)
        if positions is not None:
            inputs["position_ids"] = positions
        if self.pooled_head is None:
            return self.ranker.score_of(self.classifier(**inputs).logits)

        def erase(_head: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return _erased(arguments[0], self.erased, erase_alpha), *arguments[1:]

        handle = self.pooled_head.register_forward_pre_hook(erase)
        try:
            return self.ranker.score_of(self.classifier(**inputs).logits)
        finally:
            handle.remove()


def graph_of(
    ranker: Ranker,
    padding_id: int,
    shift: TokenShift | None = None,
    pooled_map: PooledMap | None = None,
) -> RankerGraph | ClassifierGraph:
    """The network to export for a ranker; arguments as of :class:`RankerGraph`.

    Raises:
        ValueError: the ranker cannot be read as padded texts.
    """
    if isinstance(ranker, SequenceClassifierForRanking):
        return ClassifierGraph(ranker, padding_id, shift, pooled_map)
    return RankerGraph(ranker, padding_id, shift, pooled_map)


def _matrices_of(pooled_map: PooledMap | None) -> tuple[Tensor, Tensor, Tensor] | None:
    """mu [d], B [d, r] and A [r, d] in fp32; None without a map."""
    if pooled_map is None:
        return None
    return pooled_map.mean.float(), pooled_map.left.float(), pooled_map.right.float()


def _erased(
    vectors: Tensor, matrices: tuple[Tensor, Tensor, Tensor] | None, erase_alpha: Tensor | None
) -> Tensor:
    """x - (1 - erase_alpha) B A (x - mu). [B, d]"""
    if matrices is None or erase_alpha is None:
        return vectors
    mean, left, right = matrices  # [d], [d, r], [r, d]
    # Products term by term: a quantiser would make integers of two matrix products.
    along = ((vectors - mean)[:, None] * right).sum(dim=2)  # [B, r]
    removed = (along[:, None] * left).sum(dim=2)  # [B, d]
    return vectors - (1 - erase_alpha) * removed


def _unpack(classifier: nn.Module) -> None:
    """Put the encoder that reads padded texts back in the place of :class:`PackedBody`."""
    for name, body in list(classifier.named_children()):
        if isinstance(body, PackedBody):
            setattr(classifier, name, body.padded())


def _is_packed(classifier: nn.Module) -> bool:
    return any(isinstance(body, PackedBody) for body in classifier.children())


def check_exportable(ranker: Ranker) -> None:
    """Refuse a ranker whose scores are not those of padded texts under one network.

    Raises ``ValueError`` for it.
    """
    if isinstance(ranker, SequenceClassifierForRanking):
        if not _is_packed(ranker.classifier):
            name = ranker.config.model_type
            raise ValueError(
                f"{ranker.label} cannot be exported here: of classifiers that were trained "
                f"elsewhere only encoders can ({', '.join(TYPES)}), and this one is of type "
                f"{name}; optimum exports it without the dial (optimum-cli export onnx --task "
                "text-classification)"
            )
        return
    exportable = (BackpackForRanking, CrossEncoderForRanking, GPT2ForRanking)
    if not isinstance(ranker, exportable):
        raise ValueError(
            f"{ranker.label} cannot be exported: only Backpacks and cross-encoders that "
            "this package trained can, which read query and document as one text, and classifiers "
            f"of others over encoders ({', '.join(TYPES)})"
        )
    if isinstance(ranker, BackpackForRanking) and ranker.config.input_form != "separated":
        raise ValueError(
            f"a ranker with input_form={ranker.config.input_form} cannot be exported: other "
            "programs put a separator between query and document and an end behind them"
        )
    network = ranker.backpack if isinstance(ranker, BackpackForRanking) else ranker
    if isinstance(network, BackboneMixin) and network.reads_one_by_one():
        name = network.config.backbone_config.model_type
        raise ValueError(
            f"a ranker over a backbone of type {name!r} cannot be exported: what it makes of a "
            "text depends on the padding beside it"
        )


def _projection(network: SenseNetwork) -> tuple[Tensor, Tensor]:
    """W_l of all senses, one below the other [k f, d], and b_l [k, d]."""
    layer = network.final_mlp.c_proj  # weight [f, k d], bias [k d]
    matrices = layer.weight.unflatten(1, (network.num_senses, -1)).transpose(0, 1)  # [k, f, d]
    offsets = layer.bias.unflatten(0, (network.num_senses, -1))
    return matrices.flatten(0, 1), offsets
