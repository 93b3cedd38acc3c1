"""Heat maps, position curves and rows of dots: what is written, and that pictures show it."""

from __future__ import annotations

import csv
import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from position_reports import position_report

from backpack_rank.evaluation.results import Estimate
from backpack_rank.position.lists.position_curves import (
    PositionCurve,
    PositionReport,
    SystemPositions,
    position_chart,
    write_position_curves,
)
from backpack_rank.position.lists.position_matrices import write_heat_map
from backpack_rank.reporting.charts import DotRow, dots, heat_maps
from backpack_rank.reporting.vega import save_chart


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open()))


def texts(path: Path) -> set[str]:
    """Words of an SVG file."""
    return {
        element.text or ""
        for element in ElementTree.parse(path).iter()
        if element.tag.endswith("text")
    }


# Matrices


def test_a_matrix_is_written_with_all_digits_and_positions_from_one(tmp_path: Path):
    matrix = np.array([[0.1, 0.2, math.nan], [1 / 3, 0.4, 0.5]])
    labels = {"rows": "in", "columns": "out", "value": "share", "centre": 0.25}
    paths = write_heat_map(tmp_path, "m", matrix, title="T", **labels)
    assert [path.name for path in paths] == ["m.json", "m.csv", "m.png", "m.svg"]
    written = json.loads(paths[0].read_text())
    assert written["panels"] == {"": [[0.1, 0.2, None], [1 / 3, 0.4, 0.5]]}
    assert labels.items() <= written.items()
    lines = rows(paths[1])
    assert lines[0] == ["panel", "row", "column", "value"]
    assert ["", "2", "1", repr(1 / 3)] in lines
    assert len(lines) == 6  # the cell without a value has no line
    assert {"T", "in", "out", "share", "0.10", "0.33"} <= texts(paths[3])


def test_several_matrices_are_panels_of_one_picture_with_one_scale(tmp_path: Path):
    matrices = {"before": np.eye(3), "after": np.full((3, 3), 1 / 3)}
    paths = write_heat_map(tmp_path, "m", matrices, centre=1 / 3)
    assert {"before", "after"} <= texts(paths[3])
    assert {line[0] for line in rows(paths[1])[1:]} == {"before", "after"}
    lists = {name: matrix.tolist() for name, matrix in matrices.items()}
    spec = heat_maps(lists, "", "", "", 1 / 3, True)
    first, second = (panel["layer"][1]["encoding"]["color"]["scale"] for panel in spec["concat"])
    assert first == second
    # What no bias would give is white, more of it is warm, less is cold.
    assert dict(zip(first["range"], first["domain"], strict=True)) == pytest.approx(
        {"#0072b2": 0.0, "#ffffff": 1 / 3, "#b94e00": 1.0}, abs=1e-5
    )


@pytest.mark.parametrize(
    ("matrix", "centre"),
    [
        (np.zeros((3, 3)), None),
        (np.full((2, 2), 0.5), 0.5),
        (np.array([[-1.0, 2.0]]), 0.0),
        (np.zeros((1, 1)), 0.0),
    ],
)
def test_matrices_of_one_value_and_negative_ones_are_drawn(tmp_path, matrix, centre):
    assert write_heat_map(tmp_path, "m", matrix, centre=centre)[2].stat().st_size > 5000


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ({}, "no matrix"),
        ({"x": np.zeros(3)}, "'x' must be of rows and columns"),
        (np.full((2, 2), math.nan), "no finite cell"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, matrix, message: str):
    with pytest.raises(ValueError, match=message):
        write_heat_map(tmp_path, "m", matrix)
    assert list(tmp_path.iterdir()) == []


# Position curves


TWO = (("plain", (0.9, 0.7, 0.5)), ("remedy", (0.8, 0.8, 0.75)))


def test_a_curve_has_mean_range_and_variance_over_positions():
    curve = PositionCurve("MRR", (0.9, 0.7, 0.5), (0.0,) * 3)
    assert curve.mean == pytest.approx(0.7)
    assert curve.range == pytest.approx(0.4)
    assert curve.variance == pytest.approx((0.04 + 0 + 0.04) / 3)


def test_curves_are_written_and_drawn_with_mean_and_range(tmp_path: Path):
    paths = write_position_curves(tmp_path, position_report(*TWO))
    assert {path.stem for path in paths} == {"controlled_positions"}
    assert [path.suffix for path in paths] == [".json", ".csv", ".png", ".svg"]
    written = json.loads(paths[0].read_text())
    assert written["systems"][1]["curves"][0]["range"] == pytest.approx(0.05)
    assert written["systems"][0]["curves"][1]["values"] == [0.5, 0.7, 0.9]
    assert written["systems"][1]["passes"] == 120
    lines = rows(paths[1])
    assert lines[0] == ["system", "measure", "position", "value", "standard_error"]
    assert ["plain", "nDCG@10", "3", "0.5", "0.01"] in lines
    assert len(lines) == 1 + 2 * 2 * 3
    expected = {"plain: mean 0.700, range 0.400", "remedy: mean 0.783, range 0.050"}
    assert expected | {"wikiqa/test, 20 lists"} <= texts(paths[3])


def test_a_line_stands_at_its_values():
    spec = position_chart(position_report(*TWO))
    panel = spec["concat"][0]["layer"]
    path = next(layer for layer in panel if layer["mark"]["type"] == "line")
    rows = spec["datasets"][path["data"]["name"]]
    assert [row["x"] for row in rows] == [1, 2, 3, 1, 2, 3]
    assert [row["y"] for row in rows] == [0.9, 0.7, 0.5, 0.8, 0.8, 0.75]
    assert path["encoding"]["y"]["title"] == "nDCG@10"


def test_one_list_has_no_standard_error(tmp_path: Path):
    curve = PositionCurve("MRR", (1.0, 0.5), (math.nan, math.nan))
    system = SystemPositions("plain", (curve,), 2)
    paths = write_position_curves(tmp_path, PositionReport("c", 1, (system,)), "one")
    assert json.loads(paths[0].read_text())["systems"][0]["curves"][0]["errors"] == [None, None]
    assert rows(paths[1])[1] == ["plain", "MRR", "1", "1.0", ""]


def test_systems_that_do_not_compare_are_refused():
    (system,) = position_report(TWO[0]).systems
    (shorter,) = position_report(("short", (0.1, 0.2))).systems
    with pytest.raises(ValueError, match="short has other positions than plain"):
        PositionReport("c", 1, (system, shorter))
    fewer = SystemPositions("fewer", system.curves[:1], 1)
    with pytest.raises(ValueError, match="fewer has other measures than plain"):
        PositionReport("c", 1, (system, fewer))
    with pytest.raises(ValueError, match="needs a system"):
        PositionReport("c", 1, ())
    with pytest.raises(KeyError, match="there are: nDCG@10, MRR"):
        system.curve("P@5")


# Rows of dots


def test_dots_stand_at_their_means_and_the_line_spans_them(tmp_path: Path):
    interval = Estimate(0.5, 0.5, 0.4, 0.6)
    panels = {
        "dl19": [
            DotRow("BM25", {"before": interval, "after": Estimate(0.7, 0.7)}),
            DotRow("TAS-B", {"after": interval}),
        ],
        "dl20": [DotRow("BM25", {"before": Estimate(0.45, 0.45)})],
    }
    spec = dots(panels, "nDCG@10")
    png, svg = save_chart(tmp_path / "stages", spec, "First stages")
    assert png.stat().st_size > 5000
    expected = {"dl19", "dl20", "BM25", "TAS-B", "before", "after", "nDCG@10", "First stages"}
    assert expected <= texts(svg)
    first, second = spec["vconcat"]
    rows = spec["datasets"][first["layer"][2]["data"]["name"]]
    values = {(row["dot"], row["value"]) for row in rows}
    assert values == {("before", 0.5), ("after", 0.7), ("after", 0.5)}
    assert second["layer"][2]["encoding"]["y"]["sort"] == ["BM25"]
    with pytest.raises(ValueError, match="no row"):
        dots({}, "x")
    with pytest.raises(ValueError, match="row 'BM25' has no dot"):
        dots({"": [DotRow("BM25", {})]}, "x")
