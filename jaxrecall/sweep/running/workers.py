"""Distributes the shares of a plan over workers. A share is a list of runs of one
program.

A worker sends rows after each batch, and this process saves them as it saves its own.
So a run is told as finished only once, the results folder is written by one process,
and workers on other machines need no folder. If a worker dies, only its unfinished
batches are lost, and the rest of its share is given out again.

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
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ...cli.process import SIGNALS, STOPPING, STOPPING_AT_ONCE
from ...errors import UsageError, plural
from ...model.columns import CODE_VERSION
from ...model.point import Run, RunId
from ..machine import cores, cores_of_worker, environment_of_worker
from ..plan import Chunk, Plan, by_id, pieces
from ..simulators.custom import add_to_path
from .call import Call
from .progress import Event, Failure
from .runner import Runner

SHARES = 16
"""The number of shares per worker. With 16 of them, two workers finish at nearly the
same time.
"""

LEAST_SECONDS, MOST_SECONDS = 0.1, 20.0
"""The least and the most estimated time of a share, in seconds. For a smaller share,
the cost of starting it would be noticeable. A larger share could keep the others
waiting at the end.
"""

TRIES = 3
"""The number of workers that must be lost with a run before the run counts as failed. A
worker is lost if it raises an exception or dies.
"""

MAX_FAILED_STARTS = 3
"""The largest number of consecutive failed starts of a worker after which it is still
replaced. A start fails if the worker is lost before it is ready.
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

Setup = tuple[tuple[str, ...], bool, int]
"""The first arguments of `compute`: the folders from which a worker can import, whether
jax_enable_x64 is on, and the code_version, in the process that receives the rows.
"""


@dataclass
class Worker:
    """A worker, or the one that replaced it, and the share that it computes."""

    number: int
    ready: bool = False
    failed_starts: int = 0
    share: Chunk | None = None
    left: dict[RunId, Run] = field(default_factory=dict)
    """The runs of the share that are not finished, by id."""

    heard: float = 0.0
    """When the worker sent its latest event, as returned by time.monotonic. It is 0 if
    the share may still wait for the resources that it needs.
    """

    running: Any = None
    """What runs the worker: a process of this machine, or a task of Ray."""

    connection: Any = None
    """The connection to a process of this machine."""


START = "from jaxrecall.cli.process import start_child; start_child()"


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment, with this copy of the package on PYTHONPATH."""
    paths = [str(Path(__file__).parents[3]), env.get("PYTHONPATH")]
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Workers:
    """A pool of workers that are `size` processes on this machine, with equal shares of
    its cores and of the memory limit. A lost worker is replaced.
    """

    def __init__(self, size: int, setup: Setup):
        self.setup = setup
        self.workers = list(map(Worker, range(size)))
        self.cores, self.n_limits = cores() / size, size
        self.failure = Failure("")
        """Why the latest lost worker was lost."""

        self.is_signal_told = False
        for worker in self.workers:
            self.start(worker)

    def start(self, worker: Worker) -> None:
        """Starts a process that ignores signals and ends when this process ends.

        It sends "ready" when it can compute. A terminal or Slurm sends signals to all
        processes, but only this one responds.
        """
        worker.connection, theirs = Pipe()
        fd = theirs.fileno()
        number, size = worker.number, len(self.workers)
        worker_cores = ",".join(map(str, cores_of_worker(number, size)))
        words = [str(os.getpid()), __name__, str(fd), worker_cores]
        env = environment_of_worker(number, size, os.environ)
        # the process inherits the mask, so it blocks signals from its first moment
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            worker.running = subprocess.Popen(
                [sys.executable, "-c", START, *words],
                env=with_package(env),
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=2,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        self.give(worker, pickle.dumps(self.setup))

    def give(self, worker: Worker, message: bytes) -> None:
        """Sends a worker a share that is pickled with its plan.

        The worker shows that it is alive with an event every ALIVE_SECONDS.
        """
        with suppress(OSError):  # the process is dead; the next read detects it
            worker.connection.send_bytes(message)

    def events(self, seconds: float) -> Iterator[tuple[Worker, Event]]:
        """Yields the events that have arrived. Waits at most `seconds` for the first
        event.
        """
        alive = {worker.connection: worker for worker in self.workers if worker.running}
        for connection in wait(list(alive), seconds):
            worker = alive[connection]
            try:
                event = worker.connection.recv()
            except (EOFError, OSError):
                event = "lost", _death(worker.running.wait())
            yield worker, event

    def end(self, worker: Worker) -> None:
        """Ends a worker immediately."""
        if worker.running:
            worker.connection.close()
            worker.running.kill()
            worker.running.wait()
            worker.running = None

    def close(self) -> None:
        for worker in self.workers:
            self.end(worker)

    def execute(self, plan: Plan, call: Call) -> None:
        """Computes the runs of a plan.

        What lost workers leave of their shares is given out again when the other shares
        are finished. Runs with which `TRIES` workers were lost are reported as failed.
        """
        self.call, chunks = call, list(plan.chunks)
        # workers need no list of the other runs, which may be millions
        self.plan = replace(plan, chunks=(), limit=plan.limit // self.n_limits)
        # `_must_wait` reports the signal, because it knows whether a batch is running
        with call.interrupts.patient(message=""):
            with suppress(KeyboardInterrupt):
                for n_tries in range(1, TRIES + 1):
                    self.is_last_try = n_tries == TRIES
                    chunks = self._compute(chunks)
                    if not chunks or call.stopping or self._none_starts():
                        break
            if not call.stopping:
                for chunk in chunks:
                    call.failed(chunk, self.failure)
            call.save(now=True)

    def _compute(self, chunks: list[Chunk]) -> list[Chunk]:
        """Gives out the shares of chunks until all are finished or lost, or until the
        call must stop. Returns what is left of them.
        """
        shares, size = self._shares(chunks), len(self.workers)
        # neighbours have the same program, so a worker compiles few programs
        ends = [number * len(shares) // size for number in range(size + 1)]
        self.waiting = [deque(shares[i:j]) for i, j in pairwise(ends)]
        self.lost: list[Chunk] = []
        while self._goes_on():
            with self.call.interrupts.droppable():
                events = list(self.events(POLL_SECONDS))
            for worker, event in events:
                self._handle(worker, event)
            self.call.save()
        return [*self.lost, *chain.from_iterable(self.waiting)]

    def _shares(self, chunks: list[Chunk]) -> list[Chunk]:
        """Cuts chunks into shares that take about equally long on one worker."""
        total = cores() * sum(chunk.seconds for chunk in chunks)
        each = total / len(self.workers)
        least = min(each, LEAST_SECONDS * self.cores)
        seconds = min(max(each / SHARES, least), MOST_SECONDS * self.cores)
        shares = []
        for chunk in chunks:
            costs = [
                (run, self.plan.seconds_of(run, chunk.program)) for run in chunk.runs
            ]
            for runs, _ in pieces(costs, len(costs), seconds):
                shares.append(chunk.part(runs))
        return shares

    def _goes_on(self) -> bool:
        """Gives shares to free workers. Returns whether to wait for events."""
        if self.call.stopping:
            return not self.call.gave_up and self._must_wait()
        for worker in self.workers:
            if worker.ready and not worker.share:
                self._give_next_share(worker)
        return bool(self._busy()) or (any(self.waiting) and not self._none_starts())

    def _give_next_share(self, worker: Worker) -> None:
        """Gives a worker its next share, or one of the worker that has most of them."""
        shares = self.waiting[worker.number] or max(self.waiting, key=len)
        if shares:
            worker.share = shares.popleft()
            worker.left = by_id(worker.share.runs)
            self.give(worker, pickle.dumps((worker.share, self.plan)))

    def _busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.share]

    def _none_starts(self) -> bool:
        return all(worker.failed_starts > MAX_FAILED_STARTS for worker in self.workers)

    def _must_wait(self) -> bool:
        """Whether a call that must stop waits for a batch. Ends the other workers.

        A worker that has not begun its share is ended immediately. A worker that shows
        no sign of life is ended after SILENT_SECONDS.
        """
        for worker in self._busy():
            if not worker.heard:
                self._end_with_share(worker)
            elif time.monotonic() - worker.heard > SILENT_SECONDS:
                self._lose(worker, f"no sign of life for {SILENT_SECONDS:.0f} s")
        must_wait = bool(self._busy())
        if self.call.interrupts.requested and not self.is_signal_told:
            self.is_signal_told = True
            self.call.message(STOPPING_WORKERS if must_wait else STOPPING_AT_ONCE)
        return must_wait

    def _end_with_share(self, worker: Worker) -> None:
        self.end(worker)
        worker.ready, worker.share = False, None

    def _handle(self, worker: Worker, event: Event) -> None:
        """Handles an event of a worker.

        If the call must stop, the worker is ended after its batch.
        """
        worker.heard = time.monotonic()
        match event:
            case ("ready",):
                worker.ready, worker.failed_starts = True, 0
            case (("compiling" | "compiled" | "message"), *_):
                who = f"worker {worker.number}: "
                self.call.handle(event, who, 1 / len(self.workers))
            case "took", ids, got if worker.share:
                runs = list(map(worker.left.pop, ids))
                self.call.take(worker.share.part(runs), got)
                if self.call.stopping:
                    self._end_with_share(worker)
            case ("ended",):
                worker.share = None
            case "refused", failure:
                worker.failed_starts = MAX_FAILED_STARTS
                self._replace(worker, failure)
                if self._none_starts() and not self.call.runs:
                    raise UsageError(failure.line)
            case "lost", failure:
                self._replace(worker, failure)

    def _replace(self, worker: Worker, failure: Failure) -> None:
        """Replaces a worker that has died or raised an exception, unless the call must
        stop or too many starts have failed.
        """
        self.failure = failure
        worker.failed_starts += 1
        self._lose(worker, failure.line)
        if self._none_starts():
            self.failure = Failure(f"no worker starts: {failure.line}")
        elif worker.failed_starts <= MAX_FAILED_STARTS and not self.call.stopping:
            self.start(worker)

    def _lose(self, worker: Worker, why: str) -> None:
        """Ends a worker, and tells what becomes of the rest of its share."""
        if worker.share and worker.left:
            rest = worker.share.part(list(worker.left.values()))
            self.lost.append(rest)
            fate = ""  # its runs are told as failed
            if self.call.stopping:
                fate = "is computed by the same command"
            elif not self.is_last_try and not self._none_starts():
                fate = "is given out again"
            if fate:
                self.call.message(
                    f"worker {worker.number}: {why}; the rest of its runs"
                    f" ({plural(len(rest.runs), 'run')}) {fate}"
                )
        self._end_with_share(worker)


def compute(
    import_paths: tuple[str, ...],
    x64: bool,
    code_version: int,
    receive: Callable[[], bytes],
    send: Callable[[Event], None],
    n_cores: float = math.inf,
) -> None:
    """Computes the shares that `receive` returns, in this process, until an error ends
    the worker.

    `send` is called with an event after each batch. The worker uses `n_cores` of the
    cores of this process. It does not survive an error, because a device may fail at
    everything after it.
    """
    try:
        if code_version != CODE_VERSION:
            raise RuntimeError(
                f"jaxrecall of code_version {CODE_VERSION} there, {code_version} here"
            )
        os.environ["JAX_ENABLE_X64"] = str(x64)  # JAX has not started yet
        add_to_path(import_paths)
        from ...simulator.device import start

        start()
        send(("ready",))
        n_sharing = max(1, int(cores() / n_cores))
        runner: Runner | None = None
        while True:
            share, plan = pickle.loads(receive())
            plan = replace(plan, workers=n_sharing)
            if not runner or runner.plan != plan:
                runner = Runner(plan, send, is_replaceable=True)
            for runs, got in runner.rows(share):
                send(("took", list(by_id(runs)), got))
            send(("ended",))
    except Exception as error:
        how = "refused" if isinstance(error, UsageError) else "lost"
        send((how, Failure.of(error)))


def _death(code: int) -> Failure:
    """Returns the failure of a process that ended with this exit code. The code is
    negative if a signal ended the process.
    """
    how = f"exit code {code}"
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
    return Failure(f"lost: {how}", host=socket.gethostname())


def main(connection: Connection) -> None:
    """Computes the shares that arrive through the connection, until it is closed."""
    lock = threading.Lock()

    def receive() -> bytes:
        try:
            return connection.recv_bytes()
        except EOFError:
            os._exit(0)  # the parent has ended or closed the connection

    def send(event: Event) -> None:
        try:
            with lock:
                connection.send(event)
        except OSError:
            os._exit(0)

    def show_life() -> None:
        while True:
            time.sleep(ALIVE_SECONDS)
            send(("alive",))

    threading.Thread(target=show_life, daemon=True).start()
    setup: Setup = pickle.loads(receive())
    compute(*setup, receive, send)
    os._exit(1)
