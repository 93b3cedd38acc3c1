"""docs/contributing/architecture.md lists the files that an option, a query and alpha pass; all are
followed through a small evaluation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from in_process import TEST_SPLIT, configured
from workplace import ROOT

from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.loading import save_ranker
from backpack_rank.pipelines import hydra_jobs
from backpack_rank.pipelines.evaluate import evaluate

ALPHA = 0.4375
"""A number that nothing else has."""


class Followed:
    """What an evaluation calls, from its task on, until it has written everything.

    Attributes:
        calls: files of all calls, in order.
        checks: how often alpha was checked.
        with_alpha: files in which a call took alpha, until the first multiplication.
        on_the_way: files of the calls that stood above that multiplication.
        weights: of the senses there.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.checks = 0
        self.with_alpha: set[str] = set()
        self.on_the_way: set[str] = set()
        self.weights: Any = None
        self._task: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        file = file_of(frame)
        if file is None:
            return
        if self._task is None:
            if (file, frame.f_code.co_name) != ("backpack_rank/pipelines/evaluate.py", "run"):
                return
            self._task = frame
        if self.calls[-1:] != [file]:
            self.calls.append(file)
        taken = [
            value for value in frame.f_locals.values() if type(value) is float and value == ALPHA
        ]
        if taken:
            self.checks += frame.f_code.co_name == "check_alpha"
            if self.weights is None:
                self.with_alpha.add(file)
        multiplies = (file, frame.f_code.co_name) == (
            "backpack_rank/models/rankers.py",
            "score_senses",
        )
        if multiplies and self.weights is None:
            self.weights = frame.f_locals["sense_weights"]
            self.on_the_way = set(filter(None, map(file_of, callers(frame, self._task))))


def callers(frame: FrameType, last: FrameType) -> Iterator[FrameType]:
    """A frame and all above it, up to the last."""
    above: FrameType | None = frame
    while above is not None:
        yield above
        above = None if above is last else above.f_back


def file_of(frame: FrameType) -> str | None:
    """Path of a frame's file as the documentation names it; None for files of others."""
    return _named(frame.f_code.co_filename)


@cache
def _named(file: str) -> str | None:
    path = Path(file)
    return (
        path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT / "backpack_rank") else None
    )


def listed(heading: str) -> list[str]:
    """Files that a list of the documentation names, in its order."""
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return list(dict.fromkeys(re.findall(r"`(backpack_rank/[\w/]+\.py)`", section)))


@pytest.fixture(scope="module")
def followed(make_backpack, tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """A small evaluation under alpha."""
    folder = tmp_path_factory.mktemp("ways")
    save_ranker(folder / "ranker", make_backpack(), PairTokenizer(tokenizer, 64))
    options = [
        f"checkpoint={folder / 'ranker'}",
        f"alpha={ALPHA}",
        "policy=lowest_senses",
        "swap=false",
    ]
    config = configured("evaluate", *options, *TEST_SPLIT, "bias.families=[RaB]", "cache.max_gb=0")
    record = Followed()
    before = sys.getprofile()
    sys.setprofile(record)
    try:
        evaluate(config, folder / "out", quiet=True)
    finally:
        sys.setprofile(before)
    return record


def test_an_option_passes_the_listed_functions_in_their_order(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
    section = " ".join(text.partition("## The way of an option\n")[2].partition("\n## ")[0].split())
    steps = re.findall(r"`(backpack_rank/[\w/]+\.py)` `(\w+)`", section)
    assert len(steps) == 7
    called: dict[tuple[str | None, str], None] = {}

    def record(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_name
        # Of the values that are looked at, that of alpha.
        of_alpha = name != "check_value" or frame.f_locals.get("option") == "alpha"
        if event == "call" and of_alpha and (file_of(frame), name) in steps:
            called.setdefault((file_of(frame), name))

    options = [f"alpha={ALPHA}", f"output={tmp_path}", "hydra/hydra_logging=none"]
    before = sys.getprofile()
    sys.setprofile(record)
    try:
        with pytest.raises(SystemExit):  # there is no trained ranker
            hydra_jobs.run("evaluate", options)
    finally:
        sys.setprofile(before)
    assert list(called) == steps


def test_alpha_is_checked_once(followed: Followed) -> None:
    assert followed.checks == 1


def test_alpha_reaches_the_senses_through_the_listed_files(followed: Followed) -> None:
    files = listed("The way of alpha")
    assert len(files) <= 8
    assert followed.with_alpha | followed.on_the_way == set(files)
    assert followed.weights is not None
    assert followed.weights.min() < 1


def test_a_query_passes_the_listed_files_in_their_order(followed: Followed) -> None:
    files = listed("The way of a query")
    assert len(files) <= 10
    calls = iter(followed.calls)
    assert [file for file in files if file not in calls] == [], "looked for one behind the other"
    # All that stands above the multiplication is on the way of a query.
    assert followed.on_the_way <= set(files)
