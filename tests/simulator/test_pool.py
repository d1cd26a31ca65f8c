"""Noise from a pool: agreement with the reference on the written-out samples, the
Gaussian limit of its counts, and its range.
"""

import itertools

import jax
import numpy as np
import pandas as pd
import pytest
import yaml
from cases import cases, check_recipe, check_vmapped, sized
from helpers import (
    assert_same_metrics,
    diagnose,
    drawn,
    quickly,
    redraws,
    streamed,
)
from tolerances import assert_close

from jaxrecall import Point, realize, simulate
from jaxrecall.model import point as law
from jaxrecall.model.laws.tokens import token_probabilities
from jaxrecall.model.point import Run
from jaxrecall.model.reference import three_step
from jaxrecall.simulator.cost import amount, peak_bytes, work_of
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.recipe import recipe
from jaxrecall.simulator.sources import gaussian_counts, pool_draws

SMALL = Point(V=11, N=700, d=14, L=6, n_test=600, pool=20, eta=1e-5)
MLP = {"m": 20, "activation": "gelu"}
ACTIVATIONS = ["none", "relu", "gelu", "tanh"]
ACTIVATIONS += ["identity", "quadratic", "cubic", "mixed(linear=-0.5)"]


def check_rates(point: Point) -> None:
    """The full form, and the guarded one at a large and a small eta."""
    forms = {
        check_recipe(point.replace(eta=eta, exact=exact), 3, sized(point))[0]["form"]
        for eta, exact in ((0.5, "full"), (0.5, "guarded"), (1e-5, "guarded"))
    }
    assert "pool-full" in forms
    assert forms & {"pool+pool", "pool+locked"}


# N lies below and above V K = 220
OFTEN = """
- {}
- {fresh_batches: true}
- {trigger_in_value: false, embedding: orthogonal, kappa: 2.0}
- {kappa: 1.0e+5, N: 3000}
- {N: 60, L: 2}
"""
SELDOM = """
- {m: 20, activation: gelu, fresh_batches: true, trigger_in_value: false, kappa: 2.0}
- {m: 20, activation: cubic}
- {kappa: 0.001}
- {trigger_in_value: false, embedding: sphere}
- {N: 20000, V: 5}
# other laws are counted in a test of their own
- {tokens: zipf(s=1.2)}
- {tokens: zipf, noise_tokens: uniform, fresh_batches: true, trigger_in_value: false,
   L: 3}
- {noise_tokens: zipf(s=2), N: 3000}
"""


@pytest.mark.parametrize("case", cases(OFTEN, SELDOM))
def test_the_simulation_agrees_with_the_reference(case):
    check_rates(SMALL.replace(**case))


@pytest.mark.slow
@pytest.mark.parametrize("fresh_batches", [False, True])
@pytest.mark.parametrize("trigger_in_value", [True, False])
@pytest.mark.parametrize("embedding", ["gaussian", "sphere", "orthogonal"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_combination(activation, embedding, trigger_in_value, fresh_batches):
    """With a small and a large kappa, and N below and above V K."""
    mlp = {} if activation == "none" else {"m": 20, "activation": activation}
    point = SMALL.replace(
        embedding=embedding,
        trigger_in_value=trigger_in_value,
        N=100 if trigger_in_value else 2000,
        fresh_batches=fresh_batches,
        kappa=1e3 if fresh_batches else 3.0,
        **mlp,
    )
    check_rates(point)


def test_a_sample_is_an_informative_token_and_a_sequence_of_the_pool():
    point = SMALL.replace(fresh_batches=True)
    r, without = realize(point, 0), realize(point.replace(pool=None), 0)
    assert r.pool.shape == (3, 20, 5)
    assert r.train_rows.shape == (3, 700)
    for step, i in itertools.product(range(3), range(40)):
        sequence, ell = list(r.train_tokens[step, i]), r.train_positions[step, i]
        x = sequence[ell]
        # the token at position 0 stood where the informative one is now
        sequence[ell] = sequence[0]
        assert r.perm[x] == r.train_labels[step, i]
        assert sequence[1:] == list(r.pool[step, r.train_rows[step, i]])
    assert (r.pool[0] != r.pool[1]).mean() > 0.8
    assert np.bincount(r.train_rows[0], minlength=20).min() > 10
    same = "Z_in Z_out z_trig perm train_labels train_positions test_tokens"
    for name in same.split():
        np.testing.assert_array_equal(getattr(r, name), getattr(without, name))


@pytest.mark.slow
@pytest.mark.parametrize("exact", ["guarded", "full"])
@pytest.mark.parametrize("mlp", [{}, MLP], ids=["attention", "mlp"])
def test_noise_scores_agree_with_the_reference(mlp, exact):
    point = SMALL.replace(diagnose=True, exact=exact, **mlp)
    r = realize(point, 3)
    expected = diagnose(r, point, three_step(r, point), redraws(point, 3))
    _, metrics = streamed(point, 3, sized(point))
    assert_close({name: metrics[name] for name in expected}, expected, "float32")


# --- the Gaussian limit


def in_the_limit(point: Point, monkeypatch) -> Point:
    """The point with every count from the limit, however few draws it stands for."""
    with monkeypatch.context() as patched:
        patched.setattr(law, "MAX_DRAWS", 0)
        point = point.replace(n_test=point.n_test)
        assert point.in_the_limit
        return point


@pytest.mark.parametrize(
    ("case", "expected"),
    yaml.safe_load("""
- [{}, ""]
- [{N: 1048577}, samples]
# 2^20 draws a batch of samples, 2^20 tokens of the pool
- [{pool: 65536}, ""]
- [{pool: 65536, N: 8388607}, ""]
- [{pool: 65536, N: 8388608}, samples]
- [{L: 129, pool: 8192}, ""]
- [{L: 129, pool: 8193}, noise]
- [{L: 128, pool: 65536, n_test: 65536}, ""]
- [{L: 129, n_test: 8193}, test]
- [{pool: null}, ""]
"""),
    ids=str,
)
def test_where_the_limit_begins(case, expected):
    point = Point(V=16, N=2**20, d=8, L=17, pool=8, n_test=1024)
    assert " ".join(point.replace(**case).in_the_limit) == expected


@quickly
def pools_and_pairs(world):
    """Counts of tokens in the pool, and how often each token meets each sequence, less
    the mean.
    """
    batch = world.run.batches[0]
    return (
        pool_draws.noise_counts(world, batch),
        pool_draws.deviations(world, batch),
    )


def counts_of(point: Point, n_seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """(seeds, sequences, V) counts of tokens, and (seeds, V, sequences) of pairs."""
    worlds = [drawn(point, seed, sized(point)) for seed in range(n_seeds)]
    tokens, E = (
        np.float64(parts) for parts in zip(*map(pools_and_pairs, worlds), strict=True)
    )
    assert not E[:, point.V :].any()
    assert not tokens[..., point.V :].any()
    pairs = (E[:, : point.V] + 1 / (point.V * point.pool)) * point.N
    assert_close(pairs.sum((1, 2)), np.full(n_seeds, point.N), "float32")
    return tokens[..., : point.V], pairs


def test_counts_of_the_limit_have_the_moments_of_the_multinomial(monkeypatch):
    """Mean, variance, skewness and the share of empty cells, at the smallest mean at
    which it is used; totals are exact.
    """
    point = Point(V=30, N=8 * 30 * 400, d=4, L=8 * 30 + 1, pool=400, n_test=512)
    # of a binomial count of mean 8
    p = np.array([1 / 30, 1 / 12000])
    mean, variance, third = 8 + 0 * p, 8 * (1 - p), (1 - p) * (1 - 2 * p) / 8**0.5
    binomial = np.stack([mean, variance, third, (1 - p) ** (8 / p)], axis=1)
    for one, of_empty in ((point, 1e-4), (in_the_limit(point, monkeypatch), 1e-3)):
        tokens, pairs = counts_of(one, 12)
        # all but where a count would have been negative
        assert (abs(tokens.sum(2) - 240) < 1e-2).mean() > 0.99
        for counts, expected in zip((tokens, pairs), binomial, strict=True):
            centred = counts - counts.mean()
            moments = [
                counts.mean(),
                centred.var(),
                (centred**3).mean() / 8**1.5,
                (counts < 0.5).mean(),
            ]
            allowed = 0.02 * expected + [0, 0, 0.02, of_empty]
            assert (abs(moments - expected) <= allowed).all(), moments


@pytest.mark.parametrize("N", [8 * 30 * 64 * 70, 10**12])
def test_counts_of_tokens_that_are_not_equally_frequent(N):
    """Pairs, and tokens of the pool, of which each tenth has the squared deviation of
    the multinomial; means from 0.6 on are among them.
    """
    laws = {"tokens": "zipf(s=2)", "noise_tokens": "zipf(s=1.5)"}
    point = Point(V=30, N=N, d=4, L=8 * 30 * 8, pool=1024, **laws)
    assert point.in_the_limit == ("samples", "noise", "test")
    p, q = (token_probabilities(of, 30)[:, None] for of in point.token_laws)
    tokens, pairs = counts_of(point, 4)
    n_noise = point.L - 1
    assert_close(tokens.sum(2), np.full(tokens.shape[:2], n_noise), "float32")
    for counts, n, share in (
        (pairs, N, p / 1024),
        (tokens.transpose(0, 2, 1), n_noise, q),
    ):
        mean = n * share
        each = ((counts - mean) ** 2 / (mean * (1 - share))).mean((0, 2))
        off = (each - 1) / np.sqrt((2 + 1 / mean[:, 0]) / (counts.size / 30))
        assert abs(off).max() < 4, off
        assert abs(off[-3:].sum() / 3**0.5) < 3.5, off  # the rarest tenth by itself


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [100.0, 3.0])
def test_rows_of_the_limit_meet_those_drawn_one_by_one(kappa, monkeypatch):
    sizes = yaml.safe_load("{V: 24, N: 3072, d: 32, L: 193, pool: 16, n_test: 512}")
    point = Point(**sizes, kappa=kappa)
    found = differences(in_the_limit(point, monkeypatch), point, range(48))
    assert max(map(abs, found.values())) < 3.5, found


def test_train_pairs_of_the_limit_are_drawn_by_their_counts():
    """With hardly more samples than cells, tokens and sequences that are frequent in
    the batch are frequent among the pairs.
    """
    inverse = quickly(gaussian_counts.first_above)
    weights = np.array([0.1, 0, 0.4, 0.5, 0], np.float32)
    u = (np.arange(4000, dtype=np.float32) + 0.5) / 4000
    often = np.bincount(inverse(np.cumsum(weights)[None], u), minlength=5) / 4000
    assert_close(often, weights, 1e-3)
    u[[0, -1]] = 0, 1
    for scale in (1.0, 1e-3, 3.0):  # never a cell without weight
        weights = np.array([0, scale, 0.4 * scale, 0, 0], np.float32)
        assert {*np.asarray(inverse(np.cumsum(weights)[None], u))} == {1, 2}


# --- the range


def test_samples_and_lengths_far_beyond_an_int32_do_not_overflow():
    point = SMALL.replace(V=24, N=10**15, d=32, L=10**9, n_test=512)
    far, short, many, few = (
        streamed(point.replace(N=N, L=L), 0, sized(point))[1]
        for N, L in ((10**15, 10**9), (10**15, 10**3), (10**15, 10**4), (10**7, 10**4))
    )
    for row in (far, short):
        assert row["status"] == "ok"
        assert np.isfinite(row["snr"])
    assert many["snr"] > 5 * few["snr"]


@pytest.mark.parametrize(
    ("N", "L"),
    [(10**7, 64), (10**15, 64), (10**4, 2**16), (10**4, 10**9), (10**15, 10**9)],
)
def test_cost_and_memory_are_bounded_in_samples_and_length(N, L):
    point = Point(V=64, N=10**4, d=32, L=64, pool=256)
    shape, far = Shape.rounded(point), point.replace(N=N, L=L)
    assert Shape.rounded(far) == shape
    assert amount(shape, work_of(far))._replace(flops=0).seconds < 0.05
    assert peak_bytes(Shape.rounded(point.replace(pool=512))) > 1.2 * peak_bytes(shape)


@pytest.mark.parametrize("mlp", [{}, MLP], ids=["attention", "mlp"])
@pytest.mark.parametrize("exact", ["guarded", "full"])
def test_no_step_scatters(mlp, exact):
    """What an accelerator runs is matrix products: neither form adds to scattered
    places, batched or not.
    """
    point = SMALL.replace(exact=exact, **mlp)
    world = jax.eval_shape(pool_draws.with_pools, drawn(point, 0, sized(point)))
    worlds = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape), a.dtype), world)
    traced = str(jax.make_jaxpr(jax.vmap(recipe))(worlds))
    assert "dot_general" in traced
    assert "scatter" not in traced


@pytest.mark.slow  # test_packaging.py has one in the fast run, without a pool
def test_vmapped_runs_and_runs_one_after_the_other_are_the_same():
    """As on an accelerator: points in the limit and points that are not, in one
    batch.
    """
    changes = "[{}, {N: 10000000, L: 4000}, {N: 60, fresh_batches: true}]"
    points = [SMALL.replace(**case) for case in yaml.safe_load(changes)]
    runs = [Run(point, seed) for point in points for seed in range(2)]
    check_vmapped(sized(SMALL), runs)


@pytest.mark.slow
def test_padding_is_invisible():
    point = SMALL.replace(N=10**7, L=4000)
    tight, wide = (
        streamed(point, 1, Shape.sized(point, *sizes))[1]
        for sizes in ((16, 16, 0), (32, 32, 0))
    )
    assert_same_metrics(tight, wide)
    assert tight["draw_check"] == wide["draw_check"]


# --- the field


def test_known_ids_and_draws_stay():
    point = Point(V=8, N=10, d=4, L=2)
    ids = [point.replace(pool=K).point_id for K in (None, 3, 4)]
    assert point.point_id == ids[0] == "13e5dd41448920f4"
    assert len({*ids}) == 3


@pytest.mark.parametrize(
    ("case", "told"),
    yaml.safe_load("""
- [{N: 1000000, L: 100}, "^N, L: got N=1000000, L=100, "]
- [{N: 4194304, L: 4}, "^N, L: got N=4194304, L=4 with V=8, pool=4"]
"""),
)
def test_samples_that_cannot_be_written_out_are_refused(case, told):
    with pytest.raises(ValueError, match=told):
        realize(Point(V=8, d=4, pool=4, **case), 0)


# --- the law without a pool


def differences(one: Point, other: Point, seeds: range) -> dict[str, float]:
    """The metrics of a point less those of another, in standard errors, over seeds that
    share embeddings, permutation and tokens.
    """
    tables = [pd.DataFrame(simulate(point, seeds)) for point in (one, other)]
    names = "accuracy memory_accuracy step1_memory_accuracy train_accuracy test_margin"
    names += " snr attention_mass attention_top1 rare_memory_accuracy"
    found = {}
    for name in names.split():
        off = (tables[0][name].astype(float) - tables[1][name].astype(float)).dropna()
        found[name] = off.mean() / (off.std() / len(seeds) ** 0.5) if off.any() else 0.0
    return found


CONVERGES = yaml.safe_load("""
- {V: 64, N: 2048, d: 64, L: 8}
- {V: 64, N: 8192, d: 64, L: 128}
- {V: 64, N: 4096, d: 64, L: 32, kappa: 2, trigger_in_value: false}
- {V: 32, N: 4096, d: 24, L: 16, m: 128, activation: tanh}
""")


@pytest.mark.slow
@pytest.mark.parametrize("at", CONVERGES, ids=str)
def test_a_pool_converges_to_the_law_without(at):
    """64 seeds; differences in units of their standard error."""
    point = Point(**at, pool=1024, n_test=1024)
    found = differences(point, point.replace(pool=None), range(64))
    assert max(map(abs, found.values())) <= 3, found


# at L = 1 a pool of any size is exact
ZIPF = yaml.safe_load("""
- {V: 64, N: 2048, d: 64, L: 8, tokens: zipf(s=0.5)}
- {V: 64, N: 4096, d: 64, L: 8, tokens: zipf(s=0.7), kappa: 20}
- {V: 32, N: 2097152, d: 32, L: 2, tokens: zipf}
- {V: 128, N: 16384, d: 64, L: 32, tokens: zipf, noise_tokens: uniform}
- {V: 64, N: 4096, d: 64, L: 32, noise_tokens: zipf, kappa: 3}
- {V: 64, N: 8192, d: 48, L: 64, tokens: zipf(s=1.5), trigger_in_value: false}
- {V: 32, N: 2048, d: 32, L: 300, tokens: zipf(s=2)}
- {V: 32, N: 1024, d: 32, L: 4, tokens: zipf, steps: 20, lr: 5, kappa: 10, gamma2: 10}
- {V: 256, N: 2097152, d: 64, L: 1, tokens: zipf, pool: 64}
- {V: 256, N: 1000000000000, d: 64, L: 1, tokens: zipf(s=1.5), eta: 30, gamma2: 30,
   pool: 64}
""")


@pytest.mark.slow
@pytest.mark.parametrize("at", ZIPF, ids=str)
def test_a_pool_of_tokens_that_are_not_equally_frequent_converges(at):
    """Accuracy within 2.5 standard errors at ten points, and 60 other differences
    within 3.5; 48 seeds.
    """
    point = Point(**{"pool": 4096, "n_test": 1024} | at)
    found = differences(point, point.replace(pool=None), range(1000, 1048))
    assert abs(found["accuracy"]) <= 2.5, found
    assert max(map(abs, found.values())) <= 3.5, found


def test_a_form_knows_whether_its_points_have_a_pool():
    with_pool = {name for name, form in FORMS.items() if form.source == "pool"}
    assert with_pool == {"pool", "pool-full"}
    shape, full = (
        Shape.rounded(SMALL.replace(exact=exact)) for exact in ("guarded", "full")
    )
    assert (shape.form, full.form, shape.fallback) == ("pool", "pool-full", full)
