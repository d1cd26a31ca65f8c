"""Tables as pandas makes them of a good one: fitted, drawn and set as the plain
table.
"""

import decimal

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from test_fit import cli, law, table, uncovered

import jaxrecall
from jaxrecall.errors import FitError, StoreError
from jaxrecall.report import main as report

PLAIN = table({"d": [32, 64], "embedding": ["gaussian", "sphere"]}, law, seeds=6)


def partitioned(folder, **kwargs):
    PLAIN.to_parquet(folder / "hive", partition_cols=["d", "embedding"])
    return pd.read_parquet(folder / "hive", **kwargs)


MADE = {
    "hive partitions": partitioned,
    "hive partitions of Arrow": lambda folder: partitioned(
        folder, dtype_backend="pyarrow"
    ),
    "categories": lambda _: PLAIN.astype(
        {
            "d": "category",
            "N": "category",
            "n_correct": "category",
            "embedding": "category",
        }
    ),
    "objects": lambda _: PLAIN.astype({"d": object, "N": object, "n_test": object}),
    "decimals": lambda _: PLAIN.assign(N=[decimal.Decimal(int(N)) for N in PLAIN["N"]]),
    "an index that repeats columns": lambda _: PLAIN.set_index(["d", "N"], drop=False),
    "an index of columns": lambda _: PLAIN.set_index(["d", "N"]),
    "an index with a name": lambda _: PLAIN.rename_axis("row"),
    "nullable numbers": lambda _: PLAIN.convert_dtypes(),
}


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", MADE)
def test_a_table_of_pandas_is_fitted_as_the_plain_one(name, tmp_path):
    frame = MADE[name](tmp_path)
    before = frame.copy()
    expected, found = (
        jaxrecall.fit.fit(each, [0.5], resamples=100) for each in (PLAIN, frame)
    )
    for mine, theirs in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(mine, theirs[list(mine)], check_dtype=False)
        assert {*mine} == {*theirs}
    pd.testing.assert_frame_equal(frame, before)


def test_a_table_of_polars_is_taken_as_one_of_pandas():
    frame = pytest.importorskip("polars").from_pandas(PLAIN)
    expected, found = (
        jaxrecall.fit.fit(each, [0.5], resamples=100) for each in (PLAIN, frame)
    )
    pd.testing.assert_frame_equal(
        found.thresholds, expected.thresholds, check_dtype=False
    )
    ax, plain = (
        jaxrecall.plot.critical_n(each, theory=False) for each in (frame, PLAIN)
    )
    assert len(ax.lines) == len(plain.lines) > 0
    with pytest.raises(FitError, match=r"^frame: got <LazyFrame.*allowed: a table"):
        jaxrecall.fit.fit(frame.lazy())


def test_a_theta_of_float32_is_the_decimal_that_was_written():
    cells = jaxrecall.fit.fit(PLAIN, np.array([0.3, 0.7], np.float32)).thresholds
    assert {*cells["theta"]} == {0.3, 0.7}


def test_a_value_of_several_lines_is_shown_in_one():
    with pytest.raises(FitError) as refused:
        jaxrecall.fit.fit(np.zeros((3, 2)))
    assert "\n" not in str(refused.value)


def drawn(df):
    """The points of the lines of each figure."""
    figures = (
        jaxrecall.plot.accuracy(df, lines=["d", "embedding"], theta=0.5),
        jaxrecall.plot.critical_n(df, theory=False),
        jaxrecall.plot.collapse(df),
        jaxrecall.plot.phase(
            df[df["embedding"].to_numpy() == "sphere"], "d", "N", theory=False
        ),
        jaxrecall.plot.figure(df, "n_correct", lines="d", panels="embedding").axes[0],
    )
    return [[line.get_xydata() for line in ax.lines] for ax in figures]


@pytest.fixture(scope="module")
def plain_lines():
    return drawn(PLAIN)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "nullable numbers" else pytest.mark.slow)
        for name in MADE
    ],
)
def test_it_is_drawn_as_the_plain_one(name, plain_lines, tmp_path):
    for lines, plain in zip(drawn(MADE[name](tmp_path)), plain_lines, strict=True):
        for mine, theirs in zip(lines, plain, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_thresholds_with_an_index_are_set_as_the_plain_ones():
    found = jaxrecall.fit.fit(PLAIN, 0.5, resamples=100)
    for plain in (found.thresholds, found.exponents):
        axes = list(plain)[:2]
        assert (
            jaxrecall.latex(plain.set_index(axes))
            == jaxrecall.latex(plain.set_index(axes, drop=False))
            == jaxrecall.latex(plain)
        )
    assert jaxrecall.latex(
        found.thresholds.astype({"d": "category"})
    ) == jaxrecall.latex(found.thresholds)


def test_theta_may_be_one_number():
    one, listed = (
        jaxrecall.fit.fit(PLAIN, theta, resamples=100).thresholds
        for theta in (0.5, [0.5])
    )
    pd.testing.assert_frame_equal(one, listed)
    for wrong in (0, 1.5, True, "0.5", float("nan")):
        with pytest.raises(
            FitError, match=r"theta: got .*; allowed: fractions between 0 and 1"
        ):
            jaxrecall.fit.fit(PLAIN, wrong)


def test_objects_that_are_no_numbers_are_still_refused():
    with pytest.raises(
        FitError, match=r"d: holds 'a' \(str\); allowed: whole numbers from 1"
    ):
        jaxrecall.fit.fit(
            PLAIN.assign(d=pd.Series(["a", 32] * (len(PLAIN) // 2), dtype=object))
        )


def test_a_folder_that_is_split_by_a_column_says_how_it_is_read(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    partitioned(tmp_path)
    line = (
        r"no rows in hive: is split by a column into folders such as d=32; allowed:"
        r" pandas.read_parquet\('hive'\)"
    )
    with pytest.raises(StoreError, match=line):
        jaxrecall.load("hive")
    assert cli.main(["hive"]) == 2
    assert ".to_parquet('one.parquet') for jaxrecall fit" in capsys.readouterr().err
    uncovered(pd.read_parquet("hive")).to_parquet("one.parquet")
    assert cli.main(["one.parquet", "--resamples", "100"]) == 0
    assert report(["one.parquet", "--format", "svg"]) == 0


def test_text_in_where_chooses_the_cells(tmp_path, capsys):
    frame = pd.concat(
        [
            table({"d": [32, 64, 128]}, lambda c, k=k: 32000 * c["d"] ** -k).assign(
                optimizer=o
            )
            for o, k in (("sgd", 1), ("muon", 0.5))
        ]
    )
    frame.to_parquet(tmp_path / "t.parquet")
    assert (
        cli.main(
            [
                str(tmp_path / "t.parquet"),
                "--resamples",
                "100",
                "--where",
                "optimizer == 'muon'",
                "optimizer == 'sgd'",
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert "m = 0, optimizer == 'muon': N* ~ d^-0.50" in told
    assert "m = 0, optimizer == 'sgd': N* ~ d^-1.00" in told
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "\"optimizer == 'muon'\"" in capsys.readouterr().out
