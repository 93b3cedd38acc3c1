"""A few documents at several alphas: their scores and ranks, and BM25 recalibrated (appendix D)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.trec import ranking
from backpack_rank.pipelines.evaluate import notes_on
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.score_table import ScoreRow, print_scores, write_scores
from backpack_rank.reranking.recalibration import deltas, recalibrate
from backpack_rank.senses.policies import check_alpha

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class ScoreTable(Experiment):
    """``task`` of ``evaluate.py experiment=recruitment``.

    Attributes:
        alphas: positions of the dial; 1 is always among them.
        weight: lambda of the recalibration, in standard deviations of the other ranker's scores.
    """

    alphas: Alphas = (1.0, 0.7, 0.5, 0.3, 0.0)
    weight: float = 1.0

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Score the test split at every alpha; write ``scores.csv`` and print the tables."""
        alphas = {1.0}
        for alpha in self.alphas:
            alphas.add(check_alpha(alpha))
        checkpoint = settings.find_ranker()
        dataset = settings.needed_dataset()
        collection = dataset.split("test")
        _, candidates = dataset.candidates("test", collection)
        unchanged = settings.reranker(checkpoint)
        runs: dict[float, Run] = {}
        for alpha in sorted(alphas, reverse=True):
            reranker = unchanged.with_policy(settings.policy, alpha)
            runs[alpha] = reranker.rerank(candidates, collection)
        rows = score_rows(collection, runs, bm25_scores(collection), self.weight)
        settings.save(folder)
        write_scores(folder / "scores.csv", rows)
        if quiet:
            return
        # Notes are those of the smallest alpha, which changes most.
        notes = notes_on(reranker, checkpoint)
        policy = f"Policy: {settings.policy.name}"
        written = f"Written to {folder}"
        print_scores(rows, "BM25", [*notes, policy, written])


def score_rows(
    collection: Collection, runs: dict[float, Run], other: Run, weight: float
) -> list[ScoreRow]:
    """Set scores and ranks side by side, for every query the best at alpha = 1 first.

    Args:
        collection: texts and groups.
        runs: scores at each alpha, 1 among them.
        other: another ranker's scores of the same documents.
        weight: of the recalibration.
    """
    recalibrated_runs: dict[float, Run] = {}
    for alpha, run in runs.items():
        if alpha != 1:
            changes = deltas(runs[1.0], run)
            recalibrated_runs[alpha] = recalibrate(other, changes, weight)
    ranks_by_alpha = {alpha: _ranks(run) for alpha, run in runs.items()}
    recalibrated_ranks = {alpha: _ranks(run) for alpha, run in recalibrated_runs.items()}
    other_ranks = _ranks(other)

    rows = []
    for query_id, scores in runs[1.0].items():
        for doc_id in ranking(scores):
            row = ScoreRow(
                query_id=query_id,
                doc_id=doc_id,
                group=collection.groups.get(doc_id, ""),
                scores=_values_of(runs, query_id, doc_id),
                ranks=_values_of(ranks_by_alpha, query_id, doc_id),
                other=other_ranks[query_id][doc_id],
                recalibrated=_values_of(recalibrated_ranks, query_id, doc_id),
            )
            rows.append(row)
    return rows


def bm25_scores(collection: Collection) -> Run:
    """BM25 scores of every document for every query, 0 where they share no word."""
    # As deep as the collection, so that every document with a word of the query has a score.
    candidates = Bm25(depth=len(collection.documents), cache=False).candidates(collection)
    doc_ids = [doc_id for doc_id, _ in collection.documents]
    run = {}
    for query_id in collection.queries:
        scores = candidates[query_id]
        run[query_id] = dict.fromkeys(doc_ids, 0.0) | scores
    return run


def _ranks(run: Run) -> dict[str, dict[str, int]]:
    """Ranks of the documents of each query, from 1."""
    ranks: dict[str, dict[str, int]] = {}
    for query_id, scores in run.items():
        ranks[query_id] = {}
        for rank, doc_id in enumerate(ranking(scores), start=1):
            ranks[query_id][doc_id] = rank
    return ranks


def _values_of(
    by_alpha: Mapping[float, Mapping[str, Mapping[str, Number]]], query_id: str, doc_id: str
) -> dict[float, Number]:
    """What one document of a query has at each alpha."""
    return {alpha: by_query[query_id][doc_id] for alpha, by_query in by_alpha.items()}
