"""Where results lie: paths on this machine's file systems, the files of a results folder, and what can go wrong with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...errors import StoreError
from .table import Unreadable

PARTS, TABLE = "parts", "table.parquet"

_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.ENOENT: "was the folder moved or deleted meanwhile?",
    errno.EACCES: "check the permissions, or choose another --out",
    errno.EPERM: "check the permissions, or choose another --out",
    errno.EROFS: "choose another --out",
}


def local_path(path: str | Path) -> Path:
    """The path that a plain path or a file:// URL names; raises StoreError for any other URL."""
    scheme, separator, _ = str(path).partition("://")
    if not separator:
        return Path(path)
    url = urlsplit(str(path))
    if scheme != "file" or url.netloc not in ("", "localhost"):
        raise StoreError(
            f"{path}: is not on this machine's file systems; allowed: a folder or file:///folder, on a network file system too. "
            "To keep results in an object store, copy the folder there (its parts never change, so any sync tool will do)"
        )
    return Path(unquote(url.path))


def holds_results(folder: Path) -> bool:
    """Whether this is a results folder: it has a parts folder or a table, if only an empty one."""
    return os.path.isdir(folder / PARTS) or os.path.exists(folder / TABLE)


def result_files(folder: Path) -> list[Path]:
    """Parts first, the table last: a prune meanwhile moves rows that way, so none is missed."""
    return [*entries(folder / PARTS), folder / TABLE]


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, sorted; nothing if there is no such folder."""
    with storage_errors(folder):
        return sorted(folder.iterdir()) if os.path.isdir(folder) else []


def listed(unreadable: Unreadable, limit: int = 3) -> str:
    """The first few unreadable files, each with the reason."""
    shown = [f"{path.name} ({why})" for path, why in unreadable[:limit]]
    return ", ".join(shown + [f"and {len(unreadable) - limit} more"] * (len(unreadable) > limit))


def no_rows(paths: list[Path], unreadable: Unreadable) -> StoreError:
    """The error for paths that hold no row."""
    where = ", ".join(map(str, paths)) or "an empty list of paths"
    why = f"; unreadable: {listed(unreadable)}" if unreadable else ""
    return StoreError(
        f"no rows in {where}: looked for a .parquet file, or a folder with {TABLE} or {PARTS}/*.parquet{why}; has the sweep run?"
    )


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns an OSError into a StoreError that names the path, the error and what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        hint = f" ({advice})" if advice else ""
        raise StoreError(
            f"{path}: {error.strerror or error}{hint}; finished parts are kept, the same command resumes from there"
        ) from error
