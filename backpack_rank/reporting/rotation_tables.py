"""Tables 2, 3 and 4 of paper 001 in their own layout: published rows and, below each, the same measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backpack_rank.reporting import published_rotation as published
from backpack_rank.reporting.layout import NONE, Entry, LayoutTable, extreme
from backpack_rank.reporting.published_rotation import HEADINGS, MEASURES, TRAININGS, BothSets
from backpack_rank.reporting.rotation_records import COLUMNS, HERE, PAPER, number, ordered, percent, record
from backpack_rank.reporting.rows import SIGNIFICANCE, Figure

MARK = "†"


@dataclass(frozen=True)
class RankersOnBoth:
    """Rankers of one model and training, on the original and on the rotated test set.

    Attributes:
        original, rotated: figures by measure.
        p_wilcoxon: by measure, of the difference between the two over the queries.
        rankers: how many (seeds); figures are of their mean values per query.
    """

    original: Mapping[str, Figure]
    rotated: Mapping[str, Figure]
    p_wilcoxon: Mapping[str, float]
    rankers: int = 1

    def both_sets(self) -> dict[str, BothSets]:
        """Both means of every measure of the paper."""
        return {name: BothSets(self.original[name].mean, self.rotated[name].mean) for name in MEASURES}


def effect_table(
    name: str,
    measured: Mapping[tuple[str, str], RankersOnBoth],
    collection: str,
    first_stage: tuple[str, Mapping[str, Figure]] | None = None,
    notes: Sequence[str] = (),
) -> LayoutTable:
    """Table 3 (MS MARCO) or 4 (SQuAD): every training on the original and on the rotated test set.

    Args:
        name: ``table3`` or ``table4``.
        measured: by model and training (:data:`~backpack_rank.reporting.published_rotation.TRAININGS`). Models with
            a name of the paper stand in its rows, further ones behind them.
        collection: what was measured on.
        first_stage: name and figures of the ranking that the candidates come from.
        notes: further sentences.
    """
    printed = published.TABLE3 if name == "table3" else published.TABLE4
    sections = []
    records: list[tuple[Any, ...]] = []
    for model in ordered(model for model, _ in measured):
        paper = {training: printed[model, training] for training in TRAININGS if (model, training) in printed}
        found = {training: measured[model, training] for training in TRAININGS if (model, training) in measured}
        here = {training: one.both_sets() for training, one in found.items()}
        rows = []
        for training in TRAININGS:
            if training in paper:
                rows.append(((training, PAPER), _effect(training, paper, {}, 3)))
                records += _changes((name, model, training, PAPER), paper[training])
            p_values = found[training].p_wilcoxon if training in found else {}
            rows.append(((training, HERE), _effect(training, here, p_values, 4)))
            if training in found:
                records += _measured((name, model, training, HERE), found[training])
        sections.append((model, tuple(rows)))
    if first_stage is not None:
        label, figures = first_stage
        cells = [cell for m in MEASURES for cell in (Entry(number(figures[m].mean, 4)), Entry(), Entry())]
        sections.append((label, ((("", HERE), tuple(cells)),)))
        records += [record(name, label, "", HERE, "original", m, value=figures[m]) for m in MEASURES]
    where = "MS MARCO" if name == "table3" else "SQuAD"
    sentences = (
        f"{published.PAPER}, Table {name[-1]}: {published.DATA[name]}.",
        f"Measured here on {collection}. Debiased is rotated; every measure is cut at 10.",
        *(
            []
            if first_stage is None
            else [f"{first_stage[0]}: the candidates that are ranked, the same of both test sets."]
        ),
        "Δ = (Deb. - Orig.) / Deb., as the paper's figures were computed. Bold: the smaller Δ of the two trainings.",
        f"{MARK} the two test sets differ by Wilcoxon's signed-rank test over the queries, p < {SIGNIFICANCE:g}, not "
        "corrected (the paper has no such test here).",
        *notes,
    )
    return LayoutTable(
        name,
        f"Training and test on original and debiased passages of {where} (Table {name[-1]})",
        ("Training", ""),
        tuple((HEADINGS[measure], ("Orig.", "Deb.", "Δ")) for measure in MEASURES),
        tuple(sections),
        sentences,
        COLUMNS,
        tuple(records),
    )


def similarity_table(
    measured: Mapping[tuple[str, str, str], tuple[float, float]], notes: Sequence[str] = ()
) -> LayoutTable:
    """Table 2: MATS and its standard deviation of rankers trained on original and rotated passages.

    Args:
        measured: ``{(model, collection, training): (MATS, standard deviation)}``.
        notes: further sentences, such as how MATS was sampled.
    """
    collections = list(dict.fromkeys(name for _, name, _ in [*(("", *key) for key in published.TABLE2), *measured]))
    sections = []
    records: list[tuple[Any, ...]] = []
    for model in ordered((model for model, _, _ in measured), ("TK",)):
        rows = []
        for training in TRAININGS:
            paper = {name: pair for (name, of), pair in published.TABLE2.items() if (model, of) == ("TK", training)}
            here = {name: pair for (by, name, of), pair in measured.items() if (by, of) == (model, training)}
            for source, found in ((PAPER, paper), (HERE, here)):
                if source == HERE or found:
                    cells = [cell for name in collections for cell in _similarity(found.get(name))]
                    rows.append(((training, source), tuple(cells)))
                for name, (mats, deviation) in found.items():
                    key = ("table2", model, training, source, name)
                    records += [record(*key, "MATS", value=mats), record(*key, "MATS std", value=deviation)]
        sections.append((model, tuple(rows)))
    sentences = (
        f"{published.PAPER}, Table 2: {published.DATA['table2']}.",
        "Lower MATS is less position bias. Passages are read as they are, not rotated.",
        *notes,
    )
    return LayoutTable(
        "table2",
        "Mean average term similarity of passage vectors (Table 2)",
        ("Training", ""),
        tuple((name, ("MATS", "Std.dev.")) for name in collections),
        tuple(sections),
        sentences,
        COLUMNS,
        tuple(records),
    )


def _effect(
    training: str, rows: Mapping[str, Mapping[str, BothSets]], p_values: Mapping[str, float], decimals: int
) -> tuple[Entry, ...]:
    """The figures of a training; ``rows`` are those of both trainings, for what is printed bold."""
    if training not in rows:
        return (Entry(),) * (3 * len(MEASURES))
    entries = []
    for measure in MEASURES:
        tested = rows[training][measure]
        smallest = extreme((abs(row[measure].change) for row in rows.values()), smallest=True)
        bold = len(rows) > 1 and round(abs(tested.change), 4) == smallest
        mark = MARK if p_values.get(measure, 1.0) < SIGNIFICANCE else ""
        figures = [Entry(number(value, decimals)) for value in (tested.original, tested.rotated)]
        entries += [*figures, Entry(percent(tested.change), bold, mark)]
    return tuple(entries)


def _similarity(pair: tuple[float, float] | None) -> tuple[Entry, Entry]:
    mats, deviation = (NONE, NONE) if pair is None else (number(value, 3) for value in pair)
    return Entry(mats), Entry(deviation)


def _changes(key: tuple[str, ...], values: Mapping[str, BothSets]) -> list[tuple[Any, ...]]:
    return [
        record(*key, test, measure, value=value)
        for measure, tested in values.items()
        for test, value in (("original", tested.original), ("rotated", tested.rotated), ("change", tested.change))
    ]


def _measured(key: tuple[str, ...], found: RankersOnBoth) -> list[tuple[Any, ...]]:
    lines = []
    for measure, tested in found.both_sets().items():
        count, p = found.rankers, found.p_wilcoxon.get(measure)
        lines += [
            record(*key, "original", measure, value=found.original[measure], rankers=count),
            record(*key, "rotated", measure, value=found.rotated[measure], rankers=count),
            record(*key, "change", measure, value=tested.change, p=p, rankers=count),
        ]
    return lines
