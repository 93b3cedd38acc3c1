"""A handful of texts written into a configuration: for demonstrations and first tries."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from backpack_rank.constructors import Name
from backpack_rank.data.collection import Collection, MemoryStore


def load_inline(
    name: Name,
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
        ValueError: no query, no document, an empty text, or an id in ``qrels`` or ``groups`` that
            does not exist.
    """
    for what, texts in (("queries", queries), ("documents", documents)):
        if not texts:
            raise ValueError(f"{name}: there are no {what}")
        empty = [key for key, text in texts.items() if not str(text).strip()]
        if empty:
            raise ValueError(f"{name}: the text of {empty[0]!r} in {what} is empty")
    # YAML reads an id such as 7 as a number.
    asked = {str(key): str(text) for key, text in queries.items()}
    texts = {str(key): str(text) for key, text in documents.items()}
    judged = {
        str(key): {str(d): int(label) for d, label in labels.items()}
        for key, labels in (qrels or {}).items()
    }
    document_groups = {str(key): str(group) for key, group in (groups or {}).items()}
    _check(name, "qrels", judged, asked)
    for labels in judged.values():
        _check(name, "qrels", labels, texts)
    _check(name, "groups", document_groups, texts)
    # Candidates in the order of the configuration.
    order = {doc_id: float(len(texts) - place) for place, doc_id in enumerate(texts)}
    return Collection(
        name,
        MemoryStore(texts),
        asked,
        judged,
        {key: dict(order) for key in asked},
        document_groups,
    )


def _check(name: str, where: str, given: Iterable[str], known: Container[str]) -> None:
    unknown = [key for key in given if key not in known]
    if unknown:
        raise ValueError(f"{name}: {where} names {unknown[0]!r}, which is no id of this collection")
