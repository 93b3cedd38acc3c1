"""Evaluation, step by step: candidates, scores under alpha, runs, measures, tests, tables, the report page."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.formats import write_run
from backpack_rank.data.listwise_requests import read_requests, reordered, write_requests
from backpack_rank.evaluation.statistics import compare
from backpack_rank.pipelines.aggregated import aggregated, check_aggregate
from backpack_rank.pipelines.auto import chosen_alpha
from backpack_rank.pipelines.common import (
    CONFIG,
    RANKER,
    ROTATION,
    chosen_data,
    file_part,
    find_ranker,
    needed_data,
    quiet_libraries,
    resolved_config,
    save_config,
)
from backpack_rank.pipelines.details import swap_notes, write_class_counts, write_gaps_by
from backpack_rank.pipelines.explain import explain
from backpack_rank.pipelines.listwise import ListwiseRankers, check_listwise, listwise_checkpoint, listwise_systems
from backpack_rank.pipelines.page import write_evaluation_page
from backpack_rank.pipelines.recalibrated import recalibrated_systems
from backpack_rank.pipelines.runs import run_systems, run_workload
from backpack_rank.pipelines.turned import System, TurnedRanker
from backpack_rank.pipelines.workload import Workload, bias_set_in_words, load_workload
from backpack_rank.pipelines.yardstick import BIAS, EFFECTIVENESS, Results, Yardstick
from backpack_rank.reporting.comparison import print_comparison, write_comparison
from backpack_rank.reporting.rows import About, Comparison, Report
from backpack_rank.reporting.tables import write_per_query, write_report
from backpack_rank.reporting.terminal import print_report
from backpack_rank.senses.policy import check_alpha

log = logging.getLogger(__name__)
AUTO = "auto"


def evaluate(config: DictConfig, folder: Path, quiet: bool = False) -> Report | None:
    """Measure a trained ranker under alpha, or run files, and write everything to ``folder``.

    Args:
        config: as composed from ``conf/evaluate.yaml``.
        folder: gets the measures, per-query values, tests, runs, ``report.html`` and the resolved configuration.
        quiet: print no tables and write no page (jobs of a multirun, whose tables and page come at the end).

    Returns:
        The measures; None for a task that measures nothing (an explanation, a table of scores).
    """
    quiet_libraries()
    _check_options(config)
    if config.get("task") is not None:
        return instantiate(config.task, _convert_="all").run(config, folder, quiet)
    if config.explain.query is not None or config.explain.document is not None:
        explain(config, folder)
        return None
    if config.run is not None:
        return _evaluate_runs(config, folder, quiet)
    if config.get("listwise") is not None:
        return _evaluate_listwise(config, folder, quiet)
    return _evaluate_ranker(config, folder, quiet)


def _check_options(config: DictConfig) -> None:
    """Refuse what would be ignored."""
    check_aggregate(config)
    check_listwise(config)
    if config.alpha != AUTO:
        check_alpha(config.alpha)
        if config.budget is not None:
            raise ValueError(f"budget={config.budget} is for alpha=auto: add it, or leave out the budget")
    if config.get("task") is not None and config.alpha != 1:
        raise ValueError(f"alpha={config.alpha}: this experiment has its own alphas; give task.alphas=[1,0.5] instead")
    if config.run is not None and (config.explain.query is not None or config.explain.document is not None):
        raise ValueError("an explanation is of a ranker's score, not of a run: leave out run=... or explain.*")


def _evaluate_runs(config: DictConfig, folder: Path, quiet: bool) -> Report:
    """Anybody's runs side by side."""
    if config.alpha != 1 or config.get("wordings") is not None:
        option = "wordings=..." if config.alpha == 1 else f"alpha={config.alpha}"
        raise ValueError(f"{option} needs a ranker and does nothing to run files: leave out it or run=...")
    if (data := chosen_data(config)) is None:
        raise ValueError("run=FILE needs the collection it ranks: add data=..., one of conf/data")
    yardstick = Yardstick.of(config, data)
    work = run_workload(config, data, yardstick)
    systems, notes = aggregated(config, run_systems(config.run, work), work, folder)
    results = yardstick.measure(systems, work)
    return _report(config, data, folder, work, results, yardstick, notes, quiet, None)


def _evaluate_listwise(config: DictConfig, folder: Path, quiet: bool) -> Report:
    """The first stage, and a listwise ranker that reorders its first candidates."""
    checkpoint = listwise_checkpoint(config)
    data = data_of(config, checkpoint) if checkpoint is not None else needed_data(config)
    yardstick = Yardstick.of(config, data)
    # Swapped wordings are compared by their scores, and rankings of lists have none that compare.
    unswapped = config.copy()
    unswapped.swap = False
    work = load_workload(unswapped, data, yardstick.fairness.lexicon)
    systems, notes = listwise_systems(config, ListwiseRankers().ranker(config), work, folder)
    if data.get("requests") is not None:
        requests = read_requests(Path(data.requests).expanduser())
        write_requests(folder / "results.jsonl", reordered(requests, systems[-1].test_run))
    results = yardstick.measure(systems, work)
    if checkpoint is not None:
        notes = [f"Ranker: {checkpoint}", *notes]
    return _report(config, data, folder, work, results, yardstick, notes, quiet, None)


def _evaluate_ranker(config: DictConfig, folder: Path, quiet: bool) -> Report:
    """The first stage, the ranker as it is, and the ranker under alpha."""
    checkpoint = find_ranker(config.checkpoint, config.output)
    data = data_of(config, checkpoint)
    yardstick = Yardstick.of(config, data)

    @cache  # for alpha=auto and for fitted policies
    def dev() -> Workload:
        return load_workload(config, data, yardstick.fairness.lexicon, "dev")

    turned = TurnedRanker(config, checkpoint, dev)
    alpha, notes = (config.alpha, []) if config.alpha != AUTO else chosen_alpha(config, turned, dev(), yardstick)
    control = turned.control(alpha)
    work = load_workload(config, data, yardstick.fairness.lexicon)
    # A sweep has the ranker as it is as a job of its own.
    alphas = [alpha] if quiet or alpha == 1 else [1.0, alpha]
    systems = [System(work.stage, None, work.candidates, work.bias_candidates)]
    systems += [*recalibrated_systems(config, turned, work, alpha), *turned.systems(work, alphas)]
    turned.write_senses(folder / "sensitivity.json", control)
    results = yardstick.measure(systems, work)
    write_class_counts(folder, turned.policy, control.tokens.classes if control.tokens else None, work)
    notes = [*turned.notes(control), *swap_notes(work), *notes]
    return _report(config, data, folder, work, results, yardstick, notes, quiet, turned)


def data_of(config: DictConfig, checkpoint: Path) -> DictConfig:
    """The data asked for, or the data that the checkpoint was trained on, rotated as asked for.

    Raises:
        ValueError: neither is known.
    """
    if (chosen := chosen_data(config)) is not None:
        return chosen
    saved = checkpoint.parent / CONFIG
    if checkpoint.name != RANKER or not saved.is_file():
        raise ValueError(f"{checkpoint} does not say what it was trained on: add data=..., one of conf/data")
    loaded = OmegaConf.load(saved)
    assert isinstance(loaded, DictConfig)
    asked = config.get("data") or {}
    loaded.data.update({option: asked[option] for option in ROTATION if asked.get(option) is not None})
    return loaded.data


def comparisons(results: Sequence[Results], work: Workload) -> list[Comparison]:
    """Paired tests between all systems that have a kind of measure: a first stage, for example, takes no swaps."""
    places = {EFFECTIVENESS: work.test.name, BIAS: f"bias set of {work.bias.name}"}
    tests = []
    for kind in dict.fromkeys(kind for result in results for kind in result.kinds):
        systems = {result.system.label: result.kinds[kind] for result in results if kind in result.kinds}
        first, *others = systems.values()
        shared = [name for name in first.measures if all(name in other.values for other in others)]
        if others and shared:
            tests.append(compare(systems, shared, where=places.get(kind, kind)))
    return tests


def _report(
    config: DictConfig,
    data: DictConfig,
    folder: Path,
    work: Workload,
    results: list[Results],
    yardstick: Yardstick,
    notes: list[str],
    quiet: bool,
    turned: TurnedRanker | None,
) -> Report:
    last = results[-1].system
    about = About(
        effectiveness_set=work.test.name,
        bias_set=bias_set_in_words(config, work.bias),
        alpha=last.alpha,
        policy=turned.policy.name if turned is not None and last.alpha is not None else "",
        notes=tuple(notes),
    )
    about = yardstick.fairness.describe(about, work.stage)
    report = Report(tuple(result.row() for result in results), about)
    resolved = resolved_config(config, data)
    save_config(folder, resolved)
    _write_runs(folder, [result.system for result in results], work)
    write_per_query(
        folder / "per_query.csv", [(r.system.label, values.values) for r in results for values in r.kinds.values()]
    )
    write_report(folder, report)
    write_gaps_by(folder, results, work)
    if quiet:
        log.info("%s measured, see %s", last.label, folder)
        return report
    tests = comparisons(results, work) if len(results) > 1 else []
    write_comparison(folder, tests)
    print_report(report)
    if config.run is not None:
        print_comparison(tests)
    page = write_evaluation_page(folder, resolved, report, results, work, tests, turned)
    print(f"Report: {page}\nRuns, per-query values, measures and tests: {folder}")
    return report


def _write_runs(folder: Path, systems: Sequence[System], work: Workload) -> None:
    for system in systems:
        parts = {work.test.name: system.test_run}
        if work.separate:
            parts[work.bias.name] = system.bias_run
        if work.worded is not None and system.worded_run is not None:
            parts[work.worded.collection.name] = system.worded_run
        for name, run in parts.items():
            tag = re.sub(r"[\s/=]+", "-", system.label)  # "=" in a file's name could not be given to run=FILE
            write_run(folder / "runs" / f"{tag}__{file_part(name)}.run", run, tag)
