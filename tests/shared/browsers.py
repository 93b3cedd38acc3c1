"""Chromium without a window."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
]
OPTIONS += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
OPTIONS += ["--enable-logging=stderr", "--v=0"]


def found_browser() -> str:
    """The program; the test is skipped where there is none."""
    given = os.environ.get("BACKPACK_RANK_BROWSER")
    program = shutil.which(given) if given else next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: put {NAMES[0]} on the PATH or set BACKPACK_RANK_BROWSER")
    return program


def visited(
    browser: str,
    url: str,
    answers: queue.Queue[Any],
    folder: Path,
    light: bool = True,
    *options: str,
) -> tuple[Any, list[str]]:
    """What a page sends into the queue, by way of the server, and messages of the console."""
    command = [
        browser,
        *OPTIONS,
        *options,
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
    ]
    command += [
        f"--blink-settings=preferredColorScheme={int(light)}",
        "--remote-debugging-port=0",
        url,
    ]
    log = folder / "browser.log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr) as process,
    ):
        try:
            answer = answers.get(timeout=90)
        except queue.Empty:
            raise AssertionError(
                f"nothing came from {url}: {log.read_text('utf-8')[-2000:]}"
            ) from None
        finally:
            process.terminate()
    return answer, [line for line in log.read_text("utf-8").splitlines() if ":CONSOLE" in line]
