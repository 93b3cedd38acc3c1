"""The door between OmegaConf and everything else.

Composed options become plain values, and nodes become objects.

Nothing behind this module reads a ``DictConfig``. A node names its constructor (``_target_``); it
is made only by a constructor that a file of conf/ names, with arguments that its signature takes.
So what stands on a command line calls nothing else, and a wrong value is one sentence with the
option's name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from backpack_rank.constructors import (
    UNKNOWN,
    Made,
    annotations_of,
    check_arguments,
    check_complete,
    check_fields,
    check_value,
    made,
    shown,
)
from backpack_rank.files import resource_folder

_TARGET = re.compile(r"""_target_["']?:\s*["']?([\w.]+)""")
_LOOKED_UP = re.compile(r"\$\{([\w.]+)\}")
_FLAGS = ("_convert_", "_recursive_", "_partial_", "_args_")
"""Hydra's words beside a ``_target_``."""


def plain_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options as plain values, with everything that they look up.

    What has no value yet is left as ``???``.

    >>> plain_options(OmegaConf.create({"folder": "nfcorpus", "test": {"folder": "${folder}"}}))
    {'folder': 'nfcorpus', 'test': {'folder': 'nfcorpus'}}

    Raises:
        OmegaConfBaseException: an option looks up what is not there.
    """
    options: Any = config
    if isinstance(config, DictConfig):
        options = OmegaConf.to_container(config, resolve=True)
    return {str(name): value for name, value in options.items()}


def looked_up(config: Mapping[str, Any], option: str) -> dict[str, tuple[str, ...]]:
    """Which options the entries below an option look up.

    They are given by entry, such as ``{"rows.PSC": ("task.options.psc",)}``.

    Args:
        config: as composed; plain values look nothing up.
        option: such as ``task``.
    """
    names_by_place: dict[str, tuple[str, ...]] = {}
    node = config.get(option)
    if not isinstance(node, DictConfig):
        return names_by_place
    for group, entries in _items(node):
        if not isinstance(entries, DictConfig):
            continue
        for name in map(str, entries):
            # The node itself: its value would be what it looks up.
            entry = entries._get_node(name)
            if not isinstance(entry, DictConfig):
                continue
            text = str(OmegaConf.to_container(entry))
            names = _LOOKED_UP.findall(text)
            names_by_place[f"{option}.{group}.{name}"] = tuple(dict.fromkeys(names))
    return names_by_place


def yaml_of(options: Mapping[str, Any]) -> str:
    """Options as YAML, every value resolved: what is saved beside results."""
    return OmegaConf.to_yaml(_composed(options), resolve=True)


def missing_options(options: Mapping[str, Any], place: str) -> list[str]:
    """The options below ``place`` that have no value yet, sorted."""
    return sorted(f"{place}.{name}" for name in OmegaConf.missing_keys(_composed(options)))


def merged(options: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Options with some of them changed, at any depth; a list is replaced and not joined."""
    config = OmegaConf.merge(_composed(options), _composed(changes))
    assert isinstance(config, DictConfig)
    return plain_options(config)


def with_nodes(options: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options with some nodes replaced as a whole.

    Other options that look something up find it in the new ones.
    """
    values = OmegaConf.to_container(_composed(options))
    assert isinstance(values, dict)
    config = OmegaConf.create({**values, **changes})
    assert isinstance(config, DictConfig)
    return config


def build(node: Mapping[str, Any], option: str, **more: Any) -> Any:
    """The object that a node names.

    Args:
        node: with its ``_target_``.
        option: where it stands, such as ``data.first_stage``.
        more: arguments that the configuration does not have.

    Raises:
        ValueError: no file of conf/ names the constructor, or it does not take one of the
            arguments.
    """
    config = _composed(node)
    check_node(config, option, more)
    for name in missing_options(config, option):
        if name.removeprefix(f"{option}.") not in more:
            raise ValueError(f"{name} has no value: give {name}=...")
    return instantiate(config, **more, _convert_="all")


def build_or_none(node: Mapping[str, Any] | None, option: str) -> Any:
    """The object of a node that may be null."""
    return None if node is None else build(node, option)


def made_options(values: Mapping[str, Any], call: Any) -> dict[str, Any]:
    """The options that a class or function names, each as it takes it.

    A node is made into an object of the class that it is annotated with, by its own constructor
    where it names one. What is annotated as a mapping, such as the data, stays a node.

    Raises:
        ValueError: a value that its annotation does not take.
    """
    check_plain(values, call)
    arguments = {}
    for name, annotation in annotations_of(call).items():
        if name in values:
            arguments[name] = _made(values[name], annotation, name)
    return arguments


def check_plain(values: Mapping[str, Any], call: Any) -> None:
    """Look at the options that a class or function names, but for nodes.

    Raises:
        ValueError: a value that its annotation does not take.
    """
    for name, annotation in annotations_of(call).items():
        if name in values and not _is_node(values[name], annotation):
            check_value(name, values[name], annotation)


def _is_node(value: Any, annotation: Any) -> bool:
    """Whether a value is made into an object; a mapping that stays one is none."""
    if not isinstance(value, Mapping) or any("Mapping" in str(kind) for kind in _kinds(annotation)):
        return False
    return bool(_classes(annotation)) or "_target_" in value


def _kinds(annotation: Any) -> list[Any]:
    """An annotation and, of a union, its members."""
    return [*get_args(annotation), annotation]


def _classes(annotation: Any) -> list[type]:
    """The classes of this package that an annotation names."""
    classes = []
    for kind in _kinds(annotation):
        if isinstance(kind, type) and kind.__module__ != "builtins":
            classes.append(kind)
    return classes


def _made(value: Any, annotation: Any, option: str) -> Any:
    if not _is_node(value, annotation):
        return value
    if "_target_" in value:
        return build(value, option)
    (kind,) = _classes(annotation)
    return made(kind, value, option)


def several(value: Any) -> tuple[str, ...]:
    """One path or several, or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def constructor_of(node: Mapping[str, Any], option: str) -> Any:
    """The class or function that a node names.

    Raises ``ValueError`` where no file of conf/ names it.
    """
    return _constructor(_composed(node), option)


def check_options(options: Mapping[str, Any], *declared: type) -> None:
    """Look at a whole configuration: every node, and the options that no constructor takes.

    Args:
        options: as composed; what is not given yet (``???``) is left to whoever needs it.
        declared: types of the options that no constructor takes.

    Raises:
        ValueError: the first option that is wrong, with what it takes.
    """
    config = _composed(options)
    # Nodes come last: what one of them looks up is named as the option that it is.
    values: dict[str, Any] = {}
    for name, value in _items(config):
        values[str(name)] = _with_objects(value, str(name), _unchecked)
    for kind in declared:
        check_fields(kind, values)
    for name, value in _items(config):
        _with_objects(value, str(name), _checked)


def check_node(node: DictConfig, option: str, more: Mapping[str, Any] | None = None) -> type | None:
    """Refuse a node of another constructor than those of conf/, or with a foreign argument.

    Returns:
        The class of its object; None where the constructor does not say.

    Raises:
        ValueError: with the option's name.
    """
    constructor = _constructor(node, option)
    flags: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, value in _items(node):
        if name in _FLAGS:
            flags[name] = value
        elif name != "_target_":
            values[str(name)] = value
    for name in flags.keys() - _flags_of(str(node["_target_"])):
        raise ValueError(f"{option}.{name} is no option")

    # A constructor that makes the nodes below it checks them itself.
    makes_nodes = not flags.get("_recursive_", True)
    arguments: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in values.items():
        place = f"{option}.{name}"
        if makes_nodes:
            arguments[name] = plain_values(value)
        else:
            arguments[name] = _with_objects(value, place, _checked)
        names[name] = _named_by_user(node, name, place)
    check_arguments(constructor, arguments, names)
    if more is not None and not flags.get("_partial_"):
        check_complete(constructor, {**arguments, **more}, option)
    return _kind_of(constructor)


def _composed(options: Mapping[str, Any]) -> DictConfig:
    """Plain values as OmegaConf takes them; a text with ``${`` in it stays that text."""
    if isinstance(options, DictConfig):
        return options
    config = OmegaConf.create(_escaped(dict(options)))
    assert isinstance(config, DictConfig)
    return config


def _escaped(value: Any) -> Any:
    """A plain value in which OmegaConf finds nothing to look up."""
    if isinstance(value, Mapping):
        return {name: _escaped(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(entry) for entry in value]
    if isinstance(value, str):
        # OmegaConf halves backslashes in front of an interpolation, so they are doubled here.
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return value


def _with_objects(value: Any, option: str, object_of: Callable[[DictConfig, str], Made]) -> Any:
    """A value as its annotation is to see it: each node is replaced by what stands for its object.

    Args:
        value: of an option.
        option: its name.
        object_of: :func:`_checked`, or :func:`_unchecked` where arguments are looked at later.
    """
    if isinstance(value, DictConfig):
        if "_target_" in value:
            return object_of(value, option)
        entries = {}
        for name, entry in _items(value):
            entries[str(name)] = _with_objects(entry, f"{option}.{name}", object_of)
        return entries
    if isinstance(value, ListConfig):
        elements = []
        for place, element in enumerate(value):
            elements.append(_with_objects(element, f"{option}[{place}]", object_of))
        return elements
    return value


def _checked(node: DictConfig, option: str) -> Made:
    return Made(check_node(node, option))


def _unchecked(node: DictConfig, option: str) -> Made:
    return Made(_kind_of(_constructor(node, option)))


def plain_values(value: Any) -> Any:
    """A value whose nodes are left as they are, for a constructor that makes them itself."""
    if isinstance(value, DictConfig):
        return {str(name): plain_values(entry) for name, entry in _items(value)}
    if isinstance(value, ListConfig):
        return [plain_values(entry) for entry in value]
    return value


def _items(config: DictConfig) -> Iterator[tuple[Any, Any]]:
    """Names and values of a node, or ``UNKNOWN`` for a value that cannot be read yet.

    Such a value is missing or looks up what is not there; whoever needs it asks for it.
    """
    for name in config:
        try:
            yield name, config[name]
        except OmegaConfBaseException:
            yield name, UNKNOWN


def _named_by_user(node: DictConfig, name: str, option: str) -> str:
    """The option that a value is written at.

    That of ``data.test.seed`` is ``data.seed``, which it looks up.
    """
    value = node._get_node(name)
    if not isinstance(value, Node) or not _LOOKED_UP.fullmatch(str(value._value())):
        return option
    source = value._maybe_dereference_node()
    if source is None:
        return option
    # A node outside of a configuration has no name.
    return str(source._get_full_key(None)) or option


def _constructor(node: DictConfig, option: str) -> Any:
    """What a node names. Raises ``ValueError`` where no file of conf/ names it."""
    target = node["_target_"]
    if not isinstance(target, str) or target not in known_targets():
        raise ValueError(
            f"{option}._target_={shown(target)}: no file of conf/ names it; a class of your own "
            "goes into a file there"
        )
    try:
        return get_object(target)
    except ImportError as error:
        raise ValueError(f"{option}._target_={target} cannot be imported: {error}") from error


def known_targets() -> frozenset[str]:
    """Constructors that files of conf/ and of the folder of ``--config-dir`` name."""
    folders = {resource_folder("conf")}
    if HydraConfig.initialized():
        for source in HydraConfig.get().runtime.config_sources:
            if source.schema == "file":
                folders.add(Path(source.path))
    targets: set[str] = set()
    for folder in folders:
        targets |= _targets_in(folder)
    return frozenset(targets)


# Kept, because a folder of configurations does not change while a process runs.
@lru_cache(maxsize=8)
def _targets_in(folder: Path) -> frozenset[str]:
    targets: set[str] = set()
    for file in folder.rglob("*.yaml"):
        targets.update(_TARGET.findall(file.read_text(encoding="utf-8")))
    return frozenset(targets)


@lru_cache(maxsize=64)
def _flags_of(target: str) -> frozenset[str]:
    """Hydra's words that files of conf/ have beside a constructor."""
    flags: set[str] = set()
    for file in resource_folder("conf").rglob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        if target not in text:
            continue
        for flag in _FLAGS:
            if f"{flag}:" in text:
                flags.add(flag)
    return frozenset(flags)


def _kind_of(call: Any) -> type | None:
    """The class of what a constructor makes."""
    if inspect.isclass(call):
        return call
    kind = annotations_of(call).get("return")
    return kind if inspect.isclass(kind) else None
