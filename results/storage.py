"""How many bits a parameter stores: the largest V that is recalled, from the search of results/study/storage."""

from functools import cache

import numpy as np
from figures import canvas
from law import markdown, searched

from jaxrecall.analysis.figures.axis import log_axis
from jaxrecall.analysis.figures.style import DASH, Picture, above, line

EDGE, EDGE_MLP = 1 / (2 * np.log(2)), 1 / (2.5 * np.log(2))
"""Theory's bits per entry of V_mat: V ln V = d^2 / 2 without an MLP, V ln V = m d / 2.5 with one, trigger out of the value path."""

LANGUAGE_MODELS = 2.0
"""Bits per parameter that language models are reported to hold (Allen-Zhu and Li, arXiv:2404.05405)."""

LEAST_SQUARES_SEEDS = 16


def bits(V):
    """V log2 V: what it takes to know one label of V for each of V tokens."""
    return V * np.log2(V)


@cache
def stored():
    """A row for each cell and theta: V*, entries of V_mat, all trained entries, and bits per entry."""
    found = searched("storage")
    V, d, m = found["critical"].astype(float), found["d"], found["m"]
    entries = d * np.where(m > 0, m, d)
    embeddings = found["trains"].fillna("").str.contains("Z") if "trains" in found else False
    trained = entries + d * d + np.where(embeddings, 2 * V * d + d, 0)  # V_mat, W_KQ, and Z_in, Z_out, z_trig
    return found.assign(V=V, entries=entries, trained=trained, per_entry=bits(V) / entries, per_trained=bits(V) / trained)


@cache
def least_squares(d, theta, gaussian=False):
    """V* of the V_mat that minimises |Z_out V_mat Z_in^T - 1|^2, the logits of an associative memory without training."""
    levels = sorted({round(2 ** (k / 4)) for k in range(8, 4 * 10 + 1) if 2 ** (k / 4) <= 2 * d * d})
    before = None
    for V in levels:
        right = []
        for seed in range(LEAST_SQUARES_SEEDS):
            rng = np.random.default_rng([V, d, seed])
            Z_in, Z_out = (rng.normal(size=(V, d)) / d**0.5 for _ in range(2))
            if not gaussian:
                Z_in, Z_out = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (Z_in, Z_out))
            logits = Z_in @ np.linalg.pinv(Z_in) @ (Z_out @ np.linalg.pinv(Z_out)).T
            right.append((logits.argmax(axis=1) == np.arange(V)).mean())
        accuracy = np.clip(np.mean(right), 1e-3, 1 - 1e-3)
        height = np.log(accuracy / (1 - accuracy)) - np.log(theta / (1 - theta))
        if before is not None and height < 0 <= before[1]:
            share = before[1] / (before[1] - height)
            return float(np.exp(np.log(before[0]) + share * np.log(V / before[0])))
        before = (V, height)
    return np.nan


def setting(row):
    """What a cell varies besides d, in words."""
    trains = row.get("trains")
    embeddings = "trained" if isinstance(trains, str) and "Z" in trains else "fixed"
    after = "three steps" if row["steps"] == 3 else f"{row['steps']} steps, {row['optimizer']}, {embeddings} embeddings"
    layer = f", {row['activation']}" if row["m"] else ""
    return f"{after}, {row['embedding']}{layer}"


def storage():
    """Bits per parameter: V* at theta 0.5 and 0.99, N = 8 V; V log2 V over the entries of V_mat, and over all trained entries."""
    table, body = stored().assign(setting=lambda t: [setting(row) for row in t.to_dict("records")]), []
    for (name, d, m), mine in table.groupby(["setting", "d", "m"], sort=False):
        cells = []
        for theta in (0.5, 0.99):
            one = mine[mine["theta"] == theta].iloc[0]
            known = one["V"] > 0
            told = {"right": "beyond 512", "left": "below 4", "plateau": "not in range"}.get(one["outcome"], one["outcome"])
            cells += [f"{one['V']:.0f} [{one['lo']:.0f}, {one['hi']:.0f}]" if known else told]
            cells += [f"{one['per_entry']:.2f}, {one['per_trained']:.2f}" if known else ""]
        body.append([name, d, m or "none", *cells])
    for d in (8, 16, 32, 64):
        cells = [[f"{V:.0f}", f"{bits(V) / d**2:.2f}"] if (V := least_squares(d, theta)) > 0 else ["none", ""] for theta in (0.5, 0.99)]
        body.append(["least squares, sphere", d, "none", *cells[0], *cells[1]])
    heads = [
        "setting",
        "d",
        "m",
        "V* at 0.5",
        "bits per entry of V_mat, per trained entry",
        "V* at 0.99",
        "bits per entry of V_mat, per trained entry",
    ]
    return markdown(heads, body)


CURVES = {
    "three steps, sphere": ("o", "#0072B2"),
    "three steps, gaussian": ("s", "#56B4E9"),
    "10 steps, adam, fixed embeddings, sphere": ("v", "#E69F00"),
    "100 steps, adam, fixed embeddings, sphere": ("D", "#D55E00"),
    "1000 steps, adam, fixed embeddings, sphere": ("^", "#8B0000"),
    "1000 steps, sgd, fixed embeddings, sphere": ("<", "#CC79A7"),
    "1000 steps, adam, trained embeddings, sphere": ("P", "#009E73"),
}


def storing():
    """Bits per entry against the size of V_mat: theta 0.5 and 0.99, and all trained entries."""
    table = stored().assign(setting=lambda t: [setting(row) for row in t.to_dict("records")])
    figure, panels = canvas(1, 3, 3.4, sharex=True, sharey=True)
    views = ((0.5, "per_entry", "per entry of V_mat"), (0.99, "per_entry", "per entry of V_mat"), (0.5, "per_trained", "per trained entry"))
    for ax, (theta, column, name) in zip(panels[0], views, strict=True):
        mine = table[(table["theta"] == theta) & (table["V"] > 0)]
        for curve, (marker, colour) in CURVES.items():
            one = mine[(mine["setting"] == curve) & (mine["m"] == 0)].sort_values("entries")
            ax.plot(one["entries"], one[column], marker=marker, color=colour, markersize=4, linewidth=0.9)
        layers = mine[(mine["m"] > 0) & (mine["activation"] == "quadratic")]
        ax.plot(layers["entries"], layers[column], marker="*", color="black", linestyle="none", markersize=6)
        if column == "per_entry":
            sizes = [d for d in (8, 16, 32, 64) if least_squares(d, theta) > 0]
            ax.plot([d * d for d in sizes], [bits(least_squares(d, theta)) / d**2 for d in sizes], color="0.5", linestyle=":", marker=".")
        if theta == 0.5 and column == "per_entry":
            ax.axhline(EDGE, color="black", linestyle=DASH, linewidth=0.9)
        ax.axhline(LANGUAGE_MODELS, color="0.6", linewidth=0.9)
        ax.set(xscale="log", title=f"accuracy {theta}, {name}", ylim=(0, None))
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("entries of V_mat: d^2, or d m with an MLP", fontsize=8)
    panels[0, 0].set(ylabel="V log2 V over entries: bits")
    entries = [line(name, marker=marker, color=colour) for name, (marker, colour) in CURVES.items()]
    entries += [line("three steps, quadratic MLP", marker="*", linestyle="none", color="black")]
    entries += [
        line("least squares", marker=".", linestyle=":", color="0.5"),
        line("theory, m = 0, three steps", color="black", linestyle=DASH),
    ]
    above(figure, [*entries, line("reported for language models", color="0.6")])
    return Picture("storage", "Bits that a parameter stores", "", figure)


TABLES = (storage,)
