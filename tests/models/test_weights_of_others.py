"""Weights of others that are pickled, of another format, or not there: what is read and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from foreign_rankers import bert
from safetensors.torch import load_file

import backpack_rank


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """A classifier whose weights are pickled, as older folders have them."""
    for part in bert():
        part.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    torch.save(load_file(weights), tmp_path / "pytorch_model.bin")
    weights.unlink()
    return tmp_path


def test_numbers_are_read(pickled: Path) -> None:
    scores = backpack_rank.load(pickled).predict([("the doctor", "she saw bread")])
    assert scores.shape == (1,)


def test_what_is_more_than_numbers_is_refused_without_advice_to_run_it(pickled: Path) -> None:
    torch.save({"weights": Path("somewhere")}, pickled / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"hold more than numbers; copy them again") as refused:
        backpack_rank.load(pickled)
    assert "weights_only" not in str(refused.value)


def test_a_folder_without_weights_names_what_is_there(pickled: Path) -> None:
    (pickled / "pytorch_model.bin").rename(pickled / "model.onnx")
    with pytest.raises(
        FileNotFoundError, match=r"holds no weights .* model\.onnx.*save_pretrained"
    ):
        backpack_rank.load(pickled)


def test_a_pointer_of_git_lfs_is_told(pickled: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (pickled / "model.safetensors").write_text(pointer)
    with pytest.raises(ValueError, match=r"is a pointer of Git LFS .* git lfs pull"):
        backpack_rank.load(pickled)
