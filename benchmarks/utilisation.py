"""Training and scoring throughput with model FLOP utilisation:
``python -m benchmarks.utilisation --device cuda``.

Written for a GPU: bf16, variable-length flash attention, with and without torch.compile, over a few
batch sizes. On a CPU, ``--quick`` checks that all runs.

Model FLOPs are those of the matrix products that a text needs, 2 per multiply-add and three times
that in training: projections of the trunk per token, attention over causal pairs, the sense network
per distinct token, the mix and the senses' last layer per text. What an implementation computes
beyond that does not count.

Beside it stands the share of a job's time that its own matrix products take alone, in the same run
on the same device (:mod:`benchmarks.matrix_products`): their rate within the job over their rate
alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.utils import eval_mode
from backpack_rank.training.losses import listwise_softmax
from backpack_rank.training.module import OptimizerConfig
from benchmarks.kernels import attention_kernels
from benchmarks.matrix_products import flops, matrix_products, seconds_alone
from benchmarks.report import Goal, command_line, machine, print_table, write_record
from benchmarks.timing import in_turns
from benchmarks.workload import SIZES, Size, token_sequences

GOAL = 0.45
OF_ALONE = 0.7
"""Rate of a job's matrix products, as a part of the rate that they reach alone."""
LIST_LENGTH = 10
# Dense bf16 peaks of the makers' data sheets, in TFLOP/s.
PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0, "4090": 165.0}


def main() -> None:
    """Measure every batch size, print a table, write the JSON file."""
    options = _options()
    console = Console(width=118)
    size = SIZES["quick" if options.quick else "gpt2-small"]
    peak = options.peak or _peak(options.device)
    record: dict[str, object] = {
        "command": command_line("utilisation"),
        "machine": machine(options.device),
        "size": size.name,
        "peak_tflops": peak,
        "goals": [],
    }
    rows, found = [], []
    for texts in options.texts:
        row = _measure(size, texts, options)
        if peak:
            row["utilisation"] = {job: rate / peak for job, rate in row["tflops"].items()}  # type: ignore[union-attr]
        found.append(row)
        for job, rate in row["tflops"].items():  # type: ignore[union-attr]
            share = f"{rate / peak:.1%}" if peak else "-"
            alone = f"{row['of_products_alone'][job]:.1%}"  # type: ignore[index]
            rows.append(
                [
                    f"{texts} texts, {job}",
                    f"{row['texts_per_second'][job]:.0f}",
                    f"{rate:.2f}",
                    share,
                    alone,
                ]
            )  # type: ignore[index]
    record["batches"] = found
    judged = options.device.startswith("cuda") and not options.quick
    goals = [
        Goal(
            f"{kind}, rate of its matrix products over their rate alone, best batch size",
            max(
                share
                for row in found
                for job, share in row["of_products_alone"].items()
                if job.startswith(kind)
            ),  # type: ignore[attr-defined]
            OF_ALONE,
            True,
            judged,
        )
        for kind in ("scoring", "training")
    ]
    if peak:
        best = max(
            share
            for row in found
            for job, share in row["utilisation"].items()
            if job.startswith("training")
        )  # type: ignore[union-attr]
        goals.append(
            Goal(
                "training, model FLOP utilisation, best batch size",
                best,
                GOAL,
                True,
                not options.quick,
            )
        )
    record["goals"] = [goal.as_record() for goal in goals]
    print_table(console, "Goals", ["", "measured", "goal", ""], [goal.as_row() for goal in goals])
    print_table(
        console,
        f"{size.name}, bf16",
        ["", "texts/s", "TFLOP/s", "of the peak", "of products alone"],
        rows,
    )
    write_record(options.output, record)
    console.print(f"written to {options.output}")


def model_flops(size: Size, batch: PackedBatch) -> float:
    """FLOPs of one forward pass over a batch, see the module's docstring.

    By hand for one layer, d = 2, k = 1, f = 8, one text of 3 different tokens: trunk 2 * 3 * 12 *
    4, attention 2 * 2 * 6 * 2 (6 causal pairs), sense network 2 * 3 * (2 * 8 + 8 * 2 + 2 * 8),
    weights 2 * (4 + 4 + 3 * 2), mix 2 * 3 * 8, last layer 2 * 8 * 2, head 2 * (4 + 2).
    """
    d, k = size.hidden, size.senses
    f = 4 * d
    lengths = batch.lengths
    tokens, texts = sum(lengths), len(lengths)
    distinct = len(batch.input_ids.unique())
    pairs = sum(n * (n + 1) // 2 for n in lengths)
    trunk = size.layers * (tokens * 12 * d * d + 2 * pairs * d)
    senses = distinct * 3 * d * f
    weights = texts * 2 * d * d + tokens * k * d
    mix = tokens * k * f
    last = texts * k * f * d
    head = texts * (d * d + d)
    return 2.0 * (trunk + senses + weights + mix + last + head)


def _measure(size: Size, texts: int, options: argparse.Namespace) -> dict[str, object]:
    batch = PackedBatch.from_sequences(token_sequences(texts, size)).to(options.device)
    forward = model_flops(size, batch)
    torch.manual_seed(0)
    ranker = BackpackForRanking(size.config()).to(options.device)  # type: ignore[arg-type]
    jobs: dict[str, tuple[Callable[[], None], float]] = {
        "scoring": (_scoring(ranker, batch, options.device), forward),
        "training": (_training(ranker, batch, options.device), 3 * forward),
    }
    if options.compile:
        compiled = torch.compile(ranker, dynamic=True)
        jobs["training, compiled"] = (
            _training(ranker, batch, options.device, compiled),
            3 * forward,
        )
    for job, _ in jobs.values():
        job()
        job()
    times = in_turns(
        {name: job for name, (job, _) in jobs.items()},
        options.repeats,
        f"{texts} texts",
        options.device,
    )
    kernels = attention_kernels(jobs["training"][0], options.device)
    # A compiled step multiplies the shapes of the plain one.
    products = {kind: matrix_products(jobs[kind][0]) for kind in ("scoring", "training")}
    alone = {
        kind: seconds_alone(own, options.device, torch.bfloat16) for kind, own in products.items()
    }
    return {
        "texts": texts,
        "tokens": len(batch.input_ids),
        "model_flops_forward": forward,
        "seconds": times.seconds,
        "texts_per_second": {name: texts / times.median(name) for name in jobs},
        "tflops": {name: own / times.median(name) / 1e12 for name, (_, own) in jobs.items()},
        "matrix_products": {
            kind: {"tflop": flops(own) / 1e12, "seconds_alone": alone[kind]}
            for kind, own in products.items()
        },
        "of_products_alone": {
            name: alone[name.partition(",")[0]] / times.median(name) for name in jobs
        },
        "attention": list(kernels.operators),
        "variable_length_flash": kernels.variable_length,
    }


def _scoring(ranker: BackpackForRanking, batch: PackedBatch, device: str) -> Callable[[], None]:
    kind = torch.device(device).type

    def score() -> None:
        with torch.inference_mode(), eval_mode(ranker), torch.autocast(kind, torch.bfloat16):
            ranker(batch).scores.float().cpu()

    return score


def _training(
    ranker: BackpackForRanking, batch: PackedBatch, device: str, forward: Callable | None = None
) -> Callable[[], None]:
    optimizer = OptimizerConfig(1e-6).optimizer(ranker)
    lists = len(batch) // LIST_LENGTH
    labels = torch.zeros(lists, LIST_LENGTH, device=device)
    labels[:, 0] = 1.0
    mask = torch.ones_like(labels, dtype=torch.bool)
    kind = torch.device(device).type
    run = ranker if forward is None else forward

    def step() -> None:
        ranker.train()
        with torch.autocast(kind, torch.bfloat16):
            scores = run(batch).scores
        listwise_softmax(scores.float().view(lists, LIST_LENGTH), labels, mask)[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.utilisation", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add(
        "--texts",
        type=int,
        nargs="+",
        default=[40, 160, 640, 1280],
        help=f"batch sizes, multiples of {LIST_LENGTH}",
    )
    add("--repeats", type=int, default=10)
    add("--compile", action=argparse.BooleanOptionalAction, default=True)
    add(
        "--peak",
        type=float,
        default=None,
        help="TFLOP/s of the device in bf16, where it is not known",
    )
    add("--quick", action="store_true", help="a tiny model: checks that all runs, judges no goal")
    add(
        "--output",
        type=Path,
        default=None,
        help="JSON file (benchmarks/results/utilisation-DEVICE.json)",
    )
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {options.device}, but torch sees no GPU; use --device cpu --quick")
    if any(texts < LIST_LENGTH or texts % LIST_LENGTH for texts in options.texts):
        parser.error(f"--texts {options.texts}: give multiples of {LIST_LENGTH}, whole lists")
    name = f"utilisation-{options.device.replace(':', '')}{'-quick' if options.quick else ''}.json"
    options.output = options.output or Path(__file__).resolve().parent / "results" / name
    return options


def _peak(device: str) -> float | None:
    """The device's bf16 peak in TFLOP/s, or None where it is not known."""
    if not device.startswith("cuda"):
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for key, peak in PEAKS.items() if key in name), None)


if __name__ == "__main__":
    main()
