"""The required width m*, from results/study/width and results/study/mlp.

m* is shown against V and d, and against N and L. Accuracy is shown against m d.
"""

from functools import cache

import numpy as np
from drawing import DASH, MARKERS, above, canvas, line, log_axis, shades
from law import MISFIT, STUDY, beside_theory, markdown, on_all_cores, searched

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical

LARGEST_M = 1024


def edge(V):
    """The width d below which interference ends the collapse of a quadratic layer."""
    return (4 * V * np.log(V)) ** (1 / 3)


def model_of(cell, m=None):
    """Returns the theory's model of a cell."""
    fields = {
        name: cell[name]
        for name in ("embedding", "activation", "trigger_in_value", "kappa")
    }
    sizes = {name: int(cell[name]) for name in ("V", "d", "L")}
    return Model(**sizes, **fields, m=LARGEST_M if m is None else m)


@cache
def widths():
    """Returns the searched and the predicted m* of all cells at large N and L = 8."""
    found = searched("width")
    found = found[~found["diagnose"]].reset_index(drop=True)
    models = [model_of(cell) for cell in found.to_dict("records")]
    n = len(found)
    return found.assign(
        predicted=on_all_cores(critical, models, ["m"] * n, [0.5] * n, found["N"])
    )


def compared():
    """Returns the cells whose m* was found, with ln(predicted / measured)."""
    found = widths()
    found = found[found["critical"].notna()]
    return found.assign(
        off=np.log(found["predicted"] / found["critical"].astype(float))
    )


def required_width():
    """m* at theta 0.5, N = 16777216, L = 8.

    The columns are m* measured [95 %], the same in units of V ln V / d, and m* by
    theory.
    """
    body = []
    for cell in (
        widths()
        .sort_values(["trigger_in_value", "activation", "V", "d"])
        .to_dict("records")
    ):
        where = [
            "in the value" if cell["trigger_in_value"] else "out of it",
            cell["activation"],
            cell["V"],
            cell["d"],
        ]
        where.append(f"{cell['d'] / edge(cell['V']):.1f}")
        if cell["critical"] is None or not cell["critical"] > 0:
            body.append(
                [
                    *where,
                    {"right": "beyond 1024", "plateau": "levels off"}.get(
                        cell["outcome"], cell["outcome"]
                    ),
                    "",
                    f"{cell['predicted']:.0f}",
                ]
            )
            continue
        x = cell["critical"] * cell["d"] / (cell["V"] * np.log(cell["V"]))
        body.append(
            [
                *where,
                f"{cell['critical']:.0f} [{cell['lo']:.0f}, {cell['hi']:.0f}]",
                f"{x:.2f}",
                f"{cell['predicted']:.0f}",
            ]
        )
    heads = [
        "trigger",
        "activation",
        "V",
        "d",
        "d / (4 V ln V)^(1/3)",
        "m* [95 %]",
        "m* d / (V ln V)",
        "theory",
    ]
    return markdown(heads, body)


def width_errors():
    """Errors of theory for m*, with nothing fitted: |ln(predicted / measured)|."""
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
    body.append(
        ["out of it", "both", len(out), f"{out.median():.3f}", "", f"{out.max():.2f}"]
    )
    return markdown(
        ["trigger", "activation", "cells", "median", "mean ln ratio", "worst"], body
    )


def width_exponents():
    """Exponents of m*, measured and by theory in the same cells.

    The trigger is out of the value path, and d is from 2 (4 V ln V)^(1/3) to V.
    """
    cells = compared().query("not trigger_in_value")
    cells = cells[(cells["d"] >= 2 * edge(cells["V"])) & (cells["d"] <= cells["V"])]
    rows = load(STUDY / "width").query("not diagnose and not trigger_in_value")
    condition = "d >= 2 * (4 * V * log(V))**(1/3) and d <= V"
    laws = fit(rows, [0.5], along="m", where=condition, by="activation").exponents
    body = []
    for (_, law), (name, mine) in zip(
        laws.groupby("regime", sort=False), cells.groupby("activation"), strict=True
    ):
        shown = beside_theory(law.set_index("axis"), mine, axes=["V", "d"])
        body.append([name, law["n_cells"].iloc[0], *shown])
    return markdown(
        [
            "activation",
            "cells",
            "V: measured [95 %]; theory",
            "d: measured [95 %]; theory",
            MISFIT,
        ],
        body,
    )


def means(select, by):
    """Returns the mean accuracy of rows of the study of the MLP."""
    rows = load(STUDY / "mlp").query(select)
    rows = rows.assign(
        x=rows["m"] * rows["d"] / (rows["V"] * np.log(rows["V"])),
        activation=rows["activation"].str.partition("(")[0],
    )
    return (
        rows.groupby([*by, "m"])
        .agg(x=("x", "mean"), accuracy=("accuracy", "mean"), sem=("accuracy", "sem"))
        .reset_index()
    )


def activations():
    """Accuracy of each activation at V = 256, N = 16777216.

    The column m = 0 is without an MLP. The values in each other cell are in the order
    of x = m d / (V ln V).
    """
    table, body = means("V == 256", ["trigger_in_value", "d", "activation"]), []
    for (inside, d), mine in table.groupby(["trigger_in_value", "d"]):
        cells = []
        for name in ("none", *ORDER):
            accuracy = mine[mine["activation"] == name].sort_values("m")["accuracy"]
            cells.append(", ".join(f"{a:.2f}" for a in accuracy) or "not run")
        body.append(["in the value" if inside else "out of it", d, *cells])
    return markdown(["trigger", "d", "m = 0", *ORDER], body)


ORDER = ("quadratic", "cubic", "mixed", "relu", "gelu", "tanh")
LOOKS = dict(
    zip(
        ORDER,
        zip(
            MARKERS,
            ("#0072B2", "#D55E00", "#CC79A7", "#009E73", "#56B4E9", "0.45"),
            strict=False,
        ),
        strict=True,
    )
)


def mlp():
    """Draws accuracy against x = m d / (V ln V).

    The left panels show both activations without a linear part, over V and d. The other
    panels show all activations at V = 256, with the trigger out and in.
    """
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
        ax.set(
            title=f"{name}, V = {sizes[0]} to {sizes[-1]}", xscale="log", ylim=(0, 1.03)
        )
    for row, inside in zip(panels, (False, True), strict=True):
        table = means(f"V == 256 and trigger_in_value == {inside}", ["d", "activation"])
        for ax, d in zip(row[1:], (36, 96), strict=True):
            mine = table[table["d"] == d]
            none = mine[mine["activation"] == "none"]["accuracy"].iloc[0]
            ax.axhline(none, color="black", linestyle=DASH)
            for name, (marker, colour) in LOOKS.items():
                one = mine[mine["activation"] == name]
                ax.errorbar(
                    one["x"],
                    one["accuracy"],
                    yerr=2 * one["sem"],
                    color=colour,
                    marker=marker,
                    markersize=3,
                    linewidth=0.8,
                    elinewidth=0.7,
                )
            ax.set(
                title=f"V = 256, d = {d}, trigger {'in' if inside else 'out'}",
                xscale="log",
                ylim=(0, 1.03),
            )
    for ax in panels.flat:
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("x = m d / (V ln V)", fontsize=8)
    figure.supylabel("test accuracy, N = 16777216", fontsize=8)
    V_values = sorted(
        means("activation == 'quadratic' and not trigger_in_value", ["V"])["V"].unique()
    )
    entries = [
        line(f"V = {V}", color=colour)
        for V, colour in zip(V_values, shades(len(V_values)), strict=True)
    ]
    entries += [
        line("d from 2 (4 V ln V)^(1/3) to V/2", marker="o", color="0.4"),
        line("other d", marker="x", linestyle=":", color="0.4"),
    ]
    entries += [
        line(name, marker=marker, color=colour)
        for name, (marker, colour) in LOOKS.items()
    ]
    above(figure, [*entries, line("m = 0", color="black", linestyle=DASH)])
    return "activations", figure


def required_plane():
    """m* d in thousands over N and L, at V = 256, d = 64, trigger out.

    "none": accuracy levels off below one half as m grows.
    """
    table, body = searched("width"), []
    table = table[table["diagnose"]]
    for (activation, length), mine in table.groupby(["activation", "L"]):
        body.append(
            [
                activation,
                length,
                *(required(cell) for cell in mine.sort_values("N").to_dict("records")),
            ]
        )
    return markdown(
        ["activation", "L", *(f"N = {int(N)}" for N in sorted(table["N"].unique()))],
        body,
    )


def required(cell):
    """Formats m* d of a cell with its interval, or the outcome of its search."""
    if cell["critical"] is None or not cell["critical"] > 0:
        ends = {
            "plateau": "none",
            "right": f"beyond {cell['d'] * LARGEST_M / 1000:.0f}",
            "nonfinite": "overflow",
        }
        return ends.get(cell["outcome"], "undecided")
    md, *ends = (
        cell["d"] * (np.nan if cell[name] is None else cell[name]) / 1000
        for name in ("critical", "lo", "hi")
    )
    return (
        f"{md:.1f} [{ends[0]:.1f}, {ends[1]:.1f}]"
        if ends[0] > 0
        else f"{md:.1f}, no interval"
    )


TABLES = (required_width, width_errors, width_exponents, activations, required_plane)
