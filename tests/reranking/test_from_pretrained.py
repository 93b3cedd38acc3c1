"""Rerankers in the words of the Hugging Face libraries, and what a reranker prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import backpack_rank
from backpack_rank.models.finding import find_ranker
from backpack_rank.models.loading import save_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import Reranker
from backpack_rank.reranking.scorer import Scorer

PAIRS = [("doctor", "he saw his mother"), ("doctor", "a bridge")]


@pytest.fixture
def folder(tmp_path: Path, make_backpack, pair_tokenizer) -> Path:
    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    return tmp_path / "ranker"


@pytest.mark.slow
def test_from_pretrained_is_load(folder: Path) -> None:
    loaded = backpack_rank.load(folder, device="cpu", attribute="age")
    same = Reranker.from_pretrained(folder, device="cpu", attribute="age")
    assert same.predict(PAIRS) == pytest.approx(loaded.predict(PAIRS), abs=1e-6)
    assert same.attribute.name == "age"
    assert isinstance(PointwiseReranker.from_pretrained(folder, device="cpu"), PointwiseReranker)

    class Another(Reranker):
        name = "another"

        def rerank(self, run, collection):
            return run

    with pytest.raises(TypeError, match="is a PointwiseReranker, and no Another"):
        Another.from_pretrained(folder, device="cpu")


def test_a_reranker_prints_folder_kind_attribute_policy_and_alpha(
    folder: Path, make_backpack, pair_tokenizer
) -> None:
    reranker = backpack_rank.load(folder, device="cpu")
    where = f"PointwiseReranker({str(folder)!r}, BackpackForRanking, attribute=gender, "
    assert repr(reranker) == f"{where}policy=lowest_senses (default), alpha=1)"
    turned = reranker.at(0.5, "renditions").reading("chunks")
    assert repr(turned) == f"{where}policy=renditions_keep, alpha=0.5)"
    made = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    assert repr(made).startswith("PointwiseReranker('alpha=1', BackpackForRanking, ")


def test_save_pretrained_of_a_reranker_is_that_of_the_package(folder: Path, tmp_path: Path) -> None:
    reranker = backpack_rank.load(folder, device="cpu")
    reranker.save_pretrained(tmp_path / "a", name="me/one")
    backpack_rank.save_pretrained(reranker, tmp_path / "b", name="me/one")
    assert (tmp_path / "a/README.md").read_text() == (tmp_path / "b/README.md").read_text()
    again = backpack_rank.load(tmp_path / "a", device="cpu")
    # Weights that lie elsewhere in memory may be multiplied in another order.
    assert again.predict(PAIRS) == pytest.approx(reranker.predict(PAIRS), abs=1e-6)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_refused_and_is_not_the_current_folder(
    folder: Path, monkeypatch, name: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(FileNotFoundError, match="load='' names no ranker: give the folder"):
        backpack_rank.load(name)
    with pytest.raises(FileNotFoundError, match="checkpoint='' names no ranker: give the folder"):
        find_ranker(name, "outputs")
    assert repr(backpack_rank.load(".")).startswith("PointwiseReranker")
