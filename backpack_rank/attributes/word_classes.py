"""Classes of words that are equivalent up to an attribute, such as {he, she} for gender.

Paired tokens, which move every word to the mean of its class, and a reader of a report need the same thing: which words
stand for each other. A class holds words of all groups of the attribute in one grammatical form; {man, woman} and
{men, women} are two classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.attributes.lexicon import Lexicon, check_word, find_lexicon, grouped_words, header_of, rows
from backpack_rank.data.words import word_tokens


@dataclass(frozen=True)
class WordClass:
    """Words that stand for each other.

    Attributes:
        name: usually the first word; shown in reports.
        words: two or more lower-cased words.
    """

    name: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) < 2:
            found = ", ".join(self.words) or "none"
            raise ValueError(f"word class {self.name!r} needs at least two words (found: {found})")
        for word in self.words:
            check_word(word, f"word class {self.name!r}")


@dataclass(frozen=True)
class WordClasses:
    """Classes of one attribute; no word is in two of them, no name stands twice.

    Attributes:
        name: file name without its ending; shown in reports.
        classes: in the order of the file.
        path: where they were read, or None when they were made in memory.
        groups: (word, group) of the words whose group is known, such as ("she", "female").
    """

    name: str
    classes: tuple[WordClass, ...]
    path: Path | None = None
    groups: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError(f"word classes {self.name!r}: there is no class")
        names: set[str] = set()
        owner: dict[str, str] = {}
        for one in self.classes:
            if one.name in names:
                raise ValueError(f"word classes {self.name!r}: there are two classes {one.name!r}")
            names.add(one.name)
            for word in one.words:
                if word in owner:
                    raise ValueError(
                        f"word classes {self.name!r}: {word!r} is in {owner[word]!r} and again in {one.name!r}"
                    )
                owner[word] = one.name

    @property
    def group_of(self) -> dict[str, str]:
        """Groups by word, of the words whose group is known."""
        return dict(self.groups)

    @property
    def words(self) -> frozenset[str]:
        """The words of all classes."""
        return frozenset(word for one in self.classes for word in one.words)

    def merged(self, other: WordClasses) -> WordClasses:
        """The classes of both; those that share a word or a name become one, under the first one's name.

        So a second list widens a first one: a row ``boy,guy`` in it adds "guy" to the class "boy", and if the
        first list has {guy, gal} as well, the result has one class {boy, girl, guy, gal}.
        """
        named = [(one.name, one.words) for one in (*self.classes, *other.classes)]
        return WordClasses(
            f"{self.name}+{other.name}", joined(named), groups=tuple((self.group_of | other.group_of).items())
        )


def load_classes(path: str | Path) -> WordClasses:
    """Read a CSV file with the columns ``class`` and ``word``, and ``group`` if it says which group each word is of.

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv`` (see
            :func:`~backpack_rank.attributes.lexicon.find_lexicon`).

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that occurs twice
            or in two classes, a word with white space, a class of one word; or the file has no class.
    """
    found = find_lexicon(path)
    words, first_lines = grouped_words(found, "class", "classes", ("group",))
    if not words:
        raise ValueError(f"{found}: there is no row below the header")
    for name, members in words.items():
        if len(members) < 2:
            raise ValueError(f"{found}, line {first_lines[name]}: class {name!r} has one word only, {members[0]!r}")
    classes = tuple(WordClass(name, tuple(members)) for name, members in words.items())
    groups: tuple[tuple[str, str], ...] = ()
    if "group" in header_of(found):
        groups = tuple((word.lower(), group) for _, (word, group) in rows(found, ("word", "group"), ("class",)))
    return WordClasses(found.stem, classes, found, groups)


def load_all_classes(paths: Sequence[str | Path]) -> WordClasses:
    """Read several files and merge them in order (see :meth:`WordClasses.merged`).

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no path is given, or as :func:`load_classes`.
    """
    if not paths:
        raise ValueError("no file of word classes is given; name at least one, for example gender_classes")
    classes = load_classes(paths[0])
    for path in paths[1:]:
        classes = classes.merged(load_classes(path))
    return classes


def class_of_names(names: Lexicon) -> WordClasses:
    """One class of all the words of a list, for first names: any name stands for any other.

    A name is part of who somebody is, so nothing uses this unless a person asks for it.
    """
    words = tuple(word for group in names.groups.values() for word in group)
    return WordClasses(names.name, (WordClass(names.name, words),), names.path)


def count_class_words(texts: Iterable[str], classes: WordClasses) -> dict[str, int]:
    """How often every word of the classes occurs in the texts; words that never occur have 0.

    Counted on :func:`~backpack_rank.attributes.lexicon.word_tokens`.

    Raises:
        ValueError: a word that the tokenizer splits, such as "ma'am", and that would never be counted.
    """
    for word in sorted(classes.words):
        if word_tokens(word) != [word]:
            where = classes.name if classes.path is None else classes.path
            raise ValueError(
                f"{where}: {word!r} is split into {word_tokens(word)} when texts are counted, so it would never "
                "be found; remove it from the list"
            )
    wanted = classes.words
    found: Counter[str] = Counter()
    for text in texts:
        found.update(token for token in word_tokens(text) if token in wanted)
    return {word: found[word] for one in classes.classes for word in one.words}


def joined(named: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[WordClass, ...]:
    """Classes that share a word or a name as one, at the place and with the name of the first."""
    members: list[dict[str, None]] = []  # dictionaries keep the order of words
    names: list[list[str]] = []
    for name, words in named:
        touched = [
            index for index, group in enumerate(members) if name in names[index] or not group.keys().isdisjoint(words)
        ]
        if not touched:
            members.append(dict.fromkeys(words))
            names.append([name])
            continue
        first = touched[0]
        for index in touched[1:]:
            members[first].update(members[index])
            names[first] += names[index]
        members[first].update(dict.fromkeys(words))
        names[first].append(name)
        for index in reversed(touched[1:]):
            del members[index], names[index]
    return tuple(WordClass(known[0], tuple(group)) for known, group in zip(names, members, strict=True))
