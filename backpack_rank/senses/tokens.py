"""Paired tokens: the dial at the level of tokens (this project's own).

The words of a class, such as {he, she}, differ in nothing but the attribute. For a token x of a class with mean
x_bar, every place where the token enters the network is moved towards the class:

    v_alpha(x) = v_bar + alpha (v(x) - v_bar)

``senses``: v is h(x), the hidden layer that the sense vectors are linear in, so C(x)_l moves in the same way for every
sense l. ``weights``: v is the embedding that the contextual network reads. ``both``: both. Only whole words move: the
token " she" does in "she saw", not in "sheets" (" she", "ets"). No other token changes, nothing is trained, and
alpha = 1 is the ranker itself.

**Guarantee.** At alpha = 0 with ``both`` (with ``weights`` for a ranker without senses), swapping tokens within their
classes leaves the score as it is, bit for bit, when the swapped text has the same number of tokens and every token
that differs has its partner in the same token class (same case, same leading space), and both texts are scored in
batches of the same composition by an arithmetic that repeats itself: on a CPU, or on a GPU with
``torch.use_deterministic_algorithms(True)``, because a GPU otherwise adds the weights of equal tokens in any order and
even one text twice may differ in the last bits. Proof: v_0(x) = v_bar depends on the class alone, so at every position
both texts give both networks the same vector at the same position. Nothing else of a text enters the score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from backpack_rank.data.word_classes import WordClasses
from backpack_rank.models.modes import evaluating
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.models.reading import input_embeddings
from backpack_rank.models.word_edges import WordEdges

PLACES = ("senses", "weights", "both")
_CASES: tuple[Callable[[str], str], ...] = (str.lower, str.capitalize, str.upper)


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Classes of token ids; a token is in one class at most.

    Attributes:
        names: what each class is, such as ``" He"`` of class ``subject pronoun``.
        members: token ids of each class, two or more.
        edges: tells words from pieces of words.
        in_parts: words of the lexicon that are no single token in any variant: they are left as they are.
        alone: words with a token but without a partner of the same case and spacing: left as they are too.
    """

    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    edges: WordEdges
    in_parts: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """Digest of the members."""
        return hashlib.blake2b(repr(self.members).encode(), digest_size=6).hexdigest()

    def class_of(self, vocabulary: int) -> Tensor:
        """Class of every token id, -1 for none. [vocabulary]"""
        table = torch.full((vocabulary,), -1, dtype=torch.long)
        for index, ids in enumerate(self.members):
            table[list(ids)] = index
        return table


@dataclass(frozen=True, eq=False)
class TokenMove:
    """Tokens moved towards the mean of their class: how far (alpha) and where they enter (:data:`PLACES`)."""

    classes: TokenClasses
    where: str
    alpha: float

    def __post_init__(self) -> None:
        if self.where not in PLACES:
            raise ValueError(f"policy.where={self.where!r}: use one of {', '.join(PLACES)}")

    @property
    def key(self) -> str:
        """Differs when the moved vectors differ; part of the keys of cached sense vectors."""
        return f"{self.classes.key}-words-{self.where}-{self.alpha!r}"


def token_classes(tokenizer: PreTrainedTokenizerBase, words: WordClasses) -> TokenClasses:
    """One-token variants of the words of each class: with and without leading space, lower, Capitalised, UPPER.

    Raises:
        ValueError: no class has two words that are one token each in the same variant.
    """
    found: dict[tuple[int, ...], str] = {}
    taken: set[int] = set()
    known: set[str] = set()
    for word_class in words.classes:
        for space in (" ", ""):
            for case in _CASES:
                single = {word: _one_token(tokenizer, space + case(word)) for word in word_class.words}
                known |= {word for word, token in single.items() if token is not None}
                ids = tuple(sorted({token for token in single.values() if token is not None} - taken))
                if len(ids) > 1:
                    taken |= set(ids)
                    found[ids] = f"{word_class.name}: {space}{case(word_class.words[0])}"
    if not found:
        raise ValueError(
            f"word classes {words.name!r}: the tokenizer has no two words of a class as single tokens, "
            f"for example {words.classes[0].words[:4]}; nothing could be moved"
        )
    vocabulary = {token for ids in found for token in ids}
    every = [word for word_class in words.classes for word in word_class.words]
    alone = [word for word in every if word in known and not _variants(tokenizer, word) & vocabulary]
    return TokenClasses(
        tuple(found.values()),
        tuple(found),
        WordEdges.of(tokenizer),
        tuple(word for word in every if word not in known),
        tuple(alone),
    )


@contextmanager
def moved_tokens(ranker: PreTrainedModel, move: TokenMove) -> Iterator[None]:
    """The ranker with moved tokens, for the length of a ``with`` block.

    Raises:
        TypeError: ``senses`` or ``both`` for a ranker without senses.
    """
    senseless = not isinstance(ranker, BackpackForRanking)
    if senseless and move.where != "weights":
        raise TypeError(
            f"{type(ranker).__name__} has no sense vectors; policy.where=weights moves what it reads, "
            f"policy.where={move.where} needs a Backpack ranker"
        )
    if move.alpha == 1:
        yield
        return
    handles: list[RemovableHandle] = []
    try:
        if move.where in ("weights", "both"):
            handles += _move_embeddings(ranker, move)
        if move.where in ("senses", "both"):
            handles += _move_hidden(ranker, move)
        if move.where == "both" and move.alpha == 0:
            handles += _merge_ids(ranker, move)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _move_embeddings(ranker: PreTrainedModel, move: TokenMove) -> list[RemovableHandle]:
    """Move what the contextual network reads."""
    embeddings = _embeddings(ranker)
    shift = _shift(move, embeddings.weight, lambda ids: embeddings.weight[ids])

    def moved(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        ids = inputs[0]
        return shift(output, ids, move.classes.edges.whole_words(ids.flatten()).view_as(ids))

    return [embeddings.register_forward_hook(moved)]


def _move_hidden(ranker: PreTrainedModel, move: TokenMove) -> list[RemovableHandle]:
    """Move the hidden vectors that sense vectors are linear in; single tokens, without a text, count as words."""
    assert isinstance(ranker, BackpackForRanking)
    backpack = ranker.backpack
    with evaluating(ranker):  # the mean of a class is no place for dropout
        shift = _shift(move, backpack.get_input_embeddings().weight, backpack.token_hidden)

    def marked(_module: nn.Module, inputs: tuple[Tensor], _output: None) -> Tensor:
        return move.classes.edges.whole_words(inputs[0])

    def moved(_module: nn.Module, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> Tensor:
        _, ids, marks = inputs
        return shift(output, ids, torch.ones_like(ids, dtype=torch.bool) if marks is None else marks)

    handles = [backpack.token_marks.register_forward_hook(marked)]
    return [*handles, backpack.token_vectors.register_forward_hook(moved)]


def _merge_ids(ranker: PreTrainedModel, move: TokenMove) -> list[RemovableHandle]:
    """Give all words of a class the id of its first.

    At alpha = 0 they have the same vectors, but sums over distinct ids would be taken in another order, which shows in
    the last bits.
    """
    table = torch.arange(_embeddings(ranker).num_embeddings)
    for ids in move.classes.members:
        table[list(ids)] = ids[0]

    def merged(_module: nn.Module, inputs: tuple) -> tuple:
        batch = inputs[0]
        assert isinstance(batch, PackedBatch)
        ids = batch.input_ids
        whole = move.classes.edges.whole_words(ids)
        return (replace(batch, input_ids=torch.where(whole, table.to(ids.device)[ids], ids)), *inputs[1:])

    return [ranker.register_forward_pre_hook(merged)]


def _embeddings(ranker: PreTrainedModel) -> nn.Embedding:
    embeddings = input_embeddings(ranker)
    if not isinstance(embeddings, nn.Embedding):
        raise TypeError(f"{type(ranker).__name__} has no word vectors that could be moved, so it takes alpha=1 alone")
    return embeddings


def _shift(move: TokenMove, weight: Tensor, vectors_of: Callable[[Tensor], Tensor]):
    """A function (vectors [..., w], ids [...], whole words [...]) -> moved vectors."""
    class_of = move.classes.class_of(weight.shape[0]).to(weight.device)
    with torch.no_grad():
        means = torch.stack(
            [vectors_of(torch.tensor(ids, device=weight.device)).mean(dim=0) for ids in move.classes.members]
        )

    def shift(vectors: Tensor, ids: Tensor, whole: Tensor) -> Tensor:
        classes = class_of[ids]
        centre = means.to(vectors.dtype)[classes.clamp(min=0)]
        moved = centre + move.alpha * (vectors - centre)
        return torch.where(((classes >= 0) & whole)[..., None], moved, vectors)

    return shift


def _one_token(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    """The token of a text, or None when it is several or unknown."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None


def _variants(tokenizer: PreTrainedTokenizerBase, word: str) -> set[int]:
    texts = (space + case(word) for space in (" ", "") for case in _CASES)
    return {token for text in texts if (token := _one_token(tokenizer, text)) is not None}
