"""Thresholds and exponents as tables for a paper: LaTeX with the rules of the package booktabs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from ...errors import UsageError
from ...model.columns import UNITS, is_parameter
from ...model.values import is_missing
from ...sweep.search import OUTCOMES
from .formula import SCIENTIFIC, escaped, formula, grouped, in_formula, spelled
from .runs import plain_table

Table = Any  # pandas.DataFrame, whose own types say less than Any
DIGITS = 3
"""Significant digits of a critical value; its interval ends at the same place."""

UNCHECKED = "nothing checks the law"
"""The warning of exponents says so where a law has as many unknowns as cells."""


def latex(table: Table, *, caption: str | None = None, label: str | None = None) -> str:
    r"""A table of thresholds or of exponents as LaTeX, with the rules of the package booktabs.

    A critical value has three significant digits, and its 95 % interval ends at the same place:
    17\,400 [8500, 35\,600]. Columns of one value are left out; the caption names the axes that are
    fixed.

    Args:
        table: thresholds or exponents of a fit, the thresholds of a search, or what `fit` returned,
            which gives both tables.
        caption: in place of the caption that is made from the table, as LaTeX.
        label: in place of tab:thresholds or tab:exponents.

    Returns:
        The text of a table environment. The document needs `\usepackage{booktabs}`.

    Raises:
        UsageError: if the table is none of these, or has no rows.

    Examples:
        >>> import jaxrecall
        >>> found = jaxrecall.fit.fit(jaxrecall.load("results/quickstart"), [0.5])
        >>> print(jaxrecall.latex(found.exponents))
    """
    if hasattr(table, "exponents"):
        if caption is not None or label is not None:
            raise UsageError("caption, label: got one for two tables; allowed with found.thresholds or found.exponents")
        return f"{latex(table.thresholds)}\n{latex(table.exponents)}"
    table = plain_table("table", table) if hasattr(table, "reset_index") else table
    columns = [*getattr(table, "columns", ())]
    kind = next((name for name in ("critical", "exponent") if name in columns), None)
    if kind is None or not {"theta", "lo", "hi"} <= {*columns}:
        got = ", ".join(map(str, columns)) or type(table).__name__
        raise UsageError(f"table: got {got}; allowed: thresholds or exponents of a fit, or thresholds of a search")
    if not len(table):
        raise UsageError("table: no rows; allowed: at least one row")
    made, name = (_thresholds, "thresholds") if kind == "critical" else (_exponents, "exponents")
    heads, rows, told = made(table)
    return _environment(heads, rows, caption or told, label or f"tab:{name}")


def _thresholds(table: Table) -> tuple[list[str], list[list[str]], str]:
    """The heads of the columns, the rows and a caption: the
    axes that vary, then the critical value with its interval.
    """
    axes = [name for name in list(table)[: list(table).index("theta")] if name not in ("method", "axis", "critical", "outcome")]
    varying = [name for name in (*axes, "theta") if table[name].nunique(dropna=False) > 1]
    along, accuracy = str(table["axis"].iloc[0]), table.attrs.get("of") or "accuracy"
    heads = [_head(name) for name in varying] + [_head(along, star=True)]
    rows = [[*(spelled(row[name]) for name in varying), _critical(row)] for row in table.to_dict("records")]
    theta = "$\\theta$" if "theta" in varying else spelled(table["theta"].iloc[0])
    what = f"{_symbol(along, star=True)}, the {_symbol(along)} at which {escaped(accuracy)} crosses {theta}"
    sentences = [f"{what}, {_intervals(table, 'critical')}."]
    sentences += _fixed({name: table[name].iloc[0] for name in axes if name not in varying}, table, along)
    if any(cell[0].startswith(("$<$", "$>$")) for cell in (row[-1:] for row in rows)):
        sentences.append("A bound is given where the crossing lies outside of the tested values.")
    if "outcome" in table and (ended := list(table["outcome"][table["critical"].isna()].unique())):
        meanings = "".join(f"; ``{_outcome(one)}'': {_meaning(one)}" for one in ended if one in OUTCOMES)
        sentences.append(f"A word in place of a value says how the search of that cell ended{meanings}.")
    return heads, rows, " ".join(sentences)


def _exponents(table: Table) -> tuple[list[str], list[list[str]], str]:
    """The heads of the columns, the rows and a caption: which
    law, then the exponent of each axis with its interval.
    """
    varying = [name for name in ("along", "part", "regime", "theta") if table[name].nunique(dropna=False) > 1]
    heads = [_head(name) for name in varying] + ["axis", "exponent", "cells"]
    records = table.to_dict("records")
    law_of = {name: lambda text: formula(text.replace(" = ", " == ")) for name in ("part", "regime")}
    rows = [
        [*(law_of.get(name, spelled)(row[name]) for name in varying), _symbol(row["axis"]), _exponent(row), spelled(row["n_cells"])]
        for row in records
    ]
    along, law = str(records[0]["along"]), " ".join(f"${in_formula(axis)}^{{a_{{{in_formula(axis)}}}}}$" for axis in table["axis"].unique())
    sentences = [f"Exponents of the law {_symbol(along, star=True)} $\\propto$ {law}, {_intervals(table, 'exponent')}."]
    if constants := table.attrs.get("constants"):
        sentences.append(f"Each value of {' with each of '.join(map(_symbol, constants))} has a constant of its own.")
    sentences += _fixed({}, table, along)
    if "theta" not in varying:
        sentences.append(f"Accuracy crosses {spelled(records[0]['theta'])} at {_symbol(along, star=True)}.")
    if "regime" not in varying and records[0]["regime"]:
        sentences.append(f"Cells with {formula(records[0]['regime'])}.")
    if any(row["rejected"] for row in records):
        sentences.append("A dagger marks laws from which the cells lie further than noise explains.")
    if any(map(_is_unchecked, records)):
        sentences.append("A double dagger marks exponents of a law with as many unknowns as cells, so that nothing checks it.")
    if any(is_missing(row["exponent"]) for row in records):
        sentences.append("A dash stands where the cells do not determine the exponent.")
    return heads, rows, " ".join(sentences)


def _fixed(first: dict[str, Any], table: Table, along: str) -> list[str]:
    """What all cells share: some axes, and what the table says that is not in its columns."""
    others = {name: value for name, value in table.attrs.get("fixed", {}).items() if name not in table and name != along}
    shown = [f"{_symbol(name)} = {spelled(value)}" for name, value in (first | others).items()]
    return [f"Fixed: {', '.join(shown)}."] if shown else []


def _environment(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    numbers = [all(re.match(r"\$?[-<>.\d]", row[i]) for row in rows) for i in range(len(heads))]
    lines = ["% needs \\usepackage{booktabs}", r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}", f"  \\label{{{label}}}"]
    lines += [f"  \\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}", r"    \toprule"]
    lines += [f"    {' & '.join(heads)} \\\\", r"    \midrule", *(f"    {' & '.join(row)} \\\\" for row in rows)]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _critical(row: dict[str, Any]) -> str:
    """17\\,400 [8500, 35\\,600]; a bound where accuracy does
    not cross, and how a search ended where it found nothing.
    """
    value = row["critical"]
    if is_missing(value):
        side = row.get("censored")
        if side in ("right", "left"):
            sign, end = (">", row["N_below"]) if side == "right" else ("<", row["N_above"])
            return f"${sign}$ {spelled(end)}"
        return _outcome(row.get("outcome", "--"))
    place = math.floor(math.log10(value)) - DIGITS + 1
    return _with_interval(_rounded(value, place), row, lambda end: _rounded(end, place))


def _outcome(outcome: Any) -> str:
    return escaped(str(outcome).replace("_", " "))


def _meaning(outcome: str) -> str:
    """What an outcome means, with its names of settings and of theta as LaTeX."""
    return re.sub(r"`(.*?)`", r"\\texttt{\1}", escaped(OUTCOMES[outcome])).replace("theta", r"$\theta$").replace(";", ",")


def _exponent(row: dict[str, Any]) -> str:
    if is_missing(row["exponent"]):
        return "--"
    mark = r"\textsuperscript{\dag}" if row["rejected"] else r"\textsuperscript{\ddag}" if _is_unchecked(row) else ""
    return _with_interval(_decimals(row["exponent"]), row, _decimals) + mark


def _is_unchecked(row: dict[str, Any]) -> bool:
    return not is_missing(row["exponent"]) and UNCHECKED in str(row.get("warning"))


def _with_interval(shown: str, row: dict[str, Any], form: Any) -> str:
    if is_missing(row["lo"]):
        return shown
    low, high = ("$\\infty$" if math.isinf(end) else form(end) for end in (row["lo"], row["hi"]))
    return f"{shown} [{low}, {high}]"


def _decimals(value: float) -> str:
    """Two decimals; the sign of a number is that of formulas."""
    shown = f"{round(value, 2) + 0.0:.2f}"
    return f"${shown}$" if shown[0] == "-" else shown


def _rounded(value: float, place: int) -> str:
    """A number greater than 0, or 0, rounded at a power of ten, but to one digit at least."""
    if not value:
        return "0"
    place = min(place, math.floor(math.log10(value)))
    if value >= SCIENTIFIC:
        power = math.floor(math.log10(value))
        return f"${value / 10**power:.{power - place}f} \\times 10^{{{power}}}$"
    return grouped(f"{round(value, -place):.{max(0, -place)}f}")


def _head(name: str, star: bool = False) -> str:
    """The symbol of an axis, with its unit in brackets."""
    unit = UNITS.get(name, "1")
    return _symbol(name, star) + (f" ({unit})" if unit not in ("1", "units", name) else "")


def _symbol(name: str, star: bool = False) -> str:
    symbol = in_formula(name)
    return escaped(name) if symbol.startswith(r"\mathrm") and not (star or is_parameter(name)) else f"${symbol}{'^*' if star else ''}$"


def _intervals(table: Table, of: str) -> str:
    """with 95 % intervals over 8 seeds"""
    found = table["lo"][table[of].notna()]
    given = "without intervals" if len(found) and found.isna().all() else "with 95\\,\\% intervals"
    name = next((name for name in ("n_seeds", "seeds") if name in table), None)
    if name is None:
        return given
    least, most = int(table[name].min()), int(table[name].max())
    return f"{given} over {least if least == most else f'{least} to {most}'} seeds"
