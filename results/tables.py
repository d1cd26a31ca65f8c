"""Prints the tables of the pages from the shipped studies, each as soon as it is made.

python results/tables.py                  # all tables
python results/tables.py late capacity    # some of them
"""

import sys

import bound
import budget
import claims
import first_steps
import law
import numpy as np
import pandas as pd
import planes
import precision
import storage
import structure
import theory
import training
import width
import zipf
from law import SIZES, STUDY, searched, with_theory, without_warnings
from table import (
    as_table,
    each,
    largest_off_at,
    median_off,
    plain,
    print_tables,
    tables_of,
    with_interval,
)

from jaxrecall import load
from jaxrecall.fit import fit


def thresholds(study, where):
    """Returns the reported thresholds of a study that fulfil a condition."""
    found = pd.read_parquet(STUDY / study / "thresholds.parquet").query("record")
    return with_theory(found.query(where))


@as_table(
    ["d", "L"],
    {"theory": "{predicted:.0f}", "observed N* [95 %]": with_interval()},
)
def capacity():
    """Critical N, predicted and observed, at small and large d and L."""
    where = "theta == 0.5 and V == 128 and d in (64, 256) and L in (8, 256)"
    return thresholds("capacity", where)


@as_table(
    ["theta"],
    {
        "cells": len,
        "of them distinct (V, d)": lambda cells: len(cells[["V", "d"]].value_counts()),
        "median abs ln ratio": median_off,
        "largest": largest_off_at,
    },
)
def agreement():
    """Predicted against observed N* in cells whose attention is locked at N*."""
    rows = load(STUDY / "capacity")
    mass = rows.groupby([*SIZES, "N"])["attention_mass"].mean()
    cells = thresholds("capacity", "theta in (0.5, 0.9) and censored == 'no'")
    locked = []
    for cell in cells.itertuples():
        along = mass.loc[cell.V, cell.d, cell.L]
        at_N_star = np.interp(np.log(cell.N_star), np.log(along.index), along)
        locked.append(at_N_star > 0.95)
    return cells[locked].sort_values("theta", kind="stable")


@as_table(["embedding", "d"], {"L = {L}": with_interval()})
def embeddings():
    """N* of each embedding by d and by the length of the sequences."""
    return searched("embeddings")


NOISES = ("leakage", "bias", "mlp", "gradient")


@as_table(["V", "L"], {"d = {d}": each("N", "{letter}", between=" ")})
def noise_map():
    """The leading part of the noise of the attention scores, without an MLP.

    The five letters of a cell are for 5 levels of N from 64 to 16384.
    """
    means = noises().query("m == 0").sort_values(["V", "L"])
    return means.assign(letter=means["leads"].str[0])


def noises():
    """Returns the mean parts of the noise of the phase study by point, and the leading
    part.
    """
    rows = load(STUDY / "phase")
    rows = rows.rename(columns={f"noise_{name}": name for name in NOISES})
    means = rows.groupby([*SIZES, "m", "N"])[[*NOISES, "snr"]].mean().reset_index()
    return means.assign(leads=means[[*NOISES]].idxmax(axis=1))


@as_table(
    [*SIZES, "m", "N"],
    {name: f"{{{name}:.3f}}" for name in NOISES} | {"snr": "{snr:.1f}"},
)
def noise_of_gradient():
    """Points where gradient noise leads by most.

    The parts are in units of the trigger's score.
    """
    mine = noises().query("leads == 'gradient'")
    rest = mine[["leakage", "bias", "mlp"]].max(axis=1)
    return mine.assign(by=mine["gradient"] / rest).nlargest(6, "by")


@as_table([""], {"L = {L}": with_interval()})
def sensitivity():
    """N* at V 64, d 128 for changes of the recipe, by L.

    The first line is the recipe without changes.
    """
    found = searched("sensitivity")
    return found.assign(**{"": found.apply(changed, axis=1)})


def changed(cell):
    """The change that a cell of the sensitivity study makes."""
    if cell["fresh_batches"]:
        return "fresh samples for each step"
    if cell["gamma2"] < 1:  # in other cells gamma2 is gamma, which is far larger
        return f"gamma2 = {cell['gamma2'] / cell['eta']:g} eta"
    return f"kappa = {cell['kappa']:g}"


POINT = [*SIZES, "N", "m", "embedding", "activation", "trigger_in_value", "kappa"]
PAIRED = [
    "snr",
    "accuracy",
    "memory_accuracy",
    "step1_memory_accuracy",
    "train_accuracy",
    "attention_mass",
    "attention_top1",
    "test_margin",
]


def paired():
    """Returns each run of sweeps/pool.yaml with a pool, with its differences from the
    run of the same seed without a pool.

    K is the size of the pool. The columns PAIRED are the differences, and `without` is
    the snr without a pool.
    """
    rows = load(STUDY / "pool").rename(columns={"pool": "K"}).fillna({"K": 0})
    rows = rows[[*POINT, "K", "seed", *PAIRED]].astype(dict.fromkeys(PAIRED, float))
    both = rows.query("K > 0").merge(
        rows.query("K == 0"), on=[*POINT, "seed"], suffixes=("", "_without")
    )
    without = both[[f"{metric}_without" for metric in PAIRED]].to_numpy()
    return both.assign(
        point=both.apply(point_name, axis=1),
        without=both["snr_without"],
        **(both[PAIRED] - without),
    )


def point_name(point):
    """The sizes of a point, and where it is off the defaults."""
    name = "V {V}, d {d}, L {L}, N {N}".format(**point)
    if point["m"]:
        name += ", m {m} {activation}".format(**point)
    if not point["trigger_in_value"]:
        name += ", trigger in the key"
    if point["embedding"] != "gaussian":
        name += f", {point['embedding']}"
    if abs(point["kappa"] - 100) > 1:
        name += f", kappa {point['kappa']:g}"
    return name


def in_errors(off):
    """The mean over seeds in units of its standard error; 0 if all seeds agree."""
    error = off.std() / len(off) ** 0.5
    return off.mean() / error if error > 0 else 0.0


def pool_errors():
    """Returns the mean differences from runs without a pool, in standard errors."""
    groups = paired().groupby(["point", "K"], sort=False)[PAIRED]
    return groups.agg(in_errors).reset_index()


@as_table(
    ["K"],
    {
        "differences": len,
        "above 2": lambda found: (found["size"] > 2).sum(),
        "above 3": lambda found: (found["size"] > 3).sum(),
        "largest": lambda found: f"{found['size'].max():.1f}",
    },
)
def pool_summary():
    """The number of these differences above two and above three standard errors."""
    found = pool_errors().melt(["point", "K"])
    return found.assign(size=found["value"].abs()).sort_values("K")


@as_table(["point"], {metric: each("K", f"{{{metric}:+.1f}}") for metric in PAIRED})
def pool_differences():
    """Differences from runs without a pool, for K = 16, 64, 256, 1024.

    They are in standard errors over 48 paired seeds.
    """
    return pool_errors()


def noise_of_pool(rows):
    """Formats the noise that a pool adds, and the most that it may add."""
    point = rows.iloc[0]
    V, d = point["V"], point["d"]
    alike = V if point["embedding"] == "orthogonal" else V * d / (V + d)
    more = np.median((1 + rows["snr"] / rows["without"]) ** -2) - 1
    return f"{100 * more:+.1f} % (at most {100 * alike / point['K']:.0f} %)"


@as_table(["point"], {"snr without a pool": "{without:.1f}", "K = {K}": noise_of_pool})
def pool_noise():
    """The noise that a pool adds to the attention scores.

    The number is the median over seeds of 1/snr^2 with a pool over 1/snr^2 without,
    minus one.
    """
    return paired()


LATE = "optimiser, embeddings"


def late_rows():
    """Returns the runs of the late study that start from the recipe at kappa = 100."""
    rows = load(STUDY / "late").query("99 <= kappa <= 101 and start == 'three_step'")
    trains = rows["trains"].map({"VW": ", fixed", "VWZ": ", trained"})
    return rows.assign(**{LATE: rows["optimizer"] + trains})


@as_table([LATE, "d"], {"step {step}": "{N_star:short}"}, missing="none")
def late():
    """Critical N (accuracy 0.5) after 3 to 3000 steps, by d."""
    steps = [3, 50, 500, 3000]
    rows = late_rows()
    found = [
        fit(mine, [0.5], step="all").thresholds.assign(**{LATE: setting})
        for setting, mine in rows[rows["step"].isin(steps)].groupby(LATE)
    ]
    return pd.concat(found).query("record").sort_values([LATE, "d"])


def from_start_to_end(column):
    """Makes a cell of the means of a column after the first and after the last step."""

    def cell(rows):
        steps = rows.groupby("step")[column].mean()
        return f"{steps[3]:.2f} to {steps[3000]:.2f}"

    return cell


@as_table(
    [LATE, "d"],
    {
        "accuracy": from_start_to_end("accuracy"),
        "norm of the rows of Z_in": from_start_to_end("Z_in_norm"),
        "sqrt(d) overlap of Z_in": from_start_to_end("in"),
        "sqrt(d) overlap of Z_out": from_start_to_end("out"),
    },
)
def late_embeddings():
    """Trained embeddings at N = 512: values at the first and at the last step.

    The columns are accuracy, the norm of the rows, and their overlap relative to that
    of random rows.
    """
    rows = late_rows().query("N == 512 and trains == 'VWZ'").sort_values([LATE, "d"])
    unit = rows["d"] ** -0.5
    overlaps = {side: rows[f"Z_{side}_overlap"] / unit for side in ("in", "out")}
    return rows.assign(**overlaps)


@as_table(["d", "kappa"], {"step {step}": "{attention_mass:.2f}, {accuracy:.2f}"})
def late_attention():
    """Attention on the informative token and accuracy, by the kappa of the early phase.

    V_mat and W_KQ are trained by sgd, N = 512.
    """
    rows = load(STUDY / "late").query(
        "optimizer == 'sgd' and trains == 'VW' and N == 512 and d in (16, 32)"
        " and step in (5, 20, 100, 1000, 3000)"
    )
    kappa = rows["kappa"].where(rows["start"] == "three_step", 0.0).round(6)
    rows = rows.assign(order=kappa, kappa=kappa.map(plain).replace("0", "from zero"))
    return rows.sort_values(["d", "order"])


TABLES = tables_of(
    law,
    claims,
    sys.modules[__name__],
    width,
    planes,
    storage,
    structure,
    zipf,
    bound,
    precision,
    budget,
    first_steps,
    theory,
    training,
)

if __name__ == "__main__":
    without_warnings()
    print_tables(TABLES)
