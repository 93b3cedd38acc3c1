"""The floors of docs/contributing/architecture.md: a module imports only from its own floor or
below, and rooms form no circle.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from rooms import BESIDE_THE_CORE

PACKAGE = Path(__file__).resolve().parents[1] / "backpack_rank"
FLOORS = [
    (
        "digests",
        "files",
        "progress",
        "checks",
        "constructors",
        "commands",
        "options",
        "parts",
        "notebook",
    ),
    ("data",),
    ("models", "attributes"),
    ("senses", "evaluation"),
    ("reranking", "reporting"),
    ("training",),
    ("pipelines", "experiments"),
    ("position", "integrations", "serving", "scale"),
    ("cli",),
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS, start=1) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))
RENDERERS = {"altair", "matplotlib", "rich", "vl_convert"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def imported(path: Path) -> set[str]:
    """Names of all modules that a file imports, also under TYPE_CHECKING and inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            # "from backpack_rank.data import trec" imports a module as well
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def rooms_used(path: Path) -> set[str]:
    return {
        name.split(".")[1] for name in imported(path) if name.startswith("backpack_rank.")
    } & FLOOR.keys()


def test_every_room_has_a_floor() -> None:
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if not path.name.startswith("_") and path.suffix in ("", ".py")
    }
    assert rooms == set(FLOOR)


def test_nothing_is_imported_from_a_floor_above() -> None:
    up = []
    for path in MODULES:
        if not room_of(path).startswith("_"):
            for room in rooms_used(path):
                if FLOOR[room] > FLOOR[room_of(path)]:
                    up.append((str(path.relative_to(PACKAGE)), room))
    assert up == []


def test_the_core_imports_neither_the_wing_nor_a_door() -> None:
    core = FLOOR.keys() - BESIDE_THE_CORE - {"cli"}
    wrong_imports = [
        (str(path.relative_to(PACKAGE)), rooms_used(path))
        for path in MODULES
        if room_of(path) in core
    ]
    assert [(path, rooms) for path, rooms in wrong_imports if rooms & BESIDE_THE_CORE] == []


def test_modules_form_no_circle() -> None:
    """Not even through an import inside a function, which hides a circle and leaves it."""
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in MODULES
    }
    waiting: dict[str, set[str]] = {}
    for name, path in names.items():
        if not name.endswith("__init__"):
            waiting[name] = imported(path) & names.keys() - {name}
    while free := [name for name, others in waiting.items() if not others & waiting.keys()]:
        for name in free:  # it imports nothing that is left, so it is in no circle
            del waiting[name]
    assert sorted(waiting) == []


def test_rooms_of_one_floor_form_no_circle() -> None:
    uses: dict[str, set[str]] = {}
    for path in MODULES:
        uses.setdefault(room_of(path), set()).update(rooms_used(path) - {room_of(path)})
    reached = {room: set(others) for room, others in uses.items()}
    for _ in uses:
        reached = {
            room: others.union(*(reached.get(o, set()) for o in others))
            for room, others in reached.items()
        }
    assert [room for room, others in reached.items() if room in others] == []


@pytest.mark.parametrize("room", ["evaluation", "senses", "models", "data", "attributes"])
def test_no_measure_and_no_model_imports_a_renderer(room: str) -> None:
    wrong_imports = set()
    for path in (PACKAGE / room).rglob("*.py"):
        wrong_imports |= {name.partition(".")[0] for name in imported(path)}
    assert wrong_imports & RENDERERS == set()


def test_only_pipelines_and_the_command_line_know_the_configuration() -> None:
    knowing = set()
    for path in MODULES:
        if any(name.partition(".")[0] == "omegaconf" for name in imported(path)):
            knowing.add(room_of(path))
    assert knowing <= {"pipelines", "position", "scale", "experiments", "cli"}


def test_one_module_hashes() -> None:
    hashing = {path.name for path in MODULES if imported(path) & {"hashlib", "xxhash"}}
    assert hashing == {"digests.py"}
