"""Tables of studies as data: the rows, what a line stands for, and what a cell says.

    @as_table(["embedding", "d"], {"L = {L}": with_interval()})
    def embeddings():
        \"\"\"N* of each embedding by d and L.\"\"\"
        return searched("embeddings")

is a table with a line for each embedding and d, and a column for each L. Calling it
returns its Markdown.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from itertools import groupby
from numbers import Number
from string import Formatter

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.special import stdtrit

Cell = str | Callable[[pd.DataFrame], object]
"""What a cell says of its rows: a text like "{accuracy:.2f}", which is filled with the
means of columns, or a function of the rows.
"""


@dataclass
class Table:
    """A table of a study; `as_table` makes one of a function.

    `rows` is a function that returns the rows, or records of them. A line stands for
    the rows that have the same values in the columns `index`; without an index, for one
    row. Lines are in the order of the rows. `cells` is a dict from heads to cells. A
    head like "L = {L}" makes a column for each L. Without cells, all columns are shown
    as they are. `missing` is the text where there are no rows or no number.
    """

    rows: Callable
    index: Sequence[str] = ()
    cells: Mapping[str, Cell] | None = None
    missing: str = ""

    def __call__(self) -> str:
        """Returns the table as Markdown."""
        rows = pd.DataFrame(self.rows())
        if self.cells is None:
            texts = rows.map(plain).where(rows.notna(), self.missing)
            return markdown([*texts], texts.to_numpy())
        columns = [*self.columns(rows)]
        lines = rows.groupby([*self.index] or np.arange(len(rows)), sort=False)
        body = []
        for values, line in lines:
            names = map(plain, values) if self.index else []
            cells = [self.said(cell, at(line, **place)) for _, place, cell in columns]
            body.append([*names, *cells])
        return markdown([*self.index, *(head for head, _, _ in columns)], body)

    def columns(self, rows):
        """Yields the head of each column, the values that select its rows, and its
        cell.

        Neighbouring heads with the same fields take turns.
        """
        for axes, heads in groupby(self.cells.items(), lambda item: fields(item[0])):
            heads = [*heads]
            for values in distinct(rows, axes):
                for head, cell in heads:
                    yield filled(head, values), values, cell

    def said(self, cell, rows):
        """Returns the text of a cell."""
        if rows.empty:
            return self.missing
        if callable(cell):
            return cell(rows)
        values = means(rows, fields(cell))
        if any(pd.isna(value) for value in values.values()):
            return self.missing
        return filled(cell, values)


def as_table(index=(), cells=None, missing=""):
    """Makes a table of a function that returns its rows. See `Table`."""
    return lambda rows: update_wrapper(Table(rows, index, cells, missing), rows)


def tables_of(*modules):
    """Returns a dict from names to the tables that modules define, in their order."""
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, Table) and found.__module__ == module.__name__
    }


def print_tables(tables):
    """Prints tables, each as soon as it is made: those that the command line names, or
    all.
    """
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    unknown = {*names} - {*tables}
    if unknown:
        sys.exit(f"no table {', '.join(unknown)}; there are {', '.join(tables)}")
    for name in names or tables:
        print(f"{name}: {tables[name].__doc__}\n\n{tables[name]()}\n", flush=True)


def markdown(heads, body):
    """Returns a Markdown table."""
    lines = [heads, ["---"] * len(heads), *body]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


# rows


def stacked(rows, name, parts):
    """Returns the rows of each part, one part after another.

    `parts` is a dict from the part's name, which becomes the column `name`, to its
    condition. Rows of several parts are repeated.
    """
    found = [rows.query(part).assign(**{name: of}) for of, part in parts.items()]
    return pd.concat(found)


def at(rows, **values):
    """Returns the rows with these values; floats are equal up to rounding."""
    for name, value in values.items():
        is_float = isinstance(value, float)
        rows = rows[np.isclose(rows[name], value) if is_float else rows[name] == value]
    return rows


def distinct(rows, axes):
    """Returns a dict of values for each column of a head.

    Numbers and categories are in order, other values as they appear.
    """
    if not axes:
        return [{}]
    values = rows[[*axes]].drop_duplicates()
    ordered = [*values.select_dtypes(["number", "category"])]
    if ordered:
        values = values.sort_values(ordered, kind="stable")
    return values.to_dict("records")


def means(rows, names):
    """Returns the means of columns of numbers, and the first of other values."""
    return {name: mean(rows[name]) for name in names}


def mean(values):
    """Returns the mean of numbers, and the first of other values."""
    if is_numeric_dtype(values) and not is_bool_dtype(values):
        return values.mean()
    return values.iloc[0]


# texts


def plain(value):
    """Formats a value without needless digits; truth values are yes and no."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Number) and value >= 1e9:
        return short(value)
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else f"{value:g}"
    return str(value)


def short(number):
    """Formats a number with three digits: 87 or 1.23e4."""
    return f"{number:.0f}" if number < 1000 else power(f"{number:.3g}")


def commas(number):
    """Formats a number with three digits: 87 or 12,300, and 1.23e6 from 1e6 on."""
    if number >= 1e6:
        return power(f"{number:.2e}")
    return f"{float(f'{number:.3g}'):,.0f}"


def power(text):
    """Writes 1e+06 as 1e6."""
    return text.replace("e+0", "e").replace("e+", "e")


FORMS = {"": plain, "short": short, "commas": commas}


def formatted(value, form):
    """Formats a value, by one of FORMS or as Python does."""
    return FORMS[form](value) if form in FORMS else format(value, form)


class Texts(Formatter):
    """Fills texts like "{N_star:short}"."""

    def format_field(self, value, format_spec):
        return formatted(value, format_spec)


def fields(text):
    """Returns the names in the braces of a text."""
    return tuple(name for _, name, _, _ in Formatter().parse(text) if name)


def filled(text, values):
    """Returns a text with the values of its names."""
    return Texts().vformat(text, (), values)


def bracketed(numbers, form=".2f"):
    """Formats a number and the ends of its interval: 1.46 [1.40, 1.52]."""
    return "{} [{}, {}]".format(*(formatted(number, form) for number in numbers))


# cells


CRITICAL = ("critical", "lo", "hi")
TOLD = {
    "plateau": "levels off",
    "left": "under {N_above}",
    "right": "none to {N_below}",
}


def with_interval(form="short", told=TOLD, interval=True, names=CRITICAL):
    """Makes a cell of a critical value with its 95 % interval, or why there is none.

    `told` is a dict from outcomes to texts. `names` are the columns of the value and of
    the ends of its interval.
    """

    def cell(rows):
        row = rows.iloc[0]
        number, low, high = (row[name] for name in names)
        if number is None or not number > 0:
            reason = row["outcome" if "outcome" in row else "censored"]
            return filled(told.get(reason, reason), row)
        if interval and low > 0:
            return bracketed((number, low, high), form)
        return formatted(number, form) + ", no interval" * interval

    return cell


def each(axis, cell, between=", "):
    """Makes a cell that has a text for each value of an axis."""

    def texts(rows):
        return between.join(
            filled(cell, means(mine, fields(cell))) for _, mine in rows.groupby(axis)
        )

    return texts


def interval(values):
    """The mean of values and the ends of its 95 % interval (Student's t)."""
    values = np.asarray(values, float)
    half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / len(values) ** 0.5
    return values.mean(), values.mean() - half, values.mean() + half


def median_off(rows):
    """The median of abs(off); infinite ones count."""
    return f"{rows['off'].abs().median():.3f}"


def mean_off(rows):
    """The mean of the finite values of `off`."""
    return f"{finite(rows['off']).mean():+.3f}"


def largest_off(rows):
    """The finite value of `off` that is farthest from 0."""
    off = finite(rows["off"])
    return f"{off[off.abs().idxmax()]:+.2f}"


def largest_off_at(rows):
    """The finite value of `off` that is farthest from 0, and its V, d and L."""
    rows = rows.reset_index(drop=True)
    worst = rows.loc[finite(rows["off"]).abs().idxmax()]
    return f"{worst['off']:+.2f} (V {worst['V']}, d {worst['d']}, L {worst['L']})"


def finite(numbers):
    return numbers[np.isfinite(numbers)]


def infinite(rows):
    """The number of infinite values of `off`."""
    return np.isinf(rows["off"]).sum()


ERRORS = {
    "cells": len,
    "median abs ln ratio": median_off,
    "mean ln ratio": mean_off,
    "largest": largest_off,
}
"""The cells about `off`, which is ln(predicted / observed)."""
