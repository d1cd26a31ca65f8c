"""What replaces V/d for embeddings with structure, from results/study/structure.

The tables and figures show critical N against the effective dimension of the rows.
`python results/structure.py` writes sweeps/structure.npy, which contains the rows of
the laws `array` of the study.
"""

import re
from contextlib import chdir
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from drawing import DASH, GREY, MARKERS, above, canvas, line, log_axis, shades
from law import markdown, on_all_cores, searched
from scipy.special import stdtrit

import jaxrecall
from jaxrecall.theory import Model, critical_N

TABLE = Path(__file__).parent.parent / "sweeps/structure.npy"
SEEDS = 4
"""The number of seeds whose tables the effective dimension is averaged over.

The tables differ by a few percent.
"""

WHERE = [*product((8, 1024), (True, False))]
LOOKS = dict(
    zip(
        ("gaussian", "equicorrelated", "low_rank", "clustered", "power_law", "array"),
        zip(
            MARKERS,
            ("black", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00"),
            strict=False,
        ),
        strict=True,
    )
)
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
    found = searched("structure")
    found = found[found["embedding"] == found["embedding_out"]].reset_index(drop=True)
    return found.assign(law=found["embedding"].str.partition("(")[0])


@cache
def cells():
    """Returns the cells with the same law on both sides, with effective dimensions and
    N*.

    There is the observed N* and three predictions: with d, with the dimension that
    replaces d, and by the formula of the law. Only gaussian and equicorrelated have a
    formula.
    """
    found = both_sides()
    about = [
        dimensions(*at) for at in found[["embedding", "V", "d"]].itertuples(index=False)
    ]
    found[["effective", "centred"]] = np.array(about)
    for name in MEASURES:
        found[f"x_{name}"] = found["V"] / found[name]
    # V / d_eff of independent rows in d isotropic dimensions is V / d + 1, because each
    # row also overlaps with itself
    found["isotropic"] = found["V"] / np.maximum(found["x_effective"] - 1, 1e-3)
    for name, by in (("with_d", "d"), ("predicted", "isotropic")):
        sizes = found[["V", by, "L", "trigger_in_value"]].itertuples(index=False)
        found[name] = predicted(
            Model(V=V, d=max(2, round(d)), L=L, trigger_in_value=inside)
            for V, d, L, inside in sizes
        )
    derived = found["law"].isin(DERIVED)
    fields = ["V", "d", "L", "trigger_in_value", "embedding"]
    found["derived"] = np.nan
    found.loc[derived, "derived"] = predicted(
        Model(**row) for row in found.loc[derived, fields].to_dict("records")
    )
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


def crossed(L, inside):
    """Returns the cells of one panel whose N* was found."""
    found = cells()
    return found[
        (found["L"] == L)
        & (found["trigger_in_value"] == inside)
        & found["N_star"].notna()
    ]


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
    return f"L = {L}, trigger {'in the value path' if inside else 'out of it'}"


def structure_collapse():
    """Rms of ln N* around one curve in V/d, in V/d_eff, and in V/d_eff of centred rows.

    The next columns are the rms of ln(predicted / measured).
    """
    body = []
    for L, inside in WHERE:
        every = crossed(L, inside)
        for laws, mine in (
            ("all", every),
            ("without equicorrelated", every[every["law"] != "equicorrelated"]),
        ):
            numbers = [f"{rms(residual(mine, by)):.2f}" for by in MEASURES]
            theory = [
                f"{rms(errors(mine, name)):.2f}, {len(errors(mine, name))}"
                for name in ("with_d", "predicted")
            ]
            body.append(
                [
                    name_of(L, inside),
                    laws,
                    len(mine),
                    *numbers,
                    *theory,
                    f"{mine['error'].median():.2f}",
                ]
            )
    return markdown(
        [
            "",
            "laws",
            "cells",
            *MEASURES.values(),
            "theory of V / d, cells",
            "theory of V / d_eff, cells",
            "noise",
        ],
        body,
    )


def errors(mine, name):
    """ln(measured / predicted), or -INFINITE if theory has no finite N*."""
    ratio = mine["N_star"] / mine[name]
    return np.log(ratio.where(ratio > np.exp(-INFINITE), np.exp(-INFINITE)))


def structure_derived():
    """|ln(measured / predicted)| of the laws that have a formula: median, largest,
    infinite ones.

    The columns compare the formula of the law with the theory of V/d_eff and of V/d.
    """
    body = []
    for L, inside in WHERE:
        for law in DERIVED:
            mine = crossed(L, inside)
            mine = mine[mine["law"] == law]
            for V_d, part in (
                (" V = d", mine[mine["V"] == mine["d"]]),
                (" V < d", mine[mine["V"] < mine["d"]]),
            ):
                cells = []
                for name in ("derived", "predicted", "with_d"):
                    off = errors(part, name).abs()
                    none = (~np.isfinite(part[name])).sum()
                    cells.append(f"{off.median():.3f}, {off.max():.2f}, {none}")
                body.append([name_of(L, inside), law + "," + V_d, len(part), *cells])
    return markdown(
        [
            "",
            "law",
            "cells",
            "formula of the law",
            "theory of V / d_eff",
            "theory of V / d",
        ],
        body,
    )


def structure_laws():
    """Mean of ln(measured / predicted from V/d_eff) by law.

    Each cell has the 95 % interval and the number of cells.
    """
    body = []
    for law in LOOKS:
        line = [law]
        for L, inside in WHERE:
            mine = crossed(L, inside)
            off = errors(mine[mine["law"] == law], "predicted")
            if len(off) < 3:
                line.append("too few cells")
                continue
            half = off.std() / len(off) ** 0.5 * stdtrit(len(off) - 1, 0.975)
            line.append(
                f"{off.mean():+.2f} [{off.mean() - half:+.2f},"
                f" {off.mean() + half:+.2f}], {len(off)}"
            )
        body.append(line)
    return markdown(["law", *(name_of(*at) for at in WHERE)], body)


def found_or(cell):
    """Formats N* with three digits, or the reason why there is none."""
    if not cell["N_star"] > 0:
        return {"right": "none to 1e9", "plateau": "levels off"}.get(
            cell["outcome"], cell["outcome"]
        )
    return f"{cell['N_star']:.3g}".replace("e+0", "e")


def structure_critical(V=128, d=128):
    """N* and the effective dimension by law, at V 128, d 128.

    N* has an interval of about +-20 %.
    """
    found = cells()
    found, body = found[(found["V"] == V) & (found["d"] == d)], []
    for law, mine in found.groupby("embedding", sort=False):
        at = mine.set_index(["L", "trigger_in_value"])
        ratios = f"{mine['effective'].iloc[0]:.1f}", f"{mine['centred'].iloc[0]:.1f}"
        body.append(
            [
                re.sub(r'path="([^#"]*)[^"]*"', r"\1", law),
                *ratios,
                *(found_or(at.loc[where]) for where in WHERE),
            ]
        )
    return markdown(["law", "d_eff", "centred", *(name_of(*at) for at in WHERE)], body)


def structure_sides():
    """N* at V 128, d 128 with structure on neither, both, or one of the sides."""
    found, body = searched("structure"), []
    found = (
        found[(found["V"] == 128) & (found["d"] == 128)]
        .set_index(["embedding", "embedding_out", "L", "trigger_in_value"])
        .sort_index()
    )
    for law in (
        "equicorrelated(rho=0.3)",
        "low_rank(rank=32)",
        "clustered(clusters=8)",
        "power_law(alpha=0.75)",
    ):
        for L, inside in WHERE:
            sides = [
                ("gaussian", "gaussian"),
                (law, law),
                (law, "gaussian"),
                ("gaussian", law),
            ]
            body.append(
                [
                    law,
                    name_of(L, inside),
                    *(
                        found_or(found.loc[(*side, L, inside)].squeeze())
                        for side in sides
                    ),
                ]
            )
    return markdown(["law", "", "neither", "both", "input", "output"], body)


def collapsed():
    """Draws N* against V/d and against V/d_eff by law, for each length and trigger
    path.

    The lines are the theory of isotropic rows.
    """
    figure, panels = canvas(2, 4, 4.6, sharex="row", sharey="col")
    for column, (L, inside) in enumerate(WHERE):
        mine = crossed(L, inside)
        for row, by in enumerate(("d", "effective")):
            ax = panels[row, column]
            for law, (marker, colour) in LOOKS.items():
                for V, face in ((64, "none"), (128, colour)):
                    one = mine[(mine["law"] == law) & (mine["V"] == V)]
                    how = {
                        "color": colour,
                        "marker": marker,
                        "markerfacecolor": face,
                        "linestyle": "none",
                        "markersize": 3,
                    }
                    ax.plot(one[f"x_{by}"], one["N_star"], **how)
            ax.set(xscale="log", yscale="log", xlabel=MEASURES[by])
            ax.grid(True)
            log_axis(ax.xaxis)
            log_axis(ax.yaxis)
        panels[1, column].set_xticks([2, 5, 20, 60], ["2", "5", "20", "60"])
        ratios = np.geomspace(
            max(mine["x_effective"].min() - 1, 0.1), mine["x_effective"].max() - 1, 25
        )
        for V, shade in zip((64, 128), shades(2), strict=True):
            models = [
                Model(V=V, d=max(2, round(V / ratio)), L=L, trigger_in_value=inside)
                for ratio in ratios
            ]
            panels[1, column].plot(
                ratios + 1,
                predicted(models),
                color=shade,
                linestyle=DASH,
                linewidth=0.9,
            )
        panels[0, column].set(title=f"L = {L},\ntrigger {'in' if inside else 'out'}")
    figure.supylabel("N*: samples for a test accuracy of 1/2", fontsize=8)
    entries = [
        line(name, marker=marker, color=colour, linestyle="none")
        for name, (marker, colour) in LOOKS.items()
    ]
    entries += [line("V = 64: open", linestyle="none")]
    entries += [
        line(f"theory, V = {V}", color=shade, linestyle=DASH)
        for V, shade in zip((64, 128), shades(2), strict=True)
    ]
    above(figure, entries)
    return "collapse", figure


AXES = {
    "embedding.rho": ("rho", "equicorrelated"),
    "embedding.rank": ("rank, noise = 0", "low_rank"),
    "embedding.clusters": ("clusters, spread = 0.5", "clustered"),
    "embedding.alpha": ("alpha", "power_law"),
}


DEFAULTS = {"rho": 0.0, "rank": 16.0, "clusters": 16.0, "alpha": 1.0}


def parameter(laws, name):
    """The value of a parameter in the text of each law, which leaves out defaults."""
    return (
        laws.str.extract(rf"\b{name}=([0-9.e+-]+)")[0]
        .astype(float)
        .fillna(DEFAULTS.get(name))
    )


def along():
    """Draws N* over that of gaussian rows against each parameter, at V 128, d 128."""
    found = both_sides()
    found = found[(found["V"] == 128) & (found["d"] == 128)]
    plain = found[found["law"] == "gaussian"].set_index(["L", "trigger_in_value"])[
        "N_star"
    ]
    figure, panels = canvas(1, 4, 2.7, sharey=True)
    for ax, (dotted, (label, law)) in zip(panels[0], AXES.items(), strict=True):
        mine = found[
            (found["law"] == law) & ~found["embedding"].str.contains("noise|spread")
        ]
        mine = mine.assign(
            x=parameter(mine["embedding"], dotted.partition(".")[2])
        ).sort_values("x")
        for row, ((L, inside), marker, colour) in enumerate(
            zip(WHERE, MARKERS, shades(4), strict=False)
        ):
            one = mine[(mine["L"] == L) & (mine["trigger_in_value"] == inside)]
            base = plain[L, inside]
            ends = [
                (one["N_star"] - one["lo"]) / base,
                (one["hi"] - one["N_star"]) / base,
            ]
            ax.errorbar(
                one["x"],
                one["N_star"] / base,
                yerr=ends,
                color=colour,
                marker=marker,
                markersize=3,
                linewidth=0.8,
                elinewidth=0.7,
            )
            none = one[one["N_star"].isna()]
            ax.plot(
                none["x"],
                np.full(len(none), 0.97 - 0.04 * row),
                color=colour,
                marker="x",
                linestyle="none",
                transform=ax.get_xaxis_transform(),
            )
        ax.axhline(1, color="black", linestyle=DASH)
        ax.set(yscale="log", xlabel=label)
        if law in ("low_rank", "clustered"):
            ax.set(xscale="log")
            log_axis(ax.xaxis)
        ax.grid(True)
        log_axis(ax.yaxis)
    panels[0, 0].set(ylabel="N* over that of gaussian rows")
    entries = [
        line(name_of(*at), marker=m, color=c)
        for at, m, c in zip(WHERE, MARKERS, shades(4), strict=False)
    ]
    above(
        figure,
        [*entries, line("no N* found", marker="x", color=GREY, linestyle="none")],
    )
    return "along", figure


TABLES = (
    structure_collapse,
    structure_derived,
    structure_laws,
    structure_critical,
    structure_sides,
)

if __name__ == "__main__":
    np.save(TABLE, learned_table())
    print(TABLE)
