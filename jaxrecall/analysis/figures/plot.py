"""Single figures of a table of runs, for Python: `jaxrecall.plot`.

Each function takes a DataFrame as `jaxrecall.load` returns it. `accuracy`, `critical_n`, `phase` and `collapse` draw on one matplotlib
Axes, `ax` or a new one, and return it; `figure` draws any column, with panels, and returns the figure. matplotlib is imported when
something is drawn, and your own settings of it apply. Of runs that train on, the last step is drawn, unless `step` is one of the axes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError, as_list, expect
from ..fit import cells
from ..fit.axes import LAW, along_of, as_given
from ..fit.fitting import expect_table, fractions
from ..fit.runs import ALL, LAST, at_steps
from . import critical, curves
from .axis import Axis, column, columns_in
from .baseline import baseline, split
from .grammar import Chart, Line, Points, averaged, scale_of, values_of, where
from .maps import Pixels, has_gaps, phase_chart
from .paper import look, paper, sized, styled
from .roles import misplaced, roles
from .study import Study, study, varying, with_states
from .style import label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "collapse", "critical_n", "figure", "phase"]

SCALES = ("fraction", "log", "linear")
COLUMN_NAMES = "the name of a column, or a list of such names"
MAX_LINES = 20
RESAMPLES = 100
"""Bootstrap resamplings behind the intervals of N*; `jaxrecall.fit` takes more."""


def figure(
    df: pd.DataFrame,
    y: str | None = None,
    *,
    x: str = "N",
    lines: str | Sequence[str] | None = None,
    panels: str | Sequence[str] = (),
    colour: str | None = None,
    scale: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Figure:
    """Any column of a table against any other, with lines and panels, or as colours over two axes; in the style of a report.

    A table of runs, with a column `seed`, is averaged over rows alike in the columns that are used, with a band of one standard
    deviation. Of any other table, such as the thresholds of a fit, each row is a mark: `y` with a bar from `lo` to `hi`, if there are
    such columns, and an open mark where `censored` says that accuracy crosses nowhere.

    Args:
        df: runs, or thresholds of `jaxrecall.fit`.
        y: the column along y; the accuracy if None. With `colour` it is an axis.
        x: the column along x. It and, with `colour`, `y` may be arithmetic, such as "N / d".
        lines: the column, or columns, that the lines differ in; every axis of runs that has no other place if None.
        panels: the column, or columns, that the panels differ in.
        colour: the column that is shown as colours over `x` and `y`; what was not tested is hatched.
        scale: of y, "fraction" (0 to 1), "log" or "linear"; what suits the values if None.
        size: "column", "text", or inches as in "3.4x2.6"; what suits the panels if None.
        style: a style file of matplotlib, or the name of one of its styles.

    Returns:
        The matplotlib figure, whose `axes` are the panels.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> drawn = jaxrecall.plot.figure(df, "accuracy", lines="d")
        >>> drawn.savefig("figure.pdf")

    Raises UsageError for a column that the table lacks or for too many lines.
    """
    import matplotlib.pyplot as plt

    _expect(df, y=y, x=expect("x", x, str, "the name of a column"), colour=colour)
    expect("scale", scale, (str, NoneType), ", ".join(SCALES))
    if scale not in (None, *SCALES):
        raise UsageError(f"scale: got {scale}; allowed: {', '.join(SCALES)}")
    across, panels, runs = [x, y] if colour and y else [x], _names(panels, "panels"), "seed" in df
    df = as_given(_at_steps(df, *across, *_names(lines), *panels)) if runs else df
    shown = colour or y or _accuracy(df)
    df = _with(df, across) if shown in df or not runs else _with(_counted(df), across)
    by = [] if colour else _names(lines)
    if lines is None and runs and not colour:
        by = [axis for axis in _axes(df, x) if axis not in (x, *panels)]
    if missing := [name for name in (shown, *by, *panels) if name not in df]:
        raise UsageError(f"df: no column {', '.join(missing)}; it has {', '.join(map(str, df))}")
    of_mlp = ["m"] if runs and not colour and x != "m" and "m" in columns_in(x) else []
    table = averaged(df.dropna(subset=[shown]), [*across, *by, *panels, *of_mlp], shown) if runs else df
    table, without = split(table, x, by, panels) if runs and not colour else (table, None)
    axes = [Axis.make(axis, table) for axis in across]
    how = scale or scale_of(table[shown].to_numpy(float, na_value=np.nan))
    if colour:
        parts = [where(table, values) for values in values_of(table, panels)]
        ends = (0.0, 1.0) if how == "fraction" else None
        layer = Pixels(table, shown, name=label(shown), ends=ends, gaps=has_gaps(axes[0], axes[-1], parts))
    else:
        layer = Line(table, shown, low="low", high="high") if runs else _points(table, shown)
    layers = [layer] if without is None else [layer, baseline(without, shown, x)]
    chart = Chart(layers, axes[0], label(shown), y=axes[1] if colour else None, lines=by, panels=panels, scale=how)
    _check_lines(df, chart)
    with look(size, style):
        return chart.figure(make=plt.figure)


def accuracy(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    theta: float | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Mean accuracy against an axis, with a band of one standard deviation over seeds.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        ax: where to draw; a new figure if None.
        x: the axis along x, or arithmetic such as "m * d"; that of a search, else N, if None.
        lines: the axis, or axes, that the lines differ in; every other axis that varies if None.
        theta: an accuracy (fraction) whose fitted crossings are marked with their 95 % intervals, where x is N, d, m, V or L.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that lacks a column.
    """
    _expect(df, ax, theta, x=x)
    x = along_of(df, x)
    df = _with(_at_steps(df, x, *_names(lines)), [x])
    axes = _left(df, x, _axes(df, x), _names(lines))
    by = [axis for axis in axes if axis != x] if lines is None else _names(lines)
    _check(axes, x=[] if x == "N" or x not in axes else [x], lines=by)
    _one_value(df, [axis for axis in axes if axis not in (x, *by)], "lines")
    y, frame = _accuracy(df), _counted(as_given(df))
    of_mlp = ["m"] if x != "m" and "m" in columns_in(x) else []
    levels = averaged(frame.dropna(subset=[y]), [*by, x, *of_mlp], y).rename(columns={y: "accuracy"})
    marks = _study(df, theta, x).thresholds(theta) if theta is not None and x in ("N", *LAW) else None
    chart = curves.chart(levels, x, by, [], thresholds=marks)
    _check_lines(df, chart)
    return _on(chart, ax, size, style)


def critical_n(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | None = None,
    theta: float = 0.5,
    theory: bool = True,
    along: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Critical N*, or that of another axis, against an axis, log-log, with 95 % intervals, the fitted law, and theory dashed.

    No law is drawn where the diagnostics of the fit reject it, and no theory where it does not cover the table.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N, or values of `along`.
        ax: where to draw; a new figure if None.
        x: the axis along x; the first of d, L, V, m that varies if None.
        lines: the axis that the lines differ in; the next that varies if None.
        theta: the accuracy (fraction) that N* is for.
        theory: whether to draw theory too, which takes a second or two; along N alone.
        along: the axis along which accuracy crosses; that of a search, else N, if None.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that cannot be fitted.
    """
    _expect(df, ax, theta, x=x, lines=lines, along=along)
    df, along = _at_steps(df, x, lines), along_of(df, along)
    axes = _axes(df) if along == "N" else varying(cells.families(df, along)[0])
    _check(axes, x=_names(x), lines=_names(lines))
    if not axes:
        raise UsageError(f"x: no axis but {along} varies; needed: two values of an axis such as {'d' if along != 'd' else 'V'}")
    rest = [axis for axis in axes if axis not in (x, lines)]
    x = x or rest.pop(0)
    lines = lines or (rest.pop(0) if rest else None)
    _one_value(df, rest)
    return _on(critical.chart(_study(df, theta, along), x, lines, [], theta, theory), ax, size, style)


def phase(
    df: pd.DataFrame,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    theta: float = 0.5,
    theory: bool = True,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Mean accuracy over two axes, with the fitted critical values, or the contour, and theory's; what was not tested is hatched.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        x: an axis, or arithmetic on axes such as "N / d".
        y: the same; that of a search, else N, if None.
        ax: where to draw; a new figure if None.
        theta: the accuracy (fraction) whose crossing is drawn.
        theory: whether to draw theory too, which takes a second or two.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError where a pixel would hold more than one cell, FitError for an axis or a table that cannot be used.
    """
    _expect(df, ax, theta, x=expect("x", x, str, "the name of a column"), y=y)
    df, along = _at_steps(df, x, y or ""), along_of(df, None)
    y = y or along
    roles(cells.families(df, along)[0], phases=[(x, y)])
    chart, over = phase_chart(_study(df, theta, along), x, y, theory)
    _one_value(df, over.panels)
    return _on(chart, ax, size, style)


def collapse(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | None = None,
    theta: float = 0.5,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Accuracy against N, or what a search varies, in units of each cell's own crossing: one curve where all cells have the same shape.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N.
        ax: where to draw; a new figure if None.
        lines: the axis that colours stand for; the first of d, L, V, m that varies if None.
        theta: the accuracy (fraction) that N* is for. Cells that do not cross it are left out.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two cells cross theta, FitError for a table that cannot be fitted.
    """
    _expect(df, ax, theta, lines=lines)
    df = _at_steps(df, lines)
    about = _study(df, theta, along_of(df, None))
    axes = _axes(df) if about.along == "N" else about.axes
    _check(axes, lines=_names(lines))
    unit = about.thresholds(theta)["critical"]
    if (n := int(unit.notna().sum())) < 2:
        raise UsageError(f"theta: {n} of {len(unit)} cells cross accuracy {theta:g}; needed: 2, choose another theta")
    chart = critical.collapse_chart(about, {critical.OWN_UNIT: unit}, lines or (axes[0] if axes else None), theta)
    return _on(chart, ax, size, style)


def _expect(df: Any, ax: Any = None, theta: Any = None, **names: Any) -> None:
    """Raises FitError or UsageError for a table, Axes, accuracy or names of columns that are none; None stands for what is not given."""
    from matplotlib.axes import Axes

    expect_table("df", df)
    expect("ax", ax, (Axes, NoneType), "Axes of matplotlib, or None for a new figure")
    if theta is not None:
        fractions([theta])
    for name, value in names.items():
        expect(name, value, (str, NoneType), "the name of a column")


def _names(axes: Any, argument: str = "lines") -> list[str]:
    """Names of columns, given as one, several or None."""
    given = [] if axes is None else [axes] if isinstance(axes, str) else as_list(argument, axes, COLUMN_NAMES, most=MAX_LINES)
    return [expect(argument, name, str, COLUMN_NAMES) for name in given]


def _at_steps(df: Any, *axes: str | None) -> Any:
    """The rows of all steps if the step is one of the axes, of the last otherwise."""
    return at_steps(df, ALL if any(re.search(r"\bstep\b", axis) for axis in axes if axis) else LAST)


def _axes(df: Any, x: str = "N") -> tuple[str, ...]:
    """The axes that vary, by the metadata of the table, else as the fit infers them; N counts if it is not along x."""
    given = df.attrs.get("axes")
    named = [name for name in given or () if name != "N" and _varies(df, name)]
    axes = varying(cells.families(df)[0]) if given is None else tuple(named)
    return (*axes, "N") if x != "N" and _varies(df, "N") else axes


def _left(df: Any, x: str, axes: Sequence[str], lines: Sequence[str]) -> tuple[str, ...]:
    """The axes that make lines: of those that x is arithmetic on, all but the one with most values."""
    inside = [axis for axis in axes if axis != x and axis in columns_in(x) and axis not in lines]
    along = max(inside, key=lambda axis: df[axis].nunique(), default=None)
    return tuple(axis for axis in axes if axis != along)


def _varies(df: Any, name: str) -> bool:
    return name in df and df[name].nunique(dropna=False) > 1


def _accuracy(df: Any) -> str:
    """The name of the column that holds the accuracy of a run."""
    return df.attrs.get("accuracy", "accuracy")


def _counted(df: Any) -> Any:
    """The table with the accuracy that its counts have."""
    return df.assign(accuracy=df["n_correct"] / df["n_test"]) if {"n_correct", "n_test"} <= {*df} else df


def _with(df: Any, axes: Sequence[str]) -> Any:
    """The table with a column for each axis that is arithmetic on others."""
    for axis in axes:
        try:
            df = df if axis in df else df.assign(**{axis: column(axis, df)})
        except (KeyError, ValueError) as error:
            raise UsageError(f"df: no column {axis!r}, nor arithmetic on its columns; it has {', '.join(map(str, df))}") from error
    return df


def _points(df: Any, y: str) -> Points:
    """The rows of a table of estimates as marks, those reported alone if it says which."""
    df = df[df["record"]] if "record" in df else df
    df = with_states(df) if {"censored", "warning"} <= {*df} else df.drop(columns="state", errors="ignore")
    low, high = ("lo", "hi") if {"lo", "hi"} <= {*df} else (y, y)
    return Points(df, y, low=low, high=high)


def _study(df: Any, theta: float, along: str) -> Study:
    return study(df, cells.families(df, along)[0], [theta], RESAMPLES, 0, lambda done, of: None)


def _check(axes: Sequence[str], **chosen: Sequence[str]) -> None:
    """Raises UsageError for an axis that does not vary or is chosen twice."""
    for problem in misplaced(axes, **chosen):
        raise UsageError(problem)


def _check_lines(df: Any, chart: Chart) -> None:
    """Raises UsageError for more lines than can be told apart."""
    if (n := len(chart.groups)) > MAX_LINES:
        by = chart.lines
        raise UsageError(f"lines: {n} lines of one {', '.join(by)} each; allowed: at most {MAX_LINES}, as in {_example(df, by)}")


def _one_value(df: Any, left: Sequence[str], place: str | None = None) -> None:
    """Raises UsageError for axes that vary and have no place in the figure."""
    if left:
        where = f", or name it in {place}" if place else ""
        raise UsageError(f"df: several values of {', '.join(left)}; choose one, as in {_example(df, left)}{where}")


def _example(df: Any, axes: Sequence[str]) -> str:
    value = df[axes[0]].iloc[0]
    return f"df[df[{axes[0]!r}] == {value.item() if isinstance(value, np.generic) else value!r}]"


def _on(chart: Chart, ax: Axes | None, size: str | None, style: str | Path | None) -> Axes:
    """The chart on these Axes, or on those of a new figure of pyplot, which notebooks show."""
    import matplotlib.pyplot as plt

    if ax is not None and sized(size):
        raise UsageError(f"size: got {size!r} with ax, whose figure has a size; allowed: one of them")
    with styled(size, style):
        if ax is None:
            chosen = paper()
            _, ax = plt.subplots(figsize=chosen and (chosen.width, chosen.height or 0.75 * chosen.width), layout="constrained")
        return chart.on(ax)
