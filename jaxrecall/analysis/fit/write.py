"""Writes the results of a fit: a text summary, Parquet files, and LaTeX tables.

The LaTeX tables use the rules of the package booktabs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from ...errors import FitError, UsageError, plural, printable
from ...model.point import FIELDS
from ...model.values import is_missing
from ...sweep.files import (
    atomic_write,
    held_folder,
    holds_results,
    plain_name,
    refuse_link,
)
from ...sweep.store.table import KEY, comment, refuse_foreign, with_metadata
from .columns import AxisValue, Row, Table, common, n_values, varying, without
from .reading import plain_table
from .tables import ABOVE, KNOWN, NOT_REACHED, UNCHECKED, count_states

NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho"
    " sigma tau phi chi psi omega"
)
GREEK = dict(zip("αβγδεζηθικλμνξπρστφχψω", NAMES.split(), strict=True))
SIGNS = GREEK | {"≤": "leq", "≥": "geq", "→": "to", "×": "times", "∞": "infty"}

_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}"}
_ESCAPES |= {"<": "$<$", ">": "$>$", "−": "$-$"}
_ESCAPES |= {sign: rf"\{sign}" for sign in "&%$#_{}"}
_ESCAPES |= {sign: rf"$\{name}$" for sign, name in SIGNS.items()}
ESCAPES = str.maketrans(_ESCAPES)

TABLE = Template(r"""% needs \usepackage{booktabs}$engine
\begin{table}
  \centering
  \caption{$caption}
  \label{$label}
  \begin{tabular}{$columns}
    \toprule
    $head
    \midrule
    $body
    \bottomrule
  \end{tabular}
\end{table}
""")

NO_AXES = ("method", "axis", "critical", "outcome")
"""The columns that precede theta in the thresholds of a search but are not axes."""

NOTES = {
    r"{\dag}": "A dagger marks laws from which N* lies further than noise explains.",
    r"{\ddag}": (
        "A double dagger marks exponents of a law with as many unknowns as"
        " configurations, so that nothing checks it."
    ),
}
"""A dict from the LaTeX of a mark to the sentence in the caption that explains it."""


FURTHER = ("comparison", "forms", "additive", "predictions")
"""The tables of a fit that are made on request."""

WITH_ENDS = ("estimate", "exponent", "floor", "factor", "predicted", "prefactor")
"""The numbers of these tables that have intervals."""

OF_LAW = ("theta", "part", "regime", "along", "n_seeds", "product")
"""The columns of these tables that a summary shows only if their values differ."""

USUAL = {"rejected": False, "left_out": "", "correlation": 0.0, "state": KNOWN}
"""A dict from a column of these tables that a summary shows only if a law is unusual to
its usual value.
"""

NOT_SHOWN = ("method", "record", "warning")
"""The columns of these tables that a summary does not show."""


def summarise(fitted: Iterable[Table]) -> Iterator[str]:
    """Yields the lines of a summary.

    For each theta, the summary contains the number of cells that cross, the exponents
    with their intervals, and every warning. If there are no thresholds, the summary
    contains the laws of a mean. A comparison and forms of a law follow as tables.
    """
    thresholds, exponents, diagnostics = tables = tuple(fitted)
    if thresholds.empty:
        yield from _laws(exponents, diagnostics, "")
    for theta in thresholds["theta"].unique():
        crossings, laws, told = (table[table["theta"] == theta] for table in tables)
        cells = plural(len(crossings), "configuration")
        if n_copies := crossings["copy_of"].notna().sum():
            cells += f", of which {n_copies} repeat the counts of another"
        yield f"theta = {theta:g}: {cells}: {count_states(crossings['state'])}"
        yield from _laws(laws, told, "*")
    for name in FURTHER:
        table = getattr(fitted, name, None)
        if table is not None:
            yield f"{name}:\n{_shown(table)}"
            for text in dict.fromkeys(table.get("warning", ())):
                if text:
                    yield f"  warning, {name}: {text}"


def _shown(table: Table) -> str:
    """Returns exponents, a comparison, forms or predictions of a law as text, with
    intervals in brackets.

    Ratios of single cells are left out.
    """
    if "quantity" in table:
        table = table[table["quantity"] != "ratio"]
    hidden = common(NOT_SHOWN, table)
    hidden += [name for name in common(OF_LAW, table) if n_values(table, name) < 2]
    hidden += [name for name in common(USUAL, table) if {*table[name]} == {USUAL[name]}]
    for name in common(WITH_ENDS, table):
        prefix = f"{name}_" if f"{name}_lo" in table else ""
        ends = [f"{prefix}lo", f"{prefix}hi"]
        rows = table[[name, *ends]].to_numpy()
        texts = [with_interval(row, "{:.3g}".format) for row in rows]
        table = table.assign(**{name: texts})
        hidden += ends
    table = table.drop(columns=hidden)
    return table.to_string(index=False, float_format="{:.2g}".format)


def _laws(exponents: Table, diagnostics: Table, mark: str) -> Iterator[str]:
    """Yields the exponents of the laws as a table, and each warning.

    `mark` is appended to the name of the quantity, as in N*.
    """
    if len(exponents):
        yield f"exponents of {exponents['along'].iloc[0]}{mark}:\n{_shown(exponents)}"
    for row in diagnostics[diagnostics["diagnostic"] == "warning"].itertuples():
        law = f"{row.part}, {row.regime}" if row.regime else row.part
        yield f"  warning, {law}: {row.text}"


def default_folder(tables: Sequence[Path], of: str, along: str | None) -> Path:
    """Returns the default folder for the output.

    For a results folder, this is the folder itself. For a file, it is the folder
    FILE-fit beside the file. If `of` or `along` is given, it is a subfolder. Raises
    UsageError if there are several tables, and StoreError if the folder is a link that
    the user did not name.
    """
    if len(tables) > 1:
        raise UsageError(
            f"--out: nothing given; needed with {len(tables)} folders, as in --out laws"
        )
    folder, names = tables[0], []
    if not holds_results(folder):
        folder = beside(folder, "-fit")
        refuse_link(folder)
    if of != "accuracy":
        names.append(plain_name(of))
    if along is not None:
        names.append(f"along-{plain_name(along)}")
    for name in names:
        folder /= name
        refuse_link(folder)
    return folder


def beside(path: Path, ending: str) -> Path:
    """Returns a path in the same folder as `path`.

    The name is the stem of `path`, followed by `ending`. If `path` is a link, its
    target is used instead.
    """
    # unlike Path.resolve, this accepts links that point to themselves
    place = Path(os.path.realpath(path))
    return place.parent / f"{place.stem}{ending}"


def unwritable(out: Path, error: OSError) -> FitError:
    """Returns the error for a file or folder that the system does not let us write."""
    return FitError(
        f"{out}: cannot be written ({error.strerror or error}); choose another --out"
    )


def write(
    fitted: Any, out: Path, with_latex: bool, rows: Mapping[str, object]
) -> dict[Path, int]:
    """Writes the tables of a fit, and returns a dict from path to number of rows.

    Each file is written whole or not at all. Raises FitError if the folder cannot be
    written, and StoreError if it is a link, or if a file would replace one that this
    package did not make.

    Args:
        fitted: a `Fit`.
        out: the folder.
        with_latex: whether to write the thresholds and the exponents also as LaTeX. A
            table without rows has no LaTeX file.
        rows: a description of the fitted rows. Each file contains this description.
    """
    files = {}
    for name, table in vars(fitted).items():
        if name != "remarks" and table is not None:
            files[out / f"{name}.parquet"] = _parquet(table, rows)
            if with_latex and name in ("thresholds", "exponents") and len(table):
                text = f"% {comment(rows)}\n{latex(table)}"
                files[out / f"{name}.tex"] = text.encode()
    for path in files:
        refuse_foreign(path)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with held_folder(out) as held:
            for path, content in files.items():
                atomic_write(held / path.name, content)
    except OSError as error:
        raise unwritable(out, error) from error
    return {path: len(getattr(fitted, path.stem)) for path in files}


def _parquet(table: Table, rows: Mapping[str, object]) -> bytes:
    """Returns the bytes of a Parquet file that contains a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.Table.from_pandas(table, preserve_index=False)
    facts = {b"PANDAS_ATTRS": table.attrs, KEY: rows}
    for key, fact in facts.items():
        made = with_metadata(made, key, fact)
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink)
    return sink.getvalue()


def latex(table: Table, *, caption: str | None = None, label: str | None = None) -> str:
    r"""Formats a table of thresholds or of exponents as LaTeX.

    The rules are those of the package booktabs. A critical value and the ends of its 95
    % interval have three significant digits, as in 17\,400 [8520, 35\,600]. Settings
    that have only one value are left out.

    Args:
        table: the thresholds or exponents of a fit, or the thresholds of a search.
        caption: LaTeX that replaces the default caption. The default caption names the
            quantity and explains the marks.
        label: a label that replaces the default tab:thresholds or tab:exponents.

    Returns:
        The text of a table environment. The document needs `\usepackage{booktabs}`.

    Raises:
        FitError: if `table` is no table.
        UsageError: if the table is none of these, or has no rows.

    Examples:
        >>> import jaxrecall
        >>> found = jaxrecall.fit.fit(jaxrecall.load("results/quickstart"), [0.5])
        >>> print(jaxrecall.latex(found.exponents))
    """
    table = plain_table("table", table)
    is_law = "exponent" in table
    needed = {"theta", "lo", "hi", "exponent" if is_law else "critical"}
    if not (needed <= {*table} and len(table)):
        raise UsageError(
            f"table: got {len(table)} rows of {', '.join(map(str, table))}; allowed:"
            " thresholds or exponents of a fit, or thresholds of a search, with at"
            " least one row"
        )
    rows = table.to_dict("records")
    if is_law:
        settings = varying(table, ["along", "part", "theta"])
        if table["regime"].any():
            settings.append("regime")
        results = {
            "axis": map(symbol, table["axis"]),
            "exponent": map(_exponent, rows),
            "cells": map(_setting, table["n_cells"]),
            "misfit / noise": map(number, table["misfit"]),
        }
    else:
        settings = varying(table, without(table.loc[:, :"theta"], NO_AXES))
        results = {symbol(rows[0]["axis"], "^*"): map(_critical, rows)}
    columns = {symbol(name): map(_setting, table[name]) for name in settings} | results
    lines = map(" & ".join, (columns, *zip(*columns.values(), strict=True)))
    head, *body = map(r"{} \\".format, lines)
    text = "\n    ".join(body)
    notes = [note for mark, note in NOTES.items() if mark in text]
    caption = caption or " ".join([_caption(table, is_law), *notes])
    engine = ", and LuaLaTeX or XeLaTeX for its letters"
    if f"{caption}{head}{text}".isascii():
        engine = ""
    return TABLE.substitute(
        engine=engine,
        caption=caption,
        label=label or ("tab:exponents" if is_law else "tab:thresholds"),
        columns="l" * len(columns),
        head=head,
        body=text,
    )


def _caption(table: Table, is_law: bool) -> str:
    """Returns the default caption, which names the quantity."""
    along, theta = table["along" if is_law else "axis"].iloc[0], table["theta"].iloc[0]
    told = f"the mean of {escaped(along)}"
    if not is_missing(theta):
        of = escaped(table.attrs.get("of") or "accuracy")
        value = "theta" if n_values(table, "theta") > 1 else _setting(theta)
        told = f"{symbol(along, '^*')}, where {of} crosses {value}"
    if is_law:
        told = f"Exponents of {told}"
    if table["lo"].notna().any():
        told += "; in brackets 95\\,\\% intervals"
    return f"{told}."


def _critical(row: Row) -> str:
    """Formats a critical value with its interval.

    If there is no crossing, the result is a bound or the outcome of a search.
    """
    if not is_missing(row["critical"]):
        return with_interval([row["critical"], row["lo"], row["hi"]], number)
    if "outcome" in row:
        return escaped(row["outcome"].replace("_", " "))
    bound = f"$>$ {_setting(row['N_below'])}"
    if row["censored"] == "left":
        bound = f"$<$ {_setting(row['N_above'])}"
    is_plain = row.get("state", ABOVE) in (ABOVE, NOT_REACHED)
    return bound if is_plain else f"{bound} ({row['state']})"


def _exponent(row: Row) -> str:
    text = with_interval([row["exponent"], row["lo"], row["hi"]], number)
    mark = ""
    if row["rejected"]:
        mark = r"\textsuperscript{\dag}"
    elif row.get("state") == UNCHECKED:
        mark = r"\textsuperscript{\ddag}"
    return text + mark


def with_interval(numbers: Iterable[float], form: Callable[[float], str]) -> str:
    """Formats a value, the first of the numbers, with its interval if it has one."""
    value, low, high = numbers
    if is_missing(value):
        return "--"
    if is_missing(low):
        return form(value)
    return f"{form(value)} [{form(low)}, {form(high)}]"


def number(value: float) -> str:
    r"""Formats a number with three digits, as 17\,400 or $1.74 \times 10^{9}$."""
    if is_missing(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$"
    digits, _, power = f"{value:.2e}".partition("e")
    if value and not -4 < int(power) < 7:
        return rf"${digits} \times 10^{{{int(power)}}}$"
    n_decimals = max(0, 2 - int(power)) if value else 0
    text = f"{float(f'{value:.2e}'):,.{n_decimals}f}"
    text = text.replace(",", r"\," if value >= 1e4 else "")
    return f"${text}$" if value < 0 else text


def _setting(value: AxisValue) -> str:
    """Formats the value of a setting for LaTeX."""
    if is_missing(value):
        return "--"
    text = str(value)
    if text in ("True", "False"):
        text = text.lower()
    return escaped(text.removesuffix(".0"))


def symbol(name: str, mark: str = "") -> str:
    """Returns the LaTeX symbol of an axis, or its name, followed by `mark`."""
    short = name
    if name in FIELDS:
        short = FIELDS[name].metadata["symbol"] or name
    if short in GREEK.values():
        return rf"$\{short}{mark}$"
    if short == "gamma2":
        return rf"$\gamma_2{mark}$"
    if len(short) == 1 and short.isalnum():
        return f"${short}{mark}$"
    return escaped(name) + (f"${mark}$" if mark else "")


def escaped(text: str) -> str:
    """Returns the text with LaTeX's special characters escaped."""
    text = printable(text).translate(ESCAPES)
    return text.replace("$<$=", r"$\leq$").replace("$>$=", r"$\geq$")
