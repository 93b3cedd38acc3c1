"""Options are what a constructor's signature says: its annotations are checked, and said, by one
mechanism.

A signature names types and ranges, and :func:`checked` refuses every other value by one sentence:

    @checked("adapter")
    @dataclass(frozen=True)
    class Lora:
        rank: Count = 16
        dropout: Annotated[float, Range(least=0, below=1)] = 0.05

    Lora(rank=0)  # ValueError: adapter.rank=0 must be a whole number of at least 1

Nothing is converted: a text is no number, true is no 1, and nan and infinity are no numbers. The
same annotations are checked where a node of the configuration is made into an object
(``pipelines.nodes``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from backpack_rank.checks import is_number

_Constructor = TypeVar("_Constructor", bound=Callable[..., Any])
_Object = TypeVar("_Object")
_SHOWN = 60
"""Characters of a value that a sentence repeats."""


@dataclasses.dataclass(frozen=True)
class Range:
    """Of a number: ``Annotated[int, Range(least=1)]``."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def admits(self, value: Any) -> bool:
        """Whether a number lies in it."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def words(self, kind: str) -> str:
        """Such as "a number above 0"; ``kind`` is what the numbers are."""
        if self.least is not None and self.most is not None:
            return f"{kind} from {_number(self.least)} to {_number(self.most)}"
        ends = [
            ("of at least", self.least),
            ("above", self.above),
            ("of at most", self.most),
            ("below", self.below),
        ]
        return f"{kind} {' and '.join(f'{name} {_number(end)}' for name, end in ends if end is not None)}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Of a text: ``Annotated[str, OneOf(FORMATS)]``, where names stand in a table."""

    names: Iterable[str]

    def admits(self, value: Any) -> bool:
        """Whether it is one of the names."""
        return value in self.names

    def words(self, kind: str) -> str:
        """The names."""
        return f"one of {', '.join(self.names)}"


@dataclasses.dataclass(frozen=True)
class Length:
    """Of a text or a list: at least so many characters or entries, and not more than so many."""

    least: int = 0
    most: int | None = None

    def admits(self, value: Any) -> bool:
        """Whether it has them; a text of spaces alone has none."""
        given = os.fspath(value) if isinstance(value, os.PathLike) else value
        size = len(given.strip()) if isinstance(given, str) else len(given)
        return size >= self.least and (self.most is None or len(given) <= self.most)

    def words(self, kind: str) -> str:
        """Such as "a text of 1 to 255 characters"."""
        of = "characters" if kind.startswith(("a text", "a path", "a name")) else "entries"
        if self.most is None:
            return (
                f"{kind} with {self.least} {of} or more"
                if self.least > 1
                else f"{kind} that is not empty"
            )
        return f"{kind} of {self.least} to {self.most} {of}"


@dataclasses.dataclass(frozen=True)
class FileNames:
    """Of a path: each name between its slashes is one that a file can have."""

    most: int

    def admits(self, value: Any) -> bool:
        """Whether none is too long, in bytes."""
        return all(len(os.fsencode(part)) <= self.most for part in str(value).split("/"))


@dataclasses.dataclass(frozen=True)
class Note:
    """Words behind what a value may be: ``Annotated[None, Note("for all documents")]``."""

    text: str


@dataclasses.dataclass(frozen=True)
class Called:
    """What a type is called in a sentence:
    ``Annotated[str, Called("a name of lexicons/ or a path")]``.
    """

    text: str


LONGEST_NAME = 255
"""Characters of a name, and bytes of a file's name on common file systems."""
LONGEST_PATH = 4000
"""Characters of a path; Linux takes 4,095 bytes."""
LARGEST_SEED = 2**32 - 1
"""numpy takes no larger one."""
MOST = 2**31 - 1
"""The largest count that is an option; what is counted by it has to fit into a memory."""
MOST_WORKERS = 256

Count = Annotated[int, Range(least=1, most=MOST), Called("a whole number of at least 1")]
CountOrZero = Annotated[int, Range(least=0, most=MOST), Called("a whole number of at least 0")]
Workers = Annotated[int, Range(least=0, most=MOST_WORKERS)]
Seed = Annotated[int, Range(least=0, most=LARGEST_SEED)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
LearningRate = Annotated[
    float, Range(above=0, most=1000), Called("a number above 0, and of at most 1000")
]
Layers = Annotated[int, Range(least=1, most=1000)]
Width = Annotated[int, Range(least=1, most=65_536)]
Positions = Annotated[int, Range(least=1, most=1_000_000)]
Kernels = Annotated[int, Range(least=2, most=1000)]
Spread = Annotated[float, Range(above=0, most=10)]
Dropout = Annotated[float, Range(least=0, below=1)]
Name = Annotated[str, Length(1, LONGEST_NAME), Called(f"a name of 1 to {LONGEST_NAME} characters")]
AllDocuments = Annotated[None, Note("for all documents")]
AllQueries = Annotated[None, Note("for all queries")]
_PATH = Called("a path (as a text: ./5 in place of 5)")
PathText = Annotated[str, Length(1, LONGEST_PATH), FileNames(LONGEST_NAME), _PATH]
FilePath = Annotated[str | Path, Length(1, LONGEST_PATH), FileNames(LONGEST_NAME), _PATH]


class Made:
    """Stands for what a node of the configuration will be made into, when its annotation is
    checked.

    Attributes:
        kind: class of the object; None where that is not known.
    """

    def __init__(self, kind: type | None) -> None:
        self.kind = kind


class Unknown:
    """Stands for a value that is not given yet, and that fits everything."""


UNKNOWN = Unknown()


def _name_of(call: Any) -> str:
    """The class that makes an object, also where one of its class methods does."""
    owner = getattr(call, "__self__", None)
    return owner.__name__ if isinstance(owner, type) else call.__name__


def checked(option: str, **called: str) -> Callable[[_Constructor], _Constructor]:
    """A class or function whose arguments are checked by its annotations whenever it is called.

    Args:
        option: what its arguments are options of, such as ``policy``; empty: they are named by
            themselves.
        called: options that have another name than the argument.
    """

    def decorate(call: _Constructor) -> _Constructor:
        if isinstance(call, type):
            call.__init__ = _checking(call.__init__, call, option, called)  # type: ignore[misc]
            return call
        return typing.cast(_Constructor, _checking(call, call, option, called))

    return decorate


def _checking(
    inner: Callable[..., Any], call: Callable[..., Any], option: str, called: Mapping[str, str]
) -> Callable[..., Any]:
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def checking(*args: Any, **kwargs: Any) -> Any:
        # Of a subclass with a constructor of its own only what it passes on is looked at.
        given = signature.bind(*args, **kwargs).arguments
        types_of = annotations_of(call)
        for name, value in given.items():
            if name in types_of:
                own = called.get(name, name)
                check_value(f"{option}.{own}" if option else own, value, types_of[name])
        return inner(*args, **kwargs)

    return checking


def check_arguments(
    call: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, str]
) -> None:
    """Refuse arguments that a constructor does not take.

    Args:
        call: the class or function.
        given: its arguments.
        names: the option that each is.

    Raises:
        ValueError: the first that is wrong, with its option and what the constructor takes.
    """
    parameters = inspect.signature(call).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    types_of = annotations_of(call)
    for name, value in given.items():
        if name not in parameters and not any_name:
            close = difflib.get_close_matches(name, list(parameters), n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"{names[name]}: {_name_of(call)} has no such option{hint}")
        if name in types_of:
            check_value(names[name], value, types_of[name])


def made(call: Callable[..., _Object], options: Mapping[str, Any], option: str) -> _Object:
    """What a constructor makes of the options below ``option``.

    Raises:
        ValueError: an option that it does not take, or one that it needs and does not have.
    """
    check_arguments(call, options, {name: f"{option}.{name}" for name in options})
    check_complete(call, options, option)
    return call(**options)


def check_complete(call: Callable[..., Any], given: Collection[str], option: str) -> None:
    """Raise ``ValueError`` for an argument without a default that is not among those given."""
    for name in required(call):
        if name not in given:
            raise ValueError(f"{option}.{name} has no value: give {option}.{name}=...")


def required(call: Callable[..., Any]) -> list[str]:
    """Names of the arguments that have no default."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(call).parameters.values()
    return [one.name for one in parameters if one.kind in named and one.default is one.empty]


def check_fields(kind: type, values: Mapping[str, Any], option: str = "") -> None:
    """Refuse values that a class of options does not declare so; names that it does not declare are
    not looked at.

    Args:
        kind: a class with annotations; an annotation that is such a class declares the options
            below it.
        values: by name.
        option: that ``values`` stand below; empty: none.

    Raises:
        ValueError: the first that is wrong, with its option and what it takes.
    """
    for name, annotation in annotations_of(kind).items():
        if name in values:
            check_value(f"{option}.{name}" if option else name, values[name], annotation)


def check_value(option: str, value: Any, annotation: Any) -> None:
    """Refuse a value that an annotation does not take.

    check_value("seed", 1.5, Seed)  # seed=1.5 must be a whole number from 0 to 4294967295

    Raises:
        ValueError: with the option, its value and what it takes.
    """
    if isinstance(value, Mapping):
        for one in _alternatives(annotation):
            if _declares_options(one):
                check_fields(one, value, option)
                return
    if fits(value, annotation):
        return
    for place, entry, entries in _parts(
        value, annotation
    ):  # of a list or a mapping the entry that is wrong is named
        check_value(f"{option}{place}", entry, entries)
    raise ValueError(f"{option}={shown(value)}{_takes(annotation)}")


def fits(value: Any, annotation: Any) -> bool:
    """Whether an annotation takes a value as it is."""
    if annotation in (Any, inspect.Parameter.empty, object) or value is UNKNOWN:
        return True
    if isinstance(annotation, TypeVar):
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *marks = get_args(annotation)
        if isinstance(value, Made):
            return fits(value, base)
        return fits(value, base) and all(
            mark.admits(value) for mark in marks if hasattr(mark, "admits")
        )
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(annotation))
    if origin is Literal:
        # 1 == True, and a list has no hash
        return any(type(value) is type(one) and value == one for one in get_args(annotation))
    if isinstance(value, Made):
        return _fits_made(value, origin or annotation)
    return _fits_plain(value, annotation, origin)


def _fits_plain(value: Any, annotation: Any, origin: Any) -> bool:
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if annotation is float:
        return (
            is_number(value) and abs(value) <= sys.float_info.max
        )  # a whole number may be too large for a float
    if annotation is str:
        return isinstance(value, str)
    if annotation is Path:
        return isinstance(value, os.PathLike)
    kind = origin or annotation
    if kind is Callable:
        return callable(value)
    if kind in (Sequence, list, tuple, Iterable):
        return _fits_list(value, annotation)
    if kind in (Mapping, dict):
        keys, entries = get_args(annotation) or (Any, Any)
        return isinstance(value, Mapping) and all(
            fits(key, keys) and fits(one, entries) for key, one in value.items()
        )
    if not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, (str, int, float, list, tuple, Mapping, type(None)))
    return isinstance(value, kind)


def _fits_list(value: Any, annotation: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return False
    if not isinstance(value, Sequence):
        return True  # an array or a generator; whoever reads it looks at its entries
    entries = _entry_types(annotation)
    if isinstance(entries, tuple):
        return len(value) == len(entries) and all(map(fits, value, entries))
    return all(fits(one, entries) for one in value)


def _fits_made(value: Made, kind: Any) -> bool:
    """Whether a node's object is of a class; of protocols and of what is not known nothing is said."""
    if kind in (
        bool,
        int,
        float,
        str,
        Path,
        None,
        type(None),
        Sequence,
        list,
        tuple,
        Iterable,
        Mapping,
        dict,
    ):
        return False
    if value.kind is None or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return issubclass(value.kind, kind)


def _entry_types(annotation: Any) -> Any:
    """The type of a list's entries; a tuple of them where each place has its own."""
    arguments = get_args(annotation)
    if not arguments:
        return Any
    if get_origin(annotation) is tuple and arguments[-1] is not Ellipsis:
        return arguments
    return arguments[0]


def _parts(value: Any, annotation: Any) -> Iterator[tuple[str, Any, Any]]:
    """Entries of a list or a mapping, each with its place and its type; none where types go by
    place.
    """
    for one in _alternatives(annotation):
        base = get_args(one)[0] if get_origin(one) is Annotated else one
        kind = get_origin(base)
        if kind in (Sequence, list, tuple) and isinstance(value, (list, tuple)):
            entries = _entry_types(base)
            if not isinstance(entries, tuple):
                yield from ((f"[{place}]", entry, entries) for place, entry in enumerate(value))
            return
        if kind in (Mapping, dict) and isinstance(value, Mapping):
            entries = get_args(base)[1]
            yield from ((f".{name}", entry, entries) for name, entry in value.items())
            return


def annotations_of(call: Any) -> Mapping[str, Any]:
    """Types of a constructor's arguments by name, as far as they can be read."""
    return _annotations_of(getattr(call, "__func__", call))


@functools.cache
def _annotations_of(call: Any) -> Mapping[str, Any]:
    plain_class = (
        isinstance(call, type)
        and not dataclasses.is_dataclass(call)
        and "__init__" in call.__dict__
    )
    source = inspect.unwrap(call.__init__) if plain_class else inspect.unwrap(call)
    try:
        return typing.get_type_hints(source, include_extras=True)
    except (NameError, TypeError):
        return _annotations_one_by_one(source)


def _annotations_one_by_one(source: Any) -> Mapping[str, Any]:
    """Those that can be read: a library may import what it annotates with for type checkers alone."""
    found: dict[str, Any] = {}
    for name, annotation in getattr(source, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(NameError, TypeError):
            found |= typing.get_type_hints(
                one, getattr(source, "__globals__", {}), include_extras=True
            )
    return found


def describe(annotation: Any) -> str:
    """What an annotation takes, in words: "a whole number of at least 1, or null for all
    documents".
    """
    parts = [_words(one) for one in _alternatives(annotation)]
    names: dict[str, None] = {}
    for part in parts:
        if part.startswith("one of "):
            names |= dict.fromkeys(part.removeprefix("one of ").split(", "))
    others = [part for part in parts if not part.startswith("one of ")]
    if names:
        others.insert(0, f"one of {', '.join(names)}")
    return ", or ".join(dict.fromkeys(others))


def _takes(annotation: Any) -> str:
    words = describe(annotation)
    return f": use {words}" if words.startswith("one of ") else f" must be {words}"


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union, null last; any other annotation alone."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return [annotation]
    members = [one for member in get_args(annotation) for one in _alternatives(member)]
    return sorted(members, key=_is_null)


def _is_null(annotation: Any) -> bool:
    base = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return base is type(None)


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def _words(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *marks = get_args(annotation)
        called = [mark.text for mark in marks if isinstance(mark, Called)]
        words = called[0] if called else describe(base)
        for mark in marks:
            if hasattr(mark, "words") and not called:
                words = mark.words(words)
            if isinstance(mark, Note):
                words = f"{words} {mark.text}"
        return words
    if origin is Literal:
        return f"one of {', '.join(map(shown, get_args(annotation)))}"
    if annotation is type(None):
        return "null"
    if annotation in _WORDS:
        return _WORDS[annotation]
    kind = origin or annotation
    if kind in (Sequence, list, tuple, Iterable):
        entries = _entry_types(annotation)
        if isinstance(entries, tuple):
            return f"a list of {len(entries)}"
        return "a list" if entries is Any else f"a list in which each is {describe(entries)}"
    if kind in (Mapping, dict):
        return "a mapping of names to values"
    if _declares_options(kind):
        return "a mapping of options"
    name = str(getattr(kind, "__name__", kind))
    return f"an {name}" if name.startswith(tuple("AEIOU")) else f"a {name}"


def shown(value: Any) -> str:
    """A value as a command line has it, cut where it is long."""
    if isinstance(value, Made):
        return f"a {value.kind.__name__}" if value.kind is not None else "a node"
    words = {None: "null", True: "true", False: "false", "": "''"}
    if value is None or (isinstance(value, (bool, str)) and value in words):
        return words[value]
    if isinstance(value, (list, tuple)):
        # A list of 100,000 entries is not written out to be cut.
        text = f"[{','.join(shown(one) for one in value[:_SHOWN])}]"
    else:
        text = " ".join(str(value).split()) or repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _declares_options(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


class Options:
    """Options that no constructor takes: a class of annotations, checked by :func:`check_fields`."""


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and not math.isinf(value) else str(value)
