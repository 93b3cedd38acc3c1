"""Whatever reads a pretrained model says of a mistyped folder that it is not there, before it asks
the hub.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from backpack_rank.data.tokenisation import load_tokenizer
from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.models.factory import (
    backpack_on_backbone,
    cross_encoder,
    dual_encoder,
    pretrained_backpack,
    pretrained_gpt2,
)
from backpack_rank.models.word_embeddings import pretrained_vectors
from backpack_rank.position.lists.factory import pretrained_causal_lm
from backpack_rank.position.lists.saved import load_listwise

BUILDERS = (
    backpack_on_backbone,
    cross_encoder,
    dual_encoder,
    pretrained_backpack,
    pretrained_gpt2,
    pretrained_causal_lm,
)


@pytest.mark.parametrize("build", BUILDERS, ids=lambda build: build.__name__)
def test_a_ranker_over_a_missing_folder(
    build: Callable[..., object], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    _refuses(lambda name: build(tokenizer, name=name), tmp_path)


@pytest.mark.parametrize(
    "load",
    [
        load_tokenizer,
        BackpackLMHeadModel.from_pretrained,
        load_listwise,
        partial(pretrained_vectors, words=["nurse"]),
    ],
    ids=["tokenizer", "language model", "listwise", "vectors"],
)
def test_a_missing_folder_is_named(load: Callable[[str], object], tmp_path: Path) -> None:
    _refuses(load, tmp_path)


def _refuses(load: Callable[[str], object], folder: Path) -> None:
    name = str(folder / "mistyped")
    with pytest.raises(FileNotFoundError) as refused:
        load(name)
    assert str(refused.value).startswith(f"{name}: there is no such folder")
