"""From a table of runs to thresholds N* and the exponents of N* ~ product of axis^exponent.

`runs` reads and checks rows, `axes` says what they were requested for, and `cells`
makes curves of them. `estimate` has where those of a family cross theta, with their law and intervals. `tables` makes the rows, `write` and
`latex` the output. `fitting` does all of it.
"""

from __future__ import annotations

from .fitting import Fit, fit

__all__ = ["Fit", "fit"]
