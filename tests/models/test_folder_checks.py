"""A saved ranker that was damaged or changed is refused with the name of the file, not loaded into
other scores.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from damaged_folders import CONFIG, DAMAGES, QUIET, TOKENIZER, WEIGHTS, config

from backpack_rank.models.folder_checks import CHECKSUMS, check_files
from backpack_rank.models.loading import load_ranker, save_ranker


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
    message = str(refused.value)
    assert str(folder) in message or "max_length=" in message
    assert len(message.splitlines()) <= 4, message


@pytest.mark.parametrize("damage", QUIET)
def test_what_no_glance_can_tell_is_told_by_the_checksums(
    tmp_path, make_backpack, pair_tokenizer, damage
) -> None:
    folder = tmp_path / "ranker"
    save_ranker(folder, make_backpack(layers=1), pair_tokenizer)
    QUIET[damage](folder)
    with pytest.raises(
        ValueError,
        match=r"(config\.json|model\.safetensors|tokenizer\.json) .*delete checksums\.json",
    ):
        load_ranker(folder)


def test_a_changed_file_that_is_meant_is_taken_without_the_checksums(
    tmp_path, make_backpack, pair_tokenizer
) -> None:
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
    "name",
    [
        *(
            "adapter_config.json",
            "adapter_model.safetensors",
            "generation_config.json",
            "added_tokens.json",
        ),
        *("vocab.txt", "pytorch_model.bin", "chat_template.jinja", "evil.py"),
        *(
            "model-00002-of-00002.safetensors",
            "additional_chat_templates/more.jinja",
            "custom_generate/generate",
        ),
    ],
)
def test_a_file_that_was_added_and_could_be_read_is_refused(
    tmp_path, make_backpack, pair_tokenizer, name
) -> None:
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    file = tmp_path / "ranker" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    with pytest.raises(
        ValueError, match=rf"{file} was not saved with this ranker: .*or delete checksums\.json"
    ):
        load_ranker(tmp_path / "ranker")


def test_an_adapter_is_refused_in_any_folder(tmp_path, make_backpack, pair_tokenizer) -> None:
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    (tmp_path / "ranker" / CHECKSUMS).unlink()
    (tmp_path / "ranker" / "adapter_config.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"adapter_config\.json: an adapter beside the weights changes scores"
    ):
        load_ranker(tmp_path / "ranker")


def test_what_people_add_does_not_keep_a_ranker_from_loading(
    tmp_path, make_backpack, pair_tokenizer
) -> None:
    folder = tmp_path / "ranker"
    save_ranker(folder, make_backpack(layers=1), pair_tokenizer)
    names = (
        "README.md",
        ".gitattributes",
        ".gitignore",
        "LICENSE",
        "LICENSE.txt",
        "requirements.txt",
        "picture.png",
    )
    for name in (
        *names,
        "notes.md",
        "model.onnx",
        "onnx/config.json",
        ".cache/huggingface/x.json",
        "1_Pooling/a.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    assert load_ranker(folder)[1].max_length == 48


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


def test_the_checksums_are_those_that_every_tool_computes(
    tmp_path, make_backpack, pair_tokenizer
) -> None:
    import hashlib

    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    content = json.loads((tmp_path / "ranker" / CHECKSUMS).read_text())
    assert {CONFIG, WEIGHTS, TOKENIZER} <= content["files"].keys()
    assert content["tokens"] == len(pair_tokenizer.tokenizer)
    for name, saved in content["files"].items():
        raw = (tmp_path / "ranker" / name).read_bytes()
        assert saved == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
