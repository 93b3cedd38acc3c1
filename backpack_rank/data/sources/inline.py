"""A handful of texts written into a configuration: for demonstrations and first tries."""

from __future__ import annotations

from collections.abc import Mapping

from backpack_rank.data.collection import Collection, MemoryStore


def load_inline(
    name: str,
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Collection:
    """A collection from texts; every document is a candidate of every query.

    Args:
        name: shown in reports.
        queries: ``{query id: text}``.
        documents: ``{document id: text}``.
        qrels: judgements, if there are any.
        groups: attribute of documents, such as female and male; never shown to a ranker.

    Raises:
        ValueError: no query, no document, an empty text, or an id in ``qrels`` or ``groups`` that does not exist.
    """
    for what, texts in (("queries", queries), ("documents", documents)):
        if not texts:
            raise ValueError(f"{name}: there are no {what}")
        empty = [key for key, text in texts.items() if not str(text).strip()]
        if empty:
            raise ValueError(f"{name}: the text of {empty[0]!r} in {what} is empty")
    judged = {str(key): {str(d): int(label) for d, label in labels.items()} for key, labels in (qrels or {}).items()}
    _check(name, "qrels", judged, queries)
    for labels in judged.values():
        _check(name, "qrels", labels, documents)
    _check(name, "groups", groups or {}, documents)
    texts = {str(key): str(text) for key, text in documents.items()}
    # Candidates in the order of the configuration.
    order = {doc_id: float(len(texts) - place) for place, doc_id in enumerate(texts)}
    return Collection(
        name,
        MemoryStore(texts),
        {str(key): str(text) for key, text in queries.items()},
        judged,
        {str(key): dict(order) for key in queries},
        {str(key): str(group) for key, group in (groups or {}).items()},
    )


def _check(name: str, where: str, given: Mapping, known: Mapping) -> None:
    unknown = [key for key in given if key not in {str(known_key) for known_key in known}]
    if unknown:
        raise ValueError(f"{name}: {where} names {unknown[0]!r}, which is no id of this collection")
