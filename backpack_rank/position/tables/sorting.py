"""``evaluate.py experiment=lists/psc_table3`` and ``psc_table8``: sorting tasks.

By several ways of ranking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from backpack_rank.checks import located
from backpack_rank.constructors import Count, Length, OneOf, PathText, Seed
from backpack_rank.data.public.names import how_to_get
from backpack_rank.experiments.grid import fill_grid, show
from backpack_rank.pipelines.option_types import Rows
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.position.lists.evaluate import (
    ListTask,
    check_rows,
    listwise_with,
    needed_listwise,
)
from backpack_rank.position.lists.passages import ListwiseExample
from backpack_rank.position.lists.reranker import remarks, usage_in_words
from backpack_rank.position.lists.settings import ListwiseSettings, RankerFactory
from backpack_rank.position.lists.sorting_scores import SortingScores, sorting_scores
from backpack_rank.position.lists.sorting_tasks import MATHSORT, READERS
from backpack_rank.position.lists.sources import ListSize, ListwiseDataConfig
from backpack_rank.position.lists.windows import SlidingWindows
from backpack_rank.reporting.paper_layout import Figure, PaperRow, lay_out
from backpack_rank.reporting.published import published
from backpack_rank.reporting.table import Table
from backpack_rank.reporting.writers import write_table

TASKS: Mapping[str, str] = {
    "mathsort": "MathSort",
    "wordsort": "WordSort",
    "gsm8ksort": "GSM8KSort",
}
"""The paper's names of the tasks."""
_ENDINGS = {"mathsort": "tsv", "wordsort": "tsv", "gsm8ksort": "jsonl"}


@dataclass(frozen=True)
class SortingTask(ListTask):
    """Shows how well ways of ranking sort lists (Tang et al., section 3.1).

    It is the ``task`` of ``conf/experiment/lists/psc_table3.yaml`` and ``psc_table8.yaml``.

    Attributes:
        published: name of the published table, which says whether ways are columns (Table 3) or
            rows (Table 8).
        ways: of ranking, by name: options that differ from those of the command line, such as
            ``permutation``.
        tasks: of :data:`TASKS`.
        files: folder with the published ``mathsort.tsv``, ``wordsort.tsv`` and ``gsm8ksort.jsonl``;
            None draws lists of the first two.
        number: lists of each task at most.
        size: items of lists that are drawn.
        seed: of lists that are drawn.
        options: parts of the configuration that ways refer to by interpolation.
    """

    published: PathText
    ways: Rows
    tasks: Annotated[Sequence[Annotated[str, OneOf(tuple(TASKS))]], Length(1)] = tuple(TASKS)
    files: PathText | None = None
    number: Count = 100
    size: ListSize = 10
    seed: Seed = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with located("task.published"):
            sorting_table(self.published, {})  # before anything is ranked
        if not self.ways:
            raise ValueError("task.ways is empty: name a way of ranking, such as {Orig.: {}}")
        if isinstance(self.tasks, str):
            object.__setattr__(self, "tasks", (self.tasks,))
        for name in self.tasks:
            if name not in TASKS:
                raise ValueError(f"task.tasks: {name!r} is none of {', '.join(TASKS)}")

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option of a way."""
        check_rows(settings, self.ways, "task.ways")

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> None:
        """Rank the lists, print Kendall's tau beside the published figures, and write the table.

        Raises:
            ValueError: no listwise ranker, or a task whose lists can only be read.
        """
        listwise = needed_listwise(settings, "sorting needs a listwise ranker")
        self.check(settings)
        settings.save(folder)
        lists_of_task = {}
        for task in self.tasks:
            lists_of_task[task] = sorting_lists(
                task, settings, self.files, self.number, self.size, self.seed
            )
        notes: list[str] = []
        rankers = RankerFactory()
        plain = rankers.build(listwise)
        # A way of ranking may do without windows, so the model is named without them.
        name = plain.ranker.name if isinstance(plain, SlidingWindows) else plain.name

        def measure(
            way: str, chosen: ListwiseSettings, task: str, items: Sequence[ListwiseExample]
        ) -> Figure:
            # A ranker for each task counts what the task alone costs; the model stays loaded.
            ranker = rankers.build(chosen)
            rankings = ranker.rank([item.passages for item in items])
            scores = sorting_scores(rankings, [item.relevance_levels for item in items])
            sentences = "; ".join([usage_in_words(ranker.usage), *remarks(ranker)])
            notes.append(f"{TASKS[task]}, {way}: {len(items)} lists; {sentences}.")
            return sorting_figure(scores)

        cells = fill_grid(
            self.ways,
            lists_of_task,
            prepare=lambda options: listwise_with(settings, options),
            measure=measure,
        )
        figures = {(TASKS[task], way): figure for (way, task), figure in cells.items()}
        table = sorting_table(self.published, {name: figures}, notes)
        write_table(folder, table)
        show([table], f"Written to {folder}", quiet)


def sorting_figure(scores: SortingScores) -> Figure:
    """Kendall's tau, with the share of lists without a mistake in the CSV file."""
    return Figure(scores.tau, record={"exact": scores.exact_share})


def sorting_table(
    name: str,
    figures_by_model: Mapping[str, Mapping[tuple[str, str], Figure]],
    notes: Sequence[str] = (),
) -> Table:
    """Kendall's tau times 100 on sorting tasks, above what a paper prints.

    >>> table = sorting_table("psc_table3", {"my model": {("MathSort", "PSC"): Figure(0.5)}})
    >>> table.groups[0]
    Group(name='MathSort', columns=('Orig.', 'PSC'))
    >>> [cell.text for cell in table.rows[0].cells][:2]
    ['-', '50.0']

    Args:
        name: of the published table. Where its columns are ``TASK WAY`` (Table 3), a row is a
            model; where they are tasks (Table 8), a row is ``MODEL (WAY)``.
        figures_by_model: by task and by way of ranking, such as ``Orig.``, ``PSC`` and ``PRP``.
        notes: further sentences.

    Raises:
        ValueError: rows of the published table have more than one label.
    """
    paper = published(name)
    if any(len(labels) > 1 for labels in paper.rows):
        raise ValueError(
            f"{name}: rows of a table of sorting tasks must have one label, 'model' or 'model "
            "(way)'"
        )
    if all(" " in column for column in paper.columns):
        rows = [PaperRow((model,), figures) for model, figures in figures_by_model.items()]
        return lay_out("sorting", rows, paper, notes=notes)
    rows = []
    for model, figures in figures_by_model.items():
        for way in dict.fromkeys(way for _, way in figures):
            of_way = {("", task): figures[task, way] for task, other in figures if other == way}
            record = {"model": model, "kind": way}
            rows.append(PaperRow((f"{model} ({way})",), of_way, record=record))
    return lay_out("sorting_by_method", rows, paper, notes=notes)


def sorting_lists(
    task: str,
    settings: EvaluationSettings,
    files: str | None,
    number: int,
    size: int = 10,
    seed: int = 0,
) -> list[ListwiseExample]:
    """The lists of a sorting task: published ones, or drawn ones without ``files``.

    Raises:
        FileNotFoundError: the file of published lists is missing.
        ValueError: a task whose lists can only be read; words are to be drawn, and no data has been
            chosen.
    """
    if files is not None:
        path = Path(files).expanduser() / f"{task}.{_ENDINGS[task]}"
        if not path.is_file():
            raise FileNotFoundError(f"task.files: there is no file {path}{how_to_get(path)}")
        return READERS[task](path)[:number]
    if task == "gsm8ksort":
        raise ValueError(
            "gsm8ksort is read from its file, not drawn: give task.files=FOLDER, or leave it out"
        )
    # Expressions need no data; words are those of a collection.
    dataset = settings.chosen_dataset if task == MATHSORT else settings.needed_dataset()
    config = ListwiseDataConfig(task, size, number, held_out=number, seed=seed)
    return config.held_out_lists(dataset)
