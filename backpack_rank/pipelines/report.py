"""The report page of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.checks import located
from backpack_rank.evaluation.results import Report
from backpack_rank.evaluation.significance import Comparison
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import SystemRuns
from backpack_rank.pipelines.nodes import several
from backpack_rank.pipelines.page_sections import (
    FURTHER_QUERIES,
    QUERIES,
    RankingPair,
    attributions,
    changed_queries,
    senses_of,
)
from backpack_rank.pipelines.tasks import SavedOptions
from backpack_rank.reporting.answer import Answer, answer
from backpack_rank.reporting.comparison import comparison_tables
from backpack_rank.reporting.finding import findings
from backpack_rank.reporting.overview import overview_measures
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.data import Changes, Gallery, Page
from backpack_rank.reporting.page.pictures import write_pictures
from backpack_rank.reporting.page.provenance import provenance
from backpack_rank.reporting.page.render import write_page
from backpack_rank.reporting.table import Table
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer

_NOTE = (
    "95% intervals over queries in brackets. Significant: paired randomisation test on the queries "
    "that both runs have, Holm-corrected over all pairs of runs for each measure."
)


def write_evaluation_page(
    folder: Path,
    settings: SavedOptions,
    report: Report,
    systems: Sequence[SystemRuns],
    data: EvaluationData,
    tests: Sequence[Comparison],
    reranker: PointwiseReranker | None,
    spread: Table | None = None,
) -> Path:
    """``report.html`` of one evaluation, with its figures as PNG and SVG in ``figures/``."""
    page = replace(
        page_of_rows("Evaluation", {"": report.rows}, report.about, comparisons=tests),
        answers=answers_of(report, tests),
        comparison=(*comparison_tables(tests, width=8), *([spread] if spread else [])),
    )
    # The ranker under alpha beside the unchanged one; without them, the last system beside the
    # first.
    last = systems[-1]
    first = systems[-2] if reranker is not None and len(systems) > 2 else systems[0]
    rankings = []
    if first is not last:
        runs = (first.bias, last.bias)
        rankings.append(RankingPair(first.label, last.label, runs, data.bias))
    shown = reranker if last.alpha is not None else None
    return write_with_texts(folder, page, settings, report, rankings, shown)


def write_audit_page(
    folder: Path,
    settings: SavedOptions,
    report: Report,
    systems: Sequence[SystemRuns],
    data: EvaluationData,
    tests: Sequence[Comparison],
    spread: Table | None = None,
) -> Path:
    """``report.html`` of finished runs: the finding in words, one chart, one table, and the rest.

    There is no dial on it. The rest is folded, and is not printed.
    """

    def significant(measure: str, first: str, second: str) -> bool | None:
        return _significance({first, second}, tests)(measure)

    asked = several(settings.values.get("measures") or ())
    page = page_of_rows(
        "Audit of runs",
        {"": report.rows},
        report.about,
        measures=overview_measures(report, asked),
        comparisons=tests,
    )
    page = replace(
        page,
        answers=findings(report, significant),
        answer_note=_NOTE if len(report.rows) > 1 else "",
        comparison=(*comparison_tables(tests, width=8), *([spread] if spread else [])),
        is_audit=True,
    )
    first, last = systems[0], systems[-1]
    rankings = []
    if first is not last:
        runs = (first.bias, last.bias)
        rankings.append(RankingPair(first.label, last.label, runs, data.bias))
    return write_with_texts(folder, page, settings, report, rankings, None)


def answers_of(report: Report, tests: Sequence[Comparison]) -> tuple[Answer, ...]:
    """What alpha does, from the unchanged ranker and the last alpha; empty without both."""
    dial = [row for row in report.rows if row.alpha is not None]
    if len(dial) < 2 or dial[0].alpha != 1:
        return ()
    unchanged, last = dial[0], dial[-1]
    significant = _significance({unchanged.label, last.label}, tests)
    return (answer(report.about.policy, unchanged, last, significant),)


def _significance(
    labels: set[str], comparisons: Sequence[Comparison]
) -> Callable[[str], bool | None]:
    """Whether two systems differ significantly in a measure; None where nobody tested it."""

    def significant(measure: str) -> bool | None:
        for comparison in comparisons:
            for compared in comparison.measures:
                if compared.measure != measure:
                    continue
                for test in compared.tests:
                    of_both = {test.first, test.second} == labels
                    if of_both and test.average == compared.average:
                        return test.p_holm < comparison.level
        return None

    return significant


def write_with_texts(
    folder: Path,
    page: Page,
    settings: SavedOptions,
    report: Report,
    rankings: Sequence[RankingPair],
    reranker: PointwiseReranker | None,
) -> Path:
    """Add what needs documents and the ranker to a page, and write it.

    Args:
        folder: of the page.
        page: what is there already.
        settings: configuration that is shown.
        report: systems and how they were measured.
        rankings: to show side by side, those of ``reranker`` first.
        reranker: at the alpha and under the policy whose senses are shown.
    """
    with located("bias.lexicon"):
        lexicon = load_lexicon(settings.lexicon)
    page = replace(page, groups=lexicon.group_names)
    if rankings:
        page = replace(page, changes=_changes(rankings, lexicon))
    # A ranker behind a server is asked for nothing more than its scores.
    if reranker is not None and isinstance(reranker.scorer, Scorer) and rankings:
        first = rankings[0]
        if reranker.sensitivity is not None:
            senses = senses_of(folder, reranker, first.collection, first.runs[0], lexicon)
            page = replace(page, senses=senses)
        page = replace(page, attribution=attributions(reranker, first, lexicon))
    on_ranker = [note for note in report.about.notes if note.startswith("Ranker: ")]
    page = replace(
        page, configuration=settings.text, provenance=provenance(report.about, on_ranker)
    )
    path = write_page(folder / "report.html", page)
    # Files of every cut-off would be dozens.
    drawn = replace(page, tradeoff=_at_ten(page.tradeoff), cutoffs=_at_ten(page.cutoffs))
    write_pictures(folder / "figures", drawn)
    return path


def _changes(rankings: Sequence[RankingPair], lexicon: Lexicon) -> tuple[Changes, ...] | str:
    """The queries that change most in each pair of rankings, or why there are none at all."""
    known = []
    reasons = []
    for number, pair in enumerate(rankings):
        changes = changed_queries(pair, lexicon, FURTHER_QUERIES if number else QUERIES)
        if isinstance(changes, Changes):
            known.append(changes)
        else:
            reasons.append(changes)
    return tuple(known) or reasons[0]


def _at_ten(gallery: Gallery | None) -> Gallery | None:
    """The gallery's charts at cut-off 10, if it has cut-offs."""
    if gallery is None:
        return None
    at_ten = tuple(panel for panel in gallery.panels if "10" in panel.choice)
    return replace(gallery, panels=at_ten, first=0) if at_ten else gallery
