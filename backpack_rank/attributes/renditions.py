"""Renditions: one text written once for each group, such that texts which differ in listed words
alone have the same.

A text is brought to a canonical form, in which every word that a swap replaces
(:mod:`counterfactual`) is a symbol: its class, its case, and how its group relates to the groups of
the words before it. From the canonical form, and from nothing else, K texts are written, one for
each group. A score that is a mean over them is therefore the same for all texts with one canonical
form, whatever ranker and tokenizer read them. For two groups and ``relations="keep"`` the mean is
over the orbit of the whole swap (a Reynolds operator).

No decision depends on what is swapped: him, his, her and hers are one symbol, and whether a
possessive or an object is written is read off a text in which all of them are "her".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from backpack_rank.attributes.counterfactual import LexiconSwap, case_of, in_case, is_possessive
from backpack_rank.attributes.word_classes import WordClass, WordClasses, joined
from backpack_rank.checks import one_of
from backpack_rank.data.words import composed
from backpack_rank.digests import digest

RELATIONS = ("keep", "merge")
"""``keep``: words of one group stay of one group ("his wife", "her husband"). ``merge``: all words
are of one group.
"""


@dataclass(frozen=True)
class Symbol:
    """What a class word is in the canonical form.

    Attributes:
        word_class: index of its class.
        case: see :func:`~backpack_rank.attributes.counterfactual.case_of`.
        label: 0 for the group of the text's first class word, 1 for the next one that differs, and
            so on.
    """

    word_class: int
    case: str
    label: int


@dataclass(frozen=True)
class CanonicalForm:
    """A text with symbols in place of its class words.

    Attributes:
        literals: what stands before, between and behind the symbols, one more than those. A one-way
            word whose partner nothing replaces ("hostess") is written as its partner ("host").
        symbols: in the order of the text.
        moved: words of the text that the swap replaces, symbols or not.
    """

    literals: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    moved: int = field(compare=False)


class Renditions:
    """The canonical forms and the renditions of texts.

    Attributes:
        groups: the K groups; rendition r writes the words with label 0 as of group r.
        incomplete: classes that lack a group, by name, with the groups that they lack: their words
            stay as they are.
    """

    def __init__(
        self, swap: LexiconSwap, classes: WordClasses | None = None, relations: str = RELATIONS[0]
    ) -> None:
        """
        Args:
            swap: which words are replaced, and the two sides that they are of.
            classes: words that are one class in the canonical form too (synonyms: dad, mum, mom);
                None: those that the swap itself joins. Where they name groups (column ``group``),
                these come first, and words of groups that are no side of the swap are symbols too.
            relations: one of :data:`RELATIONS`.

        Raises:
            ValueError: ``relations`` is unknown, or a word is of one group in the classes and of
                another in the swap.
        """
        one_of("policy.relations", relations, RELATIONS)
        self._swap, self._merge = swap, relations == "merge"
        group_of, becomes = groups_of_swap(swap)
        self._literal = becomes
        given = {} if classes is None else classes.group_of
        for word in given.keys() & group_of.keys():
            if given[word] != group_of[word]:
                name = "" if classes is None else classes.name
                raise ValueError(
                    f"{word!r} is {given[word]} in {name} and {group_of[word]} in the swap"
                )
        sides = swap.pairs.sides
        self.groups = tuple(dict.fromkeys((*given.values(), *sides)))
        # A word of a side that the swap leaves alone stays: a swapped text would have another form.
        group_of |= {word: group for word, group in given.items() if group not in sides}
        all_classes = _joined_by_swap(swap, group_of)
        all_classes = all_classes if classes is None else all_classes.merged(classes)
        self._words: list[tuple[str, ...]] = []
        self._place: dict[str, tuple[int, int]] = {}
        self.incomplete: dict[str, tuple[str, ...]] = {}
        for one in all_classes.classes:
            self._add(one, group_of)
        self._possessive = self._place["her"][0] if swap.pronouns and "her" in self._place else -1

    def _add(self, one: WordClass, group_of: Mapping[str, str]) -> None:
        by_group: dict[str, str] = {}
        words = [word for word in one.words if word in group_of]
        # A word of the pairs first: "mrs" and not "ms" is what "mr" becomes.
        for word in sorted(words, key=lambda word: word in self._swap.one_way):
            by_group.setdefault(group_of[word], word)
        if lacking := tuple(group for group in self.groups if group not in by_group):
            if words:
                self.incomplete[one.name] = lacking
            return
        for word in words:
            self._place[word] = len(self._words), self.groups.index(group_of[word])
        self._words.append(tuple(by_group[group] for group in self.groups))

    @cached_property
    def key(self) -> str:
        """Differs when a rendition differs."""
        content = [
            self.groups,
            self._merge,
            self._words,
            sorted(self._place.items()),
            sorted(self._literal.items()),
        ]
        return digest(repr(content), size=8)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that have no influence on a mean over renditions."""
        return frozenset(self._place) | frozenset(self._literal)

    def __call__(self, text: str, group: int) -> str:
        """Rendition of a text for one of the groups; the text itself where it has no class word."""
        form = self.canonical(text)
        return self._write(form, group) if form.moved else text

    def canonical(self, text: str) -> CanonicalForm:
        """The canonical form of a text; two texts with equal forms have equal renditions.

        Accents are composed in it (:func:`~backpack_rank.data.words.composed`), unless no word is
        moved.
        """
        literals, symbols, labels = [""], list[Symbol](), dict[int, int]()
        done = moved = 0
        whole = composed(text)
        for match in self._swap.found(whole, self.words):
            word, lower = match.group(), match.group().lower()
            literals[-1] += whole[done : match.start()]
            if lower in self._place:
                word_class, group = self._place[lower]
                label = 0 if self._merge else labels.setdefault(group, len(labels))
                symbols.append(Symbol(word_class, case_of(word), label))
                literals.append("")
            else:
                literals[-1] += in_case(case_of(word), self._literal[lower])
            done = match.end()
            moved += 1
        if not moved:
            return CanonicalForm((text,), (), 0)
        literals[-1] += whole[done:]
        return CanonicalForm(tuple(literals), tuple(symbols), moved)

    def _write(self, form: CanonicalForm, group: int) -> str:
        words = [
            self._words[one.word_class][(group + one.label) % len(self.groups)]
            for one in form.symbols
        ]
        if self._possessive in (one.word_class for one in form.symbols):
            words = self._pronouns(form, words)
        return _interleaved(form, words)

    def _pronouns(self, form: CanonicalForm, words: Sequence[str]) -> list[str]:
        """The words with "his" for "him" before a noun; decided where every pronoun is "her"."""
        neutral = [
            "her" if one.word_class == self._possessive else self._words[one.word_class][0]
            for one in form.symbols
        ]
        text, end, found = _interleaved(form, neutral), 0, []
        for literal, one, plain, word in zip(
            form.literals, form.symbols, neutral, words, strict=False
        ):
            end += len(literal) + len(plain)
            if one.word_class == self._possessive:
                if word in ("him", "his"):
                    word = "his" if is_possessive(text, end) else "him"
                elif word == "hers":
                    word = "her"
            found.append(word)
        return found


def _interleaved(form: CanonicalForm, words: Sequence[str]) -> str:
    pieces = [form.literals[0]]
    for one, word, literal in zip(form.symbols, words, form.literals[1:], strict=True):
        pieces += (in_case(one.case, word), literal)
    return "".join(pieces)


def groups_of_swap(swap: LexiconSwap) -> tuple[dict[str, str], dict[str, str]]:
    """The side of every replaced word; and one-way words whose partner nothing replaces, with what
    they end as.
    """
    group_of: dict[str, str] = {}
    for pair in swap.pairs.pairs:
        group_of |= dict(zip(pair, swap.pairs.sides, strict=True))
    other = dict(zip(swap.pairs.sides, reversed(swap.pairs.sides), strict=True))
    for _ in swap.one_way:  # a partner may itself be a one-way word
        group_of |= {
            word: other[group_of[partner]]
            for word, partner in swap.one_way.items()
            if partner in group_of and word not in group_of
        }
    becomes = {}
    for word in swap.one_way.keys() - group_of.keys():
        becomes[word] = word
        for _ in swap.one_way:  # earl, countess, count
            becomes[word] = swap.one_way.get(becomes[word], becomes[word])
    return group_of, becomes


def _joined_by_swap(swap: LexiconSwap, group_of: Mapping[str, str]) -> WordClasses:
    """Words that the swap turns into each other, him, his, her and hers among them, as one class."""
    links = [(word, partner) for word, partner in swap.one_way.items() if word in group_of]
    if swap.pronouns:
        links.append(("her", "hers"))
    named = [(words[0], words) for words in (*swap.pairs.pairs, *links)]
    return WordClasses(swap.pairs.name, joined(named))
