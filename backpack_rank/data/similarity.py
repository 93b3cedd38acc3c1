"""Lists of word pairs with people's judgements of their similarity, in the layouts they are published in."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.data.formats import fail, numbered_lines

_DELIMITERS = ("\t", ";", ",")
_WORDS, _SCORE = (("word1", "w1"), ("word2", "w2")), "score"


@dataclass(frozen=True)
class WordPair:
    """Two words and the mean judgement of their similarity."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class SimilarityList:
    """A list by its file's name without endings (``SimLex-999``)."""

    name: str
    pairs: tuple[WordPair, ...]


def read_similarity(path: str | Path) -> SimilarityList:
    """Read a list of word pairs, with or without a header, plain or ``.gz``.

    Columns are separated by tabs, semicolons, commas, or white space, whichever the first line has, in this order. The
    words are in the columns ``word1`` and ``word2`` of the header, or the first two; the judgement is in the column
    ``score``, or the first behind the words that is a number in the first line below the header. So SimLex-999.txt
    (word1, word2, POS, SimLex999, ...), RG-65 (word, word, judgement), WordSim-353 and SimVerb-3500 are read as they
    are published. A first line without a number there is a header. Lines that start with ``#`` are left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line lacks a word or a finite judgement (file and line are named), there are fewer than three
            pairs, or all have the same judgement.
    """
    path = Path(path).expanduser()
    lines = [(number, line) for number, line in numbered_lines(path) if not line.startswith("#")]
    delimiter = next((mark for mark in _DELIMITERS if lines and mark in lines[0][1]), None)
    rows = [(number, _fields(line, delimiter)) for number, line in lines]
    header = _header([row for _, row in rows[:2]])
    rows = rows[1:] if header else rows
    words, score = _columns(path, header, rows)
    pairs = tuple(_pair(path, number, row, words, score) for number, row in rows)
    if len(pairs) < 3 or len({pair.score for pair in pairs}) == 1:
        raise ValueError(f"{path}: a correlation needs at least three word pairs with different judgements")
    return SimilarityList(path.name.removesuffix(".gz").rpartition(".")[0] or path.name, pairs)


def _fields(line: str, delimiter: str | None) -> list[str]:
    fields = line.split() if delimiter is None else next(csv.reader([line], delimiter=delimiter))
    return [field.strip() for field in fields]


def _header(rows: Sequence[list[str]]) -> list[str]:
    """Names of the columns, of the first of two rows; none where it is a pair as the second is."""
    if not rows:
        return []
    names = [field.lower().replace(" ", "").replace("_", "") for field in rows[0]]
    if set(names) & {_SCORE, *_WORDS[0], *_WORDS[1]} and not any(map(_is_number, names)):
        return names
    place = next((place for row in rows[::-1] for place in range(2, len(row)) if _is_number(row[place])), None)
    return names if place is not None and place < len(names) and not _is_number(rows[0][place]) else []


def _columns(path: Path, header: list[str], rows: Sequence[tuple[int, list[str]]]) -> tuple[tuple[int, int], int]:
    """Where the words and the judgement are."""
    found = [[header.index(name) for name in names if name in header] for names in _WORDS]
    words = (found[0][0], found[1][0]) if all(found) else (0, 1)
    if _SCORE in header:
        return words, header.index(_SCORE)
    if rows:
        number, first = rows[0]
        for place, field in enumerate(first):
            if place > max(words) and _is_number(field):
                return words, place
        fail(path, number, f"no number behind the two words in {first}")
    return words, 2


def _pair(path: Path, number: int, row: list[str], words: tuple[int, int], score: int) -> WordPair:
    if len(row) <= max(*words, score):
        fail(path, number, f"expected two words and a judgement in column {score + 1}, got {row}")
    first, second = row[words[0]], row[words[1]]
    if not first or not second:
        fail(path, number, f"a word is missing in {row}")
    if not _is_number(row[score]):
        fail(path, number, f"the judgement of {first!r} and {second!r} must be a finite number, got {row[score]!r}")
    return WordPair(first, second, float(row[score]))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
