"""Counted words against labels of people: ``evaluate.py experiment=label_agreement``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from backpack_rank.attributes.lexicon import load_lexicon
from backpack_rank.checks import located
from backpack_rank.constructors import FilePath
from backpack_rank.evaluation.label_agreement import LabelAgreement, label_agreement, read_labels
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import print_table, write_table


@dataclass(frozen=True)
class LabelAgreementStudy(Experiment):
    """Shows how well a word list tells what people say of passages.

    It is the ``task`` of ``evaluate.py experiment=label_agreement``.

    Attributes:
        labels: file of document ids and labels (N, M, F), such as ``MSMGenderBias.csv``.
    """

    finds_ranker: ClassVar[bool] = False

    labels: FilePath | None = None

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Count words of the labelled documents; write ``label_agreement`` as CSV, MD and TEX."""
        if self.labels is None:
            raise ValueError(
                "experiment=label_agreement needs labels: give task.labels=MSMGenderBias.csv"
            )
        bias = settings.bias
        with located("bias.lexicon"):
            lexicon = load_lexicon(bias.lexicon)
        with located("task.labels"):
            labels = read_labels(self.labels, lexicon.group_names)
        collection = settings.needed_dataset().split("test")
        labels_here: dict[str, str] = {}
        for doc_id, label in labels.items():
            if doc_id in collection.documents:
                labels_here[doc_id] = label
        magnitudes = bias.magnitudes(labels_here, collection.documents)
        absent = len(labels) - len(labels_here)
        with located("task.labels"):
            agreement = label_agreement(labels_here, magnitudes, absent)
        settings.save(folder)
        table = agreement_table(agreement, f"{lexicon.name} on {collection.name}")
        write_table(folder, table)
        if not quiet:
            print_table(table)
            print(f"Written to {folder}")


def agreement_table(agreement: LabelAgreement, what: str) -> Table:
    """Read an agreement: a row for each label, its counted groups, precision, recall."""
    rows: list[Row] = []
    records: list[tuple[object, ...]] = []
    for group, counts in zip(agreement.groups, agreement.counts, strict=True):
        shares = (agreement.precision(group), agreement.recall(group))
        cells = [Cell(f"{count:,}") for count in counts]
        cells += [Cell(number(share, 3)) for share in shares]
        rows.append(Row((group,), cells))
        records.append((group, *counts, *shares))
    return Table(
        name="label_agreement",
        title=f"Labels of people (rows) and most words ({what})",
        labels=("label",),
        groups=[Group("", (*agreement.groups, "precision", "recall"))],
        sections=[Section("", rows)],
        notes=(
            f"{agreement.documents:,} documents, {agreement.absent:,} more labels of documents "
            f"that the collection does not have; accuracy {agreement.accuracy:.3f}, Cohen's kappa "
            f"{number(agreement.kappa, 3)}",
        ),
        columns=("label", *agreement.groups, "precision", "recall"),
        records=records,
    )
