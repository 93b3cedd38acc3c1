"""Re-ranking at any size: plan, score, merge, and where it stands; the shard is the unit of
restart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backpack_rank.data.trec import run_tag
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.unfinished import refuse_links
from backpack_rank.progress import printable
from backpack_rank.reporting.run_metadata import write_metadata
from backpack_rank.reporting.table import NONE, Cell, Group, Row, Section, Table
from backpack_rank.reporting.writers import print_table
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.datatrove_engine import score_by_datatrove
from backpack_rank.scale.settings import RerankSettings
from backpack_rank.scale.shard_plan import Plan, make_plan
from backpack_rank.scale.shards import is_held, merge, open_shards, ranges, read_shard
from backpack_rank.scale.workers import score_by_processes, score_here

log = logging.getLogger(__name__)
_POLL = 0.5


def rerank(config: Mapping[str, Any]) -> Path:
    """Do what ``conf/rerank.yaml`` and the command line ask for; gives the folder of the plan.

    Raises:
        ValueError: options that do not go together, or that are not those of the folder's plan.
    """
    quiet_libraries()
    settings = RerankSettings.of(config)
    refuse_links(settings.folder)
    if settings.action in ("plan", "score", "all"):
        sweep = settings.sweep()
        plan = _score(settings, sweep) if settings.action == "score" else _plan(settings, sweep)
    if settings.action == "all":
        _score_all(settings, plan, sweep)
    if settings.action in ("merge", "all"):
        plan = Plan.read(settings.folder)
        for path in merge(plan, lambda path: _describe(plan, path.parent)):
            print(printable(f"Run: {path}"))
    if settings.action in ("plan", "status"):
        print_table(status(Plan.read(settings.folder)))
    return settings.folder


def score_open(settings: RerankSettings, plan: Plan, sweep: AlphaSweep) -> None:
    """Score every open shard by the engine that is asked for.

    Raises:
        ValueError: as :func:`backpack_rank.scale.shards.score_shard`.
        KeyboardInterrupt: with a line that says what is kept.
    """
    try:
        if settings.engine == "datatrove":
            score_by_datatrove(settings, plan)
        elif settings.workers == 1:
            score_here(settings, plan, sweep, open_shards(plan))
        else:
            score_by_processes(settings, plan)
    except KeyboardInterrupt:
        left = len(open_shards(plan))
        log.warning(
            "stopped: %d of %d shards are scored and kept in %s; the same command goes on",
            len(plan) - left,
            len(plan),
            plan.folder,
        )
        raise SystemExit(130) from None


def status(plan: Plan) -> Table:
    """Where a re-ranking stands: shards, pairs and tokens that are scored and open, and how fast it
    went.
    """
    shards = [read_shard(plan, number) for number in range(len(plan))]
    scored = [number for number, shard in enumerate(shards) if shard is not None]
    left = [number for number, shard in enumerate(shards) if shard is None]
    seconds = sum(shard.seconds for shard in shards if shard is not None)
    rows = [_row(plan, "scored", scored, seconds), _row(plan, "open", left, None)]
    notes = [f"Plan: {plan.folder}. Tokens are estimated; hours and pairs/s are of one worker."]
    if left:
        notes.append(f"Open: {ranges(left)}")
    if left and scored:
        rate = sum(plan.shards[number].tokens for number in scored) / max(seconds, 1e-9)
        hours = sum(plan.shards[number].tokens for number in left) / rate / 3600
        notes.append(f"Left, for one worker: {hours:.2f} hours")
    if hosts := sorted({shard.host for shard in shards if shard is not None}):
        notes.append(f"Scored on {', '.join(hosts)}")
    columns = ("shards", "queries", "pairs", "tokens", "hours", "pairs/s")
    title = f"Re-ranking of {plan.about.get('candidates', '')} at {', '.join(plan.labels)}"
    return Table("rerank", title, ("",), [Group("", columns)], [Section("", rows)], notes)


def _plan(settings: RerankSettings, sweep: AlphaSweep) -> Plan:
    about = {
        "candidates": settings.stage,
        "collection": settings.collection.name,
        "ranker": str(settings.checkpoint),
        "label": sweep.scorer.ranker.label,
    }
    return make_plan(
        settings.folder,
        settings.candidates(),
        settings.collection,
        sweep.scorer.pair_tokenizer,
        sweep.fingerprint(settings.collection),
        tuple(run_tag(label) for label in sweep.labels),
        sharding=settings.sharding,
        about=about,
    )


def _score_all(settings: RerankSettings, plan: Plan, sweep: AlphaSweep) -> None:
    """Score until nothing is open, and wait for what other commands are at."""
    score_open(settings, plan, sweep)
    left, waiting = open_shards(plan), False
    while left := [number for number in left if read_shard(plan, number) is None]:
        if not all(is_held(plan, number) for number in left):
            score_open(settings, plan, sweep)
        elif not waiting:
            log.info("waiting for another process, which is at shards %s", ranges(left))
            waiting = True
        time.sleep(_POLL)


def _score(settings: RerankSettings, sweep: AlphaSweep) -> Plan:
    """One shard, or all that are open."""
    plan = Plan.read(settings.folder)
    plan.check(sweep.fingerprint(settings.collection))
    if settings.shard is None:
        score_open(settings, plan, sweep)
    elif not score_here(settings, plan, sweep, [settings.shard]):
        log.info("shard %d is scored already, or another process is at it", settings.shard)
    left = open_shards(plan)
    print(printable(f"{len(plan) - len(left)} of {len(plan)} shards are scored: {plan.folder}"))
    return plan


def _describe(plan: Plan, folder: Path) -> None:
    """``ir-metadata.yml`` beside a run."""
    alpha = dict(zip(plan.labels, plan.fingerprint["alpha"], strict=True))[folder.name]
    policy = plan.fingerprint["policy"] if alpha != 1 else ""
    params = {
        "ranker": plan.about["ranker"],
        "number format": plan.fingerprint["number format"],
        "weights": plan.fingerprint["weights"],
        **({"policy": policy, "alpha": alpha} if policy else {}),
    }
    under = f", policy {policy} at alpha={alpha:g}" if policy else ""
    first = plan.about["candidates"]
    write_metadata(
        folder,
        folder.name,
        collection=plan.about["collection"],
        description=f"{plan.about['label']}{under}, over the candidates of {first}.",
        stages=[
            {"name": first, "method": "first stage"},
            {"name": folder.name, "method": "reranker", "params": params},
        ],
    )


def _row(plan: Plan, name: str, numbers: Sequence[int], seconds: float | None) -> Row:
    shards = [plan.shards[number] for number in numbers]
    pairs = sum(shard.pairs for shard in shards)
    timed = seconds is not None and seconds > 0 and bool(pairs)
    figures = [
        str(len(shards)),
        str(sum(shard.queries for shard in shards)),
        str(pairs),
        str(sum(shard.tokens for shard in shards)),
        f"{seconds / 3600:.3f}" if timed and seconds is not None else NONE,
        f"{pairs / seconds:.1f}" if timed and seconds is not None else NONE,
    ]
    return Row((name,), [Cell(figure) for figure in figures])
