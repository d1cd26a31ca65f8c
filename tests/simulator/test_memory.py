"""L = 1, the associative memory: agreement with the reference, the law of the counts of
any cells, and its range.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from cases import cases, check_recipe
from helpers import assert_same_metrics, drawn, quickly
from scipy import stats
from test_pool import differences, in_the_limit
from tolerances import assert_close

from jaxrecall import Point, descend, measure, realize, simulate
from jaxrecall.errors import PointError
from jaxrecall.model import keys
from jaxrecall.model import point as law
from jaxrecall.model.columns import ATTENTION_COLUMNS
from jaxrecall.model.laws.tokens import token_probabilities
from jaxrecall.model.point import MAX_DRAWS, MAX_SAMPLES, MAX_STREAMED
from jaxrecall.model.reference.metrics import measure_vocabulary
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.sources import memory

SMALL = {"V": 30, "N": 900, "d": 14, "L": 1, "n_test": 600}
ZIPF = {"tokens": "zipf(s=1.2)"}
ROWS = ("recalled", "recalled_top", "rare_memory_accuracy", "frequent_memory_accuracy")


def sized(point: Point) -> Shape:
    """One program for all laws of tokens: wide enough for more than a block of
    tokens.
    """
    V, d = (32, 32) if point.tokens == "uniform" else (704, 32)
    return Shape.sized(point, V, d, 32 if point.m else 0)


# --- rows against the reference

OFTEN = """
- {}
- {eta: 50, gamma2: 20, fresh_batches: true, exact: full}
- {trigger_in_value: false, fresh_batches: true, N: 7}
"""
SELDOM = """
# more than a block of tokens
- {V: 700, d: 30, N: 9000, tokens: own_laws:Shuffled(s=1.2), eta: 50, gamma2: 20}
- {trigger_in_value: false, embedding: sphere, eta: 5}
- {tokens: zipf(s=1.2), eta: 50, gamma2: 20}
- {tokens: zipf(s=1.2), fresh_batches: true, trigger_in_value: false}
- {m: 20, activation: gelu, eta: 20, gamma2: 30, fresh_batches: true}
- {m: 20, activation: gelu, eta: 20, gamma2: 30, trigger_in_value: false,
   tokens: zipf(s=1.2)}
"""


@pytest.mark.parametrize("case", cases(OFTEN, SELDOM))
def test_the_three_steps_agree_with_the_reference(case):
    point = Point(**SMALL | case)
    metrics, reference = check_recipe(point, 3, sized(point))
    assert (metrics["form"], metrics["status"]) == ("memory", "ok")
    for name in ROWS:
        assert_close(metrics[name], reference[name], "float32", of=name)
    assert {metrics[name] for name in ATTENTION_COLUMNS} == {None}


FURTHER = yaml.safe_load("""
- {start: zero, steps: 5, lr: 30, optimizer: sgd, tokens: zipf(s=1.2)}
- {start: zero, steps: 5, lr: 0.03, optimizer: adam, fresh_batches: true}
- {steps: 8, lr: 0.03, optimizer: adam, batch: 100, gamma2: 3, tokens: zipf(s=1.2)}
- {steps: 8, lr: 0.3, gamma2: 3, trains: VWZ, exact: full, fresh_batches: true,
   tokens: zipf(s=1.2)}
- {steps: 8, lr: 0.03, optimizer: adamw, gamma2: 3, trains: VWZM, m: 20,
   activation: gelu, tokens: zipf(s=1.2)}
""")


@pytest.mark.slow
@pytest.mark.parametrize("case", FURTHER, ids=str)
def test_further_steps_agree_with_the_reference(case):
    point = Point(**SMALL | case)
    r = realize(point, 3)
    rows = simulate(point, 3, trace=True)
    forms = ["memory, descent", *["memory, locked descent"] * (len(rows) - 1)]
    assert [row["form"] for row in rows] == forms
    for row, learned in zip(rows, descend(r, point), strict=True):
        reference = measure(r, point, learned)
        assert (row["step"], row["status"]) == (reference["step"], "ok")
        assert (row["W_norm"], row["attention_mass"]) == (0, None)
        assert_same_metrics(row, reference)
        losses = "loss", "test_loss", "V_norm", "Z_in_norm", "Z_out_overlap"
        for name in (*losses, *ROWS):
            assert_close(row[name], reference[name], "float32", of=name)


def test_the_most_frequent_that_are_recalled():
    V = 700
    point = Point(**SMALL | {"V": V, "d": 30, "tokens": "own_laws:Shuffled"})
    r, p = realize(point, 0), token_probabilities(point.token_laws[0], V)
    in_jax = quickly(lambda logits: measure_vocabulary(r, point, logits, jnp))
    for often in (0, 0.3, 0.9, 1):
        recalled = np.random.default_rng(0).random(V) < often
        logits = np.eye(V)[np.where(recalled, r.perm, (r.perm + 1) % V)]
        right = recalled[np.argsort(-p, kind="stable")]
        enough = 10 * np.cumsum(right) >= 9 * np.arange(1, V + 1)
        last_of_equals = np.append(np.diff(np.sort(-p)) > 0, True)
        most = np.flatnonzero(enough & last_of_equals)
        expected = recalled.sum(), most.max(initial=-1) + 1
        for counts in (measure_vocabulary(r, point, logits, np), in_jax(logits)):
            assert (int(counts["recalled"]), int(counts["recalled_top"])) == expected


# --- counts

N_KEYS = 300
CELLS = Point(V=256, N=MAX_DRAWS + 1, d=4, L=1, tokens="zipf(s=3)")


@quickly
def token_parts(world, keys):
    return jax.vmap(lambda key: memory.token_parts(world, key))(keys)


def parts(point: Point, seed: int = 0) -> np.ndarray:
    """(N_KEYS, V): the parts of as many batches."""
    words = np.random.default_rng(seed).integers(2**32, size=(N_KEYS, 2))
    every = token_parts(drawn(point, seed, sized(point)), words.astype(np.uint32))
    return np.asarray(every, np.float64)[:, : point.V]


@pytest.mark.parametrize("N", [MAX_DRAWS + 1, 10**12])
def test_counts_have_the_law_of_the_multinomial(N):
    """With zipf(s=3) the means of 256 cells lie between 0.05 and 9e5, and between 5e4
    and 8e11.
    """
    p, found = token_probabilities(CELLS.token_laws[0], 256), parts(CELLS.replace(N=N))
    assert_close(found.sum(1), np.ones(N_KEYS), "float32")
    noise = (6e-8 * p * N) ** 2  # of float32, which holds parts
    each = ((N * found - N * p) ** 2 / (N * p * (1 - p) + noise)).mean(0)
    # of the mean of a squared Poisson count
    spread = np.sqrt((2 + 1 / (N * p)) / N_KEYS)
    # the rarest tenth by itself
    for cells in (slice(0, 3), slice(0, 256), slice(256 - 26, 256)):
        error = np.sqrt((spread[cells] ** 2).sum())
        assert_close((each[cells] - 1).sum(), 0, 7 * error)
    levels = stats.norm.cdf((found[:, 0] - p[0]) * math.sqrt(N / p[0] / (1 - p[0])))
    assert_close(levels.mean(), 0.5, 7 / math.sqrt(12 * N_KEYS))


def test_rare_counts_have_their_exact_law():
    """Whole numbers, by chi-square over their values, where the means are 0.05 to 0.08,
    0.3, 1.7 and 7.
    """
    p, counts = token_probabilities(CELLS.token_laws[0], 256), parts(CELLS, 1) * CELLS.N
    for cells in (range(230, 256), range(136, 146), range(79, 84), range(49, 52)):
        values = counts[:, [*cells]]
        assert_close(values, np.round(values), "float32")
        observed = np.bincount(np.round(values).astype(int).ravel(), minlength=40)[:40]
        chances = stats.binom.pmf(np.arange(40), CELLS.N, p[[*cells], None]).sum(0)
        enough = N_KEYS * chances >= 5
        observed, expected = (
            np.array([*each[enough], each[~enough].sum()])
            for each in (observed, chances)
        )
        expected *= observed.sum() / expected.sum()
        assert stats.chisquare(observed, expected).pvalue > 1e-3, cells


def test_train_samples_are_drawn_by_the_counts():
    """Of Gaussian counts too; a token that no sample has is never among them."""
    point = CELLS.replace(V=16, tokens="zipf(s=6)")

    @quickly
    def weights_and_tokens(world):
        key = world.run.batches[0]
        blocks = keys.blocks(key, 0, 40)
        weights = memory.token_parts(world, key)
        return weights, memory.drawn_tokens(world, key, blocks)

    weights, tokens = weights_and_tokens(drawn(point, 0, sized(point)))
    weights = np.asarray(weights)
    often = np.bincount(tokens, minlength=704) / tokens.size
    assert (weights[11:16] == 0).any()
    assert not often[weights == 0].any()
    assert_close(often, weights, 4 * 0.5 / math.sqrt(tokens.size))


# --- the range


def test_samples_without_end():
    point = Point(V=64, N=10**3, d=24, L=1, n_test=512, **ZIPF)
    sizes = 10**3, MAX_DRAWS, MAX_DRAWS + 1, 10**12, MAX_SAMPLES
    rows = [simulate(point.replace(N=N), 0) for N in sizes]
    forms = ["memory"] * 2 + ["memory, gaussian samples"] * 3
    assert [row["form"] for row in rows] == forms
    assert {row["status"] for row in rows} == {"ok"}
    assert rows[3]["recalled"] == rows[4]["recalled"] > 2
    assert_close(rows[1]["memory_accuracy"], rows[2]["memory_accuracy"], 6 / 64)


def test_rows_of_the_limit_meet_those_drawn_one_by_one(monkeypatch):
    # the program of the test above
    point = Point(V=48, N=3000, d=17, L=1, n_test=512, eta=10.0, gamma2=10.0, **ZIPF)
    of_limit = in_the_limit(point, monkeypatch)
    assert simulate(of_limit, 0)["form"] == "memory, gaussian samples"
    found = differences(of_limit, point, range(96))
    assert max(map(abs, found.values())) < 3.5, found


def test_a_field_that_is_not_known_is_no_memory(monkeypatch):
    """Then samples are read one by one, as many as can be."""
    monkeypatch.setattr(law, "OF_MEMORY", law.OF_MEMORY - {"trigger_in_value"})
    point = Point(**SMALL)
    assert Shape.rounded(point).form == "memory"
    streamed = Shape.rounded(point.replace(trigger_in_value=False))
    assert streamed.form in ("counts", "full")
    assert point.replace(N=MAX_STREAMED + 1).in_the_limit == ("samples",)
    with pytest.raises(PointError, match=r"^N: got 1073741825 with trigger_in_value"):
        point.replace(N=MAX_STREAMED + 1, trigger_in_value=False)


def test_gaussian_counts_cannot_be_written_out():
    with pytest.raises(ValueError, match=r"^N, L: got N=1048577, L=1 with V=30"):
        realize(Point(**SMALL | {"N": MAX_DRAWS + 1}), 0)


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
    step = {"start": "zero", "steps": 1, "lr": 1.0, "trigger_in_value": False}
    for d, n_items in zip((32, 64, 128, 256), expected, strict=True):
        point = Point(V=1024, N=10**12, d=d, L=1, n_test=512, tokens=f"zipf(s={s})")
        rows = simulate(point.replace(**step), range(12))
        recalled = np.mean([row["recalled"] for row in rows])
        assert_close(recalled, n_items, 0.1 * n_items + 0.7)
