"""Word lists by group and word pairs, read from CSV files.

Words are lower-cased and their accents composed when a file is read, and so are texts before they are compared with
them: "Mary" and "mary" are one word, and a file that has both has a duplicate.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from backpack_rank.data.words import Tokenizer, composed, word_tokens
from backpack_rank.files import read_text, resource_folder

LEXICON_FOLDER = "lexicons"


@dataclass(frozen=True)
class Lexicon:
    """Words in two or more groups; no word is in two of them.

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
            found = ", ".join(self.groups) or "none"
            raise ValueError(f"lexicon {self.name!r} has fewer than two groups (found: {found})")
        seen: dict[str, str] = {}
        for group, words in self.groups.items():
            if not words:
                raise ValueError(f"lexicon {self.name!r}: group {group!r} has no words")
            for word in words:
                check_word(word, f"lexicon {self.name!r}")
                if word in seen:
                    raise ValueError(f"lexicon {self.name!r}: {word!r} is in {seen[word]!r} and again in {group!r}")
                seen[word] = group

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return tuple(self.groups)

    @property
    def words(self) -> frozenset[str]:
        """The words of all groups."""
        return frozenset(word for words in self.groups.values() for word in words)


@dataclass(frozen=True)
class WordPairs:
    """Pairs of words that differ in one attribute, such as (she, he); no word is in two pairs.

    Attributes:
        name: file name without its ending; shown in reports.
        sides: what the first and the second word of a pair stand for, such as ("female", "male").
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
    """Read a CSV file with the columns ``word`` and ``group``.

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv`` (see
            :func:`find_lexicon`).

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that occurs
            twice or in two groups, a word with white space; or the file has fewer than two groups.
    """
    found = find_lexicon(path)
    groups, _ = grouped_words(found, "group", "groups")
    if len(groups) < 2:
        raise ValueError(f"{found}: fewer than two groups in column 'group' (found: {', '.join(groups) or 'none'})")
    return Lexicon(found.stem, {group: tuple(words) for group, words in groups.items()}, found)


def load_pairs(path: str | Path, sides: tuple[str, str] | None = ("female", "male")) -> WordPairs:
    """Read a CSV file of word pairs.

    Args:
        path: a file, or a name in the ``lexicons/`` folder with or without ``.csv`` (see
            :func:`find_lexicon`).
        sides: names of the two columns; None takes the two columns of the file in their order.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that occurs
            twice, a pair whose sides are equal, a word with white space; or the file has no pair.
    """
    found = find_lexicon(path)
    if sides is None:
        header = header_of(found)
        if len(header) != 2 or header[0] == header[1] or not all(header):
            raise ValueError(f"{found}, line 1: two columns with different names are expected, found {header}")
        sides = (header[0], header[1])
    first_side, second_side = sides
    pairs: list[tuple[str, str]] = []
    seen: dict[str, int] = {}
    for line, (first, second) in rows(found, (first_side, second_side)):
        pair = (first.lower(), second.lower())
        if pair[0] == pair[1]:
            raise ValueError(f"{found}, line {line}: both sides of the pair are {pair[0]!r}")
        for word in pair:
            check_word(word, f"{found}, line {line}")
            if word in seen:
                raise ValueError(f"{found}, line {line}: {word!r} occurs twice (first on line {seen[word]})")
            seen[word] = line
        pairs.append(pair)
    if not pairs:
        raise ValueError(f"{found}: there is no pair below the header")
    return WordPairs(found.stem, (first_side, second_side), tuple(pairs), found)


def load_one_way(path: str | Path) -> dict[str, str]:
    """Read a CSV file with the columns ``word`` and ``partner``: words that a pair list has no room for.

    A partner may stand for several words ("ms" and "miss" both become "mr"), and nothing leads back.

    Raises:
        FileNotFoundError: no such file; lists the places that were tried.
        ValueError: names file and line of a missing or unknown column, an empty cell, a word that occurs
            twice, a word that is its own partner, a word with white space; or the file has no row.
    """
    found = find_lexicon(path)
    partners: dict[str, str] = {}
    lines: dict[str, int] = {}
    for line, (word, partner) in rows(found, ("word", "partner")):
        word, partner = word.lower(), partner.lower()
        check_word(word, f"{found}, line {line}")
        check_word(partner, f"{found}, line {line}")
        if word == partner:
            raise ValueError(f"{found}, line {line}: {word!r} is its own partner")
        if word in partners:
            raise ValueError(f"{found}, line {line}: {word!r} occurs twice (first on line {lines[word]})")
        partners[word], lines[word] = partner, line
    if not partners:
        raise ValueError(f"{found}: there is no row below the header")
    return partners


def find_lexicon(path: str | Path) -> Path:
    """The file that a path or a name stands for.

    Tried in this order: the path as it is given; for a relative path, the ``lexicons/`` folder of the
    package (of a checkout: beside it), then ``lexicons/`` in the working directory, each also with ``.csv``
    appended.

    Raises:
        FileNotFoundError: none of these is a file; lists them.
    """
    given = Path(path).expanduser()
    tried = [given]
    if not given.is_absolute():
        for folder in (resource_folder(LEXICON_FOLDER), Path.cwd() / LEXICON_FOLDER):
            tried += [folder / given, folder / f"{given}.csv"]
    tried = list(dict.fromkeys(tried))
    for candidate in tried:
        if candidate.is_file():
            return candidate
    places = ", ".join(str(candidate) for candidate in tried)
    raise FileNotFoundError(f"word list {str(path)!r} was not found; tried: {places}")


def header_of(path: Path) -> list[str]:
    """Names of the columns of a CSV file, without the byte order mark that spreadsheets put before the first."""
    return next(([name.strip() for name in cells] for _, cells in _csv_rows(path)), [])


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row, the header's too."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        yield from ((reader.line_num, row) for row in reader)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def grouped_words(
    path: Path, column: str, plural: str, further: tuple[str, ...] = ()
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Words of a CSV file by the values of a column, and the line where each value stands first.

    Args:
        path: has the columns ``word`` and ``column``.
        column: such as ``group``.
        plural: of it, for the sentence of an error.
        further: columns that may be there too.

    Raises:
        ValueError: names file and line of a word that occurs twice or is in two groups, or of a bad word or cell.
    """
    groups: dict[str, list[str]] = {}
    first_lines: dict[str, int] = {}
    seen: dict[str, tuple[int, str]] = {}
    for line, (raw, group) in rows(path, ("word", column), further):
        word = raw.lower()
        check_word(word, f"{path}, line {line}")
        if word in seen:
            first_line, first_group = seen[word]
            what = "occurs twice" if group == first_group else f"is in two {plural}, {first_group!r} and {group!r}"
            raise ValueError(f"{path}, line {line}: {word!r} {what} (first on line {first_line})")
        seen[word] = (line, group)
        first_lines.setdefault(group, line)
        groups.setdefault(group, []).append(word)
    return groups, first_lines


def rows(path: Path, columns: tuple[str, str], further: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, str]]]:
    """Line number and cells of every row, in the order of ``columns``; empty lines are passed over.

    ``further`` are names of columns that may be there and are not asked for.

    Raises:
        ValueError: names file and line of a missing or unknown column, an empty cell or a wrong number of cells.
    """
    header = header_of(path)
    _check_header(path, header, columns, further)
    order = [header.index(name) for name in columns]
    for line, row in islice(_csv_rows(path), 1, None):
        cells = [composed(cell.strip()) for cell in row]
        if not cells:
            continue
        if len(cells) != len(header):
            raise ValueError(f"{path}, line {line}: {len(header)} cells expected, found {len(cells)}")
        for name, cell in zip(header, cells, strict=True):
            if not cell:
                raise ValueError(f"{path}, line {line}: the cell of column {name!r} is empty")
        yield line, (cells[order[0]], cells[order[1]])


def _check_header(path: Path, header: list[str], columns: tuple[str, str], further: tuple[str, ...]) -> None:
    missing = [name for name in columns if name not in header]
    unknown = [name for name in header if name not in columns + further]
    if missing or unknown or len(header) != len(set(header)):
        raise ValueError(
            f"{path}, line 1: the header must be {','.join(columns)} (in any order), found "
            f"{','.join(header)!r}"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
        )


def check_word(word: str, where: str) -> None:
    """Raise ``ValueError`` for what no token of a lower-cased text can equal; ``where`` begins the sentence."""
    if not word.isprintable():
        raise ValueError(f"{where}: {word!r} holds a character that cannot be printed")
    if not word or word.split() != [word]:
        raise ValueError(f"{where}: {word!r} is no single word (empty or with white space); no token can equal it")
    if word != composed(word):
        raise ValueError(f"{where}: {word!r} has its accents as characters of their own (NFD); write it composed (NFC)")
    if word != word.lower():
        raise ValueError(f"{where}: {word!r} is not lower-cased; texts are lower-cased before they are compared")


def count_groups(texts: Iterable[str], lexicon: Lexicon, tokenizer: Tokenizer = word_tokens) -> np.ndarray:
    """Number of tokens of each group in each text.

    Args:
        texts: N documents.
        lexicon: the groups, n_groups of them.
        tokenizer: :func:`word_tokens` or :func:`whitespace_tokens`, or a function like them.

    Returns:
        int64 array [N, n_groups]; columns in the order of ``lexicon.group_names``.

    Raises:
        ValueError: the tokenizer can never give one of the lexicon's words.
    """
    column = _columns(lexicon, tokenizer)
    groups = len(lexicon.groups)
    cells: list[int] = []  # row * groups + column of every token found; most texts have none
    number = 0
    for text in texts:
        tokens = tokenizer(text)
        if not column.keys().isdisjoint(tokens):
            start = number * groups
            cells += [start + column[token] for token in tokens if token in column]
        number += 1
    counts = np.bincount(np.array(cells, dtype=np.int64), minlength=number * groups)
    return counts.astype(np.int64, copy=False).reshape(number, groups)


def _columns(lexicon: Lexicon, tokenizer: Tokenizer) -> dict[str, int]:
    column = {word: index for index, words in enumerate(lexicon.groups.values()) for word in words}
    for word in column:
        if tokenizer(word) != [word]:
            raise ValueError(
                f"lexicon {lexicon.name!r}: the tokenizer splits {word!r} into {tokenizer(word)}, so "
                "the word would never be counted; change the word or choose another tokenizer"
            )
    return column
