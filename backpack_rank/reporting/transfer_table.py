"""Table 5 of paper 001: training on one collection after another, published rows beside those measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backpack_rank.reporting import published_rotation as published
from backpack_rank.reporting.layout import Entry, LayoutTable, extreme
from backpack_rank.reporting.published_rotation import HEADINGS, MEASURES, Transferred
from backpack_rank.reporting.rotation_records import COLUMNS, HERE, PAPER, number, ordered, record
from backpack_rank.reporting.rows import SIGNIFICANCE, Figure

LETTERS = "abc"
"""Of the paper's three chains: the collection alone, another one before it, and that one rotated."""


@dataclass(frozen=True)
class ChainedRankers:
    """Rankers of one model that were trained on one collection after another.

    Attributes:
        figures: by measure.
        better_than: by measure, letters of the chains that this one is significantly better than.
        rankers: how many (seeds); figures are of their mean values per query.
    """

    figures: Mapping[str, Figure]
    better_than: Mapping[str, str] = field(default_factory=dict)
    rankers: int = 1


def transfer_table(
    measured: Mapping[str, Mapping[str, ChainedRankers]],
    target: str,
    source: str,
    collection: str,
    notes: Sequence[str] = (),
) -> LayoutTable:
    """Table 5: models by what they were trained on.

    Args:
        measured: by model and letter of the chain (:data:`LETTERS`); chains may be absent.
        target: what every chain was trained on last.
        source: what the longer chains were trained on first.
        collection: what was measured on.
        notes: further sentences.
    """
    names = {letter: _chain(letter, source, target) for letter in LETTERS}
    printed = {letter: _chain(letter, "MS", "SQuAD") for letter in LETTERS}
    sections = []
    records: list[tuple[Any, ...]] = []
    for model in ordered(measured):
        paper = {letter: row for (of, letter), row in published.TABLE5.items() if of == model}
        here = measured.get(model, {})
        rows = []
        for letter in LETTERS:
            if letter in paper:
                rows.append(((printed[letter], letter, PAPER), _published(letter, paper)))
                key = ("table5", model, printed[letter], PAPER, "original")
                row = paper[letter]
                records += [record(*key, m, value=row.values[m], letters=row.letters[m]) for m in MEASURES]
            rows.append(((names[letter], letter, HERE), _measured(letter, here)))
            if letter in here:
                key, found = ("table5", model, names[letter], HERE, "original"), here[letter]
                records += [
                    record(*key, m, value=found.figures[m], letters=found.better_than.get(m, ""), rankers=found.rankers)
                    for m in MEASURES
                ]
        sections.append((model, tuple(rows)))
    sentences = (
        f"{published.PAPER}, Table 5: {published.DATA['table5']}.",
        f"Measured here on {collection}. Every measure is cut at 10.",
        "Letters: significantly better than the row of that letter of the same model and source by Wilcoxon's "
        f"signed-rank test over the queries, p < {SIGNIFICANCE:g}, not corrected. Bold: the highest of a model.",
        *notes,
    )
    return LayoutTable(
        "table5",
        "Transfer from one collection to another (Table 5)",
        ("Train", "Sig", ""),
        (("", tuple(HEADINGS[measure] for measure in MEASURES)),),
        tuple(sections),
        sentences,
        COLUMNS,
        tuple(records),
    )


def _chain(letter: str, source: str, target: str) -> str:
    last = f"{target}(Original)"
    return last if letter == "a" else f"{source}({'Original' if letter == 'b' else 'Debiased'}) -> {last}"


def _published(letter: str, rows: Mapping[str, Transferred]) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            number(rows[letter].values[measure], 3),
            rows[letter].values[measure] == max(row.values[measure] for row in rows.values()),
            rows[letter].letters[measure],
        )
        for measure in MEASURES
    )


def _measured(letter: str, rows: Mapping[str, ChainedRankers]) -> tuple[Entry, ...]:
    if letter not in rows:
        return (Entry(),) * len(MEASURES)
    entries = []
    for measure in MEASURES:
        mean = rows[letter].figures[measure].mean
        highest = extreme((row.figures[measure].mean for row in rows.values()), smallest=False)
        bold = len(rows) > 1 and round(mean, 4) == highest
        entries.append(Entry(number(mean, 4), bold, rows[letter].better_than.get(measure, "")))
    return tuple(entries)
