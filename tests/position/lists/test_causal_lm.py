"""Rankings by the identifiers that a language model would name, against slow loops without a cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from causal_example import (
    MODELS,
    WIDE,
    bert_decoder,
    causal_ranker,
    gpt2,
    llama,
    prompt_file,
    slow_first,
    slow_generate,
)
from read_back import orders
from transformers import MistralConfig, MistralForCausalLM

from backpack_rank.models.backpack import BackpackLMHeadModel
from backpack_rank.position.lists.causal_lm import CausalLmRanker
from backpack_rank.position.lists.decoding import TokenTrie, can_share
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import PromptTokenizer


@pytest.fixture(scope="module")
def lists(sentences):
    """Of different lengths and sizes, the second with identifiers of two tokens."""
    many = (*sentences, "", *sentences[2:5])
    return [
        PassageList("doctor in the ward", sentences[:3]),
        PassageList("bridge engineer", many),
        PassageList("soup", (sentences[6],)),
        PassageList("which door is old", tuple(reversed(sentences))),
    ]


@pytest.mark.parametrize("identifiers", ["numeric", "alphabetic"])
@pytest.mark.parametrize("name", MODELS)
def test_first_token_scores_are_those_of_single_passes(name, identifiers, tokenizer, lists):
    model = MODELS[name](tokenizer)
    ranker = causal_ranker(model, tokenizer, "first_token", identifiers)
    assert can_share(model, 512)
    longest = max(map(len, ranker.pair_tokenizer.identifiers(12)))
    assert longest == (2 if identifiers == "numeric" else 1)
    for shown, ranking in zip(lists, ranker.rank(lists), strict=True):
        expected = slow_first(model, ranker.pair_tokenizer, shown)
        assert ranking.scores == pytest.approx(expected, abs=2e-4)
        assert ranking.order.tolist() == np.argsort(-expected, kind="stable").tolist()


@pytest.mark.parametrize("identifiers", ["numeric", "alphabetic"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_permutations_are_those_of_a_loop_without_cache(
    name, identifiers, tokenizer, lists
):
    model = MODELS[name](tokenizer)
    ranker = causal_ranker(model, tokenizer, "generate", identifiers)
    chosen = [lists[0], lists[2], lists[3].select(range(5))]
    rankings = ranker.rank(chosen)
    expected = [slow_generate(model, ranker.pair_tokenizer, shown) for shown in chosen]
    assert orders(rankings) == expected
    assert all(ranking.scores is None for ranking in rankings)


def test_identifiers_of_two_tokens_are_generated_exactly(tokenizer, lists):
    model = llama(tokenizer)
    ranker = causal_ranker(model, tokenizer, "generate")
    (ranking,) = ranker.rank([lists[1]])
    assert ranking.order.tolist() == slow_generate(model, ranker.pair_tokenizer, lists[1])


@pytest.mark.parametrize("mode", ["first_token", "generate"])
@pytest.mark.parametrize("name", MODELS)
def test_batches_change_nothing(name, mode, tokenizer, lists):
    model = MODELS[name](tokenizer)
    together, apart = (
        causal_ranker(model, tokenizer, mode, tokens_per_batch=n) for n in (100_000, 1)
    )
    for batched, alone in zip(together.rank(lists), apart.rank(lists), strict=True):
        assert batched.order.tolist() == alone.order.tolist()
        if mode == "first_token":
            assert batched.scores == pytest.approx(alone.scores, abs=1e-4)
    assert together.usage == apart.usage


@pytest.mark.parametrize("mode", ["first_token", "generate"])
def test_a_model_without_a_cache_reads_again_and_finds_the_same(
    mode, tokenizer, lists, monkeypatch
):
    model = gpt2(tokenizer)
    lists = lists if mode == "first_token" else [lists[0], lists[3].select(range(5))]
    with_cache = causal_ranker(model, tokenizer, mode)
    expected = with_cache.rank(lists)
    monkeypatch.setattr("backpack_rank.position.lists.decoding.can_share", lambda *_: False)
    without = causal_ranker(model, tokenizer, mode)
    assert orders(without.rank(lists)) == orders(expected)
    assert without.usage.passes > with_cache.usage.passes


@pytest.mark.parametrize("mode", ["first_token", "generate"])
def test_a_backpack_language_model_ranks(mode, tokenizer, make_backpack, lists):
    backpack = make_backpack(positions=512).backpack
    model = BackpackLMHeadModel(backpack.config).eval()
    model.backpack.load_state_dict(backpack.state_dict())
    ranker = causal_ranker(model, tokenizer, mode, "alphabetic")
    assert not can_share(model, 512)
    chosen = [lists[0], lists[2]]
    rankings = ranker.rank(chosen)
    if mode == "first_token":
        assert ranker.usage.passes == 2
        for shown, ranking in zip(chosen, rankings, strict=True):
            expected = slow_first(model, ranker.pair_tokenizer, shown)
            assert ranking.scores == pytest.approx(expected, abs=1e-4)
    else:
        expected = [slow_generate(model, ranker.pair_tokenizer, shown) for shown in chosen]
        assert orders(rankings) == expected


@pytest.mark.parametrize("mode", ["first_token", "generate"])
def test_attention_of_transformers_own_finds_the_same(mode, tokenizer, lists):
    model = llama(tokenizer)
    expected = causal_ranker(model, tokenizer, mode).rank(lists)
    model.set_attn_implementation("eager")
    assert orders(causal_ranker(model, tokenizer, mode).rank(lists)) == orders(expected)


def test_autocast_ranks(tokenizer, lists):
    expected = causal_ranker(llama(tokenizer), tokenizer, "first_token").rank(lists)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rankings = causal_ranker(llama(tokenizer), tokenizer, "first_token").rank(lists)
        causal_ranker(llama(tokenizer), tokenizer, "generate").rank(lists[:1])
    for full, half in zip(expected, rankings, strict=True):
        assert half.scores == pytest.approx(full.scores, abs=0.5)


def test_first_takes_the_order_of_the_logits(tokenizer, lists):
    model = llama(tokenizer)
    ranker = causal_ranker(model, tokenizer, "first_token", "alphabetic")
    prompt = torch.tensor([ranker.pair_tokenizer.encode(lists[1]).ids.tolist()])
    with torch.no_grad():
        logits = model(prompt).logits[0, -1]
    scores = ranker.rank([lists[1]])[0].scores
    first_tokens = [ids[0] for ids in ranker.pair_tokenizer.identifiers(12)]
    differences = logits[first_tokens].double().numpy() - scores
    assert differences == pytest.approx(np.full(12, differences[0]), abs=1e-4)


def test_passes_are_counted(tokenizer, lists):
    first = causal_ranker(llama(tokenizer), tokenizer, "first_token")
    first.rank(lists)
    # Only the list of twelve has identifiers of two tokens.
    assert first.usage.passes == 1 + 2 + 1 + 1
    assert (first.usage.lists, first.usage.generated_tokens, first.usage.shortened) == (4, 4, 0)
    prompts = first.pair_tokenizer.encode_all(lists)
    assert first.usage.prompt_tokens == sum(map(len, prompts))
    generate = causal_ranker(llama(tokenizer), tokenizer, "generate")
    generate.rank(lists)
    assert generate.usage.passes == 3 + 12 + 1 + 8  # one for the prompt, one for each choice
    answers = [generate.pair_tokenizer.answer(range(len(shown))) for shown in lists]
    assert generate.usage.generated_tokens == sum(map(len, answers))


def test_shortened_passages_are_counted(tokenizer, sentences):
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain"), 80)
    ranker = CausalLmRanker(gpt2(tokenizer), pair_tokenizer, device="cpu")
    ranker.rank([PassageList("doctor", sentences[:4]), PassageList("doctor", ("soup", "door"))])
    assert ranker.usage.shortened == 4


def test_sliding_attention_shorter_than_the_prompt_is_read_again(tokenizer, lists):
    torch.manual_seed(0)
    shape = {**WIDE, "num_key_value_heads": 2, "sliding_window": 24, "initializer_range": 0.3}
    model = MistralForCausalLM(MistralConfig(vocab_size=len(tokenizer), **shape)).eval()
    assert not can_share(model, 512)
    assert can_share(model, 24)
    ranker = causal_ranker(model, tokenizer, "first_token")
    expected = slow_first(model, ranker.pair_tokenizer, lists[1])
    assert ranker.rank(lists[1:2])[0].scores == pytest.approx(expected, abs=1e-4)


def test_half_precision_gives_permutations_near_the_full_one(tokenizer, lists):
    full = causal_ranker(llama(tokenizer), tokenizer, "first_token").rank(lists)
    half = causal_ranker(llama(tokenizer).to(torch.bfloat16), tokenizer, "first_token").rank(lists)
    for full_ranking, half_ranking in zip(full, half, strict=True):
        assert half_ranking.scores == pytest.approx(full_ranking.scores, abs=0.5)
    half = causal_ranker(llama(tokenizer).to(torch.bfloat16), tokenizer, "generate").rank(lists)
    assert [len(ranking.order) for ranking in half] == [3, 12, 1, 8]


def test_the_model_stays_in_training_mode_and_ranks_without_dropout(tokenizer, lists):
    model = gpt2(tokenizer, resid_pdrop=0.5, embd_pdrop=0.5).train()
    ranker = causal_ranker(model, tokenizer, "generate")
    assert orders(ranker.rank(lists[:1])) == orders(ranker.rank(lists[:1]))
    assert model.training


def test_trees_share_beginnings():
    tree = TokenTrie([[1, 9], [1, 0, 9], [2, 9], [1, 1, 9], [1, 9]])
    assert tree.tokens.tolist() == [1, 0, 2, 1]
    assert tree.depths.tolist() == [0, 1, 0, 1]
    assert [tree.path(node) for node in range(4)] == [[1], [1, 0], [2], [1, 1]]
    third = tree.candidate == 3
    assert tree.at[third].tolist() == [0, 1, 4]
    assert tree.next[third].tolist() == [1, 1, 9]
    assert len(TokenTrie([[5], [6]])) == 0


def test_an_encoder_is_refused(tokenizer):
    model = bert_decoder(tokenizer, is_decoder=False)
    with pytest.raises(ValueError, match="reads in both directions, so it cannot write an answer"):
        causal_ranker(model, tokenizer, "first_token")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "listwise"}, "listwise ranker: mode=listwise: use one of first_token, generate"),
        ({"device": "cuda:7"}, "torch sees no GPU; use device=cpu"),
    ],
)
def test_wrong_options_are_named(options, message, tokenizer):
    if "device" in options and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain"), 128)
    with pytest.raises(ValueError, match=message):
        CausalLmRanker(gpt2(tokenizer), pair_tokenizer, **options)


def test_limits_of_the_model_are_checked(tokenizer):
    pair_tokenizer = PromptTokenizer(tokenizer, prompt_file("plain"), 600)
    with pytest.raises(ValueError, match="max_length=600 exceeds the model's 512 positions"):
        CausalLmRanker(gpt2(tokenizer), pair_tokenizer, device="cpu")
    message = "the tokenizer has 420 tokens, but BertLMHeadModel embeds 50"
    with pytest.raises(ValueError, match=message):
        causal_ranker(bert_decoder(tokenizer, vocab_size=50), tokenizer, "first_token")


def test_numbers_that_are_none_are_an_error(tokenizer, lists):
    model = gpt2(tokenizer)
    ranker = causal_ranker(model, tokenizer, "first_token")
    with torch.no_grad():
        model.transformer.ln_f.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="logits are not numbers; load it with dtype=float32"):
        ranker.rank(lists[:1])
