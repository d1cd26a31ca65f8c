"""Sweeps and workers that are killed while they compute, at moments spread over all of
their work, and resumed until they are done.

`--kills N` sets how many kills each test takes; the default is a few.
"""

import functools
import itertools
import os
import random
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from test_crash import Sweeps, numbers, same
from test_engines import ENGINES, WORKERS, below, children

from jaxrecall.status import survey

STEADY = """
name: steady
base: {V: 64, L: 8, n_test: 500, exact: full}
seeds: 24
blocks: [{axes: {d: [8, 16, 24, 32], N: [2000, 8000, 16000]}}]
run: {part_seconds: 0.5}
"""
SEARCHED = """
name: searched
base: {V: 64, L: 8, n_test: 500, exact: full}
seeds: 100
search: {axis: N, theta: [0.3, 0.6], from: 256, to: 32768, width: 0.4}
blocks: [{axes: {d: [16, 20, 24, 28, 32]}}]
run: {part_seconds: 0.5}
"""
MODES = {
    "one process": ("steady", ()),
    "two workers": ("steady", WORKERS),
    "a search": ("searched", ()),
}
SPAN_SECONDS = 2.5
"""A signal comes this long after the first part at most: a sweep takes several kills.
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    Sweeps(folder, "steady", STEADY)
    Sweeps(folder, "searched", SEARCHED)
    return folder


@pytest.fixture(scope="module")
def undisturbed(home):
    """The rows of a grid that one process computes without any signal, by grid;
    computed once.
    """

    @functools.cache
    def rows(grid: str) -> pd.DataFrame:
        done = Sweeps(home, grid).run(home / f"{grid}-undisturbed")
        assert done["returncode"] == 0, done["err"]
        return numbers(home / f"{grid}-undisturbed")

    return rows


def check_saved(
    folder: Path, announced: int, before: pd.DataFrame, whole: pd.DataFrame
) -> pd.DataFrame:
    """The rows in the folder: all that were announced or there before, none twice, each
    as in the whole table.
    """
    rows = numbers(folder)
    assert survey(folder)["unreadable"] == []
    assert len(rows) >= len(before) + announced
    run = ["point_id", "seed"]
    assert set(map(tuple, before[run].values)) <= set(map(tuple, rows[run].values))
    same(rows, whole.merge(rows[run], on=run).astype(rows.dtypes))
    return rows


def drill(
    sweeps: Sweeps,
    options: tuple[str, ...],
    out: Path,
    whole: pd.DataFrame,
    number: signal.Signals,
    most: int,
    chance: random.Random,
):
    """Sweeps into a new folder until it is done, the first `most` of them ended by a
    signal; the share of the rows saved at each end.
    """
    rows, shares = whole[:0], []
    while len(rows) < len(whole):
        delay = chance.uniform(0, SPAN_SECONDS) if len(shares) < most else None

        def end(sweep, k, delay=delay) -> None:
            if k == 1 and delay is not None:
                time.sleep(delay)
                sweep.send_signal(number)

        ended = sweeps.run(out, *options, act=end)
        announced = sum(
            event["rows"] for event in ended["events"] if event["event"] == "part"
        )
        was = len(rows)
        rows = check_saved(out, announced, rows, whole)
        if ended["returncode"] == 0:  # it was done before the signal came
            assert len(rows) == was + announced == len(whole)
            break
        assert delay is not None
        shares.append(len(rows) / len(whole))
        if number == signal.SIGKILL:
            assert ended["returncode"] == -number, ended["err"]
            continue
        codes = ended["returncode"], ended["exit_code"], ended["unsaved"]
        assert codes == (130, 130, 0), ended["err"]
        assert len(rows) == was + announced
        begin, _, again = ended["err"].splitlines()[-1].partition(" To resume: ")
        assert begin == "interrupted; finished runs are kept."
        assert shlex.split(again)[1:] == sweeps.command(out, *options)[1:]
    same(rows, whole)
    assert survey(out)["todo"] == 0
    return shares


@pytest.mark.system
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_kills_in_the_steady_state(home, undisturbed, tmp_path, request, mode, name):
    grid, options = MODES[mode]
    n_kills, shares = request.config.getoption("--kills"), []
    chance = random.Random(f"{mode} {name}")
    for i in itertools.count():  # a sweep may be done before its signal
        if len(shares) >= n_kills:
            break
        shares += drill(
            Sweeps(home, grid),
            options,
            tmp_path / str(i),
            undisturbed(grid),
            signal.Signals[name],
            n_kills - len(shares),
            chance,
        )
    at = ", ".join(f"{share:.0%}" for share in sorted(shares))
    print(f"{mode}, {name}: {n_kills} kills, at {at} of the rows")


KILLS_OF_A_SWEEP = 6


@pytest.mark.system
@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_workers_that_are_killed_cost_their_batches_alone(
    home, undisturbed, tmp_path, request, engine
):
    """One worker at a time, a moment after every other part. A run that has cost three
    workers is left to the next call.
    """
    whole = undisturbed("steady")
    n_kills = request.config.getoption("--kills")
    chance = random.Random(" ".join(engine))
    killed: list[int] = []
    for i in itertools.count():
        most, out, n_computed = len(killed) + KILLS_OF_A_SWEEP, tmp_path / str(i), 0

        def kill(sweep, k, most=most) -> None:
            pids = below(sweep.pid, "compute_share")
            if engine == WORKERS:
                pids = children(sweep.pid)
            if k % 2 and pids and len(killed) < min(most, n_kills):
                time.sleep(chance.uniform(0, 0.5))
                # it has ended meanwhile, with the work or for another kill
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    killed.append(k)

        rows = whole[:0]
        while len(rows) < len(whole):
            done = Sweeps(home, "steady").run(out, *engine, act=kill)
            assert done["exit_code"] == (3 if done["failed"] else 0), done["err"]
            n_computed += done["runs_executed"]
            rows = check_saved(out, done["runs_executed"], rows, whole)
            assert len(rows) == n_computed, "no run twice"
        same(rows, whole)
        if len(killed) >= n_kills:
            break
    print(
        f"{len(killed)} workers killed in {i + 1} sweeps, 0 of {len(whole)} rows lost"
    )
