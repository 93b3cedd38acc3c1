"""What an evaluation writes: runs, measures, tests, senses, a submission; and what it prints."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backpack_rank.data.trec import run_tag, write_run
from backpack_rank.evaluation.results import Report
from backpack_rank.files import write_text
from backpack_rank.pipelines.breakdowns import write_gaps_by
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import MetricSuite, SystemRuns
from backpack_rank.pipelines.nodes import several
from backpack_rank.pipelines.report import write_audit_page, write_evaluation_page
from backpack_rank.pipelines.settings import slugify
from backpack_rank.pipelines.tasks import SavedOptions
from backpack_rank.progress import printable
from backpack_rank.reporting.comparison import print_comparison, write_comparison
from backpack_rank.reporting.measure_files import write_per_query, write_report
from backpack_rank.reporting.overview import overview_measures, print_overview
from backpack_rank.reporting.ranking_spread import spread_table
from backpack_rank.reporting.report_tables import print_report
from backpack_rank.reporting.run_metadata import write_submission
from backpack_rank.reporting.writers import print_table, write_table
from backpack_rank.reranking.pointwise import PointwiseReranker

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ranked:
    """What was ranked, and with what.

    Attributes:
        data: queries and candidates.
        metrics: measures to take.
        systems: rankings of every system.
        notes: sentences about them.
        checkpoint: folder of the ranker or address of its server, or None.
        reranker: the ranker under alpha, or None.
        finished_runs: whether all systems are runs that somebody else ranked.
    """

    data: EvaluationData
    metrics: MetricSuite
    systems: Sequence[SystemRuns]
    notes: Sequence[str] = ()
    checkpoint: Path | str | None = None
    reranker: PointwiseReranker | None = None
    finished_runs: bool = False


def write_results(saved: SavedOptions, folder: Path, ranked: Ranked, quiet: bool) -> Report:
    """Runs, measures, tests, tables and the page."""
    table = ranked.metrics.measure(ranked.systems, ranked.data)
    last = ranked.systems[-1]
    dial = ranked.reranker is not None and last.alpha is not None
    info = replace(
        table.info,
        alpha=last.alpha,
        policy=ranked.reranker.hook.policy.name if dial else "",  # type: ignore[union-attr]
        notes=(*ranked.notes, *table.info.notes),
    )
    table = replace(table, info=info)
    report = table.report()
    saved.write(folder, ranked.checkpoint)
    write_runs(folder, ranked.systems, ranked.data)
    if not ranked.finished_runs:
        _write_submission(folder / "tira", ranked)
    values = []
    for system in table.systems:
        for values_of_set in system.values.values():
            values.append((system.label, values_of_set.values))
    write_per_query(folder / "per_query.csv", values)
    write_report(folder, report)
    write_gaps_by(folder, table, ranked.data)
    spread = spread_table(table)
    if spread is not None:
        write_table(folder, spread)
    if quiet:
        log.info("%s measured, see %s", last.label, folder)
        return report
    tests = table.compare() if len(table.systems) > 1 else []
    write_comparison(folder, tests)
    asked = several(saved.values.get("measures") or ())
    if saved.values["verbose"]:
        print_report(report)
        print_comparison(tests)
    else:
        print_overview(report, tests, asked=asked)
    measures = None if saved.values["verbose"] else overview_measures(report, asked)
    printed = spread_table(table, measures)
    if printed is not None:
        print_table(printed)
    if ranked.finished_runs:
        page = write_audit_page(folder, saved, report, ranked.systems, ranked.data, tests, spread)
    else:
        page = write_evaluation_page(
            folder, saved, report, ranked.systems, ranked.data, tests, ranked.reranker, spread
        )
    print(printable(f"Report: {page}\nRuns, per-query values, measures and tests: {folder}"))
    if not saved.values["verbose"]:
        print("verbose=true prints every cut-off and every way to count words.")
    return report


def write_runs(folder: Path, systems: Sequence[SystemRuns], data: EvaluationData) -> None:
    """``runs/SYSTEM__COLLECTION.run`` of every system and query set, or of each of its rankings."""
    rankings: list[SystemRuns] = []
    for system in systems:
        rankings += system.rankings or (system,)
    for system in rankings:
        parts = {data.test.name: system.test}
        if data.separate:
            parts[data.bias.name] = system.bias
        if data.variants is not None and system.variants is not None:
            parts[data.variants.collection.name] = system.variants
        for name, run in parts.items():
            tag = run_tag(system.label)
            write_run(folder / "runs" / f"{tag}__{slugify(name)}.run", run, tag)


def write_senses(path: Path, reranker: PointwiseReranker) -> None:
    """Sensitivities, the policy and its weights as JSON; nothing for a ranker without senses."""
    sensitivity = reranker.sensitivity
    if sensitivity is None:
        return
    policy = reranker.hook.policy
    view = reranker.hook.views[0]
    weights = [1.0] * len(sensitivity.values)
    if view.sense_weights is not None:
        weights = view.sense_weights.tolist()
    details = {
        "pairs": reranker.attribute.pairs().name,
        "pairs_used": sensitivity.pairs,
        "words_in_parts": sensitivity.in_parts,
        "pairs_unknown_to_the_tokenizer": sensitivity.unknown,
        "sensitivity": sensitivity.values.tolist(),
        "policy": "" if policy is None else policy.name,
        "alpha": reranker.hook.alpha,
        "weights": weights,
        "moved_tokens": [],
        "words_without_a_token": [],
        "words_without_a_partner": [],
        "words_moved_behind_a_space_alone": [],
    }
    if view.token_shift is not None:
        classes = view.token_shift.classes
        details["moved_tokens"] = list(classes.names)
        details["words_without_a_token"] = list(classes.several_tokens)
        details["words_without_a_partner"] = list(classes.unpaired)
        details["words_moved_behind_a_space_alone"] = list(classes.behind_space_alone)
    write_text(path, json.dumps(details, indent=2) + "\n")


def _write_submission(folder: Path, ranked: Ranked) -> None:
    """The last system's ranking of the test set, as TIRA takes it."""
    last = ranked.systems[-1]
    stage = ranked.data.stage
    params: dict[str, object] = {}
    if ranked.checkpoint is not None:
        params["ranker"] = str(ranked.checkpoint)
    if ranked.reranker is not None:
        params["number format"] = ranked.reranker.scorer.number_format
    what = last.label
    if ranked.reranker is not None and last.alpha is not None:
        policy = ranked.reranker.hook.policy
        assert policy is not None
        what = (
            f"{ranked.reranker.scorer.ranker.label}, policy {policy.name} at alpha={last.alpha:g}"
        )
        params |= {"policy": policy.name, "alpha": last.alpha}
    write_submission(
        folder,
        last.test,
        run_tag(last.label),
        collection=ranked.data.test.name,
        description=f"{what}, over the candidates of {stage}.",
        stages=[
            {"name": stage, "method": "first stage"},
            {"name": last.label, "method": "reranker", "params": params},
        ],
    )
