"""A run with its description: the fields that the field's tools ask for, and nothing left to be
filled in.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from backpack_rank.data.trec import read_run
from backpack_rank.reporting.run_metadata import FILE, TEAM, write_submission

RUN = {f"q{number}": {"d1": 1.5, "d2": 1.5, "d3": -2.0} for number in range(3)}
STAGES = [{"name": "BM25", "method": "first stage"}, {"name": "alpha=0", "params": {"alpha": 0.0}}]
# tira-io/tira, python-client/tira/check_format.py, RunWithIrMetadata
REQUIRED = (
    ("actor", "team"),
    ("implementation", "source", "repository"),
    ("data", "test collection", "name"),
    ("method", "name"),
    ("method", "description"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(TEAM, "the founders")
    write_submission(
        tmp_path,
        RUN,
        "alpha-0",
        collection="dl19",
        description="A ranker: half of it.",
        stages=STAGES,
    )
    return tmp_path


def test_what_is_required_is_said(folder: Path) -> None:
    content = yaml.safe_load((folder / FILE).read_text())
    for path in REQUIRED:
        value: Any = content
        for name in path:
            value = value[name]
        assert isinstance(value, str)
        assert value.strip()
    assert content["actor"]["team"] == "the founders"
    assert content["method"]["retrieval"][1] == {
        "name": "alpha=0",
        "params": {"alpha": 0.0},
        "reranks": "BM25",
    }
    assert re.fullmatch(
        r"# ir_metadata\.start\n.*# ir_metadata\.end\n", (folder / FILE).read_text(), re.DOTALL
    )


def test_the_run_has_six_columns_and_no_document_twice(folder: Path) -> None:
    rows = [line.split() for line in (folder / "run.txt").read_text().splitlines()]
    assert {len(row) for row in rows} == {6}
    assert len({(row[0], row[2]) for row in rows}) == len(rows) == 9
    assert list(read_run(folder / "run.txt")["q1"]) == ["d1", "d2", "d3"]


def test_the_check_of_tira_passes(folder: Path) -> None:
    check_format = pytest.importorskip("tira.check_format", reason="needs the package tira")
    status, message = check_format.check_format(folder, "run-with-metadata")
    assert status == check_format.FormatMsgType.OK, message
