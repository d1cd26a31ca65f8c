"""Estimates become rows: thresholds, one per cell and theta,
exponents, one per law, axis and theta, and diagnostics.

What is not known is null, with the reason in `warning`. An interval's end is 0 or
infinite where the levels on that side do not show that the curve has crossed.
Diagnostics say what an interval alone does not: local slopes, misfit, dispersion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...sweep.crossing import MIN_SEEDS, Curve
from .cells import Cell, Family, evidence
from .estimate import REPORTED, Estimates, interval

Row = dict[str, Any]
CENSORED = {0: "no", 1: "right", -1: "left"}
MIRRORED = ("falls", "rises", "below")
"""Words for "rises", "falls" and "above" where accuracy falls along the axis."""

THRESHOLDS = {
    "theta": "accuracy to cross, fraction",
    "method": "how critical was estimated",
    "axis": "the axis along which accuracy crosses theta",
    "critical": "the value of the axis at which accuracy, averaged over seeds, crosses theta; null if it does not",
    "N_star": "the same along N, number of samples; null along another axis",
    "lo": "lower end of the 95 % interval of critical; 0 if no level is surely below it",
    "hi": "upper end of the 95 % interval of critical; infinite if no level is surely above it",
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
    "exponent": "exponent of the axis in critical, or the mean of a column, ~ product of axis^exponent",
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
    "along": "what is critical, as N; where theta is null, the column whose mean obeys the law",
}
"""Columns of the exponents, each with its meaning."""

DIAGNOSTICS = {
    "part": "m = 0 or m > 0, which are fitted apart",
    "theta": "accuracy to cross, fraction",
    "diagnostic": "local_slope, residual, dispersion, warning or remark",
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
STEP = 0.85
"""A curve that does not reach theta has levelled off if it would need FAR times more N
at its last slope, and that slope is below FLAT times its steepest; both in logits
against ln N. One that does STEP of what counts as all of its rise between two levels rises within one step."""


def thresholds(e: Estimates) -> list[Row]:
    """One row per cell of a family."""
    rows, along = [], e.family.along
    for i, cell in enumerate(e.family.cells):
        found, c, side = e.found[i], e.curves[i], int(e.side[i])
        below, above = {1: (cell.N[-1], None), -1: (None, cell.N[0]), 0: _bracket(e, i)}[side]
        critical = np.exp(e.y[0, i])
        low, high = np.exp([found.lo, found.hi]) if found.n_seeds >= MIN_SEEDS and side == 0 else (np.nan, np.nan)
        low, high = 0.0 if found.is_open[0] else low, np.inf if found.is_open[1] else high
        warning = "; ".join([*_curve_warnings(e, i), *_seed_warnings(e, i)])
        row = [e.asked, REPORTED, along, critical, critical if along == "N" else None, low, high, CENSORED[side]]
        row += [cell.n_seeds, len(c.x), warning, below, above, True, _copied(cell), cell.reference]
        rows.append(cell.at | cell.names | dict(zip(THRESHOLDS, row, strict=True)))
    return rows


def _after(e: Estimates, i: int) -> int:
    """The number of the first level beyond the crossing of a cell."""
    return int(np.searchsorted(e.curves[i].x, e.found[i].log_x).clip(1, len(e.curves[i].x) - 1))


def _bracket(e: Estimates, i: int) -> tuple[Any, Any]:
    """The levels on either side of the crossing."""
    return tuple(e.family.cells[i].N[_after(e, i) - 1 :][:2])


def _copied(cell: Cell) -> str | None:
    if cell.copy_of is None:
        return None
    return ", ".join(f"{axis} = {value}" for axis, value in cell.copy_of.items() if value is not cell.at[axis] and value != cell.at[axis])


def _seed_warnings(e: Estimates, i: int) -> list[str]:
    """What to be careful about in a cell because of its seeds."""
    found, warnings = e.found[i], [told] if (told := e.family.cells[i].told) else []
    if (n := e.family.cells[i].n_seeds) < MIN_SEEDS:
        warnings.append(f"no interval: {n} seeds, {MIN_SEEDS} are needed")
    sides = ("above", "below") if e.family.falls else ("below", "above")
    for is_open, side in zip(found.is_open, sides, strict=True):
        if is_open:
            warnings.append(f"crossing not sure: no level is surely {side} theta; not in the law")
    return warnings


def _curve_warnings(e: Estimates, i: int) -> list[str]:
    """Warnings on the shape of a cell's curve. The accuracies that they name are measured means."""
    c, of, side = e.curves[i], e.family, int(e.side[i])
    rises, falls, above = MIRRORED if of.falls else ("rises", "falls", "above")
    warnings = []
    if len(c.x) == 1:
        warnings.append(f"one {of.along} level: no curve")
    elif side == 1:
        warnings.append(_not_reached(c, e))
    elif side == -1:
        warnings.append(f"{above} theta from the smallest on: {_measured(c, e, 0)}")
    else:
        after = _after(e, i)
        gap = c.x[after] - c.x[after - 1]
        if e.found[i].step > STEP * gap:
            warnings.append(f"{rises} within one step of {of.along}: the crossing is anywhere between N_below and N_above")
        elif np.exp(gap) > COARSE:
            warnings.append(f"coarse: {of.along} grows by a factor {np.exp(gap):.3g} around theta")
    told = any(text.startswith(falls) or "again:" in text for text in warnings)
    if (against := (np.maximum.accumulate(c.mean) - c.mean).max()) > 0.1 and not told:
        warnings.append(f"not monotone: accuracy {falls} by {against:.2g} as {of.along} grows")
    return warnings


def _measured(c: Curve, e: Estimates, i: int) -> str:
    """ "accuracy 0.43 at N = 4096"."""
    level, along = np.exp(c.x[i]), e.family.along
    whole = abs(level - round(level)) < 1e-6 * level
    return f"accuracy {e.family.mirrored(c.mean[i]):.2g} at {along} = {level:{'.0f' if whole else '.4g'}}"


def _not_reached(c: Curve, e: Estimates) -> str:
    """Why a curve does not end beyond theta: it falls, rises and falls again, levels off, or still moves towards it."""
    rises, falls, above = MIRRORED if e.family.falls else ("rises", "falls", "above")
    last = f"{_measured(c, e, -1)}, the largest"
    top = int(c.mean.argmax())
    if c.mean[0] >= e.theta:
        return f"{falls}: {_measured(c, e, 0)}, the smallest, {last}"
    if c.mean[top] >= e.theta and c.mean[top] - c.mean[-1] > 0.1:
        return f"{rises} {above} theta and {falls} again: {_measured(c, e, top)}, {last}"
    if c.mean[-1] - c.mean[0] < 0.02:
        return f"not reached: {last}; it hardly {rises} with {e.family.along}"
    slopes = np.diff(c.logits) / np.diff(c.x)
    if c.reach(e.theta) > np.log(FAR) and slopes[-1] < FLAT * slopes.max():
        return f"plateau: {last}; it levels off"
    return f"not reached: {last}; it still {rises}"


def exponents(e: Estimates, regime: str = "") -> list[Row]:
    """The exponents of a family, or of its cells in a regime."""
    rows = []
    n_seeds = e.n_seeds
    shape, found = e.shape_deviation(e.law.weights()), e.exponents
    for j, axis in enumerate(e.family.law):
        low, high = interval(found[:, j], n_seeds, shape[j])
        warning = _exponent_warning(e, axis, n_seeds)
        row = [axis, found[0, j], low, high, REPORTED, e.asked, e.family.name, e.law.n_distinct, n_seeds, warning]
        rows.append(dict(zip(EXPONENTS, [*row, True, regime, e.rejected, e.family.what or e.family.along], strict=True)))
    return rows


def _exponent_warning(e: Estimates, axis: str, n_seeds: int) -> str:
    """Why the cells that cross do not determine this exponent,
    or how sure it is; empty if there is nothing to say.
    """
    n = f"{len(e.cells)} of {len(e.family.cells)} cells {'have a mean above 0' if e.family.what else 'cross theta'}"
    if len({cell.at[axis] for cell in e.cells}) < 2:
        return f"{n}{f', all at one {axis}' if e.cells else ''}"
    if np.isnan(e.law.weights()[e.family.law.index(axis)]).any():
        return f"{n}, and in those {axis} moves together with other axes"
    if n_seeds < MIN_SEEDS:
        return f"no interval: {n_seeds} seeds, {MIN_SEEDS} are needed"
    return "as many unknowns as cells: nothing checks the law" if e.law.n_distinct <= e.law.rank else ""


def diagnose(e: Estimates, exponents: Sequence[Row]) -> list[Row]:
    """Everything about one family at one theta, warnings
    last; `exponents` are its rows of the exponents table.
    """
    rows = [_row("warning", "", np.nan, text) for text in _law_warnings(e, exponents)]
    if e.family.law and e.inside.any():
        rows = [*_local_slopes(e), *_misfit(e), *rows]
    return [{"part": e.family.name, "theta": e.asked} | row for row in rows]


def dispersion(family: Family) -> Row:
    """Variance between seeds over binomial variance, mean over
    points with 2 seeds or more and some right, some wrong.
    """
    total, free = 0.0, 0
    counted = [cell for cell in family.cells if cell.n.max() > 1]  # not so where a table has accuracies alone
    for cell in counted:
        for k, n in zip(cell.k, cell.n, strict=True):
            k, n = k[n > 0], n[n > 0]
            if len(n) > 1 and 0 < (p := k.sum() / n.sum()) < 1:
                total, free = total + ((k - n * p) ** 2 / (n * p * (1 - p))).sum(), free + len(n) - 1
    text = "1 if a seed's answers were independent; the intervals take the seed as the unit and do not assume it"
    row = _row("dispersion", "between seeds", total / free if free else np.nan, text)
    return {"part": family.name, "theta": np.nan, "regime": ""} | row


def _row(diagnostic: str, subject: str, value: float, text: str, lo: float = np.nan, hi: float = np.nan) -> Row:
    return {"diagnostic": diagnostic, "subject": subject, "value": float(value), "lo": float(lo), "hi": float(hi), "text": text}


def _local_slopes(e: Estimates) -> list[Row]:
    """The exponent of each axis between neighbouring sizes, from cells alike in all else."""
    rows, y = [], e.y[:, e.inside]
    n_seeds = max(cell.n_seeds for cell in e.cells)
    for axis in e.family.law:
        for low, high in pairwise(np.unique([cell.at[axis] for cell in e.cells])):
            weights = _matched(e.cells, axis, low, high) / np.log(high / low)
            slopes = y @ weights
            if weights.any() and not np.isnan(slopes[0]):
                ends = interval(slopes, n_seeds, float(e.shape_deviation(weights)))
                rows.append(_row("local_slope", f"{axis} {low} to {high}", slopes[0], "between cells alike in all else", *ends))
    return rows


def _misfit(e: Estimates) -> list[Row]:
    if not e.misfit:
        return []
    text = f"rms distance of ln {e.family.critical} from the law; noise alone would make it {e.misfit.noise:.2g}"
    return [_row("residual", f"ln {e.family.critical}", e.misfit.rms, text)]


def _matched(cells: Sequence[Any], axis: str, low: Any, high: Any) -> np.ndarray:
    """Weights of the mean difference between cells that differ
    only in axis = high against low; pairs of copies count as one.
    """
    index = {tuple(cell.at.items()): i for i, cell in enumerate(cells)}
    pairs, number = [], evidence(cells)
    for i, cell in enumerate(cells):
        if cell.at[axis] == low:
            other = index.get(tuple((cell.at | {axis: high}).items()))
            pairs += [(i, other)] if other is not None else []
    times = Counter((number[i], number[other]) for i, other in pairs)
    weights = np.zeros(len(cells))
    for i, other in pairs:
        share = 1 / (len(times) * times[number[i], number[other]])
        weights[i], weights[other] = weights[i] - share, weights[other] + share
    return weights


def _law_warnings(e: Estimates, exponents: Sequence[Row]) -> list[str]:
    texts = []
    if not e.inside.all():
        beyond = f"are {'below' if e.family.falls else 'above'} it from the smallest {e.family.along} on"
        counts = {"have mean 0" if e.family.what else "never reach theta": (e.side == 1).sum(), beyond: (e.side == -1).sum()}
        counts["rest on one seed" if e.family.what else "cross theta, but not surely"] = (~e.inside).sum() - sum(counts.values())
        why = ", ".join(f"{n} {text}" for text, n in counts.items() if n)
        texts.append(f"{(~e.inside).sum()} of {len(e.inside)} cells are not in the law: {why}")
    if e.rejected and e.misfit:
        texts.append(
            f"no single power law: ln {e.family.critical} lies {e.misfit.rms:.2g} (rms) from it, more than twice the noise; the intervals "
            "of the exponents do not cover that, see local_slope"
        )
    for text in dict.fromkeys(row["warning"] for row in exponents if row["warning"]):
        texts.append(f"{', '.join(row['axis'] for row in exponents if row['warning'] == text)}: {text}")
    return texts


def frames(axes: Sequence[str], thresholds: list[Row], exponents: list[Row], diagnostics: list[Row], of: str) -> tuple[Any, Any, Any]:
    """The rows of a fit as three tables of pandas, with the columns
    that users rely on. The attribute "of" says what crosses theta.
    """
    import pandas as pd

    whole = all(isinstance(row[name], (int, np.integer, type(None))) for row in thresholds for name in ("N_below", "N_above"))
    types = {"copy_of": "string", "N_star": "float64", "record": "bool"} | dict.fromkeys(
        ("N_below", "N_above"), "Int64" if whole else "Float64"
    )
    made = (
        pd.DataFrame(thresholds, columns=pd.Index([*axes, *THRESHOLDS])).astype(types),
        pd.DataFrame(exponents, columns=pd.Index(list(EXPONENTS))).astype({"record": bool, "rejected": bool}),
        pd.DataFrame(diagnostics, columns=pd.Index(list(DIAGNOSTICS))),
    )
    for table in made:
        table.attrs["of"] = of
    return made
