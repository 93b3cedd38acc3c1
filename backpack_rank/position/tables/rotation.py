"""Tables 3, 4 and 5 of Hofstätter et al. 2021: rotated passages.

Rankers of original and of rotated passages are tested on both, and on other collections (transfer).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backpack_rank.checks import located
from backpack_rank.commands import called
from backpack_rank.constructors import Name, PathText
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import Estimate, PerQuery
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Files, Names
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.passages.rotation_benchmark import (
    ORIGINAL,
    ROTATED,
    RotationBenchmark,
)
from backpack_rank.position.tables.checkpoints import (
    Checkpoint,
    Stages,
    TrainingStage,
    chosen_runs,
    group_by_seed,
    ranker_notes,
    trainings_on,
)
from backpack_rank.reporting.measure_files import write_per_query
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.published import Printed, PublishedTable, published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

CHANGE = "change"


@dataclass(frozen=True)
class RotationEffect(Experiment):
    """Compares rankers on original and rotated passages (Tables 3 and 4).

    It is the ``task`` of ``evaluate.py experiment=passage_rotation/table3`` and ``table4``.

    Attributes:
        published: name of a published table like 3 (MS MARCO) or 4 (SQuAD), whose figures stand
            beside those measured.
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        trained_on: name of the training data; None is that of ``data=``.
        models: names to measure; None measures all that are found.
    """

    published: PathText
    runs: Files | None = None
    trained_on: Name | None = None
    models: Names | None = None

    def __post_init__(self) -> None:
        with located("task.published"):
            effect_table(published(self.published), {}, "")  # before anything is measured

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure the rankers found; write the table and values per query.

        The table is written as Markdown, LaTeX and CSV.
        """
        table = published(self.published)
        dataset = settings.needed_dataset()
        source = self.trained_on or dataset.name
        training_by_stages = trainings_on(table, source, settings)
        runs = chosen_runs(self.runs, self.models, settings, table, list(training_by_stages))
        bench = RotationBenchmark(settings, dataset, measures_on_both(table))
        measured: dict[tuple[str, str], PaperRow] = {}
        values = []
        for (model, stages), runs_of_seeds in group_by_seed(runs).items():
            label = table.label_of(model)
            training = training_by_stages[stages]
            values_by_test = bench.measure([run.ranker for run in runs_of_seeds])
            original, rotated = values_by_test[ORIGINAL], values_by_test[ROTATED]
            p_values = {}
            for measure in bench.measures:
                p_values[measure] = p_wilcoxon(original, rotated, measure)
            measured[label, training] = PaperRow(
                (label, training),
                effect_figures(figures_of(original), figures_of(rotated), p_values),
                record={"rankers": len(runs_of_seeds)},
            )
            for name, per_query in values_by_test.items():
                values.append((f"{label} ({training}) on {name}", per_query.values))
        shown = effect_table(
            table,
            measured,
            bench.in_words(),
            first_stage=(bench.stage, figures_of(bench.first_stage())),
            notes=[*missing_effects(table, measured, source), *ranker_notes(table, runs)],
        )
        finish(settings, folder, shown, values, quiet)


@dataclass(frozen=True)
class RotationTransfer(Experiment):
    """Shows whether rankers of rotated passages transfer to another collection (Table 5).

    It is the ``task`` of ``evaluate.py experiment=passage_rotation/table5``.

    Attributes:
        published: name of a published table like 5, or path of a file of one's own.
        first: name of the data that the longer chains were trained on first; None takes the one
            that is found.
        runs, models: as in :class:`RotationEffect`.
    """

    published: PathText
    first: Name | None = None
    runs: Files | None = None
    models: Names | None = None

    def __post_init__(self) -> None:
        with located("task.published"):
            # Before anything is measured.
            transfer_table(published(self.published), {}, [(), (), ()], "")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure the rankers found on the original test set.

        Write the table and values per query.
        """
        table = published(self.published)
        dataset = settings.needed_dataset()
        target = TrainingStage(dataset.name)
        runs = []
        for run in chosen_runs(self.runs, self.models, settings, table):
            if run.stages[-1] == target:
                runs.append(run)
        first = self.first or _first_data(runs)
        # The collection alone; another collection before it; the other one rotated.
        chains: list[Stages] = [
            (target,),
            (TrainingStage(first), target),
            (TrainingStage(first, settings.rotation.level), target),
        ]
        letters = dict(zip(chains, chain_letters(table), strict=True))
        runs = [run for run in runs if run.stages in letters]

        bench = RotationBenchmark(settings, dataset, table.columns)
        rankers: dict[tuple[str, str], int] = {}
        values_by_model: dict[str, dict[str, PerQuery]] = {}
        for (model, stages), runs_of_seeds in group_by_seed(runs).items():
            label, letter = table.label_of(model), letters[stages]
            values = bench.measure([run.ranker for run in runs_of_seeds], (ORIGINAL,))[ORIGINAL]
            values_by_model.setdefault(label, {})[letter] = values
            rankers[label, letter] = len(runs_of_seeds)

        measured = {}
        per_query = []
        for model, values_by_letter in values_by_model.items():
            for letter, values in values_by_letter.items():
                measured[model, letter] = PaperRow(
                    (model, letter),
                    chain_figures(letter, values_by_letter),
                    record={"rankers": rankers[model, letter]},
                )
                per_query.append((f"{model} ({letter})", values.values))
        notes = [
            *missing_chains(table, measured, first, target.data),
            *ranker_notes(table, runs),
        ]
        shown = transfer_table(table, measured, chains, bench.in_words(), notes)
        finish(settings, folder, shown, per_query, quiet)


def relative_change(original: float, rotated: float) -> float:
    """What rotated passages change, relatively; NaN where their figure is 0.

    The paper divides by the figure of the rotated test set, not by that of the original one.

    >>> round(relative_change(original=0.312, rotated=0.254), 3)
    -0.228
    """
    return math.nan if rotated == 0 else (rotated - original) / rotated


def measures_on_both(table: PublishedTable) -> tuple[str, ...]:
    """The measures of a published table like 3 and 4.

    >>> measures_on_both(published("rotation_table3"))
    ('nDCG@10', 'MRR@10', 'R@10')

    Raises:
        ValueError: it does not have two columns for each measure.
    """
    measures = tuple(column.removesuffix(" original") for column in table.columns[::2])
    wanted = tuple(" ".join(names) for names in itertools.product(measures, (ORIGINAL, ROTATED)))
    if table.columns != wanted:
        raise ValueError(
            f"the published table {table.name} must have the columns {', '.join(wanted)}"
        )
    return measures


def with_changes(table: PublishedTable) -> PublishedTable:
    """A published table like 3 and 4 with a further column for each measure, its change.

    Raises:
        ValueError: it does not have two columns for each measure, and two trainings.
    """
    measures = measures_on_both(table)
    if len(table.labels_at(-1)) != 2:
        raise ValueError(
            f"rows of the published table {table.name} must be of two trainings, on original and "
            f"on rotated passages, and are of {', '.join(table.labels_at(-1))}"
        )
    columns: list[str] = []
    rows: dict[tuple[str, ...], dict[str, Printed]] = {labels: {} for labels in table.rows}
    for measure in measures:
        both = [f"{measure} {ORIGINAL}", f"{measure} {ROTATED}"]
        columns += [*both, f"{measure} {CHANGE}"]
        for labels, printed in table.rows.items():
            original, rotated = (printed[column] for column in both)
            # Relative, whatever the printed figures are multiplied with.
            change = table.scale * relative_change(original.value, rotated.value)
            figures = (original, rotated, Printed(repr(change)))
            rows[labels] |= dict(zip(columns[-3:], figures, strict=True))
    return replace(table, columns=tuple(columns), shown=tuple(columns), rows=rows)


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


def effect_figures(
    original: Mapping[str, Estimate], rotated: Mapping[str, Estimate], p_values: Mapping[str, float]
) -> dict[ColumnKey, Figure | Estimate]:
    """Figures of both test sets and of the change; a dagger where they differ."""
    figures: dict[ColumnKey, Figure | Estimate] = {}
    for measure in original:
        p = p_values[measure]
        figures[measure, ORIGINAL] = original[measure]
        figures[measure, ROTATED] = rotated[measure]
        figures[measure, CHANGE] = Figure(
            relative_change(original[measure].mean, rotated[measure].mean),
            marks="†" if p < SIGNIFICANCE else "",
            record={"p_wilcoxon": p},
        )
    return figures


def effect_table(
    table: PublishedTable,
    measured: Mapping[tuple[str, str], PaperRow],
    collection: str,
    first_stage: tuple[str, Mapping[str, Estimate]] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Table 3 (MS MARCO) or 4 (SQuAD): every training on both test sets.

    Args:
        table: the published figures.
        measured: by model and training.
        collection: what was measured on.
        first_stage: name and figures of the ranking that the candidates come from.
        notes: further sentences.
    """
    rows = every_row(table, measured)
    name = None
    if first_stage is not None:
        # The same of both test sets, so it stands once.
        name, figures = first_stage
        on_original = {(measure, ORIGINAL): figures[measure] for measure in measures_on_both(table)}
        rows.append(PaperRow((name, ""), on_original))
    facts = {"collection": collection, "first_stage": name}
    return lay_out("rotation_effect", rows, with_changes(table), facts=facts, notes=notes)


def every_row(
    table: PublishedTable,
    measured: Mapping[tuple[str, str], PaperRow],
    chains: Mapping[str, str] | None = None,
) -> list[PaperRow]:
    """Rows of all models with each last label of the paper, dashes where nothing was measured.

    Args:
        table: the published figures.
        measured: by model and last label.
        chains: what a chain of trainings is called here, by last label, which it stands before.
    """
    rows = []
    for model, last in itertools.product(_models(table, measured), table.labels_at(-1)):
        row = measured.get((model, last), PaperRow((model, last), {}))
        if chains is not None:
            row = replace(row, labels=(model, chains[last], last))
        rows.append(row)
    return rows


def chain_figures(letter: str, values_by_letter: Mapping[str, PerQuery]) -> dict[ColumnKey, Figure]:
    """Figures of a model's chain, with the letters of those of its chains that it is better than.

    Better is a higher mean, significant by Wilcoxon's signed-rank test over the queries.
    """
    values = values_by_letter[letter]
    figures = {}
    for measure, estimate in figures_of(values).items():
        better_than = ""
        for other in sorted(values_by_letter.keys() - {letter}):
            other_values = values_by_letter[other]
            is_higher = values.mean(measure) > other_values.mean(measure)
            if is_higher and p_wilcoxon(values, other_values, measure) < SIGNIFICANCE:
                better_than += other
        figures["", measure] = Figure(estimate, marks=better_than)
    return figures


def transfer_table(
    table: PublishedTable,
    measured: Mapping[tuple[str, str], PaperRow],
    chains: Sequence[Stages],
    collection: str,
    notes: Sequence[str] = (),
) -> Table:
    """Table 5: models by what they were trained on, one collection after another.

    Args:
        table: the published figures.
        measured: by model and letter of the chain.
        chains: what rankers of each letter were trained on.
        collection: what was measured on.
        notes: further sentences.
    """
    names = {}
    for letter, stages in zip(chain_letters(table), chains, strict=True):
        trainings = []
        for stage in stages:
            training = "Original" if stage.rotation is None else "Debiased"
            trainings.append(f"{stage.data}({training})")
        names[letter] = " -> ".join(trainings)
    rows = every_row(table, measured, names)
    return lay_out("rotation_transfer", rows, table, facts={"collection": collection}, notes=notes)


def figures_of(values: PerQuery) -> dict[str, Estimate]:
    """The means of all measures with their confidence intervals."""
    return dict(values.summary().figures)


def missing_effects(
    table: PublishedTable, measured: Mapping[tuple[str, str], PaperRow], source: str
) -> list[str]:
    """Which rankers of the paper's table are missing, and how to train them."""
    lines = []
    for model in _models(table, measured):
        for training, rotation in zip(table.labels_at(1), ("none", "train"), strict=True):
            if (model, training) not in measured:
                # The first name that a model of the paper has here is that of its configuration.
                configuration, *_ = table.known_as.get(model, (model,))
                command = (
                    f"{called('train')} model={configuration} data={source} "
                    f"data.rotation={rotation}"
                )
                lines.append(
                    f"Not measured, as there is no such ranker: {model}, {training} ({command})."
                )
    return lines


def missing_chains(
    table: PublishedTable, measured: Mapping[tuple[str, str], PaperRow], first: str, target: str
) -> list[str]:
    """Which chains of training the paper's models lack, and how to train them."""
    lines = []
    for model in _models(table, measured):
        lacking = [letter for letter in chain_letters(table) if (model, letter) not in measured]
        if lacking:
            lines.append(
                f"Not measured, as there is no such ranker: {model}, {', '.join(lacking)} "
                f"({called('train')} data={target} [checkpoint=FOLDER of a ranker trained with "
                f"data={first} data.rotation=none or train])."
            )
    return lines


def finish(
    settings: EvaluationSettings,
    folder: Path,
    table: Table,
    values: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]],
    quiet: bool,
) -> None:
    """At the end: write table, values per query and configuration, and print the table."""
    settings.save(folder)
    written = write_table(folder, table)
    if values:
        write_per_query(folder / "per_query.csv", values)
    show([table], paths_in_words(written), quiet)


def _models(table: PublishedTable, measured: Mapping[tuple[str, str], PaperRow]) -> list[str]:
    """Models of the paper, and behind them others that were measured."""
    return list(dict.fromkeys([*table.labels_at(0), *(model for model, _ in measured)]))


def _first_data(runs: Sequence[Checkpoint]) -> str:
    """The data that all longer chains begin with."""
    names = sorted({run.stages[0].data for run in runs if len(run.stages) == 2})
    if len(names) > 1:
        raise ValueError(f"chains begin with {', '.join(names)}: say which by task.first=...")
    return names[0] if names else "msmarco"
