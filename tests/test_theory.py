"""The theory's limits, known values and refusals, and the locked-attention surrogate against the simulator's own draws."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import poisson

from jaxrecall import realize, three_step
from jaxrecall.errors import TheoryError
from jaxrecall.point import Point
from jaxrecall.reference.steps import attend, features, in_float64
from jaxrecall.theory import critical as theory
from jaxrecall.theory import information, surrogate
from jaxrecall.theory.locked import keys, orthogonal_accuracy

LAWS = [
    {},
    {"trigger_in_value": False},
    {"embedding": "sphere"},
    {"embedding": "orthogonal"},
    {"m": 48, "activation": "relu"},
    {"m": 48, "activation": "gelu", "trigger_in_value": False},
    {"m": 48, "activation": "quadratic", "embedding": "sphere"},
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_surrogate_predicts_what_the_simulator_learns_from_the_same_counts(law):
    """kappa so large that the softmax weight of the informative token is 1: no logit may then differ but by a scale."""
    point = Point(V=24, N=700, d=26 if law.get("embedding") == "orthogonal" else 40, L=2, kappa=1e7, eta=1e-9, n_test=64, **law)
    r = realize(point, 3)
    learned = three_step(r, point)
    exact = in_float64(r)
    mass = attend(exact, point, r.train_tokens, r.train_positions, learned.w)[1][np.arange(point.N), r.train_positions]
    assert mass.min() > 1 - 1e-9
    counts = np.bincount(r.train_tokens[np.arange(point.N), r.train_positions], minlength=point.V)
    ours = surrogate.logits_from_counts(
        counts, *exact[:3], r.perm, exact.W_in, trigger_in_value=point.trigger_in_value, activation=point.activation
    )
    phi = features(exact, point, exact.Z_in + point.trigger_in_value * exact.z_trig)[0]
    theirs = phi @ learned.V2.T @ exact.Z_out.T
    scale = (ours * theirs).sum() / (theirs**2).sum()
    np.testing.assert_allclose(theirs * scale, ours, rtol=0, atol=1e-5 * np.abs(ours).max())
    np.testing.assert_array_equal(ours.argmax(1), theirs.argmax(1))
    assert len(set(counts)) > 5


def test_a_seed_keeps_its_embeddings_and_its_counts_grow_with_N():
    rng = [np.random.default_rng(5) for _ in range(2)]
    small, large = surrogate._counts(20, 1000, rng[0]), surrogate._counts(20, 1500, rng[1])
    assert (small.sum(), large.sum()) == (1000, 1500)
    assert (large >= surrogate._counts(20, 861, np.random.default_rng(5))).all()  # 861 is a level, 1000 and 1500 are none
    accuracies = [surrogate.locked(48, N, 40, 8).mean() for N in (50, 500, 5000, math.inf)]
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] > accuracies[0] + 0.3


def test_the_surrogates_threshold_is_where_its_mean_accuracy_crosses():
    N = surrogate.critical_N(48, 60, 0.5, seeds=12)
    below, above = (surrogate.locked(48, N * factor, 60, 12).mean() for factor in (0.8, 1.25))
    assert below < 0.5 < above
    assert surrogate.critical_N(48, 12, 0.5, seeds=12) == math.inf
    assert surrogate.critical_N(8, 400, 0.1, seeds=4) == 1.0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_locked_accuracy_follows_the_surrogate(law):
    """24 seeds at V = 48: their standard error is up to 0.03, and the formula may be off by as much again."""
    d = 50 if law.get("embedding") == "orthogonal" else 40
    for N in (48, 400, 4000):
        drawn = surrogate.locked(48, N, d, 24, **law)
        assert abs(theory.locked_accuracy(48, N, d, **law) - drawn.mean()) < 0.03 + 2 * drawn.std() / 24**0.5, (law, N)


def test_orthogonal_accuracy_is_the_probability_that_it_says():
    """V = 2: without the trigger a label never seen is won by chance; with it, summed over the counts of both labels."""
    assert orthogonal_accuracy(2, 2, False) == pytest.approx(1 - 1 / 4 + 1 / 8)
    won = 0.0
    for own, other in product(range(40), range(80)):
        won += poisson.pmf(own, 3) * poisson.pmf(other, 3) * ((2 * own > other) + (2 * own == other) / 2)
    assert orthogonal_accuracy(2, 6, True) == pytest.approx(won, abs=1e-9)
    assert orthogonal_accuracy(64, 10**12, True) == pytest.approx(1)


@pytest.mark.parametrize("trigger", [True, False])
def test_a_wide_identity_mlp_is_attention_only(trigger):
    wide, none = keys(64, 10**9, "gaussian", trigger, "identity"), keys(64, 0, "gaussian", trigger, "none")
    for ours, theirs in zip(wide, none, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)
    narrow = keys(64, 32, "gaussian", trigger, "identity")
    np.testing.assert_allclose(narrow.spread / none.spread, 1 + 64 / 32, rtol=1e-6)


def test_the_quadratic_kernel_is_the_square_of_the_overlap():
    """Infinite width, no trigger, unit keys: kappa = rho^2, mean 1/d over tokens to leading order, variance 2/d^2."""
    kernel = keys(100, 10**9, "sphere", False, "quadratic")
    np.testing.assert_allclose(kernel.own, 1, atol=1e-3)
    np.testing.assert_allclose(kernel.spread, 2 / 100**2, rtol=1e-5)


def test_accuracy_grows_with_N_and_d_and_falls_with_V():
    for law in ({}, {"trigger_in_value": False}, {"embedding": "sphere"}, {"m": 64, "activation": "relu"}):
        by_N = [theory.accuracy(64, N, 48, 8, **law) for N in (64, 256, 1024, 4096, 2**30)]
        by_d = [theory.accuracy(64, 2048, d, 8, **law) for d in (16, 32, 64, 128)]
        by_V = [theory.accuracy(V, 2048, 48, 8, **law) for V in (32, 64, 128, 256)]
        assert by_N == sorted(by_N)
        assert by_d == sorted(by_d)
        assert by_V == sorted(by_V, reverse=True)


def test_accuracy_is_locked_accuracy_where_attention_is_right_and_chance_where_it_is_not():
    assert theory.accuracy(64, 4096, 64, 1) == theory.locked_accuracy(64, 4096, 64)
    assert theory.accuracy(64, 4096, 64, 4) == pytest.approx(theory.locked_accuracy(64, 4096, 64), abs=1e-3)
    assert theory.accuracy(64, 4096, 64, 4, kappa=1e-3) < 0.01  # a quarter of the mass on the informative token never leads
    for law in ({"embedding": "orthogonal", "activation": "relu"}, {"activation": "quadratic"}):  # no score noise: the locked value
        assert theory.accuracy(24, 512, 26, 4, m=32, **law) == theory.locked_accuracy(24, 512, 26, 32, **law)
    assert theory.accuracy(64, 256, 64, 512) < 0.2 * theory.locked_accuracy(64, 256, 64)


def test_critical_N_is_where_accuracy_crosses_or_infinite():
    for law in ({}, {"kappa": 30.0}, {"trigger_in_value": False}, {"m": 256, "activation": "relu", "trigger_in_value": False}):
        N = theory.critical_N(64, 64, 8, 0.5, **law)
        assert theory.accuracy(64, N * 0.98, 64, 8, **law) < 0.5 < theory.accuracy(64, N * 1.02, 64, 8, **law)
    assert theory.critical_N(64, 24, 8) == math.inf
    assert theory.critical_N(64, 48, 8, 0.9) == math.inf
    assert theory.critical_N(64, 48, 8, 0.5) < math.inf
    assert theory.critical_N(8, 400, 2, 0.05, trigger_in_value=False) == 1.0


def test_far_above_the_edge_critical_N_goes_like_V2_over_d():
    """Well above d = 2 sqrt(V log V): the exponent of V nears 2, with the trigger out of the value path 1."""
    d = 65536
    slope = [math.log2(theory.critical_N(2048, d, 8, 0.5, **law) / theory.critical_N(1024, d, 8, 0.5, **law)) for law in LAWS[:2]]
    assert slope[1] == pytest.approx(1, abs=0.05)
    assert 1 < slope[0] < 1.3  # d >> V: the count noise no longer interferes, N* ~ V log V
    narrow = [theory.critical_N(V, round(6 * math.sqrt(V * math.log(V))), 8) for V in (512, 2048)]
    widths = [round(6 * math.sqrt(V * math.log(V))) for V in (512, 2048)]
    law = math.log(narrow[1] * widths[1] / (narrow[0] * widths[0]), 4)
    assert 1.8 < law < 2.4


def test_score_noise_has_its_limits():
    noise = theory.score_noise(128, 10**9, 64, 16)
    assert noise.leading == "leakage"
    assert noise.snr == pytest.approx(8, rel=0.02)
    assert theory.score_noise(128, 256, 16, 128).leading == "mean_bias"
    assert theory.score_noise(128, 1024, 130, 16, embedding="orthogonal").leading == "gradient"
    narrow, wide = (theory.score_noise(64, 4096, 256, 16, m=m, activation="relu") for m in (16, 256))
    assert narrow.mlp > 3 * wide.mlp > 0
    bias = 256 / (2**20 * 128) * math.sqrt(2 + 3 * 4 + 8)  # L^2/(N V) sqrt(c + 3 c^2 + c^3)
    assert theory.score_noise(128, 2**20, 64, 16).mean_bias == pytest.approx(bias * 15 / 16, rel=0.05)
    fresh, same = (theory.score_noise(128, 2048, 64, 96, fresh_batches=fresh) for fresh in (True, False))
    assert fresh.mean_bias < 0.25 * same.mean_bias
    assert fresh.snr > 1.3 * same.snr
    assert theory.score_noise(64, 512, 48, 8).mlp == 0
    assert theory.score_noise(64, 512, 48, 8)._fields == ("mean_bias", "gradient", "leakage", "mlp")


def test_information_and_its_ceiling():
    assert information.information(64, 640, 10, 10) == pytest.approx(50 * math.log(2))
    assert information.fano_ceiling(64, 1, 2, 1000) == pytest.approx(1 / 64, rel=0.05)  # next to no nats: a guess
    assert information.fano_ceiling(64, 10**7, 64, 8) == 1.0
    for N in (100, 1000, 3000):
        K = 256 * information.fano_ceiling(256, N, 24, 16)
        assert K * math.log(K) - K + 1 == pytest.approx(information.information(256, N, 24, 16))
    by_N = [information.fano_ceiling(256, N, 24, 16) for N in (100, 300, 1000, 3000)]
    assert by_N == sorted(by_N)


def test_the_matched_filter_stays_below_what_information_allows_and_collapses_on_N_over_L():
    for V, N, d, L in [(64, 512, 32, 8), (128, 1024, 48, 16), (256, 2048, 64, 32), (256, 512, 24, 64)]:
        assert 1 / V < information.matched_filter_accuracy(V, N, d, L) < information.fano_ceiling(V, N, d, L)
    two = [information.matched_filter_accuracy(256, 512 * L, 64, L) for L in (8, 16)]
    assert two[0] == pytest.approx(two[1], abs=0.03)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: theory.locked_accuracy(1, 10, 10), "V: got 1"),
        (lambda: theory.locked_accuracy(10, 0, 10), "N: got 0"),
        (lambda: theory.locked_accuracy(10, 10, 10, embedding="cubic"), "embedding: got 'cubic'"),
        (lambda: theory.locked_accuracy(10, 10, 11, embedding="orthogonal"), "d >= V \\+ 2 = 12"),
        (lambda: theory.locked_accuracy(10, 10, 10, m=4), "activation: got 'none' with m=4"),
        (lambda: theory.score_noise(10, 10, 10, 1), "L: got 1"),
        (
            lambda: theory.score_noise(10, 10, 10, 4, m=4, activation="quadratic"),
            "m: got 4 with gaussian .* quadratic; covered",
        ),
        (lambda: theory.score_noise(10, 10, 12, 4, m=4, embedding="orthogonal", activation="relu"), "m: got 4 with orthogonal"),
        (lambda: theory.critical_N(10, 10, 4, 1.0), "theta: got 1.0"),
        (lambda: surrogate.critical_N(10, 10, 0.0), "theta: got 0.0"),
        (lambda: surrogate.locked(10, 10, 10, 2, m=4), "activation"),
        (lambda: information.information(10, 10, 10, 0), "L: got 0"),
        (lambda: information.matched_filter_accuracy(10, 10, 12, 4, "orthogonal"), "covered: gaussian, sphere"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(call, names):
    with pytest.raises(TheoryError, match=names):
        call()
