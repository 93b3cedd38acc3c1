"""Beginnings in common are read once by models that read left to right, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, LlamaConfig, PreTrainedConfig, Qwen3Config
from whole_words import SHAPE

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.attention import packed_hidden, packed_trunk
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.models.shared_prefixes import SharedPrefixes
from backpack_rank.models.token_shift import shifted_embeddings

DECODERS = {
    "gpt2": GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "llama": LlamaConfig(vocab_size=60, num_key_value_heads=2, **SHAPE),
    "qwen3": Qwen3Config(vocab_size=60, num_key_value_heads=2, head_dim=8, **SHAPE),
}
LISTS = [
    [[5, 6, 7, 9], [5, 6, 7, 9, 9], [5, 6, 8], [5, 6, 7, 9]],
    [[0, 0, 0], [0, 0], [0, 0, 0, 0], [1, 0, 0], [0, 0, 0, 0]],
    [[3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8]],
    [[2, 3, 4], [5, 3, 4], [2, 3, 4]],
]


def by_comparing(texts: list[list[int]]) -> list[tuple[int, int]]:
    """For each token (text, place), the text whose token is read in its place.

    That is the text above, as long as all tokens up to this place are equal.
    """
    sources = []
    for number, text in enumerate(texts):
        for place in range(len(text)):
            source = number
            while source and texts[source - 1][: place + 1] == text[: place + 1]:
                source -= 1
            sources.append((source, place))
    return sources


def shared_prefixes(texts: list[list[int]]) -> SharedPrefixes | None:
    """Shared prefixes where every token has one vector."""
    batch = PackedBatch.from_sequences(texts)
    return SharedPrefixes.of(batch, torch.eye(60)[batch.input_ids])


@pytest.mark.parametrize("texts", LISTS[:3])
def test_a_token_behind_an_equal_beginning_is_read_in_the_text_above(texts):
    shared = shared_prefixes(texts)
    sources = by_comparing(texts)
    tokens = [(number, place) for number, text in enumerate(texts) for place in range(len(text))]
    read = [token for token, source in zip(tokens, sources, strict=True) if token == source]
    assert [tokens[row] for row in shared.kept.nonzero()[:, 0]] == read
    assert [read[row] for row in shared.rows] == sources


def test_texts_without_a_common_beginning_are_left_alone():
    assert shared_prefixes(LISTS[3]) is None
    assert shared_prefixes([[4, 5, 6]]) is None


def test_a_token_with_another_vector_ends_the_common_beginning():
    batch = PackedBatch.from_sequences([[5, 6, 7, 8], [5, 6, 7, 8]])
    vectors = torch.eye(9)[batch.input_ids]
    vectors[6] *= 0.5  # token 7 of the second text
    shared = SharedPrefixes.of(batch, vectors)
    assert shared.kept.tolist() == [True, True, True, True, False, False, True, True]
    assert shared.rows.tolist() == [0, 1, 2, 3, 0, 1, 4, 5]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("number", range(3))
def test_hidden_states_are_those_of_every_text_read_in_full(name, number):
    ranker = backpack(DECODERS[name])
    batch = PackedBatch.from_sequences(LISTS[number])
    with torch.no_grad():
        in_full = packed_hidden(ranker.backpack.backbone, batch, use_cache=False)
        read = []
        handle = layer(ranker).register_forward_pre_hook(
            lambda _, given: read.append(given[0].shape[1])
        )
        packed_states = packed_trunk(ranker.backpack.backbone, batch)
        handle.remove()
    torch.testing.assert_close(packed_states, in_full, rtol=1e-5, atol=1e-6)
    assert read == [len(set(by_comparing(LISTS[number])))]


def test_training_reads_every_text_in_full():
    ranker = backpack(DECODERS["gpt2"]).train()
    batch, read = PackedBatch.from_sequences(LISTS[0]), []
    layer(ranker).register_forward_pre_hook(lambda _, given: read.append(given[0].shape[1]))
    ranker(batch)
    assert read == [len(batch.input_ids)]


def test_hooks_on_the_embeddings_see_all_tokens():
    ranker = backpack(DECODERS["gpt2"])
    batch, seen = PackedBatch.from_sequences(LISTS[0]), []
    embeddings = ranker.backpack.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, given: seen.append(given[0].flatten().tolist()))
    with torch.no_grad(), shifted_embeddings(embeddings, None):
        packed_trunk(ranker.backpack.backbone, batch)
    assert seen == [batch.input_ids.tolist()]


def test_scores_of_a_list_are_those_of_its_texts_alone():
    ranker = backpack(DECODERS["gpt2"])
    texts = [np.array([1, 2, 3, *range(10, 10 + length)]) for length in (3, 8, 5, 8)]
    with torch.no_grad():
        together = ranker(PackedBatch.from_sequences(texts)).scores
        alone = torch.cat([ranker(PackedBatch.from_sequences([text])).scores for text in texts])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def backpack(config: PreTrainedConfig) -> BackpackForRanking:
    """A Backpack over a decoder of that configuration, with random weights."""
    torch.manual_seed(0)
    return BackpackForRanking(BackpackConfig(backbone_config=config, num_senses=4)).eval()


def layer(ranker: BackpackForRanking) -> torch.nn.Module:
    """The backbone's first layer."""
    backbone = ranker.backpack.backbone
    return backbone.h[0] if hasattr(backbone, "h") else backbone.layers[0]
