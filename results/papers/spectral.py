"""The spectral recipe, whose gradients are made polar, from the committed tables.

The tables show what attention learns and how many samples it needs.

python results/papers/spectral.py            # the rows of the tables, in Markdown
python results/papers/spectral.py --draw     # and the figure beside this file
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from shared import CLAIM, at, divided, interval, markdown, save

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


def short(number):
    """Formats a number with three digits."""
    return f"{number:.3g}" if number < 1000 else f"{float(f'{number:.3g}'):,.0f}"


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


def breaks():
    """L at which attention falls below one half, by s and recipe.

    Numbers are geometric means [95 %] over seeds. The last columns are theory for
    infinitely many samples.
    """
    rows = at(
        jaxrecall.load(HERE / "spectral"),
        **{name: value for name, value in BASE.items() if name != "N"},
    )
    body = []
    for s, N, inside in [
        (0.5, 2048, True),
        (0.5, 2048, False),
        (0.5, 65536, False),
        *((s, 2048, t) for s in (1.0, 1.5) for t in (True, False)),
    ]:
        cells = []
        for recipe in COMPARED:
            found = crossings(of(at(rows, s=s, N=N, trigger_in_value=inside), recipe))
            cells.append("{:.1f} [{:.1f}, {:.1f}]".format(*np.exp(interval(found))))
        body.append(
            [
                f"{s:g}",
                N,
                "in" if inside else "out",
                *cells,
                f"{break_length(s):.1f}",
                f"{break_length(s) ** 0.5:.1f}",
            ]
        )
    return markdown(
        [
            "s",
            "N",
            "trigger",
            "plain",
            "steps 1 and 3 polar",
            "1 / p_1 (p_1 - sum p^2)",
            "its root",
        ],
        body,
    )


def decomposition():
    """Attention and accuracy by recipe, N = 2048."""
    rows, body = at(jaxrecall.load(HERE / "spectral"), **BASE), []
    for s, lengths in ((0.5, (8, 64, 256)), (1.0, (8, 16, 24))):
        for L in lengths:
            for inside in (False, True):
                cells = []
                for recipe in RECIPES:
                    means = of(at(rows, s=s, L=L, trigger_in_value=inside), recipe)[
                        ["attention_mass", "accuracy"]
                    ].mean()
                    cells.append("{:.2f}, {:.2f}".format(*means))
                body.append([f"{s:g}", L, "in" if inside else "out", *cells])
    return markdown(["s", "L", "trigger", *RECIPES], body)


def along(field):
    """Returns attention at s = 1, trigger out, along another choice.

    Step 3 is polar or like step 1.
    """
    rows = at(jaxrecall.load(HERE / "spectral"), s=1.0, trigger_in_value=False)
    body = []
    rows = at(rows, **{name: value for name, value in BASE.items() if name != field})
    rows = rows[(rows["lam3"] == 0) | (rows["lam1"] == PLAIN)]
    if field != "lam1":
        rows = rows[rows["lam1"].isin([0.0, PLAIN])]
    means = rows.pivot_table(
        "attention_mass", ["lam1", field] if field != "lam1" else "lam1", "L"
    )
    for value, masses in means.iterrows():
        body.append(
            [
                str(value),
                *(
                    f"{masses[L]:.2f}" if L in masses and masses[L] == masses[L] else ""
                    for L in LENGTHS
                ),
            ]
        )
    return markdown([f"lam1, {field}", *(f"L = {L}" for L in LENGTHS)], body)


def critical():
    """N* [95 %] along L by trigger and recipe, V = d = 64."""
    found, body = jaxrecall.thresholds(HERE / "spectral-critical"), []
    for inside in (False, True):
        for L, mine in at(found, trigger_in_value=inside).groupby("L"):
            cells = []
            for recipe in ("plain", "step 1", "steps 1 and 3"):
                one = of(mine, recipe).iloc[0]
                ends = [short(one[name]) for name in ("critical", "lo", "hi")]
                cells.append(
                    "{} [{}, {}]".format(*ends)
                    if pd.notna(one["critical"])
                    else one["outcome"]
                )
            body.append(["in" if inside else "out", L, *cells])
    return markdown(["trigger", "L", "plain", "step 1", "steps 1 and 3"], body)


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


def exponents():
    """Exponents of N* along L, and along d and V at L = 512, with intervals.

    The intervals are over seeds.
    """
    rows, both, body = jaxrecall.load(HERE / "spectral-critical"), all_sizes(), []
    for inside in (False, True):
        for recipe in ("plain", "step 1", "steps 1 and 3"):
            mine = of(at(rows, trigger_in_value=inside), recipe)
            body.append(
                [
                    "in" if inside else "out",
                    recipe,
                    "L",
                    f"{LONG} to {mine['L'].max()}",
                    exponent(mine[mine["L"] >= LONG], "L"),
                ]
            )
    for recipe in COMPARED:
        mine = of(both, recipe)
        for axis, fixed in (("d", "V"), ("V", "d")):
            line = mine[mine[fixed] == 64]
            body.append(
                [
                    "out",
                    recipe,
                    axis,
                    f"{line[axis].min()} to {line[axis].max()}",
                    exponent(line, axis),
                ]
            )
    return markdown(["trigger", "recipe", "along", "range", "exponent of N*"], body)


def exponent(rows, axis):
    """The exponent of N* along an axis, with its interval over seeds."""
    found = fit(rows, [0.5]).exponents
    row = found[found["axis"] == axis].iloc[0]
    return f"{row['exponent']:.2f} [{row['lo']:.2f}, {row['hi']:.2f}]"


def predicted(V, d, L):
    """N* of long sequences with polar steps 1 and 3, up to a constant."""
    return L**1.5 * np.sqrt(moment(V / d) / (d * V))


def sizes():
    """N* at L = 512, trigger out.

    The last column is N* with both steps polar over the prediction, whose constant is
    the geometric mean.
    """
    searched = pd.concat(
        [
            jaxrecall.thresholds(HERE / f"spectral-{name}")
            for name in ("sizes", "critical")
        ],
        ignore_index=True,
    )
    searched = searched.assign(
        V=searched["V"].fillna(64),
        d=searched["d"].fillna(64),
        L=searched["L"].fillna(512),
    )
    found = searched[
        (searched["L"] == 512) & searched["trigger_in_value"].isin([False, np.nan])
    ].sort_values(["V", "d"])
    plain, polar = (of(found, recipe).set_index(["V", "d"]) for recipe in COMPARED)
    ratio = polar["critical"] / [predicted(V, d, 512) for V, d in polar.index]
    constant, body = np.exp(np.log(ratio).mean()), []
    for size, one in polar.iterrows():
        cells = [
            "{} [{}, {}]".format(
                *(short(each[name]) for name in ("critical", "lo", "hi"))
            )
            for each in (plain.loc[size], one)
        ]
        body.append(
            [
                *map(int, size),
                *cells,
                f"{plain.loc[size, 'critical'] / one['critical']:.1f}",
                f"{ratio[size] / constant:.2f}",
            ]
        )
    return f"constant {constant:.2f}\n\n" + markdown(
        ["V", "d", "plain", "steps 1 and 3", "ratio", "over prediction"], body
    )


def exact():
    """N* with independent noise in every sample, and N* with a pool of 256."""
    body = []
    pooled = at(
        jaxrecall.thresholds(HERE / "spectral-critical"), trigger_in_value=False
    )
    for _, one in jaxrecall.thresholds(HERE / "spectral-exact").iterrows():
        other = at(pooled, **{name: one[name] for name in ("L", "lam1", "lam3")}).iloc[
            0
        ]
        cells = [
            "{} [{}, {}]".format(
                *(short(each[name]) for name in ("critical", "lo", "hi"))
            )
            for each in (one, other)
        ]
        body.append([one["L"], "plain" if one["lam1"] else "steps 1 and 3", *cells])
    return markdown(["L", "recipe", "own noise", "pool"], body)


def order():
    """Order in V1 and noise of scores, for uniform tokens, trigger out, N = 2048.

    The columns are the share of |V1|^2 along the mean embedding, the effective rank,
    recall by V1, and the noise of scores over the trigger's score.
    """
    rows = at(
        jaxrecall.load(HERE / "spectral"),
        **BASE,
        s=0.0,
        trigger_in_value=False,
        lam3=0.0,
    )
    rows = rows.assign(noise=rows["score_std"] / rows["trigger_score"])
    means = rows.groupby(["L", "lam1"])[
        ["mean_share", "effective_rank", "step1_memory_accuracy", "noise"]
    ].mean()
    body = [
        [L, "plain" if lam1 else "polar", *(f"{value:.3f}" for value in row)]
        for (L, lam1), row in means.iterrows()
    ]
    return markdown(["L", "step 1", *means.columns], body)


def slope(axis, values, critical_of):
    """The least-squares exponent of a predicted N* along an axis.

    The other sizes are those of `exponents`.
    """
    sizes = [{"V": 64, "d": 64, "L": 512} | {axis: int(value)} for value in values]
    return f"{np.polyfit(np.log(values), np.log([critical_of(**size) for size in sizes]), 1)[0]:.2f}"  # noqa: E501


def plain_theory(inside):
    """Returns the package's formula of N* as a function of sizes."""
    return lambda **size: critical_N(Model(**size, trigger_in_value=inside), 0.5)


def verdict():
    """The effects of plain and polar gradients, measured [95 % over seeds] and by
    theory.
    """
    rows = at(
        jaxrecall.load(HERE / "spectral"),
        **{n: v for n, v in BASE.items() if n != "N"},
        trigger_in_value=False,
    )
    both = all_sizes()
    searched, body = jaxrecall.load(HERE / "spectral-critical"), []
    for s, N in ((0.5, 65536), (1.0, 2048), (1.5, 2048)):
        found = [
            "{:.1f} [{:.1f}, {:.1f}]".format(
                *np.exp(interval(crossings(of(at(rows, s=s, N=N), recipe))))
            )
            for recipe in COMPARED
        ]
        body.append(
            [
                f"L at which attention is 1/2, s = {s:g}, N = {N}",
                *found,
                f"{break_length(s) ** 0.5:.1f}",
                f"{break_length(s):.1f}",
            ]
        )
    lines = [
        (way, "L", at(searched, trigger_in_value=inside).query("L >= @LONG"))
        for way, inside in (("out", False), ("in", True))
    ]
    lines += [("out", "d", both[both["V"] == 64]), ("out", "V", both[both["d"] == 64])]
    for way, axis, mine in lines:
        values = np.unique(mine[axis])
        theories = (
            slope(axis, values, plain_theory(way == "in")),
            slope(axis, values, predicted),
        )
        body.append(
            [
                f"exponent of {axis}, trigger {way}",
                *(exponent(of(mine, recipe), axis) for recipe in COMPARED),
                *theories,
            ]
        )
    shortest = at(
        jaxrecall.thresholds(HERE / "spectral-critical"), L=4, trigger_in_value=True
    )
    found = [
        "{} [{}, {}]".format(
            *(short(of(shortest, r).iloc[0][name]) for name in ("critical", "lo", "hi"))
        )
        for r in COMPARED
    ]
    body.append(
        [
            "N* at L = 4, trigger in",
            *found,
            short(plain_theory(True)(V=64, d=64, L=4)),
            f"{64 * np.log(2):.0f}",
        ]
    )
    return markdown(
        ["", "plain", "steps 1 and 3 polar", "theory, plain", "theory, polar"], body
    )


TABLES = (verdict, breaks, decomposition, critical, exponents, sizes, exact, order)


def with_recipes(rows, *recipes):
    """Returns the rows of some recipes, with a column for the name of the recipe."""
    parts = []
    for recipe in recipes:
        named = recipe if recipe == "plain" else f"{recipe} polar"
        parts.append(of(rows, recipe).assign(recipe=named))
    return pd.concat(parts)


LABELS = {
    "s": "Zipf s",
    "recipe": "",
    "trigger": "",
    "L": "L: sequence length, tokens",
    "attention_mass": "attention on the\ninformative token",
    "critical": "N*, uniform tokens",
}


def attention(on):
    """Draws attention against L by s, for plain and polar steps."""
    rows = at(jaxrecall.load(HERE / "spectral"), **BASE, trigger_in_value=False)
    rows = with_recipes(rows, *COMPARED)
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
    found = with_recipes(found, "plain", "step 1", "steps 1 and 3")
    found["trigger"] = np.where(found["trigger_in_value"], "trigger in", "trigger out")
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
    for table in TABLES:
        print(f"{table.__doc__}\n\n{table()}\n")
    for field in ("lam1", "push", "eta", "N", "d"):
        print(f"Attention at s = 1, trigger out, along {field}\n\n{along(field)}\n")
    if "--draw" in sys.argv:
        save("spectral", figure())
