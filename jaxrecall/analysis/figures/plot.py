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
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...errors import UsageError, as_list, expect, printable, refusal
from ...model.point import LAW_FIELDS
from ...model.values import as_pandas
from ..fit import chosen_summary, numbers
from ..fit.checks import tried
from ..fit.columns import ColumnNames, Table, common, groups, no_numbers, without
from ..fit.measure import ALL, LAST, at_steps, choose_along, choose_measure
from ..fit.reading import plain_table
from ..fit.roles import ACCURACY, SETTINGS, Roles, roles_of
from ..fit.table_axes import tell_apart
from . import charts
from .figure import COLUMN, MAX_LINES, Chart
from .layers import Contour, Layer, Pixels, Points, Polyline
from .style import label, look, sized
from .table_of_runs import (
    BANDS,
    PLACES,
    Runs,
    arranged,
    averaged,
    check_one_place,
    expect_columns,
    refuse_several,
    rows_of,
    with_tried,
)
from .theory_lines import Theory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

__all__ = [
    "Contour",
    "Points",
    "Polyline",
    "accuracy",
    "collapse",
    "critical_n",
    "figure",
    "phase",
]

VALUE = "_value"
"""The column of a stacked table that contains the values of several columns."""

MAP_PLACES = "rows, columns or panels"
SCALES = ("fraction", "log", "linear")


def figure(
    df: pd.DataFrame,
    y: str | Sequence[str] | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    panels: str | Sequence[str] = (),
    rows: str | Sequence[str] = (),
    columns: str | Sequence[str] = (),
    colour: str | None = None,
    contour: str | None = None,
    over: Sequence[Layer] = (),
    band: str = "sd",
    scale: str | None = None,
    joined: bool = False,
    share_x: bool = True,
    labels: Mapping[str, str] | None = None,
    size: str | None = None,
    style: str | Path | Mapping[str, Any] | None = None,
    on: FigureBase | None = None,
) -> Figure:
    """Draws any column of a table against any other.

    The figure may have lines, panels, and colours over two axes. The settings of
    matplotlib that you have changed apply; the others are those of a report.

    A table of runs has a column `seed`. Runs that differ in the seed alone are
    averaged, and the mean has a band. In any other table, such as the thresholds of a
    fit, each row is a mark. A mark has a bar if there are columns `lo` and `hi`. A mark
    is open if accuracy does not cross, according to the columns `censored` and `state`.

    Args:
        df: runs, or thresholds of `jaxrecall.fit`.
        y: the column along y, or several columns, each of which has panels of its own.
            If None, the accuracy. If `colour` is given, `y` is an axis of the map.
        x: the column along x. If None, the axis of a search, else N, else the only axis
            of numbers. Names along x are not joined.
        lines: the column, or columns, in which the lines differ. If None, these are all
            axes that vary and have no other place.
        panels: the column, or columns, in which panels that follow each other differ.
        rows: the column, or columns, in which the rows of panels differ.
        columns: the column, or columns, in which the columns of panels differ.
        colour: the column that is shown as colours over `x` and `y`. Places that were
            not tested are hatched.
        contour: "theory" adds the line of predicted accuracy one half to a map of runs.
            The line is limited to the runs that theory covers.
        over: layers that are drawn on top, such as `Polyline` and `Points`. The columns
            of their tables place them as those of `df` do.
        band: "sd" for one standard deviation around the mean, "se" for one standard
            error, "95 %" for the interval of the mean, or "quartiles", with which the
            line is the median in place of the mean.
        scale: the scale of y: "fraction" (0 to 1), "log" or "linear". If None, the
            values determine it. Values that have no place on a log axis are marked at
            its lower end.
        joined: whether lines join the marks of a table without seeds.
        share_x: whether all panels have the same range along x.
        labels: what is shown in place of the names of columns. If it is empty, a legend
            or title shows the value alone.
        size: "column", "text", or inches as in "3.4x2.6". If None, your
            `figure.figsize`, or else what the panels need.
        style: a style file of matplotlib, the name of one of its styles, or a dict of
            settings.
        on: the figure, or part of a figure, to draw on. If None, a new figure.

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

    Raises UsageError if the table lacks a column, or if runs that differ in more than
    the seed would be averaged. Raises FitError if runs come more than once.
    """
    plain, roles = _checked(df, x, colour)
    df = _with_categories(plain, df)
    ys = _names(y, "y") or [roles.measure]
    _expect_one_of("scale", scale, (None, *SCALES))
    _expect_one_of("contour", contour, (None, "theory"))
    _expect_one_of("band", band, BANDS)
    places = _places(panels, rows, columns)
    if colour and (lines is not None or len(ys) > 1):
        raise UsageError("colour: a map has no lines, and one y; name axes in panels")
    if contour and not (colour and "seed" in df):
        raise UsageError("contour: it needs a map of runs: colour, and a column seed")
    x = choose_along(df, roles, x, "x")
    axes, measured = ([x, *ys], [colour]) if colour else ([x], ys)
    named = _names(lines)
    others = [*named, *chain(*places.values())]
    has_lines = bool(colour) or lines is not None
    if "seed" in df:
        df = _at_steps(df, *axes, *others, *measured)
    parts, more = _tables(df, roles, axes, measured, others, has_lines, band)
    named += more
    table, shown = parts[0], measured[0]
    if len(parts) > 1:
        table, shown = _stacked(parts, measured), VALUE
        places = _with_columns(places)
    layer: Layer = Points(table, shown, joined=joined)
    titles = _labels(df, labels)
    if colour:
        layer = Pixels(table, shown, titles.get(colour, label(colour, roles)))
    elif "seed" in df:
        layer = Polyline(table, shown)
    layers = [layer]
    if contour:
        runs = Runs.of(df, roles, choose_along(df, roles, None))
        theory = _theory(runs)
        layers += theory.contour(x, axes[1], others, 0.5)
        theory.warn()
    chart = Chart(
        layers + _layers(over, axes),
        x,
        roles,
        axes[1] if colour else "",
        lines=named,
        labels=titles,
        scale=scale or "",
        size=sized(size),
        share_x=share_x,
        **places,  # pyright: ignore[reportArgumentType]
    )
    return _drawn(chart, style, on)


def _tables(
    df: Table,
    roles: Roles,
    axes: ColumnNames,
    measured: ColumnNames,
    others: ColumnNames,
    has_lines: bool,
    band: str,
) -> tuple[list[Table], list[str]]:
    """Returns a table for each measured column, and the columns of further lines.

    A table of runs gives means over seeds, and any other table its own rows. `others`
    are the columns of lines and panels. Columns without a place that tell rows apart
    make lines, unless `has_lines`. Then, UsageError is raised.
    """
    placed = [*axes, *others]
    places = PLACES if len(axes) == 1 else MAP_PLACES
    is_runs = "seed" in df
    rows = rows_of(df, roles) if is_runs else with_tried(df)
    for name in common([*placed, *measured], common(LAW_FIELDS, df)):
        rows[name] = df.loc[rows.index, name]  # the texts of laws have parameters
    if len(measured) > 1:
        rows = rows.drop(columns=common(("lo", "hi"), rows))
    expect_columns(rows, [*placed, *measured])
    if is_runs or len(axes) == 1:
        for name in measured:
            if problem := no_numbers(rows[name]):
                raise UsageError(f"df: {name} {problem}")
    if is_runs:
        runs = Runs(df, rows, roles)
        lines = runs.check(placed, measured, places, makes_lines=not has_lines)
        by = [*placed, *lines]
        means = []
        for name in measured:
            means.append(averaged(tried(rows, roles, name), by, name, band))
        return means, lines
    names = _axes_of_marks(df, [*placed, *measured])
    lines = [] if has_lines else tell_apart(rows, placed, names)
    drawn = rows.dropna(subset=[*measured], how="all")
    if several := tell_apart(drawn, [*placed, *lines], [*names, *measured]):
        refuse_several(df, drawn, several, places)
    return [rows] * len(measured), lines


def _axes_of_marks(rows: Table, placed: ColumnNames) -> list[str]:
    """Returns the columns that say which estimate a row is, and that have no place.

    In thresholds of a fit or a search, all columns before theta are axes.
    """
    names = []
    if {"theta", "critical"} <= {*rows}:
        names = [*rows.columns[: rows.columns.get_loc("theta")]]
    names += common(("theta", "axis", "step", "part", "regime"), rows)
    return without(dict.fromkeys(names), placed)


def _stacked(parts: Sequence[Table], names: ColumnNames) -> Table:
    """Returns tables of several columns as one, in which VALUE is the column that the
    column COLUMN names.
    """
    each = []
    for part, name in zip(parts, names, strict=True):
        each.append(part.assign(**{VALUE: part[name], COLUMN: name}))
    table = pd.concat(each, ignore_index=True)
    return table.assign(**{COLUMN: pd.Categorical(table[COLUMN], names)})


def _with_columns(places: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns places in which each drawn column has panels of its own.

    Without other panels, those of the columns follow each other. Otherwise they are
    rows, and panels that follow each other become columns.
    """
    if not any(places.values()):
        return {"panels": [COLUMN]}
    across = [*places["columns"], *places["panels"]]
    return {"rows": [*places["rows"], COLUMN], "columns": across}


def _labels(df: Table, given: Any) -> dict[str, str]:
    """Returns the checked labels, after one for critical values of one theta."""
    allowed = "a dict from the name of a column to its label"
    given = expect("labels", given, (Mapping, NoneType), allowed) or {}
    labels: dict[str, str] = {}
    if {"theta", "critical"} <= {*df} and df["theta"].nunique() == 1:
        along = df["axis"].iloc[0] if "axis" in df else "N"
        named = f"{printable(along)}* at {df['theta'].iloc[0]:g}"
        labels = dict.fromkeys(("N_star", "critical"), named)
    return labels | {**given}


def _places(panels: object, rows: object, columns: object) -> dict[str, list[str]]:
    """Returns the columns of panels by place; raises UsageError if a column has two."""
    given = {"panels": panels, "rows": rows, "columns": columns}
    places = {place: _names(names, place) for place, names in given.items()}
    if places["panels"] and (places["rows"] or places["columns"]):
        raise UsageError(
            f"panels: got {', '.join(places['panels'])} beside rows or columns; name"
            " all of them in rows and columns"
        )
    check_one_place([*chain(*places.values())], "panels, rows, columns")
    return places


def _layers(over: object, axes: ColumnNames) -> list[Layer]:
    """Returns the layers; raises UsageError if one lacks a column of the axes."""
    allowed = "a list of layers, such as Polyline and Points"
    layers = _list_of(Layer, "over", over or (), allowed)
    for layer in layers:
        expect_columns(layer.table, axes)
    return layers


def _drawn(chart: Chart, style: Any, on: FigureBase | None) -> Figure:
    """Returns the drawn figure, which belongs to pyplot unless it is the user's."""
    from matplotlib.figure import FigureBase

    from .styled import StyledFigure

    plt = _pyplot()
    expect("on", on, (FigureBase, NoneType), "a figure of matplotlib, or None")
    with look(style):
        drawn = chart.figure(on=on, make=partial(plt.figure, FigureClass=StyledFigure))
    if chart.remark:
        warnings.warn(f"{chart.remark}; choose fewer", stacklevel=3)
    return drawn


def accuracy(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | Sequence[str] | None = None,
    theta: float | None = None,
    theory: bool = False,
    **options: str | None,
) -> Axes:
    """Draws mean accuracy against an axis.

    The lines have a band of one standard deviation over seeds.

    Args:
        df: runs, with one row per (point, seed), or one row per recorded step if the
            runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        x: the axis along x. If None, the one along which the measure crosses theta.
        lines: the axis, or axes, in which the lines differ. If None, every other axis
            that varies.
        theta: an accuracy (fraction). If x is N, d, m, V or L, marks show where the
            fitted curves cross theta, with 95 % intervals.
        theory: whether to draw theory too. It is drawn only for the accuracy.
        options: `of`, `summary` and `along`, which the four functions share. `of` is
            the measured column that is drawn and that crosses theta; by default the
            accuracy. `summary` is what crosses theta: the "mean" over seeds, the
            "median", or the share of seeds whose measure is at least a level, as in
            "above 0.9". Lines and colours show the same. `along` is the axis along
            which the measure crosses theta; by default the axis of a search, else N,
            else the only axis of numbers.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.accuracy(df, theta=0.5)
        >>> ax.figure.savefig("accuracy.pdf")

    Raises UsageError for an axis that does not vary or that has no place. Raises
    FitError if the table lacks a column.
    """
    by = _names(lines)
    runs = _runs(df, ax, theta, x, theta is not None, *by, **options)
    x = x or runs.along
    if lines is None:
        by = without(runs.every, [x])
    arranged(runs.every, x, by)
    marks = None
    if theta is not None and x == runs.along:
        marks = runs.thresholds(runs.fitted([theta]), theta)
    predicted = _theory(runs) if theory else None
    chart = charts.accuracy(runs, x, by, [], marks, predicted)
    return _on(chart, ax, runs, predicted)


def critical_n(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    x: str | None = None,
    lines: str | None = None,
    theta: float = 0.5,
    theory: bool = True,
    **options: str | None,
) -> Axes:
    """Draws the critical N*, or the critical value of another axis, against an axis.

    Both axes are logarithmic. The figure includes 95 % intervals, the fitted law, and
    theory. The law is left out if the diagnostics of the fit reject it. Theory is left
    out if it does not cover the table.

    Args:
        df: runs at several values of N or of `along`, with one row per (point, seed),
            or one row per recorded step if the runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        x: the axis along x. If None, the first of d, L, V, m that varies.
        lines: the axis in which the lines differ. If None, the next axis that varies.
        theta: the accuracy (fraction) that defines N*.
        theory: whether to draw theory too, which takes a few seconds. It is drawn only
            for the accuracy.
        options: as in `accuracy`.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.critical_n(df, x="d", theta=0.3)

    Raises UsageError for an axis that does not vary or that has no place. Raises
    FitError if the table cannot be fitted.
    """
    runs = _runs(df, ax, theta, None, False, x, lines, **options)
    x, by, _ = arranged(runs.axes, x, [lines] if lines else None)
    if not x:
        raise UsageError(
            f"x: no axis but {runs.along} varies; give a table with two values of"
            " another axis"
        )
    panels = tell_apart(runs.rows, [x, *by], runs.axes)
    predicted = Theory(runs) if theory else None
    estimates = runs.fitted([theta])
    chart = charts.critical(runs, estimates, theta, x, by, panels, predicted)
    return _on(chart, ax, runs, predicted)


def phase(
    df: pd.DataFrame,
    x: str,
    y: str | None = None,
    ax: Axes | None = None,
    *,
    theta: float = 0.5,
    theory: bool = True,
    **options: str | None,
) -> Axes:
    """Draws mean accuracy over two axes as colours.

    The figure includes the critical values from theory, and those from the fit if one
    of the axes is theirs. Places that were not tested are hatched.

    Args:
        df: runs, with one row per (point, seed), or one row per recorded step if the
            runs train.
        x: an axis.
        y: another axis. If None, the axis of a search, else N.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        theta: the accuracy (fraction) whose crossing is drawn.
        theory: whether to draw theory too, which takes a few seconds. It is drawn only
            for the accuracy.
        options: as in `accuracy`.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.phase(df, "d", "N")

    Raises UsageError for an unknown axis, or if several values would share a pixel.
    Raises FitError for a table that cannot be fitted.
    """
    expect("x", x, str, "the name of a column")
    runs = _runs(df, ax, theta, y, False, x, **options)
    y = y or runs.along
    expect_columns(runs.rows, [x, y])
    check_one_place([x, y], "x, y")
    predicted = Theory(runs) if theory else None
    chart = charts.phase(runs, runs.fitted([theta]), theta, x, y, predicted)
    return _on(chart, ax, runs, predicted)


def collapse(
    df: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | None = None,
    theta: float = 0.5,
    **options: str | None,
) -> Axes:
    """Draws accuracy against N / N*, where each configuration has an N*.

    The curves of configurations with the same shape coincide.

    Args:
        df: runs at several N, with one row per (point, seed), or one row per recorded
            step if the runs train.
        ax: the Axes to draw on. If None, the Axes of a new figure.
        lines: the axis that colours show. If None, the first of d, L, V, m that varies.
        theta: the accuracy (fraction) that defines N*. Configurations that do not cross
            it are left out.
        options: as in `accuracy`. `along` replaces N.

    Example:
        >>> import jaxrecall
        >>> df = jaxrecall.load("results/quickstart")
        >>> ax = jaxrecall.plot.collapse(df, theta=0.3)

    Raises UsageError if fewer than two configurations cross theta. Raises FitError if
    the table cannot be fitted.
    """
    runs = _runs(df, ax, theta, None, False, lines, **options)
    by = [lines] if lines else [*runs.axes[:1]]
    arranged(runs.axes, lines=by)
    chart = charts.collapse(runs, runs.fitted([theta]), theta, by)
    n_crossing = chart.table["_cell"].nunique()
    if n_crossing < 2:
        n_cells = groups(runs.rows, runs.axes).ngroups
        raise UsageError(
            f"theta: {n_crossing} of {n_cells} configurations cross accuracy"
            f" {theta:g}, and the figure needs 2; choose another theta"
        )
    return _on(chart, ax, runs)


def _runs(
    df: Any,
    ax: object,
    theta: float | None,
    level: str | None,
    is_along: bool,
    *axes: str | None,
    along: str | None = None,
    of: str | None = None,
    summary: str | None = "mean",
) -> Runs:
    """Returns the runs that a figure over the axes `level` and `axes` shows.

    The measure crosses theta along `level` if `is_along`, or if the table does not say
    along which axis it does.
    """
    from matplotlib.axes import Axes

    expect("ax", ax, (Axes, NoneType), "Axes of matplotlib, or None for a new figure")
    if theta is not None:
        numbers([theta])
    df, roles = _checked(df, level, *axes, along, of)
    roles = choose_measure(df, roles, of or ACCURACY)
    if level in df and (is_along or not (roles.along or "N" in df)):
        along = along or level
    along = choose_along(df, roles, along)
    df = _at_steps(df, level, *axes, along)
    return Runs.of(df, roles, along, chosen_summary(summary))


def _checked(df: Any, *names: object) -> tuple[Table, Roles]:
    """Returns the checked table, and its roles.

    Raises FitError or UsageError if the table or the name of a column has a wrong type.
    None means that a name was not given.
    """
    df = plain_table("df", df)
    for name in names:
        expect("columns", name, (str, NoneType), "the name of a column")
    return df, roles_of(df)


def _with_categories(df: Table, given: object) -> Table:
    """Returns the table with the categories of names in `given`, which have an order.

    A plain table has names in their place.
    """
    for name, column in as_pandas(given).items():
        if hasattr(column, "cat") and df[name].dtype == object:
            named = pd.Categorical(df[name], column.cat.categories)
            df = df.assign(**{name: named})
    return df


def _expect_one_of(argument: str, value: object, allowed: Sequence[str | None]) -> None:
    words = ", ".join(map(str, allowed))
    if expect(argument, value, (str, NoneType), words) not in allowed:
        raise refusal(argument, str(value), words, UsageError)


def _names(axes: object, argument: str = "lines") -> list[str]:
    """Returns the list of column names in an argument: one name, several, or None."""
    if axes is None or isinstance(axes, str):
        return [axes] if axes else []
    return _list_of(str, argument, axes, "the name of a column, or a list of names")


def _list_of(kind: type, argument: str, values: object, allowed: str) -> list[Any]:
    """Returns the values of an argument as a list; raises UsageError."""
    values = as_list(argument, values, allowed, most=MAX_LINES)
    return [expect(argument, value, kind, allowed) for value in values]


def _at_steps(df: Table, *axes: str | None) -> Table:
    """Returns the rows at the last step, or all rows if the step is one of the axes."""
    is_axis = re.search(r"\bstep\b", " ".join(filter(None, axes)))
    return at_steps(df, ALL if is_axis else LAST)


def _theory(runs: Runs) -> Theory:
    """Returns the theory of the runs; warns if it is not about them."""
    if not runs.has_theory:
        needed = ", ".join(SETTINGS)
        warnings.warn(
            "theory is not drawn: it predicts the mean accuracy of this package's"
            f" simulator, in tables with the columns {needed}",
            stacklevel=3,
        )
    return Theory(runs)


def _pyplot() -> Any:
    """Returns pyplot with its backend.

    In a notebook, the backend changes settings when it is loaded. This must not happen
    while the settings of a figure apply, because the changes would be undone.
    """
    import matplotlib.pyplot as plt

    plt.draw_if_interactive()
    return plt


def _on(
    chart: Chart, ax: Axes | None, runs: Runs, predicted: Theory | None = None
) -> Axes:
    """Draws the chart on `ax`, or on the Axes of a new figure, and returns the Axes.

    The new figure belongs to pyplot, so that notebooks display it. Raises UsageError if
    the chart has panels.
    """
    if chart.panels:
        refuse_several(runs.given, runs.rows, chart.panels)
    if predicted:
        predicted.warn()
    plt = _pyplot()
    with look(place="axes"):
        return chart.on(ax or plt.subplots(layout="constrained")[1])
