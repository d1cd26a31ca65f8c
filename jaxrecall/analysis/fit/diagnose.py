"""What an interval alone does not say: local slopes, other cuts of the cells, misfit, dispersion, and warnings in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .cells import Family, evidence
from .estimate import OPEN, Estimates
from .law import Law, interval

Row = dict[str, Any]


def diagnose(e: Estimates, exponents: Sequence[Row]) -> list[Row]:
    """Everything about one family at one theta, warnings last; `exponents` are its rows of the exponents table."""
    law = _about_the_law(e) if e.family.law and e.inside.any() else []
    rows = law + _warnings(e, exponents)
    return [{"part": e.family.name, "theta": e.asked} | row for row in rows]


def dispersion(family: Family) -> Row:
    """Variance between seeds over binomial variance, mean over points with 2 seeds or more and some right, some wrong."""
    total, free = 0.0, 0
    counted = [cell for cell in family.cells if cell.n.max() > 1]  # not so where a table has accuracies alone
    for cell in counted:
        for k, n in zip(cell.k, cell.n, strict=True):
            k, n = k[n > 0], n[n > 0]
            if len(n) > 1 and 0 < (p := k.sum() / n.sum()) < 1:
                total, free = total + ((k - n * p) ** 2 / (n * p * (1 - p))).sum(), free + len(n) - 1
    text = "1 if a seed's answers were independent; the intervals take the seed as the unit and do not assume it"
    row = _row("dispersion", "between seeds", total / free if free else np.nan, text)
    return {"part": family.name, "theta": np.nan, "regime": ""} | row


def _row(diagnostic: str, subject: str, value: float, text: str, lo: float = np.nan, hi: float = np.nan) -> Row:
    return {"diagnostic": diagnostic, "subject": subject, "value": float(value), "lo": float(lo), "hi": float(hi), "text": text}


def _about_the_law(e: Estimates) -> list[Row]:
    cells, y = e.cells, e.y[:, e.inside]
    n_seeds = max(cell.n_seeds for cell in cells)
    rows: list[Row] = []

    def add(diagnostic: str, subject: str, values: np.ndarray, weights: np.ndarray, text: str) -> None:
        if not np.isnan(values[0]):
            rows.append(_row(diagnostic, subject, values[0], text, *interval(values, n_seeds, float(e.shape_deviation(weights)))))

    for axis in e.family.law:
        at = np.array([cell.at[axis] for cell in cells])
        for low, high in pairwise(np.unique(at)):
            weights = _matched(cells, axis, low, high) / np.log(high / low)
            if weights.any():
                add("local_slope", f"{axis} {low} to {high}", y @ weights, weights, "between cells alike in all else")
        if len(np.unique(at)) > 2:
            keep = at > at.min()
            smaller = Law([cell for cell, kept in zip(cells, keep, strict=True) if kept], e.family.law, e.family.factors)
            for j, name in enumerate(e.family.law):
                weights = np.zeros(len(cells))
                weights[keep] = smaller.weights()[j]
                add("drop_smallest", f"{name} without {axis} = {at.min()}", smaller.exponents(y[:, keep])[:, j], weights, "exponent")
        if at.min() > 1:
            j = e.family.law.index(axis)
            values = e.law.exponents(y - np.log(np.log(at)))[:, j]
            add("with_log", axis, values, e.law.weights()[j], f"exponent of {axis} if {e.family.along}* also carries a factor ln {axis}")
    if misfit := e.misfit:
        text = f"rms distance of ln {e.family.along}* from the law; noise alone would make it {misfit.noise:.2g}"
        rows.append(_row("residual", f"ln {e.family.along}*", misfit.rms, text))
    return rows


def _matched(cells: Sequence[Any], axis: str, low: Any, high: Any) -> np.ndarray:
    """Weights of the mean difference between cells that differ only in axis = high against low; pairs of copies count as one."""
    index = {tuple(cell.at.items()): i for i, cell in enumerate(cells)}
    pairs, number = [], evidence(cells)
    for i, cell in enumerate(cells):
        if cell.at[axis] == low:
            other = index.get(tuple((cell.at | {axis: high}).items()))
            pairs += [(i, other)] if other is not None else []
    times = Counter((number[i], number[other]) for i, other in pairs)
    weights = np.zeros(len(cells))
    for i, other in pairs:
        share = 1 / (len(times) * times[number[i], number[other]])
        weights[i], weights[other] = weights[i] - share, weights[other] + share
    return weights


def _warnings(e: Estimates, exponents: Sequence[Row]) -> list[Row]:
    texts = []
    if not e.inside.all():
        beyond = f"are {'below' if e.family.falls else 'above'} it from the smallest {e.family.along} on"
        counts = {"never reach theta": (e.side[0] == 1).sum(), beyond: (e.side[0] == -1).sum()}
        counts[f"cross theta, but over {100 * OPEN:g} % of the resamplings do not"] = (~e.inside).sum() - sum(counts.values())
        why = ", ".join(f"{n} {text}" for text, n in counts.items() if n)
        texts.append(f"{(~e.inside).sum()} of {len(e.inside)} cells are not in the law: {why}")
    if e.rejected and e.misfit:
        texts.append(
            f"no single power law: ln {e.family.along}* lies {e.misfit.rms:.2g} (rms) from it, more than twice the noise; the intervals of "
            "the exponents do not cover that, see local_slope"
        )
    for text in dict.fromkeys(row["warning"] for row in exponents if row["warning"]):
        texts.append(f"{', '.join(row['axis'] for row in exponents if row['warning'] == text)}: {text}")
    return [_row("warning", "", np.nan, text) for text in texts]
