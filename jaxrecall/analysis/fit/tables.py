"""Converts estimates to rows of the thresholds, exponents and diagnostics.

There is one threshold per cell and theta, and one exponent per law, axis and theta.
Unknown values are null. The column `state` says which they are, and `warning` says it
in words. If it is uncertain that the curve crosses theta, an end of the interval is
open: the lower end is 0, or the upper end is infinite. The diagnostics contain the
misfit and the warnings of each law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ...errors import plural
from ...sweep.crossing import MIN_SEEDS, AnyCurve, Crossing
from ...sweep.simulators import OF_THRESHOLDS
from .cells import Cell
from .columns import ColumnNames, Row, Table, common, n_values, without
from .estimate import METHOD
from .law import Estimate, Estimates, Law
from .misfit import shared_errors

CENSORED = {0: "no", 1: "right", -1: "left"}

_COLUMNS = {
    "exponents": (
        "axis exponent lo hi method theta part n_cells n_seeds warning record regime"
        " rejected along misfit interval_by left_out correlation state prefactor"
        " prefactor_lo prefactor_hi"
    ),
    "diagnostics": "part theta diagnostic subject value text regime",
    "comparison": (
        "axis value reference quantity estimate lo hi n_cells n_seeds correlation theta"
        " part regime along"
    ),
    "forms": (
        "axis form exponent exponent_lo exponent_hi floor floor_lo floor_hi factor"
        " factor_lo factor_hi rms error noise n_out n_cells n_seeds theta part regime"
        " along rejected"
    ),
    "additive": (
        "quantity axis product estimate lo hi rms rejected warning n_cells"
        " n_seeds theta part regime along"
    ),
    "predictions": (
        "predicted predicted_lo predicted_hi prefactor prefactor_lo prefactor_hi"
        " interval_by warning rejected n_cells n_seeds theta part regime along"
    ),
}
COLUMNS_OF = {"thresholds": [*OF_THRESHOLDS]}
COLUMNS_OF |= {name: columns.split() for name, columns in _COLUMNS.items()}
"""A dict from each table of a fit to its columns. docs/thresholds.md explains them.

All tables but exponents and diagnostics begin with further columns for the axes.
"""

TYPES = {
    "copy_of": "string",
    "N_star": "float64",
    "record": "bool",
    "rejected": "bool",
}
"""The types of columns that a table without rows, or with nulls, would not have."""

CROSSES, FEW_SEEDS, UNDECIDED = "crosses", "few seeds", "undecided"
PLATEAU, NOT_REACHED, ABOVE = "plateau", "not reached", "above"
LOST, NO_VALUES, NO_MEAN = "seeds without values", "no values", "mean 0"
OF_SIDES = {"no": CROSSES, "left": ABOVE, "right": NOT_REACHED}
"""A dict from `censored` to the state that it implies."""

KNOWN, UNCHECKED = "known", "unchecked"

REMARK = {"diagnostic": "remark", "subject": "", "part": "", "regime": ""}
"""The row of a remark in the diagnostics, without its text."""

COARSE = 4.0
FAR = 10.0
FLAT = 0.5
SLACK, RISE = 0.1, 0.02
STEP = 0.85
"""The limits that determine how the shape of a curve is described.

A curve is coarse if the levels around theta differ by more than a factor COARSE. A
curve that does not cross theta has levelled off if four conditions hold. First, no mean
exceeds theta by SLACK times the curve's scale. Second, the mean rises by at least RISE
times the scale. Third, with its last slope the curve would reach theta only beyond FAR
times the largest N. Fourth, the last slope is below FLAT times the steepest slope.
Slopes are in logits per unit of ln N. A curve rises within one step if `Crossing.step`
is more than STEP times the distance between the levels around theta.
"""


def thresholds(e: Estimates) -> list[Row]:
    """Returns one row per cell of a family."""
    family, along = e.family, e.family.along
    rows = family.settings.to_dict("records")
    origins = family.origin.to_dict("records")
    for i, crossing in enumerate(e.crossings):
        cell = family.cells[i]
        critical = np.nan if crossing.side else np.exp(crossing.log_x)
        low, high = _interval(crossing)
        n_below = _n_below(crossing, np.log(cell.N))
        below, above = [None, *cell.N, None][n_below : n_below + 2]
        state, why = _state(e, i)
        rows[i] |= {
            "theta": e.theta,
            "method": METHOD,
            "axis": along,
            "critical": critical,
            "N_star": critical if along == "N" else None,
            "lo": low,
            "hi": high,
            "censored": CENSORED[crossing.side],
            "n_seeds": cell.n_seeds,
            "n_levels": len(cell.N),
            "warning": "; ".join(_warnings(e, i, why)),
            "N_below": below,
            "N_above": above,
            "record": True,
            "copy_of": _copied(rows[i], origins[i]),
            "state": LOST if cell.n_lost and state != NO_VALUES else state,
        }
    return rows


def _interval(crossing: Crossing) -> tuple[float, float]:
    """Returns the two ends of the interval of a critical value."""
    if crossing.n_seeds < MIN_SEEDS:
        return np.nan, np.nan
    open_below, open_above = crossing.is_open
    with np.errstate(over="ignore"):
        low, high = np.exp([crossing.lo, crossing.hi])
    return 0.0 if open_below else low, np.inf if open_above else high


def _n_below(crossing: Crossing, x: np.ndarray) -> int:
    """The number of levels below a crossing, given ln of the levels.

    A curve that crosses theta has a level on either side.
    """
    n_below = np.searchsorted(x, crossing.log_x)
    if crossing.side == 0:
        n_below = n_below.clip(1, len(x) - 1)
    return int(n_below)


def _copied(at: Row, origin: Row) -> str | None:
    """The settings of the original cell that differ from those of a copy, as text.

    Returns None if the cell is not a copy.
    """
    settings = [*map("{} = {}".format, at, at.values())]
    originals = map("{} = {}".format, origin, origin.values())
    return ", ".join(without(originals, settings)) or None


def _state(e: Estimates, i: int) -> tuple[str, str]:
    """Returns the state of the cell with index i, as far as its runs have a number, and
    a text that explains why the cell does not surely cross theta.

    The accuracies in the text are measured means.
    """
    cell, crossing = e.family.cells[i], e.crossings[i]
    if not (np.isfinite(cell.k) & (cell.n > 0)).any():
        return NO_VALUES, ""
    if crossing.side == 0:
        if any(crossing.is_open):
            return (
                UNDECIDED,
                "crossing not sure: no level is surely on one side of theta; not in the"
                " law",
            )
        return CROSSES if crossing.n_seeds >= MIN_SEEDS else FEW_SEEDS, ""
    if e.family.what:
        return NO_MEAN, ""
    curve = e.curves[i]
    assert curve
    if len(curve.x) == 1:
        return "one level", f"one {e.family.along} level: no curve"
    if crossing.side == -1:
        first = _measured(e, curve, 0)
        return ABOVE, f"beyond theta from the smallest on: {first}"
    last = f"{_measured(e, curve, -1)}, the largest"
    slopes = np.diff(curve.logits) / np.diff(curve.x)
    is_far = curve.reach(e.level) > np.log(FAR)
    is_below = curve.mean.max() < e.level + SLACK * curve.scale
    has_risen = curve.mean[-1] - curve.mean[0] >= RISE * curve.scale
    if is_below and has_risen and is_far and slopes[-1] < FLAT * slopes.max():
        return PLATEAU, f"plateau: {last}; it levels off"
    return NOT_REACHED, f"not reached: {last}"


def _warnings(e: Estimates, i: int, why: str) -> Iterator[str]:
    """Yields the warnings about the cell with index i. `why` explains its state."""
    cell, crossing, curve = e.family.cells[i], e.crossings[i], e.curves[i]
    along, measure = e.family.along, e.family.measure
    if cell.n_lost:
        yield f"{cell.n_lost} of {plural(cell.n_tried, 'seed')} have no {measure}"
    if curve is None:
        return
    if crossing.side == 0:
        n_below = _n_below(crossing, curve.x)
        gap = np.ptp(curve.x[n_below - 1 : n_below + 1])
        if crossing.step > STEP * gap:
            yield (
                f"crosses within one step of {along}: the crossing is anywhere between"
                " N_below and N_above"
            )
        elif np.exp(gap) > COARSE:
            yield f"coarse: {along} grows by a factor {np.exp(gap):.3g} around theta"
    if why:
        yield why
    drop = _drop(cell, curve)
    if drop > SLACK:
        yield (
            f"not monotone: {measure} turns back by {drop * curve.scale:.2g} as"
            f" {along} grows"
        )
    if e.cautions and e.cautions[i]:
        yield f"{e.cautions[i]}: try beyond it"
    if cell.n_seeds < MIN_SEEDS:
        yield _no_interval(cell.n_seeds)


def _no_interval(n_seeds: int) -> str:
    return f"no interval: {plural(n_seeds, 'seed')}, {MIN_SEEDS} are needed"


def _drop(cell: Cell, curve: AnyCurve) -> float:
    """Returns the largest fall of the mean from one level to a later one, in units of
    the curve's scale.

    Levels with less than half as many seeds as another are left out, because single
    seeds scatter, as in a search.
    """
    n_seeds = (cell.n > 0).sum(axis=1)
    mean = curve.mean[2 * n_seeds >= n_seeds.max()]
    return (np.maximum.accumulate(mean) - mean).max() / curve.scale


def _measured(e: Estimates, c: AnyCurve, i: int) -> str:
    """The mean accuracy at the level with index i, as text."""
    level = np.exp(c.x[i])
    is_whole = abs(level - round(level)) < 1e-6 * level
    text = f"{level:.0f}" if is_whole else f"{level:.4g}"
    value = f"{e.family.mirrored(c.mean[i]):.2g}"
    return f"{e.family.measure} {value} at {e.family.along} = {text}"


def exponents(e: Estimates) -> list[Row]:
    """Returns the rows of a law in the table of exponents, one row per exponent."""
    rows, law, family = [], e.law, e.family
    intervals = law.estimates(law.weights)
    prefactor = Estimate(np.nan, np.nan, np.nan, "")
    if law.crossings and not law.factors:
        (prefactor,) = law.predict([0], 1.0)
    outside = np.flatnonzero(~e.inside).tolist()
    left_out = count_states(_state(e, i)[0] for i in outside)
    for j, axis in enumerate(law.axes):
        state, warning = _state_of_exponent(e, j)
        row = {
            "axis": axis,
            "exponent": intervals[j].value,
            "lo": intervals[j].low,
            "hi": intervals[j].high,
            "method": METHOD,
            "n_cells": law.n_distinct,
            "n_seeds": law.n_seeds,
            "warning": warning,
            "record": True,
            "rejected": law.rejected,
            "along": family.what or family.along,
            "misfit": law.misfit.ratio if law.misfit else np.nan,
            "interval_by": intervals[j].by,
            "left_out": left_out,
            "correlation": shared_errors(law.log_x, law.n_seeds),
            "state": state,
        }
        rows.append(row | prefactor.columns("prefactor"))
    return rows


def _state_of_exponent(e: Estimates, j: int) -> tuple[str, str]:
    """Returns the state of the j-th exponent of a law, and its warning: why the cells
    do not determine it, or why it is uncertain.
    """
    law, axis = e.law, e.law.axes[j]
    have = "have a mean above 0" if e.family.what else "cross theta"
    inside = f"{len(law.crossings)} of {len(e.family.cells)} configurations {have}"
    if not law.crossings:
        return "no cell", inside
    if n_values(law.family.at, axis) < 2:
        return "one value", f"{inside}, all at one {axis}"
    if np.isnan(law.weights[j]).any():
        return (
            "together",
            f"{inside}, and in those {axis} moves together with other axes",
        )
    if law.n_seeds < MIN_SEEDS:
        return FEW_SEEDS, _no_interval(law.n_seeds)
    if law.n_free < 1:
        return (
            UNCHECKED,
            "as many unknowns as configurations: nothing checks the law",
        )
    return KNOWN, ""


def diagnose(e: Estimates, exponents: Sequence[Row]) -> list[Row]:
    """Returns the rows of one law in the table of diagnostics, with warnings last.

    `exponents` contains the rows of the law in the table of exponents.
    """
    rows, warnings = [], []
    n_cells, n_lost = len(e.family.cells), sum(c.n_lost > 0 for c in e.family.cells)
    if n_lost:
        warnings.append(
            f"{n_lost} of {plural(n_cells, 'cell')} have seeds without"
            f" {e.family.measure}"
        )
    misfit, critical = e.law.misfit, e.family.critical
    if misfit and e.family.law:
        text = (
            f"rms distance of ln {critical} from the law; noise alone would make it"
            f" {misfit.noise:.2g}"
        )
        row = {"diagnostic": "residual", "subject": f"ln {critical}", "text": text}
        rows.append(row | {"value": misfit.rms})
        if misfit.is_certain:
            warnings.append(
                f"no single power law: ln {critical} lies {misfit.rms:.2g} (rms) from"
                f" it, {misfit.ratio:.2g} times the noise, and farthest at"
                f" {farthest(e.law, e.law.residuals[0])}; try a law for some"
                " configurations (where) or one above a floor (floor)"
            )
    if e.family.what:
        warnings += [*dict.fromkeys(filter(None, e.cautions))]
    axes = {}
    for row in exponents:
        axes.setdefault(row["warning"], []).append(row["axis"])
    warnings += [f"{', '.join(names)}: {text}" for text, names in axes.items() if text]
    rows += [
        {"diagnostic": "warning", "subject": "", "text": text} for text in warnings
    ]
    return rows


def farthest(law: Law, off: np.ndarray) -> str:
    """The settings of the cell with the largest of the distances `off`, as text."""
    cell = int(abs(off).argmax())
    at = law.family.at[[*law.axes, *law.factors]].iloc[cell]
    return ", ".join(map("{} = {}".format, at.index, at))


def count_states(states: Iterable[str]) -> str:
    """Returns a text that counts states, as in "9 crosses, 3 plateau"."""
    counts = Counter(states)
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def make_frame(
    name: str, axes: ColumnNames, kept: ColumnNames, rows: Sequence[Row]
) -> Table:
    """Returns a table of a fit with its documented columns and types. The first columns
    are the axes that differ between its rows, then those in `kept`.
    """
    import pandas as pd

    columns = [*kept, *COLUMNS_OF[name]]
    axes = without(axes, columns)
    table: Table = pd.DataFrame(rows, columns=pd.Index([*axes, *columns]))
    table = table.drop(columns=[axis for axis in axes if table[axis].nunique() < 2])
    table = table.astype({column: TYPES[column] for column in common(TYPES, table)})
    levels = common(["N_below", "N_above"], table)
    table[levels] = table[levels].astype(float).convert_dtypes()
    return table
