"""Tables of Hofstätter et al. 2021 from saved rankers: which are found, what is measured, what is
missing.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path

import pytest
from beir_folders import write_beir
from hydra.utils import instantiate
from in_process import configured
from omegaconf import DictConfig, OmegaConf
from read_back import csv_rows

from backpack_rank.data.collection import Collection
from backpack_rank.data.first_stage import GivenCandidates
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.rotation import Rotation
from backpack_rank.data.trec import write_run
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.models.loading import save_ranker
from backpack_rank.pipelines.run_folder import save_overrides
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.passages.rotation_benchmark import mean_values
from backpack_rank.position.tables.checkpoints import TrainingStage, find_checkpoints

BEIR = "backpack_rank.data.sources.beir.load_beir"
GIVEN = "backpack_rank.data.first_stage.GivenCandidates"


def collection_folder(folder: Path, sentences: tuple[str, ...]) -> Path:
    """A BEIR folder of 12 documents of two sentences, six queries and their answers in all thirds."""
    documents = {}
    for number in range(12):
        documents[f"d{number}"] = f"{sentences[number % 8]} {sentences[(number + 3) % 8]}"
    queries = {f"q{number}": " ".join(sentences[number].split()[:4]) for number in range(6)}
    places = {query: (f"d{number}", number * 29 // 6) for number, query in enumerate(queries)}
    answers = []
    for query, (doc_id, word) in places.items():
        words = documents[doc_id].split()
        start = len(" ".join(words[:word])) + (word > 0)
        answers.append({"query_id": query, "doc_id": doc_id, "start": start, "text": words[word]})
    qrels = {query: {doc_id: 1} for query, (doc_id, _) in places.items()}
    write_beir(folder, queries, documents, qrels)
    write_jsonl(folder / "answers.jsonl", answers)
    scores = {doc_id: 1 / (1 + place) for place, doc_id in enumerate(documents)}
    write_run(folder / "run.trec", dict.fromkeys(queries, scores), "x")
    return folder


def data_of(folder: Path, name: str = "mine", rotation: str = "none") -> dict:
    test = {"folder": str(folder), "split": "test", "candidates": "run.trec", "title": False}
    return {
        "name": name,
        "test": {"_target_": BEIR, **test},
        "dev": None,
        "train": None,
        "first_stage": {"_target_": GIVEN, "name": "given"},
        "answers": str(folder),
        "bias": None,
        "bias_queries": None,
        "measures": ["nDCG@10"],
        "rotation": rotation,
    }


@pytest.fixture
def folder(tmp_path: Path, sentences: tuple[str, ...]) -> Path:
    return collection_folder(tmp_path / "mine", sentences)


@pytest.fixture
def save_run(tmp_path: Path, folder: Path, make_backpack, pair_tokenizer):
    """A function that writes a run as train.py would leave it."""

    def write(
        name: str,
        *,
        seed: int = 0,
        model: str = "tk",
        rotation: str = "none",
        data: str = "mine",
        before: str | None = None,
    ) -> Path:
        run = tmp_path / "runs" / name
        save_ranker(run / "ranker", make_backpack(seed), pair_tokenizer)
        checkpoint = None if before is None else str(tmp_path / "runs" / before / "ranker")
        config = {
            "data": data_of(folder, data, rotation),
            "model": {"name": model},
            "seed": seed,
            "checkpoint": checkpoint,
        }
        OmegaConf.save(OmegaConf.create(config), run / "config.yaml")
        save_overrides(run, ["data=beir", f"data.folder={folder}", "+data.test.title=false"])
        return run

    return write


def composed(tmp_path: Path, folder: Path, *options: str) -> DictConfig:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKPACK_RANK_DATA", "/nowhere")
        overrides = [f"output={tmp_path}", f"cache.folder={tmp_path / 'cache'}"]
        overrides += [f"task.runs={tmp_path / 'runs'}", "scoring.device=cpu"]
        config = configured("evaluate", *overrides, *options)
    OmegaConf.set_struct(config, False)
    rotation = {name: config.data[name] for name in config.data if name.startswith("rotation")}
    config.data = {**data_of(folder), **rotation}
    return config


def run_task(config: DictConfig, folder: Path) -> None:
    task = instantiate(config.task, _convert_="all")
    task.run(EvaluationSettings.of(config), folder, quiet=False)


def reciprocal_ranks(
    ranker, pair_tokenizer, collection: Collection, rotation: Rotation | None
) -> dict[str, float]:
    """MRR@10 by hand: every document of the collection scored apart, ranked by score and then id."""
    texts = dict(collection.documents)
    if rotation is not None:
        for doc_id, text in texts.items():
            texts[doc_id] = " ".join(turned_by_hand(rotation, doc_id, text))
    by_query = {}
    for query_id, query in collection.queries.items():
        scores = {}
        for doc_id, text in texts.items():
            pair = PackedBatch.from_sequences(pair_tokenizer.pairs(query, [text]))
            scores[doc_id] = ranker(pair).scores.item()
        order = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
        (relevant,) = collection.qrels[query_id]
        rank = order.index(relevant) + 1
        by_query[query_id] = 1 / rank if rank <= 10 else 0.0
    return by_query


def turned_by_hand(rotation: Rotation, doc_id: str, text: str) -> list[str]:
    words = text.split()
    first = rotation.first(doc_id, len(words))
    return words[first - 1 :] + words[: first - 1]


def test_runs_say_what_they_were_trained_on(save_run, tmp_path: Path) -> None:
    save_run("0", rotation="train", data="first")
    save_run("1", before="0")
    save_run("2", before="1", rotation="both", model="knrm", seed=3)
    found = find_checkpoints([str(tmp_path / "runs")])
    run_by_name = {run.ranker.parent.name: run for run in found}
    first, second = TrainingStage("first", "word"), TrainingStage("mine")
    assert run_by_name["0"].stages == (first,)
    assert run_by_name["1"].stages == (first, second)
    assert run_by_name["2"].stages == (first, second, TrainingStage("mine", "word"))
    models = [(run_by_name[name].model, run_by_name[name].seed) for name in "012"]
    assert models == [("tk", 0), ("tk", 0), ("knrm", 3)]


def test_the_newest_of_equal_runs_is_kept(save_run, tmp_path, caplog) -> None:
    for number, name in enumerate("ab"):
        run = save_run(name)
        os.utime(run / "ranker" / "config.json", (number, number))
    (kept,) = find_checkpoints([str(tmp_path / "runs")])
    assert kept.ranker.parent.name == "b"
    assert "left out" in caplog.text


def test_a_model_without_a_name_is_called_by_its_class(save_run, tmp_path: Path) -> None:
    run = save_run("without")
    config = OmegaConf.load(run / "config.yaml")
    config.model = {"ranker": "x"}
    OmegaConf.save(config, run / "config.yaml")
    (checkpoint,) = find_checkpoints([str(tmp_path / "runs")])
    assert checkpoint.model == "BackpackForRanking"


@pytest.mark.parametrize(
    ("name", "message"), [("none", "there is no folder"), ("", "no training run with a saved")]
)
def test_a_folder_without_runs_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(FileNotFoundError, match=message):
        find_checkpoints([str(tmp_path / name)])


@pytest.mark.slow
def test_table_4_measures_both_trainings_on_both_test_sets(
    save_run, folder: Path, tmp_path: Path, make_backpack, pair_tokenizer, capsys
) -> None:
    save_run("a", seed=0)
    save_run("b", seed=1)
    save_run("c", rotation="train", seed=2)
    save_run("other data", data="other")
    options = ["experiment=passage_rotation/table4", "data.rotation_seed=5"]
    run_task(composed(tmp_path, folder, *options), tmp_path / "out")
    lines = csv_rows(tmp_path / "out" / "table4.csv", source="here", measure="MRR@10")
    ours = {(line["model"], line["training"], line["test"]): line for line in lines}
    collection = instantiate(data_of(folder)["test"])
    by_hand = {}
    for seed in range(3):
        for test, rotation in (("original", None), ("rotated", Rotation(seed=5))):
            ranks = reciprocal_ranks(make_backpack(seed), pair_tokenizer, collection, rotation)
            by_hand[seed, test] = sum(ranks.values()) / len(ranks)
    for test in ("original", "rotated"):
        value = float(ours["TK", "Original", test]["value"])
        assert value == pytest.approx((by_hand[0, test] + by_hand[1, test]) / 2, abs=1e-9)
        value = float(ours["TK", "Debiased", test]["value"])
        assert value == pytest.approx(by_hand[2, test], abs=1e-9)
    assert ours["TK", "Original", "original"]["rankers"] == "2"
    before, after = by_hand[2, "original"], by_hand[2, "rotated"]
    change = float(ours["TK", "Debiased", "change"]["value"])
    assert change == pytest.approx((after - before) / after)
    floor = []
    for query_id, ranking in GivenCandidates().candidates(collection).items():
        floor.append(1 / (1 + list(ranking).index(f"d{query_id[1:]}")))
    assert float(ours["given", "", "original"]["value"]) == pytest.approx(sum(floor) / 6)
    shown = capsys.readouterr().out
    assert "train model=cross_encoder data=mine data.rotation=train)" in " ".join(shown.split())
    assert "means over seeds 0, 1" in " ".join(shown.split())
    assert csv_rows(tmp_path / "out" / "per_query.csv", system="TK (Debiased) on rotated")


def test_table_4_without_any_ranker_shows_the_floor_and_what_to_train(folder, tmp_path) -> None:
    config = composed(tmp_path, folder, "experiment=passage_rotation/table4")
    config.task.runs = None
    run_task(config, tmp_path / "out")
    text = (tmp_path / "out" / "table4.md").read_text()
    assert "**given**" in text
    assert "train model=tk data=mine data.rotation=none" in text.replace("\\", "")


@pytest.mark.slow
def test_table_5_follows_chains_of_runs(save_run, folder: Path, tmp_path: Path) -> None:
    save_run("alone", seed=0)
    save_run("first", seed=1, data="first")
    save_run("turned first", seed=2, data="first", rotation="train")
    save_run("b", seed=3, before="first")
    save_run("c", seed=4, before="turned first")
    run_task(composed(tmp_path, folder, "experiment=passage_rotation/table5"), tmp_path / "out")
    lines = csv_rows(tmp_path / "out" / "table5.csv", source="here", measure="R@10")
    assert [line["training"] for line in lines] == [
        "mine(Original)",
        "first(Original) -> mine(Original)",
        "first(Debiased) -> mine(Original)",
    ]
    assert "BERT\\_DOT, a, b, c" in (tmp_path / "out" / "table5.md").read_text()


def test_table_5_asks_which_collection_came_first(save_run, folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_run(name, data=name)
        save_run(f"after {name}", before=name)
    with pytest.raises(ValueError, match=r"chains begin with one, two: say which by task.first="):
        run_task(composed(tmp_path, folder, "experiment=passage_rotation/table5"), tmp_path / "out")


@pytest.mark.slow
def test_table_2_takes_mats_of_both_trainings(save_run, folder: Path, tmp_path: Path) -> None:
    save_run("a", data="squad")
    save_run("b", data="squad", rotation="train", seed=1)
    options = ["experiment=passage_rotation/table2", "task.similarity.max_distance=6"]
    options += ["task.similarity.documents=null", "task.similarity.terms=null"]
    run_task(composed(tmp_path, folder, *options), tmp_path / "out")
    lines = csv_rows(tmp_path / "out" / "table2.csv", source="here")
    values = {(line["training"], line["measure"]): float(line["value"]) for line in lines}
    assert values.keys() == set(itertools.product(("Original", "Debiased"), ("MATS", "MATS std")))
    picture = json.loads((tmp_path / "out" / "figure2_SQuAD" / "term_similarity.json").read_text())
    curves = {curve["representation"]: curve["mats"] for curve in picture["curves"]}
    original, debiased = values["Original", "MATS"], values["Debiased", "MATS"]
    assert curves == {"TK, Original": original, "TK, Debiased": debiased}
    assert original != debiased


@pytest.mark.slow
def test_rotation_and_alpha_give_both_biases_in_one_table(save_run, folder, tmp_path) -> None:
    save_run("a", model="backpack")
    save_run("b", model="backpack", rotation="train", seed=1)
    options = ["experiment=passage_rotation/alpha", "task.alphas=[0.5]", "policy=lowest_senses"]
    run_task(composed(tmp_path, folder, *options), tmp_path / "out")
    values = {}
    for line in csv_rows(tmp_path / "out" / "rotation_alpha.csv"):
        values[line["training"], line["alpha"], line["test"], line["measure"]] = line
    for training in ("Original", "Debiased"):
        for alpha in ("1.0", "0.5"):
            for test in ("original", "rotated"):
                for measure in ("nDCG@10", "RaB(tf)@10", "ARaB(tf)@10", "swap change/std"):
                    assert math.isfinite(float(values[training, alpha, test, measure]["value"]))
            thirds = [
                values[training, alpha, "original", f"MRR@10 {third} third"]
                for third in ("first", "middle", "last")
            ]
            assert sum(int(line["queries"]) for line in thirds) == 6
            mean_of_thirds = sum(int(line["queries"]) * float(line["value"]) for line in thirds) / 6
            mean = float(values[training, alpha, "original", "MRR@10"]["value"])
            assert mean_of_thirds == pytest.approx(mean)
    text = (tmp_path / "out" / "rotation_alpha.md").read_text()
    assert text.count("Does rotation change gender bias?") == 2
    assert text.count("Does alpha change position bias?") == 2


def test_rotation_and_alpha_need_a_ranker_with_senses(folder: Path, tmp_path: Path) -> None:
    config = composed(tmp_path, folder, "experiment=passage_rotation/alpha")
    config.task.runs = None
    message = "no ranker with senses that was trained on mine was found"
    with pytest.raises(ValueError, match=message):
        run_task(config, tmp_path / "out")


def test_means_and_tests_are_over_queries() -> None:
    values = PerQuery({"m": {"a": 0.0, "b": 1.0, "c": 0.5}})
    other = PerQuery({"m": {"a": 1.0, "b": 0.0, "c": 1.0}})
    assert mean_values([values, other]).values == {"m": {"a": 0.5, "b": 0.5, "c": 0.75}}
    # Signs of three ranked differences: (-1, +1, -0.5) has ranks 2.5, 2.5, 1; the patterns with a
    # rank sum of at most 2.5 on one side are {1}, {2.5}, {2.5} and none: 2 * 4 / 8.
    assert p_wilcoxon(values, other, "m") == pytest.approx(1.0)
    less = PerQuery({"m": {"a": -0.1, "b": 0.8, "c": 0.2}})
    assert p_wilcoxon(values, less, "m") == pytest.approx(2 / 8)
