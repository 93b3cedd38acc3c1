"""Renditions of your own: texts that people or programs wrote for each group.

They stand in place of those that word lists make (:mod:`backpack_rank.attributes.renditions`), for
other languages, dialects, names, or what a word list cannot write.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from backpack_rank.data.json_lines import read_jsonl, text_under
from backpack_rank.data.text_files import fail
from backpack_rank.digests import digest

_LEAST_BEGINNING = 500
"""Characters: a shorter text is read whole, by rankers of 25 tokens or more."""
Writer: TypeAlias = Callable[[str, str], str]
"""Writes a text for a group: ``write("Sie kam.", "male") == "Er kam."``"""


class OwnRenditions(ABC):
    """Texts written for each of K groups, by something else than word lists.

    A mean over them is the same for two texts whose renditions are the same, :meth:`same`.

    Attributes:
        groups: their names. [K]
        key: another one where a rendition may differ.
        incomplete: no class of words lacks a group.
    """

    groups: tuple[str, ...]
    key: str
    incomplete: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @abstractmethod
    def texts(self, text: str) -> tuple[str, ...]:
        """The text for each group; that text alone, K times, where nothing is rewritten. [K]"""

    def __call__(
        self, text: str, group: int, kept_names: Collection[str] = (), neutral: bool = False
    ) -> str:
        """The text for one group; the other arguments are those of word lists."""
        return self.texts(text)[group]

    def kept_names(self, query: str) -> frozenset[str]:
        """First names are whatever the renditions make of them."""
        return frozenset()

    def moves(self, text: str, kept_names: Collection[str] = ()) -> bool:
        """Whether any rendition is another text."""
        return any(written != text for written in self.texts(text))

    def same(
        self, text: str, other: str, kept_names: Collection[str] = (), in_order: bool = False
    ) -> bool:
        """Whether two texts have the same renditions: then their means agree.

        Args:
            text, other: the texts.
            kept_names: as in :meth:`kept_names`.
            in_order: each group's must be the same. Else it may be that of another group.
        """
        if in_order:
            return self.texts(text) == self.texts(other)
        return sorted(self.texts(text)) == sorted(self.texts(other))

    def is_closed(self, text: str, in_order: bool = False) -> bool:
        """Whether rewriting any rendition of the text gives the same renditions again."""
        return all(self.same(text, written, in_order=in_order) for written in self.texts(text))


class GivenTexts(OwnRenditions):
    """Renditions from a file; a text that it does not have stays as it is.

    JSON lines with an id, a group and a text each. Lines of one id are the renditions of one text,
    which is one of them::

        {"id": "7", "group": "female", "text": "Die Ärztin kam."}
        {"id": "7", "group": "male", "text": "Der Arzt kam."}
    """

    def __init__(self, path: str | Path) -> None:
        """
        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a line without one of the three, an id that lacks a group or has one twice,
                or a text that stands under two ids with different renditions.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"policy.texts: there is no file {path}")
        by_id: dict[str, dict[str, str]] = {}
        last_line: dict[str, int] = {}
        groups: dict[str, None] = {}
        for number, (identifier, group, text) in read_jsonl(path, _line):
            texts = by_id.setdefault(identifier, {})
            if group in texts:
                fail(path, number, f"id {identifier!r} has a text for {group!r} in a line above")
            texts[group] = text
            last_line[identifier] = number
            groups[group] = None
        if len(groups) < 2:
            raise ValueError(f"{path}: texts for two groups or more are needed")
        self.groups = tuple(groups)
        self._texts: dict[str, tuple[str, ...]] = {}
        for identifier, texts in by_id.items():
            lacking = [group for group in groups if group not in texts]
            if lacking:
                fail(
                    path,
                    last_line[identifier],
                    f"id {identifier!r} has no text for {', '.join(lacking)}",
                )
            written = tuple(texts[group] for group in groups)
            for text in written:
                known = self._texts.setdefault(text, written)
                # Whose renditions would be read?
                if sorted(known) != sorted(written):
                    fail(
                        path,
                        last_line[identifier],
                        f"a text of id {identifier!r} stands above with other renditions",
                    )
        self._sorted = sorted(self._texts)
        content = sorted(self._texts.items())
        self.key = digest(repr((self.groups, content)), size=8)

    def texts(self, text: str) -> tuple[str, ...]:
        known = self._texts.get(text) or self._of_beginning(text)
        return known or (text,) * len(self.groups)

    def _of_beginning(self, text: str) -> tuple[str, ...] | None:
        """The renditions of the one text that begins so: rankers read no more of a long one."""
        if len(text) < _LEAST_BEGINNING:
            return None
        place = bisect_left(self._sorted, text)
        longer = [known for known in self._sorted[place : place + 2] if known.startswith(text)]
        return self._texts[longer[0]] if len(longer) == 1 else None


class WrittenTexts(OwnRenditions):
    """Renditions that a function writes; each text is written once for each group.

    >>> def formal(text, group):
    ...     return text.replace("Hi", "Hello") if group == "formal" else text
    >>> WrittenTexts(formal, ["formal", "casual"]).texts("Hi there")
    ('Hello there', 'Hi there')
    """

    def __init__(self, write: Writer, groups: Sequence[str], typed: str | None = None) -> None:
        """
        Args:
            write: the function.
            groups: that it writes for.
            typed: its name on the command line, ``module:function``; None: it is given from Python.
        """
        self.groups = tuple(groups)
        self._write = write
        self._name = f"{getattr(write, '__module__', '')}:{getattr(write, '__qualname__', write)}"
        self._written: dict[str, tuple[str, ...]] = {}
        version = None if typed is None else _version(write, typed)
        # Two functions of one name are two: nobody knows what they read beside the text.
        identity = (self._name, id(write)) if version is None else version
        self.key = digest(repr((self.groups, *identity)), size=8)

    def texts(self, text: str) -> tuple[str, ...]:
        if text not in self._written:
            written = []
            for group in self.groups:
                found = self._write(text, group)
                if not isinstance(found, str) or not found.strip():
                    raise ValueError(
                        f"policy.write: {self._name} gives {found!r} for {group!r}, and not a text"
                    )
                written.append(found)
            self._written[text] = tuple(written)
        return self._written[text]


def _version(write: Writer, typed: str) -> tuple[str, ...] | None:
    """What tells a typed function from others in every process: its name, and digests of sources.

    They are those of the module that was typed, and of that which defines the function. None: a
    module has no file.
    """
    modules = [typed.partition(":")[0], getattr(write, "__module__", None)]
    digests = []
    for module in modules:
        path = getattr(sys.modules.get(module or ""), "__file__", None)
        if path is None:
            return None
        with open(path, "rb") as file:
            digests.append(digest(file))
    return (typed, *digests)


def _line(record: dict[str, Any]) -> tuple[str, str, str]:
    identifier = record.get("id")
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        raise ValueError("expected an id under 'id', a text or a whole number")
    text = text_under(record, "text")
    if not text.strip():
        raise ValueError("the text is empty")
    return str(identifier), text_under(record, "group"), text
