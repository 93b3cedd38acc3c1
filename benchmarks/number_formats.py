"""What bf16 costs a trained ranker, and what it brings:
``python -m benchmarks.number_formats RANKER``.

For each format of ``scoring.dtype``: documents per second over those in float32 (the same texts in
turns, one thread), nDCG@10, Kendall's tau of every list to the order in float32, and what the dial
does (the change of scores when gendered words of documents are swapped, at alpha 1 and at alpha 0
of paired tokens).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from scipy.stats import kendalltau

from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Run
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import MetricSuite, rank_all
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from benchmarks.report import command_line, machine, print_table, record_file, write_record
from benchmarks.timing import in_turns

ROOT = Path(__file__).resolve().parents[1]
FORMATS = ("float32", "bfloat16")
SWAP = "swap change/std"


def main() -> None:
    """Measure every collection, print a table of each, write the JSON file whenever one is done."""
    options = _options()
    torch.set_num_threads(1)
    register_resolvers()
    output = options.output or record_file("number_formats-cpu.json", options.quick)
    command = command_line("number_formats")
    record: dict[str, Any] = {"command": command, "machine": machine("cpu")}
    console = Console(width=118)
    for name in options.data:
        rows = _measured(options, name)
        record[name] = rows
        columns = list(rows["float32"])
        shown = [
            [dtype, *(f"{row[column]:.4g}" for column in columns)] for dtype, row in rows.items()
        ]
        print_table(console, name, ["", *columns], shown)
        write_record(output, record)
    console.print(f"written to {output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.number_formats", description=__doc__
    )
    add = parser.add_argument
    add("ranker", type=Path, help="folder of a trained ranker, or of the run that trained it")
    add("--data", nargs="+", default=["dl19", "dl20"], help="of conf/data (%(default)s)")
    add("--formats", nargs="+", default=FORMATS)
    add("--options", nargs="*", default=[], help="further options of evaluate.py")
    add("--texts", type=int, default=200, help="candidates whose scoring is timed (%(default)s)")
    add("--repeats", type=int, default=5, help="rounds (%(default)s)")
    add("--quick", action="store_true", help="one round: checks that all runs")
    add("--output", type=Path, default=None, help="JSON file")
    options = parser.parse_args()
    options.repeats = 1 if options.quick else options.repeats
    return options


def _measured(options: argparse.Namespace, name: str) -> dict[str, dict[str, float]]:
    settings = {dtype: _settings(name, dtype, options.options) for dtype in options.formats}
    rankers = {dtype: own.reranker(options.ranker) for dtype, own in settings.items()}
    base = settings["float32"]
    metrics = base.metrics(base.dataset(options.ranker))
    data = evaluation_loader(base, base.dataset(options.ranker), metrics)("test")
    texts = list(Pairs.from_run(data.candidates, data.test).texts())[: options.texts]
    jobs = {dtype: _scoring(ranker.local_scorer, texts) for dtype, ranker in rankers.items()}
    times = in_turns(jobs, options.repeats, f"{name} scoring", "cpu")
    rows, orders = {}, {}
    for dtype, ranker in rankers.items():
        found, orders[dtype] = _values(ranker, metrics, data)
        turned, _ = _values(ranker.with_policy(settings[dtype].policy, 0.0), metrics, data)
        rows[dtype] = {
            "documents/s over fp32": times.speedup(dtype, "float32"),
            "nDCG@10": found["nDCG@10"],
            "tau to fp32": _tau(orders[dtype], orders["float32"]),
            "swap change": found[SWAP],
            "at alpha 0": turned[SWAP],
            "fall": 1 - turned[SWAP] / found[SWAP] if found[SWAP] else 0.0,
            "nDCG@10 at alpha 0": turned["nDCG@10"],
        }
    return rows


def _settings(data: str, dtype: str, options: list[str]) -> EvaluationSettings:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        overrides = [
            f"data={data}",
            "policy=paired_tokens",
            f"scoring.dtype={dtype}",
            "scoring.device=cpu",
        ]
        return EvaluationSettings.of(compose("evaluate", overrides=[*overrides, *options]))


def _scoring(scorer: Scorer, texts: list[tuple[str, str]]) -> Callable[[], np.ndarray]:
    return lambda: scorer.score_texts(texts)


def _values(
    reranker: PointwiseReranker, metrics: MetricSuite, data: EvaluationData
) -> tuple[dict[str, float], Run]:
    """Means over queries, and the run."""
    ranked = rank_all(reranker, data)
    (system,) = metrics.measure([ranked], data).systems
    means = {
        measure: float(np.mean(list(of.values[measure].values())))
        for of in system.values.values()
        for measure in of.measures
        if measure in ("nDCG@10", SWAP)
    }
    return means, ranked.test


def _tau(run: Run, exact: Run) -> float:
    """Mean of Kendall's tau over the lists."""
    return float(
        np.mean(
            [
                kendalltau(
                    list(run[query_id].values()), [documents[doc_id] for doc_id in run[query_id]]
                ).statistic
                for query_id, documents in exact.items()
                if len(documents) > 1
            ]
        )
    )


if __name__ == "__main__":
    main()
