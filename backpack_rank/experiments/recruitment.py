"""A few documents under the dial: score and rank at each alpha, and another ranker recalibrated
(appendix D).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        checkpoint, dataset = settings.find_ranker(), settings.needed_dataset()
        collection = dataset.split("test")
        _, candidates = dataset.candidates("test", collection)
        unchanged = settings.reranker(checkpoint)
        rerankers = [unchanged.with_policy(settings.policy, alpha) for alpha in alphas]
        runs = [reranker.rerank(candidates, collection) for reranker in rerankers]
        run_by_alpha = dict(zip(alphas, runs, strict=True))
        rows = score_rows(collection, run_by_alpha, bm25_scores(collection), self.weight)
        settings.save(folder)
        write_scores(folder / "scores.csv", rows)
        if not quiet:
            policy, written = f"Policy: {settings.policy.name}", f"Written to {folder}"
            notes = [*notes_on(rerankers[-1], checkpoint), policy, written]
            print_scores(rows, "BM25", notes)


def score_rows(
    collection: Collection, runs: dict[float, Run], other: Run, weight: float
) -> list[ScoreRow]:
    """Use it to set scores and ranks of every query and document side by side, best at alpha = 1
    first.

    Args:
        collection: texts and groups.
        runs: scores at each alpha, 1 among them.
        other: another ranker's scores of the same documents.
        weight: of the recalibration.
    """
    changed = [alpha for alpha in runs if alpha != 1]
    recalibrated_runs = {}
    for alpha in changed:
        changes = deltas(runs[1.0], runs[alpha])
        recalibrated_runs[alpha] = recalibrate(other, changes, weight)
    rows = []
    for query_id, scores in runs[1.0].items():
        ranks = {alpha: _ranks(run[query_id]) for alpha, run in runs.items()}
        other_ranks = _ranks(other[query_id])
        recalibrated = {alpha: _ranks(run[query_id]) for alpha, run in recalibrated_runs.items()}
        for doc_id in ranking(scores):
            rows.append(
                ScoreRow(
                    query_id=query_id,
                    doc_id=doc_id,
                    group=collection.groups.get(doc_id, ""),
                    scores={alpha: run[query_id][doc_id] for alpha, run in runs.items()},
                    ranks={alpha: of_alpha[doc_id] for alpha, of_alpha in ranks.items()},
                    other=other_ranks[doc_id],
                    recalibrated={alpha: recalibrated[alpha][doc_id] for alpha in changed},
                )
            )
    return rows


def bm25_scores(collection: Collection) -> Run:
    """BM25 scores of every document for every query; a document that shares no word with it has
    0.
    """
    # As deep as the collection, so that every document with a word of the query has a score.
    candidates = Bm25(depth=len(collection.documents), cache=False).candidates(collection)
    doc_ids = [doc_id for doc_id, _ in collection.documents]
    run = {}
    for query_id in collection.queries:
        scores = candidates[query_id]
        run[query_id] = {doc_id: scores.get(doc_id, 0.0) for doc_id in doc_ids}
    return run


def _ranks(scores: dict[str, float]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ranking(scores), start=1)}
