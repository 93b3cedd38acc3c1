"""A measure of a run is the same whichever runs stand beside it, with every measure and option."""

from __future__ import annotations

import itertools
import random

import pytest

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.run_order import TIES
from backpack_rank.data.sources.inline import load_inline
from backpack_rank.evaluation.fairness_measures import FAMILIES, FairnessMeasures
from backpack_rank.evaluation.magnitudes import MAGNITUDES, TOKENIZERS
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.metrics import MetricSuite, SystemRuns

WORDS = ("he his man him he", "she her woman she", "roof wood nail")
NAMES = ("male", "female", "neutral")
DOCUMENTS = {f"{name}{n}": f"{WORDS[i]} {n}" for i, name in enumerate(NAMES) for n in range(8)}
GROUPS = {doc_id: doc_id[:-1] for doc_id in DOCUMENTS}
QUERIES = {"q1": "roofer", "q2": "carpenter", "q3": "nail"}
QRELS = {
    query_id: {"male1": 2, "female2": 1, "neutral3": 1, "male4": 0, "female5": 3}
    for query_id in QUERIES
}
EFFECTIVENESS = ("nDCG@10", "RR(rel=2)@10", "AP", "R@5", "Bpref", "ERR@5", "Judged@10")
TARGETS = ("uniform", "relevant", {"female": 0.4, "male": 0.4, "neutral": 0.2})


def system(label: str, kinds: tuple[str, ...], seed: int, queries=tuple(QUERIES)) -> SystemRuns:
    """A run that shows documents of some groups alone, with ties."""
    source = random.Random(seed)
    shown = [doc_id for doc_id in DOCUMENTS if doc_id[:-1] in kinds]
    run = {}
    for query_id in queries:
        run[query_id] = {doc_id: float(source.randint(0, 5)) for doc_id in shown}
    return SystemRuns(label, None, run, run)


ALONE = system("of men", ("male",), 0)
BESIDE = (
    system("of women", ("female",), 1),
    system("of all", NAMES, 2),
    system("of few queries", ("neutral", "male"), 3, ("q2",)),
)


def options(tmp_path) -> list[dict]:
    table = tmp_path / "gender.tsv"
    table.write_text("".join(f"{doc_id}\t{group}\n" for doc_id, group in GROUPS.items()))
    sources = ("words", "field:group", str(table), ["words", "field:group"])
    listed = []
    for source, target in itertools.product(sources, TARGETS):
        if source == "words" and isinstance(target, dict):
            target = {"female": 0.4, "male": 0.6}
        if isinstance(source, list) and isinstance(target, dict):
            target = {"group": target}
        listed.append({"groups": source, "target": target})
    listed += [{"tokenizer": tokenizer} for tokenizer in TOKENIZERS]
    listed += [{"kinds": [kind]} for kind in MAGNITUDES]
    listed += [{"ties": ties} for ties in TIES]
    listed += [{"threshold": 0}, {"background_depth": 5}, {"relevant_from": 2}]
    listed += [{"cutoffs": [1, 40]}, {"fairr_cutoffs": [3]}, {"sign": "female_minus_male"}]
    return listed


@pytest.mark.slow
def test_no_measure_of_a_run_knows_the_runs_beside_it(tmp_path):
    collection = load_inline("trades", QUERIES, DOCUMENTS, QRELS, GROUPS)
    data = load_evaluation_data(Dataset.of(collection), Attribute.named("gender"), "gender_words")
    for option in options(tmp_path):
        families = list(FAMILIES)
        if option.get("target") == "relevant":
            families.remove("NDKL")
        bias = FairnessMeasures(**{"families": families, "cutoffs": [5, 20], **option})
        suite = MetricSuite(EFFECTIVENESS, bias, ("male", "female"))
        (alone,) = suite.measure([ALONE], data).systems
        for beside in ([ALONE, *BESIDE], [*BESIDE, ALONE], [ALONE, BESIDE[0]]):
            rows = {row.label: row for row in suite.measure(beside, data).systems}
            assert rows["of men"].values == alone.values, option


@pytest.mark.parametrize("shown", [("male",), NAMES])
def test_a_uniform_target_is_over_the_groups_of_the_collection(shown):
    """By hand: a ranking of men alone has exposure 1 of men, and a target of a third each."""
    collection = load_inline("trades", QUERIES, DOCUMENTS, QRELS, GROUPS)
    data = load_evaluation_data(Dataset.of(collection), Attribute.named("gender"), "gender_words")
    bias = FairnessMeasures(families=["NDKL"], cutoffs=[1], groups="field:group")
    table = MetricSuite((), bias, ("male", "female")).measure([system("one", shown, 0)], data)
    (row,) = table.systems
    # KL((1, 0, 0) || (1/3, 1/3, 1/3)) = ln 3, whatever group the first document has.
    assert row.values["bias"].values["NDKL@1"] == pytest.approx(
        dict.fromkeys(QUERIES, 1.0986122887)
    )


def test_a_field_of_one_group_alone_is_refused_before_anything_is_ranked():
    collection = load_inline("men", QUERIES, {"d1": "x", "d2": "y"}, {}, {"d1": "m", "d2": "m"})
    data = load_evaluation_data(Dataset.of(collection), Attribute.named("gender"), "gender_words")
    bias = FairnessMeasures(groups="field:group", extra=["AWRF_JS@20"])
    suite = MetricSuite((), bias, ("male", "female"))
    with pytest.raises(ValueError, match=r"bias\.groups: .*one group alone, 'm'"):
        suite.check(data)
    given = FairnessMeasures(groups="field:group", extra=["AWRF_JS@20"], target={"m": 1, "f": 1})
    MetricSuite((), given, ("male", "female")).check(data)
