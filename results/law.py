"""The scaling law in both regimes: exponents, errors of theory, and exact cells.

The data is in the tables of results/study/law, law-long and law-exact. Tables and
figures are about the trigger in the value path, unless they say that it is out of it.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jaxrecall.theory import Model, critical_N

STUDY = Path(__file__).parent / "study"
SIZES = ["V", "d", "L"]
REGIMES = ("short sequences", "between", "long sequences")


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
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        return list(pool.map(function, *arguments, chunksize=8))


def regime(table):
    """The regime of each row, from x = L^2 / (V^(3/2) d^(1/2)).

    Sequences are short for x under 0.1, long for x over 10, and otherwise between.
    """
    x = table["L"] ** 2 / table["V"] ** 1.5 / table["d"] ** 0.5
    return np.select([x < 0.1, x > 10], [REGIMES[0], REGIMES[2]], REGIMES[1])


def crossed(theta, name=None, inside=True, study="law"):
    """Returns cells with a measured and a predicted N*, for one path of the trigger."""
    found = predicted(study)
    found = found[(found["theta"] == theta) & (found["trigger_in_value"] == inside)]
    found = found[found["N_star"].notna() & np.isfinite(found["predicted"])]
    return found if name is None else found[found["regime"] == name]


def regression(table, column, axes=SIZES, extra=()):
    """Fits ln(column) to the logarithms of the axes by least squares.

    Returns the slopes, the half widths of their 95 % intervals, and the rms residual.
    """
    X = np.column_stack(
        [np.ones(len(table)), *(np.log(table[axis]) for axis in axes), *extra]
    )
    y, inverse = np.log(table[column].to_numpy()), np.linalg.inv(X.T @ X)
    slope = inverse @ X.T @ y
    rest = y - X @ slope
    free = len(table) - X.shape[1]
    half = np.sqrt(np.diag(inverse) * (rest @ rest) / free) * stdtrit(free, 0.975)
    return slope[1:], half[1:], np.sqrt(rest @ rest / len(rest))


def law_exponents():
    """Exponents of N* within each regime, measured and by theory on the same cells.

    Each is a least-squares fit to the logarithms of the cells.
    """
    body = []
    for theta in (0.25, 0.5, 0.9):
        long = crossed(theta, REGIMES[2])
        parts = {
            REGIMES[0]: crossed(theta, REGIMES[0]),
            REGIMES[2]: long,
            "of them V >= d / 2": long[2 * long["V"] >= long["d"]],
            "of them V < d / 2": long[2 * long["V"] < long["d"]],
        }
        for name, mine in parts.items():
            slope, half, rms = regression(mine, "N_star")
            theirs, _, _ = regression(mine, "predicted")
            cells = [
                f"{s:.2f} [{s - h:.2f}, {s + h:.2f}]; {t:.2f}"
                for s, h, t in zip(slope, half, theirs, strict=True)
            ]
            body.append([theta, name, len(mine), *cells, f"{rms:.2f}"])
    heads = [
        "theta",
        "regime",
        "cells",
        *(f"{axis}: measured [95 %]; theory" for axis in SIZES),
        "rms residual of ln N*",
    ]
    return markdown(heads, body)


def law_lengths():
    """Exponent of L within each regime.

    Each V and d has its own constant, instead of a power law in V and d.
    """
    body = []
    for theta in (0.25, 0.5, 0.9):
        line = [theta]
        for name in (REGIMES[0], REGIMES[2]):
            logs = np.log(crossed(theta, name)[[*SIZES, "N_star"]])
            groups = logs.groupby(["V", "d"])
            x, y = (
                logs[column] - groups[column].transform("mean")
                for column in ("L", "N_star")
            )
            slope, free = (x @ y) / (x @ x), len(logs) - groups.ngroups - 1
            half = np.sqrt(
                (y - slope * x) @ (y - slope * x) / free / (x @ x)
            ) * stdtrit(free, 0.975)
            line.append(f"{slope:.3f} [{slope - half:.3f}, {slope + half:.3f}]")
        body.append(line)
    return markdown(
        ["theta", f"L, {REGIMES[0]} [95 %]", f"L, {REGIMES[2]} [95 %]"], body
    )


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
    for name in (REGIMES[0], REGIMES[2]):
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


def law_logarithms():
    """The effect of a factor of log V, or of log L, on the law at theta 0.5.

    The number is the factor's exponent if it is fitted together with the powers.
    """
    body = []
    for name in (REGIMES[0], REGIMES[2]):
        mine = crossed(0.5, name)
        for axis in ("V", "L"):
            slope, half, rms = regression(
                mine, "N_star", extra=[np.log(np.log(mine[axis]))]
            )
            body.append(
                [
                    name,
                    f"log {axis}",
                    (
                        f"{slope[-1]:+.2f} [{slope[-1] - half[-1]:+.2f},"
                        f" {slope[-1] + half[-1]:+.2f}]"
                    ),
                    f"{rms:.2f}",
                ]
            )
    return markdown(
        ["regime", "factor", "its exponent [95 %]", "rms residual of ln N*"], body
    )


def law_errors():
    """Predicted over observed N*, with no constant fitted.

    The noise is the median standard error of the observed ln N*.
    """
    body = []
    for theta in (0.25, 0.5, 0.9):
        for name in (*REGIMES, "all"):
            mine = crossed(theta, None if name == "all" else name)
            off = np.log(mine["predicted"] / mine["N_star"])
            worst = off.abs().idxmax()
            at = ", ".join(f"{axis} {mine.loc[worst][axis]}" for axis in SIZES)
            numbers = (
                f"{off.abs().median():.3f}",
                f"{off.mean():+.3f}",
                f"{off[worst]:+.2f} ({at})",
                f"{mine['error'].median():.2f}",
            )
            body.append([theta, name, len(off), *numbers])
    return markdown(
        [
            "theta",
            "regime",
            "cells",
            "median abs ln ratio",
            "mean ln ratio",
            "largest",
            "noise",
        ],
        body,
    )


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
    body = []
    for theta in (0.25, 0.5, 0.9):
        for name in (*REGIMES, "all"):
            mine = crossed(theta, None if name == "all" else name, inside=False)
            off = np.log(mine["predicted"] / mine["N_star"])
            cells = [
                theta,
                name,
                len(mine),
                f"{off.abs().median():.3f}",
                f"{off.mean():+.3f}",
                f"{off.abs().max():.2f}",
            ]
            if name == REGIMES[2]:
                (slope, half, _), (theirs, _, _) = (
                    regression(mine, "N_star"),
                    regression(mine, "predicted"),
                )
                cells += [
                    f"{s:.2f} [{s - h:.2f}, {s + h:.2f}]; {t:.2f}"
                    for s, h, t in zip(slope, half, theirs, strict=True)
                ]
            body.append([*cells, *[""] * (9 - len(cells))])
    heads = [
        "theta",
        "regime",
        "cells",
        "median abs ln ratio",
        "mean ln ratio",
        "largest",
        *(f"{a}: measured [95 %]; theory" for a in SIZES),
    ]
    return markdown(heads, body)


WAYS = {True: "in", False: "out"}


def law_wide_exponents():
    """Exponents of N* within each regime at V / d of 4 to 13 and theta 0.5.

    Each is a least-squares fit, with theory on the same cells.
    """
    body = []
    for inside, way in WAYS.items():
        for name in (REGIMES[0], REGIMES[2]):
            mine = crossed(0.5, name, inside, "law-long").query("V >= 4 * d")
            axes = [axis for axis in SIZES if mine[axis].nunique() > 1]
            if len(mine) < len(axes) + 3:
                body.append([way, name, len(mine), *["too few cells"] * 3, ""])
                continue
            (slope, half, rms), (theirs, _, _) = (
                regression(mine, "N_star", axes),
                regression(mine, "predicted", axes),
            )
            cells = {
                axis: f"{s:.2f} [{s - h:.2f}, {s + h:.2f}]; {t:.2f}"
                for axis, s, h, t in zip(axes, slope, half, theirs, strict=True)
            }
            body.append(
                [
                    way,
                    name,
                    len(mine),
                    *(cells.get(axis, "one value") for axis in SIZES),
                    f"{rms:.2f}",
                ]
            )
    heads = [
        "trigger",
        "regime",
        "cells",
        *(f"{axis}: measured [95 %]; theory" for axis in SIZES),
        "rms residual of ln N*",
    ]
    return markdown(heads, body)


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
        for name, mine in (
            ("under 1.4", every[edges < 1.4]),
            ("1.4 to 3.2", every[edges >= 1.4]),
            ("all", every),
        ):
            off = np.log(mine["predicted"] / mine["N_star"])
            worst = mine.loc[off.abs().idxmax()]
            at = ", ".join(f"{axis} {worst[axis]}" for axis in SIZES)
            noise = f"{mine['error'].median():.2f}"
            body.append(
                [
                    way,
                    name,
                    len(mine),
                    f"{off.abs().median():.3f}",
                    f"{off.mean():+.3f}",
                    f"{off[worst.name]:+.2f} ({at})",
                    noise,
                ]
            )
    return markdown(
        [
            "trigger",
            "d / edge",
            "cells",
            "median abs ln ratio",
            "mean ln ratio",
            "largest",
            "noise",
        ],
        body,
    )


LAW = (
    law_exponents,
    law_lengths,
    law_slopes,
    law_logarithms,
    law_errors,
    law_check,
    law_without,
    law_without_errors,
)
LAW += (law_wide_exponents, law_wide_errors, law_wide)
