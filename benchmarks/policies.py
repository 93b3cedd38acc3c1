"""The table of policies: a multirun of evaluate.py laid out as scale-free gaps beside effectiveness.

::

    python evaluate.py -m data=wikiqa variants=grep_biasir alpha=1,0.5,0 policy=lowest_senses,uniform,paired_tokens
    python -m benchmarks.policies outputs/sweep/<date> --name policies-wikiqa --device "2 CPU cores" --effectiveness AP
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from backpack_rank.files import write_text
from backpack_rank.reporting.measure_files import read_json
from backpack_rank.reporting.sweep import MEASURES_FILE, collect_sweep

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "|gap|/std",
    "gap/std",
    "prefers male",
    "prefers female",
    "prefers neither",
    "swap change/std (swapped)",
    "RaB(tf)@10",
    "ARaB(tf)@10",
    "NFaiRR@10",
)


def main() -> None:
    """Print the table of a sweep and keep its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="folder of a multirun")
    parser.add_argument("--name", required=True, help="results/<name>.json")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--device", required=True, help="what it ran on, in words")
    parser.add_argument("--effectiveness", nargs="+", default=["nDCG@10"], help="measures of effectiveness to show")
    given = parser.parse_args()
    rows = collect(given.sweep, (*given.effectiveness, *COLUMNS))
    payload = {"command": _command(given.sweep), "device": given.device, "rows": rows}
    write_text(given.output / f"{given.name}.json", json.dumps(payload, indent=2) + "\n")
    print(table(rows))


def collect(folder: Path, measures: tuple[str, ...]) -> list[dict[str, Any]]:
    """One row per policy and alpha; alpha = 1 and the first stage once."""
    rows: list[dict[str, Any]] = []
    for entry in collect_sweep(folder).entries:
        name = read_json(folder / entry.job / MEASURES_FILE).about.policy
        if entry.row.alpha in (None, 1):
            name = entry.row.label
        if any(row["policy"] == name and row["alpha"] == entry.row.alpha for row in rows):
            continue
        figures = {key: figure for block in entry.row.blocks.values() for key, figure in block.figures.items()}
        values = {
            measure: {"mean": figures[measure].mean, "low": figures[measure].low, "high": figures[measure].high}
            for measure in measures
            if measure in figures
        }
        rows.append({"policy": name, "alpha": entry.row.alpha, "measures": values})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, three decimals, with intervals of the first measures."""
    names = list(dict.fromkeys(measure for row in rows for measure in row["measures"]))
    lines = [["policy", "alpha", *names], ["---", "---:", *("---:" for _ in names)]]
    for row in rows:
        cells = [_cell(row["measures"].get(name), name) for name in names]
        lines.append([row["policy"], "" if row["alpha"] is None else f"{row['alpha']:g}", *cells])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _cell(value: dict[str, float | None] | None, name: str) -> str:
    if value is None or value["mean"] is None:
        return ""
    if not name.startswith(("|gap|", "nDCG", "AP", "RR")) or value["low"] is None or value["high"] is None:
        return f"{value['mean']:.4f}"
    return f"{value['mean']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"


def _command(folder: Path) -> str:
    """The command that made the sweep, from what Hydra kept of it."""
    kept = folder / "multirun.yaml"
    if not kept.is_file():
        return ""
    config = OmegaConf.load(kept)
    overrides = [str(o) for o in config.hydra.overrides.task if not str(o).startswith(("output=", "checkpoint="))]
    return "python evaluate.py -m " + " ".join(f"'{o}'" if "|" in o else o for o in overrides)


if __name__ == "__main__":
    main()
