"""Tables of a listwise ranker with several remedies over several collections, as papers print."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
from backpack_rank.experiments.grid import fill_grid, show
from backpack_rank.pipelines.chosen_data import dataset_with
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.lists.evaluate import (
    ListTask,
    check_rows,
    listwise_with,
    needed_listwise,
)
from backpack_rank.position.lists.reranker import usage_in_words
from backpack_rank.position.lists.settings import RankerFactory
from backpack_rank.reporting.measure_files import write_per_query
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)
MEASURE = "nDCG@10"


class _Candidates:
    """Test split and candidates of one collection, under the options of each row.

    Rows with the same options of data share them, read once.
    """

    def __init__(self, node: Mapping[str, Any]) -> None:
        self.node = node
        self._read: dict[str, tuple[str, Run, Collection]] = {}

    def of(self, changes: Mapping[str, Any]) -> tuple[str, Run, Collection]:
        """Name of the first stage, its candidates, and the test split."""
        key, dataset = dataset_with(self.node, changes)
        if key not in self._read:
            test = dataset.split("test")
            stage, candidates = dataset.candidates("test", test)
            self._read[key] = (stage, candidates, test)
        return self._read[key]


@dataclass(frozen=True)
class RerankingGrid(ListTask):
    """A table with a row for each remedy and a column for each collection.

    It is the ``task`` of most files of ``conf/experiment/lists``.

    Attributes:
        published: name of the published table (``conf/published``), or path of a file like those.
        collections: by heading of the column, nodes of ``conf/data``.
        rows: by name, options that differ from those of the command line: ``calibration``,
            ``permutation``, ``listwise.ranker.mode`` and the like; ``data`` changes the collections
            of the row, for example their candidates, and ``{folder}`` in it is the folder of a
            collection's test split.
        baseline: the row that the others are compared with.
        options: parts of the configuration that several rows refer to by interpolation.
    """

    published: PathText
    collections: Rows
    rows: Rows
    baseline: Name | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located("task.published"):
            grid_table(self.published, {}, "")  # before anything is ranked
        if self.baseline is not None and self.baseline not in self.rows:
            raise ValueError(
                f"task.baseline={self.baseline} is none of the rows {', '.join(self.rows)}"
            )

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of a row or of a collection."""
        without_data = {row: _without_data(options) for row, options in self.rows.items()}
        check_rows(settings, without_data, "task.rows")
        for heading, node in self.collections.items():
            with located(f"task.collections.{heading}"):
                dataset_with(node, {})
            for row, options in self.rows.items():
                with located(settings.saved.place_of("task.rows", row)):
                    if "data" in options:
                        dataset_with(node, options["data"])

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank everything, print the table, write it as Markdown, LaTeX and CSV, and all rankings.

        Raises:
            ValueError: no listwise ranker is chosen.
        """
        listwise = needed_listwise(
            settings, "this experiment compares remedies of a listwise ranker"
        )
        self.check(settings)
        settings.save(folder)
        measured: dict[tuple[str, str], PerQuery] = {}
        first_stages: list[str] = []
        costs: list[str] = []
        rankers = RankerFactory()

        def measure(
            heading: str, collection: _Candidates, row: str, options: Mapping[str, Any]
        ) -> None:
            stage, candidates, test = collection.of(options.get("data", {}))
            label = f"{stage} (first stage)"
            # First stages are rows too, once for each collection.
            if (label, heading) not in measured:
                measured[label, heading] = _effectiveness(candidates, test, heading, label)
                first_stages.append(label)
            chosen = listwise_with(settings, _without_data(options))
            # Built for each cell, so that it counts what the cell costs; its model stays loaded.
            ranker = rankers.build(chosen)
            run = chosen.reranker(ranker, folder).rerank(candidates, test)
            measured[row, heading] = _effectiveness(run, test, heading, row)
            costs.append(f"{heading}, {row}: {usage_in_words(ranker.usage)}.")

        fill_grid(self.collections, self.rows, prepare=_Candidates, measure=measure)
        marks = self._marks(measured, first_stages)
        figures: dict[tuple[str, str], Figure] = {}
        per_query = []
        for (row, heading), values in measured.items():
            mark = marks.get((row, heading), "")
            figures[row, heading] = Figure(values.mean(MEASURE), marks=mark)
            per_query.append((f"{row}, {heading}", values.values))
        table = grid_table(self.published, figures, listwise.label, self.baseline, costs)
        write_table(folder, table)
        write_per_query(folder / "per_query.csv", per_query)
        show([table], f"Written to {folder}", quiet)

    def _marks(
        self, measured: Mapping[tuple[str, str], PerQuery], first_stages: Sequence[str]
    ) -> dict[tuple[str, str], str]:
        """A dagger where a row differs from the baseline."""
        marks = {}
        for (row, heading), values in measured.items():
            baseline = measured.get((str(self.baseline), heading))
            if baseline is None or row == self.baseline or row in first_stages:
                continue
            if p_wilcoxon(values, baseline, MEASURE) < SIGNIFICANCE:
                marks[row, heading] = "†"
        return marks


def grid_table(
    name: str,
    figures: Mapping[tuple[str, str], Figure],
    ranker: str,
    baseline: str | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Figures by row and collection above those of the published table of that name."""
    paper = published(name)
    columns: list[ColumnKey] = []
    figures_by_row: dict[str, dict[ColumnKey, Figure]] = {}
    for (row, heading), figure in figures.items():
        columns.append(("", heading))
        figures_by_row.setdefault(row, {})["", heading] = figure
    return lay_out(
        "reranking_grid",
        [PaperRow((row,), of_row) for row, of_row in figures_by_row.items()],
        paper,
        columns=columns,
        facts={"ranker": ranker, "baseline": baseline},
        notes=[*paper.notes, *notes],
    )


def _effectiveness(run: Run, test: Collection, heading: str, row: str) -> PerQuery:
    """Values of a cell, with a line in the log: cells may be hours apart."""
    values = effectiveness(run, test.qrels, (MEASURE,))
    log.info("%s, %s: %s %.4f", heading, row, MEASURE, values.mean(MEASURE))
    return values


def _without_data(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a row that are of the ranker."""
    return {name: value for name, value in options.items() if name != "data"}
