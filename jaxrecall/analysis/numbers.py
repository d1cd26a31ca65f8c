"""Numbers as a paper prints them: 17 400 [8500, 35 600]."""

from __future__ import annotations

from typing import Any

import numpy as np

THIN = "\u202f"
"""A thin space, at which no line breaks."""

SPELLED = 1e9
"""Numbers from here on have a power of ten."""


def grouped(value: Any) -> str:
    """A whole number with thin spaces between thousands, from five digits on.

    >>> grouped(8500), grouped(17400)  # ('8500', '17 400')
    """
    return f"{int(value):,}".replace(",", THIN) if abs(value) >= 10_000 else str(int(value))


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many digits that count.

    >>> rounded(17432.1), rounded(0.01234)  # ('17 400', '0.0123')
    """
    if not np.isfinite(value) or abs(value) >= SPELLED:
        return f"{value:.{digits}g}"
    near = float(f"{value:.{digits}g}")
    return grouped(near) if abs(near) >= 10 ** (digits - 1) else f"{near:.{digits}g}"


def interval(value: float, low: float = float("nan"), high: float = float("nan"), form: str = "") -> str:
    """A number with its interval, as far as they are known, by `form` or with three digits that count.

    >>> interval(17432.1, 8495.2, 35600.0)  # '17 400 [8500, 35 600]'
    """
    if value != value:
        return ""
    shown, *ends = (f"{v:{form}}" if form else rounded(v) for v in (value, low, high))
    return f"{shown} [{', '.join(ends)}]" if low == low else shown
