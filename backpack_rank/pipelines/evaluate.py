"""Evaluation, step by step: candidates, scores under alpha, runs, measures, tables."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import Tensor

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.formats import read_run, write_run
from backpack_rank.data.lexicon import load_lexicon, load_pairs
from backpack_rank.data.neutral_queries import load_neutral_queries, neutral_by_lexicon
from backpack_rank.evaluation.effectiveness import effectiveness, parse_measures
from backpack_rank.evaluation.gender import GenderMeasures, top_documents
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.files import cache_dir, write_text
from backpack_rank.models.build import load_ranker
from backpack_rank.models.ranker import BackpackForRanking
from backpack_rank.pipelines.common import (
    CONFIG,
    RANKER,
    candidates_of,
    find_ranker,
    load_split,
    quiet_libraries,
    save_config,
)
from backpack_rank.reporting.rows import About, Report, SystemRow
from backpack_rank.reporting.tables import print_report, write_per_query, write_report
from backpack_rank.scoring import Scorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policy import Policy, check_alpha
from backpack_rank.senses.sensitivity import sensitivity

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class System:
    """Something that ranks: its label in the tables, its dial, and its rankings of the two sets."""

    label: str
    alpha: float | None
    effectiveness_run: Run
    bias_run: Run


@dataclass(frozen=True)
class Sets:
    """The effectiveness set, the bias set and their candidates.

    Attributes:
        test: queries with judgements.
        bias: gender-neutral queries; part of ``test`` unless the data has a bias collection of its own.
        separate: whether the bias set is of another collection than ``test``.
    """

    test: Collection
    bias: Collection
    separate: bool


def evaluate(config: DictConfig, folder: Path, quiet: bool = False) -> Report:
    """Measure a trained ranker under alpha, or a run file, and write everything to ``folder``.

    Args:
        config: as composed from ``conf/evaluate.yaml``.
        folder: gets ``measures.json``, ``measures.csv``, ``per_query.csv``, ``sensitivity.json``, ``runs/`` and
            the resolved configuration.
        quiet: print no tables (jobs of a multirun, whose tables come together at the end).
    """
    quiet_libraries()
    alpha = check_alpha(config.alpha)
    gender: GenderMeasures = instantiate(config.bias, _convert_="all")
    checkpoint = None if config.run is not None else find_ranker(config.checkpoint, config.output)
    data = _data(config, checkpoint)
    measures = _measures(config.measures or data.measures)
    sets = _sets(data, gender.lexicon)
    if checkpoint is None:
        systems, notes = [_run_file(config.run, sets)], []
    else:
        stage, scorer_notes, system = _ranked(config, data, checkpoint, sets, alpha, folder)
        systems, notes = [stage, system], scorer_notes
    report, per_query = _measure(systems, sets, measures, gender)
    about = About(
        effectiveness_set=sets.test.name,
        bias_set=f"{sets.bias.name}: {len(sets.bias.queries)} gender-neutral queries",
        alpha=systems[-1].alpha,
        policy=instantiate(config.policy).name if systems[-1].alpha is not None else "",
        notes=tuple(notes),
    )
    report = Report(report.rows, gender.describe(about))
    _write(folder, config, data, systems, sets, report, per_query)
    if quiet:
        log.info("%s measured, see %s", systems[-1].label, folder)
    else:
        print_report(report)
        print(f"Runs, per-query values and measures: {folder}")
    return report


def _data(config: DictConfig, checkpoint: Path | None) -> DictConfig:
    """The data asked for, or the data that the checkpoint was trained on."""
    if config.get("data") is not None:
        return config.data
    if checkpoint is None:
        raise ValueError("run=FILE needs the collection it ranks: add data=..., one of conf/data")
    saved = checkpoint.parent / CONFIG
    if checkpoint.name != RANKER or not saved.is_file():
        raise ValueError(f"{checkpoint} does not say what it was trained on: add data=..., one of conf/data")
    loaded = OmegaConf.load(saved)
    assert isinstance(loaded, DictConfig)
    return loaded.data


def _measures(names: ListConfig | str) -> list[str]:
    measures = [names] if isinstance(names, str) else [str(name) for name in names]
    parse_measures(measures)
    return measures


def _sets(data: DictConfig, lexicon: str) -> Sets:
    test = load_split(data, "test")
    separate = data.get("bias") is not None
    bias = load_split(data, "bias") if separate else test
    if data.get("bias_queries") is None:
        wanted = neutral_by_lexicon(bias.queries, load_lexicon(lexicon))
        why = f"every query of {bias.name} has a word of {lexicon}"
    else:
        wanted = load_neutral_queries(data.bias_queries)
        why = f"none of the {len(wanted)} queries of {data.bias_queries} is in {bias.name}"
    bias = bias.only(wanted)
    if not bias.queries:
        raise ValueError(f"the bias set is empty: {why}; set data.bias and data.bias_queries")
    return Sets(test, bias, separate)


def _ranked(
    config: DictConfig, data: DictConfig, checkpoint: Path, sets: Sets, alpha: float, folder: Path
) -> tuple[System, list[str], System]:
    """The first stage, notes for the report, and the ranker under alpha."""
    ranker, encoder = load_ranker(checkpoint)
    weights, notes = None, [f"Ranker: {checkpoint}"]
    if isinstance(ranker, BackpackForRanking):
        weights, note = _weights(config, ranker, encoder, alpha, folder)
        notes.append(note)
    elif alpha != 1:
        raise ValueError(f"alpha={alpha}, but {type(ranker).__name__} has no sense vectors; leave alpha at 1")
    scorer = Scorer(ranker, encoder, instantiate(config.scoring))
    cache = _cache(config) if isinstance(ranker, BackpackForRanking) else None

    def rank(candidates: Run, collection: Collection) -> Run:
        return scorer.rank_weighted(candidates, collection, weights, cache)

    name, candidates = candidates_of(data, "test", sets.test)
    ranked = rank(candidates, sets.test)
    if sets.separate:
        _, bias_candidates = candidates_of(data, "bias", sets.bias)
        bias_ranked = rank(bias_candidates, sets.bias)
    else:
        bias_candidates, bias_ranked = _only(candidates, sets.bias), _only(ranked, sets.bias)
    dial = alpha if isinstance(ranker, BackpackForRanking) else None
    label = f"alpha={alpha:g}" if dial is not None else type(ranker).__name__
    if cache is not None:
        log.info("cache of sense vectors: %.2f of %g GB in %s", cache.size_gb(), cache.max_gb, cache.folder)
    return System(name, None, candidates, bias_candidates), notes, System(label, dial, ranked, bias_ranked)


def _weights(config: DictConfig, ranker: BackpackForRanking, encoder, alpha: float, folder: Path):
    """Weights per sense, or None at alpha = 1 (nothing attached), and a sentence about them."""
    pairs = load_pairs(config.pairs)
    found = sensitivity(ranker.backpack, encoder.tokenizer, pairs.pairs)
    policy: Policy = instantiate(config.policy)
    weights: Tensor = policy.weights(found.values, alpha)
    details = {
        "pairs": pairs.name,
        "pairs_used": found.pairs,
        "words_in_parts": found.in_parts,
        "pairs_unknown_to_the_tokenizer": found.unknown,
        "sensitivity": found.values.tolist(),
        "policy": policy.name,
        "alpha": alpha,
        "weights": weights.tolist(),
    }
    write_text(folder / "sensitivity.json", json.dumps(details, indent=2) + "\n")
    lowest = sorted(range(len(found.values)), key=lambda sense: float(found.values[sense]))[:2]
    shown = ", ".join(f"s_{sense}={found.values[sense]:.3f}" for sense in lowest)
    note = f"Sensitivity from {found.pairs} token pairs of {pairs.name}: lowest {shown}, mean {found.values.mean():.3f}"
    return (None if bool((weights == 1).all()) else weights), note


def _cache(config: DictConfig) -> SenseCache:
    folder = Path(config.cache.folder).expanduser() if config.cache.folder else cache_dir() / "senses"
    return SenseCache(folder, config.cache.max_gb)


def _run_file(path: str, sets: Sets) -> System:
    run = read_run(path)
    known = [query_id for query_id in run if query_id in sets.test.queries or query_id in sets.bias.queries]
    if not known:
        raise ValueError(
            f"{path}: none of its {len(run)} queries is in {sets.test.name}, for example {list(run)[:3]}; "
            "is data= the collection that this run ranks?"
        )
    if len(known) < len(run):
        log.warning("%s: %d queries are not in %s and are left out", path, len(run) - len(known), sets.test.name)
    return System(Path(path).name, None, _only(run, sets.test), _only(run, sets.bias))


def _only(run: Run, collection: Collection) -> Run:
    return {query_id: run[query_id] for query_id in collection.queries if query_id in run}


def _measure(
    systems: list[System], sets: Sets, measures: list[str], gender: GenderMeasures
) -> tuple[Report, list[tuple[str, PerQuery]]]:
    magnitudes = gender.magnitudes(
        top_documents([system.bias_run for system in systems], max(gender.cutoffs)), sets.bias.documents
    )
    rows, per_query = [], []
    for system in systems:
        found = effectiveness(system.effectiveness_run, sets.test.qrels, measures) if sets.test.qrels else None
        bias = gender.measure(system.bias_run, magnitudes, sets.bias.queries)
        per_query += [(system.label, values) for values in (found, bias) if values is not None]
        rows.append(SystemRow(system.label, system.alpha, found.summary() if found else None, bias.summary()))
    return Report(tuple(rows)), per_query


def _write(
    folder: Path,
    config: DictConfig,
    data: DictConfig,
    systems: list[System],
    sets: Sets,
    report: Report,
    per_query: list[tuple[str, PerQuery]],
) -> None:
    resolved = OmegaConf.merge({"data": OmegaConf.to_container(data, resolve=True)}, config)
    assert isinstance(resolved, DictConfig)
    save_config(folder, resolved)
    for system in systems:
        parts = {sets.test.name: system.effectiveness_run}
        if sets.separate:
            parts[sets.bias.name] = system.bias_run
        for name, run in parts.items():
            tag = re.sub(r"[\s/=]+", "-", system.label)  # "=" in a file's name could not be given to run=FILE
            write_run(folder / "runs" / f"{tag}__{name.replace('/', '-')}.run", run, tag)
    write_per_query(folder / "per_query.csv", [(label, values.values) for label, values in per_query])
    write_report(folder, report)
