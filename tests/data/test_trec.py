"""Runs, qrels and queries: what is read, what is written, and what is said about a malformed line."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.json_lines import json_record, write_jsonl
from backpack_rank.data.queries import read_queries, read_queries_jsonl, read_queries_tsv
from backpack_rank.data.trec import ranking, read_qrels, read_run, sorted_run, write_run


def _write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# reading runs


@pytest.mark.parametrize("name", ["run.trec", "run.trec.gz"])
def test_read_run_orders_by_score_and_ignores_ranks_and_line_order(tmp_path, name: str) -> None:
    lines = "q2 Q0 d7 9 1.5 x\r\n\nq1\tQ0  d1\t1  2 x\nq1 Q0 d3 2 3e0 x\nq1 Q0 d2 3 2 x\n"
    run = read_run(_write(tmp_path / name, lines))
    assert run == {"q2": {"d7": 1.5}, "q1": {"d3": 3.0, "d1": 2.0, "d2": 2.0}}
    assert list(run["q1"]) == ["d3", "d1", "d2"]


def test_read_run_keeps_the_best_of_a_depth(tmp_path: Path) -> None:
    path = _write(tmp_path / "run", "q Q0 c 1 1 x\nq Q0 b 2 5 x\nq Q0 a 3 1 x\nq Q0 z 4 -7 x\n")
    assert list(read_run(path, depth=2)["q"]) == ["b", "a"]
    with pytest.raises(ValueError, match="depth=0 must be at least 1, or null for all documents"):
        read_run(path, depth=0)


def test_ranking_breaks_ties_by_ascending_id() -> None:
    assert ranking({"b": 1.0, "a": 1.0, "c": 2.0, "A": 1.0}) == ["c", "A", "a", "b"]
    assert list(sorted_run({"q": {"b": 0.0, "a": 0.0}})["q"]) == ["a", "b"]


# writing runs


def test_write_run_gives_the_documented_lines(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.trec"
    write_run(path, {"q10": {"x": -1.25}, "q1": {"b": 1.0, "a": 0.5, "c": 2.0}}, "bm25")
    assert path.read_text() == (
        "q1 Q0 c 1 2 bm25\nq1 Q0 b 2 1 bm25\nq1 Q0 a 3 0.5 bm25\nq10 Q0 x 1 -1.25 bm25\n"
    )


def test_equal_scores_are_written_strictly_decreasing_in_float32(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    # the last is above the two lowered ones in float64, but not distinguishable from 1 in float32
    write_run(path, {"q": {"b": 1.0, "a": 1.0, "c": 1.0, "d": 1.0 - 1e-12}}, "t")
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [fields[2] for fields in lines] == ["a", "b", "c", "d"]
    score = np.float32(1)
    expected = [score]
    for _ in range(3):
        expected.append(np.nextafter(expected[-1], np.float32(-np.inf)))
    assert [np.float32(fields[4]) for fields in lines] == expected


_EDGES = st.sampled_from([0.0, -0.0, 1e-45, 1.0, 1.0 + 1e-9])
_SCORES = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100) | _EDGES


@settings(max_examples=60, deadline=None)
@given(scores=st.lists(_SCORES, min_size=1, max_size=12))
def test_a_written_run_reads_back_in_the_same_order_and_without_ties(tmp_path_factory, scores):
    path = tmp_path_factory.mktemp("run") / "run.trec"
    run = {"q": {f"d{index:02}": score for index, score in enumerate(scores)}}
    write_run(path, run, "t")
    back = read_run(path)
    assert list(back["q"]) == sorted(run["q"], key=lambda doc_id: (-run["q"][doc_id], doc_id))
    values = [np.float32(value) for value in back["q"].values()]
    assert all(high > low for high, low in pairwise(values))
    distinct = {float(np.float32(score)) for score in scores}
    if len(distinct) == len(scores):
        for doc_id, score in run["q"].items():
            assert np.float32(back["q"][doc_id]) == np.float32(score)


def test_all_tools_agree_on_a_written_run_with_ties(tmp_path: Path) -> None:
    import ir_measures

    write_run(tmp_path / "run", {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}, "t")
    run = list(ir_measures.read_trec_run(str(tmp_path / "run")))
    qrels = [ir_measures.Qrel("q", "b", 1)]
    both = ir_measures.calc_aggregate([ir_measures.RR @ 10, ir_measures.RR], qrels, run)
    assert set(both.values()) == {0.5}


def test_gzip_run_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "run.trec.gz"
    write_run(path, {"q": {"a": 0.1}}, "t")
    assert gzip.decompress(path.read_bytes()).decode().startswith("q Q0 a 1 0.1")
    assert np.float32(read_run(path)["q"]["a"]) == np.float32(0.1)


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1e39])
def test_write_run_refuses_scores_that_are_not_finite_and_keeps_the_old_file(tmp_path, score):
    path = _write(tmp_path / "run.trec", "old")
    with pytest.raises(ValueError, match=r"query 'q7', document 'd3'.*finite"):
        write_run(path, {"a": {"d": 1.0}, "q7": {"d1": 1.0, "d3": score}}, "t")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.trec"]


@pytest.mark.parametrize(
    ("run", "tag", "named"),
    [
        ({"q 1": {"d": 1.0}}, "t", "'q 1'"),
        ({"q": {"d\t1": 1.0}}, "t", r"'d\\t1'"),
        ({"q": {"": 1.0}}, "t", "''"),
        ({"q": {"d": 1.0}}, "my run", "'my run'"),
    ],
)
def test_write_run_refuses_white_space(tmp_path, run, tag, named) -> None:
    with pytest.raises(ValueError, match=f"white space, got {named}"):
        write_run(tmp_path / "run", run, tag)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("identifier", ["d\x1b[2J", "\x9b2Jd", "d\x00"])
def test_no_run_has_ids_that_act_on_a_terminal(tmp_path: Path, identifier: str) -> None:
    with pytest.raises(ValueError, match="must not contain control characters"):
        write_run(tmp_path / "run", {"q": {identifier: 1.0}}, "t")
    with pytest.raises(ValueError, match="must not contain control characters"):
        dict(read_queries_tsv(_write(tmp_path / "queries.tsv", f"{identifier}\ttext\n")))


def test_a_process_killed_while_writing_a_run_leaves_the_old_run(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.trec", "q Q0 d 1 1 old\n")
    script = (
        "import os, signal, sys\n"
        "from backpack_rank.data.trec import write_run\n"
        "class Killer(dict):\n"
        "    def __getitem__(self, key):\n"
        "        if key == 'q2':\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return dict.__getitem__(self, key)\n"
        "write_run(sys.argv[1], Killer(q1={f'd{i}': 1.0 for i in range(20000)}, q2={'d': 1.0}), "
        "'new')\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "q Q0 d 1 1 old\n"


# qrels


def test_trec_qrels_are_read_with_blank_lines_tabs_and_negative_grades(tmp_path: Path) -> None:
    path = _write(tmp_path / "qrels.txt", "q1 0 d1 2\nq1\tQ0\td2\t0\n\nq2 0 d1 -1\n")
    assert read_qrels(path) == {"q1": {"d1": 2, "d2": 0}, "q2": {"d1": -1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no judgement$"),
        ("\n  \n", "holds no judgement$"),
        ("query-id\tcorpus-id\tscore\n", "holds no judgement, only a header$"),
    ],
)
def test_qrels_without_a_judgement_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"qrels\.txt {message}"):
        read_qrels(path)


@pytest.mark.parametrize(
    "line",
    [
        '{"_id": "a", "_id": "b", "text": "x"}',
        # As many quotes before a colon as keys, but for the space before one.
        '{"_id":"a","_id":"b","text" :"x"}',
        '{"_id":"a","text":"x","more":{"k":1,"k":2}}',
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_a_key_that_stands_twice_is_refused(line: str, encoded: bool) -> None:
    with pytest.raises(ValueError, match="stands twice in one object"):
        json_record(line.encode() if encoded else line)


def test_colons_of_a_text_are_no_keys() -> None:
    text = 'she said "yes": twice'
    assert json_record(json.dumps({"_id": "a", "text": text}))["text"] == text


@pytest.mark.parametrize("name", ["test.tsv", "test.tsv.gz"])
def test_beir_qrels_are_recognised_by_their_header(tmp_path: Path, name: str) -> None:
    path = _write(tmp_path / name, "\ufeffquery-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    assert read_qrels(path) == {"q1": {"d1": 2, "d2": 0}}


# queries


def test_queries_are_the_same_from_tsv_and_from_json_lines(tmp_path: Path) -> None:
    expected = {"1": "who is Åsa", "2": " a line\u2028separator "}
    tsv = _write(tmp_path / "topics.tsv", "1\twho is Åsa\n2\t a line\u2028separator \n")
    rows = [
        {"_id": "1", "text": expected["1"], "metadata": {}},
        {"_id": "2", "text": expected["2"]},
    ]
    write_jsonl(tmp_path / "queries.jsonl.gz", rows)
    assert read_queries(tsv) == expected
    assert read_queries(tmp_path / "queries.jsonl.gz") == expected


# malformed lines: (reader, good lines before, bad line, what the message must name)

NEWLINE = "\n"
_HEADER = "query-id\tcorpus-id\tscore\n"
_ROW = '{"_id": "1", "text": "a"}\n'
_BAD: list[tuple[Callable[[Path], object], str, str, list[str]]] = [
    (read_run, "q Q0 d 1 1 t\n", "q Q0 d2 2 0.5", ["expected 6 columns", "got 5", "q Q0 d2 2 0.5"]),
    (read_run, "q Q0 d 1 1 t\n", "q Q0 d2 2 high t", ["'q'", "'d2'", "finite", "'high'"]),
    (read_run, "q Q0 d 1 1 t\n", "q Q0 d2 2 nan t", ["'q'", "'d2'", "finite", "'nan'"]),
    (read_run, "q Q0 d 1 1 t\n", "q Q0 d2 2 inf t", ["'q'", "'d2'", "finite", "'inf'"]),
    (read_run, "q Q0 d 1 1 t\n", "q Q0 d 2 0.5 t", ["'q'", "'d'", "twice"]),
    (read_qrels, "q 0 d 1\n", "q 0 d2", ["expected 4 columns", "got 3"]),
    (read_qrels, "q 0 d 1\n", "q 0 d2 1.0", ["'q'", "'d2'", "integer", "'1.0'"]),
    (read_qrels, "q 0 d 1\n", "q 0 d 0", ["'q'", "'d'", "twice"]),
    (read_qrels, f"{_HEADER}q\td0\t1\n", "q d", ["expected 3 columns", "got 2"]),
    (read_qrels, f"{_HEADER}q\td0\t1\n", "q\td\tyes", ["'q'", "'d'", "integer", "'yes'"]),
    (read_queries_tsv, "1\ta\n", "2 no tab", ["expected 2 columns (id<TAB>text)", "got 1"]),
    (read_queries_tsv, "1\ta\n", "1\tb", ["'1'", "twice"]),
    (read_queries_tsv, "1\ta\n", "2\t  ", ["'2'", "empty"]),
    (read_queries_tsv, "1\ta\n", "2 3\tb", ["'2 3'", "white space"]),
    (read_queries_jsonl, _ROW, '{"_id": "2", "text"', ["JSON"]),
    (read_queries_jsonl, _ROW, '["2", "b"]', ["JSON object"]),
    (read_queries_jsonl, _ROW, '{"text": "b"}', ["_id", "got None"]),
    (read_queries_jsonl, _ROW, '{"_id": 2, "text": "b"}', ["_id", "got 2"]),
    (read_queries_jsonl, _ROW, '{"_id": "2"}', ["'2'", "text"]),
    (read_queries_jsonl, _ROW, '{"_id": "2", "text": ""}', ["'2'", "empty"]),
    (read_queries_jsonl, _ROW, '{"_id": "1", "text": "b"}', ["'1'", "twice"]),
    (read_queries_jsonl, _ROW, '{"_id": "2", "text": "\\ud800"}', ["'2'", "surrogate"]),
]


@pytest.mark.parametrize(("reader", "good", "bad", "named"), _BAD)
def test_a_malformed_line_is_refused_with_file_line_and_id(tmp_path, reader, good, bad, named):
    path = tmp_path / "bad file"
    path.write_text(good)
    reader(path)
    path.write_text(f"{good}\n{bad}\n")  # the blank line counts
    place = f"{path}, line {good.count(NEWLINE) + 2}: "
    with pytest.raises(ValueError, match=re.escape(place)) as caught:
        reader(path)
    for words in named:
        assert words in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "topics.tsv"
    path.write_bytes(b"1\ta\n2\tcaf\xe9\n")
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: not UTF-8 text")):
        read_queries(path)


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(os.urandom(4000).hex().encode())[:-200])
    with pytest.raises(ValueError, match=r"run\.gz: damaged or incomplete gzip"):
        read_run(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for reader in (read_run, read_qrels, read_queries):
        with pytest.raises(FileNotFoundError, match="nothing here"):
            reader(tmp_path / "nothing here")


def test_jsonl_keeps_every_key(tmp_path: Path) -> None:
    row = {"_id": "1", "title": "ä", "text": ""}
    write_jsonl(tmp_path / "c.jsonl", [row])
    assert json.loads((tmp_path / "c.jsonl").read_text("utf-8")) == row
