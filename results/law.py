"""The scaling law in both regimes: exponents, errors of theory, and exact cells.

The data is in the tables of results/study/law, law-long and law-exact. Tables and
figures are about the trigger in the value path, unless they say that it is out of it.

Exponents and their intervals are those of `jaxrecall.fit`: over seeds, and widened by
the misfit of the cells. The theory's exponents are those of least squares through its
N* in the same cells.
"""

import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit

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


def markdown(heads, body):
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in body]
    return "\n".join(
        [
            "| " + " | ".join(heads) + " |",
            "| " + " | ".join(["---"] * len(heads)) + " |",
            *lines,
        ]
    )


def with_interval(row):
    if row["censored"] != "no":
        return (
            f"none to {row['N_below']}"
            if row["censored"] == "right"
            else f"under {row['N_above']}"
        )
    return f"{short(row['N_star'])} [{short(row['lo'])}, {short(row['hi'])}]"


def short(number):
    """Formats a number with three digits."""
    return f"{number:.0f}" if number < 1000 else f"{number:.3g}".replace("e+0", "e")


@cache
def searched(study):
    """Returns the results of a study's search: a row for each cell and theta.

    Each row has the fields of its point and the standard error of ln N*.
    """
    cells = json.loads((STUDY / study / "search.json").read_text())["cells"]
    found = pd.DataFrame(
        [
            cell["point"]
            | {name: value for name, value in cell.items() if name != "point"}
            for cell in cells
        ]
    )
    found = found.astype({"N_star": float, "lo": float, "hi": float})
    return found.assign(
        error=np.log(found["hi"] / found["lo"]) / 2 / stdtrit(found["seeds"] - 1, 0.975)
    )


@cache
def predicted(study):
    """Returns the results of a study of V, d and L, with the predicted N* and the
    regime.

    The study contains both paths of the trigger.
    """
    found = searched(study)
    models = [
        Model(V=V, d=d, L=L, trigger_in_value=t)
        for V, d, L, t in found[[*SIZES, "trigger_in_value"]].itertuples(index=False)
    ]
    return found.assign(
        predicted=on_all_cores(critical_N, models, found["theta"]), regime=regime(found)
    )


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


def crossed(theta, name=None, inside=True, study="law"):
    """Returns the cells with a measured N*, for one path of the trigger.

    The predicted N* is infinite where accuracy never reaches theta by theory.
    """
    found = predicted(study)
    found = found[(found["theta"] == theta) & (found["trigger_in_value"] == inside)]
    found = found[found["N_star"].notna()]
    return found if name is None else found[found["regime"] == name]


def off_theory(cells):
    """Returns ln(predicted / observed N*): the median of its absolute value, the mean
    and the largest, as texts, and the cell of the largest.

    An infinite prediction is an error larger than all others. The mean and the largest
    are over the other cells.
    """
    off = np.log(cells["predicted"] / cells["N_star"])
    finite = off[np.isfinite(off)]
    worst = finite.abs().idxmax()
    at = ", ".join(f"{axis} {cells.loc[worst, axis]}" for axis in SIZES)
    numbers = f"{off.abs().median():.3f}", f"{finite.mean():+.3f}"
    return *numbers, f"{finite[worst]:+.2f}", at


def infinite(cells):
    """Returns the number of cells whose predicted N* is infinite."""
    return int((~np.isfinite(cells["predicted"])).sum())


@cache
def laws(study, conditions, thetas=(0.5,)):
    """Returns the exponents that `fit` finds where each of some conditions holds.

    The index of the table is theta, the condition and the axis.
    """
    rows = load(STUDY / study).drop(columns="pool", errors="ignore")
    found = fit(rows, thetas, where=conditions).exponents
    return found.set_index(["theta", "regime", "axis"]).sort_index()


def with_ends(exponent, digits=2, sign=""):
    """Formats an exponent with its 95 % interval."""
    numbers = (exponent[name] for name in ("exponent", "lo", "hi"))
    middle, low, high = (f"{number:{sign}.{digits}f}" for number in numbers)
    return f"{middle} [{low}, {high}]"


def beside_theory(law, cells, column="predicted", axes=SIZES):
    """Formats the exponents of a law, with those of a predicted column in the same
    cells, and the misfit of the law over what noise gives.
    """
    theirs = power_law(cells, column, axes)
    exponents = [f"{with_ends(law.loc[axis])}; {theirs[axis]:.2f}" for axis in axes]
    return [*exponents, f"{law['misfit'].iloc[0]:.1f}"]


def power_law(cells, column, axes):
    """Returns the exponents of a predicted column, by least squares in logarithms.

    Cells with an infinite prediction are left out.
    """
    cells = cells[np.isfinite(cells[column])]
    logs = np.log(cells[[column, *axes]].astype(float))
    design = logs[axes].assign(constant=1.0)
    found = np.linalg.lstsq(design, logs[column], rcond=None)[0]
    return dict(zip(axes, found, strict=False))


WITH_THEORY = [f"{axis}: measured [95 %]; theory" for axis in SIZES]
MISFIT = "misfit over noise"
INSIDE = {True: "trigger_in_value", False: "not trigger_in_value"}
WIDE = {
    "of them V >= d / 2": "2 * V >= d",
    "of them V < d / 2": "2 * V < d",
}


def law_exponents():
    """Exponents of N* within each regime, measured and by theory on the same cells.

    A law is rejected by its misfit if this is well above 1.
    """
    parts = {
        SHORT: REGIMES[SHORT],
        LONG: REGIMES[LONG],
        **{name: f"{REGIMES[LONG]} and {part}" for name, part in WIDE.items()},
    }
    conditions = {name: f"{INSIDE[True]} and {part}" for name, part in parts.items()}
    found = laws("law", tuple(conditions.values()), THETAS)
    body = []
    for theta in THETAS:
        for name, condition in conditions.items():
            cells = crossed(theta).query(parts[name])
            law = found.loc[theta, condition]
            n_cells = law["n_cells"].iloc[0]
            body.append([theta, name, n_cells, *beside_theory(law, cells)])
    return markdown(["theta", "regime", "cells", *WITH_THEORY, MISFIT], body)


def law_lengths():
    """Exponent of L within each regime.

    Each V and d has its own constant, instead of a power law in V and d.
    """
    rows = load(STUDY / "law").query(INSIDE[True])
    pair = rows["V"].astype(str) + ", " + rows["d"].astype(str)
    rows = rows.assign(pair=pair)
    rows.attrs["axes"] = [*SIZES, "pair", "N"]
    conditions = [REGIMES[SHORT], REGIMES[LONG]]
    found = fit(rows, THETAS, where=conditions).exponents
    found = found.set_index(["theta", "regime", "axis"])
    body = []
    for theta in THETAS:
        laws_of_L = [found.loc[theta, condition, "L"] for condition in conditions]
        body.append([theta, *(with_ends(law, digits=3) for law in laws_of_L)])
    return markdown(["theta", f"L, {SHORT} [95 %]", f"L, {LONG} [95 %]"], body)


def local_slopes(name, axis, theta=0.5):
    """Returns the slopes of ln N* between neighbouring values of an axis, all else
    equal.

    The result is a dict from (low, high) to an array with the measured slope and
    theory's slope of each pair.
    """
    others = [other for other in SIZES if other != axis]
    steps = {}
    for _, line in crossed(theta, name).groupby(others):
        line = line.sort_values(axis)
        for a, b in pairwise(line.itertuples()):
            low, high = getattr(a, axis), getattr(b, axis)
            slopes = [
                np.log(y / x) / np.log(high / low)
                for x, y in ((a.N_star, b.N_star), (a.predicted, b.predicted))
            ]
            steps.setdefault((low, high), []).append(slopes)
    return {step: np.array(found) for step, found in sorted(steps.items())}


def law_slopes():
    """Local slopes of ln N* between neighbouring sizes, all else equal, at theta 0.5.

    Each slope is a mean over pairs of cells; theory is in brackets.
    """
    body = []
    for name in (SHORT, LONG):
        for axis in SIZES:
            cells = []
            for (low, high), slopes in local_slopes(name, axis).items():
                measured, theirs = slopes.mean(axis=0)
                cells.append(
                    f"{low} to {high}: {measured:.2f} ({theirs:.2f}), {len(slopes)}"
                    " pairs"
                )
            body.append([name, axis, "; ".join(cells)])
    return markdown(["regime", "axis", "slope"], body)


def law_errors():
    """Predicted over observed N*, with no constant fitted.

    The median counts cells without a predicted N*; the mean and the largest do not. The
    noise is the median standard error of the observed ln N*.
    """
    body = []
    for theta in THETAS:
        for name in (*REGIMES, "all"):
            cells = crossed(theta, None if name == "all" else name)
            median, mean, largest, at = off_theory(cells)
            noise = f"{cells['error'].median():.2f}"
            numbers = median, mean, f"{largest} ({at})", infinite(cells), noise
            body.append([theta, name, len(cells), *numbers])
    return markdown(["theta", "regime", "cells", *ERRORS, "infinite", "noise"], body)


ERRORS = ["median abs ln ratio", "mean ln ratio", "largest"]


def law_check():
    """N* of exact runs, without a pool, and of runs with a pool, at theta 0.5.

    The difference is in standard errors.
    """
    exact, pooled = (predicted(study) for study in ("law-exact", "law"))
    exact, pooled = (
        table[(table["theta"] == 0.5) & table["trigger_in_value"]].set_index(SIZES)
        for table in (exact, pooled)
    )
    body = []
    for at, row in exact.iterrows():
        both = row, pooled.loc[at]
        z = np.log(both[1]["N_star"] / both[0]["N_star"]) / np.hypot(
            *(one["error"] for one in both)
        )
        cells = [
            (
                f"{one['N_star']:.0f} [{one['lo']:.0f}, {one['hi']:.0f}]"
                if one["N_star"] > 0
                else one["outcome"]
            )
            for one in both
        ]
        body.append(
            [
                *at,
                *cells,
                f"{z:+.1f}" if np.isfinite(z) else "",
                f"{row['predicted']:.0f}",
            ]
        )
    return markdown(
        [*SIZES, "exact N* [95 %]", "with a pool", "difference", "theory"], body
    )


def law_without():
    """N* at theta 0.5 by L, with the trigger out of the value path.

    The number in brackets is N* with the trigger in the value path, over this N*.
    """
    out, inside = crossed(0.5, inside=False), crossed(0.5).set_index(SIZES)["N_star"]
    lengths, body = sorted(out["L"].unique()), []
    for (V, d), mine in out.groupby(["V", "d"]):
        cells = []
        for L in lengths:
            here = mine[mine["L"] == L]["N_star"]
            other = inside.get((V, d, L), np.nan)
            cells.append(
                f"{here.iloc[0]:.3g}"
                + (f" ({other / here.iloc[0]:.2g})" if other > 0 else "")
                if len(here)
                else "none"
            )
        body.append([V, d, f"{V * np.log(2):.0f}", *cells])
    return markdown(["V", "d", "V ln 2", *(f"L = {L}" for L in lengths)], body)


def law_without_errors():
    """Errors of theory by regime, with the trigger out of the value path.

    Long sequences also have exponents, measured and by theory in the same cells.
    """
    condition = f"{INSIDE[False]} and {REGIMES[LONG]}"
    found = laws("law", (condition,), THETAS)
    body = []
    for theta in THETAS:
        for name in (*REGIMES, "all"):
            cells = crossed(theta, None if name == "all" else name, inside=False)
            median, mean, largest, _ = off_theory(cells)
            exponents = [""] * (len(SIZES) + 1)
            if name == LONG:
                exponents = beside_theory(found.loc[theta, condition], cells)
            numbers = median, mean, largest, infinite(cells)
            body.append([theta, name, len(cells), *numbers, *exponents])
    heads = ["theta", "regime", "cells", *ERRORS, "infinite", *WITH_THEORY, MISFIT]
    return markdown(heads, body)


WAYS = {True: "in", False: "out"}


def law_wide_exponents():
    """Exponents of N* within each regime at V / d of 4 to 13 and theta 0.5."""
    body = []
    for inside, way in WAYS.items():
        for name in (SHORT, LONG):
            cells = crossed(0.5, name, inside, "law-long").query("V >= 4 * d")
            axes = [axis for axis in SIZES if cells[axis].nunique() > 1]
            if len(cells) < len(axes) + 3:
                body.append([way, name, len(cells), *["too few cells"] * 3, ""])
                continue
            condition = f"{INSIDE[inside]} and V >= 4 * d and {REGIMES[name]}"
            law = laws("law-long", (condition,)).loc[0.5, condition]
            *exponents, misfit = beside_theory(law, cells, axes=axes)
            cells_of = dict(zip(axes, exponents, strict=True))
            shown = [cells_of.get(axis, "one value") for axis in SIZES]
            body.append([way, name, law["n_cells"].iloc[0], *shown, misfit])
    return markdown(["trigger", "regime", "cells", *WITH_THEORY, MISFIT], body)


def law_wide():
    """Every cell at V / d of 4 to 13.

    The columns include the width over the smallest width, N* [95 %], theory, and
    theory's error in ln N*.
    """
    order, body = ["trigger_in_value", *SIZES], []
    found = (
        predicted("law-long")
        .query("V >= 4 * d")
        .sort_values(order, ascending=[False, True, True, True])
    )
    for _, row in found.iterrows():
        least = (2 if row["trigger_in_value"] else np.sqrt(2)) * np.sqrt(
            row["V"] * np.log(row["V"])
        )
        N = (
            f"{row['N_star']:.3g} [{row['lo']:.3g}, {row['hi']:.3g}]"
            if row["N_star"] > 0
            else row["outcome"]
        )
        off = (
            f"{np.log(row['predicted'] / row['N_star']):+.2f}"
            if row["N_star"] > 0
            else ""
        )
        cells = [
            WAYS[row["trigger_in_value"]],
            row["V"],
            row["d"],
            f"{row['V'] / row['d']:.1f}",
            f"{row['d'] / least:.2f}",
            row["L"],
        ]
        body.append(
            [
                *cells,
                N.replace("e+0", "e"),
                f"{row['predicted']:.3g}".replace("e+0", "e"),
                off,
            ]
        )
    return markdown(
        [
            "trigger",
            *SIZES[:2],
            "V / d",
            "d / edge",
            "L",
            "N* [95 %]",
            "theory",
            "ln ratio",
        ],
        body,
    )


def law_wide_errors():
    """Errors of theory at V / d of 4 to 13 and theta 0.5.

    The rows are by the width over the smallest width.
    """
    body = []
    for inside, way in WAYS.items():
        every = crossed(0.5, None, inside, "law-long").query("V >= 4 * d")
        edges = every["d"] / (
            (2 if inside else np.sqrt(2)) * np.sqrt(every["V"] * np.log(every["V"]))
        )
        for name, cells in (
            ("under 1.4", every[edges < 1.4]),
            ("1.4 to 3.2", every[edges >= 1.4]),
            ("all", every),
        ):
            median, mean, largest, at = off_theory(cells)
            noise = f"{cells['error'].median():.2f}"
            numbers = median, mean, f"{largest} ({at})", infinite(cells), noise
            body.append([way, name, len(cells), *numbers])
    heads = ["trigger", "d / edge", "cells", *ERRORS, "infinite", "noise"]
    return markdown(heads, body)


LAW = (
    law_exponents,
    law_lengths,
    law_slopes,
    law_errors,
    law_check,
    law_without,
    law_without_errors,
)
LAW += (law_wide_exponents, law_wide_errors, law_wide)
