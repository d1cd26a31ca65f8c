"""Compiled programs: the only place with jit, vmap and devices. One program serves every point that fits its bucket."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from . import embed, evaluate, shortcuts, stream
from .bucket import Bucket
from .point import Point, checked_seed
from .realization import tag
from .row import CODE_VERSION, DTYPE, POINT_COLUMNS, in_order


class Program(NamedTuple):
    """A compiled program: `run` maps a batch of runs (leading axis `batch`) to their raw metrics."""

    run: Any
    batch: int
    compile_seconds: float
    sharding: NamedSharding


def keep_compiled() -> None:
    """Keeps compiled programs in a folder of the user's, so that a second process compiles nothing.

    The folder is $JAXRECALL_CACHE (empty: keep none), else jaxrecall in the user's cache folder; one that JAX was already
    told of (JAX_COMPILATION_CACHE_DIR) stays.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("JAXRECALL_CACHE", os.path.join(home, "jaxrecall"))
    if folder and not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def compiled(bucket: Bucket, per_device: int, precision: str = "highest", chunk: int | None = None) -> Program:
    """The program of a bucket for batches of `per_device` runs on each local device; compiled once a process."""
    return _compiled(bucket, per_device, precision, chunk or bucket.chunk, tuple(jax.local_devices()))


@functools.cache
def _compiled(bucket: Bucket, per_device: int, precision: str, chunk: int, devices: tuple[Any, ...]) -> Program:
    one = functools.partial(simulate_run, shape=shape_of(bucket, chunk))
    # A CPU is fastest on one run at a time, each with its own number of chunks; an accelerator needs them side by side.
    many = functools.partial(lax.map, one) if devices[0].platform == "cpu" else jax.vmap(one)
    mesh = Mesh(np.array(devices), ("run",))
    spread = jax.shard_map(many, mesh=mesh, in_specs=P("run"), out_specs=P("run"), check_vma=False)
    batch = per_device * len(devices)
    sharding = NamedSharding(mesh, P("run"))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct((batch, *a.shape), a.dtype, sharding=sharding), idle())
    start = time.perf_counter()
    with jax.default_matmul_precision(precision):
        run = jax.jit(spread).lower(shapes).compile()
    return Program(run, batch, time.perf_counter() - start, sharding)


def shape_of(bucket: Bucket, chunk: int) -> stream.Shape:
    return stream.Shape(bucket.V, bucket.d, bucket.m, bucket.activation, chunk, bucket.exact == "full")


def simulate_run(run: stream.Run, shape: stream.Shape) -> dict[str, jax.Array]:
    """The raw metrics of one run. Traced; `finish` makes a row of them."""
    return science(stream.draw(run, shape))[1]


def science(world: stream.World) -> tuple[stream.Learned, dict[str, jax.Array]]:
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


def launch(program: Program, runs: Sequence[tuple[Point, int]]) -> Any:
    """Starts a batch of at most `program.batch` runs and returns at once; `collect` waits for it."""
    arguments = [argument(point, seed) for point, seed in runs]
    arguments += [idle()] * (program.batch - len(runs))
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *arguments)
    return program.run(jax.device_put(batch, program.sharding))


def collect(launched: Any, runs: Sequence[tuple[Point, int]]) -> list[dict[str, Any] | None]:
    """Metric columns of the launched runs, in their order; None where a shortcut's guard asks for the full form."""
    host = jax.device_get(launched)
    return [finish(jax.tree.map(lambda values, i=i: values[i], host), point) for i, (point, _) in enumerate(runs)]


def finish(raw: dict[str, Any], point: Point) -> dict[str, Any] | None:
    """The metric columns of a row from a program's counts and sums: scales and ratios in float64; None as in `collect`."""
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
    runs = [(point, checked_seed(seed))]
    bucket = Bucket.of(point)
    metrics = collect(launch(compiled(bucket, 1), runs), runs)[0]
    if metrics is None:
        metrics = collect(launch(compiled(bucket.in_full, 1), runs), runs)[0]
        assert metrics
    whole = row(*runs[0], metrics, bucket, "highest", None)
    return {name: value for name, value in whole.items() if name not in ("seconds", "bucket")}


def _float32(x: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(x)
