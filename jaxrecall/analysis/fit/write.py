"""Writes the results of a fit: a text summary, Parquet files, and LaTeX tables.

The LaTeX tables use the rules of the package booktabs.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

from ...errors import FitError, UsageError, plural
from ...model.point import FIELDS
from ...model.values import is_missing
from ...sweep.files import atomic_write, holds_results, plain_name, refuse_link
from ...sweep.store.table import KEY, comment, refuse_foreign
from .columns import AxisValue, Table, without
from .reading import plain_table
from .tables import (
    ABOVE,
    CROSSES,
    FEW_SEEDS,
    NOT_CROSSING,
    NOT_REACHED,
    UNCHECKED,
    UNDECIDED,
)

LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho"
    " sigma tau phi chi psi omega"
)
ESCAPES = {ord(sign): rf"\{sign}" for sign in "&%$#_{}"}
ESCAPES |= {ord("<"): "$<$", ord(">"): "$>$"}
ESCAPES |= {ord("\\"): r"\textbackslash{}", ord("~"): r"\~{}", ord("^"): r"\^{}"}

TABLE = Template(r"""% needs \usepackage{booktabs}
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

NO_RECORD = {"rows": 0}
"""The description of rows that are not described."""

NOTES = {
    r"\dag": (
        "A dagger marks laws from which the cells lie further than noise explains."
    ),
    r"\ddag": (
        "A double dagger marks exponents of a law with as many unknowns as cells, so"
        " that nothing checks it."
    ),
}
"""A dict from the LaTeX of a mark to the sentence in the caption that explains it."""


def summarise(found: Iterable[Table]) -> Iterator[str]:
    """Yields the lines of a summary.

    For each theta, the summary contains the number of cells that cross, the exponents
    with their intervals, and every warning. If there are no thresholds, the summary
    contains the laws of a mean.
    """
    thresholds, exponents, diagnostics = tables = tuple(found)
    if thresholds.empty:
        yield from _laws(exponents, diagnostics, "")
    for theta in thresholds["theta"].unique():
        mine, laws, said = (table[table["theta"] == theta] for table in tables)
        yield f"theta = {theta:g}: {_crossings(mine)}"
        yield from _laws(laws, said, "*")
    for name, lines in ASKED_FOR.items():
        table = getattr(found, name, None)
        if table is not None:
            yield from lines(table)


def _compared(table: Table) -> Iterator[str]:
    """Yields a line for each mean ratio and each difference of exponents."""
    if table.empty:
        yield "comparison: no two cells in the law differ in that axis alone"
    for row in table[table["quantity"] != "ratio"].itertuples():
        what = f"{row.quantity} of {row.along}"
        if row.quantity != "mean ratio":
            what = f"difference of the {row.quantity}"
        yield (
            f"{_where(row)}, {row.axis} = {row.value} against {row.reference}: {what}"
            f" {_bracketed(row.estimate, row.lo, row.hi)};"
            f" {plural(row.n_cells, 'pair')} of cells, whose errors correlate by"
            f" {_two(row.correlation)}"
        )


def _formed(table: Table) -> Iterator[str]:
    """Yields a line for each form of a law."""
    settings = list(table)[: list(table).index("axis")]
    for row in table.to_dict("records"):
        told = []
        for sign, name in (("p", "exponent"), ("E", "floor"), ("A", "factor")):
            if not is_missing(row[name]):
                ends = row[f"{name}_lo"], row[f"{name}_hi"]
                told.append(f"{sign} = {_bracketed(row[name], *ends)}")
        at = "".join(f", {name} = {row[name]}" for name in settings)
        line = f"{row['along']} = {FORM_TEXTS[row['form']].format(row['axis'])}"
        line += f": {', '.join(told)}; rms distance {row['rms']:.2g}"
        if not is_missing(row["error"]):
            line += f"; {row['error']:.2g} at the {row['n_out']} largest, if left out"
        yield f"{_where(SimpleNamespace(**row))}{at}: {line}"


FORM_TEXTS = {"power": "A {}^p", "floor": "E + A {}^p", "logarithm": "E + A ln {}"}
ASKED_FOR = {"comparison": _compared, "forms": _formed}
"""The tables of a fit that are made on request, and their lines in a summary."""


def _where(row: Any) -> str:
    theta = "" if is_missing(row.theta) else f", theta = {row.theta:g}"
    return f"  {_law(row)}{theta}"


def _bracketed(value: float, low: float, high: float) -> str:
    text = f"{value:.3g}"
    return text if is_missing(low) else f"{text} [{low:.3g}, {high:.3g}]"


def _laws(exponents: Table, diagnostics: Table, mark: str) -> Iterator[str]:
    """Yields lines for each exponent, each law and each warning.

    `mark` is appended to the name of the quantity, as in N*.
    """
    laws = {_law(row): row for row in exponents.itertuples()}
    for row in exponents.itertuples():
        yield f"  {_law(row)}: {_exponent_line(row, row.along + mark)}"
    for name, row in laws.items():
        yield f"  {name}: {_law_line(row)}"
    for row in diagnostics[diagnostics["diagnostic"] == "warning"].itertuples():
        yield f"  warning, {_law(row)}: {row.text}"


def _exponent_line(row: Any, what: str) -> str:
    if is_missing(row.exponent):
        return f"the cells do not determine how {what} depends on {row.axis}"
    line = f"{what} ~ {row.axis}^{_two(row.exponent)}"
    if not is_missing(row.lo):
        line += (
            f"  95 % interval {_two(row.lo)} to {_two(row.hi)}, by {row.interval_by}"
        )
    if row.rejected:
        line += "  (law rejected)"
    return line


def _law_line(row: Any) -> str:
    """Returns a text about a law as a whole: its misfit, and the cells without it."""
    told = [f"law of {plural(row.n_cells, 'cell')}"]
    if not is_missing(row.misfit):
        told.append(f"misfit {row.misfit:.2g} times the noise")
    if row.correlation:
        told.append(
            f"cells share draws: their errors correlate by {_two(row.correlation)}, so"
            " they are no independent evidence"
        )
    if row.left_out:
        told.append(f"left out: {row.left_out}")
    return "; ".join(told)


def _crossings(thresholds: Table) -> str:
    """Returns a text that counts the cells that cross, those of each other state, and
    the copies.
    """
    cells = plural(len(thresholds), "cell")
    if n_copies := thresholds["copy_of"].notna().sum():
        cells += f", of which {n_copies} repeat the counts of another"
    counts = thresholds["state"].value_counts()
    n_unsure = counts.get(UNDECIDED, 0)
    n_cross = counts.get(CROSSES, 0) + counts.get(FEW_SEEDS, 0) + n_unsure
    parts = [f"{n_cross} cross"]
    if n_unsure:
        parts[0] += f", {n_unsure} of them not surely enough for the law"
    for state in NOT_CROSSING:
        if state in counts:
            parts.append(f"{counts[state]} {state}")
    return f"{cells}: {'; '.join(parts)}"


def _law(row: Any) -> str:
    return f"{row.part}, {row.regime}" if row.regime else row.part


def _two(value: float) -> str:
    """Formats a number with two decimals; zero has no sign."""
    return f"{round(value, 2) + 0.0:.2f}"


def default_folder(
    tables: Sequence[Path], of: str = "accuracy", along: str | None = None
) -> Path:
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
    folder = tables[0]
    if not holds_results(folder):
        folder = beside(folder, "-fit")
        refuse_link(folder)
    if of != "accuracy":
        folder /= plain_name(of)
        refuse_link(folder)
    if along is not None:
        folder /= f"along-{plain_name(along)}"
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


def check_folder(out: Path) -> None:
    """Raises UsageError if files cannot be written to a folder; creates nothing.

    The check runs before the fit.
    """
    places = (out, *Path(os.path.realpath(out)).parents)
    nearest = next(filter(os.path.exists, places))
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK):
        raise UsageError(
            f"{out}: cannot be written ({nearest} is not a folder, or not writable);"
            " choose another --out"
        )


def unwritable(out: Path, error: OSError) -> FitError:
    """Returns the error for a file or folder that the system does not let us write."""
    return FitError(
        f"{out}: cannot be written ({error.strerror or error}); choose another --out"
    )


def write(
    found: Iterable[Table],
    out: Path,
    with_latex: bool = False,
    rows: Mapping[str, object] = NO_RECORD,
) -> dict[Path, int]:
    """Writes the tables of a `Fit`, and returns a dict from path to number of rows.

    Each file is written whole or not at all. Raises FitError if the folder cannot be
    written, and StoreError if a file would replace one that this package did not make.

    Args:
        found: the three tables.
        out: the folder.
        with_latex: whether to write the thresholds and the exponents also as LaTeX. A
            table without rows has no LaTeX file.
        rows: a description of the fitted rows. Each file contains this description.
    """
    names = ("thresholds", "exponents", "diagnostics")
    tables: dict[str, Table] = dict(zip(names, found, strict=True))
    for name in ASKED_FOR:
        if getattr(found, name, None) is not None:
            tables[name] = getattr(found, name)
    files = {}
    for name, table in tables.items():
        files[out / f"{name}.parquet"] = _parquet(table, rows)
    for name in ("thresholds", "exponents"):
        if with_latex and len(tables[name]):
            text = f"% {comment(rows)}\n{latex(tables[name])}"
            files[out / f"{name}.tex"] = text.encode()
    for path in files:
        refuse_foreign(path)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            atomic_write(path, content)
    except OSError as error:
        raise unwritable(out, error) from error
    return {path: len(tables[path.stem]) for path in files}


def _parquet(table: Table, rows: Mapping[str, object]) -> bytes:
    """Returns the bytes of a Parquet file that contains a table."""
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
        UsageError: if the table is none of these, or has no rows.

    Examples:
        >>> import jaxrecall
        >>> found = jaxrecall.fit.fit(jaxrecall.load("results/quickstart"), [0.5])
        >>> print(jaxrecall.latex(found.exponents))
    """
    if hasattr(table, "reset_index"):
        table = plain_table("table", table)
    names = [*getattr(table, "columns", ())]
    if not {"theta", "lo", "hi"} <= {*names} or not {"critical", "exponent"} & {*names}:
        got = ", ".join(map(str, names)) or type(table).__name__
        raise UsageError(
            f"table: got {got}; allowed: thresholds or exponents of a fit, or"
            " thresholds of a search"
        )
    if not len(table):
        raise UsageError("table: no rows; allowed: at least one row")
    is_law = "exponent" in names
    columns = _law_columns(table) if is_law else _threshold_columns(table)
    rows = map(" & ".join, (columns, *zip(*columns.values(), strict=True)))
    head, *body = map(r"{} \\".format, rows)
    return TABLE.substitute(
        caption=caption or _caption(table, columns),
        label=label or ("tab:exponents" if is_law else "tab:thresholds"),
        columns="l" * len(columns),
        head=head,
        body="\n    ".join(body),
    )


def _law_columns(table: Table) -> dict[str, list[str]]:
    columns = _settings(table, ("along", "part", "theta"))
    if table["regime"].any():
        columns["regime"] = list(map(_setting, table["regime"]))
    columns["axis"] = list(map(symbol, table["axis"]))
    columns["exponent"] = list(map(_exponent, table.to_dict("records")))
    columns["cells"] = list(map(_setting, table["n_cells"]))
    if "misfit" in table:  # tables of earlier versions have none
        columns["misfit / noise"] = [
            "--" if is_missing(ratio) else f"{ratio:.1f}" for ratio in table["misfit"]
        ]
    return columns


def _threshold_columns(table: Table) -> dict[str, list[str]]:
    names = list(table)
    before = names[: names.index("theta") + 1]
    columns = _settings(table, without(before, NO_AXES))
    what = symbol(str(table["axis"].iloc[0]), "^*")
    columns[what] = list(map(_critical, table.to_dict("records")))
    return columns


def _settings(table: Table, names: Iterable[str]) -> dict[str, list[str]]:
    """Returns a dict from heading to cells for the settings that vary."""
    columns = {}
    for name in names:
        if table[name].nunique(dropna=False) > 1:
            columns[symbol(name)] = list(map(_setting, table[name]))
    return columns


def _caption(table: Table, columns: Mapping[str, list[str]]) -> str:
    """Returns the default caption, which names the quantity and explains the marks."""
    is_law = "exponent" in columns
    along, theta = table["along" if is_law else "axis"].iloc[0], table["theta"].iloc[0]
    if is_law and is_missing(theta):  # a law of the option --law
        told = f"the mean of {escaped(along)}"
    else:
        if symbol("theta") in columns:
            theta = "theta"
        of = escaped(table.attrs.get("of") or "accuracy")
        told = f"{symbol(str(along), '^*')}, where {of} crosses {_setting(theta)}"
    if is_law:
        told = f"Exponents of {told}"
    if table["lo"].notna().any():
        told += "; in brackets 95\\,\\% intervals"
    told += "."
    exponents = " ".join(columns.get("exponent", ()))
    for mark, note in NOTES.items():
        if f"{{{mark}}}" in exponents:
            told += f" {note}"
    return told


def _critical(row: Mapping[str, AxisValue]) -> str:
    """Formats a critical value with its interval.

    If there is no crossing, the result is a bound or the outcome of a search.
    """
    if not is_missing(row["critical"]):
        return _with_interval(row, row["critical"], number)
    side = row.get("censored")
    if side in ("left", "right"):
        bound = f"$>$ {_setting(row['N_below'])}"
        if side == "left":
            bound = f"$<$ {_setting(row['N_above'])}"
        is_plain = row.get("state", ABOVE) in (ABOVE, NOT_REACHED)
        return bound if is_plain else f"{bound} ({row['state']})"
    return escaped(str(row.get("outcome", "--")).replace("_", " "))


def _exponent(row: Mapping[str, AxisValue]) -> str:
    if is_missing(row["exponent"]):
        return "--"
    text = _with_interval(row, row["exponent"], _signed)
    if row["rejected"]:
        return rf"{text}\textsuperscript{{\dag}}"
    if row.get("state") == UNCHECKED:
        return rf"{text}\textsuperscript{{\ddag}}"
    return text


def _signed(value: float) -> str:
    """Formats a number with two decimals and a LaTeX minus sign."""
    return re.sub("^-.*", r"$\g<0>$", _two(value))


def _with_interval(
    row: Mapping[str, AxisValue], value: float, form: Callable[[float], str]
) -> str:
    ends = []
    for end in (row["lo"], row["hi"]):
        if not is_missing(end):
            ends.append("$\\infty$" if math.isinf(end) else form(end))
    if not ends:
        return form(value)
    return f"{form(value)} [{', '.join(ends)}]"


def number(value: float) -> str:
    r"""Formats a number with three digits, as 17\,400 or $1.74 \times 10^{9}$."""
    digits, _, power = f"{value:.2e}".partition("e")
    if value and not -4 < int(power) < 7:
        return rf"${digits} \times 10^{{{int(power)}}}$"
    n_decimals = max(0, 2 - int(power)) if value else 0
    text = f"{float(f'{value:.2e}'):,.{n_decimals}f}"
    return text.replace(",", r"\," if value >= 1e4 else "")


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
    if short in LETTERS.split():
        return rf"$\{short}{mark}$"
    if short == "gamma2":
        return rf"$\gamma_2{mark}$"
    if len(short) == 1 and short.isalnum():
        return f"${short}{mark}$"
    return escaped(name) + (f"${mark}$" if mark else "")


def escaped(text: str) -> str:
    """Returns the text with LaTeX's special characters escaped."""
    return text.translate(ESCAPES).replace("$<$=", r"$\leq$").replace("$>$=", r"$\geq$")
