"""Teachers of train.py: runs and rankers, what is scored, when it is scored again, and wrong options."""

from __future__ import annotations

import csv
import logging
import os
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue

from backpack_rank.data.training_lists import TrainingLists
from backpack_rank.data.trec import read_run, write_run
from backpack_rank.models.factory import load_ranker, save_ranker
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.train import train
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.training.ranking_loss import LOSSES
from backpack_rank.training.teachers import (
    NoTeacher,
    RankerTeacher,
    RunTeacher,
    StudentData,
    prepare_teacher,
)

CONF = Path(__file__).resolve().parents[2] / "conf"
CANDIDATES = {
    "q1": {"d3": 3.0, "d0": 2.0, "d2": 1.0, "d5": 0.5},
    "q2": {"d1": 1.0, "d6": 0.5},
    "q3": {"d6": 2.0, "empty": 1.0},
}
SMALL = [
    "model.tokenizer.vocab_size=400",
    "model.ranker.layers=1",
    "model.ranker.hidden_size=16",
    "model.ranker.heads=2",
    "model.ranker.senses=4",
    "+data.train.train_queries=6",
    "+data.train.documents=40",
    "+data.dev.dev_queries=3",
    "+data.dev.documents=30",
    "max_length=64",
    "pretraining.epochs=0",
    "training.epochs=2",
    "lists.size=4",
    "training.lists_per_batch=1",
]


def composed(*options: str):
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=list(options))


def made(*options: str):
    """The teacher that the options ask for."""
    return instantiate(composed(*options).teacher, _convert_="all")


@pytest.fixture
def material(tiny_collection, tmp_path):
    lists = TrainingLists(tiny_collection, CANDIDATES, size=3, max_relevant=1, seed=2)
    return StudentData(tiny_collection, CANDIDATES, lists, 2, tmp_path / "run", "cpu")


@pytest.fixture
def saved(make_backpack, pair_tokenizer, tmp_path):
    """Folder of a saved ranker."""
    save_ranker(tmp_path / "saved", make_backpack(seed=3), pair_tokenizer)
    return tmp_path / "saved"


@pytest.fixture
def scored(monkeypatch):
    """Counts of the pairs scored, one for every time a scorer is asked for a run's worth of scores."""
    counts, own = [], Scorer.scores
    monkeypatch.setattr(Scorer, "scores", lambda self, pairs: (counts.append(len(pairs)), own(self, pairs))[1])
    return counts


def test_a_ranker_scores_relevant_documents_and_candidates_once(material, saved, scored):
    source = RankerTeacher(checkpoint=str(saved))
    run = source.run(material)
    assert {query_id: set(scores) for query_id, scores in run.items()} == {
        "q1": {"d0", "d1", "d2", "d3", "d5"},
        "q2": {"d1", "d4", "d5", "d6"},
        "q3": {"d6", "empty"},
    }
    ranker, pair_tokenizer = load_ranker(saved)
    texts = material.collection.documents.get_many(run["q1"])
    expected = Scorer(ranker, pair_tokenizer).score(material.collection.queries["q1"], list(texts.values()))
    assert list(run["q1"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert read_run(material.folder / "teacher.trec") == run
    assert source.run(material) == run
    assert scored == [11]


def test_the_scores_are_those_of_weights_texts_and_pairs(
    material, saved, scored, make_backpack, pair_tokenizer, tiny_collection, caplog
):
    source = RankerTeacher(checkpoint=str(saved))
    before = source.run(material)
    # A ranker with other weights in the same folder.
    save_ranker(saved, make_backpack(seed=4), pair_tokenizer)
    with caplog.at_level(logging.WARNING):
        after = source.run(material)
    assert "is of another ranker or other texts; scoring again" in caplog.text
    assert before != after
    # Another text of a query.
    tiny_collection.queries["q3"] = "bread for guests"
    assert source.run(material)["q3"] != after["q3"]
    assert scored == [11, 11, 11]
    source.run(material)
    assert len(scored) == 3


def test_a_limit_scores_what_the_lists_draw(material, saved, scored):
    source = RankerTeacher(checkpoint=str(saved), candidates_per_query=1)
    run = source.run(material)
    drawn = {}
    for epoch in range(2):
        for item in material.lists.epoch(epoch):
            drawn.setdefault(item.query_id, []).extend(item.doc_ids)
    for query_id, scores in run.items():
        relevant = {doc_id for doc_id, label in material.collection.qrels[query_id].items() if label > 0}
        others = [d for d in drawn[query_id] if d not in relevant and d in CANDIDATES[query_id]]
        assert set(scores) == ({*drawn[query_id]} & relevant) | {others[0]}
    assert scored[0] < 11


def test_the_teacher_is_used_by_the_lists_and_draws_no_random_number(material, saved):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    source = RankerTeacher(checkpoint=str(saved), loss="listwise_kl", weight=2.0, temperature=3.0)
    teacher, (term,) = prepare_teacher(source, material)
    assert torch.equal(torch.rand(3), expected)
    known = read_run(material.folder / "teacher.trec")
    found = teacher.scores("q2", ["d4", "d3", "d1"])
    assert found[[0, 2]].tolist() == pytest.approx([known["q2"]["d4"], known["q2"]["d1"]])
    assert torch.isnan(torch.from_numpy(found))[1]
    assert (term.kind, term.weight, term.temperature) == ("listwise_kl", 2.0, 3.0)


def test_without_a_teacher_nothing_is_added(material):
    assert made() == NoTeacher()
    assert prepare_teacher(NoTeacher(), material) == (None, ())


def test_runs_of_a_teacher_are_counted(material, tmp_path, caplog):
    path = tmp_path / "scores.trec"
    write_run(path, {"q1": {"d0": 1.0, "d3": 0.5}, "q9": {"d0": 1.0}}, "t")
    with caplog.at_level(logging.INFO):
        teacher, (term,) = prepare_teacher(RunTeacher(files=str(path)), material)
    assert "2 of 11 training pairs have a teacher's score, 9 have none; 1 of 3 queries" in caplog.text
    assert teacher.scores("q1", ["d3", "d0"]).tolist() == [0.5, 1.0]
    assert term.kind == "margin_mse"


@pytest.mark.parametrize(
    ("run", "loss", "said"),
    [
        ({"q9": {"d0": 1.0}}, "margin_mse", "none of the 11 training pairs of tiny has a teacher's score"),
        ({"q1": {"d0": 1.0, "d1": 1.0}}, "margin_mse", "score for a relevant and for another document"),
        ({"q1": {"d0": 1.0}, "q2": {"d1": 2.0}}, "listwise_kl", "score for two documents"),
    ],
)
def test_a_teacher_of_no_use_is_an_error(material, tmp_path, run, loss, said):
    path = tmp_path / "scores.trec"
    write_run(path, run, "t")
    with pytest.raises(ValueError, match=said):
        prepare_teacher(RunTeacher(files=[str(path)], loss=loss), material)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["teacher=run", "teacher.files=[]"], "teacher.files=[] names no file"),
        (["teacher=run", "teacher.files=[/nowhere/a.trec]"], "teacher.files: there is no file /nowhere/a.trec"),
        (["teacher=run"], "teacher.files"),
        (["teacher=ranker"], "teacher.checkpoint"),
        (["teacher=ranker", "teacher.checkpoint=/nowhere"], "teacher.checkpoint=/nowhere: neither a run's folder"),
        (["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.loss=mse"], "teacher.loss=mse: use one of margin_mse"),
        (["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.dtype=int8"], "teacher.dtype=int8: use float32"),
        (
            ["teacher=ranker", "teacher.checkpoint=SAVED", "teacher.candidates_per_query=0"],
            "teacher.candidates_per_query=0 must be at least 1",
        ),
        (["training.loss=hinge"], "training.loss=hinge: use one of listwise_softmax"),
    ],
)
def test_wrong_options_are_refused_before_any_data_is_read(saved, tmp_path, options, said):
    options = [option.replace("SAVED", str(saved)) for option in options]
    wrong = (
        ValueError,
        FileNotFoundError,
        InstantiationException,
        MissingMandatoryValue,
    )  # Hydra wraps what a constructor raises
    with pytest.raises(wrong) as error:
        train(composed(*options, "data.train=null"), tmp_path / "run", [])
    assert said in str(error.value.__cause__ or error.value)


def test_train_with_a_ranker_as_teacher_and_resume_without_scoring_again(saved, scored, tmp_path, monkeypatch):
    monkeypatch.setenv("BACKPACK_RANK_CACHE", str(tmp_path / "cache"))
    steps, own = [], LOSSES["lambdarank"]
    monkeypatch.setitem(LOSSES, "lambdarank", lambda *lists: (steps.append(1), own(*lists))[1])
    folder = tmp_path / "student"
    options = ["teacher=ranker", f"teacher.checkpoint={saved}", "teacher.loss=listwise_kl", "training.loss=lambdarank"]
    train(composed(*SMALL, *options), folder, [*SMALL, *options])
    assert len(scored) == 1
    assert len(steps) == 12
    with open(folder / "logs" / "metrics.csv") as handle:  # written every ten steps
        assert any(float(row["train/distillation"] or 0) > 0 for row in csv.DictReader(handle))
    written = os.stat(folder / "teacher.trec").st_mtime_ns
    train(OmegaConf.merge(composed(*SMALL), {"resume": str(folder)}), folder, [])
    assert len(scored) == 1
    assert os.stat(folder / "teacher.trec").st_mtime_ns == written
    load_ranker(folder / "ranker")


def test_every_option_of_the_group_is_taken(saved, tmp_path):
    path = tmp_path / "scores.trec"
    write_run(path, {"q1": {"d0": 1.0}}, "t")
    common = {"loss": "listwise_kl", "weight": 0.5, "temperature": 2.0}
    chosen = [f"teacher.{key}={value}" for key, value in common.items()]
    by_run = made("teacher=run", f"teacher.files={path}", *chosen)
    assert by_run == RunTeacher(files=str(path), **common)
    special = {"candidates_per_query": 7, "dtype": "bfloat16", "tokens_per_batch": 900, "workers": 2}
    chosen += [f"teacher.{key}={value}" for key, value in special.items()]
    by_ranker = made("teacher=ranker", f"teacher.checkpoint={saved}", *chosen)
    assert by_ranker == RankerTeacher(checkpoint=str(saved), **common, **special)
