"""Answers of a server on disk, one file per request, so that no request is paid for twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from backpack_rank.files import write_text

log = logging.getLogger(__name__)
_FORM = 1
"""Counted up when the form of the files changes; older ones are then asked for anew."""


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
        tokens = (self.prompt_tokens, self.generated_tokens)
        if not (isinstance(self.text, str) and isinstance(self.finish, str)) or not all(map(_is_count, tokens)):
            raise ValueError("no answer: text and finish must be strings, numbers of tokens whole or null")


@dataclass(frozen=True)
class ResponseStore:
    """A folder of answers; safe with several threads and processes.

    Attributes:
        folder: holds ``ab/abcd....json``; made when the first answer is written.
    """

    folder: Path

    @staticmethod
    def key(url: str, body: Mapping[str, Any]) -> str:
        """Digest of all that determines an answer: where the request goes and what it says."""
        request = json.dumps([_FORM, url, body], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.blake2b(request.encode(), digest_size=20).hexdigest()

    def read(self, key: str) -> Answer | None:
        """The answer to a request, or None if there is none yet. A damaged file is warned about and counts as none."""
        path = self._path(key)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record["key"] != key:
                raise ValueError(f"it belongs to {record['key']!r}")
            return Answer(**record["answer"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:  # bad JSON and bad UTF-8 are ValueErrors
            log.warning("%s is damaged (%s: %s); its request is sent again", path, type(error).__name__, error)
            return None

    def write(self, key: str, answer: Answer) -> None:
        """Keep an answer, whole or not at all."""
        record = {"key": key, "answer": asdict(answer)}
        write_text(self._path(key), json.dumps(record, ensure_ascii=True) + "\n")

    @contextmanager
    def only_one(self, key: str) -> Iterator[None]:
        """Only one thread of all processes is in here with the same key; look again whether the answer is there."""
        path = self._path(key).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path):
            yield
            # With the answer written, who still waits for this lock, or makes a new one, finds the answer.
            with suppress(OSError):
                path.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
