"""Embeddings given as an array, such as the table of a trained model: V of its R rows and d of its D columns, chosen for each seed.

With x (R, D) the rows of the file, mu their mean, and x - mu rotated once and for all (random signs that are always the same, then
the orthonormal discrete cosine transform), so that no column is special:

    z_v = a sqrt(D / d) ((x - mu)[row v, columns] + mean mu[columns]),   1 / a^2 = mean |x - mu|^2 + mean^2 |mu|^2

The rows and columns are the first V and d of random orders of all, drawn for each seed and each table: prefixes in V and in d. With
d = D inner products are those of the file; with d < D this is a random projection onto d orthonormal directions (Ailon and Chazelle, "The
fast Johnson-Lindenstrauss transform and approximate nearest neighbors", SIAM J. Comput. 2009). Over all rows and columns the mean
squared length is 1. `mean` is 0 for centred rows and 1 for those of the file, whose common direction stays. z_trig and z_eos are isotropic.

What counts is the content: `path` is extended by its hash, "table.npy#0123456789abcdef", and the hash alone enters the id of a point. It is
that of the float32 numbers, so the format of the file does not matter either. Other processes are sent the content.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import PointError, Problem, shown
from .. import arrays
from ..values import parameter
from .embedding import Draws, EmbeddingLaw, Orders
from .law import Law, find_law, register


class Content(NamedTuple):
    """The numbers of a file, as rows are made of them."""

    rows: np.ndarray
    """(R, D) float32: centred and rotated."""
    mean: np.ndarray
    """(D,) float32: their mean, rotated."""
    square: float
    """Mean squared length of `rows`."""


contents: dict[str, Content] = {}
"""What this process has read, or was sent, by hash."""

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)

HASH = re.compile(r"(.*)#([0-9a-f]{16})", re.DOTALL)


@register
@dataclass(frozen=True)
class Array(EmbeddingLaw):
    name = "array"
    reads_file = True
    on_host = True
    path: str = parameter("", "a .npy, .npz or .safetensors file of R rows and D columns")
    tensor: str = parameter("", "name of the matrix in a file that holds more than one")
    mean: float = parameter(0.0, "part of the mean row that is kept; 0 centres the rows", low=0.0, high=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path and not HASH.fullmatch(self.path):
            try:
                found = _read(_place(self.path), self.tensor)
            except ValueError as error:
                raise PointError([self._problem(str(error))]) from None
            object.__setattr__(self, "path", f"{self.path}#{found}")

    @property
    def hash(self) -> str:
        """16 hex digits that name the content."""
        found = HASH.fullmatch(self.path)
        return found[2] if found else ""

    def identity(self) -> str:
        """The hash of the content in place of the path."""
        return str(replace(self, path=f"#{self.hash}", tensor=""))

    def static_text(self) -> str:
        """One program serves all files: rows are an argument."""
        return self.name

    def problems(self, V: int, d: int) -> list[Problem]:
        if not self.path:
            return [Problem("embedding.path", 'got nothing; array needs it, as in array(path="table.npy")')]
        try:
            R, D = self.content().rows.shape
        except ValueError as error:
            return [self._problem(str(error))]
        sizes = (("V", V, R, "rows"), ("d", d, D, "columns"))
        return [
            Problem(name, f"got {got} with an array of {R} rows and {D} columns; allowed: up to its {most} {what}", f"{name} <= {most}")
            for name, got, most, what in sizes
            if got > most
        ]

    def content(self) -> Content:
        """The numbers; raises ValueError where no file that can be found has them."""
        if self.hash not in contents:
            path = (HASH.fullmatch(self.path) or [""] * 3)[1]
            for folder in dict.fromkeys((_folder.get() or Path(), *map(Path, sys.path))):
                with suppress(ValueError):
                    if path and _read(folder / path, self.tensor) == self.hash:
                        break
            else:
                raise ValueError(f"no file with this content as {Path(path).absolute()}; allowed: the file that was read before")
        return contents[self.hash]

    def from_host(self, orders: Orders, V: int, d: int) -> np.ndarray:
        found = self.content()
        R, D = found.rows.shape
        rows, columns = orders(0, R)[:V], orders(1, D)[:d]
        length = np.sqrt(found.square + self.mean**2 * np.sum(np.square(found.mean, dtype=np.float64)))
        chosen = found.rows[rows][:, columns] + np.float32(self.mean) * found.mean[columns]
        return chosen * np.float32(np.sqrt(D / d) / length)

    def rows(self, draws: Draws, xp: Any) -> Any:
        return draws.given

    def _problem(self, about: str) -> Problem:
        got, _, allowed = about.rpartition("; allowed: ")
        return Problem("embedding.path", f"got {shown(self.path)}, {got}; allowed: {allowed}")


def _place(path: str) -> Path:
    """Where a path leads: from the folder of the grid file, or else from the current one."""
    first = (_folder.get() or Path()) / path
    return Path(path) if not os.path.exists(first) and os.path.exists(path) else first


def _read(path: Path, tensor: str) -> str:
    """The hash of the content of a file, which is among `contents` from then on; raises ValueError."""
    with suppress(OSError):
        about = path.stat()
        return _hash(path.absolute(), tensor, (about.st_mtime_ns, about.st_size, about.st_ino))
    return _hash(path.absolute(), tensor, ())


@lru_cache(256)
def _hash(path: Path, tensor: str, version: tuple[int, ...]) -> str:
    x = arrays.read(path, tensor)
    words = hashlib.sha256(repr(x.shape).encode())
    words.update(x.astype("<f4", copy=False).data)
    found = words.hexdigest()[:16]
    if found not in contents:
        contents[found] = prepared(x)
    return found


def prepared(x: np.ndarray) -> Content:
    """The content of a matrix (R, D); raises ValueError where all rows are the same."""
    from scipy.fft import dct  # a tenth of a second that commands without such a law do not wait for

    mean = x.mean(0, dtype=np.float64)
    x = x - mean.astype(np.float32)
    square = float(np.mean(np.einsum("ij,ij->i", x, x, dtype=np.float64)))
    if not square > 1e-10 * float(mean @ mean):  # what rounding leaves of rows that are the same
        raise ValueError("an array whose rows are all the same; allowed: rows that differ")
    signs = np.random.Philox(0).random_raw(x.shape[1]).astype(np.int64) % 2 * 2 - 1

    def rotated(a: np.ndarray) -> np.ndarray:
        return np.asarray(dct(a * signs.astype(a.dtype), axis=-1, norm="ortho", overwrite_x=True))

    return Content(rotated(x), rotated(mean).astype(np.float32), square)


@contextmanager
def paths_from(folder: Path) -> Iterator[None]:
    """Meanwhile relative paths are those from a folder, that of a grid file, before those from the current one."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def contents_of(laws: Iterable[Law]) -> Mapping[str, Content]:
    """What other processes need for these laws, by hash: there it is added to `contents`."""
    return {law.hash: law.content() for law in laws if isinstance(law, Array)}


def with_hashes(data: Any) -> Any:
    """Plain data with the hash of its content in the text of each array that can be read."""
    if isinstance(data, dict):
        return {name: with_hashes(value) for name, value in data.items()}
    if isinstance(data, list):
        return [*map(with_hashes, data)]
    with suppress(PointError):
        return str(find_law("embedding", data)) if isinstance(data, str) and data.startswith(f"{Array.name}(") else data
    return data
