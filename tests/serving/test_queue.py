"""What waits: batches across requests, limits, deadlines, clients that leave, and the end of the
server.
"""

from __future__ import annotations

import gc
import logging
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rerank_answers import QUERY, in_python, raw
from rerank_servers import Gate, Running, gated, running, wait_for

from backpack_rank.senses.views import View
from backpack_rank.serving.kinds import served

POLICIES = ("lowest_senses", "uniform", "soft", "paired_tokens")


@pytest.fixture(scope="module")
def held_server(pointwise):
    """A server whose model can be held."""
    with gated(pointwise()) as server:
        yield server


def _in_flight(server: Running) -> int:
    """Requests in the queue or being scored, by the server's own account."""
    lines = server.client.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("backpack_rank_queue_requests ")]
    return int(float(line.split()[-1]))


def test_warming_up_reads_the_longest_text_and_speaks_of_no_documents(pointwise, caplog):
    """Documents of the warm-up are nobody's: that they are cut would be a riddle in the log."""
    reranker = pointwise()
    scorer = reranker.local_scorer
    lengths: list[int] = []

    def note(_ranker, arguments):
        lengths.append(arguments[0].max_length)

    scorer.ranker.register_forward_pre_hook(note)
    with (
        caplog.at_level(logging.WARNING, "backpack_rank"),
        running({"tiny": lambda: served("tiny", reranker)}) as server,
    ):
        assert server.client.get("/health").status_code == 200
    assert max(lengths) == scorer.pair_tokenizer.max_length
    assert [record.getMessage() for record in caplog.records] == []


@contextmanager
def _held(gate: Gate) -> Iterator[None]:
    """While the model stands still."""
    gate.open.clear()
    try:
        yield
    finally:
        gate.open.set()


ALPHAS = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
REQUEST = st.tuples(st.sampled_from(POLICIES), ALPHAS, st.integers(0, 7), st.integers(1, 8))


@pytest.mark.slow
@given(st.lists(REQUEST, min_size=2, max_size=8))
@settings(max_examples=15, deadline=None)
def test_requests_in_flight_together_each_get_the_scores_of_their_own_alpha(
    held_server, reranker, sentences, requests
):
    server, gate = held_server
    gate.entered.clear()
    bodies = []
    for policy, alpha, first, count in requests:
        texts = [sentences[(first + n) % 8] for n in range(count)]
        bodies.append({"documents": texts, "policy": policy, "alpha": alpha})
    options = {"query": QUERY, "raw_scores": True, "timeout": 30}
    with ThreadPoolExecutor(len(requests)) as pool, _held(gate):
        waiting = [pool.submit(server.rerank, **body, **options) for body in bodies]
        wait_for(lambda: _in_flight(server) == len(requests))
        gate.open.set()
        answers = [raw(future.result()) for future in waiting]
    moved = set()
    for body, scores in zip(bodies, answers, strict=True):
        policy, alpha = body["policy"], body["alpha"]
        expected = in_python(reranker.with_policy(policy, alpha), body["documents"])
        assert scores == pytest.approx(expected, abs=1e-5)
        if policy.startswith("paired") and alpha < 1:
            moved.add((policy, alpha))
    # The first batch holds the first request alone, which came before the others; all others wait
    # for their kind.
    assert len(gate.entered) <= 1 + len(moved) + 1


def test_a_batch_mixes_alphas_and_unweighted_texts_and_takes_no_more_tokens_than_it_holds(
    held_server, sentences
):
    server, gate = held_server
    gate.entered.clear()
    body = {"query": QUERY, "documents": list(sentences)}
    with _held(gate), ThreadPoolExecutor(20) as pool:
        sent = [pool.submit(server.rerank, **body, alpha=n / 20) for n in range(20)]
        wait_for(lambda: _in_flight(server) == 20)
        gate.open.set()
        assert {future.result().status_code for future in sent} == {200}
    jobs_in_batch = []
    for batch in gate.entered:
        jobs_in_batch.append(len({part.job for part in batch}))
        assert sum(part.tokens for part in batch) <= gate.tokens_per_batch
    assert max(jobs_in_batch) > 3


def test_when_the_queue_is_full_a_request_is_told_when_to_come_again(pointwise, sentences):
    documents = list(sentences)
    with (
        gated(pointwise(), max_queue_tokens=1_000) as (server, gate),
        ThreadPoolExecutor(8) as pool,
    ):
        with _held(gate):
            sent = []
            while server.batcher.tokens < 700:
                before = server.batcher.tokens
                sent.append(pool.submit(server.rerank, query=QUERY, documents=documents))
                wait_for(lambda before=before: server.batcher.tokens > before)
            many = [f"{n} {text}" for n in range(2) for text in documents]
            refused = server.rerank("/rerank", query=QUERY, texts=many)
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 600
            assert "the queue is full" in refused.json()["error"]
        assert {future.result().status_code for future in sent} == {200}
        assert server.rerank(query=QUERY, documents=documents).status_code == 200
        assert server.batcher.tokens == 0


def test_too_many_requests_at_a_time_are_a_429_before_their_bodies_are_read(pointwise, sentences):
    with gated(pointwise(), max_requests=2) as (server, gate), ThreadPoolExecutor(2) as pool:
        with _held(gate):
            sent = [pool.submit(server.rerank, query=QUERY, documents=["a"]) for _ in range(2)]
            wait_for(lambda: _in_flight(server) == 2)
            assert server.rerank(query=QUERY, documents=["a"]).status_code == 429
            assert server.client.get("/ready").status_code == 503
            assert server.client.get("/health").status_code == 200
        assert [future.result().status_code for future in sent] == [200, 200]
        assert server.client.get("/ready").status_code == 200


@pytest.mark.slow
def test_a_request_past_its_deadline_is_a_504_and_never_scored(pointwise, sentences):
    with gated(pointwise()) as (server, gate), ThreadPoolExecutor(2) as pool:
        with _held(gate):
            first = pool.submit(server.rerank, query=QUERY, documents=["a"])
            wait_for(lambda: gate.entered)
            late = server.rerank(query=QUERY, documents=list(sentences), timeout=0.2)
            assert late.status_code == 504
            assert "the deadline passed" in late.json()["message"]
            wait_for(lambda: _in_flight(server) == 1)
        assert first.result().status_code == 200
        assert server.rerank(query=QUERY, documents=["b"]).status_code == 200
        assert [len(part.job.documents) for batch in gate.entered for part in batch] == [1, 1]


def test_a_client_that_leaves_frees_the_queue_and_is_never_scored(pointwise, sentences):
    with gated(pointwise()) as (server, gate), ThreadPoolExecutor(2) as pool:
        with _held(gate):
            first = pool.submit(server.rerank, query=QUERY, documents=["a"])
            wait_for(lambda: gate.entered)
            alone = server.batcher.tokens
            body = {"query": QUERY, "documents": list(sentences)}
            request = httpx.Request("POST", server.url + "/rerank", json=body)
            with socket.create_connection(server.address) as connection:
                lines = [f"{name.title()}: {value}" for name, value in request.headers.items()]
                head = "\r\n".join(["POST /rerank HTTP/1.1", *lines, "", ""])
                connection.sendall(head.encode() + request.read())
                wait_for(lambda: server.batcher.tokens > alone)
            wait_for(lambda: server.batcher.tokens == alone)
        assert first.result().status_code == 200
        assert server.rerank(query=QUERY, documents=["b"]).status_code == 200
        assert [len(part.job.documents) for batch in gate.entered for part in batch] == [1, 1]


def test_a_text_that_breaks_a_batch_fails_its_own_request_alone(pointwise, caplog):
    with gated(pointwise()) as (server, gate), ThreadPoolExecutor(4) as pool:
        gate.poisoned = "a poisoned text"
        with _held(gate):
            first = pool.submit(server.rerank, query=QUERY, documents=["a"])
            wait_for(lambda: gate.entered)
            others = [pool.submit(server.rerank, query=QUERY, documents=["b"]) for _ in range(2)]
            bad = pool.submit(server.rerank, query=QUERY, documents=["a poisoned text"])
            wait_for(lambda: _in_flight(server) == 4)
        assert [future.result().status_code for future in (first, *others)] == [200] * 3
        assert bad.result().status_code == 500
        assert bad.result().json()["message"] == "scoring failed: RuntimeError"
        assert max(map(len, gate.entered)) == 3, "they were in one batch"
        assert server.client.get("/health").status_code == 200
    assert "RuntimeError while scoring" in caplog.text
    assert "a poisoned text" not in caplog.text


@pytest.mark.slow
def test_an_answered_request_leaves_nothing_in_memory(pointwise, sentences):
    with gated(pointwise()) as (server, gate):
        gc.collect()
        gc.disable()
        try:
            body = {"query": QUERY, "documents": list(sentences)}
            assert server.rerank(**body).status_code == 200
            assert server.rerank(**body, timeout=1e-6).status_code == 504
            jobs = [weakref.ref(part.job) for batch in gate.entered for part in batch]
            assert jobs
            gate.entered.clear()
            wait_for(lambda: not [job for job in jobs if job() is not None])
        finally:
            gc.enable()


def test_requests_share_states_of_tokens_and_a_lone_one_has_the_same_bits(
    pointwise, sentences, monkeypatch
):
    reranker = pointwise()
    network = reranker.local_scorer.ranker.backpack.sense_network
    computed: list[int] = []
    hidden = network.hidden

    def counted(embeddings):
        computed.append(len(embeddings))
        return hidden(embeddings)

    body = {"query": QUERY, "documents": list(sentences), "raw_scores": True}
    with gated(reranker) as (server, gate), ThreadPoolExecutor(2) as pool:
        gate.tokens_per_batch = 60
        monkeypatch.setattr(network, "hidden", counted)
        alone = raw(server.rerank(**body))
        assert computed
        assert server.rerank(query="bread", documents=["a bridge", "bread"]).status_code == 200

        computed.clear()
        with _held(gate):
            sent = [pool.submit(server.rerank, **body) for _ in range(2)]
            wait_for(lambda: _in_flight(server) == 2)
        for future in sent:
            assert raw(future.result()) == pytest.approx(alone, abs=1e-5)
        assert raw(server.rerank(**body)) == alone, "bit for bit"
        assert not computed


@pytest.mark.slow
def test_a_long_request_lets_others_go_first(pointwise, sentences):
    with (
        gated(pointwise(), max_queue_tokens=1_000_000) as (server, gate),
        ThreadPoolExecutor(2) as pool,
    ):
        gate.tokens_per_batch = 60
        many = [f"{n} {text}" for n in range(30) for text in sentences]
        one = {"query": QUERY, "documents": [sentences[0]], "policy": "paired_tokens", "alpha": 0}
        with _held(gate):
            long = pool.submit(server.rerank, query=QUERY, documents=many)
            wait_for(lambda: gate.entered)
            short = pool.submit(server.rerank, **one)
            wait_for(lambda: _in_flight(server) == 2)
        assert short.result().status_code == 200
        assert long.result().status_code == 200
        sizes = [len(batch[0].job.documents) for batch in gate.entered]
        assert sizes.index(1) <= 16 < len(sizes)


def test_health_is_503_until_rankers_are_loaded_and_warm(pointwise):
    may_load = threading.Event()

    def load():
        assert may_load.wait(30)
        return served("tiny", pointwise())

    with running({"tiny": load}, ready=False) as server:
        for path in ("/health", "/ready"):
            response = server.client.get(path)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
        refused = server.rerank(query=QUERY, documents=["a"])
        assert refused.status_code == 503
        assert refused.json()["message"] == "rankers are being loaded"
        may_load.set()
        assert server.batcher.wait_until_ready(30)
        assert server.client.get("/health").status_code == 200
        assert server.client.get("/ready").status_code == 200
        assert server.rerank(query=QUERY, documents=["a"]).status_code == 200


def test_a_ranker_that_cannot_be_loaded_never_becomes_healthy():
    def load():
        raise FileNotFoundError("no such folder")

    with running({"tiny": load}, ready=False) as server:
        wait_for(lambda: server.batcher.failure is not None)
        assert server.client.get("/health").status_code == 503


def test_shutdown_finishes_what_it_has_accepted_and_takes_no_more(pointwise, sentences):
    with gated(pointwise()) as (server, gate), ThreadPoolExecutor(4) as pool:
        gate.open.clear()
        body = {"query": QUERY, "documents": list(sentences)}
        sent = [pool.submit(server.rerank, **body) for _ in range(4)]
        wait_for(lambda: _in_flight(server) == 4)
        server.server.should_exit = True
        wait_for(lambda: _refuses(server.address))
        gate.open.set()
        assert [future.result().status_code for future in sent] == [200] * 4


def _refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_policy_that_reads_no_text_is_answered_and_stops_nobody(pointwise, monkeypatch):
    with gated(pointwise()) as (server, gate):
        with monkeypatch.context() as patched:
            patched.setattr(gate, "_cached_views", lambda policy, alpha: (View(coefficient=0.0),))
            response = server.rerank(query=QUERY, documents=["a", "b"], raw_scores=True)
        assert raw(response) == [0.0, 0.0]
        assert server.rerank(query=QUERY, documents=["a"]).status_code == 200
