"""Do counted words tell what people say of a passage? Counts against labels of annotators.

Labels are a file such as MSMGenderBias of Mousavian et al. 2025 (arXiv 2506.22372): ``doc_id`` and
``gender_bias`` with ``N``, ``M`` or ``F``, separated by commas or tabs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backpack_rank.data.table_files import TableFile
from backpack_rank.data.text_files import fail
from backpack_rank.evaluation.magnitudes import NEUTRAL, GroupMagnitudes, document_groups

_SHORT = {"n": NEUTRAL, "m": "male", "f": "female"}


@dataclass(frozen=True)
class LabelAgreement:
    """How far groups of documents that were counted are those that people gave.

    >>> agreement = LabelAgreement(("female", "neutral"), ((3, 1), (1, 5)), 0)
    >>> round(agreement.accuracy, 3), round(agreement.kappa, 3)
    (0.8, 0.583)

    Attributes:
        groups: names of rows and columns, ``neutral`` last.
        counts: documents by the label of people (rows) and by counted words (columns).
        absent: labelled documents that the collection does not have.
    """

    groups: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    absent: int

    @property
    def documents(self) -> int:
        """Documents with a label that were counted."""
        return int(np.sum(self.counts))

    @property
    def accuracy(self) -> float:
        """Share of documents with one group by both."""
        return float(np.trace(self.counts) / self.documents)

    @property
    def kappa(self) -> float:
        """Cohen's kappa: (agreement - that of chance) / (1 - that of chance); nan for one group."""
        counts = np.array(self.counts, dtype=float)
        by_chance = float((counts.sum(axis=0) * counts.sum(axis=1)).sum() / self.documents**2)
        if by_chance == 1:
            return math.nan
        return (self.accuracy - by_chance) / (1 - by_chance)

    def precision(self, group: str) -> float:
        """Of documents with most words of a group, the share that people give it; nan for none."""
        place = self.groups.index(group)
        counted = sum(row[place] for row in self.counts)
        return self.counts[place][place] / counted if counted else math.nan

    def recall(self, group: str) -> float:
        """Of documents that people give a group, the share with most words of it; nan for none."""
        place = self.groups.index(group)
        labelled = sum(self.counts[place])
        return self.counts[place][place] / labelled if labelled else math.nan


def label_agreement(
    labels: Mapping[str, str], magnitudes: GroupMagnitudes, absent: int = 0
) -> LabelAgreement:
    """Hold counted words against labels.

        label_agreement(read_labels("MSMGenderBias.csv", groups), magnitudes).kappa

    A document is of the group with most words in it, ``neutral`` without words and in a tie, as for
    ``Exposure(male)@10``.

    Args:
        labels: ``{document id: group, or neutral}``.
        magnitudes: of these documents.
        absent: labelled documents that could not be counted.

    Raises:
        ValueError: no label.
    """
    if not labels:
        raise ValueError("there is no labelled document to count words of")
    names = document_groups(magnitudes.groups)
    counted = np.stack([magnitudes.belongs_to(name) for name in names], axis=1).argmax(axis=1)
    counts = np.zeros((len(names), len(names)), dtype=int)
    for doc_id, label in labels.items():
        counts[names.index(label), counted[magnitudes.rows[doc_id]]] += 1
    rows = tuple(tuple(row) for row in counts.tolist())
    return LabelAgreement(names, rows, absent)


def read_labels(path: str | Path, groups: Sequence[str]) -> dict[str, str]:
    """Read labels of documents: ``doc_id,gender_bias`` with N, M, F or names of groups.

    Args:
        path: of the file; commas or tabs between the cells, a header or none.
        groups: of the lexicon.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line of other cells, a label that is no group, or a document that has two
            labels; names the line.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file of labels {path}")
    known = document_groups(groups)
    labels: dict[str, str] = {}
    for number, cells in TableFile(path, separators="\t,").rows():
        if len(cells) != 2 or not cells[0]:
            fail(path, number, "expected a document id and a label, by a comma or a tab")
        doc_id, given = cells
        label = given if given in known else _SHORT.get(given.lower(), given)
        if label not in known:
            fail(path, number, f"unknown label {given!r}; choose from {', '.join(known)} (N, M, F)")
        if labels.setdefault(doc_id, label) != label:
            fail(path, number, f"document {doc_id!r} has another label above")
    return labels
