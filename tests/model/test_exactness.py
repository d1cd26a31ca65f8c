"""The closed forms against automatic differentiation of the whole loss in float64, and
the programs of float32 against the closed forms: one idea, over points.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
import yaml
from cases import sized
from helpers import assert_same_metrics, quickly, streamed
from tolerances import assert_close

from jaxrecall import (
    Point,
    descend,
    measure,
    predict,
    rates,
    realize,
    simulate,
    three_step,
)
from jaxrecall.model.reference import three_step as closed_form
from jaxrecall.simulator.program_shape import Shape

BASE = {"V": 11, "N": 700, "d": 14, "L": 6, "n_test": 600, "eta": 0.5}
MODELS = ("none", "relu", "gelu", "tanh", "quadratic", "identity", "cubic", "mixed")
RATES = ((0.5, "full"), (0.5, "guarded"), (1e-5, "guarded"))


@functools.partial(quickly, static_argnames="model_of")
def compiled(r, rates, model_of):
    return three_step(r, model_of, rates)


def by_autodiff(r, point: Point):
    """The judge of every closed form. It differentiates in chunks, the last smaller."""
    names = ("V", "d", "m", "activation", "trigger_in_value", "first_steps")
    model_of = Point(N=1, L=1, **{name: getattr(point, name) for name in names})
    with jax.enable_x64(True):
        return compiled(r.astype(np.float64), rates(point), model_of)


def near_ties(r, point: Point, learned) -> int:
    """Test sequences whose two largest logits are closer than float32 can tell."""
    logits, _ = predict(r, point, learned.V2, learned.w, *r.test[:2])
    second, first = np.sort(logits, axis=1)[:, -2:].T
    return int((first - second < 1e-5 * np.abs(logits).max(1)).sum())


COUNTED = ("n_correct", "accuracy", "n_tied", "memory_accuracy")
COUNTED += ("step1_memory_accuracy", "train_accuracy")


def check_point(point: Point) -> str:
    """The closed form against autodiff, and the program against it; returns the form
    that ran.
    """
    r = realize(point, 3)
    closed = closed_form(r, point)
    assert_close(tuple(closed), tuple(by_autodiff(r, point)), "float64")
    learned, metrics = streamed(point, 3, sized(point))
    assert_close(tuple(learned), tuple(closed), "float32")
    reference, ties = measure(r, point, closed), near_ties(r, point, closed)
    assert abs(metrics["n_correct"] - reference["n_correct"]) <= ties
    assert_same_metrics(metrics, reference, but=COUNTED if ties else ())
    return metrics["form"]


POINTS = yaml.safe_load("""
- [full, {exact: full}]
- [full, {fresh_batches: true, embedding: orthogonal, gamma2: 0.3,
    trigger_in_value: false}]
- [full, {exact: full, embedding: 'low_rank(rank=3, noise=0.1)',
    embedding_out: power_law(alpha=0.5)}]
- [full, {m: 20, activation: tanh, exact: full, tokens: zipf}]
- [counts+counts, {eta: 1.0e-5, embedding: sphere}]
- [counts+locked, {eta: 1.0e-6, kappa: 1.0e+5, fresh_batches: true,
    trigger_in_value: false}]
- [counts+counts, {eta: 1.0e-5, tokens: own_laws:Zipf(s=1.5), noise_tokens: uniform,
    embedding: clustered(clusters=4), embedding_out: equicorrelated(rho=0.4)}]
- [uniform+uniform, {m: 20, activation: gelu, eta: 1.0e-5, trigger_in_value: false,
    fresh_batches: true}]
""")


@pytest.mark.parametrize(("form", "changes"), POINTS, ids=str)
def test_closed_forms_and_programs_agree_with_the_reference(form, changes):
    """Other activations differ from these in elementwise operations alone, and train in
    tests of pools, of further steps and of first steps.
    """
    assert check_point(Point(**BASE | changes)) == form


SOFTPLUS = "own_laws:Softplus(beta=2)"
LAWS = ["gaussian", "sphere", "orthogonal", "equicorrelated(rho=0.6)"]
LAWS += ["low_rank(rank=3, noise=0.1)", "clustered(clusters=4)", "power_law(alpha=1.2)"]
LAWS += ["array(path='table.npy')", "array(path='table.npy', mean=1)"]
LAWS += ["own_laws:Signs(common=0.4)"]
TURNS = yaml.safe_load("""
- {}
- {trigger_in_value: false, tokens: zipf}
- {fresh_batches: true, noise_tokens: zipf(s=1.5)}
- {embedding_out: power_law(alpha=0.5)}
- {fresh_batches: true, trigger_in_value: false, tokens: own_laws:Zipf(s=1.5),
    noise_tokens: uniform}
- {label_noise: 0.3}
- {pool: 8}
""")


@pytest.fixture
def table(cwd):
    rng = np.random.default_rng(0)
    np.save("table.npy", rng.normal(size=(40, 20)) * np.arange(1, 21) ** -0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turn", "case"),
    [*enumerate(itertools.product([*MODELS, SOFTPLUS], LAWS))],
    ids=str,
)
def test_all_models_under_all_laws(turn, case, table):
    """By turns at each rate and with what else changes the samples."""
    (activation, embedding), (eta, exact) = case, RATES[turn % len(RATES)]
    model = {} if activation == "none" else {"m": 20, "activation": activation}
    kappa = 1e4 if activation == "quadratic" else 100  # its gain is 2/V + 2/L^2
    given = {"embedding": embedding, "eta": eta, "exact": exact, "kappa": kappa}
    check_point(Point(**BASE | model | given | TURNS[turn % len(TURNS)]))


FURTHER = yaml.safe_load("""
- {optimizer: optax:rmsprop, lr: 0.02}
- {embedding: low_rank(rank=3), exact: full, trains: VWZ}
- {embedding: power_law, eta: 1.0e-9, kappa: 300.0}
- {embedding: "array(path='table.npy', mean=1)"}
- {tokens: zipf, kappa: 4.0, m: 24, activation: tanh}
- {noise_tokens: zipf(s=1.5), kappa: 4.0, batch: 64, trains: VWZ}
- {tokens: own_laws:Zipf(s=1.5), noise_tokens: uniform, kappa: 4.0}
""")


def check_further_steps(changes):
    """Parameters show in their norms, their scores and the losses."""
    point = Point(
        **BASE | {"eta": 0.1, "gamma2": 10.0, "kappa": 20.0, "lr": 0.05} | changes,
        steps=8,
    )
    r = realize(point, 0)
    rows, judges = simulate(point, 0, trace=True), descend(r, point)
    for row, judge in zip(rows, judges, strict=True):
        expected = measure(r, point, judge)
        for name in ("loss", "test_loss", "V_norm", "W_norm", "trigger_score", "snr"):
            assert_close(row[name], expected[name], "float32", of=name)
    assert "locked descent" not in rows[-1]["form"] or "optimizer" not in changes


def test_an_optimiser_of_which_nothing_is_said_trains_w_kq_and_reads_its_samples():
    check_further_steps(FURTHER[0])


@pytest.mark.slow
@pytest.mark.parametrize("changes", FURTHER[1:], ids=str)
def test_further_steps_agree_with_the_reference(changes, table):
    check_further_steps(changes)


def test_exact_ties_are_counted():
    """One sample a step, orthogonal, no trigger in the value: every other token is
    orthogonal to all that was learned.
    """
    sizes = BASE | {"N": 1, "L": 1, "embedding": "orthogonal"}
    point = Point(**sizes, trigger_in_value=False, fresh_batches=True)
    r = realize(point, 1)
    reference = measure(r, point, closed_form(r, point))
    assert 0 < reference["n_tied"] < 600
    assert streamed(point, 1, sized(point))[1]["n_tied"] == reference["n_tied"]


@pytest.mark.slow
@pytest.mark.parametrize("kw", [{}, {"m": 40, "activation": "gelu"}], ids=str)
def test_labels_in_several_blocks(kw):
    """V = 150 in a bucket of 160: three blocks of 64 labels, the last of which overlaps
    the one before.
    """
    point = Point(V=150, N=4000, d=24, L=5, n_test=600, **kw)
    r = realize(point, 5)
    _, metrics = streamed(point, 5, Shape.sized(point, 160, 32, 48 if point.m else 0))
    assert_same_metrics(metrics, measure(r, point, closed_form(r, point)))
