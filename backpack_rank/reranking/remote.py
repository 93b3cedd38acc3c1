"""A ranker behind an HTTP endpoint that reranks; :mod:`backpack_rank.reranking.remote_encoder` is
about those that give vectors.

That of Cohere, Jina, Voyage, vLLM, text-embeddings-inference (TEI), or of this project. Their
requests and answers come in few forms, which are tried in order, so that nobody has to name one.

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
from backpack_rank.reranking.scorer import delay
from backpack_rank.reranking.text_scorer import UNCHANGED, TextScorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View

if TYPE_CHECKING:
    # Every way to load a ranker imports this module, and few rankers are behind a server.
    import requests

KEY_VARIABLE = "BACKPACK_RANK_API_KEY"
KEYS_OF_HOSTS = {
    "api.cohere.com": ("CO_API_KEY", "COHERE_API_KEY"),
    "api.cohere.ai": ("CO_API_KEY", "COHERE_API_KEY"),
    "api.jina.ai": ("JINA_API_KEY",),
    "api.openai.com": ("OPENAI_API_KEY",),
    "api.voyageai.com": ("VOYAGE_API_KEY",),
}
"""Variables with the keys of hosted models, under the names that their own clients read."""
DOCUMENTS, TEXTS = 100, 32
"""Documents of a request; text-embeddings-inference takes 32 unless its server is set
otherwise.
"""
_TRIES, _TIMEOUT = 5, 120.0
REFUSED = (400, 413, 422)
"""Statuses of a server that does not read this form of a request."""


@dataclass(frozen=True)
class RemoteRanker:
    """What is known of a ranker behind a server: where it is, and which of the server's it is.

    Attributes:
        compares_vectors: see :class:`~backpack_rank.models.rankers.Ranker`.
    """

    url: str
    model: str | None = None
    has_senses: bool = False
    compares_vectors: bool = False

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.url if self.model is None else f"{self.model} of {self.url}"


class ServerScorer(TextScorer):
    """Subclass it for scores that come of an HTTP endpoint.

    A bearer key is taken from the variable that the host's own client reads
    (:data:`KEYS_OF_HOSTS`), else from BACKPACK_RANK_API_KEY.
    """

    tokenizer = None
    number_format = "a format of the server's"

    def __init__(self, ranker: RemoteRanker, endpoint: str) -> None:
        """
        Args:
            ranker: what is behind the server.
            endpoint: address that is asked.
        """
        import requests

        self.ranker: Any = ranker
        self.endpoint = endpoint
        variables = KEYS_OF_HOSTS.get(urlsplit(ranker.url).hostname or "", ())
        self._key_variables = (*variables, KEY_VARIABLE)
        keys = [os.environ[name] for name in self._key_variables if os.environ.get(name)]
        self.session = requests.Session()
        if keys:
            self.session.auth = lambda request: _with_key(request, keys[0])

    def scores(
        self, pairs: Pairs, view: View = UNCHANGED, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Scores of all rows; nothing is cached. [N] float32"""
        return self.score_texts(list(pairs.texts()), view)

    def _check(self, view: View) -> None:
        if view.sense_weights is not None or view.token_shift is not None:
            raise ValueError(
                f"{self.ranker.url} is behind a server: neither its senses nor its words can be "
                "turned"
            )

    def _post(self, body: dict[str, Any]) -> requests.Response:
        import requests

        for trial in range(_TRIES):
            try:
                answer = self.session.post(self.endpoint, json=body, timeout=_TIMEOUT)
            except (requests.ConnectionError, requests.Timeout) as error:
                raise ConnectionError(
                    f"{self.endpoint} does not answer ({error}): is the server running?"
                ) from error
            if answer.status_code not in (429, 503) or trial == _TRIES - 1:
                break
            wait = answer.headers.get("Retry-After", "")
            time.sleep(min(float(wait) if wait.isdigit() else 0.5 * 2**trial, 30.0))
        return answer

    def _refusal(self, answer: requests.Response) -> ValueError:
        hint = ""
        if answer.status_code in (401, 403):
            hint = f" (a key goes into {' or '.join(self._key_variables)})"
        elif self.ranker.model is None and "model" in answer.text.lower():
            hint = " (model=NAME says which of its rankers is asked)"
        return ValueError(
            f"{self.endpoint} answers {answer.status_code}{hint}: {answer.text[:300]}"
        )


class RemoteScorer(ServerScorer):
    """Scores of a rerank endpoint, raw logits where the server gives them (``raw_scores``).

    ::

        RemoteScorer("https://api.cohere.com/v2", model="rerank-v3.5")
    """

    def __init__(self, url: str, model: str | None = None) -> None:
        """
        Args:
            url: of the server, or of its endpoint where that is not ``/rerank``.
            model: which of its rankers; hosted ones must be told.
        """
        path = urlsplit(url).path.rstrip("/")
        endpoint = url.rstrip("/") if path.endswith("rerank") else f"{url.rstrip('/')}/rerank"
        super().__init__(RemoteRanker(url, model), endpoint)
        self._forms = [self._own_form, self._texts_form, self._plain_form]

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

    def _asked(self, query: str, documents: list[str]) -> np.ndarray:
        """Scores [m] of one query's documents, in the form of request that the server reads."""
        for form in self._forms:
            scores, answer = form(query, documents)
            if scores is not None:
                self._forms = [form]
                return scores
        # The last form has the least fields: its refusal says what the server misses.
        raise self._refusal(answer)

    def _own_form(
        self, query: str, documents: list[str]
    ) -> tuple[np.ndarray | None, requests.Response]:
        """With the fields that give logits, which this project's server and vLLM read."""
        body = {"query": query, "documents": documents}
        return self._in_one_part({**body, "raw_scores": True, "return_documents": False})

    def _plain_form(
        self, query: str, documents: list[str]
    ) -> tuple[np.ndarray | None, requests.Response]:
        """What the schemas of Cohere, Jina and Voyage have in common."""
        return self._in_one_part({"query": query, "documents": documents})

    def _in_one_part(self, body: dict[str, Any]) -> tuple[np.ndarray | None, requests.Response]:
        """Scores, and the answer; None where the server does not read this form."""
        if self.ranker.model is not None:
            body["model"] = self.ranker.model
        answer = self._post(body)
        if answer.status_code in REFUSED:
            return None, answer
        return self._scores(answer, len(body["documents"])), answer

    def _texts_form(
        self, query: str, documents: list[str]
    ) -> tuple[np.ndarray | None, requests.Response]:
        """That of text-embeddings-inference, which takes few texts at a time."""
        parts = []
        for start in range(0, len(documents), TEXTS):
            texts = documents[start : start + TEXTS]
            answer = self._post({"query": query, "texts": texts, "raw_scores": True})
            if not answer.ok:
                return None, answer
            parts.append(self._scores(answer, len(texts)))
        return np.concatenate(parts), answer

    def _scores(self, answer: requests.Response, count: int) -> np.ndarray:
        if not answer.ok:
            raise self._refusal(answer)
        scores = np.full(count, np.nan, dtype=np.float32)
        try:
            content = answer.json()
            results = content
            if isinstance(content, dict):  # Voyage has its results under another name
                results = content["results"] if "results" in content else content["data"]
            for result in results:
                # TEI's name is the second; that of all others is the first.
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
