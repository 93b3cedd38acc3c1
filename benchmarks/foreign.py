"""Cross-encoders of others: ``backpack_rank.load(folder).predict`` beside ``CrossEncoder.predict``.

    python -m benchmarks.foreign --tokenizer FOLDER --weights FOLDER   # MiniLM with real weights, and a random head
    python -m benchmarks.foreign --tokenizer FOLDER --few              # 60 pairs, one round: checks that all runs
    python -m benchmarks.foreign --quick                               # tiny networks, made-up texts

    python -m benchmarks.foreign --tokenizer FOLDER --device cuda --dtype bfloat16 --queries 43 --batch 256

MiniLM, XLM-R and ModernBERT shapes, every number format on every number of threads. Both read one
folder, in one process, in turns, BM25's candidates of TREC DL 2019 (the folder named by
BACKPACK_RANK_DATA). Tokenisation is in the time of both. Of MiniLM, in the first format on the first number of
threads, also what alpha = 0 costs beside alpha = 1.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    ModernBertConfig,
    PreTrainedTokenizerBase,
    XLMRobertaConfig,
)

from backpack_rank.data.synthetic.generator import load_synthetic
from backpack_rank.reranking.load import load
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns
from benchmarks.workload import word_pieces

MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "num_labels": 1,
}
TINY = {**MINILM, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}
AT_LEAST = {"float32": 1.5, "bfloat16": 1.3}
"""Goals: times the speed of CrossEncoder.predict."""
AT_MOST = 1.15
"""Goal: the cost of alpha = 0 in costs of alpha = 1."""
POLICIES = ("renditions", "paired_tokens")


def shapes(
    tokenizer: PreTrainedTokenizerBase, weights: str | None, size: dict[str, int] | None = None
) -> dict[str, torch.nn.Module]:
    """A classifier of each shape; random weights but those of MiniLM where they are given."""
    common: dict[str, Any] = {**(size or MINILM)}
    common |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    intermediate = 3 * common["hidden_size"] // 2
    modern = {**common, "intermediate_size": intermediate, "cls_token_id": tokenizer.cls_token_id}
    for name in ("bos_token_id", "eos_token_id", "sep_token_id"):
        modern[name] = tokenizer.sep_token_id
    configs = {
        "MiniLM-L6": BertConfig(**common),
        "XLM-R": XLMRobertaConfig(**{**common, "max_position_embeddings": 514}),
        "ModernBERT": ModernBertConfig(**modern),
    }
    made = {}
    for name, config in configs.items():
        torch.manual_seed(0)
        made[name] = AutoModelForSequenceClassification.from_config(config)
    if weights is not None:
        config = AutoConfig.from_pretrained(weights, num_labels=1)
        made["MiniLM-L6"] = AutoModelForSequenceClassification.from_pretrained(
            weights, config=config
        )
    return made


def candidate_pairs(queries: int, depth: int) -> list[tuple[str, str]]:
    """Queries and BM25's first documents of TREC DL 2019."""
    folder = Path(os.environ["BACKPACK_RANK_DATA"], "dl19")
    query_texts = _texts(folder / "queries.jsonl")
    document_texts = _texts(folder / "corpus.jsonl")
    pairs: list[tuple[str, str]] = []
    taken: dict[str, int] = {}
    for line in (folder / "candidates" / "bm25.trec").read_text(encoding="utf-8").splitlines():
        query_id, _, doc_id, *_ = line.split()
        if query_id not in taken and len(taken) == queries:
            continue
        taken[query_id] = taken.get(query_id, 0) + 1
        if taken[query_id] <= depth:
            pairs.append((query_texts[query_id], document_texts[doc_id]))
    return pairs


def _texts(path: Path) -> dict[str, str]:
    texts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        texts[record["_id"]] = record["text"]
    return texts


def synthetic_pairs() -> list[tuple[str, str]]:
    """A few pairs of the synthetic collection."""
    collection = load_synthetic("test", test_queries=4, documents=40)
    texts = list(dict(collection.documents).values())[:8]
    pairs = []
    for query in collection.queries.values():
        pairs += [(query, text) for text in texts]
    return pairs


def measured(
    folder: Path,
    pairs: list[tuple[str, str]],
    dtype: str,
    with_dial: bool,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Seconds of both in turns, their ratio, and the largest difference of the logits.

    Args:
        folder: of a classifier.
        pairs: queries and documents.
        dtype: number format of the weights of both.
        with_dial: also what alpha = 0 costs beside alpha = 1.
        options: of the command line: the device, rounds, texts of a padded batch.
    """
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(
        str(folder),
        device=options.device,
        model_kwargs={"dtype": getattr(torch, dtype)},
        max_length=512,
    )
    ours = load(folder, device=options.device, dtype=dtype)

    def predict_theirs() -> np.ndarray:
        scores = theirs.predict(
            pairs,
            batch_size=options.batch,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
        )
        return np.asarray(scores)

    # Before they are timed, which also warms both up.
    difference = predict_theirs().astype(np.float64) - ours.predict(pairs)
    jobs: dict[str, Any] = {
        "CrossEncoder": predict_theirs,
        "backpack_rank": lambda: ours.predict(pairs),
    }
    result: dict[str, Any] = {"largest_difference": float(np.abs(difference).max())}
    if with_dial:
        for policy in POLICIES:
            ours.predict(pairs, alpha=0, policy=policy)
            jobs[policy] = lambda policy=policy: ours.predict(pairs, alpha=0, policy=policy)
    times = in_turns(jobs, options.repeats, folder.name, options.device)
    result["seconds"] = times.seconds
    result["faster"] = times.speedup("backpack_rank", over="CrossEncoder")
    result["pairs_per_second"] = len(pairs) / times.median("backpack_rank")
    if with_dial:
        result["cost_of_alpha_0"] = {
            policy: 1 / times.speedup(policy, over="backpack_rank") for policy in POLICIES
        }
    return result


def goals_of(title: str, result: dict[str, Any], dtype: str, judged: bool) -> list[Goal]:
    """The figures of a shape beside what they should be."""
    goals = [Goal(title, result["faster"], AT_LEAST.get(dtype, 1.0), True, judged)]
    if dtype == "float32":
        difference = result["largest_difference"]
        goals.append(Goal(f"{title}, difference of a logit", difference, 1e-5, False, judged))
    for policy, cost in result.get("cost_of_alpha_0", {}).items():
        goals.append(Goal(f"{title}, alpha 0 of {policy}", cost, AT_MOST, False, judged))
    return goals


def main() -> None:
    """Time every shape, print the goals and write the JSON file."""
    options = arguments()
    if options.quick:
        collection = load_synthetic("test", test_queries=4, documents=40)
        tokenizer: Any = word_pieces(collection, 400)
        pairs = synthetic_pairs()
        networks = shapes(tokenizer, None, TINY)
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
        pairs = candidate_pairs(options.queries, options.depth)
        networks = shapes(tokenizer, options.weights)
    facts = machine(options.device)
    results: dict[str, Any] = {}
    goals: list[Goal] = []
    for name, model in networks.items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            for dtype in options.dtype:
                for threads in options.threads:
                    torch.set_num_threads(threads)
                    first = (options.dtype[0], options.threads[0])
                    with_dial = name == "MiniLM-L6" and (dtype, threads) == first
                    result = measured(Path(folder), pairs, dtype, with_dial, options)
                    title = f"{name} {dtype} {threads} threads"
                    print(
                        f"{title}: {result['faster']:.2f} times CrossEncoder.predict, "
                        f"{result['pairs_per_second']:.0f} pairs/s, largest difference "
                        f"{result['largest_difference']:.1e}",
                        flush=True,
                    )
                    results[title] = result
                    # The goals are those of a CPU.
                    judged = not (options.quick or options.few) and options.device == "cpu"
                    goals += goals_of(title, result, dtype, judged)
                    # What was measured stays where a later shape is interrupted.
                    record = {
                        "command": command_line("foreign"),
                        "machine": facts,
                        "pairs": len(pairs),
                        "shapes": results,
                        "goals": [goal.as_record() for goal in goals],
                    }
                    write_record(options.output, record)
    rows = [goal.as_row() for goal in goals]
    print_table(Console(), "Beside CrossEncoder.predict", ["", "value", "goal", ""], rows)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", default=None, help="folder of a BERT tokenizer")
    parser.add_argument("--weights", default=None, help="folder of MiniLM's weights")
    parser.add_argument("--queries", type=int, default=2)
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--batch", type=int, default=32, help="texts of CrossEncoder's batch")
    parser.add_argument("--few", action="store_true", help="60 pairs, one round")
    parser.add_argument("--quick", action="store_true", help="tiny networks, made-up texts")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if options.tokenizer is None and not options.quick:
        parser.error("--tokenizer FOLDER is needed, or --quick")
    if options.few:
        options.queries, options.depth, options.repeats = 1, 60, 1
    if options.quick:
        options.repeats = 1
    if options.output is None:
        options.output = record_file(
            f"foreign-{options.device.replace(':', '')}.json", options.quick or options.few
        )
    return options


if __name__ == "__main__":
    main()
