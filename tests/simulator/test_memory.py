"""L = 1, the associative memory: agreement with the reference, the law of the counts of
any cells, and its range.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import assert_same_metrics, drawn, executed, quickly, relative, streamed
from scipy import stats

from jaxrecall import Point, descend, measure, realize, simulate, three_step
from jaxrecall.errors import PointError
from jaxrecall.model import keys
from jaxrecall.model import point as law
from jaxrecall.model.columns import ATTENTION_COLUMNS
from jaxrecall.model.laws.tokens import shares
from jaxrecall.model.point import MAX_DRAWS, MAX_SAMPLES, MAX_STREAMED, Run
from jaxrecall.model.reference.metrics import over_vocabulary
from jaxrecall.simulator import program
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.sources import memory

SMALL = {"V": 30, "N": 900, "d": 14, "L": 1, "n_test": 600}
MLP = {"m": 20, "activation": "gelu"}
ZIPF = {"tokens": "zipf(s=1.2)"}
ROWS = ("recalled", "recalled_top", "rare_memory_accuracy", "frequent_memory_accuracy")


def sized(point: Point) -> Shape:
    """One program for all laws of tokens: wide enough for more than a block of
    tokens.
    """
    V, d = (32, 16) if point.tokens == "uniform" else (704, 32)
    return Shape.sized(point, V, d, 32 if point.m else 0)


# --- rows against the reference

RECIPES = [
    {},
    {"eta": 50.0, "gamma2": 20.0, "fresh_batches": True, "exact": "full"},
    pytest.param(
        {"trigger_in_value": False, "embedding": "sphere", "eta": 5.0},
        marks=pytest.mark.slow,
    ),
    {"trigger_in_value": False, "fresh_batches": True, "N": 7},
    # the next has another law, and further steps below this one
    pytest.param({**ZIPF, "eta": 50.0, "gamma2": 20.0}, marks=pytest.mark.slow),
    pytest.param(
        {**ZIPF, "fresh_batches": True, "trigger_in_value": False},
        marks=pytest.mark.slow,
    ),
    # more than a block of tokens
    {
        "V": 700,
        "d": 30,
        "N": 9000,
        "tokens": "own_laws:Shuffled(s=1.2)",
        "eta": 50.0,
        "gamma2": 20.0,
    },
    pytest.param(
        {**MLP, "eta": 20.0, "gamma2": 30.0, "fresh_batches": True},
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {**MLP, **ZIPF, "eta": 20.0, "gamma2": 30.0, "trigger_in_value": False},
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("changes", RECIPES, ids=str)
def test_the_three_steps_agree_with_the_reference(changes):
    point = Point(**{**SMALL, **changes})
    r = realize(point, 3)
    expected = three_step(r, point)
    learned, metrics = streamed(point, 3, sized(point))
    assert not learned.w.any()
    for name in ("V1", "V2"):
        assert relative(getattr(learned, name), getattr(expected, name)) < 2e-6, name
    reference = measure(r, point, expected)
    assert (metrics["form"], metrics["status"]) == ("memory", "ok")
    assert_same_metrics(metrics, reference)
    for name in ROWS:
        assert metrics[name] == pytest.approx(reference[name]), name
    assert {metrics[name] for name in ATTENTION_COLUMNS} == {None}


FURTHER = [
    {"start": "zero", "steps": 5, "lr": 30.0, "optimizer": "sgd", **ZIPF},
    pytest.param(
        {
            "start": "zero",
            "steps": 5,
            "lr": 0.03,
            "optimizer": "adam",
            "fresh_batches": True,
        },
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {
            "steps": 8,
            "lr": 0.03,
            "optimizer": "adam",
            "batch": 100,
            "gamma2": 3.0,
            **ZIPF,
        },
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {
            "steps": 8,
            "lr": 5.0,
            "gamma2": 3.0,
            "trains": "VWZ",
            "exact": "full",
            "fresh_batches": True,
            **ZIPF,
        },
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {
            "steps": 8,
            "lr": 0.03,
            "optimizer": "adamw",
            "gamma2": 3.0,
            "trains": "VWZM",
            **MLP,
            **ZIPF,
        },
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", FURTHER, ids=str)
def test_further_steps_agree_with_the_reference(changes):
    point = Point(**{**SMALL, **changes})
    r = realize(point, 3)
    rows = simulate(point, 3, trace=True)
    for row, learned in zip(rows, descend(r, point), strict=True):
        reference = measure(r, point, learned)
        assert (row["step"], row["status"]) == (reference["step"], "ok")
        assert row["form"] == (
            "memory, descent"
            if row["step"] == rows[0]["step"]
            else "memory, locked descent"
        )
        for name in ("loss", "test_loss", "V_norm", "Z_in_norm", "Z_out_overlap"):
            assert row[name] == pytest.approx(reference[name], rel=1e-4), name
        assert (row["W_norm"], row["attention_mass"]) == (0, None)
        for name in ("accuracy", "memory_accuracy", "train_accuracy", *ROWS):
            assert row[name] == pytest.approx(reference[name]), (name, row["step"])


@pytest.mark.parametrize("often", [0, 0.3, 0.9, 1])
def test_the_most_frequent_that_are_recalled(often):
    point = Point(**{**SMALL, "V": 40, "tokens": "own_laws:Shuffled"})
    r, p = realize(point, 0), shares(point.token_laws[0], 40)
    recalled = np.random.default_rng(0).random(40) < often
    logits = np.eye(40)[np.where(recalled, r.perm, (r.perm + 1) % 40)]
    top = [recalled[np.sort(-p)[k - 1] >= -p] for k in range(1, 41)]
    expected = max(
        [
            k
            for k in range(1, 41)
            if len(top[k - 1]) == k and 10 * top[k - 1].sum() >= 9 * k
        ],
        default=0,
    )
    in_jax = quickly(lambda logits: over_vocabulary(r, point, logits, jnp))(logits)
    for found in (over_vocabulary(r, point, logits, np), in_jax):
        assert (found["recalled"], found["recalled_top"]) == (recalled.sum(), expected)


# --- counts

N_KEYS = 300


@quickly
def token_parts(world, keys):
    return jax.vmap(lambda key: memory.token_parts(world, key))(keys)


def parts(point: Point, seed: int = 0) -> np.ndarray:
    """(N_KEYS, V): the parts of as many batches."""
    world = drawn(point, seed, Shape.sized(point, point.V, 16, 0))
    keys = jax.random.bits(jax.random.key(seed), (N_KEYS, 2), jnp.uint32)
    return np.asarray(token_parts(world, keys), np.float64)


@pytest.mark.parametrize("N", [MAX_DRAWS + 1, 10**12])
def test_counts_have_the_law_of_the_multinomial(N):
    """With zipf(s=3) the means of 256 cells lie between 0.05 and 9e5, and between 5e4
    and 8e11.
    """
    point = Point(V=256, N=N, d=4, L=1, tokens="zipf(s=3)")
    p, found = shares(point.token_laws[0], 256), parts(point)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    counts = found * N
    noise = (6e-8 * p * N) ** 2  # of float32, which holds parts
    each = ((counts - N * p) ** 2 / (N * p * (1 - p) + noise)).mean(0)
    # of the mean of a squared Poisson count
    spread = np.sqrt((2 + 1 / (N * p)) / N_KEYS)
    # the rarest tenth by itself
    for cells in (
        slice(0, 3),
        slice(0, 256),
        slice(256 - 26, 256),
    ):
        off = (each[cells] - 1).sum() / np.sqrt((spread[cells] ** 2).sum())
        assert abs(off) < 3.5, (cells, off)
    assert abs(
        stats.norm.cdf((found[:, 0] - p[0]) * math.sqrt(N / p[0] / (1 - p[0]))).mean()
        - 0.5
    ) < 3.5 / math.sqrt(12 * N_KEYS)


def test_rare_counts_have_their_exact_law():
    """Whole numbers, by chi-square over their values, where the means are 0.05 to 0.08,
    0.3, 1.7 and 7.
    """
    point = Point(V=256, N=MAX_DRAWS + 1, d=4, L=1, tokens="zipf(s=3)")
    p, counts = shares(point.token_laws[0], 256), parts(point, 1) * (MAX_DRAWS + 1)
    for cells in (range(230, 256), range(136, 146), range(79, 84), range(49, 52)):
        values = counts[:, [*cells]]
        np.testing.assert_allclose(values, np.round(values), atol=1e-3)
        observed = np.bincount(np.round(values).astype(int).ravel(), minlength=40)[:40]
        expected = N_KEYS * sum(
            stats.binom.pmf(np.arange(40), MAX_DRAWS + 1, p[cell]) for cell in cells
        )
        enough = expected >= 5
        observed, expected = (
            np.array([*each[enough], each[~enough].sum()])
            for each in (observed, expected)
        )
        assert (
            stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
            > 1e-3
        ), cells


def test_train_samples_are_drawn_by_the_counts():
    """Of Gaussian counts too; a token that no sample has is never among them."""
    point = Point(V=16, N=MAX_DRAWS + 1, d=4, L=1, tokens="zipf(s=6)")
    world = drawn(point, 0, Shape.sized(point, 16, 16, 0))
    key = world.run.batches[0]
    weights = np.asarray(memory.token_parts(world, key))
    assert (weights[11:] == 0).any()
    read = quickly(memory.drawn_tokens)(world, key, keys.blocks(key, 0, 200))
    often = np.bincount(np.asarray(read), minlength=16)
    assert not often[weights == 0].any()
    np.testing.assert_allclose(
        often / often.sum(), weights, atol=4 * 0.5 / math.sqrt(200 * 512)
    )


# --- the range


def test_samples_without_end():
    point = Point(V=64, N=10**3, d=24, L=1, n_test=512, **ZIPF)
    rows = {
        N: simulate(point.replace(N=N), 0)
        for N in (10**3, MAX_DRAWS, MAX_DRAWS + 1, 10**12, MAX_SAMPLES)
    }
    assert [row["form"] for row in rows.values()] == ["memory"] * 2 + [
        "memory, gaussian samples"
    ] * 3
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert rows[10**12]["recalled"] == rows[MAX_SAMPLES]["recalled"] > 2
    near = [rows[N]["memory_accuracy"] for N in (MAX_DRAWS, MAX_DRAWS + 1)]
    assert abs(near[0] - near[1]) <= 3 / 64


def test_rows_of_the_limit_meet_those_drawn_one_by_one(monkeypatch):
    point = Point(V=48, N=3000, d=17, L=1, n_test=512, eta=10.0, gamma2=10.0, **ZIPF)
    # the program of the test above
    compiled = program.compiled(Shape.rounded(point))
    found = []
    for most in (MAX_DRAWS, 0):
        monkeypatch.setattr(law, "MAX_DRAWS", most)
        one = point.replace(n_test=512)
        runs = [Run(one, seed) for seed in range(96)]
        rows = [
            row
            for i in range(0, 96, compiled.batch)
            for row in executed(compiled, runs[i : i + compiled.batch])
        ]
        assert {row["form"] for row in rows} == {
            "memory, gaussian samples" if most == 0 else "memory"
        }
        found.append(pd.DataFrame(rows))
    for name in (
        "accuracy",
        "memory_accuracy",
        "rare_memory_accuracy",
        "train_accuracy",
        "test_margin",
    ):
        off = found[1][name] - found[0][name]
        assert abs(off.mean()) < 3.5 * off.std() / math.sqrt(96), (
            name,
            off.mean() / off.std() * math.sqrt(96),
        )


def test_a_field_that_is_not_known_is_no_memory(monkeypatch):
    """Then samples are read one by one, as many as can be."""
    monkeypatch.setattr(law, "OF_MEMORY", law.OF_MEMORY - {"trigger_in_value"})
    point = Point(**SMALL)
    assert Shape.rounded(point).form == "memory"
    assert Shape.rounded(point.replace(trigger_in_value=False)).form in (
        "counts",
        "full",
    )
    assert point.replace(N=MAX_STREAMED + 1).in_the_limit == ("samples",)
    with pytest.raises(
        PointError,
        match=(
            r"^N: got 1073741825 with trigger_in_value=false; allowed: up to 1073741824"
        ),
    ):
        point.replace(N=MAX_STREAMED + 1, trigger_in_value=False)


def test_what_cannot_be_is_refused():
    with pytest.raises(
        PointError,
        match=(
            r"N: got 1073741825; allowed: .*, with a pool or at L = 1 to"
            r" 1000000000000000"
        ),
    ):
        Point(**{**SMALL, "L": 2, "N": MAX_STREAMED + 1})
    with pytest.raises(
        PointError,
        match=(
            r"N: got 1000000000000001; allowed: whole numbers from 1 to"
            r" 1000000000000000"
        ),
    ):
        Point(**{**SMALL, "N": MAX_SAMPLES + 1})
    with pytest.raises(
        ValueError,
        match=(
            r"got N=1048577, L=1 with V=30, so that the samples are drawn as Gaussian"
            r" counts"
        ),
    ):
        realize(Point(**{**SMALL, "N": MAX_DRAWS + 1}), 0)


# --- the literature


@pytest.mark.slow
@pytest.mark.parametrize(
    ("s", "expected"),
    [(1.2, (6, 10, 16, 24)), (1.5, (5, 7, 10, 13)), (2.0, (3, 5, 7, 8))],
)
def test_items_recalled_by_a_step_of_gradient_descent(s, expected):
    """For d of 32, 64, 128 and 256. The expected numbers are those of a prototype of
    the population gradient, 3 seeds and V up to 8192.
    """
    found = []
    for d in (32, 64, 128, 256):
        point = Point(
            V=1024,
            N=10**12,
            d=d,
            L=1,
            n_test=512,
            tokens=f"zipf(s={s})",
            start="zero",
            steps=1,
            lr=1.0,
            trigger_in_value=False,
        )
        found.append(np.mean([row["recalled"] for row in simulate(point, range(12))]))
    np.testing.assert_allclose(found, expected, rtol=0.1, atol=0.7)
