"""Training beyond the recipe: `descend` by cases solved by hand, the simulator against
`descend`, and what changes nothing.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_metrics, combinations, quickly, relative, traced
from scipy.special import softmax

from jaxrecall import Point, descend, measure, model, realize, simulate, three_step
from jaxrecall.errors import PointError
from jaxrecall.model.columns import TRACE_COLUMNS
from jaxrecall.model.laws import LAWS
from jaxrecall.model.point import TRAINS, Run
from jaxrecall.model.reference.descent import EMBEDDINGS
from jaxrecall.model.reference.steps import attend, features
from jaxrecall.simulator import loops, program
from jaxrecall.simulator.arguments import arguments
from jaxrecall.simulator.program_shape import Shape

OPTIMIZERS = tuple(LAWS["optimizer"])

RATES = {
    "sgd": 3.0,
    "momentum": 0.5,
    "adam": 0.02,
    "adamw": 0.02,
    "signsgd": 0.02,
    "lion": 0.02,
    "muon": 0.1,
    "polar": 0.1,
}
"""At which the loss of these small points falls visibly within 20 steps."""

RATES_OF_EMBEDDINGS = (
    RATES
    | {"sgd": 0.4, "momentum": 0.1}
    | dict.fromkeys(OPTIMIZERS[2:6], 0.005)
    | {"muon": 0.05, "polar": 0.05}
)
"""The same where embeddings are trained too."""

SMALL = {
    "V": 12,
    "N": 300,
    "d": 10,
    "L": 4,
    "n_test": 200,
    "kappa": 20.0,
    "gamma2": 10.0,
}
MLP = {"m": 16, "activation": "tanh"}


def later(optimizer: str = "sgd", **kw) -> Point:
    rates = RATES_OF_EMBEDDINGS if kw.get("trains", "V") in ("VWZ", "VWZM") else RATES
    return Point(
        **{**SMALL, "steps": 20, "optimizer": optimizer, "lr": rates[optimizer], **kw}
    )


def last(point: Point, seed: int = 0):
    return descend(realize(point, seed), point)[-1]


# --- the reference alone


@pytest.mark.parametrize(
    "kw",
    [pytest.param({}, marks=pytest.mark.slow), MLP],
    ids=["attention", "mlp"],
)
def test_one_step_of_sgd_from_zero_is_step_1_of_the_recipe(kw):
    point = later(**kw, steps=1, start="zero", lr=1e-3)
    # eta is 1e-3
    assert relative(last(point).V_mat, three_step(realize(point, 0), point).V1) < 1e-13
    assert not last(point).W_KQ.any()


@pytest.mark.parametrize("kw", [{}, MLP], ids=["attention", "mlp"])
def test_the_start_is_what_three_step_learned(kw):
    point = later(**kw)
    r = realize(point, 0)
    first, recipe = descend(r, point)[0], three_step(r, point)
    assert (first.step, relative(first.w, recipe.w) < 1e-13) == (3, True)
    assert np.linalg.matrix_rank(first.W_KQ) == 1
    assert np.array_equal(first.V_mat, recipe.V2)
    expected, found = measure(r, point, recipe), measure(r, point, first)
    numbers = {name: value for name, value in expected.items() if value is not None}
    assert {name: found[name] for name in numbers} == pytest.approx(numbers, rel=1e-12)
    # columns that the recipe alone lacks
    assert all(
        found[name] is None for name in expected.keys() - {*numbers, *TRACE_COLUMNS}
    )
    z = r.astype(np.float64)
    for x, ell, y, loss in ((*r[6:9], first.loss), (*r[9:12], first.test_loss)):
        logits = (
            features(z, point, attend(z, point, x, ell, recipe.w)[0])[0]
            @ recipe.V2.T
            @ z.Z_out.T
        )
        assert loss == pytest.approx(
            np.mean(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(y)), y]),
            rel=1e-12,
        )


def test_optimizers_make_their_first_steps_as_by_hand():
    """V alone from zero, so that the two gradients are those of sgd at V = 0 and at
    what each made of it.
    """
    kw = {"start": "zero", "trains": "V", "lr": 0.01}
    G0 = last(later("sgd", **kw, steps=1)).V_mat / -0.01
    sgd, momentum = (
        last(later(optimizer, **kw, steps=2)).V_mat for optimizer in ("sgd", "momentum")
    )
    G1 = (sgd + 0.01 * G0) / -0.01
    assert relative(momentum, -0.01 * (1.9 * G0 + G1)) < 1e-13
    adam = last(later("adam", **kw, steps=1)).V_mat
    assert relative(adam, -0.01 * G0 / (abs(G0) + 1e-8)) < 1e-10
    point = later("adamw", steps=4, trains="V")
    first, second = descend(realize(point, 0), point)
    decay = second.V_mat - last(later("adam", steps=4, trains="V")).V_mat
    assert relative(decay, -point.lr * 1e-4 * first.V_mat) < 1e-9


def by_turns(trains: str, optimizer: str) -> bool:
    """Each optimizer once, and each of what it may train twice."""
    return OPTIMIZERS.index(optimizer) % len(TRAINS) == [*TRAINS].index(trains)


@pytest.mark.parametrize(
    ("trains", "optimizer"), combinations(TRAINS, OPTIMIZERS, often=by_turns)
)
def test_only_what_is_trained_moves_and_the_loss_falls(optimizer, trains):
    point = later(optimizer, **MLP, trains=trains)
    first, *_, end = descend(realize(point, 0), point)
    moved = {"V_mat", *(() if trains == "V" else ("W_KQ",)), *TRAINS[trains]}
    for name in ("V_mat", "W_KQ", *EMBEDDINGS):
        assert np.array_equal(getattr(first, name), getattr(end, name)) == (
            name not in moved
        ), name
        assert getattr(end, name).dtype == np.float64
    assert end.loss < 0.9 * first.loss
    assert end.test_loss < first.test_loss
    assert not jax.config.jax_enable_x64


def test_attention_has_a_rate_of_its_own():
    slow, fast = (later(lr_attention=rate, steps=4) for rate in (1.0, 3.0))
    first, slow = descend(realize(slow, 0), slow)
    assert relative(last(fast).W_KQ - first.W_KQ, 3 * (slow.W_KQ - first.W_KQ)) < 1e-9
    assert np.array_equal(last(fast).V_mat, slow.V_mat)
    assert np.array_equal(last(later(lr_attention=0)).W_KQ, first.W_KQ)


STARTS = ["three_step", "zero"]
ALONE = ["momentum", "adam", "sgd", "adamw"]


@pytest.mark.parametrize(
    ("start", "optimizer"),
    combinations(
        STARTS, ALONE, often=lambda *case: case in zip(STARTS, ALONE, strict=False)
    ),
)
def test_w_alone_stands_for_the_whole_matrix_unless_entries_have_rates_of_their_own(
    optimizer, start
):
    """w moves at |z_eos|^2 times the rate of W_KQ; adam and adamw divide that out."""
    point = later(optimizer, start=start, steps=10)
    r = realize(point, 0)
    first, *_, end = descend(r, point)
    reduced = by_w_alone(r, point, first)
    if optimizer in ("sgd", "momentum"):
        assert relative(end.w, reduced) < 1e-11
        assert np.linalg.matrix_rank(end.W_KQ) == 1
    else:
        assert relative(end.w, reduced) > 0.01
        assert np.linalg.matrix_rank(end.W_KQ) > 1


def by_w_alone(r, point, first):
    """w after the point's steps, by the same optimizer on V_mat and w."""
    optimizer = point.optimizer.transformation(1.0)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        z = r.astype(np.float64)
        z_eos = jnp.asarray(z.z_eos)

        @jax.jit
        def step(moved, state):
            def loss(moved):
                W_KQ = jnp.outer(moved["w"], z_eos) / (z_eos @ z_eos)
                recall = model.Recall(
                    moved["V_mat"],
                    W_KQ,
                    z.embeddings,
                    point.activation,
                    point.trigger_in_value,
                )
                return model.loss(recall, *r[6:9])

            moves, state = optimizer.update(jax.grad(loss)(moved), state, moved)
            rates = {"V_mat": point.lr, "w": point.lr * (z_eos @ z_eos)}
            return {
                name: moved[name] + rates[name] * moves[name] for name in moved
            }, state

        moved = {"V_mat": jnp.asarray(first.V_mat), "w": jnp.asarray(first.w)}
        state = optimizer.init(moved)
        for _ in range(point.further_steps):
            moved, state = step(moved, state)
        return np.asarray(moved["w"])


def test_norms_and_overlaps_are_those_of_the_trained_arrays():
    point = later(**MLP, trains="VWZ", embedding="orthogonal", V=8)
    r = realize(point, 0)
    first, end = (
        measure(r, point, learned)
        for learned in (descend(r, point)[i] for i in (0, -1))
    )
    assert (
        first["Z_in_norm"],
        first["Z_out_norm"],
        first["Z_in_overlap"],
        first["Z_out_overlap"],
    ) == (1, 1, 0, 0)
    Z = last(point).Z_in
    cosines = [
        Z[i] @ Z[j] / np.sqrt((Z[i] @ Z[i]) * (Z[j] @ Z[j]))
        for i in range(8)
        for j in range(i)
    ]
    assert end["Z_in_overlap"] == pytest.approx(np.mean(np.square(cosines)) ** 0.5)
    assert end["Z_in_overlap"] > 0.01
    assert end["Z_in_norm"] == pytest.approx(
        np.mean(np.linalg.norm(Z, axis=1) ** 2) ** 0.5
    )
    assert end["V_norm"] == pytest.approx(np.sqrt((last(point).V_mat ** 2).sum()))
    assert end["accuracy"] > first["accuracy"] + 0.05


def test_fresh_batches_are_read_one_a_step():
    point = later(fresh_batches=True, steps=5, start="zero")
    r = realize(point, 0)
    assert r.train_tokens.shape == (5, 300, 4)
    assert np.array_equal(
        r.train_tokens[:3], realize(Point(**SMALL, fresh_batches=True), 0).train_tokens
    )
    assert len({batch.tobytes() for batch in r.train_tokens}) == 5
    shuffled = r.train_labels.copy()
    shuffled[3] = shuffled[3, ::-1]
    other = descend(r._replace(train_labels=shuffled), point)
    for one, two in zip(descend(r, point), other, strict=True):  # 0, 1, 2, 5
        assert np.array_equal(one.V_mat, two.V_mat) == (one.step < 4)
    with pytest.raises(
        ValueError,
        match=(
            r"1000000 fresh batches, 12000\d+ tokens to write out; allowed: up to"
            r" 67108864"
        ),
    ):
        realize(point.replace(steps=10**6), 0)


def test_the_recipe_alone_has_nothing_to_descend():
    point = Point(**SMALL)
    with pytest.raises(
        ValueError,
        match=(
            "point: got steps=3, start='three_step', the recipe alone; allowed:"
            " steps > 3"
        ),
    ):
        descend(realize(point, 0), point)


def test_batches_are_even_draws_with_replacement_that_share_prefixes():
    point = later(batch=250, steps=103)
    items = realize(point, 0).train_items
    assert items.shape == (100, 250)
    # chi-squared, 299 degrees, 0.1 %
    assert ((np.bincount(items.ravel(), minlength=300) - 25000 / 300) ** 2).sum() / (
        25000 / 300
    ) < 381
    assert len({step.tobytes() for step in items}) == 100
    assert np.array_equal(
        realize(point.replace(batch=40, steps=8), 0).train_items, items[:5, :40]
    )
    assert np.array_equal(
        realize(point.replace(batch=40, steps=8, start="zero"), 0).train_items[3:],
        items[:5, :40],
    )
    with pytest.raises(
        ValueError,
        match=(
            "batch, steps: got batch=250, steps=1000000, 249999250 samples to write"
            " out; allowed: up to 67108864"
        ),
    ):
        realize(point.replace(steps=10**6), 0)


def test_a_step_reads_the_samples_of_its_batch():
    point = later(batch=40, steps=2, start="zero")
    r = realize(point, 0)
    first, once, twice = descend(r, point)
    for step, (before, after) in enumerate(itertools.pairwise((first, once, twice))):
        tokens, positions, labels = (
            a[r.train_items[step]]
            for a in (r.train_tokens, r.train_positions, r.train_labels)
        )
        phi = features(
            r.astype(np.float64),
            point,
            attend(r.astype(np.float64), point, tokens, positions, before.w)[0],
        )[0]
        p = softmax(phi @ before.V_mat.T @ before.Z_out.T, axis=1)
        slope = (p - np.eye(12)[labels]).T @ phi / 40
        assert (
            relative(after.V_mat, before.V_mat - point.lr * before.Z_out.T @ slope)
            < 1e-12
        )


# --- the simulator against the reference


def cases():
    """Every optimizer with all that it may train, with and without MLP and pool; starts
    and activations in turn.

    The activations are smooth: where a unit of a relu is off or on by rounding alone,
    two runs part.
    """
    numbers = itertools.count()
    for optimizer, trains, mlp, pool in itertools.product(
        OPTIMIZERS, TRAINS, (False, True), (False, True)
    ):
        if trains != "VWZM" or mlp:
            i = next(numbers)
            more = {"m": 16, "activation": ("gelu", "tanh")[i // 2 % 2]} if mlp else {}
            yield {
                "optimizer": optimizer,
                "trains": trains,
                "start": ("three_step", "zero")[i % 2],
                **more,
            } | ({"pool": 24} if pool else {})


EVERY = list(cases())
SOME = EVERY[26::24]
"""Of four optimizers. Other tests train by sgd."""


FAST = [case for case in SOME if case["trains"] == "VWZM"][:1]
"""With an MLP and all parameters; other files train V_mat and W_KQ alone."""


def check(case: dict, d: int = 32) -> None:
    """Losses within 1e-4 after 5, 20 and 100 steps, parameters within 1e-3 of their
    norm after 20, in a program of V 32 and this d.
    """
    point = later(
        **{"V": 11, "N": 700, "d": 14, "L": 5, "n_test": 600, **case}, steps=100
    )
    expected = descend(realize(point, 3), point)
    shape = Shape.sized(point, 32, d, 32 if point.m else 0)
    assert shape.through_logits == (
        d >= 16 and not point.m and not TRAINS[point.trains]
    )
    found = traced(point, 3, shape)
    first, last = expected[0], expected[-1]
    assert last.loss < 0.95 * first.loss
    for now, judge in zip(found, expected, strict=True):
        assert now["loss"] == pytest.approx(judge.loss, rel=1e-4), judge.step
        assert now["test_loss"] == pytest.approx(judge.test_loss, rel=1e-4), judge.step
        if judge.step == 20:
            for name, parameter in now["params"].items():
                exact = getattr(judge, name)  # zero where nothing trains it
                # all that it has, in the basis that starts with z_eos
                if name == "W_KQ" and point.optimizer.attention == "column":
                    exact = (judge.w / np.linalg.norm(judge.z_eos))[:, None]
                    assert np.linalg.norm(
                        judge.W_KQ - exact * judge.z_eos / np.linalg.norm(judge.z_eos)
                    ) <= 1e-6 * np.linalg.norm(exact)
                assert np.linalg.norm(parameter - exact) <= 1e-3 * np.linalg.norm(
                    exact
                ), name


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in FAST else pytest.mark.slow)
        for case in SOME
    ],
    ids=str,
)
def test_some_combinations_agree(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_combination_agrees(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        # more than a block of samples, and a last block that is not full
        {
            "trains": "VW",
            "batch": 600,
        },
        *(
            pytest.param({"trains": trains}, marks=pytest.mark.slow)
            for trains in TRAINS
            if trains != "VWZM"
        ),
    ],
    ids=str,
)
def test_a_vocabulary_wider_than_2_d_agrees(case):
    """Attention outputs are formed there, as with an MLP."""
    check({"optimizer": "momentum", **case}, d=14)


@pytest.mark.slow  # smooth ones are among the combinations
def test_an_activation_with_a_kink_agrees():
    check({"optimizer": "adam", "trains": "VWZM", "m": 16, "activation": "relu"})


SATURATED = {
    "V": 28,
    "d": 13,
    "L": 9,
    "eta": 2e-5,
    "gamma2": 5.0,
    "steps": 5,
    "n_test": 200,
    "trigger_in_value": False,
    "exact": "full",
}
"""Attention is all on one token, not always the informative one. Trained keys get
slopes by its logits times w, of 1e5 and more.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kw",
    [
        {"N": 6, "kappa": 1e7, "trains": "VWZ"},
        pytest.param({"N": 6, "kappa": 1e5, "trains": "V"}, marks=pytest.mark.slow),
        pytest.param(
            {
                "N": 6,
                "kappa": 1e5,
                "trains": "VWZ",
                "pool": 5,
                "m": 32,
                "activation": "quadratic",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param({"N": 100, "kappa": 1e5, "trains": "VWZ"}, marks=pytest.mark.slow),
        pytest.param(
            {
                "N": 100,
                "kappa": 1e5,
                "trains": "VWZ",
                "m": 32,
                "activation": "quadratic",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"N": 6, "kappa": 1e7, "trains": "VWZ", "pool": 5}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_rounding_is_no_slope_of_saturated_attention(kw):
    """Adam makes a step of any slope that is not 0."""
    point = Point(**{**SATURATED, "optimizer": "adam", "lr": 2.0, **kw})
    row = simulate(point, 1)
    assert row["loss"] == pytest.approx(last(point, 1).loss, rel=2e-4)


@pytest.mark.slow
def test_rounding_is_no_slope_of_saturated_attention_where_logits_are_large():
    """Each seed would have another loss: rounding of logits of 1e7, times the rate, is
    what attention would follow.
    """
    point = Point(
        V=29,
        d=21,
        N=34,
        L=12,
        embedding="power_law(alpha=1)",
        fresh_batches=True,
        steps=20,
        optimizer="momentum",
        lr=0.91,
    )
    seeds = [3, 5, 8, 10]
    exact = [last(point, seed).loss for seed in seeds]
    np.testing.assert_allclose(
        [row["loss"] for row in simulate(point.replace(exact="full"), seeds)],
        exact,
        rtol=2e-5,
    )


@pytest.mark.parametrize(
    "kw",
    [
        {"fresh_batches": True, "start": "zero"},
        {"batch": 600},
    ],
    ids=str,
)
@pytest.mark.slow
def test_batches_agree(kw):
    """Of their own for each step, or drawn from one; in the fast run tests of label
    noise have the first, and tests above the second.
    """
    check({"optimizer": "sgd", "trains": "VW", **kw})


TRACED = later(
    V=30, N=600, d=12, L=6, n_test=600, steps=50, optimizer="momentum", exact="full"
)
"""A point whose program the tests below share."""


def test_rows_of_a_trace_have_the_metrics_of_the_reference():
    r = realize(TRACED, 5)
    expected = [measure(r, TRACED, learned) for learned in descend(r, TRACED)]
    rows = simulate(TRACED, 5, trace=True)
    assert [row["step"] for row in rows] == [3, 5, 10, 20, 50]
    assert {row["form"] for row in rows} == {"full, descent"}
    for row, judge in zip(rows, expected, strict=True):
        assert_same_metrics(row, judge)
        for name in TRACE_COLUMNS:
            assert row[name] == pytest.approx(judge[name], rel=1e-4), name
    assert rows[-1]["accuracy"] > rows[0]["accuracy"] + 0.1
    assert simulate(TRACED, 5) == rows[-1]


# --- what changes nothing


def test_rates_and_seeds_share_one_program_and_do_not_mix():
    """Four rates and two seeds in a batch: every row is the one of its run alone."""
    before = program.n_compiled()
    points = [
        TRACED.replace(lr=0.5 * rate, steps=50 if rate % 2 else 20)
        for rate in range(1, 5)
    ]
    runs = [Run(point, seed) for point in points for seed in (5, 6)]
    compiled = program.compiled(Shape.rounded(TRACED))
    together = program.execute(compiled, runs)[0]
    alone = [program.execute(compiled, [run])[0][0] for run in reversed(runs)]
    assert together == alone[::-1]
    assert {Shape.rounded(point) for point in points} == {Shape.rounded(TRACED)}
    assert program.n_compiled() - before <= 1
    assert len({rows[-1]["loss"] for rows in together}) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [{"optimizer": "momentum", "trains": "VWZM", **MLP}], ids=str
)
def test_padding_changes_nothing(case):
    """Inside a program that one of the combinations above has, and alone with another
    tile.
    """
    assert {**case, "start": "three_step"} in SOME
    point = later(**case, steps=10)
    wide = traced(point, 2, Shape.sized(point, 32, 32, 32))
    for one, other in zip(
        traced(point, 2, Shape.sized(point, 12, 10, 16), tile=1024), wide, strict=True
    ):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
        assert other["test_loss"] == pytest.approx(one["test_loss"], rel=1e-6)
        for name, parameter in one["params"].items():
            assert relative(other["params"][name], parameter) < 1e-4, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        TRACED.replace(start="zero", steps=20, N=1024),
        Point(V=30, N=1024, d=12, L=6, n_test=600, kappa=1.0),
    ],
    ids=["further steps", "recipe"],
)
def test_stored_tokens_are_those_that_each_loop_draws(point, monkeypatch):
    """N 1024 and L 6 take two tiles of 512 samples, or one of 2048 samples."""
    n_tokens = Shape.rounded(point).tile * (2 if point.optimizer else 1) * 6
    found = []
    for most in (n_tokens, n_tokens - 1):
        monkeypatch.setattr(loops, "STORED_TOKENS", most)
        shape = Shape.rounded(point)
        run = quickly(functools.partial(program.simulate_run, shape=shape))
        given = jax.tree.map(lambda a: a[0], arguments([Run(point, 5)], shape))
        raw, tokens = run(given, loops.no_tokens(shape))
        assert bool(tokens.any()) == (most == n_tokens)
        found.append(raw)
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("lr", [0, -1.0, float("nan")])
def test_a_rate_of_nothing_is_refused(lr):
    with pytest.raises(
        PointError, match=f"lr: got {lr}; allowed: finite numbers greater than 0"
    ):
        later(lr=lr)


def test_a_rate_that_overflows_gives_nonfinite_rows_from_there_on():
    rows = simulate(TRACED.replace(lr=1e30), 5, trace=True)
    assert [row["status"] for row in rows] == ["ok", *["nonfinite"] * 4]
    assert [row["step"] for row in rows] == [3, 5, 10, 20, 50]
    assert (
        {row["loss"] for row in rows[1:]}
        == {row["accuracy"] for row in rows[1:]}
        == {None}
    )
    assert rows[0] == {
        **simulate(TRACED, 5, trace=True)[0],
        "lr": 1e30,
        "lr_attention": 1e30,
        "point_id": rows[0]["point_id"],
    }
    r = realize(TRACED, 5)
    assert not np.isfinite(descend(r, TRACED.replace(lr=1e200))[-1].loss)
