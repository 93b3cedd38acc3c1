"""Documents in several wordings: Grep-BiasIR's metadata, an own file, and judged documents as
candidates.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from backpack_rank.attributes.wording_variants import VariantItem, WordedPair, load_wordings
from backpack_rank.data.first_stage import GivenCandidates
from backpack_rank.data.sources.beir import load_beir


def write_jsonl(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "toy"
    (root / "qrels").mkdir(parents=True)
    kinds = {
        "a": "M",
        "b": "F",
        "c": "N",
        "d": "F",
        "e": "M",
        "x": "both",
        "y": "both",
        "z": "N",
        "free": None,
    }
    write_jsonl(
        root / "corpus.jsonl",
        [
            {
                "_id": key,
                "title": "",
                "text": f"text {key}",
                "metadata": {"content_gender": kinds[key]},
            }
            for key in kinds
        ],
    )
    write_jsonl(
        root / "queries.jsonl",
        [
            {
                "_id": "q1",
                "text": "one",
                "metadata": {"category": "Career", "exp_stereotype": "Towards female"},
            },
            {"_id": "q2", "text": "two", "metadata": {"exp_stereotype": "No Annotation Agreement"}},
        ],
    )
    rows = [
        "q1\ta\t1",
        "q1\tb\t1",
        "q1\tc\t1",
        "q1\te\t0",
        "q1\td\t0",
        "q2\tx\t0",
        "q2\ty\t0",
        "q2\tz\t0",
    ]
    rows += ["q2\ta\t1", "q2\tc\t1"]
    (root / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n"
    )
    return root


def test_documents_of_one_query_and_label_are_one_item(folder: Path) -> None:
    wordings = load_wordings(folder)
    assert wordings.name == "toy"
    assert wordings.items == {
        "q1": (
            VariantItem("relevant", 1, {"male": "a", "female": "b", "neutral": "c"}),
            VariantItem("non-relevant", 0, {"male": "e", "female": "d"}),
        ),
        "q2": (VariantItem("relevant", 1, {"male": "a", "neutral": "c"}),),
    }
    assert wordings.topics == {"q1": "Career"}
    assert wordings.stereotypes == {"q1": "female", "q2": "none"}
    assert wordings.left_out == ("x", "y", "z")


def test_pairs_are_the_items_that_have_both_wordings(folder: Path) -> None:
    wordings = load_wordings(folder)
    assert wordings.pairs() == [
        WordedPair("q1", "relevant", 1, "a", "b"),
        WordedPair("q1", "non-relevant", 0, "e", "d"),
    ]
    assert [(pair.query_id, pair.first) for pair in wordings.pairs("neutral", "male")] == [
        ("q1", "c"),
        ("q2", "c"),
    ]
    with pytest.raises(ValueError, match="wording=men: use one of male, female, neutral"):
        wordings.pairs("men", "female")
    only = wordings.select_queries(["q2", "q9"])
    assert (list(only.items), only.topics, only.stereotypes) == (["q2"], {}, {"q2": "none"})
    with pytest.raises(ValueError, match="toy: no document has both a male and a female wording"):
        only.pairs()


def test_topics_are_those_of_topic_or_else_of_category(folder: Path) -> None:
    assert load_wordings(folder).topics == {"q1": "Career"}
    path = folder / "queries.jsonl"
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    first["metadata"]["topic"] = "Work"
    second["metadata"]["topic"] = "Home"
    write_jsonl(path, [first, second])
    assert load_wordings(folder).topics == {"q1": "Work", "q2": "Home"}


def test_an_own_file_says_which_documents_belong_together(folder: Path) -> None:
    write_jsonl(
        folder / "wordings.jsonl",
        [
            {"query_id": "q2", "item": "first", "group": "female", "doc_id": "b"},
            {"query_id": "q2", "item": "first", "group": "male", "doc_id": "a"},
            {"query_id": "q2", "item": "second", "group": "male", "doc_id": "e", "relevance": 2},
            {"query_id": "q2", "item": "second", "group": "female", "doc_id": "d", "relevance": 2},
            {"query_id": "q1", "item": "alone", "group": "male", "doc_id": "c"},
        ],
    )
    wordings = load_wordings(folder, name="mine")
    assert wordings.items == {
        "q2": (
            VariantItem("first", None, {"male": "a", "female": "b"}),
            VariantItem("second", 2, {"male": "e", "female": "d"}),
        )
    }
    assert (wordings.name, wordings.left_out, wordings.stereotypes) == (
        "mine",
        ("c",),
        {"q2": "none"},
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"query_id": "q1", "item": "i", "group": "m", "doc_id": "a"}',
            r"line 1: group=m: use one of male, female",
        ),
        (
            '{"query_id": "q1", "item": "i", "group": "male"}',
            r"line 1: expected a string under 'doc_id', got None",
        ),
        (
            '{"query_id": "q1", "item": "i", "group": "male", "doc_id": "a", "relevance": "1"}',
            "line 1: relevance must",
        ),
        ("[]", r"line 1: expected a JSON object"),
        ("{", r"line 1: expected a JSON object"),
    ],
)
def test_a_bad_line_of_an_own_file_is_named(folder: Path, line: str, message: str) -> None:
    (folder / "wordings.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=rf"wordings\.jsonl, {message}"):
        load_wordings(folder)


def test_two_documents_with_the_same_wording_are_refused(folder: Path) -> None:
    with open(folder / "qrels" / "test.tsv", "a") as handle:
        handle.write("q1\tz\t1\n")
    with pytest.raises(
        ValueError,
        match="'c' and 'z' are both the neutral wording of item 'relevant' of query 'q1'",
    ):
        load_wordings(folder)


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*gone"):
        load_wordings(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"qrels/dev\.tsv"):
        load_wordings(folder, split="dev")
    with open(folder / "qrels" / "test.tsv", "a") as handle:
        handle.write("q1\tnowhere\t1\n")
    with pytest.raises(
        ValueError, match=r"document 'nowhere' of query 'q1' is not in .*corpus\.jsonl"
    ):
        load_wordings(folder)
    write_jsonl(
        folder / "wordings.jsonl",
        [
            {"query_id": "q7", "item": "i", "group": group, "doc_id": group}
            for group in ("male", "female")
        ],
    )
    with pytest.raises(ValueError, match=r"queries\.jsonl has no query 'q7', which has wordings"):
        load_wordings(folder)


def test_a_collection_without_wordings_is_refused(folder: Path) -> None:
    write_jsonl(folder / "corpus.jsonl", [{"_id": key, "text": "t"} for key in "abcdexyz"])
    with pytest.raises(
        ValueError, match=r"no document is there in two wordings; expected metadata\.content_gender"
    ):
        load_wordings(folder)


# judged documents as candidates


def test_judged_documents_are_candidates_in_an_order_that_ignores_relevance(folder: Path) -> None:
    collection = load_beir(str(folder), "test", candidates="judged")
    candidates = GivenCandidates().candidates(collection)
    assert {query_id: set(scores) for query_id, scores in candidates.items()} == {
        "q1": set("abcde"),
        "q2": set("xyzac"),
    }
    text = (
        (folder / "qrels" / "test.tsv")
        .read_text()
        .replace("\t1\n", "\t7\n")
        .replace("\t0\n", "\t1\n")
    )
    (folder / "qrels" / "test.tsv").write_text(text)
    assert load_beir(str(folder), "test", candidates="judged").candidates == collection.candidates
    assert [
        len(scores)
        for scores in load_beir(
            str(folder), "test", candidates="judged", depth=2
        ).candidates.values()
    ] == [2, 2]
    for scores in candidates.values():
        assert all(0 <= score < 1 for score in scores.values())


def test_judged_documents_that_the_corpus_lacks_are_no_candidates(
    folder: Path, tmp_path: Path
) -> None:
    complete = tmp_path / "official.txt"
    complete.write_text("q1 0 a 3\nq1 0 elsewhere 2\nq2 0 b 1\n")
    collection = load_beir(str(folder), "test", candidates="judged", qrels=str(complete))
    assert {query_id: set(scores) for query_id, scores in collection.candidates.items()} == {
        "q1": {"a"},
        "q2": {"b"},
    }
    assert "elsewhere" in collection.qrels["q1"]


# the real collection


def test_grep_biasir_has_232_pairs_and_six_candidates_per_query(real_data: Path) -> None:
    folder = real_data / "grep_biasir"
    wordings = load_wordings(folder)
    assert len(wordings.items) == 117
    # The non-relevant items of queries 107 and 112, whose documents are marked "both".
    assert wordings.left_out == ("645", "646", "647", "675", "676", "677")
    assert len(wordings.pairs()) == len(wordings.pairs("male", "neutral")) == 232
    assert Counter(wordings.stereotypes.values()) == {"none": 88, "female": 20, "male": 9}
    assert len(set(wordings.topics.values())) == 7
    collection = load_beir(str(folder), "test", candidates="judged")
    assert {len(scores) for scores in collection.candidates.values()} == {6}
    pairs = wordings.pairs()
    texts = collection.documents.get_many(
        [doc_id for pair in pairs for doc_id in (pair.first, pair.second)]
    )
    assert all(texts[pair.first] != texts[pair.second] for pair in pairs)
