"""Distributes a plan over workers. A free worker receives a chunk of one program's
runs.

A worker sends rows after each batch, and this process saves them. If a worker dies,
only its unfinished batches are lost, and another worker receives its remaining runs.
Chunks are pickled in this process and unpickled only in workers. So only workers need
the modules to which a chunk refers.

The workers in this module are processes on this machine. Each worker has its own
accelerator or its own cores. The libraries concurrent.futures and loky 3.7 were tried
and have three faults. When one worker is killed, they end the others, and the work in
progress is lost. When the parent is killed, the workers stay alive. Results are
returned at the end of a task, not after each batch.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

from ...cli.process import SIGNALS, STOPPING, STOPPING_AT_ONCE
from ...errors import UsageError, plural
from ...model.columns import CODE_VERSION
from ...model.point import Run, RunId
from ..machine import cores
from ..plan import Chunk, Plan, by_id, pieces
from ..simulators import Program
from ..simulators.custom import add_to_path
from .call import Call
from .progress import Event, Failure
from .runner import Runner

TRIES = 3
"""The number of workers that must be lost with a run before the run counts as failed. A
worker is lost if it raises an exception or dies.
"""

MAX_FAILED_STARTS = 3
"""The largest number of consecutive failed starts of a worker after which it is still
replaced. A start fails if the worker is lost before it is ready.
"""

LEAST_SECONDS, MOST_SECONDS, MOST_RUNS = 0.1, 20.0, 4096
"""Limits of a chunk: the least time, the most time (both in seconds), and the most
runs. For a smaller chunk, the cost of starting it would be noticeable. A larger chunk
would take long to return.
"""

SHARES = 3
"""With K workers, a chunk is at most 1 / (SHARES * K) of the remaining work. So chunks
are large at first and small at the end, where no worker should finish late.
"""

POLL_SECONDS = 0.2

ALIVE_SECONDS = 5.0
"""The time between two events with which a worker shows that it is alive, in seconds.
"""

SILENT_SECONDS = 30.0
"""The time in seconds after which a worker that sends no event is ended, if the call
must stop. A process that was stopped or hangs sends none. A busy one does.
"""

STOPPING_WORKERS = (
    f"{STOPPING}. A worker without a sign of life for {SILENT_SECONDS:.0f} s is ended"
)


class Setup(NamedTuple):
    """The settings that a worker receives before its first chunk."""

    import_paths: Iterable[str] = ()
    """The folders from which the worker can import, in addition to the usual ones."""

    x64: bool = False
    """Whether jax_enable_x64 is on in the process that receives the rows. The caller of
    this package may have turned it on.
    """

    cores: float = math.inf
    """The number of cores that the worker may use in its process."""

    code_version: int = CODE_VERSION
    """The code_version of the process that receives the rows."""


class Worker:
    """Runs chunks in this process, and starts JAX.

    `on_event` is called with each event that occurs between rows.
    """

    def __init__(self, setup: Setup, on_event: Callable[[Event], None]):
        if setup.code_version != CODE_VERSION:
            raise RuntimeError(
                f"jaxrecall of code_version {CODE_VERSION} there, {setup.code_version}"
                " here"
            )
        os.environ["JAX_ENABLE_X64"] = str(setup.x64)  # JAX has not started yet
        add_to_path(setup.import_paths)
        from ...simulator import program

        program.start()
        self.on_event = on_event
        self.n_sharing = max(1, int(cores() / setup.cores))
        """The number of workers that share the cores of this process."""

        self.plan: Plan | None = None

    def rows(self, message: bytes) -> Iterator[Event]:
        """Runs a chunk that is pickled with its plan, and yields an event for each
        batch.
        """
        chunk, plan = pickle.loads(message)
        if self.plan != plan:
            self.plan = plan
            self.runner = Runner(replace(plan, workers=self.n_sharing), self.on_event)
        for runs, got in self.runner.rows(chunk):
            yield "took", list(by_id(runs)), got


def last_event(error: BaseException) -> Event:
    """Returns the last event of a worker, which must end because of `error`.

    The worker must end because a device may fail at everything after an error.
    """
    return "refused" if isinstance(error, UsageError) else "lost", Failure.of(error)


@dataclass
class Place:
    """A slot for a worker and its replacements, and the state of the present worker."""

    number: int
    ready: bool = False
    failed_starts: int = 0
    program: Program | None = None
    """The program of the worker's latest chunk."""

    chunk: Chunk | None = None
    left: dict[RunId, Run] = field(default_factory=dict)
    """The runs of the chunk that are not finished, by id."""

    is_queued: bool = False
    """Whether the chunk may still wait for the resources that it needs."""

    heard: float = 0.0
    """When the worker sent its latest event, as returned by time.monotonic."""


class Workers(ABC):
    """A pool of `size` workers with `cores` cores each.

    A lost worker is replaced.
    """

    def __init__(self, size: int, cores: float):
        self.places = list(map(Place, range(size)))
        self.cores = cores
        self.reason = ""
        """A line that states why the latest lost worker was lost."""

        for place in self.places:
            self.start(place)

    @abstractmethod
    def start(self, place: Place) -> None:
        """Starts a worker. It is either ready immediately or sends "ready" later."""

    @abstractmethod
    def give(self, place: Place, message: bytes) -> None:
        """Sends a worker a chunk that is pickled with its plan.

        The worker shows that it is alive with an event every ALIVE_SECONDS.
        """

    @abstractmethod
    def events(self, seconds: float) -> Iterable[tuple[Place, Event]]:
        """Yields the events that have arrived. Waits at most `seconds` for the first
        event.
        """

    @abstractmethod
    def end(self, place: Place) -> None:
        """Ends a worker immediately."""

    @abstractmethod
    def close(self) -> None: ...

    def share(self, plan: Plan) -> Plan:
        """Returns the plan with its chunks removed. The chunks may contain millions of
        runs.

        Workers receive chunks one at a time and do not need the list.
        """
        return replace(plan, chunks=())

    def execute(self, plan: Plan, call: Call) -> None:
        """Runs the chunks of a plan.

        If `TRIES` workers are lost with a run, the run is reported as failed. The other
        runs continue.
        """
        Spread(self, plan, call).run()


class Spread:
    """Distributes one plan over workers."""

    def __init__(self, workers: Workers, plan: Plan, call: Call):
        self.workers, self.call = workers, call
        self.plan = workers.share(plan)
        self.waiting: dict[Program, deque[Run]] = {}
        """A dict from each program to its runs that wait for a worker."""

        for chunk in plan.chunks:
            self.waiting.setdefault(chunk.program, deque()).extend(chunk.runs)
        self.seconds_left = plan.run_seconds
        """The estimated time of the waiting runs on all cores of this machine, in
        seconds.
        """

        self.cost = Counter[RunId]()
        """A count for each run of the workers that were lost while they had it."""

        self.is_signal_told = False

    def run(self) -> None:
        interrupts = self.call.interrupts
        # `_must_wait` reports the signal, because it knows whether a batch is running
        with interrupts.patient(message=""):
            while self._goes_on():
                try:
                    with interrupts.droppable():
                        events = list(self.workers.events(POLL_SECONDS))
                except KeyboardInterrupt:
                    break
                for place, event in events:
                    self.handle(place, event)
                self.call.save()
            self.call.save(now=True)

    def _goes_on(self) -> bool:
        """Sends chunks to free workers. Returns whether to wait for events."""
        if not self.call.stopping:
            for place in self.workers.places:
                if self.waiting and place.ready and not place.chunk:
                    self._give(place)
            while self.waiting and self._none_starts():
                chunk = self._next(next(iter(self.waiting)), math.inf)
                failure = Failure(f"no worker starts: {self.workers.reason}", "", "")
                self.call.failed(chunk, failure)
        if self.call.stopping:
            return not self.call.gave_up and self._must_wait()
        return bool(self._busy() or self.waiting)

    def _busy(self) -> list[Place]:
        return [place for place in self.workers.places if place.chunk]

    def _must_wait(self) -> bool:
        """Whether a call that must stop waits for a batch. Ends the other workers.

        A worker that has not begun its chunk is ended immediately. A worker that shows
        no sign of life is ended after SILENT_SECONDS.
        """
        for place in self._busy():
            if place.is_queued:
                self._end(place)
            elif time.monotonic() - place.heard > SILENT_SECONDS:
                self._drop(place, f"no sign of life for {SILENT_SECONDS:.0f} s")
        must_wait = bool(self._busy())
        if self.call.interrupts.requested and not self.is_signal_told:
            self.is_signal_told = True
            self.call.message(STOPPING_WORKERS if must_wait else STOPPING_AT_ONCE)
        return must_wait

    def _end(self, place: Place) -> None:
        """Ends a worker, and forgets what is left of its chunk."""
        self.workers.end(place)
        place.ready, place.chunk, place.left = False, None, {}

    def _drop(self, place: Place, why: str) -> None:
        """Ends a worker whose chunk no other worker takes, and says so."""
        if place.left:
            self.call.message(
                f"worker {place.number}: {why}; the same command computes its"
                f" {plural(len(place.left), 'run')} again"
            )
        self._end(place)

    def _none_starts(self) -> bool:
        return all(
            place.failed_starts > MAX_FAILED_STARTS for place in self.workers.places
        )

    def _give(self, place: Place) -> None:
        """Sends a worker its next chunk.

        The chunk is so small that the other workers need not wait for it at the end. If
        runs of the worker's last program are waiting, the chunk consists of such runs.
        Otherwise, the chunk consists of runs of the program that the fewest workers
        run, so that few workers compile that program.
        """
        places = self.workers.places
        speed = self.workers.cores / cores()
        seconds = self.seconds_left / (SHARES * len(places))
        seconds = min(max(seconds, LEAST_SECONDS * speed), MOST_SECONDS * speed)
        if place.program not in self.waiting:
            users = Counter(other.chunk.program for other in places if other.chunk)
            place.program = min(self.waiting, key=lambda program: users[program])
        place.chunk = self._next(place.program, seconds)
        place.left = by_id(place.chunk.runs)
        self.workers.give(place, pickle.dumps((place.chunk, self.plan)))

    def _next(self, program: Program, seconds: float) -> Chunk:
        """Removes waiting runs of a program, and returns them as a chunk.

        On all cores of this machine, the chunk takes at most about `seconds`.
        """
        runs = self.waiting[program]
        costs = ((run, self.plan.seconds_of(run, program) / cores()) for run in runs)
        taken, total = next(pieces(costs, MOST_RUNS, seconds))
        for _ in taken:
            runs.popleft()
        self.seconds_left -= total
        if not runs:
            del self.waiting[program]
        return Chunk(program, taken, total)

    def handle(self, place: Place, event: Event) -> None:
        """Handles an event of a worker.

        If the call must stop, the worker is ended after its batch.
        """
        place.heard = time.monotonic()
        match event:
            case ("alive",):
                place.is_queued = False
            case ("ready",):
                place.ready, place.failed_starts = True, 0
            case (("compiling" | "compiled" | "message"), *_):
                share = 1 / len(self.workers.places)
                self.call.handle(event, f"worker {place.number}: ", share)
            case "took", ids, got if place.chunk:
                runs = list(map(place.left.pop, ids))
                self.call.take(place.chunk.part(runs), got)
                if self.call.stopping:
                    self._end(place)
            case ("ended",):
                place.chunk, place.failed_starts = None, 0
            case "refused", failure:
                place.failed_starts = MAX_FAILED_STARTS
                self._lost(place, failure)
                if self._none_starts() and not self.call.runs:
                    raise UsageError(failure.line)
            case "lost", failure:
                self._lost(place, failure)

    def _lost(self, place: Place, failure: Failure) -> None:
        """Replaces a worker that has died or raised an exception.

        The unfinished runs of the worker's chunk wait again. Runs with which `TRIES`
        workers were lost are reported as failed instead. A call that must stop neither
        replaces the worker nor repeats its runs.
        """
        if self.call.stopping:
            self._drop(place, failure.line)
            return
        chunk, runs = place.chunk, list(place.left.values())
        self.workers.reason = failure.line
        self._end(place)
        place.failed_starts += 1
        if place.failed_starts <= MAX_FAILED_STARTS:
            self.workers.start(place)
        if not chunk:
            return
        given_up, again = [], []
        for run in runs:
            self.cost[run.id] += 1
            if self.cost[run.id] < TRIES:
                again.append(run)
            else:
                given_up.append(run)
        if given_up:
            self.call.failed(chunk.part(given_up), failure)
        if again:
            if not self._none_starts():
                self.call.message(
                    f"worker {place.number}: {failure.line}; another one takes its"
                    f" {plural(len(again), 'run')}"
                )
            self.waiting.setdefault(chunk.program, deque()).extendleft(reversed(again))
            self.seconds_left += chunk.part(again).seconds


START = "from jaxrecall.cli.process import start_child; start_child()"


class Process(NamedTuple):
    """A process that runs a worker, and the connection to it."""

    popen: subprocess.Popen[bytes]
    connection: Connection


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment, with this copy of the package on PYTHONPATH."""
    paths = [str(Path(__file__).parents[3]), env.get("PYTHONPATH")]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class LocalWorkers(Workers):
    """Workers that are `size` processes on this machine."""

    def __init__(self, size: int, setup: Setup):
        self.setup, self.core_numbers = setup, shares_of_cores(size)
        self.environments = environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        super().__init__(size, cores() / size)

    def share(self, plan: Plan) -> Plan:
        """Returns the plan with its chunks removed and its memory limit set to one
        worker's share.
        """
        return replace(super().share(plan), limit=plan.limit // len(self.places))

    def start(self, place: Place) -> None:
        """Starts a worker process that ignores signals and ends when this process ends.

        A terminal or Slurm sends signals to all processes, but only this one responds.
        """
        i = place.number
        connection, theirs = Pipe()
        fd = theirs.fileno()
        own_cores = ",".join(map(str, self.core_numbers[i]))
        words = [str(os.getpid()), __name__, str(fd), own_cores]
        env = with_package(self.environments[i])
        # the process inherits the mask, so it blocks signals from its first moment
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            popen = subprocess.Popen(
                [sys.executable, "-c", START, *words],
                env=env,
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=2,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        with suppress(OSError):  # the process is dead; the next read detects it
            connection.send(self.setup)
        self.processes[i] = Process(popen, connection)

    def give(self, place: Place, message: bytes) -> None:
        with suppress(OSError):  # the process is dead; the next read detects it
            self.processes[place.number].connection.send_bytes(message)

    def events(self, seconds: float) -> Iterator[tuple[Place, Event]]:
        processes = list(self.processes.items())
        ready = wait([process.connection for _, process in processes], seconds)
        for i, (popen, connection) in processes:
            if connection in ready:
                try:
                    event = connection.recv()
                except (EOFError, OSError):
                    event = "lost", _death(popen.wait())
                yield self.places[i], event

    def end(self, place: Place) -> None:
        popen, connection = self.processes.pop(place.number)
        connection.close()
        popen.kill()
        popen.wait()

    def close(self) -> None:
        for i in list(self.processes):
            self.end(self.places[i])


def _death(code: int) -> Failure:
    """Returns the failure of a process that ended with this exit code. The code is
    negative if a signal ended the process.
    """
    how = f"exit code {code}"
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
    return Failure(f"lost: {how}", "", socket.gethostname())


def shares_of_cores(size: int) -> list[list[int]]:
    """Returns one list of cores for each worker.

    The cores of this process are divided equally, with at least one core per worker.
    The lists are empty if cores cannot be assigned.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * size
    mine = sorted(os.sched_getaffinity(0))
    shares = []
    for i in range(size):
        share = mine[i * len(mine) // size : (i + 1) * len(mine) // size]
        shares.append(share or [mine[i % len(mine)]])
    return shares


def accelerators(environment: Mapping[str, str]) -> list[str]:
    """Returns the ids of the NVIDIA devices that JAX would use, as in
    CUDA_VISIBLE_DEVICES.
    """
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name not in ("", "-1")]
    paths = Path("/dev").glob("nvidia[0-9]*")
    return sorted((path.name.removeprefix("nvidia") for path in paths), key=int)


def environments(
    size: int, environment: Mapping[str, str], devices: list[str]
) -> list[dict[str, str]]:
    """Returns one environment for each worker, in which JAX uses one device.

    Workers on the same device have equal shares of its memory.
    """
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    chosen = islice(cycle(devices), size)
    return [{**own, "CUDA_VISIBLE_DEVICES": device} for device in chosen]


def share_of_memory(devices: float) -> dict[str, str]:
    """Returns a dict with the environment variable that limits JAX to a share of a
    device's memory.

    The dict is empty if the worker has a whole device.
    """
    if devices >= 1:
        return {}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"}


def main(connection: Connection) -> None:
    """Runs the chunks that arrive through the connection, until the connection is
    closed.
    """

    lock = threading.Lock()

    def send(event: Event) -> None:
        try:
            with lock:
                connection.send(event)
        except OSError:
            os._exit(0)  # the parent has ended or closed the connection

    threading.Thread(target=_show_life, args=(send,), daemon=True).start()
    try:
        worker = Worker(connection.recv(), send)
        send(("ready",))
        while True:
            for event in worker.rows(connection.recv_bytes()):
                send(event)
            send(("ended",))
    except EOFError:
        os._exit(0)
    except Exception as error:
        send(last_event(error))
        os._exit(1)


def _show_life(send: Callable[[Event], None]) -> None:
    """Sends an event every ALIVE_SECONDS, also while the main thread is busy."""
    while True:
        time.sleep(ALIVE_SECONDS)
        send(("alive",))
