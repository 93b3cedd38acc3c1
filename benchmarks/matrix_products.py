"""The matrix products of a job: which shapes it multiplies, and how long these take alone on the
same device.

What is left of a job's time is everything else: attention, layer norms, the optimiser, and waiting
for the processor.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

Shape = tuple[int, int, int, int]
"""Products of [m, k] and [k, n] in one call: (number, m, k, n)."""
_MATRICES = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Operators, and which of their arguments is the first matrix."""


def matrix_products(job: Callable[[], object]) -> Counter[Shape]:
    """Run the job once; how often it multiplies which shapes. Products inside attention kernels are
    not among them.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        job()
    found: Counter[Shape] = Counter()
    for event in profiler.key_averages(group_by_input_shape=True):
        if event.key in _MATRICES:
            first = _MATRICES[event.key]
            left, right = event.input_shapes[first : first + 2]
            number = left[0] if len(left) == 3 else 1
            found[number, left[-2], left[-1], right[-1]] += event.count
    return found


def flops(products: Mapping[Shape, int]) -> float:
    """Of all products, 2 per multiply-add."""
    return float(
        sum(2 * count * number * m * k * n for (number, m, k, n), count in products.items())
    )


def seconds_alone(
    products: Mapping[Shape, int], device: str, dtype: torch.dtype, repeats: int = 5
) -> float:
    """How long all products take, each shape alone: the median of its rounds, times its count."""
    return sum(count * _seconds(shape, device, dtype, repeats) for shape, count in products.items())


def _seconds(shape: Shape, device: str, dtype: torch.dtype, repeats: int) -> float:
    number, m, k, n = shape
    left, right = (
        torch.randn(number, *size, device=device, dtype=dtype) for size in ((m, k), (k, n))
    )
    # A GPU is timed over many calls, which then follow each other without a gap.
    calls = 20 if device.startswith("cuda") else 1
    rounds = []
    with torch.inference_mode():
        for _ in range(repeats + 1):  # the first warms up
            _wait(device)
            start = time.perf_counter()
            for _ in range(calls):
                torch.bmm(left, right) if number > 1 else torch.mm(left[0], right[0])
            _wait(device)
            rounds.append((time.perf_counter() - start) / calls)
    return median(rounds[1:])


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
