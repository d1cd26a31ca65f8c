"""A process of this machine that a pool starts: `python -m jaxrecall.sweep.running.engines.child PARENT MODULE FD WORD...`.

It leaves every signal to the parent, since a terminal or Slurm sends them to all, and ends with the parent. What both send each other
goes through the file descriptor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from ....cli import SIGNALS


class Process:
    """The process in which `main(connection, *words)` of a module of this package runs, and the connection to it."""

    def __init__(self, module: str, *words: str, env: Mapping[str, str] = os.environ, stdout: int = 2):
        self.connection, theirs = Pipe()
        fd = theirs.fileno()
        command = [sys.executable, "-m", f"{__package__}.child", str(os.getpid()), module, str(fd), *words]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # it inherits them, and so is deaf to them from its first moment
        try:
            # what it prints must not come between the events on stdout
            self.process = subprocess.Popen(command, env=with_package(env), pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=stdout)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def put(self, what: Any) -> None:
        with suppress(OSError):  # it is dead, which reading will find
            self.connection.send(what)

    def death(self) -> str:
        """How it ended; waits for that."""
        code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self, seconds: float = 0.0) -> None:
        """Closes the connection, and kills the process if it has not ended `seconds` later."""
        self.connection.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, and in it the place from which this process has imported the package."""
    root = str(Path(__file__).parents[4])
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))}
