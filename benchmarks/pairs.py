"""Pairs per second at 512 tokens beside published figures: ``python -m benchmarks.pairs``.

sentence-transformers publishes 3,817 pairs a second for MiniLM-L6 and 7,517 for Ettin-17m on an
H100, in bf16, with pairs of 512 tokens. Here both shapes have random weights, as our plain
cross-encoder and as a Backpack, and texts are exactly as long; goal: twice the published figures.
A third job trains the paper's Backpack (GPT-2-small) on lists of ten passages in bf16-mixed, one
list and four in a step, and says in how many hours its four epochs over MS MARCO's training queries
would end.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import numpy as np
import torch
from rich.console import Console
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from backpack_rank.data.batching import CPU_TOKENS, GPU_TOKENS, pack_by_length
from benchmarks.backbones import BACKBONES, _independent_texts, _rankers, _scoring, _training_step
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns

ETTIN = {
    "hidden_size": 256,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "intermediate_size": 384,
}
SHAPES = {"minilm-l6": BACKBONES["minilm-l6"], "ettin-17m": ("modernbert", ETTIN)}
PUBLISHED = {"minilm-l6": 3_817, "ettin-17m": 7_517}
TOKENS = 512
QUERIES = 502_939
"""Training queries of MS MARCO that have a judgement: lists of an epoch."""
EPOCHS, LIST = 4, 10
LISTS_OF_A_STEP = (1, 4)
"""The paper reads one; ``model=backpack_gpt2`` recommends four."""


def main() -> None:
    """Time all jobs, print a table, write the JSON file."""
    options = _options()
    transformers_logging.set_verbosity_error()
    console = Console(width=118)
    record: dict[str, object] = {
        "command": command_line("pairs"),
        "machine": machine(options.device),
    }
    judged = options.device != "cpu" and not options.quick
    goals, rows, rates = [], [], {}
    for name, (kind, shape) in SHAPES.items():
        for ranker, rate in _pairs_per_second(kind, shape, options).items():
            over = rate / PUBLISHED[name]
            rates[f"{name}, {ranker}"] = rate
            rows.append([f"{name}, {ranker}", f"{rate:.0f}", f"{PUBLISHED[name]}", f"{over:.2f}"])
            goals.append(Goal(f"{name}, {ranker}: over published", over, 2.0, True, judged))
    print_table(console, f"pairs of {TOKENS} tokens, bf16", ["", "pairs/s", "published", "x"], rows)
    training = {}
    for lists in LISTS_OF_A_STEP:
        seconds = _seconds_of_a_step(lists, options) / lists
        hours = QUERIES * EPOCHS * seconds / 3600
        training[f"{lists} lists a step"] = {"seconds of a list": seconds, "hours": hours}
        console.print(
            f"{'tiny' if options.quick else 'backpack_gpt2'}, {lists} lists of {LIST} a step in "
            f"bf16-mixed: {seconds:.4f} s a list, {hours:.1f} hours for {EPOCHS} epochs of "
            f"{QUERIES:,} lists"
        )
    print_table(console, "goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    record |= {
        "pairs": rates,
        "training": training,
        "goals": [goal.as_record() for goal in goals],
    }
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few texts, tiny training: checks that all runs")
    add("--device", default="cuda", help="cuda, cuda:1; cpu: nothing is judged")
    add("--documents", type=int, default=None, help="texts to score (4,096; quick 4)")
    add("--repeats", type=int, default=None, help="rounds; medians are reported (7; quick 1)")
    add("--compile", action="store_true", help="also with torch.compile, a minute for each ranker")
    add("--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/")
    options = parser.parse_args()
    options.output = options.output or record_file("pairs.json", options.quick)
    options.documents = options.documents or (4 if options.quick else 4096)
    options.repeats = options.repeats or (1 if options.quick else 7)
    # What the parts of benchmarks.backbones read.
    options.senses, options.scale, options.dtype, options.keys = 16, 4, "bfloat16", None
    return options


def _pairs_per_second(kind: str, shape: dict, options: argparse.Namespace) -> dict[str, float]:
    config = AutoConfig.for_model(kind, **shape)
    rng = np.random.default_rng(0)
    # Ids from 10 on: those before may be special tokens.
    texts = list(rng.integers(10, config.vocab_size, (options.documents, TOKENS)))
    limit = CPU_TOKENS if options.device == "cpu" else GPU_TOKENS
    batches = [batch for _, batch in pack_by_length(np.arange(len(texts)), texts, limit)]
    jobs = {}
    for name, ranker in _rankers(config, options).items():
        ranker.to(torch.bfloat16)  # type: ignore[call-arg]
        jobs[name] = _scoring(ranker, batches, options.device)
        jobs[name]()
        if options.compile:
            compiled = torch.compile(ranker, dynamic=True)
            jobs[f"{name}, compiled"] = _scoring(compiled, batches, options.device)
            jobs[f"{name}, compiled"]()
    times = in_turns(jobs, options.repeats, kind, options.device)
    return {name: len(texts) / times.median(name) for name in jobs}


def _seconds_of_a_step(lists: int, options: argparse.Namespace) -> float:
    options.list = lists * LIST
    kind, shape = BACKBONES["tiny" if options.quick else "gpt2"]
    config = AutoConfig.for_model(kind, **shape)
    _, one_list = _independent_texts(config, options)
    ranker = _rankers(config, options)["backpack"]
    step = _training_step(ranker, one_list.to(options.device), options)
    step()
    times = in_turns({"step": step}, options.repeats, "training", options.device)
    return median(times.seconds["step"])


if __name__ == "__main__":
    main()
