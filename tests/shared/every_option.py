"""Every option of every file below conf/, the values that are tried for each, and what becomes of
one.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from in_process import configured
from omegaconf import DictConfig, Node, OmegaConf
from option_values import defaults
from workplace import ROOT

from backpack_rank.checks import UsageError
from backpack_rank.options import groups_of
from backpack_rank.parts import evaluations
from backpack_rank.pipelines.calibrate import Calibrating
from backpack_rank.pipelines.errors import MISTAKES, is_mistake, sentence_of
from backpack_rank.pipelines.evaluate import task_of
from backpack_rank.pipelines.nodes import check_options
from backpack_rank.pipelines.option_types import AnyTrainingOptions
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.pipelines.training_settings import TrainingSettings
from backpack_rank.scale.settings import RerankSettings

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "''": "",
    "a": "a",
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "1e30": 1e30,
    "[]": [],
    "[1]": [1],
    "{}": {},
    "a path": "/nowhere/at/all.csv",
    "5,000 letters": "x" * 5000,
    "[1000000000000]": [10**12],
}
RAW = re.compile(
    r"object is not|not supported between|unexpected keyword|has no attribute|positional argument|NoneType|"
    r"expected str|could not convert|invalid literal|not iterable|unhashable|Errno|Traceback|<class|InstantiationExc"
)
"""Words of Python that are no sentence for a user."""
_SKIPPED = ("defaults", "hydra", "_target_", "_recursive_", "_partial_")
_GIVEN: dict[str, Any] = {"paths": ["a.trec", "b.trec"], "files": ["a.trec"], "values": [1.0, 0.0]}
"""Values of options that must be given, where a name is none."""
_OF_EACH_ROW = ("task.rows.", "task.options.")
"""Where a table of a paper has the same options for each of its rows: of one row they are tried."""
_UNREAD = ("published", "experiment_base")
"""Folders whose files are read by their own readers, or taken by other files: they are no options.
"""


@dataclass(frozen=True)
class Leaf:
    """One option.

    Attributes:
        script: that takes it.
        choices: of groups that bring it, such as ``("data=beir",)``.
        option: its name.
    """

    script: str
    choices: tuple[str, ...]
    option: str


def own_leaves(script: str) -> list[Leaf]:
    """Every option of a script's own file."""
    return [Leaf(script, (), option) for option in _own(script)]


def group_files() -> list[str]:
    """Every file of a group that is chosen on a command line, as it lies below conf/."""
    files = [file.relative_to(ROOT / "conf").as_posix() for file in (ROOT / "conf").rglob("*.yaml")]
    return sorted(name for name in files if "/" in name and not name.startswith(_UNREAD))


def group_leaves(file: str) -> list[Leaf]:
    """Options of such a file that no file before it has: those of its own constructors.

    The same argument of the same constructor is looked at by the same annotation, wherever it
    stands, so it is tried once.
    """
    parts = file.removesuffix(".yaml").split("/")
    group, script, place, more = _where(tuple(parts))
    name = "/".join(parts[len(group.partition("@")[0].split("/")) :])
    return [
        Leaf(script, (f"{group}={name}", *more), f"{place}.{option}" if place else option)
        for option in _first_seen()[file]
    ]


@cache
def _first_seen() -> dict[str, list[str]]:
    """By file, the options that are tried there."""
    seen = {(script, option) for script in ("evaluate", "train") for option in _own(script)}
    options_by_file: dict[str, list[str]] = {}
    for file in group_files():
        config = OmegaConf.load(ROOT / "conf" / file)
        # Files of these groups have options of the whole script, and others those of the group.
        group = file.partition("/")[0]
        owner = {"experiment": "evaluate", "recipe": "train"}.get(group, group)
        options_by_file[file] = []
        for option in _options(config):
            taken_by = _constructor_and_argument(config, option) or (owner, option)
            if option.startswith(_OF_EACH_ROW):
                taken_by = (file, _without_its_row(option))
            if taken_by not in seen:
                seen.add(taken_by)
                options_by_file[file].append(option)
    return options_by_file


def _without_its_row(option: str) -> str:
    """``task.rows.*.ranker.name`` of ``task.rows.NoAug.ranker.name``."""
    task, rows, _, *argument = option.split(".")
    return ".".join((task, rows, "*", *argument))


def _own(script: str) -> list[str]:
    return list(_options(OmegaConf.load(ROOT / "conf" / f"{script}.yaml")))


def _constructor_and_argument(config: Any, option: str) -> tuple[str, str] | None:
    """What takes an option: a constructor that the file names above it; None where it names none."""
    found = None
    node, names = config, option.split(".")
    for place, name in enumerate(names):
        if "_target_" in node:
            found = (str(node["_target_"]), ".".join(names[place:]))
        node = node._get_node(name)
    return found


def _where(parts: tuple[str, ...]) -> tuple[str, str, str, tuple[str, ...]]:
    """Group, script, where its options stand, and what else must be chosen, of a file below conf/."""
    group = parts[0]
    if group == "prompt":
        return (
            "prompt@listwise.ranker.prompt",
            "evaluate",
            "listwise.ranker.prompt",
            ("listwise=hugging_face",),
        )
    if parts[:2] == ("permutation", "aggregator"):
        return (
            "permutation/aggregator",
            "evaluate",
            "permutation.aggregator",
            ("permutation=psc", "listwise=trained"),
        )
    script = "evaluate" if group in groups_of("evaluate") and group != "data" else "train"
    more = ("listwise=trained",) if group in ("pairwise", "permutation", "calibration") else ()
    if group == "aggregate":
        more = ("run=[a.trec,b.trec]",)
    if parts[:2] == ("experiment", "lists"):
        more = ("listwise=trained",)
    if group == "trainer":
        more = ("trainer.accelerator=cpu",)
    if group == "model" and parts[1].startswith("listwise_"):
        more = ("task=listwise",)
    if group == "recipe" or group == "experiment":
        return group, script, "", more
    return group, script, group, more


def _options(node: Any) -> Iterator[str]:
    for name in node:
        if name in _SKIPPED or "." in str(
            name
        ):  # a name with a point cannot be given on a command line
            continue
        value = node._get_node(name)
        if isinstance(value, DictConfig) and len(value) and not value._is_missing():
            yield from (f"{name}.{below}" for below in _options(value))
        else:
            yield str(name)


@cache
def composed_with(script: str, choices: tuple[str, ...]) -> DictConfig:
    """The defaults of a script with these choices, to be changed and restored."""
    if not choices:
        config = defaults(script).copy()
    else:
        config = configured(
            script, *sorted(choices, key=lambda choice: choice.startswith("prompt@"))
        )
    OmegaConf.set_struct(config, False)
    # What must be given has a value, or every other option would be refused with its name.
    _give_what_is_missing(config)
    return config


def _give_what_is_missing(node: DictConfig) -> None:
    for name in node:
        value = node._get_node(name)
        assert isinstance(value, Node)
        if value._is_missing():
            node[name] = _GIVEN.get(str(name), "given")
        elif (
            isinstance(value, DictConfig) and not value._is_interpolation() and not value._is_none()
        ):
            _give_what_is_missing(value)


def outcome(leaf: Leaf, value: Any) -> tuple[str, str]:
    """``taken``, ``refused`` or ``bad``, and what was said."""
    config = composed_with(leaf.script, leaf.choices)
    parent, _, name = leaf.option.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    if not isinstance(node, DictConfig) or name not in node.keys():  # noqa: SIM118 "in" leaves out options without a value
        return "absent", f"{leaf.option} is not there with {leaf.choices}"
    content = node.__dict__["_content"]
    before = content[name]
    # A node of its own in the other's place, which a set value would have changed for good.
    tried_node = OmegaConf.create({name: value})._get_node(name)
    assert isinstance(tried_node, Node)
    tried_node._set_parent(node)
    try:
        content[name] = tried_node
        return _tried(leaf, config)
    finally:
        content[name] = before


def _tried(leaf: Leaf, config: DictConfig) -> tuple[str, str]:
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            check(leaf.script, leaf.option, config)
    except UsageError as error:
        message = str(error)
    except MISTAKES as error:
        if not is_mistake(error):
            return "bad", f"{type(error).__name__}: {error}"
        message = sentence_of(error)
    except Exception as error:
        return "bad", f"{type(error).__name__}: {error}"
    else:
        return "taken", ""
    finally:
        logging.disable(logging.NOTSET)
    if RAW.search(message) or len(message) > 1500 or len(message.strip().splitlines()) > 3:
        return "bad", message
    last = leaf.option.rpartition(".")[2]
    if not re.search(rf"\b{re.escape(last)}\b", message):
        return "bad", f"without its name: {message}"
    return "refused", message


def check(script: str, option: str, config: DictConfig) -> None:
    """Everything that a script looks at before it loads data or a model."""
    if script == "evaluate":
        settings = EvaluationSettings.of(config)
        settings.metrics(settings.chosen_dataset)
        task = task_of(config)
        # What stands two levels below the task is of its rows and collections.
        if (option.startswith("task.") and option.count(".") > 1) or option.partition(".")[
            0
        ] in evaluations():
            task.check()
    elif script == "rerank":
        RerankSettings.of(config)
    elif script == "calibrate":
        Calibrating(config)
    elif option.startswith("trainer."):
        TrainingSettings.of(config)
    else:
        # Without Lightning's trainer, which takes longer than all that is looked at here.
        check_options(config, AnyTrainingOptions)
        training = TrainingSettings(config)
        if training.task is None:
            training.ranking()
        _ = training.dataset
