"""Paired tokens: words of a class moved towards the mean of their class as a ranker reads them
(this project's own).

The words of a class, such as {he, she}, differ in nothing but the attribute. For a token x of a
class with mean v_bar, every place where the token enters the network is moved towards the class:

    v_alpha(x) = v_bar + alpha (v(x) - v_bar)

``senses``: v is h(x), the hidden layer that the sense vectors are linear in, so C(x)_l moves in the
    same way for every
sense l. ``weights``: v is the embedding that the contextual network reads. ``both``: both. Only
whole words move: the token " she" does in "she saw", not in "sheets" (" she", "ets"). No other
token changes, nothing is trained, and alpha = 1 is the ranker unchanged.

**Guarantee.** At alpha = 0 with ``both`` (with ``weights`` for a ranker without senses), swapping
tokens within their classes leaves the score unchanged, bit for bit, when the swapped text has the
same number of tokens and every token that differs has its partner in the same token class (same
case, same leading space), and both texts are scored in batches of the same composition (lengths,
distinct tokens, common beginnings of neighbours; in other batches scores differ by rounding) by an
arithmetic that repeats itself: on a CPU, or on a GPU with
``torch.use_deterministic_algorithms(True)``, because a GPU otherwise adds the weights of equal
tokens in any order and
even one text twice may differ in the last bits. Proof: v_0(x) = v_bar depends on the class alone,
so at every position both texts give both networks the same vector at the same position. Nothing
else of a text enters the score.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.attributes.word_classes import WordClass, WordClasses
from backpack_rank.checks import one_of
from backpack_rank.data.packing import PackedBatch
from backpack_rank.digests import digest
from backpack_rank.models.utils import eval_mode, input_embeddings
from backpack_rank.models.word_boundaries import WordBoundaries, piece_texts

SCOPES = ("senses", "weights", "both")
"""Where tokens are moved: in the sense network, in the contextual network that gives the weights,
or in both.
"""
_AROUND = re.compile(r"([\W_]*)(.*?)([\W_]*)", re.DOTALL)
CASES: tuple[Callable[[str], str], ...] = (str.lower, str.capitalize, str.upper)


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Classes of token ids; a token is in one class at most.

    Attributes:
        names: what each class is, such as ``" He"`` of class ``subject pronoun``.
        members: token ids of each class, two or more.
        boundaries: tells words from pieces of words.
        several_tokens: words of the lexicon that are no single token in any variant: they are left
            as they are.
        unpaired: words with a token but without a partner of the same case and spacing: left as
            they are too.
        behind_space_alone: words that move behind a space and not behind other signs ('"she'),
            where the tokenizer has several tokens for them, or one without a partner.
    """

    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    boundaries: WordBoundaries
    several_tokens: tuple[str, ...] = ()
    unpaired: tuple[str, ...] = ()
    behind_space_alone: tuple[str, ...] = ()

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, words: WordClasses) -> TokenClasses:
        """All tokens that are a word of a class, lower, Capitalised or UPPER, told apart by what
        else they hold.

        They are looked for in the vocabulary: many tokenizers put a space in front of every text,
        so no text that is a word alone has the token that the word has behind a bracket. Most
        tokens hold a leading space or nothing else, some a sign ('"she').

        Raises:
            ValueError: no class has two words that are one token each in the same variant.
        """
        texts, forms = piece_texts(tokenizer), _forms(tokenizer, words)
        variants = class_variants(tokenizer, words, texts)
        paired = {
            variant: own for variant, own in sorted(variants.items()) if len(set(own.values())) > 1
        }
        if not paired:
            raise ValueError(
                f"word classes {words.name!r}: the tokenizer has no two words of a class as single "
                f"tokens, for example {words.classes[0].words[:4]}; nothing could be moved"
            )
        word_of = {token: word for own in paired.values() for token, word in own.items()}
        known, moved = (
            {word for own in variants.values() for word in own.values()},
            set(word_of.values()),
        )
        # "fiancé" is "fiance" where accents are taken off.
        read_as = {
            word: forms[normal(tokenizer, word)][2] for one in words.classes for word in one.words
        }

        def moves(before: str, word: str) -> bool:
            return word_of.get(_last(tokenizer, before + word)) == read_as[word]

        return cls(
            names=tuple(variant.name(words.classes[variant.place]) for variant in paired),
            members=tuple(map(tuple, paired.values())),
            boundaries=WordBoundaries.of_texts(texts),
            several_tokens=tuple(word for word, own in read_as.items() if own not in known),
            unpaired=tuple(word for word, own in read_as.items() if own in known - moved),
            behind_space_alone=tuple(
                word for word in read_as if moves("a ", word) and not moves('"', word)
            ),
        )

    @cached_property
    def key(self) -> str:
        """Digest of the members."""
        return digest(repr(self.members), size=6)

    @cached_property
    def class_of(self) -> Tensor:
        """Class of every token id up to the largest in a class, -1 for none. [largest + 1]"""
        table = torch.full((max(map(max, self.members)) + 1,), -1, dtype=torch.long)
        for index, ids in enumerate(self.members):
            table[list(ids)] = index
        return table

    @cached_property
    def first_of(self) -> Tensor:
        """Every token id up to the largest in a class, of members the first of their class.
        [largest + 1]
        """
        table = torch.arange(len(self.class_of))
        for ids in self.members:
            table[list(ids)] = ids[0]
        return table


@dataclass(frozen=True, eq=False)
class TokenShift:
    """Tokens moved towards the mean of their class; an argument of a ranker's forward pass.

    Class means are those of the weights that the ranker had when the shift was made.

    Attributes:
        classes: which tokens.
        scope: where they are moved, one of :data:`SCOPES`.
        alpha: how much of a token's difference from its class is kept.
        embedding_means: of the embeddings that the contextual network reads [C, e]; None where the
            scope leaves it out.
        hidden_means: of h(x) [C, f], likewise.
    """

    classes: TokenClasses
    scope: str
    alpha: float
    embedding_means: Tensor | None = None
    hidden_means: Tensor | None = None

    @property
    def key(self) -> str:
        """Differs when the moved vectors differ; part of the keys of cached sense vectors."""
        return f"{self.classes.key}-words-{self.scope}-{self.alpha!r}"

    def moves(self, ids: np.ndarray) -> bool:
        """Whether any token of a text is moved at all; a text without one has the same score at
        every alpha. [n]
        """
        tokens = torch.from_numpy(ids).long()
        return bool(
            ((self._class_of(tokens) >= 0) & self.classes.boundaries.whole_words(tokens)).any()
        )

    def merged(self, ids: np.ndarray) -> np.ndarray:
        """The tokens of a text with every word of a class as the first of its class. [n]"""
        return self._merged(torch.from_numpy(ids).long()).numpy()

    def embeddings(self, vectors: Tensor, ids: Tensor) -> Tensor:
        """Embeddings [..., e] of token ids [...] as the contextual network reads them."""
        if self.embedding_means is None:
            return vectors
        whole = self.classes.boundaries.whole_words(ids.flatten()).view_as(ids)
        return self._moved(vectors, ids, whole, self.embedding_means)

    def values(self, table: Tensor, ids: Tensor) -> Tensor:
        """Numbers of token ids [...] from a table of one for each, moved as the embeddings are (a
        word's IDF). [...]
        """
        means = torch.stack([table[list(members)].mean() for members in self.classes.members])
        whole = self.classes.boundaries.whole_words(ids.flatten()).view_as(ids)
        return self._moved(table[ids][..., None], ids, whole, means[:, None]).squeeze(-1)

    def hidden(self, hidden: Tensor, ids: Tensor, whole: Tensor | None) -> Tensor:
        """h(x) [..., f] of token ids [...]; ``whole`` says which are words by themselves, None:
        all.
        """
        if self.hidden_means is None:
            return hidden
        whole = torch.ones_like(ids, dtype=torch.bool) if whole is None else whole
        return self._moved(hidden, ids, whole, self.hidden_means)

    def whole_words(self, ids: Tensor) -> Tensor | None:
        """Which tokens of a row are words, where h(x) depends on it. [T] -> bool [T], or None"""
        return None if self.hidden_means is None else self.classes.boundaries.whole_words(ids)

    def merge_ids(self, batch: PackedBatch) -> PackedBatch:
        """At alpha = 0 in both networks, all words of a class with the id of its first.

        They have the same vectors anyway, but sums over distinct ids would be taken in another
        order, which shows in the last bits.
        """
        if self.scope != "both" or self.alpha != 0:
            return batch
        return replace(batch, input_ids=self._merged(batch.input_ids))

    def _merged(self, ids: Tensor) -> Tensor:
        merged = self.classes.boundaries.whole_words(ids) & (self._class_of(ids) >= 0)
        first = self.classes.first_of.to(ids.device)
        return torch.where(merged, first[ids.clamp(max=len(first) - 1)], ids)

    def _moved(self, vectors: Tensor, ids: Tensor, whole: Tensor, means: Tensor) -> Tensor:
        classes = self._class_of(ids)
        centre = means.to(vectors.dtype)[classes.clamp(min=0)]
        moved = centre + self.alpha * (vectors - centre)
        return torch.where(((classes >= 0) & whole)[..., None], moved, vectors)

    def _class_of(self, ids: Tensor) -> Tensor:
        table = self.classes.class_of.to(ids.device)
        return torch.where(ids < len(table), table[ids.clamp(max=len(table) - 1)], -1)


def token_shift(
    ranker: PreTrainedModel, classes: TokenClasses, scope: str, alpha: float
) -> TokenShift:
    """The shift of a ranker's tokens, with the class means of its present weights.

    Raises:
        ValueError: the scope is not one of :data:`SCOPES`.
        TypeError: ``senses`` or ``both`` for a ranker without senses, or a ranker without word
            embeddings.
    """
    one_of("policy.scope", scope, SCOPES)
    name, has_senses = type(ranker).__name__, getattr(ranker, "has_senses", False)
    if scope != "weights" and not has_senses:
        raise TypeError(
            f"{name} has no sense vectors, and policy.scope={scope} needs a Backpack ranker; "
            "policy=paired_tokens without policy.scope moves what it reads"
        )
    embeddings = input_embeddings(ranker)
    if not isinstance(embeddings, nn.Embedding):
        raise TypeError(
            f"{name} has no word vectors that could be moved, so it takes alpha=1 alone"
        )
    device = embeddings.weight.device
    read = hidden = None
    if scope in ("weights", "both"):
        # What the module gives, which may be its matrix times a number; past hooks, which concern
        # tokens in their text.
        read = _class_means(classes, embeddings.forward, device)
    if scope in ("senses", "both"):
        network: Any = ranker.backpack
        with eval_mode(ranker):  # the mean of a class is no place for dropout
            hidden = _class_means(classes, network.token_hidden, device)
    return TokenShift(classes, scope, alpha, read, hidden)


@contextmanager
def shifted_embeddings(embeddings: nn.Module, shift: TokenShift | None) -> Iterator[None]:
    """A backbone that reads shifted embeddings, for the length of a ``with`` block.

    A forward hook, because a backbone of transformers looks its embeddings up by itself. It runs
    before that of words that are read as one
    (:meth:`~backpack_rank.models.attribute_senses.AttributeSenses.embedded`), which stay so.
    """
    if shift is None or shift.embedding_means is None:
        yield
        return
    handle = embeddings.register_forward_hook(
        lambda _, inputs, output: shift.embeddings(output, inputs[0]), prepend=True
    )
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def _class_means(
    classes: TokenClasses, vectors_of: Callable[[Tensor], Tensor], device: torch.device
) -> Tensor:
    """Mean vector of each class. [C, w]"""
    return torch.stack(
        [vectors_of(torch.tensor(ids, device=device)).mean(dim=0) for ids in classes.members]
    )


def class_variants(
    tokenizer: PreTrainedTokenizerBase, words: WordClasses, texts: Sequence[str]
) -> dict[Variant, dict[int, str]]:
    """Tokens that are a word of a class, and the word, by class and by what else the tokens hold.

    Args:
        tokenizer: whose vocabulary is looked through.
        words: the classes.
        texts: what :func:`~backpack_rank.models.word_boundaries.piece_texts` gives.
    """
    forms = _forms(tokenizer, words)
    variants: dict[Variant, dict[int, str]] = defaultdict(dict)
    for token, text in enumerate(texts):
        before, core, behind = _parted(text)
        if core and core in forms:
            index, case, word = forms[core]
            variants[Variant(index, before != " ", before, behind, case)][token] = word
    return variants


class Variant(NamedTuple):
    """What tokens of a class have in common: all but the word. Sorts as classes stand, words behind
    a space first.
    """

    place: int
    elsewhere: bool
    before: str
    behind: str
    case: int

    def name(self, word_class: WordClass) -> str:
        return (
            f"{word_class.name}: {self.before}{CASES[self.case](word_class.words[0])}{self.behind}"
        )


def _forms(
    tokenizer: PreTrainedTokenizerBase, words: WordClasses
) -> dict[str, tuple[int, int, str]]:
    """Class, case and word of each form of the words of the classes; the first has a form that two
    words share.
    """
    found: dict[str, tuple[int, int, str]] = {}
    for index, word_class in enumerate(words.classes):
        for word in word_class.words:
            for case, change in enumerate(CASES):
                found.setdefault(normal(tokenizer, change(word)), (index, case, word))
    return found


def normal(tokenizer: PreTrainedTokenizerBase, word: str) -> str:
    """A word as it stands in the vocabulary: some tokenizers lower texts or take accents off."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return _parted(word if normalizer is None else normalizer.normalize_str(word))[1]


def _parted(text: str) -> tuple[str, str, str]:
    """The signs before a text, the text without the signs around it, and those behind it."""
    before, core, behind = _AROUND.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches every text
    return before, core, behind


def _last(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """The last token of a text, -1 of one without any."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids[-1] if ids else -1
