"""--workers K: new processes on this machine, one per accelerator or each with its own cores.

A worker is `python -m jaxrecall.execution.engines.child PARENT FD CORE,CORE...`: tasks come and events go through that file descriptor.
It ends when the other side closes, and leaves every signal to the parent, since a terminal or Slurm sends them to all.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue

from ...command import SIGNALS
from .events import Event, Lost, Ready, Task
from .pool import Pool

STOP = "stop"


class LocalPool(Pool):
    """`size` worker processes."""

    is_here = True

    def __init__(self, size: int):
        super().__init__(size)
        self.peers = size
        self.cores, self.environments = shares_of_cores(size), environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, tuple[subprocess.Popen[bytes], Connection]] = {}
        for worker in range(size):
            self.start(worker)

    def start(self, worker: int) -> None:
        ours, theirs = Pipe()
        module, fd = f"{__package__}.child", theirs.fileno()
        command = [sys.executable, "-m", module, str(os.getpid()), str(fd), ",".join(map(str, self.cores[worker]))]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the worker inherits it, and so is deaf to them from its first moment
        try:
            # what a worker prints must not come between the events on stdout
            process = subprocess.Popen(command, env=self.environments[worker], pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=2)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.processes[worker] = process, ours

    def send(self, worker: int, task: Task) -> None:
        self._put(worker, task)

    def stop(self) -> None:
        for worker in self.processes:
            self._put(worker, STOP)

    def _put(self, worker: int, what: Task | str) -> None:
        with suppress(OSError):  # it is dead, which `events` will find
            self.processes[worker][1].send(what)

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        there = {connection: worker for worker, (_, connection) in self.processes.items()}
        for connection in wait(list(there), seconds):
            assert isinstance(connection, Connection)
            worker = there[connection]
            try:
                event = connection.recv()
            except (EOFError, OSError):
                event = Lost(self._death(worker), socket.gethostname())
            yield worker, event

    def _death(self, worker: int) -> str:
        code = self.processes[worker][0].wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self, worker: int) -> None:
        process, connection = self.processes.pop(worker)
        connection.close()
        process.kill()
        process.wait()

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
    root = str(Path(__file__).parents[3])
    own = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))}
    if not devices:
        return [own] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **own}
    return [{**own, "CUDA_VISIBLE_DEVICES": devices[worker % len(devices)]} for worker in range(size)]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory, if a worker has only a share."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"} if devices < 1 else {}


def main(fd: int, cores: list[int]) -> None:
    """What a worker does; the caller has arranged that it ends with its parent."""
    if cores:
        os.sched_setaffinity(0, cores)  # before JAX starts its threads, which take it over
    from .worker import Worker

    connection = Connection(fd)
    tasks: SimpleQueue[Task] = SimpleQueue()

    def send(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            os._exit(0)

    worker = Worker(send)

    def listen() -> None:
        while True:
            try:
                what = connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # the parent is gone, or wants no more
            if what == STOP:
                worker.stopping = True
            else:
                tasks.put(what)

    threading.Thread(target=listen, daemon=True).start()
    send(Ready())
    while True:
        worker.run(tasks.get())
