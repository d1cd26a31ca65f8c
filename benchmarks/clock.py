"""Timing: interleaved repeats, sweeps in this process, and fresh processes.

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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import yaml

Engine = Callable[[int], float]
"""Runs the work once with the random numbers of that call; returns the seconds it took.
"""

ROUND_SECONDS, ROUND_CALLS, PAUSE_SECONDS = 1.0, 5, 0.2


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
            time.sleep(PAUSE_SECONDS)  # other threads may still spin
            here: list[float] = []
            while len(here) < ROUND_CALLS and sum(here) < ROUND_SECONDS:
                here.append(engine(1 + turn * ROUND_CALLS + len(here)))
            seconds[name] += here
            log(
                f"round {turn + 1} of {rounds}, {name}:"
                f" {', '.join(f'{s:.3g}' for s in here)} s"
            )
    return seconds


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: median(times) for name, times in seconds.items()}


def sweep(grid: Any, folder: Path, *arguments: str) -> float:
    """Runs `jaxrecall.sweep` on a grid in this process, with rows in `folder`.

    Returns the seconds to the last row. The last row is complete when its part file is
    renamed to its final name. The table and the picture follow after that.
    """
    from jaxrecall.sweep.__main__ import main

    file = written(grid, folder)
    with quiet() as output:
        wall, start = time.time(), time.perf_counter()
        code = main(["--grid", str(file), "--out", str(folder), *arguments])
        whole = time.perf_counter() - start
        text = output()[-2000:] if code else ""
    if code:
        raise RuntimeError(f"sweep ended with exit code {code}: {text}")
    return min(whole, (folder / "parts").stat().st_mtime - wall)


def written(grid: Any, folder: Path) -> Path:
    """Writes a grid beside a results folder."""
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(grid))
    return file


def dry_run(grid: Any, folder: Path) -> dict[str, Any]:
    """Returns the output of `python -m jaxrecall.sweep --dry-run --json` for a grid."""
    command = [sys.executable, "-m", "jaxrecall.sweep", "--dry-run", "--json"]
    command += ["--grid", str(written(grid, folder)), "--out", str(folder)]
    return json.loads(output_of(command))


def output_of(command: list[str], **options: Any) -> str:
    """Runs a command and returns its output. Raises RuntimeError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with exit code {done.returncode}:"
            f" {done.stderr[-2000:]}"
        )
    return done.stdout


@contextlib.contextmanager
def quiet() -> Iterator[Callable[[], str]]:
    """A context in which nothing is written to the terminal, not even a progress bar.

    It yields a function that returns the text written so far.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+") as file:
        kept = [os.dup(1), os.dup(2)]
        try:
            for fd in (1, 2):
                os.dup2(file.fileno(), fd)

            def output() -> str:
                file.seek(0)
                return file.read()

            yield output
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, saved in zip((1, 2), kept, strict=True):
                os.dup2(saved, fd)
                os.close(saved)


def fresh(task: str, sweep_cache: str = "", **arguments: Any) -> dict[str, Any]:
    """Runs a task of `benchmarks.child` in a fresh process, and returns its answer.

    Sweeps in that process keep their programs in `sweep_cache`, or nowhere if it is
    empty.
    """
    environment = {**os.environ, "JAXRECALL_CACHE": sweep_cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "benchmarks.child", task, json.dumps(arguments)]
    folder = Path(__file__).parent.parent
    return json.loads(output_of(command, env=environment, cwd=folder).splitlines()[-1])


def machine() -> str:
    """The processor, cores and memory of this machine."""
    with contextlib.suppress(OSError, IndexError):
        cpu = (
            Path("/proc/cpuinfo")
            .read_text()
            .split("model name")[1]
            .split("\n")[0]
            .strip(" \t:")
        )
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """The versions of Python and of the compared packages, and the commit."""
    found = {"python": platform.python_version()}
    for name in ("jaxrecall", "jax", "jaxlib", "numpy", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    here = Path(__file__).parent
    with contextlib.suppress(OSError, RuntimeError):
        git = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
        found["commit"] = output_of(git, cwd=here).strip()
    return found


def circumstances() -> dict[str, Any]:
    """Where, when and with what a row is measured; saved with the row."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="minutes")
    return {
        "date": now,
        "machine": machine(),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions(),
    }
