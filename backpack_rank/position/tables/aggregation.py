"""``evaluate.py experiment=lists/psc_figures``: single runs and their aggregates.

They are compared by number of rankings, sampling temperature and aggregator.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from backpack_rank.checks import located
from backpack_rank.constructors import Count, Length, NonNegative, PathText, Seed
from backpack_rank.experiments.grid import fill_grid, show
from backpack_rank.pipelines.chosen_data import dataset_of, dataset_with
from backpack_rank.pipelines.nodes import build
from backpack_rank.pipelines.option_types import Names, Rows
from backpack_rank.pipelines.settings import EvaluationSettings, check_positive_ints
from backpack_rank.position.aggregation.run_spread import (
    AggregationScores,
    findings,
    write_run_spread,
)
from backpack_rank.position.aggregation.study import (
    NUMBERS,
    AggregationStudy,
    ListScores,
    ndcg_of,
    study_aggregation,
    tau_of,
)
from backpack_rank.position.lists.evaluate import ListTask, listwise_with, needed_listwise
from backpack_rank.position.lists.list_runs import lists_of
from backpack_rank.position.lists.page import ListPage, write_list_page
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import rank_shuffled
from backpack_rank.position.lists.ranking_cache import CachedRanker, RankingCache
from backpack_rank.position.lists.reranker import RANKINGS_FILE, usage_in_words
from backpack_rank.position.lists.settings import ListwiseSettings, RankerFactory
from backpack_rank.position.lists.sources import ListSize
from backpack_rank.position.tables.sorting import TASKS, sorting_lists
from backpack_rank.reporting.paper_layout import ColumnKey, Figure, PaperRow, lay_out
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

log = logging.getLogger(__name__)
TAU, NDCG = "Kendall's tau", "nDCG@10"
PUBLISHED = "psc_figures"
"""What the paper says of these figures, of which it prints no numbers."""
QUARTILES = ("minimum", "first_quartile", "median", "third_quartile", "maximum")
_DEPTH = 20


@dataclass(frozen=True)
class _Lists:
    """Lists of a task and how they are scored."""

    task: str
    measure: str
    lists: Sequence[PassageList]
    score: ListScores


@dataclass(frozen=True)
class PermutationFigures(ListTask):
    """Shows what permutation self-consistency gains (Tang et al., Figures 3, 5 and 6).

    It is the ``task`` of ``conf/experiment/lists/psc_figures.yaml``.

    All shuffles of a task's lists are ranked once for each temperature; everything else is made of
    these rankings. Lists longer than the window are shuffled as a list, and not window by window.

    Attributes:
        aggregators: by any name, nodes of ``conf/permutation/aggregator``; the first is what others
            compare with.
        tasks: sorting tasks, of :data:`~backpack_rank.position.tables.sorting.TASKS`, and names of
            ``collections``.
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
        for name in self.tasks:
            if name not in known:
                raise ValueError(f"task.tasks: {name!r} is none of {', '.join(known)}")
        for k in self.numbers:
            if not isinstance(k, int) or not 1 <= k <= self.permutations:
                raise ValueError(
                    f"task.numbers={list(self.numbers)} must be whole numbers from 1 to "
                    f"task.permutations={self.permutations}"
                )
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

        Rankings are kept in ``rankings.jsonl``; a job with the same folder and options goes on from
        there.

        Raises:
            ValueError: no listwise ranker, an option that shuffled lists have no use for, or a task
                whose lists can only be read.
        """
        listwise = needed_listwise(settings, "these figures are of a listwise ranker")
        if listwise.options["permutation"] is not None:
            raise ValueError(
                "permutation=... would shuffle the shuffles again: leave it out; see "
                "task.permutations"
            )
        if listwise.order != "first_stage":
            raise ValueError(
                f"listwise.input.order={listwise.order} has no effect here, where lists are "
                "shuffled: leave it out"
            )
        self.check(settings)
        aggregators = []
        for name, node in self.aggregators.items():
            aggregators.append(build(node, f"task.aggregators.{name}"))
        settings.save(folder)
        # In the order of temperatures and tasks, as the tables show them.
        scores: list[AggregationScores] = []
        notes: list[str] = []
        rankers = RankerFactory()
        lists_of_task: dict[str, _Lists] = {}

        def prepare(temperature: float | None) -> CachedRanker:
            chosen = listwise_with(settings, {"listwise": {"ranker": {"temperature": temperature}}})
            ranker = rankers.build(chosen)
            # Lists may be as long as the ranker's window, so they wait for the first ranker.
            window = getattr(ranker, "size", None)
            for task in self.tasks:
                if task not in lists_of_task:
                    lists_of_task[task] = self._lists(task, settings, window)
            cache = RankingCache(folder / RANKINGS_FILE, _settings(chosen))
            return CachedRanker(ranker, cache, chosen.lists_per_call)

        def measure(temperature: float | None, ranker: CachedRanker, task: str, _: None) -> None:
            given = lists_of_task[task]
            shuffled = rank_shuffled(ranker, given.lists, self.permutations, self.seed)
            numbers = [*self.numbers, self.permutations]
            study = study_aggregation(shuffled, given.score, aggregators, numbers)
            scores.append(_scores(given, temperature, study))
            log.info("%s, %s: %s %s", ranker.name, given.task, given.measure, scores[-1].aggregates)
            if temperature == self.temperatures[0]:
                # The lists are the same at all temperatures.
                notes.append(f"{given.task}: {len(given.lists)} lists of {_sizes(given.lists)}.")
            if study.not_optimal:
                notes.append(
                    f"{given.task}: {study.not_optimal} aggregates are not proven to be optimal."
                )

        def write(ranker: CachedRanker) -> None:
            notes.append(f"{ranker.name}: {usage_in_words(ranker.usage)}.")
            self._write(folder, scores, notes, settings.text)

        fill_grid(
            {temperature: temperature for temperature in self.temperatures},
            dict.fromkeys(self.tasks),
            prepare=prepare,
            measure=measure,
            after_each=write,
        )
        show(_tables(scores, notes), f"Report: {folder / 'report.html'}", quiet)

    def _lists(self, task: str, settings: EvaluationSettings, window: int | None) -> _Lists:
        if task in TASKS:
            items = sorting_lists(task, settings, self.files, self.number, self.size, self.seed)
            lists = [item.passages for item in items]
            score = tau_of([item.relevance_levels for item in items])
            return _Lists(TASKS[task], TAU, lists, score)
        dataset = dataset_of(self.collections[task])
        test = dataset.split("test")
        depth = self.depth or window or _DEPTH
        _, candidates = dataset.candidates("test", test)
        lists = lists_of(candidates, test, depth, judged=True)
        # A list of one passage cannot be shuffled.
        lists = [passages for passages in lists if len(passages) > 1]
        lists = lists[: self.number]
        return _Lists(task, NDCG, lists, ndcg_of(lists, test.qrels))

    def _write(
        self,
        folder: Path,
        scores: Sequence[AggregationScores],
        notes: Sequence[str],
        configuration: str,
    ) -> None:
        """Write tables, pictures and the page of what there is so far."""
        tables = _tables(scores, notes)
        for table in tables:
            write_table(folder, table)
        page = ListPage(
            title="Permutation self-consistency: single runs and aggregates",
            tables=tuple(tables),
            pictures=write_run_spread(folder, scores),
            configuration=configuration,
        )
        write_list_page(folder / "report.html", page)


def _tables(scores: Sequence[AggregationScores], notes: Sequence[str]) -> list[Table]:
    return [spread_table(scores, notes), numbers_table(scores)]


def spread_table(scores: Sequence[AggregationScores], notes: Sequence[str] = ()) -> Table:
    """How far single runs spread, and what each aggregator makes of all of them.

    Rows are tasks, such as ``WordSort | Kendall's tau``, and sections are temperatures.
    """
    rows = []
    for task_scores in scores:
        temperature = task_scores.temperature
        quartiles = np.quantile(task_scores.singles, [0, 0.25, 0.5, 0.75, 1]).tolist()
        low, first, middle, third, high = quartiles
        names = list(task_scores.aggregates)
        # Rounded as in print, so that all that read like the best aggregate are bold.
        hundredths = {name: round(100 * task_scores.aggregate(name), 2) for name in names}
        figures: dict[ColumnKey, Figure | float] = {
            ("single runs", "min"): low,
            ("single runs", "median"): middle,
            ("single runs", "max"): high,
            ("single runs", "IQR"): third - first,
        }
        for name in names:
            figures["aggregate", name] = Figure(
                task_scores.aggregate(name),
                bold=hundredths[name] == max(hundredths.values()),
                record={"aggregator": name, "beaten": task_scores.share_beaten(name)},
            )
        figures["", "beats"] = task_scores.share_beaten(task_scores.main)
        record = {
            "temperature": temperature,
            "lists": task_scores.lists,
            "runs": len(task_scores.singles),
            **dict(zip(QUARTILES, quartiles, strict=True)),
            "mean": task_scores.mean,
        }
        heading = "" if temperature is None else f"Sampling temperature {temperature:g}"
        labels = (task_scores.task, task_scores.measure)
        rows.append(PaperRow(labels, figures, section=heading, record=record))
    paper = published(PUBLISHED)
    facts = {"paper": paper.paper, **paper.says, **findings(scores)}
    return lay_out("single_runs", rows, facts=facts, notes=notes)


def numbers_table(scores: Sequence[AggregationScores]) -> Table:
    """How many rankings are worth aggregating.

    The table has the first aggregator at the first temperature; the CSV file has all aggregators
    at all temperatures.
    """
    main = scores[0].main
    rows = []
    records: list[tuple[Any, ...]] = []
    for task_scores in scores:
        labels = (task_scores.task, task_scores.measure)
        if task_scores.temperature == scores[0].temperature:
            figures: dict[ColumnKey, float] = {("", "single"): task_scores.mean}
            of_main = task_scores.aggregates[main]
            for number, score in zip(task_scores.numbers, of_main, strict=True):
                figures["aggregated rankings", str(number)] = score
            rows.append(PaperRow(labels, figures))
        about = (*labels, task_scores.temperature, task_scores.lists)
        for name, aggregates in task_scores.aggregates.items():
            for number, score in zip(task_scores.numbers, aggregates, strict=True):
                # NaN, which is no share, where an aggregate is without gain.
                share = task_scores.share_of_gain(score, name)
                records.append((*about, name, number, score, share))
    facts = {"paper": published(PUBLISHED).paper, "main": main}
    return lay_out("aggregated_rankings", rows, facts=facts, records=records)


def _scores(given: _Lists, temperature: float | None, study: AggregationStudy) -> AggregationScores:
    aggregates = {name: tuple(study.by_number(name).tolist()) for name in study.aggregates}
    return AggregationScores(
        task=given.task,
        measure=given.measure,
        temperature=temperature,
        lists=len(given.lists),
        singles=tuple(study.runs.tolist()),
        numbers=study.numbers,
        aggregates=aggregates,
    )


def _sizes(lists: Sequence[PassageList]) -> str:
    """``10``, or ``8 to 10``."""
    sizes = list(map(len, lists))
    if min(sizes) == max(sizes):
        return f"{sizes[0]}"
    return f"{min(sizes)} to {max(sizes)}"


def _settings(listwise: ListwiseSettings) -> dict[str, Any]:
    """All that a ranking depends on but its list."""
    return {"checkpoint": str(listwise.trained()), **listwise.options}
