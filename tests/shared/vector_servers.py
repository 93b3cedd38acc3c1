"""Servers that give vectors of texts, in the forms that are published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
