"""What an evaluation does: measure a ranker under alpha, measure runs, or what an experiment or a part adds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from omegaconf import DictConfig

from backpack_rank.parts import evaluations, imported
from backpack_rank.pipelines.nodes import build

if TYPE_CHECKING:
    from backpack_rank.evaluation.results import Report
    from backpack_rank.pipelines.settings import EvaluationSettings


class Task(ABC):
    """``task`` of ``conf/evaluate.yaml``; experiments name their own.

    Attributes:
        takes: options of parts, such as ``listwise``, that it reads; others are refused beside it.
        finds_ranker: whether it ranks with ``checkpoint=``, or the ranker that was trained last.
        gives_way: whether an option of a part chooses that part's task in its place.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    finds_ranker: ClassVar[bool] = True
    gives_way: ClassVar[bool] = False

    def check(self, settings: EvaluationSettings) -> None:  # noqa: B027  many tasks have nothing more to look at
        """Raise ``ValueError`` for a wrong option, before anything is loaded; :meth:`run` does so first."""

    @abstractmethod
    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report | None:
        """Do it, and write everything to the folder.

        Args:
            settings: of the evaluation.
            folder: gets the results.
            quiet: print no tables and write no page.

        Returns:
            The measures; None where nothing is measured.
        """


def task_of(config: DictConfig) -> Task:
    """The task of a configuration: that of its experiment, of a part one of whose options is given, or the core's.

    Raises:
        ValueError: an option of a part that the task would ignore.
    """
    task: Task = build(config.task, "task")
    given = [option for option in evaluations() if config.get(option) is not None]
    if given and task.gives_way:
        task = imported(evaluations()[given[0]])()
    for option in given:
        if option not in task.takes:
            raise ValueError(f"{option}=... does nothing to this experiment: leave it out")
    return task
