"""Further steps from weighted tokens: against the reference, where their bound ends,
and what the bound bounds.
"""

import functools
import math

import helpers
import jax
import numpy as np
import pytest
import yaml
from cases import cases, check_vmapped, sized
from helpers import drawn, traced
from tolerances import assert_close

from jaxrecall import Point, descend, model, realize, simulate
from jaxrecall.model.point import TRAINS, Run
from jaxrecall.model.reference.descent import EMBEDDINGS
from jaxrecall.model.task import Embeddings
from jaxrecall.simulator import forward, locked_attention
from jaxrecall.simulator.cost import amount, work_of
from jaxrecall.simulator.program_shape import Shape

LOCKED = yaml.safe_load("""
{V: 16, N: 300, d: 32, L: 4, n_test: 300, kappa: 1.0e+4, gamma2: 16, steps: 20,
 optimizer: adam, lr: 0.02}
""")
SGD = {"optimizer": "sgd", "lr": 1.0}


def later(**fields) -> Point:
    return Point(**LOCKED | fields)


OPEN = later(kappa=5.0)


def check(point: Point, steps: int = 20) -> list[int]:
    """Losses and parameters up to step `steps` are those of the reference. How many
    steps read samples up to each recorded one.
    """
    records = traced(point, 3, sized(point))
    judge = descend(realize(point, 3), point)
    for now, exact in zip(records, judge, strict=True):
        if exact.step <= steps:
            assert_close(now["loss"], exact.loss, "float32")
            for name, parameter in now["params"].items():
                assert_close(parameter, getattr(exact, name), "float32", of=name)
    return n_read(records)


def n_read(records: list[dict]) -> list[int]:
    return [int(now["n_read"]) for now in records]


ALL, NONE = [0, 2, 7, 17], [0, 0, 0, 0]  # of steps 3, 5, 10, 20

SELDOM = """
- {}
- {m: 20, activation: tanh, kappa: 1.0e+5}
- {pool: 20}
- {batch: 100}
- {tokens: own_laws:Zipf(s=0.2)}
- {trigger_in_value: false}
- {optimizer: sgd, lr: 1.0, trains: V}
- {optimizer: sgd, lr: 1.0}
- {optimizer: momentum, lr: 0.2}
- {trains: V}
- {optimizer: adamw, trains: V}
- {optimizer: adamw}
"""


@pytest.mark.parametrize("case", cases("[{fresh_batches: true}]", SELDOM))
def test_steps_from_weighted_tokens_agree_with_the_reference(case):
    """adam makes steps of any gradient, those of rounding too: none are left."""
    assert check(later(**case)) == NONE


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    yaml.safe_load("""
- {optimizer: sgd, lr: 0.1, trains: VWZ}
- {lr: 0.005, trains: VWZM, m: 20, activation: tanh}
"""),
    ids=str,
)
def test_trained_embeddings_agree_as_long_as_attention_is_locked(case):
    assert check(later(**case), steps=10)[2] == 0


@pytest.mark.slow
def test_a_gradient_that_vanishes_does_not_move_attention_from_samples_either():
    check(later(exact="full"))


@pytest.mark.parametrize(
    "case", cases("[{}]", "[{batch: 100}, {pool: 20}, {optimizer: sgd, lr: 1}]")
)
def test_a_point_with_open_attention_reads_its_samples(case):
    assert check(OPEN.replace(**case)) == ALL


def test_fewer_samples_than_tokens_are_read():
    few = later(N=15)
    assert n_read(traced(few, 3, sized(few))) == ALL


@pytest.mark.slow
def test_a_batch_of_fewer_samples_than_tokens_is_read():
    assert check(later(batch=15)) == ALL


@pytest.mark.slow
def test_a_run_whose_attention_opens_reads_its_samples_from_there_on():
    """Embeddings that are trained move the scores; rows say how far weighted tokens
    went.
    """
    point = later(**SGD | {"trains": "VWZ", "lr": 0.1, "steps": 100})
    rows = simulate(point, 3, trace=True)
    grouped = [row["form"].endswith(", locked descent") for row in rows]
    assert [row["step"] for row in rows] == [3, 5, 10, 20, 50, 100]
    assert (grouped[0], grouped[1], grouped[-1]) == (False, True, False)
    assert grouped[1:] == sorted(grouped[1:], reverse=True)


@helpers.quickly
def of_the_bound(world, params, w):
    ahead = locked_attention.nats_ahead(world, forward.scores_under(world, w))
    return locked_attention.log_size(world, params, w), ahead


@functools.partial(helpers.quickly, static_argnames="settings")
def gradients(theta, batches, settings):
    def loss(theta, batch):
        e = Embeddings(*(theta.get(name) for name in EMBEDDINGS))
        recall = model.Recall(theta["V_mat"], theta["W_KQ"], e, *settings)
        return model.loss(recall, *batch)

    return [jax.grad(loss)(theta, batch) for batch in batches]


@pytest.mark.parametrize(
    "case",
    cases(
        "[{m: 20, activation: tanh}]",
        "[{}, {trigger_in_value: false}, {m: 20, activation: quadratic}]",
    ),
)
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_bounds_what_other_tokens_add_to_each_gradient(case, seed):
    """In float64, at random parameters and with attention from half to hardly open."""
    rng = np.random.default_rng(seed)
    point = later(**case, trains="VWZM" if "m" in case else "VWZ")
    r = realize(point, seed)
    z = r.astype(np.float64)._asdict()
    theta = {name: z[name] for name in EMBEDDINGS if z[name] is not None}
    theta["V_mat"] = rng.normal(size=(point.d, point.p)) * 10 ** rng.uniform(-2, 1)
    unit = r.z_trig + 0.1 * rng.normal(size=point.d)
    key = unit * rng.uniform(5, 40) / (r.z_eos @ r.z_eos)
    theta["W_KQ"] = np.outer(key, r.z_eos)
    params = {
        name: np.float32(theta[name])
        for name in ("V_mat", "W_KQ", *TRAINS[str(point.trains)])
    }
    world = drawn(point, seed, sized(point))
    log_size, nats = of_the_bound(world, params, np.float32(theta["W_KQ"] @ r.z_eos))
    bound = (point.L - 1) * math.exp(float(log_size) - float(nats))
    informative = r.train_tokens[np.arange(point.N), r.train_positions][:, None]
    batches = r[6:9], (informative, np.zeros(point.N, np.int32), r.train_labels)
    settings = point.activation, point.trigger_in_value
    with jax.enable_x64(True):
        exact, alone = jax.device_get(gradients(theta, batches, settings))
    for name in params:
        added = np.linalg.norm(exact[name] - alone[name])
        assert 0 < added <= bound, name


def test_points_that_ask_for_no_shortcut_have_none():
    assert sized(later()).groups
    assert not sized(later(exact="full")).groups
    assert not sized(later(steps=3, optimizer=None, lr=None)).groups
    guarded = Shape(32, 32, 0, "none", "counts", groups=True)
    # what bounds the recipe is another matter
    assert guarded.fallback == Shape(32, 32, 0, "none", "full", groups=True)


# compiles for an accelerator; tests of pools and of packaging do so too
@pytest.mark.slow
def test_vmapped_runs_and_runs_one_after_the_other_are_the_same():
    """As on an accelerator: locked and open runs in one batch, each with the steps of
    its own.
    """
    points = later(**SGD), OPEN.replace(**SGD)
    runs = [Run(point, seed) for point in points for seed in (3, 4)]
    looped = check_vmapped(sized(points[0]), runs)
    forms = [
        bool(rows) and rows[-1]["form"].endswith("locked descent") for rows in looped
    ]
    assert forms == [True, True, False, False]


def test_plans_expect_weighted_tokens_at_length_one_alone():
    sizes = "{V: 64, N: 1024, d: 64, L: 8, gamma2: 64, embedding: sphere}"
    point = Point(**yaml.safe_load(sizes), kappa=1e4, steps=1000, lr=4)
    memory = point.replace(L=1)
    grouped, read = (
        amount(Shape.rounded(each), work_of(each)) for each in (memory, point)
    )
    assert 5 * grouped.seconds < read.seconds
