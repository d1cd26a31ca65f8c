"""Workers that are tasks of Ray: a chunk is a task, whose rows come back a batch at a
time.

Ray starts the processes that run tasks, and finds out which of them, and which nodes,
are lost. A task that is lost is followed by another with the rest of its runs. The head
of a cluster, and Ray on this machine, must live as long as the sweep. Every node needs
this version of jaxrecall, and nothing else.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...cli.process import SIGNALS
from ...errors import UsageError, in_one_line
from ..machine import cores
from .pool import Place, Pool, Setup, Worker, last_event, share_of_memory, with_package
from .progress import Event, Failure

ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""Of a Ray that is started here. With the first, Ray binds to 127.0.0.1 alone, on Linux
too; told --node-ip-address=127.0.0.1, it would take another address."""

NO_TOKEN = (
    "it asks for a token: RAY_AUTH_MODE=token must be set here, and ~/.ray/auth_token"
    " must be that of the cluster"
)
STORE_BYTES = 100 * 2**20  # of a local Ray's object store: rows are small
CONNECT_SECONDS, SENT_SECONDS = 10.0, 1.0


class RayPool(Pool):
    """Tasks that each hold the resources of a request, on a Ray at `address` or started
    here.

    `size` at a time, or as many as fit, and no more than `most`.

    Raises UsageError if there is no Ray.
    """

    def __init__(
        self,
        setup: Setup,
        address: str | None,
        size: int | None,
        most: int,
        resources: Mapping[str, float],
    ):
        self.ray = connected(
            address, math.ceil(max(cores(), (size or 1) * resources["CPU"]))
        )
        offer = self.ray.cluster_resources()
        fitting = min(
            int(offer.get(name, 0) / amount)
            for name, amount in resources.items()
            if amount
        )
        self.no_room = (
            ""
            if fitting
            else (
                f"no room for a worker yet: each needs {_listed(resources)}; Ray has"
                f" {_listed(offer, resources)}"
            )
        )
        special = {
            name: amount
            for name, amount in resources.items()
            if name not in ("CPU", "GPU")
        }
        options = {
            "num_cpus": resources["CPU"],
            "num_gpus": resources.get("GPU", 0),
            "resources": special,
            "max_retries": 0,
        }
        self.task = self.ray.remote(run_chunk).options(
            **options, num_returns="streaming"
        )
        self.arguments = (
            setup._replace(cores=resources["CPU"]),
            resources.get("GPU", 1.0),
        )
        self.tasks: dict[int, Any] = {}
        super().__init__(size or max(1, min(fitting, most)), resources["CPU"])

    def start(self, place: Place) -> None:
        place.ready = True

    def give(self, place: Place, message: bytes) -> None:
        self.tasks[place.number] = self.task.remote(*self.arguments, message)

    def events(self, seconds: float) -> Iterator[tuple[Place, Event]]:
        if self.no_room:
            yield self.places[0], ("message", self.no_room)
            self.no_room = ""
        ready, _ = self.ray.wait(list(self.tasks.values()), timeout=seconds)
        for i in [i for i, task in self.tasks.items() if task in ready]:
            try:
                events = self.ray.get(next(self.tasks[i]))
            except StopIteration:
                events = [("ended",)]
                del self.tasks[i]
            except self.ray.exceptions.RayError as error:
                events = [("lost", Failure(f"lost: {in_one_line(error)}", "", ""))]
            yield from ((self.places[i], event) for event in events)

    def end(self, place: Place) -> None:
        if task := self.tasks.pop(place.number, None):
            self.ray.cancel(task, force=True)

    def close(self) -> None:
        self.ray.shutdown()


def connected(address: str | None, n_cores: int) -> Any:
    """Ray, joined at the address or started here; raises UsageError."""
    if address is None:
        os.environ.update({**ALONE, **with_package(os.environ)})
    how: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": True,
    }
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        import ray  # after its variables

        if address is None:
            how |= {
                "num_cpus": n_cores,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            }
        elif address != "auto":
            host, _, port = address.rpartition(":")
            socket.create_connection(
                (host, int(port)), CONNECT_SECONDS
            ).close()  # Ray itself would try for many minutes
        ray.init(address=address or "local", **how)
    except Exception as error:
        refused = "AuthenticationError" in repr(error) + repr(error.__cause__)
        where = f"no Ray at {address}" if address else "no Ray could be started here"
        allowed = (
            "on a machine of the cluster: HOST:PORT of its head, or auto; or none, to"
            " start one here"
        )
        raise UsageError(
            f"--ray-address: {where} ({NO_TOKEN if refused else in_one_line(error)});"
            f" allowed: {allowed}"
        ) from error
    finally:
        for number, handler in handlers.items():  # Ray has set its own
            signal.signal(number, handler)
    return ray


_workers: dict[Setup, Worker] = {}
_events: list[Event] = []
"""Of a process of Ray, which runs many tasks: it compiles a program once."""


def run_chunk(setup: Setup, devices: float, message: bytes) -> Iterator[list[Event]]:
    """A task: the events of a pickled chunk, batch by batch."""
    try:
        if setup not in _workers:
            os.environ.update({**share_of_memory(devices), **os.environ})
            _workers[setup] = Worker(setup, _events.append)
        for event in _workers[setup].rows(message):
            yield [*_events, event]
            _events.clear()
    except Exception as error:
        yield [*_events, last_event(error)]
        time.sleep(SENT_SECONDS)
        os._exit(1)


def _listed(
    amounts: Mapping[str, float], names: Mapping[str, float] | None = None
) -> str:
    return (
        ", ".join(
            f"{name} {amount:g}"
            for name, amount in amounts.items()
            if not names or name in names
        )
        or "nothing"
    )
