"""Texts drawn from pairs are those that the encoder makes of them, each pair at most once."""

import pytest

from backpack_rank.data.drawn import drawn_texts
from backpack_rank.data.pairs import Pairs


@pytest.fixture
def pairs(tiny_collection):
    run = {"q1": dict.fromkeys(["d0", "d1", "empty"], 0.0), "q2": dict.fromkeys(["d4", "d5", "d0", "d6"], 0.0)}
    return Pairs.from_run(run, tiny_collection)


def test_every_pair_is_drawn_once_and_encoded_as_the_ranker_reads_it(pairs, encoder):
    expected = [encoder.pairs(query, [document])[0].tolist() for query, document in pairs.texts()]
    found = [text.tolist() for text in drawn_texts(pairs, encoder, 100, seed=0)]
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_the_draw_depends_on_the_seed_alone_and_fewer_texts_are_the_first_of_more(pairs, encoder):
    first, again, other = ([t.tolist() for t in drawn_texts(pairs, encoder, 7, seed)] for seed in (0, 0, 1))
    assert first == again != other
    assert [text.tolist() for text in drawn_texts(pairs, encoder, 3, 0)] == first[:3]


def test_no_pairs_are_refused(tiny_collection, encoder):
    with pytest.raises(ValueError, match="tiny has no candidates"):
        drawn_texts(Pairs.from_run({}, tiny_collection), encoder, 5, 0)
