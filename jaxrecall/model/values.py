"""One value: how it is declared, with its meaning and limits, and how it is checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import MISSING, field
from typing import Any

from ..errors import Problem, shown, suggest


def declared(kind: str, legend: str, default: Any = MISSING, symbol: str = "", **limits: Any) -> Any:
    """A field of a record of a point; `limits` are low, high, high_with_pool, open_low, open_high, or choices (a function), and for
    a law its family. `symbol` is that of the paper where it is not the name."""
    return field(default=default, metadata={"kind": kind, "symbol": symbol, "legend": legend, **limits})


def parameter(default: Any, legend: str = "", **limits: Any) -> Any:
    """A parameter of a law, a field of a frozen dataclass; `limits` are low, high, open_low and open_high."""
    return declared("traced", legend, default, **limits)


def to_12_digits(value: float) -> str:
    """The value to 12 significant digits, by which ids and axes compare numbers."""
    return f"{value:.12g}"


def checked_value(name: str, value: Any, kind: str, limits: Mapping[str, Any], problems: list[Problem]) -> Any:
    """`value` as the plain Python type `kind` (int, float, bool or str, or one of these or None), or an entry in `problems`."""
    if "choices" in limits:
        return _checked_choice(name, value, limits["choices"](), problems)
    if kind == "bool":
        if type(value).__name__ not in ("bool", "bool_"):  # bool_ is numpy's
            problems.append(Problem(name, f"got {shown(value)}; allowed: true, false"))
            return value
        return bool(value)
    if kind == "str":
        if not isinstance(value, str):
            problems.append(Problem(name, f"got {shown(value)}; allowed: a text"))
        return value
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    number = as_number(value, int if kind.startswith("int") else float)
    too_low = number is not None and (number <= low if limits.get("open_low") else number < low)
    too_high = number is not None and (number >= high if limits.get("open_high") else number > high)
    if number is None or too_low or too_high:
        mend = None
        if too_low:
            mend = f"{name} {'>' if limits.get('open_low') else '>='} {low:g}"
        elif too_high:
            mend = f"{name} {'<' if limits.get('open_high') else '<='} {high}"
        problems.append(Problem(name, f"got {shown(value)}; allowed: {_allowed_numbers(kind, limits)}", mend))
        return value if number is None else number
    return number


def _checked_choice(name: str, value: Any, names: tuple[str, ...], problems: list[Problem]) -> Any:
    if not isinstance(value, str) or value not in names:
        hint = suggest(value, names) if isinstance(value, str) else ""
        problems.append(Problem(name, f"got {shown(value)}{hint}; allowed: {', '.join(names)}"))
    return value


def _allowed_numbers(kind: str, limits: Mapping[str, Any]) -> str:
    """The limits in words, as "whole numbers from 2 to 65536"."""
    low, high = limits.get("low", -math.inf), limits.get("high", math.inf)
    whole = kind.startswith("int")
    allowed = "whole numbers" if whole else "finite numbers"
    if low > -math.inf:
        allowed += f" greater than {low:g}" if limits.get("open_low") else f" from {low}" if whole else f" from {low:g}"
    if high < math.inf:
        allowed += f" to below {high}" if limits.get("open_high") else f" to {high}"
    if (larger := limits.get("high_with_pool", high)) > high:
        allowed += f", with a pool to {larger}"
    return allowed


def as_number(value: Any, kind: type) -> Any:
    """`value` as an exact int or finite float, or None; 1e5 is a whole number, True is none."""
    if isinstance(value, (bool, str)) or value is None:
        return None
    try:
        if kind is int:
            return operator.index(value) if not isinstance(value, float) else int(value) if value.is_integer() else None
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
