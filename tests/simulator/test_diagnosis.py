"""The noise of the scores, split: the parts add up, two implementations agree, and who
does not ask sees nothing of it.
"""

import itertools

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import (
    METRICS,
    _train,
    assert_same_metrics,
    diagnose,
    drawn,
    redraws,
    relative,
    split,
    streamed,
)

from jaxrecall import Point, load, realize, run, simulate, three_step
from jaxrecall.analysis.fit.cells import families
from jaxrecall.analysis.fit.roles import roles_of
from jaxrecall.compact import main as compact
from jaxrecall.model.columns import EXTRA_COLUMNS, NOISES
from jaxrecall.model.point import EXTRAS, REDRAWS
from jaxrecall.model.reference.metrics import measure
from jaxrecall.simulator import error_bounds, program, score_noise
from jaxrecall.simulator.cost import amount, peak_bytes, work
from jaxrecall.simulator.program_shape import Shape
from jaxrecall.simulator.rows import noise_columns
from jaxrecall.sweep import plan
from jaxrecall.sweep.__main__ import main as sweep

SEED = 3
POINT = Point(V=30, N=900, d=12, L=7, n_test=100, diagnose=True)
MLP = POINT.replace(m=20, activation="tanh")
STD = [f"noise_{name}" for name in NOISES]
COV = [f"cov_{a}_{b}" for a, b in itertools.combinations(NOISES, 2)]


def shape_of(point: Point, V: int = 32, d: int = 32, m: int = 32) -> Shape:
    return Shape.sized(point, V, d, m if point.m else 0)


def total(row: dict) -> float:
    """Sum of the variances and twice the covariances."""
    return sum(row[name] ** 2 for name in STD) + 2 * sum(row[name] for name in COV)


def assert_same_noise(a: dict, b: dict, rtol: float = 2e-4) -> None:
    largest = max(b[name] for name in STD)
    for name in STD:
        assert a[name] == pytest.approx(b[name], rel=rtol, abs=1e-6 * largest), name
    for name in COV:
        assert a[name] == pytest.approx(b[name], rel=rtol, abs=rtol * largest**2), name


@pytest.mark.parametrize(
    "point",
    [
        POINT,
        MLP,
        POINT.replace(embedding="orthogonal", d=36),
        MLP.replace(embedding="sphere", trigger_in_value=False),
        POINT.replace(d=1),
    ],
    ids=["attention", "mlp", "orthogonal", "sphere", "one dimension"],
)
def test_the_vectors_and_the_variances_add_up_exactly(point):
    r = realize(point, SEED)
    learned = three_step(r, point)
    again = (
        [three_step(r._replace(W_in=W_in), point).w for W_in in redraws(point, SEED)]
        if point.m
        else [learned.w]
    )
    w, z = learned.w, r.astype(np.float64)
    four = split(z, w, np.mean(again, axis=0))
    assert relative(four.sum(0), w) < 1e-14
    leakage, bias, mlp, gradient = four
    for a, b in (
        (leakage, bias),
        (leakage, mlp),
        (leakage, gradient),
        (bias, mlp),
        (bias, gradient),
    ):
        assert abs(a @ b) < 1e-12 * (w @ w)
    assert leakage @ z.z_trig == pytest.approx(w @ z.z_trig, rel=1e-12)
    assert (np.abs(mlp).max() > 0) == (point.m > 0)
    if point.embedding == "orthogonal":
        assert not bias.any()  # Sigma_c zbar = 0
    row = diagnose(r, point, learned, redraws(point, SEED))
    assert total(row) == pytest.approx(
        measure(r, point, learned)["snr"] ** -2, rel=1e-12
    )


def test_the_parts_of_a_known_vector():
    """w = 3 z_trig + 2 u + x, with u and x orthogonal to z_trig and u along Sigma_c
    zbar; W_in redrawn moves x to y.
    """
    z = realize(POINT, SEED).astype(np.float64)
    zbar = z.Z_in.mean(0)
    drift = sum(np.outer(row - zbar, row - zbar) for row in z.Z_in) @ zbar

    def without(a, b):
        return a - (a @ b) / (b @ b) * b

    u = without(drift, z.z_trig)
    x, y = (
        without(without(v, z.z_trig), u)
        for v in np.random.default_rng(0).normal(size=(2, POINT.d))
    )
    four = split(z, 3 * z.z_trig + 2 * u + x, 5 * z.z_trig - u + y)
    for found, known in zip(four, (3 * z.z_trig, 2 * u, x - y, y), strict=True):
        assert np.allclose(found, known, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "point",
    [
        POINT.replace(exact="full"),
        # of which the MLP below has all
        pytest.param(
            POINT.replace(exact="full", embedding="sphere", trigger_in_value=False),
            marks=pytest.mark.slow,
        ),
        POINT.replace(exact="guarded", eta=1e-6),
        POINT.replace(
            exact="guarded",
            eta=1e-6,
            V=13,
            embedding="orthogonal",
            d=15,
            fresh_batches=True,
        ),
        pytest.param(MLP.replace(exact="full", eta=0.5), marks=pytest.mark.slow),
        pytest.param(MLP.replace(eta=1e-6), marks=pytest.mark.slow),
        MLP.replace(eta=1e-6, embedding="sphere", trigger_in_value=False),
    ],
    ids=lambda p: f"{p.m}-{p.embedding}-{p.exact}-{p.eta}",
)
def test_the_program_agrees_with_the_reference(point):
    r = realize(point, SEED)
    reference = diagnose(r, point, three_step(r, point), redraws(point, SEED))
    _, metrics = streamed(point, SEED, shape_of(point))
    if point.eta == 1e-6:
        assert metrics["form"].startswith("uniform" if point.m else "counts")
    assert_same_noise(metrics, reference)
    assert total(metrics) == pytest.approx(metrics["snr"] ** -2, rel=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        POINT.replace(eta=1e-6),
        pytest.param(MLP.replace(eta=1e-6), marks=pytest.mark.slow),
    ],
    ids=["attention", "mlp"],
)
def test_padding_is_invisible(point):
    wide = streamed(point, SEED, shape_of(point, 80, 48, 64), tile=1024)[1]
    assert_same_noise(wide, streamed(point, SEED, shape_of(point))[1], rtol=2e-5)


def test_the_streamed_vectors_add_up_to_rounding():
    world = drawn(MLP, SEED, shape_of(MLP))
    w, mean_w = (
        np.where(np.arange(32) < MLP.d, v, 0).astype(np.float32)
        for v in np.random.default_rng(0).normal(size=(2, 32))
    )
    assert relative(np.asarray(score_noise.split(world, w, mean_w)).sum(0), w) < 3e-7


def test_redraws_are_addressed_and_change_no_other_draw():
    """Redraw r of row i of W_in: the key of W_in, folded with 2^31 + r, then with i; so
    a prefix in m and d.
    """
    again = redraws(MLP, SEED)
    assert (again.shape, again.dtype) == ((REDRAWS, 20, 12), np.float32)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(MLP.root_seed), SEED), 5)
    row = jax.random.fold_in(jax.random.fold_in(key, np.uint32(2**31 + 2)), 7)
    assert np.array_equal(again[2, 7], jax.random.normal(row, (12,), np.float32))
    smaller = redraws(MLP.replace(m=9, d=5), SEED)
    assert np.array_equal(smaller, again[:, :9, :5])
    W_in = realize(MLP, SEED).W_in
    assert len({a.tobytes() for a in [W_in, *again]}) == REDRAWS + 1
    assert abs(np.corrcoef([a.ravel() for a in [W_in, *again]]) - np.eye(9)).max() < 0.3


@pytest.mark.parametrize(
    "point",
    [POINT.replace(streams="independent", exact="full"), MLP.replace(eta=1e-6)],
    ids=["attention", "mlp"],
)
def test_who_asks_gets_the_same_run(point):
    plain = point.replace(diagnose=False)
    (a, with_noise), (b, without) = (
        streamed(asked, SEED, shape_of(asked)) for asked in (point, plain)
    )
    assert max(relative(x, y) for x, y in zip(a, b, strict=True)) < 1e-6
    assert_same_metrics(with_noise, without)
    assert {without[name] for name in EXTRA_COLUMNS} == {None}
    assert not {name for name in without if with_noise[name] != without[name]} - {
        *METRICS,
        *STD,
        *COV,
    }


def test_ids_name_what_is_asked_for_only_where_it_is():
    plain = POINT.replace(diagnose=False)
    assert (
        Point(V=64, N=1000, d=32, L=8, diagnose=False, decoders=False).point_id
        == "74ce457887505b25"
    )
    assert (
        len(
            {
                p.point_id
                for p in (
                    plain,
                    POINT,
                    plain.replace(decoders=True),
                    POINT.replace(decoders=True),
                )
            }
        )
        == 4
    )
    assert POINT.draws_id == plain.draws_id == plain.point_id


@pytest.mark.slow
def test_where_there_is_no_score_there_is_no_noise():
    lone = simulate(POINT.replace(L=1, decoders=True, exact="full"), SEED)
    assert lone["status"] == "ok"
    assert {lone[name] for name in (*STD, *COV)} == {None}
    assert lone["matched_accuracy"] is not None
    lost = simulate(
        POINT.replace(eta=1e300, gamma=1.0, decoders=True, exact="full"), SEED
    )
    assert lost["status"] == "nonfinite"
    assert {lost[name] for name in EXTRA_COLUMNS} == {None}
    for bad in (np.full((4, 4), np.nan), np.full((4, 4), np.inf), np.eye(4) * 0):
        assert set(noise_columns(bad, 0.0).values()) == {None}


@pytest.mark.slow
def test_a_redraw_that_no_shortcut_may_serve_rejects_the_run(monkeypatch):
    """The bound of the redraws counts as that of the run does: made infinite, it sends
    the run to the full form.
    """
    bounds = error_bounds.softmax_errors
    calls = []

    def broken(*arguments):
        calls.append(arguments)
        step2, step3 = bounds(*arguments)
        return step2 * np.float32(np.inf), step3

    monkeypatch.setattr(score_noise, "softmax_errors", broken)
    # a shape of its own, so that it is traced with the bound changed
    shape = shape_of(MLP.replace(eta=1e-6), 36)
    _, raw = _train(drawn(MLP.replace(eta=1e-6), SEED, shape))
    assert not shape.trained_by.accepts(raw["errors"])
    assert len(calls) == 1


def test_asking_takes_a_program_of_its_own_that_is_told_to_cost_more():
    asked = [
        POINT,
        POINT.replace(decoders=True),
        POINT.replace(diagnose=False, decoders=True),
        POINT.replace(diagnose=False),
    ]
    made = plan.make_plan([(point, 0) for point in asked])
    assert len(made.peaks) == 4
    assert plan.make_plan([(point, 0) for point in asked], (64, 64, 0)).n_runs == 4
    dear, cheap = (
        amount(Shape.rounded(p), work(p)).seconds
        for p in (MLP.replace(N=10**5), MLP.replace(N=10**5, diagnose=False))
    )
    assert 4 < dear / cheap < 9


@pytest.mark.parametrize(
    "shape",
    [
        Shape(64, 32, 512, "relu", "uniform", diagnose=True),
        Shape(512, 64, 0, "none", "full", diagnose=True, decoders=True),
    ],
    ids=["mlp", "attention"],
)
@pytest.mark.slow
def test_peak_bytes_bounds_what_the_compiler_reserves(shape):
    about = program.compiled(shape, 1).run.memory_analysis()
    reserved = about.temp_size_in_bytes + about.output_size_in_bytes
    assert reserved <= peak_bytes(shape) <= 8 * reserved


GRID = """
schema: 1
name: mixed
base: {V: 20, L: 3, n_test: 200, eta: 1e-6}
seeds: {count: 2}
blocks:
  - axes: {d: [12], N: [100, 600]}
"""


@pytest.mark.slow
def test_parts_from_before_the_columns_go_together_with_new_ones(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.yaml").write_text(GRID)
    run("mixed.yaml", out="results/mixed", progress=False)
    for part in (tmp_path / "results/mixed/parts").iterdir():
        pq.write_table(
            pq.read_table(part).drop_columns([*EXTRAS, *EXTRA_COLUMNS]),
            part,
            write_page_checksum=True,
        )
    asking = ["--set", "blocks.0.axes.diagnose=true", "--set", "base.decoders=true"]
    assert sweep(["--grid", "mixed.yaml", "--set", "seeds.count=3"]) == 0
    assert "mixed: 4 of 6 runs done" in capsys.readouterr().out
    assert sweep(["--grid", "mixed.yaml", *asking]) == 0
    for _ in range(2):
        frame = load("results/mixed")
        assert len(frame) == 6 + 4
        assert frame["diagnose"].isna().sum() == 4
        assert frame["noise_leakage"].notna().sum() == 4
        assert frame["whitened_accuracy"].notna().sum() == 4
        assert compact(["results/mixed", "--prune"]) == 0
    assert sweep(["--grid", "mixed.yaml", *asking, "--dry-run", "--json"]) == 0
    assert '"todo": 0' in capsys.readouterr().out
    found, remarks = families(frame, roles_of(frame), "N")
    (cell,) = found[0].cells
    assert (list(cell.N), cell.n_seeds) == ([100, 600], 3)
    assert (
        "4 runs differ from others in diagnose, decoders alone and were left out"
        in remarks
    )
