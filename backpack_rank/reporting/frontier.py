"""Effectiveness against bias of many methods: one table, and a picture for each measure of bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backpack_rank.evaluation.frontier import (
    Curve,
    average_of,
    beaten_by,
    difference_interval,
    on_the_frontier,
)
from backpack_rank.evaluation.measure import Direction
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.significance import (
    SIGNIFICANCE,
    direction_of,
    pairwise_against,
)
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.vega import (
    COLOURS,
    GREY,
    INK,
    PALE,
    Spec,
    beside,
    channel,
    layer,
    padded,
    vega_lite,
)
from backpack_rank.reporting.wording import AS_IT_IS

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "triangle-right")
_COLUMNS = (
    *(
        "collection",
        "method",
        "ranker",
        "alpha",
        "seeds",
        "measure",
        "queries",
        "mean",
        "low",
        "high",
    ),
    *("lowest_seed", "highest_seed", "p_holm_to_reference", "beaten_by"),
)


def frontier_table(
    curves: Mapping[str, Sequence[Curve]],
    effectiveness: str,
    biases: Sequence[str],
    margin: float,
) -> Table:
    """Read every method at the smallest alpha that was measured of it.

    The CSV file has every alpha too, with intervals, seeds and tests.

    Args:
        curves: of each collection; the first curve is what the others are tested against.
        effectiveness, biases: measures; one that a collection lacks is a dash.
        margin: see :func:`~backpack_rank.evaluation.frontier.beaten_by`.
    """
    sections = []
    records: list[tuple[Any, ...]] = []
    notes = []
    for collection, of_collection in curves.items():
        systems = {curve.method: curve.values() for curve in of_collection}
        reference = of_collection[0].method
        p_values = {}
        cells: dict[str, list[Cell]] = {method: [] for method in systems}
        beaten: dict[str, Mapping[str, Sequence[str]]] = {}
        for measure in (effectiveness, *biases):
            having = {name: values for name, values in systems.items() if measure in values.values}
            p_values[measure] = _p_values(reference, having, measure)
            best: set[str] = set()
            if measure != effectiveness:
                best = on_the_frontier(of_collection, effectiveness, measure)
                beaten[measure] = beaten_by(of_collection, effectiveness, measure, margin)
            for method, values in systems.items():
                cells[method].append(
                    _cell(
                        measure,
                        values,
                        bold=method in best,
                        differs=p_values[measure].get(method, 1.0) < SIGNIFICANCE,
                        is_beaten=bool(beaten.get(measure, {}).get(method)),
                    )
                )
        rows = []
        for curve in of_collection:
            labels = (curve.method, curve.ranker, f"{curve.alphas[-1]:g}")
            rows.append(Row(labels, cells[curve.method]))
            records += _records(collection, curve, (effectiveness, *biases), p_values, beaten)
        sections.append(Section(collection, rows))
        seeds = ", ".join(map(str, of_collection[0].seeds))
        numbers = []
        for measure in (effectiveness, *biases):
            if measure in systems[reference].values:
                numbers.append(f"{measure} {len(systems[reference].values[measure])}")
        notes.append(
            f"{collection}: means over seeds {seeds}; tested against {reference}. Queries of which "
            f"every method has a value: {', '.join(numbers)}."
        )
    notes += [
        "Each method at its smallest alpha. Bold: no other method is better in both "
        f"{effectiveness} and this measure.",
        "*: differs from the ranker as it is (paired randomisation test over queries, Holm's "
        f"correction over the methods, p < {SIGNIFICANCE:g}). Seeds are no part of the test.",
        "x: beaten by another method, which has significantly less of this bias (Holm's correction "
        f"over all pairs) and, with 95% confidence, no more than {100 * margin:g}% less "
        f"{effectiveness}; or which is significantly more effective without more bias. The CSV "
        "file names it.",
    ]
    return Table(
        name="frontier",
        title="Effectiveness against bias",
        labels=("method", "ranker", "alpha"),
        groups=[Group("", (effectiveness, *biases))],
        sections=sections,
        notes=notes,
        columns=_COLUMNS,
        records=records,
    )


def frontier_chart(
    curves: Mapping[str, Sequence[Curve]],
    effectiveness: str,
    bias: str,
    kinds: Mapping[str, str],
) -> Spec:
    """Draw effectiveness against a measure of bias, a panel for each collection.

    A curve leads from the ranker as it is to the smallest alpha, which has its bars: upright the
    95% interval over queries of the difference to the first curve's ranker, across the lowest and
    the highest seed.

    Args:
        curves: of each collection; those without the measure have no panel.
        effectiveness, bias: measures.
        kinds: what each method is: methods of one kind have one colour; controls are grey.
    """
    rankers: dict[str, None] = {}
    methods: set[str] = set()
    panels: dict[str, Spec] = {}
    for of_collection in curves.values():
        rankers |= dict.fromkeys(curve.ranker for curve in of_collection)
        methods |= {curve.method for curve in of_collection}
    # The legend names what is drawn alone.
    kinds = {method: kind for method, kind in kinds.items() if method in methods}
    for collection, of_collection in curves.items():
        shown = [curve for curve in of_collection if bias in curve.values().values]
        if shown:
            panel = _Panel(effectiveness, bias, kinds, list(rankers))
            # One legend serves all panels.
            panels[collection] = panel.spec(shown, legend=not panels)
    return beside(panels, columns=3, width=330)


def is_measured(curves: Mapping[str, Sequence[Curve]], measure: str) -> bool:
    """Whether the curves of any collection have a measure."""
    for of_collection in curves.values():
        if any(measure in curve.values().values for curve in of_collection):
            return True
    return False


def _p_values(reference: str, systems: Mapping[str, PerQuery], measure: str) -> dict[str, float]:
    """Of the difference to the reference, corrected, by method."""
    if reference not in systems:
        return {}
    average = direction_of(measure).average
    p_values = {}
    for test in pairwise_against(reference, systems, [measure]):
        if test.average == average:
            p_values[test.first] = test.p_holm
    return p_values


def _cell(measure: str, values: PerQuery, *, bold: bool, differs: bool, is_beaten: bool) -> Cell:
    if measure not in values.values:
        return Cell()
    marks = ("*" if differs else "") + ("x" if is_beaten else "")
    return Cell(number(values.mean(measure)), bold=bold, raised=marks)


def _records(
    collection: str,
    curve: Curve,
    measures: Sequence[str],
    p_values: Mapping[str, Mapping[str, float]],
    beaten: Mapping[str, Mapping[str, Sequence[str]]],
) -> list[tuple[Any, ...]]:
    """A line for each alpha and measure; tests are of the smallest alpha."""
    lines: list[tuple[Any, ...]] = []
    for place, alpha in enumerate(curve.alphas):
        values = curve.values(place)
        is_last = place == len(curve.alphas) - 1
        for measure in measures:
            if measure not in values.values:
                continue
            line = [collection, curve.method, curve.ranker, alpha, len(curve.seeds), measure]
            line += [len(values.values[measure]), values.mean(measure)]
            line += [*(values.interval(measure) or (None, None))]
            line += curve.spread(measure, place)
            p_value, others = None, ""
            if is_last:
                p_value = p_values[measure].get(curve.method)
                others = " ".join(beaten.get(measure, {}).get(curve.method, ()))
            lines.append((*line, p_value, others))
    return lines


def _colours(kinds: Sequence[str]) -> list[str]:
    """A colour for each kind; controls are grey, and rankers as they are black."""
    colours = []
    place = 0
    for kind in kinds:
        if kind == AS_IT_IS:
            colours.append(INK)
        elif kind == "control":
            colours.append(PALE)
        else:
            colours.append(COLOURS[place % len(COLOURS)])
            place += 1
    return colours


class _Panel:
    """One collection: a curve for each method."""

    def __init__(
        self, effectiveness: str, bias: str, kinds: Mapping[str, str], rankers: Sequence[str]
    ) -> None:
        self.effectiveness = effectiveness
        self.bias = bias
        self.kinds = kinds
        self.rankers = rankers

    def spec(self, curves: Sequence[Curve], legend: bool) -> Spec:
        """The chart, without a width."""
        reference = curves[0].values()
        centre = reference.mean(self.effectiveness)
        rows: list[dict[str, Any]] = []
        last: list[dict[str, Any]] = []
        upright: list[dict[str, Any]] = []
        across: list[dict[str, Any]] = []
        for curve in curves:
            places = self._rows(curve)
            rows += places
            last.append(places[-1])
            low, high = difference_interval(curve.values(), reference, self.effectiveness)
            at_end = places[-1]
            if np.isnan(low):  # too few queries for an interval: no bar
                upright.append({**at_end, "y2": at_end["y"]})
            else:
                upright.append({**at_end, "y": centre + low, "y2": centre + high})
            ends = [self._closeness(end) for end in curve.spread(self.bias)]
            across.append({**at_end, "x": min(ends), "x2": max(ends)})

        # At least 2% to either side: a hundredth of nDCG is not to look like a cliff.
        # What has lost more than a quarter is cut off: it would make all others one point.
        kept = [row for row in rows if row["y"] >= 0.75 * centre]
        heights = [row["y"] for row in kept] + [0.98 * centre, 1.02 * centre]
        x_scale = _scale(padded([row["x"] for row in kept]))
        y_scale = _scale(padded(heights))
        at = {
            "x": channel("x:Q", title=self._title(), scale=x_scale, axis={"tickCount": 4}),
            "y": channel("y:Q", title=self.effectiveness, scale=y_scale, axis={"tickCount": 5}),
        }
        colour, shape = self._looks(legend)
        bar = {"strokeWidth": 1.5, "opacity": 0.3, "clip": True}
        path = {"strokeWidth": 2, "opacity": 0.8, "clip": True}
        dot = {"filled": True, "opacity": 1, "clip": True}
        ring = {"size": 170, "filled": False, "stroke": GREY, "strokeWidth": 1.5}
        order = channel("alpha:Q", sort="descending")
        tooltip = [channel("method:N"), channel("alpha:Q"), channel("x:Q"), channel("y:Q")]
        lines = {"color": colour, "detail": channel("method:N"), "order": order}
        ends_of_curves = {"color": colour, "shape": shape, "tooltip": tooltip}
        layers = [
            layer(upright, "rule", bar, **at, y2=channel("y2"), color=colour),
            layer(across, "rule", bar, **at, x2=channel("x2"), color=colour),
            layer(rows, "line", path, **at, **lines),
            layer(rows, "point", {"size": 18, **dot}, **at, color=colour),
            layer(last, "point", {"size": 90, **dot}, **at, **ends_of_curves),
            layer(rows[:1], "point", ring, **at),
        ]
        return vega_lite({"layer": layers, "height": 300})

    def _rows(self, curve: Curve) -> list[dict[str, Any]]:
        """Where the curve is at each alpha, the smallest one last."""
        rows = []
        for place, alpha in enumerate(curve.alphas):
            values = curve.values(place)
            row: dict[str, Any] = {"method": curve.method, "ranker": curve.ranker, "alpha": alpha}
            row["kind"] = self.kinds[curve.method]
            row["x"] = average_of(self.bias, values)
            row["y"] = values.mean(self.effectiveness)
            rows.append(row)
        return rows

    def _title(self) -> str:
        """The measure of bias, and what is better where that does not stand there."""
        measure = measure_of(self.bias)
        if measure.signed or measure.direction is Direction.NONE:
            return measure.axis
        return f"{measure.axis} ({measure.direction.value} is better)"

    def _closeness(self, mean: float) -> float:
        return abs(mean) if direction_of(self.bias) == "zero" else mean

    def _looks(self, legend: bool) -> tuple[Spec, Spec]:
        """Channels of colour, by kind, and of shape, by ranker."""
        kinds = list(dict.fromkeys(self.kinds.values()))
        shapes = [_SHAPES[place % len(_SHAPES)] for place in range(len(self.rankers))]
        key = {"columns": 1, "orient": "left"} if legend else None
        colours = {"domain": kinds, "range": _colours(kinds)}
        forms = {"domain": list(self.rankers), "range": shapes}
        return (
            channel("kind:N", scale=colours, sort=kinds, legend=key),
            channel("ranker:N", scale=forms, sort=list(self.rankers), legend=key),
        )


def _scale(ends: tuple[float, float]) -> Spec:
    return {"domain": list(ends), "nice": False, "zero": False}
