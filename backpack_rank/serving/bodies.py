"""Bodies of requests, answers and errors.

They have the forms of Jina, Cohere, vLLM and text-embeddings-inference (TEI).

A body with ``documents`` is answered with an object, one with ``texts`` with a list, as TEI does
it.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.special import expit

from backpack_rank.data.json_lines import unique_keys
from backpack_rank.progress import printable
from backpack_rank.reranking.rankings import reaches
from backpack_rank.serving.settings import MAX_ALPHAS, ServerSettings

_TYPES = {
    400: "invalid_request",
    401: "authentication",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    422: "validation",
    429: "overloaded",
    503: "unavailable",
    504: "timeout",
}


_LONGEST_INSTRUCTION = 10_000
"""Characters: an instruction is never cut, as documents are."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape of half a surrogate pair; of whole pairs, each half matches."""


class RequestError(Exception):
    """A request that is not answered with scores.

    Attributes:
        status: of HTTP.
        message: what to do about it.
        for_log: the message without a client's words, where it has some.
        headers: of the answer.
        as_text: whether ``error`` is the message itself, as clients of TEI read it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        as_text: bool = False,
        for_log: str | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.for_log = message if for_log is None else for_log
        self.as_text = as_text
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


FOREIGN_FIELDS = frozenset(
    {
        # Cohere, Jina, Voyage
        "priority",
        "return_embeddings",
        "top_k",
        "user",
        # text-embeddings-inference
        "truncation_direction",
        # vLLM
        "additional_data",
        "cache_salt",
        "mm_processor_kwargs",
        "request_id",
        "truncate_prompt_tokens",
        "truncation_side",
        "use_activation",
        # LiteLLM
        "max_query_length",
        "encoding_format",
    }
)
"""Fields of the servers whose requests are read here that do nothing: answers list them as
``ignored``.
"""


class ReadBody(BaseModel):
    """What every request may say of the ranker, of the dial and of how texts are read."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = Field(
        None, description="name of a served ranker; the first one if left out"
    )
    alpha: float | None = Field(
        None, description="the dial: 1 leaves the ranker as it is, 0 removes what it can"
    )
    policy: str | None = Field(None, description="what alpha acts by")
    raw_scores: bool = Field(False, description="logits in place of their sigmoid")
    activation: Literal["logits", "sigmoid", "calibrated"] | None = Field(
        None,
        description="what scores are shown as; calibrated: probabilities of relevance. "
        "Default: that of the server, or a sigmoid",
    )
    instruct: str | None = Field(
        None, description="instruction of a prompted ranker, in place of its template's"
    )
    max_tokens_per_doc: int | None = Field(
        None, ge=1, description="cut documents to as many tokens"
    )
    max_tokens_per_query: int | None = Field(
        None, ge=1, description="cut the query to as many tokens"
    )
    truncate: bool | None = Field(
        None, description="false: refuse what would be cut, as TEI does; default: cut it"
    )
    truncation: bool | None = Field(None, description="the same in the words of Voyage")
    long_documents: Literal["cut", "chunks"] | None = Field(
        None,
        description="read the beginning of a long document, or chunks, of which the best counts",
    )
    long_document_strategy: Literal["truncate", "chunk"] | None = Field(
        None, description="the same in the words of Elasticsearch"
    )
    max_chunks_per_doc: int | None = Field(
        None, ge=1, description="read long documents in so many chunks at most"
    )
    chunk_overlap: int | None = Field(
        None, ge=0, description="tokens that a chunk shares with the one before it"
    )
    timeout: float | None = Field(
        None, gt=0, description="seconds after which the request is given up"
    )

    @property
    def alphas_of_curves(self) -> list[float]:
        """Further positions of the dial that scores are wanted at."""
        return []

    @property
    def dial(self) -> float:
        """Position of the dial: 1, the unchanged ranker, where the request names none."""
        return 1.0 if self.alpha is None else self.alpha

    @property
    def shown_as(self) -> str | None:
        """The activation that the request names, if any."""
        return "logits" if self.raw_scores else self.activation

    @property
    def strategy(self) -> str | None:
        """How long documents are read; None: as the ranker is served.

        Who says how many chunks are read asks for chunks, as at Cohere.
        """
        if self.long_documents is not None:
            return self.long_documents
        if self.long_document_strategy is not None:
            return {"truncate": "cut", "chunk": "chunks"}[self.long_document_strategy]
        if self.max_chunks_per_doc is not None or self.chunk_overlap is not None:
            return "chunks"
        return None

    @property
    def may_cut(self) -> bool:
        """Whether texts that are too long are cut; else they are refused."""
        return self.truncate is not False and self.truncation is not False

    @property
    def as_list(self) -> bool:
        """Whether the answer is a list, and errors are as clients of TEI read them."""
        return False

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Query and document of each score."""
        raise NotImplementedError

    @property
    def ignored(self) -> list[str]:
        """Fields of other servers that the request has, and that do nothing here."""
        return sorted(self.__pydantic_extra__ or ())


class RerankBody(ReadBody):
    """A query and its documents."""

    query: str
    documents: list[str | dict[str, Any]] | None = Field(
        None, description="texts, or objects with a `text`"
    )
    rank_fields: list[str] | None = Field(
        None, description="which fields of objects are read, one below the other; default: `text`"
    )
    texts: list[str] | None = Field(
        None, description="in place of documents; the answer is then a list"
    )
    alphas: list[float] | None = Field(
        None, description="also give raw scores at these alphas, as `curves`"
    )
    top_n: int | None = Field(None, ge=0, description="as many results at most; 0: all")
    return_documents: bool | None = Field(
        None, description="with texts in the results; default: except on /v2/rerank"
    )
    return_text: bool = Field(False, description="the same for `texts`")
    score_threshold: float | None = Field(None, description="leave out results with lower scores")

    @property
    def alphas_of_curves(self) -> list[float]:
        return list(self.alphas or ())

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(self.query, passage) for passage in self.passages]

    @property
    def as_list(self) -> bool:
        """Whether the answer is a list."""
        return self.texts is not None

    @property
    def passages(self) -> list[str]:
        """Texts of the documents."""
        documents: list[Any] = self.texts if self.texts is not None else self.documents or []
        texts = []
        for document in documents:
            if isinstance(document, str):
                texts.append(document)
            else:
                texts.append("\n".join(document[name] for name in self.read_fields))
        return texts

    @property
    def read_fields(self) -> list[str]:
        """Fields of documents that are objects."""
        return self.rank_fields or ["text"]


class ScoreBody(ReadBody):
    """Pairs of texts, as vLLM scores them: one text and several, or two lists of equal length."""

    text_1: str | list[str] | None = Field(None, description="the query, or a query for each text")
    text_2: str | list[str] | None = Field(None, description="the documents")
    queries: str | list[str] | None = Field(None, description="text_1 in vLLM's newer words")
    documents: str | list[str] | None = Field(None, description="text_2 in vLLM's newer words")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        queries = _listed(self.text_1 if self.queries is None else self.queries)
        documents = _listed(self.text_2 if self.documents is None else self.documents)
        if len(queries) == 1:
            queries = queries * len(documents)
        return list(zip(queries, documents, strict=True))


def _listed(texts: str | list[str] | None) -> list[str]:
    return [texts] if isinstance(texts, str) else texts or []


Body = TypeVar("Body", bound=ReadBody)


def body_schema(kind: type[ReadBody]) -> dict[str, Any]:
    """For the OpenAPI description: bodies are read by hand, so FastAPI cannot see their fields."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"content": content, "required": True}}


def read_body(raw: bytes, settings: ServerSettings, kind: type[Body]) -> Body:
    """A request from its JSON.

    Args:
        raw: the JSON.
        settings: with the limits.
        kind: what the route takes.

    Raises:
        RequestError: 400, 413 or 422.
    """
    text, content = _parsed(raw)
    as_text = isinstance(content, dict) and "texts" in content
    try:
        if not isinstance(content, dict):
            raise RequestError(422, "the body must be an object with query and documents")
        _check_characters(text, content)
        _check_count(content, settings)
        _check_names(content, kind)
        try:
            body = kind.model_validate(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise RequestError(422, f"{_place(first['loc'])}: {first['msg']}") from None
        _check(body, settings)
    except RequestError as error:
        error.as_text = as_text
        raise
    return body


def _parsed(raw: bytes) -> tuple[str, Any]:
    """A body as text, and what it holds.

    Raises:
        RequestError: 400.
    """
    try:
        text = raw.decode(json.detect_encoding(raw))
        content = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:
        message = "the body is not JSON"
        # A key that stands twice is named; other sentences of the parser may hold a client's text.
        if "stands twice" in str(error):
            message += f": {error}"
        raise RequestError(400, message) from None
    return text, content


def _finite(number: str) -> float:
    """A number of a body, or what Python takes for one: NaN, Infinity, and 1e999, which is one."""
    value = float(number)
    if not math.isfinite(value):
        raise RequestError(400, f"{number[:40]} in the body: every number must be finite")
    return value


def _check_characters(text: str, content: dict[str, Any]) -> None:
    """Refuse half a surrogate pair anywhere: no answer can be written that has it.

    Args:
        text: of the body.
        content: what it holds.
    """
    # Halves can only come from escapes. To write everything back takes as long as to read it, so it
    # is done where there are such escapes alone.
    if _SURROGATE.search(text) is None:
        return
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(422, "a text has half a surrogate pair, which is no character") from None


def _check_count(content: dict[str, Any], settings: ServerSettings) -> None:
    limits = {
        "documents": settings.max_documents,
        "texts": settings.max_documents,
        "text_1": settings.max_documents,
        "text_2": settings.max_documents,
        "queries": settings.max_documents,
        "alphas": MAX_ALPHAS,
    }
    for name, most in limits.items():
        given = content.get(name)
        if isinstance(given, list) and len(given) > most:
            raise RequestError(
                413, f"{len(given):,} {name}: this server takes {most:,} in a request"
            )


def _check_names(content: dict[str, Any], kind: type[ReadBody]) -> None:
    """Refuse fields that neither this server nor those that it speaks for know.

    A wrong letter in ``alpha`` would serve undialled rankings for good.
    """
    known = kind.model_fields.keys()
    for name in content:
        if name in known or name in FOREIGN_FIELDS:
            continue
        close = get_close_matches(name, [*known, *FOREIGN_FIELDS], n=1)
        hint = f": did you mean {close[0]}?" if close else ""
        raise RequestError(
            422,
            f"{printable(name[:80])} is no field of a request{hint}",
            for_log=f"a name is no field of a request{hint}",
        )


def _place(location: Sequence[int | str]) -> str:
    """A place in a request, such as ``documents[0].text``."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        # pydantic names the branch of a union that it tried, which is no field of the request.
        elif not part.startswith(("function-", "dict[")) and part not in ("str", "float", "int"):
            place += f".{part}" if place else part
    return place


def _check(body: ReadBody, settings: ServerSettings) -> None:
    if isinstance(body, RerankBody):
        _check_rerank(body)
    if isinstance(body, ScoreBody):
        _check_score(body)
    if body.instruct is not None and not 0 < len(body.instruct.strip()) <= _LONGEST_INSTRUCTION:
        raise RequestError(
            422, f"instruct must be a text of at most {_LONGEST_INSTRUCTION:,} characters"
        )
    if body.raw_scores and body.activation not in (None, "logits"):
        raise RequestError(
            400,
            f"raw_scores and activation={body.activation} are two things: leave one of them out",
        )
    alphas = body.alphas_of_curves
    if body.alpha is not None:
        alphas.insert(0, body.alpha)
    for alpha in alphas:
        if not math.isfinite(alpha) or alpha < 0:
            raise RequestError(400, f"alpha={alpha} must be a finite number >= 0")
        if alpha > 1 and not settings.allow_amplification:
            raise RequestError(400, f"alpha={alpha}: this server takes alpha in [0, 1]")
    if body.long_documents is not None and body.long_document_strategy is not None:
        raise RequestError(
            400, "long_documents and long_document_strategy say the same: give one of them"
        )
    if True in (body.truncate, body.truncation) and not body.may_cut:
        raise RequestError(400, "truncate and truncation say the same: give one of them")


def _check_rerank(body: RerankBody) -> None:
    if (body.documents is None) == (body.texts is None):
        raise RequestError(422, "give either documents or texts")
    if body.rank_fields == []:
        raise RequestError(422, "rank_fields is empty: name a field of the documents")
    for number, document in enumerate(body.documents or ()):
        if isinstance(document, str):
            continue
        for name in body.read_fields:
            if not isinstance(document.get(name), str):
                shown = printable(name[:80])
                raise RequestError(
                    422,
                    f"documents[{number}]: an object needs a {shown}",
                    for_log=f"documents[{number}]: an object lacks a field that is read",
                )
    if not body.query.strip():
        raise RequestError(400, "query is empty")
    if not body.passages:
        raise RequestError(400, "documents is empty: give one at least")
    if body.score_threshold is not None and not math.isfinite(body.score_threshold):
        raise RequestError(400, "score_threshold must be a finite number")
    if body.alphas == []:
        raise RequestError(400, "alphas is empty")


def _check_score(body: ScoreBody) -> None:
    sides = []
    for names in (("text_1", "queries"), ("text_2", "documents")):
        given = [name for name in names if getattr(body, name) is not None]
        if len(given) != 1:
            raise RequestError(422, f"give either {names[0]} or {names[1]}")
        texts = _listed(getattr(body, given[0]))
        if not texts:
            raise RequestError(400, f"{given[0]} is empty: give one text at least")
        sides.append(texts)
    queries, documents = sides
    if len(queries) not in (1, len(documents)):
        raise RequestError(
            400,
            f"{len(queries)} and {len(documents)} texts: give one and several, or as many of both",
        )
    if not all(query.strip() for query in queries):
        raise RequestError(400, "a query is empty")


def answer(
    body: RerankBody,
    scores: np.ndarray,
    *,
    path: str,
    model: str,
    request_id: str,
    tokens: int,
    truncated: int | None,
    policy: str | None = None,
    shown: np.ndarray | None = None,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Documents from best to worst, in the form that the request's family reads.

    Results are in the order of the logits, which a sigmoid in half precision would not keep apart.

    Args:
        body: the request.
        scores: raw logits at alpha, then at each of ``alphas``. [1 + A, m]
        path: of the request; Cohere's version 2 does not return documents.
        model, request_id, tokens: for the answer.
        truncated: documents that were read in part, or beside a part of the query; None where the
            ranker does not say.
        policy: that acted, or None.
        shown: what the request gets in place of the logits at alpha; None: their sigmoid, or the
            logits where it asks for them. [m]
    """
    logits = scores[0].astype(np.float64)
    # Stable: equal scores stay in the order of the request.
    order = np.argsort(-logits, kind="stable")
    shown = _shown(body, logits, shown)
    reached = reaches(shown, body.score_threshold)
    order = order[reached[order]].tolist()
    if body.top_n:
        order = order[: body.top_n]
    if body.as_list:
        return _results_of_tei(body, order, shown)

    with_documents = body.return_documents
    if with_documents is None:
        with_documents = not path.startswith("/v2")
    results: list[dict[str, Any]] = []
    for place in order:
        row = {"index": place, "relevance_score": float(shown[place])}
        if with_documents:
            # An object comes back whole, with the id or address that its sender knows it by.
            document = (body.documents or [])[place]
            row["document"] = {"text": document} if isinstance(document, str) else document
        results.append(row)
    content = {
        "object": "rerank",
        "id": request_id,
        "model": model,
        "results": results,
        **_what_was_done(body, tokens, truncated, policy),
    }
    if body.score_threshold is not None:
        content["below_threshold"] = int((~reached).sum())
    if body.alphas is not None:
        curves = []
        for scores_of_document in scores[1:].T:
            # Through text: the digits of a float32, and not the seventeen of the float64 that
            # stands for it.
            curves.append([float(str(score)) for score in scores_of_document])
        content["curves"] = {"alphas": body.alphas, "scores": curves}
    return content


def score_answer(
    body: ScoreBody,
    scores: np.ndarray,
    *,
    model: str,
    request_id: str,
    tokens: int,
    truncated: int | None,
    policy: str | None,
    shown: np.ndarray | None,
) -> dict[str, Any]:
    """A score for each pair, in their order, in vLLM's form; arguments as of :func:`answer`."""
    logits = scores[0].astype(np.float64)
    rows = []
    for place, score in enumerate(_shown(body, logits, shown).tolist()):
        rows.append({"index": place, "object": "score", "score": score})
    return {
        "id": request_id,
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": rows,
        **_what_was_done(body, tokens, truncated, policy),
    }


def _shown(body: ReadBody, logits: np.ndarray, shown: np.ndarray | None) -> np.ndarray:
    """What is shown in place of the logits, by default their sigmoid. [m]"""
    if shown is not None:
        return shown
    return logits if body.shown_as == "logits" else np.asarray(expit(logits))


def _what_was_done(
    body: ReadBody, tokens: int, truncated: int | None, policy: str | None
) -> dict[str, Any]:
    """What every answer says of the work and of the dial."""
    content: dict[str, Any] = {
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "truncated": truncated,
        "alpha": body.dial,
        "policy": policy,
    }
    if body.ignored:
        content["ignored"] = body.ignored
    return content


def _results_of_tei(body: RerankBody, order: list[int], shown: np.ndarray) -> list[dict[str, Any]]:
    """The answer to ``texts``: nothing but the results."""
    passages = body.passages
    results: list[dict[str, Any]] = []
    for place in order:
        row: dict[str, Any] = {"index": place, "score": float(shown[place])}
        if body.return_text:
            row["text"] = passages[place]
        results.append(row)
    return results


def error_body(error: RequestError) -> dict[str, Any]:
    """An error in one body that every kind of client reads.

    Cohere reads ``message``, Haystack ``detail``, OpenAI and vLLM ``error.message``, and TEI
    ``error``.
    """
    kind = _TYPES.get(error.status, "server_error")
    body: dict[str, Any] = {"message": error.message, "detail": error.message}
    if error.as_text:
        return {**body, "error": error.message, "error_type": kind}
    return {**body, "error": {"message": error.message, "type": kind, "code": error.status}}
