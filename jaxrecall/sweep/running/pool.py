"""A plan carried out by a pool of workers: each takes some runs of one program when it
is free.

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

import itertools
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
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

from ...cli.process import SIGNALS
from ...errors import UsageError, plural
from ...model.columns import CODE_VERSION
from ...model.point import Run, RunId
from ..machine import cores
from ..plan import Chunk, Plan, pieces
from ..simulators import Program
from ..simulators.custom import add_to_path
from .progress import Event, Failure
from .record import Record, Runner

TRIES = 3
"""Workers that a run may cost, by an exception or by their death, before it counts as
failed.
"""

MAX_FAILED_STARTS = 3
"""Times in a row that a worker may die before it is ready; then no other is started in
its place.
"""

LEAST_SECONDS, MOST_SECONDS, MOST_RUNS = 0.1, 20.0, 4096
"""Of a chunk. The cost of starting it shows in a smaller one; a larger one comes back
late.
"""

SHARES = 3
"""A chunk is at most this part, for each worker, of what is left:
large ones first, small ones at the end, when all must finish.
"""

POLL_SECONDS = 0.2


class Setup(NamedTuple):
    """What a worker is told first."""

    import_paths: Iterable[str] = ()
    """Folders from which it can import, besides the usual ones."""

    x64: bool = False
    """Whether jax_enable_x64 is on in the process that takes its rows, where a program
    may have set it.
    """

    cores: float = 0.0
    """That it may use, of those of its process; 0: all."""

    code_version: int = CODE_VERSION
    """Of the process that takes its rows."""


class Worker:
    """Runs chunks in this process, which starts JAX; `tell` takes the events that come
    between rows.
    """

    def __init__(self, setup: Setup, tell: Callable[[Event], None]):
        if setup.code_version != CODE_VERSION:
            raise RuntimeError(
                f"jaxrecall of code_version {CODE_VERSION} there, {setup.code_version}"
                " here"
            )
        os.environ["JAX_ENABLE_X64"] = str(setup.x64)  # JAX has not started
        add_to_path(setup.import_paths)
        from ...simulator import program

        program.start()
        self.tell, self.workers = (
            tell,
            max(1, int(cores() / setup.cores)) if setup.cores else 1,
        )
        self.plan: Plan | None = None

    def rows(self, message: bytes) -> Iterator[Event]:
        """Runs a pickled chunk with its plan, batch by batch."""
        chunk, plan = pickle.loads(message)
        if self.plan != plan:
            self.plan, self.runner = (
                plan,
                Runner(replace(plan, workers=self.workers), self.tell),
            )
        for runs, got in self.runner.rows(chunk):
            yield "took", [run.id for run in runs], got


def last_event(error: Exception) -> Event:
    """Of a worker that ends with an exception, after which a device may refuse
    everything.
    """
    return "refused" if isinstance(error, UsageError) else "lost", Failure.of(error)


@dataclass
class Place:
    """Of one worker after another, and what the present one does."""

    number: int
    ready: bool = False
    failed_starts: int = 0
    program: Program | None = None
    """The last one."""

    chunk: Chunk | None = None
    left: dict[RunId, Run] = field(default_factory=dict)
    """Runs of the chunk that are not finished."""


class Pool(ABC):
    """So many workers, of `cores` cores each. One that is lost has another in its
    place.
    """

    def __init__(self, size: int, cores: float):
        self.places, self.cores = [Place(i) for i in range(size)], cores
        self.reason = ""
        """Why the last worker was lost."""

        for place in self.places:
            self.start(place)

    @abstractmethod
    def start(self, place: Place) -> None:
        """Starts a worker, which is ready from now on or tells so later."""

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
        """What a worker needs to know of a plan: a few numbers, while its chunks may
        hold millions of runs.
        """
        return replace(plan, chunks=())

    def execute(self, plan: Plan, record: Record) -> None:
        """Runs the chunks of a plan. Runs that `TRIES` workers fail at are reported,
        and the others run.
        """
        Spread(self, plan, record).run()


class Spread:
    """One plan carried out by a pool."""

    def __init__(self, pool: Pool, plan: Plan, record: Record):
        self.pool, self.plan, self.record = pool, pool.share(plan), record
        self.waiting: dict[Program, deque[Run]] = {}
        """Runs that no worker has, by program."""

        for chunk in plan.chunks:
            self.waiting.setdefault(chunk.program, deque()).extend(chunk.runs)
        self.seconds_left = sum(chunk.seconds for chunk in plan.chunks)
        """The estimate for these runs, on all cores of this machine."""

        self.cost = Counter[RunId]()
        """Workers that were lost with a run."""

    def run(self) -> None:
        interrupts = self.record.interrupts
        with interrupts.patient():
            while self._has_more():
                try:
                    with interrupts.droppable():
                        events = list(self.pool.events(POLL_SECONDS))
                except KeyboardInterrupt:
                    break
                for place, event in events:
                    self.take(place, event)
                self.record.save()
            self.record.save(now=True)

    def _has_more(self) -> bool:
        """Gives chunks to free workers; whether there is anything to wait for."""
        places = self.pool.places
        if self.record.stopping:
            return any(place.chunk for place in places) and not self.record.gave_up
        for place in places:
            if self.waiting and place.ready and not place.chunk:
                self._give(place)
        while self.waiting and self._none_starts():
            chunk = self._next(next(iter(self.waiting)), float("inf"))
            self.record.failed(
                chunk, Failure(f"no worker starts: {self.pool.reason}", "", "")
            )
        return bool(self.waiting) or any(place.chunk for place in places)

    def _none_starts(self) -> bool:
        return all(
            place.failed_starts > MAX_FAILED_STARTS for place in self.pool.places
        )

    def _give(self, place: Place) -> None:
        """Gives a worker its next chunk, small enough that others do not wait for it at
        the end.

        It is of its last program, or else of the one that the fewest others run, so
        that few compile it.
        """
        speed = self.pool.cores / cores()
        seconds = min(
            max(
                self.seconds_left / (SHARES * len(self.pool.places)),
                LEAST_SECONDS * speed,
            ),
            MOST_SECONDS * speed,
        )
        users = Counter(
            other.chunk.program for other in self.pool.places if other.chunk
        )
        if place.program not in self.waiting:
            place.program = min(self.waiting, key=lambda program: users[program])
        place.chunk = self._next(place.program, seconds)
        place.left = {run.id: run for run in place.chunk.runs}
        self.pool.give(place, pickle.dumps((place.chunk, self.plan)))

    def _next(self, program: Program, seconds: float) -> Chunk:
        """Waiting runs of a program that take about `seconds` on all cores of this
        machine.
        """
        runs = self.waiting[program]
        taken, total = next(
            pieces(
                ((run, self.plan.seconds_of(run, program) / cores()) for run in runs),
                MOST_RUNS,
                seconds,
            )
        )
        for _ in taken:
            runs.popleft()
        self.seconds_left -= total
        if not runs:
            del self.waiting[program]
        return Chunk(program, taken, total)

    def take(self, place: Place, event: Event) -> None:
        """Takes an event of a worker. One that is to stop is ended with its batch."""
        match event:
            case ("ready",):
                place.ready, place.failed_starts = True, 0
            case (("compiling" | "compiled" | "message"), *_):
                self.record.hear(
                    event, f"worker {place.number}: ", 1 / len(self.pool.places)
                )
            case "took", ids, got if place.chunk:
                self.record.take(
                    place.chunk.part([place.left.pop(run) for run in ids]), got
                )
                if self.record.stopping:
                    self.pool.end(place)
                    place.ready, place.chunk = False, None
            case ("ended",):
                place.chunk, place.failed_starts = None, 0
            case "refused", failure:
                place.failed_starts = MAX_FAILED_STARTS
                self._lost(place, failure)
                if self._none_starts() and not self.record.runs:
                    raise UsageError(failure.line)
            case "lost", failure:
                self._lost(place, failure)

    def _lost(self, place: Place, failure: Failure) -> None:
        """A worker has died or raised an exception.

        Another one takes its place, and its runs wait again, but for those that have
        cost too many workers.
        """
        chunk, runs, self.pool.reason = (
            place.chunk,
            list(place.left.values()),
            failure.line,
        )
        self.pool.end(place)
        place.ready, place.chunk, place.left = False, None, {}
        place.failed_starts += 1
        if place.failed_starts <= MAX_FAILED_STARTS and not self.record.stopping:
            self.pool.start(place)
        if not chunk:
            return
        self.cost.update(run.id for run in runs)
        if given_up := [run for run in runs if self.cost[run.id] == TRIES]:
            self.record.failed(chunk.part(given_up), failure)
        if again := [run for run in runs if self.cost[run.id] < TRIES]:
            self.record.message(
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
    """The environment, and in it the place from which this process has imported the
    package.
    """
    root = str(Path(__file__).parents[3])
    return {
        **env,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, env.get("PYTHONPATH")))),
    }


class LocalPool(Pool):
    """`size` worker processes; each is told `setup` first."""

    def __init__(self, size: int, setup: Setup):
        self.setup, self.core_numbers = setup, shares_of_cores(size)
        self.environments = environments(size, os.environ, accelerators(os.environ))
        self.processes: dict[int, Process] = {}
        super().__init__(size, cores() / size)

    def share(self, plan: Plan) -> Plan:
        """Each has a share of the memory, too."""
        return replace(super().share(plan), limit=plan.limit // len(self.places))

    def start(self, place: Place) -> None:
        """A new process that leaves every signal to this one, and ends with it.

        A terminal or Slurm sends signals to all.
        """
        i, (connection, theirs) = place.number, Pipe()
        own_cores = ",".join(map(str, self.core_numbers[i]))
        command = [
            sys.executable,
            "-c",
            START,
            str(os.getpid()),
            __name__,
            str(theirs.fileno()),
            own_cores,
        ]
        env = with_package(self.environments[i])
        blocked = signal.pthread_sigmask(
            signal.SIG_BLOCK, SIGNALS
        )  # the mask is inherited, so it is deaf to them from its first moment
        try:
            popen = subprocess.Popen(
                command,
                env=env,
                pass_fds=[theirs.fileno()],
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
        ready = wait(
            [process.connection for process in self.processes.values()], seconds
        )
        for i, (popen, connection) in list(self.processes.items()):
            if connection in ready:
                try:
                    event = connection.recv()
                except (EOFError, OSError):
                    code = popen.wait()
                    how = (
                        f"killed by {signal.Signals(-code).name}"
                        if code < 0
                        else f"exit code {code}"
                    )
                    event = "lost", Failure(f"lost: {how}", "", socket.gethostname())
                yield self.places[i], event

    def end(self, place: Place) -> None:
        popen, connection = self.processes.pop(place.number)
        connection.close()
        popen.kill()
        popen.wait()

    def close(self) -> None:
        for i in list(self.processes):
            self.end(self.places[i])


def shares_of_cores(size: int) -> list[list[int]]:
    """The cores of each worker: equal shares of those that this process may use, at
    least one.

    None if cores cannot be assigned.
    """
    if not hasattr(os, "sched_getaffinity"):
        return [[]] * size
    mine = sorted(os.sched_getaffinity(0))
    ends = [i * len(mine) // size for i in range(size + 1)]
    return [
        mine[a:b] if b > a else [mine[i % len(mine)]]
        for i, (a, b) in enumerate(itertools.pairwise(ends))
    ]


def accelerators(environment: Mapping[str, str]) -> list[str]:
    """NVIDIA devices that JAX would use, as CUDA_VISIBLE_DEVICES names them."""
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if (named := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name not in ("", "-1")]
    return sorted(
        (
            path.name.removeprefix("nvidia")
            for path in Path("/dev").glob("nvidia[0-9]*")
        ),
        key=int,
    )


def environments(
    size: int, environment: Mapping[str, str], devices: list[str]
) -> list[dict[str, str]]:
    """What JAX reads when it starts: one device a worker.

    Where workers share a device, each has its share of the memory.
    """
    if not devices:
        return [dict(environment)] * size
    own = {**share_of_memory(1 / -(-size // len(devices))), **environment}
    return [
        {**own, "CUDA_VISIBLE_DEVICES": devices[worker % len(devices)]}
        for worker in range(size)
    ]


def share_of_memory(devices: float) -> dict[str, str]:
    """The variable that limits JAX to a share of a device's memory, if a worker has
    only a share.
    """
    return (
        {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * devices:.3f}"}
        if devices < 1
        else {}
    )


def main(connection: Connection) -> None:
    """Runs the chunks that come through the connection until it is closed."""

    def tell(event: Event) -> None:
        try:
            connection.send(event)
        except OSError:
            os._exit(0)  # the parent is gone, or wants no more

    try:
        worker = Worker(connection.recv(), tell)
        tell(("ready",))
        while True:
            for event in worker.rows(connection.recv_bytes()):
                tell(event)
            tell(("ended",))
    except EOFError:
        os._exit(0)
    except Exception as error:
        tell(last_event(error))
        os._exit(1)
