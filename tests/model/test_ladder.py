"""Small cases with answers known by hand."""

import itertools

import numpy as np
import pytest
from helpers import METRICS, assert_same_metrics
from tolerances import assert_close

from jaxrecall import Point, measure, realize, simulate
from jaxrecall.model.reference import three_step

SMALL = Point(V=20, N=900, d=20, L=4, n_test=300)


def test_small_eta_gives_the_uniform_softmax_formula():
    """eta -> 0: p = 1/V in every step, so w and V2 are polynomials in the data; the
    remainder falls like eta.
    """
    errors = []
    for eta in (1e-1, 1e-2, 1e-3):
        point = Point(V=20, N=300, d=12, L=4, n_test=50, eta=eta, kappa=50)
        r = realize(point, 0).astype(np.float64)
        learned = three_step(r, point)
        labels = (r.Z_out - r.Z_out.mean(0))[r.train_labels] / 300
        is_ell = np.arange(4) == r.train_positions[:, None]
        k = r.Z_in[r.train_tokens] + is_ell[..., None] * r.z_trig
        h = k.mean(1)
        V1 = eta * labels.T @ h
        covariance = np.einsum("ijd,ije->ide", k - h[:, None], k) / 4
        slope = np.einsum("id,ide->e", labels @ V1, covariance)
        w = point.gamma * (r.z_eos @ r.z_eos) * slope
        a = np.exp(k @ w - (k @ w).max(1, keepdims=True))
        a /= a.sum(1, keepdims=True)
        V2 = V1 + point.gamma2 * labels.T @ np.einsum("ij,ijd->id", a, k)
        assert_close(learned.V1, V1)
        pairs = (learned.w, w), (learned.V2, V2)
        errors.append(max(np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in pairs))
    assert errors[2] < 1e-3
    assert all(8 < a / b < 12 for a, b in itertools.pairwise(errors)), errors


def test_identity_mlp_is_attention_only():
    """W_in = I, m = d, identity: phi = h / sqrt(d), so V_mat = sqrt(d) times the
    attention-only one at rates eta d, gamma2 d.
    """
    d = 16
    plain = Point(V=30, N=900, d=d, L=6, n_test=600, eta=1e-3, gamma=1e8, gamma2=1e8)
    mlp = plain.replace(eta=1e-3 * d, gamma2=1e8 * d, m=d, activation="identity")
    r = realize(plain, 1)
    with_layer = r._replace(W_in=np.eye(d, dtype=np.float32))
    a, b = three_step(r, plain), three_step(with_layer, mlp)
    assert_close((b.V1 / np.sqrt(d), b.w, b.V2 / np.sqrt(d)), tuple(a))
    assert_same_metrics(measure(with_layer, mlp, b), measure(r, plain, a), "float64")


def test_gamma_zero_leaves_attention_uniform():
    row = simulate(SMALL.replace(gamma=0, gamma2=1.0), 0)
    assert row["status"] == "degenerate"
    assert_close(row["attention_mass"], 0.25, "float32")
    assert row["attention_top1"] == 0


@pytest.mark.parametrize(
    "kw",
    [
        {},
        pytest.param({"exact": "full"}, marks=pytest.mark.slow),
        pytest.param({"m": 6, "activation": "tanh"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_equal_tokens_leave_attention_to_rounding_which_is_degenerate(kw):
    """Seen before: status ok with a trigger score of 1e-6, where all tokens of the only
    sample are equal and w is zero.
    """
    sizes = {"V": 2, "N": 1, "d": 5, "L": 3, "n_test": 20, "eta": 1e-9}
    point = Point(**sizes | kw, trigger_in_value=False)
    equal = [
        len({*realize(point, seed).train_tokens[0].tolist()}) == 1 for seed in range(40)
    ]
    degenerate = [row["status"] == "degenerate" for row in simulate(point, range(40))]
    assert degenerate == equal
    assert 4 < sum(equal) < 36


@pytest.mark.parametrize(
    "point",
    [
        Point(
            **{"V": 2, "N": 2, "L": 2, "d": 14, "n_test": 200, "exact": "full"},
            streams="independent",
            eta=0.015863746248050217,
            kappa=2.8551653143280658,
        ),
        pytest.param(
            Point(
                **{"V": 2, "N": 1, "L": 9, "d": 28, "m": 7, "n_test": 200, "pool": 5},
                activation="gelu",
                trigger_in_value=False,
                eta=16.600485759693434,
                kappa=2276.0,
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["attention", "mlp"],
)
def test_attention_that_is_small_but_not_rounding_is_ok(point):
    """Seen before: degenerate, where w is 4e-6 of the largest push and right to three
    digits.
    """
    row, r = simulate(point, 0), realize(point, 0)
    score = r.z_trig.astype(float) @ three_step(r, point).w
    assert row["status"] == "ok"
    assert_close(row["trigger_score"], score, 0.02 * abs(score))


def statuses(point: Point, seed: int = 0):
    """Of a whole run, and how far W_KQ moved, at each recorded step."""
    rows = simulate(point, seed, trace=True)
    return [(row["status"], row["W_norm"] or 0) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "trains"), [("adam", "VW"), ("sgd", "VWZ")])
def test_training_from_zero_leaves_attention_to_rounding_which_is_degenerate(
    optimizer, trains
):
    """Seen before: status ok with attention_top1 0.762, where the gradient of W_KQ is
    zero in every step.
    """
    sizes = {"V": 2, "N": 1, "d": 17, "L": 2, "m": 7, "pool": 5, "n_test": 513}
    rates = {"eta": 10.0, "kappa": 0.0, "gamma2": 2.0, "lr": 0.5, "exact": "full"}
    rates |= {"start": "zero", "steps": 6, "optimizer": optimizer, "trains": trains}
    laws = {"embedding": "orthogonal", "trigger_in_value": False}
    point = Point(**sizes, **rates, **laws, root_seed=2**32 - 1)
    rows = simulate(point, 1, trace=True)
    names = "status", "attention_top1", "snr", "W_norm"
    seen = {tuple(row[name] for name in names) for row in rows}
    assert seen == {("degenerate", 0.0, None, 0.0)}
    assert rows[-1]["V_norm"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("lr", [1e-4, 1.0])
def test_attention_that_training_moves_a_little_is_ok(lr):
    """Its gradient is small at first, as V_mat is."""
    point = Point(V=8, N=64, d=6, L=4, n_test=64, start="zero", steps=5, lr=lr)
    first, second, *_, (status, W_norm) = statuses(point)
    assert first[0] == second[0] == "degenerate"
    assert status == "ok"
    assert W_norm > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kw", [{}, {"m": 6, "activation": "tanh"}, {"pool": 4}], ids=str
)
def test_no_optimizer_scales_up_the_rounding_of_a_lone_token(kw):
    """Seen before: adam moved W_KQ at its full rate along the signs of a gradient that
    is zero.
    """
    training = {"steps": 8, "optimizer": "adam", "lr": 0.1, "gamma2": 1.0}
    point = Point(V=7, N=50, d=5, L=1, n_test=20, **training, **kw)
    assert statuses(point) == [("ok", 0.0)] * 3


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, 20])
def test_orthogonal_rows_do_not_depend_on_d(m):
    a, b = (
        simulate(Point(V=25, N=600, d=d, L=5, m=m, embedding="orthogonal"), 3)
        for d in (27, 31)
    )
    assert_same_metrics(a, b)


def test_extreme_rates_do_not_overflow():
    usual = simulate(SMALL, 0)
    for rates in (
        {"gamma": 1e38},
        {"gamma": 1e38, "gamma2": 1.0},
        {"eta": 1e-30},
        {"eta": 1e-30, "kappa": 1e6},
    ):
        row = simulate(SMALL.replace(**rates), 0)
        assert row["status"] == "ok"
        assert all(np.isfinite(row[name]) for name in METRICS)
        assert_close(row["snr"], usual["snr"], 1e-3 * usual["snr"])
    row = simulate(SMALL.replace(eta=1e300, gamma=1.0), 0)
    assert row["status"] == "nonfinite"
    assert all(row[name] is None for name in METRICS)
    assert row["draw_check"] == usual["draw_check"]
