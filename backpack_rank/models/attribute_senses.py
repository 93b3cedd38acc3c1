"""Attribute senses: what sets the words of a class apart is a sense of its own, one for each group of an attribute.

Two exact steps at the level of the Backpack (the construction is this project's own). A *form* is a word of a class as
the tokenizer writes it, one token or several, such as " she" of {he, she}; C(x)_l are the sense vectors of a token,
W_l the projection they are linear in, h(x) the hidden layer below it, w_l(j) the contextual weights:

1. The contextual network reads all forms of a class as one: the mean of their embeddings, at one position. So w_l(j)
   cannot tell the words of a class apart, at any alpha. It has to be trained that way.
2. The sense vectors of a form are split into the mean over its class and the difference, h = m + d::

       o_l       = sum_j w_l(j) (W_l m(x_j) + b_l)                            l = 1 .. k
       o_(k + g) = sum_l sum_(j of group g) w_l(j) W_l d(x_j)                 g = 1 .. G

   The sum over all k + G senses is what it was, so nothing changes at alpha = 1. Words outside classes have d = 0.

By eq. 4 of Afzali et al. the k senses have s_l = 1 on the words of classes, and the senses of the groups 0, because one
of the two vectors is zero. So the paper's rule, unchanged, picks the senses of the groups. Where both steps are taken,
texts that differ in forms of the same classes have one score at alpha = 0, whatever their numbers of tokens: at every
position the networks read the same vectors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.word_classes import WordClasses
from backpack_rank.checks import one_of
from backpack_rank.data.packing import PackedBatch, behind_separator
from backpack_rank.models.backbone import supports_packing
from backpack_rank.models.token_shift import CASES, TokenShift, Variant, class_variants, normal
from backpack_rank.models.utils import eval_mode
from backpack_rank.models.word_boundaries import WordBoundaries, piece_texts

WHERE = ("documents", "all")
"""Where forms are read as one and split: in documents, so that a query's words keep their meaning, or everywhere."""


@dataclass(frozen=True)
class WordForm:
    """A word of a class as a tokenizer writes it.

    Attributes:
        pieces: its token ids.
        word_class: number of its class.
        group: name of its group, such as ``female``.
        word: lower-cased.
    """

    pieces: tuple[int, ...]
    word_class: int
    group: str
    word: str


def word_forms(
    tokenizer: PreTrainedTokenizerBase, classes: WordClasses, group_of: Mapping[str, str], several_tokens: bool = True
) -> list[WordForm]:
    """The forms of all classes: lower, Capitalised and UPPER case, behind a space and behind other signs.

    Forms of one class differ in the word alone, not in case or in what stands before it.

    Args:
        tokenizer: of the ranker.
        classes: words that are equal up to the attribute.
        group_of: group by word; a word without a group is left as it is.
        several_tokens: also words that the tokenizer cuts into pieces.

    Raises:
        ValueError: no class has two forms of different words.
    """
    texts = piece_texts(tokenizer)
    variants: dict[Variant, dict[tuple[int, ...], str]] = defaultdict(dict)
    for variant, tokens in class_variants(tokenizer, classes, texts).items():
        for token, word in tokens.items():
            variants[variant][(token,)] = word
    if several_tokens:
        for variant, pieces, word in _in_pieces(tokenizer, classes, texts):
            variants[variant].setdefault(pieces, word)
    forms: list[WordForm] = []
    # "fiances" and "fiancés" are written alike where accents are taken off: the first class has the form.
    taken: set[tuple[int, ...]] = set()
    number = 0
    for _, words in sorted(variants.items()):
        known = {pieces: word for pieces, word in words.items() if word in group_of and pieces not in taken}
        if len(set(known.values())) < 2:
            continue
        taken.update(known)
        forms += [WordForm(pieces, number, group_of[word], word) for pieces, word in sorted(known.items())]
        number += 1
    if not forms:
        raise ValueError(
            f"word classes {classes.name!r}: the tokenizer knows no two words of a class, for example "
            f"{classes.classes[0].words[:4]}, so there is no attribute sense; "
            "model.ranker.attribute_senses=null trains without"
        )
    return forms


def _in_pieces(
    tokenizer: PreTrainedTokenizerBase, classes: WordClasses, texts: Sequence[str]
) -> Iterator[tuple[Variant, tuple[int, ...], str]]:
    """Words of several tokens, behind a space and behind a quotation mark."""
    unknown = tokenizer.unk_token_id
    for index, word_class in enumerate(classes.classes):
        for word in word_class.words:
            for case, change in enumerate(CASES):
                written = normal(tokenizer, change(word))
                for before in ("a ", '"'):
                    start = tokenizer(before.strip(), add_special_tokens=False, verbose=False)["input_ids"]
                    ids = tokenizer(before + change(word), add_special_tokens=False, verbose=False)["input_ids"]
                    pieces = tuple(ids[len(start) :])
                    spelled = "".join(texts[piece] for piece in pieces)
                    if list(ids[: len(start)]) != list(start) or len(pieces) < 2 or unknown in pieces:
                        continue
                    if spelled.strip() != written:  # a piece holds more than the word, such as a quotation mark
                        continue
                    # A tokenizer that lowers texts writes all three cases alike: the first one counts.
                    alike = [normal(tokenizer, other(word)) == written for other in CASES[: case + 1]]
                    space = " " if spelled.startswith(" ") else ""
                    behind = " " if spelled.endswith(" ") else ""
                    yield Variant(index, space != " ", space, behind, alike.index(True)), pieces, word


class FormRow(NamedTuple):
    """A form in the tables: token ids, number of its class among all, number of its group's sense, and step 1."""

    pieces: tuple[int, ...]
    word_class: int
    group: int
    read_as_one: bool


class FormIndex(NamedTuple):
    """Forms by their first tokens.

    Attributes:
        forms: their numbers, those that begin alike one behind the other. [F]
        begins, counts: by token id, where among these the forms that begin with it stand, and how many they are, also
            of the id V of no token. [V + 1]
        lengths: pieces of each form, by number. [F]
        most: the largest of the counts, M.
    """

    forms: Tensor
    begins: Tensor
    counts: Tensor
    lengths: Tensor
    most: int

    @classmethod
    def of(cls, pieces: Tensor, vocabulary: int) -> FormIndex:
        """From the tables of the forms [F, L]."""
        first, forms = pieces[:, 0].long().sort(stable=True)
        counts = first.bincount(minlength=vocabulary + 1)
        begins = counts.cumsum(0) - counts
        return cls(forms, begins, counts, (pieces >= 0).sum(dim=1), int(counts.max()))


class SplitVectors(NamedTuple):
    """h of the distinct ids of a batch. [U, f]

    Attributes:
        shared: of a token; of a form the mean over its class, or h of the form itself where nothing is split.
        differences: what sets each form apart from its class [W, f]; the last W of the U ids are the forms.
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
    """The forms of a ranker's attributes, where they stand in a batch, and what they become; saved with the model.

    In a batch that was read (:meth:`read`), form f stands as id V + f, one position each, with V the number of
    embeddings. F forms, L pieces of the longest, G groups of all attributes.

    Attributes:
        pieces: token ids of each form, -1 behind its last. int32 [F, L]
        class_of, group_of: class and group of each form. int32 [F]
        read_as_one: whether the contextual network reads its class's mean in its place (step 1). bool [F]
        continues, ends_inside_word: see :class:`~backpack_rank.models.word_boundaries.WordBoundaries`. bool [V]
    """

    pieces: Tensor
    class_of: Tensor
    group_of: Tensor
    read_as_one: Tensor
    continues: Tensor
    ends_inside_word: Tensor

    def __init__(self, vocabulary: int, sizes: Mapping[str, Any]) -> None:
        """
        Args:
            vocabulary: V, rows of the embedding table.
            sizes: what :func:`add_attribute_senses` puts into a ranker's configuration.
        """
        super().__init__()
        self.vocabulary, self.groups = vocabulary, len(sizes["groups"])
        self.where, self.separator_id = sizes["where"], sizes["separator_id"]
        self._by_first: FormIndex | None = None
        forms, longest = sizes["forms"], sizes["pieces"]
        self.register_buffer("pieces", torch.full((forms, longest), -1, dtype=torch.int32))
        self.register_buffer("class_of", torch.zeros(forms, dtype=torch.int32))
        self.register_buffer("group_of", torch.zeros(forms, dtype=torch.int32))
        self.register_buffer("read_as_one", torch.ones(forms, dtype=torch.bool))
        self.register_buffer("continues", torch.zeros(vocabulary, dtype=torch.bool))
        self.register_buffer("ends_inside_word", torch.zeros(vocabulary, dtype=torch.bool))

    def set_forms(self, rows: Sequence[FormRow], boundaries: WordBoundaries) -> None:
        """Fill the tables, with the boundaries of the tokenizer."""
        self._by_first = None
        for number, row in enumerate(rows):
            self.pieces[number, : len(row.pieces)] = torch.tensor(row.pieces, dtype=torch.int32)
            self.class_of[number] = row.word_class
            self.group_of[number] = row.group
            self.read_as_one[number] = row.read_as_one
        known = len(boundaries.continues)
        self.continues[:known], self.ends_inside_word[:known] = boundaries.continues, boundaries.ends_inside_word

    def read(self, batch: PackedBatch) -> PackedBatch:
        """The batch with each form at one position, as id V + f; one that was read already stays as it is."""
        return self.read_and_kept(batch)[0]

    def read_and_kept(self, batch: PackedBatch) -> tuple[PackedBatch, Tensor]:
        """:meth:`read`, and which tokens of the batch still have a position: all but the later pieces. bool [T]"""
        ids = batch.input_ids
        kept = torch.ones_like(ids, dtype=torch.bool)
        inside = kept if self.where == "all" else behind_separator(batch, self.separator_id)
        starts, forms = self.find(ids, inside, batch.text_ids)
        if len(starts) == 0:
            return batch, kept
        ids = ids.clone()
        ids[starts] = self.vocabulary + forms
        lengths = (self.pieces[forms] >= 0).sum(dim=1)
        read = replace(batch, input_ids=ids)
        if int(lengths.max()) == 1:
            return read, kept
        for place in range(1, self.pieces.shape[1]):
            kept[starts[lengths > place] + place] = False
        return read.select(kept), kept

    def with_classes(self, ids: np.ndarray) -> np.ndarray:
        """The tokens of a text as the contextual network tells them apart: forms of one class are one id. [n] -> [m]"""
        read = self.read(PackedBatch.from_sequences([ids]).to(self.pieces.device)).input_ids
        forms = (read - self.vocabulary).clamp(min=0)
        classes = torch.where(self.read_as_one[forms], self.class_of[forms], len(self.class_of) + forms)
        return torch.where(read >= self.vocabulary, self.vocabulary + classes, read).cpu().numpy()

    def find(self, ids: Tensor, inside: Tensor, text_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where forms begin in a row of tokens, and which: whole words alone. Three of [T] -> two [c]

        Args:
            ids: token ids, one text behind the other.
            inside: where forms may begin. bool
            text_ids: which text a token is of; no word goes on in the next one.
        """
        known = ids.clamp(max=self.vocabulary)
        candidates = ((self.by_first.counts[known] > 0) & inside).nonzero().squeeze(-1)
        longest = self.pieces.shape[1]
        # One token before a candidate and one behind its longest form: V, of no word, beyond the ends of its text.
        row = F.pad(known, (1, longest), value=self.vocabulary)
        texts = F.pad(text_ids, (1, longest), value=-1)
        places = candidates[:, None] + torch.arange(longest + 2, device=ids.device)
        same_text = texts[places] == text_ids[candidates, None]
        forms = self.forms_of(row[places].where(same_text, self.vocabulary))
        found = forms >= 0
        return candidates[found], forms[found]

    def forms_of(self, windows: Tensor) -> Tensor:
        """The longest form that begins at the second token of each window, -1 for none. [..., L + 2] -> [...]

        Compared are the M forms at most that begin with that token.
        """
        index = self.by_first
        first = windows[..., 1]
        numbers = torch.arange(index.most, device=windows.device)
        forms = index.forms[(index.begins[first][..., None] + numbers).clamp(max=len(index.forms) - 1)]  # [..., M]
        pieces = self.pieces[forms].long()  # [..., M, L]
        same = ((windows[..., None, 1:-1] == pieces) | (pieces < 0)).all(dim=-1)
        none = torch.zeros(1, dtype=torch.bool, device=windows.device)
        continues = torch.cat([self.continues, none])[windows]
        inside = torch.cat([self.ends_inside_word, none])[windows]
        joined = continues[..., 1:] & inside[..., :-1]  # a token of the window and the one before are of one word
        lengths = index.lengths[forms]
        goes_on = joined.gather(-1, lengths)
        match = same & ~joined[..., :1] & ~goes_on & (numbers < index.counts[first][..., None])
        longest, place = (lengths * match).max(dim=-1)
        return torch.where(longest > 0, forms.gather(-1, place[..., None]).squeeze(-1), -1)

    @property
    def by_first(self) -> FormIndex:
        """The forms by their first tokens; made where it is first asked for, and anew on another device."""
        if self._by_first is None or self._by_first.forms.device != self.pieces.device:
            self._by_first = FormIndex.of(self.pieces, self.vocabulary)
        return self._by_first

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._by_first = None

    def form_of(self, pieces: Sequence[int]) -> int | None:
        """Number of the form with these token ids, None where there is none."""
        longest = self.pieces.shape[1]
        if len(pieces) > longest:
            return None
        padded = torch.tensor([*pieces, *[-1] * (longest - len(pieces))], device=self.pieces.device)
        rows = (self.pieces == padded).all(dim=1).nonzero()
        return int(rows[0]) if len(rows) else None

    def rows(self) -> list[FormRow]:
        """The tables as :meth:`set_forms` takes them."""
        found = []
        for pieces, *others in zip(self.pieces, self.class_of, self.group_of, self.read_as_one, strict=True):
            word_class, group, read_as_one = (value.item() for value in others)
            known = tuple(pieces[pieces >= 0].tolist())
            found.append(FormRow(known, int(word_class), int(group), bool(read_as_one)))
        return found

    @contextmanager
    def embedded(self, embeddings: nn.Module) -> Iterator[None]:
        """A backbone that reads forms, for the length of a ``with`` block.

        Hooks, because a backbone of transformers looks its embeddings up by itself: it is given the first piece of a
        form, whose embedding stays where the form is not read as one, as a shift of tokens has moved it.
        """
        places: list[Tensor] = []

        def before(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            forms = inputs[0] - self.vocabulary
            places.append(forms)
            return inputs[0].where(forms < 0, self.pieces[forms.clamp(min=0), 0].to(inputs[0].dtype)), *inputs[1:]

        def behind(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            forms = places.pop()
            replaced = (forms >= 0) & (self.read_as_one | (self.by_first.lengths > 1))[forms.clamp(min=0)]
            if not bool(replaced.any()):
                return output
            vectors = self.context_vectors(_lookup(embeddings, output.requires_grad)).to(output.dtype)
            return torch.where(replaced[..., None], vectors[forms.clamp(min=0)], output)

        handles = (embeddings.register_forward_pre_hook(before), embeddings.register_forward_hook(behind))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def context_vectors(self, lookup: Callable[[Tensor], Tensor]) -> Tensor:
        """What the contextual network reads of each form, from embeddings of token ids. [F, e]"""
        own = self._over_pieces(self.pieces, lookup)
        return torch.where(self.read_as_one[:, None], self._class_means(own, self.class_of), own)

    def split(
        self, forms: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean over the class, and difference from it, of some forms [W]. Two [W, f]

        Args:
            forms: numbers of forms.
            hidden: h of token ids. All forms of the classes are asked for, and no others: so texts that differ in
                forms of the same classes have the same vectors bit for bit.
            shift: moves h of the forms that are one token; a piece of a word is no word.
        """
        chosen = torch.isin(self.class_of, self.class_of[forms])
        own = self._hidden(self.pieces[chosen], hidden, shift)
        means = self._class_means(own, self.class_of[chosen])
        rows = (chosen.cumsum(0) - 1)[forms]
        return means[rows], own[rows] - means[rows]

    def form_hidden(self, forms: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None = None) -> Tensor:
        """h of some forms [W], the mean over their pieces; arguments of :meth:`split`. [W, f]"""
        return self._hidden(self.pieces[forms], hidden, shift)

    def _hidden(self, pieces: Tensor, hidden: Callable[[Tensor], Tensor], shift: TokenShift | None) -> Tensor:
        vectors = self._over_pieces(pieces, hidden)
        if shift is None:
            return vectors
        return shift.hidden(vectors, pieces[:, 0].long(), (pieces >= 0).sum(dim=1) == 1)

    def needed_pieces(self, forms: Tensor, split: bool) -> Tensor:
        """Token ids that :meth:`split` or :meth:`form_hidden` will ask for."""
        pieces = self.pieces[torch.isin(self.class_of, self.class_of[forms])] if split else self.pieces[forms]
        return pieces[pieces >= 0].long()

    def _over_pieces(self, pieces: Tensor, lookup: Callable[[Tensor], Tensor]) -> Tensor:
        """Mean over the pieces of each form. [m, L] -> [m, w]"""
        there = pieces >= 0
        rows = there.nonzero()[:, 0]
        vectors = lookup(pieces[there].long())
        sums = vectors.new_zeros((len(pieces), vectors.shape[-1])).index_add(0, rows, vectors)
        return sums / there.sum(dim=1)[:, None]

    def _class_means(self, vectors: Tensor, classes: Tensor) -> Tensor:
        """Each row's mean over the rows of its class: over words, of which each counts once. [m, w] -> [m, w]"""
        classes = classes.long()
        counts = classes.bincount()
        sums = vectors.new_zeros((len(counts), vectors.shape[-1])).index_add(0, classes, vectors)
        return (sums / counts[:, None])[classes]


def _lookup(embeddings: nn.Module, trained: bool) -> Callable[[Tensor], Tensor]:
    """Embeddings past the hooks, with a sparse gradient where the module is a plain table.

    A second dense gradient would take the memory of the table once more.
    """
    if type(embeddings) is not nn.Embedding:
        return embeddings.forward
    weight: Any = embeddings.weight
    return lambda ids: F.embedding(ids, weight, sparse=trained and weight.is_leaf)


def has_further_table(backpack: Any, tokens: Sequence[int]) -> bool:
    """Whether a backbone looks tokens up in a table beside its word embeddings (Gemma 3n, Gemma 4); it reads some."""
    word_table, device = backpack.get_input_embeddings(), next(backpack.parameters()).device
    batch = PackedBatch.from_sequences([[*tokens, *tokens]]).to(device)
    found: list[nn.Module] = []

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs and torch.equal(inputs[0].flatten(), batch.input_ids):
            found.append(module)

    tables = [part for part in backpack.backbone.modules() if isinstance(part, nn.Embedding) and part is not word_table]
    handles = [table.register_forward_pre_hook(look) for table in tables]
    try:
        with eval_mode(backpack), torch.no_grad():
            backpack.hidden_states(batch)
    finally:
        for handle in handles:
            handle.remove()
    return bool(found)


def add_attribute_senses(
    backpack: Any,
    tokenizer: PreTrainedTokenizerBase,
    attribute: Attribute,
    *,
    where: str = WHERE[0],
    read_as_one: bool = True,
    separator_id: int,
) -> None:
    """Give a Backpack the senses of an attribute's groups, in place.

    ::

        add_attribute_senses(ranker.backpack, tokenizer, Attribute.named("gender"), separator_id=102)

    A ranker that is trained gets both steps. One that was trained without gets step 2 alone (``read_as_one=False``),
    which changes no score at alpha = 1; its contextual weights still tell the words of a class apart.

    Args:
        backpack: a :class:`~backpack_rank.models.backpack.BackpackModel`.
        tokenizer: its tokenizer.
        attribute: whose words: all its classes, wide ones included.
        where: one of :data:`WHERE`.
        read_as_one: whether the contextual network reads the forms of a class as one.
        separator_id: token that a query ends with.

    Raises:
        ValueError: the Backpack has senses of this attribute already, a form is one of another attribute, ``where`` is
            unknown or another one than that of earlier attributes, the backbone has a further table of tokens, or see
            :func:`word_forms`.
    """
    one_of("attribute_senses_where", where, WHERE)
    config, earlier = backpack.config, backpack.attribute_senses
    if attribute.name in {name for name, _ in config.groups}:
        raise ValueError(f"the ranker has senses of {attribute.name} already")
    rows: list[FormRow] = [] if earlier is None else earlier.rows()
    if earlier is not None and earlier.where != where:
        raise ValueError(f"the ranker has attribute senses for words of {earlier.where}, and not of {where}")
    # A word of several tokens is one position where forms are read as one: a change of what the network reads.
    forms = word_forms(tokenizer, attribute.classes(wide=True), attribute.group_of_words(), several_tokens=read_as_one)
    found = {form.group for form in forms}
    own_groups = [group for group in dict.fromkeys((*attribute.sides, *sorted(found))) if group in found]
    groups = [*config.groups, *((attribute.name, group) for group in own_groups)]
    if not supports_packing(config) and has_further_table(backpack, forms[-1].pieces):
        raise ValueError(
            f"a backbone of type {config.backbone_config.model_type!r} looks tokens up in more than one table, so it "
            "cannot read words of a class as one; model.ranker.attribute_senses=null trains without"
        )
    taken = {row.pieces for row in rows}
    classes = 1 + max((row.word_class for row in rows), default=-1)
    for form in forms:
        if form.pieces in taken:
            raise ValueError(
                f"{form.word!r} is a word of {attribute.name} and of another attribute of this ranker "
                f"({', '.join(dict.fromkeys(name for name, _ in config.groups))}): a word has one sense of its own; "
                "take it out of one of the two lists of classes"
            )
        taken.add(form.pieces)
        place = groups.index((attribute.name, form.group))
        rows.append(FormRow(form.pieces, classes + form.word_class, place, read_as_one))
    config.attribute_senses = {
        "groups": [list(group) for group in groups],
        "where": where,
        "separator_id": separator_id,
        "forms": len(rows),
        "pieces": max(len(row.pieces) for row in rows),
    }
    embeddings = backpack.get_input_embeddings()
    senses = AttributeSenses(embeddings.num_embeddings, config.attribute_senses)
    senses.set_forms(rows, WordBoundaries.of(tokenizer))
    backpack.attribute_senses = senses.to(embeddings.weight.device)
