"""Embeddings from an array, such as the table of a trained model.

The array has R rows and D columns. Each seed chooses V of the rows and d of the
columns.

Let x (R, D) be the rows of the file and mu their mean. x - mu and mu are multiplied by
a fixed rotation, so that no column is special. The rotation consists of random signs,
which are always the same, and the orthonormal discrete cosine transform. Then

    z_v = a sqrt(D / d) ((x - mu)[row v, columns] + mean mu[columns])
    1 / a^2 = mean |x - mu|^2 + mean^2 |mu|^2

For each seed and each table, a random order of all rows and a random order of all
columns are drawn. The first V rows and the first d columns are used, so a smaller V or
d uses a prefix. With d = D, inner products are the same as in the file. With d < D, the
rows are randomly projected onto d orthonormal directions (Ailon and Chazelle, "The fast
Johnson-Lindenstrauss transform and approximate nearest neighbors", SIAM J. Comput.
2009). Over all rows and columns the mean squared length is 1. With `mean` = 0 the rows
are centred. With `mean` = 1 they keep the common direction that they have in the file.
z_trig and z_eos are isotropic.

The content of the file identifies the law. The hash of the content is appended to
`path`, as in "table.npy#0123456789abcdef", and only the hash enters the id of a point.
The float32 numbers are hashed, so the format of the file does not matter. Other
processes and machines read the file themselves. They refuse the file if its content
differs.

No code in a file is run, and the size of a .npy file is checked before its numbers are
read.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from ...cli.command import absolute
from ...errors import NotAllowed, PointError, Problem, in_one_line, shown
from ..values import Numbers, parameter
from .embedding import Draws, EmbeddingLaw, Orders
from .law import find_law, register


class Content(NamedTuple):
    """The numbers of a file after centring and rotation. Rows of embeddings are made
    from them.
    """

    rows: ndarray
    """(R, D) float32: the rows, centred and rotated."""
    mean: ndarray
    """(D,) float32: the mean of the rows, rotated."""
    square: float
    """The mean squared length of `rows`."""


contents: dict[str, Content] = {}
"""A dict from hash to content. It contains all content that this process has read or
received.
"""

_folder: ContextVar[Path] = ContextVar("folder", default=Path())

HASHED = re.compile(r".*#[0-9a-f]{16}", re.DOTALL)
"""A pattern of paths that end with the hash of the content."""


@register
@dataclass(frozen=True)
class Array(EmbeddingLaw):
    reads_file = True
    on_host = True
    path: str = parameter("", "a .npy file of R rows and D columns")
    mean: float = parameter(
        0.0,
        "fraction of the mean embedding that is kept; 0 centres them",
        low=0.0,
        high=1.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path and not self.hash:
            try:
                found = _hash_of(_place(self.path))
            except NotAllowed as error:
                raise PointError([self._problem(error)]) from None
            object.__setattr__(self, "path", f"{self.path}#{found}")

    @property
    def hash(self) -> str:
        """The hash of the content, 16 hex digits, or an empty text without one."""
        return self.path[-16:] if HASHED.fullmatch(self.path) else ""

    def identity(self) -> str:
        """Returns the text with the hash of the content in place of the path."""
        return str(replace(self, path=f"#{self.hash}"))

    @cached_property
    def static(self) -> Array:
        """The law without parameters. One program serves all files, because the
        rows are an argument of the program.
        """
        return Array()

    def problems(self, V: int, d: int) -> list[Problem]:
        if not self.path:
            return [
                Problem(
                    "embedding.path",
                    'got nothing; array needs it, as in array(path="table.npy")',
                )
            ]
        try:
            R, D = self.content().rows.shape
        except NotAllowed as error:
            return [self._problem(error)]
        found = []
        for name, got, most, what in (("V", V, R, "rows"), ("d", d, D, "columns")):
            if got > most:
                why = f"got {got} with an array of {R} rows and {D} columns"
                allowed = f"up to its {most} {what}"
                found.append(Problem(name, why, f"{name} <= {most}", allowed))
        return found

    def content(self) -> Content:
        """Returns the content, or raises ValueError if no file with this content is
        found.
        """
        if self.hash not in contents:
            path = self.path.removesuffix(f"#{self.hash}")
            folders = (_folder.get(), *map(Path, sys.path))
            for folder in dict.fromkeys(folders):
                with suppress(NotAllowed):
                    if _hash_of(folder / path) == self.hash:
                        break
            else:
                raise NotAllowed(
                    f"no file with this content as {absolute(path)}",
                    "the file that was read before",
                )
        return contents[self.hash]

    def from_host(self, orders: Orders, V: int, d: int) -> ndarray:
        found = self.content()
        R, D = found.rows.shape
        rows, columns = orders(0, R)[:V], orders(1, D)[:d]
        of_mean = np.sum(np.square(found.mean, dtype=np.float64))
        length = np.sqrt(found.square + self.mean**2 * of_mean)
        centred, common = found.rows[rows][:, columns], found.mean[columns]
        chosen = centred + np.float32(self.mean) * common
        return chosen * np.float32(np.sqrt(D / d) / length)

    def rows(self, draws: Draws, xp: ModuleType) -> Numbers:
        return draws.given

    def _problem(self, error: NotAllowed) -> Problem:
        got = f"got {shown(self.path)}, {error.got}"
        return Problem("embedding.path", got, allowed=error.allowed)


def _place(path: str) -> Path:
    """Returns the path of a file. A relative path is looked up in the folder of the
    grid file, and then in the current folder.
    """
    first = _folder.get() / path
    if os.path.exists(path) and not os.path.exists(first):
        return Path(path)
    return first


def _hash_of(path: Path) -> str:
    """Returns the hash of the content of a file, and adds the content to `contents`.

    Raises ValueError.
    """
    version = ()
    with suppress(OSError):
        about = path.stat()
        version = about.st_mtime_ns, about.st_size, about.st_ino
    return _hash(absolute(path), version)


@lru_cache(256)
def _hash(path: Path, version: tuple[int, ...]) -> str:
    x = read(path)
    words = hashlib.sha256(repr(x.shape).encode())
    words.update(x.astype("<f4", copy=False).data)
    found = words.hexdigest()[:16]
    if found not in contents:
        contents[found] = prepared(x)
    return found


def prepared(x: ndarray) -> Content:
    """Returns the content of a matrix (R, D), or raises ValueError if all rows are the
    same.
    """
    # this import takes a tenth of a second, which other laws do not need
    from scipy.fft import dct

    mean = x.mean(0, dtype=np.float64)
    x = x - mean.astype(np.float32)
    square = float(np.mean(np.einsum("ij,ij->i", x, x, dtype=np.float64)))
    rounding = 1e-10 * float(mean @ mean)  # for rows that are the same
    if not square > rounding:
        raise NotAllowed("an array whose rows are all the same", "rows that differ")
    signs = np.random.Philox(0).random_raw(x.shape[1]).astype(np.int64) % 2 * 2 - 1

    def rotated(a: ndarray) -> ndarray:
        return np.asarray(
            dct(a * signs.astype(a.dtype), axis=-1, norm="ortho", overwrite_x=True)
        )

    return Content(rotated(x), rotated(mean).astype(np.float32), square)


@contextmanager
def paths_from(folder: Path) -> Iterator[None]:
    """Within this context, relative paths are looked up in a folder before the current
    one.
    """
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def with_hashes(data: object) -> object:
    """Returns a copy of plain data. In the copy, the text of each array law whose file
    can be read contains the hash of the content.
    """
    if isinstance(data, dict):
        return {name: with_hashes(value) for name, value in data.items()}
    if isinstance(data, list):
        return [*map(with_hashes, data)]
    if isinstance(data, str) and data.startswith("array("):
        with suppress(PointError):
            return str(find_law(EmbeddingLaw, data))
    return data


MAX_NUMBERS = 2**29
"""The largest number of entries of a matrix: 2 GiB in float32."""


def read(path: Path) -> ndarray:
    """Returns the matrix in a .npy file, (rows, columns) float32.

    Raises ValueError, which says what is wrong with the file and what is allowed.
    """
    if path.suffix != ".npy":
        raise NotAllowed(
            f"a file with the suffix {path.suffix!r}",
            'a .npy file, as numpy.save("table.npy", rows) writes',
        )
    try:
        if not path.exists():
            raise NotAllowed(
                f"no such file as {absolute(path)}", "a file that is there"
            )
        # reading a pipe would wait forever, and a device may have no end
        if not path.is_file():
            raise OSError("not a regular file")
        return _checked(np.lib.format.open_memmap(path, mode="r"))
    except (NotAllowed, MemoryError):
        raise
    except OSError as error:
        raise NotAllowed(
            f"a file that cannot be read ({in_one_line(error)})", ".npy files"
        ) from None
    except Exception:  # numpy's message advises to allow pickles
        raise NotAllowed(
            "a file that holds no readable array of numbers",
            "what numpy.save writes",
        ) from None


def _checked(found: ndarray) -> ndarray:
    """Returns the matrix as float32 in row-major order, or raises ValueError."""
    if found.ndim != 2 or not found.size:
        raise NotAllowed(
            f"an array of shape {found.shape}", "two dimensions, a row for each token"
        )
    if found.size > MAX_NUMBERS:
        raise NotAllowed(f"an array of {found.size} numbers", f"up to {MAX_NUMBERS}")
    if found.dtype.kind not in "fiu":
        raise NotAllowed(f"numbers of type {found.dtype}", "floats or whole numbers")
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(found, np.float32)
    if not np.isfinite(matrix).all():
        bad = np.argwhere(~np.isfinite(matrix))[0]
        raise NotAllowed(
            f"{found[tuple(bad)]} in row {bad[0]}, column {bad[1]}",
            "finite float32 numbers",
        )
    return matrix
