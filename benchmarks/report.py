"""Goals, tables and the JSON record of a benchmark run."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
import transformers
from rich import box
from rich.console import Console
from rich.table import Table

from backpack_rank.files import write_text


@dataclass(frozen=True)
class Goal:
    """A figure and the bound it is held against.

    Attributes:
        text: what is measured.
        value: as measured.
        bound: the goal.
        at_least: True when the value must not fall below the bound, False when it must not exceed
            it.
        judged: False where the goal was set for another device or size; the value is then only
            shown.
    """

    text: str
    value: float
    bound: float
    at_least: bool
    judged: bool = True

    @property
    def met(self) -> bool:
        """Whether the value keeps to the bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def verdict(self) -> str:
        """``met``, ``NOT met`` or ``not judged``."""
        return ("met" if self.met else "NOT met") if self.judged else "not judged"

    def as_row(self) -> list[str]:
        """Text, value, goal and verdict for the table."""
        return [
            self.text,
            _number(self.value),
            f"{'>=' if self.at_least else '<='} {self.bound:g}",
            self.verdict,
        ]

    def as_record(self) -> dict[str, object]:
        """For the JSON file."""
        bound = f"{'>=' if self.at_least else '<='} {self.bound:g}"
        return {"text": self.text, "value": self.value, "goal": bound, "verdict": self.verdict}


def command_line(benchmark: str) -> str:
    """The command of this run, without the folders of this machine."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return shlex.join(["python", "-m", f"benchmarks.{benchmark}", *words])


def machine(device: str) -> dict[str, object]:
    """What the figures depend on: versions, processor, cores, load of the machine at the start."""
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": list(os.getloadavg()),
        "device": device,
    }
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def print_table(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table whose first column is text and whose others are figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def record_file(name: str, quick: bool) -> Path:
    """Where a record goes that is not told: into benchmarks/results, of a quick run into build/."""
    root = Path(__file__).resolve().parents[1]
    return (root / "build" if quick else root / "benchmarks" / "results") / name


def write_record(path: Path, record: dict[str, object]) -> None:
    """Write the JSON file, whole or not at all."""
    write_text(path, json.dumps(record, indent=2) + "\n")


def _number(value: float) -> str:
    return f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:.3g}"


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
