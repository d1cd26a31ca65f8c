"""How many bits a parameter stores, from the searches of results/study/storage.

The number of bits follows from the largest V that is recalled.
"""

from functools import cache

import numpy as np
import pandas as pd
from law import DASHED, STUDY, searched
from scipy.special import entr, logit
from table import as_table, with_interval

from jaxrecall import load, plot

EDGE = 1 / (2 * np.log(2))
"""Theory's bits per entry of V_mat after three steps, trigger in the key only.

The bits follow from V ln V = d^2 / 2.
"""

LANGUAGE_MODELS = 2.0
"""The bits per parameter that language models are reported to store.

The number is from Allen-Zhu and Li, arXiv:2404.05405.
"""

STUDIES = ("storage", "storage-long")
THETAS = (0.5, 0.99)
WIDTHS = (8, 16, 32, 64)
LEAST_SQUARES_SEEDS = 16
LEAST_SQUARES = "least squares, sphere"


def bits(V):
    """V log2 V: the bits of one label out of V for each of V tokens."""
    return V * np.log2(V)


def recalled(V, accuracy):
    """V (p log2 V - h(p)): the bits in V guesses of accuracy p (Fano).

    Nothing tells which of the guesses are right.
    """
    return V * (
        accuracy * np.log2(V) - (entr(accuracy) + entr(1 - accuracy)) / np.log(2)
    )


@cache
def stored():
    """Returns a row for each cell: V* at each theta, entries of V_mat, and the most
    bits recalled.

    The row also contains the V at which these bits are recalled.
    """
    fields = ["setting", "d", "m"]
    found = named(pd.concat(map(searched, STUDIES), ignore_index=True))
    rows = [load(STUDY / study, last=True) for study in STUDIES]
    rows = named(pd.concat(rows, ignore_index=True).query("status == 'ok'"))
    means = rows.groupby([*fields, "V"])["accuracy"].mean().reset_index()
    means["recalled"] = recalled(means["V"], means["accuracy"])
    levels_of = dict([*means.groupby(fields)])
    cells = []
    for at, mine in found.groupby(fields, sort=False):
        levels = levels_of[at]
        peak = levels.loc[levels["recalled"].idxmax()]
        cell = mine.iloc[0][[*fields, "trains", "activation"]].to_dict()
        cell |= {
            "entries": cell["d"] * (cell["m"] or cell["d"]),
            "cells": mine.set_index("theta"),
            "recalled": peak["recalled"],
            "peak": int(peak["V"]),
            "beyond": peak["V"] == levels["V"].max(),
        }
        cells.append(cell)
    return pd.DataFrame(cells)


def named(table):
    """Returns the table with the setting of each row in words."""
    return table.assign(setting=[setting(row) for row in table.to_dict("records")])


def trained(cell, V):
    """The number of trained entries: V_mat, W_KQ, and Z_in, Z_out, z_trig if they are
    trained.
    """
    d = cell["d"]
    return cell["entries"] + d * d + ("Z" in str(cell["trains"])) * (2 * V * d + d)


@cache
def least_squares(d):
    """Returns V -> mean accuracy of an associative memory from least squares, for V >
    d.

    Its V_mat minimises |Z_in V_mat^T Z_out^T - 1|^2.
    """
    levels = sorted(
        {
            round(2 ** (k / 4))
            for k in range(8, 4 * 10 + 1)
            if d < 2 ** (k / 4) <= 2 * d * d
        }
    )
    found = {}
    for V in levels:
        right = []
        for seed in range(LEAST_SQUARES_SEEDS):
            rng = np.random.default_rng([V, d, seed])
            Z_in, Z_out = (
                z / np.linalg.norm(z, axis=1, keepdims=True)
                for z in rng.normal(size=(2, V, d))
            )
            # these inverses need V > d
            M_in, M_out = (np.linalg.solve(z.T @ z, z.T) for z in (Z_in, Z_out))
            logits = Z_in @ (M_in @ M_out.T) @ Z_out.T
            right.append((logits.argmax(axis=1) == np.arange(V)).mean())
        found[V] = np.mean(right)
    return found


def solved(d, theta):
    """V* of the least-squares memory, where its accuracy crosses theta.

    The crossing is interpolated in logit accuracy over log V.
    """
    V, accuracy = (
        np.array(values) for values in zip(*least_squares(d).items(), strict=True)
    )
    height = logit(accuracy.clip(1e-3, 1 - 1e-3)) - logit(theta)
    if height.min() > 0 or height[0] < 0:
        return np.nan
    at = int(np.argmax(height < 0))
    return float(np.exp(np.interp(0, height[[at, at - 1]], np.log(V[[at, at - 1]]))))


def solved_most(d):
    """The most bits that the least-squares memory recalls, and the V where it does."""
    return max((recalled(V, accuracy), V) for V, accuracy in least_squares(d).items())


def setting(row):
    """The settings of a cell besides d, in words."""
    trains = row.get("trains")
    embeddings = "trained" if isinstance(trains, str) and "Z" in trains else "fixed"
    after = (
        "three steps"
        if row["steps"] == 3
        else f"{row['steps']} steps, {row['optimizer']}, {embeddings} embeddings"
    )
    layer = f", {row['activation']}" if row["m"] else ""
    trigger = ", value and key" if row["trigger_in_value"] else ""
    return f"{after}, {row['embedding']}{layer}{trigger}"


TOLD = {
    "right": "beyond {N_below}",
    "left": "below {N_above}",
    "plateau": "above it to {N_below}",
}


V_STAR = with_interval(".0f", TOLD)
HEADS = [
    "setting",
    "d",
    "m",
    "V* at 0.5",
    "bits per entry",
    "V* at 0.99",
    "bits per entry",
    "recalled bits per entry",
]


def at_theta(cell, theta):
    """Returns the texts of V* of a cell and of the bits per entry there."""
    found = cell["cells"]
    found = found[found.index == theta]
    if found.empty:
        return "not run", ""
    V = starred(cell, theta)
    if not V > 0:
        return V_STAR(found), ""
    per_entry = bits(V) / cell["entries"], bits(V) / trained(cell, V)
    return V_STAR(found), "{:.2f}, {:.2f}".format(*per_entry)


def most_recalled(cell):
    """Returns the most bits recalled per entry, and the V where they are, as text."""
    per_entry = cell["recalled"] / cell["entries"]
    per_trained = cell["recalled"] / trained(cell, cell["peak"])
    more = "at least " if cell["beyond"] else ""
    return f"{more}{per_entry:.2f}, {per_trained:.2f} (V = {cell['peak']})"


def solved_at(d, theta):
    """Returns the texts of V* of the least-squares memory and of its bits per entry."""
    V = solved(d, theta)
    if not V > 0:
        return "none", ""
    return f"{V:.0f}", f"{bits(V) / d**2:.2f}"


@as_table()
def storage():
    """Bits per parameter in each cell.

    At V*, the bits are V log2 V over the entries of V_mat, and over all trained
    entries. The last column is the most bits recalled at any V.
    """
    lines = []
    for cell in stored().to_dict("records"):
        found = [text for theta in THETAS for text in at_theta(cell, theta)]
        names = cell["setting"], cell["d"], cell["m"] or "none"
        lines.append([*names, *found, most_recalled(cell)])
    for d in WIDTHS:
        found = [text for theta in THETAS for text in solved_at(d, theta)]
        most, V = solved_most(d)
        recalled_bits = f"{most / d**2:.2f} (V = {V})"
        lines.append([LEAST_SQUARES, d, "none", *found, recalled_bits])
    return pd.DataFrame(lines, columns=HEADS)


FIXED = ", fixed embeddings, sphere"
CURVES = [
    "three steps, sphere",
    "three steps, gaussian",
    "10 steps, adam",
    "100 steps, adam",
    "1000 steps, adam",
    "10000 steps, adam",
    "1000 steps, sgd",
]
HALF, SURE, RECALLED, OF_TRAINED = VIEWS = [
    "accuracy 1/2: bits per entry of V_mat",
    "accuracy 0.99: bits per entry of V_mat",
    "recalled: bits per entry of V_mat",
    "recalled: bits per trained entry",
]
"""The four ways to count bits, which have a panel each."""


def storing():
    """Bits per entry against the size of V_mat, for V* and for the recalled bits."""
    cells = counted(map(of_cell, stored().to_dict("records")))
    shown = cells[cells["setting"].isin(CURVES)]
    shown = shown.assign(setting=pd.Categorical(shown["setting"], CURVES))
    layers = cells[cells["activation"] == "quadratic"].drop(columns="setting")
    ends = pd.DataFrame({"entries": [shown["entries"].min(), shown["entries"].max()]})
    theory = ends.assign(view=HALF, bits=EDGE)
    reported = ends.assign(view=OF_TRAINED, bits=LANGUAGE_MODELS)
    star = {"marker": "*", "size": 1.8, "linestyle": "none"}
    dotted = {"marker": ".", "width": 0.75, "linestyle": ":"}
    plain = {"marker": "none", "width": 0.75}
    over = [
        plot.Points(layers, "bits", "three steps, quadratic MLP", star),
        plot.Polyline(counted(map(of_solved, WIDTHS)), "bits", "least squares", dotted),
        plot.Polyline(theory, "bits", "theory of three steps", DASHED),
        plot.Polyline(reported, "bits", "reported for language models", plain),
    ]
    return plot.figure(
        shown,
        "bits",
        x="entries",
        lines="setting",
        panels="view",
        over=over,
        joined=True,
        scale="linear",
        labels={
            "entries": "entries of V_mat: d^2, or d m with an MLP",
            "setting": "",
            "view": "",
        },
    )


def counted(cells):
    """Returns a row for each cell and each way to count bits."""
    cells = pd.DataFrame(cells)
    table = cells.melt(
        [*cells.columns.difference(VIEWS)], var_name="view", value_name="bits"
    )
    return table.assign(view=pd.Categorical(table["view"], VIEWS))


def of_cell(cell):
    """Returns the setting of a cell and its bits per entry."""
    return {
        "setting": cell["setting"].replace(FIXED, ""),
        "activation": cell["activation"],
        "entries": cell["entries"],
        HALF: bits(starred(cell, 0.5)) / cell["entries"],
        SURE: bits(starred(cell, 0.99)) / cell["entries"],
        RECALLED: cell["recalled"] / cell["entries"],
        OF_TRAINED: cell["recalled"] / trained(cell, cell["peak"]),
    }


def of_solved(d):
    """Returns the bits per entry of the least-squares memory."""
    return {
        "entries": d**2,
        HALF: bits(solved(d, 0.5)) / d**2,
        SURE: bits(solved(d, 0.99)) / d**2,
        RECALLED: solved_most(d)[0] / d**2,
    }


def starred(cell, theta):
    """V* of a cell, or nan if the search found none."""
    return float(cell["cells"]["critical"].get(theta) or np.nan)
