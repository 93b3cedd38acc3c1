"""Rankers by the place of the answer: SQuAD-PosQ and PSI of Zeng et al. 2025."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from backpack_rank.constructors import CountOrZero, Length, Name
from backpack_rank.data.answers import load_answers
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.pipelines.evaluate_runs import read_files
from backpack_rank.pipelines.experiment import Experiment
from backpack_rank.pipelines.option_types import Files
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.passages.position_buckets import (
    EDGES,
    BucketMeans,
    answer_starts,
    bucket_means,
)
from backpack_rank.reporting.comparison import distinct_labels
from backpack_rank.reporting.table import Cell, Group, Row, Section, Table, number
from backpack_rank.reporting.writers import print_table, write_table
from backpack_rank.reranking.rerankers import FirstStageOrder, Reranker


@dataclass(frozen=True)
class PositionBuckets(Experiment):
    """Shows whether a ranker loses answers that stand late in their passages.

    It is the ``task`` of ``evaluate.py experiment=position_buckets``.

    Attributes:
        rankers: folders of rankers, which rank the candidates of the first stage.
        runs: TREC runs of any system.
        measure: taken of every question.
        edges: first characters of the buckets.
    """

    finds_ranker: ClassVar[bool] = False

    rankers: Files | None = None
    runs: Files | None = None
    measure: Name = "nDCG@10"
    edges: Annotated[Sequence[CountOrZero], Length(2, 100)] = EDGES

    def __post_init__(self) -> None:
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError(f"task.edges={list(self.edges)} must ascend")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank, measure and write ``position_buckets`` as CSV, MD and TEX.

        Raises:
            ValueError: the data have no answers.
        """
        dataset = settings.needed_dataset()
        if dataset.answers is None:
            raise ValueError(
                f"data={dataset.name} has no answers: use data=squad, or give data.answers=FOLDER"
            )
        collection = dataset.split("test")
        stage, candidates = dataset.candidates("test", collection)
        starts = answer_starts(load_answers(dataset.answers, title=dataset.titles))

        rerankers: list[Reranker] = [FirstStageOrder(stage)]
        rerankers += read_files(_listed(self.runs), settings.ties)
        folders = [Path(ranker).expanduser() for ranker in _listed(self.rankers)]
        for label, ranker in zip(distinct_labels(folders), folders, strict=True):
            ranked_by = settings.reranker(ranker)
            ranked_by.name = label
            rerankers.append(ranked_by)
        means_by_system: dict[str, BucketMeans] = {}
        for reranker in rerankers:
            run = reranker.rerank(candidates, collection)
            values = effectiveness(run, collection.qrels, [self.measure])
            by_question = values.values[self.measure]
            means_by_system[reranker.name] = bucket_means(by_question, starts, self.edges)
        settings.save(folder)
        table = bucket_table(means_by_system, self.edges, f"{self.measure} on {collection.name}")
        write_table(folder, table)
        if not quiet:
            print_table(table)
            print(f"Written to {folder}")


def bucket_table(
    means_by_system: Mapping[str, BucketMeans], edges: Sequence[int], what: str
) -> Table:
    """Read means by the place of the answer: a row for each system, PSI behind them."""
    headings = [f"{low}-{high}" for low, high in itertools.pairwise(edges)]
    headings.append(f"{edges[-1]}+")
    # All systems rank the same questions, so their numbers stand once; PSI has none.
    counts = next(iter(means_by_system.values())).queries
    cells = [Cell(f"{count:,}") for count in counts]
    rows = [Row(("questions",), [*cells, Cell(""), Cell("")])]
    records: list[tuple[object, ...]] = []
    for label, buckets in means_by_system.items():
        figures = (*buckets.means, buckets.psi, buckets.chance)
        rows.append(Row((label,), [Cell(number(figure, 3)) for figure in figures]))
        records.append((label, *figures))
    return Table(
        name="position_buckets",
        title=f"{what}, by the first character of the answer",
        labels=("system",),
        groups=[Group("", (*headings, "PSI", "chance"))],
        sections=[Section("", rows)],
        notes=(
            "PSI (Zeng et al. 2025): 1 - smallest / largest mean of a bucket; 0 is insensitive",
            "chance: PSI is below it in 95% of shuffles of the questions over the buckets",
        ),
        columns=("system", *headings, "PSI", "chance"),
        records=records,
    )


def _listed(given: Files | None) -> list[str]:
    if given is None:
        return []
    return [given] if isinstance(given, str) else list(given)
