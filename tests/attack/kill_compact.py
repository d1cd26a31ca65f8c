"""A compaction of many parts that is killed before its prune is finished, and then
continued.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from helpers import ROOT
from test_store import rows

from attack.tries import Tries, Try
from jaxrecall.compact import compact
from jaxrecall.sweep.store import Store
from jaxrecall.sweep.store.table import ROW, read_tables

N_PARTS, N_OLD = 600, 150
"""The number of parts, and how many of them an earlier compaction has seen, too."""

STAGES = ("starts", "reads", "writes the table", "begins to prune", "prunes")
END_SECONDS = 120


def pruned(tries: Tries) -> None:
    """Kills `compact --prune` in each of its stages in turn."""
    home = tries.home
    make_parts(home / "whole")
    whole = identities(home / "whole")
    n = 0
    while tries.more():
        stage = STAGES[n % len(STAGES)]
        n += 1
        delay = tries.chance.random() ** 3
        with tries.one(f"killed as it {stage}, and {delay:.3f} later") as one:
            folder = home / "folder"
            shutil.rmtree(folder, ignore_errors=True)
            copy(home / "whole", folder)
            killed(folder, stage, delay)
            one.state = reached(folder, home / "whole")
            check(one, folder, whole)


def make_parts(folder: Path) -> None:
    """Makes many small parts, and a table of some of them. Half of the rows are in two
    parts.
    """
    store = Store(folder)
    store.prepare({})
    for i in range(N_OLD):
        store.write(rows(i))
    compact(folder)
    for i in range(N_OLD, N_PARTS // 2):
        store.write(rows(i))
    for i in range(N_PARTS // 2):
        store.write(rows(i, N_PARTS + i))


def copy(whole: Path, folder: Path) -> None:
    """Copies a results folder. Parts are hard links, because nothing writes to them."""
    shutil.copytree(whole, folder, copy_function=os.link)


def killed(folder: Path, stage: str, delay: float) -> None:
    """Starts a compaction, and kills it a moment after it has reached a stage.

    `delay` is a fraction of the longest time that is waited in this stage: a second
    for stages that are long, and 10 ms for the others.
    """
    table = os.stat(folder / "table.parquet").st_ino
    parts, staging = folder / "parts", folder / "_staging"
    (staging / "compact.lock").unlink(missing_ok=True)
    command = [sys.executable, "-m", "jaxrecall.compact", str(folder), "--prune"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def is_there() -> bool:
        match stage:
            case "starts":
                return True
            case "reads":
                return (staging / "compact.lock").exists()
            case "writes the table":
                return len(os.listdir(staging)) > 1
            case "begins to prune":
                return os.stat(folder / "table.parquet").st_ino != table
            case _:
                return len(os.listdir(parts)) < N_PARTS

    end = time.monotonic() + END_SECONDS
    while not is_there() and process.poll() is None and time.monotonic() < end:
        pass
    is_long = stage in ("starts", "reads")
    time.sleep(delay if is_long else delay / 100)
    process.kill()
    process.wait()


def reached(folder: Path, whole: Path) -> str:
    """What a killed compaction had done, by the state of its folder."""
    left = len(os.listdir(folder / "parts"))
    new = not os.path.samefile(folder / "table.parquet", whole / "table.parquet")
    staged = os.listdir(folder / "_staging")
    if left == 0:
        return "after the prune"
    if left < len(os.listdir(whole / "parts")):
        return "in the prune"
    if new:
        return "between table and prune"
    if len(staged) > 1:
        return "while the table was written"
    return "while parts were read" if staged else "before the lock"


def identities(folder: Path) -> set[tuple[str, int, int]]:
    """The ids of all rows that can be read."""
    found = set()
    tables, _ = Store(folder).tables(ROW)
    for table in tables.values():
        found |= set(map(tuple, table.select(ROW).to_pandas().values.tolist()))
    return found


def check(one: Try, folder: Path, whole: set[tuple[str, int, int]]) -> None:
    """Counts the rows that are missing after the kill or after the next compaction, and
    those that its table has twice.
    """
    one.lost += len(whole - identities(folder))
    compact(folder, prune=True)
    assert os.listdir(folder / "parts") == []
    _, unreadable = read_tables([folder / "table.parquet"])
    assert unreadable == []
    table = pq.read_table(folder / "table.parquet").select(ROW).to_pandas()
    one.doubled += int(table.duplicated().sum())
    one.lost += len(whole - identities(folder))
    assert identities(folder) <= whole
