"""What the files of somebody's folder say is looked at by one table before a library takes it: a
length of 0, a pipe or an expression to match names with would hang it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folders_of_strangers as folders
import pytest
import torch
from safetensors.torch import load_file, save_file

import backpack_rank
from backpack_rank.models.folder_checks import CHECKSUMS
from backpack_rank.models.loading import save_ranker
from backpack_rank.reranking.score_calibration import Calibration
from backpack_rank.senses.erase import saved_map

pytest.importorskip("sentence_transformers")
pytest.importorskip("peft")

TEMPLATE = "pieces: ['{{query}} {{document}}']\nrelevant: 'yes'\nmax_length: {}\n"
NO_LENGTHS = [0, -3, 20.5, "long", True, 10**12]


def in_file(name: str, *keys: str) -> Callable[[Path, Any], None]:
    """Change a value deep inside a JSON file, which may be missing."""

    def change(folder: Path, value: Any) -> None:
        file = folder / name
        content = json.loads(file.read_text()) if file.is_file() else {}
        place = content
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
        file.write_text(json.dumps(content))

    return change


def in_template(folder: Path, value: Any) -> None:
    (folder / "reranker_template.yaml").write_text(TEMPLATE.format(json.dumps(value)))


LENGTHS: dict[str, tuple[Callable[[Path], object], Callable[[Path, Any], None], str]] = {
    "sentence_bert_config.json": (
        folders.modular,
        in_file("sentence_bert_config.json", "max_seq_length"),
        "max_seq_length",
    ),
    "deep in it": (
        folders.modular,
        in_file("sentence_bert_config.json", "processing_kwargs", "text", "max_length"),
        "processing_kwargs.text.max_length",
    ),
    "reranker_template.yaml": (folders.language_model, in_template, "max_length"),
    "a layer's config.json": (
        folders.modular,
        in_file("2_Dense/config.json", "in_features"),
        "in_features",
    ),
    "adapter_config.json": (folders.lora, in_file("adapter_config.json", "r"), "r"),
}


@pytest.mark.parametrize("value", NO_LENGTHS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_a_number_that_none_can_be_is_refused_with_file_and_name(tmp_path, kind, value):
    build, change, name = LENGTHS[kind]
    build(tmp_path / "folder")
    change(tmp_path / "folder", value)
    with pytest.raises(ValueError, match=rf"(json|yaml): {name}=\S+ must be a whole number"):
        backpack_rank.load(tmp_path / "folder")


@pytest.mark.parametrize("value", NO_LENGTHS)
def test_a_saved_ranker_has_a_length_too(tmp_path, make_backpack, pair_tokenizer, value):
    save_ranker(tmp_path / "folder", make_backpack(layers=1), pair_tokenizer)
    (tmp_path / "folder" / CHECKSUMS).unlink()
    folders.config(tmp_path / "folder", max_pair_length=value)
    with pytest.raises(ValueError, match=r"config\.json: max_pair_length=\S+ must be a whole"):
        backpack_rank.load(tmp_path / "folder")


@pytest.mark.parametrize("value", [0, -1, "long"])
def test_a_tokenizer_has_room_for_a_token(tmp_path, value):
    folders.classifier(tmp_path / "folder")
    folders.change_json(tmp_path / "folder" / "tokenizer_config.json", model_max_length=value)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: model_max_length=\S+ must be"):
        backpack_rank.load(tmp_path / "folder")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "pytorch_model.bin",
        "vocab.txt",
        "reranker_template.yaml",
        "modules.json",
        "additional_chat_templates/other.jinja",
    ],
)
def test_a_pipe_is_no_file(tmp_path, name):
    """Whoever opens one waits for its writer."""
    folder = folders.classifier(tmp_path / "folder")
    (folder / name).unlink(missing_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises((ValueError, OSError)) as refused:
        backpack_rank.load(folder)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_nor_is_it_in_the_folder_of_a_layer(tmp_path, name):
    folder = folders.modular(tmp_path / "folder") / "2_Dense"
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=rf"2_Dense/{name} is a pipe, a device or a socket"):
        backpack_rank.load(tmp_path / "folder")


EXPRESSION = "(.*)*(.*)*x$"


@pytest.mark.parametrize(
    "change",
    [
        {"target_modules": EXPRESSION},
        {"target_modules": ["query", EXPRESSION]},
        {"exclude_modules": EXPRESSION},
        {"modules_to_save": [EXPRESSION]},
        {"layers_pattern": EXPRESSION, "layers_to_transform": [0]},
        {"rank_pattern": {EXPRESSION: 2}},
        {"alpha_pattern": {EXPRESSION: 2}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_no_expression_of_an_adapter_is_matched(tmp_path, change):
    folders.lora(tmp_path / "folder")
    folders.change_json(tmp_path / "folder" / "adapter_config.json", **change)
    with pytest.raises(ValueError, match=rf"adapter_config\.json: {next(iter(change))}.*must be"):
        backpack_rank.load(tmp_path / "folder")


def zeros(weights: dict[str, torch.Tensor]) -> None:
    weights["linear.weight"].zero_()


def int8(weights: dict[str, torch.Tensor]) -> None:
    weights["linear.weight"] = weights["linear.weight"].to(torch.int8)


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(("change", "words"), [(zeros, "is all zeros"), (int8, "is quantised")])
def test_a_layer_below_passes_the_looks_of_its_parent(tmp_path, form, change, words):
    folder = folders.modular(tmp_path / "folder") / "2_Dense"
    weights = load_file(folder / "model.safetensors")
    change(weights)
    (folder / "model.safetensors").unlink()
    if form == "model.safetensors":
        save_file(weights, folder / form)
    else:
        torch.save(weights, folder / form)
    with pytest.raises(ValueError, match=words):
        backpack_rank.load(tmp_path / "folder")


PLATT = {"alpha": 1.0, "slope": 2.0, "intercept": -1.0}
CALIBRATIONS = {
    "a slope beyond numbers": ('{"alpha": 1, "slope": 1e400, "intercept": 0}', "slope"),
    "no alpha": ('{"alpha": NaN, "slope": 1, "intercept": 0}', "alpha"),
    "an endless alpha": ('{"alpha": Infinity, "slope": 1, "intercept": 0}', "alpha"),
    "an alpha as text": ('{"alpha": "1_0", "slope": 1, "intercept": 0}', "alpha"),
    "an alpha twice": (f"{json.dumps(PLATT)}, {json.dumps(PLATT)}", "two maps for alpha=1"),
    "a key twice": ('{"alpha": 1, "alpha": 0, "slope": 1, "intercept": 0}', "twice"),
    "deep": ("[" * 100_000 + "]" * 100_000, "recursion"),
    "none": ("", "maps"),
}


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_numbers_of_a_calibration(tmp_path, kind):
    maps, words = CALIBRATIONS[kind]
    about = '"format": "backpack_rank calibration 1", "method": "platt", "policy": "p", "data": "d"'
    file = tmp_path / "calibration.json"
    file.write_text(f'{{{about}, "maps": [{json.dumps(PLATT)}]}}')
    assert Calibration.read(file).maps.keys() == {1.0}
    file.write_text(f'{{{about}, "maps": [{maps}]}}')
    with pytest.raises(ValueError, match=rf"calibration\.json.*{words}"):
        Calibration.read(file)
    file.write_text(f'{{{about}, "maps": {json.dumps(PLATT)}}}')
    with pytest.raises(ValueError, match=r"maps=.*must be a list"):
        Calibration.read(file)


MAPS = {
    "a mean of two dimensions": {"mean": torch.zeros(32, 1)},
    "other vectors": {"left": torch.zeros(31, 1)},
    "more directions than numbers": {"left": torch.zeros(32, 200), "right": torch.zeros(200, 32)},
    "a side missing": {"right": None},
    "no number": {"mean": torch.full((32,), torch.nan)},
    "integers": {"mean": torch.zeros(32, dtype=torch.int64)},
}


@pytest.mark.parametrize("kind", MAPS)
def test_shapes_of_an_erasing_map(tmp_path, make_backpack, kind):
    ranker = make_backpack(layers=1)
    ranker.folder = tmp_path
    parts = {"mean": torch.zeros(32), "left": torch.zeros(32, 1), "right": torch.zeros(1, 32)}
    parts |= MAPS[kind]
    about = {"policy": "erase_leace", "attribute": "gender", "texts": "3", "score of mean": "0.5"}
    tensors = {name: values for name, values in parts.items() if values is not None}
    save_file(tensors, tmp_path / "erase.safetensors", about)
    with pytest.raises(ValueError, match=r"erase\.safetensors: no map of the policy erase"):
        saved_map(ranker)
