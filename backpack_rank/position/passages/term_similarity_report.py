"""Similarity of a term's vectors by the distance of its positions: terminal, files, picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from backpack_rank.reporting.charts import Line, lines
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.vega import Spec, save_figure
from backpack_rank.reporting.writers import print_table

FORMAT = "backpack_rank term similarity 1"
STEM = "term_similarity"
COLUMNS = ("representation", "distance", "ats", "std", "terms", "pairs", "pairs_in_documents")
_SHOWN = (0, 1, 5, 10, 20, 50, 100, 200, 500)
"""Distances of the rows of the printed table, as far as they were measured."""


@dataclass(frozen=True)
class AtDistance:
    """Similarity of a term's vectors at two positions that are ``distance`` apart.

    Attributes:
        distance: in tokens.
        ats: average term similarity (Hofstätter et al. 2021, eq. 8); NaN where there is no pair.
        std: standard deviation of the cosines, each term weighted equally.
        terms: with at least one pair.
        pairs: compared.
        pairs_in_documents: that there are in the documents read, of which ``pairs`` is a sample.
    """

    distance: int
    ats: float
    std: float
    terms: int
    pairs: int
    pairs_in_documents: int


@dataclass(frozen=True)
class SimilarityCurve:
    """ATS and MATS of one kind of representation, over all distances.

    :func:`~backpack_rank.position.passages.term_similarity.term_similarity` gives it.

    Attributes:
        representation: name of the kind.
        mats: mean over distances from 1 of ATS(0) - ATS(D) (eq. 9); 0 is no position bias.
        mats_std: standard deviation of these differences over the distances.
        mats_within_terms: the same mean with each difference taken within the terms that have pairs
            at both distances, since few and frequent terms have pairs far apart; NaN where no term
            has.
        distances: from 0 on.
        occurrences: vectors kept, of ``occurrences_in_documents`` tokens of the chosen terms.
        without_vector: further tokens whose vector is 0, which the ranker does not read; left out.
    """

    representation: str
    mats: float
    mats_std: float
    mats_within_terms: float
    distances: tuple[AtDistance, ...]
    occurrences: int
    occurrences_in_documents: int
    without_vector: int = 0

    @property
    def pairs(self) -> int:
        """Pairs compared, at all distances."""
        return sum(at.pairs for at in self.distances)

    @property
    def pairs_in_documents(self) -> int:
        """Pairs that there are in the documents read, at all distances."""
        return sum(at.pairs_in_documents for at in self.distances)

    @property
    def distances_without_pairs(self) -> int:
        """Distances at which no pair was compared."""
        return sum(at.pairs == 0 for at in self.distances)


@dataclass(frozen=True)
class TermSimilarityReport:
    """Term similarity of a ranker on a collection: its curves, and how they came about.

    Attributes:
        ranker: its folder.
        collection: name.
        documents: read.
        terms: compared, of ``eligible_terms`` that stand in two documents or more.
        query: that every document stood behind; empty when they were read alone.
        per_position: occurrences of a term kept at each position, at most.
        seed: of all draws.
        meaning: what each kind of representation is.
    """

    ranker: str
    collection: str
    documents: int
    terms: int
    eligible_terms: int
    query: str
    per_position: int
    seed: int
    curves: tuple[SimilarityCurve, ...]
    meaning: dict[str, str]


def print_term_similarity(report: TermSimilarityReport, console: Console | None = None) -> None:
    """Read a report in the terminal: a column for each kind of representation.

    A column has the ATS at some distances, and the MATS; below the table stands how they came
    about.
    """
    curves = report.curves
    max_distance = max(curve.distances[-1].distance for curve in curves)
    figures_by_label: dict[str, list[float]] = {}
    for distance in _SHOWN:
        if distance <= max_distance:
            ats = [curve.distances[distance].ats for curve in curves]
            figures_by_label[f"ATS({distance})"] = ats
    figures_by_label["MATS"] = [curve.mats for curve in curves]
    figures_by_label["its std over distances"] = [curve.mats_std for curve in curves]
    figures_by_label["MATS within terms"] = [curve.mats_within_terms for curve in curves]
    rows = []
    for label, figures in figures_by_label.items():
        rows.append(Row((label,), [Cell(number(figure, 3)) for figure in figures]))
    rows.append(Row(("pairs",), [Cell(f"{curve.pairs:,}") for curve in curves]))
    kinds = tuple(curve.representation for curve in curves)
    table = Table(
        name=STEM,
        title=f"Term similarity on {report.collection}",
        labels=("",),
        groups=(Group("", kinds),),
        sections=[Section("", rows)],
        notes=("MATS: 0 is no position bias", *notes(report)),
    )
    print_table(table, console)


def write_term_similarity(folder: str | Path, report: TermSimilarityReport) -> None:
    """Write ``term_similarity.json``, ``.csv``, ``.png`` and ``.svg`` into a folder.

    The JSON file has the attributes of :class:`TermSimilarityReport` under
    ``"format": "backpack_rank term similarity 1"``; numbers that are not finite are null. The CSV
    file has a row per representation and distance. Both have all digits.
    """
    payload = {"format": FORMAT, **asdict(report, dict_factory=_without_nan)}
    lines = []
    for curve in report.curves:
        for at in curve.distances:
            lines.append((curve.representation, *astuple(at)))
    save_figure(folder, STEM, payload, (COLUMNS, lines), similarity_chart(report))


def similarity_chart(report: TermSimilarityReport) -> Spec:
    """Draw ATS over the distance (Figure 2 of Hofstätter et al. 2021).

    The standard deviation is a shade around each line.
    """
    series = []
    for curve in report.curves:
        name = f"{curve.representation}, MATS {number(curve.mats, 3)}"
        distances, ats, low, high = [], [], [], []
        for at in curve.distances:
            distances.append(float(at.distance))
            ats.append(at.ats)
            low.append(at.ats - at.std)
            high.append(at.ats + at.std)
        series.append(Line(name, distances, ats, low, high))
    return lines(
        series,
        "distance of the two positions, in tokens",
        "average term similarity (ATS)",
        band=True,
        points=False,
        dashed=True,
        height=320,
    )


def notes(report: TermSimilarityReport) -> list[str]:
    """The sentences below the table: documents, sample, and what each kind is."""
    behind = f"behind the query {report.query!r}" if report.query else "without a query"
    sentences = [
        f"{report.documents} documents, read {behind}; {report.terms} of {report.eligible_terms} "
        f"terms that stand in two documents or more; seed {report.seed}"
    ]
    # Kinds of the same ranker mostly have the same sample, which is then said once.
    kinds_by_sample: dict[str, list[str]] = {}
    for curve in report.curves:
        sample = _sample(curve, report.per_position)
        kinds_by_sample.setdefault(sample, []).append(curve.representation)
    for sample, kinds in kinds_by_sample.items():
        if len(kinds_by_sample) == 1:
            sentences.append(sample)
        else:
            sentences.append(f"{', '.join(kinds)}: {sample}")
    for curve in report.curves:
        sentences.append(f"{curve.representation}: {report.meaning[curve.representation]}")
    missing = max(curve.distances_without_pairs for curve in report.curves)
    if missing > 0:
        sentences.append(
            f"No pair at {missing} of the distances, which MATS leaves out; read more documents to "
            "have some"
        )
    return sentences


def _sample(curve: SimilarityCurve, per_position: int) -> str:
    """How many pairs and occurrences a curve rests on, of how many."""
    sentence = (
        f"{curve.pairs:,} of {curve.pairs_in_documents:,} pairs compared, from "
        f"{curve.occurrences:,} of {curve.occurrences_in_documents:,} occurrences (at most "
        f"{per_position} of a term at each position)"
    )
    if curve.without_vector:
        sentence += f"; {curve.without_vector:,} more have no vector"
    return sentence


def _without_nan(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The attributes of a dataclass with null for NaN and infinity, which JSON does not have."""
    values = {}
    for name, value in items:
        is_missing = isinstance(value, float) and not math.isfinite(value)
        values[name] = None if is_missing else value
    return values
