"""Evaluation, step by step: candidates, scores under alpha, runs, measures, tests, tables, the report page."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.aggregation.aggregate import Borda
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.rank_llm import read_requests, reordered, write_requests
from backpack_rank.data.trec import run_tag, write_run
from backpack_rank.evaluation.results import Report
from backpack_rank.files import write_text
from backpack_rank.listwise.rewritten import RewrittenLists
from backpack_rank.pipelines.alpha import choose_alpha
from backpack_rank.pipelines.certificate import certify, check_certificate
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.explain import explain
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.listwise import RankerFactory
from backpack_rank.pipelines.metrics import MetricSuite, SystemRuns, check_known, rank_all
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.report import (
    rendition_notes,
    swap_notes,
    write_aggregation,
    write_class_counts,
    write_evaluation_page,
    write_gaps_by,
)
from backpack_rank.pipelines.run_folder import CONFIG
from backpack_rank.pipelines.settings import AUTO, EvaluationSettings, slugify
from backpack_rank.progress import printable
from backpack_rank.reporting.comparison import distinct_labels, print_comparison, write_comparison
from backpack_rank.reporting.measure_files import write_per_query, write_report
from backpack_rank.reporting.report_tables import print_report
from backpack_rank.reporting.run_metadata import write_submission
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import AggregatedRuns, FirstStageOrder, RecalibratedRun, Reranker, SavedRun
from backpack_rank.senses.policies import check_alpha
from backpack_rank.senses.renditions import MeanOfRenditions

log = logging.getLogger(__name__)


def evaluate(config: DictConfig, folder: Path, quiet: bool = False) -> Report | None:
    """Do what ``conf/evaluate.yaml`` and the command line ask for, and write everything to ``folder``.

    Args:
        config: as composed from ``conf/evaluate.yaml``.
        folder: gets the measures, per-query values, tests, runs, ``report.html`` and the resolved configuration.
        quiet: print no tables and write no page (jobs of a multirun, whose tables and page come at the end).

    Returns:
        The measures; None for a task that measures nothing (an explanation, an experiment).

    Raises:
        ValueError: options that do not go together.
    """
    quiet_libraries()
    settings = EvaluationSettings.of(config)
    _check_options(settings)
    return build(config.task, "task").run(settings, folder, quiet)


def has_results(config: DictConfig, folder: Path) -> bool:
    """Whether a finished evaluation in a folder is what this configuration asks for, of the ranker as it is now."""
    file = folder / CONFIG
    if not file.is_file():
        return False
    settings = EvaluationSettings.of(config)
    if settings.runs is not None or settings.listwise is not None:
        return file.read_text(encoding="utf-8") == settings.saved_text()
    checkpoint = settings.find_ranker()
    newer = isinstance(checkpoint, Path) and (checkpoint / "config.json").stat().st_mtime > file.stat().st_mtime
    return not newer and file.read_text(encoding="utf-8") == settings.saved_text(checkpoint)


@dataclass(frozen=True)
class _Evaluated:
    """What was ranked, and with what.

    Attributes:
        data: queries and candidates.
        metrics: measures to take.
        systems: rankings of every system.
        notes: sentences about them.
        checkpoint: folder of the ranker or address of its server, or None.
        reranker: the ranker under alpha, or None.
    """

    data: EvaluationData
    metrics: MetricSuite
    systems: Sequence[SystemRuns]
    notes: Sequence[str]
    checkpoint: Path | str | None = None
    reranker: PointwiseReranker | None = None


class Evaluation:
    """``task`` of ``conf/evaluate.yaml``: measure a ranker under alpha, a listwise ranker, or run files."""

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report | None:
        """Rank, measure, and write everything to the folder."""
        if settings.explain is not None:
            explain(settings, folder)
            return None
        if settings.runs is not None:
            found = _rank_by_runs(settings, settings.runs, folder)
        elif settings.listwise is not None:
            found = _rank_by_listwise(settings, folder)
        else:
            found = _rank_by_ranker(settings, folder, quiet)
        return _write(settings, folder, found, quiet)


def _check_options(settings: EvaluationSettings) -> None:
    """Refuse what would be ignored."""
    if settings.alpha != AUTO and settings.budget is not None:
        raise ValueError(f"budget={settings.budget} is for alpha=auto: add it, or leave out the budget")
    of_renditions = settings.listwise is not None and settings.alpha == 0
    if settings.aggregator is not None and not of_renditions and (settings.runs is None or len(settings.runs) < 2):
        given = None if settings.runs is None else list(settings.runs)
        raise ValueError(f"aggregate makes one ranking of several runs: give run=[a.trec,b.trec], got run={given}")
    if settings.certificate:
        beside = {
            "run": settings.runs,
            "recalibrate.run": settings.recalibration,
            **dict.fromkeys([] if settings.explain is None else settings.explain.options, True),
        }
        for option, value in beside.items():
            if value is not None:
                raise ValueError(f"{option}=... and certificate=true do not go together: leave one of them out")
        if settings.alpha == AUTO:
            raise ValueError("certificate=true is about alpha=0, and alpha=auto chooses another: give alpha=0")
    if settings.runs is not None:
        if settings.explain is not None:
            raise ValueError("an explanation is of a ranker's score, not of a run: leave out run=... or explain.*")
        if settings.alpha != 1 or settings.variants is not None:
            option = "variants=..." if settings.alpha == 1 else f"alpha={settings.alpha}"
            raise ValueError(f"{option} needs a ranker and does nothing to run files: leave out it or run=...")
    if settings.listwise is not None:
        check_listwise(settings)


def check_listwise(settings: EvaluationSettings) -> None:
    """Refuse options that act on nothing beside ``listwise=...``."""
    if settings.alpha != 1 and not isinstance(settings.policy, MeanOfRenditions):
        raise ValueError(
            f"alpha={settings.alpha} turns the senses of a Backpack; listwise=... has none: leave it out, or take "
            "policy=renditions, which averages orders"
        )
    if settings.alpha not in (0, 1):
        raise ValueError(
            f"alpha={settings.alpha}: orders are averaged in full or not at all, so listwise=... takes 0 or 1"
        )
    if settings.certificate:
        raise ValueError("certificate=true is about scores, and listwise=... gives orders: leave one of them out")
    beside = {
        "run": settings.runs,
        "variants": settings.variants,
        "aggregate": None if settings.alpha == 0 else settings.aggregator,
        "recalibrate.run": settings.recalibration,
        **dict.fromkeys([] if settings.explain is None else settings.explain.options, True),
    }
    for option, value in beside.items():
        if value is not None:
            raise ValueError(f"{option}=... and listwise=... do not go together: leave one of them out")


def _rank_by_runs(settings: EvaluationSettings, paths: Sequence[str], folder: Path) -> _Evaluated:
    """Anybody's runs side by side."""
    if settings.chosen_dataset is None:
        raise ValueError("run=FILE needs the collection it ranks: add data=..., one of conf/data")
    dataset = settings.chosen_dataset
    metrics = settings.metrics(dataset)
    data = load_evaluation_data(
        dataset,
        settings.attribute,
        metrics.fairness.lexicon,
        swap=False,
        # Candidates are only the background of NFaiRR.
        needs_candidates=metrics.fairness.needs_background,
    )
    saved = read_runs(paths, data, settings.ties)
    systems, notes = [rank_all(run, data) for run in saved], list[str]()
    if settings.aggregator is not None:
        fused = AggregatedRuns([one.with_ties() for one in saved], settings.aggregator, settings.aggregate_depth)
        if fused.name in [run.name for run in saved]:
            raise ValueError(
                f"a run is called {fused.name!r}, which is the name of the aggregate: give that file another name"
            )
        systems.append(rank_all(fused, data))
        notes = write_aggregation(folder, fused)
    return _Evaluated(data, metrics, systems, notes)


def _rank_by_listwise(settings: EvaluationSettings, folder: Path) -> _Evaluated:
    """The first stage, and a listwise ranker that reorders its first candidates."""
    listwise = settings.listwise
    assert listwise is not None
    checkpoint = listwise.trained()
    dataset = settings.dataset(checkpoint) if checkpoint is not None else settings.needed_dataset()
    metrics = settings.metrics(dataset)
    # Swapped wordings are compared by their scores, and rankings of lists have none that compare.
    data = load_evaluation_data(dataset, settings.attribute, metrics.fairness.lexicon, swap=False)
    ranker = RankerFactory().build(listwise)
    if settings.alpha == 0:
        assert isinstance(settings.policy, MeanOfRenditions)  # check_listwise
        policy, aggregator = settings.policy, settings.aggregator or Borda()
        ranker = RewrittenLists(ranker, policy.rewritings, policy.name, aggregator)
    reranker = listwise.reranker(ranker, folder)
    systems = [rank_all(one, data) for one in (FirstStageOrder(data.stage), reranker)]
    if dataset.requests is not None:
        requests = read_requests(Path(dataset.requests).expanduser())
        write_requests(folder / "results.jsonl", reordered(requests, systems[-1].test))
    notes = [*([f"Ranker: {checkpoint}"] if checkpoint is not None else []), *reranker.notes()]
    return _Evaluated(data, metrics, systems, notes, checkpoint)


def _rank_by_ranker(settings: EvaluationSettings, folder: Path, quiet: bool) -> _Evaluated:
    """The first stage, the ranker as it is, and the ranker under alpha."""
    checkpoint = settings.find_ranker()
    dataset = settings.dataset(checkpoint)
    metrics = settings.metrics(dataset)
    plain = settings.reranker(checkpoint)
    load = evaluation_loader(settings, dataset, metrics, plain.scorer.cut)
    notes: list[str] = []
    if settings.alpha == AUTO:
        alpha, notes = choose_alpha(settings, plain, load("dev"), metrics)
    else:
        alpha = check_alpha(settings.alpha)
    controlled = plain.with_policy(settings.policy, alpha)
    # A sweep has positions of the dial at which nothing is promised.
    certificate = settings.certificate and (controlled.hook.alpha == 0 or not quiet)
    if certificate:
        check_certificate(controlled, settings.certificate_pairs)
    elif settings.certificate:
        log.info("certificate=true: nothing is promised at alpha=%g; it is written at alpha=0", controlled.hook.alpha)
    data = load("test")
    # A sweep has the ranker as it is as a job of its own.
    rankers = (
        [controlled] if quiet or controlled.hook.alpha == 1 else [plain.with_policy(settings.policy, 1.0), controlled]
    )
    rerankers: list[Reranker] = [FirstStageOrder(data.stage)]
    if settings.recalibration is not None:
        if controlled.hook.alpha == 1:
            raise ValueError("recalibrate.run needs an alpha other than 1: at 1 no score changes")
        (saved,) = read_runs([settings.recalibration.run], data, settings.ties)
        rerankers += [saved, RecalibratedRun(saved, plain, controlled, settings.recalibration.weight)]
    systems = [rank_all(reranker, data) for reranker in [*rerankers, *rankers]]
    write_senses(folder / "sensitivity.json", controlled)
    policy = controlled.hook.policy
    assert policy is not None
    write_class_counts(folder, controlled, policy, data)
    notes = [
        *notes_on(controlled, checkpoint),
        *rendition_notes(policy, data, plain.scorer.cut),
        *swap_notes(data),
        *notes,
    ]
    if certificate:
        wordings = None if data.variants is None else (data.variants.variants, data.variants.collection)
        files = settings.certificate_pairs
        found = certify(controlled, data.test, data.candidates, folder, variants=wordings, files=files)
        notes += found.sentences
    return _Evaluated(data, metrics, systems, notes, checkpoint, controlled)


def evaluation_loader(
    settings: EvaluationSettings,
    dataset: Dataset,
    metrics: MetricSuite,
    cut: Callable[[str], str] | None = None,
) -> Callable[[str], EvaluationData]:
    """A function of a split's name that loads everything to be ranked of it; ``cut`` gives what is read of a text."""

    def load(split: str) -> EvaluationData:
        """``test`` or ``dev``, with what the settings ask for."""
        return load_evaluation_data(
            dataset,
            settings.attribute,
            metrics.fairness.lexicon,
            split,
            swap=settings.swap,
            variants=settings.variants,
            halve_variants=settings.alpha == AUTO,
            cut=cut,
        )

    return load


def read_runs(paths: Sequence[str], data: EvaluationData, ties: str) -> list[SavedRun]:
    """One system for each file, labelled by the shortest end of its path that tells it from the others.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no file, a malformed one, the same file twice, or one without a query of the collection.
    """
    files = [Path(path).expanduser() for path in paths]
    if not files:
        raise ValueError("run=[] names no file: give run=a.trec, or run=[a.trec,b.trec] to compare several")
    for index, file in enumerate(files):
        if file.resolve() in [other.resolve() for other in files[:index]]:
            raise ValueError(f"run={file} is given twice; a system compared with itself shows nothing")
    labels = distinct_labels([file.resolve() for file in files])
    runs = [SavedRun.read(file, label, ties) for file, label in zip(files, labels, strict=True)]
    for file, run in zip(files, runs, strict=True):
        check_known(run.run, data, str(file))
    return runs


def notes_on(reranker: PointwiseReranker, checkpoint: Path | str) -> list[str]:
    """Sentences about a ranker, its senses and what alpha does to it."""
    lines = [f"Ranker: {checkpoint}"]
    pairs = reranker.attribute.pairs().name
    if (found := reranker.sensitivity) is not None:
        lowest = sorted(range(len(found.values)), key=lambda sense: float(found.values[sense]))[:2]
        shown = ", ".join(f"s_{sense}={found.values[sense]:.3f}" for sense in lowest)
        lines.append(
            f"Sensitivity from {found.pairs} token pairs of {pairs}: lowest {shown}, mean {found.values.mean():.3f}"
        )
    if (shift := reranker.hook.views[0].token_shift) is not None:
        classes = shift.classes
        left = len(classes.several_tokens) + len(classes.unpaired)
        lines.append(
            f"{sum(map(len, classes.members))} tokens in {len(classes.members)} classes are moved; {left} words of the "
            "classes are not single tokens and stay as they are"
            + f", {len(classes.behind_space_alone)} move behind a space alone"
            * bool(classes.behind_space_alone)
        )
    return lines


def write_senses(path: Path, reranker: PointwiseReranker) -> None:
    """Sensitivities, the policy and its weights as JSON; nothing for a ranker without senses."""
    found, view, policy = reranker.sensitivity, reranker.hook.views[0], reranker.hook.policy
    if found is None:
        return
    classes = None if view.token_shift is None else view.token_shift.classes
    details = {
        "pairs": reranker.attribute.pairs().name,
        "pairs_used": found.pairs,
        "words_in_parts": found.in_parts,
        "pairs_unknown_to_the_tokenizer": found.unknown,
        "sensitivity": found.values.tolist(),
        "policy": "" if policy is None else policy.name,
        "alpha": reranker.hook.alpha,
        "weights": [1.0] * len(found.values) if view.sense_weights is None else view.sense_weights.tolist(),
        "moved_tokens": [] if classes is None else list(classes.names),
        "words_without_a_token": [] if classes is None else list(classes.several_tokens),
        "words_without_a_partner": [] if classes is None else list(classes.unpaired),
        "words_moved_behind_a_space_alone": [] if classes is None else list(classes.behind_space_alone),
    }
    write_text(path, json.dumps(details, indent=2) + "\n")


def _write(settings: EvaluationSettings, folder: Path, found: _Evaluated, quiet: bool) -> Report:
    """Runs, measures, tests, tables and the page."""
    table = found.metrics.measure(found.systems, found.data)
    last = found.systems[-1]
    dial = found.reranker is not None and last.alpha is not None
    info = replace(
        table.info,
        alpha=last.alpha,
        policy=found.reranker.hook.policy.name if dial else "",  # type: ignore[union-attr]
        notes=(*found.notes, *table.info.notes),
    )
    table = replace(table, info=info)
    report = table.report()
    settings.save(folder, found.checkpoint)
    write_runs(folder, found.systems, found.data)
    if settings.runs is None:
        _write_submission(folder / "tira", settings, found)
    values = [(system.label, of.values) for system in table.systems for of in system.values.values()]
    write_per_query(folder / "per_query.csv", values)
    write_report(folder, report)
    write_gaps_by(folder, table, found.data)
    if quiet:
        log.info("%s measured, see %s", last.label, folder)
        return report
    tests = table.compare() if len(table.systems) > 1 else []
    write_comparison(folder, tests)
    print_report(report)
    if settings.runs is not None:
        print_comparison(tests)
    page = write_evaluation_page(folder, settings, report, found.systems, found.data, tests, found.reranker)
    print(printable(f"Report: {page}\nRuns, per-query values, measures and tests: {folder}"))
    return report


def write_runs(folder: Path, systems: Sequence[SystemRuns], data: EvaluationData) -> None:
    """``runs/SYSTEM__COLLECTION.run`` of every system and query set."""
    for system in systems:
        parts = {data.test.name: system.test}
        if data.separate:
            parts[data.bias.name] = system.bias
        if data.variants is not None and system.variants is not None:
            parts[data.variants.collection.name] = system.variants
        for name, run in parts.items():
            tag = run_tag(system.label)
            write_run(folder / "runs" / f"{tag}__{slugify(name)}.run", run, tag)


def _write_submission(folder: Path, settings: EvaluationSettings, found: _Evaluated) -> None:
    """The last system's ranking of the test set, as TIRA takes it."""
    last, stage = found.systems[-1], found.data.stage
    params: dict[str, object] = {} if found.checkpoint is None else {"ranker": str(found.checkpoint)}
    if found.reranker is not None:
        params["number format"] = found.reranker.scorer.number_format
    what = last.label
    if found.reranker is not None and last.alpha is not None:
        policy = found.reranker.hook.policy
        assert policy is not None
        what = f"{found.reranker.scorer.ranker.label}, policy {policy.name} at alpha={last.alpha:g}"
        params |= {"policy": policy.name, "alpha": last.alpha}
    write_submission(
        folder,
        last.test,
        run_tag(last.label),
        collection=found.data.test.name,
        description=f"{what}, over the candidates of {stage}.",
        stages=[{"name": stage, "method": "first stage"}, {"name": last.label, "method": "reranker", "params": params}],
    )
