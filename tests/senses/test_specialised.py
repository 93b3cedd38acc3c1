"""Senses that training has set apart: kept with the ranker, refused where an entry does not fit."""

import pytest

from backpack_rank.models.factory import load_ranker, save_ranker
from backpack_rank.senses.specialised import Specialised, check_senses, specialised_senses


def test_the_chosen_senses_are_saved_with_the_ranker(make_backpack, pair_tokenizer, tmp_path):
    ranker = make_backpack()
    Specialised("gender", (1, 6)).write(ranker.config)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    assert specialised_senses(load_ranker(tmp_path / "ranker")[0].config) == Specialised("gender", (1, 6))


def test_a_new_ranker_has_none(make_backpack, pair_tokenizer, tmp_path):
    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    assert specialised_senses(load_ranker(tmp_path / "ranker")[0].config) is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"attribute": "gender"}, "without attribute and senses"),
        ([1, 2], "without attribute and senses"),
        ({"attribute": "gender", "senses": [8]}, r"senses 0 to 7, not 8"),
        ({"attribute": "gender", "senses": []}, "one sense or more"),
    ],
)
def test_an_entry_that_was_edited_wrongly_is_refused(make_backpack, entry, message):
    config = make_backpack().config
    config.specialised = entry
    with pytest.raises(ValueError, match=message):
        specialised_senses(config)


@pytest.mark.parametrize(
    ("senses", "message"),
    [
        ([4], "not 4"),
        ([-1], "not -1"),
        ([1, 1], "each once"),
        ([], "one sense or more"),
        ([0, 1, 2, 3], "all 4 senses"),
    ],
)
def test_senses_are_some_of_the_rankers_each_once(senses, message):
    with pytest.raises(ValueError, match=rf"option=.*{message}"):
        check_senses(senses, 4, "option")
    check_senses([0, 3], 4, "option")
