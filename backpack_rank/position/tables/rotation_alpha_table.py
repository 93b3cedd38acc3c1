"""Rotation of passages by alpha: position bias and gender bias of the same rankers in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backpack_rank.evaluation.results import Estimate
from backpack_rank.position.tables.rotation_tables import BothSets
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number, percent

EFFECT, PLACE = "nDCG@10", "MRR@10"
BIAS = ("RaB(tf)@10", "ARaB(tf)@10", "swap change/std")
THIRDS = ("first", "middle", "last")
"""Of the passage, by where the answer starts."""
COLUMNS = (
    *("model", "training", "alpha", "test", "measure"),
    *("value", "low", "high", "queries", "rankers"),
)


@dataclass(frozen=True)
class RankersAtAlpha:
    """A row of :func:`alpha_table`: rankers of a training at a value of alpha.

    Attributes:
        model: its name.
        training: ``Original`` or ``Debiased``.
        alpha: of the policy.
        figures: by test set (``original``, ``rotated``) and measure, all that was measured.
        thirds: by test set and third of the passage, the figure of :data:`PLACE` over the queries
            whose answer starts there, and their number.
        rankers: how many (seeds).
    """

    model: str
    training: str
    alpha: float
    figures: Mapping[str, Mapping[str, Estimate]]
    thirds: Mapping[str, Mapping[str, tuple[Estimate, int]]]
    rankers: int = 1


def alpha_table(
    rows: Sequence[RankersAtAlpha],
    collection: str,
    bias_set: str,
    sign_in_words: str,
    notes: Sequence[str] = (),
) -> Table:
    """Whether rotation changes gender bias, and alpha position bias.

    It has a row for each training and alpha, such as ``Debiased | 0.5``.

    Args:
        rows: in the order of the table; models become sections.
        collection: what effectiveness was measured on.
        bias_set: what gender bias was measured on.
        sign_in_words: of the measures of bias.
        notes: further sentences.
    """
    rows_by_model: dict[str, list[Row]] = {}
    records: list[tuple[object, ...]] = []
    for row in rows:
        labels = (row.training, f"{row.alpha:g}")
        rows_by_model.setdefault(row.model, []).append(Row(labels, _both_biases(row)))
        records += _records(row)
    sentences = (
        f"Effectiveness on {collection}. Gender bias on {bias_set}; {sign_in_words}.",
        "Orig. and Deb. are test sets with the passages as they are and rotated. "
        "Δ = (Deb. - Orig.) / Deb.: below 0 the ranker loses when answers do not stand where they "
        "used to.",
        f"{PLACE} first and last: over the queries whose answer starts in the first and the last "
        "third of the original passage. swap change/std: mean change of scores when gendered words "
        "are swapped, in standard deviations.",
        *notes,
    )
    return Table(
        name="rotation_alpha",
        title="Position bias and gender bias by training passages and alpha",
        labels=("Training", "alpha"),
        groups=(
            Group(EFFECT, ("Orig.", "Deb.", "Δ")),
            Group(PLACE, ("first", "last")),
            *(Group(name, ("Orig.", "Deb.")) for name in BIAS),
        ),
        sections=[Section(model, of_model) for model, of_model in rows_by_model.items()],
        notes=sentences,
        columns=COLUMNS,
        records=records,
    )


def _both_biases(row: RankersAtAlpha) -> list[Cell]:
    """Position bias by test set and by third of the passage, then gender bias by test set."""
    original, rotated = row.figures["original"], row.figures["rotated"]
    effect = BothSets(original[EFFECT].mean, rotated[EFFECT].mean)
    texts = [number(effect.original), number(effect.rotated), percent(effect.change)]
    # A third without answers and a measure without values are dashes.
    thirds = row.thirds.get("original", {})
    for third in (THIRDS[0], THIRDS[-1]):
        mean = None
        if third in thirds:
            figure, _ = thirds[third]
            mean = figure.mean
        texts.append(number(mean))
    for name in BIAS:
        for figures in (original, rotated):
            texts.append(number(figures[name].mean if name in figures else None))
    return [Cell(text) for text in texts]


def _records(row: RankersAtAlpha) -> list[tuple[object, ...]]:
    """Lines of the CSV file."""
    records: list[tuple[object, ...]] = []
    key = (row.model, row.training, row.alpha)
    for test, figures in row.figures.items():
        for measure, figure in figures.items():
            values = (figure.mean, figure.low, figure.high)
            records.append((*key, test, measure, *values, None, row.rankers))
    for test, thirds in row.thirds.items():
        for third, (figure, queries) in thirds.items():
            values = (figure.mean, figure.low, figure.high)
            records.append((*key, test, f"{PLACE} {third} third", *values, queries, row.rankers))
    return records
