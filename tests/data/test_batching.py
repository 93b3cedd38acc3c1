"""Rows of query and candidate: order, chunks, packing, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.batching import PairPortions, Pairs, pack_by_length, sample_texts
from backpack_rank.data.collection import Collection, MemoryStore

RUN = {"q2": {"d4": 3.0, "empty": 2.0}, "q1": {"d1": 1.0, "d0": 0.5, "d4": 0.1}}


def test_rows_are_the_runs_pairs_in_its_order(tiny_collection):
    pairs = Pairs.from_run(RUN, tiny_collection)
    assert len(pairs) == 5
    assert pairs.query_ids == ("q2", "q2", "q1", "q1", "q1")
    assert pairs.doc_ids == ("d4", "empty", "d1", "d0", "d4")
    texts = list(pairs.texts())
    assert texts[1] == ("bridge engineer", "")
    assert texts[2][1].startswith("The doctor said she")


def test_texts_are_right_across_chunks_of_reading():
    documents = {f"d{i}": f"text {i}" for i in range(5000)}
    collection = Collection("many", MemoryStore(documents), {"q": "query"}, {})
    order = [f"d{i}" for i in np.random.default_rng(0).permutation(5000)]
    pairs = Pairs.from_run({"q": dict.fromkeys(order, 0.0)}, collection)
    assert [text for _, text in pairs.texts()] == [documents[doc_id] for doc_id in order]


def test_queries_that_the_collection_does_not_have_are_named(tiny_collection):
    with pytest.raises(ValueError, match="1 queries of the candidates are not in tiny: q9"):
        Pairs.from_run({**RUN, "q9": {"d0": 1.0}}, tiny_collection)


def test_documents_that_the_collection_does_not_have_are_named(tiny_collection, pair_tokenizer):
    pairs = Pairs.from_run({"q1": {"d0": 1.0, "d99": 0.5}}, tiny_collection)
    with pytest.raises(KeyError, match="d99"):
        list(pairs.texts())
    with pytest.raises(KeyError, match="d99"):
        PairPortions(pairs, pair_tokenizer)[0]


def test_scores_become_a_run(tiny_collection):
    scores = np.array([0.5, -1, 2, 3, 4], dtype=np.float32)
    run = Pairs.from_run(RUN, tiny_collection).to_run(scores)
    assert run == {"q2": {"d4": 0.5, "empty": -1.0}, "q1": {"d1": 2.0, "d0": 3.0, "d4": 4.0}}
    assert type(run["q2"]["d4"]) is float


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_name_query_and_document(tiny_collection, value):
    pairs = Pairs.from_run(RUN, tiny_collection)
    message = "2 scores are not finite, the first for query q1 and document d1"
    with pytest.raises(ValueError, match=message):
        pairs.to_run(np.array([0, 0, value, 0, value]))


def test_another_number_of_scores_is_refused(tiny_collection):
    with pytest.raises(ValueError, match="4 scores for 5 pairs"):
        Pairs.from_run(RUN, tiny_collection).to_run(np.zeros(4))


def encoded(pairs, pair_tokenizer):
    """Tokens of each pair by itself."""
    rows = [pair_tokenizer.pairs(query, [document])[0] for query, document in pairs.texts()]
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("rows", [1, 2, 3, 512])
def test_chunks_hold_every_row_once_with_its_own_tokens(tiny_collection, pair_tokenizer, rows):
    pairs = Pairs.from_run(RUN, tiny_collection)
    chunks = PairPortions(pairs, pair_tokenizer, tokens_per_batch=60, rows=rows)
    assert len(chunks) == -(-5 // rows)
    ids_by_row = {}
    for index in range(len(chunks)):
        for numbers, batch in chunks[index]:
            ids = np.split(batch.input_ids.numpy(), batch.offsets[1:-1].numpy())
            for number, text in zip(numbers.tolist(), ids, strict=True):
                ids_by_row[number] = text.tolist()
    assert ids_by_row == dict(enumerate(encoded(pairs, pair_tokenizer)))
    with pytest.raises(IndexError):
        chunks[len(chunks)]


def test_an_empty_query_is_named(tiny_collection, pair_tokenizer):
    tiny_collection.queries["q2"] = "  "
    with pytest.raises(ValueError, match="query q2 of tiny: the query is empty"):
        PairPortions(Pairs.from_run(RUN, tiny_collection), pair_tokenizer)[0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 60))
def test_batches_stay_below_the_budget_unless_one_text_is_longer(lengths, budget):
    sequences = [np.full(length, number) for number, length in enumerate(lengths)]
    rows = np.arange(100, 100 + len(lengths))
    batches = pack_by_length(rows, sequences, budget)
    assert sorted(int(row) for numbers, _ in batches for row in numbers) == rows.tolist()
    assert all(len(batch) == 1 or len(batch.input_ids) <= budget for _, batch in batches)
    longest = [batch.max_length for _, batch in batches]
    assert longest == sorted(longest)
    for numbers, batch in batches:
        assert batch.lengths == [lengths[row - 100] for row in numbers]
        assert set(batch.input_ids.tolist()) == {int(row) - 100 for row in numbers}


@pytest.fixture
def pairs(tiny_collection):
    documents = {"q1": ["d0", "d1", "empty"], "q2": ["d4", "d5", "d0", "d6"]}
    run = {query_id: dict.fromkeys(ids, 0.0) for query_id, ids in documents.items()}
    return Pairs.from_run(run, tiny_collection)


def test_every_pair_is_drawn_once_and_encoded_as_the_ranker_reads_it(pairs, pair_tokenizer):
    expected = encoded(pairs, pair_tokenizer)
    sampled = [text.tolist() for text in sample_texts(pairs, pair_tokenizer, 100, seed=0)]
    assert sorted(sampled) == sorted(expected)
    assert sampled != expected


def test_the_draw_depends_on_the_seed_alone_and_fewer_texts_are_the_first_of_more(
    pairs, pair_tokenizer
):
    first, again, other = (
        [t.tolist() for t in sample_texts(pairs, pair_tokenizer, 7, seed)] for seed in (0, 0, 1)
    )
    assert first == again != other
    assert [text.tolist() for text in sample_texts(pairs, pair_tokenizer, 3, 0)] == first[:3]


def test_no_pairs_are_refused(tiny_collection, pair_tokenizer):
    with pytest.raises(ValueError, match="tiny has no candidates"):
        sample_texts(Pairs.from_run({}, tiny_collection), pair_tokenizer, 5, 0)
