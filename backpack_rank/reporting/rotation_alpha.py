"""Rotation crossed with alpha: position bias and gender bias of the same rankers in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backpack_rank.reporting.layout import NONE, Entry, LayoutTable
from backpack_rank.reporting.published_rotation import BothSets
from backpack_rank.reporting.rotation_records import number, percent
from backpack_rank.reporting.rows import Figure

EFFECT, PLACE = "nDCG@10", "MRR@10"
BIAS = ("RaB(tf)@10", "ARaB(tf)@10", "swap change/std")
COLUMNS = ("model", "training", "alpha", "test", "measure", "value", "low", "high", "queries", "rankers")
THIRDS = ("first", "middle", "last")
"""Of the passage, by where the answer starts."""


@dataclass(frozen=True)
class TurnedRow:
    """Rankers of one training at one position of the dial.

    Attributes:
        model: its name.
        training: ``Original`` or ``Debiased``.
        alpha: position of the dial.
        figures: by test set (``original``, ``rotated``) and measure, all that was measured.
        thirds: by test set and third of the passage, the figure of :data:`PLACE` over the queries whose answer starts
            there, and their number.
        rankers: how many (seeds).
    """

    model: str
    training: str
    alpha: float
    figures: Mapping[str, Mapping[str, Figure]]
    thirds: Mapping[str, Mapping[str, tuple[Figure, int]]]
    rankers: int = 1


def alpha_table(
    rows: Sequence[TurnedRow], collection: str, bias_set: str, sign_in_words: str, notes: Sequence[str] = ()
) -> LayoutTable:
    """One row for each training and alpha.

    Args:
        rows: in the order of the table; models become sections.
        collection: what effectiveness was measured on.
        bias_set: what gender bias was measured on.
        sign_in_words: of the measures of bias.
        notes: further sentences.
    """
    sections = tuple(
        (model, tuple(((row.training, f"{row.alpha:g}"), _entries(row)) for row in rows if row.model == model))
        for model in dict.fromkeys(row.model for row in rows)
    )
    sentences = (
        f"Effectiveness on {collection}. Gender bias on {bias_set}; {sign_in_words}.",
        "Orig. and Deb. are test sets with the passages as they are and rotated. Δ = (Deb. - Orig.) / Deb.: below 0 "
        "the ranker loses when answers do not stand where they used to.",
        f"{PLACE} first and last: over the queries whose answer starts in the first and the last third of the original "
        "passage. swap change/std: mean change of scores when gendered words are swapped, in standard deviations.",
        *notes,
    )
    return LayoutTable(
        "rotation_alpha",
        "Position bias and gender bias by training passages and alpha",
        ("Training", "alpha"),
        ((EFFECT, ("Orig.", "Deb.", "Δ")), (PLACE, ("first", "last")), *((name, ("Orig.", "Deb.")) for name in BIAS)),
        sections,
        sentences,
        COLUMNS,
        tuple(line for row in rows for line in _records(row)),
    )


def _entries(row: TurnedRow) -> tuple[Entry, ...]:
    original, rotated = row.figures["original"], row.figures["rotated"]
    tested = BothSets(original[EFFECT].mean, rotated[EFFECT].mean)
    thirds = row.thirds.get("original", {})
    places = [number(thirds[third][0].mean, 4) if third in thirds else NONE for third in (THIRDS[0], THIRDS[-1])]
    bias = [
        number(figures[name].mean, 4) if name in figures else NONE for name in BIAS for figures in (original, rotated)
    ]
    effect = [number(tested.original, 4), number(tested.rotated, 4), percent(tested.change)]
    return tuple(Entry(text) for text in (*effect, *places, *bias))


def _records(row: TurnedRow) -> list[tuple[object, ...]]:
    key = (row.model, row.training, row.alpha)
    lines: list[tuple[object, ...]] = [
        (*key, test, measure, figure.mean, figure.low, figure.high, None, row.rankers)
        for test, figures in row.figures.items()
        for measure, figure in figures.items()
    ]
    lines += [
        (*key, test, f"{PLACE} {third} third", figure.mean, figure.low, figure.high, queries, row.rankers)
        for test, thirds in row.thirds.items()
        for third, (figure, queries) in thirds.items()
    ]
    return lines
