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
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError, as_list, expect
from ..fit import fractions
from ..fit.axes import LAW
from ..fit.runs import (
    ALL,
    LAST,
    along_of,
    at_steps,
    crossing,
    no_numbers,
    plain_table,
)
from . import charts
from .axis import Axis, columns_in, with_columns
from .grammar import Chart, Pixels, Points, Table
from .runs import (
    BANDS,
    Runs,
    arranged,
    averaged,
    check_maps,
    rows_of,
    scale_of,
    with_states,
)
from .style import accuracy_label, label, look, sized

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "collapse", "critical_n", "figure", "phase"]

SCALES = ("fraction", "log", "linear")
MAX_LINES = 20
COLUMN_NAMES = "the name of a column, or a list of such names"


def figure(
    df: pd.DataFrame,
    y: str | Sequence[str] | None = None,
    *,
    x: str = "N",
    lines: str | Sequence[str] | None = None,
    panels: str | Sequence[str] = (),
    colour: str | None = None,
    contour: str | None = None,
    band: str = "sd",
    scale: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Figure:
    """Any column of a table against any other, with lines and panels, or as colours
    over two axes; in the style of a report.

    A table of runs, with a column `seed`, is averaged over rows alike in the columns
    that are used, with a band. Of any other table, such as the thresholds of a fit,
    each row is a mark: `y` with a bar from `lo` to `hi`, if there are such columns, and
    an open mark where `censored` says that accuracy crosses nowhere.

    Args:
        df: runs, or thresholds of `jaxrecall.fit`.
        y: the column along y, or several, each a line; the accuracy if None. With
            `colour` it is an axis.
        x: the column along x. It and, with `colour`, `y` may be arithmetic, such as "N
            / d".
        lines: the column, or columns, that the lines differ in; every axis of runs that
            has no
            other place if None.
        panels: the column, or columns, that the panels differ in.
        colour: the column of numbers that is shown as colours over `x` and `y`; what
            was not tested is
            hatched.
        contour: "theory" draws the line in a map of runs where theory's accuracy is one
            half, as far
            as theory covers the runs.
        band: "sd", one standard deviation around the mean, or "quartiles" around the
            median.
        scale: of y, "fraction" (0 to 1), "log" or "linear"; what suits the values if
            None.
        size: "column", "text", or inches as in "3.4x2.6"; what suits the panels if
            None.
        style: a style file of matplotlib, or the name of one of its styles.

    Returns:
        The matplotlib figure, whose `axes` are the panels.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> drawn = jaxrecall.plot.figure(df, "accuracy", lines="d")
        >>> drawn = jaxrecall.plot.figure(df, y="d", colour="accuracy",
            contour="theory")  # a heat map
        >>> drawn.savefig("figure.pdf")

    Raises UsageError for a column that the table lacks or for too many lines.
    """
    import matplotlib.pyplot as plt

    ys = _names(y, "y")
    df = _expect(df, x=expect("x", x, str, "the name of a column"), colour=colour)
    for name, value, allowed in (
        ("scale", scale, (None, *SCALES)),
        ("contour", contour, (None, "theory")),
        ("band", band, BANDS),
    ):
        if (
            expect(name, value, (str, NoneType), ", ".join(map(str, allowed)))
            not in allowed
        ):
            raise UsageError(
                f"{name}: got {value}; allowed: {', '.join(map(str, allowed))}"
            )
    if contour and not colour:
        raise UsageError(
            f"contour: got {contour!r} without colour; allowed: in a map, whose colour"
            " names a column"
        )
    by, panels = None if lines is None else _names(lines), _names(panels, "panels")
    is_runs, ys = "seed" in df, ys or [df.attrs.get("accuracy", "accuracy")]
    df = _at_steps(df, x, *ys, *(by or []), *panels, colour) if is_runs else df
    others = [*(by or []), *panels, *([colour] if colour else ys)]
    rows = _with_axes(
        rows_of(df) if is_runs else df, [x, *(ys if colour else [])], others
    )
    for name in [colour] if colour else ys:
        if problem := no_numbers(rows[name]):
            raise UsageError(f"df: {name} {problem}")
    if colour:
        chart = _map(df, rows, colour, x, ys[0], panels, contour, scale)
    elif not is_runs:
        chart = _marks(rows, x, ys[0], by or [], panels)
    else:
        if by is None:
            runs = Runs.of(df, along_of(df, None))
            _, first, more = arranged(runs.sizes, runs.every, x, None, panels)
            by = [*first, *(axis for axis in more if axis not in panels)]
        named = accuracy_label(ys[0]) if ys == ["accuracy"] else ""
        chart = _with_few_lines(charts.means(rows, ys, x, by, panels, named, band))
    with look(style):
        return replace(chart, scale=scale or chart.scale, size=sized(size)).figure(
            make=plt.figure
        )


def accuracy(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    theta: float | None = None,
    theory: bool = False,
    of: str | None = None,
) -> Axes:
    """Mean accuracy against an axis, with a band of one standard deviation over seeds.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        ax: where to draw; a new figure if None.
        x: the axis along x, or arithmetic such as "m * d"; that of a search, else N, if
            None.
        lines: the axis, or axes, that the lines differ in; every other axis that varies
            if None.
        theta: an accuracy (fraction) whose fitted crossings are marked with their 95 %
            intervals,
            where x is N, d, m, V or L.
        theory: whether to draw theory too, along N and of accuracy alone.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if
            None.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place, FitError for
    a table that lacks a column.
    """
    df = _expect(df, ax, theta, of, x=x)
    x, given = along_of(df, x), _names(lines)
    df = _at_steps(df, x, *given)
    runs = Runs.of(
        df, x if theta is not None and x in ("N", *LAW) else along_of(df, None)
    )
    _, by, left = arranged(
        runs.sizes, runs.every, x, given if lines is not None else None
    )
    by, left = (by, left) if lines is not None else ([*by, *left], [])
    _one_value(runs.rows, left, "lines")
    marks = (
        runs.thresholds(runs.fitted([theta]), theta)
        if theta is not None and x == runs.along
        else None
    )
    chart = charts.accuracy(
        runs, x, by, [], marks, theory and of is None, of or df.attrs.get("accuracy")
    )
    return _on(_with_few_lines(chart), ax)


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
) -> Axes:
    """Critical N*, or that of another axis, against an axis, log-log, with 95 %
    intervals, the fitted law, and theory.

    No law is drawn where the diagnostics of the fit reject it, and no theory where it
    does not cover the table.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several
            N, or values
            of `along`.
        ax: where to draw; a new figure if None.
        x: the axis along x, or arithmetic; the first of d, L, V, m that varies if None.
        lines: the axis that the lines differ in; the next that varies if None.
        theta: the accuracy (fraction) that N* is for.
        theory: whether to draw theory too, which takes a second or two; along N and of
            accuracy alone.
        along: the axis along which accuracy crosses; that of a search, else N, if None.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if
            None.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place, FitError for
    a table that cannot be fitted.
    """
    df = _expect(df, ax, theta, of, x=x, lines=lines, along=along)
    along = along_of(df, along)
    runs = Runs.of(_at_steps(df, x, lines), along)
    if x and along in columns_in(x):
        raise UsageError(
            f"x: {x!r} has {along}; allowed: other axes, and arithmetic on them"
        )
    x, by, left = arranged(runs.sizes, runs.axes, x, [lines] if lines else None)
    if x is None:
        raise UsageError(
            f"x: no axis but {along} varies; needed: two values of an axis such as"
            f" {'d' if along != 'd' else 'V'}"
        )
    _one_value(runs.rows, left)
    return _on(
        charts.critical(
            runs, runs.fitted([theta]), theta, x, by, [], theory and of is None
        ),
        ax,
    )


def phase(
    df: pd.DataFrame,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    theta: float = 0.5,
    theory: bool = True,
    of: str | None = None,
) -> Axes:
    """Mean accuracy over two axes, with the fitted critical values and theory's; what
    was not tested is hatched.

    Over axes without that of the critical values there is a line where the mean
    accuracy is theta.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step.
        x: an axis, or arithmetic on axes such as "N / d".
        y: the same; that of a search, else N, if None.
        ax: where to draw; a new figure if None.
        theta: the accuracy (fraction) whose crossing is drawn.
        theory: whether to draw theory too, which takes a second or two; of accuracy
            alone.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if
            None.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError for an unknown axis or where a pixel would hold more than one
    cell, FitError for a table that cannot be fitted.
    """
    df = _expect(df, ax, theta, of, x=expect("x", x, str, "the name of a column"), y=y)
    along = along_of(df, None)
    runs, y = Runs.of(_at_steps(df, x, y), along), y or along
    check_maps([(x, y)], runs.sizes)
    chart = charts.phase(
        runs, runs.fitted([theta]), theta, x, y, theory and of is None, of
    )
    _one_value(runs.rows, chart.panels)
    return _on(chart, ax)


def collapse(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | None = None,
    theta: float = 0.5,
    of: str | None = None,
) -> Axes:
    """Accuracy against N, or what a search varies, in units of each cell's own
    crossing.

    There is one curve where all cells have the same shape.

    Args:
        df: runs, one row per (point, seed), or one for each recorded step, at several
            N.
        ax: where to draw; a new figure if None.
        lines: the axis that colours stand for; the first of d, L, V, m that varies if
            None.
        theta: the accuracy (fraction) that N* is for. Cells that do not cross it are
            left out.
        of: the column of fractions that is drawn, and crosses theta; the accuracy if
            None.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two cells cross theta, FitError for a table that
    cannot be fitted.
    """
    df = _expect(df, ax, theta, of, lines=lines)
    runs = Runs.of(_at_steps(df, lines), along_of(df, None))
    by = [lines] if lines else [*runs.axes[:1]]
    arranged(runs.sizes, runs.axes, lines=by)
    found = runs.fitted([theta])
    known = runs.thresholds(found, theta)["critical"].notna()
    if known.sum() < 2:
        raise UsageError(
            f"theta: {known.sum()} of {len(known)} cells cross accuracy {theta:g};"
            " needed: 2, choose another theta"
        )
    return _on(charts.collapse(runs, found, theta, by, of), ax)


def _expect(
    df: object,
    ax: object = None,
    theta: float | None = None,
    of: object = None,
    **names: object,
) -> Table:
    """The table as `plain_table` gives it, with the column `of` in place of the
    accuracy.

    Raises FitError or UsageError for a table, Axes, accuracy or names of columns that
    are none; None stands for what is not given.
    """
    from matplotlib.axes import Axes

    df = plain_table("df", df)
    expect("ax", ax, (Axes, NoneType), "Axes of matplotlib, or None for a new figure")
    if theta is not None:
        fractions([theta])
    for name, value in names.items():
        expect(name, value, (str, NoneType), "the name of a column")
    return (
        df
        if of is None
        else crossing(df, expect("of", of, str, "the name of a column"))
    )


def _names(axes: object, argument: str = "lines") -> list[str]:
    """Names of columns, given as one, several or None."""
    given = (
        []
        if axes is None
        else (
            [axes]
            if isinstance(axes, str)
            else as_list(argument, axes, COLUMN_NAMES, most=MAX_LINES)
        )
    )
    return [expect(argument, name, str, COLUMN_NAMES) for name in given]


def _at_steps(df: Table, *axes: str | None) -> Table:
    """The rows of all steps if the step is one of the axes, of the last otherwise."""
    return at_steps(
        df, ALL if any(re.search(r"\bstep\b", axis) for axis in axes if axis) else LAST
    )


def _marks(rows: Table, x: str, y: str, lines: list[str], panels: list[str]) -> Chart:
    """The rows of a table of estimates as marks."""
    rows = (
        with_states(rows)
        if {"censored", "warning"} <= {*rows}
        else rows.drop(columns="state", errors="ignore")
    )
    scale = (
        "log"
        if {"lo", "hi"} <= {*rows} and (rows[y].dropna() > 0).all()
        else scale_of(rows[y])
    )
    return Chart(
        [Points(rows, y)],
        Axis.make(x, rows),
        label(y),
        lines=lines,
        panels=panels,
        scale=scale,
    )


def _map(
    df: Table,
    rows: Table,
    colour: str,
    x: str,
    y: str,
    panels: list[str],
    contour: str | None,
    scale: str | None,
) -> Chart:
    """A column as colours over two axes."""
    table = averaged(rows, [x, y, *panels], colour) if "seed" in rows else rows
    ends = (0.0, 1.0) if (scale or scale_of(table[colour])) == "fraction" else None
    chart = charts.over(Pixels(table, colour, label(colour), ends=ends), x, y, panels)
    if contour is None:
        return chart
    if "seed" not in rows:
        raise UsageError(
            f"contour: got {contour!r} for a table of no runs; allowed: for runs, with"
            " a column seed"
        )
    runs = Runs.of(df, "N")
    _one_value(
        runs.rows,
        [
            axis
            for axis in runs.every
            if axis not in (*columns_in(x), *columns_in(y), *panels)
        ],
        "panels",
    )
    return replace(
        chart, layers=[*chart.layers, *charts.theory_contour(runs, x, y, panels, 0.5)]
    )


def _with_axes(df: Table, axes: Sequence[str], others: Sequence[str]) -> Table:
    """The table with columns for what is arithmetic. Raises UsageError for columns that
    there are not.
    """
    has = ", ".join(map(str, df))
    try:
        df = with_columns(df, *axes)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"df: no column {', '.join(map(repr, axes))}, nor arithmetic on its"
            f" columns; it has {has}"
        ) from error
    if missing := [name for name in others if name not in df]:
        raise UsageError(f"df: no column {', '.join(missing)}; it has {has}")
    return df


def _with_few_lines(chart: Chart) -> Chart:
    """The chart; raises UsageError for more lines than can be told apart."""
    if (n := len(chart.groups)) > MAX_LINES:
        by = chart.lines
        raise UsageError(
            f"lines: {n} lines of one {', '.join(by)} each; allowed: at most"
            f" {MAX_LINES}, as in {_example(chart.table, by)}"
        )
    return chart


def _one_value(df: Table, left: Sequence[str], place: str | None = None) -> None:
    """Raises UsageError for axes that vary and have no place in the figure."""
    if left:
        where = f", or name it in {place}" if place else ""
        raise UsageError(
            f"df: several values of {', '.join(left)}; choose one, as in"
            f" {_example(df, left)}{where}"
        )


def _example(df: Table, axes: Sequence[str]) -> str:
    value = df[axes[0]].iloc[0]
    return (
        f"df[df[{axes[0]!r}] =="
        f" {value.item() if isinstance(value, np.generic) else value!r}]"
    )


def _on(chart: Chart, ax: Axes | None) -> Axes:
    """The chart on these Axes, or on those of a new figure of pyplot, which notebooks
    show.
    """
    import matplotlib.pyplot as plt

    with look(ours=False):
        return chart.on(ax or plt.subplots(layout="constrained")[1])
