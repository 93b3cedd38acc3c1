"""The report page of a multirun: its jobs' measures, and texts of two of its rankings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from backpack_rank.data.collection import Collection, select_queries
from backpack_rank.evaluation.results import Report, SystemResult
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.page_sections import RankingPair
from backpack_rank.pipelines.report import write_with_texts
from backpack_rank.pipelines.settings import slugify
from backpack_rank.pipelines.sweep_choice import Choice, Jobs, LoadedJob, is_significant
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.figures import policy_figures, preference_figures
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.sweep import Sweep, SweepEntry
from backpack_rank.reporting.wording import AS_IT_IS

DRAWN = ("|gap|/std", "swap change/std (swapped)", "ARaB(tf)@10", "nDCG@10", "NFaiRR@10")
"""Measures that get a chart over alpha."""


def write_sweep_page(folder: Path, sweep: Sweep) -> Path:
    """``report.html`` of a multirun, with its figures as PNG and SVG in ``figures/``."""
    jobs = Jobs(folder)
    choice = Choice.of(sweep, jobs)
    shown = choice.shown()
    settings_in_order = dict.fromkeys(entry.setting for entry in shown)
    settings_in_order |= dict.fromkeys(sweep.settings or ("",))
    names = list(settings_in_order)

    def significant(setting: str, row: SystemResult, measure: str) -> bool:
        return is_significant(sweep.entry(setting, row), measure) is True

    rows_by_setting = {name: sweep.rows(name) for name in names}
    page = page_of_rows("What the dial does", rows_by_setting, sweep.about, significant=significant)
    policies = _rows_by_policy(sweep, jobs, names)
    if policies:
        page = replace(
            page,
            policies=tuple(policy_figures(policies, DRAWN)),
            preferences=tuple(preference_figures(policies)),
            policies_caption=f"Effectiveness on {sweep.about.effectiveness_set}.",
        )
    page = replace(
        page,
        answers=choice.answers(),
        answer_note=choice.answer_note(),
        deciding=choice.deciding_table(),
    )
    report = Report(tuple(entry.row for entry in sweep.entries), sweep.about)
    if not shown:
        why = "The sweep has no position of the dial that ranks, beside alpha=1 of the same ranker."
        settings = jobs.settings(sweep.entries[-1].job)
        return write_with_texts(
            folder, replace(page, changes=why), settings.saved, report, [], None
        )
    first = shown[0]
    settings, loaded = jobs.settings(first.job), jobs.loaded(first)
    reranker = loaded.reranker.with_policy(settings.policy, first.row.alpha or 0.0)
    bias_set, run_name = _bias_queries(loaded)
    rankings = []
    for entry in shown:
        # Of the same ranker on the same queries.
        if jobs.loaded(entry) is loaded:
            rankings.append(_ranking_pair(jobs, choice.base(entry), entry, bias_set, run_name))
    return write_with_texts(folder, page, settings.saved, report, rankings, reranker)


def _rows_by_policy(sweep: Sweep, jobs: Jobs, names: list[str]) -> dict[str, list[SystemResult]]:
    """Every policy at every alpha that has scale-free measures.

    Args:
        sweep: all systems.
        jobs: its jobs.
        names: of the settings, in the order of the page, so that a policy has one colour in all
            charts.
    """

    def place_on_page(entry: SweepEntry) -> int:
        return names.index(entry.setting) if entry.setting in names else -1

    rows_by_policy: dict[str, list[SystemResult]] = {}
    for entry in sorted(sweep.entries, key=place_on_page):
        if entry.row.alpha is not None and entry.row.further:
            policy = Setting.of(entry.setting).title or jobs.policy(entry)
            rows_by_policy.setdefault(policy, []).append(entry.row)
    return rows_by_policy


def _bias_queries(loaded: LoadedJob) -> tuple[Collection, str]:
    """The queries of the bias set, and what their run files are called."""
    data = load_evaluation_data(
        loaded.dataset,
        loaded.settings.attribute,
        loaded.metrics.fairness.lexicon,
        swap=False,
        needs_candidates=False,
    )
    collection = data.bias if data.separate else data.test
    return data.bias, slugify(collection.name)


def _ranking_pair(
    jobs: Jobs, before: SweepEntry, after: SweepEntry, bias_set: Collection, run_name: str
) -> RankingPair:
    run_before = select_queries(jobs.run(before, run_name), bias_set)
    run_after = select_queries(jobs.run(after, run_name), bias_set)
    label = f"{Setting.of(after.setting).title} {after.row.label}".strip()
    return RankingPair(AS_IT_IS, label, (run_before, run_after), bias_set)
