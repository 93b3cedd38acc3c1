"""Checks of options: what passes, and the sentence of what does not."""

from __future__ import annotations

import math
import re

import pytest

from backpack_rank import checks


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: checks.one_of("task.match", "some", ("offsets", "all")), "task.match=some: use one of offsets, all"),
        (lambda: checks.at_least("size", 1, 2, " passages"), "size=1 must be at least 2 passages"),
        (lambda: checks.at_least("depth", 0, 1, null="for all"), "depth=0 must be at least 1, or null for all"),
        (lambda: checks.at_least("depth", None, 1), "depth=None must be at least 1"),
        (lambda: checks.at_least("noise", math.nan, 0), "noise=nan must be at least 0"),
        (lambda: checks.above("rate", 0.0, 0), "rate=0.0 must be above 0"),
        (lambda: checks.above("limit", -1.0, 0, null=""), "limit=-1.0 must be above 0, or null"),
        (lambda: checks.finite("weight", math.inf, 0), "weight=inf must be a finite number of at least 0"),
        (lambda: checks.finite("weight", -1.0, 0), "weight=-1.0 must be a finite number of at least 0"),
        (lambda: checks.finite("threshold", math.nan), "threshold=nan must be a finite number"),
        (lambda: checks.fraction("b", 1.5), "b=1.5 must lie in [0, 1]"),
        (lambda: checks.fraction("b", math.nan), "b=nan must lie in [0, 1]"),
        (lambda: checks.fraction("dropout", 1.0, ends="[)"), "dropout=1.0 must lie in [0, 1)"),
        (lambda: checks.fraction("floor", 0.0, ends="(]"), "floor=0.0 must lie in (0, 1]"),
        (lambda: checks.whole("depth", 2.5, 1), "depth=2.5 must be a whole number of at least 1"),
        (lambda: checks.whole("depth", True, 1), "depth=True must be a whole number of at least 1"),
    ],
)
def test_the_sentence_names_option_value_and_what_may_be_given(check, said) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check()


def test_what_is_in_range_passes() -> None:
    checks.one_of("task.match", "all", ("offsets", "all"))
    checks.at_least("size", 2, 2)
    checks.at_least("longest_wait", math.inf, 0)
    checks.at_least("depth", None, 1, null="for all")
    checks.above("limit", 0.1, 0)
    checks.above("limit", None, 0, null="")
    checks.finite("threshold", -3.0)
    checks.fraction("b", 0.0)
    checks.fraction("dropout", 0.0, ends="[)")
    checks.fraction("floor", 1, ends="(]")
    checks.whole("depth", 1, 1)
