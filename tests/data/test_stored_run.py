"""A run on disk reads as one in memory does, and says the same of what is wrong with it."""

from __future__ import annotations

import gzip
import logging
import random
from pathlib import Path

import pytest

from backpack_rank.data.run_order import TIES, untied
from backpack_rank.data.stored_run import StoredRun, open_run
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.reranking.rerankers import SavedRun


def write_lines(path: Path, seed: int = 0, queries: int = 7, documents: int = 30) -> Path:
    """Lines in no order at all, with many ties, and ranks that contradict the scores."""
    rng = random.Random(seed)
    lines = []
    for query in range(queries):
        for document in range(documents):
            score = rng.choice([0.1, 0.25, 1e-9, 3.5, rng.random()])
            lines.append(f"q{query}\tQ0  d{document} {document + 1} {score!r} tag\n")
    rng.shuffle(lines)
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("ties", TIES)
def test_lists_are_equal_in_order_and_score_wherever_their_lines_stand(
    tmp_path: Path, ties, monkeypatch
) -> None:
    # Parts of a list come from many stretches of the file.
    monkeypatch.setattr("backpack_rank.data.stored_run._LINES", 10)
    path = write_lines(tmp_path / "a.trec")
    in_memory, stored = read_run(path, ties=ties), StoredRun.read(path, ties=ties)
    assert list(stored) == list(in_memory)
    for query_id, scores in in_memory.items():
        assert list(stored[query_id].items()) == list(scores.items())
    apart = untied(in_memory)
    for query_id, scores in stored.untied().items():
        assert list(scores.items()) == list(apart[query_id].items())


def test_a_file_above_the_limit_stays_on_disk_and_its_database_goes_with_the_run(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    path = write_lines(tmp_path / "a.trec")
    size = path.stat().st_size
    assert isinstance(open_run(path, memory_limit=size), dict)
    run = open_run(path, memory_limit=size - 1)
    assert isinstance(run, StoredRun)
    view = run.select(["q3", "unknown", "q1"])
    assert list(view) == ["q3", "q1"]
    assert "q2" not in view
    assert view.get("q2") is None
    del run
    assert view["q3"] == read_run(path)["q3"]
    del view
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_compressed_file_counts_as_what_it_holds(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "a.trec")
    packed = tmp_path / "a.trec.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert isinstance(open_run(packed, memory_limit=packed.stat().st_size), StoredRun)


def test_a_document_that_stands_twice_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("q1 Q0 d1 1 2 t\nq2 Q0 d1 1 2 t\nq1 Q0 d1 2 1 t\n")
    with pytest.raises(ValueError, match="line 3: document 'd1' stands twice in the list of"):
        StoredRun.read(path)


def test_what_is_odd_about_the_order_is_told_alike(tmp_path: Path, caplog) -> None:
    path = write_lines(tmp_path / "a.trec")
    with caplog.at_level(logging.WARNING):
        read_run(path, warn=True)
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        StoredRun.read(path, warn=True)
    assert messages == [record.getMessage() for record in caplog.records]
    assert len(messages) == 2


def test_a_saved_run_on_disk_has_the_measures_of_one_in_memory(
    tmp_path: Path, tiny_collection, monkeypatch
) -> None:
    monkeypatch.setattr("backpack_rank.evaluation.effectiveness._QUERIES", 2)
    path = tmp_path / "a.trec"
    write_run(path, {"q1": {"d0": 1, "d2": 3, "d1": 2}, "q3": {"d6": 1}, "x": {"d1": 1}}, "t")
    measured = []
    for limit in (2**20, 0):
        run = SavedRun.read(path, memory_limit=limit).rerank({}, tiny_collection)
        assert isinstance(run, dict) == (limit > 0)
        measured.append(effectiveness(run, tiny_collection.qrels, ["nDCG@10", "RR"]))
    assert measured[0] == measured[1]
    assert measured[0].missing == ("q2",)
