"""AWRF_JS, EE, NDKL and ratios of exposure: by hand, against their published definitions written
down again with numpy and scipy, and against FairRankTune.
"""

from __future__ import annotations

import math
import random

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.document_groups import DocumentGroups
from backpack_rank.evaluation.effectiveness import with_fairness
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.group_exposure import GroupExposure
from backpack_rank.evaluation.magnitudes import GroupMagnitudes
from backpack_rank.evaluation.measure_names import AWRF_JS, EE_L, NDKL, parse_measures

GENDER = DocumentGroups.of({"f1": "f", "f2": "f", "m1": "m", "m2": "m", "b": ["f", "m"]})
ALL = ("AWRF_JS", "EE-L", "EE-D", "EE-R", "NDKL", "ExposureRatio", "ExposurePerRelevance")


def run_of(ranked) -> dict[str, float]:
    return {doc_id: -float(place) for place, doc_id in enumerate(ranked)}


def values_of(lists, names, groups=GENDER, relevant=(), target="uniform") -> dict[str, float]:
    qrels = {"q": dict.fromkeys(relevant, 1) | {"judged": 0}}
    exposure = GroupExposure({"gender": groups}, qrels, target)
    values = exposure.measure([{"q": run_of(ranked)} for ranked in lists], parse_measures(names))
    return {name: by_query.get("q", math.nan) for name, by_query in values.values.items()}


class TrackOfFairRanking:
    """The measures of TREC Fair Ranking as the overview papers define them, place by place."""

    def __init__(self, lists, shares, relevant, target, cutoff):
        self.lists = [ranked[:cutoff] for ranked in lists]
        self.shares, self.relevant, self.target = shares, relevant, np.array(target)
        self.cutoff = cutoff

    @staticmethod
    def attention(rank: int) -> float:
        return 1 / np.log2(max(rank, 2))

    def awrf(self) -> float:
        (ranked,) = self.lists
        exposure = np.zeros(len(self.target))
        for rank, doc_id in enumerate(ranked, start=1):
            if doc_id in self.shares:
                exposure += self.attention(rank) * np.array(self.shares[doc_id])
        return 1 - jensenshannon(exposure / exposure.sum(), self.target) ** 2

    def expected_exposure(self) -> tuple[float, float, float]:
        exposure = np.zeros(len(self.target))
        for ranked in self.lists:
            for rank, doc_id in enumerate(ranked, start=1):
                if doc_id in self.relevant and doc_id in self.shares:
                    exposure += self.attention(rank) * np.array(self.shares[doc_id])
        exposure /= len(self.lists)
        available = sum(self.attention(rank) for rank in range(1, self.cutoff + 1))
        wanted = self.target * available
        return (
            float(np.square(exposure - wanted).sum()),
            float(np.square(exposure).sum()),
            float((exposure * wanted).sum()),
        )


def test_every_measure_worked_by_hand():
    # f at ranks 1 and 4, m at rank 2, a document of no known group at rank 3
    values = values_of(
        [["f1", "m1", "unknown", "f2"]], [f"{name}@4" for name in ALL], relevant=["f1", "m1"]
    )
    third, fourth = 1 / math.log2(3), 1 / math.log2(4)
    exposure = [1 + fourth, 1.0]  # ranks 1 and 2 have the attention 1
    shares = [value / sum(exposure) for value in exposure]
    middle = [(share + 0.5) / 2 for share in shares]
    divergence = 0.0
    for share, mean in zip(shares, middle, strict=True):
        divergence += share * math.log(share / mean) / 2 + 0.5 * math.log(0.5 / mean) / 2
    full = 2 + third + fourth
    # The relevant documents give both groups an exposure of 1; wanted is half of a full list.
    assert values["AWRF_JS@4"] == pytest.approx(1 - divergence, abs=1e-15)
    assert values["EE-D@4"] == pytest.approx(2)
    assert values["EE-R@4"] == pytest.approx(full)
    assert values["EE-L@4"] == pytest.approx(2 * (1 - full / 2) ** 2)
    of_two_thirds = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    weights = [1 / math.log2(1 + rank) for rank in (1, 2, 3, 4)]
    expected = (math.log(2) * weights[0] + of_two_thirds * weights[3]) / sum(weights)
    assert values["NDKL@4"] == pytest.approx(expected)
    mean_f, mean_m = (weights[0] + weights[3]) / 2, weights[1]
    assert values["ExposureRatio@4"] == pytest.approx(mean_m / mean_f)
    # One relevant document each: f earns the exposure of both of its documents.
    assert values["ExposurePerRelevance@4"] == pytest.approx(mean_m / (2 * mean_f))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_two_thousand_random_queries_agree_with_the_definitions_of_the_track(block):
    rng = np.random.default_rng(block)
    for _ in range(500):
        number = int(rng.integers(2, 6))
        names = [f"g{place}" for place in range(number)]
        documents = [f"d{place}" for place in range(30)]
        shares = {}
        for doc_id in documents[:25]:  # the last five are of no known group
            drawn = (
                rng.dirichlet(np.ones(number))
                if rng.random() < 0.5
                else np.eye(number)[rng.integers(number)]
            )
            shares[doc_id] = drawn.tolist()
        groups = DocumentGroups.of(
            {doc_id: dict(zip(names, drawn, strict=True)) for doc_id, drawn in shares.items()}
        )
        size, rankings = int(rng.integers(6, 31)), int(rng.integers(1, 5))
        lists = [rng.permutation(documents)[:size].tolist() for _ in range(rankings)]
        relevant = set(rng.choice(documents, size=int(rng.integers(1, 12)), replace=False).tolist())
        target = rng.dirichlet(np.ones(number))
        cutoff = int(rng.integers(6, 35))

        given_target = dict(zip(names, target.tolist(), strict=True))
        names_of_measures = [f"{name}@{cutoff}" for name in ("AWRF_JS", "EE-L", "EE-D", "EE-R")]
        values = values_of(lists, names_of_measures, groups, relevant, given_target)
        per_ranking = []
        for ranked in lists:
            per_ranking.append(
                TrackOfFairRanking([ranked], shares, relevant, target, cutoff).awrf()
            )
        track = TrackOfFairRanking(lists, shares, relevant, target, cutoff)
        expected = [np.mean(per_ranking), *track.expected_exposure()]
        assert list(values.values()) == pytest.approx(expected, abs=1e-12, rel=1e-12)


def test_the_target_relevant_is_the_shares_among_the_relevant_documents():
    relevant = {"f1": 1, "f2": 1, "b": 1, "unknown": 1}
    lists = [["m1", "f1", "b"]]
    values = values_of(lists, ["AWRF_JS@3", "EE-L@3"], relevant=relevant, target="relevant")
    # 2.5 of 3 known relevant documents are f
    expected = values_of(
        lists, ["AWRF_JS@3", "EE-L@3"], relevant=relevant, target={"f": 2.5, "m": 0.5}
    )
    assert values == pytest.approx(expected, abs=1e-15)


random_lists = st.lists(
    st.permutations(["f1", "f2", "m1", "m2", "b", "u1", "u2"]), min_size=1, max_size=3
)
any_target = st.tuples(st.floats(0.05, 1), st.floats(0.05, 1)).map(lambda t: {"f": t[0], "m": t[1]})
some_relevant = st.sets(st.sampled_from(["f1", "f2", "m1", "m2", "b", "u1"]), min_size=1)


@given(random_lists, any_target, some_relevant, st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_the_loss_is_the_disparity_less_twice_the_relevance_and_the_targets_length(
    lists, target, relevant, cutoff
):
    names = [f"{name}@{cutoff}" for name in ("EE-L", "EE-D", "EE-R")]
    loss, disparity, relevance = values_of(lists, names, relevant=relevant, target=target).values()
    full = sum(1 / math.log2(max(rank, 2)) for rank in range(1, cutoff + 1))
    shares = np.array([target["f"], target["m"]]) / (target["f"] + target["m"])
    assert loss == pytest.approx(disparity - 2 * relevance + ((shares * full) ** 2).sum(), abs=1e-9)


@pytest.mark.slow
@given(random_lists, any_target, some_relevant, st.integers(1, 9), st.randoms())
@settings(max_examples=200, deadline=None)
def test_who_of_a_group_stands_where_changes_nothing(lists, target, relevant, cutoff, source):
    # Documents of one group that are equally relevant change places in every list.
    other_of = {}
    for members in (["f1", "f2"], ["m1", "m2"]):
        for kind in (
            [d for d in members if d in relevant],
            [d for d in members if d not in relevant],
        ):
            shuffled = list(kind)
            source.shuffle(shuffled)
            other_of |= dict(zip(kind, shuffled, strict=True))
    swapped = [[other_of.get(doc_id, doc_id) for doc_id in ranked] for ranked in lists]
    names = [f"{name}@{cutoff}" for name in ALL]
    first = values_of(lists, names, relevant=relevant, target=target)
    second = values_of(swapped, names, relevant=relevant, target=target)
    assert second == pytest.approx(first, abs=1e-12, nan_ok=True)


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_exposure_at_the_target_has_awrf_1_and_ndkl_0(number, documents, seed):
    target = np.random.default_rng(seed).dirichlet(np.ones(number)) + 1e-3
    shares = {f"g{place}": float(value) for place, value in enumerate(target)}
    groups = DocumentGroups.of({f"d{place}": shares for place in range(documents)})
    values = values_of([list(groups.rows)], ["AWRF_JS@9", "NDKL@9"], groups, target=shares)
    assert values == pytest.approx({"AWRF_JS@9": 1.0, "NDKL@9": 0.0}, abs=1e-12)


def test_values_computed_with_fairranktune():
    # FairRankTune 0.0.7: EXP, EXPU with combo="MinMaxRatio" of the ranking below, one column, and
    # NDKL, to which FairRankTune adds an epsilon of 1e-7 to every share.
    ranked = ["f1", "f2", "m1", "f3", "m2", "m3"]
    groups = DocumentGroups.of({doc_id: doc_id[0] for doc_id in ranked})
    names = ["ExposureRatio@6", "ExposurePerRelevance@6", "NDKL@6"]
    ratio, per_relevance, divergence = values_of(
        [ranked], names, groups, relevant=["f1", "m1", "m2"]
    ).values()
    assert ratio == pytest.approx(0.6029570181858773, abs=1e-12)
    assert per_relevance == pytest.approx(0.30147850909293866, abs=1e-12)
    assert divergence == pytest.approx(0.37005716, abs=1e-6)


@pytest.mark.parametrize("block", range(3))
def test_random_rankings_agree_with_fairranktune(block, monkeypatch):
    frt = pytest.importorskip("FairRankTune")
    from importlib import import_module

    import pandas as pd

    # It adds 1e-7 to every share, so that equality to 1e-12 needs the divergence itself.
    monkeypatch.setattr(import_module("FairRankTune.Metrics.NDKL"), "__kl_divergence", entropy)
    rng = np.random.default_rng(block)
    for _ in range(400):
        number, size = int(rng.integers(2, 5)), int(rng.integers(8, 30))
        documents = [f"d{place}" for place in range(size)]
        # Every group has two documents at least, of which one is relevant.
        drawn = [*range(number), *range(number), *rng.integers(0, number, size - 2 * number)]
        group_of = {doc_id: f"g{group}" for doc_id, group in zip(documents, drawn, strict=True)}
        ranked = rng.permutation(documents).tolist()
        relevant = {d for d in documents if d in documents[:number] or rng.random() < 0.3}
        frame = pd.DataFrame({"r": ranked})
        labels = pd.DataFrame({"r": [float(doc_id in relevant) for doc_id in ranked]})
        shares = pd.Series(list(group_of.values())).value_counts(normalize=True).to_dict()
        names = [f"{name}@{size}" for name in ("ExposureRatio", "ExposurePerRelevance", "NDKL")]
        values = values_of([ranked], names, DocumentGroups.of(group_of), relevant, shares)
        expected = [
            frt.Metrics.EXP(frame, group_of, "MinMaxRatio")[0],
            frt.Metrics.EXPU(frame, group_of, labels, "MinMaxRatio")[0],
            frt.Metrics.NDKL(frame, group_of),
        ]
        assert list(values.values()) == pytest.approx(expected, abs=1e-12)


def test_a_list_of_unknown_documents_has_no_value():
    values = values_of([["u", "v"]], [f"{name}@5" for name in ALL], relevant=["f1"])
    undefined = {name for name, value in values.items() if math.isnan(value)}
    assert undefined == {"AWRF_JS@5", "NDKL@5", "ExposureRatio@5", "ExposurePerRelevance@5"}
    # A relevant document could have been shown, and was not.
    assert values["EE-D@5"] == 0


def test_a_query_without_a_ranked_document_is_left_out_by_name():
    exposure = GroupExposure({"gender": GENDER})
    run = {"q": run_of(["f1", "m1"]), "empty": {}}
    values = exposure.measure([run], parse_measures(["AWRF_JS@2"]), ["q", "empty", "absent"])
    assert values.left_out == ("empty", "absent")
    assert list(values.values["AWRF_JS@2"]) == ["q"]


def test_a_query_without_a_relevant_document_has_no_expected_exposure():
    values = values_of([["f1", "m1"]], ["EE-L@5", "AWRF_JS@5"])
    assert math.isnan(values["EE-L@5"])
    assert values["AWRF_JS@5"] == pytest.approx(1)


@pytest.mark.parametrize("target", [{"f": 1, "m": 0}, {"f": 0, "m": 3}, "relevant"])
def test_ndkl_is_refused_where_a_group_may_have_no_share(target):
    # Left out, queries that show the group would leave a mean of 0 to those that do not.
    with pytest.raises(ValueError, match=r"NDKL@2 is infinite"):
        values_of([["f1", "m1"]], ["NDKL@2"], relevant=["f1"], target=target)
    assert values_of([["f1", "m1"]], ["AWRF_JS@2"], relevant=["f1"], target=target)["AWRF_JS@2"] < 1


@pytest.mark.parametrize("measure", ["AWRF_JS", "NDKL", "EE-L", "EE-R"])
def test_a_target_of_one_group_alone_is_refused(measure):
    groups = DocumentGroups.of({"m1": "m", "m2": "m"})
    with pytest.raises(ValueError, match=r"has one group alone, 'm'.*bias\.target"):
        values_of([["m1", "m2"]], [f"{measure}@2"], groups, relevant=["m1"])


def test_a_group_below_the_cutoff_has_no_exposure():
    assert values_of([["f1", "f2", "m1"]], ["ExposureRatio@2"]) == {"ExposureRatio@2": 0.0}


def test_crossed_attributes_and_their_targets():
    region = DocumentGroups.of({"f1": "asia", "f2": "europe", "m1": "asia", "m2": "europe"})
    exposure = GroupExposure(
        {"gender": GENDER, "region": region}, target={"region": {"asia": 3, "europe": 1}}
    )
    run = {"q": run_of(["f1", "m1", "b", "f2"])}
    names = ["AWRF_JS(gender)@4", "AWRF_JS(region)@4", "AWRF_JS(gender x region)@4"]
    values = exposure.measure([run], parse_measures(names))
    half = 1 / math.log2(4)
    # b has no known region, so it is not in the intersections: f asia, f europe, m asia, m europe
    crossed = np.array([1, half, 1, 0]) / (2 + half)
    expected = 1 - jensenshannon(crossed, [3 / 8, 1 / 8, 3 / 8, 1 / 8]) ** 2
    assert values.values["AWRF_JS(gender x region)@4"]["q"] == pytest.approx(expected, abs=1e-12)
    of_region = 1 - jensenshannon(np.array([2, half]) / (2 + half), [3 / 4, 1 / 4]) ** 2
    assert values.values["AWRF_JS(region)@4"]["q"] == pytest.approx(of_region, abs=1e-12)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("equal", "use one of uniform, relevant"),
        ({"f": 1}, "the groups are f, m: give a share to each of them"),
        ({"f": 0, "m": 0}, "not all of them 0"),
        ({"f": -1, "m": 2}, "shares of at least 0"),
    ],
)
def test_a_wrong_target_is_refused(target, message):
    with pytest.raises(ValueError, match=message):
        GroupExposure({"gender": GENDER}, target=target)


def test_several_attributes_need_a_name():
    exposure = GroupExposure({"gender": GENDER, "region": GENDER})
    with pytest.raises(ValueError, match=r"AWRF_JS@5: groups of which attribute.*gender, region"):
        exposure.measure([{"q": {"f1": 1.0}}], parse_measures(["AWRF_JS@5"]))
    with pytest.raises(ValueError, match=r"unknown attribute 'age'.*gender, region"):
        exposure.measure([{"q": {"f1": 1.0}}], parse_measures(["AWRF_JS(age)@5"]))


def test_expected_exposure_needs_judgements():
    with pytest.raises(ValueError, match="EE-L@5 needs judgements"):
        GroupExposure({"gender": GENDER}).measure(
            [{"q": {"f1": 1.0}}], parse_measures(["AWRF_JS@5", "EE-L@5"])
        )


def test_words_are_the_groups_where_none_are_given():
    texts = {"a": "he he she", "b": "she", "c": ""}
    lexicon = Lexicon("small", {"female": ("she",), "male": ("he",)})
    context = FairnessContext(GroupMagnitudes.of(texts, MemoryStore(texts), lexicon))
    values = context.measure({"q": run_of("abc")}, parse_measures(["RaB(tc)@3", "AWRF_JS@3"]))
    # a is 1/3 female, b is; c has no word and no part
    exposure = np.array([1 / 3 + 1, 2 / 3]) / 2
    expected = 1 - jensenshannon(exposure, [0.5, 0.5]) ** 2
    assert values.values["AWRF_JS@3"]["q"] == pytest.approx(expected, abs=1e-12)
    assert values.measures == ("RaB(tc)@3", "AWRF_JS@3")


def test_they_are_measures_of_ir_measures():
    texts = {"a": "he", "b": "she"}
    chosen = FairnessMeasures()
    context = chosen.context(
        chosen.magnitudes(texts, MemoryStore(texts)), qrels={"q": {"a": 1, "b": 1}}
    )
    provider = with_fairness(context)
    means = provider.calc_aggregate(
        [AWRF_JS @ 2, EE_L @ 2, NDKL @ 2, ir_measures.nDCG @ 2],
        {"q": {"a": 1, "b": 1}},
        {"q": {"a": 2.0, "b": 1.0}},
    )
    assert means[AWRF_JS @ 2] == pytest.approx(1)
    assert means[EE_L @ 2] == pytest.approx(0)
    assert means[NDKL @ 2] > 0
    for short in ("EE-L(gender x region)@20", "AWRF_JS@5", "NDKL(gender)@7"):
        measure = parse_measures([short])[short]
        assert ir_measures.parse_measure(repr(measure)) == measure


def test_families_are_measured_at_every_cutoff():
    chosen = FairnessMeasures(families=["AWRF_JS", "EE-L"], cutoffs=[5, 10])
    assert list(chosen.measures) == ["AWRF_JS@5", "EE-L@5", "AWRF_JS@10", "EE-L@10"]
    assert chosen.needs_judgements
    assert not FairnessMeasures(families=["AWRF_JS"]).needs_judgements
    assert FairnessMeasures(families=["AWRF_JS"], target="relevant").needs_judgements


def test_documents_to_count_words_of_are_those_that_a_measure_looks_at():
    run = {"q": run_of([f"d{place}" for place in range(9)])}
    qrels = {"q": {"r": 1, "d8": 1, "not": 0}}
    first = FairnessMeasures(families=["AWRF_JS"], cutoffs=[2])
    assert first.documents([run], qrels=qrels) == ["d0", "d1"]
    relevant = FairnessMeasures(families=["AWRF_JS"], cutoffs=[2], target="relevant")
    assert relevant.documents([run], qrels=qrels) == ["d0", "d1", "r", "d8"]
    of_exposure_ratio = FairnessMeasures(families=["ExposureRatio"], cutoffs=[2])
    assert len(of_exposure_ratio.documents([run])) == 9


def test_ties_are_in_the_order_of_all_measures():
    source = random.Random(1)
    documents = ["f1", "f2", "m1", "m2", "b"]
    source.shuffle(documents)
    tied = {"q": dict.fromkeys(documents, 1.0)}
    exposure = GroupExposure({"gender": GENDER})
    values = exposure.measure([tied], parse_measures(["AWRF_JS@2"]))
    expected = values_of([["b", "f1"]], ["AWRF_JS@2"])
    assert values.values["AWRF_JS@2"]["q"] == expected["AWRF_JS@2"]
