"""The exceptions of the package: messages name the argument, its value and what is
allowed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MAX_LINES, MAX_LINE, MAX_WORD = 100, 2000, 300
"""Lines of a message, and characters of a line and of a word in it, at most."""

MAX_LIST = 1_000_000
"""Values of a list, at most."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one argument.

    `where` is a grid condition that would exclude such points.
    """

    argument: str
    message: str
    where: str | None = None

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}"


class PointError(ValueError):
    """A point that cannot be simulated; `problems` holds everything that is wrong with
    it.
    """

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Refused(ValueError):
    """Something that cannot be used as requested; `lines` holds one line per error."""

    def __init__(self, lines: list[str] | str):
        lines = [lines] if isinstance(lines, str) else lines
        more = (
            [f"and {len(lines) - MAX_LINES} more errors"]
            if len(lines) > MAX_LINES
            else []
        )
        self.lines = [shortened(line) for line in lines[:MAX_LINES]] + more
        super().__init__("\n".join(self.lines))


class GridError(Refused):
    """A grid that is refused."""


class UsageError(Refused):
    """Command-line options, or environment variables in their place, that are
    refused.
    """


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


class OutOfMemory(RuntimeError):
    """A program, or its compilation, asked for more memory than there is, or than it
    may take.
    """


class FitError(Refused):
    """A table, or a use of it, that no law can be fitted to."""


class TheoryError(ValueError):
    """Arguments that no formula here covers."""


def shown(value: object, most: int = 200) -> str:
    """`value` as Python writes it, cut after `most` characters."""
    try:
        text = repr(value)
    except (
        ValueError,
        RecursionError,
    ):  # Python writes no whole number of more than 4300 digits
        return f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= most else text[: most - 3] + "..."


def expect(
    argument: str,
    value: Any,
    types: type | tuple[type, ...],
    allowed: str,
    error: type[PointError] | type[Refused] = UsageError,
) -> Any:
    """`value` if it is of one of the types; int alone leaves out bool.

    Args:
        argument: its name, as the caller knows it.
        value: what was given.
        types: those that are allowed.
        allowed: the same in words.
        error: what is raised otherwise.

    Returns:
        The value.
    """
    if isinstance(value, types) and not (types is int and isinstance(value, bool)):
        return value
    raise refusal(argument, shown(value), allowed, error)


def as_list(
    argument: str,
    values: Any,
    allowed: str,
    error: type[PointError] | type[Refused] = UsageError,
    most: int = MAX_LIST,
) -> list[Any]:
    """The values of a list or of anything like it, such as a range.

    Args:
        argument: its name, as the caller knows it.
        values: what was given; no more than `most` + 1 of them are read.
        allowed: what is allowed, in words.
        error: what is raised for text, for what is no list, and for more than `most`
            values.
        most: how many there may be.

    Returns:
        A new list.
    """
    try:
        items = (
            None
            if isinstance(values, (str, bytes, Mapping))
            else list(islice(values, most + 1))
        )
    except TypeError:  # NumPy's arrays of no dimension, too
        items = None
    if items is None or len(items) > most:
        too_many = "" if items is None else f", more than {most} values"
        raise refusal(argument, shown(values) + too_many, allowed, error)
    return items


def refusal(
    argument: str, got: str, allowed: str, error: type[PointError] | type[Refused]
) -> PointError | Refused:
    """The error for a value that is not allowed, to be raised."""
    message = f"got {got}; allowed: {allowed}"
    return (
        PointError([Problem(argument, message)])
        if issubclass(error, PointError)
        else error(f"{argument}: {message}")
    )


UNPRINTED = re.compile(r"[\x00-\x1f\x80-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text: a terminal obeys
them. JSON holds none of them.
"""


def printable(line: str) -> str:
    """The line with its control characters as escapes, which a terminal would obey.

    A file may hold any text.
    """
    return UNPRINTED.sub(lambda found: ascii(found[0])[1:-1], line)


def shortened(line: str) -> str:
    """The line with long words cut, and without its middle: what is allowed stands at
    the end.
    """
    line = "\n".join(map(printable, line.split("\n")))
    line = re.sub(
        rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][: MAX_WORD - 100]}...", line
    )
    return (
        line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 505]} ... {line[-500:]}"
    )


def plural(n: int, noun: str) -> str:
    """A number of things, as 1 run or 2 runs."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def in_one_line(error: BaseException, most: int = 200) -> str:
    """What an exception says, cut after `most` characters.

    The name of its class if it says nothing.
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


def where_to_run(module: str, error: BaseException) -> str:
    """How to have a module found, after an exception of importing it; nothing if it was
    found.
    """
    if module.endswith(".py"):
        return f"; a module is named without .py: {module.removesuffix('.py')}"
    missing = (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and f"{module}.".startswith(f"{error.name}.")
    )
    return (
        f"; run in the folder that holds {module.replace('.', '/')}.py, or put it on"
        " PYTHONPATH"
        if missing
        else ""
    )


def imported(argument: str, path: str, allowed: str) -> Any:
    """What is at `module:name`; raises UsageError, whatever the module of a user
    raises.
    """
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UsageError(f"{argument}: got {path!r}; {allowed}")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{argument}: {path} cannot be imported"
            f" ({why}){where_to_run(module, error)}; {allowed}"
        ) from error


def suggest(name: str, allowed: Iterable[str]) -> str:
    """ "; did you mean V?" for a name that is close to an allowed one, else nothing."""
    folded = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""
