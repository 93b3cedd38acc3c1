"""Where the groups of documents come from: counted words, a file, or a field of the collection.

Sources are texts, as ``bias.groups`` takes them::

    words            shares of the words of the lexicon's groups
    genders.tsv      document id and group, or document id, group and share
    groups.jsonl     {"id": "d1", "gender": "female", "region": ["asia", "europe"]}
    field:region     a field of the collection's documents

A value is a group, a list of groups (in equal parts), or amounts by group. Empty values,
``unknown`` and ``@unknown`` in any case are unknown, like documents that a source does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from backpack_rank.checks import decimal
from backpack_rank.data.collection import Collection, DocumentStore
from backpack_rank.data.json_lines import is_jsonl, read_jsonl
from backpack_rank.data.table_files import TableFile
from backpack_rank.data.text_files import fail
from backpack_rank.evaluation.document_groups import CROSS, WORDS, DocumentGroups

FIELD = "field:"
"""How a source begins that is a field of the collection."""
_ID_KEYS = (
    *("id", "_id", "doc_id", "docid", "docno", "document", "document_id"),
    *("page_id", "corpus-id", "corpus_id", "pid"),
)
_BLOCK = 1_000_000
"""Documents whose values of a field are in memory at once."""
_UNKNOWN = ("", "unknown", "@unknown")


class GroupSource:
    """Reads groups of documents from one source of ``bias.groups``.

        source = GroupSource("groups.jsonl")
        source.attributes  # ("gender", "region")
        source.groups(collection, ["d1", "d2"])["gender"].names

    Of a file with JSON lines the keys of the first line are the attributes; a TSV is named by its
    header (``docno<TAB>gender``, ``page_id<TAB>gender``), or by its own name; a field by its name.
    """

    def __init__(self, source: str) -> None:
        """Read the beginning of a file, to know its attributes.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a field without a name, or a file without attributes.
        """
        self.source = source
        self._groups_of_field: tuple[DocumentStore, tuple[str, ...]] | None = None
        self.path = Path(source).expanduser()
        if source == WORDS:
            self.attributes: tuple[str, ...] = (WORDS,)
        elif source.startswith(FIELD):
            self.attributes = (source.removeprefix(FIELD),)
        elif not self.path.is_file():
            raise FileNotFoundError(
                f"there is no file {source}; a source of groups is a file, {FIELD}NAME or {WORDS}"
            )
        elif is_jsonl(self.path):
            self.attributes = self._keys()
        else:
            header = TableFile(self.path).header
            self.attributes = (header[1] if header else self.path.name.split(".")[0],)
        for name in self.attributes:
            if not name.strip() or CROSS in name or any(mark in name for mark in "(),@'\""):
                raise ValueError(
                    f"{source}: {name!r} cannot be the name of an attribute: it stands in names "
                    "of measures such as AWRF_JS(gender)@20"
                )

    def groups(
        self, collection: Collection, doc_ids: Iterable[str], all_groups: bool = True
    ) -> dict[str, DocumentGroups]:
        """Groups of these documents by attribute; the groups are those of the whole source.

        Args:
            collection: has the fields.
            doc_ids: of the documents.
            all_groups: False for a field's groups of these documents alone; the collection is then
                not read for others.

        Raises:
            ValueError: a malformed line, or a field that the documents do not have.
        """
        wanted = list(doc_ids)
        if self.source.startswith(FIELD):
            (name,) = self.attributes
            names = self._field_groups(name, collection) if all_groups else ()
            return {name: _groups_of(collection.field_values(name, wanted), wanted, names)}
        if is_jsonl(self.path):
            values_by_attribute = self._records()
        else:
            values_by_attribute = self._lines(collection, set(wanted))
        found: dict[str, DocumentGroups] = {}
        for name, values in values_by_attribute.items():
            found[name] = _groups_of(values, wanted)
        return found

    def _field_groups(self, name: str, collection: Collection) -> tuple[str, ...]:
        """All groups of a field over the collection, whatever is ranked."""
        documents = collection.documents
        # A collection is read once for its groups: before anything is ranked, and when it is.
        if self._groups_of_field is None or self._groups_of_field[0] is not documents:
            names: set[str] = set()
            doc_ids = (doc_id for doc_id, _ in documents)
            while block := list(islice(doc_ids, _BLOCK)):
                for value in collection.field_values(name, block).values():
                    names.update(amounts_of(value))
            self._groups_of_field = documents, tuple(sorted(names))
        return self._groups_of_field[1]

    def _keys(self) -> tuple[str, ...]:
        for _, record in read_jsonl(self.path, dict):
            keys = tuple(key for key in record if key not in _ID_KEYS)
            if not keys:
                raise ValueError(f"{self.source}: its first line has an id and no group")
            return keys
        raise ValueError(f"{self.source}: holds no documents")

    def _records(self) -> dict[str, dict[str, Any]]:
        values: dict[str, dict[str, Any]] = {name: {} for name in self.attributes}
        for number, record in read_jsonl(self.path, dict):
            doc_id = next((record[key] for key in _ID_KEYS if key in record), None)
            if not isinstance(doc_id, str):
                fail(self.path, number, f"expected a document id as a text under {_ID_KEYS[0]!r}")
            for name, value in record.items():
                if name in _ID_KEYS:
                    continue
                if name not in values:
                    fail(self.path, number, f"the key {name!r} is not in the first line")
                if doc_id in values[name]:
                    fail(self.path, number, f"document {doc_id!r} stands twice")
                try:
                    values[name][doc_id] = amounts_of(value)
                except ValueError as error:
                    fail(self.path, number, str(error))
        return values

    def _lines(self, collection: Collection, wanted: set[str]) -> dict[str, dict[str, Any]]:
        (name,) = self.attributes
        table = TableFile(self.path)
        values: dict[str, dict[str, float]] = {}
        lines_of_group: Counter[str] = Counter()
        first_group = None
        for number, (doc_id, *cells) in table.rows():
            if not doc_id or len(cells) not in (1, 2):
                fail(self.path, number, "expected document id, group, and perhaps a share, by tabs")
            group = cells[0]
            first_group = group if first_group is None else first_group
            lines_of_group[group] += 1
            amounts = values.setdefault(doc_id, {})
            if group in amounts:
                fail(self.path, number, f"document {doc_id!r} has the group {group!r} twice")
            try:
                amount = decimal(cells[1]) if len(cells) == 2 else 1.0
                amounts_of({group: amount})
            except ValueError as error:
                fail(self.path, number, str(error))
            if group.lower() not in _UNKNOWN:
                amounts[group] = amount
        if first_group is not None:
            table.check_first(
                known=lambda doc_id: doc_id in wanted or doc_id in collection.documents,
                value_recurs=lines_of_group[first_group] > 1,
                place=collection.name,
            )
        return {name: values}


def amounts_of(value: Any) -> dict[str, float]:
    """A value as amounts by group; empty for what is not known.

    >>> amounts_of(["asia", "europe"]), amounts_of({"male": 3}), amounts_of("Unknown")
    ({'asia': 1.0, 'europe': 1.0}, {'male': 3.0}, {})

    Raises:
        ValueError: an amount that is no number of at least 0, or a value of another kind.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        amounts = dict(value)
    elif isinstance(value, (list, tuple)):
        amounts = dict.fromkeys(map(_group_name, value), 1.0)
    else:
        amounts = {_group_name(value): 1.0}
    known: dict[str, float] = {}
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise ValueError(f"expected a number as the share of {name!r}, got {amount!r}")
        if not 0 <= amount < float("inf"):
            raise ValueError(f"the share of {name!r} is {amount}; it must be 0 or more")
        if str(name).strip().lower() not in _UNKNOWN:
            known[str(name).strip()] = float(amount)
    return known


def _group_name(value: Any) -> str:
    if not isinstance(value, (str, int, float, bool)):
        raise ValueError(f"expected a group, groups, or shares by group, got {value!r}")
    return str(value)


def _groups_of(
    values: Mapping[str, Any], doc_ids: Iterable[str], further: Iterable[str] = ()
) -> DocumentGroups:
    """Groups of these documents; their names are those of all values, and further ones."""
    names = set(further)
    chosen: dict[str, Mapping[str, float]] = {}
    wanted = set(doc_ids)
    for doc_id, value in values.items():
        amounts = amounts_of(value)
        names.update(amounts)
        if doc_id in wanted and amounts:
            chosen[doc_id] = amounts
    return DocumentGroups.of(chosen, sorted(names))
