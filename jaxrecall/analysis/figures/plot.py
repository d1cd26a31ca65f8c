"""The functions of `jaxrecall.plot`, which draw a table of runs.

Each function accepts a DataFrame from `jaxrecall.load`. `accuracy`, `critical_n`,
`phase` and `collapse` draw on one matplotlib Axes and return it. If `ax` is None, they
create a new figure. `figure` draws any column, with panels, and returns the figure.

matplotlib is imported only when something is drawn. Your own matplotlib settings apply,
except in `figure`, which uses the style of a report. For runs that train, the last step
is drawn unless `step` is one of the axes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from ...errors import UsageError, as_list, expect, refusal
from ..fit import chosen_summary, numbers
from ..fit.roles import ACCURACY, Roles, Table, roles_of
from ..fit.runs import (
    ALL,
    LAST,
    along_of,
    at_steps,
    common,
    no_numbers,
    plain_table,
    with_measure,
    without,
)
from ..fit.several import choice, telling
from . import charts
from .averages import (
    PLACES,
    check_one_row,
    check_one_run_per_seed,
    refuse_several,
)
from .axis import Axis, columns_in, with_columns
from .grammar import Chart, Pixels, Points
from .style import label, look, measure_label, sized
from .table_of_runs import (
    BANDS,
    Runs,
    arranged,
    averaged,
    check_maps,
    rows_of,
    scale_of,
    with_states,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy", "collapse", "critical_n", "figure", "phase"]

SCALES = ("fraction", "log", "linear")
MAX_LINES = 20
COLUMN_NAME = "the name of a column"
COLUMN_NAMES = f"{COLUMN_NAME}, or a list of such names"


def figure(
    df: pd.DataFrame,
    y: str | Sequence[str] | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    panels: str | Sequence[str] = (),
    colour: str | None = None,
    contour: str | None = None,
    band: str = "sd",
    scale: str | None = None,
    size: str | None = None,
    style: str | Path | None = None,
) -> Figure:
    """Draws any column of a table against any other, in the style of a report.

    The figure may have lines and panels, or colours over two axes.

    A table of runs has a column `seed`. Rows that have equal values in the columns of
    the figure are averaged, and the mean has a band. In any other table, such as the
    thresholds of a fit, each row is a mark. A mark has a bar if there are columns `lo`
    and `hi`. A mark is open if accuracy does not cross, according to the columns
    `censored` and `warning`.

    Args:
        df: runs, or thresholds of `jaxrecall.fit`.
        y: the column along y, or several columns, each of which makes a line. If None,
            the accuracy. If `colour` is given, `y` is an axis of the map.
        x: the column along x, or arithmetic such as "N / d". If None, the axis of a
            search, else N, else the only axis of numbers. If `colour` is given, `y` may
            also be arithmetic.
        lines: the column, or columns, in which the lines differ. If None, these are all
            axes of the runs that have no other place.
        panels: the column, or columns, in which the panels differ.
        colour: the column of numbers that is shown as colours over `x` and `y`. Places
            that were not tested are hatched.
        contour: "theory" adds the line of predicted accuracy one half to a map of runs.
            The line is limited to the runs that theory covers.
        band: "sd" for one standard deviation around the mean, "se" for one standard
            error, "95 %" for the interval of the mean, or "quartiles" around the
            median.
        scale: the scale of y: "fraction" (0 to 1), "log" or "linear". If None, the
            values determine it.
        size: "column", "text", or inches as in "3.4x2.6". If None, the panels determine
            it.
        style: a style file of matplotlib, or the name of one of its styles.

    Returns:
        The matplotlib figure, whose `axes` are the panels.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> drawn = jaxrecall.plot.figure(df, "accuracy", lines="d")
        >>> heat_map = jaxrecall.plot.figure(
        ...     df, y="d", colour="accuracy", contour="theory"
        ... )
        >>> drawn.savefig("figure.pdf")

    Raises UsageError if the table lacks a column, or if there are too many lines.
    """
    import matplotlib.pyplot as plt

    ys = _names(y, "y")
    df, roles = _expect(df, x=x, colour=colour)
    x = along_of(df, roles, x, "x")
    _expect_one_of("scale", scale, (None, *SCALES))
    _expect_one_of("contour", contour, (None, "theory"))
    _expect_one_of("band", band, BANDS)
    if contour and not colour:
        raise UsageError("contour: it needs a map; give `colour` the name of a column")
    by = None if lines is None else _names(lines)
    panels = _names(panels, "panels")
    has_runs = "seed" in df
    if not ys:
        ys = [roles.measure]
    drawn = [colour] if colour else ys
    axes = [x, *ys] if colour else [x]
    used = [*(by or []), *panels, *drawn]
    rows = df
    if has_runs:
        df = _at_steps(df, *axes, *used)
        rows = rows_of(df, roles)
    rows = _with_axes(rows, axes, used)
    for name in drawn:
        problem = no_numbers(rows[name])
        if problem:
            raise UsageError(f"df: {name} {problem}")
    if colour:
        chart = _map(df, roles, rows, colour, x, ys[0], panels, contour, scale)
    elif not has_runs:
        chart = _marks(df, roles, rows, x, ys[0], by, panels)
        chart = _with_few_lines(chart, df)
    else:
        if by is None:
            by = _other_axes(Runs.of(df, roles, _along(df, roles, x)), x, panels)
        placed = [x, *by, *panels]
        check_one_run_per_seed(df, rows, roles, placed=placed, drawn=ys)
        named = ""
        if ys == [roles.measure]:
            named = measure_label(roles, scale_of(rows[ys[0]]) == "fraction")
        labels = roles.labels
        chart = charts.means(rows, ys, x, by, panels, labels, named, band)
        chart = _with_few_lines(chart, df)
    chart = replace(chart, scale=scale or chart.scale, size=sized(size))
    with look(style):
        return chart.figure(make=plt.figure)


def accuracy(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    theta: float | None = None,
    theory: bool = False,
    of: str | None = None,
    summary: str = "mean",
) -> Axes:
    """Draws mean accuracy against an axis.

    The lines have a band of one standard deviation over seeds.

    Args:
        df: runs, with one row per (point, seed), or one row per recorded step if the
            runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        x: the axis along x, or arithmetic such as "m * d". If None, the axis of a
            search, else N.
        lines: the axis, or axes, in which the lines differ. If None, every other axis
            that varies.
        theta: an accuracy (fraction). If x is N, d, m, V or L, marks show where the
            fitted curves cross theta, with 95 % intervals.
        theory: whether to draw theory too. It is drawn only along N and only for the
            accuracy.
        of: the measured column that is drawn and that crosses theta. If None, the
            accuracy.
        summary: what crosses theta: the "mean" over seeds, the "median", or the share
            of seeds whose measure is at least a level, as in "above 0.9". Lines and
            colours show the same.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place. Raises
    FitError if the table lacks a column.
    """
    df, roles = _expect(df, ax, theta, of, x=x)
    over_seeds = chosen_summary(summary)
    x = along_of(df, roles, x, "x")
    given = _names(lines)
    df = _at_steps(df, x, *given)
    has_marks = theta is not None and x in df
    along = x if has_marks else _along(df, roles, x)
    runs = Runs.of(df, roles, along, over_seeds)
    if lines is None:
        by = _other_axes(runs, x)
    else:
        place = arranged(runs.sizes, runs.every, x, given)
        by = place.lines
    runs.check([x, *by], "lines")
    marks = None
    if theta is not None and x == runs.along:
        marks = runs.thresholds(runs.fitted([theta]), theta)
    chart = charts.accuracy(runs, x, by, [], marks, theory)
    return _on(_with_few_lines(chart, df), ax)


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
    summary: str = "mean",
) -> Axes:
    """Draws the critical N*, or the critical value of another axis, against an axis.

    Both axes are logarithmic. The figure includes 95 % intervals, the fitted law, and
    theory.
    The law is left out if the diagnostics of the fit reject it. Theory is left out if
    it does not cover the table.

    Args:
        df: runs at several values of N or of `along`, with one row per (point, seed),
            or one row per recorded step if the runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        x: the axis along x, or arithmetic. If None, the first of d, L, V, m that
            varies.
        lines: the axis in which the lines differ. If None, the next axis that varies.
        theta: the accuracy (fraction) that defines N*.
        theory: whether to draw theory too, which takes a second or two. It is drawn
            only along N and only for the accuracy.
        along: the axis along which accuracy crosses theta. If None, the axis of a
            search, else N.
        of: the measured column that crosses theta. If None, the accuracy.
        summary: what crosses theta: the "mean" over seeds, the "median", or the share
            of seeds whose measure is at least a level, as in "above 0.9". Lines and
            colours show the same.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place. Raises
    FitError if the table cannot be fitted.
    """
    df, roles = _expect(df, ax, theta, of, x=x, lines=lines, along=along)
    along = along_of(df, roles, along)
    df = _at_steps(df, x, lines, along)
    runs = Runs.of(df, roles, along, chosen_summary(summary))
    if x and along in columns_in(x):
        raise UsageError(
            f"x: got {x!r}, which depends on {along}; allowed: other axes, and"
            " arithmetic on them"
        )
    x, by, _ = arranged(runs.sizes, runs.axes, x, [lines] if lines else None)
    if x is None:
        other = "V" if along == "d" else "d"
        raise UsageError(
            f"x: no axis but {along} varies; give a table with two values of an axis"
            f" such as {other}"
        )
    runs.check_cells([x, *by])
    found = runs.fitted([theta])
    chart = charts.critical(runs, found, theta, x, by, [], theory)
    return _on(chart, ax)


def phase(
    df: pd.DataFrame,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    theta: float = 0.5,
    theory: bool = True,
    of: str | None = None,
    summary: str = "mean",
) -> Axes:
    """Draws mean accuracy over two axes as colours.

    The figure includes the critical values from the fit and from theory. Places that
    were not tested are hatched. If neither axis is the axis of the critical values, a
    line shows where the mean accuracy is theta.

    Args:
        df: runs, with one row per (point, seed), or one row per recorded step if the
            runs train.
        x: an axis, or arithmetic on axes such as "N / d".
        y: another axis or arithmetic. If None, the axis of a search, else N.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        theta: the accuracy (fraction) whose crossing is drawn.
        theory: whether to draw theory too, which takes a second or two. It is drawn
            only for the accuracy.
        of: the measured column that is drawn and that crosses theta. If None, the
            accuracy.
        summary: what crosses theta: the "mean" over seeds, the "median", or the share
            of seeds whose measure is at least a level, as in "above 0.9". Lines and
            colours show the same.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError for an unknown axis, or if several cells would share a pixel.
    Raises FitError for a table that cannot be fitted.
    """
    df, roles = _expect(df, ax, theta, of, x=expect("x", x, str, COLUMN_NAME), y=y)
    along = _along(df, roles, y)
    runs = Runs.of(_at_steps(df, x, y), roles, along, chosen_summary(summary))
    y = y or along
    check_maps([(x, y)], runs.sizes)
    found = runs.fitted([theta])
    chart = charts.phase(runs, found, theta, x, y, theory)
    if chart.panels:
        refuse_several(runs.given, runs.rows, chart.panels)
    return _on(chart, ax)


def collapse(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | None = None,
    theta: float = 0.5,
    along: str | None = None,
    of: str | None = None,
    summary: str = "mean",
) -> Axes:
    """Draws accuracy against N / N*, where each cell has its own N*.

    The curves of cells with the same shape coincide.

    Args:
        df: runs at several N, with one row per (point, seed), or one row per recorded
            step if the runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        lines: the axis that colours show. If None, the first of d, L, V, m that varies.
        theta: the accuracy (fraction) that defines N*. Cells that do not cross it are
            left out.
        along: the axis that replaces N. If None, the axis of a search, else N, else the
            only axis of numbers.
        of: the measured column that is drawn and that crosses theta. If None, the
            accuracy.
        summary: what crosses theta: the "mean" over seeds, the "median", or the share
            of seeds whose measure is at least a level, as in "above 0.9". Lines and
            colours show the same.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two cells cross theta. Raises FitError if the table
    cannot be fitted.
    """
    df, roles = _expect(df, ax, theta, of, lines=lines, along=along)
    along = along_of(df, roles, along)
    df = _at_steps(df, lines, along)
    runs = Runs.of(df, roles, along, chosen_summary(summary))
    by = [lines] if lines else [*runs.axes[:1]]
    arranged(runs.sizes, runs.axes, lines=by)
    found = runs.fitted([theta])
    known = runs.thresholds(found, theta)["critical"].notna()
    if known.sum() < 2:
        raise UsageError(
            f"theta: {known.sum()} of {len(known)} cells cross accuracy {theta:g}, and"
            " the figure needs 2; choose another theta"
        )
    return _on(charts.collapse(runs, found, theta, by), ax)


def _expect(
    df: object,
    ax: object = None,
    theta: float | None = None,
    of: object = None,
    **names: object,
) -> tuple[Table, Roles]:
    """Returns the checked table, and its roles with the column `of` as the measure.

    Raises FitError or UsageError if an argument has a wrong type or value. None means
    that an argument was not given.
    """
    from matplotlib.axes import Axes

    df = plain_table("df", df)
    expect("ax", ax, (Axes, NoneType), "Axes of matplotlib, or None for a new figure")
    if theta is not None:
        numbers([theta])
    for name, value in names.items():
        expect(name, value, (str, NoneType), COLUMN_NAME)
    named = ACCURACY if of is None else str(expect("of", of, str, COLUMN_NAME))
    return df, with_measure(df, roles_of(df), named)


def _along(df: Table, roles: Roles, x: str | None) -> str:
    """Returns the axis along which the measure crosses theta, or else the axis x.

    A figure over named axes needs no threshold. So if the table does not say along
    which axis the measure crosses, the axis that the figure names is used.
    """
    if roles.along or "N" in df or x is None or x not in df:
        return along_of(df, roles, None)
    return x


def _expect_one_of(argument: str, value: object, allowed: Sequence[str | None]) -> None:
    words = ", ".join(map(str, allowed))
    if expect(argument, value, (str, NoneType), words) not in allowed:
        raise refusal(argument, str(value), words, UsageError)


def _names(axes: object, argument: str = "lines") -> list[str]:
    """Returns the list of column names in an argument: one name, several, or None."""
    if axes is None:
        return []
    if isinstance(axes, str):
        return [axes]
    names = as_list(argument, axes, COLUMN_NAMES, most=MAX_LINES)
    for name in names:
        expect(argument, name, str, COLUMN_NAMES)
    return names


def _at_steps(df: Table, *axes: str | None) -> Table:
    """Returns the rows at the last step, or all rows if the step is one of the axes."""
    if re.search(r"\bstep\b", " ".join(filter(None, axes))):
        return at_steps(df, ALL)
    return at_steps(df, LAST)


def _other_axes(runs: Runs, x: str, panels: Sequence[str] = ()) -> list[str]:
    """Returns the axes of the runs that vary and have no other place."""
    place = arranged(runs.sizes, runs.every, x, None, panels)
    return [*place.lines, *(axis for axis in place.panels if axis not in panels)]


def _marks(
    df: Table,
    roles: Roles,
    rows: Table,
    x: str,
    y: str,
    lines: list[str] | None,
    panels: list[str],
) -> Chart:
    """Returns a chart with a mark for each row of a table of estimates."""
    axes = _axes_of_marks(rows, [x, y, *panels])
    if lines is None:
        lines = []
        for name in telling(rows, panels, axes):
            lines += telling(rows, [x], [name])
    shown = rows.dropna(subset=[y])
    names = axes or without(rows, (x, y))
    check_one_row(df, shown, [x, *lines, *panels], names, PLACES)
    if {"censored", "warning"} <= {*rows}:
        rows = with_states(rows)
    else:
        rows = rows.drop(columns="state", errors="ignore")
    scale = scale_of(rows[y])
    if {"lo", "hi"} <= {*rows} and (rows[y].dropna() > 0).all():
        scale = "log"
    return Chart(
        [Points(rows, y)],
        Axis.make(x, rows, roles.labels),
        label(y, roles.labels),
        lines=lines,
        panels=panels,
        scale=scale,
    )


def _map(
    df: Table,
    roles: Roles,
    rows: Table,
    colour: str,
    x: str,
    y: str,
    panels: list[str],
    contour: str | None,
    scale: str | None,
) -> Chart:
    """Returns a map, which is a chart that shows a column as colours over two axes."""
    has_runs = "seed" in rows
    if contour and not has_runs:
        raise UsageError("contour: it needs a table of runs, with a column seed")
    placed = [x, y, *panels]
    if has_runs:
        check_one_run_per_seed(
            df, rows, roles, placed=placed, drawn=[colour], places="panels"
        )
        table = averaged(rows, placed, colour)
    else:
        axes = _axes_of_marks(rows, [*placed, colour])
        names = axes or without(rows, [colour])
        check_one_row(df, rows, placed, names, "panels")
        table = rows
    is_fraction = (scale or scale_of(table[colour])) == "fraction"
    ends = (0.0, 1.0) if is_fraction else None
    pixels = Pixels(table, colour, label(colour, roles.labels), ends=ends)
    chart = charts.over(pixels, x, y, panels, roles.labels)
    if contour is None:
        return chart
    runs = Runs.of(df, roles, along_of(df, roles, None))
    return chart.plus(charts.theory_contour(runs, x, y, panels, 0.5))


def _axes_of_marks(rows: Table, placed: Sequence[str]) -> list[str]:
    """Returns the columns that say which estimate a row is, and that have no place.

    In thresholds of a fit or a search, all columns before theta are axes.
    """
    names = []
    if {"theta", "critical"} <= {*rows}:
        names = [*rows.columns[: rows.columns.get_loc("theta")]]
    names += common(("theta", "axis", "step", "part", "regime"), rows)
    used = frozenset().union(*map(columns_in, placed))
    return without(dict.fromkeys(names), used)


def _with_axes(df: Table, axes: Sequence[str], others: Sequence[str]) -> Table:
    """Returns the table with a column for each axis that is arithmetic.

    Raises UsageError if the table lacks a column.
    """
    has = ", ".join(map(str, df))
    try:
        df = with_columns(df, *axes)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"df: no column {', '.join(map(repr, axes))}, nor arithmetic on its"
            f" columns; it has {has}"
        ) from error
    missing = [name for name in others if name not in df]
    if missing:
        raise UsageError(f"df: no column {', '.join(missing)}; it has {has}")
    return df


def _with_few_lines(chart: Chart, df: Table) -> Chart:
    """Returns the chart; raises UsageError if it has more than MAX_LINES lines."""
    n = len(chart.groups)
    if n > MAX_LINES:
        raise UsageError(
            f"lines: {n} lines of one {', '.join(chart.lines)} each are too many;"
            f" choose at most {MAX_LINES}, as in {choice(df, chart.lines[:1])}"
        )
    return chart


def _on(chart: Chart, ax: Axes | None) -> Axes:
    """Draws the chart on `ax`, or on the Axes of a new figure, and returns the Axes.

    The new figure belongs to pyplot, so that notebooks display it.
    """
    import matplotlib.pyplot as plt

    with look(ours=False):
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        return chart.on(ax)
