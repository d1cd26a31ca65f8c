"""Thresholds and exponents as LaTeX: the numbers are those of the tables, and the text
is well formed.
"""

import importlib
import re

import pandas as pd
import pytest
from test_fit import GRID, WIDE, fit, law, table, with_attrs

import jaxrecall
from jaxrecall.analysis.fit.write import symbol, write
from jaxrecall.errors import UsageError

cli = importlib.import_module("jaxrecall.fit")


def body(text):
    """The cells of the rows between the rules; every row has as many as the heads and
    the columns.
    """
    spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    between = (
        text.partition("\\toprule")[2]
        .partition("\\bottomrule")[0]
        .replace("\\midrule", "")
    )
    rows = [
        re.split(r"(?<!\\) & ", line.strip().removesuffix(" \\\\"))
        for line in between.strip().splitlines()
        if line.strip()
    ]
    assert {len(row) for row in rows} == {len(spec)}
    return rows


def is_well_formed(text):
    bare = re.sub(r"\\[{}$%&#_]", "", text)
    depth = 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    names = re.findall(r"\\begin\{(\w+)\}", text)
    assert re.findall(r"\\end\{(\w+)\}", text) == names[::-1]
    return depth == 0 and bare.count("$") % 2 == 0 and text.isascii()


def rows_of(critical, lo, hi, **more):
    one = {
        "V": 64,
        "d": 32,
        "theta": 0.5,
        "axis": "N",
        "critical": critical,
        "lo": lo,
        "hi": hi,
        "n_seeds": 8,
    } | more
    return pd.DataFrame([one])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (16777216, "16777216"),
        (131072.0, "131072"),
        (1.5e-6, "1.5e-06"),
        (0.25, "0.25"),
        (True, "true"),
    ],
)
def test_a_value_of_an_axis_is_in_full(value, shown):
    text = jaxrecall.latex(
        pd.concat(
            [
                rows_of(400.0, 300.0, 500.0, V=value),
                rows_of(400.0, 300.0, 500.0, V="other"),
            ]
        )
    )
    assert body(text)[1][0] == shown


@pytest.mark.parametrize(
    ("critical", "lo", "hi", "shown"),
    [
        (17412.3, 8520.0, 35560.0, r"17\,400 [8520, 35\,600]"),
        (1234.0, 1100.4, 1357.0, "1230 [1100, 1360]"),
        (99951.0, 4.0, 123456.0, r"100\,000 [4.00, 123\,000]"),
        (38.74, 36.06, 41.2, "38.7 [36.1, 41.2]"),
        (0.1234, 0.1, 0.2, "0.123 [0.100, 0.200]"),
        (
            1.74e9,
            8.52e8,
            3.56e9,
            r"$1.74 \times 10^{9}$ [$8.52 \times 10^{8}$, $3.56 \times 10^{9}$]",
        ),
        (
            9.999e6,
            9e6,
            1.2e7,
            r"$1.00 \times 10^{7}$ [9\,000\,000, $1.20 \times 10^{7}$]",
        ),
        (400.0, 0.0, float("inf"), r"400 [0, $\infty$]"),
        (400.0, float("nan"), float("nan"), "400"),
    ],
)
def test_a_critical_value_and_its_interval_have_three_digits(critical, lo, hi, shown):
    text = jaxrecall.latex(rows_of(critical, lo, hi))
    assert body(text)[1] == [shown]
    assert is_well_formed(text)


def test_the_tables_of_a_fit():
    found = fit(table(GRID, law, WIDE, n_test=10**6))
    heads, *rows = body(text := jaxrecall.latex(found.thresholds))
    assert heads == ["$V$", "$d$", "$N^*$"]
    assert [row[:2] for row in rows] == [
        [str(V), str(d)] for V in GRID["V"] for d in GRID["d"]
    ]
    assert (
        rows[0][-1].startswith("1000 [")
        or rows[0][-1].startswith("99")
        or rows[0][-1].startswith("100")
    )
    assert (
        "\\caption{$N^*$, where accuracy crosses 0.5; in brackets 95\\,\\% intervals.}"
        in text
    )
    assert is_well_formed(text)
    assert body(exponents := jaxrecall.latex(found.exponents))[0] == [
        "axis",
        "exponent",
        "cells",
        "misfit / noise",
    ]
    assert [(row[0], row[2]) for row in body(exponents)[1:]] == [
        ("$V$", "9"),
        ("$d$", "9"),
    ]
    low, high = found.exponents[["lo", "hi"]].iloc[1]
    assert body(exponents)[2][1] == f"$-1.30$ [${low:.2f}$, ${high:.2f}$]"
    assert (
        "Exponents of $N^*$, where accuracy crosses 0.5; in brackets 95\\,\\%"
        " intervals." in exponents
    )
    assert is_well_formed(exponents)
    assert "\\caption{Mine.}\n  \\label{tab:mine}" in jaxrecall.latex(
        found.exponents, caption="Mine.", label="tab:mine"
    )


def test_bounds_unknown_exponents_and_rejected_laws():
    frame = table({"d": [32, 64]}, lambda c: 1000.0 if c["d"] == 64 else 10**9).assign(
        trigger_in_value=False, embedding="a_b & <c>"
    )
    found = fit(pd.concat([frame, frame.assign(embedding="50 %", eta=3e-6)]))
    text = jaxrecall.latex(found.thresholds)
    cells = body(text)
    assert [row[-1] for row in cells[1:]].count("$>$ 16384") == 2
    assert r"a\_b \& $<$c$>$" in text
    assert r"50 \%" in text
    assert cells[0][1] == "embedding"
    assert is_well_formed(text)
    exponents = jaxrecall.latex(found.exponents)
    assert body(exponents)[1][1] == "--"
    rejected = jaxrecall.latex(
        found.exponents.assign(
            rejected=True, exponent=-0.004, lo=-0.2, hi=0.2, regime="L**2 > 10"
        )
    )
    assert body(rejected)[1][2] == r"0.00 [$-0.20$, 0.20]\textsuperscript{\dag}"
    assert body(rejected)[1][0] == "L**2 $>$ 10"
    assert "A dagger marks laws" in rejected
    assert is_well_formed(rejected)


def test_the_thresholds_of_a_search():
    found = rows_of(None, None, None, outcome="not_reached", m=0)[
        ["m", "theta", "axis", "critical", "lo", "hi", "outcome"]
    ]
    assert body(jaxrecall.latex(found)) == [["$N^*$"], ["not reached"]]
    along_d = rows_of(40.0, 30.0, 50.0, axis="d", eta=1e-6)
    assert body(jaxrecall.latex(along_d))[0] == ["$d^*$"]


def test_the_outcome_of_a_search_stands_where_it_found_no_value():
    missing = {"critical": None, "lo": None, "hi": None}
    found = pd.concat(
        [
            rows_of(**missing, outcome=outcome, m=m)
            for m, outcome in enumerate(("right", "plateau", "budget"))
        ]
    )
    text = jaxrecall.latex(found)
    assert [row[-1] for row in body(text)[1:]] == ["right", "plateau", "budget"]
    assert is_well_formed(text)


def test_a_law_that_nothing_checks_says_so():
    found = fit(
        table({"d": [32, 64]}, lambda c: 100.0 * c["d"] ** -0.5 * 8, WIDE, n_test=10**6)
    )
    assert "nothing checks the law" in str(found)
    text = jaxrecall.latex(found.exponents)
    assert body(text)[1][1].endswith(r"]\textsuperscript{\ddag}")
    assert (
        "A double dagger marks exponents of a law with as many unknowns as cells, so"
        " that nothing checks it." in text
    )
    checked = jaxrecall.latex(
        fit(
            table(
                {"d": [32, 64, 128]},
                lambda c: 100.0 * c["d"] ** -0.5 * 8,
                WIDE,
                n_test=10**6,
            )
        ).exponents
    )
    assert "dag" not in checked


def test_a_caption_promises_no_intervals_that_the_table_lacks():
    assert "crosses 0.5.}" in jaxrecall.latex(
        rows_of(400.0, float("nan"), float("nan"))
    )
    assert "in brackets 95\\,\\% intervals." in jaxrecall.latex(
        rows_of(400.0, 300.0, 500.0)
    )


def test_what_crosses_is_known_to_the_files_too(tmp_path):
    found = fit(
        table(GRID, law, WIDE, n_test=10**6).assign(
            attention_mass=lambda rows: rows["n_correct"] / 10**6
        ),
        of="attention_mass",
    )
    write(found, tmp_path)
    for name in ("thresholds", "exponents"):
        text = jaxrecall.latex(getattr(found, name))
        assert "where attention\\_mass crosses 0.5" in text
        assert jaxrecall.latex(pd.read_parquet(tmp_path / f"{name}.parquet")) == text


def test_a_column_is_no_latex():
    name = r"\input{/etc/passwd}"
    frame = pd.DataFrame({name: [1, 2], "axis": name, "theta": 0.5})
    text = jaxrecall.latex(frame.assign(critical=8.0, lo=4.0, hi=16.0))
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"\input" not in text
    assert symbol("$") == r"\$"
    assert symbol("") == ""


def test_a_law_of_a_mean_crosses_nothing():
    found = fit(
        table(GRID, law, WIDE).assign(recalled=lambda rows: rows["d"] * 2.0),
        law="recalled",
        along="d",
    )
    text = jaxrecall.latex(found.exponents)
    assert "Exponents of the mean of recalled" in text
    assert "crosses" not in text


def test_regimes_and_parts_are_columns():
    found = jaxrecall.fit.fit(
        table(GRID, law, WIDE, n_test=10**6), where=["d >= 32", "V >= 128"]
    )
    assert {row[0] for row in body(jaxrecall.latex(found.exponents))[1:]} == {
        r"d $\geq$ 32",
        r"V $\geq$ 128",
    }
    parts = pd.concat(
        [found.exponents.assign(part=part, regime="") for part in ("m = 0", "m > 0")]
    )
    assert {row[0] for row in body(jaxrecall.latex(parts))[1:]} == {"m = 0", "m $>$ 0"}


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            pd.DataFrame({"N": [1]}),
            (
                "table: got N; allowed: thresholds or exponents of a fit, or thresholds"
                " of a search"
            ),
        ),
        ({}, "table: got dict; allowed: thresholds or"),
        (rows_of(1.0, 1.0, 1.0).iloc[:0], "table: no rows; allowed: at least one row"),
    ],
)
def test_what_is_no_table_of_a_fit_is_refused(wrong, line):
    with pytest.raises(UsageError) as refused:
        jaxrecall.latex(wrong)
    assert line in str(refused.value)


def test_the_command_writes_them(tmp_path, capsys):
    with_attrs(table(GRID, law, WIDE)).to_parquet(tmp_path / "t.parquet")
    assert cli.main([str(tmp_path / "t.parquet"), "--latex", "--resamples", "100"]) == 0
    written = tmp_path / "t-fit"
    assert (
        f"exponents:   {written / 'exponents.tex'} (2 rows)" in capsys.readouterr().out
    )
    rows, rest = (written / "exponents.tex").read_text().split("\n", 1)
    assert rows.startswith("% jaxrecall: {")
    assert rest == jaxrecall.latex(pd.read_parquet(written / "exponents.parquet"))
    assert is_well_formed((written / "thresholds.tex").read_text())
