"""Compiled programs: the only place with jit, vmap and devices. One program serves every point that fits its bucket."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from . import embed, evaluate, shortcuts, stream
from .bucket import Bucket
from .cost import cache_folder
from .point import Point, RunId, checked_seed
from .realization import tag
from .row import CODE_VERSION, DTYPE, POINT_COLUMNS, in_order

LOOPED = 16
"""Runs a call on a CPU. They are looped over, as many as there are, so that one program serves every batch."""


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs (leading axis `batch`), of which some are active, to their raw metrics."""

    run: Any
    batch: int
    compile_seconds: float
    was_kept: bool  # compiled by an earlier process
    sharding: NamedSharding


def on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def keep_compiled() -> None:
    """Keeps compiled programs in `cost.cache_folder`, so that a second process compiles nothing.

    A folder that JAX was already told of (JAX_COMPILATION_CACHE_DIR) stays.
    """
    folder = cache_folder()
    if folder and not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def compiled(bucket: Bucket, per_device: int = LOOPED, precision: str = "highest", chunk: int | None = None) -> Program:
    """The program of a bucket for batches of up to `per_device` runs on each local device; compiled once a process."""
    return _compiled(bucket, LOOPED if on_cpu() else per_device, precision, chunk or bucket.chunk, tuple(jax.local_devices()))


@functools.cache
def _compiled(bucket: Bucket, per_device: int, precision: str, chunk: int, devices: tuple[Any, ...]) -> Program:
    one = jax.jit(functools.partial(simulate_run, shape=shape_of(bucket, chunk)), inline=True)  # traced once, if used twice
    # A CPU is fastest on one run at a time, each with its own number of chunks; an accelerator needs them side by side.
    many = functools.partial(looped, one) if on_cpu() else lambda runs, active: jax.vmap(one)(runs)
    mesh = Mesh(np.array(devices), ("run",))
    spread = jax.shard_map(many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False)
    batch = per_device * len(devices)
    sharding = NamedSharding(mesh, P("run"))
    arguments = jax.tree.map(np.asarray, (idle(), np.bool_(False)))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape), a.dtype, sharding=sharding), arguments)
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


def shape_of(bucket: Bucket, chunk: int) -> stream.Shape:
    return stream.Shape(bucket.V, bucket.d, bucket.m, bucket.activation, chunk, bucket.exact == "full")


def simulate_run(run: stream.Run, shape: stream.Shape) -> dict[str, Any]:
    """The raw metrics of one run. Traced; `finish` makes a row of them."""
    return science(stream.draw(run, shape))[1]


def science(world: stream.World) -> tuple[stream.Learned, dict[str, Any]]:
    """Three steps and metrics, in the form that the shape asks for."""
    if world.shape.full:
        learned = stream.train(world)
        return learned, evaluate.measure(world, learned)
    learned, guard = shortcuts.train(world)
    return learned, evaluate.measure(world, learned, guard.locked) | {"guard": guard}


def argument(point: Point, seed: int) -> stream.Run:
    """The run (point, seed) as a program's argument. Products of rates are formed in float64, then held to float32's range."""
    largest = max(point.eta, point.gamma2)
    return stream.Run(
        root_seed=np.uint32(point.root_seed),
        seed=np.uint32(seed),
        tag=tag(point),
        independent=np.bool_(point.streams == "independent"),
        **{name: np.int32(getattr(point, name)) for name in ("V", "N", "d", "L", "m", "n_test")},
        law=np.int32(embed.LAWS.index(point.embedding)),
        trigger_in_value=np.bool_(point.trigger_in_value),
        fresh_batches=np.bool_(point.fresh_batches),
        eta=_float32(point.eta),
        gamma_eta=_float32(min(point.gamma * point.eta, 3e38)),
        mix1=_float32(point.eta / largest),
        mix2=_float32(point.gamma2 / largest),
    )


def idle() -> stream.Run:
    """A run of no samples: fills a batch up and costs its draws only."""
    return argument(Point(V=2, N=1, d=1, L=1), 0)._replace(N=np.int32(0), n_test=np.int32(0))


def execute(program: Program, runs: Sequence[RunId]) -> tuple[list[dict[str, Any] | None], float]:
    """Metric columns of at most `program.batch` runs, in their order, and the seconds it took.

    None stands for a run that a shortcut's guard turns away: it is for the full form.
    """
    start = time.perf_counter()
    n_devices = program.sharding.num_devices
    share, per_device = -(-len(runs) // n_devices), program.batch // n_devices
    slots = [i // share * per_device + i % share for i in range(len(runs))]
    arguments, active = [idle()] * program.batch, np.zeros(program.batch, bool)
    for slot, (point, seed) in zip(slots, runs, strict=True):
        arguments[slot], active[slot] = argument(point, seed), True
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *arguments)
    raw = jax.device_get(program.run(*jax.device_put((batch, active), program.sharding)))
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
    }
    if not raw["finite"] or not math.isfinite(scale):
        row = dict.fromkeys(row) | {"status": "nonfinite"}
    elif scale == 0:
        row |= {"snr": None, "trigger_cosine": None, "status": "degenerate"}
    return row | {"form": guard.form if guard else "full", "draw_check": int(raw["draw_check"])}


def row(point: Point, seed: int, metrics: dict[str, Any], bucket: Bucket, precision: str, seconds: float | None) -> dict[str, Any]:
    """The whole row of a run, columns in table order."""
    fields = {name: getattr(point, name) for name in POINT_COLUMNS}
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
    bucket = Bucket.of(point)
    metrics = None
    for at in (bucket, bucket.in_full):
        metrics = metrics or execute(compiled(at), [run])[0][0]
    assert metrics
    whole = row(*run, metrics, bucket, "highest", None)
    return {name: value for name, value in whole.items() if name not in ("seconds", "bucket")}


def _float32(x: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(x)
