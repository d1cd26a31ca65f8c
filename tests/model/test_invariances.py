"""What the metrics must not see: names of tokens, order of samples, rotations."""

import numpy as np
import pytest
from helpers import assert_same_metrics, executed
from scipy.stats import ortho_group
from tolerances import assert_close

from jaxrecall import Point, Realization, measure, realize
from jaxrecall.model.reference import three_step
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape

ATTENTION = Point(V=30, N=900, d=16, L=6, n_test=600)
MLP = ATTENTION.replace(m=32, activation="gelu", trigger_in_value=False)
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
    rest = np.arange(len(test), len(r.train_tokens))
    train = np.concatenate([rng.permutation(len(test)), rest])
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
    W_in = None if r.W_in is None else r.W_in @ Q
    return r._replace(
        Z_in=r.Z_in @ Q, z_trig=r.z_trig @ Q, z_eos=r.z_eos @ Q, W_in=W_in
    )


@pytest.mark.parametrize("point", [ATTENTION, MLP], ids=["attention", "mlp"])
@pytest.mark.parametrize("change", [relabelled, shuffled, rotated_out, rotated_in])
def test_the_reference(point, change):
    r = realize(point, SEED).astype(np.float64)
    assert_same_metrics(metrics(point, change(r)), metrics(point, r), "float64")


def test_the_metrics_do_see_a_rotation_of_the_keys_alone():
    r = realize(ATTENTION, SEED).astype(np.float64)
    moved = rotated_in(r)._replace(z_trig=r.z_trig)
    scores = [metrics(ATTENTION, each)["trigger_score"] for each in (moved, r)]
    assert abs(scores[0] / scores[1] - 1) > 1e-3


@pytest.mark.parametrize(
    "point",
    [ATTENTION, pytest.param(MLP, marks=pytest.mark.slow)],
    ids=["attention", "mlp"],
)
def test_a_row_in_programs_of_other_padded_sizes(point):
    """Counts are equal, and float columns agree up to rounding, as docs/table.md
    says.
    """
    point, rows = point.replace(exact="full"), []
    for V, d in ((32, 16), (64, 64)):
        shape = Shape.sized(point, V, d, point.m and 2 * d)
        rows += executed(program.compiled(shape), [(point, SEED)])
    one, other = rows
    for name, value in one.items():
        if isinstance(value, float):
            assert_close(other[name], value, "float32", of=name)
        else:
            assert other[name] == value, name
