"""Tables 3, 4 and 5 of Hofstätter et al. 2021: rotated passages.

Rankers of original and of rotated passages are tested on both, and on other collections (transfer).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backpack_rank.checks import located
from backpack_rank.commands import called
from backpack_rank.constructors import Name, PathText
from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.rotation import rotated_collection
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import Estimate, PerQuery
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.experiments.grid import fill_grid, paths_in_words, show
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Files, Names
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.tables.checkpoints import (
    Checkpoint,
    Stages,
    TrainingStage,
    find_checkpoints,
    group_by_seed,
)
from backpack_rank.position.tables.rotation_tables import (
    RotationRow,
    TransferRow,
    chain_letters,
    effect_table,
    measures_on_both,
    printed_on_both,
    transfer_table,
)
from backpack_rank.reporting.measure_files import write_per_query
from backpack_rank.reporting.published import PublishedTable, published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.pointwise import PointwiseReranker

log = logging.getLogger(__name__)
ORIGINAL, ROTATED = "original", "rotated"


class RotationBenchmark:
    """Measures rankers on a test collection and on its rotated passages::

        bench = RotationBenchmark(settings, dataset, ["nDCG@10"])
        values = bench.measure(checkpoints)  # per query, of "original" and of "rotated"

    Both have the same candidates, so only the passages differ.

    Attributes:
        tests: ``original`` and ``rotated``.
        stage: name of the first stage.
        candidates: of both.
        settings: of the evaluation.
        measures: that are taken.
    """

    def __init__(
        self, settings: EvaluationSettings, dataset: Dataset, measures: Sequence[str]
    ) -> None:
        """The test split of the data, whatever ``data.rotation`` says."""
        test = dataset.with_rotation("none").split("test")
        self.settings = settings
        self.measures = measures
        self.stage, self.candidates = dataset.candidates("test", test)
        self.tests = {ORIGINAL: test, ROTATED: rotated_collection(test, settings.rotation)}

    def measure(
        self, runs: Sequence[Checkpoint], which: Sequence[str] = (ORIGINAL, ROTATED)
    ) -> dict[str, PerQuery]:
        """Values per query on each test collection, as means over rankers of several seeds."""

        def prepare(run: Checkpoint) -> PointwiseReranker:
            log.info("measuring %s", run.ranker)
            return self.settings.reranker(run.ranker)

        def measure(_: Path, reranker: PointwiseReranker, name: str, test: Collection) -> PerQuery:
            ranked = reranker.rerank(self.candidates, test)
            return effectiveness(ranked, test.qrels, self.measures)

        run_by_folder = {run.ranker: run for run in runs}
        tests = {name: self.tests[name] for name in which}
        cells = fill_grid(run_by_folder, tests, prepare, measure)
        means = {}
        for name in which:
            values_of_rankers = [cells[folder, name] for folder in run_by_folder]
            means[name] = mean_values(values_of_rankers)
        return means

    def first_stage(self) -> PerQuery:
        """Values of the candidates themselves; they are the same for both test collections."""
        return effectiveness(self.candidates, self.tests[ORIGINAL].qrels, self.measures)

    def in_words(self) -> str:
        """Name and size of the test collection, and how it is rotated."""
        test = self.tests[ORIGINAL]
        rotation = self.settings.rotation.label
        return f"{test.name} ({len(test.queries):,} queries, {self.stage}'s candidates; {rotation})"


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
            printed_on_both(published(self.published))

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
        measured: dict[tuple[str, str], RotationRow] = {}
        values = []
        for (model, stages), runs_of_seeds in group_by_seed(runs).items():
            label = table.label_of(model)
            training = training_by_stages[stages]
            values_by_test = bench.measure(runs_of_seeds)
            original, rotated = values_by_test[ORIGINAL], values_by_test[ROTATED]
            p_values = {}
            for measure in bench.measures:
                p_values[measure] = p_wilcoxon(original, rotated, measure)
            measured[label, training] = RotationRow(
                figures_of(original), figures_of(rotated), p_values, len(runs_of_seeds)
            )
            for name, per_query in values_by_test.items():
                values.append((f"{label} ({training}) on {name}", per_query.values))
        notes = [*missing_effects(table, measured, source), *ranker_notes(table, runs)]
        first_stage = (bench.stage, figures_of(bench.first_stage()))
        shown = effect_table(table, measured, bench.in_words(), first_stage, notes)
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
            chain_letters(published(self.published))

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
        before_target: list[Stages] = [
            (),
            (TrainingStage(first),),
            (TrainingStage(first, settings.rotation.level),),
        ]
        letters = {}
        for stages, letter in zip(before_target, chain_letters(table), strict=True):
            letters[(*stages, target)] = letter
        runs = [run for run in runs if run.stages in letters]

        bench = RotationBenchmark(settings, dataset, table.columns)
        chains_by_model: dict[str, dict[str, tuple[PerQuery, int]]] = {}
        for (model, stages), runs_of_seeds in group_by_seed(runs).items():
            per_query = bench.measure(runs_of_seeds, (ORIGINAL,))[ORIGINAL]
            chains = chains_by_model.setdefault(table.label_of(model), {})
            chains[letters[stages]] = (per_query, len(runs_of_seeds))

        measured = {}
        values = []
        for model, chains in chains_by_model.items():
            measured[model] = _rows_of_model(chains)
            for letter, (per_query, _) in chains.items():
                values.append((f"{model} ({letter})", per_query.values))
        notes = [
            *missing_chains(table, measured, first, target.data),
            *ranker_notes(table, runs),
        ]
        shown = transfer_table(table, measured, target.data, first, bench.in_words(), notes)
        finish(settings, folder, shown, values, quiet)


def chosen_runs(
    folders: str | Sequence[str] | None,
    models: Sequence[str] | None,
    settings: EvaluationSettings,
    table: PublishedTable,
    stages: Sequence[Stages] | None = None,
) -> list[Checkpoint]:
    """Find the saved rankers of some models and training stages; None for any.

    Models have the names of their configurations, or those of the published table. There are none
    when nothing was trained in ``output`` yet.

    Raises:
        FileNotFoundError: a folder that is named does not exist or holds no ranker.
    """
    output = Path(settings.output) / "train"
    if folders is None and not output.is_dir():
        return []
    if folders is None:
        folders = str(output)
    if isinstance(folders, str):
        folders = [folders]
    runs = find_checkpoints(list(folders))
    kept = []
    for run in runs:
        of_model = models is None or run.model in models or table.label_of(run.model) in models
        of_stages = stages is None or run.stages in stages
        if of_model and of_stages:
            kept.append(run)
    if len(kept) < len(runs):
        log.info(
            "%d of %d saved rankers are of another model or training data",
            len(runs) - len(kept),
            len(runs),
        )
    return kept


def trainings_on(
    table: PublishedTable, source: str, settings: EvaluationSettings
) -> dict[Stages, str]:
    """The paper's two trainings: on original passages of a collection, and on rotated.

    Returns:
        Name of the training by its stages, of which there is one.
    """
    original, debiased = table.labels_at(1)
    return {
        (TrainingStage(source),): original,
        (TrainingStage(source, settings.rotation.level),): debiased,
    }


def mean_values(values: Sequence[PerQuery]) -> PerQuery:
    """Means over rankers (seeds) of every query's values; all rank the same queries."""
    first = values[0]
    means: dict[str, dict[str, float]] = {}
    for measure, by_query in first.values.items():
        total = np.zeros(len(by_query))
        for values_of_ranker in values:
            total += values_of_ranker.array(measure, by_query)
        mean = total / len(values)
        means[measure] = dict(zip(by_query, mean.tolist(), strict=True))
    return PerQuery(means, first.left_out, first.missing)


def figures_of(values: PerQuery) -> dict[str, Estimate]:
    """The means of all measures with their confidence intervals."""
    return dict(values.summary().figures)


def missing_effects(
    table: PublishedTable, measured: Mapping[tuple[str, str], RotationRow], source: str
) -> list[str]:
    """Which rankers of the paper's table are missing, and how to train them."""
    lines = []
    for model in dict.fromkeys([*table.labels_at(0), *(model for model, _ in measured)]):
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
    table: PublishedTable,
    measured: Mapping[str, Mapping[str, TransferRow]],
    first: str,
    target: str,
) -> list[str]:
    """Which chains of training the paper's models lack, and how to train them."""
    lines = []
    for model in dict.fromkeys([*table.labels_at(0), *measured]):
        chains = measured.get(model, {})
        lacking = [letter for letter in chain_letters(table) if letter not in chains]
        if lacking:
            lines.append(
                f"Not measured, as there is no such ranker: {model}, {', '.join(lacking)} "
                f"({called('train')} data={target} [checkpoint=FOLDER of a ranker trained with "
                f"data={first} data.rotation=none or train])."
            )
    return lines


def ranker_notes(table: PublishedTable, runs: Sequence[Checkpoint]) -> list[str]:
    """Say below a table which rankers it has, of which training data and seeds."""
    lines = []
    for (model, stages), runs_of_seeds in group_by_seed(runs).items():
        data = []
        for stage in stages:
            data.append(stage.data if stage.rotation is None else f"{stage.data}, rotated")
        seeds = ", ".join(str(run.seed) for run in runs_of_seeds)
        figures = f"seed {seeds}" if len(runs_of_seeds) == 1 else f"means over seeds {seeds}"
        folders = ", ".join(str(run.ranker.parent) for run in runs_of_seeds)
        lines.append(f"{table.label_of(model)} ({' -> '.join(data)}): {figures}; {folders}.")
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


def _rows_of_model(chains: Mapping[str, tuple[PerQuery, int]]) -> dict[str, TransferRow]:
    """A model's rows by letter of the chain, each with the letters that it is better than.

    Better is a higher mean, significant by Wilcoxon's signed-rank test over the queries.
    """
    rows = {}
    for letter, (values, rankers) in sorted(chains.items()):
        better_than = dict.fromkeys(values.measures, "")
        for other in sorted(chains.keys() - {letter}):
            other_values, _ = chains[other]
            for measure in values.measures:
                is_higher = values.mean(measure) > other_values.mean(measure)
                if is_higher and p_wilcoxon(values, other_values, measure) < SIGNIFICANCE:
                    better_than[measure] += other
        rows[letter] = TransferRow(figures_of(values), better_than, rankers)
    return rows


def _first_data(runs: Sequence[Checkpoint]) -> str:
    """The data that all longer chains begin with."""
    names = sorted({run.stages[0].data for run in runs if len(run.stages) == 2})
    if len(names) > 1:
        raise ValueError(f"chains begin with {', '.join(names)}: say which by task.first=...")
    return names[0] if names else "msmarco"
