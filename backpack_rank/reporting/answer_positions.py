"""Where answers stand in their passages (Figure 1 of paper 001): picture, terminal table, JSON and CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backpack_rank.files import write_text
from backpack_rank.reporting.plots import save_figure
from backpack_rank.reporting.tables import csv_text, dump_json

FORMAT = "backpack_rank answer positions 1"
NAME = "answer_positions"
CSV_COLUMNS = ("collection", "passages", "from", "to", "matches", "share")

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_PANEL = (4.6, 3.2)  # inches
_COLUMNS = 3


@dataclass(frozen=True)
class PositionHistogram:
    """Where the answers of a collection start, for its passages as they are or rotated.

    Attributes:
        passages: ``original``, ``rotated (seed 0)``.
        matches: answers found, at all their places.
        cut: matches that the rotation cut in two; they count nowhere.
        mean: mean relative start position, 0 the first word; None without a match.
        uniform_distance: Kolmogorov-Smirnov distance from the uniform distribution; None without a match.
        histogram: matches in equal parts of the passage.
    """

    passages: str
    matches: int
    cut: int
    mean: float | None
    uniform_distance: float | None
    histogram: tuple[int, ...]

    @property
    def shares(self) -> list[float]:
        """The histogram as shares of all matches."""
        return [count / self.matches if self.matches else 0.0 for count in self.histogram]


@dataclass(frozen=True)
class CollectionPositions:
    """A collection's answers.

    Attributes:
        name: of the collection.
        answers: rows of the source that were looked at.
        unmatched: those of them whose text does not stand in the document.
        unanswered: questions without any answer.
        uncertain: rows whose given place is only the likeliest of several.
        match: ``offsets`` or ``all``, see :func:`~backpack_rank.position.answer_positions.answer_positions`.
        histograms: of the passages as they are, then rotated.
    """

    name: str
    answers: int
    unmatched: int
    unanswered: int
    uncertain: int
    match: str
    histograms: tuple[PositionHistogram, ...]


def write_answer_positions(folder: str | Path, collections: Sequence[CollectionPositions]) -> list[Path]:
    """Write ``answer_positions.json``, ``.csv``, ``.png`` and ``.svg`` into a folder; returns their paths.

    JSON: ``{"format": "backpack_rank answer positions 1", "collections": [...]}`` with the attributes of
    :class:`CollectionPositions`. CSV: one line per bin, columns :data:`CSV_COLUMNS`, ``from`` and ``to`` relative.
    """
    paths = [Path(folder) / f"{NAME}.{ending}" for ending in ("json", "csv")]
    payload = {"format": FORMAT, "collections": [asdict(collection) for collection in collections]}
    write_text(paths[0], dump_json(payload))
    lines = [
        (collection.name, part.passages, number / len(part.histogram), (number + 1) / len(part.histogram), count, share)
        for collection in collections
        for part in collection.histograms
        for number, (count, share) in enumerate(zip(part.histogram, part.shares, strict=True))
    ]
    write_text(paths[1], csv_text(CSV_COLUMNS, lines))
    return [*paths, *save_figure(positions_figure(collections), Path(folder) / NAME)]


def print_answer_positions(collections: Sequence[CollectionPositions], console: Console | None = None) -> None:
    """Print one line per collection and kind of passage, and what the columns mean."""
    console = console or Console()
    title = Text("Where answers start in their passages (Figure 1 of paper 001)")
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)  # fits 80 characters
    table.add_column("collection", overflow="fold")
    table.add_column("passages", no_wrap=True)
    for name in ("matches", "un-\nmatched", "cut", "mean", "KS", "first\ntenth", "last\ntenth"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for collection in collections:
        for place, part in enumerate(collection.histograms):
            name = collection.name if not place else ""
            counts = (f"{part.matches:,}", f"{collection.unmatched:,}", f"{part.cut:,}")
            table.add_row(*map(Text, (name, _short(part), *counts, *_shown(part))))
        table.add_section()
    console.print(table)
    for note in notes(collections):
        console.print(Text(note))


def notes(collections: Sequence[CollectionPositions]) -> list[str]:
    """Sentences below the table."""
    lines = [
        "mean: of start word / words of the passage. KS: Kolmogorov-Smirnov distance from the uniform distribution, 0 "
        "is uniform. unmatched: answers that do not stand in their document. cut: matches that the rotation cut in "
        "two. Neither counts anywhere."
    ]
    turned = {part.passages for one in collections for part in one.histograms if part.passages != _short(part)}
    lines += [f"Passages: {', '.join(sorted(turned))}."] if turned else []
    if any(collection.match == "all" for collection in collections):
        lines.append("Answers were searched, and every match counts.")
    lines += [
        f"{collection.name}: {collection.uncertain:,} places are the likeliest of several occurrences."
        for collection in collections
        if collection.uncertain and collection.match == "offsets"
    ]
    return lines


def positions_figure(collections: Sequence[CollectionPositions]) -> Canvas:
    """One panel per collection: share of answers that start in each part of the passage, and the uniform share.

    Raises:
        ValueError: no collection.
    """
    if not collections:
        raise ValueError("there is no collection to draw")
    columns = 2 if len(collections) == 4 else min(_COLUMNS, len(collections))
    rows = math.ceil(len(collections) / columns)
    figure = Canvas(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, collection in zip(panels.flat, collections, strict=False):
        _draw(axes, collection)
    for axes in panels.flat[len(collections) :]:
        axes.set_visible(False)
    highest = max(share for collection in collections for part in collection.histograms for share in part.shares)
    panels[0][0].set_ylim(0, 1.05 * highest or 1)  # all panels share it
    for row in panels:
        row[0].set_ylabel("share of answers")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _draw(axes: Axes, collection: CollectionPositions) -> None:
    bins = len(collection.histograms[0].histogram)
    edges = [number / bins for number in range(bins + 1)]
    for colour, part in zip(_COLOURS, collection.histograms, strict=False):
        first = part is collection.histograms[0]
        shade = 0.35 if first else 1.0
        axes.stairs(part.shares, edges, color=colour, fill=first, alpha=shade, lw=1.6, label=_short(part))
    axes.axhline(1 / bins, color="#555555", lw=1, ls="--", label="uniform")
    axes.set_xlim(0, 1)
    axes.set_xlabel("start of the answer, relative to the passage")
    axes.set_title(collection.name, loc="left", fontweight="bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _short(part: PositionHistogram) -> str:
    """The kind of passages without its seed."""
    return part.passages.split(" (")[0].split(" by ")[0]


def _shown(part: PositionHistogram) -> list[str]:
    if part.mean is None or part.uniform_distance is None:
        return ["-"] * 4
    tenth = len(part.histogram) / 10
    ends = [_share(part, 0, tenth), _share(part, len(part.histogram) - tenth, len(part.histogram))]
    return [f"{part.mean:.3f}", f"{part.uniform_distance:.3f}", *(f"{share:.1%}" for share in ends)]


def _share(part: PositionHistogram, low: float, high: float) -> float:
    """Share of the matches between two places, counted in bins; a bin that lies partly between them counts partly."""
    inside = [max(0.0, min(number + 1, high) - max(number, low)) for number in range(len(part.histogram))]
    return sum(share * part_of for share, part_of in zip(part.shares, inside, strict=True))
