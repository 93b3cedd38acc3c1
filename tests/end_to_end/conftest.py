"""Shared by the end-to-end tests."""

from __future__ import annotations

import pytest
from workplace import SMALL, Workplace


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with one trained small Backpack ranker."""
    place = Workplace(tmp_path_factory.mktemp("trained"))
    place.run("train.py", *SMALL)
    return place
