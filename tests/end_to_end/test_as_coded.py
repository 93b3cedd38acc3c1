"""``evaluate.py experiment=fair_retrieval/as_coded``: it trains what is missing, and compares."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from in_process import TEST_SPLIT, evaluated
from workplace import SMALL, Workplace

from backpack_rank.experiments.as_coded import AsCodedTable

TRAIN = [*SMALL, "pretraining.epochs=0", "training.epochs=1", "+data.train.train_queries=24"]
FEW = (
    "experiment=fair_retrieval/as_coded",
    f"task.train={list(dict.fromkeys(TRAIN))}",
    "task.rankers.trained=null",
    "task.alphas=[0]",
    "task.random_draws=2",
)


@pytest.mark.slow
def test_rankers_are_trained_once_and_compared_in_both_readouts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = Workplace(tmp_path)
    options = (*FEW, *TEST_SPLIT, f"task.folder={tmp_path / 'rankers'}")
    evaluated(place, tmp_path / "first", *options)
    assert "train data=synthetic" in capfd.readouterr().out
    with open(tmp_path / "first" / "as_coded.csv", newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    rules = {(row["ranker"], row["rule"]) for row in rows}
    assert rules == {
        ("frozen", "-"),
        ("frozen", "printed: lowest mean cosine"),
        ("frozen", "coded: most votes"),
        ("frozen", "random senses"),
        ("attribute", "-"),
        ("attribute", "attribute senses"),
    }
    figures = {}
    for row in rows:
        figures[row["ranker"], row["rule"], row["readout"], row["measure"]] = float(row["mean"])
    for readout in ("one token", "mean over positions"):
        unchanged = figures["attribute", "-", readout, "swap change"]
        # Some swapped words are in no class of so small a vocabulary.
        assert figures["attribute", "attribute senses", readout, "swap change"] < unchanged
        assert figures["frozen", "coded: most votes", readout, "swap change"] > 1e-6
    one_token, over_positions = (
        figures["frozen", "-", readout, "swap change"]
        for readout in ("one token", "mean over positions")
    )
    assert one_token != over_positions

    evaluated(place, tmp_path / "second", *options)
    assert "train data=synthetic" not in capfd.readouterr().out, "what is there is taken"
    first = (tmp_path / "first" / "as_coded.csv").read_text(encoding="utf-8")
    assert (tmp_path / "second" / "as_coded.csv").read_text(encoding="utf-8") == first


@pytest.mark.slow
def test_a_training_that_fails_names_the_ranker(tmp_path: Path) -> None:
    options = (*FEW, *TEST_SPLIT, f"task.folder={tmp_path / 'rankers'}")
    wrong = "task.train=['training.epochs=none']"
    with pytest.raises(ValueError, match=r"the training of task\.rankers\.frozen ended with"):
        evaluated(Workplace(tmp_path), tmp_path / "first", *options, wrong)


def test_no_rankers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"task\.rankers is empty"):
        AsCodedTable(data="synthetic", model="backpack_tiny", folder="rankers")
