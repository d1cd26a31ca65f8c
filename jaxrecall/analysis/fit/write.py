"""The three tables of a fit as Parquet files in a folder; the metadata of each field holds its meaning. If asked, two as LaTeX too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import FitError, UsageError
from ...model.point import FIELDS
from ...sweep.store.files import atomic_write, holds_results
from .fitting import Fit
from .latex import latex
from .tables import DIAGNOSTICS, EXPONENTS, THRESHOLDS

COLUMNS = {"thresholds": THRESHOLDS, "exponents": EXPONENTS, "diagnostics": DIAGNOSTICS}


def default_folder(tables: Sequence[Path], of: str = "accuracy", along: str | None = None) -> Path:
    """The results folder itself, or FILE-fit beside a file; another accuracy or axis has its own folder there. Raises UsageError
    for several."""
    if len(tables) > 1:
        raise UsageError(f"--out: nothing given; needed with {len(tables)} folders, as in --out laws")
    path = tables[0]
    folder = path if holds_results(path) else path.resolve().with_name(f"{path.resolve().stem}-fit")
    folder = folder if of == "accuracy" else folder / of
    return folder if along is None else folder / f"along-{along}"


def check_folder(out: Path) -> None:
    """Raises UsageError for a folder that cannot be written, before anything is fitted; makes nothing."""
    nearest = next(path for path in (out, *out.resolve().parents) if os.path.exists(path))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UsageError(f"{out}: cannot be written ({nearest} is not a folder, or not writable); choose another --out")


def write(found: Fit, out: Path, with_latex: bool = False) -> dict[Path, int]:
    """Writes each table whole or not at all; returns the files, each with its number of rows. Raises FitError.

    `with_latex` writes the thresholds and the exponents as LaTeX too; a table without rows has no such file.
    """
    written = {}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, columns in COLUMNS.items():
            table = getattr(found, name)
            atomic_write(out / f"{name}.parquet", _parquet(table, columns))
            written[out / f"{name}.parquet"] = len(table)
        for name in ("thresholds", "exponents") if with_latex else ():
            if len(table := getattr(found, name)):
                atomic_write(out / f"{name}.tex", latex(table).encode())
                written[out / f"{name}.tex"] = len(table)
    except OSError as error:
        raise FitError(f"{out}: cannot be written ({error.strerror or error}); choose another --out") from error
    return written


def _parquet(table: Any, columns: Mapping[str, str]) -> Any:
    """The bytes of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.Table.from_pandas(table, preserve_index=False)
    about = {name: FIELDS[name].metadata["legend"] for name in table if name in FIELDS} | dict(columns)
    fields = [field.with_metadata({"description": about[field.name]}) if field.name in about else field for field in made.schema]
    sink = pa.BufferOutputStream()
    pq.write_table(made.cast(pa.schema(fields, made.schema.metadata)), sink)
    return sink.getvalue()
