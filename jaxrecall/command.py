"""The commands of the package: how one is called, and how its process ends."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

OK, USAGE, FAILED, INTERRUPTED = 0, 2, 3, 130
"""Exit codes of every command."""

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


def leave(exit_code: int) -> NoReturn:
    """Ends the process. An interrupted one ends at once: everything is saved, and the usual way would wait for the batch in flight."""
    if exit_code == INTERRUPTED:
        sys.stdout.flush()
        os._exit(exit_code)
    raise SystemExit(exit_code)
