"""Damages of a saved ranker's folder: those that a glance tells, and those that only checksums
tell.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.factory import new_backpack
from backpack_rank.models.folder_checks import CHECKSUMS
from backpack_rank.models.loading import load_ranker, save_ranker

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"


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


def part(model: dict) -> None:
    kept = 0.75 * len(model["vocab"])
    model["vocab"] = {word: number for word, number in model["vocab"].items() if number < kept}
    # A merge needs both of its parts and what they become.
    known_merges = []
    for pair in model["merges"]:
        if {*pair, "".join(pair)} <= set(model["vocab"]):
            known_merges.append(pair)
    model["merges"] = known_merges


def cut(name: str, share: float) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: int(share * _size(folder / name))]
    )


def _size(file: Path) -> int:
    return file.stat().st_size


def config(**changes: object) -> Callable[[Path], object]:
    return lambda folder: (folder / CONFIG).write_text(
        json.dumps(json.loads((folder / CONFIG).read_text()) | changes)
    )


DAMAGES: dict[str, Callable[[Path], object]] = {
    "weights cut": cut(WEIGHTS, 0.5),
    "weights without their header": cut(WEIGHTS, 0.0),
    "weights that are no weights": lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 4096),
    "weights missing": lambda folder: (folder / WEIGHTS).unlink(),
    "word embeddings of zeros": weights(lambda values: values[table(values)].zero_()),
    "head of zeros": weights(
        lambda values: [values[name].zero_() for name in values if name.startswith("head.")]
    ),
    "a value that is no number": weights(
        lambda values: values[table(values)].view(-1)[:1].fill_(torch.nan)
    ),
    "integer weights": weights(
        lambda values: values.update({table(values): values[table(values)].to(torch.int8)})
    ),
    "a weight missing": weights(lambda values: values.pop(table(values))),
    "a weight too many": weights(lambda values: values.update(more=torch.ones(3))),
    "another shape": weights(lambda values: values.update({table(values): torch.ones(7, 32)})),
    "a quarter of the vocabulary missing": tokenizer(part),
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


QUIET = {
    "weights permuted": weights(
        lambda values: values.update({table(values): values[table(values)].flip(0)})
    ),
    "vocabulary permuted": tokenizer(
        lambda model: model.update(
            vocab=dict(zip(model["vocab"], reversed(model["vocab"].values()), strict=True))
        )
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


def folder_cases(
    rng: random.Random, folder: Path
) -> Iterator[tuple[str, Callable[[], object], tuple[str, ...]]]:
    """Every damage with and without checksums, then bytes changed anywhere.

    Gives the name of a case, what loads the folder, and words that the sentence must have.
    """
    folder.mkdir(parents=True)
    undamaged = small_saved_ranker(folder)
    listed = [(name, damage, kept) for name, damage in DAMAGES.items() for kept in (True, False)]
    for number, (name, damage, kept) in enumerate(
        [*listed, *((name, damage, True) for name, damage in QUIET.items())]
    ):
        yield _case(
            undamaged,
            folder / str(number),
            f"{name}, {'with' if kept else 'without'} checksums",
            damage,
            kept,
        )
    number = 10_000
    while True:
        number += 1
        file = rng.choice((WEIGHTS, CONFIG, TOKENIZER))
        place = rng.randrange((undamaged / file).stat().st_size)
        change = rng.choice((functools.partial(_flip_in, file, place), cut(file, rng.random())))
        yield _case(undamaged, folder / str(number), f"{file} changed at {place}", change, True)


def _flip_in(name: str, place: int, folder: Path) -> None:
    flip(folder / name, place)


def _case(
    undamaged: Path, folder: Path, name: str, damage: Callable[[Path], object], kept: bool
) -> tuple[str, Callable[[], object], tuple[str, ...]]:
    def run() -> object:
        shutil.copytree(undamaged, folder)
        if not kept:
            (folder / CHECKSUMS).unlink()
        try:
            damage(folder)
            return load_ranker(folder)
        finally:
            shutil.rmtree(folder)

    beyond = name.startswith("a length beyond") and not kept
    return name, run, ("max_length=",) if beyond else (str(folder),)


def small_saved_ranker(folder: Path) -> Path:
    """A small saved ranker."""
    tokenizer = train_bpe(
        ["She is an electrician, he is a nurse; who can rewire a house near the river?"] * 2, 420
    )
    torch.manual_seed(0)
    ranker = new_backpack(
        tokenizer, layers=1, hidden_size=32, heads=4, senses=8, positions=64, initializer_range=0.2
    )
    save_ranker(folder / "whole", ranker, PairTokenizer(tokenizer, 48))
    return folder / "whole"
