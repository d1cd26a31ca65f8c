"""How far theory is from simulations, as docs/theory.md says: python results/theory.py

It reads the tables in results/theory and the study of embeddings. `python results/theory.py simulate` makes those tables again, in some
four minutes on 2 cores.
"""

import math
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from law import markdown, searched
from scipy.special import logit

import jaxrecall
from jaxrecall.theory import Model, accuracy, critical, critical_N, score_noise

TABLES = Path(__file__).parent / "theory"
MODEL = ["activation", "trigger_in_value", "V", "d"]
BASE = {"n_test": 1024, "streams": "independent", "eta": 1e-6}
LAYERS = BASE | {"pool": 128, "L": 8, "N": 2**22, "kappa": 1e6, "embedding": "sphere"}


def layers(name, sizes, trigger_in_value, times, steps):
    """A grid over widths near `times` V ln V / d, in steps of 2^(1/4), of quadratic and cubic layers."""
    blocks = []
    for activation in ("quadratic", "cubic"):
        for V, d in sizes:
            widths = sorted({round(times * V * math.log(V) / d * 2 ** (k / 4)) for k in steps})
            blocks.append({"axes": {"zip": {"V": [V], "d": [d]}, "m": widths, "activation": [activation]}})
    return {"name": name, "base": LAYERS | {"trigger_in_value": trigger_in_value}, "seeds": {"count": 12}, "blocks": blocks}


WIDE = [(64, 24), (64, 32), (64, 48), (128, 24), (128, 32), (128, 48), (128, 96), (256, 32), (256, 48), (256, 64)]
GRIDS = {
    "trigger-out": {
        "name": "trigger-out",
        "base": BASE | {"pool": 512, "trigger_in_value": False},
        "seeds": {"count": 16},
        "search": {"axis": "N", "theta": 0.5, "from": 16, "to": 10**12},
        "blocks": [
            {"axes": {"zip": {"V": [32, 64, 64, 128, 128, 256], "d": [64, 64, 128, 96, 256, 192]}, "L": [4**k for k in range(1, 8)]}},
            {"axes": {"zip": {"V": [32], "d": [128]}, "L": [4**k for k in range(1, 7)]}},
        ],
    },
    "layers": layers("layers", WIDE, False, 2.5, range(-5, 8)),
    "layers-trigger-in": layers("layers-trigger-in", [(32, 32), (64, 48), (64, 64), (96, 96)], True, 12, range(-6, 9)),
    "orthogonal": {
        "name": "orthogonal",
        "base": BASE | {"pool": 1024, "embedding": "orthogonal"},
        "seeds": {"count": 8},
        "blocks": [
            {
                "axes": {
                    "zip": {"V": [32, 64, 128], "d": [34, 66, 130]},
                    "L": [256, 1024, 4096, 16384],
                    "N": [512, 2048, 8192, 32768, 131072],
                    "trigger_in_value": [True, False],
                }
            }
        ],
    },
}

GRIDS["gradient"] = {
    "name": "gradient",
    "base": BASE | {"n_test": 256, "diagnose": True, "trigger_in_value": False},
    "seeds": {"count": 8},
    "blocks": [{"axes": {"V": [32, 64, 128], "d": [16, 32, 64, 128, 512], "L": [64, 256, 1024], "N": [512, 2048, 8192]}}],
}


def walls():
    """Points of quadratic and cubic layers from where attention fails to where it is locked."""
    blocks = []
    for activation, lowest in (("quadratic", lambda L: 8e3 * (L / 16) ** 2.6), ("cubic", lambda L: 50 * L**1.3)):
        for inside, (V, d), L in product((False, True), ((64, 32), (64, 64), (128, 48)), (4, 16, 64, 256)):
            N = [round(lowest(L) * times) for times in (0.1, 1, 10, 100)]
            fixed = {"V": [V], "d": [d], "L": [L], "activation": [activation], "trigger_in_value": [inside]}
            blocks.append({"axes": {"zip": fixed, "N": [n for n in N if n >= V], "m": [64, 512]}})
    return blocks


GRIDS["walls"] = {
    "name": "walls",
    "base": BASE | {"pool": 256, "kappa": 1e5, "embedding": "sphere", "diagnose": True},
    "seeds": {"count": 6},
    "blocks": walls(),
}


def simulate(folder):
    """Runs the grids, and writes what the tables need of their rows."""
    TABLES.mkdir(exist_ok=True)
    for name, grid in GRIDS.items():
        rows = jaxrecall.run(grid, out=f"{folder}/{name}")
        if "search" in grid:
            found = jaxrecall.thresholds(f"{folder}/{name}")[["V", "d", "L", "N_star", "lo", "hi"]]
        elif name in ("orthogonal", "walls"):
            found = rows.groupby([*MODEL, "L", "N", "m"])["snr"].median().reset_index()
        elif name == "gradient":
            found = rows.groupby(["V", "d", "L", "N"])[["snr", "noise_gradient"]].median().reset_index()
        else:
            found = rows.groupby([*MODEL, "m"])["accuracy"].mean().reset_index()
        found.to_csv(TABLES / f"{name}.csv", index=False, float_format="%.5g")


def table(name):
    return pd.read_csv(TABLES / f"{name}.csv")


def critical_sizes():
    """N* and m* at accuracy 1/2: ln(predicted / observed)."""
    body = [*trigger_out(), *embeddings(), *layer_widths()]
    return markdown(["", "cells", "median abs ln ratio", "mean ln ratio", "largest"], body)


def summary(name, ratios):
    """A line: how far ln(predicted / observed) is from 0."""
    off = np.abs(ratios)
    return [name, len(off), f"{np.median(off):.3f}", f"{np.mean(ratios):+.3f}", f"{np.max(off):.2f}"]


def trigger_out():
    """N* with the trigger out of the value path."""
    rows = table("trigger-out").dropna(subset="N_star")
    predicted = [critical_N(Model(V=V, d=d, L=L, trigger_in_value=False)) for V, d, L in rows[["V", "d", "L"]].itertuples(index=False)]
    ratios, L = np.log(predicted / rows["N_star"]), rows["L"]
    parts = {"L 4 and 16": L <= 16, "L 64 and 256": L.between(64, 256), "L from 1024": L >= 1024, "all": L > 0}
    return [summary(f"N*, trigger out, {name}", ratios[part]) for name, part in parts.items()]


def embeddings():
    """N* of the study of embeddings, trigger in."""
    rows = searched("embeddings").dropna(subset="N_star")
    models = [Model(V=V, d=d, L=L, embedding=name) for name, V, d, L in rows[["embedding", "V", "d", "L"]].itertuples(index=False)]
    ratios = np.log([critical_N(model, theta) for model, theta in zip(models, rows["theta"], strict=True)] / rows["N_star"])
    return [summary(f"N*, trigger in, {name}", ratios[part.index]) for name, part in rows.groupby("embedding")]


def layer_widths():
    """m*, the width at which a layer recalls half."""
    body = []
    for name, of in LAYER_TABLES.items():
        found = []
        for (activation, inside, V, d), mine in table(of).groupby(MODEL):
            observed = np.exp(np.interp(0, logit(np.maximum.accumulate(mine["accuracy"].clip(1e-3, 1 - 1e-3))), np.log(mine["m"])))
            found.append([activation, np.log(critical(layer(activation, inside, V, d), "m", N=LAYERS["N"]) / observed)])
        found = pd.DataFrame(found, columns=["activation", "ratio"])
        body += [summary(f"m*, {name}, {activation}", part["ratio"]) for activation, part in found.groupby("activation")]
        body.append(summary(f"m*, {name}, both", found["ratio"]))
    return body


LAYER_TABLES = {"trigger out": "layers", "trigger in": "layers-trigger-in"}


def layer(activation, trigger_in_value, V, d, m=1):
    """A model of the tables of layers."""
    fixed = {name: LAYERS[name] for name in ("L", "kappa", "embedding")}
    return Model(V=V, d=d, m=m, activation=activation, trigger_in_value=trigger_in_value, **fixed)


def layer_accuracy():
    """Accuracy of the same layers at every width: error."""
    body = []
    for name, of in LAYER_TABLES.items():
        for activation, mine in table(of).groupby("activation"):
            models = [layer(*of_row) for of_row in mine[[*MODEL, "m"]].itertuples(index=False)]
            off = np.array([accuracy(model, LAYERS["N"]) for model in models]) - mine["accuracy"]
            body.append([f"{name}, {activation}", len(off), f"{off.abs().mean():.3f}", f"{off.mean():+.3f}", f"{off.abs().max():.2f}"])
    return markdown(["", "layers", "mean absolute error", "mean error", "largest"], body)


def snr():
    """Observed over predicted snr, where it is below 20 (orthogonal) or 0.9 sqrt(d) (layers)."""
    rows = table("orthogonal")
    rows = rows[rows["snr"].between(0, 20)].assign(embedding="orthogonal")
    body = ratios(rows, rows["L"], "snr", "orthogonal, L = ", embedding="orthogonal")
    body += ratios(rows, rows["embedding"], "snr", "all ", embedding="orthogonal")
    rows = table("walls")
    rows = rows[rows["snr"].between(0, 0.9 * rows["d"] ** 0.5)]
    trigger = pd.Series(np.where(rows["trigger_in_value"], ", trigger in", ", trigger out"), rows.index)
    body += ratios(rows, rows["activation"] + trigger, "snr", embedding="sphere", kappa=1e5)
    return markdown(["", "points", "median", "quartile", "quartile"], body)


def gradient_noise():
    """Gradient noise without an MLP, observed over predicted, where counts of labels times counts of tokens make most of it."""
    rows = table("gradient")
    rows = rows[(rows["snr"] > 1) & (rows["N"] * rows["V"] < rows["L"] ** 3)].assign(trigger_in_value=False)
    body = ratios(rows, rows["V"] / rows["d"], "noise_gradient")
    return markdown(["V / d", "points", "median", "quartile", "quartile"], body)


def ratios(rows, by, column, name="", **fixed):
    """Lines: median and quartiles of a column over its prediction, for each group."""
    fields = [name for name in (*MODEL, "L", "m") if name in rows]
    noises = [score_noise(Model(**row, **fixed), N) for row, N in zip(rows[fields].to_dict("records"), rows["N"], strict=True)]
    groups = (rows[column] / [getattr(noise, PREDICTED[column]) for noise in noises]).groupby(by)
    return [[f"{name}{group}", len(mine), *(f"{q:.2f}" for q in mine.quantile([0.5, 0.25, 0.75]))] for group, mine in groups]


PREDICTED = {"snr": "snr", "noise_gradient": "gradient"}
ERRORS = (critical_sizes, layer_accuracy, snr, gradient_noise)

if __name__ == "__main__":
    if sys.argv[1:] == ["simulate"]:
        with tempfile.TemporaryDirectory() as folder:
            simulate(folder)
    for compare in ERRORS:
        print(f"{compare.__doc__}\n\n{compare()}\n")
