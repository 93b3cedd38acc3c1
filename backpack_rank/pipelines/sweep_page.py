"""The report page of a multirun: its jobs' measures, and the texts of two of its positions of the dial."""

from __future__ import annotations

import logging
from collections.abc import Collection as Sized
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from backpack_rank.data.collection import Collection, Run, select_queries
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.trec import read_run, run_tag
from backpack_rank.evaluation.results import Estimate, Report, SystemResult
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.files import read_yaml
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.report import RankingPair, write_with_texts
from backpack_rank.pipelines.run_folder import CONFIG
from backpack_rank.pipelines.settings import AUTO, EvaluationSettings, slugify
from backpack_rank.reporting.answer import KEEP, bias_measure, least_bias, sentence
from backpack_rank.reporting.measure_files import read_json
from backpack_rank.reporting.page.build import page_of_rows
from backpack_rank.reporting.page.data import Answer, Missing, Policies, PolicyResult, Shares
from backpack_rank.reporting.page.figures import AS_IT_IS
from backpack_rank.reporting.setting import Setting, is_control
from backpack_rank.reporting.sweep import MEASURES_FILE, Sweep, SweepEntry
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policy_names import DEFAULTS

log = logging.getLogger(__name__)
DRAWN = ("|gap|/std", "swap change/std (swapped)", "ARaB(tf)@10", "nDCG@10", "NFaiRR@10")


class Jobs:
    """What the jobs of a sweep were asked for; a ranker that several of them share is loaded once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = cache(self._settings)
        self._loaded: dict[str, LoadedJob] = {}

    def loaded(self, entry: SweepEntry) -> LoadedJob:
        """Ranker and data of a job, the same for jobs that differ in policy and alpha alone."""
        return self._loaded.setdefault(Setting.of(entry.setting).rest, LoadedJob(self.settings(entry.job)))

    def run(self, entry: SweepEntry, name: str) -> Run:
        """The run file of a job's system for a query set."""
        return read_run(self._folder / entry.job / "runs" / f"{run_tag(entry.row.label)}__{name}.run")

    def ranks(self, entry: SweepEntry) -> bool:
        """Whether a job's scores tell documents apart; without run files it is taken to."""
        files = sorted((self._folder / entry.job / "runs").glob(f"{run_tag(entry.row.label)}__*.run"))
        return not files or any(_differ(scores.values()) for file in files for scores in read_run(file).values())

    def policy(self, entry: SweepEntry) -> str:
        """The policy that a job's measures name."""
        return read_json(self._folder / entry.job / MEASURES_FILE).about.policy

    def _settings(self, job: str) -> EvaluationSettings:
        return EvaluationSettings.of(read_yaml(self._folder / job / CONFIG))


@dataclass(frozen=True)
class LoadedJob:
    """A job's ranker and data, each loaded when it is asked for.

    Attributes:
        settings: of the job.
    """

    settings: EvaluationSettings

    @cached_property
    def dataset(self) -> Dataset:
        return self.settings.dataset(self._checkpoint)

    @cached_property
    def metrics(self) -> MetricSuite:
        return self.settings.metrics(self.dataset)

    @cached_property
    def reranker(self) -> PointwiseReranker:
        """The ranker, with what is asked of its senses."""
        return self.settings.reranker(self._checkpoint)

    @cached_property
    def _checkpoint(self) -> Path | str:
        return self.settings.find_ranker()


def write_sweep_page(folder: Path, sweep: Sweep) -> Path:
    """``report.html`` of a multirun, with its figures as PNG and SVG in ``figures/``."""
    jobs = Jobs(folder)
    choice = Choice.of(sweep, jobs)
    shown = choice.shown()
    names = dict.fromkeys([*(entry.setting for entry in shown), *(sweep.settings or ("",))])
    page = page_of_rows(
        "What the dial does",
        {name: sweep.rows(name) for name in names},
        sweep.about,
        significant=lambda setting, row, measure: _significant(sweep.entry(setting, row), measure) is True,
    )
    report = Report(tuple(entry.row for entry in sweep.entries), sweep.about)
    in_order = replace(sweep, entries=tuple(sorted(sweep.entries, key=lambda entry: _place(entry, list(names)))))
    page = replace(page, policies=policies_of(in_order, jobs), answer=choice.answer())
    if not shown:
        why = "The sweep has no position of the dial that ranks, beside alpha=1 of the same ranker."
        last = jobs.settings(sweep.entries[-1].job)
        return write_with_texts(folder, replace(page, changes=Missing(why)), last.saved, report, [], None)
    settings, loaded = jobs.settings(shown[0].job), jobs.loaded(shown[0])
    controlled = loaded.reranker.with_policy(settings.policy, shown[0].row.alpha or 0.0)
    same = [entry for entry in shown if jobs.loaded(entry) is loaded]
    bias, name = _bias_queries(loaded)
    pairs = [_ranking_pair(jobs, choice.base(entry), entry, bias, name) for entry in same]
    return write_with_texts(folder, page, settings.saved, report, pairs, controlled)


@dataclass(frozen=True)
class Choice:
    """The setting that a person would choose: the smallest bias of those that keep the effectiveness, no control.

    Attributes:
        sweep: all systems.
        ranks: those whose scores are not all equal.
        best: of each policy that is no control, where one keeps the effectiveness.
        dev: measures on dev queries, by setting and alpha; empty where those of the sweep decide.
        on_dev: whether dev queries decide, those of ``dev`` or of ``alpha=auto``.
    """

    sweep: Sweep
    ranks: tuple[SweepEntry, ...]
    best: tuple[SweepEntry, ...]
    dev: Mapping[tuple[str, float | None], SystemResult]
    on_dev: bool

    @classmethod
    def of(cls, sweep: Sweep, jobs: Jobs) -> Choice:
        """From the sweep and the runs of its jobs."""
        ranks = [
            entry
            for entry in sweep.entries
            if entry.row.alpha not in (None, 1) and sweep.base(entry.setting) and jobs.ranks(entry)
        ]
        chosen = bool(ranks) and all(jobs.settings(entry.job).alpha == AUTO for entry in ranks)
        asked = [] if chosen else [entry for entry in ranks if not Setting.of(entry.setting).is_control]
        dev = _measured_on_dev(jobs, sweep, asked)
        found = cls(sweep, tuple(ranks), (), dev, chosen or bool(dev))
        own = [
            [entry for entry in ranks if entry.setting == setting]
            for setting in sweep.settings
            if not Setting.of(setting).is_control
        ]
        best = [entry for entries in own if (entry := found.least(entries)) is not None]
        return replace(found, best=tuple(best))

    def least(self, entries: Sequence[SweepEntry]) -> SweepEntry | None:
        """The entry of one ranker with the smallest bias of those that keep the effectiveness; None without one."""
        if not entries:
            return None
        rows = [self.dev.get((entry.setting, entry.row.alpha), entry.row) for entry in entries]
        base = self.base(entries[0])
        row = least_bias(self.dev.get((base.setting, base.row.alpha), base.row), rows)
        return next((entry for entry, own in zip(entries, rows, strict=True) if own is row), None)

    def base(self, entry: SweepEntry) -> SweepEntry:
        """The ranker as it is, which an entry changes."""
        base = self.sweep.base(entry.setting)
        assert base is not None
        return base

    def shown(self) -> list[SweepEntry]:
        """Entries to show, one for each policy, without controls as far as there are others.

        The default policy comes first, because it is what alpha does without further options; where it is not among
        them, the choice.
        """
        fallback = [self._least(name) for name in self.sweep.settings]
        found = [entry for entry in fallback if entry is not None]
        own = [entry for entry in found if not Setting.of(entry.setting).is_control] or found
        by_policy = {Setting.of(entry.setting).title: entry for entry in own}
        defaults = [by_policy[name] for name in DEFAULTS if name in by_policy]
        first = defaults[0] if defaults else self.least(self.best)
        return sorted(own, key=lambda entry: entry is not first)

    def answer(self) -> Answer | None:
        """What the dial does, in words; None without a position of the dial beside alpha 1."""
        shown = self.shown()
        if not shown:
            return None
        controls = [
            entry
            for name in self.sweep.settings
            if Setting.of(name).is_control and (entry := self._least(name)) is not None and entry not in shown
        ]
        main, *others = (self._sentence(entry) for entry in [*shown, *controls])
        bias = bias_measure([self.base(shown[0]).row, shown[0].row])
        kept = shown[0] in self.best
        how = (
            f"Each policy at its alpha with the smallest |{bias}| that keeps {KEEP:.0%} of nDCG@10, "
            + ("chosen on the dev queries." if self.on_dev else "chosen on these queries.")
            if kept
            else f"No alpha keeps {KEEP:.0%} of nDCG@10; each policy at its smallest alpha."
        )
        tested = any(entry.tests for entry in shown)
        test = " Significant: paired randomisation test, Holm-corrected over the alphas of a policy." if tested else ""
        return Answer(main, tuple(others), how + " 95% intervals in brackets." + test)

    def _least(self, setting: str) -> SweepEntry | None:
        """The choice of a setting, or else its smallest alpha that ranks."""
        own = [entry for entry in self.ranks if entry.setting == setting]
        return next((entry for entry in self.best if entry.setting == setting), own[-1] if own else None)

    def _sentence(self, entry: SweepEntry) -> str:
        setting = Setting.of(entry.setting)
        policy = setting.title or self.sweep.about.policy
        name = f"{policy} (control)" if is_control(policy) else policy
        return sentence(name, self.base(entry).row, entry.row, lambda measure: _significant(entry, measure))


def _place(entry: SweepEntry, names: Sequence[str]) -> int:
    """Where the setting of an entry stands on the page, so that a policy has one colour in all charts."""
    return names.index(entry.setting) if entry.setting in names else -1


def _significant(entry: SweepEntry | None, measure: str) -> bool | None:
    test = entry.test(measure) if entry is not None else None
    return None if test is None else test.p_holm < SIGNIFICANCE


def _differ(scores: Sized[float]) -> bool:
    """Whether scores differ by more than the smallest steps in which a run file keeps the order of equal ones."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return high - low > 1e-6 * len(scores) * max(abs(low), abs(high))


def policies_of(sweep: Sweep, jobs: Jobs) -> Policies | None:
    """Every policy at every alpha, with the scale-free measures; None where they were not taken."""
    results = []
    for entry in sweep.entries:
        if entry.row.alpha is None or not entry.row.further:
            continue
        figures = {name: figure for block in entry.row.blocks.values() for name, figure in block.figures.items()}
        policy = Setting.of(entry.setting).title or jobs.policy(entry)
        wordings = entry.row.further.get("wordings")
        results.append(
            PolicyResult(policy, entry.row.alpha, _shown(figures), _shares(wordings.figures) if wordings else None)
        )
    if not results:
        return None
    drawn = tuple(name for name in DRAWN if any(name in result.figures for result in results))
    return Policies(tuple(results), drawn, f"Effectiveness on {sweep.about.effectiveness_set}.")


def _shown(figures: dict[str, Estimate]) -> dict[str, Estimate]:
    names = (*DRAWN, "gap/std", "swap tau (swapped)", "RaB(tf)@10", "ARaB(tf)@10")
    return {name: figures[name] for name in names if name in figures}


def _shares(figures) -> Shares | None:
    shares = [figure.mean for name, figure in figures.items() if name.startswith("prefers ")]
    return Shares(*shares) if len(shares) == 3 else None


def _measured_on_dev(
    jobs: Jobs, sweep: Sweep, entries: Sequence[SweepEntry]
) -> dict[tuple[str, float | None], SystemResult]:
    """Measures on dev of settings and of the ranker as it is, by setting and alpha.

    Empty where jobs differ in more than policy and alpha, where there is no dev split, and where it has more queries
    than the test split: a page must not take longer than its sweep.
    """
    if len({Setting.of(entry.setting).rest for entry in entries}) != 1:
        return {}
    loaded = jobs.loaded(entries[0])
    dataset, lexicon = loaded.dataset, loaded.metrics.fairness.lexicon
    if not dataset.has("dev") or len(dataset.split("dev").queries) > len(dataset.split("test").queries):
        return {}
    try:
        data = load_evaluation_data(dataset, loaded.settings.attribute, lexicon, "dev", swap=False)
    except ValueError as error:  # no neutral query, for example
        log.info("the dev split cannot say which setting to show: %s", error)
        return {}
    bases = {base.setting: base for entry in entries if (base := sweep.base(entry.setting)) is not None}
    found: dict[tuple[str, float | None], SystemResult] = {}
    for entry in [*bases.values(), *entries]:
        policy = jobs.settings(entry.job).policy
        table = loaded.metrics.evaluate([loaded.reranker.with_policy(policy, entry.row.alpha or 0.0)], data)
        (found[entry.setting, entry.row.alpha],) = table.report().rows
    return found


def _bias_queries(loaded: LoadedJob) -> tuple[Collection, str]:
    """The queries of the bias set, and what their run files are called."""
    lexicon, attribute = loaded.metrics.fairness.lexicon, loaded.settings.attribute
    data = load_evaluation_data(loaded.dataset, attribute, lexicon, swap=False, needs_candidates=False)
    return data.bias, slugify((data.bias if data.separate else data.test).name)


def _ranking_pair(jobs: Jobs, before: SweepEntry, after: SweepEntry, bias: Collection, name: str) -> RankingPair:
    runs = (select_queries(jobs.run(before, name), bias), select_queries(jobs.run(after, name), bias))
    return RankingPair(AS_IT_IS, f"{Setting.of(after.setting).title} {after.row.label}".strip(), runs, bias)
