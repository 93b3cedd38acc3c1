"""What an evaluation ranks: queries and candidates, and the same documents in other wordings."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hydra.utils import instantiate
from omegaconf import DictConfig

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.lexicon import load_lexicon, load_one_way, load_pairs
from backpack_rank.data.neutral_queries import load_neutral_queries, neutral_by_lexicon
from backpack_rank.data.swap import WordSwap
from backpack_rank.data.wordings import Wordings
from backpack_rank.evaluation.swap_stability import SwapCounts, swapped_collection
from backpack_rank.pipelines.common import candidates_of, load_split

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Swapped:
    """The candidates of the bias set that a lexicon swap changes.

    Attributes:
        collection: texts of all candidates, swapped, under the ids of the originals.
        candidates: the changed documents of each query; queries without any are left out.
        counts: how much was swapped.
    """

    collection: Collection
    candidates: Run
    counts: SwapCounts


@dataclass(frozen=True)
class Worded:
    """A collection that holds every document in a wording for each group (Grep-BiasIR)."""

    collection: Collection
    candidates: Run
    wordings: Wordings


@dataclass(frozen=True)
class Workload:
    """Everything that a system ranks.

    Attributes:
        test: queries with judgements.
        bias: neutral queries; part of ``test`` unless the data has a bias collection of its own.
        separate: whether the bias set is of another collection than ``test``.
        stage: name of the first stage.
        candidates: of ``test``.
        bias_candidates: of ``bias``.
        swapped: for the stability under swaps, or None.
        worded: for score gaps between wordings, or None.
    """

    test: Collection
    bias: Collection
    separate: bool
    stage: str
    candidates: Run
    bias_candidates: Run
    swapped: Swapped | None = None
    worded: Worded | None = None


def load_workload(config: DictConfig, data: DictConfig, lexicon: str, split: str = "test") -> Workload:
    """Queries and candidates of a split, its bias set, and their counterparts.

    With ``alpha=auto`` the wordings are shared out: half of their queries, chosen by a hash, belong to ``dev``.

    Raises:
        ValueError: the data has no such split, or no query of it is neutral.
    """
    test = load_split(data, split)
    separate = split == "test" and data.get("bias") is not None
    bias = _bias_set(config, data, test, load_split(data, "bias") if separate else None, lexicon, split)
    stage, candidates = candidates_of(data, split, test)
    bias_candidates = candidates_of(data, "bias", bias)[1] if separate else only(candidates, bias)
    work = Workload(test, bias, separate, stage, candidates, bias_candidates)
    if config.swap:
        work = replace(work, swapped=_swapped(config.attribute, bias, bias_candidates))
    half = split if config.alpha == "auto" else None
    if config.get("wordings") is not None:
        work = replace(work, worded=_worded(config.wordings, half))
    elif data.get("wordings") is not None:
        work = replace(work, worded=_worded(data, half))
    return work


def bias_set(config: DictConfig, data: DictConfig, test: Collection, lexicon: str) -> tuple[Collection, bool]:
    """The bias set of a test split, and whether it is of another collection."""
    separate = data.get("bias") is not None
    return _bias_set(config, data, test, load_split(data, "bias") if separate else None, lexicon, "test"), separate


def only(run: Run, collection: Collection) -> Run:
    """The part of a run that ranks for queries of the collection, in the collection's order."""
    return {query_id: run[query_id] for query_id in collection.queries if query_id in run}


def bias_set_in_words(config: DictConfig, bias: Collection) -> str:
    """Name and size of the bias set."""
    count = f"{len(bias.queries)} {'query' if len(bias.queries) == 1 else 'queries'}"
    return f"{bias.name}: {count.replace(' ', f' {config.attribute.name}-neutral ')}"


def _bias_set(
    config: DictConfig, data: DictConfig, test: Collection, own: Collection | None, lexicon: str, split: str
) -> Collection:
    collection = own or test
    # The published sets are of test collections, and neutral as to gender alone.
    if split == "test" and data.get("bias_queries") is not None and config.attribute.name == "gender":
        wanted: Iterable[str] = load_neutral_queries(data.bias_queries)
        why = f"none of the queries of {data.bias_queries} is in {collection.name}"
    else:
        wanted = neutral_by_lexicon(collection.queries, load_lexicon(lexicon))
        why = f"every query of {collection.name} has a word of {lexicon}"
    chosen = collection.only(wanted)
    if not chosen.queries:
        raise ValueError(f"the bias set is empty: {why}; set data.bias and data.bias_queries")
    return chosen


def _swapped(attribute: DictConfig, bias: Collection, candidates: Run) -> Swapped | None:
    names = load_lexicon(attribute.names) if attribute.get("names") else None
    one_way = load_one_way(attribute.one_way) if attribute.get("one_way") else None
    swap = WordSwap(load_pairs(attribute.swap_pairs, tuple(attribute.sides)), names, one_way)
    ids = list(dict.fromkeys(doc_id for documents in candidates.values() for doc_id in documents))
    if not ids:
        return None
    collection, counts = swapped_collection(bias, swap, ids)
    changed = {
        query_id: {doc_id: score for doc_id, score in documents.items() if doc_id in counts.changed}
        for query_id, documents in candidates.items()
    }
    return Swapped(collection, {query_id: documents for query_id, documents in changed.items() if documents}, counts)


def _worded(node: DictConfig, half: str | None) -> Worded:
    collection: Collection = instantiate(node.test, _convert_="all")
    wordings: Wordings = instantiate(node.wordings, _convert_="all")
    if half is not None:
        collection = collection.only(q for q in collection.queries if (_hash(q) % 2 == 0) == (half == "dev"))
    return Worded(collection, candidates_of(node, "test", collection)[1], wordings)


def _hash(text: str) -> int:
    return hashlib.blake2b(text.encode(), digest_size=4).digest()[0]
