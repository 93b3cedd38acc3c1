"""The transformer and the measures in PyTerrier's own experiments, without Java."""

from __future__ import annotations

import pandas as pd
import pytest

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection, MemoryStore, Run
from backpack_rank.evaluation.fairness import FairnessContext
from backpack_rank.evaluation.magnitudes import GroupMagnitudes
from backpack_rank.evaluation.measure_names import parse_measures

pt = pytest.importorskip("pyterrier", minversion="1.1")
pytestmark = pytest.mark.packaging

TEXTS = {
    "d1": "He is an electrician and he can rewire his house.",
    "d2": "She is an electrician and she can rewire her house.",
    "d3": "An electrician can rewire a house.",
    "d4": "The nurse said that her mother and his father are ill.",
}
QUERIES = {"q1": "who can rewire a house?", "q2": "a nurse"}
ALPHAS = (1.0, 0.75, 0.5, 0.25, 0.0)
MEASURES = ["RaB(tf)@2", "ARaB(tf)@3", "NFaiRR@3"]


@pytest.fixture
def candidates() -> pd.DataFrame:
    rows = [
        (q, text, d, TEXTS[d], 4.0 - n) for q, text in QUERIES.items() for n, d in enumerate(TEXTS)
    ]
    return pt.model.add_ranks(
        pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score"])
    )


@pytest.fixture
def qrels() -> pd.DataFrame:
    return pd.DataFrame([("q1", "d3", 1), ("q2", "d4", 2)], columns=["qid", "docno", "label"])


def topics() -> pd.DataFrame:
    return pd.DataFrame(QUERIES.items(), columns=["qid", "query"])


def transformer(*args, **options):
    from backpack_rank.integrations.pyterrier import BackpackReranker

    return BackpackReranker(*args, **options)


def test_scores_are_those_of_the_ranker_in_any_order_of_rows(saved, candidates) -> None:
    folder, reranker = saved("backpack")
    shuffled = candidates.sample(frac=1, random_state=3)
    ranked = transformer(folder, alpha=0.5, policy="paired_tokens", batch_size=3, device="cpu")(
        shuffled
    )
    pairs = list(zip(ranked["query"], ranked["text"], strict=True))
    expected = reranker.predict(pairs, alpha=0.5, policy="paired_tokens")
    assert ranked["score"].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    best = ranked.sort_values(["qid", "score"], ascending=[True, False])
    assert best["rank"].tolist() == [0, 1, 2, 3] * 2


def test_an_experiment_over_five_alphas_has_effectiveness_and_fairness(
    saved, candidates, qrels
) -> None:
    from backpack_rank.integrations.pyterrier import fairness_measures

    _, reranker = saved("backpack")
    first = pt.Transformer.from_df(candidates)
    systems = [
        first >> transformer(reranker, alpha=alpha, policy="paired_tokens") for alpha in ALPHAS
    ]
    measures = ["ndcg_cut_10", pt.measures.RR @ 10, *fairness_measures(MEASURES, candidates)]
    names = [f"alpha={alpha:g}" for alpha in ALPHAS]
    for plan in ("linear", "tree"):
        results = pt.Experiment(
            systems, topics(), qrels, measures, names=names, plan=plan
        ).set_index("name")
        assert results.index.tolist() == names
        for alpha in ALPHAS:
            expected = measured(reranker.with_policy("paired_tokens", alpha), candidates)
            row = results.loc[f"alpha={alpha:g}"]
            assert [row[name] for name in MEASURES] == pytest.approx(
                [expected[name] for name in MEASURES], abs=1e-9
            )
        assert results["ndcg_cut_10"].between(0, 1).all()


def measured(reranker, candidates: pd.DataFrame) -> dict[str, float]:
    """The same measures without PyTerrier."""
    run: Run = {q: {f"d{n}": 5.0 - n for n in range(1, 5)} for q in QUERIES}
    collection = Collection("small", MemoryStore(TEXTS), QUERIES, {})
    magnitudes = GroupMagnitudes.of(
        TEXTS, collection.documents, Attribute.named("gender").lexicon()
    )
    values = FairnessContext(magnitudes, background=run).measure(
        reranker.rerank(run, collection), parse_measures(MEASURES)
    )
    return {
        name: sum(by_query.values()) / len(by_query) for name, by_query in values.values.items()
    }


def test_alpha_can_be_changed_on_a_copy_and_the_validator_is_satisfied(saved, monkeypatch) -> None:
    _, reranker = saved("backpack")
    stage = transformer(reranker, alpha=1.0)
    other = pt.inspect.transformer_apply_attributes(stage, alpha=0.25)
    assert (stage.alpha, other.alpha, other.model) == (1.0, 0.25, reranker)
    assert pt.inspect.transformer_outputs(stage, ["qid", "query", "docno", "text"])[-2:] == [
        "score",
        "rank",
    ]
    with pytest.raises(pt.validate.InputValidationError):
        stage(pd.DataFrame(columns=["qid", "query", "docno"]))


def test_what_does_not_fit_is_said_when_the_transformer_is_made(saved) -> None:
    _, reranker = saved("backpack")
    with pytest.raises(ValueError, match="policy=nobody"):
        transformer(reranker, policy="nobody")
    with pytest.raises(ValueError, match="alpha"):
        transformer(reranker, alpha=-1)
