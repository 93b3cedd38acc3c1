"""Matrices over positions in a list, such as transitions, as JSON, CSV and a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.reporting.charts import heat_maps
from backpack_rank.reporting.vega import save_figure
from backpack_rank.reporting.writers import finite

FORMAT = "backpack_rank position matrix 1"
COLUMNS = ("panel", "row", "column", "value")

_MOST_ROWS_WITH_FIGURES = 10  # cells of larger matrices are too small for a number


def write_heat_map(
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
    """Write matrices over positions as ``<stem>.json``, ``.csv``, ``.png`` and ``.svg``::

        transitions = Transitions.of(rankings, size=20)
        paths = write_heat_map(folder, "transitions", transitions.given_input, centre=1 / 20)

    JSON::

        {"format": "backpack_rank position matrix 1", "title", "rows", "columns", "value", "centre",
         "notes", "panels": {name: [[...]]}}

    CSV: one line per cell, columns :data:`COLUMNS`, positions from 1. A NaN (a cell that has no
    meaning) is null, left out of the CSV file, and grey.

    Args:
        folder: made where it is missing.
        stem: of the files' names.
        matrix: [k, k], or several by name, which are drawn as panels with one scale of colours.
        title: of the picture.
        rows, columns: what rows and columns are; they are counted from 1.
        value: what a cell is.
        centre: value that is drawn white, such as what no position bias would give; colours go to
            both sides of it. None: white is 0.
        notes: sentences for the JSON file.

    Raises:
        ValueError: no matrix, or one that is not two-dimensional or has no finite cell; names it.
    """
    matrices = matrix if isinstance(matrix, Mapping) else {"": matrix}
    panels = {name: np.asarray(cells, dtype=np.float64) for name, cells in matrices.items()}
    check_panels(panels)
    panels_without_nan: dict[str, list[list[float | None]]] = {}
    cells_as_lists = {}
    lines = []
    for name, cells in panels.items():
        cells_as_lists[name] = cells.tolist()
        panels_without_nan[name] = []
        for row_of_cells in cells.tolist():
            panels_without_nan[name].append(list(map(finite, row_of_cells)))
        # Positions count from 1 in files.
        for row, column in np.argwhere(np.isfinite(cells)).tolist():
            lines.append((name, row + 1, column + 1, float(cells[row, column])))
    payload: dict[str, Any] = {
        "format": FORMAT,
        "title": title,
        "rows": rows,
        "columns": columns,
        "value": value,
        "centre": centre,
        "notes": list(notes),
        "panels": panels_without_nan,
    }
    with_figures = all(len(cells) <= _MOST_ROWS_WITH_FIGURES for cells in panels.values())
    spec = heat_maps(cells_as_lists, columns, rows, value, centre, with_figures)
    return save_figure(folder, stem, payload, (COLUMNS, lines), spec, title)


def check_panels(panels: Mapping[str, np.ndarray]) -> None:
    """Refuse, by a ``ValueError``, matrices without two dimensions and a finite cell."""
    if not panels:
        raise ValueError("there is no matrix to write")
    for name, cells in panels.items():
        which = f"matrix {name!r}" if name else "the matrix"
        if cells.ndim != 2 or not cells.size:
            raise ValueError(f"{which} must be of rows and columns, got shape {cells.shape}")
        if not np.isfinite(cells).any():
            raise ValueError(f"{which} has no finite cell")
