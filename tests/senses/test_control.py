"""The hook: what it changes, what it leaves alone, and that it goes without a trace."""

import pytest
import torch

from backpack_rank.models.packing import PackedBatch
from backpack_rank.senses.control import Control, applied, attach
from backpack_rank.senses.policy import LowestSenses

TEXTS = [[5, 9, 300, 9, 7, 41], [8], [77, 12, 5, 5, 130, 2, 2, 6]]
SENSITIVITY = torch.tensor([0.9, 0.2, 0.5, 0.1, 0.7, 0.6, 0.3, 0.8])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def ranker(request, make_backpack):
    return make_backpack(dtype=request.param)


@pytest.fixture
def batch():
    return PackedBatch.from_sequences(TEXTS)


@torch.no_grad()
def test_alpha_one_leaves_scores_bit_identical(ranker, batch):
    expected = ranker(batch).scores
    with applied(ranker, Control(weights=LowestSenses().weights(SENSITIVITY, 1.0))):
        assert torch.equal(ranker(batch).scores, expected)


@torch.no_grad()
def test_a_detached_hook_leaves_scores_bit_identical_and_weights_untouched(ranker, batch):
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    expected = ranker(batch).scores
    handle = attach(ranker, LowestSenses().weights(SENSITIVITY, 0.3))
    assert not torch.equal(ranker(batch).scores, expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ranker.state_dict().items())
    handle.remove()
    assert torch.equal(ranker(batch).scores, expected)
    assert ranker.state_dict().keys() == before.keys()


@torch.no_grad()
def test_an_error_inside_the_block_detaches_the_hook(ranker, batch):
    expected = ranker(batch).scores
    with pytest.raises(RuntimeError, match="stop"), applied(ranker, Control(weights=torch.zeros(8))):
        raise RuntimeError("stop")
    assert torch.equal(ranker(batch).scores, expected)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_hooked_scores_are_the_head_over_the_weighted_sum(make_backpack, batch, alpha):
    ranker = make_backpack()
    weights = LowestSenses(3).weights(SENSITIVITY, alpha)
    senses = ranker(batch, return_senses=True).senses
    with applied(ranker, Control(weights=weights)):
        hooked = ranker(batch, return_senses=True)
    mix = sum(weights[sense] * senses[:, sense] for sense in range(8))
    torch.testing.assert_close(hooked.scores, ranker.head(mix), atol=1e-6, rtol=1e-6)
    assert torch.equal(hooked.senses, senses), "sense vectors are given as they are, so that a cache serves all alphas"


@torch.no_grad()
def test_alpha_zero_is_the_score_without_those_senses(make_backpack, batch):
    ranker = make_backpack()
    senses = ranker(batch, return_senses=True).senses
    kept = [sense for sense in range(8) if sense not in (3, 1)]
    with applied(ranker, Control(weights=LowestSenses(2).weights(SENSITIVITY, 0))):
        scores = ranker(batch).scores
    torch.testing.assert_close(scores, ranker.head(senses[:, kept].sum(1)), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_two_hooks_multiply(make_backpack, batch):
    ranker = make_backpack()
    half = torch.full((8,), 0.5)
    with applied(ranker, Control(weights=half * half)):
        expected = ranker(batch).scores
    with applied(ranker, Control(weights=half)), applied(ranker, Control(weights=half)):
        assert torch.equal(ranker(batch).scores, expected)


@pytest.mark.parametrize(
    "weights",
    [torch.ones(7), torch.ones(1, 8), torch.tensor([-0.1] + [1.0] * 7), torch.tensor([float("nan")] + [1.0] * 7)],
)
def test_wrong_weights_are_refused(make_backpack, weights):
    with pytest.raises(ValueError, match="need 8 finite weights >= 0"):
        attach(make_backpack(), weights)


def test_a_ranker_without_senses_is_refused(make_gpt2):
    with pytest.raises(TypeError, match="GPT2ForRanking has no sense vectors"):
        attach(make_gpt2(), torch.ones(8))
