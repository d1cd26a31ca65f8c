"""Thresholds and exponents as LaTeX: the numbers are those of the tables, and the text
is well formed.
"""

import re

import pandas as pd
import pytest
from test_fit import GRID, WIDE, command, law, table, with_attrs, written

from jaxrecall import latex
from jaxrecall.fit import fit

FRAME = table(GRID, law, WIDE, n_test=10**6)


@pytest.fixture(scope="module")
def found():
    return fit(FRAME)


def body(text):
    """The cells of the rows between the rules; every row has as many as the heads and
    the columns.
    """
    spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    between = re.search(r"\\toprule(.*)\\bottomrule", text, re.S)[1]
    lines = between.replace("\\midrule", "").split("\n")
    rows = [
        re.split(r"(?<!\\) & ", line.strip().removesuffix(" \\\\"))
        for line in lines
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


def rows_of(critical, lo=None, hi=None, **more):
    """A threshold, as a table of one row."""
    row = {"V": 64, "d": 32, "theta": 0.5, "axis": "N", "critical": critical}
    return pd.DataFrame([row | {"lo": lo, "hi": hi, "n_seeds": 8} | more])


VALUES = [(131072.0, "131072"), (1.5e-6, "1.5e-06"), (True, "true")]


@pytest.mark.parametrize(("value", "shown"), VALUES)
def test_a_value_of_an_axis_is_in_full(value, shown):
    rows = [rows_of(400.0, 300.0, 500.0, V=V) for V in (value, "other")]
    assert body(latex(pd.concat(rows)))[1][0] == shown


INTERVALS = r"""
17412.3 8520 35560 | 17\,400 [8520, 35\,600]
1234 1100.4 1357 | 1230 [1100, 1360]
0.1234 0.1 0.2 | 0.123 [0.100, 0.200]
9.999e6 9e6 1.2e7 | $1.00 \times 10^{7}$ [9\,000\,000, $1.20 \times 10^{7}$]
400 0 inf | 400 [0, $\infty$]
400 nan nan | 400
"""


@pytest.mark.parametrize("case", INTERVALS.strip().splitlines())
def test_a_critical_value_and_its_interval_if_it_has_one_have_three_digits(case):
    numbers, shown = case.split(" | ")
    text = latex(rows_of(*map(float, numbers.split())))
    assert body(text)[1] == [shown]
    promise = "; in brackets 95\\,\\% intervals." if "[" in shown else ".}"
    assert f"crosses 0.5{promise}" in text
    assert is_well_formed(text)


def test_the_tables_of_a_fit(found):
    heads, *rows = body(text := latex(found.thresholds))
    assert heads == ["$V$", "$d$", "$N^*$"]
    assert [row[:2] for row in rows] == [
        [str(V), str(d)] for V in GRID["V"] for d in GRID["d"]
    ]
    assert re.match(r"(1000|99.|100.) \[", rows[0][-1])
    caption = "$N^*$, where accuracy crosses 0.5; in brackets 95\\,\\% intervals."
    assert f"\\caption{{{caption}}}" in text
    exponents = latex(found.exponents)
    heads, *rows = body(exponents)
    assert heads == ["axis", "exponent", "cells", "misfit / noise"]
    assert [(row[0], row[2]) for row in rows] == [("$V$", "9"), ("$d$", "9")]
    low, high = found.exponents[["lo", "hi"]].iloc[1]
    assert rows[1][1] == f"$-1.30$ [${low:.2f}$, ${high:.2f}$]"
    assert f"Exponents of {caption}" in exponents
    assert is_well_formed(text)
    assert is_well_formed(exponents)
    mine = latex(found.exponents, caption="Mine.", label="tab:mine")
    assert "\\caption{Mine.}\n  \\label{tab:mine}" in mine


def test_bounds_unknown_exponents_and_rejected_laws():
    frame = table({"d": [32, 64]}, lambda c: 1000.0 if c["d"] == 64 else 10**9)
    frame = frame.assign(trigger_in_value=False, embedding="a_b & <c>")
    found = fit(pd.concat([frame, frame.assign(embedding="50 %", eta=3e-6)]))
    text = latex(found.thresholds)
    heads, *rows = body(text)
    assert [row[-1] for row in rows].count("$>$ 16384") == 2
    assert r"a\_b \& $<$c$>$" in text
    assert r"50 \%" in text
    assert heads[1] == "embedding"
    assert is_well_formed(text)
    assert body(latex(found.exponents))[1][1] == "--"
    ends = {"exponent": -0.004, "lo": -0.2, "hi": 0.2, "regime": "L**2 > 10"}
    rejected = latex(found.exponents.assign(rejected=True, **ends))
    shown = ["L**2 $>$ 10", r"$-0.00400$ [$-0.200$, 0.200]\textsuperscript{\dag}"]
    assert [body(rejected)[1][i] for i in (0, 2)] == shown
    assert "A dagger marks laws" in rejected
    assert is_well_formed(rejected)


def test_the_thresholds_of_a_search():
    one = rows_of(None, outcome="not_reached", m=0)
    columns = ["m", "theta", "axis", "critical", "lo", "hi", "outcome"]
    assert body(latex(one[columns])) == [["$N^*$"], ["not reached"]]
    along_d = rows_of(40.0, 30.0, 50.0, axis="d", eta=1e-6)
    assert body(latex(along_d))[0] == ["$d^*$"]
    outcomes = ["right", "plateau", "budget"]
    every = [rows_of(None, outcome=name, m=len(name)) for name in outcomes]
    text = latex(pd.concat(every))
    assert [row[-1] for row in body(text)[1:]] == outcomes
    assert is_well_formed(text)


def test_a_law_that_nothing_checks_says_so():
    two, three = (
        fit(table({"d": d}, lambda c: 800.0 * c["d"] ** -0.5, WIDE, n_test=10**6))
        for d in ([32, 64], [32, 64, 128])
    )
    assert "nothing checks the law" in str(two)
    text = latex(two.exponents)
    assert body(text)[1][1].endswith(r"]\textsuperscript{\ddag}")
    assert "A double dagger marks exponents of a law with as many unknowns" in text
    assert "dag" not in latex(three.exponents)


def test_what_crosses_is_known_to_the_files_too(tmp_path):
    frame = FRAME.assign(attention_mass=FRAME["n_correct"] / 10**6)
    words = ["--of", "attention_mass", "--latex"]
    assert command(tmp_path, with_attrs(frame), *words) == 0
    for name in ("attention_mass/thresholds", "attention_mass/exponents"):
        text = latex(written(tmp_path, name))
        assert "where attention\\_mass crosses 0.5" in text
        assert is_well_formed(text)
        record, made = (tmp_path / f"t-fit/{name}.tex").read_text().split("\n", 1)
        assert record.startswith("% jaxrecall: {")
        assert made == text


CROSSING = {"critical": 8.0, "lo": 4.0, "hi": 16.0}


def test_a_column_is_no_latex():
    name = r"\input{/etc/passwd}"
    frame = pd.DataFrame({name: [1, 2], "$": [3, 4], "axis": name, "theta": 0.5})
    text = latex(frame.assign(**CROSSING))
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    assert r"\input" not in text
    assert r"\$" in text
    assert is_well_formed(text)


def test_pdflatex_takes_common_signs_and_the_file_names_an_engine_for_others():
    frame = pd.DataFrame({"a\x1b": ["≤ α → −2", "b"], "axis": "N", "theta": 0.5})
    text = latex(frame.assign(**CROSSING))
    assert r"$\leq$ $\alpha$ $\to$ $-$2" in text
    assert r"a\textbackslash{}x1b &" in text
    assert text.isascii()
    assert "LuaLaTeX" not in text
    frame["a\x1b"] = ["語", "b"]
    text = latex(frame.assign(**CROSSING))
    assert text.startswith(r"% needs \usepackage{booktabs}, and LuaLaTeX or XeLaTeX")


def test_a_law_of_a_mean_crosses_nothing():
    frame = FRAME.assign(recalled=FRAME["d"] * 2.0)
    text = latex(fit(frame, law="recalled", along="d").exponents)
    assert "Exponents of the mean of recalled" in text
    assert "crosses" not in text


def test_regimes_and_parts_are_columns():
    exponents = fit(FRAME, where=["d >= 32", "V >= 128"]).exponents
    regimes = {row[0] for row in body(latex(exponents))[1:]}
    assert regimes == {r"d $\geq$ 32", r"V $\geq$ 128"}
    parts = [exponents.assign(part=part, regime="") for part in ("m = 0", "m > 0")]
    shown = {row[0] for row in body(latex(pd.concat(parts)))[1:]}
    assert shown == {"m = 0", "m $>$ 0"}
