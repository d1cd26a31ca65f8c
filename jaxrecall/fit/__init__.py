"""From a table of runs to thresholds N* and the exponents of N* ~ product of axis^exponent. No JAX here.

`cells` makes curves of a table, `curve` finds where one crosses theta, `glm` holds the regressions, `law` the exponents and
intervals, `estimate` every method side by side, `tables` and `diagnose` the rows, `coverage` the proof of the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ..errors import FitError
from . import cells, diagnose, tables
from .curve import curve, resamplings
from .estimate import estimate

__all__ = ["Fit", "fit"]

RESAMPLES = 400


@dataclass(frozen=True)
class Fit:
    """Three tables (pandas), as the command writes them, and remarks on rows and columns that were left out."""

    thresholds: Any
    exponents: Any
    diagnostics: Any
    remarks: list[str]


def fit(
    frame: Any, thetas: Sequence[float] = (0.5,), resamples: int = RESAMPLES, tell: Callable[[int, int], None] = lambda done, of: None
) -> Fit:
    """Thresholds, exponents and diagnostics of a table with columns V, N, d, L, m, seed, n_test, n_correct (spec 8).

    `thetas` are accuracies (fraction); `resamples` bootstrap resamplings of the seeds; `tell(done, of)` hears of progress.
    Raises FitError, one line per problem.
    """
    import pandas as pd

    if find_spec("firthmodels") is None:
        raise FitError("firthmodels is not installed; python -m pip install 'jaxrecall[fit]'")
    thetas = list(dict.fromkeys(thetas))
    if bad := [theta for theta in thetas if not 0 < theta < 1]:
        raise FitError(f"theta: {', '.join(f'{theta:g}' for theta in bad)}; allowed: fractions between 0 and 1, as in 0.5 0.9")
    if resamples < 100:
        raise FitError(f"resamples: {resamples}; allowed: at least 100")
    parts, remarks = cells.parts(frame)
    axes = list(parts[0].cells[0].at)
    if clash := [name for name in axes if name in tables.THRESHOLDS]:
        raise FitError(f"columns: {', '.join(clash)} is an axis here and a column of the thresholds; rename it")
    thresholds, exponents, diagnostics = [], [], []
    of, done = 2 * (1 + resamples) * len(thetas) * len(parts), 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        tell(done, of)

    for part in parts:
        times = resamplings(part.cells[0].k.shape[1], resamples)
        curves = [curve(cell, times) for cell in part.cells]
        diagnostics.append(diagnose.dispersion(part))
        for theta in thetas:
            found = estimate(part, theta, curves, advance)
            thresholds += tables.thresholds(found)
            exponents += (rows := tables.exponents(found))
            diagnostics += diagnose.diagnose(found, rows)
    diagnostics += [{"part": "", "diagnostic": "remark", "subject": "", "text": remark} for remark in remarks]
    return Fit(
        pd.DataFrame(thresholds, columns=pd.Index([*axes, *tables.THRESHOLDS])).astype({"N_below": "Int64", "N_above": "Int64"}),
        pd.DataFrame(exponents, columns=pd.Index(tables.EXPONENTS)),
        pd.DataFrame(diagnostics, columns=pd.Index(diagnose.DIAGNOSTICS)),
        remarks,
    )
