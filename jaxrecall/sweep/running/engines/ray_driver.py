"""The process that uses Ray for a pool: it starts and ends actors, gives them tasks, and passes their events on.

It keeps no other state: if Ray or this process fails, the pool starts another.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayError

from ....cli import SIGNALS
from ....model.columns import CODE_VERSION
from ...calibration import cores, node_cache
from .events import Ended, Event, Failed, Lost, Message, Ready, Task
from .local import share_of_memory
from .ray import Joined, Request

CONNECT_SECONDS = 10.0
NO_PLACE_SECONDS = 30.0
WATCH_SECONDS = 2.0
NO_ANSWER_SECONDS = 50.0  # of the cluster's head, which may start again; Ray itself gives up after 60
NO_TOKEN = "it asks for a token: RAY_AUTH_MODE=token must be set here, and ~/.ray/auth_token must be that of the cluster"
STORE_BYTES = 100 * 2**20  # of a local Ray's object store: rows are small


class Actor:
    """A worker in a process of Ray's; one thread of it has the cores, JAX and the work."""

    def start(self, slot: int, resources: Mapping[str, float], cache: bool, code_version: int) -> tuple[Event, str]:
        """Starts JAX on the `slot`-th share of this node's cores; returns whether it is ready or lost, and this host."""
        host = socket.gethostname()
        if code_version != CODE_VERSION:
            return Lost(f"jaxrecall of code_version {CODE_VERSION} there, {code_version} here", host), host
        if cache:
            os.environ.setdefault("JAXRECALL_CACHE", node_cache())
        for name, value in share_of_memory(resources.get("GPU", 1.0)).items():
            os.environ.setdefault(name, value)
        self.tasks: SimpleQueue[Task] = SimpleQueue()
        self.outbox: SimpleQueue[Event] = SimpleQueue()
        threading.Thread(target=self._work, args=(slot, max(1, int(resources.get("CPU", 1)))), daemon=True).start()
        return self.outbox.get(), host

    def _work(self, slot: int, n: int) -> None:
        if hasattr(os, "sched_getaffinity"):
            mine = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {mine[(slot * n + i) % len(mine)] for i in range(n)})
        try:
            from .worker import Worker

            self.worker = Worker(self.outbox.put)
        except Exception as error:
            self.outbox.put(Lost(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", socket.gethostname()))
            return
        self.outbox.put(Ready())
        while True:
            self.worker.run(self.tasks.get())

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def run(self, task: Task) -> Iterator[Event]:
        self.tasks.put(task)
        while True:
            event = self.outbox.get()
            yield event
            if isinstance(event, (Ended, Failed)):
                return

    def stop(self) -> None:
        self.worker.stopping = True


class Driver:
    """The actors of a pool, each with a coroutine. The pool calls `start`, `end`, `send`, `stop` and `close`."""

    def __init__(self, connection: Connection, request: Request):
        self.connection, self.resources, self.is_here = connection, request.resources, request.address is None
        there = ray.cluster_resources()
        fitting = min(int(there.get(name, 0) / amount) for name, amount in self.resources.items() if amount)
        self.size = request.size or max(1, fitting)
        self.peers = math.ceil(self.size / max(1, sum(node["Alive"] for node in ray.nodes())))
        special = {name: amount for name, amount in self.resources.items() if name not in ("CPU", "GPU")}
        options = {"num_cpus": self.resources["CPU"], "num_gpus": self.resources.get("GPU", 0), "resources": special}
        self.kind = ray.remote(Actor).options(**options, max_concurrency=2, max_restarts=0)
        self.lives: dict[int, asyncio.Task[None]] = {}
        self.tasks: dict[int, asyncio.Queue[Task]] = {}
        self.nodes: dict[int, tuple[str, int]] = {}  # node of a worker, and its share of the cores there
        self.actors: dict[int, Any] = {}  # those that are ready

    async def run(self) -> None:
        """Until the pool closes the connection."""
        self.connection.send(Joined(self.size, self.peers))
        self.watch = asyncio.create_task(self._watch())
        threading.Thread(target=self._listen, args=(asyncio.get_running_loop(),), daemon=True).start()
        remark = asyncio.create_task(self._no_place())
        with suppress(asyncio.CancelledError):
            await asyncio.gather(self.watch, remark)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """A thread, so that this process always takes what it is sent and neither side waits for the other."""
        while True:
            try:
                method, *arguments = self.connection.recv()
            except (EOFError, OSError):
                method, arguments = "close", []
            loop.call_soon_threadsafe(getattr(self, method), *arguments)
            if method == "close":
                return

    def start(self, worker: int) -> None:
        self.tasks[worker] = asyncio.Queue()
        self.lives[worker] = asyncio.create_task(self._live(worker, self.tasks[worker]))

    def end(self, worker: int) -> None:
        self.lives.pop(worker).cancel()

    def send(self, worker: int, task: Task) -> None:
        self.tasks[worker].put_nowait(task)

    def stop(self) -> None:
        for actor in self.actors.values():
            actor.stop.remote()

    def close(self) -> None:
        self.watch.cancel()

    async def _live(self, worker: int, tasks: asyncio.Queue[Task]) -> None:
        """An actor from its start to its loss or end."""
        actor: Any = self.kind.remote()
        host = ""
        try:
            self.nodes[worker] = place = self._place(await actor.node.remote())
            event, host = await actor.start.remote(place[1], self.resources, not self.is_here, CODE_VERSION)
            self.actors[worker] = actor
            self.connection.send((worker, event))
            while True:
                async for ref in actor.run.options(num_returns="streaming").remote(await tasks.get()):
                    self.connection.send((worker, await ref))
        except Exception as error:
            self.connection.send((worker, Lost(_short(error), host)))
        finally:
            self.nodes.pop(worker, None)
            self.actors.pop(worker, None)
            with suppress(RayError):
                ray.kill(actor)

    def _place(self, node: str) -> tuple[str, int]:
        """The node, and a share of its cores that no other worker has."""
        taken = {slot for other, slot in self.nodes.values() if other == node}
        return node, next(i for i in range(self.size) if i not in taken)

    async def _no_place(self) -> None:
        """A message, once, if no worker could be placed for a long time."""
        await asyncio.sleep(NO_PLACE_SECONDS)
        if not self.nodes:
            needed = ", ".join(f"{name} {amount:g}" for name, amount in self.resources.items())
            there = ray.cluster_resources()
            offer = ", ".join(f"{name} {there[name]:g}" for name in sorted(there) if name in {"CPU", "GPU", "TPU", *self.resources})
            text = f"no room for a worker yet: each needs {needed}; the cluster has {offer or 'nothing'}"
            self.connection.send((0, Message(text)))

    async def _watch(self) -> None:
        """Ends this process if Ray's own process of this machine has ended: then no task or result gets through, and Ray waits forever."""
        here = ray.get_runtime_context().get_node_id()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                nodes = await asyncio.wait_for(asyncio.to_thread(ray.nodes), NO_ANSWER_SECONDS)
                alive = any(node["NodeID"] == here and node["Alive"] for node in nodes)
                reason = "" if alive else "the Ray node of this machine has died"
            except (TimeoutError, RayError):
                reason = "the head of the Ray cluster does not answer"
            if reason:
                self.connection.send(Lost(reason, socket.gethostname()))
                os._exit(1)


def connect(address: str | None, n_cores: int) -> None:
    """Joins the cluster at `address`, or starts one here."""
    if address and address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()  # Ray itself would try for many minutes
    how = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address:
        ray.init(address=address, **how)
    else:
        ray.init(address="local", num_cpus=n_cores, include_dashboard=False, object_store_memory=STORE_BYTES, **how)


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
        connect(request.address, math.ceil(max(cores(), (request.size or 1) * request.resources["CPU"])))
        _leave_signals()  # Ray has set handlers of its own
        driver = Driver(connection, request)
    except Exception as error:
        refused = "AuthenticationError" in repr(error) + repr(error.__cause__)
        connection.send(Lost(f"{where} ({NO_TOKEN if refused else _short(error)})", socket.gethostname()))
        os._exit(1)
    asyncio.run(driver.run())
    ray.shutdown()
