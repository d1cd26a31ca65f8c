"""python -m slurm: runs sweeps/launch/slurm-array.sh in a real Slurm of one node, and
counts the rows.

A call writes results/slurm.md. Its exit code is 1 if anything is wrong, and 2 if Slurm
is not installed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from attack.tries import TESTS

from benchmarks.clock import machine, versions
from slurm.cluster import PACKAGES, Cluster, missing

ROOT = TESTS.parent
SCRIPT = ROOT / "sweeps/launch/slurm-array.sh"
PAGE = ROOT / "results/slurm.md"

PACED = """
import os
import time

import jax

from jaxrecall import Simulator


def run(point, key):
    if point.x > point.fails_above:
        raise ValueError(f"x = {point.x}")
    time.sleep(float(os.environ["PAUSE"]))
    return {"accuracy": float(point.x + jax.random.uniform(key)) / 100}


simulator = Simulator(
    run,
    {
        "x": (float, 1.0, 0, 99, "traced"),
        "fails_above": (float, 100.0, 0, 100, "traced"),
    },
    {"accuracy": (float, "x plus a random fraction, in percent")},
    accuracy="accuracy",
    jit=False,
)
"""
"""A simulator whose runs take as long on any machine."""

MOST_SECONDS = 1800
"""A trial that takes longer is given up."""

STAYS_SECONDS = 30
"""How long a cancelled task is watched."""

PAUSE = 0.5
"""The seconds that a run of it takes in Slurm."""

GRIDS = {
    "small": """
base: {V: 20, L: 3, n_test: 200}
seeds: 16
blocks: [{axes: {d: [8, 12], N: [100, 600, 4000]}}]
""",
    "paced": """
simulator: paced:simulator
seeds: 70
blocks: [{axes: {x: [1, 2, 3, 4]}}]
""",
    "long": """
simulator: paced:simulator
seeds: 160
blocks: [{axes: {x: [1, 2, 3, 4]}}]
""",
    "failing": """
simulator: paced:simulator
base: {fails_above: 1}
seeds: 2
blocks: [{axes: {x: [1, 2]}}]
""",
}
COUNTED = ("rows", "lost", "doubled", "wrong")
RUN = ["point_id", "seed", "step"]
NOT_COMPARED = ["seconds", "bucket"]

SHORT = ("--time=10", "--cpus-per-task=1")
"""Options that replace those of the script, so that two tasks run on two cores."""

INTRODUCTION = """\
# Slurm

`make slurm` starts a real Slurm of one node in a temporary folder, and runs `sweeps/launch/slurm-array.sh` in it. It ends tasks in the ways
that a cluster does, and compares the rows with those of one undisturbed sweep. Rows are *lost* if no part has them, *doubled* if two parts
have them, and *wrong* if a number differs. *Turns* are the starts of all tasks. This page is the record of its last run.

    make slurm                                        # about ten minutes on 2 cores; on Debian: apt-get install {packages}
"""  # noqa: E501


@dataclass
class Outcome:
    """What a trial came to. `tasks` are as Slurm describes them. The rows in `out` are
    compared with those in `whole`.
    """

    tasks: Sequence[dict[str, str]]
    note: str
    out: Path | None = None
    whole: Path | None = None
    faults: Sequence[str] = ()

    @property
    def n_turns(self) -> int:
        return sum(1 + int(task["Restarts"]) for task in self.tasks)

    def counts(self) -> dict[str, int]:
        """The numbers of rows, and of those lost, doubled and wrong."""
        if not self.out or not self.whole:
            return dict.fromkeys(COUNTED, 0)
        rows, whole = rows_of(self.out), rows_of(self.whole)
        once = rows.drop_duplicates(RUN)
        both = once.merge(whole, on=RUN, suffixes=("", "_whole"))
        is_wrong = pd.Series(False, index=both.index)
        for name in whole.columns.difference(RUN):
            a, b = both[name], both[f"{name}_whole"]
            is_wrong |= (a != b) & ~(a.isna() & b.isna())
        lost, doubled = len(whole) - len(both), len(rows) - len(once)
        wrong = int(is_wrong.sum()) + len(once) - len(both)
        return dict(zip(COUNTED, (len(rows), lost, doubled, wrong), strict=True))


def rows_of(folder: Path) -> pd.DataFrame:
    """All rows in the parts of a folder, as often as they are there."""
    tables = [pq.read_table(path).to_pandas() for path in folder.glob("parts/*")]
    rows = pd.concat(tables, ignore_index=True)
    return rows.drop(columns=NOT_COMPARED, errors="ignore")


class Trials:
    """The trials, in one cluster and one folder."""

    def __init__(self, cluster: Cluster, home: Path):
        self.cluster, self.home = cluster, home
        (home / ".venv").symlink_to(ROOT / ".venv")
        (home / "paced.py").write_text(PACED)
        for name, text in GRIDS.items():
            save = "run: {part_seconds: 0}\n"
            (home / f"{name}.yaml").write_text(f"name: {name}\n{text}{save}")

    def whole(self, grid: str) -> Path:
        """The results of one sweep that nothing disturbs, outside of Slurm."""
        out = self.home / f"whole-{grid}"
        if not out.exists():
            words = ["--grid", f"{grid}.yaml", "--out", str(out)]
            words += ["--set", "run.part_seconds=10"]
            python = [".venv/bin/python", "-m", "jaxrecall.sweep"]
            self.cluster.call("env", "PAUSE=0", *python, *words, folder=self.home)
        return out

    def submit(self, grid: str, out: str, *options: str) -> str:
        words = [*SHORT, *options, str(SCRIPT), f"{grid}.yaml", out]
        return self.cluster.submit(self.home, *words)

    def log(self, job: str, task: int) -> str:
        return (self.home / f"slurm-{job}_{task}.out").read_text()

    def array(self, out: str, note: str, *options: str) -> Outcome:
        job = self.submit("small", out, *options)
        tasks = self.cluster.wait(job, MOST_SECONDS)
        return Outcome(
            tasks, note, self.home / out, self.whole("small"), unlike(tasks, "0:0")
        )

    def four_tasks(self) -> Outcome:
        return self.array("four", "exit code 0", "--array=0-3")

    def two_at_a_time(self) -> Outcome:
        return self.array("two", "exit code 0", "--array=5-8%2")

    def every_second(self) -> Outcome:
        return self.array("second", "exit code 0", "--array=0-6:2")

    def spaces(self) -> Outcome:
        folder = self.home / "a folder"
        folder.mkdir()
        (folder / ".venv").symlink_to(ROOT / ".venv")
        shutil.copy(self.home / "small.yaml", folder / "my grid.yaml")
        words = [*SHORT, "--array=0-1", str(SCRIPT), "my grid.yaml", "my rows"]
        tasks = self.cluster.wait(self.cluster.submit(folder, *words), MOST_SECONDS)
        whole, faults = self.whole("small"), unlike(tasks, "0:0")
        return Outcome(tasks, "exit code 0", folder / "my rows", whole, faults)

    def cores(self) -> Outcome:
        """Slurm binds each task to its cores, as many sites let it do."""
        n = min(2, self.cluster.cores)
        told = f"on {n} core" + "s" * (n > 1)
        self.cluster.environment["SLURM_CPU_BIND"] = "cores"
        job = self.submit("small", "cores", "--array=0-1", f"--cpus-per-task={n}")
        tasks = self.cluster.wait(job, MOST_SECONDS)
        del self.cluster.environment["SLURM_CPU_BIND"]
        faults = unlike(tasks, "0:0")
        if told not in self.log(job, 0):
            faults.append(f"not {told}")
        whole = self.whole("small")
        return Outcome(tasks, f"ran {told}", self.home / "cores", whole, faults)

    def time_limit(self) -> Outcome:
        job = self.submit("long", "limited", "--array=0-1", "--time=3")
        return self._continued(job, "limited", "long")

    def preemption(self) -> Outcome:
        job = self.submit("paced", "preempted", "--array=0-1")
        self._wait_for_rows("preempted")
        words = ["--partition=high", f"--ntasks={self.cluster.cores}", "--wrap=sleep 3"]
        self.cluster.submit(self.home, *words)
        return self._continued(job, "preempted", "paced")

    def _continued(self, job: str, out: str, grid: str) -> Outcome:
        """Waits for tasks that come back by themselves."""
        tasks = self.cluster.wait(job, MOST_SECONDS)
        faults = unlike(tasks, "0:0")
        if all(task["Restarts"] == "0" for task in tasks):
            faults.append("no task was interrupted")
        for i, task in enumerate(sorted(tasks, key=lambda task: task["ArrayTaskId"])):
            if self.log(job, i).count("rows go to") != 1 + int(task["Restarts"]):
                faults.append(f"the log of task {i} lacks a turn")
        note = "tasks came back and finished by themselves; a log has all turns"
        return Outcome(tasks, note, self.home / out, self.whole(grid), faults)

    def cancelled_task(self) -> Outcome:
        """One of two tasks is cancelled. The same line then computes what it left."""
        job = self.submit("paced", "cancelled", "--array=0-1")
        self._wait_for_rows("cancelled")
        self.cluster.call("scancel", f"{job}_0")
        tasks = self.cluster.wait(job, MOST_SECONDS)
        time.sleep(STAYS_SECONDS)
        tasks = self.cluster.wait(job, MOST_SECONDS)
        states = {task["ArrayTaskId"]: task["JobState"] for task in tasks}
        faults = []
        if states != {"0": "CANCELLED", "1": "COMPLETED"} or self.restarted(tasks):
            faults.append(f"ended as {states}")
        same_line = self.submit("paced", "cancelled", "--array=0-1")
        again = self.cluster.wait(same_line, MOST_SECONDS)
        faults += unlike(again, "0:0")
        note = f"cancelled for at least {STAYS_SECONDS} s; the same line did the rest"
        out, whole = self.home / "cancelled", self.whole("paced")
        return Outcome([*tasks, *again], note, out, whole, faults)

    def restarted(self, tasks: Sequence[dict[str, str]]) -> bool:
        return any(task["Restarts"] != "0" for task in tasks)

    def _wait_for_rows(self, out: str) -> None:
        parts = self.home / out / "parts"
        self.cluster.until(lambda: len([*parts.glob("*")]) >= 6, MOST_SECONDS)

    def no_environment(self) -> Outcome:
        folder = self.home / "bare"
        folder.mkdir()
        words = [*SHORT, "--array=0-1", str(SCRIPT), "small.yaml", "out"]
        job = self.cluster.submit(folder, *words)
        tasks = self.cluster.wait(job, MOST_SECONDS)
        lines = (folder / f"slurm-{job}_0.out").read_text().splitlines()
        faults = unlike(tasks, "2:0")
        if len(lines) != 1 or "pip install" not in lines[0]:
            faults.append(f"says {lines}")
        return Outcome(tasks, "exit code 2, one line, not requeued", faults=faults)

    def failed_run(self) -> Outcome:
        job = self.submit("failing", "failing", "--array=0-0")
        tasks = self.cluster.wait(job, MOST_SECONDS)
        note = "exit code 3, not requeued"
        return Outcome(tasks, note, faults=unlike(tasks, "3:0"))


def unlike(tasks: Sequence[dict[str, str]], code: str) -> list[str]:
    """Faults of tasks that have another exit code. Those that fail have one turn."""
    faults = []
    for task in tasks:
        if task["ExitCode"] != code:
            faults.append(f"task {task['ArrayTaskId']} ends with {task['ExitCode']}")
        if code != "0:0" and task["Restarts"] != "0":
            faults.append(f"task {task['ArrayTaskId']} came back")
    return faults


TRIALS: dict[str, Callable[[Trials], Outcome]] = {
    "4 tasks": Trials.four_tasks,
    "4 tasks, numbered from 5, 2 at a time (`%2`)": Trials.two_at_a_time,
    "4 tasks, numbered 0, 2, 4, 6": Trials.every_second,
    "paths with spaces": Trials.spaces,
    "2 cores for each task, bound by Slurm": Trials.cores,
    "a run that fails": Trials.failed_run,
    "no `.venv`": Trials.no_environment,
    "a task that `scancel` ends": Trials.cancelled_task,
    "a preemption by a partition of higher priority": Trials.preemption,
    "a time limit of 3 minutes": Trials.time_limit,
}


def line_of(what: str, outcome: Outcome, seconds: float) -> str:
    counts = " | ".join(f"{n:,}" for n in outcome.counts().values())
    came = "; ".join(outcome.faults) if outcome.faults else outcome.note
    return (
        f"| {what} | {len(outcome.tasks)} | {outcome.n_turns} | {counts} | {came} |"
        f" {seconds:.0f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make slurm", description=__doc__)
    parser.add_argument(
        "--only", metavar="WORD", help="trials that have this word; writes no page"
    )
    args = parser.parse_args()
    if lacking := missing():
        print(
            f"{', '.join(lacking)}: not installed; to install it on Debian: apt-get"
            f" install {PACKAGES}",
            file=sys.stderr,
        )
        return 2
    head = ["what", "tasks", "turns", *COUNTED, "how it ended", "seconds"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * 6} --- | ---: |"]
    print(*lines, sep="\n", flush=True)
    n_faults = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        variables = {
            "PYTHONPATH": str(ROOT),
            "JAXRECALL_CACHE": str(home / "cache"),
            "JAX_PLATFORMS": "cpu",
            "PAUSE": str(PAUSE),
        }
        with Cluster(home / "cluster", variables) as cluster:
            told = cluster.call("sinfo", "--version").strip()
            trials = Trials(cluster, home)
            for what, trial in TRIALS.items():
                if args.only and args.only not in what:
                    continue
                start = time.monotonic()
                outcome = trial(trials)
                n_faults += bool(outcome.faults)
                counts = outcome.counts()
                n_faults += sum(counts[name] for name in COUNTED[1:])
                seconds = time.monotonic() - start
                lines.append(line_of(what, outcome, seconds))
                print(lines[-1], flush=True)
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    where = f"{told}, {machine()}; {used}. Faults: {n_faults}."
    print(where)
    if not args.only:
        introduction = INTRODUCTION.format(packages=PACKAGES)
        PAGE.write_text("\n".join([introduction, where, "", *lines, ""]))
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
