"""``backpack-rank serve --activation calibrated`` as users start it."""

from __future__ import annotations

import httpx
import pytest
from serve_processes import free_port, started

from backpack_rank.reranking.load import load
from backpack_rank.reranking.score_calibration import Calibration, PlattMap

QUERY, DOCUMENTS = "doctor in the ward", ["he saw his mother", "a bridge"]


@pytest.mark.processes
def test_the_command_serves_probabilities_or_says_what_is_missing(folder, tmp_path):
    path = tmp_path / "calibration.json"
    Calibration({1.0: PlattMap(0.5, -1)}, "lowest_senses", "platt", "dev").write(path)
    expected = load(folder, activation="calibrated", calibration=path).rank(QUERY, DOCUMENTS)
    port = free_port()
    options = ["--activation", "calibrated", "--calibration", str(path)]
    with started(folder, tmp_path / "log", port, *options):
        body = {"query": QUERY, "documents": DOCUMENTS}
        url = f"http://127.0.0.1:{port}/v1/rerank"
        results = httpx.post(url, json=body, trust_env=False).json()["results"]
    assert [row["index"] for row in results] == [row["corpus_id"] for row in expected]
    assert [row["relevance_score"] for row in results] == pytest.approx(
        [row["score"] for row in expected], abs=1e-6
    )

    # The saved ranker itself has no calibration.
    with started(folder, tmp_path / "log", free_port(), "--activation", "calibrated") as process:
        assert process.wait(60) == 2
    assert (
        "has no calibration.json: make it with backpack-rank calibrate"
        in (tmp_path / "log").read_text()
    )

    more = ["--model", f"other={folder}", "--calibration", str(path)]
    with started(folder, tmp_path / "log", free_port(), *more) as process:
        assert process.wait(60) == 2
    assert "is of one ranker, and 2 are served" in (tmp_path / "log").read_text()
