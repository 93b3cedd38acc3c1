"""A handful of texts written into a configuration: for demonstrations and first tries."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from backpack_rank.constructors import Name
from backpack_rank.data.collection import Collection, MemoryStore, Qrels


def load_inline(
    name: Name,
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Collection:
    """Use it for a handful of texts; every document is a candidate of every query.

    >>> collection = load_inline("trades", {"q1": "who can rewire a house?"}, {"d1": "A baker."})
    >>> collection.candidates
    {'q1': {'d1': 1.0}}

    Args:
        name: shown in reports.
        queries: ``{query id: text}``.
        documents: ``{document id: text}``.
        qrels: judgements, if there are any.
        groups: attribute of documents, such as female and male; never shown to a ranker.

    Raises:
        ValueError: no query, no document, an empty text, or an id in ``qrels`` or ``groups`` that
            does not exist.
    """
    for what, given in (("queries", queries), ("documents", documents)):
        if not given:
            raise ValueError(f"{name}: there are no {what}")
        for key, text in given.items():
            if not str(text).strip():
                raise ValueError(f"{name}: the text of {key!r} in {what} is empty")
    # YAML reads an id such as 7 as a number.
    query_texts = {str(key): str(text) for key, text in queries.items()}
    texts = {str(key): str(text) for key, text in documents.items()}
    judged: Qrels = {}
    for query_id, labels in (qrels or {}).items():
        judged[str(query_id)] = {str(doc_id): int(label) for doc_id, label in labels.items()}
    document_groups = {str(key): str(group) for key, group in (groups or {}).items()}
    _check(name, "qrels", judged, query_texts)
    for of_query in judged.values():
        _check(name, "qrels", of_query, texts)
    _check(name, "groups", document_groups, texts)
    # Candidates in the order of the configuration.
    order = {doc_id: float(len(texts) - place) for place, doc_id in enumerate(texts)}
    return Collection(
        name=name,
        documents=MemoryStore(texts),
        queries=query_texts,
        qrels=judged,
        candidates={query_id: dict(order) for query_id in query_texts},
        groups=document_groups,
    )


def _check(name: str, where: str, given: Iterable[str], known: Container[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{name}: {where} names {key!r}, which is no id of this collection")
