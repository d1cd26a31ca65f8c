"""Compiled programs: the only place with jit, vmap and devices. One program serves every point that fits its bucket."""

from __future__ import annotations

import functools
import math
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..laws.embedding import law_index
from ..point import FIELDS, Point, Run, checked_seed
from ..reference import noise as diagnosis
from ..reference.realization import run_keys
from ..science import decoders
from ..science.columns import CODE_VERSION, DTYPE, EXTRA_COLUMNS, in_order
from . import metrics as evaluate
from . import noise, shortcuts
from . import steps as stream
from .shape import Shape

LOOPED = 16
"""Runs a call on a CPU. They are looped over, as many as there are, so that one program serves every batch."""


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs (leading axis `batch`), of which some are active, to their raw metrics."""

    run: Any
    batch: int
    compile_seconds: float
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


def start(cache_folder: Path | None) -> None:
    """Starts JAX on the local devices; compiled programs are kept in `cache_folder`, so that a second process compiles nothing.

    A folder that JAX was already told of (JAX_COMPILATION_CACHE_DIR) stays.
    """
    if cache_folder and not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(cache_folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    jax.local_devices()  # a device that does not start is found out before there is anything to lose


def compiled(bucket: Shape, per_device: int = LOOPED, precision: str = "highest", chunk: int | None = None) -> Program:
    """The program of a bucket for batches of up to `per_device` runs on each local device; compiled once a process.

    On a CPU a program with decoders takes one run a call: it returns whole tables, and batches would add them up.
    """
    if on_cpu():
        per_device = 1 if bucket.decoders else LOOPED
    with _memory_errors():
        return _compiled(bucket, per_device, precision, chunk or bucket.chunk, tuple(jax.local_devices()))


@functools.cache
def _compiled(bucket: Shape, per_device: int, precision: str, chunk: int, devices: tuple[Any, ...]) -> Program:
    one = jax.jit(functools.partial(simulate_run, shape=shape_of(bucket, chunk)), inline=True)  # traced once, if used twice
    # A CPU is fastest on one run at a time, each with its own number of chunks; an accelerator needs them side by side.
    many = functools.partial(looped, one) if on_cpu() else lambda runs, active: jax.vmap(one)(runs)
    mesh = Mesh(np.array(devices), ("run",))
    spread = jax.shard_map(many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False)
    batch = per_device * len(devices)
    sharding = NamedSharding(mesh, P("run"))
    idle = arguments([IDLE] * batch), np.zeros(batch, bool)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), idle)
    start, hits = time.perf_counter(), _cache_hits.count
    with jax.default_matmul_precision(precision):
        run = jax.jit(spread).lower(*shapes).compile()
    return Program(run, batch, time.perf_counter() - start, _cache_hits.count > hits, sharding)


class _CacheHits:
    """How many programs came from the folder of compiled ones."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_listener(self._hear)

    def _hear(self, event: str, **_: Any) -> None:
        self.count += event == "/jax/compilation_cache/cache_hits"


_cache_hits = _CacheHits()


def looped(one: Callable[[stream.Run], Any], runs: stream.Run, active: jax.Array) -> Any:
    """`one` for each of the runs, one after the other; the active ones come first, and zeros stand for the others."""

    def body(i: jax.Array, out: Any) -> Any:
        run = jax.tree.map(lambda a: lax.dynamic_index_in_dim(a, i, keepdims=False), runs)
        return jax.tree.map(lambda all, this: all.at[i].set(this), out, one(run))

    first = jax.tree.map(lambda a: a[0], runs)
    out = jax.tree.map(lambda a: jnp.zeros((len(active), *a.shape), a.dtype), jax.eval_shape(one, first))
    return lax.fori_loop(0, jnp.sum(active.astype(jnp.int32), dtype=jnp.int32), body, out)


def shape_of(bucket: Shape, chunk: int) -> stream.Shape:
    full = bucket.exact == "full"
    return stream.Shape(bucket.V, bucket.d, bucket.m, bucket.activation, chunk, full, bucket.diagnose, bucket.decoders)


def simulate_run(run: stream.Run, shape: stream.Shape) -> dict[str, Any]:
    """The raw metrics of one run. Traced; `finish` makes a row of them."""
    return science(stream.draw(run, shape))[1]


def science(world: stream.World) -> tuple[stream.Learned, dict[str, Any]]:
    """Three steps and metrics, in the form that the shape asks for, and what else it asks for."""
    learned, guard = (stream.train(world), None) if world.shape.full else shortcuts.train(world)
    raw: dict[str, Any] = evaluate.measure(world, learned, guard and guard.locked)
    if world.shape.diagnose:
        mean_w, error = noise.over_redraws(world) if world.shape.m else (learned.w_hat, jnp.float32(0))
        raw["noise"] = noise.covariances(world, learned.w_hat, mean_w)
        guard = guard and guard._replace(error2=jnp.maximum(guard.error2, error))
    if world.shape.decoders:
        raw["decoders"] = {"perm": world.perm, "G1": learned.G1, "Z_in": world.e.Z_in, "Z_out": world.e.Z_out, "z_trig": world.e.z_trig}
    return learned, raw | ({"guard": guard} if guard else {})


def arguments(runs: Sequence[Run]) -> stream.Run:
    """Runs as a program's arguments, leading axis n. Products of rates are formed in float64, then held to float32's range."""
    streams, batches = run_keys(runs)
    points = [point for point, _ in runs]

    def of_each(value: Callable[[Point], Any], dtype: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.array([value(point) for point in points]).astype(dtype)

    return stream.Run(
        streams=streams,
        batches=batches,
        **{name: of_each(operator.attrgetter(name), np.int32) for name in ("V", "N", "d", "L", "m", "n_test")},
        law=of_each(lambda p: law_index(p.embedding), np.int32),
        trigger_in_value=of_each(lambda p: p.trigger_in_value, bool),
        fresh_batches=of_each(lambda p: p.fresh_batches, bool),
        eta=of_each(lambda p: p.eta, np.float32),
        gamma_eta=of_each(lambda p: min(p.gamma * p.eta, 3e38), np.float32),
        mix1=of_each(lambda p: p.eta / max(p.eta, p.gamma2), np.float32),
        mix2=of_each(lambda p: p.gamma2 / max(p.eta, p.gamma2), np.float32),
    )


IDLE = Run(Point(V=2, N=1, d=1, L=1, n_test=1), 0)
"""A run of next to nothing, which fills a batch up."""


def execute(program: Program, runs: Sequence[Run]) -> tuple[list[dict[str, Any] | None], float]:
    """Metric columns of at most `program.batch` runs, in their order, and the seconds it took.

    None stands for a run that a shortcut's guard turns away: it is for the full form. Raises OutOfMemory.
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
        raw = jax.device_get(program.run(*jax.device_put((arguments(batch), active), program.sharding)))
    metrics = [finish(jax.tree.map(lambda a, slot=slot: a[slot], raw), point) for slot, (point, _) in zip(slots, runs, strict=True)]
    return metrics, time.perf_counter() - start


def finish(raw: dict[str, Any], point: Point) -> dict[str, Any] | None:
    """The metric columns of a row from a program's counts and sums: scales and ratios in float64; None as in `execute`."""
    guard = raw.get("guard")
    if guard and not guard.holds:
        return None
    counts = {name: int(raw[name]) for name in ("n_correct", "n_tied", "n_top1", "n_train_correct", "n_memory", "n_step1")}
    trigger, std = float(raw["trigger"]), float(raw["score_std"])
    scale = point.gamma * point.eta * float(raw["w_scale"])
    row: dict[str, Any] = {
        "n_correct": counts["n_correct"],
        "accuracy": counts["n_correct"] / point.n_test,
        "memory_accuracy": counts["n_memory"] / point.V,
        "step1_memory_accuracy": counts["n_step1"] / point.V,
        "train_accuracy": counts["n_train_correct"] / min(point.N, point.n_test),
        "attention_mass": float(raw["mass"]) / point.n_test,
        "attention_top1": counts["n_top1"] / point.n_test,
        "trigger_score": scale * trigger,
        "score_std": scale * std,
        "snr": trigger / std if std > 0 else None,
        "trigger_cosine": float(raw["cosine"]),
        "test_margin": float(raw["margin"]) / point.n_test,
        "n_tied": counts["n_tied"],
        "status": "ok",
    } | dict.fromkeys(EXTRA_COLUMNS)
    if point.diagnose:
        row |= diagnosis.columns(raw["noise"], trigger if scale else 0.0)
    if point.decoders:
        row |= decoders.accuracies(point, **raw["decoders"])
    if not raw["finite"] or not math.isfinite(scale):
        row = dict.fromkeys(row) | {"status": "nonfinite"}
    elif scale == 0:
        row |= {"snr": None, "trigger_cosine": None, "status": "degenerate"}
    return row | {"form": guard.form if guard else "full", "draw_check": int(raw["draw_check"])}


def row(point: Point, seed: int, metrics: dict[str, Any], bucket: Shape, precision: str, seconds: float | None) -> dict[str, Any]:
    """The whole row of a run, columns in table order."""
    fields = {name: getattr(point, name) for name in FIELDS}
    provenance = {
        "seconds": seconds,
        "code_version": CODE_VERSION,
        "jax_version": jax.__version__,
        "device_kind": jax.local_devices()[0].device_kind,
        "dtype": DTYPE,
        "precision": precision,
        "bucket": str(bucket),
    }
    return in_order({"point_id": point.point_id, "seed": seed, **fields, **metrics, **provenance})


def simulate(point: Point, seed: int) -> dict[str, Any]:
    """The row that a sweep writes for (point, seed): a dict of the columns in row.COLUMNS, but for `seconds` and `bucket`.

    The first call for a bucket compiles its program (seconds); points of like sizes share it.
    """
    run = point, checked_seed(seed)
    bucket = Shape.of(point)
    metrics = None
    for at in (bucket, bucket.in_full):
        metrics = metrics or execute(compiled(at), [run])[0][0]
    assert metrics
    whole = row(*run, metrics, bucket, "highest", None)
    return {name: value for name, value in whole.items() if name not in ("seconds", "bucket")}
