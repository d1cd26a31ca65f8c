"""Laws that the simulator must show: our leading-order theory, and the collapse of step 1 on N / L."""

import numpy as np
import pytest

from jaxrecall import program, theory
from jaxrecall.bucket import Bucket
from jaxrecall.point import Point

pytestmark = pytest.mark.slow


def sample_points(n_bias: int, n_leakage: int) -> list[Point]:
    """Points log-uniform in V 32-256, d 16-256, L 2-128, N 2^8-2^14 with N >= V and N >= 2 L^2 / d, from a committed seed."""
    rng = np.random.default_rng(20261120)
    bias: list[Point] = []
    leakage: list[Point] = []
    while len(bias) < n_bias or len(leakage) < n_leakage:
        V, d, L, N = (round(2 ** rng.uniform(lo, hi)) for lo, hi in ((5, 8), (4, 8), (1, 7), (8, 14)))
        if N >= V and N >= 2 * L**2 / d:
            noise = theory.score_noise(V, N, d, L)
            kind, wanted = (bias, n_bias) if noise.mean_bias > noise.leakage else (leakage, n_leakage)
            if len(kind) < wanted:
                kind.append(Point(V=V, N=N, d=d, L=L))
    return bias + leakage


def simulate_all(points: list[Point], seeds: range, bucket: Bucket) -> list[list[dict]]:
    guarded, full = program.compiled(bucket), program.compiled(bucket.in_full)

    def rows(runs: list[tuple[Point, int]]) -> list[dict]:
        return [m or program.execute(full, [run])[0][0] for run, m in zip(runs, program.execute(guarded, runs)[0], strict=True)]

    halves = [seeds[: guarded.batch], seeds[guarded.batch :]]
    return [[row for half in halves if half for row in rows([(point, seed) for seed in half])] for point in points]


def test_snr_and_locked_accuracy_follow_the_theory():
    points = sample_points(n_bias=12, n_leakage=16)
    rows = simulate_all(points, range(4), Bucket(256, 256, 0, "none"))
    snr = [np.mean([row["snr"] for row in of]) / theory.score_noise(p.V, p.N, p.d, p.L).snr for p, of in zip(points, rows, strict=True)]
    low, median, high = np.quantile(snr, [0.25, 0.5, 0.75])
    print(f"measured / predicted snr over {len(points)} points: median {median:.3f}, quartiles {low:.3f} {high:.3f}")
    assert 0.85 <= median <= 1.15
    assert low >= 0.75
    assert high <= 1.3
    locked = [
        np.mean([row["accuracy"] for row in of]) - theory.locked_accuracy(p.V, p.N, p.d)
        for p, of in zip(points, rows, strict=True)
        if np.mean([row["attention_mass"] for row in of]) > 0.95
    ]
    print(f"mean |accuracy error| over {len(locked)} locked points: {np.mean(np.abs(locked)):.4f}")
    assert len(locked) >= 5
    assert np.mean(np.abs(locked)) <= 0.05


@pytest.mark.parametrize(
    ("V", "d", "ratio", "lengths"), [(256, 64, 512, (8, 16, 32)), (256, 128, 256, (16, 32, 64)), (256, 128, 1024, (8, 16, 32))]
)
def test_step_one_collapses_on_samples_over_length(V, d, ratio, lengths):
    """At N / V >= 16, that is: below, the counts of the labels themselves are noisy and accuracy is lower at small L."""
    points = [Point(V=V, N=ratio * L, d=d, L=L, n_test=1) for L in lengths]
    rows = simulate_all(points, range(20), Bucket(256, 128, 0, "none"))
    means = [float(np.mean([row["step1_memory_accuracy"] for row in of])) for of in rows]
    print(f"V {V}, d {d}, N / L = {ratio}, L = {lengths}: step-1 memory accuracy {means}")
    assert 0.05 < means[0] < 0.98
    assert max(means) - min(means) < 0.03
