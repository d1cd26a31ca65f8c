"""Worker processes: of this machine (--workers), one per
accelerator or each with its own cores, and of Ray (--engine ray).

Libraries were tried for those of this machine (concurrent.futures, loky 3.7). When one
worker is killed they end the others, and what these had begun is lost; their workers
outlive a parent that is killed; results come at the end of a task, not with each batch.

Workers of Ray are held by long-lived actors, on a running cluster or on a Ray that is
started here. A process of its own uses Ray (ray.py), because Ray ends the process that
uses it a minute after the head of the cluster was lost. Then all workers are lost; they
start again from another such process, which joins the cluster or starts Ray again.
Every node needs this version of jaxrecall, and nothing else: rows come back to this
process, which saves them.
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
from typing import Any, NamedTuple

from ...cli.process import SIGNALS
from ...errors import UsageError
from ..machine import cores
from .progress import Failure
from .scheduler import MAX_FAILED_STARTS, Workers
from .worker import Event, Setup

START = "from jaxrecall.cli.process import start_child; start_child()"

CLOSE_SECONDS = 10.0
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""0: Ray binds to 127.0.0.1 alone, on Linux too; told
--node-ip-address=127.0.0.1, it would take another address.
"""


class Process:
    """A new process of this machine that runs a module of this package, and the connection to it.

    It leaves every signal to its parent, since a terminal or Slurm sends them to all,
    and ends with it.

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
    """The cores of each worker: equal shares of those that this
    process may use, at least one; none if cores cannot be assigned.
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
    """What JAX reads when it starts: one device a worker,
    and its share of the memory where workers share a device.
    """
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    return [{**own, "CUDA_VISIBLE_DEVICES": devices[worker % len(devices)]} for worker in range(size)]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory, if a worker has only a share."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"} if devices < 1 else {}


class Request(NamedTuple):
    """What the process that uses Ray is told first."""

    address: str | None
    """Of the Ray to join; None: start one."""

    size: int | None
    """The number of workers; None: as many as fit."""

    resources: Mapping[str, float]
    """That each worker needs, as Ray names them (CPU, GPU, TPU, ...)."""

    setup: Setup
    """What each worker is told first."""

    most: int
    """Workers that have anything to do."""


class RayWorkers(Workers):
    """Workers that each hold the resources of a request. Raises UsageError if no Ray is at its address."""

    def __init__(self, request: Request):
        self.request, self.is_here = request, request.address is None
        self.driver: Process | None = None
        size = peers = request.size or 1
        if request.address:
            size, peers = joined(self._receive())
        super().__init__(size, peers, request.resources["CPU"] / cores())

    def _call(self, *call: Any) -> None:
        """Calls a method of `Driver`."""
        self._process().send(call)

    def _process(self) -> Process:
        if self.driver is None:
            self.driver = driver(self.request)
        return self.driver

    def _receive(self) -> Any:
        """What the driver sends next: `joined` with size and
        peers, `lost` if Ray is lost, else a worker and its event.
        """
        received = self._process().receive()
        if received[0] == "lost":
            self.close()
        return received

    def start(self, worker: int) -> None:
        self._call("start", worker)

    def end(self, worker: int) -> None:
        if self.driver:
            self._call("end", worker)

    def send(self, worker: int, message: bytes) -> None:
        self._call("send", worker, message)

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        while self._process().connection.poll(seconds):
            seconds = 0.0
            match self._receive():
                case "lost", failure:
                    if min(self.failed_starts.values()) < MAX_FAILED_STARTS:
                        again = "joining" if self.request.address else "starting"
                        yield 0, ("message", f"Ray is lost ({failure.line}); {again} Ray again")
                    yield from ((worker, ("lost", failure)) for worker in range(self.size))
                    return
                case int(worker), *event:
                    yield worker, tuple(event)

    def close(self) -> None:
        if self.driver:
            self.driver.end(CLOSE_SECONDS)
            self.driver = None


def size_on(request: Request) -> int:
    """How many workers would start now on the Ray at the address; raises UsageError if none is there."""
    process = driver(request)
    try:
        return joined(process.receive())[0]
    finally:
        process.end(CLOSE_SECONDS)


def driver(request: Request) -> Process:
    """A new process that uses Ray. A Ray that it starts listens
    on the loopback interface only and asks for a token.
    """
    alone = {} if request.address else {LOOPBACK: "0", "RAY_AUTH_MODE": "token"}
    # Ray would print there what the sweep reports, too
    return Process("ray", request, {**alone, **os.environ}, stdout=subprocess.DEVNULL)


def joined(event: Any) -> tuple[int, int]:
    """The number of workers, and of those that share a machine,
    from the first event of a driver; raises UsageError.
    """
    name, *about = event
    if name == "lost":
        allowed = "on a machine of the cluster: HOST:PORT of its head, or auto; or none, to start one here"
        raise UsageError(f"--ray-address: {about[0].line}; allowed {allowed}")
    size, peers = about
    return size, peers
