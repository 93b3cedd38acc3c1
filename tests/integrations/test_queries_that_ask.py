"""A query that asks for a group keeps its scores at every alpha at the doors that are far from the
reading plan: servers, other libraries, explanations, exported graphs, evaluate.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribute_sense_examples import EXAMPLES, GENDER, attribute, new_ranker
from in_process import evaluated, inline
from rerank_servers import running
from transformers import AutoModelForSequenceClassification
from workplace import Workplace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.data.packing import PackedBatch
from backpack_rank.data.trec import read_run
from backpack_rank.integrations.onnx_graph import RankerGraph
from backpack_rank.models.attribute_senses import add_attribute_senses
from backpack_rank.senses.erase import Erase
from backpack_rank.senses.renditions import MeanOfRenditions
from backpack_rank.serving.kinds import served

ASKS = "which woman can rewire a house?"
NEEDS = "who can help in early pregnancy?"
NEUTRAL = "who can rewire a house?"
TEXTS = ["He is an electrician; he can.", "She sells flowers to her father.", "Bread and soup."]
RANKERS = {
    "backpack": ("lowest_senses", "uniform", "soft", "paired_tokens", "renditions"),
    "cross_encoder": ("paired_tokens", "renditions"),
}
CASES = [(ranker, policy) for ranker, policies in RANKERS.items() for policy in policies]


def pairs_of(query: str) -> list[tuple[str, str]]:
    return [(query, text) for text in TEXTS]


@pytest.mark.slow
@pytest.mark.parametrize(("ranker", "policy"), CASES)
def test_a_server_and_its_explanations(saved, ranker, policy) -> None:
    _, reranker = saved(ranker)
    with running({"mine": lambda: served("mine", reranker)}) as server:
        for query in (ASKS, NEEDS, NEUTRAL):
            unchanged = reranker.predict(pairs_of(query))
            body = {"query": query, "documents": TEXTS, "policy": policy, "alpha": 0.0}
            results = server.rerank(**body, raw_scores=True).json()["results"]
            scores = np.zeros(len(TEXTS))
            for row in results:
                scores[row["index"]] = row["relevance_score"]
            body["documents"] = TEXTS[:1]
            explained = server.rerank("/demo/explain", **body).json()
            # What is explained is what is scored.
            assert explained["score"] == pytest.approx(scores[0], abs=1e-5)
            if query == NEUTRAL:
                assert np.abs(scores - unchanged).max() > 1e-4
            else:
                assert scores == pytest.approx(unchanged, abs=1e-5)


@pytest.mark.parametrize(("ranker", "policy"), CASES)
def test_an_explanation_in_python(saved, ranker, policy) -> None:
    _, reranker = saved(ranker)
    fair = reranker.with_policy(policy, 0.0)
    for query in (ASKS, NEEDS):
        unchanged = reranker.explain(query, TEXTS[0])
        explanation = fair.explain(query, TEXTS[0])
        # All of it: words that are left out of a query do not bring the dial back.
        assert explanation.score == unchanged.score
        assert explanation.words == unchanged.words
    turned = fair.explain(NEUTRAL, TEXTS[0])
    assert turned.score == pytest.approx(fair.predict(pairs_of(NEUTRAL))[0], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("ranker", "policy"), [case for case in CASES if case[1] != "renditions"])
def test_a_model_of_transformers_that_takes_tokens(saved, ranker, policy) -> None:
    folder, reranker = saved(ranker)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    # One batch with queries of both kinds. The small tokenizer of the cross-encoder does not know
    # the word of the need, which nobody can read back from its tokens.
    asking = ASKS if ranker == "cross_encoder" else NEEDS
    pairs = [*pairs_of(ASKS), *pairs_of(NEUTRAL), *pairs_of(asking)]
    sequences = []
    for query, text in pairs:
        sequences += reranker.local_scorer.pair_tokenizer.pairs(query, [text])
    ids = torch.zeros((len(pairs), max(map(len, sequences))), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.from_numpy(sequence)
        mask[row, : len(sequence)] = 1
    with torch.inference_mode():
        logits = model(ids, mask, alpha=0.0, policy=policy).logits[:, 0].numpy()
    unchanged = reranker.predict(pairs)
    moved = np.abs(logits - unchanged)
    assert moved[:3].max() < 1e-5
    assert moved[6:].max() < 1e-5
    assert moved[3:6].max() > 1e-4
    assert logits == pytest.approx(reranker.predict(pairs, alpha=0.0, policy=policy), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("ranker", RANKERS)
def test_erasure_and_names(saved, ranker) -> None:
    _, reranker = saved(ranker)
    gender = Attribute.named("gender")
    documents = {}
    for number, word in enumerate(["he", "she"] * 9):
        documents[f"d{number}"] = f"{word} saw {number} flowers and a house"
    collection = Collection("dev", MemoryStore(documents), {"q": NEUTRAL}, {})
    fitted_on = Pairs.from_run({"q": dict.fromkeys(documents, 0.0)}, collection)
    erase = Erase(gender).fitted(reranker, fitted_on)
    for policy in (erase, MeanOfRenditions(gender, names=True)):
        for query in (ASKS, NEEDS):
            unchanged = reranker.predict(pairs_of(query))
            turned = reranker.predict(pairs_of(query), policy=policy, alpha=0.0)
            assert turned == pytest.approx(unchanged, abs=1e-5)
        moved = reranker.predict(pairs_of(NEUTRAL), policy=policy, alpha=0.0)
        assert np.abs(moved - reranker.predict(pairs_of(NEUTRAL))).max() > 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_exported_graph_with_attribute_senses(name, tmp_path) -> None:
    """The graph has no word list to read: it finds such queries in their tokens."""
    make, kind = EXAMPLES[name]
    tokenizer = make()
    ranker, pair_tokenizer = new_ranker(tokenizer, kind)
    gender = attribute(tmp_path, "gender", GENDER)
    separator_id = pair_tokenizer.separator_id
    add_attribute_senses(ranker.backpack, tokenizer, gender, separator_id=separator_id)
    graph = RankerGraph(ranker, tokenizer.pad_token_id).eval()
    texts = ["she is a nurse and he cooks", "the king said: HER soup"]
    pairs = [(query, text) for query in ("who is the queen", "who is the nurse") for text in texts]
    sequences = []
    for query, text in pairs:
        sequences += pair_tokenizer.pairs(query, [text])
    shape = len(pairs), max(map(len, sequences)) + 3
    # A word that asks stands at padding, which nobody may read.
    senses = ranker.backpack.attribute_senses
    ids = torch.full(shape, int(senses.asking[0, 0]), dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.from_numpy(sequence)
        mask[row, : len(sequence)] = 1
    batch = PackedBatch.from_sequences(sequences)
    scores = []
    for of_groups in (1.0, 0.0):
        weights = torch.ones(ranker.config.total_senses)
        weights[ranker.config.num_senses :] = of_groups
        expected = ranker(batch, sense_weights=weights).scores
        given = {"input_ids": ids, "attention_mask": mask}
        found = graph(**given, sense_weights=weights.expand(len(pairs), -1))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        scores.append(found)
    moved = (scores[0] - scores[1]).abs()
    assert moved[:2].max() < 1e-5
    assert moved[2:].min() > 1e-4


@pytest.mark.slow
def test_runs_of_evaluate(saved, tmp_path) -> None:
    folder, _ = saved("cross_encoder")
    queries = {"asks": ASKS, "needs": NEEDS, "neutral": NEUTRAL}
    documents = {f"d{number}": text for number, text in enumerate(TEXTS)}
    data = inline(queries, documents, qrels={"asks": {"d0": 1}})
    place = Workplace(tmp_path)
    runs = {}
    for alpha in (1, 0):
        into = tmp_path / f"alpha{alpha}"
        options = [f"checkpoint={folder}", "policy=paired_tokens", f"alpha={alpha}", "swap=false"]
        evaluated(place, into, *options, data=data)
        (path,) = (into / "runs").glob(f"alpha-{alpha}*")
        runs[alpha] = read_run(path)
    for query_id in ("asks", "needs"):
        assert runs[0][query_id] == pytest.approx(runs[1][query_id], abs=1e-5)
    changes = [abs(runs[0]["neutral"][doc_id] - runs[1]["neutral"][doc_id]) for doc_id in documents]
    assert max(changes) > 1e-4
