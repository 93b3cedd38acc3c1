"""A small listwise ranker with random weights, and evaluate.py's configuration, for tests of
listwise tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from in_process import configured
from omegaconf import DictConfig, OmegaConf
from workplace import ROOT

from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.position.lists.factory import new_causal_lm
from backpack_rank.position.lists.prompt import Prompt
from backpack_rank.position.lists.saved import save_listwise

DEPTH = 5
_SMALL = ["data=synthetic", "+data.test.test_queries=6", "+data.test.documents=40"]


def composed(*overrides: str) -> DictConfig:
    """The configuration of ``evaluate.py`` with these options."""
    return configured("evaluate", *overrides)


def options(ranker: Path, *more: str) -> list[str]:
    """Options that rank the first candidates of a few queries of the synthetic collection."""
    return ["listwise=trained", f"checkpoint={ranker}", *_SMALL, f"listwise.depth={DEPTH}", *more]


def saved_ranker(
    folder: Path, sentences: Sequence[str], passages: int, *, positions: int = 1024, words: str
) -> Path:
    """Save a ranker with large random weights, so that its order is not the input's, as a run's;
    its folder.

    ``words``: what the prompts hold beside the sentences, for the tokenizer.
    """
    torch.manual_seed(0)
    tokenizer = train_bpe([*sentences, words] * 3, vocab_size=400)
    model = new_causal_lm(
        tokenizer, layers=1, hidden_size=32, heads=2, positions=positions, initializer_range=0.3
    )
    prompt = Prompt.of(
        {**OmegaConf.load(ROOT / "conf" / "prompt" / "plain.yaml"), "identifiers": "alphabetic"}
    )
    ranker = folder / "train" / "one" / "ranker"
    save_listwise(ranker, model, tokenizer, prompt, "first_token", passages)
    return ranker
