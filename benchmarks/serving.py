"""The server under load, against the reranker alone: ``python -m benchmarks.serving``.

Real HTTP on loopback. The server is a process (``backpack-rank serve``), the clients are another. The reranker alone
runs in this one while the others are idle, before and after every load, so that each share is of its own minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import torch
from rich.console import Console
from transformers.utils import logging as transformers_logging

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.factory import new_backpack, save_ranker
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from benchmarks.report import Goal, machine, print_table, write_record

ROOT = Path(__file__).resolve().parents[1]
REQUESTS = 64
SHAPES = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 4, "senses": 16},
    "small": {"layers": 6, "hidden_size": 384, "heads": 12, "senses": 16},
}


def main() -> None:
    """Load the server with each number of clients, print tables, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    console = Console(width=118)
    with tempfile.TemporaryDirectory() as folder:
        texts = _requests(options, Path(folder))
        ranker = options.ranker or _ranker(options, Path(folder), texts)
        reranker = load(ranker, device=options.device)
        assert isinstance(reranker, PointwiseReranker)
        server, url = _server(ranker, options, Path(folder))
        try:
            rows = [_load(clients, server, url, Path(folder), reranker, texts, options) for clients in options.clients]
        finally:
            server.terminate()
            server.wait(60)
    columns = ["clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "documents/s alone", "share", "answers"]
    lines = [
        [
            str(row["clients"]),
            f"{row['requests_per_second']:.2f}",
            *(f"{row[percentile]:.0f}" for percentile in ("p50", "p95", "p99")),
            f"{row['alone']:.0f}",
            f"{row['share']:.3f}",
            ", ".join(f"{count} x {status}" for status, count in row["statuses"].items()),
        ]
        for row in rows
    ]
    print_table(console, f"{options.documents} documents in a request, {options.seconds:g} s each", columns, lines)
    judged = not options.quick and options.device == "cpu"
    goals = [
        Goal(f"share of the reranker alone, {row['clients']} clients", row["share"], 0.9, True, judged)
        for row in rows
        if row["clients"] >= 8
    ]
    if len(rows) > 1:
        growth = rows[-1]["resident_mb"] - rows[0]["resident_mb"]
        goals.append(Goal("memory that the server gained since the first load, MB", growth, 100, False, judged))
    bad = sum(count for row in rows for status, count in row["statuses"].items() if int(status) >= 500)
    goals.append(Goal("answers of 5xx", bad, 0, False))
    print_table(console, "goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    record = {
        "command": "python -m benchmarks.serving " + shlex.join(sys.argv[1:]),
        "machine": machine(options.device),
        "ranker": options.ranker or SHAPES[options.size],
        "serving": rows,
        "goals": [goal.as_record() for goal in goals],
    }
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few short loads: checks that all runs")
    add("--ranker", default=None, help="folder of a ranker; default: random weights of --size")
    add("--size", choices=SHAPES, default="tiny", help="small is about MiniLM-L6's")
    add("--clients", type=int, nargs="+", default=None, help="one load after the other (1 8 32; quick 1 4)")
    add("--documents", type=int, default=None, help="of a request (100; quick 10)")
    add("--seconds", type=float, default=None, help="of a load (20; quick 1)")
    add("--alphas", action="store_true", help="every request asks for an alpha of its own")
    add("--threads", type=int, default=1, help="of the model, in the server and alone")
    add("--device", default="cpu")
    add("--output", type=Path, default=None, help="benchmarks/results/serving-cpu.json; of a quick run build/")
    options = parser.parse_args()
    folder = ROOT / "build" if options.quick else ROOT / "benchmarks" / "results"
    options.output = options.output or folder / "serving-cpu.json"
    options.clients = options.clients or ([1, 4] if options.quick else [1, 8, 32])
    options.documents = options.documents or (10 if options.quick else 100)
    options.seconds = options.seconds or (1.0 if options.quick else 20.0)
    return options


def _requests(options: argparse.Namespace, folder: Path) -> list[tuple[str, list[str]]]:
    """Queries with documents drawn from the synthetic collection; also written as bodies, a line each."""
    collection = load_synthetic("test", test_queries=REQUESTS, documents=2_000)
    documents = [text for _, text in collection.documents]
    chance = random.Random(0)
    texts = [(query, chance.sample(documents, options.documents)) for query in collection.queries.values()][:REQUESTS]
    bodies = [{"query": query, "documents": given, "return_documents": False} for query, given in texts]
    if options.alphas:
        bodies = [{**body, "alpha": number / len(bodies)} for number, body in enumerate(bodies)]
    (folder / "bodies").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return texts


def _ranker(options: argparse.Namespace, folder: Path, texts: list[tuple[str, list[str]]]) -> Path:
    """A Backpack with random weights."""
    tokenizer = train_bpe([text for _, documents in texts for text in documents], vocab_size=4096)
    torch.manual_seed(0)
    ranker = new_backpack(tokenizer, positions=256, dropout=0.0, **SHAPES[options.size])
    save_ranker(folder / "ranker", ranker, PairTokenizer(tokenizer, 192))
    return folder / "ranker"


def _server(ranker: Path, options: argparse.Namespace, folder: Path) -> tuple[psutil.Popen, str]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-c", "from backpack_rank.cli import main; main()", "serve", str(ranker)]
    command += ["--port", str(port), "--device", options.device]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    environment.pop("BACKPACK_RANK_API_KEY", None)
    with open(folder / "log", "w") as log:
        server = psutil.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        try:
            opener.open(f"http://127.0.0.1:{port}/health").close()
            return server, f"127.0.0.1:{port}"
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise RuntimeError((folder / "log").read_text())


def _load(
    clients: int,
    server: psutil.Popen,
    url: str,
    folder: Path,
    reranker: PointwiseReranker,
    texts: list[tuple[str, list[str]]],
    options: argparse.Namespace,
) -> dict:
    before = _alone(reranker, texts, options.seconds / 2)
    command = [sys.executable, "-m", "benchmarks.serving_client", url, str(folder / "bodies"), str(clients)]
    done = subprocess.run([*command, str(options.seconds)], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    alone = (before + _alone(reranker, texts, options.seconds / 2)) / 2
    took = 1000 * np.array(found["took"])
    rate = len(took) / found["seconds"]
    return {
        "clients": clients,
        "requests_per_second": rate,
        **{f"p{p}": float(np.percentile(took, p)) for p in (50, 95, 99)},
        "alone": alone,
        "share": rate * options.documents / alone,
        "statuses": found["statuses"],
        "resident_mb": server.memory_info().rss / 1e6,
    }


def _alone(reranker: PointwiseReranker, texts: list[tuple[str, list[str]]], seconds: float) -> float:
    """Documents per second of ``predict``, a request at a time."""
    started, scored, turn = time.monotonic(), 0, 0
    while time.monotonic() - started < seconds:
        query, documents = texts[turn % len(texts)]
        reranker.predict([(query, document) for document in documents])
        scored, turn = scored + len(documents), turn + 1
    return scored / (time.monotonic() - started)


if __name__ == "__main__":
    main()
