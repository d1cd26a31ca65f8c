"""The best value of an axis in each cell, one law for each value of an axis, and the
law of a measured mean.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from test_fit import assert_crosses, command, crossed, exponents
from test_fit import table as runs
from test_misfit import jackknife, losses
from tolerances import assert_close

from jaxrecall.fit import fit

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
EXPONENTS = {"adam": 0.5, "sgd": 0.9}


def star(c, best=0.1):
    """The truth: the rate `best` needs the fewest samples."""
    slope = np.exp(np.log(c["lr"] / best) ** 2 / 4)
    return 40 * c["d"] ** EXPONENTS[c["optimizer"]] * slope


def table(sizes=(16, 32, 64), rates=RATES, optimizers=EXPONENTS, best=0.1, **options):
    frame = runs(
        {"d": sizes, "lr": rates, "optimizer": optimizers},
        lambda c: star(c, best),
        **{"levels": (64, 128, 256, 512, 1024, 2048)} | options,
        slope=2,
        noise=0.1,
        n_test=10**6,
    )
    return frame.assign(memory_accuracy=(frame["n_correct"] / 10**6) ** 2)


@pytest.fixture(scope="module")
def frame():
    return table()


def test_each_cell_has_the_rate_that_needs_the_fewest_samples(frame):
    found = fit(frame, best="lr").thresholds
    assert (found["lr"] == 0.1).all()
    assert not found["warning"].str.contains("lr =").any()
    assert_crosses(found, found.apply(star, axis=1))
    assert found["critical"].between(found["lo"], found["hi"]).all()
    alone = fit(frame[frame["lr"] == 0.1]).thresholds
    # where one rate is best at every level, nothing else enters
    assert_close(found["critical"], alone["critical"], "roots")


def test_a_best_value_at_the_end_of_its_range_is_told():
    found = fit(table(best=3.0), best="lr").thresholds
    assert (found["lr"] == 1.0).all()
    line = "lr = 1 is the largest tried: try beyond it"
    assert found["warning"].str.contains(line).all()


def test_the_best_value_is_chosen_anew_without_each_seed():
    """Two rates, each best in half of the seeds and far worse in the others: the choice
    hangs on one seed, and so does N*.
    """
    axes = {"V": [64], "d": [16], "L": [8], "m": [0], "lr": [0.1, 0.2]}
    one = crossed(**axes, N=[32, 64, 128, 256, 512, 1024], seed=range(8))
    stars = np.where(one["seed"] % 2 == (one["lr"] == 0.2), 100, 300)
    one["n_correct"] = (1000 * expit(np.log(one["N"] / stars))).round()
    one["n_test"] = 1000
    best, alone = (
        fit(each, best=axis).thresholds.iloc[0]
        for each, axis in ((one, "lr"), (one[one["lr"] == 0.1], None))
    )
    assert_close(best.critical, alone.critical, "roots")
    # without any seed, the other rate is as good as this one was
    assert np.log(best.hi / best.lo) < np.log(alone.hi / alone.lo)


def test_of_a_search_the_value_that_crosses_first_is_best():
    """Each value has levels of its own but for the first, so that no level tells which
    is best.
    """
    parts = []
    for d, lr, optimizer in itertools.product((16, 32), (0.03, 0.1, 0.3), EXPONENTS):
        middle = star({"d": d, "lr": lr, "optimizer": optimizer})
        around = (middle * 2.0 ** np.array([-1.5, -0.5, 0.5, 1.5])).round().astype(int)
        parts.append(table([d], [lr], [optimizer], levels=[16, *around]))
    searched = pd.concat(parts, ignore_index=True)
    searched.attrs["searched"] = "N"
    found = fit(searched, best="lr").thresholds
    each = fit(searched).thresholds.groupby(["d", "optimizer"])["critical"].min()
    assert (found["lr"] == 0.1).all()
    assert_close(found["critical"], each, "roots")


def test_one_law_for_each_value_of_an_axis(frame):
    found = fit(frame, best="lr", by="optimizer")
    for (regime, _), exponent in exponents(found, "regime").items():
        assert_close(exponent, EXPONENTS[regime.split("'")[1]], 0.05)
    both = fit(frame, by="optimizer", where=["lr == 0.1", "lr == 0.3"]).exponents
    assert list(both["regime"]) == [
        f"(lr == {lr}) and optimizer == '{optimizer}'"
        for lr, optimizer in itertools.product((0.1, 0.3), EXPONENTS)
    ]


def test_the_law_of_a_mean_is_a_line_through_its_logarithms():
    frame = losses(
        lambda c: 3 * c["d"] ** 1.4, {"d": [4, 8, 16, 32, 64]}, noise=0.1, stream=1
    )
    frame["loss"] = frame["loss"].where(frame["d"] > 4, 0.0)
    found = fit(frame, law="loss", along="d")
    (row,) = found.exponents.itertuples()

    def slope(rows):
        means = rows[rows["d"] > 4].groupby("d")["loss"].mean()
        return np.polyfit(np.log(means.index), np.log(means), 1)[0]

    assert_close(row.exponent, slope(frame))
    assert row.interval_by == "seeds"
    assert_close((row.hi - row.lo) / 2, jackknife(slope, frame), "roots")
    assert row.lo < 1.4 < row.hi
    assert (row.axis, row.along) == ("d", "loss")
    assert row.left_out == "1 mean 0"
    assert "exponents of loss:" in repr(found)
    assert not len(found.thresholds)


@pytest.mark.parametrize(("sign", "best"), [(1, "max"), (-1, "min")])
def test_the_law_of_a_mean_uses_the_best_value_of_an_axis(sign, best):
    axes = {"d": [4, 8, 16, 32], "lr": [0.1, 0.3, 1.0]}
    frame = losses(
        lambda c: (c["d"] * np.exp(-((np.log(c["d"] * c["lr"]) / 4) ** 2))) ** sign,
        axes,
        noise=0.1,
        stream=1,
    )
    found = fit(frame, law="loss", along="d", best="lr")
    means = frame.groupby(["d", "lr"])["loss"].mean().groupby("d").agg(best)
    slope, _ = np.polyfit(np.log(means.index), np.log(means), 1)
    assert_close(found.exponents["exponent"], [slope])
    (told,) = found.diagnostics.query("diagnostic == 'warning'")["text"]
    assert told == "lr = 0.1 is the smallest tried"


def test_the_command_takes_them_all(frame, tmp_path, capsys):
    for words, line in (
        ("--best lr --by optimizer", "exponents of N*:"),
        ("--law memory_accuracy --along d --where N==256", "of memory_accuracy:"),
    ):
        assert command(tmp_path, frame, *words.split(), "--latex") == 0
        assert line in capsys.readouterr().out
