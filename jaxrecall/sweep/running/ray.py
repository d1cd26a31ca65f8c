"""--engine ray: worker processes that long-lived Ray actors hold, on a running cluster or on a Ray that is started here.

A process of its own uses Ray, because Ray ends the process that uses it a minute after the head of the cluster was lost. Then all workers
are lost; they start again from another such process, which joins the cluster or starts Ray again.
Every node needs this version of jaxrecall, and nothing else: rows come back to this process, which saves them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...errors import UsageError
from ..calibration import cores
from .local import Process
from .scheduler import MAX_FAILED_STARTS, Workers
from .worker import Event, Setup

CLOSE_SECONDS = 10.0
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""0: Ray binds to 127.0.0.1 alone, on Linux too; told --node-ip-address=127.0.0.1, it would take another address."""


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
        """What the driver sends next: `joined` with size and peers, `lost` if Ray is lost, else a worker and its event."""
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
    """A new process that uses Ray. A Ray that it starts listens on the loopback interface only and asks for a token."""
    alone = {} if request.address else {LOOPBACK: "0", "RAY_AUTH_MODE": "token"}
    # Ray would print there what the sweep reports, too
    return Process("ray_driver", request, {**alone, **os.environ}, stdout=subprocess.DEVNULL)


def joined(event: Any) -> tuple[int, int]:
    """The number of workers, and of those that share a machine, from the first event of a driver; raises UsageError."""
    name, *about = event
    if name == "lost":
        allowed = "on a machine of the cluster: HOST:PORT of its head, or auto; or none, to start one here"
        raise UsageError(f"--ray-address: {about[0].line}; allowed {allowed}")
    size, peers = about
    return size, peers
