"""What the dial does to a ranker in plain words, for each policy, and the setting to choose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from backpack_rank.evaluation.measure import Described
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, SystemResult
from backpack_rank.reporting.report_tables import queries_in_words
from backpack_rank.reporting.table import number

BIAS_MEASURES = ("ARaB(tf)@10", "RaB(tf)@10", "ARaB(bool)@10", "RaB(bool)@10")
SWAP = "swap change/std (swapped)"
KEEP = 0.99
"""Share of the ranker's effectiveness that a setting has to keep to be chosen."""


@dataclass(frozen=True)
class Answer:
    """What a setting does to a ranker, as a page says it first.

    Attributes:
        policy: name of the setting.
        setting: its alpha and policy, what it is compared with, and on how many queries; ends with
            a colon.
        changes: a sentence for each measure.
    """

    policy: str
    setting: str
    changes: tuple[str, ...]


def answer(
    policy: str,
    base: SystemResult,
    row: SystemResult,
    significant: Callable[[str], bool | None],
    measure: str = "nDCG@10",
) -> Answer:
    """Say in plain words what a setting changes against the unchanged ranker.

    There are percentages where the base's interval leaves out 0::

        At alpha 0 of paired_tokens, beside the ranker as it is (alpha 1), over 180 queries:
        - Swapping the words of one group for the other's in a document changes its score by 0.003
          instead of 0.060 standard deviations (-95%, significant).
        - ...

    Args:
        policy: name of the setting.
        base: the unchanged ranker.
        row: the ranker at another alpha.
        significant: whether a measure's change is significant, None where nobody tested it.
        measure: of effectiveness.
    """
    bias = bias_measure([base, row])
    changes = []
    for changed in (SWAP, bias, measure):
        described = measure_of(changed)
        before, after = base.figure(changed), row.figure(changed)
        if before is None or after is None:
            continue
        now = _absolute_mean(after, with_interval=changed == bias)
        earlier = _absolute_mean(before, with_interval=changed == bias)
        percent = "" if changed == measure else _percent(described, before, after)
        aside = _aside(percent, _in_words(significant(changed)))
        what = described.said.format(name=changed) or f"{described.in_words} is"
        changes.append(f"{what} {now} instead of {earlier}{described.unit}{aside}.")
    setting = (
        f"At alpha {row.alpha:g} of {policy}, beside the ranker as it is "
        f"(alpha {base.alpha:g}){_queries(row)}:"
    )
    return Answer(policy, setting, tuple(changes) or ("Nothing was measured.",))


def best_setting(
    base: SystemResult,
    rows: Iterable[SystemResult],
    measure: str = "nDCG@10",
    keep: float = KEEP,
) -> SystemResult | None:
    """The system to recommend: the dial's promise kept best by those that keep effectiveness.

    Args:
        base: the unchanged ranker.
        rows: to choose from.
        measure: of effectiveness.
        keep: share of the base's effectiveness that has to stay.

    Returns:
        The one with the smallest :func:`deciding_measure`, and of equal ones the one with the
        smallest alpha; None where no system keeps enough.
    """
    rows = list(rows)
    deciding = deciding_measure([base, *rows])
    before = base.figure(measure)
    best: SystemResult | None = None
    least = (float("inf"), float("inf"))
    for row in rows:
        figure, quality = row.figure(deciding), row.figure(measure)
        # A mean that is NaN promises nothing.
        if figure is None or figure.mean != figure.mean:
            continue
        if before is not None and (quality is None or not quality.mean >= keep * before.mean):
            continue
        # Rounded to what tables print: a trace of rounding must not send anybody to a larger alpha.
        place = (round(figure.absolute_mean, 4), 1.0 if row.alpha is None else row.alpha)
        if best is None or place < least:
            best, least = row, place
    return best


def deciding_measure(rows: Iterable[SystemResult]) -> str:
    """What chooses an alpha: what the dial promises, the swap change; else the bias of rankings."""
    rows = list(rows)
    if rows and all(row.figure(SWAP) for row in rows):
        return SWAP
    return bias_measure(rows)


def bias_measure(rows: Iterable[SystemResult]) -> str:
    """The bias measure that sentences are about: the first that all systems have."""
    rows = list(rows)
    for name in BIAS_MEASURES:
        if all(row.figure(name) for row in rows):
            return name
    return BIAS_MEASURES[0]


def _queries(row: SystemResult) -> str:
    block = row.effectiveness or row.bias
    return "" if block is None else f", over {queries_in_words(block.queries)}"


def _absolute_mean(figure: Estimate, with_interval: bool) -> str:
    text = number(figure.absolute_mean, 3)
    ends = figure.absolute_mean_interval
    if with_interval and ends is not None:
        text += f" [{number(ends[0], 3)}, {number(ends[1], 3)}]"
    return text


def _percent(measure: Described, before: Estimate, after: Estimate) -> str:
    """The relative change; empty where the interval before holds 0, or there is none."""
    if before.low is None or before.high is None or before.low <= 0 <= before.high:
        return ""
    change = measure.percent(before.mean, after.mean)
    if change is None:
        return ""
    return f"{change:+.1f}%" if abs(change) < 1 else f"{change:+.0f}%"


def _in_words(significant: bool | None) -> str:
    if significant is None:
        return ""
    return "significant" if significant else "not significant"


def _aside(*words: str) -> str:
    """What is not empty, in brackets behind a space."""
    filled = ", ".join(filter(None, words))
    return f" ({filled})" if filled else ""
