"""The three steps and decoders of the initial gradient, compared with their limits.

The data is in the studies results/study/bound, decoders and law-long.
"""

from collections import Counter
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import factorial, prod

import numpy as np
import pandas as pd
from law import (
    DASHED,
    SIZES,
    STUDY,
    models_of,
    on_all_cores,
    power_law,
    searched,
    with_ends,
)
from scipy.optimize import brentq
from scipy.special import betainc, lambertw
from scipy.stats import binom
from table import CRITICAL, as_table, with_interval

from jaxrecall import load, plot
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N, recall_ceiling

V = 1024
DECODERS = {
    "assignment_accuracy": "assignment",
    "whitened_accuracy": "whitened",
    "matched_accuracy": "matched filter",
    "accuracy": "three steps",
}
BENCHMARK = "Gaussian channel"
HIDDEN = "bound, trigger-blind"
SHOWN = "bound, any learner"


def fraction_known(V, nats):
    """The largest expected fraction of pi that can be recovered from `nats` of
    information about pi; docs/theory-derivations.md, section 7.2.
    """
    if nats <= 1e-12:
        return 1 / V
    tokens = np.exp(1 + lambertw((nats - 1) / np.e).real)
    return min(1.0, float(tokens) / V)


def sample_information(V, L):
    """The information (nats) that a sample contains about pi if its informative
    position is unknown; docs/theory-derivations.md, section 8.

    The value is log V - E[entropy of the L tokens of the sample] = E log((1 + n) V /
    L), with n ~ binomial(L - 1, 1/V).
    """
    low, high = binom.interval(1 - 1e-15, L - 1, 1 / V)
    n = np.arange(low, high + 1)
    return float(binom.pmf(n, L - 1, 1 / V) @ np.log((1 + n) * V / L))


def trigger_blind_ceiling(model, N):
    """The largest expected fraction of pi that a method learns from N samples if it
    does not know the informative position; docs/theory-derivations.md, section 8.

    Decoders of the initial gradient do not know it. A label that occurs n times reveals
    at most n `sample_information` nats, and at most log V nats.
    """
    V, each = model.V, sample_information(model.V, model.L)
    enough = float(np.ceil(np.log(V) / each))  # occurrences that can reveal a label
    scarce = each * N * (1 - occurs(V, enough - 1, N - 1))
    nats = scarce + V * np.log(V) * occurs(V, enough, N)
    return min(recall_ceiling(model, N), fraction_known(V, nats))


def occurs(V, n, N):
    """The probability that a label occurs at least n times in N samples."""
    if n <= 0:
        return 1.0
    if n > N:
        return 0.0
    return float(betainc(n, N - n + 1, 1 / V))


def gaussian_channel(model, N):
    """The fraction of pi that a decoder of a Gaussian channel like the initial gradient
    can recover; docs/theory-derivations.md, sections 7.1 and 7.2.

    The value is a benchmark and not a bound. Embeddings are real numbers, so the
    gradient reveals the token counts, and these can contain more information.
    """
    nats = model.d**2 / 2 * np.log1p(N / (model.L * model.V))
    return fraction_known(model.V, nats)


LIMITS = {
    BENCHMARK: gaussian_channel,
    HIDDEN: trigger_blind_ceiling,
    SHOWN: recall_ceiling,
}
STEPS = {
    True: "three steps, value and key",
    False: "three steps, key only",
}


def least(name, model):
    """The N at which a limit allows half of pi to be known."""
    return np.exp(brentq(lambda x: LIMITS[name](model, np.exp(x)) - 0.5, 0, 40))


def gradient(counts, L, Z_in, Z_out, z_trig):
    """(d, d): minus the gradient of V_mat at initialization.

    `counts` is (V, V): counts of tokens (columns) with each label (rows).
    """
    return (
        (Z_out - Z_out.mean(0)).T
        @ (counts @ Z_in + counts.sum(1)[:, None] / L * z_trig)
        / counts.sum()
    )


def best_decoder(V, L, N, d=2):
    """The expected fraction of pi that the best decoder of the initial gradient
    recovers.

    The result is exact: it covers all samples and permutations.
    """
    labels = np.array([*permutations(range(V))])
    sequences = [*product(range(V), repeat=L)]
    # (sorted tokens of a sample, its label) -> its chance under each permutation
    samples: dict[tuple, np.ndarray] = {}
    for tokens, x, y in product(sequences, range(L), range(V)):
        sample = *sorted(tokens), y
        samples[sample] = (
            samples.get(sample, 0) + (labels[:, tokens[x]] == y) / len(sequences) / L
        )
    rng = np.random.default_rng(0)
    Z_in = rng.normal(size=(V, d))
    Z_out = rng.normal(size=(V, d))
    z_trig = rng.normal(size=d)
    counts = [
        [np.bincount(tokens, minlength=V) * (label == y) for label in range(V)]
        for *tokens, y in samples
    ]
    of_one = [
        gradient(np.array(table), L, Z_in, Z_out, z_trig).ravel() for table in counts
    ]
    chosen = np.array([*combinations_with_replacement(range(len(samples)), N)])
    orders = [
        factorial(N) / prod(map(factorial, Counter(one).values()))
        for one in chosen.tolist()
    ]
    chances = np.array(orders)[:, None] * np.array([*samples.values()])[chosen].prod(
        axis=1
    )
    _, which = np.unique(
        np.array(of_one)[chosen].sum(axis=1).round(9), axis=0, return_inverse=True
    )
    seen = np.zeros((which.max() + 1, len(labels)))  # a row for each distinct gradient
    np.add.at(seen, which.ravel(), chances)
    # the joint chance of label, gradient and token
    joint = np.stack([seen @ (labels == y) for y in range(V)])
    return joint.max(axis=0).sum() / V / len(labels)


@as_table()
def exhaustive():
    """Expected fraction of pi that the best decoder of the initial gradient recovers.

    The sizes are V = 4, L = 2, d = 2. The other columns are the limits.
    """
    model = Model(V=4, d=2, L=2)
    for N in (1, 2, 3, 4):
        shares = {"best decoder": best_decoder(4, 2, N)}
        shares |= {name: limit(model, N) for name, limit in LIMITS.items()}
        yield {"N": N} | {name: f"{share:.3f}" for name, share in shares.items()}


@cache
def allowed(V, d, L):
    """Returns the smallest N that each limit allows."""
    return {name: least(name, Model(V=V, d=d, L=L)) for name in LIMITS}


def with_limits(table):
    """Returns a table with a column for the smallest N that each limit allows."""
    sizes = table[SIZES].to_dict("records")
    found = pd.DataFrame([allowed(**size) for size in sizes], table.index)
    return table.assign(**found)


ALLOWED = {name: f"{{{name}:short}}" for name in LIMITS}
"""The cells of the smallest N that each limit allows."""


@as_table(SIZES, ALLOWED | {"{of}": with_interval()})
def bound():
    """N at which half of pi is known.

    The columns are the limits, each decoder, and the three steps.
    """
    return thresholds()


@cache
def thresholds():
    """Returns N* of the three steps and of decoders in the study, with the limits."""
    rows = load(STUDY / "bound")
    tables = [
        fit(rows, [0.5], of=of).thresholds.assign(of=name)
        for of, name in DECODERS.items()
    ]
    found = with_limits(pd.concat(tables, ignore_index=True))
    found = found.assign(c=found["V"] // found["d"])
    return found.sort_values(["c", "L", "V", "d"], kind="stable")


@as_table(["V / d", "L"], {"{of}": "{text}"})
def bound_slopes():
    """Slope of ln(N* / limit) in ln V, at fixed V / d and L.

    The limit is the larger of the benchmark and the trigger-blind bound. Each cell
    also has the range of N* / limit.
    """
    rows = with_limits(load(STUDY / "bound"))
    times = rows["N"] / rows[[BENCHMARK, HIDDEN]].max(axis=1)
    rows = rows.assign(c=rows["V"] // rows["d"], times=times)
    rows = rows.drop(columns=["d", "N", *LIMITS])  # they follow from the others
    rows.attrs["axes"] = ["V", "c", "L", "times"]
    groups = sorted({*rows[["c", "L"]].itertuples(index=False, name=None)})
    conditions = [f"c == {c} and L == {L}" for c, L in groups]
    for of, name in DECODERS.items():
        found = fit(rows, [0.5], where=conditions, along="times", of=of)
        slopes = found.exponents.to_dict("records")
        for (c, L), slope in zip(groups, slopes, strict=True):
            about = {"V / d": c, "L": L, "of": name}
            yield about | {"text": over_limit(slope, found)}


def over_limit(slope, found):
    """Formats the slope of a law in V, and the range of N* / limit in its cells."""
    if slope["n_cells"] < 4:
        return f"{slope['n_cells']} cells"
    cells = found.thresholds.query(slope["regime"])["critical"]
    ends = f"{cells.min():.3g} to {cells.max():.3g} times"
    return f"{with_ends(slope, '+.2f')}, {ends}"


def measured():
    """Returns N* at V = 1024 of the three steps and of decoders, by name, d and L."""
    steps = searched("law-long").query("V == @V and d >= V / 4")
    steps = steps.assign(name=steps["trigger_in_value"].map(STEPS))
    rows = load(STUDY / "decoders")
    tables = [
        fit(rows, [0.5], of=of).thresholds.query("censored == 'no'").assign(name=name)
        for of, name in [*DECODERS.items()][:3]
    ]
    found = pd.concat([steps, *tables], ignore_index=True).assign(V=V)
    return found[["name", *SIZES, "N_star", "critical", "lo", "hi"]].dropna()


NAMES = [*STEPS.values(), "assignment", "matched filter", *LIMITS]
D_VALUES, LENGTHS = (256, 512, 1024, 2048), (4, 64, 256, 1024, 4096, 16384)


@as_table(["d", "L"], {"{name}": with_interval()} | ALLOWED)
def bound_numbers():
    """N* at V = 1024 of the three steps and of decoders [95 %], by d and L.

    The last columns are the N that benchmark and bounds allow.
    """
    found = with_limits(
        measured().query("name in @NAMES and d in @D_VALUES and L in @LENGTHS")
    )
    names = pd.Categorical(found["name"], NAMES)
    return found.assign(name=names).sort_values(["d", "L"])


@as_table(["d", "L"], {"{name}": with_interval(".1f")})
def bound_times():
    """N* of the three steps at V = 1024 [95 %], over the bound with the position
    hidden, by d and L.
    """
    names = [*STEPS.values()]
    found = with_limits(measured().query("name in @names"))
    found = found.assign(name=pd.Categorical(found["name"], names))
    times = found[[*CRITICAL]].astype(float).div(found[HIDDEN], axis=0)
    return found.assign(**times).sort_values(["d", "L"])


RANGES = {
    "L, 4096 to 16384, d = 256": "d == 256 and L >= 4096",
    "L, 4096 to 16384, d = 1024": "d == 1024 and L >= 4096",
    "d, 256 to 1024, L = 4": "L == 4 and d <= 1024",
    "d, 256 to 1024, L = 16384": "L == 16384 and d <= 1024",
}
"""A dict from the name of each exponent, which begins with its axis, to its cells."""


@as_table()
def bound_exponents():
    """Exponents of N* at V = 1024 [95 %].

    The columns are the exponents of L for long sequences at two d, and of d for short
    and for long sequences.
    """
    steps = load(STUDY / "law-long").query("V == @V and d >= V / 4")
    steps.attrs["axes"] = ["d", "L", "N"]
    for inside, name in STEPS.items():
        rows = steps[steps["trigger_in_value"] == inside]
        yield {"": name} | exponents(rows, "accuracy")
    rows = load(STUDY / "decoders")
    yield {"": "assignment"} | exponents(rows, "assignment_accuracy")
    sizes = pd.DataFrame(product([V], D_VALUES, LENGTHS), columns=SIZES)
    sizes = with_limits(sizes)
    for name in LIMITS:
        line = {"": name}
        for range_, condition in RANGES.items():
            axis = range_[0]
            slope = power_law(sizes.query(condition), name, [axis])[axis]
            line[range_] = f"{round(slope, 2) + 0:+.2f}"
        yield line


def exponents(rows, of):
    """Returns the exponent of each range, as text."""
    found = fit(rows, [0.5], where=RANGES.values(), of=of).exponents
    found = found.set_index(["regime", "axis"])
    return {
        range_: with_ends(found.loc[condition, range_[0]], "+.2f")
        for range_, condition in RANGES.items()
    }


WORDS = {
    True: "three steps, trigger in the value",
    False: "three steps, trigger only in the key",
    BENCHMARK: "Gaussian channel, a benchmark",
    HIDDEN: "least of any trigger-blind learner",
    SHOWN: "V ln 2: half of the labels occur",
}
"""What figures say of the three steps, by whether the trigger is in the value, and of
the limits.
"""

FULL = {"linestyle": "-", "marker": "none", "width": 0.75}
LINES = {
    BENCHMARK: DASHED | {"color": "0.55", "width": 1},
    HIDDEN: {"linestyle": "-", "marker": "none"},
    SHOWN: {"linestyle": ":", "marker": "none"},
}
PANELS = {
    "along L, V / d = 1": ("L", "d == 1024"),
    "along L, V / d = 4": ("L", "d == 256"),
    "along d, L = 4": ("d", "L == 4"),
    "along d, L = 16384": ("d", "L == 16384"),
}
"""A dict from the title of a panel to its axis and its cells."""


def in_panels(table):
    """Returns the rows of each panel, with the place along its axis."""
    parts = []
    for panel, (axis, condition) in PANELS.items():
        mine = table.query(condition)
        parts.append(mine.assign(panel=panel, along=mine[axis]))
    table = pd.concat(parts)
    return table.assign(panel=pd.Categorical(table["panel"], PANELS))


def against():
    """N* of the three steps and of a decoder with their limits, V = 1024.

    The panels are along L at V / d = 1 and 4, and along d at two L.
    """
    names = [*STEPS.values(), "assignment"]
    words = {name: WORDS[inside] for inside, name in STEPS.items()}
    words["assignment"] = "assignment, from the first gradient"
    found = in_panels(measured().query("name in @names"))
    order = pd.Categorical(found["name"], names)
    found = found.assign(name=order.rename_categories(words))
    sizes = sizes_of_lines()
    theory = in_panels(of_steps(sizes)).replace({"name": words})
    over = [plot.Polyline(theory, "N_star", "theory (coloured), nothing fitted", FULL)]
    limits = in_panels(with_limits(sizes))
    for name, style in LINES.items():
        line = limits[["panel", "along"]].assign(N_star=limits[name])
        over.append(plot.Points(line, "N_star", WORDS[name], style, joined=True))
    return plot.figure(
        found,
        "N_star",
        x="along",
        lines="name",
        panels="panel",
        share_x=False,
        over=over,
        labels={
            "N_star": "N*: samples for an accuracy of 1/2",
            "along": "L: sequence length in tokens, or d: embedding width",
            "panel": "",
            "name": "",
        },
    )


def sizes_of_lines():
    """Returns the sizes along the lines of all panels."""
    lengths = [4, 8, 16, 32, *np.geomspace(64, 8192, 15).round().astype(int), 16384]
    widths = np.geomspace(230, 2300, 9).round().astype(int)
    cells = [*product([V], [V, V // 4], lengths), *product([V], widths, [4, 16384])]
    return pd.DataFrame(cells, columns=SIZES)


def of_steps(table):
    """Returns the predicted N* of the three steps at each size, by their name."""
    parts = []
    for inside, name in STEPS.items():
        cells = table.assign(trigger_in_value=inside, name=name)
        models = models_of(cells, "trigger_in_value")
        parts.append(cells.assign(N_star=on_all_cores(critical_N, models)))
    return pd.concat(parts)


def decoders():
    """N* of decoders of the first gradient and of the three steps, over the larger of
    benchmark and bound, against V.
    """
    found = thresholds()
    limit = found[[BENCHMARK, HIDDEN]].max(axis=1)
    order = pd.Categorical(found["of"], [*DECODERS.values()][::-1], ordered=True)
    found = found.assign(times=found["critical"] / limit, decoder=order)
    found = found[["decoder", *SIZES, "c", "times"]].dropna()
    square, wide = found.query("V == d"), found.query("V == 2 * d")
    dotted = {"linestyle": ":", "open": True}
    legend = "filled: V = d, open: V = 2 d"
    drawn = plot.figure(
        square.query("L == 8")[["decoder", "V", "times"]],
        "times",
        x="V",
        lines="decoder",
        joined=True,
        scale="log",
        over=[
            plot.Polyline(square, "times", each="L"),
            plot.Polyline(wide, "times", legend, dotted, each="L"),
        ],
        labels={
            "times": "N* over the larger of benchmark and bound",
            "V": "V; two lines each: L = 8 and 32",
            "decoder": "",
        },
        size="4.6x3.4",
    )
    drawn.axes[0].set_ylim(1, 200)
    return drawn
