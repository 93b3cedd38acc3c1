"""The server under load, against the reranker alone: ``python -m benchmarks.serving``.

Real HTTP on loopback. The server is a process (``backpack-rank serve``), the clients are another.
The reranker alone runs in this one while the others are idle, before and after every load, so that
each share is of its own minutes. ``--litserve`` gives the same loads to LitServe with the same
ranker, in turns with the server, and then sends both more requests at a time than the server was
told to hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from transformers.utils import logging as transformers_logging

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.factory import new_backpack
from backpack_rank.models.loading import save_ranker
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

ROOT = Path(__file__).resolve().parents[1]
REQUESTS = 64
HELD, SENT = 16, 64
"""Requests that a server may hold at a time when it is sent too many, and clients that send them.
"""
SHAPES = {
    "tiny": {"layers": 2, "hidden_size": 128, "heads": 4, "senses": 16},
    "small": {"layers": 6, "hidden_size": 384, "heads": 12, "senses": 16},
}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


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
        servers: list[Server] = []
        compared: list[dict] = []
        try:
            servers.append(Server(_serve(ranker, options), options, Path(folder)))
            if options.litserve:
                servers.append(Server(_litserve(ranker, options), options, Path(folder)))
                difference = _difference(servers, Path(folder))
                servers[1].pause()
            rows = [
                _load(clients, servers, Path(folder), reranker, texts, options)
                for clients in options.clients
            ]
            if options.litserve:
                command = [*_serve(ranker, options), "--max-requests", str(HELD)]
                servers.append(Server(command, options, Path(folder)))
                ours, theirs = _in_turns(
                    SENT, [servers[2], servers[1]], Path(folder), options.seconds
                )
                compared = [*rows, {"clients": SENT, "held": HELD, **ours, "litserve": theirs}]
        finally:
            for server in servers:
                server.stop()
    columns = [
        "clients",
        "requests/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "documents/s alone",
        "share",
        "answers",
    ]
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
    print_table(
        console,
        f"{options.documents} documents in a request, {options.seconds:g} s each",
        columns,
        lines,
    )
    if compared:
        columns = ["clients", "", "requests/s", "p50 ms", "p95 ms", "p99 ms", "answers"]
        print_table(
            console, "beside LitServe", columns, [line for row in compared for line in _beside(row)]
        )
    judged = not options.quick and options.device == "cpu"
    goals = [
        Goal(
            f"share of the reranker alone, {row['clients']} clients",
            row["share"],
            0.9,
            True,
            judged,
        )
        for row in rows
        if row["clients"] >= 8
    ]
    goals += [
        Goal(f"requests/s over LitServe's, {row['clients']} clients", row["ratio"], 1, True, judged)
        for row in rows
        if options.litserve
    ]
    if len(rows) > 1:
        growth = rows[-1]["resident_mb"] - rows[0]["resident_mb"]
        goals.append(
            Goal(
                "memory that the server gained since the first load, MB", growth, 100, False, judged
            )
        )
    bad = sum(
        count for row in rows for status, count in row["statuses"].items() if int(status) >= 500
    )
    goals.append(Goal("answers of 5xx", bad, 0, False))
    print_table(console, "goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    record: dict[str, Any] = {
        "command": command_line("serving"),
        "machine": machine(options.device),
        "ranker": options.ranker or SHAPES[options.size],
        "serving": rows,
        "goals": [goal.as_record() for goal in goals],
    }
    if options.litserve:
        record |= {
            "litserve": version("litserve"),
            "score_difference": difference,
            "too_many_requests": compared[-1],
        }
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _beside(row: dict) -> list[list[str]]:
    """Two lines of the table."""
    held = f", ours holds {row['held']}" if "held" in row else ""
    return [
        [
            f"{row['clients']}{held}" if name == "ours" else "",
            name,
            f"{one['requests_per_second']:.2f}",
            *(f"{one[percentile]:.0f}" for percentile in ("p50", "p95", "p99")),
            ", ".join(f"{count} x {status}" for status, count in one["statuses"].items()),
        ]
        for name, one in (("ours", row), ("LitServe", row["litserve"]))
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few short loads: checks that all runs")
    add("--ranker", default=None, help="folder of a ranker; default: random weights of --size")
    add("--size", choices=SHAPES, default="tiny", help="small is about MiniLM-L6's")
    add(
        "--clients",
        type=int,
        nargs="+",
        default=None,
        help="one load after the other (1 8 32; quick 1 4)",
    )
    add("--documents", type=int, default=None, help="of a request (100; quick 10)")
    add("--seconds", type=float, default=None, help="of a load (20; quick 1)")
    add("--alphas", action="store_true", help="every request asks for an alpha of its own")
    add("--threads", type=int, default=1, help="of the model, in the server and alone")
    add("--device", default="cpu")
    add("--litserve", action="store_true", help="LitServe with the same ranker beside it")
    add(
        "--output",
        type=Path,
        default=None,
        help="benchmarks/results/serving-cpu.json; of a quick run build/",
    )
    options = parser.parse_args()
    if options.litserve and importlib.util.find_spec("litserve") is None:
        parser.error(
            "--litserve needs a package that this project does not depend on: pip install litserve"
        )
    name = "serving-litserve-cpu.json" if options.litserve else "serving-cpu.json"
    options.output = options.output or record_file(name, options.quick)
    options.clients = options.clients or ([1, 4] if options.quick else [1, 8, 32])
    options.documents = options.documents or (10 if options.quick else 100)
    options.seconds = options.seconds or (1.0 if options.quick else 20.0)
    return options


def _requests(options: argparse.Namespace, folder: Path) -> list[tuple[str, list[str]]]:
    """Queries with documents drawn from the synthetic collection; also written as bodies, a line
    each.
    """
    collection = load_synthetic("test", test_queries=REQUESTS, documents=2_000)
    documents = [text for _, text in collection.documents]
    chance = random.Random(0)
    texts = [
        (query, chance.sample(documents, options.documents))
        for query in collection.queries.values()
    ][:REQUESTS]
    bodies = [
        {"query": query, "documents": given, "return_documents": False} for query, given in texts
    ]
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


def _serve(ranker: str | Path, options: argparse.Namespace) -> list[str]:
    command = [
        sys.executable,
        "-c",
        "from backpack_rank.cli import main; main()",
        "serve",
        str(ranker),
    ]
    return [*command, "--device", options.device, "--port", "PORT"]


def _litserve(ranker: str | Path, options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.serving_litserve", str(ranker), "PORT"]
    return [*command, options.device, str(options.threads)]


class Server:
    """A server in processes of its own.

    Raises:
        RuntimeError: it does not start; with what it wrote.
    """

    def __init__(self, command: list[str], options: argparse.Namespace, folder: Path) -> None:
        """``PORT`` in the command stands for a free one."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        command = [str(port) if word == "PORT" else word for word in command]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        environment.pop("BACKPACK_RANK_API_KEY", None)
        with open(folder / f"log-{port}", "w") as log:
            self.process = psutil.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        for _ in range(600):
            try:
                _OPENER.open(f"http://{self.address}/health").close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.2)
        self.stop()
        raise RuntimeError((folder / f"log-{port}").read_text())

    def pause(self) -> None:
        """LitServe's worker polls its queue when idle, which would slow down what is measured
        beside it.
        """
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo :meth:`pause`."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it with all of its processes: workers of LitServe outlive their parent."""
        with suppress(ProcessLookupError, psutil.TimeoutExpired):
            self.go_on()
            self.process.send_signal(signal.SIGINT)
            self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def _load(
    clients: int,
    servers: list[Server],
    folder: Path,
    reranker: PointwiseReranker,
    texts: list[tuple[str, list[str]]],
    options: argparse.Namespace,
) -> dict:
    before = _alone(reranker, texts, options.seconds / 2)
    ours, *others = _in_turns(clients, servers, folder, options.seconds)
    alone = (before + _alone(reranker, texts, options.seconds / 2)) / 2
    row = {
        "clients": clients,
        **ours,
        "alone": alone,
        "share": ours["requests_per_second"] * options.documents / alone,
        "resident_mb": servers[0].process.memory_info().rss / 1e6,
    }
    if others:
        row |= {
            "litserve": others[0],
            "ratio": row["requests_per_second"] / others[0]["requests_per_second"],
        }
    return row


def _in_turns(clients: int, servers: list[Server], folder: Path, seconds: float) -> list[dict]:
    """Figures of each server; where there are two, each has its time in two parts: ours, theirs,
    theirs, ours.
    """
    found: list[list[dict]] = [[] for _ in servers]
    turns = [0] if len(servers) == 1 else [0, 1, 1, 0]
    for turn in turns:
        command = [
            sys.executable,
            "-m",
            "benchmarks.serving_client",
            servers[turn].address,
            str(folder / "bodies"),
        ]
        command += [str(clients), str(seconds * len(servers) / len(turns))]
        if turn:
            servers[turn].go_on()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        if turn:
            servers[turn].pause()
        found[turn].append(json.loads(done.stdout))
    return [_figures(parts) for parts in found]


def _figures(parts: list[dict]) -> dict:
    """Rate, also of each turn, and milliseconds of answers with 200; how many had which status; ms
    until a refusal.
    """
    took: dict[str, list[float]] = {}
    for part in parts:
        for status, seconds in part["took"].items():
            took.setdefault(status, []).extend(seconds)
    answered = 1000 * np.array(took.get("200", [np.nan]))
    refused = {"refused_p99": 1000 * float(np.percentile(took["429"], 99))} if "429" in took else {}
    return {
        "requests_per_second": len(took.get("200", [])) / sum(part["seconds"] for part in parts),
        "turns": [len(part["took"].get("200", [])) / part["seconds"] for part in parts],
        **{f"p{p}": float(np.percentile(answered, p)) for p in (50, 95, 99)},
        "statuses": {status: len(seconds) for status, seconds in sorted(took.items())},
        **refused,
    }


def _difference(servers: list[Server], folder: Path) -> float:
    """The largest one between the servers' scores of the first request's documents."""
    body = (folder / "bodies").read_bytes().splitlines()[0]
    scores = []
    for server in servers:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{server.address}/v1/rerank", body, headers)
        with _OPENER.open(request) as response:
            rows = sorted(json.load(response)["results"], key=lambda row: row["index"])
        scores.append(np.array([row["relevance_score"] for row in rows]))
    return float(np.abs(scores[0] - scores[1]).max())


def _alone(
    reranker: PointwiseReranker, texts: list[tuple[str, list[str]]], seconds: float
) -> float:
    """Documents per second of ``predict``, a request at a time."""
    started, scored, turn = time.monotonic(), 0, 0
    while time.monotonic() - started < seconds:
        query, documents = texts[turn % len(texts)]
        reranker.predict([(query, document) for document in documents])
        scored, turn = scored + len(documents), turn + 1
    return scored / (time.monotonic() - started)


if __name__ == "__main__":
    main()
