"""Files, classes and functions that docs/contributing/architecture.md names exist, and its floors
are those of the layout test.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")


def defined(path: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    }


def test_files_and_names_exist() -> None:
    named = re.findall(
        r"`((?:backpack_rank|conf|tests)/[\w/.]+)`(?:\)?:? ?`(\w+)`)?", " ".join(TEXT.split())
    )
    assert len(named) > 15
    for file, name in named:
        assert (ROOT / file).is_file(), file
        if name:
            assert name in defined(ROOT / file), f"{file}: {name}"
    for name in re.findall(r"`(Reranker|ResultTable|Policy)` \(`([\w/.]+)`\)", TEXT):
        assert name[0] in defined(ROOT / name[1])


def test_the_floors_are_those_that_are_enforced() -> None:
    spec = importlib.util.spec_from_file_location("layout", ROOT / "tests" / "test_layout.py")
    layout = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layout)
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", TEXT, re.MULTILINE)
    drawn = {int(floor): set(re.findall(r"`(\w+)(?:/|\.py)`", rooms)) for floor, rooms in rows}
    assert drawn == {number: set(rooms) for number, rooms in enumerate(layout.FLOORS, start=1)}


def test_it_is_two_screens_at_most() -> None:
    assert len(TEXT.splitlines()) <= 100
