"""The exceptions of the package, and helpers that make their messages.

The message about a value is "argument: got value; allowed: values". Any other problem
is a plain sentence that says what is wrong and what to do.
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
"""The most lines of a message, characters of a line, and characters of a word."""

MAX_LIST = 1_000_000
"""The most values of a list."""


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
    """A point that cannot be simulated; `problems` lists everything wrong with it."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Refused(ValueError):
    """Something that cannot be used as requested; `lines` holds one line per error."""

    def __init__(self, lines: list[str] | str):
        if isinstance(lines, str):
            lines = [lines]
        self.lines = list(map(shortened, lines[:MAX_LINES]))
        if len(lines) > MAX_LINES:
            self.lines.append(f"and {len(lines) - MAX_LINES} more errors")
        super().__init__("\n".join(self.lines))


class GridError(Refused):
    """A grid that is refused."""


class UsageError(Refused):
    """Arguments, command-line options or environment variables that are refused."""


class StoreError(Refused):
    """A results folder or table that cannot be used as requested."""


class Interrupted(KeyboardInterrupt):
    """A signal ended a call; `rows` has the runs that had finished."""

    def __init__(self, message: str, rows: pd.DataFrame):
        self.rows = rows
        super().__init__(message)


class RunFailed(RuntimeError):
    """Some runs of a call failed; `rows` has the others."""

    def __init__(self, message: str, rows: pd.DataFrame):
        self.rows = rows
        super().__init__(message)


class OutOfMemory(RuntimeError):
    """A program or its compilation needs more memory than it may have."""


class FitError(Refused):
    """A table that cannot be fitted, or not in the requested way."""


class TheoryError(ValueError):
    """A model that a formula does not cover."""


def shown(value: object, most: int = 200) -> str:
    """`value` as Python writes it, cut after `most` characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits
        return f"a value of type {type(value).__name__} that is too long to show"
    if len(text) > most:
        return f"{text[: most - 3]}..."
    return text


def expect(
    argument: str,
    value: Any,
    types: type | tuple[type, ...],
    allowed: str,
    error: type[PointError] | type[Refused] = UsageError,
) -> Any:
    """Returns `value` if it has one of the types; bool does not count as int.

    Args:
        argument: its name, as the caller knows it.
        value: what was given.
        types: the types that are allowed.
        allowed: the same in words.
        error: the exception that is raised otherwise.
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
    """A new list of the values of a list or of anything like it, such as a range.

    Args:
        argument: its name, as the caller knows it.
        values: what was given; no more than `most` + 1 of them are read.
        allowed: what is allowed, in words.
        error: the exception for text, for anything else that is not a list, and for
            more than `most` values.
        most: how many there may be.
    """
    if isinstance(values, (str, bytes, Mapping)):
        raise refusal(argument, shown(values), allowed, error)
    try:
        items = list(islice(values, most + 1))
    except TypeError:  # also NumPy arrays without dimensions
        raise refusal(argument, shown(values), allowed, error) from None
    if len(items) > most:
        got = f"{shown(values)}, more than {most} values"
        raise refusal(argument, got, allowed, error)
    return items


def refusal(
    argument: str, got: str, allowed: str, error: type[PointError] | type[Refused]
) -> PointError | Refused:
    """The exception to raise for a value that is not allowed."""
    message = f"got {got}; allowed: {allowed}"
    if issubclass(error, PointError):
        return PointError([Problem(argument, message)])
    return error(f"{argument}: {message}")


UNPRINTED = re.compile(r"[\x00-\x1f\x80-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text.

A terminal would obey them. A string in JSON never has them as they are.
"""


def printable(line: str) -> str:
    """The line with escapes in place of characters that a terminal would obey."""
    return UNPRINTED.sub(lambda found: ascii(found[0])[1:-1], line)


def shortened(line: str) -> str:
    """The printable line with long words cut and, if it is too long, its middle left
    out.

    The end of a message says what is allowed, so it is kept.
    """
    line = "\n".join(map(printable, line.split("\n")))
    line = re.sub(
        rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][: MAX_WORD - 100]}...", line
    )
    if len(line) > MAX_LINE:
        return f"{line[: MAX_LINE - 505]} ... {line[-500:]}"
    return line


def plural(n: int, noun: str) -> str:
    """A number of things, as in 1 run or 2 runs."""
    if n == 1:
        return f"{n} {noun}"
    return f"{n} {noun}s"


def in_one_line(error: BaseException, most: int = 200) -> str:
    """The message of an exception, cut after `most` characters, or its class name if
    the message is empty.
    """
    return " ".join(str(error).split())[:most] or type(error).__name__


def where_to_run(module: str, error: BaseException) -> str:
    """Advice after a failed import: how Python finds the module. Empty if the module
    was found.
    """
    if module.endswith(".py"):
        return f"; a module is named without .py: {module.removesuffix('.py')}"
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    if not f"{module}.".startswith(f"{error.name}."):
        return ""
    path = module.replace(".", "/")
    return f"; run in the folder that holds {path}.py, or put it on PYTHONPATH"


def imported(argument: str, path: str, allowed: str) -> Any:
    """The object at `module:name`.

    Raises UsageError, also for any exception that a user's module raises. `allowed` is
    the end of the message, which says what is allowed.
    """
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UsageError(f"{argument}: got {path!r}; {allowed}")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        advice = where_to_run(module, error)
        raise UsageError(
            f"{argument}: {path} cannot be imported ({why}){advice}; {allowed}"
        ) from error


def suggest(name: str, allowed: Iterable[str]) -> str:
    """ "; did you mean V?" for a name close to an allowed one; otherwise empty."""
    folded = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if not close:
        return ""
    return f"; did you mean {folded[close[0]]}?"
