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

import jaxrecall
from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import device, program
from jaxrecall.simulator.program_shape import Shape

from . import clock, on_device_table
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
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "on-device.jsonl"

    def step(self, name: str) -> None:
        """Measures each case of a step."""
        for case in DESCRIBED["steps"][name] or [{}]:
            by_width = self.width if "width" in case else self.sweep
            self.attempt(name, partial(getattr(self, name, by_width), **case))

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
        device.start()
        shapes = [Shape.rounded(Point(**fields)) for fields in FORMS.values()]
        width = device.width_for(len(SEEDS))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(partial(program.compiled, per_device=width), shapes))
        self.say("compilation", programs=len(shapes))

    def rows(self, of: str) -> None:
        reference = json.loads(REFERENCE.read_text())[of]
        self.say("rows", point=of, **compared(rows(of), reference))

    def sweep(self, step: str, work: str) -> None:
        """Measures `jaxrecall.run`, with other seeds in each call."""
        grid = self.work.grid(work)
        n = grid["seeds"]

        def call(i: int) -> None:
            seeds = list(range(n * i, n * i + n))
            jaxrecall.run(grid, seeds=seeds, progress=False)

        self.say(step, runs=len(runs(grid)), **timed(call))

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

    def peer(self, form: str) -> None:
        """Measures the torch loop on the same card. The draws are not timed."""
        import torch

        from . import torch_loop

        device = "cpu" if self.tiny else "cuda"
        (point,) = points(self.work.grid("R1"))
        arrays = torch_loop.draw(point, 0)
        r = torch_loop.Draws(*(a if a is None else a.to(device) for a in arrays))

        def train(call: int) -> None:
            torch_loop.accuracy(r, torch_loop.learn(r, point, form), form)

        with torch.device(device):
            self.say("torch", form=form, of="R1", runs=1, **timed(train))


def rows(of: str) -> Rows:
    """The rows of a point, or those of the sweep S1."""
    if of in FORMS:
        return jaxrecall.simulate(Point(**FORMS[of]), SEEDS)
    table: Any = jaxrecall.run(Work(tiny=False).grid(of), progress=False)
    return json.loads(table.to_json(orient="records"))


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
    wanted = DESCRIBED["exact"] + DESCRIBED["rounded"]
    known = {
        of: [{name: row[name] for name in wanted if name in row} for row in rows(of)]
        for of in (*FORMS, "S1")
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
            session.step(step)
        session.say("end")
        print(on_device_table.write(session.path))


if __name__ == "__main__":
    main()
