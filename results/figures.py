"""Draws the figures of the studies: python results/figures.py [STUDY ...]

A figure is a call of `jaxrecall.plot.figure` on the rows of a study.
"""

import sys

import bound
import first_steps
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import planes
import storage
import structure
import training
import width
import zipf
from law import (
    BETWEEN,
    DASHED,
    LONG,
    N_STAR,
    PATHS,
    SHORT,
    SIZES,
    STUDY,
    on_all_cores,
    predicted,
    regime,
    searched,
    with_trigger,
    without_warnings,
)

from jaxrecall import load, plot
from jaxrecall.theory import Model, accuracy, critical_N, score_noise

SEEDS = 12
"""The smallest number of seeds for which a level of N is drawn."""


def critical():
    """N* against L for both paths of the trigger, with theory and exact cells."""
    found = searched("law").query("theta == 0.5")
    both = found[~found["trigger_in_value"]]["V"].unique()
    found = found[found["V"].isin(both)]
    exact = searched("law-exact").query("theta == 0.5")
    over = [
        plot.Polyline(along_L(found), "N_star", "theory, nothing fitted", DASHED),
        plot.Points(
            with_trigger(exact).drop(columns=["lo", "hi", "d"]),
            "N_star",
            "independent samples, no pool",
            {"markerfacecolor": "none", "size": 2, "linestyle": "none"},
        ),
    ]
    return plot.figure(
        with_trigger(found),
        "N_star",
        x="L",
        lines="d",
        columns="V",
        rows="trigger",
        over=over,
        labels=N_STAR | {"trigger": ""},
    )


def along_L(found):
    """Returns the predicted N* of each line of cells at evenly spaced L."""
    lengths = np.geomspace(found["L"].min(), found["L"].max(), 15).round().astype(int)
    lines = found[["V", "d", "trigger_in_value"]].drop_duplicates()
    cells = lines.merge(pd.DataFrame({"L": lengths}), how="cross")
    models = [Model(**cell) for cell in cells.to_dict("records")]
    return with_trigger(cells.assign(N_star=on_all_cores(critical_N, models)))


def levels():
    """Returns means over seeds at every N of a cell.

    Each row has N over the predicted N*, and the difference from predicted accuracy.
    """
    rows = load(STUDY / "law").query("trigger_in_value")
    groups = rows.groupby([*SIZES, "N"])
    means = groups[["accuracy", "trigger_cosine", "attention_mass"]].mean()
    means = means[groups.size() >= SEEDS].reset_index()
    cells = predicted("law").query("trigger_in_value and theta == 0.5")
    means = means.join(cells.set_index(SIZES)["predicted"], on=SIZES)
    means = means[np.isfinite(means["predicted"])]
    models = [Model(**sizes) for sizes in means[SIZES].to_dict("records")]
    expected = on_all_cores(accuracy, models, means["N"])
    order = [SHORT, BETWEEN, LONG]
    return means.assign(
        x=means["N"] / means["predicted"],
        rest=means["accuracy"] - expected,
        regime=pd.Categorical(regime(means), order),
    )


def against_predicted(table, columns):
    """Returns dots of each regime against N over the predicted N*."""
    table = table[table["x"].between(0.1, 30)]
    labels = {
        "x": "N / predicted N* (nothing fitted)",
        "regime": "",
        "accuracy": "test accuracy (fraction)",
        "rest": "measured less predicted accuracy",
        "trigger_cosine": "cosine of W_KQ z_eos and z_trig",
        "attention_mass": "attention on the informative token",
    }
    return plot.figure(
        table[["x", "regime", *columns]],
        columns,
        x="x",
        lines="regime",
        style={"lines.markersize": 1.6},
        labels=labels,
    )


def collapse():
    """Accuracy, and its difference from theory, against N over the predicted N*."""
    return against_predicted(levels(), ["accuracy", "rest"])


def order_parameters():
    """Trigger cosine and attention against N over the predicted N*."""
    return against_predicted(levels(), ["trigger_cosine", "attention_mass"])


def embeddings():
    """N* against L by embedding, with a panel for each d."""
    return plot.figure(
        searched("embeddings"),
        "N_star",
        x="L",
        lines="embedding",
        columns="d",
        joined=True,
        labels=N_STAR | {"embedding": ""},
    )


def of_recipe(rows):
    """Returns the runs of the late study that start from the recipe at kappa 100."""
    rows = rows[rows["kappa"].between(99, 101) & (rows["start"] == "three_step")]
    trained = rows["trains"].map({"VW": "fixed", "VWZ": "trained"})
    return rows.assign(setting=rows["optimizer"] + ", " + trained + " embeddings")


def late():
    """Accuracy against the step at N = 512, by optimiser and trained parameters."""
    rows = of_recipe(load(STUDY / "late")).query("N == 512 and step > 0")
    return plot.figure(
        rows,
        "accuracy",
        x="step",
        lines="d",
        columns="setting",
        band="95 %",
        labels={"setting": "", "accuracy": "test accuracy, N = 512"},
    )


def late_samples():
    """Accuracy against N at d = 16 after four numbers of steps, with labels seen."""
    rows = of_recipe(load(STUDY / "late")).query(
        "d == 16 and step in (3, 50, 500, 3000)"
    )
    N = np.geomspace(rows["N"].min(), rows["N"].max(), 50)
    known = -np.expm1(N * np.log1p(-1 / 64))
    table = pd.DataFrame({"N": N, "accuracy": known})
    return plot.figure(
        rows,
        "accuracy",
        x="N",
        lines="step",
        columns="setting",
        band="95 %",
        over=[plot.Polyline(table, "accuracy", "labels seen", DASHED)],
        labels={"setting": "", "accuracy": "test accuracy, d = 16"},
    )


def found_late():
    """Attention and accuracy against the step for five values of kappa.

    Another line has no early phase.
    """
    rows = load(STUDY / "late").query("optimizer == 'sgd' and trains == 'VW'")
    rows = rows.query("N == 512 and d in (16, 32) and step > 0")
    kappa = rows["kappa"].where(rows["start"] == "three_step", 0.0).round(6)
    named = "kappa = " + kappa.map("{:g}".format)
    order = ["from zero", *(f"kappa = {k:g}" for k in sorted(kappa.unique()) if k)]
    start = pd.Categorical(named.where(kappa > 0, "from zero"), order)
    return plot.figure(
        rows.assign(start=start),
        ["attention_mass", "accuracy"],
        x="step",
        lines="start",
        columns="d",
        labels={
            "start": "",
            "attention_mass": "attention on the\ninformative token",
            "accuracy": "test accuracy",
        },
    )


NOISES = {
    "leakage": ("leakage", "trigger leakage"),
    "bias": ("mean_bias", "mean bias"),
    "mlp": ("mlp", "MLP noise"),
    "gradient": ("gradient", "gradient noise"),
}
"""A dict from the end of a column to the field of `score_noise`, and to its name."""

NOISE_SIZES = pd.DataFrame(
    [
        (16, 8, 32, 0),
        (16, 32, 128, 0),
        (64, 32, 32, 8),
        (256, 8, 64, 0),
        (1024, 8, 32, 0),
        (1024, 128, 128, 0),
    ],
    columns=["d", "L", "V", "m"],
)


def noises():
    """The parts of the noise of the attention scores along N, at six sizes.

    Lines are medians with quartiles; theory is dashed.
    """
    texts = []
    for d, L, V, m in NOISE_SIZES.itertuples(index=False):
        texts.append(f"V = {V}, d = {d}, L = {L}" + (f", m = {m}" if m else ""))
    sizes = NOISE_SIZES.assign(sizes=pd.Categorical(texts, texts))
    rows = load(STUDY / "phase").merge(sizes, on=[*NOISE_SIZES])
    settings = [*sizes, "activation", "N"]
    cells = rows[settings].drop_duplicates()
    measured, theory = [], []
    for column, (field, name) in NOISES.items():
        least = 1 if column == "mlp" else 0
        mine = rows[rows["m"] >= least]
        measured.append(mine.assign(noise=mine[f"noise_{column}"], part=name))
        some = cells[cells["m"] >= least]
        expected = [predicted_noise(cell, field) for cell in some.to_dict("records")]
        theory.append(some.assign(noise=expected, part=name))
    return plot.figure(
        pd.concat(measured),
        "noise",
        x="N",
        lines="part",
        panels="sizes",
        band="quartiles",
        scale="log",
        over=[plot.Polyline(pd.concat(theory), "noise", "theory", DASHED)],
        labels={"part": "", "sizes": "", "noise": "noise (s.d. / trigger's score)"},
    )


def predicted_noise(cell, field):
    """The predicted part of the noise of a cell, which is a dict of settings."""
    model = Model(**{name: cell[name] for name in cell if name not in ("N", "sizes")})
    return getattr(score_noise(model, cell["N"]), field)


def over_widths():
    """Accuracy over N and d at L = 256, for both paths of the trigger."""
    return accuracy_over("L == 256 and N >= 64", "d")


def over_lengths():
    """Accuracy over N and L at d = 64, for both paths of the trigger."""
    return accuracy_over("d == 64", "L")


def accuracy_over(condition, y):
    """Draws accuracy over N and another axis, with theory's line of one half."""
    drawn = plot.figure(
        load(STUDY / "map").query(condition),
        y,
        x="N",
        colour="accuracy",
        contour="theory",
        panels="trigger_in_value",
    )
    for ax, inside in zip(drawn.axes, (False, True), strict=False):
        ax.set_title(PATHS[inside], fontsize=8.4)
    return drawn


FIGURES = {
    "law/critical-n": critical,
    "law/collapse": collapse,
    "law/order-parameters": order_parameters,
    "embeddings/critical-n": embeddings,
    "structure/collapse": structure.collapsed,
    "structure/along": structure.along,
    "zipf/critical": zipf.breaking,
    "zipf/cause": zipf.causing,
    "zipf/mend": zipf.mending,
    "zipf/mend-steps": zipf.training,
    "storage/storage": storage.storing,
    "phase/noise-lines": noises,
    "late/late": late,
    "late/samples": late_samples,
    "late/attention": found_late,
    "map/over-d": over_widths,
    "map/over-L": over_lengths,
    "mlp/collapse": width.by_size,
    "mlp/activations": width.by_activation,
    "phase-mlp/planes-N": planes.by_samples,
    "phase-mlp/planes-L": planes.by_lengths,
    "steps-long/headline": first_steps.headline,
    "steps/arms": first_steps.arms,
    "bound/decoders": bound.decoders,
    "bound/bound": bound.against,
    "steps-training/against-steps": training.against_steps,
}
"""A dict from the study and the name of a file to the function that draws it."""


def save(path, figure):
    """Writes a figure as PNG and PDF, and forgets it."""
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path.with_suffix(".png"))
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    plt.close(figure)
    print(path.with_suffix(".png"), flush=True)


def chosen(names):
    """Returns the items of FIGURES of these studies, or all if there are no names.

    Exits with code 2 if no figure is of a study.
    """
    studies = dict.fromkeys(key.partition("/")[0] for key in FIGURES)
    unknown = [name for name in names if name not in studies]
    if unknown:
        print(
            f"no figures of {', '.join(unknown)}; there are {', '.join(studies)}",
            file=sys.stderr,
        )
        sys.exit(2)
    return {
        key: draw
        for key, draw in FIGURES.items()
        if key.partition("/")[0] in (names or studies)
    }


if __name__ == "__main__":
    without_warnings()
    for key, draw in chosen(sys.argv[1:]).items():
        study, _, name = key.partition("/")
        save(STUDY / study / "figures" / name, draw())
