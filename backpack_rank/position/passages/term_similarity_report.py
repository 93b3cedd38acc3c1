"""How alike a term's vectors are by the distance of its positions: terminal, files, picture."""

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


@dataclass(frozen=True)
class AtDistance:
    """Similarity of a term's vectors at two positions that are ``distance`` apart.

    Attributes:
        distance: in tokens.
        ats: average term similarity (Hofstätter et al. 2021, eq. 8); NaN where there is no pair.
        std: standard deviation of the cosines, in which each term has the same weight.
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
    """One kind of representation over all distances.

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


@dataclass(frozen=True)
class TermSimilarityReport:
    """Everything about one ranker on one collection.

    Attributes:
        ranker: folder it came from.
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
    """Print one column per kind of representation, and how the figures came about.

    A column has the ATS at some distances, and the MATS.
    """
    curves = report.curves
    last = max(curve.distances[-1].distance for curve in curves)
    figures_by_label = {}
    for distance in _SHOWN:
        if distance <= last:
            ats = [curve.distances[distance].ats for curve in curves]
            figures_by_label[f"ATS({distance})"] = ats
    figures_by_label["MATS"] = [curve.mats for curve in curves]
    figures_by_label["its std over distances"] = [curve.mats_std for curve in curves]
    figures_by_label["MATS within terms"] = [curve.mats_within_terms for curve in curves]
    rows = []
    for label, figures in figures_by_label.items():
        rows.append(Row((label,), [Cell(number(figure, 3)) for figure in figures]))
    pairs = [sum(at.pairs for at in curve.distances) for curve in curves]
    rows.append(Row(("pairs",), [Cell(f"{count:,}") for count in pairs]))
    groups = (Group("", tuple(curve.representation for curve in curves)),)
    sentences = ("MATS: 0 is no position bias", *notes(report))
    title = f"Term similarity on {report.collection}"
    print_table(Table(STEM, title, ("",), groups, [Section("", rows)], sentences), console)


def write_term_similarity(folder: str | Path, report: TermSimilarityReport) -> None:
    """Write ``term_similarity`` as JSON and CSV with all digits, and the picture.

    The picture is a ``.png`` and a ``.svg``.

    The JSON file has the attributes of :class:`TermSimilarityReport` under
    ``"format": "backpack_rank term similarity 1"``; numbers that are not finite are null. The CSV
    file has a row per representation and distance.
    """
    payload = asdict(
        report, dict_factory=lambda items: {name: _or_null(value) for name, value in items}
    )
    lines = []
    for curve in report.curves:
        for at in curve.distances:
            lines.append((curve.representation, *astuple(at)))
    payload = {"format": FORMAT, **payload}
    save_figure(folder, STEM, payload, (COLUMNS, lines), similarity_chart(report))


def similarity_chart(report: TermSimilarityReport) -> Spec:
    """ATS over the distance (Figure 2 of Hofstätter et al. 2021).

    Its standard deviation is a shade.
    """
    series = []
    for curve in report.curves:
        name = f"{curve.representation}, MATS {number(curve.mats, 3)}"
        distances = [float(at.distance) for at in curve.distances]
        ats = [at.ats for at in curve.distances]
        low = [at.ats - at.std for at in curve.distances]
        high = [at.ats + at.std for at in curve.distances]
        series.append(Line(name, distances, ats, low, high))
    x, y = "distance of the two positions, in tokens", "average term similarity (ATS)"
    return lines(series, x, y, band=True, points=False, dashed=True, height=320)


def notes(report: TermSimilarityReport) -> list[str]:
    """Sentences below the table."""
    behind = f"behind the query {report.query!r}" if report.query else "without a query"
    lines = [
        f"{report.documents} documents, read {behind}; {report.terms} of {report.eligible_terms} "
        f"terms that stand in two documents or more; seed {report.seed}"
    ]
    samples: dict[str, list[str]] = {}
    for curve in report.curves:
        samples.setdefault(_sample(curve, report.per_position), []).append(curve.representation)
    for sample, kinds in samples.items():
        lines.append(sample if len(samples) == 1 else f"{', '.join(kinds)}: {sample}")
    lines += [
        f"{curve.representation}: {report.meaning[curve.representation]}" for curve in report.curves
    ]
    if missing := _without_pairs(report.curves):
        lines.append(
            f"No pair at {missing} of the distances, which MATS leaves out; read more documents to "
            "have some"
        )
    return lines


def _sample(curve: SimilarityCurve, per_position: int) -> str:
    pairs, there = (
        sum(getattr(at, name) for at in curve.distances) for name in ("pairs", "pairs_in_documents")
    )
    gone = f"; {curve.without_vector:,} more have no vector" if curve.without_vector else ""
    return (
        f"{pairs:,} of {there:,} pairs compared, from {curve.occurrences:,} of "
        f"{curve.occurrences_in_documents:,} occurrences (at most {per_position} of a term at each "
        f"position){gone}"
    )


def _without_pairs(curves: Sequence[SimilarityCurve]) -> int:
    return max(sum(not at.pairs for at in curve.distances) for curve in curves)


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
