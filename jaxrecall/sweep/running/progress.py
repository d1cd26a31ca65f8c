"""Shows the progress of a call as a live line, as lines, or as JSON events."""

from __future__ import annotations

import json
import linecache
import re
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from ..simulators import Rows

PLAIN_EVERY_SECONDS = 30.0
COUNT_EVERY_SECONDS = 5.0
LIVE_EVERY_SECONDS = 0.2

UPDATES = ("compiled", "batch", "failed")
"""The events after which the line with the progress may be printed again."""

Traces = Sequence[Rows]
"""The rows of finished runs, one sequence per run. The last row belongs to the last
step.
"""

Event = tuple[Any, ...]
"""An event while a plan runs: a tuple of the event's name and its values. `Call.handle`
accepts the events about programs. `Workers` accepts all events that a worker sends.
"""


LIBRARIES = {"jax", "jaxlib", "numpy", __name__.partition(".")[0]}
"""The packages whose lines are not shown as the line where an error of the user's code
occurred. Those of Python itself are not shown, either.
"""

TRACED = re.compile("Tracer|Concretization|NonConcrete")
"""Matches the classes of JAX's errors about an array that has no value while a function
is compiled.
"""


class Failure(NamedTuple):
    """An error as text: its class, message and traceback, and the host where it
    occurred.
    """

    error: str
    traceback: str = ""
    host: str = ""
    where: str = ""
    """The line of the user's code that raised the error, as Python shows it. The text
    is empty if none of the user's code was running.
    """

    @staticmethod
    def of(error: BaseException) -> Failure:
        message, newline, rest = str(error).partition("\n")
        where = _line_of_user(error)
        if TRACED.match(type(error).__name__):
            message = f"{message.rstrip('.')}. Use jax.numpy there, such as jnp.where"
        if where:
            message += f" ({where})"
        return Failure(
            f"{type(error).__name__}: {message}{newline}{rest}",
            "".join(traceback.format_exception(error)),
            socket.gethostname(),
            where,
        )

    @property
    def line(self) -> str:
        """The first line of the message, with the class name if the user's code raised
        the error. If the message is empty, the class name.
        """
        kind, _, message = self.error.partition(": ")
        if self.where or not message or not kind.isidentifier():
            message = self.error.removesuffix(": ")
        return message.splitlines()[0]


def _line_of_user(error: BaseException) -> str:
    """Returns the innermost line of the user's code in the traceback of an error.

    Lines of installed packages are returned only if there are no others. The text is
    empty if there are only lines of this package, of JAX, NumPy, and Python itself.
    """
    found, installed = "", ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        if package in LIBRARIES or package in sys.stdlib_module_names:
            continue
        path, function = frame.f_code.co_filename, frame.f_code.co_name
        source = linecache.getline(path, number, frame.f_globals).strip()
        line = f'File "{path}", line {number}, in {function}: {source}'.rstrip(": ")
        if "site-packages" in path:
            installed = line
        else:
            found = line
    return found or installed


Display = Callable[[str, str, Mapping[str, object], str], None]
"""Shows an event of a call. The arguments are:

    event     the name of the event: `start`, `compiling`, `compiled`, `batch` (runs are
        finished), `part` (a file is written), `message`, `failed`, `search` (its
        results are written) or `close`. An event without a line and without facts says
        only that the summary has changed
    line      the event as a line of text, for a person
    facts     the event as plain data, for a program
    summary   a line of text that describes the progress of the call. It is empty at the
        start
"""


class Lines:
    """Prints a line every 30 seconds and one at the end, for logs and pipes.

    With `announce`, the start line of a sweep is also printed. With `live`, a single
    line is updated several times a second, for terminals and notebooks.
    """

    def __init__(self, out: TextIO, announce: bool, live: bool):
        self.out, self.live = out, live
        self.head = sys.stdout if announce else None
        self.every = LIVE_EVERY_SECONDS if live else PLAIN_EVERY_SECONDS
        self.due = time.monotonic()
        if not live:
            self.due += self.every
        self.width = 0
        """The length of the live line that the next line must overwrite, or 0."""

    def __call__(
        self, event: str, line: str, facts: Mapping[str, object], summary: str
    ) -> None:
        if event == "start":
            _print(line, self.head)
        elif event in ("message", "failed") and line:
            self._print(line)
        elif event == "close" and summary:
            self._print(summary)
        elif event in UPDATES and time.monotonic() >= self.due:
            self._print(summary, self.live)
            self.due = time.monotonic() + self.every
        elif event == "compiling" and self.live:
            self._print(line, live=True)

    def _print(self, line: str, live: bool = False) -> None:
        """Prints a line, and overwrites the last live line.

        If `live` is true, the next line will overwrite this one.
        """
        end = "\n"
        if live:
            line, end = line[: shutil.get_terminal_size().columns - 1], "\r"
        _print(line.ljust(self.width), self.out, end)
        self.width = len(line) if live else 0


class Events:
    """Prints every event with facts as a JSON object in one line.

    The object contains `event`, `at` (the seconds since the start of the call), and the
    facts of the event.
    """

    def __init__(self, out: TextIO):
        self.out, self.start = out, time.monotonic()

    def __call__(
        self, event: str, line: str, facts: Mapping[str, object], summary: str
    ) -> None:
        if facts:
            self.emit(event, **facts)

    def emit(self, event: str, **facts: object) -> None:
        at = round(time.monotonic() - self.start, 3)
        _print(json.dumps({"event": event, "at": at, **facts}), self.out)


def display(announce: bool) -> Display | None:
    """Returns a display: a live line in notebooks and terminals, plain lines elsewhere.

    Returns None if stderr is closed or missing.
    """
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_ipython and hasattr(get_ipython(), "kernel"):
        return Lines(sys.stdout, announce, live=True)
    if sys.stderr is None or sys.stderr.closed:
        return None
    return Lines(sys.stderr, announce, live=sys.stderr.isatty())


def _print(line: str, out: TextIO | None, end: str = "\n") -> None:
    if out is None or out.closed:
        return
    # a log on a full disk, or a reader that has gone, must not end the sweep
    with suppress(OSError):
        # in one call, so that no line of a signal handler comes in between
        out.write(line + end)
        out.flush()


def now_and_then(seconds: float, line: Callable[..., str]) -> Callable[..., None]:
    """Returns a function that prints a line on stderr at most once every `seconds`.

    The returned function passes its arguments to `line`, which returns the text.
    """
    last = time.monotonic()

    def show(*arguments: object) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            _print(line(*arguments), sys.stderr)

    return show


def duration(seconds: float) -> str:
    """Returns a time as text, such as 0.4 s, 12 s, 3 min 20 s or 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {s} s"
