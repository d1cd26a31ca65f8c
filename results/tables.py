"""Prints the tables of results/README.md and docs/pool.md from the tables of the shipped studies: python results/tables.py"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import stdtrit

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


def searched(study):
    """What the search of a study found: a row for each cell, with the predicted N* and on which side of the crossover it lies."""
    found = pd.DataFrame(json.loads((STUDY / study / "search.json").read_text())["cells"])
    found = found.astype({"N_star": float, "lo": float, "hi": float})
    found["predicted"] = [critical_N(Model(V=V, d=d, L=L)) for V, d, L in found[SIZES].itertuples(index=False)]
    return found.assign(regime=regime(found))


REGIMES = ("short sequences", "between", "long sequences")


def regime(table):
    """By L^2 / (V^(3/2) d^(1/2)): under 0.1, over 10, or between."""
    x = table["L"] ** 2 / table["V"] ** 1.5 / table["d"] ** 0.5
    return np.select([x < 0.1, x > 10], [REGIMES[0], REGIMES[2]], REGIMES[1])


def law_exponents():
    """Exponents of N* within each regime, least squares through the logarithms of its cells, and those of theory on the same cells."""
    found, body = searched("long"), []
    found = found[found["N_star"].notna() & np.isfinite(found["predicted"])]
    for name in ("short sequences", "long sequences"):
        mine = found[found["regime"] == name]
        X = np.column_stack([np.ones(len(mine)), *(np.log(mine[axis]) for axis in SIZES)])
        inverse = np.linalg.inv(X.T @ X)
        slope, theirs = (inverse @ X.T @ np.log(mine[column].to_numpy()) for column in ("N_star", "predicted"))
        rest = np.log(mine["N_star"].to_numpy()) - X @ slope
        free = len(mine) - X.shape[1]
        error = np.sqrt(np.diag(inverse) * (rest @ rest) / free) * stdtrit(free, 0.975)
        cells = [f"{s:.2f} [{s - e:.2f}, {s + e:.2f}]; {t:.2f}" for s, e, t in zip(slope[1:], error[1:], theirs[1:], strict=True)]
        body.append([name, len(mine), *cells, f"{rest.std():.2f}"])
    heads = ["regime", "cells", *(f"{axis}: measured [95 %]; theory" for axis in SIZES), "rms residual of ln N*"]
    return markdown(heads, body)


def law_errors():
    """Predicted against observed N*, no constant fitted."""
    found, body = searched("long"), []
    for name in REGIMES:
        mine = found[(found["regime"] == name) & found["N_star"].notna()]
        off = np.log(mine["predicted"] / mine["N_star"])
        at = ", ".join(f"{axis} {mine.loc[off.abs().idxmax()][axis]}" for axis in SIZES)
        body.append([name, len(off), f"{off.abs().median():.3f}", f"{off.mean():+.3f}", f"{off[off.abs().idxmax()]:+.2f} ({at})"])
    return markdown(["regime", "cells", "median abs ln ratio", "mean ln ratio", "largest"], body)


def law_check():
    """N* of exact runs, without a pool, beside those with one; their difference in standard errors."""
    exact, pooled = (searched(study).set_index(SIZES) for study in ("long-exact", "long"))
    body = []
    for at, row in exact.iterrows():
        both = row, pooled.loc[at]
        errors = [np.log(one["hi"] / one["lo"]) / 2 / stdtrit(one["seeds"] - 1, 0.975) for one in both]
        z = np.log(both[1]["N_star"] / both[0]["N_star"]) / np.hypot(*errors)
        cells = [f"{one['N_star']:.0f} [{one['lo']:.0f}, {one['hi']:.0f}]" if one["N_star"] > 0 else one["outcome"] for one in both]
        body.append([*at, *cells, f"{z:+.1f}" if np.isfinite(z) else "", f"{row['predicted']:.0f}"])
    return markdown([*SIZES, "exact N* [95 %]", "with a pool", "difference", "theory"], body)


POOLS = (16, 64, 256, 1024)
PAIRED = ("snr", "accuracy", "memory_accuracy", "step1_memory_accuracy", "train_accuracy", "attention_mass")
PAIRED += ("attention_top1", "test_margin")


def paired():
    """For each point of sweeps/pool.yaml: its name, the rows without a pool, and for each K the differences from them by seed."""
    rows = load(STUDY / "pool")
    rows["pool"] = rows["pool"].fillna(0).astype(int)
    names = [*SIZES, "N", "m", "embedding", "activation", "trigger_in_value", "kappa"]
    for at, mine in rows.groupby(names, sort=False):
        by_pool = {K: table.set_index("seed")[list(PAIRED)].astype(float) for K, table in mine.groupby("pool")}
        V, d, L, N, m, embedding, activation, trigger_in_value, kappa = at
        name = f"V {V}, d {d}, L {L}, N {N}" + (f", m {m} {activation}" if m else "") + ("" if trigger_in_value else ", trigger in the key")
        name += (f", {embedding}" if embedding != "gaussian" else "") + (f", kappa {kappa:g}" if abs(kappa - 100) > 1 else "")
        yield name, dict(zip(names, at, strict=True)), by_pool[0], {K: by_pool[K] - by_pool[0] for K in POOLS}


def in_errors(off):
    """The mean over seeds in units of its standard error; nothing where all seeds agree."""
    error = off.std() / len(off) ** 0.5
    return off.mean() / error if error > 0 else 0.0


def pool_differences():
    """Differences from runs without a pool, in standard errors over 48 paired seeds, for K = 16, 64, 256, 1024."""
    body = []
    for name, _, _, off in paired():
        body.append([name, *(", ".join(f"{in_errors(off[K][metric]):+.1f}" for K in POOLS) for metric in PAIRED)])
    return markdown(["point", *PAIRED], body)


def pool_noise():
    """What a pool adds to the noise of the attention scores: 1/snr^2 over that without a pool, less one: the median over seeds."""
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
    """How many of the differences exceed two and three standard errors."""
    off = {K: [in_errors(differences[K][metric]) for _, _, _, differences in paired() for metric in PAIRED] for K in POOLS}
    body = [[K, len(z), *(sum(abs(value) > limit for value in z) for limit in (2, 3)), f"{max(map(abs, z)):.1f}"] for K, z in off.items()]
    return markdown(["K", "differences", "above 2", "above 3", "largest"], body)


if __name__ == "__main__":
    for table in (capacity, agreement, embeddings, bound, law_exponents, law_errors, law_check, pool_summary, pool_differences, pool_noise):
        print(f"{table.__doc__}\n\n{table()}\n")
