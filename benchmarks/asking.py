"""What rankers do for judged queries that ask for a group, and what the dial would take from them.

::

    BACKPACK_RANK_DATA=FOLDER python -m benchmarks.asking cosine=FOLDER backpack=FOLDER ...

Of the queries of each collection that have a class word or a need: nDCG@10 over BM25's first
documents, and the swap change of these. Of every ranker as it is, which is also what it gives at
any alpha under the rule for such queries, and at alpha 0 without the rule (``policy.queries=all``).
Behind nDCG@10 over all queries stands the difference to the ranker that was named first, with a 95%
interval. Rankers named ``NAME-seed0``, ``NAME-seed1`` ... are one: of each query, the mean over them
is taken. A ranker whose values are in the record is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import backpack_rank
from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.sources.beir import load_beir
from backpack_rank.evaluation.bootstrap import bootstrap_intervals
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.swap_stability import swap_stability
from backpack_rank.pipelines.evaluation_data import swapped_candidates
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policy_names import DefaultPolicy
from benchmarks.report import command_line, machine, record_file, write_record

PARTS = {
    "MS MARCO": (("dl20", "test"), ("msmarco_dev600", "test")),
    "Natural Questions": (("nq_open_oracle", "dev"), ("nq_open_oracle", "test")),
    "SQuAD": (("squad", "test"),),
    "NFCorpus": (("nfcorpus", "dev"), ("nfcorpus", "test")),
}
"""The splits of each collection; ``recipe=minilm`` trains on none of them."""
NDCG = "nDCG@10"
SWAP = "swap change/std (swapped)"
Values = dict[str, float]
"""Of one ranker in one setting, by query."""


def main() -> None:
    """Rank, measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rankers", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--queries", type=int, default=40, help="of each split, at most")
    parser.add_argument("--depth", type=int, default=50, help="candidates of a query")
    parser.add_argument("--record", type=Path, default=record_file("asking.json", quick=False))
    given = parser.parse_args()
    values: dict[str, dict[str, Values]] = {}
    if given.record.exists():
        values = json.loads(given.record.read_text(encoding="utf-8"))["values"]
    for named in given.rankers:
        name, _, folder = named.partition("=")
        if name not in values:
            values[name] = measured(folder, given.queries, given.depth)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            about = {"command": command_line("asking"), "machine": machine(device)}
            write_record(given.record, {**about, "values": values})
    print_means(values)


def measured(folder: str, queries: int, depth: int) -> dict[str, Values]:
    """Values of a ranker as it is and without the rule at alpha 0, by setting and measure."""
    attribute = Attribute.named("gender")
    reranker = backpack_rank.load(folder)
    assert isinstance(reranker, PointwiseReranker)
    settings = {
        "as it is": reranker.with_policy(DefaultPolicy.of(attribute), 1.0),
        "alpha 0 without the rule": reranker.with_policy(
            DefaultPolicy.of(attribute, queries="all"), 0.0
        ),
    }
    found: dict[str, Values] = {}
    for part, splits in PARTS.items():
        for name, split in splits:
            collection = asking(name, split, queries, attribute)
            candidates = Bm25(depth=depth).candidates(collection)
            for setting, turned in settings.items():
                run = turned.rerank(candidates, collection)
                values = {
                    NDCG: effectiveness(run, collection.qrels, [NDCG]).values[NDCG],
                    SWAP: swap_change(turned, run, collection, attribute),
                }
                for measure, of_query in values.items():
                    named = {f"{part}/{query}": value for query, value in of_query.items()}
                    found.setdefault(f"{setting}, {measure}", {}).update(named)
    return found


def swap_change(
    reranker: PointwiseReranker, run: Run, collection: Collection, attribute: Attribute
) -> Mapping[str, float]:
    """Of the queries with a candidate that a swap changes, in standard deviations of the scores."""
    swapped = swapped_candidates(attribute, collection, run)
    assert swapped is not None
    after = reranker.rerank(swapped.candidates, swapped.collection)
    both: Run = {}
    for query_id, scores in run.items():
        both[query_id] = {**scores, **after.get(query_id, {})}
    return swap_stability(run, both, swapped.counts.changed).swapped.values[SWAP]


def asking(name: str, split: str, most: int, attribute: Attribute) -> Collection:
    """The queries of a collection that ask for a group, or so many that are drawn."""
    collection = load_beir(Path(os.environ["BACKPACK_RANK_DATA"], name), split)
    ids = [
        query_id for query_id, text in collection.queries.items() if attribute.group_queries(text)
    ]
    if len(ids) > most:
        ids = random.Random(0).sample(ids, most)
    return replace(
        collection,
        queries={query_id: collection.queries[query_id] for query_id in ids},
        # Judged queries without a ranking would count as 0.
        qrels={query_id: collection.qrels[query_id] for query_id in ids},
    )


def print_means(values: Mapping[str, Mapping[str, Values]]) -> None:
    """A line for each ranker, setting and measure; rankers that differ by their seeds are one."""
    seeds: dict[tuple[str, str], list[Values]] = {}
    for name, settings in values.items():
        for setting, of_query in settings.items():
            seeds.setdefault((name.partition("-seed")[0], setting), []).append(of_query)
    means = {key: mean_over_seeds(rows) for key, rows in seeds.items()}
    (first_name, first_setting), *_ = means
    first = means[first_name, first_setting]
    print(" | ".join(("ranker", "setting", *PARTS, "all", "less the first")))
    for (name, setting), of_query in means.items():
        row = [name, setting]
        for part in (*PARTS, ""):
            of_part = [value for query, value in of_query.items() if query.startswith(part)]
            row.append(f"{np.mean(of_part):.4f} ({len(of_part)})")
        if setting.endswith(NDCG):
            differences = np.array([of_query[query] - first[query] for query in first])
            ((low, high),) = bootstrap_intervals(differences[None])
            row.append(f"{differences.mean():+.3f} [{low:+.3f}, {high:+.3f}]")
        print(" | ".join(row))


def mean_over_seeds(rows: Sequence[Values]) -> Values:
    """Of each query."""
    return {query: float(np.mean([row[query] for row in rows])) for query in rows[0]}


if __name__ == "__main__":
    main()
