"""The one reader of CSV files of words: lists, pairs, one-way words and classes.

Words are lower-cased and their accents composed when a file is read, and so are texts before they
are compared with them: "Mary" and "mary" are one word, and a file that has both has a duplicate.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from backpack_rank.data.words import composed
from backpack_rank.files import read_text

_LONGEST_CELL = 131_072
"""Characters. The limit of csv is the same, but it is of the whole process: readers of passages
raise it.
"""


class WordFile:
    """In a loader of one kind of word file: it gives rows that were checked.

    A loader asks for rows, and for each row says which cells are words and which occur only once::

        file = WordFile(path)
        for row in file.rows(("word", "partner")):
            word, partner = file.word(row["word"]), file.word(row["partner"])
            file.once(word)

    Errors are ``ValueError`` and name the file and the line.

    Attributes:
        path: of the file.
        header: names of the columns.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # A quoted cell may hold line breaks, so lines are counted by the reader of csv.
        self._reader = csv.reader(io.StringIO(read_text(path), newline=""))
        self._first_line: dict[str, int] = {}
        self._first_group: dict[str, str] = {}
        self.header = [name.strip() for name in self._next_row() or []]

    @property
    def line(self) -> int:
        """Number of the row that was read last; 1 is the header."""
        return self._reader.line_num

    @property
    def where(self) -> str:
        """File and line, for the beginning of an error."""
        return f"{self.path}, line {self.line}"

    def rows(
        self, columns: Sequence[str], optional: Sequence[str] = ()
    ) -> Iterator[dict[str, str]]:
        """Cells by column of every row below the header; empty lines are passed over.

        Args:
            columns: that the file must have, in any order.
            optional: that it may have too.

        Raises:
            ValueError: a missing or unknown column, an empty cell or a wrong number of cells.
        """
        self._check_header(columns, optional)
        while (row := self._next_row()) is not None:
            if not row:
                continue
            if len(row) != len(self.header):
                raise ValueError(
                    f"{self.where}: {len(self.header)} cells expected, found {len(row)}"
                )
            cells = {}
            for name, cell in zip(self.header, row, strict=True):
                cells[name] = composed(cell.strip())
                if not cells[name]:
                    raise ValueError(f"{self.where}: the cell of column {name!r} is empty")
            yield cells

    def word(self, cell: str) -> str:
        """The word in a cell, lower-cased. Raises ``ValueError`` for what is no single word."""
        word = cell.lower()
        check_word(word, self.where)
        return word

    def once(self, word: str, group: str = "", groups: str = "groups") -> None:
        """Raise ``ValueError`` if an earlier row has the word.

        Args:
            word: of the row that was read last.
            group: that it is in; the error says whether a word is in two of them or stands twice.
            groups: what they are called, for the error.
        """
        if word not in self._first_line:
            self._first_line[word] = self.line
            self._first_group[word] = group
            return
        problem = "occurs twice"
        if group != self._first_group[word]:
            problem = f"is in two {groups}, {self._first_group[word]!r} and {group!r}"
        raise ValueError(
            f"{self.where}: {word!r} {problem} (first on line {self._first_line[word]})"
        )

    def _next_row(self) -> list[str] | None:
        try:
            row = next(self._reader, None)
        except csv.Error as error:
            raise ValueError(f"{self.where}: {error}") from error
        for cell in row or ():
            if len(cell) > _LONGEST_CELL:
                raise ValueError(f"{self.where}: a cell of {len(cell):,} characters is no word")
        return row

    def _check_header(self, columns: Sequence[str], optional: Sequence[str]) -> None:
        missing = [name for name in columns if name not in self.header]
        unknown = [name for name in self.header if name not in (*columns, *optional)]
        if not missing and not unknown and len(self.header) == len(set(self.header)):
            return
        problem = (
            f"{self.path}, line 1: the header must be {','.join(columns)} (in any order), "
            f"found {','.join(self.header)!r}"
        )
        if missing:
            problem += f"; missing: {', '.join(missing)}"
        if unknown:
            problem += f"; unknown: {', '.join(unknown)}"
        raise ValueError(problem)


def check_word(word: str, where: str) -> None:
    """On every word of a list: it must be one that a token of a lower-cased text can equal.

    >>> check_word("Mary", "names")
    Traceback (most recent call last):
    ValueError: names: 'Mary' is not lower-cased; texts are lower-cased before they are compared

    Args:
        word: of a file, or of a list that is made in memory.
        where: the beginning of the error.

    Raises:
        ValueError: no token can equal it.
    """
    if not word.isprintable():
        raise ValueError(f"{where}: {word!r} holds a character that cannot be printed")
    if not word or word.split() != [word]:
        raise ValueError(
            f"{where}: {word!r} is no single word (empty or with white space); "
            "no token can equal it"
        )
    if word != composed(word):
        raise ValueError(
            f"{where}: {word!r} has its accents as characters of their own (NFD); "
            "write it composed (NFC)"
        )
    if word != word.lower():
        raise ValueError(
            f"{where}: {word!r} is not lower-cased; texts are lower-cased before they are compared"
        )
