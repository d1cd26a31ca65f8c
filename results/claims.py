"""Predicted and observed N* at accuracy 1/2.

The tables are by width and length, and for cells that were predicted before they were
run.
"""

import numpy as np
from law import SIZES, STUDY, crossed, markdown, on_all_cores, searched, with_ends

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

FACTOR = 1.25
CELLS = "theta == 0.5 and V == 256 and d in (128, 256, 512) and L in (4, 256, 16384)"
FIELDS = [*SIZES, "embedding", "trigger_in_value"]


def with_theory(cells):
    """Returns cells of a search with the predicted N*, and whether it matches.

    It matches if it is within the interval, or within a factor of 1.25 of N*.
    """
    models = [Model(**cell) for cell in cells[FIELDS].to_dict("records")]
    return matched(cells.assign(predicted=on_all_cores(critical_N, models)))


def matched(cells):
    off = np.log(cells["predicted"] / cells["N_star"])
    inside = cells["predicted"].between(cells["lo"], cells["hi"])
    return cells.assign(
        off=off, inside=inside, match=inside | (off.abs() <= np.log(FACTOR))
    )


def short(number):
    """Formats a number with three digits."""
    return (
        f"{float(f'{number:.3g}'):,.0f}"
        if number < 1e6
        else f"{number:.2e}".replace("e+0", "e")
    )


def interval(row):
    return f"{short(row['N_star'])} [{short(row['lo'])}, {short(row['hi'])}]"


def dimension_by_length():
    """N* by width and length at V = 256: predicted and observed.

    A prediction matches if it is within the interval, or within a factor of 1.25.
    """
    found, body = with_theory(searched("law").query(CELLS)), []
    for (d, L), mine in found.groupby(["d", "L"]):
        rows = mine.sort_values("trigger_in_value", ascending=False).to_dict("records")
        cells = [
            cell
            for row in rows
            for cell in (
                short(row["predicted"]),
                interval(row),
                "yes" if row["match"] else "no",
            )
        ]
        body.append([d, f"{L:,}", *cells, *["not run"] * (6 - len(cells))])
    heads = [
        f"trigger {where}: {what}"
        for where in ("in", "out")
        for what in ("predicted", "observed [95 %]", "match")
    ]
    return markdown(["d", "L", *heads], body)


def matching():
    """The same comparison for all cells of the law.

    The columns are the number of cells that match, the number within the interval, and
    the cells that do not match.
    """
    body = []
    for inside in (True, False):
        cells = matched(crossed(0.5, inside=inside))
        rest = "; ".join(
            f"{V}, {d}, {L}"
            for V, d, L in cells.loc[~cells["match"], SIZES].itertuples(index=False)
        )
        body.append(
            [
                "in" if inside else "out",
                len(cells),
                cells["match"].sum(),
                cells["inside"].sum(),
                rest,
            ]
        )
    return markdown(
        ["trigger", "cells", "match", "within the interval", "V, d, L of the others"],
        body,
    )


def twelve_cells():
    """Cells that were predicted before they were run, without a pool.

    The columns are theory, a search, and a fit to other seeds at fixed N.
    """
    body, rows = [], load(STUDY / "held-out-levels")
    levels = {
        inside: fit(mine, [0.5]).thresholds.query("record").set_index(SIZES)
        for inside, mine in rows.groupby("trigger_in_value")
    }
    for row in with_theory(searched("held-out")).to_dict("records"):
        other = levels[row["trigger_in_value"]].loc[tuple(row[name] for name in SIZES)]
        overlap = max(row["lo"], other["lo"]) <= min(row["hi"], other["hi"])
        cell = (
            f"{row['V']}, {row['d']}, {row['L']}",
            row["embedding"],
            "in" if row["trigger_in_value"] else "out",
        )
        judged = (
            f"{row['off']:+.2f}",
            "yes" if abs(row["off"]) <= np.log(FACTOR) else "no",
            "yes" if overlap else "no",
        )
        body.append(
            [*cell, short(row["predicted"]), interval(row), interval(other), *judged]
        )
    heads = [
        "V, d, L",
        "embedding",
        "trigger",
        "theory",
        "search [95 %]",
        "fixed N [95 %]",
        "ln(theory / search)",
    ]
    return markdown([*heads, "within a factor of 1.25", "intervals overlap"], body)


def label_counts():
    """N* of orthogonal rows at L = 8, its ratio to V ln 2, and its exponent of V."""
    rows = load(STUDY / "orthogonal").drop(columns="d")  # d follows from V
    laws = fit(rows, [0.5], by="trigger_in_value").exponents.set_index("regime")
    body = []
    for inside, mine in searched("orthogonal").groupby("trigger_in_value", sort=False):
        cells = [
            f"{interval(row)}, {row['N_star'] / row['V'] / np.log(2):.1f}"
            for row in mine.sort_values("V").to_dict("records")
        ]
        law = laws.loc[f"trigger_in_value == {str(inside).lower()}"]
        body.append(["in" if inside else "out", *cells, with_ends(law)])
    return markdown(
        [
            "trigger",
            *(f"V = {V}" for V in sorted(searched("orthogonal")["V"].unique())),
            "exponent of V [95 %]",
        ],
        body,
    )


def gaussian_widths():
    """Required m d over V ln V, with Gaussian rows and with rows of unit length.

    The trigger is out of the value path. The last column is the ratio of the two.
    """
    sphere = (
        searched("width")
        .query("not diagnose and not trigger_in_value")
        .set_index(["activation", "V", "d"])
    )
    body = []
    for row in searched("width-gaussian").to_dict("records"):
        at = (row["activation"], row["V"], row["d"])
        unit = row["V"] * np.log(row["V"]) / row["d"]
        numbers = (
            row["critical"] / unit,
            row["lo"] / unit,
            row["hi"] / unit,
            sphere.loc[at, "critical"] / unit,
        )
        times = row["critical"] / sphere.loc[at, "critical"]
        body.append(
            [
                *at,
                "{:.2f} [{:.2f}, {:.2f}]".format(*numbers[:3]),
                f"{numbers[3]:.2f}",
                f"{times:.2f}",
            ]
        )
    return markdown(
        ["activation", "V", "d", "Gaussian rows [95 %]", "unit length", "times"], body
    )


TABLES = (dimension_by_length, matching, twelve_cells, label_counts, gaussian_widths)
