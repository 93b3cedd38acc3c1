"""A query that asks for a group is scored as if there were no dial, at every door and alpha."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.tokenisation import train_bpe
from backpack_rank.models.factory import backpack_on_backbone, cross_encoder
from backpack_rank.models.pair_tokenizers import make_pair_tokenizer
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policy_names import POLICIES, named_policy
from backpack_rank.serving.jobs import RequestOptions
from backpack_rank.serving.pointwise import ServedPointwise

GENDER = Attribute.named("gender")
ASKING = ["who was the first queen of england", "safe sport in pregnancy", "Sportsman of the year"]
NEUTRAL = "who can rewire a house"
DOCUMENTS = ["She is an electrician.", "He sells flowers to the woman.", "an apple", "the queen"]
WITHOUT_SENSES = ("paired_tokens", "renditions")
WITH_SENSES = ("lowest_senses", "uniform", "soft", "paired_tokens", "renditions")


@pytest.fixture(scope="module")
def tokenizer():
    texts = [*ASKING, NEUTRAL, *DOCUMENTS, "he she him her man woman king queen"] * 20
    tokenizer = train_bpe(texts, vocab_size=420)
    tokenizer.add_special_tokens({"cls_token": "[CLS]"})
    return tokenizer


@pytest.fixture(scope="module")
def rerankers(tokenizer, tmp_path_factory):
    """A cross-encoder, a Backpack with attribute senses, one without, one with a similarity."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "initializer_range": 0.3,
    }
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)

    def made(make, **options):
        ranker = make(tokenizer, name=str(folder), **options).eval()
        with torch.no_grad():
            for parameter in ranker.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return PointwiseReranker(Scorer(ranker, make_pair_tokenizer(tokenizer, ranker, 48)))

    return {
        "cross_encoder": made(cross_encoder),
        "backpack": made(backpack_on_backbone, senses=4, attribute_senses="gender"),
        "plain backpack": made(backpack_on_backbone, senses=4),
        "similarity": made(
            backpack_on_backbone, senses=4, attribute_senses="gender", similarity=20.0
        ),
    }


def cases():
    for kind in ("cross_encoder", "backpack", "plain backpack", "similarity"):
        policies = WITHOUT_SENSES if kind == "cross_encoder" else WITH_SENSES
        for policy in policies:
            # What moves tokens in senses does not fit attribute senses.
            if kind in ("backpack", "similarity") and policy in ("paired_tokens",):
                continue
            yield kind, policy


def scores_at_every_door(reranker, query, policy, alpha, folder):
    """Scores of the documents of a query under alpha, by door."""
    pairs = [(query, document) for document in DOCUMENTS]
    ids = [f"d{number}" for number in range(len(DOCUMENTS))]
    collection = Collection(
        "c", MemoryStore(dict(zip(ids, DOCUMENTS, strict=True))), {"q": query}, {}
    )
    run = {"q": dict.fromkeys(ids, 0.0)}
    controlled = reranker.with_policy(policy, alpha)
    served = ServedPointwise("r", reranker)
    job = served.job(query, DOCUMENTS, RequestOptions([alpha], policy))
    for part in job.slices:
        served.score([part])
    job.finish()
    cached = PointwiseReranker(reranker.scorer, controlled.hook, cache=SenseCache(folder))
    of_run = controlled.rerank(run, collection)["q"]
    of_cache = cached.rerank(run, collection)["q"]
    shards = AlphaSweep(reranker, [alpha], policy)
    return {
        "predict": reranker.predict(pairs, policy=policy, alpha=alpha),
        "sweep": reranker.sweep(query, DOCUMENTS, [alpha, 0.3], policy=policy)[0],
        "server": job.future.result(timeout=0)[0],
        "run": [of_run[doc_id] for doc_id in ids],
        "cache": [of_cache[doc_id] for doc_id in ids],
        "shards": shards.scores(Pairs.from_run(run, collection))[:, 0],
    }


@pytest.mark.parametrize(("kind", "policy"), cases())
def test_no_door_turns_a_query_that_asks_for_a_group(rerankers, kind, policy, tmp_path):
    reranker = rerankers[kind]
    for query in ASKING:
        unchanged = reranker.predict([(query, document) for document in DOCUMENTS])
        for alpha in (0.0, 0.5):
            by_door = scores_at_every_door(reranker, query, policy, alpha, tmp_path / str(alpha))
            for door, scores in by_door.items():
                np.testing.assert_allclose(scores, unchanged, atol=2e-5, err_msg=f"{door} {query}")
    neutral = [(NEUTRAL, document) for document in DOCUMENTS]
    moved = reranker.predict(neutral, policy=policy, alpha=0.0) - reranker.predict(neutral)
    assert np.abs(moved).max() > 1e-4, "a neutral query is turned"


def test_what_is_ranked_says_which_policy_acted(rerankers):
    reranker = rerankers["cross_encoder"]
    neutral, asking = reranker.rank_many([NEUTRAL, ASKING[0]], [DOCUMENTS, DOCUMENTS], alpha=0)
    assert (neutral.policy, asking.policy) == ("renditions_keep", None)
    assert reranker.rank(NEUTRAL, DOCUMENTS).policy is None
    policy = type(named_policy("renditions", GENDER)).of(GENDER, queries="all")
    turned = reranker.rank(ASKING[0], DOCUMENTS, alpha=0, policy=policy)
    assert turned.policy == "renditions_keep_all_queries"


def test_queries_all_turns_them_too(rerankers):
    reranker = rerankers["cross_encoder"]
    policy = type(named_policy("renditions", GENDER)).of(GENDER, queries="all")
    pairs = [(ASKING[0], "She is an electrician."), (ASKING[0], "He is an electrician.")]
    turned = reranker.predict(pairs, policy=policy, alpha=0.0)
    assert turned[0] == pytest.approx(turned[1], abs=1e-5)
    assert policy.name.endswith("all_queries")
    unchanged = reranker.predict(pairs)
    assert abs(unchanged[0] - unchanged[1]) > 1e-3


def test_every_policy_has_the_option():
    for name in POLICIES:
        assert named_policy(name, GENDER).queries == "neutral_only"


def test_the_network_finds_the_queries_that_the_policy_leaves_out(rerankers):
    """Tokens and texts say the same, over the words of the lists and forms around them."""
    scorer = rerankers["backpack"].scorer
    senses = scorer.ranker.backpack.attribute_senses
    queries = [f"the best {word} of all" for word in sorted(GENDER.group_queries.words)[::7]]
    queries += [f'"{word.capitalize()}"' for word in ("she", "queen", "pregnancy", "landlords")]
    queries += ["a sheet", "the manual", "human error", "hero", "theme", "others", NEUTRAL]
    rows = [scorer.pair_tokenizer.pairs(query, ["x"])[0] for query in queries]
    by_tokens = senses.asks(PackedBatch.from_sequences(rows)).tolist()
    by_text = [GENDER.group_queries(query) for query in queries]
    unequal = [q for q, t, s in zip(queries, by_tokens, by_text, strict=True) if t != s]
    assert not unequal


def test_the_choice_is_saved_with_a_ranker(rerankers):
    config = rerankers["backpack"].scorer.ranker.config
    assert json.loads(config.to_json_string())["attribute_senses"]["queries"] == "neutral_only"
