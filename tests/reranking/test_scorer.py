"""Candidates in, scores out: the same whatever the batch, the path and the cache."""

import math

import numpy as np
import pytest
import torch

from backpack_rank.data.batching import Pairs
from backpack_rank.reranking.planned_scores import scores_of_pairs
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import UNCHANGED, ScoringSettings
from backpack_rank.senses.cache import GB, SenseCache
from backpack_rank.senses.policies import LowestSenses
from backpack_rank.senses.views import View

RUN = {
    "q1": {"d0": 3.0, "d4": 2.0, "empty": 1.0, "d1": 0.5},
    "q2": {"d5": 1.0, "d6": 0.9, "d0": 0.8},
    "q3": {"d6": 1.0, "d2": 0.1},
}
SENSITIVITY = torch.tensor([0.9, 0.2, 0.5, 0.1, 0.7, 0.6, 0.3, 0.8])


@pytest.fixture(params=["backpack", "gpt2"])
def scorer(request, make_backpack, make_gpt2, pair_tokenizer):
    return Scorer(make_backpack() if request.param == "backpack" else make_gpt2(), pair_tokenizer)


@pytest.fixture
def backpack_scorer(make_backpack, pair_tokenizer):
    return Scorer(make_backpack(), pair_tokenizer)


def ranked(scorer, collection, view=UNCHANGED, cache=None, run=RUN):
    pairs = Pairs.from_run(run, collection)
    return pairs.to_run(scorer.scores(pairs, view, cache))


def weighted(alpha, count=2):
    """The lowest senses times alpha; None: the ranker unchanged."""
    return UNCHANGED if alpha is None else View(LowestSenses(count).weights(SENSITIVITY, alpha))


def flat(run):
    return [score for documents in run.values() for score in documents.values()]


def test_scores_of_a_batch_are_those_of_each_document_alone(scorer, tiny_collection):
    run = ranked(scorer, tiny_collection)
    texts = dict(tiny_collection.documents)
    assert {query_id: list(documents) for query_id, documents in run.items()} == {
        query_id: list(documents) for query_id, documents in RUN.items()
    }
    for query_id, documents in run.items():
        query = tiny_collection.queries[query_id]
        together = scorer.score(query, [texts[doc_id] for doc_id in documents])
        alone = [float(scorer.score(query, [texts[doc_id]])[0]) for doc_id in documents]
        assert list(documents.values()) == pytest.approx(alone, abs=1e-5)
        assert together.tolist() == pytest.approx(alone, abs=1e-5)
    assert np.std(flat(run)) > 0.05


@pytest.mark.parametrize(
    "settings", [ScoringSettings(tokens_per_batch=1), ScoringSettings(tokens_per_batch=70)]
)
def test_the_size_of_batches_does_not_matter(
    make_backpack, pair_tokenizer, tiny_collection, backpack_scorer, settings
):
    other = ranked(Scorer(make_backpack(), pair_tokenizer, settings), tiny_collection)
    assert flat(other) == pytest.approx(flat(ranked(backpack_scorer, tiny_collection)), abs=1e-5)


def test_worker_processes_give_the_same_scores(
    make_backpack, pair_tokenizer, tiny_collection, backpack_scorer, monkeypatch
):
    # The threads that the tokenizer starts here are not in a forked process: a worker that used
    # them would hang.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    pair_tokenizer.encode(["the doctor in the ward"] * 64)
    with_workers = Scorer(make_backpack(), pair_tokenizer, ScoringSettings(workers=1))
    assert ranked(with_workers, tiny_collection) == ranked(backpack_scorer, tiny_collection)


def test_the_order_of_rows_does_not_matter(scorer, tiny_collection):
    reversed_run = {
        query_id: dict(reversed(documents.items())) for query_id, documents in reversed(RUN.items())
    }
    expected, scores = (
        ranked(scorer, tiny_collection),
        ranked(scorer, tiny_collection, run=reversed_run),
    )
    for query_id, documents in expected.items():
        assert scores[query_id] == pytest.approx(documents, abs=1e-5)


def test_dropout_plays_no_part(make_backpack, pair_tokenizer, tiny_collection):
    ranker = make_backpack(dropout=0.4).train()
    scorer = Scorer(ranker, pair_tokenizer)
    assert ranked(scorer, tiny_collection) == ranked(scorer, tiny_collection)


def test_an_empty_document_has_a_score(scorer):
    scores = scorer.score("doctor", ["", "the ward"])
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]
    assert scorer.score("doctor", []).shape == (0,)


def test_a_very_long_document_is_cut_and_the_query_is_kept(scorer, sentences):
    beginning = " ".join(sentences)
    long, longer, other = (
        scorer.score("doctor", [text])[0] for text in (beginning, beginning * 50, f"So {beginning}")
    )
    assert long == longer != other
    assert scorer.score("engineer", [beginning])[0] != long


def test_an_empty_query_is_named(scorer, tiny_collection):
    tiny_collection.queries["q3"] = " "
    with pytest.raises(ValueError, match="query q3 of tiny: the query is empty"):
        ranked(scorer, tiny_collection)
    with pytest.raises(ValueError, match="the query is empty"):
        scorer.score("", ["text"])


def test_a_query_longer_than_the_limit_is_named(scorer, tiny_collection, sentences):
    tiny_collection.queries["q2"] = " ".join(sentences)
    with pytest.raises(
        ValueError, match=r"query q2 of tiny: the query has \d+ tokens and max_length=48"
    ):
        ranked(scorer, tiny_collection)


def test_a_candidate_that_the_collection_does_not_have_is_named(scorer, tiny_collection):
    with pytest.raises(KeyError, match="d99"):
        ranked(scorer, tiny_collection, run={"q1": {"d0": 1.0, "d99": 0.5}})
    with pytest.raises(ValueError, match="not in tiny: q9"):
        ranked(scorer, tiny_collection, run={"q9": {"d0": 1.0}})


def test_scores_that_are_not_finite_name_query_and_document(scorer, tiny_collection):
    with torch.no_grad():
        scorer.ranker.head.out.bias.fill_(math.nan)
    with pytest.raises(
        ValueError, match="9 scores are not finite, the first for query q1 and document d0: nan"
    ):
        ranked(scorer, tiny_collection)
    with pytest.raises(
        ValueError,
        match="1 scores are not finite, the first of pair 0, 'doctor' and 'the ward': nan",
    ):
        scorer.score("doctor", ["the ward"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_scores_are_near(
    make_backpack, pair_tokenizer, tiny_collection, backpack_scorer, dtype
):
    exact = flat(ranked(backpack_scorer, tiny_collection))
    half = flat(
        ranked(
            Scorer(make_backpack(), pair_tokenizer, ScoringSettings(dtype=dtype)), tiny_collection
        )
    )
    assert half == pytest.approx(exact, abs=0.1 * max(map(abs, exact)))
    assert half != exact


@pytest.mark.parametrize("alpha", [None, 1.0, 0.5, 0.0, 2.0])
def test_the_cached_path_equals_the_direct_path(backpack_scorer, tiny_collection, tmp_path, alpha):
    direct = ranked(backpack_scorer, tiny_collection, weighted(alpha, 3))
    cached = ranked(backpack_scorer, tiny_collection, weighted(alpha, 3), SenseCache(tmp_path))
    assert flat(cached) == pytest.approx(flat(direct), abs=1e-5)
    assert {query_id: list(documents) for query_id, documents in cached.items()} == {
        query_id: list(documents) for query_id, documents in direct.items()
    }
    plain = flat(ranked(backpack_scorer, tiny_collection))
    if alpha in (None, 1.0):
        assert flat(direct) == plain
    else:
        assert np.abs(np.subtract(flat(direct), plain)).max() > 0.01


def test_alpha_one_and_no_weights_are_bit_identical_on_both_paths(
    backpack_scorer, tiny_collection, tmp_path
):
    for cache in (None, SenseCache(tmp_path)):
        at_one, unweighted = (
            ranked(backpack_scorer, tiny_collection, weighted(alpha), cache)
            for alpha in (1.0, None)
        )
        assert at_one == unweighted


def test_further_weights_need_no_further_pass(backpack_scorer, tiny_collection, tmp_path):
    passes = []
    handle = backpack_scorer.ranker.backpack.backbone.register_forward_pre_hook(
        lambda *_: passes.append(1)
    )
    for alpha in (1.0, 0.9, 0.5, 0.0):
        ranked(backpack_scorer, tiny_collection, weighted(alpha), SenseCache(tmp_path))
        passed = len(passes)
        passes[:] = passes[:1]
        assert passed == 1
    handle.remove()


def test_an_array_that_does_not_fit_is_scored_directly(backpack_scorer, tiny_collection, tmp_path):
    scores = ranked(
        backpack_scorer, tiny_collection, weighted(0.5), SenseCache(tmp_path, max_gb=100 / GB)
    )
    assert scores == ranked(backpack_scorer, tiny_collection, weighted(0.5))
    assert not list(tmp_path.glob("*.npy"))


def test_other_weights_texts_limits_and_formats_are_other_entries(
    make_backpack, pair_tokenizer, tiny_collection, tmp_path
):
    cache = SenseCache(tmp_path)

    def entries(ranker, run=RUN, max_length=48, **settings):
        scorer = Scorer(
            ranker,
            type(pair_tokenizer)(pair_tokenizer.tokenizer, max_length),
            ScoringSettings(**settings),
        )
        ranked(scorer, tiny_collection, cache=cache, run=run)
        return len(list(tmp_path.glob("*.npy")))

    assert entries(make_backpack()) == 1
    assert entries(make_backpack()) == 1
    assert entries(make_backpack(seed=1)) == 2
    assert entries(make_backpack(), max_length=40) == 3
    assert entries(make_backpack(), run={"q1": RUN["q1"]}) == 4
    assert entries(make_backpack(), dtype="bfloat16") == 5
    tiny_collection.queries["q1"] = "nurse in the ward"
    assert entries(make_backpack()) == 6


def test_other_layer_scales_of_the_same_weights_are_other_entries(
    make_backpack, pair_tokenizer, tiny_collection, tmp_path
):
    """The configuration decides what weights do, so it is part of the key."""
    first, second = make_backpack(), make_backpack()
    second.config.scale_attn_by_inverse_layer_idx = False
    for ranker in (first, second):
        ranked(Scorer(ranker, pair_tokenizer), tiny_collection, cache=SenseCache(tmp_path))
    assert len(list(tmp_path.glob("*.npy"))) == 2


def test_a_ranker_without_senses_is_scored_without_weights_and_refused_with(
    make_gpt2, pair_tokenizer, tiny_collection, tmp_path
):
    scorer = Scorer(make_gpt2(), pair_tokenizer)
    assert ranked(scorer, tiny_collection, cache=SenseCache(tmp_path)) == ranked(
        scorer, tiny_collection
    )
    for cache in (None, SenseCache(tmp_path)):
        with pytest.raises(TypeError, match="GPT2ForRanking has no sense vectors"):
            ranked(scorer, tiny_collection, View(torch.ones(8)), cache)


def test_sense_vectors_are_written_row_by_row(backpack_scorer, tiny_collection):
    pairs = Pairs.from_run(RUN, tiny_collection)
    out = np.full((len(pairs), 8, 32), np.nan, dtype=np.float32)
    backpack_scorer.fill_senses(pairs, out)
    direct = backpack_scorer.scores(pairs)
    assert backpack_scorer.score_senses([(1.0, out)]).tolist() == pytest.approx(
        direct.tolist(), abs=1e-5
    )
    assert backpack_scorer.score_senses([(1.0, out[4:5])])[0] == pytest.approx(direct[4], abs=1e-5)


def test_rewritten_texts_have_the_score_of_what_they_are_rewritten_to(
    scorer, tiny_collection, tmp_path
):
    view = View(
        rewrite=lambda query, document: (
            query.replace("doctor", "nurse"),
            document.replace("she", "he"),
        )
    )
    texts, cache = dict(tiny_collection.documents), SenseCache(tmp_path)
    expected = [
        float(scorer.score(query, [document])[0])
        for query_id, documents in RUN.items()
        for query, document in (
            view.rewrite(tiny_collection.queries[query_id], texts[d]) for d in documents
        )
    ]
    pairs = Pairs.from_run(RUN, tiny_collection)
    for sense_cache in (None, cache, cache):
        (scores,) = scores_of_pairs([[view]], scorer, pairs, sense_cache)
        assert scores.tolist() == pytest.approx(expected, abs=1e-5)
    changes = np.subtract(expected, flat(ranked(scorer, tiny_collection)))
    assert np.abs(changes[:4]).min() > 1e-4
    assert np.abs(changes[-1]) < 1e-5, "no word of the last pair is rewritten"


@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"dtype": "fp32"}])
def test_unknown_number_formats_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"scoring\.{name}={value}"):
        ScoringSettings(**options)


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 3), (60.0, 0)])
def test_progress_of_few_pairs_is_shown_batch_by_batch_once_they_take_long(
    make_backpack, pair_tokenizer, monkeypatch, capsys, seconds, lines
):
    monkeypatch.setattr("backpack_rank.progress.INTERVAL", seconds)
    monkeypatch.setattr("backpack_rank.reranking.scorer.INTERVAL", seconds)
    slow = Scorer(make_backpack(), pair_tokenizer, ScoringSettings(tokens_per_batch=1))
    slow.score("what does a nurse do", ["one", "two words", "these three words"])
    assert capsys.readouterr().err.count("scoring: ") == lines
