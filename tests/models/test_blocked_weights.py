"""Blocked weights give the plain layers' scores, follow the weights, and leave the model as it was."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoConfig

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models import blocked_weights
from backpack_rank.models.blocked_weights import BlockedWeights
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.rankers import BackpackForRanking

BACKBONES = {
    "bert": {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
    },
    "distilbert": {"dim": 64, "n_heads": 2, "hidden_dim": 128, "n_layers": 2},
    "albert": {
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
    },
    "gpt2": {"n_embd": 64, "n_head": 2, "n_layer": 2},
    "qwen3": {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    | {"intermediate_size": 128, "num_hidden_layers": 2},
}


@pytest.fixture(autouse=True)
def all_layers(monkeypatch) -> None:
    monkeypatch.setattr(blocked_weights, "SMALLEST", 1)


@pytest.fixture
def batch() -> PackedBatch:
    draw = np.random.default_rng(0)
    return PackedBatch.from_sequences([draw.integers(1, 90, length) for length in (1, 7, 30, 7)])


def make(kind: str = "bert") -> BackpackForRanking:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=90, initializer_range=0.2, **BACKBONES[kind])
    return BackpackForRanking(
        BackpackConfig(backbone_config=config, num_senses=4, initializer_range=0.2)
    ).eval()


def plain_and_blocked(
    ranker: BackpackForRanking, batch: PackedBatch, blocked: BlockedWeights
) -> list[torch.Tensor]:
    with torch.inference_mode():
        plain = ranker(batch).scores
        with blocked.in_use():
            return [plain, ranker(batch).scores]


@pytest.mark.parametrize("kind", BACKBONES)
def test_scores_are_those_of_the_plain_layers(kind, batch) -> None:
    ranker = make(kind)
    plain, blocked = plain_and_blocked(ranker, batch, BlockedWeights(ranker))
    assert plain.std() > 0.01
    torch.testing.assert_close(blocked, plain, rtol=1e-5, atol=1e-5)


def test_blocked_weights_score_the_same_in_half_precision_too(batch) -> None:
    ranker = make().bfloat16()
    plain, blocked = plain_and_blocked(ranker, batch, BlockedWeights(ranker))
    torch.testing.assert_close(blocked, plain, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_activations_are_computed_once(act, batch) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "bert", vocab_size=90, hidden_act=act, initializer_range=0.2, **BACKBONES["bert"]
    )
    ranker = BackpackForRanking(BackpackConfig(backbone_config=config, num_senses=4)).eval()
    plain, blocked = plain_and_blocked(ranker, batch, BlockedWeights(ranker))
    torch.testing.assert_close(blocked, plain, rtol=1e-5, atol=1e-5)


def test_sense_vectors_are_those_of_the_plain_layers(batch) -> None:
    ranker = make()
    projection = ranker.backpack.sense_network.final_mlp.c_proj
    with torch.inference_mode():
        plain = ranker(batch, return_senses=True).senses
        with BlockedWeights(ranker).in_use():
            assert "by_sense" in projection.__dict__
            blocked = ranker(batch, return_senses=True).senses
    assert "by_sense" not in projection.__dict__
    torch.testing.assert_close(blocked, plain, rtol=1e-5, atol=1e-5)
    assert plain.std(dim=1).min() > 1e-3, "senses differ"


def test_changed_weights_are_read_anew_and_unchanged_ones_are_not_copied(batch) -> None:
    ranker = make()
    blocked = BlockedWeights(ranker)
    before = plain_and_blocked(ranker, batch, blocked)[1]
    kept = {layer: blocks for layer, (_, blocks) in blocked._blocks.items()}
    assert len(kept) > 10
    assert torch.equal(plain_and_blocked(ranker, batch, blocked)[1], before)
    assert all(blocked._blocks[layer][1] is blocks for layer, blocks in kept.items())
    with torch.no_grad():
        ranker.backpack.backbone.encoder.layer[0].output.dense.weight.mul_(2)
    plain, after = plain_and_blocked(ranker, batch, blocked)
    assert not torch.allclose(after, before, rtol=1e-3)
    torch.testing.assert_close(after, plain, rtol=1e-5, atol=1e-5)
    assert sum(blocked._blocks[layer][1] is not blocks for layer, blocks in kept.items()) == 1
    ranker.bfloat16()
    plain, half = plain_and_blocked(ranker, batch, blocked)
    torch.testing.assert_close(half, plain, rtol=0.05, atol=0.05)


def test_the_model_is_left_as_it_was_also_behind_an_error(batch) -> None:
    ranker = make()
    blocked = BlockedWeights(ranker)

    def fail() -> None:
        assert any("forward" in module.__dict__ for module in ranker.modules())
        raise KeyError

    with pytest.raises(KeyError), torch.inference_mode(), blocked.in_use():
        fail()
    assert not any("forward" in module.__dict__ for module in ranker.modules())
    assert copy.deepcopy(blocked)._blocks == {}


def test_nothing_is_replaced_for_gradients_large_models_and_other_layers(
    batch, monkeypatch
) -> None:
    ranker = make()
    blocked = BlockedWeights(ranker)

    def replaced() -> int:
        with blocked.in_use():
            return sum("forward" in module.__dict__ for module in ranker.modules())

    assert replaced() == 0  # gradients are on
    with torch.no_grad():
        replaced_count = replaced()
        assert replaced_count > 10

        class Own(nn.Linear):
            """As an adapter or a quantised layer would be."""

        ranker.head.dense.__class__ = Own
        assert replaced() == replaced_count - 1
        with torch.autocast("cpu", torch.bfloat16):
            assert replaced() == 0
        monkeypatch.setattr(blocked_weights, "LIMIT", 1000)
        assert replaced() == 0
