"""Starts of new senses: what they reproduce, how they are shared out and scaled, and what is refused."""

import numpy as np
import pytest
import torch
from transformers import BertConfig

from backpack_rank.models import attention_start
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.initialisation import SENSES, WEIGHTS, start_senses
from backpack_rank.models.packing import PackedBatch
from backpack_rank.models.ranker import BackpackForRanking


@pytest.fixture
def ranker(tokenizer):
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer) + 5, max_position_embeddings=48, initializer_range=0.3, **shape)
    return BackpackForRanking(BackpackConfig(backbone_config=config, num_senses=8))


@pytest.fixture
def texts(encoder, sentences):
    return [text for query in sentences[:4] for text in encoder.pairs(query[:12], sentences)]


def embeddings(ranker, tokenizer):
    return ranker.backpack.get_input_embeddings().weight[: len(tokenizer)].detach()


def direct_senses(ranker, tokenizer):
    """Sense vectors of all tokens, without dropout. [V, k, d]"""
    with torch.no_grad():
        return ranker.eval().backpack.senses(torch.arange(len(tokenizer)))


def explained(found, target):
    """Share of the variance of rows, up to one scale for all."""
    found, target = found - found.mean(0), target - target.mean(0)
    return float((found * target).sum() ** 2 / (found.square().sum() * target.square().sum()))


def slow_ridge(features, target):
    """W [f, d] by least squares over centred rows, with one more row per feature for the penalty."""
    x, y = features - features.mean(0), target - target.mean(0)
    penalty = np.sqrt(0.01 * np.mean((x**2).sum(0)))
    more = np.zeros((x.shape[1], y.shape[1]))
    return np.linalg.lstsq(np.vstack([x, penalty * np.eye(len(more))]), np.vstack([y, more]), rcond=None)[0]


@pytest.mark.parametrize("start", ["embedding", "projections"])
def test_the_sum_of_the_senses_is_the_embedding(ranker, tokenizer, texts, start):
    target = embeddings(ranker, tokenizer)
    assert explained(direct_senses(ranker, tokenizer).sum(1), target) < 0.2
    start_senses(ranker, tokenizer, senses=start, texts=texts)
    assert explained(direct_senses(ranker, tokenizer).sum(1), target) > 0.8


def test_the_map_is_the_slow_obvious_ridge_regression(ranker, tokenizer, texts):
    with torch.no_grad():
        features = ranker.eval().backpack.token_hidden(torch.arange(len(tokenizer))).double().numpy()
    target = embeddings(ranker, tokenizer).double().numpy()
    start_senses(ranker, tokenizer, senses="embedding", texts=texts)
    expected = slow_ridge(features, target)
    found = ranker.backpack.sense_network.final_mlp.c_proj.weight.detach().unflatten(1, (8, 32)).numpy()
    scale = (found[:, 0] * expected).sum() / (expected**2).sum()
    for sense in range(8):
        np.testing.assert_allclose(found[:, sense], scale * expected, atol=1e-4 * np.abs(scale * expected).max())


def test_embedding_gives_every_sense_the_same_share_and_projections_another_one(ranker, tokenizer, texts):
    start_senses(ranker, tokenizer, senses="embedding", texts=texts)
    same = direct_senses(ranker, tokenizer)
    same = same - same.mean(0)
    torch.testing.assert_close(same, same[:, :1].expand_as(same), atol=1e-4, rtol=1e-3)
    start_senses(ranker, tokenizer, senses="projections", texts=texts)
    other = direct_senses(ranker, tokenizer).double()
    other = other - other.mean(0)
    for first in range(8):
        assert np.linalg.matrix_rank(other[:, first].numpy(), tol=1e-3) == 4  # d / k axes
        for second in range(first):
            assert (other[:, first] * other[:, second]).sum(-1).abs().max() < 1e-4
    lengths = other.square().sum(-1).mean(0)
    assert lengths.max() / lengths.min() < 2


@torch.no_grad()
@pytest.mark.parametrize("start", ["embedding", "projections", "context"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_mix_varies_as_the_pooled_vector_does_and_every_sense_is_0_on_average(
    ranker, tokenizer, texts, start, weights
):
    start_senses(ranker, tokenizer, senses=start, weights=weights, texts=texts)
    backpack = ranker.eval().backpack
    batch = PackedBatch.from_sequences(texts)
    senses = backpack.pooled_senses(batch)
    pooled = backpack.hidden_states(batch)[backpack.pooled_positions(batch)]
    assert senses.mean(0).abs().max() < 1e-4
    expected = pooled.var(dim=0, correction=0).sum()
    assert senses.sum(1).var(dim=0, correction=0).sum().item() == pytest.approx(expected.item(), rel=1e-3)


@torch.no_grad()
def test_context_is_the_regression_over_all_tokens_of_the_texts_with_their_last_hidden_states(ranker, tokenizer, texts):
    backpack = ranker.eval().backpack
    batch = PackedBatch.from_sequences(texts)
    features, target = backpack.token_hidden(batch.input_ids), backpack.hidden_states(batch)
    expected = slow_ridge(features.double().numpy(), target.double().numpy())
    assert explained(direct_senses(ranker, tokenizer)[batch.input_ids].sum(1), target) < 0.2
    start_senses(ranker, tokenizer, senses="context", texts=texts)
    found = backpack.sense_network.final_mlp.c_proj.weight.unflatten(1, (8, 32)).sum(1).numpy()
    scale = (found * expected).sum() / (expected**2).sum()
    np.testing.assert_allclose(found, scale * expected, atol=1e-4 * np.abs(scale * expected).max())


@pytest.mark.parametrize("senses", SENSES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_start_is_deterministic_and_leaves_backbone_head_and_mode(tokenizer, ranker, texts, senses, weights):
    state = {name: value.clone() for name, value in ranker.state_dict().items()}
    own = texts if senses == "context" else ()
    states = []
    for seed in (0, 0, 1):
        ranker.load_state_dict(state)
        torch.rand(seed + 1)  # other random numbers must not matter
        start_senses(ranker, tokenizer, senses=senses, weights=weights, seed=seed, texts=own)
        states.append({name: value.clone() for name, value in ranker.state_dict().items()})
    assert ranker.training
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    changed = {name for name, value in state.items() if not torch.equal(value, states[0][name])}
    expected = set() if weights == "random" else {"backpack.sense_weight_net.c_attn.weight"}
    if senses != "random":
        expected |= {f"backpack.sense_network.final_mlp.c_proj.{name}" for name in ("weight", "bias")}
    assert changed == expected
    differ = any(not torch.equal(value, states[2][name]) for name, value in states[0].items())
    assert differ == (weights == "sharp" or senses in ("embedding", "projections"))


def test_decoders_start_too(make_backpack, tokenizer, texts):
    ranker = make_backpack()
    start_senses(ranker, tokenizer, senses="projections", weights="attention", texts=texts)
    assert explained(direct_senses(ranker, tokenizer).sum(1), embeddings(ranker, tokenizer)) > 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"senses": "embeddings"}, r"senses='embeddings' is not a start .* random, embedding, projections, context"),
        ({"weights": "soft"}, r"weights='soft' is not a start of weights; known are random, attention, sharp"),
        ({"senses": "context"}, "senses=context needs texts"),
        ({"senses": "embedding", "texts": [[5, 6]]}, "two texts and more"),
        ({"senses": "embedding", "texts": [[5, 6], [5, 6]]}, "texts are all alike"),
    ],
)
def test_bad_options_are_refused(ranker, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        start_senses(ranker, tokenizer, **options)


def test_auto_takes_the_backbones_attention_where_it_is_known_and_sharp_weights_elsewhere(
    ranker, tokenizer, texts, monkeypatch
):
    network = ranker.backpack.sense_weight_net.c_attn
    found = {}
    for weights in ("attention", "auto"):
        start_senses(ranker, tokenizer, weights=weights, texts=texts)
        found[weights] = network.weight.detach().clone()
    assert torch.equal(found["auto"], found["attention"])
    monkeypatch.delitem(attention_start._READERS, "bert")
    for weights in ("sharp", "auto"):
        start_senses(ranker, tokenizer, weights=weights, texts=texts)
        found[weights] = network.weight.detach().clone()
    assert torch.equal(found["auto"], found["sharp"])
    assert not torch.equal(found["sharp"], found["attention"])
