"""From sensitivities and alpha to one weight per sense."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.senses.policy import LowestSenses, check_alpha

SENSITIVITY = torch.tensor([0.9, -0.2, 0.5, 0.1, 0.7])


def test_the_paper_scales_the_two_lowest_senses():
    policy = LowestSenses()
    assert policy.count == 2
    assert policy.name == "lowest_2_senses"
    assert policy.chosen(SENSITIVITY).tolist() == [1, 3]
    assert policy.weights(SENSITIVITY, 0.5).tolist() == [1.0, 0.5, 1.0, 0.5, 1.0]
    assert SENSITIVITY.tolist() == pytest.approx([0.9, -0.2, 0.5, 0.1, 0.7])


@pytest.mark.parametrize("alpha", [1, 1.0])
def test_alpha_one_gives_ones(alpha):
    assert LowestSenses(3).weights(SENSITIVITY, alpha).tolist() == [1.0] * 5


def test_alpha_zero_removes_and_more_than_one_amplifies():
    assert LowestSenses(1).weights(SENSITIVITY, 0).tolist() == [1, 0, 1, 1, 1]
    assert LowestSenses(5).weights(SENSITIVITY, 2).tolist() == [2] * 5


def test_equal_sensitivities_are_taken_by_index():
    assert LowestSenses(2).chosen(torch.tensor([0.5, 0.1, 0.1, 0.1])).tolist() == [1, 2]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8), st.floats(0, 4, width=32), st.data())
def test_weights_are_alpha_for_count_senses_and_no_other_sense_is_lower(values, alpha, data):
    count = data.draw(st.integers(1, len(values)))
    weights = LowestSenses(count).weights(torch.tensor(values), alpha).tolist()
    chosen = LowestSenses(count).chosen(torch.tensor(values)).tolist()
    assert len(set(chosen)) == count
    assert all(weight == (alpha if sense in chosen else 1.0) for sense, weight in enumerate(weights))
    rest = [value for sense, value in enumerate(values) if sense not in chosen]
    assert max(values[sense] for sense in chosen) <= min(rest, default=math.inf)


@pytest.mark.parametrize("alpha", [-0.1, -1, math.nan, math.inf, -math.inf, "0.5", True, False, None, [1.0]])
def test_what_is_no_number_from_zero_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha="):
        LowestSenses().weights(SENSITIVITY, alpha)
    with pytest.raises(ValueError, match="alpha="):
        check_alpha(alpha)


def test_more_senses_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"policy\.count=6, but the model has 5 senses"):
        LowestSenses(6).weights(SENSITIVITY, 0.5)


@pytest.mark.parametrize("count", [0, -1])
def test_no_sense_at_all_is_refused(count):
    with pytest.raises(ValueError, match=f"count={count}"):
        LowestSenses(count)
