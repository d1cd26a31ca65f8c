"""What the metrics must not see: names of tokens, order of samples, rotations."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_metrics, executed, streamed
from scipy.stats import ortho_group

from jaxrecall.model.point import Point, Run
from jaxrecall.model.reference.metrics import measure
from jaxrecall.model.reference.realization import Realization, realize
from jaxrecall.model.reference.steps import three_step
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

POINTS = [
    Point(V=30, N=900, d=16, L=6, n_test=600),
    Point(
        V=30,
        N=900,
        d=16,
        L=6,
        n_test=600,
        m=32,
        activation="gelu",
        trigger_in_value=False,
    ),
]
SEED = 8


def metrics(point: Point, r: Realization):
    return measure(r, point, three_step(r, point))


def relabelled(r: Realization) -> Realization:
    """Token v becomes sigma(v), label u becomes tau(u)."""
    rng = np.random.default_rng(0)
    sigma, tau = rng.permutation(len(r.perm)), rng.permutation(len(r.perm))
    back_in, back_out = np.argsort(sigma), np.argsort(tau)
    return r._replace(
        Z_in=r.Z_in[back_in],
        Z_out=r.Z_out[back_out],
        perm=tau[r.perm[back_in]],
        train_tokens=sigma[r.train_tokens],
        test_tokens=sigma[r.test_tokens],
        train_labels=tau[r.train_labels],
        test_labels=tau[r.test_labels],
    )


def shuffled(r: Realization) -> Realization:
    """Samples in another order; the positions of every sequence as well."""
    rng = np.random.default_rng(1)
    test, L = rng.permutation(len(r.test_tokens)), r.test_tokens.shape[1]
    # the metrics look at the first n_test training samples: those stay first
    train = np.concatenate(
        [rng.permutation(len(test)), np.arange(len(test), len(r.train_tokens))]
    )
    order = rng.permutation(L)
    where = np.argsort(order)
    return r._replace(
        train_tokens=r.train_tokens[train][:, order],
        train_positions=where[r.train_positions[train]],
        train_labels=r.train_labels[train],
        test_tokens=r.test_tokens[test][:, order],
        test_positions=where[r.test_positions[test]],
        test_labels=r.test_labels[test],
    )


def rotated_out(r: Realization) -> Realization:
    return r._replace(Z_out=r.Z_out @ ortho_group.rvs(r.Z_out.shape[1], random_state=2))


def rotated_in(r: Realization) -> Realization:
    Q = ortho_group.rvs(r.Z_in.shape[1], random_state=3)
    return r._replace(
        Z_in=r.Z_in @ Q,
        z_trig=r.z_trig @ Q,
        z_eos=r.z_eos @ Q,
        W_in=None if r.W_in is None else r.W_in @ Q,
    )


@pytest.mark.parametrize("point", POINTS, ids=["attention", "mlp"])
@pytest.mark.parametrize("change", [relabelled, shuffled, rotated_out, rotated_in])
def test_the_reference(point, change):
    r = realize(point, SEED).astype(np.float64)
    assert_same_metrics(metrics(point, change(r)), metrics(point, r), rtol=1e-9)


@pytest.mark.parametrize("point", POINTS, ids=["attention", "mlp"])
@pytest.mark.parametrize("change", [rotated_out, rotated_in])
def test_the_streamed_program(point, change):
    shape = Shape.sized(point, 32, 32, point.m and 32)

    def rotate(world):
        padded = (
            np.asarray(a, np.float64) if a is not None else None
            for a in dataclasses.astuple(world.e)
        )
        r = change(
            Realization(*padded, np.asarray(world.perm), *realize(point, SEED)[6:])
        )
        new = [None if a is None else jnp.asarray(a, jnp.float32) for a in r[:5]]
        return eqx.tree_at(lambda w: w.e, world, type(world.e)(*new))

    assert_same_metrics(
        streamed(point, SEED, shape, rotate)[1],
        streamed(point, SEED, shape)[1],
        rtol=3e-4,
    )


def test_the_metrics_do_see_a_rotation_of_the_keys_alone():
    r = realize(POINTS[0], SEED).astype(np.float64)
    moved = rotated_in(r)._replace(z_trig=r.z_trig)
    assert (
        abs(
            metrics(POINTS[0], moved)["trigger_score"]
            / metrics(POINTS[0], r)["trigger_score"]
            - 1
        )
        > 1e-3
    )


@pytest.mark.parametrize(
    "point",
    [POINTS[0], pytest.param(POINTS[1], marks=pytest.mark.slow)],
    ids=["attention", "mlp"],
)
def test_a_row_in_programs_of_other_padded_sizes(point):
    """Counts are equal, and float columns agree to about 1e-6 relative, as
    docs/table.md says.
    """
    point, sizes = point.replace(exact="full"), [(32, 16), (64, 64)]
    shapes = [Shape.sized(point, V, d, point.m and 2 * d) for V, d in sizes]
    rows = [
        executed(program.compiled(shape), [Run(point, SEED)])[0] for shape in shapes
    ]
    first = rows[0] or {}
    for row in rows:
        assert row
        for name, value in first.items():
            assert row[name] == (
                pytest.approx(value, rel=3e-6, nan_ok=True)
                if isinstance(value, float)
                else value
            ), name
