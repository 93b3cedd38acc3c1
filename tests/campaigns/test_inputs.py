"""A small seed of the campaign of malformed inputs: all of them are clear, or rightly taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.inputs import AREAS, run


@pytest.mark.processes
def test_every_input_is_a_sentence_or_rightly_taken(tmp_path: Path) -> None:
    table, wrong = run(seed=1, number=1500, folder=tmp_path)
    assert wrong == []
    assert sum(counts.total() for counts in table.values()) == 1500
    assert all(table[name].total() >= 80 for name in AREAS)
