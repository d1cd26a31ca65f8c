"""Measures jaxrecall on the accelerator of this machine within some minutes.

    python -m benchmarks.on_device --out DIR [--minutes 8]

The machine needs JAX with its accelerator and the dependencies of jaxrecall. It needs
no network and no installation: the command is called in a clone. The most important
steps come first. Each measurement is a line of DIR/on-device.jsonl, written as soon as
it is known, so a lease that ends early loses nothing. Another call with --only and the
names of steps adds what is left. The command ends with the page DIR/on-device.md, which
is also written from the lines by

    python -m benchmarks.on_device --table DIR/on-device.jsonl

The rows are compared with rows from a CPU, which are part of the repository:

    JAX_PLATFORMS=cpu python -m benchmarks.on_device --reference

`--tiny` measures small points, to try the command on a CPU.
"""

# only a machine with torch measures the peer
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("JAXRECALL_CACHE", tempfile.mkdtemp())

import jax
import jax.numpy as jnp

import jaxrecall
from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

from . import clock, floor, on_device_table
from .on_device_table import DESCRIBED
from .work import FORMS, Work, points, runs

REFERENCE = Path(__file__).with_suffix(".json")

SEEDS = range(4)

Rows = list[dict[str, Any]]


class Session:
    """Measures step after step, and writes what it finds at once."""

    def __init__(self, out: Path, minutes: float, tiny: bool) -> None:
        self.begun, self.minutes = time.perf_counter(), minutes
        self.work, self.tiny = Work(tiny), tiny
        self.grid = self.work.grid("S1")
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "on-device.jsonl"

    def say(self, step: str, **facts: Any) -> None:
        if flags := os.environ.get("XLA_FLAGS"):
            facts["flags"] = flags
        at = round(time.perf_counter() - self.begun, 1)
        line = json.dumps({"step": step, **facts, "at": at}, default=str)
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")

    def attempt(self, step: str, measure: Callable[[], None]) -> None:
        """Performs a step unless the time is over. A failure is a line too."""
        if time.perf_counter() - self.begun > 60 * self.minutes:
            self.say(step, skipped="no time left")
            return
        try:
            measure()
        except Exception as error:
            where = traceback.format_exc()[-800:]
            self.say(step, failed=f"{type(error).__name__}: {error}"[:500], where=where)

    def device(self) -> None:
        device = jax.devices()[0]
        self.say(
            "device",
            kind=device.device_kind,
            platform=device.platform,
            platform_version=" ".join(device.client.platform_version.split()),
            n=jax.device_count(),
            cores=os.cpu_count(),
            **{"torch": None, **clock.versions()},
            bytes=program.memory_of_device(),
        )

    def compilation(self) -> None:
        """Compiles the programs of the next step side by side."""

        def compiled(name: str) -> None:
            start = time.perf_counter()
            shape = Shape.rounded(Point(**FORMS[name]))
            program.compiled(shape, program.width_for(len(SEEDS)))
            seconds = round(time.perf_counter() - start, 1)
            self.say("compilation", point=name, seconds=seconds)

        program.start()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compiled, FORMS))

    def rows(self) -> None:
        reference = json.loads(REFERENCE.read_text())

        def measure(name: str) -> None:
            start = time.perf_counter()
            found = rows(name)
            seconds = round(time.perf_counter() - start, 2)
            agreement = compared(found, reference[name])
            self.say("rows", point=name, seconds=seconds, **agreement)

        for name in FORMS:
            self.attempt("rows", partial(measure, name))

    def small_sweep(self) -> None:
        """Measures the sweep S1."""
        tables: list[Any] = []

        def sweep(call: int) -> None:
            tables.append(jaxrecall.run(self.grid, progress=False))

        took, agreement = timed(sweep), {}
        if not self.tiny:
            reference = json.loads(REFERENCE.read_text())["S1"]
            agreement = compared(records(tables[0]), reference)
        self.say("S1", **took, **agreement)

    def width(
        self, step: str, work: str, width: int, whole: bool = False, **exact: str
    ) -> None:
        grid = self.work.grid(work, **exact)
        some = points(grid)
        largest = max(some, key=lambda point: (point.V, point.d))
        start = time.perf_counter()
        executable = program.compiled(Shape.tight(largest), width)
        compiled = round(time.perf_counter() - start, 1)
        n = min(width, executable.batch)
        in_order = sorted(runs(grid), key=lambda run: (run[0].N, run[0].L))

        def execute(call: int) -> None:
            seeds = range(n * call, n * call + n)
            todo = in_order if whole else [(some[0], seed) for seed in seeds]
            for first in range(0, len(todo), n):
                batch = [Run(*run) for run in todo[first : first + n]]
                program.execute(executable, batch)

        tile = executable.shape.vmapped(width).tile
        reserved = program.reserved_bytes(executable.run)
        facts = {"width": width, "tile": tile, "reserved": reserved, **timed(execute)}
        self.say(step, **exact, **facts | {"compiled": compiled})

    def pool(self) -> None:
        n = 16 if self.tiny else 1024
        grid = self.work.grid("pool-seeds")

        def sweep(call: int) -> None:
            seeds = list(range(n * call, n * call + n))
            jaxrecall.run(grid, seeds=seeds, progress=False)

        self.say("pool", runs=n, **timed(sweep))

    def primitives(self) -> None:
        """Measures the device's own rates, and the time of an iteration."""
        (point,) = points(self.work.grid("R1"))
        for name, rate in floor.rates(point, self.tiny, floor.UNITS).items():
            self.say("rate", of=floor.UNITS[name], a_second=f"{rate.one_call:.2e}")
        grow = partial(jax.lax.fori_loop, body_fun=lambda i, x: x * 1.000001)
        loop = jax.jit(lambda n, x: grow(0, n, init_val=x))
        took = timed(lambda call: loop(1000, jnp.ones(1024)).block_until_ready())
        self.say("loop of 1000 iterations, traced bound", **took)

    def peer(self) -> None:
        """Measures the torch loop on the same card. The draws are not timed."""
        import torch

        from . import torch_loop

        if not torch.cuda.is_available() and not self.tiny:
            self.say("torch", skipped="torch sees no GPU")
            return
        device = "cpu" if self.tiny else "cuda"
        (point,) = points(self.work.grid("R1"))
        drawn = torch_loop.Draws(
            *(a if a is None else a.to(device) for a in torch_loop.draw(point, 0))
        )

        def train(form: str, call: int) -> None:
            learned = torch_loop.learn(drawn, point, form)
            torch_loop.accuracy(drawn, learned, form)

        with torch.device(device):
            for form in torch_loop.FORMS:
                self.say(
                    "torch", form=form, of="R1", runs=1, **timed(partial(train, form))
                )


def records(table: Any) -> Rows:
    return json.loads(table.to_json(orient="records"))


def rows(name: str) -> Rows:
    """The rows of a point."""
    return jaxrecall.simulate(Point(**FORMS[name]), SEEDS)


def compared(found: Rows, reference: Rows) -> dict[str, Any]:
    """How rows differ from those of a CPU: counts of unequal values of the exact
    columns, and the largest relative difference of the rounded ones.
    """
    unequal: Counter[str] = Counter()
    worst, of = 0.0, ""
    for mine, theirs in zip(found, reference, strict=True):
        for column, want in theirs.items():
            got = mine.get(column)
            if column in DESCRIBED["exact"]:
                unequal[column] += got != want
            elif want is not None and got is not None:
                difference = abs(got - want) / (abs(want) + 1e-3)
                worst, of = max((worst, of), (difference, column))
    return {
        "rows": len(found),
        "unequal": {column: n for column, n in unequal.items() if n},
        "largest": f"{worst:.1e} ({of})",
    }


def timed(call: Callable[[int], Any]) -> dict[str, float]:
    """Seconds of the first call, and median and least seconds of three more. The first
    call may compile, which takes the difference.
    """
    first, *later = map(clock.timed(call), range(4))
    usual = median(later)
    return {
        "first": round(first, 3),
        "median": round(usual, 5),
        "least": round(min(later), 5),
        "compiled": round(first - usual, 1),
    }


def write_reference() -> None:
    """Writes the rows of this machine's CPU."""
    table = jaxrecall.run(Work(tiny=False).grid("S1"), progress=False)
    every = {name: rows(name) for name in FORMS} | {"S1": records(table)}
    wanted = DESCRIBED["exact"] + DESCRIBED["rounded"]
    known = {
        name: [{k: v for k, v in row.items() if k in wanted} for row in some]
        for name, some in every.items()
    }
    REFERENCE.write_text(json.dumps(known) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", nargs="*", help="names of steps")
    parser.add_argument("--table", type=Path, metavar="FILE", help="writes its page")
    args = parser.parse_args()
    if args.table:
        print(on_device_table.write(args.table))
    elif args.reference:
        write_reference()
    else:
        session = Session(args.out, args.minutes, args.tiny)
        for step in args.only or DESCRIBED["steps"]:
            for case in DESCRIBED["steps"][step] or [{}]:
                method = getattr(session, step, session.width)
                session.attempt(step, partial(method, **case))
        session.say("end")
        print(on_device_table.write(session.path))


if __name__ == "__main__":
    main()
