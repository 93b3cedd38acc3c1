"""The last layer at the read tokens alone gives what the whole layer gives there."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.configuration import CrossEncoderConfig
from backpack_rank.models.rankers import CrossEncoderForRanking

SHAPE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"intermediate_size": 64, "max_position_embeddings": 40, "initializer_range": 0.3}


def make(kind: str, **options) -> CrossEncoderForRanking:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **options.pop("own", {}))
    return CrossEncoderForRanking(
        CrossEncoderConfig(backbone_config=config, separator_id=3, **options)
    ).eval()


@pytest.fixture
def batch() -> PackedBatch:
    draw = np.random.default_rng(0)
    return PackedBatch.from_sequences([draw.integers(1, 50, length) for length in (1, 7, 30, 7)])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("pooling", ["first", "last"])
@pytest.mark.parametrize(("kind", "options"), [("bert", {}), ("electra", {"embedding_size": 16})])
def test_pooled_states_are_rows_of_the_whole_last_layer(
    kind, options, pooling, device, batch
) -> None:
    ranker = make(kind, own=options, pooling=pooling).to(device)
    batch = batch.to(device)
    calls = []
    ranker.backbone.encoder.layer[-1].intermediate.register_forward_hook(
        lambda *call: calls.append(call[1][0].shape)
    )
    with torch.inference_mode():
        rows_of_all = ranker.hidden_states(batch)[ranker.pooled_positions(batch)]
        pooled = ranker.pooled_states(batch)
    torch.testing.assert_close(pooled, rows_of_all, rtol=1e-5, atol=1e-5)
    assert calls == [(1, 45, 32), (1, 4, 32)]


def test_gradients_of_inference_are_those_of_the_whole_layer(batch) -> None:
    ranker = make("bert")
    gradients = []
    for states in (
        ranker.pooled_states,
        lambda inputs: ranker.hidden_states(inputs)[ranker.pooled_positions(inputs)],
    ):
        ranker.zero_grad(set_to_none=True)
        states(batch).square().sum().backward()
        gradients.append(
            {name: p.grad.clone() for name, p in ranker.named_parameters() if p.grad is not None}
        )
    pooled, of_all_rows = gradients
    assert pooled.keys() == of_all_rows.keys()
    for name, gradient in of_all_rows.items():
        torch.testing.assert_close(pooled[name], gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "options"), [("distilbert", {}), ("gpt2", {}), ("bert", {"is_decoder": True})]
)
def test_other_backbones_are_read_as_they_are(kind, options, batch) -> None:
    ranker = make(kind, own=options)
    before = [type(module) for module in ranker.modules()]
    with torch.inference_mode():
        expected = ranker.hidden_states(batch)[ranker.pooled_positions(batch)]
        torch.testing.assert_close(ranker.pooled_states(batch), expected, rtol=0, atol=0)
    assert [type(module) for module in ranker.modules()] == before


def test_training_computes_the_whole_layer_and_copies_stay_whole(batch) -> None:
    ranker = make("bert")
    with torch.inference_mode():
        expected = ranker(batch).scores
        for twin in (copy.deepcopy(ranker), pickle.loads(pickle.dumps(ranker))):
            assert torch.equal(twin(batch).scores, expected)
    calls = []
    ranker.backbone.encoder.layer[-1].output.register_forward_hook(
        lambda *call: calls.append(call[2].shape[1])
    )
    ranker.train()(batch)
    ranker.eval()(batch)
    assert calls == [45, 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_pickled_ranker_is_whole_in_a_process_that_imported_no_layer(
    kind, batch, tmp_path
) -> None:
    ranker = make(kind, own={"pad_token_id": 0} if kind == "modernbert" else {})
    with torch.inference_mode():
        expected = ranker(batch).scores.tolist()
    for name, content in (("ranker", ranker), ("batch", batch)):
        (tmp_path / name).write_bytes(pickle.dumps(content))
    other = {"bert": "modernbert", "modernbert": "bert"}[kind]
    program = (
        "import pickle, sys\n"
        "ranker = pickle.load(open('ranker', 'rb'))\n"
        "print(ranker(pickle.load(open('batch', 'rb'))).scores.tolist())\n"
        f"assert 'transformers.models.{other}.modeling_{other}' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == pytest.approx(expected, rel=1e-6)
