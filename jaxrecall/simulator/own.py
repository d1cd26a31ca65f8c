"""A column of one's own: a function of what a run drew and learned, computed in its compiled program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UsageError, imported, shown
from ..model.columns import COLUMNS
from ..model.laws.law import source_digest
from ..model.point import FIELDS

if TYPE_CHECKING:
    from jax import Array

TYPES = {"float": "float64", "int": "int64", "bool": "bool"}
"""What a function may say that it returns, and the Arrow types."""

ALLOWED = f"allowed: module:function of a function of (draws, learned) that returns {', '.join(TYPES)}"


class Drawn(NamedTuple):
    """What a run drew, float32 and int32, under the names that `realize` has for it."""

    Z_in: Array  # (V, d), as trained so far
    Z_out: Array  # (V, d)
    z_trig: Array  # (d,)
    z_eos: Array  # (d,)
    W_in: Array | None  # (m, d); None without an MLP
    perm: Array  # (V,) label of each token


class Learned(NamedTuple):
    """What it has learned, under the names that `three_step` has for it."""

    V1: Array  # (d, p) V_mat after step 1
    w: Array  # (d,) W_KQ z_eos
    V2: Array  # (d, p) V_mat


class OwnColumn(NamedTuple):
    """A column that a function returns: plain data, from which every process finds the function."""

    name: str
    path: str
    digest: str
    """Of the source of the function."""

    @property
    def fn(self) -> Callable[[Drawn, Learned], Array]:
        """The function; raises UsageError where it has other source than when the column was made."""
        found = function_at(self.name, self.path)
        if source_digest(found) != self.digest:
            raise UsageError(f"columns.{self.name}: {self.path} has other source here than where the sweep was called")
        return found

    @property
    def declared(self) -> tuple[str, str]:
        """Its Arrow type, float64 unless the function says otherwise, and its meaning."""
        return _arrow_type(self.fn), (inspect.getdoc(self.fn) or self.path).partition("\n")[0].rstrip(".")


def own_columns(given: Mapping[str, object]) -> tuple[OwnColumn, ...]:
    """The columns of these functions, or import paths of functions, by name; raises UsageError with a line for each error."""
    found, lines = list[OwnColumn](), list[str]()
    for name, of in given.items():
        try:
            found.append(_own_column(name, of))
        except UsageError as error:
            lines += error.lines
    if lines:
        raise UsageError(lines)
    return tuple(found)


def _own_column(name: str, given: object) -> OwnColumn:
    if not str(name).isidentifier() or name.startswith("_") or name in {*COLUMNS, *FIELDS}:
        raise UsageError(f"columns.{name}: is no name for a column; allowed: letters, digits and _, and no column or field that there is")
    if not isinstance(given, str) and not inspect.isfunction(given):
        raise UsageError(f"columns.{name}: got {shown(given)}; {ALLOWED}")
    path = given if isinstance(given, str) else f"{given.__module__}:{given.__qualname__}"
    return OwnColumn(name, path, source_digest(function_at(name, path)))


def function_at(name: str, path: str) -> FunctionType:
    """The function at module:name; raises UsageError."""
    found = imported(f"columns.{name}", path, f"{ALLOWED}, at the top of its module")
    if not inspect.isfunction(found) or not _arrow_type(found):
        raise UsageError(f"columns.{name}: got {path}, which is {shown(found)}; {ALLOWED}")
    return found


def _arrow_type(fn: Callable[[Drawn, Learned], Array]) -> str:
    """Of what a function returns; nothing for a type that no column has."""
    returns = fn.__annotations__.get("return", "float")
    return TYPES.get(getattr(returns, "__name__", str(returns)), "")
