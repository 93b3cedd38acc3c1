"""Exact Kemeny aggregation against the plain integer programme with all its constraints, in one
process.

``python -m benchmarks.kemeny`` writes ``benchmarks/results/kemeny.json``; ``--quick`` leaves out 50
and 100 items. ``--plain-up-to 100`` gives the plain programme 100 items too, which are 161,700
constraints. Rankings are drawn from Mallows' model: phi = 1 is uniformly random, and the smaller
phi, the more they agree.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
import scipy
from rich.console import Console
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from backpack_rank.position.aggregation.kemeny import Kemeny, components
from backpack_rank.position.aggregation.rankings import Rankings
from benchmarks.report import Goal, command_line, machine, print_table, record_file, write_record

VOTERS = 20
PHIS = (0.7, 0.9, 0.97, 1.0)
SIZES = (10, 20, 50, 100)
QUICK = (10, 20)
GOAL_ITEMS = 20  # a list that language models rank

Result = TypeVar("Result")


@dataclass(frozen=True)
class Instance:
    """One set of rankings and what both programmes made of it; seconds are of CPU time, one for
    each round.

    Attributes:
        largest: items of the largest component of the majority graph.
        cost: of the order found.
        bound: what no order can cost less than.
        exact: seconds of :class:`~backpack_rank.position.aggregation.kemeny.Kemeny`.
        plain: seconds of the programme with all constraints, None where it was left out.
        plain_cost: the cost that it found, None where the time limit ended it.
    """

    items: int
    phi: float
    seed: int
    largest: int
    cost: int
    bound: int
    exact: list[float]
    plain: list[float] | None
    plain_cost: int | None

    @property
    def ratio(self) -> float | None:
        """Time of the plain programme over ours, the median of the rounds' ratios; None where it
        came to no end.
        """
        if self.plain is None or self.plain_cost is None:
            return None
        return median(slow / fast for slow, fast in zip(self.plain, self.exact, strict=True))


def main() -> None:
    """Time both on every instance, print tables and goals, write the record."""
    options = arguments()
    facts = machine("cpu") | {
        "scipy": scipy.__version__,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
    }
    sizes = options.sizes or (QUICK if options.quick else SIZES)
    warm_up()
    instances = []
    for items in sizes:
        for phi in PHIS:
            for seed in range(options.seeds):
                instances.append(measured(items, phi, seed, options))
                print(line_of(instances[-1]), file=sys.stderr, flush=True)
    goals = goals_of(instances)
    console = Console()
    columns = [
        "items, phi",
        "largest component",
        "ours, CPU s",
        "plain, CPU s",
        "plain / ours",
        "optimal",
    ]
    print_table(console, "Median of the seeds", columns, rows_of(instances))
    print_table(
        console, "Goals", ["what", "measured", "goal", ""], [goal.as_row() for goal in goals]
    )
    record: dict[str, object] = {
        "command": command_line("kemeny"),
        "machine": facts,
        "workload": {
            "rankings": VOTERS,
            "phi": list(PHIS),
            "items": list(sizes),
            "seeds": options.seeds,
        },
        "time_limit": options.time_limit,
        "left_out": f"the plain programme above {options.plain_up_to} items: 100 items have 161,700 constraints",
        "instances": [asdict(instance) for instance in instances],
        "goals": [goal.as_record() for goal in goals],
    }
    write_record(options.output, record)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="instances of each size and phi")
    parser.add_argument(
        "--repeats", type=int, default=3, help="rounds of both programmes; one above 20 items"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds for one aggregation, wall clock"
    )
    parser.add_argument("--quick", action="store_true", help="10 and 20 items only")
    parser.add_argument(
        "--plain-up-to", type=int, default=50, help="items that the plain programme is given"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=None, help="numbers of items")
    parser.add_argument(
        "--output", type=Path, default=None, help="benchmarks/results/; of a quick run build/"
    )
    options = parser.parse_args()
    options.output = options.output or record_file("kemeny.json", options.quick)
    return options


def measured(items: int, phi: float, seed: int, options: argparse.Namespace) -> Instance:
    """Both programmes in turns on one set of rankings."""
    rankings = Rankings.of_orders(
        mallows(items, VOTERS, phi, np.random.default_rng((items, seed))), range(items)
    )
    method = Kemeny(time_limit=options.time_limit)
    wins = rankings.precedence()
    exact, plain = [], []
    plain_cost = None
    for _ in range(options.repeats if items <= GOAL_ITEMS else 1):
        seconds, found = cpu_seconds(lambda: method.aggregate(rankings))
        exact.append(seconds)
        if items <= options.plain_up_to:
            seconds, plain_cost = cpu_seconds(lambda: plain_programme(rankings, options.time_limit))
            plain.append(seconds)
    if plain_cost is not None and found.optimal and plain_cost != found.cost:
        raise RuntimeError(
            f"{items} items, phi {phi}, seed {seed}: costs {found.cost} and {plain_cost} differ"
        )
    largest = max(map(len, components(wins - wins.T)))
    return Instance(
        items, phi, seed, largest, found.cost, found.bound, exact, plain or None, plain_cost
    )


def mallows(items: int, voters: int, phi: float, rng: np.random.Generator) -> list[list[int]]:
    """Orders by repeated insertion: item i goes j places from the end with a probability
    proportional to phi^j.
    """
    orders = []
    for _ in range(voters):
        order: list[int] = []
        for item in range(items):
            weights = phi ** np.arange(item + 1)
            order.insert(item - int(rng.choice(item + 1, p=weights / weights.sum())), item)
        orders.append(order)
    return orders


def plain_programme(rankings: Rankings[int], seconds: float = 60.0) -> int | None:
    """Least cost by one integer programme: a variable for each pair, 0 <= x_ij + x_jk - x_ik <= 1
    for all i < j < k.

    None where ``seconds`` (wall clock) were not enough.
    """
    wins = rankings.precedence()
    size = len(wins)
    first, second = np.triu_indices(size, 1)
    column = np.zeros((size, size), dtype=np.int64)
    column[first, second] = np.arange(len(first))
    i, j, k = np.array(
        [(i, j, k) for i in range(size) for j in range(i + 1, size) for k in range(j + 1, size)]
    ).T
    rows = np.tile(np.arange(len(i)), 3)
    columns = np.concatenate([column[i, j], column[j, k], column[i, k]])
    values = np.repeat([1.0, 1.0, -1.0], len(i))
    matrix = coo_array((values, (rows, columns)), shape=(len(i), len(first))).tocsr()
    result = milp(
        (wins[second, first] - wins[first, second]).astype(float),
        integrality=np.ones(len(first)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, 0, 1),
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    if result.status != 0:
        return None
    return round(result.fun) + int(wins[first, second].sum())


def cpu_seconds(job: Callable[[], Result]) -> tuple[float, Result]:
    """CPU time of this process for a job, all its threads together, and what the job gives."""
    start = time.process_time()
    found = job()
    return time.process_time() - start, found


def warm_up() -> None:
    """Load what the first call of either loads."""
    rankings = Rankings.of_orders(mallows(12, 5, 1.0, np.random.default_rng(0)))
    Kemeny().aggregate(rankings)
    plain_programme(rankings)


def goals_of(instances: Sequence[Instance]) -> list[Goal]:
    """Figures and the bounds they are held against."""
    small = [median(instance.exact) for instance in instances if instance.items == GOAL_ITEMS]
    ratios = [instance.ratio for instance in instances if instance.ratio is not None]
    goals = []
    if small:
        goals.append(
            Goal(f"CPU seconds for {GOAL_ITEMS} items, slowest instance", max(small), 0.05, False)
        )
    if ratios:
        goals.append(
            Goal(
                "plain programme over ours, CPU time, least ratio of an instance",
                min(ratios),
                1.0,
                True,
            )
        )
    return goals


def rows_of(instances: Sequence[Instance]) -> list[list[str]]:
    """A line for each size and phi."""
    rows = []
    for items, phi in dict.fromkeys((instance.items, instance.phi) for instance in instances):
        own = [instance for instance in instances if (instance.items, instance.phi) == (items, phi)]
        plain = [median(instance.plain) for instance in own if instance.plain is not None]
        ratios = [instance.ratio for instance in own if instance.ratio is not None]
        rows.append(
            [
                f"{items}, {phi:g}",
                f"{median(instance.largest for instance in own):g}",
                f"{median(median(instance.exact) for instance in own):.4f}",
                f"{median(plain):.3f}" if plain else "-",
                f"{median(ratios):.1f}" if ratios else "-",
                f"{sum(instance.cost == instance.bound for instance in own)} of {len(own)}",
            ]
        )
    return rows


def line_of(instance: Instance) -> str:
    """One instance for the terminal."""
    plain = ""
    if instance.plain is not None:
        plain = f", plain {median(instance.plain):.3f} s" + (
            "" if instance.plain_cost is not None else " without end"
        )
    solved = "optimal" if instance.cost == instance.bound else f"not proven, bound {instance.bound}"
    return (
        f"{instance.items} items, phi {instance.phi:g}, seed {instance.seed}: "
        f"{median(instance.exact):.4f} s{plain}, cost {instance.cost} ({solved})"
    )


if __name__ == "__main__":
    main()
