"""Chat completions from a server that speaks OpenAI's protocol.

Requests that fail are sent again; answers are kept on disk.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock

from backpack_rank.checks import above, at_least
from backpack_rank.commands import install
from backpack_rank.digests import digest
from backpack_rank.files import write_text

_FORM = 1
"""Counted up when the form of the files changes; requests of older files are then sent again."""
log = logging.getLogger(__name__)
_PASSING = {408, 409, 425, 429}
"""Statuses that may pass, as may all from 500 on."""
_OF_THE_LIST = {400, 413, 422}
"""Statuses that are about a single request (too long, refused by a filter), unless they come for
every request.
"""
_SECRET = 8
"""A key that is shorter (``EMPTY``, as local servers take it) is no secret."""


@dataclass(frozen=True)
class Answer:
    """What a server answered.

    Attributes:
        text: of the message; empty where there was none.
        finish: why the model stopped, in the server's words (``stop``, ``length``).
        prompt_tokens: read by the model; None where the server does not say.
        generated_tokens: likewise.
    """

    text: str
    finish: str = ""
    prompt_tokens: int | None = None
    generated_tokens: int | None = None

    def __post_init__(self) -> None:
        strings = isinstance(self.text, str) and isinstance(self.finish, str)
        counts = _is_count(self.prompt_tokens) and _is_count(self.generated_tokens)
        if not (strings and counts):
            raise ValueError(
                "no answer: text and finish must be strings, numbers of tokens whole or null"
            )


class ResponseStore:
    """Keeps answers in a folder, so that no request is paid for twice::

        store = ResponseStore(Path("responses"))
        key = store.key(url, body)
        answer = store.read(key)  # None if there is none yet

    It is safe with several threads and processes.

    Attributes:
        folder: holds ``ab/abcd....json``; made when the first answer is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(url: str, body: Mapping[str, Any]) -> str:
        """Digest of all that determines an answer: where the request goes and what it says."""
        parts = [_FORM, url, body]
        request = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return digest(request, size=20)

    def read(self, key: str) -> Answer | None:
        """The answer to a request, or None if there is none yet.

        A damaged file is warned about and counts as none.
        """
        path = self._path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["key"] != key:
                raise ValueError(f"it belongs to {record['key']!r}")
            answer = Answer(**record["answer"])
            checksum = _checksum(answer)
            if record.get("checksum", checksum) != checksum:  # older files have none
                raise ValueError("its checksum is another one")
            return answer
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:  # bad JSON and bad UTF-8 are ValueErrors
            log.warning(
                "%s is damaged (%s: %s); its request is sent again",
                path,
                type(error).__name__,
                error,
            )
            return None

    def write(self, key: str, answer: Answer) -> None:
        """Keep an answer, whole or not at all."""
        record = {"key": key, "answer": asdict(answer), "checksum": _checksum(answer)}
        write_text(self._path(key), json.dumps(record, ensure_ascii=True) + "\n")

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Let in a single thread of all processes with the same key at a time.

        The answer may have come while it waited, so read again inside.
        """
        path = self._path(key).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path):
            yield
            # The answer is written by now, so whoever waits for this lock, or makes a new lock,
            # reads it.
            with suppress(OSError):
                path.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def _checksum(answer: Answer) -> str:
    return digest(json.dumps(asdict(answer)), algorithm="xxh3")


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


class ServerError(OSError):
    """A server that gave no answer.

    Attributes:
        of_list: it refused this request only, and may answer others.
    """

    def __init__(self, message: str, of_list: bool = False) -> None:
        super().__init__(message)
        self.of_list = of_list


class StoppedError(Exception):
    """A request that was not sent again, because a different request failed for good."""


class TransientError(Exception):
    """A trouble that may pass; ``wait`` is how many seconds the server asked for."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class RetryPolicy:
    """Says how often and how long a request is tried.

    >>> policy = RetryPolicy(backoff=1.0)
    >>> 4.0 <= policy.pause(attempt=3, asked=None, rng=random.Random(0)) <= 8.0
    True

    Attributes:
        timeout: seconds without a byte from the server, above 0.
        retries: how often a request is sent again, at least 0.
        backoff: seconds before it is sent again for the first time, doubled each time; at random
            between half of it and all of it, so that requests that failed together do not come back
            together.
        longest_wait: seconds; a server that asks for more (Retry-After) is given up, at least 0.

    Raises:
        ValueError: one is out of range.
    """

    def __init__(
        self,
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 1.0,
        longest_wait: float = 300.0,
    ) -> None:
        above("timeout", timeout, 0)
        at_least("retries", retries, 0)
        at_least("backoff", backoff, 0)
        at_least("longest_wait", longest_wait, 0)
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self.longest_wait = longest_wait

    def pause(self, attempt: int, asked: float | None, rng: random.Random) -> float:
        """Seconds to wait after a failed attempt (from 0), at least what the server asked for."""
        longest = min(self.backoff * 2.0**attempt, self.longest_wait)
        pause = longest * rng.uniform(0.5, 1.0)
        if asked is None:
            return pause
        # A little more than the server asked for, and not the same for all requests.
        return max(asked + pause * 0.1, pause)


class ChatServer:
    """Chat completions of a server, through the ``openai`` package::

        server = ChatServer("http://localhost:8000/v1", key_variable=None, patience=RetryPolicy())
        answer = server.complete({"model": "gpt-4o", "messages": messages}, stop=Event())

    It is safe with several threads.

    The key is read from the environment when a request is sent, and goes nowhere but into its
    header.

    The package sends one attempt at a time. When to ask again is decided here, because the package
    takes any body with status 200 for an answer, and neither bounds nor obeys a long Retry-After.

    Attributes:
        url: of the chat completions.
    """

    def __init__(self, base_url: str, key_variable: str | None, patience: RetryPolicy) -> None:
        """A client of one server.

        Args:
            base_url: up to and with ``/v1``.
            key_variable: name of the environment variable with the key; None for a server without
                keys.
            patience: with requests that fail.

        Raises:
            ValueError: a URL that is none, or that holds a user or a query; a variable that has no
                possible name.
            ImportError: the ``openai`` package is not installed.
        """
        base_url = _checked_url(base_url)
        self.url = f"{base_url}/chat/completions"
        if key_variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key_variable):
            # What was given is not repeated: it may be the key itself.
            raise ValueError(
                "key_variable must be the name of an environment variable, such as OPENAI_API_KEY"
            )
        self._key_variable = key_variable
        self._patience = patience
        # A separate generator: waiting must not change what a seeded experiment draws.
        self._rng = random.Random()
        self._openai = _openai()
        self._client = self._openai.OpenAI(
            # Given with every request: a key that the client knew would outlive a change of the
            # variable.
            api_key="none",
            base_url=base_url,
            max_retries=0,
            timeout=patience.timeout,
            http_client=self._openai.DefaultHttpxClient(
                # A redirect could take the key to another server.
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            ),
        )

    def complete(self, body: Mapping[str, Any], stop: Event) -> Answer:
        """Send a request until it is answered.

        Args:
            body: as the protocol has it.
            stop: when set, the request is not sent again.

        Raises:
            ServerError: refused, or no answer after all attempts; it says what failed last.
            StoppedError: ``stop`` was set.
            ValueError: there is no key, or none that a header can hold.
        """
        key = self._key()
        for attempt in range(self._patience.retries + 1):
            if stop.is_set():
                raise StoppedError
            try:
                return self._once(body, key)
            except TransientError as trouble:
                what, asked = str(trouble), trouble.wait
            if asked is not None and asked > self._patience.longest_wait:
                raise ServerError(f"{what}; it asks to wait {asked:.0f} s, more than longest_wait")
            if attempt < self._patience.retries:
                pause = self._patience.pause(attempt, asked, self._rng)
                log.info("%s: %s; asking again in %.1f s", self.url, what, pause)
                stop.wait(pause)
        raise ServerError(f"{what} ({self._patience.retries + 1} attempts)")

    def _once(self, body: Mapping[str, Any], key: str | None) -> Answer:
        omit = self._openai.Omit()
        headers = {
            "Authorization": omit if key is None else f"Bearer {key}",
            # The package would fill them from OPENAI_ORG_ID and OPENAI_PROJECT_ID, for whatever
            # server.
            "OpenAI-Organization": omit,
            "OpenAI-Project": omit,
        }
        fields = dict(body)
        try:
            response = self._client.chat.completions.with_raw_response.create(
                model=fields.pop("model"),
                messages=fields.pop("messages"),
                extra_body=fields,  # unchecked: servers have fields that the package has not
                extra_headers=headers,
            )
        except self._openai.APITimeoutError as error:
            raise TransientError(f"no answer within {self._patience.timeout:g} s") from error
        except self._openai.APIConnectionError as error:
            cause = error.__cause__ or error
            what = _hidden(f"{type(cause).__name__}: {cause}", key)
            raise TransientError(f"no connection, or lost: {what}") from error
        except self._openai.APIStatusError as error:
            # From None: the package's error holds the answer with the key.
            raise self._refusal(error.response, key) from None
        except self._openai.OpenAIError as error:
            raise ServerError(f"{type(error).__name__}: {_hidden(str(error), key)}") from None
        return _answer(response.content, key)

    def _refusal(self, response: Any, key: str | None) -> ServerError | TransientError:
        message, code = _complaint(response)
        what = f"status {response.status_code}: {_hidden(message, key)}"
        passing = response.status_code in _PASSING or response.status_code >= 500
        if passing and code != "insufficient_quota":  # comes with 429, but does not pass
            return TransientError(what, _retry_after(response.headers.get("Retry-After")))
        return ServerError(what, of_list=response.status_code in _OF_THE_LIST)

    def _key(self) -> str | None:
        if self._key_variable is None:
            return None
        key = os.environ.get(self._key_variable, "").strip()
        if not key:
            raise ValueError(
                f"{self.url} needs a key: set the environment variable {self._key_variable} "
                "(key_variable=null for a server without keys)"
            )
        if not (key.isascii() and key.isprintable()):
            raise ValueError(
                f"the key in {self._key_variable} holds a character that no header can hold"
            )
        return key


def _checked_url(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        # A port that is no number, or a name that no system could look up, is a ValueError too.
        name = (parts.hostname or "").encode("idna")
        possible = parts.scheme in ("http", "https") and name != b"" and parts.port != 0
    except ValueError:
        # It is not repeated: it may hold a password.
        raise ValueError("base_url is not like http://localhost:8000/v1") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "base_url must not hold a user, a password or a query; keys belong into key_variable"
        )
    if not possible:
        raise ValueError(f"base_url={base_url!r} must be like http://localhost:8000/v1")
    return base_url.rstrip("/")


def _openai() -> ModuleType:
    try:
        module = importlib.import_module("openai")
    except ImportError as error:
        raise ImportError(
            f"listwise=openai needs the openai package: {install('openai')}"
        ) from error
    # Its transport notes every request, which is a line for every list.
    for transport in ("httpx", "httpx2"):
        if logging.getLogger(transport).level == logging.NOTSET:
            logging.getLogger(transport).setLevel(logging.WARNING)
    return module


def _answer(content: bytes, key: str | None) -> Answer:
    """The answer in the body of a response.

    Raises ``TransientError`` for a body that is no chat completion: servers under load send such
    with status 200.
    """
    try:
        record = json.loads(content)
        choice = record["choices"][0]
        text = choice["message"].get("content") or ""
        if isinstance(text, list):  # parts, as multimodal servers give them
            text = "".join(part.get("text") or "" for part in text)
        usage = record.get("usage") or {}
        return Answer(
            text=_hidden(text, key),
            finish=str(choice.get("finish_reason") or ""),
            prompt_tokens=usage.get("prompt_tokens"),
            generated_tokens=usage.get("completion_tokens"),
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        begin = _hidden(content.decode("utf-8", "replace"), key)[:200]
        raise TransientError(f"an answer that is no chat completion: {begin!r}") from error


def _complaint(response: Any) -> tuple[str, str]:
    """What a server says about an error, and its code.

    The servers that speak this protocol say it in many forms.
    """
    try:
        record = response.json()
    except (ValueError, RecursionError):
        record = None
    error = record.get("error", record) if isinstance(record, dict) else record
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or error
        return str(message)[:500], str(error.get("code") or "")
    if error:
        message = str(error)
    else:
        message = response.text.strip() or response.reason_phrase
    return message[:500], ""


def _retry_after(value: str | None) -> float | None:
    """Seconds to wait, which a server gives as a number or as a date."""
    if not value:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", value.strip()):
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max((moment - datetime.now(timezone.utc)).total_seconds(), 0.0)


def _hidden(text: str, key: str | None) -> str:
    """The text without the key: some servers repeat it when they complain about it."""
    return text.replace(key, "***") if key is not None and len(key) >= _SECRET else text
