"""An encoder behind an HTTP endpoint that gives vectors of texts.

That of OpenAI (``/v1/embeddings``), which vLLM, Ollama, Jina, Mistral and others have too, or that
of text-embeddings-inference (TEI, ``/embed``). A score is the cosine of two vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.data.wordings import wordings_of
from backpack_rank.models.apart import DOCUMENT, QUERY, TextMemory, mean_vectors
from backpack_rank.progress import Progress
from backpack_rank.reranking.remote import (
    DOCUMENTS,
    REFUSED,
    TEXTS,
    RemoteRanker,
    RemoteScorer,
    ServerScorer,
)
from backpack_rank.reranking.scorer import delay
from backpack_rank.reranking.text_scorer import UNCHANGED
from backpack_rank.senses.views import View

if TYPE_CHECKING:
    import requests

_OPENAI, _TEI = "embeddings", "embed"
"""How the addresses of endpoints end."""


def server_scorer(url: str, model: str | None = None) -> ServerScorer:
    """The scores of a server, whose address says what it gives.

    >>> type(server_scorer("https://api.openai.com/v1/embeddings", "m")).__name__
    'RemoteEncoder'
    >>> type(server_scorer("http://localhost:8000")).__name__
    'RemoteScorer'

    Args:
        url: one that ends with ``/embeddings`` or ``/embed`` gives vectors, any other reranks.
        model: which of the server's models.
    """
    end = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    return RemoteEncoder(url, model) if end in (_OPENAI, _TEI) else RemoteScorer(url, model)


class RemoteEncoder(ServerScorer):
    """Cosines of vectors that a server makes. A text is sent once, for all queries and alphas.

    ::

        RemoteEncoder("https://api.openai.com/v1/embeddings", model="text-embedding-3-small")
        RemoteEncoder("http://localhost:8080/embed")

    TEI is asked for the prompts ``query`` and ``document`` of its model, where it has them; the
    form of OpenAI has no prompts.
    """

    def __init__(self, url: str, model: str | None = None) -> None:
        """
        Args:
            url: of the endpoint.
            model: which of its models; OpenAI's form wants to be told.
        """
        endpoint = url.rstrip("/")
        super().__init__(RemoteRanker(url, model, compares_vectors=True), endpoint)
        self.memory = TextMemory()
        self._is_tei = endpoint.endswith(f"/{_TEI}")
        self._has_prompts = {QUERY: self._is_tei, DOCUMENT: self._is_tei}
        self._texts_of_request = TEXTS if self._is_tei else DOCUMENTS

    def score_texts(self, pairs: Sequence[tuple[str, str]], view: View = UNCHANGED) -> np.ndarray:
        """Cosines of (query, document) texts. [N] float32

        Raises:
            ValueError: the server refuses, or answers with something else than a vector for each
                text.
            ConnectionError: there is no answer.
        """
        self._check(view)
        texts: dict[tuple[str, str], None] = {}
        for query, document in pairs:
            texts[QUERY, query] = None
            texts.update(dict.fromkeys((DOCUMENT, text) for text in wordings_of(document)))
        vectors = self._vectors(list(texts))
        scores = np.empty(len(pairs), dtype=np.float32)
        for place, (query, document) in enumerate(pairs):
            of_document = torch.stack([vectors[DOCUMENT, text] for text in wordings_of(document)])
            if len(of_document) > 1:
                of_document = mean_vectors(of_document[None], unit=True)
            scores[place] = float(of_document[0] @ vectors[QUERY, query])
        return scores

    def _vectors(self, texts: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Tensor]:
        """Unit vectors of texts, each with its kind; what is not remembered is asked for."""
        vectors: dict[tuple[str, str], Tensor] = {}
        new: dict[str, list[str]] = {QUERY: [], DOCUMENT: []}
        for key in texts:
            known = self.memory.get(key)
            if known is not None:
                vectors[key] = known
            else:
                new[key[0]].append(key[1])
        number = sum(map(len, new.values()))
        with Progress(
            total=number, desc=f"vectors by {self.ranker.url}", delay=delay(number)
        ) as bar:
            for kind, of_kind in new.items():
                done = 0
                while done < len(of_kind):
                    part = of_kind[done : done + self._texts_of_request]
                    made = self._asked(part, kind)
                    if made is None:
                        continue  # in smaller requests
                    for text, vector in zip(part, made, strict=True):
                        vectors[kind, text] = vector
                        self.memory.keep((kind, text), vector.clone())
                    done += len(part)
                    bar.update(len(part))
        return vectors

    def _asked(self, texts: list[str], kind: str) -> Tensor | None:
        """Unit vectors of texts [n, D]; None where the server takes fewer at a time."""
        # Servers refuse a text without a letter.
        texts = [text if text.strip() else "." for text in texts]
        answer = self._post(self._body(texts, kind))
        if answer.status_code in REFUSED and self._has_prompts[kind]:
            self._has_prompts[kind] = False
            answer = self._post(self._body(texts, kind))
            # Where both are refused, it is not for the prompt.
            self._has_prompts[kind] = not answer.ok
        if answer.status_code in REFUSED and len(texts) > TEXTS:
            self._texts_of_request = TEXTS
            return None
        if not answer.ok:
            raise self._refusal(answer)
        return F.normalize(self._read(answer, len(texts)), dim=-1)

    def _body(self, texts: list[str], kind: str) -> dict[str, Any]:
        if not self._is_tei:
            body: dict[str, Any] = {"input": texts}
            return body if self.ranker.model is None else {**body, "model": self.ranker.model}
        body = {"inputs": texts, "truncate": True}
        return {**body, "prompt_name": kind} if self._has_prompts[kind] else body

    def _read(self, answer: requests.Response, count: int) -> Tensor:
        """The vectors of an answer. [n, D]"""
        try:
            content = answer.json()
            rows = content
            if not self._is_tei:
                rows = [None] * count
                for result in content["data"]:
                    rows[result["index"]] = result["embedding"]
            vectors = torch.tensor(rows, dtype=torch.float32)
        except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            raise ValueError(
                f"{self.endpoint} gives no vector for each of {count} texts: {answer.text[:300]}"
            ) from error
        if vectors.ndim != 2 or len(vectors) != count or not vectors.isfinite().all():
            raise ValueError(
                f"{self.endpoint} gives vectors of shape {list(vectors.shape)} for {count} texts, "
                "or some that hold no numbers"
            )
        return vectors
