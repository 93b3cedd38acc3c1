"""Tables of Tang et al., CapCal and DebiasFirst about lists.

Figures measured here stand above the published ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from backpack_rank.reporting.paper_layout import Column, PaperRow, beside_published
from backpack_rank.reporting.published import PublishedTable, published
from backpack_rank.reporting.table import Cell, Table

LIST_COLUMNS = ("source", "row", "column", "nDCG@10")
SORTING_COLUMNS = ("source", "model", "task", "kind", "tau", "exact")


@dataclass(frozen=True)
class Sorted:
    """Figures of a model on a sorting task, as :func:`sorting_table` takes them.

    Attributes:
        tau: mean Kendall's tau.
        exact: share of lists that are sorted without a mistake, in [0, 1]; None: not measured.
    """

    tau: float
    exact: float | None = None


@dataclass(frozen=True)
class SortingFigures:
    """Figures of a model by task and by way of ranking, such as ``Orig.``, ``PSC`` and ``PRP``."""

    model: str
    figures: Mapping[tuple[str, str], Sorted] = field(default_factory=dict)


def list_table(
    name: str,
    measured: Mapping[tuple[str, str], float],
    marks: Mapping[tuple[str, str], str],
    source: str,
    notes: Sequence[str] = (),
) -> Table:
    """NDCG@10 of listwise rankers by collection, above what a paper prints.

    >>> measured = {("Base", "DL19"): 0.5058}
    >>> table = list_table("capcal_table2", measured, marks={}, source="my ranker")
    >>> [(section.heading, len(section.rows)) for section in table.sections]
    [('Measured: my ranker', 1), ('Published', 6)]
    >>> table.rows[0].labels, table.rows[0].cells[0].text
    (('Base', ''), '50.58')

    Columns that were measured come first, then the other ones that the published table shows.

    Args:
        name: of the published table.
        measured: nDCG@10, by row and column.
        marks: printed in superscript behind measured figures, by row and column.
        source: what was measured, heading of that part.
        notes: sentences below the table.
    """
    table = published(name)
    # Each once, in the order in which they come.
    measured_labels = dict.fromkeys(label for label, _ in measured)
    measured_columns = dict.fromkeys(column for _, column in measured)
    columns = list(measured_columns | dict.fromkeys(table.shown))
    num_labels = max(map(len, table.rows), default=1)
    sections = (f"Measured: {source}", "Published")
    rows = []
    for label in measured_labels:
        cells, records = {}, []
        for column in columns:
            if (label, column) in measured:
                value = measured[label, column]
                # The paper prints 50.58 or .5058.
                text = f"{100 * value:.2f}"
                if table.scale != 100:
                    text = f"{value:.4f}".removeprefix("0")
                cells[column] = Cell(text, raised=marks.get((label, column), ""))
                records.append(("measured", label, column, value))
        # A measured row has one label, and a published row may have several.
        labels = (label, *[""] * (num_labels - 1))
        rows.append(PaperRow(labels, sections[0], measured=cells, records=records))
    for labels, printed in table.rows.items():
        cells, records = {}, []
        for column, figure in printed.items():
            cells[column] = Cell(figure.text, raised=figure.marks)
            records.append(("published", " | ".join(labels), column, figure.value))
        rows.append(PaperRow(labels, sections[1], published=cells, records=records))
    return beside_published(
        table,
        [Column(column, column) for column in columns],
        rows,
        source_in="sections",
        csv_columns=LIST_COLUMNS,
        notes=[*table.notes, *notes],
        labels=table.labels or ("",) * num_labels,
        sections=sections,
    )


def sorting_table(
    name: str, measured: Sequence[SortingFigures], notes: Sequence[str] = ()
) -> Table:
    """Kendall's tau times 100 on sorting tasks, above what a paper prints.

    >>> figures = SortingFigures("my model", {("MathSort", "PSC"): Sorted(tau=0.5)})
    >>> table = sorting_table("psc_table3", [figures])
    >>> table.groups[0]
    Group(name='MathSort', columns=('Orig.', 'PSC'))
    >>> [cell.text for cell in table.rows[0].cells][:2]
    ['-', '50.0']

    Args:
        name: of the published table. Where its columns are ``TASK WAY`` (Table 3), a row is a
            model; where they are tasks (Table 8), a row is ``MODEL (WAY)``.
        measured: figures of each model.
        notes: further sentences.

    Raises:
        ValueError: rows of the published table have more than one label.
    """
    table = published(name)
    if any(len(labels) > 1 for labels in table.rows):
        raise ValueError(
            f"{name}: rows of a table of sorting tasks must have one label, 'model' or 'model "
            "(way)'"
        )
    ways_are_columns = all(" " in column for column in table.columns)
    printed_rows = _printed_by_task_and_way(table, ways_are_columns)
    # What the paper prints gives the order of tasks and ways, so it is looked at first.
    keys: list[tuple[str, str]] = []
    for _, texts in printed_rows:
        keys += texts
    for model in measured:
        keys += model.figures
    tasks = list(dict.fromkeys(task for task, _ in keys))
    ways = list(dict.fromkeys(way for _, way in keys))

    # Where tasks are the columns, a column has no way.
    rows = []
    for model in measured:
        for label, keys in _keys_by_row(model.model, model.figures, ways_are_columns).items():
            cells, records = {}, []
            for task, way in keys:
                scores = model.figures[task, way]
                cells[task, way if ways_are_columns else ""] = Cell(f"{100 * scores.tau:.1f}")
                records.append(("here", model.model, task, way, scores.tau, scores.exact))
            rows.append(PaperRow((label,), "Measured here", measured=cells, records=records))
    for name_of_model, texts in printed_rows:
        for label, keys in _keys_by_row(name_of_model, texts, ways_are_columns).items():
            cells, records = {}, []
            for task, way in keys:
                text = texts[task, way]
                cells[task, way if ways_are_columns else ""] = Cell(text)
                records.append(("paper", name_of_model, task, way, float(text) / table.scale, None))
            rows.append(PaperRow((label,), "Published", published=cells, records=records))
    if ways_are_columns:
        columns = []
        for task in tasks:
            columns += [Column((task, way), way, group=task) for way in ways]
    else:
        columns = [Column((task, ""), task) for task in tasks]
    return beside_published(
        table,
        columns,
        rows,
        source_in="sections",
        csv_columns=SORTING_COLUMNS,
        notes=[" ".join([f"{table.source}.", *table.notes]), *notes],
    )


def _printed_by_task_and_way(
    table: PublishedTable, ways_are_columns: bool
) -> list[tuple[str, dict[tuple[str, str], str]]]:
    """Rows of a published table as (model, figures by task and way)."""
    rows = []
    for (label,), printed in table.rows.items():
        # "GPT-4 (PSC)" is a model and a way, where columns are tasks.
        model, _, way_of_row = label.removesuffix(")").partition(" (")
        texts = {}
        for column, figure in printed.items():
            if ways_are_columns:
                task, _, way = column.rpartition(" ")
            else:
                task, way = column, way_of_row
            texts[task, way] = figure.text
        rows.append((label if ways_are_columns else model, texts))
    return rows


def _keys_by_row(
    model: str, keys: Iterable[tuple[str, str]], ways_are_columns: bool
) -> dict[str, list[tuple[str, str]]]:
    """Task and way of the figures of each row: one row for a model, or one for each of its ways."""
    rows: dict[str, list[tuple[str, str]]] = {model: []} if ways_are_columns else {}
    for task, way in keys:
        label = model if ways_are_columns else f"{model} ({way})"
        rows.setdefault(label, []).append((task, way))
    return rows
