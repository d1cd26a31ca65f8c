"""--workers K: new processes on this machine, one per accelerator or each with its own cores.

Libraries were tried (concurrent.futures, loky 3.7). When one worker is killed they end the others, and what these had begun is lost;
their workers outlive a parent that is killed; results come at the end of a task, not with each batch.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ...process import SIGNALS
from .progress import Failure
from .scheduler import Workers
from .worker import Event, Setup

START = "from jaxrecall.process import start_child; start_child()"


class Process:
    """A new process of this machine that runs a module of this package, and the connection to it.

    It leaves every signal to its parent, since a terminal or Slurm sends them to all, and ends with it.

    Args:
        module: the name of the module.
        setup: what it receives first.
        env: its environment variables.
        cores: the numbers of the cores that it may use; none: all.
        stdout: the file descriptor that it prints to, stderr unless given.
    """

    def __init__(self, module: str, setup: Any, env: Mapping[str, str] = os.environ, cores: Iterable[int] = (), stdout: int = 2):
        self.connection, theirs = Pipe()
        fd = theirs.fileno()
        about = [str(os.getpid()), f"{__package__}.{module}", str(fd), ",".join(map(str, cores))]
        command = [sys.executable, "-c", START, *about]
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the mask is inherited, so it is deaf to them from its first moment
        try:
            self.process = subprocess.Popen(command, env=with_package(env), pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=stdout)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        self.send(setup)

    def send(self, what: Any) -> None:
        with suppress(OSError):  # it is dead, which reading will find
            self.connection.send(what)

    def receive(self) -> Event:
        """Its next event, `lost` if it has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            return lost(f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")

    def end(self, seconds: float = 0.0) -> None:
        """Closes the connection, and kills the process if it has not ended `seconds` later."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.process.kill()
        self.process.wait()


def lost(reason: str, host: str | None = None) -> Event:
    """The event of a worker that has died or cannot be used, here unless another host is named."""
    return "lost", Failure(f"lost: {reason}", "", socket.gethostname() if host is None else host)


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, and in it the place from which this process has imported the package."""
    root = str(Path(__file__).parents[3])
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))}


class LocalWorkers(Workers):
    """`size` worker processes; each is told `setup` first."""

    is_here = True

    def __init__(self, size: int, setup: Setup):
        self.setup, self.cores = setup, shares_of_cores(size)
        self.environments = environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        super().__init__(size, peers=size, speed=1 / size)

    def start(self, worker: int) -> None:
        self.processes[worker] = Process("worker", self.setup, self.environments[worker], self.cores[worker])

    def send(self, worker: int, message: bytes) -> None:
        self.processes[worker].send(message)

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        ready = wait([process.connection for process in self.processes.values()], seconds)
        for worker, process in list(self.processes.items()):
            if process.connection in ready:
                yield worker, process.receive()

    def end(self, worker: int) -> None:
        self.processes.pop(worker).end()

    def close(self) -> None:
        for worker in list(self.processes):
            self.end(worker)


def shares_of_cores(size: int) -> list[list[int]]:
    """The cores of each worker: equal shares of those that this process may use, at least one; none if cores cannot be assigned."""
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * size
    mine = sorted(os.sched_getaffinity(0))
    ends = [i * len(mine) // size for i in range(size + 1)]
    return [mine[a:b] if b > a else [mine[i % len(mine)]] for i, (a, b) in enumerate(itertools.pairwise(ends))]


def accelerators(environment: Mapping[str, str]) -> list[str]:
    """NVIDIA devices that JAX would use, as CUDA_VISIBLE_DEVICES names them."""
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if (named := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name not in ("", "-1")]
    return sorted((path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")), key=int)


def environments(size: int, environment: Mapping[str, str], devices: list[str]) -> list[dict[str, str]]:
    """What JAX reads when it starts: one device a worker, and its share of the memory where workers share a device."""
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    return [{**own, "CUDA_VISIBLE_DEVICES": devices[worker % len(devices)]} for worker in range(size)]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory, if a worker has only a share."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"} if devices < 1 else {}
