"""Servers on loopback that take and give JSON, for the length of a ``with`` block."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Subclass it with a :meth:`post` that answers."""

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        self.post(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def post(self, body: Any) -> None:
        """Answer what was sent."""
        raise NotImplementedError

    def answer(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer."""
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
