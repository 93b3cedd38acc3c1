"""Shared by the end-to-end tests."""

from __future__ import annotations

import pytest
from in_process import trained_in
from workplace import SMALL, Workplace


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with one trained small Backpack ranker."""
    place = Workplace(tmp_path_factory.mktemp("trained"))
    place.run("train.py", *SMALL)
    return place


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with one trained small GPT-2 ranker, which has no senses."""
    place = Workplace(tmp_path_factory.mktemp("gpt2"))
    trained_in(place, "gpt2", "model=gpt2_tiny", *SMALL, "training.epochs=1")
    return place
