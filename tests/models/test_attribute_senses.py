"""Attribute senses: scores by a slow calculation, what alpha = 1 and alpha = 0 promise, forms, files, training."""

from __future__ import annotations

import pytest
import torch
from attribute_sense_examples import (
    EXAMPLES,
    GENDER,
    Example,
    attribute,
    new_example,
    new_ranker,
    real_gpt2,
    slow_score,
    slow_senses,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backpack_rank.data.packing import PackedBatch

QUERY = "who is the queen"
WORDS = ["the", "nurse", "said", "sheets", "manual", "soup", "bridge", "herself", "3", ",", '"', "(", ")", "-", "xyz"]
CLASS_WORDS = [word for words in GENDER.values() for word in words]
CASES = (str.lower, str.capitalize, str.upper)


@pytest.fixture(scope="module", params=[*EXAMPLES, "real GPT-2"])
def parts(request):
    """A tokenizer and a kind of backbone."""
    if request.param == "real GPT-2":
        return real_gpt2(request.getfixturevalue("real_data")), "gpt2"
    make, kind = EXAMPLES[request.param]
    return make(), kind


@pytest.fixture(scope="module")
def gender(tmp_path_factory):
    return attribute(tmp_path_factory.mktemp("gender"), "gender", GENDER)


@pytest.fixture(scope="module")
def plain(parts):
    """The ranker of the examples without attribute senses."""
    return new_ranker(*parts)


@pytest.fixture(scope="module")
def example(parts, gender) -> Example:
    return new_example(*parts, [(gender, GENDER)])


@pytest.fixture(scope="module")
def everywhere(parts, gender) -> Example:
    return new_example(*parts, [(gender, GENDER)], where="all")


@pytest.fixture(scope="module")
def at_load(parts, gender) -> Example:
    return new_example(*parts, [(gender, GENDER)], read_as_one=False)


cased = st.builds(lambda word, case: case(word), st.sampled_from(CLASS_WORDS), st.sampled_from(CASES))
texts = st.lists(st.one_of(cased, st.sampled_from(WORDS)), max_size=7).map(" ".join)
few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)


def scores(example, batch, factors=None):
    with torch.no_grad():
        return example.ranker(batch, sense_weights=None if factors is None else torch.tensor(factors)).scores


def at_zero(example):
    return [1.0] * example.ranker.config.num_senses + [0.0] * len(example.groups)


@pytest.mark.parametrize("name", ["example", "everywhere", "at_load"])
def test_senses_and_scores_are_those_of_the_slow_calculation(example, everywhere, at_load, name):
    example = {"example": example, "everywhere": everywhere, "at_load": at_load}[name]
    documents = [
        "She said (he is a nurse) and the QUEEN, her actress; sheets manual",
        '"woman" said King',
        "",
        "the actor",
        "She said soup",
    ]
    query = "who is the king or her" if name == "everywhere" else QUERY
    batch = example.batch(query, documents)
    with torch.no_grad():
        found = example.ranker(batch, return_senses=True)
    k = example.ranker.config.num_senses
    assert found.senses.shape == (len(documents), k + 2, 16)
    assert found.senses[0, k:].abs().sum(dim=1).min() > 1e-3
    for row, document in enumerate(documents):
        expected = slow_senses(example, query, document)
        torch.testing.assert_close(found.senses[row].double(), expected, atol=2e-4, rtol=2e-4)
        for factors in ([1.0] * (k + 2), at_zero(example), [1.0] * k + [0.5, 0.5], [0.3, 2, 1, 0, 0.7, 1.3]):
            score = slow_score(example.ranker, expected, factors)
            assert scores(example, batch, factors)[row].item() == pytest.approx(score, abs=5e-4)
    torch.testing.assert_close(scores(example, batch), found.scores, atol=1e-4, rtol=1e-4)


@few
@given(document=texts)
def test_any_document_is_read_as_by_the_slow_calculation(example, document):
    with torch.no_grad():
        found = example.ranker(example.batch(QUERY, [document]), return_senses=True).senses[0]
    torch.testing.assert_close(found.double(), slow_senses(example, QUERY, document), atol=2e-4, rtol=2e-4)


@few
@given(documents=st.lists(texts, min_size=1, max_size=4))
def test_splitting_at_load_changes_no_bit_at_alpha_1(plain, at_load, documents):
    ranker, pair_tokenizer = plain
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, documents))
    with torch.no_grad():
        expected = ranker(batch, return_senses=True)
        found = at_load.ranker(batch, return_senses=True)
        assert torch.equal(at_load.ranker(batch).scores, ranker(batch).scores)
    torch.testing.assert_close(found.senses.sum(dim=1), expected.senses.sum(dim=1), atol=1e-4, rtol=1e-4)
    ones = [1.0] * at_load.ranker.config.total_senses
    torch.testing.assert_close(scores(at_load, batch, ones), expected.scores, atol=1e-4, rtol=1e-4)


template = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.tuples(st.sampled_from(sorted(GENDER)), st.sampled_from(CASES), st.booleans(), st.booleans()),
    ),
    min_size=1,
    max_size=8,
)


def written(pieces, side: int) -> str:
    """A text with the words of classes of one side, or of the other."""
    words = []
    for piece in pieces:
        if isinstance(piece, str):
            words.append(piece)
            continue
        key, case, first, second = piece
        members = list(GENDER[key])
        words.append(case(members[int(first if side == 0 else second)]))
    return " ".join(words)


@few
@given(templates=st.lists(template, min_size=1, max_size=3))
def test_at_alpha_0_documents_that_differ_in_words_of_classes_have_one_score(example, templates):
    first, second = (example.batch(QUERY, [written(one, side) for one in templates]) for side in (0, 1))
    found = [scores(example, batch, at_zero(example)) for batch in (first, second)]
    # Decoders read what neighbours begin with once; where a swap makes beginnings alike, sums differ by rounding.
    if len(templates) == 1 or example.ranker.config.pooling == "first":
        assert torch.equal(*found)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


@few
@given(question=template, templates=st.lists(template, min_size=1, max_size=2))
def test_queries_too_where_all_words_are_read_as_one(everywhere, question, templates):
    question = ["who", *question]
    batches = [everywhere.batch(written(question, side), [written(t, side) for t in templates]) for side in (0, 1)]
    found = [scores(everywhere, batch, at_zero(everywhere)) for batch in batches]
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    if len(templates) == 1:
        assert torch.equal(*found)


def test_words_of_one_class_really_differ_at_alpha_1(example):
    first, second = (scores(example, example.batch(QUERY, [f"the {word} said"])) for word in ("actor", "actress"))
    assert (first - second).abs() > 1e-4


def test_a_query_keeps_its_words(example):
    first, second = (scores(example, example.batch(q, ["she said"]), at_zero(example)) for q in ("a king", "a queen"))
    assert (first - second).abs() > 1e-4


@pytest.mark.parametrize("text", ["the sheets", "the manual", "bridge", "kings", "womanly said", "xqueenx"])
def test_pieces_of_other_words_are_left_alone(example, text):
    batch = example.batch(QUERY, [text])
    assert torch.equal(example.ranker.backpack.read(batch).input_ids, batch.input_ids)
