"""Does rotation change gender bias, and does alpha change position bias?

Both biases are measured over rotation and alpha.
"""

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
from backpack_rank.experiments.grid import fill_grid
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.option_types import Alphas, Files, Names
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.passages.answer_positions import query_positions
from backpack_rank.position.tables.checkpoints import Checkpoint, group_by_seed
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
from backpack_rank.position.tables.rotation_alpha_table import (
    EFFECT,
    PLACE,
    THIRDS,
    RankersAtAlpha,
    alpha_table,
)
from backpack_rank.position.tables.rotation_tables import TRAININGS
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy, check_alpha

log = logging.getLogger(__name__)
GENDER = "RaB(tf)@10"

Values = dict[str, dict[str, PerQuery]]
"""``{test set: {kind of measure: values}}``"""


@dataclass(frozen=True)
class RotationByAlpha(Experiment):
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
        """Measure the rankers at every alpha on both test sets.

        Write the table and values per query.

        Raises:
            ValueError: no ranker with senses was trained on that data.
        """
        dataset = settings.needed_dataset()
        source = self.trained_on or dataset.name
        stages = trainings_on(source, settings)
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        metrics = settings.metrics(dataset)
        works = {}
        for name, rotation in ((ORIGINAL, "none"), (ROTATED, "test")):
            load = evaluation_loader(settings, dataset.with_rotation(rotation), metrics)
            works[name] = load("test")
        places = answer_places(settings, dataset)
        runs: list[Checkpoint] = []
        rows: list[RankersAtAlpha] = []
        values_of_row: dict[tuple[str, str, float], Values] = {}
        chosen = chosen_runs(self.runs, self.models, settings, list(stages))
        for (model, of), group in group_by_seed(chosen).items():
            rerankers = {run.ranker: settings.reranker(run.ranker) for run in group}
            if not next(iter(rerankers.values())).scorer.ranker.has_senses:
                log.info("%s has no senses, so there is no alpha to turn", model)
                continue
            runs += group
            by_alpha = _values_by_alpha(rerankers, settings.policy, alphas, works, metrics)
            for alpha, values in zip(alphas, by_alpha, strict=True):
                key = (paper_name(model), stages[of], alpha)
                values_of_row[key] = values
                rows.append(
                    RankersAtAlpha(
                        *key,
                        figures=_figures(values),
                        thirds=_thirds(values, places),
                        rankers=len(group),
                    )
                )
        if not rows:
            raise ValueError(
                f"no ranker with senses that was trained on {source} was found: train some by "
                f"{called('train')} -m "
                f"data={source} data.rotation=none,train model=backpack_tiny, and say where by "
                "task.runs=[FOLDER]"
            )
        work = works[ORIGINAL]
        about = metrics.fairness.describe(RunInfo(), work.stage)
        notes = [*findings(values_of_row), *ranker_notes(runs)]
        sign = about.sign_in_words.rstrip(".")
        table = alpha_table(rows, work.test.name, work.bias_set, sign, notes)
        per_query = []
        for (model, training, alpha), values in values_of_row.items():
            for name, kinds in values.items():
                label = f"{model} ({training}) alpha={alpha:g} on {name}"
                per_query += [(label, of_kind.values) for of_kind in kinds.values()]
        finish(settings, folder, table, per_query, quiet)


def answer_places(settings: EvaluationSettings, dataset: Dataset) -> dict[str, dict[str, float]]:
    """Relative start of every query's answer in both test sets.

    Empty for data without ``answers``.
    """
    if dataset.answers is None:
        return {}
    answers = load_answers(dataset.answers, title=dataset.titles)
    return {
        ORIGINAL: query_positions(answers),
        ROTATED: query_positions(answers, settings.rotation),
    }


def findings(values_of_row: Mapping[tuple[str, str, float], Values]) -> list[str]:
    """Sentences that answer both questions by Wilcoxon's test over the queries.

    Args:
        values_of_row: by model, training and alpha.
    """
    original, debiased = TRAININGS
    sentences = []
    for (model, training, alpha), values in values_of_row.items():
        others = values_of_row.get((model, debiased, alpha))
        if training == original and others is not None:
            of_original, of_debiased = values[ORIGINAL][BIAS], others[ORIGINAL][BIAS]
            p = p_wilcoxon(of_original, of_debiased, GENDER)
            sentences.append(
                f"Does rotation change gender bias? {model}, alpha={alpha:g}: {GENDER} "
                f"{of_original.mean(GENDER):.4f} after original and {of_debiased.mean(GENDER):.4f} "
                f"after debiased training, Wilcoxon p = {p:.3g}."
            )
        if alpha != 1:
            unchanged = _effect(values_of_row[model, training, 1.0])
            controlled = _effect(values)
            p = p_wilcoxon(unchanged, controlled, EFFECT)
            sentences.append(
                f"Does alpha change position bias? {model}, {training}: {EFFECT} falls by "
                f"{unchanged.mean(EFFECT):.4f} on rotated passages at alpha=1 and by "
                f"{controlled.mean(EFFECT):.4f} at alpha={alpha:g}, Wilcoxon p = {p:.3g}."
            )
    return sentences


def _values_by_alpha(
    rerankers: Mapping[Path, PointwiseReranker],
    policy: Policy,
    alphas: Sequence[float],
    works: Mapping[str, EvaluationData],
    metrics: MetricSuite,
) -> list[Values]:
    """Mean values of several rankers at each alpha."""

    def prepare(reranker: PointwiseReranker) -> list[PointwiseReranker]:
        return [reranker.with_policy(policy, alpha) for alpha in alphas]

    def measure(
        _: Path, controlled: list[PointwiseReranker], name: str, work: EvaluationData
    ) -> list[dict[str, PerQuery]]:
        systems = metrics.evaluate(controlled, work).systems
        return [dict(system.values) for system in systems]

    cells = fill_grid(rerankers, works, prepare, measure)
    by_alpha = []
    for number in range(len(alphas)):
        means: Values = {}
        for name in works:
            of_rankers = [cells[ranker, name][number] for ranker in rerankers]
            means[name] = {}
            for kind in of_rankers[0]:
                means[name][kind] = mean_values([kinds[kind] for kinds in of_rankers])
        by_alpha.append(means)
    return by_alpha


def _figures(values: Values) -> dict[str, dict[str, Estimate]]:
    """All measures by test set."""
    figures: dict[str, dict[str, Estimate]] = {}
    for name, kinds in values.items():
        figures[name] = {}
        for of_kind in kinds.values():
            figures[name] |= of_kind.summary().figures
    return figures


def _thirds(
    values: Values, places: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, tuple[Estimate, int]]]:
    """Effectiveness by the third of the passage in which the answer starts.

    And how many queries.
    """
    thirds: dict[str, dict[str, tuple[Estimate, int]]] = {}
    for name, start_of in places.items():
        scores = values[name][EFFECTIVENESS]
        for number, third in enumerate(THIRDS):
            queries = []
            for query in scores.query_ids:
                if query in start_of and int(3 * start_of[query]) == number:
                    queries.append(query)
            if queries:
                figure = scores.select_queries(queries).summary().figures[PLACE]
                thirds.setdefault(name, {})[third] = (figure, len(queries))
    return thirds


def _effect(values: Values) -> PerQuery:
    """What rotated passages cost each query."""
    original = values[ORIGINAL][EFFECTIVENESS].values[EFFECT]
    rotated = values[ROTATED][EFFECTIVENESS].values[EFFECT]
    return PerQuery({EFFECT: {query: value - rotated[query] for query, value in original.items()}})
