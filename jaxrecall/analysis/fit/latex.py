"""Thresholds and exponents as tables for a paper: LaTeX with the rules of the package booktabs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import UsageError
from ...model.point import FIELDS
from ...model.values import is_missing
from .axes import Table, Value
from .runs import plain_table

LETTERS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
SYMBOLS = {name: rf"\{name}" for name in LETTERS.split()} | {"gamma2": r"\gamma_2"}
ESCAPES = {ord(sign): rf"\{sign}" for sign in "&%$#_{}"} | {ord("\\"): r"\textbackslash{}", ord("~"): r"\~{}", ord("^"): r"\^{}"}
COMPARED = {ord(sign): f"${sign}$" for sign in "<>"}
"""Signs that a typewriter font has and others lack."""

NO_AXES = ("method", "axis", "critical", "outcome")
"""Columns of a search's thresholds that stand before theta and are no axes."""

NOTES = {
    r"^\$[<>]": "A bound is given where the crossing lies outside of the tested values.",
    r"^[a-z]": "A word in place of a value says how the search of that cell ended.",
    r"\\dag": "A dagger marks laws from which the cells lie further than noise explains.",
    r"\\ddag": "A double dagger marks exponents of a law with as many unknowns as cells, so that nothing checks it.",
    "^--$": "A dash stands where the cells do not determine the exponent.",
}
"""What a caption says of a value, by a pattern in it."""


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
    names = [*getattr(table, "columns", ())]
    if not {"theta", "lo", "hi"} <= {*names} or not {"critical", "exponent"} & {*names}:
        got = ", ".join(map(str, names)) or type(table).__name__
        raise UsageError(f"table: got {got}; allowed: thresholds or exponents of a fit, or thresholds of a search")
    if not len(table):
        raise UsageError("table: no rows; allowed: at least one row")
    is_law = "exponent" in names
    settings = (
        ["along", "part", "regime", "theta"] if is_law else [name for name in names[: names.index("theta") + 1] if name not in NO_AXES]
    )
    varying = [name for name in settings if table[name].nunique(dropna=False) > 1]
    same = {name: table[name].iloc[0] for name in settings if name not in varying}
    along = symbol(str(table["along" if is_law else "axis"].iloc[0]), "^*")
    values = list(map(_exponent if is_law else _critical, table.to_dict("records")))
    columns = {symbol(name): [_cell(name, value) for value in table[name]] for name in varying}
    columns |= (
        {"axis": [*map(symbol, table["axis"])], "exponent": values, "cells": [*map(str, table["n_cells"])]} if is_law else {along: values}
    )
    notes = [note for pattern, note in NOTES.items() if any(re.search(pattern, value) for value in values)]
    told = " ".join([*_caption(table, "Exponents of " * is_law + along, same), *notes])
    return _environment(columns, caption or told, label or ("tab:exponents" if is_law else "tab:thresholds"))


def _caption(table: Table, what: str, same: Mapping[str, Value]) -> list[str]:
    """What the table shows, and what all of its rows share."""
    theta = _cell("theta", same["theta"]) if "theta" in same else r"$\theta$"
    with_intervals = "with 95\\,\\% intervals" if table["lo"].notna().any() else "without intervals"
    found = [f"{what}, where {escaped(table.attrs.get('of') or 'accuracy')} crosses {theta}, {with_intervals}."]
    found += [f"Cells with {_cell('regime', same['regime'])}."] if same.get("regime") else []
    if "exponent" in table and (constants := table.attrs.get("constants")):
        found.append(f"Each value of {' with each of '.join(map(symbol, constants))} has a constant of its own.")
    fixed = {name: value for name, value in same.items() if name not in ("theta", "along", "part", "regime")}
    fixed |= {name: value for name, value in table.attrs.get("fixed", {}).items() if name not in table and symbol(name, "^*") not in what}
    return found + ([f"Fixed: {', '.join(f'{symbol(name)} = {_cell(name, value)}' for name, value in fixed.items())}."] if fixed else [])


def _environment(columns: Mapping[str, Sequence[str]], caption: str, label: str) -> str:
    sides = "".join("r" if all(re.match(r"\$?[-<>.\d]", cell) for cell in cells) else "l" for cells in columns.values())
    rows = (f"    {' & '.join(row)} \\\\" for row in zip(*columns.values(), strict=True))
    lines = ["% needs \\usepackage{booktabs}", r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}", f"  \\label{{{label}}}"]
    lines += [f"  \\begin{{tabular}}{{{sides}}}", r"    \toprule", f"    {' & '.join(columns)} \\\\", r"    \midrule", *rows]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _critical(row: Mapping[str, Value]) -> str:
    """A value with its interval, a bound where accuracy does not cross, or how a search ended."""
    if not is_missing(value := row["critical"]):
        place = math.floor(math.log10(value)) - 2
        return _with_interval(row, value, lambda end: number(end, place))
    if (side := row.get("censored")) in ("right", "left"):
        return f"$>$ {number(row['N_below'])}" if side == "right" else f"$<$ {number(row['N_above'])}"
    return escaped(str(row.get("outcome", "--")).replace("_", " "))


def _exponent(row: Mapping[str, Value]) -> str:
    if is_missing(value := row["exponent"]):
        return "--"
    unchecked = "nothing checks the law" in str(row.get("warning"))
    mark = r"\textsuperscript{\dag}" if row["rejected"] else r"\textsuperscript{\ddag}" if unchecked else ""
    return _with_interval(row, value, lambda end: re.sub("^-.*", r"$\g<0>$", f"{round(end, 2) + 0.0:.2f}")) + mark


def _with_interval(row: Mapping[str, Value], value: float, form: Callable[[float], str]) -> str:
    ends = ["$\\infty$" if math.isinf(end) else form(end) for end in (row["lo"], row["hi"]) if not is_missing(end)]
    return f"{form(value)} [{', '.join(ends)}]" if ends else form(value)


def number(value: float, place: int | None = None) -> str:
    """A number in full, or rounded at a power of ten but to one digit at least, as 17\\,400 or $1.5 \\times 10^{7}$."""
    power = math.floor(math.log10(abs(value))) if value else 0
    is_long = value != 0 and not 1e-3 <= abs(value) < 1e7
    if place is None:
        digits, _, _ = np.format_float_scientific(value, trim="-").partition("e")
        digits = digits if is_long else f"{value:.6f}".rstrip("0").rstrip(".")
    else:
        place = min(place, power)
        digits = f"{value / 10**power:.{power - place}f}" if is_long else f"{round(value, -place):.{max(0, -place) if value else 0}f}"
    if is_long:
        return f"${digits} \\times 10^{{{power}}}$"
    whole, dot, rest = digits.partition(".")
    return (f"{int(whole):,}".replace(",", r"\,") if len(whole) > 4 else whole) + dot + rest


def _cell(name: str, value: Value) -> str:
    """A setting: a part as a formula, an expression as it was given, and a number in full."""
    if name in ("part", "along"):
        return f"${value}$" if name == "part" else symbol(value)
    if name == "regime":
        return rf"\texttt{{{value.translate(ESCAPES)}}}"
    if is_missing(value):
        return "--"
    return str(value).lower() if isinstance(value, (bool, np.bool_)) else escaped(value) if isinstance(value, str) else number(value)


def symbol(name: str, mark: str = "") -> str:
    """The symbol of an axis, or its name."""
    short = (FIELDS[name].metadata["symbol"] if name in FIELDS else "") or name
    if short not in SYMBOLS and len(short) > 1:
        return escaped(name) + (f"${mark}$" if mark else "")
    return f"${SYMBOLS.get(short, short)}{mark}$"


def escaped(text: str) -> str:
    """Text with LaTeX's special signs written out."""
    return str(text).translate(ESCAPES | COMPARED)
