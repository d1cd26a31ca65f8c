"""The cheap form against the full one, at its guards and on both sides of them."""

import helpers
import jax
import numpy as np
import pytest
from cases import cases
from helpers import assert_same_metrics, combinations, drawn, fits, quickly, streamed
from scipy.special import softmax
from tolerances import assert_close

from jaxrecall import Point, realize
from jaxrecall.model import keys
from jaxrecall.model.laws.tokens import token_probabilities
from jaxrecall.model.point import FIELDS
from jaxrecall.model.reference import steps, three_step
from jaxrecall.simulator import error_bounds, forms, forward
from jaxrecall.simulator.forms import step2_error
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.sources import counts

ATTENTION = Point(V=30, N=3000, d=16, L=6, n_test=600)
MLP = ATTENTION.replace(m=32, activation="gelu")
ZIPF = ATTENTION.replace(tokens="zipf(s=0.5)", noise_tokens="zipf")
NO_TRIGGER = ATTENTION.replace(trigger_in_value=False)
SEED = 4


def shape_of(point: Point, d: int = 32) -> Shape:
    """With the guarded form also where the guard is expected to turn the point away."""
    return Shape.sized(point.replace(eta=1e-12), 32, d, point.m)


def form_of(point: Point, seed: int = SEED) -> str:
    return streamed(point, seed, shape_of(point))[1]["form"]


def checked_form(point: Point, error: float) -> str:
    """The form of a run, which agrees with the full one as closely as this."""
    learned, metrics = streamed(point, SEED, shape_of(point))
    full, full_metrics = streamed(point, SEED, shape_of(point).fallback)
    assert full_metrics["form"] == "full"
    assert_same_metrics(metrics, full_metrics)
    for one, other in zip(learned, full, strict=True):
        assert_close(one, other, error * np.abs(other).max())
    return metrics["form"]


def crossing(point: Point, axis: str, low: float, high: float) -> tuple[float, float]:
    """Two values of `axis`, 0.1 % apart, between which the form changes."""

    def form(value: float) -> str:
        return form_of(point.replace(**{axis: value}))

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
        often=lambda kind, kappa: kind == "attention",
    ),
)
def test_uniform_predictions_agree_with_the_full_form_up_to_their_guard(kind, kappa):
    point = KINDS[kind].replace(kappa=kappa)
    below, above = crossing(point, "eta", 1e-8, 1.0)
    first = "uniform" if point.m else "counts"
    expected = f"{first}+{'locked' if kappa > 100 else first}"
    for eta, form in ((below / 10, expected), (below, expected), (above, "full")):
        assert checked_form(point.replace(eta=eta), 2e-5) == form


def test_locked_attention_agrees_with_the_full_form_at_its_guard():
    point = ATTENTION.replace(eta=1e-6)
    below, above = crossing(point, "kappa", 30, 3000)
    forms = [
        checked_form(point.replace(kappa=kappa), 6e-6)
        for kappa in (below, above, above * 10)
    ]
    assert forms == ["counts+counts", "counts+locked", "counts+locked"]
    full = streamed(point.replace(kappa=above), SEED, shape_of(point).fallback)[1]
    assert_close(full["attention_mass"], 1, 4e-7)


@pytest.mark.parametrize(
    "point",
    [ATTENTION, pytest.param(MLP, marks=pytest.mark.slow), NO_TRIGGER],
    ids=["attention", "mlp", "no trigger"],
)
def test_points_expected_beyond_the_guard_run_in_full_at_once(point):
    """Far beyond the expected error no run would have passed its guard, far below it
    all do, and they are guarded.
    """
    # eta at which the tolerance is expected, to leading order
    expected = 2.0**-20 / step2_error(point.replace(eta=1e-6)) * 1e-6
    for factor, passes in ((0.3, True), (3.0, False)):
        near = point.replace(eta=factor * expected)
        assert Shape.rounded(near).trained_by.exact is not passes
        assert {form_of(near, seed) != "full" for seed in range(4)} == {passes}
    # nothing is foreseen: it is tried
    unknown = near.replace(embedding="orthogonal", d=40)
    assert not Shape.rounded(unknown).trained_by.exact


@pytest.mark.parametrize("eta", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("kappa", [3, 10])
@pytest.mark.parametrize(
    "point",
    [
        ATTENTION,
        MLP,
        NO_TRIGGER,
        ZIPF,
        pytest.param(MLP.replace(activation="quadratic"), marks=pytest.mark.slow),
        pytest.param(ZIPF.replace(m=32, activation="gelu"), marks=pytest.mark.slow),
    ],
)
def test_bounds_bound(point, eta, kappa):
    """The guard's bounds against the residuals of the samples themselves, in float64;
    mean over samples, as the guard says it.
    """
    point = point.replace(eta=eta, kappa=kappa)
    r = realize(point, SEED).astype(np.float64)
    learned = three_step(r, point)
    x, ell, _ = r.samples(1)
    answers = r.Z_out @ learned.V1
    of_steps = (np.zeros(point.d), answers), (learned.w, r.Z_out)
    for bound, (w, table) in zip(errors(point), of_steps, strict=True):
        phi, _ = steps.features(r, point, steps.attend(r, point, x, ell, w)[0])
        residuals = (softmax(phi @ answers.T, axis=1) - 1 / point.V) @ table
        squares = ((table - table.mean(0)) ** 2).sum(1)[r.perm]
        scale = np.sqrt(squares @ token_probabilities(point.token_laws[0], point.V))
        true = np.linalg.norm(residuals, axis=1).mean() / scale
        assert true <= bound <= 100 * true


def errors(point: Point, d: int = 32) -> np.ndarray:
    """The bounds that the program of this d computes."""
    raw = helpers._train(drawn(point, SEED, shape_of(point, d)))[1]
    return np.array(jax.device_get(raw["errors"]), np.float64)


@pytest.mark.parametrize(
    "point",
    [ATTENTION, pytest.param(MLP, marks=pytest.mark.slow)],
    ids=["attention", "mlp"],
)
def test_bounds_are_the_same_from_either_side(point):
    """Products of V x V or of d x d, whichever a program has smaller: two upper bounds
    on the same radius, 96^(1/32) apart at most.
    """
    point = point.replace(kappa=3)
    assert np.abs(np.log(errors(point, 96) / errors(point))).max() < np.log(96) / 32


@pytest.mark.parametrize("rank", [3, 40, 64])
def test_the_radius_bound_is_above_the_largest_eigenvalue(rank):
    A = np.random.default_rng(0).normal(size=(64, rank)).astype(np.float32)
    true = np.linalg.eigvalsh((A @ A.T).astype(np.float64))[-1]
    bound = float(quickly(error_bounds.radius_bound)(A @ A.T))
    assert true * (1 - 1e-5) <= bound <= true * 64 ** (1 / 32) * (1 + 1e-5)


def test_points_too_large_to_count_in_32_bits_run_the_full_form():
    point = Point(V=64, N=2**25, d=8, L=64)
    assert Shape.rounded(point).form == "full"
    assert Shape.rounded(point.replace(N=2**25 - 1)).form == "counts"
    assert not fits(Shape(64, 16, 0, "none", "counts"), point)


@pytest.mark.parametrize("case", cases("[{}, {m: 32}, {pool: 16}]"))
def test_a_point_with_a_field_that_no_shortcut_knows_runs_exact(case, monkeypatch):
    point = ATTENTION.replace(eta=1e-6, **case)
    exact = forms.FORMS["pool-full" if point.pool else "full"]
    assert not forms.form_for(point, 32).exact
    monkeypatch.setattr(forms, "KNOWN", forms.KNOWN - {"trigger_in_value"})
    assert not forms.form_for(point, 32).exact  # at its default
    assert forms.form_for(point.replace(trigger_in_value=False), 32) == exact


def test_shortcuts_have_looked_at_every_field():
    # their sums are by token, and they have one first step
    assert FIELDS.keys() - forms.KNOWN == {"label_noise", "first_steps"}


@pytest.mark.parametrize(
    "case",
    # the MLP is that of test_exactness.py, which compiles its program
    cases("[{}, {m: 32, activation: tanh, tokens: zipf}, {pool: 20}]"),
)
def test_no_rate_makes_an_exact_gradient_vanish(case):
    """w over its rate, where float32 has no number left for eta^2."""
    usual, least = (
        ATTENTION.replace(eta=eta, exact="full", **case) for eta in (1e-12, 1e-37)
    )
    shape = Shape.sized(usual, 32, 32, usual.m)
    w, w_of_least = (
        np.asarray(helpers._train(drawn(point, SEED, shape))[0].w)
        for point in (usual, least)
    )
    assert np.abs(w_of_least).max() > 0
    assert_close(w_of_least, w, "float32")


def test_no_rate_overflows_an_attention_score():
    world = drawn(ATTENTION, SEED, shape_of(ATTENTION), attention_rate=np.float32(3e38))

    @quickly
    def scores_and_outputs(world):
        w, rate = 1e3 * world.e.z_trig, world.run.attention_rate
        scores = forward.attention_scores(world, w, rate)
        blocks = keys.blocks(world.run.batches[0], 0, 1)
        tokens = world.tokens(blocks, 0)
        outputs = forward.attend(world, blocks, tokens, scores).h
        return scores.trigger + scores.token, outputs

    for numbers in scores_and_outputs(world):
        assert np.isfinite(numbers).all()


mean_square_bound = quickly(counts.mean_square_bound)


# informative tokens that are nearly all one hardly move the mean of L = 6 tokens;
# noise would move it
@pytest.mark.parametrize(
    ("seeds", "most", "case"),
    [
        (8, 2.2, {"N": 40}),
        (8, 2.2, {"N": 40, "trigger_in_value": False}),
        (3, 1.04, {"N": 40_000}),
        (3, 1.04, {"N": 40_000, "trigger_in_value": False}),
        (1, 1.04, {"N": 40_000, "tokens": "zipf(s=6)", "noise_tokens": "uniform"}),
    ],
    ids=str,
)
def test_the_bound_on_the_outputs_is_just_above_them(seeds, most, case):
    """Mean |h|^2 of the samples, which a counted run does not compute."""
    point = ATTENTION.replace(**case)
    for seed in range(SEED, SEED + seeds):
        r = realize(point, seed)
        sums = r.Z_in[r.train_tokens].sum(1) + point.trigger_in_value * r.z_trig
        mean = np.mean(np.sum(sums * sums, axis=1)) / point.L**2
        bound = float(mean_square_bound(drawn(point, seed, shape_of(point))))
        assert mean < bound < most * mean


def test_the_bound_on_the_outputs_of_orthogonal_rows_is_a_number():
    """Their mean is orthogonal to what they differ by, so a variance that is zero may
    come out negative.
    """
    point = ATTENTION.replace(V=13, d=15, embedding="orthogonal")
    for seed in range(20):
        assert np.isfinite(mean_square_bound(drawn(point, seed, shape_of(point))))
