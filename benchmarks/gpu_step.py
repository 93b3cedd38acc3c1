"""One step of ``benchmarks/gpu.sh``: run a command, and leave a record with device, commit and
seconds.

    python -m benchmarks.gpu_step --name NAME --device cuda --results FOLDER -- COMMAND ...
    python -m benchmarks.gpu_step --summary --results FOLDER

``{output}`` in the command is where a benchmark writes its own record, which becomes part of the
step's. A step whose record is there, of the same commit and command, is not run again; one that
fails leaves none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.report import machine, print_table, write_record

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Run the step, or show all steps that have run."""
    options = _options()
    if options.summary:
        _summary(options.results)
        return
    file = options.results / f"gpu-{options.name}.json"
    version, command = commit(), list(options.command)
    if file.is_file():
        known = json.loads(file.read_text(encoding="utf-8"))
        of = known.get("commit"), known.get("command"), known.get("device")
        if of == (version, command, options.device):
            print(f"{options.name}: {file} is of this commit ({version}), not run again")
            return
    print(f"{options.name}: {' '.join(command)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "record.json"
        start = time.perf_counter()
        done = subprocess.run(
            [part.replace("{output}", str(output)) for part in command], cwd=ROOT, check=False
        )
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(
                f"{options.name}: failed with {done.returncode} after {seconds:.0f} s, no record "
                "is left"
            )
        found = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else None
    record: dict[str, Any] = {
        "step": options.name,
        "commit": version,
        "device": options.device,
        "command": command,
    }
    record |= {"machine": machine(options.device), "seconds": seconds, "record": found}
    write_record(file, record)


def commit() -> str:
    """The commit of this checkout, and a digest of what differs from it, records left out.

    A copy that came without ``.git`` is of the commit that COMMIT names.

    Raises:
        SystemExit: neither is there, so a record could not say what it is of.
    """
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    try:
        head = _git("rev-parse", "HEAD").strip()
        changed = _git("diff", "HEAD", "--", ".", ":(exclude)benchmarks/results")
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(
            f"{ROOT} is no git checkout, so records could name no commit: clone the repository, or set "
            "COMMIT to the commit that this copy is of"
        ) from error
    return head + (f"+{hashlib.sha256(changed.encode()).hexdigest()[:8]}" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def _summary(results: Path) -> None:
    """What has run, and every goal beside its figure."""
    records = []
    for file in sorted(results.glob("gpu-*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        # A benchmark that was run by itself wrote a record of its own.
        if "step" in record:
            records.append(record)
    console = Console(width=140)
    steps = [
        [
            one["step"],
            one["machine"].get("gpu", one["device"]),
            one["commit"][:16],
            f"{one['seconds']:.0f}",
        ]
        for one in records
    ]
    print_table(console, "Steps", ["", "device", "commit", "seconds"], steps)
    goals = [
        [f"{one['step']}: {goal['text']}", f"{goal['value']:.3g}", goal["goal"], goal["verdict"]]
        for one in records
        for goal in (one["record"] or {}).get("goals", ())
    ]
    print_table(console, "Goals", ["", "measured", "goal", ""], goals)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_step", description=__doc__.splitlines()[0]
    )  # type: ignore[union-attr]
    add = parser.add_argument
    add("--name", default=None, help="of the step and its record, gpu-NAME.json")
    add("--device", default="cuda", help="cpu, cuda, cuda:1")
    add("--results", type=Path, default=ROOT / "benchmarks" / "results")
    add("--summary", action="store_true", help="show what has run")
    add("command", nargs="*", help="behind --")
    options = parser.parse_args()
    if not options.summary and (options.name is None or not options.command):
        parser.error("give --name NAME -- COMMAND, or --summary")
    options.results = options.results.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    sys.exit(main())
