"""A few documents under the dial: score and rank at each alpha, and another ranker recalibrated (appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.trec import ranking
from backpack_rank.experiments.grid import refuse_alpha
from backpack_rank.pipelines.evaluate import notes_on
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import Task
from backpack_rank.reporting.score_table import ScoreRow, print_scores, write_scores
from backpack_rank.reranking.recalibration import deltas, recalibrate
from backpack_rank.senses.policies import check_alpha


@dataclass(frozen=True)
class ScoreTable(Task):
    """``task`` of ``evaluate.py experiment=recruitment``.

    Attributes:
        alphas: positions of the dial; 1 is always among them.
        weight: lambda of the recalibration, in standard deviations of the other ranker's scores.
    """

    alphas: Alphas = (1.0, 0.7, 0.5, 0.3, 0.0)
    weight: float = 1.0

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Score the test split at every alpha; write ``scores.csv`` and print the tables."""
        refuse_alpha(settings)
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        checkpoint, dataset = settings.find_ranker(), settings.needed_dataset()
        collection = dataset.split("test")
        _, candidates = dataset.candidates("test", collection)
        plain = settings.reranker(checkpoint)
        rerankers = [plain.with_policy(settings.policy, alpha) for alpha in alphas]
        runs = [reranker.rerank(candidates, collection) for reranker in rerankers]
        rows = score_rows(collection, dict(zip(alphas, runs, strict=True)), bm25_scores(collection), self.weight)
        settings.save(folder)
        write_scores(folder / "scores.csv", rows)
        if not quiet:
            notes = [*notes_on(rerankers[-1], checkpoint), f"Policy: {settings.policy.name}", f"Written to {folder}"]
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
            own = {alpha: run[query_id][doc_id] for alpha, run in runs.items()}
            ranks, moved = ({a: of[doc_id] for a, of in ranked.items()} for ranked in (places, recalibrated))
            group = collection.groups.get(doc_id, "")
            rows.append(ScoreRow(query_id, doc_id, group, own, ranks, _ranks(other[query_id])[doc_id], moved))
    return rows


def bm25_scores(collection: Collection) -> Run:
    """BM25 scores of every document for every query; a document that shares no word with it has 0."""
    found = Bm25(depth=len(collection.documents), cache=False).candidates(collection)
    ids = [doc_id for doc_id, _ in collection.documents]
    return {query_id: {doc_id: found[query_id].get(doc_id, 0.0) for doc_id in ids} for query_id in collection.queries}


def _ranks(scores: dict[str, float]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ranking(scores), start=1)}
