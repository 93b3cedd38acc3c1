"""Several collections as one."""

import pytest

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.sources.union import load_union


def part(name, word, **options):
    return Collection(
        name,
        MemoryStore({"d1": f"{word} one", "d2": f"{word} two", "a/b": f"{word} slash"}),
        {"q": f"{word}?"},
        {"q": {"d1": 1, "a/b": 2}},
        **options,
    )


@pytest.fixture
def union():
    first = part("first/train", "cat", candidates={"q": {"d2": 0.5}}, groups={"d1": "female"})
    return load_union(
        {"x": first, "y": part("second/train", "dog", candidates={"q": {"d1": 0.25}})}
    )


def test_equal_ids_of_different_parts_stay_apart(union):
    assert union.name == "first/train+second/train"
    assert union.queries == {"x/q": "cat?", "y/q": "dog?"}
    assert union.qrels == {"x/q": {"x/d1": 1, "x/a/b": 2}, "y/q": {"y/d1": 1, "y/a/b": 2}}
    assert union.candidates == {"x/q": {"x/d2": 0.5}, "y/q": {"y/d1": 0.25}}
    assert union.groups == {"x/d1": "female"}


def test_documents_are_found_by_part(union):
    documents = union.documents
    assert list(documents.get_many(["y/d2", "x/d1", "x/a/b", "y/d2"]).items()) == [
        ("y/d2", "dog two"),
        ("x/d1", "cat one"),
        ("x/a/b", "cat slash"),
    ]
    assert len(documents) == 6
    assert dict(documents) == documents.get_many(doc_id for doc_id, _ in documents)
    assert "x/d1" in documents
    assert not {"d1", "x/d9", "z/d1", "x"} & {
        i for i in ("d1", "x/d9", "z/d1", "x") if i in documents
    }


@pytest.mark.parametrize("missing", ["z/d1", "d1", "x/d9"])
def test_missing_documents_are_named_with_their_part(union, missing):
    with pytest.raises(KeyError, match=f"not in the collection: '{missing}'"):
        union.documents.get_many(["x/d1", missing])


def test_candidates_are_kept_only_when_every_part_has_some():
    assert (
        load_union(
            {"x": part("first", "cat", candidates={"q": {"d1": 1.0}}), "y": part("second", "dog")}
        ).candidates
        is None
    )


def test_a_name_can_be_given():
    assert load_union({"x": part("first", "cat")}, name="all").name == "all"


def test_a_part_that_is_none_is_left_out():
    parts = {"x": None, "y": part("second", "dog")}
    union = load_union(parts, sample={"x": None})
    assert union.documents.fingerprint == load_union({"y": parts["y"]}).documents.fingerprint
    assert set(union.queries) == {f"y/{query_id}" for query_id in parts["y"].queries}
    with pytest.raises(ValueError, match=r"sample\.x=6 does nothing: the part x is left out"):
        load_union(parts, sample={"x": 6})


@pytest.mark.parametrize("parts", [{}, {"a": None}, {"a/b": part("first", "cat")}])
def test_no_part_and_names_with_a_slash_are_refused(parts):
    with pytest.raises(ValueError, match="a union needs parts with names without a slash"):
        load_union(parts)


def test_the_fingerprint_changes_with_parts_and_their_names(union):
    cat, dog = part("first", "cat"), part("second", "dog")
    prints = [
        load_union(parts).documents.fingerprint
        for parts in ({"x": cat, "y": dog}, {"x": dog, "y": cat}, {"x": cat}, {"x": cat, "z": dog})
    ]
    assert len(set(prints)) == 4
    assert union.documents.fingerprint == prints[0]


def many(count):
    documents = MemoryStore({f"d{n}": f"text {n}" for n in range(count)})
    return Collection(
        "many",
        documents,
        {f"q{n}": "?" for n in range(count)},
        {f"q{n}": {f"d{n}": 1} for n in range(count)},
    )


def test_a_sample_keeps_some_queries_of_a_part_and_all_documents():
    parts = {"x": many(20), "y": many(5)}
    sampled_union = load_union(parts, sample={"x": 6, "y": None})
    kept = [query_id for query_id in sampled_union.queries if query_id.startswith("x/")]
    assert len(kept) == 6
    assert sum(query_id.startswith("y/") for query_id in sampled_union.queries) == 5
    assert set(sampled_union.qrels) == set(sampled_union.queries)
    assert len(sampled_union.documents) == 25
    assert load_union(parts, sample={"x": 6}).queries == sampled_union.queries
    assert load_union(parts, sample={"x": 6}, seed=1).queries != sampled_union.queries
    assert set(kept) < set(load_union(parts, sample={"x": 7}).queries), (
        "a larger sample holds the smaller one"
    )


@pytest.mark.parametrize(
    ("sample", "message"), [({"z": 3}, r"sample\.z.*x, y"), ({"x": 0}, r"sample\.x=0")]
)
def test_a_sample_of_nothing_is_refused(sample, message):
    with pytest.raises(ValueError, match=message):
        load_union({"x": many(3), "y": many(3)}, sample=sample)
