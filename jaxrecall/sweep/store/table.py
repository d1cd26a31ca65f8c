"""Reads tables of rows from Parquet files, and writes, joins and sorts them. A joined
table can be reduced to one row per run and step.

Derived files, such as tables of fits and reports, record the number of rows that they
were made from. In a Parquet file, this record is in the metadata. In any other file, it
is a comment near the start, such as `jaxrecall: {"rows": 528}`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as functions
import pyarrow.parquet as pq
from pyarrow import Schema, Table

from ...errors import StoreError, in_one_line
from ...model.columns import COLUMNS, LIST, Declarations, in_order
from ...model.point import RECIPE_STEPS, SAME_AS, STARTS
from ..files import (
    MAX_BYTES,
    TABLE,
    Json,
    Unreadable,
    read_json,
)
from ..machine import memory_described, memory_limit
from .pages import check_pages

pc: Any = functions  # pyright does not know what it contains


def arrow_schema(columns: Declarations) -> Schema:
    """Returns the Arrow schema of columns. `columns` gives an Arrow type and a meaning
    for each column, and also a unit for parameters of laws.
    """
    fields = []
    for name, (kind, *texts) in columns.items():
        metadata = dict(zip(("description", "unit"), texts, strict=False))
        of_entry = kind.removeprefix(LIST)
        of_column = pa.type_for_alias(of_entry)
        if kind != of_entry:
            of_column = pa.list_(pa.field("element", of_column))  # as Parquet names it
        fields.append(pa.field(name, of_column, metadata=metadata))
    return pa.schema(fields)


SCHEMA = arrow_schema(COLUMNS)
"""The Arrow schema of this package's columns. The metadata of each column contains its
meaning. These metadata are written to the files.
"""

RUN = ["point_id", "seed"]
ROW = [*RUN, "step"]
VERSION = ["code_version", "precision"]

NEEDED = [*RUN, *VERSION, "status"]
"""The columns that every part must have. They must not contain nulls."""

OURS = ["V", "N", "d", "L", "m", "n_test"]
"""Further columns that a part must have if its rows are from this package's simulator.
They must not contain nulls.
"""

MEASURED = ["n_correct", "accuracy"]
"""Columns of this package's simulator that must contain finite numbers in every row
with status ok. Any other column may be missing, because a later version added it. A
missing column is read as null, or as the value that all older rows have.
"""

OF_OLDER_ROWS = {
    "steps": RECIPE_STEPS,
    "start": STARTS[0],
    "step": RECIPE_STEPS,
    "tokens": "uniform",
    "label_noise": 0.0,
    "first_steps": 1,
    **SAME_AS,
}
"""The values of columns for rows that are older than the columns. If a value is the
name of another column, the values of that column are used.
"""

KEY = b"jaxrecall"
"""The key of the metadata entry that describes a table. The entry is JSON with these
keys:

    axes        the fields that the grid varies, in the order of the grid
    kept        the helpers of the grid that are columns, if there are any
    xla_flags   the options of XLA_FLAGS with which the rows were computed, if any
    searched    the field that a search varies; empty if there is no search
    fixed       a dict with the value of every other field that the grid gives
    simulator   the name of a simulator of the user's own
    fields      the fields of that simulator, in order
    accuracy    the column of that simulator that contains the accuracy
    digests     a dict from the user's own laws, columns or simulator to digests of
        their source. Older versions wrote other digests, as `sources`
    columns     a dict from each column that the user added to the simulator of this
        package, to the path of its function. Older versions wrote path#digest
    merged      digests of the files whose rows `compact` has merged into this table

In a file, the entry also contains the time at which the file was written, and the
versions that wrote it.
"""

ZSTD_LEVEL = 9
"""The level at which tables are compressed. Higher levels take several times as long
and save less than 2 %.
"""

MAX_COLUMNS = 5000
"""The largest number of columns of a file, and of entries in a list or dict of its
description.
"""

MAX_NAME = 300
"""The largest number of characters in the name of a column."""

ROW_BYTES, VALUE_BYTES = 500, 4
"""The least memory that a row takes while it is read, and the least that each of its
values adds, in bytes. In tables of 500,000 runs, `status` took 575 bytes a row of 15
values and 868 bytes a row of 84 values, and `load` twice as many.
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
]


def make_table(rows: list[Json], columns: Declarations = COLUMNS) -> Table:
    """Returns a table with these rows, sorted by run and step. None in a row means
    null.

    The columns of the table are the given columns and any parameters of laws in the
    rows. Raises StoreError if a value does not fit its column.
    """
    rows = [in_order(row, columns) for row in rows]
    others = sorted(set().union(*rows) - columns.keys())
    columns = columns | dict.fromkeys(others, ("float64", "parameter of a law"))
    schema = arrow_schema(columns)
    arrays = {}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            arrays[field.name] = pa.array(values, field.type)
        except (pa.ArrowException, OverflowError) as error:
            kind, *_ = columns[field.name]
            raise StoreError(
                f"rows: {field.name}: {error}; allowed: {kind} or None"
            ) from error
    # in a plain text, Arrow would read signs such as a leading dot as a path
    by = [(pc.field(name), "ascending") for name in ROW]
    return pa.table(arrays, schema=schema).sort_by(by)


def read_facts(table: Any) -> Json:
    """Returns the description of a table or schema, which is the entry `KEY` of its
    metadata. The dict is empty if the entry is missing or damaged.
    """
    schema = table if isinstance(table, Schema) else table.schema
    try:
        description = json.loads((schema.metadata or {}).get(KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    facts = {}
    if isinstance(description, dict):
        for name, value in description.items():
            if value is None or _is_usable(name, value, description, schema.names):
                facts[name] = value
    return facts


def _is_usable(name: str, value: Any, facts: Json, columns: list[str]) -> bool:
    """Whether a fact has the form that `KEY` describes. `columns` lists the columns of
    the table.
    """
    match name:
        case "axes" | "kept" | "xla_flags" | "merged":
            return _are_texts(value)
        case "fields":
            return _are_texts(value) and {*value} <= {*columns}
        case "fixed" | "columns" | "digests" | "labels" | "rises":
            return isinstance(value, dict)
        case "accuracy":
            is_text = isinstance(value, str) and facts.get("simulator") is not None
            return is_text or value in columns
        case "searched":
            return value in ("", *columns)
        case "simulator" | "created":
            return isinstance(value, str)
    return True


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def with_facts(table: Table, facts: Json) -> Table:
    """Returns the table with these facts as its description."""
    return table.replace_schema_metadata({KEY: json.dumps(facts).encode()})


JOINT = (
    "axes",
    "kept",
    "xla_flags",
    "fixed",
    "simulator",
    "fields",
    "accuracy",
    "digests",
    "columns",
    "labels",
    "rises",
)
"""The entries of the description of a joined table, besides `searched`."""


def _joint_facts(parts: list[Json], table: Table) -> Json:
    """Returns the description of a table that was joined from parts. The argument
    `parts` lists the descriptions of the parts.

    Lists and dicts are joined in the order in which the files were written. A part has
    no axes if it has no grid or was written by an older version. If any part has no
    axes, the joined table has no axes. Fields that differ between grids are axes, too.
    """
    facts: Json = {}
    for part in sorted(parts, key=lambda part: part.get("created") or ""):
        for name in JOINT:
            value = part.get(name)
            if isinstance(value, list):
                facts[name] = list(dict.fromkeys([*facts.get(name, ()), *value]))
            elif isinstance(value, dict):
                facts[name] = value | facts.get(name, {})
            elif value is not None:
                facts.setdefault(name, value)
    if any(part.get("axes") is None or part.get("fixed") is None for part in parts):
        return {name: facts[name] for name in facts if name not in ("axes", "fixed")}
    searched = {part.get("searched") or "" for part in parts}
    if len(searched) == 1:
        facts["searched"] = searched.pop()
    axes, fixed = facts["axes"], facts["fixed"]
    for name in list(fixed):
        varies = name in table.column_names and len(table[name].unique()) > 1
        if varies and name not in axes:
            axes.append(name)
        if name in axes:
            del fixed[name]
    return facts


def to_parquet(table: Table) -> pa.Buffer:
    """Returns the bytes of a Parquet file that contains the table. Every page has a
    checksum.

    The metadata of the file contain the provenance of the rows and the pandas type of
    each column.
    """
    created = datetime.now(UTC).isoformat(timespec="seconds")
    provenance = {"created": created, **read_facts(table)}
    for name in (*VERSION, "jax_version"):
        values = table[name].unique().to_pylist()
        provenance[name] = values[0] if len(values) == 1 else values
    table = with_metadata(with_pandas_types(table), KEY, provenance)
    # only texts have dictionaries: numbers become smaller without them
    # pyarrow annotates use_dictionary as bool, and takes lists
    texts: Any = [field.name for field in table.schema if field.type == pa.string()]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=texts,
        write_page_checksum=True,
    )
    return sink.getvalue()


Read = tuple[dict[Path, Table], Unreadable]
"""A dict from files to their tables, and a list of the files that are not readable
parts.
"""


def read_tables(paths: Iterable[Path], columns: list[str] | None = None) -> Read:
    """Returns the tables in these files. A file that no longer exists is left out.

    All columns are read and checked even if only some are wanted, so a run counts as
    done only if `load` can read its rows.
    """
    tables: dict[Path, Table] = {}
    unreadable = Unreadable()
    for path in paths:
        for table in rows_in(path, unreadable):
            if columns:
                present = table.column_names
                table = table.select([name for name in columns if name in present])
            tables[path] = table
    return tables, unreadable


@contextmanager
def open_rows(path: Path) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file, of which only the footer is read.

    Raises ValueError if a limit on the footer is exceeded, or if the rows do not fit
    into memory. Any other exception means that the file cannot be read.
    """
    # a pipe would wait forever
    if path.suffix != ".parquet" or not path.is_file():
        raise ValueError("not a .parquet file")
    with open(path, "rb") as bytes_:  # pyarrow opens only UTF-8 paths
        size = bytes_.seek(0, os.SEEK_END)
        bytes_.seek(max(0, size - 8))
        n_footer = int.from_bytes(bytes_.read(4), "little")
        if bytes_.read() == b"PAR1":
            _check_most("bytes in the footer", n_footer, MAX_BYTES)
        with pq.ParquetFile(bytes_, page_checksum_verification=True) as file:
            _check_names_and_facts(file.schema_arrow)
            _check_memory(file, bytes_, size)
            yield file


def _check_most(what: str, n: int, most: int) -> None:
    if n > most:
        raise ValueError(f"{n} {what}; allowed: up to {most}")


def _check_names_and_facts(schema: Schema) -> None:
    """Raises ValueError if there are too many columns or facts, or if a name is too
    long.
    """
    _check_most("columns", len(schema), MAX_COLUMNS)
    longest = max(map(len, schema.names), default=0)
    _check_most("characters in the name of a column", longest, MAX_NAME)
    for name, value in read_facts(schema).items():
        # any number of files may have been merged
        if isinstance(value, (list, dict)) and name != "merged":
            _check_most(f"entries of {name} in the metadata", len(value), MAX_COLUMNS)


def _check_memory(file: pq.ParquetFile, source: BinaryIO, size: int) -> None:
    """Raises ValueError if the rows of a file of `size` bytes do not fit into memory.

    The footer may be wrong about sizes and numbers of values, so the headers of pages
    are read. They do not tell how often a long value is repeated. If this may matter,
    the texts are read as dictionaries, which contain each text once. Every other value
    that has no fixed size counts as if it were as long as its column.
    """
    footer, schema = file.metadata, file.schema_arrow
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    n_rows = sum(group.num_rows for group in groups)
    of_columns = []
    for i in range(footer.num_columns):
        of_columns.append(sum(check_pages(each.column(i), source) for each in groups))
    n_bytes = sum(of_columns)
    of_rows = n_rows * (ROW_BYTES + VALUE_BYTES * footer.num_columns)
    what = f"{n_rows} rows of {footer.num_columns} columns"
    _check_fits(what, max(of_rows, n_bytes, size))
    has_lists = any(map(pa.types.is_nested, schema.types))
    if n_rows * n_bytes <= memory_limit() and not has_lists:
        return
    texts, of_values = [], 0
    for i in range(footer.num_columns):
        column = footer.schema.column(i)
        chunks = [group.column(i) for group in groups]
        encodings = set(chain.from_iterable(chunk.encodings for chunk in chunks))
        is_text = column.physical_type == "BYTE_ARRAY"
        # with this encoding, a text repeats the beginning of the text before it
        repeats = "DELTA_BYTE_ARRAY" in encodings
        if is_text and column.path in schema.names and not repeats:
            texts.append(column.path)
            continue
        for chunk in chunks:
            width = max(column.length, VALUE_BYTES)
            if is_text:
                width = of_columns[i]
            # a row may be a list of any number of values
            of_values += chunk.num_values * width
    _check_fits(what, of_values)
    table = pq.ParquetFile(source, read_dictionary=texts).read(texts)
    for chunk in chain.from_iterable(column.chunks for column in table.columns):
        lengths = pc.binary_length(chunk.dictionary)
        total = pc.sum(lengths.take(chunk.indices))
        of_values += total.as_py() or 0
    _check_fits(what, of_values)


def _check_fits(what: str, n_bytes: int) -> None:
    if n_bytes > memory_limit():
        raise ValueError(
            f"{what}, which take at least {n_bytes / 2**20:.0f} MiB; allowed:"
            f" {memory_described()}"
        )


def rows_in(path: Path, unreadable: Unreadable) -> Iterator[Table]:
    """Yields the table in a file. Yields nothing if there is no file, or if it is not a
    readable part; such a part is added to `unreadable`.
    """
    try:
        yield read_part(path)
    except MemoryError:
        raise
    # a file may raise anything; the other files must still be read
    except Exception as error:
        if os.path.lexists(path):
            unreadable.append((path, in_one_line(error)))


def each_once(paths: Collection[Path], unreadable: Unreadable) -> Iterator[Table]:
    """Yields the tables in these files. A part whose rows `compact` has merged into one
    of them is left out, unless that table cannot be read.

    Files that cannot be read are added to `unreadable`, and files that no longer exist
    are left out.
    """
    table_of = {}
    for path in paths:
        if path.name == TABLE:
            schema = _schema_of_part(path)
            merged = read_facts(schema).get("merged") if schema else None
            table_of |= dict.fromkeys(merged or (), path)
    read, left_out = set(), {}
    for path in paths:
        table = table_of.get(hash_file(path)) if table_of else None
        if table:
            left_out[path] = table
            continue
        for rows in rows_in(path, unreadable):
            read.add(path)
            yield rows
    for path, table in left_out.items():
        if table not in read:
            yield from rows_in(path, unreadable)


def hash_file(path: Path) -> str:
    """Returns a digest of the contents of a file of rows, or an empty text if the file
    cannot be opened as such.
    """
    with suppress(Exception), open_rows(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return ""


def _required(facts: Json, present: list[str]) -> tuple[list[str], list[str]]:
    """Returns the columns of a part that must not contain nulls, and the columns that
    must contain finite numbers where the status is ok. They depend on the simulator.

    Raises ValueError if the part lacks one of them. `present` lists its columns.
    """
    needed, measured = [*NEEDED, *OURS], MEASURED
    if facts.get("simulator") is not None:
        needed = [*NEEDED, "step", "steps"]
        measured = [str(facts.get("accuracy"))]
    columns = [*needed, *measured]
    _refuse("no column {}", [name for name in columns if name not in present])
    return needed, measured


def read_part(path: Path) -> Table:
    """Returns the rows of one file. Raises an exception of any type if the file is not
    a readable part.
    """
    with open_rows(path) as file:
        facts = read_facts(file.schema_arrow)
        needed, measured = _required(facts, file.schema_arrow.names)
        table = file.read()
    _check_names(table)
    if facts.get("simulator") is None:
        table = _with_older_values(table.cast(_standard(table.schema)))
    table.validate(full=True)
    _refuse("nulls in {}", [name for name in needed if table[name].null_count])
    lacking = []
    for name in measured:
        if "ok" in _statuses_without_number(table, name):
            lacking.append(name)
    _refuse("no number in {} of a row with status ok", lacking)
    return with_facts(table, facts)


def _refuse(message: str, names: list[str]) -> None:
    """Raises ValueError if the list of names is not empty."""
    if names:
        raise ValueError(message.format(", ".join(names)))


def _check_names(table: Table) -> None:
    """Raises ValueError if the names of columns are damaged. Checksums protect the
    pages of a file, but not these names.
    """
    columns = (table.schema.pandas_metadata or {}).get("columns", ())
    written = [column.get("field_name") for column in columns]
    names = table.column_names
    if len(written) == len(names) and written != names:
        raise ValueError("names of columns are damaged")


def _with_older_values(table: Table) -> Table:
    """Returns the table after filling the columns that older rows lack. These columns
    then have a value in every row.

    A Python value is used only where necessary, because it makes Arrow import pandas.
    """
    for name, older in OF_OLDER_ROWS.items():
        if name in table.column_names and not table[name].null_count:
            continue
        known = table[older] if older in table.column_names else pa.scalar(older)
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), known.type))
        filled = pc.coalesce(table[name], known)
        table = table.set_column(table.column_names.index(name), name, filled)
    return table


def unlike(known: Schema, paths: Iterable[Path]) -> tuple[Schema, list[Path]]:
    """Returns a schema and a list of parts. The schema joins the known columns and the
    columns of all parts. The list contains the parts whose columns differ from the
    schema.

    Raises an exception of Arrow if the types of a column are incompatible.
    """
    schemas = {}
    for path in paths:
        schema = _schema_of_part(path)
        if schema is not None:
            schemas[path] = schema
    # columns are compared without their order and their meanings
    distinct = {frozenset(schema): _standard(schema) for schema in schemas.values()}
    every = pa.unify_schemas([known, *distinct.values()], promote_options="permissive")
    others = []
    for path, schema in schemas.items():
        if frozenset(schema) != frozenset(every):
            others.append(path)
    return every, others


def _schema_of_part(path: Path) -> Schema | None:
    """Returns the schema of a file, or None if the file is not a part. `read_tables`
    reports why the file is not a part.
    """
    with suppress(Exception), open_rows(path) as file:  # it may raise anything
        schema = file.schema_arrow
        _required(read_facts(schema), schema.names)
        return schema
    return None


def _standard(schema: Schema) -> Schema:
    """Returns the schema in which a file is read. Columns of this package have the
    types of SCHEMA.
    """
    typed = COLUMNS if read_facts(schema).get("simulator") is None else ()
    return pa.schema([SCHEMA.field(f.name) if f.name in typed else f for f in schema])


def conformed(table: Table, schema: Schema) -> Table:
    """Returns the table after adding the columns of a schema that the table lacks. The
    new columns contain nulls. No column of the table is removed.
    """
    every = pa.concat_tables(
        [schema.empty_table(), table], promote_options="permissive"
    )
    return with_facts(every, read_facts(table))


def _statuses_without_number(table: Table, name: str) -> list[str]:
    """Returns the distinct values of `status` in the rows in which a column has no
    finite number.

    Only functions of Arrow are used, because NumPy and Python values make Arrow import
    pandas.
    """
    column = table[name]
    finite = pc.and_kleene(column.is_valid(), pc.is_finite(column))
    return table["status"].filter(pc.invert(finite)).unique().to_pylist()


def joined(tables: Iterable[Table]) -> Table:
    """Returns one table that contains the rows of all tables and has their joint
    description.

    The known columns come first, in table order. Any other columns follow. If a table
    lacks a column, the column is null in the rows of that table. Raises StoreError if
    the tables are incompatible.
    """
    filled = list(filter(len, tables))
    facts = list(map(read_facts, filled)) or [{}]
    names = {str(part.get("simulator", "jaxrecall")) for part in facts}
    if len(names) > 1:
        raise StoreError(
            "the tables do not go together: they are of the simulators"
            f" {', '.join(sorted(names))}; read those of one"
        )
    first = [] if "simulator" in facts[0] else [SCHEMA.empty_table()]
    try:
        table = pa.concat_tables([*first, *filled], promote_options="permissive")
    except pa.ArrowException as error:
        raise StoreError(
            f"the tables do not go together: {error}; rename that column in one of them"
        ) from error
    return with_facts(table, _joint_facts(facts, table))


def is_last(table: Table) -> pa.ChunkedArray:
    """Returns whether each row is that of the last step of its run."""
    return pc.equal(table["step"], table["steps"])


def in_table_order(
    rows: Table, keys: list[str], kept: np.ndarray | None = None
) -> pa.Array:
    """Returns the indices of one row for each combination of `keys`, in table order.

    Table order is by point, then by seed, then by step. A row with status ok is
    preferred, then a row of the newest code_version, then the first row. `kept` is a
    mask of the rows that are considered; by default, all rows are.
    """
    fields = read_facts(rows).get("fields")
    points = fields if isinstance(fields, list) else _SORT
    by = dict.fromkeys([*points, *ROW, *keys], "ascending")
    columns = {name: rows[name] for name in by}
    # no column of a row has a space in its name
    columns["is bad"] = pc.not_equal(rows["status"], pa.scalar("ok"))
    columns["version of code"] = rows["code_version"]
    by |= {"is bad": "ascending", "version of code": "descending"}
    sort_keys = [(pc.field(name), order) for name, order in by.items()]
    order = pc.sort_indices(pa.table(columns), sort_keys)
    if kept is not None:
        order = order.filter(pa.array(kept).take(order))
    places = pa.array(np.arange(len(order)))
    table = rows.select(keys).take(order).append_column("place", places)
    first = table.group_by(keys).aggregate([("place", "min")])["place_min"]
    return order.take(np.sort(first.to_numpy()))


def with_pandas_types(table: Table) -> Table:
    """Returns the table with metadata that specify the pandas type of each column.

    Because of these metadata, pandas reads columns of ints or bools with nulls as its
    nullable types, instead of as floats or objects.
    """
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        types = _pandas_types(field.type, column.null_count > 0)
        if types:
            named = {"name": field.name, "field_name": field.name}
            columns.append({**named, **types, "metadata": None})
    metadata = {
        "index_columns": [],
        "column_indexes": [],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
    }
    return with_metadata(table, b"pandas", metadata)


def _pandas_types(kind: pa.DataType, has_null: bool) -> Json:
    """Returns a dict with the pandas types of a column.

    The dict is empty for Arrow types that this package does not write. pandas then
    chooses the type.
    """
    if kind == pa.string():
        return {"pandas_type": "unicode", "numpy_type": "object"}
    if not pa.types.is_primitive(kind) or pa.types.is_temporal(kind):
        return {}
    name = str(kind)
    nullable = {"int64": "Int64", "bool": "boolean"} if has_null else {}
    return {"pandas_type": name, "numpy_type": nullable.get(name, name)}


def with_metadata(table: Table, key: bytes, value: Json) -> Table:
    """Returns the table with one more entry in its metadata."""
    text = json.dumps(value, separators=(",", ":"))
    metadata = (table.schema.metadata or {}) | {key: text.encode()}
    return table.replace_schema_metadata(metadata)


OUR_KEYS = {
    "manifest.json": {"grid", "code_version"},
    "search.json": {"search", "cells"},
}
"""A dict from JSON files of a results folder to keys that distinguish them from other
files of the same name.
"""


def is_ours(path: Path) -> bool:
    """Whether this package wrote the file.

    A JSON file is recognised by its keys, and any other file by its record of rows.
    """
    with suppress(OSError, ValueError, RecursionError, pa.ArrowException):
        if path.suffix == ".parquet":
            with open_rows(path) as rows:
                return bool(read_facts(rows.schema_arrow))
        if path.suffix == ".json":
            record = read_json(path)
            return isinstance(record, dict) and OUR_KEYS[path.name] <= record.keys()
        if path.is_file():  # a pipe would wait forever
            with open(path, "rb") as file:
                return COMMENT in file.read(1000)
    return False


def refuse_foreign(path: Path) -> None:
    """Raises StoreError if there is a file that this package did not write.

    A link to nothing does not count as a file.
    """
    if os.path.exists(path) and not is_ours(path):
        raise StoreError(
            f"{path}: would be replaced, but does not show that jaxrecall wrote it;"
            " move it away or choose another folder"
        )


COMMENT = b'jaxrecall: {"'
"""The start of the comment in a file that was made from rows."""


def comment(rows: Mapping[str, Any]) -> str:
    """Returns the comment for a file that was made from these rows."""
    return f"jaxrecall: {json.dumps(rows)}"
