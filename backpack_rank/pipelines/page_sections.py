"""Sections of the report page that need texts or the ranker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.trec import ranking
from backpack_rank.reporting.explanation import explanation_html, write_profiles
from backpack_rank.reporting.page.data import ChangedQuery, Changes, RankedDocument, SensePanel
from backpack_rank.reporting.page.text import mark_words
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.profiles import sense_profiles

QUERIES = 10
"""Queries that change most, of the first pair of rankings."""
FURTHER_QUERIES = 3
"""Those of each further pair."""
DOCUMENTS = 10
"""Documents shown of each ranking."""
ATTRIBUTED_PAIRS = 3
LEFT_OUT = 64
"""Words that are left out of one of these pairs by themselves."""
PROFILED_PAIRS = 128


@dataclass(frozen=True)
class RankingPair:
    """Two rankings of the same queries to show side by side.

    Attributes:
        before: label of the first.
        after: label of the second.
        runs: both rankings.
        collection: queries and texts.
    """

    before: str
    after: str
    runs: tuple[Run, Run]
    collection: Collection


def changed_queries(rankings: RankingPair, lexicon: Lexicon, count: int = QUERIES) -> Changes | str:
    """The ``count`` queries whose first documents change most, with texts.

    The change of a query sums over its documents

        |1/log2(1 + rank before) - 1/log2(1 + rank after)|

    where 1/log2(...) is 0 past the first ten.

    Returns:
        The queries, or a sentence that says that there are none.
    """
    before, after = rankings.runs
    changes = {}
    for query_id in before:
        if query_id in after:
            changes[query_id] = _change_of_ranking(before[query_id], after[query_id])
    most_first = sorted(changes, key=lambda query_id: -changes[query_id])
    chosen = [query_id for query_id in most_first if changes[query_id] > 0][:count]
    if not chosen:
        return f"No query has other documents, or another order, in its first {DOCUMENTS} places."
    collection = rankings.collection
    texts = _texts(collection, rankings.runs, chosen)
    queries = []
    for query_id in chosen:
        query = ChangedQuery(
            query_id=query_id,
            text=collection.queries[query_id],
            before=_documents(before[query_id], texts, lexicon),
            after=_documents(after[query_id], texts, lexicon),
        )
        queries.append(query)
    order = (
        f"Chosen by how far documents move in the first {DOCUMENTS} places, "
        "high ranks counting more."
    )
    return Changes(rankings.before, rankings.after, tuple(queries), order)


def senses_of(
    folder: Path,
    reranker: PointwiseReranker,
    collection: Collection,
    run: Run,
    lexicon: Lexicon,
) -> SensePanel | str:
    """What each sense is about, over the first documents of the rankings.

    All of it goes to ``senses.json``.

    Returns:
        The panel, or a sentence that says why there is none.
    """
    pairs = _sample(collection, run)
    sensitivity, scorer = reranker.sensitivity, reranker.local_scorer
    assert sensitivity is not None
    try:
        profiles = sense_profiles(
            scorer.ranker,
            scorer.pair_tokenizer,
            pairs,
            lexicon,
            sensitivity=sensitivity.values,
            count=6,
        )
    except (TypeError, ValueError) as error:
        return f"Senses could not be looked at: {error}."
    write_profiles(folder / "senses.json", profiles.senses)
    counts = ", ".join(f"{count} {group}" for group, count in profiles.documents.items())
    weights = reranker.hook.views[0].sense_weights
    return SensePanel(
        profiles=profiles.senses,
        weights=None if weights is None else weights.tolist(),
        caption=(
            f"Contributions at alpha=1 over {len(pairs)} documents of the rankings ({counts})."
        ),
    )


def attributions(
    reranker: PointwiseReranker, rankings: RankingPair, lexicon: Lexicon
) -> tuple[tuple[str, Markup], ...]:
    """The pairs whose score alpha changes most, of different queries; else the first documents.

    A score of several texts does not split into senses: then they are explained as the ranker
    scores them at alpha = 1. Of a ranker without senses, words are left out.

    Returns:
        Titles, and what each sense and token contributes, or what each word does, as HTML.
    """
    explained = reranker
    if not reranker.hook.reads_one_text and reranker.at(1.0).splits_into_senses:
        explained = reranker.at(1.0)
    before, after = rankings.runs
    changes = []
    for query_id, scores in before.items():
        for doc_id, score in scores.items():
            if doc_id in after.get(query_id, {}):
                changes.append((abs(after[query_id][doc_id] - score), query_id, doc_id))
    changes.sort(key=lambda change: -change[0])
    collection = rankings.collection
    sections: dict[str, tuple[str, Markup]] = {}
    for _, query_id, doc_id in changes:
        if len(sections) == ATTRIBUTED_PAIRS:
            break
        if query_id in sections:
            continue
        query = collection.queries[query_id]
        document = collection.documents.get_many([doc_id])[doc_id]
        explanation = explained.explain(query, document, lexicon, at_most=LEFT_OUT)
        html = explanation_html(explanation)
        sections[query_id] = f"{query} ({query_id}): document {doc_id}", Markup(html)
    return tuple(sections.values())


def _change_of_ranking(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    weights, weights_after = _weights_of_ranks(before), _weights_of_ranks(after)
    change = 0.0
    for doc_id in {**weights, **weights_after}:
        change += abs(weights.get(doc_id, 0.0) - weights_after.get(doc_id, 0.0))
    return change


def _weights_of_ranks(scores: Mapping[str, float]) -> dict[str, float]:
    """The discount of nDCG for each of the first documents."""
    weights = {}
    for rank, doc_id in enumerate(ranking(scores)[:DOCUMENTS], start=1):
        weights[doc_id] = 1 / math.log2(1 + rank)
    return weights


def _texts(collection: Collection, runs: Sequence[Run], query_ids: Sequence[str]) -> dict[str, str]:
    """Texts of the first documents, as far as the collection has them."""
    doc_ids = set()
    for query_id in query_ids:
        for run in runs:
            doc_ids.update(ranking(run[query_id])[:DOCUMENTS])
    known = [doc_id for doc_id in doc_ids if doc_id in collection.documents]
    return collection.documents.get_many(known)


def _documents(
    scores: Mapping[str, float], texts: Mapping[str, str], lexicon: Lexicon
) -> tuple[RankedDocument, ...]:
    documents = []
    for doc_id in ranking(scores)[:DOCUMENTS]:
        spans = mark_words(texts[doc_id], lexicon) if doc_id in texts else None
        documents.append(RankedDocument(doc_id, spans, scores[doc_id]))
    return tuple(documents)


def _sample(collection: Collection, run: Run) -> list[tuple[str, str]]:
    """(query, document) texts of first documents, rank by rank, until there are enough."""
    first_documents = {query_id: ranking(scores)[:DOCUMENTS] for query_id, scores in run.items()}
    ids = []
    for rank in range(DOCUMENTS):
        for query_id, doc_ids in first_documents.items():
            if rank < len(doc_ids):
                ids.append((query_id, doc_ids[rank]))
    ids = ids[:PROFILED_PAIRS]
    texts = collection.documents.get_many(doc_id for _, doc_id in ids)
    return [(collection.queries[query_id], texts[doc_id]) for query_id, doc_id in ids]
