"""The parameters of a point's laws by dotted name, as grids and rows contain them.

For example, `embedding.rho` is an axis of a grid and a column of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ..errors import PointError, Problem, shown, suggest
from .laws import Law, find_law
from .laws.law import LawColumn, made, rename_problems
from .point import DEFAULTS, LAW_FIELDS, SAME_AS, Point


def make_point(values: Mapping[str, Any]) -> Point:
    """Returns the point with these fields and parameters of laws, such as
    {"embedding.rho": 0.3}.

    Args:
        values: fields of a point by name, and parameters of laws by dotted name. A
            parameter replaces the value that the given law has for it. None leaves this
            value unchanged.

    Raises:
        PointError: a field is not allowed, as for `Point`, or the law lacks a
            parameter.
    """
    fields: dict[str, Any] = {}
    parameters: dict[str, dict[str, object]] = {}
    problems = []
    named = set()
    for name, value in values.items():
        field, dot, parameter = name.partition(".")
        if not dot:
            fields[name] = value
        elif value is not None:
            named.add(name)
            parameters.setdefault(field, {})[parameter] = value
            if field not in LAW_FIELDS:
                allowed = f"{', '.join(LAW_FIELDS)}{suggest(field, LAW_FIELDS)}"
                message = f"got {shown(value)}; fields with parameters: {allowed}"
                problems.append(Problem(name, message))
    for field in LAW_FIELDS:  # embedding comes before embedding_out, which follows it
        if field in parameters:
            try:
                law = _law_of(field, fields)
                fields[field] = made(type(law), asdict(law) | parameters[field])
            except PointError as error:
                problems += rename_problems(error.problems, LAW_FIELDS[field], field)
    if problems:
        raise PointError(problems)
    point = Point(**fields)
    return point.with_columns(named) if named else point


def _law_of(name: str, values: Mapping[str, Any]) -> Law:
    """Returns the law of a field if a point is given these values, or raises
    PointError.
    """
    family = LAW_FIELDS[name]
    given = values.get(name) or values.get(family.field) or DEFAULTS[family.field]
    return find_law(family, given or "sgd")


def law_parameters(point: Point) -> dict[str, float]:
    """Returns a dict from dotted name to value. It contains the numeric law parameters
    that are columns of a row.

    The parameters of embedding_out are columns only if embedding_out was given. The
    same holds for noise_tokens.
    """
    return {name: column.value for name, column in _law_columns(point).items()}


def parameter_columns(points: Iterable[Point]) -> dict[str, tuple[str, str, str]]:
    """Returns a dict from column name to Arrow type, legend and unit, sorted by name.
    It contains the law parameters that are columns for any of these points.
    """
    columns = {}
    for point in points:
        for name, column in _law_columns(point).items():
            columns[name] = ("float64", column.legend, column.unit)
    return dict(sorted(columns.items()))


def _law_columns(point: Point) -> dict[str, LawColumn]:
    """Returns a dict from dotted name to column, for the laws of a point."""
    names = ["embedding", "tokens", "activation", "optimizer"]
    names += [name for name in SAME_AS if name in point.given]
    columns: dict[str, LawColumn] = {}
    for name in names:
        if law := getattr(point, name):
            columns |= law.columns(name, point.named)
    return columns


def problem_in_workers(point: Point) -> str | None:
    """Returns the reason why other processes cannot import the laws of the point. It is
    None if they can.
    """
    for name in LAW_FIELDS:
        law, where = getattr(point, name), ""
        if "<locals>" in type(law).__qualname__:
            where = "a function"
        if type(law).__module__ == "__main__":
            where = "a script or a notebook"
        if where:
            what = "a function or a class" if law.of_function else "a class"
            return (
                f"{name}: got {law}, which is defined in {where}; other processes need"
                f" {what} at the top of a module of its own"
            )
    return None
