"""Sweeps that get signals of all kinds at random moments, also with a worker that has
been stopped, and are resumed until they are done.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
from test_crash import Sweeps, same
from test_process import SIGNALS, runs

from attack.kills import descendants, events, saved, undisturbed
from attack.tries import Tries

MODES = {
    "one process": (),
    "two workers": ("--workers", "2"),
    "two workers, one stopped": ("--workers", "2"),
}
SEEDS = ("--set", "seeds=400")
END_SECONDS = 45
"""A stopped worker is ended after 30 s; then rows are saved and drawn."""

FOLDERS = 6
"""A folder is resumed so often, and the sweep after that is left alone."""


def sweeps(tries: Tries) -> None:
    """A signal, at times a second one, to a sweep in each mode."""
    small, whole, span = undisturbed(tries.home, "small", 0.5, *SEEDS)
    n = 0
    while tries.more():
        for mode in MODES:
            n += 1
            resumed(tries, small, mode, tries.home / str(n), whole, span)


def resumed(
    tries: Tries, small: Sweeps, mode: str, out: Path, whole: pd.DataFrame, span: float
) -> None:
    before, n_calls = whole[:0], 0
    while len(before) < len(whole) and tries.more():
        n_calls += 1
        numbers_sent = tries.chance.choices(SIGNALS, k=tries.chance.choice([1, 1, 2]))
        delay = tries.chance.uniform(0, span) if n_calls <= FOLDERS else None
        what = f"{mode}: {[*map(str, numbers_sent)]} {delay} s after the first line"
        with tries.one(what) as one:
            code, told, left, seconds = signalled(small, out, mode, numbers_sent, delay)
            assert code in (0, 130), (code, told[-2000:])
            ended = events(told)
            assert ended[-1]["event"] == "done" or len(numbers_sent) > 1, ended[-1]
            announced = sum(
                event["rows"] for event in ended if event["event"] == "batch"
            )
            rows = saved(one, out, before, announced, whole)
            if code == 0:
                same(rows, whole)
            if seconds > END_SECONDS:
                one.hangs(f"it ended {seconds:.0f} s after its signal")
            if left:
                one.hangs(f"processes {left} outlive their sweep")
            before = rows


def signalled(
    small: Sweeps,
    out: Path,
    mode: str,
    numbers_sent: list[signal.Signals],
    delay: float | None,
) -> tuple[int, str, list[int], float]:
    """Sends signals to a sweep: its exit code, what it told, those of its processes
    that outlive it, and the seconds that it took from the first signal to its end.
    """
    sweep, below = small.start(out, *SEEDS, *MODES[mode]), list[int]()
    assert sweep.stdout
    first = sweep.stdout.readline()
    sent = [time.monotonic()]

    def send() -> None:
        with suppress(OSError):  # it may have ended
            below.extend(descendants(sweep.pid))
            if "stopped" in mode and below:
                os.kill(below[0], signal.SIGSTOP)
        sent[0] = time.monotonic()
        for number in numbers_sent:
            sweep.send_signal(number)
            time.sleep(0.1)

    timer = threading.Timer(delay or 0, send)
    if delay is not None:
        timer.start()
    try:
        told, _ = sweep.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        sweep.kill()
        told, _ = sweep.communicate()
    seconds = time.monotonic() - sent[0] if delay is not None else 0.0
    timer.cancel()
    end = time.monotonic() + 10
    while any(map(runs, below)) and time.monotonic() < end:
        time.sleep(0.1)
    return sweep.returncode, first + told, [*filter(runs, below)], seconds
