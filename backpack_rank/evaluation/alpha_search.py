"""The smallest change that keeps measures within a budget: ``alpha=auto budget=...``.

A budget is a measure, a sign and a number:

    |gap|/std<=0.02              a measure by its name; this one is called so, see below
    |RaB(tf)@10|<=0.03           bars around the whole name: the absolute value of the mean
    mean|RaB(tf)@10|<=0.2        the mean over queries of the absolute values
    nDCG@10 loss<=1%             how much of the value at alpha = 1 is lost; 1% is 0.01
    NFaiRR@10>=0.95              at least

Every measure of a :class:`~backpack_rank.evaluation.results.PerQuery` can be named, in its own
spelling: effectiveness (``nDCG@10``), fairness (``RaB(tf)@10``), gaps (``gap/std``, ``prefers
male``), swaps (``swap tau``). :func:`mean_values` gives the numbers under these names. No measure's
own name stands wholly between bars, so bars around the whole text always mean the absolute value of
the mean, and ``|gap|/std``, whose bars do not end it, is always the measure of that name (the mean
of absolute gaps).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backpack_rank.checks import decimal
from backpack_rank.evaluation.results import PerQuery

GRID = tuple(round(1 - step * 0.05, 2) for step in range(21))
RESOLUTION = 0.01
EXAMPLES = (
    "|gap|/std<=0.02, |RaB(tf)@10|<=0.03, mean|RaB(tf)@10|<=0.2, nDCG@10 loss<=1%, NFaiRR@10>=0.95"
)
KINDS = ("at most", "at least", "loss")
_OPERATORS = {"<=": "at most", "≤": "at most", ">=": "at least", "≥": "at least"}
# A name holds no operator, except between brackets.
_BUDGET = re.compile(
    r"(?P<name>[^<>=≤≥()]*(?:\([^()]*\)[^<>=≤≥()]*)*)(?P<operator>[<>=≤≥]+)(?P<bound>[^<>=≤≥]*)"
)
_MEAN_ABSOLUTE = re.compile(r"mean\|(?P<name>.+)\|")
_OF_BIAS = re.compile(r"\s*A?RaB\b|\|?gap|swap change|prefers")
"""Measures of which less, or nearer to 0, is better."""
# A value that is beyond its bound in the last bits only is within.
_ROUNDING = 1e-12

Measured = Mapping[str, float]
"""``{measure: mean over queries}`` at one alpha, see :func:`mean_values`."""


@dataclass(frozen=True)
class Budget:
    """One bound on one measure.

    Attributes:
        measure: its name in :func:`mean_values`; ``mean|X|`` is the mean of the absolute values of
            X.
        absolute: whether the absolute value of that number is bounded.
        bound: the number; a share for a loss (0.01 for 1%).
        kind: ``at most``, ``at least``, or ``loss``: (value at alpha = 1 - value) / value at alpha
            = 1, at most.
    """

    measure: str
    absolute: bool
    bound: float
    kind: str = "at most"

    def __post_init__(self) -> None:
        if not self.measure or self.measure.isspace():
            raise ValueError("a budget names no measure")
        if self.kind not in KINDS:
            raise ValueError(
                f"unknown kind of budget {self.kind!r}; choose from {', '.join(KINDS)}"
            )
        if not math.isfinite(self.bound):
            raise ValueError(
                f"the bound of {self.measure!r} must be a finite number, got {self.bound}"
            )
        if self.absolute and self.kind == "loss":
            raise ValueError(f"a loss has a sign: write {self.measure} loss<=... without bars")
        if self.kind == "loss" and _OF_BIAS.match(self.basis):
            raise ValueError(
                f"{self.measure} loss<=...: less bias is no loss; give it a bound of its own, such "
                f"as |{self.measure}|<=0.03"
            )
        if self.kind == "loss" and not 0 <= self.bound <= 1:
            raise ValueError(
                f"a loss lies from 0% to 100%, got {100 * self.bound:g}%; a gain is "
                f"{self.measure}>=..."
            )
        if self.absolute and self.bound < 0:
            raise ValueError(
                f"no absolute value is {self.kind} {self.bound}; give |{self.measure}| a bound "
                "from 0"
            )

    @property
    def basis(self) -> str:
        """The measure that has to be computed: X for ``X``, ``|X|``, ``mean|X|`` and ``X loss``."""
        match = _MEAN_ABSOLUTE.fullmatch(self.measure)
        return match["name"] if match else self.measure

    def value(self, measured: Measured, at_one: Measured) -> float:
        """The bounded number; NaN where the measure has no value at this alpha.

        Raises:
            ValueError: a loss of a measure that is not above 0 at alpha = 1.
        """
        value = float(measured.get(self.measure, math.nan))
        if self.absolute:
            return abs(value)
        if self.kind != "loss":
            return value
        start = at_one[self.measure]
        # Written so that NaN is refused, too.
        if not start > 0:
            raise ValueError(
                f"{self.measure} is {start:g} at alpha=1, so no share of it can be lost"
            )
        return (start - value) / start

    def excess(self, measured: Measured, at_one: Measured) -> float:
        """How far the value is beyond the bound; 0 or less is within, NaN is without value."""
        value = self.value(measured, at_one)
        if self.kind == "at least":
            return self.bound - value
        return value - self.bound

    def met(self, measured: Measured, at_one: Measured) -> bool:
        """Whether the value is within the bound; a measure without value never is."""
        # No comparison with NaN is true.
        return self.excess(measured, at_one) <= _ROUNDING

    def __str__(self) -> str:
        if self.kind == "loss":
            return f"{self.label}<={100 * self.bound:g}%"
        sign = ">=" if self.kind == "at least" else "<="
        return f"{self.label}{sign}{self.bound:g}"

    @property
    def label(self) -> str:
        """What is bounded, as a user writes it: ``nDCG@10 loss``, ``|gap/std|``."""
        if self.kind == "loss":
            return f"{self.measure} loss"
        if self.absolute:
            return f"|{self.measure}|"
        return self.measure


@dataclass(frozen=True)
class SearchResult:
    """Result of the search.

    Attributes:
        alpha: the position closest to 1 that meets every budget; the one that comes nearest when
            none does.
        values: every measured value there.
        within: whether every budget is met there.
        tried: ``{alpha: values}`` of every alpha that was measured, in the order of the search.
    """

    alpha: float
    values: Measured
    within: bool
    tried: Mapping[float, Measured]


class BudgetUnreachableError(ValueError):
    """No alpha of the grid meets every budget.

    Attributes:
        found: the alpha that comes nearest, ``within`` is False.
    """

    def __init__(self, message: str, found: SearchResult) -> None:
        super().__init__(message)
        self.found = found


def parse_budgets(budgets: str | Sequence[str]) -> tuple[Budget, ...]:
    """Read what a user writes as ``budget=``; all budgets must be met.

    >>> [str(budget) for budget in parse_budgets("|gap|/std<=0.02, nDCG@10 loss<=1%")]
    ['|gap|/std<=0.02', 'nDCG@10 loss<=1%']

    Args:
        budgets: a text (several are separated by ``,`` or ``;``) or a list of texts.

    Raises:
        ValueError: no budget, or one that cannot be read; shows examples.
    """
    texts = [budgets] if isinstance(budgets, str) else list(budgets)
    parts: list[str] = []
    for text in texts:
        for part in _split(str(text)):
            if part.strip():
                parts.append(part.strip())
    if not parts:
        raise ValueError(f"budget={budgets!r} names no budget; examples: {EXAMPLES}")
    parsed = [_parse(part) for part in parts]
    # A budget that is written twice counts once.
    return tuple(dict.fromkeys(parsed))


def mean_values(*parts: PerQuery) -> dict[str, float]:
    """Means over queries as budgets name them: ``X`` and ``mean|X|`` for every measure X.

    >>> mean_values(PerQuery({"gap": {"q1": 0.5, "q2": -0.25}}))
    {'gap': 0.125, 'mean|gap|': 0.375}

    Args:
        parts: values of measures at one alpha, such as effectiveness, fairness and gaps.

    Raises:
        ValueError: two parts have a measure of the same name, or a name stands wholly between bars.
    """
    values: dict[str, float] = {}
    for part in parts:
        for measure in part.measures:
            if measure in values:
                raise ValueError(
                    f"measure {measure!r} is given twice; a budget could not say which is meant"
                )
            if measure.startswith("|") and measure.endswith("|"):
                raise ValueError(
                    f"measure {measure!r} cannot have a budget: bars around a name mean its "
                    "absolute mean"
                )
            values[measure] = part.mean(measure)
            values[f"mean|{measure}|"] = part.mean_absolute(measure)
    return values


def check_budgets(budgets: Iterable[Budget], measures: Iterable[str]) -> None:
    """Check, before anything is ranked, that every budget is on a measure that will be computed.

    Args:
        budgets: as parsed.
        measures: names of measures as they are in
            :class:`~backpack_rank.evaluation.results.PerQuery`.

    Raises:
        ValueError: an unknown measure; names the nearest one and lists those that there are.
    """
    names = list(dict.fromkeys(measures))
    for budget in budgets:
        if budget.basis in names:
            continue
        close = difflib.get_close_matches(budget.basis, names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"budget {str(budget)!r} is on {budget.basis!r}, which is not measured.{hint} "
            f"There are: {', '.join(names) or 'none'}"
        )


def smallest_change(
    measure_at: Callable[[float], Measured],
    budgets: Sequence[Budget],
    grid: Sequence[float] = GRID,
    resolution: float = RESOLUTION,
) -> SearchResult:
    """Find the alpha closest to 1 that meets every budget.

    >>> result = smallest_change(lambda alpha: {"gap": alpha}, parse_budgets("gap<=0.5"))
    >>> result.alpha
    0.5

    The grid is tried from 1 downwards until an alpha meets the budgets; nothing is assumed about
    its order. Between that alpha and its neighbour, which does not, the last step is found by
    bisection down to ``resolution``: the alpha that is returned is within, and the one
    ``resolution`` closer to 1 is not. A measure without value at an alpha (NaN, or none) does not
    meet its budget there. Each alpha is measured once.

    Args:
        measure_at: alpha to values named as in :func:`mean_values`; called for 1 first.
        budgets: at least one.
        grid: alphas in [0, 1]; 1 is always tried.
        resolution: distance of alphas at which the bisection ends.

    Raises:
        BudgetUnreachableError: no alpha of the grid meets every budget; a ``ValueError`` that says
            the best value of each budget and where it is reached.
        ValueError: no budget, a measure that does not exist or has no value at alpha = 1, a bad
            grid or resolution.
    """
    alphas = _checked_grid(grid, resolution)
    if not budgets:
        raise ValueError(f"no budget is given; examples: {EXAMPLES}")
    tried: dict[float, Measured] = {}

    def within(alpha: float) -> bool:
        if alpha not in tried:
            tried[alpha] = dict(measure_at(alpha))
        return all(budget.met(tried[alpha], tried[1.0]) for budget in budgets)

    # Losses are shares of the values at 1.
    tried[1.0] = dict(measure_at(1.0))
    _check_start(budgets, tried[1.0])
    for index, alpha in enumerate(alphas):
        if not within(alpha):
            continue
        best = alpha
        if index > 0:
            # The neighbour that is closer to 1 was tried before, and is not within.
            best = _bisect(within, alpha, alphas[index - 1], resolution)
        return SearchResult(best, tried[best], within=True, tried=tried)

    nearest = _nearest(budgets, tried)
    message = _unreachable(budgets, tried, nearest)
    result = SearchResult(nearest, tried[nearest], within=False, tried=tried)
    raise BudgetUnreachableError(message, result)


def largest_change(
    measure_at: Callable[[float], Measured], budgets: Sequence[Budget], grid: Sequence[float] = GRID
) -> SearchResult:
    """Budgets that are all losses: the alpha farthest from 1 that loses no more.

    Such budgets are met at alpha = 1, so the smallest change would be none. The grid is tried from
    its smallest alpha upwards; nothing is assumed about its order. Each alpha is measured once.

    Args:
        measure_at: as in :func:`smallest_change`.
        budgets: losses.
        grid: alphas in [0, 1]; 1 is always tried.

    Raises:
        ValueError: no budget, one that is no loss, or as :func:`smallest_change`.
    """
    alphas = _checked_grid(grid, RESOLUTION)
    if not budgets or any(budget.kind != "loss" for budget in budgets):
        raise ValueError(
            "the largest change needs budgets that are losses, got "
            f"{[str(budget) for budget in budgets]}"
        )
    tried: dict[float, Measured] = {1.0: dict(measure_at(1.0))}
    _check_start(budgets, tried[1.0])
    for alpha in reversed(alphas):
        if alpha not in tried:
            tried[alpha] = dict(measure_at(alpha))
        if all(budget.met(tried[alpha], tried[1.0]) for budget in budgets):
            return SearchResult(alpha, tried[alpha], within=True, tried=tried)
    raise AssertionError("nothing is lost at alpha = 1")


def _split(text: str) -> list[str]:
    """Parts between commas and semicolons that stand outside of brackets."""
    parts = [""]
    depth = 0
    for letter in text:
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if letter in ",;" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _parse(text: str) -> Budget:
    """One budget, such as ``|gap|/std<=0.02``."""
    match = _BUDGET.fullmatch(text)
    if match is None or not match["name"].strip():
        raise ValueError(
            f"budget {text!r} cannot be read: write a measure, <= or >=, and a number; examples: "
            f"{EXAMPLES}"
        )
    if match["operator"] not in _OPERATORS:
        raise ValueError(
            f"budget {text!r}: use <= or >=, not {match['operator']!r}; examples: {EXAMPLES}"
        )
    name = match["name"].strip()
    kind = _OPERATORS[match["operator"]]
    if name == "loss" or name.endswith(" loss"):
        if kind != "at most":
            raise ValueError(f"budget {text!r}: a loss is bounded by <=; examples: {EXAMPLES}")
        if not match["bound"].strip().endswith("%"):
            raise ValueError(
                f"budget {text!r}: a loss is a share, so give it in %, as in loss<=1%; examples: "
                f"{EXAMPLES}"
            )
        name = name.removesuffix("loss").strip()
        kind = "loss"
    # |gap|/std begins with a bar, too, and is a measure's own name.
    absolute = len(name) > 2 and name.startswith("|") and name.endswith("|")
    if absolute:
        name = name[1:-1].strip()
    try:
        return Budget(name, absolute, _number(match["bound"]), kind)
    except ValueError as error:
        raise ValueError(
            f"budget {text!r} cannot be read: {error}; examples: {EXAMPLES}"
        ) from error


def _number(text: str) -> float:
    """A number, or a share in %."""
    text = text.strip()
    number = decimal(text.removesuffix("%").strip())
    if text.endswith("%"):
        return number / 100
    return number


def _checked_grid(grid: Sequence[float], resolution: float) -> list[float]:
    """1 and the alphas of the grid from 1 downwards."""
    wrong = [alpha for alpha in grid if not 0 <= alpha <= 1]
    if wrong:
        raise ValueError(f"the grid of alpha=auto holds numbers from 0 to 1, got {wrong[0]}")
    if not (math.isfinite(resolution) and resolution > 0):
        raise ValueError(
            f"the resolution of alpha=auto must be a number above 0 such as 0.01, got {resolution}"
        )
    alphas = {1.0}
    alphas.update(float(alpha) for alpha in grid)
    return sorted(alphas, reverse=True)


def _check_start(budgets: Sequence[Budget], at_one: Measured) -> None:
    """Raise ``ValueError`` for a budget on what is not measured, or has no value at alpha = 1."""
    measures = [name for name in at_one if not _MEAN_ABSOLUTE.fullmatch(name)]
    unknown = [budget for budget in budgets if budget.measure not in at_one]
    check_budgets(unknown, measures)
    for budget in budgets:
        if not math.isfinite(at_one.get(budget.measure, math.nan)):
            raise ValueError(
                f"{budget.measure} has no value at alpha=1, so the budget {str(budget)!r} cannot "
                "be checked"
            )


def _bisect(within: Callable[[float], bool], low: float, high: float, resolution: float) -> float:
    """The last alpha of low, low + resolution, ... below high that is within; low is within."""

    def alpha_after(steps: int) -> float:
        # Rounded, so that 0.4 + 7 steps of 0.01 is 0.47; low itself is known and stays exact.
        return round(low + steps * resolution, 10) if steps else low

    good = 0
    # Rounded before ceil, because 0.05 / 0.01 may be a little more than 5.
    bad = math.ceil(round((high - low) / resolution, 6))
    while bad - good > 1:
        middle = (good + bad) // 2
        if within(alpha_after(middle)):
            good = middle
        else:
            bad = middle
    return alpha_after(good)


def _nearest(budgets: Sequence[Budget], tried: Mapping[float, Measured]) -> float:
    """The alpha whose largest excess, in units of its bound, is smallest.

    Of several it is the one closest to 1. An alpha at which a measure has no value comes last.
    """

    def distance(alpha: float) -> tuple[float, float]:
        worst = -math.inf
        for budget in budgets:
            excess = budget.excess(tried[alpha], tried[1.0])
            if math.isnan(excess):
                excess = math.inf
            # A bound of 0 has no units.
            unit = abs(budget.bound) or 1.0
            worst = max(worst, excess / unit)
        return worst, -alpha

    return min(tried, key=distance)


def _unreachable(budgets: Sequence[Budget], tried: Mapping[float, Measured], nearest: float) -> str:
    """The sentence that says how near each budget comes, and all of them together."""
    best: list[str] = []
    for budget in budgets:
        alpha = _nearest([budget], tried)
        value = _value_at(budget, tried, alpha)
        best.append(f"{budget} is at best {value} at alpha={alpha:g}")
    message = f"the budget is unreachable by alpha alone: {'; '.join(best)}"
    if len(budgets) > 1:
        values: list[str] = []
        for budget in budgets:
            value = _value_at(budget, tried, nearest)
            values.append(f"{budget.label} {value}")
        message += f". Together they come nearest at alpha={nearest:g}: {', '.join(values)}"
    return f"{message}. Allow more, or choose another policy"


def _value_at(budget: Budget, tried: Mapping[float, Measured], alpha: float) -> str:
    """The bounded number at an alpha, as text."""
    value = budget.value(tried[alpha], tried[1.0])
    if budget.kind == "loss":
        return f"{100 * value:.4g}%"
    return f"{value:.4g}"
