"""Number formats (a backbone in bf16 below new parts in fp32 is equal to fp32 on the same rounded
weights), devices.
"""

import copy

import pytest
import torch
from transformers import BertConfig, GPT2Config, LlamaConfig
from whole_words import SHAPE

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import BackpackConfig, CrossEncoderConfig
from backpack_rank.models.rankers import BackpackForRanking, CrossEncoderForRanking
from backpack_rank.models.utils import backbone_dtype, cast_parameters, pick_device

BATCH = PackedBatch.from_sequences([[3, 4, 5, 6], [7, 8], [9, 10, 11]])
SIZES = {
    **SHAPE,
    "vocab_size": 60,
    "max_position_embeddings": 48,
    "initializer_range": 0.1,
}
BACKBONES = {
    "bert": BertConfig(**SIZES),
    "llama": LlamaConfig(**SIZES),
    "gpt2": GPT2Config(
        vocab_size=60,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=48,
        bos_token_id=1,
        eos_token_id=2,
    ),
}


def backpack(name):
    torch.manual_seed(0)
    options = {
        "backbone_config": copy.deepcopy(BACKBONES[name]),
        "num_senses": 4,
        "initializer_range": 0.2,
    }
    return BackpackForRanking(BackpackConfig(**options)).eval()


def cross_encoder(name):
    torch.manual_seed(0)
    config = CrossEncoderConfig(
        backbone_config=copy.deepcopy(BACKBONES[name]), initializer_range=0.2
    )
    return CrossEncoderForRanking(config).eval()


def in_bf16(ranker):
    cast_parameters(
        ranker.backpack.backbone if hasattr(ranker, "backpack") else ranker.backbone, "bfloat16"
    )
    return ranker


def formats(ranker):
    """Formats of the backbone's parameters, and of the others."""
    inside = {
        id(parameter) for name, parameter in ranker.named_parameters() if ".backbone." in f".{name}"
    }
    return [
        {p.dtype for p in ranker.parameters() if (id(p) in inside) == wanted}
        for wanted in (True, False)
    ]


@pytest.mark.parametrize("make", [backpack, cross_encoder])
@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_scores_are_those_of_fp32_on_the_same_weights_up_to_rounding(make, name):
    ranker = in_bf16(make(name))
    assert formats(ranker) == [{torch.bfloat16}, {torch.float32}]
    exact = make(name)
    exact.load_state_dict(ranker.state_dict())  # the rounded weights, in fp32
    expected = exact(BATCH).scores
    assert expected.std() > 0.01
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = ranker(BATCH).scores
        assert autocast or scores.dtype == torch.float32
        difference = (scores.float() - expected).abs().max()
        assert 0 < difference < 0.3 * expected.std()


@torch.no_grad()
def test_senses_are_computed_in_fp32_from_the_rounded_embeddings():
    ranker = in_bf16(backpack("llama"))
    network, ids = ranker.backpack, torch.tensor([3, 4, 7])
    embeddings = network.get_input_embeddings().weight[ids].float()
    expected = network.sense_network.expand(network.sense_network.hidden(embeddings))
    assert torch.equal(network.senses(ids), expected)
    assert network.hidden_states(BATCH).dtype == torch.float32


def test_gradients_pass_the_border_in_the_format_of_each_side():
    ranker = in_bf16(backpack("bert"))
    ranker(BATCH).scores.sum().backward()
    assert all(parameter.grad.dtype == parameter.dtype for parameter in ranker.parameters())


def test_rotary_frequencies_stay_in_fp32():
    """In bf16, neighbouring positions far behind would be the same."""
    ranker = in_bf16(backpack("llama"))
    assert ranker.backpack.backbone.rotary_emb.inv_freq.dtype == torch.float32


def test_tied_embeddings_stay_tied():
    network = in_bf16(backpack("gpt2")).backpack
    assert network.word_embeddings.weight is network.backbone.wte.weight
    assert network.word_embeddings.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("make", [backpack, cross_encoder])
@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_a_saved_ranker_is_loaded_without_rounding_anything(make, name, tmp_path):
    """In fp32, whatever the backbone was trained in: new parts in bf16 would have scores with ties
    everywhere.
    """
    ranker = in_bf16(make(name))
    ranker.save_pretrained(tmp_path)
    again = type(ranker).from_pretrained(tmp_path).eval()
    assert formats(again) == [{torch.float32}, {torch.float32}]
    state = again.state_dict()
    assert all(torch.equal(value.float(), state[key]) for key, value in ranker.state_dict().items())


def test_other_formats_are_refused():
    assert backbone_dtype("float32") is torch.float32
    with pytest.raises(ValueError, match="backbone: dtype=float16: use one of float32, bfloat16"):
        backbone_dtype("float16")


def test_devices_are_chosen_by_name():
    assert pick_device("cpu", "device").type == "cpu"
    assert pick_device("auto", "device").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_an_error():
    with pytest.raises(
        ValueError, match=r"scoring\.device=cuda, but torch sees no GPU; use scoring\.device=cpu"
    ):
        pick_device("cuda", "scoring.device")
