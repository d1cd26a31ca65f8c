"""What a fit has found: a few lines of text, and files, Parquet or LaTeX."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import FitError, UsageError
from ...sweep.files import atomic_write, holds_results
from ...sweep.store.table import KEY, comment
from .axes import Table, Value
from .latex import latex


def summary(found: Iterable[Table]) -> Iterator[str]:
    """For each theta how many cells cross, the exponents with their intervals, and every warning."""
    thresholds, exponents, diagnostics = found
    for theta in dict.fromkeys(thresholds["theta"]) or [None]:
        if theta is not None:
            yield f"theta = {theta:g}: {_crossings(thresholds[thresholds['theta'] == theta])}"
        said = diagnostics if theta is None else diagnostics[diagnostics["theta"] == theta]
        for row in (exponents if theta is None else exponents[exponents["theta"] == theta]).itertuples():
            what = row.along if theta is None else f"{row.along}*"
            if row.exponent != row.exponent:
                yield f"  {_law(row)}: the cells do not determine how {what} depends on {row.axis}"
            else:
                ends = f"  95 % interval {_two(row.lo)} to {_two(row.hi)}" if row.lo == row.lo else ""
                yield f"  {_law(row)}: {what} ~ {row.axis}^{_two(row.exponent)}{ends}{'  (law rejected)' if row.rejected else ''}"
        yield from (f"  warning, {_law(row)}: {row.text}" for row in said[said["diagnostic"] == "warning"].itertuples())


def _crossings(thresholds: Table) -> str:
    """How many of the cells cross, count in the law, are censored or are copies."""
    n, n_copies = len(thresholds), int(thresholds["copy_of"].notna().sum())
    cells = f"{n} cell{'s' * (n > 1)}" + (f", of which {n_copies} repeat the counts of another" if n_copies else "")
    counts, unsure = thresholds["censored"].value_counts(), int(thresholds["warning"].str.contains("crossing not sure").sum())
    cross = f"{counts.get('no', 0)} cross" + (f", {unsure} of them not surely enough for the law" if unsure else "")
    return f"{cells}: {'; '.join([cross, *(f'{counts[side]} censored {side}' for side in ('left', 'right') if side in counts)])}"


def _law(row: Value) -> str:
    return f"{row.part}, {row.regime}" if row.regime else row.part


def _two(value: float) -> str:
    """Two decimals; 0.00 for what rounds to it, without a sign."""
    return f"{round(value, 2) + 0.0:.2f}"


def default_folder(tables: Sequence[Path], of: str = "accuracy", along: str | None = None) -> Path:
    """The results folder itself, or FILE-fit beside a file; raises UsageError for several.

    Another accuracy or axis has its own folder there.
    """
    if len(tables) > 1:
        raise UsageError(f"--out: nothing given; needed with {len(tables)} folders, as in --out laws")
    path = tables[0]
    folder = path if holds_results(path) else beside(path, "-fit")
    folder = folder if of == "accuracy" else folder / of
    return folder if along is None else folder / f"along-{along}"


def beside(path: Path, ending: str) -> Path:
    """The path of a file beside another one, or what it links to, with its name and this ending."""
    place = Path(os.path.realpath(path))  # unlike resolve, it takes links that lead to themselves
    return place.parent / f"{place.stem}{ending}"


def check_folder(out: Path) -> None:
    """Raises UsageError for a folder that cannot be written, before anything is fitted; makes nothing."""
    nearest = next(path for path in (out, *Path(os.path.realpath(out)).parents) if os.path.exists(path))
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK):
        raise UsageError(f"{out}: cannot be written ({nearest} is not a folder, or not writable); choose another --out")


def write(found: Iterable[Table], out: Path, with_latex: bool = False, rows: Mapping[str, object] | None = None) -> dict[Path, int]:
    """Writes each table of a `Fit` whole or not at all; returns the files with their rows.

    Raises FitError. `rows` is what they say of the rows that they were made from.
    `with_latex` writes the thresholds and the exponents as LaTeX too; a table without
    rows has no such file.
    """
    tables, about = dict(zip(("thresholds", "exponents", "diagnostics"), found, strict=True)), rows or {}
    files = {f"{name}.parquet": (_parquet(table, about), len(table)) for name, table in tables.items()}
    for name in ("thresholds", "exponents") if with_latex else ():
        if n := len(tables[name]):
            files[f"{name}.tex"] = f"% {comment(about)}\n{latex(tables[name])}".encode(), n
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, (content, _) in files.items():
            atomic_write(out / name, content)
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return {out / name: n for name, (_, n) in files.items()}


def _parquet(table: Table, rows: Mapping[str, object]) -> bytes:
    """The bytes of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.Table.from_pandas(table, preserve_index=False)
    sink = pa.BufferOutputStream()
    metadata = {**(made.schema.metadata or {}), "PANDAS_ATTRS": json.dumps(table.attrs), KEY: json.dumps(rows)}
    pq.write_table(made.replace_schema_metadata(metadata), sink)
    return sink.getvalue()
