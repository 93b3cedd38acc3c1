"""Tables of passage rotation (Hofstätter et al. 2021): published rows, below each the measured; rotation by alpha."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.reporting.published import PublishedTable, published
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, extreme, number, percent

MODELS = ("BERT_CAT", "BERT_DOT", "TK")
KNOWN_AS: Mapping[str, str] = {
    "cross_encoder": "BERT_CAT",
    "CrossEncoderForRanking": "BERT_CAT",
    "bert_dot": "BERT_DOT",
    "DualEncoderForRanking": "BERT_DOT",
    "tk": "TK",
}
"""Our names of the paper's models."""

TRAININGS = ("Original", "Debiased")
"""The paper calls rotated passages debiased."""
MEASURES = ("nDCG@10", "MRR@10", "R@10")
HEADINGS: Mapping[str, str] = {"nDCG@10": "nDCG", "MRR@10": "MRR", "R@10": "Recall"}
"""The paper's names of the measures."""
LETTERS = "abc"
"""Of the chains of Table 5: the collection alone, another one before it, and that one rotated."""

COLUMNS = (
    *("table", "model", "training", "source", "test", "measure"),
    *("value", "low", "high", "p_wilcoxon", "letters", "rankers"),
)
PAPER, HERE = "paper", "here"
"""Who measured a figure."""
MARK = "†"
_DECIMALS = {PAPER: 3, HERE: 4}
_F = TypeVar("_F")
_Found: TypeAlias = dict[tuple[str, ...], _F]
"""Of (model, training) or (model, letter)."""

EFFECT, PLACE = "nDCG@10", "MRR@10"
BIAS = ("RaB(tf)@10", "ARaB(tf)@10", "swap change/std")
THIRDS = ("first", "middle", "last")
"""Of the passage, by where the answer starts."""
ALPHA_COLUMNS = ("model", "training", "alpha", "test", "measure", "value", "low", "high", "queries", "rankers")


@dataclass(frozen=True)
class BothSets:
    """A measure on the original and on the rotated test set."""

    original: float
    rotated: float

    @property
    def change(self) -> float:
        """Relative difference as in the paper, which divides by the figure of the rotated test set; nan for 0."""
        return (self.rotated - self.original) / self.rotated if self.rotated else float("nan")


@dataclass(frozen=True)
class RotationRow:
    """Rankers of one model and training, on the original and on the rotated test set.

    Attributes:
        original, rotated: figures by measure.
        p_wilcoxon: by measure, of the difference between the two over the queries.
        rankers: how many (seeds); figures are of their mean values per query.
    """

    original: Mapping[str, Estimate]
    rotated: Mapping[str, Estimate]
    p_wilcoxon: Mapping[str, float]
    rankers: int = 1

    def both_sets(self) -> dict[str, BothSets]:
        """Both means of every measure of the paper."""
        return {name: BothSets(self.original[name].mean, self.rotated[name].mean) for name in MEASURES}


@dataclass(frozen=True)
class TransferRow:
    """Rankers of one model that were trained on one collection after another.

    Attributes:
        figures: by measure.
        better_than: by measure, letters of the chains that this one is significantly better than.
        rankers: how many (seeds), None for a printed row; figures are of their mean values per query.
    """

    figures: Mapping[str, Estimate]
    better_than: Mapping[str, str] = field(default_factory=dict)
    rankers: int | None = 1


@dataclass(frozen=True)
class RankersAtAlpha:
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
    figures: Mapping[str, Mapping[str, Estimate]]
    thirds: Mapping[str, Mapping[str, tuple[Estimate, int]]]
    rankers: int = 1


def printed_on_both(table: PublishedTable) -> dict[tuple[str, ...], dict[str, BothSets]]:
    """``{(model, training): {measure: both test sets}}`` of a table like 3 and 4.

    Raises:
        ValueError: it does not have two columns for each of :data:`MEASURES`.
    """
    wanted = tuple(f"{measure} {test}" for measure in MEASURES for test in ("original", "rotated"))
    if table.columns != wanted:
        raise ValueError(f"the published table {table.name} must have the columns {', '.join(wanted)}")
    found = {}
    for labels in table.rows:
        figures = table.values(*labels)
        found[labels] = {name: BothSets(figures[f"{name} original"], figures[f"{name} rotated"]) for name in MEASURES}
    return found


def effect_table(
    name: str,
    measured: Mapping[tuple[str, str], RotationRow],
    collection: str,
    first_stage: tuple[str, Mapping[str, Estimate]] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Table 3 (MS MARCO) or 4 (SQuAD): every training on the original and on the rotated test set.

    Args:
        name: of the published table.
        measured: by model and training (:data:`TRAININGS`). Models with a name of the paper stand in its rows, further
            ones behind them.
        collection: what was measured on.
        first_stage: name and figures of the ranking that the candidates come from.
        notes: further sentences.
    """
    table = published(name)
    found: dict[str, _Found[dict[str, BothSets]]] = {PAPER: printed_on_both(table), HERE: {}}
    found[HERE] = {key: row.both_sets() for key, row in measured.items()}
    sections: dict[str, list[Row]] = {}
    records: list[tuple[Any, ...]] = []
    for model, training, source, both in _paper_and_here(ordered(model for model, _ in measured), TRAININGS, found):
        row = measured.get((model, training)) if source == HERE else None
        cells = _effect(training, _of_model(found[source], model), row.p_wilcoxon if row else {}, _DECIMALS[source])
        sections.setdefault(model, []).append(Row((training, source), cells))
        for measure, values in (both or {}).items():
            records += _effect_records((table.file_name, model, training, source), measure, values, row)
    sentences = [f"Measured here on {collection}. Debiased is rotated; every measure is cut at 10."]
    if first_stage is not None:
        label, figures = first_stage
        shown = [cell for m in MEASURES for cell in (Cell(number(figures[m].mean)), Cell(), Cell())]
        sections[label] = [Row(("", HERE), shown)]
        records += [_record(table.file_name, label, "", HERE, "original", m, value=figures[m]) for m in MEASURES]
        sentences.append(f"{label}: the candidates that are ranked, the same of both test sets.")
    sentences += [
        "Δ = (Deb. - Orig.) / Deb., as the paper's figures were computed. Bold: the smaller Δ of the two trainings.",
        f"{MARK} the two test sets differ by Wilcoxon's signed-rank test over the queries, p < {SIGNIFICANCE:g}, not "
        "corrected (the paper has no such test here).",
        *notes,
    ]
    groups = [Group(HEADINGS[measure], ("Orig.", "Deb.", "Δ")) for measure in MEASURES]
    return table.table_of(groups, sections, [_source(table), *sentences], COLUMNS, records)


def similarity_table(
    measured: Mapping[tuple[str, str, str], tuple[float, float]],
    notes: Sequence[str] = (),
    name: str = "rotation_table2",
) -> Table:
    """Table 2: MATS and its standard deviation of rankers trained on original and rotated passages.

    Args:
        measured: ``{(model, collection, training): (MATS, standard deviation)}``.
        notes: further sentences, such as how MATS was sampled.
        name: of the published table.
    """
    table = published(name)
    printed_on = [column.removesuffix(" MATS") for column in table.columns if column.endswith(" MATS")]
    collections = list(dict.fromkeys([*printed_on, *(name for _, name, _ in measured)]))
    found: dict[str, _Found[dict[str, tuple[float, float]]]] = {PAPER: {}, HERE: {}}
    for labels in table.rows:
        values = table.values(*labels)
        found[PAPER][labels] = {on: (values[f"{on} MATS"], values[f"{on} Std.dev."]) for on in printed_on}
    for (model, on, training), pair in measured.items():
        found[HERE].setdefault((model, training), {})[on] = pair

    sections: dict[str, list[Row]] = {}
    records: list[tuple[Any, ...]] = []
    models = ordered((model for model, _, _ in measured), (model for model, _ in table.rows))
    for model, training, source, own in _paper_and_here(models, TRAININGS, found):
        pairs = [(own or {}).get(on, (None, None)) for on in collections]
        cells = [Cell(number(value, 3)) for pair in pairs for value in pair]
        sections.setdefault(model, []).append(Row((training, source), cells))
        for on, (mats, deviation) in (own or {}).items():
            key = (table.file_name, model, training, source, on)
            records += [_record(*key, "MATS", value=mats), _record(*key, "MATS std", value=deviation)]
    sentence = "Lower MATS is less position bias. Passages are read as they are, not rotated."
    groups = [Group(on, ("MATS", "Std.dev.")) for on in collections]
    return table.table_of(groups, sections, [_source(table), sentence, *notes], COLUMNS, records)


def transfer_table(
    measured: Mapping[str, Mapping[str, TransferRow]],
    target: str,
    source: str,
    collection: str,
    notes: Sequence[str] = (),
    name: str = "rotation_table5",
) -> Table:
    """Table 5: models by what they were trained on.

    Args:
        measured: by model and letter of the chain (:data:`LETTERS`); chains may be absent.
        target: what every chain was trained on last.
        source: what the longer chains were trained on first.
        collection: what was measured on.
        notes: further sentences.
        name: of the published table.
    """
    table = published(name)
    found: dict[str, _Found[TransferRow]] = {PAPER: {}, HERE: {}}
    found[HERE] = {(model, letter): chain for model, chains in measured.items() for letter, chain in chains.items()}
    for labels, printed in table.rows.items():
        figures = {m: _estimate(printed[m].value) for m in MEASURES}
        found[PAPER][labels] = TransferRow(figures, {m: printed[m].marks for m in MEASURES}, None)
    sections: dict[str, list[Row]] = {}
    records: list[tuple[Any, ...]] = []
    for model, letter, by, row in _paper_and_here(ordered(measured), LETTERS, found):
        chain = _chain(letter, "MS", "SQuAD") if by == PAPER else _chain(letter, source, target)
        cells = _transferred(letter, _of_model(found[by], model), _DECIMALS[by])
        sections.setdefault(model, []).append(Row((chain, letter, by), cells))
        if row is not None:
            key = (table.file_name, model, chain, by, "original")
            records += [
                _record(*key, m, value=row.figures[m], letters=row.better_than.get(m, ""), rankers=row.rankers)
                for m in MEASURES
            ]
    sentences = [
        _source(table),
        f"Measured here on {collection}. Every measure is cut at 10.",
        "Letters: significantly better than the row of that letter of the same model and source by Wilcoxon's "
        f"signed-rank test over the queries, p < {SIGNIFICANCE:g}, not corrected. Bold: the highest of a model.",
        *notes,
    ]
    groups = [Group("", tuple(HEADINGS[m] for m in MEASURES))]
    return table.table_of(groups, sections, sentences, COLUMNS, records)


def alpha_table(
    rows: Sequence[RankersAtAlpha], collection: str, bias_set: str, sign_in_words: str, notes: Sequence[str] = ()
) -> Table:
    """Rotation by alpha: position bias and gender bias of the same rankers, a row for each training and alpha.

    Args:
        rows: in the order of the table; models become sections.
        collection: what effectiveness was measured on.
        bias_set: what gender bias was measured on.
        sign_in_words: of the measures of bias.
        notes: further sentences.
    """
    sections = [
        Section(model, [Row((row.training, f"{row.alpha:g}"), _both_biases(row)) for row in rows if row.model == model])
        for model in dict.fromkeys(row.model for row in rows)
    ]
    sentences = (
        f"Effectiveness on {collection}. Gender bias on {bias_set}; {sign_in_words}.",
        "Orig. and Deb. are test sets with the passages as they are and rotated. Δ = (Deb. - Orig.) / Deb.: below 0 "
        "the ranker loses when answers do not stand where they used to.",
        f"{PLACE} first and last: over the queries whose answer starts in the first and the last third of the original "
        "passage. swap change/std: mean change of scores when gendered words are swapped, in standard deviations.",
        *notes,
    )
    groups = (
        Group(EFFECT, ("Orig.", "Deb.", "Δ")),
        Group(PLACE, ("first", "last")),
        *(Group(name, ("Orig.", "Deb.")) for name in BIAS),
    )
    title = "Position bias and gender bias by training passages and alpha"
    records = [line for row in rows for line in _alpha_records(row)]
    return Table("rotation_alpha", title, ("Training", "alpha"), groups, sections, sentences, ALPHA_COLUMNS, records)


def ordered(models: Iterable[str], first: Iterable[str] = MODELS) -> list[str]:
    """The paper's models, then the others."""
    return list(dict.fromkeys([*first, *models]))


def _paper_and_here(
    models: Iterable[str], keys: Sequence[str], found: Mapping[str, _Found[_F]]
) -> Iterator[tuple[str, str, str, _F | None]]:
    """The rows of a table as (model, key, source, what there is): the paper's where there are any, ours in any case."""
    for model, key, source in itertools.product(models, keys, (PAPER, HERE)):
        row = found[source].get((model, key))
        if row is not None or source == HERE:
            yield model, key, source, row


def _of_model(found: _Found[_F], model: str) -> dict[str, _F]:
    return {key: one for (of, key), one in found.items() if of == model}


def _source(table: PublishedTable) -> str:
    return f"{table.source}: {table.data}."


def _record(
    *keys: str, value: Estimate | float, p: float | None = None, letters: str = "", rankers: int | None = None
) -> tuple[Any, ...]:
    """A line of a CSV file with the columns :data:`COLUMNS`; ``keys`` are the first six of them."""
    figure = _estimate(value)
    mean = None if math.isnan(figure.mean) else figure.mean
    return (*keys, mean, figure.low, figure.high, p, letters, rankers)


def _estimate(value: Estimate | float) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value, abs(value))


def _effect(
    training: str, rows: Mapping[str, dict[str, BothSets]], p_values: Mapping[str, float], decimals: int
) -> list[Cell]:
    """The figures of a training; ``rows`` are those of both trainings, for what is printed bold."""
    if training not in rows:
        return [Cell()] * (3 * len(MEASURES))
    cells = []
    for measure in MEASURES:
        tested = rows[training][measure]
        smallest = extreme((abs(row[measure].change) for row in rows.values()), smallest=True)
        bold = len(rows) > 1 and round(abs(tested.change), 4) == smallest
        mark = MARK if p_values.get(measure, 1.0) < SIGNIFICANCE else ""
        cells += [Cell(number(value, decimals)) for value in (tested.original, tested.rotated)]
        cells.append(Cell(percent(tested.change), bold, mark))
    return cells


def _effect_records(
    key: tuple[str, ...], measure: str, both: BothSets, row: RotationRow | None
) -> list[tuple[Any, ...]]:
    """Both test sets and the change; ``row`` is what was measured, None for printed figures."""
    original, rotated = (both.original, both.rotated) if row is None else (row.original[measure], row.rotated[measure])
    p, rankers = (None, None) if row is None else (row.p_wilcoxon.get(measure), row.rankers)
    return [
        _record(*key, "original", measure, value=original, rankers=rankers),
        _record(*key, "rotated", measure, value=rotated, rankers=rankers),
        _record(*key, "change", measure, value=both.change, p=p, rankers=rankers),
    ]


def _chain(letter: str, source: str, target: str) -> str:
    last = f"{target}(Original)"
    return last if letter == "a" else f"{source}({'Original' if letter == 'b' else 'Debiased'}) -> {last}"


def _transferred(letter: str, rows: Mapping[str, TransferRow], decimals: int) -> list[Cell]:
    """The figures of a chain; ``rows`` are those of all chains of the model, for what is printed bold."""
    if letter not in rows:
        return [Cell()] * len(MEASURES)
    cells = []
    for measure in MEASURES:
        mean = rows[letter].figures[measure].mean
        highest = extreme((row.figures[measure].mean for row in rows.values()), smallest=False)
        bold = len(rows) > 1 and round(mean, 4) == highest
        cells.append(Cell(number(mean, decimals), bold, rows[letter].better_than.get(measure, "")))
    return cells


def _both_biases(row: RankersAtAlpha) -> list[Cell]:
    original, rotated = row.figures["original"], row.figures["rotated"]
    tested = BothSets(original[EFFECT].mean, rotated[EFFECT].mean)
    thirds = row.thirds.get("original", {})
    places = [thirds[third][0].mean if third in thirds else None for third in (THIRDS[0], THIRDS[-1])]
    bias = [figures[name].mean if name in figures else None for name in BIAS for figures in (original, rotated)]
    effect = [number(tested.original), number(tested.rotated), percent(tested.change)]
    return list(map(Cell, [*effect, *map(number, [*places, *bias])]))


def _alpha_records(row: RankersAtAlpha) -> list[tuple[object, ...]]:
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
