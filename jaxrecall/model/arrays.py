"""A matrix of numbers in a file: .npy, .npz or .safetensors, read without running anything that the file holds, and checked.

A .safetensors file is 8 bytes with the length of its header, the header as JSON, which gives type, shape and place of each tensor, and
the numbers themselves: https://github.com/huggingface/safetensors#format. Sizes are checked before anything is read.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUFFIXES = (".npy", ".npz", ".safetensors")

MAX_NUMBERS = 2**29
"""Numbers of a matrix, 2 GiB in float32."""

MAX_HEADER = 100 * 10**6
"""Bytes of the header of a .safetensors file, as the format has it."""

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read(path: Path, name: str = "") -> np.ndarray:
    """The matrix in a file, (rows, columns) float32.

    Args:
        path: of the file; its suffix says what it holds.
        name: of the array or tensor, needed where the file holds more than one matrix.

    Raises:
        ValueError: what is wrong with the file, and what is allowed.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a file with the suffix {path.suffix!r}; allowed: {', '.join(SUFFIXES)}")
    try:
        found = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}[path.suffix](path, name)
    except FileNotFoundError:
        raise ValueError(f"no such file as {path.absolute()}; allowed: a file that is there") from None
    except (OSError, EOFError, KeyError, TypeError, RecursionError, zipfile.BadZipFile) as error:
        raise ValueError(f"a file that cannot be read ({_line(error)}); allowed: {path.suffix} files") from None
    return _checked(found)


def _checked(found: np.ndarray) -> np.ndarray:
    """The matrix as float32 in the order of its rows; raises ValueError."""
    _check_shape(found.shape)
    if found.dtype.kind not in "fiu":
        raise ValueError(f"numbers of type {found.dtype}; allowed: floats or whole numbers")
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(found, np.float32)
    if not np.isfinite(matrix).all():
        bad = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"{found[tuple(bad)]} in row {bad[0]}, column {bad[1]}; allowed: finite float32 numbers")
    return matrix


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or not min(shape) > 0:
        raise ValueError(f"an array of shape {shape}; allowed: two dimensions, a row for each token")
    if math.prod(shape) > MAX_NUMBERS:
        raise ValueError(f"an array of {' x '.join(map(str, shape))} numbers; allowed: up to {MAX_NUMBERS}")


def _npy(path: Path, name: str) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:  # no array, one of objects, or one that ends too early
        raise ValueError(f"a file that holds no array of numbers ({_line(error)}); allowed: what numpy.save writes") from None


def _npz(path: Path, name: str) -> np.ndarray:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            chosen = _chosen(dict.fromkeys(arrays.files), name)
            if arrays.zip.getinfo(f"{chosen}.npy").file_size > 8 * MAX_NUMBERS + 2**16:
                raise ValueError(f"an array {chosen} of more than {MAX_NUMBERS} numbers; allowed: up to {MAX_NUMBERS}")
            return arrays[chosen]
    except ValueError as error:
        if "allowed: " in str(error):
            raise
        raise ValueError(f"a file that holds no arrays of numbers ({_line(error)}); allowed: what numpy.savez writes") from None


def _safetensors(path: Path, name: str) -> np.ndarray:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise ValueError(f"a file of {size} bytes without a header of its tensors; allowed: what safetensors writes")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise ValueError("a file whose header is not JSON; allowed: what safetensors writes") from None
    tensors = {key: about for key, about in header.items() if key != "__metadata__"} if isinstance(header, dict) else {}
    matrices = {key: about for key, about in tensors.items() if len(about["shape"]) == 2}
    chosen = tensors[_chosen(tensors if name else matrices, name)]
    shape, (start, end) = tuple(map(int, chosen["shape"])), map(int, chosen["data_offsets"])
    _check_shape(shape)
    if chosen["dtype"] not in DTYPES:
        raise ValueError(f"a tensor of type {chosen['dtype']}; allowed: {', '.join(DTYPES)}")
    kind = np.dtype(DTYPES[chosen["dtype"]])
    if not 0 <= start <= end <= size - 8 - length or end - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"a tensor {shape} at bytes {start} to {end} of {size - 8 - length}; allowed: a whole file")
    numbers = np.memmap(path, kind, "r", 8 + length + start, shape)
    # bfloat16 is the upper half of float32
    return (numbers.astype("<u4") << 16).view("<f4") if chosen["dtype"] == "BF16" else numbers


def _chosen(names: Mapping[str, Any], name: str) -> str:
    """The name of the array to read; raises ValueError unless it is there, or without a name the only one."""
    likely = sorted(names, key=lambda each: "emb" not in each)
    listed = ", ".join(likely[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    if name in names:
        return name
    if name or len(names) != 1:
        got = f"no array {name!r}" if name else f"{len(names)} arrays"
        raise ValueError(f"{got}; allowed: tensor=, one of {listed}" if names else "no array; allowed: a file that holds a matrix")
    return next(iter(names))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
