"""What a fit has found: a few lines of text, files, and tables for a paper in LaTeX,
with the rules of the package booktabs.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import FitError, UsageError
from ...model.point import FIELDS
from ...model.values import is_missing
from ...sweep.files import atomic_write, holds_results
from ...sweep.store.table import KEY, comment
from .runs import Table, Value, plain_table

LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho"
    " sigma tau phi chi psi omega"
)
ESCAPES = {ord(sign): rf"\{sign}" for sign in "&%$#_{}"} | {
    ord("\\"): r"\textbackslash{}",
    ord("~"): r"\~{}",
    ord("^"): r"\^{}",
}
ESCAPES |= {ord(sign): f"${sign}$" for sign in "<>"}

NO_AXES = ("method", "axis", "critical", "outcome")
"""Columns of a search's thresholds that stand before theta and are no axes."""

NOTES = {
    r"\dag": (
        "A dagger marks laws from which the cells lie further than noise explains."
    ),
    r"\ddag": (
        "A double dagger marks exponents of a law with as many unknowns as cells, so"
        " that nothing checks it."
    ),
}
"""What a caption says of a mark."""


def summary(found: Iterable[Table]) -> Iterator[str]:
    """For each theta how many cells cross, the exponents with their intervals, and
    every warning.
    """
    thresholds, exponents, diagnostics = found
    for theta in dict.fromkeys(thresholds["theta"]) or [None]:
        if theta is not None:
            yield (
                f"theta = {theta:g}:"
                f" {_crossings(thresholds[thresholds['theta'] == theta])}"
            )
        said = (
            diagnostics if theta is None else diagnostics[diagnostics["theta"] == theta]
        )
        for row in (
            exponents if theta is None else exponents[exponents["theta"] == theta]
        ).itertuples():
            what = row.along if theta is None else f"{row.along}*"
            if row.exponent != row.exponent:
                yield (
                    f"  {_law(row)}: the cells do not determine how {what} depends on"
                    f" {row.axis}"
                )
            else:
                ends = (
                    f"  95 % interval {_two(row.lo)} to {_two(row.hi)}"
                    if row.lo == row.lo
                    else ""
                )
                yield (
                    f"  {_law(row)}: {what} ~"
                    f" {row.axis}^{_two(row.exponent)}{ends}{'  (law rejected)' if row.rejected else ''}"  # noqa: E501
                )
        yield from (
            f"  warning, {_law(row)}: {row.text}"
            for row in said[said["diagnostic"] == "warning"].itertuples()
        )


def _crossings(thresholds: Table) -> str:
    """How many of the cells cross, count in the law, are censored or are copies."""
    n, n_copies = len(thresholds), int(thresholds["copy_of"].notna().sum())
    cells = f"{n} cell{'s' * (n > 1)}" + (
        f", of which {n_copies} repeat the counts of another" if n_copies else ""
    )
    counts, unsure = (
        thresholds["censored"].value_counts(),
        int(thresholds["warning"].str.contains("crossing not sure").sum()),
    )
    cross = f"{counts.get('no', 0)} cross" + (
        f", {unsure} of them not surely enough for the law" if unsure else ""
    )
    return (
        f"{cells}:"
        f" {'; '.join([cross, *(f'{counts[side]} censored {side}' for side in ('left', 'right') if side in counts)])}"  # noqa: E501
    )


def _law(row: Value) -> str:
    return f"{row.part}, {row.regime}" if row.regime else row.part


def _two(value: float) -> str:
    """Two decimals; 0.00 for what rounds to it, without a sign."""
    return f"{round(value, 2) + 0.0:.2f}"


def default_folder(
    tables: Sequence[Path], of: str = "accuracy", along: str | None = None
) -> Path:
    """The results folder itself, or FILE-fit beside a file; raises UsageError for
    several.

    Another accuracy or axis has its own folder there.
    """
    if len(tables) > 1:
        raise UsageError(
            f"--out: nothing given; needed with {len(tables)} folders, as in --out laws"
        )
    path = tables[0]
    folder = path if holds_results(path) else beside(path, "-fit")
    folder = folder if of == "accuracy" else folder / of
    return folder if along is None else folder / f"along-{along}"


def beside(path: Path, ending: str) -> Path:
    """The path of a file beside another one, or what it links to, with its name and
    this ending.
    """
    place = Path(
        os.path.realpath(path)
    )  # unlike resolve, it takes links that lead to themselves
    return place.parent / f"{place.stem}{ending}"


def check_folder(out: Path) -> None:
    """Raises UsageError for a folder that cannot be written, before anything is fitted;
    makes nothing.
    """
    nearest = next(
        path
        for path in (out, *Path(os.path.realpath(out)).parents)
        if os.path.exists(path)
    )
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK):
        raise UsageError(
            f"{out}: cannot be written ({nearest} is not a folder, or not writable);"
            " choose another --out"
        )


def write(
    found: Iterable[Table],
    out: Path,
    with_latex: bool = False,
    rows: Mapping[str, object] | None = None,
) -> dict[Path, int]:
    """Writes each table of a `Fit` whole or not at all; returns the files with their
    rows.

    Raises FitError. `rows` is what they say of the rows that they were made from.
    `with_latex` writes the thresholds and the exponents as LaTeX too; a table without
    rows has no such file.
    """
    tables, about = (
        dict(zip(("thresholds", "exponents", "diagnostics"), found, strict=True)),
        rows or {},
    )
    files = {
        f"{name}.parquet": (_parquet(table, about), len(table))
        for name, table in tables.items()
    }
    for name in ("thresholds", "exponents") if with_latex else ():
        if n := len(tables[name]):
            files[f"{name}.tex"] = (
                f"% {comment(about)}\n{latex(tables[name])}".encode(),
                n,
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, (content, _) in files.items():
            atomic_write(out / name, content)
    except OSError as error:
        raise FitError(
            f"{out}: cannot be written ({error.strerror or error}); choose another"
            " --out"
        ) from error
    return {out / name: n for name, (_, n) in files.items()}


def _parquet(table: Table, rows: Mapping[str, object]) -> bytes:
    """The bytes of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.Table.from_pandas(table, preserve_index=False)
    sink = pa.BufferOutputStream()
    metadata = {
        **(made.schema.metadata or {}),
        "PANDAS_ATTRS": json.dumps(table.attrs),
        KEY: json.dumps(rows),
    }
    pq.write_table(made.replace_schema_metadata(metadata), sink)
    return sink.getvalue()


def latex(table: Table, *, caption: str | None = None, label: str | None = None) -> str:
    r"""A table of thresholds or of exponents as LaTeX, with the rules of the package
    booktabs.

    A critical value and the ends of its 95 % interval have three significant digits:
    17\,400 [8520, 35\,600]. Columns of one value are left out.

    Args:
        table: thresholds or exponents of a fit, or the thresholds of a search.
        caption: as LaTeX, in place of what crosses theta and what the marks mean.
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
    table = plain_table("table", table) if hasattr(table, "reset_index") else table
    names = [*getattr(table, "columns", ())]
    if not {"theta", "lo", "hi"} <= {*names} or not {"critical", "exponent"} & {*names}:
        got = ", ".join(map(str, names)) or type(table).__name__
        raise UsageError(
            f"table: got {got}; allowed: thresholds or exponents of a fit, or"
            " thresholds of a search"
        )
    if not len(table):
        raise UsageError("table: no rows; allowed: at least one row")
    is_law, rows = "exponent" in names, table.to_dict("records")
    settings = (
        ["along", "part", "theta"]
        if is_law
        else [name for name in names[: names.index("theta") + 1] if name not in NO_AXES]
    )
    shown = [name for name in settings if table[name].nunique(dropna=False) > 1] + (
        ["regime"] if is_law and table["regime"].any() else []
    )
    columns = {symbol(name): [*map(_setting, table[name])] for name in shown}
    what = symbol(str(rows[0]["along" if is_law else "axis"]), "^*")
    if is_law:
        columns |= {
            "axis": [*map(symbol, table["axis"])],
            "exponent": [*map(_exponent, rows)],
            "cells": [*map(str, table["n_cells"])],
        }
    else:
        columns[what] = [*map(_critical, rows)]
    theta = "theta" if symbol("theta") in columns else rows[0]["theta"]
    of = f"{what}, where {escaped(table.attrs.get('of') or 'accuracy')} crosses {theta}"
    of = (
        f"the mean of {escaped(rows[0]['along'])}"
        if is_law and is_missing(rows[0]["theta"])
        else of
    )  # a law of --law
    intervals = "; in brackets 95\\,\\% intervals" if table["lo"].notna().any() else ""
    notes = [
        note
        for mark, note in NOTES.items()
        if any(f"{{{mark}}}" in cell for cell in columns.get("exponent", ()))
    ]
    told = " ".join([f"{'Exponents of ' * is_law}{of}{intervals}.", *notes])
    head = [
        "% needs \\usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        f"  \\caption{{{caption or told}}}",
    ]
    head += [
        f"  \\label{{{label or ('tab:exponents' if is_law else 'tab:thresholds')}}}",
        f"  \\begin{{tabular}}{{{'l' * len(columns)}}}",
    ]
    lines = [
        f"    {' & '.join(row)} \\\\"
        for row in (columns, *zip(*columns.values(), strict=True))
    ]
    body = [r"    \toprule", lines[0], r"    \midrule", *lines[1:], r"    \bottomrule"]
    return "\n".join([*head, *body, r"  \end{tabular}", r"\end{table}", ""])


def _critical(row: Mapping[str, Value]) -> str:
    """A value with its interval, a bound where accuracy does not cross, or how a search
    ended.
    """
    if not is_missing(value := row["critical"]):
        return _with_interval(row, value, number)
    if (side := row.get("censored")) in ("right", "left"):
        return (
            f"$>$ {_setting(row['N_below'])}"
            if side == "right"
            else f"$<$ {_setting(row['N_above'])}"
        )
    return escaped(str(row.get("outcome", "--")).replace("_", " "))


def _exponent(row: Mapping[str, Value]) -> str:
    if is_missing(value := row["exponent"]):
        return "--"
    mark = (
        r"\dag"
        if row["rejected"]
        else r"\ddag"
        if "nothing checks the law" in str(row.get("warning"))
        else ""
    )
    text = _with_interval(
        row, value, lambda end: re.sub("^-.*", r"$\g<0>$", f"{round(end, 2) + 0.0:.2f}")
    )
    return text + rf"\textsuperscript{{{mark}}}" * bool(mark)


def _with_interval(
    row: Mapping[str, Value], value: float, form: Callable[[float], str]
) -> str:
    ends = [
        "$\\infty$" if math.isinf(end) else form(end)
        for end in (row["lo"], row["hi"])
        if not is_missing(end)
    ]
    return f"{form(value)} [{', '.join(ends)}]" if ends else form(value)


def number(value: float) -> str:
    r"""A number with three significant digits, as 17\,400 or $1.74 \times 10^{9}$."""
    digits, _, power = f"{value:.2e}".partition("e")
    if value and not -4 < int(power) < 7:
        return rf"${digits} \times 10^{{{int(power)}}}$"
    text = f"{float(f'{value:.2e}'):,.{max(0, 2 - int(power)) if value else 0}f}"
    return text.replace(",", r"\,") if value >= 1e4 else text.replace(",", "")


def _setting(value: Value) -> str:
    """The value of an axis as it was given."""
    if is_missing(value):
        return "--"
    return escaped(
        str(value).lower()
        if str(value) in ("True", "False")
        else str(value).removesuffix(".0")
    )


def symbol(name: str, mark: str = "") -> str:
    """The symbol of an axis, or its name."""
    short = (FIELDS[name].metadata["symbol"] if name in FIELDS else "") or name
    short = (
        rf"\{short}"
        if short in LETTERS.split()
        else r"\gamma_2"
        if short == "gamma2"
        else short
    )
    return (
        f"${short}{mark}$"
        if len(short) == 1 or short[0] == "\\"
        else escaped(name) + (f"${mark}$" if mark else "")
    )


def escaped(text: str) -> str:
    """Text with LaTeX's special signs written out."""
    return text.translate(ESCAPES).replace("$<$=", r"$\leq$").replace("$>$=", r"$\geq$")
