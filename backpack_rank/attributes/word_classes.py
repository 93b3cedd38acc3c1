"""Classes of words that are equivalent up to an attribute, such as {he, she} for gender.

Paired tokens, which move every word to the mean of its class, and a reader of a report need to know
which words stand for each other. A class holds words of all groups of the attribute in one
grammatical form; {man, woman} and {men, women} are two classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from backpack_rank.attributes.lexicon import Lexicon, find_lexicon
from backpack_rank.attributes.word_files import WordFile, check_word
from backpack_rank.data.words import word_tokens


@dataclass(frozen=True)
class WordClass:
    """Words that stand for each other.

    >>> WordClass("man", ("man", "woman")).words
    ('man', 'woman')

    Attributes:
        name: usually the first word; shown in reports.
        words: two or more lower-cased words.
    """

    name: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) < 2:
            words = ", ".join(self.words) or "none"
            raise ValueError(f"word class {self.name!r} needs at least two words (found: {words})")
        for word in self.words:
            check_word(word, f"word class {self.name!r}")


@dataclass(frozen=True)
class WordClasses:
    """The classes of one attribute; no word is in two of them, no name stands twice.

    >>> classes = WordClasses("gender", (WordClass("man", ("man", "woman")),))
    >>> sorted(classes.words)
    ['man', 'woman']

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
        class_of: dict[str, str] = {}
        for word_class in self.classes:
            if word_class.name in names:
                raise ValueError(
                    f"word classes {self.name!r}: there are two classes {word_class.name!r}"
                )
            names.add(word_class.name)
            for word in word_class.words:
                if word in class_of:
                    raise ValueError(
                        f"word classes {self.name!r}: {word!r} is in {class_of[word]!r} "
                        f"and again in {word_class.name!r}"
                    )
                class_of[word] = word_class.name

    @property
    def group_of(self) -> dict[str, str]:
        """Groups by word, of the words whose group is known."""
        return dict(self.groups)

    @property
    def words(self) -> frozenset[str]:
        """The words of all classes."""
        return frozenset().union(*(word_class.words for word_class in self.classes))

    def merged(self, other: WordClasses) -> WordClasses:
        """The classes of both; those that share a word or a name become one, named as the first.

        So a second list widens a first one: a row ``boy,guy`` in it adds "guy" to the class "boy",
        and if the first list has {guy, gal} as well, the result has one class {boy, girl, guy,
        gal}.
        """
        named_words = []
        for word_class in (*self.classes, *other.classes):
            named_words.append((word_class.name, word_class.words))
        groups = self.group_of | other.group_of
        return WordClasses(
            f"{self.name}+{other.name}",
            join_overlapping(named_words),
            groups=tuple(groups.items()),
        )


def load_classes(path: str | Path) -> WordClasses:
    """Read classes from a CSV file with the columns ``class`` and ``word``.

    >>> classes = load_classes("gender_classes")
    >>> "she" in classes.words
    True

    There may be a column ``group`` of each word.

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv``, see
            :func:`~backpack_rank.attributes.lexicon.find_lexicon`.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that
            occurs twice or in two classes, a word with white space, a class of one word; or the
            file has no class.
    """
    file = WordFile(find_lexicon(path))
    words_by_class: dict[str, list[str]] = {}
    first_lines: dict[str, int] = {}
    groups: list[tuple[str, str]] = []
    for row in file.rows(("word", "class"), optional=("group",)):
        word, name = file.word(row["word"]), row["class"]
        file.once(word, name, groups="classes")
        first_lines.setdefault(name, file.line)
        words_by_class.setdefault(name, []).append(word)
        if "group" in row:
            groups.append((word, row["group"]))
    if not words_by_class:
        raise ValueError(f"{file.path}: there is no row below the header")
    for name, words in words_by_class.items():
        if len(words) < 2:
            raise ValueError(
                f"{file.path}, line {first_lines[name]}: class {name!r} has one word only, "
                f"{words[0]!r}"
            )
    classes = []
    for name, words in words_by_class.items():
        classes.append(WordClass(name, tuple(words)))
    return WordClasses(file.path.stem, tuple(classes), file.path, tuple(groups))


def load_all_classes(paths: Sequence[str | Path]) -> WordClasses:
    """Read several files and merge them in order (see :meth:`WordClasses.merged`).

        classes = load_all_classes(["gender_classes", "gender_classes_wide"])

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no path is given, or as :func:`load_classes`.
    """
    if not paths:
        raise ValueError(
            "no file of word classes is given; name at least one, for example gender_classes"
        )
    classes = load_classes(paths[0])
    for path in paths[1:]:
        classes = classes.merged(load_classes(path))
    return classes


def class_of_names(names: Lexicon) -> WordClasses:
    """Where any first name stands for any other: one class of all names of a list.

        classes = gender_classes.merged(class_of_names(clear_names("gender_names")))

    A name is part of who somebody is, so nothing uses this unless a person asks for it.
    """
    words = tuple(chain.from_iterable(names.groups.values()))
    return WordClasses(names.name, (WordClass(names.name, words),), names.path)


def count_class_words(texts: Iterable[str], classes: WordClasses) -> dict[str, int]:
    """Which words of the classes a collection has, and how often.

    >>> classes = WordClasses("gender", (WordClass("man", ("man", "woman")),))
    >>> count_class_words(["A man met a man."], classes)
    {'man': 2, 'woman': 0}

    Counted on :func:`~backpack_rank.attributes.lexicon.word_tokens`.

    Raises:
        ValueError: a word that the tokenizer splits, such as "ma'am", and that would never be
            counted.
    """
    for word in sorted(classes.words):
        if word_tokens(word) != [word]:
            where = classes.name if classes.path is None else classes.path
            raise ValueError(
                f"{where}: {word!r} is split into {word_tokens(word)} when texts are counted, so "
                "it would never be found; remove it from the list"
            )
    # Every word from the start, so that those that never occur have 0, in the order of the classes.
    counts: dict[str, int] = {}
    for word_class in classes.classes:
        counts.update(dict.fromkeys(word_class.words, 0))
    for text in texts:
        for token in word_tokens(text):
            if token in counts:
                counts[token] += 1
    return counts


def join_overlapping(named_words: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[WordClass, ...]:
    """Make one class of classes that share a word or a name.

    >>> classes = join_overlapping([("he", ("he", "she")), ("she", ("she", "they"))])
    >>> [(word_class.name, word_class.words) for word_class in classes]
    [('he', ('he', 'she', 'they'))]

    It has the place and the name of the first of them.

    Args:
        named_words: names and words of the classes.
    """
    # Connected components, kept in the order of their first class. Dictionaries without values
    # stand for sets that keep the order of words.
    components: list[dict[str, None]] = []
    names: list[list[str]] = []
    for name, words in named_words:
        touched = []
        for index, component in enumerate(components):
            if name in names[index] or not component.keys().isdisjoint(words):
                touched.append(index)
        if not touched:
            components.append(dict.fromkeys(words))
            names.append([name])
            continue
        first, *others = touched
        for index in others:
            components[first].update(components[index])
            names[first] += names[index]
        components[first].update(dict.fromkeys(words))
        names[first].append(name)
        # From the last one, so that the indexes before it stay right.
        for index in reversed(others):
            del components[index], names[index]
    classes = []
    for class_names, component in zip(names, components, strict=True):
        classes.append(WordClass(class_names[0], tuple(component)))
    return tuple(classes)
