"""Tables of listwise rerankers in a paper's layout: one ranker with several remedies, over several collections."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backpack_rank.checks import located
from backpack_rank.constructors import Name, PathText
from backpack_rank.data.collection import Collection, Run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.evaluation.significance import SIGNIFICANCE
from backpack_rank.experiments.grid import row_of, show
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings, dataset_with
from backpack_rank.position.lists.evaluate import ListTask, check_rows, listwise_with, needed_listwise
from backpack_rank.position.lists.reranker import usage_in_words
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.position.tables.list_tables import list_table
from backpack_rank.reporting.measure_files import write_per_query
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)
MEASURE = "nDCG@10"


@dataclass
class _GridResults:
    """Cells by row and column, rows of first stages, and what each ranking cost."""

    cells: dict[tuple[str, str], PerQuery] = field(default_factory=dict)
    stages: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)

    def measured(self, row: str, heading: str, run: Run, test: Collection) -> None:
        self.cells[row, heading] = effectiveness(run, test.qrels, (MEASURE,))
        log.info("%s, %s: %s %.4f", heading, row, MEASURE, self.cells[row, heading].mean(MEASURE))


@dataclass(frozen=True)
class RerankingGrid(ListTask):
    """``task`` of ``conf/experiment/lists/*``: a row for each remedy, a column for each collection.

    Attributes:
        published: name of the published table (``conf/published``), or path of a file like those.
        collections: by heading of the column, nodes of ``conf/data``.
        rows: by name, options that differ from those of the command line: ``calibration``, ``permutation``,
            ``listwise.ranker.mode`` and the like; ``data`` changes the collections of the row, for example their
            candidates, and ``{folder}`` in it is the folder of a collection's test split.
        baseline: the row that the others are compared with.
        options: parts of the configuration that several rows refer to; not read here.
    """

    published: PathText
    collections: Rows
    rows: Rows
    baseline: Name | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located("task.published"):
            published(self.published)
        if self.baseline is not None and self.baseline not in self.rows:
            raise ValueError(f"task.baseline={self.baseline} is none of the rows {', '.join(self.rows)}")

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of a row or of a collection."""
        check_rows(settings, {row: _without_data(options) for row, options in self.rows.items()}, "task.rows")
        for heading, node in self.collections.items():
            with located(f"task.collections.{heading}"):
                dataset_with(node, {})
            for row, options in self.rows.items():
                with located(row_of(settings, "task.rows", row)):
                    if "data" in options:
                        dataset_with(node, options["data"])

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank everything, print the table, write it as Markdown, LaTeX and CSV, and all rankings.

        Raises:
            ValueError: no listwise ranker is chosen.
        """
        listwise = needed_listwise(settings, "this experiment compares remedies of a listwise ranker")
        self.check(settings)
        settings.save(folder)
        found, rankers = _GridResults(), RankerFactory()
        for heading, node in self.collections.items():
            self._rank(settings, heading, node, folder, rankers, found)
        table = self._layout(found, listwise.label)
        write_table(folder, table)
        cells = [(f"{row}, {heading}", cell.values) for (row, heading), cell in found.cells.items()]
        write_per_query(folder / "per_query.csv", cells)
        show([table], f"Written to {folder}", quiet)

    def _rank(
        self,
        settings: EvaluationSettings,
        heading: str,
        node: Mapping[str, Any],
        folder: Path,
        rankers: RankerFactory,
        found: _GridResults,
    ) -> None:
        """Measure all rows on one collection; first stages are rows too."""
        read: dict[str, tuple[str, Run, Collection]] = {}
        for row, options in self.rows.items():
            key, dataset = dataset_with(node, options.get("data", {}))
            if key not in read:
                test = dataset.split("test")
                read[key] = (*dataset.candidates("test", test), test)
            stage, candidates, test = read[key]
            label = f"{stage} (first stage)"
            if (label, heading) not in found.cells:
                found.measured(label, heading, candidates, test)
                found.stages.append(label)
            own = listwise_with(settings, _without_data(options))
            ranker = rankers.build(own)
            found.measured(row, heading, own.reranker(ranker, folder).rerank(candidates, test), test)
            found.costs.append(f"{heading}, {row}: {usage_in_words(ranker.usage)}.")

    def _layout(self, found: _GridResults, name: str) -> Table:
        notes = [*found.costs]
        if self.baseline is not None:
            notes.append(
                f"† differs from {self.baseline} by Wilcoxon's signed-rank test over the queries, "
                f"p < {SIGNIFICANCE:g}, not corrected."
            )
        measured = {cell: values.mean(MEASURE) for cell, values in found.cells.items()}
        marks = {cell: self._mark(*cell, found) for cell in found.cells}
        return list_table(self.published, measured, marks, name, notes)

    def _mark(self, row: str, heading: str, found: _GridResults) -> str:
        """A dagger where a row differs from the baseline."""
        base, own = found.cells.get((str(self.baseline), heading)), found.cells[row, heading]
        if base is None or row in (self.baseline, *found.stages):
            return ""
        return "†" if p_wilcoxon(own, base, MEASURE) < SIGNIFICANCE else ""


def _without_data(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a row that are of the ranker."""
    return {name: value for name, value in options.items() if name != "data"}
