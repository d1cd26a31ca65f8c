"""Compiled programs: the only place with vmap over runs, and devices. One program serves every point that fits its shape."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..cli import cache_folder
from ..model import embeddings
from ..model.columns import CODE_VERSION, DTYPE, in_order
from ..model.laws import TOGETHER, Law, find_law
from ..model.laws.tokens import alias_table, rare_and_frequent, shares
from ..model.point import FIELDS, Point, Run, law_parameters, of_kind
from ..model.reference.realization import run_keys
from .compiler import ExecutionError, OutOfMemory, cache_hits, compile, memory_errors, without_garbage_collection
from .loops import RUNS
from .rows import Metrics, finish
from .shape import Shape
from .training import run as train_and_measure
from .world import Arguments, TokenLaws, draw

__all__ = ["ExecutionError", "OutOfMemory", "Program", "arguments", "compiled", "execute", "memory_of_device", "on_cpu", "rows", "start"]

LOOPED = 16
"""Runs a call on a CPU. They are looped over, as many as there are, so that one program serves every batch."""

MAX_GIVEN = 2**15
"""Numbers of a table, at most, of which a batch on a CPU takes one for each run: 128 KiB."""


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs (leading axis `batch`), of which some are active, to their raw metrics."""

    shape: Shape
    run: Any
    batch: int
    compile_seconds: float
    """Of wall or CPU time, whichever is less: on a busy machine wall time tells little."""

    was_kept: bool  # compiled by an earlier process
    sharding: NamedSharding

    @property
    def reserved_bytes(self) -> int:
        """Memory on each device that the compiler reserves for a batch."""
        memory = self.run.memory_analysis()
        return memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes


def on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def memory_of_device() -> int | None:
    """The bytes of memory that JAX has on a local device; None where it does not say."""
    return (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")


def start() -> None:
    """Starts JAX on the local devices; compiled programs are kept in `cache_folder()`, so that a second process compiles nothing.

    A folder that JAX already has (JAX_COMPILATION_CACHE_DIR) stays.
    """
    if (folder := cache_folder()) and not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.local_devices()  # a device that does not start is found out before there is anything to lose


def compiled(shape: Shape, per_device: int = LOOPED, precision: str = "highest") -> Program:
    """The program of a shape for batches of up to `per_device` runs on each local device; compiled once a process.

    On a CPU a program with decoders, or with large tables for arguments, takes one run a call: batches would add the tables up. On an
    accelerator it takes fewer runs where the compiler reserves more than half of the memory, of which the batch that waits takes as much.
    """
    if on_cpu():
        large = shape.given_tables and shape.V * shape.d > MAX_GIVEN
        per_device = 1 if shape.decoders or large else LOOPED
    with memory_errors():
        program = _compiled(shape, per_device, precision, tuple(jax.local_devices()), _laws(shape))
    memory = None if on_cpu() else memory_of_device()
    if per_device > 1 and memory and 2 * program.reserved_bytes > memory:
        return compiled(shape, per_device // 2, precision)
    return program


def _laws(shape: Shape) -> tuple[type[Law], ...]:
    """The classes of a program's laws: a notebook may define one again under its name."""
    embeddings = (type(find_law("embedding", text)) for text in shape.embedding_laws.values())
    return *embeddings, type(find_law("activation", shape.activation))


@functools.cache
def _compiled(shape: Shape, per_device: int, precision: str, devices: tuple[Any, ...], laws: tuple[type[Law], ...]) -> Program:
    batched, shapes = unlowered(shape, per_device, devices, vmapped=not on_cpu())
    start, start_cpu, hits = time.perf_counter(), time.process_time(), cache_hits.count
    with jax.default_matmul_precision(precision):
        with without_garbage_collection():
            lowered = batched.lower(*shapes)
        run = compile(lowered, light=shape.light and on_cpu())
    seconds = min(time.perf_counter() - start, time.process_time() - start_cpu)
    return Program(shape, run, per_device * len(devices), seconds, cache_hits.count > hits, shapes[1].sharding)


def unlowered(shape: Shape, per_device: int, devices: Sequence[Any], vmapped: bool) -> tuple[Any, tuple[Any, Any]]:
    """The jitted function of a program and the shapes of its arguments, for devices that need not be here.

    A CPU is fastest on one run at a time, each with its own number of tiles; an accelerator needs them vmapped.
    """
    if vmapped:
        one = functools.partial(simulate_run, shape=shape.vmapped(per_device), vmapped=True)
        many: Any = lambda runs, active: jax.vmap(one, axis_name=RUNS)(runs)  # noqa: E731
    else:
        one = jax.jit(functools.partial(simulate_run, shape=shape), inline=True)  # traced once, if used twice
        many = functools.partial(looped, one)
    mesh = Mesh(np.array(devices), ("run",))
    spread = jax.shard_map(many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False)
    batch, sharding = per_device * len(devices), NamedSharding(mesh, P("run"))
    idle = arguments([IDLE] * batch, shape), np.zeros(batch, bool)
    return jax.jit(spread), jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), idle)


def looped(one: Callable[[Arguments], Any], runs: Arguments, active: jax.Array) -> Any:
    """`one` for each of the runs, one after the other; the active ones come first, and zeros stand for the others."""

    def body(i: jax.Array, out: Any) -> Any:
        run = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), runs)
        return jax.tree.map(lambda all, this: lax.dynamic_update_index_in_dim(all, this, i, 0), out, one(run))

    first = jax.tree.map(lambda a: a[0], runs)
    out = jax.tree.map(lambda a: jnp.zeros((len(active), *a.shape), a.dtype), jax.eval_shape(one, first))
    return lax.fori_loop(0, jnp.sum(active.astype(jnp.int32), dtype=jnp.int32), body, out)


def simulate_run(run: Arguments, shape: Shape, vmapped: bool = False) -> dict[str, Any]:
    """The raw metrics of one run. Traced; `rows.finish` makes columns of them."""
    return train_and_measure(draw(run, shape, vmapped))[1]


def arguments(runs: Sequence[Run], shape: Shape) -> Arguments:
    """Runs as the arguments of the program of a shape, leading axis n."""
    streams, batches = run_keys(runs)
    points = [point for point, _ in runs]

    def of_each(value: Callable[[Point], Any], dtype: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.array([value(point) for point in points]).astype(dtype)

    numbers = {name: of_each(functools.partial(_number, name), DTYPES[str(FIELDS[name].type)]) for name in TRACED}
    numbers |= {name: of_each(rate, np.float32) for name, rate in RATES.items()}
    for name, default in traced_parameters(shape).items():
        numbers[name] = of_each(lambda p, name=name, default=default: law_parameters(p).get(name, default), np.float32)
    numbers |= {name: of_each(drawn, np.int32) for name, drawn in DRAWN.items()}
    return Arguments(streams, batches, numbers, token_laws(points, shape), given_tables(points, streams, shape))


def given_tables(points: Sequence[Point], streams: np.ndarray, shape: Shape) -> dict[str, np.ndarray]:
    """(n, V, d) float32 tables that the laws of each point make on the host, padded, by stream."""
    tables = {name: np.zeros((len(points), shape.V, shape.d), np.float32) for name in shape.given_tables}
    for i, point in enumerate(points) if tables else ():
        for name, rows in embeddings.on_host(point.embedding_laws, streams[i], point.V, point.d).items():
            tables[name][i, : point.V, : point.d] = rows
    return tables


def token_laws(points: Sequence[Point], shape: Shape) -> TokenLaws | None:
    """The laws of the tokens of each point, padded; None for a program of uniform tokens."""
    if shape.tokens == "uniform":
        return None
    n_laws, V = 2 if shape.noise_tokens else 1, shape.V

    def padded(of: Callable[[Point], Any], rows: tuple[int, ...], dtype: Any) -> np.ndarray:
        every = np.zeros((len(points), *rows, V), dtype)
        for one, point in zip(every, points, strict=True):
            one[..., : point.V] = of(point)
        return every

    return TokenLaws(
        padded(lambda p: [alias_table(law, p.V) for law in p.token_laws[:n_laws]], (n_laws, 2), np.uint32),
        padded(lambda p: [shares(law, p.V) for law in p.token_laws[:n_laws]], (n_laws,), np.float32),
        padded(lambda p: rare_and_frequent(p.token_laws[0], p.V), (2,), np.int32),
    )


TRACED = of_kind("size", "traced")

DTYPES = {"bool": bool, "int": np.int32, "int | None": np.int32, "float": np.float32, "float | None": np.float32, "str": np.int32}
"""Type of the argument that holds a traced field of each type; an embedding law is its place in TOGETHER."""

RATES: dict[str, Callable[[Point], float]] = {
    "eta": lambda p: p.eta,
    "gamma_eta": lambda p: min(p.gamma * p.eta, 3e38),
    "mix1": lambda p: p.eta / max(p.eta, p.gamma2),
    "mix2": lambda p: p.gamma2 / max(p.eta, p.gamma2),
    "samples": lambda p: p.N,
    "scale": lambda p: min(max(p.eta, p.gamma2), 3e38),
    "lr": lambda p: min(p.lr or 0.0, 3e38),
    "lr_attention": lambda p: min(p.lr_attention or 0.0, 3e38),
}
"""Products and ratios of the rates, formed in float64 and held to the range of float32; and N, which may exceed int32."""

DRAWN: dict[str, Callable[[Point], int]] = {
    "drawn_samples": lambda p: -1 if "samples" in p.in_the_limit else min(p.N, MAX_INT),
    "drawn_noise": lambda p: -1 if "noise" in p.in_the_limit else p.L - 1,
    "drawn_test": lambda p: -1 if "test" in p.in_the_limit else p.L - 1,
}
"""What is drawn one by one of a point with a pool, -1 where counts are Gaussian."""

MAX_INT = 2**31 - 1


def _number(name: str, point: Point) -> float:
    if name == "embedding":
        return TOGETHER.index(point.embedding_law) if point.embedding_law in TOGETHER else 0
    value = getattr(point, name) or 0
    return min(value, MAX_INT) if isinstance(value, int) else value


def traced_parameters(shape: Shape) -> dict[str, float]:
    """The float parameters of the laws of a program by dotted name, with their defaults."""
    laws = [(name, find_law("embedding", text)) for name, text in shape.embedding_laws.items()]
    laws.append(("activation", find_law("activation", shape.activation)))
    return {name: value for field, law in laws for name, value in law.traced(field).items()}


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run of next to nothing, which fills a batch up."""


def execute(program: Program, runs: Sequence[Run]) -> tuple[list[list[Metrics] | None], float]:
    """Metric columns of the rows of at most `program.batch` runs, in their order, and the seconds it took.

    None stands for a run that the error bound of the form rejects: it is for `shape.fallback`. Raises OutOfMemory.
    """
    start = time.perf_counter()
    n_devices = program.sharding.num_devices
    share, per_device = -(-len(runs) // n_devices), program.batch // n_devices
    slots = [i // share * per_device + i % share for i in range(len(runs))]
    batch: list[Run] = [IDLE] * program.batch
    active = np.zeros(program.batch, bool)
    for slot, run in zip(slots, runs, strict=True):
        batch[slot], active[slot] = run, True
    with memory_errors():
        raw = jax.device_get(program.run(*jax.device_put((arguments(batch, program.shape), active), program.sharding)))
    form = program.shape.trained_by
    found = [finish(jax.tree.map(lambda a, slot=slot: a[slot], raw), point, form) for slot, (point, _) in zip(slots, runs, strict=True)]
    return found, time.perf_counter() - start


def rows(run: Run, metrics: Sequence[Metrics], shape: Shape, precision: str, seconds: float | None) -> list[dict[str, Any]]:
    """The whole rows of a run, columns in table order; each has the seconds of the run."""
    fields = {name: getattr(run.point, name) for name in FIELDS} | law_parameters(run.point)
    provenance = {
        "seconds": seconds,
        "code_version": CODE_VERSION,
        "jax_version": jax.__version__,
        "device_kind": jax.local_devices()[0].device_kind,
        "dtype": DTYPE,
        "precision": precision,
        "bucket": str(shape),
    }
    return [in_order({**run.id._asdict(), **fields, **of_row, **provenance}) for of_row in metrics]
