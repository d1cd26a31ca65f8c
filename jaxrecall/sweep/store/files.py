"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TEMPORARY_NAME = re.compile(r"\d+-[0-9a-f]{8}-.+")
"""Names of temporary files in a staging folder."""

MAX_DEPTH = 100
"""Lists and mappings inside each other in a JSON file, at most."""

MAX_BYTES = 2**26
"""Size of a JSON file, at most: the record of a failure lists its runs, which may be hundreds of thousands."""


def atomic_write(
    path: Path, data: Any, staging: Path | None = None, sync: bool = False, check: Callable[[Path], None] = lambda temporary: None
) -> None:
    """Writes `data`, bytes or a buffer, to a temporary file and renames that to `path`. A failure leaves the old file, or none.

    The temporary file is hidden beside `path`, or in the folder `staging` on the same file system. Its name is its own, so any
    number of processes may write one path. `check` is given the complete temporary file before it is renamed; what it raises
    prevents that. With `sync` the bytes are on disk before the rename, and the new name is before the return. Raises OSError.
    """
    name = f"{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    temporary = staging / name if staging else path.with_name(f".{name}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        check(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_json(path: Path) -> Any:
    """The contents of a JSON file; raises OSError, and ValueError for what is no JSON, or beyond MAX_BYTES or MAX_DEPTH."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # a pipe would wait forever, a device may have no end
        raise ValueError("not a regular file")
    if found.st_size > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    try:
        data = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value)]
        if not level:
            return data
    raise ValueError("nested too deeply")


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
