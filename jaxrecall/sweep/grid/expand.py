"""The blocks of a checked file to points, each point once.

A point that cannot be simulated refuses the grid, unless a where line excludes it. Each kind of fault is reported once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ...errors import GridError, PointError, Problem
from .axes import Names
from .document import Document
from .expr import Expression
from .file import Block, GridFile
from .schema import Location, show

MAX_KEPT = 200_000  # points that are kept only to report how far a grid is past max_runs
BETWEEN = 10_000  # points from one report of progress to the next

OnProgress = Callable[[int, int], None]
"""Called with the points expanded so far, and all of them."""

Values = dict[str, Any]
"""Values of fields and helpers by name; None is not given."""

_RESOLVED = {"activation", "embedding", "embedding_out", "tokens", "noise_tokens", "kappa", "gamma", "gamma2"}
"""Fields that may change, or appear, when the point is made."""


class Levels(Mapping[Any, Any]):
    """The points of a cell by level or its k in the lattice, each made when it is asked for."""

    def __init__(self, ks: Iterable[Any], make: Callable[[Any], Any]):
        self.made: dict[Any, Any] = dict.fromkeys(ks)
        self.make = make

    def __getitem__(self, k: Any) -> Any:
        if self.made[k] is None:
            self.made[k] = self.make(k)
        return self.made[k]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


class Line(NamedTuple):
    """The points of a cell along the searched axis: `levels` are those that are valid, by k of the lattice; `bounded` says what makes
    others of the range invalid, empty if all are valid; `helpers` are those of the cell where fields follow the axis."""

    levels: Mapping[int, Any]
    bounded: str
    helpers: Values

    @property
    def name(self) -> tuple[Any, ...]:
        """The same for lines of the same points."""
        ks = [*self.levels] if isinstance(self.levels, dict) else [min(self.levels), max(self.levels)]
        return (len(self.levels), *((k, self.levels[k].point_id) for k in ks))


class Expansion(NamedTuple):
    """The points in order, how many repeated another one, and how many a where line excluded; of a search one point of each line.

    `kept` has the helpers that become columns, by the id of each point that has been made; a search makes some points later.
    """

    points: tuple[Any, ...]
    n_duplicates: int
    n_excluded: int
    lines: tuple[Line, ...]
    kept: Mapping[str, Values]


def expand(document: Document, file: GridFile, names: Names, on_progress: OnProgress = lambda done, of: None) -> Expansion:
    """All points of the grid; raises GridError with a line for each kind of invalid point, or if no point or too many are left."""
    kept: dict[str, Values] = {}
    blocks = [_Expanded(names, file, i, block, kept) for i, block in enumerate(file.blocks or [Block()])]
    n_raw, n_excluded, n_duplicates = sum(block.n_raw for block in blocks), 0, 0
    most = file.limits.max_runs // file.runs_each
    if most == 0 or n_raw > 20 * max(file.limits.max_runs, 1_000_000):
        raise _too_many(document, file, n_raw, " before where,")
    points: dict[Any, Any] = {}
    lines: dict[Any, Line] = {}
    first, counts = dict[Any, str](), Counter[Any]()  # of each kind of invalid points
    for n_done, (block, row) in enumerate((each, row) for each in blocks for row in each.rows()):
        if n_done % BETWEEN == 0:
            on_progress(n_done, n_raw)
        values = block.values(row)
        try:
            line = block.line(values) if file.search else None
            point = next(iter(line.levels.values()), None) if line else block.point(values)
        except PointError as error:
            for problem in error.problems:
                remedy = problem.where or problem.message.rpartition("; allowed: ")[2].split(", at ")[0]
                kind = block.location_of(problem.argument), problem.argument, remedy
                counts[kind] += 1
                if counts[kind] == 1:
                    first[kind] = block.about(problem, row, values)
            continue
        if point is None:
            n_excluded += 1
            continue
        name = line.name if line else point.point_id
        if points.setdefault(name, point) is not point:
            n_duplicates += 1
        elif line:
            lines[name] = line
        if len(points) > max(MAX_KEPT, most):
            raise _too_many(document, file, len(points), f" so far, of {n_raw},")
    if first:
        told = {kind: f"{counts[kind]} of {_points(n_raw)} cannot be simulated{about}" for kind, about in first.items()}
        raise GridError([document.line(kind[0], message) for kind, message in told.items()])
    if not points:
        empty = "excludes all of {}, no block has any left; allowed: conditions that some meet"
        raise GridError([document.line((*block.location, "where"), empty.format(_points(block.n_raw))) for block in blocks])
    if len(points) > most:
        raise _too_many(document, file, len(points))
    return Expansion(tuple(points.values()), n_duplicates, n_excluded, tuple(lines.values()), kept)


def _too_many(document: Document, file: GridFile, n_points: int, about: str = "") -> GridError:
    each = f"{file.runs_each} " + ("runs that a search may take" if file.search else "seeds")
    got = f"got {_points(n_points)}{about} times {each} = {n_points * file.runs_each} runs"
    allowed = f"allowed: {file.limits.max_runs} runs; raise limits.max_runs or make the grid smaller"
    return GridError(document.line(("limits", "max_runs"), f"{got}; {allowed}"))


class _Expanded:
    """A block of the file: rows of values, and the point at each. `locations` says where each of its names is written.

    `kept` takes the helpers to keep of every point that is made; of a point that several blocks have, those of the first.
    """

    def __init__(self, names: Names, file: GridFile, i: int, block: Block, kept: dict[str, Values]):
        self.names, self.block, self.base = names, block, file.base
        self.keep, self.kept = file.keep or (), kept
        self.start = names.defaults | {name: value for name, value in file.base.items() if value is not None}
        self.start["root_seed"] = file.root_seed
        self.location: Location = ("blocks", i) if file.blocks else ()
        self.locations = block.locations(self.location) | {f"where.{j}": (*self.location, "where", j) for j in range(len(block.where))}
        groups = [group for _, group in block.groups()]
        self.axes = [name for group in groups for name in group]
        self.factors = [list(zip(*group.values(), strict=True)) for group in groups]
        self.n_raw = math.prod(map(len, self.factors))
        self.rate = next((name for name in names.other_rate if name in self.locations), None)
        if search := file.search:
            self.searched, self.lattice = search.axis, search.lattice(names)
            self.start[search.axis], self.locations[search.axis] = search.from_, ("search",)
            self.followers = followers(block.derive, search.axis)
        self.arguments = [name for name in {**self.start, **self.locations} if name in names or name == "root_seed"]

    def rows(self) -> Iterator[Values]:
        """The values of the axes at each point, the last axis fastest."""
        for combination in itertools.product(*self.factors):
            yield dict(zip(self.axes, itertools.chain.from_iterable(combination), strict=True))

    def values(self, row: Values) -> Values:
        """`row` over the base; null in a row means that the default of the field holds."""
        nulls = {name: self.names.defaults.get(name) for name, value in row.items() if value is None} if None in row.values() else {}
        return {**self.start, **row, **nulls}

    def line(self, values: Values) -> Line:
        """The points at these values of base and axes along the searched axis; raises PointError if none of them is valid.

        Of levels with the same point the first counts. An m of 0 that follows the axis is no level. Where nothing joins the axis with
        other fields, levels between two valid ones are valid, and their points are not made yet.
        """

        def make(k: int) -> Any:
            return self.point(values | {self.searched: self.lattice[k]})

        joined = self.followers or any(self.searched in line.names for line in self.block.where)
        if not joined and self.names.kind(self.searched) not in ("size", "law") and len(self.lattice) > 1:
            with suppress(PointError):
                levels = Levels(self.lattice, make)
                if levels[min(levels)] is not None and levels[max(levels)] is not None:
                    return Line(levels, "", {})
        found: dict[str, tuple[int, Any]] = {}
        problems: list[list[Problem]] = []
        bounds: dict[str, None] = {}
        for k in self.lattice:
            try:
                point = make(k)
            except PointError as error:
                problems.append(error.problems)
                bounds.setdefault(error.problems[0].argument)
                continue
            if point is not None and "m" in self.followers and point.m == 0:
                bounds.setdefault("m")
            elif point is None:
                bounds.setdefault("where")
            else:
                found.setdefault(point.point_id, (k, point))
        if not found and all(problem == problems[0] for problem in problems) and problems:
            raise PointError(problems[0])
        if not found and (problems or bounds.keys() != {"where"}):
            last = f", the largest fails as {problems[-1][0]}" if problems else ""
            raise PointError([Problem(self.searched, f"no level between search.from and search.to is valid{last}")])
        helpers = {name: values[name] for name in self.axes if self.followers and name not in self.names}
        return Line(dict(found.values()), ", ".join(bounds), helpers)

    def point(self, values: Values) -> Any:
        """The point at these values of base and axes, or None if a where line excludes it; raises PointError.

        Adds the derived values to `values`. A where line sees the fields as the point resolves them. Where the point cannot be
        made, a line that needs only given and derived values may still exclude it.
        """
        problems: list[Problem] = []
        for name, expression in self.block.derive.items():
            values[name] = _evaluated(expression, values, name, problems)
            del problems[1:]  # what fails after it fails because of it
        point = None  # made by the first line that needs it, since to exclude a point without making it is faster
        for i, line in enumerate(self.block.where):
            known = None not in map(values.get, line.names)
            if point is None and not problems and not (known and line.names.isdisjoint(_RESOLVED)):
                point = self._make(values, problems)
            if point is None and not known:
                continue
            holds = _evaluated(line, values if point is None else self._resolved(line.names, point, values), f"where.{i}", problems)
            if holds is False:
                return None
            if holds not in (True, None):
                problems.append(Problem(f"where.{i}", f"{line.text!r}: gives {show(holds)}; allowed: true or false"))
        if point is None and not problems:
            point = self._make(values, problems)
        if problems:
            raise PointError(problems)
        if self.keep:
            self.kept.setdefault(point.point_id, {name: values.get(name) for name in self.keep})  # type: ignore[union-attr]
        return point

    def location_of(self, name: str) -> Location:
        """Where the value of a name is written."""
        return self.locations.get(name, ("base", name) if name in self.base else self.location)

    def about(self, problem: Problem, row: Values, values: Values) -> str:
        """A problem, the values of the axes where it is, and what would mend it."""
        name, at = problem.argument, ", ".join(f"{axis}={show(value)}" for axis, value in row.items())
        about = (f", the first at {at}" if at else "") + f": {problem}"
        if name in self.block.derive and "whole numbers" in problem.message and isinstance(value := values[name], float) and value % 1:
            about += f'; write {name}: "round({self.block.derive[name].text})"'
        if problem.where and self.location and self.locations.get(name) != ("search",):
            about += f'; where: ["{problem.where}"] would exclude them'
        return about

    def _resolved(self, used: Iterable[str], point: Any, values: Values) -> Values:
        """The values of names: of fields as the point has them, of helpers as they are."""
        return {name: self.names.value(point, name) if name in self.names else values[name] for name in used}

    def _make(self, values: Values, problems: list[Problem]) -> Any:
        """The point, or None and its problems added to `problems`."""
        arguments = {name: values[name] for name in self.arguments if values.get(name) is not None}
        if self.rate in arguments:
            arguments.pop(self.names.other_rate[self.rate], None)
        try:
            return self.names.simulator.make_point(arguments)
        except PointError as error:
            problems += error.problems


def followers(derive: Mapping[str, Expression], axis: str) -> set[str]:
    """The names that are derived from an axis, directly or not."""
    found = {axis}
    for name, expression in derive.items():
        found |= {name} if found & expression.names else set()
    return found - {axis}


def _evaluated(expression: Expression, values: Values, name: str, problems: list[Problem]) -> Any:
    """The value of an expression; or None, and a problem with `name`."""
    try:
        return expression.evaluate(values)
    except ValueError as error:
        problems.append(Problem(name, str(error)))


def _points(count: int) -> str:
    return f"{count} point" + ("" if count == 1 else "s")
