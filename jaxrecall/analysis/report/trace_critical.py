"""Critical N against the step: how capacity grows as training goes on, and the N below which labels were never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..fit.curve import curve, resamplings
from ..fit.estimate import estimate
from ..fit.tables import thresholds
from . import predict
from .axes import Axis, Roles
from .critical import limits, marks, open_signs
from .study import Study, Traces, state
from .style import (
    DASH,
    MARKERS,
    MAX_PANELS,
    NotDrawn,
    Picture,
    above,
    canvas,
    dashed_levels,
    grouped,
    head,
    key,
    label,
    line,
    log_axis,
    name_axes,
    settings,
    shades,
    text,
)
from .trace import NONE

Table = Any  # pandas.DataFrame, whose own types say less than Any


def of_study(study: Study, roles: Roles) -> Iterator[Picture]:
    """One picture per theta that is crossed."""
    if study.traces is None:
        raise NotDrawn(NONE)
    some = False
    for theta in study.thetas:
        found = estimates(study.traces, theta, study.resamples)
        if len(found) and (found["state"] == "crosses").any():
            some = True
            yield _picture(study, study.traces, found, roles, theta)
    if not some:
        raise NotDrawn("no accuracy is crossed at any step by a curve of two or more N")


def estimates(traces: Traces, theta: float, resamples: int) -> Table:
    """The reported estimate of every cell of several N, indexed as the cells: thresholds with the columns of the cell and `state`."""
    import pandas as pd

    rows, index, of = [], [], 0
    for family in traces.families:
        at = [i for i, cell in enumerate(family.cells) if len(cell.N) > 1]
        if at:
            mine = replace(family, cells=[family.cells[i] for i in at])
            times = resamplings(mine.cells[0].k.shape[1], resamples)
            curves = [curve(cell, times) for cell in mine.cells]
            rows += thresholds(estimate(mine, theta, curves))
        index += [of + i for i in at]
        of += len(family.cells)
    if not rows:
        return pd.DataFrame()
    found = pd.DataFrame(rows, index=pd.Index(index))
    found["state"] = [state(*ends) for ends in zip(found["censored"], found["warning"], strict=True)]
    return found.join(traces.cells[[name for name in traces.cells if name not in found]])


def _picture(study: Study, traces: Traces, found: Table, roles: Roles, theta: float) -> Picture:
    lines, panels = roles.one_for_lines(found, [axis for axis in traces.axes if found[axis].nunique(dropna=False) > 1])
    groups, some = grouped(found, panels), grouped(found, panels, MAX_PANELS)
    figure, axes = canvas(len(some))
    head(figure, axes, [heading for heading, _ in some])
    along = Axis.of("step", found)
    values = Axis.of(lines, found).values if lines else (None,)
    heights = set()
    for ax, (_, rows) in zip(axes, some, strict=True):
        heights |= _panel(ax, rows, along, lines, values, theta)
    low, high = limits(found)
    axes[0].set_ylim(min([low, *(height / 1.5 for height in heights)]), max([high, *(height * 1.5 for height in heights)]))
    for ax in axes:
        log_axis(ax.yaxis)
    if lines:
        styles = zip(values, shades(len(values)), MARKERS * len(values), strict=False)
        key(figure, [line(text(v), color=c, marker=m) for v, c, m in styles], lines)
    legend = [line(f"N at which {theta:g} of the labels were seen", linestyle=DASH)] if heights else []
    above(figure, legend + open_signs(found))
    name_axes(figure, axes, label("step"), f"critical N* at accuracy {theta:g} (samples)")
    name = "trace-critical-n" + ("" if theta == study.thetas[0] else f"-{theta:g}")
    more = f" {len(some)} of {len(groups)} panels are drawn." if len(some) < len(groups) else ""
    return Picture(name, f"Critical N at accuracy {theta:g} against the step", caption(traces, found, theta) + more, figure)


def _panel(ax: Any, rows: Table, along: Axis, lines: str | None, values: Any, theta: float) -> set[float]:
    """The thresholds of one panel; returns the heights of the limits that are drawn."""
    limit: dict[float, list[Any]] = {}
    for i, (value, colour) in enumerate(zip(values, shades(len(values)), strict=True)):
        mine = (rows[rows[lines] == value] if lines else rows).sort_values("step")
        side = (i - (len(values) - 1) / 2) / len(values)
        at = marks(ax, mine, along, colour, MARKERS[i % len(MARKERS)], side)
        joined = ~((mine["step"] == 0) & along.broken).to_numpy()
        ax.plot(at[joined], mine["N_star"].to_numpy()[joined], color=colour)
        for height in {predict.seen_N(cell, theta) for cell in mine.to_dict("records")}:
            if height is not None:
                limit.setdefault(height, []).append(colour)
    dashed_levels(ax, limit)
    ax.margins(x=0.05)
    along.scale(ax, "x")
    ax.set_yscale("log")
    ax.grid(True)
    return {*limit}


def caption(traces: Traces, found: Table, theta: float) -> str:
    """How far N* falls, how far it stays above what was seen, and what V_mat holds."""
    axes = list(traces.axes)
    ends = found.sort_values("step").groupby(axes, dropna=False) if axes else found.sort_values("step").groupby(lambda _: 0)
    first, last = ends.head(1), ends.tail(1)
    both = first.merge(last, on=axes, suffixes=("", "_last")) if axes else first.merge(last, how="cross", suffixes=("", "_last"))
    crosses = {end: (both[f"state{end}"] == "crosses") for end in ("", "_last")}
    sentences = [f"Of {len(both)} curves at the first recorded step {_counts(both['state'])}; at the last {_counts(both['state_last'])}"]
    twice = both[crosses[""] & crosses["_last"]]
    if len(twice):
        fall = twice["N_star"] / twice["N_star_last"]
        most = fall.idxmax()
        sentences.append(
            f"Where it is crossed at both, N* falls by a factor of {fall.median():.3g} in the median, at most {fall[most]:.3g} "
            f"({_at(twice.loc[most], axes)}: {twice['N_star'][most]:.4g} to {twice['N_star_last'][most]:.4g})"
        )
    ended = last[last["state"] == "crosses"]
    limit = np.array([predict.seen_N(cell, theta) for cell in ended.to_dict("records")], dtype=float)
    if np.isfinite(limit).any():
        ratio = ended["N_star"] / limit
        near = ratio.idxmin()
        sentences.append(
            f"Dashed: the N at which 1 - (1 - 1/V)^N, the chance that a label was seen, is {theta:g}. At the last step N* is "
            f"{ratio.median():.3g} times this in the median, at least {ratio[near]:.3g} times ({_at(ended.loc[near], axes)})"
        )
    return ". ".join(filter(None, [*sentences, _parameters(last), "Bars: 95 % intervals over seeds"])) + "."


def _counts(states: Table) -> str:
    names = {"crosses": "cross", "above": "are above from the start", "plateau": "level off below", "not reached": "do not reach it"}
    return ", ".join(f"{n} {name}" for state, name in names.items() if (n := int((states == state).sum())))


def _parameters(cells: Table) -> str:
    """What V_mat has for each bit of the permutation, by its sizes."""
    sizes = [name for name in ("V", "d", "m") if cells[name].nunique() > 1]
    each = cells.drop_duplicates(["V", "d", "m"]).sort_values(["V", "d", "m"]).to_dict("records")
    known = [(row, ratio) for row in each if (ratio := predict.parameters_per_bit(row)) is not None]
    named = [f"{ratio:.2g}" + (f" ({settings(row, sizes)})" if sizes else "") for row, ratio in known]
    return f"Whatever N is, V_mat has {', '.join(named)} parameters for each of the log2 V! bits of the permutation" if named else ""


def _at(row: Any, axes: list[str]) -> str:
    return settings(row, axes) if axes else "the only curve"
