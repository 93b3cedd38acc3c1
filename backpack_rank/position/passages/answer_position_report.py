"""Where answers stand in their passages: picture, terminal table, JSON and CSV.

The picture is Figure 1 of Hofstätter et al. 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from backpack_rank.reporting.charts import histograms
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.vega import Spec, save_figure
from backpack_rank.reporting.writers import print_table

FORMAT = "backpack_rank answer positions 1"
NAME = "answer_positions"
CSV_COLUMNS = ("collection", "passages", "from", "to", "matches", "share")


@dataclass(frozen=True)
class PositionHistogram:
    """Where the answers of a collection start, for its passages as they are or rotated.

    Attributes:
        passages: ``original``, ``rotated (seed 0)``.
        matches: answers found, at all their places.
        cut: matches that the rotation cut in two; they count nowhere.
        mean: mean relative start position, 0 the first word; None without a match.
        uniform_distance: Kolmogorov-Smirnov distance from the uniform distribution; None without a
            match.
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
        match: ``offsets`` or ``all``, see
            :func:`~backpack_rank.position.passages.answer_positions.answer_positions`.
        histograms: of the passages as they are, then rotated.
    """

    name: str
    answers: int
    unmatched: int
    unanswered: int
    uncertain: int
    match: str
    histograms: tuple[PositionHistogram, ...]


def write_answer_positions(
    folder: str | Path, collections: Sequence[CollectionPositions]
) -> list[Path]:
    """Write ``answer_positions`` as JSON, CSV, PNG and SVG into a folder; returns the paths.

    JSON: ``{"format": "backpack_rank answer positions 1", "collections": [...]}`` with the
    attributes of :class:`CollectionPositions`. CSV: one line per bin, columns :data:`CSV_COLUMNS`,
    ``from`` and ``to`` relative.
    """
    payload = {"format": FORMAT, "collections": [asdict(collection) for collection in collections]}
    lines = []
    for collection in collections:
        for part in collection.histograms:
            bins = len(part.histogram)
            for place, count in enumerate(part.histogram):
                span = (place / bins, (place + 1) / bins)
                lines.append((collection.name, part.passages, *span, count, part.shares[place]))
    return save_figure(folder, NAME, payload, (CSV_COLUMNS, lines), positions_chart(collections))


def print_answer_positions(
    collections: Sequence[CollectionPositions], console: Console | None = None
) -> None:
    """Print one line per collection and kind of passage, and what the columns mean."""
    sections = []
    for collection in collections:
        rows = []
        for place, part in enumerate(collection.histograms):
            counts = (f"{part.matches:,}", f"{collection.unmatched:,}", f"{part.cut:,}")
            labels = ("" if place else collection.name, _short(part))
            rows.append(Row(labels, list(map(Cell, (*counts, *_shown(part))))))
        sections.append(Section("", rows))
    groups = (
        Group("", ("matches", "unmatched", "cut", "mean", "KS", "first tenth", "last tenth")),
    )
    title = "Where answers start in their passages (Figure 1 of Hofstätter et al. 2021)"
    print_table(
        Table(NAME, title, ("collection", "passages"), groups, sections, notes(collections)),
        console,
    )


def notes(collections: Sequence[CollectionPositions]) -> list[str]:
    """Sentences below the table."""
    lines = [
        "mean: of start word / words of the passage. KS: Kolmogorov-Smirnov distance from the "
        "uniform distribution, 0 is uniform. unmatched: answers that do not stand in their "
        "document. cut: matches that the rotation cut in two. Neither counts anywhere."
    ]
    # Kinds of passages that the table names without their seed.
    shortened = set()
    for collection in collections:
        for part in collection.histograms:
            if part.passages != _short(part):
                shortened.add(part.passages)
    if shortened:
        lines.append(f"Passages: {', '.join(sorted(shortened))}.")
    if any(collection.match == "all" for collection in collections):
        lines.append("Answers were searched, and every match counts.")
    for collection in collections:
        if collection.uncertain and collection.match == "offsets":
            lines.append(
                f"{collection.name}: {collection.uncertain:,} places are the likeliest of several "
                "occurrences."
            )
    return lines


def positions_chart(collections: Sequence[CollectionPositions]) -> Spec:
    """One panel per collection: share of answers that start in each part of the passage.

    The uniform share stands beside it.

    Raises:
        ValueError: no collection.
    """
    if not collections:
        raise ValueError("there is no collection to draw")
    panels = {}
    for collection in collections:
        parts = [(_short(part), part.shares) for part in collection.histograms]
        panels[collection.name] = parts
    return histograms(
        panels, "start of the answer, relative to the passage", "share of answers", "uniform"
    )


def _short(part: PositionHistogram) -> str:
    """The kind of passages without its seed."""
    return part.passages.split(" (")[0].split(" by ")[0]


def _shown(part: PositionHistogram) -> list[str]:
    if part.mean is None or part.uniform_distance is None:
        return [NONE] * 4
    tenth = len(part.histogram) / 10
    ends = [_share(part, 0, tenth), _share(part, len(part.histogram) - tenth, len(part.histogram))]
    return [
        number(part.mean, 3),
        number(part.uniform_distance, 3),
        *(f"{share:.1%}" for share in ends),
    ]


def _share(part: PositionHistogram, low: float, high: float) -> float:
    """Share of the matches between two places, counted in bins.

    A bin that lies partly between them counts partly.
    """
    counted = []
    for place, share in enumerate(part.shares):
        inside = max(0.0, min(place + 1, high) - max(place, low))
        counted.append(share * inside)
    return sum(counted)
