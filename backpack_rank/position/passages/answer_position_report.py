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
    """Where the answers of a collection start, in its original or its rotated passages.

    >>> histogram = PositionHistogram("original", 4, 0, 0.3, 0.2, histogram=(3, 1))
    >>> histogram.shares
    [0.75, 0.25]

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
        if self.matches == 0:
            return [0.0] * len(self.histogram)
        return [count / self.matches for count in self.histogram]


@dataclass(frozen=True)
class CollectionPositions:
    """Where the answers of a collection start, and how many of them were found.

    Attributes:
        name: of the collection.
        answers: rows of the source that were looked at.
        unmatched: those of them whose text does not stand in the document.
        unanswered: questions without any answer.
        uncertain: rows whose given place is only the likeliest of several.
        match: ``offsets`` or ``all``, see
            :func:`~backpack_rank.position.passages.answer_positions.answer_positions`.
        histograms: of the original passages, then of the rotated ones.
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
    """Write ``answer_positions`` as JSON, CSV, PNG and SVG; it returns the paths.

    JSON: ``{"format": "backpack_rank answer positions 1", "collections": [...]}`` with the
    attributes of :class:`CollectionPositions`. CSV: one line per bin, columns :data:`CSV_COLUMNS`,
    ``from`` and ``to`` relative.
    """
    payload = {"format": FORMAT, "collections": [asdict(collection) for collection in collections]}
    lines = []
    for collection in collections:
        for histogram in collection.histograms:
            bins = len(histogram.histogram)
            counts_and_shares = zip(histogram.histogram, histogram.shares, strict=True)
            for place, (count, share) in enumerate(counts_and_shares):
                start, end = place / bins, (place + 1) / bins
                lines.append((collection.name, histogram.passages, start, end, count, share))
    return save_figure(folder, NAME, payload, (CSV_COLUMNS, lines), positions_chart(collections))


def print_answer_positions(
    collections: Sequence[CollectionPositions], console: Console | None = None
) -> None:
    """Read the positions in the terminal: a line per collection and kind of passage."""
    sections = []
    for collection in collections:
        rows = []
        name = collection.name  # in the first line of the collection
        for histogram in collection.histograms:
            counts = (histogram.matches, collection.unmatched, histogram.cut)
            texts = [*(f"{count:,}" for count in counts), *_figures(histogram)]
            rows.append(Row((name, _without_seed(histogram)), list(map(Cell, texts))))
            name = ""
        sections.append(Section("", rows))
    columns = ("matches", "unmatched", "cut", "mean", "KS", "first tenth", "last tenth")
    table = Table(
        name=NAME,
        title="Where answers start in their passages (Figure 1 of Hofstätter et al. 2021)",
        labels=("collection", "passages"),
        groups=(Group("", columns),),
        sections=sections,
        notes=notes(collections),
    )
    print_table(table, console)


def notes(collections: Sequence[CollectionPositions]) -> list[str]:
    """The sentences below the table, which say what its columns mean."""
    lines = [
        "mean: of start word / words of the passage. KS: Kolmogorov-Smirnov distance from the "
        "uniform distribution, 0 is uniform. unmatched: answers that do not stand in their "
        "document. cut: matches that the rotation cut in two. Neither counts anywhere."
    ]
    # The table names kinds of passages without their seed, so it is said here.
    shortened = set()
    for collection in collections:
        for histogram in collection.histograms:
            if histogram.passages != _without_seed(histogram):
                shortened.add(histogram.passages)
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
    """Draw a panel per collection: share of answers that start in each part of a passage.

    The uniform share stands beside it.

    Raises:
        ValueError: no collection.
    """
    if not collections:
        raise ValueError("there is no collection to draw")
    panels: dict[str, list[tuple[str, list[float]]]] = {}
    for collection in collections:
        panels[collection.name] = []
        for histogram in collection.histograms:
            panels[collection.name].append((_without_seed(histogram), histogram.shares))
    return histograms(
        panels, "start of the answer, relative to the passage", "share of answers", "uniform"
    )


def _without_seed(histogram: PositionHistogram) -> str:
    """The kind of passages, such as ``rotated`` of ``rotated (seed 0)``."""
    return histogram.passages.split(" (")[0].split(" by ")[0]


def _figures(histogram: PositionHistogram) -> list[str]:
    """Mean, distance from uniform, and the shares of the first and the last tenth."""
    if histogram.mean is None or histogram.uniform_distance is None:
        return [NONE] * 4
    bins = len(histogram.histogram)
    first_tenth = _share(histogram, 0, bins / 10)
    last_tenth = _share(histogram, bins - bins / 10, bins)
    return [
        number(histogram.mean, 3),
        number(histogram.uniform_distance, 3),
        f"{first_tenth:.1%}",
        f"{last_tenth:.1%}",
    ]


def _share(histogram: PositionHistogram, low: float, high: float) -> float:
    """Share of the matches between two places, counted in bins.

    A bin that lies partly between them counts partly.
    """
    counted = []
    for place, share in enumerate(histogram.shares):
        inside = max(0.0, min(place + 1, high) - max(place, low))
        counted.append(share * inside)
    return sum(counted)
