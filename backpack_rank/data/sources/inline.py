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
    """A handful of texts; every document is a candidate of every query.

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
    query_texts = _strings(queries)
    document_texts = _strings(documents)
    document_groups = _strings(groups or {})
    judged: Qrels = {}
    for query_id, labels in (qrels or {}).items():
        judged[str(query_id)] = {str(doc_id): int(label) for doc_id, label in labels.items()}
    _check(name, "qrels", judged, query_texts)
    for labels_of_query in judged.values():
        _check(name, "qrels", labels_of_query, document_texts)
    _check(name, "groups", document_groups, document_texts)
    # Scores that fall by 1 from document to document keep the order of the configuration.
    scores = map(float, range(len(document_texts), 0, -1))
    candidates = dict(zip(document_texts, scores, strict=True))
    return Collection(
        name=name,
        documents=MemoryStore(document_texts),
        queries=query_texts,
        qrels=judged,
        candidates={query_id: dict(candidates) for query_id in query_texts},
        groups=document_groups,
    )


def _strings(entries: Mapping[str, str]) -> dict[str, str]:
    """The same entries as text: YAML reads an id such as 7 as a number."""
    return {str(key): str(value) for key, value in entries.items()}


def _check(name: str, where: str, given: Iterable[str], known: Container[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{name}: {where} names {key!r}, which is no id of this collection")
