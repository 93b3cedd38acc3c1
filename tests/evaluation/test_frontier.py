"""Curves of methods, which of them are beaten, and the file that their points lie in."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from backpack_rank.evaluation.frontier import beaten_by, curves_of, on_the_frontier
from backpack_rank.evaluation.frontier_points import Point, PointFile
from backpack_rank.evaluation.results import PerQuery

QUERIES = [f"q{number}" for number in range(40)]
SWAP, BIAS = "swap change/std", "RaB(tf)@10"


def point(method, alpha, ndcg, swap, *, ranker="plain", seed=0, noise=0.01, bias=None) -> Point:
    """Values around means; the noise of a query is the same for all methods of a ranker."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.1, len(QUERIES))
    noise_of_point = np.random.default_rng(zlib.crc32(f"{method} {alpha}".encode())).normal(
        0, noise, len(QUERIES)
    )
    values = {
        "nDCG@10": dict(
            zip(QUERIES, ndcg + shared + noise_of_point - noise_of_point.mean(), strict=True)
        ),
        SWAP: dict(zip(QUERIES, swap + abs(noise_of_point), strict=True)),
    }
    if bias is not None:
        values[BIAS] = dict(zip(QUERIES, bias + noise_of_point, strict=True))
    return Point(method, ranker, alpha, seed, PerQuery(values))


def test_a_curve_begins_with_its_ranker_as_it_is_and_has_the_seeds_of_all_methods():
    points = [
        point("plain", 1.0, 0.5, 0.3),
        point("plain", 1.0, 0.6, 0.4, seed=1),
        point("dial", 0.0, 0.5, 0.0),
        point("dial", 0.5, 0.5, 0.1),
        point("dial", 0.0, 0.7, 0.2, seed=1),
        point("dial", 0.5, 0.5, 0.1, seed=1),
        point("dial", 0.0, 0.9, 0.9, seed=2),
        point("other", 1.0, 0.4, 0.2, ranker="trained"),
        point("other", 1.0, 0.4, 0.2, ranker="trained", seed=1),
    ]
    plain, dial, other = curves_of(points, ["plain", "dial", "other", "never measured"])
    assert (dial.alphas, dial.seeds) == ((1.0, 0.5, 0.0), (0, 1))
    assert dial.by_seed[0] == plain.by_seed[0]
    assert other.alphas == (1.0,)
    first, second = points[2].values, points[4].values
    means = (first.array("nDCG@10") + second.array("nDCG@10")) / 2
    assert dial.values().array("nDCG@10") == pytest.approx(means)
    ends = sorted([first.mean("nDCG@10"), second.mean("nDCG@10")])
    assert dial.spread("nDCG@10") == pytest.approx(tuple(ends))
    assert curves_of([points[0], points[6]]) == [], "no seed that both have"


def test_a_method_without_a_seed_that_is_wanted_is_left_out():
    points = [
        point("plain", 1.0, 0.5, 0.3),
        point("plain", 1.0, 0.6, 0.4, seed=1),
        point("dial", 0.0, 0.5, 0.0),
        point("dial", 0.0, 0.7, 0.2, seed=1),
        point("other", 1.0, 0.4, 0.2, ranker="trained"),
    ]

    def methods(seeds):
        return {curve.method: curve.seeds for curve in curves_of(points, seeds=seeds)}

    assert methods([0, 1]) == {"plain": (0, 1), "dial": (0, 1)}
    assert methods([0]) == {"plain": (0,), "dial": (0,), "other": (0,)}
    assert methods([2]) == {}
    assert methods(None) == methods([0])


def test_a_method_is_beaten_by_one_with_less_bias_that_loses_nothing():
    points = [
        point("plain", 1.0, 0.5, 0.3, noise=0.0),
        point("does nothing", 0.0, 0.5, 0.3, noise=0.0005),
        point("less bias", 0.0, 0.5, 0.1, noise=0.001),
        point("less bias, worse", 0.0, 0.4, 0.05, noise=0.001),
        point("less bias, unsure", 0.0, 0.5, 0.02, noise=0.2),
    ]
    curves = curves_of(points)
    beaten = beaten_by(curves, "nDCG@10", SWAP, margin=0.01)
    assert "less bias" in beaten["plain"]
    assert "less bias" in beaten["does nothing"]
    # It has less bias, and loses a fifth of the effectiveness.
    assert "less bias, worse" not in beaten["plain"]
    assert beaten["less bias, worse"] == []
    # What its noise would cost cannot be said to be less than the margin.
    values = {curve.method: curve.values() for curve in curves}
    noisy, plain = values["less bias, unsure"], values["plain"]
    differences = noisy.array("nDCG@10") - plain.array("nDCG@10")
    low = stats.bootstrap((differences,), np.mean, random_state=0).confidence_interval.low
    assert low < -0.01 * 0.5
    assert "less bias, unsure" not in beaten["plain"]
    assert "less bias, unsure" in beaten_by(curves, "nDCG@10", SWAP, margin=0.5)["plain"]


@pytest.mark.parametrize(("swap", "beats"), [(6e-9, False), (6e-4, True)])
def test_rounding_of_scores_is_no_bias(swap: float, beats: bool):
    points = [
        point("plain", 1.0, 0.5, 0.3, noise=0.0),
        point("nothing left", 0.0, 0.5, 0.0, noise=0.0),
        point("another", 0.0, 0.5, swap, noise=0.0),
    ]
    curves = curves_of(points)
    beaten = beaten_by(curves, "nDCG@10", SWAP)
    assert ("another" in on_the_frontier(curves, "nDCG@10", SWAP)) is not beats
    assert beaten["another"] == (["nothing left"] if beats else [])
    assert "another" in beaten["plain"]


def test_a_method_is_beaten_by_one_that_is_more_effective_with_no_more_bias():
    points = [
        point("plain", 1.0, 0.5, 0.3, noise=0.0),
        point("better", 1.0, 0.55, 0.3, noise=0.0, ranker="trained"),
    ]
    beaten = beaten_by(curves_of(points), "nDCG@10", SWAP)
    assert beaten == {"plain": ["better"], "better": []}


def test_of_a_signed_measure_what_is_closer_to_0_is_better():
    points = [
        point("plain", 1.0, 0.5, 0.3, bias=0.2, noise=0.001),
        point("over", 0.0, 0.5, 0.3, bias=-0.4, noise=0.001),
        point("near", 0.0, 0.5, 0.3, bias=-0.05, noise=0.001),
        point("without it", 1.0, 0.9, 0.3, ranker="trained"),
    ]
    curves = curves_of(points)
    beaten = beaten_by(curves, "nDCG@10", BIAS)
    assert beaten == {"plain": ["near"], "over": ["plain", "near"], "near": []}


def test_the_frontier_of_the_means():
    """Against a walk along the sorted figures."""
    rng = np.random.default_rng(3)
    figures = {f"m{number}": rng.uniform(0.2, 0.8, 2) for number in range(12)}
    points = [
        point(name, 1.0, ndcg, swap, noise=0.0, ranker=name)
        for name, (ndcg, swap) in figures.items()
    ]
    expected, least = set(), np.inf
    for name, (_, swap) in sorted(figures.items(), key=lambda item: -item[1][0]):
        if swap < least:
            expected.add(name)
            least = swap
    assert on_the_frontier(curves_of(points), "nDCG@10", SWAP) == expected


def test_a_method_that_is_equal_in_one_mean_and_worse_in_the_other_is_off_the_frontier():
    figures = {"best": (0.6, 0.3), "twin": (0.6, 0.3), "less": (0.5, 0.3), "biased": (0.6, 0.4)}
    points = [
        point(name, 1.0, ndcg, swap, noise=0.0, ranker=name)
        for name, (ndcg, swap) in figures.items()
    ]
    assert on_the_frontier(curves_of(points), "nDCG@10", SWAP) == {"best", "twin"}


def test_a_file_of_points_grows_and_keeps_five_digits(tmp_path: Path):
    path = tmp_path / "dl19.jsonl"
    first = point("plain", 1.0, 0.5, 0.3)
    PointFile(path).add([first])
    later = point("dial", 0.5, 0.4, 0.1, bias=0.2)
    # A measure that is not defined for one query of this point alone.
    del later.values.values[BIAS]["q3"]
    PointFile(path).add([later])
    PointFile(path).add([point("plain", 1.0, 0.45, 0.3, seed=1)])
    again = PointFile(path).by_place
    assert list(again) == [("plain", 1.0, 0), ("dial", 0.5, 0), ("plain", 1.0, 1)]
    for written in (first, later):
        read = again[written.place].values.values
        assert read.keys() == written.values.values.keys()
        for measure, by_query in written.values.values.items():
            assert read[measure] == pytest.approx(dict(by_query), rel=1e-4)
    assert "q3" not in again["dial", 0.5, 0].values.values[BIAS]
    # Ids stand once, as long as they stay the same.
    assert path.read_text().count('"q7"') == 3


def test_two_processes_lose_no_points_of_each_other(tmp_path: Path):
    first, second = PointFile(tmp_path / "dl19.jsonl"), PointFile(tmp_path / "dl19.jsonl")
    first.add([point("plain", 1.0, 0.5, 0.3)])
    second.add([point("dial", 0.0, 0.5, 0.0)])
    assert len(PointFile(tmp_path / "dl19.jsonl").by_place) == 2


@pytest.mark.parametrize(
    "line",
    [
        '{"method": "m", "ranker": "r", "alpha": 0.5, "values": {}}',
        '{"method": "m", "ranker": "r", "alpha": 0.5, "seed": 0, "values": {"AP": [0.5]}}',
        "no JSON",
    ],
)
def test_a_wrong_line_of_points_is_named(tmp_path: Path, line: str):
    path = tmp_path / "dl19.jsonl"
    path.write_text('{"queries": {"nDCG@10": ["q1"]}}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"dl19\.jsonl.*line 2"):
        PointFile(path)


def test_means_are_over_the_queries_of_which_every_method_has_a_value():
    # AWRF_JS has no value of a query whose first documents have no group.
    def of(values: dict[str, float]) -> PerQuery:
        return PerQuery({"nDCG@10": {"q1": 0.5, "q2": 0.5, "q3": 0.5}, "AWRF_JS@20": values})

    points = [
        Point("plain", "plain", 1.0, 0, of({"q1": 0.9, "q2": 0.1, "q3": 0.8})),
        Point("dial", "plain", 0.0, 0, of({"q1": 0.7, "q3": 0.6})),
        Point("other", "other", 1.0, 0, of({"q1": 0.5, "q2": 0.9})),
    ]
    curves = {curve.method: curve.values() for curve in curves_of(points)}
    found = {method: values.values["AWRF_JS@20"] for method, values in curves.items()}
    assert found == {"plain": {"q1": 0.9}, "dial": {"q1": 0.7}, "other": {"q1": 0.5}}
    assert {len(values.values["nDCG@10"]) for values in curves.values()} == {3}
