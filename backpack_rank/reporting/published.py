"""Figures that papers print, as ``conf/published/*.yaml`` holds them: one file for each table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from backpack_rank.files import read_yaml, resource_folder

FOLDER = "published"
_MAPPINGS = ("known_as", "headings", "says", "layout")
_LISTS = ("columns", "shown", "labels", "notes")


@dataclass(frozen=True)
class Printed:
    """A figure as it is printed, and the marks of significance behind it."""

    text: str
    marks: str = ""

    @property
    def value(self) -> float:
        """The figure as a number."""
        return float(self.text)


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper.

    Attributes:
        name: of its file.
        paper: authors and title.
        table: where in the paper.
        columns: names of the figures.
        rows: figures by column, by the labels of each row; columns without a figure are left out.
            In the file, a line ``label | label | .4916 72.0:† -`` each, where - is no figure and
            marks stand behind a colon.
        shown: the columns that a table shows, all by default.
        scale: what measured figures are multiplied with to be like the printed ones: 1 or 100.
        title: of the table that is written.
        labels: headings of its leading columns.
        file_name: of the files that it is written to, default ``name``.
        data: what the figures were measured on.
        notes: sentences that stand below the table that is written.
        headings: of columns, where a table names them otherwise than they are called here.
        known_as: names that a row has in our own results, beside its label.
        says: what the paper's text says of figures without numbers.
        layout: words of :class:`~backpack_rank.reporting.layout.Layout`, where this table looks
            otherwise than others of its kind.
    """

    name: str
    paper: str
    table: str
    columns: tuple[str, ...] = ()
    rows: Mapping[tuple[str, ...], Mapping[str, Printed]] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    scale: int = 1
    title: str = ""
    labels: tuple[str, ...] = ()
    file_name: str = ""
    data: str = ""
    notes: tuple[str, ...] = ()
    headings: Mapping[str, str] = field(default_factory=dict)
    known_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Paper and table."""
        return f"{self.paper}, {self.table}"

    @property
    def num_labels(self) -> int:
        """Of the row that has most; 1 where there are no rows."""
        return max(map(len, self.rows), default=1)

    def labels_at(self, place: int) -> list[str]:
        """The labels of rows at one place, each once, in the order of the rows.

        >>> published("rotation_table3").labels_at(0)
        ['BERT_CAT', 'BERT_DOT', 'TK']
        """
        return list(dict.fromkeys(labels[place] for labels in self.rows))

    def label_of(self, name: str) -> str:
        """The paper's label of what has that name here; the name itself where there is none."""
        for label, names in self.known_as.items():
            if name in names:
                return label
        return name

    def values(self, *labels: str) -> dict[str, float]:
        """The figures of a row as numbers."""
        return {column: printed.value for column, printed in self.rows[labels].items()}


def published(name: str) -> PublishedTable:
    """Get a table of a paper by its name.

    >>> table = published("fair_retrieval_table1")
    >>> table.values("GPT-2")
    {'MRR@10': 0.3156, 'nDCG@5': 0.3448, 'nDCG@10': 0.3843}

    Args:
        name: of a file in ``conf/published``, without its ending; or path of a file of your own,
            with it.

    Raises:
        ValueError: there is no such table, or its file is not as it should be; names the file.
    """
    folder = resource_folder("conf") / FOLDER
    path = Path(name).expanduser() if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise ValueError(
            f"{name}: there is no such published table; use one of {', '.join(known)}, or a file "
            "of yours"
        )
    content = read_yaml(path)
    try:
        return _read(path.stem, content)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read(name: str, content: Any) -> PublishedTable:
    """Check and convert what a file holds."""
    known = {field.name for field in fields(PublishedTable)} - {"name"}
    if not isinstance(content, dict) or not {"paper", "table"} <= content.keys() <= known:
        raise ValueError(
            f"there must be paper and table, and of {', '.join(sorted(known))} what there is"
        )
    for key in _MAPPINGS:
        if not isinstance(content.setdefault(key, {}), dict):
            raise ValueError(f"{key} must be a mapping")
    for key in _LISTS:
        if not isinstance(content.get(key, []), list):
            raise ValueError(f"{key} must be a list")
        content[key] = tuple(map(str, content.get(key, ())))
    content["known_as"] = {label: tuple(names) for label, names in content["known_as"].items()}
    content["shown"] = content["shown"] or content["columns"]
    unknown = set(content["shown"]) - set(content["columns"])
    if unknown:
        raise ValueError(f"shown has {', '.join(sorted(unknown))}, which is none of the columns")
    rows = _read_rows(str(content.get("rows", "")), content["columns"])
    # The file may name the files that are written, but never the table itself.
    return PublishedTable(**{"file_name": name, **content, "name": name, "rows": rows})


def _read_rows(text: str, columns: tuple[str, ...]) -> dict[tuple[str, ...], dict[str, Printed]]:
    """Figures by labels, from lines ``label | label | figure figure``."""
    rows: dict[tuple[str, ...], dict[str, Printed]] = {}
    for line in text.strip().splitlines():
        *labels, figures = (part.strip() for part in line.split("|"))
        if tuple(labels) in rows:
            raise ValueError(f"there are two rows {' | '.join(labels)}")
        rows[tuple(labels)] = _read_figures(line, figures.split(), columns)
    if len({len(labels) for labels in rows}) > 1:
        raise ValueError("rows have different numbers of labels")
    return rows


def _read_figures(line: str, figures: list[str], columns: tuple[str, ...]) -> dict[str, Printed]:
    """Figures of one line by column, without those that are a dash."""
    if len(figures) != len(columns):
        raise ValueError(
            f"{len(figures)} figures for {len(columns)} columns in the row {line.strip()!r}"
        )
    printed = {}
    for column, figure in zip(columns, figures, strict=True):
        text, _, marks = figure.partition(":")
        if text == "-":
            continue
        try:
            float(text)
        except ValueError:
            raise ValueError(
                f"{column} is {text!r}, which is no number, in the row {line.strip()!r}"
            ) from None
        printed[column] = Printed(text, marks)
    return printed
