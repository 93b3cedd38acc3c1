"""Every attack of the list comes to nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaigns.attacks import ATTACKS, TRACE, _Payload, stopped

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_stopped(attack: Callable[[Path], bool], tmp_path: Path) -> None:
    assert stopped(attack, tmp_path)


def test_the_payload_would_leave_its_trace(tmp_path: Path) -> None:
    import pickle

    pickle.loads(pickle.dumps(_Payload(tmp_path / TRACE)))
    assert (tmp_path / TRACE).exists()
