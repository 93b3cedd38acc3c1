"""Scores explained by leaving out words: every number against scores of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from foreign_rankers import bert, score, served, xlm_roberta
from foreign_rankers import saved as save

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon
from backpack_rank.data.long_documents import LongDocuments
from backpack_rank.reranking.left_out_words import LeftOutWords, Words, fits_one_chunk
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer

GENDER = Attribute.named("gender")
QUERY, DOCUMENT = "the doctor saw", "she saw a nurse and he saw bread"


@pytest.fixture(params=[bert, xlm_roberta])
def classifier_and_scores(request, tmp_path):
    """A loaded classifier, and its scores by transformers."""
    model, tokenizer = save(request.param, tmp_path / "ranker")

    def scores(pairs):
        queries, documents = zip(*pairs, strict=True)
        inputs = tokenizer(
            list(queries), list(documents), truncation=True, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            return model(**inputs).logits[:, 0].double().numpy()

    return load(tmp_path / "ranker"), scores


@pytest.mark.parametrize(
    ("text", "words", "without_second"),
    [
        ("She cooks, well.", ["She", "cooks,", "well."], "She well."),
        ("his/her name", ["his/", "her", "name"], "his/ name"),
        ("said her/his x", ["said", "her/", "his", "x"], "said his x"),
        (' "He" (or she)\n', ['"He"', "(or", "she)"], ' "He" she)\n'),
        ("part-time, she's 3.5", ["part-time,", "she's", "3.5"], "part-time, 3.5"),
        ("\u5973\u533b\u751f", ["\u5973", "\u533b", "\u751f"], "\u5973\u751f"),
        ("\u0921\u0949\u0915\u094d\u091f\u0930 \u0906\u0907", None, None),
        ("fiance\u0301 and", ["fiance\u0301", "and"], "fiance\u0301"),
        ("- -- ok", ["-", "--", "ok"], "- ok"),
    ],
)
def test_texts_are_split_into_words_with_their_punctuation(text, words, without_second):
    split = Words(text)
    assert split.words == (words or text.split())
    assert split.without(()) == text
    assert split.without([1]) == (without_second or text.split()[0])


def test_each_number_is_the_score_less_the_score_without_the_word(classifier_and_scores):
    reranker, scores = classifier_and_scores
    explanation = reranker.explain(QUERY, DOCUMENT)
    assert explanation.by_words
    words = DOCUMENT.split()
    texts = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    queries = ["doctor saw", "the saw", "the doctor"]
    pairs = [(query, DOCUMENT) for query in queries] + [(QUERY, text) for text in texts]
    score_of_all = scores([(QUERY, DOCUMENT)])[0]
    assert explanation.score == pytest.approx(score_of_all, abs=1e-5)
    assert [word.text for word in explanation.words] == [*QUERY.split(), *words]
    assert [word.segment for word in explanation.words] == ["query"] * 3 + ["document"] * 8
    numbers = [word.contribution for word in explanation.words]
    assert numbers == pytest.approx((score_of_all - scores(pairs)).tolist(), abs=1e-5)
    assert np.ptp(numbers) > 0.05
    assert {word.text: word.group for word in explanation.words if word.group} == {
        "she": "female",
        "he": "male",
    }

    without = scores(
        [(QUERY, "saw a nurse and he saw bread"), (QUERY, "she saw a nurse and saw bread")]
    )
    assert [(group.name, group.words) for group in explanation.groups] == [
        ("female", 1),
        ("male", 1),
    ]
    assert [group.contribution for group in explanation.groups] == pytest.approx(
        (score_of_all - without).tolist(), abs=1e-5
    )


def test_what_gendered_words_did_is_the_score_less_the_mean_of_the_renditions(
    classifier_and_scores,
):
    reranker, scores = classifier_and_scores
    renditions = [DOCUMENT, "he saw a nurse and she saw bread"]
    mean = scores([(QUERY, text) for text in renditions]).mean()
    explanation = reranker.explain(QUERY, DOCUMENT)
    assert (explanation.renditions.name, explanation.renditions.words) == ("gender", 2)
    expected = scores([(QUERY, DOCUMENT)])[0] - mean
    assert abs(expected) > 1e-3
    assert explanation.renditions.contribution == pytest.approx(expected, abs=1e-5)
    # It is what alpha changes about the score under the policy renditions.
    dialled = reranker.at(0.0, "renditions").explain(QUERY, DOCUMENT)
    assert dialled.score == pytest.approx(mean, abs=1e-5)
    assert dialled.score_before - dialled.score == pytest.approx(expected, abs=1e-5)
    assert dialled.renditions.contribution == pytest.approx(0, abs=1e-6)
    assert dialled.renditions.change == pytest.approx(-expected, abs=1e-5)
    assert reranker.explain("she saw", DOCUMENT).renditions is None


def test_under_a_policy_changes_are_against_the_ranker_as_it_is(classifier_and_scores):
    reranker, _ = classifier_and_scores
    plain = reranker.explain(QUERY, DOCUMENT)
    for policy in ("paired_tokens", "renditions"):
        controlled = reranker.at(0.25, policy)
        explanation = controlled.explain(QUERY, DOCUMENT)
        assert explanation.score_before == pytest.approx(plain.score, abs=1e-6)
        without_she = "saw a nurse and he saw bread"
        pairs = [(QUERY, DOCUMENT), (QUERY, without_she)]
        with_it, without = controlled.predict(pairs).astype(float)
        she, plain_she = explanation.words[3], plain.words[3]
        assert she.contribution == pytest.approx(with_it - without, abs=1e-5)
        assert she.change == pytest.approx(she.contribution - plain_she.contribution, abs=1e-5)
        assert policy in explanation.title


def test_words_that_are_not_read_are_not_left_out(classifier_and_scores):
    reranker, scores = classifier_and_scores
    document = "she saw bread and fish " * 20
    explanation = reranker.explain(QUERY, document)
    words = [word.text for word in explanation.words if word.segment == "document"]
    tokenizer = reranker.scorer.pair_tokenizer
    room = tokenizer.room(tokenizer.encode_query(QUERY))
    # Every word is one token.
    assert words == document.split()[:room]
    assert explanation.cut == 100 - room
    first = next(word for word in explanation.words if word.segment == "document")
    pairs = [(QUERY, document), (QUERY, " ".join(words[1:]))]
    score_of_all, without = scores(pairs)
    assert first.contribution == pytest.approx(score_of_all - without, abs=1e-5)


@pytest.mark.slow
def test_neighbours_of_long_texts_are_left_out_together_and_listed_words_alone():
    document = "one two three four he five six seven she eight"
    words = LeftOutWords("query", document, GENDER, at_most=8)
    # Not where they are most of what may be left out: a text may have thousands of them.
    many = LeftOutWords("query", "she is here " * 8000, GENDER, at_most=64)
    assert len(many.pairs) <= 64 + 5
    explanation = words.explanation(np.arange(len(words.pairs)))
    assert [word.text for word in explanation.words] == [
        "query",
        "one two",
        "three four",
        "he",
        "five six",
        "seven",
        "she",
        "eight",
    ]
    assert words.pairs[1] == ("query", "three four he five six seven she eight")
    coarse = LeftOutWords("query", document, GENDER, at_most=1).explanation(np.zeros(99))
    assert [word.text for word in coarse.words] == [
        "query",
        "one two three four he five six seven she eight",
    ]
    with pytest.raises(ValueError, match="at_most=0 must be at least 1"):
        LeftOutWords("query", document, GENDER, at_most=0)


def test_the_only_word_of_a_query_stays_and_documents_may_be_empty():
    words = LeftOutWords("soup", " ", GENDER)
    explanation = words.explanation(np.zeros(len(words.pairs)))
    assert [(word.text, word.contribution) for word in explanation.words] == [("soup", None)]
    assert (explanation.groups, explanation.renditions.words) == ((), 0)


def test_a_lexicon_of_ones_own_says_which_words_are_listed():
    lexicon = Lexicon("food", {"warm": ("soup",), "cold": ("bread", "fish")})
    words = LeftOutWords("q a", "soup, bread fish", GENDER, lexicon=lexicon)
    assert words.pairs[-4:-2] == [("q a", "bread fish"), ("q a", "soup,")]
    explanation = words.explanation(np.zeros(len(words.pairs)))
    assert [(group.name, group.words) for group in explanation.groups] == [("warm", 1), ("cold", 2)]


def test_a_ranker_behind_a_server_is_explained_by_its_scores():
    query, document = "bread", "she bakes bread"
    with served("jina") as (url, _):
        explanation = load(url).explain(query, document)
        numbers = [word.contribution for word in explanation.words]
    score_of_all = score(query, document)
    texts = ["bakes bread", "she bread", "she bakes"]
    expected = [score_of_all - score(query, text) for text in texts]
    assert numbers[0] is None
    assert numbers[1:] == pytest.approx(expected)
    assert explanation.renditions.contribution == pytest.approx(-0.5)


def test_a_ranker_with_senses_is_explained_by_words_where_that_is_asked_or_needed(
    make_backpack, pair_tokenizer
):
    reranker = PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))
    query, document = "doctor in the ward", "he saw his mother"
    assert not reranker.explain(query, document).by_words
    explanation = reranker.explain(query, document, by="words")
    score_of_all, without = reranker.predict([(query, document), (query, "saw his mother")]).astype(
        float
    )
    he = next(word for word in explanation.words if word.text == "he")
    assert he.contribution == pytest.approx(score_of_all - without, abs=1e-5)
    assert explanation.senses == ()
    renditions = reranker.at(0.5, "renditions")
    assert renditions.explain(query, document).by_words
    with pytest.raises(ValueError, match=r"reads several texts .* explain by words"):
        renditions.explain(query, document, by="senses")
    with pytest.raises(ValueError, match="by=tokens: use one of senses, words"):
        reranker.explain(query, document, by="tokens")


def test_of_a_document_in_chunks_all_words_are_read_and_the_best_chunk_counts(
    classifier_and_scores,
):
    reranker, scores = classifier_and_scores
    tokenizer = reranker.scorer.pair_tokenizer
    room = tokenizer.room(tokenizer.encode_query(QUERY))
    words = ("he saw bread and fish " * 8).split()[: 2 * room]

    def best(text: list[str]) -> float:
        """The score of the best chunk; every word is one token."""
        chunks = [text[:room], text[-room:]]
        return float(max(scores([(QUERY, " ".join(chunk)) for chunk in chunks])))

    explanation = reranker.reading("chunks").explain(QUERY, " ".join(words))
    assert explanation.score == pytest.approx(best(words), abs=1e-5)
    document_words = [word for word in explanation.words if word.segment == "document"]
    assert [word.text for word in document_words] == words
    for place in (0, room - 1, 2 * room - 1):
        without = best(words[:place] + words[place + 1 :])
        assert document_words[place].contribution == pytest.approx(best(words) - without, abs=2e-5)


@pytest.mark.parametrize(
    "lexicon", [None, Lexicon("food", {"warm": ("soup",), "cold": ("bread",)})]
)
def test_words_of_a_lexicon_are_left_out_together(classifier_and_scores, lexicon):
    reranker, _ = classifier_and_scores
    groups = reranker.explain(QUERY, DOCUMENT, lexicon, by="words").groups
    assert [group.name for group in groups] == (["cold"] if lexicon else ["female", "male"])


def test_a_document_of_one_chunk_is_told_from_one_of_several(pair_tokenizer):
    chunks = LongDocuments("chunks")
    # 48 tokens hold the query and six words, and not 200.
    assert fits_one_chunk(pair_tokenizer, QUERY, "soup and bread for the doctor", chunks)
    assert not fits_one_chunk(pair_tokenizer, QUERY, "bread " * 200, chunks)
    assert fits_one_chunk(pair_tokenizer, QUERY, "bread " * 200), "what is cut is one chunk"


def test_changes_of_words_groups_and_renditions_by_hand():
    words = LeftOutWords("soup", "She cooks.", GENDER)
    # The pair; without "She"; without "cooks."; without the words of women; both renditions.
    after = [3.0, 2.5, 0.5, 2.5, 3.0, 2.0]
    before = [5.0, 4.0, 1.0, 3.5, 5.0, 4.5]
    explanation = words.explanation(after, before)
    rows = [(word.text, word.space, word.change) for word in explanation.words]
    assert rows == [("soup", False, None), ("She", False, 0.5 - 1.0), ("cooks.", True, 2.5 - 4.0)]
    (women,) = explanation.groups
    assert (women.contribution, women.change) == (0.5, 0.5 - 1.5)
    assert (explanation.renditions.contribution, explanation.renditions.change) == (0.5, 0.5 - 0.25)
    assert words.explanation(after).groups[0].change is None


@pytest.mark.parametrize(
    ("at_most", "document"),
    [
        (4, ["she", "he", "a b c d e f g h i j"]),  # two listed words are half of four
        (3, ["she he a b c d", "e f g h i j"]),
    ],
)
def test_listed_words_stand_alone_up_to_half_of_the_texts(at_most, document):
    words = LeftOutWords("soup", "she he a b c d e f g h i j", GENDER, at_most=at_most)
    texts = [word.text for word in words.explanation(np.zeros(len(words.pairs))).words]
    assert texts == ["soup", *document]
