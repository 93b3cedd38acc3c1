"""Which alpha of each policy a page recommends: the promise kept best at the same effectiveness."""

from __future__ import annotations

import logging
from collections.abc import Collection as Sized
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from backpack_rank.data.collection import Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.trec import read_run, run_tag
from backpack_rank.evaluation.measure_names import measure_of
from backpack_rank.evaluation.results import SystemResult
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.files import read_yaml
from backpack_rank.pipelines.alpha import AUTO
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.run_folder import CONFIG
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.answer import (
    KEEP,
    SWAP,
    Answer,
    answer,
    best_setting,
    bias_measure,
    deciding_measure,
)
from backpack_rank.reporting.main_table import main_table
from backpack_rank.reporting.measure_files import read_json
from backpack_rank.reporting.setting import Setting
from backpack_rank.reporting.sweep import MEASURES_FILE, Sweep, SweepEntry
from backpack_rank.reporting.table import Table
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policy_names import DEFAULTS, is_control

log = logging.getLogger(__name__)


class Jobs:
    """The jobs of a sweep: their settings, files, ranker and data.

    A ranker that several jobs share is loaded once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = cache(self._settings)
        self._loaded: dict[str, LoadedJob] = {}

    def loaded(self, entry: SweepEntry) -> LoadedJob:
        """Ranker and data of a job, the same for jobs that differ in policy and alpha alone."""
        rest = Setting.of(entry.setting).rest
        if rest not in self._loaded:
            self._loaded[rest] = LoadedJob(self.settings(entry.job))
        return self._loaded[rest]

    def run(self, entry: SweepEntry, name: str) -> Run:
        """The run file of a job's system for a query set."""
        tag = run_tag(entry.row.label)
        return read_run(self._runs(entry) / f"{tag}__{name}.run")

    def ranks(self, entry: SweepEntry) -> bool:
        """Whether a job's scores order documents; without run files they are taken to."""
        tag = run_tag(entry.row.label)
        files = sorted(self._runs(entry).glob(f"{tag}__*.run"))
        if not files:
            return True
        for file in files:
            for scores in read_run(file).values():
                if _differ(scores.values()):
                    return True
        return False

    def policy(self, entry: SweepEntry) -> str:
        """The policy that a job's measures name."""
        return read_json(self._folder / entry.job / MEASURES_FILE).about.policy

    def _runs(self, entry: SweepEntry) -> Path:
        return self._folder / entry.job / "runs"

    def _settings(self, job: str) -> EvaluationSettings:
        return EvaluationSettings.of(read_yaml(self._folder / job / CONFIG))


class LoadedJob:
    """A job's ranker and data, each loaded when it is first used.

    Attributes:
        settings: of the job.
    """

    def __init__(self, settings: EvaluationSettings) -> None:
        self.settings = settings

    @cached_property
    def dataset(self) -> Dataset:
        return self.settings.dataset(self._checkpoint)

    @cached_property
    def metrics(self) -> MetricSuite:
        return self.settings.metrics(self.dataset)

    @cached_property
    def reranker(self) -> PointwiseReranker:
        """The ranker, with the sensitivities of its senses."""
        return self.settings.reranker(self._checkpoint)

    @cached_property
    def _checkpoint(self) -> Path | str:
        return self.settings.find_ranker()


@dataclass(frozen=True)
class Choice:
    """The setting that a person would choose, of each policy and of all.

    Of those that keep the effectiveness it is the one with the smallest swap change, and of equal
    ones the one with the smallest alpha; where swaps were not measured, the one with the smallest
    bias. It is no control.

    Attributes:
        sweep: all systems.
        ranks: those with an alpha other than 1 whose scores are not all equal.
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
        ranks = []
        for entry in sweep.entries:
            # Neither a first stage nor the unchanged ranker, which others are compared with.
            if entry.row.alpha in (None, 1) or sweep.base(entry.setting) is None:
                continue
            if jobs.ranks(entry):
                ranks.append(entry)

        # With alpha=auto each job has chosen on dev queries itself.
        chosen_by_jobs = bool(ranks)
        for entry in ranks:
            if jobs.settings(entry.job).alpha != AUTO:
                chosen_by_jobs = False
                break
        dev: dict[tuple[str, float | None], SystemResult] = {}
        if not chosen_by_jobs:
            policies = [entry for entry in ranks if not _is_control(entry)]
            dev = _measured_on_dev(jobs, sweep, policies)

        choice = cls(sweep, tuple(ranks), best=(), dev=dev, on_dev=chosen_by_jobs or bool(dev))
        best = []
        for setting in sweep.settings:
            if Setting.of(setting).is_control:
                continue
            of_setting = [entry for entry in ranks if entry.setting == setting]
            least = choice.least(of_setting)
            if least is not None:
                best.append(least)
        return replace(choice, best=tuple(best))

    def least(self, entries: Sequence[SweepEntry]) -> SweepEntry | None:
        """The entry that keeps the promise best of those that keep the effectiveness, or None.

        Args:
            entries: of one ranker.
        """
        if not entries:
            return None
        base = self._deciding(self.base(entries[0]))
        rows = [self._deciding(entry) for entry in entries]
        least = best_setting(base, rows)
        for entry, row in zip(entries, rows, strict=True):
            if row is least:
                return entry
        return None

    def base(self, entry: SweepEntry) -> SweepEntry:
        """The unchanged ranker that an entry is compared with."""
        base = self.sweep.base(entry.setting)
        assert base is not None
        return base

    def shown(self) -> list[SweepEntry]:
        """Entries to show, one for each policy, without controls as far as there are others.

        The default policy comes first, because it is what alpha does without further options; where
        it is not among them, the choice.
        """
        entries = []
        for setting in self.sweep.settings:
            entry = self._of_setting(setting)
            if entry is not None:
                entries.append(entry)
        policies = [entry for entry in entries if not _is_control(entry)]
        shown = policies or entries

        entry_by_policy = {Setting.of(entry.setting).title: entry for entry in shown}
        first = None
        for name in DEFAULTS:
            if name in entry_by_policy:
                first = entry_by_policy[name]
                break
        if first is None:
            first = self.least(self.best)
        # The others keep their order.
        return sorted(shown, key=lambda entry: entry is not first)

    def answers(self) -> tuple[Answer, ...]:
        """What alpha does, in words: the first policy, the others, the controls.

        Empty without an alpha other than 1.
        """
        shown = self.shown()
        if not shown:
            return ()
        entries = list(shown)
        for setting in self.sweep.settings:
            if not Setting.of(setting).is_control:
                continue
            control = self._of_setting(setting)
            # Where there are only controls, they are among those shown.
            if control is not None and control not in shown:
                entries.append(control)
        return tuple(self._answer(entry) for entry in entries)

    def answer_note(self) -> str:
        """How the settings were chosen, and what significant means; empty without one."""
        shown = self.shown()
        if not shown:
            return ""
        if shown[0] in self.best:
            deciding = measure_of(self._measures_that_decided()[0]).title
            where = "on the dev queries" if self.on_dev else "on these queries"
            note = (
                f"Each policy at its alpha with the smallest |{deciding}| (of equal ones the "
                f"smallest alpha) that keeps {KEEP:.0%} of nDCG@10, chosen {where}."
            )
        else:
            note = f"No alpha keeps {KEEP:.0%} of nDCG@10; each policy at its smallest alpha."
        note += " 95% intervals in brackets."
        if any(entry.tests for entry in shown):
            note += (
                " Significant: paired randomisation test, "
                "Holm-corrected over the alphas of a policy."
            )
        return note

    def deciding_table(self) -> Table | None:
        """The figures on dev queries that decided; None where those of the sweep did."""
        if not self.dev:
            return None
        entries = []
        for entry in self.sweep.entries:
            row = self.dev.get((entry.setting, entry.row.alpha))
            if row is not None:
                # Tests are of the sweep's own queries.
                entries.append(replace(entry, row=row, tests=()))
        # Nothing is marked: alpha of the sweep's last job is no choice.
        about = replace(self.sweep.about, alpha=None)
        on_dev = replace(self.sweep, entries=tuple(entries), about=about)
        return main_table(on_dev, self._measures_that_decided(), title="Means over dev queries")

    def _measures_that_decided(self) -> list[str]:
        """The measure that the choice looks at, that of effectiveness, and bias beside them."""
        rows = []
        for entry in self.ranks:
            if not _is_control(entry):
                rows += [self._deciding(self.base(entry)), self._deciding(entry)]
        names = dict.fromkeys((deciding_measure(rows), "nDCG@10", bias_measure(rows)))
        return list(names)

    def _deciding(self, entry: SweepEntry) -> SystemResult:
        """Measures of a system on the queries that decide."""
        return self.dev.get((entry.setting, entry.row.alpha), entry.row)

    def _of_setting(self, setting: str) -> SweepEntry | None:
        """The choice of a setting, or else its smallest alpha that ranks."""
        for entry in self.best:
            if entry.setting == setting:
                return entry
        # Entries of a setting stand in the order of alpha, the largest first.
        ranks = [entry for entry in self.ranks if entry.setting == setting]
        return ranks[-1] if ranks else None

    def _answer(self, entry: SweepEntry) -> Answer:
        """What the alpha of an entry does, in words."""
        policy = Setting.of(entry.setting).title or self.sweep.about.policy
        if is_control(policy):
            policy = f"{policy} (control)"
        return answer(
            policy,
            self.base(entry).row,
            entry.row,
            lambda measure: is_significant(entry, measure),
        )


def is_significant(entry: SweepEntry | None, measure: str) -> bool | None:
    """Whether a system's change in a measure is significant; None where nobody tested it."""
    if entry is None:
        return None
    test = entry.test(measure)
    if test is None:
        return None
    return test.p_holm < SIGNIFICANCE


def _is_control(entry: SweepEntry) -> bool:
    return Setting.of(entry.setting).is_control


def _differ(scores: Sized[float]) -> bool:
    """Whether scores differ by more than run files do for equal ones.

    A run file lowers equal scores in the smallest steps, to keep their order.
    """
    low = min(scores, default=0.0)
    high = max(scores, default=0.0)
    # One step for each score, at most a millionth of the score: those of float32 are smaller.
    most_by_steps = 1e-6 * len(scores) * max(abs(low), abs(high))
    return high - low > most_by_steps


def _measured_on_dev(
    jobs: Jobs, sweep: Sweep, entries: Sequence[SweepEntry]
) -> dict[tuple[str, float | None], SystemResult]:
    """Measures on dev of settings and of their unchanged ranker, by setting and alpha.

    Empty where jobs differ in more than policy and alpha, where there is no dev split, and where it
    has more queries than the test split: a page must not take longer than its sweep.
    """
    rests = {Setting.of(entry.setting).rest for entry in entries}
    if len(rests) != 1:
        return {}
    loaded = jobs.loaded(entries[0])
    dataset = loaded.dataset
    lexicon = loaded.metrics.fairness.lexicon
    if not dataset.has("dev"):
        return {}
    if len(dataset.split("dev").queries) > len(dataset.split("test").queries):
        return {}
    # Swaps cost as much again: dev has them where the sweep has.
    swap = any(entry.row.figure(SWAP) for entry in entries)
    try:
        data = load_evaluation_data(dataset, loaded.settings.attribute, lexicon, "dev", swap=swap)
    except ValueError as error:  # no neutral query, for example
        log.info("the dev split cannot say which setting to show: %s", error)
        return {}
    bases = {}
    for entry in entries:
        base = sweep.base(entry.setting)
        if base is not None:
            bases[base.setting] = base
    metrics = loaded.metrics.for_labels_of(data)
    measured: dict[tuple[str, float | None], SystemResult] = {}
    for entry in [*bases.values(), *entries]:
        policy = jobs.settings(entry.job).policy
        reranker = loaded.reranker.with_policy(policy, entry.row.alpha or 0.0)
        (row,) = metrics.evaluate([reranker], data).report().rows
        measured[entry.setting, entry.row.alpha] = row
    return measured
