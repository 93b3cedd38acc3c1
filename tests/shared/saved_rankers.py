"""Rankers of every kind, saved as they are saved now, and pairs of texts that are hard to read in
the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import backpack_rank
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "rankers"
PAIRS = [
    ("who can rewire a house?", "She is an electrician; he sells flowers to a woman."),
    (
        "  who can rewire a house?\n",
        "A text that spells <|endoftext|>, [SEP] and </s>, and he reads on.",
    ),
    ("doctor", ""),
    ("doctor", " \u3000 "),
    ("doctor", "\x1cHe said it.\x1f"),
    ("a nurse", "her words and his words " * 60),
]


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], tuple[Path, PointwiseReranker]]:
    """A function that saves one of these rankers and loads it again."""

    def save(name: str) -> tuple[Path, PointwiseReranker]:
        save_ranker(tmp_path / name, *load_ranker(FIXTURES / name))
        reranker = backpack_rank.load(tmp_path / name, device="cpu")
        assert isinstance(reranker, PointwiseReranker)
        return tmp_path / name, reranker

    return save
