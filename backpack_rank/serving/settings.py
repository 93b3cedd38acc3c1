"""What a server accepts and whom it answers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from backpack_rank.checks import above

KEY_VARIABLE = "BACKPACK_RANK_API_KEY"
MAX_ALPHAS = 201
"""Positions of the dial in one request."""


@dataclass(frozen=True)
class Example:
    """A query with documents, in the order of a first stage."""

    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True)
class ServerSettings:
    """Limits and access; the defaults are safe on a machine with other users.

    Attributes:
        host, port: where the server listens.
        api_key: bearer key that requests must show; None asks for none.
        allowed_hosts: names in the Host header that are answered besides the own ones; ``*``
            answers all.
        cors_origins: web pages of other origins that may read answers.
        allow_amplification: whether alpha may be above 1.
        max_body: bytes of a request.
        max_documents: of a request.
        max_queue_tokens: tokens that wait or are scored at a time; a request with more is never
            accepted.
        max_requests: requests that are read, wait or are scored at a time.
        max_bytes: of the bodies of all these together, those below 64 kB aside; further ones wait
            for their turn.
        timeout: seconds after which a request is given up; a request may ask for less.
        tokenizer_threads: threads that read and tokenise requests.
        examples: queries with documents that the page at ``/`` offers; none: some of the synthetic
            collection.

    Raises:
        ValueError: a limit is not positive.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allow_amplification: bool = False
    max_body: int = 8_000_000
    max_documents: int = 1_000
    max_queue_tokens: int = 1_000_000
    max_requests: int = 256
    max_bytes: int = 32_000_000
    timeout: float = 60.0
    tokenizer_threads: int = 2
    examples: tuple[Example, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "max_body",
            "max_documents",
            "max_queue_tokens",
            "max_requests",
            "max_bytes",
            "timeout",
            "tokenizer_threads",
        ):
            above(name, getattr(self, name), 0)

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def answers_host(self, header: str) -> bool:
        """Whether a Host header names this server.

        A page that points its own name here (DNS rebinding) does not.

        Beyond the own machine names are not known; there the key keeps pages out, so any name will
        do with one.
        """
        host, _, port = header.rpartition(":")
        name = host if port.isdigit() else header
        names_of_server = {"localhost", "127.0.0.1", "[::1]", self.host, f"[{self.host}]"}
        if name.lower() in names_of_server | set(self.allowed_hosts) or "*" in self.allowed_hosts:
            return True
        return not self.is_local and not self.allowed_hosts and self.api_key is not None


def read_api_key(file: str | Path | None = None) -> str | None:
    """The key from a file, or else from the environment; None where neither has one.

    It is never read from a command line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the key is empty or has blanks in it.
    """
    if file is not None:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    elif KEY_VARIABLE in os.environ:
        key = os.environ[KEY_VARIABLE]
    else:
        return None
    if not key or not key.isascii() or len(key.split()) != 1:
        raise ValueError(f"the key in {file or KEY_VARIABLE} must be one word of ASCII characters")
    return key
