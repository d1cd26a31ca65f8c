"""Each shortcut against the full form: on both sides of its guard, at the guard, and where the guard is taken away."""

import numpy as np
import pytest
from helpers import METRICS, assert_same_metrics, relative, streamed

from jaxrecall import program, shortcuts, stream
from jaxrecall.bucket import Bucket
from jaxrecall.point import Point

ATTENTION = Point(V=30, N=3000, d=16, L=6, n_test=600)
MLP = ATTENTION.replace(m=32, activation="tanh")
SEED = 4


def both(point: Point):
    """(guarded, full) of a point: what was learned, and the metrics."""
    return [streamed(p, SEED, Bucket(32, 16, p.m, p.activation, p.exact)) for p in (point, point.replace(exact="full"))]


def difference(point: Point) -> tuple[float, str]:
    """Largest relative difference of V1, w, V2 between the guarded and the full form, and the form taken; metrics must agree."""
    (learned, metrics), (full, full_metrics) = both(point)
    assert full_metrics["form"] == "full"
    assert_same_metrics(metrics, full_metrics)
    return max(relative(a, b) for a, b in zip(learned, full, strict=True)), metrics["form"]


def crossing(point: Point, axis: str, low: float, high: float, part: int) -> tuple[float, float]:
    """Two values of `axis`, 0.1 % apart, between which the form of step 2 (part 0) or 3 (part 1) changes."""

    def form(value: float) -> str:
        changed = point.replace(**{axis: value})
        return streamed(changed, SEED, Bucket(32, 16, point.m, point.activation))[1]["form"].split("+")[part]

    first = form(low)
    assert form(high) != first
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if form(middle) == first else (low, middle)
    return low, high


@pytest.mark.parametrize(
    ("point", "forms"), [(ATTENTION, ("counts", "linear", "exact")), (MLP, ("uniform", "linear", "exact"))], ids=["attention", "mlp"]
)
def test_softmax_forms_agree_with_the_full_form_at_their_guards(point, forms):
    # kappa small enough that attention stays open, so that step 3 needs its softmax too
    point = point.replace(kappa=30)
    seen = []
    for first, (low, high) in zip(forms, ((1e-7, 3e-2), (1e-3, 10.0)), strict=False):
        below, above = crossing(point, "eta", low, high, 0)
        for eta in (below / 10, below, above, above * 2):
            error, form = difference(point.replace(eta=eta))
            assert error < 3e-6, (eta, form)
            seen.append(form.split("+")[0])
        assert seen[-3] == first
        assert seen[-2] != first
    assert set(seen) == set(forms)


def test_locked_attention_agrees_with_the_full_form_at_its_guard():
    point = ATTENTION.replace(eta=1e-6)
    below, above = crossing(point, "kappa", 30, 3000, 1)
    assert difference(point.replace(kappa=below))[1].endswith("+uniform")
    for kappa in (below, above, above * 10):
        assert difference(point.replace(kappa=kappa))[0] < 3e-6
    assert difference(point.replace(kappa=above))[1] == "counts+locked"
    full = both(point.replace(kappa=above))[1][1]
    assert full["attention_mass"] > 1 - 2e-7


UNGUARDED = [("TOLERANCE", 1e9, {"eta": 30}, 31), ("LOCKED_NATS", -100.0, {"kappa": 5}, 33)]


@pytest.mark.parametrize(("name", "value", "changes", "V"), UNGUARDED)
def test_without_its_guard_a_shortcut_shows(monkeypatch, name, value, changes, V):
    """The red side: a guard that lets everything through gives other numbers, so the tests above can fail."""
    monkeypatch.setattr(shortcuts, name, value)
    bucket = Bucket(V, 16, 0, "none")  # of its own, so that it is traced with the guard changed
    learned, _ = streamed(ATTENTION.replace(**changes), SEED, bucket)
    full, _ = streamed(ATTENTION.replace(**changes, exact="full"), SEED, Bucket(V, 16, 0, "none", "full"))
    assert max(relative(a, b) for a, b in zip(learned, full, strict=True)) > 1e-3


def test_bounds_bound():
    rng = np.random.default_rng(0)
    for n, rank in ((5, 5), (40, 3), (64, 64)):
        A = rng.normal(size=(n, rank)).astype(np.float32)
        true = np.linalg.eigvalsh((A @ A.T).astype(np.float64))[-1]
        bound = float(shortcuts.largest_eigenvalue(np.asarray(A @ A.T)))
        assert true * (1 - 1e-6) <= bound <= true * n ** (1 / 8) * (1 + 1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "quadratic", "identity"])
def test_features_stay_within_their_bound(activation):
    point = Point(V=30, N=1, d=16, L=1, m=32, activation=activation)
    world = stream.draw(program.argument(point, SEED), program.shape_of(Bucket(32, 16, 32, activation), 512))
    norms = np.linalg.norm(stream.features(world, stream.values(world))[0][:30], axis=1)
    bound = float(shortcuts.largest_feature(world))
    assert norms.max() <= bound <= 12 * norms.max()


def test_points_too_large_to_count_in_32_bits_run_the_full_form():
    assert Bucket.of(Point(V=64, N=2**25, d=8, L=64)).exact == "full"
    assert Bucket.of(Point(V=64, N=2**25 - 1, d=8, L=64)).exact == "guarded"
    assert not Bucket(64, 16, 0, "none").fits(Point(V=64, N=2**25, d=8, L=64))


def test_the_full_form_can_be_asked_for():
    row, full = program.simulate(ATTENTION, SEED), program.simulate(ATTENTION.replace(exact="full"), SEED)
    assert row["form"] != "full"
    assert full["form"] == "full"
    assert row["draw_check"] == full["draw_check"]
    assert {name: row[name] for name in METRICS if name.startswith("n_")} == {name: full[name] for name in METRICS if name.startswith("n_")}


def test_no_rate_overflows_an_attention_score():
    world = stream.draw(
        program.argument(ATTENTION, SEED)._replace(gamma_eta=np.float32(3e38)), program.shape_of(Bucket(32, 16, 0, "none"), 512)
    )
    scores = stream.attention_scores(world, 1e3 * world.e.z_trig)
    assert np.isfinite(scores.trigger + scores.token).all()
    assert np.isfinite(stream.attend(world, stream.keys.block_keys(world.streams[6], 0, 1), scores).h).all()
