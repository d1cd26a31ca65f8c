"""What a fit has found: a few lines of text, a table for a notebook,
and files, Parquet with the meaning of each column or LaTeX.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...errors import FitError, UsageError
from ...model.point import FIELDS
from ...sweep.files import atomic_write, holds_results
from ...sweep.store.age import comment
from ...sweep.store.table import KEY
from .latex import latex
from .tables import DIAGNOSTICS, EXPONENTS, THRESHOLDS

Table = Any  # pandas.DataFrame, whose own types say less than Any
COLUMNS = {"thresholds": THRESHOLDS, "exponents": EXPONENTS, "diagnostics": DIAGNOSTICS}

SHOWN = ("part", "regime", "theta", "axis", "exponent", "lo", "hi", "n_cells", "n_seeds", "rejected", "warning")
"""Columns of the exponents in a notebook."""


def summary(thresholds: Table, exponents: Table, diagnostics: Table) -> Iterator[str]:
    """For each theta: how many cells cross, the reported
    exponents with their intervals, and every warning.
    """
    for theta, mine in thresholds[thresholds["record"]].groupby("theta", sort=False):
        yield f"theta = {theta:g}: {crossings(mine)}"
        yield from _laws(exponents[exponents["theta"] == theta], diagnostics[diagnostics["theta"] == theta])
    if not len(thresholds):
        yield from _laws(exponents, diagnostics)


def _laws(exponents: Table, diagnostics: Table) -> Iterator[str]:
    """The exponents, those of the mean of a column with their local slopes, and what to be careful about."""
    for row in exponents[exponents["record"]].itertuples():
        what = f"{row.along}*" if row.theta == row.theta else row.along
        if row.exponent != row.exponent:
            yield f"  {_law(row)}: the cells do not determine how {what} depends on {row.axis}"
            continue
        yield f"  {_law(row)}: {what} ~ {row.axis}^{_two(row.exponent)}{_ends(row)}{'  (law rejected)' if row.rejected else ''}"
        mine = diagnostics[(diagnostics["part"] == row.part) & (diagnostics["regime"] == row.regime) & (what == row.along)]
        slopes = mine[(mine["diagnostic"] == "local_slope") & mine["subject"].str.startswith(f"{row.axis} ")]
        yield from (f"    {slope.subject}: {_two(slope.value)}{_ends(slope)}" for slope in slopes.itertuples())
    warnings = diagnostics[diagnostics["diagnostic"] == "warning"]
    yield from (f"  warning, {_law(row)}: {row.text}" for row in warnings.itertuples())


def _ends(row: Any) -> str:
    return f"  95 % interval {_two(row.lo)} to {_two(row.hi)}" if row.lo == row.lo else ""


def crossings(thresholds: Table) -> str:
    """How many of the cells cross, count in the law, are censored
    or are copies; `thresholds` has one row for each cell.
    """
    n, n_distinct = len(thresholds), int(thresholds["copy_of"].isna().sum())
    cells = f"{n} cell{'s' * (n > 1)}" + (f", of which {n - n_distinct} repeat the counts of another" if n_distinct < n else "")
    counts = thresholds["censored"].value_counts()
    cross = f"{counts.get('no', 0)} cross"
    if unsure := int(thresholds["warning"].str.contains("crossing not sure").sum()):
        cross += f", {unsure} of them not surely enough for the law"
    censored = [f"{counts[side]} censored {side}" for side in ("left", "right") if side in counts]
    return f"{cells}: {'; '.join([cross, *censored])}"


def html(exponents: Table, lines: list[str]) -> str:
    """The reported exponents as a table, and the lines below it that are no exponents."""
    table = exponents.loc[exponents["record"], list(SHOWN)]
    table = table.loc[:, [name for name in SHOWN if name not in ("regime", "warning") or (table[name] != "").any()]]
    notes = "".join(f"<br>{escape(line.strip())}" for line in lines if "* ~" not in line)
    return table.to_html(index=False, float_format="{:.3g}".format, border=0) + f"<p>{notes.removeprefix('<br>')}</p>"


def _law(row: Any) -> str:
    return f"{row.part}, {row.regime}" if row.regime else row.part


def _two(value: float) -> str:
    """Two decimals; 0.00 for what rounds to it, without a sign."""
    return f"{round(value, 2) + 0.0:.2f}"


def default_folder(tables: Sequence[Path], of: str = "accuracy", along: str | None = None) -> Path:
    """The results folder itself, or FILE-fit beside a file; another accuracy or axis
    has its own folder there. Raises UsageError for several."""
    if len(tables) > 1:
        raise UsageError(f"--out: nothing given; needed with {len(tables)} folders, as in --out laws")
    path = tables[0]
    folder = path if holds_results(path) else beside(path, "-fit")
    folder = folder if of == "accuracy" else folder / of
    return folder if along is None else folder / f"along-{along}"


def beside(path: Path, ending: str) -> Path:
    """The path of a file beside another one, or beside what it links to, with its name and this ending."""
    place = Path(os.path.realpath(path))  # unlike resolve, it takes links that lead to themselves
    return place.parent / f"{place.stem}{ending}"


def check_folder(out: Path) -> None:
    """Raises UsageError for a folder that cannot be written, before anything is fitted; makes nothing."""
    nearest = next(path for path in (out, *Path(os.path.realpath(out)).parents) if os.path.exists(path))
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK):
        raise UsageError(f"{out}: cannot be written ({nearest} is not a folder, or not writable); choose another --out")


def write(found: Any, out: Path, with_latex: bool = False, rows: Mapping[str, Any] | None = None) -> dict[Path, int]:
    """Writes each table of a `Fit` whole or not at all; returns
    the files, each with its number of rows. Raises FitError.

    `rows` is what they say of the rows that they were made from.
    `with_latex` writes the thresholds and the exponents as LaTeX too; a table without
    rows has no such file.
    """
    written = {}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, columns in COLUMNS.items():
            table = getattr(found, name)
            atomic_write(out / f"{name}.parquet", _parquet(table, columns, rows or {}))
            written[out / f"{name}.parquet"] = len(table)
        for name in ("thresholds", "exponents") if with_latex else ():
            if len(table := getattr(found, name)):
                atomic_write(out / f"{name}.tex", f"% {comment(rows or {})}\n{latex(table)}".encode())
                written[out / f"{name}.tex"] = len(table)
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return written


def _parquet(table: Any, columns: Mapping[str, str], rows: Mapping[str, Any]) -> Any:
    """The bytes of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.Table.from_pandas(table, preserve_index=False)
    about = {name: FIELDS[name].metadata["legend"] for name in table if name in FIELDS} | dict(columns)
    fields = [field.with_metadata({"description": about[field.name]}) if field.name in about else field for field in made.schema]
    sink = pa.BufferOutputStream()
    metadata = {**made.schema.metadata, "PANDAS_ATTRS": json.dumps(table.attrs), KEY: json.dumps(rows)}
    pq.write_table(made.cast(pa.schema(fields, metadata)), sink)
    return sink.getvalue()
