"""Tables of listwise rerankers in a paper's layout: one ranker with several remedies, over several collections."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.collection import Collection, Run
from backpack_rank.evaluation.effectiveness import effectiveness
from backpack_rank.evaluation.paired import p_wilcoxon
from backpack_rank.evaluation.results import PerQuery
from backpack_rank.pipelines.common import candidates_of, load_split, save_config
from backpack_rank.pipelines.listwise import listwise_checkpoint, listwise_ranker, rerank, usage_in_words
from backpack_rank.reporting.layout import LayoutTable, print_layout_table, write_layout_table
from backpack_rank.reporting.list_layout import TABLES, list_table
from backpack_rank.reporting.rows import SIGNIFICANCE
from backpack_rank.reporting.tables import write_per_query

log = logging.getLogger(__name__)


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
    measure: ClassVar[str] = "nDCG@10"
    _stages: list[str] = field(default_factory=list, init=False, repr=False)
    _cells: dict[tuple[str, str], PerQuery] = field(default_factory=dict, init=False, repr=False)

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
        costs: list[str] = []
        for heading, node in self.collections.items():
            self._rank(config, heading, node, folder, costs)
        table = self._layout(costs, config)
        write_layout_table(folder, table)
        write_per_query(
            folder / "per_query.csv", [(f"{row}, {heading}", c.values) for (heading, row), c in self._cells.items()]
        )
        if not quiet:
            print_layout_table(table)
            print(f"Written to {folder}")

    def _rank(self, config: DictConfig, heading: str, node: Any, folder: Path, costs: list[str]) -> None:
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
            if (heading, label) not in self._cells:
                self._measured(heading, label, candidates, test)
                self._stages.append(label)
            own = with_options(config, changed)
            ranker = listwise_ranker(own, listwise_checkpoint(own))
            self._measured(heading, row, rerank(own, ranker, candidates, test, folder), test)
            costs.append(f"{heading}, {row}: {usage_in_words(ranker.usage)}.")

    def _measured(self, heading: str, row: str, run: Run, test: Collection) -> None:
        self._cells[heading, row] = effectiveness(run, test.qrels, (self.measure,))
        log.info("%s, %s: %s %.4f", heading, row, self.measure, self._cells[heading, row].mean(self.measure))

    def _layout(self, costs: list[str], config: DictConfig) -> LayoutTable:
        cells = {(row, heading): found for (heading, row), found in self._cells.items()}
        name = str(config.listwise.ranker.get("name") or config.listwise.ranker.get("model") or "trained here")
        notes = [*costs]
        if self.baseline is not None:
            notes.append(
                f"† differs from {self.baseline} by Wilcoxon's signed-rank test over the queries, "
                f"p < {SIGNIFICANCE:g}, not corrected."
            )
        return list_table(
            self.table,
            {cell: found.mean(self.measure) for cell, found in cells.items()},
            {(row, heading): self._mark(heading, row) for row, heading in cells},
            Path(name).name,
            notes,
        )

    def _mark(self, heading: str, row: str) -> str:
        """A dagger where a row differs from the baseline."""
        base, own = self._cells.get((heading, str(self.baseline))), self._cells.get((heading, row))
        if base is None or own is None or row in (self.baseline, *self._stages):
            return ""
        return "†" if p_wilcoxon(own, base, self.measure) < SIGNIFICANCE else ""


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
