"""Weights that start from the last attention of a backbone, against that layer's own queries and
keys.
"""

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    Qwen2Config,
    Qwen3Config,
)
from whole_words import DISTILBERT, SHAPE

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models import initialisation
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.initialisation import (
    WEIGHTS,
    init_with_entropy,
    last_attention,
    sharpness,
    start_from_attention,
    start_weights,
    truncated,
)
from backpack_rank.models.rankers import BackpackForRanking

SIZES = {"vocab_size": 60, "max_position_embeddings": 40}
NARROW = {**SHAPE, **SIZES}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 40, **TOKENS}
CONFIGS = {
    "bert": BertConfig(**NARROW),
    "distilbert": DistilBertConfig(**DISTILBERT, **SIZES),
    "gpt2": GPT2Config(**GPT2),
    "gpt2 by layer": GPT2Config(scale_attn_by_inverse_layer_idx=True, **GPT2),
    "llama": LlamaConfig(num_key_value_heads=2, **NARROW, **TOKENS),
    "qwen2": Qwen2Config(num_key_value_heads=2, **NARROW, **TOKENS),
    "modernbert": ModernBertConfig(
        norm_bias=True, attention_bias=True, **NARROW, **TOKENS, cls_token_id=1
    ),
}


def ranker_over(config, senses):
    """Large random weights, gains and shifts, so that leaving one out shows."""
    torch.manual_seed(0)
    ranker = BackpackForRanking(BackpackConfig(backbone_config=config, num_senses=senses)).eval()
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return ranker


@pytest.fixture(scope="module")
def batch():
    draw = np.random.default_rng(0)
    return PackedBatch.from_sequences([draw.integers(3, 60, length) for length in (9, 3, 20)])


def own_logits(backbone, name, last):
    """Logits of every head between all tokens, from the layer's modules; of pre-norm models the
    layer's own norm is applied to what stands before the backbone's last norm. [heads, n, n]
    """
    if name == "bert":
        last_self_attention = backbone.encoder.layer[-1].attention.self
        queries, keys = last_self_attention.query(last), last_self_attention.key(last)
    elif name == "distilbert":
        last_self_attention = backbone.transformer.layer[-1].attention
        queries, keys = last_self_attention.q_lin(last), last_self_attention.k_lin(last)
    elif name.startswith("gpt2"):
        queries, keys, _ = backbone.h[-1].attn.c_attn(backbone.h[-1].ln_1(last)).chunk(3, dim=-1)
    elif name == "modernbert":
        layer = backbone.layers[-1]
        queries, keys, _ = layer.attn.Wqkv(layer.attn_norm(last)).chunk(3, dim=-1)
    else:
        layer = backbone.layers[-1]
        normed = layer.input_layernorm(last)
        queries, keys = layer.self_attn.q_proj(normed), layer.self_attn.k_proj(normed)
    queries, keys = (part.unflatten(-1, (-1, 8)).transpose(0, 1) for part in (queries, keys))
    keys = keys.repeat_interleave(4 // len(keys), dim=0)
    return queries @ keys.transpose(1, 2) / 8**0.5 / (2 if name == "gpt2 by layer" else 1)


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("senses", [4, 2])
def test_each_sense_weighs_as_its_head_of_the_last_layer(name, senses, batch):
    """d / k is the heads' width with 4 senses and twice as much with 2, where every head is kept
    whole.
    """
    ranker = ranker_over(CONFIGS[name], senses)
    backpack = ranker.backpack
    norms = {
        "gpt2": "ln_f",
        "gpt2 by layer": "ln_f",
        "llama": "norm",
        "qwen2": "norm",
        "modernbert": "final_norm",
    }
    caught = []
    if name in norms:
        last_norm = getattr(backpack.backbone, norms[name])
        last_norm.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
    hidden = backpack.hidden_states(batch)
    start_from_attention(backpack.sense_weight_net, backpack.backbone)
    positions = backpack.pooled_positions(batch)
    pooled_weights = backpack.sense_weight_net.pooled(hidden, batch, positions)
    before = hidden
    if caught:
        before = (
            caught[-1].flatten(0, 1) if len(caught[-1]) == 1 else caught[-1][batch.padding_mask()]
        )
    for text, (start, end) in enumerate(
        zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True)
    ):
        logits = own_logits(backpack.backbone, name, before[start:end])
        expected = logits[:senses, positions[text] - start].softmax(dim=-1)
        torch.testing.assert_close(
            pooled_weights[text, :, : end - start], expected, atol=2e-5, rtol=1e-3
        )
    # Far enough from 1 / 20 to tell a wrong head.
    assert pooled_weights[2].max(dim=-1).values.min() > 0.06


@torch.no_grad()
def test_more_senses_than_heads_begin_again_with_the_first(batch):
    ranker = ranker_over(CONFIGS["bert"], 8)
    weights = ranker.backpack.sense_weight_net
    start_from_attention(weights, ranker.backpack.backbone)
    pooled_weights = weights.pooled(ranker.backpack.hidden_states(batch), batch)
    torch.testing.assert_close(pooled_weights[:, :4], pooled_weights[:, 4:])
    assert (pooled_weights[:, 0] - pooled_weights[:, 1]).abs().max() > 1e-2


def test_a_cut_head_is_the_best_approximation_of_its_rank():
    draw = torch.Generator().manual_seed(0)
    queries, biases, keys = (
        torch.randn(shape, generator=draw).double() for shape in ((6, 12), (6,), (6, 12))
    )
    matrix = torch.cat([queries, biases[:, None]], dim=1).T @ keys
    singular = np.linalg.svd(matrix.numpy(), compute_uv=False)
    for rank in (1, 3, 5):
        new_queries, new_biases, new_keys = truncated(queries, biases, keys, rank)
        assert new_queries.shape == new_keys.shape == (rank, 12)
        assert new_biases.shape == (rank,)
        queries_and_biases = torch.cat([new_queries, new_biases[:, None]], dim=1)
        error = np.linalg.norm(queries_and_biases.T @ new_keys - matrix)
        assert error == pytest.approx(
            np.sqrt((singular[rank:6] ** 2).sum()), abs=1e-9
        )  # Eckart and Young
    assert truncated(queries, biases, keys, 6)[0] is queries


@torch.no_grad()
def test_what_fills_a_wider_sense_weighs_nothing_and_can_learn(batch):
    ranker = ranker_over(CONFIGS["bert"], 2)
    weights = ranker.backpack.sense_weight_net
    start_from_attention(weights, ranker.backpack.backbone)
    queries, keys = weights.c_attn.weight.unflatten(0, (2, 2, 16))
    assert queries[:, 8:].abs().max() == 0
    assert keys[:, 8:].abs().min(dim=-1).values.min() > 0
    with torch.enable_grad():
        senses = ranker.backpack.pooled_senses(batch)
        senses[:, :, 0].square().sum().backward()
    assert (
        weights.c_attn.weight.grad.unflatten(0, (2, 2, 16))[0][:, 8:].abs().min(dim=-1).values.min()
        > 0
    )


def test_a_dimension_that_the_last_norm_hides_is_left_out(batch):
    ranker = ranker_over(CONFIGS["llama"], 4)
    with torch.no_grad():
        ranker.backpack.backbone.norm.weight[3] = 0.0
    attention = last_attention(ranker.backpack.backbone)
    assert torch.isfinite(attention.queries).all()
    assert attention.queries[..., 3].abs().max() == attention.keys[..., 3].abs().max() == 0
    assert attention.queries[..., 4].abs().min() > 0


def test_an_unknown_attention_is_refused_with_the_known_ones():
    config = Qwen3Config(num_key_value_heads=2, head_dim=8, **NARROW, **TOKENS)
    ranker = ranker_over(config, 4)
    with pytest.raises(
        ValueError, match=r"'qwen3'; known are bert, distilbert, .* Use start\.weights=random"
    ):
        start_from_attention(ranker.backpack.sense_weight_net, ranker.backpack.backbone)


def test_every_known_type_is_one_of_transformers():
    assert all(AutoConfig.for_model(name).model_type == name for name in initialisation._READERS)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_sharp_start_has_half_of_the_greatest_entropy(name, batch):
    ranker = ranker_over(CONFIGS[name], 8)
    backpack = ranker.backpack
    init_with_entropy(backpack, batch, seed=3)
    weights = backpack.pooled_weights(batch).double().numpy()
    shares = [
        -sum(p * np.log(p) for p in row[:length] if p > 0) / np.log(length)
        for text, length in zip(weights, batch.lengths, strict=True)
        for row in text
    ]
    assert np.mean(shares) == pytest.approx(0.5, abs=1e-3)
    first = backpack.sense_weight_net.c_attn.weight.clone()
    init_with_entropy(backpack, batch, seed=3)
    assert torch.equal(backpack.sense_weight_net.c_attn.weight, first)
    init_with_entropy(backpack, batch, seed=4)
    assert not torch.equal(backpack.sense_weight_net.c_attn.weight, first)


def test_sharpness_of_two_tokens_by_hand():
    """Half of log 2 is the entropy of (.11003, .88997), whose log odds are 2.0905."""
    assert sharpness([torch.tensor([[0.0, 1.0]]).double()]) == pytest.approx(2.0905, abs=1e-3)
    assert sharpness([torch.tensor([[0.0, 4.0]]).double()]) == pytest.approx(2.0905 / 4, abs=1e-3)


def test_texts_that_no_weights_can_tell_apart_are_refused():
    with pytest.raises(ValueError, match="two and more tokens"):
        sharpness([torch.zeros(2, 5), torch.ones(2, 1)])


TEXTS = ([5, 9, 30, 9, 7], [8, 41, 12])


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_start_is_deterministic_and_leaves_all_but_the_weights_and_the_mode(weights):
    ranker = ranker_over(CONFIGS["bert"], 4).train()
    state = {name: value.clone() for name, value in ranker.state_dict().items()}
    states = []
    for seed in (0, 0, 1):
        ranker.load_state_dict(state)
        torch.rand(seed + 1)  # other random numbers must not matter
        start_weights(ranker.backpack, weights, TEXTS, seed)
        states.append({name: value.clone() for name, value in ranker.state_dict().items()})
    assert ranker.training
    assert ranker.backpack.training
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    changed = {name for name, value in state.items() if not torch.equal(value, states[0][name])}
    network = "backpack.sense_weight_net.c_attn"
    assert changed == (set() if weights == "random" else {f"{network}.weight", f"{network}.bias"})
    assert torch.equal(states[0][f"{network}.weight"], states[2][f"{network}.weight"]) == (
        weights != "sharp"
    )


def test_an_unknown_start_is_refused():
    with pytest.raises(
        ValueError, match=r"start\.weights=soft: use one of random, attention, sharp, auto"
    ):
        start_weights(ranker_over(CONFIGS["bert"], 4).backpack, "soft", TEXTS)


def test_auto_takes_the_backbones_attention_where_it_is_known_and_sharp_weights_elsewhere(
    monkeypatch,
):
    backpack = ranker_over(CONFIGS["bert"], 4).backpack
    taken = {}
    for weights in ("attention", "auto"):
        start_weights(backpack, weights, TEXTS)
        taken[weights] = backpack.sense_weight_net.c_attn.weight.detach().clone()
    assert torch.equal(taken["auto"], taken["attention"])
    monkeypatch.delitem(initialisation._READERS, "bert")
    for weights in ("sharp", "auto"):
        start_weights(backpack, weights, TEXTS)
        taken[weights] = backpack.sense_weight_net.c_attn.weight.detach().clone()
    assert torch.equal(taken["auto"], taken["sharp"])
    assert not torch.equal(taken["sharp"], taken["attention"])
