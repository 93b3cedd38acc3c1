"""A module imports only from rooms on its own floor or below."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "backpack_rank"
FLOORS = {
    "files": 0,
    "data": 1,
    "models": 1,
    "reporting": 1,
    "senses": 2,
    "training": 2,
    "position": 2,
    "evaluation": 2,
    "scoring": 3,
    "retrieval": 3,
    "pipelines": 4,
}


def room(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("backpack_rank.")}


def test_no_room_imports_from_a_floor_above() -> None:
    upward = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if own == "__init__":
            continue
        upward += [f"{path.name} -> {name}" for name in imports(path) if FLOORS[room(name)] > FLOORS[own]]
    assert upward == []


def test_every_room_has_a_floor() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if not path.stem.startswith("__")}
    assert rooms == set(FLOORS)
    assert len(list(PACKAGE.rglob("*.py"))) > 40
