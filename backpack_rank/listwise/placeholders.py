"""What stands in place of the passages in a content-free prompt: the variants of paper 002, Table 3."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence

FIXED_STRING = "This is a placeholder"

PLACEHOLDERS: dict[str, Callable[[Sequence[str], random.Random], list[str]]] = {
    "fixed_string": lambda passages, _: [FIXED_STRING] * len(passages),
    "first_passage": lambda passages, _: [passages[0]] * len(passages),
    "space": lambda passages, _: [" "] * len(passages),
    "spaces_20": lambda passages, _: [" " * 20] * len(passages),
    "random_20": lambda passages, draw: [_random_text(20, draw)] * len(passages),
    "spaces_first": lambda passages, _: [" " * len(passages[0])] * len(passages),
    "random_first": lambda passages, draw: [_random_text(len(passages[0]), draw)] * len(passages),
    "spaces_each": lambda passages, _: [" " * len(passage) for passage in passages],
}
"""By name: passages and a source of random numbers -> what each is replaced by. Lengths are in characters.

The paper's names: Fixed String, Passage[1] Content, Empty (a space), Space x 20, Random x 20, Space x len[1],
Random x len[1], Space x len[i]. One random text stands in place of all passages of a list, as the other contents do.
"""


def placeholders(name: str, passages: Sequence[str], seed: int = 0) -> tuple[str, ...]:
    """The texts in place of these passages; the same ones for the same passages.

    Raises:
        ValueError: there is no such variant.
    """
    if name not in PLACEHOLDERS:
        raise ValueError(f"calibration.placeholder={name}: use one of {', '.join(PLACEHOLDERS)}")
    return tuple(PLACEHOLDERS[name](passages, random.Random(seed)))


def _random_text(length: int, draw: random.Random) -> str:
    return "".join(draw.choices(string.ascii_letters + string.digits, k=length))
