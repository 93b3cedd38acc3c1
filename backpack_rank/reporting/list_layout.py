"""The tables of papers 003, 002 and 000 by name, each with the figures measured here above the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backpack_rank.reporting import published_lists as published
from backpack_rank.reporting.layout import NONE, Entry, LayoutTable
from backpack_rank.reporting.published_lists import Reranked, Row


@dataclass(frozen=True)
class PublishedTable:
    """A published table of nDCG@10.

    Attributes:
        title: paper and table.
        columns: names of the collections.
        rows: figures, by the labels of each row.
        hundred: whether figures are nDCG@10 times 100.
        note: what else there is to say.
    """

    title: str
    columns: tuple[str, ...]
    rows: Mapping[tuple[str, ...], Row]
    hundred: bool = True
    note: str = ""

    def shown(self, value: float) -> str:
        """A measured figure as the paper would print it, with the digits of Table 1 or one more."""
        return f"{100 * value:.2f}" if self.hundred else f"{value:.4f}".removeprefix("0")

    def printed(self, value: float) -> str:
        """A published figure as it is printed."""
        return f"{value:.{self._decimals}f}" if self.hundred else f"{value:.4f}".removeprefix("0")

    @property
    def _decimals(self) -> int:
        return max(len(f"{value:g}".partition(".")[2]) for row in self.rows.values() for value in row.values.values())


def _flat(table: Mapping[tuple[str, str, str], Mapping[str, Reranked]]) -> dict[tuple[str, ...], Row]:
    """A table of paper 003 with a row for each way of ranking."""
    found: dict[tuple[str, ...], Row] = {}
    for labels, by_set in table.items():
        single = {name: row.original for name, row in by_set.items()}
        consistent = {name: row.psc for name, row in by_set.items() if row.psc is not None}
        found[(*labels, "" if not consistent else "once")] = Row(single)
        if consistent:
            found[(*labels, "PSC")] = Row(consistent)
    return found


_SHUFFLES = "Published: GPT models mean of three runs; PSC of 20 shuffles, Kemeny."

TABLES: Mapping[str, PublishedTable] = {
    "psc_table4": PublishedTable(
        f"{published.PERMUTATION}, Table 4", ("DL19", "DL20"), _flat(published.PSC_TABLE4), note=_SHUFFLES
    ),
    "psc_table7": PublishedTable(
        f"{published.PERMUTATION}, Table 7", ("DL19", "DL20"), _flat(published.PSC_TABLE7), note=_SHUFFLES
    ),
    "psc_table9": PublishedTable(
        f"{published.PERMUTATION}, Table 9 (reranking)", ("DL19", "DL20"), published.PSC_TABLE9, note=_SHUFFLES
    ),
    "capcal_table1": PublishedTable(
        f"{published.CAPCAL}, Table 1", (*published.TREC, *published.BEIR_CAPCAL), published.CAPCAL_TABLE1, False
    ),
    "capcal_table2": PublishedTable(f"{published.CAPCAL}, Table 2", published.TREC, published.CAPCAL_TABLE2),
    "capcal_table3": PublishedTable(f"{published.CAPCAL}, Table 3", published.TREC, published.CAPCAL_TABLE3),
    "capcal_table4": PublishedTable(f"{published.CAPCAL}, Table 4", published.TREC, published.CAPCAL_TABLE4),
    "capcal_table5": PublishedTable(
        f"{published.CAPCAL}, Table 5", (*published.TREC, *published.BEIR_CAPCAL), published.CAPCAL_TABLE5, False
    ),
    "capcal_table6": PublishedTable(f"{published.CAPCAL}, Table 6", published.TREC, published.CAPCAL_TABLE6),
    "debias_first_table1": PublishedTable(
        f"{published.DEBIAS_FIRST}, Table 1", published.COLLECTIONS, published.DEBIAS_TABLE1
    ),
    "debias_first_table2": PublishedTable(
        f"{published.DEBIAS_FIRST}, Table 2", published.COLLECTIONS, published.DEBIAS_TABLE2
    ),
    "debias_first_table3": PublishedTable(
        f"{published.DEBIAS_FIRST}, Table 3", published.COLLECTIONS, published.DEBIAS_TABLE3
    ),
}


def list_table(
    name: str,
    measured: Mapping[tuple[str, str], float],
    marks: Mapping[tuple[str, str], str],
    source: str,
    notes: Sequence[str] = (),
) -> LayoutTable:
    """Measured figures above the published ones; columns that were measured come first, empty ones are left out.

    Args:
        name: one of :data:`TABLES`.
        measured: nDCG@10, by row and column.
        marks: raised behind measured figures.
        source: what was measured, heading of that part.
        notes: sentences below the table.
    """
    table = TABLES[name]
    columns = tuple(dict.fromkeys([*(column for _, column in measured), *table.columns]))
    width = max(len(labels) for labels in table.rows)
    here, records = [], []
    for row in dict.fromkeys(row for row, _ in measured):
        cells = [measured.get((row, column)) for column in columns]
        entries = [
            Entry(NONE if value is None else table.shown(value), raised=marks.get((row, column), ""))
            for column, value in zip(columns, cells, strict=True)
        ]
        here.append(((row, *[""] * (width - 1)), tuple(entries)))
        records += [("measured", row, c, v) for c, v in zip(columns, cells, strict=True) if v is not None]
    there = []
    for labels, own in table.rows.items():
        entries = [
            Entry(table.printed(own.values[c]) if c in own.values else NONE, raised=own.marks.get(c, ""))
            for c in columns
        ]
        there.append(((*labels, *[""] * (width - len(labels))), tuple(entries)))
        records += [("published", " | ".join(labels), c, v) for c, v in own.values.items()]
    return LayoutTable(
        name,
        table.title,
        ("",) * width,
        (("", columns),),
        ((f"Measured: {source}", tuple(here)), ("Published", tuple(there))),
        tuple(note for note in (table.note, *notes) if note),
        ("source", "row", "column", "nDCG@10"),
        tuple(records),
    )
