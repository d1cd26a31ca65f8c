"""Thresholds and exponents as LaTeX: the numbers are those of the tables, and the text is well formed."""

import importlib
import re

import pandas as pd
import pytest
from test_fit import GRID, WIDE, fit, law, table, with_attrs

import jaxrecall
from jaxrecall.analysis.fit.latex import number
from jaxrecall.analysis.fit.write import write
from jaxrecall.errors import UsageError

cli = importlib.import_module("jaxrecall.analysis.fit.__main__")


def body(text):
    """The cells of the rows between the rules; every row has as many as the heads and the columns."""
    spec = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1]
    between = text.partition("\\toprule")[2].partition("\\bottomrule")[0].replace("\\midrule", "")
    rows = [re.split(r"(?<!\\) & ", line.strip().removesuffix(" \\\\")) for line in between.strip().splitlines() if line.strip()]
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
    one = {"V": 64, "d": 32, "theta": 0.5, "axis": "N", "critical": critical, "lo": lo, "hi": hi, "n_seeds": 8} | more
    return pd.DataFrame([one])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (16777216, r"$1.6777216 \times 10^{7}$"),
        (10**9, r"$1 \times 10^{9}$"),
        (1.5e-6, r"$1.5 \times 10^{-6}$"),
        (131072, r"131\,072"),
        (0.25, "0.25"),
    ],
)
def test_a_value_of_an_axis_is_in_full(value, shown):
    assert number(value) == number(float(value)) == shown


@pytest.mark.parametrize(
    ("critical", "lo", "hi", "shown"),
    [
        (17412.3, 8520.0, 35560.0, r"17\,400 [8500, 35\,600]"),
        (1234.0, 1100.4, 1357.0, "1230 [1100, 1360]"),
        (99951.0, 4.0, 123456.0, r"100\,000 [4, 123\,500]"),
        (38.74, 36.06, 41.2, "38.7 [36.1, 41.2]"),
        (0.1234, 0.1, 0.2, "0.123 [0.100, 0.200]"),
        (1.74e9, 8.52e8, 3.56e9, r"$1.74 \times 10^{9}$ [$8.5 \times 10^{8}$, $3.56 \times 10^{9}$]"),
        (9.999e6, 9e6, 1.2e7, r"10\,000\,000 [9\,000\,000, $1.200 \times 10^{7}$]"),
        (400.0, 0.0, float("inf"), r"400 [0, $\infty$]"),
        (400.0, float("nan"), float("nan"), "400"),
    ],
)
def test_a_critical_value_and_its_interval_end_at_one_place(critical, lo, hi, shown):
    text = jaxrecall.latex(rows_of(critical, lo, hi))
    assert body(text)[1] == [shown]
    assert is_well_formed(text)


def test_the_tables_of_a_fit():
    found = fit(table(GRID, law, WIDE, n_test=10**6))
    heads, *rows = body(text := jaxrecall.latex(found.thresholds))
    assert heads == ["$V$", "$d$", "$N^*$"]
    assert [row[:2] for row in rows] == [[str(V), str(d)] for V in GRID["V"] for d in GRID["d"]]
    assert rows[0][-1].startswith("1000 [") or rows[0][-1].startswith("99") or rows[0][-1].startswith("100")
    fixed = "Fixed: $L$ = 8, $m$ = 0, n\\_test = 1\\,000\\,000."
    assert f"\\caption{{$N^*$, where accuracy crosses 0.5, with 95\\,\\% intervals. {fixed}}}" in text
    assert is_well_formed(text)
    assert body(exponents := jaxrecall.latex(found.exponents))[0] == ["axis", "exponent", "cells"]
    assert [(row[0], row[2]) for row in body(exponents)[1:]] == [("$V$", "9"), ("$d$", "9")]
    low, high = found.exponents[["lo", "hi"]].iloc[1]
    assert body(exponents)[2][1] == f"$-1.30$ [${low:.2f}$, ${high:.2f}$]"
    assert "Exponents of $N^*$, where accuracy crosses 0.5, with 95\\,\\% intervals." in exponents
    assert is_well_formed(exponents)
    assert jaxrecall.latex(found) == f"{text}\n{exponents}"
    assert "\\caption{Mine.}\n  \\label{tab:mine}" in jaxrecall.latex(found.exponents, caption="Mine.", label="tab:mine")


def test_bounds_unknown_exponents_and_rejected_laws():
    frame = table({"d": [32, 64]}, lambda c: 1000.0 if c["d"] == 64 else 10**9).assign(trigger_in_value=False, embedding="a_b & <c>")
    found = fit(pd.concat([frame, frame.assign(embedding="50 %", eta=3e-6)]))
    text = jaxrecall.latex(found.thresholds)
    cells = body(text)
    assert [row[-1] for row in cells[1:]].count(r"$>$ 16\,384") == 2
    assert r"a\_b \& $<$c$>$" in text
    assert r"50 \%" in text
    assert cells[0][1] == "embedding"
    assert "A bound is given" in text
    assert is_well_formed(text)
    exponents = jaxrecall.latex(found.exponents)
    assert body(exponents)[1][1] == "--"
    assert "A dash stands where" in exponents
    rejected = jaxrecall.latex(found.exponents.assign(rejected=True, exponent=-0.004, lo=-0.2, hi=0.2, regime="L**2 > 10"))
    assert body(rejected)[1][1] == r"0.00 [$-0.20$, 0.20]\textsuperscript{\dag}"
    assert r"Cells with \texttt{L**2 > 10}." in rejected
    assert is_well_formed(rejected)


def test_the_thresholds_of_a_search():
    found = rows_of(None, None, None, outcome="not_reached", m=0)[["m", "theta", "axis", "critical", "lo", "hi", "outcome"]]
    assert body(jaxrecall.latex(found)) == [["$N^*$"], ["not reached"]]
    assert "A word in place of a value" in jaxrecall.latex(found)
    along_d = rows_of(40.0, 30.0, 50.0, axis="d", eta=1e-6)
    assert body(jaxrecall.latex(along_d))[0] == ["$d^*$"]


def test_the_outcome_of_a_search_stands_where_it_found_no_value():
    missing = {"critical": None, "lo": None, "hi": None}
    found = pd.concat([rows_of(**missing, outcome=outcome, m=m) for m, outcome in enumerate(("right", "plateau", "budget"))])
    text = jaxrecall.latex(found)
    assert [row[-1] for row in body(text)[1:]] == ["right", "plateau", "budget"]
    assert "A word in place of a value says how the search of that cell ended." in text
    assert is_well_formed(text)
    assert "says how" not in jaxrecall.latex(rows_of(40.0, 30.0, 50.0, outcome="budget"))


def test_a_law_that_nothing_checks_says_so():
    found = fit(table({"d": [32, 64]}, lambda c: 100.0 * c["d"] ** -0.5 * 8, WIDE, n_test=10**6))
    assert "nothing checks the law" in str(found)
    text = jaxrecall.latex(found.exponents)
    assert body(text)[1][1].endswith(r"]\textsuperscript{\ddag}")
    assert "A double dagger marks exponents of a law with as many unknowns as cells, so that nothing checks it." in text
    checked = jaxrecall.latex(fit(table({"d": [32, 64, 128]}, lambda c: 100.0 * c["d"] ** -0.5 * 8, WIDE, n_test=10**6)).exponents)
    assert "dag" not in checked


def test_a_caption_promises_no_intervals_that_the_table_lacks():
    assert "crosses 0.5, without intervals." in jaxrecall.latex(rows_of(400.0, float("nan"), float("nan")))
    assert "with 95\\,\\% intervals." in jaxrecall.latex(rows_of(400.0, 300.0, 500.0))


RATES = {"eta": 1e-3, "kappa": 10.0, "gamma": 640000.0, "gamma2": 640000.0, "activation": "none", "root_seed": 0}
LAWS = [{"embedding": f"equicorrelated(rho={rho})", "embedding.rho": rho} for rho in (0.1, 0.3)]


def with_laws(**more):
    made = [table({"d": [32, 64, 128]}, law, WIDE).assign(**laws, **RATES, pool=256, noise_tokens="uniform", **more) for laws in LAWS]
    return pd.concat(made, ignore_index=True)


def test_captions_say_what_is_fixed_and_which_axes_have_constants_of_their_own(tmp_path):
    found = jaxrecall.fit.fit(with_laws(tokens="uniform", exact="guarded", trigger_in_value=False, n_test=2048), 0.5, resamples=100)
    thresholds, exponents = jaxrecall.latex(found.thresholds), jaxrecall.latex(found.exponents)
    others = "$K$ = 256, embedding = equicorrelated, trigger\\_in\\_value = false, $\\kappa$ = 10."
    assert f"Fixed: $V$ = 64, $L$ = 8, $m$ = 0, {others}" in thresholds
    assert body(thresholds)[0] == ["$d$", "embedding.rho", "$N^*$"]
    assert f"Each value of embedding.rho has a constant of its own. Fixed: $V$ = 64, $L$ = 8, {others}" in exponents
    assert is_well_formed(thresholds)
    two = with_laws(), with_laws().assign(trigger_in_value=False)
    mixed = jaxrecall.fit.fit(pd.concat([two[0].assign(trigger_in_value=True), two[1]]), 0.5, resamples=100).exponents
    assert "Each value of trigger\\_in\\_value with each of embedding.rho has a constant of its own." in jaxrecall.latex(mixed)
    assert "constant of its own" not in jaxrecall.latex(fit(table(GRID, law, WIDE)).exponents)
    for name in ("thresholds", "exponents"):  # the files know it too
        write(found, tmp_path)
        assert jaxrecall.latex(pd.read_parquet(tmp_path / f"{name}.parquet")) == jaxrecall.latex(getattr(found, name))


def test_what_follows_from_other_settings_is_not_fixed_besides_them():
    usual = (
        with_laws(tokens="uniform")
        .assign(embedding="gaussian", kappa=100.0, pool=None)
        .drop(columns="embedding.rho")
        .drop_duplicates(["d", "N", "seed"])
    )
    assert jaxrecall.fit.fit(usual, 0.5, resamples=100).thresholds.attrs["fixed"] == {"V": 64, "L": 8, "n_test": 2000}
    given = usual.assign(kappa=usual["d"] / 7.0, embedding_out="sphere")
    assert jaxrecall.fit.fit(given, 0.5, resamples=100).thresholds.attrs["fixed"] == {
        "V": 64, "L": 8, "embedding_out": "sphere", "gamma": 640000.0, "n_test": 2000,
    }  # fmt: skip


def test_a_search_says_what_was_fixed():
    grid = {"base": {"V": 16, "L": 4, "pool": 32, "kappa": 10, "n_test": 64}, "blocks": [{"axes": {"d": [8, 16]}}]}
    found = jaxrecall.thresholds(jaxrecall.run(grid | {"search": {"axis": "N", "from": 16, "to": 256, "max_runs": 48}}, seeds=12))
    text = jaxrecall.latex(found)
    assert "Fixed: $V$ = 16, $L$ = 4, $K$ = 32, $\\kappa$ = 10, n\\_test = 64." in text
    assert is_well_formed(text)


def test_a_regime_is_as_given_and_a_part_a_formula():
    found = jaxrecall.fit.fit(table(GRID, law, WIDE, n_test=10**6), resamples=100, where=["d >= 32", "V >= 128"])
    text = jaxrecall.latex(found.exponents)
    assert {row[0] for row in body(text)[1:]} == {r"\texttt{d >= 32}", r"\texttt{V >= 128}"}
    assert r"\begin{tabular}{llrr}" in text  # numbers alone stand to the right
    parts = pd.concat([found.exponents.assign(part=part, regime="") for part in ("m = 0", "m > 0")])
    assert {row[0] for row in body(jaxrecall.latex(parts))[1:]} == {"$m = 0$", "$m > 0$"}


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (pd.DataFrame({"N": [1]}), "table: got N; allowed: thresholds or exponents of a fit, or thresholds of a search"),
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
    assert f"exponents:   {written / 'exponents.tex'} (2 rows)" in capsys.readouterr().out
    assert (written / "exponents.tex").read_text() == jaxrecall.latex(pd.read_parquet(written / "exponents.parquet"))
    assert is_well_formed((written / "thresholds.tex").read_text())
