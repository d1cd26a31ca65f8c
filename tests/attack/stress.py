"""Python under stress: threads, a running loop, other processes, broken streams,
Ctrl-C, and a notebook's kernel.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any

import pandas as pd

from attack.damage import RUN, count
from attack.tries import Tries, Try
from attack.victims import (
    GRID,
    INTERRUPTED,
    PLACES,
    REFUSED,
    REFUSING,
    SETTINGS,
    SIGNALLED,
)
from jaxrecall import load, run

IMPORTS = "import jax, jaxrecall, pandas; jaxrecall.run, jaxrecall.load"
"""Before anything is interrupted: modules of pandas that are interrupted while they are
imported raise SystemError.
"""

SECONDS = 240
"""A process that takes longer hangs."""


def prepared(
    attack: Callable[[Tries, Path, pd.DataFrame], None],
) -> Callable[[Tries], None]:
    """The attack with its folder and the table that an undisturbed call gives."""

    def with_table(tries: Tries) -> None:
        os.environ["JAXRECALL_CACHE"] = str(tries.home / "cache")
        attack(tries, tries.home, run(GRID, progress=False).drop(columns="seconds"))

    return with_table


def check(
    one: Try, rows: pd.DataFrame, whole: pd.DataFrame, part: bool = False
) -> None:
    """Counts what is lost or doubled; the rest must be as in the undisturbed table."""
    there = whole.merge(rows[RUN].drop_duplicates(), on=RUN)
    count(one, rows, there if part else whole)
    if not one.lost and not one.doubled:
        found = rows.drop(columns="seconds").reset_index(drop=True)
        pd.testing.assert_frame_equal(found, there, rtol=1e-5, check_dtype=False)


@prepared
def places(tries: Tries, home: Path, whole: pd.DataFrame) -> None:
    """Each place where `run` may be called from, in turn."""
    in_turn(tries, home, whole, list(PLACES))


@prepared
def settings(tries: Tries, home: Path, whole: pd.DataFrame) -> None:
    """Each setting in which `run` may be called, in turn."""
    in_turn(tries, home, whole, list(SETTINGS))


def in_turn(tries: Tries, home: Path, whole: pd.DataFrame, names: list[str]) -> None:
    n = 0
    while tries.more():
        name, out = names[n % len(names)], home / str(n)
        n += 1
        out.mkdir()
        with tries.one(f"run in {name}") as one:
            code = f"from attack import victims; victims.main({name!r}, {str(out)!r})"
            try:
                told = subprocess.run(
                    [sys.executable, "-c", code],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                one.hangs(f"no end after {SECONDS} s")
                continue
            assert told.returncode == (REFUSED if name in REFUSING else 0), (
                told.returncode,
                told.stderr[-1500:],
            )
            if name in REFUSING:
                one.refused()
                continue
            tables = [pd.read_parquet(path) for path in sorted(out.glob("*.parquet"))]
            assert len(tables) >= 2
            for table in tables:
                check(one, table, whole)


@prepared
def interrupts(tries: Tries, home: Path, whole: pd.DataFrame) -> None:
    """Ctrl-C at a random moment of `run`, again and again until the folder is full."""
    n, out = 0, home / "0"
    out.mkdir()
    start = time.monotonic()
    code, err = signalled(out, 1e6)
    assert code == 0, err
    span, before = time.monotonic() - start, whole
    while tries.more():
        if len(before) == len(whole):
            n, out = n + 1, home / str(n + 1)
            out.mkdir()
            before = whole[:0]
        delay = tries.chance.uniform(0, span)
        with tries.one(
            f"SIGINT after {delay:.3f} s with {len(before)} of {len(whole)} rows"
        ) as one:
            code, err = signalled(out, delay)
            assert code in (0, INTERRUPTED, SIGNALLED), (code, err)
            rows = (
                load(out / "results")
                if list(out.glob("results/parts/*.parquet"))
                else whole[:0].assign(seconds=0.0)
            )
            one.lost += len(before) - len(before.merge(rows[RUN], on=RUN))
            check(one, rows, whole, part=code != 0)
            if (path := out / "interrupted.parquet").exists():
                check(one, pd.read_parquet(path), whole, part=True)
            before = rows
        if one.kind != "right" or one.lost or one.doubled:
            before = whole


def signalled(out: Path, delay: float) -> tuple[int, str]:
    """The exit code of a call that gets a signal so many seconds after its start, and
    what it wrote.
    """
    for name in ("ready", "interrupted.parquet"):
        (out / name).unlink(missing_ok=True)
    code = (
        "from pathlib import Path; from attack import victims;"
        f" victims.interrupted(Path({str(out)!r}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (out / "ready").exists() and process.poll() is None:
        time.sleep(0.005)
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    return process.wait(), process.communicate()[1][-1500:]


@prepared
def notebook(tries: Tries, home: Path, whole: pd.DataFrame) -> None:
    """A kernel that is interrupted or restarted at a random moment of `run`; the cell
    is run again, and its table is whole.
    """
    try:
        from jupyter_client.manager import start_new_kernel
    except ImportError:
        tries.skip("no jupyter_client here")
        return
    manager, client = start_new_kernel()
    try:
        answer(client, client.execute(IMPORTS))
        n = 0
        while tries.more():
            n += 1
            restarts, delay = tries.chance.random() < 0.3, tries.chance.uniform(0, 4)
            out = home / str(n)
            with tries.one(
                f"the kernel is {'restarted' if restarts else 'interrupted'} after"
                f" {delay:.3f} s"
            ) as one:
                cell = (
                    f"import jaxrecall\nn = len(jaxrecall.run({GRID!r},"
                    f" out={str(out)!r}))"
                )
                told = client.execute(cell)
                time.sleep(delay)
                if restarts:
                    manager.restart_kernel(now=True)
                    client.wait_for_ready(timeout=SECONDS)
                    answer(client, client.execute(IMPORTS))
                else:
                    manager.interrupt_kernel()
                    found = answer(client, told)
                    assert found.get("ename", "Interrupted") in (
                        "Interrupted",
                        "KeyboardInterrupt",
                    ), found
                found = answer(client, client.execute(cell))
                assert found["status"] == "ok", found
                check(one, load(out), whole)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer(client: Any, message: str) -> dict[str, Any]:
    """What the kernel replies to a cell."""
    while True:
        try:
            reply = client.get_shell_msg(timeout=SECONDS)
        except Empty:
            raise AssertionError(f"no answer of the kernel in {SECONDS} s") from None
        if reply["parent_header"].get("msg_id") == message:
            return reply["content"]
