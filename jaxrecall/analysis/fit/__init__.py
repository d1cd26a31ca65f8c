"""From a table of runs to thresholds N* and the exponents of N* ~ product of axis^exponent.

`steps` chooses rows of a table, `runs` reads and checks them, `axes` says what they were requested for, and `cells` makes curves of
them. `curve` finds where one crosses theta, `law` holds the exponents and intervals, `estimate` is both for a family of cells.
`tables` and `diagnose` make the rows, `summary`, `latex` and `write` the output. `fitting` does all of it.
"""

from __future__ import annotations

from .fitting import Fit, fit

__all__ = ["Fit", "fit"]
