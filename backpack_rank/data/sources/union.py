"""Several collections as one, for training on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backpack_rank.checks import whole
from backpack_rank.constructors import Count, Name, Seed
from backpack_rank.data.collection import Collection, DocumentStore, missing_message
from backpack_rank.digests import digest


def load_union(
    parts: Mapping[str, Collection],
    name: Name | None = None,
    sample: Mapping[str, Count | None] | None = None,
    seed: Seed = 0,
) -> Collection:
    """The parts side by side; ids become ``<part>/<id>``, so equal ids of different parts stay
    apart.

    Candidates are kept when every part has some.

    Args:
        parts: collections by name.
        name: shown in reports.
        sample: how many queries of a part to keep, None for all; all of its documents stay.
        seed: which ones, by a hash of their ids.

    Raises:
        ValueError: no part, a part's name with a slash, or a sample below 1 or of no part.
    """
    if not parts or any("/" in part for part in parts):
        raise ValueError(f"a union needs parts with names without a slash, got {list(parts)}")
    for part, count in (sample or {}).items():
        if part not in parts:
            raise ValueError(f"sample.{part}: the parts of this union are {', '.join(parts)}")
        whole(f"sample.{part}", count, 1, null="for all queries")
    parts = {
        part: _sampled(collection, (sample or {}).get(part), seed)
        for part, collection in parts.items()
    }
    candidates = [collection.candidates for collection in parts.values()]

    def merged(field: str) -> dict:
        return {
            f"{part}/{query_id}": value
            if isinstance(value, str)
            else {f"{part}/{i}": v for i, v in value.items()}
            for part, collection in parts.items()
            for query_id, value in getattr(collection, field).items()
        }

    return Collection(
        name=name or "+".join(collection.name for collection in parts.values()),
        documents=UnionStore({part: collection.documents for part, collection in parts.items()}),
        queries=merged("queries"),
        qrels=merged("qrels"),
        candidates=merged("candidates") if all(run is not None for run in candidates) else None,
        groups={
            f"{p}/{i}": group
            for p, collection in parts.items()
            for i, group in collection.groups.items()
        },
    )


def _sampled(collection: Collection, count: int | None, seed: int) -> Collection:
    if count is None:
        return collection

    def place(query_id: str) -> str:
        return digest(f"{seed} {query_id}", size=8)

    kept = set(sorted(collection.queries, key=place)[:count])
    return collection.select_queries(
        query_id for query_id in collection.queries if query_id in kept
    )


class UnionStore:
    """A :class:`~backpack_rank.data.collection.DocumentStore` over several, by the part in front of
    the id.
    """

    def __init__(self, parts: Mapping[str, DocumentStore]) -> None:
        self._parts = dict(parts)

    @property
    def fingerprint(self) -> str:
        keys = [f"{part} {store.fingerprint}" for part, store in self._parts.items()]
        return digest("\n".join(keys))

    def get_many(self, doc_ids: Iterable[str]) -> dict[str, str]:
        """Texts of the documents. Raises ``KeyError`` that names the ids that are missing, with
        their part.
        """
        wanted = list(doc_ids)
        by_part: dict[str, list[str]] = {}
        for doc_id in wanted:
            part, _, own = doc_id.partition("/")
            if part not in self._parts:
                raise KeyError(missing_message([doc_id]))
            by_part.setdefault(part, []).append(own)
        found = {part: self._get_part(part, ids) for part, ids in by_part.items()}
        return {
            doc_id: found[doc_id.partition("/")[0]][doc_id.partition("/")[2]] for doc_id in wanted
        }

    def _get_part(self, part: str, own: list[str]) -> dict[str, str]:
        store = self._parts[part]
        try:
            return store.get_many(own)
        except KeyError as error:
            missing = [f"{part}/{doc_id}" for doc_id in own if doc_id not in store]
            raise KeyError(missing_message(missing)) from error

    def __contains__(self, doc_id: object) -> bool:
        part, _, own = str(doc_id).partition("/")
        return part in self._parts and own in self._parts[part]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for part, store in self._parts.items():
            for doc_id, text in store:
                yield f"{part}/{doc_id}", text

    def __len__(self) -> int:
        return sum(len(store) for store in self._parts.values())
