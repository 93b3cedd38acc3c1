"""The trade-off of the dial as a picture: effectiveness against bias, one point per alpha."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

from backpack_rank.files import atomic_path
from backpack_rank.reporting.rows import SystemRow

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_COLOURS = {"tf": "#0072B2", "bool": "#D55E00"}
_REFERENCE_COLOUR = "#555555"
_TITLES = {"tf": "TF", "bool": "Boolean"}
_MEASURES = {"RaB": "rank bias", "ARaB": "average rank bias"}
_REFERENCE_MARKERS = ("*", "D", "P", "X", "v")
_DIRECTIONS = [math.radians(angle) for angle in (60, 120, 30, 150, 90, -60, -120, -30, -150, -90, 0, 180)]
_DISTANCES = (9, 15, 22, 30, 40, 52)


@dataclass(frozen=True)
class _Point:
    label: str
    alpha: float | None
    bias: float
    effectiveness: float


def tradeoff_plot(
    path: str | Path, rows: Sequence[SystemRow], measure: str = "nDCG@10", cutoff: int = 10
) -> tuple[Path, Path]:
    """Draw ``measure`` against \\|RaB\\| and \\|ARaB\\| at a cut-off, TF and Boolean, for every alpha.

    Four panels with a common effectiveness axis. Points of the dial are joined in the order of alpha and labelled
    with it; systems without alpha (BM25) are reference marks. A point is hollow where the sign of its mean differs
    from the sign at the largest alpha, since the absolute value hides that the bias has turned round.

    Args:
        path: name of the files; ``.png`` and ``.svg`` are added, or take the place of such an ending.
        rows: systems; those without the measures of a panel are an error, not a gap.
        measure: of effectiveness.
        cutoff: of the bias measures.

    Returns:
        Paths of the PNG and the SVG file; each is complete or absent.

    Raises:
        ValueError: no row, or a row lacks a measure (both are named).
    """
    if not rows:
        raise ValueError("there is no system to draw")
    figure = Canvas(figsize=(11, 9), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharey=True)
    for row, magnitude in enumerate(_TITLES):
        for column, name in enumerate(_MEASURES):
            bias = f"{name}({magnitude})@{cutoff}"
            axes = panels[row][column]
            _draw(axes, _points(rows, measure, bias), magnitude)
            axes.set_title(f"{name} ({_TITLES[magnitude]})", loc="left", fontweight="bold")
            axes.set_xlabel(f"{_MEASURES[name]} |{name}@{cutoff}|, 0 is unbiased")
            axes.tick_params(labelleft=True)
        panels[row][0].set_ylabel(f"effectiveness, {measure}")
    _legend(figure, panels[0][0], rows)
    figure.canvas.draw()
    for axes in panels.flat:
        _place_labels(axes)
    stem = Path(path)
    return save_figure(figure, stem.with_suffix("") if stem.suffix in (".png", ".svg") else stem)


def save_figure(figure: Canvas, stem: Path) -> tuple[Path, Path]:
    """Write a matplotlib figure as ``<stem>.png`` and ``<stem>.svg``; equal figures give equal files.

    Returns:
        Both paths; each file is complete or absent.
    """
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with atomic_path(png) as temporary:
        figure.savefig(temporary, format="png", dpi=figure.dpi)
    # Without a date and with fixed ids, equal figures give equal files.
    with matplotlib.rc_context({"svg.hashsalt": "backpack_rank"}), atomic_path(svg) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    return png, svg


def _points(rows: Sequence[SystemRow], measure: str, bias: str) -> list[_Point]:
    points = []
    for row in rows:
        effectiveness = row.effectiveness.figures if row.effectiveness else {}
        biases = row.bias.figures if row.bias else {}
        for name, found in ((measure, effectiveness), (bias, biases)):
            if name not in found or not math.isfinite(found[name].mean):
                raise ValueError(f"the plot needs {name}; {row.label} has no value of it")
        points.append(_Point(row.label, row.alpha, biases[bias].mean, effectiveness[measure].mean))
    return points


def _draw(axes: Axes, points: Sequence[_Point], magnitude: str) -> None:
    colour = _COLOURS[magnitude]
    dial = sorted((point for point in points if point.alpha is not None), key=lambda point: -(point.alpha or 0))
    # The line shows the path of the signed mean folded at 0; it has no meaning between the points.
    x_path, y_path = [abs(point.bias) for point in dial], [point.effectiveness for point in dial]
    axes.plot(x_path, y_path, color=colour, lw=1.2, alpha=0.5, zorder=2, gid="path")
    for point in dial:
        turned = point.bias * dial[0].bias < 0
        x, y = abs(point.bias), point.effectiveness
        axes.plot(x, y, "o", ms=7, mec=colour, mew=1.5, mfc="white" if turned else colour, zorder=3, gid="point")
        _label(axes, x, y, f"{point.alpha:g}", "black")
    references = [point for point in points if point.alpha is None]
    for point, marker in zip(references, itertools.cycle(_REFERENCE_MARKERS)):
        x, y = abs(point.bias), point.effectiveness
        axes.plot(x, y, marker, ms=13, color=_REFERENCE_COLOUR, mec="white", zorder=3, gid="point")
        _label(axes, x, y, point.label, _REFERENCE_COLOUR)
    axes.margins(0.12)
    axes.grid(color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _label(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    arrow = {"arrowstyle": "-", "color": "#999999", "lw": 0.6, "shrinkA": 0, "shrinkB": 5}
    label = axes.annotate(
        text, (x, y), (0, 0), textcoords="offset points", fontsize=9, color=colour, arrowprops=arrow, zorder=4
    )
    label.set_horizontalalignment("center")
    label.set_verticalalignment("center")
    # Labels must not shrink the panels while they are not yet in their place.
    label.set_in_layout(False)


def _place_labels(axes: Axes) -> None:
    """Give each label the first of a ring of places where it hides no mark, no line and no other label."""
    # Boxes are x0, y0, x1, y1 in pixels.
    taken = [_mark_box(axes, line) for line in axes.lines if line.get_gid() == "point"]
    for line in axes.lines:
        if line.get_gid() == "path":
            taken += _path_boxes(axes, line)
    for label in [child for child in axes.texts if isinstance(child, Annotation)]:
        at_mark = _text_box(label)
        choices: list[tuple[float, int, tuple[float, float], np.ndarray]] = []
        for distance, direction in itertools.product(_DISTANCES, _DIRECTIONS):
            offset = (1.2 * distance * math.cos(direction), distance * math.sin(direction))
            box = at_mark + np.tile(offset, 2) * axes.figure.dpi / 72
            area = (box[2] - box[0]) * (box[3] - box[1])
            hidden = _shared(box, np.array(taken)) + area - _shared(box, np.array([axes.bbox.extents]))
            choices.append((hidden, len(choices), offset, box))
            if hidden < 1:
                break
        _, _, offset, box = min(choices, key=lambda choice: choice[:2])
        label.set_position(offset)
        taken.append(box)


def _text_box(label: Annotation) -> np.ndarray:
    """The box of the words alone, at the mark; the annotation's own includes the line to the mark."""
    label.get_window_extent()  # computes where the words are
    return np.array(Text.get_window_extent(label).padded(2).extents)


def _mark_box(axes: Axes, line: Line2D) -> np.ndarray:
    centre = axes.transData.transform(np.asarray(line.get_xydata())[0])
    half = line.get_markersize() * axes.figure.dpi / 72 / 2
    return np.concatenate([centre - half, centre + half])


def _path_boxes(axes: Axes, line: Line2D) -> list[np.ndarray]:
    """Small boxes along a line, so that labels stand beside it."""
    corners = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
    boxes = []
    for start, end in itertools.pairwise(corners):
        steps = max(2, int(np.hypot(*(end - start)) / 6))
        boxes += [np.concatenate([point - 2, point + 2]) for point in np.linspace(start, end, steps)]
    return boxes


def _shared(box: np.ndarray, others: np.ndarray) -> float:
    """Area of a box [4] that other boxes [n, 4] cover, summed over them."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    return float(np.prod(np.clip(high - low, 0, None), axis=1).sum())


def _legend(figure: Canvas, axes: Axes, rows: Sequence[SystemRow]) -> None:
    handles = [
        Line2D([], [], color="#000000", marker="o", lw=1.2, label="dial, labelled with alpha"),
    ]
    references = [row.label for row in rows if row.alpha is None]
    for label, marker in zip(references, itertools.cycle(_REFERENCE_MARKERS)):
        handles.append(Line2D([], [], color=_REFERENCE_COLOUR, marker=marker, ms=11, ls="", label=label))
    hollow = any(line.get_markerfacecolor() == "white" for panel in figure.axes for line in panel.lines)
    if hollow:
        mark = Line2D([], [], color="#000000", marker="o", mfc="white", ls="", label="bias has turned round (sign)")
        handles.append(mark)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
