"""A small listwise ranker with random weights, and evaluate.py's configuration, for tests of listwise tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.models.listwise.build import new_causal_lm
from backpack_rank.models.listwise.prompt import Prompt
from backpack_rank.models.listwise.saved import save_listwise
from backpack_rank.pipelines.common import register_resolvers

CONF = Path(__file__).resolve().parents[2] / "conf"
DEPTH = 5
_SMALL = ["data=embedded", "+data.test.test_queries=6", "+data.test.documents=40"]


def composed(*overrides: str) -> DictConfig:
    """The configuration of ``evaluate.py`` with these options."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("evaluate", overrides=list(overrides))


def options(ranker: Path, *more: str) -> list[str]:
    """Options that rank the first candidates of a few embedded queries."""
    return ["listwise=trained", f"checkpoint={ranker}", *_SMALL, f"listwise.depth={DEPTH}", *more]


def saved_ranker(folder: Path, sentences: Sequence[str], passages: int, *, positions: int = 1024, words: str) -> Path:
    """Save a ranker with large random weights, so that its order is not the input's, as a run's; its folder.

    ``words``: what the prompts hold beside the sentences, for the tokenizer.
    """
    torch.manual_seed(0)
    tokenizer = train_bpe([*sentences, words] * 3, vocab_size=400)
    model = new_causal_lm(tokenizer, layers=1, hidden_size=32, heads=2, positions=positions, initializer_range=0.3)
    prompt = Prompt.of({**OmegaConf.load(CONF / "prompt" / "plain.yaml"), "identifiers": "alphabetic"})
    ranker = folder / "train" / "one" / "ranker"
    save_listwise(ranker, model, tokenizer, prompt, "first_token", passages)
    return ranker
