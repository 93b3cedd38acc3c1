"""The hook: what it changes, what it leaves alone, and that it goes without a trace."""

import math
from dataclasses import replace

import pytest
import torch

from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.senses.hook import InferenceHook, linear_components
from backpack_rank.senses.policies import (
    LowestSenses,
    PairedTokens,
    Policy,
    PolicyContext,
    UniformSenses,
)
from backpack_rank.senses.views import IDENTITY, View

TEXTS = [[5, 9, 300, 9, 7, 41], [8], [77, 12, 5, 5, 130, 2, 2, 6]]
PAIRS = [("she", "he"), ("woman", "man")]


class Fixed(Policy):
    """The same views at every alpha."""

    name = "fixed"

    def __init__(self, *views):
        self.given = views

    def views(self, context, alpha):
        return self.given


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def context(request, make_backpack, tokenizer):
    return PolicyContext(make_backpack(dtype=request.param), tokenizer, PAIRS)


@pytest.fixture
def batch():
    return PackedBatch.from_sequences(TEXTS)


@torch.no_grad()
@pytest.mark.parametrize(
    "policy", [None, LowestSenses(), PairedTokens(["gender_classes"])], ids=str
)
def test_alpha_one_and_no_policy_leave_scores_bit_identical(context, batch, policy):
    expected = context.ranker(batch).scores
    with InferenceHook(context, policy, 1.0) as hook:
        assert hook.views is IDENTITY
        assert torch.equal(context.ranker(batch).scores, expected)
    ones = torch.ones(8)
    assert torch.equal(context.ranker(batch, sense_weights=ones).scores, expected)


@torch.no_grad()
@pytest.mark.parametrize(
    "policy", [LowestSenses(), PairedTokens(["gender_classes"])], ids=lambda policy: policy.name
)
def test_behind_the_block_scores_are_bit_identical_and_weights_never_change(
    context, tokenizer, policy
):
    ranker = context.ranker
    batch = PackedBatch.from_sequences(tokenizer([" he saw his mother", " she said"])["input_ids"])
    before = {name: tensor.clone() for name, tensor in ranker.state_dict().items()}
    expected = ranker(batch).scores
    with InferenceHook(context, policy, 0.3):
        assert not torch.equal(ranker(batch).scores, expected)
        assert all(
            torch.equal(tensor, before[name]) for name, tensor in ranker.state_dict().items()
        )
    assert torch.equal(ranker(batch).scores, expected)
    with pytest.raises(RuntimeError, match="stop"), InferenceHook(context, policy, 0.0):
        raise RuntimeError("stop")
    assert torch.equal(ranker(batch).scores, expected)
    assert ranker.state_dict().keys() == before.keys()


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_hooked_scores_are_the_head_over_the_weighted_sum(make_backpack, tokenizer, batch, alpha):
    context = PolicyContext(make_backpack(), tokenizer, PAIRS)
    ranker = context.ranker
    lowest = context.sensitivity.values.argsort()[:3].tolist()
    senses = ranker(batch, return_senses=True).senses
    with InferenceHook(context, LowestSenses(3), alpha):
        hooked = ranker(batch, return_senses=True)
    mix = sum((alpha if sense in lowest else 1.0) * senses[:, sense] for sense in range(8))
    torch.testing.assert_close(hooked.scores, ranker.head(mix), atol=1e-6, rtol=1e-6)
    assert torch.equal(hooked.senses, senses), (
        "sense vectors are given without weights, so that a cache serves all"
    )
    if alpha == 0:
        kept = [sense for sense in range(8) if sense not in lowest]
        torch.testing.assert_close(
            hooked.scores, ranker.head(senses[:, kept].sum(1)), atol=1e-6, rtol=1e-6
        )


@pytest.mark.parametrize(
    "weights",
    [
        torch.ones(7),
        torch.ones(1, 8),
        torch.tensor([-0.1] + [1.0] * 7),
        torch.tensor([float("nan")] + [1.0] * 7),
    ],
)
def test_wrong_weights_are_refused(make_backpack, batch, weights):
    context = PolicyContext(make_backpack(), None)
    with (
        pytest.raises(ValueError, match="need 8 finite weights >= 0"),
        InferenceHook(context, Fixed(View(weights)), 0.5),
    ):
        context.ranker(batch)


@pytest.mark.parametrize("alpha", [-0.5, math.nan, math.inf, "1", True])
def test_what_is_no_alpha_is_refused(make_backpack, alpha):
    with pytest.raises(ValueError, match="alpha="):
        InferenceHook(PolicyContext(make_backpack(), None), UniformSenses(), alpha)


def test_a_ranker_without_senses_takes_alpha_one_alone(make_gpt2, tokenizer):
    context = PolicyContext(make_gpt2(), tokenizer, PAIRS)
    assert InferenceHook(context, UniformSenses(), 1.0).views is IDENTITY
    with pytest.raises(
        ValueError, match=r"alpha=0\.5, policy uniform: GPT2ForRanking has no sense vectors"
    ):
        _ = InferenceHook(context, UniformSenses(), 0.5).views


@pytest.mark.parametrize(
    "views",
    [
        (View(), View()),
        (View(coefficient=0.5),),
        (View(rewrite=lambda query, document: (query, "")),),
    ],
)
def test_policies_that_read_several_texts_for_one_score_need_a_reranker(make_backpack, views):
    hook = InferenceHook(PolicyContext(make_backpack(), None), Fixed(*views), 0.5)
    assert hook.views == views
    with pytest.raises(ValueError, match="policy fixed reads several texts for one score"), hook:
        pass


@torch.no_grad()
def test_sense_vectors_under_shifted_senses_are_the_sum_of_their_components(
    make_backpack, tokenizer, batch
):
    ranker = make_backpack(dtype=torch.float64)
    classes = TokenClasses(("odd",), ((5, 12), (9, 77, 130)), WordBoundaries.of(tokenizer))
    shift = token_shift(ranker, classes, "senses", 0.3)
    components = linear_components(shift)
    assert [factor for factor, _ in components] == [0.3, 0.7]
    assert components[0][1] is None
    assert components[1][1].key == replace(shift, alpha=0.0).key
    parts = [
        factor * ranker(batch, token_shift=part, return_senses=True).senses
        for factor, part in linear_components(shift)
    ]
    expected = ranker(batch, token_shift=shift, return_senses=True).senses
    torch.testing.assert_close(sum(parts), expected, atol=1e-12, rtol=1e-12)
    assert (expected - ranker(batch, return_senses=True).senses).abs().max() > 1e-3
    for other in (None, replace(shift, scope="both"), replace(shift, scope="weights")):
        assert linear_components(other) == [(1.0, other)]
