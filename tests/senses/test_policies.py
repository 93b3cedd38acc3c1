"""From sensitivities and alpha to what a ranker does differently."""

import math
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.models.token_shift import TokenClasses, token_shift
from backpack_rank.senses.policies import (
    ExplicitWeights,
    LowestSenses,
    PairedTokens,
    PolicyContext,
    RandomSenses,
    SoftSenses,
    ThresholdSenses,
    UniformSenses,
    check_alpha,
)
from backpack_rank.senses.policy_names import named_policy
from backpack_rank.senses.sensitivity import Sensitivity, sensitivity

CONF = str(Path(__file__).resolve().parents[2] / "conf")
SENSITIVITY = torch.tensor([0.9, -0.2, 0.5, 0.1, 0.7])


def test_the_paper_scales_the_two_lowest_senses():
    policy = LowestSenses()
    assert policy.count is None
    assert policy.name == "lowest_senses"
    assert policy.chosen(SENSITIVITY).tolist() == [1, 3]
    assert policy.weights(SENSITIVITY, 0.5).tolist() == [1.0, 0.5, 1.0, 0.5, 1.0]
    assert SENSITIVITY.tolist() == pytest.approx([0.9, -0.2, 0.5, 0.1, 0.7])


def test_alpha_zero_removes_and_more_than_one_amplifies():
    assert LowestSenses(1).weights(SENSITIVITY, 0).tolist() == [1, 0, 1, 1, 1]
    assert LowestSenses(5).weights(SENSITIVITY, 2).tolist() == [2] * 5


def test_equal_sensitivities_are_taken_by_index():
    assert LowestSenses(2).chosen(torch.tensor([0.5, 0.1, 0.1, 0.1])).tolist() == [1, 2]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=8),
    st.floats(0, 4, width=32),
    st.data(),
)
def test_weights_are_alpha_for_count_senses_and_no_other_sense_is_lower(values, alpha, data):
    count = data.draw(st.integers(1, len(values)))
    weights = LowestSenses(count).weights(torch.tensor(values), alpha).tolist()
    chosen = LowestSenses(count).chosen(torch.tensor(values)).tolist()
    assert len(set(chosen)) == count
    assert all(
        weight == (alpha if sense in chosen else 1.0) for sense, weight in enumerate(weights)
    )
    rest = [value for sense, value in enumerate(values) if sense not in chosen]
    assert max(values[sense] for sense in chosen) <= min(rest, default=math.inf)


@pytest.mark.parametrize(
    "alpha", [-0.1, -1, math.nan, math.inf, -math.inf, "0.5", True, False, None, [1.0]]
)
def test_what_is_no_number_from_zero_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha="):
        check_alpha(alpha)


def test_more_senses_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"policy\.count=6, but the model has 5 senses"):
        LowestSenses(6).weights(SENSITIVITY, 0.5)


@pytest.mark.parametrize("count", [0, -1])
def test_no_sense_at_all_is_refused(count):
    with pytest.raises(ValueError, match=f"count={count}"):
        LowestSenses(count)


EVERY_POLICY = [
    LowestSenses(2),
    UniformSenses(),
    RandomSenses(2, seed=3),
    ThresholdSenses(threshold=0.3),
    ThresholdSenses(quantile=0.5),
    SoftSenses(0.5),
    ExplicitWeights([0.0, 2.0, 1.0, 0.5, 0.25]),
]
by_name = pytest.mark.parametrize("policy", EVERY_POLICY, ids=lambda policy: policy.name)


@by_name
@pytest.mark.parametrize("alpha", [1, 1.0])
def test_every_policy_gives_exact_ones_at_alpha_one(policy, alpha):
    values = torch.tensor([0.123, -0.71, 0.3001, 0.0, 0.9])
    weights = policy.weights(values, alpha)
    assert weights.tolist() == [1.0] * 5
    assert (weights.dtype, weights.shape) == (values.dtype, values.shape)


@by_name
@settings(max_examples=15, deadline=None)
@given(alpha=st.floats(0, 5, width=32))
def test_every_policy_gives_finite_weights_from_zero_and_leaves_the_sensitivities_alone(
    policy, alpha
):
    values = SENSITIVITY.clone()
    weights = policy.weights(values, alpha)
    assert torch.isfinite(weights).all()
    assert (weights >= 0).all()
    assert torch.equal(values, SENSITIVITY)


def test_names_tell_policies_apart():
    names = [policy.name for policy in EVERY_POLICY]
    assert len(set(names)) == len(names)
    assert RandomSenses(2, seed=0).name != RandomSenses(2, seed=1).name


def test_uniform_scales_every_sense():
    assert UniformSenses().weights(SENSITIVITY, 0.25).tolist() == [0.25] * 5


def test_random_senses_are_the_same_for_every_alpha_and_differ_between_seeds():
    values = torch.linspace(-1, 1, 16)
    chosen = [tuple(sorted(RandomSenses(4, seed).chosen(values).tolist())) for seed in range(10)]
    assert len(set(chosen)) > 5
    assert all(len(set(senses)) == 4 for senses in chosen)
    weights = [RandomSenses(4, 2).weights(values, alpha) for alpha in (0.0, 0.5)]
    assert all(((w != 1).nonzero().flatten().tolist()) == list(chosen[2]) for w in weights)


def test_random_senses_do_not_look_at_the_sensitivities():
    values = torch.linspace(-1, 1, 16)
    assert RandomSenses(4, 1).chosen(values).tolist() == RandomSenses(4, 1).chosen(-values).tolist()
    drawn = torch.stack([RandomSenses(4, seed).weights(values, 0.0) for seed in range(400)])
    share = (drawn == 0).float().mean(0)
    assert (share - 0.25).abs().max() < 0.1, (
        "each of 16 senses is drawn about as often as any other"
    )


def test_random_draws_leave_torch_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    RandomSenses(2, 7).chosen(SENSITIVITY)
    assert torch.equal(torch.rand(3), expected)


def test_a_threshold_takes_what_lies_strictly_below():
    values = torch.tensor([0.75, -0.25, 0.5, 0.125, 0.5])
    assert ThresholdSenses(threshold=0.5).weights(values, 0.0).tolist() == [1, 0, 1, 0, 1]
    assert ThresholdSenses(threshold=0.51).weights(values, 0.5).tolist() == [1, 0.5, 0.5, 0.5, 0.5]


def test_a_quantile_takes_that_share_of_the_senses():
    values = torch.randperm(16, generator=torch.Generator().manual_seed(1)).float() / 16
    for quantile, count in ((0.05, 1), (0.125, 2), (0.25, 4), (0.5, 8), (1.0, 15)):
        chosen = ThresholdSenses(quantile=quantile).chosen(values)
        assert sorted(values[chosen].tolist()) == [number / 16 for number in range(count)]


def test_a_threshold_below_every_sense_names_the_range():
    with pytest.raises(
        ValueError, match=r"5 senses lies between -0\.2000 and 0\.9000, and none is below -0\.2500"
    ):
        ThresholdSenses(threshold=-0.25).weights(SENSITIVITY, 0.5)
    with pytest.raises(ValueError, match=r"between 0\.5000 and 0\.5000"):
        ThresholdSenses(quantile=0.5).weights(torch.full((4,), 0.5), 0.5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": 0.1, "quantile": 0.1},
        {"threshold": math.nan},
        {"quantile": 0.0},
        {"quantile": 1.5},
        {"quantile": math.nan},
    ],
)
def test_a_threshold_needs_one_number_that_makes_sense(options):
    with pytest.raises(ValueError, match=r"policy\.(threshold|quantile)"):
        ThresholdSenses(**options)


def test_soft_weights_by_hand():
    values = torch.tensor(
        [0.0, 1.0], dtype=torch.float64
    )  # mean 1/2, standard deviation 1/2, z = -1 and 1
    low = 1 / (1 + math.exp(2))
    assert SoftSenses(0.5).weights(values, 0.0).tolist() == pytest.approx([low, 1 - low], abs=1e-12)
    assert SoftSenses(0.5).weights(values, 0.6).tolist() == pytest.approx(
        [0.6 + 0.4 * low, 1 - 0.4 * low], abs=1e-12
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(-100, 100), min_size=2, max_size=16, unique=True),
    st.floats(0.05, 20),
    st.floats(0, 0.95),
)
def test_soft_weights_rise_with_the_sensitivity_between_alpha_and_one(values, temperature, alpha):
    values = torch.tensor(sorted(values), dtype=torch.float64) / 100
    weights = SoftSenses(temperature).weights(values, alpha)
    assert (weights.diff() >= 0).all()
    assert weights[0] < weights[-1]
    assert weights.min() >= alpha
    assert weights.max() <= 1


def test_a_low_temperature_is_a_step_and_a_high_one_is_uniform():
    assert SoftSenses(1e-4).weights(SENSITIVITY, 0.0).tolist() == pytest.approx(
        [1, 0, 1, 0, 1], abs=1e-6
    )
    assert SoftSenses(1e6).weights(SENSITIVITY, 0.0).tolist() == pytest.approx([0.5] * 5, abs=1e-5)


def test_soft_weights_do_not_depend_on_the_scale_of_the_sensitivities():
    moved = SENSITIVITY.double() * 0.01 + 0.9
    torch.testing.assert_close(
        SoftSenses().weights(moved, 0.2), SoftSenses().weights(SENSITIVITY.double(), 0.2)
    )


def test_soft_weights_of_equal_senses_are_refused():
    with pytest.raises(ValueError, match=r"0\.3000 for each of the 4 senses.*policy=uniform"):
        SoftSenses().weights(torch.full((4,), 0.3), 0.5)


@pytest.mark.parametrize("temperature", [0, -1, math.nan, math.inf])
def test_a_temperature_is_above_zero(temperature):
    with pytest.raises(ValueError, match=r"policy\.temperature"):
        SoftSenses(temperature)


def test_explicit_weights_are_met_at_zero_and_lie_on_a_line():
    policy = ExplicitWeights([0, 2, 1, 0.5, 4])
    assert policy.weights(SENSITIVITY, 0).tolist() == [0, 2, 1, 0.5, 4]
    assert policy.weights(SENSITIVITY, 0.5).tolist() == [0.5, 1.5, 1, 0.75, 2.5]
    assert policy.weights(SENSITIVITY, 2).tolist() == [2, 0, 1, 1.5, 0], "never below 0"


def test_explicit_weights_of_another_number_than_senses_are_refused():
    with pytest.raises(
        ValueError, match=r"policy\.values has 3 weights, but the model has 5 senses"
    ):
        ExplicitWeights([1, 1, 1]).weights(SENSITIVITY, 0.5)


@pytest.mark.parametrize("values", [[], [1.0, -0.1], [math.nan], [math.inf]])
def test_explicit_weights_are_finite_and_not_negative(values):
    with pytest.raises(ValueError, match=r"policy\.values"):
        ExplicitWeights(values)


def context_of(ranker, values=SENSITIVITY):
    """A context whose sensitivities are given."""
    context = PolicyContext(ranker, None)
    vars(context)["sensitivity"] = Sensitivity(values, values[None], (), ())
    return context


@by_name
def test_weights_per_sense_are_one_view(policy, make_backpack):
    (view,) = policy.views(context_of(make_backpack()), 0.5)
    assert torch.equal(view.sense_weights, policy.weights(SENSITIVITY, 0.5))
    assert (view.token_shift, view.rewrite, view.coefficient) == (None, None, 1.0)
    assert policy.needs_senses()


def test_only_the_two_controls_say_that_they_are_some():
    policies = [*EVERY_POLICY, PairedTokens(["gender_classes"])]
    assert {type(policy) for policy in policies if policy.is_control} == {
        UniformSenses,
        RandomSenses,
    }


def test_sensitivities_of_a_context_are_those_of_its_ranker_computed_once(
    make_backpack, make_gpt2, tokenizer
):
    pairs = [("she", "he"), ("woman", "man")]
    context = PolicyContext(make_backpack(), tokenizer, pairs)
    assert torch.equal(
        context.sensitivity.values, sensitivity(context.ranker.backpack, tokenizer, pairs).values
    )
    assert context.sensitivity is context.sensitivity
    assert PolicyContext(make_gpt2(), tokenizer, pairs).sensitivity is None


def test_a_ranker_without_senses_is_refused(make_gpt2, tokenizer):
    context = PolicyContext(make_gpt2(), tokenizer)
    for policy in (UniformSenses(), LowestSenses()):
        with pytest.raises(TypeError, match="GPT2ForRanking has no sense vectors"):
            policy.views(context, 0.5)


def test_paired_tokens_are_a_shift_of_the_words_of_their_files(make_backpack, tokenizer):
    context = PolicyContext(make_backpack(), tokenizer)
    policy = PairedTokens.of(Attribute.named("gender"), scope="senses")
    (view,) = policy.views(context, 0.3)
    expected = token_shift(
        context.ranker, TokenClasses.of(tokenizer, policy.words()), "senses", 0.3
    )
    assert view.token_shift.key == expected.key
    assert torch.equal(view.token_shift.hidden_means, expected.hidden_means)
    assert view.token_shift.embedding_means is view.sense_weights is None
    assert [
        PairedTokens.of(Attribute.named("gender"), scope).needs_senses()
        for scope in ("weights", "both")
    ] == [
        False,
        True,
    ]


def test_paired_tokens_take_wide_classes_and_names_on_request():
    gender = Attribute.named("gender")
    policies = [
        PairedTokens.of(gender),
        PairedTokens.of(gender, wide=True),
        PairedTokens.of(gender, names=True),
    ]
    assert [policy.name for policy in policies] == [
        "paired_tokens",
        "paired_tokens_wide",
        "paired_tokens_names",
    ]
    plain, wide, named = (
        {w for c in policy.words().classes for w in c.words} for policy in policies
    )
    assert plain < wide
    assert plain < named
    assert "mary" in named - wide


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"classes": ["gender_classes"], "scope": "embedding"},
            r"policy\.scope=embedding: use one of senses",
        ),
        ({"classes": []}, r"policy\.classes is empty"),
        (
            {"classes": ["gender_classes"], "with_names": True},
            r"policy\.with_names=true needs policy\.names",
        ),
    ],
)
def test_wrong_options_of_paired_tokens_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PairedTokens(**options)


def configured(*overrides):
    with initialize_config_dir(CONF, version_base="1.3"):
        return instantiate(compose("evaluate", overrides=[*overrides]).policy)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["policy=lowest_senses"], LowestSenses()),
        (["policy=lowest_senses", "policy.count=2"], LowestSenses(2)),
        (["policy=uniform"], UniformSenses()),
        (["policy=random_senses", "policy.seed=4"], RandomSenses(2, 4)),
        (["policy=threshold"], ThresholdSenses(quantile=0.25)),
        (
            ["policy=threshold", "policy.threshold=0.4", "policy.quantile=null"],
            ThresholdSenses(threshold=0.4),
        ),
        (["policy=soft"], SoftSenses(0.25)),
        (["policy=explicit", "policy.values=[0,1,0.5]"], ExplicitWeights([0, 1, 0.5])),
    ],
)
def test_every_file_of_policies_makes_its_policy(overrides, expected):
    assert configured(*overrides) == expected


def test_a_policy_of_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"policy=lowest: use one of lowest_senses, uniform, .*renditions"
    ):
        named_policy("lowest", Attribute.named("gender"))
