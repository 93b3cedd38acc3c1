"""Questions by the place of their answers, and PSI: by hand, and as the experiment gives them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from beir_folders import write_beir
from hydra.errors import InstantiationException
from in_process import configured
from read_back import csv_rows

from backpack_rank.data.answers import Answer, Answers
from backpack_rank.data.collection import MemoryStore
from backpack_rank.data.json_lines import write_jsonl
from backpack_rank.data.trec import write_run
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.position.passages.position_buckets import (
    answer_starts,
    bucket_means,
    position_sensitivity,
)


def test_psi_is_the_largest_relative_loss():
    assert position_sensitivity([0.8, 0.6, 0.7]) == pytest.approx(0.25)
    assert position_sensitivity([0.5, 0.5]) == 0
    assert position_sensitivity([0.5, math.nan, 0.25]) == 0.5
    assert math.isnan(position_sensitivity([0.0, 0.0]))
    assert math.isnan(position_sensitivity([math.nan]))


def test_buckets_begin_at_their_first_character():
    starts = {"a": 0, "b": 99, "c": 100, "d": 500, "e": 3000}
    values = {"a": 1.0, "b": 0.5, "c": 0.2, "d": 0.6, "e": 0.0, "without a place": 1.0}
    buckets = bucket_means(values, starts)
    assert buckets.queries == (2, 1, 0, 0, 0, 2)
    expected = (0.75, 0.2, math.nan, math.nan, math.nan, 0.3)
    assert buckets.means == pytest.approx(expected, nan_ok=True)
    assert buckets.psi == pytest.approx(1 - 0.2 / 0.75)


@pytest.mark.slow
def test_what_chance_gives_is_what_questions_without_bias_have():
    rng = np.random.default_rng(1)
    starts = {f"q{place}": int(start) for place, start in enumerate(rng.integers(0, 600, 600))}
    below = []
    for _ in range(20):
        values = dict(zip(starts, rng.random(600).tolist(), strict=True))
        buckets = bucket_means(values, starts)
        below.append(buckets.psi <= buckets.chance)
    assert sum(below) >= 17
    biased = {query_id: 1.0 if start < 300 else 0.5 for query_id, start in starts.items()}
    buckets = bucket_means(biased, starts)
    assert buckets.psi == 0.5 > buckets.chance


def test_the_place_of_a_question_is_that_of_its_first_answer_with_a_place():
    rows = [
        Answer("q1", "d", "saw"),
        Answer("q1", "d", "saw", start=7),
        Answer("q1", "d", "a saw", start=5),
        Answer("q2", "d", "hammer"),
    ]
    answers = Answers("tools", MemoryStore({"d": "It is a saw."}), tuple(rows))
    assert answer_starts(answers) == {"q1": 7}


def test_the_experiment_sets_systems_side_by_side(tmp_path: Path, capsys) -> None:
    late = "word " * 30
    texts = {"d1": "saw and more", "d2": f"{late} saw", "d3": "hammer", "d4": f"{late} hammer"}
    queries = {"q1": "saw", "q2": "hammer"}
    write_beir(tmp_path, queries, texts, {"q1": {"d1": 1}, "q2": {"d4": 1}})
    answers = [
        {"query_id": "q1", "doc_id": "d1", "start": 0, "text": "saw"},
        {"query_id": "q2", "doc_id": "d4", "start": texts["d4"].index("hammer"), "text": "hammer"},
    ]
    write_jsonl(tmp_path / "answers.jsonl", answers)
    # It finds the early answer at once, the late one at the second place.
    run = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d3": 2.0, "d4": 1.0}}
    write_run(tmp_path / "early.trec", run, "early")
    options = ["experiment=position_buckets", f"task.runs=[{tmp_path / 'early.trec'}]"]
    options += ["data=beir", f"data.folder={tmp_path}", f"+data.answers={tmp_path}"]
    evaluate(configured("evaluate", *options), tmp_path / "out")
    (row,) = csv_rows(tmp_path / "out" / "position_buckets.csv", system="early.trec")
    assert float(row["0-100"]) == 1
    second_place = 1 / math.log2(3)
    assert float(row["100-200"]) == pytest.approx(second_place)
    assert float(row["PSI"]) == pytest.approx(1 - second_place)
    shown = capsys.readouterr().out
    assert "nDCG@10 on" in shown
    assert "questions" in shown


@pytest.mark.slow
def test_data_without_answers_and_edges_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    options = ["experiment=position_buckets", "data=synthetic"]
    with pytest.raises(ValueError, match="data=synthetic has no answers: use data=squad"):
        evaluate(configured("evaluate", *options), tmp_path)
    with pytest.raises(InstantiationException, match=r"task.edges=\[100, 0\] must ascend"):
        evaluate(configured("evaluate", *options, "task.edges=[100,0]"), tmp_path)
