"""Laws that the simulator must show: our theory, whose errors `pytest --slow -rP`
prints, and the collapse of step 1 on N / L.
"""

import numpy as np
import pytest
import surrogate
from helpers import executed

from jaxrecall import realize, theory, three_step
from jaxrecall.model.point import Point
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.theory import Model

pytestmark = pytest.mark.slow


def sample_points(
    n: int,
    top: tuple[float, float, float, float] = (8, 8, 7, 14),
    lead: str = "",
    room: float = 1,
    **law,
) -> list[Point]:
    """Points log-uniform in V, d, L, N from 2^5, 2^4, 2, 2^6 to 2^top, with N >= room
    V/2, N >= room 2 L^2/d and L < V, whose `lead`ing noise is as told; d = V + 2 for
    orthogonal embeddings. From a committed seed.
    """
    rng = np.random.default_rng(20261120)
    points: list[Point] = []
    while len(points) < n:
        V, d, L, N = (
            round(2 ** rng.uniform(low, high))
            for low, high in zip((5, 4, 1, 6), top, strict=True)
        )
        if law.get("embedding") == "orthogonal":
            d = V + 2
        if N >= room * max(V / 2, 2 * L**2 / d) and L < V and d <= 256:
            # random numbers of its own
            point = Point(V=V, N=N, d=d, L=L, n_test=1024, root_seed=len(points), **law)
            if (
                not lead
                or theory.score_noise(Model.from_point(point), N).leading == lead
            ):
                points.append(point)
    return points


def simulate_all(points: list[Point], seeds: range, shape: Shape) -> list[list[dict]]:
    guarded, full = program.compiled(shape), program.compiled(shape.fallback)

    def rows(runs: list[tuple[Point, int]]) -> list[dict]:
        return [
            m or executed(full, [run])[0]
            for run, m in zip(runs, executed(guarded, runs), strict=True)
        ]

    starts = range(0, len(seeds), guarded.batch)
    return [
        [
            row
            for k in starts
            for row in rows([(point, seed) for seed in seeds[k : k + guarded.batch]])
        ]
        for point in points
    ]


def mean_of(name: str, rows: list[dict]) -> float:
    return float(np.mean([row[name] for row in rows]))


def tell_errors(what: str, errors: list[float]) -> None:
    low, high = np.min(errors), np.max(errors)
    print(
        f"{what}, {len(errors)} points: mean |error| {np.mean(np.abs(errors)):.3f},"
        f" mean {np.mean(errors):.3f}, {low:.3f} to {high:.3f}"
    )


def snr_ratios(
    points: list[Point], rows: list[list[dict]], what: str
) -> tuple[float, float, float]:
    """Quartiles of measured / predicted snr."""
    ratios = [
        mean_of("snr", of) / theory.score_noise(Model.from_point(p), p.N).snr
        for p, of in zip(points, rows, strict=True)
    ]
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(
        f"measured / predicted snr, {what}, {len(points)} points: median {median:.3f},"
        f" quartiles {low:.3f} {high:.3f}"
    )
    return low, median, high


def test_snr_and_locked_accuracy_follow_the_theory():
    points = sample_points(12, lead="mean_bias") + sample_points(16, lead="leakage")
    rows = simulate_all(points, range(8), Shape(256, 256, 0, "none", "counts"))
    low, median, high = snr_ratios(points, rows, "attention-only")
    assert 0.9 <= median <= 1.1
    assert low >= 0.85
    assert high <= 1.2
    locked = [
        mean_of("accuracy", of) - theory.locked_accuracy(Model.from_point(p), p.N)
        for p, of in zip(points, rows, strict=True)
        if mean_of("attention_mass", of) > 0.95
    ]
    tell_errors("locked accuracy", locked)
    assert len(locked) >= 5
    assert np.mean(np.abs(locked)) <= 0.03


LAWS = [
    {"trigger_in_value": False},
    {"embedding": "sphere"},
    {"embedding": "orthogonal"},
    {"embedding": "orthogonal", "trigger_in_value": False},
    {"fresh_batches": True},
    {"fresh_batches": True, "trigger_in_value": False, "embedding": "sphere"},
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_snr_follows_the_theory_of_other_models(law):
    points = sample_points(12, **law)
    low, median, high = snr_ratios(
        points,
        simulate_all(points, range(8), Shape(256, 256, 0, "none", "counts")),
        str(law),
    )
    assert 0.9 <= median <= 1.1
    assert low >= 0.8
    assert high <= 1.2


@pytest.mark.parametrize(
    "law", [{}, {"trigger_in_value": False}, {"embedding": "sphere"}], ids=str
)
@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_snr_with_an_mlp_follows_the_theory(activation, law):
    points = sample_points(
        10, (6, 6, 5, 12), room=4, m=256, activation=activation, **law
    )
    rows = simulate_all(points, range(6), Shape(64, 64, 256, activation, "uniform"))
    _, median, _ = snr_ratios(points, rows, f"m = 256, {activation}, {law}")
    assert 0.85 <= median <= 1.15


@pytest.mark.parametrize("activation", ["identity", "relu", "gelu", "tanh"])
def test_mlp_noise_is_what_another_first_layer_changes(activation):
    """Scores off the trigger's direction, over their spread between 6 draws of W_in on
    the same data.
    """
    ratios = []
    for point in sample_points(
        8, (6, 6, 4.5, 11), room=4, m=192, activation=activation
    ):
        variances = []
        for seed in range(3):
            r = realize(point, seed)
            rng = np.random.default_rng(seed)
            redrawn = [r._replace(W_in=rng.normal(size=r.W_in.shape)) for _ in range(6)]
            learned = np.array([three_step(of, point).w for of in redrawn])
            scores, trigger = learned @ r.Z_in.T, (learned @ r.z_trig).mean()
            changed = scores - scores.mean(0)
            changed -= changed.mean(1, keepdims=True)
            leak = r.Z_in @ r.z_trig - (r.Z_in @ r.z_trig).mean()
            changed -= np.outer(changed @ leak, leak) / (leak @ leak)
            variances.append((changed**2).mean() * 6 / 5 / trigger**2)
        ratios.append(
            np.sqrt(np.mean(variances))
            / theory.score_noise(Model.from_point(point), point.N).mlp
        )
    print(
        f"measured / predicted MLP noise, {activation}, {len(ratios)} points:"
        f" {np.quantile(ratios, [0.25, 0.5, 0.75]).round(2)}"
    )
    assert 0.8 <= np.median(ratios) <= 2


def test_locked_accuracy_of_mlps_follows_the_surrogate():
    """The surrogate equals the simulator on the same counts (test_theory.py)."""
    errors = []
    sizes = (
        (64, 4096, 16, 64),
        (64, 4096, 16, 512),
        (64, 2048, 32, 64),
        (64, 512, 32, 256),
    )
    for activation in ("identity", "relu", "gelu", "tanh", "quadratic"):
        for embedding in ("gaussian", "sphere", "orthogonal"):
            for trigger in (True, False):
                law = {
                    "embedding": embedding,
                    "trigger_in_value": trigger,
                    "activation": activation,
                }
                for V, N, d, m in sizes:
                    d = V + 2 if embedding == "orthogonal" else d
                    model = Model(V=V, d=d, L=2, m=m, **law)
                    errors.append(
                        theory.locked_accuracy(model, N)
                        - surrogate.locked(model, N, 12).mean()
                    )
    print(
        f"locked accuracy with an MLP, {len(errors)} points: mean |error|"
        f" {np.mean(np.abs(errors)):.3f}, worst {np.max(np.abs(errors)):.3f}"
    )
    assert np.mean(np.abs(errors)) < 0.035


def test_accuracy_without_locked_attention_follows_the_theory():
    points = [
        p
        for law in ({}, {"trigger_in_value": False})
        for p in sample_points(120, (7, 7, 7, 13), **law)
    ]
    locked, predicted = (
        np.array([f(Model.from_point(p), p.N) for p in points])
        for f in (theory.locked_accuracy, theory.accuracy)
    )
    some = [
        p
        for p, is_open in zip(
            points, (predicted < 0.9 * locked) & (predicted > 0.05), strict=True
        )
        if is_open
    ][:24]
    rows = simulate_all(some, range(8), Shape(128, 128, 0, "none", "counts"))
    errors = [
        theory.accuracy(Model.from_point(p), p.N) - mean_of("accuracy", of)
        for p, of in zip(some, rows, strict=True)
    ]
    tell_errors("accuracy, attention not locked", errors)
    assert len(some) >= 10
    assert np.mean(np.abs(errors)) < 0.08


@pytest.mark.parametrize("theta", [0.5, 0.9])
def test_critical_N_follows_the_theory(theta):
    """Cells whose attention is locked, each with random numbers of its own; N* by
    interpolation of the mean over 32 seeds.
    """
    cells = [
        {"V": V, "d": round(a * np.sqrt(V * np.log(V))), "L": L}
        for V in (48, 96)
        for a, L in ((3, 4), (4.5, 16), (7, 8))
    ]
    laws = [
        {"embedding": embedding, "trigger_in_value": t}
        for embedding in ("gaussian", "sphere")
        for t in (True, False)
    ]
    logs = []
    for root_seed, (cell, law) in enumerate(
        (cell, law) for cell in cells for law in laws
    ):
        model = Model(**cell, **law)
        predicted = theory.critical_N(model, theta)
        if predicted == np.inf:
            continue
        levels = [round(predicted * 2**k) for k in (-1.5, -0.75, 0, 0.75, 1.5)]
        points = [
            Point(N=N, n_test=512, root_seed=root_seed, **cell, **law) for N in levels
        ]
        rows = simulate_all(points, range(32), Shape(96, 160, 0, "none", "counts"))
        means = np.maximum.accumulate([mean_of("accuracy", of) for of in rows])
        assert means[0] < theta < means[-1], (cell, law)
        # small N, where the trigger is out of the value path
        if mean_of("attention_mass", rows[2]) < 0.95:
            continue
        N_star = float(np.exp(np.interp(theta, means, np.log(levels))))
        logs.append(np.log(predicted / N_star))
    assert len(logs) >= 12
    middle, off = np.median(logs), np.median(np.abs(logs))
    print(
        f"critical N at {theta}, predicted / measured, {len(logs)} cells: median |ln|"
        f" {off:.3f}, median ln {middle:.3f}"
    )
    assert off < 0.1


def test_the_matched_filter_follows_the_theory():
    points = [
        Point(V=V, N=rate * V, d=d, L=L, n_test=1, embedding=embedding, root_seed=rate)
        for embedding in ("gaussian", "sphere")
        for V, d in ((64, 32), (128, 64), (128, 128))
        for rate, L in ((4, 4), (16, 16), (64, 64), (64, 8))
    ]
    rows = simulate_all(points, range(12), Shape(128, 128, 0, "none", "counts"))
    errors = [
        theory.matched_filter_accuracy(Model.from_point(p), p.N)
        - mean_of("step1_memory_accuracy", of)
        for p, of in zip(points, rows, strict=True)
    ]
    tell_errors("matched filter", errors)
    assert np.mean(np.abs(errors)) < 0.03


@pytest.mark.parametrize(
    ("V", "d", "ratio", "lengths"),
    [
        (256, 64, 512, (8, 16, 32)),
        (256, 128, 256, (16, 32, 64)),
        (256, 128, 1024, (8, 16, 32)),
    ],
)
def test_step_one_collapses_on_samples_over_length(V, d, ratio, lengths):
    """At N / V >= 16, that is: below, the counts of the labels themselves are noisy and
    accuracy is lower at small L.
    """
    points = [Point(V=V, N=ratio * L, d=d, L=L, n_test=1) for L in lengths]
    rows = simulate_all(points, range(20), Shape(256, 128, 0, "none", "counts"))
    means = [
        float(np.mean([row["step1_memory_accuracy"] for row in of])) for of in rows
    ]
    print(
        f"V {V}, d {d}, N / L = {ratio}, L = {lengths}: step-1 memory accuracy {means}"
    )
    assert 0.05 < means[0] < 0.98
    assert max(means) - min(means) < 0.03
