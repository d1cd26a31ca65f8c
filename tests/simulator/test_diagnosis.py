"""The noise of the scores, split: the parts add up, two implementations agree, and who
does not ask sees nothing of it.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
from cases import cases, check_recipe
from helpers import (
    METRICS,
    _train,
    assert_same_metrics,
    diagnose,
    drawn,
    quickly,
    split,
    streamed,
)
from tolerances import assert_close

from jaxrecall import Point, realize, simulate
from jaxrecall.model.columns import EXTRA_COLUMNS, NOISES
from jaxrecall.model.point import REDRAWS
from jaxrecall.model.reference import three_step
from jaxrecall.simulator import error_bounds, score_noise
from jaxrecall.simulator.cost import amount, work_of
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.rows import noise_columns
from jaxrecall.sweep import plan

SEED = 3
POINT = Point(V=30, N=900, d=12, L=7, n_test=100, diagnose=True)
PLAIN = POINT.replace(diagnose=False)
MLP = POINT.replace(m=20, activation="tanh")
STD = [f"noise_{name}" for name in NOISES]
COV = [f"cov_{a}_{b}" for a, b in itertools.combinations(NOISES, 2)]


def shape_of(point: Point, V: int = 32) -> Shape:
    return Shape.sized(point, V, 32, 32 if point.m else 0)


def total(row: dict) -> float:
    """Sum of the variances and twice the covariances."""
    return sum(row[name] ** 2 for name in STD) + 2 * sum(row[name] for name in COV)


@functools.partial(quickly, static_argnums=1)
def redraws(key: jax.Array, m: int) -> jax.Array:
    """(REDRAWS, m, 12): row i of redraw r has the key of W_in, folded with 2^31 + r and
    with i.
    """
    fold = jax.random.fold_in
    key = fold(fold(key, SEED), 5)
    numbers, rows = np.arange(REDRAWS, dtype=np.uint32), np.arange(m, dtype=np.uint32)
    keys = jax.vmap(lambda r: jax.vmap(functools.partial(fold, fold(key, r)))(rows))
    draw = functools.partial(jax.random.normal, shape=(12,), dtype=np.float32)
    return jax.vmap(jax.vmap(draw))(keys(numbers + np.uint32(2**31)))


def assert_same_noise(a: dict, b: dict) -> None:
    for name in STD:
        assert_close(a[name], b[name], "float32")
    largest = max(b[name] for name in STD) ** 2
    for name in COV:
        assert_close(a[name], b[name], "float32", scale=largest)


def test_the_parts_of_a_known_vector():
    """w = 3 z_trig + 2 u + x, with u and x orthogonal to z_trig and u along Sigma_c
    zbar; W_in redrawn moves x to y.
    """
    z = realize(POINT, SEED).astype(np.float64)
    zbar = z.Z_in.mean(0)
    drift = (z.Z_in - zbar).T @ (z.Z_in - zbar) @ zbar

    def without(a, b):
        return a - (a @ b) / (b @ b) * b

    u = without(drift, z.z_trig)
    x, y = (
        without(without(v, z.z_trig), u)
        for v in np.random.default_rng(0).normal(size=(2, POINT.d))
    )
    parts = split(z, 3 * z.z_trig + 2 * u + x, 5 * z.z_trig - u + y)
    assert_close(parts, np.stack([3 * z.z_trig, 2 * u, x - y, y]))


ALIKE = cases(
    """
    - {eta: 1.0e-6}
    - {eta: 1.0e-6, V: 13, embedding: orthogonal, d: 15, fresh_batches: true}
    - {eta: 1.0e-6, m: 20, embedding: sphere, trigger_in_value: false}
    """,
    """
    - {exact: full}
    - {exact: full, d: 1}
    - {exact: full, embedding: sphere, trigger_in_value: false}
    - {exact: full, m: 20, eta: 0.5}
    - {eta: 1.0e-6, m: 20}
    """,
)


@pytest.mark.parametrize("changes", ALIKE)
def test_the_program_agrees_with_the_reference(changes):
    point = (MLP if "m" in changes else POINT).replace(**changes)
    r = realize(point, SEED)
    again = np.asarray(redraws(jax.random.key(point.root_seed), point.m))
    noise = diagnose(r, point, three_step(r, point), again)
    row, reference = check_recipe(point, SEED, shape_of(point))
    if point.exact == "guarded":
        assert row["form"].startswith("uniform" if point.m else "counts")
    assert_same_noise(row, noise)
    assert_close(total(row), row["snr"] ** -2, "float32")
    assert_close(total(noise), reference["snr"] ** -2)
    assert (row["noise_mlp"] > 0) == (point.m > 0)
    has_bias = point.embedding != "orthogonal" and point.d > 1
    assert (row["noise_bias"] > 0) == has_bias


def test_who_does_not_ask_gets_the_same_run():
    asking = POINT.replace(streams="independent", eta=1e-6)
    _, row = streamed(asking, SEED, shape_of(asking))
    asked_nothing = asking.replace(diagnose=False)
    plain, _ = check_recipe(asked_nothing, SEED, shape_of(asked_nothing))
    assert_same_metrics(row, plain)
    assert {plain[name] for name in EXTRA_COLUMNS} == {None}
    others = plain.keys() - {*METRICS, *EXTRA_COLUMNS}
    assert [row[name] for name in others] == [plain[name] for name in others]


ASKED = [
    point.replace(decoders=decoders)
    for point in (PLAIN, POINT)
    for decoders in (False, True)
]


@pytest.mark.slow
def test_where_there_is_no_score_there_is_no_noise():
    lone = simulate(POINT.replace(L=1, decoders=True, exact="full"), SEED)
    assert lone["status"] == "ok"
    assert {lone[name] for name in (*STD, *COV)} == {None}
    assert lone["matched_accuracy"] is not None
    huge = POINT.replace(eta=1e300, gamma=1.0, decoders=True, exact="full")
    lost = simulate(huge, SEED)
    assert lost["status"] == "nonfinite"
    assert {lost[name] for name in EXTRA_COLUMNS} == {None}


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_noise_over_a_score_of_zero_is_missing(bad):
    assert {*noise_columns(np.full((4, 4), bad), 0.0).values()} == {None}


@pytest.mark.slow
def test_a_redraw_that_no_shortcut_may_serve_rejects_the_run(monkeypatch):
    """The bound of the redraws counts as that of the run does: made infinite, it sends
    the run to the full form.
    """
    bounds = error_bounds.softmax_errors
    calls = []

    def broken(*arguments):
        calls.append(arguments)
        step2, step3 = bounds(*arguments)
        return step2 * np.float32(np.inf), step3

    monkeypatch.setattr(score_noise, "softmax_errors", broken)
    # a shape of its own, so that it is traced with the bound changed
    shape = shape_of(MLP.replace(eta=1e-6), 36)
    _, raw = _train(drawn(MLP.replace(eta=1e-6), SEED, shape))
    assert not shape.trained_by.accepts(raw["errors"])
    assert len(calls) == 1


def test_asking_takes_an_id_and_a_program_of_its_own_that_is_told_to_cost_more():
    assert len({point.point_id for point in ASKED}) == 4
    assert {point.draws_id for point in ASKED} == {PLAIN.point_id}
    runs = [(point, 0) for point in ASKED]
    assert len(plan.make_plan(runs).peaks) == 4
    assert plan.make_plan(runs, (64, 64, 0)).n_runs == 4
    large = MLP.replace(N=10**5)
    dear, cheap = (
        amount(Shape.rounded(point), work_of(point)).seconds
        for point in (large, large.replace(diagnose=False))
    )
    assert 4 < dear / cheap < 9
