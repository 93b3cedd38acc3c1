"""Memory and time of BM25's index: in blocks, and by bm25s at once; each in a process of its own.

``python -m benchmarks.bm25`` writes ``benchmarks/results/bm25.json``; ``--quick`` indexes 2,000
documents.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bm25s
import numpy as np
from rich.console import Console
from tqdm import tqdm

from backpack_rank.data.bm25_index import Bm25Index
from backpack_rank.data.collection import Run
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.sources.beir import load_beir
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

WORDS, NEW_WORDS, LENGTH = 100_000, 0.2, 58
"""Words that texts are drawn from, share of documents with a word of their own, mean length (that
of MS MARCO).
"""
QUERIES, DEPTH = 100, 100


def main() -> None:
    """Both ways at every size, their runs compared; prints a table and writes the record."""
    options = arguments()
    if options.worker:
        work(options.worker, Path(options.folder))
        return
    facts, rows, same = machine("cpu"), [], True
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_collection(Path(folder), size)
            found = {way: in_process(way, folder) for way in ("blocks", "again", "at once")}
            texts = [Path(folder, f"{way}.json").read_text() for way in ("blocks", "at once")]
        same &= texts[0] == texts[1]
        rows.append({"documents": size, **found})
    goals = [
        Goal("runs equal, document by document", float(same), 1, True),
        Goal(
            "GB at the peak, most documents, in blocks",
            rows[-1]["blocks"]["peak_gb"],
            2,
            False,
            not options.quick,
        ),
    ]
    console = Console()
    shown = [
        [
            f"{row['documents']:,}",
            way,
            *(f"{row[way][figure]:.2f}" for figure in ("peak_gb", "seconds")),
        ]
        for row in rows
        for way in ("blocks", "again", "at once")
    ]
    print_table(console, "BM25", ["documents", "index", "GB at the peak", "seconds"], shown)
    print_table(console, "Goals", ["", "value", "goal", ""], [goal.as_row() for goal in goals])
    command = command_line("bm25")
    record = {
        "command": command.strip(),
        "machine": facts,
        "sizes": rows,
        "goals": [goal.as_record() for goal in goals],
    }
    write_record(options.output, record)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=None, help="20000 200000 1000000; quick: 2000"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/"
    )
    parser.add_argument("--worker", choices=["blocks", "again", "at once"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.sizes = options.sizes or ([2000] if options.quick else [20_000, 200_000, 1_000_000])
    options.output = options.output or record_file("bm25.json", options.quick)
    return options


def in_process(way: str, folder: str) -> dict[str, float]:
    """Seconds and gigabytes of one way of indexing and searching."""
    environment = {**os.environ, "BACKPACK_RANK_CACHE": f"{folder}/cache"}
    command = [sys.executable, "-m", "benchmarks.bm25", "--worker", way, "--folder", folder]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def work(way: str, folder: Path) -> None:
    """Index and search; ``again`` finds the index of ``blocks`` in the cache."""
    collection = load_beir(folder, "test")
    first_stage = Bm25(depth=DEPTH, stemmer=None, stopwords=False)  # made-up words
    if way == "at once":
        Bm25Index.of = classmethod(
            lambda cls, documents, settings, **_: at_once(documents, settings)
        )
    begun = time.perf_counter()
    run: Run = first_stage.candidates(collection)
    seconds = time.perf_counter() - begun
    (folder / f"{way}.json").write_text(json.dumps(run))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"seconds": round(seconds, 2), "peak_gb": round(peak, 3)}))


def at_once(documents, settings) -> Bm25Index:
    """The index as bm25s itself builds it, in memory."""
    index = Bm25Index.__new__(Bm25Index)
    index._settings = settings
    index._model = bm25s.BM25(k1=settings.k1, b=settings.b, method=settings.method)
    index._doc_ids = np.array([doc_id.encode() for doc_id, _ in documents], dtype=np.bytes_)
    tokens = settings.tokenize(text for _, text in documents)
    index._model.index(tokens, create_empty_token=False, show_progress=False)
    return index


def write_collection(folder: Path, size: int) -> None:
    """Texts of made-up words whose frequencies fall as in real text (Zipf), in BEIR's layout."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(WORDS)])
    share = 1 / np.arange(1, WORDS + 1)
    share /= share.sum()
    with open(folder / "corpus.jsonl", "w") as corpus:
        for start in tqdm(range(0, size, 10_000), desc=f"writing {size:,} documents", leave=False):
            lengths = rng.integers(LENGTH // 2, LENGTH * 3 // 2, min(10_000, size - start))
            drawn = words[rng.choice(WORDS, int(lengths.sum()), p=share)].tolist()
            at = 0
            for number, length in enumerate(lengths.tolist(), start=start):
                own = f" n{number}" * (rng.random() < NEW_WORDS)
                corpus.write(
                    json.dumps(
                        {"_id": f"d{number}", "text": " ".join(drawn[at : at + length]) + own}
                    )
                    + "\n"
                )
                at += length
    with open(folder / "queries.jsonl", "w") as queries:
        for number in range(QUERIES):
            text = " ".join(words[rng.choice(WORDS, 6, p=share)].tolist())
            queries.write(json.dumps({"_id": f"q{number}", "text": text}) + "\n")


if __name__ == "__main__":
    main()
