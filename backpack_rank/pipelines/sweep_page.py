"""The report page of a multirun: its jobs' measures, and the texts of two of its positions of the dial."""

from __future__ import annotations

import logging
from collections.abc import Collection as Sized
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, select_queries
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.trec import read_run
from backpack_rank.evaluation.results import Estimate, Report, SystemResult
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.pipelines.evaluate import evaluation_loader, run_tag
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
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

log = logging.getLogger(__name__)
DRAWN = ("|gap|/std", "swap change/std (swapped)", "ARaB(tf)@10", "nDCG@10", "NFaiRR@10")


@dataclass(frozen=True)
class _Job:
    """A job of the sweep: its folder, what it was asked for, and its system."""

    folder: Path
    settings: EvaluationSettings
    entry: SweepEntry


def write_sweep_page(folder: Path, sweep: Sweep) -> Path:
    """``report.html`` of a multirun, with its figures as PNG and SVG in ``figures/``."""
    choice = Choice.of(sweep, folder)
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
    page = replace(page, policies=policies_of(in_order, folder), answer=choice.answer())
    if not shown:
        why = "The sweep has no position of the dial that ranks, beside alpha=1 of the same ranker."
        last = _job(folder, sweep.entries[-1])
        return write_with_texts(folder, replace(page, changes=Missing(why)), last.settings, report, [], None)
    first = _job(folder, shown[0])
    settings = first.settings
    checkpoint = settings.find_ranker()
    dataset = settings.dataset(checkpoint)

    @cache
    def dev() -> EvaluationData:
        return evaluation_loader(settings, dataset, settings.metrics(dataset))("dev")

    reranker = settings.reranker(checkpoint, fit_on=dev)
    controlled = reranker.with_policy(settings.policy, first.entry.row.alpha or 0.0)
    same = [entry for entry in shown if Setting.of(entry.setting).rest == Setting.of(shown[0].setting).rest]
    bias, name = _bias_queries(settings, dataset)
    turns = [_turn(_job(folder, choice.base(entry)), _job(folder, entry), bias, name) for entry in same]
    return write_with_texts(folder, page, settings, report, turns, controlled)


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
    def of(cls, sweep: Sweep, folder: Path) -> Choice:
        """From the sweep and the runs of its jobs."""
        ranks = [
            entry
            for entry in sweep.entries
            if entry.row.alpha not in (None, 1) and sweep.base(entry.setting) and _ranks(folder, entry)
        ]
        chosen = bool(ranks) and all(_job(folder, entry).settings.alpha == AUTO for entry in ranks)
        asked = [] if chosen else [entry for entry in ranks if not Setting.of(entry.setting).is_control]
        dev = _measured_on_dev(folder, sweep, asked)
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
        """Entries to show, the choice first: one for each policy, without controls as far as there are others."""
        fallback = [self._least(name) for name in self.sweep.settings]
        found = [entry for entry in fallback if entry is not None]
        own = [entry for entry in found if not Setting.of(entry.setting).is_control] or found
        first = self.least(self.best)
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


def _ranks(folder: Path, entry: SweepEntry) -> bool:
    """Whether a job's scores tell documents apart; without run files it is taken to."""
    files = sorted((folder / entry.job / "runs").glob(f"{run_tag(entry.row.label)}__*.run"))
    return not files or any(_differ(scores.values()) for file in files for scores in read_run(file).values())


def _differ(scores: Sized[float]) -> bool:
    """Whether scores differ by more than the smallest steps in which a run file keeps the order of equal ones."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return high - low > 1e-6 * len(scores) * max(abs(low), abs(high))


def policies_of(sweep: Sweep, folder: Path) -> Policies | None:
    """Every policy at every alpha, with the scale-free measures; None where they were not taken."""
    results = []
    for entry in sweep.entries:
        if entry.row.alpha is None or not entry.row.further:
            continue
        figures = {name: figure for block in entry.row.blocks.values() for name, figure in block.figures.items()}
        policy = Setting.of(entry.setting).title or read_json(folder / entry.job / MEASURES_FILE).about.policy
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


def _job(folder: Path, entry: SweepEntry) -> _Job:
    config = OmegaConf.load(folder / entry.job / CONFIG)
    assert isinstance(config, DictConfig)
    return _Job(folder / entry.job, EvaluationSettings.of(config), entry)


def _measured_on_dev(
    folder: Path, sweep: Sweep, entries: Sequence[SweepEntry]
) -> dict[tuple[str, float | None], SystemResult]:
    """Measures on dev of settings and of the ranker as it is, by setting and alpha.

    Empty where jobs differ in more than policy and alpha, where there is no dev split, and where it has more queries
    than the test split: a page must not take longer than its sweep.
    """
    if len({Setting.of(entry.setting).rest for entry in entries}) != 1:
        return {}
    settings = _job(folder, entries[0]).settings
    checkpoint = settings.find_ranker()
    dataset = settings.dataset(checkpoint)
    if not dataset.has("dev") or len(dataset.split("dev").queries) > len(dataset.split("test").queries):
        return {}
    metrics = settings.metrics(dataset)
    try:
        data = load_evaluation_data(dataset, settings.attribute, metrics.fairness.lexicon, "dev", swap=False)
    except ValueError as error:  # no neutral query, for example
        log.info("the dev split cannot say which setting to show: %s", error)
        return {}
    plain = settings.reranker(checkpoint, fit_on=lambda: evaluation_loader(settings, dataset, metrics)("dev"))
    bases = {base.setting: base for entry in entries if (base := sweep.base(entry.setting)) is not None}
    found: dict[tuple[str, float | None], SystemResult] = {}
    for entry in [*bases.values(), *entries]:
        policy = _job(folder, entry).settings.policy
        table = metrics.evaluate([plain.with_policy(policy, entry.row.alpha or 0.0)], data)
        (found[entry.setting, entry.row.alpha],) = table.report().rows
    return found


def _bias_queries(settings: EvaluationSettings, dataset: Dataset) -> tuple[Collection, str]:
    """The queries of the bias set, and what their run files are called."""
    lexicon = settings.metrics(dataset).fairness.lexicon
    data = load_evaluation_data(dataset, settings.attribute, lexicon, swap=False, needs_candidates=False)
    return data.bias, slugify((data.bias if data.separate else data.test).name)


def _turn(one: _Job, other: _Job, bias: Collection, name: str) -> RankingPair:
    runs = [
        select_queries(read_run(job.folder / "runs" / f"{run_tag(job.entry.row.label)}__{name}.run"), bias)
        for job in (one, other)
    ]
    after = f"{Setting.of(other.entry.setting).title} {other.entry.row.label}".strip()
    return RankingPair(AS_IT_IS, after, (runs[0], runs[1]), bias)
