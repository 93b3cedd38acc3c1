"""What an evaluation does: its options as they are saved, and which of them each task takes.

A task is a class whose constructor names its options, as conf/evaluate.yaml does. Whatever else is
given would do nothing, and :func:`made_task` refuses it by one sentence, which it reads from the
signature.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from backpack_rank.evaluation.results import Report
from backpack_rank.files import read_yaml, resource_folder, write_text
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.nodes import looked_up, made_options, plain_options, yaml_of
from backpack_rank.pipelines.option_types import check_evaluation
from backpack_rank.pipelines.run_folder import CONFIG

_Task = TypeVar("_Task", bound="EvaluationTask")
FOR_ALL = ("task", "output", "resume", "scoring", "cache", "verbose", "objective")
"""Options of where and how, which any task may be given."""
_SAVED = "saved"
"""What a constructor gets beside its options: all of them, to be saved."""


class SavedOptions:
    """Writes down what an evaluation was asked for.

    Attributes:
        values: all options, as plain values.
        looked_up: which options the rows of an experiment look up, by place of the row.
    """

    def __init__(
        self, values: Mapping[str, Any], looked_up: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.values = values
        self.looked_up = looked_up or {}

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SavedOptions:
        """Of an evaluation as composed from ``conf/evaluate.yaml``, each option looked at.

        Raises:
            ValueError: an option that is wrong in itself.
        """
        check_evaluation(config)
        return cls(plain_options(config), looked_up(config, "task"))

    @property
    def text(self) -> str:
        """All options as YAML."""
        return yaml_of(self.values)

    @property
    def lexicon(self) -> str:
        """Words that measures of bias count: a name in ``lexicons/`` or a path."""
        return str(self.values["bias"]["lexicon"])

    def text_of(self, checkpoint: Path | str | None) -> str:
        """The same with the data of a checkpoint, where the options name no data."""
        chosen = ChosenData(self.values.get("data"), self.values.get("first_stage"))
        if checkpoint is None or chosen.dataset is not None:
            return self.text
        data, first_stage = chosen.nodes_of(checkpoint)
        return yaml_of({**self.values, "data": data, "first_stage": first_stage})

    def write(self, folder: str | Path, checkpoint: Path | str | None = None) -> None:
        """Write ``config.yaml``."""
        write_text(Path(folder) / CONFIG, self.text_of(checkpoint))

    def place_of(self, option: str, name: str) -> str:
        """Where a row stands, with the options that it looks up.

        For example ``task.rows.PSC with task.options.psc``.
        """
        place = f"{option}.{name}"
        others = self.looked_up.get(place, ())
        return f"{place} with {', '.join(others)}" if others else place


class EvaluationTask(ABC):
    """What ``evaluate.py`` does: made of the options that its constructor names, checked, then run.

    Attributes:
        saved: all options, for ``config.yaml``.
        chosen_by: what chooses the task on a command line, for the sentence about other options.
        without: options that have this value here whatever is given.
    """

    chosen_by: ClassVar[str]
    without: ClassVar[Mapping[str, Any]] = {}
    saved: SavedOptions

    @classmethod
    def takes(cls, values: Mapping[str, Any]) -> Collection[str]:
        """Names of the options that it uses: those of its constructor."""
        return [name for name in inspect.signature(cls).parameters if name != _SAVED]

    @classmethod
    def advice(cls, option: str) -> str:
        """What to do about an option that does nothing here."""
        return "leave one of them out"

    def check(self) -> None:  # noqa: B027  many tasks have nothing more to look at
        """Refuse what a constructor leaves to be looked at, before anything is loaded.

        Raises ``ValueError`` for it.
        """

    def find_ranker(self) -> Path | str | None:
        """The ranker that it ranks with, of ``checkpoint=``; None for tasks without one."""
        return None

    @abstractmethod
    def run(self, folder: Path, quiet: bool = False) -> Report | None:
        """Do it, and write everything to the folder.

        Args:
            folder: gets the results.
            quiet: print no tables and write no page.

        Returns:
            The measures; None where nothing is measured.
        """


def made_task(kind: type[_Task], saved: SavedOptions) -> _Task:
    """A task of the options that its constructor names.

    Args:
        kind: of the task.
        saved: all options.

    Raises:
        ValueError: an option is given that the task does not take, or is wrong.
    """
    refuse_others(kind, saved.values)
    return kind(**{_SAVED: saved}, **made_options(saved.values, kind))


def refuse_others(kind: type[EvaluationTask], values: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for the first option that is given and that a task does not take."""
    taken = kind.takes(values)
    for name, value in values.items():
        if name in taken or name in FOR_ALL:
            continue
        if name in kind.without and kind.without[name] == value:
            continue
        for option in given_options(values, name):
            shown = _shown(option, value)
            raise ValueError(f"{shown} does nothing to {kind.chosen_by}: {kind.advice(name)}")


def _shown(option: str, value: Any) -> str:
    """An option with its value where that is short, as somebody types it."""
    is_short = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) < 40)
    if "." in option or not is_short:
        return f"{option}=..."
    if isinstance(value, bool):
        return f"{option}={str(value).lower()}"
    return f"{option}={value}"


def given_options(values: Mapping[str, Any], name: str) -> list[str]:
    """Options at and below a name of conf/evaluate.yaml whose values are not those of that file."""
    value = values[name]
    groups, defaults = _defaults()
    if name in groups:
        return [name] if _is_chosen(name, value, groups[name]) else []
    if name not in defaults:
        return []
    default = defaults[name]
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return [f"{name}.{below}" for below in value if value[below] != default.get(below)]
    if isinstance(default, str) and "${" in default:
        # It looks another option up: its value says nothing about what was given.
        return []
    is_empty = not value and not default
    return [] if is_empty or value == default else [name]


def _is_chosen(group: str, value: Any, default: str | None) -> bool:
    """Whether another choice of a group is given than the default, the name of a constructor."""
    if default is not None:
        return _target(value) != default
    if value is None:
        return False
    # Options below data=... that name no collection change the data of a saved ranker.
    return not (group == "data" and isinstance(value, Mapping) and "name" not in value)


@cache
def _defaults() -> tuple[dict[str, Any], dict[str, Any]]:
    """Constructors of the default choices of conf/evaluate.yaml's groups, and its other options."""
    content = read_yaml(resource_folder("conf") / "evaluate.yaml")
    groups: dict[str, Any] = {}
    for entry in content["defaults"]:
        # An entry that is no mapping names a file and no group, such as _self_.
        if not isinstance(entry, dict):
            continue
        for name, choice in entry.items():
            file = resource_folder("conf") / name / f"{choice}.yaml"
            groups[name] = None if choice is None else _target(read_yaml(file))
    others = {name: value for name, value in content.items() if name not in groups}
    return groups, others


def _target(node: Any) -> str:
    if not isinstance(node, Mapping):
        return str(node)
    return str(node.get("_target_", node.get("name")))
