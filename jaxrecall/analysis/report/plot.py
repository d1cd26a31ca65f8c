"""Single figures of a table of runs, for Python: `jaxrecall.plot`.

Each function takes a DataFrame as `jaxrecall.load` returns it and draws on one matplotlib Axes: `ax`, or a new one. It returns the
Axes. matplotlib is imported when something is drawn, and your own settings of it apply. Of runs that train on, the last step is drawn,
unless `step` is one of the axes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError
from ..fit import cells
from ..fit.axes import as_given
from ..fit.steps import ALL, LAST, at_steps
from . import accuracy as accuracies
from . import collapse as collapses
from . import critical as criticals
from . import phase as phases
from .axes import Axis, roles
from .chart import Chart
from .study import Study, study, varying
from .style import ACCURACY, label, log_axis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["accuracy", "collapse", "critical_n", "phase"]

MAX_LINES = 20
RESAMPLES = 100
"""Bootstrap resamplings behind the intervals of N*; `jaxrecall.fit` takes more."""


def accuracy(
    df: pd.DataFrame, ax: Axes | None = None, *, x: str = "N", lines: str | Sequence[str] | None = None, theta: float | None = None
) -> Axes:
    """Mean accuracy against N, or another axis `x`, with a band of one standard deviation over seeds.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        ax: where to draw; a new figure if None.
        x: the axis along x.
        lines: the axis, or axes, that the lines differ in; every other axis that varies if None.
        theta: an accuracy (fraction) whose fitted N* are marked with their 95 % intervals.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that lacks a column.
    """
    df = _at_steps(df, x, *([lines] if isinstance(lines, str) else lines or ()))
    axes = _axes(df)
    axes = (*axes, "N") if x != "N" and len(set(df["N"])) > 1 else axes
    by = [axis for axis in axes if axis != x] if lines is None else [lines] if isinstance(lines, str) else list(lines)
    _check(axes, x=[] if x == "N" else [x], lines=by)
    _one_value(df, [axis for axis in axes if axis not in (x, *by)], "lines")
    frame = as_given(df)
    frame = frame.assign(accuracy=frame["n_correct"] / frame["n_test"]).dropna(subset=["accuracy"])
    levels = accuracies.joined(accuracies.averaged(frame, [*by, x]), by)
    if by and (n := len(accuracies.kinds(levels))) > MAX_LINES:
        raise UsageError(f"lines: {n} lines of one {', '.join(by)} each; allowed: at most {MAX_LINES}, as in {_example(df, by)}")
    ax = _new() if ax is None else ax
    marks = None
    if theta is not None and x == "N":
        about = _study(df, theta)
        marks = accuracies.joined(about.thresholds(theta), by)
    accuracies.panel(ax, levels, levels, x, bool(by), marks)
    ax.set(xlabel=label(x), ylabel=ACCURACY)
    entries = accuracies.entries(levels) if by else []
    _legend(ax, entries + accuracies.signs(levels, marks), by[0] if len(by) == 1 else None)
    return ax


def critical_n(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | None = None,
    theta: float = 0.5,
    theory: bool = True,
) -> Axes:
    """Critical N* against an axis, log-log: fitted thresholds with 95 % intervals, the fitted law, and theory dashed.

    No law is drawn where the diagnostics of the fit reject it.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N.
        ax: where to draw; a new figure if None.
        x: the axis along x; the first of d, L, V, m that varies if None.
        lines: the axis that the lines differ in; the next that varies if None.
        theta: the accuracy (fraction) that N* is for.
        theory: whether to draw theory too, which takes a second or two.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that cannot be fitted.
    """
    df = _at_steps(df, x, lines)
    axes = _axes(df)
    _check(axes, x=[x] if x else [], lines=[lines] if lines else [])
    if not axes:
        raise UsageError("x: no axis but N varies; needed: two values of an axis such as d")
    rest = [axis for axis in axes if axis not in (x, lines)]
    x = x or rest.pop(0)
    lines = lines or (rest.pop(0) if rest else None)
    _one_value(df, rest)
    about = _study(df, theta)
    found, axis = about.thresholds(theta), Axis.of(x, about.cells)
    ax = _new() if ax is None else ax
    has_theory = criticals.panel(ax, about, found, axis, lines, theta, theory)
    ax.set_ylim(*criticals.limits(found))
    log_axis(ax.yaxis)
    ax.set(xlabel=axis.label, ylabel=f"critical N* at accuracy {theta:g} (samples)")
    _legend(ax, (criticals.lines_of(about, lines) if lines else []) + criticals.signs(found, has_theory), lines)
    return ax


def phase(df: pd.DataFrame, x: str, y: str = "N", ax: Axes | None = None, *, theta: float = 0.5, theory: bool = True) -> Axes:
    """Mean accuracy over two axes, with the fitted N*, or its contour, and theory's; what was not tested is hatched.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        x: an axis, or arithmetic on axes such as "N / d".
        y: the same.
        ax: where to draw; a new figure if None.
        theta: the accuracy (fraction) whose N* is drawn.
        theory: whether to draw theory too, which takes a second or two.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError where a pixel would hold more than one cell, FitError for an axis or a table that cannot be used.
    """
    df = _at_steps(df, x, y)
    families, _ = cells.families(df)
    roles(families, phases=[(x, y)])
    about = _study(df, theta)
    chart = Chart(about, x, y)
    _one_value(df, chart.rest)
    ax = _new() if ax is None else ax
    chart.prepare(ax)
    shown, drawn = phases.panel(ax, about, chart, chart.groups[0][1], theta, theory)
    phases.scale(ax.figure, ax, shown, theta)
    ax.set(xlabel=chart.x.label, ylabel=chart.y.label)
    _legend(ax, phases.entries(theta, drawn), None)
    return ax


def collapse(df: pd.DataFrame, ax: Axes | None = None, *, lines: str | None = None, theta: float = 0.5) -> Axes:
    """Accuracy against N in units of each cell's own fitted N*: one curve where all cells have the same shape.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N.
        ax: where to draw; a new figure if None.
        lines: the axis that colours stand for; the first of d, L, V, m that varies if None.
        theta: the accuracy (fraction) that N* is for. Cells that do not cross it are left out.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two cells cross theta, FitError for a table that cannot be fitted.
    """
    df = _at_steps(df, lines)
    axes = _axes(df)
    _check(axes, lines=[lines] if lines else [])
    lines = lines or (axes[0] if axes else None)
    about = _study(df, theta)
    scale = about.thresholds(theta)["N_star"]
    if (n := int(scale.notna().sum())) < 2:
        raise UsageError(f"theta: {n} of {len(scale)} cells cross accuracy {theta:g}; needed: 2, choose another theta")
    ax = _new() if ax is None else ax
    collapses.panel(ax, about, scale, lines, theta)
    ax.set(xlabel=f"N / N* at accuracy {theta:g}", ylabel=ACCURACY)
    _legend(ax, collapses.entries(about, lines, theta) if lines else [], lines)
    return ax


def _at_steps(df: Any, *axes: str | None) -> Any:
    """The rows of all steps if the step is one of the axes, of the last otherwise."""
    return at_steps(df, ALL if any(re.search(r"\bstep\b", axis) for axis in axes if axis) else LAST)


def _axes(df: Any) -> tuple[str, ...]:
    """The axes but N that vary, d, L, V and m first."""
    return varying(cells.families(df)[0])


def _study(df: Any, theta: float) -> Study:
    return study(df, cells.families(df)[0], [theta], RESAMPLES, 0, lambda done, of: None)


def _check(axes: Sequence[str], **chosen: Sequence[str]) -> None:
    """Raises UsageError for an axis that does not vary or is chosen twice."""
    for name, given in chosen.items():
        for axis in given:
            if axis not in axes:
                raise UsageError(f"{name}: {axis!r}; allowed, as these vary: {', '.join(axes) or 'none'}")
    every = [axis for given in chosen.values() for axis in given]
    if twice := sorted({axis for axis in every if every.count(axis) > 1}):
        raise UsageError(f"{', '.join(chosen)}: {', '.join(twice)} more than once; an axis has one place")


def _one_value(df: Any, left: Sequence[str], place: str | None = None) -> None:
    """Raises UsageError for axes that vary and have no place in the figure."""
    if left:
        where = f", or name it in {place}" if place else ""
        raise UsageError(f"df: several values of {', '.join(left)}; choose one, as in {_example(df, left)}{where}")


def _example(df: Any, axes: Sequence[str]) -> str:
    value = df[axes[0]].iloc[0]
    return f"df[df[{axes[0]!r}] == {value.item() if isinstance(value, np.generic) else value!r}]"


def _new() -> Axes:
    """The Axes of a new figure of pyplot, which notebooks show."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(layout="constrained")
    return ax


def _legend(ax: Any, handles: Sequence[Any], title: str | None) -> None:
    if handles:
        ax.legend(handles=handles, title=title, frameon=False, fontsize="small")
