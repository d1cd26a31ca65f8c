"""How many bits a parameter stores, from the searches of results/study/storage.

The number of bits follows from the largest V that is recalled.
"""

from functools import cache

import numpy as np
import pandas as pd
from drawing import DASH, above, canvas, line
from law import STUDY, markdown, searched
from scipy.special import entr, logit

from jaxrecall import load

EDGE = 1 / (2 * np.log(2))
"""Theory's bits per entry of V_mat after three steps, trigger out of the value path.

The bits follow from V ln V = d^2 / 2.
"""

LANGUAGE_MODELS = 2.0
"""The bits per parameter that language models are reported to store.

The number is from Allen-Zhu and Li, arXiv:2404.05405.
"""

STUDIES = ("storage", "storage-long")
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
    found = named(pd.concat([searched(study) for study in STUDIES], ignore_index=True))
    rows = named(
        pd.concat(
            [load(STUDY / study, last=True) for study in STUDIES], ignore_index=True
        ).query("status == 'ok'")
    )
    means = rows.groupby([*fields, "V"])["accuracy"].mean().reset_index()
    means["recalled"] = recalled(means["V"], means["accuracy"])
    table = []
    for at, mine in found.groupby(fields, sort=False):
        name, d, m = at
        levels = means[
            (means["setting"] == name) & (means["d"] == d) & (means["m"] == m)
        ]
        peak = levels.loc[levels["recalled"].idxmax()]
        cell = mine.iloc[0][[*fields, "trains", "activation"]].to_dict() | {
            "entries": d * (m or d),
            "cells": mine.set_index("theta"),
        }
        table.append(
            cell
            | {
                "recalled": peak["recalled"],
                "peak": int(peak["V"]),
                "beyond": peak["V"] == levels["V"].max(),
            }
        )
    return pd.DataFrame(table)


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
    trigger = ", trigger in" if row["trigger_in_value"] else ""
    return f"{after}, {row['embedding']}{layer}{trigger}"


TOLD = {
    "right": "beyond 512",
    "left": "below 4",
    "plateau": "above it to 512",
    "undecided": "undecided",
}


def storage():
    """Bits per parameter in each cell.

    At V*, the bits are V log2 V over the entries of V_mat, and over all trained
    entries. The last column is the most bits recalled at any V.
    """
    body = []
    for cell in stored().to_dict("records"):
        line = [cell["setting"], cell["d"], cell["m"] or "none"]
        for theta in (0.5, 0.99):
            if theta not in cell["cells"].index:
                line += ["not run", ""]
                continue
            one = cell["cells"].loc[theta]
            if not one["critical"] or not one["critical"] > 0:
                line += [TOLD[one["outcome"]], ""]
                continue
            V = float(one["critical"])
            interval = (
                f" [{one['lo']:.0f}, {one['hi']:.0f}]"
                if one["lo"] > 0
                else ", no interval"
            )
            line += [
                f"{V:.0f}{interval}",
                f"{bits(V) / cell['entries']:.2f}, {bits(V) / trained(cell, V):.2f}",
            ]
        most = (
            cell["recalled"] / cell["entries"],
            cell["recalled"] / trained(cell, cell["peak"]),
        )
        more = "at least " if cell["beyond"] else ""
        body.append([*line, f"{more}{most[0]:.2f}, {most[1]:.2f} (V = {cell['peak']})"])
    for d in (8, 16, 32, 64):
        cells = [
            (
                [f"{V:.0f}", f"{bits(V) / d**2:.2f}"]
                if (V := solved(d, theta)) > 0
                else ["none", ""]
            )
            for theta in (0.5, 0.99)
        ]
        most, V = solved_most(d)
        body.append(
            [
                LEAST_SQUARES,
                d,
                "none",
                *cells[0],
                *cells[1],
                f"{most / d**2:.2f} (V = {V})",
            ]
        )
    heads = [
        "setting",
        "d",
        "m",
        "V* at 0.5",
        "bits per entry",
        "V* at 0.99",
        "bits per entry",
        "recalled bits per entry",
    ]
    return markdown(heads, body)


CURVES = {
    "three steps, sphere": ("o", "#0072B2"),
    "three steps, gaussian": ("s", "#56B4E9"),
    "10 steps, adam, fixed embeddings, sphere": ("v", "#E69F00"),
    "100 steps, adam, fixed embeddings, sphere": ("D", "#D55E00"),
    "1000 steps, adam, fixed embeddings, sphere": ("^", "#8B0000"),
    "10000 steps, adam, fixed embeddings, sphere": ("P", "#009E73"),
    "1000 steps, sgd, fixed embeddings, sphere": ("<", "#CC79A7"),
}


def storing():
    """Draws bits per entry against the size of V_mat.

    The panels are V* at accuracy 1/2 and 0.99, and the most bits that are recalled.
    """
    table = stored()
    table = table[table["setting"].isin(CURVES) | (table["activation"] == "quadratic")]
    figure, panels = canvas(2, 2, 5, sharex=True)
    views = {
        "V log2 V at accuracy 1/2,\nper entry of V_mat": lambda cell: (
            bits(starred(cell, 0.5)) / cell["entries"]
        ),
        "V log2 V at accuracy 0.99,\nper entry of V_mat": lambda cell: (
            bits(starred(cell, 0.99)) / cell["entries"]
        ),
        "recalled: largest V (p log2 V - h(p)),\nper entry of V_mat": lambda cell: (
            cell["recalled"] / cell["entries"]
        ),
        "recalled: largest V (p log2 V - h(p)),\nper trained entry": lambda cell: (
            cell["recalled"] / trained(cell, cell["peak"])
        ),
    }
    for ax, (title, value) in zip(panels.flat, views.items(), strict=True):
        y = table.apply(value, axis=1)
        for curve, (marker, colour) in CURVES.items():
            mine = table[table["setting"] == curve].sort_values("entries").index
            ax.plot(
                table["entries"][mine],
                y[mine],
                marker=marker,
                color=colour,
                markersize=4,
                linewidth=0.9,
            )
        layers = table["m"] > 0
        ax.plot(table["entries"][layers], y[layers], **LAYERS)
        ax.set(xscale="log", title=title, ylim=(0, 2.2))
        ax.set_xticks([64, 256, 1024, 4096], ["64", "256", "1024", "4096"])
        ax.set_xticks([], minor=True)
        ax.grid(True)
    widths = np.array([8, 16, 32, 64])
    for ax, theta in zip(panels[0], (0.5, 0.99), strict=True):
        ax.plot(widths**2, [bits(solved(d, theta)) / d**2 for d in widths], **SOLVED)
    panels[1, 0].plot(widths**2, [solved_most(d)[0] / d**2 for d in widths], **SOLVED)
    panels[0, 0].axhline(EDGE, **THEORY)
    for ax in panels[1]:
        ax.axhline(LANGUAGE_MODELS, **REPORTED)
    figure.supxlabel("entries of V_mat: d^2, or d m with an MLP", fontsize=8)
    figure.supylabel("bits", fontsize=8)
    entries = [
        line(
            name.replace(", fixed embeddings, sphere", ""), marker=marker, color=colour
        )
        for name, (marker, colour) in CURVES.items()
    ]
    entries += [
        line("three steps, quadratic MLP", **LAYERS),
        line("least squares", **SOLVED),
        line("theory of three steps", **THEORY),
    ]
    above(figure, [*entries, line("reported for language models", **REPORTED)])
    return "storage", figure


def starred(cell, theta):
    """V* of a cell, or nan if the search found none."""
    return float(cell["cells"]["critical"].get(theta) or np.nan)


LAYERS = {"marker": "*", "color": "black", "linestyle": "none", "markersize": 6}
SOLVED = {"color": "0.5", "linestyle": ":", "marker": "."}
THEORY = {"color": "black", "linestyle": DASH, "linewidth": 0.9}
REPORTED = {"color": "0.6", "linewidth": 0.9}

TABLES = (storage,)
