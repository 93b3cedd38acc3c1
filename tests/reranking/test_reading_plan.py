"""A plan's sums are those of every view read alone, nothing is read twice, and two promises hold to
the last bit.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.models.token_shift import TokenClasses, TokenShift, token_shift
from backpack_rank.models.word_boundaries import WordBoundaries
from backpack_rank.reranking.planned_scores import (
    scores_of_pairs,
    scores_of_texts,
    scores_of_tokens,
)
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.reading_plan import ReadingPlan
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.policies import PolicyContext
from backpack_rank.senses.policy_names import POLICIES
from backpack_rank.senses.views import IDENTITY, View
from backpack_rank.serving.jobs import RequestOptions
from backpack_rank.serving.pointwise import ServedPointwise

WORDS = ("she", "he", "mother", "father", "bridge", "soup")
SENSES = 4

drawn = settings(max_examples=50, deadline=None)

# A network of its own: every word is a token, and a score is any number that hangs on what is read.


def ids_of(pair) -> np.ndarray:
    query, document = pair
    return np.array(
        [WORDS.index(word) for word in [*query.split(), "soup", *document.split()]], dtype=np.int32
    )


def classes(*members: tuple[int, ...]) -> TokenClasses:
    boundaries = WordBoundaries.of_texts([f" {word}" for word in WORDS])
    return TokenClasses(tuple(map(str, members)), members, boundaries)


PRONOUNS, RELATIVES = classes((0, 1)), classes((2, 3))
SHIFTS = [TokenShift(PRONOUNS, "both", alpha) for alpha in (0.0, 0.5)] + [
    TokenShift(RELATIVES, "both", 0.0)
]
WEIGHTS = [torch.tensor([alpha, 1.0, 1.0, 1.0]) for alpha in (0.0, 0.5)]


def senses_of(ids: np.ndarray, shift: TokenShift | None) -> np.ndarray:
    """Sense vectors of one number each, other ones under a shift where a token moves."""
    moved = shift.key if shift is not None and shift.moves(ids) else ""
    seed = zlib.crc32(ids.tobytes() + moved.encode())
    return np.random.default_rng(seed).normal(size=SENSES)


def score_of(ids: np.ndarray, view: View) -> float:
    weights = np.ones(SENSES) if view.sense_weights is None else view.sense_weights.numpy()
    return float(senses_of(ids, view.token_shift) @ weights)


def in_document(change, query: str, document: str) -> tuple[str, str]:
    return query, " ".join(change.get(word, word) for word in document.split())


REWRITINGS = [
    partial(in_document, {"he": "she"}),
    partial(in_document, {"she": "he"}),
    partial(in_document, {"she": "he", "he": "she", "mother": "father", "father": "mother"}),
    partial(in_document, {"bridge": ""}),
]

pairs_of_texts = st.lists(
    st.tuples(
        st.sampled_from(["soup", "bridge"]),
        st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
    ),
    min_size=1,
    max_size=8,
)
views = st.builds(
    View,
    sense_weights=st.sampled_from([None, *WEIGHTS]),
    token_shift=st.sampled_from([None, *SHIFTS]),
    rewrite=st.sampled_from([None, None, *REWRITINGS]),
    coefficient=st.sampled_from([0.0, 0.3, 0.35, 1.0, -0.5]),
)
policies_of_views = st.lists(st.lists(views, max_size=4), min_size=1, max_size=4)


def alone(policies, pairs) -> np.ndarray:
    """The obvious way: every view of every policy reads every pair."""
    scores = np.zeros((len(policies), len(pairs)))
    for sums_of_policy, policy in zip(scores, policies, strict=True):
        for row, pair in enumerate(pairs):
            for view in policy:
                read = pair if view.rewrite is None else view.rewrite(*pair)
                sums_of_policy[row] += view.coefficient * score_of(ids_of(read), view)
    return scores


def read_by_passes(plan: ReadingPlan, texts, noise: float = 0.0) -> tuple[np.ndarray, Counter]:
    """Scores that a plan asks for, and how often the network reads each text under each shift.

    With noise the place among all texts that are read shows in the last bits, as the place in a
    batch does.
    """
    scores = plan.empty_scores()
    reads: Counter = Counter()
    for reading in plan.passes():
        for text in reading.texts:
            ids = ids_of(texts[text])
            moved = reading.shift is not None and reading.shift.moves(ids)
            reads[ids.tobytes(), reading.shift.key if moved else None] += 1
            for column, view in zip(reading.columns, reading.views(), strict=True):
                scores[column, text] = score_of(ids, view) + noise * reads.total()
    return scores, reads


@pytest.mark.slow
@drawn
@given(policies_of_views, pairs_of_texts, st.booleans())
def test_sums_are_those_of_every_view_alone(policies, pairs, shared) -> None:
    plan = ReadingPlan(policies, len(pairs), lambda: iter(pairs))
    texts = [*pairs, *plan.new_texts]
    if shared:
        plan.share([ids_of(text) for text in texts])
    scores, _ = read_by_passes(plan, texts)
    assert plan.sums(scores) == pytest.approx(alone(policies, pairs), abs=1e-5)


@pytest.mark.slow
@drawn
@given(policies_of_views, pairs_of_texts)
def test_nothing_is_read_twice_and_nothing_in_vain(policies, pairs) -> None:
    plan = ReadingPlan(policies, len(pairs), lambda: iter(pairs))
    texts = [*pairs, *plan.new_texts]
    assert len(set(plan.new_texts) - set(pairs)) == len(plan.new_texts)
    plan.share([ids_of(text) for text in texts])
    _, reads = read_by_passes(plan, texts)
    wanted = set()
    for view in itertools.chain.from_iterable(policies):
        if not view.coefficient:
            continue
        for pair in pairs:
            ids = ids_of(pair if view.rewrite is None else view.rewrite(*pair))
            moved = view.token_shift is not None and view.token_shift.moves(ids)
            wanted.add((ids.tobytes(), view.token_shift.key if moved else None))
    assert set(reads) == wanted
    assert set(reads.values()) <= {1}


@pytest.mark.slow
@drawn
@given(policies_of_views, pairs_of_texts)
def test_equal_pairs_have_one_score_where_equal_texts_have(policies, pairs) -> None:
    pairs = [*pairs, *reversed(pairs)]
    plan = ReadingPlan(policies, len(pairs), lambda: iter(pairs))
    scores, _ = read_by_passes(plan, [*pairs, *plan.new_texts])
    sums = plan.sums(scores)
    assert sums.tolist() == sums[:, ::-1].tolist()


@drawn
@given(policies_of_views, pairs_of_texts)
def test_columns_name_what_each_score_is_asked_for(policies, pairs) -> None:
    plan = ReadingPlan(policies, len(pairs), lambda: iter(pairs))
    needed = plan.needed()
    filled = np.zeros_like(needed)
    for reading in plan.passes():
        for column, view in zip(reading.columns, reading.views(), strict=True):
            assert view.token_shift is plan.views[column].token_shift is reading.shift
            assert view.sense_weights is plan.views[column].sense_weights
            filled[column, reading.texts] = True
    assert (filled | ~needed).all()
    assert needed.any(axis=1).all(), "no column is asked for in vain"


@drawn
@given(
    pairs_of_texts,
    st.sampled_from([(1.0,), (0.3, 0.35, 0.35), (0.1,) * 10, (0.0, 0.5, 0.5)]),
    st.data(),
)
def test_a_pair_that_no_view_rewrites_has_its_very_score(pairs, coefficients, data) -> None:
    rewritings = data.draw(st.lists(st.sampled_from([None, *REWRITINGS]), min_size=10, max_size=10))
    policy = [
        View(rewrite=rewrite, coefficient=c)
        for rewrite, c in zip(rewritings, coefficients, strict=False)
    ]
    plan = ReadingPlan([policy, IDENTITY], len(pairs), lambda: iter(pairs))
    texts = [*pairs, *plan.new_texts]
    scores, _ = read_by_passes(plan, texts, noise=1e-4)
    rewritten, unchanged = plan.sums(scores)
    assert unchanged.tolist() == scores[0, : len(pairs)].tolist()
    # What each pair is rewritten to by the views of the policy.
    written = []
    for pair in pairs:
        written.append([pair if rewrite is None else rewrite(*pair) for rewrite in rewritings])
    for row, pair in enumerate(pairs):
        texts_of_others = itertools.chain(*written[:row], *written[row + 1 :])
        if set(written[row]) == {pair} and pair not in texts_of_others:
            assert rewritten[row] == scores[0, row]


@drawn
@given(pairs_of_texts, st.sampled_from(REWRITINGS), st.booleans())
def test_a_pair_that_another_one_is_rewritten_to_shares_its_score(pairs, rewrite, shared) -> None:
    plan = ReadingPlan([[View(rewrite=rewrite)]], len(pairs), lambda: iter(pairs))
    texts = [*pairs, *plan.new_texts]
    if shared:
        plan.share([ids_of(text) for text in texts])
    scores, _ = read_by_passes(plan, texts, noise=1e-4)
    (sums,) = plan.sums(scores)
    by_text: dict[tuple[str, str], set[float]] = {}
    changed = {rewrite(*pair) for pair in pairs if rewrite(*pair) != pair}
    for pair, score in zip(pairs, sums.tolist(), strict=True):
        if shared or rewrite(*pair) in changed:
            by_text.setdefault(rewrite(*pair), set()).add(score)
    assert all(len(of_text) == 1 for of_text in by_text.values())


def test_texts_that_are_read_alike_are_one() -> None:
    """Of which the first word is read."""
    plan = ReadingPlan(
        [[View(rewrite=REWRITINGS[0])]],
        2,
        lambda: [("soup", "he soup"), ("soup", "she bridge")],
        lambda pair: (pair[0], pair[1].split()[0]),
    )
    assert plan.new_texts == []
    assert plan.sums(np.array([[1.0, 2.0]], dtype=np.float32)).tolist() == [[2.0, 2.0]]


def test_texts_are_asked_for_only_where_a_view_rewrites_them() -> None:
    plan = ReadingPlan(
        [IDENTITY, [View(sense_weights=WEIGHTS[0]), View(rewrite=REWRITINGS[0], coefficient=0.0)]],
        3,
    )
    assert [reading.texts.tolist() for reading in plan.passes()] == [[0, 1, 2]]
    assert plan.sums(plan.empty_scores()).shape == (2, 3)


def test_a_plan_of_no_policy_reads_nothing() -> None:
    plan = ReadingPlan([], 3)
    assert plan.passes() == []
    assert plan.sums(plan.empty_scores()).shape == (0, 3)


def test_one_shift_alone_is_one_pass() -> None:
    """So that its texts stand in the batches of a call with one alpha."""
    plan = ReadingPlan([[View(token_shift=SHIFTS[0])]], 2)
    plan.share([ids_of(("soup", "he")), ids_of(("soup", "soup"))])
    assert [(reading.shift, reading.texts.tolist()) for reading in plan.passes()] == [
        (SHIFTS[0], [0, 1])
    ]


# The callers, with real rankers


DOCUMENTS = [
    "he saw his mother",
    "she saw her mother",
    "a bridge over a river",
    "she saw his mother",
    "he saw his mother",
    "",
    "The doctor said he would see her",
]


def swapped(words, query, document):
    return query, " ".join(words.get(word, word) for word in document.split())


REAL_REWRITINGS = [
    partial(swapped, {"he": "she", "his": "her"}),
    partial(swapped, {"she": "he", "her": "his"}),
    partial(swapped, {"he": "", "river": "road"}),
]


@pytest.fixture(scope="module", params=["backpack", "attribute senses", "gpt2"])
def ranker_and_parts(request, make_backpack, make_gpt2, pair_tokenizer):
    """A scorer, with shifts and weights for its ranker, and the score of one text alone."""
    if request.param == "gpt2":
        ranker, scopes = make_gpt2(), ["weights"]
    else:
        added = {"attribute_senses": ["gender"]} if request.param == "attribute senses" else {}
        ranker, scopes = make_backpack(**added), ["senses", "weights", "both"]
    scorer = Scorer(ranker, pair_tokenizer)
    words = PolicyContext.of(ranker, scorer.tokenizer, Attribute.named("gender"))
    moved = (
        POLICIES["paired_tokens"](Attribute.named("gender"))
        .views(words, 0.5)[0]
        .token_shift.classes
    )
    shifts = [token_shift(ranker, moved, scope, alpha) for scope in scopes for alpha in (0.0, 0.5)]
    weights = []
    if ranker.has_senses:
        weights = [torch.linspace(alpha, 1, ranker.config.total_senses) for alpha in (0.0, 0.5)]

    @cache
    def score_alone(text, sense_weights, shift):
        return scorer.score_texts([text], View(sense_weights, shift))[0]

    return scorer, shifts, weights, score_alone


@settings(drawn, max_examples=4)
@given(data=st.data())
def test_every_caller_gives_the_sums_of_every_view_alone(
    ranker_and_parts, tmp_path_factory, data
) -> None:
    scorer, shifts, weights, score_alone = ranker_and_parts
    rewriting = data.draw(st.booleans())
    view = st.builds(
        View,
        sense_weights=st.sampled_from([None, *weights]),
        token_shift=st.sampled_from([None, *shifts]),
        rewrite=st.sampled_from([None, *REAL_REWRITINGS] if rewriting else [None]),
        coefficient=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    )
    policies = data.draw(st.lists(st.lists(view, min_size=1, max_size=3), min_size=1, max_size=3))
    pairs = [("doctor", document) for document in DOCUMENTS]
    expected = np.zeros((len(policies), len(pairs)))
    for sums_of_policy, policy in zip(expected, policies, strict=True):
        for part in policy:
            read = pairs if part.rewrite is None else [part.rewrite(*pair) for pair in pairs]
            sums_of_policy += part.coefficient * np.array(
                [score_alone(text, part.sense_weights, part.token_shift) for text in read]
            )

    scores_by_caller = {"texts": scores_of_texts(policies, scorer, pairs)}
    store = MemoryStore({str(row): document for row, document in enumerate(DOCUMENTS)})
    rows = tuple(map(str, range(len(DOCUMENTS))))
    of_collection = Pairs(Collection("drawn", store, {"q": "doctor"}, {}), ("q",) * len(rows), rows)
    scores_by_caller["collection"] = scores_of_pairs(policies, scorer, of_collection)
    scores_by_caller["cache"] = scores_of_pairs(
        policies, scorer, of_collection, SenseCache(tmp_path_factory.mktemp("cache"))
    )
    if not rewriting:
        scores_by_caller["tokens"] = scores_of_tokens(
            policies,
            scorer,
            scorer.join("doctor", DOCUMENTS),
            [("doctor", document) for document in DOCUMENTS],
        )
    reranker = PointwiseReranker(scorer)
    served = ServedPointwise("drawn", reranker)
    served._cached_views = lambda policy, alpha: policies[int(alpha)]
    job = served.job("doctor", DOCUMENTS, RequestOptions(range(len(policies))))
    for part in job.slices:
        served.score([part])
    job.finish()
    scores_by_caller["server"] = job.future.result(timeout=0)
    for name, scores in scores_by_caller.items():
        # Scores are up to 20, of which float32 has five places behind the point.
        assert scores == pytest.approx(expected, rel=2e-6, abs=1e-5), name
