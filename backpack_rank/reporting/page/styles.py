"""How series and groups look: colours that colour-blind readers can tell apart, and a shape for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backpack_rank.reporting.page.charts import Series

# After Okabe and Ito, darkened until each has a contrast of 3:1 on white; the style sheet has the same as --c0 ....
COLOURS = ("#0072b2", "#b94e00", "#00795a", "#a3477f", "#8a6500", "#4b4fb5")
GROUP_COLOURS = ("#0072b2", "#b94e00", "#00795a", "#a3477f")
REFERENCE_COLOUR = "#5b6270"
NEUTRAL_COLOUR = "#a9b0bb"
MARKERS = ("o", "s", "D", "^", "v", "P")
"""Matplotlib's names of :data:`SHAPES`."""
SHAPES = (
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "M-4-4h8v8h-8z",
    "M0-5.5 5.5 0 0 5.5-5.5 0z",
    "M0-5.4 5.2 4h-10.4z",
    "M0 5.4 5.2-4h-10.4z",
    "M-1.7-5h3.4v3.3H5v3.4H1.7V5h-3.4V1.7H-5v-3.4h3.3z",
)
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True)
class Style:
    """Look of a series.

    Attributes:
        css: class that sets its colour.
        number: index into :data:`SHAPES` and :data:`MARKERS`.
        dash: dash pattern of its line, empty for a solid one.
        colour: for pictures on white.
    """

    css: str
    number: int
    dash: str
    colour: str


def styles(series: Sequence[Series]) -> list[Style]:
    """One style for each series; references are grey and dashed, further rounds of colours get other dashes."""
    found: list[Style] = []
    counts = [0, 0]
    for one in series:
        number = counts[one.reference]
        counts[one.reference] += 1
        turn, colour = divmod(number, len(COLOURS))
        if one.reference:
            shape = len(SHAPES) - 1 - number % len(SHAPES)
            found.append(Style("ref", shape, _DASHES[(number + 1) % len(_DASHES)] or "4 4", REFERENCE_COLOUR))
        else:
            found.append(Style(f"c{colour}", (colour + turn) % len(SHAPES), _DASHES[turn % 4], COLOURS[colour]))
    return found
