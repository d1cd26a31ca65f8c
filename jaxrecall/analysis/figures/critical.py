"""Critical N against an axis, and against the step: the reported thresholds, the fitted law and theory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..fit.axes import LAW
from ..fit.curve import curve, resamplings
from ..fit.estimate import estimate
from ..fit.tables import thresholds
from . import predict
from .axis import Axis, column
from .grammar import OPEN, Chart, Layer, Line, Points, Rule
from .study import Layout, Roles, Study, reported, with_states
from .style import DASH, NotDrawn, Picture, settings

Table = Any  # pandas.DataFrame, whose own types say less than Any
NO_TRACES = "no run has rows of several steps"
SOLID = {"marker": "none", "linewidth": 1.0}
BARS = "Bars: 95 % intervals over seeds"


def critical_N(study: Study, roles: Roles) -> Iterator[Picture]:
    """One figure per theta."""
    if roles.x is None:
        raise NotDrawn("no axis but N varies")
    for theta in study.thetas:
        shown = chart(study, roles.x, roles.lines, roles.panels, theta)
        name = "critical-n" if theta == study.thetas[0] else f"critical-n-{theta:g}"
        yield Picture(name, f"Critical N at accuracy {theta:g}", _caption(study, theta) + shown.remark, shown.figure())


def chart(study: Study, x: str, lines: str | None, panels: Sequence[str], theta: float, with_theory: bool = True) -> Chart:
    """Thresholds along x with the fitted law, where the fit does not reject it, and theory."""
    found = study.thresholds(theta)
    axis = Axis.make(x, study.cells)
    layers: list[Layer] = [Points(found, "N_star")]
    law = found[found["in_law"] & found["law"].notna() & ~found["rejected"]]
    if axis.numeric and len(law):
        layers.append(Line(law, "law", "law, fitted", SOLID, limits=False, each="part"))
    by = [lines] if lines else []
    if with_theory:
        layers.append(theory_layer(study.cells, axis, theta, [*by, *panels]))
    return Chart(layers, axis, f"critical N* at accuracy {theta:g} (samples)", lines=by, panels=panels, scale="log")


def theory_layer(cells: Table, axis: Axis, theta: float, by: Sequence[str]) -> Line:
    """Theory's critical N along an axis, for cells alike in `by`: a dashed line, or ticks where nothing is between the values."""
    import pandas as pd

    found = []
    for values, mine in cells.groupby(list(by), dropna=False) if by else [((), cells)]:
        x, y = _theory(mine, axis, theta)
        found.append(pd.DataFrame({axis.name: x, "theory": y}).assign(**dict(zip(by, values, strict=True))))
    ticks = {"linestyle": "none", "marker": "_", "markersize": 12}
    style = {"marker": "none", "linestyle": DASH, "linewidth": 0.9} if axis.numeric else ticks
    return Line(pd.concat(found), "theory", "theory", style, limits=False)


def _theory(cells: Table, axis: Axis, theta: float) -> tuple[Any, np.ndarray]:
    """Theory along an axis, over cells alike in all else; at whole numbers between its values too if it is a field with an exponent.

    nan, which breaks a line, where accuracy never reaches theta; 0 on a log axis is left out.
    """
    cells = cells[np.array([value != 0 for value in column(axis.name, cells)], bool)] if axis.numeric else cells
    if axis.name in LAW and len(cells) > 1:
        return predict.critical_curve(cells.iloc[0].to_dict(), axis.name, sorted(map(int, cells[axis.name])), theta)
    y = np.array([predict.critical_N(cell, theta) for cell in cells.to_dict("records")], dtype=float)
    return column(axis.name, cells), np.where(np.isfinite(y), y, np.nan)


def _caption(study: Study, theta: float) -> str:
    """The reported exponents with their intervals, theory's, and the cell farthest from the law."""
    found = study.thresholds(theta)
    predicted = [predict.critical_N(cell, theta) for cell in study.cells.to_dict("records")]
    theirs = study.exponents_of(np.array(predicted, dtype=float), theta)
    sentences = []
    for part, mine in reported(study.fit.exponents, theta).groupby("part", sort=False):
        terms = [_exponent(row, theirs.get((str(part), row.axis), np.nan)) for row in mine.itertuples()]
        sentences.append(f"{part}: N* ~ {'; '.join(terms)}")
        if part in study.rejected(theta):
            sentences.append(f"The cells with {part} do not follow a single power law, so none is drawn; these exponents are averages")
    off = (found["N_star"] / found["law"]).where(found["in_law"]).dropna()
    if len(off):
        worst = abs(np.log(off)).idxmax()
        sentences.append(f"The cell farthest from the law is {study.at(worst)}, at {off[worst]:.2f} times its law")
    if copies := int(found["copy_of"].notna().sum()):
        sentences.append(f"{copies} of {len(found)} cells are copies of others: the same draws and the same counts")
    return ". ".join([*sentences, f"Of {len(found)} cells {crossings(found)}", BARS]) + "."


def crossings(found: Table) -> str:
    """How many cells cross, and what the others come to: 3 cross (levels off below: 1)."""
    counts = found["state"].value_counts()
    others = "; ".join(f"{name}: {counts[state]}" for state, (_, name) in OPEN.items() if state in counts)
    return f"{counts.get('crosses', 0)} cross" + (f" ({others})" if others else "")


def _exponent(row: Any, theory: float) -> str:
    """An exponent with its interval and theory's, or why there is none."""
    if row.exponent != row.exponent:
        return f"no exponent of {row.axis} ({row.warning})"
    ends = f" ({row.lo:.2f} to {row.hi:.2f})" if row.lo == row.lo else " (no interval)"
    return f"{row.axis}^{row.exponent:.2f}{ends}" + (f", theory {theory:.2f}" if theory == theory else "")


def against_step(study: Study, roles: Roles) -> Iterator[Picture]:
    """How capacity grows as training goes on, and the N below which labels were never seen: one figure per theta that is crossed."""
    traces = study.traces
    if traces is None:
        raise NotDrawn(NO_TRACES)
    some = False
    for theta in study.thetas:
        found = estimates(traces, theta, study.resamples)
        if len(found) and (found["state"] == "crosses").any():
            some = True
            found["seen"] = [predict.seen_N(cell, theta) for cell in traces.cells.loc[found.index].to_dict("records")]
            lines, panels = roles.one_for_lines(found, [axis for axis in traces.axes if found[axis].nunique(dropna=False) > 1])
            points = Points(found, "N_star", joined=True)
            limit = Rule(found.astype({"seen": float}), "seen", f"N at which {theta:g} of the labels were seen")
            shown = Chart(
                [points, limit], Axis.make("step", found), f"critical N* at accuracy {theta:g} (samples)",
                lines=[lines] if lines else [], panels=panels, scale="log",
            )  # fmt: skip
            name = "trace-critical-n" + ("" if theta == study.thetas[0] else f"-{theta:g}")
            title = f"Critical N at accuracy {theta:g} against the step"
            yield Picture(name, title, _caption_of_steps(traces, found, theta) + shown.remark, shown.figure())
    if not some:
        raise NotDrawn("no accuracy is crossed at any step by a curve of two or more N")


def estimates(traces: Layout, theta: float, resamples: int) -> Table:
    """The reported estimate of every cell of several N, indexed as the cells: thresholds with the columns of the cell and states."""
    import pandas as pd

    rows, index, first = [], [], 0
    for family in traces.families:
        at = [i for i, cell in enumerate(family.cells) if len(cell.N) > 1]
        if at:
            mine = replace(family, cells=[family.cells[i] for i in at])
            times = resamplings(mine.cells[0].k.shape[1], resamples)
            curves = [curve(cell, times) for cell in mine.cells]
            rows += thresholds(estimate(mine, theta, curves))
        index += [first + i for i in at]
        first += len(family.cells)
    if not rows:
        return pd.DataFrame()
    found = with_states(pd.DataFrame(rows, index=pd.Index(index)))
    return found.join(traces.cells[[name for name in traces.cells if name not in found]])


def _caption_of_steps(traces: Layout, found: Table, theta: float) -> str:
    """How far N* falls, how far it stays above what was seen, and what V_mat holds."""
    by = list(traces.axes)
    curves = found.sort_values([*by, "step"]).groupby(by or (lambda _: 0), dropna=False)
    first, last = (rows.reset_index(drop=True) for rows in (curves.head(1), curves.tail(1)))
    sentences = [f"Of {len(last)} curves at the first recorded step {crossings(first)}, at the last {crossings(last)}"]
    for name, ratio in (("of the first step", last["N_star"] / first["N_star"]), ("of the dashed line", last["N_star"] / last["seen"])):
        if (ratio := ratio.astype(float).dropna()).size:
            least = ratio.idxmin()
            where = settings(last.loc[least], by) or "the only curve"
            sentences.append(
                f"At the last step N* is {ratio.median():.3g} times that {name} in the median, at least {ratio[least]:.3g} ({where})"
            )
    sizes = traces.cells.drop_duplicates([name for name in ("V", "d", "m") if name in traces.cells])
    if ratios := [ratio for row in sizes.to_dict("records") if (ratio := predict.parameters_per_bit(row)) is not None]:
        sentences.append(f"V_mat has {min(ratios):.2g} to {max(ratios):.2g} parameters for each of the log2 V! bits of the permutation")
    return ". ".join([*sentences, BARS]) + "."


FIGURES = {"critical N": critical_N, "critical N against the step": against_step}
