"""Draws the figures of the searched studies: python results/figures.py"""

import bound
import maps
import numpy as np
import planes
import storage
import structure
import width
import zipf
from drawing import (
    DASH,
    GREY,
    MARKERS,
    above,
    bars,
    canvas,
    line,
    log_axis,
    look,
    save,
    shades,
)
from law import (
    BETWEEN,
    LONG,
    SHORT,
    SIZES,
    STUDY,
    on_all_cores,
    predicted,
    regime,
    searched,
    without_warnings,
)

from jaxrecall import load
from jaxrecall.theory import Model, accuracy, critical_N, score_noise, seen

EXACT = {
    "marker": "o",
    "markersize": 7,
    "linestyle": "none",
    "markerfacecolor": "none",
    "color": "#D55E00",
}
SHAPES = {
    SHORT: ("o", "#0072B2"),
    BETWEEN: ("x", "0.55"),
    LONG: ("s", "#D55E00"),
}
SEEDS = 12
"""The smallest number of seeds for which a level of N is drawn."""


def critical():
    """Draws N* against L, with both regimes and both paths of the trigger.

    Theory is drawn as lines, and exact cells as rings.
    """
    found, exact = (
        table[table["theta"] == 0.5]
        for table in (predicted("law"), predicted("law-exact"))
    )
    V_values = sorted(found[~found["trigger_in_value"]]["V"].unique())
    found = found[found["V"].isin(V_values)]
    d_values = sorted(found["d"].unique())
    looks = dict(
        zip(d_values, zip(shades(len(d_values)), MARKERS, strict=False), strict=True)
    )
    figure, panels = canvas(2, len(V_values), 4.8, sharex=True, sharey=True)
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 15).round().astype(int)
    keys = [
        *found[["trigger_in_value", "V", "d"]]
        .drop_duplicates()
        .itertuples(index=False, name=None)
    ]
    models = [
        Model(V=int(V), d=int(d), L=int(L), trigger_in_value=bool(inside))
        for inside, V, d in keys
        for L in lengths
    ]
    curves = dict(
        zip(
            keys,
            np.reshape(on_all_cores(critical_N, models), (len(keys), len(lengths))),
            strict=True,
        )
    )
    for inside, V, d in keys:
        ax, (colour, marker) = panels[0 if inside else 1, V_values.index(V)], looks[d]
        mine = found[
            (found["trigger_in_value"] == inside)
            & (found["V"] == V)
            & (found["d"] == d)
        ]
        ax.plot(
            lengths, curves[inside, V, d], color=colour, linestyle=DASH, linewidth=0.9
        )
        bars(ax, mine, color=colour, marker=marker, linestyle="none")
        if inside:
            check = exact[(exact["V"] == V) & (exact["d"] == d)]
            ax.plot(check["L"], check["N_star"], **EXACT)
    for ax, V in zip(panels[0], V_values, strict=True):
        ax.set(xscale="log", yscale="log", title=f"V = {V}")
    for row, where in zip(
        panels, ("trigger in the value path", "trigger out of it"), strict=True
    ):
        row[0].set(ylabel=where)
    panels[0, 0].set(
        xlim=(found["L"].min() / 1.6, found["L"].max() * 1.6),
        ylim=(found["N_star"].min() / 3, found["N_star"].max() * 3),
    )
    for ax in panels.flat:
        ax.grid(True)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
    figure.supxlabel("L: sequence length, tokens", fontsize=8)
    figure.supylabel("N*: samples for a test accuracy of 1/2", fontsize=8)
    entries = [
        line(f"d = {d}", color=colour, marker=marker, linestyle="none")
        for d, (colour, marker) in looks.items()
    ]
    above(
        figure,
        [
            *entries,
            line("theory, nothing fitted", linestyle=DASH),
            line("exact run, no pool", **EXACT),
        ],
    )
    return "critical-n", figure


def levels():
    """Returns means over seeds at every N of a cell.

    Each row has N over the predicted N*, and the predicted accuracy.
    """
    rows = load(STUDY / "law").query("trigger_in_value")
    means = rows.groupby([*SIZES, "N"])[
        ["accuracy", "trigger_cosine", "attention_mass"]
    ].agg(["mean", "count"])
    means = (
        means[means["accuracy"]["count"] >= SEEDS]
        .xs("mean", axis=1, level=1)
        .reset_index()
    )
    table = predicted("law").query("trigger_in_value")
    means = means.join(
        table[table["theta"] == 0.5].set_index(SIZES)["predicted"], on=SIZES
    )
    means = means[np.isfinite(means["predicted"])]
    models = [Model(V=V, d=d, L=L) for V, d, L in means[SIZES].itertuples(index=False)]
    expected = on_all_cores(accuracy, models, means["N"])
    return means.assign(
        x=means["N"] / means["predicted"], theory=expected, regime=regime(means)
    )


def scatter(ax, table, column):
    """Draws dots of each regime against N over the predicted N*."""
    for name, (marker, colour) in SHAPES.items():
        mine = table[table["regime"] == name]
        ax.plot(
            mine["x"],
            mine[column],
            color=colour,
            marker=marker,
            linestyle="none",
            markersize=2.2,
            alpha=0.6,
            markeredgewidth=0.6,
        )
    ax.set(xscale="log", xlim=(0.1, 30), xlabel="N / predicted N* (nothing fitted)")
    ax.axvline(1, color=GREY, linewidth=0.6)
    ax.grid(True)
    log_axis(ax.xaxis)


def regimes(figure):
    above(
        figure,
        [
            line(name, marker=marker, linestyle="none", color=colour)
            for name, (marker, colour) in SHAPES.items()
        ],
    )


def collapse(table):
    """Draws accuracy, and its residual from theory, against N over the predicted N*."""
    figure, panels = canvas(1, 2, 3.0)
    curve, rest = panels[0]
    scatter(curve, table, "accuracy")
    scatter(rest, table.assign(rest=table["accuracy"] - table["theory"]), "rest")
    curve.set(ylabel="test accuracy (fraction)", ylim=(0, 1))
    rest.set(ylabel="measured less predicted accuracy", ylim=(-0.3, 0.3))
    rest.axhline(0, color=GREY, linewidth=0.6)
    regimes(figure)
    return "collapse", figure


def order_parameters(table):
    """Draws trigger cosine and attention mass against N over the predicted N*."""
    figure, panels = canvas(1, 2, 3.0)
    names = (
        ("trigger_cosine", "cosine of W_KQ z_eos and z_trig"),
        ("attention_mass", "attention on the informative token"),
    )
    for ax, (column, name) in zip(panels[0], names, strict=True):
        scatter(ax, table, column)
        ax.set(ylim=(0, 1.02), ylabel=name)
    regimes(figure)
    return "order-parameters", figure


def embeddings():
    """Draws N* against L by embedding, with a panel for each d."""
    found = searched("embeddings")
    d_values = sorted(found["d"].unique())
    looks = {
        "orthogonal": ("o", "black"),
        "gaussian": ("s", "#0072B2"),
        "sphere": ("^", "#D55E00"),
    }
    figure, panels = canvas(1, len(d_values), 2.8, sharex=True, sharey=True)
    for ax, d in zip(panels[0], d_values, strict=True):
        for name, (marker, colour) in looks.items():
            bars(
                ax,
                found[(found["d"] == d) & (found["embedding"] == name)],
                marker=marker,
                color=colour,
                linewidth=0.8,
            )
        ax.set(xscale="log", yscale="log", title=f"V = 64, d = {d}")
        ax.grid(True)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
    figure.supxlabel("L: sequence length, tokens", fontsize=8)
    figure.supylabel("N*: samples for accuracy 1/2", fontsize=8)
    above(
        figure,
        [
            line(name, marker=marker, color=colour)
            for name, (marker, colour) in looks.items()
        ],
    )
    return "critical-n", figure


def late():
    """Draws accuracy against the step at N = 512, and against N at d = 16.

    There is a column for each optimiser and choice of trained parameters.
    """
    rows = load(STUDY / "late")
    rows = rows[rows["kappa"].between(99, 101) & (rows["start"] == "three_step")]
    settings = [("sgd", "VW"), ("adam", "VW"), ("sgd", "VWZ"), ("adam", "VWZ")]
    d_values, steps = sorted(rows["d"].unique()), (3, 50, 500, 3000)
    by_d, by_step = shades(len(d_values)), ("0.8", "0.6", "0.4", "0")
    figure, panels = canvas(2, len(settings), 4.8, sharey=True)
    for (optimizer, trains), over, under in zip(settings, *panels, strict=True):
        mine = rows[(rows["optimizer"] == optimizer) & (rows["trains"] == trains)]
        for d, colour in zip(d_values, by_d, strict=True):
            means = (
                mine[(mine["d"] == d) & (mine["N"] == 512)]
                .groupby("step")["accuracy"]
                .agg(["mean", "sem"])
            )
            over.errorbar(
                means.index,
                means["mean"],
                yerr=2 * means["sem"],
                color=colour,
                marker="o",
                markersize=2.5,
                elinewidth=0.7,
            )
        for step, colour in zip(steps, by_step, strict=True):
            means = (
                mine[(mine["d"] == 16) & (mine["step"] == step)]
                .groupby("N")["accuracy"]
                .agg(["mean", "sem"])
            )
            under.errorbar(
                means.index,
                means["mean"],
                yerr=2 * means["sem"],
                color=colour,
                marker="o",
                markersize=2.5,
                elinewidth=0.7,
            )
        N = np.geomspace(rows["N"].min(), rows["N"].max(), 50)
        under.plot(
            N,
            [seen(Model(V=64, d=16, L=8), n) for n in N],
            color="black",
            linestyle=DASH,
            linewidth=0.9,
        )
        over.set(
            xscale="log",
            ylim=(0, 1.03),
            title=f"{optimizer},\n{'trained' if 'Z' in trains else 'fixed'} embeddings",
            xlabel="step",
        )
        under.set(xscale="log", xlabel="N: samples, d = 16")
        for ax in (over, under):
            ax.grid(True)
            log_axis(ax.xaxis)
    panels[0, 0].set(ylabel="test accuracy, N = 512")
    panels[1, 0].set(ylabel="test accuracy")
    entries = [
        line(f"d = {d}", color=colour) for d, colour in zip(d_values, by_d, strict=True)
    ]
    entries += [
        line(f"step {step}", color=colour)
        for step, colour in zip(steps, by_step, strict=True)
    ]
    above(figure, [*entries, line("labels seen", color="black", linestyle=DASH)])
    return "late", figure


def found_late():
    """Draws attention and accuracy against the step for five values of kappa.

    Another line has no early phase.
    """
    rows = load(STUDY / "late")
    rows = rows[
        (rows["optimizer"] == "sgd")
        & (rows["trains"] == "VW")
        & (rows["N"] == 512)
        & rows["d"].isin([16, 32])
    ]
    rows = rows.assign(
        kappa=rows["kappa"].where(rows["start"] == "three_step", 0.0).round(6)
    )
    kappas = sorted(rows["kappa"].unique())
    figure, panels = canvas(2, 2, 4.2, sharex=True, sharey=True)
    for across, (column, name) in zip(
        panels,
        (
            ("attention_mass", "attention on the informative token"),
            ("accuracy", "test accuracy"),
        ),
        strict=True,
    ):
        for ax, d in zip(across, (16, 32), strict=True):
            for kappa, colour in zip(kappas, shades(len(kappas)), strict=True):
                means = (
                    rows[
                        (rows["d"] == d) & (rows["kappa"] == kappa) & (rows["step"] > 0)
                    ]
                    .groupby("step")[column]
                    .mean()
                )
                ax.plot(means.index, means, color=colour, marker="o", markersize=2.5)
            ax.set(xscale="log", ylim=(0, 1.03), title=f"d = {d}")
            ax.grid(True)
        across[0].set(ylabel=name)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("step", fontsize=8)
    entries = [
        line(f"kappa = {kappa:g}" if kappa else "from zero", color=colour)
        for kappa, colour in zip(kappas, shades(len(kappas)), strict=True)
    ]
    above(figure, entries)
    return "attention", figure


NOISES = {
    "leakage": ("leakage", "trigger leakage", "o", "#E3C100"),
    "bias": ("mean_bias", "mean bias", "s", "#332288"),
    "mlp": ("mlp", "MLP noise", "D", "#A03A00"),
    "gradient": ("gradient", "gradient noise", "^", "#2A9D8F"),
}


def noises():
    """Draws the parts of the noise of the attention scores along N, at six sizes.

    Lines are medians with quartiles; theory is dashed.
    """
    rows = load(STUDY / "phase")
    sizes = [
        (16, 8, 32, 0),
        (16, 32, 128, 0),
        (64, 32, 32, 8),
        (256, 8, 64, 0),
        (1024, 8, 32, 0),
        (1024, 128, 128, 0),
    ]
    figure, panels = canvas(2, 3, 4.2, sharex=True, sharey=True)
    for ax, (d, L, V, m) in zip(panels.flat, sizes, strict=True):
        mine = rows[
            (rows["d"] == d) & (rows["L"] == L) & (rows["V"] == V) & (rows["m"] == m)
        ]
        model = Model(V=V, d=d, L=L, m=m, activation=mine["activation"].iloc[0])
        for name, (theirs, _, marker, colour) in NOISES.items():
            if name == "mlp" and m == 0:
                continue
            low, middle, high = (
                mine.groupby("N")[f"noise_{name}"].quantile(q)
                for q in (0.25, 0.5, 0.75)
            )
            ax.plot(middle.index, middle, color=colour, marker=marker)
            ax.fill_between(
                middle.index, low, high, color=colour, alpha=0.2, linewidth=0
            )
            ax.plot(
                middle.index,
                [getattr(score_noise(model, N), theirs) for N in middle.index],
                color=colour,
                linestyle=DASH,
            )
        ax.set(
            xscale="log",
            yscale="log",
            ylim=(1e-3, 20),
            title=f"d = {d}, L = {L},\nV = {V}, m = {m}",
        )
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("N: samples", fontsize=8)
    figure.supylabel("noise (s.d. / trigger's score)", fontsize=8)
    above(
        figure,
        [line(name, marker=mark, color=c) for _, name, mark, c in NOISES.values()]
        + [line("theory", linestyle=DASH)],
    )
    return "noise-lines", figure


if __name__ == "__main__":
    without_warnings()
    with look():
        save("mlp", *width.mlp())
        save("phase-mlp", *planes.planes())
        save("map", *maps.over_widths())
        save("map", *maps.over_lengths())
        save("storage", *storage.storing())
        save("structure", *structure.collapsed())
        save("structure", *structure.along())
        save("zipf", *zipf.breaking())
        save("zipf", *zipf.causing())
        save("zipf", *zipf.mending())
        save("law", *critical())
        table = levels()
        save("law", *collapse(table))
        save("law", *order_parameters(table))
        save("embeddings", *embeddings())
        save("bound", *bound.decoders())
        save("bound", *bound.against())
        save("phase", *noises())
        save("late", *late())
        save("late", *found_late())
