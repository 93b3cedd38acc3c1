"""Collections that hold the same document in male, female and neutral wording.

    variants = load_wordings("grep_biasir")
    for pair in variants.pairs("male", "female"):
        gap = score(pair.query_id, pair.first) - score(pair.query_id, pair.second)

With them a ranker's preference can be read off directly: two documents that differ in nothing but
gender should get the same score. Grep-BiasIR (Krieg et al. 2023) is such a collection; a file
``wordings.jsonl`` makes any other one so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from backpack_rank.checks import one_of
from backpack_rank.constructors import FilePath, Name
from backpack_rank.data.json_lines import read_jsonl, text_under
from backpack_rank.data.sources.beir import existing_file, optional_file
from backpack_rank.data.trec import read_qrels

GROUPS = ("male", "female", "neutral")
WORDINGS_FILE = "wordings.jsonl"

_GROUP_OF = {
    "m": "male",
    "f": "female",
    "n": "neutral",
    "male": "male",
    "female": "female",
    "neutral": "neutral",
}
_NO_STEREOTYPE = "none"
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class VariantItem:
    """One document of a query in several wordings.

        VariantItem("relevant", 1, {"male": "d1-m", "female": "d1-f"})

    Attributes:
        name: unique within the query; for Grep-BiasIR ``relevant`` or ``non-relevant``.
        relevance: its label, or None if the source gives none.
        documents: ``{group: document id}`` with two groups or more of ``male``, ``female``,
            ``neutral``.
    """

    name: str
    relevance: int | None
    documents: Mapping[str, str]


@dataclass(frozen=True)
class WordedPair:
    """Two wordings of one document, of which the scores are compared.

    Attributes:
        query_id: the query.
        item: name of the document among those of the query.
        relevance: its label, or None if the source gives none.
        first, second: document ids of the two wordings.
    """

    query_id: str
    item: str
    relevance: int | None
    first: str
    second: str


@dataclass(frozen=True)
class WordingVariants:
    """Knows which documents of a collection are wordings of each other.

    The head of this module has an example; :func:`load_wordings` reads it.

    Attributes:
        name: of the collection; shown in reports.
        items: ``{query id: items}`` in the order of the source.
        topics: ``{query id: topic}``; queries without one are left out.
        stereotypes: ``{query id: gender that the query is expected to evoke}``: ``female``,
            ``male`` or ``none`` (no expectation, or annotators that do not agree); queries without
            annotation are left out.
        left_out: ids of documents that are in no item, because their wording is not known (in
            Grep-BiasIR ``content_gender`` is "both") or because no other wording of them is known.
    """

    name: str
    items: Mapping[str, tuple[VariantItem, ...]]
    topics: Mapping[str, str]
    stereotypes: Mapping[str, str]
    left_out: tuple[str, ...] = ()

    def pairs(self, first: str = "male", second: str = "female") -> list[WordedPair]:
        """The pairs of documents whose scores are compared.

        Returns:
            Every item that has both wordings, in order.

        Raises:
            ValueError: a group that does not exist, or no item with both.
        """
        for group in (first, second):
            one_of("wording", group, GROUPS)
        pairs = []
        for query_id, items in self.items.items():
            for item in items:
                if first not in item.documents or second not in item.documents:
                    continue
                pair = WordedPair(
                    query_id=query_id,
                    item=item.name,
                    relevance=item.relevance,
                    first=item.documents[first],
                    second=item.documents[second],
                )
                pairs.append(pair)
        if not pairs:
            raise ValueError(f"{self.name}: no document has both a {first} and a {second} wording")
        return pairs

    def select_queries(self, query_ids: Iterable[str]) -> WordingVariants:
        """The same restricted to these queries; ids that it does not have are passed over."""
        wanted = set(query_ids)
        return replace(
            self,
            items=_selected(self.items, wanted),
            topics=_selected(self.topics, wanted),
            stereotypes=_selected(self.stereotypes, wanted),
        )


def _selected(by_query: Mapping[str, _Value], query_ids: set[str]) -> dict[str, _Value]:
    return {query_id: value for query_id, value in by_query.items() if query_id in query_ids}


def load_wordings(
    folder: FilePath, split: Name = "test", name: Name | None = None
) -> WordingVariants:
    """Read which documents of a folder in BEIR's layout are wordings of each other.

    If the folder has ``wordings.jsonl``, that file says which documents belong together, one JSON
    object per line with the strings ``query_id``, ``item`` (any name, the same for all wordings of
    one document), ``group`` (``male``, ``female`` or ``neutral``) and ``doc_id``, and perhaps the
    integer ``relevance``. Otherwise the form of Grep-BiasIR is expected: the documents of a query
    with the same label in ``qrels/<split>.tsv`` are one item, and ``metadata.content_gender`` of a
    document (M, F, N) is its wording.

    In both cases ``metadata`` in ``queries.jsonl`` may name the topic (``topic`` or ``category``)
    and the stereotype (``stereotype`` or ``exp_stereotype``; "Towards Female", "Towards Male",
    anything with "agreement" is ``none``). Files may end in ``.gz``.

    Raises:
        FileNotFoundError: the folder or a file is missing.
        ValueError: a malformed line, two documents with the same wording of one item, a judged
            document that the corpus does not have, or no item with two wordings; file, line and id
            are named.
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(
            f"there is no folder {root}; expected corpus.jsonl, queries.jsonl and qrels in it"
        )
    wordings_file = optional_file(root / WORDINGS_FILE)
    if wordings_file is not None:
        rows = list(_rows_of_file(wordings_file))
    else:
        rows = list(_rows_of_metadata(root, split))
    items, left_out = _items(rows)
    if not items:
        source = wordings_file or root / "corpus.jsonl"
        raise ValueError(
            f"{source}: no document is there in two wordings; expected metadata.content_gender M, "
            "F, N"
        )
    topics, stereotypes = _about_queries(existing_file(root / "queries.jsonl"), items)
    return WordingVariants(name or root.resolve().name, items, topics, stereotypes, left_out)


@dataclass(frozen=True)
class _Row:
    """A document in a wording; the group is None where the source does not name one."""

    where: str
    query_id: str
    item: str
    relevance: int | None
    group: str | None
    doc_id: str


def _rows_of_file(path: Path) -> Iterator[_Row]:
    def worded_document(record: dict[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key in ("query_id", "item", "group", "doc_id"):
            values[key] = text_under(record, key)
        for key, value in values.items():
            if not value:
                raise ValueError(f"expected a string under {key!r}, got ''")
        one_of("group", values["group"], GROUPS)
        relevance = record.get("relevance")
        if relevance is not None and (
            not isinstance(relevance, int) or isinstance(relevance, bool)
        ):
            raise ValueError(f"relevance must be an integer, got {relevance!r}")
        return {**values, "relevance": relevance}

    for number, values in read_jsonl(path, worded_document):
        yield _Row(where=f"{path}, line {number}", **values)


def _rows_of_metadata(root: Path, split: str) -> Iterator[_Row]:
    corpus = existing_file(root / "corpus.jsonl")
    qrels_path = existing_file(root / "qrels" / f"{split}.tsv")
    group_of: dict[str, str | None] = {}
    for _, (doc_id, label) in read_jsonl(corpus, _document_and_gender):
        group_of[doc_id] = _GROUP_OF.get(label.lower())
    for query_id, judged in read_qrels(qrels_path).items():
        for doc_id, relevance in judged.items():
            if doc_id not in group_of:
                raise ValueError(
                    f"{qrels_path}: document {doc_id!r} of query {query_id!r} is not in {corpus}"
                )
            if relevance == 1:
                item = "relevant"
            elif relevance == 0:
                item = "non-relevant"
            else:
                item = f"relevance {relevance}"
            yield _Row(
                where=f"{qrels_path}",
                query_id=query_id,
                item=item,
                relevance=relevance,
                group=group_of[doc_id],
                doc_id=doc_id,
            )


def _document_and_gender(record: dict[str, Any]) -> tuple[str, str]:
    return text_under(record, "_id"), _text(_metadata(record).get("content_gender"))


def _items(rows: list[_Row]) -> tuple[dict[str, tuple[VariantItem, ...]], tuple[str, ...]]:
    """The items of each query, and ids of the documents that are in no item."""
    rows_by_item: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        rows_by_item.setdefault((row.query_id, row.item), []).append(row)
    items: dict[str, list[VariantItem]] = {}
    left_out: list[str] = []
    for (query_id, name), rows_of_item in rows_by_item.items():
        relevance = rows_of_item[0].relevance
        documents = _documents_of_item(rows_of_item)
        # One wording alone can be compared with nothing.
        is_comparable = len(documents) >= 2
        for row in rows_of_item:
            if row.group is None or not is_comparable:
                left_out.append(row.doc_id)
        if is_comparable:
            ordered = {group: documents[group] for group in GROUPS if group in documents}
            items.setdefault(query_id, []).append(VariantItem(name, relevance, ordered))
    return {query_id: tuple(variants) for query_id, variants in items.items()}, tuple(left_out)


def _documents_of_item(rows: list[_Row]) -> dict[str, str]:
    """The document of each group; refuses rows that contradict each other."""
    query_id, name, relevance = rows[0].query_id, rows[0].item, rows[0].relevance
    documents: dict[str, str] = {}
    for row in rows:
        if row.group is None:
            continue
        if row.group in documents:
            raise ValueError(
                f"{row.where}: documents {documents[row.group]!r} and {row.doc_id!r} are both "
                f"the {row.group} wording of item {name!r} of query {query_id!r}"
            )
        if row.relevance != relevance:
            raise ValueError(
                f"{row.where}: item {name!r} of query {query_id!r} has two different relevances"
            )
        if row.doc_id in documents.values():
            raise ValueError(
                f"{row.where}: document {row.doc_id!r} is two wordings of item {name!r} of "
                f"query {query_id!r}, and a document compared with itself shows nothing"
            )
        documents[row.group] = row.doc_id
    return documents


def _about_queries(
    path: Path, wanted: Mapping[str, object]
) -> tuple[dict[str, str], dict[str, str]]:
    """Topic and stereotype of each query that has items."""
    topics: dict[str, str] = {}
    stereotypes: dict[str, str] = {}
    known: set[str] = set()
    for _, record in read_jsonl(path, dict):
        query_id = record.get("_id")
        if not isinstance(query_id, str) or query_id not in wanted:
            continue
        known.add(query_id)
        metadata = _metadata(record)
        topic = _text(metadata.get("topic", metadata.get("category")))
        stereotype = _text(metadata.get("stereotype", metadata.get("exp_stereotype")))
        if topic:
            topics[query_id] = topic
        if stereotype:
            gender = stereotype.lower().removeprefix("towards ").strip()
            # "No agreement", as the annotators of Grep-BiasIR put it.
            stereotypes[query_id] = _NO_STEREOTYPE if "agreement" in gender else gender
    missing = [query_id for query_id in wanted if query_id not in known]
    if missing:
        raise ValueError(
            f"{path} has no query {missing[0]!r}, which has wordings ({len(missing)} such queries)"
        )
    return topics, stereotypes


def _metadata(record: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = record.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
