"""Several collections as one, for training on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from backpack_rank.checks import whole_number
from backpack_rank.constructors import Count, Name, Seed
from backpack_rank.data.collection import (
    Collection,
    DocumentStore,
    Qrels,
    Queries,
    Run,
    missing_message,
)
from backpack_rank.digests import digest

Value = TypeVar("Value")


def load_union(
    parts: Mapping[str, Collection | None],
    name: Name | None = None,
    sample: Mapping[str, Count | None] | None = None,
    seed: Seed = 0,
) -> Collection:
    """Train or evaluate on several collections at once: the parts side by side.

        collection = load_union({"nq": nq, "fiqa": fiqa}, sample={"nq": 1000})

    Ids become ``<part>/<id>``, so equal ids of different parts stay apart.

    Candidates are kept when every part has some.

    Args:
        parts: collections by name; None leaves one out, so that
            ``data.train.parts.squad=null`` trains on the others.
        name: shown in reports.
        sample: how many queries of a part to keep, None for all; all of its documents stay.
        seed: which ones, by a hash of their ids.

    Raises:
        ValueError: no part, a part's name with a slash, or a sample below 1, of no part or of one
            that is left out.
    """
    present = {part: collection for part, collection in parts.items() if collection is not None}
    if not present or any("/" in part for part in present):
        raise ValueError(f"a union needs parts with names without a slash, got {list(present)}")
    counts = sample or {}
    for part, count in counts.items():
        if part not in parts:
            raise ValueError(f"sample.{part}: the parts of this union are {', '.join(parts)}")
        whole_number(f"sample.{part}", count, 1, null="for all queries")
        if count is not None and part not in present:
            raise ValueError(f"sample.{part}={count} does nothing: the part {part} is left out")
    names: list[str] = []
    stores: dict[str, DocumentStore] = {}
    queries: Queries = {}
    qrels: Qrels = {}
    candidates: Run | None = {}
    groups: dict[str, str] = {}
    for part, complete_part in present.items():
        collection = _sampled(complete_part, counts.get(part), seed)
        names.append(collection.name)
        stores[part] = collection.documents
        queries |= _prefixed(part, collection.queries)
        groups |= _prefixed(part, collection.groups)
        for query_id, labels in collection.qrels.items():
            qrels[f"{part}/{query_id}"] = _prefixed(part, labels)
        # One part without candidates is enough: half a union could not be re-ranked.
        if collection.candidates is None:
            candidates = None
        elif candidates is not None:
            for query_id, scores in collection.candidates.items():
                candidates[f"{part}/{query_id}"] = _prefixed(part, scores)
    return Collection(
        name=name or "+".join(names),
        documents=UnionStore(stores),
        queries=queries,
        qrels=qrels,
        candidates=candidates,
        groups=groups,
        fields=partial(_field_values, present),
        ignore_identical_ids=any(part.ignore_identical_ids for part in present.values()),
    )


def _field_values(
    parts: Mapping[str, Collection], name: str, doc_ids: Iterable[str]
) -> dict[str, Any]:
    """Values of a field by document; each part that one of the documents is of must have it."""
    ids_by_part: dict[str, list[str]] = {}
    for doc_id in doc_ids:
        part, _, id_in_part = doc_id.partition("/")
        ids_by_part.setdefault(part, []).append(id_in_part)
    values: dict[str, Any] = {}
    for part, ids_in_part in ids_by_part.items():
        if part in parts:
            values |= _prefixed(part, parts[part].field_values(name, ids_in_part))
    return values


def _prefixed(part: str, values: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{part}/{identifier}": value for identifier, value in values.items()}


def _sampled(collection: Collection, count: int | None, seed: int) -> Collection:
    if count is None:
        return collection

    def draw(query_id: str) -> str:
        return digest(f"{seed} {query_id}", size=8)

    drawn = set(sorted(collection.queries, key=draw)[:count])
    # In the order of the collection, not in that of the draw.
    kept = [query_id for query_id in collection.queries if query_id in drawn]
    return collection.select_queries(kept)


class UnionStore:
    """The documents of several stores; the part in front of an id says which.

    >>> from backpack_rank.data.collection import MemoryStore
    >>> documents = UnionStore({"a": MemoryStore({"d1": "one"}), "b": MemoryStore({"d1": "two"})})
    >>> documents.get_many(["b/d1"])
    {'b/d1': 'two'}

    It is a :class:`~backpack_rank.data.collection.DocumentStore`.
    """

    def __init__(self, parts: Mapping[str, DocumentStore]) -> None:
        self._parts = dict(parts)

    @property
    def fingerprint(self) -> str:
        keys = [f"{part} {store.fingerprint}" for part, store in self._parts.items()]
        return digest("\n".join(keys))

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        """Texts of the documents.

        Raises:
            KeyError: ids that are missing; named with their part.
        """
        wanted = list(doc_ids)
        # Each part is asked once, because a store on disk answers many ids faster than one by one.
        ids_by_part: dict[str, list[str]] = {}
        for doc_id in wanted:
            part, _, id_in_part = doc_id.partition("/")
            if part not in self._parts:
                raise KeyError(missing_message([doc_id]))
            ids_by_part.setdefault(part, []).append(id_in_part)
        texts: dict[str, str] = {}
        for part, ids in ids_by_part.items():
            texts |= _prefixed(part, self._get_part(part, ids))
        return {doc_id: texts[doc_id] for doc_id in wanted}

    def _get_part(self, part: str, ids: list[str]) -> dict[str, str]:
        store = self._parts[part]
        try:
            return store.get_many(ids)
        except KeyError as error:
            missing = [f"{part}/{doc_id}" for doc_id in ids if doc_id not in store]
            raise KeyError(missing_message(missing)) from error

    def __contains__(self, doc_id: object) -> bool:
        part, _, id_in_part = str(doc_id).partition("/")
        return part in self._parts and id_in_part in self._parts[part]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for part, store in self._parts.items():
            for doc_id, text in store:
                yield f"{part}/{doc_id}", text

    def __len__(self) -> int:
        return sum(len(store) for store in self._parts.values())
