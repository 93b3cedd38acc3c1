"""Every way to ask a ranker gives the same scores: Python, HTTP, a client of HTTP, and other
libraries.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest
from rerank_servers import running

import backpack_rank
from backpack_rank.data.collection import Collection, MemoryStore
from backpack_rank.serving.kinds import served

QUERY = "who can rewire a house?"
TEXTS = [
    "He is an electrician; he can.",
    "She sells flowers to her father.",
    "Houses are rewired.",
    "",
    "her " * 90,
]
SETTINGS = [
    (1.0, None),
    (0.5, None),
    (0.5, "lowest_senses"),
    (0.0, "paired_tokens"),
    (0.3, "uniform"),
]
Door = Callable[[float, "str | None"], list[float]]


@pytest.fixture
def ranker(saved):
    """The folder of a saved ranker, and what Python makes of it."""
    return saved("backpack")


def expected(reranker, alpha: float, policy: str | None) -> list[float]:
    return reranker.predict([(QUERY, text) for text in TEXTS], alpha=alpha, policy=policy).tolist()


def in_order(rows: list[tuple[int, float]]) -> list[float]:
    """Scores by document, from rows of (number, score) that must come best first."""
    assert [score for _, score in rows] == sorted((score for _, score in rows), reverse=True)
    return [score for _, score in sorted(rows)]


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "policy"), SETTINGS)
def test_python_in_all_its_forms(ranker, alpha, policy) -> None:
    _, reranker = ranker
    scores = expected(reranker, alpha, policy)
    rows = reranker.rank(QUERY, TEXTS, alpha=alpha, policy=policy)
    assert in_order([(row["corpus_id"], row["score"]) for row in rows]) == scores
    (many,) = reranker.rank_many([QUERY], [TEXTS], alpha=alpha, policy=policy)
    assert many == rows
    assert reranker.sweep(QUERY, TEXTS, [alpha], policy)[0].tolist() == pytest.approx(
        scores, abs=1e-5
    )
    ids = [str(number) for number in range(len(TEXTS))]
    collection = Collection(
        "texts", MemoryStore(dict(zip(ids, TEXTS, strict=True))), {"q": QUERY}, {}
    )
    run = reranker.at(alpha, policy).rerank({"q": dict.fromkeys(ids, 1.0)}, collection)
    assert [run["q"][number] for number in ids] == scores


@pytest.mark.parametrize(("alpha", "policy"), SETTINGS)
def test_http_alone_is_bit_equal_and_its_client_is_python_again(ranker, alpha, policy) -> None:
    _, reranker = ranker
    scores = expected(reranker, alpha, policy)
    with running({"mine": lambda: served("mine", reranker)}) as server:
        body = {"query": QUERY, "documents": TEXTS, "raw_scores": True, "alpha": alpha}
        results = server.rerank(**body, **({} if policy is None else {"policy": policy})).json()[
            "results"
        ]
        assert in_order([(row["index"], row["relevance_score"]) for row in results]) == scores
        if alpha == 1:
            remote = backpack_rank.load(server.url)
            assert remote.predict([(QUERY, text) for text in TEXTS]).tolist() == scores


def cross_encoder(folder, reranker) -> Door:
    library = pytest.importorskip("sentence_transformers")
    import backpack_rank.integrations.sentence_transformers  # noqa: F401

    model = library.CrossEncoder(str(folder), device="cpu")
    pairs = [(QUERY, text) for text in TEXTS]
    return lambda alpha, policy: model.predict(pairs, alpha=alpha, policy=policy).tolist()


def pyterrier(folder, reranker) -> Door:
    pytest.importorskip("pyterrier")
    from backpack_rank.integrations.pyterrier import BackpackReranker

    frame = pd.DataFrame(
        [("q", QUERY, str(number), text, 1.0, number) for number, text in enumerate(TEXTS)],
        columns=["qid", "query", "docno", "text", "score", "rank"],
    )

    def scores(alpha: float, policy: str | None) -> list[float]:
        ranked = BackpackReranker(reranker, alpha, policy).transform(frame)
        return ranked.sort_values("docno")["score"].tolist()

    return scores


def rerankers(folder, reranker) -> Door:
    library = pytest.importorskip("rerankers")
    import backpack_rank.integrations.rerankers  # noqa: F401

    def scores(alpha: float, policy: str | None) -> list[float]:
        ranker = library.Reranker(
            str(folder),
            model_type="BackpackRanker",
            device="cpu",
            verbose=0,
            alpha=alpha,
            policy=policy,
        )
        return in_order(
            [(int(result.doc_id), result.score) for result in ranker.rank(QUERY, TEXTS).results]
        )

    return scores


def langchain(folder, reranker) -> Door:
    documents = pytest.importorskip("langchain_core.documents")
    from backpack_rank.integrations.langchain import BackpackCompressor

    given = [
        documents.Document(page_content=text, metadata={"n": number})
        for number, text in enumerate(TEXTS)
    ]

    def scores(alpha: float, policy: str | None) -> list[float]:
        compressed = BackpackCompressor(
            reranker=reranker, alpha=alpha, policy=policy
        ).compress_documents(given, QUERY)
        return in_order(
            [
                (document.metadata["n"], document.metadata["relevance_score"])
                for document in compressed
            ]
        )

    return scores


@pytest.mark.packaging
@pytest.mark.parametrize("door", [cross_encoder, pyterrier, rerankers, langchain])
def test_other_libraries_give_the_scores_of_python(ranker, door) -> None:
    folder, reranker = ranker
    scores = door(folder, reranker)
    for alpha, policy in SETTINGS:
        assert scores(alpha, policy) == pytest.approx(
            expected(reranker, alpha, policy), abs=1e-5
        ), (alpha, policy)
