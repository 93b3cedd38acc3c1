"""Places for the labels of points, so that they hide neither each other nor a mark nor a line.

A chart is as wide as the window, so a place is tried at a narrow and at a wide width, and counts what it hides in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PLOT_HEIGHT = 258
_WIDTHS = (262.0, 700.0)
_CHARACTER, _LINE = 6.8, 14.0
_MARK = 6.0
_RINGS = ((11, 8), (18, 12), (27, 12))
_MARGINS = (36.0, 12.0, 12.0, 2.0)

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Place:
    """Offset in pixels of a label from its point, and the end of the text that stands there."""

    dx: float
    dy: float
    anchor: str


def place_labels(
    labels: Sequence[tuple[float, float, str]], lines: Sequence[Sequence[tuple[float, float]]]
) -> list[Place]:
    """A place for each label.

    Args:
        labels: (x, y, text); x and y from 0 to 1, from the plot's upper left corner. An empty text is a mark alone.
        lines: corners of lines, in the same measure.

    Returns:
        Places in the order of the labels.
    """
    taken: dict[float, list[Box]] = {width: [] for width in _WIDTHS}
    for width, boxes in taken.items():
        for x, y, _ in labels:
            boxes.append(_around(x * width, y * PLOT_HEIGHT, _MARK))
        for corners in lines:
            boxes += _along([(x * width, y * PLOT_HEIGHT) for x, y in corners])
    return [_best(label, taken) for label in labels]


def _best(label: tuple[float, float, str], taken: dict[float, list[Box]]) -> Place:
    x, y, text = label
    best, least = Place(0, -10, "middle"), math.inf
    for place in _places() if text else ():
        boxes = {width: _text_box(x * width, y * PLOT_HEIGHT, text, place) for width in taken}
        hidden = sum(_hidden(box, taken[width], width) for width, box in boxes.items())
        if hidden < least:
            best, least = place, hidden
        if hidden < 1:
            break
    for width, own in taken.items() if text else ():
        own.append(_text_box(x * width, y * PLOT_HEIGHT, text, best))
    return best


def _places() -> list[Place]:
    places = []
    for radius, number in _RINGS:
        for turn in range(number):
            # Above first, then to the sides, below last.
            angle = math.radians(90 + (1 if turn % 2 else -1) * math.ceil(turn / 2) * 360 / number)
            dx, dy = radius * math.cos(angle), -radius * math.sin(angle)
            anchor = "middle" if abs(dx) < 3 else "start" if dx > 0 else "end"
            places.append(Place(round(dx, 1), round(dy, 1), anchor))
    return places


def _text_box(x: float, y: float, text: str, place: Place) -> Box:
    width = _CHARACTER * len(text) + 4
    left = x + place.dx - {"start": 2.0, "middle": width / 2, "end": width - 2}[place.anchor]
    return left, y + place.dy - _LINE / 2, left + width, y + place.dy + _LINE / 2


def _hidden(box: Box, others: Sequence[Box], width: float) -> float:
    left, right, top, bottom = _MARGINS
    inside = _shared(box, (-left, -top, width + right, PLOT_HEIGHT + bottom))
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(_shared(box, other) for other in others) + 4 * (area - inside)


def _shared(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _around(x: float, y: float, half: float) -> Box:
    return x - half, y - half, x + half, y + half


def _along(corners: Sequence[tuple[float, float]]) -> list[Box]:
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(corners):
        steps = max(1, int(math.hypot(x1 - x0, y1 - y0) / 6))
        boxes += [_around(x0 + (x1 - x0) * n / steps, y0 + (y1 - y0) * n / steps, 1.5) for n in range(1, steps)]
    return boxes
