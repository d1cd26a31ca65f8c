"""Reads and writes files of a results folder. A file is written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

from ..errors import StoreError, printable, shown

Json = dict[str, Any]
"""A JSON object."""

Unreadable = list[tuple[Path, str]]
"""A list of files that could not be read, each with the reason."""

PARTS, TABLE = "parts", "table.parquet"

TEMPORARY_NAME = re.compile(r"\d+-[0-9a-f]{8}-.+")
"""The regular expression for names of temporary files in a staging folder."""

MAX_DEPTH = 100
"""The largest depth of nested lists and mappings in a JSON file."""

MAX_NAME = 60
"""The largest number of characters that a plain name takes from a text."""

MAX_BYTES = 2**26
"""The largest size of a text, in bytes. A failure report may be large, because it may
list hundreds of thousands of runs.
"""


def atomic_write(
    path: Path,
    data: Any,
    staging: Path | None = None,
    check: Callable[[Path], None] = lambda temporary: None,
) -> None:
    """Writes `data` (bytes or a buffer) to a temporary file, and renames the file to
    `path`.

    If writing fails, an existing file at `path` stays unchanged. The temporary file is
    in the folder `staging`, which must be on the same file system. The bytes are then
    on disk before the rename, and the new name is on disk before the function returns.
    Without `staging`, the temporary file is a hidden file in the folder of `path`. Its
    name is unique, so any number of processes may write to one path. `check` receives
    the complete temporary file before the rename; an exception that it raises prevents
    the rename. Raises OSError if writing fails.
    """
    name = f"{os.getpid()}-{secrets.token_hex(4)}-{path.name}"
    temporary = staging / name if staging else path.with_name(f".{name}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if staging:
                os.fsync(file.fileno())
        check(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if staging:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_bytes(path: Path) -> bytes:
    """Returns the contents of a file that holds a text.

    Raises OSError if the file cannot be read. Raises ValueError if it is not a regular
    file, or if it exceeds MAX_BYTES.
    """
    status = path.stat()
    # reading a pipe would wait forever, and a device may have no end
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file.

    Raises OSError if the file cannot be read. Raises ValueError if it is not a JSON
    file, or if it exceeds MAX_BYTES or MAX_DEPTH.
    """
    text = read_bytes(path)
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [data]
    for _ in range(MAX_DEPTH):
        level = list(chain.from_iterable(map(_items, level)))
        if not level:
            return data
    raise ValueError("nested too deeply")


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def local_path(path: str | Path) -> Path:
    """Returns the path, with the user's home for ~; raises StoreError for a URL or a
    null character.
    """
    if "\0" in str(path):
        raise StoreError(
            f"{shown(str(path))}: holds a null character; allowed: a path without one"
        )
    if "://" in str(path):
        raise StoreError(
            f"{path}: is not on this machine's file systems; allowed: a folder, on a"
            " network file system too. To keep results in an object store, copy the"
            " folder there (its files never change, so any sync tool will do)"
        )
    return Path(os.path.expanduser(path))


def plain_name(text: str) -> str:
    """Returns a name for files, folders and ids that stands for any text.

    The name contains only letters, digits, dots, dashes and underscores of ASCII, and
    does not begin with a dot. Letters replace the signs * and / of arithmetic, and
    spaces are left out. If anything else had to be left out, a checksum of the text is
    appended, so that different texts have different names.
    """
    name = text.replace(" ", "").replace("*", "x").replace("/", "-by-")
    plain = re.sub("[^A-Za-z0-9._-]", "", name)[:MAX_NAME].lstrip(".")
    if plain and plain == name:
        return plain
    return f"{plain}-{crc32(text.encode(errors='surrogatepass')):08x}".lstrip("-")


def refuse_link(path: Path) -> None:
    """Raises StoreError if the path is a link, which may lead out of its folder."""
    if os.path.islink(path):
        raise StoreError(
            f"{path}: is a link to {os.readlink(path)}; allowed: a file or a folder of"
            " its own; remove the link, or link the whole results folder"
        )


@contextmanager
def held_folder(folder: Path) -> Iterator[Path]:
    """Returns a context with another path of the folder, which leads to the same folder
    even if its own path becomes a link meanwhile.

    Systems without /proc have only the folder's own path. Raises StoreError if the
    folder is a link, and OSError if it cannot be opened.
    """
    refuse_link(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        held = Path(f"/proc/self/fd/{fd}")
        yield held if held.is_dir() else folder
    finally:
        os.close(fd)


def holds_results(folder: Path) -> bool:
    """Whether the folder contains results, which are a folder of parts or a table."""
    return is_folder(folder / PARTS) or bool(_mode(folder / TABLE))


def is_folder(path: Path) -> bool:
    """Whether the path is a folder. Raises StoreError if this cannot be checked."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    """Returns the mode of a file (kind and permissions), or 0 if there is no file."""
    try:
        return os.stat(path).st_mode
    except PermissionError:
        with storage_errors(path):
            raise
    except (OSError, ValueError):  # a loop of links, or a null character
        return 0


def result_files(folder: Path) -> list[Path]:
    """Returns the files with rows: the parts first and the table last.

    A prune moves rows from the parts to the table. If the files are read in this order,
    no row is missed.
    """
    return [*entries(folder / PARTS), folder / TABLE]


def entries(folder: Path) -> list[Path]:
    """Returns a sorted list of the files in a folder. It is empty if there is no
    folder.
    """
    with storage_errors(folder):
        return sorted(folder.iterdir()) if is_folder(folder) else []


def listed(unreadable: Unreadable) -> str:
    """Returns a text with the first three unreadable files, each with the reason."""
    files = [printable(f"{path.name} ({why})") for path, why in unreadable[:3]]
    if len(unreadable) > 3:
        files.append(f"and {len(unreadable) - 3} more")
    return ", ".join(files)


def no_rows(paths: list[Path], unreadable: Unreadable) -> StoreError:
    """Returns the error for paths that contain no rows."""
    where = ", ".join(map(str, paths)) or "an empty list of paths"
    for path, _ in unreadable:
        if "=" in path.name and path.is_dir():
            return StoreError(
                f"no rows in {where}: is split by a column into folders such as"
                f" {path.name}; allowed: pandas.read_parquet({str(path.parent)!r}), as"
                " fit.fit and plot take it; with .to_parquet('one.parquet') for"
                " jaxrecall fit"
            )
    why = f"; unreadable: {listed(unreadable)}" if unreadable else ""
    return StoreError(
        f"no rows in {where}: looked for a .parquet file, or a folder with {TABLE} or"
        f" {PARTS}/*.parquet{why}; has the sweep run?"
    )


@contextmanager
def storage_errors(
    path: Path,
    so_far: str = "saved rows are kept, and the command can be repeated",
) -> Iterator[None]:
    """Turns an OSError into a StoreError whose message contains the path.

    The message ends with `so_far`, which states what has been kept.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; {so_far}") from error
