"""What attribute senses do to queries that hold words of the attribute: nDCG@10 by kind of query,
at alpha 1 and 0.

::

    python -m benchmarks.query_words RANKER [RANKER ...]

RANKER is a folder that train.py wrote, such as one of ``recipe=minilm`` and one of ``recipe=minilm
model.ranker.attribute_senses_where=all``. The queries are SQuAD's test questions, ``--queries``
with a word that a swap replaces and as many without one, each with BM25's first
``--depth`` paragraphs. Prints a table; ``--json FILE`` keeps the values of each query.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir

from backpack_rank.data.collection import Collection
from backpack_rank.evaluation.bootstrap import bootstrap_intervals
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.files import resource_folder, write_text
from backpack_rank.pipelines.chosen_data import dataset_of
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker

MEASURE = "nDCG@10"
ALPHAS = (1.0, 0.0)


def main() -> None:
    """Rank, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rankers", nargs="+", type=Path, help="folders of rankers")
    parser.add_argument("--queries", type=int, default=300, help="of each kind")
    parser.add_argument("--depth", type=int, default=20, help="of BM25")
    parser.add_argument(
        "--cache", type=Path, default=Path("build/query_words"), help="folder for sense vectors"
    )
    parser.add_argument("--json", type=Path, default=None, help="file for the values of each query")
    given = parser.parse_args()
    register_resolvers()
    with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
        config = compose(
            "evaluate", overrides=["data=squad", f"+data.first_stage.depth={given.depth}"]
        )
    dataset = dataset_of(config.data)
    collection = dataset.split("test")
    found: dict[str, dict[str, float]] = {}
    for folder in given.rankers:
        # Sense vectors are computed once for both alphas.
        reranker = load(folder, cache=given.cache)
        assert isinstance(reranker, PointwiseReranker)
        kinds = queries_by_kind(collection, reranker, given.queries)
        for kind, query_ids in kinds.items():
            part = collection.select_queries(query_ids)
            _, candidates = dataset.candidates("test", part)
            for alpha in ALPHAS:
                run = reranker.at(alpha).rerank(candidates, part)
                values = effectiveness(run, part.qrels, [MEASURE]).values[MEASURE]
                found[f"{folder} | {kind} | {alpha:g}"] = values
                print(line(str(folder), kind, alpha, np.array(list(values.values()))), flush=True)
    if given.json is not None:
        write_text(given.json, json.dumps(found) + "\n")


def queries_by_kind(
    collection: Collection, reranker: PointwiseReranker, most: int
) -> dict[str, list[str]]:
    """Query ids with a class word and without one, the same for every ranker."""
    swap = reranker.attribute.swap()
    kinds: dict[str, list[str]] = {"with a class word": [], "without": []}
    for query_id, text in sorted(collection.queries.items()):
        kinds["with a class word" if swap(text).swaps else "without"].append(query_id)
    rng = np.random.default_rng(0)
    return {kind: rng.permutation(query_ids)[:most].tolist() for kind, query_ids in kinds.items()}


def line(ranker: str, kind: str, alpha: float, values: np.ndarray) -> str:
    """A row: mean with its bootstrap interval over the queries."""
    low, high = bootstrap_intervals(values[None])[0]
    return f"| {ranker} | {kind} | {alpha:g} | {len(values)} | {values.mean():.4f} [{low:.4f}, {high:.4f}] |"


if __name__ == "__main__":
    main()
