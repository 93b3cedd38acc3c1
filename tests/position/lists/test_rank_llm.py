"""Requests and results of rank_llm."""

from __future__ import annotations

import gzip
import json
import math

import pytest

from backpack_rank.data.trec import read_run, write_run
from backpack_rank.position.lists.rank_llm import (
    load_requests,
    read_requests,
    reordered,
    requests_run,
    write_requests,
)

# As rank_llm's own DataWriter writes it: numbers as ids, one object per line, further keys beside
# those read.
FLEAS = [
    {"contents": "The life cycle of a flea can last 20 days."},
    {"title": "Fleas", "segment": "Eggs hatch.", "url": "a"},
    {"text": "A flea lives 100 days.", "contents": "not this"},
]
PAINTERS = [{"docid": "7", "score": None, "doc": {"passage": "A painter.", "title": ""}}]
LINES = [
    {
        "query": {"text": "how long is the life cycle of a flea", "qid": 264014},
        "candidates": [
            {"docid": "4834547", "score": 14.97, "doc": FLEAS[0]},
            {"docid": 6641238, "score": 15.09, "doc": FLEAS[1]},
            {"docid": "96852", "score": 14.26, "doc": FLEAS[2]},
        ],
    },
    {
        "query": {"text": "who was \u00c9douard", "qid": "q2"},
        "candidates": PAINTERS,
    },
]


@pytest.fixture
def request_file(tmp_path):
    request_file = tmp_path / "requests.jsonl"
    lines = [json.dumps(line, ensure_ascii=False) + "\n\n" for line in LINES]
    request_file.write_text("".join(lines), encoding="utf-8")
    return request_file


def test_requests_are_read_in_the_order_of_the_file(request_file):
    first, second = read_requests(request_file)
    assert (first.query, first.query_id) == ("how long is the life cycle of a flea", "264014")
    candidates = [(one.doc_id, one.text, one.score) for one in first.candidates]
    assert candidates == [
        ("4834547", "The life cycle of a flea can last 20 days.", 14.97),
        ("6641238", "Fleas Eggs hatch.", 15.09),
        ("96852", "A flea lives 100 days.", 14.26),
    ]
    assert [(one.text, one.score) for one in second.candidates] == [("A painter.", None)]


def test_a_json_list_and_compressed_lines_say_the_same(request_file, tmp_path):
    (tmp_path / "requests.json").write_text(json.dumps(LINES, indent=2))
    (tmp_path / "requests.jsonl.gz").write_bytes(gzip.compress(request_file.read_bytes()))
    assert read_requests(tmp_path / "requests.json") == read_requests(request_file)
    assert read_requests(tmp_path / "requests.jsonl.gz") == read_requests(request_file)


def test_the_run_keeps_the_order_of_the_file(request_file):
    # The file's scores of the first query do not sort into its order, and the second has none.
    assert requests_run(read_requests(request_file)) == {
        "264014": {"4834547": 3.0, "6641238": 2.0, "96852": 1.0},
        "q2": {"7": 1.0},
    }
    in_order = {**LINES[0], "candidates": [LINES[0]["candidates"][number] for number in (1, 0, 2)]}
    request_file.write_text(json.dumps(in_order))
    assert requests_run(read_requests(request_file)) == {
        "264014": {"6641238": 15.09, "4834547": 14.97, "96852": 14.26}
    }


@pytest.mark.parametrize("name", ["results.jsonl", "results.json", "results.jsonl.gz"])
def test_results_go_round_and_keep_what_they_were_read_with(request_file, tmp_path, name):
    requests = read_requests(request_file)
    run = {"264014": {"96852": 3.0, "4834547": 2.5, "6641238": 1.0}, "q2": {"7": 0.5}}
    results = reordered(requests, run)
    write_requests(tmp_path / name, results)
    assert read_requests(tmp_path / name) == results
    assert requests_run(read_requests(tmp_path / name)) == run
    write_run(tmp_path / "results.trec", requests_run(results), "test")
    assert read_run(tmp_path / "results.trec") == run


def test_results_have_the_form_of_rank_llm(request_file, tmp_path):
    run = {"264014": {"96852": 3.0, "6641238": 1.0}}
    write_requests(tmp_path / "results.jsonl", reordered(read_requests(request_file), run))
    (line,) = (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "query": {"text": "how long is the life cycle of a flea", "qid": "264014"},
        "candidates": [
            {"docid": "96852", "score": 3.0, "doc": FLEAS[2]},
            {"docid": "6641238", "score": 1.0, "doc": FLEAS[1]},
        ],
    }
    write_requests(tmp_path / "results.json", read_requests(request_file))
    assert json.loads((tmp_path / "results.json").read_text())[1]["query"] == LINES[1]["query"]


def test_a_run_of_other_ids_is_refused(request_file):
    requests = read_requests(request_file)
    with pytest.raises(ValueError, match="query 'q9'"):
        reordered(requests, {"q9": {}})
    with pytest.raises(ValueError, match=r"document 'd9'.*query 'q2'"):
        reordered(requests, {"q2": {"d9": 1.0}})


def test_a_file_is_a_collection(request_file, tmp_path):
    (tmp_path / "qrels").write_text("264014 0 96852 3\nother 0 1 1\n")
    collection = load_requests("fleas", str(request_file), str(tmp_path / "qrels"), depth=2)
    assert list(collection.queries) == ["264014", "q2"]
    assert collection.qrels == {"264014": {"96852": 3}}
    assert collection.candidates == {"264014": {"4834547": 3.0, "6641238": 2.0}, "q2": {"7": 1.0}}
    assert collection.documents.get_many(["6641238"]) == {"6641238": "Fleas Eggs hatch."}


def test_one_id_with_two_texts_is_no_collection(request_file):
    other = broken(docid="96852", score=1, doc={"text": "Another flea."})
    request_file.write_text(json.dumps(LINES[0]) + "\n" + json.dumps(other))
    assert len(read_requests(request_file)) == 2
    with pytest.raises(ValueError, match="'96852' of query 'q2' has another text"):
        load_requests("fleas", str(request_file))


def broken(**changes):
    """The second request with parts changed; None takes a part away."""
    query = {**LINES[1]["query"], **changes.pop("query", {})}
    candidate = {**LINES[1]["candidates"][0], **changes}
    return {"query": query, "candidates": [candidate]}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ([], '"query"'),
        ({"query": "plain text", "candidates": []}, '"query"'),
        ({"query": {"text": "q", "qid": "q2"}}, "'q2' needs a list of \"candidates\""),
        (broken(query={"qid": None}), '"qid"'),
        (broken(query={"qid": "a b"}), "white space"),
        (broken(query={"text": " "}), "'q2' needs a \"text\""),
        (broken(query={"qid": "264014"}), "'264014' stands twice"),
        (broken(docid=1.5), 'candidate 1: the "docid"'),
        (broken(doc="text"), "'7' needs a \"doc\""),
        (broken(doc={"abstract": "x"}), "under one of text, segment"),
        (broken(doc={"text": "x", "title": 3}), '"title"'),
        (broken(score="high"), '"score"'),
        (broken(score=True), '"score"'),
        ({**LINES[1], "candidates": PAINTERS * 2}, "candidate 2: document '7' stands twice"),
        ({**LINES[1], "candidates": [7]}, "candidate 1"),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path, record, problem):
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps(LINES[0]) + "\n\n" + json.dumps(record) + "\n")
    with pytest.raises(ValueError, match=r"requests\.jsonl, line 3: ") as caught:
        read_requests(path)
    assert problem in str(caught.value)
    listed = tmp_path / "requests.json"
    listed.write_text(json.dumps([LINES[0], record]))
    with pytest.raises(ValueError, match=r"requests\.json, request 2: ") as caught:
        read_requests(listed)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl", "{", "line 1: expected a JSON object"),
        ("a.jsonl", json.dumps(broken(score=math.nan)), "NaN"),
        ("a.json", "{", "expected a JSON list"),
        ("a.json", '{"query": 1}', "one per line is .jsonl"),
        ("a.jsonl", "\n", "holds no request"),
        ("a.json", "[]", "holds no request"),
    ],
)
def test_files_that_are_no_requests_are_refused(tmp_path, name, content, problem):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=name) as caught:
        read_requests(tmp_path / name)
    assert problem.lower() in str(caught.value).lower()
