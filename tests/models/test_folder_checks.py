"""A saved ranker that was damaged or changed is refused with the name of the file, not loaded into
other scores.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from damaged_folders import CONFIG, DAMAGES, QUIET, TOKENIZER, WEIGHTS, config

from backpack_rank.models.folder_checks import CHECKSUMS, check_files
from backpack_rank.models.loading import load_ranker, save_ranker


@pytest.fixture
def saved(tmp_path, make_backpack, pair_tokenizer) -> Path:
    """The folder as it was saved, with checksums."""
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    return tmp_path / "ranker"


@pytest.fixture(params=["with checksums", "without"])
def folder(request, saved) -> Path:
    if request.param == "without":
        (saved / CHECKSUMS).unlink()
    return saved


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_and_named(folder: Path, damage: str) -> None:
    DAMAGES[damage](folder)
    with pytest.raises((ValueError, OSError)) as refused:
        load_ranker(folder)
    message = str(refused.value)
    assert str(folder) in message or "max_length=" in message
    assert len(message.splitlines()) <= 4, message


@pytest.mark.parametrize("damage", QUIET)
def test_what_no_glance_can_tell_is_told_by_the_checksums(saved, damage) -> None:
    QUIET[damage](saved)
    with pytest.raises(
        ValueError,
        match=r"(config\.json|model\.safetensors|tokenizer\.json) .*delete checksums\.json",
    ):
        load_ranker(saved)


def test_a_changed_file_that_is_meant_is_taken_without_the_checksums(saved) -> None:
    config(max_pair_length=24)(saved)
    with pytest.raises(ValueError, match=r"config\.json has .* bytes and was saved with"):
        load_ranker(saved)
    (saved / CHECKSUMS).unlink()
    assert load_ranker(saved)[1].max_length == 24


@pytest.mark.parametrize(
    "name",
    [
        "adapter_config.json",
        "adapter_model.safetensors",
        "generation_config.json",
        "added_tokens.json",
        "vocab.txt",
        "pytorch_model.bin",
        "chat_template.jinja",
        "evil.py",
        "model-00002-of-00002.safetensors",
        "additional_chat_templates/more.jinja",
        "custom_generate/generate",
    ],
)
def test_a_file_that_was_added_and_could_be_read_is_refused(saved, name) -> None:
    file = saved / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    with pytest.raises(
        ValueError, match=rf"{file} was not saved with this ranker: .*or delete checksums\.json"
    ):
        load_ranker(saved)


def test_an_adapter_is_refused_in_any_folder(saved) -> None:
    (saved / CHECKSUMS).unlink()
    (saved / "adapter_config.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"adapter_config\.json: an adapter beside the weights changes scores"
    ):
        load_ranker(saved)


def test_what_people_add_does_not_keep_a_ranker_from_loading(saved) -> None:
    for name in (
        "README.md",
        ".gitattributes",
        ".gitignore",
        "LICENSE",
        "LICENSE.txt",
        "requirements.txt",
        "picture.png",
        "notes.md",
        "model.onnx",
        "onnx/config.json",
        ".cache/huggingface/x.json",
        "1_Pooling/a.json",
    ):
        (saved / name).parent.mkdir(parents=True, exist_ok=True)
        (saved / name).write_text("{}")
    assert load_ranker(saved)[1].max_length == 48


SPECIAL_TOKENS = {
    "no end token": {"eos_token": None},
    "another end token": {"eos_token": "e"},
    "no separator": {"sep_token": None},
    "another separator": {"sep_token": "s"},
}


@pytest.mark.parametrize("change", SPECIAL_TOKENS)
def test_other_special_tokens_are_refused_because_every_score_would_be_another(
    folder, change
) -> None:
    file = folder / "tokenizer_config.json"
    (folder / CHECKSUMS).unlink(missing_ok=True)
    file.write_text(json.dumps(json.loads(file.read_text()) | SPECIAL_TOKENS[change]))
    with pytest.raises(
        ValueError, match=r"puts tokens \[.*the ranker was saved with \[None, 1, 0\]"
    ):
        load_ranker(folder)


def test_a_missing_end_token_is_told_in_folders_that_do_not_name_it(folder) -> None:
    (folder / CHECKSUMS).unlink(missing_ok=True)
    (folder / CONFIG).write_text(
        json.dumps(_without(json.loads((folder / CONFIG).read_text()), "pair_token_ids"))
    )
    file = folder / "tokenizer_config.json"
    assert load_ranker(folder)[1].end_id == 0
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token": None}))
    with pytest.raises(
        ValueError, match=r"trained with an end token \(eos_token_id=0\) and the tokenizer has none"
    ):
        load_ranker(folder)


def _without(content: dict, name: str) -> dict:
    return {key: value for key, value in content.items() if key != name}


def test_a_token_without_a_row_of_embeddings_is_refused(folder) -> None:
    (folder / CHECKSUMS).unlink(missing_ok=True)
    content = json.loads((folder / TOKENIZER).read_text())
    word = max(content["model"]["vocab"], key=content["model"]["vocab"].get)
    content["model"]["vocab"][word] = 40_000
    (folder / TOKENIZER).write_text(json.dumps(content))
    with pytest.raises(
        ValueError,
        match=r"has a token of number 40000 and the weights have embeddings .* below 4\d\d",
    ):
        load_ranker(folder)


def _with_rule(folder: Path, pattern: str) -> None:
    (folder / CHECKSUMS).unlink(missing_ok=True)
    content = json.loads((folder / TOKENIZER).read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / TOKENIZER).write_text(json.dumps(content))


def test_a_rule_of_the_tokenizer_that_is_none_is_one_sentence(folder) -> None:
    _with_rule(folder, "(")
    with pytest.raises(ValueError, match=f"{folder} cannot be loaded: .*parenthesis") as refused:
        load_ranker(folder)
    assert len(str(refused.value).splitlines()) == 1


def test_a_panic_of_the_tokenizer_is_one_sentence(folder) -> None:
    _with_rule(folder, "(a+)+$")
    pair_tokenizer = load_ranker(folder)[1]
    with pytest.raises(
        ValueError, match=f"{folder}: the tokenizer cannot read texts .*retry-limit"
    ) as refused:
        pair_tokenizer.pairs("who", ["a" * 40 + "!"])  # a PanicException, which is no Exception
    assert len(str(refused.value).splitlines()) == 1


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
    with pytest.raises(
        ValueError, match=r"checksums\.json (does not hold|is not of the form).*delete it"
    ):
        check_files(tmp_path)


def test_the_checksums_are_those_that_every_tool_computes(saved, pair_tokenizer) -> None:
    content = json.loads((saved / CHECKSUMS).read_text())
    assert {CONFIG, WEIGHTS, TOKENIZER} <= content["files"].keys()
    assert content["tokens"] == len(pair_tokenizer.tokenizer)
    for name, noted in content["files"].items():
        raw = (saved / name).read_bytes()
        assert noted == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
