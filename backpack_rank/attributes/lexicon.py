"""Word lists by group and word pairs, read from CSV files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backpack_rank.attributes.word_files import WordFile, check_word
from backpack_rank.data.words import Tokenizer, word_tokens
from backpack_rank.files import resource_folder

LEXICON_FOLDER = "lexicons"


@dataclass(frozen=True)
class Lexicon:
    """Counts words of groups in documents, such as female and male words.

    There are two or more groups, and no word is in two of them.

    >>> lexicon = Lexicon("gender", {"female": ("she", "her"), "male": ("he", "his")})
    >>> count_groups(["She met his mother."], lexicon)
    array([[1, 1]])

    Attributes:
        name: file name without its ending; shown in reports.
        groups: lower-cased words of each group; groups and words in the order of the file.
        path: where it was read, or None when it was made in memory.
    """

    name: str
    groups: Mapping[str, tuple[str, ...]]
    path: Path | None = None

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            names = ", ".join(self.groups) or "none"
            raise ValueError(f"lexicon {self.name!r} has fewer than two groups (found: {names})")
        group_of: dict[str, str] = {}
        for group, words in self.groups.items():
            if not words:
                raise ValueError(f"lexicon {self.name!r}: group {group!r} has no words")
            for word in words:
                check_word(word, f"lexicon {self.name!r}")
                if word in group_of:
                    raise ValueError(
                        f"lexicon {self.name!r}: {word!r} is in {group_of[word]!r} "
                        f"and again in {group!r}"
                    )
                group_of[word] = group

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return tuple(self.groups)

    @property
    def words(self) -> frozenset[str]:
        """The words of all groups."""
        return frozenset().union(*self.groups.values())


@dataclass(frozen=True)
class WordPairs:
    """Pairs of words that differ in one attribute, such as (she, he).

    No word is in two pairs.

    >>> WordPairs("titles", ("female", "male"), (("queen", "king"),)).sides
    ('female', 'male')

    Attributes:
        name: file name without its ending; shown in reports.
        sides: what the first and the second word of a pair stand for: ("female", "male").
        pairs: lower-cased pairs in the order of the file.
        path: where they were read, or None when they were made in memory.
    """

    name: str
    sides: tuple[str, str]
    pairs: tuple[tuple[str, str], ...]
    path: Path | None = None

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(f"word pairs {self.name!r}: there is no pair")
        seen: set[str] = set()
        for pair in self.pairs:
            if pair[0] == pair[1]:
                raise ValueError(f"word pairs {self.name!r}: both sides of a pair are {pair[0]!r}")
            for word in pair:
                check_word(word, f"word pairs {self.name!r}")
                if word in seen:
                    raise ValueError(f"word pairs {self.name!r}: {word!r} is in two pairs")
                seen.add(word)


def load_lexicon(path: str | Path) -> Lexicon:
    """Read words by group, from a CSV file with the columns ``word`` and ``group``.

    >>> load_lexicon("gender_words").group_names
    ('female', 'male')

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv``, see
            :func:`find_lexicon`.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that
            occurs twice or in two groups, a word with white space; or the file has fewer than two
            groups.
    """
    file = WordFile(find_lexicon(path))
    groups: dict[str, list[str]] = {}
    for row in file.rows(("word", "group")):
        word = file.word(row["word"])
        # Raises for a word of an earlier line; Lexicon would too, but cannot name the line.
        file.once(word, row["group"], groups="groups")
        groups.setdefault(row["group"], []).append(word)
    if len(groups) < 2:
        names = ", ".join(groups) or "none"
        raise ValueError(f"{file.path}: fewer than two groups in column 'group' (found: {names})")
    words_by_group = {group: tuple(words) for group, words in groups.items()}
    return Lexicon(file.path.stem, words_by_group, file.path)


def load_pairs(path: str | Path, sides: tuple[str, str] | None = ("female", "male")) -> WordPairs:
    """Read word pairs from a CSV file, one pair in a line.

    >>> load_pairs("gender_pairs").sides
    ('female', 'male')

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv``, see
            :func:`find_lexicon`.
        sides: names of the two columns; None takes the two columns of the file in their order.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that
            occurs twice, a pair whose sides are equal, a word with white space; or the file has no
            pair.
    """
    file = WordFile(find_lexicon(path))
    if sides is None:
        header = file.header
        if len(header) != 2 or header[0] == header[1] or not all(header):
            raise ValueError(
                f"{file.path}, line 1: two columns with different names are expected, "
                f"found {header}"
            )
        sides = (header[0], header[1])
    first_side, second_side = sides
    pairs = []
    for row in file.rows(sides):
        first, second = row[first_side].lower(), row[second_side].lower()
        if first == second:
            raise ValueError(f"{file.where}: both sides of the pair are {first!r}")
        for word in (first, second):
            check_word(word, file.where)
            file.once(word)  # raises for a word of an earlier line
        pairs.append((first, second))
    if not pairs:
        raise ValueError(f"{file.path}: there is no pair below the header")
    return WordPairs(file.path.stem, (first_side, second_side), tuple(pairs), file.path)


def load_one_way(path: str | Path) -> dict[str, str]:
    """Read words that are replaced in one direction only.

    The CSV file has the columns ``word`` and ``partner``. Pairs cannot hold such words, because
    several may have the same partner: "ms" and "miss" both become "mr", and "mr" cannot become
    both.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that
            occurs twice, a word that is its own partner, a word with white space; or the file has
            no row.
    """
    file = WordFile(find_lexicon(path))
    partners: dict[str, str] = {}
    for row in file.rows(("word", "partner")):
        word, partner = file.word(row["word"]), file.word(row["partner"])
        if word == partner:
            raise ValueError(f"{file.where}: {word!r} is its own partner")
        file.once(word)
        partners[word] = partner
    if not partners:
        raise ValueError(f"{file.path}: there is no row below the header")
    return partners


def load_neutral(path: str | Path) -> dict[str, str]:
    """Read words with what is written in their place where no group is meant.

    The CSV file has the columns ``word`` and ``neutral``; the second may be several words, as in
    "policewoman,police officer".

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell or a word that
            occurs twice; or the file has no row.
    """
    file = WordFile(find_lexicon(path))
    neutral: dict[str, str] = {}
    for row in file.rows(("word", "neutral")):
        word = file.word(row["word"])
        file.once(word)
        neutral[word] = row["neutral"].lower()
    if not neutral:
        raise ValueError(f"{file.path}: there is no row below the header")
    return neutral


def find_lexicon(path: str | Path) -> Path:
    """An option that is a path or a name of ``lexicons/``: the file that it stands for.

    >>> find_lexicon("gender_pairs").name
    'gender_pairs.csv'

    Tried in this order: the path itself; for a relative path, the ``lexicons/`` folder of
    the package (of a checkout: beside it), then ``lexicons/`` in the working directory, each also
    with ``.csv`` appended.

    Raises:
        FileNotFoundError: none of these is a file; lists them.
    """
    given = Path(path).expanduser()
    candidates = [given]
    if not given.is_absolute():
        for folder in (resource_folder(LEXICON_FOLDER), Path.cwd() / LEXICON_FOLDER):
            candidates += [folder / given, folder / f"{given}.csv"]
    # In the repository itself the two folders are one; it is listed once.
    candidates = list(dict.fromkeys(candidates))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    places = ", ".join(map(str, candidates))
    raise FileNotFoundError(f"word list {str(path)!r} was not found; tried: {places}")


def count_groups(
    texts: Iterable[str], lexicon: Lexicon, tokenizer: Tokenizer = word_tokens
) -> np.ndarray:
    """Count the tokens of each group in each text.

    >>> count_groups(["He met her.", "Nobody came."], load_lexicon("gender_words"))
    array([[1, 1],
           [0, 0]])

    Args:
        texts: N documents.
        lexicon: the groups, n_groups of them.
        tokenizer: :func:`word_tokens` or :func:`whitespace_tokens`, or a function like them.

    Returns:
        int64 array [N, n_groups]; columns in the order of ``lexicon.group_names``.

    Raises:
        ValueError: the tokenizer can never give one of the lexicon's words.
    """
    column_of_word = _column_of_word(lexicon, tokenizer)
    groups = len(lexicon.groups)
    # The table [N, n_groups] is counted flat: a token of a group is a hit in the cell
    # row * groups + column, and bincount counts the hits of each cell. Most texts have no such
    # token, and isdisjoint tells so faster than a loop over tokens in Python.
    cells: list[int] = []
    number_of_texts = 0
    for text in texts:
        tokens = tokenizer(text)
        if not column_of_word.keys().isdisjoint(tokens):
            first_cell = number_of_texts * groups
            for token in tokens:
                if token in column_of_word:
                    cells.append(first_cell + column_of_word[token])
        number_of_texts += 1
    counts = np.bincount(np.array(cells, dtype=np.int64), minlength=number_of_texts * groups)
    return counts.astype(np.int64, copy=False).reshape(number_of_texts, groups)


def _column_of_word(lexicon: Lexicon, tokenizer: Tokenizer) -> dict[str, int]:
    """Column of each word's group; refuses a word that the tokenizer splits."""
    column_of_word = {}
    for column, words in enumerate(lexicon.groups.values()):
        column_of_word.update(dict.fromkeys(words, column))
    for word in column_of_word:
        if tokenizer(word) != [word]:
            raise ValueError(
                f"lexicon {lexicon.name!r}: the tokenizer splits {word!r} into {tokenizer(word)}, "
                "so the word would never be counted; change the word or choose another tokenizer"
            )
    return column_of_word
