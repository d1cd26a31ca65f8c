"""--workers K: new processes on this machine, one per accelerator or each with its own cores.

Tasks come and events go through the connection of a worker, which ends when the other side closes.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue

from .events import Event, Lost, Ready, Task
from .pool import Pool
from .process import Process

STOP = "stop"


class LocalPool(Pool):
    """`size` worker processes."""

    is_here = True

    def __init__(self, size: int):
        super().__init__(size)
        self.peers = size
        self.cores, self.environments = shares_of_cores(size), environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        for worker in range(size):
            self.start(worker)

    def start(self, worker: int) -> None:
        self.processes[worker] = Process("local", ",".join(map(str, self.cores[worker])), env=self.environments[worker])

    def send(self, worker: int, task: Task) -> None:
        self.processes[worker].put(task)

    def stop(self) -> None:
        for process in self.processes.values():
            process.put(STOP)

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        there = {process.connection: worker for worker, process in self.processes.items()}
        for connection in wait(list(there), seconds):
            assert isinstance(connection, Connection)
            worker = there[connection]
            try:
                event = connection.recv()
            except (EOFError, OSError):
                event = Lost(self.processes[worker].death(), socket.gethostname())
            yield worker, event

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


def main(connection: Connection, cores: str) -> None:
    """What a worker does, on the cores given by their numbers."""
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))  # before JAX starts its threads, which take it over
    from .worker import Worker

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
