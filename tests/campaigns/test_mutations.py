"""A small seed of the campaign of drawn changes: each is refused in a sentence, or taken as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.mutations import run


@pytest.mark.processes
def test_a_changed_input_is_refused_or_taken_as_it_is_written(tmp_path: Path) -> None:
    table, wrong = run(seed=1, number=40, folder=tmp_path)
    assert wrong == []
    assert all(counts.total() == 40 for counts in table.values())
