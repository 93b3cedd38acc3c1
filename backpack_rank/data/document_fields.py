"""Fields of documents beside their text, such as a region: never shown to a ranker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backpack_rank.data.json_lines import is_jsonl, read_jsonl

OF_THE_TEXT = ("_id", "title", "text", "metadata")
"""Keys of a line of BEIR's ``corpus.jsonl`` that are no fields."""


@dataclass(frozen=True)
class LineFields:
    """The fields of a file of JSON lines: further keys, or those below ``metadata``.

        fields = LineFields(Path("corpus.jsonl"))
        fields("region", ["d1", "d7"])  # {"d1": "asia", "d7": ["asia", "europe"]}

    The file is read through once for every question; nothing but the answer is kept.

    Attributes:
        path: ``{"_id": ..., "text": ..., "metadata": {"region": ...}}`` in every line.
    """

    path: Path

    def __call__(self, name: str, doc_ids: Iterable[str]) -> dict[str, Any]:
        """Values of these documents; those without a value are left out.

        Raises:
            ValueError: no document of the file has such a field; names those that there are.
        """
        if not is_jsonl(self.path):
            raise ValueError(f"{self.path} has no field {name!r}: only JSON lines have fields")
        wanted = set(doc_ids)
        values: dict[str, Any] = {}
        other_fields: set[str] = set()
        exists = False
        for _, record in read_jsonl(self.path, dict):
            metadata = record.get("metadata")
            below = metadata if isinstance(metadata, dict) else {}
            if name in below:
                value = below[name]
            elif name in record and name not in OF_THE_TEXT:
                value = record[name]
            else:
                other_fields.update(below, record)
                continue
            exists = True
            if record.get("_id") in wanted:
                values[record["_id"]] = value
        if not exists:
            raise no_such_field(name, sorted(other_fields - set(OF_THE_TEXT)), str(self.path))
        return values


def no_such_field(name: str, fields: Sequence[str], where: str) -> ValueError:
    """The error of a field that there is not."""
    there = ", ".join(fields) or "none"
    return ValueError(f"{where} has no field {name!r}; fields there: {there}")
