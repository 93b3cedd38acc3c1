"""Texts of anybody's on the terminal, and which process says something there."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backpack_rank.progress import is_first_process, printable


@given(text=st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    shown = printable(text)
    assert {unicodedata.category(letter) for letter in shown} & {"Cc", "Cs", "Zl", "Zp"} <= {"Cc"}
    assert {letter for letter in shown if unicodedata.category(letter) == "Cc"} <= {"\t", "\n"}
    shown.encode()


def test_escape_sequences_are_written_out_and_texts_stay() -> None:
    assert printable("\x1b]0;root\x07\x1b[2Jx\x9b31m") == "\\x1b]0;root\\x07\\x1b[2Jx\\x9b31m"
    assert printable("abc\u202edcba") == "abc\\u202edcba"
    text = "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600\n\ttab"
    assert printable(text) == text


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0"}, True),
        ({"LOCAL_RANK": "1"}, False),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, False),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}, True),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "3"}, True),
    ],
)
def test_one_process_of_a_training_is_the_first(
    monkeypatch: pytest.MonkeyPatch, variables, first: bool
) -> None:
    for name in ("LOCAL_RANK", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() is first
