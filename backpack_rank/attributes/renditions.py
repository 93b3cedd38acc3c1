"""Renditions: a text written once for each group, the same for texts that differ in listed words.

    >>> from backpack_rank.attributes.attribute import Attribute
    >>> renditions = Attribute.named("gender").renditions()
    >>> [renditions("She saw her father.", group) for group in range(2)]
    ['She saw her father.', 'He saw his mother.']

A text is brought to a canonical form, in which every word that a swap replaces
(:mod:`counterfactual`) is a symbol: its class, its case, and how its group relates to the groups of
the words before it. From the canonical form, and from nothing else, K texts are written, one for
each group. A score that is a mean over them is therefore the same for all texts with one canonical
form, whatever ranker and tokenizer read them. For two groups and ``relations="keep"`` the mean is
over the orbit of the swap (a Reynolds operator).

No decision depends on what is swapped: him, his, her and hers are one symbol, and whether a
possessive or an object is written is read off a text in which all of them are "her".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from backpack_rank.attributes.counterfactual import (
    LexiconSwap,
    Swapped,
    case_of,
    in_case,
    is_possessive,
)
from backpack_rank.attributes.word_classes import WordClass, WordClasses, join_overlapping
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
    """Compares texts: two texts with equal canonical forms have equal renditions.

        renditions.canonical("She left.") == renditions.canonical("He left.")  # True

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
    """Writes a text for each group, with nothing left of the group that it was about.

    Call it with a text and the number of a group, as at the head of this module.
    :meth:`canonical` gives the form behind it.

    Attributes:
        groups: the K groups; rendition r writes the words with label 0 as of group r.
        incomplete: classes that lack a group, by name, with the groups that they lack: their words
            stay unchanged.
    """

    def __init__(
        self,
        swap: LexiconSwap,
        classes: WordClasses | None = None,
        relations: str = RELATIONS[0],
        neutral: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            swap: which words are replaced, and the two sides that they are of.
            classes: words that are one class in the canonical form too (synonyms: dad, mum, mom);
                None: those that the swap itself joins. Where they name groups (column ``group``),
                these come first, and words of groups that are no side of the swap are symbols too.
            relations: one of :data:`RELATIONS`.
            neutral: what a neutral rendition writes for words of the classes; None: there is none.

        Raises:
            ValueError: ``relations`` is unknown, or a word is of one group in the classes and of
                another in the swap.
        """
        one_of("policy.relations", relations, RELATIONS)
        self._swap = swap
        self._merge = relations == "merge"
        group_of, self._literal = groups_of_swap(swap)
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
        for word, group in given.items():
            if group not in sides:
                group_of[word] = group
        all_classes = _joined_by_swap(swap, group_of)
        if classes is not None:
            all_classes = all_classes.merged(classes)
        if swap.swapped_names is not None:
            group_of |= swap.swapped_names.group_of
            # A class for each name and its partner, called by the name.
            named_pairs = [(pair[0], pair) for pair in swap.swapped_names.pairs]
            all_classes = all_classes.merged(WordClasses("names", join_overlapping(named_pairs)))

        # The words of each class in the order of the groups, of classes that have all groups.
        self._words: list[tuple[str, ...]] = []
        # The class and the group, as numbers, of each of these words.
        self._place: dict[str, tuple[int, int]] = {}
        self.incomplete: dict[str, tuple[str, ...]] = {}
        for word_class in all_classes.classes:
            self._add(word_class, group_of)
        # For each class what a neutral rendition writes, or None.
        self._neutral: list[str | None] = []
        for words in self._words:
            self._neutral.append(_first_known(words, neutral or {}))
        # The class of him, his, her and hers.
        self._possessive = -1
        if swap.pronouns and "her" in self._place:
            self._possessive, _ = self._place["her"]

    def _add(self, word_class: WordClass, group_of: Mapping[str, str]) -> None:
        """Make symbols of the words of a class, unless it lacks a group."""
        words = [word for word in word_class.words if word in group_of]
        word_by_group: dict[str, str] = {}
        # A word of the pairs first: "mrs" and not "ms" is what "mr" becomes.
        for word in sorted(words, key=lambda word: word in self._swap.one_way):
            word_by_group.setdefault(group_of[word], word)
        lacking = tuple(group for group in self.groups if group not in word_by_group)
        if lacking:
            if words:
                self.incomplete[word_class.name] = lacking
            return
        for word in words:
            self._place[word] = len(self._words), self.groups.index(group_of[word])
        self._words.append(tuple(word_by_group[group] for group in self.groups))

    @cached_property
    def key(self) -> str:
        """Names these renditions in caches of scores; another one where a rendition may differ."""
        content = [
            self.groups,
            self._merge,
            self._words,
            sorted(self._place.items()),
            sorted(self._literal.items()),
            self._neutral,
        ]
        return digest(repr(content), size=8)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words that have no influence on a mean over renditions."""
        return frozenset(self._place) | frozenset(self._literal)

    def kept_names(self, query: str) -> frozenset[str]:
        """First names that stay in the documents of a query; none where all names stay."""
        names = self._swap.swapped_names
        return frozenset() if names is None else names.kept_for(query)

    def moves(self, text: str, kept_names: Collection[str] = ()) -> bool:
        """Whether the text has a word that is written anew."""
        return self.canonical(text, kept_names).moved > 0

    def same(self, text: str, other: str, kept_names: Collection[str] = ()) -> bool:
        """Whether two texts have one canonical form, and so the same renditions."""
        return self.canonical(text, kept_names) == self.canonical(other, kept_names)

    def swapped(self, query: str, document: str) -> Swapped:
        """The counterfactual of a document, which has the same renditions for this query."""
        return self._swap(document, self.kept_names(query))

    def __call__(
        self, text: str, group: int, kept_names: Collection[str] = (), neutral: bool = False
    ) -> str:
        """Rendition of a text for one of the groups; the text itself where it has no class word.

        Args:
            text: the text.
            group: number of the group.
            kept_names: lower-cased first names that stay.
            neutral: write "parent" for a mother or a father, and so on; only words without a
                neutral form, such as pronouns, are of the group.
        """
        form = self.canonical(text, kept_names)
        return self._write(form, group, neutral) if form.moved else text

    def canonical(self, text: str, kept_names: Collection[str] = ()) -> CanonicalForm:
        """The canonical form of a text; two texts with equal forms have equal renditions.

        First names in ``kept_names`` are no symbols.
        Accents are composed in it (:func:`~backpack_rank.data.words.composed`), unless no word is
        moved.
        """
        original = composed(text)
        literals = [""]
        symbols: list[Symbol] = []
        labels: dict[int, int] = {}
        copied = moved = 0
        for match in self._swap.matches(original, self.words, kept_names):
            word = match.group()
            lower = word.lower()
            case = case_of(word)
            literals[-1] += original[copied : match.start()]
            if lower in self._place:
                word_class, group = self._place[lower]
                # Groups are numbered as they come, so that a text and its swap have equal labels.
                label = 0 if self._merge else labels.setdefault(group, len(labels))
                symbols.append(Symbol(word_class, case, label))
                literals.append("")
            else:
                literals[-1] += in_case(case, self._literal[lower])
            copied = match.end()
            moved += 1
        if not moved:
            return CanonicalForm((text,), (), 0)
        literals[-1] += original[copied:]
        return CanonicalForm(tuple(literals), tuple(symbols), moved)

    def _write(self, form: CanonicalForm, group: int, neutral: bool) -> str:
        """The text of a canonical form for one of the groups."""
        words = []
        has_pronoun = False
        for symbol in form.symbols:
            group_of_word = (group + symbol.label) % len(self.groups)
            words.append(self._words[symbol.word_class][group_of_word])
            has_pronoun = has_pronoun or symbol.word_class == self._possessive
        if has_pronoun:
            words = self._pronouns(form, words)
        if neutral:
            for place, symbol in enumerate(form.symbols):
                words[place] = self._neutral[symbol.word_class] or words[place]
        return _interleaved(form, words)

    def _pronouns(self, form: CanonicalForm, words: Sequence[str]) -> list[str]:
        """The words with "his" for "him" and "her" for "hers" before a noun."""
        # Decided in a text where every pronoun is "her" and every word is of the first group, so
        # that the decision is the same for all texts with this form.
        shared_words = []
        for symbol in form.symbols:
            is_pronoun = symbol.word_class == self._possessive
            shared_words.append("her" if is_pronoun else self._words[symbol.word_class][0])
        shared_text = _interleaved(form, shared_words)

        decided = []
        end = 0
        # The last literal stands behind the last symbol and is left over.
        for literal, symbol, shared_word, word in zip(
            form.literals, form.symbols, shared_words, words, strict=False
        ):
            end += len(literal) + len(shared_word)
            if symbol.word_class == self._possessive:
                if word in ("him", "his"):
                    word = "his" if is_possessive(shared_text, end) else "him"
                elif word == "hers":
                    word = "her"
            decided.append(word)
        return decided


def _first_known(words: Sequence[str], neutral: Mapping[str, str]) -> str | None:
    """The neutral form of the first word that has one."""
    for word in words:
        if word in neutral:
            return neutral[word]
    return None


def _interleaved(form: CanonicalForm, words: Sequence[str]) -> str:
    """The text with these words, lower-cased, in the place and the case of the symbols."""
    pieces = [form.literals[0]]
    for symbol, word, literal in zip(form.symbols, words, form.literals[1:], strict=True):
        pieces.append(in_case(symbol.case, word))
        pieces.append(literal)
    return "".join(pieces)


def groups_of_swap(swap: LexiconSwap) -> tuple[dict[str, str], dict[str, str]]:
    """Which side each word of a swap is of.

        side_of, ends_as = groups_of_swap(Attribute.named("gender").swap())
        side_of["she"], ends_as["hostess"]  # 'female', 'host'

    Returns:
        The side of every replaced word; and the one-way words whose partner nothing replaces, with
        the word that each ends as.
    """
    first, second = swap.pairs.sides
    other_side = {first: second, second: first}
    side_of: dict[str, str] = {}
    for first_word, second_word in swap.pairs.pairs:
        side_of[first_word] = first
        side_of[second_word] = second

    # The partner of a one-way word may be a one-way word itself: each round finds the next words of
    # such a chain, which is no longer than there are one-way words.
    for _ in swap.one_way:
        further = {}
        for word, partner in swap.one_way.items():
            if partner in side_of and word not in side_of:
                further[word] = other_side[side_of[partner]]
        side_of |= further

    ends_as = {}
    for word in swap.one_way.keys() - side_of.keys():
        last = word
        # "earl" ends as "count": earl, countess, count.
        for _ in swap.one_way:
            last = swap.one_way.get(last, last)
        ends_as[word] = last
    return side_of, ends_as


def _joined_by_swap(swap: LexiconSwap, group_of: Mapping[str, str]) -> WordClasses:
    """Words that the swap turns into each other as one class; him, his, her and hers are one."""
    links: list[tuple[str, str]] = list(swap.pairs.pairs)
    for word, partner in swap.one_way.items():
        if word in group_of:
            links.append((word, partner))
    if swap.pronouns:
        links.append(("her", "hers"))
    named_links = [(words[0], words) for words in links]
    return WordClasses(swap.pairs.name, join_overlapping(named_links))
