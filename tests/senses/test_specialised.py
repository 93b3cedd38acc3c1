"""Senses that training has set apart: kept with the ranker, scaled by the policy, refused where they do not fit."""

import math
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from backpack_rank.models.build import load_ranker, save_ranker
from backpack_rank.models.packing import PackedBatch
from backpack_rank.senses.control import applied
from backpack_rank.senses.specialised import Specialised, SpecialisedSenses, check_senses
from backpack_rank.senses.subject import Subject

CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.fixture
def ranker(make_backpack):
    ranker = make_backpack()
    Specialised("gender", (1, 6)).write(ranker)
    return ranker


def subject(ranker, sensitivity=None):
    return Subject(ranker, None, sensitivity)


def test_the_chosen_senses_are_saved_with_the_ranker(ranker, encoder, tmp_path):
    save_ranker(tmp_path / "ranker", ranker, encoder)
    loaded, _ = load_ranker(tmp_path / "ranker")
    assert Specialised.of(loaded) == Specialised("gender", (1, 6))
    assert SpecialisedSenses("gender").control(subject(loaded), 0.25).weights.tolist() == [1, 0.25, 1, 1, 1, 1, 0.25, 1]


def test_a_ranker_as_it_comes_has_none(make_backpack, encoder, tmp_path):
    save_ranker(tmp_path / "ranker", make_backpack(), encoder)
    assert Specialised.of(load_ranker(tmp_path / "ranker")[0]) is None


def test_exactly_the_stored_senses_are_scaled_whatever_their_sensitivity(ranker):
    low = torch.linspace(-1, 1, 8)  # the paper's rule would take senses 0 and 1
    control = SpecialisedSenses("gender").control(subject(ranker, low), 0.0)
    assert control.weights.tolist() == [1, 0, 1, 1, 1, 1, 0, 1]
    assert (control.name, control.alpha, control.tokens) == ("specialised", 0.0, None)
    assert SpecialisedSenses("gender").control(subject(ranker, low), 1).weights is None


def test_scores_under_the_policy_are_those_of_the_other_senses(ranker, encoder, sentences):
    batch = PackedBatch.from_sequences(encoder.pairs("doctor in the ward", sentences[:4]))
    control = SpecialisedSenses("gender").control(subject(ranker), 0.5)
    with torch.no_grad(), applied(ranker, control):
        found = ranker(batch).scores
    with torch.no_grad():
        senses = ranker.backpack.pooled_senses(batch)
        expected = ranker.head(senses.sum(1) - 0.5 * (senses[:, 1] + senses[:, 6]))
        plain = ranker(batch).scores
    torch.testing.assert_close(found, expected)
    assert (found - plain).abs().max() > 1e-3


def test_a_ranker_trained_without_specialisation_is_refused(make_backpack):
    with pytest.raises(ValueError, match=r"train\.py specialise=attribute"):
        SpecialisedSenses("gender").control(subject(make_backpack()), 0.5)


def test_a_ranker_without_senses_is_refused(make_gpt2):
    with pytest.raises(TypeError, match="GPT2ForRanking has no sense vectors; policy specialised needs"):
        SpecialisedSenses("gender").control(subject(make_gpt2()), 0.5)


def test_another_attribute_is_refused_unless_asked_for(ranker):
    with pytest.raises(ValueError, match=r"set apart for gender.*attribute=religion.*policy\.attribute=gender"):
        SpecialisedSenses("religion").control(subject(ranker), 0.5)
    for attribute in ("gender", None):
        assert SpecialisedSenses(attribute).control(subject(ranker), 0.5).weights is not None


@pytest.mark.parametrize("alpha", [-0.5, math.nan, "1", True])
def test_what_is_no_alpha_is_refused(ranker, alpha):
    with pytest.raises(ValueError, match="alpha="):
        SpecialisedSenses("gender").control(subject(ranker), alpha)


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
    ranker = make_backpack()
    ranker.config.specialised = entry
    with pytest.raises(ValueError, match=message):
        SpecialisedSenses().control(subject(ranker), 0.5)


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


def test_the_file_of_the_policy_takes_the_attribute_that_is_measured():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("evaluate", overrides=["policy=specialised", "attribute=age"])
        other = compose("evaluate", overrides=["policy=specialised", "policy.attribute=null"])
    assert instantiate(config.policy) == SpecialisedSenses("age")
    assert instantiate(other.policy) == SpecialisedSenses(None)
