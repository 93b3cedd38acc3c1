"""Between runs and lists of passages: lists from a first stage's run, and runs and measures from
rankings of lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from backpack_rank.data.collection import Collection, Qrels, Run
from backpack_rank.data.trec import ranking as by_score
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.position.lists.base import Ranking
from backpack_rank.position.lists.passages import PassageList


def lists_of(
    run: Run, collection: Collection, depth: int | None = 100, judged: bool = False
) -> list[PassageList]:
    """A list for each query of the collection that the run has: its best documents, in the order of
    their scores.

    Args:
        run: of a first stage.
        collection: gives the texts.
        depth: documents of each list at most; None: all.
        judged: leave out queries without a relevant document, which no measure of effectiveness
            counts.

    Raises:
        ValueError: no query of the collection is in the run.
        KeyError: documents that the collection does not have; names them.
    """
    found = []
    for query_id, query in collection.queries.items():
        if not run.get(query_id) or (
            judged and not any(g > 0 for g in collection.qrels.get(query_id, {}).values())
        ):
            continue
        doc_ids = by_score(run[query_id])[:depth]
        texts = collection.documents.get_many(doc_ids)
        found.append(
            PassageList(query, tuple(texts[doc_id] for doc_id in doc_ids), tuple(doc_ids), query_id)
        )
    if not found:
        which = "judged queries" if judged else "queries"
        raise ValueError(f"the run has documents for none of the {which} of {collection.name}")
    return found


def run_of(lists: Sequence[PassageList], rankings: Sequence[Ranking]) -> Run:
    """Rankings as a run; scores are m for the first passage of m, m - 1 for the second, ... 1 for
    the last.

    Raises:
        ValueError: a list without query id or ids, two lists of one query, or a document twice in a
            list.
    """
    run: Run = {}
    for one, ranking in zip(lists, rankings, strict=True):
        if not one.query_id or not one.ids:
            raise ValueError(
                f"query {one.query_id or one.query!r}: a run needs ids of query and passages"
            )
        if one.query_id in run:
            raise ValueError(f"query {one.query_id!r} has two lists, a run has one for each query")
        doc_id, times = Counter(one.ids).most_common(1)[0]
        if times > 1:
            raise ValueError(
                f"query {one.query_id!r}: document {doc_id!r} stands {times} times in its list"
            )
        run[one.query_id] = {
            one.ids[place]: float(len(one) - rank)
            for rank, place in enumerate(ranking.order.tolist())
        }
    return run


def effectiveness_of(
    lists: Sequence[PassageList],
    rankings: Sequence[Ranking],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = ("nDCG@10",),
) -> PerQuery:
    """Measures of effectiveness of rankings; queries are those of the lists that have a relevant
    document.

    Raises:
        ValueError: as :func:`run_of`, or no list's query has a relevant document.
    """
    own: Qrels = {one.query_id: dict(qrels[one.query_id]) for one in lists if one.query_id in qrels}
    return effectiveness(run_of(lists, rankings), own, measures)
