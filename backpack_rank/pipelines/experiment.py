"""``experiment=...``: a table or figure of a paper, or a study of a ranker."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from backpack_rank.evaluation.results import Report
from backpack_rank.pipelines.nodes import build, constructor_of
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.tasks import EvaluationTask, SavedOptions

_NOT_FOR_EXPERIMENTS = ("alpha", "budget")
"""Options of the settings that experiments have of their own or not at all."""


class Experiment(ABC):
    """The base of what a file of ``conf/experiment`` names as ``task``, with its options below it.

    Attributes:
        uses: options of parts, such as ``listwise``, that it reads; others are refused beside it.
        ignores: options of :class:`EvaluationSettings` that it does not read, refused beside it
            too.
        finds_ranker: whether it ranks with ``checkpoint=``, or the ranker that was trained last.
    """

    uses: ClassVar[tuple[str, ...]] = ()
    ignores: ClassVar[tuple[str, ...]] = ()
    finds_ranker: ClassVar[bool] = True

    def check(self, settings: EvaluationSettings) -> None:  # noqa: B027  many have nothing more to look at
        """Raise ``ValueError`` for a wrong option, before anything is loaded.

        :meth:`run` does so first.
        """

    @abstractmethod
    def run(self, settings: EvaluationSettings, folder: Path, quiet: bool = False) -> Report | None:
        """Do it, and write everything to the folder.

        Args:
            settings: rankers, data and measures that the options ask for.
            folder: gets the results.
            quiet: print no tables and write no page.

        Returns:
            The measures; None where nothing is measured.
        """


class ExperimentTask(EvaluationTask):
    """Runs what a file of ``conf/experiment`` names; its options are below ``task``."""

    chosen_by: ClassVar[str] = "this experiment"
    # Some experiments swap nothing, so swap=false asks them for nothing else.
    without: ClassVar[Mapping[str, Any]] = {"swap": False}

    def __init__(self, *, saved: SavedOptions, task: Mapping[str, Any]) -> None:
        """
        Args:
            saved: all options; the experiment uses those that :meth:`takes` names through its
                settings.
            task: node of the experiment.
        """
        self.saved = saved
        self.experiment: Experiment = build(task, "task")
        self.settings = EvaluationSettings.of_options(saved)

    @classmethod
    def takes(cls, values: Mapping[str, Any]) -> Collection[str]:
        """Options of :class:`EvaluationSettings`, and those of parts that the experiment names."""
        kind = constructor_of(values["task"], "task")
        of_settings = inspect.signature(EvaluationSettings).parameters
        unused = {*_NOT_FOR_EXPERIMENTS, *kind.ignores}
        return [*(name for name in of_settings if name not in unused), *kind.uses]

    @classmethod
    def advice(cls, option: str) -> str:
        if option == "alpha":
            return "leave it out, or give task.alphas=[1,0.5] where it has some"
        return "leave it out"

    def check(self) -> None:
        self.experiment.check(self.settings)

    def find_ranker(self) -> Path | str | None:
        return self.settings.find_ranker() if self.experiment.finds_ranker else None

    def run(self, folder: Path, quiet: bool = False) -> Report | None:
        """Run the experiment, which writes everything to the folder."""
        return self.experiment.run(self.settings, folder, quiet)
