"""Simulators of one's own whose measure is no fraction, falls, or has several steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrecall
from jaxrecall.analysis.fit import fit
from jaxrecall.errors import GridError, UsageError
from jaxrecall.sweep.mean_crossing import MeanCurve, of_measure
from jaxrecall.sweep.search import CellSearch, Target
from jaxrecall.sweep.summary import Summary, parsed

LEVELS = {k: 2 ** (k / 8) for k in range(8 * 12 + 1)}


def searched(measure, theta, rises=True, summary="mean", seeds=40):
    """The result of a search whose runs have the value measure(level, seed)."""
    of_seeds = parsed(summary)
    assert of_seeds is not None
    target = Target(
        theta, LEVELS, 0.3, 400, range(seeds), rises=rises, summary=of_seeds
    )
    search = CellSearch(target)
    while search.pending:
        search.update([measure(level, seed) for level, seed in search.pending])
    assert search.result is not None
    return search.result


def error_of(level, seed):
    """An error that falls from 40 to less than 1."""
    noise = np.random.default_rng([seed, int(100 * level)]).normal()
    return 40 * level**-0.5 * np.exp(0.1 * noise)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_search_finds_where_any_measure_crosses(sign):
    def measure(level, seed):
        return sign * error_of(level, seed)

    result = searched(measure, sign * 3.0, rises=sign < 0)
    assert result.outcome == "found"
    truth = 2 * np.log(40 / 3)
    assert result.threshold.lo < truth < result.threshold.hi
    assert result.threshold.width <= 0.3


@pytest.mark.parametrize(
    ("summary", "theta"), [("median", 0.2), ("above 0.9", 0.5), ("mean", 0.5)]
)
def test_a_search_follows_the_summary(summary, theta):
    def measure(level, seed):
        u = np.random.default_rng([seed, int(100 * level)]).random()
        return 0.95 if u < 1 / (1 + (level / 100) ** -3) else 0.05

    result = searched(measure, theta, summary=summary, seeds=200)
    assert result.outcome == "found"
    assert result.threshold.log_x == pytest.approx(np.log(100), abs=0.3)


def test_a_curve_of_fractions_is_logistic_and_any_other_is_of_straight_lines():
    x, seed = np.log([1.0, 2.0, 1.0, 2.0]), [0, 0, 1, 1]
    assert not isinstance(of_measure(x, seed, [0.1, 0.9, 0.2, 1.0], 0.5), MeanCurve)
    for values, theta in (([0.1, 0.9, 0.2, 1.1], 0.5), ([0.1, 0.9, 0.2, 1.0], 2.0)):
        assert isinstance(of_measure(x, seed, values, theta), MeanCurve)


def test_the_mean_crosses_between_two_levels_and_its_ln_is_a_second_shape():
    x = np.log([1.0, 2.0, 4.0])
    found = MeanCurve(x, np.tile([1.0, 2.0, 8.0], (8, 1))).crossing(4.0)
    assert found.log_x == pytest.approx(x[1] + np.log(2) / 3)
    assert sorted(found.shapes) == pytest.approx(
        sorted([x[1] + np.log(2) / 3, x[1] + np.log(2) / 2])
    )
    falling = MeanCurve(x, 1 - np.tile([8.0, 2.0, 1.0], (8, 1)), falls=True)
    assert falling.crossing(1 - 4.0).log_x == pytest.approx(np.log(2) * 2 / 3)
    assert MeanCurve(x, np.tile([1.0, 2.0, 3.0], (8, 1))).crossing(4.0).side == 1
    assert MeanCurve(x, np.tile([5.0, 6.0, 7.0], (8, 1))).crossing(4.0).side == -1
    assert MeanCurve(x, np.tile([1.0, 2.0, 8.0], (3, 1))).crossing(4.0).hi == np.inf


def test_the_standard_error_of_the_crossing_is_that_of_the_mean():
    """Shifts of whole curves by seeds: D log_x is the mean's change over the slope."""
    shifts = np.array([-0.3, -0.1, 0.0, 0.05, 0.1, 0.25])
    values = np.array([1.0, 3.0, 9.0]) + shifts[:, None]
    found = MeanCurve(np.log([1.0, 2.0, 4.0]), values).crossing(2.0)
    slope = 2 / np.log(2)
    error = shifts.std(ddof=1) / np.sqrt(6)
    leave_one_out = np.sqrt(5 / 6 * (found.without**2).sum())
    assert leave_one_out == pytest.approx(error / slope)


def loss_of(point, key):
    t = jnp.array([0, 1, 2, 4, 8, 16, 32, 64])
    noise = 0.05 * jax.random.normal(key, t.shape)
    return {
        "step": t,
        "loss": 3 * jnp.exp(-t.astype(jnp.float32) * point.lr / 20) + noise,
        "rate": point.lr,
    }


FIELDS = {"lr": (float, None, 0, 10, "traced", "learning rate")}
COLUMNS = {"loss": (float, "mean squared error"), "rate": (float, "the same rate")}
GRID = {"blocks": [{"axes": {"lr": [1.0, 2.0, 4.0]}}]}


@pytest.mark.parametrize("jit", [True, False])
def test_a_run_of_ones_own_may_have_rows_of_several_steps(tmp_path, jit):
    simulator = jaxrecall.Simulator(loss_of, FIELDS, COLUMNS, accuracy="loss", jit=jit)

    def run():
        return jaxrecall.run(
            GRID, seeds=6, simulator=simulator, out=tmp_path / "o", progress=False
        )

    rows = run()
    assert len(rows) == 3 * 6 * 8
    assert set(rows["steps"]) == {64}
    first = rows[(rows["lr"] == 2) & (rows["seed"] == 0)]
    assert first["step"].tolist() == [0, 1, 2, 4, 8, 16, 32, 64]
    assert set(first["rate"]) == {2.0}
    assert len(run()) == len(rows)  # the runs are done
    assert len(jaxrecall.load(tmp_path / "o", last=True)) == 18
    found = fit(rows, 1.0, along="step").exponents
    assert found["exponent"].tolist() == pytest.approx([-1.0], abs=0.1)


@pytest.mark.parametrize("steps", [[2, 1], [0.5, 1.0], [], [[1]], [-1, 2]])
def test_steps_that_are_no_ascending_whole_numbers_fail_their_run(steps):
    def fn(point, key):
        return {"step": np.array(steps), "loss": np.zeros(len(steps)), "rate": 1.0}

    simulator = jaxrecall.Simulator(fn, FIELDS, COLUMNS, accuracy="loss", jit=False)
    with pytest.raises(jaxrecall.RunFailed, match="for step; allowed: whole numbers"):
        jaxrecall.run(GRID, seeds=1, simulator=simulator, progress=False)


def test_a_simulator_says_where_its_accuracy_falls():
    """Without `rises` the search warns; with it, it finds the crossing."""

    def fn(point, key):
        x = jnp.log(point.N / 20) + 0.2 * jax.random.normal(key)
        return {"accuracy": jax.nn.sigmoid(-3 * x)}

    fields = {"N": (float, None, 1, 1e6, "traced")}
    columns = {"accuracy": (float, "share")}
    search = {"axis": "N", "from": 1, "to": 1024}
    told = {}
    for rises in (None, {"N": False}):
        simulator = jaxrecall.Simulator(fn, fields, columns, "accuracy", rises=rises)
        rows = jaxrecall.run(
            {"search": search, "blocks": [{}]},
            seeds=24,
            simulator=simulator,
            progress=False,
        )
        (told[rises is None],) = jaxrecall.thresholds(rows).itertuples()
    assert told[False].critical == pytest.approx(20, rel=0.2)
    assert told[False].samples is None or np.isnan(told[False].samples)
    assert "try rises: false" in told[True].warning


@pytest.mark.parametrize(
    ("rises", "line"),
    [
        (
            {"x": False},
            "rises: got 'x': False; allowed: a field (lr), and True or False",
        ),
        ({"lr": 1}, "rises: got 'lr': 1; allowed: a field (lr), and True or False"),
        ([1], "rises: got [1]; allowed: a dict from fields to bools"),
    ],
)
def test_a_wrong_direction_is_refused(rises, line):
    with pytest.raises(UsageError) as refused:
        jaxrecall.Simulator(loss_of, FIELDS, COLUMNS, accuracy="loss", rises=rises)
    assert str(refused.value) == line


@pytest.mark.parametrize("name", ["theta", "critical", "axis", "lo", "method"])
def test_names_that_clash_with_the_thresholds_are_refused_before_a_run(name):
    fields = {name: (float, None, 0, 1, "traced")}
    with pytest.raises(
        UsageError, match=rf"^fields\.{name}: is a column of the thresh"
    ):
        jaxrecall.Simulator(loss_of, fields, COLUMNS, accuracy="loss")


def test_no_accuracy_of_ours_is_above_1_but_any_column_may_be():
    search = {"axis": "N", "theta": 1.5}
    grid = {"base": {"V": 16, "d": 16, "L": 4}, "search": search, "blocks": [{}]}
    with pytest.raises(GridError, match=r"search.theta: got 1.5; allowed: accuracies"):
        jaxrecall.run(grid, seeds=8, progress=False)
    search["summary"] = "most"
    with pytest.raises(GridError, match=r"summary 'most'; allowed: mean, median, or"):
        jaxrecall.run(grid | {"search": search | {"theta": 0.5}}, seeds=8)


def test_summaries_are_read_from_their_text():
    assert parsed("above 0.9") == Summary("above", 0.9)
    assert parsed("above -1e-3") == Summary("above", -1e-3)
    assert [parsed(text) for text in ("above", "above x", "mode", None, 3)] == [
        None
    ] * 5
