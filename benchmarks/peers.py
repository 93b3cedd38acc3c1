"""Our rankers against sentence-transformers' ``CrossEncoder`` on the same texts:
``python -m benchmarks.peers``.

From texts to scores, one query's candidates at a time, all variants in turns. Theirs is the network
of our plain cross-encoder as transformers' own ``ElectraForSequenceClassification``, which has the
same head: both have the same weights and compute the same function. The Backpack has the same
backbone. Theirs runs in processes of its own (:mod:`benchmarks.peers_worker`), because its backends
need other versions of transformers.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from scipy.stats import kendalltau
from tqdm import tqdm
from transformers import BertConfig, BertModel, ElectraConfig, ElectraForSequenceClassification
from transformers.utils import logging as transformers_logging

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.shared_tokenizer import shared_tokenizer
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.finding import ranker_folder
from backpack_rank.models.loading import load_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import CrossEncoderForRanking, Ranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.workload import dataset, word_pieces

ROOT = Path(__file__).resolve().parents[1]
FASTER = 1.25
LENGTH = 192
"""Tokens of a pair at most, on both sides."""
CROSS, BACKPACK, THEIRS = "cross-encoder", "Backpack", "CrossEncoder"
OURS = {
    f"{ranker} {dtype}": (ranker, dtype)
    for ranker in (CROSS, BACKPACK)
    for dtype in ("float32", "bfloat16")
}
PEERS = {
    f"{THEIRS} {backend} {dtype}": {"backend": backend, "dtype": dtype}
    for backend, dtypes in {
        "torch": ("float32", "bfloat16"),
        "onnx": ("float32", "int8"),
        "openvino": ("float32", "bfloat16", "int8"),
    }.items()
    for dtype in dtypes
}
BASE = f"{THEIRS} torch float32"

Made = tuple[Ranker, PairTokenizer]


@dataclass
class Answer:
    """Scores of one query's candidates [m], and the seconds of processor time and of the clock that
    they took.
    """

    scores: np.ndarray
    seconds: float
    clock: float


@dataclass
class Variants:
    """What takes part, and why something does not."""

    score: dict[str, Callable[[str, list[str]], Answer]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)


class Worker:
    """A process with sentence-transformers."""

    def __init__(self, python: str) -> None:
        file = Path(__file__).with_name("peers_worker.py")
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
        }
        self._process = subprocess.Popen([python, str(file)], text=True, **streams)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer, which names an ``error`` where there is one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return (
            json.loads(line)
            if line
            else {"error": f"the process ended with {self._process.wait()}"}
        )

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    """Score every list with every variant in turns, print a table, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    console = Console(width=118)
    record: dict[str, Any] = {
        "command": command_line("peers"),
        "machine": machine("cpu"),
        "data": options.data,
        "trained": [str(Path(folder).name) for folder in options.ranker],
    }
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        test, lists = _lists(options)
        made, trained = _rankers(options, test, Path(temporary))
        stock = Path(temporary) / "stock"
        save_stock(stock, *made[CROSS])
        variants = Variants()
        _add_ours(variants, made)
        _add_theirs(variants, stock, lists, options, stack)
        answers = _in_turns(variants, lists)
    record["load_at_end"] = machine("cpu")["load_average"]
    qrels = {query: test.qrels[query] for query in lists if query in test.qrels}
    rows = {name: _figures(name, answers, trained, qrels, lists) for name in answers}
    record |= {
        "queries": len(lists),
        "documents": sum(len(documents) for _, documents in lists.values()),
        "variants": rows,
        "skipped": variants.skipped,
        "versions": variants.versions,
        "seconds": {name: [answer.seconds for answer in own] for name, own in answers.items()},
    }
    goals = list(_goals(rows, judged=not options.quick))
    record["goals"] = [goal.as_record() for goal in goals]
    _show(console, rows, goals, variants.skipped, record)
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def save_stock(folder: Path, ranker: Ranker, pair_tokenizer: PairTokenizer) -> None:
    """Write a plain cross-encoder over a BERT as a model and a tokenizer that need nothing of this
    package.

    ELECTRA's classifier is BERT's network with the head of ours: linear, GELU, linear, on the first
    token.
    """
    own = ranker.config.backbone_config
    names = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
    )
    names += (
        "max_position_embeddings",
        "type_vocab_size",
        "layer_norm_eps",
        "pad_token_id",
        "initializer_range",
    )
    shape = {name: getattr(own, name) for name in names}
    model = ElectraForSequenceClassification(
        ElectraConfig(embedding_size=own.hidden_size, num_labels=1, **shape)
    )
    parts = {
        "backbone.": "electra.",
        "head.dense.": "classifier.dense.",
        "head.out.": "classifier.out_proj.",
    }
    weights = {
        new + name.removeprefix(old): values
        for name, values in ranker.state_dict().items()
        for old, new in parts.items()
        if name.startswith(old)
    }
    model.load_state_dict(weights)
    model.save_pretrained(folder)
    ids = pair_tokenizer.start_id, pair_tokenizer.between, pair_tokenizer.end_id
    shared_tokenizer(pair_tokenizer.tokenizer, pair_tokenizer.max_length, *ids).save_pretrained(
        folder
    )
    file = folder / "tokenizer_config.json"
    # The class has another name in older versions, and the token types are wanted.
    settings = {
        key: value for key, value in json.loads(file.read_text()).items() if key != "backpack_rank"
    }
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    file.write_text(json.dumps(settings, indent=2))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a tiny encoder and few texts: checks that all runs, judges no goal",
    )
    add(
        "--weights",
        default=None,
        help="folder or hub id of an encoder (random weights of MiniLM-L6's size)",
    )
    add(
        "--ranker",
        nargs="+",
        default=[],
        help="a trained cross-encoder, a trained Backpack or both, for nDCG@10",
    )
    add("--data", default="synthetic", help="one of conf/data; dl19 reads $BACKPACK_RANK_DATA")
    add("--queries", type=int, default=None, help="judged queries (16; quick 2)")
    add("--documents", type=int, default=None, help="candidates of each (100; quick 6)")
    add(
        "--peers",
        nargs="+",
        default=[sys.executable],
        metavar="PYTHON",
        help="interpreters that have their packages",
    )
    add("--threads", type=int, default=1)
    add("--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/")
    options = parser.parse_args()
    options.output = options.output or record_file("peers-cpu.json", options.quick)
    options.queries = options.queries or (2 if options.quick else 16)
    options.documents = options.documents or (6 if options.quick else 100)
    return options


def _lists(options: argparse.Namespace) -> tuple[Collection, dict[str, tuple[str, dict[str, str]]]]:
    """The collection, and of each query its text and its candidates (document id to text)."""
    data = dataset(options.data)
    test = data.split("test")
    run: Run = data.candidates("test", test)[1]
    judged = [
        query for query in run if any(label > 0 for label in test.qrels.get(query, {}).values())
    ]
    lists = {}
    for query in judged[: options.queries]:
        chosen = list(run[query])[: options.documents]
        texts = test.documents.get_many(chosen)
        lists[query] = test.queries[query], {document: texts[document] for document in chosen}
    return test, lists


def _rankers(
    options: argparse.Namespace, test: Collection, folder: Path
) -> tuple[dict[str, Made], set[str]]:
    """Both rankers with their tokenizers, and which of them are trained."""
    made: dict[str, Made] = {}
    for given in options.ranker:
        ranker, pair_tokenizer = load_ranker(ranker_folder(given, "--ranker"))
        made[CROSS if isinstance(ranker, CrossEncoderForRanking) else BACKPACK] = (
            ranker,
            pair_tokenizer,
        )
    trained = set(made)
    weights = options.weights
    if weights is None:
        words = word_pieces(test)
        weights = str(folder / "encoder")
        shape = (2, 64, 2, 128) if options.quick else (6, 384, 12, 1536)
        names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        words.save_pretrained(weights)
        BertModel(
            BertConfig(vocab_size=len(words), **dict(zip(names, shape, strict=True)))
        ).save_pretrained(weights)  # type: ignore[arg-type]
    for name, make in {CROSS: cross_encoder, BACKPACK: backpack_on_backbone}.items():
        if name not in made:
            torch.manual_seed(0)
            tokenizer = load_tokenizer(weights)
            ranker = make(tokenizer, name=weights)
            made[name] = ranker, make_pair_tokenizer(tokenizer, ranker, LENGTH)
    return {
        name: (ranker.eval(), pair_tokenizer) for name, (ranker, pair_tokenizer) in made.items()
    }, trained


def _add_ours(variants: Variants, made: dict[str, Made]) -> None:
    for name, (ranker, dtype) in OURS.items():
        own, pair_tokenizer = made[ranker]
        try:
            scorer = Scorer(
                copy.deepcopy(own), pair_tokenizer, ScoringSettings(device="cpu", dtype=dtype)
            )
        except ValueError as error:
            variants.skipped[name] = str(error)
            continue
        variants.score[name] = _timed(scorer)


def _timed(scorer: Scorer) -> Callable[[str, list[str]], Answer]:
    def score(query: str, documents: list[str]) -> Answer:
        clock, processor = time.perf_counter(), time.process_time()
        scores = scorer.score(query, documents)
        return Answer(scores, time.process_time() - processor, time.perf_counter() - clock)

    return score


def _add_theirs(
    variants: Variants,
    folder: Path,
    lists: dict[str, tuple[str, dict[str, str]]],
    options: argparse.Namespace,
    stack: ExitStack,
) -> None:
    """Each variant in the first environment that can make it."""
    workers = [Worker(python) for python in options.peers]
    for worker in workers:
        stack.callback(worker.close)
    pairs = [
        (query, text)
        for query, own in lists.values()
        for text in itertools.islice(own.values(), 20)
    ][:300]
    request = {"folder": str(folder), "threads": options.threads, "pairs": pairs}
    for name, variant in tqdm(PEERS.items(), desc="theirs", unit="variant", leave=False):
        errors = []
        for worker in workers:
            answer = worker.ask(request | {"make": name, "variant": variant})
            if "error" not in answer:
                variants.score[name] = _asked(worker, name)
                variants.versions[name] = answer["versions"]
                break
            errors.append(answer["error"])
        else:
            variants.skipped[name] = "; ".join(errors)


def _asked(worker: Worker, name: str) -> Callable[[str, list[str]], Answer]:
    def score(query: str, documents: list[str]) -> Answer:
        answer = worker.ask({"score": name, "query": query, "documents": documents})
        if "error" in answer:
            raise SystemExit(f"{name}: {answer['error']}")
        return Answer(np.array(answer["scores"]), answer["seconds"], answer["clock"])

    return score


def _in_turns(
    variants: Variants, lists: dict[str, tuple[str, dict[str, str]]]
) -> dict[str, list[Answer]]:
    """Every list by every variant, in an order that shifts by one from list to list."""
    names = list(variants.score)
    answers: dict[str, list[Answer]] = {name: [] for name in names}
    query, own = next(iter(lists.values()))
    for name in names:
        variants.score[name](query, list(own.values()))
    for turn, (query, own) in enumerate(
        tqdm(lists.values(), desc="scoring", unit="list", leave=False)
    ):
        start = turn % len(names)
        for name in [*names[start:], *names[:start]]:
            answers[name].append(variants.score[name](query, list(own.values())))
    return answers


def _figures(
    name: str,
    answers: dict[str, list[Answer]],
    trained: set[str],
    qrels: dict[str, dict[str, int]],
    lists: dict[str, tuple[str, dict[str, str]]],
) -> dict[str, Any]:
    own = answers[name]
    ranker = CROSS if name in PEERS else OURS[name][0]
    reference = answers.get(
        f"{BACKPACK} float32" if ranker == BACKPACK else BASE, answers[f"{ranker} float32"]
    )
    figures: dict[str, Any] = {
        "documents_per_second": median(len(one.scores) / one.seconds for one in own),
        "by_the_clock": median(len(one.scores) / one.clock for one in own),
        "kendall_tau": float(
            np.mean(
                [
                    kendalltau(one.scores, other.scores).statistic
                    for one, other in zip(own, reference, strict=True)
                ]
            )
        ),
        "largest_difference": max(
            float(np.abs(one.scores - other.scores).max())
            for one, other in zip(own, reference, strict=True)
        ),
    }
    for base in (BASE, f"{THEIRS} torch bfloat16"):
        if base in answers:
            ratios = [
                theirs.seconds / one.seconds for one, theirs in zip(own, answers[base], strict=True)
            ]
            figures[f"over {base}"] = median(ratios)
    if ranker in trained:
        run = {
            query: dict(zip(texts, one.scores.tolist(), strict=True))
            for (query, (_, texts)), one in zip(lists.items(), own, strict=True)
        }
        values = effectiveness(run, qrels, ["nDCG@10"]).values["nDCG@10"]
        figures["nDCG@10"] = float(np.mean(list(values.values())))
    return figures


def _goals(rows: dict[str, dict[str, Any]], judged: bool) -> Iterator[Goal]:
    for ranker, dtype in itertools.product((CROSS, BACKPACK), ("float32", "bfloat16")):
        base = f"{THEIRS} torch {dtype}"
        if base in rows:
            figure = rows[f"{ranker} {dtype}"][f"over {base}"]
            yield Goal(f"{ranker} over {THEIRS}, {dtype}", figure, FASTER, True, judged)


def _show(
    console: Console,
    rows: dict[str, dict[str, Any]],
    goals: list[Goal],
    skipped: dict[str, str],
    record: dict[str, Any],
) -> None:
    console.print(record["machine"])
    columns = ["", "documents/s", f"x {BASE}", "tau", "largest difference", "nDCG@10"]
    shown = [
        [
            name,
            f"{row['documents_per_second']:.1f}",
            f"{row[f'over {BASE}']:.2f}" if f"over {BASE}" in row else "-",
            f"{row['kendall_tau']:.4f}",
            f"{row['largest_difference']:.1e}",
            f"{row['nDCG@10']:.4f}" if "nDCG@10" in row else "-",
        ]
        for name, row in rows.items()
    ]
    print_table(
        console, f"{record['queries']} lists, {record['documents']} documents", columns, shown
    )
    if goals:
        print_table(
            console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals]
        )
    for name, reason in skipped.items():
        console.print(f"{name} is left out: {reason}", markup=False)


if __name__ == "__main__":
    main()
