"""A ranker behind an HTTP rerank endpoint.

Jina's, Cohere's, vLLM's, text-embeddings-inference's, or this project's.

Its scores can be measured and its texts be swapped; what lies inside it, word vectors and senses,
is out of reach.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from backpack_rank.data.batching import Pairs
from backpack_rank.progress import Progress
from backpack_rank.reranking.scorer import UNCHANGED, TextScorer, delay
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

if TYPE_CHECKING:
    # Every way to load a ranker imports this module, and few rankers are behind a server.
    import requests

KEY_VARIABLE = "BACKPACK_RANK_API_KEY"
DOCUMENTS, TEXTS = 100, 32
"""Documents of a request; text-embeddings-inference takes 32 unless its server is set
otherwise.
"""
_TRIES, _TIMEOUT = 5, 120.0


@dataclass(frozen=True)
class RemoteRanker:
    """What is known of a ranker behind a server: where it is."""

    url: str
    has_senses: bool = False

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.url


class RemoteScorer(TextScorer):
    """Scores of a rerank endpoint, raw logits where the server gives them (``raw_scores``).

    A bearer key is taken from the variable BACKPACK_RANK_API_KEY.
    """

    tokenizer = None
    number_format = "a format of the server's"

    def __init__(self, url: str) -> None:
        """``url``: of the server, or of its endpoint where that is not ``/rerank``."""
        import requests

        self.ranker: Any = RemoteRanker(url)
        path = urlsplit(url).path.rstrip("/")
        self.endpoint = url.rstrip("/") if path.endswith("rerank") else f"{url.rstrip('/')}/rerank"
        key = os.environ.get(KEY_VARIABLE)
        self._session = requests.Session()
        if key:
            self._session.auth = lambda request: _with_key(request, key)
        self._takes_texts = False

    def score_texts(self, pairs: Sequence[tuple[str, str]], view: View = UNCHANGED) -> np.ndarray:
        """Scores of (query, document) texts. [N] float32

        The server decides what it does with long ones.

        Raises:
            ValueError: the server refuses, or answers with something else than a score for each
                document.
            ConnectionError: there is no answer.
        """
        self._check(view)
        rows_by_query: dict[str, list[int]] = {}
        for row, (query, _) in enumerate(pairs):
            rows_by_query.setdefault(query, []).append(row)
        scores = np.empty(len(pairs), dtype=np.float32)
        with Progress(
            total=len(pairs), desc=f"scoring by {self.ranker.url}", delay=delay(len(pairs))
        ) as bar:
            for query, rows in rows_by_query.items():
                for start in range(0, len(rows), DOCUMENTS):
                    part = rows[start : start + DOCUMENTS]
                    scores[part] = self._asked(query, [pairs[row][1] for row in part])
                    bar.update(len(part))
        return scores

    def scores(
        self, pairs: Pairs, view: View = UNCHANGED, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Scores of all rows; nothing is cached. [N] float32"""
        return self.score_texts(list(pairs.texts()), view)

    def _check(self, view: View) -> None:
        if view.sense_weights is not None or view.token_shift is not None:
            raise ValueError(
                f"{self.ranker.label} is behind a server: neither its senses nor its words can be "
                "turned"
            )

    def _asked(self, query: str, documents: list[str]) -> np.ndarray:
        """Scores [m] of one query's documents, in the form of answer that the server has."""
        if not self._takes_texts:
            body = {
                "query": query,
                "documents": documents,
                "raw_scores": True,
                "return_documents": False,
            }
            answer = self._post(body)
            if answer.status_code not in (400, 422):
                return self._scores(answer, len(documents))
            refused = answer
        parts = []
        for start in range(0, len(documents), TEXTS):
            texts = documents[start : start + TEXTS]
            answer = self._post({"query": query, "texts": texts, "raw_scores": True})
            if not answer.ok and not self._takes_texts:
                return self._scores(
                    refused, len(documents)
                )  # it reads neither form; the first is the common one
            self._takes_texts = True
            parts.append(self._scores(answer, len(texts)))
        return np.concatenate(parts)

    def _post(self, body: dict[str, Any]) -> requests.Response:
        import requests

        for trial in range(_TRIES):
            try:
                answer = self._session.post(self.endpoint, json=body, timeout=_TIMEOUT)
            except (requests.ConnectionError, requests.Timeout) as error:
                raise ConnectionError(
                    f"{self.endpoint} does not answer ({error}): is the server running?"
                ) from error
            if answer.status_code not in (429, 503) or trial == _TRIES - 1:
                break
            wait = answer.headers.get("Retry-After", "")
            time.sleep(min(float(wait) if wait.isdigit() else 0.5 * 2**trial, 30.0))
        return answer

    def _scores(self, answer: requests.Response, count: int) -> np.ndarray:
        if not answer.ok:
            key = f" (a key goes into {KEY_VARIABLE})" if answer.status_code in (401, 403) else ""
            raise ValueError(
                f"{self.endpoint} answers {answer.status_code}{key}: {answer.text[:300]}"
            )
        scores = np.full(count, np.nan, dtype=np.float32)
        try:
            content = answer.json()
            results = content["results"] if isinstance(content, dict) else content
            for result in results:
                # Jina's and Cohere's name is the first, text-embeddings-inference's the second.
                name = "relevance_score" if "relevance_score" in result else "score"
                scores[int(result["index"])] = result[name]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ValueError(
                f"{self.endpoint} answers in no form of a reranker: {answer.text[:300]}"
            ) from error
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{self.endpoint} gives no score for {int(np.isnan(scores).sum())} of {count} "
                "documents"
            )
        return scores


def _with_key(request: requests.PreparedRequest, key: str) -> requests.PreparedRequest:
    """As an authentication of its own, or requests would send what ~/.netrc says instead."""
    request.headers["Authorization"] = f"Bearer {key}"
    return request
