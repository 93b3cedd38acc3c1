"""What it brings a decoder to read the query once for its list: ``python -m benchmarks.prefixes``.

A Backpack of GPT-2-small size with random weights scores a collection's lists of candidates, query
by query, with common beginnings read once and with every text read in full, in turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from rich.console import Console

from backpack_rank.data.batching import join_pairs
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.shared_prefixes import SharedPrefixes
from backpack_rank.reranking.scorer import Scorer
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns
from benchmarks.variants import new_ranker, standardise
from benchmarks.workload import SIZES, dataset, word_pieces

ROOT = Path(__file__).resolve().parents[1]
GOAL = 1.06


def main() -> None:
    """Time both ways, print a table, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    lists, tokenizer = _lists(options)
    size = SIZES["quick" if options.quick else "gpt2-small"]
    scorer = Scorer(new_ranker(size, "cpu"), tokenizer)
    standardise(scorer.ranker, lists[0])  # type: ignore[arg-type]
    once, in_full = _scoring(scorer, lists), _in_full(_scoring(scorer, lists))
    difference = float(np.abs(once() - in_full()).max())
    times = in_turns({"once": once, "in full": in_full}, options.repeats, "lists", "cpu")
    lengths = [len(text) for texts in lists for text in texts]
    goals = [
        Goal(
            "prefixes read once over every text in full",
            times.speedup("once", "in full"),
            GOAL,
            True,
            not options.quick,
        )
    ]
    record = {
        "command": command_line("prefixes"),
        "machine": machine("cpu"),
        "lists": {
            "number": len(lists),
            "documents": len(lengths),
            "tokens of a text": round(float(np.mean(lengths)), 1),
        },
        "seconds": times.seconds,
        "largest difference of scores, in standard deviations": difference,
        "goals": [goal.as_record() for goal in goals],
    }
    console = Console(width=118)
    rows = [[name, f"{len(lengths) / times.median(name):.1f}"] for name in times.seconds]
    print_table(
        console, f"scores differ by {difference:.1e} standard deviations", ["", "documents/s"], rows
    )
    print_table(console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefixes", description=__doc__)
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a tiny model and short lists: checks that all runs, judges no goal",
    )
    add("--data", default=None, help="one of conf/data (dl19; quick: synthetic)")
    add("--queries", type=int, default=3, help="lists (%(default)s)")
    add("--documents", type=int, default=None, help="candidates of a list (30; quick 4)")
    add("--repeats", type=int, default=None, help="rounds (5; quick 2)")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--output", type=Path, default=None, help="JSON file")
    options = parser.parse_args()
    options.output = options.output or record_file("prefixes-cpu.json", options.quick)
    options.data = options.data or ("synthetic" if options.quick else "dl19")
    options.documents = options.documents or (4 if options.quick else 30)
    options.repeats = options.repeats or (2 if options.quick else 5)
    return options


def _lists(options: argparse.Namespace) -> tuple[list[list[np.ndarray]], PairTokenizer]:
    """The first queries' first candidates as token ids, in a vocabulary of the collection's own
    words.
    """
    data = dataset(options.data)
    test = data.split("test")
    candidates = data.candidates("test", test)[1]
    vocabulary = SIZES["quick"].vocabulary if options.quick else SIZES["gpt2-small"].vocabulary
    tokenizer = PairTokenizer(word_pieces(test, min(30522, vocabulary)), max_length=192)
    lists = []
    for query_id, documents in islice(candidates.items(), options.queries):
        texts = test.documents.get_many(list(islice(documents, options.documents)))
        lists.append(
            join_pairs(
                tokenizer, [(test.queries[query_id], text) for text in texts.values()]
            ).sequences
        )
    return lists, tokenizer


def _scoring(scorer: Scorer, lists: list[list[np.ndarray]]) -> Callable[[], np.ndarray]:
    return lambda: np.concatenate([scorer.score_tokens(texts) for texts in lists])


def _in_full(score: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    def scores() -> np.ndarray:
        with mock.patch.object(SharedPrefixes, "of", return_value=None):
            return score()

    return scores


if __name__ == "__main__":
    main()
