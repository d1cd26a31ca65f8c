"""Prints the tables of results/README.md from the tables of the shipped studies beside it: python results/tables.py"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N, fano_ceiling, surrogate

STUDY = Path(__file__).parent / "study"
SIZES = ["V", "d", "L"]


def thresholds(study, of="", theta=0.5):
    """Thresholds of record of a study, by cell."""
    found = pd.read_parquet(STUDY / study / of / "thresholds.parquet")
    return found[found["record"] & (found["theta"] == theta)].set_index(SIZES)


def with_interval(row):
    if row["censored"] != "no":
        return f"none to {row['N_below']}"
    return f"{row['N_star']:.0f} [{row['lo']:.0f}, {row['hi']:.0f}]"


def markdown(heads, body):
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in body]
    return "\n".join(["| " + " | ".join(heads) + " |", "| " + " | ".join(["---"] * len(heads)) + " |", *lines])


def capacity(V=128):
    """Small and large d and L: critical N predicted and observed."""
    observed, body = thresholds("capacity"), []
    for d in (64, 256):
        for L in (8, 256):
            row, model = observed.loc[(V, d, L)], Model(V=V, d=d, L=L)
            body.append([d, L, f"{critical_N(model):.0f}", f"{surrogate.critical_N(model):.0f}", with_interval(row)])
    return markdown(["d", "L", "closed formula", "locked-attention surrogate", "observed N* [95 %]"], body)


def embeddings():
    """How N* moves with d and with L, embedding by embedding."""
    rows, observed, body = load(STUDY / "embeddings"), thresholds("embeddings").reset_index().set_index(["embedding", "d", "L"]), []
    for name in ("orthogonal", "gaussian", "sphere"):
        mine = rows[rows["embedding"] == name]
        line = [name, *(with_interval(observed.loc[(name, *at)]) for at in ((72, 8), (256, 8), (72, 256), (256, 256)))]
        for axis, held in (("d", "L"), ("L", "d")):
            if name == "orthogonal" and axis == "d":
                line.append("0 exactly")
                continue
            at = mine[mine[held] == {"L": 8, "d": 72}[held]]
            law = fit(at, [0.5], 200).exponents
            e = law[law["record"] & (law["axis"] == axis)].iloc[0]
            line.append(f"{e['exponent']:.2f} [{e['lo']:.2f}, {e['hi']:.2f}]")
        body.append(line)
    heads = ["embedding", "d 72, L 8", "d 256, L 8", "d 72, L 256", "d 256, L 256", "exponent of d at L 8", "exponent of L at d 72"]
    return markdown(heads, body)


def bound():
    """N at which half of pi is known: as the information allows, by each decoder, by the three steps."""
    found = {of: thresholds("bound", of) for of in ("assignment_accuracy", "whitened_accuracy", "matched_accuracy", "")}
    body = []
    for V, d, L in found[""].index:
        model = Model(V=V, d=d, L=L)
        least = brentq(lambda N, model=model: fano_ceiling(model, N) - 0.5, 1, 1e9)
        best = found["assignment_accuracy"].loc[(V, d, L)]
        cells = [with_interval(table.loc[(V, d, L)]) for table in found.values()]
        body.append([V, d, L, f"{least:.3g}", *cells, f"{best['N_star'] / least:.2g}" if best["censored"] == "no" else ""])
    heads = ["V", "d", "L", "Fano ceiling", "assignment", "whitened", "matched filter", "three steps", "assignment / ceiling"]
    return markdown(heads, body)


def agreement():
    """Predicted against observed N*, cells with attention locked at N*."""
    rows, body = load(STUDY / "capacity"), []
    mass = rows.groupby([*SIZES, "N"])["attention_mass"].mean()
    for theta in (0.5, 0.9):
        observed = thresholds("capacity", theta=theta)
        observed = observed[observed["censored"] == "no"]
        locked = [np.interp(np.log(row.N_star), np.log(mass.loc[at].index), mass.loc[at]) > 0.95 for at, row in observed.iterrows()]
        mine = observed[locked]
        models = [Model(**dict(zip(SIZES, at, strict=True))) for at in mine.index]
        for name, predicted in (
            ("closed formula", [critical_N(model, theta) for model in models]),
            ("surrogate, 64 seeds", [surrogate.critical_N(model, theta) for model in models]),
        ):
            off = np.abs(np.log(np.array(predicted) / mine["N_star"]))
            at = dict(zip(SIZES, off.idxmax(), strict=True))
            worst = ", ".join(f"{k} {v}" for k, v in at.items())
            body.append([theta, name, len(mine), len({at[:2] for at in mine.index}), f"{off.median():.3f}", f"{off.max():.2f} ({worst})"])
    return markdown(["theta", "prediction", "cells", "of them distinct (V, d)", "median abs ln ratio", "largest"], body)


if __name__ == "__main__":
    for table in (capacity, agreement, embeddings, bound):
        print(f"{table.__doc__}\n\n{table()}\n")
