"""How the progress of a call is told: a live line, a line every 30 seconds, or JSON
events.

And what went wrong.
"""

from __future__ import annotations

import json
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

Traces = Sequence[Rows]
"""The rows of finished runs, run by run; the last row of a run is that of its last
step.
"""


Event = tuple[Any, ...]
"""What is told while a plan is carried out: a name, and what belongs to it.
`Record.hear` has those about programs, `Spread.take` all that a worker tells.
"""


class Failure(NamedTuple):
    """What went wrong, and where."""

    error: str
    traceback: str
    host: str

    @staticmethod
    def of(error: Exception) -> Failure:
        return Failure(
            f"{type(error).__name__}: {error}",
            "".join(traceback.format_exception(error)),
            socket.gethostname(),
        )

    @property
    def line(self) -> str:
        """The error in one line, without the name of its class where there is a
        message.
        """
        kind, _, text = self.error.partition(": ")
        message = (
            text if text and kind.isidentifier() else self.error.removesuffix(": ")
        )
        return message.splitlines()[0]


class Shown(NamedTuple):
    """An event of a call, and how far the call is."""

    event: str
    """`start`, `compiling`, `compiled`, `batch` (runs are finished), `part` (a file is
    written), `message`, `failed`, `search` (its results are written) or `close`."""

    line: str
    """What a person is told."""

    facts: Mapping[str, object]
    """What a program is told."""

    summary: str
    """Of the call so far; empty before anything has happened."""


Display = Callable[[Shown], None]


class Lines:
    """A line every 30 seconds and one at the end, for logs and pipes.

    With `announce` also the line that starts a sweep. A `live` line is renewed several
    times a second, for terminals and notebooks.
    """

    def __init__(self, out: TextIO, announce: bool = True, live: bool = False):
        self.out, self.head, self.live, self.width = (
            out,
            sys.stdout if announce else None,
            live,
            0,
        )
        self.due = time.monotonic() + (0 if live else PLAIN_EVERY_SECONDS)

    def __call__(self, shown: Shown) -> None:
        if shown.event == "start":
            _print(shown.line, self.head)
        elif shown.event in ("message", "failed"):
            self._tell(shown.line)
        elif shown.event == "close" and shown.summary:
            self._tell(shown.summary)
        elif shown.event in ("compiled", "batch") and time.monotonic() >= self.due:
            self._tell(shown.summary, "\r" if self.live else "\n")
            self.due = time.monotonic() + (
                LIVE_EVERY_SECONDS if self.live else PLAIN_EVERY_SECONDS
            )
        elif shown.event == "compiling" and self.live:
            self._tell(shown.line, "\r")

    def _tell(self, line: str, end: str = "\n") -> None:
        """A line over what is left of a live one."""
        line = line[: shutil.get_terminal_size().columns - 1] if end == "\r" else line
        _print(line.ljust(self.width), self.out, end)
        self.width = len(line) if end == "\r" else 0


class Events:
    """Every event as a line with a JSON object.

    It has `event`, `at` (seconds since the start of the call) and the facts of that
    event.
    """

    def __init__(self, out: TextIO):
        self.out, self.start = out, time.monotonic()

    def __call__(self, shown: Shown) -> None:
        if shown.event != "close":
            self.emit(shown.event, **shown.facts)

    def emit(self, event: str, **facts: object) -> None:
        _print(
            json.dumps(
                {"event": event, "at": round(time.monotonic() - self.start, 3), **facts}
            ),
            self.out,
        )


def display(announce: bool) -> Display | None:
    """What suits the place: a live line in a notebook or a terminal, lines elsewhere.

    Nothing in a program without streams.
    """
    ipython = sys.modules.get("IPython")
    if (
        ipython
        and hasattr(ipython, "get_ipython")
        and hasattr(ipython.get_ipython(), "kernel")
    ):
        return Lines(sys.stdout, announce, live=True)
    if sys.stderr is None or sys.stderr.closed:
        return None
    return Lines(sys.stderr, announce, live=sys.stderr.isatty())


def _print(line: str, out: TextIO | None, end: str = "\n") -> None:
    if out is None or out.closed:
        return
    with suppress(
        OSError
    ):  # a log on a full disk, or a reader that has gone, must not end the sweep
        out.write(
            line + end
        )  # in one call: the line of a signal handler must not come in between
        out.flush()


def now_and_then(seconds: float, line: Callable[..., str]) -> Callable[..., None]:
    """A function that prints `line` of its arguments on stderr, but not for `seconds`
    after it did.
    """
    last = time.monotonic()

    def show(*arguments: object) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            _print(line(*arguments), sys.stderr)

    return show


def counter(what: str) -> Callable[[int, int], None]:
    """A function of the parts done and all parts, which prints a line on stderr every
    few seconds.
    """
    return now_and_then(COUNT_EVERY_SECONDS, lambda done, of: f"{what}: {done} of {of}")


def duration(seconds: float) -> str:
    """A time as 0.4 s, 12 s, 3 min 20 s or 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {s} s"
