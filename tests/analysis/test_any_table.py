"""Arbitrary tables through fit and report: a result or a clear message, whatever their
columns hold.
"""

import contextlib
import datetime
import decimal
import itertools
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from attack import Calls, examples, reported
from hypothesis import given
from hypothesis import strategies as st

from jaxrecall import fit as fit_command
from jaxrecall import report as report_command
from jaxrecall.analysis.figures.style import text
from jaxrecall.fit import fit

RUNS = [
    {"V": 16, "N": N, "d": d, "L": 4, "m": 0, "seed": seed, "n_test": 256}
    | {"n_correct": min(256, 8 + N * d // 8 + seed)}
    for d, N, seed in itertools.product((4, 8), (16, 64), (0, 1))
]
MORE = yaml.safe_load("""
{root_seed: 0, embedding: gaussian, eta: 1.0, kappa: 9.0, gamma: 4.0, gamma2: 4.0,
 pool: null, status: ok, accuracy: 0.5, code_version: 2, precision: highest,
 seconds: 0.1, fresh_batches: false, step1_memory_accuracy: 0.25}
""")
NAMES = "$x_|$|| |a\nb|N|theta|axis|index|_seed|row|level_0|<b>|\\frac|é𝟙\u202e|0|lo"
NAMES = [*NAMES.split("|"), "a" * 300]

numbers = st.integers(-3, 300) | st.floats()
numbers |= st.sampled_from([2**31, 2**53, 2**63 - 1, -(2**63), 1e308, 5e-324])
numbers |= st.sampled_from([math.inf, math.nan])
special = json.loads("""
[true, "", "$x_{", "a", [], [1, 2], {"a": 1}, {"a": {"b": [1]}}, [[1]], {"a": null},
 ["$"], "\\u0000", null, "1", 1152921504606846976, 0, NaN, Infinity]
""")
special += ["a" * 3000, b"\xff", decimal.Decimal("1.5"), datetime.date(2026, 1, 1)]
special += [datetime.datetime(2026, 1, 1), datetime.timedelta(1), datetime.time(1)]
TYPES = """int8 uint64 float16 float32 float64 string large_string bool null date32
duration[ns] timestamp[s] binary"""
TYPES = [pa.type_for_alias(name) for name in TYPES.split()]
TYPES += [pa.decimal128(20, 2), pa.dictionary(pa.int8(), pa.string())]

CALLS = Calls("tables")
_report = reported(CALLS)


@st.composite
def columns(draw, n):
    """The values of a column of n rows."""
    kind = draw(st.sampled_from(["one", "numbers", "few", "special"]))
    if kind == "one":
        return [draw(numbers | st.sampled_from(special))] * n
    values = numbers
    if kind == "special":
        values = st.sampled_from([draw(st.sampled_from(special)), None])
    if kind == "few":
        values = st.sampled_from([draw(numbers), draw(numbers)])
    return draw(st.lists(values, min_size=n, max_size=n))


@st.composite
def tables(draw):
    """Runs with some of their columns changed, removed, renamed or added, as names and
    lists of values.
    """
    rows = draw(st.sampled_from([RUNS] * 6 + [RUNS[:1], RUNS[:2], [], RUNS * 2]))
    made = [(name, [row[name] for row in rows]) for name in RUNS[0]]
    more = draw(st.sets(st.sampled_from([*MORE])))
    made += [(name, [MORE[name]] * len(rows)) for name in MORE if name in more]
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        at = draw(st.integers(0, len(made) - 1))
        kinds = ["change", "one value", "add", "add", "remove", "rename"]
        kind = draw(st.sampled_from(kinds))
        name, values = made[at]
        if kind == "rename":
            name = draw(st.sampled_from(NAMES))
        elif kind == "change":
            values = draw(columns(len(rows)))
        elif kind == "one value" and rows:
            values = list(values)
            i = draw(st.integers(0, len(rows) - 1))
            values[i] = draw(numbers | st.sampled_from(special))
        made[at] = name, values
        if kind == "add":
            names = st.sampled_from([*NAMES, *MORE, *RUNS[0]]) | st.text(max_size=4)
            made.insert(at, (draw(names), draw(columns(len(rows)))))
        elif kind == "remove" and len(made) > 1:
            del made[at]
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


OPTIONS = "||--theta 0.3 0.9|--where L*d>V|--of step1_memory_accuracy"


@examples(8, 1000)
@given(arrow_tables(), st.sampled_from(OPTIONS.split("|")))
def test_any_parquet_file(tmp_path_factory, table, options):
    path = tmp_path_factory.getbasetemp() / "table.parquet"
    try:
        pq.write_table(table, path)
    except (pa.ArrowException, ValueError):  # Parquet has no such type
        return
    arguments = [str(path), *options.split()]
    fitted = CALLS("fit", fit_command.main, arguments)
    assert fitted in (0, 2)
    if "--where" not in options and "--of" not in options:
        assert CALLS("report", report_command.main, arguments) == fitted


def test_of_two_columns_of_one_name_none_is_taken(tmp_path, capsys):
    table = pa.Table.from_pandas(pd.DataFrame(RUNS).assign(other=1))
    path = tmp_path / "table.parquet"
    pq.write_table(table.rename_columns([*RUNS[0], "L"]), path)
    assert fit_command.main([str(path)]) == 2
    assert capsys.readouterr().err.startswith("columns: L more than once")


def test_floats_of_16_bits_are_an_axis():
    eta = np.repeat([1, 2], len(RUNS)).astype(np.float16)
    found = fit(pd.DataFrame(RUNS * 2).assign(eta=eta)).thresholds
    assert set(found["eta"]) == {1.0, 2.0}


def test_a_value_that_some_rows_lack_has_no_place_on_an_axis(tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame(RUNS[:4]).assign(gamma=[math.nan, 4.0, 4.0, 4.0]).to_parquet(path)
    assert report_command.main([str(path)]) == 0


def test_a_long_value_in_a_picture_is_cut():
    assert text("a" * 3000) == "a" * 57 + "..."
    assert text("a" * 60) == "a" * 60
