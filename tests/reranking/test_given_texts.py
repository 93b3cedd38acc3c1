"""Texts in the forms in which people give them: those of sentence-transformers work, objects come
back whole, and what is no text is named by its place.
"""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from folders_of_strangers import classifier
from small_rankers import SmallRanker

import backpack_rank
from backpack_rank.position.lists.reranker import ListwiseReranker
from backpack_rank.position.lists.windows import SlidingWindows
from backpack_rank.senses.renditions import MeanOfRenditions

QUERY = "the doctor"
PAIRS = [(QUERY, "he saw a nurse"), (QUERY, "bread")]
HIT = {"id": 7, "url": "http://a", "title": "bread", "text": "and fish"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return classifier(tmp_path_factory.mktemp("given") / "folder")


@pytest.fixture(scope="module")
def reranker(folder):
    return backpack_rank.load(folder)


@pytest.fixture(scope="module")
def listwise():
    return ListwiseReranker(SlidingWindows(SmallRanker()))


@pytest.mark.parametrize(
    "given",
    [
        PAIRS,
        [list(pair) for pair in PAIRS],
        tuple(PAIRS),
        np.array(PAIRS),
        PAIRS[0],
        list(PAIRS[1]),
    ],
    ids=["tuples", "lists", "tuple", "array", "one pair", "one list"],
)
def test_pairs_in_the_forms_of_sentence_transformers(folder, reranker, given):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", max_length=24)
    expected = model.predict(given, activation_fn=lambda logits: logits)
    found = reranker.predict(given)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("which", ["reranker", "listwise"])
def test_objects_come_back_whole(request, which):
    hit = {**HIT, "text": "5"}  # the small listwise ranker sorts numbers
    rows = request.getfixturevalue(which).rank(QUERY, ["4", hit], return_documents=True)
    by_place = {row["corpus_id"]: row for row in rows}
    assert by_place[1]["document"] is hit
    assert by_place[1]["text"] == "5"
    assert "document" not in by_place[0]


def test_fields_of_objects_are_read_below_each_other(reranker):
    documents = ["he saw a nurse", HIT]
    both = reranker.rank(QUERY, documents, return_documents=True, rank_fields=["title", "text"])
    plain = reranker.rank(QUERY, ["he saw a nurse", "bread\nand fish"])
    assert [row["score"] for row in both] == [row["score"] for row in plain]
    with pytest.raises(TypeError, match=r"documents\[1\] has no field 'body'; its fields are id,"):
        reranker.rank(QUERY, documents, rank_fields="body")


WRONG = {
    "bytes": (lambda r: r.rank(QUERY, ["a", b"He"]), "documents[1] must be a text, and is bytes"),
    "None": (lambda r: r.rank(QUERY, ["a", None]), "documents[1] must be a text, and is NoneType"),
    "nan": (lambda r: r.rank(QUERY, [float("nan")]), "documents[0] must be a text, and is float"),
    "one text": (lambda r: r.rank(QUERY, "a text"), "give ['a text']"),
    "texts by id": (lambda r: r.rank(QUERY, {"d1": "a"}), "give list(documents.values())"),
    "a number": (lambda r: r.rank(QUERY, 5), "documents must be a list of texts, and is int"),
    "a query of bytes": (lambda r: r.rank(b"q", ["a"]), "query must be a text, and is bytes"),
}
WRONG_OF_POINTWISE = {
    "a field that is a number": (
        lambda r: r.rank(QUERY, [{"text": 5}]),
        "documents[0]['text'] must be a text, and is int",
    ),
    "several queries": (
        lambda r: r.rank_many([QUERY, None], [["a"], ["a"]]),
        "queries[1] must be a text",
    ),
    "a pair that is none": (lambda r: r.predict([PAIRS[0], "abc"]), "pairs[1] must be a pair"),
    "a pair with None": (
        lambda r: r.predict([(QUERY, None)]),
        "the document of pairs[0] must be a text, and is NoneType",
    ),
    "explained": (lambda r: r.explain(QUERY, b"he"), "document must be a text, and is bytes"),
    "at all alphas": (lambda r: r.sweep(QUERY, [None], [0, 1]), "documents[0] must be a text"),
    "a wrong letter": (
        lambda r: r.rank(QUERY, ["a"], alhpa=0),
        "rank() has no option alhpa: did you mean alpha?",
    ),
    "a class": (
        lambda r: r.rank(QUERY, ["a"], alpha=0, policy=MeanOfRenditions),
        "policy=MeanOfRenditions is a class: give an object of it, MeanOfRenditions.of(attribute)",
    ),
    "no reranker": (
        lambda r: backpack_rank.evaluate([r, "bm25"], "synthetic"),
        "rerankers[1] is 'bm25': give what backpack_rank.load gives",
    ),
}


@pytest.mark.parametrize("which", ["reranker", "listwise"])
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_text_is_named_by_its_place(request, which, kind):
    call, words = WRONG[kind]
    with pytest.raises(TypeError, match=re.escape(words)):
        call(request.getfixturevalue(which))


@pytest.mark.parametrize("kind", WRONG_OF_POINTWISE)
def test_so_it_is_at_the_doors_of_scores(reranker, kind):
    call, words = WRONG_OF_POINTWISE[kind]
    with pytest.raises(TypeError, match=re.escape(words)):
        call(reranker)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("activatoin", "rank() has no option activatoin: did you mean activation?"),
        ("zzz", "rank() has no option zzz"),
    ],
)
def test_an_option_that_there_is_not_is_named_with_one_like_it(reranker, option, sentence):
    with pytest.raises(TypeError) as error:
        reranker.rank(QUERY, ["bread"], **{option: 1})
    assert str(error.value) == sentence


def test_a_folder_of_runs_leads_to_the_last_one(folder, tmp_path):
    for date in ("2026-01-01", "2026-01-02"):
        shutil.copytree(folder, tmp_path / "train" / date / "ranker")
    with pytest.raises(FileNotFoundError, match=r"it holds runs: give one .*train/2026-01-02$"):
        backpack_rank.load(tmp_path / "train")
