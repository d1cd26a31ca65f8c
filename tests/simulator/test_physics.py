"""Laws that the simulator must show: our theory, whose errors `pytest --slow -rP`
prints, and the collapse of step 1 on N / L.
"""

import numpy as np
import pandas as pd
import pytest
import surrogate
from cases import cases
from test_fit import crossed

import jaxrecall
from jaxrecall import Point, realize, theory
from jaxrecall.model.reference import three_step
from jaxrecall.theory import Model
from jaxrecall.theory.distributions import quantiles
from jaxrecall.theory.locked import recall
from jaxrecall.theory.overlaps import KeyOverlaps, Reading

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
        V, d, L, N = (2 ** rng.uniform((5, 4, 1, 6), top)).round().astype(int).tolist()
        if law.get("embedding") == "orthogonal":
            d = V + 2
        if N < room * max(V / 2, 2 * L**2 / d) or L >= V or d > 256:
            continue
        # random numbers of its own
        point = Point(V=V, N=N, d=d, L=L, n_test=1024, streams="independent", **law)
        if not lead or predicted_noise(point).leading == lead:
            points.append(point)
    return points


def predicted_noise(point: Point):
    return theory.score_noise(Model(point), point.N)


def measured(points: list[Point], n_seeds: int) -> pd.DataFrame:
    """The means over seeds of each point."""
    rows = jaxrecall.run(points, seeds=n_seeds, progress=False)
    means = rows.groupby("point_id").mean(numeric_only=True)
    return means.loc[[point.point_id for point in points]]


def predicted(law, points: list[Point]) -> np.ndarray:
    return np.array([law(Model(point), point.N) for point in points])


def error_of(what: str, differences) -> float:
    """The mean |error|, which is printed."""
    error = float(np.mean(np.abs(differences)))
    print(
        f"{what}, {len(differences)} points: mean |error| {error:.3f}, mean"
        f" {np.mean(differences):.3f}, {min(differences):.3f} to {max(differences):.3f}"
    )
    return error


def check_snr(
    points: list[Point], means: pd.DataFrame, lowest: float, off: float, what: object
) -> None:
    """The median of measured / predicted snr is off by so much at most, and its lower
    quartile is no lower.
    """
    ratios = means["snr"] / [predicted_noise(point).snr for point in points]
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(
        f"measured / predicted snr, {what}, {len(points)} points: median {median:.3f},"
        f" quartiles {low:.3f} {high:.3f}"
    )
    assert abs(median - 1) <= off
    assert lowest <= low
    assert high <= 1.2


def test_snr_and_locked_accuracy_follow_the_theory():
    points = sample_points(12, lead="mean_bias") + sample_points(16, lead="leakage")
    means = measured(points, 8)
    check_snr(points, means, 0.85, 0.1, "attention-only")
    locked = means["accuracy"] - predicted(theory.locked_accuracy, points)
    locked = locked[means["attention_mass"] > 0.95]
    assert len(locked) >= 5
    assert error_of("locked accuracy", locked) <= 0.03


LAWS = cases("""
- {trigger_in_value: false}
- {embedding: sphere}
- {embedding: orthogonal}
- {embedding: orthogonal, trigger_in_value: false}
- {fresh_batches: true}
- {fresh_batches: true, trigger_in_value: false, embedding: sphere}
""")


@pytest.mark.parametrize("law", LAWS)
def test_snr_follows_the_theory_of_other_models(law):
    points = sample_points(12, **law)
    check_snr(points, measured(points, 8), 0.8, 0.1, law)


@pytest.mark.parametrize(
    "law", cases("[{}, {trigger_in_value: false}, {embedding: sphere}]")
)
@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_snr_with_an_mlp_follows_the_theory(activation, law):
    law = law | {"m": 256, "activation": activation}
    points = sample_points(10, (6, 6, 5, 12), room=4, **law)
    check_snr(points, measured(points, 6), 0, 0.15, law)


@pytest.mark.parametrize("activation", ["identity", "relu", "gelu", "tanh"])
def test_mlp_noise_is_what_another_first_layer_changes(activation):
    """Scores off the trigger's direction, over their spread between 6 draws of W_in on
    the same data.
    """
    ratios = []
    law = {"m": 192, "activation": activation}
    for point in sample_points(8, (6, 6, 4.5, 11), room=4, **law):
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
        ratios.append(np.sqrt(np.mean(variances)) / predicted_noise(point).mlp)
    print(
        f"measured / predicted MLP noise, {activation}, {len(ratios)} points:"
        f" {np.quantile(ratios, [0.25, 0.5, 0.75]).round(2)}"
    )
    assert 0.8 <= np.median(ratios) <= 2


def test_locked_accuracy_of_mlps_follows_the_surrogate():
    """The surrogate equals the simulator on the same counts (test_theory.py)."""
    axes = {
        "activation": ["identity", "relu", "gelu", "tanh", "quadratic"],
        "embedding": ["gaussian", "sphere", "orthogonal"],
        "trigger_in_value": [True, False],
        "size": [(64, 4096, 16, 64), (64, 4096, 16, 512), (64, 2048, 32, 64)],
    }
    axes["size"].append((64, 512, 32, 256))
    errors = []
    for law in crossed(**axes).to_dict("records"):
        V, N, d, m = law.pop("size")
        d = V + 2 if law["embedding"] == "orthogonal" else d
        model = Model(V=V, d=d, L=2, m=m, **law)
        accuracy = theory.locked_accuracy(model, N)
        errors.append(accuracy - surrogate.locked(model, N, 12).mean())
    assert error_of("locked accuracy with an MLP", errors) < 0.035


def test_accuracy_without_locked_attention_follows_the_theory():
    top = (7, 7, 7, 13)
    points = sample_points(120, top) + sample_points(120, top, trigger_in_value=False)
    accuracy = predicted(theory.accuracy, points)
    is_open = accuracy < 0.9 * predicted(theory.locked_accuracy, points)
    some = [points[i] for i in np.flatnonzero(is_open & (accuracy > 0.05))[:24]]
    assert len(some) >= 10
    errors = predicted(theory.accuracy, some) - measured(some, 8)["accuracy"]
    assert error_of("accuracy, attention not locked", errors) < 0.08


@pytest.mark.filterwarnings("ignore:theta")
@pytest.mark.parametrize("theta", [0.5, 0.9])
def test_critical_N_follows_the_theory(theta):
    """Cells whose attention is locked, each with random numbers of its own; N* by
    interpolation of the mean over 32 seeds.
    """
    cells = crossed(
        V=[48, 96],
        of_cell=[(3, 4), (4.5, 16), (7, 8)],
        embedding=["gaussian", "sphere"],
        trigger_in_value=[True, False],
    )
    logs = []
    for root_seed, cell in enumerate(cells.to_dict("records")):
        a, cell["L"] = cell.pop("of_cell")
        cell["d"] = round(a * np.sqrt(cell["V"] * np.log(cell["V"])))
        at = theory.critical_N(Model(**cell), theta)
        if at == np.inf:
            continue
        levels = [round(at * 2**k) for k in (-1.5, -0.75, 0, 0.75, 1.5)]
        cell |= {"n_test": 512, "root_seed": root_seed}
        means = measured([Point(N=N, **cell) for N in levels], 32)
        accuracies = np.maximum.accumulate(means["accuracy"])
        assert accuracies.iloc[0] < theta < accuracies.iloc[-1], cell
        # small N, where the trigger is out of the value path
        if means["attention_mass"].iloc[2] < 0.95:
            continue
        logs.append(np.log(at) - np.interp(theta, accuracies, np.log(levels)))
    assert len(logs) >= 12
    error_of(f"critical N at {theta}, ln of predicted / measured", logs)
    assert np.median(np.abs(logs)) < 0.1


def matched_filter(model, N):
    """The fraction of pi that argmax_u z_out(u)^T G z_in(v) recovers;
    docs/theory-derivations.md, section 7.3.
    """
    V, d, L = model.V, model.d, model.L
    q = quantiles(d, model.moments)
    A = q.key_length
    tokens = (L - 1) ** 2 / V  # mean squared length of L - 1 times the mean embedding
    common = np.sqrt(A * (tokens + model.trigger_in_value)) * q.cosine
    shared = A * (L - 1) / V + common
    return recall(model, N, KeyOverlaps(A, shared, A / d), Reading(stray=L - 1))


def test_the_matched_filter_follows_the_theory():
    cells = crossed(
        embedding=["gaussian", "sphere"],
        of_V=[(64, 32), (128, 64), (128, 128)],
        of_L=[(4, 4), (16, 16), (64, 64), (64, 8)],
    )
    points = []
    for embedding, (V, d), (rate, L) in cells.itertuples(index=False):
        fields = {"V": V, "N": rate * V, "d": d, "L": L, "embedding": embedding}
        points.append(Point(n_test=1, streams="independent", **fields))
    accuracy = measured(points, 12)["step1_memory_accuracy"]
    errors = predicted(matched_filter, points) - accuracy
    assert error_of("matched filter", errors) < 0.03


@pytest.mark.parametrize(
    ("d", "ratio", "shortest"), [(64, 512, 8), (128, 256, 16), (128, 1024, 8)]
)
def test_step_one_collapses_on_samples_over_length(d, ratio, shortest):
    """At N / V >= 16, that is: below, the counts of the labels themselves are noisy and
    accuracy is lower at small L.
    """
    lengths = shortest * np.array([1, 2, 4])
    points = [Point(V=256, N=ratio * L, d=d, L=L, n_test=1) for L in lengths.tolist()]
    means = measured(points, 20)["step1_memory_accuracy"]
    print(f"d {d}, N / L = {ratio}, L = {lengths}: {means.tolist()}")
    assert 0.05 < means.iloc[0] < 0.98
    assert means.max() - means.min() < 0.03
