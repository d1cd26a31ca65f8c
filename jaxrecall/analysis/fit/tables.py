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
from .columns import AxisValue, Table, n_values, without
from .estimate import METHOD
from .law import Estimate, Estimates, Law
from .misfit import shared_errors

TableRow = dict[str, AxisValue]
CENSORED = {0: "no", 1: "right", -1: "left"}

_COLUMNS = (
    "axis exponent lo hi method theta part n_cells n_seeds warning record regime"
    " rejected along misfit interval_by left_out correlation state prefactor"
    " prefactor_lo prefactor_hi",
    "part theta diagnostic subject value text regime",
    "axis value reference quantity estimate lo hi n_cells n_seeds correlation theta"
    " part regime along",
    "axis form exponent exponent_lo exponent_hi floor floor_lo floor_hi factor"
    " factor_lo factor_hi rms error noise n_out n_cells n_seeds theta part regime"
    " along",
    "predicted predicted_lo predicted_hi prefactor prefactor_lo prefactor_hi"
    " interval_by warning rejected n_cells n_seeds theta part regime along",
)
THRESHOLDS = [*OF_THRESHOLDS]
EXPONENTS, DIAGNOSTICS, COMPARISON, FORMS, PREDICTIONS = map(str.split, _COLUMNS)
"""The columns of the three tables, and of a comparison, forms and predictions of a law.

docs/thresholds.md explains the three. All but exponents and diagnostics begin with
additional columns for the axes.
"""

CROSSES, FEW_SEEDS, UNDECIDED = "crosses", "few seeds", "undecided"
PLATEAU, NOT_REACHED, ABOVE = "plateau", "not reached", "above"
LOST, NO_VALUES, NO_MEAN = "seeds without values", "no values", "mean 0"
OF_SIDES = {"no": CROSSES, "left": ABOVE, "right": NOT_REACHED}
"""A dict from `censored` to the state that it implies."""

WARNINGS = {
    LOST: "{n_lost} of {tried} have no {measure}",
    PLATEAU: "plateau: {last}, the largest; it levels off",
    NOT_REACHED: "not reached: {last}, the largest",
    "one level": "one {along} level: no curve",
    ABOVE: "beyond theta from the smallest on: {first}",
    "one step": (
        "crosses within one step of {along}: the crossing is anywhere between N_below"
        " and N_above"
    ),
    "coarse": "coarse: {along} grows by a factor {factor:.3g} around theta",
    "not monotone": "not monotone: {measure} turns back by {drop:.2g} as {along} grows",
    "at the end": "{caution}: try beyond it",
    FEW_SEEDS: f"no interval: {{seeds}}, {MIN_SEEDS} are needed",
    UNDECIDED: (
        "crossing not sure: no level is surely on one side of theta; not in the law"
    ),
}
"""A dict from a state, or from a further caution about a cell, to its text.

The accuracies in a warning are measured means.
"""

REMARK = {"diagnostic": "remark", "subject": "", "part": "", "regime": ""}
"""The row of a remark in the diagnostics, without its text."""

KNOWN, UNCHECKED = "known", "unchecked"

OF_LAWS = {
    KNOWN: "",
    "no cell": "{inside} of {cells} configurations {have}",
    "one value": "{inside} of {cells} configurations {have}, all at one {axis}",
    "together": (
        "{inside} of {cells} configurations {have}, and in those {axis} moves"
        " together with other axes"
    ),
    FEW_SEEDS: WARNINGS[FEW_SEEDS],
    UNCHECKED: "as many unknowns as configurations: nothing checks the law",
}
"""A dict from the state of an exponent to its warning."""

NO_POWER_LAW = (
    "no single power law: ln {critical} lies {rms:.2g} (rms) from it, {ratio:.2g}"
    " times the noise, and farthest at {cell}; try a law for some configurations"
    " (where) or one above a floor (floor)"
)

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


def thresholds(e: Estimates) -> list[TableRow]:
    """Returns one row per cell of a family."""
    family, along = e.family, e.family.along
    rows = family.settings.to_dict("records")
    origins = family.origin.to_dict("records")
    for i, crossing in enumerate(e.crossings):
        cell, curve = family.cells[i], e.curves[i]
        critical = np.nan if crossing.side else np.exp(crossing.log_x)
        low, high = _interval(crossing)
        n_below = 0
        if curve is not None:
            around = {1: len(cell.N), 0: _n_below(crossing, curve), -1: 0}
            n_below = around[crossing.side]
        state = _state(e, i)
        below, above = [None, *cell.N, None][n_below : n_below + 2]
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
            "warning": "; ".join(_warnings(e, i, state)),
            "N_below": below,
            "N_above": above,
            "record": True,
            "copy_of": _copied(rows[i], origins[i]),
            "state": LOST if cell.n_lost and state != NO_VALUES else state,
        }
    return rows


def _interval(crossing: Crossing) -> tuple[float, float]:
    """Returns the two ends of the interval of a critical value."""
    low, high = np.nan, np.nan
    if crossing.side == 0 and crossing.n_seeds >= MIN_SEEDS:
        with np.errstate(over="ignore"):
            low, high = np.exp([crossing.lo, crossing.hi])
    open_below, open_above = crossing.is_open
    return 0.0 if open_below else low, np.inf if open_above else high


def _n_below(crossing: Crossing, curve: AnyCurve) -> int:
    """The number of levels below a crossing, without the last level."""
    n_levels = len(curve.x)
    return int(np.searchsorted(curve.x, crossing.log_x).clip(1, max(n_levels - 1, 1)))


def _copied(at: TableRow, origin: TableRow) -> str | None:
    """The settings of the original cell that differ from those of a copy, as text.

    Returns None if the cell is not a copy.
    """
    settings = [*map("{} = {}".format, at, at.values())]
    originals = map("{} = {}".format, origin, origin.values())
    return ", ".join(without(originals, settings)) or None


def _state(e: Estimates, i: int) -> str:
    """Returns the state of the cell with index i, as far as its runs have a number."""
    cell, crossing = e.family.cells[i], e.crossings[i]
    if cell.is_empty:
        return NO_VALUES
    if crossing.side == 0:
        if any(crossing.is_open):
            return UNDECIDED
        return CROSSES if crossing.n_seeds >= MIN_SEEDS else FEW_SEEDS
    if e.family.what:
        return NO_MEAN
    curve = e.curves[i]
    assert curve
    if len(curve.x) == 1:
        return "one level"
    if crossing.side == -1:
        return ABOVE
    slopes = np.diff(curve.logits) / np.diff(curve.x)
    is_far = curve.reach(e.level) > np.log(FAR)
    is_below = curve.mean.max() < e.level + SLACK * curve.scale
    has_risen = curve.mean[-1] - curve.mean[0] >= RISE * curve.scale
    if is_below and has_risen and is_far and slopes[-1] < FLAT * slopes.max():
        return PLATEAU
    return NOT_REACHED


def _warnings(e: Estimates, i: int, state: str) -> Iterator[str]:
    """Yields the warnings about the cell with index i."""
    cell, crossing, curve = e.family.cells[i], e.crossings[i], e.curves[i]
    if cell.n_lost:
        yield WARNINGS[LOST].format(
            n_lost=cell.n_lost,
            tried=plural(cell.n_tried, "seed"),
            measure=e.family.measure,
        )
    if curve is None:
        return
    n_below, crosses = _n_below(crossing, curve), crossing.side == 0
    gap = np.ptp(curve.x[n_below - 1 : n_below + 1])
    is_step = crossing.step > STEP * gap
    drop = _drop(cell, curve)
    caution = e.cautions[i] if e.cautions else ""
    holds = {
        "one step": crosses and is_step,
        "coarse": crosses and not is_step and np.exp(gap) > COARSE,
        state: not crosses,
        "not monotone": drop > SLACK,
        "at the end": caution,
        FEW_SEEDS: cell.n_seeds < MIN_SEEDS,
        UNDECIDED: any(crossing.is_open),
    }
    facts = {
        "along": e.family.along,
        "factor": np.exp(gap),
        "drop": drop * curve.scale,
        "measure": e.family.measure,
        "caution": caution,
        "seeds": plural(cell.n_seeds, "seed"),
        "first": _measured(e, curve, 0),
        "last": _measured(e, curve, -1),
    }
    for name, is_so in holds.items():
        if is_so:
            yield WARNINGS[name].format(**facts)


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


def exponents(e: Estimates) -> list[TableRow]:
    """Returns the rows of a law in the table of exponents, one row per exponent."""
    rows, law, family = [], e.law, e.family
    facts = {
        "inside": len(law.crossings),
        "cells": len(family.cells),
        "have": "have a mean above 0" if family.what else "cross theta",
        "seeds": plural(law.n_seeds, "seed"),
    }
    intervals = law.estimates(law.weights)
    prefactor = Estimate(np.nan, np.nan, np.nan, "")
    if law.crossings and not law.factors:
        (prefactor,) = law.predict([0], 1.0)
    for j, axis in enumerate(law.axes):
        state = _state_of_exponent(e, j)
        row = {
            "axis": axis,
            "exponent": intervals[j].value,
            "lo": intervals[j].low,
            "hi": intervals[j].high,
            "method": METHOD,
            "n_cells": law.n_distinct,
            "n_seeds": law.n_seeds,
            "warning": OF_LAWS[state].format(**facts, axis=axis),
            "record": True,
            "rejected": law.rejected,
            "along": family.what or family.along,
            "misfit": law.misfit.ratio if law.misfit else np.nan,
            "interval_by": intervals[j].by,
            "left_out": _left_out(e),
            "correlation": shared_errors(law.log_x, law.n_seeds),
            "state": state,
        }
        rows.append(row | prefactor.columns("prefactor"))
    return rows


def _state_of_exponent(e: Estimates, j: int) -> str:
    """Returns the state of the j-th exponent of a law, a key of OF_LAWS: why the cells
    do not determine it, or why it is uncertain.
    """
    law = e.law
    if not law.crossings:
        return "no cell"
    if n_values(law.family.at, law.axes[j]) < 2:
        return "one value"
    if np.isnan(law.weights[j]).any():
        return "together"
    if law.n_seeds < MIN_SEEDS:
        return FEW_SEEDS
    return UNCHECKED if law.n_free < 1 else KNOWN


def diagnose(e: Estimates, exponents: Sequence[TableRow]) -> list[TableRow]:
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
                NO_POWER_LAW.format(
                    critical=critical,
                    rms=misfit.rms,
                    ratio=misfit.ratio,
                    cell=_farthest(e.law),
                )
            )
    for text in dict.fromkeys(row["warning"] for row in exponents if row["warning"]):
        axes = [row["axis"] for row in exponents if row["warning"] == text]
        warnings.append(f"{', '.join(axes)}: {text}")
    rows += [
        {"diagnostic": "warning", "subject": "", "text": text} for text in warnings
    ]
    return rows


def _farthest(law: Law) -> str:
    """The settings of the cell with the largest distance from a law, as text."""
    cell = int(abs(law.residuals[0]).argmax())
    at = law.family.at[[*law.axes, *law.factors]].iloc[cell]
    return ", ".join(map("{} = {}".format, at.index, at))


def _left_out(e: Estimates) -> str:
    """The numbers of cells that are not in the law, with their states."""
    cells = enumerate(e.inside)
    return count_states(_state(e, i) for i, is_inside in cells if not is_inside)


def count_states(states: Iterable[str]) -> str:
    """Returns a text that counts states, as in "9 crosses, 3 plateau"."""
    counts = Counter(states)
    return ", ".join(f"{n} {state}" for state, n in counts.items())


def with_state(thresholds: Table) -> Table:
    """Returns thresholds with the column `state`. In tables of earlier versions, which
    lack it, it follows from `censored`.
    """
    if "state" in thresholds:
        return thresholds
    return thresholds.assign(state=thresholds["censored"].map(OF_SIDES))


def frames(
    axes: Sequence[str],
    thresholds: list[TableRow],
    exponents: list[TableRow],
    diagnostics: list[TableRow],
) -> tuple[Table, Table, Table]:
    """Converts the rows of a fit to three pandas tables with documented columns and
    types.
    """
    stars = frame((), [*axes, *THRESHOLDS], thresholds)
    stars = stars.astype({"copy_of": "string", "N_star": "float64", "record": "bool"})
    levels = ["N_below", "N_above"]
    stars[levels] = stars[levels].astype(float).convert_dtypes()
    return (
        stars,
        frame((), EXPONENTS, exponents).astype({"record": bool, "rejected": bool}),
        frame((), DIAGNOSTICS, diagnostics),
    )


def frame(
    axes: Sequence[str], columns: Sequence[str], rows: Sequence[TableRow]
) -> Table:
    """Returns a table whose first columns are the axes that differ between its rows."""
    import pandas as pd

    table: Table = pd.DataFrame(rows, columns=pd.Index([*axes, *columns]))
    return table.drop(columns=[name for name in axes if table[name].nunique() < 2])
