"""The trade-off of the dial as a picture: effectiveness against the four bias measures at a cut-off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backpack_rank.evaluation.results import SystemResult
from backpack_rank.reporting.page.figures import figure_of, tradeoff_of
from backpack_rank.reporting.vega import beside, save_chart

BIAS = {"RaB(tf)": "RaB (TF)", "ARaB(tf)": "ARaB (TF)", "RaB(bool)": "RaB (Boolean)", "ARaB(bool)": "ARaB (Boolean)"}


def tradeoff_plot(
    path: str | Path,
    rows: Sequence[SystemResult],
    measure: str = "nDCG@10",
    cutoff: int = 10,
    control: tuple[str, Sequence[SystemResult]] | None = None,
    name: str = "alpha",
) -> tuple[Path, Path]:
    """Draw ``measure`` against RaB and ARaB at a cut-off, TF and Boolean, for every alpha, in four panels.

    Args:
        path: name of the files; ``.png`` and ``.svg`` are added, or take the place of such an ending.
        rows: systems; those without the measures of a panel are an error, not a gap.
        measure: of effectiveness.
        cutoff: of the bias measures.
        control: name and systems of a policy that is drawn grey.
        name: of the other policy.

    Returns:
        Paths of the PNG and the SVG file; each is complete or absent.

    Raises:
        ValueError: no row, or a row lacks a measure (both are named).
    """
    if not rows:
        raise ValueError("there is no system to draw")
    panels = {}
    for kind, title in BIAS.items():
        bias = f"{kind}@{cutoff}"
        for row in rows:
            if lacking := [one for one in (measure, bias) if figure_of(row, one) is None]:
                raise ValueError(f"the plot needs {lacking[0]}; {row.label} has no value of it")
        found = tradeoff_of(rows, measure, bias, control=control, name=name)
        assert found is not None
        panels[title] = found[0]
    stem = Path(path)
    return save_chart(stem.with_suffix("") if stem.suffix in (".png", ".svg") else stem, beside(panels, 2))
