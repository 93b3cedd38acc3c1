"""A header line is never a document or a query, in whatever words and in whatever file."""

from __future__ import annotations

import pytest

from backpack_rank.attributes.neutral_queries import load_neutral_queries
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.documents import read_documents
from backpack_rank.data.queries import read_queries
from backpack_rank.data.trec import read_qrels, read_run
from backpack_rank.evaluation.group_files import GroupSource

COLLECTION = Collection("mine", MemoryStore({"d1": "one", "d2": "two"}), {}, {})
# As PyTerrier, TREC Fair Ranking, BEIR, MS MARCO, ir_datasets and pandas write first cells.
ID_CELLS = ("id", "_id", "docno", "page_id", "corpus-id", "doc_id", "DocID", "pid", "Document ID")
GROUPS = ["d1\tfemale", "d2\tmale"]


def groups(path) -> dict[str, object]:
    found = {}
    for attribute, of_attribute in GroupSource(str(path)).groups(COLLECTION, ["d1", "d2"]).items():
        found[attribute] = (of_attribute.names, of_attribute.shares_of(["d1", "d2"]).tolist())
    return found


@pytest.mark.parametrize("above", ["", "\n", "\ufeff"], ids=["first", "below a blank line", "BOM"])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("cell", ID_CELLS)
def test_a_header_names_the_attribute_of_groups(tmp_path, cell, quote, above):
    path = tmp_path / "file.tsv"
    header = f"{above}{quote}{cell}{quote}\t{quote}gender{quote}"
    path.write_text("\n".join([header, *GROUPS]) + "\n")
    assert groups(path) == {"gender": (("female", "male"), [[1, 0], [0, 1]])}


@pytest.mark.parametrize("header", ["Seite\tGeschlecht", "#\tgender", "\ttitle", "key\tgroup\t1"])
def test_a_first_line_that_names_nothing_known_is_refused(tmp_path, header):
    path = tmp_path / "file.tsv"
    path.write_text("\n".join([header, *GROUPS]) + "\n")
    with pytest.raises(ValueError, match=r"file\.tsv, line 1"):
        groups(path)


def test_a_file_may_know_documents_that_a_collection_lacks(tmp_path):
    path = tmp_path / "gender.tsv"
    path.write_text("\n".join(["d0\tmale", *GROUPS]) + "\n")
    assert groups(path) == {"gender": (("female", "male"), [[1, 0], [0, 1]])}


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("q.tsv", "query_id\twords\nq1\tnurse\n", read_queries),
        ("q.tsv", "qno\tquery\nq1\tnurse\n", read_queries),
        ("neutral.tsv", "query-id\tquery\nq1\tnurse\n", load_neutral_queries),
        ("neutral.csv", "qid,query,label\nq1,nurse,n\n", load_neutral_queries),
        ("neutral.csv", "id,text,n\nq1,nurse,n\n", load_neutral_queries),
        ("corpus.tsv", "docno\tbody\nd1\tone\n", read_documents),
        ("corpus.tsv", "pid\theading\ttext\nd1\t\tone\n", read_documents),
        ("qrels.tsv", "qid\tpid\tlabel\nq1\td1\t1\n", read_qrels),
        ("qrels.txt", "qid iter docno label\nq1 0 d1 1\n", read_qrels),
        ("run.txt", "qid Q0 docno rank score tag\nq1 Q0 d1 1 2.5 bm25\n", read_run),
    ],
)
def test_a_file_without_headers_refuses_one(tmp_path, name, text, read):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=r", line 1: "):
        read(path)


def test_cells_in_quotes_are_read_as_csv_reads_them(tmp_path):
    path = tmp_path / "file.tsv"
    path.write_text('"id"\t"gender"\n"d1"\t"female"\n"d2"\t"male"\n')
    assert groups(path) == {"gender": (("female", "male"), [[1, 0], [0, 1]])}


@pytest.mark.parametrize(
    "lost", ["docno\tgender\x0ed1\tfemale\nd2\tmale\n", "docno\tg\tx\nd1\tf\n"]
)
def test_a_header_that_is_wider_than_its_lines_is_refused(tmp_path, lost):
    path = tmp_path / "file.tsv"
    path.write_text(lost)
    with pytest.raises(ValueError, match=r"line 1: a header of 3 columns over lines of 2"):
        groups(path)


def test_a_share_that_is_no_number_is_refused_beside_an_unknown_group_too(tmp_path):
    path = tmp_path / "file.tsv"
    path.write_text("docno\tgender\nd1\t\tfemale\nd2\tmale\n")
    with pytest.raises(ValueError, match=r"line 2: .*female"):
        groups(path)
