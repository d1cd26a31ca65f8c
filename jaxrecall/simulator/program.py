"""Compiled programs: the only place with vmap over runs, and devices. One program serves every point that fits its shape."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..errors import PointError, Problem
from ..files import cache_folder
from ..model.columns import CODE_VERSION, DTYPE, in_order
from ..model.laws import TOGETHER, Law, find_law
from ..model.point import FIELDS, Point, Run, checked_seed, law_parameters, of_kind
from ..model.reference.realization import run_keys
from . import descent, metrics, noise, pool_draws
from .forms import FORMS
from .rows import Metrics, finish
from .shape import Shape
from .sizes import Sizes
from .work import memory_limit
from .world import Arguments, Trained, World, draw

LOOPED = 16
"""Runs a call on a CPU. They are looped over, as many as there are, so that one program serves every batch."""

SIDE_BY_SIDE = "beside"
"""Name of the mapped axis of the runs that an accelerator computes side by side."""


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs (leading axis `batch`), of which some are active, to their raw metrics."""

    shape: Shape
    run: Any
    batch: int
    compile_seconds: float
    """Of wall or CPU time, whichever is less: on a busy machine wall time tells little."""

    was_kept: bool  # compiled by an earlier process
    sharding: NamedSharding


ExecutionError = jax.errors.JaxRuntimeError


class OutOfMemory(RuntimeError):
    """A program, or its compilation, asked for more memory than there is."""


OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "YNNPACK operation failed")  # the second is how matrix products say it on a CPU


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Turns JAX's error into OutOfMemory where that is what it means."""
    try:
        yield
    except ExecutionError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise OutOfMemory(str(error)) from error
        raise


def on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def memory_of_device() -> tuple[str, int]:
    """The platform of a local device, and the bytes of memory that JAX has there."""
    device = jax.local_devices()[0]
    return device.platform, (device.memory_stats() or {}).get("bytes_limit", memory_limit())


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

    On a CPU a program with decoders takes one run a call: it returns whole tables, and batches would add them up.
    """
    if on_cpu():
        per_device = 1 if shape.decoders else LOOPED
    with _memory_errors():
        return _compiled(shape, per_device, precision, tuple(jax.local_devices()), _laws(shape))


def _laws(shape: Shape) -> tuple[type[Law], ...]:
    """The classes of a program's laws: a notebook may define one again under its name."""
    return *([type(find_law("embedding", shape.embedding))] if shape.embedding else []), type(find_law("activation", shape.activation))


@functools.cache
def _compiled(shape: Shape, per_device: int, precision: str, devices: tuple[Any, ...], laws: tuple[type[Law], ...]) -> Program:
    batched, shapes = unlowered(shape, per_device, devices, beside=not on_cpu())
    start, start_cpu, hits = time.perf_counter(), time.process_time(), _cache_hits.count
    with jax.default_matmul_precision(precision):
        with _no_garbage_collection():
            lowered = batched.lower(*shapes)
        run = _compile(lowered, QUICK if shape.quick and on_cpu() else {})
    seconds = min(time.perf_counter() - start, time.process_time() - start_cpu)
    return Program(shape, run, per_device * len(devices), seconds, _cache_hits.count > hits, shapes[1].sharding)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """For tracing, of which looking for cycles takes a fifth and finds none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def unlowered(shape: Shape, per_device: int, devices: Sequence[Any], beside: bool) -> tuple[Any, tuple[Any, Any]]:
    """The jitted function of a program and the shapes of its arguments, for devices that need not be here.

    A CPU is fastest on one run at a time, each with its own number of tiles; an accelerator needs them side by side (`beside`).
    """
    if beside:
        one = functools.partial(simulate_run, shape=shape.beside(per_device), axis=SIDE_BY_SIDE)
        many: Any = lambda runs, active: jax.vmap(one, axis_name=SIDE_BY_SIDE)(runs)  # noqa: E731
    else:
        one = jax.jit(functools.partial(simulate_run, shape=shape), inline=True)  # traced once, if used twice
        many = functools.partial(looped, one)
    mesh = Mesh(np.array(devices), ("run",))
    spread = jax.shard_map(many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False)
    batch, sharding = per_device * len(devices), NamedSharding(mesh, P("run"))
    idle = arguments([IDLE] * batch, shape), np.zeros(batch, bool)
    return jax.jit(spread), jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), idle)


QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_llvm_disable_expensive_passes": True,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}
"""Options of XLA for a CPU. Kernels come straight from HLO, not by way of MLIR, and are optimised less. A sum is one kernel
instead of a tree of two. The tree is more exact, which matters for sums of millions of terms alone."""


def _compile(lowered: Any, options: dict[str, Any]) -> Any:
    """With these options of XLA, or without them where a version of it lacks one."""
    try:
        return lowered.compile(compiler_options=options)
    except ExecutionError as error:
        if not options or "No such compile option" not in str(error):
            raise
        return lowered.compile()


class _CacheHits:
    """How many programs came from the folder of compiled ones."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_listener(self._hear)

    def _hear(self, event: str, **_: Any) -> None:
        self.count += event == "/jax/compilation_cache/cache_hits"


_cache_hits = _CacheHits()


def looped(one: Callable[[Arguments], Any], runs: Arguments, active: jax.Array) -> Any:
    """`one` for each of the runs, one after the other; the active ones come first, and zeros stand for the others."""

    def body(i: jax.Array, out: Any) -> Any:
        run = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), runs)
        return jax.tree.map(lambda all, this: lax.dynamic_update_index_in_dim(all, this, i, 0), out, one(run))

    first = jax.tree.map(lambda a: a[0], runs)
    out = jax.tree.map(lambda a: jnp.zeros((len(active), *a.shape), a.dtype), jax.eval_shape(one, first))
    return lax.fori_loop(0, jnp.sum(active.astype(jnp.int32), dtype=jnp.int32), body, out)


def simulate_run(run: Arguments, shape: Shape, axis: str | None = None) -> dict[str, Any]:
    """The raw metrics of one run. Traced; `rows.finish` makes columns of them. `axis` is that of the runs side by side."""
    return science(draw(run, shape, axis))[1]


def science(world: World) -> tuple[Trained, dict[str, Any]]:
    """The trained model and its raw metrics, and what the shape adds to them."""
    shape = world.shape
    if shape.pool:
        world = pool_draws.with_pools(world)
    trained = descent.zero(world) if shape.start == "zero" else FORMS[shape.form].train(world)
    if shape.optimizer:
        return trained, {"trace": descent.trace(world, trained), "errors": trained.errors, "locked": trained.locked}
    raw: dict[str, Any] = metrics.measure(world, trained)
    errors = trained.errors
    if shape.diagnose:
        mean_w, error = noise.over_redraws(world) if shape.m else (trained.w, jnp.float32(0))
        raw["noise"] = noise.covariances(world, trained.w, mean_w)
        errors = errors and (jnp.maximum(errors[0], error), errors[1])
    if shape.decoders:
        raw["decoders"] = {"perm": world.perm, "G1": trained.V1, "Z_in": world.e.Z_in, "Z_out": world.e.Z_out, "z_trig": world.e.z_trig}
    return trained, raw | {"errors": errors, "locked": trained.locked}


def arguments(runs: Sequence[Run], shape: Sizes) -> Arguments:
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
    return Arguments(streams, batches, numbers | {name: of_each(drawn, np.int32) for name, drawn in DRAWN.items()})


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


def traced_parameters(shape: Sizes) -> dict[str, float]:
    """The float parameters of the laws of a program by dotted name, with their defaults."""
    return {
        **(find_law("embedding", shape.embedding).traced() if shape.embedding else {}),
        **find_law("activation", shape.activation).traced(),
    }


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run of next to nothing, which fills a batch up."""


def execute(program: Program, runs: Sequence[Run]) -> tuple[list[list[Metrics] | None], float]:
    """Metric columns of the rows of at most `program.batch` runs, in their order, and the seconds it took.

    None stands for a run that the error bound of the form turns away: it is for `shape.fallback`. Raises OutOfMemory.
    """
    start = time.perf_counter()
    n_devices = program.sharding.num_devices
    share, per_device = -(-len(runs) // n_devices), program.batch // n_devices
    slots = [i // share * per_device + i % share for i in range(len(runs))]
    batch: list[Run] = [IDLE] * program.batch
    active = np.zeros(program.batch, bool)
    for slot, run in zip(slots, runs, strict=True):
        batch[slot], active[slot] = run, True
    with _memory_errors():
        raw = jax.device_get(program.run(*jax.device_put((arguments(batch, program.shape), active), program.sharding)))
    form = program.shape.runs_as
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


Row = dict[str, Any]


@overload
def simulate(point: Point, seed: int, *, trace: Literal[False] = False) -> Row: ...
@overload
def simulate(point: Point, seed: Iterable[int], *, trace: Literal[False] = False) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: Literal[True]) -> list[Row]: ...
@overload
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool) -> Row | list[Row]: ...
def simulate(point: Point, seed: int | Iterable[int], *, trace: bool = False) -> Row | list[Row]:
    """The row that a sweep writes for (point, seed), without `seconds` and `bucket`: a dict of the columns in table order.

    For a list of seeds it returns a list of rows. Of a run that trains on, it is the row of the last step; with `trace` it returns
    a list of the rows of all recorded steps, in order of step, seed by seed. The first call for a shape compiles its program, which
    takes seconds; points of similar sizes share it, and the compiled program is kept for later processes. Raises PointError for a
    seed out of range, and for a point that needs more than 80 % of this machine's memory.

        >>> from jaxrecall import Point, simulate
        >>> point = Point(V=64, N=1024, d=32, L=8)
        >>> row = simulate(point, seed=0)
        >>> rows = simulate(point, seed=range(8))
        >>> losses = [row["loss"] for row in simulate(point.replace(steps=100, lr=0.1), seed=0, trace=True)]
    """
    _check_memory(point)
    start()
    seeds = seed if isinstance(seed, Iterable) else [seed]
    runs = _rows(point, [Run(point, checked_seed(one)) for one in seeds])
    if trace:
        return [row for rows in runs for row in rows]
    last = [rows[-1] for rows in runs]
    return last if isinstance(seed, Iterable) else last[0]


def _check_memory(point: Point) -> None:
    """Raises PointError for a point whose program needs more memory than there is."""
    need, limit = Shape.of(point).peak_bytes, memory_limit()
    if need > limit:
        name = max(("V", "d", "m"), key=lambda size: getattr(point, size))
        sizes = ", ".join(f"{size}={getattr(point, size)}" for size in ("V", "d", "m"))
        message = f"got {sizes}, which needs about {need / 2**20:.0f} MiB; allowed: {limit / 2**20:.0f} MiB, 80 % of this machine's memory"
        raise PointError([Problem(name, message)])


def _rows(point: Point, runs: Sequence[Run]) -> list[list[Row]]:
    """The rows of runs of one point, in their order. Those that a guard turns away run once more, in the full form."""
    found: dict[Run, list[Metrics]] = {}
    shape = Shape.of(point)
    while shape and (left := [run for run in runs if run not in found]):
        program = compiled(shape)
        for i in range(0, len(left), program.batch):
            batch = left[i : i + program.batch]
            found |= {run: metrics for run, metrics in zip(batch, execute(program, batch)[0], strict=True) if metrics}
        shape = shape.fallback
    whole = (rows(run, found[run], Shape.of(point), "highest", None) for run in runs)
    return [[{name: value for name, value in row.items() if name not in ("seconds", "bucket")} for row in of_run] for of_run in whole]
