"""Arbitrary tables through fit and report: a result or a clear message, whatever their
columns hold.
"""

import contextlib
import datetime
import decimal
import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attack import Calls, examples, reported
from hypothesis import given
from hypothesis import strategies as st

from jaxrecall import fit as fit_command
from jaxrecall import report as report_command
from jaxrecall.analysis.figures.style import text
from jaxrecall.analysis.fit import fit
from jaxrecall.errors import FitError

RUNS = [
    {
        "V": 16,
        "N": N,
        "d": d,
        "L": 4,
        "m": 0,
        "seed": seed,
        "n_test": 256,
        "n_correct": min(256, 8 + N * d // 8 + seed),
    }
    for d, N, seed in itertools.product((4, 8), (16, 64), (0, 1))
]
MORE = {
    "root_seed": 0,
    "embedding": "gaussian",
    "eta": 1.0,
    "kappa": 9.0,
    "gamma": 4.0,
    "gamma2": 4.0,
    "pool": None,
    "status": "ok",
}
MORE |= {
    "accuracy": 0.5,
    "code_version": 2,
    "precision": "highest",
    "seconds": 0.1,
    "fresh_batches": False,
    "step1_memory_accuracy": 0.25,
}
NAMES = [
    "$x_",
    "$",
    "",
    " ",
    "a\nb",
    "N",
    "theta",
    "axis",
    "index",
    "_seed",
    "row",
    "level_0",
    "<b>",
    "\\frac",
    "é𝟙\u202e",
    "a" * 300,
    "0",
    "lo",
]

numbers = (
    st.integers(-3, 300)
    | st.floats()
    | st.sampled_from(
        [2**31, 2**53, 2**63 - 1, -(2**63), math.inf, math.nan, 1e308, 5e-324]
    )
)
special = [
    True,
    "",
    "$x_{",
    "a",
    b"\xff",
    [],
    [1, 2],
    {"a": 1},
    {"a": {"b": [1]}},
    [[1]],
    {"a": None},
    ["$"],
    "a" * 3000,
    "\x00",
]
special += [
    decimal.Decimal("1.5"),
    datetime.date(2026, 1, 1),
    datetime.datetime(2026, 1, 1),
    datetime.timedelta(1),
    datetime.time(1),
]
special += [None, "1", 2**60, 0, math.nan, math.inf]
TYPES = [
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.bool_(),
    pa.null(),
    pa.date32(),
]
TYPES += [
    pa.decimal128(20, 2),
    pa.duration("ns"),
    pa.timestamp("s"),
    pa.binary(),
    pa.dictionary(pa.int8(), pa.string()),
]

CALLS = Calls("tables")
_report = reported(CALLS)


@st.composite
def columns(draw, n):
    """The values of a column of n rows."""
    kind = draw(st.sampled_from(["one", "numbers", "few", "special"]))
    values = (
        numbers
        if kind != "special"
        else st.sampled_from([draw(st.sampled_from(special)), None])
    )
    if kind == "one":
        return [draw(numbers | st.sampled_from(special))] * n
    choice = (
        draw(st.lists(values, min_size=2, max_size=2))
        if kind == "few"
        else draw(st.lists(values, min_size=n, max_size=n))
    )
    return [
        choice[draw(st.integers(0, 1))] if kind == "few" else choice[i]
        for i in range(n)
    ]


@st.composite
def tables(draw):
    """Runs with some of their columns changed, removed, renamed or added, as names and
    lists of values.
    """
    rows = draw(st.sampled_from([RUNS] * 6 + [RUNS[:1], RUNS[:2], [], RUNS * 2]))
    made = [(name, [row[name] for row in rows]) for name in RUNS[0]]
    made += [
        (name, [value] * len(rows))
        for name, value in MORE.items()
        if draw(st.booleans())
    ]
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        at = draw(st.integers(0, len(made) - 1))
        kind = draw(
            st.sampled_from(["change", "one value", "add", "add", "remove", "rename"])
        )
        name, values = made[at]
        if kind == "change":
            made[at] = name, draw(columns(len(rows)))
        elif kind == "one value" and rows:
            changed = list(values)
            changed[draw(st.integers(0, len(rows) - 1))] = draw(
                numbers | st.sampled_from(special)
            )
            made[at] = name, changed
        elif kind == "add":
            made.insert(
                at,
                (
                    draw(
                        st.sampled_from([*NAMES, *MORE, *RUNS[0]]) | st.text(max_size=4)
                    ),
                    draw(columns(len(rows))),
                ),
            )
        elif kind == "remove" and len(made) > 1:
            del made[at]
        elif kind == "rename":
            made[at] = draw(st.sampled_from(NAMES)), values
    return made


@st.composite
def arrow_tables(draw):
    """The same as a table that Parquet can hold, in places cast to other types."""
    arrays, names = [], []
    for name, values in draw(tables()):
        try:
            array = pa.array(values)
        except (pa.ArrowException, OverflowError):  # mixed types
            array = pa.array(
                [None if value is None else repr(value) for value in values]
            )
        if draw(st.integers(0, 12)) == 0:
            with contextlib.suppress(pa.ArrowException, NotImplementedError):
                array = array.cast(draw(st.sampled_from(TYPES)), safe=False)
        try:
            name.encode()
        except UnicodeEncodeError:
            name = "surrogate"
        arrays.append(array)
        names.append(name)
    return pa.table(arrays, names=names)


@examples(8, 1000)
@given(
    arrow_tables(),
    st.sampled_from(
        [
            [],
            [],
            ["--theta", "0.3", "0.9"],
            ["--where", "L * d > V"],
            ["--of", "step1_memory_accuracy"],
        ]
    ),
)
def test_any_parquet_file(tmp_path_factory, table, options):
    path = tmp_path_factory.getbasetemp() / "table.parquet"
    try:
        pq.write_table(table, path)
    except (pa.ArrowException, ValueError):  # Parquet has no such type
        return
    arguments = [str(path), "--resamples", "100", *options]
    fitted = CALLS("fit", fit_command.main, arguments)
    assert fitted in (0, 2)
    if not {"--where", "--of"} & {*options}:
        assert (
            CALLS("report", report_command.main, [*arguments, "--surrogate", "0"])
            == fitted
        )


@examples(30, 1000)
@given(tables(), st.booleans(), st.booleans())
def test_any_dataframe(columns, typed, indexed):
    frame = (
        pd.DataFrame(dict(enumerate(map(pd.Series, [values for _, values in columns]))))
        if columns
        else pd.DataFrame()
    )
    frame.columns = [name for name, _ in columns]
    # of pandas 2 about casts of large numbers
    with warnings.catch_warnings(action="ignore"):
        frame = frame.convert_dtypes() if typed else frame
    if indexed and len(frame.columns) and frame.columns.is_unique:
        frame = frame.set_index(frame.columns[0])

    def fitted():
        return fit(frame, resamples=100)

    CALLS("frame", fitted, refused=FitError)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kappa", "9.0", "kappa: holds '9.0' (str); allowed: numbers"),
        ("embedding", [1], "embedding: holds array([1]) (object); allowed: text"),
        (
            "fresh_batches",
            "no",
            "fresh_batches: holds 'no' (str); allowed: true, false",
        ),
    ],
)
@pytest.mark.parametrize("command", [fit_command, report_command])
def test_a_column_of_the_point_with_another_type(
    tmp_path, capsys, command, name, value, said
):
    pq.write_table(
        pa.Table.from_pylist([{**row, name: value} for row in RUNS]),
        tmp_path / "table.parquet",
    )
    assert command.main([str(tmp_path / "table.parquet")]) == 2
    assert capsys.readouterr().err == f"{said}\n"


def test_of_two_columns_of_one_name_none_is_taken(tmp_path, capsys):
    table = pa.Table.from_pylist(
        [{**row, "step1_memory_accuracy": 0.5, "L ": 1} for row in RUNS]
    )
    pq.write_table(
        table.rename_columns([name.strip() for name in table.column_names]),
        path := tmp_path / "table.parquet",
    )
    assert fit_command.main([str(path), "--of", "step1_memory_accuracy"]) == 2
    assert capsys.readouterr().err == "columns: L more than once; rename or drop one\n"


def test_floats_of_16_bits_are_an_axis():
    frame = pd.DataFrame(RUNS * 2).assign(
        eta=np.repeat([1, 2], len(RUNS)).astype(np.float16)
    )
    assert set(fit(frame, resamples=100).thresholds["eta"]) == {1.0, 2.0}


def test_a_value_that_some_rows_lack_has_no_place_on_an_axis(tmp_path):
    pd.DataFrame(RUNS[:4]).assign(gamma=[math.nan, 4.0, 4.0, 4.0]).to_parquet(
        tmp_path / "table.parquet"
    )
    arguments = [
        str(tmp_path / "table.parquet"),
        "--resamples",
        "100",
        "--surrogate",
        "0",
    ]
    assert report_command.main(arguments) == 0


def test_a_long_value_in_a_picture_is_cut():
    assert text("a" * 3000) == "a" * 57 + "..."
    assert text("a" * 60) == "a" * 60
