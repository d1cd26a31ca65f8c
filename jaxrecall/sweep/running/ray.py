"""The process that uses Ray for `RayWorkers`: it joins or
starts Ray, and holds the actors, which hold the workers.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray

from ...cli.process import SIGNALS
from ...errors import in_one_line
from ..machine import cores
from .processes import Process, Request, lost, share_of_memory
from .worker import Event, Setup

CONNECT_SECONDS = 10.0
NO_PLACE_SECONDS = 30
WATCH_SECONDS = 2.0
SILENT_SECONDS = 10.0
NO_TOKEN = "it asks for a token: RAY_AUTH_MODE=token must be set here, and ~/.ray/auth_token must be that of the cluster"
STORE_BYTES = 100 * 2**20  # of a local Ray's object store: rows are small


def node_cache() -> str:
    """A cache folder on this node's own disk, for workers whose
    home may be on the network; none if another user holds its name.
    """
    folder = Path(tempfile.gettempdir(), f"jaxrecall-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            return str(folder)
    return ""


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
    """The actors, each followed by a thread, in the process
    that uses Ray. `RayWorkers` calls `start`, `end` and `send`.
    """

    def __init__(self, connection: Connection, request: Request):
        self.connection, self.request = connection, request
        needed, self.offer = request.resources, ray.cluster_resources()
        fitting = min(int(self.offer.get(name, 0) / amount) for name, amount in needed.items() if amount)
        self.size = request.size or max(1, min(fitting, request.most))
        special = {name: amount for name, amount in needed.items() if name not in ("CPU", "GPU")}
        options = {"num_cpus": needed["CPU"], "num_gpus": needed.get("GPU", 0), "resources": special}
        self.kind = ray.remote(Actor).options(**options, max_concurrency=2, max_restarts=0)
        self.setup = ray.put(request.setup)
        self.actors: dict[int, Any] = {}
        self.places: dict[int, tuple[str, int]] = {}
        """The node of each worker, and its share of the cores there."""

        self.lock = threading.Lock()
        self.answered = time.monotonic()
        connection.send(("joined", self.size, math.ceil(self.size / max(1, sum(node["Alive"] for node in ray.nodes())))))
        threading.Thread(target=self._watch, daemon=True).start()
        threading.Thread(target=self._report_waiting, daemon=True).start()

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
            self._report(worker, actor, lost(in_one_line(error), host))

    def _report(self, worker: int, actor: Any, event: Event) -> None:
        with self.lock:
            if self.actors.get(worker) is actor:
                self.connection.send((worker, *event))

    def _report_waiting(self) -> None:
        """Says what is waited for: room for the first worker, or a head
        that does not answer. Ray takes up to a minute to give it up.
        """
        silent = False
        for seconds in itertools.count(1):
            time.sleep(1.0)
            if seconds == NO_PLACE_SECONDS and not self.places:
                needed = self.request.resources
                offer = {name: self.offer[name] for name in sorted(self.offer) if name in {"CPU", "GPU", "TPU", *needed}}
                self._message(f"no room for a worker yet: each needs {_listed(needed)}; the cluster has {_listed(offer)}")
            was, silent = silent, time.monotonic() - self.answered > SILENT_SECONDS
            if silent and not was:
                wait = "waiting for it, which Ray does for up to a minute; finished rows are kept"
                self._message(f"the head of Ray has not answered for {SILENT_SECONDS:.0f} s; {wait}")

    def _message(self, line: str) -> None:
        with self.lock:
            self.connection.send((0, "message", line))

    def _watch(self) -> None:
        """Ends this process if Ray's own process of this machine has
        ended: then no message gets through, and Ray waits forever.
        """
        here = ray.get_runtime_context().get_node_id()
        while any(node["NodeID"] == here and node["Alive"] for node in ray.nodes()):
            self.answered = time.monotonic()
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
    """Leaves signals to the parent. A handler, unlike SIG_IGN,
    is not inherited by the processes that Ray starts.
    """
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items()) or "nothing"


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
        connection.send(lost(f"{where} ({NO_TOKEN if refused else in_one_line(error)})"))
        os._exit(1)
    with suppress(EOFError, OSError):
        while True:
            method, *arguments = connection.recv()
            getattr(driver, method)(*arguments)
    ray.shutdown()
    os._exit(0)
