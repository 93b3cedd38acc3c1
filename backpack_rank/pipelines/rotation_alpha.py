"""Does rotation change gender bias, and does alpha change position bias? Both biases over rotation and alpha."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from backpack_rank.data.answers import load_answers
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.pipelines.common import asked_rotation, needed_data
from backpack_rank.pipelines.passage_rotation import (
    ORIGINAL,
    ROTATED,
    chosen_runs,
    finish,
    mean_values,
    paper_name,
    ranker_notes,
    with_rotation,
)
from backpack_rank.pipelines.trained_runs import Stage, Stages, grouped
from backpack_rank.pipelines.turned import TurnedRanker
from backpack_rank.pipelines.workload import Workload, bias_set_in_words, load_workload
from backpack_rank.pipelines.yardstick import BIAS, EFFECTIVENESS, Yardstick
from backpack_rank.position.answer_positions import query_positions
from backpack_rank.reporting.published_rotation import TRAININGS
from backpack_rank.reporting.rotation_alpha import EFFECT, PLACE, THIRDS, TurnedRow, alpha_table
from backpack_rank.reporting.rows import About, Figure
from backpack_rank.senses.policy import check_alpha

log = logging.getLogger(__name__)
GENDER = "RaB(tf)@10"

Values = dict[str, dict[str, PerQuery]]
"""``{test set: {kind of measure: values}}``"""


@dataclass(frozen=True)
class RotationByAlpha:
    """``task`` of ``evaluate.py experiment=passage_rotation/alpha``.

    Attributes:
        alphas: positions of the dial; 1 is always among them.
        runs: folders that hold the runs of train.py; None takes all of ``output``.
        trained_on: name of the training data; None is that of ``data=``.
        models: names to measure; None measures all that have senses.
    """

    alphas: Sequence[float] = (1.0, 0.5, 0.0)
    runs: str | Sequence[str] | None = None
    trained_on: str | None = None
    models: Sequence[str] | None = None

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Measure the rankers at every alpha on both test sets; write the table and values per query.

        Raises:
            ValueError: no ranker with senses was trained on that data.
        """
        data = needed_data(config)
        source, level = self.trained_on or str(data.name), asked_rotation(config).level
        stages: dict[Stages, str] = {(Stage(source),): TRAININGS[0], (Stage(source, level),): TRAININGS[1]}
        alphas = sorted({1.0, *(check_alpha(alpha) for alpha in self.alphas)}, reverse=True)
        yardstick = Yardstick.of(config, data)
        works = {
            name: load_workload(config, with_rotation(data, rotation), yardstick.fairness.lexicon)
            for name, rotation in ((ORIGINAL, "none"), (ROTATED, "test"))
        }
        places = answer_places(config, data)
        runs, rows, every = [], [], {}
        for (model, of), group in grouped(chosen_runs(self.runs, self.models, config, list(stages))).items():
            turned = {run.ranker: TurnedRanker(config, run.ranker) for run in group}
            if not next(iter(turned.values())).has_senses:
                log.info("%s has no senses, so there is no alpha to turn", model)
                continue
            runs += group
            found = [_values(turned[run.ranker], alphas, works, yardstick) for run in group]
            for number, alpha in enumerate(alphas):
                values = _means([one[number] for one in found])
                key = (paper_name(model), stages[of], alpha)
                every[key] = values
                rows.append(TurnedRow(*key, _figures(values), _thirds(values, places), len(group)))
        if not rows:
            raise ValueError(
                f"no ranker with senses that was trained on {source} was found: train some by python train.py -m "
                f"data={source} data.rotation=none,train model=backpack_tiny, and say where by task.runs=[FOLDER]"
            )
        work = works[ORIGINAL]
        about = yardstick.fairness.describe(About(), work.stage)
        notes = [*findings(every), *ranker_notes(runs)]
        bias_set = bias_set_in_words(config, work.bias)
        table = alpha_table(rows, work.test.name, bias_set, about.sign_in_words.rstrip("."), notes)
        labelled = [
            (f"{model} ({training}) alpha={alpha:g} on {name}", one.values)
            for (model, training, alpha), values in every.items()
            for name, kinds in values.items()
            for one in kinds.values()
        ]
        finish(config, data, folder, table, labelled, quiet)


def answer_places(config: DictConfig, data: DictConfig) -> dict[str, dict[str, float]]:
    """Relative start of every query's answer in both test sets; empty for data without ``answers``."""
    if data.get("answers") is None:
        return {}
    answers = load_answers(str(data.answers), title=bool(data.test.get("title", True)))
    return {ORIGINAL: query_positions(answers), ROTATED: query_positions(answers, asked_rotation(config))}


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
    turned: TurnedRanker, alphas: Sequence[float], works: Mapping[str, Workload], yardstick: Yardstick
) -> list[Values]:
    """Values of a ranker at each alpha."""
    measured = {name: yardstick.measure(turned.systems(work, alphas), work) for name, work in works.items()}
    return [{name: results[number].kinds for name, results in measured.items()} for number in range(len(alphas))]


def _means(found: Sequence[Values]) -> Values:
    return {
        name: {kind: mean_values([one[name][kind] for one in found]) for kind in kinds}
        for name, kinds in found[0].items()
    }


def _figures(values: Values) -> dict[str, dict[str, Figure]]:
    return {
        name: {measure: figure for one in kinds.values() for measure, figure in one.summary().figures.items()}
        for name, kinds in values.items()
    }


def _thirds(values: Values, places: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, tuple[Figure, int]]]:
    found: dict[str, dict[str, tuple[Figure, int]]] = {}
    for name, at in places.items():
        scores = values[name][EFFECTIVENESS]
        for number, third in enumerate(THIRDS):
            queries = [q for q in scores.query_ids if q in at and int(3 * at[q]) == number]
            if queries:
                figure = scores.only(queries).summary().figures[PLACE]
                found.setdefault(name, {})[third] = (figure, len(queries))
    return found


def _effect(values: Values) -> PerQuery:
    """What rotated passages cost each query."""
    original, rotated = (values[name][EFFECTIVENESS].values[EFFECT] for name in (ORIGINAL, ROTATED))
    return PerQuery({EFFECT: {query: value - rotated[query] for query, value in original.items()}})
