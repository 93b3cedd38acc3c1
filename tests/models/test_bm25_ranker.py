"""BM25 as a ranker: the scores of bm25s and of a loop over words, on the counted documents and on others."""

from __future__ import annotations

import itertools
import math
import re

import bm25s
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.first_stage import Bm25
from backpack_rank.data.pairs import Pairs
from backpack_rank.data.vocabulary import WordPairEncoder, WordVocabulary
from backpack_rank.models.bm25_ranker import Bm25Config, Bm25ForRanking, bm25
from backpack_rank.models.build import load_ranker, pair_encoder, save_ranker
from backpack_rank.scoring import Scorer, ScoringSettings

DOCUMENTS = {
    "d0": "The cat sat on the mat; the cat slept.",
    "d1": "A dog and a cat: vitamin d for both!",
    "d2": "",
    "d3": "Ärzte im Krankenhaus, 3½ m² groß",
    "d4": "the the the the",
    "d5": "...",
    "d6": "Dogs sleep on mats, cats on sofas, and the doctor in her office on the third floor.",
}
QUERIES = {"q1": "the cat", "q2": "vitamin d", "q3": "cat cat dog", "q4": "m² groß ärzte", "q5": "zebra", "q6": "???"}
EXACT = {"min_count": 1, "max_words": None, "buckets": 10**9}


def counted(documents, k1=0.9, b=0.4, **options):
    texts = list(documents.values())
    tokenizer = WordVocabulary(**{**EXACT, **options}).build(texts)
    ranker = bm25(tokenizer, k1=k1, b=b)
    encoder = pair_encoder(tokenizer, ranker, 10**6)
    ranker.count(texts, encoder)
    return ranker.eval(), encoder


def by_hand(query, document, documents, k1, b):
    """One pair at a time, word by word."""
    split = [re.findall(r"(?u)\b\w+\b", text.lower()) for text in documents]
    mean = sum(map(len, split)) / len(split)
    own = re.findall(r"(?u)\b\w+\b", document.lower())
    score = 0.0
    for word in re.findall(r"(?u)\b\w+\b", query.lower()):
        frequency = sum(word in other for other in split)
        idf = math.log(1 + (len(split) - frequency + 0.5) / (frequency + 0.5))
        times = own.count(word)
        if times:
            score += idf * times / (times + k1 * (1 - b + b * len(own) / mean))
    return score


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75), (0.0, 0.4), (2.0, 0.0), (0.5, 1.0)])
def test_scores_are_those_of_a_loop_over_words(k1, b):
    ranker, encoder = counted(DOCUMENTS, k1, b)
    scorer = Scorer(ranker, encoder)
    # Documents that were counted and documents that were not, with words that nobody counted.
    others = ["a zebra and a zebra", "the cat", "vitamin", "", "Zebra zebra Cat in a long long document about the law"]
    texts = [*DOCUMENTS.values(), *others]
    for query in [*QUERIES.values(), "the zebra", "Law"]:
        expected = [by_hand(query, text, list(DOCUMENTS.values()), k1, b) for text in texts]
        np.testing.assert_allclose(scorer.score(query, texts), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75)])
def test_scores_are_those_of_bm25s_on_the_same_corpus(k1, b):
    ranker, encoder = counted(DOCUMENTS, k1, b)
    library = bm25s.BM25(k1=k1, b=b, method="lucene")
    options = {"lower": True, "token_pattern": r"(?u)\b\w+\b", "stopwords": [], "show_progress": False}
    library.index(bm25s.tokenize(list(DOCUMENTS.values()), **options), create_empty_token=False, show_progress=False)
    for query in QUERIES.values():
        words = bm25s.tokenize([query], return_ids=False, **options)[0]
        known = [word for word in words if word in library.vocab_dict]
        expected = library.get_scores(known) if known else np.zeros(len(DOCUMENTS))
        found = Scorer(ranker, encoder).score(query, list(DOCUMENTS.values()))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_first_stages_scores_are_the_rankers():
    collection = Collection("small", MemoryStore(DOCUMENTS), QUERIES, {})
    ranker, encoder = counted(DOCUMENTS)
    first = Bm25(cache=False).candidates(collection)
    assert [len(first[query_id]) for query_id in QUERIES] == [4, 1, 2, 1, 0, 0]
    found = Scorer(ranker, encoder).rank(first, collection)
    for query_id, scores in found.items():
        assert scores == pytest.approx(first[query_id], rel=1e-5)


def test_real_passages_score_as_in_the_first_stage(real_data):
    from backpack_rank.data.sources.beir import load_beir

    loaded = load_beir(folder=str(real_data / "squad"), split="test")
    collection = loaded.only(list(loaded.queries)[:20])
    first = Bm25(cache=False).candidates(collection)
    texts = [text for _, text in collection.documents]
    tokenizer = WordVocabulary(**EXACT).build(texts)
    ranker = bm25(tokenizer)
    encoder = pair_encoder(tokenizer, ranker, 10**6)
    ranker.count(texts, encoder)
    pairs = Pairs.from_run(first, collection)
    assert len(pairs) > 500
    expected = [score for scores in first.values() for score in scores.values()]
    np.testing.assert_allclose(Scorer(ranker, encoder).scores(pairs), expected, rtol=2e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=9).map(" ".join), min_size=1, max_size=6), st.data())
def test_batches_score_as_single_pairs_do(texts, data):
    ranker, encoder = counted({"first": "a b c a", "second": "a d"})
    query = data.draw(st.lists(st.sampled_from("abxy"), min_size=1, max_size=4).map(" ".join))
    together = Scorer(ranker, encoder).score(query, texts)
    expected = [by_hand(query, text, ["a b c a", "a d"], 0.9, 0.4) for text in texts]
    np.testing.assert_allclose(together, expected, rtol=1e-6)


def test_a_saved_folder_holds_the_counts_and_gives_identical_scores(tmp_path):
    ranker, encoder = counted(DOCUMENTS, 1.2, 0.3)
    save_ranker(tmp_path / "ranker", ranker, encoder)
    again, other = load_ranker(tmp_path / "ranker")
    assert isinstance(again, Bm25ForRanking)
    assert isinstance(other, WordPairEncoder)
    assert (again.config.k1, again.config.b, other.max_length) == (1.2, 0.3, 10**6)
    assert torch.equal(again.document_frequencies, ranker.document_frequencies)
    assert again.document_frequencies.dtype == torch.int64
    texts = [*DOCUMENTS.values(), "a zebra", "vitamin zebra"]
    for query in [*QUERIES.values(), "zebra vitamin"]:
        assert np.array_equal(Scorer(again, other).score(query, texts), Scorer(ranker, encoder).score(query, texts))


def test_no_number_format_touches_the_scores():
    ranker, encoder = counted(DOCUMENTS)
    plain = Scorer(ranker, encoder).score("the cat", list(DOCUMENTS.values()))
    for dtype in ("bfloat16", "float16"):
        scorer = Scorer(ranker, encoder, ScoringSettings(dtype=dtype))
        assert np.array_equal(scorer.score("the cat", list(DOCUMENTS.values())), plain)


def test_counting_again_starts_anew_and_counts_documents_not_occurrences():
    ranker, encoder = counted(DOCUMENTS)
    for _ in range(2):
        ranker.count(["the cat", "the the dog"], encoder)
        ids = encoder.encode(["the cat dog mat"])[0]
        assert ranker.document_frequencies[ids].tolist() == [2, 1, 1, 0]
        assert ranker.totals.tolist() == [2, 5]


def test_many_documents_are_counted_as_few_are():
    words = ["alpha", "beta", "gamma"]
    texts = [" ".join(itertools.islice(itertools.cycle(words), 1 + n % 3)) for n in range(2500)]
    tokenizer = WordVocabulary(**EXACT).build(texts)
    ranker = bm25(tokenizer)
    encoder = pair_encoder(tokenizer, ranker, 100)
    ranker.count(iter(texts), encoder)
    ids = encoder.encode(["alpha beta gamma"])[0]
    assert ranker.document_frequencies[ids].tolist() == [2500, 1666, 833]
    assert ranker.totals.tolist() == [2500, 2500 + 1666 + 833]


def test_words_outside_the_counted_documents_match_themselves_or_are_dropped():
    ranker, encoder = counted(DOCUMENTS)
    rare, other, none = Scorer(ranker, encoder).score("zebra", ["zebra", "giraffe", ""])
    assert rare > 0
    assert other == none == 0
    ranker, encoder = counted(DOCUMENTS, unknown="drop")
    assert Scorer(ranker, encoder).score("zebra cat", ["zebra", "zebra cat"]).tolist() == pytest.approx(
        [0, by_hand("cat", "cat", list(DOCUMENTS.values()), 0.9, 0.4)]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k1": -1.0}, "k1=-1.0 must be a number of at least 0"),
        ({"k1": math.inf}, "k1=inf must be"),
        ({"b": 1.5}, "b=1.5 must be between 0 and 1"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Bm25Config(**options)


def test_what_it_cannot_do_is_said(tokenizer):
    with pytest.raises(ValueError, match="is no vocabulary of whole words"):
        bm25(tokenizer)
    words = WordVocabulary(**EXACT).build(["one two"])
    ranker = bm25(words)
    encoder = pair_encoder(words, ranker, 10)
    with pytest.raises(ValueError, match="this BM25 has counted no documents"):
        Scorer(ranker, encoder).score("one", ["one"])
    with pytest.raises(ValueError, match="none of the 2 documents has a word that could be counted"):
        ranker.count(["", "..."], encoder)
    with pytest.raises(ValueError, match="the vocabulary lacks a word of the document 'two three'"):
        ranker.count(["one", "two three"], encoder)
    ranker.count(["one"], encoder)
    with pytest.raises(ValueError, match="the query is empty"):
        Scorer(ranker, encoder).score(" ", ["one"])
    with pytest.raises(ValueError, match="BM25 has no sense vectors"):
        ranker(None, return_senses=True)
