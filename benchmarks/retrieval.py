"""Exact search over vectors with a dial, beside numpy, faiss and torch; and encoding, beside
sentence-transformers.

    python -m benchmarks.retrieval --threads 1                                # 1,000,000 x 384, 64 queries
    python -m benchmarks.retrieval --threads 1 --encoder FOLDER --texts 128   # encoding of real passages too
    python -m benchmarks.retrieval --device cuda --encoder FOLDER --texts 8192 # all on a GPU
    python -m benchmarks.retrieval --quick

All searches give the first 100 of the same random unit vectors, in one process, in turns. Ours
reads them in half precision, as the index on disk has them; numpy and faiss have float32. One in
ten documents has an e_0 of its own. On a GPU all vectors lie in its memory, and the peer is one product
and ``topk`` of torch; a search at 21 alphas is timed too. Encoding: passages of TREC DL 2019 (the folder named by
BACKPACK_RANK_DATA), tokenisation included.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from backpack_rank.data.sources.beir import load_beir
from backpack_rank.models.loading import load_ranker
from backpack_rank.reranking.dense_search import TurnedVectors, kept_on, top_k
from backpack_rank.reranking.dense_vectors import Encoding
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns

DEPTH = 100
SHARE = 0.1
"""Of documents with an e_0 of their own; 12% of the passages of DL 2019 have one, 23% of DL 2020."""


def random_vectors(number: int, size: int) -> np.ndarray:
    """Unit vectors. float32 [N, d]"""
    generator = np.random.default_rng(0)
    vectors = np.empty((number, size), dtype=np.float32)
    for start in range(0, number, 65_536):
        block = generator.standard_normal((min(65_536, number - start), size), dtype=np.float32)
        vectors[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return vectors


ALPHAS = tuple(float(alpha) for alpha in np.linspace(0.0, 1.0, 21))


def searches(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each search, as ``in_turns`` gives them."""
    vectors = random_vectors(options.documents, options.size)
    queries = random_vectors(options.queries, options.size)[::-1].copy()
    halves = vectors.astype(np.float16)
    ranks = np.arange(len(vectors))
    rows = np.sort(np.random.default_rng(1).choice(len(vectors), int(SHARE * len(vectors)), False))
    neutral = halves[rows][:, ::-1].copy()
    device = torch.device(options.device)

    kept, kept_neutral = kept_on(device, halves), kept_on(device, neutral)

    def ours(alpha: float) -> np.ndarray:
        turned = None if alpha == 1 else TurnedVectors(rows, kept_neutral, alpha)
        found, _ = top_k(torch.from_numpy(queries), kept, ranks, DEPTH, device, turned=turned)
        return found

    def with_numpy() -> np.ndarray:
        scores = queries @ vectors.T
        best = np.argpartition(-scores, DEPTH, axis=1)[:, :DEPTH]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)

    jobs: dict[str, Any] = {
        "alpha 1": lambda: ours(1.0),
        "alpha 0.5": lambda: ours(0.5),
        "alpha 0": lambda: ours(0.0),
        "numpy": with_numpy,
    }
    if device.type == "cuda":
        on_card = torch.from_numpy(vectors).to(device)

        def with_torch() -> np.ndarray:
            wanted = torch.from_numpy(queries).to(device)
            return (wanted @ on_card.T).topk(DEPTH, dim=1).indices.cpu().numpy()

        del jobs["numpy"]
        jobs["torch"] = with_torch
        jobs["21 alphas"] = lambda: [ours(alpha) for alpha in ALPHAS]
    try:
        import faiss
    except ModuleNotFoundError:
        print("faiss is not installed: numpy alone is compared")
    else:
        faiss.omp_set_num_threads(options.threads)
        index = faiss.IndexFlatIP(options.size)
        index.add(vectors)
        jobs["faiss"] = lambda: index.search(queries, DEPTH)
    # Half precision may order neighbours differently.
    alike = np.mean(
        [len(set(one) & set(other)) for one, other in zip(ours(1.0), with_numpy(), strict=True)]
    )
    print(f"{alike:.1f} of the first {DEPTH} are those of numpy")
    return in_turns(jobs, options.repeats, "search", options.device, clock(options)).seconds


def clock(options: argparse.Namespace) -> Callable[[], float]:
    """Time of the processor, into which other work enters less; of a GPU, time of day."""
    return time.process_time if options.device == "cpu" else time.perf_counter


def encodings(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of encoding, by number format."""
    from sentence_transformers import SentenceTransformer

    folder = Path(os.environ["BACKPACK_RANK_DATA"]) / "dl19"
    documents = islice(load_beir(folder, "test").documents, options.texts)
    texts = [text for _, text in documents]
    # sentence-transformers' 32 texts of a batch do not keep a GPU busy.
    batch_size = 32 if options.device == "cpu" else 256
    found = {}
    for name in options.dtype:
        theirs = SentenceTransformer(
            options.encoder, device=options.device, model_kwargs={"dtype": getattr(torch, name)}
        )
        ranker, pair_tokenizer = load_ranker(options.encoder)
        ours = Encoding(Scorer(ranker, pair_tokenizer, ScoringSettings(options.device, name)))
        difference = np.abs(theirs.encode_document(texts[:16]) - ours.documents(texts[:16])).max()
        jobs: dict[str, Any] = {
            "SentenceTransformer": lambda theirs=theirs: theirs.encode_document(
                texts, batch_size=batch_size
            ),
            "backpack_rank": lambda ours=ours: ours.documents(texts),
        }
        times = in_turns(jobs, options.repeats, name, options.device, clock(options))
        found[name] = {
            "seconds": times.seconds,
            "faster": times.speedup("backpack_rank", over="SentenceTransformer"),
            "texts_per_second": len(texts) / times.median("backpack_rank"),
            "largest_difference": float(difference),
        }
    return found


def goals_of(record: dict[str, Any], judged: bool) -> list[Goal]:
    """Figures beside what they should be."""
    seconds = {name: float(np.median(times)) for name, times in record["searches"].items()}
    better = min(seconds[name] for name in ("numpy", "faiss", "torch") if name in seconds)
    goals = [
        Goal("search, times the better of the others", better / seconds["alpha 1"], 1, True, judged)
    ]
    for name, bound in (("alpha 0", 1.05), ("alpha 0.5", 1.05 + SHARE)):
        cost = seconds[name] / seconds["alpha 1"]
        goals.append(Goal(f"cost of {name} beside alpha 1", cost, bound, False, judged))
    if "21 alphas" in seconds:
        cost = seconds["21 alphas"] / seconds["alpha 1"]
        goals.append(Goal("cost of 21 alphas beside one", cost, 21 * 1.05, False, judged))
    for name, bound in (("float32", 1.5), ("bfloat16", 1.3)):
        if name in record["encodings"]:
            faster = record["encodings"][name]["faster"]
            goals.append(Goal(f"encoding in {name}", faster, bound, True, judged))
    return goals


def main() -> None:
    """Time everything, print the goals and write the JSON file."""
    options = arguments()
    torch.set_num_threads(options.threads)
    record: dict[str, Any] = {
        "command": command_line("retrieval"),
        "machine": machine(options.device),
        "documents": options.documents,
        "size": options.size,
        "queries": options.queries,
        "searches": searches(options),
        "encodings": encodings(options) if options.encoder else {},
    }
    goals = goals_of(record, judged=not options.quick)
    record["goals"] = [goal.as_record() for goal in goals]
    for name, times in record["searches"].items():
        print(f"{name}: {options.queries / np.median(times):.1f} queries per second")
    for name, figures in record["encodings"].items():
        print(f"encoding in {name}: {figures['texts_per_second']:.1f} texts per second")
    print_table(
        Console(), "Retrieval", ["", "value", "goal", ""], [goal.as_row() for goal in goals]
    )
    write_record(options.output, record)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--encoder", default=None, help="folder of a bi-encoder")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--quick", action="store_true", help="1,000 vectors")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if options.quick:
        options.documents, options.queries, options.repeats = 1_000, 4, 1
    options.output = options.output or record_file(
        f"retrieval-{options.device.replace(':', '')}.json", options.quick
    )
    return options


if __name__ == "__main__":
    main()
