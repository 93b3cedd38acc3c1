"""Training lists: what is in them, and that draws depend on nothing but seed, epoch and query."""

from collections import Counter

import pytest
from hash_seeds import printed_under_hash_seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.training_lists import TrainingList, TrainingLists

DOC_IDS = [f"d{i}" for i in range(12)]
QUERY_IDS = ["q1", "q2", "q3", "q4"]


def make(qrels, candidates, documents=DOC_IDS, queries=QUERY_IDS, **options) -> TrainingLists:
    store = MemoryStore(dict.fromkeys(documents, "text"))
    collection = Collection("tiny", store, dict.fromkeys(queries, "text"), qrels)
    return TrainingLists(collection, candidates, **options)


def good(labels):
    return {doc: label for doc, label in labels.items() if label > 0 and doc in DOC_IDS}


judged = st.dictionaries(
    st.sampled_from([*DOC_IDS, "gone1", "gone2"]), st.integers(-1, 3), max_size=8
)
ranked = st.lists(st.sampled_from(DOC_IDS), unique=True, max_size=10).map(
    lambda ids: {doc_id: float(-rank) for rank, doc_id in enumerate(ids)}
)
some_qrels = st.dictionaries(st.sampled_from(QUERY_IDS), judged).filter(
    lambda qrels: any(good(labels) for labels in qrels.values())
)
some_candidates = st.dictionaries(st.sampled_from(QUERY_IDS), ranked)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(some_qrels, some_candidates, st.integers(2, 14), st.integers(0, 3), st.data())
def test_every_list_keeps_the_rules(qrels, candidates, size, epoch, data):
    limit = data.draw(st.none() | st.integers(1, size - 1))
    lists = make(qrels, candidates, size=size, max_relevant=limit, seed=7)
    positives = {query_id: good(qrels.get(query_id, {})) for query_id in QUERY_IDS}
    trained = {query_id for query_id in QUERY_IDS if positives[query_id]}
    drawn = lists.epoch(epoch)
    assert sorted(entry.query_id for entry in drawn) == sorted(trained)
    assert len(lists) == len(drawn)
    assert lists.skipped == len(QUERY_IDS) - len(trained)
    missing = 0
    for labels in qrels.values():
        for doc_id, label in labels.items():
            missing += label > 0 and doc_id not in DOC_IDS
    assert lists.missing == missing
    pool = set()
    for query_id in trained:
        pool |= {*positives[query_id], *candidates.get(query_id, {})}
    for entry in drawn:
        relevant = positives[entry.query_id]
        candidates_of_query = set(candidates.get(entry.query_id, {}))
        wanted = min(len(relevant), size // 2 if limit is None else limit)
        others = entry.doc_ids[wanted:]
        assert len(set(entry.doc_ids)) == len(entry.doc_ids) == len(entry.labels)
        assert entry.labels == tuple(relevant.get(doc, 0) for doc in entry.doc_ids)
        assert sum(label > 0 for label in entry.labels) == wanted
        assert list(entry.labels) == sorted(entry.labels, reverse=True)
        assert set(others) <= pool - set(relevant)
        assert len(entry.doc_ids) == min(size, wanted + len(pool - set(relevant)))
        # Documents of other queries come only after the query's own candidates are used up.
        free = candidates_of_query - set(relevant)
        assert len(free & set(others)) >= min(len(free), size - wanted)


def test_an_example_by_hand():
    qrels = {"q1": {"d1": 2, "d2": 0}, "q2": {"d9": 1}}
    candidates = {"q1": {"d1": 3.0, "d2": 2.0, "d3": 1.0}}
    lists = make(qrels, candidates, queries=["q1", "q2"], size=4, max_relevant=1)
    entry = lists.sample("q1", 0)
    assert entry.doc_ids[0] == "d1"
    assert set(entry.doc_ids[1:3]) == {"d2", "d3"}
    assert entry.doc_ids[3] == "d9"
    assert entry.labels == (2, 0, 0, 0)


def test_a_list_stays_short_when_there_is_nothing_else():
    lists = make({"q1": {"d1": 1}}, {"q1": {"d1": 1.0, "d2": 0.5}}, queries=["q1"], size=10)
    assert lists.epoch(0) == [TrainingList("q1", ("d1", "d2"), (1, 0))]


def test_the_papers_setting_gives_one_relevant_and_nine_others():
    qrels = {"q1": {"d0": 1, "d1": 1, "d2": 1}}
    lists = make(qrels, {"q1": dict.fromkeys(DOC_IDS, 1.0)}, size=10, max_relevant=1)
    for epoch in range(5):
        assert Counter(lists.sample("q1", epoch).labels) == {1: 1, 0: 9}


def test_each_relevant_document_and_each_candidate_gets_its_turn():
    qrels = {"q1": {"d0": 1, "d1": 1, "d2": 1}}
    lists = make(qrels, {"q1": dict.fromkeys(DOC_IDS, 1.0)}, queries=["q1"], size=4, max_relevant=1)
    entries = [lists.sample("q1", epoch) for epoch in range(600)]
    first = Counter(entry.doc_ids[0] for entry in entries)
    others = Counter(doc_id for entry in entries for doc_id in entry.doc_ids[1:])
    # 200 expected each, standard deviation below 12: five deviations.
    assert first.keys() == {"d0", "d1", "d2"}
    assert all(abs(count - 200) < 60 for count in first.values())
    assert others.keys() == set(DOC_IDS[3:])
    assert all(abs(count - 200) < 60 for count in others.values())


def many_queries():
    queries = [f"q{i}" for i in range(30)]
    qrels = {query_id: {f"d{i % 12}": 1} for i, query_id in enumerate(queries)}
    candidates = {}
    for i, query_id in enumerate(queries):
        candidates[query_id] = {f"d{(i * 5 + j) % 12}": float(-j) for j in range(3)}
    return queries, qrels, candidates


def test_epochs_and_seeds_draw_anew_and_shuffle():
    queries, qrels, candidates = many_queries()
    lists = make(qrels, candidates, queries=queries, size=4)
    assert lists.epoch(0) == lists.epoch(0)
    order = [[entry.query_id for entry in lists.epoch(epoch)] for epoch in range(2)]
    assert order[0] != order[1] != sorted(order[1])
    other = make(qrels, candidates, queries=queries, size=4, seed=1)
    for changed in (lists.epoch(1), other.epoch(0)):
        same = {entry.query_id: entry for entry in lists.epoch(0)}
        assert any(same[entry.query_id] != entry for entry in changed)


def test_the_order_of_dictionaries_and_of_draws_does_not_matter():
    queries, qrels, candidates = many_queries()
    lists = make(qrels, candidates, queries=queries, size=6)
    reversed_candidates = {}
    for query_id, scores in reversed(candidates.items()):
        reversed_candidates[query_id] = dict(reversed(scores.items()))
    reversed_qrels = dict(reversed(qrels.items()))
    from_reversed = make(reversed_qrels, reversed_candidates, queries=queries[::-1], size=6)
    from_reversed.epoch(5)
    assert from_reversed.epoch(0) == lists.epoch(0)
    (entry,) = [entry for entry in lists.epoch(2) if entry.query_id == "q7"]
    assert entry == from_reversed.sample("q7", 2)


def test_the_hash_seed_does_not_matter():
    script = (
        "from backpack_rank.data.collection import Collection, MemoryStore\n"
        "from backpack_rank.data.training_lists import TrainingLists\n"
        "documents = MemoryStore({f'd{i}': 'x' for i in range(40)})\n"
        "qrels = {f'q{i}': {f'd{i}': 1, f'd{i + 9}': 2, f'd{i + 20}': 1} for i in range(20)}\n"
        "candidates = {f'q{i}': {f'd{(i * 7 + j) % 40}': 1.0 for j in range(4)} for i in "
        "range(20)}\ncollection = Collection('c', documents, {q: 'x' for q in qrels}, qrels)\n"
        "print(TrainingLists(collection, candidates, size=8).epoch(3))\n"
    )
    first, second = printed_under_hash_seeds(script, "1", "2")
    assert first == second
    assert "TrainingList" in first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "training list: size=1 must be at least 2"),
        ({"size": 4, "max_relevant": 0}, "between 1 and size - 1 = 3, got 0"),
        ({"size": 4, "max_relevant": 4}, "between 1 and size - 1 = 3, got 4"),
    ],
)
def test_impossible_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make({"q1": {"d1": 1}}, {}, **options)


def test_a_collection_without_relevant_documents_is_refused():
    with pytest.raises(ValueError, match="'tiny': none of its 4 queries has a relevant document"):
        make({"q1": {"gone": 1, "d1": 0}}, {"q1": {"d1": 1.0}})


def test_a_query_without_a_list_is_named():
    with pytest.raises(KeyError, match="'q2' has no relevant document"):
        make({"q1": {"d1": 1}}, {}).sample("q2", 0)


def test_an_epoch_of_fewer_lists_draws_other_queries_each_time() -> None:
    queries = [f"q{number}" for number in range(40)]
    qrels = {query_id: {DOC_IDS[0]: 1} for query_id in queries}
    lists = make(qrels, {}, queries=queries, size=2, max_relevant=1, per_epoch=8)
    epochs = [tuple(item.query_id for item in lists.epoch(epoch)) for epoch in range(3)]
    assert len(lists) == 8
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len(set(epochs)) == 3
    assert len(lists.query_ids) == 40
