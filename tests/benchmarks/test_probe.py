"""What the probe of the start puts a clock around is there."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

import pytest

from benchmarks.startup_probe import PARTS


@pytest.mark.parametrize(("part", "module", "path"), PARTS)
def test_a_part_of_the_start_is_found(part: str, module: str, path: str) -> None:
    assert callable(attrgetter(path)(import_module(module))), part
