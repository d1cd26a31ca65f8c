"""A whole fit: every family, theta and regime of a table, as three tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FitError
from . import cells, diagnose, glm, summary, tables
from .curve import curve, resamplings
from .estimate import METHODS, REGRESSIONS, estimate
from .regime import regimes
from .steps import LAST, Steps, at_steps

RESAMPLES = 400


@dataclass(frozen=True, repr=False)
class Fit:
    """Three tables (pandas), as the command writes them, and remarks on rows and columns that were left out.

    It unpacks as `thresholds, exponents, diagnostics = fit(frame)`, and prints as a summary.
    """

    thresholds: Any
    exponents: Any
    diagnostics: Any
    remarks: list[str]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.thresholds, self.exponents, self.diagnostics))

    def __repr__(self) -> str:
        return "\n".join([*(f"note: {remark}" for remark in self.remarks), *summary.summary(*self)])

    def _repr_html_(self) -> str:
        return summary.html(self.exponents, repr(self).splitlines())


def fit(
    frame: Any,
    thetas: Sequence[float] = (0.5,),
    resamples: int = RESAMPLES,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    where: str | Sequence[str] = (),
    step: Steps = LAST,
) -> Fit:
    """Thresholds, exponents and diagnostics of a table with columns V, N, d, L, m, seed, n_test, n_correct.

    `thetas` are accuracies (fraction); `resamples` bootstrap resamplings of the seeds; `on_progress(done, of)` is called with
    the steps done so far and in all. `where` restricts the law to the cells for which an expression of the axes holds, such as
    "L**2 > 10 * V**1.5 * d**0.5"; several give a law each, named in the column `regime`. `step` chooses the rows of runs that train on:
    "last", a step, several steps, or "all"; with several, `step` is an axis. Raises FitError, one line per problem.
    """
    import pandas as pd

    thetas = list(dict.fromkeys(thetas))
    if bad := [theta for theta in thetas if not 0 < theta < 1]:
        raise FitError(f"theta: {', '.join(f'{theta:g}' for theta in bad)}; allowed: fractions between 0 and 1, as in 0.5 0.9")
    if resamples < 100:
        raise FitError(f"resamples: {resamples}; allowed: at least 100")
    families, remarks = cells.families(at_steps(frame, step))
    methods = tuple(METHODS)
    if not glm.installed():
        methods = tuple(name for name in METHODS if name not in REGRESSIONS)
        remarks.append(f"{', '.join(REGRESSIONS)}: left out, as firthmodels is not installed; python -m pip install 'jaxrecall[fit]'")
    axes = list(families[0].cells[0].at)
    if clash := [name for name in axes if name in tables.THRESHOLDS]:
        raise FitError(f"columns: {', '.join(clash)} is an axis here and a column of the thresholds; rename it")
    laws = regimes(families, [where] if isinstance(where, str) else list(dict.fromkeys(where)))
    thresholds, exponents, diagnostics = [], [], []
    n_estimates = len(thetas) * (len(families) + (sum(map(len, laws)) if where else 0))
    of, done = sum(name in REGRESSIONS for name in methods) * (1 + resamples) * n_estimates, 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        on_progress(done, of)

    for family, by_regime in zip(families, laws, strict=True):
        times = resamplings(family.cells[0].k.shape[1], resamples)
        curves = [curve(cell, times) for cell in family.cells]
        diagnostics.append(diagnose.dispersion(family))
        for theta in thetas:
            found = estimate(family, theta, curves, advance, methods)
            thresholds += tables.thresholds(found)
            for regime, part in by_regime.items():
                if part is not family:
                    among = {id(cell) for cell in part.cells}
                    mine = [c for c, cell in zip(curves, family.cells, strict=True) if id(cell) in among]
                    found = estimate(part, theta, mine, advance, methods)
                exponents += (rows := tables.exponents(found, regime))
                diagnostics += [row | {"regime": regime} for row in diagnose.diagnose(found, rows)]
    diagnostics += [{"part": "", "diagnostic": "remark", "subject": "", "text": remark, "regime": ""} for remark in remarks]
    return Fit(
        pd.DataFrame(thresholds, columns=pd.Index([*axes, *tables.THRESHOLDS])).astype(
            {"N_below": "Int64", "N_above": "Int64", "copy_of": "string"}
        ),
        pd.DataFrame(exponents, columns=pd.Index(list(tables.EXPONENTS))).astype({"record": bool, "rejected": bool}),
        pd.DataFrame(diagnostics, columns=pd.Index(list(diagnose.DIAGNOSTICS))),
        remarks,
    )
