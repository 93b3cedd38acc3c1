"""Matrices over positions in a list (transitions, reversals, propensities) as JSON, CSV and a heat map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure as Canvas

from backpack_rank.files import write_text
from backpack_rank.reporting.plots import save_figure
from backpack_rank.reporting.tables import csv_text, dump_json, finite

FORMAT = "backpack_rank position matrix 1"
COLUMNS = ("panel", "row", "column", "value")

# Okabe and Ito's blue and vermilion, as in the other pictures, on either side of white.
_WARM, _COLD = ("#D55E00", "#6b2f00"), ("#00405f", "#0072B2")
_EMPTY = "#eeeeee"
_MORE = LinearSegmentedColormap.from_list("more", ["#ffffff", "#f2b38c", *_WARM]).with_extremes(bad=_EMPTY)
_AROUND = LinearSegmentedColormap.from_list("around", [*_COLD, "#ffffff", *_WARM]).with_extremes(bad=_EMPTY)
_WRITTEN = 10  # matrices with more rows than this have no figures in their cells
_PANELS = 3  # beside each other
_TICKS = 10


def write_matrix(
    folder: str | Path,
    stem: str,
    matrix: np.ndarray | Mapping[str, np.ndarray],
    *,
    title: str = "",
    rows: str = "input position",
    columns: str = "output position",
    value: str = "share",
    centre: float | None = None,
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write ``<stem>.json``, ``.csv``, ``.png`` and ``.svg`` into a folder; returns their paths.

    JSON: ``{"format": "backpack_rank position matrix 1", "title", "rows", "columns", "value", "centre", "notes",
    "panels": {name: [[...]]}}``. CSV: one line per cell, columns :data:`COLUMNS`, positions from 1. A NaN (a cell that
    has no meaning) is null, left out of the CSV file, and grey.

    Args:
        folder: made where it is missing.
        stem: of the files' names.
        matrix: [k, k], or several by name, which are drawn as panels with one scale of colours.
        title: of the picture.
        rows, columns: what rows and columns are; they are counted from 1.
        value: what a cell is.
        centre: value that is drawn white, such as what no position bias would give; colours go to both sides of it.
            None: white is 0.
        notes: sentences for the JSON file.

    Raises:
        ValueError: no matrix, or one that is not two-dimensional or has no finite cell; names it.
    """
    panels = dict(matrix) if isinstance(matrix, Mapping) else {"": matrix}
    panels = {name: np.asarray(cells, dtype=np.float64) for name, cells in panels.items()}
    check_panels(panels)
    paths = [Path(folder) / f"{stem}.{ending}" for ending in ("json", "csv")]
    payload: dict[str, Any] = {"format": FORMAT, "title": title, "rows": rows, "columns": columns, "value": value}
    lists = {name: [[finite(cell) for cell in line] for line in cells.tolist()] for name, cells in panels.items()}
    write_text(paths[0], dump_json({**payload, "centre": centre, "notes": list(notes), "panels": lists}))
    lines = [
        (name, row + 1, column + 1, float(cells[row, column]))
        for name, cells in panels.items()
        for row, column in np.argwhere(np.isfinite(cells)).tolist()
    ]
    write_text(paths[1], csv_text(COLUMNS, lines))
    figure = heat_map(panels, title=title, rows=rows, columns=columns, value=value, centre=centre)
    return [*paths, *save_figure(figure, Path(folder) / stem)]


def heat_map(
    panels: Mapping[str, np.ndarray], *, title: str, rows: str, columns: str, value: str, centre: float | None
) -> Canvas:
    """The picture of :func:`write_matrix`: row 1 on top, one scale of colours for all panels."""
    check_panels(panels)
    across = 2 if len(panels) == 4 else min(_PANELS, len(panels))
    down = math.ceil(len(panels) / across)
    figure = Canvas(figsize=(4.2 * across + 1.2, 4.0 * down + 0.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False)
    norm, colours = _scale(np.concatenate([cells[np.isfinite(cells)] for cells in panels.values()]), centre)
    for axes, (name, cells) in zip(grid.flat, panels.items(), strict=False):
        image = axes.imshow(cells, norm=norm, cmap=colours, interpolation="nearest")
        _label(axes, name, cells, rows, columns)
        if len(cells) <= _WRITTEN:
            _write_cells(axes, cells, norm, colours)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=grid.ravel().tolist(), shrink=0.9, label=value)
    if centre is not None:
        bar.ax.axhline(centre, color="#555555", lw=1)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def check_panels(panels: Mapping[str, np.ndarray]) -> None:
    """Raise ``ValueError`` unless there is a matrix, and each has two dimensions and a finite cell."""
    if not panels:
        raise ValueError("there is no matrix to write")
    for name, cells in panels.items():
        which = f"matrix {name!r}" if name else "the matrix"
        if cells.ndim != 2 or not cells.size:
            raise ValueError(f"{which} must be of rows and columns, got shape {cells.shape}")
        if not np.isfinite(cells).any():
            raise ValueError(f"{which} has no finite cell")


def _scale(cells: np.ndarray, centre: float | None) -> tuple[Normalize, Colormap]:
    low, high = float(cells.min()), float(cells.max())
    if centre is None:
        low = min(low, 0.0)
        return Normalize(low, high if high > low else low + 1.0), _MORE
    # The same distance on both sides, but a share has no values below 0.
    reach = max(high - centre, centre - low) or 1.0
    lowest = centre - reach if low < 0 else max(0.0, centre - reach)
    return TwoSlopeNorm(centre, min(lowest, centre - 1e-9), centre + reach), _AROUND


def _label(axes: Axes, name: str, cells: np.ndarray, rows: str, columns: str) -> None:
    for axis, length in ((axes.xaxis, cells.shape[1]), (axes.yaxis, cells.shape[0])):
        step = next(step for step in (1, 5, 10, 20, 50, length) if length <= _TICKS * step)
        places = sorted({0, *range(step - 1, length, step)})
        axis.set_ticks(places, [str(place + 1) for place in places])
    axes.set_xlabel(columns)
    axes.set_ylabel(rows)
    if name:
        axes.set_title(name, loc="left", fontweight="bold", fontsize=10)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)


def _write_cells(axes: Axes, cells: np.ndarray, norm: Normalize, colours: Colormap) -> None:
    size = min(9.0, 62 / max(cells.shape))
    decimals = 3 if np.nanmax(np.abs(cells)) < 0.1 else 2
    for row, column in np.argwhere(np.isfinite(cells)).tolist():
        red, green, blue, _ = colours(norm(cells[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        text = f"{cells[row, column]:.{decimals}f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")
