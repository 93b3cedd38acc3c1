"""How tables are laid out, as ``conf/published/layouts/*.yaml`` say: one file for each kind of
table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from backpack_rank.files import read_yaml, resource_folder
from backpack_rank.reporting.published import FOLDER, PublishedTable
from backpack_rank.reporting.table import percent

ColumnKey: TypeAlias = tuple[str, str]
"""Name of the group that a column stands in, which may be empty, and its own."""
_CHOICES = {"source_in": ("columns", "labels", "sections"), "lines": ("figure", "row")}


@dataclass(frozen=True)
class Layout:
    """Everything about a table that is neither a published figure nor a measured one.

    Texts may have facts of the measurement in braces, such as ``{collection}``.

    Attributes:
        source_in: where a reader sees who measured a figure. ``columns``: every column becomes two,
            headed (paper) and (here). ``labels``: the paper's figures are a row of their own above
            the measured ones, the last label says whose they are, and the first one becomes the
            heading of a section. ``sections``: measured rows come first, and the heading of a
            section says whose its rows are.
        title, file_name, labels: of tables that have none of their own.
        sections: headings by source, for ``source_in: sections``.
        label_fields: what the labels of a row are, such as ``[model, training]`` or
            ``[model (kind)]``: fields of the CSV file.
        column_fields: what the names of a column are: ``[measure]``, or ``[measure, test]`` for
            columns ``MEASURE TEST`` under a heading for each measure.
        shown: the columns, of two names each; by default those that there are figures for.
        measured_first: whether columns that were measured stand before those of the paper.
        headings: of columns and of their groups, where they are called otherwise.
        decimals: of a figure that is not multiplied; one in hundredths has two less.
        paper_decimals: of published figures; None shows them as they are printed.
        leading_zero: whether a figure that is not multiplied reads 0.5 rather than .5.
        scale: what figures are multiplied with, 1 or 100.
        forms: of some columns or groups in place of decimals: ``percent``, or a format of Python.
        bold: ``largest`` or ``smallest`` (of absolute values) by column, or for ``all`` others;
            compared are rows of a section with the same source.
        bold_alone: whether a figure is bold that there is none to compare with.
        lines: what a line of the CSV file is, a ``figure`` or a ``row``.
        csv: headings of the CSV file. A heading is a field: what labels and names of a column are,
            as above, what a row or a figure adds, and ``table``, ``section``, ``row`` (all labels),
            ``source`` (paper, here), ``origin`` (published, measured), ``value``, ``printed`` (in
            the paper's scale), ``low``, ``high``, ``marks``. For lines of a row, the names of its
            columns are fields too.
        csv_fields: the field of a heading that is called otherwise.
        record_of_all: fields that every line of the CSV file has.
        csv_names: what a column is called in the CSV file.
        only_in_table: columns that the CSV file leaves out.
        sentences: below the table. ``{notes}`` alone stands for the notes of the measurement, which
            come last otherwise. A sentence is left out where one of its facts is None.
    """

    source_in: Literal["columns", "labels", "sections"] = "sections"
    title: str = ""
    file_name: str = ""
    labels: Sequence[str] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    label_fields: Sequence[str] = ()
    column_fields: Sequence[str] = ()
    shown: Sequence[Sequence[str]] = ()
    measured_first: bool = False
    headings: Mapping[str, str] = field(default_factory=dict)
    decimals: int = 4
    paper_decimals: int | None = None
    leading_zero: bool = True
    scale: int = 1
    forms: Mapping[str, str] = field(default_factory=dict)
    bold: Mapping[str, str] = field(default_factory=dict)
    bold_alone: bool = False
    lines: Literal["figure", "row"] = "figure"
    csv: Sequence[str] = ()
    csv_fields: Mapping[str, str] = field(default_factory=dict)
    record_of_all: Mapping[str, Any] = field(default_factory=dict)
    csv_names: Mapping[str, str] = field(default_factory=dict)
    only_in_table: Sequence[str] = ()
    sentences: Sequence[str] = ()

    def bold_of(self, column: str) -> str | None:
        """``largest``, ``smallest`` or None."""
        return self.bold.get(column, self.bold.get("all"))

    def number(self, value: float, group: str, column: str, decimals: int) -> str:
        """A figure as it is shown in a column.

        >>> from backpack_rank.reporting.published import published
        >>> layout_of("reranking_grid", published("capcal_table2")).number(0.5, "", "DL19", 4)
        '50.00'
        """
        form = self.forms.get(column, self.forms.get(group))
        if form == "percent":
            return percent(value)
        if form is None:
            value *= self.scale
            form = f".{decimals - 2 if self.scale == 100 else decimals}f"
        text = format(value, form)
        # Nothing reads -0.0000.
        if not re.search("[1-9]", text):
            text = format(0.0, form)
        if not self.leading_zero and self.scale == 1:
            text = text.removeprefix("0")
        return text

    def key(self, column: str) -> ColumnKey:
        """The names of a column of the paper: ``MathSort PSC`` stands in a group ``MathSort``."""
        if len(self.column_fields) < 2:
            return "", column
        group, _, name = column.rpartition(" ")
        return group, name

    def record(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """A line of the CSV file; fields without a value are empty."""
        names = [self.csv_fields.get(heading, heading) for heading in self.csv]
        return tuple(values.get(name) for name in names)


def layout_of(name: str, table: PublishedTable) -> Layout:
    """Read a layout; what the published table says itself counts before it.

    Raises:
        ValueError: the table's ``layout`` has a word or a choice that layouts do not have.
    """
    path = resource_folder("conf") / FOLDER / "layouts" / f"{name}.yaml"
    content: dict[str, Any] = {"file_name": name, **read_yaml(path), **table.layout}
    known = {word.name for word in fields(Layout)}
    unknown = sorted(content.keys() - known)
    if unknown:
        raise ValueError(
            f"layout has {', '.join(unknown)} in the published table {table.name}; it may have "
            f"{', '.join(sorted(known))}"
        )
    layout = Layout(**content)
    for word, choices in _CHOICES.items():
        if getattr(layout, word) not in choices:
            raise ValueError(
                f"layout.{word}={getattr(layout, word)} of the published table {table.name} must "
                f"be one of {', '.join(choices)}"
            )
    return replace(
        layout,
        file_name=table.file_name or layout.file_name,
        labels=tuple(table.labels or layout.labels or ("",) * table.num_labels),
        headings={**layout.headings, **table.headings},
        scale=layout.scale * table.scale,
    )
