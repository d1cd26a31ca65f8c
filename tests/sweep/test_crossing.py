"""The estimate of a crossing: known curves are read off, and what changes nothing in
the runs changes nothing in it.
"""

import math

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm
from tolerances import assert_close

from jaxrecall.sweep.crossing import MIN_SEEDS, AnyCurve, Crossing, Curve, of_measure
from jaxrecall.sweep.summary import Summary, parsed


def octaves(low, high, step):
    """ln of levels that are `step` eighths of an octave apart."""
    return np.log(2) * np.arange(8 * low, 8 * high + 1, step) / 8


def table(x, seeds, middle=7.0, slope=1.3, spread=0.0, noise=0.0, top=1.0, rng=0):
    """Accuracies (seeds, levels): each seed's curve is shifted, and each run again."""
    rng = np.random.default_rng(rng)
    shift = spread * rng.normal(size=(seeds, 1)) + noise * rng.normal(
        size=(seeds, len(x))
    )
    return top * expit(slope * (np.asarray(x) + shift - middle))


def some_tables(n, rng):
    """Tables of all kinds: few and many levels and seeds, gaps, humps, ceilings, seeds
    at one level alone.
    """
    for _ in range(n):
        levels, seeds = rng.integers([2, 1], [13, 25])
        x = 7 + rng.uniform(0.5, 4) * np.sort(rng.uniform(-1, 1, levels))
        middle, slope, top = rng.normal(7), rng.uniform(0.3, 8), rng.uniform(0.4, 1)
        accuracy = table(x, seeds, middle, slope, *rng.random(2), top, rng)
        accuracy = rng.binomial(64, accuracy) / 64
        if rng.random() < 0.5:
            gaps = rng.random(accuracy.shape) < 0.5
            gaps[rng.integers(seeds, size=levels), range(levels)] = False
            accuracy[gaps] = np.nan
        yield x, accuracy, float(rng.choice([0.2, 0.5, 0.8]))


@pytest.mark.parametrize("theta", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_curve_without_noise_is_read_off_exactly(theta, step):
    x = octaves(5, 15, step)
    found = Curve(x, table(x, 6)).crossing(theta)
    # by the small penalty of the slope, where the curve is not steepest
    shrunk = 0 if theta == 0.5 or step == 8 else 5e-3
    assert_close(found.log_x, 7 + logit(theta) / 1.3, 2e-5 + shrunk)
    assert_close(found.slope, 1.3, 0.05)
    assert (found.n_seeds, found.side, found.is_open) == (6, 0, (False, False))
    # seeds agree, but what lies between the levels is unknown
    assert found.lo < found.log_x < found.hi
    assert found.width < 0.02 * step**2


def test_the_curve_follows_the_measured_means_where_it_levels_off():
    """One logistic curve through all levels would lie far from these."""
    x = octaves(3, 16, 4)
    mean = 0.1 + 0.55 * expit(3 * (x - 7))
    curve = Curve(x, np.tile(mean, (6, 1)))
    assert abs(expit(curve.logits) - mean).max() < 0.04
    assert_close(expit(curve.smooth(curve.crossing(0.5).log_x)), 0.5, "roots")
    assert_close(curve.crossing(0.5).log_x, np.interp(0.5, mean, x), 0.1)
    assert curve.crossing(0.7).log_x == math.inf


def test_levels_far_away_change_nothing():
    """At 16 and at 2^20; of the interval only the unknown shape sees them."""
    x = octaves(9, 11, 2)
    near = table(x, 12, spread=0.4, noise=0.2)
    far = np.log([16.0, 2.0**20])
    wide = np.full((12, len(x) + 2), np.nan)
    wide[:, 1:-1] = near
    wide[:, [0, -1]] = [0.0, 0.6]
    found = Curve(x, near).crossing(0.5)
    other = Curve([far[0], *x, far[1]], wide).crossing(0.5)
    assert_close(other.log_x, found.log_x, "roots")
    assert_close(other[1:3], found[1:3], 5e-3)
    assert_close(other[3:5], found[3:5], "roots")


def test_a_curve_on_one_side_of_theta_does_not_cross():
    x = np.log([100, 200, 400])
    for middle, side in ((9.0, 1), (2.0, -1)):
        found = Curve(x, table(x, 9, middle)).crossing(0.5)
        assert (found.log_x, found.side) == (side * math.inf, side)
    falling = Curve(x, 1 - table(x, 9, 5.3)).crossing(0.5)
    assert falling.side == 1
    assert Curve([5.0], [[0.3]] * 7).crossing(0.5).side == 1
    assert Curve([5.0], [[0.7]] * 7).crossing(0.5).side == -1


def test_there_is_no_interval_of_few_seeds():
    x = octaves(8, 12, 4)
    for seeds in (1, 3, MIN_SEEDS - 1, MIN_SEEDS):
        found = Curve(x, table(x, seeds, spread=0.3)).crossing(0.5)
        assert found.n_seeds == seeds
        assert math.isfinite(found.log_x)
        assert math.isfinite(found.width) == (seeds >= MIN_SEEDS)
    far = np.full((12, len(x)), np.nan)
    far[:4], far[4:, 0] = table(x, 4, spread=0.3), 0.01
    # eight more are too far away to say anything
    assert Curve(x, far).crossing(0.5).n_seeds == 4


def test_an_end_that_no_level_vouches_for_is_open():
    x = np.log([800, 1600])
    found = Curve(x, table(x, 20, slope=0.05, noise=1.5, rng=3)).crossing(0.5)
    assert found.is_open == (True, True)
    shift = np.random.default_rng(0).normal(size=(8, 1))
    flat = np.tile([0.1, 0.3, 0.49, 0.5, 0.51], (8, 1)) + 0.1 * (shift - shift.mean())
    found = Curve(octaves(6, 10, 8), flat).crossing(0.5)
    assert found.is_open == (False, True)


def test_the_point_is_in_its_interval_whatever_the_table():
    crossings = [
        (accuracy, Curve(x, accuracy).crossing(theta))
        for x, accuracy, theta in some_tables(300, np.random.default_rng(0))
    ]
    finite = [(accuracy, found) for accuracy, found in crossings if found.side == 0]
    assert len(finite) > 100
    for accuracy, found in finite:
        assert found.lo <= found.log_x <= found.hi
        assert found.width > 0
        assert not math.isnan(found.width)
        assert (found.width < math.inf) <= (found.n_seeds >= MIN_SEEDS)
        assert found.without.shape == (len(accuracy),)
        assert np.isfinite(found.without).all()
    assert sum(found.width < math.inf for _, found in finite) > 60


def test_a_level_that_moves_by_a_hair_moves_the_result_by_a_hair():
    """Also across another level, which was half a hair away."""
    hair, n_compared = 1e-9, 0
    for x, accuracy, theta in some_tables(80, np.random.default_rng(1)):
        for i in range(len(x)):
            other = np.random.default_rng(i).integers(len(x))
            moved = np.tile(x, (2, 1))
            if other != i and i % 2:
                moved[:, i] = x[other] - hair / 2
            moved[1, i] += hair
            before, after = (
                Curve(at[order], accuracy[:, order]).crossing(theta)
                for at, order in zip(moved, moved.argsort(axis=1), strict=True)
            )
            assert after.side == before.side
            if before.side == 0:
                n_compared += 1
                assert_close(after.log_x, before.log_x, 5e-6)
                # ends are known less, where the curve is flat
                assert_close([after.lo, after.hi], [before.lo, before.hi], 5e-5)
    assert n_compared > 200


def test_the_interval_is_that_of_students_t_where_seeds_differ_by_a_shift():
    """The jackknife of a mean is its standard error."""
    x = octaves(9, 11, 1)
    shifts = 0.02 * np.random.default_rng(0).normal(size=(10, 1))
    found = Curve(x, expit(1.3 * (x - 7 - shifts))).crossing(0.5)
    assert_close(found.log_x, 7 + shifts.mean(), 5e-4)
    # t with 8 degrees of freedom: the curve has a slope too
    half = 2.306 * shifts.std(ddof=1) / math.sqrt(10)
    assert_close(found.width / 2, half, 0.1 * half)
    assert_close(found.without, (shifts.mean() - shifts[:, 0]) / 9, 5e-4)


def test_what_is_unknown_between_two_levels_is_in_the_interval():
    """Normal over the shapes that the curve may have, and anywhere if all of the rise
    is there.
    """
    x = np.log([100, 200, 400, 800])
    found = Curve(x, np.tile([0.02, 0.1, 0.7, 0.9], (8, 1))).crossing(0.5)
    uniform = np.linspace(found.shapes.min(), found.shapes.max(), 10001)
    spread = np.sqrt(((uniform - found.log_x) ** 2).mean())
    assert_close(found.shape_error, spread, 2e-3 * spread)
    assert found.width / 2 > norm.ppf(0.975) * found.shape_error
    jump = Curve(x, np.tile([0.0, 0.0, 1.0, 1.0], (8, 1))).crossing(0.5)
    assert_close(jump.step, math.log(2), 0.05)
    assert jump.shape_error >= math.log(2) / math.sqrt(12) * 0.95
    assert jump.lo < x[1] + 0.01
    assert jump.hi > x[2] - 0.01
    assert Crossing(math.inf).shape_error == 0


@pytest.mark.parametrize("slopes", [(3, 0.3), (0.3, 3)])
@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("step", [4, 8])
def test_a_kink_may_be_anywhere_between_its_levels(slopes, place, step):
    """The curve is steep below theta and slow above, or the reverse. Levels half an
    octave apart are blurred, and those an octave apart hide the kink.
    """
    x = octaves(5, 13, step)
    kink = x[len(x) // 2] + place * (x[1] - x[0])
    below, above = slopes
    logits = np.where(x < kink, below * (x - kink), above * (x - kink))
    shifts = 0.1 * np.random.default_rng(0).normal(size=(24, 1))
    found = Curve(x, expit(logits + shifts - shifts.mean())).crossing(0.5)
    assert found.lo < kink < found.hi
    assert found.width < 1.6


def test_the_curve_follows_means_that_differ_by_more_than_noise():
    """A jump between levels a quarter of an octave apart is not blurred; noise is."""
    x = octaves(8, 12, 2)
    rng = np.random.default_rng(0)
    logits = np.where(x < 7, -1.4, 1.4) + 0.2 * rng.normal(size=(24, 1))
    curve = Curve(x, expit(logits))
    assert np.abs(curve.logits - logit(curve.mean)).max() < 0.1
    flat = 0.5 + 0.1 * rng.normal(size=(24, len(x)))
    noisy = Curve(x, flat)
    assert np.std(noisy.logits) < 0.8 * np.std(logit(noisy.mean))


@pytest.mark.parametrize("factor", [1.5, 1.6, 2.5])
@pytest.mark.parametrize("top", [1.0, 0.7])
def test_a_jump_may_be_anywhere_between_its_levels(factor, top):
    """Although the smooth curve blurs it where levels are nearer than an octave."""
    x = 5 + math.log(factor) * np.arange(8)
    found = Curve(
        x, np.tile([0.0, 0.0, 0.0, 0.001, top, top, top, top], (8, 1))
    ).crossing(0.5)
    assert found.lo < x[3] + 0.02
    assert found.hi > x[4] - 0.02
    assert found.width < 1.8 * math.log(factor)


def test_one_lucky_run_does_not_hide_the_seeds_beyond_it():
    """A run at 5000 crosses, and eight seeds beyond it say that the mean does not
    before some 8000.
    """
    pairs = [
        (range(4), ((4000, 0.40), (8000, 0.44))),
        (range(4, 8), ((6000, 0.46), (8000, 0.56))),
    ]
    runs = [
        (math.log(N), seed, mean)
        for seeds, pair in pairs
        for seed in seeds
        for N, mean in pair
    ]
    found = of_measure(
        *zip(*runs, (math.log(5000), 8, 0.9), strict=True), 0.5
    ).crossing(0.5)
    assert found.log_x > math.log(7000)


def test_of_several_crossings_it_takes_the_one_that_the_runs_support():
    """A hump well before the rise, and what lies between them far below theta."""
    x = octaves(4, 14, 8)
    accuracy = table(x, 20, middle=8.0, slope=3.0)
    accuracy[:, 1] = 0.6
    curve = Curve(x, accuracy)
    assert expit(curve.logits[1]) > 0.5
    assert_close(curve.crossing(0.5).log_x, 8, 0.2)


def test_how_far_a_curve_is_from_theta_beyond_its_last_level():
    x = octaves(6, 10, 4)
    assert_close(Curve(x, table(x, 6, middle=8.0)).reach(0.5), 8 - x[-1], 0.1)
    assert Curve(x, 1 - table(x, 6, middle=8.0)).reach(0.9) == math.inf
    assert Curve(x, table(x, 6, middle=5.0, slope=8.0, top=0.4)).reach(0.5) > 5
    assert Curve(x[:1], [[0.3]] * 6).reach(0.5) == 0


# measures that are no fractions


def test_a_curve_of_fractions_is_logistic_and_any_other_is_of_straight_lines():
    x, seed = np.log([1.0, 2.0, 1.0, 2.0]), [0, 0, 1, 1]
    assert isinstance(of_measure(x, seed, [0.1, 0.9, 0.2, 1.0], 0.5), Curve)
    for values, theta in (([0.1, 0.9, 0.2, 1.1], 0.5), ([0.1, 0.9, 0.2, 1.0], 2.0)):
        assert not isinstance(of_measure(x, seed, values, theta), Curve)


def test_the_mean_crosses_between_two_levels_and_its_ln_is_a_second_shape():
    def crossing(*means, seeds=8, falls=False, theta=4.0):
        x = np.log([1.0, 2.0, 4.0])
        return AnyCurve(x, np.tile(means, (seeds, 1)), falls).crossing(theta)

    found = crossing(1.0, 2.0, 8.0)
    assert_close(found.log_x, np.log(2) * 4 / 3)
    assert_close(np.sort(found.shapes), np.log(2) * np.array([4 / 3, 3 / 2]))
    falling = crossing(1 - 8.0, 1 - 2.0, 1 - 1.0, falls=True, theta=1 - 4.0)
    assert_close(falling.log_x, np.log(2) * 2 / 3)
    assert crossing(1.0, 2.0, 3.0).side == 1
    assert crossing(5.0, 6.0, 7.0).side == -1
    assert crossing(1.0, 2.0, 8.0, seeds=3).hi == np.inf


def test_the_standard_error_of_the_crossing_is_that_of_the_mean():
    """Shifts of whole curves by seeds: D log_x is the mean's change over the slope."""
    shifts = np.array([-0.3, -0.1, 0.0, 0.05, 0.1, 0.25])
    values = np.array([1.0, 3.0, 9.0]) + shifts[:, None]
    found = AnyCurve(np.log([1.0, 2.0, 4.0]), values).crossing(2.0)
    leave_one_out = np.sqrt(5 / 6 * (found.without**2).sum())
    slope = 2 / np.log(2)
    assert_close(leave_one_out, shifts.std(ddof=1) / np.sqrt(6) / slope)


def test_summaries_are_read_from_their_text():
    assert parsed("above 0.9") == Summary("above", 0.9)
    assert parsed("above -1e-3") == Summary("above", -1e-3)
    no_summaries = ("above", "above x", "mode", None, 3)
    assert {parsed(text) for text in no_summaries} == {None}
