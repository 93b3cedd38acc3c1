"""Attribute senses: what sets the words of a class apart is a sense, one for each group.

The construction is this project's own. A *form* is a word of a class as the tokenizer writes it, in
one token or several, such as " she" of {he, she} (:mod:`backpack_rank.models.word_forms`). C(x)_l
are the sense vectors of a token, W_l the projection they are linear in, h(x) the hidden layer below
it, w_l(j) the contextual weights. Two exact steps:

1. The contextual network reads all forms of a class as one: the mean of their embeddings, at one
   position. So w_l(j) cannot tell the words of a class apart, at any alpha. It has to be trained
   that way.
2. The hidden layer of a form is split into the mean over its class and the difference, h = m + d::

       o_l       = sum_j w_l(j) (W_l m(x_j) + b_l)                            l = 1 .. k
       o_(k + g) = sum_l sum_(j of group g) w_l(j) W_l d(x_j)                 g = 1 .. G

   The sum over all k + G senses is the same as before, so nothing changes at alpha = 1. Words
   outside classes have d = 0.

A text whose query asks for a group (:mod:`backpack_rank.attributes.group_queries`) is read without
either step, unless the ranker was made for ``queries=all``: every word keeps its meaning, the
senses of the groups are 0, and no alpha changes its score.

By eq. 4 of Afzali et al. the k senses have s_l = 1 on the words of classes, and the senses of the
groups 0, because one of the two vectors is zero. So the paper's rule, unchanged, picks the senses
of the groups. Where both steps are taken, texts that differ in forms of the same classes have the
same score at alpha = 0, whatever their numbers of tokens: at every position the networks read the
same vectors.

Notation of the docstrings: B texts, T tokens of all of them, V embeddings of tokens, F forms, L
pieces of the longest form, G groups of all attributes, e size of embeddings, f size of h(x), d
hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.group_queries import QUERIES
from backpack_rank.checks import one_of
from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.models.backbone import supports_packing
from backpack_rank.models.form_trie import ROOT, FormTrie
from backpack_rank.models.token_shift import TokenShift
from backpack_rank.models.utils import eval_mode
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.models.word_forms import WordForm, pieces_of_words, word_forms

WHERE = ("documents", "all")
"""Where forms are read as one and split: in documents, so that a query's words keep their meaning,
or everywhere."""


def add_attribute_senses(
    backpack: Any,
    tokenizer: PreTrainedTokenizerBase,
    attribute: Attribute,
    *,
    where: str = WHERE[0],
    queries: str = QUERIES[0],
    read_as_one: bool = True,
    separator_id: int,
) -> None:
    """Give a Backpack the senses of an attribute's groups, in place.

    ::

        gender = Attribute.named("gender")
        add_attribute_senses(ranker.backpack, tokenizer, gender, separator_id=102)

    A ranker that is trained with them gets both steps. One that was trained without gets step 2
    alone (``read_as_one=False``), which changes no score at alpha = 1; its contextual weights still
    tell the words of a class apart.

    Args:
        backpack: a :class:`~backpack_rank.models.backpack.BackpackModel`.
        tokenizer: its tokenizer.
        attribute: whose words: all its classes, wide ones included.
        where: one of :data:`WHERE`.
        queries: ``neutral_only``: texts whose query asks for a group are read as they are; ``all``:
            no text is.
        read_as_one: whether the contextual network reads the forms of a class as one.
        separator_id: token that a query ends with.

    Raises:
        ValueError: the Backpack has senses of this attribute already, a form is one of another
            attribute, ``where`` is unknown or another one than that of earlier attributes, the
            backbone has a further table of tokens, or see
            :func:`~backpack_rank.models.word_forms.word_forms`.
    """
    one_of("attribute_senses_where", where, WHERE)
    one_of("attribute_senses_queries", queries, QUERIES)
    config, earlier = backpack.config, backpack.attribute_senses
    if attribute.name in {name for name, _ in config.groups}:
        raise ValueError(f"the ranker has senses of {attribute.name} already")
    rows: list[FormRow] = []
    if earlier is not None:
        rows = earlier.rows()
        if earlier.where != where:
            raise ValueError(
                f"the ranker has attribute senses for words of {earlier.where}, and not of {where}"
            )
        if earlier.queries != queries:
            raise ValueError(
                f"the ranker has attribute senses for queries={earlier.queries}, and not {queries}"
            )
    forms = word_forms(
        tokenizer,
        attribute.classes(wide=True),
        attribute.group_of_words(),
        # A word of several tokens becomes one position, which changes what the network reads. It
        # has to be trained so.
        several_tokens=read_as_one,
    )
    if not supports_packing(config) and has_further_table(backpack, forms[-1].pieces):
        raise ValueError(
            f"a backbone of type {config.backbone_config.model_type!r} looks tokens up in more "
            "than one table, so it cannot read words of a class as one; "
            "model.ranker.attribute_senses=null trains without"
        )

    groups = _with_groups_of(attribute, forms, config.groups)
    rows = _with_rows_of(attribute, forms, rows, groups, read_as_one)
    asking: list[tuple[int, ...]] = []
    if queries == "neutral_only":
        asking = pieces_of_words(tokenizer, sorted(attribute.group_queries.words))
        # Those of earlier attributes ask for their groups.
        if earlier is not None:
            known = [tuple(row[row >= 0].tolist()) for row in earlier.asking]
            asking = list(dict.fromkeys([*known, *asking]))

    config.attribute_senses = {
        "groups": [list(group) for group in groups],
        "where": where,
        "queries": queries,
        "asking": len(asking),
        "asking_pieces": max(map(len, asking), default=1),
        "separator_id": separator_id,
        "forms": len(rows),
        "pieces": max(len(row.pieces) for row in rows),
    }
    embeddings = backpack.get_input_embeddings()
    senses = AttributeSenses(embeddings.num_embeddings, config.attribute_senses)
    senses.set_forms(rows, WordBoundaries.of(tokenizer))
    if asking:
        senses.asking.copy_(_padded(asking))
    backpack.attribute_senses = senses.to(embeddings.weight.device)


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Token ids in rows of equal length, -1 behind the last. int32 [rows, longest]"""
    tensors = [torch.tensor(row, dtype=torch.int32) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=-1)


def _with_groups_of(
    attribute: Attribute, forms: Sequence[WordForm], known: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The known groups and behind them those of the attribute that have a form.

    They stand as the attribute names its sides, further ones behind them by name.
    """
    groups_with_forms = {form.group for form in forms}
    groups = list(known)
    for group in dict.fromkeys((*attribute.sides, *sorted(groups_with_forms))):
        if group in groups_with_forms:
            groups.append((attribute.name, group))
    return groups


def _with_rows_of(
    attribute: Attribute,
    forms: Sequence[WordForm],
    known: Sequence[FormRow],
    groups: Sequence[tuple[str, str]],
    read_as_one: bool,
) -> list[FormRow]:
    """The known rows and behind them those of the attribute's forms, with classes of their own."""
    rows = list(known)
    taken = {row.pieces for row in rows}
    first_class = 1 + max((row.word_class for row in rows), default=-1)
    for form in forms:
        if form.pieces in taken:
            others = dict.fromkeys(name for name, _ in groups if name != attribute.name)
            raise ValueError(
                f"{form.word!r} is a word of {attribute.name} and of another attribute of this "
                f"ranker ({', '.join(others)}): a word has one sense of its own; "
                "take it out of one of the two lists of classes"
            )
        taken.add(form.pieces)
        sense = groups.index((attribute.name, form.group))
        rows.append(FormRow(form.pieces, first_class + form.word_class, sense, read_as_one))
    return rows


class FormRow(NamedTuple):
    """A form in the tables of :class:`AttributeSenses`.

    Attributes:
        pieces: its token ids.
        word_class: number of its class among the classes of all attributes.
        group: number of its group's sense, from 0 behind the k senses.
        read_as_one: whether the contextual network reads its class in its place (step 1).
    """

    pieces: tuple[int, ...]
    word_class: int
    group: int
    read_as_one: bool


class SplitVectors(NamedTuple):
    """Hidden layers of the U distinct ids of a batch, of which the last F are forms.

    Attributes:
        shared: h of a token; of a form m, the mean over its class, or h where nothing is split.
            [U, f]
        differences: d, what sets each form apart from its class; None where nothing is split.
            [F, f]
    """

    shared: Tensor
    differences: Tensor | None


class GroupParts(NamedTuple):
    """What the c forms of a batch add to the senses of their groups.

    Attributes:
        places: row index of each form in the batch. [c]
        groups: which group it is of. [c]
        vectors: sum_l a[l, j] W_l d(x_j). [c, d]
    """

    places: Tensor
    groups: Tensor
    vectors: Tensor


class AttributeSenses(nn.Module):
    """The forms of a ranker's attributes: where they stand in a batch, and what is read of them.

    Its tables are saved with the model. In a batch that was read (:meth:`read`), form f stands as
    id V + f, at one position.

    Attributes:
        pieces: token ids of each form, -1 behind its last. int32 [F, L]
        class_of, group_of: class and group of each form. int32 [F]
        read_as_one: whether the contextual network reads its class's mean in its place (step 1).
            bool [F]
        asking: token ids of each word with which a query asks for a group, -1 behind the last.
            int32 [A, M]
        continues, ends_inside_word: of each token, see
            :class:`~backpack_rank.models.word_boundaries.WordBoundaries`. bool [V]
    """

    pieces: Tensor
    class_of: Tensor
    group_of: Tensor
    read_as_one: Tensor
    asking: Tensor
    continues: Tensor
    ends_inside_word: Tensor

    def __init__(self, vocabulary: int, sizes: Mapping[str, Any]) -> None:
        """
        Args:
            vocabulary: V, rows of the embedding table.
            sizes: what :func:`add_attribute_senses` puts into a ranker's configuration.
        """
        super().__init__()
        self.vocabulary = vocabulary
        self.groups = len(sizes["groups"])
        self.where = sizes["where"]
        self.separator_id = sizes["separator_id"]
        # Rankers of before version 0.4 read all texts in the same way.
        self.queries = sizes.get("queries", "all")
        self._trie: FormTrie | None = None
        self._asking_trie: FormTrie | None = None
        forms, longest = sizes["forms"], sizes["pieces"]
        self.register_buffer("pieces", torch.full((forms, longest), -1, dtype=torch.int32))
        self.register_buffer("class_of", torch.zeros(forms, dtype=torch.int32))
        self.register_buffer("group_of", torch.zeros(forms, dtype=torch.int32))
        self.register_buffer("read_as_one", torch.ones(forms, dtype=torch.bool))
        if self.queries == "neutral_only":
            shape = sizes["asking"], sizes["asking_pieces"]
            self.register_buffer("asking", torch.full(shape, -1, dtype=torch.int32))
        self.register_buffer("continues", torch.zeros(vocabulary, dtype=torch.bool))
        self.register_buffer("ends_inside_word", torch.zeros(vocabulary, dtype=torch.bool))

    def set_forms(self, rows: Sequence[FormRow], boundaries: WordBoundaries) -> None:
        """Fill the tables, with the boundaries of the tokenizer."""
        self._trie = None
        self.pieces.copy_(_padded([row.pieces for row in rows]))
        self.class_of.copy_(torch.tensor([row.word_class for row in rows]))
        self.group_of.copy_(torch.tensor([row.group for row in rows]))
        self.read_as_one.copy_(torch.tensor([row.read_as_one for row in rows]))
        # A table of embeddings may have more rows than the tokenizer has tokens.
        tokens = len(boundaries.continues)
        self.continues[:tokens] = boundaries.continues
        self.ends_inside_word[:tokens] = boundaries.ends_inside_word

    def read(self, batch: PackedBatch) -> PackedBatch:
        """The batch with each form at one position, as id V + f.

        A batch that was read already stays unchanged.
        """
        return self.read_and_kept(batch)[0]

    def read_and_kept(self, batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
        """:meth:`read`, and which tokens of the batch still have a position.

        All have, but for the later pieces of forms. bool [T]
        """
        ids = batch.input_ids
        kept = torch.ones_like(ids, dtype=torch.bool)
        may_begin = kept if self.where == "all" else behind_separator(batch, self.separator_id)
        if self.queries == "neutral_only":
            may_begin = may_begin & ~self.asks(batch)[batch.text_ids]
        starts, forms = self.find(ids, may_begin, batch.text_ids)
        if len(starts) == 0:
            return batch, kept
        ids = ids.clone()
        ids[starts] = self.vocabulary + forms
        lengths = self.lengths[forms]
        read = replace(batch, input_ids=ids)
        if int(lengths.max()) == 1:
            return read, kept
        for place in range(1, self.pieces.shape[1]):
            kept[starts[lengths > place] + place] = False
        return read.select(kept), kept

    def with_classes(self, ids: np.ndarray) -> np.ndarray:
        """Whether two texts are the same to the contextual network. [n] -> [m]

        Gives the tokens of a text with one id for all forms of a class.
        """
        batch = PackedBatch.from_sequences([ids]).to(self.pieces.device)
        read = self.read(batch).input_ids
        is_form = read >= self.vocabulary
        forms = (read - self.vocabulary).clamp(min=0)
        # Forms that are not read as one get numbers behind those of all classes.
        apart = len(self.class_of) + forms
        classes = torch.where(self.read_as_one[forms], self.class_of[forms], apart)
        return torch.where(is_form, self.vocabulary + classes, read).cpu().numpy()

    def asks(self, batch: PackedBatch) -> Tensor:
        """Which texts have a query that asks for a group. bool [B]"""
        in_query = ~behind_separator(batch, self.separator_id)
        places, _ = self.find(batch.input_ids, in_query, batch.text_ids, self.asking_trie)
        asks = torch.zeros(len(batch), dtype=torch.bool, device=places.device)
        asks[batch.text_ids[places]] = True
        return asks

    def find(
        self,
        ids: Tensor,
        may_begin: Tensor,
        text_ids: Tensor,
        trie: FormTrie | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Where forms stand in a row of tokens: only whole words, and the longest at each place.

        Args:
            ids: token ids, one text behind the other. [T]
            may_begin: where forms may begin. bool [T]
            text_ids: which text a token is of; no word goes on in the next text. [T]
            trie: of other words to look for; None: of the forms.

        Returns:
            The places where forms begin [c], and their numbers [c].
        """
        trie = trie or self.trie
        tokens = ids.clamp(max=self.vocabulary)  # forms of a batch that was read become V, no token
        candidates = (trie.begins[tokens] & may_begin).nonzero().squeeze(-1)
        # A window reaches from the token before a candidate to the one behind its longest form,
        # because these may be of the same word. Beyond the ends of the text stands V, no token.
        row = F.pad(tokens, (1, trie.longest), value=self.vocabulary)
        texts = F.pad(text_ids, (1, trie.longest), value=-1)
        places = candidates[:, None] + torch.arange(trie.longest + 2, device=ids.device)
        same_text = texts[places] == text_ids[candidates, None]
        forms = self.forms_of(row[places].where(same_text, self.vocabulary), trie)
        is_form = forms >= 0
        return candidates[is_form], forms[is_form]

    def forms_of(self, windows: Tensor, trie: FormTrie | None = None) -> Tensor:
        """The form that begins at the second token of each window, -1 for none.

        Several may begin there; the longest is taken. No word may go on into it or beyond it.

        Args:
            windows: token ids, V where there is no token. [..., L + 2]
            trie: of other words than the forms.

        Returns:
            Numbers of forms. [...]
        """
        trie = trie or self.trie
        # The id V, no token, is of no word.
        no_word = torch.zeros(1, dtype=torch.bool, device=windows.device)
        continues = torch.cat([self.continues, no_word])[windows]
        inside = torch.cat([self.ends_inside_word, no_word])[windows]
        # joined[i]: token i + 1 of the window is of the same word as token i.
        joined = continues[..., 1:] & inside[..., :-1]

        nodes = torch.full_like(windows[..., 0], ROOT)
        longest = torch.full_like(nodes, -1)
        for place in range(1, windows.shape[-1] - 1):
            nodes = trie.step(nodes, windows[..., place])
            forms = trie.form_at[nodes]
            goes_on_behind = joined[..., place]
            longest = torch.where((forms >= 0) & ~goes_on_behind, forms, longest)
        goes_on_before = joined[..., 0]
        return torch.where(goes_on_before, -1, longest)

    @property
    def lengths(self) -> Tensor:
        """How many pieces each form has. [F]"""
        return (self.pieces >= 0).sum(dim=1)

    @property
    def trie(self) -> FormTrie:
        """The forms by their tokens; made when first used, and anew on another device."""
        if self._trie is None or self._trie.keys.device != self.pieces.device:
            self._trie = FormTrie.of(self.pieces, self.vocabulary)
        return self._trie

    @property
    def asking_trie(self) -> FormTrie:
        """The words with which queries ask for a group, likewise."""
        if self._asking_trie is None or self._asking_trie.keys.device != self.asking.device:
            self._asking_trie = FormTrie.of(self.asking, self.vocabulary)
        return self._asking_trie

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._trie = None
        self._asking_trie = None

    def form_of(self, pieces: Sequence[int]) -> int | None:
        """Number of the form with these token ids, None where there is none."""
        missing = self.pieces.shape[1] - len(pieces)
        if missing < 0:
            return None
        padded = torch.tensor([*pieces, *[-1] * missing], device=self.pieces.device)
        rows = (self.pieces == padded).all(dim=1).nonzero()
        return int(rows[0]) if len(rows) else None

    def rows(self) -> list[FormRow]:
        """The tables as :meth:`set_forms` takes them."""
        rows = []
        for form, pieces in enumerate(self.pieces):
            row = FormRow(
                pieces=tuple(pieces[pieces >= 0].tolist()),
                word_class=int(self.class_of[form]),
                group=int(self.group_of[form]),
                read_as_one=bool(self.read_as_one[form]),
            )
            rows.append(row)
        return rows

    @contextmanager
    def embedded(self, embeddings: nn.Module) -> Iterator[None]:
        """Within a ``with`` block, the backbone reads forms where a batch has them.

        Hooks, because a backbone of transformers looks its embeddings up by itself. It is given the
        first piece of a form, and what it looks up is replaced. Only a form of one token that is
        not read as one keeps the embedding, as a shift of tokens has moved it.
        """
        # Numbers of the forms, or less than 0: what the first hook leaves for the second.
        forms_of_calls: list[Tensor] = []

        def give_first_pieces(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            ids = inputs[0]
            forms = ids - self.vocabulary
            forms_of_calls.append(forms)
            first_pieces = self.pieces[forms.clamp(min=0), 0].to(ids.dtype)
            return ids.where(forms < 0, first_pieces), *inputs[1:]

        def replace_forms(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            forms = forms_of_calls.pop()
            other_vector = self.read_as_one | (self.lengths > 1)  # [F]
            replaced = (forms >= 0) & other_vector[forms.clamp(min=0)]
            if not bool(replaced.any()):
                return output
            lookup = _lookup(embeddings, output.requires_grad)
            vectors = self.context_vectors(lookup).to(output.dtype)
            return torch.where(replaced[..., None], vectors[forms.clamp(min=0)], output)

        handles = (
            embeddings.register_forward_pre_hook(give_first_pieces),
            embeddings.register_forward_hook(replace_forms),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def context_vectors(self, lookup: Callable[[Tensor], Tensor]) -> Tensor:
        """What the contextual network reads of each form, from embeddings of token ids. [F, e]"""
        vectors = self._over_pieces(self.pieces, lookup)
        means = self._class_means(vectors, self.class_of)
        return torch.where(self.read_as_one[:, None], means, vectors)

    def split(
        self, forms: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """h of some forms in two parts, h = m + d (step 2).

        Args:
            forms: numbers of forms. [W]
            hidden: h of token ids.
            shift: moves h of the forms that are one token; a piece of a word is no word.

        Returns:
            m, the mean over the class of each form [W, f], and d, its difference from it [W, f].
        """
        # All forms of the classes and no others, so that texts which differ in forms of the same
        # classes have the same means bit for bit.
        of_classes = torch.isin(self.class_of, self.class_of[forms])  # bool [F]
        vectors = self._hidden(self.pieces[of_classes], hidden, shift)
        means = self._class_means(vectors, self.class_of[of_classes])
        rows = (of_classes.cumsum(0) - 1)[forms]
        return means[rows], vectors[rows] - means[rows]

    def form_hidden(
        self, forms: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None = None
    ) -> Tensor:
        """h of some forms [W], the mean over their pieces; arguments of :meth:`split`. [W, f]"""
        return self._hidden(self.pieces[forms], hidden, shift)

    def _hidden(
        self, pieces: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None
    ) -> Tensor:
        vectors = self._over_pieces(pieces, hidden)
        if shift is None:
            return vectors
        is_one_token = (pieces >= 0).sum(dim=1) == 1
        return shift.hidden(vectors, pieces[:, 0].long(), is_one_token)

    def needed_pieces(self, forms: Tensor, split: bool) -> Tensor:
        """Token ids whose h :meth:`split` will look up, or without split :meth:`form_hidden`."""
        if split:
            pieces = self.pieces[torch.isin(self.class_of, self.class_of[forms])]
        else:
            pieces = self.pieces[forms]
        return pieces[pieces >= 0].long()

    def _over_pieces(self, pieces: Tensor, lookup: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean over the pieces of each form. [m, L] -> [m, w]"""
        is_piece = pieces >= 0
        rows = is_piece.nonzero()[:, 0]
        vectors = lookup(pieces[is_piece].long())
        sums = vectors.new_zeros((len(pieces), vectors.shape[-1])).index_add(0, rows, vectors)
        return sums / is_piece.sum(dim=1)[:, None]

    def _class_means(self, vectors: Tensor, classes: Tensor) -> Tensor:
        """Each row's mean over the rows of its class; each form counts once. [m, w] -> [m, w]"""
        classes = classes.long()
        counts = classes.bincount()
        sums = vectors.new_zeros((len(counts), vectors.shape[-1])).index_add(0, classes, vectors)
        return (sums / counts[:, None])[classes]


def has_further_table(backpack: Any, tokens: Sequence[int]) -> bool:
    """Whether a backbone looks tokens up in a table beside its word embeddings (Gemma 3n, Gemma 4).

    It reads some tokens to find out.
    """
    word_table = backpack.get_input_embeddings()
    device = next(backpack.parameters()).device
    batch = PackedBatch.from_sequences([[*tokens, *tokens]]).to(device)
    tables_of_tokens: list[nn.Module] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # Tables of positions or types are given other numbers.
        if inputs and torch.equal(inputs[0].flatten(), batch.input_ids):
            tables_of_tokens.append(module)

    handles = []
    for module in backpack.backbone.modules():
        if isinstance(module, nn.Embedding) and module is not word_table:
            handles.append(module.register_forward_pre_hook(note))
    try:
        with eval_mode(backpack), torch.no_grad():
            backpack.hidden_states(batch)
    finally:
        for handle in handles:
            handle.remove()
    return bool(tables_of_tokens)


def _lookup(embeddings: nn.Module, trained: bool) -> Callable[[Tensor], Tensor]:
    """Embeddings past the hooks, with a sparse gradient where the module is a plain table.

    A second dense gradient would take the memory of the table once more.
    """
    if type(embeddings) is not nn.Embedding:
        return embeddings.forward
    weight: Any = embeddings.weight
    return lambda ids: F.embedding(ids, weight, sparse=trained and weight.is_leaf)
