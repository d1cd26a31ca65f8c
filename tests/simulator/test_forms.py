"""The cheap form against the full one: on both sides of its guards, at the guards, and
where a guard is removed.
"""

import helpers
import jax
import numpy as np
import pytest
from helpers import (
    METRICS,
    assert_same_metrics,
    combinations,
    drawn,
    quickly,
    relative,
    streamed,
)
from scipy.special import softmax

from jaxrecall import simulate
from jaxrecall.model import keys, task
from jaxrecall.model.laws.tokens import shares
from jaxrecall.model.point import FIELDS, Point
from jaxrecall.model.reference import steps
from jaxrecall.model.reference.metrics import measure
from jaxrecall.model.reference.realization import realize
from jaxrecall.simulator import error_bounds, forms, forward, locked_attention
from jaxrecall.simulator.forms import step2_error
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.sources import counts

ATTENTION = Point(V=30, N=3000, d=16, L=6, n_test=600)
MLP = ATTENTION.replace(m=32, activation="gelu")
ZIPF = ATTENTION.replace(tokens="zipf(s=0.5)", noise_tokens="zipf")
SEED = 4


def shape_of(point: Point) -> Shape:
    """With the guarded form also where the guard is expected to turn the point away."""
    return Shape.sized(point.replace(eta=1e-12), 32, 32, point.m)


def difference(point: Point) -> tuple[float, str]:
    """Largest relative difference of V1, w, V2 between the guarded and the full form,
    and the form taken; metrics must agree.
    """
    learned, metrics = streamed(point, SEED, shape_of(point))
    full, full_metrics = streamed(point, SEED, shape_of(point).fallback)
    assert full_metrics["form"] == "full"
    assert_same_metrics(metrics, full_metrics)
    return (
        max(relative(a, b) for a, b in zip(learned, full, strict=True)),
        metrics["form"],
    )


def crossing(point: Point, axis: str, low: float, high: float) -> tuple[float, float]:
    """Two values of `axis`, 0.1 % apart, between which the form changes."""

    def form(value: float) -> str:
        return streamed(point.replace(**{axis: value}), SEED, shape_of(point))[1][
            "form"
        ]

    first = form(low)
    assert form(high) != first
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if form(middle) == first else (low, middle)
    return low, high


KINDS = {
    "attention": ATTENTION,
    "mlp": MLP,
    "fresh": ATTENTION.replace(fresh_batches=True),
    "zipf": ZIPF,
}


# kappa: attention open, and locked, which is the same for an MLP and for fresh batches
@pytest.mark.parametrize(
    ("kind", "kappa"),
    combinations(
        KINDS,
        [10, 3000],
        often=lambda kind, kappa: kind == "attention" or (kind, kappa) == ("mlp", 10),
    ),
)
def test_uniform_predictions_agree_with_the_full_form_up_to_their_guard(kind, kappa):
    point = KINDS[kind].replace(kappa=kappa)
    below, above = crossing(point, "eta", 1e-8, 1.0)
    expected = "uniform" if point.m else "counts"
    for eta in (below / 10, below):
        error, form = difference(point.replace(eta=eta))
        assert form == f"{expected}+{'locked' if kappa > 100 else expected}"
        assert error < 1e-5, eta
    assert difference(point.replace(eta=above)) == (0.0, "full")


def test_locked_attention_agrees_with_the_full_form_at_its_guard():
    point = ATTENTION.replace(eta=1e-6)
    below, above = crossing(point, "kappa", 30, 3000)
    assert difference(point.replace(kappa=below))[1] == "counts+counts"
    for kappa in (below, above, above * 10):
        assert difference(point.replace(kappa=kappa))[0] < 3e-6
    assert difference(point.replace(kappa=above))[1] == "counts+locked"
    full = streamed(point.replace(kappa=above), SEED, shape_of(point).fallback)[1]
    assert full["attention_mass"] > 1 - 2e-7


@pytest.mark.parametrize(
    ("changes", "V"),
    [
        ({"eta": 30}, 32),
        pytest.param({"eta": 1e-6, "kappa": 5}, 33, marks=pytest.mark.slow),
    ],
    ids=["softmax", "locked"],
)
def test_without_its_guard_the_cheap_form_shows(monkeypatch, changes, V):
    """The red side: a guard that lets everything through gives other numbers, so the
    tests above can fail.
    """
    if V == 32:
        monkeypatch.setattr(forms.Form, "accepts", lambda *_: True)
    else:
        monkeypatch.setattr(locked_attention, "LOCKED_NATS", -100.0)
    # V = 33 is of its own, so that it is traced with the constant changed
    shape = Shape(V, 32, 0, "none", "counts")
    learned, metrics = streamed(ATTENTION.replace(**changes), SEED, shape)
    assert metrics["form"] != "full"
    full, _ = streamed(ATTENTION.replace(**changes), SEED, shape.fallback)
    assert max(relative(a, b) for a, b in zip(learned, full, strict=True)) > 1e-3


@pytest.mark.parametrize(
    "point",
    [ATTENTION, MLP, ATTENTION.replace(trigger_in_value=False)],
    ids=["attention", "mlp", "no trigger"],
)
def test_points_expected_beyond_the_guard_run_in_full_at_once(point):
    """Far beyond the expected error no run would have passed its guard, far below it
    all do, and they are guarded.
    """
    # eta at which the tolerance is expected, to leading order
    expected = 2.0**-20 / step2_error(point.replace(eta=1e-6)) * 1e-6
    for factor, passes in ((0.3, True), (3.0, False)):
        asked = point.replace(eta=factor * expected)
        own = Shape.sized(asked, 32, 32, point.m)
        assert own.trained_by.exact is not passes
        forms_taken = {
            streamed(asked, seed, shape_of(asked))[1]["form"] == "full"
            for seed in range(4)
        }
        assert forms_taken == {not passes}
    # nothing is foreseen: it is tried
    assert (
        Shape.rounded(
            point.replace(eta=3 * expected, embedding="orthogonal", d=40)
        ).form
        != "full"
    )


@pytest.mark.parametrize("eta", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("kappa", [3, 10])
@pytest.mark.parametrize(
    "point",
    [
        ATTENTION,
        MLP,
        pytest.param(MLP.replace(activation="quadratic"), marks=pytest.mark.slow),
        ATTENTION.replace(trigger_in_value=False),
        ZIPF,
        ZIPF.replace(m=32, activation="gelu"),
    ],
)
def test_bounds_bound(point, eta, kappa):
    """The guard's bounds against the residuals of the samples themselves, in float64;
    mean over samples, as the guard says it.
    """
    point = point.replace(eta=eta, kappa=kappa)
    world = drawn(point, SEED, shape_of(point))
    bounds = jax.device_get(helpers._train(world)[1]["errors"])
    r = realize(point, SEED).astype(np.float64)
    learned = steps.three_step(realize(point, SEED), point)
    x, ell, _ = r.samples(1)
    answers = r.Z_out @ learned.V1
    for bound, (w, table) in zip(
        bounds, ((np.zeros(point.d), answers), (learned.w, r.Z_out)), strict=True
    ):
        phi, _ = steps.features(r, point, steps.attend(r, point, x, ell, w)[0])
        off = (softmax(phi @ answers.T, axis=1) - 1 / point.V) @ table
        squares = ((table - table.mean(0)) ** 2).sum(1)[r.perm]
        true = np.linalg.norm(off, axis=1).mean() / np.sqrt(
            squares @ shares(point.token_laws[0], point.V)
        )
        assert true <= float(bound) <= 100 * true


@pytest.mark.parametrize(
    "point",
    [ATTENTION, pytest.param(MLP, marks=pytest.mark.slow)],
    ids=["attention", "mlp"],
)
def test_bounds_are_the_same_from_either_side(point):
    """Products of V x V or of d x d, whichever a program has smaller: two upper bounds
    on the same radius, 64^(1/32) apart at most.
    """

    def errors(V: int, d: int) -> np.ndarray:
        world = drawn(
            point.replace(kappa=3),
            SEED,
            Shape.sized(point.replace(eta=1e-12), V, d, point.m),
        )
        return np.array(jax.device_get(helpers._train(world)[1]["errors"]))

    assert np.max(np.abs(np.log(errors(32, 64) / errors(32, 32)))) < np.log(64) / 32


def test_the_radius_bound_is_above_the_largest_eigenvalue():
    rng = np.random.default_rng(0)
    for n, rank in ((5, 5), (40, 3), (64, 64)):
        A = rng.normal(size=(n, rank)).astype(np.float32)
        true = np.linalg.eigvalsh((A @ A.T).astype(np.float64))[-1]
        bound = float(error_bounds.radius_bound(np.asarray(A @ A.T)))
        assert true * (1 - 1e-6) <= bound <= true * n ** (1 / 32) * (1 + 1e-5)


def test_points_too_large_to_count_in_32_bits_run_the_full_form():
    assert Shape.rounded(Point(V=64, N=2**25, d=8, L=64)).form == "full"
    assert Shape.rounded(Point(V=64, N=2**25 - 1, d=8, L=64)).form == "counts"
    assert not Shape(64, 16, 0, "none", "counts").fits(Point(V=64, N=2**25, d=8, L=64))


@pytest.mark.parametrize("changes", [{}, {"m": 32}, {"pool": 16}], ids=str)
def test_a_point_with_a_field_that_no_shortcut_knows_runs_exact(changes, monkeypatch):
    point = ATTENTION.replace(eta=1e-6, **changes)
    exact = forms.FORMS["pool-full" if point.pool else "full"]
    assert not forms.form_for(point, 32).exact
    monkeypatch.setattr(forms, "KNOWN", forms.KNOWN - {"trigger_in_value"})
    assert not forms.form_for(point, 32).exact  # at its default
    assert forms.form_for(point.replace(trigger_in_value=False), 32) == exact


def test_shortcuts_have_looked_at_every_field():
    # their sums are by token, and they have one first step
    assert FIELDS.keys() - forms.KNOWN == {"label_noise", "first_steps"}
    assert not forms.BOUNDED & (forms.OF_ANY_VALUE | forms.AFTER_RECIPE)


@pytest.mark.parametrize(
    "changes", [{}, {"m": 32, "activation": "gelu"}, {"pool": 16}], ids=str
)
def test_no_rate_makes_an_exact_gradient_vanish(changes):
    """w over its rate, where float32 has no number left for eta^2."""
    usual, least = (
        ATTENTION.replace(eta=eta, exact="full", **changes) for eta in (1e-12, 1e-37)
    )
    found = [
        np.asarray(
            helpers._train(drawn(one, SEED, Shape.sized(one, 32, 32, one.m)))[0].w
        )
        for one in (usual, least)
    ]
    assert np.abs(found[1]).max() > 0
    assert relative(found[1], found[0]) < 1e-5


@pytest.mark.slow
def test_the_full_form_can_be_asked_for_and_is_fallen_back_to():
    point = ATTENTION.replace(eta=1e-6, d=20)
    row, full = simulate(point, SEED), simulate(point.replace(exact="full"), SEED)
    assert (row["form"], full["form"]) == ("counts+locked", "full")
    assert row["draw_check"] == full["draw_check"]
    assert {name: row[name] for name in METRICS if name.startswith("n_")} == {
        name: full[name] for name in METRICS if name.startswith("n_")
    }
    assert simulate(point.replace(eta=1.0), SEED)["form"] == "full"


def test_no_rate_overflows_an_attention_score():
    world = drawn(ATTENTION, SEED, shape_of(ATTENTION), attention_rate=np.float32(3e38))

    @quickly
    def scores_and_outputs(world):
        scores = forward.attention_scores(
            world, 1e3 * world.e.z_trig, world.run.attention_rate
        )
        blocks = keys.blocks(world.run.batches[0], 0, 1)
        return (
            scores.trigger + scores.token,
            forward.attend(
                world, blocks, task.tokens(blocks, 0, world.run.V), scores
            ).h,
        )

    scores, outputs = scores_and_outputs(world)
    assert np.isfinite(scores).all()
    assert np.isfinite(outputs).all()


mean_square_bound = quickly(counts.mean_square_bound)


@pytest.mark.parametrize("trigger_in_value", [True, False])
@pytest.mark.parametrize(("N", "most"), [(40, 2.2), (40_000, 1.04)])
def test_the_bound_on_the_outputs_is_just_above_them(N, most, trigger_in_value):
    """Mean |h|^2 of the samples, which a counted run does not compute."""
    point = ATTENTION.replace(N=N, trigger_in_value=trigger_in_value)
    for seed in range(8):
        r = realize(point, seed)
        h = (r.Z_in[r.train_tokens].sum(1) + trigger_in_value * r.z_trig) / point.L
        mean = np.mean(np.sum(h * h, axis=1))
        assert (
            mean < mean_square_bound(drawn(point, seed, shape_of(point))) < most * mean
        )


def test_the_bound_on_the_outputs_knows_informative_tokens_from_noise():
    """The first are nearly all one token, which hardly moves the mean of L = 6 tokens;
    noise would move it.
    """
    point = ATTENTION.replace(N=40_000, tokens="zipf(s=6)", noise_tokens="uniform")
    r = realize(point, SEED)
    h = (r.Z_in[r.train_tokens].sum(1) + r.z_trig) / point.L
    mean = np.mean(np.sum(h * h, axis=1))
    assert mean < mean_square_bound(drawn(point, SEED, shape_of(point))) < 1.04 * mean


def test_wide_rows_are_read_in_blocks_of_columns():
    """Of which a point reads those that it fills, two of three."""
    point = ATTENTION.replace(eta=1e-6, d=40, kappa=1)
    r = realize(point, SEED)
    _, metrics = streamed(point, SEED, Shape.sized(point, 32, 96, 0))
    assert metrics["form"] == "counts+counts"
    assert_same_metrics(metrics, measure(r, point, steps.three_step(r, point)))


def test_the_bound_on_the_outputs_of_orthogonal_rows_is_a_number():
    """Their mean is orthogonal to what they differ by, so a variance that is zero may
    come out negative.
    """
    for seed in range(20):
        point = ATTENTION.replace(V=13, d=15, embedding="orthogonal")
        assert np.isfinite(mean_square_bound(drawn(point, seed, shape_of(point))))
