"""Words that come in pairs: one text with slots becomes a male, a female and a neutral text.

A template marks a gendered word as ``[he]``, ``[his]``, ``[father]`` and a verb that follows "he" as
``[works|work]``. The male and the female text differ only in the paired words; the neutral text uses
they / their with the plural verb.
"""

from __future__ import annotations

import re

from backpack_rank.data.synthetic.resources import FOLDER, SLOT, read_slots

GENDERS = ("male", "female", "neutral")
GENDERED_WORDS, TITLES = read_slots(FOLDER / "gendered_words.yaml")


def render(text: str, gender: str) -> str:
    """Fill the slots of ``text`` for one of :data:`GENDERS`; every sentence starts with a capital.

    Raises:
        ValueError: the gender is not one of the three.
        KeyError: the text has a slot that ``gendered_words.yaml`` does not list.
    """
    if gender not in GENDERS:
        raise ValueError(f"gender is {gender!r}; choose one of {', '.join(GENDERS)}")

    def fill(match: re.Match[str]) -> str:
        slot = match.group(1)
        if "|" in slot:
            singular, plural = slot.split("|")
            return plural if gender == "neutral" else singular
        if slot in TITLES:  # a neutral text has none, nor the blank before the surname
            return "" if gender == "neutral" else f"{TITLES[slot][GENDERS.index(gender)]} "
        return GENDERED_WORDS[slot][GENDERS.index(gender)]

    return _capitalise(SLOT.sub(fill, text))


def count_slots(text: str) -> tuple[int, int]:
    """(all gendered words, those that are not titles) that a rendering of ``text`` holds."""
    slots = [slot for slot in SLOT.findall(text) if "|" not in slot]
    return len(slots), sum(slot not in TITLES for slot in slots)


def _capitalise(text: str) -> str:
    return re.sub(r'(?:^|(?<=[.?!] )|(?<=[.?!]" ))("?)([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)
