"""Speed and memory of the ranker against the published practice and plain GPT-2:
``python -m benchmarks.scoring``.

Every figure is a ratio of times taken in turns in one run. See ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from scipy.stats import kendalltau
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from benchmarks.kernels import attention_kernels
from benchmarks.memory import Memory, MemoryJob, measure
from benchmarks.report import Goal, command_line, machine, print_table, write_record
from benchmarks.sweep import ALPHAS, sweep
from benchmarks.timing import Times, in_turns
from benchmarks.training import training_times
from benchmarks.variants import (
    LABELS,
    SAME_FUNCTION,
    TRAINED,
    Sequences,
    Workbench,
    new_ranker,
    reference_scores,
    scoring,
    standardise,
)
from benchmarks.workload import SIZES, token_sequences

PARTS = ("memory", "scoring", "sweep", "training")
BASE = "published_dynamic"
LIST_LENGTH = 10
SHORT = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass
class Findings:
    """Filled part by part: figures for the JSON file and goals for the last table."""

    record: dict[str, object] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)


def main() -> None:
    """Run the chosen parts, print tables, write the JSON file."""
    options = _options()
    torch.set_num_threads(options.threads)
    transformers_logging.set_verbosity_error()
    console, findings = Console(width=118), Findings()
    size = SIZES[options.size]
    texts = token_sequences(options.documents, size)
    findings.record |= {
        "command": command_line("scoring"),
        "machine": machine(options.device),
        "size": asdict(size),
        "texts": _describe(texts, options.batch),
    }
    console.print(findings.record["machine"], findings.record["texts"])
    # Memory first: later parts fill this process, and memory is measured beside it.
    if "memory" in options.parts:
        _memory_part(options, console, findings)
    if set(options.parts) - {"memory"}:
        bench = Workbench(new_ranker(size, options.device), size, options.batch)
        standardise(bench.ranker, texts[:16])
        parts = {"scoring": _scoring_part, "sweep": _sweep_part, "training": _training_part}
        for name, part in parts.items():
            if name in options.parts:
                part(options, bench, texts, console, findings)
    if findings.goals:
        rows = [goal.as_row() for goal in findings.goals]
        print_table(console, "Goals", ["", "measured", "goal", ""], rows)
    findings.record["goals"] = [goal.as_record() for goal in findings.goals]
    write_record(options.output, findings.record)
    console.print(f"written to {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoring", description=__doc__)
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="a tiny model and few texts: checks that all runs, judges no goal",
    )
    add("--documents", type=_positive, default=None, help="texts to score (32; quick 8)")
    add(
        "--sweep-documents",
        type=_positive,
        default=None,
        help="texts of the sweep of alpha (200; quick 8)",
    )
    add("--batch", type=_positive, default=16, help="texts per padded batch")
    add("--repeats", type=_positive, default=None, help="rounds; medians are reported (5; quick 2)")
    add("--threads", type=_positive, default=torch.get_num_threads())
    add("--device", default="cpu", help="cpu, cuda, cuda:1")
    add("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    add(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="training at full size needs 18 GB (b)",
    )
    add(
        "--output",
        type=Path,
        default=None,
        help="JSON file (benchmarks/results/scoring-DEVICE.json)",
    )
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {options.device}, but torch sees no GPU; use --device cpu")
    if "scoring" in options.parts and options.dtype[0] != "float32":
        options.dtype = ["float32", *options.dtype]  # all ratios are to (a) in fp32
    options.size = "quick" if options.quick else "gpt2-small"
    options.documents = options.documents or (8 if options.quick else 32)
    options.sweep_documents = options.sweep_documents or (8 if options.quick else 200)
    options.repeats = options.repeats or (2 if options.quick else 5)
    name = f"scoring-{options.device.replace(':', '')}{'-quick' if options.quick else ''}.json"
    options.output = options.output or Path(__file__).resolve().parent / "results" / name
    options.judged = not options.quick and options.device == "cpu"
    return options


def _scoring_part(
    options: argparse.Namespace,
    bench: Workbench,
    texts: Sequences,
    console: Console,
    findings: Findings,
) -> None:
    reference = reference_scores(bench, texts)
    benches = {
        dtype: bench if dtype == "float32" else bench.converted(dtype)
        for dtype in dict.fromkeys(options.dtype)
    }
    scorers = {
        f"{name} {dtype}": scoring(name, b) for dtype, b in benches.items() for name in LABELS
    }
    scores = {job: score(texts[:2]) for job, score in scorers.items()}  # warm-up

    def keep(job: str) -> Callable[[], None]:
        return lambda: scores.__setitem__(job, scorers[job](texts))

    times = in_turns(
        {job: keep(job) for job in scorers}, options.repeats, "scoring", options.device
    )
    differences = {job: _agreement(values, reference) for job, values in scores.items()}
    kernels = {
        dtype: attention_kernels(keep(f"ranker {dtype}"), options.device) for dtype in benches
    }
    _show_scoring(console, times, differences, len(texts), list(benches))
    for dtype, names in kernels.items():
        console.print(f"attention of the ranker in {dtype}: {names.text}")
    findings.record["scoring"] = {
        "reference": "published network, all positions, one text at a time without padding, fp32",
        "reference_score_deviation": float(reference.std()),
        "seconds": times.seconds,
        "documents_per_second": {job: len(texts) / times.median(job) for job in scorers},
        "speedup_over_a_fp32": {job: times.speedup(job, f"{BASE} float32") for job in scorers},
        "ranker_speedup": {job: times.speedup(f"ranker {job.split()[1]}", job) for job in scorers},
        "agreement_with_reference": {job: asdict(value) for job, value in differences.items()},
        "attention": {dtype: asdict(names) for dtype, names in kernels.items()},
    }
    findings.goals += _scoring_goals(times, differences, list(benches), options.judged)


def _scoring_goals(
    times: Times, differences: dict[str, Agreement], dtypes: list[str], judged: bool
) -> list[Goal]:
    own = "ranker float32"
    bounds = {BASE: ("(a)", 2.4), "published_512": ("(b)", 14.0), "gpt2_hf": ("(c)", 1.4)}
    goals = [
        Goal(
            f"fp32 scoring, times {mark}",
            times.speedup(own, f"{name} float32"),
            bound,
            True,
            judged,
        )
        for name, (mark, bound) in bounds.items()
    ]
    goals += [
        Goal(
            f"fp32 difference, {LABELS[name]}", differences[f"{name} float32"].largest, 1e-4, False
        )
        for name in SAME_FUNCTION
    ]
    if "bfloat16" in dtypes:
        ratio = times.speedup("ranker bfloat16", f"{BASE} float32")
        goals.append(Goal("bf16 scoring, times (a) in fp32", ratio, 4.0, True, judged))
    return goals


def _show_scoring(
    console: Console, times: Times, differences: dict[str, Agreement], count: int, dtypes: list[str]
) -> None:
    rows = []
    for dtype in dtypes:
        for name in LABELS:
            job = f"{name} {dtype}"
            ratios = times.speedups(f"ranker {dtype}", job)
            same = name in SAME_FUNCTION
            rows.append(
                [
                    f"{LABELS[name]}, {SHORT[dtype]}",
                    f"{count / times.median(job):.2f}",
                    f"{times.speedup(job, f'{BASE} float32'):.2f}",
                    f"{times.speedup(f'ranker {dtype}', job):.2f} "
                    f"({min(ratios):.2f}-{max(ratios):.2f})",
                    f"{differences[job].largest:.1e}" if same else "other",
                    f"{differences[job].kendall:.3f}" if same else "-",
                ]
            )
    columns = ["scoring", "doc/s", "x (a) fp32", "ranker is x it", "max diff.", "tau"]
    print_table(console, f"Scoring {count} documents", columns, rows)


def _sweep_part(
    options: argparse.Namespace,
    bench: Workbench,
    texts: Sequences,
    console: Console,
    findings: Findings,
) -> None:
    result = sweep(bench, token_sequences(options.sweep_documents, bench.size), options.repeats)
    seconds = result.times.median
    many = f"{len(ALPHAS)} alphas"
    rows = [
        ["1 alpha in one call", f"{seconds('call'):.2f}", "1"],
        [f"{many} in one call", f"{seconds('calls'):.2f}", f"{result.ratio:.3f}"],
        ["1 alpha with a cache on disk", f"{seconds('one'):.2f}", "1"],
        [f"{many} with a cache on disk", f"{seconds('many'):.2f}", f"{result.ratio_of_cache:.3f}"],
    ]
    print_table(
        console, f"Sweep over {options.sweep_documents} documents", ["", "seconds", "ratio"], rows
    )
    console.print(f"largest difference of a score to a pass of its own: {result.difference:.1e}")
    findings.record["sweep"] = {
        "documents": options.sweep_documents,
        "seconds": result.times.seconds,
        "ratio": result.ratio,
        "ratio_of_cache": result.ratio_of_cache,
        "difference_to_a_pass_of_its_own": result.difference,
    }
    findings.goals.append(
        Goal("time of 21 alphas / one", result.ratio, 1.05, False, options.judged)
    )


def _training_part(
    options: argparse.Namespace,
    bench: Workbench,
    texts: Sequences,
    console: Console,
    findings: Findings,
) -> None:
    rounds = min(options.repeats, 3)
    times = training_times(bench, token_sequences(LIST_LENGTH, bench.size), rounds, options.dtype)
    rows = []
    for job in times.seconds:
        name, _, mixed = job.partition(" ")
        label = f"{LABELS[name]}, {mixed or 'fp32'}"
        rows.append([label, f"{times.median(job):.2f}", f"{times.speedup('ranker', job):.2f}"])
    title = f"Training step, list of {LIST_LENGTH}, dropout off"
    print_table(console, title, ["", "seconds", "fp32 ranker is x times it"], rows)
    findings.record["training"] = {
        "list": LIST_LENGTH,
        "dropout": 0.0,
        "seconds": times.seconds,
        "ranker_speedup": {job: times.speedup("ranker", job) for job in times.seconds},
    }
    ratio = times.speedup("ranker", "published_512")
    findings.goals.append(Goal("training step, times (b)", ratio, 15.0, True, options.judged))


def _memory_part(options: argparse.Namespace, console: Console, findings: Findings) -> None:
    # Each is a process of its own: a quick run has those that the goal names.
    named = ("ranker", "published_512")
    jobs = [
        ("scoring", name, dtype, options.documents)
        for dtype in dict.fromkeys(options.dtype)
        for name in (named if options.quick else LABELS)
    ]
    trained = named if options.quick else TRAINED
    jobs += [("training", name, "float32", LIST_LENGTH) for name in trained]
    peaks: dict[str, Memory] = {}
    for kind, name, dtype, count in tqdm(jobs, desc="peak memory", unit="process", leave=False):
        job = MemoryJob(
            kind, name, dtype, options.size, options.device, options.threads, count, options.batch
        )
        peaks[f"{kind} {name} {dtype}"] = measure(job)
    rows = []
    for kind, name, dtype, _ in jobs:
        peak, own = peaks[f"{kind} {name} {dtype}"], peaks[f"{kind} ranker {dtype}"]
        share = f"{own.above / peak.above:.2f}"
        rows.append(
            [
                f"{kind}: {LABELS[name]}, {SHORT[dtype]}",
                f"{peak.before:.0f}",
                f"{peak.above:.0f}",
                share,
            ]
        )
    title = f"Peak memory above weights and optimiser state ({next(iter(peaks.values())).source})"
    print_table(console, title, ["", "before, MiB", "above, MiB", "ranker / it"], rows)
    findings.record["memory"] = {job: asdict(peak) for job, peak in peaks.items()}
    ratio = peaks["training ranker float32"].above / peaks["training published_512 float32"].above
    findings.goals.append(Goal("training memory / (b)", ratio, 0.125, False, options.judged))


@dataclass(frozen=True)
class Agreement:
    """Largest absolute difference of scores, and Kendall's tau of the order."""

    largest: float
    kendall: float


def _agreement(scores: np.ndarray, reference: np.ndarray) -> Agreement:
    tau = kendalltau(scores, reference).statistic if len(scores) > 1 else 1.0
    return Agreement(float(np.abs(scores - reference).max()), float(tau))


def _describe(texts: Sequences, batch: int) -> dict[str, float]:
    lengths = np.array([len(text) for text in texts])
    parts = [lengths[start : start + batch] for start in range(0, len(lengths), batch)]
    padded = sum(len(part) * part.max() for part in parts)
    return {
        "documents": len(texts),
        "mean_length": float(lengths.mean()),
        "deviation": float(lengths.std()),
        "longest": int(lengths.max()),
        "padding_share_of_dynamic_padding": float(1 - lengths.sum() / padded),
    }


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} must be at least 1")
    return value


if __name__ == "__main__":
    main()
