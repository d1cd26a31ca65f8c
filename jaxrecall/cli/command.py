"""Defines the names, options, error handling and output that all commands share."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

from ..errors import Refused, printable, shortened
from .process import FAILED, INTERRUPTED, OK, USAGE, output_error
from .version import __version__

SCRIPT = "jaxrecall"
ROOT = Path(__file__).parents[2]
"""The folder of the repository clone, if the package runs from one."""


def called(name: str, argv: Sequence[str] = ()) -> str:
    """Returns a shell command for `name`, in the form in which this process was called.

    Examples are `jaxrecall sweep`, `python -m jaxrecall.sweep`, and `python -m
    jaxrecall examples` (because `examples` alone is not a module). The command contains
    the path of the program only if the program is below the current folder and the
    shell would not find it by its name.
    """
    program, words = Path(sys.executable), ["-m", f"{SCRIPT}.{name}"]
    if Path(sys.argv[0]).stem == SCRIPT:
        program, words = Path(sys.argv[0]), [name]
    elif name == "examples":
        words = ["-m", SCRIPT, name]
    return shlex.join([_program(program), *words, *argv])


def _program(path: Path) -> str:
    if shutil.which(path.name) == str(path) or not path.is_relative_to(absolute()):
        return path.name
    return str(path.relative_to(absolute()))


def absolute(path: str | os.PathLike[str] = "") -> Path:
    """Returns the absolute form of a path. The default is the current folder.

    If the current folder was deleted, the path is returned unchanged.
    """
    try:
        return Path(path).absolute()
    except FileNotFoundError:
        return Path(path)


class Parser(argparse.ArgumentParser):
    """A parser for the options of a command. It reports an error in one line."""

    def __init__(self, name: str, description: str, epilog: str | None = None):
        super().__init__(prog=called(name), description=description, epilog=epilog)

    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            # argparse would parse it as an empty list
            if re.fullmatch(r"--[^=]+=--", word):
                flag = word.removesuffix("=--")
                self.error(f"{flag}: got --; allowed: a value, as in {flag}=VALUE")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        line = shortened(" ".join(message.removeprefix("argument ").split()))
        self.exit(USAGE, f"{line}; {self.prog} --help lists what is allowed\n")


MainArguments = ParamSpec("MainArguments")


def command(
    interrupted: str = "interrupted",
) -> Callable[[Callable[MainArguments, int]], Callable[MainArguments, int]]:
    """Returns a decorator for the `main` function of a command.

    If `main` refuses its arguments or is interrupted, the decorated function prints a
    message and returns an exit code.
    """

    def decorated(main: Callable[MainArguments, int]) -> Callable[MainArguments, int]:
        @wraps(main)
        def run(*args: MainArguments.args, **kwargs: MainArguments.kwargs) -> int:
            try:
                return main(*args, **kwargs)
            except Refused as error:
                print(error, file=sys.stderr)
                return USAGE
            except KeyboardInterrupt:
                print(interrupted, file=sys.stderr)
                return INTERRUPTED

        return run

    return decorated


def answer(*lines: str) -> int:
    """Prints lines, and returns the exit code.

    Control characters are escaped, because the lines may contain text from a file. The
    exit code is FAILED if the lines could not be written.
    """
    print("".join(f"{printable(line)}\n" for line in lines), end="", flush=True)
    return FAILED if output_error() else OK


@cache
def versions() -> dict[str, str]:
    """Returns a dict with the versions of jaxrecall and of the packages that it
    requires.
    """
    found, lines = {"jaxrecall": __version__}, list[str]()
    with suppress(PackageNotFoundError):
        lines = requires("jaxrecall") or []
    for line in sorted(lines):
        if "extra ==" not in line:
            name, *_ = re.split(r"[^\w.-]", line)
            found[name] = version(name)
    return found


def xla_flags() -> list[str]:
    """Returns the options in XLA_FLAGS, sorted.

    Some of the options change the last digits of a row.
    """
    return sorted(os.environ.get("XLA_FLAGS", "").split())


@cache
def commit(root: Path = ROOT) -> str | None:
    """Returns the commit of the clone at `root`, or None without a clone or git.

    `-dirty` is appended if files differ from the commit.
    """
    if not (root / ".git").exists():
        return None
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    words = ["git", "-C", str(root), *describe]
    try:
        done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
