"""Servers that give vectors of texts, in the forms that are published."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from json_servers import JsonHandler, listening
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

    class Handler(JsonHandler):
        def post(self, body: Any) -> None:
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

    with listening(Handler) as url:
        path = "embed" if kind == "embed" else "v1/embeddings"
        yield f"{url}/{path}", answered
