"""A saved ranker that was damaged or changed is refused with the name of the file, not loaded into other scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from damaged_folders import CONFIG, DAMAGES, QUIET, TOKENIZER, WEIGHTS, config

from backpack_rank.models.factory import load_ranker, save_ranker
from backpack_rank.models.folder_checks import CHECKSUMS, check_files


@pytest.fixture(params=["with checksums", "without"])
def folder(request, tmp_path, make_backpack, pair_tokenizer) -> Path:
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    if request.param == "without":
        (tmp_path / "ranker" / CHECKSUMS).unlink()
    return tmp_path / "ranker"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_and_named(folder: Path, damage: str) -> None:
    DAMAGES[damage](folder)
    with pytest.raises((ValueError, OSError)) as refused:
        load_ranker(folder)
    said = str(refused.value)
    assert str(folder) in said or "max_length=" in said
    assert len(said.splitlines()) <= 4, said


@pytest.mark.parametrize("damage", QUIET)
def test_what_no_glance_can_tell_is_told_by_the_checksums(tmp_path, make_backpack, pair_tokenizer, damage) -> None:
    folder = tmp_path / "ranker"
    save_ranker(folder, make_backpack(layers=1), pair_tokenizer)
    QUIET[damage](folder)
    with pytest.raises(ValueError, match=r"(config\.json|model\.safetensors|tokenizer\.json) .*delete checksums\.json"):
        load_ranker(folder)


def test_a_changed_file_that_is_meant_is_taken_without_the_checksums(tmp_path, make_backpack, pair_tokenizer) -> None:
    folder = tmp_path / "ranker"
    save_ranker(folder, make_backpack(layers=1), pair_tokenizer)
    (folder / "README.md").write_text("a card\n")
    assert load_ranker(folder)[1].max_length == 48
    config(max_pair_length=24)(folder)
    with pytest.raises(ValueError, match=r"config\.json has .* bytes and was saved with"):
        load_ranker(folder)
    (folder / CHECKSUMS).unlink()
    assert load_ranker(folder)[1].max_length == 24


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "[" * 50_000),
        '{"format": "backpack_rank checksums 9", "files": {}}',
        '{"format": "backpack_rank checksums 1", "files": {"../../x": {"bytes": 1, "sha256": ""}}}',
    ],
)
def test_broken_checksums_are_named(tmp_path, content) -> None:
    (tmp_path / CHECKSUMS).write_text(content)
    with pytest.raises(ValueError, match=r"checksums\.json (does not hold|is not of the form).*delete it"):
        check_files(tmp_path)


def test_the_checksums_are_those_that_every_tool_computes(tmp_path, make_backpack, pair_tokenizer) -> None:
    import hashlib

    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    content = json.loads((tmp_path / "ranker" / CHECKSUMS).read_text())
    assert {CONFIG, WEIGHTS, TOKENIZER} <= content["files"].keys()
    assert content["tokens"] == len(pair_tokenizer.tokenizer)
    for name, saved in content["files"].items():
        raw = (tmp_path / "ranker" / name).read_bytes()
        assert saved == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
