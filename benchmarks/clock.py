"""Timing: interleaved repeats and fresh processes.

The module also describes the machine and the versions.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from jaxrecall.cli import command

Engine = Callable[[int], float]
"""Runs the work once with the random numbers of that call; returns the seconds it took.
"""

ROUND_SECONDS, ROUND_CALLS, PAUSE_SECONDS = 1.0, 5, 0.2
ONCE_SECONDS = 100.0
"""A call that takes longer is made only once."""


def timed(work: Callable[[int], Any]) -> Engine:
    def engine(call: int) -> float:
        start = time.perf_counter()
        work(call)
        return time.perf_counter() - start

    return engine


def interleaved(
    engines: Mapping[str, Engine], rounds: int, log: Callable[[str], None]
) -> dict[str, list[float]]:
    """Returns the seconds of every call of each engine.

    In each round, every engine makes up to five calls, until they have taken a second.
    Callers make the first call of an engine beforehand, because no call is left out
    here.
    """
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(rounds):
        for name, engine in engines.items():
            if max(seconds[name], default=0.0) > ONCE_SECONDS:
                continue
            time.sleep(PAUSE_SECONDS)  # other threads may still spin
            calls: list[float] = []
            while len(calls) < ROUND_CALLS and sum(calls) < ROUND_SECONDS:
                calls.append(engine(1 + turn * ROUND_CALLS + len(calls)))
            seconds[name] += calls
            told = ", ".join(f"{s:.3g}" for s in calls)
            log(f"round {turn + 1} of {rounds}, {name}: {told} s")
    return seconds


def written(grid: Any, folder: Path) -> Path:
    """Writes a grid beside a results folder."""
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(grid))
    return file


def output_of(command: list[str], **options: Any) -> str:
    """Runs a command and returns its output. Raises RuntimeError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        ended = f"{' '.join(command)} ended with exit code {done.returncode}"
        raise RuntimeError(f"{ended}: {done.stderr[-2000:]}")
    return done.stdout


def fresh(task: str, cache: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Runs a task of `benchmarks.child` in a fresh process, and returns its answer.

    That process keeps its programs in `cache`, or nowhere.
    """
    environment = {**os.environ, "JAXRECALL_CACHE": str(cache or "")}
    command = [sys.executable, "-m", "benchmarks.child", task, json.dumps(arguments)]
    folder = Path(__file__).parent.parent
    return json.loads(output_of(command, env=environment, cwd=folder).splitlines()[-1])


def machine() -> str:
    """The processor, cores and memory of this machine."""
    cores = f"{os.cpu_count()} cores"
    with contextlib.suppress(OSError, IndexError):
        told = Path("/proc/cpuinfo").read_text().split("model name")[1]
        model = told.splitlines()[0].strip(" :\t")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return f"{model}, {cores}, {memory:.0f} GiB"
    return f"{platform.processor() or platform.machine()}, {cores}"


def versions() -> dict[str, str]:
    """The versions of Python and of the compared packages, and the commit."""
    versions_here = {"python": platform.python_version(), **command.versions()}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions_here["torch"] = importlib.metadata.version("torch")
    with contextlib.suppress(OSError, RuntimeError):
        git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
        versions_here["commit"] = output_of(git, cwd=Path(__file__).parent).strip()
    return versions_here


def circumstances() -> dict[str, Any]:
    """Where, when and with what a row is measured; saved with the row."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    load = round(os.getloadavg()[0], 2)
    return {"date": now, "machine": machine(), "load": load, "versions": versions()}
