"""Afzali et al. as printed and as coded: four rules that choose senses, on the same rankers.

The paper and its code differ in the rule that chooses senses, the head, the trained parts and where
scores are read; docs/contributing/tables.md lists the differences. The code reads scores at one
token for effectiveness and takes a mean over all positions for bias. Here every system is measured
in both ways.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from backpack_rank.constructors import Count, FilePath, Name, PathText
from backpack_rank.evaluation.results import SystemResult
from backpack_rank.experiments.grid import paths_in_words, show
from backpack_rank.experiments.trained_rankers import trained_ranker
from backpack_rank.models.configuration import MEAN_SIGMOID
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.pipelines.option_types import Alphas
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import write_table
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.policies import LowestSenses, Policy, RandomSenses
from backpack_rank.senses.votes import MostVoted

_MEASURES = (
    "nDCG@10",
    "MRR@10",
    "RaB(tf)@10",
    "ARaB(tf)@10",
    "swap change",
    "swap change/std",
)
"""Of the table, where they were measured."""
READOUTS = {"one token": "pooled", "mean over positions": MEAN_SIGMOID}
"""Headings of the table, and the readouts below them."""


@dataclass(frozen=True)
class _System:
    """A line of the table: a ranker under a rule at an alpha.

    Attributes:
        ranker, rule, alpha: its labels.
        policies: whose figures are averaged; one, but for random senses.
    """

    ranker: str
    rule: str
    alpha: float
    policies: tuple[Policy, ...]


@dataclass(frozen=True)
class AsCodedTable(Experiment):
    """``task`` of ``evaluate.py experiment=fair_retrieval/as_coded``.

    Attributes:
        data: the collection that rankers are trained on, a name of ``conf/data``.
        model: what is trained, a name of ``conf/model``.
        train: options of ``train.py`` for all rankers.
        folder: a ranker that was trained below ``NAME`` in it is taken; one that is not there is
            trained, and a training that was interrupted goes on.
        rankers: names, and the options of ``train.py`` that they differ in; null leaves one out.
        alphas: positions of the dial, beside 1.
        count: how many senses are scaled.
        pairs, crows_pairs, compare: what votes; see :class:`~backpack_rank.senses.votes.MostVoted`.
        random_draws: random choices of senses, whose mean is shown.
    """

    data: Name
    model: Name
    folder: PathText
    train: Sequence[str] = ()
    rankers: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    alphas: Alphas = (0.5, 0.0)
    count: Count = 2
    pairs: FilePath | None = None
    crows_pairs: FilePath | None = None
    compare: Name = "words"
    random_draws: Count = 10

    finds_ranker: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self._names:
            raise ValueError("task.rankers is empty: name at least one ranker, such as frozen: []")
        self._most_voted()  # refuses wrong options before anything is trained

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Train what is missing, measure, and write the table as Markdown, CSV and LaTeX."""
        checkpoints: dict[str, Path] = {}
        for name in self._names:
            checkpoints[name] = self.trained(name)
        # All rankers are measured on the collection that the options name.
        first_checkpoint = next(iter(checkpoints.values()))
        dataset = settings.dataset(first_checkpoint)
        metrics = settings.metrics(dataset)
        work = evaluation_loader(settings, dataset, metrics)("test")
        settings.save(folder)
        lines: list[tuple[_System, dict[str, dict[str, float]]]] = []
        votes = []
        for name, checkpoint in checkpoints.items():
            reranker = _reranker(settings, checkpoint, None)
            votes.append(self._votes_in_words(name, reranker))
            systems = self._systems(name, reranker)
            figures = self._measured(systems, settings, checkpoint, metrics, work)
            lines += zip(systems, figures, strict=True)
        notes = [
            f"Measured on {work.test.name} ({len(work.test.queries)} queries); bias and swap "
            f"change on the {len(work.bias.queries)} of its bias set.",
            f"Random senses: means of {self.random_draws} draws.",
            *votes,
        ]
        table = _table(lines, notes)
        show([table], paths_in_words(write_table(folder, table)), quiet)

    def trained(self, name: str) -> Path:
        """Folder of the ranker of a name, which is trained where it is not there."""
        options = [
            f"data={self.data}",
            f"model={self.model}",
            "recipe=as_coded",
            *self.train,
            *(self.rankers[name] or ()),
        ]
        return trained_ranker(Path(self.folder, name), options, f"task.rankers.{name}")

    @property
    def _names(self) -> list[str]:
        return [name for name, options in self.rankers.items() if options is not None]

    def _most_voted(self) -> MostVoted:
        return MostVoted(self.count, self.pairs, self.crows_pairs, compare=self.compare)

    def _systems(self, name: str, reranker: PointwiseReranker) -> list[_System]:
        """The lines of a ranker: at alpha 1, and under every rule at every alpha."""
        rules: dict[str, tuple[Policy, ...]] = {}
        if reranker.scorer.ranker.config.groups:
            rules["attribute senses"] = (LowestSenses(),)
        else:
            draws = [RandomSenses(self.count, seed) for seed in range(self.random_draws)]
            rules["printed: lowest mean cosine"] = (LowestSenses(self.count),)
            rules["coded: most votes"] = (self._most_voted(),)
            rules["random senses"] = tuple(draws)
        systems = [_System(name, "-", 1.0, (LowestSenses(self.count),))]
        for rule, policies in rules.items():
            for alpha in self.alphas:
                systems.append(_System(name, rule, float(alpha), policies))
        return systems

    def _measured(
        self,
        systems: Sequence[_System],
        settings: EvaluationSettings,
        checkpoint: Path | str,
        metrics: MetricSuite,
        work: EvaluationData,
    ) -> list[dict[str, dict[str, float]]]:
        """Figures of each line, by heading of the readout and measure."""
        figures: list[dict[str, dict[str, float]]] = [{} for _ in systems]
        for heading, readout in READOUTS.items():
            unchanged = _reranker(settings, checkpoint, readout)
            for system, figures_of_system in zip(systems, figures, strict=True):
                rerankers = []
                for policy in system.policies:
                    rerankers.append(unchanged.with_policy(policy, system.alpha))
                report = metrics.evaluate(rerankers, work).report()
                figures_of_system[heading] = _means(report.rows)
        return figures

    def _votes_in_words(self, name: str, reranker: PointwiseReranker) -> str:
        """Which senses the two rules choose, for a note."""
        context = reranker.hook.context
        sensitivity = context.needed_sensitivity("lowest_senses")
        printed = LowestSenses(self.count).chosen(sensitivity).tolist()
        votes = self._most_voted().votes(context)
        voted = []
        for sense in votes.argsort(stable=True).flip(0).tolist():
            if votes[sense] > 0:
                voted.append(f"{sense} ({int(votes[sense])})")
        return (
            f"{name}: the printed rule scales senses {printed[0]} and "
            f"{', '.join(map(str, printed[1:]))}; votes of {int(votes.sum())} pairs went to "
            f"{', '.join(voted)}."
        )


def _reranker(
    settings: EvaluationSettings, checkpoint: Path | str, readout: str | None
) -> PointwiseReranker:
    """The ranker with its own senses alone, read as ``readout`` says; None: as it was saved."""
    scoring = replace(settings.scoring or ScoringSettings(), readout=readout)
    return replace(settings, scoring=scoring, split_attribute=False).load_ranker(checkpoint)


def _means(rows: Sequence[SystemResult]) -> dict[str, float]:
    """Each measure, as the mean over the systems."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for block in row.blocks.values():
            for measure, estimate in block.figures.items():
                values.setdefault(measure, []).append(estimate.mean)
    return {measure: statistics.fmean(figures) for measure, figures in values.items()}


def _table(
    lines: Sequence[tuple[_System, Mapping[str, Mapping[str, float]]]], notes: Sequence[str]
) -> Table:
    """One section for each ranker; the measures stand once below each readout."""
    _, figures_of_first = lines[0]
    measured = next(iter(figures_of_first.values()))
    measures = []
    for measure in _MEASURES:
        if measure in measured:
            measures.append(measure)
    sections: dict[str, list[Row]] = {}
    records = []
    for system, figures in lines:
        cells = []
        for heading in READOUTS:
            for measure in measures:
                value = figures[heading].get(measure)
                cells.append(Cell(number(value)))
                records.append((system.ranker, system.rule, system.alpha, heading, measure, value))
        row = Row((system.rule, f"{system.alpha:g}"), cells)
        sections.setdefault(system.ranker, []).append(row)
    return Table(
        name="as_coded",
        title="The paper's rule as printed and as coded",
        labels=("rule", "alpha"),
        groups=[Group(heading, tuple(measures)) for heading in READOUTS],
        sections=[Section(name, rows) for name, rows in sections.items()],
        notes=notes,
        columns=("ranker", "rule", "alpha", "readout", "measure", "mean"),
        records=records,
    )
