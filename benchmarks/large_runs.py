"""Memory for a run of millions of lines, in memory and on disk: ``python -m benchmarks.large_runs``.

A run of made-up scores, 1,000 documents a query, over a collection in BEIR's layout. Each way is a
process of its own, whose peak of resident memory is read when it has ended:

* ``read_run``: the run as dictionaries, with nothing else done;
* ``open_run``: the same by :func:`backpack_rank.data.stored_run.open_run`, every list read once, and
  nDCG@10 and R@100 of all;
* ``evaluate.py``: ``evaluate.py run=FILE``, with measures of bias, tests and the page.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from backpack_rank.data.stored_run import open_run
from backpack_rank.data.trec import read_qrels, read_run
from backpack_rank.evaluation.effectiveness import effectiveness
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

ROOT = Path(__file__).resolve().parents[1]
PER_QUERY = 1_000
WAYS = ("read_run", "open_run", "evaluate.py")
WORDS = [
    "she",
    "he",
    "a",
    "doctor",
    "nurse",
    "engineer",
    "garden",
    "river",
    "bridge",
    "paints",
    "wood",
    "metal",
    "old",
    "new",
    "small",
]


def main() -> None:
    """Write the data, run every way, print a table, write the JSON file."""
    options = _options()
    if options.worker:
        work(*options.worker)
        return
    record: dict[str, object] = {
        "command": command_line("large_runs"),
        "machine": machine("cpu"),
        "lines": options.lines,
        "documents": options.documents,
    }
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        folder = Path(name)
        write_data(folder, options.lines, options.documents)
        record["GB of the file"] = (folder / "run.trec").stat().st_size / 1e9
        ways = {way: measured(way, folder) for way in options.ways}
    record["ways"] = ways
    goal = Goal(f"open_run, {options.lines:,} lines: GB", ways["open_run"]["GB"], 2.0, False)
    goals = [goal] if "open_run" in ways else []
    record["goals"] = [goal.as_record() for goal in goals]
    console = Console(width=118)
    rows = [[way, f"{one['GB']:.2f}", f"{one['seconds']:.0f}"] for way, one in ways.items()]
    title = f"{options.lines:,} lines ({record['GB of the file']:.2f} GB)"
    print_table(console, title, ["", "GB at the peak", "s"], rows)
    print_table(console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_runs", description=__doc__)
    add = parser.add_argument
    add("--worker", nargs=2, help=argparse.SUPPRESS)
    add("--quick", action="store_true", help="20,000 lines: checks that all runs")
    add("--lines", type=int, default=None, help="of the run (5,000,000; quick 20,000)")
    add("--documents", type=int, default=None, help="of the collection (100,000; quick 2,000)")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    add("--scratch", type=Path, default=None, help="folder for the run, about 45 bytes a line")
    add("--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/")
    options = parser.parse_args()
    options.output = options.output or record_file("large-runs.json", options.quick)
    options.lines = options.lines or (20_000 if options.quick else 5_000_000)
    options.documents = options.documents or (2_000 if options.quick else 100_000)
    return options


def write_data(folder: Path, lines: int, documents: int) -> None:
    """``run.trec``, and a collection with the queries that it ranks for, one judgement each."""
    rng = random.Random(0)
    with (folder / "corpus.jsonl").open("w") as handle:
        for number in range(documents):
            text = " ".join(rng.choices(WORDS, k=12))
            handle.write(json.dumps({"_id": f"doc{number:08d}", "title": "", "text": text}) + "\n")
    queries = lines // PER_QUERY
    with (folder / "queries.jsonl").open("w") as handle:
        for number in range(queries):
            handle.write(json.dumps({"_id": f"q{number}", "text": f"river bridge {number}"}) + "\n")
    scores = [f"{PER_QUERY - place + 0.5:.6f}" for place in range(PER_QUERY)]
    (folder / "qrels").mkdir()
    with (
        (folder / "qrels" / "test.tsv").open("w") as qrels,
        (folder / "run.trec").open("w") as run,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for number in range(queries):
            first = rng.randrange(documents)
            # A stride that shares no factor with the number of documents meets none twice.
            ids = [f"doc{(first + 7919 * place) % documents:08d}" for place in range(PER_QUERY)]
            for place, doc_id in enumerate(ids):
                run.write(f"q{number} Q0 {doc_id} {place + 1} {scores[place]} made_up\n")
            qrels.write(f"q{number}\t{ids[rng.randrange(100)]}\t1\n")


def measured(way: str, folder: Path) -> dict[str, float]:
    """Peak of memory in GB, and seconds, of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.large_runs", "--worker", way, str(folder)]
    if way == "evaluate.py":
        command = [sys.executable, str(ROOT / "evaluate.py"), f"run={folder / 'run.trec'}"]
        command += ["data=beir", f"data.folder={folder}", f"output={folder / 'outputs'}"]
    started = time.monotonic()
    environment = {
        **os.environ,
        "TMPDIR": str(folder),
        "BACKPACK_RANK_CACHE": str(folder / "cache"),
    }
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{way} ended with {os.waitstatus_to_exitcode(status)}")
    # Linux counts kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return {"GB": usage.ru_maxrss * unit / 1e9, "seconds": time.monotonic() - started}


def work(way: str, folder: str) -> None:
    """One way, in the process that is measured."""
    path = Path(folder, "run.trec")
    if way == "read_run":
        read_run(path, warn=True)
        return
    run = open_run(path, warn=True)
    qrels = read_qrels(Path(folder, "qrels", "test.tsv"))
    print(effectiveness(run, qrels, ["nDCG@10", "R@100"]).mean("nDCG@10"))


if __name__ == "__main__":
    main()
