"""Measures jaxrecall on the accelerator of this machine within some minutes.

    python -m benchmarks.on_device --out DIR [--minutes 8]

The machine needs JAX with its accelerator and the dependencies of jaxrecall. It needs
no network and no installation: the command is called in a clone. The most important
steps come first. Each measurement is a line of DIR/on-device.jsonl, written as soon as
it is known, so a lease that ends early loses nothing. The command ends with the page
DIR/on-device.md, which is also written from the lines by

    python -m benchmarks.on_device --table DIR/on-device.jsonl

The rows are compared with rows from a CPU, which are part of the repository:

    JAX_PLATFORMS=cpu python -m benchmarks.on_device --reference

`--tiny` measures small points, to try the command on a CPU.
"""

# only a machine with torch measures the peer
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import platform
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("JAXRECALL_CACHE", tempfile.mkdtemp())

import jax
import jax.numpy as jnp
import numpy as np

import jaxrecall
from jaxrecall import Point
from jaxrecall.model.point import Run
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

from . import on_device_table
from .work import FORMS, Work, points, runs

REFERENCE = Path(__file__).with_suffix(".json")

SEEDS = range(4)

EXACT = ("n_correct", "n_tied", "draw_check", "form", "status", "recalled")
"""Columns that should equal those of a CPU."""

ROUNDED = (
    "snr",
    "attention_mass",
    "trigger_score",
    "score_std",
    "memory_accuracy",
    "step1_memory_accuracy",
    "test_margin",
    "loss",
)
"""Columns that differ from those of a CPU by rounding."""

WIDTHS = {
    "large_run": (
        ("R1", "guarded", 1),
        ("R1", "guarded", 16),
        ("R1", "guarded", 64),
        ("R1", "full", 1),
        ("R1", "full", 4),
    ),
    "mlp": (("R2", "guarded", 1), ("R2", "guarded", 16)),
    "further_steps": (("later", "guarded", 1), ("later", "guarded", 64)),
}
"""Step -> the name of a grid whose first point is run, `exact`, and how many runs are
vmapped.
"""

PRECISIONS = (
    "highest",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X3",
    "TF32_TF32_F32",
    "default",
)

Rows = list[dict[str, Any]]


class Session:
    """Measures step after step, and writes what it finds at once."""

    def __init__(self, out: Path, minutes: float, tiny: bool) -> None:
        self.begun, self.minutes = time.perf_counter(), minutes
        self.work, self.tiny = Work(tiny), tiny
        self.grid = self.work.grid("S1")
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "on-device.jsonl"
        self.file = self.path.open("a")

    def say(self, step: str, **facts: Any) -> None:
        flags = os.environ.get("XLA_FLAGS")
        if flags:
            facts["flags"] = flags
        at = round(time.perf_counter() - self.begun, 1)
        line = json.dumps({"step": step, **facts, "at": at}, default=str)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()

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
            python=platform.python_version(),
            jax=jax.__version__,
            torch=_version("torch"),
            jaxrecall=jaxrecall.__version__,
            bytes=program.memory_of_device(),
        )

    def compilation(self) -> None:
        """Compiles the programs of the next step side by side."""

        def compiled(name: str) -> None:
            start = time.perf_counter()
            shape = Shape.rounded(Point(**FORMS[name]))
            executable = program.compiled(shape, program.width_for(len(SEEDS)))
            seconds = round(time.perf_counter() - start, 1)
            reserved = program.reserved_bytes(executable.run)
            self.say("compilation", point=name, seconds=seconds, reserved=reserved)

        program.start()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compiled, FORMS))

    def rows(self) -> None:
        reference = json.loads(REFERENCE.read_text())
        for name in FORMS:
            self.attempt("rows", lambda name=name: self._compared(name, reference))

    def _compared(self, name: str, reference: dict[str, Rows]) -> None:
        start = time.perf_counter()
        found = rows(name)
        seconds = round(time.perf_counter() - start, 2)
        self.say(
            "rows", point=name, seconds=seconds, **compared(found, reference[name])
        )

    def small_sweep(self) -> None:
        """Measures the sweep S1."""
        start = time.perf_counter()
        table = _run(self.grid)
        cold = time.perf_counter() - start
        found = _records(table)
        reference = json.loads(REFERENCE.read_text())["S1"]
        agreement = {} if self.tiny else compared(found, reference)
        took = timed(lambda i: _run(self.grid))
        compiled = round(cold - took["median"], 1)
        self.say("S1", compiled=compiled, **took, **agreement)

    def widths(self) -> None:
        """Measures the runs of S1 by the number of vmapped runs in a batch, in one
        thread and without a folder of results.
        """
        in_order = sorted(runs(self.grid), key=lambda run: (run[0].N, run[0].L))
        some = [Run(point, seed) for point, seed in in_order]
        largest = max(points(self.grid), key=lambda point: (point.V, point.d))
        shape = Shape.tight(largest)
        for width in (16, 48, 144):
            executable, compiled = _compiled(shape, width)
            n = executable.batch

            def execute(i: int, executable: Any = executable, n: int = n) -> None:
                for first in range(0, len(some), n):
                    program.execute(executable, some[first : first + n])

            self.say("S1 by width", width=n, compiled=compiled, **timed(execute))

    def profile(self) -> None:
        """Lists the longest operations of S1, those of the device alone if the trace
        tells them apart.
        """
        folder = tempfile.mkdtemp()
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            jaxrecall.run(self.grid, progress=False)
        events: list[dict[str, Any]] = []
        for path in glob.glob(folder + "/**/*trace.json.gz", recursive=True):
            trace = json.loads(gzip.decompress(Path(path).read_bytes()))
            events += trace.get("traceEvents", [])
        self.say("profile", longest=longest(events))

    def products(self) -> None:
        """Measures the device's own rate of matrix products."""
        for size in (256,) if self.tiny else (4096, 8192):
            for name in PRECISIONS:
                self.attempt("products", lambda s=size, p=name: self._product(s, p))

    def _product(self, size: int, precision: str) -> None:
        a = jax.random.normal(jax.random.key(0), (size, size))
        multiply = jax.jit(lambda a: jnp.matmul(a, a, precision=precision) / size)
        multiply(a).block_until_ready()
        start = time.perf_counter()
        for _ in range(10):
            a = multiply(a)
        a.block_until_ready()
        rate = 20 * size**3 / (time.perf_counter() - start)
        self.say(
            "products", size=size, precision=precision, tflops=round(rate / 1e12, 2)
        )

    def width(self, work: str, exact: str, width: int) -> None:
        """Measures a run by the number of vmapped runs."""
        point = points(self.work.grid(work, exact=exact))[0]
        executable, compiled = _compiled(Shape.rounded(point), width)
        n = min(width, executable.batch)

        def execute(i: int) -> None:
            seeds = range(n * i, n * (i + 1))
            program.execute(executable, [Run(point, seed) for seed in seeds])

        self.say(
            work,
            exact=exact,
            width=width,
            tile=executable.shape.vmapped(width).tile,
            compiled=compiled,
            reserved=program.reserved_bytes(executable.run),
            **timed(execute),
        )

    def large_run(self) -> None:
        self._by_width("large_run")

    def mlp(self) -> None:
        self._by_width("mlp")

    def further_steps(self) -> None:
        self._by_width("further_steps")

    def _by_width(self, step: str) -> None:
        for case in WIDTHS[step]:
            self.attempt(step, lambda case=case: self.width(*case))

    def pool(self) -> None:
        n = 16 if self.tiny else 1024
        grid = self.work.grid("pool-seeds")

        def sweep(i: int) -> None:
            seeds = list(range(n * i, n * (i + 1)))
            jaxrecall.run(grid, seeds=seeds, progress=False)

        took = timed(sweep, 2)
        compiled = round(took["first"] - took["median"], 1)
        self.say("pool", runs=n, compiled=compiled, **took)

    def user_simulator(self) -> None:
        """Measures a user's simulator: one run at each of four static sizes, many seeds
        of one size, and the same seeds in plain JAX.
        """
        d, n = (8, 8) if self.tiny else (256, 256)
        fields = {"d": (int, None, 1, 4096, "static")}
        simulator = jaxrecall.Simulator(iterated, fields, {"size": (float, "")}, "size")
        options: dict[str, Any] = {"simulator": simulator, "progress": False}

        def sweep(sizes: list[int], seeds: int) -> dict[str, Any]:
            """Measures a sweep with other seeds in each call."""
            grid = {"blocks": [{"axes": {"d": sizes}}]}

            def call(i: int) -> None:
                chosen = list(range(seeds * i, seeds * (i + 1)))
                jaxrecall.run(grid, seeds=chosen, **options)

            took = timed(call)
            return took | {"compiled": round(took["first"] - took["median"], 1)}

        self.say("own, sizes", runs=4, **sweep([d, d + 1, d + 2, d + 3], 1))
        self.say("own, seeds", runs=n, **sweep([d], n))
        every = jax.jit(jax.vmap(lambda key: iterated(SimpleNamespace(d=d), key)))
        with jax.default_matmul_precision("highest"):
            took = timed(
                lambda i: jax.block_until_ready(
                    every(jax.random.split(jax.random.key(i), n))
                )
            )
        self.say("own, plain JAX", runs=n, width=n, **took)

    def primitives(self) -> None:
        n = 2**16 if self.tiny else 2**26

        def rate(call: Callable[[], jax.Array]) -> str:
            seconds = timed(lambda i: call().block_until_ready())["least"]
            return f"{n / seconds:.2e}"

        words = jax.jit(lambda k: jax.random.bits(k, (n,), "uint32").sum())
        self.say("random words", a_second=rate(lambda: words(jax.random.key(1))))
        for size in (2**12, 2**16, 2**20):
            where = jax.random.randint(jax.random.key(1), (n,), 0, size)
            table = jnp.ones(size)
            gather = jax.jit(lambda w, table: table[w].sum())
            per_second = rate(lambda w=where, t=table, g=gather: g(w, t))
            self.say("gather", size=size, a_second=per_second)
            for dtype in (jnp.int32, jnp.float32):
                zeros, one = jnp.zeros(size, dtype), jnp.ones((), dtype)
                add = jax.jit(lambda w, zeros=zeros, one=one: zeros.at[w].add(one))
                self.say(
                    "scatter",
                    size=size,
                    dtype=np.dtype(dtype).name,
                    a_second=rate(lambda w=where, add=add: add(w)),
                )
        loop = jax.jit(
            lambda m, x: jax.lax.fori_loop(0, m, lambda i, x: x * 1.000001, x)
        )
        ones = jnp.ones(1024)
        took = timed(lambda i: loop(1000, ones).block_until_ready())
        self.say("loop of 1000 iterations, traced bound", **took)

    def peer(self) -> None:
        """Measures the torch loop on the same card. The draws are not timed."""
        import torch

        from . import torch_loop

        if not torch.cuda.is_available() and not self.tiny:
            self.say("torch", skipped="torch sees no GPU")
            return
        device = "cpu" if self.tiny else "cuda"
        every = points(self.grid)
        d, L = max(point.d for point in every), max(point.L for point in every)
        works = {
            "R1": points(self.work.grid("R1")),
            "S1": [point for point in every if (point.d, point.L) == (d, L)],
        }
        for form in torch_loop.FORMS:
            for name, some in works.items():
                torch.set_default_device("cpu")
                drawn = [
                    torch_loop.Draws(*(t if t is None else t.to(device) for t in r))
                    for r in (torch_loop.draw(point, 0) for point in some)
                ]
                torch.set_default_device(device)

                def train(
                    i: int, some: Any = some, drawn: Any = drawn, form: str = form
                ) -> None:
                    for point, r in zip(some, drawn, strict=True):
                        learned = torch_loop.learn(r, point, form)
                        torch_loop.accuracy(r, learned, form)

                self.say("torch", form=form, of=name, runs=len(some), **timed(train))
        torch.set_default_device("cpu")


def _compiled(shape: Shape, width: int) -> tuple[Any, float]:
    """Returns a program and the seconds that its compilation took."""
    start = time.perf_counter()
    executable = program.compiled(shape, width)
    return executable, round(time.perf_counter() - start, 1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def iterated(point: Any, key: jax.Array) -> dict[str, jax.Array]:
    """A user's simulator: a random matrix applied again and again."""
    a = jax.random.normal(key, (point.d, point.d)) / jnp.sqrt(point.d)
    x = jax.lax.fori_loop(0, 150, lambda i, x: jnp.tanh(a @ x), jnp.eye(point.d))
    return {"size": jnp.abs(x).mean()}


def longest(events: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    """The name, calls and milliseconds of the 40 longest operations of a trace."""
    processes = {}
    for event in events:
        if event.get("name") == "process_name":
            processes[event["pid"]] = event["args"]["name"]
    on_device = {pid for pid, name in processes.items() if "/device:" in name}
    total: Counter[str] = Counter()
    n: Counter[str] = Counter()
    for event in events:
        name = event.get("name", "$")[:80]
        of_python = name.startswith("$")
        elsewhere = on_device and event.get("pid") not in on_device
        if event.get("ph") != "X" or of_python or elsewhere:
            continue
        total[name] += event.get("dur", 0)
        n[name] += 1
    return [(name, n[name], round(us / 1e3, 1)) for name, us in total.most_common(40)]


def _run(grid: dict[str, Any]) -> Any:
    return jaxrecall.run(grid, progress=False)


def _records(table: Any) -> Rows:
    return json.loads(table.to_json(orient="records"))


def rows(name: str) -> Rows:
    """The compared columns of the rows of a point."""
    wanted = EXACT + ROUNDED
    found = jaxrecall.simulate(Point(**FORMS[name]), SEEDS)
    return [{k: v for k, v in row.items() if k in wanted} for row in found]


def compared(found: Rows, reference: Rows) -> dict[str, Any]:
    """How rows differ from those of a CPU: counts of unequal values of the columns
    EXACT, and the largest relative difference of the columns ROUNDED.
    """
    unequal: Counter[str] = Counter()
    worst, of = 0.0, ""
    for mine, theirs in zip(found, reference, strict=True):
        for column, want in theirs.items():
            got = mine.get(column)
            if column in EXACT:
                unequal[column] += got != want
            elif column in ROUNDED and want is not None and got is not None:
                difference = abs(got - want) / (abs(want) + 1e-3)
                if difference > worst:
                    worst, of = difference, column
    return {
        "rows": len(found),
        "unequal": {column: n for column, n in unequal.items() if n},
        "largest": f"{worst:.1e} ({of})",
    }


def timed(call: Callable[[int], Any], times: int = 3) -> dict[str, float]:
    """Seconds of the first call, and median and least seconds of `times` more."""
    took = []
    for i in range(times + 1):
        start = time.perf_counter()
        call(i)
        took.append(time.perf_counter() - start)
    later = took[1:]
    return {
        "first": round(took[0], 3),
        "median": round(float(np.median(later)), 5),
        "least": round(min(later), 5),
    }


def write_reference() -> None:
    """Writes the rows of this machine's CPU."""
    wanted = EXACT + ROUNDED
    known = {name: rows(name) for name in FORMS}
    table = _run(Work(tiny=False).grid("S1"))
    known["S1"] = _records(table[[c for c in wanted if c in table]])
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
        return
    if args.reference:
        write_reference()
        return
    session = Session(args.out, args.minutes, args.tiny)
    steps = (
        session.device,
        session.compilation,
        session.rows,
        session.small_sweep,
        session.widths,
        session.large_run,
        session.profile,
        session.products,
        session.mlp,
        session.pool,
        session.further_steps,
        session.user_simulator,
        session.primitives,
        session.peer,
    )
    for measure in steps:
        if not args.only or measure.__name__ in args.only:
            session.attempt(measure.__name__, measure)
    session.say("end")
    print(on_device_table.write(session.path))


if __name__ == "__main__":
    main()
