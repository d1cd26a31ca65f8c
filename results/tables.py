"""Prints the tables of the pages from the shipped studies: python results/tables.py"""

import bound
import claims
import numpy as np
import pandas as pd
import planes
import storage
import structure
import theory
import width
import zipf
from law import (
    LAW,
    SIZES,
    STUDY,
    markdown,
    searched,
    short,
    with_interval,
    without_warnings,
)

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N


def thresholds(study, theta=0.5):
    """Returns the reported thresholds of a study, by cell."""
    found = pd.read_parquet(STUDY / study / "thresholds.parquet")
    return found[found["record"] & (found["theta"] == theta)].set_index(SIZES)


def capacity(V=128):
    """Critical N, predicted and observed, at small and large d and L."""
    observed, body = thresholds("capacity"), []
    for d in (64, 256):
        for L in (8, 256):
            body.append(
                [
                    d,
                    L,
                    f"{critical_N(Model(V=V, d=d, L=L)):.0f}",
                    with_interval(observed.loc[(V, d, L)]),
                ]
            )
    return markdown(["d", "L", "theory", "observed N* [95 %]"], body)


def embeddings():
    """N* of each embedding by d and by the length of the sequences."""
    found, body = searched("embeddings"), []
    for (name, d), mine in found.groupby(["embedding", "d"], sort=False):
        body.append(
            [
                name,
                d,
                *(found_interval(row) for _, row in mine.sort_values("L").iterrows()),
            ]
        )
    return markdown(
        ["embedding", "d", *(f"L = {L}" for L in sorted(found["L"].unique()))], body
    )


def found_interval(row):
    """Formats the result of a search in a cell."""
    if not row["N_star"] > 0:
        return {"right": "none to 1e12", "plateau": "levels off"}.get(
            row["outcome"], row["outcome"]
        )
    return short(row["N_star"]) + (
        f" [{short(row['lo'])}, {short(row['hi'])}]"
        if row["lo"] > 0
        else ", no interval"
    )


NOISES = ("leakage", "bias", "mlp", "gradient")


def noise_map():
    """The leading part of the noise of the attention scores, without an MLP.

    The five letters of a cell are for 5 levels of N from 64 to 16384.
    """
    means = noises().query("m == 0")
    body = []
    for (V, L), mine in means.groupby(["V", "L"]):
        line = [V, L]
        for _, at_d in mine.groupby("d"):
            line.append(" ".join(at_d.sort_values("N")["leads"].str[0]))
        body.append(line)
    return markdown(
        ["V", "L", *(f"d = {d}" for d in sorted(means["d"].unique()))], body
    )


def noises():
    """Returns the mean parts of the noise of the phase study by point, and the leading
    part.
    """
    rows = load(STUDY / "phase")
    names = [f"noise_{name}" for name in NOISES]
    means = (
        rows.groupby([*SIZES, "m", "N"])[names]
        .mean()
        .rename(columns=dict(zip(names, NOISES, strict=True)))
    )
    return means.assign(
        leads=means.idxmax(axis=1), snr=rows.groupby([*SIZES, "m", "N"])["snr"].mean()
    ).reset_index()


def noise_of_gradient():
    """Points where gradient noise leads by most.

    The parts are in units of the trigger's score.
    """
    means = noises()
    mine = means[means["leads"] == "gradient"]
    rest = mine[[name for name in NOISES if name != "gradient"]].max(axis=1)
    mine = mine.assign(by=mine["gradient"] / rest).nlargest(6, "by")
    body = [
        [
            *(row[name] for name in (*SIZES, "m", "N")),
            *(f"{row[name]:.3f}" for name in NOISES),
            f"{row['snr']:.1f}",
        ]
        for _, row in mine.iterrows()
    ]
    return markdown([*SIZES, "m", "N", *NOISES, "snr"], body)


def sensitivity():
    """N* at V 64, d 128 for changes of the recipe, by L.

    The first line is the recipe without changes.
    """
    found = searched("sensitivity")
    lengths, body = sorted(found["L"].unique()), []
    for name, mine in found.groupby(found.apply(changed, axis=1), sort=False):
        mine = mine.set_index("L")
        body.append([name, *(found_interval(mine.loc[L]) for L in lengths)])
    return markdown(["", *(f"L = {L}" for L in lengths)], body)


def changed(cell):
    """The change that a cell of the sensitivity study makes."""
    if cell["fresh_batches"]:
        return "fresh samples for each step"
    if cell["gamma2"] < 1:  # in other cells gamma2 is gamma, which is far larger
        return f"gamma2 = {cell['gamma2'] / cell['eta']:g} eta"
    return f"kappa = {cell['kappa']:g}"


def agreement():
    """Predicted against observed N* in cells whose attention is locked at N*."""
    rows, body = load(STUDY / "capacity"), []
    mass = rows.groupby([*SIZES, "N"])["attention_mass"].mean()
    for theta in (0.5, 0.9):
        observed = thresholds("capacity", theta=theta)
        observed = observed[observed["censored"] == "no"]
        locked = [
            np.interp(np.log(row.N_star), np.log(mass.loc[at].index), mass.loc[at])
            > 0.95
            for at, row in observed.iterrows()
        ]
        mine = observed[locked]
        models = [Model(**dict(zip(SIZES, at, strict=True))) for at in mine.index]
        off = np.abs(
            np.log([critical_N(model, theta) for model in models] / mine["N_star"])
        )
        worst = ", ".join(f"{k} {v}" for k, v in zip(SIZES, off.idxmax(), strict=True))
        body.append(
            [
                theta,
                len(mine),
                len({at[:2] for at in mine.index}),
                f"{off.median():.3f}",
                f"{off.max():.2f} ({worst})",
            ]
        )
    return markdown(
        ["theta", "cells", "of them distinct (V, d)", "median abs ln ratio", "largest"],
        body,
    )


POOLS = (16, 64, 256, 1024)
PAIRED = (
    "snr",
    "accuracy",
    "memory_accuracy",
    "step1_memory_accuracy",
    "train_accuracy",
    "attention_mass",
)
PAIRED += ("attention_top1", "test_margin")


def paired():
    """Yields each point of sweeps/pool.yaml with its differences from runs without a
    pool.

    An item contains the point's name, its settings, the rows without a pool, and for
    each K the differences from these rows by seed.
    """
    rows = load(STUDY / "pool")
    rows["pool"] = rows["pool"].fillna(0).astype(int)
    names = [*SIZES, "N", "m", "embedding", "activation", "trigger_in_value", "kappa"]
    for at, mine in rows.groupby(names, sort=False):
        by_pool = {
            K: table.set_index("seed")[list(PAIRED)].astype(float)
            for K, table in mine.groupby("pool")
        }
        V, d, L, N, m, embedding, activation, trigger_in_value, kappa = at
        name = (
            f"V {V}, d {d}, L {L}, N {N}"
            + (f", m {m} {activation}" if m else "")
            + ("" if trigger_in_value else ", trigger in the key")
        )
        name += (f", {embedding}" if embedding != "gaussian" else "") + (
            f", kappa {kappa:g}" if abs(kappa - 100) > 1 else ""
        )
        yield (
            name,
            dict(zip(names, at, strict=True)),
            by_pool[0],
            {K: by_pool[K] - by_pool[0] for K in POOLS},
        )


def in_errors(off):
    """The mean over seeds in units of its standard error; 0 if all seeds agree."""
    error = off.std() / len(off) ** 0.5
    return off.mean() / error if error > 0 else 0.0


def pool_differences():
    """Differences from runs without a pool, for K = 16, 64, 256, 1024.

    They are in standard errors over 48 paired seeds.
    """
    body = []
    for name, _, _, off in paired():
        body.append(
            [
                name,
                *(
                    ", ".join(f"{in_errors(off[K][metric]):+.1f}" for K in POOLS)
                    for metric in PAIRED
                ),
            ]
        )
    return markdown(["point", *PAIRED], body)


def pool_noise():
    """The noise that a pool adds to the attention scores.

    The number is the median over seeds of 1/snr^2 with a pool over 1/snr^2 without,
    minus one.
    """
    body = []
    for name, at, without, off in paired():
        V, d = at["V"], at["d"]
        alike = V if at["embedding"] == "orthogonal" else V * d / (V + d)
        cells = []
        for K in POOLS:
            more = np.median((1 + off[K]["snr"] / without["snr"]) ** -2) - 1
            cells.append(f"{100 * more:+.1f} % (at most {100 * alike / K:.0f} %)")
        body.append([name, f"{without['snr'].mean():.1f}", *cells])
    return markdown(["point", "snr without a pool", *(f"K = {K}" for K in POOLS)], body)


def pool_summary():
    """The number of these differences above two and above three standard errors."""
    off = {
        K: [
            in_errors(differences[K][metric])
            for _, _, _, differences in paired()
            for metric in PAIRED
        ]
        for K in POOLS
    }
    body = [
        [
            K,
            len(z),
            *(sum(abs(value) > limit for value in z) for limit in (2, 3)),
            f"{max(map(abs, z)):.1f}",
        ]
        for K, z in off.items()
    ]
    return markdown(["K", "differences", "above 2", "above 3", "largest"], body)


def late_rows():
    """Returns the runs of the late study that start from the recipe at kappa = 100.

    The column `setting` is the name of each setting.
    """
    rows = load(STUDY / "late")
    rows = rows[rows["kappa"].between(99, 101) & (rows["start"] == "three_step")]
    return rows.assign(
        setting=rows["optimizer"]
        + rows["trains"].map({"VW": ", fixed", "VWZ": ", trained"})
    )


def late():
    """Critical N (accuracy 0.5) after 3 to 3000 steps, by d."""
    rows, body = late_rows(), []
    steps = (3, 50, 500, 3000)
    for setting, mine in rows.groupby("setting"):
        found = (
            fit(mine, [0.5], 200, step=list(steps))
            .thresholds.query("record")
            .set_index(["step", "d"])
        )
        for d in sorted(mine["d"].unique()):
            body.append(
                [
                    setting,
                    d,
                    *(
                        (
                            short(one["N_star"])
                            if (one := found.loc[(step, d)])["censored"] == "no"
                            else "none"
                        )
                        for step in steps
                    ),
                ]
            )
    return markdown(
        ["optimiser, embeddings", "d", *(f"step {step}" for step in steps)], body
    )


def late_embeddings():
    """Trained embeddings at N = 512: values at the first and at the last step.

    The columns are accuracy, the norm of the rows, and their overlap relative to that
    of random rows.
    """
    rows, body = late_rows().query("N == 512 and trains == 'VWZ'"), []
    for (setting, d), mine in rows.groupby(["setting", "d"]):
        means = mine.groupby("step")[
            ["accuracy", "Z_in_norm", "Z_in_overlap", "Z_out_overlap"]
        ].mean()
        first, last = means.loc[3], means.loc[3000]
        numbers = [
            f"{first[name] * scale:.2f} to {last[name] * scale:.2f}"
            for name, scale in (
                ("accuracy", 1),
                ("Z_in_norm", 1),
                ("Z_in_overlap", d**0.5),
                ("Z_out_overlap", d**0.5),
            )
        ]
        body.append([setting, d, *numbers])
    heads = [
        "optimiser, embeddings",
        "d",
        "accuracy",
        "norm of the rows of Z_in",
        "sqrt(d) overlap of Z_in",
        "sqrt(d) overlap of Z_out",
    ]
    return markdown(heads, body)


def late_attention():
    """Attention on the informative token and accuracy, by the kappa of the early phase.

    V_mat and W_KQ are trained by sgd, N = 512.
    """
    rows = load(STUDY / "late").query(
        "optimizer == 'sgd' and trains == 'VW' and N == 512 and d in (16, 32)"
    )
    rows = rows.assign(
        kappa=rows["kappa"].where(rows["start"] == "three_step", 0.0).round(6)
    )
    body = []
    for (d, kappa), mine in rows.groupby(["d", "kappa"]):
        means = mine.groupby("step")[["attention_mass", "accuracy"]].mean()
        shown = [
            f"{means.loc[step, 'attention_mass']:.2f},"
            f" {means.loc[step, 'accuracy']:.2f}"
            for step in (5, 20, 100, 1000, 3000)
        ]
        body.append([d, f"{kappa:g}" if kappa else "from zero", *shown])
    return markdown(
        ["d", "kappa", *(f"step {step}" for step in (5, 20, 100, 1000, 3000))], body
    )


CLAIMS = (
    *claims.TABLES,
    capacity,
    agreement,
    embeddings,
    *width.TABLES,
    *planes.TABLES,
    *storage.TABLES,
    *structure.TABLES,
    *zipf.TABLES,
    noise_map,
    noise_of_gradient,
    sensitivity,
    *bound.TABLES,
    late,
    late_embeddings,
    late_attention,
)
POOL = (pool_summary, pool_differences, pool_noise)

if __name__ == "__main__":
    without_warnings()
    for table in (*LAW, *CLAIMS, *POOL, *theory.TABLES):
        print(f"{table.__doc__}\n\n{table()}\n", flush=True)
