"""The best value of an axis in each cell, one law for each value of an axis, and the
law of a measured mean.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from jaxrecall import fit as cli
from jaxrecall.errors import FitError
from jaxrecall.fit import fit

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
EXPONENTS = {"adam": 0.5, "sgd": 0.9}


def star(d, lr, optimizer, best=0.1):
    """The truth: the rate `best` needs the fewest samples."""
    return 40 * d ** EXPONENTS[optimizer] * np.exp(np.log(lr / best) ** 2 / 4)


def table(best=0.1, seeds=8, levels=(64, 128, 256, 512, 1024, 2048), spread=0.1):
    rng, rows = np.random.default_rng(0), []
    shift = spread * rng.normal(size=seeds)
    for d, lr, optimizer, N, seed in itertools.product(
        (16, 32, 64), RATES, EXPONENTS, levels, range(seeds)
    ):
        p = expit(2 * np.log(N / star(d, lr, optimizer, best)) + shift[seed])
        rows.append(
            {
                "V": 64,
                "N": N,
                "d": d,
                "L": 8,
                "m": 0,
                "lr": lr,
                "optimizer": optimizer,
                "seed": seed,
                "n_test": 10**6,
                "p": p,
            }
        )
    return pd.DataFrame(rows).assign(
        n_correct=lambda f: (f.n_test * f.p).round().astype(int),
        memory_accuracy=lambda f: f.p**2,
    )


@pytest.fixture(scope="module")
def frame():
    return table()


def test_each_cell_has_the_rate_that_needs_the_fewest_samples(frame):
    found = fit(frame, [0.5], best="lr")
    assert (found.thresholds["lr"] == 0.1).all()
    assert not found.thresholds["warning"].str.contains("lr =").any()
    truth = [
        star(d, 0.1, optimizer)
        for d, optimizer in zip(
            found.thresholds.d, found.thresholds.optimizer, strict=True
        )
    ]
    assert np.allclose(np.log(found.thresholds.critical / truth), 0, atol=0.1)
    assert (
        (found.thresholds.lo <= found.thresholds.critical)
        & (found.thresholds.critical <= found.thresholds.hi)
    ).all()
    alone = fit(frame[frame.lr == 0.1], [0.5]).thresholds
    # where one rate is best at every level, nothing else enters
    assert np.allclose(found.thresholds.critical, alone.critical)


def test_a_best_value_at_the_end_of_its_range_is_told():
    found = fit(table(best=3.0), [0.5], best="lr").thresholds
    assert (found["lr"] == 1.0).all()
    assert (
        found["warning"]
        .str.contains("lr = 1 is the largest tried: try beyond it")
        .all()
    )


def test_the_best_value_is_chosen_anew_without_each_seed():
    """Two rates, each best in half of the seeds and far worse in the others: the choice
    hangs on one seed, and so does N*.
    """
    rows = []
    for (lr, good), N, seed in itertools.product(
        ((0.1, 0), (0.2, 1)), (32, 64, 128, 256, 512, 1024), range(8)
    ):
        k = round(1000 * expit(np.log(N / (100 if seed % 2 == good else 300))))
        rows.append(
            {
                "V": 64,
                "d": 16,
                "L": 8,
                "m": 0,
                "lr": lr,
                "N": N,
                "seed": seed,
                "n_test": 1000,
                "n_correct": k,
            }
        )
    one = pd.DataFrame(rows)
    best = fit(one, [0.5], best="lr").thresholds.iloc[0]
    alone = fit(one[one.lr == 0.1], [0.5]).thresholds.iloc[0]
    assert best.critical == pytest.approx(alone.critical, rel=1e-6)
    # without any seed, the other rate is as good as this one was
    assert np.log(best.hi / best.lo) < np.log(alone.hi / alone.lo)


def test_of_a_search_the_value_that_crosses_first_is_best(frame):
    """Each value has levels of its own but for the first, so that no level tells which
    is best.
    """
    parts = [
        table(
            levels=[
                16,
                *np.round(
                    star(d, lr, optimizer) * 2.0 ** np.array([-1.5, -0.5, 0.5, 1.5])
                ).astype(int),
            ]
        ).query("d == @d and lr == @lr and optimizer == @optimizer")
        for d, lr, optimizer in itertools.product((16, 32), (0.03, 0.1, 0.3), EXPONENTS)
    ]
    searched = pd.concat(parts, ignore_index=True)
    searched.attrs["searched"] = "N"
    found = fit(searched, [0.5], best="lr").thresholds
    each = fit(searched, [0.5]).thresholds
    assert (found["lr"] == 0.1).all()
    assert np.allclose(found.critical, each.groupby(["d", "optimizer"]).critical.min())


def test_one_law_for_each_value_of_an_axis(frame):
    exponents = fit(frame, [0.5], best="lr", by="optimizer").exponents.set_index(
        "regime"
    )["exponent"]
    for optimizer, exponent in EXPONENTS.items():
        assert exponents[f"optimizer == '{optimizer}'"] == pytest.approx(
            exponent, abs=0.05
        )
    both = fit(frame, [0.5], by="optimizer", where=["lr == 0.1", "lr == 0.3"]).exponents
    assert list(both["regime"]) == [
        f"(lr == {lr}) and optimizer == '{optimizer}'"
        for lr in (0.1, 0.3)
        for optimizer in EXPONENTS
    ]


def test_the_law_of_a_mean_is_a_line_through_its_logarithms():
    rng = np.random.default_rng(1)
    rows = [
        {
            "V": 64,
            "N": 256,
            "d": d,
            "L": 8,
            "m": 0,
            "seed": seed,
            "items": 3 * d**1.4 * np.exp(0.1 * rng.normal()),
        }
        for d, seed in itertools.product((8, 16, 32, 64), range(8))
    ]
    rows += [row | {"d": 4, "items": 0.0} for row in rows[:8]]
    found = fit(pd.DataFrame(rows), law="items", along="d")
    row = found.exponents.iloc[0]
    means = pd.DataFrame(rows).query("d > 4").groupby("d")["items"].mean()
    assert row.exponent == pytest.approx(
        np.polyfit(np.log(means.index), np.log(means), 1)[0]
    )
    assert row.lo < 1.4 < row.hi
    assert (row.axis, row.along) == ("d", "items")
    assert "left out: 1 (mean 0)" in repr(found)
    assert "items ~ d^" in repr(found)
    assert not len(found.thresholds)


def test_the_command_takes_them_all(frame, tmp_path, capsys):
    frame.to_parquet(tmp_path / "t.parquet")
    arguments = [
        str(tmp_path / "t.parquet"),
        "--best",
        "lr",
        "--by",
        "optimizer",
        "--latex",
    ]
    assert cli.main(arguments) == 0
    assert "optimizer == 'sgd': N* ~ d^0.9" in capsys.readouterr().out
    assert (
        cli.main(
            [
                str(tmp_path / "t.parquet"),
                "--law",
                "memory_accuracy",
                "--along",
                "d",
                "--where",
                "N == 256",
                "--latex",
            ]
        )
        == 0
    )
    assert "memory_accuracy ~ d^-" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"best": "rate"},
            (
                "best: got 'rate'; allowed: an axis of the table: V, d, L, m,"
                " optimizer, lr"
            ),
        ),
        (
            {"by": "rate"},
            "by: got 'rate'; allowed: an axis of the table: V, d, L, m, optimizer, lr",
        ),
        (
            {"law": "items"},
            (
                "law: got 'items', which is no column of the table; allowed: a column"
                " of numbers from 0"
            ),
        ),
        (
            {"law": "d"},
            "law: got 'd', which was not measured; allowed: a column of numbers from 0",
        ),
        (
            {"law": "memory_accuracy", "best": "lr"},
            "best: got 'lr' with law; allowed: one of the two",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(frame, arguments, told):
    with pytest.raises(FitError) as error:
        fit(frame, [0.5], **arguments)
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1
