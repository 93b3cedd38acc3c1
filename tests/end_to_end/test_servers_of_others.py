"""A ranker behind another server: every door that takes one gives the same scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import foreign_rankers
import pytest
import vector_servers
from in_process import TEST_SPLIT, evaluated
from rerank_servers import running
from reranked import reranked
from workplace import Workplace

import backpack_rank
from backpack_rank.data.trec import read_run
from backpack_rank.serving.kinds import served

QUERY = "soup for guests"
DOCUMENTS = ["he cooks soup", "she cooks soup", "soup", "a nurse bakes bread for guests"]


@contextmanager
def reranking() -> Iterator[tuple[str, None]]:
    with foreign_rankers.served("jina") as (url, _):
        yield url, None


@contextmanager
def encoding() -> Iterator[tuple[str, str]]:
    with vector_servers.served("embeddings") as (url, _):
        yield url, "m"


FORMS = pytest.mark.parametrize("form", [reranking, encoding])


def options_of(url: str, model: str | None) -> list[str]:
    return [f"checkpoint={url}", *([] if model is None else [f"server_model={model}"])]


@pytest.mark.slow
@FORMS
def test_the_runs_of_rerank_are_those_of_evaluate(
    form: Any, trained: Workplace, tmp_path: Path
) -> None:
    with form() as (url, model):
        given = [*options_of(url, model), *TEST_SPLIT]
        folder = reranked(
            trained, *given, "alpha=[1,0.5,0]", "policy=renditions", f"folder={tmp_path}/sharded"
        )
        evaluated(trained, tmp_path, *given, "alpha=0.5", "policy=renditions", "swap=false")
    run = read_run(folder / "runs" / "alpha-0.5" / "run.txt")
    (path,) = (tmp_path / "runs").glob("alpha-0.5__*.run")
    expected = read_run(path)
    assert run.keys() == expected.keys() != set()
    for query_id, scores in expected.items():
        assert run[query_id] == pytest.approx(scores, abs=1e-6)
    # The dial does something here: a server dislikes "she", or compares vectors with it.
    assert read_run(folder / "runs" / "alpha-1" / "run.txt") != run


@pytest.mark.slow
def test_a_stopped_rerank_goes_on_where_the_server_comes_back(
    trained: Workplace, tmp_path: Path
) -> None:
    with foreign_rankers.served("jina") as (url, _):
        given = [f"checkpoint={url}", *TEST_SPLIT, f"folder={tmp_path}", "shards=3"]
        reranked(trained, *given, "action=plan")
        reranked(trained, *given, "action=score", "shard=1")
    with pytest.raises((ValueError, ConnectionError), match="does not answer"):
        reranked(trained, *given)
    assert [path.name for path in (tmp_path / "scores").iterdir()] == ["00001.safetensors"]
    plan = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert plan["fingerprint"]["weights"] == f"those of {url}"
    with pytest.raises(ValueError, match="weights"):
        reranked(trained, *given[1:], "checkpoint=http://127.0.0.1:1", "action=score")


@pytest.mark.slow
@FORMS
def test_the_dial_in_front_of_another_server(form: Any) -> None:
    with form() as (url, model):
        reranker = backpack_rank.load(url, model=model)
        with running({"far": lambda: served("far", reranker)}) as server:
            (listed,) = server.client.get("/v1/models").json()["data"]
            assert listed["policies"] == ["renditions"]
            asked = server.rerank(query=QUERY, documents=DOCUMENTS).json()
            turned = server.rerank(query=QUERY, documents=DOCUMENTS, alpha=0).json()
            explained = server.client.post(
                "/demo/explain", json={"query": QUERY, "documents": DOCUMENTS[1:2], "alpha": 0.5}
            )
            in_chunks = {"documents": DOCUMENTS, "long_documents": "chunks"}
            for wrong, why in (
                ({"documents": DOCUMENTS, "policy": "paired_tokens", "alpha": 0}, "out of reach"),
                ({"documents": DOCUMENTS, "max_tokens_per_doc": 5}, "cuts its texts on its server"),
                ({"documents": DOCUMENTS, "instruct": "be kind"}, "its server asks it"),
                (in_chunks, "reads no chunks"),
            ):
                refused = server.rerank(query=QUERY, **wrong)
                assert refused.status_code == 400
                assert why in refused.text
            uncut = server.rerank(query=QUERY, documents=DOCUMENTS, truncation=False)
            assert uncut.status_code == 422
            assert "does not say what it cuts: leave truncation out" in uncut.text
            assert asked["truncated"] is None
        python = {alpha: reranker.rank(QUERY, DOCUMENTS, alpha=alpha) for alpha in (1, 0)}
        by_words = reranker.at(0.5).explain(QUERY, DOCUMENTS[1], by="words")
    for answer, alpha in ((asked, 1), (turned, 0)):
        found = {row["index"]: row["relevance_score"] for row in answer["results"]}
        expected = {row["corpus_id"]: row["score"] for row in python[alpha]}
        assert found == pytest.approx(expected, abs=1e-6)
    assert (asked.get("policy"), turned["policy"]) == (None, "renditions")
    words = [word["contribution"] for word in explained.json()["words"]]
    assert words == pytest.approx([word.contribution for word in by_words.words], abs=1e-6)
    # Two wordings of one document have one score at alpha 0, and had two.
    scores = {row["index"]: row["relevance_score"] for row in turned["results"]}
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert {row["index"]: row["relevance_score"] for row in asked["results"]}[0] != scores[0]


def test_where_the_server_behind_gives_no_scores_the_answer_is_502() -> None:
    with foreign_rankers.served("jina") as (url, _):
        reranker = backpack_rank.load(url)
        with running({"far": lambda: served("far", reranker)}) as server:
            assert server.rerank(query=QUERY, documents=DOCUMENTS).status_code == 200
            reranker.scorer.endpoint = "http://127.0.0.1:1/rerank"
            answer = server.rerank(query=QUERY, documents=DOCUMENTS)
            assert answer.status_code == 502
            assert "the server of model far gave no scores" in answer.text
            reranker.scorer.endpoint = f"{url}/rerank"
            assert server.rerank(query=QUERY, documents=DOCUMENTS).status_code == 200


def test_a_server_that_is_not_there_ends_the_start() -> None:
    reranker = backpack_rank.load("http://127.0.0.1:1")
    with running({"far": lambda: served("far", reranker)}, ready=False) as server:
        assert not server.batcher.wait_until_ready(60)
        assert "does not answer" in str(server.batcher.failure)


@pytest.mark.slow
def test_a_server_in_front_of_a_server_of_ours(trained: Workplace) -> None:
    """The dial of the first one turns the texts that the second one scores."""
    (folder,) = (trained.output / "train").glob("*/ranker")
    ranker = backpack_rank.load(folder)
    body = {"query": QUERY, "documents": DOCUMENTS, "alpha": 0.5, "policy": "renditions"}
    with running({"near": lambda: served("near", ranker)}) as near:
        far = backpack_rank.load(near.url)
        with running({"far": lambda: served("far", far)}) as server:
            answer = server.client.post("/v1/rerank", json=body).json()
    expected = ranker.rank(QUERY, DOCUMENTS, alpha=0.5, policy="renditions")
    found = [row["relevance_score"] for row in answer["results"]]
    assert found == pytest.approx([row["score"] for row in expected], rel=1e-4)
