"""A few kills of the campaigns; ``python -m tests.campaigns.kills`` and ``rerank_kills`` make many."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_campaigns import few

pytestmark = pytest.mark.processes


def test_killed_commands_recover_to_the_results_of_uninterrupted_ones(tmp_path: Path) -> None:
    results = few("kills", tmp_path)
    assert sum(count["recovered"] for count in results["commands"].values()) >= 6


def test_killed_re_rankings_recover_to_the_bytes_of_uninterrupted_ones(tmp_path: Path) -> None:
    assert few("rerank_kills", tmp_path)["recovered"] >= 6
