"""Starts and ends the process of a command, and handles signals and broken streams.

This module imports no modules that take long to load. Until `start` has set signal
handlers, a signal ends Python with a traceback.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

OK, USAGE, FAILED, INTERRUPTED = 0, 2, 3, 130
"""The exit codes of every command."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end any process. Ctrl-C sends the first one."""

SIGNALS = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that end a command in an orderly way. With the last two, Slurm and other
schedulers announce the end of a job.
"""

STOPPING = (
    "stopping when the running batch is finished; its rows are kept. A second signal"
    " drops it"
)
STOPPING_AT_ONCE = "stopping; no batch is running"

LEAST_TO_LOAD = 600 * 2**20
"""The least number of bytes in `ulimit -v` with which a command starts. With less,
SciPy's OpenBLAS tries to allocate memory forever while it is loaded.
"""

PR_SET_PDEATHSIG = 1  # from linux/prctl.h

_lost: dict[int, OSError] = {}
"""A dict from stream number, 1 or 2, to the last error while writing to that stream."""


def start(module: str) -> NoReturn:
    """Runs `main` of a module in this package, and ends the process with its exit code.

    The function itself imports the module. The import takes so long that a signal may
    arrive meanwhile, which is then handled.
    """
    with Interrupts() as interrupts:
        try:
            _protect_streams()
            _check_address_space()
            collect_rarely()
            # XLA logs as an error that a program takes minutes to compile
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            with interrupts.deferred():
                main = import_module(module).main
            exit_code = main()
            sys.stdout.flush()
            if error := output_error():
                print(
                    f"some output could not be written: {error.strerror}",
                    file=sys.stderr,
                )
            _ignore_signals()
        except KeyboardInterrupt:
            _ignore_signals()
            print("interrupted", file=sys.stderr)
            exit_code = INTERRUPTED
        # an interrupted process ends immediately: all rows are saved, and some exit
        # functions wait for the batch in flight
        if exit_code != INTERRUPTED:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        # threads of Arrow sometimes abort while Python unloads its modules
        # (apache/arrow#34314)
        os._exit(exit_code)


def output_error() -> OSError | None:
    """Returns the error that prevented some output from being written, or None.

    A reader that closes the pipe early, as in `| head`, does not count as an error.
    """
    error = _lost.get(1)
    if error and error.errno == errno.EPIPE:
        return None
    return error


def collect_rarely() -> None:
    """Makes Python's garbage collector search for reference cycles less often.

    Imports and tracing create many objects that stay alive. Repeated searches through
    these objects take a tenth of the time of a short command.
    """
    gc.set_threshold(50_000, 20, 20)


def resend_interrupts(unraisable: sys.UnraisableHookArgs) -> None:
    """Resends an interrupt that had no effect. This function is a `sys.unraisablehook`.

    An interrupt has no effect if it arrives in a callback, for example in a callback of
    the garbage collector.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


class Interrupts:
    """A context manager that makes signals raise KeyboardInterrupt.

    While runs are in progress, the first signal only requests a stop; see `patient`.

    `requested` is true once a signal has arrived. On exit, the earlier signal handlers
    are restored. Signals that were already ignored, as under nohup, stay ignored. Only
    the main thread can handle signals.

    Args:
        signals: the signals to handle. Python does not know whether a program handles
            SIGUSR1 with `faulthandler`. So a function handles only those in `ENDING`.
    """

    def __init__(self, signals: Iterable[signal.Signals] = SIGNALS) -> None:
        self.signals = signals
        self.requested = False
        self.message: Callable[[str], None] = lambda line: print(
            line, file=sys.stderr, flush=True
        )
        self._patient = self._droppable = self._drop = False

    def __enter__(self) -> Interrupts:
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        if threading.current_thread() is threading.main_thread():
            for number in self.signals:
                # None is a handler that Python does not know and cannot restore
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._handle)
            sys.unraisablehook = resend_interrupts
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    @contextmanager
    def patient(self, message: str = STOPPING) -> Iterator[None]:
        """Returns a context in which the first signal is reported and sets `requested`.

        The signal raises no exception, so finished rows can still be saved. It is
        reported with `message` within `droppable`, where a batch is running.
        """
        self._patient, self._told = True, message
        try:
            yield
        finally:
            self._patient = False

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Returns a context, within `patient`, that is interrupted by a second signal.

        The signal raises KeyboardInterrupt. If it has already arrived, the exception is
        raised on entry.
        """
        self._droppable = True
        try:
            if self._drop:
                raise KeyboardInterrupt
            yield
        finally:
            self._droppable = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Returns a context that delays the first signal until its end, but not the
        second.

        If a module is interrupted while it is loaded, its importer does not always
        receive a KeyboardInterrupt, and native code may crash.
        """
        with self.patient(message=""), self.droppable():
            yield
        if self.requested:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._drop = again = self.requested
        self.requested = True
        if not self._patient or (again and self._droppable):
            raise KeyboardInterrupt
        if self._told and not again:
            self.message(self._told if self._droppable else STOPPING_AT_ONCE)


def _check_address_space() -> None:
    """Ends the process if the libraries cannot be loaded under its `ulimit -v`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < LEAST_TO_LOAD:
        print(
            f"ulimit -v: got {soft // 2**10}; allowed: at least"
            f" {LEAST_TO_LOAD // 2**10}, as the libraries cannot be loaded with"
            " less; a sweep needs more",
            file=sys.stderr,
        )
        os._exit(USAGE)


def start_child() -> None:
    """The entry point of a worker process; see `sweep.running.workers`.

    The arguments are PARENT MODULE FD CORES. First, the process is set to end with its
    parent and to use only its cores. This must happen before any import that takes long
    or starts threads. Then `main` of the module is called with the connection.
    """
    parent, module, fd, cores = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # the parent has ended already
        os._exit(0)
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    from multiprocessing.connection import Connection

    import_module(module).main(Connection(int(fd)))


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class _Stream(io.FileIO):
    """A standard stream that drops text if it cannot be written.

    A full disk or a reader that has left must not end a sweep.
    """

    def write(self, data: Buffer) -> int:
        try:
            written = super().write(data)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return written
        except OSError as error:
            _lost[self.fileno()] = error
            return memoryview(data).nbytes


def _protect_streams() -> None:
    """Replaces the output streams of this process.

    Closed streams are replaced by the null device, so that no file is opened under the
    same number. The new streams accept any text. If the encoding lacks a character, an
    escape is written instead. An example is a byte of a path that is not UTF-8.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        old = getattr(sys, name)
        if old is None:
            # stays open as long as the process lives
            new: TextIO = open(  # noqa: SIM115
                os.devnull, "w", encoding="utf-8", errors="backslashreplace"
            )
        else:
            raw = _Stream(number, "w", closefd=False)
            # with PYTHONUNBUFFERED there is no buffer
            buffer = raw if old.write_through else io.BufferedWriter(raw)
            new = io.TextIOWrapper(
                buffer,
                encoding=old.encoding,
                errors="backslashreplace",
                line_buffering=old.line_buffering,
                write_through=old.write_through,
            )
        setattr(sys, name, new)
