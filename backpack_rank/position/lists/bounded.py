"""Chat templates of strangers are rendered in a process with a bound of time and of memory.

A template is a small program. Two loops of 99,999 steps within one another take hours, and a format
of three billion characters takes the memory; neither can be told by looking at it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import jinja2

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

SECONDS, MEGABYTES = 5.0, 512
"""That a rendering may take; those of published templates take milliseconds and less than one MB.
"""
_STATISTICS = Path("/proc/self/statm")


def rendered(render: Callable[[], str], what: str) -> str:
    """Render a template of somebody else, which may loop or fill the memory::

        text = rendered(lambda: template.render(messages=messages), "the chat template of gpt2")

    It is computed in a separate process, with bounds of time and memory. Windows cannot fork; there
    it is computed in this process.

    Args:
        render: takes nothing from threads and leaves nothing behind.
        what: is rendered; begins the sentence of an error.

    Raises:
        jinja2.TemplateError: the template refuses its messages.
        ValueError: it takes more time or memory than it may.
    """
    if not hasattr(os, "fork"):
        return render()
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        _render(render, there, here)
    os.close(here)
    try:
        answer = _read(there, time.monotonic() + SECONDS)
    finally:
        os.close(there)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise ValueError(
            f"{what} takes more than {SECONDS:g} seconds or {MEGABYTES} MB to render: it is no "
            "template"
        )
    kind, text = answer
    if kind == "text":
        return text
    if kind == "refused":
        raise jinja2.TemplateError(text)
    raise ValueError(f"{what} cannot be rendered: {text}")


def _render(render: Callable[[], str], there: int, here: int) -> None:
    """The child: it writes its answer and ends, whatever happens.

    It skips what its parent does at its end.
    """
    with suppress(BaseException):
        os.close(there)
        if _STATISTICS.is_file():  # Linux; elsewhere time is the only bound
            # Address space: what the parent has, which the child shares, and the allowance.
            pages = int(_STATISTICS.read_text().split()[0])
            size = pages * resource.getpagesize()
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (size + MEGABYTES * 2**20, hard))
        try:
            answer = "text", render()
        except jinja2.TemplateError as error:
            answer = "refused", str(error)
        except Exception as error:
            answer = "failed", f"{type(error).__name__}: {str(error)[:300]}"
        with open(here, "wb") as handle:
            handle.write(json.dumps(answer).encode())
    os._exit(0)


def _read(source: int, end: float) -> tuple[str, str] | None:
    """The child's answer; None when it ends without one, or has none in time."""
    parts = []
    while (left := end - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            return None
        part = os.read(source, 2**20)
        if not part:
            break
        parts.append(part)
    else:
        return None
    if not parts:
        return None
    kind, text = json.loads(b"".join(parts))
    return kind, text
