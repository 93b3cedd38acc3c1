"""Tables of listwise rerankers in a paper's layout: one ranker with several remedies, over several collections."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.pipelines.common import candidates_of, load_split, save_config
from backpack_rank.pipelines.listwise import ListwiseRankers, rerank, usage_in_words
from backpack_rank.reporting.layout import LayoutTable, print_layout_table, write_layout_table
from backpack_rank.reporting.list_layout import TABLES, list_table
from backpack_rank.reporting.rows import SIGNIFICANCE
from backpack_rank.reporting.tables import write_per_query

log = logging.getLogger(__name__)
MEASURE = "nDCG@10"


@dataclass
class _Found:
    """Cells by row and column, rows of first stages, and what each ranking cost."""

    cells: dict[tuple[str, str], PerQuery] = field(default_factory=dict)
    stages: list[str] = field(default_factory=list)
    costs: list[str] = field(default_factory=list)

    def measured(self, row: str, heading: str, run: Run, test: Collection) -> None:
        self.cells[row, heading] = effectiveness(run, test.qrels, (MEASURE,))
        log.info("%s, %s: %s %.4f", heading, row, MEASURE, self.cells[row, heading].mean(MEASURE))


@dataclass(frozen=True)
class ListTable:
    """``task`` of ``conf/experiment/lists/*``: a row for each remedy, a column for each collection.

    Attributes:
        table: name of a published table (:data:`backpack_rank.reporting.list_layout.TABLES`).
        collections: by heading of the column, nodes of ``conf/data``.
        rows: by name, options that differ from those of the command line: ``calibration``, ``permutation``,
            ``listwise.ranker.mode`` and the like; ``data`` changes the collections of the row, for example their
            candidates, and ``{folder}`` in it is the folder of a collection's test split.
        baseline: the row that the others are compared with.
        options: parts of the configuration that several rows refer to; not read here.
    """

    table: str
    collections: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    baseline: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise ValueError(f"task.table={self.table}: use one of {', '.join(TABLES)}")
        if self.baseline is not None and self.baseline not in self.rows:
            raise ValueError(f"task.baseline={self.baseline} is none of the rows {', '.join(self.rows)}")

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Rank everything, print the table, write it as Markdown, LaTeX and CSV, and all rankings.

        Raises:
            ValueError: no listwise ranker is chosen.
        """
        if config.get("listwise") is None:
            raise ValueError(
                "this experiment compares remedies of a listwise ranker: add listwise=trained, "
                "listwise=hugging_face listwise.ranker.name=NAME, or listwise=openai"
            )
        save_config(folder, config)
        found, rankers = _Found(), ListwiseRankers()
        for heading, node in self.collections.items():
            self._rank(config, heading, node, folder, rankers, found)
        table = self._layout(found, config)
        write_layout_table(folder, table)
        cells = [(f"{row}, {heading}", cell.values) for (row, heading), cell in found.cells.items()]
        write_per_query(folder / "per_query.csv", cells)
        if not quiet:
            print_layout_table(table)
            print(f"Written to {folder}")

    def _rank(
        self, config: DictConfig, heading: str, node: Any, folder: Path, rankers: ListwiseRankers, found: _Found
    ) -> None:
        """Measure all rows on one collection; first stages are rows too."""
        read: dict[str, tuple[str, Run, Collection]] = {}
        for row, options in self.rows.items():
            changed = dict(options)
            own_data = OmegaConf.create(in_folder(changed.pop("data", {}), node["test"].get("folder", "")))
            data = OmegaConf.merge(OmegaConf.create(node), own_data)
            assert isinstance(data, DictConfig)
            key = OmegaConf.to_yaml(data)
            if key not in read:
                test = load_split(data, "test")
                read[key] = (*candidates_of(data, "test", test), test)
            stage, candidates, test = read[key]
            label = f"{stage} (first stage)"
            if (label, heading) not in found.cells:
                found.measured(label, heading, candidates, test)
                found.stages.append(label)
            own = with_options(config, changed)
            ranker = rankers.ranker(own)
            found.measured(row, heading, rerank(own, ranker, candidates, test, folder), test)
            found.costs.append(f"{heading}, {row}: {usage_in_words(ranker.usage)}.")

    def _layout(self, found: _Found, config: DictConfig) -> LayoutTable:
        name = str(config.listwise.ranker.get("name") or config.listwise.ranker.get("model") or "trained here")
        notes = [*found.costs]
        if self.baseline is not None:
            notes.append(
                f"† differs from {self.baseline} by Wilcoxon's signed-rank test over the queries, "
                f"p < {SIGNIFICANCE:g}, not corrected."
            )
        return list_table(
            self.table,
            {cell: values.mean(MEASURE) for cell, values in found.cells.items()},
            {(row, heading): self._mark(row, heading, found) for row, heading in found.cells},
            Path(name).name,
            notes,
        )

    def _mark(self, row: str, heading: str, found: _Found) -> str:
        """A dagger where a row differs from the baseline."""
        base, own = found.cells.get((str(self.baseline), heading)), found.cells[row, heading]
        if base is None or row in (self.baseline, *found.stages):
            return ""
        return "†" if p_wilcoxon(own, base, MEASURE) < SIGNIFICANCE else ""


def in_folder(value: Any, folder: str) -> Any:
    """The value with ``{folder}`` filled into all its texts."""
    if isinstance(value, Mapping):
        return {name: in_folder(one, folder) for name, one in value.items()}
    if isinstance(value, list):
        return [in_folder(one, folder) for one in value]
    return value.replace("{folder}", folder) if isinstance(value, str) else value


def with_options(config: DictConfig, options: Mapping[str, Any]) -> DictConfig:
    """The configuration with some options changed."""
    opened = config.copy()
    OmegaConf.set_struct(opened, False)
    merged = OmegaConf.merge(opened, OmegaConf.create(dict(options)))
    assert isinstance(merged, DictConfig)
    return merged
