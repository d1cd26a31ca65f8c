"""Estimates become rows: thresholds, one per cell and theta, and exponents, one per law, axis and theta.

What is not known is null, with the reason in `warning`. An interval's end is 0 or infinite where the resamplings cannot
rule out that the curve never crosses on that side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .cells import Cell
from .curve import Curve, above_theta, bracket, one_step
from .estimate import REPORTED, Estimates
from .law import MIN_SEEDS_FOR_INTERVAL, interval

Row = dict[str, Any]
CENSORED = {0: "no", 1: "right", -1: "left"}

THRESHOLDS = {
    "theta": "accuracy to cross, fraction",
    "method": "how critical was estimated",
    "axis": "the axis along which accuracy crosses theta",
    "critical": "the value of the axis at which accuracy, averaged over seeds, crosses theta; null if it does not",
    "N_star": "the same along N, number of samples; null along another axis",
    "lo": "lower end of the 95 % interval of critical; 0 if some resamplings cross below the smallest level",
    "hi": "upper end of the 95 % interval of critical; infinite if some resamplings do not cross up to the largest level",
    "censored": "right: the crossing lies beyond the largest level; left: below the smallest; no: accuracy crosses theta",
    "n_seeds": "number of seeds",
    "n_levels": "number of values of the axis",
    "warning": "what to be careful about, empty if nothing",
    "N_below": "largest tested value of the axis below the crossing",
    "N_above": "smallest tested value of the axis above the crossing",
    "record": "whether this is the reported method",
    "copy_of": "the cell with exactly the same counts, by the axes in which it differs, as in L = 8; null for every other cell",
    "reference": "along m the mean accuracy at m = 0; null along other axes",
}
"""Columns of the thresholds after the axes, each with its meaning."""

EXPONENTS = {
    "axis": "axis of the exponent",
    "exponent": "exponent of the axis in critical ~ product of axis^exponent",
    "lo": "lower end of the 95 % interval of the exponent",
    "hi": "upper end of the 95 % interval of the exponent",
    "method": "how the critical values were estimated",
    "theta": "accuracy to cross, fraction",
    "part": "m = 0 or m > 0, which are fitted apart",
    "n_cells": "number of cells in the law; a cell and its copies count as one",
    "n_seeds": "number of seeds",
    "warning": "why there is no exponent or no interval, empty if nothing",
    "record": "whether this is the reported method",
    "regime": "expression that holds for the cells of the law; empty if it goes through all cells",
    "rejected": "whether the cells lie further from the law than noise explains, so that no power law describes them",
    "along": "what is critical, as N",
}
"""Columns of the exponents, each with its meaning."""

DIAGNOSTICS = {
    "part": "m = 0 or m > 0, which are fitted apart",
    "theta": "accuracy to cross, fraction",
    "diagnostic": "local_slope, drop_smallest, with_log, residual, dispersion, warning or remark",
    "subject": "what the value describes",
    "value": "the value",
    "lo": "lower end of its 95 % interval",
    "hi": "upper end of its 95 % interval",
    "text": "explanation, or the warning in words",
    "regime": "expression that holds for the cells of the law; empty if it goes through all cells",
}
"""Columns of the diagnostics, each with its meaning."""


COARSE = 4.0
FAR = 10.0
FLAT = 0.5
"""A curve that does not reach theta has levelled off if it would need FAR times more N at its last slope, and that slope
is below FLAT times its steepest; both in logits against ln N."""


def thresholds(e: Estimates) -> list[Row]:
    """One row per cell of a family."""
    rows, along = [], e.family.along
    lower, upper = e.is_open(-1), e.is_open(1)
    for i, cell in enumerate(e.family.cells):
        c, side, y = e.curves[i], int(e.side[0, i]), e.y[:, i]
        after = int(bracket(c, e.theta)[0][0])
        warnings = [*_curve_warnings(c, e, side), *_seed_warnings(cell.n)]
        if lower[i] or upper[i]:
            unsure = (e.side[1:, i] != 0).mean()
            warnings.append(f"crossing not sure: {100 * unsure:.0f} % of the resamplings have none; not in the law")
        below, above = {1: (cell.N[-1], None), -1: (None, cell.N[0]), 0: (cell.N[after - 1], cell.N[after])}[side]
        low, high = np.exp(interval(y, cell.n_seeds, e.shape[i]))
        if not np.isnan(low):
            if one_step(c, e.theta):
                low, high = min(low, below), max(high, above)
            low, high = 0.0 if lower[i] else low, np.inf if upper[i] else high
        rows.append(
            cell.at
            | {"theta": e.asked, "method": REPORTED, "axis": along, "critical": np.exp(y[0])}
            | {"N_star": np.exp(y[0]) if along == "N" else None, "lo": low, "hi": high, "censored": CENSORED[side]}
            | {"n_seeds": cell.n_seeds, "n_levels": len(cell.N), "warning": "; ".join(warnings)}
            | {"N_below": below, "N_above": above, "record": True, "copy_of": _copied(cell), "reference": cell.reference}
        )
    return rows


def _copied(cell: Cell) -> str | None:
    if cell.copy_of is None:
        return None
    return ", ".join(f"{axis} = {value}" for axis, value in cell.copy_of.items() if value is not cell.at[axis] and value != cell.at[axis])


def _curve_warnings(c: Curve, e: Estimates, side: int) -> list[str]:
    """Warnings on the shape of the table's own curve."""
    p, raw, of, theta = c.p[0], c.k[0] / c.n[0], e.family, e.theta
    rises, falls, above = ("falls", "rises", "below") if of.falls else ("rises", "falls", "above")
    warnings = []
    if len(p) == 1:
        warnings.append(f"one {of.along} level: no curve")
    elif side == 1:
        warnings.append(_not_reached(c, e))
    elif side == -1:
        warnings.append(f"{above} theta from the smallest {_level(c, e, 0)} on: accuracy {of.mirrored(p[0]):.2g} there")
    elif one_step(c, theta):
        warnings.append(f"{rises} within one step of {of.along}: the crossing is anywhere between N_below and N_above")
    else:
        after = bracket(c, theta)[0][0]
        if (step := np.exp(c.x[after] - c.x[after - 1])) > COARSE:
            warnings.append(f"coarse: {of.along} grows by a factor {step:.3g} around theta")
    if (against := (np.maximum.accumulate(raw) - raw).max()) > 0.1:
        warnings.append(f"not monotone: accuracy {falls} by {against:.2g} as {of.along} grows")
    return warnings


def _level(c: Curve, e: Estimates, i: int) -> str:
    """ "N = 4096"."""
    level = np.exp(c.x[i])
    return f"{e.family.along} = {level:.0f}" if abs(level - round(level)) < 1e-6 * level else f"{e.family.along} = {level:.4g}"


def _not_reached(c: Curve, e: Estimates) -> str:
    p, of = c.p[0], e.family
    moves, moving = ("fall", "falling") if of.falls else ("rise", "climbing")
    here = f"accuracy {of.mirrored(p[-1]):.2g} at the largest {_level(c, e, -1)}"
    z = above_theta(c, e.theta)[0]
    slopes = np.diff(z) / np.diff(c.x)
    end = (z[-1] - z[-min(3, len(z))]) / (c.x[-1] - c.x[-min(3, len(z))])
    if p[-1] - p[0] < 0.02:
        return f"not reached: {here}, no {moves} with {of.along}"
    more = -z[-1] / end if end > 0 else np.inf
    if more > np.log(FAR) and end < FLAT * slopes.max():
        return f"plateau: {here}, levelling off"
    return f"not reached: {here}, still {moving}"


def _seed_warnings(n: np.ndarray) -> list[str]:
    here = (n > 0).any(axis=0)
    warnings = []
    if here.sum() < MIN_SEEDS_FOR_INTERVAL:
        warnings.append(f"no interval: {here.sum()} seeds, {MIN_SEEDS_FOR_INTERVAL} are needed")
    if (n[:, here] == 0).any():
        warnings.append("levels differ in their seeds")
    return warnings


def exponents(e: Estimates, regime: str = "") -> list[Row]:
    """The exponents of a family, or of its cells in a regime."""
    rows = []
    n_seeds = int(np.any([(cell.n > 0).any(axis=0) for cell in e.cells], axis=0).sum()) if e.cells else 0
    shape, found = e.shape_deviation(e.law.weights()), e.exponents
    for j, axis in enumerate(e.family.law):
        warning = _unknown(e, axis)
        if not warning and n_seeds < MIN_SEEDS_FOR_INTERVAL:
            warning = f"no interval: {n_seeds} seeds, {MIN_SEEDS_FOR_INTERVAL} are needed"
        if not warning and e.law.n_distinct <= e.law.rank:
            warning = "as many unknowns as cells: nothing checks the law"
        low, high = interval(found[:, j], n_seeds, shape[j])
        rows.append(
            {"axis": axis, "exponent": found[0, j], "lo": low, "hi": high, "method": REPORTED, "theta": e.asked, "part": e.family.name}
            | {"n_cells": e.law.n_distinct, "n_seeds": n_seeds, "warning": warning, "record": True}
            | {"regime": regime, "rejected": e.rejected, "along": e.family.along}
        )
    return rows


def _unknown(e: Estimates, axis: str) -> str:
    """Why the cells that cross do not determine this exponent; empty if they do."""
    n = f"{len(e.cells)} of {len(e.family.cells)} cells cross theta"
    if len({cell.at[axis] for cell in e.cells}) < 2:
        return f"{n}{f', all at one {axis}' if e.cells else ''}"
    if np.isnan(e.law.weights()[e.family.law.index(axis)]).any():
        return f"{n}, and in those {axis} moves together with other axes"
    return ""


def frames(axes: Sequence[str], thresholds: list[Row], exponents: list[Row], diagnostics: list[Row], of: str) -> tuple[Any, Any, Any]:
    """The rows of a fit as three tables of pandas, with the columns that users rely on. The attribute "of" says what crosses theta."""
    import pandas as pd

    whole = all(isinstance(row[name], (int, np.integer, type(None))) for row in thresholds for name in ("N_below", "N_above"))
    types = {"copy_of": "string", "N_star": "float64"} | dict.fromkeys(("N_below", "N_above"), "Int64" if whole else "Float64")
    made = (
        pd.DataFrame(thresholds, columns=pd.Index([*axes, *THRESHOLDS])).astype(types),
        pd.DataFrame(exponents, columns=pd.Index(list(EXPONENTS))).astype({"record": bool, "rejected": bool}),
        pd.DataFrame(diagnostics, columns=pd.Index(list(DIAGNOSTICS))),
    )
    for table in made:
        table.attrs["of"] = of
    return made
