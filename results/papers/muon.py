"""How many items Muon and SGD recall, from results/papers/muon*.

The script makes the table and the figure of docs/papers.md.

python results/papers/muon.py            # prints the tables
python results/papers/muon.py --draw     # and saves the figure, muon.png
python results/papers/muon.py --time     # times one step on this machine, with the
                                         # polar factor by SVD and by Newton-Schulz
"""

import sys
import time
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pandas as pd
from scipy.stats import linregress
from shared import CLAIM, at, interval, markdown, save

import jaxrecall
from jaxrecall import plot

HERE = Path(__file__).parent
ALPHAS = (1.2, 1.5, 2.0)
STEPS = range(1, 7)
WIDTHS = 3
"""The smallest number of widths for which an exponent is fitted."""

MANY = 10**12
"""The N that stands for infinitely many samples.

The rarest of 8192 items then has thousands of samples.
"""

SCHEDULES = {
    "exact, rate 4 sqrt(d) / t": ("exact", 4.0, "inverse"),
    "exact, rate 2 sqrt(d)": ("exact", 2.0, "constant"),
    "thresholded, rate sqrt(d)": ("thresholded", 1.0, "constant"),
}


def predicted(alpha, t):
    """The exponent in d of the number of items after t steps of Muon."""
    return 2 - (1 - 1 / (2 * alpha)) ** t


@cache
def rows(study):
    """Returns the rows of a study; the exponent of the tokens is always named alpha."""
    table = jaxrecall.load(HERE / study, last=True)
    return table.rename(columns={"tokens.s": "alpha"})


def one_step(optimizer, alpha):
    """Returns rows of one step of the shipped simulator, with MANY samples."""
    return at(rows("muon"), optimizer=optimizer, alpha=alpha, N=MANY)


def in_float64(alpha, V=None):
    """Returns rows of one step of Muon with singular values in float64.

    V is min(d^2, 16384), or the same for all rows.
    """
    table = at(rows("muon-float64"), alpha=alpha)
    table = table.assign(recalled=table["recalled_1"])
    return table[table["V"] == (np.minimum(table["d"] ** 2, 16384) if V is None else V)]


def few_samples(alpha):
    """Returns rows of one step of Muon from B samples."""
    return at(rows("muon"), alpha=alpha).query("N < @MANY")


@cache
def long(study):
    """Returns a row for each step of each run of a study: t, recalled, spread, counts.

    A step counts if its predicted number of items is at most V / 4.
    """
    table = rows(study)
    steps = [
        table.assign(t=t, recalled=table[f"recalled_{t}"], spread=table[f"spread_{t}"])
        for t in STEPS
    ]
    table = pd.concat(steps).dropna(subset="recalled")
    table["recalled"] = table["recalled"].astype(float)
    return table.assign(
        counts=table["d"] ** predicted(table["alpha"], table["t"]) <= table["V"] / 4
    )


def iterates(schedule, alpha, **values):
    """Returns rows of the iterates of a schedule with these values."""
    gradient, c_eta, decay = SCHEDULES[schedule]
    return at(
        long("muon-iterates"),
        gradient=gradient,
        c_eta=c_eta,
        decay=decay,
        alpha=alpha,
        **values,
    )


def exponent(table, x="d"):
    """The slope of ln recalled over ln x: mean over seeds and its 95 % interval
    (Student's t).
    """
    slopes = [
        linregress(np.log(mine[x]), np.log(mine["recalled"])).slope
        for _, mine in table.groupby("seed")
    ]
    return interval(slopes)


def compared(name, claims, tables, x="d"):
    """Returns a line of a table: for each alpha the claim in brackets, and the
    exponent.

    The last cell is the largest distance from the claim.
    """
    found = [exponent(table, x) if len(table) else None for table in tables]
    cells = [
        f"({c:.2f}) {f[0]:.2f} [{f[1]:.2f}, {f[2]:.2f}]" if f else ""
        for c, f in zip(claims, found, strict=True)
    ]
    off = max(
        (abs(f[0] - c) for c, f in zip(claims, found, strict=True) if f), default=np.nan
    )
    return [name, *cells, f"{off:.2f}"]


def between(table, low, high, x="d"):
    return table[table[x].between(low, high)]


ONE_STEP = {"V = min(d^2, 16384)": None, "V = 8192": 8192}
HEADS = [
    "recalled items along",
    *(f"alpha = {alpha:g}" for alpha in ALPHAS),
    "off by at most",
]


def page():
    """The table of docs/papers.md: exponents by alpha with 95 % intervals over seeds.

    The claimed exponents are in brackets before them.
    """
    gains = [
        line
        for line in by_steps(STEPS[1:4])
        if "over" not in line[0] or "/ t" in line[0]
    ]
    return markdown(HEADS, [*by_width(), *gains])


def by_width():
    """Returns the lines of one step along d, and along the samples B."""
    body = []
    for size, V in ONE_STEP.items():
        for low, high in ((64, 256), (256, 512)):
            tables = [between(in_float64(alpha, V), low, high) for alpha in ALPHAS]
            body.append(
                compared(
                    f"one step of Muon, {size}, d {low} to {high}",
                    [predicted(alpha, 1) for alpha in ALPHAS],
                    tables,
                )
            )
    for low, high in ((16, 64), (64, 256), (256, 2048)):
        tables = [between(one_step("sgd", alpha), low, high) for alpha in ALPHAS]
        body.append(
            compared(
                f"one step of SGD, d {low} to {high}",
                [1 / (2 * alpha) for alpha in ALPHAS],
                tables,
            )
        )
    for low, high in ((16, 1024), (256, 1024)):
        tables = [between(few_samples(alpha), low, high, "N") for alpha in ALPHAS]
        body.append(
            compared(
                f"one step of Muon, B {low} to {high}",
                [1 / alpha for alpha in ALPHAS],
                tables,
                "N",
            )
        )
    return body


def later():
    """Exponents after 5 and 6 steps, and exponents of the gain over the first step."""
    return markdown(HEADS, by_steps(STEPS[4:]))


def by_steps(steps):
    """Returns the lines of several steps, and of their gain over the first step.

    Only widths that count are included.
    """
    body = []
    for schedule in SCHEDULES:
        for t in steps:
            tables = [counted(schedule, alpha, t) for alpha in ALPHAS]
            if any(map(len, tables)):
                gains = [
                    table.assign(recalled=table["recalled"] / table["recalled_1"])
                    for table in tables
                ]
                claims = [predicted(alpha, t) for alpha in ALPHAS]
                body.append(compared(f"{schedule}: step {t}", claims, tables))
                more = [
                    claim - predicted(alpha, 1)
                    for claim, alpha in zip(claims, ALPHAS, strict=True)
                ]
                body.append(compared(f"{schedule}: step {t} over step 1", more, gains))
    return body


def counted(schedule, alpha, t):
    """Returns the rows of a step at the widths that count.

    There are no rows if fewer than WIDTHS widths count.
    """
    table = iterates(schedule, alpha, t=t, counts=True)
    return table if table["d"].nunique() >= WIDTHS else table.iloc[:0]


def recalled():
    """Items recalled after each step, means over seeds.

    The widths are those of d = 32, 64, 128 and 256 that were run.
    """
    body = []
    for schedule in SCHEDULES:
        for d in (32, 64, 128, 256):
            means = [
                iterates(schedule, alpha, d=d).groupby("t")["recalled"].mean()
                for alpha in ALPHAS
            ]
            if len(means[0]):
                body.append(
                    [
                        schedule,
                        d,
                        *(
                            ", ".join(f"{value:.0f}" for value in mine)
                            for mine in means
                        ),
                    ]
                )
    return markdown(["", "d", *(f"alpha = {a:g}" for a in ALPHAS)], body)


def widths_that_count():
    """The widths at which the predicted number of items is at most V / 4, by alpha and
    step.
    """
    body = []
    for t in STEPS:
        counted = [
            iterates("thresholded, rate sqrt(d)", alpha, t=t, counts=True)["d"].unique()
            for alpha in ALPHAS
        ]
        body.append(
            [t, *(", ".join(map(str, sorted(widths))) or "none" for widths in counted)]
        )
    return markdown(["step", *(f"alpha = {a:g}" for a in ALPHAS)], body)


def spreads():
    """Smallest singular value of the gradient over the largest, medians over seeds.

    The rows are for the exact gradient at the falling rate.
    """
    body = []
    for d in (32, 64, 128, 256):
        mine = [
            iterates("exact, rate 4 sqrt(d) / t", alpha, d=d)
            .groupby("t")["spread"]
            .median()
            for alpha in ALPHAS
        ]
        body.append(
            [d, *(", ".join(f"{value:.0e}" for value in medians) for medians in mine)]
        )
    return markdown(["d", *(f"alpha = {a:g}" for a in ALPHAS)], body)


def constants():
    """Items recalled after 1 to 6 steps for each choice of constants.

    The numbers are means over seeds at d = 64, alpha = 1.5.
    """
    table = rows("muon-constants").query(
        "d == 64 and alpha == 1.5 and dtype == 'float32'"
    )
    body = []
    for (gradient, decay, c_eta, c_lam), mine in table.groupby(
        ["gradient", "decay", "c_eta", "c_lam"]
    ):
        body.append(
            [
                gradient,
                decay,
                f"{c_eta:g}",
                f"{c_lam:g}",
                *(f"{mine[f'recalled_{t}'].mean():.0f}" for t in STEPS),
            ]
        )
    return markdown(["gradient", "decay", "c_eta", "c_lam", *map(str, STEPS)], body)


def best():
    """The most items recalled after 1 to 6 steps at d = 64, by gradient and decay.

    The maximum is over all c_eta and c_lam, of means over seeds.
    """
    table = at(rows("muon-constants"), d=64, dtype="float32")
    means = table.groupby(["gradient", "decay", "alpha", "c_eta", "c_lam"])[
        [f"recalled_{t}" for t in STEPS]
    ].mean()
    most = means.groupby(["gradient", "decay", "alpha"]).max()
    kinds = most.index.droplevel("alpha").unique()
    body = [
        [
            *kind,
            *(
                ", ".join(f"{value:.0f}" for value in most.loc[(*kind, a)])
                for a in ALPHAS
            ),
        ]
        for kind in kinds
    ]
    return markdown(["gradient", "decay", *(f"alpha = {a:g}" for a in ALPHAS)], body)


def precision():
    """The largest difference in recalled items between logits in float32 and in
    float64.

    All runs that have both are compared.
    """
    table = rows("muon-constants")
    names = [f"recalled_{t}" for t in STEPS]
    at = ["gradient", "decay", "c_eta", "c_lam", "alpha", "d", "V", "seed"]
    both = table[table["dtype"] == "float64"].merge(
        table[table["dtype"] == "float32"], on=at
    )
    off = max((both[f"{name}_x"] - both[f"{name}_y"]).abs().max() for name in names)
    return f"{len(both)} runs, {off} items"


def single_precision():
    """Items recalled after one step at V = 8192, means over seeds.

    The first number is for singular values in float64, the second for the shipped
    float32.
    """
    body = []
    for d in (64, 128, 256, 512):
        pairs = [
            (
                at(in_float64(a, 8192), d=d)["recalled"].mean(),
                at(one_step("polar", a), d=d)["recalled"].mean(),
            )
            for a in ALPHAS
        ]
        body.append([d, *(f"{double:.0f}, {single:.0f}" for double, single in pairs)])
    return markdown(["d", *(f"alpha = {a:g}" for a in ALPHAS)], body)


def newton_schulz():
    """Items recalled after one step at d = 256, V = 8192, means over seeds.

    The rows are the exact polar factor and optax's Newton-Schulz steps.
    """
    table = rows("muon").query("d == 256 and V == 8192")
    means = table.groupby(["optimizer", "alpha"])["recalled"].mean()
    return markdown(
        ["optimizer", *(f"alpha = {a:g}" for a in ALPHAS)],
        [[name, *(f"{v:.0f}" for v in mine)] for name, mine in means.groupby(level=0)],
    )


RUN = ["schedule", "alpha", "t"]


def of_all_schedules():
    """Returns recalled items / d as the column `part`.

    There is a row for each schedule, alpha, t, d and seed.
    """
    parts = []
    for schedule in SCHEDULES:
        for alpha in ALPHAS:
            parts.append(iterates(schedule, alpha).assign(schedule=schedule))
    table = pd.concat(parts)
    table["part"] = table["recalled"] / table["d"]
    table["schedule"] = pd.Categorical(table["schedule"], [*SCHEDULES])
    return table[[*RUN, "d", "counts", "seed", "part"]]


def predicted_slopes(means):
    """Returns lines of the predicted slope through the middle of the cells that count.

    There is no line if fewer than WIDTHS widths count.
    """
    parts = []
    for (_, alpha, t), mine in means[means["counts"]].groupby(RUN, observed=True):
        if len(mine) >= WIDTHS:
            logs = np.log(mine[["d", "part"]])
            middle = logs.mean()
            rise = (predicted(alpha, t) - 1) * (logs["d"] - middle["d"])
            parts.append(mine.assign(part=np.exp(middle["part"] + rise)))
    return pd.concat(parts)


def figure():
    """Items recalled per width against d, after each step."""
    runs = of_all_schedules()
    cells = runs.groupby([*RUN, "d", "counts"], observed=True)
    means = cells["part"].mean().reset_index()
    above = means[~means["counts"]]
    ring = {"marker": "o", "size": 2, "linestyle": "none", "markerfacecolor": "none"}
    return plot.figure(
        runs.drop(columns="counts"),
        "part",
        x="d",
        lines="t",
        rows="schedule",
        columns="alpha",
        band="95 %",
        scale="log",
        over=[
            plot.Polyline(predicted_slopes(means), "part", "predicted slope", CLAIM),
            plot.Polyline(above, "part", "predicted above V / 4", ring),
        ],
        labels={"t": "step", "schedule": "", "part": "recalled items / d"},
    )


def speed(V=8192, d=256, alpha=1.5, repeats=3):
    """Measures the seconds of one step on this machine; the best of several calls
    counts.

    The parts are the gradient, and its polar factor by SVD and by Newton-Schulz.
    """
    Z_in, Z_out = jax.random.normal(jax.random.key(0), (2, V, d)) / d**0.5
    p = jnp.arange(1.0, V + 1) ** -alpha
    p = p / p.sum()

    def loss(W):
        return p @ optax.softmax_cross_entropy_with_integer_labels(
            Z_in @ W.T @ Z_out.T, jnp.arange(V)
        )

    gradient = jax.jit(jax.grad(loss))
    G = -gradient(jnp.zeros((d, d)))
    muon = optax.contrib.muon(1.0, beta=0.0, nesterov=False)
    ways = {
        "gradient": (gradient, jnp.zeros((d, d))),
        "SVD": (jax.jit(polar), G),
        "Newton-Schulz": (
            jax.jit(
                lambda G: -muon.update({"W": G}, muon.init({"W": G}), {"W": G})[0]["W"]
            ),
            G,
        ),
    }
    moves = {name: np.asarray(way(of), float) for name, (way, of) in ways.items()}
    best = dict.fromkeys(ways, np.inf)
    for _ in range(repeats):
        for name, (way, of) in ways.items():
            start = time.perf_counter()
            way(of).block_until_ready()
            best[name] = min(best[name], time.perf_counter() - start)
    off = np.linalg.norm(moves["Newton-Schulz"] - moves["SVD"]) / np.linalg.norm(
        moves["SVD"]
    )
    lines = [
        f"{name}: {seconds:.3f} s, {seconds / best['gradient']:.3f} of the gradient"
        for name, seconds in best.items()
    ]
    values = np.linalg.svd(moves["Newton-Schulz"], compute_uv=False)
    return "\n\n".join(
        [
            *lines,
            f"difference of the two updates over the norm of SVD's: {off:.2f}",
            f"singular values of Newton-Schulz: {values[-1]:.1e} to {values[0]:.2f}",
        ]
    )


def polar(G):
    """The polar factor U V^T of G = U S V^T."""
    U, _, Vt = jnp.linalg.svd(G, full_matrices=False)
    return U @ Vt


TABLES = (
    page,
    later,
    recalled,
    widths_that_count,
    spreads,
    best,
    constants,
    precision,
    single_precision,
    newton_schulz,
)

if __name__ == "__main__":
    if "--time" in sys.argv:
        print(speed())
    else:
        for table in TABLES:
            print(f"{table.__doc__}\n\n{table()}\n")
    if "--draw" in sys.argv:
        save("muon", figure())
