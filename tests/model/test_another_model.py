"""Another attention and another readout: the metrics against direct NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import quickly
from scipy.special import softmax
from tolerances import assert_close

from jaxrecall import (
    Point,
    measure,
    model,
    predict,
    realize,
    soft_accuracy,
    three_step,
)
from jaxrecall.model.point import RECIPE_STEPS
from jaxrecall.model.reference import three_step as closed_form

POINT = Point(V=24, N=2000, d=12, L=5, kappa=20, n_test=128)
RNG = np.random.default_rng(0)
W2, U2 = RNG.normal(size=(2, POINT.d, POINT.d)) / POINT.d**0.5


def linear(recall, tokens, position):
    """Weights (1 + score) / L: softmax to first order, which may be negative."""
    return (1 + recall.scores(tokens, position)) / len(tokens)


def bounded(recall, h):
    return model.plain_readout(recall, jnp.tanh(h))


def second_attention(recall, tokens, position):
    """The query of the second layer is what the first one attended to."""
    first = model.softmax_attention(recall, tokens, position)
    h = recall.attended(first, tokens, position)
    query = recall.embeddings.z_eos + h
    w = jnp.asarray(W2, h.dtype) @ query
    return jax.nn.softmax(recall.scores(tokens, position, w))


def second_mlp(recall, h):
    hidden = jnp.tanh(recall.V_mat @ h)
    return recall.embeddings.Z_out @ (h + jnp.asarray(U2, h.dtype) @ hidden)


class Direct:
    """One of the models above in NumPy, with keys and values written out."""

    def __init__(self, r, learned, attend=model.softmax_attention, readout=None):
        self.r, self.learned, self.attend, self.readout = r, learned, attend, readout

    def keys(self, tokens, positions):
        is_ell = np.arange(tokens.shape[1])[None] == positions[:, None]
        return self.r.Z_in[tokens] + is_ell[..., None] * self.r.z_trig

    def attention(self, tokens, positions):
        k = self.keys(tokens, positions)
        scores = k @ self.learned.w
        if self.attend is linear:
            return (1 + scores) / tokens.shape[1]
        first = softmax(scores, axis=1)
        if self.attend is not second_attention:
            return first
        query = self.r.z_eos + np.einsum("nl,nld->nd", first, k)
        return softmax(np.einsum("nld,nd->nl", k, query @ W2.T), axis=1)

    def logits(self, h, V_mat):
        if self.readout is bounded:
            h = np.tanh(h)
        if self.readout is second_mlp:
            return (h + np.tanh(h @ V_mat.T) @ U2.T) @ self.r.Z_out.T
        return h @ V_mat.T @ self.r.Z_out.T

    def of_sequences(self, tokens, positions):
        a = self.attention(tokens, positions)
        h = np.einsum("nl,nld->nd", a, self.keys(tokens, positions))
        return self.logits(h, self.learned.V2), a

    def metrics(self):
        r, V1, w, V2 = self.r, *self.learned
        tokens, positions, labels = r.test
        rows = np.arange(len(labels))
        logits, a = self.of_sequences(tokens, positions)
        others = logits.copy()
        others[rows, labels] = -np.inf
        margin = (logits[rows, labels] - others.max(1)) / logits.std(1)
        noise = a.copy()
        noise[rows, positions] = -np.inf
        right = logits.argmax(1) == labels
        recalled = self.logits(r.Z_in + r.z_trig, V2).argmax(1) == r.perm
        first = self.logits(r.Z_in, V1).argmax(1) == r.perm
        x, ell, y = (part[: len(labels)] for part in r.batches[2])
        scores = r.Z_in @ w
        trigger = r.z_trig @ w
        cosine = trigger / np.linalg.norm(r.z_trig) / np.linalg.norm(w)
        return {
            "step": RECIPE_STEPS,
            "n_correct": right.sum(),
            "accuracy": right.mean(),
            "memory_accuracy": recalled.mean(),
            "step1_memory_accuracy": first.mean(),
            "train_accuracy": (self.of_sequences(x, ell)[0].argmax(1) == y).mean(),
            "attention_mass": a[rows, positions].mean(),
            "attention_top1": (a[rows, positions] > noise.max(1)).mean(),
            "trigger_score": trigger,
            "score_std": scores.std(),
            "snr": trigger / scores.std(),
            "trigger_cosine": cosine,
            "test_margin": margin.mean(),
            "n_tied": 0,
            "recalled": recalled.sum(),
        }


MODELS = {
    "second attention": {"attend": second_attention},
    "second mlp": {"readout": second_mlp},
    "both": {"attend": linear, "readout": bounded},
}


@pytest.mark.parametrize("another", MODELS.values(), ids=MODELS)
def test_metrics_of_another_model_are_those_of_numpy(another):
    r = realize(POINT, 1).astype(np.float64)

    @quickly
    def run(r):
        learned = three_step(r, POINT, **another)
        of_test = predict(r, POINT, learned.V2, learned.w, *r.test[:2], **another)
        return learned, of_test, measure(r, POINT, learned, **another)

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        learned, of_test, metrics = jax.tree.map(np.asarray, run(r))
    direct = Direct(r, learned, **another)
    # softmax magnifies the rounding of large scores
    assert_close(of_test, direct.of_sequences(*r.test[:2]), scale=100)
    expected = direct.metrics()
    assert {name for name, value in metrics.items() if value is not None} == {*expected}
    for name, value in expected.items():  # a mean of bools is of float32
        assert_close(metrics[name], value, "roots", of=name)
    assert 1.5 / POINT.V < expected["accuracy"] < 0.5  # more than by chance
    plain = measure(r, POINT, learned)
    assert abs(expected["test_margin"] - plain["test_margin"]) > 1e-2


def test_linear_attention_learns_what_its_gradient_says():
    """The three steps in closed form: dh/dw = 1/L sum_j v_j k_j^T."""
    r = realize(POINT, 0).astype(np.float64)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        learned = quickly(lambda r: three_step(r, POINT, attend=linear))(r)
    x, ell, y = r.batches[0]
    k = Direct(r, None).keys(x, ell)
    h = k.mean(1)
    V1 = POINT.eta / POINT.N * (r.Z_out[y] - r.Z_out.mean(0)).T @ h

    def pull(V_mat, h):
        return r.Z_out[y] - softmax(h @ V_mat.T @ r.Z_out.T, axis=1) @ r.Z_out

    along_values = np.einsum("nd,nld->nl", pull(V1, h) @ V1, k)
    slope = np.einsum("nl,nld->d", along_values, k) / (POINT.N * POINT.L)
    w = POINT.gamma * (r.z_eos @ r.z_eos) * slope
    h = np.einsum("nl,nld->nd", (1 + k @ w) / POINT.L, k)
    V2 = V1 + POINT.gamma2 / POINT.N * pull(V1, h).T @ h
    assert_close(tuple(learned), (V1, w, V2))


def sharper(factor):
    """The attention of `Sharper` as a function that is made anew."""
    return lambda recall, tokens, position: jax.nn.softmax(
        factor * recall.scores(tokens, position)
    )


def test_equal_functions_are_traced_once(monkeypatch):
    point = POINT.replace(N=40, d=6)
    r, traced, scores = realize(point, 0), [], model.Recall.scores

    def counted(recall, *sequence):
        traced.append(sequence)
        return scores(recall, *sequence)

    monkeypatch.setattr(model.Recall, "scores", counted)
    learned, counts = [], []
    for factor in (2.0, 2.0, 1.0):
        learned.append(three_step(r, point, attend=sharper(factor)))
        counts.append(len(traced))
    assert 0 < counts[0] == counts[1] < counts[2]
    assert (learned[0].V2 == learned[1].V2).all()
    assert_close(learned[2].V2, closed_form(r, point).V2, "float32")
    assert np.abs(learned[0].V2 - learned[2].V2).max() > 1e-3


class Sharper(eqx.Module):
    """An attention whose factor is a parameter."""

    factor: jax.Array

    def __call__(self, recall, tokens, position):
        return jax.nn.softmax(self.factor * recall.scores(tokens, position))


def test_the_parameters_of_a_module_are_trained():
    r = realize(POINT, 0)

    @quickly
    def run(r, factors):
        def score(attend):
            learned = three_step(r, POINT, attend=attend)
            return soft_accuracy(r, POINT, learned, attend=attend)

        (value, slopes) = jax.value_and_grad(score)(Sharper(jnp.float32(1.0)))
        around = [score(sharper(factor)) for factor in factors]
        return value, slopes.factor, (around[0] - around[1]) / 0.02

    _, slope, difference = map(float, run(r, np.float32([1.01, 0.99])))
    assert_close(slope, difference, 0.05 * abs(slope))
    recall = model.Recall(
        jnp.zeros((POINT.d, POINT.p)),
        jnp.zeros((POINT.d, POINT.d)),
        r.embeddings,
        POINT.activation,
        POINT.trigger_in_value,
        Sharper(jnp.float32(1.0)),
    )
    slopes = jax.jit(jax.grad(model.loss))(recall, *r.batches[0])
    assert slopes.attend.factor.shape == ()
