"""The report on answer positions: its files, its table, its picture."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from read_back import csv_rows
from rich.console import Console

from backpack_rank.position.passages.answer_position_report import (
    CollectionPositions,
    PositionHistogram,
    positions_chart,
    print_answer_positions,
    write_answer_positions,
)

ORIGINAL = PositionHistogram("original", 40, 0, 0.375, 0.25, (16, 12, 8, 4))
ROTATED = PositionHistogram("rotated (seed 0)", 36, 4, 0.49, 0.0312, (9, 9, 9, 9))
NONE = PositionHistogram("original", 0, 0, None, None, (0, 0, 0, 0))


@pytest.fixture
def collections() -> list[CollectionPositions]:
    return [
        CollectionPositions("squad", 44, 4, 3, 7, "offsets", (ORIGINAL, ROTATED)),
        CollectionPositions("empty", 5, 5, 0, 0, "all", (NONE, NONE)),
    ]


def test_files_hold_every_bin(collections: list[CollectionPositions], tmp_path: Path) -> None:
    paths = write_answer_positions(tmp_path, collections)
    assert {path.stem for path in paths} == {"answer_positions"}
    assert [path.suffix for path in paths] == [".json", ".csv", ".png", ".svg"]
    payload = json.loads(paths[0].read_text())
    assert payload["format"] == "backpack_rank answer positions 1"
    assert payload["collections"][0]["histograms"][1] == {
        "passages": "rotated (seed 0)",
        "matches": 36,
        "cut": 4,
        "mean": 0.49,
        "uniform_distance": 0.0312,
        "histogram": [9, 9, 9, 9],
    }
    assert payload["collections"][1]["histograms"][0]["mean"] is None
    rows = csv_rows(paths[1])
    assert len(rows) == 16
    second = {"collection": "squad", "passages": "original", "from": "0.25", "to": "0.5"}
    assert rows[1] == second | {"matches": "12", "share": "0.3"}
    assert paths[2].read_bytes()[:4] == b"\x89PNG"


def test_the_table_has_shares_distance_and_ends(collections: list[CollectionPositions]) -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    print_answer_positions(collections, console)
    shown = console.file.getvalue()
    first, second, third = (
        next(line for line in shown.splitlines() if word in line)
        for word in ("squad  ", "rotated  ", "empty")
    )
    # First tenth: 0.4 of the first of four bins, which holds 16 of 40.
    for cell in ("40", " 4 ", "0.375", "0.250", "16.0%", "4.0%"):
        assert cell in first
    for cell in ("36", " 4 ", "0.490", "0.031", "10.0%"):
        assert cell in second
    assert third.count(" - ") == 4
    assert "Passages: rotated (seed 0)." in shown
    assert "squad: 7 places are the likeliest of several occurrences." in shown
    assert "Answers were searched" in shown


def test_the_picture_has_a_panel_for_each_collection(collections: list[CollectionPositions]):
    spec = positions_chart(collections)
    assert [panel["title"] for panel in spec["concat"]] == ["squad", "empty"]
    data = [spec["datasets"][layer["data"]["name"]] for layer in spec["concat"][0]["layer"]]
    shares = [[row["share"] for row in rows] for rows in data]
    assert shares == [[0.4, 0.3, 0.2, 0.1], [0.25] * 5, [0.25]]
    scale = spec["concat"][1]["layer"][0]["encoding"]["y"]["scale"]
    assert scale["domain"] == pytest.approx([0, 0.42])  # all panels share it
    colours = spec["concat"][0]["layer"][0]["encoding"]["color"]["scale"]
    assert colours["domain"] == ["original", "rotated", "uniform"]
    with pytest.raises(ValueError, match="no collection to draw"):
        positions_chart([])
