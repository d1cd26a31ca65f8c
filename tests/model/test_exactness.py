"""three_step against float64 autodiff of the whole loss, and the streamed float32
program against three_step.
"""

import itertools

import numpy as np
import pytest
from helpers import assert_same_metrics, autodiff_three_step, relative, streamed

from jaxrecall.model.point import Point
from jaxrecall.model.reference.metrics import measure
from jaxrecall.model.reference.realization import realize
from jaxrecall.model.reference.steps import attend, features, three_step
from jaxrecall.simulator.program_shape import Shape

MODELS = ("none", "relu", "gelu", "tanh", "quadratic", "identity", "cubic", "mixed")
EMBEDDINGS = ("gaussian", "sphere", "orthogonal")
EVERY = list(itertools.product(MODELS, EMBEDDINGS, (True, False), (False, True)))
LOCKED = {"N": 3000, "d": 24, "kappa": 1e5, "eta": 1e-6, "exact": "guarded"}
SOME = [case for i, case in enumerate(EVERY) if i % 11 == 0]


def small(
    activation: str,
    embedding: str,
    trigger_in_value: bool,
    fresh_batches: bool,
    eta: float = 0.5,
    exact: str = "full",
) -> Point:
    mlp = {} if activation == "none" else {"m": 20, "activation": activation}
    kappa = 1e4 if activation == "quadratic" else 100  # its gain is 2/V + 2/L^2
    return Point(
        V=11,
        N=700,
        d=14,
        L=6,
        n_test=600,
        kappa=kappa,
        eta=eta,
        embedding=embedding,
        trigger_in_value=trigger_in_value,
        fresh_batches=fresh_batches,
        exact=exact,
        **mlp,
    )


RATES = ((0.5, "full"), (0.5, "guarded"), (1e-5, "guarded"))
# of most programs in these tests, so that they share what is compiled
SIZES = (
    32,
    32,
    32,
)


def check(case: tuple, rates: tuple) -> None:
    """The closed form against autodiff, and the program against it: the full form, and
    the guarded one at a large and a small eta.
    """
    for eta, exact in rates:
        check_point(small(*case, eta, exact))


def check_point(point: Point) -> str:
    """The closed form of a point against autodiff, and the program against it; returns
    the form that ran.
    """
    r = realize(point, 3)
    closed, judge = three_step(r, point), autodiff_three_step(r, point)
    for name in ("V1", "w", "V2"):
        assert relative(getattr(closed, name), getattr(judge, name)) < 1e-12, name

    learned, metrics = streamed(point, 3, sized(point))
    for name in ("V1", "w", "V2"):
        assert relative(getattr(learned, name), getattr(closed, name)) < 2e-5, (
            name,
            metrics["form"],
        )
    reference = measure(r, point, closed)
    assert abs(metrics["n_correct"] - reference["n_correct"]) <= near_ties(
        r, point, closed
    )
    counted = (
        "n_correct",
        "accuracy",
        "n_tied",
        "memory_accuracy",
        "step1_memory_accuracy",
        "train_accuracy",
    )
    assert_same_metrics(metrics, reference, rtol=2e-4, but=counted)
    return metrics["form"]


def sized(point: Point) -> Shape:
    V, d, m = SIZES
    return Shape.sized(point, V, d, m if point.m else 0)


def near_ties(r, point, learned) -> int:
    """Test sequences whose two largest logits are closer than float32 can tell."""
    z = r.astype(np.float64)
    h, _ = attend(z, point, z.test_tokens, z.test_positions, learned.w)
    logits = np.sort(features(z, point, h)[0] @ learned.V2.T @ z.Z_out.T, axis=1)
    return int((logits[:, -1] - logits[:, -2] < 1e-5 * np.abs(logits).max(1)).sum())


OFTEN = ("none", "gelu")
"""The others differ from these in elementwise operations alone, and train in tests of
pools, of further steps and of the ladder.
"""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case[0] in OFTEN else pytest.mark.slow)
        for case in SOME
    ],
    ids=str,
)
def test_some_combinations(case):
    """Which activation a form trains makes no difference to it, so the guarded forms
    run for two of them.
    """
    check(case, RATES if case[0] in ("none", "gelu") else RATES[:1])


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_combination(case):
    check(case, RATES)


@pytest.mark.parametrize(
    "kw",
    [
        {},
        {"m": 32, "activation": "gelu", "trigger_in_value": False},
        {"fresh_batches": True},
        {"eta": 0.5, "gamma2": 0.3},  # V1 is a part of V2 that shows
        LOCKED,
        {**LOCKED, "fresh_batches": True, "trigger_in_value": False, "L": 3},
    ],
    ids=str,
)
def test_all_metrics_of_a_generic_point_match_the_reference(kw):
    point = Point(
        **{"V": 30, "N": 900, "d": 12, "L": 7, "n_test": 600, "exact": "full", **kw}
    )
    r = realize(point, 5)
    reference = measure(r, point, three_step(r, point))
    _, metrics = streamed(point, 5, sized(point))
    assert 0.05 < reference["accuracy"] < 0.95
    assert metrics["form"] == ("full" if point.exact == "full" else "counts+locked")
    assert_same_metrics(metrics, reference)


def test_exact_ties_are_counted():
    """One sample, orthogonal, no trigger in the value: every other token is orthogonal
    to all that was learned.
    """
    point = Point(
        V=11, N=1, d=14, L=1, n_test=600, embedding="orthogonal", trigger_in_value=False
    )
    r = realize(point, 1)
    reference = measure(r, point, three_step(r, point))
    assert 0 < reference["n_tied"] < 600
    for exact in ("full", "guarded"):
        _, metrics = streamed(
            point.replace(exact=exact), 1, sized(point.replace(exact=exact))
        )
        assert (metrics["n_tied"], metrics["n_correct"]) == (
            reference["n_tied"],
            reference["n_correct"],
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kw",
    [{}, pytest.param({"m": 40, "activation": "gelu"}, marks=pytest.mark.slow)],
    ids=["attention", "mlp"],
)
def test_labels_in_several_blocks(kw):
    """V = 150 in a bucket of 160: three blocks of 64 labels, the last of which overlaps
    the one before.
    """
    point = Point(V=150, N=4000, d=24, L=5, n_test=600, **kw)
    r = realize(point, 5)
    _, metrics = streamed(point, 5, Shape.sized(point, 160, 32, 48 if point.m else 0))
    assert_same_metrics(metrics, measure(r, point, three_step(r, point)))
