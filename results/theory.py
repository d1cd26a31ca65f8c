"""How far theory is from simulations, with nothing fitted.

The tables are from the studies law, embeddings, width, mlp, noise and theory-held-out.
No other study has the cells of theory-held-out.
"""

from functools import cache

import numpy as np
import pandas as pd
import width
from law import (
    SIZES,
    STUDY,
    TRIGGER,
    crossed,
    models_of,
    on_all_cores,
    searched,
    with_theory,
)
from table import ERRORS, as_table, stacked, with_interval

import jaxrecall
from jaxrecall import load
from jaxrecall.theory import accuracy, critical_N, score_noise


def largest_abs(rows):
    """The largest abs(off)."""
    return f"{rows['off'].abs().max():.2f}"


def infinite_predictions(rows):
    return np.isinf(rows["predicted"]).sum()


@as_table([""], ERRORS | {"largest": largest_abs})
def critical_sizes():
    """N* and m* at accuracy 1/2: ln(predicted / observed)."""
    return pd.concat([critical_samples(), critical_embeddings(), critical_widths()])


def critical_samples():
    """Returns cells of N* in the study of the law, for both trigger paths."""
    lengths = {
        "L 4 and 16": "L <= 16",
        "L 64 and 256": "64 <= L <= 256",
        "L from 1024": "L >= 1024",
        "all": "L > 0",
    }
    parts = {
        f"N*, {name}, {part}": f"{inside} and {length}"
        for name, inside in WAYS.items()
        for part, length in lengths.items()
    }
    return stacked(crossed("theta == 0.5"), "", parts)


def critical_embeddings():
    """Returns cells of N* in the study of embeddings, trigger in the value and key."""
    cells = searched("embeddings").dropna(subset="N_star").sort_values("embedding")
    cells = with_theory(cells, "embedding")
    return cells.assign(**{"": "N*, study of embeddings, " + cells["embedding"]})


def critical_widths():
    """Returns cells of m*, the width at which a layer recalls one half."""
    parts = {
        f"m*, {name}, {activation}": f"{inside} and activation in {kinds}"
        for name, inside in WAYS.items()
        for activation, kinds in ACTIVATIONS.items()
    }
    return stacked(width.compared(), "", parts)


WAYS = {"trigger out": "not trigger_in_value", "trigger in": "trigger_in_value"}
ACTIVATIONS = {
    "cubic": ["cubic"],
    "quadratic": ["quadratic"],
    "both": ["cubic", "quadratic"],
}


INFINITE = 3.0
"""The error in ln N* that counts for an infinite prediction, where N* was found."""


@as_table([""], ERRORS | {"largest": largest_abs, "infinite": infinite_predictions})
def held_out():
    """N* of the study theory-held-out: |ln(predicted / measured)|.

    An infinite prediction counts as 3.
    """
    found = searched("theory-held-out").dropna(subset="N_star")
    found = found[found["embedding"].str.match("gaussian|equicorrelated")]
    found = found.fillna({"kappa": 100.0})
    found = with_theory(found, "trigger_in_value", "embedding", "kappa")
    kappas = "kappa = " + found["kappa"].map("{:g}".format)
    names = found["embedding"].mask(found["embedding"] == "gaussian", kappas)
    return found.assign(off=found["off"].clip(-INFINITE, INFINITE), **{"": names})


@as_table(
    [*SIZES, "trigger", "first_steps", "eta"],
    {
        "predicted": "{predicted:commas}",
        "observed [95 %]": with_interval("commas"),
        "ln(predicted / observed)": "{off:+.2f}",
        "theory of today": "{today:commas}",
        "ln(today / observed)": "{off_today:+.2f}",
    },
)
def first_steps_held_out():
    """N* after several first steps, predicted before the runs, observed, and by the
    theory of today.
    """
    fields = ["trigger_in_value", "first_steps", "eta"]
    found = with_theory(searched("first-steps-held-out"), *fields)
    found = found.rename(columns={"predicted": "today", "off": "off_today"})
    before = pd.read_csv(STUDY / "first-steps-held-out/predictions.csv")
    found = found.merge(before, on=[*SIZES, *fields])
    return found.assign(off=np.log(found["predicted"] / found["N_star"]))


SEVERAL = "first_steps == L // 8 and not trigger_in_value"


@as_table(
    SIZES,
    {
        "observed [95 %]": with_interval("commas"),
        "theory": "{predicted:commas}",
        "ln(theory / observed)": "{off:+.2f}",
    },
    missing="out of range",
)
def several_first_steps():
    """N* after L / 8 first steps at a quarter of the rate that cancels the mean bias,
    trigger in the key only, beside theory.
    """
    found = searched("first-steps-long").query(SEVERAL)
    found = found.assign(eta=found["V"] ** 2 / (1 + found["V"] / found["d"]) / 4)
    predicted = on_all_cores(covered_N, models_of(found, *OF_FIRST_STEPS))
    off = np.log(predicted / found["N_star"])
    return found.assign(predicted=predicted, off=off)


OF_FIRST_STEPS = ["trigger_in_value", "first_steps", "eta"]
OF_LAST_STEPS = [*OF_FIRST_STEPS, "steps", "trains", "lr", "gamma2"]

LAST_STEPS = "steps == 67 and not trigger_in_value and theta == 0.5"


@cache
def after_last_steps():
    """Returns cells with 65 last steps, trigger in the key only, beside theory."""
    studies = ["steps", "steps-wide", "steps-long", "many-steps"]
    found = [searched(study).assign(study=study) for study in studies]
    found = (
        pd.concat(found).query(LAST_STEPS).astype({"steps": int, "first_steps": int})
    )
    predicted = on_all_cores(covered_N, models_of(found, *OF_LAST_STEPS))
    off = np.log(predicted / found["N_star"])
    return found.assign(predicted=predicted, off=off)


@as_table(
    ["study", *SIZES, "first_steps"],
    {
        "observed [95 %]": with_interval("commas"),
        "theory": "{predicted:commas}",
        "ln(theory / observed)": "{off:+.2f}",
    },
    missing="out of range",
)
def several_last_steps():
    """N* after 65 last steps, trigger in the key only, beside theory."""
    return after_last_steps()


@as_table(["last steps"], ERRORS | {"largest": largest_abs})
def several_last_steps_errors():
    """N* after 65 last steps, trigger in the key only: ln(theory / observed)."""
    cells = after_last_steps().dropna(subset=["N_star", "predicted"])
    return cells.assign(**{"last steps": 65})


def covered_N(model):
    """Returns critical N by theory, or NaN out of its range."""
    try:
        return critical_N(model)
    except jaxrecall.errors.TheoryError:
        return np.nan


@as_table(
    [""],
    {
        "layers": len,
        "mean absolute error": "{size:.3f}",
        "mean error": "{off:+.3f}",
        "largest": largest_abs,
    },
)
def layer_accuracy():
    """Accuracy of layers with plenty of samples: predicted minus observed."""
    fields = ["activation", "trigger_in_value", "m", "kappa", "embedding"]
    rows = load(STUDY / "mlp").query("m > 0")
    rows = rows.groupby([*SIZES, *fields, "N"], as_index=False)["accuracy"].mean()
    rows = rows.sort_values(["trigger_in_value", "activation"], kind="stable")
    theirs = on_all_cores(accuracy, models_of(rows, *fields), rows["N"])
    off = np.array(theirs) - rows["accuracy"]
    name = (
        "trigger in the "
        + rows["trigger_in_value"].map(TRIGGER)
        + ", "
        + rows["activation"]
    )
    return rows.assign(off=off, size=off.abs(), **{"": name})


def quartile(share):
    """Makes a cell of a quantile of observed over predicted values."""
    return lambda rows: f"{rows['ratio'].quantile(share):.2f}"


QUARTILES = {
    "points": len,
    "median": quartile(0.5),
    "first quartile": quartile(0.25),
    "third quartile": quartile(0.75),
}


@as_table([""], QUARTILES)
def snr_errors():
    """Observed over predicted snr.

    Points with orthogonal embeddings have snr below 20. Points with layers have snr
    below 0.9 sqrt(d).
    """
    orthogonal = noise().query("embedding == 'orthogonal' and 0 <= snr <= 20")
    orthogonal = over_theory(orthogonal, "snr").sort_values("L")
    by_length = "orthogonal, L = " + orthogonal["L"].astype(str)
    layers = over_theory(noise().query("m > 0 and 0 <= snr <= 0.9 * d ** 0.5"), "snr")
    trigger = layers["trigger_in_value"].map(TRIGGER)
    by_layer = layers["activation"] + ", " + trigger
    return pd.concat(
        [
            orthogonal.assign(**{"": by_length}),
            orthogonal.assign(**{"": "all orthogonal"}),
            layers.assign(**{"": by_layer}).sort_values(""),
        ]
    )


@as_table(["V / d"], QUARTILES)
def gradient_noise():
    """Gradient noise without an MLP: observed over predicted.

    The points are those where counts of labels times counts of tokens make most of the
    noise.
    """
    rows = noise().query("noise_gradient >= 0 and snr > 1 and N * V < L ** 3")
    rows = over_theory(rows, "noise_gradient")
    return rows.assign(**{"V / d": rows["V"] / rows["d"]}).sort_values("V / d")


FIELDS = ["activation", "trigger_in_value", "m", "embedding", "kappa"]


def noise():
    """Returns medians over the seeds of each point of the study of noise."""
    points = load(STUDY / "noise").groupby([*FIELDS, *SIZES, "N"])
    return points[["snr", "noise_gradient"]].median().reset_index()


def over_theory(rows, column):
    """Returns rows with the `ratio` of a column to its prediction."""
    name = column.removeprefix("noise_")
    points = zip(models_of(rows, *FIELDS), rows["N"], strict=True)
    theirs = [getattr(score_noise(model, N), name) for model, N in points]
    return rows.assign(ratio=rows[column] / theirs)
