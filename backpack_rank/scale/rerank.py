"""Re-ranking at any size: plan, score, merge, and status; the shard is the unit of restart."""

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
from backpack_rank.scale.settings import RerankSettings
from backpack_rank.scale.shard_plan import Plan, make_plan
from backpack_rank.scale.shards import (
    is_held,
    merge,
    open_shards,
    ranges,
    read_shard,
    scores_name,
)
from backpack_rank.scale.store import Store
from backpack_rank.scale.workers import score_by_processes, score_here

log = logging.getLogger(__name__)
_POLL = 0.5
"""Seconds between two looks at shards that other processes score."""


def rerank(config: Mapping[str, Any]) -> Path:
    """Do what ``conf/rerank.yaml`` and the command line ask for.

        folder = rerank(config)  # config: composed from conf/rerank.yaml

    Returns:
        The folder of the plan.

    Raises:
        ValueError: options that do not go together, or that are not those of the folder's plan.
    """
    quiet_libraries()
    settings = RerankSettings.of(config)
    refuse_links(settings.folder)
    store = settings.store
    if store is not None:
        store.get_plan(settings.folder)
    if settings.action in ("plan", "all"):
        sweep = settings.sweep()
        plan = _plan(settings, sweep)
        if store is not None:
            store.put_plan(plan)
        if settings.action == "all":
            _score_all(settings, plan, sweep)
    if settings.action == "score":
        _score(settings, settings.sweep())
    if store is not None and settings.action in ("merge", "all", "status"):
        _get_all(store, Plan.read(settings.folder))
    if settings.action in ("merge", "all"):
        _merge(settings)
    if settings.action in ("plan", "status"):
        print_table(status(Plan.read(settings.folder)))
    return settings.folder


def score_open(settings: RerankSettings, plan: Plan, sweep: AlphaSweep) -> None:
    """Score every open shard.

        score_open(settings, plan, settings.sweep())

    Raises:
        ValueError: as :func:`backpack_rank.scale.shards.score_shard`.
        KeyboardInterrupt: with a line that says what is kept.
    """
    try:
        if settings.workers == 1:
            score_here(settings, plan, sweep, settings.shards(plan))
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
    """How far a re-ranking is.

        print_table(status(Plan.read("outputs/rerank/bm25.trec")))

    Returns:
        Shards, pairs and tokens that are scored and open, and how fast it went.
    """
    scored: list[int] = []
    left: list[int] = []
    hosts: set[str] = set()
    seconds_of_shards: list[float] = []
    for number in range(len(plan)):
        shard = read_shard(plan, number)
        if shard is None:
            left.append(number)
            continue
        scored.append(number)
        hosts.add(shard.host)
        seconds_of_shards.append(shard.seconds)
    seconds = sum(seconds_of_shards)
    rows = [_row(plan, "scored", scored, seconds), _row(plan, "open", left, None)]
    notes = [f"Plan: {plan.folder}. Tokens are estimated; hours and pairs/s are of one worker."]
    if left:
        notes.append(f"Open: {ranges(left)}")
    if left and scored:
        # By tokens and not by pairs: shards are cut by tokens, and time goes with them.
        tokens_scored = sum(plan.shards[number].tokens for number in scored)
        tokens_left = sum(plan.shards[number].tokens for number in left)
        tokens_per_second = tokens_scored / max(seconds, 1e-9)
        hours = tokens_left / tokens_per_second / 3600
        notes.append(f"Left, for one worker: {hours:.2f} hours")
    if hosts:
        notes.append(f"Scored on {', '.join(sorted(hosts))}")
    columns = ("shards", "queries", "pairs", "tokens", "hours", "pairs/s")
    title = f"Re-ranking of {plan.about.get('candidates', '')} at {', '.join(plan.labels)}"
    return Table(
        name="rerank",
        title=title,
        labels=("",),
        groups=[Group("", columns)],
        sections=[Section("", rows)],
        notes=notes,
    )


def _plan(settings: RerankSettings, sweep: AlphaSweep) -> Plan:
    """The plan of the folder, made if there is none yet."""
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
        sweep.pair_tokenizer,
        sweep.fingerprint(settings.collection),
        tuple(run_tag(label) for label in sweep.labels),
        sharding=settings.sharding,
        about=about,
        long_documents=sweep.scorer.long_documents,
    )


def _get_all(store: Store, plan: Plan) -> None:
    """Bring what all tasks have scored from the store, and the pairs of it."""
    for number in range(len(plan)):
        store.get_pairs(plan, number)
        if read_shard(plan, number) is None:
            store.get(plan.folder, scores_name(number))


def _score_all(settings: RerankSettings, plan: Plan, sweep: AlphaSweep) -> None:
    """Score until nothing is open, and wait for the shards that other commands hold."""
    score_open(settings, plan, sweep)
    left = open_shards(plan)
    waiting = False
    while True:
        left = [number for number in left if read_shard(plan, number) is None]
        if not left:
            return
        # A command that was killed holds nothing any more, and its shards are scored here.
        if not all(is_held(plan, number) for number in left):
            score_open(settings, plan, sweep)
        elif not waiting:
            log.info("waiting for another process, which is at shards %s", ranges(left))
            waiting = True
        time.sleep(_POLL)


def _score(settings: RerankSettings, sweep: AlphaSweep) -> None:
    """Score one shard, or all that are open."""
    plan = Plan.read(settings.folder)
    plan.check(sweep.fingerprint(settings.collection))
    if settings.shard is None:
        score_open(settings, plan, sweep)
    elif not score_here(settings, plan, sweep, [settings.shard]):
        log.info("shard %d is scored already, or another process is at it", settings.shard)
    if settings.claim == "static" and settings.shard is None:
        numbers = settings.shards(plan)
        part = f"part {settings.part} of {settings.parts}"
        print(printable(f"{part}: its {len(numbers)} of {len(plan)} shards are scored"))
        return
    left = open_shards(plan)
    print(printable(f"{len(plan) - len(left)} of {len(plan)} shards are scored: {plan.folder}"))


def _merge(settings: RerankSettings) -> None:
    """Write the runs, each with a description beside it."""
    plan = Plan.read(settings.folder)

    def describe(path: Path, below: int) -> None:
        _describe(plan, path.parent, settings.score_threshold, below)

    for path in merge(plan, describe, settings.score_threshold):
        print(printable(f"Run: {path}"))
        if settings.store is not None:
            for file in sorted(path.parent.iterdir()):
                settings.store.put(plan.folder, file.relative_to(plan.folder).as_posix())


def _describe(plan: Plan, folder: Path, score_threshold: float | None, below: int) -> None:
    """Write ``ir-metadata.yml`` beside a run, from which ``below`` documents are left out."""
    alpha_by_label = dict(zip(plan.labels, plan.fingerprint["alpha"], strict=True))
    alpha = alpha_by_label[folder.name]
    # At alpha = 1 a policy changes nothing, and the run is that of the unchanged ranker.
    policy = plan.fingerprint["policy"] if alpha != 1 else ""
    params = {
        "ranker": plan.about["ranker"],
        "number format": plan.fingerprint["number format"],
        "weights": plan.fingerprint["weights"],
    }
    if "long documents" in plan.fingerprint:
        params |= plan.fingerprint["long documents"]
    if score_threshold is not None:
        params |= {"score threshold": score_threshold, "documents below the threshold": below}
    description = plan.about["label"]
    if policy:
        params |= {"policy": policy, "alpha": alpha}
        description += f", policy {policy} at alpha={alpha:g}"
    candidates = plan.about["candidates"]
    description += f", over the candidates of {candidates}."
    write_metadata(
        folder,
        folder.name,
        collection=plan.about["collection"],
        description=description,
        stages=[
            {"name": candidates, "method": "first stage"},
            {"name": folder.name, "method": "reranker", "params": params},
        ],
    )


def _row(plan: Plan, name: str, numbers: Sequence[int], seconds: float | None) -> Row:
    """Figures of some shards; ``seconds`` is how long they took, None where they are open."""
    queries = pairs = tokens = 0
    for number in numbers:
        shard = plan.shards[number]
        queries += shard.queries
        pairs += shard.pairs
        tokens += shard.tokens
    hours = speed = NONE
    if seconds is not None and seconds > 0 and pairs:
        hours = f"{seconds / 3600:.3f}"
        speed = f"{pairs / seconds:.1f}"
    figures = (str(len(numbers)), str(queries), str(pairs), str(tokens), hours, speed)
    return Row((name,), list(map(Cell, figures)))
