"""The saved tokenizer joins pairs as the ranker reads them, and comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from saved_rankers import FIXTURES, PAIRS
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from backpack_rank.data.shared_tokenizer import shared_tokenizer
from backpack_rank.data.tokenisation import PairTokenizer, load_tokenizer
from backpack_rank.models.loading import load_ranker

KINDS = ("backpack", "backpack_on_bert", "backpack_on_roberta", "cross_encoder_llama")


def shared(pair_tokenizer: PairTokenizer) -> PreTrainedTokenizerBase:
    return shared_tokenizer(
        pair_tokenizer.tokenizer,
        pair_tokenizer.max_length,
        pair_tokenizer.start_id,
        pair_tokenizer.between,
        pair_tokenizer.end_id,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_joined_and_cut_as_the_ranker_reads_them(kind: str, tmp_path: Path) -> None:
    _, pair_tokenizer = load_ranker(FIXTURES / kind)
    shared(pair_tokenizer).save_pretrained(tmp_path)
    queries, documents = map(list, zip(*PAIRS, strict=True))
    encoded = AutoTokenizer.from_pretrained(tmp_path)(queries, documents, truncation="only_second")
    assert encoded["input_ids"] == [
        pair_tokenizer.pairs(query, [document])[0].tolist() for query, document in PAIRS
    ]
    assert max(map(len, encoded["input_ids"])) == pair_tokenizer.max_length
    assert "token_type_ids" not in encoded


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_as_it_was_also_when_another_library_saved_it_again(
    kind: str, tmp_path: Path
) -> None:
    _, pair_tokenizer = load_ranker(FIXTURES / kind)
    shared(pair_tokenizer).save_pretrained(tmp_path / "first")
    AutoTokenizer.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second")
    for folder in ("first", "second"):
        again = load_tokenizer(tmp_path / folder)
        assert replace(pair_tokenizer, tokenizer=again).fingerprint == pair_tokenizer.fingerprint
        assert again.model_max_length == pair_tokenizer.tokenizer.model_max_length
        for text in ("he", " he", "<|endoftext|> he", ""):
            assert again(text)["input_ids"] == pair_tokenizer.tokenizer(text)["input_ids"]


@pytest.mark.slow
def test_gpt2_joins_pairs_in_the_same_way(real_data: Path, tmp_path: Path) -> None:
    pair_tokenizer = PairTokenizer(load_tokenizer(real_data / "gpt2_tokenizer"), 64)
    shared(pair_tokenizer).save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for query, document in PAIRS:
        if document:  # the library takes a single empty text for none
            ids = again(query, document, truncation="only_second")["input_ids"]
            assert ids == pair_tokenizer.pairs(query, [document])[0].tolist()
    assert (
        replace(pair_tokenizer, tokenizer=load_tokenizer(tmp_path)).fingerprint
        == pair_tokenizer.fingerprint
    )
