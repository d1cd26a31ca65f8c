"""Required width: m* against V and d, against N and L, and accuracy against m d, from results/study/width and results/study/mlp."""

from functools import cache

import numpy as np
from drawing import DASH, MARKERS, above, canvas, line, log_axis, shades
from law import STUDY, markdown, on_all_cores, regression, searched
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from jaxrecall import load
from jaxrecall.theory import Model, critical, limiting_noise, locked_fraction

PLANE = {"V": 256, "d": 64}
LARGEST_M = 1024
LOCKS = 0.9
"""Attention works where the informative token has the largest score in so many sequences."""

NOISES = {
    "mean_bias": ("score noise: mean bias", "#0072B2"),
    "gradient": ("score noise: gradient noise", "#56B4E9"),
    "leakage": ("score noise: leakage", "#009E73"),
    "mlp": ("score noise: W_in", "#CC79A7"),
    "width": ("recall noise: from m", "#F0E442"),
    "counts": ("recall noise: label counts", "#D55E00"),
    "overlaps": ("recall noise: overlaps", "0.75"),
}
MEASURED = {"mean_bias": "noise_bias", "gradient": "noise_gradient", "leakage": "noise_leakage", "mlp": "noise_mlp"}


def edge(V):
    """The width below which the interference of a quadratic layer ends the collapse."""
    return (4 * V * np.log(V)) ** (1 / 3)


def model_of(cell, m=None):
    """The theory's model of a cell."""
    fields = {name: cell[name] for name in ("embedding", "activation", "trigger_in_value", "kappa")}
    sizes = {name: int(cell[name]) for name in ("V", "d", "L")}
    return Model(**sizes, **fields, m=LARGEST_M if m is None else m)


@cache
def widths():
    """The searched m* of all cells at large N and L = 8, with the predicted m*."""
    found = searched("width")
    found = found[~found["diagnose"]].reset_index(drop=True)
    models = [model_of(cell) for cell in found.to_dict("records")]
    n = len(found)
    return found.assign(predicted=on_all_cores(critical, models, ["m"] * n, [0.5] * n, found["N"]))


def compared():
    """Cells whose m* was found, with ln(predicted / measured)."""
    found = widths()
    found = found[found["critical"].notna() & np.isfinite(found["predicted"])]
    return found.assign(off=np.log(found["predicted"] / found["critical"].astype(float)))


def required_width():
    """m* at theta 0.5, N = 16777216, L = 8: measured [95 %], in units of V ln V / d, and predicted."""
    body = []
    for cell in widths().sort_values(["trigger_in_value", "activation", "V", "d"]).to_dict("records"):
        where = ["in the value" if cell["trigger_in_value"] else "out of it", cell["activation"], cell["V"], cell["d"]]
        where.append(f"{cell['d'] / edge(cell['V']):.1f}")
        if cell["critical"] is None or not cell["critical"] > 0:
            body.append(
                [
                    *where,
                    {"right": "beyond 1024", "plateau": "levels off"}.get(cell["outcome"], cell["outcome"]),
                    "",
                    f"{cell['predicted']:.0f}",
                ]
            )
            continue
        x = cell["critical"] * cell["d"] / (cell["V"] * np.log(cell["V"]))
        body.append([*where, f"{cell['critical']:.0f} [{cell['lo']:.0f}, {cell['hi']:.0f}]", f"{x:.2f}", f"{cell['predicted']:.0f}"])
    heads = ["trigger", "activation", "V", "d", "d / (4 V ln V)^(1/3)", "m* [95 %]", "m* d / (V ln V)", "theory"]
    return markdown(heads, body)


def width_errors():
    """Theory against m*, nothing fitted: |ln(predicted / measured)|."""
    body = []
    for (inside, name), mine in compared().groupby(["trigger_in_value", "activation"]):
        off = mine["off"].abs()
        body.append(
            [
                "in the value" if inside else "out of it",
                name,
                len(mine),
                f"{off.median():.3f}",
                f"{mine['off'].mean():+.3f}",
                f"{off.max():.2f}",
            ]
        )
    out = compared().query("not trigger_in_value")["off"].abs()
    body.append(["out of it", "both", len(out), f"{out.median():.3f}", "", f"{out.max():.2f}"])
    return markdown(["trigger", "activation", "cells", "median", "mean ln ratio", "worst"], body)


def width_exponents():
    """Exponents of m*, trigger out of the value path, where d is from 2 (4 V ln V)^(1/3) to V; theory in the same cells."""
    found, body = compared().query("not trigger_in_value"), []
    found = found[(found["d"] >= 2 * edge(found["V"])) & (found["d"] <= found["V"])]
    for name, mine in found.groupby("activation"):
        slope, half, rms = regression(mine.astype({"critical": float}), "critical", ["V", "d"])
        theirs, _, _ = regression(mine, "predicted", ["V", "d"])
        cells = [f"{s:.2f} [{s - h:.2f}, {s + h:.2f}]; {t:.2f}" for s, h, t in zip(slope, half, theirs, strict=True)]
        body.append([name, len(mine), *cells, f"{rms:.2f}"])
    return markdown(["activation", "cells", "V: measured [95 %]; theory", "d: measured [95 %]; theory", "rms residual of ln m*"], body)


def means(select, by):
    """Mean accuracy of rows of the study of the MLP."""
    rows = load(STUDY / "mlp").query(select)
    rows = rows.assign(x=rows["m"] * rows["d"] / (rows["V"] * np.log(rows["V"])), activation=rows["activation"].str.partition("(")[0])
    return rows.groupby([*by, "m"]).agg(x=("x", "mean"), accuracy=("accuracy", "mean"), sem=("accuracy", "sem")).reset_index()


def activations():
    """Accuracy at V = 256, N = 16777216 for m = 0, and along x = m d / (V ln V) for each activation."""
    table, body = means("V == 256", ["trigger_in_value", "d", "activation"]), []
    for (inside, d), mine in table.groupby(["trigger_in_value", "d"]):
        cells = []
        for name in ("none", *ORDER):
            accuracy = mine[mine["activation"] == name].sort_values("m")["accuracy"]
            cells.append(", ".join(f"{a:.2f}" for a in accuracy) or "not run")
        body.append(["in the value" if inside else "out of it", d, *cells])
    return markdown(["trigger", "d", "m = 0", *ORDER], body)


ORDER = ("quadratic", "cubic", "mixed", "relu", "gelu", "tanh")
LOOKS = dict(zip(ORDER, zip(MARKERS, ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#56B4E9", "0.45"), strict=False), strict=True))


def mlp():
    """Accuracy against x: both activations without a linear part over V and d, and all activations at V = 256, trigger out and in."""
    figure, panels = canvas(2, 3, 5.2, sharex=True, sharey=True)
    for ax, name in zip(panels[:, 0], ("quadratic", "cubic"), strict=True):
        table = means(f"activation == '{name}' and not trigger_in_value", ["V", "d"])
        sizes = sorted(table["V"].unique())
        for V, colour in zip(sizes, shades(len(sizes)), strict=True):
            for d, mine in table[table["V"] == V].groupby("d"):
                wide = d >= 2 * edge(V) and d <= V / 2
                ax.plot(
                    mine["x"],
                    mine["accuracy"],
                    color=colour,
                    marker="o" if wide else "x",
                    markersize=3,
                    linestyle="-" if wide else ":",
                    linewidth=0.8,
                )
        ax.set(title=f"{name}, V = {sizes[0]} to {sizes[-1]}", xscale="log", ylim=(0, 1.03))
    for row, inside in zip(panels, (False, True), strict=True):
        table = means(f"V == 256 and trigger_in_value == {inside}", ["d", "activation"])
        for ax, d in zip(row[1:], (36, 96), strict=True):
            mine = table[table["d"] == d]
            none = mine[mine["activation"] == "none"]["accuracy"].iloc[0]
            ax.axhline(none, color="black", linestyle=DASH)
            for name, (marker, colour) in LOOKS.items():
                one = mine[mine["activation"] == name]
                ax.errorbar(
                    one["x"], one["accuracy"], yerr=2 * one["sem"], color=colour, marker=marker, markersize=3, linewidth=0.8, elinewidth=0.7
                )
            ax.set(title=f"V = 256, d = {d}, trigger {'in' if inside else 'out'}", xscale="log", ylim=(0, 1.03))
    for ax in panels.flat:
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("x = m d / (V ln V)", fontsize=8)
    figure.supylabel("test accuracy, N = 16777216", fontsize=8)
    V_values = sorted(means("activation == 'quadratic' and not trigger_in_value", ["V"])["V"].unique())
    entries = [line(f"V = {V}", color=colour) for V, colour in zip(V_values, shades(len(V_values)), strict=True)]
    entries += [line("d from 2 (4 V ln V)^(1/3) to V/2", marker="o", color="0.4"), line("other d", marker="x", linestyle=":", color="0.4")]
    entries += [line(name, marker=marker, color=colour) for name, (marker, colour) in LOOKS.items()]
    above(figure, [*entries, line("m = 0", color="black", linestyle=DASH)])
    return "activations", figure


@cache
def plane():
    """Every (N, L) of both activations: m*, and what limits recall there; measured where attention fails, by theory elsewhere."""
    found = searched("width")
    found = found[found["diagnose"]].reset_index(drop=True)
    rows = load(STUDY / "width").query("diagnose")
    limits, m_star = [], []
    for cell in found.to_dict("records"):
        mine = rows[
            (rows["activation"] == cell["activation"]) & (rows["N"] == cell["N"]) & (rows["L"] == cell["L"]) & (rows["status"] == "ok")
        ]
        here = float(cell["critical"]) if cell["critical"] is not None and cell["critical"] > 0 else np.nan
        if mine.empty:
            limits.append("overflow")
            m_star.append(here)
            continue
        at = mine["m"].unique()
        nearest = at[np.abs(np.log(at / (here if here > 0 else LARGEST_M))).argmin()]
        mine = mine[mine["m"] == nearest]
        if mine["attention_top1"].mean() < LOCKS:
            parts = mine[list(MEASURED.values())].median()
            limits.append(next(name for name, column in MEASURED.items() if parts[column] == parts.max()))
        else:
            name = limiting_noise(model_of(cell, round(here) if here > 0 else LARGEST_M), cell["N"], 0.0)
            limits.append(name)
        m_star.append(here)
    return found.assign(limit=limits, m_star=m_star)


def borders(activation, N, L):
    """Theory's attention border at the largest m: the locked part on the plane, (L, N)."""
    cell = PLANE | {"embedding": "sphere", "activation": activation, "trigger_in_value": False, "kappa": 1e6}
    models = [model_of(cell | {"L": int(length)}) for length in L for _ in N]
    return np.reshape(on_all_cores(locked_fraction, models, list(N) * len(L)), (len(L), len(N)))


def phases():
    """The phase diagram: required m d over N and L, coloured by the noise that limits recall."""
    table = plane()
    figure, panels = canvas(1, 2, 3.6, sharex=True, sharey=True)
    names = [name for name in NOISES if name in {*table["limit"]}]
    colours = ListedColormap([NOISES[name][1] for name in names])
    for ax, activation in zip(panels[0], ("quadratic", "cubic"), strict=True):
        mine = table[table["activation"] == activation]
        number = mine.pivot(index="L", columns="N", values="limit").map(dict(zip(names, range(len(names)), strict=True)).get)
        md = mine.pivot(index="L", columns="N", values="m_star") * PLANE["d"]
        x, y = np.log2(number.columns.to_numpy(float)), np.log2(number.index.to_numpy(float))
        ax.pcolormesh(x, y, number, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, shading="nearest", edgecolors="white", linewidth=0.6)
        for i, length in enumerate(y):
            for j, samples in enumerate(x):
                value = md.iloc[i, j]
                kind = number.iloc[i, j]
                if value > 0 or kind != kind:
                    colour = "white" if kind == kind and names[int(kind)] == "mean_bias" else "black"
                    ax.text(
                        samples, length, f"{value / 1000:.1f}" if value > 0 else "*", ha="center", va="center", fontsize=7, color=colour
                    )
        fine = np.linspace(x[0] - 1, x[-1] + 1, 33), np.linspace(y[0] - 1, y[-1] + 1, 25)
        share = borders(activation, 2 ** fine[0], np.maximum(np.round(2 ** fine[1]), 2))
        ax.contour(*fine, share, levels=[0.5], colors="black", linewidths=1.2)
        ax.set(title=f"{activation}: required m d, in thousands", xlabel="N: samples")
        ax.set_xticks(x[::2], [f"{2**v / 1e6:.0f}M" if v >= 20 else f"{2**v / 1e3:.0f}k" for v in x[::2]])
        ax.set_yticks(y, [f"{2**v:.0f}" for v in y])
    panels[0, 0].set(ylabel="L: sequence length, tokens")
    entries = [Patch(color=NOISES[name][1], label=NOISES[name][0]) for name in names]
    above(figure, [*entries, line("theory: attention locks on half of the tokens", color="black")])
    return "phases", figure


def phase_table():
    """Required m d over N and L, in thousands; in brackets what limits recall there."""
    table, body = plane(), []
    for (activation, length), mine in table.groupby(["activation", "L"]):
        cells = [
            f"{PLANE['d'] * m / 1000:.1f} ({limit})" if m > 0 else f"none ({limit})"
            for m, limit in mine.sort_values("N")[["m_star", "limit"]].itertuples(index=False)
        ]
        body.append([activation, length, *cells])
    return markdown(["activation", "L", *(f"N = {int(N)}" for N in sorted(table["N"].unique()))], body)


TABLES = (required_width, width_errors, width_exponents, activations, phase_table)
