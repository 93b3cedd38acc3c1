"""The one reader of small tables by document or query: groups and labels.

The first line may be a header, as exports of PyTerrier, TREC and BEIR have one. It is told by one
rule, :func:`~backpack_rank.data.text_files.is_header`; what looks like no header and names nothing
that is known is refused by :meth:`TableFile.check_first`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from backpack_rank.data.text_files import cut_text, fail, is_header, numbered_lines

_QUOTES = "\"'"


class TableFile:
    """In a loader of a small table: it gives the cells of every line below the header.

        table = TableFile("genders.tsv")
        table.header  # ("docno", "gender"), or None
        for number, cells in table.rows():
            ...

    Attributes:
        path: of the file.
        header: cells of the first line, where it is a header.
    """

    def __init__(self, path: str | Path, separators: str = "\t") -> None:
        """Read the first line.

        Args:
            path: of the file; blank lines do not count.
            separators: that may stand between cells; the first one that a line has does.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it has no line, or is no text.
        """
        self.path = Path(path)
        self._separators = separators
        first = next(self._lines(), None)
        if first is None:
            raise ValueError(f"{path}: holds no documents")
        self._first_line, cells = first
        self.header: tuple[str, ...] | None = None
        if is_header(cells):
            self.header = tuple(cell.strip(_QUOTES) for cell in cells)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of every line below the header.

        Raises:
            ValueError: after the last line, of a header with more cells than any line.
        """
        widest = 0
        for number, cells in self._lines():
            if self.header is None or number != self._first_line:
                widest = max(widest, len(cells))
                yield number, cells
        # Where a line break was lost, the first line stands in the header.
        if self.header is not None and len(self.header) > widest:
            fail(
                self.path,
                self._first_line,
                f"a header of {len(self.header)} columns over lines of {widest} at most",
            )

    def check_first(self, known: Callable[[str], bool], value_recurs: bool, place: str) -> None:
        """Refuse a first line that must be a header in words that nobody here knows.

        A file may have documents that a collection lacks. A header is told from them by its value
        (``gender``), which no other line has.

        Args:
            known: whether an id is one of the collection.
            value_recurs: whether another line has the value of the first line.
            place: what the ids are looked up in, for the error.

        Raises:
            ValueError: names the line.
        """
        _, cells = next(self._lines())
        if self.header is None and not value_recurs and not known(cells[0]):
            fail(
                self.path,
                self._first_line,
                f"{cut_text(cells[0])!r} is no document of {place}, and no other line has "
                f"{cut_text(cells[1])!r}: call the first column id if this is a header, or "
                "delete the line",
            )

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        for number, line in numbered_lines(self.path):
            separator = next((mark for mark in self._separators if mark in line), "\t")
            yield number, [_without_quotes(cell.strip()) for cell in line.split(separator)]


def _without_quotes(cell: str) -> str:
    """A cell as CSV reads it; of ids and names, which hold no separator.

    >>> _without_quotes('"d1"'), _without_quotes('5"')
    ('d1', '5"')
    """
    if len(cell) >= 2 and cell[0] == cell[-1] == '"':
        return cell[1:-1].replace('""', '"')
    return cell
