"""Options on their way to a constructor: its signature says what a node is made into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from backpack_rank.constructors import annotations_of, made
from backpack_rank.pipelines.nodes import build


def made_options(values: Mapping[str, Any], call: Any) -> dict[str, Any]:
    """The options that a class or function names, each as it takes it.

    A node is made into an object of the class that it is annotated with, by its own constructor
    where it names one. What is annotated as a mapping, such as the data, stays a node.
    """
    arguments = {}
    for name, annotation in annotations_of(call).items():
        if name in values:
            arguments[name] = _made(values[name], annotation, name)
    return arguments


def _made(value: Any, annotation: Any, option: str) -> Any:
    kinds = [*get_args(annotation), annotation]
    if not isinstance(value, Mapping) or any("Mapping" in str(kind) for kind in kinds):
        return value
    if "_target_" in value:
        return build(value, option)
    (kind,) = [kind for kind in kinds if isinstance(kind, type) and kind is not type(None)]
    return made(kind, value, option)


def several(value: Any) -> tuple[str, ...]:
    """One path or several, or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))
