"""--engine ray: worker processes that long-lived Ray actors hold, on a running cluster or on a Ray that is started here.

A process of its own uses Ray, because Ray ends the process that uses it a minute after the head of the cluster was lost. Then all workers
are lost; they start again from another such process, which joins the cluster or starts Ray again.
Every node needs this version of jaxrecall, and nothing else: rows come back to this process, which saves them.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import ray

from ...cli import SIGNALS
from ...errors import UsageError
from ..calibration import cores, node_cache
from .local import Process, lost, share_of_memory
from .scheduler import MAX_FAILED_STARTS, Workers
from .worker import Event, Setup

CLOSE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
NO_PLACE_SECONDS = 30.0
WATCH_SECONDS = 2.0
NO_TOKEN = "it asks for a token: RAY_AUTH_MODE=token must be set here, and ~/.ray/auth_token must be that of the cluster"
STORE_BYTES = 100 * 2**20  # of a local Ray's object store: rows are small


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
    """Workers that each request `resources`; as many as fit, but no more than `most`, unless `size` is given.

    Raises UsageError if no Ray is at `address`.
    """

    def __init__(
        self,
        size: int | None,
        address: str | None,
        resources: Mapping[str, float],
        setup: Setup,
        most: int,
    ):
        self.is_here = address is None
        if address is None:
            size = size or min(cores(), most)
            resources = {"CPU": max(1, cores() // size), **resources}
        self.request = Request(address, size, {"CPU": 1.0, **resources}, setup, most)
        self.driver: Process | None = None
        peers = size or 1
        if address:
            name, *about = self._receive()
            if name == "lost":
                allowed = "on a machine of the cluster: HOST:PORT of its head, or auto; or none, to start one here"
                raise UsageError(f"--ray-address: {about[0].line}; allowed {allowed}")
            size, peers = about
        super().__init__(size or 1, peers, self.request.resources["CPU"] / cores())

    def _call(self, *call: Any) -> None:
        """Calls a method of `Driver`."""
        self._process().send(call)

    def _process(self) -> Process:
        if self.driver is None:
            # where Ray would report what the sweep reports, too
            self.driver = Process("ray", self.request, stdout=subprocess.DEVNULL)
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


class Actor:
    """Holds a worker process on its node, which ends with it."""

    def place(self) -> tuple[str, str]:
        """The node's id and its host name."""
        return ray.get_runtime_context().get_node_id(), socket.gethostname()

    def events(self, slot: int, resources: Mapping[str, float], own_cache: bool, setup: Setup) -> Iterator[Event]:
        """Starts the process on the `slot`-th share of this node's cores; its events, until it is lost."""
        n, mine = max(1, int(resources["CPU"])), sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        share = {mine[(slot * n + i) % len(mine)] for i in range(n if mine else 0)}
        env = share_of_memory(resources.get("GPU", 1.0)) | ({"JAXRECALL_CACHE": node_cache()} if own_cache else {})
        self.process = Process("worker", setup, {**env, **os.environ}, share)
        event: Event = ()
        while event[:1] != ("lost",):
            event = self.process.receive()
            yield event

    def send(self, message: bytes) -> None:
        self.process.send(message)


class Driver:
    """The actors, each followed by a thread, in the process that uses Ray. `RayWorkers` calls `start`, `end` and `send`."""

    def __init__(self, connection: Connection, request: Request):
        self.connection, self.request = connection, request
        needed, there = request.resources, ray.cluster_resources()
        fitting = min(int(there.get(name, 0) / amount) for name, amount in needed.items() if amount)
        self.size = request.size or max(1, min(fitting, request.most))
        special = {name: amount for name, amount in needed.items() if name not in ("CPU", "GPU")}
        options = {"num_cpus": needed["CPU"], "num_gpus": needed.get("GPU", 0), "resources": special}
        self.kind = ray.remote(Actor).options(**options, max_concurrency=2, max_restarts=0)
        self.setup = ray.put(request.setup)
        self.actors: dict[int, Any] = {}
        self.places: dict[int, tuple[str, int]] = {}
        """The node of each worker, and its share of the cores there."""

        self.lock = threading.Lock()
        connection.send(("joined", self.size, math.ceil(self.size / max(1, sum(node["Alive"] for node in ray.nodes())))))
        threading.Thread(target=self._watch, daemon=True).start()
        threading.Thread(target=self._report_no_place, daemon=True).start()

    def start(self, worker: int) -> None:
        actor = self.actors[worker] = self.kind.remote()
        threading.Thread(target=self._follow, args=(worker, actor), daemon=True).start()

    def end(self, worker: int) -> None:
        with self.lock:
            self.places.pop(worker, None)
            actor = self.actors.pop(worker, None)
        if actor:
            ray.kill(actor)

    def send(self, worker: int, message: bytes) -> None:
        self.actors[worker].send.remote(message)

    def _follow(self, worker: int, actor: Any) -> None:
        """Passes the events of an actor on, from its start to its loss."""
        host = ""
        try:
            node, host = ray.get(actor.place.remote())
            with self.lock:
                taken = {slot for other, slot in self.places.values() if other == node}
                slot = next(i for i in range(self.size) if i not in taken)
                self.places[worker] = node, slot
            for event in actor.events.remote(slot, self.request.resources, self.request.address is not None, self.setup):
                self._report(worker, actor, ray.get(event))
        except Exception as error:
            self._report(worker, actor, lost(_short(error), host))

    def _report(self, worker: int, actor: Any, event: Event) -> None:
        with self.lock:
            if self.actors.get(worker) is actor:
                self.connection.send((worker, *event))

    def _report_no_place(self) -> None:
        """Says what is missing if no worker could be placed for a long time."""
        time.sleep(NO_PLACE_SECONDS)
        needed, there = self.request.resources, ray.cluster_resources()
        offer = {name: there[name] for name in sorted(there) if name in {"CPU", "GPU", "TPU", *needed}}
        wanted, found = (", ".join(f"{name} {amount:g}" for name, amount in all_of.items()) or "nothing" for all_of in (needed, offer))
        with self.lock:
            if not self.places:
                self.connection.send((0, "message", f"no room for a worker yet: each needs {wanted}; the cluster has {found}"))

    def _watch(self) -> None:
        """Ends this process if Ray's own process of this machine has ended: then no message gets through, and Ray waits forever."""
        here = ray.get_runtime_context().get_node_id()
        while any(node["NodeID"] == here and node["Alive"] for node in ray.nodes()):
            time.sleep(WATCH_SECONDS)
        with self.lock:
            self.connection.send(lost("the Ray node of this machine has died"))
            os._exit(1)


def connect(address: str | None, n_cores: int, n_bytes: int) -> None:
    """Joins the cluster at `address`, or starts one here, with room for `n_bytes` that workers are sent."""
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        how |= {"num_cpus": n_cores, "include_dashboard": False, "object_store_memory": STORE_BYTES + 2 * n_bytes}
    elif address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()  # Ray itself would try for many minutes
    ray.init(address=address or "local", **how)


def _leave_signals() -> None:
    """Leaves signals to the parent. A handler, unlike SIG_IGN, is not inherited by the processes that Ray starts."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split("\n\t")[0].split()) or type(error).__name__
    return text[:200]


def main(connection: Connection) -> None:
    _leave_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    request: Request = connection.recv()
    where = f"no Ray at {request.address}" if request.address else "no Ray could be started here"
    try:
        n_bytes = sum(content.rows.nbytes for content in request.setup.contents.values())
        connect(request.address, math.ceil(max(cores(), (request.size or 1) * request.resources["CPU"])), n_bytes)
        _leave_signals()  # Ray has set handlers of its own
        driver = Driver(connection, request)
    except Exception as error:
        refused = "AuthenticationError" in repr(error) + repr(error.__cause__)
        connection.send(lost(f"{where} ({NO_TOKEN if refused else _short(error)})"))
        os._exit(1)
    with suppress(EOFError, OSError):
        while True:
            method, *arguments = connection.recv()
            getattr(driver, method)(*arguments)
    ray.shutdown()
    os._exit(0)
