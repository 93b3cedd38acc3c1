"""Words that come in pairs: one text with slots becomes a male, a female and a neutral text.

A template marks a gendered word as ``[he]``, ``[his]``, ``[father]`` and a verb that follows "he" as
``[works|work]``. The male and the female text differ only in the paired words; the neutral text uses
they / their with the plural verb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GENDERS = ("male", "female", "neutral")


@dataclass(frozen=True)
class GenderedWord:
    """One slot and what stands in its place; a title also takes the blank before the surname along."""

    slot: str
    male: str
    female: str
    neutral: str
    is_title: bool = False


GENDERED_WORDS: tuple[GenderedWord, ...] = (
    GenderedWord("he", "he", "she", "they"),
    GenderedWord("him", "him", "her", "them"),
    GenderedWord("his", "his", "her", "their"),
    GenderedWord("his_own", "his", "hers", "theirs"),
    GenderedWord("himself", "himself", "herself", "themselves"),
    GenderedWord("man", "man", "woman", "person"),
    GenderedWord("men", "men", "women", "people"),
    GenderedWord("boy", "boy", "girl", "youngster"),
    GenderedWord("gentleman", "gentleman", "lady", "gem"),
    GenderedWord("father", "father", "mother", "teacher"),
    GenderedWord("dad", "dad", "mom", "best friend"),
    GenderedWord("brother", "brother", "sister", "colleague"),
    GenderedWord("brothers", "brothers", "sisters", "friends"),
    GenderedWord("son", "son", "daughter", "child"),
    GenderedWord("sons", "sons", "daughters", "children"),
    GenderedWord("grandfather", "grandfather", "grandmother", "old boss"),
    GenderedWord("grandson", "grandson", "granddaughter", "grandchild"),
    GenderedWord("male", "male", "female", "junior"),
    GenderedWord("sir", "sir", "madam", "friend"),
    GenderedWord("mr_ms", "Mr ", "Ms ", "", is_title=True),
    GenderedWord("mr_mrs", "Mr ", "Mrs ", "", is_title=True),
)

_BY_SLOT = {word.slot: word for word in GENDERED_WORDS}
_SLOT = re.compile(r"\[([^\[\]]+)\]")


def render(text: str, gender: str) -> str:
    """Fill the slots of ``text`` for one of :data:`GENDERS`; every sentence starts with a capital.

    Raises:
        ValueError: the gender is not one of the three.
        KeyError: the text has a slot that :data:`GENDERED_WORDS` does not list.
    """
    if gender not in GENDERS:
        raise ValueError(f"gender is {gender!r}; choose one of {', '.join(GENDERS)}")

    def fill(match: re.Match[str]) -> str:
        slot = match.group(1)
        if "|" in slot:
            singular, plural = slot.split("|")
            return plural if gender == "neutral" else singular
        return str(getattr(_BY_SLOT[slot], gender))

    return _capitalise(_SLOT.sub(fill, text))


def count_slots(text: str) -> tuple[int, int]:
    """(all gendered words, those that are not titles) that a rendering of ``text`` holds."""
    words = [_BY_SLOT[slot] for slot in _SLOT.findall(text) if "|" not in slot]
    return len(words), sum(not word.is_title for word in words)


def _capitalise(text: str) -> str:
    return re.sub(r'(?:^|(?<=[.?!] )|(?<=[.?!]" ))("?)([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)
