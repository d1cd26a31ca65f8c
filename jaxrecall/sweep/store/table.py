"""Tables of rows: to and from Parquet files, joined, sorted, one row per run and step.

And how old derived files are: a table of a fit and a report say which rows they were
made from. A Parquet file has them in its metadata, any other in a comment at its start,
as `jaxrecall: {"rows": 528, "digest": "0123456789abcdef", "version": "1.0"}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import StoreError
from ...model.columns import COLUMNS, in_order
from ...model.point import RECIPE_STEPS, SAME_AS, STARTS
from ..files import PARTS, Json, Unreadable, holds_results


def schema_of(columns: Mapping[str, tuple[str, ...]]) -> pa.Schema:
    """The schema of columns with these Arrow types and meanings, parameters of laws
    with their unit too.
    """
    described = {
        name: (kind, dict(zip(("description", "unit"), told, strict=False)))
        for name, (kind, *told) in columns.items()
    }
    return pa.schema(
        [
            pa.field(name, pa.type_for_alias(kind), metadata=told)
            for name, (kind, told) in described.items()
        ]
    )


SCHEMA = schema_of(COLUMNS)
"""Types of the columns; the metadata of each field is its meaning, and is kept in the
files.
"""

RUN = ["point_id", "seed"]
ROW = [*RUN, "step"]
VERSION = ["code_version", "precision"]
NEEDED = [*RUN, *VERSION, "status"]
"""Columns without which, or with a null in which, a file is no part."""

OURS = ["V", "N", "d", "L", "m", "n_test"]
"""The same of the simulator of this package."""

MEASURED = ["n_correct", "accuracy"]
"""Columns that such a file has too, and that are finite numbers where status is ok. Any
other that is missing was added later and reads as null, or as what it is for every
older row."""

OF_OLDER_ROWS = {
    "steps": RECIPE_STEPS,
    "start": STARTS[0],
    "step": RECIPE_STEPS,
    "tokens": "uniform",
    "label_noise": 0.0,
    **SAME_AS,
}
"""What columns hold in rows from before they were there; the name of a column stands
for its values.
"""

X64_OFF = {"x64": False}
"""The same of a simulator of one's own, whose rows did not say."""

KEY = b"jaxrecall"
"""The entry of a schema's metadata that says, as JSON, what a table is about:

    axes        the fields that the grid varies, in its order
    kept        the helpers of the grid that are columns, if any
    xla_flags   the options in XLA_FLAGS of the processes that made the rows, if any
    searched    the field that a search varies, empty without a search
    fixed       the other fields that the grid gives, with their values
    simulator   the name of a simulator of one's own
    fields      its fields, in order
    accuracy    its column of accuracy
    sources     laws of the user's own, with a hash of their source
    columns     columns of the user's own on the simulator of this package, with path
        and digest of each function

and, in a file, when and by which versions it was written.
"""

_SORT = [
    "root_seed",
    "V",
    "N",
    "d",
    "L",
    "m",
    "embedding",
    "activation",
    *ROW,
    *VERSION,
]


def of_rows(
    rows: list[Json], columns: Mapping[str, tuple[str, ...]] = COLUMNS
) -> pa.Table:
    """A table of rows with exactly these columns, and parameters of laws (None for
    null).

    It is sorted by run and step. Raises StoreError.
    """
    rows = [in_order(row, columns) for row in rows]
    schema = SCHEMA if columns is COLUMNS else schema_of(columns)
    for name in sorted({name for row in rows for name in row.keys() - columns.keys()}):
        schema = schema.append(
            pa.field(name, pa.float64(), metadata={"description": "parameter of a law"})
        )
    arrays = {}
    for field in schema:
        try:
            arrays[field.name] = pa.array(
                [row.get(field.name) for row in rows], field.type
            )
        except (pa.ArrowException, OverflowError) as error:
            kind = columns.get(field.name, ("float64", ""))[0]
            raise StoreError(
                f"rows: {field.name}: {error}; allowed: {kind} or None"
            ) from error
    return pa.table(arrays, schema=schema).sort_by(
        [(name, "ascending") for name in ROW]
    )


def _usable(facts: Json, names: list[str]) -> Json:
    """The facts of a table with these columns that are what `KEY` says."""

    def texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)

    checks: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(("axes", "kept", "xla_flags"), texts),
        **dict.fromkeys(
            ("fixed", "columns", "sources"), lambda value: isinstance(value, dict)
        ),
        "fields": lambda value: texts(value) and {*value} <= {*names},
        "accuracy": lambda value: (
            value in names
            or (isinstance(value, str) and facts.get("simulator") is not None)
        ),
        "searched": lambda value: value in ("", *names),
        **dict.fromkeys(("simulator", "created"), lambda value: isinstance(value, str)),
    }
    return {
        name: value
        for name, value in facts.items()
        if value is None or name not in checks or checks[name](value)
    }


def about(table: Any) -> Json:
    """What a table, or a file of one, is about, under `KEY` of its metadata; nothing
    where that is missing or damaged.
    """
    schema = table if isinstance(table, pa.Schema) else table.schema
    try:
        found = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return _usable(found, schema.names) if isinstance(found, dict) else {}


def with_about(table: pa.Table, facts: Json) -> pa.Table:
    """The table, about these facts."""
    return table.replace_schema_metadata({KEY: json.dumps(facts).encode()})


def _joint_facts(parts: list[Json], table: pa.Table) -> Json:
    """What a table is about that was joined from parts about these.

    Their axes in the order of the files' age, then the fields that differ from grid to
    grid. No axes where a part has none, as it has no grid or was written by an older
    version.
    """
    facts = {
        name: value
        for name, value in parts[0].items()
        if name in ("simulator", "fields", "accuracy", "columns")
    }
    for name in ("kept", "xla_flags"):
        if found := dict.fromkeys(
            one for part in parts for one in part.get(name) or ()
        ):
            facts[name] = [*found]
    if sources := {
        name: digest
        for part in parts
        for name, digest in (part.get("sources") or {}).items()
    }:
        facts["sources"] = sources
    if any(part.get(name) is None for part in parts for name in ("axes", "fixed")):
        return facts
    if len(searched := {part.get("searched") or "" for part in parts}) == 1:
        facts |= {"searched": searched.pop()}
    parts = sorted(parts, key=lambda part: part.get("created") or "")
    axes = dict.fromkeys(name for part in parts for name in part["axes"])
    fixed = {
        name: value
        for part in reversed(parts)
        for name, value in part["fixed"].items()
        if name not in axes
    }
    for name in fixed:
        same = all(part["fixed"].get(name) == fixed[name] for part in parts)
        if not same and name in table.column_names and len(table[name].unique()) > 1:
            axes[name] = None
    return facts | {
        "axes": list(axes),
        "fixed": {name: value for name, value in fixed.items() if name not in axes},
    }


def to_parquet(table: pa.Table) -> pa.Buffer:
    """The bytes of a file, each page with its checksum.

    Provenance and pandas types are in the metadata of its schema.
    """
    provenance: Json = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **about(table),
    }
    for name in (*VERSION, "jax_version"):
        values = table[name].unique().to_pylist()
        provenance[name] = values[0] if len(values) == 1 else values
    table = with_pandas_types(table)
    sink = pa.BufferOutputStream()
    metadata = {**(table.schema.metadata or {}), KEY: json.dumps(provenance).encode()}
    pq.write_table(
        table.replace_schema_metadata(metadata),
        sink,
        compression="zstd",
        write_statistics=True,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read(
    paths: Iterable[Path], columns: list[str] | None = None
) -> tuple[dict[Path, pa.Table], Unreadable]:
    """The tables by file, and what is no readable part; a file that is gone is neither.

    All columns are read and checked whichever of them are wanted, so that what counts
    as done is what `load` can read.
    """
    tables, unreadable = {}, []
    for path in paths:
        try:
            table = read_file(path)
        except MemoryError:
            raise
        # whatever a file holds, it must not keep the others from being read
        except Exception as error:
            if os.path.lexists(path):
                unreadable.append(
                    (path, " ".join(f"{error}".split())[:200] or type(error).__name__)
                )
            continue
        tables[path] = (
            table.select([name for name in columns if name in table.column_names])
            if columns
            else table
        )
    return tables, unreadable


def read_file(path: Path) -> pa.Table:
    """The rows of one file; raises any exception if it is no readable part."""
    if path.suffix != ".parquet" or not path.is_file():
        raise ValueError("not a .parquet file")
    with (
        open(path, "rb") as bytes_,
        pq.ParquetFile(bytes_, page_checksum_verification=True) as file,
    ):  # a path need not be UTF-8
        present, facts = file.schema_arrow.names, about(file.schema_arrow)
        own = facts.get("simulator") is not None
        needed, measured = (
            ([*NEEDED, "step", "steps"], [str(facts.get("accuracy"))])
            if own
            else ([*NEEDED, *OURS], MEASURED)
        )
        if missing := [name for name in (*needed, *measured) if name not in present]:
            raise ValueError(f"no column {', '.join(missing)}")
        table = file.read()
    names = table.column_names
    written = [
        column.get("field_name")
        for column in (table.schema.pandas_metadata or {}).get("columns", ())
    ]
    if (
        len(written) == len(names) and written != names
    ):  # pages have checksums, names have none
        raise ValueError("names of columns are damaged")
    fields = _standard(table.schema, own)
    table = pa.table([table[field.name].cast(field.type) for field in fields], fields)
    older, schema = (
        (X64_OFF, pa.schema([("x64", pa.bool_())])) if own else (OF_OLDER_ROWS, SCHEMA)
    )
    for name, of in older.items():
        field = schema.field(name)
        if name not in names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        if table[name].null_count:
            known = table[of] if of in table.column_names else pa.scalar(of, field.type)
            table = table.set_column(
                table.column_names.index(name),
                name,
                pc.call_function("coalesce", [table[name], known]),
            )
    table.validate(full=True)
    if null := [name for name in needed if table[name].null_count]:
        raise ValueError(f"nulls in {', '.join(null)}")
    if lacking := [
        name for name in measured if "ok" in _statuses_without_number(table, name)
    ]:
        raise ValueError(f"no number in {', '.join(lacking)} of a row with status ok")
    return with_about(table, facts)


def unlike(known: pa.Schema, paths: Iterable[Path]) -> tuple[pa.Schema, list[Path]]:
    """The columns known and those of all files that are parts, and the files that have
    others.

    Raises an exception of Arrow where types do not go together.
    """
    found: dict[Any, tuple[pa.Schema, list[Path]]] = {}
    for path in (
        path for path in paths if path.suffix == ".parquet" and path.is_file()
    ):
        with (
            suppress(Exception),
            open(path, "rb") as file,
        ):  # whatever a file holds; `read` gives the reason
            schema = pq.read_schema(file)
            own = about(schema).get("simulator") is not None
            if {*NEEDED, *(() if own else (*OURS, *MEASURED))} <= {*schema.names}:
                found.setdefault(
                    frozenset(zip(schema.names, schema.types, strict=True)),
                    (_standard(schema, own), []),
                )[1].append(path)
    every = pa.unify_schemas(
        [known, *(schema for schema, _ in found.values())], promote_options="permissive"
    )
    return every, [
        path
        for types, (_, these) in found.items()
        if types ^ {*zip(every.names, every.types, strict=True)}
        for path in these
    ]


def _standard(schema: pa.Schema, own: bool) -> pa.Schema:
    """The columns of a file as they are read: those of this package as in SCHEMA."""
    return pa.schema(
        [
            SCHEMA.field(field.name) if field.name in COLUMNS and not own else field
            for field in schema
        ]
    )


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of a schema, null where it has none; its other columns
    stay.
    """
    has, wide = (
        {*table.column_names},
        pa.unify_schemas(
            [schema, table.schema.remove_metadata()], promote_options="permissive"
        ),
    )
    columns = [
        table[f.name].cast(f.type) if f.name in has else pa.nulls(len(table), f.type)
        for f in wide
    ]
    return with_about(pa.table(columns, wide), about(table))


def _statuses_without_number(table: pa.Table, name: str) -> list[str]:
    """The values of `status` where a column holds no finite number.

    Arrow's own functions, as NumPy or a Python value start pandas.
    """
    column = table[name]
    finite = pc.call_function(
        "and_kleene", [column.is_valid(), pc.call_function("is_finite", [column])]
    )
    return (
        table["status"]
        .filter(pc.call_function("invert", [finite]))
        .unique()
        .to_pylist()
    )


def joined(tables: Iterable[pa.Table]) -> pa.Table:
    """One table: the known columns in table order, null where a file lacks one, then
    any others.

    It is about what they are about.
    """
    tables = [table for table in tables if len(table)]
    facts = [about(table) for table in tables] or [{}]
    names = {str(part.get("simulator", "jaxrecall")) for part in facts}
    if len(names) > 1:
        raise StoreError(
            "the tables do not go together: they are of the simulators"
            f" {', '.join(sorted(names))}; read those of one"
        )
    first = [] if "simulator" in facts[0] else [SCHEMA.empty_table()]
    try:
        table = pa.concat_tables(
            [*first, *tables], promote_options="permissive"
        ).combine_chunks()
    except pa.ArrowException as error:
        raise StoreError(
            f"the tables do not go together: {error}; rename that column in one of them"
        ) from error
    return with_about(table, _joint_facts(facts, table))


def last_rows(table: pa.Table) -> pa.Table:
    """The row of the last step of each run."""
    return table.filter(pc.call_function("equal", [table["step"], table["steps"]]))


def best(table: pa.Table, keys: list[str]) -> pa.Table:
    """One row per `keys`: ok before others, then the newest code_version, then the
    first.
    """
    bad = table["status"].to_numpy() != "ok"
    order = pa.array(
        np.lexsort((-table["code_version"].to_numpy(), bad))
    )  # stable; the last key counts first
    ranked = table.select(keys).take(order).append_column("row", order)
    return table.take(
        ranked.group_by(keys, use_threads=False).aggregate([("row", "first")])[
            "row_first"
        ]
    )


def in_table_order(table: pa.Table) -> pa.Table:
    """Sorted by the point, then the seed, then the step."""
    first = about(table).get("fields")
    names = [*first, *ROW, *VERSION] if isinstance(first, list) else _SORT
    return table.sort_by([(name, "ascending") for name in names])


def with_pandas_types(table: pa.Table) -> pa.Table:
    """Tells pandas to read ints and bools with nulls as its nullable types.

    It would make floats and objects of them.
    """
    nullable = {"int64": "Int64", "bool": "boolean"}
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        kind = str(field.type)
        if not (
            kind == "string" or pa.types.is_primitive(field.type)
        ) or pa.types.is_temporal(field.type):
            # a column of another program, which pandas reads as it does by itself
            continue
        numpy = nullable.get(kind, kind) if column.null_count else kind
        kinds = (
            {"pandas_type": "unicode", "numpy_type": "object"}
            if kind == "string"
            else {"pandas_type": kind, "numpy_type": numpy}
        )
        columns.append(
            {"name": field.name, "field_name": field.name, **kinds, "metadata": None}
        )
    kinds = {
        "index_columns": [],
        "column_indexes": [],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
    }
    return table.replace_schema_metadata(
        {**(table.schema.metadata or {}), b"pandas": json.dumps(kinds).encode()}
    )


IDENTITY = [*ROW, "code_version"]
COMMENT = re.compile(rb"jaxrecall: (\{[^}]*\})")


def seen(tables: Iterable[Any]) -> dict[str, Any]:
    """How many rows there are in tables of Arrow or pandas, their digest, and this
    version.

    A row counts once, wherever and however often it is there: the digest is of
    point_id, seed and step, and of the code_versions among them. It takes less than a
    second for 10^6 rows.
    """
    found = (
        (
            t
            if isinstance(t, pa.Table)
            else pa.Table.from_pandas(t[IDENTITY], preserve_index=False)
        )
        for t in tables
    )
    texts = pa.schema([(name, pa.string()) for name in IDENTITY])
    rows = pa.concat_tables(
        [
            pa.Table.from_batches([], texts),
            *(table.select(IDENTITY).cast(texts) for table in found),
        ]
    )
    names = pc.call_function(
        "binary_join_element_wise", [rows["seed"], rows["step"], rows["point_id"]]
    )  # the last one in between
    hashed, columns = (
        hashlib.sha256(),
        [column.unique() for column in (names, rows["code_version"])],
    )
    for column in columns:
        hashed.update(
            column.take(pc.call_function("array_sort_indices", [column])).buffers()[2]
            or b""
        )
    return {
        "rows": len(columns[0]),
        "digest": hashed.hexdigest()[:16],
        "version": version("jaxrecall"),
    }


def comment(rows: Mapping[str, Any]) -> str:
    """The text of the comment in a file that was made from these rows."""
    return f"jaxrecall: {json.dumps(rows)}"


def older(folder: Path, rows: Mapping[str, Any]) -> list[str]:
    """A line for the derived files of a folder that were made from other rows than it
    has now.

    Such as "report.html, thresholds.parquet: older than 660 rows".
    """
    found: dict[int, list[str]] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in (PARTS, "failures", "_staging")
            and not holds_results(Path(place, name))
        ]
        for path in (
            Path(place, name)
            for name in sorted(names)
            if name.endswith((".parquet", ".tex", ".html"))
        ):
            then = _rows_of(path)
            if isinstance(n := then.get("rows"), int) and then.get(
                "digest", ""
            ) not in ("", rows.get("digest")):
                found.setdefault(max(0, rows["rows"] - n), []).append(
                    str(path.relative_to(folder))
                )
    return [
        f"{', '.join(names)}:"
        f" {f'older than {n} rows' if n else 'not made from these rows'}"
        for n, names in found.items()
    ]


def _rows_of(path: Path) -> dict[str, Any]:
    """The rows that a file was made from; nothing where it does not say."""
    with suppress(OSError, ValueError, IndexError, RecursionError, pa.ArrowException):
        if path.is_file():  # a pipe would wait forever
            with open(path, "rb") as file:
                if path.suffix == ".parquet":
                    return about(pq.read_schema(file))
                return json.loads(
                    COMMENT.findall(file.read(1000))[0]
                )  # it is at the start
    return {}
