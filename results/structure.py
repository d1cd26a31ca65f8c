"""What replaces V/d for embeddings with structure, from results/study/structure.

The tables and figures show critical N against the effective dimension of the rows.
`python results/structure.py` writes sweeps/structure.npy, which contains the rows of
the laws `array` of the study.
"""

import re
from contextlib import chdir
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from law import DASHED, TRIGGER, models_of, on_all_cores, searched, with_trigger
from table import as_table, bracketed, interval, stacked, with_interval

import jaxrecall
from jaxrecall import plot
from jaxrecall.theory import critical_N

TABLE = Path(__file__).parent.parent / "sweeps/structure.npy"
SEEDS = 4
"""The number of seeds whose tables the effective dimension is averaged over.

The tables differ by a few percent.
"""

PANEL = ["L", "trigger"]
N_STARS = ["N_star", "lo", "hi"]
LAWS = [
    "gaussian",
    "equicorrelated",
    "low_rank",
    "clustered",
    "power_law",
    "array",
]
DERIVED = ("gaussian", "equicorrelated")
"""The laws with a formula of their own."""

INFINITE = 3.0
"""The error in ln N* that counts for an infinite prediction, where N* was found."""

MEASURES = {"d": "V / d", "effective": "V / d_eff", "centred": "V / d_eff, centred"}


def learned_table(R=512, D=256, seed=0):
    """Returns a table with the features of a learned one, (R, D) float16.

    A row is e^(0.3 n) times a sum of three vectors, where n is standard normal. The
    first is one of 32 centres, and the second is the row's own normals. Both have
    variances proportional to i^-0.7 along the axes. The third is a direction that all
    rows share, with half the squared length of the rest.
    """
    rng = np.random.default_rng(seed)
    spectrum = np.arange(1, D + 1) ** -0.35
    centres = rng.standard_normal((32, D))[rng.integers(32, size=R)]
    rows = (
        np.sqrt(0.3) * centres + np.sqrt(0.7) * rng.standard_normal((R, D))
    ) * spectrum
    common = rng.standard_normal(D)
    rows += common * np.sqrt(0.5 * np.sum(spectrum**2)) / np.linalg.norm(common)
    return (rows * np.exp(0.3 * rng.standard_normal((R, 1)))).astype(np.float16)


def effective_dimension(Z, centred=False):
    """(tr S)^2 / tr S^2, where S is the mean of z z^T over the rows z of Z (V, d).

    With `centred`, the mean row is subtracted first.
    """
    Z = Z - Z.mean(axis=0) if centred else Z
    gram = Z @ Z.T if len(Z) < Z.shape[1] else Z.T @ Z
    return np.trace(gram) ** 2 / np.sum(gram**2)


@cache
def dimensions(law, V, d):
    """The effective dimensions of Z_in of a law, as it is and centred.

    Each is the harmonic mean over seeds.
    """
    with chdir(
        TABLE.parent
    ):  # the path of the table in the law is relative to this folder
        point = jaxrecall.Point(V=V, d=d, L=2, N=1, n_test=1, embedding=law)
        tables = [
            np.asarray(jaxrecall.realize(point, seed).Z_in, np.float64)
            for seed in range(SEEDS)
        ]
    return [
        1 / np.mean([1 / effective_dimension(Z, centred) for Z in tables])
        for centred in (False, True)
    ]


def both_sides():
    """Returns the cells with the same law on both sides."""
    found = searched("structure").query("embedding == embedding_out")
    return found.assign(law=found["embedding"].str.partition("(")[0])


def in_places(found):
    """Returns cells in the order of panels, with their L and trigger in words."""
    found = found.sort_values(["L", "trigger"], kind="stable")
    places = zip(found["L"], found["trigger_in_value"], strict=True)
    return found.assign(where=[name_of(*place) for place in places])


@cache
def measured():
    """Returns the cells with the same law on both sides, with their N* and with V over
    d and over both effective dimensions.
    """
    found = both_sides().reset_index(drop=True)
    laws = found[["embedding", "V", "d"]].itertuples(index=False)
    found[["effective", "centred"]] = np.array([dimensions(*law) for law in laws])
    for name in MEASURES:
        found[f"x_{name}"] = found["V"] / found[name]
    return found


@cache
def cells():
    """Returns the measured cells with theory.

    There are three predictions of N*: with d, with the dimension that replaces d, and
    by the formula of the law. Only gaussian and equicorrelated have a formula. `off_`
    and the name of a prediction is ln(measured / predicted), or -INFINITE if theory has
    no finite N*.
    """
    found = measured().copy()
    # V / d_eff of independent rows in d isotropic dimensions is V / d + 1, because each
    # row also overlaps with itself
    isotropic = found["V"] / np.maximum(found["x_effective"] - 1, 1e-3)
    width = isotropic.round().clip(lower=2).astype(int)
    derived = found[found["law"].isin(DERIVED)]
    fields = "trigger_in_value", "embedding"
    models = {
        "with_d": models_of(found, *fields[:1]),
        "predicted": models_of(found.assign(d=width), *fields[:1]),
        "derived": models_of(derived, *fields),
    }
    for name, mine in models.items():
        at = derived.index if name == "derived" else found.index
        found[name] = pd.Series(predicted(mine), at)
        least = np.exp(-INFINITE)
        ratio = found["N_star"] / found[name]
        found[f"off_{name}"] = np.log(ratio.where(ratio > least, least))
    return found


def predicted(models):
    """Returns the predicted N* of each model."""
    models = [*models]
    different = [*dict.fromkeys(models)]
    found = dict(zip(different, on_all_cores(critical_or_nan, different), strict=True))
    return [found[model] for model in models]


def critical_or_nan(model):
    """The predicted N*, or nan if rows overlap too much for the formulas."""
    try:
        return critical_N(model)
    except ValueError:
        return np.nan


def residual(mine, by):
    """The residual of ln N* from a least-squares curve.

    The curve is a constant, ln V, and a cubic in ln(V / by). It is quadratic if `by` is
    d.
    """
    x = np.log(mine[f"x_{by}"].to_numpy(float))
    X = np.column_stack(
        [
            np.ones(len(mine)),
            np.log(mine["V"]),
            *(x**k for k in ((1, 2) if by == "d" else (1, 2, 3))),
        ]
    )
    y = np.log(mine["N_star"].to_numpy())
    return y - X @ np.linalg.lstsq(X, y, rcond=None)[0]


def rms(off):
    return np.sqrt(np.mean(np.square(off)))


def name_of(L, inside):
    return f"L = {L}, {TRIGGER[inside]}"


def around(by):
    """Makes a cell of the rms of ln N* around one curve."""
    return lambda mine: f"{rms(residual(mine, by)):.2f}"


def rms_of(name):
    """Makes a cell of the rms error of a prediction, and the number of cells."""
    return lambda mine: f"{rms(mine[name]):.2f}, {len(mine)}"


@as_table(
    ["where", "laws"],
    {
        "cells": len,
        **{head: around(by) for by, head in MEASURES.items()},
        "theory of V / d, cells": rms_of("off_with_d"),
        "theory of V / d_eff, cells": rms_of("off_predicted"),
        "noise": lambda mine: f"{mine['error'].median():.2f}",
    },
)
def structure_collapse():
    """Rms of ln N* around one curve in V/d, in V/d_eff, and in V/d_eff of centred rows.

    The next columns are the rms of ln(predicted / measured).
    """
    parts = {"all": "V > 0", "without equicorrelated": "law != 'equicorrelated'"}
    return in_places(stacked(cells().query("N_star > 0"), "laws", parts))


def errors(name):
    """Makes a cell of the median and the largest error of a prediction, and of the
    number of infinite ones.
    """

    def cell(mine):
        off = mine[f"off_{name}"].abs()
        none = (~np.isfinite(mine[name])).sum()
        return f"{off.median():.3f}, {off.max():.2f}, {none}"

    return cell


@as_table(
    ["where", "law"],
    {
        "cells": len,
        "formula of the law": errors("derived"),
        "theory of V / d_eff": errors("predicted"),
        "theory of V / d": errors("with_d"),
    },
)
def structure_derived():
    """|ln(measured / predicted)| of the laws that have a formula: median, largest,
    infinite ones.

    The columns compare the formula of the law with the theory of V/d_eff and of V/d.
    """
    found = cells().query("N_star > 0 and law in @DERIVED and V <= d")
    sizes = np.where(found["V"] == found["d"], ", V = d", ", V < d")
    found = in_places(found.assign(law=found["law"] + sizes))
    return found.sort_values(["L", "trigger", "law"], ascending=[True, True, False])


def mean_error(mine):
    """Formats the mean error of the theory of V/d_eff with its interval."""
    if len(mine) < 3:
        return "too few cells"
    return f"{bracketed(interval(mine['off_predicted']), '+.2f')}, {len(mine)}"


@as_table(["law"], {"{where}": mean_error}, missing="too few cells")
def structure_laws():
    """Mean of ln(measured / predicted from V/d_eff) by law.

    Each cell has the 95 % interval and the number of cells.
    """
    laws = {law: f"N_star > 0 and law == '{law}'" for law in LAWS}
    return stacked(in_places(cells()), "law", laws)


N_STAR = with_interval(interval=False)


@as_table(
    ["law"], {"d_eff": "{effective:.1f}", "centred": "{centred:.1f}", "{where}": N_STAR}
)
def structure_critical():
    """N* and the effective dimension by law, at V 128, d 128.

    N* has an interval of about +-20 %.
    """
    found = in_places(cells().query("V == 128 and d == 128"))
    path = re.compile(r'path="([^#"]*)[^"]*"')
    return found.assign(law=found["embedding"].str.replace(path, r"\1", regex=True))


@as_table(["law", "where"], {"{side}": N_STAR})
def structure_sides():
    """N* at V 128, d 128 with structure on neither, both, or one of the sides."""
    found = in_places(searched("structure").query("V == 128 and d == 128"))
    laws = "embedding == '{}' and embedding_out == '{}'"
    lines = []
    for law in (
        "equicorrelated(rho=0.3)",
        "low_rank(rank=32)",
        "clustered(clusters=8)",
        "power_law(alpha=0.75)",
    ):
        sides = {
            "neither": laws.format("gaussian", "gaussian"),
            "both": laws.format(law, law),
            "input": laws.format(law, "gaussian"),
            "output": laws.format("gaussian", law),
        }
        lines.append(stacked(found, "side", sides).assign(law=law))
    return pd.concat(lines)


def collapsed():
    """N* against V/d_eff by law, for each length and trigger path.

    The lines are the theory of isotropic embeddings.
    """
    found = with_trigger(measured().query("N_star > 0"))
    found = found.assign(law=pd.Categorical(found["law"], LAWS))
    found = found.assign(ratio=found["x_effective"])
    found = found[[*PANEL, "trigger_in_value", "V", "law", "ratio", "N_star"]]
    large, small = found.query("V == 128"), found.query("V == 64")
    theory = isotropic(found)
    dashed = DASHED | {"zorder": 4}
    dotted = dashed | {"linestyle": ":"}
    hollow = {"open": True, "linestyle": "none"}
    over = [
        plot.Points(large, "N_star"),
        plot.Points(small, "N_star", "open: V = 64", hollow),
        plot.Polyline(theory.query("V == 64"), "N_star", "theory, V = 64", dotted),
        plot.Polyline(theory.query("V == 128"), "N_star", "theory, V = 128", dashed),
    ]
    # a figure refuses two estimates of a line at one place, so `over` has all of them
    return plot.figure(
        large.drop_duplicates([*PANEL, "law", "ratio"]).drop(
            columns="trigger_in_value"
        ),
        "N_star",
        x="ratio",
        lines="law",
        columns=PANEL,
        over=over,
        scale="log",
        size="5.5x3",
        labels={
            "N_star": "N*: samples for a test accuracy of 1/2",
            "ratio": "V / d_eff",
            "law": "",
            "trigger": "",
        },
    )


def isotropic(found):
    """Returns the predicted N* of isotropic rows along V / d_eff, in each panel."""
    places = found.groupby(["L", "trigger_in_value"])["ratio"]
    ends = places.agg(["min", "max"]) - 1
    tables = []
    for (L, inside), (low, high) in ends.iterrows():
        ratios = np.geomspace(max(low, 0.1), high, 25)
        table = pd.DataFrame({"ratio": ratios, "L": L, "trigger_in_value": inside})
        tables += [table.assign(V=V) for V in (64, 128)]
    table = pd.concat(tables)
    width = (table["V"] / table["ratio"]).round().clip(lower=2).astype(int)
    N_star = predicted(models_of(table.assign(d=width), "trigger_in_value"))
    return with_trigger(table.assign(ratio=table["ratio"] + 1, N_star=N_star))


PARAMETERS = {
    "embedding.rho": "rho",
    "embedding.rank": "rank, noise = 0",
    "embedding.clusters": "clusters, spread = 0.5",
    "embedding.alpha": "alpha",
}


def along():
    """N* over that of gaussian embeddings against each parameter, at V 128, d 128."""
    found = with_trigger(both_sides().query("V == 128 and d == 128"))
    plain = found.query("law == 'gaussian'").set_index(PANEL)["N_star"]
    found = found.join(plain.rename("plain"), on=PANEL)
    found[N_STARS] = found[N_STARS].div(found["plain"], axis=0)
    found = found[~found["embedding"].str.contains("noise|spread")]
    table = found.melt([*PANEL, *N_STARS], [*PARAMETERS], "parameter", "value")
    table = table.dropna(subset="value")
    names = table["parameter"].map(PARAMETERS)
    table["parameter"] = pd.Categorical(names, [*PARAMETERS.values()])
    places = table[[*PANEL, "parameter", "value"]]
    none = places[table["N_star"].isna()]
    top = 500 * 1.5 ** none.groupby(PANEL).ngroup()
    cross = {"marker": "x", "linestyle": "none"}
    over = [
        plot.Polyline(
            places.drop(columns=PANEL).assign(plain=1.0), "plain", "", DASHED
        ),
        plot.Points(
            none.assign(top=top), "top", "no N* found; height means nothing", cross
        ),
    ]
    return plot.figure(
        table,
        "N_star",
        x="value",
        lines=PANEL,
        panels="parameter",
        over=over,
        joined=True,
        share_x=False,
        labels={
            "N_star": "N* over that of gaussian embeddings",
            "value": "value of the parameter",
            "parameter": "",
            "trigger": "",
        },
        size="5.5x4.6",
    )


if __name__ == "__main__":
    np.save(TABLE, learned_table())
    print(TABLE)
