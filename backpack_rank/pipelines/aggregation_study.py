"""``evaluate.py experiment=lists/psc_figures``: single runs, numbers of rankings, sampling temperature, aggregators."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from backpack_rank.models.listwise.ranker import ListwiseRanker, PassageList
from backpack_rank.pipelines.common import candidates_of, check_whole, load_split, save_config
from backpack_rank.pipelines.list_tables import with_options
from backpack_rank.pipelines.listwise import RANKINGS_FILE, ListwiseRankers, listwise_checkpoint, usage_in_words
from backpack_rank.pipelines.ranked_lists import KeptRanker, RankedLists
from backpack_rank.pipelines.sorting_task import TASKS, sorting_lists
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation_study import NUMBERS, ListScores, ndcg_of, study_aggregation, tau_of
from backpack_rank.position.list_runs import lists_of
from backpack_rank.position.shuffling import rank_shuffled
from backpack_rank.reporting.layout import LayoutTable, print_layout_table, write_layout_table
from backpack_rank.reporting.list_page import ListPage, write_list_page
from backpack_rank.reporting.run_spread import TaskRuns, write_run_spread
from backpack_rank.reporting.run_spread_tables import numbers_table, spread_table

log = logging.getLogger(__name__)
TAU, NDCG = "Kendall's tau", "nDCG@10"
_DEPTH = 20


@dataclass(frozen=True)
class _Lists:
    """Lists of a task and how they are scored."""

    task: str
    measure: str
    lists: Sequence[PassageList]
    score: ListScores


@dataclass
class _Found:
    """What was measured, in the order of temperatures and tasks, and sentences about it."""

    runs: list[TaskRuns] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tables(self) -> list[LayoutTable]:
        return [spread_table(self.runs, self.notes), numbers_table(self.runs)]


@dataclass(frozen=True)
class PermutationFigures:
    """``task`` of ``conf/experiment/lists/psc_figures.yaml`` (paper 003, Figures 3, 5 and 6).

    All shuffles of a task's lists are ranked once for each temperature; everything else is made of these rankings.
    Whole lists are shuffled: lists longer than the window are permuted around the windows, not inside each of them.

    Attributes:
        aggregators: by any name, nodes of ``conf/permutation/aggregator``; the first is what others compare with.
        tasks: sorting tasks, of :data:`~backpack_rank.pipelines.sorting_task.TASKS`, and names of ``collections``.
        collections: by name, nodes of ``conf/data``.
        files: folder of the published sorting lists; None draws lists of mathsort and wordsort.
        number: lists of each task at most.
        size: items of sorting lists that are drawn.
        depth: candidates of each query of a collection; None: as many as the window holds.
        permutations: m, shuffles of each list.
        numbers: k, of aggregated rankings; m is one of them in any case.
        temperatures: of sampling; the first is what others compare with.
        seed: of shuffles, and of sorting lists that are drawn.
    """

    aggregators: Mapping[str, Any]
    tasks: Sequence[str] = tuple(TASKS)
    collections: Mapping[str, Any] = field(default_factory=dict)
    files: str | None = None
    number: int = 100
    size: int = 10
    depth: int | None = None
    permutations: int = 20
    numbers: Sequence[int] = NUMBERS
    temperatures: Sequence[float | None] = (0.0, 0.25, 0.5, 0.75)
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.tasks, str):
            object.__setattr__(self, "tasks", (self.tasks,))
        check_whole(self, ("number", "permutations"))
        check_whole(self, ("size", "depth"), 2, ("depth",))
        known = [*TASKS, *self.collections]
        if unknown := [name for name in self.tasks if name not in known]:
            raise ValueError(f"task.tasks: {unknown[0]!r} is none of {', '.join(known)}")
        if any(not isinstance(k, int) or not 1 <= k <= self.permutations for k in self.numbers):
            allowed = f"whole numbers from 1 to task.permutations={self.permutations}"
            raise ValueError(f"task.numbers={list(self.numbers)} must be {allowed}")
        for name in ("tasks", "temperatures", "aggregators"):
            given = list(getattr(self, name))
            if not given or len(set(given)) < len(given):
                raise ValueError(f"task.{name}={given}: name at least one, each once")

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Rank the shuffles, write pictures, tables and ``report.html``, and print the tables.

        Rankings are kept in ``rankings.jsonl``; a job with the same folder and options goes on from there.

        Raises:
            ValueError: no listwise ranker, an option that shuffled lists have no use for, or a task whose lists can
                only be read.
        """
        if config.get("listwise") is None:
            raise ValueError("these figures are of a listwise ranker: add listwise=trained, hugging_face or openai")
        if config.get("permutation") is not None:
            raise ValueError("permutation=... would shuffle the shuffles again: leave it out; see task.permutations")
        if config.listwise.input.order != "first_stage":
            order = config.listwise.input.order
            raise ValueError(f"listwise.input.order={order} has no effect here, where lists are shuffled: leave it out")
        aggregators = [instantiate(node, _convert_="all") for node in self.aggregators.values()]
        save_config(folder, config)
        found, rankers = _Found(), ListwiseRankers()
        given: list[_Lists] = []
        for temperature in self.temperatures:
            own = with_options(config, {"listwise": {"ranker": {"temperature": temperature}}})
            ranker = rankers.ranker(own)
            given = given or [self._lists(task, config, getattr(ranker, "size", None)) for task in self.tasks]
            kept = KeptRanker(ranker, RankedLists(folder / RANKINGS_FILE, _settings(own)), own.listwise.lists_per_call)
            for one in given:
                self._measure(kept, one, temperature, aggregators, found)
            found.notes.append(f"{ranker.name}: {usage_in_words(ranker.usage)}.")
            tables = self._write(folder, found, config)  # what there is so far
        if not quiet:
            for table in tables:
                print_layout_table(table)
            print(f"Report: {folder / 'report.html'}")

    def _lists(self, task: str, config: DictConfig, window: int | None) -> _Lists:
        if task in TASKS:
            items = sorting_lists(task, config, self.files, self.number, self.size, self.seed)
            return _Lists(TASKS[task], TAU, [one.passages for one in items], tau_of([one.levels for one in items]))
        data = OmegaConf.create(self.collections[task])
        test = load_split(data, "test")
        depth = self.depth or window or _DEPTH
        lists = lists_of(candidates_of(data, "test", test)[1], test, depth, judged=True)
        lists = [one for one in lists if len(one) > 1][: self.number]
        return _Lists(task, NDCG, lists, ndcg_of(lists, test.qrels))

    def _measure(
        self,
        ranker: ListwiseRanker,
        given: _Lists,
        temperature: float | None,
        aggregators: Sequence[Aggregator],
        found: _Found,
    ) -> None:
        shuffled = rank_shuffled(ranker, given.lists, self.permutations, self.seed)
        study = study_aggregation(shuffled, given.score, aggregators, [*self.numbers, self.permutations])
        aggregates = {name: tuple(study.by_number(name).tolist()) for name in study.aggregates}
        runs = TaskRuns(
            *(given.task, given.measure, temperature, len(given.lists)),
            *(tuple(study.runs.tolist()), study.numbers, aggregates),
        )
        found.runs.append(runs)
        log.info("%s, %s: %s %s", ranker.name, given.task, given.measure, aggregates)
        if temperature == self.temperatures[0]:
            sizes = sorted({len(one) for one in given.lists})
            many = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
            found.notes.append(f"{given.task}: {len(given.lists)} lists of {many}.")
        if study.not_optimal:
            found.notes.append(f"{given.task}: {study.not_optimal} aggregates are not proven to be optimal.")

    def _write(self, folder: Path, found: _Found, config: DictConfig) -> list[LayoutTable]:
        """Write tables, pictures and the page; returns the tables."""
        tables = found.tables()
        for table in tables:
            write_layout_table(folder, table)
        title = "Permutation self-consistency: single runs and aggregates"
        pictures = write_run_spread(folder, found.runs)
        page = ListPage(title, tuple(tables), pictures, configuration=OmegaConf.to_yaml(config))
        write_list_page(folder / "report.html", page)
        return tables


def _settings(config: DictConfig) -> dict[str, Any]:
    """All that a ranking depends on but its list."""
    parts = {part: config.get(part) for part in ("listwise", "calibration", "pairwise")}
    resolved = {name: OmegaConf.to_container(p, resolve=True) if p is not None else None for name, p in parts.items()}
    return {"checkpoint": str(listwise_checkpoint(config)), **resolved}
