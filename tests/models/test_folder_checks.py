"""A saved ranker that was damaged or changed is refused with the name of the file, not loaded into other scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from backpack_rank.models.factory import load_ranker, save_ranker
from backpack_rank.models.folder_checks import CHECKSUMS, check_files

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


@pytest.fixture(params=["with checksums", "without"])
def folder(request, tmp_path, make_backpack, pair_tokenizer) -> Path:
    save_ranker(tmp_path / "ranker", make_backpack(layers=1), pair_tokenizer)
    if request.param == "without":
        (tmp_path / "ranker" / CHECKSUMS).unlink()
    return tmp_path / "ranker"


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
    def mutate(folder: Path) -> None:
        values = load_file(folder / WEIGHTS)
        change(values)
        save_file(values, folder / WEIGHTS, metadata={"format": "pt"})

    return mutate


def table(values: dict[str, torch.Tensor]) -> str:
    return next(name for name in values if name.endswith("wte.weight"))


def tokenizer(change: Callable[[dict], object]) -> Callable[[Path], object]:
    def mutate(folder: Path) -> None:
        content = json.loads((folder / TOKENIZER).read_text())
        change(content["model"])
        (folder / TOKENIZER).write_text(json.dumps(content))

    return mutate


def half(model: dict) -> None:
    model["vocab"] = {word: number for word, number in model["vocab"].items() if number < 320}
    model["merges"] = [
        pair for pair in model["merges"] if all(part in model["vocab"] for part in (*pair, "".join(pair)))
    ]


def cut(name: str, share: float) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[: int(share * _size(folder / name))])


def _size(file: Path) -> int:
    return file.stat().st_size


def config(**changes: object) -> Callable[[Path], object]:
    return lambda folder: (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | changes))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut": cut(WEIGHTS, 0.5),
    "weights without their header": cut(WEIGHTS, 0.0),
    "weights that are no weights": lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 4096),
    "weights missing": lambda folder: (folder / WEIGHTS).unlink(),
    "word embeddings of zeros": weights(lambda values: values[table(values)].zero_()),
    "head of zeros": weights(lambda values: [values[name].zero_() for name in values if name.startswith("head.")]),
    "a value that is no number": weights(lambda values: values[table(values)].view(-1)[:1].fill_(torch.nan)),
    "integer weights": weights(lambda values: values.update({table(values): values[table(values)].to(torch.int8)})),
    "a weight missing": weights(lambda values: values.pop(table(values))),
    "a weight too many": weights(lambda values: values.update(more=torch.ones(3))),
    "another shape": weights(lambda values: values.update({table(values): torch.ones(7, 32)})),
    "half a vocabulary": tokenizer(half),
    "no merges": tokenizer(lambda model: model.update(merges=[])),
    "tokenizer cut": cut(TOKENIZER, 0.5),
    "tokenizer missing": lambda folder: [file.unlink() for file in folder.glob("tokenizer*")],
    "tokenizer that is a list": lambda folder: (folder / TOKENIZER).write_text("[]"),
    "configuration cut": cut(CONFIG, 0.5),
    "configuration empty": cut(CONFIG, 0.0),
    "configuration nested too deeply": lambda folder: (folder / CONFIG).write_text("[" * 50_000),
    "configuration that is a list": lambda folder: (folder / CONFIG).write_text("[]"),
    "no architecture": config(architectures=None),
    "architectures that are a number": config(architectures=7),
    "an architecture that is none": config(architectures=["Nonsense"]),
    "layers in words": config(backbone_config={"model_type": "gpt2", "n_layer": "two"}),
    "a backbone that is none": config(backbone_config={"model_type": "nonsense"}),
    "senses that do not divide": config(num_senses=7),
    "senses below 1": config(num_senses=-1),
    "other pooling": config(pooling="middle"),
    "a length in words": config(max_pair_length="long"),
    "a length beyond the positions": config(max_pair_length=10**6),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_and_named(folder: Path, damage: str) -> None:
    DAMAGES[damage](folder)
    with pytest.raises((ValueError, OSError)) as refused:
        load_ranker(folder)
    said = str(refused.value)
    assert str(folder) in said or "max_length=" in said
    assert len(said.splitlines()) <= 4, said


QUIET = {
    "weights permuted": weights(lambda values: values.update({table(values): values[table(values)].flip(0)})),
    "vocabulary permuted": tokenizer(
        lambda model: model.update(vocab=dict(zip(model["vocab"], reversed(model["vocab"].values()), strict=True)))
    ),
    "one bit of the weights": lambda folder: flip(folder / WEIGHTS, -9),
    "another length": config(max_pair_length=24),
    "another number of heads": lambda folder: (folder / CONFIG).write_text(
        (folder / CONFIG).read_text().replace('"n_head": 4', '"n_head": 2')
    ),
}


def flip(file: Path, place: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1
    file.write_bytes(raw)


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
