"""evaluate.py experiment=term_similarity: files, the Backpack's kinds, draws, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from in_process import configured, inline
from omegaconf import OmegaConf
from read_back import csv_rows

from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.models.loading import save_ranker
from backpack_rank.pipelines.evaluate import evaluate
from backpack_rank.position.passages.representations import document_rows
from backpack_rank.position.tables.term_similarity import TermSimilarity, eligible_terms
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings


@pytest.fixture(scope="module")
def documents(sentences):
    """Sentences in other orders of their words, so that words stand at many positions."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.permutation(sentences[number % 8].split())) for number in range(60)]
    return {f"d{number}": text for number, text in enumerate(texts)} | {"empty": ""}


@pytest.fixture
def collection(documents):
    return Collection("shuffled", MemoryStore(documents), {}, {})


@pytest.fixture
def scorer(make_backpack, pair_tokenizer):
    return Scorer(make_backpack(), pair_tokenizer, ScoringSettings(device="cpu"))


@pytest.fixture
def checkpoint(make_backpack, pair_tokenizer, tmp_path):
    save_ranker(tmp_path / "ranker", make_backpack(), pair_tokenizer)
    return tmp_path / "ranker"


def run(checkpoint, documents, folder, *options, quiet=True):
    chosen = ["experiment=term_similarity", f"checkpoint={checkpoint}", f"output={folder}"]
    config = configured("evaluate", "scoring.device=cpu", *chosen, *options)
    OmegaConf.set_struct(config, False)
    config.data = inline({"q": "soup"}, documents)
    evaluate(config, folder, quiet)


@pytest.mark.slow
def test_the_experiment_writes_figures_picture_and_configuration(
    checkpoint, documents, tmp_path, capsys
):
    folder = tmp_path / "out"
    texts = {name: text for name, text in documents.items() if text}
    run(checkpoint, texts, folder, "task.max_distance=12", "task.terms=40", quiet=False)
    report = json.loads((folder / "term_similarity.json").read_text())
    assert report["format"] == "backpack_rank term similarity 1"
    assert (report["collection"], report["documents"], report["terms"]) == ("inline", 60, 40)
    curves = {curve["representation"]: curve for curve in report["curves"]}
    assert list(curves) == ["contextual", "weights", "senses"]
    lines = csv_rows(folder / "term_similarity.csv")
    assert len(lines) == 3 * 13
    assert float(lines[5]["ats"]) == curves["contextual"]["distances"][5]["ats"]
    for ending in ("png", "svg"):
        assert (folder / f"term_similarity.{ending}").stat().st_size > 5000
    saved = OmegaConf.load(folder / "config.yaml")
    assert saved.task.max_distance == 12
    printed = capsys.readouterr().out
    assert "Term similarity on inline" in printed
    assert f"{curves['contextual']['mats']:.3f}" in printed
    assert "60 documents, read without a query; 40 of" in printed


def test_sense_vectors_know_no_position_and_contextual_vectors_do(scorer, collection):
    """MATS of sense vectors is 0 by construction: they are made from the token alone."""
    report = TermSimilarity(max_distance=12).measure(scorer, collection)
    contextual, weights, senses = report.curves
    assert abs(senses.mats) < 1e-6
    assert abs(senses.mats_within_terms) < 1e-6
    for at in senses.distances:
        assert at.ats == pytest.approx(1, abs=1e-6)
        assert at.std < 1e-3
    assert contextual.mats > 0.02
    assert weights.mats > 0.001
    assert [at.pairs for at in contextual.distances] == [at.pairs for at in senses.distances]


def test_all_terms_and_occurrences_give_every_pair(scorer, collection):
    everything = {"documents": None, "terms": None, "per_position": 60}
    task = TermSimilarity(**everything, max_distance=6, representations="senses")
    (curve,) = task.measure(scorer, collection).curves
    encoded = scorer.pair_tokenizer.encode([text for _, text in collection.documents if text])
    counts = dict.fromkeys(range(7), 0)
    for number, ids in enumerate(encoded):
        for other in encoded[number + 1 :]:
            for place, token in enumerate(ids.tolist()):
                for there in np.flatnonzero(other == token).tolist():
                    if abs(place - there) <= 6:
                        counts[abs(place - there)] += 1
    assert {at.distance: at.pairs for at in curve.distances} == counts
    assert [at.pairs_in_documents for at in curve.distances] == list(counts.values())


def test_a_seed_draws_the_same_documents_and_terms_again(scorer, collection):
    def measured(seed):
        task = TermSimilarity(documents=30, terms=20, max_distance=8, seed=seed)
        return task.measure(scorer, collection)

    report = measured(1)
    assert report == measured(1)
    assert report.documents in (29, 30)  # the empty one may be among them
    assert report.curves[0].mats != measured(2).curves[0].mats


def test_documents_may_stand_behind_a_query(scorer, collection):
    options = {"max_distance": 8, "representations": ["contextual"]}
    alone = TermSimilarity(**options).measure(scorer, collection)
    report = TermSimilarity(**options, query="fish soup").measure(scorer, collection)
    assert report.query == "fish soup"
    assert report.curves[0].mats != alone.curves[0].mats
    assert report.curves[0].distances[3].pairs == alone.curves[0].distances[3].pairs


def test_special_tokens_and_terms_of_one_document_are_not_eligible(pair_tokenizer, tokenizer):
    documents = pair_tokenizer.encode(["soup soup", "fish bread", "bread"])
    first, second, third = [set(document.tolist()) for document in documents]
    for number in (1, 2):
        with_end = np.append(documents[number], tokenizer.eos_token_id)
        documents[number] = with_end.astype(np.int32)
    terms = eligible_terms(pair_tokenizer, document_rows(pair_tokenizer, documents))
    assert tokenizer.eos_token_id not in terms
    assert set(terms.tolist()) == (second & third) | (first & (second | third))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": 1}, r"task\.documents=1 must be a whole number of at least 2"),
        ({"terms": 0}, r"task\.terms=0"),
        ({"max_distance": 0.5}, r"task\.max_distance=0\.5"),
        ({"per_position": 1}, r"task\.per_position=1"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        TermSimilarity(**options)


def test_what_the_ranker_and_the_documents_cannot_give_is_refused(
    scorer, collection, make_gpt2, pair_tokenizer, tmp_path
):
    gpt2 = Scorer(make_gpt2(), pair_tokenizer, ScoringSettings(device="cpu"))
    with pytest.raises(ValueError, match=r"GPT2ForRanking has no 'senses'; it has contextual"):
        TermSimilarity(representations=["senses"]).measure(gpt2, collection)
    message = r"task\.representations is empty; this ranker has contextual"
    with pytest.raises(ValueError, match=message):
        TermSimilarity(representations=[]).measure(gpt2, collection)
    apart = Collection("apart", MemoryStore({"a": "", "b": "soup"}), {}, {})
    with pytest.raises(ValueError, match="no term stands in two of the 1 documents"):
        TermSimilarity().measure(scorer, apart)
    with pytest.raises(ValueError, match="the query has"):
        TermSimilarity(query="soup " * 60).measure(scorer, collection)
    with pytest.raises(FileNotFoundError, match="checkpoint="):
        run(tmp_path / "nowhere", {"a": "soup"}, tmp_path / "out")


def test_long_documents_are_cut_as_the_ranker_cuts_them(scorer, collection, tokenizer):
    short = Scorer(scorer.ranker, PairTokenizer(tokenizer, 12), ScoringSettings(device="cpu"))
    report = TermSimilarity(max_distance=20, representations=["senses"]).measure(short, collection)
    (curve,) = report.curves
    assert curve.distances[9].pairs > 0  # 12 tokens, less separator and end
    assert all(at.pairs == 0 for at in curve.distances[10:])
