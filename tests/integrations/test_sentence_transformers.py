"""``CrossEncoder`` of sentence-transformers gives the scores of a saved ranker, and turns its dial."""

from __future__ import annotations

import subprocess
import sys

import foreign_rankers
import numpy as np
import pytest
from saved_rankers import PAIRS

import backpack_rank
from backpack_rank.senses.policies import Policy, PolicyContext
from backpack_rank.senses.views import View

sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6")
pytest.importorskip("backpack_rank.integrations.sentence_transformers")
pytestmark = pytest.mark.packaging

FOREIGN = ("backpack", "backpack_on_bert", "backpack_on_roberta", "backpack_on_llama")
CROSS_ENCODERS = ("cross_encoder", "cross_encoder_llama")
OTHERS = ("gpt2", "dual_encoder", "knrm")


@pytest.mark.parametrize("name", [*FOREIGN, *CROSS_ENCODERS])
def test_a_folder_gives_the_scores_without_trusting_code(name: str, saved) -> None:
    folder, reranker = saved(name)
    scores = sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    np.testing.assert_allclose(scores, reranker.predict(PAIRS), atol=1e-5)


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("policy", [None, "uniform", "paired_tokens"])
def test_alpha_is_an_argument_of_predict(name: str, policy: str | None, saved) -> None:
    folder, reranker = saved(name)
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    for alpha in (0.5, 0.0):
        expected = reranker.predict(PAIRS, alpha=alpha, policy=policy)
        np.testing.assert_allclose(
            model.predict(PAIRS, alpha=alpha, policy=policy), expected, atol=1e-5
        )
    assert np.abs(expected - reranker.predict(PAIRS)).max() > 1e-3
    np.testing.assert_allclose(model.predict(PAIRS), reranker.predict(PAIRS), atol=1e-5)


class Mirrored(Policy):
    """Reads documents from their last word to their first."""

    name = "mirrored"

    def views(self, context: PolicyContext, alpha: float) -> tuple[View, ...]:
        mirrored = View(
            rewrite=lambda query, document: (query, " ".join(document.split()[::-1])),
            coefficient=1 - alpha,
        )
        return (View(coefficient=alpha), mirrored)


def test_a_policy_that_rewrites_texts_needs_the_module_of_this_package(saved) -> None:
    folder, reranker = saved("backpack")
    with pytest.raises(ValueError, match="policy mirrored rewrites texts"):
        sentence_transformers.CrossEncoder(str(folder), device="cpu").predict(
            PAIRS, alpha=0.5, policy=Mirrored()
        )
    expected = reranker.predict(PAIRS, alpha=0.5, policy=Mirrored())
    assert np.abs(expected - reranker.predict(PAIRS)).max() > 1e-3
    np.testing.assert_allclose(
        wrapped(reranker).predict(PAIRS, alpha=0.5, policy=Mirrored()), expected, atol=1e-5
    )


@pytest.mark.parametrize("name", OTHERS)
def test_other_rankers_ask_for_trust_and_then_give_their_scores(name: str, saved) -> None:
    folder, reranker = saved(name)
    with pytest.raises(ValueError, match="trust_remote_code"):
        sentence_transformers.CrossEncoder(str(folder), device="cpu")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(model.predict(PAIRS), reranker.predict(PAIRS), atol=1e-5)


def test_rank_has_the_setting_of_the_reranker_and_the_folder_can_be_saved_again(
    saved, tmp_path
) -> None:
    _, reranker = saved("backpack")
    documents = [document for _, document in PAIRS]
    fair = reranker.with_policy("paired_tokens", 0.0)
    model = wrapped(fair)
    ranked, expected = (
        model.rank("doctor", documents, top_k=3),
        fair.rank("doctor", documents, top_k=3),
    )
    assert [row["corpus_id"] for row in ranked] == [row["corpus_id"] for row in expected]
    np.testing.assert_allclose(
        [row["score"] for row in ranked], [row["score"] for row in expected], atol=1e-5
    )
    model.save_pretrained(str(tmp_path / "again"))
    again = sentence_transformers.CrossEncoder(
        str(tmp_path / "again"), device="cpu", trust_remote_code=True
    )
    np.testing.assert_allclose(again.predict(PAIRS), reranker.predict(PAIRS), atol=1e-5)


@pytest.mark.parametrize("name", ["backpack", "backpack_on_roberta", "cross_encoder_llama"])
def test_what_sentence_transformers_saves_again_loads_here(name: str, saved, tmp_path) -> None:
    folder, reranker = saved(name)
    sentence_transformers.CrossEncoder(str(folder), device="cpu").save_pretrained(
        str(tmp_path / "again")
    )
    again = backpack_rank.load(tmp_path / "again", device="cpu")
    assert (again.predict(PAIRS) == reranker.predict(PAIRS)).all()
    assert again.scorer.pair_tokenizer.fingerprint == reranker.scorer.pair_tokenizer.fingerprint
    model = sentence_transformers.CrossEncoder(str(tmp_path / "again"), device="cpu")
    np.testing.assert_allclose(model.predict(PAIRS), reranker.predict(PAIRS), atol=1e-5)


def test_the_loaded_ranker_can_be_trained(saved) -> None:
    folder, _ = saved("backpack")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu").train()
    model(model.preprocess(PAIRS))["scores"].sum().backward()
    without = [
        name
        for name, weight in model.named_parameters()
        if weight.grad is None or not weight.grad.any()
    ]
    assert without == []


@pytest.mark.parametrize(
    ("line", "library"),
    [
        (
            "import {library}, backpack_rank.integrations.sequence_classification",
            "sentence_transformers",
        ),
        ("import backpack_rank; backpack_rank.load({folder!r}); import {library}", "transformers"),
    ],
)
def test_transformers_knows_rankers_behind_one_line_in_any_order(
    line: str, library: str, saved
) -> None:
    folder, reranker = saved("backpack")
    program = (
        f"{line.format(library=library, folder=str(folder))}\n"
        "from transformers import AutoModelForSequenceClassification, AutoTokenizer\n"
        f"model = AutoModelForSequenceClassification.from_pretrained({str(folder)!r}).eval()\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})\n"
        "print(model(**tokenizer('doctor', 'he said', return_tensors='pt')).logits.item())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(
        float(reranker.predict([("doctor", "he said")])[0]), abs=1e-5
    )


def wrapped(reranker):
    from backpack_rank.integrations.sentence_transformers import cross_encoder

    return cross_encoder(reranker)


@pytest.mark.parametrize(
    "line",
    [
        "import backpack_rank.integrations.sentence_transformers, sentence_transformers",
        "import sentence_transformers, backpack_rank; backpack_rank.load({folder!r})",
    ],
)
def test_alpha_is_refused_where_the_model_would_ignore_it(line: str, tmp_path) -> None:
    model = tmp_path / "bert"
    foreign_rankers.saved(foreign_rankers.bert, model)
    code = f"""
{line.format(folder=str(model))}
from sentence_transformers import CrossEncoder
model = CrossEncoder({str(model)!r}, device="cpu")
assert len(model.predict([("a", "b")])) == 1
for options in ({{"alpha": 0}}, {{"policy": "renditions"}}, {{"alpha": 0.5, "policy": "paired_tokens"}}):
    try:
        model.predict([("a", "b")], **options)
    except ValueError as error:
        assert "has no dial and would ignore it" in str(error) and next(iter(options)) in str(error), error
    else:
        raise AssertionError(options)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
