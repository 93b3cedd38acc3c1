"""``evaluate.py experiment=lists/psc_figures``: single runs, numbers of rankings, sampling temperature, aggregators."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from backpack_rank.checks import located
from backpack_rank.constructors import Count, Length, NonNegative, PathText, Seed
from backpack_rank.experiments.grid import show
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.option_types import Names, Rows
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints, dataset_of, dataset_with
from backpack_rank.position.aggregation.aggregate import Aggregator
from backpack_rank.position.aggregation.run_spread import AggregationScores, write_run_spread
from backpack_rank.position.aggregation.study import NUMBERS, ListScores, ndcg_of, study_aggregation, tau_of
from backpack_rank.position.lists.base import ListwiseRanker
from backpack_rank.position.lists.evaluate import ListTask, listwise_with, needed_listwise
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import rank_shuffled
from backpack_rank.position.lists.ranking_cache import CachedRanker, RankingCache
from backpack_rank.position.lists.reranker import RANKINGS_FILE, usage_in_words
from backpack_rank.position.lists.settings import ListwiseSettings, RankerFactory
from backpack_rank.position.lists.sources import ListSize
from backpack_rank.position.tables.list_tables import numbers_table, spread_table
from backpack_rank.position.tables.sorting import TASKS, sorting_lists
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

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
class _AggregationResults:
    """What was measured, in the order of temperatures and tasks, and sentences about it."""

    runs: list[AggregationScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        return [spread_table(self.runs, self.notes), numbers_table(self.runs)]


@dataclass(frozen=True)
class PermutationFigures(ListTask):
    """``task`` of ``conf/experiment/lists/psc_figures.yaml`` (Tang et al., Figures 3, 5 and 6).

    All shuffles of a task's lists are ranked once for each temperature; everything else is made of these rankings.
    Whole lists are shuffled: lists longer than the window are permuted around the windows, not inside each of them.

    Attributes:
        aggregators: by any name, nodes of ``conf/permutation/aggregator``; the first is what others compare with.
        tasks: sorting tasks, of :data:`~backpack_rank.position.tables.sorting.TASKS`, and names of ``collections``.
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

    aggregators: Rows
    tasks: Names = tuple(TASKS)
    collections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: PathText | None = None
    number: Count = 100
    size: ListSize = 10
    depth: ListSize | None = None
    permutations: Count = 20
    numbers: Annotated[Sequence[Count], Length(1)] = NUMBERS
    temperatures: Annotated[Sequence[NonNegative | None], Length(1)] = (0.0, 0.25, 0.5, 0.75)
    seed: Seed = 0

    def __post_init__(self) -> None:
        if isinstance(self.tasks, str):
            object.__setattr__(self, "tasks", (self.tasks,))
        check_positive_ints(self, ("number", "permutations"))
        check_positive_ints(self, ("size", "depth"), 2, ("depth",))
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

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of an aggregator or of a collection."""
        for name, node in self.aggregators.items():
            build(node, f"task.aggregators.{name}")
        for name, node in self.collections.items():
            with located(f"task.collections.{name}"):
                dataset_with(node, {})

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank the shuffles, write pictures, tables and ``report.html``, and print the tables.

        Rankings are kept in ``rankings.jsonl``; a job with the same folder and options goes on from there.

        Raises:
            ValueError: no listwise ranker, an option that shuffled lists have no use for, or a task whose lists can
                only be read.
        """
        listwise = needed_listwise(settings, "these figures are of a listwise ranker")
        if listwise.options["permutation"] is not None:
            raise ValueError("permutation=... would shuffle the shuffles again: leave it out; see task.permutations")
        if listwise.order != "first_stage":
            raise ValueError(
                f"listwise.input.order={listwise.order} has no effect here, where lists are shuffled: leave it out"
            )
        self.check(settings)
        aggregators = [build(node, f"task.aggregators.{name}") for name, node in self.aggregators.items()]
        settings.save(folder)
        found, rankers = _AggregationResults(), RankerFactory()
        given: list[_Lists] = []
        for temperature in self.temperatures:
            own = listwise_with(settings, {"listwise": {"ranker": {"temperature": temperature}}})
            ranker = rankers.build(own)
            given = given or [self._lists(task, settings, getattr(ranker, "size", None)) for task in self.tasks]
            kept = CachedRanker(ranker, RankingCache(folder / RANKINGS_FILE, _settings(own)), own.lists_per_call)
            for one in given:
                self._measure(kept, one, temperature, aggregators, found)
            found.notes.append(f"{ranker.name}: {usage_in_words(ranker.usage)}.")
            tables = self._write(folder, found, settings.text)  # what there is so far
        show(tables, f"Report: {folder / 'report.html'}", quiet)

    def _lists(self, task: str, settings: EvaluationSettings, window: int | None) -> _Lists:
        if task in TASKS:
            items = sorting_lists(task, settings, self.files, self.number, self.size, self.seed)
            lists, score = [one.passages for one in items], tau_of([one.relevance_levels for one in items])
            return _Lists(TASKS[task], TAU, lists, score)
        dataset = dataset_of(self.collections[task])
        test = dataset.split("test")
        depth = self.depth or window or _DEPTH
        lists = lists_of(dataset.candidates("test", test)[1], test, depth, judged=True)
        lists = [one for one in lists if len(one) > 1][: self.number]
        return _Lists(task, NDCG, lists, ndcg_of(lists, test.qrels))

    def _measure(
        self,
        ranker: ListwiseRanker,
        given: _Lists,
        temperature: float | None,
        aggregators: Sequence[Aggregator],
        found: _AggregationResults,
    ) -> None:
        shuffled = rank_shuffled(ranker, given.lists, self.permutations, self.seed)
        study = study_aggregation(shuffled, given.score, aggregators, [*self.numbers, self.permutations])
        aggregates = {name: tuple(study.by_number(name).tolist()) for name in study.aggregates}
        about = (given.task, given.measure, temperature, len(given.lists))
        found.runs.append(AggregationScores(*about, tuple(study.runs.tolist()), study.numbers, aggregates))
        log.info("%s, %s: %s %s", ranker.name, given.task, given.measure, aggregates)
        if temperature == self.temperatures[0]:
            sizes = sorted({len(one) for one in given.lists})
            many = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
            found.notes.append(f"{given.task}: {len(given.lists)} lists of {many}.")
        if study.not_optimal:
            found.notes.append(f"{given.task}: {study.not_optimal} aggregates are not proven to be optimal.")

    def _write(self, folder: Path, found: _AggregationResults, configuration: str) -> list[Table]:
        """Write tables, pictures and the page; returns the tables."""
        tables = found.tables()
        for table in tables:
            write_table(folder, table)
        title = "Permutation self-consistency: single runs and aggregates"
        pictures = write_run_spread(folder, found.runs)
        page = ListPage(title, tuple(tables), pictures, configuration=configuration)
        write_list_page(folder / "report.html", page)
        return tables


def _settings(listwise: ListwiseSettings) -> dict[str, Any]:
    """All that a ranking depends on but its list."""
    return {"checkpoint": str(listwise.trained()), **listwise.options}
