"""Rows of dots: a few figures of each system on one scale, such as nDCG@10 by input order or before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.evaluation.results import Estimate
from backpack_rank.reporting.charts import dots
from backpack_rank.reporting.vega import Spec, save_chart


@dataclass(frozen=True)
class DotRow:
    """One row of dots.

    Attributes:
        label: of the row.
        figures: by name of the dot; intervals are drawn where there are any. Rows may lack dots.
    """

    label: str
    figures: Mapping[str, Estimate]


def dot_plot(
    path: str | Path, panels: Mapping[str, Sequence[DotRow]], *, measure: str, title: str = ""
) -> tuple[Path, Path]:
    """Draw rows of dots, joined by a line from the smallest to the largest; the longer the line, the more they differ.

    Args:
        path: name of the files without ending.
        panels: rows by heading, drawn below each other on one scale; the heading of a single panel may be empty.
        measure: what the scale is.
        title: of the picture.

    Returns:
        Paths of the PNG and the SVG file.

    Raises:
        ValueError: no row, or a row without a dot; names it.
    """
    return save_chart(Path(path), dots_chart(panels, measure=measure), title)


def dots_chart(panels: Mapping[str, Sequence[DotRow]], *, measure: str) -> Spec:
    """The chart of :func:`dot_plot`."""
    rows = [row for part in panels.values() for row in part]
    if not rows:
        raise ValueError("there is no row of dots to draw")
    if empty := [row.label for row in rows if not row.figures]:
        raise ValueError(f"row {empty[0]!r} has no dot")
    return dots({heading: [(row.label, row.figures) for row in part] for heading, part in panels.items()}, measure)
