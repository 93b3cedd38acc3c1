"""Rankings drawn at a temperature: their distribution against exact probabilities, what they depend
on, mistakes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from causal_example import gpt2, llama, prompt_file, slow_first, slow_log_probability

from backpack_rank.position.lists.base import list_rng
from backpack_rank.position.lists.calibration import ContentFreeCalibration
from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.decoding import sample_scores
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import shuffles
from backpack_rank.position.lists.prompt import PromptTokenizer
from backpack_rank.position.lists.saved import load_listwise, save_listwise

DRAWS = 4000
MODES = ["first_token", "generate"]


def ranker_of(tokenizer, mode, model=None, identifiers="alphabetic", **options):
    model = gpt2(tokenizer) if model is None else model
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain", identifiers=identifiers), 512)
    return CausalLmRanker(model, pair_tokenizer, mode, device="cpu", **options)


def repeated(sentences, times: int) -> list[PassageList]:
    """One prompt many times over; the query ids, which no model is shown, make the draws
    independent.
    """
    return [
        PassageList("doctor in the ward", sentences[:4], query_id=str(number))
        for number in range(times)
    ]


def plackett_luce(weights) -> dict[tuple[int, ...], float]:
    """Probability of every order: each next item from those that remain, by weight."""
    found = {}
    for order in itertools.permutations(range(len(weights))):
        probability, left = 1.0, list(order)
        while left:
            probability *= weights[left[0]] / sum(weights[item] for item in left)
            left.pop(0)
        found[order] = probability
    return found


def check_shares(orders: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Shares of all orders, and of the items in each place, within 4.5 standard errors of what is
    expected.
    """
    assert sum(expected.values()) == pytest.approx(1)
    assert max(expected.values()) < 0.9
    for order, probability in expected.items():
        error = math.sqrt(probability * (1 - probability) / len(orders))
        assert orders.count(order) / len(orders) == pytest.approx(
            probability, abs=4.5 * error + 1e-9
        )
    for place, item in itertools.product(range(2), range(len(next(iter(expected))))):
        probability = sum(p for order, p in expected.items() if order[place] == item)
        error = math.sqrt(probability * (1 - probability) / len(orders))
        share = sum(order[place] == item for order in orders) / len(orders)
        assert share == pytest.approx(probability, abs=4.5 * error + 1e-9)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_noise_gives_the_plackett_luce_distribution(temperature: float):
    scores = np.log([0.5, 0.3, 0.15, 0.05])
    lists = [
        PassageList("q", ("a", "b", "c", "d"), query_id=str(number)) for number in range(DRAWS)
    ]
    found = [sample_scores(scores, temperature, list_rng(one, 0)) for one in lists]
    orders = [tuple(np.argsort(-one).tolist()) for one in found]
    check_shares(orders, plackett_luce([p ** (1 / temperature) for p in (0.5, 0.3, 0.15, 0.05)]))


def test_first_tokens_are_drawn_by_the_models_probabilities(tokenizer, sentences):
    temperature = 4.0  # the weights are large, so that at 1 the order would hardly change
    ranker = ranker_of(tokenizer, "first_token", temperature=temperature)
    lists = repeated(sentences, 800)
    rankings = ranker.rank(lists)
    weights = np.exp(slow_first(ranker.model, ranker.pair_tokenizer, lists[0]) / temperature)
    check_shares([tuple(ranking.order.tolist()) for ranking in rankings], plackett_luce(weights))
    for ranking in rankings[:20]:
        assert (np.diff(ranking.scores[ranking.order]) <= 0).all()
    assert ranker.usage.passes == len(lists)


def test_generated_passages_are_drawn_step_by_step(tokenizer, sentences):
    """Probabilities of later steps are those behind what was written before, not those of the first
    step.
    """
    temperature = 1.0
    model = gpt2(tokenizer)
    ranker = ranker_of(tokenizer, "generate", model, "numeric", temperature=temperature)
    lists = [PassageList("doctor", sentences[:3], query_id=str(number)) for number in range(600)]
    prompt, names = (
        ranker.pair_tokenizer.encode(lists[0]).ids.tolist(),
        ranker.pair_tokenizer.identifiers(3),
    )
    close, between = ranker.pair_tokenizer.closing, ranker.pair_tokenizer.between
    expected = {}
    for order in itertools.permutations(range(3)):
        probability, text, left = 1.0, list(prompt), list(range(3))
        for item in order:
            weights = {
                i: math.exp(slow_log_probability(model, text, [*names[i], *close]) / temperature)
                for i in left
            }
            probability *= weights[item] / sum(weights.values())
            text += [*names[item], *close, *between]
            left.remove(item)
        expected[order] = probability
    first = [slow_log_probability(model, prompt, [*ids, *close]) / temperature for ids in names]
    at_once = plackett_luce(np.exp(first))
    assert (
        max(abs(expected[order] - at_once[order]) for order in expected) > 0.1
    )  # so the two are told apart
    check_shares([tuple(ranking.order.tolist()) for ranking in ranker.rank(lists)], expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_temperature_near_zero_is_greedy_and_zero_changes_nothing(mode, tokenizer, sentences):
    lists = [
        PassageList("doctor", sentences),
        PassageList("bridge", (*sentences, "", *sentences[2:5])),
    ]
    model = llama(tokenizer)
    greedy = ranker_of(tokenizer, mode, model, "numeric").rank(lists)
    for temperature in (0.0, 1e-9):
        found = ranker_of(tokenizer, mode, model, "numeric", temperature=temperature, seed=3).rank(
            lists
        )
        assert [one.order.tolist() for one in found] == [one.order.tolist() for one in greedy]
        if mode == "first_token":
            assert all(
                one.scores == pytest.approx(other.scores, abs=1e-6)
                for one, other in zip(found, greedy, strict=True)
            )


@pytest.mark.parametrize("mode", MODES)
def test_draws_depend_on_the_seed_and_the_list_alone(mode, tokenizer, sentences):
    model = gpt2(tokenizer)
    lists = [PassageList("doctor", sentences[n:], query_id=str(n)) for n in range(4)]

    def orders(lists, **options):
        found = ranker_of(tokenizer, mode, model, temperature=5.0, **options).rank(lists)
        return [one.order.tolist() for one in found]

    expected = orders(lists)
    assert orders(lists, tokens_per_batch=1) == expected
    assert orders(lists[::-1])[::-1] == expected
    assert orders(lists[2:3]) == expected[2:3]
    assert orders([lists[0], lists[0]]) == [expected[0]] * 2
    assert orders(lists, seed=1) != expected
    turned = [one.select(range(len(one) - 1, -1, -1)) for one in lists]
    greedy = [one.order.tolist() for one in ranker_of(tokenizer, mode, model).rank(lists)]
    assert expected != greedy
    assert orders(turned) != expected


def test_shuffles_stay_those_that_they_were_and_draws_are_others(sentences):
    one = PassageList("doctor", sentences, query_id="7")
    # Written down before draws were added: measured figures depend on these orders.
    assert next(shuffles(one, 0)).tolist() == [5, 0, 6, 1, 7, 3, 2, 4]
    assert list_rng(one, 0, "sampling").random() != list_rng(one, 0).random()


@pytest.mark.parametrize("mode", MODES)
def test_corrected_probabilities_are_drawn(mode, tokenizer, sentences):
    """A correction of weight 0 draws as none does; a real one draws by corrected probabilities."""
    model = gpt2(tokenizer)
    lists = repeated(sentences, 40)
    plain = ranker_of(tokenizer, mode, model, temperature=4.0).rank(lists)
    tiny = ContentFreeCalibration(beta=1e-9)
    found = ranker_of(tokenizer, mode, model, temperature=4.0, calibration=tiny)
    assert [one.order.tolist() for one in found.rank(lists)] == [
        one.order.tolist() for one in plain
    ]
    assert found.name == "GPT2LMHeadModel T=4 CapCal"
    greedy, cold = (
        ranker_of(tokenizer, mode, model, calibration=ContentFreeCalibration(), temperature=t).rank(
            lists[:3]
        )
        for t in (0.0, 1e-6)
    )
    assert [one.order.tolist() for one in cold] == [one.order.tolist() for one in greedy]


def test_corrected_probabilities_below_zero_stand_behind_in_their_order():
    corrected = np.array([-0.02, 0.7, -0.3, 0.32, 0.0, 0.3])
    assert corrected.sum() == pytest.approx(1)
    orders = []
    for number in range(DRAWS):
        rng = list_rng(PassageList("q", tuple("abcdef"), query_id=str(number)), 0)
        found = sample_scores(corrected, 0.5, rng, corrected=True)
        assert np.isfinite(found).all()
        order = np.argsort(-found).tolist()
        assert order[3:] == [4, 0, 2]
        orders.append(tuple([1, 3, 5].index(item) for item in order[:3]))
    check_shares(orders, plackett_luce([0.7**2, 0.32**2, 0.3**2]))
    nothing = np.array([-0.1, -0.3])
    assert sample_scores(nothing, 0.5, rng, corrected=True).tolist() == nothing.tolist()


def test_saved_rankers_are_loaded_with_a_temperature(tokenizer, sentences, tmp_path):
    torch.manual_seed(0)
    save_listwise(
        tmp_path / "ranker", gpt2(tokenizer), tokenizer, prompt_file("plain"), "first_token", 8, 512
    )
    ranker = load_listwise(tmp_path / "ranker", temperature=0.75, seed=5)
    assert (ranker.temperature, ranker.seed, ranker.name) == (0.75, 5, "listwise LM T=0.75")
    assert load_listwise(tmp_path / "ranker").name == "listwise LM"


@pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature, tokenizer):
    with pytest.raises(
        ValueError, match=f"temperature={temperature} must be a finite number of at least 0"
    ):
        ranker_of(tokenizer, "first_token", temperature=temperature)
