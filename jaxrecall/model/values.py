"""One value: how it is declared, with its meaning and limits, and how it is checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, field
from typing import Any, TypeAlias

from ..errors import Problem, shown, suggest

Numbers: TypeAlias = Any
"""An array of NumPy or of JAX, or a number: what code for both libraries takes, beside
`xp`, numpy or jax.numpy.
"""

Choices = Iterable[str] | Callable[[], Iterable[str]]

Declared = Mapping[str, Any]
"""What the metadata of a field declares."""


def declared(
    kind: str,
    legend: str,
    default: object = MISSING,
    symbol: str = "",
    choices: Choices | None = None,
    **limits: object,
) -> Any:
    """A field of a record of a point.

    Args:
        kind: how the simulator treats it, a `Kind` of `model/point.py`.
        legend: its meaning.
        default: MISSING for none.
        symbol: that of the paper, where it is not the name.
        choices: the allowed values of a text, or a function that gives them.
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
    """A parameter of a law, a field of a frozen dataclass.

    `limits` are low, high, open_low and open_high. `unit` is what it counts, if it is
    not a plain number. All values of a float share a compiled program unless its kind
    is "static".
    """
    return declared(kind, legend, default, **limits)


def plain_type(declared: Field[Any]) -> str:
    """The type of a field in files: int, float, bool or str, which a law is there."""
    if "law" in declared.metadata:
        return "str"
    name = getattr(declared.type, "__name__", str(declared.type))
    return name.removesuffix(" | None")


def is_missing(value: object) -> bool:
    """Whether a cell of a table has no value: None, NaN, or NA of pandas."""
    import pandas as pd

    return value is None or bool(pd.isna(value))


def to_12_digits(value: float) -> str:
    """The value to 12 significant digits, by which ids and axes compare numbers."""
    return f"{value:.12g}"


def padded(size: int, least: int) -> int:
    """The size rounded up to a multiple of `least`, or of a larger step that adds a
    quarter at most.
    """
    step = max(least, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step


def checked_value(
    name: str, value: object, kind: str, limits: Declared, problems: list[Problem]
) -> Any:
    """`value` as the plain Python type `kind`, or an entry in `problems`.

    The kind is int, float, bool or str, or one of these or None.
    """
    checked, where = _typed(value, kind, limits), None
    if type(checked) in (int, float):
        where = _unmet_condition(name, checked, limits)
    if checked is not None and where is None:
        return checked
    allowed = _allowed(name, value, kind, limits)
    problems.append(Problem(name, f"got {shown(value)}{allowed}", where))
    return value


def _typed(value: object, kind: str, limits: Declared) -> Any:
    """`value` as the plain Python type `kind`; None if it is no such value."""
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
    """The condition that a number does not meet, as "N >= 1"; None if it is within its
    limits.
    """
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    open_low, open_high = limits.get("open_low"), limits.get("open_high")
    if number < low or (number == low and open_low):
        return f"{name} > {low:g}" if open_low else f"{name} >= {low:g}"
    if number > high or (number == high and open_high):
        return f"{name} < {high}" if open_high else f"{name} <= {high}"
    return None


def _allowed(name: str, value: object, kind: str, limits: Declared) -> str:
    """What is allowed in place of a value, as "; allowed: whole numbers from 2 to
    65536".
    """
    if "choices" in limits:
        names = limits["choices"]()
        hint = suggest(value, names) if isinstance(value, str) else ""
        return f"{hint}; allowed: {', '.join(names)}"
    if kind == "bool":
        return "; allowed: true, false"
    if kind == "str":
        return "; allowed: a text"
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    if kind.startswith("int"):
        allowed, start = "; allowed: whole numbers", str(low)
    else:
        allowed, start = "; allowed: finite numbers", f"{low:g}"
    if limits.get("open_low"):
        allowed += f" greater than {low:g}"
    elif low > -math.inf:
        allowed += f" from {start}"
    if high < math.inf:
        allowed += f" to below {high}" if limits.get("open_high") else f" to {high}"
    larger = limits.get("high_with_pool", high)
    if larger > high:
        where = "with a pool or at L = 1" if name == "N" else "with a pool"
        allowed += f", {where} to {larger}"
    return allowed


def as_number(value: Any, kind: type) -> Any:
    """`value` as an exact int or finite float, or None; 1e5 is a whole number, True is
    none.
    """
    if isinstance(value, (bool, str)) or value is None:
        return None
    try:
        if kind is float:
            number = float(value)
            return number if math.isfinite(number) else None
        if isinstance(value, float):
            return int(value) if value.is_integer() else None
        return operator.index(value)
    except (TypeError, ValueError, OverflowError):
        return None
