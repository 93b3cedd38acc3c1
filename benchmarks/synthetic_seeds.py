"""What alpha does on the synthetic collection over several seeds: trains, sweeps, and prints one table.

``python -m benchmarks.synthetic_seeds --seeds 0 1 2 3 4`` writes ``benchmarks/results/synthetic_seeds.json``. A seed is
that of the collection and of the training. Runs that are already below ``--output`` are taken as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from backpack_rank.files import write_text
from benchmarks.report import command_line

ROOT = Path(__file__).resolve().parents[1]
ALPHAS = "alpha=1,0.9,0.7,0.5,0.3,0"
MEASURES = ("RaB(tf)@10", "ARaB(tf)@10", "RaB(bool)@10", "ARaB(bool)@10")


QUICK = (
    "model.ranker.hidden_size=16",
    "model.ranker.layers=1",
    "model.ranker.heads=2",
    "training.epochs=1",
    "pretraining.epochs=0",
    "+data.train.train_queries=8",
    "+data.train.documents=40",
)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, small rankers, few texts: checks that all runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="0 to 4; quick: 0")
    parser.add_argument("--output", type=Path, default=Path("outputs/seeds"))
    options = parser.parse_args()
    seeds = options.seeds or ([0] if options.quick else [0, 1, 2, 3, 4])
    rows = [row_of(seed, options.output, QUICK if options.quick else ()) for seed in seeds]
    result = {"command": command_line("synthetic_seeds"), "rows": rows}
    folder = options.output if options.quick else ROOT / "benchmarks" / "results"
    write_text(folder / "synthetic_seeds.json", json.dumps(result, indent=1) + "\n")
    print(table(rows))


def row_of(seed: int, output: Path, small: Sequence[str] = ()) -> dict:
    """Means of all systems of one seed: ``{"seed": 0, "BM25": {measure: mean}, "GPT-2": ..., "alpha=1": ...}``."""
    row: dict = {"seed": seed}
    for model, label in (("gpt2_tiny", "GPT-2"), ("backpack_tiny", "Backpack")):
        folder = output / f"{model}-{seed}"
        if not list(folder.glob("train/*/ranker/config.json")):
            script("train.py", f"model={model}", f"seed={seed}", f"data.seed={seed}", f"output={folder}", *small)
        if label == "GPT-2":
            script("evaluate.py", f"output={folder}")
            row["GPT-2"] = systems(folder, "evaluate/*/measures.json")["alpha=1"]
        else:
            script("evaluate.py", "-m", ALPHAS, f"output={folder}")
            row |= systems(folder, "sweep/*/sweep.json")
    return row


def script(*command: str) -> None:
    """Run an entry script of the repository."""
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


def systems(folder: Path, pattern: str) -> dict[str, dict[str, float]]:
    """Means by system label in the newest file of that pattern."""
    newest = max((ROOT / folder).glob(pattern), key=lambda path: path.stat().st_mtime)
    return {
        system["label"]: {
            measure: figure["mean"]
            for block in ("effectiveness", "bias")
            for measure, figure in system[block]["figures"].items()
        }
        for system in json.loads(newest.read_text())["systems"]
    }


def table(rows: list[dict]) -> str:
    """Markdown: nDCG@10 of every system, and absolute bias at alpha 1 and 0.5."""
    names = ["BM25", "GPT-2", "alpha=1", "alpha=0.5"]
    heads = ["seed", *(f"nDCG@10 {name}" for name in names), *(f"abs. {measure}, 1 / 0.5" for measure in MEASURES)]
    lines = [f"| {' | '.join(heads)} |", "|" + " ---: |" * len(heads)]
    for row in rows:
        cells = [str(row["seed"]), *(f"{row[name]['nDCG@10']:.4f}" for name in names)]
        cells += [f"{abs(row['alpha=1'][m]):.4f} / {abs(row['alpha=0.5'][m]):.4f}" for m in MEASURES]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
