"""From a first stage's run to lists of passages, and from their rankings to runs and measures."""

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
    """Show a listwise ranker the best documents of each query::

        rankings = ranker.rank(lists_of(first_stage_run, collection, depth=20))

    There is a list for each query of the collection that the run has, in the order of the scores.

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
    lists = []
    for query_id, query in collection.queries.items():
        if not run.get(query_id):
            continue
        grades = collection.qrels.get(query_id, {}).values()
        if judged and not any(grade > 0 for grade in grades):
            continue
        doc_ids = by_score(run[query_id])[:depth]
        texts = collection.documents.get_many(doc_ids)
        passages = tuple(texts[doc_id] for doc_id in doc_ids)
        lists.append(PassageList(query, passages, tuple(doc_ids), query_id))
    if not lists:
        which = "judged queries" if judged else "queries"
        raise ValueError(f"the run has documents for none of the {which} of {collection.name}")
    return lists


def run_of(lists: Sequence[PassageList], rankings: Sequence[Ranking]) -> Run:
    """Make a run of rankings: of m passages the first scores m, the last 1.

    >>> import numpy as np
    >>> passages = PassageList("a query", ("text", "other"), ids=("d1", "d2"), query_id="q1")
    >>> run_of([passages], [Ranking(np.array([1, 0]))])
    {'q1': {'d2': 2.0, 'd1': 1.0}}

    Raises:
        ValueError: a list without query id or ids, two lists of one query, or a document twice in a
            list.
    """
    run: Run = {}
    for passages, ranking in zip(lists, rankings, strict=True):
        query_id = passages.query_id
        if not query_id or not passages.ids:
            raise ValueError(
                f"query {query_id or passages.query!r}: a run needs ids of query and passages"
            )
        if query_id in run:
            raise ValueError(f"query {query_id!r} has two lists, a run has one for each query")
        doc_id, times = Counter(passages.ids).most_common(1)[0]
        if times > 1:
            raise ValueError(
                f"query {query_id!r}: document {doc_id!r} stands {times} times in its list"
            )
        scores = {}
        for rank, place in enumerate(ranking.order.tolist()):
            scores[passages.ids[place]] = float(len(passages) - rank)
        run[query_id] = scores
    return run


def effectiveness_of(
    lists: Sequence[PassageList],
    rankings: Sequence[Ranking],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = ("nDCG@10",),
) -> PerQuery:
    """Measures of effectiveness of rankings::

        effectiveness_of(lists, ranker.rank(lists), collection.qrels).mean("nDCG@10")

    Queries are those of the lists that have a relevant document.

    Raises:
        ValueError: as :func:`run_of`, or no list's query has a relevant document.
    """
    qrels_of_lists: Qrels = {}
    for passages in lists:
        if passages.query_id in qrels:
            qrels_of_lists[passages.query_id] = dict(qrels[passages.query_id])
    return effectiveness(run_of(lists, rankings), qrels_of_lists, measures)
