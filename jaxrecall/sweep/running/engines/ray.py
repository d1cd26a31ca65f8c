"""--engine ray: workers are long-lived Ray actors, on a running cluster or on one that is started here.

A process of its own uses Ray, because Ray ends the process that uses it when it cannot go on. Then all workers are lost; they start
again from another such process, which joins the cluster or starts Ray again.
Every node needs this version of jaxrecall, and nothing else: rows come back to this process, which saves them.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ....errors import UsageError
from ...calibration import cores
from .events import Event, Lost, Message, Task
from .pool import MAX_FAILED_STARTS, Pool
from .process import Process

CLOSE_SECONDS = 10.0


class Request(NamedTuple):
    """The Ray to join, None to start one, the number of workers if given, and what each of them needs."""

    address: str | None
    size: int | None
    resources: Mapping[str, float]


class Joined(NamedTuple):
    """There is a Ray, and this is how many workers it is for, and how many of them share a machine."""

    size: int
    peers: int


class RayPool(Pool):
    """Actors that each request `resources`, as Ray names them (CPU, GPU, TPU, ...); as many as fit unless `size` is given."""

    def __init__(self, size: int | None, address: str | None, resources: Mapping[str, float]):
        self.is_here = address is None
        if address is None:
            size = self.peers = size or cores()
            resources = {"CPU": max(1, cores() // size), **resources}
        self.request = Request(address, size, {"CPU": 1.0, **resources})
        self.workers: set[int] = set()
        self.driver: Process | None = self._start_driver()
        if address:
            match self._received():
                case Joined() as joined:
                    size, self.peers = joined
                case Lost(reason):
                    raise UsageError(
                        f"--ray-address: {reason}; allowed on a machine of the cluster: HOST:PORT of its head, or auto; "
                        "or none, to start one here"
                    )
        assert size
        super().__init__(size)
        for worker in range(size):
            self.start(worker)

    def _start_driver(self) -> Process:
        driver = Process("ray_driver", stdout=subprocess.DEVNULL)  # where Ray would report what the sweep reports, too
        driver.put(self.request)
        return driver

    def start(self, worker: int) -> None:
        self.driver = self.driver or self._start_driver()
        self.workers.add(worker)
        self._call("start", worker)

    def end(self, worker: int) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            self._call("end", worker)

    def send(self, worker: int, task: Task) -> None:
        self._call("send", worker, task)

    def stop(self) -> None:
        self._call("stop")

    def _call(self, method: str, *arguments: Any) -> None:
        if self.driver:
            self.driver.put((method, *arguments))

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        while self.driver and self.driver.connection.poll(seconds):
            match self._received():
                case Lost() as lost:
                    if min(self.failed_starts.values()) < MAX_FAILED_STARTS:
                        yield 0, Message(f"{lost.reason}; {'joining' if self.request.address else 'starting'} Ray again")
                    workers, self.workers = sorted(self.workers), set()
                    yield from [(worker, lost) for worker in workers]
                case Joined():
                    pass
                case worker, event:
                    yield worker, event
            seconds = 0.0

    def _received(self) -> Any:
        """What the driver sends next: Joined, Lost if Ray is lost, else a worker and its event."""
        assert self.driver
        try:
            message = self.driver.connection.recv()
        except (EOFError, OSError):
            message = Lost(f"Ray has ended the process that uses it ({self.driver.death()})", socket.gethostname())
        if isinstance(message, Lost):
            self.close()
        return message

    def close(self) -> None:
        if self.driver:
            self.driver.end(CLOSE_SECONDS)
            self.driver = None
