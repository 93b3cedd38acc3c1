"""Propensities: counted as in equation 5, scaled so that the loss keeps its size, kept in a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from small_rankers import RandomRanker, SmallRanker

from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.propensity import (
    Propensities,
    estimate_propensities,
    load_propensities,
)


def some_lists(number: int, size: int) -> list[PassageList]:
    rng = np.random.default_rng(0)
    lists = []
    for place in range(number):
        texts = map(str, rng.permutation(size))
        lists.append(PassageList("q", tuple(texts), query_id=f"q{place}"))
    return lists


def by_hand(ranker: SmallRanker, size: int) -> np.ndarray:
    """Transitions of the lists that a ranker was shown, ranked once more."""
    counts = np.zeros((size, size), dtype=int)
    for shown in ranker.lists_asked:
        (ranking,) = SmallRanker(ranker.slope).rank([shown])
        for output, place in enumerate(ranking.order):
            counts[place, output] += 1
    return counts


def test_every_list_is_shuffled_and_its_transitions_counted() -> None:
    ranker = SmallRanker(slope=0.7)
    propensities = estimate_propensities(
        ranker, [*some_lists(6, 4), *some_lists(2, 3)], 4, shuffles=5, seed=3, floor=0.4
    )
    assert len(ranker.lists_asked) == 6 * 5
    orders_of_first_list = set()
    for shown in ranker.lists_asked:
        if shown.query_id == "q0":
            orders_of_first_list.add(shown.passages)
    assert len(orders_of_first_list) > 1
    assert np.array_equal(propensities.counts, by_hand(ranker, 4))
    assert (propensities.lists, propensities.shuffles, propensities.left_out) == (6, 5, 2)
    assert (propensities.ranker, propensities.seed) == ("small", 3)
    assert propensities.shares == pytest.approx(
        np.maximum(by_hand(ranker, 4) / (6 * 4 * 5), 0.4 / 16)
    )


def test_a_ranker_that_gives_the_input_order_back_has_all_but_the_diagonal_floored() -> None:
    propensities = estimate_propensities(
        SmallRanker(slope=100), some_lists(5, 4), 4, shuffles=2, floor=0.1
    )
    assert np.array_equal(propensities.counts, 10 * np.eye(4))
    assert propensities.floored == 12
    assert propensities.shares[0, 0] == pytest.approx(1 / 4)
    assert propensities.shares[0, 1] == pytest.approx(0.1 / 16)
    assert propensities.inverse()[0, 0] == pytest.approx(1 / 4)
    assert propensities.inverse(2.0)[0, 1] == pytest.approx(2 * 10)


def test_without_position_bias_all_weights_are_one() -> None:
    propensities = estimate_propensities(RandomRanker(), some_lists(300, 3), 3, shuffles=10)
    assert propensities.inverse() == pytest.approx(np.ones((3, 3)), abs=0.12)
    assert propensities.floored == 0


def test_the_scale_gives_pairs_a_mean_weight_of_one() -> None:
    rng = np.random.default_rng(1)
    propensities = estimate_propensities(SmallRanker(slope=0.8), some_lists(20, 5), 5, shuffles=3)
    ranks = [rng.permutation(size) for size in (5, 5, 4, 5)]
    levels = [ranks_of_list // 2 for ranks_of_list in ranks]
    weights = propensities.inverse(propensities.scale_for(ranks, levels))
    plain = weighted = 0.0
    for ranks_of_list, level in zip(ranks, levels, strict=True):
        for i in range(len(ranks_of_list)):
            for j in range(len(ranks_of_list)):
                if level[i] < level[j]:
                    plain += 1 / (ranks_of_list[i] + ranks_of_list[j] + 2)
                    weighted += (
                        weights[i, ranks_of_list[i]]
                        * weights[j, ranks_of_list[j]]
                        / (ranks_of_list[i] + ranks_of_list[j] + 2)
                    )
    assert weighted == pytest.approx(plain)
    with pytest.raises(ValueError, match="no list has two passages of different levels"):
        propensities.scale_for([np.arange(3)], [np.zeros(3)])
    with pytest.raises(
        ValueError, match=r"of lists of 5 passages, and a training list has 6.*task\.size=5"
    ):
        propensities.scale_for([np.arange(6)], [np.arange(6)])


def test_a_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    propensities = estimate_propensities(
        SmallRanker(slope=0.8), some_lists(7, 5), 5, shuffles=3, seed=2, floor=0.25
    )
    propensities.save(tmp_path / "propensities.json")
    for path in (tmp_path, tmp_path / "propensities.json"):
        again = load_propensities(path)
        assert np.array_equal(again.counts, propensities.counts)
        assert np.array_equal(again.inverse(), propensities.inverse())
        assert (again.lists, again.shuffles, again.seed, again.floor, again.ranker) == (
            7,
            3,
            2,
            0.25,
            "small",
        )


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"task\.propensities: there is no file"):
        load_propensities(tmp_path / "missing.json")
    file = tmp_path / "p.json"
    file.write_text("[")
    with pytest.raises(ValueError, match=r"p\.json is no JSON"):
        load_propensities(file)
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"p\.json is no file of propensities"):
        load_propensities(file)
    estimate_propensities(SmallRanker(), some_lists(7, 3), 3).save(file)
    content = json.loads(file.read_text())
    content["counts"][0][0] += 1
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"p\.json: every row and every column .* = 70"):
        load_propensities(file)
    del content["lists"]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"p\.json: 'lists'"):
        load_propensities(file)


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="none of the 2 lists has 5 passages"):
        estimate_propensities(SmallRanker(), some_lists(2, 4), 5)
    with pytest.raises(ValueError, match=r"propensities: floor=0 must lie in \(0, 1\]"):
        estimate_propensities(SmallRanker(), some_lists(2, 4), 4, floor=0)
    with pytest.raises(ValueError, match="square matrix"):
        Propensities(np.zeros((2, 3)), 1, 1)
