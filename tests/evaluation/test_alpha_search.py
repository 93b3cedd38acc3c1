"""Budgets: how they are read, and a search that finds what trying every alpha finds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.evaluation.alpha_search import (
    GRID,
    Budget,
    BudgetUnreachableError,
    check_budgets,
    largest_change,
    mean_values,
    parse_budgets,
    smallest_change,
)
from backpack_rank.evaluation.results import PerQuery


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("|gap|/std<=0.02", Budget("|gap|/std", False, 0.02)),
        (" |RaB(tf)@10| <= .03 ", Budget("RaB(tf)@10", True, 0.03)),
        ("mean|RaB(tf)@10|<=0.2", Budget("mean|RaB(tf)@10|", False, 0.2)),
        ("nDCG@10 loss<=1%", Budget("nDCG@10", False, 0.01, "loss")),
        ("nDCG@10  loss <= 1 %", Budget("nDCG@10", False, 0.01, "loss")),
        ("NFaiRR@10>=0.95", Budget("NFaiRR@10", False, 0.95, "at least")),
        ("prefers male≤55%", Budget("prefers male", False, 0.55)),
        ("|gap/std|≥1e-3", Budget("gap/std", True, 0.001, "at least")),
        ("RR(rel=2)@10 loss<=.5%", Budget("RR(rel=2)@10", False, 0.005, "loss")),
        ("gap<=-0.5", Budget("gap", False, -0.5)),
    ],
)
def test_budgets_are_read_as_written(text, expected):
    assert parse_budgets(text) == (expected,)


def test_several_budgets_in_one_text_or_a_list():
    expected = (Budget("|gap|/std", False, 0.02), Budget("nDCG(a=1, b=2)@10", False, 0.01, "loss"))
    assert parse_budgets("|gap|/std<=0.02, nDCG(a=1, b=2)@10 loss<=1%") == expected
    assert parse_budgets("|gap|/std<=0.02; nDCG(a=1, b=2)@10 loss<=1%;") == expected
    assert parse_budgets(["|gap|/std<=0.02", "nDCG(a=1, b=2)@10 loss<=1%"]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "|gap|/std<=0.02",
        "|RaB(tf)@10|<=0.03",
        "mean|RaB(tf)@10|<=0.2",
        "nDCG@10 loss<=1%",
        "NFaiRR@10>=0.95",
    ],
)
def test_a_budget_is_written_as_it_is_read(text):
    (budget,) = parse_budgets(text)
    assert str(budget) == text
    assert parse_budgets(str(budget)) == (budget,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no budget"),
        (" ; ", "names no budget"),
        ([], "names no budget"),
        ("nDCG@10", "write a measure, <= or >="),
        ("<=0.3", "write a measure"),
        (" loss<=1%", "names no measure"),
        ("gap<0.3", "use <= or >=, not '<'"),
        ("gap==0.3", "use <= or >=, not '=='"),
        ("0<=gap<=1", "cannot be read"),
        ("gap<=small", "'small' is no number"),
        ("gap<=", "'' is no number"),
        ("gap<=nan", "'nan' is no number"),
        ("gap<=1_0", "'1_0' is no number"),
        ("gap<=\uff11", "is no number"),
        ("gap<=1e999", "is no number"),
        ("nDCG@10 loss<=1", "give it in %"),
        ("nDCG@10 loss<=0.01", "give it in %"),
        ("nDCG@10 loss<=-1%", "a loss lies from 0% to 100%"),
        ("nDCG@10 loss<=101%", "a loss lies from 0% to 100%"),
        ("nDCG@10 loss>=1%", "a loss is bounded by <="),
        ("|nDCG@10| loss<=1%", "without bars"),
        ("|gap|<=-0.1", "no absolute value"),
        ("| |<=1", "names no measure"),
    ],
)
def test_a_budget_that_cannot_be_read_shows_examples(text, reason):
    with pytest.raises(ValueError, match=r"examples: .*nDCG@10 loss<=1%") as caught:
        parse_budgets(text)
    assert reason in str(caught.value)


def test_bars_around_the_whole_name_are_the_absolute_mean_and_others_belong_to_the_name():
    gaps = PerQuery({"gap/std": {"a": -0.3, "b": 0.1}, "|gap|/std": {"a": 0.3, "b": 0.1}})
    values = mean_values(gaps)
    assert values == pytest.approx(
        {"gap/std": -0.1, "mean|gap/std|": 0.2, "|gap|/std": 0.2, "mean||gap|/std|": 0.2}
    )
    for text, value in [
        ("gap/std<=1", -0.1),
        ("|gap/std|<=1", 0.1),
        ("mean|gap/std|<=1", 0.2),
        ("|gap|/std<=1", 0.2),
    ]:
        assert parse_budgets(text)[0].value(values, values) == pytest.approx(value)


def test_mean_values_of_several_parts_and_names_that_clash():
    parts = [PerQuery({"nDCG@10": {"q": 0.5}}), PerQuery({"RaB(tf)@10": {"n": -0.25}})]
    assert mean_values(*parts)["mean|RaB(tf)@10|"] == 0.25
    assert list(mean_values(*parts)) == [
        "nDCG@10",
        "mean|nDCG@10|",
        "RaB(tf)@10",
        "mean|RaB(tf)@10|",
    ]
    with pytest.raises(ValueError, match="given twice"):
        mean_values(parts[0], parts[0])
    with pytest.raises(ValueError, match="absolute mean"):
        mean_values(PerQuery({"|gap|": {"q": 1.0}}))


def test_a_loss_is_a_share_of_the_value_at_alpha_one():
    (budget,) = parse_budgets("nDCG@10 loss<=1%")
    start = {"nDCG@10": 0.4}
    assert budget.value({"nDCG@10": 0.3}, start) == pytest.approx(0.25)
    assert budget.met({"nDCG@10": 0.4 * 0.99}, start)
    assert not budget.met({"nDCG@10": 0.4 * 0.98}, start)
    assert budget.met({"nDCG@10": 0.5}, start)
    with pytest.raises(ValueError, match="no share of it can be lost"):
        budget.value({"nDCG@10": 0.0}, {"nDCG@10": 0.0})


def test_every_budget_must_be_on_a_measure_that_exists():
    measures = ["nDCG@10", "RaB(tf)@10", "|gap|/std"]
    check_budgets(
        parse_budgets(
            ["nDCG@10 loss<=1%", "|RaB(tf)@10|<=1", "mean|RaB(tf)@10|<=1", "|gap|/std<=1"]
        ),
        measures,
    )
    with pytest.raises(
        ValueError, match=r"Did you mean 'RaB\(tf\)@10'.*There are: nDCG@10, RaB"
    ) as caught:
        check_budgets(parse_budgets("mean|RaB(tf)@1|<=1"), measures)
    assert "'RaB(tf)@1'" in str(caught.value)
    with pytest.raises(ValueError, match="There are: none"):
        check_budgets(parse_budgets("gap<=1"), [])


def linear(alpha):
    """A dial that works as one hopes: the gap falls with alpha, and so does nDCG."""
    return {"gap": 0.1 * alpha, "nDCG@10": 0.5 + 0.02 * alpha}


def test_the_search_ends_within_a_hundredth_of_where_the_budget_is_met():
    choice = smallest_change(linear, parse_budgets("|gap|<=0.0437"))
    assert choice.alpha == 0.43
    assert choice.within
    assert choice.values == linear(0.43)
    assert next(iter(choice.tried)) == 1.0
    assert 0.44 in choice.tried
    assert all(choice.tried[alpha] == linear(alpha) for alpha in choice.tried)


def test_alpha_one_is_kept_when_it_is_within():
    choice = smallest_change(linear, parse_budgets("gap<=0.1; nDCG@10 loss<=0%"))
    assert (choice.alpha, choice.within, list(choice.tried)) == (1.0, True, [1.0])


def test_each_alpha_is_measured_once():
    asked = []

    def measure_at(alpha):
        asked.append(alpha)
        return linear(alpha)

    smallest_change(measure_at, parse_budgets("gap<=0.0437"))
    assert asked[0] == 1.0
    assert len(asked) == len(set(asked)) <= 13 + 3


def test_the_grid_is_not_taken_to_be_monotonic():
    def bumpy(alpha):
        return {"gap": 0.01 if 0.58 <= alpha <= 0.66 else 0.05}

    # 1 and 0 are both outside; the first grid point inside is 0.65, the last hundredth is 0.66.
    assert smallest_change(bumpy, parse_budgets("gap<=0.02")).alpha == 0.66


def test_all_budgets_hold_together():
    # The gap asks for alpha <= 0.8, a loss of 1.5% of 0.52 for alpha >= 0.61.
    choice = smallest_change(linear, parse_budgets(["gap<=0.08", "nDCG@10 loss<=1.5%"]))
    assert choice.alpha == 0.8


def test_an_unreachable_budget_says_the_best_value_and_its_alpha():
    def measure_at(alpha):
        return {"gap": 0.03 + (alpha - 0.35) ** 2}

    with pytest.raises(
        BudgetUnreachableError, match=r"gap<=0\.02 is at best 0\.03 at alpha=0\.35"
    ) as caught:
        smallest_change(measure_at, parse_budgets("gap<=0.02"))
    best = caught.value.found
    assert (best.alpha, best.within, best.values) == (0.35, False, measure_at(0.35))
    assert tuple(best.tried) == GRID


def test_budgets_that_contradict_each_other_say_where_they_come_nearest():
    # Excess in units of the bounds: (0.1 a - 0.02) / 0.02 and (0.02 (1 - a) / 0.52 - 0.01) / 0.01,
    # equal near 0.45.
    with pytest.raises(ValueError, match="unreachable") as caught:
        smallest_change(linear, parse_budgets("gap<=0.02, nDCG@10 loss<=1%"))
    message = str(caught.value)
    assert "gap<=0.02 is at best 0 at alpha=0;" in message
    assert "nDCG@10 loss<=1% is at best 0% at alpha=1." in message
    assert "Together they come nearest at alpha=0.45: gap 0.045, nDCG@10 loss 2.115%" in message


def test_of_equally_bad_alphas_the_one_closest_to_one_is_named():
    with pytest.raises(BudgetUnreachableError) as caught:
        smallest_change(lambda alpha: {"gap": 0.5}, parse_budgets("gap<=0"))
    assert caught.value.found.alpha == 1.0


def test_an_alpha_without_a_value_is_not_within():
    def measure_at(alpha):
        if alpha == 0:
            return {
                "gap": 0.0
            }  # all scores are equal, so the gap in units of their spread has no value
        return {"gap": alpha, "gap/std": math.nan if alpha < 0.3 else 1.0}

    with pytest.raises(BudgetUnreachableError) as caught:
        smallest_change(measure_at, parse_budgets("gap/std<=0.5"))
    assert caught.value.found.alpha == 1.0


def test_what_cannot_be_searched_for_is_refused():
    with pytest.raises(ValueError, match="no budget is given"):
        smallest_change(linear, ())
    with pytest.raises(ValueError, match="which is not measured"):
        smallest_change(linear, parse_budgets("AP loss<=1%"))
    with pytest.raises(ValueError, match="no value at alpha=1"):
        smallest_change(lambda alpha: {"gap": math.nan}, parse_budgets("gap<=1"))
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1.5"):
        smallest_change(linear, parse_budgets("gap<=1"), grid=[1.5])
    for resolution in (0, -1, math.nan):
        with pytest.raises(ValueError, match="resolution"):
            smallest_change(linear, parse_budgets("gap<=1"), resolution=resolution)


@given(st.lists(st.booleans(), min_size=21, max_size=21), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_the_first_point_of_the_grid_that_is_within_is_found_and_refined(inside, threshold):
    """Against a walk over all hundredths: the grid's first cell, then the edge inside it."""

    def measure_at(alpha):
        step = round(alpha * 100)
        if step % 5:  # inside a cell the values follow one threshold, so the edge is unique
            return {"gap": 0.0 if step % 5 <= threshold % 5 else 1.0}
        return {"gap": 0.0 if inside[step // 5] else 1.0}

    if not any(inside):
        with pytest.raises(BudgetUnreachableError):
            smallest_change(measure_at, parse_budgets("gap<=0.5"))
        return
    first = max(step for step in range(21) if inside[step])
    expected = first * 5 + (0 if first == 20 else threshold % 5)
    assert smallest_change(measure_at, parse_budgets("gap<=0.5")).alpha == pytest.approx(
        expected / 100
    )


@given(st.floats(0.0, 0.2), st.floats(0.001, 0.2))
@settings(max_examples=60, deadline=None)
def test_a_found_alpha_is_within_and_one_step_closer_to_one_is_not(bound, slope):
    def measure_at(alpha):
        return {"gap": slope * alpha}

    budgets = (Budget("gap", True, bound),)
    choice = smallest_change(measure_at, budgets)
    assert slope * choice.alpha <= bound + 1e-9
    assert choice.alpha == 1.0 or slope * (choice.alpha + 0.01) > bound


def test_losses_alone_ask_for_the_largest_change_that_they_allow():
    values = {1.0: 0.5, 0.75: 0.497, 0.5: 0.4951, 0.25: 0.4949, 0.0: 0.4}
    tried = []

    def measure_at(alpha):
        tried.append(alpha)
        return {"nDCG@10": values[alpha]}

    (budget,) = parse_budgets("nDCG@10 loss<=1%")  # at least 0.495
    choice = largest_change(measure_at, [budget], grid=(0.0, 0.25, 0.5, 0.75))
    assert (choice.alpha, choice.within) == (0.5, True)
    assert tried == [1.0, 0.0, 0.25, 0.5]
    with pytest.raises(ValueError, match="budgets that are losses"):
        largest_change(measure_at, parse_budgets("nDCG@10>=0.2"))
