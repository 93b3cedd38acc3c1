"""A transformer of PyTerrier that re-ranks, and measures of fairness for ``pt.Experiment``.

It needs PyTerrier 1.1 or newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import pandas as pd
import pyterrier as pt

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import MemoryStore
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.magnitudes import GroupMagnitudes
from backpack_rank.evaluation.measure_names import parse_measures
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rankings import check_threshold, log_below_threshold, reaches
from backpack_rank.senses.policies import Policy


class BackpackReranker(pt.Transformer):
    """A stage of a pipeline: it scores the documents of the earlier stage (R -> R).

    >>> folder = "outputs/train/DATE/ranker"
    >>> bm25 >> BackpackReranker(folder, alpha=0.5, policy="paired_tokens")  # doctest: +SKIP

    One loaded ranker can serve several positions of the dial::

        BackpackReranker(reranker, alpha=0)
    """

    schematic = {"label": "Backpack"}

    def __init__(
        self,
        model: str | Path | PointwiseReranker,
        alpha: float | None = None,
        policy: Policy | str | None = None,
        *,
        batch_size: int = 4096,
        text_field: str = "text",
        verbose: bool = False,
        device: str = "auto",
        score_threshold: float | None = None,
        long_documents: str | None = None,
        max_chunks_per_doc: int | None = None,
        chunk_overlap: int | None = None,
    ) -> None:
        """
        Args:
            model: what :func:`backpack_rank.load` takes, or gives.
            alpha, policy: as of ``PointwiseReranker.predict``.
            batch_size: pairs that are scored together; how many texts the network reads at once is
                up to the ranker.
            text_field: column of the documents' texts.
            verbose: show progress.
            device: of a ranker that is loaded here.
            score_threshold: rows with lower scores are left out, and counted in the log; None:
                none.
            long_documents, max_chunks_per_doc, chunk_overlap: as of ``PointwiseReranker.reading``.

        Raises:
            ValueError: the ranker ranks lists, or the policy or an option does not fit it.
        """
        reranker = model if isinstance(model, PointwiseReranker) else load(model, device=device)
        if not isinstance(reranker, PointwiseReranker):
            raise ValueError(
                f"{model} ranks lists; this transformer takes rankers that score one document at a "
                "time"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        # Raises here, and not in the middle of a pipeline, where alpha or policy does not fit.
        reranker.at(alpha, policy)
        check_threshold(score_threshold)
        self.model = reranker.reading(long_documents, max_chunks_per_doc, chunk_overlap)
        self.score_threshold = score_threshold
        # Kept because pyterrier reads a transformer's arguments from attributes of their names.
        self.long_documents = long_documents
        self.max_chunks_per_doc = max_chunks_per_doc
        self.chunk_overlap = chunk_overlap
        self.alpha = alpha
        self.policy = policy
        self.batch_size = batch_size
        self.text_field = text_field
        self.verbose = verbose
        self.device = device

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The rows with new scores and ranks."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field], context=self)
        rows = inp.drop(columns=["score", "rank"], errors="ignore")
        pairs = list(zip(rows["query"], rows[self.text_field], strict=True))
        starts: Any = range(0, len(pairs), self.batch_size)
        if self.verbose:
            starts = pt.tqdm(starts, desc="Backpack", unit="batch")
        scores: list[float] = []
        for start in starts:
            batch = pairs[start : start + self.batch_size]
            scores += self.model.predict(batch, alpha=self.alpha, policy=self.policy).tolist()
        rows = rows.assign(score=pd.Series(scores, index=rows.index, dtype=float))
        is_kept = reaches(rows["score"].to_numpy(), self.score_threshold)
        log_below_threshold(int((~is_kept).sum()), len(rows), self.score_threshold)
        rows = rows[is_kept]
        return pt.model.add_ranks(rows)

    def __repr__(self) -> str:
        return f"BackpackReranker({self.model.name}, alpha={self.alpha}, policy={self.policy})"


def fairness_measures(
    names: Sequence[str],
    candidates: pd.DataFrame,
    *,
    attribute: str = "gender",
    text_field: str = "text",
) -> list[ir_measures.Measure]:
    """Measure bias in ``pt.Experiment``: gives measures for its ``eval_metrics``.

    These are measures such as ``RaB(tf)@10``, ``ARaB(tf)@10`` and ``NFaiRR@10``.

    >>> bias = fairness_measures(["RaB@10"], bm25(queries))  # doctest: +SKIP
    >>> pt.Experiment(
    ...     [bm25, pipeline], queries, qrels, ["ndcg_cut_10", *bias]
    ... )  # doctest: +SKIP

    Args:
        names: as in ``evaluate.py``.
        candidates: what the first stage gives, with texts: its words are counted, and it is the
            background of NFaiRR.
        attribute: whose words are counted.
        text_field: column of the documents' texts.

    Raises:
        ValueError: an unknown measure or attribute, or the candidates lack a column.
    """
    pt.validate.result_frame(candidates, extra_columns=[text_field])
    texts = dict(zip(candidates["docno"], candidates[text_field], strict=True))
    background: dict[str, dict[str, float]] = {}
    for row in candidates[["qid", "docno", "score"]].itertuples(index=False):
        background.setdefault(row.qid, {})[row.docno] = row.score
    lexicon = Attribute.named(attribute).lexicon()
    magnitudes = GroupMagnitudes.of(texts, MemoryStore(texts), lexicon)
    context = FairnessContext(magnitudes, background=background)
    return [_bound(context, name, measure) for name, measure in parse_measures(names).items()]


def _bound(
    context: FairnessContext, name: str, measure: ir_measures.Measure
) -> ir_measures.Measure:
    """The measure with the word counts of the candidates.

    ``pt.Experiment`` gives a measure runs and qrels alone.
    """

    def values(_qrels: pd.DataFrame, frame: pd.DataFrame) -> Iterator[tuple[str, float]]:
        run: dict[Any, dict[str, float]] = {}
        for query_id, rows in frame.groupby("query_id", sort=False):
            run[query_id] = dict(zip(rows["doc_id"], rows["score"].astype(float), strict=True))
        if run:
            yield from context.measure(run, {name: measure}).values[name].items()

    return ir_measures.define(values, name, support_cutoff=False)
