"""The grid that Python code gives: a dict with the keys of a grid file, the path of one, a point, or a list of points."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ...errors import GridError, shown
from ...model.point import Point
from .document import Document, read_document
from .grid import Grid, from_document

MAX_LIST = 1_000_000
"""Values of a list, at most."""

GridLike = Mapping[str, Any] | str | os.PathLike[str] | Point | Sequence[Point]


def as_grid(given: GridLike, seeds: int | Iterable[int] | None = None) -> Grid:
    """The grid that `given` stands for; `seeds`, a count or a list, replace its own. Points have the one seed 0 unless given others.

    Tuples, ranges and NumPy arrays count as lists. Raises GridError with a line for each error.
    """
    if isinstance(given, (str, os.PathLike)):
        document = read_document(os.fspath(given))
    elif isinstance(given, Mapping):
        try:
            document = Document("grid", _plain(given))
        except RecursionError:
            raise GridError("grid: is nested too deeply") from None
    else:
        document = Document("grid", _of_points([given] if isinstance(given, Point) else given))
    if seeds is not None:
        document.data["seeds"] = _seeds(seeds)
        document.origins = {place: line for place, line in document.origins.items() if place[0] != "seeds"}
    return from_document(document)


def _seeds(seeds: int | Iterable[int]) -> Any:
    """The seeds as a grid file gives them; a range stays one, however long it is."""
    if isinstance(seeds, range) and seeds and seeds.step == 1:
        return {"start": seeds[0], "count": seeds[-1] - seeds[0] + 1}
    return _plain(seeds if isinstance(seeds, Iterable) else {"count": seeds})


def _plain(value: Any) -> Any:
    """`value` as YAML would give it: dicts, lists, text, numbers. The caller's own dicts and lists stay as they are."""
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, pandas' columns
        return value.tolist()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise GridError(f"grid: got {shown(wrong[0])} as a key; allowed: names")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        items = [_plain(item) for item in islice(value, MAX_LIST + 1)]
        if len(items) > MAX_LIST:
            raise GridError(f"grid: got {type(value).__name__} of more than {MAX_LIST} values; allowed: lists of up to {MAX_LIST}")
        return items
    return value


def _of_points(points: Any) -> dict[str, Any]:
    """A grid file of these points: what they have in common is the base, and each has a block for the rest."""
    points = list(points) if isinstance(points, Iterable) else [points]
    if not points or not all(isinstance(point, Point) for point in points):
        got = "an empty list" if not points else repr(next(point for point in points if not isinstance(point, Point)))
        raise GridError(f"grid: got {got}; allowed: a dict with the keys of a grid file, its path, a Point, or a list of Points")
    roots = sorted({point.root_seed for point in points})
    if len(roots) > 1:
        raise GridError(f"grid: got points of root_seed {', '.join(map(str, roots))}; allowed: points of one root_seed")
    fields = [{name: value for name, value in point.as_given().items() if name != "root_seed"} for point in points]
    base = {name: value for name, value in fields[0].items() if all(name in own and own[name] == value for own in fields)}
    own = [{name: value for name, value in each.items() if name not in base} for each in fields]
    return {"name": "points", "root_seed": roots[0], "base": base} | ({"blocks": [{"axes": axes} for axes in own]} if any(own) else {})
