"""Shared by the end-to-end tests."""

from __future__ import annotations

import pytest
from in_process import trained_in
from workplace import SMALL, Workplace, built_once


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with one trained small Backpack ranker."""
    return built_once(tmp_path_factory, "trained", lambda place: place.run("train.py", *SMALL))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with one trained small GPT-2 ranker, which has no senses."""
    options = ["model=gpt2_tiny", *SMALL, "training.epochs=1"]
    return built_once(tmp_path_factory, "gpt2", lambda place: trained_in(place, "gpt2", *options))
