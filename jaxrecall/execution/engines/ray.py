"""--engine ray: workers are long-lived Ray actors, on a running cluster or on one that is started here.

Every node needs this version of jaxrecall, and nothing else: rows come back to the parent, which saves them.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray.exceptions import RayError

from ...errors import UsageError
from ...plan.cost import cores, node_cache
from ...science.columns import CODE_VERSION
from .events import Ended, Event, Failed, Lost, Message, Ready, Task
from .local import share_of_memory
from .pool import Pool

CONNECT_SECONDS = 10.0
NO_PLACE_SECONDS = 30.0
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


class RayPool(Pool):
    """Actors that each request `resources`, as Ray names them (CPU, GPU, TPU, ...); as many as fit unless `size` is given."""

    def __init__(self, size: int | None, address: str | None, resources: Mapping[str, float]):
        self.is_here = address is None and not ray.is_initialized()
        self.owned = not ray.is_initialized()
        if address is None:
            size = size or cores()
            resources = {"CPU": max(1, cores() // size), **resources}
        self.resources = {"CPU": 1.0, **resources}
        if self.owned:
            connect(address, math.ceil(max(cores(), (size or 1) * self.resources["CPU"])))
        there = ray.cluster_resources()
        fitting = min(int(there.get(name, 0) / amount) for name, amount in self.resources.items() if amount)
        super().__init__(size or max(1, fitting))
        self.offer = ", ".join(f"{name} {there[name]:g}" for name in sorted(there) if name in {"CPU", "GPU", "TPU", *self.resources})
        self.peers = math.ceil(self.size / max(1, sum(node["Alive"] for node in ray.nodes())))
        special = {name: amount for name, amount in self.resources.items() if name not in ("CPU", "GPU")}
        options = {"num_cpus": self.resources["CPU"], "num_gpus": self.resources.get("GPU", 0), "resources": special}
        self.kind = ray.remote(Actor).options(**options, max_concurrency=2, max_restarts=0)
        self.actors: dict[int, Any] = {}
        self.nodes: dict[int, tuple[str, int]] = {}  # node of a worker, and its share of the cores there
        self.hosts: dict[int, str] = {}
        self.awaited: dict[Any, int] = {}  # a node, a start, the next event
        self.since, self.reported = time.monotonic(), False
        for worker in range(self.size):
            self.start(worker)

    def start(self, worker: int) -> None:
        self.actors[worker] = self.kind.remote()
        self.awaited[self.actors[worker].node.remote()] = worker

    def end(self, worker: int) -> None:
        ray.kill(self.actors.pop(worker))
        self.nodes.pop(worker, None)
        self.awaited = {ref: other for ref, other in self.awaited.items() if other != worker}

    def send(self, worker: int, task: Task) -> None:
        self.awaited[self.actors[worker].run.options(num_returns="streaming").remote(task)] = worker

    def stop(self) -> None:
        for worker in self.hosts.keys() & self.actors.keys():
            self.actors[worker].stop.remote()

    def events(self, seconds: float) -> Iterator[tuple[int, Event]]:
        yield from self._no_place()
        if not self.awaited:
            time.sleep(seconds)
            return
        ready, _ = ray.wait(list(self.awaited), timeout=seconds)
        if ready:  # all that are there, not only the first
            ready, _ = ray.wait(list(self.awaited), num_returns=len(self.awaited), timeout=0)
        for ref in map(_any, ready):
            worker = self.awaited[ref]
            try:
                if isinstance(ref, ray.ObjectRefGenerator):
                    event: Any = ray.get(next(ref))
                    if isinstance(event, (Ended, Failed)):
                        del self.awaited[ref]
                    yield worker, event
                    continue
                del self.awaited[ref]
                answer = ray.get(ref)
            except (RayError, StopIteration) as error:
                self.awaited.pop(ref, None)
                yield worker, Lost(_short(error), self.hosts.get(worker, ""))
                continue
            if isinstance(answer, str):
                slot = self._slot(worker, answer)
                start = self.actors[worker].start.remote(slot, self.resources, not self.is_here, CODE_VERSION)
                self.awaited[start] = worker
            else:
                event, self.hosts[worker] = answer
                yield worker, event

    def _slot(self, worker: int, node: str) -> int:
        taken = {slot for other, slot in self.nodes.values() if other == node}
        slot = next(i for i in range(self.size) if i not in taken)
        self.nodes[worker] = node, slot
        return slot

    def _no_place(self) -> Iterator[tuple[int, Event]]:
        """A message, once, if no worker could be placed for a long time."""
        if not self.reported and not self.nodes and time.monotonic() - self.since > NO_PLACE_SECONDS:
            self.reported = True
            needed = ", ".join(f"{name} {amount:g}" for name, amount in self.resources.items())
            yield 0, Message(f"no room for a worker yet: each needs {needed}; the cluster has {self.offer or 'nothing'}")

    def close(self) -> None:
        for worker in list(self.actors):
            with suppress(RayError):
                self.end(worker)
        if self.owned:
            ray.shutdown()


def connect(address: str | None, n_cores: int) -> None:
    """Joins the cluster at `address`, or starts one here; raises UsageError where that is not possible."""
    if address and address != "auto":
        host, _, port = address.rpartition(":")
        try:  # Ray itself would try for many minutes
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError, OverflowError) as error:
            raise _refused(address, str(error)) from error
    how = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if hasattr(ray_worker, "print_to_stdstream"):  # it would report lost workers on stdout, whatever `how` says
        ray_worker.print_to_stdstream = lambda *_, **__: None
    with _our_signals():
        try:
            if address:
                ray.init(address=address, **how)
            else:
                ray.init(address="local", num_cpus=n_cores, include_dashboard=False, object_store_memory=STORE_BYTES, **how)
        except (ConnectionError, RuntimeError, ValueError, OSError, RayError) as error:
            raise _refused(address or "(a local one)", str(error)) from error


def _refused(address: str, why: str) -> UsageError:
    text = " ".join(why.split())[:200]
    return UsageError(
        f"--ray-address: no Ray at {address} ({text}); allowed on a machine of the cluster: HOST:PORT of its head, or auto; "
        "or none, to start one here"
    )


@contextmanager
def _our_signals() -> Iterator[None]:
    """Restores the sweep's handlers of signals, which Ray replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _any(ref: Any) -> Any:
    """Ray's own types know no streams among the references."""
    return ref


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split("\n\t")[0].split()) or type(error).__name__
    return text[:200]
