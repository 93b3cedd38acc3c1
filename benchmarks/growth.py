"""What work costs as it grows, beside the best peer: ``python -m benchmarks.growth``.

Four curves, each from small to large: pairs that are scored, length of texts, alphas of a sweep,
documents of a dense index. A point is a process of its own, which says the processor seconds of the
work alone and how far its memory rises above what it had when model and texts were there. The
networks have random weights; a peer scores with the same ones. The fifth curve, clients of the
server, is ``python -m benchmarks.serving --clients 1 2 4 8 16 32 64``.

    python -m benchmarks.growth --threads 1
    python -m benchmarks.growth --curves length --picture docs/images/growth.svg
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from tqdm import tqdm
from transformers import BertConfig, BertModel
from transformers.utils import logging as transformers_logging

from backpack_rank import cli
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.loading import save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.reporting.vega import COLOURS, beside, channel, layer, svg_of, with_look
from backpack_rank.reranking.dense_search import TurnedVectors, top_k
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from benchmarks.memory import above
from benchmarks.peers import save_stock
from benchmarks.report import command_line, machine, print_table, record_file, write_record
from benchmarks.retrieval import SHARE, random_vectors
from benchmarks.workload import dataset, word_pieces

ROOT = Path(__file__).resolve().parents[1]
POSITIONS = 512
SHAPES = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
    "small": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
}
"""Of networks; small is that of MiniLM-L6."""
WORDS = "words.json"
"""Those that texts are made of, beside the networks."""
PER_QUERY = 100
"""Candidates of a query."""
TOKENS = 30
"""Of a pair, but for the curve of lengths."""
SWEPT = 50
"""Candidates that are ranked at each alpha."""
MILLION = 1_000_000
SEARCHES = 64
"""Queries of a search, which are asked together; the first 100 documents of each are found."""

Work = Callable[[], object]
Load = Callable[[], Work]
"""Reads what the work needs, such as an index; its memory counts, its seconds do not."""


class Curve:
    """One kind of growth.

    Attributes:
        unit: what is counted along it, as the chart's axis says it.
        points: from small to large.
        few: the points of ``--quick``, which checks that all runs.
        ways: what does the work, by name. Each takes the folder of the networks and a point.
    """

    def __init__(
        self,
        unit: str,
        points: tuple[int, ...],
        ways: dict[str, Callable[[Path, int], Load]],
        few: tuple[int, int] | None = None,
    ) -> None:
        self.unit = unit
        self.points = points
        self.few = few or points[:2]
        self.ways = ways


def predict(folder: Path, pairs: int) -> Load:
    """Pairs in one call of ``load(folder).predict``."""
    reranker = load(folder / "tiny", device="cpu")
    texts = made_pairs(folder, pairs, TOKENS)
    return lambda: lambda: reranker.predict(texts)


def predict_theirs(folder: Path, pairs: int) -> Load:
    """Pairs in one call of sentence-transformers' ``CrossEncoder.predict``."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder / "tiny"), device="cpu")
    texts = made_pairs(folder, pairs, TOKENS)
    return lambda: lambda: model.predict(texts)


def rerank(folder: Path, pairs: int) -> Load:
    """Pairs as a run on disk, which ``backpack-rank rerank`` ranks anew in one process."""
    place = Path(tempfile.mkdtemp(dir=folder))
    documents = place / "documents.tsv"
    queries = place / "queries.tsv"
    qrels = place / "qrels"
    run = place / "run"
    with ExitStack() as files:
        texts, asked, judged, ranked = (
            files.enter_context(file.open("w")) for file in (documents, queries, qrels, run)
        )
        for number, (query, text) in enumerate(made_pairs(folder, pairs, TOKENS)):
            query_id, place_in_list = divmod(number, PER_QUERY)
            texts.write(f"d{number}\t{text}\n")
            ranked.write(
                f"q{query_id} Q0 d{number} {place_in_list + 1} {PER_QUERY - place_in_list} first\n"
            )
            if place_in_list == 0:
                asked.write(f"q{query_id}\t{query}\n")
                # Queries without judgements are left out.
                judged.write(f"q{query_id} 0 d{number} 1\n")
    options = [
        f"checkpoint={folder / 'tiny'}",
        f"run={run}",
        "data=trec",
        f"data.collection={documents}",
        f"data.test.topics={queries}",
        f"data.test.qrels={qrels}",
        f"folder={place / 'plan'}",
        "alpha=1",
        "workers=1",
    ]
    return lambda: lambda: cli.main(["rerank", *options])


def length_of(name: str) -> Callable[[Path, int], Load]:
    """Pairs of so many tokens, 32 of them, scored by a network of ours."""

    def prepared(folder: Path, tokens: int) -> Load:
        reranker = load(folder / name, device="cpu")
        texts = made_pairs(folder, 32, tokens)
        return lambda: lambda: reranker.predict(texts)

    return prepared


def length_theirs(folder: Path, tokens: int) -> Load:
    """The same pairs, scored by sentence-transformers."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder / "small"), device="cpu")
    texts = made_pairs(folder, 32, tokens)
    return lambda: lambda: model.predict(texts)


def sweep(folder: Path, alphas: int) -> Load:
    """A list at so many alphas, in one sweep."""
    reranker = load(folder / "backpack", device="cpu")
    assert isinstance(reranker, PointwiseReranker)
    query, documents = made_list(folder)
    return lambda: lambda: reranker.sweep(query, documents, values_of_alpha(alphas))


def pass_for_each(folder: Path, alphas: int) -> Load:
    """A list at so many alphas, each scored for itself."""
    reranker = load(folder / "backpack", device="cpu")
    query, documents = made_list(folder)

    def work() -> None:
        for alpha in values_of_alpha(alphas):
            reranker.rank(query, documents, alpha=alpha)

    return lambda: work


def search(folder: Path, documents: int) -> Load:
    """Exact search at alpha .5 over an index on disk, in half precision as ours is."""
    name = written_vectors(folder, documents, np.float16)
    rows = np.sort(np.random.default_rng(1).choice(documents, int(SHARE * documents), False))
    neutral = random_vectors(len(rows), 384).astype(np.float16)
    queries = torch.from_numpy(random_vectors(SEARCHES, 384)[::-1].copy())

    def loaded() -> Work:
        vectors = np.load(name, mmap_mode="r")
        turned = TurnedVectors(rows, neutral, alpha=0.5)
        ranks = np.arange(documents)
        return lambda: top_k(queries, vectors, ranks, 100, torch.device("cpu"), turned=turned)

    return loaded


def search_faiss(folder: Path, documents: int) -> Load:
    """Exact search without a dial by faiss's flat index."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    name = written_vectors(folder, documents, np.float32)
    queries = random_vectors(SEARCHES, 384)[::-1].copy()

    def loaded() -> Work:
        index = faiss.IndexFlatIP(384)
        # In blocks, so that the vectors are held once.
        vectors = np.load(name, mmap_mode="r")
        for start in range(0, documents, 65_536):
            index.add(vectors[start : start + 65_536])
        return lambda: index.search(queries, 100)

    return loaded


def search_numpy(folder: Path, documents: int) -> Load:
    """Exact search without a dial by one product of matrices."""
    name = written_vectors(folder, documents, np.float32)
    queries = random_vectors(SEARCHES, 384)[::-1].copy()

    def loaded() -> Work:
        vectors = np.load(name)

        def work() -> np.ndarray:
            scores = queries @ vectors.T
            return np.argpartition(-scores, 100, axis=1)[:, :100]

        return work

    return loaded


CURVES = {
    "pairs": Curve(
        "pairs of 30 tokens",
        (1_000, 10_000, 100_000, MILLION),
        {
            "load(...).predict": predict,
            "backpack-rank rerank": rerank,
            "sentence-transformers": predict_theirs,
        },
        few=(20, 100),
    ),
    "length": Curve(
        "tokens of a pair",
        (32, 64, 128, 256, 512),
        {
            "cross-encoder": length_of("small"),
            "Backpack": length_of("backpack"),
            "sentence-transformers": length_theirs,
        },
    ),
    "alphas": Curve(
        "alphas", (1, 3, 6, 11, 21), {"sweep": sweep, "a pass for each": pass_for_each}
    ),
    "documents": Curve(
        "documents of an index",
        (10_000, 100_000, MILLION),
        {"first_stage=dense, alpha 0.5": search, "faiss": search_faiss, "numpy": search_numpy},
    ),
}


def made_pairs(folder: Path, number: int, tokens: int) -> list[tuple[str, str]]:
    """Queries of four words with texts that fill up a pair to so many tokens."""
    words = json.loads((folder / WORDS).read_text())
    rng = random.Random(0)
    pairs = []
    for place in range(number):
        if place % PER_QUERY == 0:
            query = " ".join(rng.choices(words, k=4))
        # [CLS] query [SEP] text [SEP]
        pairs.append((query, " ".join(rng.choices(words, k=tokens - 7))))
    return pairs


def made_list(folder: Path) -> tuple[str, list[str]]:
    """A query and its candidates."""
    pairs = made_pairs(folder, SWEPT, 128)
    return pairs[0][0], [text for _, text in pairs]


def values_of_alpha(number: int) -> list[float]:
    """So many values from 1 to 0; one is a half."""
    return [0.5] if number == 1 else np.linspace(1, 0, number).tolist()


def written_vectors(folder: Path, number: int, dtype: type) -> Path:
    """A file of random unit vectors, written once."""
    name = folder / f"{number}-{np.dtype(dtype).name}.npy"
    if not name.exists():
        np.save(name, random_vectors(number, 384).astype(dtype))
    return name


def write_networks(folder: Path) -> None:
    """Two stock cross-encoders and a Backpack over one encoder, with random weights."""
    collection = dataset("synthetic").split("test")
    tokenizer = word_pieces(collection)
    vocabulary = tokenizer.get_vocab()
    # Words of one token, so that texts have the length that they should have.
    words = sorted(word for word in vocabulary if word.isalpha() and len(word) > 2)
    (folder / WORDS).write_text(json.dumps(words))
    for name, shape in SHAPES.items():
        encoder = folder / f"{name}-encoder"
        intermediate = 4 * shape["hidden_size"]
        config = BertConfig(
            vocab_size=len(tokenizer),
            intermediate_size=intermediate,
            max_position_embeddings=POSITIONS,
            **shape,
        )
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(encoder)
        tokenizer.save_pretrained(encoder)
        ranker = cross_encoder(tokenizer, name=str(encoder)).eval()
        pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, POSITIONS)
        save_stock(folder / name, ranker, pair_tokenizer)
    backpack = backpack_on_backbone(tokenizer, name=str(folder / "small-encoder")).eval()
    pair_tokenizer = make_pair_tokenizer(tokenizer, backpack, POSITIONS)
    save_ranker(folder / "backpack", backpack, pair_tokenizer)


def measured(curve: str, way: str, point: int, folder: Path, threads: int) -> dict[str, float]:
    """A point: seconds and MiB of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", f"--threads={threads}", "--worker"]
    command += [curve, way, str(point), str(folder)]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": str(folder),
        "BACKPACK_RANK_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"{curve}, {way}, {point}: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def work(curve: str, way: str, point: int, folder: Path) -> dict[str, float]:
    """The work of a point, in the process that is measured."""
    prepared = CURVES[curve].ways[way](folder, point)
    seconds = []

    def once() -> None:
        job = prepared()
        started = time.process_time()
        job()
        seconds.append(time.process_time() - started)

    memory = above(once, "cpu")
    return {"seconds": seconds[0], "MiB": memory.above}


def slopes(curve: Curve, rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The power of the last step of each curve: 1 where twice the work takes twice the cost."""
    found: dict[str, dict[str, float]] = {}
    for way in curve.ways:
        last, end = [row for row in rows if row["way"] == way][-2:]
        found[way] = {}
        for cost in ("seconds", "MiB"):
            rise = math.log(max(end[cost], 1e-3) / max(last[cost], 1e-3))
            found[way][cost] = rise / math.log(end["point"] / last["point"])
    return found


def picture(curves: dict[str, Any]) -> str:
    """The curves as SVG: seconds and memory beside each other, a row for each kind of growth."""
    charts = {}
    for name, curve in curves.items():
        colours = {"domain": list(CURVES[name].ways), "range": list(COLOURS)}
        for cost, title in (("seconds", "processor seconds"), ("MiB", "MiB above the start")):
            rows = [row for row in curve["points"] if row[cost] > 0]
            line = layer(
                rows,
                "line",
                {"point": True},
                x=channel("point:Q", title=curve["unit"], scale={"type": "log"}),
                y=channel(f"{cost}:Q", title=title, scale={"type": "log"}),
                color=channel("way:N", scale=colours),
            )
            charts[f"{name}: {title}"] = {"height": 190, "layer": [line], "datasets": {}}
    apart = {"resolve": {"scale": {"color": "independent"}}}
    return svg_of(with_look({**beside(charts, columns=2, width=300), **apart}))


def main() -> None:
    """Measure every point, print a table for each curve, write the JSON file."""
    options = arguments()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    if options.worker:
        curve, way, point, folder = options.worker
        print(json.dumps(work(curve, way, int(point), Path(folder))))
        return
    record: dict[str, Any] = {
        "command": command_line("growth"),
        "machine": machine("cpu"),
        "rounds": options.rounds,
        "curves": {},
    }
    console = Console(width=118)
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        folder = Path(name)
        write_networks(folder)
        for kind in options.curves:
            curve = CURVES[kind]
            points = curve.few if options.quick else curve.points
            rows = rounds_of(kind, points, folder, options)
            record["curves"][kind] = {
                "unit": curve.unit,
                "points": rows,
                "slopes": slopes(curve, rows),
            }
            # What is measured is kept, should a later point fail.
            write_record(options.output, record)
            table = [
                [row["way"], f"{row['point']:,}", f"{row['seconds']:.3g}", f"{row['MiB']:.0f}"]
                for row in rows
            ]
            print_table(console, kind, ["", curve.unit, "processor s", "MiB"], table)
    if options.picture:
        options.picture.write_text(picture(record["curves"]))
    console.print(f"written to {options.output}")


def rounds_of(
    kind: str, points: tuple[int, ...], folder: Path, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Medians of a curve's points; the ways take turns within a point."""
    rows = []
    ways = CURVES[kind].ways
    with tqdm(desc=kind, unit="point", leave=False) as bar:
        for point in points:
            found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
            # A million takes minutes, over which a machine's noise is level.
            rounds = 1 if point >= MILLION else options.rounds
            for _ in range(rounds):
                for way in ways:
                    bar.set_postfix_str(f"{way}, {point:,}")
                    found[way].append(measured(kind, way, point, folder, options.threads))
                    bar.update()
            for way, costs in found.items():
                row: dict[str, Any] = {"way": way, "point": point}
                for cost in ("seconds", "MiB"):
                    row[cost] = median(one[cost] for one in costs)
                rows.append(row)
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--curves", nargs="+", choices=list(CURVES), default=list(CURVES))
    add("--rounds", type=int, default=None, help="medians are reported (3, a million 1; quick 1)")
    add("--threads", type=int, default=1)
    add("--scratch", type=Path, default=None, help="folder for runs and vectors, 4 GB")
    add("--picture", type=Path, default=None, help="draw the curves as this SVG file")
    add("--quick", action="store_true", help="two points of each curve: checks that all runs")
    add("--worker", nargs=4, help=argparse.SUPPRESS)
    add("--output", type=Path, default=None, help="JSON file")
    options = parser.parse_args()
    options.output = options.output or record_file("growth-cpu.json", options.quick)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


if __name__ == "__main__":
    main()
