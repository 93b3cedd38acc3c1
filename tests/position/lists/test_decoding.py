"""Rankings drawn at a temperature: their distribution against exact probabilities, what they depend
on, mistakes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from causal_example import (
    causal_ranker,
    gpt2,
    llama,
    prompt_file,
    slow_first,
    slow_log_probability,
)

from backpack_rank.position.lists.base import list_rng
from backpack_rank.position.lists.calibration import ContentFreeCalibration
from backpack_rank.position.lists.decoding import sample_scores
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.permutation import shuffles
from backpack_rank.position.lists.saved import load_listwise, save_listwise

DRAWS = 4000
MODES = ["first_token", "generate"]


def ranker_of(tokenizer, mode, model=None, identifiers="alphabetic", **options):
    return causal_ranker(model or gpt2(tokenizer), tokenizer, mode, identifiers, **options)


def repeated(query: str, passages, times: int) -> list[PassageList]:
    """A list many times over; the query ids, which no model is shown, make the draws
    independent.
    """
    passages = tuple(passages)
    return [PassageList(query, passages, query_id=str(number)) for number in range(times)]


def orders_of(rankings) -> list[tuple[int, ...]]:
    return [tuple(ranking.order.tolist()) for ranking in rankings]


def plackett_luce(weights) -> dict[tuple[int, ...], float]:
    """Probability of every order: each next item from those that remain, by weight."""
    probabilities = {}
    for order in itertools.permutations(range(len(weights))):
        probability = 1.0
        for place, item in enumerate(order):
            remaining = order[place:]
            probability *= weights[item] / sum(weights[other] for other in remaining)
        probabilities[order] = probability
    return probabilities


def check_share(count: int, draws: int, probability: float) -> None:
    """The share lies within 4.5 standard errors of its probability."""
    error = math.sqrt(probability * (1 - probability) / draws)
    assert count / draws == pytest.approx(probability, abs=4.5 * error + 1e-9)


def check_shares(orders: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Orders come up as often as expected, and so do the items in each of the first two places."""
    assert sum(expected.values()) == pytest.approx(1)
    assert max(expected.values()) < 0.9
    for order, probability in expected.items():
        check_share(orders.count(order), len(orders), probability)
    size = len(orders[0])
    for place, item in itertools.product(range(2), range(size)):
        probability = sum(p for order, p in expected.items() if order[place] == item)
        count = sum(order[place] == item for order in orders)
        check_share(count, len(orders), probability)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_noise_gives_the_plackett_luce_distribution(temperature: float):
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    orders = []
    for passages in repeated("q", "abcd", DRAWS):
        noisy = sample_scores(np.log(probabilities), temperature, list_rng(passages, 0))
        orders.append(tuple(np.argsort(-noisy).tolist()))
    check_shares(orders, plackett_luce(probabilities ** (1 / temperature)))


@pytest.mark.slow
def test_first_tokens_are_drawn_by_the_models_probabilities(tokenizer, sentences):
    temperature = 4.0  # the weights are large, so that at 1 the order would hardly change
    ranker = ranker_of(tokenizer, "first_token", temperature=temperature)
    lists = repeated("doctor in the ward", sentences[:4], 800)
    rankings = ranker.rank(lists)
    log_probabilities = slow_first(ranker.model, ranker.pair_tokenizer, lists[0])
    check_shares(orders_of(rankings), plackett_luce(np.exp(log_probabilities / temperature)))
    for ranking in rankings[:20]:
        assert (np.diff(ranking.scores[ranking.order]) <= 0).all()
    assert ranker.usage.passes == len(lists)


@pytest.mark.slow
def test_generated_passages_are_drawn_step_by_step(tokenizer, sentences):
    """Probabilities of later steps are those behind what was written before, not those of the first
    step.
    """
    temperature = 1.0
    model = gpt2(tokenizer)
    ranker = ranker_of(tokenizer, "generate", model, "numeric", temperature=temperature)
    lists = repeated("doctor", sentences[:3], 600)
    pair_tokenizer = ranker.pair_tokenizer
    prompt = pair_tokenizer.encode(lists[0]).ids.tolist()
    # What is written for a passage: its identifier and the closing bracket.
    names = [[*ids, *pair_tokenizer.closing] for ids in pair_tokenizer.identifiers(3)]

    def weight(text: list[int], passage: int) -> float:
        return math.exp(slow_log_probability(model, text, names[passage]) / temperature)

    expected = {}
    for order in itertools.permutations(range(3)):
        probability = 1.0
        text = list(prompt)
        for place, passage in enumerate(order):
            remaining = sum(weight(text, other) for other in order[place:])
            probability *= weight(text, passage) / remaining
            text += [*names[passage], *pair_tokenizer.between]
        expected[order] = probability
    # Far from the distribution by the first step alone, so that the two are told apart.
    by_first_step = plackett_luce([weight(prompt, passage) for passage in range(3)])
    assert max(abs(expected[order] - by_first_step[order]) for order in expected) > 0.1
    check_shares(orders_of(ranker.rank(lists)), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_temperature_near_zero_is_greedy_and_zero_changes_nothing(mode, tokenizer, sentences):
    many = (*sentences, "", *sentences[2:5])
    lists = [PassageList("doctor", sentences), PassageList("bridge", many)]
    model = llama(tokenizer)
    greedy = ranker_of(tokenizer, mode, model, "numeric").rank(lists)
    for temperature in (0.0, 1e-9):
        ranker = ranker_of(tokenizer, mode, model, "numeric", temperature=temperature, seed=3)
        rankings = ranker.rank(lists)
        assert orders_of(rankings) == orders_of(greedy)
        if mode == "first_token":
            for ranking, greedy_ranking in zip(rankings, greedy, strict=True):
                assert ranking.scores == pytest.approx(greedy_ranking.scores, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_draws_depend_on_the_seed_and_the_list_alone(mode, tokenizer, sentences):
    model = gpt2(tokenizer)
    lists = [PassageList("doctor", sentences[n:], query_id=str(n)) for n in range(4)]

    def orders(lists, **options):
        return orders_of(ranker_of(tokenizer, mode, model, temperature=5.0, **options).rank(lists))

    expected = orders(lists)
    assert orders(lists, tokens_per_batch=1) == expected
    assert orders(lists[::-1])[::-1] == expected
    assert orders(lists[2:3]) == expected[2:3]
    assert orders([lists[0], lists[0]]) == [expected[0]] * 2
    assert orders(lists, seed=1) != expected
    assert orders_of(ranker_of(tokenizer, mode, model).rank(lists)) != expected
    from_last_to_first = [passages.select(range(len(passages))[::-1]) for passages in lists]
    assert orders(from_last_to_first) != expected


def test_shuffles_stay_those_that_they_were_and_draws_are_others(sentences):
    passages = PassageList("doctor", sentences, query_id="7")
    # Written down before draws were added: measured figures depend on these orders.
    assert next(shuffles(passages, 0)).tolist() == [5, 0, 6, 1, 7, 3, 2, 4]
    assert list_rng(passages, 0, "sampling").random() != list_rng(passages, 0).random()


@pytest.mark.parametrize("mode", MODES)
def test_corrected_probabilities_are_drawn(mode, tokenizer, sentences):
    """A correction of weight 0 draws as none does; a real one draws by corrected probabilities."""
    model = gpt2(tokenizer)
    lists = repeated("doctor in the ward", sentences[:4], 40)
    plain = ranker_of(tokenizer, mode, model, temperature=4.0)
    weightless = ContentFreeCalibration(beta=1e-9)
    corrected = ranker_of(tokenizer, mode, model, temperature=4.0, calibration=weightless)
    assert orders_of(corrected.rank(lists)) == orders_of(plain.rank(lists))
    assert corrected.name == "GPT2LMHeadModel T=4 CapCal"

    def orders(temperature):
        calibration = ContentFreeCalibration()
        options = {"calibration": calibration, "temperature": temperature}
        return orders_of(ranker_of(tokenizer, mode, model, **options).rank(lists[:3]))

    assert orders(temperature=1e-6) == orders(temperature=0.0)


def test_corrected_probabilities_below_zero_stand_behind_in_their_order():
    corrected = np.array([-0.02, 0.7, -0.3, 0.32, 0.0, 0.3])
    assert corrected.sum() == pytest.approx(1)
    orders = []
    for passages in repeated("q", "abcdef", DRAWS):
        rng = list_rng(passages, 0)
        scores = sample_scores(corrected, 0.5, rng, corrected=True)
        assert np.isfinite(scores).all()
        order = np.argsort(-scores).tolist()
        assert order[3:] == [4, 0, 2]
        # The three with a weight, numbered 0 to 2.
        orders.append(tuple([1, 3, 5].index(item) for item in order[:3]))
    check_shares(orders, plackett_luce([0.7**2, 0.32**2, 0.3**2]))
    nothing = np.array([-0.1, -0.3])
    assert sample_scores(nothing, 0.5, rng, corrected=True).tolist() == nothing.tolist()


def test_saved_rankers_are_loaded_with_a_temperature(tokenizer, sentences, tmp_path):
    folder = tmp_path / "ranker"
    save_listwise(folder, gpt2(tokenizer), tokenizer, prompt_file("plain"), "first_token", 8, 512)
    ranker = load_listwise(folder, temperature=0.75, seed=5)
    assert (ranker.temperature, ranker.seed, ranker.name) == (0.75, 5, "listwise LM T=0.75")
    assert load_listwise(folder).name == "listwise LM"


@pytest.mark.parametrize("temperature", [-0.1, math.nan, math.inf])
def test_a_temperature_that_is_none_is_refused(temperature, tokenizer):
    message = f"temperature={temperature} must be a finite number of at least 0"
    with pytest.raises(ValueError, match=message):
        ranker_of(tokenizer, "first_token", temperature=temperature)
