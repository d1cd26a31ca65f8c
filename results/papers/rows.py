"""Five claims of other papers, compared with the tables in this folder.

python results/papers/rows.py [--draw]
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from shared import (
    CLAIM,
    at,
    bracketed,
    divided,
    interval,
    markdown,
    save,
)

import jaxrecall
from jaxrecall import plot

HERE = Path(__file__).parent
HEADS = ["paper", "claim", "measured [95 %]", "range", "verdict"]
SURE_OF_FREQUENT = 0.9
"""The mean probability of frequent labels at which optimisers are compared."""

NAMES = {"sgd": "SGD", "adam": "Adam", "polar": "polar", "muon": "Muon"}


@cache
def rows(name):
    """Returns the last row of each run of a grid, for runs of status ok."""
    return traces(name).groupby(["point_id", "seed"]).tail(1)


@cache
def traces(name):
    """Returns all recorded steps of the runs of a grid, in order, for runs of status
    ok.
    """
    table = jaxrecall.load(HERE / name).query("status == 'ok'")
    return table.sort_values("step", kind="stable") if "step" in table else table


def slopes(table, x, y):
    """(seeds,): the least-squares slope of ln y along ln x for each seed."""
    wide = np.log(table.pivot_table(y, x, "seed").dropna(axis=1))
    return np.polyfit(np.log(wide.index.to_numpy(float)), wide.to_numpy(), 1)[0]


def last_slopes(table, x, y):
    """(seeds,): the slope between the two largest values of x."""
    return slopes(table[table[x].isin(sorted(table[x].unique())[-2:])], x, y)


def shown(values, form=".2f"):
    """Formats the mean over seeds with its 95 % interval."""
    return bracketed(interval(values), form)


def judged(claim, values, near=0.1):
    """Returns `holds` if the interval contains the claim.

    Otherwise returns `near` if the mean is within `near` of the claim, and else
    `differs`.
    """
    mean, lo, hi = interval(values)
    return (
        "holds"
        if lo <= claim <= hi
        else "near"
        if abs(mean - claim) <= near
        else "differs"
    )


def judged_by_last(claim, values, last):
    """Returns the verdict of `judged`, or `consistent` if only the interval of the last
    octave contains the claim.
    """
    verdict = judged(claim, values)
    if verdict != "holds" and judged(claim, last) == "holds":
        return "consistent"
    return verdict


def verdicts(found):
    """Returns one verdict if all are equal, else the verdict of each."""
    found = list(found)
    return found[0] if len(set(found)) == 1 else "; ".join(found)


def spans(table, *names):
    """Returns the range of each axis, in words."""
    found = []
    for name in names:
        values = sorted(table[name].unique())
        found.append(
            f"{name} {values[0]:g} to {values[-1]:g}"
            if len(values) > 1
            else f"{name} {values[0]:g}"
        )
    return ", ".join(found)


ALPHAS = {1.5: "error_1_5", 2.0: "error_2"}


def weights(labels, alpha):
    return at(rows("weights"), labels=labels, alpha=alpha)


def cabannes(optimizer, alpha):
    """Returns errors along d of a trained memory on infinitely many samples.

    The polar factor treats singular values below d eps as 0, and the smallest singular
    values are about d^-alpha. For polar steps, only widths at which all singular values
    are larger are kept.
    """
    table = at(rows("cabannes"), optimizer=optimizer)
    table = table[
        (table["N"] == table["N"].max()) & np.isclose(table["tokens.s"], alpha)
    ].assign(error=lambda rows: rows[ALPHAS[alpha]])
    return (
        table[table["d"] ** (1 + alpha) < 1 / np.finfo(np.float32).eps]
        if optimizer == "polar"
        else table
    )


def infinite_width(alpha):
    """Returns errors along N with one-hot rows."""
    table = at(rows("cabannes"), embedding="orthogonal")
    return table[np.isclose(table["tokens.s"], alpha)].assign(
        error=lambda rows: rows[ALPHAS[alpha]]
    )


def cabannes_rows():
    paper = "Cabannes et al. 2310.02984"
    few = weights(8, 2.0)
    both = " and ".join(f"{alpha:g}" for alpha in ALPHAS)
    found = {alpha: slopes(weights(8, alpha), "d", "equal") for alpha in ALPHAS}
    last = {alpha: last_slopes(weights(8, alpha), "d", "equal") for alpha in ALPHAS}
    yield [
        paper,
        (
            f"error ~ d^-(alpha - 1), alpha {both}:"
            f" {', '.join(f'{1 - alpha:g}' for alpha in ALPHAS)}"
        ),
        "; ".join(
            f"{shown(found[alpha])}, last octave {shown(last[alpha])}"
            for alpha in ALPHAS
        ),
        f"equal weights, 8 labels, {spans(few, 'd', 'V')}",
        verdicts(
            judged_by_last(1 - alpha, found[alpha], last[alpha]) for alpha in ALPHAS
        ),
    ]
    found = {alpha: slopes(infinite_width(alpha), "N", "error") for alpha in ALPHAS}
    yield [
        paper,
        (
            "error ~ N^(1/alpha - 1):"
            f" {', '.join(f'{1 / alpha - 1:.2f}' for alpha in ALPHAS)}"
        ),
        "; ".join(shown(values) for values in found.values()),
        f"one-hot rows, {spans(infinite_width(2.0), 'N', 'V')}",
        verdicts(judged(1 / alpha - 1, found[alpha]) for alpha in ALPHAS),
    ]
    at_largest = {
        alpha: at(weights(8, alpha), d=int(few["d"].max())) for alpha in ALPHAS
    }
    ratios = {
        alpha: np.exp(interval(np.log(table["frequencies"] / table["equal"])))
        for alpha, table in at_largest.items()
    }
    yield [
        paper,
        "worse with weights equal to frequencies",
        "; ".join(
            f"{bracketed(ratios[alpha], '.1f')} times,"
            f" d^{shown(slopes(weights(8, alpha), 'd', 'frequencies'))}"
            for alpha in ALPHAS
        ),
        f"8 labels, {spans(few, 'd', 'V')}; times at d {few['d'].max()}",
        verdicts("holds" if lo > 1 else "differs" for _, lo, _ in ratios.values()),
    ]
    found = {alpha: slopes(weights(4096, alpha), "d", "equal") for alpha in ALPHAS}
    trained = ("sgd", "polar", "adam")
    parts = [f"equal {'; '.join(map(shown, found.values()))}"]
    parts += [
        f"{NAMES[of]}"
        f" {'; '.join(shown(slopes(cabannes(of, alpha), 'd', 'error')) for alpha in ALPHAS)}"  # noqa: E501
        for of in trained
    ]
    ends = ", ".join(
        f"polar to {cabannes('polar', alpha)['d'].max()} at alpha {alpha:g}"
        for alpha in ALPHAS
    )
    yield [
        paper,
        "the same along d where each item has a label of its own",
        " / ".join(parts),
        (
            f"equal {spans(weights(4096, 2.0), 'd', 'V')}; one step"
            f" {spans(cabannes('sgd', 2.0), 'd', 'V')}, {ends}; Adam"
            f" {spans(cabannes('adam', 2.0), 'd', 'V', 'step')}"
        ),
        verdicts(judged(1 - alpha, found[alpha]) for alpha in ALPHAS),
    ]


WIDER = 16
"""The smallest width of a second fit of the exponents of facts."""

STORED = 0.99
"""The recalled share of facts above which a memory stores them."""


@cache
def facts():
    """Returns V* of each seed, and V* ln V*.

    V* is the geometric middle of the two levels of V between which recall falls through
    STORED. Raises ValueError if recall does not cross STORED.
    """
    found = []
    for (d, m, seed), mine in (
        rows("nichani").sort_values("V").groupby(["d", "m", "seed"])
    ):
        V, recalled = mine["V"].to_numpy(float), mine["memory_accuracy"].to_numpy()
        after = int(np.argmax(recalled < STORED))
        if recalled[after] >= STORED or after == 0:
            raise ValueError(
                f"nichani: got recall from {recalled[0]:g} to {recalled[-1]:g} at d"
                f" {d}, m {m}; allowed: one that crosses {STORED}"
            )
        crossing = np.log(V[[after - 1, after]]).mean()
        found.append(
            {
                "d": d,
                "m": m,
                "seed": seed,
                "entries": d * (m or d),
                "V": np.exp(crossing),
                "V ln V": np.exp(crossing) * crossing,
            }
        )
    return pd.DataFrame(found)


def nichani_rows():
    found = facts()
    for claim, cells, x in (
        (2, found[found["m"] == 0], "d"),
        (1, found[found["m"] > 0], "m"),
    ):
        bits_of = (
            (cells["V ln V"] / cells["entries"] / np.log(2)).groupby(cells[x]).mean()
        )
        parts = [
            f"{name.replace('V', 'V*')} ~ {x}^{shown(slopes(cells, x, name))}"
            for name in ("V", "V ln V")
        ]
        wide = slopes(cells[cells[x] >= WIDER], x, "V ln V")
        parts += [f"from {x} {WIDER} {shown(wide)}"]
        yield [
            "Nichani et al. 2412.06538",
            (
                "facts at 99 % ~"
                f" {'d^2 without an MLP' if x == 'd' else 'm d with an MLP'}"
            ),
            (
                f"{', '.join(parts)}; V* log2 V* {bits_of.min():.2f} to"
                f" {bits_of.max():.2f} bits an entry"
            ),
            (
                f"{spans(cells, 'd', 'm')}, V* {cells['V'].min():.0f} to"
                f" {cells['V'].max():.0f}, 3000 steps of Adam"
            ),
            (
                f"V*: {judged(claim, slopes(cells, x, 'V'))}; V* ln V* from {x}"
                f" {WIDER}: {judged(claim, wide)}"
            ),
        ]


WIDE = 2 * 66
"""The width from which the names of rows of `wang` include d."""

LAWS = {"orthogonal": "one-hot", "rows:Rotated": "rotated", "sphere": "sphere"}


@cache
def rare():
    """Returns rare confidence at the step where the frequent one first reaches
    SURE_OF_FREQUENT.

    There is a row for each optimiser, law, rate and seed.
    """
    found = []
    for (optimizer, law, d, rate, seed), run in traces("wang").groupby(
        ["optimizer", "embedding", "d", "lr", "seed"]
    ):
        frequent = run["frequent_confidence"].to_numpy()
        of_rare = run["rare_confidence"].to_numpy()
        after = int(np.argmax(frequent >= SURE_OF_FREQUENT))
        if frequent[after] < SURE_OF_FREQUENT:
            continue
        part = (SURE_OF_FREQUENT - frequent[after - 1]) / (
            frequent[after] - frequent[after - 1]
        )
        between = of_rare[after - 1] + part * (of_rare[after] - of_rare[after - 1])
        found.append(
            {
                "optimizer": optimizer,
                "law": LAWS[law] if d < WIDE else f"{LAWS[law]}, d {d}",
                "lr": rate,
                "seed": seed,
                "rare": between,
                "after": run["step"].iloc[after],
            }
        )
    return pd.DataFrame(found)


def at_rates(optimizer, law):
    """(rates, seeds): rare confidence at equal progress.

    Only rates that take at least 5 steps in every seed are included.
    """
    mine = rare().query("optimizer == @optimizer and law == @law")
    wide = mine.pivot_table("rare", "lr", "seed").dropna()
    slow = mine.groupby("lr")["after"].min() >= 5
    return wide[slow.reindex(wide.index)]


def best_at(optimizer, law):
    """Returns rare confidence by seed at the rate where its mean is largest."""
    wide = at_rates(optimizer, law)
    return wide.loc[wide.mean(axis=1).idxmax()].to_numpy()


def laws(optimizer):
    """Returns the laws of rows that an optimiser was run with.

    Laws that all optimisers were run with come first.
    """
    ran = set(rare().query("optimizer == @optimizer")["law"])
    return [*LAWS.values(), *sorted(ran - {*LAWS.values()})]


def over_rates(optimizer):
    """Returns the rare confidence of each law, as text.

    The text has the value at the best rate with its interval, and the range over rates.
    """
    parts = []
    for law in laws(optimizer):
        means = at_rates(optimizer, law).mean(axis=1)
        parts.append(
            f"{law} {shown(best_at(optimizer, law))}, rates {means.min():.2f} to"
            f" {means.max():.2f}"
        )
    return "; ".join(parts)


def wang_rows():
    paper = "Wang et al. 2509.26030"
    sizes = "V 64, d 66 unless given, alpha 1.5, 5 steps or more"
    good = {
        law: interval(best_at("muon", law))[1] >= SURE_OF_FREQUENT - 0.1
        for law in laws("muon")
    }
    yield [
        paper,
        (
            "Muon learns rare items as well as frequent ones, whatever the rows:"
            f" {SURE_OF_FREQUENT}"
        ),
        " / ".join(f"{NAMES[of]}: {over_rates(of)}" for of in ("polar", "muon", "sgd")),
        sizes,
        "; ".join(
            f"{law}: {'holds' if holds else 'differs'}" for law, holds in good.items()
        ),
    ]
    apart = best_at("adam", "one-hot") - best_at("adam", "rotated")
    yield [
        paper,
        "Adam depends on the rows",
        f"{over_rates('adam')}; one-hot less rotated {shown(apart)}",
        sizes,
        "holds" if interval(apart)[1] > 0.1 else "differs",
    ]


def trained_entries(table):
    """The number of entries of V_mat, and of Z_in and Z_out if they are trained.

    At L = 1 nothing depends on W_KQ and z_trig.
    """
    return table["d"] ** 2 + np.where(
        table["trains"] == "V", 0, 2 * table["V"] * table["d"]
    )


@cache
def bits():
    """Returns the bits per trained entry of each run, at the best rate of each cell.

    The bits are (V log2 V - V loss / ln 2) / entries. The best rate has the largest
    mean.
    """
    table = rows("bits")
    stored = table["V"] * (np.log2(table["V"]) - table["loss"] / np.log(2))
    table = table.assign(
        stored=stored / trained_entries(table),
        ceiling=table["V"] * np.log2(table["V"]) / trained_entries(table),
    )
    means = table.groupby(["trains", "d", "V", "lr"])["stored"].mean().reset_index()
    best = means.loc[means.groupby(["trains", "d", "V"])["stored"].idxmax()].drop(
        columns="stored"
    )
    return table.merge(best, on=["trains", "d", "V", "lr"])


def most_bits(trains, d):
    """Returns the runs of the V with the most bits per entry."""
    cell = at(bits(), trains=trains, d=d)
    return at(cell, V=cell.groupby("V")["stored"].mean().idxmax())


def bits_rows():
    for trains, counted in (("V", "V_mat"), ("VWZ", "V_mat, Z_in and Z_out")):
        parts, sizes = [], sorted(at(bits(), trains=trains)["d"].unique())
        for d in sizes:
            most = most_bits(trains, d)
            first = most.iloc[0]
            parts.append(
                f"d {d}: {shown(most['stored'])} (V {first['V']}, all facts"
                f" {first['ceiling']:.2f})"
            )
        largest = max((most_bits(trains, d)["stored"] for d in sizes), key=np.mean)
        yield [
            "Allen-Zhu and Li 2404.05405",
            f"2 bits a parameter at 1000 exposures; counted: {counted}",
            "; ".join(parts),
            (
                f"{spans(at(bits(), trains=trains), 'd', 'V')}, 1000 steps of Adam,"
                f" {spans(at(rows('bits'), trains=trains), 'lr')}"
            ),
            judged(2.0, largest),
        ]


def noisy(optimizer, label_noise, x, **values):
    """Returns errors along x, at the rate with the smallest mean error for each x."""
    table = at(
        traces("noise"), optimizer=optimizer, label_noise=label_noise, **values
    ).query("step > 0")
    means = table.groupby([x, "lr"])["error_1_5"].mean().reset_index()
    best = means.loc[means.groupby(x)["error_1_5"].idxmin(), [x, "lr"]]
    return table.merge(best, on=[x, "lr"])


def noise_rows():
    """Yields the rows on noisy labels.

    They are along steps at the largest N, and along N after the last step.
    """
    level = float(rows("noise")["label_noise"].max())
    N = int(rows("noise")["N"].max())
    steps = int(rows("noise")["step"].max())
    for x, values in (("step", {"N": N}), ("N", {"step": steps})):
        sgd, polar = (noisy(of, level, x, **values) for of in ("sgd", "polar"))
        slower, faster = slopes(sgd, x, "error_1_5"), slopes(polar, x, "error_1_5")
        wide = [table.pivot_table("error_1_5", x, "seed") for table in (sgd, polar)]
        last = [shown(table.iloc[-1], ".3f") for table in wide]
        lower = all(
            interval(difference)[1] > 0 for difference in (wide[0] - wide[1]).to_numpy()
        )
        steeper = interval(slower - faster)[1] > 0
        yield [
            "Muon in associative memory learning 2602.05725",
            f"with label noise Muon scales better than SGD; here error along {x}",
            (
                f"SGD {x}^{shown(slower)}, polar {x}^{shown(faster)}; at the last {x}"
                f" {last[0]} and {last[1]}"
            ),
            (
                f"label noise {level:g}, {spans(sgd, 'step', 'N', 'V', 'd')}, alpha"
                f" 1.5, rates {rates_of('sgd')} and {rates_of('polar')}"
            ),
            (
                "holds"
                if lower and steeper
                else "lower at each, but no steeper"
                if lower
                else "differs"
            ),
        ]


def rates_of(optimizer):
    return spans(at(rows("noise"), optimizer=optimizer), "lr").removeprefix("lr ")


ROWS = (cabannes_rows, nichani_rows, wang_rows, bits_rows, noise_rows)


def errors_along(x, *parts):
    """Returns a table of errors along x by seed.

    Each part is a table of runs, its column of errors, and settings that describe it.
    """
    tables = []
    for runs, column, settings in parts:
        tables.append(runs[[x, "seed"]].assign(error=runs[column], **settings))
    return pd.concat(tables)


def power_law(runs, x, y, power, i=-1):
    """Returns a line with this slope through the mean at the i-th x."""
    means = runs.groupby(x)[y].mean()
    line = means.iloc[i] * (means.index / means.index[i]) ** power
    return pd.DataFrame({x: means.index, y: line})


def panels(table, y, named, claim=None, lines="kind", **places):
    """Draws means over seeds with 95 % intervals, and a claim."""
    over = places.pop("over", [])
    if claim is not None:
        over = [*over, plot.Polyline(claim, y, "claim", CLAIM)]
    labels = {"kind": "", "rows": "", y: named}
    plot.figure(table, y, lines=lines, band="95 %", over=over, labels=labels, **places)


def along_d(on):
    """Draws the error along d with few labels, and with a label for each item."""
    few, many = weights(8, 2.0), weights(4096, 2.0)
    table = errors_along(
        "d",
        (few, "equal", {"labels": 8, "kind": "equal weights"}),
        (few, "frequencies", {"labels": 8, "kind": "frequencies"}),
        (many, "equal", {"labels": 4096, "kind": "equal weights"}),
        (cabannes("sgd", 2.0), "error", {"labels": 4096, "kind": "SGD"}),
        (cabannes("polar", 2.0), "error", {"labels": 4096, "kind": "polar"}),
    )
    equal = table.query("labels == 8 and kind == 'equal weights'")
    claim = power_law(equal, "d", "error", -1, 0).assign(labels=8)
    named = "error (alpha 2)"
    panels(table, "error", named, claim, x="d", columns="labels", scale="log", on=on)


def along_N(on):
    """Draws the error along N for one-hot rows, and for polar steps at two widths."""
    parts, claims = [], []
    for alpha, column in ALPHAS.items():
        one_hot = infinite_width(alpha)
        parts.append((one_hot, "error", {"kind": "one-hot embeddings", "alpha": alpha}))
        polar = at(rows("cabannes"), optimizer="polar", V=1024, **{"tokens.s": alpha})
        for d in (64, 256):
            settings = {"kind": f"polar, d {d}", "alpha": alpha}
            parts.append((at(polar, d=d), column, settings))
        claim = power_law(one_hot, "N", "error", 1 / alpha - 1)
        claims.append(claim.assign(alpha=alpha))
    table, claim = errors_along("N", *parts), pd.concat(claims)
    named = "error"
    panels(table, "error", named, claim, x="N", columns="alpha", scale="log", on=on)


def capacities(on):
    """Draws the facts that a memory stores against its trained entries."""
    x = "trained entries, d^2 or m d"
    names = {"entries": x, "V": "V*", "V ln V": "V* ln V*"}
    found = facts().rename(columns=names)
    mlp = "relu MLP, d 16, m 16 to 128"
    found["kind"] = np.where(found["m"] > 0, mlp, "no MLP, d 8 to 32")
    table = found.melt([x, "kind", "seed"], ["V*", "V* ln V*"], "rows", "facts")
    claims = []
    for kind, mine in table[table["rows"] == "V* ln V*"].groupby("kind"):
        claim = power_law(mine, x, "facts", 1)
        claims.append(claim.assign(kind=kind, rows="V* ln V*"))
    claim, named = pd.concat(claims), "facts at 99 %"
    panels(table, "facts", named, claim, x=x, columns="rows", scale="log", on=on)


def rare_and_frequent(on):
    """Draws the probability of rare labels at the best rate, and at each rate."""
    x = "optimiser, at its best rate"
    best, each = [], []
    for law in LAWS.values():
        for optimizer, named in NAMES.items():
            place = {"rows": law, x: named}
            found = pd.DataFrame({"rare": best_at(optimizer, law)}).assign(**place)
            best.append(found.rename_axis("seed").reset_index())
            rates = at_rates(optimizer, law).mean(axis=1)
            each.append(pd.DataFrame({"rare": rates}).assign(**place))
    claim = pd.DataFrame({x: [*NAMES.values()], "rare": SURE_OF_FREQUENT})
    tick = {"marker": "_", "linestyle": "none", "size": 1.8, "color": "0.3"}
    dash = {"marker": "_", "size": 3, "color": "0.6"}
    panels(
        pd.concat(best),
        "rare",
        "probability of rare labels",
        lines=[],
        x=x,
        columns="rows",
        over=[
            plot.Polyline(pd.concat(each), "rare", "each rate", tick),
            plot.Polyline(claim, "rare", "claim", dash),
        ],
        on=on,
    )


def by_vocabulary(on):
    """Draws the bits of a trained entry along V."""
    words = bits()["trains"].map({"V": "fixed embeddings", "VWZ": "trained embeddings"})
    table = bits()[["V", "d", "seed", "stored"]].assign(rows=words)
    claim = pd.DataFrame({"V": [table["V"].min(), table["V"].max()], "stored": 2.0})
    named = "bits a trained entry"
    panels(table, "stored", named, claim, "d", x="V", columns="rows", on=on)


def over_steps(on):
    """Draws the error along steps at the best rate, without and with label noise."""
    N = rows("noise")["N"].max()
    parts = []
    for level in (0.0, 0.5):
        for optimizer in ("sgd", "polar"):
            settings = {"label noise": level, "kind": NAMES[optimizer]}
            runs = noisy(optimizer, level, "step", N=N)
            parts.append((runs, "error_1_5", settings))
    table, named = errors_along("step", *parts), f"error (N {N}, best rate)"
    panels(table, "error", named, x="step", columns="label noise", scale="log", on=on)


FIGURES = {
    "cabannes": (along_d, along_N),
    "nichani": (capacities,),
    "wang": (rare_and_frequent,),
    "allen-zhu": (by_vocabulary,),
    "label-noise": (over_steps,),
}
"""A dict from the name of the image of a paper to what draws its rows of panels."""


def main(arguments):
    found = [row for rows_of in ROWS for row in rows_of()]
    print(markdown(HEADS, found))
    if "--draw" in arguments:
        for name, draws in FIGURES.items():
            whole, places = divided(len(draws), 1, height=2.7 * len(draws))
            for draw, place in zip(draws, places, strict=True):
                draw(place)
            save(name, whole)


if __name__ == "__main__":
    main(sys.argv[1:])
