"""The scaling law in both regimes: exponents, errors of theory, and exact cells.

The data is in the tables of results/study/law, law-long and law-exact. Tables and
figures are about the trigger in the value and key, unless they say "key only".

Exponents and their intervals are those of `jaxrecall.fit`: over seeds, and widened by
the misfit of the cells. The theory's exponents are those of least squares through its
N* in the same cells.
"""

import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from table import (
    CRITICAL,
    ERRORS,
    as_table,
    bracketed,
    filled,
    infinite,
    largest_off_at,
    stacked,
    with_interval,
)

import jaxrecall
from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

STUDY = Path(__file__).parent / "study"
SIZES = ["V", "d", "L"]
REGIMES = {
    "short sequences": "L**2 < 0.1 * V**1.5 * d**0.5",
    "between": "0.1 * V**1.5 * d**0.5 <= L**2 <= 10 * V**1.5 * d**0.5",
    "long sequences": "L**2 > 10 * V**1.5 * d**0.5",
}
"""A dict from each regime to the condition on its cells, as `fit` reads it."""

SHORT, BETWEEN, LONG = REGIMES
THETAS = (0.25, 0.5, 0.9)
TRIGGER = {True: "value and key", False: "key only"}
"""Where the trigger is, in words."""

DASHED = {"linestyle": (0, (3, 1.5)), "marker": "none", "width": 0.75}
"""The style of lines of theory in figures."""


@cache
def searched(study):
    """Returns the results of a study's search: a row for each cell and theta.

    Each row has the fields of its point, the standard error of ln N*, where the trigger
    is, in words, and the least and the largest value that were searched.
    """
    about = json.loads((STUDY / study / "search.json").read_text())
    found = pd.DataFrame([cell | cell["point"] for cell in about["cells"]])
    found = found.drop(columns="point")
    found = found.astype({"N_star": float, "lo": float, "hi": float})
    half = np.log(found["hi"] / found["lo"]) / 2
    return found.assign(
        error=half / stdtrit(found["seeds"] - 1, 0.975),
        trigger=found["trigger_in_value"].map(TRIGGER),
        N_above=about["search"]["from"],
        N_below=about["search"]["to"],
    )


def with_trigger(rows):
    """Returns rows with a column that says where the trigger is in words."""
    return rows.assign(trigger="trigger " + rows["trigger_in_value"].map(TRIGGER))


@cache
def predicted(study):
    """Returns the results of a study of V, d and L, with the regime and with theory."""
    found = with_theory(searched(study), "trigger_in_value")
    return found.assign(regime=regime(found))


def with_theory(cells, *fields):
    """Returns cells with the predicted N* and with `off`, ln(predicted / observed).

    The model of a cell has its V, d and L, and these further fields.
    """
    theirs = on_all_cores(critical_N, models_of(cells, *fields), cells["theta"])
    return cells.assign(predicted=theirs, off=np.log(theirs / cells["N_star"]))


def models_of(cells, *fields):
    """Returns the model of each cell: its V, d and L, and these further fields."""
    return [Model(**cell) for cell in cells[[*SIZES, *fields]].to_dict("records")]


def on_all_cores(function, *arguments):
    """Returns the values of a function of theory, in order, computed on all cores."""
    context = get_context("forkserver")
    with ProcessPoolExecutor(mp_context=context, initializer=without_warnings) as pool:
        return list(pool.map(function, *arguments, chunksize=8))


def without_warnings():
    """Silences the warnings of theory: the tables show how far it is off."""
    warnings.simplefilter("ignore", jaxrecall.errors.TheoryWarning)


def regime(table):
    """Returns the regime of each row."""
    sizes = table[SIZES].astype(float)
    among = [sizes.eval(condition) for condition in REGIMES.values()]
    return np.select(among, [*REGIMES], "")


def crossed(where, study="law"):
    """Returns the cells with a measured N* that fulfil a condition.

    The predicted N* is infinite where accuracy never reaches theta by theory.
    """
    return predicted(study).query(where).dropna(subset="N_star")


@cache
def laws(study, conditions, thetas=(0.5,)):
    """Returns the exponents that `fit` finds where each of some conditions holds.

    The index of the table is theta, the condition and the axis.
    """
    rows = load(STUDY / study).drop(columns="pool", errors="ignore")
    found = fit(rows, thetas, where=conditions).exponents
    return found.set_index(["theta", "regime", "axis"]).sort_index()


def with_ends(exponent, form=".2f"):
    """Formats an exponent with its 95 % interval."""
    return bracketed([exponent[name] for name in ("exponent", "lo", "hi")], form)


BESIDE = "{}: measured [95 %]; theory"


def beside_theory(law, cells, column="predicted", axes=SIZES):
    """Returns the cells of a table on the exponents of a law, by their heads.

    The exponents of a predicted column in the same cells stand beside them. The last
    cell is the misfit of the law over what noise gives.
    """
    theirs = power_law(cells, column, axes)
    exponents = {
        BESIDE.format(axis): f"{with_ends(law.loc[axis])}; {theirs[axis]:.2f}"
        for axis in axes
    }
    return exponents | {"misfit over noise": f"{law['misfit'].iloc[0]:.1f}"}


def power_law(cells, column, axes):
    """Returns the exponents of a predicted column, by least squares in logarithms.

    Cells with an infinite prediction are left out.
    """
    cells = cells[np.isfinite(cells[column])]
    logs = np.log(cells[[column, *axes]].astype(float))
    design = logs[axes].assign(constant=1.0)
    found = np.linalg.lstsq(design, logs[column], rcond=None)[0]
    return dict(zip(axes, found, strict=False))


INSIDE = {True: "trigger_in_value", False: "not trigger_in_value"}
WIDE = {
    "of them V >= d / 2": "2 * V >= d",
    "of them V < d / 2": "2 * V < d",
}
PARTS = REGIMES | {"all": "V > 0"}


@as_table()
def law_exponents():
    """Exponents of N* within each regime, measured and by theory on the same cells.

    A law is rejected by its misfit if this is well above 1.
    """
    parts = {name: REGIMES[name] for name in (SHORT, LONG)}
    parts |= {name: f"{REGIMES[LONG]} and {part}" for name, part in WIDE.items()}
    parts = {name: f"{INSIDE[True]} and {part}" for name, part in parts.items()}
    found = laws("law", tuple(parts.values()), THETAS)
    for theta, (name, part) in product(THETAS, parts.items()):
        law = found.loc[theta, part]
        cells = crossed(f"theta == {theta} and {part}")
        about = {"theta": theta, "regime": name, "cells": law["n_cells"].iloc[0]}
        yield about | beside_theory(law, cells)


@as_table()
def law_lengths():
    """Exponent of L within each regime.

    Each V and d has its own constant, instead of a power law in V and d.
    """
    rows = load(STUDY / "law").query(INSIDE[True])
    pair = rows["V"].astype(str) + ", " + rows["d"].astype(str)
    rows = rows.assign(pair=pair)
    rows.attrs["axes"] = [*SIZES, "pair", "N"]
    conditions = {name: REGIMES[name] for name in (SHORT, LONG)}
    found = fit(rows, THETAS, where=conditions.values()).exponents
    found = found.set_index(["theta", "regime", "axis"])
    for theta in THETAS:
        yield {"theta": theta} | {
            f"L, {name} [95 %]": with_ends(found.loc[theta, condition, "L"], ".3f")
            for name, condition in conditions.items()
        }


def local_slopes(name, axis):
    """Returns the slopes of ln N* between neighbouring values of an axis, all else
    equal, at theta 0.5.

    There is a row for each pair of cells, with the measured slope and theory's.
    """
    others = [other for other in SIZES if other != axis]
    cells = crossed(f"theta == 0.5 and {INSIDE[True]} and {REGIMES[name]}")
    lines = cells.sort_values(axis).groupby(others)
    steps = lines[["N_star", "predicted", axis]].transform(
        lambda values: np.log(values).diff()
    )
    return pd.DataFrame(
        {
            "regime": name,
            "axis": axis,
            "low": lines[axis].shift(),
            "high": cells[axis],
            "measured": steps["N_star"] / steps[axis],
            "theory": steps["predicted"] / steps[axis],
        }
    ).dropna()


def slopes_of_steps(pairs):
    """Formats the mean slopes between neighbouring values, with theory in brackets."""
    text = "{low} to {high}: {measured:.2f} ({theory:.2f})"
    steps = pairs.groupby(["low", "high"], as_index=False)
    return "; ".join(
        f"{filled(text, step)}, {step['pairs']:.0f} pairs"
        for _, step in steps.agg(
            measured=("measured", "mean"),
            theory=("theory", "mean"),
            pairs=("theory", "size"),
        ).iterrows()
    )


@as_table(["regime", "axis"], {"slope": slopes_of_steps})
def law_slopes():
    """Local slopes of ln N* between neighbouring sizes, all else equal, at theta 0.5.

    Each slope is a mean over pairs of cells; theory is in brackets.
    """
    lines = product((SHORT, LONG), SIZES)
    return pd.concat([local_slopes(name, axis) for name, axis in lines])


WITH_INFINITE = ERRORS | {"infinite": infinite}
WITH_NOISE = WITH_INFINITE | {
    "largest": largest_off_at,
    "noise": lambda cells: f"{cells['error'].median():.2f}",
}


@as_table(["theta", "regime"], WITH_NOISE)
def law_errors():
    """Predicted over observed N*, with no constant fitted.

    The median counts cells without a predicted N*; the mean and the largest do not. The
    noise is the median standard error of the observed ln N*.
    """
    return by_theta(stacked(crossed(INSIDE[True]), "regime", PARTS))


def by_theta(cells):
    return cells.sort_values("theta", kind="stable")


@as_table(
    SIZES,
    {
        "exact N* [95 %]": with_interval(".0f"),
        "with a pool": with_interval(
            ".0f", names=[f"{name}_pool" for name in CRITICAL]
        ),
        "difference": "{difference:+.1f}",
        "theory": "{predicted:.0f}",
    },
)
def law_check():
    """N* of exact runs, without a pool, and of runs with a pool, at theta 0.5.

    The difference is in standard errors.
    """
    at_half = f"theta == 0.5 and {INSIDE[True]}"
    exact, pooled = (predicted(name).query(at_half) for name in ("law-exact", "law"))
    both = exact.merge(pooled, on=SIZES, suffixes=("", "_pool"))
    times = np.log(both["N_star_pool"] / both["N_star"])
    errors = np.hypot(both["error"], both["error_pool"])
    return both.assign(difference=times / errors)


def with_times(cells):
    """Formats N*, with the factor of another N* in brackets."""
    one = cells.iloc[0]
    bracket = " ({times:.2g})" if one["times"] > 0 else ""
    return filled("{N_star:short}" + bracket, one)


@as_table(["V", "d"], {"V ln 2": "{unit:.0f}", "L = {L}": with_times}, missing="none")
def law_without():
    """N* at theta 0.5 by L, with the trigger in the key only.

    The number in brackets is N* with the trigger in the value and key, over this N*.
    """
    ways = [crossed(f"theta == 0.5 and {INSIDE[inside]}") for inside in (False, True)]
    both = ways[0].merge(ways[1], on=SIZES, how="left", suffixes=("", "_inside"))
    times = both["N_star_inside"] / both["N_star"]
    return both.assign(unit=both["V"] * np.log(2), times=times).sort_values(SIZES)


@as_table()
def law_without_errors():
    """Errors of theory by regime, with the trigger in the key only.

    Long sequences also have exponents, measured and by theory in the same cells.
    """
    condition = f"{INSIDE[False]} and {REGIMES[LONG]}"
    found = laws("law", (condition,), THETAS)
    cells = stacked(crossed(INSIDE[False]), "regime", PARTS)
    for (theta, name), mine in by_theta(cells).groupby(["theta", "regime"], sort=False):
        line = {"theta": theta, "regime": name}
        line |= {head: cell(mine) for head, cell in WITH_INFINITE.items()}
        if name == LONG:
            line |= beside_theory(found.loc[theta, condition], mine)
        yield line


@as_table()
def law_wide_exponents():
    """Exponents of N* within each regime at V / d of 4 to 13 and theta 0.5."""
    for (inside, way), name in product(TRIGGER.items(), (SHORT, LONG)):
        condition = f"{INSIDE[inside]} and V >= 4 * d and {REGIMES[name]}"
        cells = crossed(f"theta == 0.5 and {condition}", "law-long")
        axes = [axis for axis in SIZES if cells[axis].nunique() > 1]
        line = {"trigger": way, "regime": name, "cells": len(cells)}
        if len(cells) < len(axes) + 3:
            yield line | dict.fromkeys(map(BESIDE.format, SIZES), "too few cells")
            continue
        law = laws("law-long", (condition,)).loc[0.5, condition]
        line |= dict.fromkeys(map(BESIDE.format, SIZES), "one value")
        yield line | beside_theory(law, cells, axes=axes)


def wide_cells(where="V >= 4 * d"):
    """Returns the cells of law-long with a width far below V.

    `over_least` is the width over d_c, the capacity threshold.
    """
    found = predicted("law-long").query(where)
    found = found.sort_values("trigger_in_value", ascending=False, kind="stable")
    unit = np.sqrt(found["V"] * np.log(found["V"]))
    least = np.where(found["trigger_in_value"], 2, np.sqrt(2)) * unit
    return found.assign(over_least=found["d"] / least, ratio=found["V"] / found["d"])


@as_table(
    (),
    {
        "trigger": "{trigger}",
        "V": "{V}",
        "d": "{d}",
        "V / d": "{ratio:.1f}",
        "d / d_c": "{over_least:.2f}",
        "L": "{L}",
        "N* [95 %]": with_interval(),
        "theory": "{predicted:short}",
        "ln ratio": "{off:+.2f}",
    },
)
def law_wide():
    """Every cell at V / d of 4 to 13.

    d_c is the capacity threshold, below which no N is enough. The last columns are N*
    [95 %], theory, and theory's error in ln N*.
    """
    order = ["trigger_in_value", *SIZES]
    return wide_cells().sort_values(order, ascending=[False, True, True, True])


@as_table(["trigger", "d / d_c"], WITH_NOISE)
def law_wide_errors():
    """Errors of theory at V / d of 4 to 13 and theta 0.5.

    The rows are by the width over d_c, the capacity threshold.
    """
    cells = wide_cells("V >= 4 * d and theta == 0.5 and N_star > 0")
    parts = {"under 1.4": "over_least < 1.4", "1.4 to 3.2": "over_least >= 1.4"}
    parts |= {"all": "V > 0"}
    found = stacked(cells, "d / d_c", parts)
    return found.sort_values("trigger_in_value", ascending=False, kind="stable")
