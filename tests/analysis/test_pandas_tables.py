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
from test_fit import command, law, table, uncovered
from tolerances import assert_close

import jaxrecall
from jaxrecall import fit as cli
from jaxrecall import plot
from jaxrecall.errors import FitError, StoreError
from jaxrecall.fit import fit
from jaxrecall.report import main as report

PLAIN = table({"d": [32, 64], "embedding": ["gaussian", "sphere"]}, law, seeds=6)
EMBEDDINGS = pd.CategoricalDtype(["gaussian", "sphere", "never run"])


def partitioned(folder, **kwargs):
    PLAIN.to_parquet(folder / "hive", partition_cols=["d", "embedding"])
    return pd.read_parquet(folder / "hive", **kwargs)


MADE = {
    "hive partitions": partitioned,
    "hive partitions of Arrow": lambda folder: partitioned(
        folder, dtype_backend="pyarrow"
    ),
    "categories": lambda _: PLAIN.astype(
        dict.fromkeys(["d", "N", "n_correct"], "category") | {"embedding": EMBEDDINGS}
    ),
    "objects": lambda _: PLAIN.astype(dict.fromkeys(["d", "N", "n_test"], object)),
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
    for mine, theirs in zip(fit(frame), fit(PLAIN), strict=True):
        pd.testing.assert_frame_equal(mine, theirs[list(mine)], check_dtype=False)
        assert {*mine} == {*theirs}
    pd.testing.assert_frame_equal(frame, before)


def test_a_file_may_keep_its_axes_in_an_index_and_as_categories(tmp_path):
    frame = PLAIN.astype({"embedding": EMBEDDINGS}).assign(remark="none")
    frame = frame.astype({"remark": "category"}).set_index(["V", "N", "embedding"])
    assert command(tmp_path, frame) == 0
    kept = pd.read_parquet(tmp_path / "t-fit/thresholds.parquet")
    expected = fit(PLAIN).thresholds
    pd.testing.assert_frame_equal(kept[list(expected)], expected, check_dtype=False)


def test_a_table_of_polars_is_taken_as_one_of_pandas():
    frame = pytest.importorskip("polars").from_pandas(PLAIN)
    mine, theirs = (fit(each).thresholds for each in (frame, PLAIN))
    pd.testing.assert_frame_equal(mine, theirs, check_dtype=False)
    ax, plain = (plot.critical_n(each, theory=False) for each in (frame, PLAIN))
    assert len(ax.lines) == len(plain.lines) > 0
    with pytest.raises(FitError, match=r"^frame: got <LazyFrame"):
        fit(frame.lazy())


def drawn(df):
    """The points of the lines of each figure."""
    sphere = df[df["embedding"].to_numpy() == "sphere"]
    figures = (
        plot.accuracy(df, lines=["d", "embedding"], theta=0.5),
        plot.critical_n(df, theory=False),
        plot.collapse(df),
        plot.phase(sphere, "d", "N", theory=False),
        plot.figure(df, "n_correct", lines="d", panels="embedding").axes[0],
    )
    return [[line.get_xydata() for line in ax.lines] for ax in figures]


@pytest.fixture(scope="module")
def plain_lines():
    return drawn(PLAIN)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in [*MADE][:-1]]


@pytest.mark.parametrize("name", ["nullable numbers", *SLOW])
def test_a_table_of_pandas_is_drawn_as_the_plain_one(name, plain_lines, tmp_path):
    for lines, plain in zip(drawn(MADE[name](tmp_path)), plain_lines, strict=True):
        for mine, theirs in zip(lines, plain, strict=True):
            assert_close(mine, theirs)


def test_thresholds_with_an_index_are_set_as_the_plain_ones():
    found = fit(PLAIN)
    for plain in (found.thresholds, found.exponents):
        axes, expected = list(plain)[:2], jaxrecall.latex(plain)
        for drop in (True, False):
            assert jaxrecall.latex(plain.set_index(axes, drop=drop)) == expected
    categories = found.thresholds.astype({"d": "category"})
    assert jaxrecall.latex(categories) == jaxrecall.latex(found.thresholds)


def test_theta_may_be_one_number_or_of_float32_and_is_the_decimal_that_was_written():
    one, listed = (fit(PLAIN, theta).thresholds for theta in (0.3, [0.3]))
    pd.testing.assert_frame_equal(one, listed)
    of_numpy = fit(PLAIN, np.array([0.3, 0.7], np.float32)).thresholds
    assert {*of_numpy["theta"]} == {0.3, 0.7}


def test_a_folder_that_is_split_by_a_column_says_how_it_is_read(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    frame = partitioned(tmp_path)
    with pytest.raises(StoreError, match=r"pandas.read_parquet\('hive'\)"):
        jaxrecall.load("hive")
    assert cli.main(["hive"]) == 2
    assert ".to_parquet('one.parquet') for jaxrecall fit" in capsys.readouterr().err
    uncovered(frame).to_parquet("one.parquet")
    for main, *words in ((cli.main,), (report, "--format", "svg")):
        assert main(["one.parquet", *words]) == 0
