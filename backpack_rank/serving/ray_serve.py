"""The server as a Ray Serve application: replicas of it, on one machine or several."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve

from backpack_rank.reranking.load import load
from backpack_rank.serving.app import create_app
from backpack_rank.serving.command import DRAIN
from backpack_rank.serving.jobs import Served
from backpack_rank.serving.kinds import served
from backpack_rank.serving.settings import ServerSettings, read_api_key

_LOADING = 3600
"""Seconds after which a ranker that is still being loaded counts as one that cannot be."""


def deployment(
    rankers: Mapping[str, str | Path],
    settings: ServerSettings | None = None,
    load_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> serve.Application:
    """An application for ``serve.run``; each replica loads the rankers and has a queue of its own.

    Args:
        rankers: folders or hub ids by the names that requests ask for; every machine must reach the
            folders.
        settings: limits of a replica, and access; by default with the key of the environment. Where
            the server listens is Ray's to say, in ``serve.start(http_options=...)``.
        load_options: of :func:`backpack_rank.load`.
        options: of ``serve.deployment``, such as ``num_replicas``; they win over what follows from
            the settings.

    Raises:
        ValueError: no ranker is given, or the key is wrong.
    """
    if not rankers:
        raise ValueError("give rankers, as {name: folder}")
    settings = settings or ServerSettings(api_key=read_api_key())
    loaders = {}
    for name, source in rankers.items():
        # Absolute, since a replica has another working folder.
        loaders[name] = partial(_load, name, _absolute(source), dict(load_options or {}))

    def build() -> FastAPI:  # in the replica, since neither threads nor locks can be sent there
        return create_app(loaders, settings)

    limits = {
        "max_ongoing_requests": settings.max_requests,
        "max_queued_requests": settings.max_requests,
        "graceful_shutdown_timeout_s": DRAIN,
    }
    return serve.deployment(**{"name": "backpack_rank", **limits, **options})(
        serve.ingress(build)(Replica)
    ).bind()


class Replica:
    """Ray adds the application to it, as ``app``."""

    app: FastAPI

    async def check_health(self) -> None:
        """Answer Ray, which calls it to learn about the replica.

        Its first call says that the replica may get requests, and any failure that it is replaced.
        """
        batcher = self.app.state.batcher
        if not batcher.ready:
            await asyncio.to_thread(batcher.wait_until_ready, _LOADING)
        if not batcher.ready:
            reason = batcher.failure or "its rankers were not loaded in time"
            raise RuntimeError(f"the replica cannot score: {reason}")


def _absolute(source: str | Path) -> str:
    folder = Path(source).expanduser()
    return str(folder.resolve() if folder.exists() else source)


def _load(name: str, source: str, options: Mapping[str, Any]) -> Served:
    return served(name, load(source, **options))
