"""Table 2 and Figure 2 of Hofstätter et al. 2021: MATS under rotation.

Rankers were trained on original and on rotated passages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backpack_rank.checks import located
from backpack_rank.constructors import PathText
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Files, Names
from backpack_rank.pipelines.settings import EvaluationSettings, slugify
from backpack_rank.position.passages.representations import CONTEXTUAL
from backpack_rank.position.passages.term_similarity_report import (
    SimilarityCurve,
    TermSimilarityReport,
    write_term_similarity,
)
from backpack_rank.position.tables.checkpoints import (
    Checkpoint,
    chosen_runs,
    group_by_seed,
    ranker_notes,
    trainings_on,
)
from backpack_rank.position.tables.rotation import every_row
from backpack_rank.position.tables.term_similarity import TermSimilarity
from backpack_rank.reporting.paper_layout import ColumnKey, PaperRow, lay_out
from backpack_rank.reporting.published import PublishedTable, published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RotationSimilarity(Experiment):
    """Shows whether training on rotated passages lowers MATS (Table 2, Figure 2).

    It is the ``task`` of ``evaluate.py experiment=passage_rotation/table2``.

    Attributes:
        published: name of a published table like 2, or path of a file of one's own; it names the
            collections, too.
        similarity: how ATS and MATS are taken (``conf/experiment/term_similarity.yaml``).
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        models: names to measure; None measures all that are found.
    """

    published: PathText
    similarity: TermSimilarity
    runs: Files | None = None
    models: Names | None = ("tk",)

    def __post_init__(self) -> None:
        with located("task.published"):
            similarity_table(published(self.published), {})  # before anything is measured

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure every ranker on the passages that it was trained for.

        Write the table, and a figure per collection.

        Raises:
            ValueError: no ranker was trained on one collection alone.
        """
        table = published(self.published)
        rotation = settings.rotation.level
        runs = []
        for run in chosen_runs(self.runs, self.models, settings, table):
            if len(run.stages) == 1 and run.stages[0].rotation in (None, rotation):
                runs.append(run)
        if not runs:
            raise ValueError(
                "no ranker for this table was found: train some with data.rotation=none and "
                "data.rotation=train, and say where they are by task.runs=[FOLDER]"
            )
        measured: dict[tuple[str, str, str], tuple[float, float]] = {}
        reports_by_collection: dict[str, list[TermSimilarityReport]] = {}
        for (model, (stage,)), runs_of_seeds in group_by_seed(runs).items():
            label = table.label_of(model)
            collection = table.label_of(stage.data)
            training = trainings_on(table, stage.data, settings)[(stage,)]
            reports = []
            for run in runs_of_seeds:
                reports.append(self._measured(run, settings, f"{label}, {training}"))
            # The table has means over the seeds, and the figure the curve of the first seed.
            curves = [report.curves[0] for report in reports]
            mats = sum(curve.mats for curve in curves) / len(curves)
            deviation = sum(curve.mats_std for curve in curves) / len(curves)
            measured[label, collection, training] = (mats, deviation)
            reports_by_collection.setdefault(collection, []).append(reports[0])

        settings.save(folder)
        first_report = next(iter(reports_by_collection.values()))[0]
        notes = [
            f"{first_report.terms} terms in {first_report.documents} passages, distances up to "
            f"{self.similarity.max_distance} tokens; the standard deviation is over the distances.",
            *ranker_notes(table, runs),
        ]
        shown = similarity_table(table, measured, notes)
        written = write_table(folder, shown)
        for collection, reports in reports_by_collection.items():
            write_term_similarity(folder / f"figure2_{slugify(collection)}", _joined(reports))
        show([shown], paths_in_words([*written, *sorted(folder.glob("figure2_*"))]), quiet)

    def _measured(
        self, run: Checkpoint, settings: EvaluationSettings, label: str
    ) -> TermSimilarityReport:
        """The curve of a ranker's contextual vectors under that label."""
        log.info("measuring %s", run.ranker)
        collection = run.dataset().with_rotation("none").split(self.similarity.split)
        scorer = settings.reranker(run.ranker).local_scorer
        task = replace(self.similarity, representations=(CONTEXTUAL,))
        report = task.measure(scorer, collection, str(run.ranker))
        # The figure tells rankers apart, where a report of one ranker tells kinds of vectors apart.
        curve = replace(report.curves[0], representation=label)
        meaning = {label: f"{report.meaning[CONTEXTUAL]} of {run.ranker}"}
        return replace(report, curves=(curve,), meaning=meaning)


def similarity_table(
    table: PublishedTable,
    measured: Mapping[tuple[str, str, str], tuple[float, float]],
    notes: Sequence[str] = (),
) -> Table:
    """Table 2: MATS and its standard deviation, by model, collection and training."""
    columns: list[ColumnKey] = []
    figures_by_row: dict[tuple[str, str], dict[ColumnKey, float]] = {}
    for (model, collection, training), (mats, deviation) in measured.items():
        figures = figures_by_row.setdefault((model, training), {})
        figures |= {(collection, "MATS"): mats, (collection, "Std.dev."): deviation}
        columns += figures
    rows = {key: PaperRow(key, figures) for key, figures in figures_by_row.items()}
    return lay_out(
        "rotation_similarity",
        every_row(table, rows),
        table,
        columns=columns,
        notes=[*table.notes, *notes],
    )


def _joined(reports: Sequence[TermSimilarityReport]) -> TermSimilarityReport:
    """Several rankers on the same documents as one report."""
    curves: list[SimilarityCurve] = []
    meaning: dict[str, str] = {}
    for report in reports:
        curves += report.curves
        meaning |= report.meaning
    rankers = ", ".join(report.ranker for report in reports)
    return replace(reports[0], ranker=rankers, curves=tuple(curves), meaning=meaning)
