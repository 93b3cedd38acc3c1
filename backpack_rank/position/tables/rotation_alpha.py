"""Position bias and gender bias of rankers of original and rotated passages, by alpha.

Does rotation change gender bias, and does alpha change position bias?
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backpack_rank.commands import called
from backpack_rank.constructors import Name, PathText
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
from backpack_rank.position.passages.rotation_benchmark import ORIGINAL, ROTATED, mean_values
from backpack_rank.position.tables.checkpoints import (
    Checkpoint,
    chosen_runs,
    group_by_seed,
    ranker_notes,
    trainings_on,
)
from backpack_rank.position.tables.rotation import CHANGE, finish, relative_change
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.published import published
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.senses.policies import Policy, check_alpha

log = logging.getLogger(__name__)
EFFECT, PLACE, GENDER = "nDCG@10", "MRR@10", "RaB(tf)@10"
THIRDS = ("first", "middle", "last")
"""Of the passage, by where the answer starts."""

Values = dict[str, dict[str, PerQuery]]
"""``{test set: {kind of measure: values}}``"""


@dataclass(frozen=True)
class RotationByAlpha(Experiment):
    """Shows whether rotation changes gender bias, and alpha position bias.

    It is the ``task`` of ``evaluate.py experiment=passage_rotation/alpha``.

    Attributes:
        published: name of a published table like 3, whose names of models and trainings are taken.
        alphas: values of alpha; 1 is always among them.
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        trained_on: name of the training data; None is that of ``data=``.
        models: names to measure; None measures all that have senses.
    """

    published: PathText
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
        paper = published(self.published)
        dataset = settings.needed_dataset()
        source = self.trained_on or dataset.name
        training_by_stages = trainings_on(paper, source, settings)
        # From 1 down, the order of the rows.
        alphas = sorted({1.0, *map(check_alpha, self.alphas)}, reverse=True)
        metrics = settings.metrics(dataset)
        test_data = {}
        for name, rotation in ((ORIGINAL, "none"), (ROTATED, "test")):
            load = evaluation_loader(settings, dataset.with_rotation(rotation), metrics)
            test_data[name] = load("test")
        places = answer_places(settings, dataset)
        runs: list[Checkpoint] = []
        rows: list[PaperRow] = []
        values_of_row: dict[tuple[str, str, float], Values] = {}
        chosen = chosen_runs(self.runs, self.models, settings, paper, list(training_by_stages))
        for (model, stages), runs_of_seeds in group_by_seed(chosen).items():
            rerankers = {run.ranker: settings.reranker(run.ranker) for run in runs_of_seeds}
            first_reranker = next(iter(rerankers.values()))
            if not first_reranker.scorer.ranker.has_senses:
                log.info("%s has no senses, so there is no alpha to turn", model)
                continue
            runs += runs_of_seeds
            by_alpha = _values_by_alpha(rerankers, settings.policy, alphas, test_data, metrics)
            for alpha, values in zip(alphas, by_alpha, strict=True):
                label, training = paper.label_of(model), training_by_stages[stages]
                figures = figures_at_alpha(_figures(values), _thirds(values, places))
                record = {"alpha": alpha, "rankers": len(runs_of_seeds)}
                rows.append(
                    PaperRow((training, f"{alpha:g}"), figures, section=label, record=record)
                )
                values_of_row[label, training, alpha] = values
        if not rows:
            raise ValueError(
                f"no ranker with senses that was trained on {source} was found: train some by "
                f"{called('train')} -m data={source} data.rotation=none,train "
                "model=backpack_tiny, and say where by task.runs=[FOLDER]"
            )

        original = test_data[ORIGINAL]
        about = metrics.fairness.describe(RunInfo(), original.stage)
        notes = [*findings(values_of_row, paper.labels_at(1)), *ranker_notes(paper, runs)]
        facts = {
            "collection": original.test.name,
            "bias_set": original.bias_set,
            "sign": about.sign_in_words.rstrip("."),
        }
        table = lay_out("rotation_alpha", rows, facts=facts, notes=notes)
        per_query = []
        for (model, training, alpha), values in values_of_row.items():
            for name, values_by_kind in values.items():
                label = f"{model} ({training}) alpha={alpha:g} on {name}"
                for values_of_kind in values_by_kind.values():
                    per_query.append((label, values_of_kind.values))
        finish(settings, folder, table, per_query, quiet)


def figures_at_alpha(
    figures: Mapping[str, Mapping[str, Estimate]],
    thirds: Mapping[str, Mapping[str, tuple[Estimate, int]]],
) -> dict[ColumnKey, Figure | Estimate]:
    """Figures of rankers of one training at one alpha.

    Args:
        figures: by test set (``original``, ``rotated``) and measure.
        thirds: by test set and third of the passage, the figure of :data:`PLACE` over the queries
            whose answer starts there, and their number.
    """
    row: dict[ColumnKey, Figure | Estimate] = {}
    for test, by_measure in figures.items():
        for measure, figure in by_measure.items():
            row[measure, test] = figure
    for test, by_third in thirds.items():
        for third, (figure, queries) in by_third.items():
            record = {"test": test, "measure": f"{PLACE} {third} third", "queries": queries}
            row[PLACE, f"{third} third, {test}"] = Figure(figure, record=record)
    effects = [figures[test][EFFECT].mean for test in (ORIGINAL, ROTATED)]
    row[EFFECT, CHANGE] = Figure(relative_change(*effects))
    return row


def answer_places(settings: EvaluationSettings, dataset: Dataset) -> dict[str, dict[str, float]]:
    """The relative start of every query's answer in both test sets.

    ``answer_places(settings, dataset)["rotated"]["q1"]`` is 0 where the answer starts the passage.
    Empty for data without ``answers``.
    """
    if dataset.answers is None:
        return {}
    answers = load_answers(dataset.answers, title=dataset.titles)
    return {
        ORIGINAL: query_positions(answers),
        ROTATED: query_positions(answers, settings.rotation),
    }


def findings(
    values_of_row: Mapping[tuple[str, str, float], Values], trainings: Sequence[str]
) -> list[str]:
    """Sentences that answer both questions by Wilcoxon's test over the queries.

    Args:
        values_of_row: by model, training and alpha.
        trainings: names of that on original passages and of that on rotated ones.
    """
    original, debiased = trainings
    sentences = []
    for (model, training, alpha), values in values_of_row.items():
        values_of_debiased = values_of_row.get((model, debiased, alpha))
        if training == original and values_of_debiased is not None:
            of_original = values[ORIGINAL][BIAS]
            of_debiased = values_of_debiased[ORIGINAL][BIAS]
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
    test_data: Mapping[str, EvaluationData],
    metrics: MetricSuite,
) -> list[Values]:
    """Values at each alpha, as means over rankers of several seeds."""

    def prepare(reranker: PointwiseReranker) -> list[PointwiseReranker]:
        return [reranker.with_policy(policy, alpha) for alpha in alphas]

    def measure(
        _: Path, controlled: list[PointwiseReranker], name: str, data: EvaluationData
    ) -> list[dict[str, PerQuery]]:
        systems = metrics.evaluate(controlled, data).systems
        return [dict(system.values) for system in systems]

    cells = fill_grid(rerankers, test_data, prepare, measure)
    by_alpha = []
    for place in range(len(alphas)):
        means: Values = {}
        for name in test_data:
            values_by_kind: dict[str, list[PerQuery]] = {}
            for folder in rerankers:
                for kind, values in cells[folder, name][place].items():
                    values_by_kind.setdefault(kind, []).append(values)
            means[name] = {}
            for kind, values_of_rankers in values_by_kind.items():
                means[name][kind] = mean_values(values_of_rankers)
        by_alpha.append(means)
    return by_alpha


def _figures(values: Values) -> dict[str, dict[str, Estimate]]:
    """Figures of all measures by test set, whatever their kind."""
    figures: dict[str, dict[str, Estimate]] = {}
    for name, values_by_kind in values.items():
        figures[name] = {}
        for values_of_kind in values_by_kind.values():
            figures[name] |= values_of_kind.summary().figures
    return figures


def _thirds(
    values: Values, places: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, tuple[Estimate, int]]]:
    """Effectiveness by the third of the passage in which the answer starts, with its queries."""
    thirds: dict[str, dict[str, tuple[Estimate, int]]] = {}
    for name, starts in places.items():
        scores = values[name][EFFECTIVENESS]
        for place, third in enumerate(THIRDS):
            query_ids = []
            for query_id in scores.query_ids:
                # Starts are relative, in [0, 1).
                if query_id in starts and int(3 * starts[query_id]) == place:
                    query_ids.append(query_id)
            if query_ids:
                figure = scores.select_queries(query_ids).summary().figures[PLACE]
                thirds.setdefault(name, {})[third] = (figure, len(query_ids))
    return thirds


def _effect(values: Values) -> PerQuery:
    """What rotated passages cost each query: its value on original less that on rotated ones."""
    original = values[ORIGINAL][EFFECTIVENESS].values[EFFECT]
    rotated = values[ROTATED][EFFECTIVENESS].values[EFFECT]
    losses = {query_id: value - rotated[query_id] for query_id, value in original.items()}
    return PerQuery({EFFECT: losses})
