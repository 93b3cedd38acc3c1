"""Encoders behind an HTTP endpoint: what is sent, what is made of the vectors, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backpack_rank.reranking.load import load

QUERY = "bread of nurses"
DOCUMENTS = ["she bakes bread", "he bakes bread", "fish", ""]
WORDS = ["bread", "nurses", "she", "he", "bakes", "fish", "query:", "document:"]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class OpenAi(Strict):
    """platform.openai.com/docs/api-reference/embeddings/create; a text may not be empty."""

    model: str
    input: list[str] = Field(min_length=1, max_length=2048)
    encoding_format: str = "float"
    dimensions: int | None = None
    user: str | None = None


class Tei(Strict):
    """huggingface.github.io/text-embeddings-inference, /embed, with its limit of 32 texts."""

    inputs: list[str] = Field(min_length=1, max_length=32)
    truncate: bool | None = None
    truncation_direction: str = "Right"
    prompt_name: str | None = None
    normalize: bool = True
    dimensions: int | None = None


def vector(text: str) -> list[float]:
    """Counts of words, not of length 1."""
    words = text.split()
    return [1.0, *(2.0 * words.count(word) for word in WORDS)]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@contextmanager
def served(kind: str, prompts: bool = False, most: int = 2048) -> Iterator[tuple[str, list[Any]]]:
    """Address of an endpoint, and the requests that it answered."""
    answered: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                request: Any = (Tei if kind == "embed" else OpenAi).model_validate(body)
            except ValidationError as error:
                return self.answer(400, {"error": {"message": str(error)}})
            texts = request.inputs if kind == "embed" else request.input
            if not all(text.strip() for text in texts) or len(texts) > most:
                return self.answer(422, {"error": "inputs cannot be empty, nor that many"})
            prompt = ""
            if kind == "embed" and request.prompt_name is not None:
                if not prompts:
                    return self.answer(422, {"error": "prompt name not found"})
                prompt = f"{request.prompt_name}: "
            answered.append(body)
            rows = [vector(prompt + text) for text in texts]
            if kind == "embed":
                return self.answer(200, rows)
            data = []
            for index, row in enumerate(rows):
                data.append({"object": "embedding", "index": index, "embedding": row})
            self.answer(200, {"object": "list", "data": data[::-1], "model": request.model})

        def answer(self, status: int, body: object) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        path = "embed" if kind == "embed" else "v1/embeddings"
        yield f"http://127.0.0.1:{server.server_port}/{path}", answered
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("kind", "prompts", "most"),
    [
        ("embeddings", False, 2048),
        ("embeddings", False, 32),
        ("embed", False, 32),
        ("embed", True, 32),
    ],
)
def test_scores_are_cosines_of_the_servers_vectors(kind, prompts, most):
    before = {"query": "query: " if prompts else "", "document": "document: " if prompts else ""}
    documents = [*DOCUMENTS[:3], *(f"fish {number}" for number in range(150))]
    with served(kind, prompts, most) as (url, answered):
        reranker = load(url, model=None if kind == "embed" else "m")
        scores = reranker.predict([(QUERY, text) for text in documents])
        sent = sum(len(body.get("inputs") or body["input"]) for body in answered)
        # A second query reads no document again.
        reranker.predict([("fish", text) for text in documents])
        again = sum(len(body.get("inputs") or body["input"]) for body in answered)
        assert (sent, again) == (1 + len(documents), 2 + len(documents))
        assert reranker.predict([(QUERY, "")]).shape == (1,)
    query = np.array(vector(before["query"] + QUERY))
    expected = [cosine(query, np.array(vector(before["document"] + text))) for text in documents]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert scores[0] != scores[2]


def test_the_dial_is_the_unit_vector_of_the_mean():
    with served("embeddings") as (url, _):
        reranker = load(url, model="m")
        assert reranker.policies == ("renditions",)
        scores = reranker.sweep("bread", DOCUMENTS[:3], alphas=[1, 0])
        asked = reranker.sweep("bread for women", DOCUMENTS[:2], alphas=[1, 0])
    query = np.array(vector("bread"))
    units = []
    for text in DOCUMENTS[:2]:
        of_text = np.array(vector(text))
        units.append(of_text / np.linalg.norm(of_text))
    expected = [*(cosine(query, unit) for unit in units), cosine(query, np.array(vector("fish")))]
    np.testing.assert_allclose(scores[0], expected, rtol=1e-5)
    neutral = cosine(query, np.mean(units, axis=0))
    np.testing.assert_allclose(scores[1], [neutral, neutral, expected[2]], rtol=1e-5)
    assert scores[1, 0] == scores[1, 1]
    assert asked[0].tolist() == asked[1].tolist()


def test_refusals_are_told():
    with served("embeddings") as (url, _):
        with pytest.raises(ValueError, match="model=NAME says which of its rankers is asked"):
            load(url).rank(QUERY, DOCUMENTS)
        with pytest.raises(ValueError, match="is behind a server"):
            load(url, model="m").explain(QUERY, DOCUMENTS[0], by="senses")
        wrong = url.replace("/v1/embeddings", "/embed")
        with pytest.raises(ValueError, match="/embed answers 400"):
            load(wrong).rank(QUERY, DOCUMENTS)
