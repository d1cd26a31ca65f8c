"""Theory of a finite eta and of several steps of V_mat before the attention step."""

import numpy as np
import pytest
from scipy.special import softmax
from tolerances import assert_close

from jaxrecall import theory
from jaxrecall.errors import TheoryError
from jaxrecall.theory import Model
from jaxrecall.theory.first_steps import (
    after_steps,
    are_drawn,
    find_filter,
    quadrature,
)
from jaxrecall.theory.noise import trigger

SIZES = {"V": 48, "d": 64, "L": 128}
LONG = Model(V=64, d=64, L=1024, trigger_in_value=False)


@pytest.mark.parametrize("trigger_in_value", [False, True])
def test_small_eta_and_one_step_are_the_limit(trigger_in_value):
    limit = Model(**SIZES, trigger_in_value=trigger_in_value)
    for first in ({"eta": 1e-7}, {"eta": 1e-9, "first_steps": 50}):
        near = limit.replace(**first)
        noise = theory.score_noise(limit, 900)
        assert_close(theory.score_noise(near, 900), noise, "roots")
        drawn = are_drawn(near)
        assert drawn == ("first_steps" in first and not trigger_in_value)
        accuracy = theory.accuracy(limit, 900)
        assert_close(theory.accuracy(near, 900), accuracy, 0.02 if drawn else "roots")


def test_one_step_takes_the_mean_bias_away_to_first_order():
    V, d = 64, 64
    bias = [find_filter(LONG.replace(eta=eta)).bias for eta in (0, 1024, 2048, 4096)]
    # the squared length of the mean embedding varies from seed to seed
    off = 2 / d * 2048 * 2 / V**2
    assert_close(bias, [1, 0.5 - off / 2, -off, -1 - 2 * off], "roots")
    assert 0.1 < find_filter(LONG.replace(eta=2048)).bias_size < 0.4


def test_filters_are_those_of_drawn_eigenvalues():
    rng = np.random.default_rng(0)
    V, d, steps = 400, 300, 5
    Z_out = rng.standard_normal((V, d)) / d**0.5
    eigenvalues = np.linalg.eigvalsh(Z_out @ Z_out.T)
    over = quadrature(V / d, 10**9)
    for eta in (0.05, 0.3):
        left, average = after_steps(eta * eigenvalues, steps)
        theirs = np.multiply(*after_steps(eta * over.eigenvalue[None], steps))
        drawn = np.mean(eigenvalues * left * average)
        assert_close(over.over_eigenvalues(theirs).squeeze(), drawn, 0.01)
    stable = np.linspace(0, 2, 9)
    summed = sum((1 - stable) ** s for s in range(steps))
    assert_close(after_steps(stable, steps)[1] * steps, summed)


@pytest.mark.parametrize(
    ("trigger_in_value", "eta", "first_steps"),
    [(False, 1100, 1), (True, 600, 1), (False, 300, 4), (True, 300, 8)],
)
def test_mean_bias_and_gradient_noise_are_those_of_drawn_samples(
    trigger_in_value, eta, first_steps
):
    first = {"eta": eta, "first_steps": first_steps}
    model = Model(**SIZES, trigger_in_value=trigger_in_value, **first)
    parts = [parts_of(model, 500, seed) for seed in range(16)]
    bias, rest = np.sqrt(np.mean(np.square(parts), axis=0))
    theirs = theory.score_noise(model, 500)
    T, a = trigger(model, 500)
    unit = T + a / model.d
    assert_close(theirs.mean_bias * unit / bias, 1, 0.35)
    assert_close(theirs.gradient * unit / rest, 1, 0.35)
    # without the filter, the mean bias is far larger
    limit = theory.score_noise(model.replace(eta=0, first_steps=1), 500)
    assert limit.mean_bias * unit > 1.5 * bias


def parts_of(model, N, seed):
    """Returns the standard deviations of scores along the mean bias and across it and
    the trigger, in units of the trigger's score. Samples are drawn as token counts.
    """
    V, d, L, t = model.V, model.d, model.L, model.trigger_in_value
    rng = np.random.default_rng(seed)
    Z_in, Z_out = rng.standard_normal((2, V, d)) / d**0.5
    z_trig = rng.standard_normal(d) / d**0.5
    labels = np.eye(V)[rng.integers(V, size=N)]
    counts = labels + rng.multinomial(L - 1, np.full(V, 1 / V), size=N)
    h = (counts @ Z_in + t * z_trig) / L
    V_mat = np.zeros((d, d))
    residual = labels - 1 / V
    for _ in range(model.first_steps):
        V_mat += model.eta / N * Z_out.T @ residual.T @ h
        residual = labels - softmax(h @ V_mat.T @ Z_out.T, axis=1)
    b = residual @ Z_out @ V_mat
    to_tokens = b @ Z_in.T - (b * h).sum(axis=1, keepdims=True)
    to_trigger = t * (b @ z_trig)
    weights = (to_tokens * counts).sum(axis=0) + to_trigger @ labels
    w = weights @ Z_in + ((to_tokens * labels).sum() + to_trigger.sum()) * z_trig
    w *= L * V / (N * model.eta * model.first_steps)
    return along_and_across(w, Z_in, z_trig)


def along_and_across(w, Z_in, z_trig):
    """Returns the standard deviations of the scores of w along the mean bias and across
    it and the trigger.
    """
    mean = Z_in.mean(axis=0)
    rows = Z_in - mean
    trigger = z_trig / np.linalg.norm(z_trig)
    along = rows.T @ (rows @ mean)
    along -= (along @ trigger) * trigger
    along /= np.linalg.norm(along)
    rest = w - (w @ trigger) * trigger - (w @ along) * along
    return np.std(rows @ along) * (w @ along), np.std(rows @ rest)


def test_theory_covers_first_steps_after_which_predictions_are_uniform():
    inside = {"eta": 512, "first_steps": 32}
    for model in (
        LONG.replace(eta=2100),
        LONG.replace(**inside),
        LONG.replace(**inside, trigger_in_value=True),
        LONG.replace(m=64, eta=100),
    ):
        assert theory.accuracy(model, 4000) > 0


def test_samples_are_few_enough_to_be_memorised():
    model = Model(V=64, d=64, L=64, trigger_in_value=False, eta=512, first_steps=16)
    with pytest.raises(TheoryError, match=r"^eta: got"):
        theory.score_noise(model, 100)
    assert theory.score_noise(model, 2000).snr > 7


def test_critical_N_is_lower_after_several_first_steps():
    one, four, many = (
        theory.critical_N(LONG.replace(eta=512, first_steps=steps))
        for steps in (1, 4, 32)
    )
    assert one > 2 * four > 6 * many
