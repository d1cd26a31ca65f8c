"""One value: how it is declared, with its meaning and limits, and how it is checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field
from typing import Any, TypeAlias

from ..errors import Problem, shown, suggest

Numbers: TypeAlias = Any
"""An array of NumPy or of JAX, or a number: what code for both libraries takes, beside
`xp`, numpy or jax.numpy.
"""

Choices = Iterable[str] | Callable[[], Iterable[str]]

Limits = Mapping[str, Any]
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
    name: str, value: object, kind: str, limits: Limits, problems: list[Problem]
) -> Any:
    """`value` as the plain Python type `kind`, or an entry in `problems`.

    The kind is int, float, bool or str, or one of these or None.
    """
    mend = None
    if "choices" in limits:
        checked = (
            value if isinstance(value, str) and value in limits["choices"]() else None
        )
    elif kind == "bool":
        checked = (
            bool(value) if type(value).__name__ in ("bool", "bool_") else None
        )  # bool_ is numpy's
    elif kind == "str":
        checked = value if isinstance(value, str) else None
    else:
        checked = as_number(value, int if kind.startswith("int") else float)
        mend = None if checked is None else _condition(name, checked, limits)
    if checked is None or mend:
        problems.append(
            Problem(
                name, f"got {shown(value)}{_allowed(name, value, kind, limits)}", mend
            )
        )
        return value
    return checked


def _condition(name: str, number: float, limits: Limits) -> str | None:
    """The condition that a number does not meet, as "N >= 1"; None if it is within its
    limits.
    """
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    if number < low or (number == low and limits.get("open_low")):
        return f"{name} {'>' if limits.get('open_low') else '>='} {low:g}"
    if number > high or (number == high and limits.get("open_high")):
        return f"{name} {'<' if limits.get('open_high') else '<='} {high}"
    return None


def _allowed(name: str, value: object, kind: str, limits: Limits) -> str:
    """What is allowed in place of a value, as "; allowed: whole numbers from 2 to
    65536".
    """
    if "choices" in limits:
        names = limits["choices"]()
        hint = suggest(value, names) if isinstance(value, str) else ""
        return f"{hint}; allowed: {', '.join(names)}"
    if kind in ("bool", "str"):
        return "; allowed: true, false" if kind == "bool" else "; allowed: a text"
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    allowed, start = (
        ("whole numbers", str(low))
        if kind.startswith("int")
        else ("finite numbers", f"{low:g}")
    )
    if low > -math.inf:
        allowed += (
            f" greater than {low:g}" if limits.get("open_low") else f" from {start}"
        )
    if high < math.inf:
        allowed += f" to below {high}" if limits.get("open_high") else f" to {high}"
    if (larger := limits.get("high_with_pool", high)) > high:
        allowed += f", with a pool{' or at L = 1' if name == 'N' else ''} to {larger}"
    return f"; allowed: {allowed}"


def as_number(value: Any, kind: type) -> Any:
    """`value` as an exact int or finite float, or None; 1e5 is a whole number, True is
    none.
    """
    if isinstance(value, (bool, str)) or value is None:
        return None
    try:
        if kind is int:
            return (
                operator.index(value)
                if not isinstance(value, float)
                else int(value)
                if value.is_integer()
                else None
            )
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
