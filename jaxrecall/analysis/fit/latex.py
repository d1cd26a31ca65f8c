"""Thresholds and exponents as tables for a paper: LaTeX with the rules of the package booktabs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...errors import UsageError
from ...model.columns import UNITS
from ...model.point import FIELDS

Table = Any  # pandas.DataFrame, whose own types say less than Any
DIGITS = 3
"""Significant digits of a critical value; its interval ends at the same place."""

SCIENTIFIC = 1e7
"""Numbers from here on are written with a power of ten."""

GREEK = {name: rf"\{name}" for name in ("eta", "gamma", "kappa", "phi")} | {"gamma2": r"\gamma_2"}
ESCAPES = {ord(sign): rf"\{sign}" for sign in "&%$#_{}"} | {ord("\\"): r"\textbackslash{}", ord("~"): r"\~{}", ord("^"): r"\^{}"}
ESCAPES |= {ord(sign): f"${sign}$" for sign in "<>"}


def latex(table: Table, *, caption: str | None = None, label: str | None = None) -> str:
    r"""A table of thresholds or of exponents as LaTeX, with the rules of the package booktabs.

    A critical value has three significant digits, and its 95 % interval ends at the same place: 17\,400 [8500, 35\,600]. Columns of one
    value are left out; the caption names the axes that are fixed.

    Args:
        table: thresholds or exponents of a fit, the thresholds of a search, or what `fit` returned, which gives both tables.
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
    """The heads of the columns, the rows and a caption: the axes that vary, then the critical value with its interval."""
    axes = [name for name in list(table)[: list(table).index("theta")] if name not in ("method", "axis", "critical", "outcome")]
    varying = [name for name in (*axes, "theta") if table[name].nunique(dropna=False) > 1]
    along, accuracy = str(table["axis"].iloc[0]), table.attrs.get("of") or "accuracy"
    heads = [_head(name) for name in varying] + [_head(along, star=True)]
    rows = [[*(_value(row[name]) for name in varying), _critical(row)] for row in table.to_dict("records")]
    theta = "$\\theta$" if "theta" in varying else _value(table["theta"].iloc[0])
    what = f"{_symbol(along, star=True)}, the {_symbol(along)} at which {_text(accuracy)} crosses {theta}"
    sentences = [f"{what}, with 95\\,\\% intervals{_seeds(table)}."]
    if fixed := [f"{_symbol(name)} = {_value(table[name].iloc[0])}" for name in axes if name not in varying]:
        sentences.append(f"Fixed: {', '.join(fixed)}.")
    if any(cell[0].startswith(("$<$", "$>$")) for cell in (row[-1:] for row in rows)):
        sentences.append("A bound is given where the crossing lies outside of the tested values.")
    if "outcome" in table and table["critical"].isna().any():
        sentences.append("A word in place of a value says how the search of that cell ended.")
    return heads, rows, " ".join(sentences)


def _exponents(table: Table) -> tuple[list[str], list[list[str]], str]:
    """The heads of the columns, the rows and a caption: which law, then the exponent of each axis with its interval."""
    varying = [name for name in ("along", "part", "regime", "theta") if table[name].nunique(dropna=False) > 1]
    heads = [_head(name) for name in varying] + ["axis", "exponent", "cells"]
    records = table.to_dict("records")
    rows = [[*(_value(row[name]) for name in varying), _symbol(row["axis"]), _exponent(row), _value(row["n_cells"])] for row in records]
    along, law = str(records[0]["along"]), " ".join(f"${_inner(axis)}^{{a_{{{_inner(axis)}}}}}$" for axis in table["axis"].unique())
    sentences = [f"Exponents of the law {_symbol(along, star=True)} $\\propto$ {law}, with 95\\,\\% intervals{_seeds(table)}."]
    if "theta" not in varying:
        sentences.append(f"Accuracy crosses {_value(records[0]['theta'])} at {_symbol(along, star=True)}.")
    if "regime" not in varying and records[0]["regime"]:
        sentences.append(f"Cells with {_text(records[0]['regime'])}.")
    if any(row["rejected"] for row in records):
        sentences.append("A dagger marks laws from which the cells lie further than noise explains.")
    if any(_is_missing(row["exponent"]) for row in records):
        sentences.append("A dash stands where the cells do not determine the exponent.")
    return heads, rows, " ".join(sentences)


def _environment(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    numbers = [all(row[i][:1] in "$-.0123456789" for row in rows) for i in range(len(heads))]
    lines = ["% needs \\usepackage{booktabs}", r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}", f"  \\label{{{label}}}"]
    lines += [f"  \\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numbers)}}}", r"    \toprule"]
    lines += [f"    {' & '.join(heads)} \\\\", r"    \midrule", *(f"    {' & '.join(row)} \\\\" for row in rows)]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _critical(row: dict[str, Any]) -> str:
    """17\\,400 [8500, 35\\,600]; a bound where accuracy does not cross, and how a search ended where it found nothing."""
    value = row["critical"]
    if _is_missing(value):
        side = row.get("censored")
        if side in ("right", "left"):
            sign, end = (">", row["N_below"]) if side == "right" else ("<", row["N_above"])
            return f"${sign}$ {_value(end)}"
        return _text(str(row.get("outcome", "--")).replace("_", " "))
    place = math.floor(math.log10(value)) - DIGITS + 1
    return _with_interval(_rounded(value, place), row, lambda end: _rounded(end, place))


def _exponent(row: dict[str, Any]) -> str:
    if _is_missing(row["exponent"]):
        return "--"
    found = _with_interval(_decimals(row["exponent"]), row, _decimals)
    return found + (r"\textsuperscript{\dag}" if row["rejected"] else "")


def _with_interval(shown: str, row: dict[str, Any], form: Any) -> str:
    if _is_missing(row["lo"]):
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
    return _grouped(f"{round(value, -place):.{max(0, -place)}f}")


def _value(value: Any) -> str:
    """A value of an axis in full, or text."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(value).lower()
    if _is_missing(value):
        return "--"
    if isinstance(value, str):
        return _text(value)
    if abs(value) >= SCIENTIFIC or 0 < abs(value) < 1e-3:
        digits, _, power = f"{value:.5e}".partition("e")
        digits = digits.rstrip("0").rstrip(".")
        factor = "" if digits == "1" else rf"{digits} \times "
        return f"${factor}10^{{{int(power)}}}$"
    return _grouped(f"{value:.6f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value)}")


def _grouped(digits: str) -> str:
    """Thin spaces between thousands, from five digits on."""
    whole, dot, rest = digits.partition(".")
    return (f"{int(whole):,}".replace(",", r"\,") if len(whole) > 4 else whole) + dot + rest


def _head(name: str, star: bool = False) -> str:
    """The symbol of an axis, with its unit in brackets."""
    unit = UNITS.get(name, "1")
    return _symbol(name, star) + (f" ({unit})" if unit not in ("1", name) else "")


def _symbol(name: str, star: bool = False) -> str:
    inner = _inner(name)
    return _text(name) if inner.startswith(r"\mathrm") and not star else f"${inner}{'^*' if star else ''}$"


def _inner(name: str) -> str:
    """The symbol of an axis, or its name, within a formula."""
    symbol = (FIELDS[name].metadata["symbol"] if name in FIELDS else "") or name
    if name == "theta":
        return r"\theta"
    return GREEK.get(symbol) or (symbol if len(symbol) == 1 else rf"\mathrm{{{_text(symbol)}}}")


def _text(text: str) -> str:
    return str(text).translate(ESCAPES)


def _seeds(table: Table) -> str:
    """ " over 8 seeds"."""
    name = next((name for name in ("n_seeds", "seeds") if name in table), None)
    if name is None:
        return ""
    least, most = int(table[name].min()), int(table[name].max())
    return f" over {least if least == most else f'{least} to {most}'} seeds"


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return value is None or bool(pd.isna(value))
