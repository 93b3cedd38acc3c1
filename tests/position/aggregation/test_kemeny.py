"""Kemeny-Young against all permutations, its components, its limits and its choice among equal
orders.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from backpack_rank.position.aggregation import linear_ordering
from backpack_rank.position.aggregation.kemeny import Kemeny, components
from backpack_rank.position.aggregation.rankings import Rankings

LEFT_OUT = None


def pair_costs(profile: list[list[int | None]], items: int) -> list[list[int]]:
    """[i][j]: rankings that contradict i before j, by looking at every ranking; places or None."""
    costs = [[0] * items for _ in range(items)]
    for places in profile:
        for i, j in itertools.permutations(range(items), 2):
            if places[i] is not LEFT_OUT and places[j] is not LEFT_OUT and places[i] > places[j]:
                costs[i][j] += 1
    return costs


def cost_of(order: Sequence[int], costs: list[list[int]]) -> int:
    return sum(costs[first][second] for first, second in itertools.combinations(order, 2))


def least_cost(costs: list[list[int]]) -> int:
    """The smallest cost over all permutations."""
    orders = np.array(list(itertools.permutations(range(len(costs)))))
    table = np.array(costs)
    first, second = np.triu_indices(len(costs), 1)
    return int(table[orders[:, first], orders[:, second]].sum(axis=1).min())


def rankings_of(profile: list[list[int | None]]) -> Rankings[int]:
    places = np.array(profile, dtype=float)  # LEFT_OUT becomes NaN
    return Rankings(tuple(range(places.shape[1])), places)


def mallows(items: int, voters: int, phi: float, seed: int) -> list[list[int]]:
    """Orders by repeated insertion: item i goes j places from the end with a probability
    proportional to phi^j.
    """
    rng = np.random.default_rng(seed)
    orders = []
    for _ in range(voters):
        order: list[int] = []
        for item in range(items):
            weights = phi ** np.arange(item + 1)
            order.insert(item - int(rng.choice(item + 1, p=weights / weights.sum())), item)
        orders.append(order)
    return orders


@st.composite
def profiles(draw: st.DrawFn, most: int = 7) -> list[list[int | None]]:
    """Up to nine rankings of up to seven items: complete without ties, with ties, or with ties and
    items left out.
    """
    items = draw(st.integers(1, most))
    if draw(st.booleans()):
        ranking = st.permutations(range(items))
    elif draw(st.booleans()):
        place = st.one_of(st.none(), st.integers(0, items))
        ranking = st.lists(place, min_size=items, max_size=items)
    else:
        ranking = st.lists(st.integers(0, items // 2), min_size=items, max_size=items)
    return draw(st.lists(ranking, min_size=1, max_size=9))


def random_margins(seed: int, items: int, largest: int) -> np.ndarray:
    """Whole numbers up to ``largest``, as W - W^T may have them. [items, items]"""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.integers(-largest, largest + 1, (items, items)), 1)
    return upper - upper.T


def parts_with_circles(margins: np.ndarray) -> list[np.ndarray]:
    """Margins of each component of more than two items."""
    parts = []
    for members in components(margins):
        if len(members) > 2:
            parts.append(margins[np.ix_(members, members)])
    return parts


def without_local_search(patch: pytest.MonkeyPatch) -> None:
    """The integer programme alone must find the order: local search gives its start back."""
    for name in ("insertion_search", "iterated_search"):
        patch.setattr(linear_ordering, name, lambda margins, order, *_, **__: order)


def solved(margins: np.ndarray) -> linear_ordering.Solution:
    """The order of least loss, with more time and items than any test needs."""
    return linear_ordering.solve(margins, deadline=time.perf_counter() + 100, largest=300)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(profiles())
def test_the_cost_is_the_least_of_all_permutations(profile: list[list[int | None]]) -> None:
    items = len(profile[0])
    costs = pair_costs(profile, items)
    aggregate = Kemeny(time_limit=100).aggregate(rankings_of(profile))
    assert sorted(aggregate.order) == list(range(items))
    assert aggregate.cost == least_cost(costs)
    assert aggregate.cost == cost_of(aggregate.order, costs)
    assert aggregate.cost == aggregate.bound
    assert aggregate.optimal
    assert aggregate.scores == tuple(float(items - place) for place in range(items))


@settings(max_examples=40, deadline=None)
@given(profiles())
def test_absent_items_in_one_tie_at_the_end(profile: list[list[int | None]]) -> None:
    items = len(profile[0])
    filled = [[items + 1 if place is LEFT_OUT else place for place in row] for row in profile]
    aggregate = Kemeny("last", time_limit=100).aggregate(rankings_of(profile))
    assert aggregate.cost == least_cost(pair_costs(filled, items))


@settings(max_examples=40, deadline=None)
@given(profiles(), st.randoms(use_true_random=False))
def test_other_names_and_another_sequence_of_rankings_change_nothing_else(profile, random) -> None:
    items = len(profile[0])
    plain = Kemeny(time_limit=100).aggregate(rankings_of(profile))
    names = tuple(random.sample(["a", "b", "c", "d", "e", "f", "g"], items))
    shuffled = random.sample(profile, len(profile))
    named = Kemeny(time_limit=100).aggregate(Rankings(names, rankings_of(shuffled).places))
    assert named.order == tuple(names[item] for item in plain.order)
    # In another sequence of the items only the choice among equal orders may differ.
    sequence = random.sample(range(items), items)
    resequenced = Rankings(tuple(sequence), rankings_of(profile).places[:, sequence])
    assert Kemeny(time_limit=100).aggregate(resequenced).cost == plain.cost


@settings(max_examples=40, deadline=None)
@given(profiles())
def test_within_the_limits_of_local_search_the_bound_still_holds(
    profile: list[list[int | None]],
) -> None:
    least = least_cost(pair_costs(profile, len(profile[0])))
    for method in (Kemeny(largest=0, time_limit=100), Kemeny(time_limit=1e-9)):
        aggregate = method.aggregate(rankings_of(profile))
        assert sorted(aggregate.order) == list(range(len(profile[0])))
        assert aggregate.bound <= least <= aggregate.cost
        assert aggregate.optimal is (aggregate.bound == aggregate.cost)


def test_a_circle_is_cut_at_its_weakest_place() -> None:
    """a before b by 5 : 2, b before c by 5 : 2, c before a by 4 : 3: abc costs 2 + 2 + 4, bca and
    cab cost 10.
    """
    orders = [["c", "a", "b"]] * 2 + [["b", "c", "a"]] * 2 + [["a", "b", "c"]] * 3
    aggregate = Kemeny().aggregate(Rankings.of_orders(orders))
    assert (aggregate.order, aggregate.cost, aggregate.optimal) == (("a", "b", "c"), 8, True)


def test_components_of_a_profile_are_solved_in_their_order() -> None:
    """Two circles of three and a single item between them."""
    rankings = Rankings.of_orders([list("abcmxyz"), list("bcamyzx"), list("cabmzxy")])
    aggregate = Kemeny().aggregate(rankings)
    assert set(aggregate.order[:3]) == {"a", "b", "c"}
    assert aggregate.order[3] == "m"
    assert set(aggregate.order[4:]) == {"x", "y", "z"}
    # Every circle of three 2:1 majorities costs 1 + 1 + 2.
    assert aggregate.cost == 8
    wins = rankings.precedence()
    members = [sorted(part.tolist()) for part in components(wins - wins.T)]
    assert members == [[0, 1, 2], [3], [4, 5, 6]]


def test_components_with_a_free_order_come_by_lowest_index() -> None:
    margins = np.zeros((5, 5), dtype=np.int64)
    for first, second in ((4, 1), (3, 0), (2, 4)):
        margins[first, second], margins[second, first] = 1, -1
    assert [part.tolist() for part in components(margins)] == [[2], [3], [0], [4], [1]]


def test_ties_go_to_the_mean_rank_and_then_to_the_first_item() -> None:
    def order_of(*orders: str, items: str | None = None) -> str:
        rankings = Rankings.of_orders([list(order) for order in orders], items)
        return "".join(Kemeny().aggregate(rankings).order)

    assert order_of("ab", "ba") == "ab"
    assert order_of("ba", "ab") == "ba"
    # b and x are never compared; b is second in its ranking, and x first.
    assert order_of("ab", "xy") == "axby"
    # Nothing is said about q, which comes last.
    assert order_of("ba", items="qab") == "baq"


def test_neighbours_that_tie_stand_by_mean_rank() -> None:
    for seed in range(20):
        rankings = Rankings.of_orders(mallows(12, 4, 0.9, seed))
        aggregate = Kemeny().aggregate(rankings)
        wins, means = rankings.precedence(), rankings.mean_ranks()
        place = {item: column for column, item in enumerate(rankings.items)}
        for first, second in itertools.pairwise([place[item] for item in aggregate.order]):
            if wins[first, second] == wins[second, first]:
                assert (means[first], first) < (means[second], second)


@pytest.mark.parametrize(("items", "phi", "seed"), [(12, 1.0, 0), (14, 0.97, 1), (15, 0.95, 2)])
def test_the_cost_is_that_of_the_programme_with_all_constraints(
    items: int, phi: float, seed: int
) -> None:
    orders = mallows(items, 9, phi, seed)
    # The place of each item in an order is the inverse of the permutation.
    costs = pair_costs([np.argsort(order).tolist() for order in orders], items)
    column = {pair: number for number, pair in enumerate(itertools.combinations(range(items), 2))}
    rows = []
    for i, j, k in itertools.combinations(range(items), 3):
        row = np.zeros(len(column))
        row[column[i, j]], row[column[j, k]], row[column[i, k]] = 1, 1, -1
        rows.append(row)
    weights = np.array([costs[i][j] - costs[j][i] for i, j in column], dtype=float)
    plain = milp(
        weights,
        integrality=np.ones(len(column)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(np.array(rows), 0, 1),
        options={"mip_rel_gap": 0},
    )
    expected = round(plain.fun) + sum(costs[j][i] for i, j in column)
    aggregate = Kemeny(time_limit=100).aggregate(Rankings.of_orders(orders))
    assert (aggregate.cost, aggregate.bound) == (expected, expected)


def brute_loss(margins: np.ndarray) -> int:
    """The smallest loss over all permutations: i before j goes against a majority for j."""
    return least_cost(margins.T.clip(0).tolist())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([3, 6, 7]), st.sampled_from([1, 3, 50]))
@example(1186, 7, 50)  # with fractions, a circle of three could be half a circle here
@example(1508, 7, 50)
def test_any_margins_are_solved_with_and_without_local_search(
    seed: int, items: int, largest: int
) -> None:
    for part in parts_with_circles(random_margins(seed, items, largest)):
        expected = brute_loss(part)
        assert solved(part).loss == expected
        with pytest.MonkeyPatch.context() as patch:
            without_local_search(patch)
            assert solved(part).loss == expected


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([6, 7]), st.sampled_from([1, 3]), st.booleans())
def test_the_bound_of_a_relaxation_is_below_every_order(
    seed: int, items: int, largest: int, even: bool
) -> None:
    """The solver is stopped early, and nothing else finds a good order."""
    margins = random_margins(seed, items, largest)
    if even:
        margins = 2 * margins

    def stopped(*arguments, options, **more):
        return milp(*arguments, options={**options, "time_limit": 1e-3}, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_ordering, "milp", stopped)
        without_local_search(patch)
        for part in parts_with_circles(margins):
            solution = solved(part)
            assert 0 < solution.bound <= brute_loss(part) <= solution.loss


def test_when_the_solver_runs_out_of_time_local_search_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rankings = Rankings.of_orders(mallows(25, 20, 1.0, 3))
    exact = Kemeny(time_limit=100).aggregate(rankings)
    late = OptimizeResult(status=1, x=None, fun=None, mip_dual_bound=None)
    monkeypatch.setattr(linear_ordering, "milp", lambda *_, **__: late)
    unfinished = Kemeny(time_limit=100).aggregate(rankings)
    assert exact.optimal
    assert not unfinished.optimal
    assert unfinished.bound <= exact.cost <= unfinished.cost <= 1.01 * exact.cost


def test_hard_rankings_end_at_the_time_limit() -> None:
    rng = np.random.default_rng(0)
    rankings = Rankings.of_orders([rng.permutation(90).tolist() for _ in range(3)], items=range(90))
    start = time.perf_counter()
    unfinished = Kemeny(time_limit=0.3).aggregate(rankings)
    assert time.perf_counter() - start < 10  # the machine may be busy
    assert sorted(unfinished.order) == list(range(90))
    assert not unfinished.optimal
    assert unfinished.bound < unfinished.cost


def test_components_above_the_largest_go_to_local_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rankings = Rankings.of_orders(mallows(20, 20, 1.0, 1))
    exact = Kemeny(time_limit=100).aggregate(rankings)
    monkeypatch.setattr(linear_ordering, "milp", None)
    searched = Kemeny(time_limit=100, largest=10).aggregate(rankings)
    assert not searched.optimal
    assert exact.cost <= searched.cost <= 1.01 * exact.cost


@pytest.mark.parametrize("items", [300, 1500])
def test_many_items_that_agree_need_no_programme(
    items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_ordering, "milp", None)
    orders = [
        list(range(items)),
        [*range(items // 2), *range(items - 1, items // 2 - 1, -1)],
        list(range(items)),
    ]
    aggregate = Kemeny().aggregate(Rankings.of_orders(orders))
    assert aggregate.order == tuple(range(items))
    assert aggregate.optimal
    assert aggregate.cost == (items // 2) * (items // 2 - 1) // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"absent": "first"}, "absent='first': use one of ignored, last"),
        ({"time_limit": 0}, "time_limit=0 of Kemeny"),
        ({"time_limit": float("nan")}, "time_limit=nan of Kemeny"),
        ({"largest": -1}, "largest=-1 of Kemeny"),
    ],
)
def test_impossible_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kemeny(**options)
