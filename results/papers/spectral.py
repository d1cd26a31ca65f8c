"""The spectral recipe, whose gradients are made polar, from the committed tables.

The tables show what attention learns and how many samples it needs.

python results/papers/spectral.py            # the rows of the tables, in Markdown
python results/papers/spectral.py --draw     # and the figure beside this file
"""

import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from shared import (
    as_table,
    at,
    bracketed,
    formatted,
    interval,
    print_tables,
    tables_of,
    with_interval,
)

import jaxrecall
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N

HERE = Path(__file__).parent
PLAIN = 1e6
RECIPES = {
    "plain": (PLAIN, PLAIN),
    "step 1": (0.0, PLAIN),
    "step 3": (PLAIN, 0.0),
    "steps 1 and 3": (0.0, 0.0),
}
LENGTH = "L: sequence length, tokens"
COLOURS = {
    "plain": "#D55E00",
    "step 1": "#0072B2",
    "step 3": "#CC79A7",
    "steps 1 and 3": "#009E73",
}
COMPARED = ("plain", "steps 1 and 3")
SHADES = ("#440154", "#31688E", "#35B779", "#D4A017")
LOOK = {"markersize": 3, "linewidth": 1, "elinewidth": 0.7}
BASE = {
    "V": 64,
    "d": 128,
    "N": 2048,
    "sequences": 256,
    "pool": True,
    "push": 100.0,
    "eta": 1e-4,
}
LENGTHS = (8, 16, 32, 64)
LONG = 256
"""The smallest length in the laws of long sequences."""


def of(rows, recipe):
    lam1, lam3 = RECIPES[recipe]
    return at(rows, lam1=lam1, lam3=lam3)


def with_recipes(rows, recipes):
    """Returns the rows of some recipes, with their names and the trigger in words."""
    found = pd.concat([of(rows, recipe).assign(recipe=recipe) for recipe in recipes])
    return found.assign(
        trigger=found["trigger_in_value"].map({True: "in", False: "out"})
    )


def base(**values):
    """Returns the rows of the usual sizes, or with other values of these."""
    values = {
        name: value for name, value in (BASE | values).items() if value is not None
    }
    return at(jaxrecall.load(HERE / "spectral"), **values)


def shares(s, V=64):
    """The probabilities of Zipf tokens."""
    p = np.arange(1.0, V + 1) ** -s
    return p / p.sum()


def break_length(s):
    """L at which the most frequent noise token is pulled as strongly as the trigger.

    The formula is for polar steps, infinite N and orthogonal rows.
    """
    p = shares(s)
    return 1 / (p[0] * (p[0] - p @ p))


def moment(c):
    """The mean fourth power of the eigenvalues of Z_in Z_in^T, c = V / d.

    The eigenvalues have the Marchenko-Pastur distribution.
    """
    return 1 + 6 * c + 6 * c**2 + c**3


def crossings(rows):
    """(seeds,): L at which attention falls through one half.

    Attention is interpolated in ln L. The result is NaN if it does not cross.
    """
    found = []
    for _, mine in rows.groupby("seed"):
        mine = mine.sort_values("L")
        x, y = np.log(mine["L"].to_numpy(float)), mine["attention_mass"].to_numpy()
        below = np.flatnonzero(y < 0.5)
        i = below[0] if len(below) else 0
        found.append(
            x[i - 1] + (y[i - 1] - 0.5) / (y[i - 1] - y[i]) * (x[i] - x[i - 1])
            if i
            else np.nan
        )
    return np.array(found)


def with_break(rows):
    """Formats L at which attention is 1/2: geometric mean and interval over seeds."""
    return bracketed(np.exp(interval(crossings(rows))), ".1f")


@as_table(
    ["s", "N", "trigger"],
    {
        "{recipe}": with_break,
        "1 / p_1 (p_1 - sum p^2)": "{length:.1f}",
        "its root": "{root:.1f}",
    },
)
def breaks():
    """L at which attention falls below one half, by s and recipe.

    Numbers are geometric means [95 %] over seeds. The last columns are theory for
    infinitely many samples.
    """
    places = (
        "s == 0.5 and not (N == 65536 and trigger_in_value) or s > 0.5 and N == 2048"
    )
    found = with_recipes(base(N=None).query(f"s > 0 and ({places})"), COMPARED)
    length = found["s"].map(break_length)
    found = found.assign(length=length, root=length**0.5)
    return found.sort_values(["s", "N", "trigger"], kind="stable")


MEANS = "{attention_mass:.2f}, {accuracy:.2f}"


@as_table(["s", "L", "trigger"], {"{recipe}": MEANS})
def decomposition():
    """Attention and accuracy by recipe, N = 2048."""
    places = "s == 0.5 and L in (8, 64, 256) or s == 1 and L in (8, 16, 24)"
    found = with_recipes(base().query(places), RECIPES)
    return found.sort_values(["s", "L", "trigger_in_value"], kind="stable")


def along(field):
    """Makes a table of attention at s = 1, trigger out, along another choice.

    Step 3 is polar or like step 1.
    """
    index = ["lam1"] if field == "lam1" else ["lam1", field]

    @as_table(index, {"L = {L}": "{attention_mass:.2f}"})
    def rows():
        found = at(base(**{field: None}), s=1.0, trigger_in_value=False)
        found = found.query("(lam3 == 0 or lam1 == @PLAIN) and L in @LENGTHS")
        if field != "lam1":
            found = found.query("lam1 in (0, @PLAIN)")
        return found.sort_values(index)

    rows.__doc__ = f"Attention at s = 1, trigger out, along {field}"
    return rows


N_STAR = with_interval("commas")
OTHER = ("critical_other", "lo_other", "hi_other")
THREE = ("plain", "step 1", "steps 1 and 3")


@as_table(["trigger", "L"], {"{recipe}": N_STAR})
def critical():
    """N* [95 %] along L by trigger and recipe, V = d = 64."""
    found = with_recipes(jaxrecall.thresholds(HERE / "spectral-critical"), THREE)
    return found.sort_values(["trigger_in_value", "L"], kind="stable")


def all_sizes():
    """Returns the rows at L = 512, trigger out, of all V and d."""
    rows = jaxrecall.load(HERE / "spectral-critical")
    found = jaxrecall.load(HERE / "spectral-sizes")
    both = pd.concat(
        [found, at(rows, L=512, trigger_in_value=False)[found.columns]],
        ignore_index=True,
    )
    both.attrs = found.attrs
    return both


@as_table()
def exponents():
    """Exponents of N* along L, and along d and V at L = 512, with intervals.

    The intervals are over seeds.
    """
    rows, both = jaxrecall.load(HERE / "spectral-critical"), all_sizes()
    lines = [
        (way, recipe, "L", at(rows, trigger_in_value=way == "in").query("L >= @LONG"))
        for way in ("out", "in")
        for recipe in THREE
    ]
    lines += [
        ("out", recipe, axis, at(both, **{fixed: 64}))
        for recipe in COMPARED
        for axis, fixed in (("d", "V"), ("V", "d"))
    ]
    for way, recipe, axis, mine in lines:
        mine = of(mine, recipe)
        yield {
            "trigger": way,
            "recipe": recipe,
            "along": axis,
            "range": f"{mine[axis].min()} to {mine[axis].max()}",
            "exponent of N*": exponent(mine, axis),
        }


def exponent(rows, axis):
    """The exponent of N* along an axis, with its interval over seeds."""
    found = fit(rows, [0.5]).exponents.set_index("axis")
    return bracketed(found.loc[axis, ["exponent", "lo", "hi"]])


def predicted(V, d, L):
    """N* of long sequences with polar steps 1 and 3, up to a constant."""
    return L**1.5 * np.sqrt(moment(V / d) / (d * V))


@as_table(
    ["V", "d"],
    {
        "plain": with_interval("commas", names=OTHER),
        "steps 1 and 3": N_STAR,
        "ratio": "{ratio:.1f}",
        "over prediction": "{over:.2f}",
        "constant": "{constant:.2f}",
    },
)
def sizes():
    """N* at L = 512, trigger out.

    The last columns are N* with both steps polar over the prediction, and the constant
    of the prediction, which is the geometric mean of N* over it.
    """
    names = ("spectral-sizes", "spectral-critical")
    found = pd.concat([jaxrecall.thresholds(HERE / name) for name in names])
    found = found.fillna({"V": 64, "d": 64, "L": 512})
    found = found.query("L == 512 and trigger_in_value != True").sort_values(["V", "d"])
    plain, polar = (of(found, recipe) for recipe in COMPARED)
    both = polar.merge(plain, on=["V", "d"], suffixes=("", "_other"))
    times = both["critical"] / predicted(both["V"], both["d"], 512)
    constant = np.exp(np.log(times).mean())
    ratio = both["critical_other"] / both["critical"]
    return both.assign(ratio=ratio, over=times / constant, constant=constant)


@as_table(
    ["L", "recipe"],
    {"own noise": N_STAR, "pool": with_interval("commas", names=OTHER)},
)
def exact():
    """N* with independent noise in every sample, and N* with a pool of 256."""
    own, pooled = (
        jaxrecall.thresholds(HERE / f"spectral-{name}")
        for name in ("exact", "critical")
    )
    pooled = at(pooled, trigger_in_value=False)
    both = own.merge(pooled, on=["L", "lam1", "lam3"], suffixes=("", "_other"))
    return both.assign(recipe=np.where(both["lam1"] > 0, *COMPARED))


ORDER = ("mean_share", "effective_rank", "step1_memory_accuracy", "noise")


@as_table(["L", "step 1"], {name: f"{{{name}:.3f}}" for name in ORDER})
def order():
    """Order in V1 and noise of scores, for uniform tokens, trigger out, N = 2048.

    The columns are the share of |V1|^2 along the mean embedding, the effective rank,
    recall by V1, and the noise of scores over the trigger's score.
    """
    rows = at(base(), s=0.0, trigger_in_value=False, lam3=0.0)
    noise = rows["score_std"] / rows["trigger_score"]
    step = np.where(rows["lam1"] > 0, "plain", "polar")
    return rows.assign(noise=noise, **{"step 1": step}).sort_values(["L", "lam1"])


def slope(axis, values, critical_of):
    """The least-squares exponent of a predicted N* along an axis.

    The other sizes are those of `exponents`.
    """
    sizes = {"V": 64, "d": 64, "L": 512}
    found = [critical_of(**sizes | {axis: int(value)}) for value in values]
    return f"{np.polyfit(np.log(values), np.log(found), 1)[0]:.2f}"


def plain_theory(inside):
    """Returns the package's formula of N* as a function of sizes."""
    return lambda **size: critical_N(Model(**size, trigger_in_value=inside), 0.5)


@as_table()
def verdict():
    """The effects of plain and polar gradients, measured [95 % over seeds] and by
    theory.
    """
    heads = ["plain", "steps 1 and 3 polar", "theory, plain", "theory, polar"]
    for effect, measured, theory in effects():
        yield {"": effect} | dict(zip(heads, [*measured, *theory], strict=True))


def effects():
    """Yields the name of each effect, and how large it is with both recipes.

    The first pair is measured, the second by theory.
    """
    rows = at(base(N=None), trigger_in_value=False)
    for s, N in ((0.5, 65536), (1.0, 2048), (1.5, 2048)):
        name = f"L at which attention is 1/2, s = {s:g}, N = {N}"
        mine = at(rows, s=s, N=N)
        theory = break_length(s) ** 0.5, break_length(s)
        measured = [with_break(of(mine, recipe)) for recipe in COMPARED]
        yield name, measured, [f"{length:.1f}" for length in theory]
    both, searched = all_sizes(), jaxrecall.load(HERE / "spectral-critical")
    long = searched.query("L >= @LONG")
    for way, axis, mine in (
        ("out", "L", at(long, trigger_in_value=False)),
        ("in", "L", at(long, trigger_in_value=True)),
        ("out", "d", at(both, V=64)),
        ("out", "V", at(both, d=64)),
    ):
        name = f"exponent of {axis}, trigger {way}"
        theories = plain_theory(way == "in"), predicted
        theory = [slope(axis, np.unique(mine[axis]), of_size) for of_size in theories]
        yield name, [exponent(of(mine, recipe), axis) for recipe in COMPARED], theory
    shortest = jaxrecall.thresholds(HERE / "spectral-critical")
    shortest = at(shortest, L=4, trigger_in_value=True)
    measured = [N_STAR(of(shortest, recipe)) for recipe in COMPARED]
    theory = plain_theory(True)(V=64, d=64, L=4), 64 * np.log(2)
    yield "N* at L = 4, trigger in", measured, [formatted(N, "commas") for N in theory]


def draw():
    """Draws attention against L by s, for plain and polar steps.

    The lower panels show N* against L with the trigger out and in.
    """
    figure = Figure(figsize=(5.5, 4.8), dpi=200, layout="constrained")
    above, below = figure.subplots(2, 2)
    rows = at(jaxrecall.load(HERE / "spectral"), **BASE, trigger_in_value=False)
    for ax, recipe in zip(above, COMPARED, strict=True):
        for s, marker, colour in zip((0.0, 0.5, 1.0, 1.5), "osD^", SHADES, strict=True):
            mine = (
                of(at(rows, s=s), recipe)
                .groupby("L")["attention_mass"]
                .agg(["mean", "sem"])
            )
            named = f"s = {s:g}" if s else "uniform"
            ax.errorbar(
                mine.index,
                mine["mean"],
                yerr=2 * mine["sem"],
                color=colour,
                marker=marker,
                label=named,
                **LOOK,
            )
            if s:
                ax.axvline(
                    break_length(s) ** (0.5 if recipe == "plain" else 1),
                    color=colour,
                    linestyle=":",
                    linewidth=0.9,
                )
        ax.set(
            xscale="log",
            xlim=(1.7, 620),
            ylim=(0, 1.05),
            xlabel=LENGTH,
            title="plain" if recipe == "plain" else f"{recipe} polar",
        )
    above[0].set_ylabel("attention on the\ninformative token")
    above[1].legend(frameon=False, loc="lower left", handlelength=1.2, fontsize=6.5)
    found = jaxrecall.thresholds(HERE / "spectral-critical")
    lengths = np.geomspace(LONG / 2, 2048)
    for ax, inside in zip(below, (False, True), strict=True):
        for recipe in ("plain", "step 1", "steps 1 and 3"):
            mine = of(at(found, trigger_in_value=inside), recipe).sort_values("L")
            error = [mine["critical"] - mine["lo"], mine["hi"] - mine["critical"]]
            named = recipe if recipe == "plain" else f"{recipe} polar"
            ax.errorbar(
                mine["L"],
                mine["critical"],
                yerr=error,
                color=COLOURS[recipe],
                marker="o",
                label=named,
                **LOOK,
            )
        for recipe, power in (("plain", 2), ("steps 1 and 3", 1.5)):
            longest = of(at(found, trigger_in_value=inside, L=2048), recipe)[
                "critical"
            ].iloc[0]
            ax.plot(
                lengths,
                0.6 * longest * (lengths / 2048) ** power,
                color=COLOURS[recipe],
                linestyle="--",
                linewidth=0.8,
            )
            ax.text(
                700,
                0.22 * longest * (700 / 2048) ** power,
                f"$L^{{{power:g}}}$",
                color=COLOURS[recipe],
            )
        ax.axhline(64 * np.log(2), color="0.6", linestyle=":", linewidth=0.9)
        title = f"uniform tokens, trigger {'in' if inside else 'out'}"
        ax.set(xscale="log", yscale="log", ylim=(20, 1.5e6), xlabel=LENGTH, title=title)
    below[0].set_ylabel("critical N, samples")
    below[0].legend(frameon=False, loc="upper left")
    figure.savefig(HERE / "spectral.png")


if __name__ == "__main__":
    tables = tables_of(sys.modules["__main__"])
    fields = ("lam1", "push", "eta", "N", "d")
    tables |= {f"along_{field}": along(field) for field in fields}
    print_tables(tables)
    if "--draw" in sys.argv:
        with matplotlib.rc_context(
            {"font.size": 7.5, "axes.linewidth": 0.6, "axes.titlesize": 7.5}
        ):
            draw()
