"""Tables of passage rotation (Hofstätter et al. 2021).

Published rows, and below each the measured one. The published table says which models, trainings
and measures there are, and what they are called.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from backpack_rank.evaluation.results import Estimate
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.reporting.paper_layout import HERE, PAPER, Column, PaperRow, beside_published
from backpack_rank.reporting.published import PublishedTable
from backpack_rank.reporting.table import Cell, Table, extreme, number, percent

COLUMNS = (
    *("table", "model", "training", "source", "test", "measure"),
    *("value", "low", "high", "p_wilcoxon", "letters", "rankers"),
)
MARK = "†"
_TESTS = ("Orig.", "Deb.", "Δ")
_DECIMALS = {PAPER: 3, HERE: 4}
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class BothSets:
    """A measure on the original and on the rotated test set.

    >>> round(BothSets(original=0.312, rotated=0.254).change, 3)
    -0.228
    """

    original: float
    rotated: float

    @property
    def change(self) -> float:
        """Relative difference; NaN where the figure of the rotated test set is 0.

        The paper divides by the figure of the rotated test set, not by that of the original one.
        """
        if self.rotated == 0:
            return math.nan
        return (self.rotated - self.original) / self.rotated


@dataclass(frozen=True)
class RotationRow:
    """A row of :func:`effect_table`: rankers of a model and training, on both test sets.

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
        """Both means of every measure."""
        means = {}
        for name in self.original:
            means[name] = BothSets(self.original[name].mean, self.rotated[name].mean)
        return means


@dataclass(frozen=True)
class TransferRow:
    """A row of :func:`transfer_table`: rankers of a model, trained on collections in a chain.

    Attributes:
        figures: by measure.
        better_than: by measure, letters of the chains that this one is significantly better than.
        rankers: how many (seeds), None for a printed row; figures are of their mean values per
            query.
    """

    figures: Mapping[str, Estimate]
    better_than: Mapping[str, str] = field(default_factory=dict)
    rankers: int | None = 1


def printed_on_both(table: PublishedTable) -> dict[tuple[str, ...], dict[str, BothSets]]:
    """Read a published table like 3 and 4.

    >>> from backpack_rank.reporting.published import published
    >>> printed_on_both(published("rotation_table3"))["TK", "Original"]["MRR@10"]
    BothSets(original=0.312, rotated=0.254)

    Returns:
        ``{(model, training): {measure: both test sets}}``

    Raises:
        ValueError: it does not have two columns for each measure, and two trainings.
    """
    measures = measures_on_both(table)
    if len(table.labels_at(-1)) != 2:
        raise ValueError(
            f"rows of the published table {table.name} must be of two trainings, on original and "
            f"on rotated passages, and are of {', '.join(table.labels_at(-1))}"
        )
    printed: dict[tuple[str, ...], dict[str, BothSets]] = {}
    for labels in table.rows:
        figures = table.values(*labels)
        printed[labels] = {}
        for name in measures:
            both = BothSets(figures[f"{name} original"], figures[f"{name} rotated"])
            printed[labels][name] = both
    return printed


def measures_on_both(table: PublishedTable) -> tuple[str, ...]:
    """The measures of a published table like 3 and 4.

    >>> from backpack_rank.reporting.published import published
    >>> measures_on_both(published("rotation_table3"))
    ('nDCG@10', 'MRR@10', 'R@10')

    Raises:
        ValueError: it does not have two columns for each measure.
    """
    measures = tuple(column.removesuffix(" original") for column in table.columns[::2])
    wanted: list[str] = []
    for measure in measures:
        wanted += [f"{measure} original", f"{measure} rotated"]
    if table.columns != tuple(wanted):
        raise ValueError(
            f"the published table {table.name} must have the columns {', '.join(wanted)}"
        )
    return measures


def chain_letters(table: PublishedTable) -> tuple[str, str, str]:
    """The letters of the chains of a published table like 5.

    They are the last labels of rows: of the collection alone, another one before it, and that one
    rotated.

    Raises:
        ValueError: rows are not ``model | chain | letter``, or there are not three letters.
    """
    if any(len(labels) != 3 for labels in table.rows) or len(table.labels_at(-1)) != 3:
        raise ValueError(
            f"rows of the published table {table.name} must be 'model | chain | letter', of three "
            "letters"
        )
    alone, after_original, after_rotated = table.labels_at(-1)
    return alone, after_original, after_rotated


def effect_table(
    table: PublishedTable,
    measured: Mapping[tuple[str, str], RotationRow],
    collection: str,
    first_stage: tuple[str, Mapping[str, Estimate]] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Table 3 (MS MARCO) or 4 (SQuAD): every training on both test sets.

    Args:
        table: the published figures.
        measured: by model and training. Models with a name of the paper stand in its rows, further
            ones behind them.
        collection: what was measured on.
        first_stage: name and figures of the ranking that the candidates come from.
        notes: further sentences.
    """
    printed = printed_on_both(table)
    measures = measures_on_both(table)
    means = {key: row.both_sets() for key, row in measured.items()}
    rows = []
    models = dict.fromkeys([*table.labels_at(0), *(model for model, _ in measured)])
    for model, training in itertools.product(models, table.labels_at(1)):
        published_cells, measured_cells, records = None, {}, []
        if (model, training) in printed:
            of_model = _of_model(printed, model)
            published_cells = _effect_cells(of_model, training, PAPER)
            key = (table.file_name, model, training, PAPER)
            for measure, both in of_model[training].items():
                records += _effect_records(key, measure, both)
        if (model, training) in measured:
            row, of_model = measured[model, training], _of_model(means, model)
            measured_cells = _effect_cells(of_model, training, HERE, row.p_wilcoxon)
            key = (table.file_name, model, training, HERE)
            for measure, both in of_model[training].items():
                records += _effect_records(key, measure, both, row)
        rows.append(PaperRow((training,), model, published_cells, measured_cells, records))

    sentences = [
        _source(table),
        " ".join([f"Measured here on {collection}.", *table.notes]),
    ]
    if first_stage is not None:
        label, figures = first_stage
        cells, records = {}, []
        for measure in measures:
            # The same of both test sets, so it stands once.
            cells[measure, _TESTS[0]] = Cell(number(figures[measure].mean))
            about = (table.file_name, label, "", HERE, "original", measure)
            records.append(_record(*about, value=figures[measure]))
        rows.append(PaperRow(("",), label, measured=cells, records=records))
        sentences.append(f"{label}: the candidates that are ranked, the same of both test sets.")
    sentences += [
        "Δ = (Deb. - Orig.) / Deb., as the paper's figures were computed. Bold: the smaller Δ of "
        "the two trainings.",
        f"{MARK} the two test sets differ by Wilcoxon's signed-rank test over the queries, "
        f"p < {SIGNIFICANCE:g}, not corrected (the paper has no such test here).",
        *notes,
    ]
    columns = []
    for measure, test in itertools.product(measures, _TESTS):
        columns.append(Column((measure, test), test, _heading(table, measure)))
    return beside_published(
        table, columns, rows, source_in="labels", csv_columns=COLUMNS, notes=sentences
    )


def similarity_table(
    table: PublishedTable,
    measured: Mapping[tuple[str, str, str], tuple[float, float]],
    notes: Sequence[str] = (),
) -> Table:
    """Table 2: MATS of rankers trained on original and rotated passages.

    Args:
        table: the published figures.
        measured: ``{(model, collection, training): (MATS, standard deviation)}``.
        notes: further sentences, such as how MATS was sampled.
    """
    printed: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    # A collection has two columns: "MS MARCO MATS" and "MS MARCO Std.dev.".
    printed_on = []
    for column in table.columns:
        if column.endswith(" MATS"):
            printed_on.append(column.removesuffix(" MATS"))
    for labels in table.rows:
        values = table.values(*labels)
        printed[labels] = {}
        for on in printed_on:
            printed[labels][on] = (values[f"{on} MATS"], values[f"{on} Std.dev."])
    here: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for (model, on, training), pair in measured.items():
        here.setdefault((model, training), {})[on] = pair

    rows = []
    models = dict.fromkeys([*table.labels_at(0), *(model for model, _, _ in measured)])
    for model, training in itertools.product(models, table.labels_at(1)):
        published_cells, measured_cells, records = None, {}, []
        if (model, training) in printed:
            pairs = printed[model, training]
            published_cells = _similarity_cells(pairs)
            records += _similarity_records((table.file_name, model, training, PAPER), pairs)
        if (model, training) in here:
            pairs = here[model, training]
            measured_cells = _similarity_cells(pairs)
            records += _similarity_records((table.file_name, model, training, HERE), pairs)
        rows.append(PaperRow((training,), model, published_cells, measured_cells, records))
    # The paper's collections first, each once.
    collections = dict.fromkeys([*printed_on, *(on for _, on, _ in measured)])
    columns = []
    for on, heading in itertools.product(collections, ("MATS", "Std.dev.")):
        columns.append(Column((on, heading), heading, on))
    return beside_published(
        table,
        columns,
        rows,
        source_in="labels",
        csv_columns=COLUMNS,
        notes=[_source(table), *table.notes, *notes],
    )


def transfer_table(
    table: PublishedTable,
    measured: Mapping[str, Mapping[str, TransferRow]],
    target: str,
    source: str,
    collection: str,
    notes: Sequence[str] = (),
) -> Table:
    """Table 5: models by what they were trained on, one collection after another.

    Args:
        table: the published figures.
        measured: by model and letter of the chain; chains may be absent.
        target: what every chain was trained on last.
        source: what the longer chains were trained on first.
        collection: what was measured on.
        notes: further sentences.
    """
    measures = table.columns
    letters_of_chains = chain_letters(table)
    printed: dict[tuple[str, str], TransferRow] = {}
    chains_in_paper: dict[str, str] = {}
    for (model, chain, letter), figures in table.rows.items():
        estimates = {}
        letters = {}
        for measure in measures:
            estimates[measure] = _estimate(figures[measure].value)
            letters[measure] = figures[measure].marks
        printed[model, letter] = TransferRow(estimates, letters, rankers=None)
        chains_in_paper[letter] = chain
    chains_here = _chains(letters_of_chains, source, target)

    rows = []
    models = dict.fromkeys([*table.labels_at(0), *measured])
    for model, letter in itertools.product(models, letters_of_chains):
        # The paper's chains have other names than those measured, so each has a separate row.
        if (model, letter) in printed:
            chain = chains_in_paper[letter]
            chains = _of_model(printed, model)
            cells = _transfer_cells(chains, letter, PAPER)
            key = (table.file_name, model, chain, PAPER)
            records = _transfer_records(key, chains[letter])
            rows.append(PaperRow((chain, letter), model, published=cells, records=records))
        chain = chains_here[letter]
        measured_chains = measured.get(model, {})
        cells, records = {}, []
        if letter in measured_chains:
            cells = _transfer_cells(measured_chains, letter, HERE)
            key = (table.file_name, model, chain, HERE)
            records = _transfer_records(key, measured_chains[letter])
        rows.append(PaperRow((chain, letter), model, measured=cells, records=records))
    sentences = [
        _source(table),
        " ".join([f"Measured here on {collection}.", *table.notes]),
        "Letters: significantly better than the row of that letter of the same model and source by "
        f"Wilcoxon's signed-rank test over the queries, p < {SIGNIFICANCE:g}, not corrected. Bold: "
        "the highest of a model.",
        *notes,
    ]
    columns = [Column(measure, _heading(table, measure)) for measure in measures]
    return beside_published(
        table, columns, rows, source_in="labels", csv_columns=COLUMNS, notes=sentences
    )


def _of_model(rows: Mapping[Any, _Row], model: str) -> dict[str, _Row]:
    """Rows of one model, by training or letter."""
    rows_of_model = {}
    for (model_of_row, key), row in rows.items():
        if model_of_row == model:
            rows_of_model[key] = row
    return rows_of_model


def _heading(table: PublishedTable, measure: str) -> str:
    """What the paper calls a measure."""
    return table.headings.get(measure, measure)


def _source(table: PublishedTable) -> str:
    return f"{table.source}: {table.data}."


def _record(
    *keys: str,
    value: Estimate | float,
    p: float | None = None,
    letters: str = "",
    rankers: int | None = None,
) -> tuple[Any, ...]:
    """A line of a CSV file with the columns :data:`COLUMNS`; ``keys`` are the first six of them."""
    figure = _estimate(value)
    mean = None if math.isnan(figure.mean) else figure.mean
    return (*keys, mean, figure.low, figure.high, p, letters, rankers)


def _estimate(value: Estimate | float) -> Estimate:
    """A printed figure has no confidence interval."""
    return value if isinstance(value, Estimate) else Estimate(value, abs(value))


def _effect_cells(
    trainings: Mapping[str, Mapping[str, BothSets]],
    training: str,
    source: str,
    p_values: Mapping[str, float] | None = None,
) -> dict[tuple[str, str], Cell]:
    """The figures of a training; the model's other training decides which are bold."""
    original, rotated, change = _TESTS
    cells = {}
    for measure in trainings[training]:
        both = trainings[training][measure]
        # Both trainings are bold where their changes are equal as printed.
        changes = [abs(of_training[measure].change) for of_training in trainings.values()]
        bold = len(changes) > 1 and round(abs(both.change), 4) == extreme(changes, smallest=True)
        mark = MARK if (p_values or {}).get(measure, 1.0) < SIGNIFICANCE else ""
        cells[measure, original] = Cell(number(both.original, _DECIMALS[source]))
        cells[measure, rotated] = Cell(number(both.rotated, _DECIMALS[source]))
        cells[measure, change] = Cell(percent(both.change), bold, mark)
    return cells


def _effect_records(
    key: tuple[str, ...], measure: str, both: BothSets, row: RotationRow | None = None
) -> list[tuple[Any, ...]]:
    """Both test sets and the change; ``row`` is what was measured, None for printed figures."""
    if row is None:
        return [
            _record(*key, "original", measure, value=both.original),
            _record(*key, "rotated", measure, value=both.rotated),
            _record(*key, "change", measure, value=both.change),
        ]
    p = row.p_wilcoxon.get(measure)
    return [
        _record(*key, "original", measure, value=row.original[measure], rankers=row.rankers),
        _record(*key, "rotated", measure, value=row.rotated[measure], rankers=row.rankers),
        _record(*key, "change", measure, value=both.change, p=p, rankers=row.rankers),
    ]


def _similarity_cells(pairs: Mapping[str, tuple[float, float]]) -> dict[tuple[str, str], Cell]:
    cells = {}
    for on, (mats, deviation) in pairs.items():
        cells[on, "MATS"] = Cell(number(mats, 3))
        cells[on, "Std.dev."] = Cell(number(deviation, 3))
    return cells


def _similarity_records(
    key: tuple[str, ...], pairs: Mapping[str, tuple[float, float]]
) -> list[tuple[Any, ...]]:
    records = []
    for on, (mats, deviation) in pairs.items():
        records.append(_record(*key, on, "MATS", value=mats))
        records.append(_record(*key, on, "MATS std", value=deviation))
    return records


def _chains(letters: Sequence[str], source: str, target: str) -> dict[str, str]:
    """What each chain was trained on in turn, such as ``squad(Debiased) -> nq(Original)``."""
    last = f"{target}(Original)"
    chains = (last, f"{source}(Original) -> {last}", f"{source}(Debiased) -> {last}")
    return dict(zip(letters, chains, strict=True))


def _transfer_cells(chains: Mapping[str, TransferRow], letter: str, source: str) -> dict[str, Cell]:
    """The figures of a chain; the model's other chains decide which are bold."""
    cells = {}
    for measure in chains[letter].figures:
        mean = chains[letter].figures[measure].mean
        means = [row.figures[measure].mean for row in chains.values()]
        highest = extreme(means, smallest=False)
        bold = len(chains) > 1 and round(mean, 4) == highest
        letters = chains[letter].better_than.get(measure, "")
        cells[measure] = Cell(number(mean, _DECIMALS[source]), bold, letters)
    return cells


def _transfer_records(key: tuple[str, ...], row: TransferRow) -> list[tuple[Any, ...]]:
    records = []
    for measure, figure in row.figures.items():
        letters = row.better_than.get(measure, "")
        records.append(
            _record(*key, "original", measure, value=figure, letters=letters, rankers=row.rankers)
        )
    return records
