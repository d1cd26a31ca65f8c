"""What programs do with `run` while tests/attack/stress.py attacks them: each function is the whole work of a process of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

GRID = {
    "name": "victim",
    "base": {"V": 20, "L": 3, "n_test": 200},
    "seeds": 24,
    "blocks": [{"axes": {"d": [8, 12], "N": [100, 600, 2000]}}],
    "run": {"part_seconds": 0},
}
INTERRUPTED, SIGNALLED = 7, 8
"""Exit codes for jaxrecall.Interrupted, and for the KeyboardInterrupt that Python raises outside of `run`."""


def rows(_: object = None) -> pd.DataFrame:
    import jaxrecall

    return jaxrecall.run(GRID, progress=False)


def threads(out: Path) -> list[pd.DataFrame]:
    with ThreadPoolExecutor(3) as pool:
        return [*pool.map(rows, range(3))]


def loop(out: Path) -> list[pd.DataFrame]:
    async def both() -> list[pd.DataFrame]:
        return [rows(), *await asyncio.gather(asyncio.to_thread(rows), asyncio.to_thread(rows))]

    return asyncio.run(both())


def processes(method: str) -> list[pd.DataFrame]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(rows, range(2))


def spawn(out: Path) -> list[pd.DataFrame]:
    return [rows(), *processes("spawn")]


def fork(out: Path) -> list[pd.DataFrame]:
    """JAX starts in the children alone: it has threads, which a fork would lose."""
    import jaxrecall  # noqa: F401

    return processes("fork")


def folders(out: Path) -> list[pd.DataFrame]:
    """Two threads that fill one results folder."""
    import jaxrecall

    with ThreadPoolExecutor(2) as pool:
        return [*pool.map(lambda _: jaxrecall.run(GRID, out=out / "results", progress=False), range(2))]


def closed(out: Path) -> list[pd.DataFrame]:
    """JAX is started before: it cannot be imported with a closed standard output."""
    import jaxrecall

    first = rows()
    sys.stdout.close()
    sys.stderr.close()
    return [first, jaxrecall.run(GRID), jaxrecall.run(GRID, out=out / "results", workers=2)]


def no_files(out: Path) -> list[pd.DataFrame]:
    import jaxrecall

    sys.stdout = sys.stderr = None
    os.close(1)
    os.close(2)
    return [jaxrecall.run(GRID, out=out / "results"), jaxrecall.run(GRID, workers=2)]


def interrupted(out: Path) -> None:
    """Says when it starts, and ends with an exit code for what the signal became."""
    import jaxrecall

    try:
        (out / "ready").touch()
        jaxrecall.run(GRID, out=out / "results", progress=False)
        code = 0
    except jaxrecall.Interrupted as error:
        error.rows.to_parquet(out / "interrupted.parquet")
        code = INTERRUPTED
    except KeyboardInterrupt:
        code = SIGNALLED
    os._exit(code)


ALL = {f.__name__: f for f in (threads, loop, spawn, fork, folders, closed, no_files)}


def main(name: str, out: str) -> None:
    """Carries one of them out, and leaves its tables in the folder `out`."""
    for i, frame in enumerate(ALL[name](Path(out))):
        frame.to_parquet(Path(out) / f"{i}.parquet")
