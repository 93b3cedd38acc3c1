"""Does rotation change gender bias, and does alpha change position bias? Both biases over rotation and alpha."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.commands import called
from backpack_rank.constructors import Name
from backpack_rank.data.answers import load_answers
from backpack_rank.data.dataset import Dataset
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.result_table import BIAS, EFFECTIVENESS
from backpack_rank.evaluation.results import Estimate, PerQuery, RunInfo
from backpack_rank.experiments.grid import refuse_alpha
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.option_types import Alphas, Files, Names
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import Task
from backpack_rank.position.passages.answer_positions import query_positions
from backpack_rank.position.tables.checkpoints import group_by_seed
from backpack_rank.position.tables.rotation import (
    ORIGINAL,
    ROTATED,
    chosen_runs,
    finish,
    mean_values,
    paper_name,
    ranker_notes,
    trainings_on,
)
from backpack_rank.position.tables.rotation_tables import EFFECT, PLACE, THIRDS, TRAININGS, RankersAtAlpha, alpha_table
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy, check_alpha

log = logging.getLogger(__name__)
GENDER = "RaB(tf)@10"

Values = dict[str, dict[str, PerQuery]]
"""``{test set: {kind of measure: values}}``"""


@dataclass(frozen=True)
class RotationByAlpha(Task):
    """``task`` of ``evaluate.py experiment=passage_rotation/alpha``.

    Attributes:
        alphas: positions of the dial; 1 is always among them.
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        trained_on: name of the training data; None is that of ``data=``.
        models: names to measure; None measures all that have senses.
    """

    alphas: Alphas = (1.0, 0.5, 0.0)
    runs: Files | None = None
    trained_on: Name | None = None
    models: Names | None = None

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Measure the rankers at every alpha on both test sets; write the table and values per query.

        Raises:
            ValueError: no ranker with senses was trained on that data.
        """
        refuse_alpha(settings)
        dataset = settings.needed_dataset()
        source = self.trained_on or dataset.name
        stages = trainings_on(source, settings)
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        metrics = settings.metrics(dataset)
        works = {
            name: evaluation_loader(settings, dataset.with_rotation(rotation), metrics)("test")
            for name, rotation in ((ORIGINAL, "none"), (ROTATED, "test"))
        }
        places = answer_places(settings, dataset)
        runs, rows, every = [], [], {}
        for (model, of), group in group_by_seed(chosen_runs(self.runs, self.models, settings, list(stages))).items():
            turned = {run.ranker: settings.reranker(run.ranker) for run in group}
            if not next(iter(turned.values())).scorer.ranker.has_senses:
                log.info("%s has no senses, so there is no alpha to turn", model)
                continue
            runs += group
            found = [_values(turned[run.ranker], settings.policy, alphas, works, metrics) for run in group]
            for number, alpha in enumerate(alphas):
                values = _means([one[number] for one in found])
                key = (paper_name(model), stages[of], alpha)
                every[key] = values
                rows.append(RankersAtAlpha(*key, _figures(values), _thirds(values, places), len(group)))
        if not rows:
            raise ValueError(
                f"no ranker with senses that was trained on {source} was found: train some by {called('train')} -m "
                f"data={source} data.rotation=none,train model=backpack_tiny, and say where by task.runs=[FOLDER]"
            )
        work = works[ORIGINAL]
        about = metrics.fairness.describe(RunInfo(), work.stage)
        notes = [*findings(every), *ranker_notes(runs)]
        table = alpha_table(rows, work.test.name, work.bias_set, about.sign_in_words.rstrip("."), notes)
        labelled = [
            (f"{model} ({training}) alpha={alpha:g} on {name}", one.values)
            for (model, training, alpha), values in every.items()
            for name, kinds in values.items()
            for one in kinds.values()
        ]
        finish(settings, folder, table, labelled, quiet)


def answer_places(settings: EvaluationSettings, dataset: Dataset) -> dict[str, dict[str, float]]:
    """Relative start of every query's answer in both test sets; empty for data without ``answers``."""
    if dataset.answers is None:
        return {}
    answers = load_answers(dataset.answers, title=dataset.titles)
    return {ORIGINAL: query_positions(answers), ROTATED: query_positions(answers, settings.rotation)}


def findings(values: Mapping[tuple[str, str, float], Values]) -> list[str]:
    """Sentences that answer both questions by Wilcoxon's test over the queries."""
    lines = []
    for (model, training, alpha), found in values.items():
        other = values.get((model, TRAININGS[1], alpha))
        if training == TRAININGS[0] and other is not None:
            p = p_wilcoxon(found[ORIGINAL][BIAS], other[ORIGINAL][BIAS], GENDER)
            means = [one[ORIGINAL][BIAS].mean(GENDER) for one in (found, other)]
            lines.append(
                f"Does rotation change gender bias? {model}, alpha={alpha:g}: {GENDER} {means[0]:.4f} after original "
                f"and {means[1]:.4f} after debiased training, Wilcoxon p = {p:.3g}."
            )
        if alpha != 1:
            plain, turned = _effect(values[model, training, 1.0]), _effect(found)
            p = p_wilcoxon(plain, turned, EFFECT)
            means = [plain.mean(EFFECT), turned.mean(EFFECT)]
            lines.append(
                f"Does alpha change position bias? {model}, {training}: {EFFECT} falls by {means[0]:.4f} on rotated "
                f"passages at alpha=1 and by {means[1]:.4f} at alpha={alpha:g}, Wilcoxon p = {p:.3g}."
            )
    return lines


def _values(
    reranker: PointwiseReranker,
    policy: Policy,
    alphas: Sequence[float],
    works: Mapping[str, EvaluationData],
    metrics: MetricSuite,
) -> list[Values]:
    """Values of a ranker at each alpha."""
    turned = [reranker.with_policy(policy, alpha) for alpha in alphas]
    measured = {name: metrics.evaluate(turned, work).systems for name, work in works.items()}
    return [{name: dict(systems[number].values) for name, systems in measured.items()} for number in range(len(alphas))]


def _means(found: Sequence[Values]) -> Values:
    return {
        name: {kind: mean_values([one[name][kind] for one in found]) for kind in kinds}
        for name, kinds in found[0].items()
    }


def _figures(values: Values) -> dict[str, dict[str, Estimate]]:
    return {
        name: {measure: figure for one in kinds.values() for measure, figure in one.summary().figures.items()}
        for name, kinds in values.items()
    }


def _thirds(values: Values, places: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, tuple[Estimate, int]]]:
    found: dict[str, dict[str, tuple[Estimate, int]]] = {}
    for name, at in places.items():
        scores = values[name][EFFECTIVENESS]
        for number, third in enumerate(THIRDS):
            queries = [q for q in scores.query_ids if q in at and int(3 * at[q]) == number]
            if queries:
                figure = scores.select_queries(queries).summary().figures[PLACE]
                found.setdefault(name, {})[third] = (figure, len(queries))
    return found


def _effect(values: Values) -> PerQuery:
    """What rotated passages cost each query."""
    original, rotated = (values[name][EFFECTIVENESS].values[EFFECT] for name in (ORIGINAL, ROTATED))
    return PerQuery({EFFECT: {query: value - rotated[query] for query, value in original.items()}})
