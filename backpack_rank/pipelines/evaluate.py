"""``evaluate.py``: the choice of the task, and the main task: to measure a ranker under alpha."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.constructors import FilePath
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.data.pretrained import ADAPTER
from backpack_rank.evaluation.results import Report
from backpack_rank.parts import evaluations, imported
from backpack_rank.pipelines.alpha import AUTO, choose_alpha
from backpack_rank.pipelines.breakdowns import write_class_counts
from backpack_rank.pipelines.certificate import certify, check_certificate
from backpack_rank.pipelines.evaluate_runs import MeasureRuns, read_runs
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked, write_results, write_senses
from backpack_rank.pipelines.evaluation_notes import group_query_notes, rendition_notes, swap_notes
from backpack_rank.pipelines.experiment import ExperimentTask
from backpack_rank.pipelines.explain import ExplainScore
from backpack_rank.pipelines.fitted_policy import fitted_policy, write_fitted_policy
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.metrics import MetricSuite, metrics_of, rank_all
from backpack_rank.pipelines.nodes import check_plain, several
from backpack_rank.pipelines.run_folder import CONFIG
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import EvaluationTask, SavedOptions, made_task
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.recalibration import Recalibration
from backpack_rank.reranking.rerankers import FirstStageOrder, RecalibratedRun, Reranker

log = logging.getLogger(__name__)
_CHOSEN_BY_OPTIONS = "backpack_rank.pipelines.evaluate.Evaluation"


def evaluate(config: Mapping[str, Any], folder: Path, quiet: bool = False) -> Report | None:
    """Measure as ``evaluate.py`` does: run the task of the options and write its files.

    Args:
        config: as composed from ``conf/evaluate.yaml``.
        folder: gets the measures, per-query values, tests, runs, ``report.html`` and the options.
        quiet: print no tables and write no page (jobs of a multirun, whose tables and page come at
            the end).

    Returns:
        The measures; None for a task that measures nothing (an explanation, an experiment).

    Raises:
        ValueError: an option that is wrong, or that the task does not take.
    """
    quiet_libraries()
    return task_of(config).run(folder, quiet)


def check(config: Mapping[str, Any]) -> None:
    """Look at the options of an evaluation, before a folder is made for its results.

    Raises:
        ValueError: an option that is wrong in itself.
    """
    values = SavedOptions.of(config).values
    check_plain(values, _kind_of(values))


def task_of(config: Mapping[str, Any]) -> EvaluationTask:
    """Make the task that the options choose, without running it.

    Raises:
        ValueError: an option that is wrong, or that the task does not take.
    """
    saved = SavedOptions.of(config)
    return made_task(_kind_of(saved.values), saved)


def _kind_of(values: Mapping[str, Any]) -> type[EvaluationTask]:
    """The class of the task: the first of these that an option asks for.

    1. An experiment: ``task=...``.
    2. An optional part of the package, such as ``listwise=...``.
    3. An explanation of a score: ``explain.document=...``.
    4. Run files: ``run=...``.
    5. A ranker under alpha, where none of these options is given.
    """
    # conf/evaluate.yaml names the class Evaluation as the task; task=... puts another name there.
    if values["task"]["_target_"] != _CHOSEN_BY_OPTIONS:
        return ExperimentTask
    # place is "module:class" of the part's task, imported only where its option is given.
    for option, place in evaluations().items():
        if values.get(option) is not None:
            kind: type[EvaluationTask] = imported(place)
            return kind
    if any(value is not None for value in values["explain"].values()):
        return ExplainScore
    if values["run"] is not None:
        return MeasureRuns
    return RankUnderAlpha


def has_results(config: Mapping[str, Any], folder: Path) -> bool:
    """Skip an evaluation whose results are in ``folder`` already.

    True when they are of the same options and the ranker was not trained again since.
    """
    options_file = folder / CONFIG
    if not options_file.is_file():
        return False
    task = task_of(config)
    checkpoint = task.find_ranker()
    # A server does not say when its ranker was made.
    if isinstance(checkpoint, Path):
        for name in ("config.json", ADAPTER):
            ranker_file = checkpoint / name
            if not ranker_file.is_file():
                continue
            if ranker_file.stat().st_mtime > options_file.stat().st_mtime:
                return False
    return options_file.read_text(encoding="utf-8") == task.saved.text_of(checkpoint)


class Evaluation:
    """Name of ``task`` in ``conf/evaluate.yaml`` where no experiment is chosen.

    It is never made: :func:`task_of` sees its name and chooses the task by the other options.
    """


@dataclass(kw_only=True, eq=False)
class RankUnderAlpha(EvaluationSettings, EvaluationTask):
    """Measures a ranker at one alpha, beside its first stage and the unchanged ranker.

    Attributes:
        alpha: position of the dial, or ``auto``. It is checked by
            :class:`~backpack_rank.senses.hook.InferenceHook`, before anything is ranked.
    """

    chosen_by: ClassVar[str] = "a ranker"
    certificate: bool = False
    certificate_pairs: FilePath | Sequence[FilePath] | None = ()
    recalibrate: Recalibration | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for two options that do not go together."""
        super().__post_init__()
        self.pair_files = several(self.certificate_pairs)
        if self.recalibrate is not None and self.recalibrate.run is None:
            self.recalibrate = None
        if self.alpha != AUTO and self.budget is not None:
            raise ValueError(
                f"budget={self.budget} is for alpha=auto: add it, or leave out the budget"
            )
        if self.certificate and self.recalibrate is not None:
            raise ValueError(
                "recalibrate.run=... and certificate=true do not go together: leave one of them out"
            )
        if self.certificate and self.alpha == AUTO:
            raise ValueError(
                "certificate=true is about alpha=0, and alpha=auto chooses another: give alpha=0"
            )

    def run(self, folder: Path, quiet: bool = False) -> Report:
        """Rank, measure, and write everything to the folder."""
        checkpoint = self.find_ranker()
        # Of data=..., or else the data that the ranker was trained on.
        dataset = self.chosen_data.of(checkpoint)
        metrics = metrics_of(self.measures, self.bias, self.attribute, dataset)
        unchanged = self.load_ranker(checkpoint)

        load = evaluation_loader(self, dataset, metrics, unchanged.scorer.cut)
        policy = self.policy
        # At 1 no policy is asked, so nothing is fitted.
        if self.alpha != 1:
            policy = fitted_policy(policy, unchanged, dataset)
        notes: list[str] = []
        alpha: float
        if self.alpha == AUTO:
            alpha, notes = choose_alpha(self.budget, policy, unchanged, load("dev"), metrics)
        else:
            alpha = self.alpha  # type: ignore[assignment]  # no text but auto is an alpha
        controlled = unchanged.with_policy(policy, alpha)
        # Not in the constructor: alpha=auto may choose 1.
        if self.recalibrate is not None and alpha == 1:
            raise ValueError("recalibrate.run needs an alpha other than 1: at 1 no score changes")

        # A certificate is about alpha = 0. A sweep (quiet) also has jobs at other values of alpha:
        # these write none, where a single evaluation is refused.
        writes_certificate = self.certificate and (alpha == 0 or not quiet)
        if writes_certificate:
            check_certificate(controlled, self.pair_files)
        elif self.certificate:
            log.info(
                "certificate=true: nothing is promised at alpha=%g; it is written at alpha=0", alpha
            )

        data = load("test")
        rerankers: list[Reranker] = [FirstStageOrder(data.stage)]
        rerankers += self._recalibrated(data, unchanged, controlled)
        # In a sweep the unchanged ranker is another job, at alpha = 1. There the policy changes
        # nothing; it is given so that tables name this row alpha=1.
        if alpha != 1 and not quiet:
            rerankers.append(unchanged.with_policy(policy, 1.0))
        rerankers.append(controlled)
        systems = [rank_all(reranker, data) for reranker in rerankers]

        write_senses(folder / "sensitivity.json", controlled)
        # with_policy() has put one that fits the ranker in the place of the default policy.
        policy_in_use = controlled.hook.policy
        assert policy_in_use is not None
        write_class_counts(folder, controlled, policy_in_use, data)
        notes = [
            *notes_on(controlled, checkpoint),
            *write_fitted_policy(folder, policy_in_use),
            *group_query_notes(controlled, data),
            *rendition_notes(policy_in_use, data, unchanged.scorer.cut),
            *swap_notes(data),
            *notes,
        ]
        if writes_certificate:
            stage = dataset.first_stage("test")
            notes += self._certificate_notes(controlled, data, folder, stage)
        ranked = Ranked(data, metrics, systems, notes, checkpoint, controlled)
        return write_results(self.saved, folder, ranked, quiet)

    def _recalibrated(
        self, data: EvaluationData, unchanged: PointwiseReranker, controlled: PointwiseReranker
    ) -> list[Reranker]:
        """With ``recalibrate.run``: that run as it is, and with what the dial changes added."""
        if self.recalibrate is None:
            return []
        (saved_run,) = read_runs([str(self.recalibrate.run)], data, self.ties)
        weight = self.recalibrate.weight
        return [saved_run, RecalibratedRun(saved_run, unchanged, controlled, weight)]

    def _certificate_notes(
        self, controlled: PointwiseReranker, data: EvaluationData, folder: Path, stage: FirstStage
    ) -> list[str]:
        """Write the certificate; gives its sentences."""
        wordings = None
        if data.variants is not None:
            wordings = (data.variants.variants, data.variants.collection)
        certificate = certify(
            controlled,
            data.test,
            data.candidates,
            folder,
            variants=wordings,
            files=self.pair_files,
            stage=stage,
        )
        return certificate.sentences


def evaluation_loader(
    settings: EvaluationSettings,
    dataset: Dataset,
    metrics: MetricSuite,
    cut: Callable[[str], str] | None = None,
) -> Callable[[str], EvaluationData]:
    """Load the evaluation data of a split: ``loader("dev")``.

    Args:
        settings: task or settings that say whether texts are swapped, and which wordings are read.
        dataset: has the splits.
        metrics: their lexicon says which queries are neutral.
        cut: from a text to the beginning that the ranker reads; None: texts are read to their end.
    """

    def load(split: str) -> EvaluationData:
        """``test`` or ``dev``, with what the settings ask for."""
        data = load_evaluation_data(
            dataset,
            settings.attribute,
            metrics.fairness.lexicon,
            split,
            swap=settings.swap,
            contrast=settings.contrast,
            variants=settings.wordings,
            # alpha=auto is chosen on the one half of their queries, and measured on the other.
            halve_variants=settings.alpha == AUTO,
            cut=cut,
        )
        # Labels of a dev split may be others than those that measures are of.
        if split == "test":
            metrics.check(data)
        return data

    return load


def notes_on(reranker: PointwiseReranker, checkpoint: Path | str) -> list[str]:
    """Sentences below the tables: the ranker, its most sensitive senses, and moved tokens."""
    lines = [f"Ranker: {checkpoint}"]
    pairs = reranker.attribute.pairs().name
    sensitivity = reranker.sensitivity
    if sensitivity is not None:
        values = sensitivity.values
        # A low s_l is a sense that tells the words of a pair apart.
        order = sorted(range(len(values)), key=lambda sense: float(values[sense]))
        lowest = ", ".join(f"s_{sense}={values[sense]:.3f}" for sense in order[:2])
        lines.append(
            f"Sensitivity from {sensitivity.pairs} token pairs of {pairs}: "
            f"lowest {lowest}, mean {values.mean():.3f}"
        )
    # Of the policies here, one that moves tokens has one view, and others move none in any view.
    shift = reranker.hook.views[0].token_shift
    if shift is not None:
        classes = shift.classes
        moved = sum(len(members) for members in classes.members)
        left = len(classes.several_tokens) + len(classes.unpaired)
        note = (
            f"{moved} tokens in {len(classes.members)} classes are moved; {left} words of the "
            "classes are not single tokens and stay as they are"
        )
        if classes.behind_space_alone:
            note += f", {len(classes.behind_space_alone)} move behind a space alone"
        lines.append(note)
    return lines
