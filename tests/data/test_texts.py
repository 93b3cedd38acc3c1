"""Texts from files and collections: what a document is, and what is said about damaged input."""

import gzip
import json

import pytest

from backpack_rank.data import texts
from backpack_rank.data.texts import JsonLines, PlainFile, is_held_out, text_sources


def packed(path, data):
    path.write_bytes(gzip.compress(data))
    return path


def test_blank_lines_end_the_documents_of_a_plain_file(tmp_path):
    data = "\ufeff\n\nOne line.\nIts second.\n \t\nÄnother.\r\n\r\n\n  last, without a line end".encode()
    (tmp_path / "a.txt").write_bytes(data)
    expected = ["One line.\nIts second.", "Änother.", "last, without a line end"]
    assert list(PlainFile(tmp_path / "a.txt")) == expected
    assert list(PlainFile(packed(tmp_path / "a.txt.gz", data))) == expected


def test_json_lines_give_the_text_under_a_key(tmp_path):
    lines = [{"text": " a b ", "body": "x"}, {"text": "", "body": "y"}, {"text": "c\n\nd", "body": "z"}]
    data = "\n\n".join(map(json.dumps, lines)).encode()
    (tmp_path / "a.jsonl").write_bytes(data)
    assert list(JsonLines(tmp_path / "a.jsonl")) == ["a b", "c\n\nd"]
    assert list(JsonLines(packed(tmp_path / "a.jsonl.gz", data), "body")) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"text": "a"}\n{"text": ', "line 2: expected a JSON object"),
        (b'{"text": "a"}\n\n["b"]', "line 3: expected a JSON object, got \"\\['b'\\]\""),
        (b'{"body": "a", "id": 3}', "line 1: no string under 'text'; keys with a string: 'body'. Set task.field"),
        (b'{"text": null}', "line 1: no string under 'text'; keys with a string: none"),
        (b'{"text": "\\ud800"}', "line 1: the text holds half of a surrogate pair"),
        (b'{"text": "a"}\n{"text": "\xff"}', "line 2: not UTF-8"),
    ],
)
def test_damaged_json_lines_are_named(tmp_path, data, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"a.jsonl, {said}"):
        list(JsonLines(path))


def test_damaged_plain_files_are_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"good\n\nb\xffd\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 3: not UTF-8"):
        list(PlainFile(tmp_path / "a.txt"))
    cut = packed(tmp_path / "b.txt.gz", b"text\n" * 1000).read_bytes()[:-20]
    (tmp_path / "b.txt.gz").write_bytes(cut)
    with pytest.raises(ValueError, match=r"b\.txt\.gz: damaged or incomplete gzip file"):
        list(PlainFile(tmp_path / "b.txt.gz"))
    monkeypatch.setattr(texts, "LONGEST", 10)
    (tmp_path / "c.txt").write_text("short\n\n12345\n123456\n")
    with pytest.raises(ValueError, match=r"c\.txt, line 3: this document has more than 10 characters"):
        list(PlainFile(tmp_path / "c.txt"))


def test_sources_of_all_kinds_mix_and_a_collection_is_loaded_once(tmp_path, tiny_collection):
    (tmp_path / "b.txt").write_text("from b")
    (tmp_path / "a.txt").write_text("from a")
    (tmp_path / "c.jsonl").write_text('{"text": "from c", "body": "body of c"}')
    loads = []

    def collection():
        loads.append(1)
        return tiny_collection

    pattern, lines = str(tmp_path / "*.txt"), str(tmp_path / "c.jsonl")
    entries = [lines, "queries", pattern, {"path": lines, "field": "body"}, "documents"]
    sources = text_sources(entries, "text", collection)
    found = [list(source) for source in sources]
    documents = [text for _, text in tiny_collection.documents if text]
    assert len(documents) == len(tiny_collection.documents) - 1, "an empty document is left out"
    queries = list(tiny_collection.queries.values())
    assert found == [["from c"], queries, ["from a"], ["from b"], ["body of c"], documents]
    assert sources[1].name == "queries of tiny"
    assert len(loads) == 1
    text_sources([lines], "text", lambda: pytest.fail("no collection is needed"))


def test_entries_that_name_no_text_are_refused(tmp_path, tiny_collection):
    with pytest.raises(FileNotFoundError, match=r"there is no file nothing\.txt"):
        text_sources(["nothing.txt"], "text", lambda: tiny_collection)
    with pytest.raises(ValueError, match=r"task\.texts has \{'file': 'x'\}"):
        text_sources([{"file": "x"}], "text", lambda: tiny_collection)
    with pytest.raises(ValueError, match=r"task\.texts names no text"):
        text_sources([], "text", lambda: tiny_collection)


def test_what_is_held_out_depends_on_text_and_seed_alone():
    documents = [f"document {number}" for number in range(4000)]
    held = {text for text in documents if is_held_out(text, 0.1, 0)}
    assert 320 < len(held) < 480
    assert held == {text for text in reversed(documents) if is_held_out(text, 0.1, 0)}
    assert held < {text for text in documents if is_held_out(text, 0.2, 0)}
    other = {text for text in documents if is_held_out(text, 0.1, 1)}
    assert len(held & other) < 80
