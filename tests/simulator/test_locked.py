"""Further steps from weighted tokens: against the reference, where their bound ends,
and what the bound bounds.
"""

import functools
import itertools
import math

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import combinations, drawn, traced

from jaxrecall import Point, descend, model, realize, simulate
from jaxrecall.model.point import TRAINS, Run
from jaxrecall.model.reference.descent import EMBEDDINGS
from jaxrecall.model.task import Embeddings
from jaxrecall.simulator import descent, forward, locked_attention, program
from jaxrecall.simulator.cost import amount, work
from jaxrecall.simulator.program_shape import Shape

LOCKED = {
    "V": 16,
    "N": 300,
    "d": 32,
    "L": 4,
    "n_test": 300,
    "kappa": 1e4,
    "gamma2": 16.0,
    "embedding": "sphere",
    "steps": 20,
}
OPEN = LOCKED | {"kappa": 5.0}
RATES = {"sgd": 1.0, "momentum": 0.2, "adam": 0.02, "adamw": 0.02}
MLP = {"m": 20, "activation": "tanh"}


def later(fields: dict = LOCKED, **changes: object) -> Point:
    rate = RATES[str(changes.get("optimizer", "sgd"))]
    return Point(**{**fields, "lr": rate, **changes})


def shape_of(point: Point) -> Shape:
    return Shape.sized(point, 32, 32, 32 if point.m else 0)


def errors(
    point: Point, seed: int = 3, steps: int | None = None
) -> tuple[list[int], float]:
    """How many steps read samples up to each recorded one, and the largest relative
    error of a parameter up to step `steps`.
    """
    found = traced(point, seed, shape_of(point))
    judge = descend(realize(point, seed), point)
    off = 0.0
    for now, exact in zip(found, judge, strict=True):
        if steps is None or exact.step <= steps:
            assert now["loss"] == pytest.approx(exact.loss, rel=1e-4)
            off = max(
                off,
                *(
                    helpers.relative(value, getattr(exact, name))
                    for name, value in now["params"].items()
                ),
            )
    return [int(now["n_read"]) for now in found], off


CASES = [
    *(
        # the next test has adam
        pytest.param({"optimizer": optimizer, "trains": trains}, marks=pytest.mark.slow)
        for optimizer, trains in itertools.product(RATES, ("V", "VW"))
    ),
    # the next test has an MLP
    pytest.param({"optimizer": "adam", **MLP, "kappa": 1e5}, marks=pytest.mark.slow),
    pytest.param({"optimizer": "adam", "pool": 20}, marks=pytest.mark.slow),
    pytest.param({"optimizer": "adam", "batch": 100}, marks=pytest.mark.slow),
    {"fresh_batches": True},
    pytest.param({"tokens": "own_laws:Zipf(s=0.2)"}, marks=pytest.mark.slow),
    pytest.param({"trigger_in_value": False}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_steps_from_weighted_tokens_agree_with_the_reference(case):
    n_read, off = errors(later(**case))
    assert set(n_read) == {0}
    assert off < 2e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        # a test below trains embeddings by sgd until attention opens
        pytest.param({"optimizer": "sgd", "lr": 0.1}, marks=pytest.mark.slow),
        {"optimizer": "adam", "lr": 0.005, **MLP},
    ],
    ids=str,
)
def test_trained_embeddings_agree_as_long_as_attention_is_locked(case):
    trains = "VWZM" if "m" in case else "VWZ"
    n_read, off = errors(later(**case, trains=trains), steps=10)
    assert n_read[2] == 0  # of steps 3, 5, 10, 20
    assert off < 2e-5


@pytest.mark.slow
def test_a_gradient_that_vanishes_does_not_move_attention():
    """adam makes steps of any gradient, those of rounding too: none are left, from
    weighted tokens or from samples.
    """
    point = later(optimizer="adam")
    assert errors(point)[1] < 2e-5
    assert errors(point.replace(exact="full"))[1] < 2e-5


SELDOM = [
    pytest.param(case, marks=pytest.mark.slow)
    for case in ({}, {"batch": 100}, {"optimizer": "adam", "pool": 20})
]


@pytest.mark.parametrize("case", [{"optimizer": "adam"}, *SELDOM], ids=str)
def test_a_point_with_open_attention_reads_its_samples(case):
    point = later(OPEN, **case)
    n_read, off = errors(point)
    assert n_read == [0, 2, 7, 17]
    assert off < 2e-5
    full = traced(point.replace(exact="full"), 3, shape_of(point.replace(exact="full")))
    for now, exact in zip(traced(point, 3, shape_of(point)), full, strict=True):
        assert now["loss"] == pytest.approx(exact["loss"], rel=1e-6)


@pytest.mark.slow
def test_without_its_bound_a_step_from_tokens_shows(monkeypatch):
    """The red side: a bound that lets everything through gives other parameters."""
    monkeypatch.setattr(descent, "may_group", lambda *_: jnp.bool_(True))
    point = later(OPEN, steps=21)
    found = helpers.quickly(lambda world: helpers._trace.__wrapped__(world))(
        drawn(point, 3, shape_of(point))
    )
    judge = descend(realize(point, 3), point)[-1]
    V_mat = np.asarray(found["params"]["V_mat"])[4][: point.d, : point.d]
    assert helpers.relative(V_mat, judge.V_mat) > 1e-2


def test_a_run_whose_attention_opens_reads_its_samples_from_there_on():
    """Embeddings that are trained move the scores; rows say how far weighted tokens
    went.
    """
    point = later(trains="VWZ", lr=0.1, steps=100, optimizer="sgd")
    rows = simulate(point, 3, trace=True)
    grouped = [row["form"].endswith(", locked descent") for row in rows]
    assert [row["step"] for row in rows] == [3, 5, 10, 20, 50, 100]
    assert (grouped[0], grouped[1], grouped[-1]) == (False, True, False)
    assert grouped[1:] == sorted(grouped[1:], reverse=True)


BOUNDED = [{}, MLP, {"m": 20, "activation": "quadratic"}, {"trigger_in_value": False}]


@helpers.quickly
def of_the_bound(world, params, w):
    return locked_attention.log_size(world, params, w), locked_attention.nats_ahead(
        world, forward.scores_under(world, w)
    )


@functools.partial(helpers.quickly, static_argnames=("activation", "trigger_in_value"))
def gradients(theta, batches, activation, trigger_in_value):
    def loss(theta, batch):
        e = Embeddings(*(theta.get(name) for name in EMBEDDINGS))
        return model.loss(
            model.Recall(
                theta["V_mat"], theta["W_KQ"], e, activation, trigger_in_value
            ),
            *batch,
        )

    return [jax.grad(loss)(theta, batch) for batch in batches]


@pytest.mark.parametrize(
    ("seed", "case"), combinations(range(4), BOUNDED, often=lambda seed, _: seed < 2)
)
def test_the_bound_bounds_what_other_tokens_add_to_each_gradient(case, seed):
    """In float64, at random parameters and with attention from half to hardly open."""
    rng = np.random.default_rng(seed)
    point = later(**case, trains="VWZM" if "m" in case else "VWZ")
    r = realize(point, seed)
    theta = {
        name: np.asarray(getattr(r, name), float)
        for name in EMBEDDINGS
        if getattr(r, name) is not None
    }
    unit = r.z_trig + 0.1 * rng.normal(size=point.d)
    theta |= {"V_mat": rng.normal(size=(point.d, point.p)) * 10 ** rng.uniform(-2, 1)}
    theta |= {
        "W_KQ": np.outer(unit * rng.uniform(5, 40), r.z_eos) / (r.z_eos @ r.z_eos)
    }
    w = theta["W_KQ"] @ r.z_eos
    world = drawn(point, seed, shape_of(point))
    params = {
        name: jnp.asarray(theta[name], jnp.float32)
        for name in ("V_mat", "W_KQ", *TRAINS[str(point.trains)])
    }
    log_size, nats = (
        float(number)
        for number in of_the_bound(world, params, jnp.asarray(w, jnp.float32))
    )
    bound = (point.L - 1) * math.exp(log_size - nats)
    informative = r.train_tokens[np.arange(point.N), r.train_positions][:, None]
    batches = (
        (r.train_tokens, r.train_positions, r.train_labels),
        (informative, np.zeros(point.N, np.int32), r.train_labels),
    )
    with jax.enable_x64(True):
        exact, alone = jax.device_get(
            gradients(theta, batches, point.activation, point.trigger_in_value)
        )
    for name in params:
        added = np.linalg.norm(exact[name] - alone[name])
        assert 0 < added <= bound, name


def test_points_that_ask_for_no_shortcut_have_none():
    assert shape_of(later()).groups
    assert not shape_of(later(exact="full")).groups
    assert not shape_of(later().replace(steps=3)).groups
    guarded = Shape(32, 32, 0, "none", "counts", groups=True)
    # what bounds the recipe is another matter
    assert guarded.fallback == Shape(32, 32, 0, "none", "full", groups=True)


def test_fewer_samples_than_tokens_are_read():
    n_read, _ = errors(later(optimizer="adam", batch=15))
    assert n_read == [0, 2, 7, 17]


# compiles for an accelerator; tests of pools and of packaging do so too
@pytest.mark.slow
def test_vmapped_runs_and_runs_one_after_the_other_are_the_same():
    """As on an accelerator: locked and open runs in one batch, each with the steps of
    its own.
    """
    runs = [Run(later(of), seed) for of in (LOCKED, OPEN) for seed in (3, 4)]
    shape = shape_of(runs[0].point)
    looped = program.execute(program.compiled(shape), runs)[0]
    vmapped = program.execute(program.compiled(shape, 4, vmapped=True), runs)[0]
    assert [
        bool(rows) and rows[-1]["form"].endswith("locked descent") for rows in looped
    ] == [True, True, False, False]
    for one, other in zip(looped, vmapped, strict=True):
        assert one is not None
        assert other is not None
        for a, b in zip(one, other, strict=True):
            assert (a["form"], a["step"]) == (b["form"], b["step"])
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)


def test_plans_expect_weighted_tokens_at_length_one_alone():
    point = Point(
        V=64,
        N=1024,
        d=64,
        L=8,
        gamma2=64,
        embedding="sphere",
        kappa=1e4,
        steps=1000,
        lr=4,
    )
    memory = point.replace(L=1)
    assert (work(memory).grouped, work(memory).stepped) == (point.further_steps, 0)
    assert (work(point).grouped, work(point).stepped) == (
        0,
        point.further_steps * point.N,
    )
    grouped, read = (
        amount(Shape.rounded(each), work(each)).seconds for each in (memory, point)
    )
    assert 5 * grouped < read
