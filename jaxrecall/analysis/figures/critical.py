"""Critical N: against an axis with the fitted law and theory,
against the step, as the unit of N, and predicted over observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..fit.axes import LAW
from . import predict
from .axis import Axis, column
from .grammar import OPEN, Chart, Line, Points, Rule, with_reference
from .study import LOCKED, Roles, Study, reported
from .style import NotDrawn, Picture, accuracy_label, interval, settings, text, told

Table = Any  # pandas.DataFrame, whose own types say less than Any
Formula = Callable[[Mapping[str, Any], float], float | None]
NO_TRACES = "no run has rows of several steps"
ALONG_N = "is drawn along N alone"
SOLID = {"marker": "none", "linewidth": 1.0}
DOTTED = {"color": "black", "linewidth": 0.6, "linestyle": ":"}
OWN_UNIT, LAW_UNIT = "of each cell", "of the fitted law"
NEAR = (0.8, 1.25)
"""Ratios that are 25 % off."""


def critical_N(study: Study, roles: Roles) -> Iterator[Picture]:
    """One figure per theta."""
    if roles.x is None:
        raise NotDrawn(f"no axis but {study.along} varies")
    for theta in study.thetas:
        shown = chart(study, roles.x, roles.lines, roles.panels, theta)
        name = study.named(f"critical-{study.along.lower()}", theta)
        yield shown.picture(name, f"Critical {study.along} at accuracy {theta:g}", _caption(study, theta))


def chart(study: Study, x: str, lines: str | None, panels: Sequence[str], theta: float, with_theory: bool = True) -> Chart:
    """Thresholds along x with the fitted law, where the fit does not reject it, and theory."""
    by = [lines] if lines else []
    points, *none = with_reference(Points(study.thresholds(theta), "critical"), x, by, panels)
    found = points.table
    cells = study.cells.loc[found.index]
    axis = Axis.make(x, cells)
    law = found[found["in_law"] & found["law"].notna() & ~found["rejected"]]
    fitted = [Line(law, "law", "law, fitted", SOLID, limits=False, each="part")] * bool(axis.numeric and len(law))
    theory = theory_layers(cells, axis, theta, [*by, *panels]) if with_theory and study.along == "N" else []
    return Chart([points, *fitted, *none, *theory], axis, _label(study, theta), lines=by, panels=panels, scale="log")


def _label(study: Study, theta: float) -> str:
    return f"critical {study.along}* at accuracy {theta:g}" + " (samples)" * (study.along == "N")


def theory_layers(cells: Table, axis: Axis, theta: float, by: Sequence[str]) -> list[Line]:
    """Theory's critical N along an axis, for cells alike in `by`:
    dashed lines, or ticks where nothing is between the values.

    What assumes locked attention is dotted, and says so.
    """
    found: dict[str, list[Table]] = {}
    for values, mine in cells.groupby(list(by), dropna=False) if by else [((), cells)]:
        x, y = _theory(mine, axis, theta)
        rows = pd.DataFrame({axis.name: x, "theory": y}).assign(**dict(zip(by, values, strict=True)))
        found.setdefault(predict.legend(mine.to_dict("records")), []).append(rows)
    ticks = {"linestyle": "none", "marker": "_", "markersize": 12}
    styles = predict.STYLES if axis.numeric else dict.fromkeys(found, ticks)
    return [Line(pd.concat(rows), "theory", name, styles[name], limits=False) for name, rows in found.items()]


def _theory(cells: Table, axis: Axis, theta: float) -> tuple[Any, np.ndarray]:
    """Theory along an axis, over cells alike in all else; at whole
    numbers between its values too if it is a field with an exponent.

    nan, which breaks a line, where accuracy never reaches theta; 0 on a log axis is
    left out.
    """
    cells = cells[np.array([value != 0 for value in column(axis.name, cells)], bool)] if axis.numeric else cells
    if axis.name in LAW and len(cells) > 1 and predict.legend(cells.to_dict("records")) == predict.THEORY:
        return predict.critical_curve(cells.iloc[0].to_dict(), axis.name, sorted(map(int, cells[axis.name])), theta)
    y = np.array([predict.critical_N(cell, theta) for cell in cells.to_dict("records")], dtype=float)
    return column(axis.name, cells), np.where(np.isfinite(y), y, np.nan)


def _caption(study: Study, theta: float) -> str:
    """The reported exponents with their intervals, theory's, and the cell farthest from the law."""
    found = study.thresholds(theta)
    theirs = study.exponents_of(predict.critical_N, theta) if study.along == "N" else {}
    sentences = []
    for part, mine in reported(study.fit.exponents, theta).groupby("part", sort=False):
        terms = [_exponent(row, theirs.get((str(part), row.axis), np.nan)) for row in mine.itertuples()]
        sentences.append(f"At accuracy {theta:g}, {part}: {study.along}* ~ {'; '.join(terms)}")
        if part in study.rejected(theta):
            sentences.append(
                f"At {theta:g} cells with {part} do not follow a single power law, so none is drawn; the exponents are averages"
            )
    off = (found["critical"] / found["law"]).where(found["in_law"]).dropna()
    if len(off):
        worst = abs(np.log(off)).idxmax()
        sentences.append(f"At accuracy {theta:g} the cell farthest from the law is {study.at(worst)}, at {off[worst]:.2f} times its law")
    if theta == study.thetas[0] and (copies := int(found["copy_of"].notna().sum())):
        sentences.append(f"{copies} of {len(found)} cells repeat another: they have the same draws and the same counts")
    return ". ".join(sentences) + "." * bool(sentences)


def crossings(found: Table) -> str:
    """How many cells cross, and what the others come to: 3 cross (levels off before: 1)."""
    counts = found["state"].value_counts()
    others = "; ".join(f"{name}: {counts[state]}" for state, (_, name) in OPEN.items() if state in counts)
    return f"{counts.get('crosses', 0)} cross" + (f" ({others})" if others else "")


def _exponent(row: Any, theory: float) -> str:
    """An exponent with its interval and theory's, or why there is none."""
    if row.exponent != row.exponent:
        return f"no exponent of {row.axis} ({row.warning})"
    ends = "" if row.lo == row.lo else " (no interval)"
    return f"{row.axis}^{interval(row.exponent, row.lo, row.hi, '.2f')}{ends}" + (f", theory {theory:.2f}" if theory == theory else "")


def against_step(study: Study, roles: Roles) -> Iterator[Picture]:
    """How capacity grows as training goes on, and the N below which
    labels were never seen: one figure per theta that is crossed.
    """
    traces = study.traces
    if traces is None:
        raise NotDrawn(NO_TRACES)
    if traces.along != "N":
        raise NotDrawn(ALONG_N)
    crossed = {theta: found for theta in study.thetas if (found := thresholds(traces, theta))["state"].eq("crosses").any()}
    if not crossed:
        raise NotDrawn("no accuracy is crossed at any step by a curve of two or more N")
    for theta, found in crossed.items():
        lines, panels = roles.lines_and_panels(found, [axis for axis in traces.axes if found[axis].nunique(dropna=False) > 1])
        seen = Rule(found, "seen", f"N at which {theta:g} of the labels were seen")
        layers = [Points(found, "critical", joined=True), seen]
        shown = Chart(layers, Axis.make("step", found), _label(traces, theta), lines=lines, panels=panels, scale="log")
        name, title = study.named("trace-critical-n", theta), f"Critical N at accuracy {theta:g} against the step"
        yield shown.picture(name, title, _caption_of_steps(traces, found))


def thresholds(traces: Study, theta: float) -> Table:
    """The reported estimate at every step of curves of two or more
    N, and the N at which a fraction theta of the labels was seen.
    """
    n_levels = traces.levels.groupby("cell").size()
    found = traces.thresholds(theta)[n_levels > 1]
    seen = [predict.seen_N(cell, theta) for cell in traces.cells.loc[found.index].to_dict("records")]
    return found.assign(seen=np.array(seen, dtype=float))


def _caption_of_steps(traces: Study, found: Table) -> str:
    """How far N* falls, how far it stays above what was seen, and what V_mat holds."""
    first, last = traces.first_and_last(found)
    sentences = [f"Of {len(last)} curves at the first recorded step {crossings(first)}, at the last {crossings(last)}"]
    for name, other in (("of the first step", first["critical"]), ("of the dashed line", last["seen"])):
        if (ratio := last["critical"] / other).notna().any():
            told_of = told(ratio, lambda i: settings(last.loc[i], traces.axes) or "the only curve", form=".3g", most="at least")
            sentences.append(f"At the last step N* over that {name} is {told_of}")
    sizes = traces.cells.drop_duplicates([name for name in ("V", "d", "m") if name in traces.cells])
    if ratios := [ratio for row in sizes.to_dict("records") if (ratio := predict.parameters_per_bit(row)) is not None]:
        sentences.append(f"V_mat has {min(ratios):.2g} to {max(ratios):.2g} parameters for each of the log2 V! bits of the permutation")
    return ". ".join(sentences) + "."


def collapse(study: Study, roles: Roles) -> Iterator[Picture]:
    """Accuracy against N, or another axis, in units of
    each cell's own critical value, and of the fitted law.
    """
    theta = study.thetas[0]
    found = study.thresholds(theta)
    if found["critical"].notna().sum() < 2:
        raise NotDrawn(f"fewer than two cells cross accuracy {theta:g}")
    units = {OWN_UNIT: found["critical"]}
    kept = found["in_law"] & ~found["rejected"]
    if study.axes and found["law"][kept].notna().any():
        units[LAW_UNIT] = found["law"].where(kept)
    lines = next((axis for axis in (roles.x, roles.lines) if axis in study.axes), None)
    shown = collapse_chart(study, units, lines, theta)
    sentences = [_spread(study, shown.table, unit) for unit in units]
    if LAW_UNIT not in units and found["rejected"].any():
        sentences.append("The fit rejects a single power law, so there is no collapse by the law.")
    yield shown.picture("collapse", "Data collapse", " ".join(sentences))


def collapse_chart(study: Study, units: Mapping[str, Table], lines: str | None, theta: float, of: str | None = None) -> Chart:
    """The curve of every cell that has a unit, against the axis
    of the levels in units of it; a panel for each kind of unit.
    """
    levels, star = study.levels.drop(columns="n_seeds").assign(theta=theta, one=1.0), f"{study.along}*"
    own = levels[study.along]
    each = [levels.assign(_unit=f"{star} {name}", ratio=own / levels["cell"].map(unit)) for name, unit in units.items()]
    table = pd.concat(each, ignore_index=True).dropna(subset=["ratio"])
    curves = Line(table, style={"markersize": 2.5, "linewidth": 0.8}, each="cell")
    cross = [Rule(table, "theta", style=DOTTED), Rule(table, "one", style=DOTTED, vertical=True)]
    axis = Axis.make("ratio", table, f"{study.along} / {star}", ticks=False)
    return Chart([curves, *cross], axis, accuracy_label(of), lines=[lines] if lines else [], panels=["_unit"])


def _spread(study: Study, table: Table, unit: str) -> str:
    """Between which accuracies the curves pass a given level, each between its own levels."""
    at = 2.0 if unit == OWN_UNIT else 1.0
    there = {}
    for cell, rows in table[table["_unit"] == f"{study.along}* {unit}"].sort_values("ratio").groupby("cell"):
        if rows["ratio"].iloc[0] <= at <= rows["ratio"].iloc[-1]:
            there[cell] = np.interp(np.log(at), np.log(rows["ratio"]), rows["accuracy"])
    where = f"{text(at)} times the {study.along}* {'of each cell' if unit == OWN_UNIT else 'of the law'}"
    if len(there) < 2:
        return f"At {where} fewer than two curves have levels."
    low, high = min(there, key=there.__getitem__), max(there, key=there.__getitem__)
    return (
        f"At {where} accuracy lies between {there[low]:.2f} ({study.at(low)}) and {there[high]:.2f} ({study.at(high)}), "
        f"standard deviation over {len(there)} cells {np.std(list(there.values())):.2f}."
    )


def agreement(study: Study, roles: Roles) -> Iterator[Picture]:
    """Predicted over observed critical N, cell by cell: one figure per way to predict and per theta."""
    if study.along != "N":
        raise NotDrawn(ALONG_N)
    ways: dict[str, tuple[str, Formula]] = {
        "Closed formula": ("agreement", predict.critical_N),
        "Locked-attention surrogate": ("agreement-surrogate", lambda at, theta: predict.surrogate_N(at, theta, study.surrogate_seeds)),
    }
    compared = [(theta, way, name, compare(study, theta, ask)) for theta in study.thetas for way, (name, ask) in ways.items()]
    known = [found for found in compared if found[-1]["ratio"].notna().any()]
    if not known:
        raise NotDrawn("theory covers no cell that crosses")
    measured = any(found[-1]["attention"].notna().any() for found in known)
    meaning = f" Locked: attention_mass at N* above {LOCKED}." if measured else " Without attention_mass none counts as locked."
    for theta, way, name, table in known:
        title = f"Predicted against observed critical N at accuracy {theta:g}: {way.lower()}"
        caption = f"{way}: {_agreed(study, table)}.{meaning}"
        yield _agreement_chart(table, theta).picture(study.named(name, theta), title, caption)
        meaning = ""  # said once


def compare(study: Study, theta: float, predicted: Formula) -> Table:
    """Row i for cell i: N_star, predicted, ratio (predicted
    / observed; nan where one is missing), attention, locked.
    """
    found = study.thresholds(theta)[["N_star", "lo", "hi", "state"]]
    crosses = found["state"] == "crosses"
    cells = study.cells.to_dict("index")
    theirs = [predicted(cells[cell], theta) if crosses[cell] else None for cell in found.index]
    found = found.assign(predicted=np.array(theirs, dtype=float))
    found["ratio"] = (found["predicted"] / found["N_star"]).where(np.isfinite(found["predicted"]))
    found["attention"] = [_attention(study, cell, found["N_star"][cell]) for cell in found.index]
    return found.assign(locked=found["attention"] > LOCKED)


def _attention(study: Study, cell: int, N_star: float) -> float:
    """Attention mass at N*, by a straight line in ln N between levels."""
    if "attention_mass" not in study.levels or not np.isfinite(N_star):
        return np.nan
    rows = study.levels[(study.levels["cell"] == cell) & study.levels["attention_mass"].notna()].sort_values("N")
    return float(np.interp(np.log(N_star), np.log(rows["N"]), rows["attention_mass"])) if len(rows) else np.nan


def _agreement_chart(table: Table, theta: float) -> Chart:
    """The ratio of each cell against its N*, with those of locked attention apart."""
    both = table[table["ratio"].notna()]
    low, high = (both["predicted"] / both[end].where(both[end] > 0, both["N_star"]) for end in ("hi", "lo"))
    counts = both["locked"].value_counts()
    names = {locked: f"attention {'' if locked else 'not '}locked ({counts.get(locked, 0)})" for locked in (True, False)}
    both = both.assign(low=low, high=high, one=1.0, _attention=both["locked"].map(names)).drop(columns="state")
    blue = {"color": "#0072B2", "markersize": 4}
    looks = {names[True]: {"marker": "o"} | blue, names[False]: {"marker": "s", "markerfacecolor": "white"} | blue}
    points = Points(both, "ratio", low="low", high="high", aside=False, style={"linestyle": "none"})
    one = Rule(both, "one", style=DOTTED | {"linestyle": "-"})
    near = Rule(pd.DataFrame({"near": NEAR}), "near", "25 % off", DOTTED)
    axis = Axis.make("N_star", both, f"observed N* at accuracy {theta:g} (samples)", ticks=False)
    return Chart([points, one, near], axis, "predicted N* / observed N*", lines=["_attention"], looks=looks, scale="log")


def _agreed(study: Study, table: Table) -> str:
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
    return "; ".join(sentences)


FIGURES = {
    "critical N": critical_N,
    "critical N against the step": against_step,
    "data collapse": collapse,
    "predicted against observed critical N": agreement,
}
