"""A Backpack as a language model: made of a ranker's network, saved and loaded with its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.files import atomic_path
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.ranker import BackpackForRanking

SUMMARY = "training.json"


def language_model_of(ranker: Any) -> BackpackLMHeadModel:
    """The language model with the network of a Backpack ranker, in training mode; the ranking head is left behind.

    Raises:
        ValueError: the ranker is no Backpack, or its backbone is an encoder.
    """
    if not isinstance(ranker, BackpackForRanking):
        raise ValueError(
            f"task=language_model trains a Backpack, and {type(ranker).__name__} is none: use model=backpack_tiny, "
            "model=backpack_small or model=backpack_gpt2"
        )
    model = BackpackLMHeadModel(ranker.config)
    model.backpack.load_state_dict(ranker.backpack.state_dict())
    return model.train()


def save_language_model(
    folder: str | Path, model: BackpackLMHeadModel, tokenizer: PreTrainedTokenizerBase, summary: Mapping[str, Any]
) -> None:
    """Write a folder that ``from_pretrained`` reads: weights, configuration, tokenizer, and what it was trained on.

    The folder is complete or absent. As ``model.ranker.name`` and ``model.tokenizer.name`` it starts a ranker.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        (temporary / SUMMARY).write_text(json.dumps(dict(summary), indent=2) + "\n", encoding="utf-8")


def load_language_model(folder: str | Path) -> tuple[BackpackLMHeadModel, PreTrainedTokenizerBase]:
    """Model (in evaluation mode) and tokenizer from a folder.

    Raises:
        OSError: there is no such model.
        ValueError: it is of another architecture.
    """
    return BackpackLMHeadModel.from_pretrained(str(folder)), load_tokenizer(folder)
