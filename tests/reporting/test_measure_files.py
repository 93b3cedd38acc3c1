"""Files of measures: what they hold, that they read back, and that they are whole or absent."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path

import pytest
from read_back import csv_rows
from shown import sample_report as sample

from backpack_rank.evaluation.results import Estimate, Report, Summary, SystemResult
from backpack_rank.reporting.measure_files import (
    read_json,
    read_per_query,
    write_csv,
    write_json,
    write_per_query,
    write_report,
)

THIRD = 1 / 3


def test_json_has_the_documented_layout_and_all_digits(tmp_path: Path):
    write_json(tmp_path / "measures.json", sample())
    payload = json.loads((tmp_path / "measures.json").read_text("utf-8"))
    assert payload["format"] == "backpack_rank measures 1"
    assert payload["about"]["sign"] == "male_minus_female"
    first, second = payload["systems"]
    assert (first["label"], first["alpha"], second["alpha"]) == ("BM25", None, 0.5)
    assert first["effectiveness"]["figures"]["MRR@10"] == {
        "mean": THIRD,
        "absolute_mean": THIRD,
        "mean_absolute": THIRD,
        "low": 0.3,
        "high": 0.4,
        "absolute_mean_low": 0.3,
        "absolute_mean_high": 0.4,
        "mean_absolute_low": 0.31,
        "mean_absolute_high": 0.41,
    }
    assert [first["bias"][key] for key in ("queries", "left_out", "missing")] == [1765, 2, 0]
    assert first["bias"]["figures"]["RaB(tf)@40"]["mean"] == -0.04
    assert first["bias"]["figures"]["RaB(tf)@40"]["absolute_mean"] == 0.04
    assert read_json(tmp_path / "measures.json") == sample()


def test_numbers_that_are_not_finite_become_null_and_empty_cells(tmp_path: Path):
    report = Report(
        (SystemResult("run", None, Summary({"MRR@10": Estimate(math.nan, math.nan)}, 0)),)
    )
    write_report(tmp_path, report)
    text = (tmp_path / "measures.json").read_text("utf-8")
    assert "NaN" not in text
    assert math.isnan(
        read_json(tmp_path / "measures.json").rows[0].effectiveness.figures["MRR@10"].mean
    )
    line = (tmp_path / "measures.csv").read_text("utf-8").splitlines()[1]
    assert line == "run,,effectiveness,MRR@10" + "," * 10 + "0,0,0"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "other"}', '{"format": "backpack_rank measures 1"}']
)
def test_a_damaged_file_of_measures_is_named(tmp_path: Path, text: str):
    path = tmp_path / "measures.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"measures\.json is no file of measures"):
        read_json(path)


def test_csv_has_one_line_per_system_and_measure_with_all_digits(tmp_path: Path):
    write_csv(tmp_path / "measures.csv", sample())
    lines = csv_rows(tmp_path / "measures.csv")
    assert len(lines) == 2 * (4 + 30)
    assert lines[0]["system"] == "BM25"
    assert lines[0]["alpha"] == ""
    assert float(lines[0]["mean"]) == THIRD
    of_alpha = {"system": "alpha=0.5", "measure": "ARaB(tf-paper)@40"}
    (chosen,) = csv_rows(tmp_path / "measures.csv", **of_alpha)
    assert (chosen["kind"], float(chosen["mean"]), chosen["queries"]) == (
        "bias",
        0.01 - 0.04,
        "1765",
    )
    assert float(chosen["absolute_mean"]) == pytest.approx(0.03)


def test_per_query_values_are_written_with_all_digits(tmp_path: Path):
    path = tmp_path / "per_query.csv.gz"
    systems = [
        ("BM25", {"MRR@10": {"q1": THIRD, "q,2": 0.0}}),
        ("BM25", {"RaB(tf)@5": {"q9": -0.1}}),
    ]
    write_per_query(path, systems)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        assert list(csv.reader(handle)) == [
            ["system", "measure", "query_id", "value"],
            ["BM25", "MRR@10", "q1", repr(THIRD)],
            ["BM25", "MRR@10", "q,2", "0.0"],
            ["BM25", "RaB(tf)@5", "q9", "-0.1"],
        ]


def test_json_without_intervals_of_absolute_values_is_read_as_before(tmp_path: Path):
    path = tmp_path / "measures.json"
    write_json(path, sample())
    payload = json.loads(path.read_text("utf-8"))
    figures = payload["systems"][0]["effectiveness"]["figures"]
    figures["MRR@10"] = {
        "mean": 0.5,
        "absolute_mean": 0.5,
        "mean_absolute": 0.5,
        "low": 0.4,
        "high": None,
    }
    path.write_text(json.dumps(payload), "utf-8")
    assert read_json(path).rows[0].effectiveness.figures["MRR@10"] == Estimate(0.5, 0.5, 0.4, None)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.3, (0.1, 0.3)),
        (-0.3, -0.1, (0.1, 0.3)),
        (-0.3, 0.1, (0.0, 0.3)),
        (0.0, 0.2, (0.0, 0.2)),
    ],
)
def test_the_interval_of_the_absolute_mean_is_what_the_interval_of_the_mean_holds(
    low, high, expected
):
    assert Estimate((low + high) / 2, 1.0, low, high).absolute_mean_interval == expected
    assert Estimate(0.1, 0.1).absolute_mean_interval is None


@pytest.mark.parametrize("name", ["per_query.csv", "per_query.csv.gz"])
def test_per_query_values_read_back_bit_for_bit_with_the_blocks_of_a_system_together(
    tmp_path: Path, name: str
):
    quality = {"MRR@10": {"q1": THIRD, 'q,"2': 0.0}}
    bias = {"RaB(tf,male)@5": {"q9": -0.1}}
    write_per_query(tmp_path / name, [("BM25", quality), ("a, b", quality), ("BM25", bias)])
    assert read_per_query(tmp_path / name) == {"BM25": {**quality, **bias}, "a, b": quality}


@pytest.mark.parametrize(
    ("lines", "number", "problem"),
    [
        ([], 1, "the header must be system,measure,query_id,value"),
        (["system,measure,value,query_id"], 1, "the header must be"),
        (["system,measure,query_id,value", "a,MRR,q1,0.5", "a,MRR,q2"], 3, "there are 3 cells"),
        (["system,measure,query_id,value", "a,MRR,q1,x"], 2, "the value 'x' is not a number"),
        (["system,measure,query_id,value", "a,MRR,q1,"], 2, "the value '' is not a number"),
        (["system,measure,query_id,value", "a,MRR,q1,nan"], 2, "the value 'nan' is not finite"),
        (
            ["system,measure,query_id,value", "a,MRR,q1,1", "b,MRR,q1,1", "a,MRR,q1,1"],
            4,
            "a second value of MRR",
        ),
    ],
)
def test_damaged_per_query_values_are_an_error_that_names_file_and_line(
    tmp_path: Path, lines, number, problem
):
    path = tmp_path / "per_query.csv"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with pytest.raises(ValueError, match=rf"per_query\.csv, line {number}: .*{problem}"):
        read_per_query(path)


def test_a_write_that_fails_leaves_the_old_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "measures.json"
    write_json(path, sample())
    before = path.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, Report(()))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["measures.json"]
