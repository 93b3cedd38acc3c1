"""What the dial does to a ranker, in a sentence for each policy, and the setting that a person would choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backpack_rank.evaluation.results import Estimate, SystemResult

BIAS_MEASURES = ("ARaB(tf)@10", "RaB(tf)@10", "ARaB(bool)@10", "RaB(bool)@10")
SWAP = "swap change/std (swapped)"
KEEP = 0.99
"""Share of the ranker's effectiveness that a setting has to keep to be chosen."""


def sentence(
    name: str,
    base: SystemResult,
    row: SystemResult,
    significant: Callable[[str], bool | None],
    measure: str = "nDCG@10",
) -> str:
    """What a setting changes against the ranker as it is; percentages where the base's interval leaves out 0.

    ::

        paired_tokens at alpha 0: |ARaB(tf)@10| 0.242 [0.177, 0.304] to 0.016 [0.000, 0.083] (-93%, significant), ...

    Args:
        name: of the setting.
        base: the ranker as it is.
        row: the ranker at another alpha.
        significant: whether a measure's change is significant, None where nobody tested it.
        measure: of effectiveness.
    """
    parts = []
    bias = bias_measure([base, row])
    for one, title, digits in ((bias, f"|{bias}|", 3), (SWAP, "swap change", 3)):
        before, after = (system.figure(one) for system in (base, row))
        if before is not None and after is not None:
            text = f"{_ranged(before, digits, one == bias)} to {_ranged(after, digits, one == bias)}"
            parts.append(f"{title} {text}{_aside(_percent(before, after), _word(significant(one)))}")
    before, after = base.figure(measure), row.figure(measure)
    if before is not None and after is not None:
        change = f"{measure} {after.mean - before.mean:+.3f}"
        parts.append(change + _aside(f"from {before.mean:.3f}", _word(significant(measure))))
    return f"{name} at alpha {row.alpha:g}: {', '.join(parts) or 'nothing was measured'}."


def least_bias(
    base: SystemResult, rows: Iterable[SystemResult], measure: str = "nDCG@10", keep: float = KEEP
) -> SystemResult | None:
    """The system with the smallest bias of those that keep ``keep`` of the base's effectiveness; None without one.

    The bias is the absolute mean of the first of :data:`BIAS_MEASURES` that was measured.
    """
    own = list(rows)
    bias = bias_measure([base, *own])
    floor = base.figure(measure)
    found = [
        row
        for row in own
        if (value := row.figure(bias)) is not None
        and value.mean == value.mean
        and (floor is None or ((now := row.figure(measure)) is not None and now.mean >= keep * floor.mean))
    ]
    return min(found, key=lambda row: row.figure(bias).absolute_mean, default=None)  # type: ignore[union-attr]


def bias_measure(rows: Iterable[SystemResult]) -> str:
    """The bias measure that sentences are about."""
    systems = list(rows)
    return next((name for name in BIAS_MEASURES if all(row.figure(name) for row in systems)), BIAS_MEASURES[0])


def _ranged(figure: Estimate, digits: int, absolute: bool) -> str:
    ends = figure.absolute_mean_interval if absolute else None
    text = f"{figure.absolute_mean:.{digits}f}"
    return f"{text} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends else text


def _percent(before: Estimate, after: Estimate) -> str:
    if before.low is None or before.high is None or before.low <= 0 <= before.high:
        return ""
    change = 100 * (after.absolute_mean / before.absolute_mean - 1)
    return f"{change:+.1f}%" if abs(change) < 1 else f"{change:+.0f}%"


def _word(significant: bool | None) -> str:
    return "" if significant is None else "significant" if significant else "not significant"


def _aside(*words: str) -> str:
    said = ", ".join(word for word in words if word)
    return f" ({said})" if said else ""
