"""Table 2 and Figure 2 of paper 001: MATS of rankers that were trained on original and on rotated passages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from backpack_rank.models.build import load_ranker
from backpack_rank.pipelines.common import asked_rotation, file_part, load_split, save_config
from backpack_rank.pipelines.passage_rotation import chosen_runs, paper_name, ranker_notes, with_rotation
from backpack_rank.pipelines.term_similarity import TermSimilarity
from backpack_rank.pipelines.trained_runs import TrainedRun, grouped
from backpack_rank.position.representations import CONTEXTUAL
from backpack_rank.reporting.layout import print_layout_table, write_layout_table
from backpack_rank.reporting.published_rotation import TRAININGS
from backpack_rank.reporting.rotation_tables import similarity_table
from backpack_rank.reporting.term_similarity import TermSimilarityReport, write_term_similarity
from backpack_rank.scoring import Scorer

log = logging.getLogger(__name__)
_PAPER_DATA = {"msmarco": "MS MARCO", "squad": "SQuAD"}


@dataclass(frozen=True)
class RotationSimilarity:
    """``task`` of ``evaluate.py experiment=passage_rotation/table2``.

    Attributes:
        similarity: how ATS and MATS are taken (``conf/experiment/term_similarity.yaml``).
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        models: names to measure; None measures all that are found.
    """

    similarity: TermSimilarity
    runs: str | Sequence[str] | None = None
    models: Sequence[str] | None = ("tk",)

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Measure every ranker on the passages that it was trained for; write the table, and a figure per collection.

        Raises:
            ValueError: no ranker was trained on one collection alone.
        """
        level = asked_rotation(config).level
        runs = [
            run
            for run in chosen_runs(self.runs, self.models, config)
            if len(run.stages) == 1 and run.stages[0].rotation in (None, level)
        ]
        if not runs:
            raise ValueError(
                "no ranker for this table was found: train some with data.rotation=none and data.rotation=train, and "
                "say where they are by task.runs=[FOLDER]"
            )
        measured: dict[tuple[str, str, str], tuple[float, float]] = {}
        figures: dict[str, list[TermSimilarityReport]] = {}
        for (model, (stage,)), group in grouped(runs).items():
            training, collection = TRAININGS[stage.rotation is not None], _PAPER_DATA.get(stage.data, stage.data)
            reports = [self._measured(run, config, f"{paper_name(model)}, {training}") for run in group]
            curves = [report.curves[0] for report in reports]
            mats = sum(curve.mats for curve in curves) / len(curves)
            deviation = sum(curve.mats_std for curve in curves) / len(curves)
            measured[paper_name(model), collection, training] = (mats, deviation)
            figures.setdefault(collection, []).append(reports[0])
        save_config(folder, config)
        sampled = next(iter(figures.values()))[0]
        notes = [
            f"{sampled.terms} terms in {sampled.documents} passages, distances up to {self.similarity.max_distance} "
            f"tokens; the standard deviation is over the distances.",
            *ranker_notes(runs),
        ]
        table = similarity_table(measured, notes)
        written = write_layout_table(folder, table)
        for collection, reports in figures.items():
            write_term_similarity(folder / f"figure2_{file_part(collection)}", _joined(reports))
        if not quiet:
            print_layout_table(table)
            print("Written: " + ", ".join(map(str, [*written, *sorted(folder.glob("figure2_*"))])))

    def _measured(self, run: TrainedRun, config: DictConfig, label: str) -> TermSimilarityReport:
        """The curve of a ranker's contextual vectors under that label."""
        log.info("measuring %s", run.ranker)
        collection = load_split(with_rotation(run.config.data, "none"), self.similarity.split)
        scorer = Scorer(*load_ranker(run.ranker), instantiate(config.scoring))
        task = replace(self.similarity, representations=(CONTEXTUAL,))
        report = task.measure(scorer, collection, str(run.ranker))
        meaning = {label: f"{report.meaning[CONTEXTUAL]} of {run.ranker}"}
        return replace(report, curves=(replace(report.curves[0], representation=label),), meaning=meaning)


def _joined(reports: Sequence[TermSimilarityReport]) -> TermSimilarityReport:
    """Several rankers on the same documents as one report."""
    return replace(
        reports[0],
        ranker=", ".join(report.ranker for report in reports),
        curves=tuple(curve for report in reports for curve in report.curves),
        meaning={name: meaning for report in reports for name, meaning in report.meaning.items()},
    )
