"""Workers that are tasks of Ray. A task computes a share and yields rows after each
batch.

Ray starts the processes that run tasks, and detects lost processes and lost nodes. The
rest of a lost task's share is given out again. The head node of a cluster must stay up
during the whole sweep. A Ray that was started on this machine must stay up, too. Every
node needs this version of jaxrecall, but no other files.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from ...errors import UsageError, in_one_line
from ..machine import cores, share_of_memory
from .progress import Event, Failure
from .workers import (
    ALIVE_SECONDS,
    MAX_FAILED_STARTS,
    Setup,
    Worker,
    Workers,
    compute,
    with_package,
)

ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""The environment variables for starting a local Ray. The first one makes Ray bind to
127.0.0.1 only, also on Linux. With the option --node-ip-address=127.0.0.1, Ray would
choose another address.
"""

NO_TOKEN = (
    "it asks for a token: RAY_AUTH_MODE=token must be set here, and ~/.ray/auth_token"
    " must be that of the cluster"
)
STORE_BYTES = 100 * 2**20  # size of the object store of a local Ray; rows are small
CONNECT_SECONDS, SENT_SECONDS = 10.0, 1.0

LOOK_SECONDS, LOST_SECONDS, CLOSE_SECONDS = 2.0, 30.0, 15.0
"""The time between two connections to the head of the cluster, the time without an
answer after which the head is lost, and the time that Ray has to end, all in seconds.
After 60 s without a head, Ray ends this process.
"""


class RayWorkers(Workers):
    """Workers that are tasks of Ray. Each task requests the given resources.

    The tasks run on the Ray at `address`. Without an address, a local Ray is started.
    `size` tasks run at a time. If `size` is None, as many tasks run as fit, but at most
    `most`. Raises UsageError if Ray cannot be reached or started.
    """

    def __init__(
        self,
        size: int | None,
        setup: Setup,
        address: str | None,
        most: int,
        resources: Mapping[str, float],
    ):
        cpus = resources["CPU"]
        self.ray = connected(address, math.ceil(max(cores(), (size or 1) * cpus)))
        self.head = self.ray.get_runtime_context().gcs_address
        self.looked = self.answered = time.monotonic()
        offer = self.ray.cluster_resources()
        fitting = most
        for name, amount in resources.items():
            fitting = min(fitting, int(offer.get(name, 0) / amount))
        self.no_room = ""
        if not fitting:
            offered = {name: offer[name] for name in resources if name in offer}
            self.no_room = (
                f"no room for a worker yet: each needs {_listed(resources)}; Ray has"
                f" {_listed(offered) or 'nothing'}"
            )
        special = dict(resources)
        self.task = self.ray.remote(compute_share).options(
            num_cpus=special.pop("CPU"),
            num_gpus=special.pop("GPU", 0),
            resources=special,
            max_retries=0,
            num_returns="streaming",
        )
        self.arguments = setup, cpus, resources.get("GPU", 1.0)
        super().__init__(size or max(1, fitting), setup)
        self.cores, self.n_limits = cpus, 1

    def start(self, worker: Worker) -> None:
        worker.ready = True

    def give(self, worker: Worker, message: bytes) -> None:
        worker.running = self.task.remote(message, *self.arguments)
        worker.heard = 0.0

    def events(self, seconds: float) -> Iterator[tuple[Worker, Event]]:
        if self.no_room:
            self.call.message(self.no_room)
            self.no_room = ""
        if self._has_lost_head():
            line = f"the head of the Ray cluster at {self.head} is lost"
            for worker in self.workers:
                worker.failed_starts = MAX_FAILED_STARTS + 1
                yield worker, ("lost", Failure(line))
            return
        tasks = {worker.running: worker for worker in self.workers if worker.running}
        ready, _ = self.ray.wait(list(tasks), timeout=seconds)
        for task in ready:
            worker = tasks[task]
            try:
                event = self.ray.get(next(task))
            except StopIteration:
                event = ("ended",)
                worker.running = None
            except self.ray.exceptions.RayError as error:
                event = "lost", Failure(f"lost: {in_one_line(error)}")
            yield worker, event

    def end(self, worker: Worker) -> None:
        if worker.running:
            self.ray.cancel(worker.running, force=True)
            worker.running = None

    def _has_lost_head(self) -> bool:
        """Connects to the head every LOOK_SECONDS.

        Returns whether the head has not answered for LOST_SECONDS.
        """
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return False
        with suppress(OSError):
            _connect(self.head, LOOK_SECONDS)
            self.answered = time.monotonic()
        self.looked = time.monotonic()
        return self.looked - self.answered > LOST_SECONDS

    def close(self) -> None:
        # without a head, Ray may wait for ever
        shutdown = threading.Thread(target=self.ray.shutdown, daemon=True)
        shutdown.start()
        shutdown.join(CLOSE_SECONDS)
        atexit.unregister(self.ray.shutdown)


def connected(address: str | None, n_cores: int) -> Any:
    """Returns the module `ray`, connected to the cluster at `address` or to a new Ray.

    Raises UsageError if Ray cannot be reached or started.
    """
    if address is None:
        os.environ.update({**ALONE, **with_package(os.environ)})
    options: dict[str, Any] = {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    at_sigterm = signal.getsignal(signal.SIGTERM)
    # Ray may create ~/.ray/auth_token, which only the user must be able to read
    umask = os.umask(0o077)
    try:
        import ray  # needs its environment variables first

        if address is None:
            options = {
                "num_cpus": n_cores,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            }
        elif address != "auto":
            # Ray itself would try for many minutes
            _connect(address, CONNECT_SECONDS)
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
            **options,
        )
    except Exception as error:
        raise UsageError(_no_ray(address, error)) from error
    finally:
        os.umask(umask)
        signal.signal(signal.SIGTERM, at_sigterm)  # Ray replaces it
    return ray


def _connect(address: str, seconds: float) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), seconds).close()


def _no_ray(address: str | None, error: Exception) -> str:
    where = f"no Ray at {address}" if address else "no Ray could be started here"
    why = in_one_line(error)
    if "AuthenticationError" in repr(error) + repr(error.__cause__):
        why = NO_TOKEN
    return (
        f"--ray-address: {where} ({why}); allowed: on a machine of the cluster:"
        " HOST:PORT of its head, or auto; or none, to start one here"
    )


_messages, _events = queue.SimpleQueue[bytes](), queue.SimpleQueue[Event]()
"""The shares that the thread of this Ray process has not begun, and its events that
have not been sent.
"""


@cache
def _start_thread(setup: Setup, n_cores: float, devices: float) -> None:
    """Starts the thread that computes shares. It is kept because a process runs many
    tasks, so that each program is compiled once.
    """
    os.environ.update({**share_of_memory(devices), **os.environ})
    arguments = *setup, _messages.get, _events.put, n_cores
    threading.Thread(target=compute, args=arguments, daemon=True).start()


def compute_share(
    message: bytes, setup: Setup, n_cores: float, devices: float
) -> Iterator[Event]:
    """Computes a pickled share as a task of Ray, and yields its events.

    The first event says that the task has begun. The share is computed in a thread, so
    that the task shows that it is alive while a batch is running.
    """
    yield ("alive",)
    _start_thread(setup, n_cores, devices)
    _messages.put(message)
    while True:
        try:
            event = _events.get(timeout=ALIVE_SECONDS)
        except queue.Empty:
            event = ("alive",)
        if event == ("ended",):
            return
        yield event
        if event[0] in ("refused", "lost"):
            time.sleep(SENT_SECONDS)
            os._exit(1)


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items())
