"""The certificate: what a policy promises for each candidate, and whether scores keep it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attribute_sense_examples import EXAMPLES, GENDER, attribute, new_example
from in_process import configured

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.wording_variants import VariantItem, WordingVariants
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.pipelines.certificate import (
    COVERED,
    CUT,
    NAME,
    NAME_OF_QUERY,
    NO_WORDS,
    QUERY,
    UNLIKE,
    Certificate,
    Part,
    certify,
    check_certificate,
)
from backpack_rank.pipelines.evaluate import evaluate, task_of
from backpack_rank.pipelines.evaluation_data import EvaluationData
from backpack_rank.pipelines.evaluation_notes import group_query_notes, rendition_notes
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.senses.policies import LowestSenses, PairedTokens
from backpack_rank.senses.renditions import MeanOfRenditions

DOCUMENTS = {
    "plain": "a bridge of steel",
    "she": "she cooks soup, said her husband",
    "name": "Mary cooks soup for him",
    "two": "the soprano and her stepmother",
}
TEXTS = Collection(
    "tiny/test", MemoryStore(DOCUMENTS), {"q": "soup for guests", "his": "his soup"}, {}
)
RUN = {"q": dict.fromkeys(DOCUMENTS, 1.0), "his": {"she": 1.0, "plain": 0.5}}


@pytest.fixture
def reranker(make_backpack, pair_tokenizer) -> PointwiseReranker:
    return PointwiseReranker(Scorer(make_backpack(), pair_tokenizer))


def kinds(folder: Path) -> dict[tuple[str, str], str]:
    with open(folder / "certificate.csv", newline="", encoding="utf-8") as handle:
        return {(row["query"], row["document"]): row["kind"] for row in csv.DictReader(handle)}


def test_every_candidate_is_covered_or_it_says_why_not(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    certificate = certify(reranker.with_policy("renditions", 0), TEXTS, RUN, tmp_path)
    assert kinds(tmp_path) == {
        ("q", "plain"): NO_WORDS,
        ("q", "she"): COVERED,
        ("q", "name"): NAME,
        ("q", "two"): COVERED,
        ("his", "she"): QUERY,
        ("his", "plain"): NO_WORDS,
    }
    assert certificate.kept
    by_kind = {part.kind: part for part in certificate.parts}
    assert (by_kind[COVERED].candidates, by_kind[NO_WORDS].candidates) == (2, 2)
    assert by_kind[COVERED].largest is not None
    assert by_kind[COVERED].largest < 1e-6
    assert by_kind[QUERY].largest is not None
    assert by_kind[QUERY].largest > 1e-5, "a query with a class word is scored as it is"
    written = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert (written["certified"], written["says"]) == (
        True,
        "Invariance to the listed words, not fairness.",
    )
    assert "2 of 4 candidates with class words are covered" in certificate.sentences[0]


def test_first_names_are_covered_but_for_those_of_the_query(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    documents = {
        "name": "Mary cooks soup for him",
        "alone": "soup as Patricia cooks it",
        "place": "soup at James Madison University",
        "both": "Robert and James cook soup",
    }
    texts = Collection(
        "tiny/test",
        MemoryStore(documents),
        {"q": "soup for guests", "mary": "who was mary wollstonecraft"},
        {},
    )
    run = {query_id: dict.fromkeys(documents, 1.0) for query_id in ("q", "mary")}
    policy = MeanOfRenditions(Attribute.named("gender"), names=True)
    certificate = certify(reranker.with_policy(policy, 0), texts, run, tmp_path)
    assert kinds(tmp_path) == {
        ("q", "name"): COVERED,
        ("q", "alone"): COVERED,
        ("q", "place"): NO_WORDS,
        ("q", "both"): COVERED,
        ("mary", "name"): NAME_OF_QUERY,
        ("mary", "alone"): COVERED,
        ("mary", "place"): NO_WORDS,
        ("mary", "both"): NAME_OF_QUERY,
    }
    assert certificate.kept
    assert "each name and its partner" in " ".join(certificate.sentences)
    written = json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert "each name and its partner" in written["says"]


def test_a_query_that_takes_the_rendition_is_covered_with_its_documents(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    run = {"his": {"she": 1.0, "he": 0.5}}
    texts = Collection(
        "tiny/test", MemoryStore({**DOCUMENTS, "he": "he cooks soup"}), TEXTS.queries, {}
    )
    for policy, covered in (
        (MeanOfRenditions(reranker.attribute, queries="all"), 2),
        (PairedTokens.of(reranker.attribute, queries="all"), 1),
    ):
        certificate = certify(reranker.with_policy(policy, 0), texts, run, tmp_path)
        assert kinds(tmp_path)["his", "he"] == COVERED
        assert f"{covered} of 2" in certificate.sentences[0]
        assert certificate.kept
        assert {part.kind: part.largest for part in certificate.parts}[COVERED] == 0, "bit for bit"
    for name in ("paired_tokens", "renditions"):
        certify(reranker.with_policy(name, 0), texts, run, tmp_path)
        assert kinds(tmp_path)["his", "he"] == QUERY


def test_where_nothing_is_covered_nothing_is_certified(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    certificate = certify(
        reranker.with_policy("renditions", 0), TEXTS, {"q": {"plain": 1.0, "name": 0.5}}, tmp_path
    )
    assert certificate.kept is None
    assert "nothing to certify. 0 of 1" in certificate.sentences[0]
    assert [line.split(":")[0].strip() for line in certificate.sentences[1:]] == [NO_WORDS, NAME], (
        "kinds that occur"
    )
    assert {part.kind: part.largest for part in certificate.parts}[COVERED] is None


def test_paired_tokens_have_their_own_conditions(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    certificate = certify(reranker.with_policy("paired_tokens", 0), TEXTS, RUN, tmp_path)
    assert kinds(tmp_path)["q", "two"] == UNLIKE, (
        "'stepmother' and 'stepfather' are several tokens here"
    )
    by_kind = {part.kind: part for part in certificate.parts}
    assert by_kind[UNLIKE].largest is not None
    assert by_kind[UNLIKE].largest > 1e-5
    assert certificate.kept is None, "nothing is covered here"


class OtherBitsInBatches(PointwiseReranker):
    """Its scores of longer texts end in other bits where texts are scored together, as batches of
    fp32 may.
    """

    def predict(self, pairs, **options):
        lengths = np.array([len(document) for _, document in pairs], dtype=np.float32)
        return super().predict(pairs, **options) + (len(pairs) > 1) * 1e-5 * lengths


def test_a_promise_is_about_texts_by_themselves_and_not_about_what_they_are_scored_with(
    reranker: PointwiseReranker, tmp_path: Path
) -> None:
    hook = reranker.with_policy("renditions", 0).hook
    certificate = certify(OtherBitsInBatches(reranker.scorer, hook), TEXTS, RUN, tmp_path)
    assert {part.kind: part.largest for part in certificate.parts}[COVERED] == 0
    assert certificate.kept


def test_human_pairs_are_counted_and_scored(reranker: PointwiseReranker, tmp_path: Path) -> None:
    sentences = tmp_path / "pairs.jsonl"
    sentences.write_text(
        '{"masculine": "he cooks soup", "feminine": "she cooks soup"}\n'
        '{"male": "the king cooks", "female": "the cook cooks"}\n',
        encoding="utf-8",
    )
    items = {
        "q": (
            VariantItem("relevant", 1, {"male": "name", "female": "she"}),
            VariantItem("other", 0, {}),
        )
    }
    wordings = WordingVariants("worded", items, {}, {})
    certificate = certify(
        reranker.with_policy("renditions", 0),
        TEXTS,
        RUN,
        tmp_path,
        variants=(wordings, TEXTS),
        files=[sentences],
    )
    worded, read = certificate.human
    assert (worded.source, worded.pairs, worded.alike, worded.largest_alike) == (
        "worded",
        1,
        0,
        None,
    )
    assert (read.pairs, read.alike) == (2, 1)
    assert read.largest_alike is not None
    assert read.largest_alike < 1e-6
    scores = reranker.with_policy("renditions", 0).predict(
        [("the cooks", "the king cooks"), ("the cooks", "the cook cooks")]
    )
    assert read.mean_others == pytest.approx(abs(float(np.diff(scores)[0])), abs=1e-6)
    sentences.write_text('{"masculine": "he cooks soup"}\n', encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"pairs\.jsonl, line 1: two wordings are expected, under masculine and"
    ):
        check_certificate(reranker.with_policy("renditions", 0), [sentences])
    with pytest.raises(
        FileNotFoundError, match=r"certificate_pairs: there is no file .*none\.jsonl"
    ):
        check_certificate(reranker.with_policy("renditions", 0), [tmp_path / "none.jsonl"])


@pytest.mark.parametrize(
    ("given", "read"),
    [("a.jsonl", ("a.jsonl",)), ("[a.jsonl,b.jsonl]", ("a.jsonl", "b.jsonl")), ("null", ())],
)
def test_files_of_pairs_are_one_or_a_list(given: str, read: tuple[str, ...]) -> None:
    config = configured(
        "evaluate", "data=synthetic", "certificate=true", f"certificate_pairs={given}"
    )
    assert task_of(config).pair_files == read


def test_what_promises_nothing_is_refused(reranker: PointwiseReranker, tmp_path: Path) -> None:
    for controlled, message in (
        (reranker.with_policy("renditions", 0.5), "is about alpha=0.*not alpha=0.5"),
        (reranker.with_policy(LowestSenses(), 0), "promises nothing about single texts"),
        (
            reranker.with_policy(PairedTokens.of(reranker.attribute, scope="senses"), 0),
            r"promises nothing.*without policy\.scope",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            certify(controlled, TEXTS, RUN, tmp_path)
        with pytest.raises(ValueError, match=message):
            check_certificate(controlled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["run=[a.trec]", "alpha=1"],
            r"certificate=true does nothing to run=\.\.\.: leave one of them out",
        ),
        (
            ["recalibrate.run=a.trec", "alpha=0"],
            r"recalibrate\.run=\.\.\. and certificate=true do not go together",
        ),
        (
            ["explain.query=a", "explain.document=b", "alpha=0"],
            r"certificate=true does nothing to explain\.\*",
        ),
        (["alpha=auto", "budget='nDCG@10 loss<=1%'"], "alpha=auto chooses another: give alpha=0"),
    ],
)
def test_options_that_a_certificate_would_ignore_are_refused(
    options: list[str], message: str, tmp_path: Path
) -> None:
    config = configured(
        "evaluate", "data=synthetic", "policy=renditions", "certificate=true", *options
    )
    with pytest.raises(ValueError, match=message):
        evaluate(config, tmp_path)


def test_other_number_formats_are_measured_and_not_certified(
    make_backpack, pair_tokenizer, tmp_path: Path
) -> None:
    reranker = PointwiseReranker(
        Scorer(make_backpack(), pair_tokenizer, ScoringSettings(dtype="bfloat16"))
    )
    certificate = certify(reranker.with_policy("renditions", 0), TEXTS, RUN, tmp_path)
    assert certificate.kept is None
    assert "measured in bfloat16 on cpu, not certified" in certificate.sentences[0]


def test_a_promise_that_is_not_kept_is_said() -> None:
    parts = (Part(NO_WORDS, 3, None), Part(COVERED, 2, 1e-3))
    broken = Certificate("renditions_keep", "Backpack", "dl19", "float32 on cpu", parts)
    assert broken.kept is False
    assert "NOT KEPT" in broken.sentences[0]


def test_equal_scores_may_differ_by_a_millionth_of_the_largest(
    make_backpack, pair_tokenizer, tmp_path: Path
) -> None:
    ranker = make_backpack()
    with torch.no_grad():
        ranker.head.out.weight.mul_(1000)
    reranker = PointwiseReranker(Scorer(ranker, pair_tokenizer)).with_policy("renditions", 0)
    certificate = certify(reranker, TEXTS, RUN, tmp_path)
    scores = reranker.rerank(RUN, TEXTS)
    largest = max(abs(score) for of_query in scores.values() for score in of_query.values())
    assert largest > 10
    # Scores of candidates without class words do not count.
    assert 1e-5 < certificate.allowed <= 1.0001e-6 * largest


def test_queries_that_keep_their_scores_are_named(reranker) -> None:
    texts = Collection("t/test", MemoryStore({"d": "a road"}), {"q": "soup", "w": "her soup"}, {})
    data = EvaluationData(texts, texts, "gender", False, "BM25", {}, {})
    (note,) = group_query_notes(reranker.with_policy("renditions", 0.5), data)
    assert note == "1 of 2 queries ask for a group and keep their scores of alpha=1 (w)"
    assert group_query_notes(reranker.with_policy("renditions", 1), data) == []


def test_what_renditions_cost_is_said() -> None:
    data = EvaluationData(
        test=TEXTS,
        bias=TEXTS,
        neutral_to="gender",
        separate=False,
        stage="BM25",
        candidates=RUN,
        bias_candidates=RUN,
    )
    policy = MeanOfRenditions(Attribute.named("gender"))
    # Of six candidates three have class words and a neutral query; one of their two renditions is
    # the text itself.
    (note,) = rendition_notes(policy, data)
    assert note.startswith(
        "Renditions: 3 of 6 candidates have class words, 1 of them of several groups; 1.50 times"
    )
    (merged,) = rendition_notes(MeanOfRenditions(Attribute.named("gender"), "merge"), data)
    assert "3 of 6 candidates have class words, 1 of them of several groups; 1.67 times" in merged
    stays, _ = rendition_notes(MeanOfRenditions(Attribute.named("ethnicity")), data)
    assert stays == "Renditions: classes that lack a group stay as they are: africa (hispanic)"
    assert rendition_notes(LowestSenses(), data) == []
    (read,) = rendition_notes(
        policy, data, cut=lambda text: text[:8]
    )  # of the soprano her stepmother is cut off
    assert "candidates have class words, 0 of them of several groups" in read


@pytest.mark.parametrize("kind", ["word pieces, BERT", "byte-level, GPT-2"])
def test_wordings_that_are_cut_at_different_places_are_counted_as_such(
    tmp_path: Path, kind: str
) -> None:
    make_tokenizer, backbone = EXAMPLES[kind]
    tokenizer = make_tokenizer()
    gender = attribute(tmp_path, "gender", GENDER)
    example = new_example(tokenizer, backbone, [(gender, GENDER)])
    lengths = [len(tokenizer(f" {word}")["input_ids"]) for word in ("actor", "actress")]
    assert lengths[0] != lengths[1], "the two wordings have other numbers of tokens"
    documents = {"short": "the actor cooks soup", "long": "the actor cooks soup here " * 30}
    texts = Collection("tiny/test", MemoryStore(documents), {"q": "who cooks"}, {})
    scorer = Scorer(example.ranker, example.pair_tokenizer)
    at_zero = PointwiseReranker(scorer, attribute=gender).with_policy("lowest_senses", 0)
    certificate = certify(at_zero, texts, {"q": dict.fromkeys(documents, 1.0)}, tmp_path)
    assert kinds(tmp_path) == {("q", "short"): COVERED, ("q", "long"): CUT}
    largest = {part.kind: part.largest for part in certificate.parts}
    assert largest[COVERED] < 1e-6
    assert largest[CUT] > 1e-5
