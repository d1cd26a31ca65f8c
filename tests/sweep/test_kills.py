"""Sweeps and workers that are killed while they compute, at moments spread over all of
their work, and resumed until they are done.

`--kills N` sets how many kills each test takes; the default is a few.
"""

import itertools
import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
from attack import kills, signals
from attack.tries import Tries, Try
from test_crash import Sweeps, numbers, same
from test_engines import ENGINES, WORKERS, below, children

STEADY = """
name: steady
base: {V: 64, L: 8, n_test: 500, exact: full}
seeds: 24
blocks: [{axes: {d: [8, 16, 24, 32], N: [2000, 8000, 16000]}}]
run: {part_seconds: 0.5}
"""


@pytest.mark.system
@pytest.mark.parametrize(
    "attack",
    [kills.one_process, kills.workers, kills.search_workers, signals.sweeps],
    ids=lambda attack: f"{attack.__module__}.{attack.__name__}",
)
def test_what_is_killed_or_stopped_loses_and_doubles_nothing(attack, request, tmp_path):
    told: list[dict[str, Any]] = []
    n_kills = request.config.getoption("--kills")
    attack(Tries(attack.__name__, 1e6, n_kills, told.append, tmp_path))
    outcomes = [event["came to"] for event in told if "came to" in event]
    assert len(outcomes) >= n_kills
    for outcome in outcomes:
        counts = outcome["kind"], outcome["lost"], outcome["doubled"]
        assert counts == ("right", 0, 0), outcome["why"]


KILLS_OF_A_SWEEP = 6


@pytest.mark.system
@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_workers_that_are_killed_cost_their_batches_alone(tmp_path, request, engine):
    """One worker at a time, a moment after every other part. A run that has cost three
    workers is left to the next call.
    """
    Sweeps(tmp_path, "steady", STEADY).run(tmp_path / "undisturbed")
    whole = numbers(tmp_path / "undisturbed")
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

        rows = whole.head(0)
        while len(rows) < len(whole):
            done = Sweeps(tmp_path, "steady").run(out, *engine, act=kill)
            assert done["exit_code"] == (3 if done["failed"] else 0), done["err"]
            n_computed += done["runs_executed"]
            one = Try()
            rows = kills.saved(one, out, rows, done["runs_executed"], whole)
            counts = len(rows), one.lost, one.doubled
            assert counts == (n_computed, 0, 0), "no run is lost, or told twice"
        same(rows, whole)
        if len(killed) >= n_kills:
            break
    print(
        f"{len(killed)} workers killed in {i + 1} sweeps, 0 of {len(whole)} rows lost"
    )
