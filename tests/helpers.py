"""The float64 oracle, and the streamed program opened up so that tests can look inside
and change what was drawn.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import jaxtyped
from tolerances import assert_close

from jaxrecall.model import task
from jaxrecall.model.point import REDRAWS, Point, Run
from jaxrecall.model.reference.realization import Realization, run_keys
from jaxrecall.model.reference.steps import ThreeStep, three_step
from jaxrecall.simulator import descent, program
from jaxrecall.simulator.arguments import Arguments, arguments
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.rows import finish, noise_columns
from jaxrecall.simulator.world import World, draw

ROOT = Path(__file__).parent.parent
LOGS = {"accelerators.md", "attack.md", "benchmarks.md", "on-device.md", "slurm.md"}
FINDINGS = {
    f"results/{path.name}": path.read_text()
    for path in sorted((ROOT / "results").glob("*.md"))
    if path.name not in LOGS
}
"""The pages of results/ but those that commands write."""

NO_FIGURE = ("--shard", "0/1")
"""Words of a sweep that computes all runs and draws no figure, which is left to the
call without --shard.
"""


@contextlib.contextmanager
def usual_promotion():
    """JAX's usual rules for mixed types and ranks, on which functions of users rely."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


METRICS = (
    "n_correct",
    "accuracy",
    "memory_accuracy",
    "step1_memory_accuracy",
    "train_accuracy",
    "attention_mass",
    "attention_top1",
    "trigger_score",
    "score_std",
    "snr",
    "trigger_cosine",
    "test_margin",
    "n_tied",
)


def hold_to_annotations(record: Any) -> None:
    """From now on every array of this NamedTuple or dataclass has the shape and dtype
    of its annotation when one is made.

    A NamedTuple must not be a pytree that JAX maps to other leaves. A dataclass may: it
    is not checked if all its fields are named, unless by `dataclasses.replace`.
    """
    if dataclasses.is_dataclass(record):
        of_jax = record.__init__
        jaxtyped(record, typechecker=beartype)
        checked = record.__init__

        def init(self: Any, *arrays: Any, **named: Any) -> None:
            is_replaced = sys._getframe(1).f_code.co_filename == dataclasses.__file__
            (checked if arrays or is_replaced else of_jax)(self, *arrays, **named)

        record.__init__ = init
        return
    record.__new__.__annotations__ = typing.get_type_hints(record, include_extras=True)
    record.__new__ = jaxtyped(record.__new__, typechecker=beartype)
    record._make = classmethod(lambda cls, values: cls(*values))


def combinations(*values: Iterable[Any], often: Callable[..., bool]) -> list[Any]:
    """Parameters of a test: all combinations of values; those that are not `often` run
    with --slow alone.
    """
    return [
        pytest.param(
            *each,
            id="-".join(map(str, each)),
            marks=() if often(*each) else pytest.mark.slow,
        )
        for each in itertools.product(*values)
    ]


SUPPORTED = "JAXRECALL_TEST_COMPILER_OPTIONS"


def supported(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that this version of XLA knows.

    A process of its own finds out, as this one has to set them before JAX starts. The
    processes of pytest inherit the answer.
    """
    if SUPPORTED not in os.environ:
        code = f"""if True:
            import json
            from jaxrecall.simulator import device
            print(json.dumps(device.supported({options!r})))
        """
        os.environ[SUPPORTED] = python(code, JAX_PLATFORMS="cpu").stdout
    return json.loads(os.environ[SUPPORTED])


def process(
    *words: object,
    folder: Path = ROOT,
    timeout: float = 300,
    exit_code: int | None = 0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`python` and these words, in a process of its own, which ends with the exit code
    or, if that is None, with any; output captured.
    """
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert exit_code in (None, done.returncode), done.stderr
    return done


def python(
    code: str, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs code to its end in a fresh interpreter; output captured."""
    return process("-c", code, timeout=timeout, **environment)


UNOPTIMISED = supported(
    program.LIGHT
    | {
        "xla_llvm_disable_expensive_passes": True,
        "xla_backend_optimization_level": 0,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
)
"""Options of light programs, no optimisation of machine code, and one unit of it."""

OPTIMISED = {
    "xla_cpu_use_fusion_emitters": True,
    "xla_disable_hlo_passes": "",
    "xla_llvm_disable_expensive_passes": False,
    "xla_backend_optimization_level": 3,
}
"""What XLA does if it is told nothing."""

quickly = functools.partial(jax.jit, compiler_options=UNOPTIMISED)


def diagnose(
    realization: Realization, point: Point, learned: ThreeStep, redraws: np.ndarray
) -> dict[str, float | None]:
    """The columns that `diagnose` adds to the row of a run: float64, in NumPy, from
    `three_step` and redraws of W_in (n, m, d).

    The score of token v is s(v) = z_in(v)^T w, w = W_KQ z_eos; what it varies over the
    vocabulary competes with the trigger's score z_trig^T w. By Gram-Schmidt, w is the
    sum of four vectors, so s is the sum of four noises:

        leakage    along z_trig, which the token embeddings are not orthogonal to
        bias       of the rest, along Sigma_c zbar: the mean embedding zbar as the
            covariance Sigma_c of the rows of Z_in passes it on
        mlp        of the rest, what differs from its mean over redraws of W_in with
            data and embeddings held; 0 without an MLP
        gradient   what is left: that mean
    """
    r, mean_w = realization.astype(np.float64), learned.w
    if point.m:
        mean_w = np.mean(
            [three_step(realization._replace(W_in=W_in), point).w for W_in in redraws],
            axis=0,
        )
    scale = np.abs(learned.w).max() or 1.0
    scores = r.Z_in @ split(r, learned.w / scale, mean_w / scale).T
    return noise_columns(
        np.cov(scores, rowvar=False, ddof=0), float(r.z_trig @ learned.w / scale)
    )


def split(r: Realization, w: np.ndarray, mean_w: np.ndarray) -> np.ndarray:
    """(4, d): w as the sum of its parts, in the order of NOISES; `mean_w` is its mean
    over redraws of W_in.
    """
    zbar = r.Z_in.mean(0)
    Sigma_c = np.cov(r.Z_in, rowvar=False, ddof=0).reshape(len(zbar), -1)
    drift = Sigma_c @ zbar
    trigger = r.z_trig / np.linalg.norm(r.z_trig)
    own = drift - (drift @ trigger) * trigger
    rounding = np.linalg.norm(drift) + np.trace(Sigma_c) * np.linalg.norm(zbar) / len(
        r.Z_in
    )
    bias = (
        own / np.linalg.norm(own)
        if np.linalg.norm(own) > 1e-5 * rounding
        else np.zeros_like(own)
    )

    def rest(x: np.ndarray) -> np.ndarray:
        return x - (x @ trigger) * trigger - (x @ bias) * bias

    return np.stack(
        [
            (w @ trigger) * trigger,
            (w @ bias) * bias,
            rest(w) - rest(mean_w),
            rest(mean_w),
        ]
    )


def redraws(point: Point, seed: int) -> np.ndarray:
    """(REDRAWS, m, d) float32: the independent copies of W_in that `diagnose` puts in
    its place.
    """
    streams, _ = run_keys([Run(point, seed)])
    return np.stack(
        [
            task.redrawn_first_layer(
                streams[0], r, point.d, point.m, (point.m, point.d)
            )
            for r in range(REDRAWS)
        ]
    )


@functools.partial(quickly, static_argnames="shape")
def _draw(run: Arguments, shape: Shape) -> World:
    with jax.default_matmul_precision("highest"):
        return draw(run, shape)


def of_embeddings(run: Arguments, shape: Shape) -> tuple[Arguments, Shape]:
    """What the draw of embeddings and labels reads of them: shapes that differ in
    training share its program.
    """
    laws = {name: getattr(shape, name) for name in ("embedding", "embedding_out")}
    parameters = {
        name: value
        for name, value in run.parameters.items()
        if name.startswith("embedding")
    }
    return replace(run, parameters=parameters, token_laws=None), Shape(
        shape.V, shape.d, shape.m, "relu" if shape.m else "none", **laws
    )


def without_embeddings(world: World) -> World:
    """The world without what made its embeddings, which training does not read: laws of
    embeddings share its program.
    """
    parameters = {
        name: value
        for name, value in world.run.parameters.items()
        if not name.startswith("embedding")
    }
    shape = replace(world.shape, embedding="gaussian", embedding_out=None)
    return replace(
        world, run=replace(world.run, parameters=parameters, given={}), shape=shape
    )


@quickly
def _train(world: World) -> Any:
    with jax.default_matmul_precision("highest"):
        return program.train_and_measure(world)


@quickly
def _trace(world: World) -> Any:
    measured = descent.at_step

    def and_parameters(world: World, params: Any, w: Any, *rest: Any) -> Any:
        return measured(world, params, w, *rest) | {"params": {"w": w, **params}}

    with (
        jax.default_matmul_precision("highest"),
        patch.object(descent, "at_step", and_parameters),
    ):
        return program.train_and_measure(world)[1]["trace"]


def fits(shape: Shape, point: Point) -> bool:
    """Whether a program can run the point."""
    if point.V > shape.V or point.d > shape.d or point.m > shape.m:
        return False
    needed = Shape.sized(point, shape.V, shape.d, shape.m)
    compiled = replace(needed, light=shape.light, quick=shape.quick)
    return replace(compiled, tile=shape.tile) == shape


def drawn(
    point: Point, seed: int, shape: Shape, tile: int = 512, **changes: Any
) -> World:
    """What the compiled program draws for a run; `changes` replace its arguments."""
    run = jax.tree.map(lambda a: a[0, ...], arguments([Run(point, seed)], shape))
    run = replace(run, **{name: np.asarray(value) for name, value in changes.items()})
    return replace(
        _draw(*of_embeddings(run, shape)),
        run=jax.tree.map(jnp.asarray, run),
        shape=replace(shape, tile=tile),
    )


def streamed(
    point: Point,
    seed: int,
    shape: Shape,
    change: Callable[[World], World] = lambda w: w,
    tile: int = 512,
) -> tuple[ThreeStep, dict[str, Any]]:
    """V1, w, V2 and the metrics of the float32 program; `change` may alter what was
    drawn before it trains.
    """
    trained, raw = _train(without_embeddings(change(drawn(point, seed, shape, tile))))
    V1, w, V2 = (np.asarray(a, np.float64) for a in (trained.V1, trained.w, trained.V2))
    d, p = point.d, point.p
    scale = point.eta, point.gamma * point.eta, max(point.eta, point.gamma2)
    three = ThreeStep(scale[0] * V1[:d, :p], scale[1] * w[:d], scale[2] * V2[:d, :p])
    metrics = finish(jax.device_get(raw), point, shape.trained_by)
    if metrics:
        return three, metrics[0]
    assert shape.fallback
    return streamed(point, seed, shape.fallback, change, tile)


def traced(
    point: Point,
    seed: int,
    shape: Shape,
    change: Callable[[World], World] = lambda w: w,
    tile: int = 512,
) -> list[dict[str, Any]]:
    """Raw records of the float32 program at each recorded step, with what it trained
    under `params`, padding cut off.
    """
    records = jax.device_get(
        _trace(without_embeddings(change(drawn(point, seed, shape, tile))))
    )
    V, d, p = point.V, point.d, point.p
    sizes = {
        "V_mat": (d, p),
        "w": (d,),
        "W_KQ": (d, d),
        "Z_in": (V, d),
        "Z_out": (V, d),
        "z_trig": (d,),
        "W_in": (p, d),
    }
    params = {
        name: a[(slice(None), *map(slice, sizes[name]))]
        for name, a in records.pop("params").items()
    }
    both = records | {"params": params}
    return [
        jax.tree.map(lambda a, i=i: a[i], both)
        for i in range(len(point.recorded_steps))
    ]


def executed(
    compiled: program.Executable, runs: Sequence[tuple[Point, int]]
) -> list[dict[str, Any] | None]:
    """The metrics of runs of the recipe alone, a row each; None where a guard turns a
    run away.
    """
    return [
        metrics and metrics[0]
        for metrics in program.execute(compiled, [Run(*run) for run in runs])[0]
    ]


def assert_same_metrics(
    a: dict[str, Any],
    b: dict[str, Any],
    tolerance: str = "float32",
    but: tuple[str, ...] = (),
) -> None:
    """Counts are equal, and other metrics agree within the tolerance."""
    for name in METRICS:
        if name in but:
            continue
        if None in (a[name], b[name]) or isinstance(b[name], int):
            assert a[name] == b[name], name
        else:
            assert_close(a[name], b[name], tolerance, of=name)


def papers_script(name: str) -> Any:
    """The module results/papers/NAME.py, under a name that the module of the same name
    beside the grids does not have.
    """
    folder = ROOT / "results/papers"
    spec = importlib.util.spec_from_file_location(
        f"papers_{name}", folder / f"{name}.py"
    )
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))  # for the module that they share
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(folder))
    return made
