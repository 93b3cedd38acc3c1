"""``evaluate.py``: what it ranks, under which alpha, step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.alpha import choose_alpha
from backpack_rank.pipelines.breakdowns import write_class_counts
from backpack_rank.pipelines.certificate import certify, check_certificate
from backpack_rank.pipelines.evaluate_runs import rank_run_files, read_runs
from backpack_rank.pipelines.evaluation_checks import check_together
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.evaluation_files import Ranked, write_results, write_senses
from backpack_rank.pipelines.evaluation_notes import rendition_notes, swap_notes
from backpack_rank.pipelines.explain import explain
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.pipelines.metrics import MetricSuite, rank_all
from backpack_rank.pipelines.run_folder import CONFIG
from backpack_rank.pipelines.settings import AUTO, EvaluationSettings
from backpack_rank.pipelines.tasks import Task, task_of
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import FirstStageOrder, RecalibratedRun, Reranker

log = logging.getLogger(__name__)


def evaluate(config: DictConfig, folder: Path, quiet: bool = False) -> Report | None:
    """Do what ``conf/evaluate.yaml`` and the command line ask for, and write everything to ``folder``.

    Args:
        config: as composed from ``conf/evaluate.yaml``.
        folder: gets the measures, per-query values, tests, runs, ``report.html`` and the resolved configuration.
        quiet: print no tables and write no page (jobs of a multirun, whose tables and page come at the end).

    Returns:
        The measures; None for a task that measures nothing (an explanation, an experiment).

    Raises:
        ValueError: options that do not go together.
    """
    quiet_libraries()
    settings = EvaluationSettings.of(config)
    check_together(settings)
    return task_of(config).run(settings, folder, quiet)


def has_results(config: DictConfig, folder: Path) -> bool:
    """Whether a finished evaluation in a folder is what this configuration asks for, of the ranker as it is now."""
    file = folder / CONFIG
    if not file.is_file():
        return False
    settings = EvaluationSettings.of(config)
    if settings.runs is not None or not task_of(config).finds_ranker:
        return file.read_text(encoding="utf-8") == settings.saved_text()
    checkpoint = settings.find_ranker()
    newer = isinstance(checkpoint, Path) and (checkpoint / "config.json").stat().st_mtime > file.stat().st_mtime
    return not newer and file.read_text(encoding="utf-8") == settings.saved_text(checkpoint)


class Evaluation(Task):
    """``task`` of ``conf/evaluate.yaml``: measure a ranker under alpha, or run files; or explain a score."""

    gives_way = True

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report | None:
        """Rank, measure, and write everything to the folder."""
        if settings.explain is not None:
            explain(settings, folder)
            return None
        if settings.runs is not None:
            ranked = rank_run_files(settings, settings.runs)
        else:
            ranked = rank_under_alpha(settings, folder, quiet)
        return write_results(settings, folder, ranked, quiet)


def rank_under_alpha(settings: EvaluationSettings, folder: Path, quiet: bool) -> Ranked:
    """The first stage, the ranker at alpha = 1, and the ranker under alpha."""
    checkpoint = settings.find_ranker()
    dataset = settings.dataset(checkpoint)
    metrics = settings.metrics(dataset)
    unchanged = settings.reranker(checkpoint)
    load = evaluation_loader(settings, dataset, metrics, unchanged.scorer.cut)
    notes: list[str] = []
    if settings.alpha == AUTO:
        alpha, notes = choose_alpha(settings, unchanged, load("dev"), metrics)
    else:
        alpha = float(settings.alpha)
    controlled = unchanged.with_policy(settings.policy, alpha)
    if settings.recalibration is not None and alpha == 1:
        raise ValueError("recalibrate.run needs an alpha other than 1: at 1 no score changes")

    # A sweep has positions of the dial at which nothing is promised.
    certificate = settings.certificate and (alpha == 0 or not quiet)
    if certificate:
        check_certificate(controlled, settings.certificate_pairs)
    elif settings.certificate:
        log.info("certificate=true: nothing is promised at alpha=%g; it is written at alpha=0", alpha)

    data = load("test")
    rerankers: list[Reranker] = [FirstStageOrder(data.stage)]
    if settings.recalibration is not None:
        (saved,) = read_runs([settings.recalibration.run], data, settings.ties)
        rerankers += [saved, RecalibratedRun(saved, unchanged, controlled, settings.recalibration.weight)]
    # In a sweep the unchanged ranker is a job of its own, the one at alpha = 1.
    if alpha != 1 and not quiet:
        rerankers.append(unchanged.with_policy(settings.policy, 1.0))
    rerankers.append(controlled)
    systems = [rank_all(reranker, data) for reranker in rerankers]

    write_senses(folder / "sensitivity.json", controlled)
    policy = controlled.hook.policy
    assert policy is not None
    write_class_counts(folder, controlled, policy, data)
    notes = [
        *notes_on(controlled, checkpoint),
        *rendition_notes(policy, data, unchanged.scorer.cut),
        *swap_notes(data),
        *notes,
    ]
    if certificate:
        wordings = None if data.variants is None else (data.variants.variants, data.variants.collection)
        files = settings.certificate_pairs
        found = certify(controlled, data.test, data.candidates, folder, variants=wordings, files=files)
        notes += found.sentences
    return Ranked(data, metrics, systems, notes, checkpoint, controlled)


def evaluation_loader(
    settings: EvaluationSettings,
    dataset: Dataset,
    metrics: MetricSuite,
    cut: Callable[[str], str] | None = None,
) -> Callable[[str], EvaluationData]:
    """A function of a split's name that loads everything to be ranked of it; ``cut`` gives what is read of a text."""

    def load(split: str) -> EvaluationData:
        """``test`` or ``dev``, with what the settings ask for."""
        return load_evaluation_data(
            dataset,
            settings.attribute,
            metrics.fairness.lexicon,
            split,
            swap=settings.swap,
            variants=settings.variants,
            halve_variants=settings.alpha == AUTO,
            cut=cut,
        )

    return load


def notes_on(reranker: PointwiseReranker, checkpoint: Path | str) -> list[str]:
    """Sentences about a ranker, its senses and what alpha does to it."""
    lines = [f"Ranker: {checkpoint}"]
    pairs = reranker.attribute.pairs().name
    if (found := reranker.sensitivity) is not None:
        lowest = sorted(range(len(found.values)), key=lambda sense: float(found.values[sense]))[:2]
        shown = ", ".join(f"s_{sense}={found.values[sense]:.3f}" for sense in lowest)
        lines.append(
            f"Sensitivity from {found.pairs} token pairs of {pairs}: lowest {shown}, mean {found.values.mean():.3f}"
        )
    if (shift := reranker.hook.views[0].token_shift) is not None:
        classes = shift.classes
        left = len(classes.several_tokens) + len(classes.unpaired)
        note = (
            f"{sum(map(len, classes.members))} tokens in {len(classes.members)} classes are moved; {left} words of the "
            "classes are not single tokens and stay as they are"
        )
        if classes.behind_space_alone:
            note += f", {len(classes.behind_space_alone)} move behind a space alone"
        lines.append(note)
    return lines
