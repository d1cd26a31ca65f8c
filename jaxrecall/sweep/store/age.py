"""How old derived files are: the rows that tables of a fit and reports were made from.

A Parquet file has them in its metadata, any other in a comment at its start, as
`jaxrecall: {"rows": 528, "digest": "0123456789abcdef", "version": "1.0"}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..files import PARTS, holds_results
from .table import ROW, about

IDENTITY = [*ROW, "code_version"]
COMMENT = re.compile(rb"jaxrecall: (\{[^}]*\})")


def seen(tables: Iterable[Any]) -> dict[str, Any]:
    """How many rows there are in tables of Arrow or pandas, their digest, and this version.

    A row counts once, wherever and however often it is there: the digest is of
    point_id, seed and step, and of the code_versions among them. It takes less than a
    second for 10^6 rows.
    """
    found = (t if isinstance(t, pa.Table) else pa.Table.from_pandas(t[IDENTITY], preserve_index=False) for t in tables)
    texts = pa.schema([(name, pa.string()) for name in IDENTITY])
    rows = pa.concat_tables([pa.Table.from_batches([], texts), *(table.select(IDENTITY).cast(texts) for table in found)])
    names = pc.call_function("binary_join_element_wise", [rows["seed"], rows["step"], rows["point_id"]])  # the last one in between
    hashed, columns = hashlib.sha256(), [column.unique() for column in (names, rows["code_version"])]
    for column in columns:
        hashed.update(column.take(pc.call_function("array_sort_indices", [column])).buffers()[2] or b"")
    return {"rows": len(columns[0]), "digest": hashed.hexdigest()[:16], "version": version("jaxrecall")}


def comment(rows: Mapping[str, Any]) -> str:
    """The text of the comment in a file that was made from these rows."""
    return f"jaxrecall: {json.dumps(rows)}"


def older(folder: Path, rows: Mapping[str, Any]) -> list[str]:
    """A line for the derived files of a folder that were made from other rows than it has now.

    Such as "report.html, thresholds.parquet: older than 660 rows".
    """
    found: dict[int, list[str]] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in (PARTS, "failures", "_staging") and not holds_results(Path(place, name))]
        for path in (Path(place, name) for name in sorted(names) if name.endswith((".parquet", ".tex", ".html"))):
            then = _rows_of(path)
            if isinstance(n := then.get("rows"), int) and then.get("digest", "") not in ("", rows.get("digest")):
                found.setdefault(max(0, rows["rows"] - n), []).append(str(path.relative_to(folder)))
    return [f"{', '.join(names)}: {f'older than {n} rows' if n else 'not made from these rows'}" for n, names in found.items()]


def _rows_of(path: Path) -> dict[str, Any]:
    """The rows that a file was made from; nothing where it does not say."""
    with suppress(OSError, ValueError, IndexError, RecursionError, pa.ArrowException):
        if path.is_file():  # a pipe would wait forever
            with open(path, "rb") as file:
                if path.suffix == ".parquet":
                    return about(pq.read_schema(file))
                return json.loads(COMMENT.findall(file.read(1000))[0])  # it is at the start
    return {}
