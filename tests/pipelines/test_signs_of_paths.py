"""Paths with signs that Hydra's grammar has no place for are values all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from backpack_rank.checks import UsageError
from backpack_rank.pipelines.given import check, composed

NAMES = ["jürgen.trec", "~r.trec", "a!b.trec", "a#1.trec", "{b}.trec", "日本.trec"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_list", [False, True])
def test_a_path_is_read_as_it_is_typed(tmp_path: Path, name: str, in_list: bool) -> None:
    path, plain = tmp_path / name, tmp_path / "b.trec"
    for file in (path, plain):
        file.write_text("q Q0 d 1 1 t\n")
    value = f"[{plain},{path}]" if in_list else str(path)
    found = composed("evaluate", check("evaluate", [f"run={value}"])).run
    assert (list(found) if in_list else found) == ([str(plain), str(path)] if in_list else value)


def test_what_may_mean_two_things_is_refused_with_its_sign() -> None:
    with pytest.raises(UsageError, match="commas, ü or = in it is put in two pairs of quotes"):
        check("evaluate", ["run=/a/ü,b"])
