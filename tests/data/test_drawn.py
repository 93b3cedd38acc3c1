"""Texts drawn from pairs are those that the encoder makes of them, each pair at most once."""

import pytest

from backpack_rank.data.batching import Pairs
from backpack_rank.data.drawn import sample_texts


@pytest.fixture
def pairs(tiny_collection):
    run = {"q1": dict.fromkeys(["d0", "d1", "empty"], 0.0), "q2": dict.fromkeys(["d4", "d5", "d0", "d6"], 0.0)}
    return Pairs.from_run(run, tiny_collection)


def test_every_pair_is_drawn_once_and_encoded_as_the_ranker_reads_it(pairs, pair_tokenizer):
    expected = [pair_tokenizer.pairs(query, [document])[0].tolist() for query, document in pairs.texts()]
    found = [text.tolist() for text in sample_texts(pairs, pair_tokenizer, 100, seed=0)]
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_the_draw_depends_on_the_seed_alone_and_fewer_texts_are_the_first_of_more(pairs, pair_tokenizer):
    first, again, other = ([t.tolist() for t in sample_texts(pairs, pair_tokenizer, 7, seed)] for seed in (0, 0, 1))
    assert first == again != other
    assert [text.tolist() for text in sample_texts(pairs, pair_tokenizer, 3, 0)] == first[:3]


def test_no_pairs_are_refused(tiny_collection, pair_tokenizer):
    with pytest.raises(ValueError, match="tiny has no candidates"):
        sample_texts(Pairs.from_run({}, tiny_collection), pair_tokenizer, 5, 0)
