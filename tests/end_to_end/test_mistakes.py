"""Wrong options and damaged input end in one sentence that names them, and leave older results
alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hydra.errors import InstantiationException
from in_process import evaluated, trained_in
from workplace import SMALL, Workplace


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ("-0.5", "alpha=-0.5 must be a finite number >= 0"),
        ("1e20", "alpha=1e+20 must be a finite number >= 0 and at most 1000"),
        ("high", "alpha=high: use one of auto, or a finite number"),
        ("nan", "alpha=nan"),
    ],
)
def test_an_impossible_alpha_is_refused(
    trained: Workplace, tmp_path: Path, alpha: str, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluated(trained, tmp_path, f"alpha={alpha}")


@pytest.mark.slow
def test_without_a_trained_ranker_the_error_says_what_to_do(tmp_path: Path) -> None:
    message = Workplace(tmp_path).fails("evaluate.py")
    assert "run `python train.py` first" in message
    assert len(message.strip().splitlines()) == 1


def test_a_checkpoint_folder_without_a_ranker_is_named(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"checkpoint={tmp_path}: neither"):
        evaluated(trained, tmp_path, f"checkpoint={tmp_path}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("trainer", ["gpu", "ddp", "fsdp"])
def test_a_gpu_trainer_without_a_gpu_is_a_clear_error(tmp_path: Path, trainer: str) -> None:
    with pytest.raises(ValueError, match=r"torch sees no GPU.*trainer=cpu"):
        trained_in(Workplace(tmp_path), trainer, f"trainer={trainer}")


def test_an_unknown_measure_is_named(trained: Workplace, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nDGC@10"):
        evaluated(trained, tmp_path, "measures=[nDGC@10]")


@pytest.mark.parametrize("measure", ["RR(rel=99)@10", "NumRelRet(rel=4)", "P(rel=7)@5"])
def test_a_measure_of_a_relevance_that_no_judgement_has_is_refused(
    trained: Workplace, tmp_path: Path, measure: str
) -> None:
    with pytest.raises(ValueError, match=r"measures: .*highest label of synthetic/test is 3"):
        evaluated(trained, tmp_path, f"measures=['{measure}']", "swap=false")


def test_a_run_needs_its_data(trained: Workplace, tmp_path: Path) -> None:
    path = tmp_path / "some.run"
    path.write_text("q1 Q0 d1 1 2.0 tag\n")
    with pytest.raises(ValueError, match="add data="):
        evaluated(trained, tmp_path, f"run={path}")


def test_a_lexicon_with_a_word_in_both_groups_is_refused(
    trained: Workplace, tmp_path: Path
) -> None:
    path = tmp_path / "words.csv"
    path.write_text("word,group\nshe,female\nhe,male\nshe,male\n")
    with pytest.raises(InstantiationException, match=r"line 4.*'she'"):
        evaluated(trained, tmp_path, f"bias.lexicon={path}")


@pytest.mark.slow
def test_max_length_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_length=300 exceeds"):
        trained_in(Workplace(tmp_path), "long", *SMALL, "max_length=300")
