"""Charts: valid Vega-Lite, points where the numbers say, files that are equal for equal charts."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import altair
import pytest
from page_example import row

from backpack_rank.evaluation.results import Estimate, Summary, SystemResult
from backpack_rank.reporting import charts, vega
from backpack_rank.reporting.charts import DotRow, Line, lines, shares
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.tradeoff import tradeoff_of, tradeoff_plot
from backpack_rank.reporting.tradeoff_chart import Position, frame
from backpack_rank.reporting.vega import COLOURS, GREY, Spec, save_chart


def sweep(alphas: list[float]) -> list[SystemResult]:
    dial = [
        row(f"alpha={alpha}", alpha, 0.4 - 0.03 * (1 - alpha) ** 2, 0.04 + 0.02 * alpha**2)
        for alpha in alphas
    ]
    return [row("BM25", None, 0.37, 0.055), *dial]


def drawn(spec: Spec, mark: str) -> list[list[dict[str, Any]]]:
    """Rows of every layer with a mark."""
    layers = [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]
    return [spec["datasets"][layer["data"]["name"]] for layer in layers]


def texts(svg: Path) -> list[str]:
    return [
        element.text or ""
        for element in ElementTree.parse(svg).iter()
        if element.tag.endswith("text")
    ]


def example(**options: Any) -> Spec:
    tradeoff = tradeoff_of(sweep([1.0, 0.5, 0.0]), "nDCG@10", "RaB(tf)@10", **options)
    assert tradeoff is not None
    return tradeoff[0]


KINDS: dict[str, Spec] = {
    "dial": example(),
    "dial with control": example(control=("uniform", sweep([1.0, 0.3]))),
    "lines": lines(
        [Line("a", ["5", "10"], [1, 2], [0, 1], [2, 3]), Line("b", ["5", "10"], [1, math.nan])],
        "x",
        "y",
        zero=True,
    ),
    "band": lines(
        [Line("a", [0.0, 1.0], [1, 2], [0, 1], [2, 3], grey=True)],
        "x",
        "y",
        band=True,
        legend="right",
    ),
    "shares": shares({"0": (0.5, 0.3, 0.2)}, ("a", "b", "neither"), "alpha"),
    "dots": charts.dots(
        {"h": [DotRow("r", {"a": Estimate(1, 1, 0, 2), "b": Estimate(2, 2)})]}, "m"
    ),
    "heat maps": charts.heat_maps(
        {"one": [[0.1, math.nan], [0.3, 0.4]], "two": [[0, 1], [1, 0]]}, "x", "y", "v", 0.25, True
    ),
    "histograms": charts.histograms(
        {"c": [("original", (0.6, 0.4)), ("rotated", (0.5, 0.5))]}, "x", "y", "uniform"
    ),
    "boxes": charts.boxes({"t": [("0", (1.0, 2.0), 3.0)]}, "x", {"t": "y"}, ("run", "aggregate")),
    "beside": vega.beside({"a": example(), "b": example()}, 2),
}
DRAWN = "dial with control"
"""The kind that is drawn with every change. To draw the others takes long."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_chart_is_valid(kind: str):
    altair.Chart.from_dict({"$schema": altair.SCHEMA_URL, **KINDS[kind]}, validate=True)


@pytest.mark.parametrize(
    "kind",
    [kind if kind == DRAWN else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
)
def test_every_kind_of_chart_can_be_drawn(kind: str, tmp_path: Path):
    png, svg = save_chart(tmp_path / "chart0.5", KINDS[kind], "A title")
    assert (png.name, svg.name) == ("chart0.5.png", "chart0.5.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "A title" in texts(svg)


def test_equal_charts_give_equal_files(tmp_path: Path):
    first, second = (save_chart(tmp_path / name, example()) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_points_lie_at_signed_bias_and_effectiveness_with_only_the_ends_labelled():
    spec = example()
    dial, base, references = drawn(spec, "point")
    assert [(point["x"], point["y"]) for point in dial] == [
        (0.06, 0.4),
        (0.045, 0.3925),
        (0.04, 0.37),
    ]
    assert [(point["x"], point["alpha"]) for point in base] == [(0.06, 1)]
    assert [point["name"] for point in references] == ["BM25"]
    assert [point["label"] for (point,) in drawn(spec, "text")] == ["alpha 1", "alpha 0"]
    assert dial[1]["told0"] == "0.0450 [0.0350, 0.0550]"


def test_labels_of_the_two_ends_lie_on_opposite_sides():
    sides = [layer["mark"]["dy"] for layer in example()["layer"] if layer["mark"]["type"] == "text"]
    assert sides[0] < 0 < sides[1]
    up = [row("a", 1.0, 0.4, 0.05), row("b", 0.0, 0.41, 0.05)]
    tradeoff = tradeoff_of(up, "nDCG@10", "RaB(tf)@10")
    assert tradeoff is not None
    sides = [
        layer["mark"]["dy"] for layer in tradeoff[0]["layer"] if layer["mark"]["type"] == "text"
    ]
    assert sides[1] < 0 < sides[0]


def test_the_control_is_grey_and_lies_below():
    spec = example(name="paired", control=("uniform", sweep([1.0, 0.3])))
    scale = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "line")["encoding"][
        "color"
    ]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "paired": COLOURS[0],
        "uniform": GREY,
    }
    assert drawn(spec, "line")[0][0]["line"] == "uniform"


def test_a_position_that_ranks_nothing_stretches_no_axis_and_is_told():
    rows = [row("a", 1.0, 0.4, 0.05), row("b", 0.5, 0.39, 0.04), row("c", 0.0, 0.1, 3.0)]
    tradeoff = tradeoff_of(rows, "nDCG@10", "RaB(tf)@10")
    assert tradeoff is not None
    layer = tradeoff[0]["layer"][-1]["encoding"]
    assert layer["x"]["scale"]["domain"][1] < 0.1
    assert layer["y"]["scale"]["domain"][0] > 0.3
    assert [entry.alpha for entry in tradeoff[1]] == [0.0]


def test_the_axes_hold_the_interval_of_the_ranker_as_it_is_and_zero():
    base = Position("as it is", 1.0, 0.2, 0.5, (0.1, 0.3), (0.4, 0.6))
    (left, right), (low, high) = frame(base, [base, Position("b", 0.0, 0.19, 0.5)])
    assert left < 0 < 0.3 < right
    assert low < 0.4 < 0.6 < high


def test_a_grey_line_stretches_no_axis_where_that_is_asked_for():
    spec = lines(
        [Line("a", [0, 1], [0.7, 0.71]), Line("b", [0, 1], [0.1, 0.7], grey=True)],
        "x",
        "y",
        framed=True,
    )
    low, high = spec["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    assert 0.6 < low < 0.7 < 0.71 < high < 0.8


def test_more_lines_than_colours_are_told_apart():
    spec = lines([Line(f"s{n}", [0.0, 1.0], [0.0, 1.0]) for n in range(12)], "x", "y")
    layers = {layer["mark"]["type"]: layer["encoding"] for layer in spec["layer"]}
    looks = zip(
        *(layers["point"][part]["scale"]["range"] for part in ("color", "shape")), strict=True
    )
    assert len(set(looks)) == 12


@pytest.mark.slow
def test_the_trade_off_has_four_panels_and_takes_the_place_of_an_ending(tmp_path: Path):
    written = tradeoff_plot(tmp_path / "plot.png", sweep([1.0, 0.0]))
    assert written == (tmp_path / "plot.png", tmp_path / "plot.svg")
    labels = texts(written[1])
    assert {"RaB (TF)", "ARaB (TF)", "RaB (Boolean)", "ARaB (Boolean)"} <= set(labels)
    assert labels.count("alpha 0") == 4
    both = tradeoff_plot(
        tmp_path / "both", sweep([1.0, 0.0]), control=("uniform", sweep([1.0, 0.3])), name="paired"
    )
    assert [texts(both[1]).count(name) for name in ("paired", "uniform")] == [
        4,
        4,
    ]  # in the legends
    assert (
        tradeoff_plot(tmp_path / "alpha0.5", [row("BM25", None, 0.3, 0.1)])[0]
        == tmp_path / "alpha0.5.png"
    )


def test_a_missing_measure_is_an_error_that_names_it_and_writes_nothing(tmp_path: Path):
    rows = [SystemResult("BM25", None, Summary({"nDCG@10": Estimate(0.4, 0.4)}, 3))]
    with pytest.raises(ValueError, match=r"needs RaB\(tf\)@10; BM25 has no value"):
        tradeoff_plot(tmp_path / "plot", rows)
    with pytest.raises(ValueError, match=r"needs MRR@10; BM25"):
        tradeoff_plot(tmp_path / "plot", sweep([1.0]), measure="MRR@10")
    with pytest.raises(ValueError, match="no system to draw"):
        tradeoff_plot(tmp_path / "plot", [])
    assert list(tmp_path.iterdir()) == []


def test_a_setting_has_a_policy_and_the_rest():
    setting = Setting.of("policy=uniform,data=dl19,+model.layers=[1,2],policy.k=3")
    assert (setting.policy, setting.rest, setting.is_control) == (
        "uniform k=3",
        "data=dl19,model.layers=[1,2]",
        True,
    )
    assert Setting.of("").title == ""
    assert not Setting.of("policy=paired_tokens").is_control
