"""A plan carried out by workers: each takes runs of one program when it is free.

Rows come back a batch at a time and are saved by this process, so a worker that dies
takes its batches in flight with it and nothing else; the rest of its runs go to
another. Chunks are pickled, and unpickled in workers alone, so that only they need the
modules that a chunk names.

The workers here are processes of this machine, one per accelerator or each with its own
cores. Libraries were tried (concurrent.futures, loky 3.7). When one worker is killed
they end the others, and what these had begun is lost; their workers outlive a parent
that is killed; results come at the end of a task, not with each batch.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
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

from ...cli.process import SIGNALS
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
"""A run counts as failed once so many workers raised an exception or died with it."""

MAX_FAILED_STARTS = 3
"""A worker may die so often in a row before it is ready; then none takes its place."""

LEAST_SECONDS, MOST_SECONDS, MOST_RUNS = 0.1, 20.0, 4096
"""Limits of a chunk. The cost of starting it shows in a smaller one; a larger one comes
back late.
"""

SHARES = 3
"""With K workers a chunk is at most 1 / (SHARES * K) of what is left: chunks are large
first and small at the end, when all must finish.
"""

POLL_SECONDS = 0.2


class Setup(NamedTuple):
    """What a worker has to know before its first chunk."""

    import_paths: Iterable[str] = ()
    """Folders from which it can import, besides the usual ones."""

    x64: bool = False
    """Whether jax_enable_x64 is on in the process that takes its rows, where a program
    may have set it.
    """

    cores: float = math.inf
    """The cores of its process that it may use."""

    code_version: int = CODE_VERSION
    """The code_version of the process that takes its rows."""


class Worker:
    """Runs chunks in this process, which starts JAX.

    `on_event` takes the events that come between rows.
    """

    def __init__(self, setup: Setup, on_event: Callable[[Event], None]):
        if setup.code_version != CODE_VERSION:
            raise RuntimeError(
                f"jaxrecall of code_version {CODE_VERSION} there, {setup.code_version}"
                " here"
            )
        os.environ["JAX_ENABLE_X64"] = str(setup.x64)  # JAX has not started
        add_to_path(setup.import_paths)
        from ...simulator import program

        program.start()
        self.on_event = on_event
        self.n_sharing = max(1, int(cores() / setup.cores))
        """The number of workers that share the cores of this process."""

        self.plan: Plan | None = None

    def rows(self, message: bytes) -> Iterator[Event]:
        """Runs a pickled chunk with its plan, batch by batch."""
        chunk, plan = pickle.loads(message)
        if self.plan != plan:
            self.plan = plan
            self.runner = Runner(replace(plan, workers=self.n_sharing), self.on_event)
        for runs, got in self.runner.rows(chunk):
            yield "took", list(by_id(runs)), got


def last_event(error: Exception) -> Event:
    """The event of a worker that ends, as a device may refuse everything afterwards."""
    return "refused" if isinstance(error, UsageError) else "lost", Failure.of(error)


@dataclass
class Place:
    """A place for one worker after another, and what the present one does."""

    number: int
    ready: bool = False
    failed_starts: int = 0
    program: Program | None = None
    """The program of its last chunk."""

    chunk: Chunk | None = None
    left: dict[RunId, Run] = field(default_factory=dict)
    """Runs of the chunk that are not finished."""


class Workers(ABC):
    """So many workers, with `cores` cores each.

    A worker that is lost is replaced by another.
    """

    def __init__(self, size: int, cores: float):
        self.places = list(map(Place, range(size)))
        self.cores = cores
        self.reason = ""
        """Why the last worker was lost."""

        for place in self.places:
            self.start(place)

    @abstractmethod
    def start(self, place: Place) -> None:
        """Starts a worker, which is ready from now on or sends "ready" later."""

    @abstractmethod
    def give(self, place: Place, message: bytes) -> None:
        """Gives a worker a pickled chunk with its plan."""

    @abstractmethod
    def events(self, seconds: float) -> Iterable[tuple[Place, Event]]:
        """The events that have arrived; waits at most `seconds` for the first."""

    @abstractmethod
    def end(self, place: Place) -> None:
        """Ends a worker immediately."""

    @abstractmethod
    def close(self) -> None: ...

    def share(self, plan: Plan) -> Plan:
        """What a worker needs of a plan: its chunks may have millions of runs."""
        return replace(plan, chunks=())

    def execute(self, plan: Plan, call: Call) -> None:
        """Runs the chunks of a plan.

        Runs that `TRIES` workers fail at are reported, and the others run.
        """
        Spread(self, plan, call).run()


class Spread:
    """One plan, spread over workers."""

    def __init__(self, workers: Workers, plan: Plan, call: Call):
        self.workers, self.call = workers, call
        self.plan = workers.share(plan)
        self.waiting: dict[Program, deque[Run]] = {}
        """Runs that no worker has, by program."""

        for chunk in plan.chunks:
            self.waiting.setdefault(chunk.program, deque()).extend(chunk.runs)
        self.seconds_left = plan.run_seconds
        """The estimate for these runs, on all cores of this machine."""

        self.cost = Counter[RunId]()
        """How many workers were lost with a run."""

    def run(self) -> None:
        interrupts = self.call.interrupts
        with interrupts.patient():
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
        """Gives chunks to free workers; whether there is anything to wait for."""
        if not self.call.stopping:
            for place in self.workers.places:
                if self.waiting and place.ready and not place.chunk:
                    self._give(place)
            while self.waiting and self._none_starts():
                chunk = self._next(next(iter(self.waiting)), math.inf)
                failure = Failure(f"no worker starts: {self.workers.reason}", "", "")
                self.call.failed(chunk, failure)
        is_busy = any(place.chunk for place in self.workers.places)
        if self.call.stopping:
            return is_busy and not self.call.gave_up
        return is_busy or bool(self.waiting)

    def _none_starts(self) -> bool:
        return all(
            place.failed_starts > MAX_FAILED_STARTS for place in self.workers.places
        )

    def _give(self, place: Place) -> None:
        """Gives a worker its next chunk.

        The chunk is so small that others do not wait for it at the end. Its program is
        the last one of the worker, or else the one that the fewest others run, so that
        few compile it.
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
        """Waiting runs of a program for `seconds` on all cores of this machine."""
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
        """Handles an event of a worker, which ends with its batch if it is to stop."""
        match event:
            case ("ready",):
                place.ready, place.failed_starts = True, 0
            case (("compiling" | "compiled" | "message"), *_):
                share = 1 / len(self.workers.places)
                self.call.handle(event, f"worker {place.number}: ", share)
            case "took", ids, got if place.chunk:
                runs = list(map(place.left.pop, ids))
                self.call.take(place.chunk.part(runs), got)
                if self.call.stopping:
                    self.workers.end(place)
                    place.ready, place.chunk = False, None
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

        The runs of its chunk wait again, but for those that cost too many workers.
        """
        chunk, runs = place.chunk, list(place.left.values())
        self.workers.reason = failure.line
        self.workers.end(place)
        place.ready, place.chunk, place.left = False, None, {}
        place.failed_starts += 1
        if place.failed_starts <= MAX_FAILED_STARTS and not self.call.stopping:
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
            self.call.message(
                f"worker {place.number}: {failure.line}; another one takes its"
                f" {plural(len(again), 'run')}"
            )
            self.waiting.setdefault(chunk.program, deque()).extendleft(reversed(again))
            self.seconds_left += chunk.part(again).seconds


START = "from jaxrecall.cli.process import start_child; start_child()"


class Process(NamedTuple):
    """A process that runs the worker, and the connection to it."""

    popen: subprocess.Popen[bytes]
    connection: Connection


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """The environment, in which the package is imported from the same place as here."""
    paths = [str(Path(__file__).parents[3]), env.get("PYTHONPATH")]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class LocalWorkers(Workers):
    """`size` worker processes of this machine."""

    def __init__(self, size: int, setup: Setup):
        self.setup, self.core_numbers = setup, shares_of_cores(size)
        self.environments = environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        super().__init__(size, cores() / size)

    def share(self, plan: Plan) -> Plan:
        """As for all workers; each of these has a share of the memory, too."""
        return replace(super().share(plan), limit=plan.limit // len(self.places))

    def start(self, place: Place) -> None:
        """Starts a process that leaves every signal to this one, and ends with it.

        A terminal or Slurm sends signals to all.
        """
        i = place.number
        connection, theirs = Pipe()
        fd = theirs.fileno()
        own_cores = ",".join(map(str, self.core_numbers[i]))
        words = [str(os.getpid()), __name__, str(fd), own_cores]
        env = with_package(self.environments[i])
        # the mask is inherited, so it is deaf to them from its first moment
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
        with suppress(OSError):  # it is dead, which reading will find
            connection.send(self.setup)
        self.processes[i] = Process(popen, connection)

    def give(self, place: Place, message: bytes) -> None:
        with suppress(OSError):  # it is dead, which reading will find
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
    """The failure of a process that ended with this code, negative for a signal."""
    how = f"exit code {code}"
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
    return Failure(f"lost: {how}", "", socket.gethostname())


def shares_of_cores(size: int) -> list[list[int]]:
    """The cores of each worker: equal shares of those of this process, at least one.

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
    """NVIDIA devices that JAX would use, in the form of CUDA_VISIBLE_DEVICES."""
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
    """The environment of each worker, so that its JAX uses one device.

    If workers share a device, each has its share of the memory.
    """
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    chosen = islice(cycle(devices), size)
    return [{**own, "CUDA_VISIBLE_DEVICES": device} for device in chosen]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory.

    There is none for a worker with a whole device.
    """
    if devices >= 1:
        return {}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"}


def main(connection: Connection) -> None:
    """Runs the chunks that come through the connection until it is closed."""

    def send(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            os._exit(0)  # the parent is gone, or wants no more

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
