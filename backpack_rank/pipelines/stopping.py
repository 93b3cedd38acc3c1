"""Ctrl-C and SIGTERM end a script with one line: what is kept, and how to go on."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from backpack_rank.commands import called
from backpack_rank.files import LAST, UNFINISHED
from backpack_rank.progress import is_first_process, printable

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Stopped(BaseException):
    """A signal has asked this process to end.

    It is no KeyboardInterrupt: on that Lightning ends the process itself.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def one_line_when_stopped(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """Around a script: a signal ends it with one line and status 128 + its number.

    A second signal ends it at once.

    Args:
        script: ``train``, ``evaluate`` ...
        arguments: of its command line, to say how to go on.
    """
    # Only the main thread may set signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    program = called(script)

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for stopping in _NAMES:
            signal.signal(stopping, signal.SIG_DFL)
        # A worker that was forked ends silently: its parent says what is kept.
        if os.getpid() != owner:
            os.kill(os.getpid(), number)
        # No name here: the exception's traceback holds this frame, and would keep it for ever.
        raise watched(Stopped(number))

    def watched(stopped: Stopped) -> Stopped:
        # Finalizers, C code that asks for an attribute (PyObject_HasAttr) and a library's `except:`
        # drop what is raised in them, and the work goes on: then it is raised again.
        watch = weakref.finalize(stopped, dropped, stopped.number)
        watch.atexit = False
        watches.append(watch)
        return stopped

    def dropped(number: int) -> None:
        # Only the main thread may set signals.
        with suppress(ValueError):
            signal.signal(number, stop)
            # A little later: what is raised while something is dropped would be dropped as well.
            later = threading.Timer(0.05, send_again, (number,))
            later.daemon = True
            later.start()

    def send_again(number: int) -> None:
        if signal.getsignal(number) is stop:
            os.kill(owner, number)

    def unraisable(about: sys.UnraisableHookArgs) -> None:
        if not isinstance(about.exc_value, Stopped):
            shown(about)

    watches: list[weakref.finalize[Any, Any]] = []
    before: dict[int, Any] = {number: signal.signal(number, stop) for number in _NAMES}
    shown, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        yield
    except (Stopped, KeyboardInterrupt) as stopped:
        number = stopped.number if isinstance(stopped, Stopped) else signal.SIGINT
        # A progress bar may stand in the line.
        wipe = "\r\x1b[K" if sys.stderr.isatty() else ""
        line = f"{_NAMES[signal.Signals(number)]}: {_kept(script, program, arguments)}"
        with suppress(OSError):
            # Of several processes only the first says it.
            if is_first_process():
                print(wipe + printable(line), file=sys.stderr, flush=True)
        raise SystemExit(128 + number) from None
    finally:
        sys.unraisablehook = shown
        for watch in watches:
            watch.detach()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back(call: str) -> Iterator[None]:
    """Around a call that cannot stand an exception at any moment: a signal acts behind it.

    C++ that meets a Python exception where it expects none aborts the process, which cleans up
    nothing. A second signal ends it at once all the same.

    Args:
        call: what is waited for, as the line on stderr names it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append(number)
        for stopping in _NAMES:
            signal.signal(stopping, signal.SIG_DFL)
        line = f"{_NAMES[signal.Signals(number)]}: waiting for {call} to end; once more: at once\n"
        # Past Python's buffer, which the call that is interrupted may be writing to.
        with suppress(OSError):
            os.write(2, line.encode())

    before = {number: signal.signal(number, wait) for number in _NAMES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for came in waiting:
            signal.raise_signal(came)


def _kept(script: str, program: str, arguments: Sequence[str]) -> str:
    """What is kept in the folders that were begun, and the command to go on."""
    # Without that module, which needs much to be imported, no folder was begun.
    module = sys.modules.get("backpack_rank.pipelines.unfinished")
    folders: list[Path] = [] if module is None else module.held()
    if not folders:
        return "stopped before anything was written"
    folder = folders[0]
    with suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    output = [argument for argument in arguments if argument.startswith("output=")]
    go_on = f"go on with: {program} {shlex.join([f'resume={folder}', *output])}"
    jobs = 0
    for config in folder.glob("[!.]*/config.yaml"):
        if not (config.parent / UNFINISHED).exists():
            jobs += 1
    if jobs or len(folders) > 1:
        return f"stopped; finished jobs kept in {folder}: {jobs}; {go_on}"
    if script != "train":
        return f"stopped; {folder} is marked as unfinished; {go_on}"
    if (folder / LAST).is_file():
        return f"stopped; {folder} keeps all up to its last whole epoch; {go_on}"
    return f"stopped before the end of the first epoch of {folder}; {go_on}"
