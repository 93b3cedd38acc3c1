"""The texts of the synthetic collection: reads the YAML files of this folder and checks them.

What the lists are, and what their placeholders and slots mean, stands in the files. Texts are drawn
by their place in a list: an entry that is added, removed or moved changes the collection of every
seed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias

from backpack_rank.files import read_yaml

FOLDER = Path(__file__).parent
SKILLS_EACH = 5
SLOT = re.compile(r"\[([^\[\]]+)\]")

Texts: TypeAlias = tuple[str, ...]
Skill: TypeAlias = tuple[str, ...]
"""Three phrases that mean the same."""


@dataclass(frozen=True)
class Occupation:
    """An entry of ``occupations.yaml``; occupations of one family are related."""

    key: str
    family: str
    names: Texts
    field: str
    skills: tuple[Skill, ...]


class Lists(dict[str, Texts]):
    """Lists by name: an unknown name raises ``ValueError``, which names the file."""

    def __init__(self, path: Path, lists: Mapping[str, Texts]) -> None:
        super().__init__(lists)
        self._path = path

    def __missing__(self, name: str) -> Texts:
        raise ValueError(f"{self._path}: there is no list {name!r}")


def read_lists(
    path: Path, placeholders: Collection[str] = (), slots: Collection[str] = ()
) -> Lists:
    """Read ``{name: [text, ...]}``.

        sentences = read_lists(FOLDER / "sentences.yaml", ("name", "job"), ("he", "his"))

    Args:
        path: the file.
        placeholders: names that may stand in braces.
        slots: names that may stand in square brackets, beside verbs in two forms as in
            ``[works|work]``.

    Raises:
        ValueError: an entry is no text or stands there twice, or has an unknown placeholder or
            slot. The sentence names the file, the list and the number of the entry.
    """
    lists: dict[str, Texts] = {}
    for name, value in _read(path).items():
        lists[name] = _texts(value, f"{path}, {name}")
    for name, texts in lists.items():
        for number, text in enumerate(texts, start=1):
            where = f"{path}, {name}, entry {number}: {text!r}"
            try:
                parts = list(Formatter().parse(text))
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            used = {field for _, field, _, _ in parts if field is not None}
            if not used <= set(placeholders):
                raise ValueError(
                    f"{where} has a placeholder other than {', '.join(placeholders) or 'none'}"
                )
            if not all(slot in slots or slot.count("|") == 1 for slot in SLOT.findall(text)):
                raise ValueError(f"{where} has a slot other than {', '.join(slots) or 'none'}")
            if re.search(r"[\[\]]", SLOT.sub("", text)):
                raise ValueError(f"{where} has a square bracket without its other half")
    return Lists(path, lists)


def read_occupations(path: Path) -> tuple[Occupation, ...]:
    """Read ``{family: {key: {names: [...], field: ..., skills: [[...], ...]}}}``.

        occupations = read_occupations(FOLDER / "occupations.yaml")

    Raises:
        ValueError: a family has fewer than two occupations, or an occupation has not at least two
            names, one field and five skills of three phrases. The sentence names the file, the
            family and the occupation.
    """
    occupations = []
    for family, members in _read(path).items():
        if len(_mapping(members, f"{path}, {family}")) < 2:
            raise ValueError(f"{path}, {family}: give at least two occupations")
        for key, value in members.items():
            where = f"{path}, {family}, {key}"
            entry = _mapping(value, where, {"names", "field", "skills"})
            names = _texts(entry["names"], f"{where}, names")
            (field,) = _texts([entry["field"]], f"{where}, field")
            phrases = entry["skills"]
            if len(names) < 2 or not isinstance(phrases, list) or len(phrases) != SKILLS_EACH:
                raise ValueError(f"{where}: give at least two names and {SKILLS_EACH} skills")
            skills = []
            for number, skill in enumerate(phrases, start=1):
                skills.append(_texts(skill, f"{where}, skill {number}", size=3))
            occupations.append(
                Occupation(key, family, names=names, field=field, skills=tuple(skills))
            )
    return tuple(occupations)


def read_slots(path: Path) -> tuple[dict[str, Texts], dict[str, Texts]]:
    """Read words, ``{slot: (male, female, neutral)}``; titles have no neutral one.

        words, titles = read_slots(FOLDER / "gendered_words.yaml")

    Raises:
        ValueError: a slot has not so many texts. The sentence names the file and the slot.
    """
    parts = _mapping(_read(path), str(path), {"words", "titles"})
    words: dict[str, Texts] = {}
    for slot, texts in _mapping(parts["words"], "words").items():
        words[slot] = _texts(texts, f"{path}, words, {slot}", size=3)
    titles: dict[str, Texts] = {}
    for slot, texts in _mapping(parts["titles"], "titles").items():
        titles[slot] = _texts(texts, f"{path}, titles, {slot}", size=2)
    return words, titles


def _read(path: Path) -> Mapping[str, Any]:
    return _mapping(read_yaml(path), str(path))


def _mapping(value: Any, where: str, names: Collection[str] = ()) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: give names with their entries, not {value!r}")
    if names and set(value) != set(names):
        raise ValueError(
            f"{where}: give {', '.join(sorted(names))}, not {', '.join(map(str, value))}"
        )
    return value


def _texts(value: Any, where: str, size: int | None = None) -> Texts:
    if not isinstance(value, list) or not value or (size is not None and len(value) != size):
        raise ValueError(f"{where}: give a list of {size or 'one or more'} texts, not {value!r}")
    for number, text in enumerate(value, start=1):
        if not isinstance(text, str) or not text:
            raise ValueError(
                f"{where}, entry {number}: {text!r} is no text; put quotes around words like no "
                "and on"
            )
        if value.count(text) > 1:
            raise ValueError(f"{where}, entry {number}: {text!r} stands there twice")
    return tuple(value)
