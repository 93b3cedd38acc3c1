"""One training step on a list of passages: forward, listwise softmax, backward, AdamW."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch

from backpack_rank.training.losses import listwise_softmax
from backpack_rank.training.module import OptimizerConfig
from benchmarks.timing import Times, in_turns
from benchmarks.variants import TRAINED, Sequences, Workbench, forward_of

MIXED = "bf16-mixed"


def training_times(bench: Workbench, texts: Sequences, rounds: int, dtypes: list[str]) -> Times:
    """Seconds of a step per variant, and with ``bfloat16`` of its bf16-mixed form too
    (``NAME bf16-mixed``).

    All variants train the same parameters with one optimiser, dropout off.
    """
    optimizer = prepared_optimizer(bench)
    jobs = {}
    for mixed, name in product([False, True] if "bfloat16" in dtypes else [False], TRAINED):
        jobs[f"{name} {MIXED}" if mixed else name] = training_step(
            name, bench, optimizer, texts, mixed
        )
    jobs["ranker"]()
    return in_turns(jobs, rounds, "training steps", str(bench.device))


def prepared_optimizer(bench: Workbench) -> torch.optim.Optimizer:
    """AdamW as the ranker is trained with, its state in place, its rate 0 so that the weights stay."""
    optimizer = OptimizerConfig().optimizer(bench.ranker)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for parameter in bench.ranker.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def training_step(
    name: str,
    bench: Workbench,
    optimizer: torch.optim.Optimizer,
    texts: Sequences,
    mixed: bool = False,
) -> Callable[[], float]:
    """A step of that variant on one list, its first passage relevant; gives the loss. ``mixed``:
    autocast to bf16.
    """
    bench.ranker.train()
    forward = forward_of(name, bench)
    labels = torch.zeros(1, len(texts), device=bench.device)
    labels[0, 0] = 1.0
    mask = torch.ones_like(labels, dtype=torch.bool)

    def step() -> float:
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=mixed):
            scores = forward(texts)[None]
        loss, _ = listwise_softmax(scores.float(), labels, mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step
