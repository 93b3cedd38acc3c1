"""Number formats: int8 against its own definition in integers, what auto takes, and what is
refused.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from backpack_rank.models.int8 import Int8Linear, quantise_linears
from backpack_rank.models.number_formats import computes_in_bf16, resolved_format
from backpack_rank.reranking.scorer import Scorer, ScoringSettings

CPU = torch.device("cpu")
int8 = pytest.mark.skipif(
    not torch.cpu._is_vnni_supported(), reason="int8 needs a processor with AVX512-VNNI"
)


def by_definition(weight: np.ndarray, bias: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """W x + b as the class describes it, entry by entry in float64."""
    outputs = np.zeros((len(inputs), len(weight)))
    for token, x in enumerate(inputs):
        step = (x.max() - x.min()) / 255
        q = np.rint((x - x.min()) / step)
        for output, w in enumerate(weight):
            scale = np.abs(w).max() / 127
            rounded = np.rint(w / scale)
            outputs[token, output] = (scale * rounded * (x.min() + step * q)).sum() + bias[output]
    return outputs


@int8
@pytest.mark.parametrize("kind", [nn.Linear, Conv1D])
def test_an_int8_layer_is_what_its_definition_says(kind):
    torch.manual_seed(0)
    layer = nn.Linear(24, 10) if kind is nn.Linear else Conv1D(10, 24)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    inputs = torch.randn(7, 24) * torch.tensor([0.01, 0.1, 1, 1, 3, 10, 100])[:, None] + 0.3
    holder = nn.Sequential(layer)
    assert quantise_linears(holder) == 1
    weight = (layer.weight if kind is nn.Linear else layer.weight.T).detach().double().numpy()
    expected = by_definition(weight, layer.bias.detach().double().numpy(), inputs.double().numpy())
    outputs = holder(inputs).detach().numpy()
    # Entries that lie half-way between two steps may fall to the other side in float32.
    step = np.abs(inputs.numpy()).max(1)[:, None] / 128 * np.abs(weight).max()
    assert (np.abs(outputs - expected) < 1e-4 * np.abs(expected).max(1)[:, None] + 0.1 * step).all()
    exact = (inputs.double().numpy() @ weight.T) + layer.bias.detach().numpy()
    assert 1e-4 < np.abs(outputs - exact).max() / np.abs(exact).max() < 0.02


@int8
def test_a_token_is_rounded_alone():
    torch.manual_seed(0)
    layer = Int8Linear(torch.randn(8, 16), None)
    inputs = torch.randn(5, 16)
    beside = torch.cat([inputs, 1000 * torch.randn(5, 16)])
    assert torch.equal(layer(inputs), layer(beside)[:5])
    assert torch.equal(layer(inputs[None])[0], layer(inputs))


@int8
def test_constant_inputs_and_zero_weights_give_numbers():
    layer = Int8Linear(torch.zeros(3, 16), torch.arange(3.0))
    assert layer(torch.zeros(2, 16)).tolist() == [[0.0, 1.0, 2.0]] * 2
    layer = Int8Linear(torch.ones(3, 16), None)
    far = 1e4 + torch.arange(16.0)[None] / 1000
    assert layer(far)[0].tolist() == pytest.approx([float(far.double().sum())] * 3, rel=1e-6)
    assert layer(torch.full((1, 16), 2.0))[0].tolist() == pytest.approx([32.0] * 3, rel=1e-5)


@int8
@pytest.mark.parametrize("make", ["make_backpack", "make_gpt2"])
def test_int8_scores_are_near_those_in_float32(request, pair_tokenizer, make):
    ranker = request.getfixturevalue(make)()
    texts = [
        ("doctor in the ward", "she is a nurse"),
        ("doctor", "he walks"),
        ("who", "the ward of a nurse " * 4),
    ]
    exact = Scorer(copy.deepcopy(ranker), pair_tokenizer).score_texts(texts)
    scorer = Scorer(ranker, pair_tokenizer, ScoringSettings(dtype="int8"))
    scores = scorer.score_texts(texts)
    assert scorer.number_format == "int8 on cpu"
    assert 0 < np.abs(scores - exact).max() < 0.1 * np.abs(exact).max()
    alone = [scorer.score_texts([text])[0] for text in texts]
    assert scores.tolist() == pytest.approx(alone, abs=1e-5)


@int8
def test_int8_cannot_be_undone(make_backpack, pair_tokenizer):
    ranker = make_backpack()
    Scorer(ranker, pair_tokenizer, ScoringSettings(dtype="int8"))
    Scorer(ranker, pair_tokenizer, ScoringSettings(dtype="int8"))
    with pytest.raises(ValueError, match="brought to int8 before, which cannot be undone"):
        Scorer(ranker, pair_tokenizer)


def test_the_format_that_is_said_is_the_one_computed_in(make_backpack, pair_tokenizer):
    ranker = make_backpack()
    first = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu"))
    assert first.number_format == "float32 on cpu"
    Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu", dtype="bfloat16"))
    assert first.number_format == "bfloat16 on cpu", "both have the same ranker"


def test_auto_takes_what_the_processor_computes_in():
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if computes_in_bf16(True) else ""
    assert resolved_format("auto", CPU, "scoring.dtype") == ("bfloat16" if flags else "float32")
    assert not flags or "avx512_bf16" in flags or "amx_bf16" in flags
    assert resolved_format("float16", CPU, "scoring.dtype") == "float16"


def test_int8_is_refused_where_it_is_not_to_be_had():
    with pytest.raises(
        ValueError, match=r"scoring\.dtype=int8 is for CPUs, not for cuda; use bfloat16"
    ):
        resolved_format("int8", torch.device("cuda"), "scoring.dtype")
    with pytest.raises(
        ValueError, match=r"scoring\.dtype=int4: use one of float32, bfloat16, float16, int8, auto"
    ):
        resolved_format("int4", CPU, "scoring.dtype")
