"""Content-free calibration (CapCal): by hand, against a slow loop, and on a model with a bias put
into it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from causal_example import bert_decoder, causal_ranker, llama, slow_log_probability
from hydra.utils import instantiate
from scipy.stats import kendalltau

from backpack_rank.position.lists.calibration import (
    PLACEHOLDERS,
    ContentFreeCalibration,
    calibrated,
    entropy,
    normalised,
    placeholders,
)
from backpack_rank.position.lists.passages import PassageList

CONF = Path(__file__).resolve().parents[3] / "conf" / "calibration"


@pytest.fixture(scope="module")
def lists(sentences):
    return [
        PassageList("doctor in the ward", sentences[:4]),
        PassageList("bridge engineer", sentences[3:]),
        PassageList("soup", sentences[6:7]),
    ]


@pytest.fixture(scope="module")
def model(tokenizer):
    return llama(tokenizer)


def ranker_of(model, tokenizer, mode, calibration=None, identifiers="alphabetic"):
    return causal_ranker(model, tokenizer, mode, identifiers, calibration=calibration)


def test_the_entropy_of_shares_is_that_by_hand():
    assert entropy(np.array([0.25] * 4)) == pytest.approx(math.log(4))
    expected = 0.5 * math.log(2) + 0.5 * math.log(4)
    assert entropy(np.array([0.5, 0.25, 0.25])) == pytest.approx(expected)
    assert entropy(np.array([1.0, 0.0])) == 0


def test_normalised_shares_are_those_by_hand():
    assert normalised(np.log([0.1, 0.3])) == pytest.approx([0.25, 0.75])
    assert normalised(np.array([-2000.0, -2000.0 + math.log(3)])) == pytest.approx([0.25, 0.75])


def test_equation_3_by_hand():
    scores = calibrated(np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.2, 0.2]), 0.5)
    assert scores == pytest.approx(
        [0.5 - 0.5 * (0.6 - 1 / 3), 0.3 + 0.5 * (1 / 3 - 0.2), 0.2 + 0.5 * (1 / 3 - 0.2)]
    )


@pytest.mark.parametrize(
    ("options", "alpha"),
    [
        ({"beta": 2.0}, 2 * math.log(2)),
        ({"beta": 0.5, "relative": True}, 0.5),
        ({"beta": 5.0, "relative": True, "limit": 2.0}, 2.0),
    ],
)
def test_corrected_scores_are_those_by_hand(options, alpha):
    # The probabilities of the identifiers need not add up to 1: 0.2 and 0.2 are halves of what the
    # candidates have.
    scores = ContentFreeCalibration(**options).scores(np.log([0.2, 0.2]), np.log([0.3, 0.1]))
    assert scores == pytest.approx([0.5 - alpha * 0.25, 0.5 + alpha * 0.25])


def test_a_sure_model_and_a_single_candidate_are_left_alone():
    calibration = ContentFreeCalibration(beta=3.0, relative=True)
    assert calibration.scores(np.array([0.0, -1000.0]), np.log([0.1, 0.9])).tolist() == [1.0, 0.0]
    assert calibration.scores(np.array([-5.0]), np.array([-1.0])).tolist() == [1.0]


def test_placeholders_are_those_of_table_3():
    passages = ["soup", "an old door"]
    made = {name: placeholders(name, passages) for name in PLACEHOLDERS}
    random_20, random_first = made.pop("random_20"), made.pop("random_first")
    # With the two random ones, these are the lines of the table under its baseline.
    assert made == {
        "fixed_string": ("This is a placeholder",) * 2,
        "first_passage": ("soup", "soup"),
        "space": (" ", " "),
        "spaces_20": (" " * 20,) * 2,
        "spaces_first": (" " * 4,) * 2,
        "spaces_each": (" " * 4, " " * 11),
    }
    assert [len(text) for text in random_20 + random_first] == [20, 20, 4, 4]
    assert len(set(random_20)) == 1
    assert placeholders("random_20", passages) == random_20
    assert placeholders("random_20", passages, seed=1) != random_20


def slow_scores(model, pair_tokenizer, shown, empty, before, left, beta, close):
    """Equations 2 to 4, one identifier and one prompt at a time, without a cache."""
    names = [[*ids, *close] for ids in pair_tokenizer.identifiers(len(shown))]
    tables = []
    for passages in (shown, empty):
        text = pair_tokenizer.encode(passages).ids.tolist() + before
        values = [math.exp(slow_log_probability(model, text, names[i])) for i in left]
        tables.append([value / sum(values) for value in values])
    p, q = tables
    alpha = -beta * sum(value * math.log(value) for value in p)
    return [a - alpha * (b - 1 / len(left)) for a, b in zip(p, q, strict=True)]


@pytest.mark.parametrize(
    "placeholder", ["fixed_string", "spaces_each", "first_passage", "random_20"]
)
def test_first_token_scores_are_those_of_a_slow_loop(placeholder, model, tokenizer, lists):
    calibration = ContentFreeCalibration(beta=1.5, placeholder=placeholder)
    ranker = ranker_of(model, tokenizer, "first_token", calibration)
    for shown, ranking in zip(lists, ranker.rank(lists), strict=True):
        empty = PassageList(shown.query, placeholders(placeholder, shown.passages))
        expected = slow_scores(
            model, ranker.pair_tokenizer, shown, empty, [], range(len(shown)), 1.5, []
        )
        assert ranking.scores == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("identifiers", ["alphabetic", "numeric"])
def test_generated_permutations_are_those_of_a_slow_loop(identifiers, model, tokenizer, sentences):
    count = 5 if identifiers == "alphabetic" else 11
    lists = [
        PassageList("bridge", (*sentences, *sentences[:3])[:count]),
        PassageList("soup", sentences[2:5]),
    ]
    ranker = ranker_of(model, tokenizer, "generate", ContentFreeCalibration(beta=1.0), identifiers)
    pair_tokenizer = ranker.pair_tokenizer
    for shown, ranking in zip(lists, ranker.rank(lists), strict=True):
        empty = PassageList(shown.query, ("This is a placeholder",) * len(shown))
        order, before = [], []
        while len(order) < len(shown):
            left = [i for i in range(len(shown)) if i not in order]
            scores = slow_scores(
                model, pair_tokenizer, shown, empty, before, left, 1.0, pair_tokenizer.closing
            )
            order.append(left[int(np.argmax(scores))])
            before += [
                *pair_tokenizer.identifiers(len(shown))[order[-1]],
                *pair_tokenizer.closing,
                *pair_tokenizer.between,
            ]
        assert ranking.order.tolist() == order


@pytest.mark.parametrize("mode", ["first_token", "generate"])
def test_beta_0_is_the_ranker_itself_bit_for_bit(mode, model, tokenizer, lists):
    plain = ranker_of(model, tokenizer, mode)
    switched_off = ranker_of(model, tokenizer, mode, ContentFreeCalibration(beta=0))
    for expected, ranking in zip(plain.rank(lists), switched_off.rank(lists), strict=True):
        assert expected.order.tolist() == ranking.order.tolist()
        assert mode == "generate" or expected.scores.tolist() == ranking.scores.tolist()
    assert switched_off.usage == plain.usage


def test_one_extra_pass_per_query_however_often_it_is_shuffled(model, tokenizer, lists):
    shuffled = [lists[0].select(np.random.default_rng(seed).permutation(4)) for seed in range(6)]
    ranker = ranker_of(model, tokenizer, "first_token", ContentFreeCalibration())
    ranker.rank(shuffled)
    assert ranker.usage.passes == 6 + 1
    ranker.rank(shuffled[:2])
    assert ranker.usage.passes == 6 + 1 + 2
    generate = ranker_of(model, tokenizer, "generate", ContentFreeCalibration())
    generate.rank(shuffled)
    # Prompts: six and one; then three choices of four, with and without content.
    assert generate.usage.passes == 6 + 1 + 2 * 6 * 3


def test_priors_of_passages_are_those_of_the_list_at_hand(model, tokenizer, lists):
    reversed_list = lists[0].select([3, 2, 1, 0])

    def new_ranker():
        calibration = ContentFreeCalibration(placeholder="spaces_each")
        return ranker_of(model, tokenizer, "first_token", calibration)

    once = new_ranker()
    together = once.rank([lists[0], reversed_list])
    assert once.usage.passes == 4
    for shown, ranking in zip((lists[0], reversed_list), together, strict=True):
        assert new_ranker().rank([shown])[0].scores == pytest.approx(ranking.scores, abs=1e-5)


def test_memory_is_bounded_and_belongs_to_one_ranker(lists):
    calls = []

    def compute(missing):
        calls.append([passages.query for passages in missing])
        return [np.full(len(passages), float(len(calls))) for passages in missing]

    class Owner:
        pass

    calibration, ranker, other_ranker = ContentFreeCalibration(remembered=2), Owner(), Owner()
    calibration.priors([lists[0], lists[1], lists[0]], compute, ranker)
    known = calibration.priors([lists[1], lists[0]], compute, ranker)
    assert [prior[0] for prior in known] == [1, 1]
    assert calibration.priors([lists[0]], compute, other_ranker)[0].tolist() == [2] * 4
    calibration.priors([lists[2]], compute, ranker)  # lists[1] was used longest ago
    calibration.priors([lists[0]], compute, ranker)
    calibration.priors([lists[1]], compute, ranker)
    assert calls == [
        ["doctor in the ward", "bridge engineer"], ["doctor in the ward"], ["soup"], ["bridge engineer"]
    ]  # fmt: skip


def decoder(tokenizer):
    """A decoder with a bias for each token in its output layer, which is 0."""
    return bert_decoder(tokenizer, seed=5, initializer_range=0.15)


def test_a_model_that_sees_nothing_but_position_is_left_without_a_preference(tokenizer, sentences):
    model = decoder(tokenizer)
    ranker = ranker_of(model, tokenizer, "first_token")
    bias = torch.linspace(2, 0, 8)
    with torch.no_grad():
        model.bert.embeddings.LayerNorm.weight.zero_()  # no word gets into the network
        model.cls.predictions.bias[[ids[0] for ids in ranker.pair_tokenizer.identifiers(8)]] = bias
    shown = PassageList("doctor", sentences)
    (plain,) = ranker.rank([shown])
    assert plain.order.tolist() == list(range(8))
    assert normalised(plain.scores) == pytest.approx(bias.softmax(0).numpy(), abs=1e-5)
    # With alpha = beta H(P) = 1, P - (P - 1/8) is left.
    beta = 1 / entropy(bias.double().softmax(0).numpy())
    corrected = ranker_of(model, tokenizer, "first_token", ContentFreeCalibration(beta))
    (calibrated_one,) = corrected.rank([shown])
    assert calibrated_one.scores == pytest.approx(np.full(8, 1 / 8), abs=1e-5)


@pytest.mark.parametrize("mode", ["first_token", "generate"])
def test_a_bias_of_the_output_layer_is_corrected(mode, tokenizer, sentences):
    model = decoder(tokenizer)
    identifiers = ranker_of(model, tokenizer, mode).pair_tokenizer.identifiers(8)
    with torch.no_grad():
        for place, (token,) in enumerate(identifiers):
            model.cls.predictions.bias[token] += 2 * (1 - place / 7)
    draws = np.random.default_rng(0)
    queries = [f"{word} ward" for word in ("doctor", "door") for _ in range(10)]
    lists = [PassageList(query, sentences).select(draws.permutation(8)) for query in queries]

    def likeness_to_input(beta):
        """Mean Kendall tau between the ranking and the order in which the passages are shown."""
        rankings = ranker_of(model, tokenizer, mode, ContentFreeCalibration(beta)).rank(lists)
        return np.mean([kendalltau(ranking.ranks(), np.arange(8))[0] for ranking in rankings])

    before, after = likeness_to_input(0.0), likeness_to_input(0.5)
    assert before > 0.5
    # Random weights know no content-free prompt: what the words of the placeholder do comes on top.
    assert abs(after) < (0.25 if mode == "first_token" else 0.75) * before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -1.0}, "calibration.beta=-1.0 must be a number of at least 0"),
        ({"beta": math.nan}, "calibration.beta=nan"),
        ({"limit": 0.0}, "calibration.limit=0.0 must be a number above 0, or null for none"),
        ({"remembered": -1}, "calibration.remembered=-1"),
        (
            {"placeholder": "empty"},
            "calibration.placeholder=empty: use one of fixed_string, first_passage, space",
        ),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ContentFreeCalibration(**options)


def test_the_configuration_makes_the_calibration_of_the_paper():
    calibration = instantiate(yaml.safe_load((CONF / "capcal.yaml").read_text()))
    assert calibration.alpha(np.full(20, 1 / 20)) == pytest.approx(1, abs=0.11)
    assert (calibration.beta, calibration.limit) == (0.3, None)
    assert calibration.placeholder == "fixed_string"
