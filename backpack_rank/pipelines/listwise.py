"""``evaluate.py listwise=...``: a listwise ranker with its remedies, over the candidates of a collection."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.formats import ranking
from backpack_rank.models.build import RANKER
from backpack_rank.models.listwise.causal_lm import CausalLmRanker
from backpack_rank.models.listwise.ranker import ListwiseRanker, PassageList, Usage
from backpack_rank.models.listwise.saved import is_listwise
from backpack_rank.pipelines.ranked_lists import KeptRanker, RankedLists
from backpack_rank.pipelines.turned import System
from backpack_rank.pipelines.workload import Workload, only
from backpack_rank.position.list_runs import lists_of
from backpack_rank.position.pairwise import PairwiseRanker
from backpack_rank.position.permutation import PermutationSelfConsistency
from backpack_rank.position.shuffling import shuffles
from backpack_rank.position.windows import SlidingWindows

log = logging.getLogger(__name__)
RANKINGS_FILE = "rankings.jsonl"
ORDERS = ("first_stage", "reversed", "shuffled")
_OWN = ("temperature", "seed")
"""Options of a ranker for which its model need not be loaded again; a server's are its own matter."""


def check_listwise(config: DictConfig) -> None:
    """Refuse options that have nothing to act on, or that act on nothing here.

    Raises:
        ValueError: a remedy without a listwise ranker, or one beside alpha, runs or wordings.
    """
    if config.get("listwise") is None:
        for remedy in ("pairwise", "permutation", "calibration"):
            if config.get(remedy) is not None:
                raise ValueError(
                    f"{remedy}=... is for listwise rankers: add listwise=trained, listwise=hugging_face or "
                    "listwise=openai, or leave it out"
                )
        return
    if config.alpha != 1:
        raise ValueError(f"alpha={config.alpha} turns the senses of a Backpack; listwise=... has none: leave it out")
    for option in ("run", "wordings", "aggregate", "recalibrate.run", "explain.query", "explain.document"):
        if OmegaConf.select(config, option) is not None:
            raise ValueError(f"{option}=... and listwise=... do not go together: leave one of them out")
    if config.listwise.input.order not in ORDERS:
        raise ValueError(f"listwise.input.order={config.listwise.input.order}: use one of {', '.join(ORDERS)}")
    depth = config.listwise.depth
    if depth is not None and (not isinstance(depth, int) or depth < 1):
        raise ValueError(f"listwise.depth={depth} must be a number of candidates, or null for all of them")


def listwise_checkpoint(config: DictConfig) -> Path | None:
    """The folder of the trained listwise ranker that is asked for; None for a model of the hub or a server.

    Raises:
        FileNotFoundError: ``listwise=trained``, and there is none.
    """
    options = config.listwise.ranker
    if "name" not in options or (options.name is not None and not Path(str(options.name)).expanduser().is_dir()):
        return None
    given = options.name if options.name is not None else config.checkpoint
    if given is not None:
        folder = Path(given).expanduser()
        for candidate in (folder / RANKER, folder):
            if is_listwise(candidate):
                return candidate
        if options.name is not None and options.get("prompt") is not None:
            return None  # a model's own folder
        raise FileNotFoundError(f"{given}: neither a run's folder nor a saved listwise ranker (no listwise.json)")
    found = [path for path in Path(config.output, "train").glob(f"**/{RANKER}") if is_listwise(path)]
    if not found:
        raise FileNotFoundError(
            f"no trained listwise ranker below {Path(config.output, 'train')}: run `python train.py task=listwise` "
            "first, or give checkpoint=FOLDER, or take listwise=hugging_face or listwise=openai"
        )
    return max(found, key=lambda path: path.stat().st_mtime)


class ListwiseRankers:
    """Makes the rankers of an experiment; a model stays loaded until another one is asked for."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._loaded: ListwiseRanker | None = None

    def ranker(self, config: DictConfig) -> ListwiseRanker:
        """The ranker asked for, with calibration inside it, permutations around it and windows around those.

        With comparisons of pairs around the model, permutations are around these, and there are no windows.
        It shares the model with the one before where they differ in remedies and sampling alone; its usage is its own.

        Raises:
            FileNotFoundError: ``listwise=trained``, and there is none.
            ValueError: the ranker cannot be calibrated, or an option is wrong.
        """
        calibration = config.get("calibration")
        if calibration is not None and "name" not in config.listwise.ranker:
            raise ValueError("calibration=... needs the probabilities of a model here; a server gives only texts")
        options = _ranker_options(config)
        own = {name: options.pop(name) for name in _OWN if name in options and "name" in options}
        ranker = self._model(options)
        if isinstance(ranker, CausalLmRanker):
            ranker = ranker.sharing_model(calibration=instantiate(calibration, _convert_="all"), **own)
        passages = getattr(ranker, "passages", None)
        for remedy in ("pairwise", "permutation"):
            if config.get(remedy) is not None:
                ranker = instantiate(config[remedy], _convert_="all")(ranker)
        if config.get("pairwise") is not None:
            return ranker  # comparisons show two passages, so that a list of any length needs no windows
        return SlidingWindows(ranker, *_window(config.listwise.window, passages))

    def _model(self, options: dict[str, Any]) -> ListwiseRanker:
        """The ranker without remedies, as it was loaded last where the options are the same."""
        if options != self._options or not isinstance(self._loaded, CausalLmRanker):
            self._loaded = None  # the model before leaves the memory first
            self._loaded = instantiate(options, _convert_="all")
            self._options = options
        assert self._loaded is not None
        return self._loaded


def _ranker_options(config: DictConfig) -> dict[str, Any]:
    """``listwise.ranker``, every value resolved, with the folder of the trained ranker that is meant."""
    node = OmegaConf.to_container(config.listwise.ranker, resolve=True)
    assert isinstance(node, dict)
    options = {str(name): value for name, value in node.items()}
    if (checkpoint := listwise_checkpoint(config)) is not None:
        options["name"] = str(checkpoint)
    return options


def _window(options: DictConfig, trained: int | None) -> tuple[int | None, int]:
    """Size and stride; null: as many passages as the ranker was trained on, and half of the size."""
    size = options.size if options.size is not None else trained
    if size is not None and trained is not None and size > trained:
        log.warning(
            "listwise.window.size=%d, but the ranker was trained on lists of %d: it has not learnt the identifiers "
            "behind them",
            size,
            trained,
        )
    return size, options.stride if options.stride is not None else max(1, (size or 2) // 2)


def listwise_systems(
    config: DictConfig, ranker: ListwiseRanker, work: Workload, folder: Path
) -> tuple[list[System], list[str]]:
    """The first stage, the listwise ranker behind it, and sentences about what ranking cost."""
    started = time.perf_counter()
    tests = rerank(config, ranker, work.candidates, work.test, folder)
    if work.separate:
        biases = rerank(config, ranker, work.bias_candidates, work.bias, folder)
    else:
        biases = only(tests, work.bias)
    systems = [
        System(work.stage, None, work.candidates, work.bias_candidates),
        System(ranker.name, None, tests, biases),
    ]
    notes = [
        f"{ranker.name}: {usage_in_words(ranker.usage)}, {time.perf_counter() - started:.1f} s; the first "
        f"{config.listwise.depth} candidates of each query, shown in the order {config.listwise.input.order}"
    ]
    return systems, notes + remarks(ranker)


def rerank(config: DictConfig, ranker: ListwiseRanker, candidates: Run, collection: Collection, folder: Path) -> Run:
    """Candidates in the ranker's order; those behind ``listwise.depth`` stay in theirs, behind all others.

    Rankings are saved to ``rankings.jsonl`` as they come. A job with the same folder (``hydra.run.dir``) and the same
    options takes those that are there.
    """
    given = lists_of(candidates, collection, config.listwise.depth)
    lists, orders = zip(*(_shown(one, config.listwise.input) for one in given), strict=True)
    known = RankedLists(folder / RANKINGS_FILE, _settings(config, ranker))
    rankings = KeptRanker(ranker, known, int(config.listwise.lists_per_call)).rank(lists)
    run: Run = {}
    for one, order, ranked in zip(lists, orders, rankings, strict=True):
        ids = [one.ids[position] for position in ranked.order]
        rest = ranking(candidates[one.query_id])[len(order) :]
        run[one.query_id] = {doc_id: -float(place) for place, doc_id in enumerate([*ids, *rest], start=1)}
    return run


def remarks(ranker: ListwiseRanker) -> list[str]:
    """Sentences about what wrappers have counted so far: comparisons and ties, aggregates that may not be optimal."""
    found = []
    inner: ListwiseRanker | None = ranker
    while inner is not None:
        if isinstance(inner, PairwiseRanker) and inner.compared:
            found.append(
                f"{inner.compared:,} comparisons, each in both orders; {inner.tied:,} of them "
                f"({inner.tied / inner.compared:.0%}) are ties, in which the orders disagree"
            )
        if isinstance(inner, PermutationSelfConsistency) and inner.not_optimal:
            found.append(
                f"{inner.not_optimal} of {inner.aggregated} aggregates are not proven to be optimal; raise "
                "permutation.aggregator.time_limit"
            )
        inner = getattr(inner, "ranker", None)
    return found


def usage_in_words(usage: Usage) -> str:
    """The counts that are not 0."""
    counts = {
        "lists": usage.lists,
        "forward passes": usage.passes,
        "tokens read": usage.prompt_tokens,
        "tokens generated": usage.generated_tokens,
        "requests": usage.requests,
        "answers from disk": usage.cached,
        "passages shortened": usage.shortened,
        "identifiers missing": usage.missing,
        "repeated": usage.repeated,
        "invented": usage.invented,
    }
    words = [f"{count:,} {name}" for name, count in counts.items() if count]
    if usage.cost:
        words.append(f"cost {usage.cost:.4f}")
    return ", ".join(words) or "nothing was ranked anew"


def _shown(one: PassageList, options: DictConfig) -> tuple[PassageList, np.ndarray]:
    order = np.arange(len(one))
    if options.order == "reversed":
        order = order[::-1]
    elif options.order == "shuffled":
        order = next(shuffles(one, options.seed))
    return one.taken(order), order


def _settings(config: DictConfig, ranker: ListwiseRanker) -> dict[str, Any]:
    parts = ("listwise", "pairwise", "permutation", "calibration")
    return {"name": ranker.name} | {part: config.get(part) for part in parts}
