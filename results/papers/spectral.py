"""The spectral recipe, whose gradients are made polar, from the committed tables.

The tables show what attention learns and how many samples it needs.

python results/papers/spectral.py            # the rows of the tables, in Markdown
python results/papers/spectral.py --draw     # and the figure beside this file
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from shared import (
    CLAIM,
    as_table,
    at,
    bracketed,
    divided,
    formatted,
    interval,
    print_tables,
    save,
    tables_of,
    with_interval,
)

import jaxrecall
from jaxrecall import plot
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
COMPARED = ("plain", "steps 1 and 3")
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


RATES = {1e-6: "plain, eta -> 0", 2048.0: "plain, eta = 2048"}


@as_table(["L"], {"{recipe}": N_STAR})
def rates():
    """N* [95 %] of plain steps at two rates of step 1, and of polar steps at a small
    rate.

    V = d = 64, trigger out. eta = 2048 is V / (1/V (1 + V/d)), where step 2 loses most
    of the mean bias.
    """
    plain = jaxrecall.thresholds(HERE / "spectral-rate")
    plain = plain.assign(recipe=plain["eta"].map(RATES))
    polar = jaxrecall.thresholds(HERE / "spectral-critical")
    polar = at(of(polar, "steps 1 and 3"), trigger_in_value=False)
    polar = polar.query("L >= @LONG").assign(recipe="steps 1 and 3 polar")
    return pd.concat([plain, polar])


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
    lines = [(*names, of(mine, names[1])) for *names, mine in lines]
    at_rates = jaxrecall.load(HERE / "spectral-rate")
    lines += [
        ("out", name, "L", at(at_rates, eta=eta).drop(columns="eta"))
        for eta, name in RATES.items()
    ]
    for way, recipe, axis, mine in lines:
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


POLAR = {"step 1": "step 1 polar", "steps 1 and 3": "steps 1 and 3 polar"}
LABELS = {
    "s": "Zipf s",
    "recipe": "",
    "L": "L: sequence length, tokens",
    "attention_mass": "attention on the\ninformative token",
    "critical": "N*, uniform tokens",
}


def attention(on):
    """Draws attention against L by s, for plain and polar steps."""
    rows = with_recipes(base(trigger_in_value=False), COMPARED)
    rows = rows.replace({"recipe": POLAR})
    limits = rows.query("s > 0")[["s", "recipe"]].drop_duplicates()
    power = limits["recipe"].map({"plain": 0.5}).fillna(1)
    limits["L"] = limits["s"].map(break_length) ** power
    ends = limits.merge(pd.DataFrame({"attention_mass": [0.0, 1.0]}), how="cross")
    plot.figure(
        rows,
        "attention_mass",
        x="L",
        lines="s",
        columns="recipe",
        band="95 %",
        over=[plot.Polyline(ends, "attention_mass", "theory, infinite N", CLAIM)],
        labels=LABELS,
        on=on,
    )


def searched(on):
    """Draws N* against L by recipe, with the trigger in and out."""
    found = jaxrecall.thresholds(HERE / "spectral-critical")
    found = with_recipes(found, ("plain", *POLAR)).replace({"recipe": POLAR})
    longest = found.query("L == 2048 and recipe != 'step 1 polar'")
    power = longest["recipe"].map({"plain": 2}).fillna(1.5)
    lines = []
    for L in (LONG / 2, 2048):
        N = 0.6 * longest["critical"] * (L / 2048) ** power
        lines.append(longest.assign(L=L, critical=N))
    least = pd.DataFrame({"L": [4, 2048], "critical": 64 * np.log(2)})
    plot.figure(
        found,
        "critical",
        x="L",
        lines="recipe",
        columns="trigger",
        joined=True,
        over=[
            plot.Polyline(pd.concat(lines), "critical", "slopes 2 and 1.5", CLAIM),
            plot.Polyline(least, "critical", "V ln 2", CLAIM | {"linestyle": ":"}),
        ],
        labels=LABELS,
        on=on,
    )


def figure():
    """Attention and N* against L, for plain and polar steps."""
    whole, (above, below) = divided(2, 1, height=5.5)
    attention(above)
    searched(below)
    return whole


if __name__ == "__main__":
    tables = tables_of(sys.modules["__main__"])
    fields = ("lam1", "push", "eta", "N", "d")
    tables |= {f"along_{field}": along(field) for field in fields}
    print_tables(tables)
    if "--draw" in sys.argv:
        save("spectral", figure())
