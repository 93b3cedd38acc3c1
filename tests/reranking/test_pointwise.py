"""One ranker under policies and alphas: what it gives, and what its dial does and leaves alone."""

import math

import numpy as np
import pytest
import torch

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.packing import PackedBatch
from backpack_rank.reranking.pointwise import PointwiseReranker, ranked_rows
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.hook import InferenceHook
from backpack_rank.senses.policies import LowestSenses, PairedTokens, Policy
from backpack_rank.senses.views import View

RUN = {"q1": {"d0": 3.0, "empty": 1.0, "d1": 0.5}, "q2": {"d5": 1.0, "d0": 0.8}}
QUERY, DOCUMENTS = (
    "doctor in the ward",
    ["he saw his mother", "she saw her mother", "a bridge", "bread and fish"],
)


class SwappedAverage(Policy):
    """alpha times the pair's score and 1 - alpha times that of the text without "he" and "she"."""

    name = "average"

    def views(self, context, alpha):
        return View(coefficient=alpha), View(rewrite=_without, coefficient=1 - alpha)


def _without(query, document):
    return query, " ".join(word for word in document.split() if word not in ("he", "she"))


@pytest.fixture
def reranker(make_backpack, pair_tokenizer):
    return PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))


@pytest.fixture
def without_senses(make_gpt2, pair_tokenizer):
    return PointwiseReranker(Scorer(make_gpt2(), pair_tokenizer))


def flat(run):
    return [score for documents in run.values() for score in documents.values()]


def test_scores_are_the_rankers_and_documents_come_best_first(reranker, pair_tokenizer):
    with torch.no_grad():
        expected = [
            reranker.scorer.ranker(
                PackedBatch.from_sequences(pair_tokenizer.pairs(QUERY, [text]))
            ).scores.item()
            for text in DOCUMENTS
        ]
    scores = reranker.predict([(QUERY, text) for text in DOCUMENTS])
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    order = sorted(range(4), key=lambda place: -expected[place])
    rows = reranker.rank(QUERY, DOCUMENTS)
    assert [row["corpus_id"] for row in rows] == order
    assert [row["score"] for row in rows] == pytest.approx(
        [expected[place] for place in order], abs=1e-5
    )
    first = reranker.rank(QUERY, DOCUMENTS, top_k=1, return_documents=True)
    assert first == [{**rows[0], "text": DOCUMENTS[order[0]]}]
    assert reranker.predict([]).shape == (0,)
    assert reranker.rank(QUERY, []) == []


def test_a_sweep_says_what_its_scores_are_of_and_a_part_of_it_does_not(reranker):
    sweep = reranker.sweep(QUERY, DOCUMENTS, alphas=[1, 0.5])
    assert (sweep.query, sweep.documents, sweep.alphas) == (QUERY, tuple(DOCUMENTS), (1.0, 0.5))
    assert (sweep[0].query, sweep[0].documents, sweep[0].alphas) == ("", (), ())


def test_rows_below_a_threshold_are_left_out(reranker):
    rows = reranker.rank(QUERY, DOCUMENTS)
    third = rows[2]["score"]
    assert rows[3]["score"] < third < rows[1]["score"]
    assert reranker.rank(QUERY, DOCUMENTS, score_threshold=third) == rows[:3]
    assert reranker.rank(QUERY, DOCUMENTS, top_k=2, score_threshold=third) == rows[:2]
    kept = ranked_rows(np.array([0.5, 2.0, 1.0]), ["a", "b", "c"], None, False, 1.0)
    assert [row["corpus_id"] for row in kept] == [1, 2]


def test_documents_of_a_run_keep_their_places(reranker, tiny_collection):
    reranked = reranker.rerank(RUN, tiny_collection)
    assert {query_id: list(documents) for query_id, documents in reranked.items()} == {
        query_id: list(documents) for query_id, documents in RUN.items()
    }
    texts = dict(tiny_collection.documents)
    pairs = [
        (tiny_collection.queries[query_id], texts[doc_id])
        for query_id in RUN
        for doc_id in RUN[query_id]
    ]
    assert flat(reranked) == pytest.approx(reranker.predict(pairs).tolist(), abs=1e-5)


POLICY_NAMES = ["lowest_senses", "paired_tokens", "average"]
SENSES_ALONE = PairedTokens.of(Attribute.named("gender"), scope="senses")


@pytest.mark.parametrize(
    "policy", ["lowest_senses", "paired_tokens", SwappedAverage()], ids=POLICY_NAMES
)
def test_alpha_one_is_bit_identical_and_other_alphas_are_not(
    reranker, tiny_collection, tmp_path, policy
):
    for cache in (None, SenseCache(tmp_path)):
        reranker.cache = cache
        plain = reranker.rerank(RUN, tiny_collection)
        assert reranker.with_policy(policy, 1).rerank(RUN, tiny_collection) == plain
        changed = reranker.with_policy(policy, 0.2).rerank(RUN, tiny_collection)
        assert np.abs(np.subtract(flat(changed), flat(plain))).max() > 1e-3
        assert reranker.rerank(RUN, tiny_collection) == plain, "the reranker itself never changes"


def test_the_dial_gives_the_scores_of_the_hook(reranker):
    policy = LowestSenses(3)
    scores = reranker.with_policy(policy, 0.25).predict([(QUERY, text) for text in DOCUMENTS])
    texts = PackedBatch.from_sequences(reranker.scorer.pair_tokenizer.pairs(QUERY, DOCUMENTS))
    with torch.no_grad(), InferenceHook(reranker.hook.context, policy, 0.25):
        expected = reranker.scorer.ranker(texts).scores
    assert scores.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_several_views_are_added_up(reranker):
    pairs = [(QUERY, text) for text in DOCUMENTS]
    plain = reranker.predict(pairs)
    rewritten = reranker.predict([_without(query, text) for query, text in pairs])
    scores = reranker.with_policy(SwappedAverage(), 0.3).predict(pairs)
    assert scores.tolist() == pytest.approx((0.3 * plain + 0.7 * rewritten).tolist(), abs=1e-5)
    assert np.abs(plain - rewritten)[:2].min() > 1e-3


def test_a_sweep_is_one_row_per_alpha_under_the_papers_rule_or_the_own_policy(reranker):
    pairs = [(QUERY, text) for text in DOCUMENTS]
    for swept, policy in (
        (reranker, "lowest_senses"),
        (reranker.with_policy("uniform", 0.5), "uniform"),
    ):
        scores = swept.sweep(QUERY, DOCUMENTS, [1.0, 0.5, 0.0])
        assert scores.shape == (3, 4)
        assert scores[0].tolist() == reranker.predict(pairs).tolist()
        assert scores[1].tolist() == reranker.with_policy(policy, 0.5).predict(pairs).tolist()
        assert swept.sweep(QUERY, DOCUMENTS, [0.5], policy="uniform")[0].tolist() == pytest.approx(
            reranker.with_policy("uniform", 0.5).predict(pairs).tolist()
        )


@pytest.mark.parametrize(
    "policy", ["lowest_senses", SENSES_ALONE, "paired_tokens", SwappedAverage()]
)
def test_a_sweep_gives_the_scores_of_every_alpha_alone(reranker, policy):
    alphas = [1.0, 0.6, 0.0]
    scores = reranker.sweep(QUERY, DOCUMENTS, alphas, policy)
    for row, alpha in zip(scores, alphas, strict=True):
        alone = reranker.with_policy(policy, alpha).predict([(QUERY, text) for text in DOCUMENTS])
        assert row.tolist() == pytest.approx(alone.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "texts_read"),
    [("lowest_senses", [4]), (SENSES_ALONE, [4, 2]), ("paired_tokens", [4, 2, 2])],
)
def test_a_sweep_reads_texts_as_rarely_as_the_policy_allows(reranker, policy, texts_read):
    """Two of the four documents have a word that paired tokens move; the other two have one score
    at all alphas.
    """
    read = []
    reranker.scorer.ranker.register_forward_pre_hook(lambda _, args: read.append(len(args[0])))
    reranker.sweep(QUERY, DOCUMENTS, [1.0, 0.5, 0.0], policy)
    assert read == texts_read


def test_alpha_and_policy_can_be_given_where_texts_are_ranked(reranker):
    pairs = [(QUERY, text) for text in DOCUMENTS]
    controlled = reranker.with_policy("paired_tokens", 0.0)
    assert (
        reranker.predict(pairs, alpha=0.0, policy="paired_tokens").tolist()
        == controlled.predict(pairs).tolist()
    )
    assert reranker.rank(QUERY, DOCUMENTS, alpha=0.0, policy="paired_tokens") == controlled.rank(
        QUERY, DOCUMENTS
    )
    assert (
        controlled.predict(pairs, alpha=0.5).tolist()
        == reranker.predict(pairs, alpha=0.5, policy="paired_tokens").tolist()
    )
    lowest = reranker.with_policy("lowest_senses", 0.5).predict(pairs)
    assert reranker.predict(pairs, alpha=0.5).tolist() == lowest.tolist(), (
        "the paper's rule, where none is named"
    )
    assert reranker.predict(pairs).tolist() == reranker.predict(pairs, alpha=1).tolist()


def test_many_queries_are_ranked_as_each_alone(reranker):
    queries, documents = [QUERY, "soup for guests"], [DOCUMENTS, DOCUMENTS[1:3]]
    rankings = reranker.rank_many(queries, documents, top_k=3, return_documents=True, alpha=0.5)
    for rows, query, documents_of_query in zip(rankings, queries, documents, strict=True):
        alone = reranker.rank(query, documents_of_query, top_k=3, return_documents=True, alpha=0.5)
        assert [(row["corpus_id"], row["text"]) for row in rows] == [
            (row["corpus_id"], row["text"]) for row in alone
        ]
        assert [row["score"] for row in rows] == pytest.approx(
            [row["score"] for row in alone], abs=1e-5
        )
    assert reranker.rank_many([QUERY, QUERY], [[], ["a bridge"]])[0] == []
    with pytest.raises(ValueError, match="1 lists of documents for 2 queries"):
        reranker.rank_many([QUERY, QUERY], [DOCUMENTS])


def test_a_sigmoid_is_taken_in_double_precision(reranker):
    pairs = [(QUERY, text) for text in DOCUMENTS]
    with torch.no_grad():
        reranker.scorer.ranker.head.out.bias.add_(25.0)
    logits, probabilities = reranker.predict(pairs), reranker.predict(pairs, activation="sigmoid")
    assert probabilities.tolist() == pytest.approx(
        [1 / (1 + math.exp(-float(logit))) for logit in logits], abs=1e-15
    )
    assert len(set(probabilities.tolist())) == 4, "in float32 all of them were 1"
    with pytest.raises(ValueError, match="activation='softmax'"):
        reranker.predict(pairs, activation="softmax")


def test_long_documents_are_cut_and_counted_or_read_in_parts(reranker, caplog):
    """48 tokens are read; the third document's end differs, and only in parts is that seen."""
    tokenizer = reranker.scorer.pair_tokenizer
    long = " ".join(["bread and fish"] * 40)
    documents = ["a bridge", long, f"{long} she saw her mother"]
    cut = reranker.predict([(QUERY, text) for text in documents])
    assert "2 of 3 documents are longer than the 48 tokens" in caplog.text
    assert cut[1] == pytest.approx(cut[2], abs=1e-5)
    scores = reranker.predict([(QUERY, text) for text in documents], long_documents="chunks")
    query = tokenizer.encode_query(QUERY)
    (ids,) = tokenizer.encode(documents[2:])
    room = 48 - len(query) - 2
    parts = [ids[start : start + room] for start in range(0, len(ids) - room, room)] + [ids[-room:]]
    assert sum(map(len, parts[:-1])) < len(ids) <= sum(map(len, parts))
    batch = PackedBatch.from_sequences([tokenizer.join(query, part) for part in parts])
    with torch.no_grad():
        expected = reranker.scorer.ranker(batch).scores.max().item()
    assert scores[2] == pytest.approx(expected, abs=1e-5)
    assert abs(scores[2] - cut[2]) > 1e-3
    assert scores[0] == pytest.approx(cut[0], abs=1e-5)
    with pytest.raises(ValueError, match="long_documents='all'"):
        reranker.predict([(QUERY, "a bridge")], long_documents="all")


def test_policies_of_a_ranker_are_those_that_turn_it(reranker, without_senses):
    assert without_senses.policies == ("paired_tokens", "renditions")
    assert {"lowest_senses", "uniform", "paired_tokens", "renditions"} <= set(reranker.policies)
    fitting = "paired_tokens, renditions"
    for name, sentence in (
        ("lowest", f"policy=lowest: use one of {fitting}, or a Policy of your own"),
        ("uniform", f"policies of this ranker: {fitting}"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            without_senses.rank(QUERY, DOCUMENTS, alpha=0.5, policy=name)


def test_one_text_in_place_of_documents_is_refused(reranker):
    for rank in (reranker.rank, reranker.scorer.score):
        with pytest.raises(
            TypeError, match=r"documents must be a list of texts, not one text: give \['a bridge'\]"
        ):
            rank(QUERY, "a bridge")
    with pytest.raises(ValueError, match="top_k=0 must be a whole number of at least 1"):
        reranker.rank(QUERY, DOCUMENTS, top_k=0)
    with pytest.raises(ValueError, match="pair 1: the query is empty"):
        reranker.predict([(QUERY, "a bridge"), (" ", "a bridge")])


def test_an_explanation_adds_up_to_the_score_and_shows_what_alpha_changes(reranker):
    plain = reranker.explain(QUERY, DOCUMENTS[0])
    assert plain.score == pytest.approx(
        float(reranker.predict([(QUERY, DOCUMENTS[0])])[0]), abs=1e-5
    )
    assert sum(word.contribution for word in plain.words) == pytest.approx(
        plain.score - plain.empty_score, abs=1e-6
    )
    assert plain.score_before is None
    assert {word.text: word.group for word in plain.words if word.group} == {
        "he": "male",
        "his": "male",
        "mother": "female",
    }
    for policy in ("lowest_senses", "paired_tokens"):
        controlled = reranker.with_policy(policy, 0.0)
        explanation = controlled.explain(QUERY, DOCUMENTS[0])
        assert explanation.score == pytest.approx(
            float(controlled.predict([(QUERY, DOCUMENTS[0])])[0]), abs=1e-5
        )
        assert explanation.score_before == plain.score
        assert sum(sense.change for sense in explanation.senses) == pytest.approx(
            explanation.score - plain.score, abs=1e-6
        )
    with pytest.raises(ValueError, match="policy average reads several texts for one score"):
        reranker.with_policy(SwappedAverage(), 0.5).explain(QUERY, DOCUMENTS[0], by="senses")


def test_a_reranker_is_named_by_its_alpha_and_shares_its_sensitivity(reranker, without_senses):
    assert (reranker.name, reranker.alpha) == ("alpha=1", 1.0)
    controlled = reranker.with_policy("uniform", 0.25)
    assert (controlled.name, controlled.alpha) == ("alpha=0.25", 0.25)
    assert controlled.sensitivity is reranker.sensitivity, "computed once for all alphas"
    assert (without_senses.name, without_senses.alpha, without_senses.sensitivity) == (
        "GPT2ForRanking",
        None,
        None,
    )
    moved = without_senses.with_policy("paired_tokens", 0.0)
    assert (moved.name, moved.alpha, moved.hook.view.token_shift.scope) == (
        "alpha=0",
        0.0,
        "weights",
    )


def test_what_does_not_fit_is_said_before_texts_are_scored(reranker, without_senses):
    with pytest.raises(
        ValueError, match=r"alpha=0\.5, policy uniform: GPT2ForRanking has no sense vectors"
    ):
        without_senses.with_policy("uniform", 0.5)
    with pytest.raises(ValueError, match="policy=lowest: use one of"):
        reranker.with_policy("lowest", 0.5)
    with pytest.raises(ValueError, match=r"policy\.count=9, but the model has 8 senses"):
        reranker.with_policy(LowestSenses(9), 0.5)
    with pytest.raises(ValueError, match="alpha=-1"):
        reranker.with_policy("uniform", -1)
    with pytest.raises(
        ValueError, match="the score of a GPT2ForRanking does not split into senses"
    ):
        without_senses.explain(QUERY, DOCUMENTS[0], by="senses")


def test_scores_that_are_not_finite_are_no_ranking(reranker):
    with torch.no_grad():
        reranker.scorer.ranker.head.out.bias.fill_(math.nan)
    with pytest.raises(ValueError, match="4 scores are not finite"):
        reranker.rank(QUERY, DOCUMENTS)
