"""Paired tokens: words of a class are moved towards the mean of their class (this project's own).

The words of a class, such as {he, she}, differ in nothing but the attribute. For a token x of a
class with mean v_bar, every place where the token enters the network is moved towards the class:

    v_alpha(x) = v_bar + alpha (v(x) - v_bar)

``senses``: v is h(x), the hidden layer that the sense vectors are linear in, so C(x)_l moves in the
same way for every sense l. ``weights``: v is the embedding that the contextual network reads.
``both``: both. Only whole words move: the token " she" does in "she saw", not in "sheets" (" she",
"ets"). No other token changes, nothing is trained, and alpha = 1 is the unchanged ranker.

**Guarantee.** At alpha = 0 with ``both`` (with ``weights`` for a ranker without senses), swapping
tokens within their classes leaves the score unchanged, bit for bit, when the swapped text has the
same number of tokens and every token that differs has its partner in the same token class (same
case, same leading space), and both texts are scored in batches of the same composition (lengths,
distinct tokens, common beginnings of neighbours; in other batches scores differ by rounding) by an
arithmetic that repeats itself: on a CPU, or on a GPU with
``torch.use_deterministic_algorithms(True)``, because a GPU otherwise adds the weights of equal
tokens in any order and even one text twice may differ in the last bits. Proof: v_0(x) = v_bar
depends on the class alone, so both texts give both networks the same vector at every position.
Nothing else of a text enters the score.
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
"""Where tokens are moved: in the sense network, in the contextual network, or in both."""
# A word may have signs around it in its token: (the signs before it, the word, those behind it).
_SIGNS_AROUND = re.compile(r"([\W_]*)(.*?)([\W_]*)", re.DOTALL)
CASES: tuple[Callable[[str], str], ...] = (str.lower, str.capitalize, str.upper)


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Says which tokens a policy of paired tokens moves: classes of token ids.

    A token is in one class at most. :meth:`of` reads them off a tokenizer::

        classes = TokenClasses.of(tokenizer, Attribute.named("gender").classes())
        shift = token_shift(ranker, classes, scope="both", alpha=0.5)
        scores = ranker(batch, token_shift=shift).scores

    Attributes:
        names: what each class is, such as ``" He"`` of class ``subject pronoun``.
        members: token ids of each class, two or more.
        boundaries: tells words from pieces of words.
        several_tokens: words of the lexicon that are no single token in any variant: they do not
            move.
        unpaired: words with a token but without a partner of the same case and spacing: they do not
            move either.
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
        """All tokens that are a word of a class: lower, Capitalised or UPPER.

        They are looked for in the vocabulary: many tokenizers put a space in front of every text,
        so no text that is a word alone has the token that the word has behind a bracket. Most
        tokens hold a leading space or nothing else, some a sign ('"she'). Only tokens that hold
        the same beside their word share a class.

        Raises:
            ValueError: no class has two words that are one token each in the same variant.
        """
        texts = piece_texts(tokenizer)
        variants = class_variants(tokenizer, words, texts)
        # A token moves where another word of its class is one token in the same variant.
        paired: dict[Variant, dict[int, str]] = {}
        for variant, word_by_token in sorted(variants.items()):
            if len(set(word_by_token.values())) > 1:
                paired[variant] = word_by_token
        if not paired:
            raise ValueError(
                f"word classes {words.name!r}: the tokenizer has no two words of a class as single "
                f"tokens, for example {words.classes[0].words[:4]}; nothing could be moved"
            )
        words_with_token: set[str] = set()
        for word_by_token in variants.values():
            words_with_token.update(word_by_token.values())
        word_of_moved_token: dict[int, str] = {}
        for word_by_token in paired.values():
            word_of_moved_token.update(word_by_token)
        moved_words = set(word_of_moved_token.values())

        def moved_at_end(text: str) -> str | None:
            return word_of_moved_token.get(_last_token(tokenizer, text))

        # Each word is tried behind a space and behind a sign, in its last token: 'a she', '"she'.
        several_tokens, unpaired, behind_space_alone = [], [], []
        for word, read_as in _words_as_read(tokenizer, words).items():
            if read_as not in words_with_token:
                several_tokens.append(word)
            elif read_as not in moved_words:
                unpaired.append(word)
            elif moved_at_end("a " + word) == read_as and moved_at_end('"' + word) != read_as:
                behind_space_alone.append(word)

        return cls(
            names=tuple(variant.name(words.classes[variant.place]) for variant in paired),
            members=tuple(map(tuple, paired.values())),
            boundaries=WordBoundaries.of_texts(texts),
            several_tokens=tuple(several_tokens),
            unpaired=tuple(unpaired),
            behind_space_alone=tuple(behind_space_alone),
        )

    @cached_property
    def key(self) -> str:
        """Digest of the members."""
        return digest(repr(self.members), size=6)

    @cached_property
    def class_of(self) -> Tensor:
        """Class of every token id up to the largest in a class, -1 for none. [largest + 1]"""
        largest = max(max(ids) for ids in self.members)
        table = torch.full((largest + 1,), -1, dtype=torch.long)
        for class_number, ids in enumerate(self.members):
            table[list(ids)] = class_number
        return table

    @cached_property
    def first_of(self) -> Tensor:
        """The first token of its class for each member, the token itself for others. [largest + 1]

        The table ends with the largest token id in a class.
        """
        table = torch.arange(len(self.class_of))
        for ids in self.members:
            table[list(ids)] = ids[0]
        return table


@dataclass(frozen=True, eq=False)
class TokenShift:
    """Give this to a ranker's forward pass to move tokens towards the mean of their class.

    :func:`token_shift` makes one. Class means are those of the weights that the ranker had then.

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
        """Whether any token of a text [n] is moved.

        A text without such a token has the same score at every alpha.
        """
        return bool(self._is_moved(torch.from_numpy(ids).long()).any())

    def merged(self, ids: np.ndarray) -> np.ndarray:
        """The tokens of a text, with the first word of its class for every word of a class. [n]"""
        return self._merged(torch.from_numpy(ids).long()).numpy()

    def embeddings(self, vectors: Tensor, ids: Tensor) -> Tensor:
        """Embeddings [..., e] of token ids [...] as the contextual network reads them."""
        if self.embedding_means is None:
            return vectors
        is_whole_word = self.classes.boundaries.whole_words(ids.flatten()).view_as(ids)
        return self._moved(vectors, ids, is_whole_word, self.embedding_means)

    def values(self, table: Tensor, ids: Tensor) -> Tensor:
        """One number for each token id [...], such as a word's IDF, moved as embeddings are. [...]

        ``table`` holds the number of each id. [vocabulary]
        """
        means = torch.stack([table[list(members)].mean() for members in self.classes.members])
        is_whole_word = self.classes.boundaries.whole_words(ids.flatten()).view_as(ids)
        # One number is moved as a vector of length 1.
        vectors = table[ids][..., None]
        return self._moved(vectors, ids, is_whole_word, means[:, None]).squeeze(-1)

    def hidden(self, hidden: Tensor, ids: Tensor, is_whole_word: Tensor | None) -> Tensor:
        """h(x) [..., f] of token ids [...]; without ``is_whole_word`` all are whole words."""
        if self.hidden_means is None:
            return hidden
        if is_whole_word is None:
            is_whole_word = torch.ones_like(ids, dtype=torch.bool)
        return self._moved(hidden, ids, is_whole_word, self.hidden_means)

    def whole_words(self, ids: Tensor) -> Tensor | None:
        """Which tokens of a row are words, where h(x) depends on it. [T] -> bool [T], or None"""
        if self.hidden_means is None:
            return None
        return self.classes.boundaries.whole_words(ids)

    def merge_ids(self, batch: PackedBatch) -> PackedBatch:
        """The batch as the ranker must read it: at alpha = 0 with ``both``, one id for a class."""
        # Words of a class then have the same vectors anyway, but sums over distinct ids would be
        # taken in another order, which shows in the last bits.
        if self.scope != "both" or self.alpha != 0:
            return batch
        return replace(batch, input_ids=self._merged(batch.input_ids))

    def _merged(self, ids: Tensor) -> Tensor:
        first = self.classes.first_of.to(ids.device)
        return torch.where(self._is_moved(ids), first[ids.clamp(max=len(first) - 1)], ids)

    def _is_moved(self, ids: Tensor) -> Tensor:
        return (self._class_of(ids) >= 0) & self.classes.boundaries.whole_words(ids)

    def _moved(self, vectors: Tensor, ids: Tensor, is_whole_word: Tensor, means: Tensor) -> Tensor:
        """v_bar + alpha (v - v_bar) at whole words of a class, v elsewhere."""
        classes = self._class_of(ids)
        # Tokens of no class, -1, take the mean of class 0 here, which is thrown away below.
        centre = means.to(vectors.dtype)[classes.clamp(min=0)]
        moved = centre + self.alpha * (vectors - centre)
        is_moved = (classes >= 0) & is_whole_word
        return torch.where(is_moved[..., None], moved, vectors)

    def _class_of(self, ids: Tensor) -> Tensor:
        """Class of token ids, -1 for none."""
        table = self.classes.class_of.to(ids.device)
        # The table ends with the largest id in a class: larger ids are in none.
        return torch.where(ids < len(table), table[ids.clamp(max=len(table) - 1)], -1)


def token_shift(
    ranker: PreTrainedModel, classes: TokenClasses, scope: str, alpha: float
) -> TokenShift:
    """Before a forward pass: the shift of a ranker's tokens at one alpha.

    Class means are computed from the present weights, so make it anew after training. See
    :class:`TokenClasses` for an example.

    Raises:
        ValueError: the scope is not one of :data:`SCOPES`.
        TypeError: ``senses`` or ``both`` for a ranker without senses, or a ranker without word
            embeddings.
    """
    one_of("policy.scope", scope, SCOPES)
    name = type(ranker).__name__
    has_senses = getattr(ranker, "has_senses", False)
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
    embedding_means = hidden_means = None
    if scope in ("weights", "both"):
        # What the module gives and not its matrix, which some modules multiply by a number.
        # ``forward`` leaves out hooks, which concern tokens in their text.
        embedding_means = _class_means(classes, embeddings.forward, device)
    if scope in ("senses", "both"):
        network: Any = ranker.backpack
        with eval_mode(ranker):  # no dropout in the mean of a class
            hidden_means = _class_means(classes, network.token_hidden, device)
    return TokenShift(classes, scope, alpha, embedding_means, hidden_means)


@contextmanager
def shifted_embeddings(
    embeddings: nn.Module, shift: TokenShift | None, model: nn.Module | None = None
) -> Iterator[None]:
    """Around the call of a backbone: within the block its embeddings are shifted.

    A forward hook, because a backbone of transformers looks its embeddings up by itself. It runs
    before that of words that are read as one
    (:meth:`~backpack_rank.models.attribute_senses.AttributeSenses.embedded`), which stay so.

    Args:
        embeddings: word vectors.
        shift: None: nothing is shifted.
        model: reads them, perhaps by modules of its own: the encoder and the decoder of T5 and BART
            each have one with the same weights, and the one that the model names is not called.
    """
    if shift is None or shift.embedding_means is None:
        yield
        return

    def shifted(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        # BART may multiply what it looks up, and the means are of the vectors as they are.
        scale = getattr(module, "embed_scale", 1.0) if module is not embeddings else 1.0
        if scale == 1.0:
            return shift.embeddings(output, inputs[0])
        return shift.embeddings(output / scale, inputs[0]) * scale

    handles = []
    for module in (embeddings, *_copies(embeddings, model)):
        handles.append(module.register_forward_hook(shifted, prepend=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _copies(embeddings: nn.Module, model: nn.Module | None) -> list[nn.Module]:
    """Other modules of a model that look up the same word vectors."""
    copies: list[nn.Module] = []
    for module in model.modules() if model is not None else ():
        is_lookup = isinstance(module, nn.Embedding) and module is not embeddings
        if is_lookup and module.weight is getattr(embeddings, "weight", None):
            copies.append(module)
    return copies


@torch.no_grad()
def _class_means(
    classes: TokenClasses, vectors_of: Callable[[Tensor], Tensor], device: torch.device
) -> Tensor:
    """Mean vector of each class. [C, w]"""
    means = []
    for ids in classes.members:
        vectors = vectors_of(torch.tensor(ids, device=device))
        means.append(vectors.mean(dim=0))
    return torch.stack(means)


def class_variants(
    tokenizer: PreTrainedTokenizerBase, words: WordClasses, texts: Sequence[str]
) -> dict[Variant, dict[int, str]]:
    """Find the words of classes in a vocabulary: token ids and words, by variant.

    Args:
        tokenizer: whose vocabulary is looked through.
        words: the classes.
        texts: what :func:`~backpack_rank.models.word_boundaries.piece_texts` gives.
    """
    forms = _forms(tokenizer, words)
    variants: dict[Variant, dict[int, str]] = defaultdict(dict)
    for token, text in enumerate(texts):
        before, core, behind = _without_signs(text)
        if core and core in forms:
            place, case, word = forms[core]
            variant = Variant(
                place=place,
                elsewhere=before != " ",
                before=before,
                behind=behind,
                case=case,
            )
            variants[variant][token] = word
    return variants


class Variant(NamedTuple):
    """What tokens of a class have in common: all but the word.

    Variants sort in the order of the word classes, and within one words behind a space come first.

    Attributes:
        place: number of the word class.
        elsewhere: whether the word stands behind anything but one space.
        before: what the token holds in front of the word.
        behind: what it holds behind it.
        case: of the word, a number in :data:`CASES`.
    """

    place: int
    elsewhere: bool
    before: str
    behind: str
    case: int

    def name(self, word_class: WordClass) -> str:
        """The class's name and its first word as the tokens hold it."""
        word = CASES[self.case](word_class.words[0])
        return f"{word_class.name}: {self.before}{word}{self.behind}"


def _forms(
    tokenizer: PreTrainedTokenizerBase, words: WordClasses
) -> dict[str, tuple[int, int, str]]:
    """Class number, case and word of each form of the words of the classes.

    A form that two words share belongs to the first.
    """
    forms: dict[str, tuple[int, int, str]] = {}
    for place, word_class in enumerate(words.classes):
        for word in word_class.words:
            for case, change in enumerate(CASES):
                forms.setdefault(normal(tokenizer, change(word)), (place, case, word))
    return forms


def _words_as_read(tokenizer: PreTrainedTokenizerBase, words: WordClasses) -> dict[str, str]:
    """The word of the classes that the tokenizer reads each word as.

    It is another one where accents are taken off and "fiance" stands before "fiancé".
    """
    forms = _forms(tokenizer, words)
    read_as = {}
    for word_class in words.classes:
        for word in word_class.words:
            _, _, first_word = forms[normal(tokenizer, word)]
            read_as[word] = first_word
    return read_as


def normal(tokenizer: PreTrainedTokenizerBase, word: str) -> str:
    """A word as it stands in the vocabulary: some tokenizers lower texts or take accents off."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is not None:
        word = normalizer.normalize_str(word)
    return _without_signs(word)[1]


def _without_signs(text: str) -> tuple[str, str, str]:
    """The signs before a text, the text without the signs around it, and those behind it."""
    match = _SIGNS_AROUND.fullmatch(text)
    assert match is not None  # the pattern matches every text
    before, core, behind = match.groups()
    return before, core, behind


def _last_token(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """The last token of a text; -1 where it has none."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids[-1] if ids else -1
