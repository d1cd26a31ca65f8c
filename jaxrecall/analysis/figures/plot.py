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
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ...errors import UsageError, as_list, expect, refusal, suggest
from ...model.point import LAW_FIELDS
from ...model.values import as_pandas
from ..fit import chosen_summary, numbers
from ..fit.columns import Table, common, no_numbers, without
from ..fit.measure import choose_along, choose_measure
from ..fit.reading import plain_table
from ..fit.roles import ACCURACY, SETTINGS, Roles, roles_of
from ..fit.steps import ALL, LAST, at_steps
from . import charts
from .averages import PLACES, check_one_row, check_one_run_per_seed, refuse_several
from .axis import Axis, columns_in, with_columns
from .grammar import MAX_LINES, Chart, Measure
from .layers import Contour, Layer, Pixels, Points, Polyline
from .several import choice, telling
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

SCALES = ("fraction", "log", "linear")
COLUMN_NAME = "the name of a column"
COLUMN_NAMES = f"{COLUMN_NAME}, or a list of such names"


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
        x: the column along x, or arithmetic such as "N / d". If None, the axis of a
            search, else N, else the only axis of numbers. If `colour` is given, `y` may
            also be arithmetic. Names along x are not joined.
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
            error, "95 %" for the interval of the mean, or "quartiles" around the
            median.
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

    Raises UsageError if the table lacks a column, if there are too many lines, or if
    runs that differ in more than the seed would be averaged.
    """
    ys = _names(y, "y")
    plain, roles = _expect(df, x=x, colour=colour)
    df = _with_categories(plain, df)
    roles = replace(roles, titles={**roles.titles, **_titles(labels)})
    _expect_one_of("scale", scale, (None, *SCALES))
    _expect_one_of("contour", contour, (None, "theory"))
    _expect_one_of("band", band, BANDS)
    if contour and not colour:
        raise UsageError("contour: it needs a map; give `colour` the name of a column")
    places = _places(panels, rows, columns)
    if colour and lines is not None:
        raise UsageError(f"lines: got {lines!r}; a map has no lines; name it in panels")
    asked = Asked(
        choose_along(df, roles, x, "x"),
        ys or [roles.measure],
        None if lines is None else _names(lines),
        places,
    )
    if colour:
        chart = _map(df, roles, asked, colour, contour, scale)
    elif "seed" in df:
        chart = _means(df, roles, asked, band)
    else:
        chart = _marks(df, roles, asked, joined)
    chart = _with_few_lines(chart, df)
    chart = chart.plus(_layers(over, chart))
    if scale:
        named = {key: Measure(m.label, scale) for key, m in chart.measures.items()}
        chart = replace(chart, scale=scale, measures=named)
    shown = {name: label(name, roles) for name in _titles(labels)}
    chart = replace(chart, size=sized(size), titles=shown, is_free=not share_x)
    return _drawn(chart, style, on)


class Asked(NamedTuple):
    """What a figure shows: the axis along x, the columns along y, the columns of lines
    or None, and the columns of panels by place.
    """

    x: str
    ys: list[str]
    lines: list[str] | None
    places: dict[str, list[str]]

    @property
    def panels(self) -> list[str]:
        """All columns of panels."""
        return [name for names in self.places.values() for name in names]


def _places(panels: object, rows: object, columns: object) -> dict[str, list[str]]:
    """Returns the columns of panels by place; raises UsageError if a column has two."""
    places = {
        "panels": _names(panels, "panels"),
        "rows": _names(rows, "rows"),
        "columns": _names(columns, "columns"),
    }
    if places["panels"] and (places["rows"] or places["columns"]):
        raise UsageError(
            f"panels: got {', '.join(places['panels'])} beside rows or columns; name"
            " all of them in rows and columns"
        )
    every = [name for names in places.values() for name in names]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        raise UsageError(
            f"panels, rows, columns: {', '.join(twice)} more than once; a column has"
            " one place"
        )
    return places


def _titles(labels: object) -> Mapping[str, str]:
    """Returns the checked labels of columns."""
    allowed = "a dict from the name of a column to its label"
    named = expect("labels", labels, (Mapping, NoneType), allowed) or {}
    for name, shown in named.items():
        expect("labels", name, str, allowed)
        expect("labels", shown, str, allowed)
    return named


def _layers(over: object, chart: Chart) -> list[Layer]:
    """Returns the layers with the columns that the chart needs."""
    allowed = "a list of layers, such as Polyline and Points"
    found = []
    for layer in as_list("over", over, allowed, most=MAX_LINES) if over else []:
        expect("over", layer, Layer, allowed)
        axes = [chart.x.name, *([chart.y.name] if chart.y else [])]
        found.append(replace(layer, table=_with_axes(layer.table, axes, [])))
    return found


def _drawn(
    chart: Chart,
    style: str | Path | Mapping[str, Any] | None,
    on: FigureBase | None,
) -> Figure:
    """Returns the drawn figure, which belongs to pyplot unless it is the user's."""
    from matplotlib import rcParams
    from matplotlib.figure import FigureBase

    from .styled import StyledFigure

    plt = _pyplot()
    expect("on", on, (FigureBase, NoneType), "a figure of matplotlib, or None")
    outside = dict(rcParams)
    with look(style):
        settings = {
            name: value
            for name, value in rcParams.items()
            if value != outside[name] and not name.startswith("backend")
        }
        make = partial(plt.figure, FigureClass=StyledFigure, settings=settings)
        drawn = chart.figure(on=on, make=make)
    if chart.remark:
        warnings.warn(f"{chart.remark}; choose fewer, or a larger size", stacklevel=3)
    return drawn


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
        theory: whether to draw theory too. It is drawn only for the accuracy.
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
    x = choose_along(df, roles, x, "x")
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
    if theory:
        _tell_no_theory(runs)
    predicted = Theory(runs) if theory else None
    chart = charts.accuracy(runs, x, by, [], marks, predicted)
    chart = _with_few_lines(chart, df)
    if predicted:
        predicted.warn()
    return _on(chart, ax)


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
        theory: whether to draw theory too, which takes a few seconds. It is drawn only
            for the accuracy.
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
    along = choose_along(df, roles, along)
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
    predicted = Theory(runs) if theory else None
    chart = charts.critical(runs, found, theta, x, by, [], predicted)
    if predicted:
        predicted.warn()
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
        theory: whether to draw theory too, which takes a few seconds. It is drawn only
            for the accuracy.
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
    predicted = Theory(runs) if theory else None
    chart = charts.phase(runs, found, theta, x, y, predicted)
    if chart.panels:
        refuse_several(runs.given, runs.rows, chart.panels)
    if predicted:
        predicted.warn()
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
    along = choose_along(df, roles, along)
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
    return df, choose_measure(df, roles_of(df), named)


def _with_categories(df: Table, given: object) -> Table:
    """Returns the table with the categories of names in `given`, which have an order.

    A plain table has names in their place.
    """
    for name, column in as_pandas(given).items():
        if hasattr(column, "cat") and df[name].dtype == object:
            named = pd.Categorical(df[name], column.cat.categories)
            df = df.assign(**{name: named})
    return df


def _along(df: Table, roles: Roles, x: str | None) -> str:
    """Returns the axis along which the measure crosses theta, or else the axis x.

    A figure over named axes needs no threshold. So if the table does not say along
    which axis the measure crosses, the axis that the figure names is used.
    """
    if roles.along or "N" in df or x is None or x not in df:
        return choose_along(df, roles, None)
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


def _means(df: Table, roles: Roles, asked: Asked, band: str) -> Chart:
    """Returns a chart with the means of runs over seeds."""
    x, ys, lines, places = asked
    df = _at_steps(df, x, *(lines or []), *asked.panels, *ys)
    named = [x, *(lines or []), *asked.panels]
    rows = _with_stored_laws(df, rows_of(df, roles), named)
    rows = _with_axes(rows, [x], [*named[1:], *ys])
    _expect_numbers(rows, ys)
    if lines is None:
        has_measure = roles.counted or roles.measure in df
        given = roles if has_measure else roles.having(ys[0])
        others = _other_axes(Runs.of(df, given, _along(df, given, x)), x, asked.panels)
        # the text of a law with a place contains its parameters
        lines = [name for name in others if name.partition(".")[0] not in named]
    placed = [x, *lines, *asked.panels]
    check_one_run_per_seed(df, rows, roles, placed=placed, drawn=ys)
    titled = ""
    if ys == [roles.measure]:
        titled = measure_label(roles, scale_of(rows[ys[0]]) == "fraction")
    return charts.means(rows, ys, x, {"lines": lines, **places}, roles, titled, band)


def _with_stored_laws(df: Table, rows: Table, names: Sequence[str]) -> Table:
    """Returns rows in which the laws with a place have their text with parameters.

    One place of the figure, such as x, then tells apart laws that differ in a
    parameter. `rows` has the index of `df`.
    """
    laws = common(names, common(LAW_FIELDS, df))
    return rows.assign(**{name: df.loc[rows.index, name] for name in laws})


def _marks(df: Table, roles: Roles, asked: Asked, joined: bool) -> Chart:
    """Returns a chart with a mark for each row of a table of estimates."""
    x, ys, lines, places = asked
    rows = _with_axes(df, [x], [*(lines or []), *asked.panels, *ys])
    _expect_numbers(rows, ys)
    roles = _titled(rows, roles)
    axes = _axes_of_marks(rows, [x, *asked.panels, *ys])
    if lines is None:
        lines = []
        for name in telling(rows, asked.panels, axes):
            lines += telling(rows, [x], [name])
    shown = rows.dropna(subset=ys, how="all")
    names = axes or without(rows, (x, *ys))
    check_one_row(df, shown, [x, *lines, *asked.panels], names, PLACES)
    if {"censored", "N_below", "N_above"} <= {*rows}:
        rows = with_states(rows)
    else:
        rows = rows.drop(columns="state", errors="ignore")
    axis = Axis.make(x, rows, roles)
    if len(ys) > 1:
        shared = rows.drop(columns=[*ys, "lo", "hi", "state"], errors="ignore")
        parts = {name: shared.assign(**{name: rows[name]}) for name in ys}
        table, measures = charts.stacked(parts, roles)
        layer = Points(table, charts.VALUE, joined=joined)
        chart = Chart([layer], axis, measures=measures)
        return replace(chart, **charts.with_measures({"lines": lines, **places}))
    scale = scale_of(rows[ys[0]])
    if {"lo", "hi"} <= {*rows} and (rows[ys[0]].dropna() > 0).all():
        scale = "log"
    layer = Points(rows, ys[0], joined=joined)
    chart = Chart([layer], axis, label(ys[0], roles), lines=lines, scale=scale)
    return replace(chart, **places)


def _titled(found: Table, roles: Roles) -> Roles:
    """Returns the roles with titles of critical values, if the table is of a theta."""
    if not {"theta", "critical"} <= {*found} or found["theta"].nunique() != 1:
        return roles
    theta = found["theta"].iloc[0]
    along = "N"
    for name in common(("axis", "along"), found):
        along = found[name].iloc[0]
    named = f"{along}* at {theta:g}"
    return replace(roles, titles={"N_star": named, "critical": named, **roles.titles})


def _map(
    df: Table,
    roles: Roles,
    asked: Asked,
    colour: str,
    contour: str | None,
    scale: str | None,
) -> Chart:
    """Returns a map, which is a chart that shows a column as colours over two axes."""
    x, ys, _, places = asked
    y = ys[0]
    if len(ys) > 1:
        raise UsageError(f"y: got {asked.ys}; a map has one axis along y")
    has_runs = "seed" in df
    if contour and not has_runs:
        raise UsageError("contour: it needs a table of runs, with a column seed")
    if has_runs:
        df = _at_steps(df, x, y, *asked.panels, colour)
    table = df
    if has_runs:
        table = _with_stored_laws(df, rows_of(df, roles), [x, y, *asked.panels])
    table = _with_axes(table, [x, y], [*asked.panels, colour])
    placed, places_left = [x, y, *asked.panels], "rows, columns or panels"
    if has_runs:
        _expect_numbers(table, [colour])
        check_one_run_per_seed(
            df, table, roles, placed=placed, drawn=[colour], places=places_left
        )
        table = averaged(table, placed, colour)
    else:
        axes = _axes_of_marks(table, [*placed, colour])
        names = axes or without(table, [colour])
        check_one_row(df, table, placed, names, places_left)
    ends = None
    if table[colour].dtype.kind in "iufb":
        is_fraction = (scale or scale_of(table[colour])) == "fraction"
        ends = (0.0, 1.0) if is_fraction else None
    pixels = Pixels(table, colour, label(colour, roles), ends=ends)
    chart = charts.over(pixels, x, y, places, roles)
    if contour is None:
        return chart
    runs = Runs.of(df, roles, choose_along(df, roles, None))
    theory = Theory(runs)
    _tell_no_theory(runs)
    chart = chart.plus(theory.contour(chart.x, chart.y or chart.x, asked.panels, 0.5))
    theory.warn()
    return chart


def _tell_no_theory(runs: Runs) -> None:
    """Warns if theory was asked for and is not about the runs."""
    if not runs.has_theory:
        needed = ", ".join(SETTINGS)
        warnings.warn(
            "theory is not drawn: it predicts the mean accuracy of this package's"
            f" simulator, in tables with the columns {needed}",
            stacklevel=4,
        )


def _pyplot() -> Any:
    """Returns pyplot with its backend.

    In a notebook, the backend changes settings when it is loaded. This must not happen
    while the settings of a figure apply, because the changes would be undone.
    """
    import matplotlib.pyplot as plt

    plt.draw_if_interactive()
    return plt


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


def _expect_numbers(rows: Table, names: Sequence[str]) -> None:
    for name in names:
        problem = no_numbers(rows[name])
        if problem:
            raise UsageError(f"df: {name} {problem}")


def _with_axes(df: Table, axes: Sequence[str], others: Sequence[str]) -> Table:
    """Returns the table with a column for each axis that is arithmetic.

    Raises UsageError if the table lacks a column.
    """
    known = [str(name) for name in df if str(name)[:1] != "_"]
    has = ", ".join(known)
    try:
        df = with_columns(df, *axes)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"df: no column {', '.join(map(repr, axes))}, nor arithmetic on its"
            f" columns{suggest(axes[0], known)}; it has {has}"
        ) from error
    missing = [name for name in others if name not in df]
    if missing:
        advice = suggest(missing[0], known)
        raise UsageError(f"df: no column {', '.join(missing)}{advice}; it has {has}")
    return df


def _with_few_lines(chart: Chart, df: Table) -> Chart:
    """Returns the chart; raises UsageError if it has more than MAX_LINES lines."""
    n = len(chart.groups)
    if n > MAX_LINES:
        raise UsageError(
            f"lines: {n} lines of one {', '.join(chart.lines)} each are too many;"
            f" choose at most {MAX_LINES}, as in {choice(df, chart.lines[:1])}, or name"
            " axes in rows and columns of `figure`"
        )
    return chart


def _on(chart: Chart, ax: Axes | None) -> Axes:
    """Draws the chart on `ax`, or on the Axes of a new figure, and returns the Axes.

    The new figure belongs to pyplot, so that notebooks display it.
    """
    plt = _pyplot()
    with look(place="axes"):
        return chart.on(ax or plt.subplots(layout="constrained")[1])
