"""Why Zipf frequencies of tokens harm recall, and what helps, from results/study/zipf.

Measurements are compared with the gradient of infinitely many samples.
"""

from functools import cache

import numpy as np
import pandas as pd
from law import DASHED, STUDY, TRIGGER, with_trigger
from table import as_table, at, largest_off, stacked, with_interval

import jaxrecall
from jaxrecall import plot
from jaxrecall.fit import fit

SEEDS = 8
TESTED = 1024
"""The number of sequences over which attention of the infinite-sample gradient is
averaged.
"""

DRAWN = 64
"""The number of embedding tables, and of sequences per table, over which attention of
the formula is averaged.
"""

SIZES = [(64, 64), (64, 128), (128, 128)]
MEASURED = {
    "accuracy": "test accuracy (fraction)",
    "attention_mass": "attention on the\ninformative token",
}
BOTH, TOKENS, NOISE = "all tokens", "informative tokens alone", "noise tokens alone"
KINDS = (BOTH, TOKENS, NOISE)


@cache
def rows():
    """Returns the rows of the study, with the exponents of informative and of noise
    tokens.

    An exponent is 0 for uniform tokens.
    """
    table = jaxrecall.load(STUDY / "zipf")
    s, noise_s = exponent(table["tokens"]), exponent(table["noise_tokens"])
    return table.assign(
        s=s,
        noise_s=noise_s,
        largest=np.maximum(s, noise_s),
        kappa=table["kappa"].round(6),
        trigger=table["trigger_in_value"].map(TRIGGER),
    )


def exponent(laws):
    """Returns s of each law of tokens, given as text."""
    return (
        laws.str.extract(r"s=([0-9.]+)")[0]
        .astype(float)
        .fillna(laws.str.startswith("zipf").astype(float))
    )


def recipe():
    """Returns the rows that end with the recipe."""
    return at(rows(), start="three_step", steps=3)


def plain():
    """Returns the rows of the recipe with the defaults."""
    return at(recipe(), kappa=100.0, eta=1e-3, fresh_batches=False).query(
        "gamma2 == gamma"
    )


def population_w(tables, p, q, L, inside, errors):
    """(d,): W_KQ z_eos after step 2 of infinitely many samples, over kappa L^2 V
    |z_eos|^2.

    Rows of Z_out are in the order of the labels. c_v is the value and k_v the key of an
    informative token v, and mu = sum_v q_v z_v. Then -grad_V = sum_v p_v (z_out(v) -
    mean z_out) h_v^T with h_v = c_v / L + (1 - 1/L) mu.

    In step 2, b_v is the error of a sample, propagated back through Z_out and this
    gradient. The error is e_v - 1/V in the recipe (`errors` "uniform"), where all
    labels have equal predictions. It is e_v - p (`errors` "frequencies") if labels are
    predicted with their frequencies.
    """
    Z_in, Z_out, z_trig, _ = tables
    values, mu = Z_in + inside * z_trig, q @ Z_in
    centred = Z_out - Z_out.mean(axis=0)
    gradient = centred.T @ (p[:, None] * (values / L + (1 - 1 / L) * mu))
    b = (centred if errors == "uniform" else Z_out - p @ Z_out) @ gradient
    own, mean_b = np.sum(b * values, axis=1), p @ b
    of_noise = (
        (L - 1)
        / L
        * q
        * (Z_in @ mean_b * (1 - 1 / L) - p @ own / L - (L - 2) / L * (mean_b @ mu))
    )
    of_informative = p / L * (own * (1 - 1 / L) - (1 - 1 / L) * (b @ mu))
    return of_noise @ Z_in + of_informative @ (Z_in + z_trig)


@cache
def tables_of(V, d, seed):
    """Returns Z_in, Z_out in the order of the labels, z_trig and z_eos of a seed,
    float64.
    """
    drawn = jaxrecall.realize(jaxrecall.Point(V=V, d=d, L=2, N=1, n_test=1), seed)
    Z_in, Z_out, z_trig, z_eos = (
        np.asarray(table, np.float64)
        for table in (drawn.Z_in, drawn.Z_out, drawn.z_trig, drawn.z_eos)
    )
    return Z_in, Z_out[np.asarray(drawn.perm)], z_trig, z_eos


def frequencies(V, s):
    """(V,): the probabilities of tokens with Zipf exponent s."""
    shares = (np.arange(V) + 1.0) ** -s
    return shares / shares.sum()


@cache
def population_mass(V, d, L, inside, s, noise_s, errors="uniform", kappa=100.0):
    """Attention on the informative token with W_KQ of infinitely many samples.

    The result is a mean over seeds.
    """
    p, q = frequencies(V, s), frequencies(V, noise_s)
    found = []
    for seed in range(SEEDS):
        tables = tables_of(V, d, seed)
        Z_in, _, z_trig, z_eos = tables
        w = (
            population_w(tables, p, q, L, inside, errors)
            * kappa
            * L**2
            * V
            * (z_eos @ z_eos)
        )
        rng = np.random.default_rng(seed)
        score = Z_in @ w
        first = score[rng.choice(V, TESTED, p=p)] + z_trig @ w
        logits = np.column_stack([first, score[rng.choice(V, (TESTED, L - 1), p=q)]])
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        found.append(np.mean(weights[:, 0] / weights.sum(axis=1)))
    return np.mean(found)


def token_scores(V, d, L, p, q, inside, N=2048, kappa=100.0):
    """Statistics of the scores (nats) of tokens and of the trigger after step 2;
    docs/theory-derivations.md, section 4.3.

    The first two results are the mean and the standard deviation of each token's score
    over random tables, (V,) each. The last two results are the mean and the standard
    deviation of the trigger's score. If tokens are not equally frequent, labels add the
    mean embedding to w for any number of samples, and frequent tokens win attention.
    The noise of counts is neglected.
    """
    k = 1 - 1 / L

    # the coefficient of the mean embedding in the error of each label
    excess = p - 1 / V + 1 / N
    # the coefficient of each token's embedding in the mean of b
    mean_b = p * excess / L + k * (p @ excess) * q
    # b of each label, times the value of its token
    own = (p + 1 / N + inside * excess) / L + k * excess * q

    informative = own - (p + 1 / N) * q / L - k * excess * (q @ q)
    informative = k * p / L * informative
    noise = k * q * (k * mean_b - p @ own / L - (1 - 2 / L) * (mean_b @ q))
    weights = noise + informative
    signal = informative.sum()

    # variance of z^T b, times k^4
    through = k**4 * (mean_b @ mean_b + inside * (p @ excess / L) ** 2) / d
    of_trigger = 1 / d**2 + q @ q / d
    variance = (weights @ weights - weights**2 + signal**2) / d
    variance += through * (q**2 + 2 * q / d + of_trigger)
    exposure = (weights @ weights + 2 * signal**2) / d + through * of_trigger
    nats = kappa * L**2 * V
    mean = weights + k**2 * mean_b / d
    deviation, trigger_deviation = np.sqrt(variance), np.sqrt(exposure)
    return nats * mean, nats * deviation, nats * signal, nats * trigger_deviation


def locked_fraction(V, d, L, inside, s, noise_s):
    """The fraction of test samples whose informative token gets more than half of the
    attention, averaged over random tables and sequences, by `token_scores`.
    """
    p, q = frequencies(V, s), frequencies(V, noise_s)
    mean, deviation, trigger, exposure = token_scores(V, d, L, p, q, inside)
    rng = np.random.default_rng(0)
    locked = 0.0
    for _ in range(DRAWN):
        score = mean + deviation * rng.standard_normal(V)
        tokens = rng.choice(V, DRAWN, p=p)
        informative = trigger + exposure * rng.standard_normal() + score[tokens]
        counts = rng.multinomial(L - 1, q, DRAWN)
        ahead = np.minimum(score - informative[:, None], 100)
        rivals = (counts * np.exp(ahead)).sum(axis=1)
        locked += np.mean(rivals < 1)
    return float(locked / DRAWN)


def along_N():
    """Returns the rows of the block along N."""
    found = plain()
    return found[(found["s"] == found["noise_s"]) & found["L"].isin([8, 256])]


@as_table(
    ["V", "d", "L", "trigger"],
    {
        "s = {s}": with_interval(
            told={
                "left": "under {N_above}",
                "right": "none; {attention_mass:.2f}, {accuracy:.2f}",
            }
        )
    },
)
def zipf_critical():
    """N* [95 %] by s.

    Where there is none, the cell has attention and accuracy at the largest N.
    """
    cells = ["V", "d", "L", "trigger", "s"]
    found = along_N().sort_values("trigger", kind="stable")
    last = found[found["N"] == found["N"].max()]
    means = last.groupby(cells)[["attention_mass", "accuracy"]].mean()
    thresholds = [
        fit(mine, [0.5]).thresholds.assign(**dict(zip(cells, at, strict=True)))
        for at, mine in found.groupby(cells)
    ]
    return pd.concat(thresholds).query("record").join(means, on=cells)


def kind(table):
    """Returns the rows of the block along L in which these tokens have Zipf
    frequencies.
    """
    found = at(plain(), V=64, d=128, N=2048)
    return {
        BOTH: found[(found["s"] == found["noise_s"]) & (found["s"] > 0)],
        TOKENS: found[(found["s"] > 0) & (found["noise_s"] == 0)],
        NOISE: found[(found["s"] == 0) & (found["noise_s"] > 0)],
    }[table]


LENGTHS = (4, 8, 16, 32, 64)


def s_of(name, s):
    """The exponents of informative and of noise tokens."""
    return (0.0 if name == NOISE else s), (0.0 if name == TOKENS else s)


@as_table(
    ["trigger", "s", "Zipf"],
    {"L = {L}": "{attention_mass:.2f} ({endless:.2f}), {accuracy:.2f}"},
)
def zipf_cause():
    """Attention and accuracy, by the tokens that have Zipf frequencies, N = 2048.

    Attention of infinitely many samples is in brackets.
    """
    found = by_kind().query("L in (8, 32, 64)")
    return found.sort_values(["trigger", "s"], kind="stable")


@as_table(
    ["trigger", "Zipf"],
    {
        "cells": len,
        "rms": lambda cells: f"{np.sqrt(np.mean(cells['off'] ** 2)):.2f}",
        "largest": largest_off,
        "least attention, label frequencies known": lambda cells: (
            f"{cells['known'].min():.3f}"
        ),
    },
)
def zipf_errors():
    """Measured attention minus that of infinitely many samples: rms and largest, over s
    and L.

    There is a row for each choice of the tokens that have Zipf frequencies.
    """
    found = by_kind().sort_values("trigger", kind="stable")
    known = [
        population_mass(64, 128, L, inside, *s_of(name, s), "frequencies")
        for name, inside, s, L in found[PLACE].itertuples(index=False)
    ]
    off = found["attention_mass"] - found["endless"]
    return found.assign(off=off, known=known)


PLACE = ["Zipf", "trigger_in_value", "s", "L"]


def of_kinds():
    """Returns the rows along L, by the tokens that have Zipf frequencies."""
    found = pd.concat([kind(name).assign(Zipf=name) for name in KINDS])
    return found.assign(s=found["largest"]).query("L in @LENGTHS")


@cache
def by_kind():
    """Returns the mean attention and accuracy along L, by the tokens that have Zipf
    frequencies, with attention of infinitely many samples.
    """
    found = of_kinds()
    order = pd.Categorical(found["Zipf"], [*KINDS])
    found = found.assign(order=order).sort_values(["order", "trigger", "s", "L"])
    cells = found.groupby([*PLACE, "trigger"], sort=False)
    means = cells[["attention_mass", "accuracy"]].mean().reset_index()
    endless = [
        population_mass(64, 128, L, inside, *s_of(name, s))
        for name, inside, s, L in means[PLACE].itertuples(index=False)
    ]
    return means.assign(endless=endless)


USUAL = "kappa == 100 and eta == 0.001 and not fresh_batches"
CHOICES = {
    "as given": f"{USUAL} and gamma2 == gamma",
    **{f"kappa = {kappa}": f"kappa == {kappa}" for kappa in (0.1, 1, 10, 1000)},
    **{f"eta = {eta}": f"eta == {eta}" for eta in (10, 30, 100, 200, 300, 1000)},
    **{
        f"gamma2 = {rate} eta": f"{USUAL} and abs(gamma2 / eta / {rate} - 1) < 1e-4"
        for rate in (0.01, 1, 1000)
    },
    "fresh samples": "fresh_batches",
}
"""A dict from each choice of the recipe to the condition on its rows."""


def trained():
    """Yields the settings of further steps at s = 1, N = 1024, with their rows."""
    found = at(rows(), N=1024, s=1.0, steps=200)
    for optimizer in ("sgd", "adam"):
        yield f"{optimizer} from zero", at(found, optimizer=optimizer, start="zero")
        for kappa in (0.01, 100.0):
            yield (
                f"{optimizer} after the recipe, kappa = {kappa:g}",
                at(found, optimizer=optimizer, start="three_step", kappa=kappa),
            )


@as_table(
    [""],
    {
        "L = {L}, {trigger}": (
            "{attention_mass:.2f}, {accuracy:.2f}, {rare_memory_accuracy:.2f}"
        )
    },
    missing="not run",
)
def zipf_mends():
    """Attention, accuracy, and accuracy over the rarer half of the vocabulary, at s =
    1.

    The rows are choices of the recipe, and runs after 200 steps.
    """
    chosen = at(recipe(), V=64, d=128, N=2048, s=1.0, noise_s=1.0)
    later = [
        mine.query("step == 200").assign(**{"": f"{name}, step 200"})
        for name, mine in trained()
    ]
    found = pd.concat([stacked(chosen, "", CHOICES), *later])
    trigger = pd.Categorical(found["trigger"], [*TRIGGER.values()])
    return found.assign(trigger=trigger).query("L in (8, 64)")


def crossing(lengths, shares):
    """The length at which a share falls through one half.

    The share is interpolated in ln of the length. The result is infinite or 0 if it
    does not cross.
    """
    below = np.flatnonzero(np.asarray(shares) < 0.5)
    if not len(below) or below[0] == 0:
        return np.inf if not len(below) else 0.0
    (x, y), (a, b) = (
        np.log(lengths[below[0] - 1 : below[0] + 1]),
        shares[below[0] - 1 : below[0] + 1],
    )
    return float(np.exp(x + (a - 0.5) / (a - b) * (y - x)))


def length(end):
    """Formats the length at which a share falls through one half."""
    return f"{end:.1f}" if end < np.inf else "beyond 64"


@as_table()
def zipf_breaks():
    """L at which attention falls below one half, N = 2048, V = 64, d = 128.

    The measured share is the mean attention. Theory's share is the fraction of tokens
    with attention above one half.
    """
    off = []
    for (name, trigger, s), mine in by_kind().groupby(
        ["Zipf", "trigger", "s"], sort=False
    ):
        shares = [
            locked_fraction(64, 128, L, inside, *s_of(name, s))
            for L, inside in zip(mine["L"], mine["trigger_in_value"], strict=True)
        ]
        lengths = mine["L"].to_numpy()
        measured = crossing(lengths, mine["attention_mass"].to_numpy())
        theory = crossing(lengths, shares)
        line = {"Zipf": name, "trigger": trigger, "s": s}
        yield line | {"measured L": length(measured), "theory": length(theory)}
        if np.isfinite(measured):
            off.append(abs(np.log(theory / measured)))
    about = {"Zipf": "largest abs ln ratio", "trigger": f"{len(off)} cells"}
    yield about | {"theory": f"{max(off):.2f}"}


def breaking():
    """Accuracy and attention against N by s, for short and for long sequences."""
    return plot.figure(
        with_trigger(at(along_N(), V=64, d=128)),
        [*MEASURED],
        x="N",
        lines="s",
        columns=["L", "trigger"],
        band="95 %",
        labels=MEASURED | {"trigger": ""},
    )


def causing():
    """Attention against L, by the tokens that have Zipf frequencies.

    Attention of infinitely many samples is drawn as lines.
    """
    known = at(by_kind(), Zipf=BOTH).drop(columns="Zipf")
    places = known[["trigger_in_value", "s", "L"]].itertuples(index=False)
    masses = [
        population_mass(64, 128, L, inside, s, s, "frequencies")
        for inside, s, L in places
    ]
    known = with_trigger(known.assign(known=masses))
    dotted = DASHED | {"linestyle": ":"}
    endless = with_trigger(by_kind())
    over = [
        plot.Polyline(endless, "endless", "infinitely many samples", DASHED),
        plot.Polyline(known, "known", "the same, label frequencies known", dotted),
    ]
    return plot.figure(
        with_trigger(of_kinds()),
        "attention_mass",
        x="L",
        lines="Zipf",
        rows="trigger",
        columns="s",
        band="95 %",
        over=over,
        labels={
            "attention_mass": "attention on the informative token",
            "L": "L: sequence length, tokens",
            "trigger": "",
        },
    )


def mending():
    """Accuracy and attention against eta at s = 1, for both lengths."""
    usual = at(recipe(), V=64, d=128, N=2048, s=1.0, noise_s=1.0, kappa=100.0)
    usual = at(usual, fresh_batches=False).query("gamma2 == gamma and L in (8, 64)")
    rates = [f"{eta:g}" for eta in sorted(usual["eta"].unique())]
    rate = pd.Categorical(usual["eta"].map("{:g}".format), rates)
    return plot.figure(
        with_trigger(usual.assign(rate=rate)),
        [*MEASURED],
        x="rate",
        lines="trigger",
        columns="L",
        band="95 %",
        labels=MEASURED | {"trigger": "", "rate": "eta: rate of step 1"},
        size="5.5x4.2",
    )


def training():
    """Accuracy and attention against the step at s = 1, trigger in the key only.

    The steps start from zero or after the recipe.
    """
    parts = [
        mine.assign(begin=name.removeprefix("sgd ").removeprefix("adam "))
        for name, mine in trained()
    ]
    found = pd.concat(parts).query("step > 0 and not trigger_in_value")
    return plot.figure(
        found,
        [*MEASURED],
        x="step",
        lines="begin",
        columns=["optimizer", "L"],
        band="95 %",
        labels=MEASURED
        | {
            "begin": "",
            "optimizer": "",
            "step": "step, with the trigger only in the key",
        },
    )
