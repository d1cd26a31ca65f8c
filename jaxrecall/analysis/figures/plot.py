"""Single figures of a table of runs, for Python: `jaxrecall.plot`.

Each function takes a DataFrame as `jaxrecall.load` returns it. `accuracy`,
`critical_n`, `phase` and `collapse` draw on one matplotlib Axes, `ax` or a new one, and
return it; `figure` draws any column, with panels, and returns the figure. matplotlib is
imported when something is drawn, and your own settings of it apply. Of runs that train
on, the last step is drawn, unless `step` is one of the axes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError, as_list, expect
from ...sweep.store.load import with_names
from ..fit import cells
from ..fit.axes import LAW, along_of, as_given, told_apart
from ..fit.fitting import fractions
from ..fit.runs import ALL, LAST, at_steps, crossing, plain_table
from . import critical, curves
from .axis import Axis, column, columns_in
from .grammar import Chart, Points, averaged, scale_of
from .maps import Pixels, phase_chart
from .paper import look, paper, sized
from .study import Study, misplaced, roles, study, swept, varying, with_states
from .style import accuracy_label, label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "collapse", "critical_n", "figure", "phase"]

SCALES = ("fraction", "log", "linear")
COLUMN_NAMES = "the name of a column, or a list of such names"
MAX_LINES = 20


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
    """Any column of a table against any other, with lines and
    panels, or as colours over two axes; in the style of a report.

    A table of runs, with a column `seed`, is averaged over rows alike in the columns that are used,
    with a band of one standard deviation. Of any other table, such as the thresholds of a fit, each
    row is a mark: `y` with a bar from `lo` to `hi`, if there are such columns, and an open mark
    where `censored` says that accuracy crosses nowhere.

    Args:
        df: runs, or thresholds of `jaxrecall.fit`.
        y: the column along y; the accuracy if None. With `colour` it is an axis.
        x: the column along x. It and, with `colour`, `y` may be arithmetic, such as "N / d".
        lines: the column, or columns, that the lines differ in; every axis of runs that has no
            other place if None.
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

    chart = _chart(df, x, y, lines, _names(panels, "panels"), colour, scale)
    with look(size, style):
        return chart.figure(make=plt.figure)


def accuracy(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    theta: float | None = None,
    of: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Mean accuracy against an axis, with a band of one standard deviation over seeds.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        ax: where to draw; a new figure if None.
        x: the axis along x, or arithmetic such as "m * d"; that of a search, else N, if None.
        lines: the axis, or axes, that the lines differ in; every other axis that varies if None.
        theta: an accuracy (fraction) whose fitted crossings are marked with their 95 % intervals,
            where x is N, d, m, V or L.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if None.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that
    lacks a column.
    """
    df = _expect(df, ax, theta, of, x=x)
    x, given, y = along_of(df, x), _names(lines), _accuracy(df)
    df = with_names(_at_steps(df, x, *given), x)
    axes = _left(df, x, given)
    by = given if lines is not None else [axis for axis in axes if axis != x]
    if problems := misplaced(axes, x=[] if x == "N" or x not in axes else [x], lines=by):
        raise UsageError(problems)
    _one_value(df, [axis for axis in axes if axis not in (x, *by)], "lines")
    marks = _study(df, theta, x).thresholds(theta) if theta is not None and x in ("N", *LAW) else None
    chart = curves.chart(_means(_shown(df, y, [x], by), y, x, by), x, by, y=y, label=accuracy_label(of), thresholds=marks)
    return _on(_with_few_lines(chart), ax, size, style)


def critical_n(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | None = None,
    theta: float = 0.5,
    theory: bool = True,
    along: str | None = None,
    of: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Critical N*, or that of another axis, against an axis,
    log-log, with 95 % intervals, the fitted law, and theory dashed.

    No law is drawn where the diagnostics of the fit reject it, and no theory where it does not
    cover the table.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N, or values
            of `along`.
        ax: where to draw; a new figure if None.
        x: the axis along x, or arithmetic; the first of d, L, V, m that varies if None.
        lines: the axis that the lines differ in; the next that varies if None.
        theta: the accuracy (fraction) that N* is for.
        theory: whether to draw theory too, which takes a second or two; along N and of accuracy alone.
        along: the axis along which accuracy crosses; that of a search, else N, if None.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if None.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place, FitError for a table that
    cannot be fitted.
    """
    df = _expect(df, ax, theta, of, x=x, lines=lines, along=along)
    along = along_of(df, along)
    about = _study(_at_steps(df, x, lines), theta, along)
    chosen = roles(about.families, x=x, lines=lines)
    if chosen.x is None:
        raise UsageError(f"x: no axis but {along} varies; needed: two values of an axis such as {'d' if along != 'd' else 'V'}")
    if x not in (None, chosen.x):
        raise UsageError(f"x: {x!r} has {along}; allowed: other axes, and arithmetic on them")
    _one_value(about.rows, chosen.panels)
    chart = critical.chart(about, chosen.x, chosen.lines, [], theta, theory and of is None)
    return _on(chart, ax, size, style)


def phase(
    df: pd.DataFrame,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    theta: float = 0.5,
    theory: bool = True,
    of: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Mean accuracy over two axes, with the fitted critical values,
    or the contour, and theory's; what was not tested is hatched.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        x: an axis, or arithmetic on axes such as "N / d".
        y: the same; that of a search, else N, if None.
        ax: where to draw; a new figure if None.
        theta: the accuracy (fraction) whose crossing is drawn.
        theory: whether to draw theory too, which takes a second or two; of accuracy alone.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if None.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError for an unknown axis or where a pixel would hold more than one cell, FitError
    for a table that cannot be fitted.
    """
    df = _expect(df, ax, theta, of, x=expect("x", x, str, "the name of a column"), y=y)
    along = along_of(df, None)
    about = _study(_at_steps(df, x, y), theta, along)
    roles(about.families, phases=[(x, y or along)])
    chart = phase_chart(about, x, y or along, theory and of is None, of)
    _one_value(about.rows, chart.panels)
    return _on(chart, ax, size, style)


def collapse(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | None = None,
    theta: float = 0.5,
    of: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Accuracy against N, or what a search varies, in units of each
    cell's own crossing: one curve where all cells have the same shape.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several N.
        ax: where to draw; a new figure if None.
        lines: the axis that colours stand for; the first of d, L, V, m that varies if None.
        theta: the accuracy (fraction) that N* is for. Cells that do not cross it are left out.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if None.
        size: of a new figure, as for `figure`; matplotlib's own if None.
        style: as for `figure`, over your own settings.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two cells cross theta, FitError for a table that cannot be fitted.
    """
    df = _expect(df, ax, theta, of, lines=lines)
    about = _study(_at_steps(df, lines), theta, along_of(df, None))
    chosen = roles(about.families, lines=lines)
    unit = about.thresholds(theta)["critical"]
    if (n := int(unit.notna().sum())) < 2:
        raise UsageError(f"theta: {n} of {len(unit)} cells cross accuracy {theta:g}; needed: 2, choose another theta")
    chart = critical.collapse_chart(about, {critical.OWN_UNIT: unit}, lines or chosen.x, theta, of)
    return _on(chart, ax, size, style)


def _expect(df: Any, ax: Any = None, theta: Any = None, of: Any = None, **names: Any) -> Any:
    """The table as `plain_table` gives it, with the column `of` in place of the accuracy.

    Raises FitError or UsageError for a table, Axes, accuracy or names of columns that are
    none; None stands for what is not given.
    """
    from matplotlib.axes import Axes

    df = plain_table("df", df)
    expect("ax", ax, (Axes, NoneType), "Axes of matplotlib, or None for a new figure")
    if theta is not None:
        fractions([theta])
    for name, value in names.items():
        expect(name, value, (str, NoneType), "the name of a column")
    return df if of is None else crossing(df, expect("of", of, str, "the name of a column"))


def _names(axes: Any, argument: str = "lines") -> list[str]:
    """Names of columns, given as one, several or None."""
    given = [] if axes is None else [axes] if isinstance(axes, str) else as_list(argument, axes, COLUMN_NAMES, most=MAX_LINES)
    return [expect(argument, name, str, COLUMN_NAMES) for name in given]


def _at_steps(df: Any, *axes: str | None) -> Any:
    """The rows of all steps if the step is one of the axes, of the last otherwise."""
    return at_steps(df, ALL if any(re.search(r"\bstep\b", axis) for axis in axes if axis) else LAST)


def _axes(df: Any, x: str = "N") -> tuple[str, ...]:
    """The axes that vary, by the metadata of the table, else
    as the fit infers them; N counts if it is not along x.
    """
    given = df.attrs.get("axes")
    listed = [name for name in given or () if name != "N" and _varies(df, name)]
    axes = varying(cells.families(df)[0]) if given is None else tuple(told_apart(df, listed, df.attrs.get("names", {}).get("told", ())))
    return (*axes, "N") if x != "N" and _varies(df, "N") else axes


def _left(df: Any, x: str, taken: Sequence[str]) -> list[str]:
    """The axes that vary, but for the one that arithmetic along x sweeps; those `taken` have a place."""
    axes = _axes(df, x)
    along = swept(x, [axis for axis in axes if axis not in taken], df)
    return [axis for axis in axes if axis != along]


def _varies(df: Any, name: str) -> bool:
    return name in df and df[name].nunique(dropna=False) > 1


def _accuracy(df: Any) -> str:
    """The name of the column that holds the accuracy of a run."""
    return df.attrs.get("accuracy", "accuracy")


def _shown(df: Any, y: str, axes: Sequence[str], others: Sequence[str]) -> Any:
    """The rows of a table, of runs those of the steps that are asked
    for, with columns for what is arithmetic. Raises UsageError.
    """
    if "seed" in df:
        df = as_given(with_names(_at_steps(df, *axes, *others), axes[0]))
    if y == "accuracy" and {"n_correct", "n_test"} <= {*df}:
        df = df.assign(accuracy=df["n_correct"] / df["n_test"])
    has = ", ".join(map(str, df))
    for axis in (axis for axis in axes if axis not in df):
        try:
            df = df.assign(**{axis: column(axis, df)})
        except (KeyError, ValueError) as error:
            raise UsageError(f"df: no column {axis!r}, nor arithmetic on its columns; it has {has}") from error
    if missing := [name for name in (y, *others) if name not in df]:
        raise UsageError(f"df: no column {', '.join(missing)}; it has {has}")
    return df


def _means(df: Any, y: str, x: str, by: Sequence[str]) -> Any:
    """Means of a column of runs alike in x and some others,
    and in m where x is made of it, as m = 0 is drawn apart.
    """
    apart = ["m"] if x != "m" and "m" in columns_in(x) else []
    return averaged(df.dropna(subset=[y]), [*by, x, *apart], y)


def _chart(df: Any, x: str, y: str | None, lines: Any, panels: list[str], colour: str | None, scale: str | None) -> Chart:
    """Means of runs along x, or the rows of any other table as marks, or colours over two axes."""
    df = _expect(df, y=y, x=expect("x", x, str, "the name of a column"), colour=colour)
    if expect("scale", scale, (str, NoneType), ", ".join(SCALES)) not in (None, *SCALES):
        raise UsageError(f"scale: got {scale}; allowed: {', '.join(SCALES)}")
    given, y = _names(lines), y or _accuracy(df)
    if colour:
        return _map(df, colour, [x, y], panels, scale)
    shown = _shown(df, y, [x], [*given, *panels])
    if "seed" in df:
        free = lines is None
        by = [axis for axis in _left(shown, x, panels) if axis not in (x, *panels)] if free else given
        return _with_few_lines(curves.chart(_means(shown, y, x, [*by, *panels]), x, by, panels, y, label(y), scale=scale))
    marks = _points(shown, y)
    axis = Axis.make(x, marks.table)
    return _with_few_lines(Chart([marks], axis, label(y), lines=given, panels=panels, scale=scale or _scale(marks.table, y)))


def _map(df: Any, colour: str, axes: list[str], panels: list[str], scale: str | None) -> Chart:
    """A column as colours over two axes."""
    table = _shown(df, colour, axes, panels)
    if "seed" in df:
        table = averaged(table.dropna(subset=[colour]), [*axes, *panels], colour)
    ends = (0.0, 1.0) if (scale or _scale(table, colour)) == "fraction" else None
    x, y = (Axis.make(axis, table) for axis in axes)
    return Chart([Pixels(table, colour, name=label(colour), ends=ends)], x, y=y, panels=panels)


def _scale(table: Any, y: str) -> str:
    return scale_of(table[y].to_numpy(float, na_value=np.nan))


def _points(df: Any, y: str) -> Points:
    """The rows of a table of estimates as marks, those reported alone if it says which."""
    df = df[df["record"]] if "record" in df else df
    df = with_states(df) if {"censored", "warning"} <= {*df} else df.drop(columns="state", errors="ignore")
    low, high = ("lo", "hi") if {"lo", "hi"} <= {*df} else (y, y)
    return Points(df, y, low=low, high=high)


def _study(df: Any, theta: float, along: str) -> Study:
    return study(df, cells.families(df, along)[0], [theta], 0, lambda done, of: None)


def _with_few_lines(chart: Chart) -> Chart:
    """The chart; raises UsageError for more lines than can be told apart."""
    if (n := len(chart.groups)) > MAX_LINES:
        by = chart.lines
        raise UsageError(f"lines: {n} lines of one {', '.join(by)} each; allowed: at most {MAX_LINES}, as in {_example(chart.table, by)}")
    return chart


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
    with look(size, style, ours=False):
        if ax is None:
            width, height = paper() or (None, None)
            _, ax = plt.subplots(figsize=width and (width, height or 0.75 * width), layout="constrained")
        return chart.on(ax)
