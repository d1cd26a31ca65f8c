"""Functions that declare a value with its meaning and limits, and functions that check
a value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field
from typing import Any, TypeAlias

from ..errors import Problem, shown, suggest

Numbers: TypeAlias = Any
"""A NumPy array, a JAX array, or a number. Code that serves both libraries accepts it
together with `xp`, which is numpy or jax.numpy.
"""

Choices = Iterable[str] | Callable[[], Iterable[str]]

Declared = Mapping[str, Any]
"""The metadata of a declared field."""


def declared(
    kind: str,
    legend: str,
    default: object = MISSING,
    symbol: str = "",
    choices: Choices | None = None,
    **limits: object,
) -> Any:
    """Declares a field of one of the records of a point.

    Args:
        kind: how the simulator treats the field, a `Kind` of `model/point.py`.
        legend: the meaning of the field.
        default: the default value, or MISSING for none.
        symbol: the symbol in the paper, if it differs from the name.
        choices: the allowed values of a text, or a function that returns them.
        limits: low, high, high_with_pool, open_low and open_high of a number, and the
            family of a law.
    """
    if choices:
        limits |= {"choices": choices if callable(choices) else lambda: tuple(choices)}
    return field(
        default=default,
        metadata={"kind": kind, "symbol": symbol, "legend": legend, **limits},
    )


def parameter(
    default: object, legend: str = "", kind: str = "traced", **limits: Any
) -> Any:
    """Declares a parameter of a law, a field of a frozen dataclass.

    `limits` are low, high, open_low and open_high. `unit` is the unit of the number, if
    there is one. One compiled program serves all values of a float parameter unless its
    kind is "static".
    """
    return declared(kind, legend, default, **limits)


def plain_type(declared: Field[Any]) -> str:
    """The type that a field has in files: int, float, bool or str. The type of a law is
    str.
    """
    if "law" in declared.metadata:
        return "str"
    name = getattr(declared.type, "__name__", str(declared.type))
    return name.removesuffix(" | None")


def is_missing(value: object) -> bool:
    """Whether a table cell has no value. Such cells contain None, NaN, or NA of
    pandas.
    """
    import pandas as pd

    return bool(pd.isna(value))


def as_pandas(table: Any) -> Any:
    """Returns a table of Polars or Arrow as a table of pandas, and any other value as
    it is.
    """
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def to_12_digits(value: float) -> str:
    """The text of a value with 12 significant digits. Ids and axes compare numbers by
    this text.
    """
    return f"{value:.12g}"


def padded_size(size: int, least: int) -> int:
    """Returns the size rounded up to a multiple of a step.

    The step is `least`, or a larger step for which the rounding adds at most a quarter.
    """
    step = max(least, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step


def checked_value(
    name: str, value: object, kind: str, limits: Declared, problems: list[Problem]
) -> Any:
    """Returns `value` as the plain Python type `kind`.

    A value that is not allowed is returned unchanged, and a problem is appended to
    `problems`. The kind is int, float, bool or str, or one of these with `| None`.
    """
    checked, where = _typed(value, kind, limits), None
    if type(checked) in (int, float):
        where = _unmet_condition(name, checked, limits)
    if checked is not None and where is None:
        return checked
    got = f"got {shown(value)}"
    if "choices" in limits and isinstance(value, str):
        got += suggest(value, limits["choices"]())
    problems.append(Problem(name, got, where, _allowed(name, kind, limits)))
    return value


def _typed(value: object, kind: str, limits: Declared) -> Any:
    """Returns `value` as the plain Python type `kind`, or None if it has another
    type.
    """
    if "choices" in limits:
        fits = isinstance(value, str) and value in limits["choices"]()
        return value if fits else None
    if kind == "bool":
        is_bool = type(value).__name__ in ("bool", "bool_")  # Python's or NumPy's
        return bool(value) if is_bool else None
    if kind == "str":
        return value if isinstance(value, str) else None
    return as_number(value, int if kind.startswith("int") else float)


def _unmet_condition(name: str, number: float, limits: Declared) -> str | None:
    """Returns the condition that a number does not meet, such as "N >= 1", or None if
    the number is within its limits.
    """
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    open_low, open_high = limits.get("open_low"), limits.get("open_high")
    if number < low or (number == low and open_low):
        return f"{name} > {low:g}" if open_low else f"{name} >= {low:g}"
    if number > high or (number == high and open_high):
        return f"{name} < {high}" if open_high else f"{name} <= {high}"
    return None


def _allowed(name: str, kind: str, limits: Declared) -> str:
    """Returns the text that describes the allowed values, such as "whole numbers from 2
    to 65536".
    """
    if "choices" in limits:
        return ", ".join(limits["choices"]())
    if kind == "bool":
        return "true, false"
    if kind == "str":
        return "a text"
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    allowed = "whole numbers" if kind.startswith("int") else "finite numbers"
    if limits.get("open_low"):
        allowed += f" greater than {low:g}"
    elif low > -math.inf:
        allowed += f" from {to_12_digits(low)}"
    if high < math.inf:
        allowed += f" to below {high}" if limits.get("open_high") else f" to {high}"
    larger = limits.get("high_with_pool", high)
    if larger > high:
        where = "with a pool or at L = 1" if name == "N" else "with a pool"
        allowed += f", {where} to {larger}"
    return allowed


def as_number(value: Any, kind: type) -> Any:
    """Returns `value` as an exact int or a finite float, or None if it is neither.

    1e5 counts as a whole number, and True does not count as a number.
    """
    try:
        if hasattr(value, "tolist"):
            value = as_plain(value)
        if isinstance(value, (bool, str)):
            return None
        if kind is float:
            number = float(value) + 0.0  # makes -0.0 the number 0.0, which it equals
            return number if math.isfinite(number) else None
        if isinstance(value, float):
            return int(value) if value.is_integer() else None
        return operator.index(value)
    except (TypeError, ValueError, OverflowError):
        return None


def as_plain(value: Any) -> Any:
    """Returns an array or a number of NumPy, JAX, PyTorch or pandas as Python's lists
    and numbers.

    A float of 32 or 16 bits becomes the shortest decimal that its type rounds to it. So
    np.float32(0.1) is 0.1, the number that was written, and not 0.10000000149. Whole
    numbers below 2^31, which may be counts, stay as they are.
    """
    import numpy as np

    kind = np.asarray(value).dtype
    if kind.itemsize >= 8:
        return value.tolist()
    # a decimal of few digits may be beyond the largest float of 16 bits
    with np.errstate(over="ignore"):
        return _shortest(value.tolist(), kind.type)


def _shortest(plain: Any, kind: type) -> Any:
    """Returns the numbers of nested lists as the shortest decimals that `kind` rounds
    to them.
    """
    if isinstance(plain, list):
        return [_shortest(each, kind) for each in plain]
    if isinstance(plain, float) and not (plain.is_integer() and abs(plain) < 2**31):
        for n_digits in range(1, 10):
            decimal = float(f"{plain:.{n_digits}g}")
            if kind(decimal) == kind(plain):
                return decimal
    return plain
