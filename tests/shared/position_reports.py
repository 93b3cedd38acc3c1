"""Reports on controlled positions, from small numbers that can be followed by hand."""

from __future__ import annotations

from backpack_rank.position.lists.position_curves import (
    PositionCurve,
    PositionReport,
    SystemPositions,
)


def position_report(
    *systems: tuple[str, tuple[float, ...]], seconds: float | None = 3.0
) -> PositionReport:
    """A report of systems by their nDCG@10 at each position; their MRR is that from back to front.

    The first takes 60 passes, the second twice as many, and so on.
    """
    made = []
    for number, (label, values) in enumerate(systems, start=1):
        errors = (0.01,) * len(values)
        curves = (
            PositionCurve("nDCG@10", values, errors),
            PositionCurve("MRR", values[::-1], errors),
        )
        made.append(SystemPositions(label, curves, 60, 60 * number, seconds))
    return PositionReport("wikiqa/test", 20, tuple(made), ("A note.",))
