"""``evaluate.py experiment=lists/psc_table3``: sorting tasks, ranked once and by permutation self-consistency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from backpack_rank.data.ordered_lists import OrderedList
from backpack_rank.data.sorting import MATHSORT, READERS
from backpack_rank.pipelines.common import chosen_data, needed_data, save_config
from backpack_rank.pipelines.list_sources import ListSettings
from backpack_rank.pipelines.list_tables import with_options
from backpack_rank.pipelines.listwise import ListwiseRankers, usage_in_words
from backpack_rank.position.sorting_scores import sorting_scores
from backpack_rank.reporting.layout import print_layout_table, write_layout_table
from backpack_rank.reporting.list_bias_tables import Sorted, SortingFigures, sorting_table

TASKS: Mapping[str, str] = {"mathsort": "MathSort", "wordsort": "WordSort", "gsm8ksort": "GSM8KSort"}
"""The paper's names of the tasks."""
_ENDINGS = {"mathsort": "tsv", "wordsort": "tsv", "gsm8ksort": "jsonl"}


@dataclass(frozen=True)
class SortingTask:
    """``task`` of ``conf/experiment/lists/psc_table3.yaml`` (paper 003, section 3.1 and Table 3).

    Attributes:
        psc: options of the second column, for example ``permutation``.
        tasks: of :data:`TASKS`.
        files: folder with the published ``mathsort.tsv``, ``wordsort.tsv`` and ``gsm8ksort.jsonl``; None draws lists of
            the first two.
        number: lists of each task at most.
        size: items of lists that are drawn.
        seed: of lists that are drawn.
        options: parts of the configuration that others refer to; not read here.
    """

    psc: Mapping[str, Any]
    tasks: Sequence[str] = tuple(TASKS)
    files: str | None = None
    number: int = 100
    size: int = 10
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.tasks, str):
            object.__setattr__(self, "tasks", (self.tasks,))
        for name in self.tasks:
            if name not in TASKS:
                raise ValueError(f"task.tasks: {name!r} is none of {', '.join(TASKS)}")

    def run(self, config: DictConfig, folder: Path, quiet: bool = False) -> None:
        """Rank the lists, print Kendall's tau beside the published figures, and write the table.

        Raises:
            ValueError: no listwise ranker, or a task whose lists can only be read.
        """
        if config.get("listwise") is None:
            raise ValueError("sorting needs a listwise ranker: add listwise=trained, hugging_face or openai")
        save_config(folder, config)
        ways = {"Orig.": config, "PSC": with_options(config, self.psc)}
        found: dict[tuple[str, str], Sorted] = {}
        names: dict[str, str] = {}
        notes, rankers = [], ListwiseRankers()
        for task in self.tasks:
            items = self._lists(task, config)
            lists, targets = [item.passages for item in items], [item.levels for item in items]
            for way, own in ways.items():
                ranker = rankers.ranker(own)
                names[way] = ranker.name
                scores = sorting_scores(ranker.rank(lists), targets)
                found[TASKS[task], way] = Sorted(scores.tau, scores.exact_share)
                notes.append(f"{TASKS[task]}, {way}: {len(items)} lists; {usage_in_words(ranker.usage)}.")
        table = sorting_table([SortingFigures(names["Orig."], found)], notes)
        write_layout_table(folder, table)
        if not quiet:
            print_layout_table(table)
            print(f"Written to {folder}")

    def _lists(self, task: str, config: DictConfig) -> list[OrderedList]:
        if self.files is not None:
            return READERS[task](Path(self.files).expanduser() / f"{task}.{_ENDINGS[task]}")[: self.number]
        if task == "gsm8ksort":
            raise ValueError("gsm8ksort is read from its file, not drawn: give task.files=FOLDER, or leave it out")
        data = config if task == MATHSORT and chosen_data(config) is None else needed_data(config)
        return ListSettings(task, self.size, self.number, held_out=self.number, seed=self.seed).held_out_lists(data)
