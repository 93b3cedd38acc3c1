"""What an audit of finished runs finds, in words: how far they lean, and how well they rank."""

from __future__ import annotations

from collections.abc import Callable

from backpack_rank.evaluation.measure import Direction
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import Estimate, Report, SystemResult
from backpack_rank.reporting.answer import Answer, bias_measure
from backpack_rank.reporting.table import number, signed
from backpack_rank.reporting.wording import figure_of, interval

Significance = Callable[[str, str, str], bool | None]
"""Whether two systems differ in a measure, by its name and theirs; None where nobody tested it."""


def findings(report: Report, significant: Significance) -> tuple[Answer, ...]:
    """One sentence on every run beside the first one, with the figures below it.

    ::

        b.trec leans less to male words than a.trec in the first 10, not significantly; it ranks
        worse, significantly.

    Args:
        report: of finished runs.
        significant: by a paired test of the two runs.

    Returns:
        None where neither bias nor effectiveness was measured. Of a single run, what it is itself.
    """
    first, *others = report.rows
    bias = bias_measure(report.rows)
    quality = _quality(report)
    answers = []
    for row in others:
        leaning = _leaning(report, first, row, bias, significant(bias, first.label, row.label))
        tested = significant(quality, first.label, row.label)
        # Where a run's leaning is said, that names the other run.
        other = "" if leaning else first.label
        ranking = _ranking(first, row, quality, tested, other)
        sentence = "; it ".join(filter(None, [leaning, ranking]))
        if sentence:
            figures = _figures([row, first], [bias, quality])
            answers.append(Answer(row.label, f"{row.label} {sentence}.", figures))
    if not others:
        sentence = _lean_of_one(report, first, bias)
        figures = _figures([first], [bias, quality])
        if sentence or figures:
            answers.append(Answer(first.label, sentence or first.label, figures))
    return tuple(answers)


def _leaning(
    report: Report, before: SystemResult, after: SystemResult, bias: str, tested: bool | None
) -> str:
    """How far a run leans beside another; empty where one has no measure of bias."""
    base, figure = figure_of(before, bias), figure_of(after, bias)
    if base is None or figure is None:
        return ""
    where = _where(bias)
    side, side_before = _side(report, figure), _side(report, base)
    if side is None and side_before is None:
        return f"leans to neither group's words {where}, and neither does {before.label}"
    if side is None:
        return (
            f"leans to neither group's words {where}, and {before.label} to {side_before} ones"
            f"{_tested(tested)}"
        )
    if side_before is None:
        return f"leans to {side} words {where}, and {before.label} to neither's{_tested(tested)}"
    change = round(figure.absolute_mean, 4) - round(base.absolute_mean, 4)
    if change == 0:
        # Equal figures need no test.
        comparison, tested = "as far", None
        than = f"as {before.label} {where}"
    else:
        comparison = "less" if change < 0 else "more"
        than = f"than {before.label} {where}"
    words = f"leans {comparison} to {side} words {than}"
    if side != side_before:
        words = f"leans {comparison} {than}, to {side} words and not to {side_before} ones"
    return f"{words}{_tested(tested)}"


def _ranking(
    before: SystemResult, after: SystemResult, quality: str, tested: bool | None, other: str
) -> str:
    """Whether a run ranks better than another, which may be named; empty without judgements."""
    base, figure = figure_of(before, quality), figure_of(after, quality)
    if base is None or figure is None:
        return ""
    change = round(figure.mean, 4) - round(base.mean, 4)
    if change == 0:
        return f"ranks as well as {other}" if other else "ranks as well"
    is_better = (change > 0) == (measure_of(quality).direction is not Direction.LOWER)
    than = f" than {other}" if other else ""
    return f"ranks {'better' if is_better else 'worse'}{than}{_tested(tested)}"


def _lean_of_one(report: Report, row: SystemResult, bias: str) -> str:
    figure = figure_of(row, bias)
    if figure is None:
        return ""
    side = _side(report, figure)
    if side is None:
        return f"{row.label} leans to neither group's words {_where(bias)}."
    sentence = f"{row.label} leans to {side} words {_where(bias)}"
    ends = interval(figure)
    if ends is None:
        return f"{sentence}."
    if ends[0] <= 0 <= ends[1]:
        return f"{sentence}, no further than chance may bring it: the interval holds 0."
    return f"{sentence}, further than chance brings it: the interval leaves out 0."


def _side(report: Report, figure: Estimate) -> str | None:
    """The group that a mean leans to: ``male_minus_female`` is positive for male; None: to none."""
    if round(figure.absolute_mean, 4) == 0:
        return None
    positive, _, negative = report.about.sign.partition("_minus_")
    return positive if figure.mean >= 0 else negative


def _where(measure: str) -> str:
    cutoff = measure_of(measure).cutoff
    return f"in the first {cutoff}" if cutoff else "in all"


def _tested(significant: bool | None) -> str:
    if significant is None:
        return ""
    return ", significantly" if significant else ", not significantly"


def _quality(report: Report) -> str:
    """nDCG@10 where it was measured, else the first measure of effectiveness."""
    for row in report.rows:
        if row.effectiveness is not None and "nDCG@10" not in row.effectiveness.figures:
            return next(iter(row.effectiveness.figures))
    return "nDCG@10"


def _figures(rows: list[SystemResult], measures: list[str]) -> tuple[str, ...]:
    """``nDCG@10 (higher is better): b.trec 0.71 [0.68, 0.74], a.trec ...`` for each measure."""
    lines = []
    for measure in measures:
        described = measure_of(measure)
        texts = []
        for row in rows:
            figure = figure_of(row, measure)
            if figure is None:
                continue
            mean = signed(figure.mean) if described.signed else number(figure.mean)
            ends = interval(figure)
            shown = "" if ends is None else f" [{number(ends[0], 3)}, {number(ends[1], 3)}]"
            texts.append(f"{row.label} {mean}{shown}")
        if texts:
            lines.append(f"{described.shown} ({described.goal()}): {', '.join(texts)}")
    return tuple(lines)
