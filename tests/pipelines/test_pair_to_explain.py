"""The query and the document to explain: texts, files or ids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.dataset import Dataset
from backpack_rank.pipelines.pair_to_explain import PairToExplain

DATA = Dataset.of(
    Collection("small", MemoryStore({"d1": "one", "007": "two"}), {"q1": "what?", "12": "who?"}, {})
)


def texts(**node: object) -> tuple[str, str]:
    return PairToExplain(**node).texts(lambda: DATA)


def test_texts_files_and_ids_may_be_mixed(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("\ufeff  a caf\u00e9, isn't it?\n", encoding="utf-8")
    assert texts(query="what?", document="a") == ("what?", "a")
    assert texts(query_file=str(file), doc_id="d1") == ("a caf\u00e9, isn't it?", "one")
    assert texts(query_id=12, document_file=str(file)) == ("who?", "a caf\u00e9, isn't it?")
    assert texts(query_id="q1", doc_id="007") == ("what?", "two")
    assert texts(query="what?", document="") == ("what?", "")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"query": "a"}, "needs both texts"),
        ({"doc_id": "d1"}, "needs both texts"),
        (
            {"query": "a", "query_id": "q1", "document": "b"},
            "explain.query and explain.query_id both name the query",
        ),
        (
            {"query": "a", "document": "b", "doc_id": "d1"},
            "explain.document and explain.doc_id both name the document",
        ),
        (
            {"query_id": "q9", "doc_id": "d1"},
            "explain.query_id='q9': no query of small has this id",
        ),
        (
            {"query_id": "q1", "doc_id": "d9"},
            "explain.doc_id='d9': no document of small has this id",
        ),
        ({"query": " ", "document": "b"}, "explain.query is empty"),
        ({"query": "a", "document": "\udcff"}, "explain.document holds half of a surrogate pair"),
    ],
)
def test_what_is_missing_or_too_much_is_named(node: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        texts(**node)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b"\xff\xfe", "line 1: not UTF-8")]
)
def test_a_bad_file_is_named_with_its_option(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "q.txt").write_bytes(content)
    with pytest.raises(ValueError, match=f"explain.query_file.*{message}"):
        texts(query_file=str(tmp_path / "q.txt"), document="b")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        texts(query_file=str(tmp_path / "nowhere"), document="b")
