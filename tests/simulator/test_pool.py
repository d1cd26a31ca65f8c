"""Noise from a pool: agreement with the reference on the written-out samples, the
Gaussian limit of its counts, and its range.
"""

import itertools
import json
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import (
    assert_same_metrics,
    combinations,
    diagnose,
    drawn,
    executed,
    quickly,
    redraws,
    streamed,
)
from test_exactness import EMBEDDINGS, MODELS, RATES, check_point, sized

from jaxrecall import Point, load, realize, run, simulate, three_step, thresholds
from jaxrecall.analysis.fit import fit
from jaxrecall.errors import PointError
from jaxrecall.model import point as law
from jaxrecall.model.laws.tokens import shares
from jaxrecall.model.point import Run
from jaxrecall.report import main as report
from jaxrecall.simulator import program
from jaxrecall.simulator.cost import TOKENS_A_SECOND, amount, peak_bytes, work
from jaxrecall.simulator.forms import FORMS
from jaxrecall.simulator.forward import unlearned_scores
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.recipe import recipe
from jaxrecall.simulator.sources import gaussian_counts, pool, pool_draws
from jaxrecall.sweep.__main__ import main

SMALL = {"V": 11, "N": 700, "d": 14, "L": 6, "n_test": 600, "pool": 20}
MLP = {"m": 20, "activation": "gelu"}
SWITCHES = [
    {},
    {"fresh_batches": True},
    {"trigger_in_value": False, "embedding": "sphere"},
    {"embedding": "orthogonal", "kappa": 2.0},
    pytest.param({"kappa": 1e-3}, marks=pytest.mark.slow),
    {"kappa": 1e5, "N": 3000},
    {"N": 60, "L": 2},
    pytest.param({"N": 20000, "V": 5}, marks=pytest.mark.slow),
    pytest.param({"tokens": "zipf(s=1.2)"}, marks=pytest.mark.slow),
    # other laws are counted in a test of their own
    pytest.param(
        {
            "tokens": "zipf",
            "noise_tokens": "uniform",
            "fresh_batches": True,
            "trigger_in_value": False,
            "L": 3,
        },
        marks=pytest.mark.slow,
    ),
    pytest.param({"noise_tokens": "zipf(s=2)", "N": 3000}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("changes", SWITCHES, ids=str)
def test_the_simulation_agrees_with_the_reference(changes):
    """N lies below and above V K = 220."""
    forms = {
        check_point(Point(**{**SMALL, "eta": eta, "exact": exact, **changes}))
        for eta, exact in RATES
    }
    assert "pool-full" in forms
    assert forms & {"pool+pool", "pool+locked"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"fresh_batches": True, "trigger_in_value": False, "kappa": 2.0}],
    ids=str,
)
def test_the_simulation_agrees_with_the_reference_with_an_mlp(changes):
    forms = {
        check_point(Point(**{**SMALL, **MLP, "eta": eta, "exact": exact, **changes}))
        for eta, exact in RATES
    }
    assert forms >= {"pool-full"}
    assert forms & {"pool+pool", "pool+locked"}


POLYNOMIALS = ["identity", "quadratic", "cubic", "mixed(linear=-0.5)"]
CHANGES = [
    {},
    {"trigger_in_value": False, "kappa": 1e4},
    {"L": 40, "fresh_batches": True},
]


@pytest.mark.parametrize(
    ("activation", "changes"),
    combinations(
        POLYNOMIALS, CHANGES, often=lambda activation, _: activation == "cubic"
    ),
)
def test_sums_of_polynomials_agree_with_the_reference(activation, changes):
    assert check_point(
        Point(**{**SMALL, "m": 20, "activation": activation, "eta": 1e-6, **changes})
    ) in {"pool+pool", "pool+locked"}


@pytest.mark.parametrize(
    "activation",
    combinations(POLYNOMIALS, often=lambda activation: activation == POLYNOMIALS[-1]),
)
def test_means_of_polynomials_are_those_over_pairs(activation):
    """Under uniform attention, with padding: the features of each token and their mean
    square.
    """
    point = Point(**{**SMALL, "m": 20, "activation": activation})

    @quickly
    def means(world):
        world = pool_draws.with_pools(world)
        counts, E = pool_draws.pool_of_step(world, 0)
        attended = pool.attended(world, counts, unlearned_scores(world))
        weights = pool_draws.weights_of(world, E)
        by_products = pool.mean_polynomials(
            world,
            attended,
            weights,
            point.activation.coefficients(jnp),
        )
        return by_products, pool.mean_features(world, attended, weights)

    (rows, phi2), (expected_rows, expected_phi2) = means(
        drawn(point, 3, Shape.sized(point, 16, 16, 24))
    )
    np.testing.assert_allclose(
        rows, expected_rows, atol=1e-6 * np.abs(expected_rows).max()
    )
    np.testing.assert_allclose(phi2, expected_phi2, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    list(
        enumerate(itertools.product(MODELS, EMBEDDINGS, (True, False), (False, True)))
    ),
    ids=str,
)
def test_every_combination(case):
    """By turns with a small and a large kappa, and N below and above V K."""
    i, (activation, embedding, trigger_in_value, fresh_batches) = case
    mlp = {} if activation == "none" else {"m": 20, "activation": activation}
    switches = {
        "embedding": embedding,
        "trigger_in_value": trigger_in_value,
        "fresh_batches": fresh_batches,
    }
    rest = {"kappa": (3.0, 1e4)[i % 2], "N": (100, 2000)[i // 2 % 2]}
    for eta, exact in RATES:
        check_point(
            Point(**{**SMALL, "eta": eta, "exact": exact, **rest, **switches, **mlp})
        )


def test_a_sample_is_an_informative_token_and_a_sequence_of_the_pool():
    point = Point(**{**SMALL, "fresh_batches": True})
    r, without = realize(point, 0), realize(point.replace(pool=None), 0)
    assert r.pool.shape == (3, 20, 5)
    assert r.train_rows.shape == (3, 700)
    for step in range(3):
        for i in range(40):
            sequence, ell = list(r.train_tokens[step, i]), r.train_positions[step, i]
            x = sequence[ell]
            if ell:  # the token at position 0 stood where the informative one is now
                sequence[ell] = sequence[0]
            assert r.perm[x] == r.train_labels[step, i]
            assert sequence[1:] == list(r.pool[step, r.train_rows[step, i]])
    assert (r.pool[0] != r.pool[1]).mean() > 0.8
    assert np.bincount(r.train_rows[0], minlength=20).min() > 10
    # the rest is that of the point without a pool
    for name in (
        "Z_in",
        "Z_out",
        "z_trig",
        "perm",
        "train_labels",
        "train_positions",
        "test_tokens",
    ):
        np.testing.assert_array_equal(getattr(r, name), getattr(without, name))


@pytest.mark.slow
def test_noise_scores_agree_with_the_reference():
    point = Point(**{**SMALL, "eta": 1e-5, "diagnose": True})
    r = realize(point, 3)
    expected = diagnose(r, point, three_step(r, point), redraws(point, 3))
    _, metrics = streamed(point, 3, sized(point))
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name


@pytest.mark.slow
def test_noise_scores_agree_with_the_reference_with_an_mlp():
    point = Point(**{**SMALL, **MLP, "eta": 1e-5, "diagnose": True})
    r = realize(point, 3)
    expected = diagnose(r, point, three_step(r, point), redraws(point, 3))
    for exact in ("guarded", "full"):
        _, metrics = streamed(
            point.replace(exact=exact), 3, sized(point.replace(exact=exact))
        )
        for name, value in expected.items():
            assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-6), name


# --- the Gaussian limit


def in_the_limit(point: Point, monkeypatch) -> Point:
    """The point with every count from the limit, however few draws it stands for."""
    with monkeypatch.context() as patched:
        patched.setattr(law, "MAX_DRAWS", 0)
        point = point.replace(n_test=point.n_test)
        assert point.in_the_limit
        return point


def test_where_the_limit_begins():
    point = Point(V=16, N=2**20, d=8, L=17, pool=8, n_test=1024)
    assert point.in_the_limit == ()
    assert point.replace(N=2**20 + 1).in_the_limit == ("samples",)
    # 2^20 draws a batch of samples, 2^20 tokens of the pool
    assert point.replace(pool=65536).in_the_limit == ()
    assert point.replace(pool=65536, N=8 * 16 * 65536 - 1).in_the_limit == ()
    assert point.replace(pool=65536, N=8 * 16 * 65536).in_the_limit == ("samples",)
    assert point.replace(L=8 * 16 + 1, pool=8192).in_the_limit == ()
    assert point.replace(L=8 * 16 + 1, pool=8193).in_the_limit == ("noise",)
    assert point.replace(L=8 * 16, pool=65536, n_test=65536).in_the_limit == ()
    assert point.replace(L=8 * 16 + 1, n_test=8193).in_the_limit == ("test",)
    assert point.replace(pool=None).in_the_limit == ()


def test_counts_of_the_limit_have_the_moments_of_the_multinomial(monkeypatch):
    """Mean, variance, skewness and the share of empty cells, at the smallest mean at
    which it is used; totals are exact.
    """
    point = Point(V=30, N=8 * 30 * 400, d=4, L=8 * 30 + 1, pool=400, n_test=512)
    shape = Shape.sized(point, 32, 32, 0)
    moments = []
    for one in (point, in_the_limit(point, monkeypatch)):
        counts, pairs = [], []
        for seed in range(12):
            world = drawn(one, seed, shape)
            counts.append(
                np.asarray(
                    quickly(pool_draws.noise_counts)(world, world.run.batches[0])
                )[:, :30]
            )
            pairs.append(
                np.asarray(quickly(pool_draws.deviations)(world, world.run.batches[0]))[
                    :30
                ]
                * one.N
                + 8
            )
            assert not np.asarray(
                quickly(pool_draws.deviations)(world, world.run.batches[0])
            )[30:].any()
        for drawn_counts in (np.concatenate(counts), np.concatenate(pairs)):
            centred = drawn_counts - drawn_counts.mean()
            moments.append(
                [
                    drawn_counts.mean(),
                    centred.var(),
                    (centred**3).mean() / 8**1.5,
                    (drawn_counts < 0.5).mean(),
                ]
            )
        # all but where a count would have been negative
        assert (abs(np.concatenate(counts).sum(1) - 240) < 1e-2).mean() > 0.99
        np.testing.assert_allclose([p.sum() for p in pairs], one.N, rtol=1e-5)
    exact, gaussian = np.array(moments[:2]), np.array(moments[2:])
    # mean, variance, third moment and empty cells of a binomial count of mean 8
    p = np.array([1 / 30, 1 / 12000])
    binomial = np.stack(
        [8 + 0 * p, 8 * (1 - p), (1 - p) * (1 - 2 * p) / 8**0.5, (1 - p) ** (8 / p)],
        axis=1,
    )
    assert (abs(exact - binomial) <= 0.02 * binomial + [0, 0, 0.02, 1e-4]).all(), exact
    assert (abs(gaussian - binomial) <= 0.02 * binomial + [0, 0, 0.02, 1e-3]).all(), (
        gaussian
    )


@pytest.mark.parametrize("N", [8 * 40 * 64 * 52, 10**12])
def test_counts_of_tokens_that_are_not_equally_frequent(N):
    """Pairs, and tokens of the pool, of which each tenth has the squared deviation of
    the multinomial; means from 0.6 on are among them.
    """
    point = Point(
        V=40,
        N=N,
        d=4,
        L=8 * 40 * 8,
        pool=1024,
        tokens="zipf(s=2)",
        noise_tokens="zipf(s=1.5)",
    )
    assert (
        point.in_the_limit
        == ("samples", "noise", "test")[: 2 + (point.n_test * (point.L - 1) > 2**20)]
    )
    p, q = (shares(of, 40) for of in point.token_laws)
    pairs_of, tokens = [], []
    for seed in range(4):
        world = drawn(point, seed, Shape.sized(point, 48, 16, 0))
        tokens.append(
            np.asarray(
                quickly(pool_draws.noise_counts)(world, world.run.batches[0]),
                np.float64,
            )
        )
        E = np.asarray(
            quickly(pool_draws.deviations)(world, world.run.batches[0]), np.float64
        )
        pairs_of.append((E[:40] + 1 / (40 * 1024)) * N)
        assert not E[40:].any()
        assert not tokens[-1][:, 40:].any()
    np.testing.assert_allclose([each.sum() for each in pairs_of], N, rtol=1e-5)
    np.testing.assert_allclose([each.sum(1) for each in tokens], point.L - 1, rtol=1e-5)
    for counts, mean in (
        (np.stack(pairs_of), N * p[:, None] / 1024),
        (np.concatenate(tokens)[:, :40].T[None], (point.L - 1) * q[:, None]),
    ):
        share = mean / (N if counts.shape[2] == 1024 else point.L - 1)
        each = ((counts - mean) ** 2 / (mean * (1 - share))).mean((0, 2))
        off = (each - 1) / np.sqrt((2 + 1 / mean[:, 0]) / (counts.size / 40))
        assert abs(off).max() < 4, off
        assert abs(off[-4:].sum() / 2) < 3.5, off  # the rarest tenth by itself


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [pytest.param(100.0, marks=pytest.mark.slow), 3.0])
def test_rows_of_the_limit_meet_those_drawn_one_by_one(kappa, monkeypatch):
    point = Point(
        V=24, N=8 * 24 * 16, d=32, L=8 * 24 + 1, pool=16, n_test=512, kappa=kappa
    )
    program_of = program.compiled(Shape.sized(point, 32, 32, 0))
    found = []
    for one in (point, in_the_limit(point, monkeypatch)):
        runs = [Run(one, seed) for seed in range(48)]
        batches = [
            runs[i : i + program_of.batch] for i in range(0, 48, program_of.batch)
        ]
        rows = [row for batch in batches for row in executed(program_of, batch)]
        assert all(row["form"].startswith("pool+") for row in rows)
        assert ("gaussian samples noise test" in rows[0]["form"]) == bool(
            one.in_the_limit
        )
        found.append(
            pd.DataFrame(rows)[
                [
                    "snr",
                    "accuracy",
                    "train_accuracy",
                    "attention_mass",
                    "attention_top1",
                    "memory_accuracy",
                ]
            ]
        )
    for name in found[0]:
        off = found[1][name].mean() - found[0][name].mean()
        error = np.sqrt(sum(of[name].var() / len(of) for of in found))
        assert abs(off) < 3.5 * error, (name, off / error)


def test_train_pairs_of_the_limit_are_drawn_by_their_counts():
    """With hardly more samples than cells, tokens and sequences that are frequent in
    the batch are frequent among the pairs.
    """
    weights = jnp.array([0.1, 0.0, 0.4, 0.5, 0.0])
    u = (jnp.arange(4000, dtype=jnp.float32) + 0.5) / 4000
    cumulated = jnp.cumsum(weights)[None]
    places = np.asarray(gaussian_counts.inverse(cumulated, u))
    np.testing.assert_allclose(
        np.bincount(places, minlength=5) / 4000, weights, atol=5e-4
    )
    ends = jnp.array([0, 1], jnp.float32)
    for scale in (1.0, 1e-3, 3.0):  # never a cell without weight
        assert list(
            gaussian_counts.inverse(
                jnp.cumsum(jnp.array([0, scale, 0.4 * scale, 0], jnp.float32))[None],
                ends,
            )
        ) == [1, 2]


# --- the range


def test_samples_and_lengths_far_beyond_an_int32_do_not_overflow():
    point = Point(V=24, N=10**15, d=32, L=10**9, pool=16, n_test=512)
    rows = {
        name: simulate(point.replace(**{name: value}), 0)
        for name, value in (("N", 10**15), ("L", 10**6), ("L", 10**3))
    }
    for row in rows.values():
        assert row["status"] == "ok"
        assert np.isfinite(row["snr"])
    assert (
        simulate(point.replace(N=10**15, L=10**4), 0)["snr"]
        > 5 * simulate(point.replace(N=10**7, L=10**4), 0)["snr"]
    )


def test_cost_and_memory_are_bounded_in_samples_and_length():
    point = Point(V=64, N=10**4, d=32, L=64, pool=256)
    shape = Shape.rounded(point)
    for N, L in (
        (10**7, 64),
        (10**15, 64),
        (10**4, 2**16),
        (10**4, 10**9),
        (10**15, 10**9),
    ):
        far = point.replace(N=N, L=L)
        assert Shape.rounded(far) == shape
        assert amount(shape, work(far)).tokens < 0.05 * TOKENS_A_SECOND, (N, L)
    assert peak_bytes(Shape.rounded(point.replace(pool=512))) > 1.2 * peak_bytes(shape)


def test_no_step_scatters():
    """What an accelerator runs is matrix products: neither form adds to scattered
    places, batched or not.
    """
    for mlp in ({}, MLP):
        point = Point(**{**SMALL, **mlp})
        for one in (point.replace(eta=1e-9), point.replace(exact="full")):
            world = jax.eval_shape(pool_draws.with_pools, drawn(one, 0, sized(one)))
            worlds = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct((2, *a.shape), a.dtype), world
            )
            traced = str(jax.make_jaxpr(jax.vmap(recipe))(worlds))
            assert "dot_general" in traced
            assert "scatter" not in traced


@pytest.mark.slow  # test_packaging.py has one in the fast run, without a pool
def test_vmapped_runs_and_runs_one_after_the_other_are_the_same():
    """As on an accelerator: points in the limit and points that are not, in one
    batch.
    """
    points = [
        Point(**{**SMALL, "eta": 1e-5, **kw})
        for kw in ({}, {"N": 10**7, "L": 4000}, {"N": 60, "fresh_batches": True})
    ]
    runs = [Run(point, seed) for point in points for seed in range(2)]
    shape = sized(points[0])
    looped = executed(program.compiled(shape), runs)
    vmapped = executed(program.compiled(shape, 6, vmapped=True), runs)
    for a, b in zip(looped, vmapped, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        assert a["form"] == b["form"]
        assert_same_metrics(a, b, rtol=2e-4)


@pytest.mark.slow
def test_padding_is_invisible():
    point = Point(**{**SMALL, "N": 10**7, "L": 4000, "eta": 1e-5})
    tight, wide = (
        streamed(point, 1, Shape.sized(point, *sizes))[1]
        for sizes in ((16, 16, 0), (32, 32, 0))
    )
    assert_same_metrics(tight, wide, rtol=2e-4)
    assert tight["draw_check"] == wide["draw_check"]


# --- the field


def test_known_ids_and_draws_stay():
    point = Point(V=8, N=10, d=4, L=2)
    assert (
        point.point_id
        == Point(V=8, N=10, d=4, L=2, pool=None).point_id
        == "13e5dd41448920f4"
    )
    assert point.replace(pool=3).point_id not in (
        point.point_id,
        point.replace(pool=4).point_id,
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"pool": 0}, "pool: got 0; allowed: whole numbers from 1 to 65536"),
        ({"pool": 1.5}, "pool: got 1.5; allowed: whole numbers from 1 to 65536"),
        ({"pool": 65537}, "pool: got 65537; allowed: whole numbers from 1 to 65536"),
        (
            {"N": 2**30 + 1},
            (
                "N: got 1073741825; allowed: whole numbers from 1 to 1073741824, with a"
                " pool or at L = 1 to 1000000000000000"
            ),
        ),
        (
            {"L": 65537},
            (
                "L: got 65537; allowed: whole numbers from 1 to 65536, with a pool to"
                " 1000000000"
            ),
        ),
        (
            {"N": 10**15 + 1, "pool": 4},
            (
                "N: got 1000000000000001; allowed: whole numbers from 1 to"
                " 1000000000000000"
            ),
        ),
        (
            {"pool": 4, "decoders": True},
            "decoders: got true with pool=4; allowed where not pool",
        ),
        (
            {"V": 65536, "pool": 65536},
            "pool: got 65536 with V=65536; allowed: up to 32767",
        ),
    ],
    ids=str,
)
def test_bad_input_gets_one_line(changes, line):
    with pytest.raises(PointError) as error:
        Point(**{"V": 8, "N": 10, "d": 4, "L": 2, **changes})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"N": 10**6, "L": 100},
            (
                "N, L: got N=1000000, L=100, 100204800 tokens to write out; allowed: up"
                " to 67108864"
            ),
        ),
        (
            {"N": 2**22, "L": 4},
            (
                "N, L: got N=4194304, L=4 with V=8, pool=4, so that the samples are"
                " drawn as Gaussian counts"
            ),
        ),
    ],
    ids=str,
)
def test_samples_that_cannot_be_written_out_are_refused(changes, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        realize(Point(**{"V": 8, "N": 10, "d": 4, "L": 2, "pool": 4, **changes}), 0)


GRID = """
base: {V: 20, d: 30, L: 5, n_test: 300, eta: 1e-5}
seeds: {count: 8}
blocks: [{axes: {pool: [null, 16], N: [40, 150, 600, 2400]}}]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep over pools."""
    folder = tmp_path_factory.mktemp("pools")
    (folder / "grid.yaml").write_text(GRID)
    run(folder / "grid.yaml", out=folder / "out", progress=False)
    return folder


@pytest.mark.slow
def test_a_sweep_over_pools_is_a_factor_of_the_fit(swept, capsys):
    rows = load(swept / "out")
    assert rows["pool"].value_counts(dropna=False).to_dict() == {pd.NA: 32, 16: 32}
    assert set(rows[rows["pool"].notna()]["form"].str.split("+").str[0]) <= {
        "pool",
        "pool-full",
    }
    found = fit(rows, [0.5], 100).thresholds
    assert sorted(found[found["record"]]["pool"]) == [0, 16]
    capsys.readouterr()
    assert (
        main(
            [
                "--grid",
                str(swept / "grid.yaml"),
                "--out",
                str(swept / "none"),
                "--dry-run",
                "--json",
            ]
        )
        == 0
    )
    programs = json.loads(capsys.readouterr().out)["program_list"]
    assert sorted(p["pool"] for p in programs) == [0, 16]


@pytest.mark.slow  # draws a report
def test_a_report_has_pools_as_an_axis(swept):
    assert report(["--surrogate", "0", "--resamples", "100", str(swept / "out")]) == 0
    assert "pool" in (swept / "out/report.html").read_text()


@pytest.mark.slow  # test_search.py has searches, and the test above a sweep
def test_a_search_goes_beyond_what_runs_without_a_pool_can(tmp_path, capsys):
    search = {
        "axis": "N",
        "theta": 0.5,
        "from": 10**6,
        "to": 10**11,
        "width": 2,
        "max_runs": 60,
    }
    grid = {
        "base": {"V": 20, "d": 30, "n_test": 100},
        "seeds": {"count": 12},
        "search": search,
    }
    found = thresholds(
        run(grid | {"blocks": [{"axes": {"L": [4000], "pool": [32]}}]}, progress=False)
    )
    assert found["N_star"][0] > 10**6
    beyond = grid | {
        "search": search | {"from": 2 * 10**9},
        "blocks": [{"axes": {"L": [2000], "pool": [None, 32]}}],
    }
    (tmp_path / "search.yaml").write_text(json.dumps(beyond))
    assert (
        main(["--grid", str(tmp_path / "search.yaml"), "--out", str(tmp_path / "out")])
        == 2
    )
    printed = capsys.readouterr().err
    assert "search: 1 of 2 points cannot b" in printed
    assert "N: no level between search.from and search.to is valid" in printed


# --- the law without a pool

CONVERGES = [
    {"V": 64, "N": 2048, "d": 64, "L": 8},
    {"V": 64, "N": 8192, "d": 64, "L": 128},
    {"V": 64, "N": 4096, "d": 64, "L": 32, "kappa": 2.0, "trigger_in_value": False},
    {"V": 32, "N": 4096, "d": 24, "L": 16, "m": 128, "activation": "tanh"},
]


def differences(with_pool: Point, n: int, first: int = 0) -> dict[str, float]:
    """The metrics with a pool less those without, in standard errors, over n seeds that
    share embeddings, permutation and tokens.
    """
    tables = []
    for point in (with_pool, with_pool.replace(pool=None)):
        shape, rows = Shape.tight(point), {}
        while len(rows) < n:
            compiled = program.compiled(shape)
            left = [seed for seed in range(first, first + n) if seed not in rows]
            for i in range(0, len(left), compiled.batch):
                some = left[i : i + compiled.batch]
                traces, _ = program.execute(
                    compiled, [Run(point, seed) for seed in some]
                )
                rows |= {
                    seed: trace[-1]
                    for seed, trace in zip(some, traces, strict=True)
                    if trace
                }
            shape = shape.fallback or shape
        tables.append(pd.DataFrame([rows[seed] for seed in sorted(rows)]))
    names = (
        "accuracy",
        "memory_accuracy",
        "step1_memory_accuracy",
        "train_accuracy",
        "test_margin",
        "snr",
        "attention_mass",
    )
    found = {}
    for name in names:
        off = (tables[0][name].astype(float) - tables[1][name].astype(float)).dropna()
        found[name] = off.mean() / (off.std() / n**0.5) if off.any() else 0.0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("at", CONVERGES, ids=str)
def test_a_pool_converges_to_the_law_without(at):
    """64 seeds; differences in units of their standard error."""
    found = differences(Point(**at, pool=1024, n_test=1024), 64)
    assert max(map(abs, found.values())) <= 3, found


ZIPF = [
    {"V": 64, "N": 2048, "d": 64, "L": 8, "tokens": "zipf(s=0.5)"},
    {"V": 64, "N": 4096, "d": 64, "L": 8, "tokens": "zipf(s=0.7)", "kappa": 20.0},
    {"V": 32, "N": 2**21, "d": 32, "L": 2, "tokens": "zipf"},
    {
        "V": 128,
        "N": 16384,
        "d": 64,
        "L": 32,
        "tokens": "zipf",
        "noise_tokens": "uniform",
    },
    {"V": 64, "N": 4096, "d": 64, "L": 32, "noise_tokens": "zipf", "kappa": 3.0},
    {
        "V": 64,
        "N": 8192,
        "d": 48,
        "L": 64,
        "tokens": "zipf(s=1.5)",
        "trigger_in_value": False,
    },
    {"V": 32, "N": 2048, "d": 32, "L": 300, "tokens": "zipf(s=2)"},
    {
        "V": 32,
        "N": 1024,
        "d": 32,
        "L": 4,
        "tokens": "zipf",
        "steps": 20,
        "lr": 5.0,
        "kappa": 10.0,
        "gamma2": 10.0,
    },
    {"V": 256, "N": 2**21, "d": 64, "L": 1, "tokens": "zipf", "pool": 64},
    {
        "V": 256,
        "N": 10**12,
        "d": 64,
        "L": 1,
        "tokens": "zipf(s=1.5)",
        "eta": 30.0,
        "gamma2": 30.0,
        "pool": 64,
    },
]
"""At L = 1 a pool of any size is exact."""


@pytest.mark.slow
@pytest.mark.parametrize("at", ZIPF, ids=str)
def test_a_pool_of_tokens_that_are_not_equally_frequent_converges(at):
    """Accuracy within 2.5 standard errors at ten points, and 60 other differences
    within 3.5; 48 seeds.
    """
    found = differences(Point(**{"pool": 4096, **at}, n_test=1024), 48, first=1000)
    assert abs(found["accuracy"]) <= 2.5, found
    assert max(map(abs, found.values())) <= 3.5, found


def test_a_form_knows_whether_its_points_have_a_pool():
    assert {name for name, form in FORMS.items() if form.source == "pool"} == {
        "pool",
        "pool-full",
    }
    point = Point(**{**SMALL, "eta": 1e-5})
    assert Shape.rounded(point).form == "pool"
    assert Shape.rounded(point).fallback == replace(
        Shape.rounded(point), form="pool-full"
    )
    assert Shape.rounded(point.replace(exact="full")).form == "pool-full"
    assert Shape.rounded(point.replace(pool=None)).fallback.form == "full"
