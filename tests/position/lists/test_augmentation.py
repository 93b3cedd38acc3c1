"""Orders of training lists: Pos-Aug visits every group position equally often."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backpack_rank.position.lists.augmentation import (
    NoAugmentation,
    PositionAware,
    RandomShuffles,
    augmentation_of,
)


@given(
    st.integers(2, 20).flatmap(lambda m: st.tuples(st.just(m), st.integers(2, m))),
    st.integers(0, 2**32 - 1),
)
def test_every_passage_stands_once_in_every_group_position(
    shape: tuple[int, int], seed: int
) -> None:
    size, groups = shape
    orders = PositionAware(groups).orders(size, np.random.default_rng(seed))
    assert orders.shape == (groups, size)
    assert all(sorted(order) == list(range(size)) for order in orders.tolist())
    # The first order, cut by hand into groups, the first ones longer by one.
    first = orders[0].tolist()
    longer = size % groups
    cut, start = [], 0
    for number in range(groups):
        end = start + size // groups + (number < longer)
        cut.append(first[start:end])
        start = end
    places: dict[int, list[int]] = {passage: [] for passage in range(size)}
    for order in orders.tolist():
        place = 0
        remaining = order
        while remaining:
            (group,) = [group for group in cut if group == remaining[: len(group)]]
            for passage in group:
                places[passage].append(place)
            remaining = remaining[len(group) :]
            place += 1
    assert all(sorted(visited) == list(range(groups)) for visited in places.values())


def test_with_as_many_groups_as_passages_every_passage_stands_once_everywhere() -> None:
    orders = PositionAware(7).orders(7, np.random.default_rng(0))
    assert all(sorted(orders[:, place].tolist()) == list(range(7)) for place in range(7))


def test_orders_are_drawn_by_the_generator_and_alike_likely() -> None:
    rng = np.random.default_rng(0)
    first = [PositionAware(2).orders(4, rng)[0, 0] for _ in range(400)]
    assert np.bincount(first).min() > 70
    shuffled = [RandomShuffles(3).orders(3, rng) for _ in range(200)]
    assert len(set(map(tuple, np.concatenate(shuffled).tolist()))) == 6
    drawn, drawn_again = (RandomShuffles(2).orders(8, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(drawn, drawn_again)


def test_augmentations_are_made_by_name_and_wrong_copies_are_named() -> None:
    assert augmentation_of("none", 1).orders(3, np.random.default_rng(0)).tolist() == [[0, 1, 2]]
    assert isinstance(augmentation_of("none", 1), NoAugmentation)
    assert isinstance(augmentation_of("shuffle", 2), RandomShuffles)
    assert isinstance(augmentation_of("rotate", 5), PositionAware)
    assert augmentation_of("shuffle", 2).copies == 2
    assert augmentation_of("rotate", 5).copies == 5
    for name, copies, message in (
        ("none", 2, "task.copies=2 must be 1"),
        ("rotate", 1, "task.copies=1 must be at least 2: rotation needs groups"),
        ("shuffle", 0, "task.copies=0 must be at least 1"),
        ("swap", 1, "task.augmentation=swap: use none, shuffle or rotate"),
    ):
        with pytest.raises(ValueError, match=message):
            augmentation_of(name, copies)
    with pytest.raises(ValueError, match="a list of 3 passages cannot be cut into 4 groups"):
        PositionAware(4).orders(3, np.random.default_rng(0))
