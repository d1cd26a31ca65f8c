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
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pandas as pd
from scipy.stats import linregress
from shared import (
    CLAIM,
    as_table,
    at,
    bracketed,
    each,
    interval,
    print_tables,
    save,
    tables_of,
)

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


def one_step(optimizer):
    """Returns rows of one step of the shipped simulator, with MANY samples."""
    return at(rows("muon"), optimizer=optimizer, N=MANY)


def in_float64(V=None):
    """Returns rows of one step of Muon with singular values in float64.

    V is d^2, or the same for all rows. Where V = d^2 is above 16384, only the 3000 most
    frequent items were tested.
    """
    names = ["muon-float64"] if V else ["muon-float64", "muon-wide"]
    table = pd.concat([rows(name) for name in names], ignore_index=True)
    sizes = V or table["d"] ** 2
    return table[table["V"] == sizes].assign(recalled=table["recalled_1"])


def few_samples():
    """Returns rows of one step of Muon from B samples."""
    return rows("muon").query("N < @MANY")


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


def scheduled(schedule):
    """Returns rows of the iterates of a schedule."""
    gradient, c_eta, decay = SCHEDULES[schedule]
    table = long("muon-iterates").assign(**{"": schedule})
    return at(table, gradient=gradient, c_eta=c_eta, decay=decay)


def iterates(schedule, alpha, **values):
    """Returns rows of the iterates of a schedule with these values."""
    return at(scheduled(schedule), alpha=alpha, **values)


def exponent(table, x="d"):
    """The slope of ln recalled over ln x: mean over seeds and its 95 % interval
    (Student's t).
    """
    slopes = [
        linregress(np.log(mine[x]), np.log(mine["recalled"])).slope
        for _, mine in table.groupby("seed")
    ]
    return interval(slopes)


def line(name, rows, claim, x="d"):
    """Returns the rows of a line of a table of exponents, with the claimed exponent."""
    return rows.assign(**{LINE: name, "claim": claim, "x": rows[x]})


def with_claim(rows):
    """Formats the claim in brackets, and the exponent with its interval."""
    return f"({rows['claim'].iloc[0]:.2f}) {bracketed(exponent(rows, 'x'))}"


def farthest(rows):
    """The largest distance of an exponent from its claim."""
    off = [
        exponent(mine, "x")[0] - mine["claim"].iloc[0]
        for _, mine in rows.groupby("alpha")
    ]
    return f"{np.abs(off).max():.2f}"


def between(table, low, high, x="d"):
    return table[table[x].between(low, high)]


ONE_STEP = [
    (None, 64, 256),
    (16384, 256, 512),
    (8192, 64, 256),
    (8192, 256, 512),
]
"""V and the smallest and the largest d of each line; without V it is d^2."""

LINE = "recalled items along"
EXPONENTS = {"alpha = {alpha}": with_claim, "off by at most": farthest}


@as_table([LINE], EXPONENTS)
def page():
    """The table of docs/papers.md: exponents by alpha with 95 % intervals over seeds.

    The claimed exponents are in brackets before them.
    """
    gains = pd.concat(by_steps(STEPS[1:4]))
    falling = gains[LINE].str.contains("/ t") | ~gains[LINE].str.contains("over")
    return pd.concat([*by_width(), gains[falling], *of_two_steps()])


def by_width():
    """Yields the rows of one step along d, and along the samples B."""
    for V, low, high in ONE_STEP:
        name = f"one step of Muon, V = {V or 'd^2'}, d {low} to {high}"
        mine = between(in_float64(V), low, high)
        yield line(name, mine, predicted(mine["alpha"], 1))
    for low, high in ((16, 64), (64, 256), (256, 2048)):
        name = f"one step of SGD, d {low} to {high}"
        mine = between(one_step("sgd"), low, high)
        yield line(name, mine, 1 / (2 * mine["alpha"]))
    for low, high in ((16, 1024), (256, 1024)):
        name = f"one step of Muon, B {low} to {high}"
        mine = between(few_samples(), low, high, "N")
        yield line(name, mine, 1 / mine["alpha"], "N")


@as_table([LINE], EXPONENTS)
def later():
    """Exponents after 5 and 6 steps, and exponents of the gain over the first step."""
    return pd.concat(by_steps(STEPS[4:]))


def by_steps(steps):
    """Yields the rows of several steps, and of their gain over the first step.

    Only widths that count are included, and no alpha at which fewer than WIDTHS count.
    """
    for schedule, t in product(SCHEDULES, steps):
        mine = at(scheduled(schedule), t=t, counts=True).groupby("alpha")
        mine = mine.filter(lambda counted: counted["d"].nunique() >= WIDTHS)
        name, claim = f"{schedule}: step {t}", predicted(mine["alpha"], t)
        yield line(name, mine, claim)
        gains = mine.assign(recalled=mine["recalled"] / mine["recalled_1"])
        more = claim - predicted(mine["alpha"], 1)
        yield line(f"{name} over step 1", gains, more)


def of_two_steps():
    """Yields the rows of two steps at large widths and alpha = 2, and of their gain.

    Only seeds that have all widths are included. V is 16384, and 32768 at d = 512.
    """
    schedule, t, alpha = "exact, rate 4 sqrt(d) / t", 2, 2.0
    widest = long("muon-two-steps")
    narrower = iterates(schedule, alpha).query("d >= 128")
    narrower = narrower[narrower["seed"].isin(widest["seed"])]
    mine = at(pd.concat([narrower, widest], ignore_index=True), t=t)
    ends = f"d {mine['d'].min()} to {mine['d'].max()}"
    name, claim = f"{schedule}: step {t}, {ends}", predicted(alpha, t)
    yield line(name, mine, claim)
    gains = mine.assign(recalled=mine["recalled"] / mine["recalled_1"])
    yield line(f"{name}, over step 1", gains, claim - predicted(alpha, 1))


FOUR = "d in (32, 64, 128, 256)"


@as_table(["", "d"], {"alpha = {alpha}": each("t", "{recalled:.0f}")})
def recalled():
    """Items recalled after each step, means over seeds.

    The widths are those of d = 32, 64, 128 and 256 that were run.
    """
    found = [scheduled(schedule).sort_values("d") for schedule in SCHEDULES]
    return pd.concat(found).query(FOUR)


def widths(rows):
    """The widths at which the rows count."""
    found = sorted(rows.loc[rows["counts"], "d"].unique())
    return ", ".join(map(str, found)) or "none"


@as_table(["step"], {"alpha = {alpha}": widths})
def widths_that_count():
    """The widths at which the predicted number of items is at most V / 4, by alpha and
    step.
    """
    found = scheduled("thresholded, rate sqrt(d)")
    return found.assign(step=found["t"])


@as_table(["d"], {"alpha = {alpha}": each("t", "{spread:.0e}")})
def spreads():
    """Smallest singular value of the gradient over the largest, medians over seeds.

    The rows are for the exact gradient at the falling rate.
    """
    found = scheduled("exact, rate 4 sqrt(d) / t").query(FOUR)
    return found.groupby(["d", "alpha", "t"])["spread"].median().reset_index()


CONSTANTS = ["gradient", "decay", "c_eta", "c_lam"]
RECALLED = [f"recalled_{t}" for t in STEPS]
MEANS = ", ".join(f"{{{name}:.0f}}" for name in RECALLED)


@as_table(CONSTANTS, {str(t): f"{{recalled_{t}:.0f}}" for t in STEPS})
def constants():
    """Items recalled after 1 to 6 steps for each choice of constants.

    The numbers are means over seeds at d = 64, alpha = 1.5.
    """
    return chosen().query("alpha == 1.5").sort_values(CONSTANTS)


def chosen():
    """Returns the runs at d = 64 with logits in float32."""
    return rows("muon-constants").query("d == 64 and dtype == 'float32'")


@as_table(["gradient", "decay"], {"alpha = {alpha}": MEANS})
def best():
    """The most items recalled after 1 to 6 steps at d = 64, by gradient and decay.

    The maximum is over all c_eta and c_lam, of means over seeds.
    """
    means = chosen().groupby([*CONSTANTS, "alpha"])[RECALLED].mean()
    return means.groupby(["gradient", "decay", "alpha"]).max().reset_index()


@as_table()
def precision():
    """The largest difference in recalled items between logits in float32 and in
    float64.

    All runs that have both are compared.
    """
    table = rows("muon-constants").set_index([*CONSTANTS, "alpha", "d", "V", "seed"])
    double, single = (
        table.loc[table["dtype"] == dtype, RECALLED] for dtype in ("float64", "float32")
    )
    off = (double - single).dropna(how="all").abs()
    yield {"runs": len(off), "largest difference": off.max(axis=None)}


@as_table(["d"], {"alpha = {alpha}": each("kind", "{recalled:.0f}")})
def single_precision():
    """Items recalled after one step at V = 8192, means over seeds.

    The first number is for singular values in float64, the second for the shipped
    float32.
    """
    double, single = in_float64(8192), one_step("polar")
    both = [double.assign(kind="double"), single.assign(kind="single")]
    return pd.concat(both).query("d in (64, 128, 256, 512)").sort_values("d")


@as_table(["optimizer"], {"alpha = {alpha}": "{recalled:.0f}"})
def newton_schulz():
    """Items recalled after one step at d = 256, V = 8192, means over seeds.

    The rows are the exact polar factor and optax's Newton-Schulz steps.
    """
    return at(rows("muon"), d=256, V=8192).sort_values("optimizer")


def figure():
    """The exponent in d of the recalled items against the step, by schedule."""
    runs = pd.concat(map(scheduled, SCHEDULES)).rename(columns={"": "schedule"})
    found = []
    for (schedule, alpha, t), mine in runs[runs["counts"]].groupby(
        ["schedule", "alpha", "t"], observed=True
    ):
        if mine["d"].nunique() >= WIDTHS:
            mean, lo, hi = exponent(mine)
            place = {"schedule": schedule, "alpha": alpha, "t": t}
            found.append(place | {"exponent": mean, "lo": lo, "hi": hi})
    found = pd.DataFrame(found)
    found["schedule"] = pd.Categorical(found["schedule"], [*SCHEDULES])
    steps = np.linspace(1, max(STEPS), 41)
    claim = pd.DataFrame(product(ALPHAS, steps), columns=["alpha", "t"])
    claim["exponent"] = predicted(claim["alpha"], claim["t"])
    return plot.figure(
        found,
        "exponent",
        x="t",
        lines="alpha",
        columns="schedule",
        scale="linear",
        over=[plot.Polyline(claim, "exponent", "claim", CLAIM)],
        labels={
            "t": "step",
            "schedule": "",
            "exponent": "exponent of recalled items in d",
        },
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


if __name__ == "__main__":
    if "--time" in sys.argv:
        print(speed())
    else:
        print_tables(tables_of(sys.modules["__main__"]))
    if "--draw" in sys.argv:
        save("muon", figure())
