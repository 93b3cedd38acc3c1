"""Folders that are unusual and whole: their scores are those of the library that saved them."""

from __future__ import annotations

import json
from pathlib import Path

import folders_of_strangers as folders
import numpy as np
import pytest
import torch
from foreign_rankers import bert, saved, xlm_roberta
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import backpack_rank

QUERY = "the doctor saw"
DOCUMENTS = ["he saw a nurse", "she saw a nurse", "", "bread and fish " * 20, "the fish"]
PAIRS = [(QUERY, document) for document in DOCUMENTS]


@torch.no_grad()
def scores_of_transformers(folder: Path) -> np.ndarray:
    """Logits of the pairs, each read alone, in float32."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    longest = model.config.max_position_embeddings
    if model.config.model_type == "xlm-roberta":
        longest -= 2  # positions begin behind that of padding
    longest = min(longest, tokenizer.model_max_length)
    scores = []
    for query, document in PAIRS:
        inputs = tokenizer(
            [query], [document], truncation=True, max_length=longest, return_tensors="pt"
        )
        scores.append(model(**inputs).logits[0, 0].item())
    return np.array(scores)


def in_format(name: str, key: str = "dtype"):
    """Weights saved in half precision, under the key of this or an earlier version."""

    def save(folder: Path) -> None:
        model, _ = saved(bert, folder)
        model.to(getattr(torch, name)).save_pretrained(folder)
        folders.config(folder, dtype=None)
        folders.config(folder, **{key: name})

    return save


def pickled(folder: Path) -> None:
    file = folders.classifier(folder) / "model.safetensors"
    torch.save(load_file(file), folder / "pytorch_model.bin")
    file.unlink()


def pickled_in_parts(folder: Path) -> None:
    file = folders.classifier(folder) / "model.safetensors"
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for place, (name, values) in enumerate(sorted(load_file(file).items())):
        parts.setdefault(f"pytorch_model-0000{place % 2 + 1}-of-00002.bin", {})[name] = values
    index: dict[str, dict] = {"metadata": {}, "weight_map": {}}
    for part, weights in parts.items():
        torch.save(weights, folder / part)
        index["weight_map"] |= dict.fromkeys(weights, part)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    file.unlink()


def of_tokenizer(**changes: object):
    def save(folder: Path) -> None:
        folders.change_json(folders.classifier(folder) / "tokenizer_config.json", **changes)

    return save


def another_name_of_buffers(folder: Path) -> None:
    """As versions before 4.31 saved them."""

    def add(weights: dict[str, torch.Tensor]) -> None:
        weights["bert.embeddings.position_ids"] = torch.arange(32)[None]

    folders.weights_changed(add)(folder)


KINDS = {
    "float16": in_format("float16"),
    "bfloat16": in_format("bfloat16"),
    "torch_dtype": in_format("bfloat16", "torch_dtype"),
    "a pickle": pickled,
    "pickles in parts": pickled_in_parts,
    "safetensors in parts": folders.shards,
    "padding on the left": of_tokenizer(padding_side="left"),
    "cut on the left": of_tokenizer(truncation_side="right", padding_side="left"),
    "no padding token": of_tokenizer(pad_token=None),
    "more tokens than positions": of_tokenizer(model_max_length=512),
    "tokens without a limit": of_tokenizer(model_max_length=10**30),
    "few tokens": of_tokenizer(model_max_length=12),
    "a label with a name": folders.configured(
        id2label={"0": "relevance"}, label2id={"relevance": 0}
    ),
    "a regression": folders.configured(problem_type="regression"),
    "several labels of one": folders.configured(problem_type="multi_label_classification"),
    "no architecture": folders.configured(architectures=None),
    "saved buffers": another_name_of_buffers,
    "XLM-R": lambda folder: saved(xlm_roberta, folder),
    "encoder and decoder": folders.encoder_decoder_classifier,
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    KINDS[kind](folder)
    scores = backpack_rank.load(folder).predict(PAIRS)
    np.testing.assert_allclose(scores, scores_of_transformers(folder), atol=1e-5)
    assert np.ptp(scores) > 1e-4


def as_saved_now(folder: Path) -> None:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folders.classifier(folder.parent / "classifier")), device="cpu")
    model.save_pretrained(str(folder))


def cut_at_twelve(folder: Path) -> None:
    from sentence_transformers import CrossEncoder

    source = folders.classifier(folder.parent / "classifier")
    CrossEncoder(str(source), device="cpu", max_length=12).save_pretrained(str(folder))


CROSS_ENCODERS = {
    "as it is saved now": as_saved_now,
    "cut at twelve tokens": cut_at_twelve,
    "activation of version 4": folders.configured(
        sentence_transformers={
            "activation_fn": "torch.nn.modules.linear.Identity",
            "version": "4.1.0",
        }
    ),
    "activation of version 2": folders.configured(
        sbert_ce_default_activation_function="torch.nn.modules.linear.Identity"
    ),
}


@pytest.mark.parametrize("kind", CROSS_ENCODERS)
def test_scores_are_those_of_cross_encoder_before_its_activation(tmp_path: Path, kind) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "folder"
    CROSS_ENCODERS[kind](folder)
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    wanted = model.predict(PAIRS, activation_fn=torch.nn.Identity())
    scores = backpack_rank.load(folder).predict(PAIRS)
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
