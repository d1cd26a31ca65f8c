"""The exceptions of the package: each message names the argument, the value received and the values allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MAX_LINES, MAX_LINE = 100, 2000
"""Lines of a message, and characters of a line, at most."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one argument; `where` is a grid condition that would exclude such points."""

    argument: str
    message: str
    where: str | None = None

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}"


class PointError(ValueError):
    """A point that cannot be simulated; `problems` holds everything that is wrong with it."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Refused(ValueError):
    """Something that cannot be used as requested; `lines` holds one line per error."""

    def __init__(self, lines: list[str] | str):
        lines = [lines] if isinstance(lines, str) else lines
        more = [f"and {len(lines) - MAX_LINES} more errors"] if len(lines) > MAX_LINES else []
        self.lines = [_cut(line) for line in lines[:MAX_LINES]] + more
        super().__init__("\n".join(self.lines))


class GridError(Refused):
    """A grid that is refused."""


class UsageError(Refused):
    """Command-line options, or environment variables in their place, that are refused."""


class StoreError(Refused):
    """A results folder or table that cannot be used as requested."""


class Interrupted(KeyboardInterrupt):
    """A call that a signal ended; `rows` are the finished ones."""

    def __init__(self, message: str, rows: pd.DataFrame):
        self.rows = rows
        super().__init__(message)


class RunFailed(RuntimeError):
    """Some runs of a call failed; `rows` are those of the others."""

    def __init__(self, message: str, rows: pd.DataFrame):
        self.rows = rows
        super().__init__(message)


class FitError(Refused):
    """A table, or a use of it, that no law can be fitted to."""


class TheoryError(ValueError):
    """Arguments that no formula here covers."""


def shown(value: Any, most: int = 200) -> str:
    """`value` as Python writes it, cut after `most` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python writes no whole number of more than 4300 digits
        return f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= most else text[: most - 3] + "..."


def _cut(line: str) -> str:
    """The line without its middle if it is too long: what is allowed stands at the end."""
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 505]} ... {line[-500:]}"


def suggest(name: str, allowed: Iterable[str]) -> str:
    """ "; did you mean V?" for a name that is close to an allowed one, else nothing."""
    folded = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""
