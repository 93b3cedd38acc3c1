"""policy=renditions: at alpha = 0 texts of one canonical form have one score, for every ranker and
tokenizer.
"""

from __future__ import annotations

import numpy as np
import pytest

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.renditions import MeanOfRenditions

GENDER = Attribute.named("gender")
QUERY = "who cooks soup"
DOCUMENT = "The stepmother told her husband."
SWAPPED = GENDER.swap()(DOCUMENT).text
PLAIN = "A bridge, and soup for guests."
ALPHAS = (1.0, 0.5, 0.0)


class Counting(Scorer):
    """Counts the texts that the network reads."""

    read = 0

    def score_texts(self, pairs, view=None):
        self.read += len(pairs)
        return super().score_texts(pairs, *([] if view is None else [view]))


@pytest.fixture(params=["backpack", "gpt2"])
def reranker(request, make_backpack, make_gpt2, pair_tokenizer) -> PointwiseReranker:
    make = make_backpack if request.param == "backpack" else make_gpt2
    return PointwiseReranker(Counting(make(), pair_tokenizer))


def test_texts_of_one_form_have_one_score(reranker: PointwiseReranker) -> None:
    tokens = [len(reranker.scorer.join(QUERY, [text]).sequences[0]) for text in (DOCUMENT, SWAPPED)]
    assert tokens[0] != tokens[1], "words of several tokens, and of other numbers of tokens"
    texts = [(QUERY, DOCUMENT), (QUERY, SWAPPED), (QUERY, PLAIN)]
    plain = reranker.predict(texts)
    scores = reranker.predict(texts, alpha=0, policy="renditions")
    assert abs(plain[0] - plain[1]) > 1e-4
    assert scores[0] == scores[1], "bit for bit, scored together"
    assert scores[2] == plain[2], "bit for bit: it has no class word"
    forms = GENDER.renditions()
    means = reranker.predict([(QUERY, forms(DOCUMENT, group)) for group in (0, 1)]).mean()
    assert scores[0] == pytest.approx(float(means), abs=1e-5)
    half = reranker.predict(texts, alpha=0.5, policy="renditions")
    assert half[:2] == pytest.approx((plain[:2] + scores[:2]) / 2, abs=1e-5)
    assert half[2] == plain[2]


def test_a_word_that_changes_the_number_of_tokens_before_the_cut_changes_nothing(
    reranker: PointwiseReranker,
) -> None:
    long = [
        f"{text} {'Soup for a hundred guests, a river and a road. ' * 12}"
        for text in (DOCUMENT, SWAPPED)
    ]
    for handling in ("cut", "chunks"):
        texts = [(QUERY, text) for text in long]
        scores = reranker.predict(texts, alpha=0, policy="renditions", long_documents=handling)
        assert scores[0] == pytest.approx(scores[1], abs=1e-6)
        plain = reranker.predict(texts, long_documents=handling)
        assert abs(plain[0] - plain[1]) > 1e-5


def test_all_alphas_read_every_distinct_text_once(reranker: PointwiseReranker) -> None:
    scorer = reranker.scorer
    documents = [DOCUMENT, SWAPPED, PLAIN, DOCUMENT]
    scores = reranker.sweep(QUERY, documents, ALPHAS, "renditions")
    assert scorer.read == len(documents), (
        "the renditions are the text and its swap, which are there"
    )
    each = [
        reranker.predict([(QUERY, text) for text in documents], alpha=a, policy="renditions")
        for a in ALPHAS
    ]
    assert scores == pytest.approx(np.stack(each), abs=1e-6)


def test_a_collection_is_scored_like_texts_with_and_without_a_cache(
    reranker: PointwiseReranker, tmp_path
) -> None:
    texts = {"d": DOCUMENT, "s": SWAPPED, "p": PLAIN}
    collection = Collection("tiny", MemoryStore(texts), {"q": QUERY, "his": "his soup"}, {})
    run = {"q": dict.fromkeys(texts, 0.0), "his": dict.fromkeys(texts, 0.0)}
    pairs = Pairs.from_run(run, collection)
    expected = reranker.at(0, "renditions").predict(list(pairs.texts()))
    cached = PointwiseReranker(reranker.scorer, cache=SenseCache(tmp_path)).at(0, "renditions")
    for at_zero in (reranker.at(0, "renditions"), cached, cached):
        reranked = at_zero.rerank(run, collection)
        assert [
            reranked[q][d] for q, d in zip(pairs.query_ids, pairs.doc_ids, strict=True)
        ] == pytest.approx(expected.tolist(), abs=1e-6)
    assert AlphaSweep(reranker, [1, 0], "renditions").scores(pairs)[:, 1] == pytest.approx(
        expected, abs=1e-6
    )


def test_queries_with_class_words_are_left_alone_or_take_the_rendition(
    reranker: PointwiseReranker,
) -> None:
    texts = [("her soup", DOCUMENT), ("her soup", SWAPPED), ("his soup", DOCUMENT)]
    plain = reranker.predict(texts)
    assert reranker.predict(texts, alpha=0, policy="renditions").tolist() == plain.tolist()
    averaged = reranker.predict(texts, alpha=0, policy=MeanOfRenditions(GENDER, queries="all"))
    assert averaged == pytest.approx(averaged[0], abs=1e-6)
    assert abs(averaged[0] - plain[0]) > 1e-5


def test_one_rendition_alone_is_a_control(reranker: PointwiseReranker) -> None:
    female = reranker.predict(
        [(QUERY, DOCUMENT), (QUERY, SWAPPED)],
        alpha=0,
        policy=MeanOfRenditions(GENDER, only="female"),
    )
    assert female[0] == pytest.approx(female[1], abs=1e-6)
    expected = reranker.predict([(QUERY, GENDER.renditions()(DOCUMENT, 0))])
    assert female[0] == pytest.approx(expected[0], abs=1e-6)


@pytest.mark.parametrize(
    ("policy", "documents"),
    [
        (MeanOfRenditions(GENDER, only="female"), [SWAPPED, DOCUMENT, PLAIN]),
        (MeanOfRenditions(GENDER, only="female"), [DOCUMENT, SWAPPED, PLAIN]),
        (MeanOfRenditions(GENDER), ["the hostess cooks soup", "the host cooks soup", PLAIN]),
    ],
)
def test_a_text_that_is_its_own_rendition_gives_others_its_very_score(
    reranker, policy, documents
) -> None:
    pairs = [(QUERY, text) for text in documents]
    scores = reranker.predict(pairs, alpha=0, policy=policy)
    assert reranker.scorer.read == len(documents), "no text is read twice"
    assert scores[0] == scores[1]


def test_options_are_checked_and_named() -> None:
    for options, message in (
        ({"relations": "both"}, "policy.relations=both: use one of keep, merge"),
        ({"queries": "none"}, "policy.queries=none: use one of neutral_only, all"),
        ({"only": "neutral"}, "policy.only=neutral: use one of female, male"),
        ({"wide": "yes"}, "policy.wide"),
    ):
        with pytest.raises(ValueError, match=message):
            MeanOfRenditions(GENDER, **options)
    assert (
        MeanOfRenditions(GENDER, "merge", "male", True, queries="all").name
        == "renditions_merge_wide_male_all_queries"
    )


def test_a_neutral_rendition_is_a_third_member_of_the_mean(reranker: PointwiseReranker) -> None:
    document = "The stepmother of a policeman told her husband."
    policy = MeanOfRenditions(GENDER, neutral=True)
    score_at_0 = reranker.predict([(QUERY, document)], alpha=0, policy=policy)
    texts = [
        document,
        "The stepfather of a policewoman told his wife.",
        "The step-parent of a police officer told her spouse.",
        "The step-parent of a police officer told his spouse.",
    ]
    scores = reranker.predict([(QUERY, text) for text in texts])
    expected = (scores[0] + scores[1] + (scores[2] + scores[3]) / 2) / 3
    assert score_at_0[0] == pytest.approx(expected, abs=1e-6)


def test_the_neutral_rendition_alone_is_a_control(reranker: PointwiseReranker) -> None:
    policy = MeanOfRenditions(GENDER, neutral=True, only="neutral")
    scores = reranker.predict(
        [
            (QUERY, "The Mother of a king"),
            (QUERY, "The Father of a queen"),
            (QUERY, "The Parent of a monarch"),
        ],
        alpha=0,
        policy=policy,
    )
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[0] == pytest.approx(scores[2], abs=1e-6)
    assert policy.name == "renditions_keep_neutral"


def test_an_attribute_without_neutral_forms_refuses_the_neutral_rendition() -> None:
    with pytest.raises(ValueError, match=r"policy\.neutral=true: the attribute age has no neutral"):
        MeanOfRenditions(Attribute.named("age"), neutral=True)


def test_first_names_have_no_influence_but_those_of_the_query(reranker: PointwiseReranker) -> None:
    policy = MeanOfRenditions(GENDER, names=True)
    query = "soup of mary wollstonecraft"
    pairs = [
        (query, "Patricia cooks her soup for Mary"),
        (query, "John cooks his soup for Mary"),
        (query, "John cooks his soup for James"),
    ]
    scores = reranker.predict(pairs, alpha=0, policy=policy)
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert abs(scores[2] - scores[1]) > 1e-5
    without_names = reranker.predict(pairs, alpha=0, policy=MeanOfRenditions(GENDER))
    assert abs(without_names[0] - without_names[1]) > 1e-5


def test_an_attribute_without_names_refuses_them() -> None:
    policy = MeanOfRenditions(Attribute.named("age"), names=True)
    with pytest.raises(ValueError, match="the attribute age has no list of first names"):
        _ = policy.renditions
