"""Workers that are processes of this machine, one per accelerator or each with its own cores.

Libraries were tried (concurrent.futures, loky 3.7). When one worker is killed they end
the others, and what these had begun is lost; their workers outlive a parent that is
killed; results come at the end of a task, not with each batch.
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
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

from ...cli.process import SIGNALS
from ..machine import cores
from ..plan import Plan
from .pool import Event, Place, Pool, Setup
from .progress import Failure

START = "from jaxrecall.cli.process import start_child; start_child()"


class Process(NamedTuple):
    """A process that runs the worker, and the connection to it."""

    popen: subprocess.Popen[bytes]
    connection: Connection


def started(setup: Setup, env: Mapping[str, str], cores: Iterable[int]) -> Process:
    """A new process that leaves every signal to this one, and ends with it.

    A terminal or Slurm sends signals to all.
    """
    connection, theirs = Pipe()
    command = [sys.executable, "-c", START, str(os.getpid()), f"{__package__}.pool", str(theirs.fileno()), ",".join(map(str, cores))]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the mask is inherited, so it is deaf to them from its first moment
    try:
        popen = subprocess.Popen(command, env=with_package(env), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    theirs.close()
    with suppress(OSError):  # it is dead, which reading will find
        connection.send(setup)
    return Process(popen, connection)


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, and in it the place from which this process has imported the package."""
    root = str(Path(__file__).parents[3])
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))}


class LocalPool(Pool):
    """`size` worker processes; each is told `setup` first."""

    def __init__(self, size: int, setup: Setup):
        self.setup, self.core_numbers = setup, shares_of_cores(size)
        self.environments = environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        super().__init__(size, cores() / size)

    def share(self, plan: Plan) -> Plan:
        """Each has a share of the memory, and all of the cores that it sees."""
        return replace(plan.without_chunks, limit=plan.limit // len(self.places), workers=1)

    def start(self, place: Place) -> None:
        i = place.number
        self.processes[i] = started(self.setup, self.environments[i], self.core_numbers[i])

    def give(self, place: Place, message: bytes) -> None:
        with suppress(OSError):  # it is dead, which reading will find
            self.processes[place.number].connection.send_bytes(message)

    def events(self, seconds: float) -> Iterator[tuple[Place, Event]]:
        ready = wait([process.connection for process in self.processes.values()], seconds)
        for i, (popen, connection) in list(self.processes.items()):
            if connection in ready:
                try:
                    event = connection.recv()
                except (EOFError, OSError):
                    code = popen.wait()
                    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                    event = "lost", Failure(f"lost: {how}", "", socket.gethostname())
                yield self.places[i], event

    def end(self, place: Place) -> None:
        popen, connection = self.processes.pop(place.number)
        connection.close()
        popen.kill()
        popen.wait()

    def close(self) -> None:
        for i in list(self.processes):
            self.end(self.places[i])


def shares_of_cores(size: int) -> list[list[int]]:
    """The cores of each worker: equal shares of those that this process may use, at least one.

    None if cores cannot be assigned.
    """
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
    """What JAX reads when it starts: one device a worker.

    Where workers share a device, each has its share of the memory.
    """
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    return [{**own, "CUDA_VISIBLE_DEVICES": devices[worker % len(devices)]} for worker in range(size)]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory, if a worker has only a share."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"} if devices < 1 else {}
