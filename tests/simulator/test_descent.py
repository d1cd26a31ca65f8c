"""Training beyond the recipe: `descend` by cases solved by hand, optimisers by hand,
the simulator against `descend`, and what changes nothing.
"""

import functools
import itertools
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import yaml
from cases import cases
from helpers import assert_same_metrics, quickly, traced
from scipy.special import softmax
from tolerances import assert_close

import jaxrecall
from jaxrecall import Point, descend, measure, model, realize, simulate
from jaxrecall.model.columns import TRACE_COLUMNS
from jaxrecall.model.laws import LAWS
from jaxrecall.model.point import TRAINS, Run
from jaxrecall.model.reference import three_step as recipe_of
from jaxrecall.model.reference.descent import EMBEDDINGS
from jaxrecall.model.reference.steps import attend, features
from jaxrecall.simulator import loops, program
from jaxrecall.simulator.arguments import arguments
from jaxrecall.simulator.program_shape import Shape

RATES = yaml.safe_load("""
sgd: 3.0
momentum: 0.5
adam: 0.02
adamw: 0.02
muon: 0.1
polar: 0.1
""")
"""At which the loss of these small points falls visibly within 20 steps."""

OF_EMBEDDINGS = yaml.safe_load("""
sgd: 0.4
momentum: 0.1
adam: 0.005
adamw: 0.005
muon: 0.05
polar: 0.05
""")
"""The same where embeddings are trained too."""

# more samples than a block has
SMALL = yaml.safe_load(
    "{V: 11, N: 700, d: 14, L: 5, n_test: 600, kappa: 20.0, gamma2: 10.0, steps: 20}"
)
MLP = {"m": 16, "activation": "tanh"}


def later(optimizer: str = "sgd", **fields) -> Point:
    rates = OF_EMBEDDINGS if "Z" in fields.get("trains", "") else RATES
    rate = rates[optimizer.partition("(")[0]]
    return Point(**SMALL | {"optimizer": optimizer, "lr": rate} | fields)


TRACED = later("momentum(schedule='cosine', warmup=2)", exact="full")
ALL_TRAINED = later("momentum", trains="VWZM", **MLP)
FROM_ZERO = later(start="zero", steps=5, batch=40)
FRESH = later(start="zero", steps=5, fresh_batches=True)


@cache
def path(point: Point, seed: int = 0):
    return descend(realize(point, seed), point)


# --- the reference alone


def test_one_step_of_sgd_from_zero_is_step_1_of_the_recipe():
    once = path(FRESH)[1]
    recipe = recipe_of(realize(FRESH, 0), FRESH)
    assert_close(once.V_mat / FRESH.lr, recipe.V1 / FRESH.eta)
    assert not once.W_KQ.any()


@pytest.mark.parametrize("point", [TRACED, ALL_TRAINED], ids=["attention", "mlp"])
def test_the_start_is_what_three_step_learned(point):
    r, first = realize(point, 0), path(point)[0]
    recipe = recipe_of(r, point)
    assert first.step == 3
    assert_close(first.w, recipe.w)
    assert_close(np.outer(first.w, r.z_eos) / (r.z_eos @ r.z_eos), first.W_KQ, "roots")
    assert np.array_equal(first.V_mat, recipe.V2)
    expected, measured = measure(r, point, recipe), measure(r, point, first)
    for name in expected.keys() - {*TRACE_COLUMNS}:
        # columns that the recipe alone lacks
        assert expected[name] is not None or measured[name] is None, name
        if expected[name] is not None:
            assert_close(measured[name], expected[name], of=name)
    z = r.astype(np.float64)
    for x, ell, y, loss in ((*r[6:9], first.loss), (*r[9:12], first.test_loss)):
        outputs = attend(z, point, x, ell, recipe.w)[0]
        logits = features(z, point, outputs)[0] @ recipe.V2.T @ z.Z_out.T
        right = logits[np.arange(len(y)), y]
        assert_close(np.mean(np.logaddexp.reduce(logits, axis=1) - right), loss)


EVERY_PAIR = [
    pytest.param(later(name, trains=trains, **MLP), marks=pytest.mark.slow)
    for trains, name in itertools.product(TRAINS, RATES)
]


@pytest.mark.parametrize(
    "point",
    [later(trains="V"), TRACED, ALL_TRAINED, *EVERY_PAIR],
    ids=lambda point: f"{point.trains}-{point.optimizer}",
)
def test_only_what_is_trained_moves_and_the_loss_falls(point):
    first, *_, end = path(point)
    moved = {"V_mat", *TRAINS[point.trains]}
    if point.trains != "V":
        moved.add("W_KQ")
    for name in ("V_mat", "W_KQ", *EMBEDDINGS):
        before, after = getattr(first, name), getattr(end, name)
        assert np.array_equal(before, after) == (name not in moved), name
        assert before is None or after.dtype == np.float64
    assert end.loss < 0.9 * first.loss
    assert end.test_loss < first.test_loss
    assert not jax.config.jax_enable_x64


def test_attention_has_a_rate_of_its_own():
    slow, fast = (later(lr_attention=rate, steps=4) for rate in (1.0, 3.0))
    first, once = path(slow)
    assert_close(path(fast)[-1].W_KQ - first.W_KQ, 3 * (once.W_KQ - first.W_KQ))
    assert np.array_equal(path(fast)[-1].V_mat, once.V_mat)
    assert np.array_equal(path(later(lr_attention=0))[-1].W_KQ, first.W_KQ)


@pytest.mark.parametrize("optimizer", cases("[momentum, adam]", "[sgd, adamw]"))
def test_w_alone_stands_for_the_whole_matrix_unless_entries_have_rates_of_their_own(
    optimizer,
):
    """w moves at |z_eos|^2 times the rate of W_KQ; adam and adamw divide that out."""
    point = TRACED if optimizer == "momentum" else later(optimizer)
    first, *_, end = path(point)
    reduced = by_w_alone(realize(point, 0), point, first)
    if optimizer in ("sgd", "momentum"):
        assert_close(end.w, reduced)
        assert np.linalg.matrix_rank(end.W_KQ) == 1
    else:
        assert np.linalg.norm(end.w - reduced) > 0.01 * np.linalg.norm(reduced)
        assert np.linalg.matrix_rank(end.W_KQ) > 1


def by_w_alone(r, point, first):
    """w after the point's steps, by the same optimizer on V_mat and w."""
    z, batch = r.astype(np.float64), r[6:9]
    square = z.z_eos @ z.z_eos
    rates = {"V_mat": point.lr, "w": point.lr * square}
    optimizer = point.optimizer.descent(rates, np.int64(point.further_steps))
    settings = point.activation, point.trigger_in_value

    def loss(moved):
        W_KQ = jnp.outer(moved["w"], z.z_eos) / square
        recall = model.Recall(moved["V_mat"], W_KQ, z.embeddings, *settings)
        return model.loss(recall, *batch)

    def step(_, now):
        moves, state = optimizer.update(jax.grad(loss)(now[0]), now[1], now[0])
        return optax.apply_updates(now[0], moves), state

    @jax.jit
    def trained(moved):
        now = moved, optimizer.init(moved)
        return jax.lax.fori_loop(0, point.further_steps, step, now)[0]["w"]

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        return np.asarray(trained({"V_mat": first.V_mat, "w": first.w}))


def test_norms_and_overlaps_are_those_of_the_trained_arrays():
    r, end = realize(ALL_TRAINED, 0), path(ALL_TRAINED)[-1]
    row = measure(r, ALL_TRAINED, end)
    lengths = np.linalg.norm(end.Z_in, axis=1)
    every_cosine = end.Z_in @ end.Z_in.T / np.outer(lengths, lengths)
    cosines = every_cosine[np.tril_indices(11, -1)]
    expected = {
        "Z_in_overlap": np.mean(cosines**2) ** 0.5,
        "Z_in_norm": np.mean(lengths**2) ** 0.5,
        "V_norm": np.linalg.norm(end.V_mat),
        "W_norm": np.linalg.norm(end.W_KQ),
    }
    assert_close({name: row[name] for name in expected}, expected)
    orthonormal = end._replace(Z_in=np.eye(11, 14), Z_out=np.eye(11, 14)[::-1])
    row = measure(r, ALL_TRAINED, orthonormal)
    assert (row["Z_in_norm"], row["Z_out_norm"]) == (1, 1)
    assert (row["Z_in_overlap"], row["Z_out_overlap"]) == (0, 0)


def test_fresh_batches_are_read_one_a_step():
    r = realize(FRESH, 0)
    assert r.train_tokens.shape == (5, 700, 5)
    three = realize(FRESH.replace(steps=3), 0)
    assert np.array_equal(r.train_tokens[:3], three.train_tokens)
    assert len({batch.tobytes() for batch in r.train_tokens}) == 5
    shuffled = r.train_labels.copy()
    shuffled[3] = shuffled[3, ::-1]
    others = descend(r._replace(train_labels=shuffled), FRESH)
    for one, other in zip(path(FRESH), others, strict=True):  # 0, 1, 2, 5
        assert np.array_equal(one.V_mat, other.V_mat) == (one.step < 4)
    with pytest.raises(ValueError, match=r"^N, L: got .*, 1000000 fresh batches"):
        realize(FRESH.replace(steps=10**6), 0)


def test_the_recipe_alone_has_nothing_to_descend():
    point = Point(**SMALL | {"steps": 3})
    with pytest.raises(ValueError, match=r"^point: got steps=3"):
        descend(realize(point, 0), point)


def test_batches_are_even_draws_with_replacement_that_share_prefixes():
    point = later(batch=500, steps=8)
    items = realize(point, 0).train_items
    assert items.shape == (5, 500)
    expected = 2500 / 700
    chi_squared = ((np.bincount(items.ravel(), minlength=700) - expected) ** 2).sum()
    assert chi_squared / expected < 821  # 699 degrees, 0.1 %
    assert len({step.tobytes() for step in items}) == 5
    assert np.array_equal(realize(FROM_ZERO, 0).train_items[3:], items[:2, :40])
    with pytest.raises(ValueError, match=r"^batch, steps: got batch=500, steps=10000"):
        realize(point.replace(steps=10**6), 0)


def test_a_step_reads_the_samples_of_its_batch():
    r = realize(FROM_ZERO, 0)
    z = r.astype(np.float64)
    for step, (before, after) in enumerate(itertools.pairwise(path(FROM_ZERO)[:3])):
        tokens, positions, labels = (batch[r.train_items[step]] for batch in r[6:9])
        outputs = attend(z, FROM_ZERO, tokens, positions, before.w)[0]
        phi = features(z, FROM_ZERO, outputs)[0]
        p = softmax(phi @ before.V_mat.T @ before.Z_out.T, axis=1)
        slope = before.Z_out.T @ (p - np.eye(11)[labels]).T @ phi / 40
        assert_close(after.V_mat, before.V_mat - FROM_ZERO.lr * slope)


# --- optimisers


@cache
def steps_of_optimizers():
    """A matrix, two gradients, and by optimiser the two steps that it makes."""
    theta, *gradients = np.random.default_rng(0).normal(size=(3, 4, 3))

    @quickly
    def moves():
        by_name = {}
        for name in RATES:
            optimizer = later(name).optimizer.descent({"Z_in": 0.1}, 20)
            state, made = optimizer.init({"Z_in": theta}), []
            for G in gradients:
                move, state = optimizer.update({"Z_in": G}, state, {"Z_in": theta})
                made.append(move["Z_in"])
            by_name[name] = made
        return by_name

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        return theta, *gradients, jax.device_get(moves())


def test_optimizers_make_their_first_two_steps_as_by_hand():
    theta, G0, G1, made = steps_of_optimizers()
    adam = (0.09 * G0 + 0.1 * G1) / 0.19
    adam /= np.sqrt((0.999e-3 * G0**2 + 1e-3 * G1**2) / (1 - 0.999**2)) + 1e-8
    U, _, Vt = np.linalg.svd(G1, full_matrices=False)
    expected = {
        "sgd": G1,
        "momentum": 0.9 * G0 + G1,
        "adam": adam,
        "adamw": adam + 1e-4 * theta,
        "polar": U @ Vt,
    }
    assert expected.keys() | {"muon"} == RATES.keys() == LAWS["optimizer"].keys()
    for name, step in expected.items():
        assert_close(made[name][1], -0.1 * step, of=name)
    decay = made["adamw"][1] - made["adam"][1]
    assert_close(decay, -1e-5 * theta, scale=0.1)
    U, _, Vt = np.linalg.svd(G0, full_matrices=False)
    of_directions = U.T @ made["muon"][0] @ Vt.T  # 0.68 to 1.13
    assert_close(of_directions, -0.09 * np.eye(3), 0.05)


def test_schedules_rise_from_0_and_fall_to_0_at_the_last_step():
    def course(optimizer, n_steps):
        law = later(optimizer).optimizer.descent({"w": 1.0}, n_steps)

        def step(state, _):
            move, state = law.update({"w": np.float32(-1)}, state)
            return state, move["w"]

        return jax.lax.scan(step, law.init({"w": np.float32(0)}), length=n_steps)[1]

    linear, cosine = quickly(
        lambda: (
            course("sgd(schedule='linear', warmup=2)", 6),
            course("sgd(schedule='cosine', warmup=4)", 20),
        )
    )()
    assert_close(linear, np.array([0, 0.5, 1, 0.75, 0.5, 0.25]), "float32")
    falling = (1 + np.cos(np.pi * np.arange(16) / 16)) / 2
    assert_close(cosine, np.array([0, 0.25, 0.5, 0.75, *falling]), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_a_run_is_the_same_in_other_programs_and_in_float64(name):
    """Optimisers other than sgd may make a whole step of an entry or a singular value
    that is rounding, so the steps are few.
    """
    base = yaml.safe_load("{V: 48, N: 512, d: 20, L: 8, activation: gelu, gamma2: 20}")
    base |= {"steps": 30, "optimizer": name, "lr": RATES[name]}
    grid = {"base": base, "seeds": 1, "blocks": [{"axes": {"m": [36, 96]}}]}
    frame = jaxrecall.run(grid, progress=False).query("m == 36").set_index("step")
    point = Point(**base, m=36)
    for learned in path(point):
        assert_close(frame["loss"][learned.step], learned.loss, "float32")
    assert_close(simulate(point, 0)["loss"], learned.loss, "float32")


MINE = """\
import optax

def clipped(rate, largest=1.0):
    return optax.chain(optax.clip_by_global_norm(largest), optax.sgd(rate))
"""


@pytest.mark.system
def test_an_optimiser_of_ones_own_runs_in_workers(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    laws = ["sgd", "mine:clipped", "mine:clipped(largest=0.001)"]
    base = SMALL | {"steps": 6, "start": "zero", "lr": 0.5}
    grid = {"base": base, "seeds": 2, "blocks": [{"axes": {"optimizer": laws}}]}
    ends = jaxrecall.run(grid, workers=2, progress=False).query("step == 6")
    by_law = ends.pivot(index="seed", columns="optimizer", values="loss")
    sgd, wide, tight = (by_law[law] for law in laws)
    assert_close(sgd, wide, "float32")
    assert (tight > sgd + 0.01).all()


# --- the simulator against the reference


def every_case():
    """Every optimizer with all that it may train, with and without MLP and pool; starts
    and activations in turn.

    The activations are smooth: where a unit of a relu is off or on by rounding alone,
    two runs part.
    """
    numbers = itertools.count()
    for optimizer, trains, mlp, pool in itertools.product(
        RATES, TRAINS, (False, True), (False, True)
    ):
        if trains == "VWZM" and not mlp:
            continue
        i = next(numbers)
        # undamped, polar makes a whole step of a singular value that is rounding
        damped = optimizer.replace("polar", "polar(lam=0.01)")
        case = {"optimizer": damped, "trains": trains}
        case["start"] = ("three_step", "zero")[i % 2]
        if mlp:
            case |= MLP | {"activation": ("gelu", "tanh")[i // 2 % 2]}
        if pool:
            case["pool"] = 24
        yield case


@jax.jit
def stored(world):
    tokens = loops.store_tokens(world, loops.no_tokens(world.shape))
    return replace(world, stored_tokens=tokens)


def check(case: dict) -> None:
    """Losses, and parameters in a program of V and d 32: within a thousandth of
    their norm, as optimisers enlarge rounding.
    """
    point = later(**case)
    expected = path(point, 3)
    shape = Shape.sized(point, 32, 32, 32 if point.m else 0)
    assert expected[-1].loss < expected[0].loss
    trace = traced(point, 3, shape, stored if shape.stores_tokens else lambda w: w)
    for now, judge in zip(trace, expected, strict=True):
        assert_close(now["loss"], judge.loss, "float32")
        assert_close(now["test_loss"], judge.test_loss, "float32")
        for name, parameter in now["params"].items():
            exact = getattr(judge, name)
            # all that it has, in the basis that starts with z_eos
            if name == "W_KQ" and point.optimizer.attention == "column":
                unit = judge.z_eos / np.linalg.norm(judge.z_eos)
                exact = judge.W_KQ @ unit[:, None]
                assert_close(exact * unit, judge.W_KQ, "roots")
            size = np.linalg.norm(exact)  # zero where nothing trains it
            assert np.linalg.norm(parameter - exact) <= 1e-3 * size, name


SELDOM = """
- {optimizer: adam, trains: VWZM, m: 16, activation: relu}  # has a kink
- {trains: VW, fresh_batches: true, start: zero}
- {trains: VW, batch: 600}
- {trains: VW, batch: 600, L: 40}
- {trains: VWZ, L: 40, first_steps: 3}
"""


@pytest.mark.parametrize(
    "case",
    [
        {"optimizer": "momentum", "trains": "VWZM", "L": 40, **MLP},
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in [*every_case(), *yaml.safe_load(SELDOM)]
        ),
    ],
    ids=str,
)
def test_parameters_and_losses_agree(case):
    check(case)


SATURATED = yaml.safe_load("""
{V: 28, d: 13, L: 9, n_test: 200, eta: 2.0e-5, gamma2: 5, trigger_in_value: false,
 exact: full, steps: 5, optimizer: adam, lr: 2}
""")
"""Attention is all on one token, not always the informative one. Trained keys get
slopes by its logits times w, of 1e5 and more.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    yaml.safe_load("""
- {N: 6, kappa: 1.0e+7, trains: VWZ}
- {N: 6, kappa: 1.0e+5, trains: V}
- {N: 6, kappa: 1.0e+5, trains: VWZ, pool: 5, m: 32, activation: quadratic}
- {N: 100, kappa: 1.0e+5, trains: VWZ}
- {N: 100, kappa: 1.0e+5, trains: VWZ, m: 32, activation: quadratic}
- {N: 6, kappa: 1.0e+7, trains: VWZ, pool: 5}
- {V: 29, d: 21, N: 34, L: 12, embedding: power_law(alpha=1), fresh_batches: true,
   steps: 20, optimizer: momentum, lr: 0.91, trigger_in_value: true, eta: 0.001,
   gamma2: null}
"""),
    ids=str,
)
def test_rounding_is_no_slope_of_saturated_attention(case):
    """Adam makes a step of any slope that is not 0. At logits of 1e7, their rounding
    times the rate would give each seed another loss.
    """
    point = Point(**SATURATED | case)
    for seed in (1, 3):
        loss = path(point, seed)[-1].loss
        assert_close(simulate(point, seed)["loss"], loss, 4e-4 * loss)


@pytest.mark.parametrize(
    "point",
    [
        TRACED,
        pytest.param(
            later("polar(lam=0.01)", pool=24, exact="full"), marks=pytest.mark.slow
        ),
    ],
    ids=lambda point: point.optimizer.attention,
)
def test_rows_of_a_trace_have_the_metrics_of_the_reference(point):
    r, rows = realize(point, 0), simulate(point, 0, trace=True)
    assert [row["step"] for row in rows] == [3, 5, 10, 20]
    form = "pool-full, descent" if point.pool else "full, descent"
    assert {row["form"] for row in rows} == {form}
    for row, learned in zip(rows, path(point), strict=True):
        judge = measure(r, point, learned)
        assert_same_metrics(row, judge)
        for name in TRACE_COLUMNS:
            assert_close(row[name], judge[name], "float32", of=name)
    assert rows[-1]["accuracy"] > rows[0]["accuracy"] + 0.1
    assert simulate(point, 0) == rows[-1]


# --- what changes nothing


def test_rates_and_seeds_share_one_program_and_do_not_mix():
    """Four rates and two seeds in a batch: every row is the one of its run alone."""
    before = program._compiled.cache_info().misses
    points = [
        TRACED.replace(lr=0.5 * rate, steps=10 if rate % 2 else 20)
        for rate in range(1, 5)
    ]
    runs = [Run(point, seed) for point in points for seed in (0, 1)]
    compiled = program.compiled(Shape.rounded(TRACED))
    together = program.execute(compiled, runs)[0]
    alone = [program.execute(compiled, [run])[0][0] for run in reversed(runs)]
    assert together == alone[::-1]
    assert {Shape.rounded(point) for point in points} == {Shape.rounded(TRACED)}
    assert program._compiled.cache_info().misses - before <= 1
    assert len({rows[-1]["loss"] for rows in together}) == 8


@pytest.mark.slow
def test_padding_changes_nothing():
    """With another tile, too."""
    point = ALL_TRAINED.replace(steps=10)
    tight, wide = (
        traced(point, 2, Shape.sized(point, *sizes), tile=tile)
        for sizes, tile in (((11, 14, 16), 1024), ((32, 32, 32), 512))
    )
    for one, other in zip(tight, wide, strict=True):
        assert_close(other["loss"], one["loss"], "float32")
        assert_close(other["test_loss"], one["test_loss"], "float32")
        assert_close(other["params"], one["params"], "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        TRACED.replace(start="zero", N=1024),
        Point(**SMALL | {"steps": 3, "N": 1024, "kappa": 1.0}),
    ],
    ids=["further steps", "recipe"],
)
def test_stored_tokens_are_those_that_each_loop_draws(point, monkeypatch):
    """N 1024 takes two tiles of 512 samples, or one of 2048 samples."""
    n_tokens = Shape.rounded(point).tile * (2 if point.optimizer else 1) * point.L
    made = []
    for most in (n_tokens, n_tokens - 1):
        monkeypatch.setattr(loops, "STORED_TOKENS", most)
        shape = Shape.rounded(point)
        run = quickly(functools.partial(program.simulate_run, shape=shape))
        given = jax.tree.map(lambda a: a[0], arguments([Run(point, 5)], shape))
        raw, tokens = run(given, loops.no_tokens(shape))
        assert bool(tokens.any()) == (most == n_tokens)
        made.append(raw)
    jax.tree.map(np.testing.assert_array_equal, *made)


def test_a_rate_that_overflows_gives_nonfinite_rows_from_there_on():
    rows = simulate(TRACED.replace(lr=1e30), 0, trace=True)
    assert [row["status"] for row in rows] == ["ok", *["nonfinite"] * 3]
    assert [row["step"] for row in rows] == [3, 5, 10, 20]
    later_rows = {row[name] for row in rows[1:] for name in ("loss", "accuracy")}
    assert later_rows == {None}
    start = simulate(TRACED, 0, trace=True)[0]
    changed = {name for name in start if rows[0][name] != start[name]}
    assert changed == {"lr", "lr_attention", "point_id"}
    assert not np.isfinite(path(TRACED.replace(lr=1e200))[-1].loss)
