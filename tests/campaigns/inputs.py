"""Malformed inputs of every class, and what becomes of each.

    python -m tests.campaigns.inputs --seed 0 --cases 1500

What is to be expected is written by hand beside every mutation: a sentence that names the file,
line or option, or the right reading. Everything runs in this process;
tests/campaigns/test_processes.py sends some through real ones.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "shared"),
    str(Path(__file__).resolve().parents[2]),
]

from input_cases import AREAS, VERDICTS, Case, verdict  # noqa: E402

GOOD = ("clear", "accepted")
SHARES = {"files": 4, "option values": 2}
"""Turns of an area where it has more than one."""


def cases(seed: int, number: int, folder: Path) -> Iterator[Case]:
    """So many cases, every area in its turn; what is written by hand comes before anything comes
    twice.
    """
    areas = {
        name: make(random.Random(f"{seed} {name}"), folder / name.replace(" ", "_"))
        for name, make in AREAS.items()
    }
    turns = [name for name in areas for _ in range(SHARES.get(name, 1))]
    for name in islice(cycle(turns), number):
        yield next(areas[name])


def run(seed: int, number: int, folder: Path) -> tuple[dict[str, Counter[str]], list[str]]:
    """Verdicts by area, and a line for every case that did not end well."""
    table: dict[str, Counter[str]] = {name: Counter() for name in AREAS}
    wrong = []
    for case in cases(seed, number, folder):
        verdict_of_case, message = verdict(case)
        table[case.area][verdict_of_case] += 1
        if verdict_of_case not in GOOD:
            wrong.append(f"{verdict_of_case}: {case.area}: {case.name}: {message}")
    return table, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1500)
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        table, wrong = run(options.seed, options.cases, Path(folder))
    print("| class | cases | " + " | ".join(VERDICTS) + " |")
    print("|---|" + "---|" * (len(VERDICTS) + 1))
    for name, counts in [*table.items(), ("all", sum(table.values(), Counter()))]:
        print(
            f"| {name} | {sum(counts.values())} | "
            + " | ".join(str(counts[kind]) for kind in VERDICTS)
            + " |"
        )
    print(f"\n{time.monotonic() - begun:.0f} s, seed {options.seed}", *wrong, sep="\n")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
