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
from backpack_rank.data.collection import Collection, Run
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
    KNOWN_AS,
    LETTERS,
    MEASURES,
    MODELS,
    TRAININGS,
    RotationRow,
    TransferRow,
    effect_table,
    printed_on_both,
    transfer_table,
)
from backpack_rank.reporting.measure_files import write_per_query
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.pointwise import PointwiseReranker

log = logging.getLogger(__name__)
ORIGINAL, ROTATED = "original", "rotated"


@dataclass(frozen=True)
class RotationBenchmark:
    """A test collection as it is and rotated, with the same candidates.

    Attributes:
        tests: ``original`` and ``rotated``.
        stage: name of the first stage.
        candidates: of both.
        settings: of the evaluation.
    """

    tests: Mapping[str, Collection]
    stage: str
    candidates: Run
    settings: EvaluationSettings

    @classmethod
    def of(cls, settings: EvaluationSettings, dataset: Dataset) -> RotationBenchmark:
        """The test split of the data, whatever ``data.rotation`` says."""
        test = dataset.with_rotation("none").split("test")
        stage, candidates = dataset.candidates("test", test)
        tests = {ORIGINAL: test, ROTATED: rotated_collection(test, settings.rotation)}
        return cls(tests, stage, candidates, settings)

    def measure(
        self, runs: Sequence[Checkpoint], which: Sequence[str] = (ORIGINAL, ROTATED)
    ) -> dict[str, PerQuery]:
        """Values per query on the test collections asked for, means over the rankers given."""

        def prepare(run: Checkpoint) -> PointwiseReranker:
            log.info("measuring %s", run.ranker)
            return self.settings.reranker(run.ranker)

        def measure(_: Path, reranker: PointwiseReranker, name: str, test: Collection) -> PerQuery:
            ranked = reranker.rerank(self.candidates, test)
            return effectiveness(ranked, test.qrels, MEASURES)

        rankers = {run.ranker: run for run in runs}
        tests = {name: self.tests[name] for name in which}
        cells = fill_grid(rankers, tests, prepare, measure)
        means = {}
        for name in which:
            means[name] = mean_values([cells[ranker, name] for ranker in rankers])
        return means

    def first_stage(self) -> PerQuery:
        """Values of the candidates themselves; they are the same for both test collections."""
        return effectiveness(self.candidates, self.tests[ORIGINAL].qrels, MEASURES)

    def in_words(self) -> str:
        """Name and size of the test collection, and how it is rotated."""
        test = self.tests[ORIGINAL]
        rotation = self.settings.rotation.label
        return f"{test.name} ({len(test.queries):,} queries, {self.stage}'s candidates; {rotation})"


@dataclass(frozen=True)
class RotationEffect(Experiment):
    """``task`` of ``evaluate.py experiment=passage_rotation/table3`` and ``table4``.

    Attributes:
        published: name of a published table like 3 (MS MARCO) or 4 (SQuAD), whose figures stand
            beside ours.
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
        dataset = settings.needed_dataset()
        source = self.trained_on or dataset.name
        stages = trainings_on(source, settings)
        runs = chosen_runs(self.runs, self.models, settings, list(stages))
        bench = RotationBenchmark.of(settings, dataset)
        measured, values = {}, []
        for (model, of), group in group_by_seed(runs).items():
            by_test = bench.measure(group)
            label, training = paper_name(model), stages[of]
            measured[label, training] = _tested(by_test, len(group))
            for name, of_test in by_test.items():
                values.append((f"{label} ({training}) on {name}", of_test.values))
        notes = [*missing_effects(measured, source), *ranker_notes(runs)]
        first_stage = (bench.stage, figures_of(bench.first_stage()))
        table = effect_table(self.published, measured, bench.in_words(), first_stage, notes)
        finish(settings, folder, table, values, quiet)


@dataclass(frozen=True)
class RotationTransfer(Experiment):
    """``task`` of ``evaluate.py experiment=passage_rotation/table5``.

    Attributes:
        first: name of the data that the longer chains were trained on first; None takes the one
            that is found.
        runs, models: as in :class:`RotationEffect`.
    """

    first: Name | None = None
    runs: Files | None = None
    models: Names | None = None

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure the rankers found on the original test set.

        Write the table and values per query.
        """
        dataset = settings.needed_dataset()
        target, level = TrainingStage(dataset.name), settings.rotation.level
        runs = [
            run for run in chosen_runs(self.runs, self.models, settings) if run.stages[-1] == target
        ]
        first = self.first or _only_first(runs)
        befores: list[Stages] = [(), (TrainingStage(first),), (TrainingStage(first, level),)]
        chains = {
            (*before, target): letter for before, letter in zip(befores, LETTERS, strict=True)
        }
        runs = [run for run in runs if run.stages in chains]
        bench = RotationBenchmark.of(settings, dataset)
        by_model: dict[str, dict[str, tuple[PerQuery, int]]] = {}
        for (model, stages), group in group_by_seed(runs).items():
            of_group = bench.measure(group, (ORIGINAL,))[ORIGINAL]
            by_model.setdefault(paper_name(model), {})[chains[stages]] = (of_group, len(group))
        measured = {model: _chained(rows) for model, rows in by_model.items()}
        notes = [*missing_chains(measured, first, target.data), *ranker_notes(runs)]
        table = transfer_table(measured, target.data, first, bench.in_words(), notes)
        values = []
        for model, rows in by_model.items():
            for letter, (of_chain, _) in rows.items():
                values.append((f"{model} ({letter})", of_chain.values))
        finish(settings, folder, table, values, quiet)


def chosen_runs(
    folders: str | Sequence[str] | None,
    models: Sequence[str] | None,
    settings: EvaluationSettings,
    stages: Sequence[Stages] | None = None,
) -> list[Checkpoint]:
    """Saved rankers of these models and stages (None: any).

    None at all when nothing was trained in ``output`` yet.

    Raises:
        FileNotFoundError: a folder that is named does not exist or holds no ranker.
    """
    output = Path(settings.output) / "train"
    if folders is None and not output.is_dir():
        return []
    named = (
        [str(output)]
        if folders is None
        else [folders]
        if isinstance(folders, str)
        else list(folders)
    )
    runs = find_checkpoints(named)
    kept = []
    for run in runs:
        of_model = models is None or run.model in models or paper_name(run.model) in models
        if of_model and (stages is None or run.stages in stages):
            kept.append(run)
    if len(kept) < len(runs):
        log.info(
            "%d of %d saved rankers are of another model or training data",
            len(runs) - len(kept),
            len(runs),
        )
    return kept


def trainings_on(source: str, settings: EvaluationSettings) -> dict[Stages, str]:
    """The paper's two trainings: on the passages of a collection as they are, and rotated."""
    rotations = zip((None, settings.rotation.level), TRAININGS, strict=True)
    return {(TrainingStage(source, rotation),): training for rotation, training in rotations}


def paper_name(model: str) -> str:
    """The paper's name of a model that it has, else our own."""
    return KNOWN_AS.get(model, model)


def mean_values(values: Sequence[PerQuery]) -> PerQuery:
    """Means over several rankers for every query and measure; all rank the same queries."""
    first = values[0]
    means: dict[str, dict[str, float]] = {}
    for measure, by_query in first.values.items():
        total = np.zeros(len(by_query))
        for of_ranker in values:
            total += of_ranker.array(measure, by_query)
        means[measure] = dict(zip(by_query, (total / len(values)).tolist(), strict=True))
    return PerQuery(means, first.left_out, first.missing)


def figures_of(values: PerQuery) -> dict[str, Estimate]:
    """Means of all measures with their intervals."""
    return dict(values.summary().figures)


def missing_effects(measured: Mapping[tuple[str, str], RotationRow], source: str) -> list[str]:
    """A sentence for every cell of the paper that has no ranker here.

    It has the command that trains one.
    """
    # The first of our names of a model is the one to train it by.
    models = {name: ours for ours, name in reversed(list(KNOWN_AS.items()))}
    lines = []
    for model in dict.fromkeys([*MODELS, *(model for model, _ in measured)]):
        for training, rotation in zip(TRAININGS, ("none", "train"), strict=True):
            if (model, training) not in measured:
                options = f"model={models.get(model, model)} data={source} data.rotation={rotation}"
                command = f"{called('train')} {options}"
                lines.append(
                    f"Not measured, as there is no such ranker: {model}, {training} ({command})."
                )
    return lines


def missing_chains(
    measured: Mapping[str, Mapping[str, TransferRow]], first: str, target: str
) -> list[str]:
    """A sentence for every model of the paper that lacks a chain."""
    lines = []
    for model in dict.fromkeys([*MODELS, *measured]):
        if lacking := [letter for letter in LETTERS if letter not in measured.get(model, {})]:
            lines.append(
                f"Not measured, as there is no such ranker: {model}, {', '.join(lacking)} "
                f"({called('train')} "
                f"data={target} [checkpoint=FOLDER of a ranker trained with data={first} "
                "data.rotation=none or train])."
            )
    return lines


def ranker_notes(runs: Sequence[Checkpoint]) -> list[str]:
    """Sentences that name rankers, and seeds where there are several."""
    lines = []
    for (model, stages), group in group_by_seed(runs).items():
        data = []
        for stage in stages:
            data.append(stage.data if stage.rotation is None else f"{stage.data}, rotated")
        seeds = ", ".join(str(run.seed) for run in group)
        mean = f"means over seeds {seeds}" if len(group) > 1 else f"seed {seeds}"
        folders = ", ".join(str(run.ranker.parent) for run in group)
        lines.append(f"{paper_name(model)} ({' -> '.join(data)}): {mean}; {folders}.")
    return lines


def finish(
    settings: EvaluationSettings,
    folder: Path,
    table: Table,
    values: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]],
    quiet: bool,
) -> None:
    """Write the table, the values per query and the configuration, and print the table."""
    settings.save(folder)
    written = write_table(folder, table)
    if values:
        write_per_query(folder / "per_query.csv", values)
    show([table], paths_in_words(written), quiet)


def _tested(values_by_test: Mapping[str, PerQuery], rankers: int) -> RotationRow:
    original, rotated = values_by_test[ORIGINAL], values_by_test[ROTATED]
    p_values = {measure: p_wilcoxon(original, rotated, measure) for measure in MEASURES}
    return RotationRow(figures_of(original), figures_of(rotated), p_values, rankers)


def _chained(rows: Mapping[str, tuple[PerQuery, int]]) -> dict[str, TransferRow]:
    """Chains of one model by letter, each with the letters of those that it is better than."""
    chains = {}
    for letter, (values, rankers) in sorted(rows.items()):
        better = dict.fromkeys(MEASURES, "")
        for other in sorted(rows.keys() - {letter}):
            for measure in MEASURES:
                if _is_better(values, rows[other][0], measure):
                    better[measure] += other
        chains[letter] = TransferRow(figures_of(values), better, rankers)
    return chains


def _is_better(values: PerQuery, others: PerQuery, measure: str) -> bool:
    higher = values.mean(measure) > others.mean(measure)
    return higher and p_wilcoxon(values, others, measure) < SIGNIFICANCE


def _only_first(runs: Sequence[Checkpoint]) -> str:
    """The data that all longer chains begin with."""
    names = sorted({run.stages[0].data for run in runs if len(run.stages) == 2})
    if len(names) > 1:
        raise ValueError(f"chains begin with {', '.join(names)}: say which by task.first=...")
    return names[0] if names else "msmarco"
