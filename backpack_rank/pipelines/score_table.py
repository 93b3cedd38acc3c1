"""A few documents under the dial: score and rank at each alpha, and another ranker recalibrated (appendix D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.formats import ranking
from backpack_rank.evaluation.recalibration import deltas, recalibrate
from backpack_rank.pipelines.common import candidates_of, find_ranker, load_split, save_config
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.reporting.score_table import ScoreRow, print_scores, write_scores
from backpack_rank.senses.policy import check_alpha


@dataclass(frozen=True)
class ScoreTable:
    """``task`` of ``evaluate.py experiment=recruitment``.

    Attributes:
        alphas: positions of the dial; 1 is always among them.
        weight: lambda of the recalibration, in standard deviations of the other ranker's scores.
    """

    alphas: Sequence[float] = (1.0, 0.7, 0.5, 0.3, 0.0)
    weight: float = 1.0

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Score the test split at every alpha; write ``scores.csv`` and print the tables."""
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        turned = TurnedRanker(config, find_ranker(config.checkpoint, config.output))
        collection = load_split(config.data, "test")
        _, candidates = candidates_of(config.data, "test", collection)
        controls = [turned.control(alpha) for alpha in alphas]
        runs = turned.scorer.rank_controls(candidates, collection, controls, turned.cache)
        rows = score_rows(collection, dict(zip(alphas, runs, strict=True)), bm25_scores(collection), self.weight)
        save_config(folder, config)
        write_scores(folder / "scores.csv", rows)
        if not quiet:
            notes = [*turned.notes(controls[-1]), f"Policy: {turned.policy.name}", f"Written to {folder}"]
            print_scores(rows, "BM25", notes)


def score_rows(collection: Collection, runs: dict[float, Run], other: Run, weight: float) -> list[ScoreRow]:
    """One row per query and document, best at alpha = 1 first.

    Args:
        collection: texts and groups.
        runs: scores at each alpha, 1 among them.
        other: another ranker's scores of the same documents.
        weight: of the recalibration.
    """
    again = {alpha: recalibrate(other, deltas(runs[1.0], run), weight) for alpha, run in runs.items() if alpha != 1}
    rows = []
    for query_id, scores in runs[1.0].items():
        places = {alpha: _ranks(run[query_id]) for alpha, run in runs.items()}
        recalibrated = {alpha: _ranks(run[query_id]) for alpha, run in again.items()}
        for doc_id in ranking(scores):
            rows.append(
                ScoreRow(
                    query_id,
                    doc_id,
                    collection.groups.get(doc_id, ""),
                    {alpha: run[query_id][doc_id] for alpha, run in runs.items()},
                    {alpha: ranks[doc_id] for alpha, ranks in places.items()},
                    _ranks(other[query_id])[doc_id],
                    {alpha: ranks[doc_id] for alpha, ranks in recalibrated.items()},
                )
            )
    return rows


def bm25_scores(collection: Collection) -> Run:
    """BM25 scores of every document for every query; a document that shares no word with it has 0."""
    found = Bm25(depth=len(collection.documents), cache=False).candidates(collection)
    ids = [doc_id for doc_id, _ in collection.documents]
    return {query_id: {doc_id: found[query_id].get(doc_id, 0.0) for doc_id in ids} for query_id in collection.queries}


def _ranks(scores: dict[str, float]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ranking(scores), start=1)}
