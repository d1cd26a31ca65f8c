"""The exceptions of the package, and functions that make their messages.

The message about an invalid value has the form "argument: got value; allowed: values".
Any other message is a plain sentence that states the problem and a remedy.
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
"""Limits of a message: its number of lines, and the numbers of characters in a line and
in a word.
"""

MAX_REASON = 400
"""The largest number of characters in the part of a line that comes from another
exception.
"""

MAX_LIST = 1_000_000
"""The largest allowed number of values in a list."""


@dataclass(frozen=True)
class Problem:
    """A single problem with a single argument.

    `got` says what is wrong, and `allowed` what is allowed. `where` is a grid condition
    that would exclude points with the problem.
    """

    argument: str
    got: str
    where: str | None = None
    allowed: str = ""

    @property
    def message(self) -> str:
        return f"{self.got}; allowed: {self.allowed}" if self.allowed else self.got

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}"


class NotAllowed(ValueError):
    """A value is not allowed. `got` says what came, and `allowed` what may come."""

    def __init__(self, got: str, allowed: str):
        self.got, self.allowed = got, allowed
        super().__init__(f"{got}; allowed: {allowed}")


class PointError(ValueError):
    """A point cannot be simulated. `problems` lists all problems with the point."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Refused(ValueError):
    """Input cannot be used as requested. `lines` contains one line per error."""

    def __init__(self, lines: list[str] | str):
        if isinstance(lines, str):
            lines = [lines]
        self.lines = list(map(shortened, lines[:MAX_LINES]))
        if len(lines) > MAX_LINES:
            self.lines.append(f"and {len(lines) - MAX_LINES} more errors")
        super().__init__("\n".join(self.lines))


class GridError(Refused):
    """A grid is invalid or cannot be run."""


class UsageError(Refused):
    """An argument, a command-line option or an environment variable is invalid."""


AnyRefusal = type[PointError] | type[Refused]


class StoreError(Refused):
    """A results folder or a table cannot be used as requested."""


class Incomplete(BaseException):
    """Some runs of a call have no rows. `rows` contains the rows of the other runs."""

    def __init__(self, message: str, rows: pd.DataFrame):
        self.rows = rows
        super().__init__(message)


class Interrupted(Incomplete, KeyboardInterrupt):
    """A signal ended a call. `rows` contains the rows of the finished runs."""


class RunFailed(Incomplete, RuntimeError):
    """Some runs of a call failed. `rows` contains the rows of the other runs."""


class OutOfMemory(RuntimeError):
    """A program or its compilation needs more memory than is allowed."""


class FitError(Refused):
    """A table cannot be fitted, or cannot be fitted in the requested way."""


class TheoryError(Refused):
    """A formula does not apply to a model."""


class TheoryWarning(UserWarning):
    """A formula was measured to be off by a factor of 2 or more in such a setting."""


def shown(value: object, most: int = 200) -> str:
    """Returns the repr of `value` in one line, shortened to at most `most`
    characters.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits
        return f"a value of type {type(value).__name__} that is too long to show"
    if "\n" in text:
        text = " ".join(text.split())
    if len(text) > most:
        return f"{text[: most - 3]}..."
    return text


def expect(
    argument: str,
    value: Any,
    types: type | tuple[type, ...],
    allowed: str,
    error: AnyRefusal = UsageError,
) -> Any:
    """Returns `value` if it has one of the types. A bool does not count as an int.

    Args:
        argument: the name of the argument in error messages.
        value: the given value.
        types: the allowed types.
        allowed: the allowed values, in words.
        error: the class of the exception that is raised otherwise.
    """
    if isinstance(value, types) and not (types is int and isinstance(value, bool)):
        return value
    raise refusal(argument, shown(value), allowed, error)


def as_list(
    argument: str,
    values: Any,
    allowed: str,
    error: AnyRefusal = UsageError,
    most: int = MAX_LIST,
) -> list[Any]:
    """Returns a new list of the values of a list or of another iterable.

    Args:
        argument: the name of the argument in error messages.
        values: the given values. At most `most` + 1 values are read.
        allowed: the allowed values, in words.
        error: the class of the exception that is raised for a text or a mapping, for an
            object that cannot be iterated, and for more than `most` values.
        most: the largest allowed number of values.
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
    argument: str, got: str, allowed: str, error: AnyRefusal
) -> PointError | Refused:
    """Returns the exception to raise for a value that is not allowed."""
    problem = Problem(argument, f"got {got}", allowed=allowed)
    if issubclass(error, PointError):
        return PointError([problem])
    return error(str(problem))


UNPRINTED = re.compile(r"[\x00-\x1f\x80-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Matches control characters, and characters that change the direction of text.

A terminal would obey these characters. `json.dumps` escapes them.
"""


def printable(line: str) -> str:
    """Returns the line with an escape for each character that a terminal would obey."""
    return UNPRINTED.sub(lambda found: ascii(found[0])[1:-1], line)


def shortened(line: str, most: int = MAX_LINE) -> str:
    """Returns the line in printable form, with long words shortened.

    If the line has more than `most` characters, words in its middle are left out. The
    end of the line is kept, because it states the allowed values.
    """
    line = "\n".join(map(printable, line.split("\n")))
    line = re.sub(
        rf"\S{{{MAX_WORD},}}", lambda word: f"{word[0][: MAX_WORD - 100]}...", line
    )
    if len(line) > most:
        n_end = most // 4
        start, end = line[: most - n_end - 5], line[-n_end:]
        # a text without spaces is cut anywhere
        start = start.rpartition(" ")[0] or start
        return f"{start} ... {end.partition(' ')[2] or end}"
    return line


def plural(n: int, noun: str) -> str:
    """Returns a number and its noun, such as 1 run or 2 runs."""
    if n == 1:
        return f"{n} {noun}"
    return f"{n} {noun}s"


def in_one_line(error: BaseException) -> str:
    """Returns the message of an exception in one line of at most MAX_REASON characters.

    If the message is empty, the class name of the exception is returned.
    """
    line = " ".join(str(error).split())
    return shortened(line, MAX_REASON) or type(error).__name__


def where_to_run(module: str, error: BaseException) -> str:
    """Returns advice on how to make Python find a module that it did not find.

    The text is empty if the import failed for another reason.
    """
    if module.endswith(".py"):
        return f"; a module is named without .py: {module.removesuffix('.py')}"
    is_lacking = isinstance(error, ModuleNotFoundError)
    if not is_lacking or not f"{module}.".startswith(f"{error.name}."):
        return ""
    path = module.replace(".", "/")
    return f"; run in the folder that holds {path}.py, or put it on PYTHONPATH"


def imported(argument: str, path: str, allowed: str) -> Any:
    """Returns the object at `module:name`.

    `allowed` is the end of the error message and states the allowed values. Raises
    UsageError if the import fails, also if a user's module raises any exception.
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


def closest(name: str, allowed: Iterable[str]) -> str | None:
    """Returns the allowed name that is most similar to `name`, or None if no name is
    similar.
    """
    folded = {a.lower(): a for a in allowed}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    return folded[close[0]] if close else None


def suggest(name: str, allowed: Iterable[str]) -> str:
    """Returns a text such as "; did you mean V?" if an allowed name is similar to
    `name`.
    """
    meant = closest(name, allowed)
    return f"; did you mean {meant}?" if meant else ""
