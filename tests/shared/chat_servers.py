"""A small server that speaks OpenAI's chat protocol, and can be told to misbehave."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, dict[str, str], bytes]
LOST = "lost"
"""Instead of a reply: the connection is closed without one."""


class ChatServer(ThreadingHTTPServer):
    """Orders passages by the number in ``worth 7``, highest first; ``trouble(n, body)`` may reply
    in its place.

    ``n`` counts requests from 1. ``bodies`` and ``headers`` are what was asked; ``most`` is how
    many requests were on their way at the same time.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int = 0, seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.seconds = seconds
        self.trouble: Callable[[int, dict], Reply | str | None] = lambda number, body: None
        self.bodies: list[dict] = []
        self.headers: list[Message] = []
        self.active = self.most = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address) -> None:
        """Clients that time out leave; nothing to tell."""


class Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.headers.append(self.headers)
            number = len(server.bodies)
            server.active += 1
            server.most = max(server.most, server.active)
        try:
            time.sleep(server.seconds)
            reply = server.trouble(number, body)
        finally:
            with server.lock:
                server.active -= 1
        if reply == LOST:
            self.close_connection = True
            return
        if reply is None:
            reply = (
                completion(answer_to(body))
                if self.path == "/v1/chat/completions"
                else (404, {}, b"no such page")
            )
        status, headers, content = reply
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments) -> None:
        """No log."""


def answer_to(body: dict) -> str:
    """The order by worth; the passages are read out of the messages."""
    talk = "\n".join(
        message["content"] for message in body["messages"] if message["role"] == "user"
    )
    worth = {
        int(name): int(number) for name, number in re.findall(r"\[(\d+)\][^\[]*?worth (\d+)", talk)
    }
    return " > ".join(f"[{name}]" for name in sorted(worth, key=lambda name: -worth[name]))


def completion(
    text: object, prompt_tokens: int = 100, completion_tokens: int = 10, finish: str = "stop"
) -> Reply:
    """A chat completion as OpenAI's server gives it."""
    message = {"role": "assistant", "content": text}
    record = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }
    return 200, {}, json.dumps(record).encode()


def complaint(
    status: int, message: str = "no", headers: dict[str, str] | None = None, code: str | None = None
) -> Reply:
    """An error as OpenAI's server gives it."""
    return status, headers or {}, json.dumps({"error": {"message": message, "code": code}}).encode()


@contextmanager
def serving(port: int = 0, seconds: float = 0.0):
    """A server that runs in the background."""
    server = ChatServer(port, seconds)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
