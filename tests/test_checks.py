"""Checks of options: what passes, and the sentence of what does not."""

from __future__ import annotations

import math
import re

import pytest

from backpack_rank import checks


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda: checks.one_of("task.match", "some", ("offsets", "all")),
            "task.match=some: use one of offsets, all",
        ),
        (lambda: checks.at_least("size", 1, 2, " passages"), "size=1 must be at least 2 passages"),
        (
            lambda: checks.at_least("depth", 0, 1, null="for all"),
            "depth=0 must be at least 1, or null for all",
        ),
        (lambda: checks.at_least("depth", None, 1), "depth=None must be at least 1"),
        (lambda: checks.at_least("noise", math.nan, 0), "noise=nan must be at least 0"),
        (lambda: checks.above("rate", 0.0, 0), "rate=0.0 must be above 0"),
        (lambda: checks.above("limit", -1.0, 0, null=""), "limit=-1.0 must be above 0, or null"),
        (
            lambda: checks.finite("weight", math.inf, 0),
            "weight=inf must be a finite number of at least 0",
        ),
        (
            lambda: checks.finite("weight", -1.0, 0),
            "weight=-1.0 must be a finite number of at least 0",
        ),
        (lambda: checks.finite("threshold", math.nan), "threshold=nan must be a finite number"),
        (lambda: checks.fraction("b", 1.5), "b=1.5 must lie in [0, 1]"),
        (lambda: checks.fraction("b", math.nan), "b=nan must lie in [0, 1]"),
        (lambda: checks.fraction("dropout", 1.0, ends="[)"), "dropout=1.0 must lie in [0, 1)"),
        (lambda: checks.fraction("floor", 0.0, ends="(]"), "floor=0.0 must lie in (0, 1]"),
        (
            lambda: checks.whole_number("depth", 2.5, 1),
            "depth=2.5 must be a whole number of at least 1",
        ),
        (
            lambda: checks.whole_number("depth", True, 1),
            "depth=True must be a whole number of at least 1",
        ),
    ],
)
def test_the_sentence_names_option_value_and_what_may_be_given(check, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
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
    checks.whole_number("depth", 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "1_0",
        "\uff11",
        "\u0661",
        "nan",
        "inf",
        "-Infinity",
        "1e999",
        "",
        "0x10",
        "--1",
        "1,5",
        "9" * 400,
    ],
)
def test_what_only_python_takes_for_a_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        checks.decimal(text)
    with pytest.raises(ValueError, match="is no integer"):
        checks.integer(text)


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1.0), ("-1.5e-3", -0.0015), (".5", 0.5), ("+2.", 2.0), ("1E5", 1e5)]
)
def test_decimal_numbers_are_read_as_everywhere(text: str, number: float) -> None:
    assert checks.decimal(text) == number


def test_whole_numbers_have_64_bits() -> None:
    assert checks.integer("-9223372036854775807") == -(2**63) + 1
    for text in ("9223372036854775808", "1.0", "1e3", "0" * 50):
        with pytest.raises(ValueError, match="is no integer"):
            checks.integer(text)


def test_truth_values_and_texts_are_no_numbers() -> None:
    for value in (True, "3", [1], {}, None, 10**400):
        with pytest.raises(ValueError, match=r"^x=.* must be a finite number"):
            checks.finite("x", value)
    for value in ("no", 0, None, "true"):
        with pytest.raises(ValueError, match=r"^x=.* must be true or false"):
            checks.flag("x", value)
    with pytest.raises(ValueError, match="x=9 must be at most 5"):
        checks.whole_number("x", 9, 1, most=5)
    with pytest.raises(ValueError, match="use one of a, b"):
        checks.one_of("x", ["a"], {"a": 1, "b": 2})
