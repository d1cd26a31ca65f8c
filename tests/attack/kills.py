"""Sweeps, searches and trainings that are killed at random moments and resumed until
they are done.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from test_crash import Sweeps, numbers, same
from test_process import children, runs

from attack.damage import RUN
from attack.tries import Tries, Try
from jaxrecall.status import survey

GRIDS = {
    "small": (
        "base: {V: 20, L: 3, n_test: 200}\nseeds: 24\nblocks: [{axes: {d: [8, 12], N:"
        " [100, 600, 4000]}}]"
    ),
    "searched": (
        "base: {V: 20, L: 3, n_test: 200}\nseeds: 60\nblocks: [{axes: {d: [8, 10,"
        " 12]}}]\nsearch: {axis: N, theta: [0.3, 0.6], from: 64, to: 4096, width: 0.4}"
    ),
    "trained": (
        "base: {V: 20, L: 3, n_test: 200, N: 300, steps: 120, optimizer: sgd}\nseeds:"
        " 16\nblocks: [{axes: {d: [8, 12], lr: [0.1, 1, 3]}}]"
    ),
}
MAX_KILLS = 12
"""Of one folder; the sweep after them is left alone."""
END_SECONDS, FOREVER = 60, 1e6


def one_process(tries: Tries) -> None:
    killed(tries, "small")


def workers(tries: Tries) -> None:
    killed(tries, "small", "--workers", "2")


def search(tries: Tries) -> None:
    killed(tries, "searched")


def search_workers(tries: Tries) -> None:
    killed(tries, "searched", "--workers", "2")


def training(tries: Tries) -> None:
    killed(tries, "trained", "--workers", "2")


def killed(tries: Tries, grid: str, *options: str) -> None:
    sweeps, whole, span = undisturbed(tries.home, grid, 0)
    n = 0
    while tries.more():
        n += 1
        finish(tries, sweeps, options, tries.home / str(n), whole, span)


def undisturbed(
    home: Path, grid: str, part_seconds: float, *options: str
) -> tuple[Sweeps, pd.DataFrame, float]:
    """Sweeps of a grid, the rows of one that nothing disturbs, and its seconds."""
    text = f"name: {grid}\n{GRIDS[grid]}\nrun: {{part_seconds: {part_seconds}}}\n"
    sweeps = Sweeps(home, grid, text)
    for name in ("first", "whole"):  # the first compiles
        start = time.monotonic()
        ended = sweeps.run(home / name, *options)
        assert ended["exit_code"] == 0, ended["err"]
    return sweeps, numbers(home / "whole"), time.monotonic() - start


def finish(
    tries: Tries,
    sweeps: Sweeps,
    options: tuple[str, ...],
    out: Path,
    whole: pd.DataFrame,
    span: float,
) -> None:
    """Sweeps into a folder until it is done, each time killed at a moment of the time
    that an undisturbed sweep takes.
    """
    before, kills = whole[:0], 0
    while len(before) < len(whole) and tries.more():
        delay = tries.chance.uniform(0.2, span) if kills < MAX_KILLS else FOREVER
        kills += 1
        with tries.one(
            f"{sweeps.grid} {options}: killed after {delay:.2f} s with {len(before)} of"
            f" {len(whole)} rows"
        ) as one:
            code, announced, left = run_until(sweeps, out, options, delay)
            rows = saved(one, out, before, announced, whole)
            assert code in (0, -9), code
            if code == 0:
                same(rows, whole)
            if left:
                one.hangs(f"processes {left} outlive their sweep")
            before = rows


def run_until(
    sweeps: Sweeps, out: Path, options: tuple[str, ...], delay: float
) -> tuple[int, int, list[int]]:
    """Kills a sweep after a delay: its exit code, the rows that it said are saved, and
    those of its processes that outlive it.
    """
    sweep, below = sweeps.start(out, *options), []

    def kill() -> None:
        with contextlib.suppress(OSError):
            below.extend(descendants(sweep.pid))
        sweep.kill()

    timer = threading.Timer(delay, kill)
    timer.start()
    told, _ = sweep.communicate()
    timer.cancel()
    timer.join()
    end = time.monotonic() + END_SECONDS
    while any(map(runs, below)) and time.monotonic() < end:
        time.sleep(0.1)
    return (
        sweep.returncode,
        sum(event["rows"] for event in events(told) if event["event"] == "part"),
        [*filter(runs, below)],
    )


def events(told: str) -> list[dict[str, Any]]:
    """The events that a sweep wrote whole."""
    return [
        json.loads(line)
        for line in told.splitlines(keepends=True)
        if line.endswith("\n")
    ]


def descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *descendants(child))]


def saved(
    one: Try, out: Path, before: pd.DataFrame, announced: int, whole: pd.DataFrame
) -> pd.DataFrame:
    """The rows in a folder; counts those of before or announced that are gone, and
    those that its parts hold twice.
    """
    if not list(out.glob("parts/*.parquet")):
        one.lost += len(before) + announced
        return whole[:0]
    rows = numbers(out)
    kept = len(before.merge(rows[RUN], on=RUN))
    one.lost += max(len(before) - kept, len(before) + announced - len(rows), 0)
    parts = pd.concat(
        [
            pq.read_table(path, columns=RUN).to_pandas()
            for path in out.glob("parts/*.parquet")
        ]
    )
    one.doubled += int(parts.duplicated().sum())
    assert survey(out)["unreadable"] == []
    same(rows, whole.merge(rows[RUN], on=RUN).astype(rows.dtypes))
    return rows
