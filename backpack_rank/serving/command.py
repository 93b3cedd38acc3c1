"""``backpack-rank serve``: from options to a running server."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from backpack_rank.checks import UsageError
from backpack_rank.data.long_documents import CUT
from backpack_rank.files import RANKER
from backpack_rank.models.finding import find_ranker
from backpack_rank.pipelines.libraries import quiet_libraries
from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.serving.app import create_app
from backpack_rank.serving.demo import examples_of_run
from backpack_rank.serving.jobs import Served
from backpack_rank.serving.kinds import served
from backpack_rank.serving.settings import KEY_VARIABLE, Example, ServerSettings, read_api_key

DRAIN = 30
"""Seconds that requests on their way have when the server is told to stop."""


class JsonLines(logging.Formatter):
    """A JSON object per line; ``extra={"fields": ...}`` of a record are keys of it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**line, **getattr(record, "fields", {})})


class Unread:
    """A stream that stays usable when its reader has gone, as behind ``| head -1``.

    What is written then goes nowhere.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of a file."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._write_nowhere()
            return len(text)

    def flush(self) -> None:
        """As of a file."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._write_nowhere()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _write_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class Server(uvicorn.Server):
    """Stops when the rankers cannot be loaded, and with a line when a signal asks for it.

    Attributes:
        stopped_by: number of the signal, or None.
    """

    stopped_by: int | None = None

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=DRAIN,
            )
        )
        self._batcher = app.state.batcher

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and SIGHUP let requests on their way end.

        Under nohup a SIGHUP stays ignored.
        """
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks for the end, a second one is it."""
        name = signal.Signals(sig).name
        if self.stopped_by is not None:
            logging.info("%s again: ended at once", name)
            os._exit(128 + sig)  # threads that tokenise would be waited for
        self.stopped_by = sig
        self.should_exit = True
        logging.info("%s: no further requests; those on their way have %d seconds", name, DRAIN)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._batcher.failure is not None


def run(options: Namespace) -> None:
    """Serve until the process is told to stop.

    Raises:
        UsageError: an option that is wrong, or a ranker that cannot be loaded.
    """
    with redirect_stdout(Unread(sys.stdout)), redirect_stderr(Unread(sys.stderr)):
        _run(options)


def _run(options: Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # A progress bar between lines of JSON would break whoever reads them.
    quiet_libraries()
    try:
        settings = settings_of(options)
        app = create_app(loaders_of(options), settings)
    except (OSError, ValueError) as error:
        raise UsageError(f"backpack-rank serve: {error}") from error
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = socket.create_server(
            (settings.host, settings.port), family=family, backlog=2048
        )
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"backpack-rank serve: cannot listen at {settings.host}:{settings.port}: {error}"
        ) from error
    logging.info(
        "http://%s:%d, API at /docs; loading rankers", settings.host, listening.getsockname()[1]
    )
    server = Server(app)
    server.run([listening])
    if (failure := app.state.batcher.failure) is not None:
        raise UsageError(f"backpack-rank serve: {failure}")
    if server.stopped_by is not None:
        raise SystemExit(128 + server.stopped_by)


def settings_of(options: Namespace) -> ServerSettings:
    """Limits and access.

    Raises:
        FileNotFoundError: the file of the key does not exist.
        ValueError: a limit is wrong, or other machines would reach a server without a key.
    """
    settings = ServerSettings(
        host=options.host,
        port=options.port,
        api_key=read_api_key(options.api_key_file),
        allowed_hosts=tuple(name.lower() for name in options.allowed_host),
        cors_origins=tuple(options.cors_origin),
        allow_amplification=options.allow_amplification,
        max_body=options.max_body,
        max_documents=options.max_documents,
        max_queue_tokens=options.max_queue_tokens,
        max_requests=options.max_requests,
        timeout=options.timeout,
        examples=_examples(options.examples_run, options.examples_data),
    )
    # Looked at here, or a wrong value would be an error of loading.
    CUT.changed(options.long_documents, options.max_chunks_per_doc, options.chunk_overlap)
    if not settings.is_local and settings.api_key is None and not options.no_key:
        raise ValueError(
            f"--host {settings.host} is reached from other machines: set {KEY_VARIABLE} or "
            "--api-key-file, or say --no-key"
        )
    return settings


def _examples(run: str | None, folder: str | None) -> tuple[Example, ...]:
    if run is None and folder is None:
        return ()
    if run is None or folder is None:
        raise ValueError(
            "--examples-run and --examples-data go together: "
            "a TREC run, and the collection it ranks"
        )
    return examples_of_run(run, folder)


def loaders_of(options: Namespace) -> dict[str, Callable[[], Served]]:
    """What loads each ranker, by name; a folder is named after itself, or after its run.

    Raises:
        FileNotFoundError: there is no trained ranker.
        ValueError: a name is given twice, or ``--model`` is not NAME=FOLDER.
    """
    sources: dict[str, str] = {}
    if options.ranker is None:
        _refuse_without_ranker(options)
    if options.ranker is not None or not options.model:
        source = options.ranker
        if source is None:
            source = str(find_ranker(None, "outputs"))
        sources[_name_of(source)] = source
    for text in options.model:
        name, equals, source = text.partition("=")
        if not (name and equals and source):
            raise ValueError(f"--model {text}: give NAME=FOLDER")
        if name in sources:
            raise ValueError(f"--model {text}: {name} is the name of another ranker")
        sources[name] = source
    if options.calibration is not None and len(sources) > 1:
        raise ValueError(
            f"--calibration {options.calibration} is of one ranker, and {len(sources)} are served: "
            "put each one's into its folder"
        )
    return {name: partial(_load, name, source, options) for name, source in sources.items()}


def _refuse_without_ranker(options: Namespace) -> None:
    """Raise ``ValueError`` for what is said of RANKER where none is given."""
    for option in ("server_model", "template", "labels", "pooling"):
        if getattr(options, option) is not None:
            flag = option.replace("_", "-")
            raise ValueError(f"--{flag} is about RANKER, and none is given: name it first")


def _name_of(source: str) -> str:
    """The folder's name, that of its run for a folder ``ranker``, or the hub id."""
    folder = Path(source).expanduser().resolve()
    if not folder.is_dir():
        return source
    if folder.name == RANKER:
        return folder.parent.name
    return folder.name


def _load(name: str, source: str, options: Namespace) -> Served:
    more: dict[str, Any] = {}
    # Rankers of --model say such things in their folders.
    if source == options.ranker:
        more["template"] = options.template
        more["labels"] = None if options.labels is None else options.labels.split(",")
        more["pooling"] = options.pooling
        more["model"] = options.server_model
    reranker = load(
        source,
        attribute=options.attribute,
        device=options.device,
        dtype=options.dtype,
        **more,
        activation=options.activation,
        calibration=options.calibration,
    )
    if isinstance(reranker, PointwiseReranker):
        reranker = reranker.reading(
            options.long_documents, options.max_chunks_per_doc, options.chunk_overlap
        )
    return served(name, reranker)
