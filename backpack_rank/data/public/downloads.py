"""Downloads that go on where they stopped, and are what was published or refused."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests

from backpack_rank.checks import UsageError
from backpack_rank.commands import install
from backpack_rank.progress import Progress

ATTEMPTS = 5
"""How often a connection may break before a download is given up."""
_TIMEOUT = 30.0  # seconds until the server answers, and between two pieces
_PIECE = 2**16  # bytes
_BROKEN = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublicFile:
    """A file that somebody publishes.

        PublicFile("https://example.org/train.json", "3527663986b8...", 30_288_272)

    Attributes:
        url: where it is.
        sha256: of its bytes; None where its owner publishes none and this project has not seen it.
        size: in bytes, about; 0 where it is not known.
    """

    url: str
    sha256: str | None
    size: int = 0

    @property
    def name(self) -> str:
        return urlsplit(self.url).path.rsplit("/", 1)[1]


class Downloads:
    """Fetches public files into a folder, each once.

        path = Downloads("data/.downloads").fetch(file)

    What arrived stays in ``NAME.part`` until it is whole, so the next call asks for the rest only.

    Args:
        folder: where files are kept.
        mirror: a server with the same files below ``/HOST/PATH``; None: where they are published.
        pause: seconds after a broken connection.
    """

    def __init__(self, folder: str | Path, mirror: str | None = None, pause: float = 2.0) -> None:
        self.folder = Path(folder)
        self.mirror = mirror
        self.pause = pause

    def fetch(self, file: PublicFile) -> Path:
        """The file on this disk, whole and with its checksum.

        Raises:
            UsageError: pooch, which checks and keeps files, is not installed.
            ConnectionError: the server does not answer, refuses, or breaks off again and again;
                what arrived is kept.
            ValueError: the content is not the published one.
        """
        try:
            import pooch
        except ModuleNotFoundError as error:
            raise UsageError(f"downloads need pooch: {install('data')}") from error

        pooch.get_logger().setLevel("WARNING")
        self.folder.mkdir(parents=True, exist_ok=True)
        url = file.url
        if self.mirror is not None:
            parts = urlsplit(file.url)
            url = f"{self.mirror.rstrip('/')}/{parts.netloc}{parts.path}"
        try:
            path = pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}" if file.sha256 else None,
                fname=file.name,
                path=self.folder,
                downloader=self._download,
            )
        except ValueError as error:
            raise ValueError(
                f"{url}: the content is not the published one: {error}. Try again; if that does "
                "not help, its owner has changed the file"
            ) from error
        return Path(path)

    def forget(self, file: PublicFile) -> None:
        """Remove what was kept of a file, so that the next call asks the server for it."""
        for path in (self.folder / file.name, self._part(file.url)):
            path.unlink(missing_ok=True)

    def _part(self, url: str) -> Path:
        """What arrived of a file so far."""
        return self.folder / f"{urlsplit(url).path.rsplit('/', 1)[1]}.part"

    def _download(self, url: str, output: object, _: object) -> None:
        """What pooch calls: fill the file ``output``."""
        part = self._part(url)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._go_on(url, part)
                break
            except _BROKEN as error:
                if attempt == ATTEMPTS:
                    raise ConnectionError(
                        f"{url}: the connection broke {ATTEMPTS} times ({error}); "
                        f"{_what_arrived(part)}"
                    ) from error
                log.info("%s broke off; going on", url)
                time.sleep(self.pause)
        os.replace(part, str(output))

    def _go_on(self, url: str, part: Path) -> None:
        """Ask for what is missing of a file."""
        have = part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code == 416 and _whole_length(response) == have:
                return  # nothing is missing
            if response.status_code == 416:
                # What is here is no beginning of what is there: it is of another file.
                part.unlink()
                raise requests.ConnectionError(f"{have} bytes of another file were here")
            if not response.ok:
                raise ConnectionError(f"{url}: the server answers {response.status_code}")
            if response.status_code != 206:
                have = 0  # a server without ranges sends everything again
            left = int(response.headers.get("Content-Length") or 0)
            with (
                open(part, "ab" if have else "wb") as file,
                Progress(
                    total=have + left or None,
                    initial=have,
                    desc=part.stem,
                    unit="B",
                    unit_scale=True,
                ) as bar,
            ):
                for piece in response.iter_content(_PIECE):
                    file.write(piece)
                    bar.update(len(piece))
                    left -= len(piece)
            if left > 0:  # not every version of requests notices
                raise requests.ConnectionError(f"{left} bytes are missing")


def _whole_length(response: requests.Response) -> int | None:
    """Bytes of the whole file, as a server says it that has no more of it; None: it does not say.

    The header is ``Content-Range: bytes */LENGTH`` (RFC 9110, section 15.5.17).
    """
    _, _, length = response.headers.get("Content-Range", "").partition("*/")
    return int(length) if length.isdigit() else None


def _what_arrived(part: Path) -> str:
    """What became of a download that broke off, and what to do."""
    if part.exists():
        return f"what arrived is kept in {part}, and the same command goes on there"
    return (
        "nothing arrived: is this machine on the internet? --mirror URL takes a server that has "
        "the same files"
    )
