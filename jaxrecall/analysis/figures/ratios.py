"""Figures in units of N*: the data collapse, and predicted over observed critical N."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import predict
from .axis import Axis
from .grammar import Chart, Line, Points, Rule
from .study import Roles, Study
from .style import ACCURACY, NotDrawn, Picture, text

Table = Any  # pandas.DataFrame, whose own types say less than Any
LOCKED = 0.95
"""Attention counts as locked where its mass on the informative token, between levels at N*, is above this."""

OWN_UNIT, LAW_UNIT = "N* of each cell", "N* of the fitted law"
NEAR = (0.8, 1.25)
"""Ratios that are 25 % off."""

DOTTED = {"color": "black", "linewidth": 0.6, "linestyle": ":"}


def collapse(study: Study, roles: Roles) -> Iterator[Picture]:
    """Accuracy against N in units of each cell's own critical N, and of the fitted law."""
    theta = study.thetas[0]
    found = study.thresholds(theta)
    if found["N_star"].notna().sum() < 2:
        raise NotDrawn(f"fewer than two cells cross accuracy {theta:g}")
    units = {OWN_UNIT: found["N_star"]}
    kept = found["in_law"] & ~found["rejected"]
    if study.axes and found["law"][kept].notna().any():
        units[LAW_UNIT] = found["law"].where(kept)
    shown = collapse_chart(study, units, roles.x, theta)
    sentences = [_spread(study, shown.table, unit) for unit in units]
    if LAW_UNIT not in units and found["rejected"].any():
        sentences.append("The fit rejects a single power law, so there is no collapse by the law.")
    yield Picture("collapse", "Data collapse", " ".join(sentences), shown.figure())


def collapse_chart(study: Study, units: Mapping[str, Table], lines: str | None, theta: float) -> Chart:
    """The curve of every cell that has a unit, against N in units of it; a panel for each kind of unit."""
    import pandas as pd

    levels = study.levels.drop(columns="n_seeds")
    each = [levels.assign(_unit=name, ratio=levels["N"] / levels["cell"].map(unit), theta=theta) for name, unit in units.items()]
    table = pd.concat(each, ignore_index=True).dropna(subset=["ratio"])
    curves = Line(table, style={"markersize": 2.5, "linewidth": 0.8}, each="cell")
    axis = Axis.make("ratio", table, "N / N*", ticks=False)
    cross = [Rule(table, "theta", style=DOTTED), Rule(table.assign(one=1.0), "one", style=DOTTED, vertical=True)]
    return Chart([curves, *cross], axis, ACCURACY, lines=[lines] if lines else [], panels=["_unit"])


def _spread(study: Study, table: Table, unit: str) -> str:
    """Between which accuracies the curves pass a given N, each between its own levels."""
    at = 2.0 if unit == OWN_UNIT else 1.0
    there = {}
    for cell, rows in table[table["_unit"] == unit].sort_values("ratio").groupby("cell"):
        if rows["ratio"].iloc[0] <= at <= rows["ratio"].iloc[-1]:
            there[cell] = np.interp(np.log(at), np.log(rows["ratio"]), rows["accuracy"])
    where = f"{text(at)} times the N* {'of each cell' if unit == OWN_UNIT else 'of the law'}"
    if len(there) < 2:
        return f"At {where} fewer than two curves have levels."
    low, high = min(there, key=there.__getitem__), max(there, key=there.__getitem__)
    return (
        f"At {where} accuracy lies between {there[low]:.2f} ({study.at(low)}) and {there[high]:.2f} ({study.at(high)}), "
        f"standard deviation over {len(there)} cells {np.std(list(there.values())):.2f}."
    )


def agreement(study: Study, roles: Roles) -> Iterator[Picture]:
    """Predicted over observed critical N, cell by cell: one figure per way to predict and per theta."""
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
                yield Picture(name + suffix, title, _caption(study, table, way), _chart(table, theta).figure())
    if not some:
        raise NotDrawn("theory covers no cell that crosses")


def compare(study: Study, theta: float, predicted: Callable[[Mapping[str, Any], float], float | None]) -> Table:
    """Row i for cell i: N_star, predicted, ratio (predicted / observed; nan where one is missing), attention, locked."""
    found = study.thresholds(theta)[["N_star", "lo", "hi", "state"]].copy()
    crosses = found["state"] == "crosses"
    cells = study.cells.to_dict("index")
    theirs = [predicted(cells[cell], theta) if crosses[cell] else None for cell in found.index]
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


def _chart(table: Table, theta: float) -> Chart:
    """The ratio of each cell against its N*, with those of locked attention apart."""
    import pandas as pd

    both = table[table["ratio"].notna()]
    low, high = (both["predicted"] / both[end].where(both[end] > 0, both["N_star"]) for end in ("hi", "lo"))
    counts = both["locked"].value_counts()
    names = {locked: f"attention {'' if locked else 'not '}locked ({counts.get(locked, 0)})" for locked in (True, False)}
    both = both.assign(low=low, high=high, one=1.0, _attention=both["locked"].map(names)).drop(columns="state")
    blue = {"color": "#0072B2", "markersize": 4}
    looks = {names[True]: {"marker": "o"} | blue, names[False]: {"marker": "s", "markerfacecolor": "white"} | blue}
    points = Points(both, "ratio", low="low", high="high", aside=False, style={"linestyle": "none"})
    axis = Axis.make("N_star", both, f"observed N* at accuracy {theta:g} (samples)", ticks=False)
    one = Rule(both, "one", style=DOTTED | {"linestyle": "-"})
    near = Rule(pd.DataFrame({"near": NEAR}), "near", "25 % off", DOTTED)
    return Chart([points, one, near], axis, "predicted N* / observed N*", lines=["_attention"], looks=looks, scale="log")


def _caption(study: Study, table: Table, way: str) -> str:
    sentences = []
    for locked, mine in table[table["ratio"].notna()].groupby("locked", sort=False):
        off = abs(np.log(mine["ratio"]))
        worst = off.idxmax()
        sentences.append(
            f"{len(mine)} cells with attention {'' if locked else 'not '}locked: median |ln(predicted / observed)| {off.median():.3f}, "
            f"the largest at {study.at(worst)}, predicted / observed = {mine['ratio'][worst]:.2f}"
        )
    missing = ((table["state"] == "crosses") & table["ratio"].isna()).sum()
    sentences += [f"{missing} cells that cross have no prediction"] * bool(missing)
    nowhere = "" if table["attention"].notna().any() else " The table has no attention_mass, so none counts as locked."
    return f"{way[0].upper()}{way[1:]}. {'; '.join(sentences)}. Locked: attention_mass at N* above {LOCKED}.{nowhere} Dotted: 25 % off."


FIGURES = {"data collapse": collapse, "predicted against observed critical N": agreement}
