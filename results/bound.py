"""The three steps and decoders of the initial gradient, compared with their limits.

The data is in the studies results/study/bound, decoders and law-long.
"""

from collections import Counter
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import factorial, prod

import numpy as np
import pandas as pd
from drawing import DASH, above, canvas, line, log_axis, look, save
from law import SIZES, STUDY, power_law, searched, with_ends
from scipy.optimize import brentq
from table import as_table, with_interval

from jaxrecall import load
from jaxrecall.fit import fit
from jaxrecall.theory import Model, critical_N, fano_ceiling, recall_ceiling

V = 1024
DECODERS = {
    "assignment_accuracy": "assignment",
    "whitened_accuracy": "whitened",
    "matched_accuracy": "matched filter",
    "accuracy": "three steps",
}
BENCHMARK = "Gaussian channel"
HIDDEN = "bound, position hidden"
SHOWN = "bound, position seen"
LIMITS = {
    BENCHMARK: fano_ceiling,
    HIDDEN: lambda model, N: recall_ceiling(model, N, sees_position=False),
    SHOWN: lambda model, N: recall_ceiling(model, N, sees_position=True),
}
STEPS = {
    True: "three steps, trigger in the value",
    False: "three steps, trigger out of it",
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
    np.add.at(seen, which, chances)
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

    The limit is the larger of the benchmark and the bound (position hidden). Each cell
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


def limits(name, d_values, lengths):
    """The N at which a limit, or theory of the three steps, knows half of pi.

    The size is V = 1024. The result is an array over every d and L.
    """
    models = [
        Model(V=V, d=int(d), L=int(L), trigger_in_value=name != STEPS[False])
        for d in d_values
        for L in lengths
    ]
    found = [
        least(name, model) if name in LIMITS else critical_N(model) for model in models
    ]
    return np.reshape(found, (len(d_values), len(lengths)))


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


LINES = {
    BENCHMARK: {"color": "0.55", "linestyle": DASH, "linewidth": 1.4},
    HIDDEN: {"color": "black", "linestyle": "-", "linewidth": 1.4},
    SHOWN: {"color": "black", "linestyle": ":", "linewidth": 1.4},
    STEPS[True]: {"color": "#D55E00", "linestyle": "-", "linewidth": 0.9},
    STEPS[False]: {"color": "#0072B2", "linestyle": "-", "linewidth": 0.9},
}
MARKS = {
    STEPS[True]: {"color": "#D55E00", "marker": "o"},
    STEPS[False]: {"color": "#0072B2", "marker": "s"},
    "assignment": {"color": "#009E73", "marker": "^"},
    "matched filter": {"color": "#88CCAA", "marker": "v"},
}


def against():
    """Draws N* of the three steps and of decoders with benchmark and bounds, V = 1024.

    The panels are along L at V / d = 1 and 4, and along d at two L.
    """
    found = measured()
    lengths = np.geomspace(4, 16384, 13).round().astype(int)
    widths = np.geomspace(230, 2300, 9).round().astype(int)
    figure, panels = canvas(2, 2, 5.0, sharey=True)
    for ax, (axis, other, value) in zip(
        panels.flat,
        (("L", "d", V), ("L", "d", V // 4), ("d", "L", 4), ("d", "L", 16384)),
        strict=True,
    ):
        x, sizes = (
            (lengths, ([value], lengths))
            if axis == "L"
            else (widths, (widths, [value]))
        )
        for name, style in LINES.items():
            ax.plot(x, limits(name, *sizes).ravel(), **style)
        for name, style in MARKS.items():
            mine = found[(found["name"] == name) & (found[other] == value)]
            ends = [mine["N_star"] - mine["lo"], mine["hi"] - mine["N_star"]]
            ax.errorbar(
                mine[axis],
                mine["N_star"],
                yerr=ends,
                linestyle="none",
                elinewidth=0.7,
                **style,
            )
        title, name = (
            (f"V / d = {V // value}", "L: sequence length, tokens")
            if axis == "L"
            else (f"L = {value}", "d: embedding width")
        )
        ax.set(xscale="log", yscale="log", ylim=(10, 5e7), title=title, xlabel=name)
        ax.grid(True)
        log_axis(ax.xaxis)
        log_axis(ax.yaxis)
    for ax in panels[1]:
        ax.set_xticks(D_VALUES, [str(d) for d in D_VALUES])
        ax.minorticks_off()
    figure.supylabel("N*: samples for an accuracy of 1/2", fontsize=8)
    names = [*MARKS, *LIMITS]
    above(
        figure,
        [
            line(
                name,
                **{"linestyle": "none"} | LINES.get(name, {}) | MARKS.get(name, {}),
            )
            for name in names
        ],
    )
    return "bound", figure


LOOKS = {
    "accuracy": ("three steps, test accuracy", "o", "black"),
    "matched_accuracy": ("matched filter", "s", "#332288"),
    "whitened_accuracy": ("whitened least squares", "D", "#2A9D8F"),
    "assignment_accuracy": ("assignment", "^", "#E69F00"),
}


def decoders():
    """Draws decoders of the first gradient with the three steps, benchmark and bound.

    There is a panel for each of twelve sizes.
    """
    rows = load(STUDY / "bound")
    every = sorted(
        rows[["d", "L", "V"]].drop_duplicates().itertuples(index=False, name=None)
    )
    figure, panels = canvas(4, 3, 7.2, sharex=True, sharey=True)
    for ax, (d, L, size) in zip(
        panels.flat,
        [every[i] for i in np.linspace(0, len(every) - 1, 12).round().astype(int)],
        strict=True,
    ):
        means = (
            rows[(rows["d"] == d) & (rows["L"] == L) & (rows["V"] == size)]
            .groupby("N")[[*LOOKS]]
            .agg(["mean", "std"])
        )
        for column, (_, marker, colour) in LOOKS.items():
            mean, sd = means[column, "mean"], means[column, "std"]
            ax.plot(mean.index, mean, color=colour, marker=marker)
            ax.fill_between(
                mean.index,
                (mean - sd).clip(0, 1),
                (mean + sd).clip(0, 1),
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        N = np.geomspace(means.index.min(), means.index.max(), 65)
        for name in (BENCHMARK, HIDDEN):
            ax.plot(
                N, [LIMITS[name](Model(V=size, d=d, L=L), n) for n in N], **LINES[name]
            )
        ax.set(xscale="log", ylim=(-0.02, 1.02), title=f"d = {d}, L = {L}, V = {size}")
        ax.grid(True)
    log_axis(panels[0, 0].xaxis)
    figure.supxlabel("N: samples", fontsize=8)
    figure.supylabel("accuracy (fraction)", fontsize=8)
    entries = [
        line(name, marker=marker, color=colour)
        for name, marker, colour in LOOKS.values()
    ]
    above(
        figure, [*entries, *(line(name, **LINES[name]) for name in (BENCHMARK, HIDDEN))]
    )
    return "decoders", figure


if __name__ == "__main__":
    with look():
        save("bound", *decoders())
        save("bound", *against())
