"""Which document stands at which place of every list, as one array for all queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from backpack_rank.data.collection import Run
from backpack_rank.evaluation.results import check_finite


@dataclass(frozen=True, eq=False)
class RankedDocuments:
    """The first places of every list; every list is sorted once, for all measures and cut-offs.

    Attributes:
        query_ids: queries in order.
        rows: int64 [n_queries, depth], the document's row in the table of magnitudes, -1 past the
            end of a list.
        lengths: int64 [n_queries], number of documents up to ``depth``.
    """

    query_ids: tuple[str, ...]
    rows: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(
        cls,
        lists: Mapping[str, Mapping[str, float]],
        rows: Mapping[str, int],
        depth: int,
        what: str,
    ) -> RankedDocuments:
        """Places of these lists.

        Args:
            lists: ``{query id: {document id: score}}``.
            rows: ``{document id: row}``.
            depth: how many places.
            what: what the lists are, for the error: "the run".

        Raises:
            KeyError: documents without a row; names them.
            ValueError: a score that is not finite.
        """
        placed = np.full((len(lists), depth), -1, dtype=np.int64)
        lengths = np.zeros(len(lists), dtype=np.int64)
        missing: dict[str, None] = {}
        for index, (query_id, scores) in enumerate(lists.items()):
            top = _top(query_id, scores, depth)
            lengths[index] = len(top)
            # Nearly always every document has a row, so they are looked for one by one only when
            # this fails.
            try:
                placed[index, : len(top)] = list(map(rows.__getitem__, top))
            except KeyError:
                for doc_id in top:
                    if doc_id not in rows:
                        missing[doc_id] = None
        if missing:
            raise KeyError(
                f"{len(missing)} documents of {what} have no magnitude: {shown(list(missing))}; "
                "compute magnitudes of every document that is looked at"
            )
        return cls(tuple(lists), placed, lengths)

    def take(self, values: np.ndarray) -> np.ndarray:
        """Values [n_documents] at their places [n_queries, depth], 0 past the end of a list."""
        # Row -1, past the end of a list, is the appended 0.
        with_zero = np.append(values.astype(np.float64, copy=False), 0.0)
        return with_zero[self.rows]

    @property
    def counts(self) -> np.ndarray:
        """Number of documents in the first t places, float64 [n_queries, depth], column t - 1."""
        cutoffs = np.arange(1, self.rows.shape[1] + 1)
        return np.minimum(self.lengths[:, None], cutoffs).astype(np.float64)


def top_documents(runs: Iterable[Run], depth: int) -> list[str]:
    """Distinct ids of the documents in the first ``depth`` places of any list of these runs."""
    doc_ids: dict[str, None] = {}
    for run in runs:
        for query_id, scores in run.items():
            doc_ids.update(dict.fromkeys(_top(query_id, scores, depth)))
    return list(doc_ids)


def shown(ids: Sequence[str]) -> str:
    """Up to five ids for an error."""
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(repr(identifier) for identifier in ids[:5]) + more


def _top(query_id: str, scores: Mapping[str, float], depth: int) -> list[str]:
    """The first ``depth`` of :func:`~backpack_rank.data.trec.ranking`.

    The rest of a long list is not sorted.
    """
    values = np.fromiter(scores.values(), np.float64, len(scores))
    if not np.isfinite(values).all():
        check_finite({query_id: scores})
    # Documents that tie with the last place are all kept until their ids have decided.
    if (values[1:] <= values[:-1]).all():  # in order of score, as most runs are
        if len(values) > depth:
            values = values[: np.searchsorted(-values, -values[depth - 1], side="right")]
        ranked = list(islice(scores, len(values)))
    else:
        kept = np.arange(len(values))
        if len(values) > depth:
            last = len(values) - depth
            kept = np.flatnonzero(values >= np.partition(values, last)[last])
        kept = kept[np.argsort(-values[kept], kind="stable")]
        values = values[kept]
        doc_ids = list(scores)
        ranked = [doc_ids[index] for index in kept.tolist()]
    if (values[1:] == values[:-1]).any():
        ranked.sort(key=lambda doc_id: (-scores[doc_id], doc_id))
    return ranked[:depth]
