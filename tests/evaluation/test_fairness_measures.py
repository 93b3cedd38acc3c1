"""FaiRR, NFaiRR, exposure, parts of groups and lexicons of three groups, by hand and against
obvious versions.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
from pathlib import Path

import pytest
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.collection import MemoryStore
from backpack_rank.data.trec import ranking, read_run
from backpack_rank.data.words import whitespace_tokens
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.fairness_measures import WORD_FAMILIES, FairnessMeasures
from backpack_rank.evaluation.magnitudes import GroupMagnitudes, default_sign
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.evaluation.ranked_documents import top_documents
from backpack_rank.evaluation.results import RunInfo

DATA = os.environ.get("BACKPACK_RANK_DATA")
CONF = Path(__file__).resolve().parents[2] / "conf"
GENDER = Lexicon("small", {"female": ("she", "her"), "male": ("he", "his")})
FAITH = Lexicon("faith", {"a": ("mosque", "imam"), "b": ("church",), "c": ("temple",)})


def magnitudes_of(texts: dict[str, str], lexicon: Lexicon = GENDER) -> GroupMagnitudes:
    return GroupMagnitudes.of(texts, MemoryStore(texts), lexicon, whitespace_tokens)


def values_of(run, magnitudes, names, background=None, **options):
    return (
        FairnessContext(magnitudes, background=background, **options)
        .measure(run, parse_measures(names))
        .values
    )


def preset_of(name: str, attribute: str = "gender") -> FairnessMeasures:
    parts = {
        "bias": CONF / "bias" / f"{name}.yaml",
        "attribute": CONF / "attribute" / f"{attribute}.yaml",
    }
    config = OmegaConf.create({key: OmegaConf.load(path) for key, path in parts.items()})
    return instantiate(config.bias, _convert_="all")


def slow_neutrality(counts: list[int], threshold: int) -> float:
    total = sum(counts)
    if total <= threshold:
        return 1.0
    if total in counts:
        return 0.0  # one group has everything; exact, where the sum below may leave 1e-16
    groups = len(counts)
    distance = 0.0
    for count in counts:
        distance += abs(count / total - 1 / groups)
    return 1 - distance / (2 * (1 - 1 / groups))


def slow_fairr(neutralities: list[float], cutoff: int) -> float:
    return sum(
        value / math.log2(1 + place) for place, value in enumerate(neutralities[:cutoff], start=1)
    )


def slow_group(counts: dict[str, int]) -> str:
    best = [group for group, count in counts.items() if count == max(counts.values())]
    return best[0] if len(best) == 1 and max(counts.values()) > 0 else "neutral"


@pytest.mark.parametrize(
    ("lexicon", "threshold", "neutrality"),
    [
        # he he he she: 1 - |3/4 - 1/2| - |1/4 - 1/2| = 1/2; a single word counts as neutral.
        (GENDER, [], {"": 1, "he": 1, "he he": 0, "he he he she": 0.5, "he she": 1, "she " * 9: 0}),
        (GENDER, [0], {"he": 0, "he his": 0, "he he he": 0}),
        (GENDER, [2], {"he": 1, "he his": 1, "he he he": 0}),
        # Two of three: distances 1/3, 1/6, 1/6, their sum 2/3 divided by 2 (1 - 1/3) = 4/3.
        (FAITH, [], {"mosque church temple": 1, "imam mosque": 0, "church temple": 0.5}),
    ],
)
def test_neutrality_worked_by_hand(lexicon, threshold, neutrality):
    magnitudes = magnitudes_of({text: text for text in neutrality}, lexicon)
    expected = list(neutrality.values())
    assert magnitudes.neutrality(*threshold).tolist() == pytest.approx(expected, rel=0, abs=1e-15)


@pytest.mark.parametrize("groups", [2, 3, 5, 6, 7])
def test_a_background_of_one_sided_documents_has_the_ideal_0_exactly(groups):
    lexicon = Lexicon("n", {f"g{n}": (f"w{n}",) for n in range(groups)})
    texts = {f"d{n}": f"w{n % groups} " * (n + 2) for n in range(20)}
    magnitudes = magnitudes_of(texts, lexicon)
    assert set(magnitudes.neutrality().tolist()) <= {0.0, 1.0}
    assert nfairr(10, magnitudes, ["d0"], texts, threshold=0) == 1.0


def test_fairr_and_nfairr_worked_by_hand():
    texts = {"a": "he he", "b": "", "c": "he he he she"}  # neutrality 0, 1, 1/2
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    names = ["FaiRR@1", "FaiRR@2", "FaiRR@10", "NFaiRR@1", "NFaiRR@2", "NFaiRR@10"]
    values = values_of(run, magnitudes_of(texts), names, background=run)
    second, third = 1 / math.log2(3), 1 / math.log2(4)
    fairr = [0.0, second, second + 0.5 * third]
    ideal = [1.0, 1 + 0.5 * second, 1 + 0.5 * second]  # sorted: 1, 1/2, 0
    expected = fairr + [value / best for value, best in zip(fairr, ideal, strict=True)]
    assert [values[name]["q"] for name in names] == pytest.approx(expected)


def in_this_order(doc_ids):
    """A run of one query."""
    return {"q": {doc_id: -float(place) for place, doc_id in enumerate(doc_ids)}}


def nfairr(cutoff, magnitudes, ranked, background, **options):
    """Of one query. Documents are letters, best first."""
    name = f"NFaiRR@{cutoff}"
    run, background_run = in_this_order(ranked), in_this_order(background)
    return values_of(run, magnitudes, [name], background_run, **options)[name]["q"]


def test_the_ideal_goes_on_where_the_list_is_shorter_than_the_background():
    magnitudes = magnitudes_of(dict.fromkeys("abcd", ""))
    ideal = sum(1 / math.log2(place) for place in (2, 3, 4, 5))
    assert nfairr(2, magnitudes, "a", "abcd") == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert nfairr(9, magnitudes, "a", "abcd") == pytest.approx(1 / ideal)


def test_only_the_head_of_the_background_counts():
    magnitudes = magnitudes_of({"a": "he he", "b": ""})
    # The neutral document is second in the background; within depth 1 nothing has any neutrality.
    assert nfairr(1, magnitudes, "a", "ab") == 0.0
    assert nfairr(1, magnitudes, "a", "ab", background_depth=1) == 1.0


def test_the_ideal_order_has_nfairr_1_and_documents_from_elsewhere_may_exceed_it():
    magnitudes = magnitudes_of({"a": "he he he she", "b": "", "c": "he he"})
    assert nfairr(2, magnitudes, "bac", "bac") == pytest.approx(1.0)
    assert nfairr(1, magnitudes, "b", "a") == 2.0


def test_exposure_worked_by_hand():
    texts = {"a": "he he she", "b": "she", "c": "he she", "d": ""}
    run = {"q": {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}}
    names = [
        f"Exposure({group})@{cutoff}"
        for cutoff in (2, 10)
        for group in ("female", "male", "neutral")
    ]
    values = [value["q"] for value in values_of(run, magnitudes_of(texts), names).values()]
    weights = [1 / math.log2(1 + place) for place in (1, 2, 3, 4)]
    at_two, at_four = sum(weights[:2]), sum(weights)
    assert values == pytest.approx(
        [
            weights[1] / at_two,
            1 / at_two,
            0.0,
            weights[1] / at_four,
            1 / at_four,
            sum(weights[2:]) / at_four,
        ]
    )


def test_three_groups_take_the_sign_of_any_two():
    magnitudes = magnitudes_of({"d": "mosque imam church temple temple temple"}, FAITH)
    run = {"q": {"d": 1.0}}
    assert magnitudes.groups == ("a", "b", "c")
    names = ["RaB(tc)@5", "RaB(tc,b)@5", "RaB(tc,c_minus_b)@5"]
    assert [v["q"] for v in values_of(run, magnitudes, names, sign="a_minus_c").values()] == [
        -1.0,
        1.0,
        2.0,
    ]
    with pytest.raises(
        ValueError,
        match="b_minus_a or c_minus_a or a_minus_b or c_minus_b or a_minus_c or b_minus_c",
    ):
        values_of(run, magnitudes, names, sign="a_minus_d")


def test_the_sign_without_a_choice():
    assert (
        default_sign(("male", "female"))
        == default_sign(("female", "male", "other"))
        == "male_minus_female"
    )
    assert default_sign(("a", "b", "c")) == "b_minus_a"


def test_all_measures_of_a_word_list_of_three_groups_from_a_file(tmp_path):
    path = tmp_path / "faith.csv"
    path.write_text("word,group\nmosque,a\nchurch,b\ntemple,c\n")
    measures = FairnessMeasures(
        lexicon=str(path), families=WORD_FAMILIES, cutoffs=[5], kinds=["bool"]
    )
    documents = MemoryStore({"x": "mosque mosque", "y": "church", "z": "no"})
    run, background = {"q": {"x": 2.0, "z": 1.0}}, {"q": {"x": 2.0, "y": 1.0}}
    assert measures.documents([run], background) == ["x", "z", "y"]
    values = measures.measure(run, measures.magnitudes(["x", "y", "z"], documents), background)
    assert values.measures == (
        *("RaB(bool)@5", "ARaB(bool)@5"),
        *("RaB(bool,a)@5", "ARaB(bool,a)@5"),
        *("RaB(bool,b)@5", "ARaB(bool,b)@5"),
        *("RaB(bool,c)@5", "ARaB(bool,c)@5"),
        *("FaiRR@5", "NFaiRR@5"),
        *("Exposure(a)@5", "Exposure(b)@5", "Exposure(c)@5", "Exposure(neutral)@5"),
    )
    assert values.mean("RaB(bool)@5") == -0.5  # b minus a
    about = measures.describe(RunInfo(notes=("first",)), "BM25")
    assert about.sign == "b_minus_a"
    assert about.lexicon == "faith (1 a + 1 b + 1 c words)"
    assert about.notes[0] == "first"
    assert "documents of BM25, 200 at most" in about.notes[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([GENDER, FAITH]), st.sampled_from([0, 1, 3]))
def test_random_runs_with_ties_short_lists_and_empty_documents_agree_with_slow_versions(
    seed, lexicon, threshold
):
    source = random.Random(seed)
    vocabulary = [*lexicon.words, "tree", "house"]
    texts = {
        f"d{n}": " ".join(source.choices(vocabulary, k=source.choice([0, 1, 2, 5, 20])))
        for n in range(25)
    }
    queries = ("q1", "q2", "q3")

    def drawn_run() -> dict[str, dict[str, float]]:
        """Some documents of each query; few scores, so that many are equal."""
        drawn = {}
        for query in queries:
            doc_ids = source.sample(sorted(texts), source.randint(1, 25))
            drawn[query] = {doc_id: float(source.randint(0, 4)) for doc_id in doc_ids}
        return drawn

    run = drawn_run()
    background = drawn_run()
    cutoffs, depth = (1, 3, 10, 40), source.choice([2, 8, 200])
    counts = {}
    for doc_id, text in texts.items():
        counts[doc_id] = {}
        for group, group_words in lexicon.groups.items():
            counts[doc_id][group] = sum(map(text.split().count, group_words))
    groups = [*lexicon.groups, "neutral"]
    names = []
    for cutoff in cutoffs:
        names += [f"FaiRR@{cutoff}", f"NFaiRR@{cutoff}"]
        names += [f"Exposure({group})@{cutoff}" for group in groups]
    options = {"background_depth": depth, "threshold": threshold}
    values = values_of(run, magnitudes_of(texts, lexicon), names, background, **options)
    neutral = {
        d: slow_neutrality(list(by_group.values()), threshold) for d, by_group in counts.items()
    }
    for query in queries:
        ranked = sorted(run[query], key=lambda d: (-run[query][d], d))
        first = sorted(background[query], key=lambda d: (-background[query][d], d))[:depth]
        for cutoff in cutoffs:
            fairr = slow_fairr([neutral[d] for d in ranked], cutoff)
            ideal = slow_fairr(sorted((neutral[d] for d in first), reverse=True), cutoff)
            assert abs(values[f"FaiRR@{cutoff}"][query] - fairr) < 1e-12
            assert (
                abs(values[f"NFaiRR@{cutoff}"][query] - (fairr / ideal if ideal > 0 else 1.0))
                < 1e-12
            )
            held = dict.fromkeys(groups, 0.0)
            for place, doc_id in enumerate(ranked[:cutoff], start=1):
                held[slow_group(counts[doc_id])] += 1 / math.log2(1 + place)
            for group in groups:
                share = held[group] / sum(held.values())
                assert abs(values[f"Exposure({group})@{cutoff}"][query] - share) < 1e-12


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.0, 1e300]), max_size=12),
    st.integers(1, 14),
    st.booleans(),
)
def test_the_first_places_are_those_of_the_whole_ranking(scores, depth, in_order):
    chosen = random.Random(len(scores)).sample(range(100), len(scores))
    values = sorted(scores, reverse=True) if in_order else scores
    run = {"q": {f"d{number}": score for number, score in zip(chosen, values, strict=True)}}
    assert top_documents([run], depth) == ranking(run["q"])[:depth]


def test_further_runs_over_the_same_background_give_the_same_values():
    texts = {"a": "he he", "b": "", "c": "he he he she"}
    background = {"q": {"a": 1.0, "b": 2.0, "c": 3.0}, "p": {"c": 1.0}}
    runs = [{"q": {"a": 2.0, "b": 1.0}}, {"p": {"b": 1.0}, "q": {"c": 1.0, "a": 3.0}}]
    magnitudes, measures = magnitudes_of(texts), parse_measures(["NFaiRR@2", "RaB@2"])
    shared = FairnessContext(magnitudes, background=background)
    for run in runs:
        alone = FairnessContext(magnitudes, background=background).measure(run, measures)
        assert shared.measure(run, measures) == alone


@pytest.mark.parametrize("names", [["RaB@2", "NFaiRR@2"], ["NFaiRR@2", "RaB@2", "FaiRR@1"]])
def test_a_query_without_background_has_every_value_but_nfairr(names):
    magnitudes = magnitudes_of({"a": "he he", "b": ""})
    run = {"q": {"a": 2.0, "b": 1.0}, "p": {"a": 1.0}, "r": {"b": 1.0}}
    context = FairnessContext(
        magnitudes, background={"q": {"a": 1.0, "b": 2.0}, "p": {}, "r": {"b": 1.0}}
    )
    values = context.measure(run, parse_measures(names))
    assert list(values.values["NFaiRR@2"]) == ["q", "r"]
    assert list(values.values["RaB@2"]) == ["q", "p", "r"]
    assert set(values.query_ids) == {"q", "p", "r"}
    with_all_backgrounds = {
        query_id: {"a": 1.0, "b": 2.0} if query_id == "p" else background
        for query_id, background in context.background.items()
    }
    other = FairnessContext(magnitudes, background=with_all_backgrounds).measure(
        run, parse_measures(names)
    )
    assert values.values["NFaiRR@2"]["q"] == other.values["NFaiRR@2"]["q"]
    # The same context goes on to another run.
    assert context.measure({"p": {"b": 1.0}, "q": {"b": 1.0}}, parse_measures(names)).values[
        "NFaiRR@2"
    ].keys() == {"q"}


def test_bad_input_is_named():
    magnitudes = magnitudes_of({"a": "he"})
    run = {"q": {"a": 1.0}}
    with pytest.raises(ValueError, match="NFaiRR needs a background run"):
        values_of(run, magnitudes, ["NFaiRR@5"])
    with pytest.raises(KeyError, match="no documents for 1 queries: 'q'"):
        values_of(run, magnitudes, ["NFaiRR@5"], {"p": {"a": 1.0}, "q": {}})
    with pytest.raises(KeyError, match="no documents for 2 queries: 'q', 'p'"):
        FairnessContext(magnitudes, background={"q": {}}).sorted_background(["q", "p"])
    with pytest.raises(KeyError, match="1 documents of the background run have no magnitude: 'b'"):
        values_of(run, magnitudes, ["NFaiRR@5"], {"q": {"b": 1.0}})
    with pytest.raises(
        KeyError, match=r"7 documents of the run .*'x0', 'x1', 'x2', 'x3', 'x4' and 2 more"
    ):
        values_of({"q": {f"x{n}": -float(n) for n in range(7)}}, magnitudes, ["Exposure(male)@10"])
    with pytest.raises(ValueError, match="none of the 0 queries"):
        values_of({}, magnitudes, ["FaiRR@5"])
    with pytest.raises(
        ValueError, match="unknown group 'young'; choose from female, male, neutral"
    ):
        values_of(run, magnitudes, ["Exposure(young)@5"])
    with pytest.raises(ValueError, match="nDCG@5: no measure of fairness"):
        values_of(run, magnitudes, ["nDCG@5", "FaiRR@5"])
    with pytest.raises(ValueError, match="'q', document 'a' is nan"):
        values_of({"q": {"a": math.nan}}, magnitudes, ["FaiRR@5"])


def test_a_group_called_neutral_is_refused_for_exposure():
    magnitudes = magnitudes_of(
        {"d": "she"}, Lexicon("n", {"female": ("she",), "neutral": ("they",)})
    )
    with pytest.raises(ValueError, match="rename it"):
        values_of({"q": {"d": 1.0}}, magnitudes, ["Exposure(female)@5"])


@pytest.mark.parametrize(
    ("name", "tokenizer", "words", "measures"),
    [
        ("default", "word", 32, {"RaB(tf)@40", "ARaB(tf-paper)@5", "NFaiRR@10"}),
        ("rekabsaz2020", "whitespace", 32, {"RaB(tc)@40", "ARaB(bool,female)@5"}),
        ("rekabsaz2021", "whitespace", 163, {"FaiRR@50", "NFaiRR@5"}),
    ],
)
def test_presets_are_read_from_their_files(name, tokenizer, words, measures):
    preset = preset_of(name)
    assert (preset.preset, preset.tokenizer) == (name, tokenizer)
    assert measures <= set(preset.measures)
    assert f"({words} female + {words} male words)" in preset.describe(RunInfo()).lexicon
    magnitudes = preset.magnitudes(["d"], MemoryStore({"d": "he, and she"}))
    assert magnitudes.values["tc"].tolist() == (
        [[1.0, 1.0]] if tokenizer == "word" else [[1.0, 0.0]]
    )


def test_the_default_preset_of_the_class_is_the_one_of_the_file():
    read, of_class = preset_of("default"), FairnessMeasures()
    assert list(read.measures) == list(of_class.measures)
    assert (read.threshold, read.background_depth) == (
        of_class.threshold,
        of_class.background_depth,
    )
    assert read.describe(RunInfo()) == of_class.describe(RunInfo())


@pytest.mark.parametrize("attribute", ["age", "religion", "ethnicity"])
def test_other_attributes_are_measured_with_their_own_groups(attribute):
    preset = preset_of("default", attribute)
    magnitudes = preset.magnitudes(["d"], MemoryStore({"d": "no such word"}))
    values = preset.measure({"q": {"d": 1.0}}, magnitudes, {"q": {"d": 1.0}})
    assert (values.mean("RaB(tf)@5"), values.mean("NFaiRR@5")) == (0.0, 1.0)
    plus, minus = preset.describe(RunInfo()).sign.split("_minus_")
    assert {plus, minus} <= set(magnitudes.groups)


def test_nfairr_of_bm25_on_the_30_fairness_queries_agrees_with_the_published_algorithm():
    if not DATA:
        pytest.skip("set BACKPACK_RANK_DATA to the folder with dl19 and gender_bias_ir")
    published: dict[str, set[str]] = {"f": set(), "m": set()}
    with open(Path(DATA, "gender_bias_ir", "wordlist_gender_representative.txt")) as handle:
        for word, group in csv.reader(handle):
            published[group].add(word.lower())
    lines = Path(DATA, "gender_bias_ir", "trecdeep19_passage.fair.tsv").read_text().splitlines()
    wanted = [line.split("\t")[0] for line in lines]
    with open(Path(DATA, "dl19", "corpus.jsonl")) as handle:
        texts = {record["_id"]: record["text"] for record in map(json.loads, handle)}
    run = read_run(Path(DATA, "dl19", "candidates", "bm25.trec"))
    preset = preset_of("rekabsaz2021")
    magnitudes = preset.magnitudes(preset.documents([run], run), MemoryStore(texts))
    measured = preset.measure(run, magnitudes, run, wanted)
    assert len(measured.query_ids) == len(wanted) == 30
    slow: dict[int, list[float]] = {5: [], 10: [], 20: [], 50: []}
    for query_id in wanted:
        neutral = []
        for doc_id in sorted(run[query_id], key=lambda d: (-run[query_id][d], d)):
            tokens = texts[doc_id].lower().split(" ")
            counts = [sum(token in words for token in tokens) for words in published.values()]
            neutral.append(slow_neutrality(counts, 1))
        for cutoff, values in slow.items():
            values.append(
                slow_fairr(neutral, cutoff) / slow_fairr(sorted(neutral, reverse=True), cutoff)
            )
    for cutoff, values in slow.items():
        assert list(measured.values[f"NFaiRR@{cutoff}"].values()) == pytest.approx(
            values, abs=1e-12
        )
    assert 0.8 < measured.mean("NFaiRR@10") < 1
