"""What an evaluation does: measure a ranker under alpha, measure runs, or what an experiment or a part adds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import DictConfig

from backpack_rank.parts import evaluations, imported
from backpack_rank.pipelines.nodes import build

if TYPE_CHECKING:
    from backpack_rank.evaluation.results import Report
    from backpack_rank.pipelines.settings import EvaluationSettings


class Task:
    """``task`` of ``conf/evaluate.yaml``; experiments name their own.

    Attributes:
        takes: options of parts, such as ``listwise``, that it reads; others are refused beside it.
        finds_ranker: whether it ranks with ``checkpoint=``, or the ranker that was trained last.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    finds_ranker: ClassVar[bool] = True

    def check(self, settings: EvaluationSettings) -> None:
        """Raise ``ValueError`` for a wrong option, before anything is loaded; :meth:`run` does so first."""

    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report | None:
        """Do it, and write everything to the folder.

        Args:
            settings: of the evaluation.
            folder: gets the results.
            quiet: print no tables and write no page.

        Returns:
            The measures; None where nothing is measured.
        """
        raise NotImplementedError


def task_of(config: DictConfig) -> Task:
    """The task of a configuration: that of its experiment, of a part one of whose options is given, or the core's.

    Raises:
        ValueError: an option of a part that the task would ignore.
    """
    task: Any = build(config.task, "task")
    given = [option for option in evaluations() if config.get(option) is not None]
    if given and not _is_experiment(config):
        task = imported(evaluations()[given[0]])()
    for option in given:
        if option not in task.takes:
            raise ValueError(f"{option}=... does nothing to this experiment: leave it out")
    assert isinstance(task, Task)
    return task


def _is_experiment(config: DictConfig) -> bool:
    return not str(config.task["_target_"]).endswith(".Evaluation")
