"""Estimates become rows of thresholds, exponents and diagnostics.

There is a threshold per cell and theta, and an exponent per law, axis and theta.
What is not known is null, with the reason in `warning`. An interval's end is 0 or
infinite where the levels on that side do not show that the curve has crossed.
Diagnostics say what an interval alone does not: misfit, warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from ...sweep.crossing import MIN_SEEDS, Crossing, Curve
from .cells import Cell
from .estimate import METHOD, Estimates, interval
from .runs import Table, Value

Row = dict[str, Value]
CENSORED = {0: "no", 1: "right", -1: "left"}

_COLUMNS = (
    (
        "theta method axis critical N_star lo hi censored n_seeds n_levels warning"
        " N_below N_above record copy_of"
    ),
    (
        "axis exponent lo hi method theta part n_cells n_seeds warning record regime"
        " rejected along"
    ),
    "part theta diagnostic subject value text regime",
)
THRESHOLDS, EXPONENTS, DIAGNOSTICS = (names.split() for names in _COLUMNS)
"""Columns of the three tables, those of the thresholds after the axes;
docs/thresholds.md has what they mean.
"""

WARNINGS = {
    "one level": "one {along} level: no curve",
    "falls": "falls: {first}, the smallest, {last}, the largest",
    "falls again": "rises above theta and falls again: {top}, {last}, the largest",
    "flat": "not reached: {last}, the largest; it hardly rises with {along}",
    "plateau": "plateau: {last}, the largest; it levels off",
    "still rises": "not reached: {last}, the largest; it still rises",
    "above": "above theta from the smallest on: {first}",
    "one step": (
        "rises within one step of {along}: the crossing is anywhere between N_below and"
        " N_above"
    ),
    "coarse": "coarse: {along} grows by a factor {factor:.3g} around theta",
    "not monotone": "not monotone: accuracy falls by {drop:.2g} as {along} grows",
    "at the end": "{told}: try beyond it",
    "few seeds": f"no interval: {{n_seeds}} seeds, {MIN_SEEDS} are needed",
    "not surely below": (
        "crossing not sure: no level is surely below theta; not in the law"
    ),
    "not surely above": (
        "crossing not sure: no level is surely above theta; not in the law"
    ),
    "no cell": "{inside} of {cells} cells {have}",
    "one value": "{inside} of {cells} cells {have}, all at one {axis}",
    "together": (
        "{inside} of {cells} cells {have}, and in those {axis} moves together with"
        " other axes"
    ),
    "unchecked": "as many unknowns as cells: nothing checks the law",
    "not in the law": "{out} of {cells} cells are not in the law: {why}",
    "no power law": (
        "no single power law: ln {critical} lies {rms:.2g} (rms) from it, more than"
        " twice the noise; the intervals of the exponents do not cover that; where fits"
        " a part of the cells"
    ),
}
"""What to be careful about, by what is so. The accuracies that a warning names are
measured means.
"""

MIRRORED = {"rises": "falls", "falls": "rises", "above": "below", "below": "above"}
"""Words of the warnings of a cell where accuracy falls along the axis."""

COARSE = 4.0
FAR = 10.0
FLAT = 0.5
STEP = 0.85
"""A curve that does not reach theta has levelled off if it would need FAR times more N
at its last slope, and that slope is below FLAT times its steepest; both in logits
against ln N. One that does STEP of what counts as all of its rise between two levels
rises within one step.
"""


def thresholds(e: Estimates) -> list[Row]:
    """One row per cell of a family."""
    rows, along = [], e.family.along
    for cell, found, c in zip(e.family.cells, e.found, e.curves, strict=True):
        after = _after(found, c)
        below, above = {
            1: (cell.N[-1], None),
            -1: (None, cell.N[0]),
            0: tuple(cell.N[after - 1 :][:2]),
        }[found.side]
        critical = np.nan if found.side else np.exp(found.log_x)
        low, high = (
            np.exp([found.lo, found.hi])
            if found.n_seeds >= MIN_SEEDS and not found.side
            else (np.nan, np.nan)
        )
        low, high = (
            0.0 if found.is_open[0] else low,
            np.inf if found.is_open[1] else high,
        )
        row = [
            e.asked,
            METHOD,
            along,
            critical,
            critical if along == "N" else None,
            low,
            high,
            CENSORED[found.side],
            cell.n_seeds,
        ]
        row += [
            len(c.x),
            "; ".join(_warnings(e, cell, found, c)),
            below,
            above,
            True,
            _copied(cell),
        ]
        rows.append(cell.at | cell.names | dict(zip(THRESHOLDS, row, strict=True)))
    return rows


def _after(found: Crossing, c: Curve) -> int:
    """The number of the first level beyond a crossing."""
    return int(np.searchsorted(c.x, found.log_x).clip(1, max(len(c.x) - 1, 1)))


def _copied(cell: Cell) -> str | None:
    if cell.copy_of is None:
        return None
    return ", ".join(
        f"{axis} = {value}"
        for axis, value in cell.copy_of.items()
        if value is not cell.at[axis] and value != cell.at[axis]
    )


def _warnings(e: Estimates, cell: Cell, found: Crossing, c: Curve) -> Iterator[str]:
    """What to be careful about in a cell."""
    along, after, shape = e.family.along, _after(found, c), _shape(e.theta, found, c)
    drop = (np.maximum.accumulate(c.mean) - c.mean).max()
    holds = {
        shape: shape != "",
        "not monotone": drop > 0.1 and shape not in ("falls", "falls again"),
        "at the end": cell.told,
        "few seeds": cell.n_seeds < MIN_SEEDS,
        "not surely below": found.is_open[0],
        "not surely above": found.is_open[1],
    }
    measured = {
        name: (
            f"accuracy {e.family.mirrored(c.mean[i]):.2g} at {along} ="
            f" {_level(np.exp(c.x[i]))}"
        )
        for name, i in (("first", 0), ("top", int(c.mean.argmax())), ("last", -1))
    }
    facts = {
        "along": along,
        "factor": np.exp(np.ptp(c.x[after - 1 :][:2])),
        "drop": drop,
        "told": cell.told,
        "n_seeds": cell.n_seeds,
    }
    for text in (WARNINGS[name] for name, is_so in holds.items() if is_so):
        words = (
            re.sub("rises|falls|above|below", lambda word: MIRRORED[word[0]], text)
            if e.family.falls
            else text
        )
        yield words.format(**facts, **measured)


def _level(value: float) -> str:
    """A level of an axis, whole where it is near a whole number."""
    return f"{value:{'.0f' if abs(value - round(value)) < 1e-6 * value else '.4g'}}"


def _shape(theta: float, found: Crossing, c: Curve) -> str:
    """The warning on the shape of a curve, empty if it simply crosses theta."""
    if len(c.x) == 1:
        return "one level"
    if found.side == -1:
        return "above"
    if found.side == 0:
        gap = np.ptp(c.x[_after(found, c) - 1 :][:2])
        return (
            "one step"
            if found.step > STEP * gap
            else "coarse"
            if np.exp(gap) > COARSE
            else ""
        )
    first, top, last = c.mean[0], c.mean.max(), c.mean[-1]
    if first >= theta:
        return "falls"
    if top >= theta and top - last > 0.1:
        return "falls again"
    if last - first < 0.02:
        return "flat"
    slopes = np.diff(c.logits) / np.diff(c.x)
    return (
        "plateau"
        if c.reach(theta) > np.log(FAR) and slopes[-1] < FLAT * slopes.max()
        else "still rises"
    )


def exponents(e: Estimates, regime: str = "") -> list[Row]:
    """The exponents of a family, or of its cells in a regime."""
    rows, n_seeds = [], e.n_seeds
    shape, found = e.shape_deviation(e.law.weights), e.exponents
    for j, axis in enumerate(e.family.law):
        row = [
            axis,
            found[0, j],
            *interval(found[:, j], n_seeds, shape[j]),
            METHOD,
            e.asked,
            e.family.name,
            e.law.n_distinct,
            n_seeds,
        ]
        row += [
            _unknown(e, axis),
            True,
            regime,
            e.rejected,
            e.family.what or e.family.along,
        ]
        rows.append(dict(zip(EXPONENTS, row, strict=True)))
    return rows


def _unknown(e: Estimates, axis: str) -> str:
    """Why the cells do not determine an exponent, or how sure it is; empty if nothing
    is to say.
    """
    have = "have a mean above 0" if e.family.what else "cross theta"
    facts = {
        "inside": len(e.cells),
        "cells": len(e.family.cells),
        "have": have,
        "axis": axis,
        "n_seeds": e.n_seeds,
    }
    holds = {
        "no cell": not e.cells,
        "one value": len({cell.at[axis] for cell in e.cells}) < 2,
        "together": bool(np.isnan(e.law.weights[e.family.law.index(axis)]).any()),
        "few seeds": e.n_seeds < MIN_SEEDS,
        "unchecked": e.law.n_distinct <= e.law.rank,
    }
    return next(
        (WARNINGS[name].format(**facts) for name, is_so in holds.items() if is_so), ""
    )


def diagnose(e: Estimates, exponents: Sequence[Row]) -> list[Row]:
    """All about one family at one theta, warnings last, from its rows of the exponents
    table.
    """
    rows = []
    if e.family.law and e.misfit:
        text = (
            f"rms distance of ln {e.family.critical} from the law; noise alone would"
            f" make it {e.misfit.noise:.2g}"
        )
        rows.append(
            {
                "diagnostic": "residual",
                "subject": f"ln {e.family.critical}",
                "value": e.misfit.rms,
                "text": text,
            }
        )
    rows += [
        {"diagnostic": "warning", "subject": "", "text": text}
        for text in _of_law(e, exponents)
    ]
    return [{"part": e.family.name, "theta": e.asked} | row for row in rows]


def _of_law(e: Estimates, exponents: Sequence[Row]) -> Iterator[str]:
    """What to be careful about in a law."""
    if out := int((~e.inside).sum()):
        below, above = int((e.side == 1).sum()), int((e.side == -1).sum())
        beyond = (
            f"are {'below' if e.family.falls else 'above'} it from the smallest"
            f" {e.family.along} on"
        )
        never, unsure = (
            ("have mean 0", "rest on one seed")
            if e.family.what
            else ("never reach theta", "cross theta, but not surely")
        )
        counts = {never: below, beyond: above, unsure: out - below - above}
        why = ", ".join(f"{n} {text}" for text, n in counts.items() if n)
        yield WARNINGS["not in the law"].format(out=out, cells=len(e.inside), why=why)
    if e.rejected and e.misfit:
        yield WARNINGS["no power law"].format(
            critical=e.family.critical, rms=e.misfit.rms
        )
    for text in dict.fromkeys(row["warning"] for row in exponents if row["warning"]):
        yield (
            f"{', '.join(row['axis'] for row in exponents if row['warning'] == text)}:"
            f" {text}"
        )


def frames(
    axes: Sequence[str],
    thresholds: list[Row],
    exponents: list[Row],
    diagnostics: list[Row],
) -> tuple[Table, Table, Table]:
    """The rows of a fit as three tables of pandas, with the columns that users rely
    on.
    """
    import pandas as pd

    levels = ("N_below", "N_above")
    whole = all(
        isinstance(row[name], (int, np.integer, type(None)))
        for row in thresholds
        for name in levels
    )
    types = {
        "copy_of": "string",
        "N_star": "float64",
        "record": "bool",
    } | dict.fromkeys(levels, "Int64" if whole else "Float64")
    return (
        pd.DataFrame(thresholds, columns=pd.Index([*axes, *THRESHOLDS])).astype(types),
        pd.DataFrame(exponents, columns=pd.Index(EXPONENTS)).astype(
            {"record": bool, "rejected": bool}
        ),
        pd.DataFrame(diagnostics, columns=pd.Index(DIAGNOSTICS)),
    )
