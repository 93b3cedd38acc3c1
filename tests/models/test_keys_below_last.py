"""Keys of the sense weights from below the last layer, against the states that transformers gives
for each text alone, and torch's own gradients of that slow calculation.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from saved_rankers import FIXTURES
from torch.func import functional_call
from transformers import AutoConfig, AutoModel

from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import PairTokenizer, train_bpe
from backpack_rank.models.backbone import supports_packing
from backpack_rank.models.configuration import BackpackConfig
from backpack_rank.models.factory import backpack_on_backbone
from backpack_rank.models.initialisation import start_from_attention
from backpack_rank.models.loading import load_ranker, save_ranker
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.models.rankers import BackpackForRanking
from backpack_rank.senses.attribution import attribute
from backpack_rank.training.reconstruction import mixed_and_pooled

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 60,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENCODERS = {
    "bert": {},
    "electra": {"embedding_size": 16},
    "roberta": {},
    "xlm-roberta": {},
    "modernbert": {
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        "norm_bias": True,
        "cls_token_id": 1,
        "sep_token_id": 3,
    },
}
SEPARATOR = 3


def new_ranker(kind: str, layers: int = 3, **options) -> BackpackForRanking:
    """Large random weights, in double precision and without dropout."""
    torch.manual_seed(0)
    shape = SHAPE | {"num_hidden_layers": layers}
    backbone = AutoConfig.for_model(kind, **shape, **ENCODERS.get(kind, {}))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(backbone, name):
            setattr(backbone, name, 0.0)
    options = {"num_senses": 4, "dropout": 0.0, "separator_id": SEPARATOR} | options
    config = BackpackConfig(backbone_config=backbone, sense_keys="below_last", **options)
    ranker = BackpackForRanking(config).double().eval()
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return ranker


@pytest.fixture(scope="module")
def batch() -> PackedBatch:
    draw = np.random.default_rng(0)
    texts = []
    for length in (2, 7, 30, 7):
        text = draw.integers(4, 50, length)
        text[length // 2] = SEPARATOR
        texts.append(text)
    return PackedBatch.from_sequences(texts)


def slow_scores(ranker: BackpackForRanking, batch: PackedBatch) -> torch.Tensor:
    """Text by text: transformers' states, one attention of each sense, senses of every token."""
    backpack = ranker.backpack
    config = ranker.config
    library = AutoModel.from_config(config.backbone_config, attn_implementation="eager").double()
    library.eval()
    parameters = dict(backpack.backbone.named_parameters())
    d, k = config.hidden_size, config.num_senses
    width = d // k
    scores = []
    for ids in batch.input_ids.split(batch.lengths):
        options = {"output_hidden_states": True}
        if getattr(config.backbone_config, "type_vocab_size", 0) > 1:
            behind = torch.arange(len(ids)) > ids.tolist().index(SEPARATOR)
            options["token_type_ids"] = behind.long()[None]
        output = functional_call(library, parameters, (ids[None],), options)
        last, below = output.last_hidden_state[0], output.hidden_states[-2][0]
        if config.backbone_config.model_type == "modernbert":
            # Its states are normed at the end of the network.
            norm = backpack.backbone.final_norm
            below = torch.nn.functional.layer_norm(below, (d,), norm.weight, norm.bias, norm.eps)
        weight, bias = (
            backpack.sense_weight_net.c_attn.weight,
            backpack.sense_weight_net.c_attn.bias,
        )
        pooled = 0 if config.pooling == "first" else -1
        senses = backpack.senses(ids)  # C(x), [n, k, d]
        mixed = 0
        for sense in range(k):
            part = slice(sense * width, (sense + 1) * width)
            query = last[pooled] @ weight[:d][part].T + bias[:d][part]
            keys = below @ weight[d:][part].T + bias[d:][part]
            shares = (keys @ query / math.sqrt(width)).softmax(dim=0)
            mixed = mixed + shares @ senses[:, sense]
        scores.append(ranker.head(mixed[None])[0])
    return torch.stack(scores)


@pytest.mark.parametrize("kind", ENCODERS)
def test_scores_and_gradients_are_those_of_a_slow_calculation(kind, batch) -> None:
    ranker = new_ranker(kind)
    weights = torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=torch.float64)
    calculations = []
    for scores in (ranker(batch).scores, slow_scores(ranker, batch)):
        ranker.zero_grad(set_to_none=True)
        (scores * weights).sum().backward()
        gradients = {}
        for name, parameter in ranker.named_parameters():
            # The two ways give a parameter that moves nothing no gradient, or zeros.
            if parameter.grad is not None and bool(parameter.grad.to_dense().any()):
                gradients[name] = parameter.grad.to_dense().clone()
        calculations.append((scores.detach(), gradients))
    (fast, fast_gradients), (slow, slow_gradients) = calculations
    # ModernBERT's rotations are in single precision.
    torch.testing.assert_close(fast, slow, rtol=1e-7, atol=1e-8)
    assert fast.std() > 0.02
    for name, gradient in slow_gradients.items():
        # Biases of keys drop out of a softmax: what is left of their gradient is rounding.
        if float(gradient.abs().max()) > 1e-10:
            torch.testing.assert_close(fast_gradients[name], gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pooling", ["first", "last"])
@pytest.mark.parametrize(("kind", "layers"), [("bert", 3), ("modernbert", 3), ("modernbert", 2)])
def test_the_last_layer_is_that_of_the_pooled_token(kind, layers, pooling, batch) -> None:
    """Of two layers of this ModernBERT the last one sees a window, of three all tokens."""
    ranker = new_ranker(kind, layers, pooling=pooling)
    # In this order: a model of transformers that is made of a configuration changes its attention.
    scores = ranker(batch).scores
    torch.testing.assert_close(scores, slow_scores(ranker, batch), rtol=1e-7, atol=1e-8)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_packed_and_padded_texts_get_the_same_scores(kind, batch) -> None:
    packed = new_ranker(kind)
    padded = new_ranker(kind, attention="sdpa")
    padded.load_state_dict(packed.state_dict())
    assert supports_packing(packed.config)
    assert not supports_packing(padded.config)
    torch.testing.assert_close(padded(batch).scores, packed(batch).scores, rtol=1e-9, atol=1e-9)
    # At all positions too.
    text = torch.cat([batch.input_ids[2:9], torch.zeros(3).long()])
    mask = torch.cat([torch.ones(7).long(), torch.zeros(3).long()])
    alone = packed.backpack(text[None, :7]).mixed
    beside = packed.backpack(text[None], mask[None]).mixed[:, :7]
    torch.testing.assert_close(beside, alone, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_the_pooled_mix_is_that_of_all_positions_at_the_pooled_one(batch) -> None:
    """``forward`` has no token types, so neither has the ranker here."""
    ranker = new_ranker("bert", separator_id=None)
    pooled = ranker.backpack.pooled_senses(batch).sum(dim=1)
    for number, ids in enumerate(batch.input_ids.split(batch.lengths)):
        expected = ranker.backpack(ids[None]).mixed[0, 0]
        torch.testing.assert_close(pooled[number], expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_score_over_all_positions_has_these_keys_too(batch) -> None:
    ranker = new_ranker("bert", separator_id=None, head="linear_sigmoid", readout="mean_sigmoid")
    scores = ranker(batch).scores
    for number, ids in enumerate(batch.input_ids.split(batch.lengths)):
        mixed = ranker.backpack(ids[None]).mixed[0]
        expected = torch.sigmoid(mixed @ ranker.head.out.weight[0]).mean()
        # What each sense adds is kept in single precision.
        torch.testing.assert_close(scores[number], expected.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_the_last_layer_is_computed_at_the_pooled_tokens_alone(training, batch) -> None:
    ranker = new_ranker("bert").train(training)
    shapes = []
    layer = ranker.backpack.backbone.encoder.layer[-1]
    layer.intermediate.register_forward_hook(lambda *call: shapes.append(call[1][0].shape))
    ranker(batch)
    mixed_and_pooled(ranker.backpack, batch)
    assert shapes == [(1, len(batch), 32)] * 2


@pytest.mark.slow
def test_dropout_of_attention_is_drawn_at_the_pooled_tokens(batch) -> None:
    ranker = new_ranker("bert")
    ranker.backpack.backbone.encoder.layer[-1].attention.self.dropout.p = 0.5
    with torch.no_grad():
        without = ranker(batch).scores
        ranker.train()
        torch.manual_seed(0)
        drawn = torch.stack([ranker(batch).scores for _ in range(400)])
    spread = drawn.std(dim=0)
    assert spread.min() > 1e-4
    # A share of the attention is dropped and the rest enlarged: on average little changes.
    assert ((drawn.mean(dim=0) - without).abs() < spread).all()


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_an_attention_start_looks_at_what_the_librarys_last_layer_looks_at(kind, batch) -> None:
    """Keys of each sense are the layer's own; queries are the layer's, of the state behind it."""
    ranker = new_ranker(kind)
    backpack = ranker.backpack
    backbone = backpack.backbone
    start_from_attention(backpack.sense_weight_net, backbone)
    caught = []
    layer = backbone.layers[-1] if kind == "modernbert" else backbone.encoder.layer[-1]
    attention = layer.attn if kind == "modernbert" else layer.attention.self
    linear = attention.Wqkv if kind == "modernbert" else attention.key
    linear.register_forward_hook(lambda *call: caught.append(call[2]))
    _, read = backpack.weight_states(batch)
    of_layer = caught[0]
    if kind == "modernbert":
        of_layer = of_layer.chunk(3, dim=-1)[1]
    if len(of_layer) == len(batch):  # padded
        of_layer = of_layer[batch.padding_mask()]
    _, keys = backpack.sense_weight_net.split(read, read)
    # Up to a constant for each text, which drops out of the softmax.
    differences = keys[3:9] - keys[2]
    of_layer = of_layer.reshape(-1, 4, 8)
    torch.testing.assert_close(differences, of_layer[3:9] - of_layer[2], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("distilbert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
        ("bert", {"hidden_size": 32, "num_attention_heads": 4, "is_decoder": True}),
    ],
)
def test_other_backbones_are_refused(kind, options) -> None:
    config = BackpackConfig(
        backbone_config=AutoConfig.for_model(kind, **options), num_senses=4, sense_keys="below_last"
    )
    with pytest.raises(ValueError, match=rf"encoder of type bert, .*'{kind}': take keys=last"):
        BackpackForRanking(config)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sense_keys=first: use one of last, below_last"):
        BackpackConfig(sense_keys="first")


@pytest.fixture
def saved(tmp_path):
    """A small BERT with a tokenizer, as the hub would give it."""
    texts = ["The doctor said he would see her.", "a queen and her king", "who is the queen?"] * 9
    tokenizer = train_bpe(texts, vocab_size=300)
    names = {"cls_token": tokenizer.eos_token, "sep_token": tokenizer.eos_token}
    tokenizer.add_special_tokens(names)
    torch.manual_seed(0)
    config = AutoConfig.for_model("bert", **(SHAPE | {"vocab_size": len(tokenizer)}))
    AutoModel.from_config(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tokenizer, str(tmp_path / "bert")


@torch.no_grad()
def test_a_saved_folder_keeps_its_keys_and_an_older_one_has_the_last(saved, tmp_path) -> None:
    tokenizer, name = saved
    ranker = backpack_on_backbone(tokenizer, name=name, senses=4, keys="below_last").eval()
    pair_tokenizer = make_pair_tokenizer(tokenizer, ranker, 40)
    save_ranker(tmp_path / "ranker", ranker, pair_tokenizer)
    loaded, _ = load_ranker(tmp_path / "ranker")
    batch = PackedBatch.from_sequences(pair_tokenizer.pairs("who is the queen", ["her king", "he"]))
    assert loaded.config.sense_keys == "below_last"
    torch.testing.assert_close(loaded.eval()(batch).scores, ranker(batch).scores)
    loaded.config.sense_keys = "last"
    other = BackpackForRanking(loaded.config).eval()
    other.load_state_dict(loaded.state_dict())
    assert not torch.allclose(other(batch).scores, ranker(batch).scores, rtol=1e-3)
    config = json.loads((FIXTURES / "backpack_on_bert" / "config.json").read_text())
    assert "sense_keys" not in config
    older, _ = load_ranker(FIXTURES / "backpack_on_bert")
    assert older.config.sense_keys == "last"


def test_a_new_backpack_reads_its_keys_below_the_last_layer_where_its_encoder_can(
    saved, tmp_path
) -> None:
    tokenizer, name = saved
    assert backpack_on_backbone(tokenizer, name=name, senses=4).config.sense_keys == "below_last"
    asked = backpack_on_backbone(tokenizer, name=name, senses=4, keys="last")
    assert asked.config.sense_keys == "last"
    decoder = AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=4)
    decoder.vocab_size = len(tokenizer)
    AutoModel.from_config(decoder).save_pretrained(tmp_path / "gpt2")
    over_decoder = backpack_on_backbone(tokenizer, name=str(tmp_path / "gpt2"), senses=4)
    assert over_decoder.config.sense_keys == "last"


def test_explanations_add_up_to_the_score(saved) -> None:
    tokenizer, name = saved
    ranker = backpack_on_backbone(tokenizer, name=name, senses=4, keys="below_last").eval()
    texts = ("who is the queen", "her king said he would see the doctor")
    attribution = attribute(ranker, PairTokenizer(tokenizer, 40, tokenizer.cls_token_id), *texts)
    batch = PackedBatch.from_sequences(
        PairTokenizer(tokenizer, 40, tokenizer.cls_token_id).pairs(texts[0], [texts[1]])
    )
    with torch.no_grad():
        score = float(ranker(batch).scores[0])
    assert float(attribution.contributions.sum()) + attribution.empty_score == pytest.approx(
        score, abs=1e-5
    )
    assert attribution.score == pytest.approx(score, abs=1e-5)
