"""Wrong options and damaged input end in one sentence that names them, and leave older results alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from workplace import SMALL, Workplace


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        ("-0.5", "alpha=-0.5 must be"),
        ("high", "alpha='high' is not a number"),
        ("nan", "alpha=nan"),
    ],
)
def test_an_impossible_alpha_is_refused(trained: Workplace, alpha: str, said: str) -> None:
    assert said in trained.fails("evaluate.py", f"alpha={alpha}")


def test_without_a_trained_ranker_the_error_says_what_to_do(tmp_path: Path) -> None:
    assert "run `python train.py` first" in Workplace(tmp_path).fails("evaluate.py")


def test_a_checkpoint_folder_without_a_ranker_is_named(trained: Workplace, tmp_path: Path) -> None:
    assert f"checkpoint={tmp_path}: neither" in trained.fails("evaluate.py", f"checkpoint={tmp_path}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("trainer", ["gpu", "ddp"])
def test_a_gpu_trainer_without_a_gpu_is_a_clear_error(tmp_path: Path, trainer: str) -> None:
    said = Workplace(tmp_path).fails("train.py", f"trainer={trainer}")
    assert "torch sees no GPU" in said
    assert "trainer=cpu" in said


def test_an_unknown_measure_is_named(trained: Workplace) -> None:
    assert "nDGC@10" in trained.fails("evaluate.py", "measures=[nDGC@10]")


def test_a_run_needs_its_data(trained: Workplace, tmp_path: Path) -> None:
    path = tmp_path / "some.run"
    path.write_text("q1 Q0 d1 1 2.0 tag\n")
    assert "add data=" in trained.fails("evaluate.py", f"run={path}")
    assert "none of its 1 queries is in embedded/test" in trained.fails("evaluate.py", f"run={path}", "data=embedded")
    path.write_text("q1 Q0 d1 1 2.0\n")
    said = trained.fails("evaluate.py", f"run={path}", "data=embedded")
    assert f"{path}, line 1" in said


def test_a_lexicon_with_a_word_in_both_groups_is_refused(trained: Workplace, tmp_path: Path) -> None:
    path = tmp_path / "words.csv"
    path.write_text("word,group\nshe,female\nhe,male\nshe,male\n")
    said = trained.fails("evaluate.py", f"bias.lexicon={path}")
    assert "line 4" in said
    assert "'she'" in said


def test_max_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    assert "max_length=300 exceeds" in Workplace(tmp_path).fails("train.py", *SMALL, "max_length=300")


def test_an_option_that_does_not_exist_is_refused(trained: Workplace) -> None:
    assert "alhpa" in trained.fails("evaluate.py", "alhpa=0.5")
