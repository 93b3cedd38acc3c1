"""The web application: routes, access, errors and log lines around the queue of the model."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import numpy as np
from fastapi import Depends, FastAPI, Request, params
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backpack_rank import __version__
from backpack_rank.serving.admission import Admission
from backpack_rank.serving.batcher import Batcher
from backpack_rank.serving.bodies import (
    Body,
    ReadBody,
    RequestError,
    RerankBody,
    ScoreBody,
    answer,
    body_schema,
    error_body,
    score_answer,
)
from backpack_rank.serving.demo import add_demo
from backpack_rank.serving.jobs import Budget, Job, RequestOptions, Served, readable
from backpack_rank.serving.metrics import Metrics
from backpack_rank.serving.settings import ServerSettings
from backpack_rank.serving.work import Work, Workplace

log = logging.getLogger("backpack_rank.serving")
T = TypeVar("T")
_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
_SCORE_PATHS = ("/score", "/v1/score")
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
ALPHA_HEADER, POLICY_HEADER = "X-Alpha", "X-Policy"
"""Headers of every answer: where the dial stood, and what acted."""
IGNORED_HEADER, TRUNCATED_HEADER = "X-Ignored-Fields", "X-Truncated"
"""Those of some: fields that did nothing, and how many pairs are read in part."""
_REASONED = (401, 413, 422)
"""Statuses whose log lines have a reason; sentences of others may quote a client's texts."""
_GONE = 499  # nginx's status for a client that has closed the connection


def create_app(
    loaders: Mapping[str, Callable[[], Served]], settings: ServerSettings | None = None
) -> FastAPI:
    """Run the server in a program of your own; rankers load when a server starts it.

    Args:
        loaders: give the rankers, by the names that requests ask for; called in the thread of the
            model.
        settings: limits and access.
    """
    settings = settings or ServerSettings()
    metrics = Metrics()
    batcher = Batcher(loaders, settings.max_queue_tokens, metrics)
    admission = Admission(
        batcher, settings.max_requests, max(settings.max_bytes, settings.max_body)
    )
    workplace = Workplace(settings, batcher, admission)
    service = _Service(workplace, metrics)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        workplace.close()
        await asyncio.to_thread(batcher.stop)

    app = FastAPI(
        title="backpack_rank",
        version=__version__,
        description="Rerank documents at any position of the dial alpha.",
        lifespan=lifespan,
    )
    app.state.batcher, app.state.settings = batcher, settings
    guarded = [Depends(_key_check(settings.api_key))]
    _add_routes(app, service, guarded)
    add_demo(app, workplace, guarded)
    app.add_exception_handler(RequestError, _error_response)
    app.add_exception_handler(HTTPException, _http_error_response)
    app.add_exception_handler(ClientDisconnect, _gone_response)
    app.add_middleware(_Envelope, settings=settings, metrics=metrics, admission=admission)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=[
                "X-Request-Id",
                "Retry-After",
                ALPHA_HEADER,
                POLICY_HEADER,
                IGNORED_HEADER,
                TRUNCATED_HEADER,
            ],
        )
    return app


def _add_routes(app: FastAPI, service: _Service, guarded: list[params.Depends]) -> None:
    """Routes of the API; those with ``guarded`` ask for the key."""
    for path in _PATHS:
        app.post(
            path,
            dependencies=guarded,
            summary="Rerank documents",
            openapi_extra=body_schema(RerankBody),
        )(service.rerank)
    for path in _SCORE_PATHS:
        app.post(
            path,
            dependencies=guarded,
            summary="Score pairs of texts",
            openapi_extra=body_schema(ScoreBody),
        )(service.score)
    app.get("/health", summary="200 once rankers are loaded and warmed up")(service.health)
    app.get("/ready", summary="200 while requests are accepted")(service.ready)
    app.get("/metrics", dependencies=guarded, summary="For Prometheus")(service.metrics_text)
    app.get("/v1/models", dependencies=guarded, summary="Rankers and their policies")(
        service.models
    )


class _Service:
    """What the routes do."""

    def __init__(self, workplace: Workplace, metrics: Metrics) -> None:
        self._workplace = workplace
        self._metrics = metrics

    async def health(self) -> Response:
        self._workplace.admission.check_ready()
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        if not self._workplace.admission.is_open:
            raise RequestError(503, "no requests are accepted now", Retry_After="1")
        return JSONResponse({"status": "ready"})

    async def metrics_text(self) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(self) -> Response:
        """The served rankers in the form of OpenAI's list of models, with their policies."""
        rows = []
        for ranker in self._workplace.batcher.rankers.values():
            row = {
                "id": ranker.name,
                "object": "model",
                "owned_by": "backpack_rank",
                "policies": list(ranker.policies),
                "max_length": ranker.max_length,
            }
            rows.append(row)
        return JSONResponse({"object": "list", "data": rows})

    async def rerank(self, request: Request) -> Response:
        """Documents from best to worst.

        Errors: 400 what cannot be done, 401 wrong key, 404 unknown model, 413 too large,
        415 not JSON, 422 wrong types, 429 queue full (with Retry-After), 503 not ready,
        504 deadline.
        """
        async with self._workplace.work(request, RerankBody) as work:
            job, scores = await self._scored(work)
            return await work.answer(self._ranked_response, request, work.body, job, scores)

    async def score(self, request: Request) -> Response:
        """A score for each pair of texts, in their order, as vLLM has it.

        Errors are those of rerank requests.
        """
        async with self._workplace.work(request, ScoreBody) as work:
            job, scores = await self._scored(work)
            return await work.answer(self._score_response, request, work.body, job, scores)

    async def _scored(self, work: Work[Body]) -> tuple[Job, np.ndarray]:
        """The job of a request, and its logits. [1 + A, m]"""
        job = await work.run(self._job, work.body, work.budget)
        work.notes |= {"policy": _acting(work.body, job), "alpha": work.body.dial}
        scores = await work.scores(job)
        self._metrics.documents.labels(job.served.name).inc(len(job.documents))
        return job, scores

    def _ranked_response(
        self, request: Request, body: RerankBody, job: Job, scores: np.ndarray
    ) -> Response:
        options = self._of_answer(request, body, job, scores)
        content = answer(body, scores, path=request.url.path, **options)
        try:
            return JSONResponse(content, headers=_headers(body, job))
        except RecursionError:
            # The answer holds documents some levels deeper than the request does.
            raise RequestError(
                400, "a document is nested too deep to come back: give return_documents=false"
            ) from None

    def _score_response(
        self, request: Request, body: ScoreBody, job: Job, scores: np.ndarray
    ) -> Response:
        content = score_answer(body, scores, **self._of_answer(request, body, job, scores))
        return JSONResponse(content, headers=_headers(body, job))

    def _of_answer(
        self, request: Request, body: ReadBody, job: Job, scores: np.ndarray
    ) -> dict[str, Any]:
        return {
            "model": job.served.name,
            "request_id": request.scope["state"]["request_id"],
            "tokens": job.tokens,
            "truncated": job.truncated,
            "policy": _acting(body, job),
            "shown": job.served.shown(scores[0], body.dial, body.policy, body.shown_as),
        }

    def _job(self, body: ReadBody, budget: Budget) -> Job:
        """Find everything that can be wrong with a request, before it waits in the queue."""
        ranker = self._workplace.batcher.ranker(body.model)
        if not ranker.policies:
            _refuse_dial(body, ranker.name)
        ranker.check_activation(body.shown_as)
        pairs, cut_queries = body.pairs, 0
        if body.max_tokens_per_query is not None:
            pairs, cut_queries = _with_cut_queries(ranker, pairs, body.max_tokens_per_query)
        options = RequestOptions(
            alphas=[body.dial, *body.alphas_of_curves],
            policy=body.policy,
            max_tokens=body.max_tokens_per_doc,
            long_documents=readable(
                ranker.long_documents_of(body), budget.most_tokens, ranker.max_length
            ),
            instruct=body.instruct,
            budget=budget,
        )
        job = ranker.job_of_pairs(pairs, options)
        _count_cuts(body, ranker, job, cut_queries)
        self._workplace.batcher.check_size(job)
        return job


def _count_cuts(body: ReadBody, ranker: Served, job: Job, cut_queries: int) -> None:
    """Count documents beside a cut query as cut, too.

    Raises:
        RequestError: 422, something is cut, or may be, and the request does not allow it.
    """
    option = "truncate" if body.truncate is False else "truncation"
    cut_documents = job.truncated
    if cut_documents is None:
        if body.may_cut:
            return
        raise RequestError(
            422, f"model {ranker.name} does not say what it cuts: leave {option} out"
        )
    job.truncated = max(cut_documents, cut_queries)
    if job.truncated and not body.may_cut:
        limits = _limits(body, ranker, cut_documents, cut_queries)
        what = "documents" if cut_documents else "documents have a query that"
        raise RequestError(
            422,
            f"{job.truncated} {what} would be cut to {' or '.join(limits)}, and {option} is false",
        )


def _limits(body: ReadBody, ranker: Served, cut_documents: int, cut_queries: int) -> list[str]:
    """What the texts of a request may have been cut to: the limits that it gives come first."""
    limits = []
    if cut_queries:
        limits.append(f"max_tokens_per_query={body.max_tokens_per_query}")
    if cut_documents:
        if body.max_tokens_per_doc is not None:
            limits.append(f"max_tokens_per_doc={body.max_tokens_per_doc}")
        length = f", {ranker.max_length:,} tokens" if ranker.max_length else ""
        limits.append(f"what model {ranker.name} reads together with a query{length}")
    return limits


def _with_cut_queries(
    ranker: Served, pairs: Sequence[tuple[str, str]], tokens: int
) -> tuple[list[tuple[str, str]], int]:
    """The pairs with their queries cut, and how many have another query now."""
    cut = {query: "" for query, _ in pairs}
    for query in cut:
        cut[query] = ranker.cut_query(query, tokens)
    changed = sum(cut[query] != query for query, _ in pairs)
    return [(cut[query], document) for query, document in pairs], changed


def _headers(body: ReadBody, job: Job) -> dict[str, str]:
    """What was done: the list that clients of TEI read has no room for it."""
    headers = {ALPHA_HEADER: f"{body.dial:g}", POLICY_HEADER: _acting(body, job) or "none"}
    if job.truncated:
        headers[TRUNCATED_HEADER] = str(job.truncated)
    if body.ignored:
        headers[IGNORED_HEADER] = ", ".join(body.ignored)
    return headers


async def _gone_response(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_GONE)


def _acting(body: ReadBody, job: Job) -> str | None:
    """The policy that a request's scores come from."""
    queries = {query for query, _ in body.pairs}
    return job.served.policy_that_acts(queries, body.policy, [body.dial, *body.alphas_of_curves])


def _refuse_dial(body: ReadBody, name: str) -> None:
    fields = []
    for field in ("alpha", "alphas", "policy"):
        if getattr(body, field, None) is not None:
            fields.append(field)
    if fields:
        raise RequestError(400, f"model {name} has no dial: leave out {' and '.join(fields)}")


def _key_check(key: str | None) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        if key is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        right = secrets.compare_digest(given.strip().encode(), key.encode())
        if kind.lower() != "bearer" or not right:
            raise RequestError(
                401, "send the key as Authorization: Bearer KEY", WWW_Authenticate="Bearer"
            )

    return check


class _Envelope:
    """What stands around every request.

    Its id, the Host check, a log line, metrics, and an answer when something breaks.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, admission: Admission
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        notes: dict[str, Any] = {}
        scope.setdefault("state", {}).update(request_id=request_id, notes=notes)
        started = time.monotonic()
        status: int | None = None

        async def tracked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", request_id.encode())],
                }
            await send(message)

        try:
            refusal = self._refusal(headers)
            app = self._app if refusal is None else _response(refusal)
            await app(scope, receive, tracked)
        except Exception as error:
            # Only where it happened: a message may have a client's text in it.
            log.error(
                "%s:\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            )
            if status is None:
                with suppress(Exception):
                    await _response(RequestError(500, "the server has made a mistake"))(
                        scope, receive, tracked
                    )
        finally:
            if "bytes" in scope["state"]:
                self._admission.give_back(scope["state"]["bytes"])
            self._report(scope, request_id, status or 500, time.monotonic() - started, notes)

    def _refusal(self, headers: Mapping[str, str]) -> RequestError | None:
        """Why a request does not reach the routes; None for one that does."""
        if {"content-length", "transfer-encoding"} <= headers.keys():
            # Programs in front of a server may take the one and the server the other: two
            # requests for one.
            return RequestError(
                400, "send Content-Length or Transfer-Encoding, not both", Connection="close"
            )
        host = headers.get("host", "")
        if not self._settings.answers_host(host):
            return RequestError(
                400, f"this server does not answer as {host[:80]!r}; see --allowed-host"
            )
        return None

    def _report(
        self, scope: Scope, request_id: str, status: int, seconds: float, notes: dict[str, Any]
    ) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if status >= 400 and route in (*_PATHS, *_SCORE_PATHS):
            self._metrics.rejected.labels(str(status)).inc()
        if route in ("/health", "/ready", "/metrics") and status == 200:
            return
        line = {"id": request_id, "method": scope["method"], "route": route, "status": status}
        log.info("request", extra={"fields": {**line, "ms": round(1000 * seconds, 1), **notes}})


def _response(error: RequestError) -> Response:
    return JSONResponse(error_body(error), error.status, headers=error.headers)


async def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    if error.status in _REASONED:
        request.scope["state"]["notes"]["reason"] = error.for_log
    return _response(error)


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    headers = dict(error.headers or {})
    if error.status_code == 405 and "Allow" in headers:
        message = f"{request.method} does nothing at {request.url.path}: use {headers['Allow']}"
    return _response(RequestError(error.status_code, message, False, **headers))
