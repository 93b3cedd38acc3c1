"""Rerank servers on loopback that read nothing but what the published schemas of hosted rerankers
say: a field too many is refused, and so is one too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from json_servers import JsonHandler, listening
from pydantic import BaseModel, ConfigDict, ValidationError


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Cohere(Strict):
    """docs.cohere.com/reference/rerank, version 2."""

    model: str
    query: str
    documents: list[str]
    top_n: int | None = None
    max_tokens_per_doc: int | None = None
    priority: int | None = None


class Jina(Strict):
    """api.jina.ai/redoc, /v1/rerank."""

    model: str
    query: str
    documents: list[str | dict[str, str]]
    top_n: int | None = None
    return_documents: bool | None = None


class Voyage(Strict):
    """docs.voyageai.com/reference/reranker-api."""

    query: str
    documents: list[str]
    model: str
    top_k: int | None = None
    return_documents: bool | None = None
    truncation: bool | None = None


class Vllm(BaseModel):
    """vLLM's /v1/rerank takes fields that it does not know."""

    query: str
    documents: list[str]
    model: str | None = None
    top_n: int = 0


class Tei(Strict):
    """huggingface.github.io/text-embeddings-inference, /rerank."""

    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = None
    truncation_direction: str = "Right"


def _results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "x", "results": rows, "usage": {"total_tokens": 1}}


def _data(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": rows, "model": "m", "usage": {"total_tokens": 1}}


def _list(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"index": row["index"], "score": row["relevance_score"]} for row in rows]


SERVERS: dict[str, tuple[type[BaseModel], Callable[[list[dict[str, Any]]], Any], int]] = {
    "cohere": (Cohere, _results, 400),
    "jina": (Jina, _results, 422),
    "voyage": (Voyage, _data, 400),
    "vllm": (Vllm, _results, 400),
    "tei": (Tei, _list, 422),
}
"""Schema of requests, form of answers, and the status of a request that does not fit."""


@contextmanager
def hosted(
    name: str, score: Callable[[str, str], float], model: str | None = None, key: str = ""
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of such a server, and the requests that it has answered with scores."""
    schema, form, refusal = SERVERS[name]
    answered: list[dict[str, Any]] = []

    class Handler(JsonHandler):
        def post(self, body: Any) -> None:
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                return self.answer(401, {"message": "no such key"})
            try:
                request = schema.model_validate(body)
            except ValidationError as error:
                return self.answer(refusal, {"message": str(error)})
            if model is not None and body.get("model") != model:
                return self.answer(404, {"message": f"model {body.get('model')} is not known"})
            answered.append(body)
            texts = getattr(request, "texts", None) or request.documents  # type: ignore[attr-defined]
            rows = []
            for place, text in enumerate(texts):
                rows.append({"index": place, "relevance_score": score(body["query"], text)})
            rows.sort(key=lambda row: -row["relevance_score"])
            self.answer(200, form(rows))

    with listening(Handler) as url:
        yield url, answered
