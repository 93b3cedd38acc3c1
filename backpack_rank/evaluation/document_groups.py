"""Groups that documents belong to, as shares: counted from words, or given.

The groups of one attribute (gender, region) are a :class:`DocumentGroups`; measures of exposure are
taken of it, see :mod:`backpack_rank.evaluation.group_exposure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backpack_rank.evaluation.magnitudes import GroupMagnitudes

WORDS = "words"
"""The attribute whose groups are counted from words, and the source that says so."""
CROSS = " x "
"""Between the names of attributes and groups that are crossed: ``gender x region``."""


@dataclass(frozen=True, eq=False)
class DocumentGroups:
    """Groups of documents: a share of each group for every document that is known.

    >>> groups = DocumentGroups.of({"d1": "female", "d2": {"female": 1, "male": 3}})
    >>> groups.names
    ('female', 'male')
    >>> groups.shares_of(["d2", "unknown", "d1"]).tolist()
    [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]]

    Attributes:
        names: of the n groups.
        rows: ``{document id: row}`` of the known documents.
        shares: float64 [n_documents, n], not negative; a row sums to 1, or is 0 throughout for a
            document of which nothing is known.
    """

    names: tuple[str, ...]
    rows: Mapping[str, int]
    shares: np.ndarray

    @classmethod
    def of(
        cls,
        groups: Mapping[str, str | Iterable[str] | Mapping[str, float]],
        names: Sequence[str] | None = None,
    ) -> DocumentGroups:
        """From a group, several (in equal parts), or amounts of groups, by document.

        Args:
            groups: ``{document id: "female"}``, ``{document id: ["asia", "europe"]}`` or
                ``{document id: {"female": 0.25, "male": 0.75}}``; amounts are divided by their sum.
            names: all groups, also those of no document here; None: those that there are, sorted.

        Raises:
            ValueError: an amount that is negative or not finite, or a group that ``names`` lacks.
        """
        amounts_by_document: dict[str, Mapping[str, float]] = {}
        mentioned: set[str] = set()
        for doc_id, given in groups.items():
            if isinstance(given, str):
                given = [given]
            amounts = given if isinstance(given, Mapping) else dict.fromkeys(given, 1.0)
            amounts_by_document[doc_id] = amounts
            mentioned.update(amounts)
        all_names = tuple(sorted(mentioned)) if names is None else tuple(names)
        unnamed = sorted(mentioned - set(all_names))
        if unnamed:
            raise ValueError(f"unknown group {unnamed[0]!r}; there are: {', '.join(all_names)}")

        column = {name: place for place, name in enumerate(all_names)}
        shares = np.zeros((len(amounts_by_document), len(all_names)))
        for row, (doc_id, amounts) in enumerate(amounts_by_document.items()):
            for name, amount in amounts.items():
                if not np.isfinite(amount) or amount < 0:
                    raise ValueError(f"document {doc_id!r}: {amount} is no share of {name!r}")
                shares[row, column[name]] = amount
        rows = {doc_id: row for row, doc_id in enumerate(amounts_by_document)}
        return cls(all_names, rows, _normalised(shares))

    @classmethod
    def of_words(cls, magnitudes: GroupMagnitudes) -> DocumentGroups:
        """Shares of each group's words among the words of all groups; unknown without any word."""
        return cls(magnitudes.groups, magnitudes.rows, _normalised(magnitudes.values["tc"]))

    def shares_of(self, doc_ids: Sequence[str]) -> np.ndarray:
        """Shares of these documents, float64 [documents, n]; 0 throughout for unknown ones."""
        shares = np.zeros((len(doc_ids), len(self.names)))
        for place, doc_id in enumerate(doc_ids):
            row = self.rows.get(doc_id)
            if row is not None:
                shares[place] = self.shares[row]
        return shares

    def select(self, doc_ids: Iterable[str]) -> DocumentGroups:
        """These documents alone, with all groups."""
        wanted = list(dict.fromkeys(doc_ids))
        rows = {doc_id: row for row, doc_id in enumerate(wanted)}
        return DocumentGroups(self.names, rows, self.shares_of(wanted))

    def including(self, names: Iterable[str]) -> DocumentGroups:
        """The same with these groups too, which no document here may be of."""
        further = [name for name in dict.fromkeys(names) if name not in self.names]
        nothing = np.zeros((len(self.shares), len(further)))
        return DocumentGroups(
            (*self.names, *further), self.rows, np.concatenate([self.shares, nothing], axis=1)
        )

    def unknown(self, doc_ids: Iterable[str]) -> int:
        """How many of these documents have no group."""
        wanted = list(doc_ids)
        return len(wanted) - int(np.count_nonzero(self.shares_of(wanted).sum(axis=1)))

    def cross(self, other: DocumentGroups) -> DocumentGroups:
        """Intersections: every group with every group of another attribute.

        A document's share of ``female x asia`` is the product of its shares of both; a document
        that one of the attributes does not know is unknown.

        >>> DocumentGroups.of({"d": "a"}).cross(DocumentGroups.of({"d": ["x", "y"]})).names
        ('a x x', 'a x y')
        """
        # The second name changes fastest, as the last axis does when products are reshaped.
        names = [f"{first}{CROSS}{second}" for first in self.names for second in other.names]
        doc_ids = list(self.rows)
        # [documents, n, 1] times [documents, 1, m]
        products = self.shares[:, :, None] * other.shares_of(doc_ids)[:, None, :]
        return DocumentGroups(tuple(names), self.rows, products.reshape(len(doc_ids), len(names)))


def crossed(attribute: str, groups: Mapping[str, DocumentGroups]) -> DocumentGroups:
    """The groups of an attribute, or of several crossed: ``gender x region``.

    Raises:
        ValueError: an attribute that there is not.
    """
    parts: list[DocumentGroups] = []
    for name in attribute.split(CROSS):
        if name not in groups:
            raise ValueError(
                f"unknown attribute {name!r} of groups; there are: {', '.join(groups)}"
            )
        parts.append(groups[name])
    together = parts[0]
    for part in parts[1:]:
        together = together.cross(part)
    return together


def _normalised(amounts: np.ndarray) -> np.ndarray:
    """Rows divided by their sum; rows of 0 stay."""
    total = amounts.sum(axis=1, keepdims=True)
    return np.divide(amounts, total, out=np.zeros(amounts.shape), where=total > 0)
