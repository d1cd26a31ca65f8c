"""The commands of the package: how one is called, how it reads its options and gives its answer."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .errors import shortened
from .process import FAILED, OK, USAGE, output_error

SCRIPT = "jaxrecall"


def called(name: str, argv: Sequence[str] = ()) -> str:
    """The shell command that calls the command `name` as this process was called: `jaxrecall sweep` or `python -m jaxrecall.sweep`.

    The program has its path only where the shell would not find it by its name and it lies below the current folder.
    """
    if Path(sys.argv[0]).stem == SCRIPT:
        words = [_program(Path(sys.argv[0])), name]
    else:
        words = [_program(Path(sys.executable)), "-m", f"{SCRIPT}.{name}"]
    return shlex.join([*words, *argv])


def _program(path: Path) -> str:
    if shutil.which(path.name) == str(path) or not path.is_relative_to(Path.cwd()):
        return path.name
    return str(path.relative_to(Path.cwd()))


class Parser(argparse.ArgumentParser):
    """A parser of options that refuses in one line, whatever it is given."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        for flag in (word.removesuffix("=--") for word in words if re.fullmatch(r"--[^=]+=--", word)):
            self.error(f"{flag}: got --; allowed: a value, as in {flag}=VALUE")  # argparse would take it for an empty list
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.removeprefix("argument ").split())
        self.exit(USAGE, f"{shortened(line)}; {self.prog} --help lists what is allowed\n")


def answer(text: str) -> int:
    """Prints what a command was called for; returns its exit code, FAILED if it could not be written."""
    print(text, flush=True)
    return FAILED if output_error() else OK


def cache_folder() -> Path | None:
    """Where compiled programs and measured rates are kept: $JAXRECALL_CACHE (empty: nowhere), else jaxrecall in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("JAXRECALL_CACHE", os.path.join(home, "jaxrecall"))
    return Path(folder) if folder else None
