"""``evaluate.py experiment=frontier``: it measures what is missing, and draws what is there."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hydra.errors import InstantiationException
from in_process import TEST_SPLIT, configured, evaluated
from workplace import SMALL, Workplace, built_once

import backpack_rank
from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.evaluation.frontier_points import PointFile
from backpack_rank.experiments import frontier
from backpack_rank.pipelines.evaluate import task_of
from backpack_rank.pipelines.settings import EvaluationSettings

TRAIN = [*SMALL, "pretraining.epochs=0", "training.epochs=1"]
KEPT = ("unchanged", "leace", "renditions", "paired_tokens")
"""The methods of the tests, all on one ranker."""


def options(folder: Path, *more: str) -> tuple[str, ...]:
    train = json.dumps(["data=synthetic", *dict.fromkeys(TRAIN)]).replace('"', "'")
    few = []
    for name in task_of(configured("evaluate", "experiment=frontier")).experiment.methods:
        if name not in KEPT:
            few.append(f"task.methods.{name}=null")
    return (
        "experiment=frontier",
        *TEST_SPLIT[1:],
        *("+data.dev.dev_queries=6", "+data.dev.documents=60"),
        f"task.train={train}",
        f"task.folder={folder}",
        f"task.points={folder / 'points'}",
        "task.seeds=[0]",
        "task.alphas=[0.5,0]",
        *few,
        *more,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    def build(place: Workplace) -> None:
        evaluated(place, place.folder / "first", *options(place.folder))

    return built_once(tmp_path_factory, "frontier", build)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with open(folder / "frontier.csv", newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.slow
def test_every_method_has_its_points_and_the_table_their_means(measured: Workplace) -> None:
    stored = PointFile(measured.folder / "points" / "synthetic.jsonl").by_place
    assert set(stored) == {
        ("unchanged", 1.0, 0),
        *((name, alpha, 0) for name in KEPT[1:] for alpha in (0.5, 0.0)),
    }
    rows = rows_of(measured.folder / "first")
    figures = {(row["method"], float(row["alpha"]), row["measure"]): row for row in rows}
    for method, alpha, seed in stored:
        for measure, by_query in stored[method, alpha, seed].values.values.items():
            mean = float(figures[method, alpha, measure]["mean"])
            assert mean == pytest.approx(np.mean(list(by_query.values())))
    # A curve begins with the ranker as it is.
    for name in KEPT[1:]:
        assert figures[name, 1.0, "nDCG@10"]["mean"] == figures["unchanged", 1.0, "nDCG@10"]["mean"]
    swap = "swap change/std (swapped)"
    assert float(figures["renditions", 0.0, swap]["mean"]) < 1e-5
    assert float(figures["unchanged", 1.0, swap]["mean"]) > 1e-3


@pytest.mark.slow
def test_points_are_those_of_a_plain_evaluation(measured: Workplace, tmp_path: Path) -> None:
    """Texts are read once for all policies; each policy alone gives the same figures."""
    ranker = measured.folder / "cross_encoder-seed0"
    (checkpoint,) = ranker.glob("train/*/ranker")
    stored = PointFile(measured.folder / "points" / "synthetic.jsonl").by_place
    for name in ("paired_tokens", "renditions"):
        report = evaluated(
            measured,
            tmp_path / name,
            *TEST_SPLIT,
            f"checkpoint={checkpoint}",
            f"policy={name}",
            "alpha=0.5",
            "measures=[nDCG@10,AWRF_JS@20]",
        )
        row = report.rows[-1]
        values = stored[name, 0.5, 0].values
        for measure in ("nDCG@10", "ARaB(tf)@10", "NFaiRR@10", "AWRF_JS@20"):
            assert values.mean(measure) == pytest.approx(row.figure(measure).mean, abs=1e-4)
        swap = "swap change/std (swapped)"
        assert values.mean(swap) == pytest.approx(row.figure(swap).mean, rel=1e-3)


@pytest.mark.slow
def test_a_point_that_is_there_is_not_measured_again(
    measured: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Path:
        raise AssertionError("no ranker is needed")

    monkeypatch.setattr(frontier, "trained_ranker", refused)
    evaluated(measured, tmp_path / "again", *options(measured.folder))
    assert rows_of(tmp_path / "again") == rows_of(measured.folder / "first")
    # From the stored points alone, on any collection, and without rankers.
    evaluated(measured, tmp_path / "drawn", *options(measured.folder, "task.measure=false"))
    assert (tmp_path / "drawn" / "frontier1.svg").stat().st_size > 1000
    assert rows_of(tmp_path / "drawn") == rows_of(measured.folder / "first")
    with pytest.raises(AssertionError, match="no ranker is needed"):
        evaluated(measured, tmp_path / "more", *options(measured.folder, "task.alphas=[0.5,0.2,0]"))


@pytest.mark.slow
def test_an_interrupted_measurement_keeps_the_rankers_that_are_done(
    measured: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = tmp_path / "points"
    taken = frontier.trained_ranker
    asked: list[str] = []

    def one_then_interrupted(output: Path, given: list[str], name: str) -> Path:
        asked.append(output.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return taken(measured.folder / "cross_encoder-seed0", given, name)

    monkeypatch.setattr(frontier, "trained_ranker", one_then_interrupted)
    two_seeds = options(measured.folder, "task.seeds=[0,1]", "task.alphas=[0]")
    with pytest.raises(KeyboardInterrupt):
        evaluated(measured, tmp_path / "first", *two_seeds, f"task.points={points}")
    assert asked == ["cross_encoder-seed0", "cross_encoder-seed1"]
    assert {seed for _, _, seed in PointFile(points / "synthetic.jsonl").by_place} == {0}
    evaluated(measured, tmp_path / "second", *two_seeds, f"task.points={points}")
    assert asked[2:] == ["cross_encoder-seed1"]
    assert {row["seeds"] for row in rows_of(tmp_path / "second")} == {"2"}


@pytest.mark.slow
def test_a_ranker_that_needs_no_training_is_measured_once_for_all_seeds(
    measured: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = (measured.folder / "cross_encoder-seed0").glob("train/*/ranker")
    loaded: list[str] = []
    load = EvaluationSettings.reranker

    def counted(settings: EvaluationSettings, checkpoint: Path) -> object:
        loaded.append(str(checkpoint))
        return load(settings, checkpoint)

    monkeypatch.setattr(EvaluationSettings, "reranker", counted)
    given = (f"task.rankers.cross_encoder={folder}", "task.seeds=[0,1]", "task.alphas=[0]")
    points = tmp_path / "points"
    options_here = options(tmp_path, *given, f"task.points={points}", "task.methods.leace=null")
    evaluated(measured, tmp_path / "out", *options_here)
    assert loaded == [str(folder)]
    stored = PointFile(points / "synthetic.jsonl").by_place
    before = PointFile(measured.folder / "points" / "synthetic.jsonl").by_place
    for name in ("paired_tokens", "renditions"):
        assert stored[name, 0.0, 0].values == stored[name, 0.0, 1].values
        for measure, expected in before[name, 0.0, 0].values.values.items():
            found = stored[name, 0.0, 0].values.values[measure]
            assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("task.methods.renditions.ranker=bert", r"task\.methods\.renditions\.ranker=bert is none"),
        ("task.alphas=[1,0]", r"task\.alphas: 1 is the ranker as it is"),
        ("+task.methods.unchanged.alphas=[0]", r"task\.methods\.unchanged\.alphas: nothing turns"),
        ("+task.methods.mine={policy:null}", r"task\.methods\.mine=.* must be a Method"),
    ],
)
def test_an_unknown_method_and_wrong_options_are_refused(option: str, message: str) -> None:
    # Hydra wraps what a constructor raises; evaluate.py prints the sentence alone.
    with pytest.raises((ValueError, InstantiationException), match=message):
        task_of(configured("evaluate", "experiment=frontier", option))


@pytest.mark.slow
def test_a_measure_that_is_not_taken_is_refused(measured: Workplace, tmp_path: Path) -> None:
    wrong = ("task.biases=[NDKL@10]", f"task.points={tmp_path / 'points'}")
    with pytest.raises(ValueError, match=r"NDKL@10: not measured on synthetic"):
        evaluated(measured, tmp_path / "out", *options(measured.folder, *wrong))


@pytest.mark.slow
def test_contrast_is_one_of_the_measures(measured: Workplace, tmp_path: Path) -> None:
    more = (
        "contrast=true",
        "task.biases=['swap change/std (swapped)',contrast]",
        "task.methods.leace=null",
        "task.methods.paired_tokens=null",
        f"task.points={tmp_path / 'points'}",
    )
    evaluated(measured, tmp_path / "out", *options(measured.folder, *more))
    rows = {row["method"]: row for row in rows_of(tmp_path / "out") if row["measure"] == "contrast"}
    # The rule: such queries are scored as if there were no dial.
    assert rows["renditions"]["mean"] == rows["unchanged"]["mean"] != ""


@pytest.mark.slow
def test_runs_that_come_and_go_are_ranked_each_by_itself(measured: Workplace) -> None:
    (folder,) = (measured.folder / "cross_encoder-seed0").glob("train/*/ranker")
    together = frontier.ReadTogether([backpack_rank.load(folder)])
    collection = load_synthetic("test", test_queries=4, documents=60)
    query_id = next(iter(collection.queries))
    # A run that nobody keeps is gone before the next one is made, often at the same address.
    for doc_id, _ in list(collection.documents)[:20]:
        (ranked,) = together.runs({query_id: {doc_id: 1.0}}, collection)
        assert list(ranked[query_id]) == [doc_id]
