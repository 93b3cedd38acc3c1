"""Texts in a configuration."""

import pytest

from backpack_rank.data.sources.inline import load_inline


def test_every_document_is_a_candidate_in_the_order_given():
    collection = load_inline(
        "demo", {"q": "who?"}, {"b": "one", "a": "two"}, {"q": {"a": 1}}, {"a": "female"}
    )
    assert collection.candidates == {"q": {"b": 2.0, "a": 1.0}}
    assert collection.documents.get_many(["a"]) == {"a": "two"}
    assert collection.qrels == {"q": {"a": 1}}
    assert collection.groups == {"a": "female"}


def test_ids_that_yaml_reads_as_numbers_are_ids():
    collection = load_inline("demo", {1: "who?"}, {7: "one", 8: "two"}, {1: {8: 1}}, {7: "female"})
    assert collection.queries == {"1": "who?"}
    assert collection.candidates == {"1": {"7": 2.0, "8": 1.0}}
    assert (collection.qrels, collection.groups) == ({"1": {"8": 1}}, {"7": "female"})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"queries": {}}, "demo: there are no queries"),
        ({"documents": {"a": "  "}}, "the text of 'a' in documents is empty"),
        ({"qrels": {"q": {"z": 1}}}, "qrels names 'z'"),
        ({"groups": {"z": "female"}}, "groups names 'z'"),
    ],
)
def test_mistakes_are_named(changed, message):
    given = {"queries": {"q": "who?"}, "documents": {"a": "one"}}
    with pytest.raises(ValueError, match=message):
        load_inline("demo", **{**given, **changed})
