"""Options are what a constructor's signature says: it is checked, and put in words, here.

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
        ends = []
        if self.least is not None:
            ends.append(f"of at least {_number(self.least)}")
        if self.above is not None:
            ends.append(f"above {_number(self.above)}")
        if self.most is not None:
            ends.append(f"of at most {_number(self.most)}")
        if self.below is not None:
            ends.append(f"below {_number(self.below)}")
        return f"{kind} {' and '.join(ends)}"


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
        unit = "characters" if kind.startswith(("a text", "a path", "a name")) else "entries"
        if self.most is not None:
            return f"{kind} of {self.least} to {self.most} {unit}"
        if self.least > 1:
            return f"{kind} with {self.least} {unit} or more"
        return f"{kind} that is not empty"


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
    """What a type is called in a sentence: ``Annotated[str, Called("a name or a path")]``."""

    text: str


class Below:
    """Of a class whose options stand below the option: ``Annotated[Attribute, BELOW]``."""


BELOW = Below()
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
    """Stands for what a node of the configuration will become, when its annotation is checked.

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
    """A decorator to check the arguments of a class or function by its annotations.

        >>> @checked("adapter")
        ... def adapter(rank: Count = 16) -> int:
        ...     return rank
        >>> adapter(rank=0)
        Traceback (most recent call last):
        ValueError: adapter.rank=0 must be a whole number of at least 1

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
    """``inner``, the function behind ``call``, with a check in front."""
    signature = inspect.signature(inner)

    @functools.wraps(inner)
    def checking(*args: Any, **kwargs: Any) -> Any:
        # Of a subclass with a constructor of its own only what it passes on is looked at.
        given = signature.bind(*args, **kwargs).arguments
        types_of = annotations_of(call)
        for name, value in given.items():
            if name not in types_of:
                continue
            option_name = called.get(name, name)
            if option:
                option_name = f"{option}.{option_name}"
            check_value(option_name, value, types_of[name])
        return inner(*args, **kwargs)

    return checking


def check_arguments(
    call: Callable[..., Any], given: Mapping[str, Any], names: Mapping[str, str]
) -> None:
    """Refuse arguments that a constructor does not take, before it is called.

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
    """Call a constructor with the options that stand below ``option``.

    Raises:
        ValueError: an option that it does not take, or one that it needs and does not have.
    """
    check_arguments(call, options, {name: f"{option}.{name}" for name in options})
    check_complete(call, options, option)
    return call(**options)


def check_complete(call: Callable[..., Any], given: Collection[str], option: str) -> None:
    """Raise ``ValueError`` for the first argument without a default that is not given."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in inspect.signature(call).parameters.items():
        is_required = parameter.kind in named and parameter.default is parameter.empty
        if is_required and name not in given:
            raise ValueError(f"{option}.{name} has no value: give {option}.{name}=...")


def check_fields(kind: type, values: Mapping[str, Any], option: str = "") -> None:
    """Refuse values by the annotations of a class of options.

    Names that the class does not declare are not looked at.

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

        >>> check_value("seed", 1.5, Seed)
        Traceback (most recent call last):
        ValueError: seed=1.5 must be a whole number from 0 to 4294967295

    Raises:
        ValueError: with the option, its value and what it takes.
    """
    if isinstance(value, Mapping):
        for alternative in _alternatives(annotation):
            if _declares_options(alternative):
                check_fields(alternative, value, option)
                return
            if BELOW in get_args(alternative):
                kind = get_args(alternative)[0]
                check_arguments(kind, value, {name: f"{option}.{name}" for name in value})
                check_complete(kind, value, option)
                return
    if fits(value, annotation):
        return
    # Of a list or a mapping the entry that is wrong is named.
    for place, entry, entry_type in _parts(value, annotation):
        check_value(f"{option}{place}", entry, entry_type)
    words = describe(annotation)
    if words.startswith("one of "):
        raise ValueError(f"{option}={shown(value)}: use {words}")
    raise ValueError(f"{option}={shown(value)} must be {words}")


def fits(value: Any, annotation: Any) -> bool:
    """Ask whether an annotation takes a value, without an error.

    >>> fits(3, Count), fits(0, Count), fits("3", Count)
    (True, False, False)
    """
    if annotation in (Any, inspect.Parameter.empty, object) or value is UNKNOWN:
        return True
    if isinstance(annotation, TypeVar):
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *marks = get_args(annotation)
        if not fits(value, base):
            return False
        # The range of an object that is not made yet cannot be known.
        if isinstance(value, Made):
            return True
        return all(mark.admits(value) for mark in marks if hasattr(mark, "admits"))
    if origin in (Union, types.UnionType):
        return any(fits(value, member) for member in get_args(annotation))
    if origin is Literal:
        # By type too, because 1 == True; and one by one, because a list has no hash.
        return any(
            type(value) is type(literal) and value == literal for literal in get_args(annotation)
        )
    if isinstance(value, Made):
        return _fits_made(value, origin or annotation)
    return _fits_plain(value, annotation, origin)


def _fits_plain(value: Any, annotation: Any, origin: Any) -> bool:
    """Whether a plain value is of a type that is no union, no literal and not annotated."""
    if annotation is None or annotation is type(None):
        return value is None
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if annotation is float:
        # A whole number may be too large for a float.
        return is_number(value) and abs(value) <= sys.float_info.max
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
        key_type, entry_type = get_args(annotation) or (Any, Any)
        if not isinstance(value, Mapping):
            return False
        return all(fits(key, key_type) and fits(entry, entry_type) for key, entry in value.items())
    if not isinstance(kind, type):
        return True
    if _declares_options(kind) and isinstance(value, Mapping):
        declared = annotations_of(kind)
        return all(fits(entry, declared.get(name, Any)) for name, entry in value.items())
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, (str, int, float, list, tuple, Mapping, type(None)))
    return isinstance(value, kind)


def _fits_list(value: Any, annotation: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return False
    if not isinstance(value, Sequence):
        # An array or a generator: whoever reads it looks at its entries.
        return True
    entry_types = _entry_types(annotation)
    if isinstance(entry_types, tuple):
        return len(value) == len(entry_types) and all(map(fits, value, entry_types))
    return all(fits(entry, entry_types) for entry in value)


def _fits_made(value: Made, kind: Any) -> bool:
    """Whether the object that a node is made into is of a class.

    What is not known, and what is a protocol, is taken to fit.
    """
    if kind in _NEVER_MADE:
        return False
    if value.kind is None or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return issubclass(value.kind, kind)


_PLAIN = (bool, int, float, str, Path, None, type(None))
_CONTAINERS = (Sequence, list, tuple, Iterable, Mapping, dict)
_NEVER_MADE = (*_PLAIN, *_CONTAINERS)
"""Types of which no node makes an object."""


def _entry_types(annotation: Any) -> Any:
    """The type of a list's entries; a tuple of them where each place has its own."""
    arguments = get_args(annotation)
    if not arguments:
        return Any
    if get_origin(annotation) is tuple and arguments[-1] is not Ellipsis:
        return arguments
    return arguments[0]


def _parts(value: Any, annotation: Any) -> Iterator[tuple[str, Any, Any]]:
    """Entries of a list or a mapping, each with its place and its type.

    None where each place has a type of its own.
    """
    for alternative in _alternatives(annotation):
        base = alternative
        if get_origin(alternative) is Annotated:
            base = get_args(alternative)[0]
        kind = get_origin(base)
        if kind in (Sequence, list, tuple) and isinstance(value, (list, tuple)):
            entry_type = _entry_types(base)
            if not isinstance(entry_type, tuple):
                for place, entry in enumerate(value):
                    yield f"[{place}]", entry, entry_type
            return
        if kind in (Mapping, dict) and isinstance(value, Mapping):
            entry_type = get_args(base)[1]
            for name, entry in value.items():
                yield f".{name}", entry, entry_type
            return


def annotations_of(call: Any) -> Mapping[str, Any]:
    """Types of a constructor's arguments by name, as far as they can be read."""
    return _annotations_of(getattr(call, "__func__", call))


@functools.cache
def _annotations_of(call: Any) -> Mapping[str, Any]:
    # A dataclass has its annotations at the class, any other at its constructor.
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
    """Those that can be read."""
    readable: dict[str, Any] = {}
    scope = getattr(source, "__globals__", {})
    for name, annotation in getattr(source, "__annotations__", {}).items():
        # typing reads the annotations of an object, all or none.
        stand_in = types.SimpleNamespace(__annotations__={name: annotation})
        # A library may import what it annotates with for type checkers alone.
        with contextlib.suppress(NameError, TypeError):
            readable |= typing.get_type_hints(stand_in, scope, include_extras=True)
    return readable


def describe(annotation: Any) -> str:
    """What an annotation takes, in words.

    >>> describe(Count | AllDocuments)
    'a whole number of at least 1, or null for all documents'
    """
    names: dict[str, None] = {}
    others: list[str] = []
    for alternative in _alternatives(annotation):
        words = _words(alternative)
        if words.startswith("one of "):
            names |= dict.fromkeys(words.removeprefix("one of ").split(", "))
        else:
            others.append(words)
    # The names of all alternatives are one list, which comes first.
    if names:
        others.insert(0, f"one of {', '.join(names)}")
    return ", or ".join(dict.fromkeys(others))


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union, null last; any other annotation alone."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return [annotation]
    members = []
    for member in get_args(annotation):
        members += _alternatives(member)
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
    """What an annotation that is no union takes."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, *marks = get_args(annotation)
        called = [mark.text for mark in marks if isinstance(mark, Called)]
        words = called[0] if called else describe(base)
        for mark in marks:
            # What a type is called says its range too.
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
        entry_types = _entry_types(annotation)
        if isinstance(entry_types, tuple):
            return f"a list of {len(entry_types)}"
        if entry_types is Any:
            return "a list"
        return f"a list in which each is {describe(entry_types)}"
    if kind in (Mapping, dict):
        return "a mapping of names to values"
    if _declares_options(kind):
        return "a mapping of options"
    name = str(getattr(kind, "__name__", kind))
    return f"an {name}" if name.startswith(tuple("AEIOU")) else f"a {name}"


def shown(value: Any) -> str:
    """A value as a command line has it, cut where it is long."""
    if isinstance(value, Made):
        return "a node" if value.kind is None else f"a {value.kind.__name__}"
    words = {None: "null", True: "true", False: "false", "": "''"}
    if value is None or (isinstance(value, (bool, str)) and value in words):
        return words[value]
    if isinstance(value, (list, tuple)):
        # A list of 100,000 entries is not written out to be cut.
        text = f"[{','.join(shown(entry) for entry in value[:_SHOWN])}]"
    else:
        text = " ".join(str(value).split()) or repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _declares_options(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


class Options:
    """Options that no constructor takes: annotations that :func:`check_fields` checks."""


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) and not math.isinf(value) else str(value)
