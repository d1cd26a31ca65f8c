"""How far theory is from simulations, with nothing fitted.

The tables are from the studies law, embeddings, width, mlp, noise and theory-held-out.
No other study has the cells of theory-held-out.
"""

import numpy as np
import pandas as pd
import width
from law import STUDY, crossed, markdown, on_all_cores, searched

from jaxrecall import load
from jaxrecall.theory import Model, accuracy, critical_N, score_noise


def critical_sizes():
    """N* and m* at accuracy 1/2: ln(predicted / observed)."""
    body = [*critical_samples(), *critical_embeddings(), *critical_widths()]
    return markdown(
        ["", "cells", "median abs ln ratio", "mean ln ratio", "largest"], body
    )


def summary(name, ratios):
    """Returns a line of the table: how far ln(predicted / observed) is from 0."""
    off = np.abs(ratios)
    return [
        name,
        len(off),
        f"{np.median(off):.3f}",
        f"{np.mean(ratios):+.3f}",
        f"{np.max(off):.2f}",
    ]


def critical_samples():
    """Returns the lines for N* in the study of the law, for both trigger paths."""
    body = []
    for name, inside in TRIGGER.items():
        rows = crossed(0.5, inside=inside)
        ratios, L = np.log(rows["predicted"] / rows["N_star"]), rows["L"]
        parts = {
            "L 4 and 16": L <= 16,
            "L 64 and 256": L.between(64, 256),
            "L from 1024": L >= 1024,
            "all": L > 0,
        }
        body += [
            summary(f"N*, {name}, {part}", ratios[of]) for part, of in parts.items()
        ]
    return body


def critical_embeddings():
    """Returns the lines for N* in the study of embeddings, trigger in the value."""
    rows = searched("embeddings").dropna(subset="N_star")
    models = [
        Model(V=V, d=d, L=L, embedding=name)
        for name, V, d, L in rows[["embedding", "V", "d", "L"]].itertuples(index=False)
    ]
    ratios = np.log(
        [
            critical_N(model, theta)
            for model, theta in zip(models, rows["theta"], strict=True)
        ]
        / rows["N_star"]
    )
    return [
        summary(f"N*, study of embeddings, {name}", ratios[part.index])
        for name, part in rows.groupby("embedding")
    ]


def critical_widths():
    """Returns the lines for m*, the width at which a layer recalls one half."""
    body, found = [], width.compared()
    for name, inside in TRIGGER.items():
        mine = found[found["trigger_in_value"] == inside]
        body += [
            summary(f"m*, {name}, {activation}", part["off"])
            for activation, part in mine.groupby("activation")
        ]
        body.append(summary(f"m*, {name}, both", mine["off"]))
    return body


TRIGGER = {"trigger out": False, "trigger in": True}


INFINITE = 3.0
"""The error in ln N* that counts for an infinite prediction, where N* was found."""


def held_out():
    """N* of the study theory-held-out: |ln(predicted / measured)|.

    An infinite prediction counts as 3.
    """
    found = searched("theory-held-out")
    found = found[
        found["embedding"].str.match("gaussian|equicorrelated")
        & found["N_star"].notna()
    ].fillna({"kappa": 100.0})
    fields = ["V", "d", "L", "trigger_in_value", "embedding", "kappa"]
    found["predicted"] = on_all_cores(
        critical_N, [Model(**row) for row in found[fields].to_dict("records")]
    )
    found["off"] = np.log(found["predicted"] / found["N_star"]).clip(
        -INFINITE, INFINITE
    )
    name = np.where(
        found["embedding"] == "gaussian",
        "kappa = " + found["kappa"].map("{:g}".format),
        found["embedding"],
    )
    body = []
    for part, mine in found.groupby(name, sort=False):
        off = mine["off"]
        numbers = (
            f"{off.abs().median():.3f}",
            f"{off.mean():+.3f}",
            f"{off.abs().max():.2f}",
            (~np.isfinite(mine["predicted"])).sum(),
        )
        body.append([part, len(mine), *numbers])
    return markdown(
        ["", "cells", "median abs ln ratio", "mean ln ratio", "largest", "infinite"],
        body,
    )


def layer_accuracy():
    """Accuracy of layers with plenty of samples: predicted minus observed."""
    rows = load(STUDY / "mlp").query("m > 0")
    fields = [
        "activation",
        "trigger_in_value",
        "V",
        "d",
        "m",
        "L",
        "kappa",
        "embedding",
    ]
    rows = rows.groupby([*fields, "N"], as_index=False)["accuracy"].mean()
    models = [Model(**row) for row in rows[fields].to_dict("records")]
    rows = rows.assign(
        off=np.array(on_all_cores(accuracy, models, rows["N"])) - rows["accuracy"]
    )
    body = []
    for name, inside in TRIGGER.items():
        for activation, mine in rows[rows["trigger_in_value"] == inside].groupby(
            "activation"
        ):
            off = mine["off"]
            body.append(
                [
                    f"{name}, {activation}",
                    len(off),
                    f"{off.abs().mean():.3f}",
                    f"{off.mean():+.3f}",
                    f"{off.abs().max():.2f}",
                ]
            )
    return markdown(
        ["", "layers", "mean absolute error", "mean error", "largest"], body
    )


def snr_errors():
    """Observed over predicted snr.

    Points with orthogonal embeddings have snr below 20. Points with layers have snr
    below 0.9 sqrt(d).
    """
    rows = noise()
    orthogonal = rows[(rows["embedding"] == "orthogonal") & rows["snr"].between(0, 20)]
    body = quotients(orthogonal, orthogonal["L"], "snr", "orthogonal, L = ")
    body += quotients(orthogonal, orthogonal["embedding"], "snr", "all ")
    layers = rows[(rows["m"] > 0) & rows["snr"].between(0, 0.9 * rows["d"] ** 0.5)]
    trigger = pd.Series(
        np.where(layers["trigger_in_value"], ", trigger in", ", trigger out"),
        layers.index,
    )
    body += quotients(layers, layers["activation"] + trigger, "snr")
    return markdown(["", "points", "median", "quartile", "quartile"], body)


def gradient_noise():
    """Gradient noise without an MLP: observed over predicted.

    The points are those where counts of labels times counts of tokens make most of the
    noise.
    """
    rows = noise()
    rows = rows[
        rows["noise_gradient"].notna()
        & (rows["snr"] > 1)
        & (rows["N"] * rows["V"] < rows["L"] ** 3)
    ]
    return markdown(
        ["V / d", "points", "median", "quartile", "quartile"],
        quotients(rows, rows["V"] / rows["d"], "noise_gradient"),
    )


FIELDS = ["activation", "trigger_in_value", "V", "d", "L", "m", "embedding", "kappa"]


def noise():
    """Returns medians over the seeds of each point of the study of noise."""
    return (
        load(STUDY / "noise")
        .groupby([*FIELDS, "N"])[["snr", "noise_gradient"]]
        .median()
        .reset_index()
    )


def quotients(rows, by, column, name=""):
    """Returns a line for each group: median and quartiles of a column over its
    prediction.
    """
    noises = [
        score_noise(Model(**row), N)
        for row, N in zip(rows[FIELDS].to_dict("records"), rows["N"], strict=True)
    ]
    groups = (
        rows[column]
        / [getattr(noise, column.removeprefix("noise_")) for noise in noises]
    ).groupby(by)
    return [
        [
            f"{name}{group}",
            len(mine),
            *(f"{q:.2f}" for q in mine.quantile([0.5, 0.25, 0.75])),
        ]
        for group, mine in groups
    ]


TABLES = (critical_sizes, held_out, layer_accuracy, snr_errors, gradient_noise)
