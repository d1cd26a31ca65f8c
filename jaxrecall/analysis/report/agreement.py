"""Predicted against observed critical N, cell by cell: theory's closed formula and the locked-attention surrogate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import predict
from .axes import Roles
from .study import Study
from .style import COLUMN, NotDrawn, Picture, above, line, log_axis

Table = Any  # pandas.DataFrame, whose own types say less than Any
LOCKED = 0.95
"""Attention counts as locked where its mass on the informative token, between levels at N*, is above this."""


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """One picture per way to predict and per theta."""
    some = False

    def surrogate(cell: Mapping[str, Any], theta: float) -> float | None:
        return predict.surrogate_N(cell, theta, study.surrogate_seeds)

    ways = {"closed formula": ("agreement", predict.critical_N), "locked-attention surrogate": ("agreement-surrogate", surrogate)}
    for theta in study.thetas:
        for way, (name, predicted) in ways.items():
            table = compare(study, theta, predicted)
            if table["ratio"].notna().any():
                some = True
                suffix = "" if theta == study.thetas[0] else f"-{theta:g}"
                title = f"Predicted against observed critical N at accuracy {theta:g}: {way}"
                yield Picture(name + suffix, title, _caption(study, table, way), _draw(table, way, theta))
    if not some:
        raise NotDrawn("theory covers no cell that crosses")


def compare(study: Study, theta: float, predicted: Callable[[Mapping[str, Any], float], float | None]) -> Table:
    """Row i for cell i: N_star, predicted, ratio (predicted / observed; nan where one is missing), attention, locked."""
    found = study.thresholds(theta)[["N_star", "lo", "hi", "state"]].copy()
    crosses = found["state"] == "crosses"
    theirs = [predicted(study.cells.loc[cell], theta) if crosses[cell] else None for cell in found.index]
    found["predicted"] = np.array(theirs, dtype=float)
    found["ratio"] = (found["predicted"] / found["N_star"]).where(np.isfinite(found["predicted"]))
    found["attention"] = [_attention(study, cell, found["N_star"][cell]) for cell in found.index]
    found["locked"] = found["attention"] > LOCKED
    return found


def _attention(study: Study, cell: int, N_star: float) -> float:
    """Attention mass at N*, by a straight line in ln N between levels."""
    if "attention_mass" not in study.levels or not np.isfinite(N_star):
        return np.nan
    rows = study.levels[(study.levels["cell"] == cell) & study.levels["attention_mass"].notna()].sort_values("N")
    return float(np.interp(np.log(N_star), np.log(rows["N"]), rows["attention_mass"])) if len(rows) else np.nan


def _draw(table: Table, way: str, theta: float) -> Any:
    """Predicted against observed, and their ratio below, which shows a bias that the first panel hides."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(COLUMN, 4.2), dpi=200, layout="constrained")
    ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    both = table[table["ratio"].notna()]
    ends = [both[["N_star", "predicted"]].min().min() / 1.5, both[["N_star", "predicted"]].max().max() * 1.5]
    ax.plot(ends, ends, color="black", linewidth=0.8)
    ax.fill_between(ends, [e / 1.25 for e in ends], [e * 1.25 for e in ends], color="0.88", linewidth=0, zorder=0)
    below.axhline(1.0, color="black", linewidth=0.8)
    below.axhspan(0.8, 1.25, color="0.88", linewidth=0, zorder=0)
    entries = []
    for locked, marker, fill, name in ((True, "o", "#0072B2", "attention locked"), (False, "s", "white", "attention not locked")):
        mine = both[both["locked"] == locked]
        if len(mine):
            bars = [
                (mine["N_star"] - mine["lo"]).fillna(0).clip(0, mine["N_star"] * 0.99),
                (mine["hi"] - mine["N_star"]).fillna(0).clip(0, ends[1]),
            ]
            style = {"marker": marker, "linestyle": "none", "color": "#0072B2", "markerfacecolor": fill, "markersize": 4}
            ax.errorbar(mine["N_star"], mine["predicted"], xerr=bars, elinewidth=0.6, **style)
            low, high = (mine["predicted"] / mine[end].where(mine[end] > 0, mine["N_star"]) for end in ("hi", "lo"))
            bars = [(mine["ratio"] - low).clip(0), (high - mine["ratio"]).clip(0)]
            below.errorbar(mine["N_star"], mine["ratio"], yerr=bars, elinewidth=0.6, **style)
            entries.append(line(f"{name} ({len(mine)})", **style))
    far = 1.15 * max(1.3, np.exp(abs(np.log(both["ratio"])).max()))
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    below.set(yscale="log", ylim=(1 / far, far), xlabel=f"observed N* at accuracy {theta:g} (samples)", ylabel="ratio")
    ax.set_ylabel("predicted N* (samples)")
    for axis in (ax.xaxis, ax.yaxis):
        log_axis(axis)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10) if 1 / far < tick < far and (far < 4 or tick not in (0.8, 1.25))]
    below.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    below.yaxis.set_minor_locator(NullLocator())
    ax.grid(True)
    below.grid(True)
    above(figure, [*entries, Patch(color="0.88", label="within 25 %")])
    return figure


def _caption(study: Study, table: Table, way: str) -> str:
    crosses = table["state"] == "crosses"
    sentences = []
    for name, mine in (("locked", table[crosses & table["locked"]]), ("not locked", table[crosses & ~table["locked"]])):
        known = mine[mine["ratio"].notna()]
        without = f", {len(mine) - len(known)} more without a prediction" if len(known) < len(mine) else ""
        if known.empty:
            sentences += [f"{len(mine)} cells with attention {name} have no prediction"] if len(mine) else []
            continue
        off = abs(np.log(known["ratio"]))
        worst = off.idxmax()
        sentences.append(
            f"{len(known)} cells with attention {name}: median |ln(predicted / observed)| {off.median():.3f}, "
            f"the largest at {study.at(worst)}, predicted / observed = {known['ratio'][worst]:.2f}{without}"
        )
    nowhere = "" if table["attention"].notna().any() else " The table has no attention_mass, so none counts as locked."
    return f"{way[0].upper()}{way[1:]}. {'; '.join(sentences)}. Locked: attention_mass at N* above {LOCKED}.{nowhere} Grey: within 25 %."
